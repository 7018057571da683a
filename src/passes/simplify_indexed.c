// Indexed data movement whose indices are constants or that moves everything.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };

static at_status to(at_rw *r, at_node *n, at_value v) {
  AT_ENSURE(at_type_eq(at_value_type(v), &n->types[0]));
  return at_fwd_set(r, n, 0, v);
}

static int64_t clamp(int64_t x, int64_t hi) {
  return x < 0 ? 0 : x > hi ? hi : x;
}

// An index constant; unsigned 64-bit ones beyond range read as the largest.
static bool index_of(at_value v, int64_t *out) {
  if (!at_splat_int(v, out)) return false;
  if (at_value_type(v)->dtype == AT_U64 && *out < 0) *out = INT64_MAX;
  return true;
}

static at_status dynamic_slice(at_rw *r, at_node *n) {
  at_value x = n->operands[0], v;
  const at_type *from = at_value_type(x);
  if (at_type_eq(from, &n->types[0])) return to(r, n, x);
  const void *element = at_splat_of(x);
  if (element) {
    AT_TRY(at_mk_splat(n, n->types[0], element, &v));
    return to(r, n, v);
  }
  if (from->rank > MAX_RANK || n->num_operands != from->rank + 1) return AT_OK;
  int64_t s[MAX_RANK], l[MAX_RANK], t[MAX_RANK];
  for (uint32_t i = 0; i < from->rank; i++) {
    int64_t size = n->types[0].dims[i];
    s[i] = 0;
    if (size != from->dims[i] && !index_of(n->operands[1 + i], &s[i]))
      return AT_OK;
    s[i] = clamp(s[i], from->dims[i] - size);
    l[i] = s[i] + size;
    t[i] = 1;
  }
  AT_TRY(at_mk_slice(n, x, s, l, t, &v));
  return to(r, n, v);
}

static at_status dynamic_update_slice(at_rw *r, at_node *n) {
  at_value x = n->operands[0], u = n->operands[1];
  if (at_type_eq(at_value_type(x), at_value_type(u))) return to(r, n, u);
  if (at_type_elements(at_value_type(u)) == 0) return to(r, n, x);
  return AT_OK;
}

// A gather of one slice: a dynamic slice, reshaped.
static at_status gather(at_rw *r, at_node *n) {
  at_value x = n->operands[0], idx = n->operands[1], v;
  const at_type *from = at_value_type(x), *it = at_value_type(idx);
  at_dims sizes = at_node_ints(n, AT_ATTR_SLICE_SIZES);
  at_dims map = at_node_ints(n, AT_ATTR_START_INDEX_MAP);
  if (from->rank > MAX_RANK || map.rank == 0 ||
      at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS).rank)
    return AT_OK;
  if (at_type_elements(it) != map.rank) return AT_OK;  // more than one slice
  at_value starts[MAX_RANK + 1], flat, one, zero = {0};
  int64_t vector = map.rank;
  AT_TRY(at_mk_reshape(n, idx, (at_dims){&vector, 1}, &flat));
  starts[0] = x;
  for (uint32_t i = 0; i < from->rank; i++) starts[1 + i] = zero;
  for (uint32_t i = 0; i < map.rank; i++) {
    int64_t s = i, l = i + 1, t = 1;
    AT_TRY(at_mk_slice(n, flat, &s, &l, &t, &one));
    AT_TRY(at_mk_reshape(n, one, (at_dims){NULL, 0}, &starts[1 + map.ptr[i]]));
  }
  for (uint32_t i = 0; i < from->rank; i++)
    if (!starts[1 + i].node)
      AT_TRY(at_mk_splat_int(n, at_type_scalar(it->dtype), 0, &starts[1 + i]));
  at_attr attr = at_attr_ints(AT_ATTR_SLICE_SIZES, sizes.ptr, sizes.rank);
  AT_TRY(at_mk(n, AT_OP_DYNAMIC_SLICE, starts, from->rank + 1, &attr, 1, NULL,
               &v));
  AT_TRY(at_mk_reshape(n, v, at_type_dims(&n->types[0]), &v));
  return to(r, n, v);
}

static at_status scatter(at_rw *r, at_node *n) {
  uint32_t inputs = (n->num_operands - 1) / 2;
  const at_type *u = at_value_type(n->operands[inputs + 1]);
  if (at_type_elements(u) != 0) return AT_OK;
  for (uint32_t i = 0; i < n->num_results; i++)
    AT_TRY(at_fwd_set(r, n, i, n->operands[i]));
  return AT_OK;
}

at_status at_simplify_indexed(at_rw *r, at_node *n) {
  switch (n->op) {
    case AT_OP_DYNAMIC_SLICE:
      return dynamic_slice(r, n);
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return dynamic_update_slice(r, n);
    case AT_OP_GATHER:
      return gather(r, n);
    case AT_OP_SCATTER:
      return scatter(r, n);
    default:
      return AT_OK;
  }
}
