// The checks: what each byte of a core's memories holds and who touched it
// last. Generated code announces its loads and stores; copies, windows and
// allocations come from this room.
#include "device/core_shadow.h"

#include <stdlib.h>

// Zeroed, one element more than asked for, so that it is never NULL. Freed by
// core_shadow_free. Stops c without memory.
void *core_shadow_take(core_state *c, size_t n, size_t bytes) {
  void *p = calloc(n + 1, bytes);
  if (!p) core_stop(c, AT_RESOURCE_EXHAUSTED, -1, "no memory for the checks");
  return p;
}

// Doubles; 32-bit capacities that would overflow count as no memory.
void *core_shadow_grow(core_state *c, void *list, uint32_t n, uint32_t *cap,
                       size_t bytes) {
  if (n < *cap) return list;
  uint32_t more = *cap ? 2 * *cap : 32;
  void *grown = more > *cap ? realloc(list, more * bytes) : NULL;
  if (!grown)
    core_stop(c, AT_RESOURCE_EXHAUSTED, -1, "no memory for the checks");
  *cap = more;
  return grown;
}

// ---- Set-up
// Checks look at elements where the memory has a type, at bytes where it has
// none.
static size_t granule_of(const core_state *c, const region *r) {
  if (r->ref < 0) return 1;
  const at_xcore_ref *x = &c->program->refs[r->ref];
  return AT_MAX(at_dtype_bytes((at_dtype)x->dtype), 1u);
}

// Other cores' regions have other numbers, so base and size are compared.
static shade *shade_among(const core_state *o, const region *r) {
  for (uint32_t i = 0; o->shadow && i < o->num_regions; i++)
    if (o->regions[i].base == r->base && o->regions[i].bytes == r->bytes &&
        o->shadow->shades[i])
      return o->shadow->shades[i];
  return NULL;
}

// Another core's shade of the same memory: of the first core of a program, or
// of the subcores of one core.
static shade *shared(const core_state *c, const region *r) {
  shade *s = c->sibling ? shade_among(c->sibling, r) : NULL;
  for (uint32_t i = 0; i < c->team.num && !s; i++) {
    const core_state *o = &c->team.cores[i];
    if (o < c && !o->elder) s = shade_among(o, r);
  }
  return s;
}

// Inputs, and outputs that alias an input: what the caller put there is
// defined.
bool shade_starts_filled(const core_state *c, const region *r) {
  if (r->ref < 0) return false;
  const at_xcore_ref *x = &c->program->refs[r->ref];
  if (x->role == AT_CORE_IN || x->role == AT_CORE_PREFETCH) return true;
  if (x->role != AT_CORE_OUT) return false;
  for (uint32_t i = 0, out = 0; i < c->program->record->num_refs; i++) {
    if (c->program->refs[i].role != AT_CORE_OUT) continue;
    if (i == (uint32_t)r->ref) {
      for (uint32_t k = 0; k < c->program->record->num_refs; k++)
        if (c->program->refs[k].role == AT_CORE_IN &&
            c->program->refs[k].alias == (int32_t)out)
          return true;
      return false;
    }
    out++;
  }
  return false;
}

// Made on first use, NULL for semaphores. Where cores share memory, they share
// its shade: the first to ask owns it, which is why core.c frees cores last to
// first.
shade *core_shade_of(core_state *c, const region *r) {
  AT_ASSERT(r >= c->regions && r < c->regions + c->num_regions);
  shade **at = &c->shadow->shades[r - c->regions];
  if (*at || r->space == AT_CORE_SEM) return *at;
  *at = shared(c, r);
  AT_ASSERT(!*at || (*at)->count * (*at)->granule >= r->bytes);
  if (*at) return *at;
  shade *s = &c->shadow->own[r - c->regions];
  s->granule = granule_of(c, r);
  s->count = (size_t)at_ceil_div((int64_t)r->bytes, (int64_t)s->granule);
  s->filled = core_shadow_take(c, s->count, 1);
  if (c->together || parallel_shares(c, r))
    s->cells = core_shadow_take(c, s->count, sizeof *s->cells);
  if (shade_starts_filled(c, r)) memset(s->filled, 1, s->count);
  return *at = s;
}

// After the arguments are set up. Scratch is filled with poison; shared scratch
// once, by the first core.
void core_shadow_init(core_state *c) {
  c->shadow = core_shadow_take(c, 1, sizeof *c->shadow);
  shadow *s = c->shadow;
  s->shades = core_shadow_take(c, c->cap_regions, sizeof *s->shades);
  s->own = core_shadow_take(c, c->cap_regions, sizeof *s->own);
  s->last_store = core_shadow_take(c, c->program->record->num_locations + 2,
                                   sizeof *s->last_store);
  s->visits =
      core_shadow_take(c, c->program->record->num_refs, sizeof *s->visits);
  s->waited = core_shadow_take(c, c->cap_sems, sizeof *s->waited);
  s->now = 1;
  s->apart = parallel_apart(c);
  if (c->together)
    s->sem_clock = core_shadow_take(c, c->cap_sems, sizeof *s->sem_clock);
  const at_xcore *r = c->program->record;
  for (uint32_t i = 0; i < r->num_refs; i++) {
    const at_xcore_ref *x = &c->program->refs[i];
    if (x->role != AT_CORE_SCRATCH || x->space == AT_CORE_SEM) continue;
    int64_t n = 1;
    for (uint32_t d = 0; d < x->rank; d++) n *= x->dims[d];
    if (!c->elder || x->space != AT_CORE_VMEM_SHARED)
      core_fill(c, c->refs[i].base, (at_dtype)x->dtype, n);
  }
  for (uint32_t i = 0; i < c->num_regions; i++)
    core_shade_of(c, &c->regions[i]);
}

// Also of a core whose set-up stopped half-way.
void core_shadow_free(core_state *c) {
  shadow *s = c->shadow;
  if (!s) return;
  for (uint32_t i = 0; s->own && i < c->num_regions; i++) {
    free(s->own[i].filled);
    free(s->own[i].cells);
    free(s->own[i].strays);
    free(s->own[i].stores);
    free(s->own[i].carried);
  }
  for (uint32_t i = 0; s->visits && i < c->program->record->num_refs; i++)
    free(s->visits[i].blocks);
  free(s->shades);
  free(s->own);
  free(s->last_store);
  free(s->visits);
  for (uint32_t i = 0; s->sem_clock && i < c->cap_sems; i++)
    clock_free(&s->sem_clock[i]);
  clock_free(&s->known);
  marks_free(&s->own_marks);
  free(s->sem_clock);
  free(s->mistaken);
  free(s->arrivals);
  free(s->landings);
  free(s->fetches);
  free(s->waited);
  free(s->flights);
  free(s);
  c->shadow = NULL;
}

// ---- Semaphores
// Release: who waits for the semaphore later knows all that `from` knows now.
void core_shadow_signal(core_state *from, core_state *to, const sem *s) {
  shadow *me = from->shadow;
  if (!to->shadow || !to->shadow->sem_clock) return;
  AT_ASSERT(s >= to->sems && s < to->sems + to->cap_sems);
  actor_clock *at = &to->shadow->sem_clock[s - to->sems];
  clock_join(from, at, &me->known);
  clock_raise(from, at, from->actor, me->now++);
}

// Acquire. Copies that signal this semaphore count as waited for.
void core_shadow_wait(core_state *c, const sem *s, int64_t amount) {
  flights_waited(c, s, amount);
  if (c->shadow->sem_clock)
    clock_join(c, &c->shadow->known, &c->shadow->sem_clock[s - c->sems]);
}

// ---- Allocations
// New memory holds nothing, whatever was there before.
void core_shadow_alloc(core_state *c, void *p, size_t bytes) {
  const region *r = core_region_of(c, p);
  shade *s = r ? core_shade_of(c, r) : NULL;
  if (!s) return;
  memset(p, 0xff, bytes);
  memset(s->filled + ((uint8_t *)p - r->base), 0, bytes);
  flights_forget(c, p, bytes);
}

// When a scope ends no copy may still read or write its memory, and what
// emit_pipeline fetched there and was stored to must have been read.
void core_shadow_freed(core_state *c, uint8_t *p, size_t bytes, int32_t loc) {
  area box = area_of_bytes(p, bytes);
  flight f;
  if (bytes && core_checks(c, AT_CHECK_RACES) &&
      flights_find(c, &box, ACCESS_WRITES, &f))
    core_stop(c, AT_FAILED_PRECONDITION, f.by == c ? f.loc : loc,
              "race: a scope ends while this copy still %s its memory\n"
              "detail: it has not been waited for when run_scoped returns",
              f.writes ? "writes" : "reads");
  blocks_forget(c, p, bytes);
  const region *r = core_region_of(c, p);
  const shade *s = r && bytes ? core_shade_of(c, r) : NULL;
  if (s && s->stored_at && core_checks(c, AT_CHECK_UNINIT) &&
      memchr(s->filled + (p - r->base), kFetchedStored, bytes))
    report_lost_in_pipeline(c, s, "the pipeline ended");
}
