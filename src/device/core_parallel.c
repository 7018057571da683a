// Steps of different indices of a parallel dimension may run on different
// cores. Where one core runs them all, the checks hold them apart: what one
// left in scratch is undefined for the next, and memory that they share is
// looked at as if each were a core of its own.
#include "device/core_shadow.h"

// The dimensions that cores may share, see core_share.c: those before the first
// that is not parallel.
static uint32_t num_shared(const core_state *c) {
  const at_xcore *r = c->program->record;
  uint32_t n = 0;
  while (n < r->grid_rank && r->semantics[n] == AT_CORE_PARALLEL) n++;
  return n;
}

// Only where one TensorCore runs all steps of a parallel dimension and checks
// or a second run ask for it.
bool parallel_apart(const core_state *c) {
  if (!core_checks(c, AT_CHECK_RACES | kApart) || c->shares ||
      c->program->record->type != AT_CORE_TC)
    return false;
  bool several = false;
  for (uint32_t d = num_shared(c); d-- > 0;) several |= c->bounds[d] > 1;
  return several;
}

// HBM that steps write themselves: arrays that go back whole, not blocks.
bool parallel_shares(const core_state *c, const region *r) {
  if (r->ref < 0 || c->together || !parallel_apart(c)) return false;
  const at_xcore_ref *x = &c->program->refs[r->ref];
  return x->role != AT_CORE_SCRATCH && x->window == AT_CORE_WHOLE &&
         (x->role == AT_CORE_OUT || x->stored || x->alias >= 0);
}

void parallel_text(const core_state *c, char *out, size_t n) {
  uint32_t dims = num_shared(c);
  if (dims == 1)
    snprintf(out, n, "dimension 0 of the grid, which is declared parallel");
  else
    snprintf(out, n,
             "dimensions 0 to %u of the grid, which are declared parallel",
             dims - 1);
}

// Called when output i keeps its block from one step to the next.
void parallel_window_stays(core_state *c, uint32_t i) {
  char name[64], dims[96];
  if (!c->shadow->new_index || !core_checks(c, AT_CHECK_RACES)) return;
  parallel_text(c, dims, sizeof dims);
  core_stop(c, AT_FAILED_PRECONDITION, core_window_loc(c, i),
            "race: the window of %s stays where it is when another index "
            "begins\ndetail: along %s; cores that share it would write the "
            "same block",
            core_ref_text(c, i, name, sizeof name), dims);
}

// ---- From one index to the next
// What one index left is undefined for the next: `carried` remembers what was
// filled, for the message.
static void forget_scratch(core_state *c, uint32_t i) {
  const at_xcore_ref *x = &c->program->refs[i];
  const region *r = core_region_of(c, c->refs[i].base);
  shade *s = r ? core_shade_of(c, r) : NULL;
  if (!s || !s->changed || s->foreign) return;
  if (!s->carried) s->carried = core_shadow_take(c, s->count, 1);
  for (size_t k = 0; k < s->count; k++) s->carried[k] |= s->filled[k];
  memset(s->filled, 0, s->count);
  core_fill(c, r->base, (at_dtype)x->dtype, core_elements(x));
  s->changed = false;
}

// A semaphore that is not back at zero would carry a signal to a step that
// another core may run.
static void no_signals(core_state *c, uint32_t i) {
  const sem *s = c->refs[i].base;
  char dims[96], name[64];
  for (int64_t k = core_elements(&c->program->refs[i]); k-- > 0;) {
    if (!s[k].value || !core_checks(c, AT_CHECK_RACES)) continue;
    parallel_text(c, dims, sizeof dims);
    core_stop(c, AT_FAILED_PRECONDITION, s[k].loc,
              "race: semaphore %lld of %s is %lld when another index begins\n"
              "detail: along %s; its last signal is shown here, and another "
              "core may run the steps of that index",
              (long long)k, core_ref_text(c, i, name, sizeof name),
              (long long)s[k].value, dims);
  }
}

// Row-major number of the current step among the parallel dimensions.
static int64_t index_of_step(const core_state *c) {
  int64_t index = 0;
  for (uint32_t d = 0; d < num_shared(c); d++)
    index = index * c->bounds[d] + c->grid[d];
  return index;
}

// At the begin of each grid step. Each index is an actor of its own to the race
// checks when the core runs alone.
void core_shadow_step(core_state *c) {
  if (!c->shadow->apart) return;
  int64_t index = index_of_step(c);
  c->shadow->new_index = index != c->shadow->index;
  if (index > UINT32_MAX)
    core_stop(c, AT_RESOURCE_EXHAUSTED, -1,
              "no memory for the checks: more than %u steps in parallel",
              UINT32_MAX);
  if (!c->shadow->new_index) return;
  c->shadow->index = index;
  if (!c->together) c->actor = (uint32_t)index;
  for (uint32_t i = 0; i < c->program->record->num_refs; i++) {
    const at_xcore_ref *x = &c->program->refs[i];
    if (x->role != AT_CORE_SCRATCH || x->space == AT_CORE_VMEM_SHARED) continue;
    if (x->space != AT_CORE_SEM)
      forget_scratch(c, i);
    else if (!c->together)
      no_signals(c, i);
  }
}
