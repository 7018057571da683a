// Contractions and reductions. Transposes of a contraction's operands become
// its dimension numbers: the kernels walk any strides, so no data moves.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };

// v takes the place of n; the types must be equal.
static at_status to(at_rw *r, at_node *n, at_value v) {
  AT_ENSURE(at_type_eq(at_value_type(v), &n->types[0]));
  return at_fwd_set(r, n, 0, v);
}

typedef struct dot {
  at_value x[2];
  int64_t batch[2][MAX_RANK], contract[2][MAX_RANK];
  uint32_t num_batch, num_contract;
} dot;

static bool has(const int64_t *list, uint32_t n, int64_t d) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i] == d) return true;
  return false;
}

// Neither batch nor contracted.
static bool is_free(const dot *d, int side, int64_t dim) {
  return !has(d->batch[side], d->num_batch, dim) &&
         !has(d->contract[side], d->num_contract, dim);
}

// Copies the dimension numbers, which rules then change. False: rank above
// MAX_RANK.
static bool read_dot(const at_node *n, dot *d) {
  at_dims lists[4] = {at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS),
                      at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS),
                      at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS),
                      at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS)};
  for (int i = 0; i < 4; i++)
    if (lists[i].rank > MAX_RANK) return false;
  *d = (dot){.num_batch = lists[0].rank, .num_contract = lists[2].rank};
  for (int s = 0; s < 2; s++) {
    d->x[s] = n->operands[s];
    if (at_value_type(d->x[s])->rank > MAX_RANK) return false;
    for (uint32_t i = 0; i < d->num_batch; i++)
      d->batch[s][i] = lists[s].ptr[i];
    for (uint32_t i = 0; i < d->num_contract; i++)
      d->contract[s][i] = lists[2 + s].ptr[i];
  }
  return true;
}

// The same contraction with other operands and dimensions; `like` gives the
// rest.
static at_status build_dot(at_node *like, const dot *d, bool swapped,
                           at_value *out) {
  at_attr attrs[6] = {
      at_attr_ints(AT_ATTR_LHS_BATCHING_DIMENSIONS, d->batch[0], d->num_batch),
      at_attr_ints(AT_ATTR_RHS_BATCHING_DIMENSIONS, d->batch[1], d->num_batch),
      at_attr_ints(AT_ATTR_LHS_CONTRACTING_DIMENSIONS, d->contract[0],
                   d->num_contract),
      at_attr_ints(AT_ATTR_RHS_CONTRACTING_DIMENSIONS, d->contract[1],
                   d->num_contract)};
  uint32_t num = 4;
  int64_t precision[2];
  at_dims p = at_node_ints(like, AT_ATTR_PRECISION);
  if (p.rank == 2) {
    precision[0] = p.ptr[swapped];
    precision[1] = p.ptr[!swapped];
    attrs[num++] = at_attr_ints(AT_ATTR_PRECISION, precision, 2);
  }
  const at_attr *algorithm = at_node_attr(like, AT_ATTR_DOT_ALGORITHM);
  if (algorithm) attrs[num++] = *algorithm;
  int64_t dims[2 * MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < d->num_batch; i++)
    dims[rank++] = at_value_type(d->x[0])->dims[d->batch[0][i]];
  for (int s = 0; s < 2; s++)
    for (uint32_t i = 0; i < at_value_type(d->x[s])->rank; i++)
      if (is_free(d, s, i)) dims[rank++] = at_value_type(d->x[s])->dims[i];
  at_type type = {.dtype = like->types[0].dtype, .rank = rank, .dims = dims};
  return at_mk(like, AT_OP_DOT_GENERAL, d->x, 2, attrs, num, &type, out);
}

// Dimensions of a transpose's result to those of its operand.
static void permute(int64_t *list, uint32_t n, const int64_t *perm) {
  for (uint32_t i = 0; i < n; i++) list[i] = perm[list[i]];
}

// Operand s is a transpose that keeps the order of its free dimensions.
static bool absorb_transpose(dot *d, int s) {
  const at_node *in = d->x[s].node;
  if (in->op != AT_OP_TRANSPOSE) return false;
  at_dims perm = at_node_ints(in, AT_ATTR_PERMUTATION);
  int64_t last = -1;
  for (uint32_t i = 0; i < perm.rank; i++) {
    if (!is_free(d, s, i)) continue;
    if (perm.ptr[i] < last) return false;
    last = perm.ptr[i];
  }
  permute(d->batch[s], d->num_batch, perm.ptr);
  permute(d->contract[s], d->num_contract, perm.ptr);
  d->x[s] = in->operands[0];
  return true;
}

// Splits dim of operand s into the sizes of a group, by a reshape, which is a
// view.
static at_status split_dim(at_node *at, dot *d, int s, int64_t dim,
                           const int64_t *sizes, uint32_t count) {
  const at_type *t = at_value_type(d->x[s]);
  int64_t dims[2 * MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < t->rank; i++) {
    if (i != dim) {
      dims[rank++] = t->dims[i];
      continue;
    }
    for (uint32_t k = 0; k < count; k++) dims[rank++] = sizes[k];
  }
  for (uint32_t i = 0; i < d->num_batch; i++)
    if (d->batch[s][i] > dim) d->batch[s][i] += count - 1;
  uint32_t n = 0;
  int64_t list[MAX_RANK];
  for (uint32_t i = 0; i < d->num_contract; i++) {
    int64_t c = d->contract[s][i];
    if (c != dim) {
      list[n++] = c > dim ? c + count - 1 : c;
      continue;
    }
    for (uint32_t k = 0; k < count; k++) list[n++] = dim + k;
  }
  memcpy(d->contract[s], list, n * sizeof *list);
  return at_mk_reshape(at, d->x[s], (at_dims){dims, rank}, &d->x[s]);
}

// A merged dimension that is free: the result has the parts, and is reshaped.
static void unmerge_free(dot *d, int s, int64_t group, uint32_t count) {
  for (uint32_t i = 0; i < d->num_batch; i++)
    if (d->batch[s][i] > group) d->batch[s][i] += count - 1;
  for (uint32_t i = 0; i < d->num_contract; i++)
    if (d->contract[s][i] > group) d->contract[s][i] += count - 1;
}

// Operand s is a reshape that merges dimensions of a transpose, as where
// attention heads are joined before a projection. Working on the unmerged
// dimensions lets the transpose go.
static at_status absorb_merge(at_node *at, dot *d, int s, bool *done) {
  const at_node *in = d->x[s].node;
  *done = false;
  if (in->op != AT_OP_RESHAPE || in->operands[0].node->op != AT_OP_TRANSPOSE)
    return AT_OK;
  at_value y = in->operands[0];
  const at_type *big = at_value_type(y), *small = at_value_type(d->x[s]);
  int64_t first[MAX_RANK];  // of the dims of y that make dim i of the reshape
  uint32_t k = 0, merged = 0;
  int64_t group = -1;
  if (big->rank > MAX_RANK || at_type_elements(big) == 0) return AT_OK;
  for (uint32_t i = 0; i < small->rank; i++) {
    int64_t product = 1;
    first[i] = k;
    while (k < big->rank && (product < small->dims[i] || k == first[i])) {
      if (small->dims[i] % (product * big->dims[k])) return AT_OK;
      product *= big->dims[k++];
    }
    // One that is made of none, of size 1, would not be there to count.
    if (product != small->dims[i] || k == first[i]) return AT_OK;
    if (k - first[i] > 1) {
      merged++;
      group = i;
    }
  }
  if (k != big->rank || merged != 1 || has(d->batch[s], d->num_batch, group))
    return AT_OK;
  uint32_t count = big->rank - small->rank + 1;
  if (is_free(d, s, group)) {
    unmerge_free(d, s, group, count);
    d->x[s] = y;
    *done = true;
    return AT_OK;
  }
  if (d->num_contract + count - 1 > MAX_RANK ||
      at_value_type(d->x[1 - s])->rank + count > MAX_RANK)
    return AT_OK;
  int64_t other = -1, sizes[MAX_RANK];
  for (uint32_t i = 0; i < d->num_contract; i++)
    if (d->contract[s][i] == group) other = d->contract[1 - s][i];
  for (uint32_t i = 0; i < count; i++) sizes[i] = big->dims[first[group] + i];
  AT_TRY(split_dim(at, d, 1 - s, other, sizes, count));
  AT_TRY(split_dim(at, d, s, group, sizes, count));
  d->x[s] = y;
  d->num_contract += count - 1;
  *done = true;
  return AT_OK;
}

// One product per result element: a multiplication, rounded once as the dot
// would.
static at_status as_multiply(at_rw *r, at_node *n, const dot *d) {
  at_dtype out = n->types[0].dtype;
  at_value v[2];
  uint32_t at = d->num_batch;
  for (int s = 0; s < 2; s++) {
    const at_type *t = at_value_type(d->x[s]);
    int64_t where[MAX_RANK], dims[MAX_RANK];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
      if (has(d->contract[s], d->num_contract, i)) continue;
      dims[rank] = t->dims[i];
      where[rank] = -1;
      for (uint32_t b = 0; b < d->num_batch; b++)
        if (d->batch[s][b] == i) where[rank] = b;
      if (where[rank] < 0) where[rank] = at++;
      rank++;
    }
    AT_TRY(at_mk_reshape(n, d->x[s], (at_dims){dims, rank}, &v[s]));
    AT_TRY(at_mk_convert(n, v[s], out, &v[s]));
    AT_TRY(at_mk_broadcast(n, v[s], at_type_dims(&n->types[0]), where, &v[s]));
  }
  at_value p;
  AT_TRY(at_mk2(n, AT_OP_MULTIPLY, v[0], v[1], &p));
  return to(r, n, p);
}

// Are all contracted dimensions of size 1, and is a multiplication in the
// result's type the same? Then operands must convert without rounding.
static bool plain_product(const at_node *n, const dot *d) {
  const at_type *t = at_value_type(d->x[0]);
  for (uint32_t i = 0; i < d->num_contract; i++)
    if (t->dims[d->contract[0][i]] != 1) return false;
  at_dtype a = t->dtype, b = at_value_type(d->x[1])->dtype,
           c = n->types[0].dtype;
  if (at_node_attr(n, AT_ATTR_DOT_ALGORITHM) || n->types[0].rank > MAX_RANK)
    return false;
  if (c == AT_PRED || at_is_complex(c)) return false;
  // Narrowing would round the operands before the product.
  return at_dtype_bytes(a) <= at_dtype_bytes(c) &&
         at_dtype_bytes(b) <= at_dtype_bytes(c) &&
         (a == c || (at_is_float(a) && (c == AT_F32 || c == AT_F64)) ||
          (at_is_int(a) && at_is_int(c))) &&
         (b == c || (at_is_float(b) && (c == AT_F32 || c == AT_F64)) ||
          (at_is_int(b) && at_is_int(c)));
}

static at_status dot_one(at_rw *r, at_node *n) {
  dot d;
  bool one = read_dot(n, &d) && plain_product(n, &d);
  return one ? as_multiply(r, n, &d) : AT_OK;
}

// Merged dimensions first: what they leave may be a transpose that goes, too.
static at_status dot_operands(at_rw *r, at_node *n) {
  dot d;
  if (!read_dot(n, &d)) return AT_OK;
  bool changed = false, done;
  for (int s = 0; s < 2; s++) {
    AT_TRY(absorb_merge(n, &d, s, &done));
    changed |= done;
    changed |= absorb_transpose(&d, s);
  }
  if (!changed) return AT_OK;
  at_value v;
  AT_TRY(build_dot(n, &d, false, &v));
  AT_TRY(at_mk_reshape(n, v, at_type_dims(&n->types[0]), &v));
  return to(r, n, v);
}

// A transpose that puts the right side's dimensions before the left's swaps the
// operands; batch dimensions may change their order.
static at_status transposed_dot(at_rw *r, at_node *n) {
  at_node *in = n->operands[0].node;
  dot d;
  if (n->types[0].rank > 2 * MAX_RANK) return AT_OK;
  if (in->op != AT_OP_DOT_GENERAL || in->mark != 1 || !read_dot(in, &d))
    return AT_OK;
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  uint32_t nb = d.num_batch;
  uint32_t free0 = at_value_type(d.x[0])->rank - nb - d.num_contract;
  uint32_t free1 = at_value_type(d.x[1])->rank - nb - d.num_contract;
  bool straight = true, crossed = true;
  for (uint32_t i = 0; i < nb; i++) straight &= perm.ptr[i] < nb;
  crossed = straight;
  for (uint32_t i = 0; i < free0 + free1; i++) {
    int64_t p = perm.ptr[nb + i];
    straight &= p == nb + i;
    crossed &= p == (i < free1 ? nb + free0 + i : nb + i - free1);
  }
  // Neither: swap still if that leaves the last dimension last, so that what
  // remains moves whole rows.
  bool exact = straight || crossed;
  if (!exact) {
    uint32_t last = perm.rank - 1;
    if (perm.ptr[last] != nb + free0 - 1 || free1 == 0) return AT_OK;
  }
  dot e = d;
  for (int s = 0; s < 2; s++) {
    int t = straight ? s : 1 - s;
    e.x[s] = d.x[t];
    for (uint32_t i = 0; i < nb; i++)
      e.batch[s][i] = d.batch[t][exact ? perm.ptr[i] : i];
    memcpy(e.contract[s], d.contract[t], sizeof e.contract[s]);
  }
  at_value v;
  AT_TRY(build_dot(in, &e, !straight, &v));
  if (exact) return to(r, n, v);
  int64_t p[2 * MAX_RANK];
  for (uint32_t i = 0; i < perm.rank; i++) {
    int64_t q = perm.ptr[i];
    p[i] = q < nb ? q : q < nb + free0 ? q + free1 : q - free0;
  }
  AT_TRY(at_mk_transpose(n, v, p, &v));
  return to(r, n, v);
}

// Reductions over dimensions of size one: the operand, reshaped, and converted
// where the sum is of a wider type. The initial value takes part, so it must be
// the body's identity.
static at_status reduce_ones(at_rw *r, at_node *n) {
  if (n->num_operands != 2) return AT_OK;
  at_value v = n->operands[0];
  const at_type *t = at_value_type(v), *out = &n->types[0];
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  for (uint32_t i = 0; i < dims.rank; i++)
    if (t->dims[dims.ptr[i]] != 1) return AT_OK;
  at_op op = at_region_binary(n->regions[0]);
  if (op == AT_OP_COUNT || !at_is_identity(op, n->operands[1])) return AT_OK;
  AT_TRY(at_mk_reshape(n, v, at_type_dims(out), &v));
  AT_TRY(at_mk_convert(n, v, out->dtype, &v));
  // x + 0 would turn -0 into 0.
  double f;
  if (op == AT_OP_ADD && at_splat_float(n->operands[1], &f) &&
      !__builtin_signbit(f)) {
    at_value zero;
    AT_TRY(at_mk_splat_float(n, *out, 0, &zero));
    AT_TRY(at_mk2(n, AT_OP_ADD, v, zero, &v));
  }
  return to(r, n, v);
}

static const at_law rules[] = {
    {"dot over one term = product", AT_OP_DOT_GENERAL, dot_one},
    {"dot of transposes = dot", AT_OP_DOT_GENERAL, dot_operands},
    {"transpose of a dot = dot", AT_OP_TRANSPOSE, transposed_dot},
    {"reduce over one element = reshape", AT_OP_REDUCE, reduce_ones},
};

const at_laws at_laws_dot = {rules, AT_LEN(rules)};
