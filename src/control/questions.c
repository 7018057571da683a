// What a client asks of hosts, and their answers: bytes of arrays go where they
// are wanted as they come.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/client_internal.h"

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a question to the pod");
}

// Consumes the reference and the status.
static void fire(at_event *done, at_status s) {
  at_event_fire(done, s);
  at_event_release(done);
}

// It is in no table, and nobody uses it. `done` has been fired or released.
static void free_question(question *q) {
  for (uint32_t d = 0; q->channels && d < q->num_devices; d++)
    free((void *)q->channels[d].list);
  free(q->channels);
  free(q->hosts);
  at_status_free(q->first);
  at_status_free(q->result);
  free(q);
}

// ---- Asking
// Consumes `done`; *out: its tag, or `done` has fired.
static question *make(at_client *c, uint32_t host, at_event *done) {
  question *q = calloc(1, sizeof *q);
  if (!q) return NULL;
  q->tag = atomic_fetch_add(&c->next_tag, 1);
  q->host = host;
  q->done = done;
  q->users = 1;
  q->asked_ns = at_spans_on() ? at_clock_ns() : 0;
  return q;
}

// A span for reads, with how long they took, and one that marks the answer.
static void record_answer(const question *q) {
  uint64_t now = at_clock_ns();
  if (!q->hosts && q->into && !q->is_stats)
    at_span_record(&(at_profile_span){.start_ns = q->asked_ns,
                                      .end_ns = now,
                                      .bytes = q->bytes,
                                      .kind = AT_SPAN_READ},
                   "read");
  at_span_record(&(at_profile_span){.start_ns = now,
                                    .end_ns = now,
                                    .flow = q->flow,
                                    .bytes = q->bytes,
                                    .kind = AT_SPAN_REPLY},
                 q->hosts ? "launch is done" : "answer");
}

// From here on the question may be answered, or fail, at any time. False: the
// pod is gone, or no memory.
static bool enter(at_client *c, question *q) {
  pthread_mutex_lock(&c->lock);
  bool in = !c->why.err && at_table_put(&c->questions, q->tag, q);
  pthread_mutex_unlock(&c->lock);
  return in;
}

// The question is the caller's to end: nobody else finds it any more.
static question *take(at_client *c, uint64_t tag) {
  pthread_mutex_lock(&c->lock);
  question *q = at_table_take(&c->questions, tag);
  pthread_mutex_unlock(&c->lock);
  return q;
}

// A new DATA_LOSS, with the wire's own reason where it has one.
static at_status lost_host(at_client *c, uint32_t host) {
  at_wire *w = atomic_load(&c->hosts[host].wire);
  at_status why = w ? at_wire_member(w, 0) : AT_OK;
  at_status st = AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost%s%s", host,
                         why.err ? ": " : "", at_status_message(why));
  return at_status_free(why), st;
}

// Consumes the question where it cannot be sent.
static void ask(at_client *c, question *q, uint32_t kind, const void *m,
                size_t bytes) {
  const at_bytes part = {m, bytes};
  const at_wire_out out = {kind, q->tag, 1, &part};
  uint32_t host = q->host;
  uint64_t tag = q->tag;
  const bool is_stats = q->is_stats;  // once it is asked, q may be gone
  uint64_t array = ((const at_msg_shard *)m)->array;
  at_client_flush(c);  // whoever waits may leave what it drops lying for long
  at_wire *w;
  at_status st = at_far_host_wire(c, host, &w);
  if (st.err) {
    // this process cannot ask
  } else if (!is_stats && array < atomic_load(&c->hosts[host].lost_before)) {
    st = AT_FAIL(AT_DATA_LOSS,
                 "an array on host %u of the pod was lost with the process "
                 "that was this host before",
                 host);
  } else if (!w) {
    st = lost_host(c, host);
  } else if (!enter(c, q)) {
    st = atomic_load(&c->closed) ? at_client_why(c) : no_memory();
  } else {
    st = is_stats ? at_client_say(c, kind, &part, 1)
                  : at_far_host_say(&c->hosts[host], w, &out, 1);
    if (!st.err) return;
    if (!take(c, tag)) return at_status_free(st);  // it has failed
    at_status_free(st);
    st = atomic_load(&c->closed) ? at_client_why(c) : lost_host(c, host);
  }
  fire(q->done, st);
  free_question(q);
}

// Where the shard is asked for; an error has been answered, and q freed.
static bool find_shard(at_client *c, question *q, const at_proxy_shard *s,
                       at_msg_shard *out) {
  at_status st = at_far_shard(c, s, out);
  if (!st.err && s->array < atomic_load(&c->lost_before[s->chip]))
    st = AT_FAIL(AT_DATA_LOSS,
                 "an array was lost with the chip that device %u stood for "
                 "before",
                 s->chip);
  if (AT_LIKELY(!st.err)) return true;
  fire(q->done, st);
  free_question(q);
  return false;
}

// A read inside a trace makes the trace fail: values would differ from run to
// run.
void at_question_read(void *arg, const at_proxy_shard *s, void *dst,
                      uint64_t offset, uint64_t bytes, at_event *done) {
  at_client *c = arg;
  if (at_trace_is_on(c)) at_trace_looks();
  question *q = make(c, c->host_of[s->chip], done);
  if (!q) return fire(done, no_memory());
  at_msg_read m = {.offset = offset, .bytes = bytes};
  if (!find_shard(c, q, s, &m.shard)) return;
  q->into = dst;
  q->bytes = bytes;
  q->flow = at_span_flow(c->client, s->array);
  ask(c, q, AT_MSG_READ, &m, sizeof m);
}

// Fires when the shard is defined; no bytes travel.
void at_question_watch(void *arg, const at_proxy_shard *s, at_event *done) {
  at_client *c = arg;
  question *q = make(c, c->host_of[s->chip], done);
  if (!q) return fire(done, no_memory());
  at_msg_watch m;
  if (!find_shard(c, q, s, &m.shard)) return;
  q->flow = at_span_flow(c->client, s->array);
  ask(c, q, AT_MSG_WATCH, &m, sizeof m);
}

// Waits. The question goes through the stream, so that it counts what the
// client has done before.
at_status at_question_stats(void *arg, uint32_t chip, bool clear,
                            at_memory_stats *out) {
  at_client *c = arg;
  uint32_t number;
  AT_TRY(at_far_chip(c, chip, &number));
  at_event *done = at_event_create();
  question *q = done ? make(c, c->host_of[chip], at_event_retain(done)) : NULL;
  at_msg_stats_are are = {0};
  if (!q) {
    at_event_release(done);
    at_event_release(done);
    return no_memory();
  }
  at_msg_stats m = {q->tag, number, clear};
  q->into = (uint8_t *)&are;
  q->bytes = sizeof are;
  q->is_stats = true;
  ask(c, q, AT_MSG_STATS, &m, sizeof m);
  at_status st = at_event_wait(done);
  at_event_release(done);
  *out = (at_memory_stats){are.in_use,     are.peak_in_use,   are.limit,
                           are.num_allocs, are.largest_alloc, are.reserved};
  return st;
}

// ---- Of the controller
static at_event *settle(question *q, at_status *s);
// Sent by the caller: the message needs the tag.
at_status at_question_begin(at_client *c, at_strbuf *reply, at_event *done,
                            uint64_t *tag) {
  question *q = make(c, UINT32_MAX, done);
  if (!q) return at_event_release(done), no_memory();
  q->reply = reply;
  *tag = q->tag;
  if (enter(c, q)) return AT_OK;
  at_event_release(done);
  free_question(q);
  return atomic_load(&c->closed) ? at_client_why(c) : no_memory();
}

// An answer nobody waits for any more is ignored.
void at_question_answered(at_client *c, uint64_t tag, at_bytes body) {
  const at_msg_answer *m = (const void *)body.ptr;
  at_bytes rest = at_message_tail(body, sizeof *m);
  at_status s = m->code ? at_message_error(m->code, rest) : AT_OK;
  at_event *done = NULL;
  pthread_mutex_lock(&c->lock);
  question *q = at_table_find(&c->questions, tag);
  if (q && q->reply) {
    at_table_take(&c->questions, tag);
    if (!s.err)
      at_strbuf_add(q->reply, (at_str){(const char *)rest.ptr, rest.len});
    done = settle(q, &s);
  }
  pthread_mutex_unlock(&c->lock);
  if (done)
    fire(done, s);
  else
    at_status_free(s);
}

// ---- Launches
// The client's lists live only as long as the call.
static bool copy_channels(question *q, const at_proxy_launch *l) {
  q->num_devices = l->num_devices;
  if (!l->channels) return true;
  q->channels = calloc(l->num_devices, sizeof *q->channels);
  if (!q->channels) return false;
  for (uint32_t d = 0; d < l->num_devices; d++) {
    size_t bytes = l->channels[d].count * sizeof(at_host_channel);
    at_host_channel *list = malloc(bytes + 1);
    if (!list) return false;
    if (bytes) memcpy(list, l->channels[d].list, bytes);
    q->channels[d] = (at_channel_list){list, l->channels[d].count};
  }
  return true;
}

// Hosts that were lost between the launch's look at them and enter() are
// counted out here, or the question would wait for ever.
uint64_t at_question_launch(at_client *c, const far_program *p,
                            const at_proxy_launch *l) {
  question *q = make(c, UINT32_MAX, at_event_retain(l->done));
  if (!q) return at_event_release(l->done), 0;
  q->hosts = malloc(p->num_hosts * sizeof *q->hosts);
  q->num_hosts = p->num_hosts;
  q->flow = at_span_flow(c->client, l->num_outputs ? l->outputs : 0);
  if (q->hosts) memcpy(q->hosts, p->hosts, p->num_hosts * sizeof *q->hosts);
  uint64_t tag = q->tag;
  if (q->hosts && copy_channels(q, l) && enter(c, q)) {
    // Who is lost from here on takes it along.
    for (uint32_t i = 0; i < p->num_hosts; i++) {
      if (!atomic_load(&c->hosts[p->hosts[i]].lost)) continue;
      at_status why = lost_host(c, p->hosts[i]);
      at_questions_fail(c, p->hosts[i], why);
      at_status_free(why);
    }
    return tag;
  }
  at_event_release(q->done);
  free_question(q);
  return 0;
}

// `done` does not fire: the caller reports the error.
void at_question_forget(at_client *c, uint64_t tag) {
  question *q = take(c, tag);
  if (!q) return;
  at_event_release(q->done);
  free_question(q);
}

// ---- Answers
// Under the lock: it is answered by *s, and out of the table. What is to be
// fired with it; NULL: callbacks run, which use what the asker may free then.
// The last of them fires it.
static at_event *settle(question *q, at_status *s) {
  at_event *done = q->done;
  if (AT_UNLIKELY(q->asked_ns != 0)) record_answer(q);
  if (--q->users) {
    q->result = *s;
    *s = AT_OK;
    return NULL;
  }
  free_question(q);
  return done;
}

// The last callback fires what the answer has left behind.
void at_question_release(at_client *c, question *q) {
  pthread_mutex_lock(&c->lock);
  bool last = !--q->users;
  pthread_mutex_unlock(&c->lock);
  if (!last) return;
  fire(q->done, q->result);
  q->result = AT_OK;
  free_question(q);
}

// Under the lock: a host has answered a launch, or is lost. True: all have.
static bool one_less(question *q, uint32_t host, at_status s) {
  uint32_t i = 0;
  while (i < q->num_hosts && q->hosts[i] != host) i++;
  if (i == q->num_hosts) return at_status_free(s), false;
  q->hosts[i] = q->hosts[--q->num_hosts];
  // Where one has failed, others are ABORTED: that is not why.
  bool is_why = !q->first.err || (s.err && at_status_code(s) != AT_ABORTED &&
                                  at_status_code(q->first) == AT_ABORTED);
  at_status_free(is_why ? q->first : s);
  if (is_why) q->first = s;
  return !q->num_hosts;
}

// Consumes s.
static void answer(far_host *h, uint64_t tag, at_status s) {
  at_client *c = h->client;
  pthread_mutex_lock(&c->lock);
  question *q = at_table_find(&c->questions, tag);
  bool mine = q && (q->hosts || q->host == h->number);
  bool over = mine && (!q->hosts || one_less(q, h->number, s));
  at_event *done = NULL;
  if (over) {
    at_table_take(&c->questions, tag);
    if (q->hosts) {
      s = q->first;
      q->first = AT_OK;
    }
    done = settle(q, &s);
  } else if (!mine) {
    at_status_free(s);
  }
  pthread_mutex_unlock(&c->lock);
  if (done) fire(done, s);
}

// One question at a time, as firing runs others' code without the lock. A
// question whose bytes are arriving only notes the error: has_arrived ends it.
void at_questions_fail(at_client *c, uint32_t host, at_status why) {
  for (;;) {
    at_event *done = NULL;
    at_status s = AT_OK;
    pthread_mutex_lock(&c->lock);
    size_t at = 0;
    for (at_table_slot *x; !done && (x = at_table_next(&c->questions, &at));) {
      question *q = x->value;
      bool concerns = host == UINT32_MAX || q->host == host;
      if (q->hosts && host != UINT32_MAX) {
        uint32_t left = q->num_hosts;
        concerns = one_less(q, host, at_status_clone(why));
        if (!concerns && left != q->num_hosts) continue;
      }
      if (!concerns) continue;
      if (!q->first.err) q->first = at_status_clone(why);
      if (q->arriving) continue;
      at_table_take(&c->questions, q->tag);
      s = q->first;
      q->first = AT_OK;
      done = settle(q, &s);
      if (!done) at = 0;
    }
    pthread_mutex_unlock(&c->lock);
    if (!done) return;
    fire(done, s);
  }
}

// Nobody writes to it any more; it may have failed meanwhile.
static void has_arrived(far_host *h, uint64_t tag) {
  at_client *c = h->client;
  at_event *done = NULL;
  at_status s = AT_OK;
  pthread_mutex_lock(&c->lock);
  question *q = at_table_find(&c->questions, tag);
  if (q && q->arriving) {
    q->arriving = false;
    if (q->first.err) {
      at_table_take(&c->questions, tag);
      s = q->first;
      q->first = AT_OK;
      done = settle(q, &s);
    }
  }
  pthread_mutex_unlock(&c->lock);
  if (done) fire(done, s);
}

// No wire is open any more, so nothing arrives either.
void at_questions_end(at_client *c) {
  pthread_mutex_lock(&c->lock);
  size_t at = 0;
  for (at_table_slot *x; (x = at_table_next(&c->questions, &at));)
    ((question *)x->value)->arriving = false;
  pthread_mutex_unlock(&c->lock);
  at_status why = at_client_why(c);
  at_questions_fail(c, UINT32_MAX, why);
  at_status_free(why);
}

// May that host bring so many bytes more for the question?
static bool is_for(const question *q, const far_host *h, uint64_t bytes) {
  return q && !q->hosts && q->host == h->number && (q->into || !bytes) &&
         bytes <= q->bytes - q->got;
}

// The bytes go straight to where they are wanted: who asked keeps that until
// the question is answered, which this thread alone does while they arrive.
static void *place(void *arg, uint32_t from, const at_wire_head *head) {
  far_session *x = arg;
  far_host *h = x->host;
  uint8_t *to = NULL;
  if (head->kind == AT_MSG_BYTES) {
    pthread_mutex_lock(&h->client->lock);
    question *q = at_table_find(&h->client->questions, head->tag);
    if (is_for(q, h, head->bytes) && !q->is_stats && !q->first.err) {
      to = q->into + q->got;
      q->arriving = true;
    }
    pthread_mutex_unlock(&h->client->lock);
  }
  return to ? to : malloc(head->bytes);
}

// True: the body is in its place.
static bool took_bytes(far_host *h, const at_wire_head *head, void *body) {
  at_client *c = h->client;
  pthread_mutex_lock(&c->lock);
  question *q = at_table_find(&c->questions, head->tag);
  bool there = is_for(q, h, head->bytes) && !q->is_stats &&
               (!head->bytes || body == q->into + q->got);
  if (there) q->got += head->bytes;
  AT_ASSERT(!there || q->got <= q->bytes);
  bool all = there && q->got == q->bytes;
  bool failed = there && q->first.err;
  pthread_mutex_unlock(&c->lock);
  if (all && !failed) answer(h, head->tag, AT_OK);
  if (there) has_arrived(h, head->tag);
  return there;
}

// Short, so it is copied instead of placed.
static void took_stats(far_host *h, uint64_t tag, at_bytes body) {
  pthread_mutex_lock(&h->client->lock);
  question *q = at_table_find(&h->client->questions, tag);
  bool is = is_for(q, h, body.len) && q->is_stats;
  if (is) memcpy(q->into, body.ptr, body.len);
  pthread_mutex_unlock(&h->client->lock);
  if (is) answer(h, tag, AT_OK);
}

// One message of a host; takes the body. Malformed ones are logged and ignored.
static bool hear(far_session *x, const at_wire_head *head, void *body) {
  far_host *h = x->host;
  at_bytes b = {body, head->bytes};
  if (head->kind == AT_MSG_BYTES) {
    if (!took_bytes(h, head, body)) free(body);
    return true;
  }
  at_status st = at_message_check(head->kind, b);
  if (st.err) {
    at_log(AT_LOG_WARNING, "host %u: %s", h->number, at_status_message(st));
    at_status_free(st);
  } else if (head->kind == AT_MSG_SENT || head->kind == AT_MSG_ASKS) {
    at_client_call(h, head, body);
    return true;
  } else if (head->kind == AT_MSG_CLOCK) {
    if (h->client->clock)
      at_virtual_clock_reach(h->client->clock, ((at_msg_clock *)body)->ns);
  } else if (head->kind == AT_MSG_DONE) {
    const uint64_t *more = body;
    answer(h, head->tag, AT_OK);
    for (size_t i = 0; i < b.len / sizeof *more; i++) answer(h, more[i], AT_OK);
  } else if (head->kind == AT_MSG_STATS_ARE) {
    took_stats(h, head->tag, b);
  } else if (head->kind == AT_MSG_FAILED) {
    const at_msg_failed *m = body;
    answer(h, head->tag,
           at_message_error(m->code, at_message_tail(b, sizeof *m)));
  }
  free(body);
  return true;
}

// The wire's poller must not wait in what it calls: at_far_poller says so.
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  at_far_poller = true;
  bool done = hear(arg, head, body);
  at_far_poller = false;
  return done;
}

// A message that ended early: memory of the asker is not freed, but written to
// no more.
static void abandon(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  far_session *x = arg;
  far_host *h = x->host;
  pthread_mutex_lock(&h->client->lock);
  const question *q = at_table_find(&h->client->questions, head->tag);
  bool in_place = head->kind == AT_MSG_BYTES && is_for(q, h, head->bytes) &&
                  body == q->into + q->got;
  pthread_mutex_unlock(&h->client->lock);
  at_far_poller = true;
  if (in_place)
    has_arrived(h, head->tag);
  else
    free(body);
  at_far_poller = false;
}

// The session with a former process may end late: it concerns nobody then.
static void lost(void *arg, uint32_t member, at_status why) {
  far_session *x = arg;
  far_host *h = x->host;
  at_status st = AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost: %s",
                         h->number, at_status_message(why));
  at_far_poller = true;
  if (x->generation == atomic_load(&h->generation)) {
    atomic_store(&h->lost, true);
    at_questions_fail(h->client, h->number, st);
  }
  at_far_poller = false;
  at_status_free(why);
  at_status_free(st);
}

const at_wire_sink at_far_host_sink = {
    .place = place, .message = message, .abandon = abandon, .lost = lost};
