// A lowered program run for real: every value lies in blocks where its home
// says, every block of a node's grid is computed by itself from what its tile
// has or receives, partial sums are added up, loops and branches go as their
// predicates say. What is received is counted, and must be what was planned.
#include <stdlib.h>
#include <string.h>

#include "tiles/lower_internal.h"

typedef struct box {
  int64_t lo[kTilesRank], hi[kTilesRank];
} box;

// One run. Values hold their blocks through at_tiles_value.store, so a plan has
// one run at a time.
typedef struct runner {
  const at_tiles_lowerer *w;
  at_pool *pool;
  at_arena *arena;  // of the run
  at_tiles_run_counts count;
} runner;

// Elements of a box.
static int64_t box_volume(const box *b, uint32_t rank) {
  int64_t v = 1;
  for (uint32_t d = 0; d < rank; d++) v *= b->hi[d] - b->lo[d];
  return v;
}

// All of a tensor of type t.
static void whole_box(const at_type *t, box *b) {
  for (uint32_t d = 0; d < t->rank; d++) b->lo[d] = 0, b->hi[d] = t->dims[d];
}

// The type of one box of t.
static at_status box_type(at_arena *a, const at_type *t, const box *b,
                          at_type *out) {
  int64_t dims[kTilesRank];
  for (uint32_t d = 0; d < t->rank; d++) dims[d] = b->hi[d] - b->lo[d];
  return at_type_make(a, t->dtype, (at_dims){dims, t->rank}, out);
}

// Copies the part [lo, hi) between two dense boxes that both hold it.
typedef struct side {
  uint8_t *data;
  const int64_t *lo, *hi;
} side;
// The box [lo, hi) from one dense block to another; both hold it. An empty box
// copies nothing.
static void copy_part(side to, side from, const int64_t *lo, const int64_t *hi,
                      uint32_t rank, size_t size) {
  int64_t index[kTilesRank];
  size_t row = size;
  if (rank) row *= (size_t)(hi[rank - 1] - lo[rank - 1]);
  for (uint32_t d = 0; d < rank; d++) {
    if (lo[d] >= hi[d]) return;
    index[d] = lo[d];
  }
  for (;;) {
    int64_t a = 0, b = 0;
    for (uint32_t d = 0; d < rank; d++) {
      a = a * (to.hi[d] - to.lo[d]) + index[d] - to.lo[d];
      b = b * (from.hi[d] - from.lo[d]) + index[d] - from.lo[d];
    }
    memcpy(to.data + (size_t)a * size, from.data + (size_t)b * size, row);
    uint32_t d = rank ? rank - 1 : 0;
    // The last dimension is one memcpy; the others count up.
    for (; d > 0; d--) {
      if (++index[d - 1] < hi[d - 1]) break;
      index[d - 1] = lo[d - 1];
    }
    if (!d) return;
  }
}

// ---- Stores
// v lets go of its blocks; the last holder frees them.
static void release(at_tiles_value *v) {
  at_tiles_store *s = v->store;
  v->store = NULL;
  if (!s || --s->users) return;
  free(s->starts);
  free(s->bytes);
  free(s);
}

// `to` holds s too, in place of what it held.
static void share(at_tiles_value *to, at_tiles_store *s) {
  s->users++;
  release(to);
  to->store = s;
}

// The box of block number `block`, row-major.
static void block_box(const at_tiles_lay *l, int64_t block, box *out) {
  for (uint32_t d = l->rank; d-- > 0; block /= l->dim[d].cuts) {
    int64_t k = block % l->dim[d].cuts;
    out->lo[d] = l->dim[d].bound[k], out->hi[d] = l->dim[d].end[k];
  }
}

// Room for a value's blocks, in place of what it held.
static at_status make_store(at_tiles_value *v) {
  int64_t n = at_tiles_lay_blocks(&v->lay), at = 0;
  at_tiles_store *s = calloc(1, sizeof *s);
  if (!s) return AT_NO_MEMORY("tiles");
  s->users = 1;
  s->starts = malloc(((size_t)n + 1) * sizeof *s->starts);
  for (int64_t k = 0; s->starts && k < n; k++) {
    box b;
    block_box(&v->lay, k, &b);
    s->starts[k] = at;
    at += box_volume(&b, v->lay.rank);
  }
  s->bytes = malloc(at_mul((size_t)at, at_dtype_bytes(v->type->dtype)) + 1);
  release(v);
  v->store = s;
  if (s->starts && s->bytes) return AT_OK;
  release(v);
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "%s: no host memory for its blocks",
                 v->name);
}

// Between a dense box and the blocks of v; *received: bytes of blocks that are
// not on `tile`, or NULL.
static void copy_box(const at_tiles_value *v, const box *b, uint8_t *data,
                     bool in, uint32_t tile, int64_t *received) {
  size_t size = at_dtype_bytes(v->type->dtype);
  uint32_t rank = v->lay.rank;
  at_tiles_walk k;
  for (at_tiles_walk_start(&k, &v->lay, b->lo, b->hi); k.more;
       at_tiles_walk_next(&k)) {
    box home, both;
    int64_t block = at_tiles_walk_block(&k);
    block_box(&v->lay, block, &home);
    for (uint32_t d = 0; d < rank; d++)
      both.lo[d] = at_tiles_walk_lo(&k, d),
      both.hi[d] = at_tiles_walk_hi(&k, d);
    side there = {v->store->bytes + (size_t)v->store->starts[block] * size,
                  home.lo, home.hi};
    side here = {data, b->lo, b->hi};
    copy_part(in ? there : here, in ? here : there, both.lo, both.hi, rank,
              size);
    if (received && at_tiles_walk_tile(&k) != tile)
      *received += box_volume(&both, rank) * (int64_t)size;
  }
}

// Stores a dense box into the blocks of v.
static void put(const at_tiles_value *v, const box *b, const void *data) {
  copy_box(v, b, (uint8_t *)(uintptr_t)data, true, 0, NULL);
}

// ---- Taking operands
// What one vertex takes: its tile, and the bytes that came from others.
typedef struct taker {
  const runner *r;
  at_arena *arena;
  uint32_t tile;
  int64_t received;
} taker;

// Block b of a literal, dense; a splat stays one element.
static at_status take_literal(taker *k, const at_literal *l, const box *b,
                              const at_literal **out) {
  at_type t;
  AT_TRY(box_type(k->arena, &l->type, b, &t));
  if (l->splat) return at_literal_make(k->arena, t, l->data, true, true, out);
  uint8_t *data;
  box all;
  whole_box(&l->type, &all);
  AT_TRY_ALLOC(data, at_arena_alloc(k->arena, at_type_bytes(&t) + 1, 64));
  side to = {data, b->lo, b->hi},
       from = {(uint8_t *)(uintptr_t)l->data, all.lo, all.hi};
  copy_part(to, from, b->lo, b->hi, l->type.rank, at_dtype_bytes(t.dtype));
  return at_literal_make(k->arena, t, data, false, true, out);
}

static at_status take(taker *k, at_value v, const box *b,
                      const at_literal **out);

// A broadcast is written out only where a block of it is wanted.
static at_status take_broadcast(taker *k, at_value v, const box *b,
                                const at_literal **out) {
  at_dims where = at_node_ints(v.node, AT_ATTR_BROADCAST_DIMENSIONS);
  at_value u = v.node->operands[0];
  const at_type *small = at_value_type(u), *large = at_value_type(v);
  const at_literal *in;
  box s;
  at_type t;
  for (uint32_t d = 0; d < small->rank; d++) {
    bool same = small->dims[d] == large->dims[where.ptr[d]];
    s.lo[d] = same ? b->lo[where.ptr[d]] : 0;
    s.hi[d] = same ? b->hi[where.ptr[d]] : small->dims[d];
  }
  AT_TRY(take(k, u, &s, &in));
  AT_TRY(box_type(k->arena, large, b, &t));
  if (in->splat) return at_literal_make(k->arena, t, in->data, true, true, out);
  int64_t lo[1][kTilesRank] = {{0}};
  return at_tiles_part_eval(v.node, &in, lo, &t, lo[0], k->arena, out);
}

// Block b of v on the taker's tile.
static at_status take(taker *k, at_value v, const box *b,
                      const at_literal **out) {
  v = at_tiles_root(k->r->w, v);
  const at_tiles_value *x = at_tiles_value_of(k->r->w, v);
  if (!x->placed && v.node->op == AT_OP_BROADCAST_IN_DIM)
    return take_broadcast(k, v, b, out);
  if (!x->store && x->literal) return take_literal(k, x->literal, b, out);
  if (!x->store)
    return AT_FAIL(AT_INTERNAL, "%s is used before it is computed", x->name);
  at_type t;
  uint8_t *data;
  AT_TRY(box_type(k->arena, x->type, b, &t));
  AT_TRY_ALLOC(data, at_arena_alloc(k->arena, at_type_bytes(&t) + 1, 64));
  copy_box(x, b, data, false, k->tile, &k->received);
  return at_literal_make(k->arena, t, data, false, true, out);
}

// All of a value, in row-major order.
static at_status take_whole(runner *r, at_value v, at_arena *a,
                            const at_literal **out) {
  taker k = {r, a, 0, 0};
  box b;
  whole_box(at_value_type(v), &b);
  AT_TRY(take(&k, v, &b, out));
  if (!(*out)->splat) return AT_OK;
  const at_literal *l = *out;
  size_t size = at_dtype_bytes(l->type.dtype);
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(a, at_type_bytes(&l->type) + 1, 64));
  for (int64_t i = 0; i < at_type_elements(&l->type); i++)
    memcpy(data + (size_t)i * size, l->data, size);
  return at_literal_make(a, l->type, data, false, true, out);
}

// Puts a literal into its home, once somebody wants it there.
static at_status settle(runner *r, at_value v) {
  v = at_tiles_root(r->w, v);
  at_tiles_value *x = at_tiles_value_of(r->w, v);
  if (at_value_type(v)->dtype == AT_TOKEN || x->store) return AT_OK;
  if (!x->placed && v.node->op == AT_OP_BROADCAST_IN_DIM)
    return settle(r, v.node->operands[0]);
  if (!x->placed || !x->literal) return AT_OK;
  taker k = {r, at_arena_create(), 0, 0};
  if (!k.arena) return AT_NO_MEMORY("tiles");
  at_status st = make_store(x);
  for (int64_t i = 0; at_ok(st) && i < at_tiles_lay_blocks(&x->lay); i++) {
    box b;
    const at_literal *l;
    block_box(&x->lay, i, &b);
    at_arena_reset(k.arena);
    st = take_literal(&k, x->literal, &b, &l);
    size_t size = at_dtype_bytes(x->type->dtype), n = 0;
    if (at_ok(st)) n = (size_t)box_volume(&b, x->lay.rank);
    uint8_t *to = x->store->bytes + (size_t)x->store->starts[i] * size;
    for (size_t e = 0; e < n; e += l->splat ? 1 : n)
      memcpy(to + e * size, l->data, l->splat ? size : n * size);
  }
  at_arena_destroy(k.arena);
  return st;
}

// ---- Every block of something, on the host's threads
typedef at_status (*block_fn)(void *arg, int64_t block, at_arena *a);
typedef struct crew {
  block_fn fn;
  void *arg;
  at_status st;
  at_arena *arenas[];  // by worker
} crew;

// Blocks [begin, end) with this worker's arena, which is emptied after each.
static void run_blocks(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  crew *c = arg;
  at_arena **a = &c->arenas[worker];
  for (int64_t i = begin; i < end; i++) {
    if (!*a) *a = at_arena_create();
    at_status st = *a ? c->fn(c->arg, i, *a) : AT_NO_MEMORY("tiles");
    if (*a) at_arena_reset(*a);
    if (at_ok(st)) continue;
    // The first to fail tells; it does not matter who.
    __typeof__(c->st.err) none = NULL;
    if (!__atomic_compare_exchange_n(&c->st.err, &none, st.err, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      at_status_free(st);
  }
}

// fn for blocks 0 to n - 1, on the pool or alone. The first error wins; others
// are dropped.
static at_status for_blocks(runner *r, int64_t n, block_fn fn, void *arg) {
  uint32_t threads = r->pool ? at_pool_threads(r->pool) : 1;
  crew *c = calloc(1, sizeof *c + threads * sizeof *c->arenas);
  if (!c) return AT_NO_MEMORY("tiles");
  c->fn = fn, c->arg = arg;
  if (r->pool)
    at_pool_for(r->pool, n, AT_MAX(n / (8 * threads), 1), run_blocks, c);
  else
    run_blocks(c, 0, n, 0);
  at_status st = c->st;
  for (uint32_t i = 0; i < threads; i++) at_arena_destroy(c->arenas[i]);
  free(c);
  return st;
}

// ---- Nodes that were cut
typedef struct cut_node {
  runner *r;
  const at_node *n;
  at_tiles_rule rule;
  const at_tiles_grid *g;
  at_tiles_lay *lays;  // of each tensor as the grid cuts it
  int64_t received;
} cut_node;

// The grid's index of block `block` among those of results (or, with `sums`, of
// what is added up into one).
static void index_of(const cut_node *c, int64_t block, bool sums,
                     int64_t *index) {
  for (uint32_t f = c->g->num; f-- > 0;) {
    if (c->g->sum[f] != sums) continue;
    index[f] = block % c->g->dim[f].cuts;
    block /= c->g->dim[f].cuts;
  }
}

// Blocks of a grid along its summed factors, or along all others.
static int64_t cuts_of(const at_tiles_grid *g, bool sums) {
  int64_t n = 1;
  for (uint32_t f = 0; f < g->num; f++)
    if (g->sum[f] == sums) n *= g->dim[f].cuts;
  return n;
}

// What the grid's block at `index` has of tensor t.
static void box_of(const cut_node *c, uint32_t t, const int64_t *index,
                   box *out) {
  const at_tiles_lay *l = &c->lays[t];
  for (uint32_t d = 0; d < l->rank; d++) {
    const at_dim_factors *x = &c->rule.r.dims[t][d];
    int64_t k = 0;
    for (uint32_t i = 0; !x->n && i < c->rule.num_windows; i++)
      if (c->rule.windows[i].tensor == t && c->rule.windows[i].dim == d)
        k = index[c->rule.windows[i].factor];
    if (x->n) k = index[x->f[0]];
    if (l->dim[d].cuts == 1) k = 0;
    out->lo[d] = l->dim[d].bound[k];
    out->hi[d] = l->dim[d].end[k];
  }
}

// a (combine) b, of the same type.
static at_status join(at_op op, at_arena *a, const at_literal *x,
                      const at_literal *y, const at_literal **out) {
  at_node leaves[2] = {{.num_results = 1}, {.num_results = 1}};
  at_type tx = x->type, ty = y->type, to = x->type;
  leaves[0].types = &tx, leaves[1].types = &ty;
  at_value operands[2] = {{&leaves[0], 0}, {&leaves[1], 0}};
  at_node n = {.op = op,
               .num_operands = 2,
               .num_results = 1,
               .operands = operands,
               .types = &to};
  const at_literal *in[2] = {x, y};
  return at_eval_node(&n, in, NULL, a, out);
}

// Partial sums of narrow floats travel, and are added, in f32.
static bool sums_wide(const cut_node *c, uint32_t i) {
  at_dtype t = c->n->types[i].dtype;
  return at_tiles_depth(c->n) > 0 && cuts_of(c->g, true) > 1 &&
         at_is_float(t) && at_dtype_bytes(t) < 4;
}

// *l with elements of type t, rounded once.
static at_status narrow(at_arena *a, at_dtype t, const at_literal **l) {
  uint8_t *data;
  at_type to = at_type_with((*l)->type, t);
  AT_TRY_ALLOC(data, at_arena_alloc(a, at_type_bytes(&to) + 1, 64));
  for (int64_t i = 0; i < at_type_elements(&to); i++)
    at_store_float(t, data + (size_t)i * at_dtype_bytes(t),
                   at_literal_float(*l, i));
  return at_literal_make(a, to, data, false, true, l);
}

// One tile's vertex: what it needs comes, and is computed with.
static at_status run_vertex(cut_node *c, const int64_t *index, bool empty,
                            const at_type *types, const box *first, at_arena *a,
                            const at_literal **out) {
  const at_node *n = c->n;
  const at_literal **in;
  int64_t(*lo)[kTilesRank];
  taker k = {c->r, a, 0, 0};
  for (uint32_t f = 0; f < c->g->num; f++) k.tile += c->g->dim[f].off[index[f]];
  AT_TRY_ALLOC(in, at_new(a, const at_literal *, n->num_operands + 1));
  AT_TRY_ALLOC(lo, (int64_t(*)[kTilesRank])at_arena_alloc(
                       a, (n->num_operands + 1) * sizeof *lo, 8));
  for (uint32_t t = 0; t < n->num_operands; t++) {
    box b;
    box_of(c, t, index, &b);
    memcpy(lo[t], b.lo, sizeof b.lo);
    AT_TRY(take(&k, n->operands[t], &b, &in[t]));
  }
  __atomic_fetch_add(&c->received, k.received, __ATOMIC_RELAXED);
  if (empty) return AT_OK;
  return at_tiles_part_eval(n, in, lo, types, first->lo, a, out);
}

// block_fn: one block of the results, from all blocks of the sums in order, so
// that values do not depend on threads.
static at_status run_result(void *arg, int64_t block, at_arena *a) {
  cut_node *c = arg;
  const at_node *n = c->n;
  int64_t index[kTilesFactors] = {0}, sums = cuts_of(c->g, true);
  const at_literal **out, **sum;
  at_type *types;
  box *boxes;
  index_of(c, block, false, index);
  AT_TRY_ALLOC(types, at_new(a, at_type, n->num_results + 1));
  AT_TRY_ALLOC(boxes, at_new(a, box, n->num_results + 1));
  AT_TRY_ALLOC(out, at_new(a, const at_literal *, n->num_results + 1));
  AT_TRY_ALLOC(sum, at_new(a, const at_literal *, n->num_results + 1));
  for (uint32_t i = 0; i < n->num_results; i++) {
    box_of(c, n->num_operands + i, index, &boxes[i]);
    AT_TRY(box_type(a, &n->types[i], &boxes[i], &types[i]));
    if (sums_wide(c, i)) types[i].dtype = AT_F32;
  }
  bool empty = n->num_results == 1 && !at_type_elements(&types[0]);
  for (int64_t s = 0; s < sums; s++) {
    index_of(c, s, true, index);
    AT_TRY(run_vertex(c, index, empty, types, &boxes[0], a, out));
    for (uint32_t i = 0; !empty && i < n->num_results; i++) {
      if (s) AT_TRY(join(c->rule.r.combine, a, sum[i], out[i], &out[i]));
      sum[i] = out[i];
    }
  }
  for (uint32_t i = 0; !empty && i < n->num_results; i++) {
    if (n->types[i].dtype == AT_TOKEN) continue;
    if (sums_wide(c, i)) AT_TRY(narrow(a, n->types[i].dtype, &sum[i]));
    const at_literal *l = sum[i];
    if (l->splat)
      return AT_FAIL(AT_INTERNAL, "a block that is one element repeated");
    put(at_tiles_value_of(c->r->w, (at_value){(at_node *)n, i}), &boxes[i],
        l->data);
  }
  return AT_OK;
}

// A node that was cut by a grid. INTERNAL if it did not receive what its step
// brings.
static at_status run_cut(runner *r, const at_node *n, const at_tiles_task *t,
                         at_arena *a) {
  cut_node c = {.r = r, .n = n, .g = &t->grid};
  AT_TRY(at_tiles_rule_make(a, n, &c.rule));
  AT_TRY_ALLOC(c.lays, at_new(a, at_tiles_lay, c.rule.r.num_tensors + 1));
  for (uint32_t i = 0; i < c.rule.r.num_tensors; i++) {
    uint32_t *group, num;
    AT_TRY(
        at_tiles_grid_lay(a, &c.rule, &t->grid, i, &c.lays[i], &group, &num));
  }
  for (uint32_t i = 0; i < n->num_operands; i++)
    AT_TRY(settle(r, n->operands[i]));
  for (uint32_t i = 0; i < n->num_results; i++)
    if (n->types[i].dtype != AT_TOKEN)
      AT_TRY(make_store(at_tiles_value_of(r->w, (at_value){(at_node *)n, i})));
  AT_TRY(for_blocks(r, cuts_of(&t->grid, false), run_result, &c));
  r->count.vertices += cuts_of(&t->grid, false) * cuts_of(&t->grid, true);
  r->count.received_bytes += c.received;
  if (c.received != t->received)
    return AT_FAIL(AT_INTERNAL,
                   "%s received %lld bytes; its exchange brings %lld",
                   r->w->steps.ptr[t->first_step].name, (long long)c.received,
                   (long long)t->received);
  return AT_OK;
}

// ---- Nodes that move
typedef struct mover {
  runner *r;
  at_value from;
  at_tiles_value *to;
  const at_tiles_lay *lay;  // blocks of `from`, as many as `to` has
  const at_node *by;        // a transpose or a slice; NULL: as it is
} mover;

// block_fn: one block of `to`, taken from where it lies.
static at_status move_block(void *arg, int64_t block, at_arena *a) {
  mover *m = arg;
  taker k = {m->r, a, 0, 0};
  const at_literal *l;
  box b;
  block_box(m->lay, block, &b);
  const at_node *turned = m->by && m->by->op == AT_OP_TRANSPOSE ? m->by : NULL;
  at_dims start = {0};
  if (m->by && !turned) start = at_node_ints(m->by, AT_ATTR_START_INDICES);
  for (uint32_t d = 0; d < start.rank; d++)
    b.lo[d] += start.ptr[d], b.hi[d] += start.ptr[d];
  if (turned) {
    at_dims perm = at_node_ints(turned, AT_ATTR_PERMUTATION);
    box to = b;
    for (uint32_t d = 0; d < perm.rank; d++)
      b.lo[perm.ptr[d]] = to.lo[d], b.hi[perm.ptr[d]] = to.hi[d];
  }
  AT_TRY(take(&k, m->from, &b, &l));
  if (turned) {
    int64_t lo[1][kTilesRank] = {{0}};
    at_type t;
    box to;
    block_box(m->lay, block, &to);
    AT_TRY(box_type(a, m->to->type, &to, &t));
    AT_TRY(at_tiles_part_eval(turned, &l, lo, &t, lo[0], a, &l));
  }
  size_t size = at_dtype_bytes(l->type.dtype);
  int64_t n = at_type_elements(&l->type);
  uint8_t *to =
      m->to->store->bytes + (size_t)m->to->store->starts[block] * size;
  if (!l->splat) return memcpy(to, l->data, (size_t)n * size), AT_OK;
  for (int64_t i = 0; i < n; i++) memcpy(to + (size_t)i * size, l->data, size);
  return AT_OK;
}

// Every block of `from`, cut as `lay` says, to the block of that place in `to`.
static at_status move_blocks(runner *r, at_value from, at_tiles_value *to,
                             const at_tiles_lay *lay, const at_node *by) {
  mover m = {r, from, to, lay, by};
  AT_TRY(settle(r, from));
  // `to` may be where `from` is, as the state of a loop is.
  at_tiles_store *kept = to->store;
  if (kept) kept->users++;
  at_tiles_value made = *to;
  made.store = NULL;
  at_status st = make_store(&made);
  m.to = &made;
  if (at_ok(st))
    st = for_blocks(r, at_tiles_lay_blocks(&to->lay), move_block, &m);
  if (kept) {
    at_tiles_value old = {.store = kept};
    release(&old);
  }
  if (!at_ok(st)) return release(&made), st;
  release(to);
  to->store = made.store;
  return AT_OK;
}

// As lower_reshape decided: shared blocks, moved blocks, or through flat order.
static at_status run_reshape(runner *r, const at_node *n, at_arena *a) {
  at_value u = n->operands[0];
  at_tiles_value *from = at_tiles_value_of(r->w, u),
                 *to = at_tiles_value_of(r->w, (at_value){(at_node *)n, 0});
  const at_literal *l;
  if (to->everywhere && to->literal) return AT_OK;
  if (to->everywhere) {
    AT_TRY(take_whole(r, u, r->arena, &l));
    return at_literal_make(r->arena, n->types[0], l->data, false, true,
                           &to->literal);
  }
  AT_TRY(settle(r, u));
  at_tiles_lay linear, reshaped;
  bool fits;
  AT_TRY(at_tiles_lay_linear(a, &r->w->m, at_value_type(u), &linear));
  const at_tiles_lay *home = from->placed ? &from->lay : &linear;
  AT_TRY(at_tiles_lay_reshape(a, home, at_type_dims(at_value_type(u)),
                              at_type_dims(&n->types[0]), &reshaped, &fits));
  if (fits && from->placed) return share(to, from->store), AT_OK;
  if (fits) return move_blocks(r, u, to, &linear, NULL);
  AT_TRY(take_whole(r, u, a, &l));
  AT_TRY(make_store(to));
  box b;
  whole_box(&n->types[0], &b);
  put(to, &b, l->data);
  return AT_OK;
}

// ---- Control flow
static at_status run_comp(runner *r, const at_comp *c);

// Adds the cycles of the steps that `key` became.
static void count_steps(runner *r, const void *key) {
  void **slot = at_map_find_ptr(&r->w->tasks, key);
  const at_tiles_task *t = slot ? *slot : NULL;
  for (uint32_t i = 0; t && i < t->num_steps; i++)
    r->count.cycles += r->w->steps.ptr[t->first_step + i].cycles;
}

// The first element of v as an integer: predicates and branch numbers.
static at_status scalar_of(runner *r, at_value v, int64_t *out) {
  at_arena *a = at_arena_create();
  const at_literal *l;
  if (!a) return AT_NO_MEMORY("tiles");
  at_status st = take_whole(r, v, a, &l);
  if (at_ok(st)) *out = at_literal_int(l, 0);
  at_arena_destroy(a);
  return st;
}

// State lives in the condition's and body's parameters, which share the blocks
// of the loop's results.
static at_status run_while(runner *r, const at_node *n) {
  const at_comp *cond = n->regions[0], *body = n->regions[1];
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_tiles_value *s = at_tiles_value_of(r->w, (at_value){(at_node *)n, i});
    at_tiles_value *o = at_tiles_value_of(r->w, n->operands[i]);
    if (n->types[i].dtype == AT_TOKEN) continue;
    AT_TRY(settle(r, n->operands[i]));
    if (o->store && at_tiles_lay_eq(&o->lay, &s->lay))
      share(s, o->store);
    else
      AT_TRY(move_blocks(r, n->operands[i], s, &s->lay, NULL));
  }
  for (;;) {
    int64_t go = 0;
    for (uint32_t k = 0; k < 2; k++)
      for (uint32_t i = 0; i < n->num_results; i++) {
        at_tiles_value *s =
            at_tiles_value_of(r->w, (at_value){(at_node *)n, i});
        at_tiles_value *p =
            at_tiles_value_of(r->w, (at_value){n->regions[k]->params[i], 0});
        if (s->store) share(p, s->store);
      }
    AT_TRY(run_comp(r, cond));
    AT_TRY(scalar_of(r, cond->results[0], &go));
    if (!go) return AT_OK;
    AT_TRY(run_comp(r, body));
    count_steps(r, body);
    r->count.turns++;
    // All results are read before the state that they may be is let go.
    for (uint32_t i = 0; i < n->num_results; i++) {
      at_tiles_value *p =
          at_tiles_value_of(r->w, (at_value){cond->params[i], 0});
      if (n->types[i].dtype == AT_TOKEN) continue;
      AT_TRY(move_blocks(r, body->results[i], p, &p->lay, NULL));
    }
    for (uint32_t i = 0; i < n->num_results; i++) {
      at_tiles_value *p =
          at_tiles_value_of(r->w, (at_value){cond->params[i], 0});
      if (p->store)
        share(at_tiles_value_of(r->w, (at_value){(at_node *)n, i}), p->store);
    }
  }
}

// Out-of-range branches are the last one, as StableHLO says.
static at_status run_branch(runner *r, const at_node *n) {
  int64_t which = 0;
  AT_TRY(scalar_of(r, n->operands[0], &which));
  if (n->op == AT_OP_IF)
    which = which ? 0 : 1;
  else if (which < 0 || which >= n->num_regions)
    which = (int64_t)n->num_regions - 1;
  const at_comp *c = n->regions[which];
  AT_TRY(run_comp(r, c));
  count_steps(r, c);
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_tiles_value *v = at_tiles_value_of(r->w, (at_value){(at_node *)n, i});
    if (n->types[i].dtype != AT_TOKEN)
      AT_TRY(move_blocks(r, c->results[i], v, &v->lay, NULL));
  }
  return AT_OK;
}

// ---- Computations
// One node. Aliases and recipes need nothing.
static at_status run_node(runner *r, const at_node *n, at_arena *a) {
  at_tiles_value *v = n->num_results
                          ? at_tiles_value_of(r->w, (at_value){(at_node *)n, 0})
                          : NULL;
  void **slot = at_map_find_ptr(&r->w->tasks, n);
  const at_tiles_task *t = slot ? *slot : NULL;
  count_steps(r, n);
  switch (n->op) {
    case AT_OP_PARAMETER:
    case AT_OP_CREATE_TOKEN:
    case AT_OP_AFTER_ALL:
    case AT_OP_OPTIMIZATION_BARRIER:
    case AT_OP_COPY:
    case AT_OP_BROADCAST_IN_DIM:
      return AT_OK;
    case AT_OP_CONSTANT:
    case AT_OP_IOTA:
    case AT_OP_PARTITION_ID:
    case AT_OP_REPLICA_ID:
      return v->literal ? AT_OK
                        : at_eval_node(n, NULL, NULL, r->arena, &v->literal);
    case AT_OP_RESHAPE:
      return run_reshape(r, n, a);
    case AT_OP_WHILE:
      return run_while(r, n);
    case AT_OP_IF:
    case AT_OP_CASE:
      return run_branch(r, n);
    default:
      break;
  }
  if (t && t->cut) return run_cut(r, n, t, a);
  AT_ENSURE(n->op == AT_OP_TRANSPOSE || n->op == AT_OP_SLICE);
  return move_blocks(r, n->operands[0], v, &v->lay, n);
}

// Nodes in order; values are let go after their last user, as the plan's lives
// end.
static at_status run_comp(runner *r, const at_comp *c) {
  at_tiles_value **ends;
  at_arena *list = at_arena_create(), *a = at_arena_create();
  at_status st = list && a ? at_tiles_lower_ends(r->w, c, list, &ends)
                           : AT_NO_MEMORY("tiles");
  int32_t at = 0;
  AT_FOR_NODES(n, c) {
    if (!at_ok(st)) break;
    st = run_node(r, n, a);
    for (at_tiles_value *v = ends[at]; v; v = v->next) release(v);
    at_arena_reset(a);
    at++;
  }
  at_arena_destroy(list);
  at_arena_destroy(a);
  return st;
}

// Everything that the run left in values.
static void release_all(const at_tiles_lowerer *w) {
  for (size_t i = 0; i < w->values.len; i++) {
    at_tiles_value *v = w->values.entries[i].value;
    for (uint32_t k = 0; k < v->count; k++) {
      release(&v[k]);
      v[k].literal = NULL;
    }
  }
}

// See lower.h. Values are emptied at the end, also on an error, so the plan can
// be run again.
at_status at_tiles_plan_run(const at_tiles_plan *p,
                            const at_literal *const *args, at_pool *pool,
                            at_arena *a, const at_literal **out_results,
                            at_tiles_run_counts *out_counts) {
  if (!p->lowered)
    return AT_FAIL(AT_INVALID_ARGUMENT, "only a lowered program can be run so");
  const at_comp *c = p->lowered->entry;
  runner r = {.w = p->lowered, .pool = pool, .arena = at_arena_create()};
  if (!r.arena) return AT_NO_MEMORY("tiles");
  for (uint32_t i = 0; i < c->num_params; i++)
    at_tiles_value_of(r.w, (at_value){c->params[i], 0})->literal = args[i];
  at_status st = run_comp(&r, c);
  for (uint32_t i = 0; at_ok(st) && i < c->num_results; i++) {
    st = take_whole(&r, c->results[i], a, &out_results[i]);
    const at_literal *l = out_results[i];
    if (at_ok(st))  // it may be the caller's, or the run's
      st = at_literal_make(a, l->type, l->data, l->splat, false,
                           &out_results[i]);
  }
  release_all(r.w);
  at_arena_destroy(r.arena);
  AT_TRY(st);
  if (out_counts) *out_counts = r.count;
  return AT_OK;
}
