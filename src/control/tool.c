#include "control/tool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "control/session.h"

enum { kTimeoutMs = 10000 };

typedef struct tool {
  pthread_mutex_t lock;
  pthread_cond_t news;
  bool answered;
  at_status why;  // there will be no answer
  at_strbuf *out;
} tool;

static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  tool *t = arg;
  pthread_mutex_lock(&t->lock);
  if (!t->answered && t->out && head->kind == AT_MSG_STATUS_IS)
    at_strbuf_add(t->out, (at_str){body, head->bytes});
  t->answered |= head->kind == AT_MSG_STATUS_IS || head->kind == AT_MSG_ORDERED;
  const at_bytes b = {body, head->bytes};
  if (head->kind == AT_MSG_FAILED && b.len >= sizeof(at_msg_failed))
    t->why = at_status_join(
        t->why, at_message_error(((const at_msg_failed *)body)->code,
                                 at_message_tail(b, sizeof(at_msg_failed))));
  pthread_cond_signal(&t->news);
  pthread_mutex_unlock(&t->lock);
  free(body);
  return true;
}

static void lost(void *arg, uint32_t member, at_status why) {
  tool *t = arg;
  pthread_mutex_lock(&t->lock);
  t->why = at_status_join(t->why, why);
  pthread_cond_signal(&t->news);
  pthread_mutex_unlock(&t->lock);
}

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

at_status at_tool_ask(const at_tool_options *o, at_message_kind kind,
                      at_strbuf *out) {
  return at_tool_ask_about(o, kind, AT_STR(""), out);
}

at_status at_tool_ask_about(const at_tool_options *o, at_message_kind kind,
                            at_str about, at_strbuf *out) {
  tool t = {.out = out};
  uint32_t ms = o->timeout_ms ? o->timeout_ms : kTimeoutMs;
  uint64_t until = at_clock_ns() + ms * 1000000ull;
  at_wire *w = NULL;
  const at_bytes part = {(const uint8_t *)about.ptr, about.len};
  const at_wire_out m = {
      .kind = kind, .num_parts = about.len ? 1 : 0, .parts = &part};
  pthread_mutex_init(&t.lock, NULL);
  at_clock_cond_init(&t.news);
  at_status st = at_session_open(
      &(at_session_options){
          .address = o->address,
          .source = o->source,
          .token = o->token,
          .timeout_ms = ms,
          .at_once = true,
          .hello = {.kind = AT_SESSION_TOOL, .name = "atoll pod"},
          .sink = {&t, at_session_block, message, at_session_unblock, NULL,
                   lost}},
      &w);
  if (!st.err)
    st = at_wire_send(w, 0, AT_WIRE_BULK, &m, 1,
                      &(at_wire_wait){.until_ns = until}, NULL);
  if (!st.err) st = wait(&t, until);
  at_wire_close(w);
  at_status_free(t.why);
  pthread_mutex_destroy(&t.lock);
  pthread_cond_destroy(&t.news);
  return st;
}
