// Dimensions that their axes do not divide: padding comes and goes with the
// axes, and is told apart from elements where it would be mixed with them.
#include "passes/shard.h"

// ---- Padding comes and goes
// v with dimensions d to d + (is - 1) replaced by `to`.
static at_status regroup(const at_cut *c, at_comp *comp, at_node *before,
                         uint32_t d, uint32_t is, at_dims to, at_value v,
                         at_value *out) {
  at_type t = *at_value_type(v);
  int64_t *dims;
  uint32_t rank = t.rank - is + to.rank;
  AT_TRY_ALLOC(dims, at_new(c->m->arena, int64_t, rank + 1));
  for (uint32_t i = 0; i < rank; i++)
    dims[i] = i < d             ? t.dims[i]
              : i < d + to.rank ? to.ptr[i - d]
                                : t.dims[i - to.rank + is];
  t.rank = rank;
  t.dims = dims;
  at_node_desc x = {.op = AT_OP_RESHAPE,
                    .operands = &v,
                    .num_operands = 1,
                    .types = &t,
                    .num_types = 1,
                    .loc = v.node->loc};
  return at_emit(comp, before, &x, out);
}

// v with dimension d of size n: zeros behind it, or its end cut off.
static at_status resize(const at_cut *c, at_comp *comp, at_node *before,
                        uint32_t d, int64_t n, at_value v, at_value *out) {
  const at_type *t = at_value_type(v);
  int64_t *list, have = t->dims[d];
  uint32_t rank = t->rank;
  *out = v;
  if (n == have) return AT_OK;
  AT_TRY_ALLOC(list, at_new(c->m->arena, int64_t, 3 * (size_t)rank + 1));
  int64_t *zeros = list, *other = list + rank, *last = list + 2 * rank;
  for (uint32_t i = 0; i < rank; i++) {
    zeros[i] = 0;
    other[i] = n < have ? 1 : 0;
    last[i] = n < have ? t->dims[i] : 0;
  }
  last[d] = n < have ? n : n - have;
  at_attr cut[3] = {at_attr_ints(AT_ATTR_START_INDICES, zeros, rank),
                    at_attr_ints(AT_ATTR_LIMIT_INDICES, last, rank),
                    at_attr_ints(AT_ATTR_STRIDES, other, rank)};
  at_attr pad[3] = {at_attr_ints(AT_ATTR_EDGE_PADDING_LOW, zeros, rank),
                    at_attr_ints(AT_ATTR_EDGE_PADDING_HIGH, last, rank),
                    at_attr_ints(AT_ATTR_INTERIOR_PADDING, other, rank)};
  at_value ops[2] = {v, {0}};
  uint64_t bits[2] = {0};
  const at_literal *l;
  if (n > have) {
    AT_TRY(at_literal_make(c->m->arena, at_type_scalar(t->dtype), bits, true,
                           false, &l));
    AT_TRY(at_build_constant(comp, before, l, &ops[1]));
  }
  at_node_desc x = {.op = n < have ? AT_OP_SLICE : AT_OP_PAD,
                    .operands = ops,
                    .num_operands = n < have ? 1 : 2,
                    .attrs = n < have ? cut : pad,
                    .num_attrs = 3,
                    .loc = v.node->loc};
  return at_emit(comp, before, &x, out);
}

at_status at_uneven_widen(at_cut *c, at_comp *comp, at_node *before, uint32_t d,
                          const at_axes *axes, at_value v, at_value *out) {
  int64_t n = at_value_type(v)->dims[d], parts[2] = {1, n};
  *out = v;
  if (at_axes_even(c, axes, n)) return AT_OK;
  AT_TRY(regroup(c, comp, before, d, 1, (at_dims){parts, 2}, *out, out));
  for (uint32_t i = 0; i < axes->n; i++) {
    int64_t size = c->size[axes->a[i]];
    int64_t each = (parts[1] + size - 1) / size;
    AT_TRY(resize(c, comp, before, d + 1, each * size, *out, out));
    parts[0] *= size;
    parts[1] = each;
    AT_TRY(regroup(c, comp, before, d, 2, (at_dims){parts, 2}, *out, out));
  }
  n = parts[0] * parts[1];
  return regroup(c, comp, before, d, 2, (at_dims){&n, 1}, *out, out);
}

at_status at_uneven_narrow(at_cut *c, at_comp *comp, at_node *before,
                           uint32_t d, const at_axes *axes, int64_t n,
                           at_value v, at_value *out) {
  int64_t parts[2] = {at_axes_size(c, axes), at_axes_part(c, axes, n)};
  *out = v;
  if (at_axes_even(c, axes, n)) return AT_OK;
  AT_TRY(regroup(c, comp, before, d, 1, (at_dims){parts, 2}, *out, out));
  for (uint32_t i = axes->n; i-- > 0;) {
    int64_t size = c->size[axes->a[i]];
    at_axes outer = *axes;
    outer.n = (uint8_t)i;
    parts[0] /= size;
    parts[1] *= size;
    AT_TRY(regroup(c, comp, before, d, 2, (at_dims){parts, 2}, *out, out));
    parts[1] = at_axes_part(c, &outer, n);
    AT_TRY(resize(c, comp, before, d + 1, parts[1], *out, out));
  }
  return regroup(c, comp, before, d, 2, (at_dims){&n, 1}, *out, out);
}

// ---- Padding is told apart
at_status at_uneven_count(at_cut *c, at_comp *comp, at_node *before,
                          const at_axes *axes, int64_t n, at_dtype dtype,
                          at_value *out) {
  at_value zero, k;
  at_type t = at_type_scalar(dtype);
  AT_TRY(at_scalar_value(c, comp, before, dtype, 0, &zero));
  AT_TRY(at_scalar_value(c, comp, before, dtype, n, out));
  for (uint32_t i = 0; i < axes->n; i++) {
    int64_t size = c->size[axes->a[i]];
    n = (n + size - 1) / size;
    at_value each, digit, args[3];
    AT_TRY(at_digit_value(c, axes->a[i], &digit));
    at_node_desc convert = {.op = AT_OP_CONVERT,
                            .operands = &digit,
                            .num_operands = 1,
                            .types = &t,
                            .num_types = 1};
    AT_TRY(at_emit(comp, before, &convert, &k));
    AT_TRY(at_scalar_value(c, comp, before, dtype, n, &each));
    args[0] = k;
    args[1] = each;
    AT_TRY(at_build_op(comp, before, AT_OP_MULTIPLY, args, 2, NULL, &k));
    args[0] = *out;
    args[1] = k;
    AT_TRY(at_build_op(comp, before, AT_OP_SUBTRACT, args, 2, NULL, &k));
    args[0] = zero;
    args[1] = k;
    args[2] = each;
    AT_TRY(at_build_op(comp, before, AT_OP_CLAMP, args, 3, NULL, out));
  }
  return AT_OK;
}

at_status at_uneven_mask(at_cut *c, at_node *user, uint32_t d,
                         const at_axes *axes, int64_t n, at_value fill,
                         at_value *v) {
  at_type t = *at_value_type(*v);
  at_dims dims = at_type_dims(&t);
  at_value count, index, here, args[3];
  at_attr along = at_attr_int(AT_ATTR_DIMENSION, d);
  AT_TRY(at_uneven_count(c, user->parent, user, axes, n, AT_S32, &count));
  AT_TRY(at_mk_broadcast(user, count, dims, NULL, &count));
  t.dtype = AT_S32;
  AT_TRY(at_mk(user, AT_OP_IOTA, NULL, 0, &along, 1, &t, &index));
  AT_TRY(at_mk_compare(user, AT_LT, index, count, &here));
  AT_TRY(at_mk_broadcast(user, fill, dims, NULL, &fill));
  args[0] = here;
  args[1] = *v;
  args[2] = fill;
  return at_mk(user, AT_OP_SELECT, args, 3, NULL, 0, NULL, v);
}
