#include "control/record.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

enum { kRestNs = 1000000000 };

typedef bool (*say_fn)(void *to, const at_wire_out *m);

// say_fn over an outbox.
static bool say_later(void *to, const at_wire_out *m) {
  return at_outbox_send(to,
                        &(at_outbox_post){.lane = AT_WIRE_BULK, .message = *m});
}

// say_fn over a wire; waits a second at most.
static bool say_now(void *to, const at_wire_out *m) {
  const at_wire_wait wait = {.until_ns = at_clock_ns() + kRestNs};
  return !at_code_take(at_wire_send(to, 0, AT_WIRE_BULK, m, 1, &wait, NULL));
}

// All spans of this process, in messages of AT_RECORD_SPANS; `more` is set in
// all but the last.
static void say_all(at_msg_recorded m, say_fn say, void *to) {
  at_profile_span *spans = malloc(AT_RECORD_SPANS * sizeof *spans);
  bool goes_on = true;
  if (!spans) return at_log(AT_LOG_ERROR, "no memory to tell of a trace");
  while (goes_on) {
    m.count = (uint32_t)at_spans_take(spans, AT_RECORD_SPANS, &m.dropped);
    m.more = m.count == AT_RECORD_SPANS;
    m.said_ns = at_clock_ns();
    const at_bytes parts[] = {
        {(const uint8_t *)&m, sizeof m},
        {(const uint8_t *)spans, m.count * sizeof *spans}};
    goes_on = say(to, &(at_wire_out){.kind = AT_MSG_RECORDED,
                                     .num_parts = 2,
                                     .parts = parts}) &&
              m.more;
  }
  free(spans);
}

// Starting twice is harmless. Stops before it answers, so the answer with on =
// 0 has everything.
void at_record_answer(at_outbox *to, const at_msg_record *m) {
  at_msg_recorded r = {.number = m->number,
                       .asked_ns = m->now_ns,
                       .heard_ns = at_clock_ns(),
                       .on = m->on};
  at_status st = m->on ? at_spans_start() : AT_OK;
  if (st.err) at_log(AT_LOG_ERROR, "%s", at_status_message(st));
  at_status_free(st);
  if (!m->on) at_spans_stop();
  say_all(r, say_later, to);
}

// `on` 1: the process says what it has without having been asked to end.
void at_record_rest(at_wire *to, uint64_t number) {
  say_all((at_msg_recorded){.number = number, .on = 1}, say_now, to);
}
