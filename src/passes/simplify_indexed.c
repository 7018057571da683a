// Indexed data movement whose indices are constants or that moves everything.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };

// v takes the place of n; the types must be equal.
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

static at_status dynamic_slice_whole(at_rw *r, at_node *n) {
  at_value x = n->operands[0];
  return at_type_eq(at_value_type(x), &n->types[0]) ? to(r, n, x) : AT_OK;
}

static at_status dynamic_slice_splat(at_rw *r, at_node *n) {
  const void *element = at_splat_of(n->operands[0]);
  at_value v;
  if (!element) return AT_OK;
  AT_TRY(at_mk_splat(n, n->types[0], element, &v));
  return to(r, n, v);
}

// Starts are clamped as the op does.
static at_status dynamic_slice_known(at_rw *r, at_node *n) {
  at_value x = n->operands[0], v;
  const at_type *from = at_value_type(x);
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

// Whatever the starts, as they clamp to 0.
static at_status update_whole(at_rw *r, at_node *n) {
  at_value x = n->operands[0], u = n->operands[1];
  bool whole = at_type_eq(at_value_type(x), at_value_type(u));
  return whole ? to(r, n, u) : AT_OK;
}

static at_status update_nothing(at_rw *r, at_node *n) {
  at_value x = n->operands[0], u = n->operands[1];
  return at_type_elements(at_value_type(u)) == 0 ? to(r, n, x) : AT_OK;
}

// What it is, reshaped.
static at_status gather_one(at_rw *r, at_node *n) {
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

// ---- A scatter of one window: what is there is sliced, changed and put back.
typedef struct window {
  at_value starts[MAX_RANK];  // of every operand dimension; scalars
  int64_t size[MAX_RANK], most[MAX_RANK];  // extent; the last start within
} window;

static bool listed(at_dims d, int64_t x) {
  for (uint32_t i = 0; i < d.rank; i++)
    if (d.ptr[i] == x) return true;
  return false;
}

// Reads a scatter of one window: starts as scalars, 0 where no index points.
static at_status window_of(at_node *n, window *w) {
  const at_type *x = at_value_type(n->operands[0]),
                *u = at_value_type(n->operands[2]);
  at_dims map = at_node_ints(n, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS),
          inserted = at_node_ints(n, AT_ATTR_INSERTED_WINDOW_DIMS),
          kept = at_node_ints(n, AT_ATTR_UPDATE_WINDOW_DIMS);
  int64_t vector = map.rank;
  at_value flat, one;
  AT_TRY(at_mk_reshape(n, n->operands[1], (at_dims){&vector, 1}, &flat));
  for (uint32_t d = 0, k = 0; d < x->rank; d++) {
    w->size[d] = listed(inserted, d) ? 1 : u->dims[kept.ptr[k++]];
    w->most[d] = x->dims[d] - w->size[d];
    w->starts[d] = (at_value){0};
  }
  for (uint32_t i = 0; i < map.rank; i++) {
    int64_t s = i, l = i + 1, t = 1;
    AT_TRY(at_mk_slice(n, flat, &s, &l, &t, &one));
    AT_TRY(at_mk_reshape(n, one, (at_dims){NULL, 0}, &w->starts[map.ptr[i]]));
  }
  at_type index = at_type_scalar(at_value_type(flat)->dtype);
  for (uint32_t d = 0; d < x->rank; d++)
    if (!w->starts[d].node) AT_TRY(at_mk_splat_int(n, index, 0, &w->starts[d]));
  return AT_OK;
}

// Greatest value of an integer type, at most INT64_MAX.
static int64_t largest(at_dtype t) {
  uint32_t bits = at_dtype_of(t)->bits - (at_is_signed_int(t) ? 1 : 0);
  return bits >= 63 ? INT64_MAX : ((int64_t)1 << bits) - 1;
}

// Can at_mk_mapped take the body?
static bool elementwise(const at_comp *c) {
  AT_FOR_NODES(n, c)
  if (n->op != AT_OP_PARAMETER && n->op != AT_OP_CONSTANT &&
      !at_op_is(n->op, AT_ELEMENTWISE))
    return false;
  return true;
}

// valid: whether all of the window lies within; node NULL: it does.
static at_status window_valid(at_node *n, const window *w, uint32_t rank,
                              at_value *valid) {
  at_dims map = at_node_ints(n, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS);
  const at_literal *l = at_const_of(n->operands[1]);
  *valid = (at_value){0};
  for (uint32_t i = 0; i < map.rank; i++) {
    int64_t d = map.ptr[i], x = -1;
    if (l) x = at_load_int(l->type.dtype, at_literal_at(l, i));
    if (x >= 0 && x <= w->most[d]) continue;
    at_type t = at_type_scalar(at_value_type(w->starts[d])->dtype);
    at_value edge, ok;
    for (int high = 0; high < 2; high++) {
      if (high && w->most[d] >= largest(t.dtype)) continue;
      AT_TRY(at_mk_splat_int(n, t, high ? w->most[d] : 0, &edge));
      AT_TRY(at_mk_compare(n, high ? AT_LE : AT_GE, w->starts[d], edge, &ok));
      if (valid->node) AT_TRY(at_mk2(n, AT_OP_AND, *valid, ok, &ok));
      *valid = ok;
    }
  }
  return AT_OK;
}

// *out: body(old, update), and `old` where the window does not lie within
// (scatter drops it, where slices would clamp). Node NULL: the body does not
// map.
static at_status window_new(at_node *n, const window *w, at_value old,
                            at_value *out) {
  at_dims dims = at_type_dims(at_value_type(old));
  at_value args[2] = {old}, valid;
  AT_TRY(at_mk_reshape(n, n->operands[2], dims, &args[1]));
  AT_TRY(at_mk_mapped(n, n->regions[0], args, dims, out));
  if (!out->node) return AT_OK;
  AT_TRY(window_valid(n, w, dims.rank, &valid));
  if (!valid.node) return AT_OK;
  AT_TRY(at_mk_broadcast(n, valid, dims, NULL, &valid));
  at_value pick[3] = {valid, *out, old};
  return at_mk(n, AT_OP_SELECT, pick, 3, NULL, 0, NULL, out);
}

// dynamic_update_slice(x, window_new(dynamic_slice(x))).
static at_status scatter_window(at_rw *r, at_node *n) {
  const at_type *x = at_value_type(n->operands[0]);
  window w;
  at_value v, in[2 + MAX_RANK] = {n->operands[0]};
  AT_TRY(window_of(n, &w));
  for (uint32_t d = 0; d < x->rank; d++) in[1 + d] = w.starts[d];
  at_attr attr = at_attr_ints(AT_ATTR_SLICE_SIZES, w.size, x->rank);
  AT_TRY(at_mk(n, AT_OP_DYNAMIC_SLICE, in, x->rank + 1, &attr, 1, NULL, &v));
  AT_TRY(window_new(n, &w, v, &in[1]));
  if (!in[1].node) return AT_OK;
  for (uint32_t d = 0; d < x->rank; d++) in[2 + d] = w.starts[d];
  AT_TRY(
      at_mk(n, AT_OP_DYNAMIC_UPDATE_SLICE, in, x->rank + 2, NULL, 0, NULL, &v));
  return to(r, n, v);
}

static const at_type *updates_of(const at_node *n) {
  return at_value_type(n->operands[(n->num_operands - 1) / 2 + 1]);
}

static at_status scatter_nothing(at_rw *r, at_node *n) {
  if (at_type_elements(updates_of(n)) != 0) return AT_OK;
  for (uint32_t i = 0; i < n->num_results; i++)
    AT_TRY(at_fwd_set(r, n, i, n->operands[i]));
  return AT_OK;
}

static at_status scatter_one(at_rw *r, at_node *n) {
  at_dims map = at_node_ints(n, AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS);
  bool one = n->num_operands == 3 && elementwise(n->regions[0]) && map.rank &&
             at_value_type(n->operands[0])->rank <= MAX_RANK &&
             !at_node_ints(n, AT_ATTR_INPUT_BATCHING_DIMS).rank &&
             at_type_elements(at_value_type(n->operands[1])) == map.rank;
  return one ? scatter_window(r, n) : AT_OK;
}

static const at_law rules[] = {
    {"dynamic slice of everything = x", AT_OP_DYNAMIC_SLICE,
     dynamic_slice_whole},
    {"dynamic slice of equal elements = those", AT_OP_DYNAMIC_SLICE,
     dynamic_slice_splat},
    {"dynamic slice from a known start = slice", AT_OP_DYNAMIC_SLICE,
     dynamic_slice_known},
    {"update of everything = the update", AT_OP_DYNAMIC_UPDATE_SLICE,
     update_whole},
    {"update by nothing = x", AT_OP_DYNAMIC_UPDATE_SLICE, update_nothing},
    {"gather of one slice = dynamic slice", AT_OP_GATHER, gather_one},
    {"scatter of nothing = x", AT_OP_SCATTER, scatter_nothing},
    {"scatter of one window = update", AT_OP_SCATTER, scatter_one},
};

const at_laws at_laws_indexed = {rules, AT_LEN(rules)};
