// One connection between any two processes, and a thread for each that reads
// messages into one list; who waits looks there whenever one has come. Sending
// never waits for the receiver's program, only for its reader.
#include "pod/hosts.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "pod/meet.h"
#include "sparsecore/engine.h"

enum {
  kMaxHosts = 1024,
  kDropped = 64,     // failed launches that are remembered
  kWhyBytes = 4096,  // of a failure's text
};
static const uint64_t kBodyBytes = 1ull << 40;  // of a message, at most

// A message is a head, its seal and, unless it is empty, a body and its seal.
// What the head says counts only once its seal has been checked.
typedef enum kind { KIND_DATA, KIND_FAIL, KINDS } kind;
typedef struct head {
  uint64_t bytes;  // of the body
  at_hosts_tag tag;
  uint32_t kind, zero;
} head;

typedef struct message {
  struct message *next;
  uint32_t host;
  head head;
  uint8_t *body;  // at_hosts_block
} message;

typedef struct peer {
  at_pod_hosts *all;
  uint32_t host;
  at_pod_link link;  // fd -1: this process; `send` under the lock `sending`
  bool gone;
  at_status why;  // with `gone`; OK: it has ended, or the connection broke
  at_thread *reader;
  pthread_mutex_t sending;
} peer;

struct at_pod_hosts {
  at_hosts face;
  pthread_mutex_t lock;  // what follows
  message *first, **last;
  at_event *news;  // fires when the list or a peer changed
  at_hosts_tag dropped[kDropped];
  uint32_t num_dropped;
  pthread_mutex_t agreeing;  // what follows: one agreement at a time
  uint32_t agreements;
  peer peers[];
};

// ---- Bytes
// -----------------------------------------------------------------
static bool send_parts(int fd, struct iovec *v, size_t n) {
  struct msghdr m = {.msg_iov = v, .msg_iovlen = n};
  while (m.msg_iovlen) {
    ssize_t k = sendmsg(fd, &m, MSG_NOSIGNAL);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    for (; m.msg_iovlen && (size_t)k >= m.msg_iov->iov_len; m.msg_iovlen--)
      k -= (ssize_t)m.msg_iov++->iov_len;
    if (!m.msg_iovlen) break;
    m.msg_iov->iov_base = (uint8_t *)m.msg_iov->iov_base + k;
    m.msg_iov->iov_len -= (size_t)k;
  }
  return true;
}

static bool read_bytes(int fd, void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t k = recv(fd, (uint8_t *)p + at, n - at, 0);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    at += (size_t)k;
  }
  return true;
}

// What is to be sent, gathered for as few system calls as it takes.
typedef struct batch {
  int fd;
  size_t n;
  struct iovec parts[64];
} batch;

static bool send_batch(batch *b) {
  bool sent = send_parts(b->fd, b->parts, b->n);
  b->n = 0;
  return sent;
}

static bool add_part(batch *b, const void *p, size_t bytes) {
  if (b->n == AT_LEN(b->parts) && !send_batch(b)) return false;
  b->parts[b->n++] = (struct iovec){(void *)p, bytes};
  return true;
}

static bool send_message(peer *p, const head *h, const at_bytes *body,
                         uint32_t pieces) {
  uint8_t seals[2][AT_SEAL_BYTES];
  const at_bytes about = {(const uint8_t *)h, sizeof *h};
  batch b = {.fd = p->link.fd};
  pthread_mutex_lock(&p->sending);
  at_seal_next(&p->link.send, &about, 1, seals[0]);
  if (h->bytes) at_seal_next(&p->link.send, body, pieces, seals[1]);
  bool sent =
      add_part(&b, h, sizeof *h) && add_part(&b, seals[0], AT_SEAL_BYTES);
  for (uint32_t i = 0; i < pieces && sent; i++)
    sent = add_part(&b, body[i].ptr, body[i].len);
  if (h->bytes && sent) sent = add_part(&b, seals[1], AT_SEAL_BYTES);
  sent = sent && send_batch(&b);
  pthread_mutex_unlock(&p->sending);
  return sent;
}

// Reads n bytes and their seal, which lies behind them. *ended: the connection
// is over. DATA_LOSS: something else has come than the other process has sent.
static at_status read_sealed(peer *p, uint8_t *to, size_t n, bool *ended) {
  uint64_t number = p->link.recv.number;
  *ended = !read_bytes(p->link.fd, to, n + AT_SEAL_BYTES);
  if (*ended || at_seal_check(&p->link.recv, (at_bytes){to, n}, to + n))
    return AT_OK;
  return AT_FAIL(AT_DATA_LOSS,
                 "message %llu of process %u was changed, repeated or injected "
                 "on its way; the connection is closed",
                 (unsigned long long)number, p->host);
}

static void free_message(message *m) {
  free(m->body);
  free(m);
}

// ---- Readers
// -----------------------------------------------------------------
// Under the lock: who waits looks again after the unlock and the firing of what
// this returns.
static at_event *change_news(at_pod_hosts *a) {
  at_event *old = a->news, *next = at_event_create();
  if (!next) return at_event_retain(old);  // it stays, fired (next_news)
  a->news = next;
  return old;
}

static void tell_news(at_event *old) {
  at_event_fire(old, AT_OK);
  at_event_release(old);
}

// Under the lock: what fires at the next change; free with a release. NULL
// while there is no memory for an event in the place of one that has fired.
static at_event *next_news(at_pod_hosts *a) {
  if (at_event_fired(a->news)) {
    at_event *next = at_event_create();
    if (!next) return NULL;
    at_event_release(a->news);
    a->news = next;
  }
  return at_event_retain(a->news);
}

static bool same_launch(const at_hosts_tag *a, const at_hosts_tag *b) {
  return a->launch == b->launch && a->group == b->group;
}

static bool is_dropped(const at_pod_hosts *a, const at_hosts_tag *tag) {
  uint32_t n = AT_MIN(a->num_dropped, (uint32_t)kDropped);
  for (uint32_t i = 0; i < n; i++)
    if (same_launch(&a->dropped[i], tag)) return true;
  return false;
}

static at_status check_head(const peer *p, const head *h) {
  uint64_t most = h->kind == KIND_FAIL ? kWhyBytes : kBodyBytes;
  if (h->kind < KINDS && h->bytes <= most && !h->zero) return AT_OK;
  return AT_FAIL(AT_DATA_LOSS,
                 "process %u sent a message of kind %u with %llu bytes",
                 p->host, h->kind, (unsigned long long)h->bytes);
}

// *out stays NULL where the connection has ended.
static at_status read_message(peer *p, message **out) {
  bool ended;
  head h;
  uint8_t sealed[sizeof h + AT_SEAL_BYTES];
  AT_TRY(read_sealed(p, sealed, sizeof h, &ended));
  if (ended) return AT_OK;
  memcpy(&h, sealed, sizeof h);
  AT_TRY(check_head(p, &h));
  message *m = calloc(1, sizeof *m);
  uint8_t *body = m ? at_hosts_block(h.bytes + AT_SEAL_BYTES) : NULL;
  if (!body) {
    free(m);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no host memory for %llu bytes from process %u",
                   (unsigned long long)h.bytes, p->host);
  }
  *m = (message){.host = p->host, .head = h, .body = body};
  at_status st = h.bytes ? read_sealed(p, body, h.bytes, &ended) : AT_OK;
  if (st.err || ended)
    free_message(m);
  else
    *out = m;
  return st;
}

static void read_all(void *arg) {
  peer *p = arg;
  at_pod_hosts *a = p->all;
  for (bool more = true; more;) {
    message *m = NULL;
    at_status st = read_message(p, &m);
    pthread_mutex_lock(&a->lock);
    bool keep = m && !is_dropped(a, &m->head.tag);
    if (keep) *a->last = m, a->last = &m->next;
    if (!m) p->gone = true, p->why = st;
    more = m != NULL;
    at_event *old = change_news(a);
    pthread_mutex_unlock(&a->lock);
    if (m && !keep) free_message(m);
    tell_news(old);
  }
  // Nothing of what else comes counts, and the other side is to see it.
  (void)shutdown(p->link.fd, SHUT_RDWR);
}

// ---- Exchanges
// -----------------------------------------------------------------
static message *take(at_pod_hosts *a, message **at) {
  message *m = *at;
  *at = m->next;
  if (a->last == &m->next) a->last = at;
  return m;
}

static at_status other_program(uint32_t host, const at_hosts_tag *tag) {
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "process %u launched another program as number %llu of those "
                 "that run on the same processes\nhint: processes must launch "
                 "the programs that they have in common in the same order",
                 host, (unsigned long long)tag->launch);
}

static at_status failed_here(void) {
  return AT_FAIL(AT_ABORTED, "the launch has failed on this process");
}

// Under the lock: the message of a host, or why it will never come. *out stays
// NULL while neither is known.
static at_status look(at_pod_hosts *a, uint32_t host, const at_hosts_tag *tag,
                      message **out) {
  message **failed = NULL;
  for (message **at = &a->first; *at; at = &(*at)->next) {
    const head *h = &(*at)->head;
    if ((*at)->host != host || !same_launch(&h->tag, tag)) continue;
    if (h->kind == KIND_FAIL) {
      failed = at;
    } else if (h->tag.program != tag->program) {
      return other_program(host, tag);
    } else if (h->tag.step == tag->step && h->tag.turn == tag->turn &&
               h->tag.round == tag->round) {
      return *out = take(a, at), AT_OK;
    }
  }
  if (failed)
    return AT_FAIL(AT_ABORTED, "process %u failed: %.*s", host,
                   (int)(*failed)->head.bytes, (const char *)(*failed)->body);
  if (is_dropped(a, tag)) return failed_here();
  if (a->peers[host].gone && a->peers[host].why.err)
    return at_status_clone(a->peers[host].why);
  if (a->peers[host].gone)
    return AT_FAIL(AT_UNAVAILABLE,
                   "process %u has ended, or its connection broke, while this "
                   "one waits for it",
                   host);
  return AT_OK;
}

static at_status wait_for(at_pod_hosts *a, uint32_t host,
                          const at_hosts_tag *tag, message **out) {
  for (*out = NULL;;) {
    pthread_mutex_lock(&a->lock);
    at_status st = look(a, host, tag, out);
    at_event *news = st.err || *out ? NULL : next_news(a);
    pthread_mutex_unlock(&a->lock);
    if (st.err || *out) return st;
    if (!news)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to wait for process %u",
                     host);
    at_status_free(at_event_wait(news));
    at_event_release(news);
  }
}

static uint64_t length(const at_bytes *p, uint32_t n) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < n; i++) all += p[i].len;
  return all;
}

// Into the pieces that wait for it; the message is gone then.
static at_status deliver(message *m, at_hosts_mail *mail) {
  uint64_t want = 0;
  const uint8_t *p = m->body;
  if (!mail->in) {
    mail->block = (at_bytes){m->body, m->head.bytes};
    free(m);
    return AT_OK;
  }
  for (uint32_t i = 0; i < mail->num_in; i++) want += mail->in[i].len;
  at_status st = AT_OK;
  if (want != m->head.bytes)
    st = AT_FAIL(AT_INTERNAL,
                 "process %u sent %llu bytes for a collective, not %llu",
                 mail->host, (unsigned long long)m->head.bytes,
                 (unsigned long long)want);
  for (uint32_t i = 0; i < mail->num_in && !st.err; i++) {
    memcpy(mail->in[i].ptr, p, mail->in[i].len);
    p += mail->in[i].len;
  }
  free_message(m);
  return st;
}

static at_status exchange(void *arg, const at_hosts_tag *tag,
                          at_hosts_mail *mails, uint32_t num_mails) {
  at_pod_hosts *a = arg;
  pthread_mutex_lock(&a->lock);
  at_status st = is_dropped(a, tag) ? failed_here() : AT_OK;
  pthread_mutex_unlock(&a->lock);
  if (st.err) return st;
  for (uint32_t i = 0; i < num_mails; i++) {
    const at_hosts_mail *m = &mails[i];
    head head = {
        .bytes = length(m->out, m->num_out), .tag = *tag, .kind = KIND_DATA};
    // A broken connection is found by its reader.
    (void)send_message(&a->peers[m->host], &head, m->out, m->num_out);
  }
  for (uint32_t i = 0; i < num_mails && !st.err; i++) {
    message *m;
    st = wait_for(a, mails[i].host, tag, &m);
    if (!st.err) st = deliver(m, &mails[i]);
  }
  for (uint32_t i = 0; i < num_mails && st.err; i++) {
    free((void *)mails[i].block.ptr);
    mails[i].block = (at_bytes){0};
  }
  return st;
}

static void fail(void *arg, const at_hosts_tag *tag, const uint32_t *hosts,
                 uint32_t num_hosts, const char *why) {
  at_pod_hosts *a = arg;
  pthread_mutex_lock(&a->lock);
  bool known = is_dropped(a, tag);
  if (!known) a->dropped[a->num_dropped++ % kDropped] = *tag;
  for (message **at = &a->first; *at;) {
    if (same_launch(&(*at)->head.tag, tag))
      free_message(take(a, at));
    else
      at = &(*at)->next;
  }
  at_event *old = change_news(a);
  pthread_mutex_unlock(&a->lock);
  tell_news(old);
  at_bytes text = {(const uint8_t *)why,
                   AT_MIN(strlen(why), (size_t)kWhyBytes)};
  head head = {.bytes = text.len, .tag = *tag, .kind = KIND_FAIL};
  for (uint32_t i = 0; i < num_hosts && !known; i++)
    (void)send_message(&a->peers[hosts[i]], &head, &text, 1);
}

// ---- Agreements
// -----------------------------------------------------------------
typedef struct agreement {
  at_pod_hosts *all;
  at_hosts_mail mails[kMaxHosts];
  at_bytes out[kMaxHosts];
} agreement;

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

// ---- Connections
// -----------------------------------------------------------------
static at_status meet(at_pod_hosts *a, const at_pod_job *job, int listener) {
  uint32_t n = a->face.count;
  at_digest what = at_digest_start(n);
  at_digest_add_str(&what, at_str_of(job->job));
  at_pod_meeting m = {
      .addresses = &job->addresses,
      .token = &job->token,
      .card = {.me = job->me, .count = n, .job = what},
      .listener = listener,
      .local = job->local,
      .until_ns = at_clock_ns() + job->timeout_s * 1000000000ull,
      .interrupted = job->interrupted,
  };
  uint64_t strangers = 0;
  at_pod_link *links = calloc(n, sizeof *links);
  if (!links)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u processes", n);
  at_status st = at_pod_meet(&m, links, &strangers);
  for (uint32_t h = 0; h < n; h++) a->peers[h].link = links[h];
  free(links);
  if (strangers)
    at_log(AT_LOG_INFO,
           "process %u dropped %llu connections of strangers while the "
           "processes met",
           job->me, (unsigned long long)strangers);
  return st;
}

static at_status start_readers(at_pod_hosts *a) {
  for (uint32_t h = 0; h < a->face.count; h++) {
    peer *p = &a->peers[h];
    if (h == a->face.me) continue;
    at_status st = at_thread_start("atoll-hosts", AT_THREAD_STACK, read_all, p,
                                   &p->reader);
    if (st.err) return at_status_prefix(st, "no thread to hear process %u", h);
  }
  return AT_OK;
}

static at_status make(uint32_t n, uint32_t me, at_pod_hosts **out) {
  at_pod_hosts *a = calloc(1, sizeof *a + n * sizeof *a->peers);
  at_event *news = a ? at_event_create() : NULL;
  if (!news) {
    free(a);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u processes", n);
  }
  a->face = (at_hosts){n, me, a, exchange, fail};
  a->last = &a->first;
  a->news = news;
  pthread_mutex_init(&a->lock, NULL);
  pthread_mutex_init(&a->agreeing, NULL);
  for (uint32_t h = 0; h < n; h++) {
    a->peers[h] = (peer){.all = a, .host = h, .link.fd = -1};
    pthread_mutex_init(&a->peers[h].sending, NULL);
  }
  *out = a;
  return AT_OK;
}

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
  if (!st.err) st = meet(a, job, listener);
  if (listener >= 0) close(listener);
  if (!st.err) st = start_readers(a);
  if (st.err) {
    at_pod_hosts_close(a);
    return st;
  }
  *out = a;
  return AT_OK;
}

const at_hosts *at_pod_hosts_of(const at_pod_hosts *p) {
  return p ? &p->face : NULL;
}

void at_pod_hosts_close(at_pod_hosts *a) {
  if (!a) return;
  for (uint32_t h = 0; h < a->face.count; h++) {
    peer *p = &a->peers[h];
    if (p->link.fd >= 0) shutdown(p->link.fd, SHUT_RDWR);
    at_thread_join(p->reader);
    if (p->link.fd >= 0) close(p->link.fd);
    at_status_free(p->why);
    pthread_mutex_destroy(&p->sending);
  }
  while (a->first) free_message(take(a, &a->first));
  at_event_release(a->news);
  pthread_mutex_destroy(&a->lock);
  pthread_mutex_destroy(&a->agreeing);
  free(a);
}
