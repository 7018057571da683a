// Processes that exchange messages over a wire. Its poller puts what comes into
// one list, and wakes who waits for it. A message keeps its credits until
// somebody takes it, so that the list is bounded.
#include "pod/hosts.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/thread.h"
#include "pod/blocks.h"
#include "pod/build.h"
#include "pod/failures.h"
#include "pod/lines.h"
#include "pod/meet.h"
#include "pod/share.h"
#include "pod/wire.h"
#include "sparsecore/engine.h"

enum {
  kMaxHosts = 1024,
  kSmallBytes = 8192,  // up to here messages pass those with more data
  kWatchMs = 250,      // between two looks at who waits
  kTellSeconds = 10,   // of waiting before it is said
  kMs = 1000000,       // ns
};
static const uint64_t kBodyBytes = 1ull << 40;    // of a message, at most
static const uint64_t kWindowBytes = 1ull << 30;  // sent and not yet taken
enum { kWindowMessages = 1 << 14 };

// Of the wire's messages. Behind the body of each is its tag.
typedef enum kind {
  KIND_DATA,
  KIND_FAIL,
  KIND_POST,
  KIND_LINE,
  KIND_LINE_LAST,
  KIND_LINE_REPORT,
  KINDS
} kind;

typedef struct message {
  struct message *next;
  uint32_t host;
  at_wire_head head;
  at_hosts_tag tag;
  uint8_t *body;   // at_hosts_block
  uint64_t bytes;  // of the body without the tag
} message;

typedef struct peer {
  bool gone;
  at_status why;  // with `gone`
} peer;

// Who waits for a message: on its own stack, in a list.
typedef struct waiter {
  struct waiter *next;
  uint32_t host;
  at_hosts_tag tag;
  uint64_t since_ns;
  bool told, expired;
  at_event *news;  // fires when it should look again; NULL: it does not sleep
  // Of whom messages with this tag are waited for behind it.
  const at_hosts_mail *then;
  uint32_t num_then;
} waiter;

struct at_pod_hosts {
  at_hosts face;
  at_wire *wire;
  pthread_mutex_t lock;  // what follows
  message *first, **last;
  at_failures dropped;  // here
  at_failures told;     // what others have said of theirs
  waiter *waiters;
  uint64_t deadline_s;  // of a wait; 0: none
  uint32_t num_lines;   // that are open
  bool closing;
  bool watched;          // by the listener
  at_pod_share *share;   // NULL: everything travels by messages
  at_unsaid *unsaid;     // failures without room: the watcher sends them
  pthread_cond_t watch;  // closing, or `unsaid`
  at_thread *watcher;
  pthread_mutex_t hearing;  // what follows; held while a listener is called
  at_pod_listener listener;
  message *early, **early_last;  // posts that came before there was one
  at_pod_lines *lines;
  at_hosts_lines line_face;
  pthread_mutex_t agreeing;  // what follows: one agreement at a time
  uint32_t agreements;
  at_pod_blocks blocks;
  at_pod_job job;  // with `returns`; its texts are this one's own
  peer peers[];
};

// ---- Sending
// A member that is lost is told to who waits for it.
static void send_message(at_pod_hosts *a, uint32_t to, kind k,
                         const at_hosts_tag *tag, const at_bytes *body,
                         uint32_t pieces) {
  at_bytes own[8], *parts = own;
  uint64_t bytes = 0;
  if (pieces >= AT_LEN(own)) parts = malloc((pieces + 1) * sizeof *parts);
  if (!parts) {  // the tag alone would be another message: the other side waits
    at_log(AT_LOG_ERROR, "no memory to send %u pieces to process %u", pieces,
           to);
    return;
  }
  for (uint32_t i = 0; i < pieces; i++) {
    parts[i] = body[i];
    bytes += body[i].len;
  }
  parts[pieces] = (at_bytes){(const uint8_t *)tag, sizeof *tag};
  const at_wire_out out = {.kind = k, .num_parts = pieces + 1, .parts = parts};
  const at_wire_wait wait = {.until_ns = UINT64_MAX};
  at_wire_lane lane = bytes <= kSmallBytes ? AT_WIRE_CONTROL : AT_WIRE_BULK;
  at_status_free(at_wire_send(a->wire, to, lane, &out, 1, &wait, NULL));
  if (parts != own) free(parts);
}

// ---- What comes
// Under the lock: all who wait look again.
static void wake_all(at_pod_hosts *a) {
  for (waiter *w = a->waiters; w; w = w->next)
    if (w->news) at_event_fire(w->news, AT_OK);
}

// Round included: a collective exchanges several times under one step.
static bool is_for(const message *m, uint32_t host, const at_hosts_tag *tag) {
  const at_hosts_tag *t = &m->tag;
  return m->host == host && at_hosts_same_launch(t, tag) &&
         t->step == tag->step && t->turn == tag->turn && t->round == tag->round;
}

// Under the lock: whom the message wakes, with a reference; NULL: nobody.
static at_event *who_waits_for(const at_pod_hosts *a, const message *m) {
  for (const waiter *w = a->waiters; w; w = w->next)
    if (w->news && is_for(m, w->host, &w->tag)) return at_event_retain(w->news);
  return NULL;
}

// Has this process given up the launch?
static const at_failure *find_dropped(const at_pod_hosts *a,
                                      const at_hosts_tag *tag) {
  return at_failures_find(&a->dropped, a->face.me, tag);
}

// The sender may send as much more.
static void release_credits(at_pod_hosts *a, const message *m) {
  at_wire_release(a->wire, m->host, m->head.lane, m->head.bytes);
}

static void free_message(at_pod_hosts *a, message *m) {
  at_pod_block_give(&a->blocks, m->body);
  free(m);
}

// at_wire_sink.place: from the pool of blocks, as most messages of a program
// have the same few sizes.
static void *sink_place(void *arg, uint32_t from, const at_wire_head *head) {
  at_pod_hosts *a = arg;
  (void)from;
  return at_pod_block_take(&a->blocks, head->bytes);
}

// The sender has given the message up before it was whole.
static void sink_abandon(void *arg, uint32_t from, const at_wire_head *head,
                         void *body) {
  (void)arg, (void)from, (void)head;
  free(body);
}

// Under the lock.
static void give_up(at_pod_hosts *a, uint32_t host, at_status why) {
  peer *p = &a->peers[host];
  if (p->gone) {
    at_status_free(why);
    return;
  }
  p->gone = true;
  p->why = why;
}

// Checks sizes by kind before the tag behind the body is read. Takes over body
// where it returns OK.
static at_status read_message(uint32_t from, const at_wire_head *head,
                              void *body, message **out) {
  const size_t tag = sizeof(at_hosts_tag);
  const bool fails = head->kind == KIND_FAIL;
  const uint64_t least = fails ? sizeof(uint32_t) : 0;
  const uint64_t most = fails                     ? least + AT_FAILURE_TEXT
                        : head->kind == KIND_POST ? AT_POD_POST_BYTES
                                                  : kBodyBytes;
  if (head->kind >= KINDS || head->bytes < tag + least ||
      head->bytes - tag > most)
    return AT_FAIL(AT_DATA_LOSS,
                   "process %u sent a message of kind %u with %llu bytes", from,
                   head->kind, (unsigned long long)head->bytes);
  message *m = calloc(1, sizeof *m);
  if (!m)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no host memory for a message from process %u", from);
  *m = (message){
      .host = from, .head = *head, .body = body, .bytes = head->bytes - tag};
  memcpy(&m->tag, m->body + m->bytes, tag);
  *out = m;
  return AT_OK;
}

// Posts that come before there is a listener are kept for it.
static void hear_post(at_pod_hosts *a, message *m) {
  pthread_mutex_lock(&a->hearing);
  const at_pod_listener *l = &a->listener;
  if (l->heard) {
    l->heard(l->arg, m->host, (at_bytes){m->body, m->bytes});
    free_message(a, m);
  } else {
    *a->early_last = m;
    a->early_last = &m->next;
  }
  pthread_mutex_unlock(&a->hearing);
}

// Tells the listener that a launch failed elsewhere.
static void tell_failed(at_pod_hosts *a, const at_hosts_tag *tag) {
  pthread_mutex_lock(&a->hearing);
  if (a->listener.failed) a->listener.failed(a->listener.arg, tag);
  pthread_mutex_unlock(&a->hearing);
}

// A process is lost: all who could wait for it look again. Consumes why.
static void lose(at_pod_hosts *a, uint32_t host, at_status why) {
  pthread_mutex_lock(&a->lock);
  give_up(a, host, why);
  wake_all(a);
  at_pod_share_tell(a->share);
  pthread_mutex_unlock(&a->lock);
  at_pod_lines_look(a->lines);
  pthread_mutex_lock(&a->hearing);
  if (a->listener.lost) a->listener.lost(a->listener.arg, host);
  pthread_mutex_unlock(&a->hearing);
}

// False: the message keeps its credits.
static bool hear_line(at_pod_hosts *a, uint32_t from, const at_wire_head *head,
                      void *body) {
  bool kept;
  at_status st = at_pod_lines_hear(a->lines, from, head, body, &kept);
  if (st.err) lose(a, from, st);
  return !kept;
}

// Data. False: the message keeps its credits.
static bool hear_data(at_pod_hosts *a, message *m) {
  pthread_mutex_lock(&a->lock);
  const bool keep = !find_dropped(a, &m->tag);
  if (keep) *a->last = m, a->last = &m->next;
  at_event *woken = keep ? who_waits_for(a, m) : NULL;
  pthread_mutex_unlock(&a->lock);
  if (!keep) free_message(a, m);
  if (woken) at_event_fire(woken, AT_OK);
  at_event_release(woken);
  return !keep;
}

// Nobody may ever ask for it, so it keeps nothing but its place among failures.
static void hear_failure(at_pod_hosts *a, message *m) {
  const at_hosts_tag tag = m->tag;
  at_status why = at_failure_read(m->host, (at_bytes){m->body, m->bytes},
                                  a->face.cause != NULL);
  pthread_mutex_lock(&a->lock);
  const bool news = !find_dropped(a, &tag);
  if (news) at_failures_note(&a->told, m->host, &tag, why);
  wake_all(a);
  if (news) at_pod_share_tell(a->share);
  pthread_mutex_unlock(&a->lock);
  at_status_free(why);
  free_message(a, m);
  if (!news) return;
  at_pod_lines_look(a->lines);
  tell_failed(a, &tag);
}

// On the poller: nothing here waits but for short locks.
static bool sink_message(void *arg, uint32_t from, const at_wire_head *head,
                         void *body) {
  at_pod_hosts *a = arg;
  message *m;
  if (head->kind >= KIND_LINE && head->kind < KINDS &&
      head->bytes >= sizeof(at_hosts_tag))
    return hear_line(a, from, head, body);
  at_status st = read_message(from, head, body, &m);
  if (st.err) {
    free(body);
    lose(a, from, st);
    return true;
  }
  if (head->kind == KIND_DATA) return hear_data(a, m);
  if (head->kind == KIND_POST)
    hear_post(a, m);
  else
    hear_failure(a, m);
  return true;
}

// at_wire_sink.room.
static void sink_room(void *arg, uint32_t to, at_wire_lane lane) {
  at_pod_hosts *a = arg;
  (void)to, (void)lane;
  pthread_mutex_lock(&a->hearing);
  if (a->listener.room) a->listener.room(a->listener.arg);
  pthread_mutex_unlock(&a->hearing);
}

// at_wire_sink.lost.
static void sink_lost(void *arg, uint32_t member, at_status why) {
  at_pod_hosts *a = arg;
  at_log(AT_LOG_INFO, "process %u: %s", a->face.me, at_status_message(why));
  lose(a, member, AT_FAIL(AT_DATA_LOSS, "%s", at_status_message(why)));
  at_status_free(why);
}

// Early posts are handed over before any newer one can come.
void at_pod_hosts_listen(at_pod_hosts *a, const at_pod_listener *l) {
  pthread_mutex_lock(&a->hearing);
  a->listener = l ? *l : (at_pod_listener){0};
  message *m = l ? a->early : NULL;
  if (l) {
    a->early = NULL;
    a->early_last = &a->early;
  }
  for (message *next; m; m = next) {
    next = m->next;
    l->heard(l->arg, m->host, (at_bytes){m->body, m->bytes});
    free_message(a, m);
  }
  pthread_mutex_unlock(&a->hearing);
}

// RESOURCE_EXHAUSTED where there is no room and it is not to wait; the
// listener's `room` follows.
at_status at_pod_hosts_post(at_pod_hosts *a, uint32_t to, at_bytes body,
                            bool wait) {
  const at_hosts_tag none = {0};
  const at_bytes parts[2] = {body, {(const uint8_t *)&none, sizeof none}};
  const at_wire_out out = {.kind = KIND_POST, .num_parts = 2, .parts = parts};
  const at_wire_wait how = {.until_ns = wait ? UINT64_MAX : 0};
  AT_ASSERT(body.len <= AT_POD_POST_BYTES);
  return at_wire_send(a->wire, to, AT_WIRE_CONTROL, &out, 1, &how, NULL);
}

// While it is on, the watcher calls the listener's tick every kWatchMs.
void at_pod_hosts_watch(at_pod_hosts *a, bool on) {
  pthread_mutex_lock(&a->lock);
  if (on && !a->watched) pthread_cond_signal(&a->watch);
  a->watched = on;
  pthread_mutex_unlock(&a->lock);
}

// In nanoseconds: after how long a wait is told, and after how long it ends (0:
// never).
void at_pod_hosts_patience(const at_pod_hosts *a, uint64_t *tell_ns,
                           uint64_t *end_ns) {
  *tell_ns = kTellSeconds * 1000000000ull;
  *end_ns = a->deadline_s * 1000000000ull;
}

bool at_pod_hosts_has(at_pod_hosts *a, uint32_t host) {
  pthread_mutex_lock(&a->lock);
  bool here = !a->peers[host].gone;
  pthread_mutex_unlock(&a->lock);
  return here;
}

// ---- Failures here
// The code that the wire returned.
static at_code say(at_pod_hosts *a, const at_unsaid *u, bool waits) {
  const at_bytes parts[2] = {{u->said, u->bytes},
                             {(const uint8_t *)&u->tag, sizeof u->tag}};
  const at_wire_out out = {.kind = KIND_FAIL, .num_parts = 2, .parts = parts};
  const at_wire_wait wait = {.until_ns = waits ? UINT64_MAX : 0};
  return at_code_take(
      at_wire_send(a->wire, u->to, AT_WIRE_CONTROL, &out, 1, &wait, NULL));
}

// Whoever says so may be the wire's poller, which must not wait for room.
static void say_failed(at_pod_hosts *a, uint32_t to, const at_hosts_tag *tag,
                       at_status why) {
  at_unsaid *u = at_unsaid_make(to, tag, why);
  if (!u)
    return at_log(AT_LOG_ERROR, "no memory to tell process %u: %s", to,
                  at_status_message(why));
  if (say(a, u, true) != AT_FAILED_PRECONDITION ||
      say(a, u, false) != AT_RESOURCE_EXHAUSTED)
    return free(u);
  pthread_mutex_lock(&a->lock);
  at_unsaid **at = &a->unsaid;
  while (*at) at = &(*at)->next;
  *at = u;
  pthread_cond_signal(&a->watch);
  pthread_mutex_unlock(&a->lock);
}

// Under the lock, but for the sending.
static void say_failures(at_pod_hosts *a) {
  for (at_unsaid *u; (u = a->unsaid) && !a->closing; free(u)) {
    a->unsaid = u->next;
    pthread_mutex_unlock(&a->lock);
    say(a, u, true);
    pthread_mutex_lock(&a->lock);
  }
}

// ---- Who waits
// For people: once for each wait.
static void tell_wait(const at_pod_hosts *a, const waiter *w, uint64_t ns) {
  at_log(AT_LOG_WARNING,
         "process %u has waited %llu s for process %u (launch %llu of a "
         "program), which is there, but has not come to it",
         a->face.me, (unsigned long long)(ns / 1000000000u), w->host,
         (unsigned long long)w->tag.launch);
}

// Under the lock. True: somebody's time is over.
static bool look_at_waiters(at_pod_hosts *a) {
  const uint64_t now = at_clock_ns();
  bool over = false;
  for (waiter *w = a->waiters; w; w = w->next) {
    const uint64_t ns = now - w->since_ns;
    if (!w->told && ns >= kTellSeconds * 1000000000ull) {
      w->told = true;
      tell_wait(a, w, ns);
    }
    if (a->deadline_s && ns >= a->deadline_s * 1000000000ull)
      over = w->expired = true;
  }
  return over;
}

// Under the lock that keeps the listener from being taken away meanwhile.
static void tick_listener(at_pod_hosts *a) {
  pthread_mutex_lock(&a->hearing);
  if (a->listener.tick) a->listener.tick(a->listener.arg);
  pthread_mutex_unlock(&a->hearing);
}

// Reports and deadlines of steps that wait in a line.
static void tick_lines(at_pod_hosts *a) {
  uint64_t tell_ns, end_ns;
  at_pod_hosts_patience(a, &tell_ns, &end_ns);
  at_pod_lines_tick(a->lines, tell_ns, end_ns);
}

// The watcher's thread: sleeps while nobody waits and nothing is unsent.
static void watch(void *arg) {
  at_pod_hosts *a = arg;
  pthread_mutex_lock(&a->lock);
  while (!a->closing) {
    const uint64_t until = at_clock_ns() + (uint64_t)kWatchMs * kMs;
    const struct timespec t = at_clock_timespec(until);
    say_failures(a);
    if (a->waiters || a->watched || a->num_lines)
      pthread_cond_timedwait(&a->watch, &a->lock, &t);
    else
      pthread_cond_wait(&a->watch, &a->lock);
    if (look_at_waiters(a)) wake_all(a);
    const bool tick = a->watched && !a->closing;
    const bool lines = a->num_lines && !a->closing;
    pthread_mutex_unlock(&a->lock);
    if (lines) tick_lines(a);
    if (tick) tick_listener(a);
    pthread_mutex_lock(&a->lock);
  }
  pthread_mutex_unlock(&a->lock);
}

// The status of a waiter that has waited for ATOLL_POD_DEADLINE.
static at_status too_late(const at_pod_hosts *a, const waiter *w) {
  return AT_FAIL(AT_DEADLINE_EXCEEDED,
                 "process %u did not come to launch %llu of those it has in "
                 "common with this one within %llu s (ATOLL_POD_DEADLINE)",
                 w->host, (unsigned long long)w->tag.launch,
                 (unsigned long long)a->deadline_s);
}

// ---- Exchanges
// Its credits go back.
static message *take(at_pod_hosts *a, message **at) {
  message *m = *at;
  *at = m->next;
  if (a->last == &m->next) a->last = at;
  release_credits(a, m);
  return m;
}

// Under the lock: where the message of a host is; NULL: it has not come.
static message **find_message(at_pod_hosts *a, uint32_t host,
                              const at_hosts_tag *tag) {
  for (message **at = &a->first; *at; at = &(*at)->next)
    if (is_for(*at, host, tag)) return at;
  return NULL;
}

// Under the lock: why the message of a host, which has not come, never will.
static at_status why_never(at_pod_hosts *a, uint32_t host,
                           const at_hosts_tag *tag) {
  const at_failure *d = at_failures_find(&a->told, host, tag);
  if (!d) d = find_dropped(a, tag);
  if (d) return at_status_clone(d->why);
  return a->peers[host].gone ? at_status_clone(a->peers[host].why) : AT_OK;
}

// Under the lock: the message of a host, or why it will never come. *out stays
// NULL while neither is known.
static at_status look(at_pod_hosts *a, uint32_t host, const at_hosts_tag *tag,
                      message **out) {
  message **at = find_message(a, host, tag);
  if (!at) return why_never(a, host, tag);
  return *out = take(a, at), AT_OK;
}

// Under the lock: why some that are waited for behind this one never come. Who
// is waited for may not come either, then.
static at_status look_behind(at_pod_hosts *a, const waiter *w) {
  for (uint32_t i = 0; i < w->num_then; i++)
    if (!find_message(a, w->then[i].host, &w->tag))
      AT_TRY(why_never(a, w->then[i].host, &w->tag));
  return AT_OK;
}

// Under the lock.
static void stop_waiting(at_pod_hosts *a, waiter *w) {
  waiter **at = &a->waiters;
  while (*at != w) at = &(*at)->next;
  *at = w->next;
}

// Under the lock, but for the wait itself.
static at_status wait_locked(at_pod_hosts *a, waiter *w, message **out) {
  for (;;) {
    at_status st = look(a, w->host, &w->tag, out);
    if (!st.err && !*out) st = look_behind(a, w);
    if (!st.err && !*out && w->expired) st = too_late(a, w);
    if (st.err || *out) return st;
    at_event *news = at_event_create();
    if (!news)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to wait for process %u",
                     w->host);
    w->news = news;
    pthread_mutex_unlock(&a->lock);
    at_status_free(at_event_wait(news));
    pthread_mutex_lock(&a->lock);
    w->news = NULL;
    at_event_release(news);
  }
}

// For the message of the first of `mails`.
static at_status wait_for(at_pod_hosts *a, const at_hosts_tag *tag,
                          const at_hosts_mail *mails, uint32_t num_mails,
                          message **out) {
  *out = NULL;
  pthread_mutex_lock(&a->lock);
  at_status st = look(a, mails->host, tag, out);
  if (!st.err && !*out) {
    waiter w = {.next = a->waiters,
                .host = mails->host,
                .tag = *tag,
                .since_ns = at_clock_ns(),
                .then = mails + 1,
                .num_then = num_mails - 1};
    if (!a->waiters) pthread_cond_signal(&a->watch);
    a->waiters = &w;
    st = wait_locked(a, &w, out);
    stop_waiting(a, &w);
  }
  pthread_mutex_unlock(&a->lock);
  return st;
}

// Into the pieces that wait for it; the message is gone then.
static at_status deliver(at_pod_hosts *a, message *m, at_hosts_mail *mail) {
  uint64_t want = 0;
  const uint8_t *p = m->body;
  if (!mail->in) {
    mail->block = (at_bytes){m->body, m->bytes};
    free(m);
    return AT_OK;
  }
  for (uint32_t i = 0; i < mail->num_in; i++) want += mail->in[i].len;
  at_status st = AT_OK;
  if (want != m->bytes)
    st = AT_FAIL(
        AT_INTERNAL, "process %u sent %llu bytes for a collective, not %llu",
        mail->host, (unsigned long long)m->bytes, (unsigned long long)want);
  for (uint32_t i = 0; i < mail->num_in && !st.err; i++) {
    if (!mail->in[i].len) continue;  // its pointer may be NULL
    memcpy(mail->in[i].ptr, p, mail->in[i].len);
    p += mail->in[i].len;
  }
  free_message(a, m);
  return st;
}

// Has that process told that it gave the launch up?
static bool has_failed(at_pod_hosts *a, uint32_t host,
                       const at_hosts_tag *tag) {
  pthread_mutex_lock(&a->lock);
  bool failed = at_failures_find(&a->told, host, tag) != NULL;
  pthread_mutex_unlock(&a->lock);
  return failed;
}

// at_hosts.exchange: sends everything first, then waits for one after another;
// a failure behind the one waited for ends the wait too. On failure blocks that
// came are freed.
static at_status exchange(void *arg, const at_hosts_tag *tag,
                          at_hosts_mail *mails, uint32_t num_mails) {
  at_pod_hosts *a = arg;
  pthread_mutex_lock(&a->lock);
  const at_failure *d = find_dropped(a, tag);
  at_status st = d ? at_status_clone(d->why) : AT_OK;
  pthread_mutex_unlock(&a->lock);
  if (st.err) return st;
  for (uint32_t i = 0; i < num_mails; i++) {
    const at_hosts_mail *m = &mails[i];
    if (!has_failed(a, m->host, tag))  // it would keep what nobody asks for
      send_message(a, m->host, KIND_DATA, tag, m->out, m->num_out);
  }
  for (uint32_t i = 0; i < num_mails && !st.err; i++) {
    message *m;
    st = wait_for(a, tag, mails + i, num_mails - i, &m);
    if (!st.err) st = deliver(a, m, &mails[i]);
  }
  for (uint32_t i = 0; i < num_mails && st.err; i++) {
    free((void *)mails[i].block.ptr);
    mails[i].block = (at_bytes){0};
  }
  return st;
}

// at_hosts.fail: messages of the launch that are here or still to come are
// dropped; others are told once.
static void fail(void *arg, const at_hosts_tag *tag, const uint32_t *hosts,
                 uint32_t num_hosts, at_status why) {
  at_pod_hosts *a = arg;
  pthread_mutex_lock(&a->lock);
  bool known = find_dropped(a, tag);
  if (!known) at_failures_note(&a->dropped, a->face.me, tag, why);
  for (message **at = &a->first; *at;) {
    if (at_hosts_same_launch(&(*at)->tag, tag))
      free_message(a, take(a, at));
    else
      at = &(*at)->next;
  }
  wake_all(a);
  pthread_mutex_unlock(&a->lock);
  if (!known) at_pod_lines_drop(a->lines, tag);
  for (uint32_t i = 0; i < num_hosts && !known; i++)
    if (hosts[i] != a->face.me) say_failed(a, hosts[i], tag, why);
}

// at_hosts.cause: what the others have said; OK: nothing.
static at_status cause(void *arg, const at_hosts_tag *tag,
                       const uint32_t *hosts, uint32_t num_hosts) {
  at_pod_hosts *a = arg;
  const at_failure *d = NULL;
  pthread_mutex_lock(&a->lock);
  for (uint32_t i = 0; i < num_hosts && !d; i++)
    d = at_failures_find(&a->told, hosts[i], tag);
  at_status st = d ? at_status_clone(d->why) : AT_OK;
  pthread_mutex_unlock(&a->lock);
  return st;
}

// at_hosts.check: for those who wait without messages, in shared memory. Says
// for people that it takes long.
static at_status check(void *arg, const at_hosts_tag *tag, uint32_t host,
                       at_hosts_patience *p) {
  at_pod_hosts *a = arg;
  at_hosts_tag never = *tag;  // of a round that no message is of
  never.round = UINT32_MAX;
  message *m = NULL;
  pthread_mutex_lock(&a->lock);
  at_status st = look(a, host, &never, &m);
  pthread_mutex_unlock(&a->lock);
  if (m) free_message(a, m);
  if (st.err || !p) return st;
  const waiter w = {.host = host, .tag = *tag};
  const uint64_t ns = at_clock_ns() - p->since_ns;
  if (!p->told && ns >= kTellSeconds * 1000000000ull) {
    p->told = true;
    tell_wait(a, &w, ns);
  }
  return a->deadline_s && ns >= a->deadline_s * 1000000000ull ? too_late(a, &w)
                                                              : AT_OK;
}

// ---- Lines
// The watcher has to look at lines while one is open.
static void count_line(at_pod_hosts *a, bool more) {
  pthread_mutex_lock(&a->lock);
  if (more && !a->num_lines) pthread_cond_signal(&a->watch);
  a->num_lines = more ? a->num_lines + 1 : a->num_lines - 1;
  pthread_mutex_unlock(&a->lock);
}

// at_hosts_lines.open.
static at_status open_line(void *arg, const at_hosts_tag *tag,
                           const uint32_t *hosts, uint32_t num_hosts,
                           const at_hosts_line_calls *calls,
                           at_hosts_line **out) {
  at_pod_hosts *a = arg;
  AT_TRY(at_pod_lines_open(a->lines, tag, hosts, num_hosts, calls, out));
  count_line(a, true);
  return AT_OK;
}

static void close_line(void *arg, at_hosts_line *l) {
  count_line(arg, false);
  at_pod_lines_close(l);
}

// ---- Agreements
typedef struct agreement {
  at_pod_hosts *all;
  at_hosts_mail mails[kMaxHosts];
  at_bytes out[kMaxHosts];
} agreement;

// at_sc_hosts.exchange, by messages under a tag that no launch has.
static at_status agree_exchange(void *arg, const at_bytes *send,
                                at_bytes *recv) {
  agreement *g = arg;
  uint32_t n = 0, me = g->all->face.me;
  at_hosts_tag tag = {.launch = UINT64_MAX, .turn = g->all->agreements++};
  for (uint32_t h = 0; h < g->all->face.count; h++) {
    if (h == me) continue;
    g->out[n] = send[h];
    g->mails[n] = (at_hosts_mail){.host = h, .num_out = 1, .out = &g->out[n]};
    n++;
  }
  AT_TRY(exchange(g->all, &tag, g->mails, n));
  for (uint32_t i = 0; i < n; i++) recv[g->mails[i].host] = g->mails[i].block;
  return AT_OK;
}

// g is large, but lives on the stack only for the call: agreements are rare.
at_status at_pod_hosts_agree(at_pod_hosts *a, uint64_t *bits) {
  agreement g = {.all = a};
  at_sc_hosts hosts = {a->face.count, a->face.me, &g, agree_exchange};
  pthread_mutex_lock(&a->agreeing);
  at_status st = at_sc_hosts_agree(&hosts, bits);
  pthread_mutex_unlock(&a->agreeing);
  for (uint32_t i = 0; i < a->face.count; i++)
    free((void *)g.mails[i].block.ptr);
  return st;
}

// ---- Opening
static void close_links(at_pod_link *links, size_t n) {
  for (size_t i = 0; i < n; i++) at_pod_link_close(&links[i]);
}

// Where nothing is set: shared memory on one machine, else TCP, or UCX where it
// works.
static const char *medium_of(const at_pod_job *job) {
  return job->medium ? job->medium : job->local ? "shm" : "net";
}

// A pod that may form again needs the job's texts later on.
static at_status keep_job(const at_pod_job *job, at_pod_hosts *a) {
  a->job = *job;
  if (!job->returns) return AT_OK;
  a->job.listener = -1;
  a->job.addresses.text = strdup(job->addresses.text);
  a->job.job = strdup(job->job);
  if (a->job.addresses.text && a->job.job) return AT_OK;
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u processes",
                 a->face.count);
}

const at_pod_job *at_pod_hosts_job(const at_pod_hosts *a) { return &a->job; }

// Processes that differ in it turn each other away.
static at_digest what_of(const at_pod_job *job, uint32_t count) {
  at_digest what = at_digest_start(count);
  at_digest_add_str(&what, at_str_of(job->job));
  at_digest_add_str(&what, at_str_of(medium_of(job)));
  at_digest_add_u64(&what, at_pod_build());
  return what;
}

// What a process shows the others when they meet: all of it must fit to theirs.
at_card at_pod_job_card(const at_pod_job *job, uint32_t epoch) {
  const uint32_t count = at_address_count(job->addresses.text);
  return (at_card){.me = job->me,
                   .count = count,
                   .epoch = epoch,
                   .tls = job->tls,
                   .job = what_of(job, count)};
}

// Everybody proves the token: each with each, once for each lane.
static at_status meet_once(const at_pod_job *job, int listener,
                           uint64_t until_ns, at_pod_link *links,
                           uint32_t *newer) {
  const at_pod_meeting m = {
      .addresses = &job->addresses,
      .token = &job->token,
      .card = at_pod_job_card(job, job->epoch),
      .calls = AT_WIRE_LANES,
      .listener = listener,
      .local = job->local,
      .until_ns = until_ns,
      .interrupted = job->interrupted,
      .newer = job->returns ? newer : NULL,
  };
  uint64_t strangers = 0;
  at_status st = at_pod_meet(&m, links, &strangers);
  if (strangers)
    at_log(AT_LOG_INFO,
           "process %u dropped %llu connections of strangers while the "
           "processes met",
           job->me, (unsigned long long)strangers);
  return st;
}

// In the epoch of those that are there already, where this process comes back.
static at_status meet(at_pod_hosts *a, int listener, at_pod_link *links) {
  const size_t n = (size_t)a->face.count * AT_WIRE_LANES;
  const uint64_t until = at_clock_ns() + a->job.timeout_s * 1000000000ull;
  for (;;) {
    uint32_t newer = 0;
    at_status st = meet_once(&a->job, listener, until, links, &newer);
    if (!newer) return st;
    close_links(links, n);
    at_log(AT_LOG_INFO, "%s", at_status_message(st));
    at_status_free(st);
    a->job.epoch = newer;
  }
}

// In shared memory members find each other by a name that comes of the token
// and of this meeting, which all of them have proved to know; others of this
// user could learn it, other users cannot join by it.
static at_status name_group(const at_pod_job *job, uint32_t count,
                            char out[80]) {
  at_digest d = what_of(job, count);
  at_digest_add(&d, (at_bytes){job->token.bytes, AT_TOKEN_BYTES});
  AT_TRY(at_address_digest(&job->addresses, &d));
  at_digest_add_u64(&d, job->epoch);
  snprintf(out, 80, "atoll-%016llx%016llx", (unsigned long long)d.h[0],
           (unsigned long long)d.h[1]);
  return AT_OK;
}

// The links are taken over by the wire; over shared memory they have served
// their purpose.
static at_status open_wire(at_pod_hosts *a, const at_pod_job *job,
                           at_pod_link *links) {
  char group[80];
  const bool shared = !strcmp(medium_of(job), "shm");
  AT_TRY(name_group(job, a->face.count, group));
  const at_wire_options o = {.count = a->face.count,
                             .me = a->face.me,
                             .group = group,
                             .epoch = job->epoch,
                             .links = shared ? NULL : links,
                             .meet_ms = job->timeout_s * 1000,
                             .sink = {.arg = a,
                                      .place = sink_place,
                                      .message = sink_message,
                                      .abandon = sink_abandon,
                                      .room = sink_room,
                                      .lost = sink_lost},
                             .max_bytes = kBodyBytes + sizeof(at_hosts_tag),
                             .window_bytes = kWindowBytes,
                             .window_messages = kWindowMessages};
  return at_wire_open(medium_of(job), &o, &a->wire);
}

// Meets, then opens the wire. Links that the wire has not taken are closed.
static at_status connect_all(at_pod_hosts *a, int listener) {
  const size_t n = (size_t)a->face.count * AT_WIRE_LANES;
  at_pod_link *links = calloc(n, sizeof *links);
  if (!links)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u processes",
                   a->face.count);
  for (size_t i = 0; i < n; i++) links[i].fd = -1;
  at_status st = meet(a, listener, links);
  if (!st.err) st = open_wire(a, &a->job, links);
  close_links(links, n);
  free(links);
  return st;
}

// Nothing is connected yet. On failure nothing is left.
static at_status make(uint32_t n, uint32_t me, at_pod_hosts **out) {
  at_pod_hosts *a = calloc(1, sizeof *a + n * sizeof *a->peers);
  if (a) a->lines = at_pod_lines_create(&a->face, &a->wire, KIND_LINE);
  if (!a || !a->lines) {
    free(a);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u processes", n);
  }
  a->face = (at_hosts){.count = n,
                       .me = me,
                       .arg = a,
                       .exchange = exchange,
                       .fail = fail,
                       .check = check,
                       .lines = &a->line_face};
  a->line_face = (at_hosts_lines){.arg = a,
                                  .open = open_line,
                                  .send = at_pod_lines_send,
                                  .waits = at_pod_lines_waits,
                                  .close = close_line};
  a->last = &a->first;
  a->deadline_s = at_config_uint(AT_CONFIG_POD_DEADLINE);
  pthread_mutex_init(&a->lock, NULL);
  at_pod_blocks_init(&a->blocks);
  pthread_mutex_init(&a->agreeing, NULL);
  pthread_mutex_init(&a->hearing, NULL);
  a->early_last = &a->early;
  at_clock_cond_init(&a->watch);
  *out = a;
  return AT_OK;
}

// Without it everything goes by messages, so most reasons are no errors.
static at_status share_memory(at_pod_hosts *a) {
  at_pod_share *share = NULL;
  at_status st = at_pod_share_open(&a->job, &a->face, &share);
  pthread_mutex_lock(&a->lock);
  a->share = share;
  pthread_mutex_unlock(&a->lock);
  a->face.share = at_pod_share_of(share);
  return st;
}

// Those who were there before leave what they had only when all have come.
static at_status all_have_met(at_pod_hosts *a) {
  uint64_t none = 0;
  return a->job.returns && a->job.epoch ? at_pod_hosts_agree(a, &none) : AT_OK;
}

// The listener is the job's: closed here unless the pod may form again.
at_status at_pod_hosts_open(const at_pod_job *job, at_pod_hosts **out) {
  uint32_t n = at_address_count(job->addresses.text);
  int listener = job->listener;
  at_pod_hosts *a = NULL;
  at_status st = AT_OK;
  if (n > kMaxHosts || job->me >= n)
    st =
        AT_FAIL(AT_INVALID_ARGUMENT,
                "CLOUD_TPU_TASK_ID is %u, but %s has %u addresses (at most %d)",
                job->me, job->addresses.source, n, kMaxHosts);
  if (!st.err && listener < 0)
    st = at_address_bind(&job->addresses, job->me, &listener);
  if (!st.err) st = make(n, job->me, &a);
  if (!st.err) st = keep_job(job, a);
  if (!st.err && job->one_user) a->face.cause = cause;
  if (!st.err)
    st = at_thread_start("atoll-hosts", AT_THREAD_STACK, watch, a, &a->watcher);
  if (!st.err) st = connect_all(a, listener);
  if (!st.err && job->returns)
    a->job.listener = listener;
  else if (listener >= 0)
    close(listener);
  if (!st.err && job->share && !strcmp(medium_of(job), "shm"))
    st = share_memory(a);
  if (!st.err) st = all_have_met(a);
  if (st.err) {
    at_pod_hosts_close(a);
    return st;
  }
  if (n > 1 && job->local && 2 * n > at_cpu_count()) at_spin_allow(false);
  *out = a;
  return AT_OK;
}

const at_hosts *at_pod_hosts_of(const at_pod_hosts *p) {
  return p ? &p->face : NULL;
}

static void free_list(at_pod_hosts *a, message *m) {
  for (message *next; m; m = next) {
    next = m->next;
    free_message(a, m);
  }
}

// For people, at the end.
static void tell_counts(const at_pod_hosts *a) {
  at_wire_counts n = {0};
  at_wire_counts_of(a->wire, &n);
  at_log(AT_LOG_INFO,
         "process %u has sent the others %llu bytes, in %llu messages",
         a->face.me, (unsigned long long)n.sent_bytes,
         (unsigned long long)n.sent_messages);
}

// After it nothing comes and nothing can be sent, but who still holds `a` may
// ask it.
void at_pod_hosts_leave(at_pod_hosts *a) {
  pthread_mutex_lock(&a->lock);
  a->closing = true;
  pthread_cond_signal(&a->watch);
  pthread_mutex_unlock(&a->lock);
  at_thread_join(a->watcher);
  a->watcher = NULL;
  if (a->wire) tell_counts(a);
  at_wire_close(a->wire);
  a->wire = NULL;
  if (a->job.returns && a->job.listener >= 0) close(a->job.listener);
  a->job.listener = -1;
}

// NULL: nothing. No thread uses it any more.
void at_pod_hosts_close(at_pod_hosts *a) {
  if (!a) return;
  at_pod_hosts_leave(a);
  at_pod_share_close(a->share);
  at_pod_lines_destroy(a->lines);
  for (at_unsaid *u; (u = a->unsaid); free(u)) a->unsaid = u->next;
  free_list(a, a->first);
  free_list(a, a->early);
  for (uint32_t h = 0; h < a->face.count; h++) at_status_free(a->peers[h].why);
  at_failures_free(&a->dropped);
  at_failures_free(&a->told);
  at_pod_blocks_free(&a->blocks);
  if (a->job.returns) {
    free((char *)a->job.addresses.text);
    free((char *)a->job.job);
  }
  pthread_mutex_destroy(&a->lock);
  pthread_mutex_destroy(&a->agreeing);
  pthread_mutex_destroy(&a->hearing);
  pthread_cond_destroy(&a->watch);
  free(a);
}
