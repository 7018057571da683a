#include "pjrt/modelled.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/log.h"
#include "estimate/estimate.h"

enum { kMostEvents = 1 << 20 };

// What one call gathers, all in its arena.
typedef struct modelled {
  at_arena *arena;
  at_map of;          // program's number -> at_estimate
  uint64_t *free_at;  // of each chip: end of the launch before
  uint32_t num_chips;
  AT_VEC(at_profile_event) events;
} modelled;

// A program of several devices needs the topology; one of a pod's client, whose
// ATOLL_TARGET says nothing, is estimated on a chip of its kind.
static at_estimate_options options_of(const at_pjrt_program *p,
                                      const char *chip) {
  const char *target = at_config_text(AT_CONFIG_TARGET);
  bool topology = strstr(target, chip) != NULL;
  return (at_estimate_options){.target = topology ? target : chip,
                               .mode = AT_INTERP_ATOLL,
                               .num_replicas = p->header->num_replicas,
                               .num_partitions = p->header->num_partitions};
}

// Estimates the program, for the chip that it would run on. One that cannot be
// estimated is left out with a warning: the rest of the profile is still worth
// having.
static at_status add_program(modelled *m, const at_pjrt_program *p,
                             const char *chip) {
  if (!p->source.len) return AT_OK;
  at_estimate_options o = options_of(p, chip);
  at_estimate *e;
  at_status st = at_estimate_run(p->source, &o, m->arena, &e);
  if (!at_ok(st)) {
    at_log(AT_LOG_WARNING, "ATOLL_PROFILE=chip: %s is left out: %s",
           at_pjrt_program_string(p, p->header->name), at_status_message(st));
    at_status_free(st);
    return AT_OK;
  }
  uint64_t number = at_profile_program(p->header->fingerprint[0]);
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&m->of, (void *)(uintptr_t)number));
  *place = e;
  return AT_OK;
}

// The launch's ops on the modelled chip: they begin when it began here, or when
// that chip is through with the launch before.
static at_status add_launch(modelled *m, const at_profile_event *launch,
                            int64_t offset_ns) {
  void **found = at_map_find_ptr(&m->of, (void *)(uintptr_t)launch->program);
  if (!found) return AT_OK;
  const at_estimate *e = *found;
  if (m->events.len + e->num_ops + 1 > kMostEvents) {
    at_log_once(AT_LOG_WARNING,
                "ATOLL_PROFILE=chip: the first launches only, there are more "
                "than a million events");
    return AT_OK;
  }
  uint64_t *free_at = &m->free_at[launch->chip];
  uint64_t start = AT_MAX(launch->start_ns + (uint64_t)offset_ns, *free_at);
  at_profile_event *events;
  AT_TRY_ALLOC(events, at_new(m->arena, at_profile_event, e->num_ops + 1));
  at_estimate_events(e, start, launch->chip, events);
  *free_at = events[0].end_ns;
  for (uint32_t i = 0; i <= e->num_ops; i++)
    if (!at_vec_push(m->arena, &m->events, events[i]))
      return AT_NO_MEMORY("the modelled chip");
  return AT_OK;
}

// All launches of the session, in the order in which they began.
static at_status add_launches(modelled *m, const at_profile *p) {
  size_t n;
  const at_profile_event *e = at_profile_events(p, &n);
  for (size_t i = 0; i < n; i++)
    m->num_chips = AT_MAX(m->num_chips, e[i].chip + 1);
  AT_TRY_ALLOC(m->free_at, at_new(m->arena, uint64_t, m->num_chips + 1));
  for (size_t i = 0; i < n; i++)
    if (e[i].kind == AT_PROFILE_MODULE)
      AT_TRY(add_launch(m, &e[i], at_profile_unix_offset_ns(p)));
  return AT_OK;
}

// The events as planes of their own kind, which viewers show beside the planes
// of what ran.
static at_status write(const modelled *m, const char *chip, at_strbuf *out) {
  char plane[64];
  snprintf(plane, sizeof plane, "/device:CUSTOM:%.32s model:", chip);
  at_profile_about about = {.plane = plane};
  at_profile *p = NULL;
  at_status st = at_profile_of(m->events.ptr, m->events.len, &p);
  if (at_ok(st)) st = at_profile_xspace(p, &about, out);
  at_profile_destroy(p);
  return st;
}

// Programs first, then launches over them. Launches of programs that were left
// out have no events.
at_status at_pjrt_modelled(const at_profile *p,
                           at_pjrt_program *const *programs, size_t count,
                           const char *chip, at_strbuf *out) {
  modelled m = {.arena = at_arena_create()};
  if (!m.arena) return AT_NO_MEMORY("the modelled chip");
  m.of = at_map_in(m.arena);
  at_status st = AT_OK;
  for (size_t i = 0; i < count && at_ok(st); i++)
    st = add_program(&m, programs[i], chip);
  if (at_ok(st)) st = add_launches(&m, p);
  if (at_ok(st) && m.events.len) st = write(&m, chip, out);
  at_arena_destroy(m.arena);
  return st;
}
