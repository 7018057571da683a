// Shape rules of ops that move elements, as the StableHLO specification has
// them (each op's "Constraints"). A rule checks operands and attributes and
// says what the results are (at_infer_set): it sets the types of a node that
// has none, and compares them with those of one that declares some. Unknown
// dimensions (AT_DYN) agree with everything.
// Errors name the op, its place and the numbers that do not fit: they are what
// a user of an exported program reads.
#include "hlo/hlo_internal.h"

// An attribute with one entry for each dimension; absent, it is `absent`
// everywhere, in the arena.
at_status at_ints_or(at_arena *a, const at_node *n, at_attr_id id,
                     uint32_t count, int64_t absent, const int64_t **out) {
  const at_attr *attr = at_node_attr(n, id);
  if (attr) {
    if (attr->ints.rank != count)
      return AT_BAD(n, "%s has %u entries, needs %u", at_attr_text(id),
                    attr->ints.rank, count);
    *out = attr->ints.ptr;
    return AT_OK;
  }
  int64_t *v;
  AT_TRY_ALLOC(v, at_new(a, int64_t, count));
  for (uint32_t i = 0; i < count; i++) v[i] = absent;
  *out = v;
  return AT_OK;
}

// Numbers of dimensions: in range, none twice; `sorted`: ascending, too.
at_status at_dims_check(const at_node *n, at_attr_id id, at_dims d,
                        uint32_t rank, bool sorted) {
  for (uint32_t i = 0; i < d.rank; i++) {
    if (d.ptr[i] < 0 || d.ptr[i] >= rank)
      return AT_BAD(n, "%s[%u] = %lld is not in [0, %u)", at_attr_text(id), i,
                    (long long)d.ptr[i], rank);
    if (sorted && i && d.ptr[i] <= d.ptr[i - 1])
      return AT_BAD(n, "%s %s is not strictly ascending", at_attr_text(id),
                    at_dims_z(d).z);
    for (uint32_t j = 0; j < i; j++)
      if (d.ptr[i] == d.ptr[j])
        return AT_BAD(n, "%s names %lld twice", at_attr_text(id),
                      (long long)d.ptr[i]);
  }
  return AT_OK;
}

// One declared result: these rules only check it.
static at_status need_type(const at_node *n) {
  return n->types && n->num_results == 1
             ? AT_OK
             : AT_BAD(n, "needs its one result type");
}

// May two dimensions be the same?
static bool agree(int64_t a, int64_t b) {
  return a == b || a == AT_DYN || b == AT_DYN;
}

// The wider side has the same dimensions but for a last one of the narrower,
// which counts its parts.
at_status at_infer_bitcast_convert(at_module *m, at_node *n) {
  AT_TRY(need_type(n));
  const at_type *a = at_value_type(n->operands[0]), *r = &n->types[0];
  uint32_t from = at_dtype_of(a->dtype)->bits, to = at_dtype_of(r->dtype)->bits;
  const at_type *wide = from >= to ? a : r, *narrow = from >= to ? r : a;
  bool grows = from != to;
  if (!from || !to || at_is_complex(a->dtype) != at_is_complex(r->dtype))
    return AT_BAD(n, "cannot reinterpret %s as %s", at_type_z(a).z,
                  at_type_z(r).z);
  bool fits = narrow->rank == wide->rank + grows;
  for (uint32_t i = 0; fits && i < wide->rank; i++)
    fits = agree(wide->dims[i], narrow->dims[i]);
  uint32_t big = AT_MAX(from, to), small = AT_MIN(from, to);
  if (fits && grows)
    fits = big % small == 0 &&
           agree(narrow->dims[narrow->rank - 1], (int64_t)(big / small));
  if (!fits)
    return AT_BAD(n, "%s does not have the bits of %s", at_type_z(a).z,
                  at_type_z(r).z);
  return AT_OK;
}

// Operand dimension i goes to result dimension broadcast_dimensions[i], with
// equal sizes or from 1.
at_status at_infer_broadcast_in_dim(at_module *m, at_node *n) {
  AT_TRY(need_type(n));
  const at_type *a = at_value_type(n->operands[0]), *r = &n->types[0];
  at_dims d = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  if (a->dtype != r->dtype)
    return AT_BAD(n, "result %s has another element type", at_type_z(r).z);
  if (d.rank != a->rank)
    return AT_BAD(n, "broadcast_dimensions has %u entries, operand rank is %u",
                  d.rank, a->rank);
  AT_TRY(at_dims_check(n, AT_ATTR_BROADCAST_DIMENSIONS, d, r->rank, false));
  for (uint32_t i = 0; i < d.rank; i++)
    if (a->dims[i] != 1 && !agree(a->dims[i], r->dims[d.ptr[i]]))
      return AT_BAD(n,
                    "operand dimension %u (%lld) is neither 1 nor that of "
                    "result dimension %lld in %s",
                    i, (long long)a->dims[i], (long long)d.ptr[i],
                    at_type_z(r).z);
  return AT_OK;
}

// Operands agree but in one dimension, whose sizes add up. A known size of one
// operand fills in what others leave open.
at_status at_infer_concatenate(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, -1), *dims, sum = 0;
  if (d < 0 || d >= a->rank)
    return AT_BAD(n, "dimension %lld is not in [0, %u)", (long long)d, a->rank);
  AT_TRY_ALLOC(dims, at_arena_copy(m->arena, a->dims, a->rank * sizeof *dims,
                                   _Alignof(int64_t)));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    at_type want = *a;
    dims[d] = AT_DYN;
    want.dims = dims;
    if (!at_type_compatible(t, &want))
      return AT_BAD(n, "operand %u is %s, must be like %s except in %lld", i,
                    at_type_z(t).z, at_type_z(a).z, (long long)d);
    for (uint32_t k = 0; k < a->rank; k++)
      if (dims[k] == AT_DYN && k != d) dims[k] = t->dims[k];
    if (t->dims[d] == AT_DYN || sum == AT_DYN)
      sum = AT_DYN;
    else if (__builtin_add_overflow(sum, t->dims[d], &sum))
      return AT_BAD(n, "the result is too large");
  }
  dims[d] = sum;
  at_type r = {.dtype = a->dtype, .rank = a->rank, .dims = dims};
  return at_infer_set(m, n, &r, 1);
}

// n elements, `inside` more between any two, low and high around: negative ones
// cut off. False: an overflow.
static bool pad_dim(int64_t n, int64_t low, int64_t high, int64_t inside,
                    int64_t *out) {
  int64_t gaps;
  return !__builtin_mul_overflow(n > 0 ? n - 1 : 0, inside, &gaps) &&
         !__builtin_add_overflow(n, gaps, &n) &&
         !__builtin_add_overflow(n, low, &n) &&
         !__builtin_add_overflow(n, high, out);
}

// Sizes by pad_dim; unknown ones stay unknown.
at_status at_infer_pad(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  const at_type *v = at_value_type(n->operands[1]);
  const int64_t *low, *high, *inside;
  int64_t *dims;
  AT_TRY(at_ints_or(m->arena, n, AT_ATTR_EDGE_PADDING_LOW, a->rank, 0, &low));
  AT_TRY(at_ints_or(m->arena, n, AT_ATTR_EDGE_PADDING_HIGH, a->rank, 0, &high));
  AT_TRY(
      at_ints_or(m->arena, n, AT_ATTR_INTERIOR_PADDING, a->rank, 0, &inside));
  if (v->rank != 0 || v->dtype != a->dtype)
    return AT_BAD(n, "padding value is %s, must be a scalar of %s",
                  at_type_z(v).z, at_type_z(a).z);
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, a->rank));
  for (uint32_t i = 0; i < a->rank; i++) {
    dims[i] = AT_DYN;
    if (inside[i] < 0)
      return AT_BAD(n, "interior_padding[%u] = %lld is negative", i,
                    (long long)inside[i]);
    if (a->dims[i] == AT_DYN) continue;
    if (!pad_dim(a->dims[i], low[i], high[i], inside[i], &dims[i]) ||
        dims[i] < 0)
      return AT_BAD(n, "dimension %u (%lld) padded by %lld, %lld, %lld is %s",
                    i, (long long)a->dims[i], (long long)low[i],
                    (long long)high[i], (long long)inside[i],
                    dims[i] < 0 ? "negative" : "too large");
  }
  at_type r = {.dtype = a->dtype, .rank = a->rank, .dims = dims};
  return at_infer_set(m, n, &r, 1);
}

// The number of elements stays, where both are known.
at_status at_infer_reshape(at_module *m, at_node *n) {
  AT_TRY(need_type(n));
  const at_type *a = at_value_type(n->operands[0]), *r = &n->types[0];
  if (a->dtype != r->dtype)
    return AT_BAD(n, "result %s has another element type", at_type_z(r).z);
  if (at_type_is_static(a) && at_type_is_static(r) &&
      at_type_elements(a) != at_type_elements(r))
    return AT_BAD(n, "result %s has %lld elements, operand has %lld",
                  at_type_z(r).z, (long long)at_type_elements(r),
                  (long long)at_type_elements(a));
  return AT_OK;
}

// ceil((limit - start) / stride) elements, without the sum that could overflow.
at_status at_infer_slice(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  const int64_t *start, *limit, *stride;
  int64_t *dims;
  AT_TRY(at_ints_or(m->arena, n, AT_ATTR_START_INDICES, a->rank, 0, &start));
  AT_TRY(at_ints_or(m->arena, n, AT_ATTR_LIMIT_INDICES, a->rank, 0, &limit));
  AT_TRY(at_ints_or(m->arena, n, AT_ATTR_STRIDES, a->rank, 1, &stride));
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, a->rank));
  for (uint32_t i = 0; i < a->rank; i++) {
    if (start[i] < 0 || limit[i] < start[i] || stride[i] < 1 ||
        (a->dims[i] != AT_DYN && limit[i] > a->dims[i]))
      return AT_BAD(n, "[%lld:%lld:%lld] does not slice dimension %u of %s",
                    (long long)start[i], (long long)limit[i],
                    (long long)stride[i], i, at_type_z(a).z);
    int64_t span = limit[i] - start[i];
    dims[i] = span / stride[i] + (span % stride[i] != 0);
  }
  at_type r = {.dtype = a->dtype, .rank = a->rank, .dims = dims};
  return at_infer_set(m, n, &r, 1);
}

// Result dimension i is operand dimension permutation[i].
at_status at_infer_transpose(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  at_dims p = at_node_ints(n, AT_ATTR_PERMUTATION);
  int64_t *dims;
  if (p.rank != a->rank)
    return AT_BAD(n, "permutation has %u entries, operand rank is %u", p.rank,
                  a->rank);
  AT_TRY(at_dims_check(n, AT_ATTR_PERMUTATION, p, a->rank, false));
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, a->rank));
  for (uint32_t i = 0; i < a->rank; i++) dims[i] = a->dims[p.ptr[i]];
  at_type r = {.dtype = a->dtype, .rank = a->rank, .dims = dims};
  return at_infer_set(m, n, &r, 1);
}

// Operands from `first` on: one integer scalar per dimension, all of one type.
static at_status check_starts(const at_node *n, uint32_t first, uint32_t rank) {
  if (n->num_operands - first != rank)
    return AT_BAD(n, "has %u start indices, the operand's rank is %u",
                  n->num_operands - first, rank);
  for (uint32_t i = first; i < n->num_operands; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    if (t->rank || !at_is_int(t->dtype) ||
        t->dtype != at_value_type(n->operands[first])->dtype)
      return AT_BAD(n, "start index %u is %s, must be an integer scalar",
                    i - first, at_type_z(t).z);
  }
  return AT_OK;
}

// Slice sizes are an attribute, so the result is known although the starts are
// data.
at_status at_infer_dynamic_slice(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  at_dims s = at_node_ints(n, AT_ATTR_SLICE_SIZES);
  AT_TRY(check_starts(n, 1, a->rank));
  if (s.rank != a->rank)
    return AT_BAD(n, "slice_sizes has %u entries, operand rank is %u", s.rank,
                  a->rank);
  for (uint32_t i = 0; i < s.rank; i++)
    if (s.ptr[i] < 0 || (a->dims[i] != AT_DYN && s.ptr[i] > a->dims[i]))
      return AT_BAD(n, "slice_sizes[%u] = %lld is not in [0, %lld]", i,
                    (long long)s.ptr[i], (long long)a->dims[i]);
  at_type r = {.dtype = a->dtype, .rank = a->rank, .dims = s.ptr};
  return at_infer_set(m, n, &r, 1);
}

// The update fits into the operand in every dimension; the result is like the
// operand.
at_status at_infer_dynamic_update_slice(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  const at_type *u = at_value_type(n->operands[1]);
  AT_TRY(check_starts(n, 2, a->rank));
  bool fits = u->rank == a->rank && u->dtype == a->dtype;
  for (uint32_t i = 0; fits && i < a->rank; i++)
    fits = u->dims[i] == AT_DYN || a->dims[i] == AT_DYN ||
           u->dims[i] <= a->dims[i];
  if (!fits)
    return AT_BAD(n, "update %s does not fit into %s", at_type_z(u).z,
                  at_type_z(a).z);
  return at_infer_set(m, n, a, 1);
}

// ---- Gather and scatter

// What both share: where index vectors lie, and the batching dims.
static at_status check_indices(const at_node *n, const at_type *operand,
                               const at_type *indices, at_dims index_map,
                               at_attr_id map_id, at_dims operand_batch,
                               at_attr_id operand_batch_id, at_dims index_batch,
                               at_attr_id index_batch_id) {
  int64_t iv = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, indices->rank);
  if (!at_is_int(indices->dtype))
    return AT_BAD(n, "indices are %s, must be integers", at_type_z(indices).z);
  if (iv < 0 || iv > indices->rank)
    return AT_BAD(n, "index_vector_dim %lld is not in [0, %u]", (long long)iv,
                  indices->rank);
  int64_t have = iv < indices->rank ? indices->dims[iv] : 1;
  if (!agree(have, index_map.rank))
    return AT_BAD(n, "%s has %u entries, index vectors have %lld",
                  at_attr_text(map_id), index_map.rank, (long long)have);
  AT_TRY(at_dims_check(n, map_id, index_map, operand->rank, false));
  AT_TRY(
      at_dims_check(n, operand_batch_id, operand_batch, operand->rank, true));
  AT_TRY(at_dims_check(n, index_batch_id, index_batch, indices->rank, false));
  if (operand_batch.rank != index_batch.rank)
    return AT_BAD(n, "%s has %u entries, %s has %u",
                  at_attr_text(operand_batch_id), operand_batch.rank,
                  at_attr_text(index_batch_id), index_batch.rank);
  for (uint32_t i = 0; i < index_batch.rank; i++) {
    if (index_batch.ptr[i] == iv)
      return AT_BAD(n, "%s contains index_vector_dim",
                    at_attr_text(index_batch_id));
    if (!agree(indices->dims[index_batch.ptr[i]],
               operand->dims[operand_batch.ptr[i]]))
      return AT_BAD(n,
                    "batching dimension %u differs: operand %lld, indices "
                    "%lld",
                    i, (long long)operand->dims[operand_batch.ptr[i]],
                    (long long)indices->dims[index_batch.ptr[i]]);
    if (at_dims_has(index_map, operand_batch.ptr[i]))
      return AT_BAD(n, "%s and %s share dimension %lld", at_attr_text(map_id),
                    at_attr_text(operand_batch_id),
                    (long long)operand_batch.ptr[i]);
  }
  return AT_OK;
}

// Result dimensions in `offset_dims` are those of the slice that are neither
// collapsed nor batching, in order; the others are those of the indices without
// the index vector's, in order.
void at_gather_dims(const at_node *n, const at_type *indices,
                    const int64_t *sizes, uint32_t rank, int64_t *dims) {
  at_dims offset = at_node_ints(n, AT_ATTR_OFFSET_DIMS);
  at_dims gone = at_node_ints(n, AT_ATTR_COLLAPSED_SLICE_DIMS);
  at_dims batch = at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS);
  int64_t iv = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, indices->rank);
  uint32_t from_index = 0, from_slice = 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (at_dims_has(offset, i)) {
      while (at_dims_has(gone, from_slice) || at_dims_has(batch, from_slice))
        from_slice++;
      dims[i] = sizes[from_slice++];
    } else {
      if (from_index == iv) from_index++;
      dims[i] = indices->dims[from_index++];
    }
  }
}

// Sets the result type of a gather whose slice sizes are `sizes`.
static at_status gather_dims(at_module *m, at_node *n, const int64_t *sizes) {
  const at_type *a = at_value_type(n->operands[0]);
  const at_type *ix = at_value_type(n->operands[1]);
  at_dims offset = at_node_ints(n, AT_ATTR_OFFSET_DIMS);
  at_dims gone = at_node_ints(n, AT_ATTR_COLLAPSED_SLICE_DIMS);
  at_dims batch = at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS);
  int64_t iv = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, ix->rank), *dims;
  uint32_t rank = ix->rank - (iv < ix->rank) + offset.rank;
  if (offset.rank + gone.rank + batch.rank != a->rank)
    return AT_BAD(n,
                  "offset_dims (%u), collapsed_slice_dims (%u) and "
                  "operand_batching_dims (%u) must cover operand rank %u",
                  offset.rank, gone.rank, batch.rank, a->rank);
  AT_TRY(at_dims_check(n, AT_ATTR_OFFSET_DIMS, offset, rank, true));
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, rank));
  at_gather_dims(n, ix, sizes, rank, dims);
  at_type r = {.dtype = a->dtype, .rank = rank, .dims = dims};
  return at_infer_set(m, n, &r, 1);
}

// What the static and the dynamic gather share: all but the slice sizes.
static at_status check_gather(at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  at_dims gone = at_node_ints(n, AT_ATTR_COLLAPSED_SLICE_DIMS);
  at_dims batch = at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS);
  AT_TRY(check_indices(n, a, at_value_type(n->operands[1]),
                       at_node_ints(n, AT_ATTR_START_INDEX_MAP),
                       AT_ATTR_START_INDEX_MAP, batch,
                       AT_ATTR_OPERAND_BATCHING_DIMS,
                       at_node_ints(n, AT_ATTR_START_INDICES_BATCHING_DIMS),
                       AT_ATTR_START_INDICES_BATCHING_DIMS));
  AT_TRY(at_dims_check(n, AT_ATTR_COLLAPSED_SLICE_DIMS, gone, a->rank, true));
  for (uint32_t i = 0; i < gone.rank; i++)
    if (at_dims_has(batch, gone.ptr[i]))
      return AT_BAD(n, "dimension %lld is both collapsed and batching",
                    (long long)gone.ptr[i]);
  return AT_OK;
}

// A collapsed or batching dimension takes a slice of at most 1.
at_status at_infer_gather(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  at_dims gone = at_node_ints(n, AT_ATTR_COLLAPSED_SLICE_DIMS);
  at_dims batch = at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS);
  at_dims sizes = at_node_ints(n, AT_ATTR_SLICE_SIZES);
  AT_TRY(check_gather(n));
  if (sizes.rank != a->rank)
    return AT_BAD(n, "slice_sizes has %u entries, operand rank is %u",
                  sizes.rank, a->rank);
  for (uint32_t i = 0; i < a->rank; i++) {
    int64_t most =
        at_dims_has(gone, i) || at_dims_has(batch, i) ? 1 : INT64_MAX;
    if (sizes.ptr[i] < 0 || sizes.ptr[i] > most ||
        (a->dims[i] != AT_DYN && sizes.ptr[i] > a->dims[i]))
      return AT_BAD(n, "slice_sizes[%u] = %lld does not fit %s%s", i,
                    (long long)sizes.ptr[i], at_type_z(a).z,
                    most == 1 ? " (a collapsed dimension takes 0 or 1)" : "");
  }
  return gather_dims(m, n, sizes.ptr);
}

// Update dims are those of the windows, or those of the indices, in turn.
static at_status check_update_dims(const at_node *n, const at_type *a,
                                   const at_type *ix, const at_type *u) {
  at_dims window = at_node_ints(n, AT_ATTR_UPDATE_WINDOW_DIMS);
  at_dims inserted = at_node_ints(n, AT_ATTR_INSERTED_WINDOW_DIMS);
  at_dims batch = at_node_ints(n, AT_ATTR_INPUT_BATCHING_DIMS);
  int64_t iv = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, ix->rank);
  uint32_t from_index = 0, from_input = 0;
  for (uint32_t i = 0; i < u->rank; i++) {
    if (at_dims_has(window, i)) {
      while (at_dims_has(inserted, from_input) ||
             at_dims_has(batch, from_input))
        from_input++;
      int64_t most = from_input < a->rank ? a->dims[from_input] : -1;
      if (u->dims[i] != AT_DYN && most != AT_DYN && u->dims[i] > most)
        return AT_BAD(n,
                      "update dimension %u (%lld) exceeds input dimension "
                      "%u (%lld)",
                      i, (long long)u->dims[i], from_input, (long long)most);
      from_input++;
    } else {
      if (from_index == iv) from_index++;
      if (!agree(u->dims[i], ix->dims[from_index]))
        return AT_BAD(n, "update dimension %u is %lld, indices have %lld", i,
                      (long long)u->dims[i], (long long)ix->dims[from_index]);
      from_index++;
    }
  }
  return AT_OK;
}

// As many results as inputs. All inputs have one shape and all updates have
// one; element types may differ from input to input.
at_status at_infer_scatter(at_module *m, at_node *n) {
  uint32_t inputs = n->num_operands / 2;
  if (n->num_operands % 2 == 0)
    return AT_BAD(n, "needs inputs, indices and as many updates");
  const at_type *a = at_value_type(n->operands[0]);
  const at_type *ix = at_value_type(n->operands[inputs]);
  const at_type *u = at_value_type(n->operands[inputs + 1]);
  at_dims window = at_node_ints(n, AT_ATTR_UPDATE_WINDOW_DIMS);
  at_dims inserted = at_node_ints(n, AT_ATTR_INSERTED_WINDOW_DIMS);
  at_dims batch = at_node_ints(n, AT_ATTR_INPUT_BATCHING_DIMS);
  AT_TRY(check_indices(
      n, a, ix, at_node_ints(n, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS),
      AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS, batch, AT_ATTR_INPUT_BATCHING_DIMS,
      at_node_ints(n, AT_ATTR_SCATTER_INDICES_BATCHING_DIMS),
      AT_ATTR_SCATTER_INDICES_BATCHING_DIMS));
  AT_TRY(at_dims_check(n, AT_ATTR_UPDATE_WINDOW_DIMS, window, u->rank, true));
  AT_TRY(
      at_dims_check(n, AT_ATTR_INSERTED_WINDOW_DIMS, inserted, a->rank, true));
  if (window.rank + inserted.rank + batch.rank != a->rank)
    return AT_BAD(n,
                  "update_window_dims (%u), inserted_window_dims (%u) and "
                  "input_batching_dims (%u) must cover input rank %u",
                  window.rank, inserted.rank, batch.rank, a->rank);
  int64_t iv = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, ix->rank);
  if (u->rank != ix->rank - (iv < ix->rank) + window.rank)
    return AT_BAD(n, "updates have rank %u, indices and window give %u",
                  u->rank, ix->rank - (iv < ix->rank) + window.rank);
  AT_TRY(check_update_dims(n, a, ix, u));
  at_type *t;
  AT_TRY_ALLOC(t, at_new(m->arena, at_type, inputs));
  for (uint32_t i = 0; i < inputs; i++) {
    t[i] = *at_value_type(n->operands[i]);
    at_type in = at_type_with(*a, t[i].dtype);
    const at_type *ui = at_value_type(n->operands[inputs + 1 + i]);
    at_type up = at_type_with(*u, ui->dtype);
    if (!at_type_compatible(&t[i], &in) || !at_type_compatible(ui, &up))
      return AT_BAD(
          n, "input %u or its update has another shape than the first", i);
    if (n->types && n->num_results == inputs) t[i].dtype = n->types[i].dtype;
  }
  return at_infer_set(m, n, t, inputs);
}

// Values, and where they were.
at_status at_infer_top_k(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  int64_t k = at_node_int(n, AT_ATTR_K, -1), *dims;
  if (!a->rank || k < 0 ||
      (a->dims[a->rank - 1] != AT_DYN && k > a->dims[a->rank - 1]))
    return AT_BAD(n, "k = %lld does not fit the minor dimension of %s",
                  (long long)k, at_type_z(a).z);
  AT_TRY_ALLOC(dims, at_arena_copy(m->arena, a->dims, a->rank * sizeof *dims,
                                   _Alignof(int64_t)));
  dims[a->rank - 1] = k;
  at_type t[2] = {{.dtype = a->dtype, .rank = a->rank, .dims = dims}};
  t[1] = at_type_with(t[0], AT_S32);
  return at_infer_set(m, n, t, 2);
}

// ---- Declared types

// The dimension that the attribute names, of a value of that rank.
static at_status check_axis(const at_node *n, uint32_t rank) {
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, -1);
  if (d < 0 || d >= rank)
    return AT_BAD(n, "dimension %lld is not in [0, %u)", (long long)d, rank);
  return AT_OK;
}

// Regions that yield the op's results.
static at_status from_region(at_module *m, at_node *n, uint32_t first) {
  for (uint32_t i = first; i < n->num_regions; i++) {
    const at_comp *c = n->regions[i];
    at_type *t;
    AT_TRY_ALLOC(t, at_new(m->arena, at_type, c->num_results));
    for (uint32_t k = 0; k < c->num_results; k++)
      t[k] = *at_value_type(c->results[k]);
    AT_TRY(at_infer_set(m, n, t, c->num_results));
  }
  if (!n->types) return AT_BAD(n, "has no branch");
  return AT_OK;
}

// A function may be called before it is built; its types are then those that
// the call declares, and at_verify compares them with the function's.
static at_status from_callee(at_module *m, at_node *n) {
  const at_comp *c = at_module_find(m, at_node_str(n, AT_ATTR_CALLEE));
  if (!c || c->num_results == 0) {  // not built yet: at_verify looks again
    if (n->types) return AT_OK;
    return AT_BAD(n, "needs its result types: no function \"%.*s\" yet",
                  (int)at_node_str(n, AT_ATTR_CALLEE).len,
                  at_node_str(n, AT_ATTR_CALLEE).ptr);
  }
  at_type *t;
  AT_TRY_ALLOC(t, at_new(m->arena, at_type, c->num_results));
  for (uint32_t k = 0; k < c->num_results; k++)
    t[k] = *at_value_type(c->results[k]);
  return at_infer_set(m, n, t, c->num_results);
}

// Sizes are data; rank and element type are the operand's.
static at_status infer_dynamic_pad(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  if (n->types[0].rank != a->rank || n->types[0].dtype != a->dtype)
    return AT_BAD(n, "result %s must be like the operand except in size",
                  at_type_z(&n->types[0]).z);
  return AT_OK;
}

// Ops whose result types cannot follow from their operands: regions say it, or
// a callee, or the program, which is only checked.
at_status at_infer_given(at_module *m, at_node *n) {
  switch (n->op) {
    case AT_OP_IF:
    case AT_OP_CASE:
    case AT_OP_FUSION:
      return from_region(m, n, 0);
    case AT_OP_CALL:
    case AT_OP_COMPOSITE:
      return from_callee(m, n);
    default:
      break;
  }
  if (!n->types) return AT_BAD(n, "needs its result types");
  if (!(at_op_of(n->op)->traits & AT_MULTI)) AT_TRY(need_type(n));
  switch (n->op) {
    case AT_OP_IOTA:
    case AT_OP_DYNAMIC_IOTA:
      return check_axis(n, n->types[0].rank);
    case AT_OP_SET_DIMENSION_SIZE:
      return check_axis(n, at_value_type(n->operands[0])->rank);
    case AT_OP_RNG_BIT_GENERATOR:
      if (n->num_results != 2)
        return AT_BAD(n, "has %u results, gives (state, bits)", n->num_results);
      return AT_OK;
    case AT_OP_DYNAMIC_GATHER: {
      AT_TRY(check_gather(n));
      int64_t *sizes;
      uint32_t rank = at_value_type(n->operands[0])->rank;
      AT_TRY_ALLOC(sizes, at_new(m->arena, int64_t, rank));
      for (uint32_t i = 0; i < rank; i++) sizes[i] = AT_DYN;
      return gather_dims(m, n, sizes);
    }
    case AT_OP_DYNAMIC_PAD:
    case AT_OP_REAL_DYNAMIC_SLICE:
      return infer_dynamic_pad(m, n);
    case AT_OP_DYNAMIC_RESHAPE:
      return at_infer_reshape(m, n);
    case AT_OP_DYNAMIC_BROADCAST_IN_DIM:
      return at_infer_broadcast_in_dim(m, n);
    case AT_OP_DYNAMIC_CONV:
      return at_infer_convolution(m, n);
    default:
      return AT_OK;
  }
}
