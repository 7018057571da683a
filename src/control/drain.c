// Hosts that people want to take away: nothing new is placed on one; once it
// holds nothing, or at once where that is wanted, it ends what it was asked,
// and ends.
#include <stdio.h>

#include "base/log.h"
#include "control/controller_internal.h"

static bool is_told(const peer *p) {
  return p->kind == AT_SESSION_CLIENT && p->welcomed && !p->gone;
}

// Tells a client whether anything new may be placed on that host.
static void say_drains(peer *client, uint32_t host) {
  at_msg_host_drains m = {host, client->controller->drains[host] != DRAIN_NONE};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  at_peer_say(client, AT_MSG_HOST_DRAINS, &part, 1);
}

// What a client has to know that comes when hosts are drained already.
void at_drain_tell(peer *client) {
  const at_controller *c = client->controller;
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->drains[i] != DRAIN_NONE) say_drains(client, i);
}

// Clients hear only of the step between NONE and the others: which step of
// draining it is does not concern them.
static void set_state(at_controller *c, uint32_t host, drain_state s) {
  bool was = c->drains[host] != DRAIN_NONE, is = s != DRAIN_NONE;
  c->drains[host] = (uint8_t)s;
  for (peer *p = c->peers; was != is && p; p = p->next)
    if (is_told(p)) say_drains(p, host);
}

// It has ended, or never was there.
static void ended(at_controller *c, uint32_t host) {
  set_state(c, host, DRAIN_ENDED);
  at_log(AT_LOG_INFO, "host %u is drained", host);
  at_controller_welcome(c);
}

// From here on nothing of the stream goes to the host (at_peer_is_away), so the
// REST below is its last message but one.
static void rest(at_controller *c, uint32_t host) {
  set_state(c, host, DRAIN_RESTS);
  at_peer_say(c->hosts[host], AT_MSG_REST, NULL, 0);
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
  if (c->drains[m->host] >= DRAIN_RESTS) return AT_OK;
  if (c->drains[m->host] == DRAIN_NONE)
    at_log(AT_LOG_INFO, "host %u is being drained", m->host);
  set_state(c, m->host, DRAIN_STARTED);
  // A host that is lost already has nothing left to end.
  if (h->gone)
    ended(c, m->host);
  else if (m->how == AT_DRAIN_FORCE)
    rest(c, m->host);
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

// Every look of the keeper.
void at_drain_look(at_controller *c) {
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->drains[i] == DRAIN_STARTED && !arrays_on(c, i)) rest(c, i);
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
