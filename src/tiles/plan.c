// A compiled program: its steps with their cycles, and every tile's memory over
// them.
#include <string.h>

#include "base/verify.h"
#include "tiles/tiles_internal.h"

enum {
  kStackBytes = 1024,  // of a tile's supervisor and workers
  kMaxSteps = 1 << 20,
};

static const char *const category_texts[] = {
    "variables",     "copies of variables",
    "received",      "arranged",
    "vertices",      "vertex code",
    "exchange code", "copy descriptors",
    "stack",         "padding"};
const char *at_tiles_category_text(at_tiles_category c) {
  return (unsigned)c < AT_TILES_MEM_COUNT ? category_texts[c] : "?";
}

// Cycles of one pass; names are d's. The busiest tile decides: work of
// different tiles overlaps.
at_tiles_step at_tiles_step_of(const at_tiles_machine *m,
                               const at_tiles_derived *d) {
  at_tiles_step s = {.name = d->name, .times = 1};
  int64_t total = 0, most = -1;
  for (int64_t t = 0; t < m->tiles; t++) {
    int64_t w = at_tiles_derived_work(d, (uint32_t)t);
    total += w;
    s.idle_tiles += w == 0;
    if (w > most) most = w, s.busiest = (uint32_t)t;
  }
  uint32_t histogram[kTilesSpread] = {0};
  for (int64_t t = 0; t < m->tiles; t++)
    at_tiles_spread_add(histogram, at_tiles_derived_work(d, (uint32_t)t), most);
  at_tiles_spread_end(histogram, m->tiles, s.spread);
  s.pre = d->pre[s.busiest];
  s.execute = d->execute[s.busiest];
  s.post = d->post[s.busiest];
  s.balance = most > 0 ? (double)total / ((double)most * (double)m->tiles) : 1;
  s.sync = m->sync * ((d->in.num_messages > 0) + (d->out.num_messages > 0));
  s.exchange = d->in.cycles + d->out.cycles;
  s.exchange_bound = d->in.lower_bound + d->out.lower_bound;
  AT_ASSERT(s.exchange_bound >= 0 && s.exchange_bound <= s.exchange);
  AT_ASSERT(s.pre >= 0 && s.execute >= 0 && s.post >= 0);
  AT_ASSERT(s.pre + s.execute + s.post == most && s.idle_tiles <= m->tiles);
  AT_ASSERT(total >= most && total <= most * m->tiles);
  s.exchange_bytes = d->in.received_bytes + d->out.received_bytes;
  s.rearranged_bytes = d->rearranged_bytes;
  s.saved_cycles = d->saved_cycles;
  s.cycles = s.sync + s.exchange + most;
  return s;
}

// ---- Steps in program order
typedef struct life {
  int32_t first,
      last;  // steps; first -1: before the program; last INT32_MAX: after it
  bool seen;
} life;

// State of at_tiles_compile; vectors are in the graph's arena.
typedef struct compiler {
  at_tiles_graph *g;
  const at_tiles_options *o;
  AT_VEC(at_tiles_derived *) derived;
  at_tiles_derived **distinct;  // of `derived`, each once
  size_t num_distinct;
  AT_VEC(at_tiles_step) steps;
  life *lives;  // per variable
  int64_t cycles;
} compiler;

// Step `step` touches the variables of d: their lives reach to it. One that is
// read first was there before the program.
static void use(compiler *c, const at_tiles_derived *d, int32_t step) {
  for (uint32_t v = 0; v < d->num_vars; v++) {
    bool reads = at_tiles_bit(d->reads, v), writes = at_tiles_bit(d->writes, v);
    if (!reads && !writes) continue;
    life *l = &c->lives[v];
    if (!l->seen) *l = (life){reads ? -1 : step, step, true};
    l->last = AT_MAX(l->last, step);
  }
}

// Appends an execution or a copy that runs `times` times in all.
static at_status add_step(compiler *c, at_tiles_program *p, int64_t times) {
  at_tiles_derived *d;
  AT_TRY(at_tiles_derive(p, &d));
  if (c->steps.len >= kMaxSteps)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "a program of more than %d steps",
                   kMaxSteps);
  at_tiles_step s = at_tiles_step_of(&c->g->machine, d);
  s.times = times;
  uint32_t *work;
  AT_TRY_ALLOC(work,
               at_new(c->g->arena, uint32_t, (size_t)c->g->machine.tiles));
  for (int64_t t = 0; t < c->g->machine.tiles; t++)
    work[t] = (uint32_t)at_tiles_derived_work(d, (uint32_t)t);
  s.work = work;
  use(c, d, (int32_t)c->steps.len);
  if (!at_vec_push(c->g->arena, &c->derived, d) ||
      !at_vec_push(c->g->arena, &c->steps, s))
    return AT_NO_MEMORY("steps");
  at_tiles_add(&c->cycles, s.cycles, times);
  return AT_OK;
}

// Steps of p in order. RESOURCE_EXHAUSTED or INVALID_ARGUMENT where there are
// too many steps or turns.
static at_status walk(compiler *c, at_tiles_program *p, int64_t times) {
  if (!p) return AT_OK;
  if (p->kind == AT_TILES_EXECUTE || p->kind == AT_TILES_COPY)
    return add_step(c, p, times);
  int32_t first = (int32_t)c->steps.len;
  int64_t before = c->cycles, inner;
  if (__builtin_mul_overflow(times, p->times, &inner) ||
      inner > AT_TILES_MOST_TURNS)
    return AT_FAIL(AT_INVALID_ARGUMENT, "loops of more than 2^40 turns");
  int64_t dearest = 0;
  for (size_t i = 0; i < p->parts.len; i++) {
    int64_t start = c->cycles;
    AT_TRY(walk(c, p->parts.ptr[i], inner));
    dearest = AT_MAX(dearest, c->cycles - start);
  }
  if (p->kind == AT_TILES_BRANCH) {
    c->cycles = before;
    at_tiles_add(&c->cycles, dearest, 1);
    at_tiles_add(&c->cycles, c->g->machine.sync, times);
  }
  // What a loop touches lives through it: the next turn may want it.
  int32_t last = (int32_t)c->steps.len - 1;
  for (size_t v = 0; p->kind == AT_TILES_REPEAT && v < c->g->vars.len; v++) {
    life *l = &c->lives[v];
    if (!l->seen || l->last < first) continue;
    l->last = last;
    if (l->first > first) l->first = first;
  }
  return AT_OK;
}

// Inputs live from before the program, outputs to after it, and so does what
// nobody reads at last or touches at all.
static void settle_lives(compiler *c) {
  for (size_t v = 0; v < c->g->vars.len; v++) {
    life *l = &c->lives[v];
    uint32_t flags = c->g->vars.ptr[v].flags;
    bool read_last = false;
    if (l->seen && l->last >= 0 && (uint32_t)l->last < c->steps.len &&
        v < c->derived.ptr[l->last]->num_vars)
      read_last = at_tiles_bit(c->derived.ptr[l->last]->reads, (uint32_t)v);
    if (!l->seen || (flags & AT_TILES_INPUT)) l->first = -1;
    if (!l->seen || (flags & AT_TILES_OUTPUT) || !read_last)
      l->last = INT32_MAX;
    AT_ASSERT(l->first >= -1 && l->first <= l->last);
  }
}

// ---- Memory
// Large blocks first; ties by time, then by number.
static int by_size(const void *a, const void *b) {
  const at_tiles_block *x = *(at_tiles_block *const *)a,
                       *y = *(at_tiles_block *const *)b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  return (x > y) - (x < y);
}

// Of two blocks in the order of addresses: is either gone when the other comes,
// or the second behind the first?
static bool are_apart(const at_tiles_block *x, const at_tiles_block *y) {
  return x->last < y->first || y->last < x->first || x->at + x->bytes <= y->at;
}

// The same of any two; b by address.
static bool all_apart(at_tiles_block *const *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = i + 1; k < n && b[k]->at < b[i]->at + b[i]->bytes; k++)
      if (!are_apart(b[i], b[k])) return false;
  return true;
}

// Quadratic in the worst case: every block is compared with those below it.
at_status at_tiles_place(at_tiles_block *b, uint32_t n, int64_t interleaved_at,
                         int64_t *out_high) {
  at_tiles_block **order = malloc((2 * (size_t)n + 1) * sizeof *order);
  if (!order) return AT_NO_MEMORY("memory plan");
  at_tiles_block **placed = order + n;  // by address
  for (uint32_t i = 0; i < n; i++) order[i] = &b[i];
  qsort(order, n, sizeof *order, by_size);
  int64_t high = 0;
  for (uint32_t i = 0; i < n; i++) {
    at_tiles_block *x = order[i];
    x->at = x->interleaved ? interleaved_at : 0;
    for (uint32_t k = 0; k < i; k++) {
      const at_tiles_block *y = placed[k];
      bool together = y->first <= x->last && x->first <= y->last;
      if (!together) continue;
      if (y->at + y->bytes <= x->at) continue;
      if (y->at >= x->at + x->bytes) break;
      x->at = AT_MAX(x->at, y->at + y->bytes);
    }
    uint32_t k = i;
    for (; k > 0 && placed[k - 1]->at > x->at; k--) placed[k] = placed[k - 1];
    placed[k] = x;
    AT_ASSERT(!k || are_apart(placed[k - 1], x));
    AT_ASSERT(k == i || are_apart(x, placed[k + 1]));
    high = AT_MAX(high, x->at + x->bytes);
  }
  AT_VERIFY(all_apart(placed, n));
  free(order);
  *out_high = high;
  return AT_OK;
}

typedef struct blocks {
  at_tiles_block *ptr;
  size_t len, cap;
} blocks;

// Appends a block of whole 8 bytes; none for 0 bytes. False: no memory.
static bool add_block(blocks *b, const char *name, int64_t bytes, int32_t first,
                      int32_t last, at_tiles_category c) {
  if (!bytes) return true;
  at_tiles_block x = {
      name, (int64_t)at_align_up((size_t)bytes, 8), 0, first, last, (uint8_t)c,
      false};
  return at_tiles_push(b, x);
}

// Phase p of a step; -1 and INT32_MAX stay what they are.
static int32_t phase(int32_t step, int32_t p) {
  return step < 0 ? -1 : step >= INT32_MAX / 8 ? INT32_MAX : 4 * step + p;
}

// A variable that a step only writes is not there before that step executes.
static bool add_variable(compiler *c, blocks *b, uint32_t v, int64_t bytes,
                         at_tiles_category k) {
  const life *l = &c->lives[v];
  int32_t first = phase(l->first, 2);
  if (l->first >= 0) {  // a copy's destination receives
    const at_tiles_derived *d = c->derived.ptr[l->first];
    if (d->is_copy) first = phase(l->first, 0);
  }
  bool fine =
      add_block(b, c->g->vars.ptr[v].name, bytes, first, phase(l->last, 3), k);
  if (fine && bytes)
    b->ptr[b->len - 1].interleaved =
        c->g->vars.ptr[v].flags & AT_TILES_INTERLEAVED;
  return fine;
}

// Everything that lies on one tile: variables, copies, and for each step what
// is received and arranged.
static at_status data_blocks(compiler *c, const int64_t *vars,
                             const int64_t *copies, int64_t tile, blocks *b) {
  bool fine = true;
  for (size_t v = 0; v < c->g->vars.len; v++) {
    fine = fine &&
           add_variable(c, b, (uint32_t)v, vars[v], AT_TILES_MEM_VARIABLES);
    fine =
        fine && add_variable(c, b, (uint32_t)v, copies[v], AT_TILES_MEM_COPIES);
  }
  for (size_t s = 0; s < c->derived.len; s++) {
    const at_tiles_derived *d = c->derived.ptr[s];
    int32_t i = (int32_t)s;
    fine = fine &&
           add_block(b, d->name, d->received[tile], 4 * i,
                     4 * i + (d->direct[tile] ? 2 : 1), AT_TILES_MEM_RECEIVED);
    fine = fine && add_block(b, d->name, d->arranged[tile], 4 * i + 1,
                             4 * i + 2, AT_TILES_MEM_ARRANGED);
  }
  return fine ? AT_OK : AT_NO_MEMORY("memory plan");
}

// For qsort, and for finding one again: the order itself means nothing.
static int by_address(const void *a, const void *b) {
  uintptr_t x = (uintptr_t) * (at_tiles_derived *const *)a,
            y = (uintptr_t) * (at_tiles_derived *const *)b;
  return (x > y) - (x < y);
}

// Fills in `distinct`, in an order that no sum depends on.
static at_status find_distinct(compiler *c) {
  size_t n = c->derived.len, k = 0;
  AT_TRY_ALLOC(c->distinct, at_new(c->g->arena, at_tiles_derived *, n + 1));
  if (n) memcpy(c->distinct, c->derived.ptr, n * sizeof *c->distinct);
  if (n) qsort(c->distinct, n, sizeof *c->distinct, by_address);
  for (size_t i = 0; i < n; i++)
    if (!i || c->distinct[i] != c->distinct[k - 1])
      c->distinct[k++] = c->distinct[i];
  c->num_distinct = k;
  return AT_OK;
}

// Code and tables: each compute set once, however often it runs.
static void fixed_bytes(compiler *c, int64_t tile, int64_t *categories) {
  for (size_t s = 0; s < c->num_distinct; s++) {
    const at_tiles_derived *d = c->distinct[s];
    categories[AT_TILES_MEM_VERTICES] += d->vertex_bytes[tile];
    // Steps share codelets; the step with most of them decides.
    categories[AT_TILES_MEM_CODE] =
        AT_MAX(categories[AT_TILES_MEM_CODE], d->code_bytes[tile]);
    categories[AT_TILES_MEM_COPY_DESCRIPTORS] += d->descriptor_bytes[tile];
    categories[AT_TILES_MEM_EXCHANGE_CODE] += d->exchange_code[tile];
  }
  categories[AT_TILES_MEM_STACK] = kStackBytes;
}

// RESOURCE_EXHAUSTED with the fullest tile, the step at which it is fullest and
// the three largest blocks there.
static at_status over_memory(compiler *c, const at_tiles_plan *p,
                             const at_tiles_block *b, uint32_t n) {
  int32_t worst = 0;
  int64_t most = 0;
  for (uint32_t i = 0; i < n; i++) {  // lives begin where memory grows
    int64_t now = 0;
    for (uint32_t k = 0; k < n; k++)
      if (b[k].first <= b[i].first && b[i].first <= b[k].last)
        now += b[k].bytes;
    if (now > most) most = now, worst = b[i].first;
  }
  at_strbuf text = {0};
  for (int rank = 0; rank < 3; rank++) {
    const at_tiles_block *best = NULL;
    int above = 0;
    for (uint32_t i = 0; i < n; i++) {
      if (b[i].first > worst || b[i].last < worst) continue;
      above = 0;
      for (uint32_t k = 0; k < n; k++)
        above +=
            b[k].first <= worst && b[k].last >= worst &&
            (b[k].bytes > b[i].bytes || (b[k].bytes == b[i].bytes && k < i));
      if (above == rank) best = &b[i];
    }
    if (best)
      at_strbuf_addf(&text, "%s%s (%s) %lld bytes", rank ? ", " : "",
                     best->name, at_tiles_category_text(best->category),
                     (long long)best->bytes);
  }
  const char *step = worst < 0 || (size_t)(worst / 4) >= c->steps.len
                         ? "the start"
                         : c->steps.ptr[worst / 4].name;
  at_status st = AT_FAIL(
      AT_RESOURCE_EXHAUSTED,
      "tile %u needs %lld bytes of %lld at step %s\ndetail: largest there: %s\n"
      "hint: spread these tensors over more tiles, or use fragments where they "
      "lie",
      p->fullest, (long long)p->peak_bytes,
      (long long)c->g->machine.bytes_per_tile, step, at_strbuf_str(&text).ptr);
  at_strbuf_free(&text);
  return st;
}

typedef struct memory {
  int64_t *bytes;
  int64_t (*categories)[AT_TILES_MEM_COUNT];
  int64_t *vars, *copies;  // [tiles][variables]
} memory;

// One tile: places its blocks, adds code and tables, and keeps the blocks if it
// is the fullest so far.
static at_status place_tile(compiler *c, memory *m, int64_t tile, blocks *b,
                            at_tiles_plan *p) {
  size_t n = c->g->vars.len;
  b->len = 0;
  AT_TRY(data_blocks(c, m->vars + tile * (int64_t)n,
                     m->copies + tile * (int64_t)n, tile, b));
  int64_t high, live = 0, unshared = 0;
  bool interleaved = false;
  const at_tiles_machine *machine = &c->g->machine;
  AT_TRY(at_tiles_place(b->ptr, (uint32_t)b->len,
                        machine->bytes_per_tile - machine->interleaved_bytes,
                        &high));
  int64_t *k = m->categories[tile];
  for (size_t i = 0; i < b->len; i++) {
    unshared += b->ptr[i].bytes;
    interleaved = interleaved || b->ptr[i].interleaved;
  }
  // Categories show the tile at its fullest; what shares space is not padding.
  int32_t when = -1;
  for (size_t i = 0; i < b->len; i++) {
    int64_t now = 0;
    for (size_t j = 0; j < b->len; j++)
      if (b->ptr[j].first <= b->ptr[i].first &&
          b->ptr[i].first <= b->ptr[j].last)
        now += b->ptr[j].bytes;
    if (now > live) live = now, when = b->ptr[i].first;
  }
  for (size_t i = 0; i < b->len; i++)
    if (b->ptr[i].first <= when && when <= b->ptr[i].last)
      k[b->ptr[i].category] += b->ptr[i].bytes;
  // What lies below the interleaved part leaves room for code and tables.
  if (interleaved && high <= machine->bytes_per_tile) high = live;
  k[AT_TILES_MEM_PADDING] = high - live;
  fixed_bytes(c, tile, k);
  int64_t all = high + k[AT_TILES_MEM_VERTICES] + k[AT_TILES_MEM_CODE] +
                k[AT_TILES_MEM_COPY_DESCRIPTORS] +
                k[AT_TILES_MEM_EXCHANGE_CODE] + k[AT_TILES_MEM_STACK];
  int64_t sum = 0;
  for (int i = 0; i < AT_TILES_MEM_COUNT; i++) sum += k[i];
  AT_ASSERT(sum == all);  // the categories are all that there is
  m->bytes[tile] = all;
  if (all <= p->peak_bytes) return AT_OK;
  p->peak_bytes = all;
  p->data_bytes = high;
  p->unshared_bytes = unshared;
  p->fullest = (uint32_t)tile;
  AT_TRY_ALLOC(p->blocks, at_new(c->g->arena, at_tiles_block, b->len + 1));
  if (b->len) memcpy(p->blocks, b->ptr, b->len * sizeof *b->ptr);
  p->num_blocks = (uint32_t)b->len;
  return AT_OK;
}

// Bytes of every variable on every tile, then tile by tile.
static at_status plan_memory(compiler *c, at_tiles_plan *p) {
  size_t tiles = (size_t)c->g->machine.tiles, n = c->g->vars.len;
  memory m;
  AT_TRY(find_distinct(c));
  AT_TRY_ALLOC(m.bytes, at_new(c->g->arena, int64_t, tiles));
  AT_TRY_ALLOC(m.categories,
               (int64_t(*)[AT_TILES_MEM_COUNT])at_arena_alloc(
                   c->g->arena, at_mul(tiles, sizeof *m.categories), 8));
  m.vars = calloc(2 * tiles * n + 1, sizeof *m.vars);
  if (!m.vars) return AT_NO_MEMORY("memory plan");
  m.copies = m.vars + tiles * n;
  for (size_t v = 0; v < n; v++) {
    const at_tiles_var *x = &c->g->vars.ptr[v];
    int64_t size = at_dtype_bytes(x->dtype);
    for (size_t i = 0; i < x->home.len; i++)
      m.vars[x->home.ptr[i].tile * n + v] +=
          (x->home.ptr[i].end - x->home.ptr[i].begin) * size;
    for (size_t i = 0; i < x->copies.len; i++)
      m.copies[x->copies.ptr[i].tile * n + v] +=
          (x->copies.ptr[i].end - x->copies.ptr[i].begin) * size;
  }
  blocks b = {0};
  at_status st = AT_OK;
  for (size_t t = 0; at_ok(st) && t < tiles; t++)
    st = place_tile(c, &m, (int64_t)t, &b, p);
  p->tile_bytes = m.bytes;
  p->categories = (const int64_t(*)[AT_TILES_MEM_COUNT])m.categories;
  free(b.ptr);
  free(m.vars);
  return st;
}

// ---- Advice
// What would make step i cheaper, if moving, rearranging or idle tiles take a
// large part of it.
static void advise_step(compiler *c, size_t i, at_strbuf *b) {
  const at_tiles_step *s = &c->steps.ptr[i];
  const at_tiles_derived *d = c->derived.ptr[i];
  const at_tiles_machine *m = &c->g->machine;
  int64_t moving = s->sync + s->exchange + s->pre + s->post;
  uint32_t worst = 0;
  for (uint32_t v = 1; v < d->num_vars; v++)
    if (d->moved[v] > d->moved[worst]) worst = v;
  if (moving > s->cycles / 4 && d->num_vars && d->moved[worst])
    at_strbuf_addf(b,
                   "%s: moving data takes %lld of %lld cycles. Tensor %s has "
                   "%lld bytes that vertices elsewhere "
                   "want: run the vertices where it lies (clone its mapping "
                   "for the result) and %lld cycles go.\n",
                   s->name, (long long)moving, (long long)s->cycles,
                   c->g->vars.ptr[worst].name, (long long)d->moved[worst],
                   (long long)moving);
  else if (s->pre + s->post > s->cycles / 4)
    at_strbuf_addf(b,
                   "%s: rearranging inside tiles takes %lld of %lld cycles: "
                   "use regions where they lie, or map "
                   "the tensor in the order in which it is used.\n",
                   s->name, (long long)(s->pre + s->post),
                   (long long)s->cycles);
  if (s->idle_tiles > m->tiles / 8 && s->cycles > 4 * m->sync)
    at_strbuf_addf(
        b,
        "%s: %u of %lld tiles idle while tile %u works %lld cycles: spread "
        "over all tiles, the work "
        "takes about %lld.\n",
        s->name, s->idle_tiles, (long long)m->tiles, s->busiest,
        (long long)(s->pre + s->execute + s->post),
        (long long)(s->balance * (double)(s->pre + s->execute + s->post)));
}

// ---- The tensors that cost the most
static int by_cost(const void *a, const void *b) {
  const at_tiles_tensor *x = a, *y = b;
  if (x->cycles != y->cycles) return x->cycles > y->cycles ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

// totals[s]: what step s moves of all variables.
static at_status tensor_of(compiler *c, uint32_t v, const int64_t *totals,
                           at_tiles_tensor *out) {
  const at_tiles_var *x = &c->g->vars.ptr[v];
  at_arena *a = c->g->arena;
  int64_t dearest = -1, tiles = 0;
  at_strbuf b = {0};
  at_strbuf_addf(&b, "%s[", at_dtype_of(x->dtype)->text);
  for (uint32_t d = 0; d < x->dims.rank; d++)
    at_strbuf_addf(&b, "%s%lld", d ? "," : "", (long long)x->dims.ptr[d]);
  at_strbuf_addc(&b, ']');
  *out = (at_tiles_tensor){.name = x->name};
  out->shape = at_strbuf_move(&b, a);
  for (size_t i = 0; i < x->home.len; i++) {
    int64_t bytes = (x->home.ptr[i].end - x->home.ptr[i].begin) *
                    (int64_t)at_dtype_bytes(x->dtype);
    tiles += !i || x->home.ptr[i].tile != x->home.ptr[i - 1].tile;
    out->tile_bytes = AT_MAX(out->tile_bytes, bytes);
  }
  out->home = at_arena_printf(a, "%lld stretches", (long long)tiles);
  for (size_t s = 0; s < c->derived.len; s++) {
    const at_tiles_derived *d = c->derived.ptr[s];
    const at_tiles_step *step = &c->steps.ptr[s];
    if (v >= d->num_vars || !d->moved[v]) continue;
    int64_t cycles =
        (int64_t)((double)(step->exchange + step->pre) * (double)step->times *
                  (double)d->moved[v] / (double)totals[s]);
    out->bytes += d->moved[v] * step->times;
    out->cycles += cycles;
    if (cycles <= dearest) continue;
    dearest = cycles;
    out->step = step->name;
    out->want = "the places of its vertices";
  }
  return out->shape && out->home ? AT_OK : AT_NO_MEMORY("report");
}

// Variables by what moving them costs over the program.
static at_status rank_tensors(compiler *c, at_tiles_plan *p) {
  at_tiles_tensor *list;
  int64_t *totals;
  AT_TRY_ALLOC(list, at_new(c->g->arena, at_tiles_tensor, c->g->vars.len + 1));
  AT_TRY_ALLOC(totals, at_new(c->g->arena, int64_t, c->derived.len + 1));
  for (size_t s = 0; s < c->derived.len; s++)
    for (uint32_t v = 0; v < c->derived.ptr[s]->num_vars; v++)
      totals[s] += c->derived.ptr[s]->moved[v];
  for (uint32_t v = 0; v < c->g->vars.len; v++) {
    AT_TRY(tensor_of(c, v, totals, &list[p->num_tensors]));
    p->num_tensors += list[p->num_tensors].bytes > 0;
  }
  if (p->num_tensors) qsort(list, p->num_tensors, sizeof *list, by_cost);
  p->tensors = list;
  return AT_OK;
}

// Advice on the first 64 steps.
static at_status advise(compiler *c, at_tiles_plan *p) {
  at_strbuf b = {0};
  for (size_t i = 0; i < c->steps.len && i < 64; i++) advise_step(c, i, &b);
  p->advice = at_strbuf_move(&b, c->g->arena);
  return p->advice ? AT_OK : AT_NO_MEMORY("advice");
}

// Steps and their lives, memory of every tile, then what the report says of
// tensors and steps.
at_status at_tiles_compile(at_tiles_graph *g, at_tiles_program *program,
                           const at_tiles_options *o,
                           const at_tiles_plan **out) {
  compiler c = {.g = g, .o = o};
  at_tiles_plan *p;
  AT_TRY_ALLOC(p, at_new(g->arena, at_tiles_plan, 1));
  AT_TRY_ALLOC(c.lives, at_new(g->arena, life, g->vars.len + 1));
  AT_TRY(walk(&c, program, 1));
  settle_lives(&c);
  p->machine = &g->machine;
  p->steps = c.steps.ptr;
  p->num_steps = (uint32_t)c.steps.len;
  p->cycles = c.cycles;
  AT_TRY(plan_memory(&c, p));
  if (p->peak_bytes > g->machine.bytes_per_tile && !(o && o->lenient))
    return over_memory(&c, p, p->blocks, p->num_blocks);
  AT_TRY(rank_tensors(&c, p));
  AT_TRY(advise(&c, p));
  *out = p;
  return AT_OK;
}
