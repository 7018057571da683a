// One connection between any two processes, and a thread for each that reads
// messages into one list; who waits looks there whenever one has come. Sending
// never waits for the receiver's program, only for its reader.
#include "pod/hosts.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "sparsecore/engine.h"

enum {
  kMaxHosts = 1024,
  kDropped = 64,     // failed launches that are remembered
  kWhyBytes = 4096,  // of a failure's text
  kRetryUs = 20000,  // between two tries to connect
  kBacklog = 128,
};
static const uint64_t kMagic = 0x31686c6c6f746131;  // "1atollh1"

typedef enum kind { KIND_DATA, KIND_FAIL } kind;
typedef struct head {
  uint64_t bytes;  // of the body
  at_hosts_tag tag;
  uint32_t kind, pad;
} head;
typedef struct hello {
  uint64_t magic, job;
  uint32_t me, count;
} hello;

typedef struct message {
  struct message *next;
  uint32_t host;
  head head;
  uint8_t *body;  // at_hosts_block
} message;

typedef struct peer {
  at_pod_hosts *all;
  uint32_t host;
  int fd;  // -1: this process
  bool gone;
  at_thread *reader;
  pthread_mutex_t send;
} peer;

struct at_pod_hosts {
  at_hosts face;
  pthread_mutex_t lock;  // what follows
  message *first, **last;
  at_event *news;  // fires when the list or a peer changed
  uint64_t dropped[kDropped];
  uint32_t num_dropped;
  pthread_mutex_t agreeing;  // what follows: one agreement at a time
  uint32_t agreements;
  peer peers[];
};

// ---- Bytes
// -----------------------------------------------------------------
static bool send_bytes(int fd, const void *p, size_t n) {
  for (size_t at = 0; at < n;) {
    ssize_t k = send(fd, (const uint8_t *)p + at, n - at, MSG_NOSIGNAL);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    at += (size_t)k;
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

static bool send_message(peer *p, const head *h, const void *body) {
  pthread_mutex_lock(&p->send);
  bool sent =
      send_bytes(p->fd, h, sizeof *h) && send_bytes(p->fd, body, h->bytes);
  pthread_mutex_unlock(&p->send);
  return sent;
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

// Under the lock: what fires at the next change; free with a release. NULL while
// there is no memory for an event in the place of one that has fired.
static at_event *next_news(at_pod_hosts *a) {
  if (at_event_fired(a->news)) {
    at_event *next = at_event_create();
    if (!next) return NULL;
    at_event_release(a->news);
    a->news = next;
  }
  return at_event_retain(a->news);
}

static bool is_dropped(const at_pod_hosts *a, uint64_t launch) {
  uint32_t n = AT_MIN(a->num_dropped, (uint32_t)kDropped);
  for (uint32_t i = 0; i < n; i++)
    if (a->dropped[i] == launch) return true;
  return false;
}

static message *read_message(const peer *p) {
  message *m = calloc(1, sizeof *m);
  if (!m) return NULL;
  m->host = p->host;
  if (read_bytes(p->fd, &m->head, sizeof m->head)) {
    m->body = at_hosts_block(m->head.bytes);
    if (m->body && read_bytes(p->fd, m->body, m->head.bytes)) return m;
  }
  free_message(m);
  return NULL;
}

static void read_all(void *arg) {
  peer *p = arg;
  at_pod_hosts *a = p->all;
  for (bool more = true; more;) {
    message *m = read_message(p);
    pthread_mutex_lock(&a->lock);
    bool keep = m && !is_dropped(a, m->head.tag.launch);
    if (keep) *a->last = m, a->last = &m->next;
    if (!m) p->gone = true;
    more = m != NULL;
    at_event *old = change_news(a);
    pthread_mutex_unlock(&a->lock);
    if (m && !keep) free_message(m);
    tell_news(old);
  }
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
                 "process %u launched another program as launch %llu over all "
                 "processes\nhint: every process must launch the same programs "
                 "in the same order",
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
    if ((*at)->host != host || h->tag.launch != tag->launch) continue;
    if (h->kind == KIND_FAIL) {
      failed = at;
    } else if (h->tag.program != tag->program) {
      return other_program(host, tag);
    } else if (h->tag.step == tag->step && h->tag.turn == tag->turn) {
      return *out = take(a, at), AT_OK;
    }
  }
  if (failed)
    return AT_FAIL(AT_ABORTED, "process %u failed: %.*s", host,
                   (int)(*failed)->head.bytes, (const char *)(*failed)->body);
  if (is_dropped(a, tag->launch)) return failed_here();
  if (a->peers[host].gone)
    return AT_FAIL(AT_UNAVAILABLE,
                   "process %u has ended, or its connection broke, while a "
                   "program over all processes runs",
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

static at_status exchange(void *arg, const at_hosts_tag *tag,
                          const at_bytes *send, at_bytes *recv) {
  at_pod_hosts *a = arg;
  uint32_t n = a->face.count;
  pthread_mutex_lock(&a->lock);
  at_status st = is_dropped(a, tag->launch) ? failed_here() : AT_OK;
  pthread_mutex_unlock(&a->lock);
  if (st.err) return st;
  for (uint32_t h = 0; h < n; h++) {
    head head = {.bytes = send[h].len, .tag = *tag, .kind = KIND_DATA};
    // A broken connection is found by its reader.
    if (h != a->face.me) (void)send_message(&a->peers[h], &head, send[h].ptr);
  }
  for (uint32_t h = 0; h < n && !st.err; h++) {
    message *m;
    if (h == a->face.me) continue;
    st = wait_for(a, h, tag, &m);
    if (st.err) break;
    recv[h] = (at_bytes){m->body, m->head.bytes};
    free(m);
  }
  for (uint32_t h = 0; h < n && st.err; h++) {
    if (h == a->face.me) continue;
    free((void *)recv[h].ptr);
    recv[h] = (at_bytes){0};
  }
  return st;
}

static void fail(void *arg, uint64_t launch, const char *why) {
  at_pod_hosts *a = arg;
  pthread_mutex_lock(&a->lock);
  bool known = is_dropped(a, launch);
  if (!known) a->dropped[a->num_dropped++ % kDropped] = launch;
  for (message **at = &a->first; *at;) {
    if ((*at)->head.tag.launch == launch)
      free_message(take(a, at));
    else
      at = &(*at)->next;
  }
  at_event *old = change_news(a);
  pthread_mutex_unlock(&a->lock);
  tell_news(old);
  head head = {.bytes = AT_MIN(strlen(why), (size_t)kWhyBytes),
               .tag = {.launch = launch},
               .kind = KIND_FAIL};
  for (uint32_t h = 0; h < a->face.count && !known; h++)
    if (h != a->face.me) (void)send_message(&a->peers[h], &head, why);
}

// ---- Agreements
// -----------------------------------------------------------------
typedef struct agreement {
  at_pod_hosts *all;
  void *held[kMaxHosts];
} agreement;

static at_status agree_exchange(void *arg, const at_bytes *send,
                                at_bytes *recv) {
  agreement *g = arg;
  at_hosts_tag tag = {.launch = UINT64_MAX, .turn = g->all->agreements++};
  AT_TRY(exchange(g->all, &tag, send, recv));
  for (uint32_t h = 0; h < g->all->face.count; h++)
    g->held[h] = (void *)recv[h].ptr;
  return AT_OK;
}

at_status at_pod_hosts_agree(at_pod_hosts *a, uint64_t *bits) {
  agreement g = {.all = a};
  at_sc_hosts hosts = {a->face.count, a->face.me, &g, agree_exchange};
  pthread_mutex_lock(&a->agreeing);
  at_status st = at_sc_hosts_agree(&hosts, bits);
  pthread_mutex_unlock(&a->agreeing);
  for (uint32_t h = 0; h < a->face.count; h++) free(g.held[h]);
  return st;
}

// ---- Connections
// -----------------------------------------------------------------
uint32_t at_pod_hosts_count(const char *addresses) {
  uint32_t n = *addresses != 0;
  for (const char *p = addresses; *p; p++) n += *p == ',';
  return n;
}

// Address i, resolved.
static at_status resolve(const char *addresses, uint32_t i,
                         struct addrinfo **out) {
  for (; i; i--) addresses = strchr(addresses, ',') + 1;
  const char *end = strchr(addresses, ',');
  size_t n = end ? (size_t)(end - addresses) : strlen(addresses);
  char text[256], *colon = NULL;
  if (n < sizeof text) {
    memcpy(text, addresses, n);
    text[n] = 0;
    colon = strrchr(text, ':');
  }
  if (!colon || colon == text || !colon[1])
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "TPU_PROCESS_ADDRESSES: %.*s is not host:port",
                   (int)AT_MIN(n, (size_t)100), addresses);
  *colon = 0;
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  int code = getaddrinfo(text, colon + 1, &hints, out);
  if (code)
    return AT_FAIL(AT_INVALID_ARGUMENT, "TPU_PROCESS_ADDRESSES: %s:%s: %s",
                   text, colon + 1, gai_strerror(code));
  return AT_OK;
}

static int socket_of(const struct addrinfo *to) {
  return socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, to->ai_protocol);
}

static at_status listen_at(const char *addresses, uint32_t me, int *out) {
  struct addrinfo *all;
  AT_TRY(resolve(addresses, me, &all));
  int fd = -1, one = 1;
  for (struct addrinfo *to = all; to && fd < 0; to = to->ai_next) {
    fd = socket_of(to);
    if (fd < 0) continue;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!bind(fd, to->ai_addr, to->ai_addrlen) && !listen(fd, kBacklog)) break;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(all);
  if (fd < 0)
    return AT_FAIL(AT_UNAVAILABLE,
                   "process %u cannot listen at its address of "
                   "TPU_PROCESS_ADDRESSES (%s): %s",
                   me, addresses, strerror(errno));
  *out = fd;
  return AT_OK;
}

static at_status too_late(uint32_t host) {
  return AT_FAIL(AT_DEADLINE_EXCEEDED,
                 "process %u did not come\nhint: start as many processes as "
                 "TPU_PROCESS_ADDRESSES has addresses, each with its own "
                 "CLOUD_TPU_TASK_ID",
                 host);
}

static at_status connect_to(const char *addresses, uint32_t host,
                            uint64_t until_ns, int *out) {
  struct addrinfo *all;
  AT_TRY(resolve(addresses, host, &all));
  int fd = -1;
  while (fd < 0 && at_clock_ns() < until_ns) {
    for (struct addrinfo *to = all; to && fd < 0; to = to->ai_next) {
      fd = socket_of(to);
      if (fd < 0 || !connect(fd, to->ai_addr, to->ai_addrlen)) continue;
      close(fd);
      fd = -1;
    }
    if (fd < 0) usleep(kRetryUs);
  }
  freeaddrinfo(all);
  if (fd < 0) return too_late(host);
  *out = fd;
  return AT_OK;
}

static at_status wrong_job(const hello *mine, const hello *theirs) {
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "process %u (of %u) is not of this job (process %u of %u): "
                 "another target, version, number of processes, or the same "
                 "CLOUD_TPU_TASK_ID",
                 theirs->me, theirs->count, mine->me, mine->count);
}

// Says who this is and hears who that is.
static at_status greet(at_pod_hosts *a, int fd, const hello *mine,
                       uint64_t until_ns, hello *theirs) {
  int one = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  uint64_t left = until_ns - AT_MIN(until_ns, at_clock_ns());
  struct pollfd p = {.fd = fd, .events = POLLIN};
  if (!send_bytes(fd, mine, sizeof *mine) ||
      poll(&p, 1, (int)(left / 1000000)) <= 0 ||
      !read_bytes(fd, theirs, sizeof *theirs) || theirs->magic != mine->magic)
    return AT_FAIL(AT_UNAVAILABLE, "no process of Atoll answers");
  if (theirs->job != mine->job || theirs->count != mine->count ||
      theirs->me >= mine->count || theirs->me == mine->me ||
      a->peers[theirs->me].fd >= 0)
    return wrong_job(mine, theirs);
  return AT_OK;
}

static at_status accept_one(at_pod_hosts *a, int listener, const hello *mine,
                            uint64_t until_ns) {
  uint64_t left = until_ns - AT_MIN(until_ns, at_clock_ns());
  struct pollfd p = {.fd = listener, .events = POLLIN};
  if (poll(&p, 1, (int)(left / 1000000)) <= 0) {
    uint32_t h = mine->me + 1;
    while (h + 1 < mine->count && a->peers[h].fd >= 0) h++;
    return too_late(h);
  }
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return AT_OK;  // gone again
  hello theirs;
  at_status st = greet(a, fd, mine, until_ns, &theirs);
  if (st.err)
    close(fd);
  else
    a->peers[theirs.me].fd = fd;
  return st;
}

// To those before this one; those behind it come.
static at_status connect_all(at_pod_hosts *a, const char *addresses,
                             const hello *mine, uint64_t until_ns) {
  int listener;
  AT_TRY(listen_at(addresses, mine->me, &listener));
  at_status st = AT_OK;
  for (uint32_t h = 0; h < mine->me && !st.err; h++) {
    int fd;
    hello theirs;
    st = connect_to(addresses, h, until_ns, &fd);
    if (st.err) break;
    st = greet(a, fd, mine, until_ns, &theirs);
    if (!st.err && theirs.me != h) st = wrong_job(mine, &theirs);
    if (st.err)
      close(fd);
    else
      a->peers[h].fd = fd;
  }
  for (uint32_t h = mine->me + 1; h < mine->count && !st.err;) {
    st = accept_one(a, listener, mine, until_ns);
    while (h < mine->count && a->peers[h].fd >= 0) h++;
  }
  close(listener);
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

at_status at_pod_hosts_open(const char *addresses, uint32_t me, const char *job,
                            uint32_t timeout_s, at_pod_hosts **out) {
  uint32_t n = at_pod_hosts_count(addresses);
  if (n > kMaxHosts || me >= n)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "CLOUD_TPU_TASK_ID is %u, but TPU_PROCESS_ADDRESSES has %u "
                   "addresses (at most %d)",
                   me, n, kMaxHosts);
  at_pod_hosts *a = calloc(1, sizeof *a + n * sizeof *a->peers);
  if (!a)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u processes", n);
  a->face = (at_hosts){n, me, a, exchange, fail};
  a->last = &a->first;
  a->news = at_event_create();
  pthread_mutex_init(&a->lock, NULL);
  pthread_mutex_init(&a->agreeing, NULL);
  for (uint32_t h = 0; h < n; h++) {
    a->peers[h] = (peer){.all = a, .host = h, .fd = -1};
    pthread_mutex_init(&a->peers[h].send, NULL);
  }
  hello mine = {kMagic, at_hash(AT_HASH_SEED, job, strlen(job)), me, n};
  at_status st = a->news
                     ? connect_all(a, addresses, &mine,
                                   at_clock_ns() + timeout_s * 1000000000ull)
                     : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory");
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
    if (p->fd >= 0) shutdown(p->fd, SHUT_RDWR);
    at_thread_join(p->reader);
    if (p->fd >= 0) close(p->fd);
    pthread_mutex_destroy(&p->send);
  }
  while (a->first) free_message(take(a, &a->first));
  at_event_release(a->news);
  pthread_mutex_destroy(&a->lock);
  pthread_mutex_destroy(&a->agreeing);
  free(a);
}
