// Copies on their way: between the start of a copy and the wait for it nobody
// may write what it reads, nor touch what it writes.
#include <stdio.h>
#include <stdlib.h>

#include "device/core_shadow.h"

area area_of_view(const at_core_view *v) {
  area a = {.base = v->base,
            .rank = (uint32_t)v->rank,
            .elem_bytes = (uint32_t)v->elem_bytes};
  memcpy(a.size, v->size, sizeof a.size);
  memcpy(a.stride, v->stride, sizeof a.stride);
  return a;
}

// ---- Overlap
// Bytes from the first to behind the last of dimensions [d, rank).
static int64_t extent(const area *a, uint32_t d) {
  int64_t n = a->elem_bytes;
  for (; d < a->rank; d++) {
    if (a->size[d] <= 0) return 0;
    n += (a->size[d] - 1) * a->stride[d];
  }
  return n;
}

int64_t area_extent(const area *a) { return extent(a, 0); }

// Does [lo, hi) meet the part of the box below dimension d at `base`?
static uint8_t *hits(const area *a, uint32_t d, uint8_t *base, uint8_t *lo,
                     uint8_t *hi) {
  int64_t n = extent(a, d);
  if (base >= hi || base + n <= lo) return NULL;
  if (d == a->rank) return AT_MAX(base, lo);
  int64_t inner = extent(a, d + 1), step = a->stride[d];
  int64_t first = 0, last = a->size[d] - 1;
  if (step > 0) {
    if (lo - base >= inner) first = (lo - base - inner) / step + 1;
    last = AT_MIN(last, (hi - base - 1) / step);
  }
  for (int64_t i = first; i <= last; i++) {
    uint8_t *p = hits(a, d + 1, base + i * step, lo, hi);
    if (p) return p;
  }
  return NULL;
}

// Dimensions from here on are dense.
static uint32_t dense_from(const area *a) {
  int64_t want = a->elem_bytes;
  uint32_t d = a->rank;
  while (d > 0 && (a->stride[d - 1] == want || a->size[d - 1] == 1)) {
    want *= a->size[d - 1];
    d--;
  }
  return d;
}

// The box as runs of bytes, each held against b.
static uint8_t *walk(const area *a, uint32_t d, uint32_t dense, uint8_t *at,
                     const area *b) {
  if (d == dense) return hits(b, 0, b->base, at, at + extent(a, d));
  for (int64_t i = 0; i < a->size[d]; i++) {
    uint8_t *p = walk(a, d + 1, dense, at + i * a->stride[d], b);
    if (p) return p;
  }
  return NULL;
}

// Quick tests first: empty boxes, and ranges of bytes that do not meet.
uint8_t *area_overlap(const area *a, const area *b) {
  int64_t na = extent(a, 0), nb = extent(b, 0);
  for (uint32_t d = 0; d < a->rank; d++)
    if (a->size[d] <= 0) return NULL;
  for (uint32_t d = 0; d < b->rank; d++)
    if (b->size[d] <= 0) return NULL;
  if (a->base >= b->base + nb || b->base >= a->base + na) return NULL;
  return walk(a, 0, dense_from(a), a->base, b);
}

// ---- The list
// What c would disturb of the copies that `of` lists.
static bool find_among(core_state *c, const core_state *of, const area *box,
                       access_kind kind, flight *out) {
  const shadow *s = of->shadow;
  core_lock(c);  // others may add theirs
  bool found = false;
  // The latest: waits may have been for earlier ones.
  for (uint32_t i = s->num_flights; i-- > 0 && !found;) {
    const flight *f = &s->flights[i];
    if (kind == ACCESS_READS && !f->writes) continue;
    if (kind == ACCESS_ADDS && f->adds) continue;
    found = area_overlap(box, &f->box) != NULL;
    if (found && of != c && f->id && !f->writes)
      found = !sent_arrived(c, f->id);
    if (found) *out = *f;
  }
  core_unlock(c);
  return found;
}

bool flights_find(core_state *c, const area *box, access_kind kind,
                  flight *out) {
  return find_among(c, c, box, kind, out);
}

// The message names both places and whose copy it is.
static void check_among(core_state *c, const core_state *of, const area *box,
                        access_kind kind, int32_t loc, const char *what) {
  flight f;
  if (!find_among(c, of, box, kind, &f)) return;
  char place[512], who[64], whose[80] = "";
  core_place(f.by, f.loc, place, sizeof place);
  if (f.by != c)
    snprintf(whose, sizeof whose, " of %s", core_who(f.by, who, sizeof who));
  bool partly = f.sem < of->cap_sems && of->shadow->waited[f.sem] > 0;
  core_stop(c, AT_FAILED_PRECONDITION, loc,
            "race: %s memory that a copy%s still %s\n"
            "detail: the copy was started at %s and has not been waited for%s",
            what, whose, f.writes ? "writes" : "reads", *place ? place : "?",
            partly ? "\nhint: copies that share a semaphore may arrive in any "
                     "order: wait for all of them, or give each its own"
                   : "");
}

void flights_check(core_state *c, const area *box, access_kind kind,
                   int32_t loc, const char *what) {
  check_among(c, c, box, kind, loc, what);
}

void flights_check_others(core_state *c, core_state *owner, const area *box,
                          access_kind kind, int32_t loc, const char *what) {
  for (uint32_t i = 0; i < owner->team.num; i++) {
    core_state *p = &owner->team.cores[i];
    if (p != c && p->shadow) check_among(c, p, box, kind, loc, what);
  }
}

// Takes a use of the copy's number; sem: where a wait for it is seen.
void flights_add(core_state *owner, const flight *f, const void *sem_at) {
  shadow *s = owner->shadow;
  if (!s) return;
  flight begun = *f;
  begun.sem = sem_at ? (size_t)((const sem *)sem_at - f->by->sems) : SIZE_MAX;
  core_lock(f->by);
  if (f->by->shadow && owner != f->by)
    begun.knows = clock_of(&f->by->shadow->known, owner->actor);
  arrivals_begin(owner, &begun);
  s->flights = core_shadow_grow(f->by, s->flights, s->num_flights,
                                &s->cap_flights, sizeof *s->flights);
  s->flights[s->num_flights++] = begun;
  sent_hold(core_marks(f->by), f->id);
  core_unlock(f->by);
}

// ---- Waits that another copy satisfied
void flights_expect(core_state *c, const area *box, int32_t loc) {
  c->shadow->expected = *box;
  c->shadow->expected_at = loc;
}

// None of the copies that signalled the semaphore is of the memory that the
// wait is for.
static void note_mistaken(core_state *c, size_t sem) {
  shadow *s = c->shadow;
  const flight *other = NULL;
  area box = s->expected;
  s->expected.elem_bytes = 0;
  if (!box.elem_bytes) return;
  for (uint32_t i = 0; i < s->num_flights; i++) {
    const flight *f = &s->flights[i];
    if (f->sem != sem) continue;
    if (area_overlap(&box, &f->box)) return;
    other = f;
  }
  if (!other) return;
  mistaken new = {.box = box, .loc = s->expected_at, .f = *other};
  uint32_t i = 0;
  while (i < s->num_mistaken && (s->mistaken[i].loc != new.loc ||
                                 s->mistaken[i].box.base != new.box.base))
    i++;
  if (i == s->num_mistaken) {
    s->mistaken = core_shadow_grow(c, s->mistaken, s->num_mistaken,
                                   &s->cap_mistaken, sizeof *s->mistaken);
    s->num_mistaken++;
  }
  s->mistaken[i] = new;
}

const mistaken *flights_mistaken(const core_state *c, const uint8_t *at) {
  const shadow *s = c->shadow;
  area byte = {.base = (uint8_t *)at, .elem_bytes = 1};
  for (uint32_t i = 0; i < s->num_mistaken; i++)
    if (area_overlap(&byte, &s->mistaken[i].box)) return &s->mistaken[i];
  return NULL;
}

void flights_hint(const core_state *c, const uint8_t *at, char *out, size_t n) {
  char wait[512], start[512];
  const mistaken *x = at ? flights_mistaken(c, at) : NULL;
  *out = 0;
  if (x)
    snprintf(out, n,
             "\nhint: the wait for it at %s took the bytes of another copy, "
             "started at %s, which signals the same semaphore: give each copy "
             "its own, or wait for all of them first",
             core_place(c, x->loc, wait, sizeof wait),
             core_place(x->f.by, x->f.loc, start, sizeof start));
}

// Hints about memory that is given back.
void flights_forget(core_state *c, const uint8_t *p, size_t bytes) {
  shadow *s = c->shadow;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < s->num_mistaken; i++)
    if (s->mistaken[i].box.base < p || s->mistaken[i].box.base >= p + bytes)
      s->mistaken[kept++] = s->mistaken[i];
  s->num_mistaken = kept;
  arrivals_forget(c, p, bytes);
}

// Copies that signal one semaphore may arrive in any order: it takes waits for
// all of them to know of one.
void flights_waited(core_state *c, const sem *at, int64_t amount) {
  shadow *s = c->shadow;
  size_t index = (size_t)(at - c->sems);
  bool retires = core_shadow_retires(c);
  note_mistaken(c, index);
  // A copy that is seen from both sides is waited for once.
  int64_t due[2] = {0, 0};
  for (uint32_t i = 0; i < s->num_flights; i++) {
    const flight *f = &s->flights[i];
    if (f->sem == index) due[f->writes] += f->bytes;
  }
  int64_t waited = s->waited[index] + amount;
  uint32_t kept = 0;
  arrivals_waited(c, index);
  for (uint32_t i = 0; i < s->num_flights; i++) {
    flight *f = &s->flights[i];
    bool over = f->sem == index && due[f->writes] <= waited;
    if (over && retires && !f->writes) core_shadow_retire(c, &f->box);
    if (over) core_shadow_over(c, f);
    if (over) arrivals_landed(c, index, f);
    if (over) sent_drop(core_marks(c), f->id);
    if (!over) s->flights[kept++] = *f;
  }
  s->num_flights = kept;
  s->waited[index] = AT_MAX(due[0], due[1]) <= waited ? 0 : waited;
}

const flight *flights_left(const core_state *c, size_t sem_index) {
  const shadow *s = c->shadow;
  int64_t left[2] = {s->waited[sem_index], s->waited[sem_index]};
  for (uint32_t i = 0; i < s->num_flights; i++) {
    const flight *f = &s->flights[i];
    if (f->sem != sem_index) continue;
    if (left[f->writes] < f->bytes) return f;
    left[f->writes] -= f->bytes;
  }
  return NULL;
}
