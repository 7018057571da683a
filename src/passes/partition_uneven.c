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

// Atom by atom, as parts nest: the dimension is split into [parts so far,
// part], the part padded to a multiple of the atom's size.
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

// Undoes at_uneven_widen from the last atom to the first.
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

// select(iota < count, v, fill), before `user`.
at_status at_uneven_mask(at_cut *c, at_node *user, uint32_t d,
                         const at_axes *axes, int64_t n, at_value fill,
                         at_value *v) {
  at_type t = *at_value_type(*v);
  at_dims dims = at_type_dims(&t);
  at_value count, index, here, args[3];
  at_attr along = at_attr_int(AT_ATTR_DIMENSION, d);
  t.dtype = at_offset_type(n);
  AT_TRY(at_uneven_count(c, user->parent, user, axes, n, t.dtype, &count));
  AT_TRY(at_mk_broadcast(user, count, dims, NULL, &count));
  AT_TRY(at_mk(user, AT_OP_IOTA, NULL, 0, &along, 1, &t, &index));
  AT_TRY(at_mk_compare(user, AT_LT, index, count, &here));
  AT_TRY(at_mk_broadcast(user, fill, dims, NULL, &fill));
  args[0] = here;
  args[1] = *v;
  args[2] = fill;
  return at_mk(user, AT_OP_SELECT, args, 3, NULL, 0, NULL, v);
}

// ---- Arguments and results
// The size of each dimension with padding; empty: the sharding needs none.
static at_status padded_dims(at_cut *c, const char *sharding, const at_type *t,
                             at_dims *out) {
  at_dims tiles;
  int64_t *dims;
  bool uneven = false;
  *out = (at_dims){0};
  if (!sharding) return AT_OK;
  AT_TRY(at_sharding_parts(c, at_str_of(sharding), t, &tiles));
  if (tiles.rank < t->rank) return AT_OK;
  AT_TRY_ALLOC(dims, at_new(c->m->arena, int64_t, t->rank + 1));
  for (uint32_t d = 0; d < t->rank; d++) {
    int64_t n = tiles.ptr[d], each = t->dims[d] / n + (t->dims[d] % n != 0);
    if (__builtin_mul_overflow(each, n, &dims[d]))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "sharding `%.200s` has too many parts", sharding);
    uneven |= dims[d] != t->dims[d];
  }
  if (uneven) *out = (at_dims){dims, t->rank};
  return AT_OK;
}

// Every dimension of *v to the size in `dims`; rank 0: none.
static at_status resize_all(const at_cut *c, at_comp *comp, at_node *before,
                            at_dims dims, at_value *v) {
  for (uint32_t d = 0; d < dims.rank; d++)
    AT_TRY(resize(c, comp, before, d, dims.ptr[d], *v, v));
  return AT_OK;
}

// Of the node `from` in comp and its regions. The caller sets aside the one
// that must keep reading it.
static void replace_uses(at_comp *comp, at_value from, at_value to) {
  AT_FOR_NODES(n, comp) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (n->operands[i].node == from.node) n->operands[i] = to;
    for (uint32_t i = 0; i < n->num_regions; i++)
      replace_uses(n->regions[i], from, to);
  }
  for (uint32_t i = 0; i < comp->num_results; i++)
    if (comp->results[i].node == from.node) comp->results[i] = to;
}

// NULL: the entry only has parameters.
static at_node *first_computed(const at_comp *e) {
  at_node *n = e->first;
  while (n && n->op == AT_OP_PARAMETER) n = n->next;
  return n;
}

// The client holds the padded argument: the parameter takes that type, and a
// slice gives the real elements to its users.
static at_status narrow_parameter(at_cut *c, at_node *p, at_dims dims) {
  at_comp *e = c->m->entry;
  at_value whole = {p, 0}, v = whole;
  at_dims real = at_type_dims(&p->types[0]);
  p->types[0].dims = dims.ptr;
  AT_TRY(resize_all(c, e, first_computed(e), real, &v));
  // That is the first of the slices, which must go on reading the parameter.
  at_node *reader = first_computed(e);
  replace_uses(e, whole, v);
  reader->operands[0] = whole;
  return AT_OK;
}

// A result that the client leaves open is as its constraint says. Only HLO's
// clients hold padding without having asked for it.
static at_status take_constraint(at_cut *c, at_value v, at_io_info *result) {
  at_dims dims;
  if (result->sharding || !result->open || !at_is_constraint(v.node))
    return AT_OK;
  at_str text = at_node_str(v.node, AT_ATTR_SHARDING);
  const char *copy;
  if (!at_str_starts(text, "{")) return AT_OK;
  AT_TRY_ALLOC(copy, at_arena_printf(c->m->arena, "%.*s", (int)text.len,
                                     text.ptr ? text.ptr : ""));
  AT_TRY(padded_dims(c, copy, at_value_type(v), &dims));
  if (dims.rank) result->sharding = copy;
  return AT_OK;
}

// Parameters become larger and are sliced; results are padded.
at_status at_uneven_edges(at_cut *c) {
  at_module *m = c->m;
  at_comp *e = m->entry;
  at_dims dims;
  for (uint32_t i = 0; m->params && i < e->num_params; i++) {
    const char *text = m->params[i].sharding;
    AT_TRY(padded_dims(c, text, &e->params[i]->types[0], &dims));
    if (dims.rank) AT_TRY(narrow_parameter(c, e->params[i], dims));
  }
  for (uint32_t i = 0; m->results && i < e->num_results; i++) {
    AT_TRY(take_constraint(c, e->results[i], &m->results[i]));
    const char *text = m->results[i].sharding;
    AT_TRY(padded_dims(c, text, at_value_type(e->results[i]), &dims));
    AT_TRY(resize_all(c, e, NULL, dims, &e->results[i]));
  }
  return AT_OK;
}
