// Index maps of data movement.
#include "codegen/emit.h"

#include <llvm-c/Core.h>
#include <string.h>

#include "codegen/build.h"
#include "codegen/groups.h"
#include "codegen/window.h"

typedef struct at_digits {
  uint32_t n;
  int64_t extent[AT_CG_MAX_RANK];
  at_ix ix[AT_CG_MAX_RANK];
} at_digits;

// Those digits as a place, under the lanes of p.
static const at_pos *pos_of(at_em *e, const at_pos *p, const at_digits *d) {
  return at_pos_make(e, p->lanes, d->n, d->extent, d->ix);
}
// The place of a scalar, the same for all lanes.
static const at_pos *scalar_pos(at_em *e) {
  return at_pos_make(e, false, 0, NULL, NULL);
}
// Empty digits in the arena. Never NULL: callers go on after a failure.
static at_digits *digits(at_em *e) {
  static at_digits lost;  // written only after a failure is recorded
  at_digits *d = at_new(e->arena, at_digits, 1);
  if (!d) at_em_fail(e, AT_NO_MEMORY("index map"));
  return d ? d : &lost;
}

// The result's position in the op's groups.
static at_digits *grouped(at_em *e, const at_pos *p, const at_groups *g) {
  at_digits *d = digits(e);
  d->n = g->n;
  for (uint32_t i = 0; i < g->n; i++) d->extent[i] = g->g[i].extent;
  at_pos_regroup(e, p, d->n, d->extent, d->ix);
  return d;
}

// The op's groups, no coarser than the place's digits.
static void groups_at(const at_node *n, const at_pos *p, at_groups *g) {
  at_groups_of(n, g);
  at_groups_split(g, &n->types[0], p->extent, p->n);
}

// Drops the digits of dimensions that the operand does not have.
static at_val broadcast(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims map = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  at_groups g;
  groups_at(n, p, &g);
  at_digits *d = grouped(e, p, &g), *o = digits(e);
  for (uint32_t k = 0; k < t->rank; k++) {
    if (t->dims[k] == 1) continue;
    for (uint32_t i = 0; i < g.n; i++) {
      if (g.g[i].first != map.ptr[k]) continue;
      o->extent[o->n] = d->extent[i];
      o->ix[o->n++] = d->ix[i];
    }
  }
  return at_em_elem(e, n->operands[0], pos_of(e, p, o));
}

// The digits in the operand's order.
static at_val transpose(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  at_groups g;
  groups_at(n, p, &g);
  at_digits *d = grouped(e, p, &g), *o = digits(e);
  for (uint32_t k = 0; k < t->rank; k++) {
    for (uint32_t i = 0; i < g.n; i++) {
      if (perm.ptr[g.g[i].first] != k) continue;
      o->extent[o->n] = d->extent[i];
      o->ix[o->n++] = d->ix[i];
    }
  }
  return at_em_elem(e, n->operands[0], pos_of(e, p, o));
}

// Start and stride of a group apply to its first dimension; the others are
// whole.
static at_val slice(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims start = at_node_ints(n, AT_ATTR_START_INDICES);
  at_dims stride = at_node_ints(n, AT_ATTR_STRIDES);
  at_groups g;
  groups_at(n, p, &g);
  at_digits *d = grouped(e, p, &g);
  for (uint32_t i = 0; i < d->n; i++) {
    uint32_t f = g.g[i].first;
    d->ix[i] = at_ix_addc(at_ix_mulc(e, d->ix[i], stride.ptr[f]),
                          start.ptr[f] * g.g[i].inner);
    d->extent[i] = t->dims[f] * g.g[i].inner;
  }
  return at_em_elem(e, n->operands[0], pos_of(e, p, d));
}

// A group is reversed as a whole: all of its dimensions are.
static at_val reverse(at_em *e, const at_node *n, const at_pos *p) {
  at_dims dims = at_node_ints(n, AT_ATTR_DIMENSIONS);
  at_groups g;
  groups_at(n, p, &g);
  at_digits *d = grouped(e, p, &g);
  for (uint32_t i = 0; i < d->n; i++)
    for (uint32_t k = 0; k < dims.rank; k++)
      if (dims.ptr[k] == g.g[i].first)
        d->ix[i] = at_ix_addc(at_ix_mulc(e, d->ix[i], -1), d->extent[i] - 1);
  return at_em_elem(e, n->operands[0], pos_of(e, p, d));
}

// The digit of the counted dimension is the value.
static at_val iota(at_em *e, const at_node *n, const at_pos *p) {
  at_groups g;
  at_groups_of(n, &g);
  at_digits *d = grouped(e, p, &g);
  for (uint32_t i = 0; i < d->n; i++)
    if (g.g[i].first == at_node_int(n, AT_ATTR_DIMENSION, 0))
      return at_ix_to(e, n->types[0].dtype, d->ix[i]);
  return at_em_zero(e, n->types[0].dtype);
}

// ---- choices by index
enum { JOIN_MOST = 4 };
// A slot that branches write and what follows reads.
typedef struct at_slot {
  LLVMTypeRef type;
  LLVMValueRef re, im;
} at_slot;
// Slots on the stack, of e->lanes.
static at_slot slot_make(at_em *e, at_dtype t) {
  LLVMTypeRef r = at_em_widen(e, at_em_reg_type(e, t));
  return (at_slot){r, at_em_alloca(e, r, 1),
                   at_is_complex(t) ? at_em_alloca(e, r, 1) : NULL};
}
static void slot_put(at_em *e, const at_slot *s, at_val v) {
  LLVMBuildStore(e->b, v.re, s->re);
  if (s->im) LLVMBuildStore(e->b, v.im, s->im);
}
// What the branch that ran has put.
static at_val slot_get(at_em *e, const at_slot *s) {
  at_val v = {LLVMBuildLoad2(e->b, s->type, s->re, ""), NULL};
  if (s->im) v.im = LLVMBuildLoad2(e->b, s->type, s->im, "");
  return v;
}

// a and b, where NULL is true.
static LLVMValueRef both(at_em *e, LLVMValueRef a, LLVMValueRef b) {
  return !a ? b : !b ? a : LLVMBuildAnd(e->b, a, b, "");
}
// Lane by lane where c is a vector.
static at_val choose(at_em *e, LLVMValueRef c, at_val a, at_val b) {
  return (at_val){LLVMBuildSelect(e->b, c, a.re, b.re, ""),
                  a.im ? LLVMBuildSelect(e->b, c, a.im, b.im, "") : NULL};
}

// Scalar i1: every lane of digit i lies in [lo, hi). NULL: always; *unknown:
// lanes have no order.
static LLVMValueRef all_within(at_em *e, at_ix i, int64_t lo, int64_t hi,
                               bool *unknown) {
  if (i.lo >= lo && i.hi < hi) return NULL;
  if (i.vec) *unknown = true;
  if (*unknown) return NULL;
  uint32_t lanes = e->lanes;
  e->lanes = 1;
  at_ix first = i, last = at_ix_addc(i, i.lane * ((int64_t)lanes - 1));
  first.lane = last.lane = 0;
  first.mask = last.mask = NULL;
  if (i.lane < 0) {
    at_ix t = first;
    first = last;
    last = t;
  }
  LLVMValueRef r = NULL;
  LLVMTypeRef t = at_em_int(e, 64);
  if (i.lo < lo)
    r = LLVMBuildICmp(e->b, LLVMIntSGE, at_ix_value(e, first),
                      at_em_ci(e, t, lo), "");
  if (i.hi >= hi)
    r = both(e, r,
             LLVMBuildICmp(e->b, LLVMIntSLT, at_ix_value(e, last),
                           at_em_ci(e, t, hi), ""));
  e->lanes = lanes;
  return r;
}

// Where each digit lies in [0, inside[i]) (and divides): value `in` at those
// digits; elsewhere `out` at out_pos. `hole` is extra, per lane (NULL: none).
static at_val guarded(at_em *e, at_value in, at_digits *d,
                      const int64_t *inside, LLVMValueRef hole, at_value out,
                      const at_pos *out_pos, const at_pos *p) {
  at_dtype t = at_value_type(in)->dtype;
  LLVMValueRef every = NULL, lane = NULL;
  bool unknown = hole != NULL;
  for (uint32_t i = 0; i < d->n; i++)
    if (d->ix[i].hi < 0 || d->ix[i].lo >= inside[i])
      return at_em_elem(e, out, out_pos);
  for (uint32_t i = 0; i < d->n; i++) {
    every = both(e, every, all_within(e, d->ix[i], 0, inside[i], &unknown));
    lane = both(e, lane, at_ix_within(e, d->ix[i], 0, inside[i]));
  }
  lane = both(e, lane, hole);
  at_digits *fast = digits(e), *safe = digits(e);
  fast->n = safe->n = d->n;
  for (uint32_t i = 0; i < d->n; i++) {
    fast->extent[i] = safe->extent[i] = inside[i];
    fast->ix[i] = d->ix[i];
    fast->ix[i].lo = AT_MAX(d->ix[i].lo, 0);
    fast->ix[i].hi = AT_MIN(d->ix[i].hi, inside[i] - 1);
    safe->ix[i] = at_ix_among(e, d->ix[i], 0, inside[i] - 1);
  }
  if (!lane) return at_em_elem(e, in, pos_of(e, p, fast));
  if (unknown && e->lanes > 1)
    return choose(e, lane, at_em_elem(e, in, pos_of(e, p, safe)),
                  at_em_elem(e, out, out_pos));
  at_slot s = slot_make(e, t);
  at_branch f;
  at_if_begin(e, &f, e->lanes > 1 ? every : lane);
  slot_put(e, &s, at_em_elem(e, in, pos_of(e, p, fast)));
  at_if_else(e, &f);
  uint32_t scope = at_em_scope_push(e);
  at_val other = at_em_elem(e, out, out_pos);
  if (e->lanes > 1)
    other = choose(e, lane, at_em_elem(e, in, pos_of(e, p, safe)), other);
  slot_put(e, &s, other);
  at_em_scope_pop(e, scope);
  at_if_end(e, &f);
  return slot_get(e, &s);
}

// Takes the padding off the digits; places outside, or between interior
// padding, are the padding value.
static at_val pad(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims low = at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW);
  at_dims interior = at_node_ints(n, AT_ATTR_INTERIOR_PADDING);
  const at_pos *none = at_pos_make(e, p->lanes, 0, NULL, NULL);
  if (at_type_elements(t) == 0) return at_em_elem(e, n->operands[1], none);
  at_groups g;
  groups_at(n, p, &g);
  at_digits *d = grouped(e, p, &g);
  int64_t inside[AT_CG_MAX_RANK];
  LLVMValueRef hole = NULL;
  for (uint32_t i = 0; i < d->n; i++) {
    uint32_t f = g.g[i].first;
    int64_t step = interior.ptr[f] + 1;
    at_ix x = at_ix_addc(d->ix[i], -low.ptr[f] * g.g[i].inner);
    inside[i] = t->dims[f] * g.g[i].inner;
    if (step > 1 && t->dims[f] > 1) {
      // Only every step-th place holds an element; below zero is outside
      // anyway.
      LLVMValueRef ok = at_ix_within(e, x, 0, (t->dims[f] - 1) * step + 1);
      x = at_ix_clamp(e, x, 0, (t->dims[f] - 1) * step);
      at_ix rem = at_ix_modc(e, x, step);
      LLVMValueRef on = at_ix_within(e, rem, 0, 1);
      hole = both(e, hole, both(e, ok, on));
      x = at_ix_divc(e, x, step);
    }
    d->ix[i] = x;
  }
  if (hole && e->lanes > 1 &&
      LLVMGetTypeKind(LLVMTypeOf(hole)) != LLVMVectorTypeKind)
    hole = at_em_splat(e, hole);
  return guarded(e, n->operands[0], d, inside, hole, n->operands[1], none, p);
}

// Lanes of several operands: every operand's elements, and of each lane the one
// that it meets. false: so many operands that lane after lane is better.
static bool join_by_lanes(at_em *e, const at_node *n, const at_pos *p,
                          const at_digits *d, uint32_t at, int64_t inner,
                          at_val *out) {
  int64_t dim = at_node_int(n, AT_ATTR_DIMENSION, 0), low = 0;
  at_ix x = d->ix[at];
  uint32_t met = 0;
  for (int pass = 0; pass < 2; pass++) {
    low = 0;
    bool first = true;
    for (uint32_t k = 0; k < n->num_operands; k++) {
      int64_t size = at_value_type(n->operands[k])->dims[dim] * inner, lo = low;
      low += size;
      if (size == 0 || x.hi < lo || x.lo >= low) continue;
      if (pass == 0) {
        met++;
        continue;
      }
      at_digits *o = digits(e);
      *o = *d;
      o->extent[at] = size;
      o->ix[at] = at_ix_among(e, at_ix_addc(x, -lo), 0, size - 1);
      at_val v = at_em_elem(e, n->operands[k], pos_of(e, p, o));
      LLVMValueRef mine = first ? NULL : at_ix_within(e, x, lo, INT64_MAX);
      *out = mine ? choose(e, mine, v, *out) : v;
      first = false;
    }
    if (met == 0 || met > JOIN_MOST) return false;
  }
  return true;
}

// ---- Joining
// Parts are tried one after another up to so many; more are found by halves, so
// that an element's time hardly grows with their number. Of many parts so many
// share a function: LLVM's time grows faster than what it is given.
enum { TRY_MOST = 4, FUNCTION_MOST = 64 };

typedef struct at_parts {
  const at_node *n;
  const at_pos *p;
  const at_digits *d;
  uint32_t at;  // the digit along which they are joined
  uint32_t count;
  uint32_t *operand;    // [count]
  int64_t *low, *high;  // [count]
  at_slot out;
  LLVMBasicBlockRef done, none;  // one has been found; none holds all lanes
} at_parts;

// The parts that x may meet.
static bool parts_of(at_em *e, at_parts *q, at_ix x, int64_t inner) {
  const at_node *n = q->n;
  int64_t dim = at_node_int(n, AT_ATTR_DIMENSION, 0), low = 0;
  q->operand = at_new(e->arena, uint32_t, n->num_operands);
  q->low = at_new(e->arena, int64_t, 2 * (size_t)n->num_operands);
  if (!q->operand || !q->low) {
    at_em_fail(e, AT_NO_MEMORY("a concatenation"));
    return false;
  }
  q->high = q->low + n->num_operands;
  for (uint32_t k = 0; k < n->num_operands; k++) {
    int64_t lo = low;
    low += at_value_type(n->operands[k])->dims[dim] * inner;
    if (low == lo || x.hi < lo || x.lo >= low) continue;
    q->operand[q->count] = k;
    q->low[q->count] = lo;
    q->high[q->count++] = low;
  }
  return true;
}

// Tries parts [from, to), from which control goes on to done or none.
static void try_parts(at_em *e, at_parts *q, uint32_t from, uint32_t to) {
  at_ix x = q->d->ix[q->at];
  for (uint32_t i = from; i < to; i++) {
    const int64_t lo = q->low[i], size = q->high[i] - lo;
    bool unknown = false;
    LLVMValueRef in = all_within(e, x, lo, lo + size, &unknown);
    at_branch f;
    if (in) at_if_begin(e, &f, in);
    uint32_t inner = at_em_scope_push(e);
    at_digits *o = digits(e);
    *o = *q->d;
    o->extent[q->at] = size;
    o->ix[q->at] = at_ix_addc(x, -lo);
    o->ix[q->at].lo = AT_MAX(o->ix[q->at].lo, 0);
    o->ix[q->at].hi = AT_MIN(o->ix[q->at].hi, size - 1);
    slot_put(e, &q->out,
             at_em_elem(e, q->n->operands[q->operand[i]], pos_of(e, q->p, o)));
    at_em_scope_pop(e, inner);
    LLVMBuildBr(e->b, q->done);
    if (!in) return;
    LLVMDeleteBasicBlock(f.end);
    LLVMPositionBuilderAtEnd(e->b, f.other);
    at_em_scope_pop(e, f.scope);
  }
  LLVMBuildBr(e->b, q->none);
}

// A range of parts whose code is still to be written, and where.
typedef struct at_parts_left {
  uint32_t from, to;
  LLVMBasicBlockRef block;
} at_parts_left;
typedef void (*parts_fn)(at_em *e, at_parts *q, uint32_t from, uint32_t to);

// Finds by halves the range of up to `most` parts in which x may begin; fn
// writes it.
static void halve_parts(at_em *e, at_parts *q, uint32_t from, uint32_t to,
                        uint32_t most, parts_fn fn) {
  at_parts_left left[33];  // one more for every halving
  uint32_t depth = 0;
  at_ix first = q->d->ix[q->at];
  first.lane = 0;
  first.mask = NULL;
  left[depth++] = (at_parts_left){from, to, LLVMGetInsertBlock(e->b)};
  while (depth) {
    const at_parts_left r = left[--depth];
    uint32_t scope = at_em_scope_push(e);
    LLVMPositionBuilderAtEnd(e->b, r.block);
    if (r.to - r.from <= most) {
      fn(e, q, r.from, r.to);
    } else {
      uint32_t mid = r.from + (r.to - r.from) / 2, lanes = e->lanes;
      e->lanes = 1;
      LLVMValueRef below =
          LLVMBuildICmp(e->b, LLVMIntSLT, at_ix_value(e, first),
                        at_em_ci(e, at_em_int(e, 64), q->low[mid]), "");
      e->lanes = lanes;
      left[depth++] = (at_parts_left){mid, r.to, at_em_block(e, "upper")};
      left[depth++] = (at_parts_left){r.from, mid, at_em_block(e, "lower")};
      LLVMBuildCondBr(e->b, below, left[depth - 1].block,
                      left[depth - 2].block);
    }
    at_em_scope_pop(e, scope);
  }
}

// The same range in a function of its own.
static void call_parts(at_em *e, at_parts *q, uint32_t from, uint32_t to) {
  at_parts inside = *q;
  at_b_task t;
  LLVMTypeRef i1 = at_em_int(e, 1);
  LLVMValueRef out[2], found = at_em_alloca(e, i1, 1);
  at_b_task_begin(e, &t);
  inside.done = at_em_block(e, "joined");
  inside.none = at_em_block(e, "several");
  LLVMBasicBlockRef end = at_em_block(e, "end");
  halve_parts(e, &inside, from, to, TRY_MOST, try_parts);
  LLVMBasicBlockRef blocks[2] = {inside.none, inside.done};
  for (unsigned k = 0; k < 2; k++) {
    LLVMPositionBuilderAtEnd(e->b, blocks[k]);
    LLVMBuildStore(e->b, LLVMConstInt(i1, k, false), found);
    LLVMBuildBr(e->b, end);
  }
  LLVMPositionBuilderAtEnd(e->b, end);
  at_b_task_end(e, &t, out, NULL);
  LLVMValueRef zero = at_em_i64(e, 0),
               args[4] = {out[1], zero, zero, at_b_null(at_b_ptr(e))};
  LLVMBuildCall2(e->b, LLVMGlobalGetValueType(out[0]), out[0], args, 4, "");
  LLVMBuildCondBr(e->b, LLVMBuildLoad2(e->b, i1, found, ""), q->done, q->none);
}

// The part that the element lies in is found by branches on its index, where
// the lanes lie in one part; lanes in several are joined one by one.
static at_val concat(at_em *e, const at_node *n, const at_pos *p) {
  int64_t dim = at_node_int(n, AT_ATTR_DIMENSION, 0);
  at_groups g;
  groups_at(n, p, &g);
  at_digits *d = grouped(e, p, &g);
  uint32_t at = 0;
  while (at + 1 < g.n && g.g[at].first != dim) at++;
  at_ix x = d->ix[at];
  const int64_t inner = g.g[at].inner;
  at_val v = {0};
  if (x.vec && e->lanes > 1)
    return join_by_lanes(e, n, p, d, at, inner, &v)
               ? v
               : at_em_by_lane(e, (at_value){(at_node *)n, 0}, p);
  at_parts q = {.n = n, .p = p, .d = d, .at = at};
  if (!parts_of(e, &q, x, inner)) return at_em_zero(e, n->types[0].dtype);
  if (q.count == 1 && x.lo >= q.low[0] && x.hi < q.high[0]) {
    d->extent[at] = q.high[0] - q.low[0];
    d->ix[at] = at_ix_addc(x, -q.low[0]);
    return at_em_elem(e, n->operands[q.operand[0]], pos_of(e, p, d));
  }
  q.out = slot_make(e, n->types[0].dtype);
  q.done = at_em_block(e, "joined");
  q.none = at_em_block(e, "several");
  if (q.count > FUNCTION_MOST)
    halve_parts(e, &q, 0, q.count, FUNCTION_MOST, call_parts);
  else
    halve_parts(e, &q, 0, q.count, TRY_MOST, try_parts);
  LLVMPositionBuilderAtEnd(e->b, q.none);
  uint32_t scope = at_em_scope_push(e);
  if (e->lanes == 1 || at_ix_uniform(&x))
    slot_put(e, &q.out, at_em_zero(e, n->types[0].dtype));
  else
    slot_put(e, &q.out,
             join_by_lanes(e, n, p, d, at, inner, &v)
                 ? v
                 : at_em_by_lane(e, (at_value){(at_node *)n, 0}, p));
  LLVMBuildBr(e->b, q.done);
  at_em_scope_pop(e, scope);
  LLVMPositionBuilderAtEnd(e->b, q.done);
  return slot_get(e, &q.out);
}

// ---- indices that are data
// Scalar operand v as an index clamped to [0, max]; the same for all lanes.
static at_ix scalar_index(at_em *e, at_value v, int64_t max) {
  uint32_t lanes = e->lanes;
  e->lanes = 1;
  at_ix r = at_ix_from(e, at_value_type(v)->dtype,
                       at_em_elem(e, v, scalar_pos(e)), 0, max);
  e->lanes = lanes;
  return r;
}

// Starts are clamped so that the slice fits. Lanes without digits (bodies of
// reductions) go one by one.
static at_val dynamic_slice(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *t = at_value_type(n->operands[0]);
  if (p->lanes) return at_em_by_lane(e, (at_value){(at_node *)n, 0}, p);
  at_groups g;
  at_groups_of(n, &g);
  at_digits *d = grouped(e, p, &g);
  for (uint32_t i = 0; i < d->n; i++) {
    uint32_t f = g.g[i].first;
    int64_t max = t->dims[f] - n->types[0].dims[f];
    d->extent[i] = t->dims[f] * g.g[i].inner;
    if (max == 0) continue;
    at_ix s = scalar_index(e, n->operands[1 + f], max);
    d->ix[i] = at_ix_add(e, d->ix[i], at_ix_mulc(e, s, g.g[i].inner));
  }
  return at_em_elem(e, n->operands[0], pos_of(e, p, d));
}

// The update inside the window, else the operand: starts are clamped, and taken
// off the digits.
static at_val dynamic_update_slice(at_em *e, const at_node *n,
                                   const at_pos *p) {
  const at_type *t = at_value_type(n->operands[0]);
  const at_type *u = at_value_type(n->operands[1]);
  if (p->lanes) return at_em_by_lane(e, (at_value){(at_node *)n, 0}, p);
  if (at_type_elements(u) == 0) return at_em_elem(e, n->operands[0], p);
  at_groups g;
  at_groups_of(n, &g);
  at_digits *d = grouped(e, p, &g);
  int64_t inside[AT_CG_MAX_RANK];
  for (uint32_t i = 0; i < d->n; i++) {
    uint32_t f = g.g[i].first;
    int64_t max = t->dims[f] - u->dims[f];
    inside[i] = u->dims[f] * g.g[i].inner;
    if (max == 0) continue;
    at_ix s = scalar_index(e, n->operands[2 + f], max);
    s = at_ix_mulc(e, at_ix_mulc(e, s, g.g[i].inner), -1);
    d->ix[i] = at_ix_add(e, d->ix[i], s);
  }
  return guarded(e, n->operands[1], d, inside, NULL, n->operands[0], p, p);
}

// Is d one of the dimensions?
static bool listed(at_dims l, int64_t d) {
  for (uint32_t i = 0; i < l.rank; i++)
    if (l.ptr[i] == d) return true;
  return false;
}

// The group that begins with result dimension d; g->n: d is inside of one.
static uint32_t group_at(const at_groups *g, int64_t d) {
  uint32_t i = 0;
  while (i < g->n && g->g[i].first != d) i++;
  return i;
}

// Lanes whose element lies right behind that of the lane before: they have the
// same indices (all digits of s but `vec`) and the next place in the window.
static uint64_t lanes_in_runs(at_em *e, const at_digits *s, int64_t vec,
                              const at_digits *window) {
  int64_t at[AT_EM_MAX_LANES], place[AT_EM_MAX_LANES] = {0}, stride = 1;
  uint64_t runs = 0;
  for (uint32_t i = 1; i < e->lanes; i++) runs |= 1ull << i;
  for (uint32_t d = 0; d < s->n && runs; d++) {
    if (d == vec) continue;
    if (!at_ix_offsets(e, &s->ix[d], at)) return 0;
    for (uint32_t i = 1; i < e->lanes; i++)
      if (at[i] != at[i - 1]) runs &= ~(1ull << i);
  }
  for (uint32_t k = window->n; k-- > 0 && runs;) {
    if (!at_ix_offsets(e, &window->ix[k], at)) return 0;
    for (uint32_t i = 0; i < e->lanes; i++) place[i] += at[i] * stride;
    stride *= window->extent[k];
  }
  for (uint32_t i = 1; i < e->lanes; i++)
    if (place[i] - place[i - 1] != 1) runs &= ~(1ull << i);
  return runs;
}

// The elements at p of v. If v is stored and its lanes lie in runs of two and
// more, by a load for each.
static at_val in_runs(at_em *e, at_value v, const at_pos *p, uint64_t runs) {
  at_dtype t = at_value_type(v)->dtype;
  const at_home *h = at_em_home(e, v);
  bool stored = h && !h->alias && h->ptr && !h->stored && !at_is_complex(t);
  if (!stored || p->lanes ||
      2 * (uint32_t)__builtin_popcountll(runs) < e->lanes || e->lanes == 1)
    return at_em_elem(e, v, p);
  at_ix lin = at_ix_addc(at_pos_linear(e, p), -h->skip);
  if (lin.mask || !lin.vec || LLVMIsConstant(lin.vec))
    return at_em_elem(e, v, p);
  LLVMValueRef all = at_em_load_runs(e, h->ptr, at_em_storage_type(e, t), lin,
                                     runs, h->invariant);
  return (at_val){at_em_decode(e, t, all), NULL};
}

// Digits of a gather's indices, of type it: the result's dimensions outside
// offset_dims are theirs, in order.
static void index_digits(at_digits *s, const at_digits *d, const at_groups *g,
                         const at_type *it, at_dims offset, int64_t vec) {
  uint32_t b = 0;
  s->n = it->rank;
  for (uint32_t i = 0; i < it->rank; i++) {
    s->extent[i] = it->dims[i];
    if (i == vec) continue;
    while (listed(offset, b)) b++;
    s->ix[i] = d->ix[group_at(g, b++)];
  }
}

// The operand's digits: of the window where the dimension has one, plus the
// start index clamped to fit. Batching dimensions take the indices' own digits.
static at_val gather(at_em *e, const at_node *n, const at_pos *p) {
  const at_type *t = at_value_type(n->operands[0]);
  const at_type *it = at_value_type(n->operands[1]);
  at_dims offset = at_node_ints(n, AT_ATTR_OFFSET_DIMS);
  at_dims collapsed = at_node_ints(n, AT_ATTR_COLLAPSED_SLICE_DIMS);
  at_dims batch = at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS);
  at_dims sbatch = at_node_ints(n, AT_ATTR_START_INDICES_BATCHING_DIMS);
  at_dims map = at_node_ints(n, AT_ATTR_START_INDEX_MAP);
  at_dims size = at_node_ints(n, AT_ATTR_SLICE_SIZES);
  int64_t vec = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, 0);
  at_groups g;
  at_groups_of(n, &g);  // the indices' dimensions are apart
  at_digits *d = grouped(e, p, &g), *s = digits(e), *o = digits(e);
  at_digits window = {.n = t->rank};  // o without what is data
  index_digits(s, d, &g, it, offset, vec);
  uint32_t w = 0;
  o->n = t->rank;
  for (uint32_t k = 0; k < t->rank; k++) {
    o->extent[k] = t->dims[k];
    o->ix[k] = at_ix_const(0);
    int64_t inner = 1;
    if (listed(batch, k)) {
      for (uint32_t j = 0; j < batch.rank; j++)
        if (batch.ptr[j] == k) o->ix[k] = s->ix[sbatch.ptr[j]];
    } else if (!listed(collapsed, k)) {
      uint32_t i = group_at(&g, offset.ptr[w++]);
      if (i == g.n) {  // whole, and part of the dimension before
        o->extent[k] = 1;
        window.ix[k] = o->ix[k];
        continue;
      }
      inner = g.g[i].inner;
      o->extent[k] = t->dims[k] * inner;
      o->ix[k] = d->ix[i];
    }
    window.ix[k] = o->ix[k];
    for (uint32_t j = 0; j < map.rank; j++) {
      if (map.ptr[j] != k || t->dims[k] == size.ptr[k]) continue;
      if (vec < it->rank) s->ix[vec] = at_ix_const(j);
      const at_pos *sp = pos_of(e, p, s);
      int64_t max = t->dims[k] - size.ptr[k];
      at_ix start;
      if (at_pos_uniform(sp)) {
        uint32_t lanes = e->lanes;
        e->lanes = 1;
        start =
            at_ix_from(e, it->dtype, at_em_elem(e, n->operands[1], sp), 0, max);
        e->lanes = lanes;
      } else {
        start =
            at_ix_from(e, it->dtype, at_em_elem(e, n->operands[1], sp), 0, max);
      }
      o->ix[k] = at_ix_add(e, o->ix[k], at_ix_mulc(e, start, inner));
    }
  }
  memcpy(window.extent, o->extent, sizeof window.extent);
  return in_runs(e, n->operands[0], pos_of(e, p, o),
                 lanes_in_runs(e, s, vec, &window));
}

// ---- bits
static LLVMValueRef to_bits(at_em *e, at_dtype t, LLVMValueRef reg) {
  if (t == AT_PRED) return reg;
  LLVMValueRef v = at_em_bits(e, at_em_encode(e, t, reg));
  uint32_t bits = at_dtype_of(t)->bits;
  return bits < 8
             ? LLVMBuildTrunc(e->b, v, at_em_widen(e, at_em_int(e, bits)), "")
             : v;
}
// The inverse of to_bits.
static LLVMValueRef from_bits(at_em *e, at_dtype t, LLVMValueRef v) {
  if (t == AT_PRED) return v;
  LLVMTypeRef i8 = at_em_widen(e, at_em_int(e, 8));
  if (at_dtype_of(t)->bits < 8)
    v = at_is_signed_int(t) ? LLVMBuildSExt(e->b, v, i8, "")
                            : LLVMBuildZExt(e->b, v, i8, "");
  v = LLVMBuildBitCast(e->b, v, at_em_widen(e, at_em_storage_type(e, t)), "");
  return at_em_decode(e, t, v);
}

// Complex numbers turn into complex numbers only: one part of the wide one
// holds both parts of a narrow one, the real part in the low bits.
static at_val bitcast_to_narrow(at_em *e, const at_node *n, const at_pos *p) {
  at_dtype wide = at_real_of(at_value_type(n->operands[0])->dtype),
           narrow = at_real_of(n->types[0].dtype);
  uint32_t bits = at_dtype_of(narrow)->bits;
  at_digits *d = digits(e);
  d->n = 2;
  d->extent[0] = at_type_elements(&n->types[0]) / 2;
  d->extent[1] = 2;
  at_pos_regroup(e, p, 2, d->extent, d->ix);
  at_ix part = d->ix[1];
  d->n = 1;
  at_val v = at_em_elem(e, n->operands[0], pos_of(e, p, d));
  LLVMValueRef re = to_bits(e, wide, v.re), im = to_bits(e, wide, v.im);
  LLVMValueRef first = at_ix_within(e, part, 0, 1);
  LLVMValueRef both = first ? LLVMBuildSelect(e->b, first, re, im, "") : re;
  LLVMTypeRef t = at_em_widen(e, at_em_int(e, bits));
  LLVMValueRef k = at_em_ci(e, LLVMTypeOf(both), bits);
  LLVMValueRef low = LLVMBuildTrunc(e->b, both, t, "");
  LLVMValueRef high =
      LLVMBuildTrunc(e->b, LLVMBuildLShr(e->b, both, k, ""), t, "");
  return (at_val){from_bits(e, narrow, low), from_bits(e, narrow, high)};
}

// Two narrow elements for each wide one.
static at_val bitcast_to_wide(at_em *e, const at_node *n, const at_pos *p) {
  at_dtype narrow = at_real_of(at_value_type(n->operands[0])->dtype),
           wide = at_real_of(n->types[0].dtype);
  LLVMTypeRef t = at_em_widen(e, at_em_int(e, at_dtype_of(wide)->bits));
  LLVMValueRef k = at_em_ci(e, t, at_dtype_of(narrow)->bits), part[2];
  at_digits *d = digits(e);
  d->n = 2;
  d->extent[0] = at_type_elements(&n->types[0]);
  d->extent[1] = 2;
  for (int i = 0; i < 2; i++) {
    d->ix[0] = at_pos_linear(e, p);
    d->ix[1] = at_ix_const(i);
    at_val v = at_em_elem(e, n->operands[0], pos_of(e, p, d));
    LLVMValueRef low = LLVMBuildZExt(e->b, to_bits(e, narrow, v.re), t, "");
    LLVMValueRef high = LLVMBuildZExt(e->b, to_bits(e, narrow, v.im), t, "");
    part[i] = LLVMBuildOr(e->b, low, LLVMBuildShl(e->b, high, k, ""), "");
  }
  return (at_val){from_bits(e, wide, part[0]), from_bits(e, wide, part[1])};
}

// By the widths: the same bits; a part of a wider element; or several narrower
// ones put together, the first in the low bits.
static at_val bitcast(at_em *e, const at_node *n, const at_pos *p) {
  at_dtype a = at_value_type(n->operands[0])->dtype, b = n->types[0].dtype;
  uint32_t x = at_dtype_of(a)->bits, y = at_dtype_of(b)->bits;
  if (a == b) return at_em_elem(e, n->operands[0], p);
  if (at_is_complex(a))
    return x > y ? bitcast_to_narrow(e, n, p) : bitcast_to_wide(e, n, p);
  if (x == y)
    return (at_val){
        from_bits(e, b, to_bits(e, a, at_em_elem(e, n->operands[0], p).re)),
        NULL};
  at_digits *d = digits(e);
  int64_t ratio = x > y ? x / y : y / x, all = at_type_elements(&n->types[0]);
  if (x > y) {  // a minor dimension of parts
    d->n = 2;
    d->extent[0] = all / ratio;
    d->extent[1] = ratio;
    at_pos_regroup(e, p, 2, d->extent, d->ix);
    at_ix part = d->ix[1];
    d->n = 1;
    LLVMValueRef v =
        to_bits(e, a, at_em_elem(e, n->operands[0], pos_of(e, p, d)).re);
    at_dtype wide = x == 64   ? AT_U64
                    : x == 32 ? AT_U32
                    : x == 16 ? AT_U16
                              : AT_U8;
    LLVMValueRef k = at_ix_to(e, wide, at_ix_mulc(e, part, y)).re;
    if (x < 8) v = LLVMBuildZExt(e->b, v, LLVMTypeOf(k), "");
    v = LLVMBuildLShr(e->b, v, k, "");
    v = LLVMBuildTrunc(e->b, v, at_em_widen(e, at_em_int(e, y)), "");
    return (at_val){from_bits(e, b, v), NULL};
  }
  LLVMTypeRef wide = at_em_widen(e, at_em_int(e, y));
  LLVMValueRef sum = LLVMConstNull(wide);
  d->n = 2;
  d->extent[0] = all;
  d->extent[1] = ratio;
  for (int64_t k = 0; k < ratio; k++) {
    d->ix[0] = at_pos_linear(e, p);
    d->ix[1] = at_ix_const(k);
    LLVMValueRef v =
        to_bits(e, a, at_em_elem(e, n->operands[0], pos_of(e, p, d)).re);
    v = LLVMBuildZExt(e->b, v, wide, "");
    v = LLVMBuildShl(e->b, v, at_em_ci(e, wide, k * x), "");
    sum = LLVMBuildOr(e->b, sum, v, "");
  }
  return (at_val){from_bits(e, b, sum), NULL};
}

// What is no other op is a bitcast.
at_val at_em_elem_move(at_em *e, const at_node *n, const at_pos *p) {
  switch (n->op) {
    case AT_OP_BROADCAST_IN_DIM:
      return broadcast(e, n, p);
    case AT_OP_TRANSPOSE:
      return transpose(e, n, p);
    case AT_OP_SLICE:
      return slice(e, n, p);
    case AT_OP_REVERSE:
      return reverse(e, n, p);
    case AT_OP_IOTA:
      return iota(e, n, p);
    case AT_OP_PAD:
      return pad(e, n, p);
    case AT_OP_CONCATENATE:
      return concat(e, n, p);
    case AT_OP_DYNAMIC_SLICE:
      return dynamic_slice(e, n, p);
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return dynamic_update_slice(e, n, p);
    case AT_OP_GATHER:
      return gather(e, n, p);
    default:
      return bitcast(e, n, p);
  }
}
