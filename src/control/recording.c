// A trace of the pod: while a tool wants one, the controller asks clients and
// hosts again and again for the spans that they have kept, and passes them on
// with what it knows of their clocks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/controller_internal.h"

static const uint64_t kMostBytes = 64 << 20,  // that a slow tool has not taken
    kEndNs = 2000000000;

// Whose spans belong to the trace: hosts with a place and welcomed clients.
static bool takes_part(const peer *p) {
  if (p->gone || !p->wire) return false;
  return p->kind == AT_SESSION_HOST
             ? p->session && !p->replaced
             : p->kind == AT_SESSION_CLIENT && p->welcomed && !p->left;
}

// RECORD to one peer: keep spans (on), or say the rest and stop.
static void ask(peer *p, uint32_t on) {
  at_msg_record m = {.number = p->controller->recording.number,
                     .now_ns = at_clock_ns(),
                     .on = on};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  at_peer_say(p, AT_MSG_RECORD, &part, 1);
}

// The time of asking is kept, as answers are compared with it.
static void ask_all(at_controller *c, uint32_t on) {
  c->recording.asked_ns = at_clock_ns();
  for (peer *p = c->peers; p; p = p->next)
    if (takes_part(p)) ask(p, on);
}

// ---- To the tool
typedef struct parcel {
  at_controller *controller;
  uint64_t bytes;
  uint8_t body[];
} parcel;

// The tool has taken a parcel, or will not: its bytes are free again.
static void sent(void *arg) {
  parcel *x = arg;
  atomic_fetch_sub(&x->controller->recording.under_way, x->bytes);
  free(x);
}

// Spans to the tool, unless it has 64 MiB under way already: then they are
// dropped and counted. spans is copied.
static void pass_on(at_controller *c, at_msg_spans m,
                    const at_profile_span *spans) {
  size_t bytes = sizeof m + m.count * sizeof *spans;
  bool room = atomic_load(&c->recording.under_way) + bytes <= kMostBytes;
  parcel *x = room ? malloc(sizeof *x + bytes) : NULL;
  m.dropped += c->recording.dropped;
  c->recording.dropped = x ? 0 : m.dropped + m.count;
  if (!x) return;
  x->controller = c;
  x->bytes = bytes;
  memcpy(x->body, &m, sizeof m);
  if (m.count) memcpy(x->body + sizeof m, spans, m.count * sizeof *spans);
  atomic_fetch_add(&c->recording.under_way, bytes);
  const at_bytes part = {x->body, bytes};
  at_outbox_send(c->recording.tool->outbox,
                 &(at_outbox_post){.lane = AT_WIRE_BULK,
                                   .message = {AT_MSG_SPANS, 0, 1, &part},
                                   .sent = sent,
                                   .arg = x});
}

// The controller's own spans, with an offset of 0.
static void pass_on_own(at_controller *c) {
  at_profile_span *spans = malloc(AT_RECORD_SPANS * sizeof *spans);
  at_msg_spans m = {.count = AT_RECORD_SPANS};
  while (spans && m.count == AT_RECORD_SPANS) {
    m.count = (uint32_t)at_spans_take(spans, AT_RECORD_SPANS, &m.dropped);
    if (m.count || m.dropped) pass_on(c, m, spans);
  }
  free(spans);
}

// ---- Clocks
// Of two clocks that differ by less than a question takes, nobody knows that
// they differ: those of one machine do not.
static void learn_clock(peer *p, const at_msg_recorded *m) {
  uint64_t now = at_clock_ns(), there = m->said_ns - m->heard_ns;
  if (!m->asked_ns || m->asked_ns > now || m->said_ns < m->heard_ns ||
      there > now - m->asked_ns)
    return;
  uint64_t way = now - m->asked_ns - there;
  if (p->clock_known && way >= p->clock_way_ns) return;
  p->clock_known = true;
  p->clock_way_ns = way;
  int64_t offset =
      ((int64_t)(m->heard_ns - m->asked_ns) + (int64_t)(m->said_ns - now)) / 2;
  bool same = (uint64_t)(offset < 0 ? -offset : offset) <= (way + 1) / 2;
  p->clock_offset_ns = same ? 0 : offset;
}

// ---- The tool
// Has everybody who takes part said its last spans of this trace?
static bool all_have_ended(const at_controller *c) {
  for (const peer *p = c->peers; p; p = p->next)
    if (takes_part(p) && p->recorded != c->recording.number) return false;
  return true;
}

// The last spans of the controller itself, then TRACED.
static void finish(at_controller *c) {
  at_spans_stop();
  pass_on_own(c);
  at_peer_say(c->recording.tool, AT_MSG_TRACED, NULL, 0);
  c->recording.tool = NULL;
}

// Ending asks everybody for the rest and waits kEndNs at most.
at_status at_recording_order(peer *tool, bool on) {
  at_controller *c = tool->controller;
  if (c->recording.tool && (on || c->recording.tool != tool))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "somebody makes a trace of the pod already");
  if (!on && !c->recording.tool)
    return AT_FAIL(AT_FAILED_PRECONDITION, "no trace is made");
  if (!on) {
    c->recording.ends_ns = at_clock_ns() + kEndNs;
    ask_all(c, 0);
    if (all_have_ended(c)) finish(c);
    return AT_OK;
  }
  AT_TRY(at_spans_start());
  c->recording.tool = tool;
  c->recording.number++;
  c->recording.ends_ns = c->recording.dropped = 0;
  ask_all(c, 1);
  return AT_OK;
}

// While a trace is made new clients are part of it from their first message.
void at_recording_welcome(peer *client) {
  const at_controller *c = client->controller;
  if (c->recording.tool && !c->recording.ends_ns) ask(client, 1);
}

// Answers to an earlier trace are ignored.
void at_recording_heard(peer *p, at_bytes body) {
  at_controller *c = p->controller;
  const at_msg_recorded *m = (const void *)body.ptr;
  if (!c->recording.tool || m->number != c->recording.number) return;
  learn_clock(p, m);
  at_msg_spans s = {
      .kind = p->kind,
      .number = p->kind == AT_SESSION_HOST ? p->number : (uint32_t)p->client,
      .pid = p->hello.pid,
      .count = m->count,
      .offset_ns = p->clock_offset_ns,
      .error_ns = p->clock_offset_ns ? p->clock_way_ns / 2 : 0,
      .dropped = m->dropped};
  snprintf(s.name, sizeof s.name, "%s", p->hello.name);
  if (m->count || m->dropped) pass_on(c, s, (const at_profile_span *)(m + 1));
  if (!m->on && !m->more) p->recorded = m->number;
  if (c->recording.ends_ns && all_have_ended(c)) finish(c);
}

// A tool that is gone ends its trace. Called often while there is one, as rings
// of spans are small.
void at_recording_look(at_controller *c) {
  if (!c->recording.tool) return;
  if (c->recording.tool->gone) {
    c->recording.tool = NULL;
    at_spans_stop();
    return ask_all(c, 0);
  }
  if (!c->recording.ends_ns) {
    ask_all(c, 1);
    return pass_on_own(c);
  }
  if (at_clock_ns() > c->recording.ends_ns || all_have_ended(c)) finish(c);
}
