// Processes that exchange messages over a wire. Its poller puts what comes into
// one list, and wakes who waits for it. A message keeps its credits until
// somebody takes it, so that the list is bounded.
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
#include "pod/hosts_internal.h"

enum {
  kSmallBytes = 8192,  // up to here messages pass those with more data
  kWatchMs = 250,      // between two looks at who waits
  kMs = 1000000,       // ns
};
static const uint64_t kBodyBytes = 1ull << 40;    // of a message, at most
static const uint64_t kWindowBytes = 1ull << 30;  // sent and not yet taken
enum { kWindowMessages = 1 << 14 };

// ---- Sending
// A member that is lost is told to who waits for it.
void at_pod_hosts_send(at_pod_hosts *a, uint32_t to, at_pod_kind k,
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
  const at_wire_wait wait = {.until_ns = UINT64_MAX, .looks = !a->crowded};
  at_wire_lane lane = bytes <= kSmallBytes ? AT_WIRE_CONTROL : AT_WIRE_BULK;
  at_status_free(at_wire_send(a->wire, to, lane, &out, 1, &wait, NULL));
  if (parts != own) free(parts);
}

// ---- What comes
// Under the lock: all who wait look again.
void at_pod_hosts_wake(at_pod_hosts *a) {
  for (at_pod_waiter *w = a->waiters; w; w = w->next)
    if (w->news) at_event_fire(w->news, AT_OK);
}

// Round included: a collective exchanges several times under one step.
bool at_pod_message_is_for(const at_pod_message *m, uint32_t host,
                           const at_hosts_tag *tag) {
  const at_hosts_tag *t = &m->tag;
  return m->host == host && at_hosts_same_launch(t, tag) &&
         t->step == tag->step && t->turn == tag->turn && t->round == tag->round;
}

// Under the lock: whom the message wakes, with a reference; NULL: nobody.
static at_event *who_waits_for(const at_pod_hosts *a, const at_pod_message *m) {
  for (const at_pod_waiter *w = a->waiters; w; w = w->next)
    if (w->news && at_pod_message_is_for(m, w->host, &w->tag))
      return at_event_retain(w->news);
  return NULL;
}

// Has this process given up the launch?
const at_failure *at_pod_hosts_dropped(const at_pod_hosts *a,
                                       const at_hosts_tag *tag) {
  return at_failures_find(&a->dropped, a->face.me, tag);
}

// The sender may send as much more.
void at_pod_message_release(at_pod_hosts *a, const at_pod_message *m) {
  at_wire_release(a->wire, m->host, m->head.lane, m->head.bytes);
}

void at_pod_message_free(at_pod_hosts *a, at_pod_message *m) {
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
  at_pod_peer *p = &a->peers[host];
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
                              void *body, at_pod_message **out) {
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
  at_pod_message *m = calloc(1, sizeof *m);
  if (!m)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no host memory for a message from process %u", from);
  *m = (at_pod_message){
      .host = from, .head = *head, .body = body, .bytes = head->bytes - tag};
  memcpy(&m->tag, m->body + m->bytes, tag);
  *out = m;
  return AT_OK;
}

// Posts that come before there is a listener are kept for it.
static void hear_post(at_pod_hosts *a, at_pod_message *m) {
  pthread_mutex_lock(&a->hearing);
  const at_pod_listener *l = &a->listener;
  if (l->heard) {
    l->heard(l->arg, m->host, (at_bytes){m->body, m->bytes});
    at_pod_message_free(a, m);
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
  at_pod_hosts_wake(a);
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
static bool hear_data(at_pod_hosts *a, at_pod_message *m) {
  pthread_mutex_lock(&a->lock);
  const bool keep = !at_pod_hosts_dropped(a, &m->tag);
  if (keep) *a->last = m, a->last = &m->next;
  at_event *woken = keep ? who_waits_for(a, m) : NULL;
  pthread_mutex_unlock(&a->lock);
  if (!keep) at_pod_message_free(a, m);
  if (woken) at_event_fire(woken, AT_OK);
  at_event_release(woken);
  return !keep;
}

// Nobody may ever ask for it, so it keeps nothing but its place among failures.
static void hear_failure(at_pod_hosts *a, at_pod_message *m) {
  const at_hosts_tag tag = m->tag;
  at_status why = at_failure_read(m->host, (at_bytes){m->body, m->bytes},
                                  a->face.cause != NULL);
  pthread_mutex_lock(&a->lock);
  const bool news = !at_pod_hosts_dropped(a, &tag);
  if (news) at_failures_note(&a->told, m->host, &tag, why);
  at_pod_hosts_wake(a);
  if (news) at_pod_share_tell(a->share);
  pthread_mutex_unlock(&a->lock);
  at_status_free(why);
  at_pod_message_free(a, m);
  if (!news) return;
  at_pod_lines_look(a->lines);
  tell_failed(a, &tag);
}

// On the poller: nothing here waits but for short locks.
static bool sink_message(void *arg, uint32_t from, const at_wire_head *head,
                         void *body) {
  at_pod_hosts *a = arg;
  at_pod_message *m;
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
  at_pod_message *m = l ? a->early : NULL;
  if (l) {
    a->early = NULL;
    a->early_last = &a->early;
  }
  for (at_pod_message *next; m; m = next) {
    next = m->next;
    l->heard(l->arg, m->host, (at_bytes){m->body, m->bytes});
    at_pod_message_free(a, m);
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
  *tell_ns = AT_POD_TELL_SECONDS * 1000000000ull;
  *end_ns = a->deadline_s * 1000000000ull;
}

bool at_pod_hosts_has(at_pod_hosts *a, uint32_t host) {
  pthread_mutex_lock(&a->lock);
  bool here = !a->peers[host].gone;
  pthread_mutex_unlock(&a->lock);
  return here;
}

void at_pod_hosts_drop(at_pod_hosts *a, uint32_t host) {
  if (host != a->face.me) at_wire_drop(a->wire, host);
}

bool at_pod_hosts_asked(at_pod_hosts *a, const at_hosts_tag *tag) {
  bool asked = false;
  pthread_mutex_lock(&a->lock);
  for (const at_pod_message *m = a->first; m && !asked; m = m->next)
    asked = m->tag.group == tag->group && m->tag.launch >= tag->launch;
  pthread_mutex_unlock(&a->lock);
  return asked;
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
void at_pod_hosts_say_failed(at_pod_hosts *a, uint32_t to,
                             const at_hosts_tag *tag, at_status why) {
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

// ---- The watcher
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
    a->ticks = a->waiters || a->watched || a->num_lines;
    if (a->ticks)
      pthread_cond_timedwait(&a->watch, &a->lock, &t);
    else
      pthread_cond_wait(&a->watch, &a->lock);
    if (at_pod_hosts_look(a)) at_pod_hosts_wake(a);
    const bool tick = a->watched && !a->closing;
    const bool lines = a->num_lines && !a->closing;
    pthread_mutex_unlock(&a->lock);
    if (lines) tick_lines(a);
    if (tick) tick_listener(a);
    pthread_mutex_lock(&a->lock);
  }
  pthread_mutex_unlock(&a->lock);
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

// ---- Opening
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

// The links are taken over by the wire; over shared memory they have served
// their purpose.
static at_status open_wire(at_pod_hosts *a, const at_pod_job *job,
                           at_pod_link *links) {
  char group[80];
  bool absent[AT_POD_MAX_HOSTS];
  for (uint32_t h = 0; h < a->face.count; h++)
    absent[h] = !at_address_is_there(job->addresses.text, h);
  const bool shared = !strcmp(at_pod_job_medium(job), "shm");
  AT_TRY(at_pod_job_group(job, a->face.count, group));
  const at_wire_options o = {.count = a->face.count,
                             .me = a->face.me,
                             .group = group,
                             .epoch = job->epoch,
                             .links = shared ? NULL : links,
                             .absent = absent,
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
  return at_wire_open(at_pod_job_medium(job), &o, &a->wire);
}

// Meets, then opens the wire. Links that the wire has not taken are closed.
static at_status connect_all(at_pod_hosts *a, int listener) {
  const size_t n = (size_t)a->face.count * AT_WIRE_LANES;
  at_pod_link *links = calloc(n, sizeof *links);
  if (!links)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u processes",
                   a->face.count);
  for (size_t i = 0; i < n; i++) links[i].fd = -1;
  at_status st = at_pod_job_meet(&a->job, a->face.count, listener, links);
  if (!st.err) st = open_wire(a, &a->job, links);
  at_pod_links_close(links, n);
  free(links);
  return st;
}

// at_hosts.give_block.
static void give_block(void *arg, void *block) {
  at_pod_hosts *a = arg;
  at_pod_block_give(&a->blocks, block);
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
                       .exchange = at_pod_hosts_exchange,
                       .fail = at_pod_hosts_fail,
                       .check = at_pod_hosts_check,
                       .look = at_pod_hosts_hear,
                       .look_end = at_pod_hosts_hear_end,
                       .give_block = give_block,
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
  if (n > AT_POD_MAX_HOSTS || job->me >= n)
    st =
        AT_FAIL(AT_INVALID_ARGUMENT,
                "CLOUD_TPU_TASK_ID is %u, but %s has %u addresses (at most %d)",
                job->me, job->addresses.source, n, AT_POD_MAX_HOSTS);
  if (!st.err && listener < 0)
    st = at_address_bind(&job->addresses, job->me, &listener);
  if (!st.err) st = make(n, job->me, &a);
  if (!st.err) st = keep_job(job, a);
  if (!st.err && job->one_user) a->face.cause = at_pod_hosts_cause;
  if (!st.err)
    st = at_thread_start("atoll-hosts", AT_THREAD_STACK, watch, a, &a->watcher);
  if (!st.err) st = connect_all(a, listener);
  if (!st.err && job->returns)
    a->job.listener = listener;
  else if (listener >= 0)
    close(listener);
  if (!st.err && job->share && !strcmp(at_pod_job_medium(job), "shm"))
    st = share_memory(a);
  if (!st.err) st = all_have_met(a);
  if (st.err) {
    at_pod_hosts_close(a);
    return st;
  }
  if (n > 1 && job->local && 2 * n > at_cpu_count()) at_spin_allow(false);
  a->crowded = job->local && n > at_cpu_count();
  if (a->crowded) a->face.look = NULL, a->face.look_end = NULL;
  *out = a;
  return AT_OK;
}

const at_hosts *at_pod_hosts_of(const at_pod_hosts *p) {
  return p ? &p->face : NULL;
}

static void free_list(at_pod_hosts *a, at_pod_message *m) {
  for (at_pod_message *next; m; m = next) {
    next = m->next;
    at_pod_message_free(a, m);
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
