// Hosts that people want to take away: nothing new is placed on one; once it
// holds nothing, or at once where that is wanted, it ends what it was asked,
// and ends.
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/controller_internal.h"

// What clients had said before a drain by force is waited for, but no longer:
// one may not answer.
static const uint64_t kHearNs = 10000000000ull;

static bool is_told(const peer *p) {
  return p->kind == AT_SESSION_CLIENT && p->welcomed && !p->gone;
}

// Tells a client whether anything new may be placed on that host.
static void say_drains(peer *client, uint32_t host) {
  const at_controller *c = client->controller;
  at_msg_host_drains m = {
      .host = host,
      .drains = c->drains[host] != DRAIN_NONE,
      .number = c->drains[host] == DRAIN_FORCED ? c->forces : 0};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  at_peer_say(client, AT_MSG_HOST_DRAINS, &part, 1);
}

// What a client has to know that comes when hosts are drained already.
void at_drain_tell(peer *client) {
  const at_controller *c = client->controller;
  client->heard = c->forces;  // it has said nothing before
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->drains[i] != DRAIN_NONE) say_drains(client, i);
}

// Clients hear only of the step between NONE and the others, and of force:
// which step of draining it is else does not concern them.
static void set_state(at_controller *c, uint32_t host, drain_state s) {
  bool was = c->drains[host] != DRAIN_NONE, is = s != DRAIN_NONE;
  c->drains[host] = (uint8_t)s;
  for (peer *p = c->peers; (was != is || s == DRAIN_FORCED) && p; p = p->next)
    if (is_told(p)) say_drains(p, host);
}

// It has ended, or never was there.
static void ended(at_controller *c, uint32_t host) {
  set_state(c, host, DRAIN_ENDED);
  at_log(AT_LOG_INFO, "host %u is drained", host);
  at_controller_go_on(c);
}

// From here on nothing of the stream goes to the host (at_peer_is_away), so the
// REST below is its last message but one.
static void rest(at_controller *c, uint32_t host) {
  set_state(c, host, DRAIN_RESTS);
  at_peer_say(c->hosts[host], AT_MSG_REST, NULL, 0);
}

// Sessions do not wait for each other: what a client has said before the order
// may be heard after it.
static void force(at_controller *c, uint32_t host) {
  c->forces++;
  c->forced_ns = at_clock_ns();
  set_state(c, host, DRAIN_FORCED);
  at_drain_look(c);
}

// People want the host back. A place whose host has ended is free again for
// another process.
static at_status undo(at_controller *c, uint32_t host) {
  if (c->drains[host] == DRAIN_RESTS)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "host %u is about to end\nhint: again, once `atoll pod "
                   "status` says that it is drained",
                   host);
  if (c->drains[host] != DRAIN_NONE)
    at_log(AT_LOG_INFO, "host %u is not drained any more", host);
  set_state(c, host, DRAIN_NONE);
  return AT_OK;
}

// Starting twice is no error. A host that is not there has nothing to wait for,
// and by force it does not wait.
at_status at_drain(at_controller *c, const at_msg_drain *m) {
  if (m->host >= c->num_hosts)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "there is no host %u: the pod has hosts 0 to %u", m->host,
                   c->num_hosts - 1);
  const peer *h = c->hosts[m->host];
  if (m->how == AT_DRAIN_UNDO) return undo(c, m->host);
  if (!h)
    return AT_FAIL(AT_FAILED_PRECONDITION, "host %u has not come yet", m->host);
  if (c->drains[m->host] >= DRAIN_FORCED) return AT_OK;
  if (c->drains[m->host] == DRAIN_NONE)
    at_log(AT_LOG_INFO, "host %u is being drained", m->host);
  set_state(c, m->host, DRAIN_STARTED);
  // A host that is lost already has nothing left to end.
  if (h->gone) return ended(c, m->host), AT_OK;
  if (m->how == AT_DRAIN_FORCE) force(c, m->host);
  return AT_OK;
}

// Of all clients and of named objects.
static uint64_t arrays_on(const at_controller *c, uint32_t host) {
  uint64_t n = 0;
  for (const host_set *s = c->sets; s; s = s->next)
    for (uint32_t i = 0; i < s->count; i++)
      n += s->hosts[i] == host ? s->arrays : 0;
  return n;
}

static bool all_have_heard(const at_controller *c) {
  if (at_clock_ns() - c->forced_ns > kHearNs) return true;
  for (const peer *p = c->peers; p; p = p->next)
    if (is_told(p) && p->heard < c->forces) return false;
  return true;
}

void at_drain_look(at_controller *c) {
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->drains[i] == DRAIN_FORCED
            ? all_have_heard(c)
            : c->drains[i] == DRAIN_STARTED && !arrays_on(c, i))
      rest(c, i);
}

void at_drain_heard(peer *client, const at_msg_heard *m) {
  if (m->number > client->controller->forces) return;
  client->heard = AT_MAX(client->heard, m->number);
  at_drain_look(client->controller);
}

// It has said so: it is told to end, and counts as gone from here on, not when
// its session closes.
void at_drain_rested(peer *host) {
  at_controller *c = host->controller;
  if (!host->session || host->gone || host->replaced ||
      c->drains[host->number] != DRAIN_RESTS)
    return;
  snprintf(host->why, sizeof host->why, "it was drained");
  at_host_end(host);
  at_host_leaves(host);
  ended(c, host->number);
}

// Nothing to do for a host that was not being drained: that is a loss.
void at_drain_lost(peer *host) {
  at_controller *c = host->controller;
  if (c->drains[host->number] == DRAIN_NONE) return;
  host->gone = true;
  ended(c, host->number);
}
