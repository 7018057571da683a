// A digit is followed from the results towards the operands, as long as it is
// some neighbouring dimensions of a value whose place is an affine function of
// it. What is joined or padded along them cuts it.
#include "codegen/pieces.h"

// So many places are looked at for a digit; what is behind is not split.
enum { REACHED_MOST = 512 };

// Dimensions first to last of v, as one, are at element mul * i + add for i in
// [lo, hi) of the digit.
typedef struct at_reach {
  at_value v;
  uint32_t first, last;
  int64_t mul, add, lo, hi;
  uint32_t next;  // the place of the same node that was found before, + 1
} at_reach;

typedef struct at_walk {
  at_arena *arena;
  const at_node *kernel;
  int64_t extent;  // of the digit
  AT_VEC(at_reach) reached;
  at_map heads;  // node -> at_reach.next of the latest
  at_status st;
  uint32_t cuts;
  int64_t at[AT_PIECES_CUTS];  // ascending
  bool lost;                   // too many cuts or places
} at_walk;

// The dimensions of t that have `extent` elements together, and `inner` behind
// them. false: no dimensions do.
static bool dims_at(const at_type *t, int64_t inner, int64_t extent,
                    uint32_t *first, uint32_t *last) {
  uint32_t d = t->rank;
  int64_t s = 1, size = 1;
  while (d > 0 && s < inner) s *= t->dims[--d];
  while (d > 0 && t->dims[d - 1] == 1) d--;
  if (s != inner || d == 0) return false;
  *last = d - 1;
  while (d > 0 && size < extent) size *= t->dims[--d];
  *first = d;
  return size == extent;
}

// Elements of dimensions [from, to) together.
static int64_t elements(const at_type *t, uint32_t from, uint32_t to) {
  int64_t n = 1;
  for (uint32_t d = from; d < to; d++) n *= t->dims[d];
  return n;
}

static void cut(at_walk *w, int64_t at) {
  if (at <= 0 || at >= w->extent) return;
  uint32_t i = 0;
  while (i < w->cuts && w->at[i] < at) i++;
  if (i < w->cuts && w->at[i] == at) return;
  if (w->cuts == AT_PIECES_CUTS) {
    w->lost = true;
    return;
  }
  for (uint32_t k = w->cuts++; k > i; k--) w->at[k] = w->at[k - 1];
  w->at[i] = at;
}

static bool equal(const at_reach *a, const at_reach *b) {
  return a->v.node == b->v.node && a->v.index == b->v.index &&
         a->first == b->first && a->last == b->last && a->mul == b->mul &&
         a->add == b->add && a->lo == b->lo && a->hi == b->hi;
}

// Goes on at r, if it is not known already.
static void reach(at_walk *w, at_reach r) {
  void **head = at_map_put_ptr(&w->heads, r.v.node);
  if (!head) {
    if (at_ok(w->st)) w->st = AT_NO_MEMORY("pieces of a loop");
    return;
  }
  r.next = (uint32_t)(uintptr_t)*head;
  for (uint32_t k = r.next; k; k = w->reached.ptr[k - 1].next)
    if (equal(&w->reached.ptr[k - 1], &r)) return;
  if (w->reached.len == REACHED_MOST) {
    w->lost = true;
    return;
  }
  if (!at_vec_push(w->arena, &w->reached, r)) {
    if (at_ok(w->st)) w->st = AT_NO_MEMORY("pieces of a loop");
    return;
  }
  *head = (void *)(uintptr_t)w->reached.len;
}

// a / b, rounded down; b > 0.
static int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

// r's dimensions in `part`, which has elements [low, low + size) of them: the
// digit is cut where it begins and ends.
static void reach_part(at_walk *w, at_reach r, at_value part, int64_t low,
                       int64_t size) {
  int64_t lo, hi;
  if (r.mul > 0) {
    lo = -floor_div(r.add - low, r.mul);
    hi = -floor_div(r.add - (low + size), r.mul);
  } else {
    lo = floor_div(r.add - (low + size), -r.mul) + 1;
    hi = floor_div(r.add - low, -r.mul) + 1;
  }
  r.lo = AT_MAX(r.lo, lo);
  r.hi = AT_MIN(r.hi, hi);
  if (r.lo >= r.hi) return;
  cut(w, r.lo);
  cut(w, r.hi);
  r.v = part;
  r.add -= low;
  reach(w, r);
}

static void concatenate(at_walk *w, const at_node *n, at_reach r) {
  int64_t dim = at_node_int(n, AT_ATTR_DIMENSION, 0), low = 0;
  bool along = dim >= r.first && dim <= r.last;
  if (along && dim != r.first) return;
  int64_t inner = elements(&n->types[0], r.first + 1, r.last + 1);
  for (uint32_t k = 0; k < n->num_operands; k++) {
    int64_t size = at_value_type(n->operands[k])->dims[dim] * inner;
    if (along) {
      reach_part(w, r, n->operands[k], low, size);
      low += size;
    } else {
      r.v = n->operands[k];
      reach(w, r);
    }
  }
}

static void pad(at_walk *w, const at_node *n, at_reach r) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims low = at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW);
  for (uint32_t d = r.first; d <= r.last; d++) {
    bool same = t->dims[d] == n->types[0].dims[d] && low.ptr[d] == 0;
    bool apart =
        at_node_ints(n, AT_ATTR_INTERIOR_PADDING).ptr[d] != 0 && t->dims[d] > 1;
    if (apart || (!same && d != r.first)) return;
  }
  int64_t inner = elements(t, r.first + 1, r.last + 1);
  reach_part(w, r, n->operands[0], low.ptr[r.first] * inner,
             t->dims[r.first] * inner);
}

static void slice(at_walk *w, const at_node *n, at_reach r) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims start = at_node_ints(n, AT_ATTR_START_INDICES);
  int64_t stride = at_node_ints(n, AT_ATTR_STRIDES).ptr[r.first];
  for (uint32_t d = r.first + 1; d <= r.last; d++)
    if (t->dims[d] != n->types[0].dims[d]) return;
  int64_t inner = elements(t, r.first + 1, r.last + 1);
  if (stride != 1 && inner != 1) return;
  r.mul *= stride;
  r.add = r.add * stride + start.ptr[r.first] * inner;
  r.v = n->operands[0];
  reach(w, r);
}

// Whether the window has all of the operand's dimensions that r runs along.
static bool whole(const at_type *operand, const at_type *window,
                  const at_reach *r) {
  for (uint32_t d = r->first; d <= r->last; d++)
    if (operand->dims[d] != window->dims[d]) return false;
  return true;
}

// All of the dimensions of more than one element are reversed, or none is.
static void reverse(at_walk *w, const at_node *n, at_reach r) {
  const at_type *t = &n->types[0];
  at_dims turned = at_node_ints(n, AT_ATTR_DIMENSIONS);
  uint32_t yes = 0, no = 0;
  for (uint32_t d = r.first; d <= r.last; d++) {
    if (t->dims[d] == 1) continue;
    if (at_dims_has(turned, d))
      yes++;
    else
      no++;
  }
  if (yes && no) return;
  if (yes) {
    r.mul = -r.mul;
    r.add = elements(t, r.first, r.last + 1) - 1 - r.add;
  }
  r.v = n->operands[0];
  reach(w, r);
}

static void transpose(at_walk *w, const at_node *n, at_reach r) {
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  for (uint32_t d = r.first; d < r.last; d++)
    if (perm.ptr[d + 1] != perm.ptr[d] + 1) return;
  uint32_t size = r.last - r.first;
  r.first = (uint32_t)perm.ptr[r.first];
  r.last = r.first + size;
  r.v = n->operands[0];
  reach(w, r);
}

// The dimensions must be the operand's, one after another.
static void broadcast(at_walk *w, const at_node *n, at_reach r) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims map = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  uint32_t count = 0, first = 0;
  for (uint32_t k = 0; k < map.rank; k++) {
    if (map.ptr[k] < r.first || map.ptr[k] > r.last) continue;
    if (count++ == 0) first = k;
    if (t->dims[k] != n->types[0].dims[map.ptr[k]]) return;
  }
  if (count != r.last - r.first + 1) return;
  r.first = first;
  r.last = first + count - 1;
  r.v = n->operands[0];
  reach(w, r);
}

// Operands with as many elements, at the same ones.
static void linear(at_walk *w, const at_node *n, at_reach r) {
  const at_type *t = at_value_type(r.v);
  int64_t inner = elements(t, r.last + 1, t->rank),
          extent = elements(t, r.first, r.last + 1);
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_type *o = at_value_type(n->operands[i]);
    at_reach to = r;
    to.v = n->operands[i];
    if (at_type_elements(o) == at_type_elements(t) &&
        dims_at(o, inner, extent, &to.first, &to.last))
      reach(w, to);
  }
}

static void step(at_walk *w, at_reach r) {
  const at_node *n = r.v.node;
  switch (n->op) {
    case AT_OP_PARAMETER:
    case AT_OP_CONSTANT:
      return;
    case AT_OP_CONCATENATE:
      concatenate(w, n, r);
      return;
    case AT_OP_PAD:
      pad(w, n, r);
      return;
    case AT_OP_SLICE:
      slice(w, n, r);
      return;
    case AT_OP_REVERSE:
      reverse(w, n, r);
      return;
    case AT_OP_TRANSPOSE:
      transpose(w, n, r);
      return;
    case AT_OP_BROADCAST_IN_DIM:
      broadcast(w, n, r);
      return;
    case AT_OP_DYNAMIC_SLICE:
      if (!whole(at_value_type(n->operands[0]), &n->types[0], &r)) return;
      r.v = n->operands[0];
      reach(w, r);
      return;
    default:
      if (at_is_linear(n) && n->num_results == 1) linear(w, n, r);
  }
}

// The cuts of digit d of j.
static at_status cuts_of(at_arena *a, const at_job *j, uint32_t d,
                         at_pieces *out) {
  at_walk w = {.arena = a,
               .kernel = j->node,
               .extent = j->extent[d],
               .heads = at_map_in(a)};
  int64_t inner = 1;
  for (uint32_t k = d + 1; k < j->n; k++) inner *= j->extent[k];
  for (uint32_t i = 0; i < j->num_results; i++) {
    at_reach r = {.v = at_job_root(j, i), .mul = 1, .hi = w.extent};
    if (dims_at(at_value_type(r.v), inner, w.extent, &r.first, &r.last))
      reach(&w, r);
  }
  for (uint32_t k = 0; k < w.reached.len && !w.lost; k++)
    step(&w, w.reached.ptr[k]);
  AT_TRY(w.st);
  if (w.lost || !w.cuts) return AT_OK;
  int64_t *at;
  AT_TRY_ALLOC(at, at_new(a, int64_t, w.cuts));
  for (uint32_t k = 0; k < w.cuts; k++) at[k] = w.at[k];
  *out = (at_pieces){w.cuts, at};
  return AT_OK;
}

bool at_pieces_may(const at_node *n) {
  if (n->op == AT_OP_PAD || n->op == AT_OP_CONCATENATE) return true;
  if (n->op != AT_OP_FUSION) return false;
  AT_FOR_NODES(b, n->regions[0])
  if (b->op == AT_OP_PAD || b->op == AT_OP_CONCATENATE) return true;
  return false;
}

at_status at_pieces_plan(at_arena *a, at_job *j, double ops) {
  enum { MOST_OPS = 400 };
  if (!at_pieces_may(j->node)) return AT_OK;
  at_pieces *all;
  AT_TRY_ALLOC(all, at_new(a, at_pieces, j->n));
  uint32_t count = 1;
  for (uint32_t d = j->n; d-- > 0;) {
    at_pieces p = {0};
    AT_TRY(cuts_of(a, j, d, &p));
    if (!p.cuts || count * (p.cuts + 1) > AT_PIECES_MOST ||
        ops * count * (p.cuts + 1) > MOST_OPS)
      continue;
    all[d] = p;
    count *= p.cuts + 1;
  }
  if (count > 1) j->pieces = all;
  return AT_OK;
}
