// Who waits for messages of other processes: exchanges of launches, what a
// failure does to them, deadlines, and agreements beside launches.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pod/hosts_internal.h"
#include "sparsecore/engine.h"

enum {
  kLookNs = 200000,       // before a wait that nothing comes for sleeps
  kMostLookNs = 20000000  // nor longer where messages come, but not that one
};

// ---- Who waits
// For people: once for each wait.
static void tell_wait(const at_pod_hosts *a, const at_pod_waiter *w,
                      uint64_t ns) {
  at_log(AT_LOG_WARNING,
         "process %u has waited %llu s for process %u (launch %llu of a "
         "program), which is there, but has not come to it",
         a->face.me, (unsigned long long)(ns / 1000000000u), w->host,
         (unsigned long long)w->tag.launch);
}

// Under the lock. True: somebody's time is over.
bool at_pod_hosts_look(at_pod_hosts *a) {
  const uint64_t now = at_clock_ns();
  bool over = false;
  for (at_pod_waiter *w = a->waiters; w; w = w->next) {
    const uint64_t ns = now - w->since_ns;
    if (!w->told && ns >= AT_POD_TELL_SECONDS * 1000000000ull) {
      w->told = true;
      tell_wait(a, w, ns);
    }
    if (a->deadline_s && ns >= a->deadline_s * 1000000000ull)
      over = w->expired = true;
  }
  return over;
}

// The status of a waiter that has waited for ATOLL_POD_DEADLINE.
static at_status too_late(const at_pod_hosts *a, const at_pod_waiter *w) {
  return AT_FAIL(AT_DEADLINE_EXCEEDED,
                 "process %u did not come to launch %llu of those it has in "
                 "common with this one within %llu s (ATOLL_POD_DEADLINE)",
                 w->host, (unsigned long long)w->tag.launch,
                 (unsigned long long)a->deadline_s);
}

// ---- Exchanges
// Its credits go back.
static at_pod_message *take(at_pod_hosts *a, at_pod_message **at) {
  at_pod_message *m = *at;
  *at = m->next;
  if (a->last == &m->next) a->last = at;
  at_pod_message_release(a, m);
  return m;
}

// Under the lock: where the message of a host is; NULL: it has not come.
static at_pod_message **find_message(at_pod_hosts *a, uint32_t host,
                                     const at_hosts_tag *tag) {
  for (at_pod_message **at = &a->first; *at; at = &(*at)->next)
    if (at_pod_message_is_for(*at, host, tag)) return at;
  return NULL;
}

// Under the lock: why the message of a host, which has not come, never will.
static at_status why_never(at_pod_hosts *a, uint32_t host,
                           const at_hosts_tag *tag) {
  const at_failure *d = at_failures_find(&a->told, host, tag);
  if (!d) d = at_pod_hosts_dropped(a, tag);
  if (d) return at_status_clone(d->why);
  return a->peers[host].gone ? at_status_clone(a->peers[host].why) : AT_OK;
}

// Under the lock: the message of a host, or why it will never come. *out stays
// NULL while neither is known.
static at_status look(at_pod_hosts *a, uint32_t host, const at_hosts_tag *tag,
                      at_pod_message **out) {
  at_pod_message **at = find_message(a, host, tag);
  if (!at) return why_never(a, host, tag);
  return *out = take(a, at), AT_OK;
}

// Under the lock: why some that are waited for behind this one never come. Who
// is waited for may not come either, then.
static at_status look_behind(at_pod_hosts *a, const at_pod_waiter *w) {
  for (uint32_t i = 0; i < w->num_then; i++)
    if (!find_message(a, w->then[i].host, &w->tag))
      AT_TRY(why_never(a, w->then[i].host, &w->tag));
  return AT_OK;
}

// Under the lock.
static void stop_waiting(at_pod_hosts *a, at_pod_waiter *w) {
  at_pod_waiter **at = &a->waiters;
  while (*at != w) at = &(*at)->next;
  *at = w->next;
}

// For at_linger_for: whether what is waited for has come.
typedef struct look_out {
  at_wire *wire;
  const at_event *news;
  bool looked, over;  // over: another thread receives
} look_out;

static bool message_came(void *arg) {
  look_out *l = arg;
  if (at_event_fired(l->news)) return true;
  const at_wire_seen seen = at_wire_look(l->wire);
  l->looked = true;
  l->over = seen == AT_WIRE_BUSY;
  return seen != AT_WIRE_NOTHING || at_event_fired(l->news);
}

// at_hosts.look.
bool at_pod_hosts_hear(void *arg) {
  at_pod_hosts *a = arg;
  return a->wire && at_wire_look(a->wire) == AT_WIRE_NEWS;
}

// at_hosts.look_end.
void at_pod_hosts_hear_end(void *arg) {
  at_pod_hosts *a = arg;
  if (a->wire) at_wire_look_end(a->wire);
}

// Until news has fired: receives meanwhile, as long as that pays.
static void wait_for_news(at_pod_hosts *a, at_event *news) {
  look_out l = {.wire = a->wire, .news = news};
  const uint64_t until = at_clock_ns() + kMostLookNs;
  bool looks = !a->crowded;
  while (looks && !at_event_fired(news))
    looks = at_linger_for(&a->looks, kLookNs, message_came, &l) && !l.over &&
            at_clock_ns() < until;
  if (at_event_fired(news)) return;
  if (l.looked && !l.over) at_wire_look_end(a->wire);
  pthread_mutex_lock(&a->lock);
  if (!a->ticks) pthread_cond_signal(&a->watch);
  pthread_mutex_unlock(&a->lock);
  at_status_free(at_event_wait(news));
}

// Under the lock, but for the wait itself.
static at_status wait_locked(at_pod_hosts *a, at_pod_waiter *w,
                             at_pod_message **out) {
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
    wait_for_news(a, news);
    pthread_mutex_lock(&a->lock);
    w->news = NULL;
    at_event_release(news);
  }
}

// For the message of the first of `mails`.
static at_status wait_for(at_pod_hosts *a, const at_hosts_tag *tag,
                          const at_hosts_mail *mails, uint32_t num_mails,
                          at_pod_message **out) {
  *out = NULL;
  pthread_mutex_lock(&a->lock);
  at_status st = look(a, mails->host, tag, out);
  if (!st.err && !*out) {
    at_pod_waiter w = {.next = a->waiters,
                       .host = mails->host,
                       .tag = *tag,
                       .since_ns = at_clock_ns(),
                       .then = mails + 1,
                       .num_then = num_mails - 1};
    a->waiters = &w;
    st = wait_locked(a, &w, out);
    stop_waiting(a, &w);
  }
  pthread_mutex_unlock(&a->lock);
  return st;
}

// Into the pieces that wait for it; the message is gone then.
static at_status deliver(at_pod_hosts *a, at_pod_message *m,
                         at_hosts_mail *mail) {
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
  at_pod_message_free(a, m);
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
at_status at_pod_hosts_exchange(void *arg, const at_hosts_tag *tag,
                                at_hosts_mail *mails, uint32_t num_mails) {
  at_pod_hosts *a = arg;
  pthread_mutex_lock(&a->lock);
  const at_failure *d = at_pod_hosts_dropped(a, tag);
  at_status st = d ? at_status_clone(d->why) : AT_OK;
  pthread_mutex_unlock(&a->lock);
  if (st.err) return st;
  for (uint32_t i = 0; i < num_mails; i++) {
    const at_hosts_mail *m = &mails[i];
    if (!has_failed(a, m->host, tag))  // it would keep what nobody asks for
      at_pod_hosts_send(a, m->host, KIND_DATA, tag, m->out, m->num_out);
  }
  for (uint32_t i = 0; i < num_mails && !st.err; i++) {
    at_pod_message *m;
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
void at_pod_hosts_fail(void *arg, const at_hosts_tag *tag,
                       const uint32_t *hosts, uint32_t num_hosts,
                       at_status why) {
  at_pod_hosts *a = arg;
  pthread_mutex_lock(&a->lock);
  bool known = at_pod_hosts_dropped(a, tag);
  if (!known) at_failures_note(&a->dropped, a->face.me, tag, why);
  for (at_pod_message **at = &a->first; *at;) {
    if (at_hosts_same_launch(&(*at)->tag, tag))
      at_pod_message_free(a, take(a, at));
    else
      at = &(*at)->next;
  }
  at_pod_hosts_wake(a);
  pthread_mutex_unlock(&a->lock);
  if (!known) at_pod_lines_drop(a->lines, tag);
  for (uint32_t i = 0; i < num_hosts && !known; i++)
    if (hosts[i] != a->face.me) at_pod_hosts_say_failed(a, hosts[i], tag, why);
}

// at_hosts.cause: what the others have said; OK: nothing.
at_status at_pod_hosts_cause(void *arg, const at_hosts_tag *tag,
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
at_status at_pod_hosts_check(void *arg, const at_hosts_tag *tag, uint32_t host,
                             at_hosts_patience *p) {
  at_pod_hosts *a = arg;
  at_hosts_tag never = *tag;  // of a round that no message is of
  never.round = UINT32_MAX;
  at_pod_message *m = NULL;
  pthread_mutex_lock(&a->lock);
  at_status st = look(a, host, &never, &m);
  pthread_mutex_unlock(&a->lock);
  if (m) at_pod_message_free(a, m);
  if (st.err || !p) return st;
  const at_pod_waiter w = {.host = host, .tag = *tag};
  const uint64_t ns = at_clock_ns() - p->since_ns;
  if (!p->told && ns >= AT_POD_TELL_SECONDS * 1000000000ull) {
    p->told = true;
    tell_wait(a, &w, ns);
  }
  return a->deadline_s && ns >= a->deadline_s * 1000000000ull ? too_late(a, &w)
                                                              : AT_OK;
}

// ---- Agreements
typedef struct agreement {
  at_pod_hosts *all;
  at_hosts_mail mails[AT_POD_MAX_HOSTS];
  at_bytes out[AT_POD_MAX_HOSTS];
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
  AT_TRY(at_pod_hosts_exchange(g->all, &tag, g->mails, n));
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
