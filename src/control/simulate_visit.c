// What clients ask of simulated hosts, and the answers. One listener stands for
// all hosts; a session says with its first CLOCK which of them it means.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/sha256.h"
#include "control/simulate_internal.h"

static const uint8_t kZeros[64 << 10];

// ---- Sessions; on threads of the listener and of wires
// For the thread of virtual time. Takes the body, also on failure.
static at_status post(sim_visitor *v, uint32_t kind, uint64_t tag,
                      uint8_t *body, size_t bytes) {
  sim_job *j = calloc(1, sizeof *j);
  if (!j)
    return free(body), AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a client");
  j->kind = kind;
  j->tag = tag;
  j->visitor = v;
  j->body = body;
  j->bytes = bytes;
  at_sim_post(v->owner, j);
  return AT_OK;
}

// DATA is ignored: its time has been charged with the array.
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  at_status st = at_message_check(head->kind, (at_bytes){body, head->bytes});
  if (!st.err && head->kind != AT_MSG_DATA) {
    st = post(arg, head->kind, head->tag, body, head->bytes);
    body = NULL;
  }
  if (st.err) at_log(AT_LOG_WARNING, "a client: %s", at_status_message(st));
  at_status_free(st);
  free(body);
  return true;
}

static void post_gone(sim_visitor *v) {
  at_status_free(post(v, kSimGone, 0, NULL, 0));
}

// An open session is forgotten by the thread of virtual time, which may have
// its questions.
static void lost(void *arg, uint32_t member, at_status why) {
  sim_visitor *v = arg;
  at_status_free(why);
  pthread_mutex_lock(&v->owner->lock);
  v->gone = true;
  bool open = v->open;  // else `opened` says so
  pthread_mutex_unlock(&v->owner->lock);
  if (open) post_gone(v);
}

// Any client may come; which one it is, IAM says.
static at_status ask(void *arg, const at_session_hello *hello,
                     at_wire_sink *sink, void **out) {
  at_simulated *s = arg;
  if (hello->kind != AT_SESSION_CLIENT)
    return AT_FAIL(AT_INVALID_ARGUMENT, "these are the hosts of a pod");
  sim_visitor *v = calloc(1, sizeof *v);
  at_status st = v ? at_outbox_create(&v->outbox)
                   : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a client");
  if (st.err) return free(v), st;
  v->owner = s;
  *sink = (at_wire_sink){.arg = v,
                         .place = at_session_block,
                         .message = message,
                         .abandon = at_session_unblock,
                         .lost = lost};
  pthread_mutex_lock(&s->lock);
  v->next = s->visitors;
  s->visitors = v;
  pthread_mutex_unlock(&s->lock);
  *out = v;
  return AT_OK;
}

// The outbox opens before `open` is seen.
static void opened(void *arg, void *peer, at_wire *w) {
  sim_visitor *v = peer;
  v->wire = w;
  at_outbox_open(v->outbox, w, 1);
  pthread_mutex_lock(&v->owner->lock);
  v->open = true;
  bool gone = v->gone;
  pthread_mutex_unlock(&v->owner->lock);
  if (gone) post_gone(v);
}

// To the thread of virtual time, which owns visitors.
static void broken(void *arg, void *peer, at_status why) {
  at_status_free(why);
  post_gone(peer);
}

// On this machine only: clients of simulated hosts are all here.
at_status at_sim_listen(at_simulated *s) {
  return at_listener_open(
      &(at_listener_options){
          .address = "127.0.0.1:0",
          .source = "simulated hosts",
          .token = s->o.token,
          .calls = {.arg = s, .ask = ask, .opened = opened, .broken = broken}},
      &s->listener);
}

// Not under the lock: closing waits for the wire's poller.
static void free_visitor(sim_visitor *v) {
  at_outbox_stop(v->outbox);
  at_wire_close(v->wire);
  at_outbox_free(v->outbox);
  free(v);
}

void at_sim_visitors_free(at_simulated *s) {
  for (sim_visitor *v; (v = s->visitors);) {
    s->visitors = v->next;
    free_visitor(v);
  }
}

// With the questions that it still waits for.
static void forget_visitor(at_simulated *s, sim_visitor *v) {
  for (sim_tenant *t = s->tenants; t; t = t->next)
    for (sim_question **at = &t->waiting, *q; (q = *at);) {
      if (q->visitor != v) {
        at = &q->next;
        continue;
      }
      *at = q->next;
      free(q);
    }
  pthread_mutex_lock(&s->lock);
  sim_visitor **at = &s->visitors;
  while (*at && *at != v) at = &(*at)->next;
  if (*at) *at = v->next;
  pthread_mutex_unlock(&s->lock);
  free_visitor(v);
}

// ---- Answers; on the thread of virtual time
static void say(sim_visitor *v, at_wire_lane lane, uint32_t kind, uint64_t tag,
                const at_bytes *parts, uint32_t n) {
  at_outbox_send(v->outbox, &(at_outbox_post){.lane = lane,
                                              .message = {.kind = kind,
                                                          .tag = tag,
                                                          .num_parts = n,
                                                          .parts = parts}});
}

// The client goes on at the time of the answer, not before.
static void say_clock(sim_visitor *v, at_wire_lane lane, sim_tenant *t,
                      uint64_t ns) {
  const at_msg_clock m = {.ns = ns, .host = v->host};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  t->answered_ns = AT_MAX(t->answered_ns, ns);
  sim_counts *c = &v->owner->counts;
  c->now_ns = AT_MAX(c->now_ns, ns);
  say(v, lane, AT_MSG_CLOCK, 0, &part, 1);
}

// why: static text.
static void say_failed(sim_visitor *v, uint64_t tag, at_code code,
                       const char *why) {
  at_msg_failed m = {.code = code};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            {(const uint8_t *)why, strlen(why)}};
  say(v, AT_WIRE_CONTROL, AT_MSG_FAILED, tag, parts, 2);
}

// The values of simulated arrays are 0, in as many pieces as a real host would
// send.
static void say_zeros(sim_visitor *v, at_wire_lane lane, uint64_t tag,
                      uint64_t bytes) {
  const uint64_t most = AT_MIN(bytes, (uint64_t)AT_MESSAGE_PIECE);
  uint8_t *more = most > sizeof kZeros ? calloc(1, most) : NULL;
  if (most > sizeof kZeros && !more)
    return say_failed(v, tag, AT_RESOURCE_EXHAUSTED, "no memory for an answer");
  uint64_t sent = 0;
  do {
    const at_bytes piece = {more ? more : kZeros, AT_MIN(bytes - sent, most)};
    say(v, lane, AT_MSG_BYTES, tag, &piece, piece.len ? 1 : 0);
    sent += piece.len;
  } while (sent < bytes);
  free(more);
}

// The answer leaves when the array is there, the host has worked for it and its
// network card is free. CLOCK goes ahead of it on the same lane, so the
// client's clock is right when it wakes.
static void answer(at_simulated *s, sim_tenant *t, const sim_question *q,
                   const sim_array *a) {
  enum { kControl = 16 << 10 };
  sim_visitor *v = q->visitor;
  sim_host *h = &s->hosts[v->host];
  at_wire_lane lane = q->kind == AT_MSG_READ && q->bytes > kControl
                          ? AT_WIRE_BULK
                          : AT_WIRE_CONTROL;
  if (q->shard.shard >= a->count || q->bytes > a->bytes)
    return say_failed(v, q->tag, AT_INVALID_ARGUMENT,
                      "the array has no such part");
  uint64_t ready =
      AT_MAX(q->clock_ns + s->o.latency, a->ready_ns[q->shard.shard]);
  uint64_t end = at_sim_work(s, &h->free_ns, ready, s->o.charges.host_answer);
  uint64_t bytes = q->kind == AT_MSG_READ ? q->bytes : 0;
  h->nic_ns = AT_MAX(h->nic_ns, end) + at_sim_wire_ns(s, bytes);
  say_clock(v, lane, t, h->nic_ns + s->o.latency);
  if (a->failed) return say_failed(v, q->tag, AT_UNIMPLEMENTED, a->failed);
  if (q->kind == AT_MSG_READ) return say_zeros(v, lane, q->tag, q->bytes);
  say(v, lane, AT_MSG_DONE, q->tag, NULL, 0);
}

// NULL: that client has not called that host yet.
static sim_visitor *visitor_of(at_simulated *s, uint64_t client,
                               uint32_t host) {
  pthread_mutex_lock(&s->lock);
  sim_visitor *v = s->visitors;
  while (v && (v->client != client || v->host != host)) v = v->next;
  pthread_mutex_unlock(&s->lock);
  return v;
}

// The session is open. STATS_ARE has only the limit.
static void say_now(at_simulated *s, sim_visitor *v, sim_tenant *t,
                    const sim_unsaid *x) {
  const at_msg_stats_are are = {.limit = s->hbm_bytes};
  const at_bytes part = {(const uint8_t *)&are, sizeof are};
  // Clients are told of launches that they do not wait for.
  if (x->kind == AT_MSG_STATS_ARE)
    say_clock(v, AT_WIRE_CONTROL, t, x->ns + s->o.latency);
  if (x->failed) return say_failed(v, x->tag, AT_UNIMPLEMENTED, x->failed);
  say(v, AT_WIRE_CONTROL, x->kind, x->tag, &part, x->kind == AT_MSG_STATS_ARE);
}

// The stream may be ahead of the session.
void at_sim_say(at_simulated *s, sim_tenant *t, const sim_unsaid *what) {
  sim_visitor *v = visitor_of(s, t->client, what->host);
  if (v) return say_now(s, v, t, what);
  sim_unsaid *keep = malloc(sizeof *keep);
  if (!keep) return at_log(AT_LOG_ERROR, "no memory for an answer");
  *keep = *what;
  keep->next = t->unsaid;
  t->unsaid = keep;
}

// The session has come that these answers waited for.
static void say_unsaid(at_simulated *s, sim_tenant *t, sim_visitor *v) {
  for (sim_unsaid **at = &t->unsaid, *x; (x = *at);) {
    if (x->host != v->host) {
      at = &x->next;
      continue;
    }
    *at = x->next;
    say_now(s, v, t, x);
    free(x);
  }
}

// Whether its messages before have come, so that the answer does not depend on
// which way is faster. *out: the array; NULL: it is not there.
static bool may_answer(const sim_tenant *t, const sim_question *q,
                       const sim_array **out) {
  *out = at_table_find(&t->arrays, q->shard.array);
  return *out && (int32_t)(t->heard - q->said) >= 0;
}

// In the order in which they were asked.
void at_sim_answer_waiting(at_simulated *s, sim_tenant *t) {
  for (sim_question **at = &t->waiting, *q; (q = *at);) {
    const sim_array *a;
    if (!may_answer(t, q, &a)) {
      at = &q->next;
      continue;
    }
    *at = q->next;
    answer(s, t, q, a);
    free(q);
  }
}

// Nobody is told.
void at_sim_questions_free(sim_tenant *t) {
  for (sim_question *q; (q = t->waiting);) {
    t->waiting = q->next;
    free(q);
  }
  for (sim_unsaid *x; (x = t->unsaid);) {
    t->unsaid = x->next;
    free(x);
  }
}

// ---- Questions
// A session is of one client for good.
static void introduce(at_simulated *s, sim_visitor *v, const at_msg_iam *m) {
  uint8_t key[AT_CONTROL_KEY];
  at_control_key(s->secret, m->client, key);
  if (v->client || !at_secrets_equal(key, m->key, sizeof key))
    return at_log(AT_LOG_WARNING, "a client says to be number %llu, but is not",
                  (unsigned long long)m->client);
  v->client = m->client;
  sim_tenant *t = at_sim_tenant(s, v->client, true);
  if (t) say_unsaid(s, t, v);
}

// Answered now, or kept until the stream has come as far as the client was when
// it asked.
static void question(at_simulated *s, sim_visitor *v, const sim_job *j) {
  sim_tenant *t = at_sim_tenant(s, v->client, true);
  sim_question q = {.visitor = v,
                    .kind = j->kind,
                    .tag = j->tag,
                    .clock_ns = v->clock_ns,
                    .said = v->said,
                    .shard = *(const at_msg_shard *)(const void *)j->body};
  if (j->kind == AT_MSG_READ)
    q.bytes = ((const at_msg_read *)(const void *)j->body)->bytes;
  const sim_array *a;
  if (t && may_answer(t, &q, &a)) return answer(s, t, &q, a);
  sim_question *keep = t ? malloc(sizeof *keep) : NULL;
  if (!keep)
    return say_failed(v, j->tag, AT_RESOURCE_EXHAUSTED,
                      "no memory for a question");
  *keep = q;
  keep->next = NULL;
  sim_question **end = &t->waiting;
  while (*end) end = &(*end)->next;
  *end = keep;
}

// One message of a session; frees nothing of j.
void at_sim_visit(at_simulated *s, sim_job *j) {
  sim_visitor *v = j->visitor;
  if (j->kind == kSimGone) return forget_visitor(s, v);
  if (j->kind == AT_MSG_IAM) return introduce(s, v, (const void *)j->body);
  if (j->kind == AT_MSG_CLOCK) {
    const at_msg_clock *m = (const void *)j->body;
    v->clock_ns = AT_MAX(v->clock_ns, m->ns);
    v->said = m->said;
    if (m->host < s->o.num_hosts) v->host = m->host;
  }
  if (!v->client) return;
  // The bytes of a WRITE are charged with the array.
  if (j->kind == AT_MSG_READ || j->kind == AT_MSG_WATCH) question(s, v, j);
}
