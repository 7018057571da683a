// Which waits for copies of other cores are certain. Copies that signal one
// semaphore may arrive in any order, so a wait that one copy satisfied in this
// run may be satisfied by another in the next, unless the other is started only
// after the wait (its starter has heard of it). Then what the first brings is
// not there yet when the core goes on. That is a race of every access between
// this wait and the next on the semaphore, whatever order the run showed.
#include "device/core_shadow.h"

#include <stdint.h>
#include <string.h>

static _Noreturn void report(core_state *c, int32_t at, int32_t loc,
                             const core_state *owner, const landing *brought,
                             const core_state *by, int32_t other) {
  char access[512], first[512], second[512], who[64];
  core_place(owner, loc, access, sizeof access);
  core_place(brought->by, brought->loc, first, sizeof first);
  core_place(by, other, second, sizeof second);
  core_stop(c, AT_FAILED_PRECONDITION, at,
            "race: %s uses memory that a copy brings, at %s, and the wait for "
            "that copy can be satisfied by another\n"
            "detail: the copy was started at %s; the other, which signals the "
            "same semaphore and may come first, at %s\n"
            "hint: give each copy its own semaphore, wait for all of them "
            "first, or let the receiver tell the sender when it may send",
            core_who(owner, who, sizeof who), *access ? access : "?",
            *first ? first : "?", *second ? second : "?");
}

// ---- Landings, in the order of their addresses
// The first whose box begins at `at` or behind.
static uint32_t first_from(const shadow *s, uintptr_t at) {
  uint32_t lo = 0, hi = s->num_landings;
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if ((uintptr_t)s->landings[mid].box.base < at)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

// [from, to) go.
static void remove_landings(shadow *s, uint32_t from, uint32_t to) {
  if (from == to) return;
  memmove(s->landings + from, s->landings + to,
          (s->num_landings - to) * sizeof *s->landings);
  s->num_landings -= to - from;
}

// A later one at the same address, of the same semaphore, replaces the former.
static void landing_add(core_state *c, size_t sem, const flight *f) {
  shadow *s = c->shadow;
  const landing new = {.box = f->box, .sem = sem, .loc = f->loc, .by = f->by};
  uint32_t i = first_from(s, (uintptr_t)f->box.base);
  while (i < s->num_landings && s->landings[i].box.base == f->box.base &&
         s->landings[i].sem != sem)
    i++;
  s->most_landed = AT_MAX(s->most_landed, area_extent(&f->box));
  if (i == s->num_landings || s->landings[i].box.base != f->box.base) {
    s->landings = core_shadow_grow(c, s->landings, s->num_landings,
                                   &s->cap_landings, sizeof *s->landings);
    memmove(s->landings + i + 1, s->landings + i,
            (s->num_landings++ - i) * sizeof *s->landings);
  }
  s->landings[i] = new;
}

// ---- Waits
void arrivals_waited(core_state *c, size_t sem) {
  shadow *s = c->shadow;
  AT_ASSERT(sem < c->cap_sems);
  if (s->arrivals) s->arrivals[sem].waited_at = s->now;
}

void arrivals_landed(core_state *c, size_t sem, const flight *f) {
  shadow *s = c->shadow;
  AT_ASSERT(sem < c->cap_sems);
  if (!f->writes || f->by == c) return;
  if (!s->arrivals)
    s->arrivals = core_shadow_take(c, c->cap_sems, sizeof *s->arrivals);
  s->arrivals[sem].waited_at = s->now;
  landing_add(c, sem, f);
}

static void rely_on(core_state *c, const landing *l, int32_t loc) {
  const shadow *s = c->shadow;
  arrivals *a = &s->arrivals[l->sem];
  for (uint32_t i = 0; i < s->num_flights; i++) {
    const flight *f = &s->flights[i];
    if (f->sem == l->sem && f->writes && f->by != c && f->knows < a->waited_at)
      report(c, loc, loc, c, l, f->by, f->loc);
  }
  AT_ASSERT(a->waited_at >= a->relied_at);
  a->relied_at = a->waited_at;
  a->relied_loc = loc;
  a->relied_on = *l;
}

void arrivals_access(core_state *c, const area *box, int32_t loc) {
  shadow *s = c->shadow;
  if (!s->num_landings) return;
  const uintptr_t at = (uintptr_t)box->base;
  const uintptr_t end = at + (uintptr_t)area_extent(box);
  uint32_t i = first_from(s, at - AT_MIN(at, (uintptr_t)s->most_landed));
  uint32_t kept = i;
  for (; i < s->num_landings && (uintptr_t)s->landings[i].box.base < end; i++) {
    landing l = s->landings[i];
    if (area_overlap(&l.box, box))
      rely_on(c, &l, loc);
    else
      s->landings[kept++] = l;
  }
  remove_landings(s, kept, i);
}

void arrivals_begin(core_state *c, const flight *f) {
  const shadow *s = c->shadow;
  if (!s->arrivals || !f->writes || f->by == c || f->sem >= c->cap_sems) return;
  const arrivals *a = &s->arrivals[f->sem];
  if (a->relied_at > f->knows)
    report(f->by, f->loc, a->relied_loc, c, &a->relied_on, f->by, f->loc);
}

void arrivals_forget(core_state *c, const uint8_t *p, size_t bytes) {
  shadow *s = c->shadow;
  uint32_t from = first_from(s, (uintptr_t)p);
  remove_landings(s, from, first_from(s, (uintptr_t)p + bytes));
}
