// The grid of a kernel as a timeline: windows move side by side, one step ahead
// of the body where they have two buffers.
#include "tpu/timing.h"

#include <math.h>

#include "tpu/rules.h"
#include "tpu/timing_internal.h"

enum {
  kMaxRank = 16,
  kTimeline = 4096,       // steps that are kept
  kMostSteps = 1 << 20,   // of a grid that is walked
  kExactWork = 4 << 20,   // ops that are looked at, one by one
  kMostWork = 16 << 20,   // the same where constants tell steps apart
  kExactTurns = 1 << 16,  // the same of a step's loops
  kClasses = 3            // first, inner, last: where a step stands
};

typedef struct cached {
  bool there;
  double time, latency, waits, flops, copied;
  at_mosaic_units all;
} cached;

typedef struct grid {
  const at_mosaic_program *p;
  const at_mosaic_chip *rules;
  at_ms_body body;
  at_arena *scratch;
  int64_t bounds[16], begin[16], count[16];  // this core's part
  int64_t exact;                             // as at_ms_body_run takes it
  cached *classes;                           // NULL: every step is looked at
  size_t num_classes;
  uint32_t exact_ids;  // bits: each id of these is a class of its own
  bool coarse;         // there were too many of them
  int64_t *now;        // per window: where it is
  bool *there;
  double between;  // cycles of a step beside its body
  double *moves, *bytes;
  double *work;  // per window: cycles in which its block is made
} grid;

// In the block and in all regions inside it.
int64_t at_ms_count_ops(const at_mblock *b) {
  int64_t n = b->num_ops;
  for (uint32_t i = 0; i < b->num_ops; i++)
    for (uint32_t r = 0; r < b->ops[i]->num_regions; r++)
      for (uint32_t k = 0; k < b->ops[i]->regions[r]->num_blocks; k++)
        n += at_ms_count_ops(b->ops[i]->regions[r]->blocks[k]);
  return n;
}

// ---- Cores
// As device/core_share.c splits a grid between the cores of a chip.
static void share(grid *g, at_mosaic_timing *s) {
  s->busy = 1;
  // The first parallel dimension that cores share evenly, else the first that
  // has anything to share.
  int64_t best = -1;
  for (uint32_t d = 0; d < g->p->grid_rank; d++) {
    if (g->p->grid[d].semantics != AT_MDIM_PARALLEL) break;
    if (g->bounds[d] < 2) continue;
    if (best < 0) best = d;
    if (g->bounds[d] % s->cores == 0) {
      best = d;
      break;
    }
  }
  if (best >= 0) {
    s->busy = (uint32_t)AT_MIN((int64_t)s->cores, g->bounds[best]);
    g->count[best] = at_ceil_div(g->bounds[best], (int64_t)s->busy);
  }
  for (uint32_t d = 0; d < g->p->grid_rank; d++)
    if (g->p->grid[d].semantics >= AT_MDIM_CORE_PARALLEL) {
      s->busy = (uint32_t)AT_MIN((int64_t)s->cores, g->bounds[d]);
      g->count[d] = 1;
    }
}

// ---- Bodies
// The body's time at these grid ids. Steps of one class (first, inner, last
// along each dimension) are alike, and the body is looked at once per class.
static at_status run_body(grid *g, const int64_t *ids, cached *out) {
  cached *c = NULL;
  int64_t at[16];
  memcpy(at, ids, sizeof at);
  if (g->classes) {
    size_t index = 0;
    for (uint32_t d = 0; d < g->p->grid_rank; d++) {
      bool last = ids[d] + 1 == g->bounds[d];
      if (g->exact_ids >> d & 1) {
        index = index * (size_t)g->bounds[d] + (size_t)ids[d];
        continue;
      }
      index = index * kClasses + (ids[d] == 0 ? 0 : last ? 2 : 1);
      if (ids[d] && !last) at[d] = g->bounds[d] / 2;
    }
    AT_ASSERT(index < g->num_classes);
    c = &g->classes[index];
    if (c->there) return *out = *c, AT_OK;
  }
  AT_TRY(at_ms_body_run(&g->body, at, g->exact));
  *out = (cached){true,          g->body.time,  g->body.latency.cycles,
                  g->body.waits, g->body.flops, g->body.copied,
                  g->body.all};
  if (c) *c = *out;
  return AT_OK;
}

// Small grids are walked step by step. In larger ones ids that constants depend
// on are told apart one by one, as long as that is not too much work.
static at_status make_classes(grid *g, int64_t steps, at_arena *a) {
  size_t n = 1;
  int64_t each = at_ms_count_ops(g->p->body);
  if (each <= kExactWork / AT_MAX(steps, (int64_t)1)) {
    g->exact = AT_MIN(kExactWork / AT_MAX(steps, (int64_t)1) - each,
                      (int64_t)kExactTurns);
    return AT_OK;
  }
  g->exact = kExactTurns;
  if (g->p->grid_rank > 8) return AT_OK;
  // Classes: three for each dimension, or one for each id where a constant
  // tells them apart.
  // Constants that are read differ from step to step, along some dimensions.
  double ways = 1;
  AT_TRY(at_ms_constant_ids(g->p, g->body.values.given, a, &g->exact_ids));
  for (uint32_t d = 0; d < g->p->grid_rank; d++)
    ways *= g->exact_ids >> d & 1 ? (double)g->bounds[d] : kClasses;
  if (ways * (double)each > kMostWork) {
    g->coarse = g->exact_ids != 0;
    g->exact_ids = 0;
  }
  for (uint32_t d = 0; d < g->p->grid_rank; d++)
    n *= g->exact_ids >> d & 1 ? (size_t)g->bounds[d] : kClasses;
  g->num_classes = n;
  AT_TRY_ALLOC(g->classes, at_new(a, cached, n));
  return AT_OK;
}

// ---- Windows
// Windows in VMEM or SMEM, but for those that XLA keeps there.
static bool is_moved(const at_mosaic_window *w) {
  bool vmem = w->ref.space == AT_MSPACE_VMEM || w->ref.space == AT_MSPACE_SMEM;
  return vmem && w->color != AT_MCOLOR_VMEM && w->ref.semaphore == AT_MSEM_NONE;
}

// What moves for a step: bytes, and those of the largest window.
typedef struct moved {
  double in, out, largest_in, largest_out;
  double work;        // cycles in which blocks are made
  bool alone;         // the body before it must have ended
  bool follows_data;  // where a window is
} moved;

// Windows that come in for this step, and outputs that leave before it.
static at_status move(grid *g, const int64_t *ids, bool last, moved *m) {
  for (uint32_t i = 0; i < g->p->num_windows; i++) {
    const at_mosaic_window *w = &g->p->windows[i];
    if (!is_moved(w)) continue;
    int64_t at[kMaxRank] = {0}, *now = g->now + (size_t)i * kMaxRank;
    bool known = true;
    if (!last && w->kind != AT_MWIN_WHOLE)
      AT_TRY(at_ms_window_at(&g->body.values, w, ids, at, &known));
    m->follows_data |= !known;
    bool same = g->there[i] && known && !last &&
                !memcmp(at, now, w->bounds.rank * sizeof *at);
    if (same) continue;
    // An output leaves when its place changes; what it was before is gone from
    // VMEM.
    if (w->is_output && g->there[i]) {
      m->out += g->bytes[i];
      m->largest_out = fmax(m->largest_out, g->bytes[i]);
      g->moves[i]++;
    }
    g->there[i] = true;
    memcpy(now, at, sizeof at);
    if (last || w->is_output) continue;
    m->in += g->bytes[i];
    m->largest_in = fmax(m->largest_in, g->bytes[i]);
    m->work += g->work[i];
    g->moves[i]++;
    m->alone |= w->buffers_given && w->buffers == 1;
  }
  return AT_OK;
}

// ---- The timeline
// Row-major over this core's part of the grid.
static void ids_of(const grid *g, int64_t step, int64_t *ids) {
  for (uint32_t d = g->p->grid_rank; d-- > 0;) {
    ids[d] = step % g->count[d] + g->begin[d];
    step /= g->count[d];
  }
  AT_ASSERT(!step);  // a step of this core's part
}

// The windows of a step are copied side by side. Returns when all are there; 0:
// nothing moves.
static double copy_windows(const at_ms_copy *c, double latency, double now,
                           double largest, double all, double *start,
                           double *end) {
  if (largest <= 0) return 0;
  *start = now;
  return *end = now + latency + at_ms_copy_time(c, largest, all);
}

// Windows in and out move side by side; what the body copies is added.
static void count_moves(at_mosaic_timing *s, const moved *m, double copied,
                        const at_ms_copy *c) {
  double in = at_ms_copy_time(c, m->largest_in, m->in);
  double out = at_ms_copy_time(c, m->largest_out, m->out);
  s->transfer_in += in;
  s->transfer_out += out;
  s->transfer += fmax(in, out) + copied / c->rate;
  s->hbm_bytes += (m->in + m->out + copied) * s->busy;
  s->follows_data |= m->follows_data;
}

// What the steps before one have left.
typedef struct past {
  double freed;  // when the step before the last one had ended
  double ended;  // the body before it
  double gone;   // outputs that left with it
} past;

// A step first starts the copies for the next one and waits for its own, which
// the step before it has started. After its body, what it wrote leaves, and
// what left before must be gone.
static at_status step(grid *g, const int64_t *ids, const at_ms_copy *copy,
                      past *p, at_mosaic_timing *s, at_mosaic_step *t) {
  moved m = {.alone = t->index == 0};
  AT_TRY(move(g, ids, false, &m));
  t->in_bytes = m.in;
  t->out_bytes = m.out;
  // The body before has ended, and what it wrote two steps ago has left its
  // buffer.
  double free = fmax(p->ended, p->gone);
  p->gone = copy_windows(copy, copy->latency_out, p->ended, m.largest_out,
                         m.out, &t->out_start, &t->out_end);
  double came = copy_windows(copy, copy->latency_in, m.alone ? free : p->freed,
                             m.largest_in, m.in, &t->in_start, &t->in_end);
  t->start = fmax(free + g->between, came);
  cached c;
  AT_TRY(run_body(g, ids, &c));
  t->end = t->start + c.time + c.latency + m.work;
  c.all.vector += m.work;
  s->bubbles += t->start - t->ready;
  s->compute += c.time + c.latency + m.work - c.waits;
  s->waits += c.waits;
  s->flops += c.flops * s->busy;
  count_moves(s, &m, c.copied, copy);
  at_ms_units_sum(&s->units, &c.all);
  p->freed = free;
  p->ended = t->end;
  return AT_OK;
}

// Prefetch, every step, and the outputs that leave after the last one.
static at_status walk(grid *g, const at_tpu_chip *chip, at_arena *a,
                      at_mosaic_timing *s) {
  at_ms_copy copy = at_ms_copy_of(chip);
  uint32_t kept = (uint32_t)AT_MIN(s->steps, (int64_t)kTimeline);
  at_mosaic_step *line;
  AT_TRY_ALLOC(line, at_new(a, at_mosaic_step, kept + 1));
  double first = at_ms_prefetch(g->p, &copy);
  past p = {.freed = first, .ended = first};
  s->bubbles += first;
  int64_t ids[16] = {0};
  for (int64_t i = 0; i < s->steps; i++) {
    at_mosaic_step t = {.index = i, .ready = p.ended};
    ids_of(g, i, ids);
    AT_TRY(step(g, ids, &copy, &p, s, &t));
    if (i < kept) line[s->num_timeline++] = t;
  }
  at_mosaic_step t = {
      .index = s->steps, .ready = p.ended, .start = p.ended, .end = p.ended};
  moved m = {0};
  AT_TRY(move(g, ids, true, &m));
  t.out_bytes = m.out;
  // Nothing runs beside the last outputs.
  double left = copy_windows(&copy, copy.latency_out, p.ended, m.largest_out,
                             m.out, &t.out_start, &t.out_end);
  count_moves(s, &m, 0, &copy);
  s->cycles = fmax(p.ended, left);
  s->bubbles += s->cycles - p.ended;
  t.end = s->cycles;
  if (kept == s->steps) line[s->num_timeline++] = t;
  AT_ASSERT(s->num_timeline <= kept + 1);
  s->timeline = line;
  return AT_OK;
}

// ---- Set-up
static int64_t given_bound(const at_mosaic_given *given, uint32_t operand) {
  return given && operand < given->num_bounds ? given->bounds[operand] : -1;
}

// Bounds that the call brings must be given, or counted as
// AT_MOSAIC_UNKNOWN_STEPS.
static at_status bounds_of(grid *g, const at_mosaic_kernel *k,
                           const at_mosaic_given *given) {
  if (g->p->grid_rank > AT_LEN(g->bounds))
    return AT_FAIL(AT_UNIMPLEMENTED, "kernel %s: a grid of %u dimensions",
                   k->name, g->p->grid_rank);
  for (uint32_t d = 0; d < g->p->grid_rank; d++) {
    const at_mosaic_axis *x = &g->p->grid[d];
    int64_t n = x->dynamic ? given_bound(given, x->operand) : x->bound;
    if (n < 0 && given && given->zeros) n = AT_MOSAIC_UNKNOWN_STEPS;
    if (n < 0)
      return AT_FAIL(AT_FAILED_PRECONDITION,
                     "kernel %s: bound %u of its grid is known at run time",
                     k->name, d);
    g->bounds[d] = g->count[d] = n;
  }
  for (uint32_t i = 0; i < g->p->num_windows; i++)
    if (g->p->windows[i].bounds.rank > kMaxRank)
      return AT_FAIL(AT_UNIMPLEMENTED, "kernel %s: a window of rank %u",
                     k->name, g->p->windows[i].bounds.rank);
  return AT_OK;
}

// A scalar has one.
static double elements_of(at_dims d) {
  double n = 1;
  for (uint32_t i = 0; i < d.rank; i++) n *= (double)d.ptr[i];
  return n;
}

// Instead of a block, what it is made from comes from HBM.
static void make_input(grid *g, uint32_t i, const at_mosaic_made *made) {
  const at_mosaic_window *w = &g->p->windows[i];
  double block = elements_of(w->bounds);
  double whole = elements_of((at_dims){w->whole.dims, w->whole.rank});
  if (w->is_output || w->index != made->operand || whole <= 0) return;
  double registers = at_tpu_tiles(w->bounds);
  g->bytes[i] = made->bytes * block / whole;
  g->work[i] = made->ops * registers / at_ms_vector_slots();
}

// Bytes of each window's block in its padded layout.
static at_status make_windows(grid *g, const at_mosaic_given *given,
                              at_arena *a) {
  uint32_t n = g->p->num_windows;
  AT_TRY_ALLOC(g->now, at_new(a, int64_t, (size_t)n * kMaxRank + 1));
  AT_TRY_ALLOC(g->there, at_new(a, bool, n + 1));
  AT_TRY_ALLOC(g->moves, at_new(a, double, n + 1));
  AT_TRY_ALLOC(g->bytes, at_new(a, double, n + 1));
  AT_TRY_ALLOC(g->work, at_new(a, double, n + 1));
  for (uint32_t i = 0; i < n; i++) {
    const at_mosaic_window *w = &g->p->windows[i];
    if (is_moved(w))
      g->bytes[i] = (double)at_mosaic_ref_bytes(g->rules, &w->ref, true);
    for (uint32_t m = 0; given && m < given->num_made; m++)
      make_input(g, i, &given->made[m]);
  }
  return AT_OK;
}

// Linear in the steps that are walked; at most kMostSteps.
at_status at_mosaic_timing_of(const at_mosaic_kernel *k, uint32_t program,
                              const at_machine *machine,
                              const at_mosaic_given *given, at_arena *a,
                              at_mosaic_timing **out) {
  at_tpu_chip chip;
  AT_TRY(at_ms_units_load());
  AT_TRY(at_tpu_chip_of(machine, &chip));
  const at_mosaic_chip *rules = at_mosaic_chip_find(at_str_of(machine->name));
  if (!rules)
    return AT_FAIL(AT_FAILED_PRECONDITION, "no rules for kernels on %s",
                   machine->name);
  if (k->symbolic)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "kernel %s was exported for symbolic shapes, which are not "
                   "known here",
                   k->name);
  grid g = {.p = &k->programs[program], .rules = rules, .scratch = a};
  g.between = at_ms_step(g.p);
  AT_TRY(bounds_of(&g, k, given));
  AT_TRY(make_windows(&g, given, a));
  g.body = (at_ms_body){.values = {.arena = a,
                                   .known = at_map_in(a),
                                   .program = g.p,
                                   .zeros = given && given->zeros,
                                   .given = given,
                                   .bounds = g.bounds},
                        .chip = &chip,
                        .scratch = a};
  at_mosaic_timing *s;
  AT_TRY_ALLOC(s, at_new(a, at_mosaic_timing, 1));
  *s = (at_mosaic_timing){.kernel = k->name,
                          .target = machine->name,
                          .clock = chip.clock,
                          .cores = (uint32_t)chip.cores,
                          .memory = at_mosaic_memory_of(g.p, rules),
                          .vmem_limit = k->config.vmem_limit_bytes >= 0
                                            ? k->config.vmem_limit_bytes
                                            : rules->vmem_scoped_bytes,
                          .vmem_bytes = rules->vmem_bytes,
                          .moves = g.moves};
  share(&g, s);
  // As a double: bounds may multiply to more than fits an integer.
  double steps = 1;
  for (uint32_t d = 0; d < g.p->grid_rank; d++) steps *= (double)g.count[d];
  if (steps > kMostSteps)
    return AT_FAIL(AT_UNIMPLEMENTED, "kernel %s: a grid of %g steps", k->name,
                   steps);
  s->steps = (int64_t)steps;
  AT_TRY(make_classes(&g, s->steps, a));
  AT_TRY(walk(&g, &chip, a, s));
  s->follows_data |= g.body.follows_data || g.coarse;
  s->seconds = s->cycles / s->clock;
  *out = s;
  return AT_OK;
}
