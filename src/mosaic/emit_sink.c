// Where expressions are computed: temporary memory, loop nests, stores.
#include "base/cpu.h"
#include "mosaic/emit.h"

// ---- temporary memory: first fit, by offset
// -1: the list has no room.
static int64_t take(at_me_free **list, int64_t bytes) {
  for (at_me_free **p = list; *p; p = &(*p)->next) {
    at_me_free *f = *p;
    if (f->bytes < bytes) continue;
    int64_t at = f->offset;
    f->offset += bytes;
    f->bytes -= bytes;
    if (f->bytes == 0) *p = f->next;
    return at;
  }
  return -1;
}

static int64_t rounded(int64_t bytes) {
  return (int64_t)at_align_up((size_t)AT_MAX(bytes, 1), 64);
}

int64_t at_me_temp_alloc(at_me *m, int64_t bytes) {
  bytes = rounded(bytes);
  int64_t at = take(&m->free_list, bytes);
  if (at >= 0) return at;
  at = m->temp_bytes;
  m->temp_bytes += bytes;
  return at;
}

static void give(at_me *m, at_me_free **p, int64_t offset, int64_t bytes) {
  bytes = rounded(bytes);
  at_me_free *before = NULL;
  while (*p && (*p)->offset < offset) {
    before = *p;
    p = &(*p)->next;
  }
  at_me_free *after = *p;
  if (before && before->offset + before->bytes == offset) {
    before->bytes += bytes;
    if (after && before->offset + before->bytes == after->offset) {
      before->bytes += after->bytes;
      before->next = after->next;
    }
    return;
  }
  if (after && offset + bytes == after->offset) {
    after->offset = offset;
    after->bytes += bytes;
    return;
  }
  at_me_free *f = at_new(m->a, at_me_free, 1);
  if (!f) return;  // the memory is not used again, that is all
  *f = (at_me_free){offset, bytes, after};
  *p = f;
}

void at_me_temp_free(at_me *m, int64_t offset, int64_t bytes) {
  give(m, &m->free_list, offset, bytes);
}

int64_t at_me_turn_alloc(at_me *m, int64_t bytes) {
  int64_t at = take(&m->rows.free_list, rounded(bytes));
  if (at >= 0) return at;
  if (!m->share) return at_me_temp_alloc(m, bytes);
  at = m->share->turn_bytes;
  m->share->turn_bytes += rounded(bytes);
  return at;
}
void at_me_turn_free(at_me *m, int64_t offset, int64_t bytes) {
  give(m, m->rows.count ? &m->rows.free_list : &m->free_list, offset, bytes);
}
void at_me_turns_end(at_me *m) {
  m->rows.count = 0;
  for (at_me_free *f = m->rows.free_list; f && !m->share; f = f->next)
    at_me_temp_free(m, f->offset, f->bytes);
  m->rows.free_list = NULL;
}

LLVMValueRef at_me_temp_at(at_me *m, int64_t offset) {
  at_em *e = m->e;
  if (m->share) at_b_task_outside(e, &m->share->task);
  LLVMValueRef p = at_b_gep(e, at_em_int(e, 8), m->temp, at_em_i64(e, offset));
  if (m->share) at_b_task_inside(e, &m->share->task);
  return p;
}
LLVMValueRef at_me_turn_at(at_me *m, int64_t offset) {
  if (!m->share) return at_me_temp_at(m, offset);
  return at_b_gep(m->e, at_em_int(m->e, 8), m->share->task.memory,
                  at_em_i64(m->e, offset));
}

// ---- iteration spaces
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

void at_me_space_dims(at_me_space *s, uint32_t rank, const int64_t *dim) {
  int64_t suffix = 1;
  for (uint32_t d = rank; d-- > 0;) {
    suffix *= dim[d];
    at_me_space_add(s, suffix);
  }
}

void at_me_space_ref(at_me_space *s, const at_me_ref *r) {
  int64_t suffix = 1;
  int64_t step = -1;  // what the next dimension's stride must be to run on
  for (uint32_t d = r->rank; d-- > 0;) {
    if (r->size[d].v) return;
    if (r->size[d].c == 1) continue;
    bool on = step < 0 || (!r->stride[d].v && r->stride[d].c == step);
    bool odd = (r->parts > 1 || r->split > 1);
    if (!on || odd) at_me_space_add(s, suffix);
    suffix *= r->size[d].c;
    step = r->stride[d].v ? INT64_MAX : r->stride[d].c * r->size[d].c;
  }
}

static void widen(at_me_space *s, at_dtype t) {
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
  widen(s, n->dtype);
  *same = true;
  bool below = true;
  switch (n->kind) {
    case AT_ME_SPLAT:
    case AT_ME_BUFFER:
    case AT_ME_DOT:
      below = false;
      break;
    case AT_ME_LOAD:
      widen(s, n->ref.storage);
      at_me_space_ref(s, &n->ref);
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
void at_me_space_tree(at_me *m, at_me_space *s, at_me_node *tree) {
  enum { OTHER, SAME };  // elements of the node, as the space has them
  at_walk_clear(&m->walk);
  at_walk_add(&m->walk, tree, SAME);
  for (at_walk_step w; at_walk_next(&m->walk, &w);) {
    const at_me_node *n = w.item;
    bool same;
    if (!add_to_space(w.tag == SAME ? s : NULL, &s->widest, n, &same)) continue;
    for (uint32_t i = 0; i < n->num_in; i++) {
      bool fits = same || at_me_elements(n->in[i]) == s->total;
      at_walk_add(&m->walk, n->in[i], w.tag == SAME && fits ? SAME : OTHER);
    }
  }
}

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

static void innermost(nest *w, int64_t lo, int64_t hi, uint32_t lanes) {
  if (hi > lo)
    turns(w, at_em_i64(w->m->e, lo), at_em_i64(w->m->e, hi), hi - lanes, lanes);
}

// What has one element in a row: lanes go over the rows of the turn.
static void one_of_each(nest *w, uint32_t lanes) {
  at_em *e = w->m->e;
  at_loop l;
  int64_t step = w->m->rows.step;
  if (lanes < 8 || step % lanes) {
    at_me_rows_begin(w->m, &l, w->extent[0], true, &w->ix[0]);
    w->body(w->m, at_pos_make(e, false, w->n, w->extent, w->ix), w->arg);
    at_loop_end(e, &l);
    return;
  }
  e->lanes = lanes;
  at_loop_range(e, &l, 0, step, lanes);
  if (!l.single && l.i.base) l.i.hi = step - lanes;
  w->ix[0] = at_ix_lanes(e, at_ix_add(e, w->m->rows.first, l.i));
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

static void level(nest *w, uint32_t d) {
  if (d == w->shared) {
    shared_level(w, d);
    return;
  }
  if (d + 1 == w->n && d == 0 && w->m->rows.count) {
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

void at_me_loops(at_me *m, const at_me_space *all, at_me_body_fn body,
                 void *arg) {
  at_me_space own = *all, *s = &own;
  if (s->total == 0) return;
  if (m->rows.count) at_me_space_add(s, s->total / m->rows.count);
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

// ---- sinks
// What of n cannot be computed inside a loop nest is computed; turn: transposes
// that are turned, too.
static void prepare(at_me *m, at_me_node *tree, bool turn) {
  AT_VEC(at_me_node *) apart = {0};
  if (!tree) return;
  at_walk_clear(&m->walk);
  at_walk_add(&m->walk, tree, 0);
  for (at_walk_step s; at_walk_next(&m->walk, &s);) {
    at_me_node *n = (at_me_node *)(uintptr_t)s.item;
    if (n->kind == AT_ME_DOT || (turn && at_me_turns_lanes(m, n))) {
      if (!at_vec_push(m->a, &apart, n))
        at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
      continue;
    }
    if (n->kind == AT_ME_LOAD && n->ref.pages) at_me_pages_fetch(m, &n->ref);
    for (uint32_t i = 0; i < n->num_in; i++) at_walk_add(&m->walk, n->in[i], 0);
  }
  for (size_t i = 0; i < apart.len; i++)
    at_me_node_drop(m, at_me_materialise(m, apart.ptr[i]));
}
void at_me_prepare(at_me *m, at_me_node *n) { prepare(m, n, true); }

typedef struct copy_args {
  at_me_node *n, *mask;
  const at_me_ref *dst;
  at_me_store_mode mode;
} copy_args;

static void copy_element(at_me *m, const at_pos *p, void *arg) {
  const copy_args *c = arg;
  at_val v = at_me_eval(m, c->n, p);
  if (c->mask || c->mode == AT_ME_ADD) {
    at_val mask = {0};
    if (c->mask) mask = at_me_eval(m, c->mask, p);
    at_val old = at_me_ref_load(m, c->dst, p);
    if (c->mode == AT_ME_ADD)
      v = at_em_apply_real(m->e, AT_OP_ADD, c->dst->dtype, old, v);
    if (c->mask) v.re = at_b_select(m->e, mask.re, v.re, old.re);
  }
  at_me_ref_store(m, c->dst, p, v);
}

void at_me_copy_to(at_me *m, at_me_node *n, const at_me_ref *dst,
                   at_me_node *mask, at_me_store_mode mode) {
  if (!mask && mode == AT_ME_PLAIN && at_me_turn_into(m, n, dst)) return;
  // A transpose that cannot be turned is read as it is.
  prepare(m, n, n->kind != AT_ME_TRANSPOSE);
  if (mask) at_me_prepare(m, mask);
  at_me_space s = {.total = at_me_elements(n)};
  if (n->rank == 0)
    for (uint32_t d = 0; d < dst->rank; d++) s.total *= dst->size[d].c;
  at_me_space_tree(m, &s, n);
  if (mask) at_me_space_tree(m, &s, mask);
  at_me_space_ref(&s, dst);
  widen(&s, dst->storage);
  widen(&s, dst->dtype);
  if (dst->parts == 1 && dst->split == 1)
    s.work = (double)s.total * at_me_node_cost(m, n);
  copy_args c = {n, mask, dst, mode};
  at_me_loops(m, &s, copy_element, &c);
}

static at_me_node *retain(at_me_node *n) {
  n->refs++;
  return n;
}

// Memory of a turn that only n reads, each element where its own goes: n may
// take its place.
static at_me_node *spent(at_me_node *n, const at_me_node *top) {
  if (n->kind == AT_ME_BUFFER)
    return n->turn && n->slot >= 0 && n->refs == 1 && n->dtype == top->dtype &&
                   at_me_elements(n) == at_me_elements(top)
               ? n
               : NULL;
  if (n->kind != AT_ME_APPLY && n->kind != AT_ME_RESHAPE) return NULL;
  if (n != top && n->refs > 1) return NULL;
  for (uint32_t i = 0; i < n->num_in; i++) {
    at_me_node *x = spent(n->in[i], top);
    if (x) return x;
  }
  return NULL;
}

static bool in_place(at_me *m, at_me_node *n) {
  at_me_node *x = n->kind == AT_ME_APPLY && n->within ? spent(n, n) : NULL;
  if (!x) return false;
  at_me_prepare(m, n);
  at_me_ref to;
  at_me_dense(m, &to, x->ref.base, n->dtype, n->rank, n->dim);
  at_me_copy_to(m, n, &to, NULL, AT_ME_PLAIN);
  n->slot = x->slot;
  n->slot_bytes = x->slot_bytes;
  n->turn = true;
  x->slot = -1;
  at_me_node_release(m, n);
  n->kind = AT_ME_BUFFER;
  n->ref = to;
  n->depth = m->depth;
  return true;
}

// n's value is in b, which nobody else has.
static void become(at_me *m, at_me_node *n, const at_me_node *b) {
  at_me_node_release(m, n);
  n->kind = AT_ME_BUFFER;
  n->ref = b->ref;
  n->slot = b->slot;
  n->slot_bytes = b->slot_bytes;
  n->turn = b->turn;
  n->depth = m->depth;
}

at_me_node *at_me_materialise(at_me *m, at_me_node *n) {
  if (!n || n->kind == AT_ME_BUFFER) return n ? retain(n) : NULL;
  bool here = n->region == m->region;
  if (n->kind == AT_ME_RESHAPE && here) {
    // The same memory under other dimensions.
    at_me_node *in = n->in[0];
    if (in->kind != AT_ME_BUFFER && in->kind != AT_ME_RESHAPE &&
        in->kind != AT_ME_DOT)
      goto plain;
    at_me_node *b = at_me_materialise(m, in);
    if (!b || b != in || (b->turn && !n->within)) {
      at_me_node_drop(m, b);
      goto plain;
    }
    at_me_dense(m, &n->ref, b->ref.base, n->dtype, n->rank, n->dim);
    n->kind = AT_ME_BUFFER;
    at_me_node_unlist(m, n);
    at_me_node_drop(m, b);
    return retain(n);
  }
  if (here && in_place(m, n)) return retain(n);
plain:;
  bool within = m->rows.within;
  m->rows.within = n->within;
  at_me_node *b = at_me_buffer(m, n->op, n->dtype, n->rank, n->dim);
  m->rows.within = within;
  if (!b) return NULL;
  if (n->kind == AT_ME_DOT)
    at_me_dot_run(m, n, &b->ref, false);
  else
    at_me_copy_to(m, n, &b->ref, NULL, AT_ME_PLAIN);
  if (!here) return retain(b);
  become(m, n, b);
  return retain(n);
}

// ---- several values at once
typedef struct cut {
  AT_VEC(at_me_node *) nodes;
  AT_VEC(at_me_ref) to;  // of each
} cut;

// Will an operation to come use n, which is worth keeping and computed in the
// same loops as `top`?
static bool is_cut(at_me *m, const at_me_node *n, const at_me_node *top) {
  switch (n->kind) {
    case AT_ME_SPLAT:
    case AT_ME_IOTA:
    case AT_ME_LOAD:
    case AT_ME_BUFFER:
    case AT_ME_DOT:
      return false;
    default:
      break;
  }
  return n == top ||
         (n->refs > n->holds && n->region == m->region && !n->within &&
          at_me_elements(n) == at_me_elements(top) &&
          at_me_node_cost(m, n) > AT_ME_KEEP_COST && !at_me_turns_lanes(m, n));
}

static bool find_cut(at_me *m, at_me_node *top, cut *c) {
  at_walk_clear(&m->walk);
  at_walk_add(&m->walk, top, 0);
  for (at_walk_step s; at_walk_next(&m->walk, &s);) {
    at_me_node *n = (at_me_node *)(uintptr_t)s.item;
    if (is_cut(m, n, top) && !at_vec_push(m->a, &c->nodes, n)) return false;
    for (uint32_t i = 0; i < n->num_in; i++) at_walk_add(&m->walk, n->in[i], 0);
  }
  return true;
}

static void copy_cut(at_me *m, const at_pos *p, void *arg) {
  const cut *c = arg;
  for (size_t i = 0; i < c->nodes.len; i++)
    at_me_ref_store(m, &c->to.ptr[i], p, at_me_eval(m, c->nodes.ptr[i], p));
}

void at_me_cut(at_me *m, at_me_node *top) {
  cut c = {0};
  AT_VEC(at_me_node *) buffers = {0};
  if (m->rows.count || top->region != m->region || at_me_turns_lanes(m, top)) {
    at_me_node_drop(m, at_me_materialise(m, top));
    return;
  }
  at_me_prepare(m, top);
  bool good = find_cut(m, top, &c);
  at_me_space s = {.total = at_me_elements(top)};
  for (size_t i = 0; good && i < c.nodes.len; i++) {
    at_me_node *n = c.nodes.ptr[i];
    at_me_node *b = at_me_buffer(m, n->op, n->dtype, n->rank, n->dim);
    good =
        b && at_vec_push(m->a, &buffers, b) && at_vec_push(m->a, &c.to, b->ref);
    at_me_space_tree(m, &s, n);
    s.work += (double)s.total * at_me_node_cost(m, n);
  }
  if (!good) {
    at_em_fail(m->e, AT_NO_MEMORY("values of a kernel"));
    return;
  }
  at_me_loops(m, &s, copy_cut, &c);
  for (size_t i = 0; i < c.nodes.len; i++)
    become(m, c.nodes.ptr[i], buffers.ptr[i]);
}

at_me_node *at_me_readable(at_me *m, at_me_node *n) {
  const at_me_node *x = n;
  while (x && (x->kind == AT_ME_RESHAPE || x->kind == AT_ME_SLICE ||
               x->kind == AT_ME_TRANSPOSE || x->kind == AT_ME_BROADCAST))
    x = x->in[0];
  if (x && (x->kind == AT_ME_LOAD || x->kind == AT_ME_BUFFER)) return retain(n);
  return at_me_materialise(m, n);
}

static void settle_list(at_me *m, uint32_t list, uint64_t roots,
                        const at_me_node *own) {
  at_me_cursor c;
  for (at_me_node *n = at_me_list_begin(m, list, &c); n && at_em_ok(m->e);
       n = at_me_list_next(&c)) {
    uint32_t later = n->refs - n->holds - (n == own ? 1 : 0);
    bool asked = list == AT_ME_LIST_DOTS || (later && (n->reads & roots));
    if (asked && n->region == m->region)
      at_me_node_drop(m, at_me_materialise(m, n));
  }
  at_me_list_end(m, &c);
}

void at_me_settle(at_me *m, uint64_t roots, const at_me_node *own) {
  for (uint32_t l = at_me_list_of(roots, 0); l != AT_ME_LIST_DOTS;
       l = at_me_list_of(roots, l + 1))
    settle_list(m, l, roots, own);
}

void at_me_settle_all(at_me *m, const at_mop *op) {
  at_me_settle(m, at_mplan_op_of(m->plan, op)->writes, NULL);
  settle_list(m, AT_ME_LIST_DOTS, 0, NULL);
}

// ---- views
// dims of `to` over the memory of `from` (sizes known); false: not one view.
bool at_me_reshape_view(at_me *m, const at_me_ref *from, at_me_ref *to) {
  uint32_t i = from->rank, j = to->rank;
  while (j > 0) {
    if (to->size[j - 1].c == 1) {
      to->stride[--j] = (at_me_num){0, NULL};
      continue;
    }
    while (i > 0 && from->size[i - 1].c == 1) i--;
    if (i == 0) return false;
    // One digit of `from`, grown until the product of `to` digits fits.
    at_me_num stride = from->stride[i - 1];
    int64_t have = from->size[--i].c;
    int64_t made = 1;
    while (j > 0 && made < have) {
      int64_t s = to->size[--j].c;
      to->stride[j] = at_me_mul(m, stride, (at_me_num){made, NULL});
      made *= s;
      while (made > have) {  // needs more of `from`, which must run on
        while (i > 0 && from->size[i - 1].c == 1) i--;
        if (i == 0 || stride.v || from->stride[i - 1].v ||
            from->stride[i - 1].c != stride.c * have)
          return false;
        have *= from->size[--i].c;
      }
    }
    if (made != have) return false;
  }
  return true;
}

static bool view_of(at_me *m, at_me_node *n, at_me_ref *v) {
  at_me_ref in;
  switch (n->kind) {
    case AT_ME_BUFFER:
      *v = n->ref;
      return true;
    case AT_ME_LOAD:
      *v = n->ref;
      at_me_ref_trim(v, n->rank);
      return v->parts == 1 && v->split == 1;
    case AT_ME_RESHAPE:
      if (!view_of(m, n->in[0], &in)) return false;
      *v = in;
      v->rank = n->rank;
      for (uint32_t d = 0; d < n->rank; d++)
        v->size[d] = (at_me_num){n->dim[d], NULL};
      return at_me_reshape_view(m, &in, v);
    case AT_ME_TRANSPOSE:
      if (!view_of(m, n->in[0], &in)) return false;
      *v = in;
      for (uint32_t d = 0; d < n->rank; d++) {
        v->size[d] = in.size[n->ints[d]];
        v->stride[d] = in.stride[n->ints[d]];
      }
      return true;
    case AT_ME_SLICE: {
      if (!view_of(m, n->in[0], v)) return false;
      at_me_num at = {0, NULL};
      for (uint32_t d = 0; d < n->rank; d++) {
        at_me_num k = {n->ints[d], NULL}, s = {n->step[d], NULL};
        at = at_me_add(m, at, at_me_mul(m, k, v->stride[d]));
        v->stride[d] = at_me_mul(m, s, v->stride[d]);
        v->size[d] = (at_me_num){n->dim[d], NULL};
      }
      v->base = at_b_gep(m->e, at_em_int(m->e, 8 * v->bytes), v->base,
                         at_me_num_value(m, at));
      return true;
    }
    default:
      return false;
  }
}

at_me_node *at_me_view(at_me *m, at_me_node *n, at_me_ref *view) {
  if (!n) return NULL;
  prepare(m, n, false);
  if (view_of(m, n, view)) {
    view->pages = false;
    return retain(n);
  }
  at_me_node *b = at_me_materialise(m, n);
  if (b) *view = b->ref;
  return b;
}

at_me_node *at_me_view_pages(at_me *m, at_me_node *n, at_me_ref *view) {
  const at_me_node *x = n;
  while (x && x->kind == AT_ME_RESHAPE) x = x->in[0];
  if (x && x->kind == AT_ME_LOAD && x->ref.pages && view_of(m, n, view))
    return retain(n);
  return at_me_view(m, n, view);
}
