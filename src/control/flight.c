// How far a client is ahead of the hosts, and what waits with the controller
// because it is too far.
#include <stdlib.h>

#include "control/controller_internal.h"

struct held {
  held *next;
  peer *from;
  at_wire_head head;
  void *body;
};

at_wire_head at_flight_head(const held *x) { return x->head; }
void *at_flight_body(const held *x) { return x->body; }

// Without counts it has no launches under way.
bool at_flight_may_go(const peer *p, const host_set *to) {
  for (uint32_t i = 0; p->flight && i < to->count; i++)
    if (p->flight[to->hosts[i]] >= AT_FLIGHT_LAUNCHES) return false;
  return true;
}

// Saturates: a host that never answers does not make it wrap to a small number.
void at_flight_add(peer *p, const host_set *to, uint32_t launches) {
  if (p->controller->simulated) return;  // it is done when it has been said
  if (!p->flight) {
    p->flight = calloc(p->controller->max_hosts, sizeof *p->flight);
    if (!p->flight) return;  // this one is not slowed down yet
  }
  for (uint32_t i = 0; i < to->count; i++) {
    AT_ASSERT(to->hosts[i] < p->controller->max_hosts);
    uint32_t *n = &p->flight[to->hosts[i]];
    *n += AT_MIN(launches, UINT32_MAX - *n);
  }
}

// A host that says too much takes no more than there is.
void at_flight_did(peer *p, uint32_t host, uint64_t launches) {
  AT_ASSERT(host < p->controller->max_hosts);
  if (!p->flight) return;
  p->flight[host] -= (uint32_t)AT_MIN(launches, (uint64_t)p->flight[host]);
}

// The peer counts a letter, which keeps it alive until the message has gone on.
bool at_flight_hold(peer *p, const at_wire_head *head, void *body) {
  held *x = malloc(sizeof *x);
  if (!x) return false;
  *x = (held){NULL, p, *head, body};
  if (!p->held) p->held_end = &p->held;
  AT_ASSERT(!*p->held_end);  // the end of the list
  *p->held_end = x;
  p->held_end = &x->next;
  atomic_fetch_add(&p->letters, 1);  // the peer stays
  return true;
}

// The caller goes on with it, and then says at_flight_went.
held *at_flight_next(peer *p) {
  held *x = p->held;
  if (x) p->held = x->next;
  if (!p->held) p->held_end = &p->held;
  return x;
}

// Credits are given back without the lock, so a message that pays waits in
// `paid` until at_flight_unlock.
void at_flight_went(peer *p, held *x, bool pays) {
  AT_ASSERT(x->from == p && atomic_load(&p->letters));
  if (pays) {
    x->next = p->controller->paid;
    p->controller->paid = x;
    return;
  }
  atomic_fetch_sub(&p->letters, 1);
  free(x);
}

// Nothing of it is sent any more; credits go back for none of it.
void at_flight_drop(peer *p) {
  for (held *x; (x = at_flight_next(p)); at_flight_went(p, x, false))
    free(x->body);
  free(p->flight);
  p->flight = NULL;
}

// The list is taken under the lock; the wire's release may wake a thread that
// wants it.
void at_flight_unlock(at_controller *c) {
  held *x = c->paid, *next;
  c->paid = NULL;
  pthread_mutex_unlock(&c->lock);
  for (; x; x = next) {
    next = x->next;
    if (x->from->wire)
      at_wire_release(x->from->wire, 1, x->head.lane, x->head.bytes);
    atomic_fetch_sub(&x->from->letters, 1);
    free(x);
  }
}
