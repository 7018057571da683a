// Loop nests over the elements of values: how a space is divided, which level
// has lanes, and which turns threads share.
#include "base/cpu.h"
#include "mosaic/emit.h"

// A space is a number of elements, `total`, and places where it is cut. Views
// of different shapes are read by one loop nest, so each says where a loop may
// not run on: a suffix product of its dimensions, that is, a number of elements
// after which its address no longer grows by one stride. Cuts divide each other
// and are kept in rising order; n cuts make n + 1 loops. A suffix that divides
// no other, or for which there is no room, is left out: indices along it are
// then found by division.
// ---- spaces
void at_me_space_add(at_me_space *s, int64_t suffix) {
  if (suffix <= 1 || suffix >= s->total || s->total % suffix) return;
  uint32_t i = 0;
  for (; i < s->n && s->cut[i] <= suffix; i++) {
    if (s->cut[i] == suffix) return;
    if (suffix % s->cut[i]) return;
  }
  if (i < s->n && s->cut[i] % suffix) return;
  if (s->n == AT_LEN(s->cut)) return;
  memmove(&s->cut[i + 1], &s->cut[i], (s->n - i) * sizeof s->cut[0]);
  s->cut[i] = suffix;
  s->n++;
}

// Cuts wherever a dimension begins.
void at_me_space_dims(at_me_space *s, uint32_t rank, const int64_t *dim) {
  int64_t suffix = 1;
  for (uint32_t d = rank; d-- > 0;) {
    suffix *= dim[d];
    at_me_space_add(s, suffix);
  }
}

// Cuts only where the next dimension does not run on from the last: a dense
// memref is one loop whatever its rank.
void at_me_space_ref(at_me_space *s, const at_me_ref *r) {
  int64_t suffix = 1;
  int64_t step = -1;  // what the next dimension's stride must be to run on
  for (uint32_t d = r->rank; d-- > 0;) {
    if (r->size[d].v) return;
    if (r->size[d].c == 1) continue;
    bool on = step < 0 || (!r->stride[d].v && r->stride[d].c == step);
    bool odd = (r->packing->parts > 1 || r->packing->split > 1);
    if (!on || odd) at_me_space_add(s, suffix);
    suffix *= r->size[d].c;
    step = r->stride[d].v ? INT64_MAX : r->stride[d].c * r->size[d].c;
  }
}

// The widest element that stands in a register decides how many lanes a vector
// has. Narrow floats are computed as f32.
void at_me_space_widen(at_me_space *s, at_dtype t) {
  uint32_t b = at_is_float(t) ? (t == AT_F64 ? 8 : 4) : at_dtype_bytes(t);
  s->widest = AT_MAX(s->widest, b);
}

// Adds what n divides the space by, and what its registers take. False: nothing
// below n is read in the same loops. s NULL: of loops over another count of
// elements, so that only registers count.
static bool add_to_space(at_me_space *s, uint32_t *widest, const at_me_node *n,
                         bool *same) {
  at_me_space none = {0};
  if (!s) s = &none;
  s->widest = *widest;
  at_me_space_widen(s, n->dtype);
  *same = true;
  bool below = true;
  switch (n->kind) {
    case AT_ME_SPLAT:
    case AT_ME_BUFFER:
    case AT_ME_DOT:
      below = false;
      break;
    case AT_ME_LOAD:
      at_me_space_widen(s, n->ref->storage);
      at_me_space_ref(s, n->ref);
      below = false;
      break;
    case AT_ME_APPLY:
    case AT_ME_RESHAPE:
      break;
    case AT_ME_IOTA:
      s->widest = AT_MAX(s->widest, 4);
      at_me_space_dims(s, n->rank, n->dim);
      below = false;
      break;
    default:
      at_me_space_dims(s, n->rank, n->dim);
      *same = false;
      break;
  }
  *widest = s->widest;
  return below;
}
// Walks the expression once. Below a node that changes the number of elements
// only the width of registers counts, as those parts are read at other
// positions.
void at_me_space_tree(at_me *m, at_me_space *s, at_me_node *tree) {
  enum { OTHER, SAME };  // elements of the node, as the space has them
  at_walk_clear(at_me_walk(m));
  at_walk_add(at_me_walk(m), tree, SAME);
  for (at_walk_step w; at_walk_next(at_me_walk(m), &w);) {
    const at_me_node *n = w.item;
    bool same;
    if (!add_to_space(w.tag == SAME ? s : NULL, &s->widest, n, &same)) continue;
    for (uint32_t i = 0; i < n->num_in; i++) {
      bool fits = same || at_me_elements(n->in[i]) == s->total;
      at_walk_add(at_me_walk(m), n->in[i],
                  w.tag == SAME && fits ? SAME : OTHER);
    }
  }
}

// `size`: turns of the innermost loop; fewer than the lanes of a register take
// a smaller power of two.
uint32_t at_me_lanes(at_me *m, const at_me_space *s, int64_t size) {
  if (s->scalar) return 1;
  uint32_t bytes = m->e->cpu & AT_CPU_AVX512 ? 64 : 32;
  uint32_t w = bytes / AT_MAX(s->widest, 1);
  w = AT_MIN(w, AT_EM_MAX_LANES);
  while (w > 1 && w > size) w /= 2;
  return w;
}

typedef struct nest {
  at_me *m;
  at_me_body_fn body;
  void *arg;
  uint32_t n, lanes;
  uint32_t shared;  // the level whose turns threads share; n: none
  int64_t extent[3 * AT_ME_RANK + 1];
  at_ix ix[3 * AT_ME_RANK + 1];
} nest;

// last: the largest first lane.
static void turns(nest *w, LLVMValueRef lo, LLVMValueRef hi, int64_t last,
                  uint32_t lanes) {
  at_em *e = w->m->e;
  at_loop l;
  int64_t first = 0;
  (void)at_b_const_int(lo, &first);
  e->lanes = lanes;
  at_loop_begin(e, &l, lo, hi, lanes, first, last);
  w->ix[w->n - 1] = at_ix_lanes(e, l.i);
  w->body(w->m, at_pos_make(e, false, w->n, w->extent, w->ix), w->arg);
  at_loop_end(e, &l);
  e->lanes = 1;
}

// Elements [lo, hi) of the innermost level; hi - lo is a multiple of lanes.
static void innermost(nest *w, int64_t lo, int64_t hi, uint32_t lanes) {
  if (hi > lo)
    turns(w, at_em_i64(w->m->e, lo), at_em_i64(w->m->e, hi), hi - lanes, lanes);
}

// What has one element in a row: lanes go over the rows of the turn.
static void one_of_each(nest *w, uint32_t lanes) {
  at_em *e = w->m->e;
  at_loop l;
  int64_t step = w->m->rows->step;
  if (lanes < 8 || step % lanes) {
    at_me_rows_begin(w->m, &l, w->extent[0], true, &w->ix[0]);
    w->body(w->m, at_pos_make(e, false, w->n, w->extent, w->ix), w->arg);
    at_loop_end(e, &l);
    return;
  }
  e->lanes = lanes;
  at_loop_range(e, &l, 0, step, lanes);
  if (!l.single && l.i.base) l.i.hi = step - lanes;
  w->ix[0] = at_ix_lanes(e, at_ix_add(e, w->m->rows->first, l.i));
  w->body(w->m, at_pos_make(e, false, w->n, w->extent, w->ix), w->arg);
  at_loop_end(e, &l);
  e->lanes = 1;
}

static void level(nest *w, uint32_t d);

// So many vectors are a turn that there are not very many turns.
static int64_t turn_lanes(const nest *w) {
  int64_t vectors = w->extent[w->n - 1] / w->lanes,
          per = AT_MAX(vectors / 64, 1);
  while (vectors % per) per--;
  return per * w->lanes;
}

// The level whose turns are tasks: the same loop, between the bounds that a
// task is given. Elements behind the last whole vector are nobody's task and
// follow.
static void shared_level(nest *w, uint32_t d) {
  at_me_share s;
  at_loop l;
  int64_t size = w->extent[d];
  w->shared = w->n;
  if (d + 1 < w->n) {
    at_me_loop_begin(w->m, &s, &l, size, 1, true);
    w->ix[d] = l.i;
    level(w, d + 1);
    at_me_loop_end(w->m, &s, &l);
    return;
  }
  int64_t turn = turn_lanes(w), main = size / turn * turn;
  LLVMValueRef lo, hi;
  at_me_share_begin(w->m, &s, main, turn, &lo, &hi);
  turns(w, lo, hi, main - w->lanes, w->lanes);
  at_me_share_end(w->m);
  if (main < size) innermost(w, main, size, 1);
}

// Level d and those inside it. Recurses as deep as the space has loops.
static void level(nest *w, uint32_t d) {
  if (d == w->shared) {
    shared_level(w, d);
    return;
  }
  if (d + 1 == w->n && d == 0 && w->m->rows->count) {
    one_of_each(w, w->lanes);
    return;
  }
  if (d + 1 == w->n) {
    int64_t size = w->extent[d], main = size / w->lanes * w->lanes;
    innermost(w, 0, main, w->lanes);
    if (main < size) innermost(w, main, size, 1);
    return;
  }
  at_loop l;
  at_me_rows_begin(w->m, &l, w->extent[d], d == 0, &w->ix[d]);
  level(w, d + 1);
  at_loop_end(w->m->e, &l);
}

// The outermost level with enough turns that are enough work.
static uint32_t shared_level_of(const nest *w, double work) {
  for (uint32_t d = 0; d < w->n && at_me_shares(w->m, work); d++) {
    int64_t turns = w->extent[d] / (d + 1 == w->n ? turn_lanes(w) : 1);
    if (turns >= 8) return d;
    work /= (double)w->extent[d];
  }
  return w->n;
}

// Extents are the ratios of neighbouring cuts, outermost first. Inside a loop
// over rows a cut at the row is added, so that the outermost level is the rows.
void at_me_loops(at_me *m, const at_me_space *all, at_me_body_fn body,
                 void *arg) {
  at_me_space own = *all, *s = &own;
  if (s->total == 0) return;
  if (m->rows->count) at_me_space_add(s, s->total / m->rows->count);
  nest *w = at_new(m->a, nest, 1);
  if (!w) {
    at_em_fail(m->e, AT_NO_MEMORY("loops of a kernel"));
    return;
  }
  *w = (nest){.m = m, .body = body, .arg = arg, .n = s->n + 1};
  for (uint32_t i = 0; i < w->n; i++) {
    int64_t high = i == s->n ? s->total : s->cut[i];
    int64_t low = i == 0 ? 1 : s->cut[i - 1];
    w->extent[w->n - 1 - i] = high / low;
  }
  w->lanes = at_me_lanes(m, s, w->extent[w->n - 1]);
  w->shared = shared_level_of(w, s->work);
  level(w, 0);
}
