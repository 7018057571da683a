// Data movement, a table of laws: reshapes, transposes, broadcasts, slices,
// concatenations, pads.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };

// v takes the place of n; the types must be equal.
static at_status to(at_rw *r, at_node *n, at_value v) {
  AT_ENSURE(at_type_eq(at_value_type(v), &n->types[0]));
  return at_fwd_set(r, n, 0, v);
}

// Same data under another type.
static at_status retype(at_rw *r, at_node *n, const at_literal *l) {
  const at_literal *out;
  at_value v;
  AT_TRY(
      at_literal_make(r->m->arena, n->types[0], l->data, l->splat, true, &out));
  at_attr attr = {.id = AT_ATTR_VALUE};
  attr.literal = out;
  AT_TRY(at_mk(n, AT_OP_CONSTANT, NULL, 0, &attr, 1, &n->types[0], &v));
  return to(r, n, v);
}

// A constant of n's type whose elements are all *element.
static at_status splat(at_rw *r, at_node *n, const void *element) {
  at_value v;
  AT_TRY(at_mk_splat(n, n->types[0], element, &v));
  return to(r, n, v);
}

// Of any op that only moves: what changes nothing.
static at_status same(at_rw *r, at_node *n) {
  at_value x = n->operands[0];
  return at_type_eq(at_value_type(x), &n->types[0]) ? to(r, n, x) : AT_OK;
}

// Of any op that only moves: equal elements stay equal.
static at_status of_splat(at_rw *r, at_node *n) {
  const void *element = at_splat_of(n->operands[0]);
  return element ? splat(r, n, element) : AT_OK;
}

// ---- Reshapes

static at_status reshape_constant(at_rw *r, at_node *n) {
  const at_literal *l = at_const_of(n->operands[0]);
  return l ? retype(r, n, l) : AT_OK;
}

static at_status reshape_twice(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  at_value v;
  if (in->op != AT_OP_RESHAPE) return AT_OK;
  AT_TRY(at_mk_reshape(n, in->operands[0], at_type_dims(&n->types[0]), &v));
  return to(r, n, v);
}

// A broadcast of a scalar can be made in any shape.
static at_status reshape_broadcast(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  at_value v;
  if (in->op != AT_OP_BROADCAST_IN_DIM ||
      at_value_type(in->operands[0])->rank != 0)
    return AT_OK;
  AT_TRY(at_mk_broadcast(n, in->operands[0], at_type_dims(&n->types[0]), NULL,
                         &v));
  return to(r, n, v);
}

// An elementwise op whose operands are reshapes of one shape works on that
// shape: reshapes sink towards users that absorb them.
static at_status sink_reshape(at_rw *r, at_node *n) {
  const at_type *base = NULL;
  at_value v[3];
  if (n->num_operands > 3) return AT_OK;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value x = n->operands[i];
    if (!at_dims_eq(at_type_dims(at_value_type(x)), at_type_dims(&n->types[0])))
      return AT_OK;
    if (at_splat_of(x)) continue;
    if (x.node->op != AT_OP_RESHAPE) return AT_OK;
    const at_type *t = at_value_type(x.node->operands[0]);
    if (base && !at_dims_eq(at_type_dims(base), at_type_dims(t))) return AT_OK;
    base = t;
  }
  if (!base) return AT_OK;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value x = n->operands[i];
    const void *element = at_splat_of(x);
    at_type t = at_type_with(*base, at_value_type(x)->dtype);
    if (element)
      AT_TRY(at_mk_splat(n, t, element, &v[i]));
    else
      v[i] = x.node->operands[0];
  }
  at_type t = at_type_with(*base, n->types[0].dtype);
  at_value out;
  AT_TRY(at_mk(n, n->op, v, n->num_operands, n->attrs, n->num_attrs, &t, &out));
  AT_TRY(at_mk_reshape(n, out, at_type_dims(&n->types[0]), &out));
  return to(r, n, out);
}

// ---- Transposes

// A transpose moves no data when the dimensions larger than one keep their
// order.
static bool is_reshape(const at_type *in, const int64_t *perm) {
  int64_t last = -1;
  for (uint32_t i = 0; i < in->rank; i++) {
    if (in->dims[perm[i]] == 1) continue;
    if (perm[i] < last) return false;
    last = perm[i];
  }
  return true;
}

// Pieces of one element along the joined dimension (jnp.cross, jnp.stack before
// a transpose) are joined where the transpose would have put them: the pieces
// themselves keep their order in memory.
static at_status transpose_join(at_rw *r, at_node *n) {
  enum { MOST = 4 };
  const at_node *join = n->operands[0].node;
  const at_type *t = &n->types[0];
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  int64_t dim = at_node_int(join, AT_ATTR_DIMENSION, 0), last = -1;
  at_value v[MOST], out;
  int64_t shape[MAX_RANK], to_dim = 0;
  if (join->op != AT_OP_CONCATENATE || join->num_operands > MOST ||
      t->rank > MAX_RANK)
    return AT_OK;
  for (uint32_t i = 0; i < perm.rank; i++) {
    shape[i] = t->dims[i];
    if (perm.ptr[i] == dim) {
      to_dim = i;
      shape[i] = 1;
      continue;
    }
    if (perm.ptr[i] < last) return AT_OK;  // others change their order, too
    last = perm.ptr[i];
  }
  for (uint32_t i = 0; i < join->num_operands; i++)
    if (at_value_type(join->operands[i])->dims[dim] != 1) return AT_OK;
  for (uint32_t i = 0; i < join->num_operands; i++)
    AT_TRY(
        at_mk_reshape(n, join->operands[i], (at_dims){shape, t->rank}, &v[i]));
  at_attr attr = at_attr_int(AT_ATTR_DIMENSION, to_dim);
  AT_TRY(
      at_mk(n, AT_OP_CONCATENATE, v, join->num_operands, &attr, 1, NULL, &out));
  return to(r, n, out);
}

static at_status transpose_in_place(at_rw *r, at_node *n) {
  at_value x = n->operands[0], v;
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  if (!is_reshape(at_value_type(x), perm.ptr)) return AT_OK;
  AT_TRY(at_mk_reshape(n, x, at_type_dims(&n->types[0]), &v));
  return to(r, n, v);
}

static at_status transpose_twice(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  if (in->op != AT_OP_TRANSPOSE || perm.rank > MAX_RANK) return AT_OK;
  at_dims first = at_node_ints(in, AT_ATTR_PERMUTATION);
  int64_t p[MAX_RANK];
  at_value v;
  for (uint32_t i = 0; i < perm.rank; i++) p[i] = first.ptr[perm.ptr[i]];
  AT_TRY(at_mk_transpose(n, in->operands[0], p, &v));
  return to(r, n, v);
}

// Not where the broadcast's own order would hide the transpose.
static at_status transpose_broadcast(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  if (in->op != AT_OP_BROADCAST_IN_DIM || perm.rank > MAX_RANK) return AT_OK;
  at_dims where = at_node_ints(in, AT_ATTR_BROADCAST_DIMENSIONS);
  int64_t p[MAX_RANK], inverse[MAX_RANK];
  at_value v;
  for (uint32_t i = 0; i < perm.rank; i++) inverse[perm.ptr[i]] = i;
  for (uint32_t i = 0; i < where.rank; i++) p[i] = inverse[where.ptr[i]];
  for (uint32_t i = 1; i < where.rank; i++)
    if (p[i] < p[i - 1]) return AT_OK;
  AT_TRY(
      at_mk_broadcast(n, in->operands[0], at_type_dims(&n->types[0]), p, &v));
  return to(r, n, v);
}

// ---- Broadcasts, brought to one form: operand dimensions in order, none of
// size 1 that is stretched, no reshape or broadcast below that it could take
// over.

static at_status broadcast_in_place(at_rw *r, at_node *n) {
  at_value x = n->operands[0], v;
  at_dims where = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  if (at_type_elements(at_value_type(x)) != at_type_elements(&n->types[0]))
    return AT_OK;
  for (uint32_t i = 1; i < where.rank; i++)
    if (where.ptr[i] < where.ptr[i - 1]) return AT_OK;
  AT_TRY(at_mk_reshape(n, x, at_type_dims(&n->types[0]), &v));
  return to(r, n, v);
}

static at_status broadcast_twice(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  at_dims where = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  if (in->op != AT_OP_BROADCAST_IN_DIM || n->types[0].rank > MAX_RANK)
    return AT_OK;
  at_dims inner = at_node_ints(in, AT_ATTR_BROADCAST_DIMENSIONS);
  int64_t p[MAX_RANK];
  at_value v;
  for (uint32_t i = 0; i < inner.rank; i++) p[i] = where.ptr[inner.ptr[i]];
  AT_TRY(
      at_mk_broadcast(n, in->operands[0], at_type_dims(&n->types[0]), p, &v));
  return to(r, n, v);
}

// Stretched dimensions of size one are dropped: one form for one thing.
static at_status broadcast_stretched(at_rw *r, at_node *n) {
  at_value x = n->operands[0], v;
  const at_type *from = at_value_type(x), *out = &n->types[0];
  at_dims where = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  if (out->rank > MAX_RANK) return AT_OK;
  int64_t dims[MAX_RANK], p[MAX_RANK];
  uint32_t rank = 0;
  for (uint32_t i = 0; i < from->rank; i++) {
    if (from->dims[i] == 1 && out->dims[where.ptr[i]] != 1) continue;
    dims[rank] = from->dims[i];
    p[rank++] = where.ptr[i];
  }
  if (rank == from->rank) return AT_OK;
  AT_TRY(at_mk_reshape(n, x, (at_dims){dims, rank}, &v));
  AT_TRY(at_mk_broadcast(n, v, at_type_dims(out), p, &v));
  return to(r, n, v);
}

// Of a reshape that only adds dimensions of size one.
static at_status broadcast_reshape(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  at_dims where = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  if (in->op != AT_OP_RESHAPE || where.rank > MAX_RANK) return AT_OK;
  at_value y = in->operands[0], v;
  const at_type *from = &in->types[0], *base = at_value_type(y);
  if (base->rank > from->rank) return AT_OK;
  int64_t p[MAX_RANK];
  uint32_t d = 0;
  for (uint32_t i = 0; i < from->rank; i++) {
    if (d < base->rank && base->dims[d] == from->dims[i] &&
        (from->dims[i] != 1 || from->rank - i == base->rank - d))
      p[d++] = where.ptr[i];
    else if (from->dims[i] != 1)
      return AT_OK;
  }
  if (d != base->rank) return AT_OK;
  AT_TRY(at_mk_broadcast(n, y, at_type_dims(&n->types[0]), p, &v));
  return to(r, n, v);
}

// ---- Slices

// Its numbers, a list each for every dimension.
typedef struct window {
  at_dims start, limit, stride;
} window;

// False: n's operand is of another op, or has too many dimensions.
static bool window_of(const at_node *n, at_op op, window *w) {
  *w = (window){at_node_ints(n, AT_ATTR_START_INDICES),
                at_node_ints(n, AT_ATTR_LIMIT_INDICES),
                at_node_ints(n, AT_ATTR_STRIDES)};
  return n->operands[0].node->op == op && w->start.rank <= MAX_RANK;
}

// Where all of the slice is of one piece: a slice of that.
static at_status slice_of_concat(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  window w;
  if (!window_of(n, AT_OP_CONCATENATE, &w)) return AT_OK;
  int64_t dim = at_node_int(in, AT_ATTR_DIMENSION, 0), at = 0;
  int64_t s[MAX_RANK], l[MAX_RANK];
  for (uint32_t i = 0; i < in->num_operands; i++) {
    int64_t size = at_value_type(in->operands[i])->dims[dim];
    if (w.start.ptr[dim] >= at && w.limit.ptr[dim] <= at + size) {
      memcpy(s, w.start.ptr, w.start.rank * sizeof *s);
      memcpy(l, w.limit.ptr, w.start.rank * sizeof *l);
      s[dim] -= at;
      l[dim] -= at;
      at_value v;
      AT_TRY(at_mk_slice(n, in->operands[i], s, l, w.stride.ptr, &v));
      return to(r, n, v);
    }
    at += size;
  }
  return AT_OK;
}

// Slices the operand and broadcasts to the smaller shape. Not where an empty
// result would need a size-1 dimension stretched to 0.
static at_status slice_of_broadcast(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  window w;
  if (!window_of(n, AT_OP_BROADCAST_IN_DIM, &w)) return AT_OK;
  at_value y = in->operands[0], v;
  const at_type *base = at_value_type(y);
  at_dims where = at_node_ints(in, AT_ATTR_BROADCAST_DIMENSIONS);
  int64_t s[MAX_RANK], l[MAX_RANK], t[MAX_RANK];
  for (uint32_t i = 0; i < base->rank; i++) {
    int64_t d = where.ptr[i];
    bool stretched = base->dims[i] != in->types[0].dims[d];
    s[i] = stretched ? 0 : w.start.ptr[d];
    l[i] = stretched ? base->dims[i] : w.limit.ptr[d];
    t[i] = stretched ? 1 : w.stride.ptr[d];
  }
  for (uint32_t i = 0; i < base->rank; i++)
    if (base->dims[i] == 1 && n->types[0].dims[where.ptr[i]] == 0) return AT_OK;
  AT_TRY(at_mk_slice(n, y, s, l, t, &v));
  AT_TRY(at_mk_broadcast(n, v, at_type_dims(&n->types[0]), where.ptr, &v));
  return to(r, n, v);
}

// Within the padded operand: shift the window.
static at_status slice_of_pad(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  window w;
  if (!window_of(n, AT_OP_PAD, &w)) return AT_OK;
  const at_type *base = at_value_type(in->operands[0]);
  at_dims low = at_node_ints(in, AT_ATTR_EDGE_PADDING_LOW);
  at_dims interior = at_node_ints(in, AT_ATTR_INTERIOR_PADDING);
  int64_t s[MAX_RANK], l[MAX_RANK];
  for (uint32_t i = 0; i < base->rank; i++) {
    s[i] = w.start.ptr[i] - low.ptr[i];
    l[i] = w.limit.ptr[i] - low.ptr[i];
    if (interior.ptr[i] || s[i] < 0 || l[i] > base->dims[i]) return AT_OK;
  }
  at_value v;
  AT_TRY(at_mk_slice(n, in->operands[0], s, l, w.stride.ptr, &v));
  return to(r, n, v);
}

static at_status slice_twice(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  window w;
  if (!window_of(n, AT_OP_SLICE, &w)) return AT_OK;
  at_dims s0 = at_node_ints(in, AT_ATTR_START_INDICES);
  at_dims t0 = at_node_ints(in, AT_ATTR_STRIDES);
  int64_t s[MAX_RANK], l[MAX_RANK], t[MAX_RANK];
  at_value v;
  for (uint32_t i = 0; i < w.start.rank; i++) {
    // Of fewer than two elements the stride says nothing, and may be huge.
    int64_t count = n->types[0].dims[i];
    t[i] = count > 1 ? t0.ptr[i] * w.stride.ptr[i] : 1;
    s[i] = count ? s0.ptr[i] + w.start.ptr[i] * t0.ptr[i] : 0;
    l[i] = count ? s[i] + (count - 1) * t[i] + 1 : 0;
  }
  AT_TRY(at_mk_slice(n, in->operands[0], s, l, t, &v));
  return to(r, n, v);
}

// ---- Concatenations

// Two slices that lie side by side along dim.
static bool adjacent(const at_node *a, const at_node *b, int64_t dim) {
  if (a->op != AT_OP_SLICE || b->op != AT_OP_SLICE ||
      !at_value_eq(a->operands[0], b->operands[0]))
    return false;
  at_dims sa = at_node_ints(a, AT_ATTR_START_INDICES);
  at_dims sb = at_node_ints(b, AT_ATTR_START_INDICES);
  at_dims la = at_node_ints(a, AT_ATTR_LIMIT_INDICES);
  at_dims lb = at_node_ints(b, AT_ATTR_LIMIT_INDICES);
  at_dims ta = at_node_ints(a, AT_ATTR_STRIDES),
          tb = at_node_ints(b, AT_ATTR_STRIDES);
  if (!at_dims_eq(ta, tb) || ta.ptr[dim] != 1 || la.ptr[dim] != sb.ptr[dim])
    return false;
  for (uint32_t i = 0; i < sa.rank; i++)
    if (i != dim && (sa.ptr[i] != sb.ptr[i] || la.ptr[i] != lb.ptr[i]))
      return false;
  return true;
}

static at_status concatenate_one(at_rw *r, at_node *n) {
  return n->num_operands == 1 ? to(r, n, n->operands[0]) : AT_OK;
}

// Drops empty pieces, takes over pieces of nested concatenations that nobody
// else reads, joins slices that lie side by side.
static at_status concatenate_pieces(at_rw *r, at_node *n) {
  int64_t dim = at_node_int(n, AT_ATTR_DIMENSION, 0);
  at_value v;
  AT_VEC(at_value) parts = {0};
  bool changed = false;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value x = n->operands[i];
    const at_node *in = x.node;
    if (at_value_type(x)->dims[dim] == 0) {
      changed = true;
    } else if (in->op == AT_OP_CONCATENATE && in->mark == 1 &&
               at_node_int(in, AT_ATTR_DIMENSION, 0) == dim) {
      changed = true;
      for (uint32_t j = 0; j < in->num_operands; j++)
        if (!at_vec_push(r->m->arena, &parts, in->operands[j]))
          return AT_NO_MEMORY("concatenate");
    } else if (parts.len && adjacent(parts.ptr[parts.len - 1].node, in, dim)) {
      at_node *a = parts.ptr[parts.len - 1].node;
      at_dims s = at_node_ints(a, AT_ATTR_START_INDICES);
      at_dims t = at_node_ints(a, AT_ATTR_STRIDES);
      at_dims l = at_node_ints(in, AT_ATTR_LIMIT_INDICES);
      AT_TRY(at_mk_slice(n, a->operands[0], s.ptr, l.ptr, t.ptr, &v));
      parts.ptr[parts.len - 1] = v;
      changed = true;
    } else if (!at_vec_push(r->m->arena, &parts, x)) {
      return AT_NO_MEMORY("concatenate");
    }
  }
  if (!changed) return AT_OK;
  if (parts.len == 0) return to(r, n, n->operands[0]);  // all are empty
  if (parts.len == 1) return to(r, n, parts.ptr[0]);
  at_attr attr = at_attr_int(AT_ATTR_DIMENSION, dim);
  AT_TRY(at_mk(n, AT_OP_CONCATENATE, parts.ptr, (uint32_t)parts.len, &attr, 1,
               NULL, &v));
  return to(r, n, v);
}

// ---- Paddings

// One that only cuts off.
static at_status pad_cuts(at_rw *r, at_node *n) {
  at_value x = n->operands[0], v;
  const at_type *from = at_value_type(x);
  at_dims low = at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW);
  at_dims high = at_node_ints(n, AT_ATTR_EDGE_PADDING_HIGH);
  at_dims interior = at_node_ints(n, AT_ATTR_INTERIOR_PADDING);
  if (low.rank > MAX_RANK) return AT_OK;
  int64_t s[MAX_RANK], l[MAX_RANK], t[MAX_RANK];
  for (uint32_t i = 0; i < low.rank; i++) {
    s[i] = -low.ptr[i];
    l[i] = from->dims[i] + high.ptr[i];
    t[i] = 1;
    if (low.ptr[i] > 0 || high.ptr[i] > 0 || s[i] > l[i] ||
        (interior.ptr[i] > 0 && from->dims[i] > 1))
      return AT_OK;
  }
  AT_TRY(at_mk_slice(n, x, s, l, t, &v));
  return to(r, n, v);
}

static at_status pad_nothing(at_rw *r, at_node *n) {
  at_value v;
  if (at_type_elements(at_value_type(n->operands[0])) != 0) return AT_OK;
  AT_TRY(
      at_mk_broadcast(n, n->operands[1], at_type_dims(&n->types[0]), NULL, &v));
  return to(r, n, v);
}

static at_status pad_alike(at_rw *r, at_node *n) {
  const void *a = at_splat_of(n->operands[0]), *b = at_splat_of(n->operands[1]);
  bool alike = a && b && !memcmp(a, b, at_dtype_bytes(n->types[0].dtype));
  return alike ? splat(r, n, a) : AT_OK;
}

// ---- Others

static at_status reverse_splat(at_rw *r, at_node *n) {
  return at_splat_of(n->operands[0]) ? to(r, n, n->operands[0]) : AT_OK;
}

static at_status reverse_twice(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  bool twice = in->op == AT_OP_REVERSE &&
               at_dims_eq(at_node_ints(in, AT_ATTR_DIMENSIONS),
                          at_node_ints(n, AT_ATTR_DIMENSIONS));
  return twice ? to(r, n, in->operands[0]) : AT_OK;
}

// Dimensions of size 1 need none.
static at_status reverse_ones(at_rw *r, at_node *n) {
  at_value x = n->operands[0], v;
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  if (dims.rank > MAX_RANK) return AT_OK;
  int64_t keep[MAX_RANK];
  uint32_t kept = 0;
  for (uint32_t i = 0; i < dims.rank; i++)
    if (n->types[0].dims[dims.ptr[i]] > 1) keep[kept++] = dims.ptr[i];
  if (kept == 0) return to(r, n, x);
  if (kept == dims.rank) return AT_OK;
  at_attr attr = at_attr_ints(AT_ATTR_DIMENSIONS, keep, kept);
  AT_TRY(at_mk(n, AT_OP_REVERSE, &x, 1, &attr, 1, NULL, &v));
  return to(r, n, v);
}

static at_status iota_one(at_rw *r, at_node *n) {
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, 0);
  if (n->types[0].dims[d] != 1) return AT_OK;
  at_value v;
  AT_TRY(at_mk_splat_int(n, n->types[0], 0, &v));
  return to(r, n, v);
}

// By way of a type of the same width.
static at_status bitcast_back(at_rw *r, at_node *n) {
  const at_node *in = n->operands[0].node;
  if (in->op == AT_OP_BITCAST_CONVERT &&
      at_type_eq(at_value_type(in->operands[0]), &n->types[0]) &&
      at_dtype_of(in->types[0].dtype)->bits ==
          at_dtype_of(n->types[0].dtype)->bits)
    return to(r, n, in->operands[0]);
  return AT_OK;
}

static const at_law rules[] = {
    {"reshape to the same shape = x", AT_OP_RESHAPE, same},
    {"reshape of a constant is one", AT_OP_RESHAPE, reshape_constant},
    {"reshape twice = once", AT_OP_RESHAPE, reshape_twice},
    {"reshape of a scalar's broadcast is one", AT_OP_RESHAPE,
     reshape_broadcast},
    {"transpose of equal elements = those", AT_OP_TRANSPOSE, of_splat},
    {"transpose that moves nothing = reshape", AT_OP_TRANSPOSE,
     transpose_in_place},
    {"transpose twice = once", AT_OP_TRANSPOSE, transpose_twice},
    {"transpose of joined pieces = join", AT_OP_TRANSPOSE, transpose_join},
    {"transpose of a broadcast is one", AT_OP_TRANSPOSE, transpose_broadcast},
    {"broadcast of equal elements = those", AT_OP_BROADCAST_IN_DIM, of_splat},
    {"broadcast to as many = reshape", AT_OP_BROADCAST_IN_DIM,
     broadcast_in_place},
    {"broadcast twice = once", AT_OP_BROADCAST_IN_DIM, broadcast_twice},
    {"broadcast drops what it stretches", AT_OP_BROADCAST_IN_DIM,
     broadcast_stretched},
    {"broadcast of added ones needs none", AT_OP_BROADCAST_IN_DIM,
     broadcast_reshape},
    {"slice of everything = x", AT_OP_SLICE, same},
    {"slice of equal elements = those", AT_OP_SLICE, of_splat},
    {"slice twice = once", AT_OP_SLICE, slice_twice},
    {"slice of one joined piece = of that", AT_OP_SLICE, slice_of_concat},
    {"slice of a broadcast is one", AT_OP_SLICE, slice_of_broadcast},
    {"slice within the padded = of that", AT_OP_SLICE, slice_of_pad},
    {"join of one = x", AT_OP_CONCATENATE, concatenate_one},
    {"join of joins, neighbours and nothing", AT_OP_CONCATENATE,
     concatenate_pieces},
    {"pad that cuts = slice", AT_OP_PAD, pad_cuts},
    {"pad of nothing = the value", AT_OP_PAD, pad_nothing},
    {"pad of equal elements with another = those", AT_OP_PAD, pad_alike},
    {"reverse of equal elements = those", AT_OP_REVERSE, reverse_splat},
    {"reverse twice = x", AT_OP_REVERSE, reverse_twice},
    {"reverse of one element = x", AT_OP_REVERSE, reverse_ones},
    {"iota of one = 0", AT_OP_IOTA, iota_one},
    {"bitcast to the same type = x", AT_OP_BITCAST_CONVERT, same},
    {"bitcast and back = x", AT_OP_BITCAST_CONVERT, bitcast_back},
    {"f(reshape x) = reshape f(x)", AT_OP_COUNT, sink_reshape},
};

const at_laws at_laws_shape = {rules, AT_LEN(rules)};
