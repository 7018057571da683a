// Ops that move elements by a static rule.
#include "hlo/eval_internal.h"

// For each element of a result: the index of the operand element it shows.
typedef struct mover {
  const at_literal *from;
  at_type type;  // of the result
  uint8_t *data;
} mover;

// Allocates the result and spends an operation for each of its elements.
static at_status open_mover(const at_eval_args *e, const at_type *t, mover *m) {
  m->from = e->in[0];
  m->type = *t;
  AT_TRY(at_eval_new(e->cx, t, e->out, &m->data));
  return at_eval_spend(e->cx, at_type_elements(t));
}

// Dimensions of size one repeat; result dimensions that the attribute does not
// name do not index the operand.
AT_EVAL(broadcast) {
  mover m;
  int64_t to[kMaxRank] = {0}, from[kMaxRank] = {0};
  AT_TRY(open_mover(e, &e->n->types[0], &m));
  at_dims d = at_node_ints(e->n, AT_ATTR_BROADCAST_DIMENSIONS);
  int64_t count = at_type_elements(&m.type);
  for (int64_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < d.rank; k++)
      from[k] = m.from->type.dims[k] == 1 ? 0 : to[d.ptr[k]];
    at_put(m.type.dtype, m.data, i,
           at_literal_at(m.from, at_ravel(&m.from->type, from)));
    at_next(m.type.dims, m.type.rank, to);
  }
  return AT_OK;
}

// Walks each operand in its own order and shifts the index along the dimension.
AT_EVAL(concatenate) {
  const at_type *t = &e->n->types[0];
  uint8_t *data;
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  AT_TRY(at_eval_spend(e->cx, at_type_elements(t)));
  int64_t d = at_node_int(e->n, AT_ATTR_DIMENSION, 0), offset = 0;
  for (uint32_t k = 0; k < e->n->num_operands; k++) {
    const at_literal *l = e->in[k];
    int64_t index[kMaxRank] = {0}, count = at_type_elements(&l->type);
    for (int64_t i = 0; i < count; i++) {
      index[d] += offset;
      at_put(t->dtype, data, at_ravel(t, index), at_literal_at(l, i));
      index[d] -= offset;
      at_next(l->type.dims, t->rank, index);
    }
    offset += l->type.dims[d];
  }
  return AT_OK;
}

// Fills with the padding value, then writes the operand's elements over it;
// negative edges drop elements. There is no `high`: the result's size says it.
at_status at_eval_pad_with(const at_eval_args *e, const int64_t *low,
                           const int64_t *inside, const at_type *result) {
  mover m;
  int64_t from[kMaxRank] = {0}, to[kMaxRank];
  AT_TRY(open_mover(e, result, &m));
  int64_t total = at_type_elements(result);
  int64_t count = at_type_elements(&m.from->type);
  for (int64_t i = 0; i < total; i++)
    at_put(result->dtype, m.data, i, at_literal_at(e->in[1], 0));
  for (int64_t i = 0; i < count; i++) {
    bool kept = true;
    for (uint32_t k = 0; k < result->rank; k++) {
      // 128 bits: far edges may cancel each other.
      __int128 at = (__int128)from[k] * inside[k] + from[k] + low[k];
      kept &= at >= 0 && at < result->dims[k];
      to[k] = (int64_t)at;
    }
    if (kept)
      at_put(result->dtype, m.data, at_ravel(result, to),
             at_literal_at(m.from, i));
    at_next(m.from->type.dims, result->rank, from);
  }
  return AT_OK;
}

// The static form: padding is an attribute.
AT_EVAL(pad) {
  const int64_t *low, *inside;
  uint32_t rank = e->n->types[0].rank;
  AT_TRY(
      at_ints_or(e->cx->arena, e->n, AT_ATTR_EDGE_PADDING_LOW, rank, 0, &low));
  AT_TRY(at_ints_or(e->cx->arena, e->n, AT_ATTR_INTERIOR_PADDING, rank, 0,
                    &inside));
  return at_eval_pad_with(e, low, inside, &e->n->types[0]);
}

// Mirrors the index along every listed dimension.
AT_EVAL(reverse) {
  mover m;
  int64_t to[kMaxRank] = {0}, from[kMaxRank];
  AT_TRY(open_mover(e, &e->n->types[0], &m));
  at_dims d = at_node_ints(e->n, AT_ATTR_DIMENSIONS);
  int64_t count = at_type_elements(&m.type);
  for (int64_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < m.type.rank; k++)
      from[k] = at_dims_has(d, k) ? m.type.dims[k] - 1 - to[k] : to[k];
    at_put(m.type.dtype, m.data, i,
           at_literal_at(m.from, at_ravel(&m.type, from)));
    at_next(m.type.dims, m.type.rank, to);
  }
  return AT_OK;
}

// The limits are not read: the result's size says how many there are.
AT_EVAL(slice) {
  mover m;
  const int64_t *start, *stride;
  int64_t to[kMaxRank] = {0}, from[kMaxRank];
  AT_TRY(open_mover(e, &e->n->types[0], &m));
  AT_TRY(at_ints_or(e->cx->arena, e->n, AT_ATTR_START_INDICES, m.type.rank, 0,
                    &start));
  AT_TRY(
      at_ints_or(e->cx->arena, e->n, AT_ATTR_STRIDES, m.type.rank, 1, &stride));
  int64_t count = at_type_elements(&m.type);
  for (int64_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < m.type.rank; k++)
      from[k] = start[k] + to[k] * stride[k];
    at_put(m.type.dtype, m.data, i,
           at_literal_at(m.from, at_ravel(&m.from->type, from)));
    at_next(m.type.dims, m.type.rank, to);
  }
  return AT_OK;
}

// Result dimension k is operand dimension permutation[k].
AT_EVAL(transpose) {
  mover m;
  int64_t to[kMaxRank] = {0}, from[kMaxRank];
  AT_TRY(open_mover(e, &e->n->types[0], &m));
  at_dims p = at_node_ints(e->n, AT_ATTR_PERMUTATION);
  int64_t count = at_type_elements(&m.type);
  for (int64_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < m.type.rank; k++) from[p.ptr[k]] = to[k];
    at_put(m.type.dtype, m.data, i,
           at_literal_at(m.from, at_ravel(&m.from->type, from)));
    at_next(m.type.dims, m.type.rank, to);
  }
  return AT_OK;
}

// Borrows the operand's data under the result's type; a splat stays one.
AT_EVAL(same_bytes) {
  return at_literal_make(e->cx->arena, e->n->types[0], e->in[0]->data,
                         e->in[0]->splat, true, &e->out[0]);
}

// Elements as a stream of bits, least significant first; types under 8 bits
// take their bits from the low end of their byte.
static uint64_t take_bits(const at_literal *l, int64_t at, unsigned bits) {
  unsigned w = at_dtype_of(l->type.dtype)->bits;
  if (w <= bits) {  // `bits` consists of several elements
    uint64_t v = 0;
    for (unsigned k = 0; k < bits / w; k++) {
      uint64_t part = 0;
      memcpy(&part, at_literal_at(l, at * (int64_t)(bits / w) + k),
             at_dtype_bytes(l->type.dtype));
      if (w < 64) part &= (1ull << w) - 1;
      v |= part << (k * w);
    }
    return v;
  }
  // One of the parts of a wider element.
  unsigned parts = w / bits;
  const uint8_t *p = at_literal_at(l, at / parts);
  unsigned first = (unsigned)(at % parts) * bits;
  uint64_t v = 0;
  memcpy(&v, p + first / 8, AT_MAX(bits / 8, 1u));
  return v >> first % 8 & (bits == 64 ? ~0ull : (1ull << bits) - 1);
}

// The operand's bytes under another type.
static at_status whole_bytes(const at_eval_args *e) {
  const at_literal *l = e->in[0];
  const at_literal *dense = l;
  uint8_t *data;
  if (l->splat) {  // one repeated element may become part of another
    AT_TRY(at_eval_new(e->cx, &l->type, &dense, &data));
    AT_TRY(at_eval_spend(e->cx, at_type_elements(&l->type)));
    for (int64_t i = 0; i < at_type_elements(&l->type); i++)
      at_put(l->type.dtype, data, i, l->data);
  }
  return at_literal_make(e->cx->arena, e->n->types[0], dense->data, false, true,
                         &e->out[0]);
}

// Types below 8 bits go through a stream of bits, all others keep their bytes.
AT_EVAL(bitcast) {
  const at_type *t = &e->n->types[0];
  at_dtype from = e->in[0]->type.dtype;
  unsigned bits = at_dtype_of(t->dtype)->bits;
  // From 8 bits on, elements are bytes in order; below, types fill their byte
  // in different ways.
  if (bits >= 8 && at_dtype_of(from)->bits >= 8) return whole_bytes(e);
  uint8_t *data;
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  int64_t count = at_type_elements(t);
  AT_TRY(at_eval_spend(e->cx, count));
  for (int64_t i = 0; i < count; i++) {
    uint64_t v = take_bits(e->in[0], i, bits);
    if (at_is_float(t->dtype))
      at_put(t->dtype, data, i, &v);
    else
      at_store_int(t->dtype, data + (size_t)i * at_dtype_bytes(t->dtype),
                   (int64_t)v);
  }
  return AT_OK;
}

// The index along one dimension, converted from s64.
static at_status iota_along(const at_eval_args *e, const at_type *t) {
  uint8_t *data, value[16];
  int64_t index[kMaxRank] = {0};
  int64_t d = at_node_int(e->n, AT_ATTR_DIMENSION, 0);
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  int64_t count = at_type_elements(t);
  AT_TRY(at_eval_spend(e->cx, count));
  for (int64_t i = 0; i < count; i++) {
    at_eval_convert(AT_S64, &index[d], t->dtype, value);
    at_put(t->dtype, data, i, value);
    at_next(t->dims, t->rank, index);
  }
  return AT_OK;
}

AT_EVAL(iota) { return iota_along(e, &e->n->types[0]); }

// ---- Shapes among the operands

// A list of integers given as an operand.
static at_status read_ints(const at_eval_args *e, uint32_t operand,
                           uint32_t count, int64_t *out) {
  const at_literal *l = e->in[operand];
  if (at_type_elements(&l->type) != count || l->type.rank > 1)
    return AT_BAD(e->n, "operand %u must have %u elements", operand, count);
  for (uint32_t i = 0; i < count; i++) out[i] = at_literal_int(l, i);
  return AT_OK;
}

// Checks a shape found among the operands against the declared one.
static at_status found_shape(const at_eval_args *e, const int64_t *dims,
                             at_type *out) {
  at_type t = e->n->types[0];
  t.dims = dims;
  t.bounds = NULL;
  for (uint32_t i = 0; i < t.rank; i++)
    if (dims[i] < 0)
      return AT_BAD(e->n, "result dimension %u would be %lld", i,
                    (long long)dims[i]);
  if (!at_type_compatible(&t, &e->n->types[0]))
    return AT_BAD(e->n, "result is declared %s, the operands give %s",
                  at_type_z(&e->n->types[0]).z, at_type_z(&t).z);
  *out = t;
  return AT_OK;
}

// Runs another op's handler on the first operands, with a result type that is
// now known.
static at_status as_static(const at_eval_args *e, at_type *t,
                           at_status (*handler)(const at_eval_args *)) {
  at_node n = *e->n;
  n.types = t;
  at_eval_args inner = *e;
  inner.n = &n;
  return handler(&inner);
}

// Operands 2 to 4 are low, high and interior padding.
static at_status dynamic_pad(const at_eval_args *e) {
  const at_type *a = &e->in[0]->type;
  int64_t low[kMaxRank], high[kMaxRank], inside[kMaxRank], dims[kMaxRank];
  at_type t;
  AT_TRY(read_ints(e, 2, a->rank, low));
  AT_TRY(read_ints(e, 3, a->rank, high));
  AT_TRY(read_ints(e, 4, a->rank, inside));
  for (uint32_t i = 0; i < a->rank; i++) {
    if (inside[i] < 0) return AT_BAD(e->n, "interior padding is negative");
    __int128 d = (__int128)a->dims[i] + low[i] + high[i] +
                 (__int128)AT_MAX(a->dims[i] - 1, 0) * inside[i];
    dims[i] = d > INT64_MAX || d < 0 ? -1 : (int64_t)d;
  }
  AT_TRY(found_shape(e, dims, &t));
  return at_eval_pad_with(e, low, inside, &t);
}

// Operands 1 to 3 are start, limit and stride; they become attributes of a copy
// of the node.
static at_status real_dynamic_slice(const at_eval_args *e) {
  const at_type *a = &e->in[0]->type;
  int64_t start[kMaxRank], limit[kMaxRank], stride[kMaxRank], dims[kMaxRank];
  at_type t;
  AT_TRY(read_ints(e, 1, a->rank, start));
  AT_TRY(read_ints(e, 2, a->rank, limit));
  AT_TRY(read_ints(e, 3, a->rank, stride));
  for (uint32_t i = 0; i < a->rank; i++) {
    if (start[i] < 0 || limit[i] < start[i] || limit[i] > a->dims[i] ||
        stride[i] < 1)
      return AT_BAD(e->n, "[%lld:%lld:%lld] does not slice dimension %u",
                    (long long)start[i], (long long)limit[i],
                    (long long)stride[i], i);
    int64_t span = limit[i] - start[i];
    dims[i] = span / stride[i] + (span % stride[i] != 0);
  }
  AT_TRY(found_shape(e, dims, &t));
  at_attr attrs[2] = {{.id = AT_ATTR_START_INDICES, .ints = {start, a->rank}},
                      {.id = AT_ATTR_STRIDES, .ints = {stride, a->rank}}};
  at_node n = *e->n;
  n.attrs = attrs;
  n.num_attrs = 2;
  at_eval_args inner = *e;
  inner.n = &n;
  return as_static(&inner, &t, at_eval_slice);
}

// The number of elements must stay.
static at_status dynamic_reshape(const at_eval_args *e, at_type *t) {
  if (at_type_elements(t) != at_type_elements(&e->in[0]->type))
    return AT_BAD(e->n, "%s has another number of elements", at_type_z(t).z);
  return as_static(e, t, at_eval_same_bytes);
}

// What the shape rule could not check without the shape.
static at_status dynamic_broadcast(const at_eval_args *e, at_type *t) {
  at_dims d = at_node_ints(e->n, AT_ATTR_BROADCAST_DIMENSIONS);
  for (uint32_t i = 0; i < d.rank; i++) {
    int64_t have = e->in[0]->type.dims[i];
    if (have != 1 && have != t->dims[d.ptr[i]])
      return AT_BAD(e->n, "dimension %u (%lld) does not broadcast to %s", i,
                    (long long)have, at_type_z(t).z);
  }
  return as_static(e, t, at_eval_broadcast);
}

static at_status dynamic_iota(const at_eval_args *e, at_type *t) {
  return iota_along(e, t);
}

// Reads the result's shape from an operand, checks it, and goes on with `then`.
static at_status shape_operand(const at_eval_args *e, uint32_t operand,
                               at_status (*then)(const at_eval_args *,
                                                 at_type *)) {
  int64_t dims[kMaxRank];
  at_type t;
  AT_TRY(read_ints(e, operand, e->n->types[0].rank, dims));
  AT_TRY(found_shape(e, dims, &t));
  return then(e, &t);
}

// Operand 2 has the slice sizes.
static at_status dynamic_gather(const at_eval_args *e) {
  const at_type *a = &e->in[0]->type, *ix = &e->in[1]->type;
  int64_t sizes[kMaxRank], dims[kMaxRank];
  at_dims gone = at_node_ints(e->n, AT_ATTR_COLLAPSED_SLICE_DIMS);
  at_dims batch = at_node_ints(e->n, AT_ATTR_OPERAND_BATCHING_DIMS);
  at_type t;
  AT_TRY(read_ints(e, 2, a->rank, sizes));
  for (uint32_t i = 0; i < a->rank; i++)
    if (sizes[i] < 0 || sizes[i] > a->dims[i] ||
        (sizes[i] != 1 && (at_dims_has(gone, i) || at_dims_has(batch, i))))
      return AT_BAD(e->n, "slice size %u is %lld", i, (long long)sizes[i]);
  at_gather_dims(e->n, ix, sizes, e->n->types[0].rank, dims);
  AT_TRY(found_shape(e, dims, &t));
  return at_eval_gather_with(e, sizes, &t);
}

// Operand 2 has the padding, [spatial, 2].
static at_status dynamic_conv(const at_eval_args *e) {
  const at_type *a = &e->in[0]->type, *k = &e->in[1]->type;
  int64_t pad[2 * kMaxRank], dims[kMaxRank];
  at_conv_dims c;
  at_type t;
  AT_TRY(at_conv_dims_read(e->cx->arena, e->n, &c));
  if (at_type_elements(&e->in[2]->type) != 2 * (int64_t)c.spatial)
    return AT_BAD(e->n, "padding must be [%u, 2]", c.spatial);
  for (uint32_t i = 0; i < 2 * c.spatial; i++)
    pad[i] = at_literal_int(e->in[2], i);
  c.padding = pad;
  dims[c.output_batch] = a->dims[c.input_batch] / c.batch_groups;
  dims[c.output_feature] = k->dims[c.kernel_output];
  for (uint32_t i = 0; i < c.spatial; i++)
    dims[c.output_spatial.ptr[i]] = at_window_count(
        a->dims[c.input_spatial.ptr[i]], c.lhs_dilation[i], pad[2 * i],
        pad[2 * i + 1], k->dims[c.kernel_spatial.ptr[i]], c.rhs_dilation[i],
        c.strides[i]);
  AT_TRY(found_shape(e, dims, &t));
  return at_eval_conv_with(e, &c, &t);
}

// get: the size as s32. set: only to the size that it has, as arrays with less
// data than shape do not exist here.
static at_status dimension_size(const at_eval_args *e) {
  int64_t d = at_node_int(e->n, AT_ATTR_DIMENSION, 0);
  uint8_t *data;
  if (e->n->op == AT_OP_GET_DIMENSION_SIZE) {
    AT_TRY(at_eval_new(e->cx, &e->n->types[0], e->out, &data));
    at_store_int(AT_S32, data, e->in[0]->type.dims[d]);
    return AT_OK;
  }
  if (at_literal_int(e->in[1], 0) != e->in[0]->type.dims[d])
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "evaluator: set_dimension_size to another size");
  e->out[0] = e->in[0];
  return AT_OK;
}

// Which operand holds the shape depends on the op.
AT_EVAL(dynamic) {
  switch (e->n->op) {
    case AT_OP_DYNAMIC_BROADCAST_IN_DIM:
      return shape_operand(e, 1, dynamic_broadcast);
    case AT_OP_DYNAMIC_RESHAPE:
      return shape_operand(e, 1, dynamic_reshape);
    case AT_OP_DYNAMIC_IOTA:
      return shape_operand(e, 0, dynamic_iota);
    case AT_OP_DYNAMIC_PAD:
      return dynamic_pad(e);
    case AT_OP_REAL_DYNAMIC_SLICE:
      return real_dynamic_slice(e);
    case AT_OP_DYNAMIC_GATHER:
      return dynamic_gather(e);
    case AT_OP_DYNAMIC_CONV:
      return dynamic_conv(e);
    default:
      return dimension_size(e);
  }
}
