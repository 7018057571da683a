#include "control/virtual_clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/span.h"

struct at_virtual_clock {
  pthread_mutex_t lock;
  uint64_t ns, message_ns;
  uint32_t said;  // messages to the controller
};

// It passes everything on to `inner`.
typedef struct virtual_wire {
  at_wire base;  // first
  at_virtual_clock *clock;
  at_wire *inner;
  uint32_t host;
} virtual_wire;

static _Thread_local uint64_t worked_ns;  // of it is in a clock

// CPU time of the calling thread.
static uint64_t thread_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

at_virtual_clock *at_virtual_clock_create(const at_msg_simulated *m) {
  at_virtual_clock *c = calloc(1, sizeof *c);
  if (!c) return NULL;
  pthread_mutex_init(&c->lock, NULL);
  c->message_ns = m->client_ns;
  return c;
}

void at_virtual_clock_free(at_virtual_clock *c) {
  if (!c) return;
  pthread_mutex_destroy(&c->lock);
  free(c);
}

// Adds this thread's work since it was last counted, or `fixed` where each
// message has a fixed price. *out_said: messages to the controller so far.
static uint64_t advance(at_virtual_clock *c, uint64_t fixed, uint32_t says,
                        uint32_t *out_said) {
  uint64_t now = thread_ns();
  pthread_mutex_lock(&c->lock);
  c->ns += c->message_ns ? fixed : now - worked_ns;
  c->said += says;
  *out_said = c->said;
  uint64_t ns = c->ns;
  pthread_mutex_unlock(&c->lock);
  worked_ns = now;
  return ns;
}

// Nothing is said, so only the time that has passed counts.
uint64_t at_virtual_clock_ns(at_virtual_clock *c) {
  uint32_t said;
  return advance(c, 0, 0, &said);
}

// An answer has come that was there at ns: the client cannot be earlier.
void at_virtual_clock_reach(at_virtual_clock *c, uint64_t ns) {
  pthread_mutex_lock(&c->lock);
  c->ns = AT_MAX(c->ns, ns);
  pthread_mutex_unlock(&c->lock);
}

// ---- Wires
enum { kBatch = 8 };

// To the controller the time travels as the tag, which that wire does not use
// otherwise.
static at_status send_tagged(virtual_wire *v, uint32_t to, at_wire_lane lane,
                             const at_wire_out *m, uint32_t count,
                             const at_wire_wait *wait, uint32_t *out_sent) {
  at_wire_out tagged[kBatch];
  if (count > kBatch) return AT_FAIL(AT_INVALID_ARGUMENT, "too many messages");
  uint32_t said;
  uint64_t ns = advance(v->clock, v->clock->message_ns * count, count, &said);
  for (uint32_t i = 0; i < count; i++) {
    tagged[i] = m[i];
    tagged[i].tag = ns;
  }
  return at_wire_send(v->inner, to, lane, tagged, count, wait, out_sent);
}

// To a host a CLOCK goes ahead of the batch, in the same call. out_sent does
// not count it.
static at_status wire_send(at_wire *w, uint32_t to, at_wire_lane lane,
                           const at_wire_out *m, uint32_t count,
                           const at_wire_wait *wait, uint32_t *out_sent) {
  virtual_wire *v = (virtual_wire *)w;
  at_wire_out with[kBatch + 1];
  if (v->host == UINT32_MAX)
    return send_tagged(v, to, lane, m, count, wait, out_sent);
  if (count > kBatch) return AT_FAIL(AT_INVALID_ARGUMENT, "too many messages");
  at_msg_clock clock = {.host = v->host};
  clock.ns = advance(v->clock, v->clock->message_ns, 0, &clock.said);
  const at_bytes part = {(const uint8_t *)&clock, sizeof clock};
  with[0] = (at_wire_out){.kind = AT_MSG_CLOCK, .num_parts = 1, .parts = &part};
  for (uint32_t i = 0; i < count; i++) with[i + 1] = m[i];
  uint32_t sent = 0;
  at_status st = at_wire_send(v->inner, to, lane, with, count + 1, wait, &sent);
  if (out_sent) *out_sent = sent ? sent - 1 : 0;
  return st;
}

// Credits are the inner wire's.
static void wire_release(at_wire *w, uint32_t from, at_wire_lane lane,
                         uint64_t bytes) {
  at_wire_release(((virtual_wire *)w)->inner, from, lane, bytes);
}

static void wire_wake(at_wire *w) { at_wire_wake(((virtual_wire *)w)->inner); }

static at_status wire_member(at_wire *w, uint32_t member) {
  return at_wire_member(((virtual_wire *)w)->inner, member);
}

static void wire_counts(at_wire *w, at_wire_counts *out) {
  at_wire_counts_of(((virtual_wire *)w)->inner, out);
}

// Both of them.
static void wire_close(at_wire *w) {
  at_wire_close(((virtual_wire *)w)->inner);
  free(w);
}

static const at_wire_vtable kVirtual = {
    .send = wire_send,
    .release = wire_release,
    .wake = wire_wake,
    .member = wire_member,
    .counts = wire_counts,
    .close = wire_close,
};

// Looks like the inner wire but for sending and closing; what the inner one
// hears goes to its own sink.
at_wire *at_virtual_wire(at_virtual_clock *c, at_wire *inner, uint32_t host) {
  virtual_wire *v = calloc(1, sizeof *v);
  if (!v) return NULL;
  *v = (virtual_wire){.base = *inner, .clock = c, .inner = inner, .host = host};
  v->base.vtable = &kVirtual;
  return &v->base;
}
