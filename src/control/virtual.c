// Slices of virtual devices: which chips of the pod clients' devices stand for.
// The controller knows what all clients have, so it chooses, and chooses again
// when hosts are lost. Nothing here is asked for a launch.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "control/controller_internal.h"
#include "control/place.h"
#include "exec/exec.h"

enum { kDevices = 1 << 16 };  // of a client
_Static_assert(AT_MESSAGE_CHIPS == 1 << AT_CHIP_VIEW, "numbers are exec's");
static const double kUseSeconds = 0.5;

// In the list of its client (peer.slices).
struct slice {
  slice *next;
  at_msg_slice wish;
  uint32_t chips[];  // by device
};

// Of one chip: which views of it a client uses.
typedef struct views {
  uint64_t used[AT_CHIP_VIEWS / 64];
} views;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a slice");
}

// ---- What is on the chips
// Launches in a second, of late.
static double use_of(peer *p, uint64_t now) {
  double seconds = (double)(now - p->use_ns) / 1e9;
  if (!p->use_ns || seconds > kUseSeconds) {
    double rate = p->use_ns ? (double)(p->launches - p->use_launches) / seconds
                            : (double)p->launches;
    p->use = rate;
    p->use_launches = p->launches;
    p->use_ns = now;
  }
  return p->use;
}

// What one device of the client adds to a chip's load: 1, or with AT_SLICE_FAIR
// more the more it launches.
static double weight_of(peer *p, uint32_t policy, uint64_t now) {
  return policy == AT_SLICE_FAIR ? 1 + use_of(p, now) : 1;
}

// A client's devices on each chip; where it has none, but runs programs: one.
static void add_client(const at_controller *c, peer *p, uint32_t policy,
                       uint64_t now, at_place_chip *chips) {
  double weight = weight_of(p, policy, now);
  bool *has = policy == AT_SLICE_FAIR && p->reached
                  ? calloc(c->num_chips, sizeof *has)
                  : NULL;
  for (const slice *s = p->slices; s; s = s->next)
    for (uint32_t d = 0; d < s->wish.count; d++) {
      uint32_t at = at_message_chip(s->chips[d]);
      chips[at].load += weight;
      chips[at].free -= AT_MIN(chips[at].free, s->wish.memory);
      if (has) has[at] = true;
    }
  for (uint32_t i = 0; has && i < c->num_chips; i++)
    if (p->reached[i] && !has[i]) chips[i].load += weight;
  free(has);
}

// All chips of the pod with what all clients have on them. NULL: no memory. The
// caller frees it.
static at_place_chip *look_at_chips(const at_controller *c, uint32_t policy,
                                    uint64_t now) {
  at_place_chip *chips = calloc(c->num_chips, sizeof *chips);
  uint64_t set = at_config_uint(AT_CONFIG_HBM);
  for (uint32_t i = 0; chips && i < c->num_chips; i++) {
    at_place place = at_topology_place(&c->topology, i);
    const peer *h = c->hosts[c->host_of[i]];
    chips[i] = (at_place_chip){
        .island = place.slice,
        .host = c->host_of[i],
        .coords = {place.coords[0], place.coords[1], place.coords[2]},
        .core = place.core_on_chip,
        .hw = place.hw,
        .live = h && !at_peer_is_away(h) && h->announced &&
                c->drains[h->number] == DRAIN_NONE,
        .free = set ? set : place.hw->hbm_bytes};
  }
  for (peer *p = c->peers; chips && p; p = p->next)
    if (p->kind == AT_SESSION_CLIENT && !p->left)
      add_client(c, p, policy, now, chips);
  return chips;
}

// ---- Views: a client has one of a chip for each of its devices there
// NULL: no memory. The caller frees it.
static views *views_of(const at_controller *c, const peer *p) {
  views *v = calloc(c->num_chips, sizeof *v);
  for (const slice *s = p->slices; v && s; s = s->next)
    for (uint32_t d = 0; d < s->wish.count; d++) {
      uint32_t view = s->chips[d] >> AT_CHIP_VIEW;
      v[at_message_chip(s->chips[d])].used[view / 64] |= 1ull << view % 64;
    }
  return v;
}

// View 0 is the chip itself.
static at_status choose_views(views *v, uint32_t *chips, uint32_t n) {
  for (uint32_t d = 0; d < n; d++) {
    views *x = &v[chips[d]];
    uint32_t view = 1;
    while (view < AT_CHIP_VIEWS && x->used[view / 64] >> view % 64 & 1) view++;
    if (view == AT_CHIP_VIEWS)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                     "a client has at most %d virtual devices on a chip",
                     AT_CHIP_VIEWS - 1);
    x->used[view / 64] |= 1ull << view % 64;
    chips[d] |= view << AT_CHIP_VIEW;
  }
  return AT_OK;
}

// `out`: chips of the pod, with views.
static at_status choose(peer *p, const at_msg_slice *wish, uint32_t *out) {
  at_controller *c = p->controller;
  uint64_t now = at_clock_ns();
  at_place_chip *chips = look_at_chips(c, wish->policy, now);
  views *v = views_of(c, p);
  at_status st = chips && v ? AT_OK : no_memory();
  if (!st.err)
    st = at_place_slice(chips, c->num_chips, wish,
                        weight_of(p, wish->policy, now), out);
  if (!st.err) st = choose_views(v, out, wish->count);
  free(chips);
  free(v);
  return st;
}

// ---- What clients hear
// Borrows why.
static void say_refused(peer *p, uint64_t name, at_status why) {
  at_msg_sliced m = {.slice = name, .code = (uint32_t)at_status_code(why)};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            at_message_text(why)};
  at_peer_say(p, AT_MSG_SLICED, parts, 2);
}

// SLICED: as the answer, and whenever the slice has moved.
static void say_where(peer *p, const slice *s) {
  static const uint8_t pad[8];
  size_t bytes = s->wish.count * sizeof *s->chips;
  at_msg_sliced m = {.slice = s->wish.slice, .count = s->wish.count};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            {(const uint8_t *)s->chips, bytes},
                            {pad, at_message_chips_bytes(m.count) - bytes}};
  at_peer_say(p, AT_MSG_SLICED, parts, 3);
}

// Where it hangs in the list; *find NULL: the client has no such slice.
static slice **find(peer *p, uint64_t name) {
  slice **at = &p->slices;
  while (*at && (*at)->wish.slice != name) at = &(*at)->next;
  return at;
}

// In no list yet.
static at_status make(peer *p, const at_msg_slice *m, slice **out) {
  uint64_t all = m->count;
  for (const slice *s = p->slices; s; s = s->next) all += s->wish.count;
  if (all > kDevices)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "a client has at most %d virtual devices", kDevices);
  slice *s = malloc(sizeof *s + m->count * sizeof *s->chips);
  if (!s) return no_memory();
  s->wish = *m;
  at_status st = choose(p, m, s->chips);
  if (st.err)
    free(s);
  else
    *out = s;
  return st;
}

// A name that is used twice ends the client; a slice that cannot be had is
// answered.
at_status at_client_slice(peer *p, const at_msg_slice *m) {
  if (*find(p, m->slice))
    return AT_FAIL(AT_INVALID_ARGUMENT, "slice %llu is there already",
                   (unsigned long long)m->slice);
  slice *s = NULL;
  at_status st = make(p, m, &s);
  if (st.err) {
    say_refused(p, m->slice, st);
    return at_status_free(st), AT_OK;
  }
  s->next = p->slices;
  p->slices = s;
  say_where(p, s);
  return AT_OK;
}

// Its chips' load goes with it.
at_status at_client_unslice(peer *p, const at_msg_unslice *m) {
  slice **at = find(p, m->slice), *s = *at;
  if (!s)
    return AT_FAIL(AT_INVALID_ARGUMENT, "there is no slice %llu",
                   (unsigned long long)m->slice);
  *at = s->next;
  free(s);
  return AT_OK;
}

// Chips are lighter by that at the next placing: load is counted from slices.
void at_client_slices_free(peer *p) {
  for (slice *s; (s = p->slices);) {
    p->slices = s->next;
    free(s);
  }
  free(p->reached);
  p->reached = NULL;
}

// Without memory it is not noted, and counts as nowhere.
void at_client_reaches(peer *p, const uint32_t *chips, uint32_t n) {
  const at_controller *c = p->controller;
  if (!p->reached) p->reached = calloc(c->num_chips, sizeof *p->reached);
  for (uint32_t i = 0; p->reached && i < n; i++)
    p->reached[at_message_chip(chips[i])] = true;
}

// For people.
uint32_t at_client_devices(const peer *p) {
  uint32_t n = 0;
  for (const slice *s = p->slices; s; s = s->next) n += s->wish.count;
  return n;
}

// ---- Hosts are lost
// Its host is gone, or resting.
static bool is_lost(const at_controller *c, uint32_t chip) {
  const peer *h = c->hosts[c->host_of[at_message_chip(chip)]];
  return !h || at_peer_is_away(h);
}

// Where the lost devices of a slice could be, on chips of their kind: on their
// island if it has live ones, else on another. A slice that wants one island or
// host stays there.
static at_status replace(peer *p, const slice *s, uint32_t first, uint32_t n,
                         uint32_t *out) {
  const at_controller *c = p->controller;
  at_msg_slice wish = s->wish;
  // The lost devices alone, on chips of their kind; a box of them has no shape.
  wish.count = n;
  memset(wish.shape, 0, sizeof wish.shape);
  at_place place = at_topology_place(&c->topology, at_message_chip(first));
  snprintf(wish.kind, sizeof wish.kind, "%s", place.hw->name);
  if (wish.island < 0 && wish.host < 0) {
    wish.island = (int32_t)place.slice;
    at_status st = choose(p, &wish, out);
    if (!st.err) return st;
    at_status_free(st);
    wish.island = -1;
  }
  return choose(p, &wish, out);
}

// Devices on chips that are there stay. Where nothing else can be had the slice
// stays where it is, and its arrays carry the loss.
static void move(peer *p, slice *s) {
  const at_controller *c = p->controller;
  uint32_t n = 0, first = 0;
  for (uint32_t d = 0; d < s->wish.count; d++) {
    if (!is_lost(c, s->chips[d])) continue;
    if (!n++) first = s->chips[d];
  }
  uint32_t *to = n ? malloc(n * sizeof *to) : NULL;
  if (!to) return;
  at_status st = replace(p, s, first, n, to);
  if (st.err) {
    at_log(AT_LOG_WARNING, "client %llu: slice %llu stays on lost hosts: %s",
           (unsigned long long)p->client, (unsigned long long)s->wish.slice,
           at_status_message(st));
  } else {
    for (uint32_t d = 0, k = 0; d < s->wish.count; d++) {
      if (!is_lost(c, s->chips[d])) continue;
      AT_ASSERT(k < n && !is_lost(c, to[k]));
      s->chips[d] = to[k++];
    }
    say_where(p, s);
  }
  at_status_free(st);
  free(to);
}

// Clients that are gone need nothing.
void at_slices_move(at_controller *c) {
  for (peer *p = c->peers; p; p = p->next)
    for (slice *s = p->slices; s && !p->gone; s = s->next) move(p, s);
}
