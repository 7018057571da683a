#include "control/tool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "control/session.h"

enum { kTimeoutMs = 10000 };

// A connection of a tool, under its lock while the session is open.
typedef struct tool {
  pthread_mutex_t lock;
  pthread_cond_t news;
  bool answered;
  at_status why;  // there will be no answer
  at_strbuf *out;
  at_tool_spans *first, **end;  // of a trace
  uint64_t bytes;               // of them
} tool;

// Of a trace that grows without end.
static const uint64_t kMostBytes = 4ull << 30;

// Takes the body.
static void keep_spans(tool *t, void *body, uint64_t bytes) {
  at_tool_spans *s = t->bytes + bytes < kMostBytes ? malloc(sizeof *s) : NULL;
  if (!s) {
    free(body);
    if (!t->why.err)
      t->why = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for such a trace");
    return;
  }
  *s = (at_tool_spans){NULL, body};
  t->bytes += bytes;
  *t->end = s;
  t->end = &s->next;
}

// The sink: status text and spans are kept, everything else only wakes who
// waits.
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  tool *t = arg;
  pthread_mutex_lock(&t->lock);
  if (!t->answered && t->out && head->kind == AT_MSG_STATUS_IS)
    at_strbuf_add(t->out, (at_str){body, head->bytes});
  t->answered |= head->kind == AT_MSG_STATUS_IS || head->kind == AT_MSG_ORDERED;
  const at_bytes b = {body, head->bytes};
  if (head->kind == AT_MSG_FAILED && !t->why.err) {
    t->why = at_message_check(head->kind, b);
    if (!t->why.err)
      t->why = at_message_error(((const at_msg_failed *)body)->code,
                                at_message_tail(b, sizeof(at_msg_failed)));
  }
  t->answered |= head->kind == AT_MSG_TRACED;
  bool keeps = head->kind == AT_MSG_SPANS && t->end &&
               !at_code_take(at_message_check(head->kind, b));
  if (keeps) keep_spans(t, body, head->bytes);
  pthread_cond_signal(&t->news);
  pthread_mutex_unlock(&t->lock);
  if (!keeps) free(body);
  return true;
}

// Consumes why.
static void lost(void *arg, uint32_t member, at_status why) {
  tool *t = arg;
  pthread_mutex_lock(&t->lock);
  t->why = at_status_join(t->why, why);
  pthread_cond_signal(&t->news);
  pthread_mutex_unlock(&t->lock);
}

// Waits for an answer, the end of the session or until_ns. UNAVAILABLE: the
// time is over.
static at_status wait(tool *t, uint64_t until_ns) {
  struct timespec until = at_clock_timespec(until_ns);
  int late = 0;
  pthread_mutex_lock(&t->lock);
  while (!t->answered && !t->why.err && !late)
    late = pthread_cond_timedwait(&t->news, &t->lock, &until);
  at_status st = AT_OK;
  if (!t->answered)
    st = t->why.err ? at_status_clone(t->why)
                    : AT_FAIL(AT_UNAVAILABLE,
                              "the controller of the pod does not answer");
  pthread_mutex_unlock(&t->lock);
  return st;
}

// at_once: where nobody listens there is nothing to wait for.
static at_status open_tool(const at_tool_options *o, tool *t, uint32_t ms,
                           at_wire **out) {
  pthread_mutex_init(&t->lock, NULL);
  at_clock_cond_init(&t->news);
  return at_session_open(
      &(at_session_options){
          .address = o->address,
          .source = o->source,
          .token = o->token,
          .timeout_ms = ms,
          .at_once = true,
          .hello = {.kind = AT_SESSION_TOOL, .name = "atoll pod"},
          .sink = {t, at_session_block, message, at_session_unblock, NULL,
                   lost}},
      out);
}

// Also of one that could not be opened.
static void close_tool(tool *t, at_wire *w) {
  at_wire_close(w);
  at_status_free(t->why);
  pthread_mutex_destroy(&t->lock);
  pthread_cond_destroy(&t->news);
}

// Sends one message and waits for its answer.
static at_status order(tool *t, at_wire *w, at_message_kind kind, at_bytes body,
                       uint64_t until) {
  const at_wire_out m = {
      .kind = kind, .num_parts = body.len ? 1 : 0, .parts = &body};
  pthread_mutex_lock(&t->lock);
  t->answered = false;
  pthread_mutex_unlock(&t->lock);
  AT_TRY(at_wire_send(w, 0, AT_WIRE_BULK, &m, 1,
                      &(at_wire_wait){.until_ns = until}, NULL));
  return wait(t, until);
}

static uint64_t deadline(uint32_t ms) {
  return at_clock_ns() + ms * 1000000ull;
}

// One connection for one question.
at_status at_tool_ask(const at_tool_options *o, at_message_kind kind,
                      at_bytes body, at_strbuf *out) {
  tool t = {.out = out};
  uint32_t ms = o->timeout_ms ? o->timeout_ms : kTimeoutMs;
  uint64_t until = deadline(ms);
  at_wire *w = NULL;
  at_status st = open_tool(o, &t, ms, &w);
  if (!st.err) st = order(&t, w, kind, body, until);
  close_tool(&t, w);
  return st;
}

// ---- Traces
struct at_tool_trace {
  tool tool;
  at_wire *wire;
};

// Waits for ORDERED or FAILED.
static at_status order_trace(at_tool_trace *x, bool on) {
  const at_msg_trace m = {.on = on};
  return order(&x->tool, x->wire, AT_MSG_TRACE,
               (at_bytes){(const uint8_t *)&m, sizeof m}, deadline(kTimeoutMs));
}

// The connection stays open, and spans come by it, until at_tool_trace_free.
at_status at_tool_trace_begin(const at_tool_options *o, at_tool_trace **out) {
  at_tool_trace *x = calloc(1, sizeof *x);
  if (!x) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a trace");
  x->tool.end = &x->tool.first;
  at_status st = open_tool(
      o, &x->tool, o->timeout_ms ? o->timeout_ms : kTimeoutMs, &x->wire);
  if (!st.err) st = order_trace(x, true);
  if (st.err)
    at_tool_trace_free(x);
  else
    *out = x;
  return st;
}

// TRACED is the last message of the trace, so all spans are here when it has
// come.
at_status at_tool_trace_end(at_tool_trace *x, const at_tool_spans **out) {
  AT_TRY(order_trace(x, false));
  *out = x->tool.first;
  return AT_OK;
}

// The controller ends the trace when it sees that the tool is gone.
void at_tool_trace_free(at_tool_trace *x) {
  if (!x) return;
  close_tool(&x->tool, x->wire);
  for (at_tool_spans *s; (s = x->tool.first);) {
    x->tool.first = s->next;
    free(s->is);
    free(s);
  }
  free(x);
}
