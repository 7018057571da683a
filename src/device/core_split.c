// Which steps of a grid may run on several threads. Axes that the kernel
// declares parallel may, if nothing in scratch ties steps together that the
// chip would run on one core. Other axes may when nobody can tell: no scratch,
// no shared memory that the kernel writes, and every block of an output visited
// by one thread only. Loops inside a step may where the kernel's code says so.
#include <stdlib.h>

#include "device/core_internal.h"

// Does state pass from step to step? declared: along axes that the kernel
// declares parallel, where the chip would drop VMEM scratch, too.
bool core_ties_steps(const core_state *c, bool declared) {
  const at_xcore *r = c->program->record;
  if (r->flags & AT_CORE_SEQUENTIAL) return true;
  for (uint32_t i = 0; i < r->num_refs; i++) {
    const at_xcore_ref *x = &c->program->refs[i];
    if (x->role == AT_CORE_PREFETCH && x->stored) return true;
    if (x->role != AT_CORE_SCRATCH && x->space == AT_CORE_SEM) return true;
    if (x->role == AT_CORE_SCRATCH &&
        (!declared || x->space == AT_CORE_SEM || x->space == AT_CORE_SMEM))
      return true;
    if (declared) continue;
    if (x->role == AT_CORE_IN && (x->alias >= 0 || x->stored)) return true;
    if (x->role == AT_CORE_OUT && x->window != AT_CORE_BLOCKED) return true;
  }
  return false;
}

// Do two neighbouring chunks meet in one block of an output? Only the first
// border is looked at: by declaring the axis parallel the kernel promises the
// same for all others.
static bool neighbours_meet(core_state *c, int64_t unit, int64_t steps) {
  const at_xcore *r = c->program->record;
  int32_t a[AT_CORE_MAX_GRID], b[AT_CORE_MAX_GRID];
  core_grid_at(c, unit - 1, a);
  core_grid_at(c, AT_MIN(unit, steps - 1), b);
  for (uint32_t i = 0; i < r->num_refs; i++) {
    const window *w = &c->windows[i];
    if (w->ref->role != AT_CORE_OUT) continue;
    if (!w->operand) {
      if (w->ref->space == AT_CORE_HBM) continue;  // copies of its own
      return true;
    }
    int32_t x[AT_CORE_MAX_RANK], y[AT_CORE_MAX_RANK];
    core_window_index(c, i, a, x);
    core_window_index(c, i, b, y);
    if (!memcmp(x, y, w->ref->rank * sizeof *x)) return true;
  }
  return false;
}

// Row-major; -1: outside of the array.
static int64_t block_number(const at_xcore_ref *x, const int32_t *at) {
  int64_t n = 0;
  for (uint32_t d = 0; d < x->rank; d++) {
    int64_t blocks = x->block[d] ? at_ceil_div(x->dims[d], x->block[d]) : 1;
    if (at[d] < 0 || at[d] >= blocks) return -1;
    n = n * blocks + at[d];
  }
  return n;
}

// Saturates.
int64_t core_block_count(const at_xcore_ref *x) {
  int64_t n = 1;
  for (uint32_t d = 0; d < x->rank; d++)
    n = (int64_t)at_mul(
        (size_t)n,
        x->block[d] ? (size_t)at_ceil_div(x->dims[d], x->block[d]) : 1);
  return n;
}

// Does one chunk alone visit each block of output i? Walks all steps: at most
// 2^18 of them and 2^22 blocks.
static bool one_owner(core_state *c, uint32_t i, int64_t chunk, int64_t steps) {
  const at_xcore_ref *x = c->windows[i].ref;
  int64_t blocks = core_block_count(x);
  if (blocks < 1 || blocks > 1 << 22) return false;
  int32_t *owner = malloc((size_t)blocks * sizeof *owner);
  if (!owner) return false;
  memset(owner, 0xff, (size_t)blocks * sizeof *owner);
  bool good = true;
  for (int64_t s = 0; s < steps && good; s++) {
    int32_t grid[AT_CORE_MAX_GRID], at[AT_CORE_MAX_RANK];
    core_grid_at(c, s, grid);
    core_window_index(c, i, grid, at);
    int64_t b = block_number(x, at);
    AT_ASSERT(b < blocks);
    int32_t me = (int32_t)(s / chunk);
    good = b >= 0 && (owner[b] < 0 || owner[b] == me);
    if (good) owner[b] = me;
  }
  free(owner);
  return good;
}

// For every output.
static bool owners_differ(core_state *c, int64_t chunk, int64_t steps) {
  const at_xcore *r = c->program->record;
  for (uint32_t i = 0; i < r->num_refs; i++)
    if (c->windows[i].ref->role == AT_CORE_OUT &&
        !one_owner(c, i, chunk, steps))
      return false;
  return true;
}

// Steps of a chunk, a multiple of `unit`; 0: fewer units than threads.
static int64_t chunk_of(int64_t steps, int64_t unit, const core_split_plan *p) {
  int64_t units = steps / unit;
  if (units < p->threads) return 0;
  int64_t chunks = (int64_t)p->threads * p->chunks_per_thread;
  int64_t chunk = at_ceil_div(units, chunks) * unit;
  AT_ASSERT(chunk >= unit && chunk % unit == 0 && steps % unit == 0);
  return chunk;
}

// p->chunk stays 0 where the steps stay together. First along the declared
// axes, as those need no look at blocks; then along any axes, from the
// innermost, as long as each block has one owner.
void core_plan_split(core_state *c, void *arg) {
  core_split_plan *p = arg;
  const at_xcore *r = c->program->record;
  int64_t steps = core_grid_steps(c), unit = steps;
  uint32_t d = 0;
  for (; d < r->grid_rank && r->semantics[d] == AT_CORE_PARALLEL; d++)
    unit /= c->bounds[d];
  if (d && !core_ties_steps(c, true)) {
    int64_t chunk = chunk_of(steps, unit, p);
    if (chunk && chunk < steps && !neighbours_meet(c, unit, steps)) {
      p->chunk = chunk;
      return;
    }
  }
  if (core_ties_steps(c, false) || steps > 1 << 18) return;
  unit = 1;
  for (d = r->grid_rank; d-- > 0; unit *= c->bounds[d]) {
    int64_t chunk = chunk_of(steps, unit, p);
    if (!chunk || chunk >= steps) return;
    if (!owners_differ(c, chunk, steps)) continue;
    p->chunk = chunk;
    return;
  }
}

// ---- Loops inside a step
typedef struct shared_loop {
  at_core_turns_fn fn;
  void *arg;
  uint8_t *memory;
  size_t bytes;
} shared_loop;

// Each worker has memory of its own.
static void run_turns(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const shared_loop *s = arg;
  uint8_t *own = s->bytes ? s->memory + worker * s->bytes : NULL;
  s->fn(s->arg, begin, end, own);
}

// Runs fn over 0..n on the pool; bytes: scratch of each thread. alone: one
// thread takes all turns. Memory is kept for the next loop of this core.
void at_core_share(at_core *core, at_core_turns_fn fn, void *arg, int64_t n,
                   int64_t bytes, int32_t alone) {
  core_state *c = state_of(core);
  at_pool *pool = c->launch->par->pool;
  uint32_t threads = at_pool_threads(pool);
  size_t own = at_align_up((size_t)bytes, 64), all = own * threads;
  if (all > c->shared_bytes) {
    c->shared = core_take(c, all, "loops that threads share");
    c->shared_bytes = all;
  }
  shared_loop s = {fn, arg, c->shared, own};
  int64_t grain = alone ? n : at_ceil_div(n, threads);
  at_pool_for(pool, n, grain, run_turns, &s);
}
