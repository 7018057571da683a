// Where launches of several processes meet in shared memory. Each process has a
// board for every channel, at the beginning of its arena, on which it writes
// where it is; the others look there, and sleep on a word of their own until
// somebody rings. Failures and ends come by messages: who waits asks for them
// every few milliseconds (at_hosts.check).
#include "pod/share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/linger.h"
#include "base/log.h"
#include "pod/share_meet.h"
#include "pod/wire_stream.h"

enum {
  kBoards = 4096,
  kPageBytes = 4096,
  kTickNs = 20000000,       // between two questions for failures
  kTellNs = 2000000000,     // until who has failed has surely said why
  kSpinNs = 20000,          // what it takes to wake a process on another core
  kYields = 2,              // where there are more processes than cores
  kCallerNs = 100000,       // of a thread that has other work to go on with
  kCallerMostNs = 1000000,  // from its launch
  kPhaseBits = 2,
  kAnybody = UINT32_MAX - 1,  // bell.want
};
static const uint64_t kPhaseMask = (1 << kPhaseBits) - 1;
static const uint64_t kMostBytes = 1ull << 42;  // of an arena

// ---- What processes share
// A process's place in one collective. state: of its tag, and the phase; 0:
// nowhere. What follows it counts while the state does not change.
typedef struct line {
  alignas(64) _Atomic uint64_t state;
  _Atomic uint64_t where[2], group, launch, program;
} line;
typedef struct board {
  alignas(64) _Atomic uint64_t name;
  line lines[AT_HOSTS_SLOTS];
} board;
typedef struct head {
  alignas(64) _Atomic uint32_t num_boards;  // only grows
  board boards[kBoards];
} head;

// The page that others write.
typedef struct bell {
  alignas(64) _Atomic uint32_t count;  // rings; its process sleeps on it
  _Atomic uint32_t asleep;
  _Atomic uint32_t want;  // the process that it sleeps for; kAnybody: several
  _Atomic uint32_t ends;  // waits for AT_HOSTS_DONE
} bell;
static_assert(sizeof(bell) <= kPageBytes, "a bell fits");

// ---- What a process has of its own
typedef struct peer {
  bell *bell;
} peer;

struct at_hosts_channel {
  at_hosts_channel *next;
  at_pod_share *all;
  uint64_t name;
  line *lines;           // of this process
  _Atomic bool busy;     // between begin and end
  bool ended;            // so it has: what it told of stays, or nobody reads it
  uint32_t turns, slot;  // collectives so far; of the one in hand
  uint32_t late;         // who came last, of late
  at_hosts_tag tag;
  uint64_t state[AT_HOSTS_SLOTS];
  // Whom the line has told, and who may still read what it told of.
  uint32_t num_told[AT_HOSTS_SLOTS];
  uint32_t *told[AT_HOSTS_SLOTS];
  const board **boards;  // by host; NULL: not found yet
};

struct at_pod_share {
  at_hosts_share face;
  const at_hosts *hosts;
  head *head;
  bell *bell;
  int arena_fd, readable_fd, page_fd;
  at_linger callers;      // of threads that launch
  _Atomic uint32_t told;  // moves when there is something to ask for
  uint8_t *with;          // count x count
  at_bytes *maps;
  pthread_mutex_t lock;  // what follows
  at_hosts_channel *channels;
  bool led;         // somebody sleeps on the bell
  uint32_t parked;  // others that wait for `news`
  at_event *news;   // fires when who led is awake
  peer peers[];
};

// ---- Bells
// Wakes the process if it sleeps for this one, or for anybody. The fence orders
// the line's state before the look at `asleep`; the sleeper does it the other
// way round.
static void ring(at_pod_share *s, uint32_t host, at_hosts_phase phase) {
  bell *b = s->peers[host].bell;
  atomic_thread_fence(memory_order_seq_cst);
  if (phase == AT_HOSTS_DONE && !atomic_load(&b->ends)) return;
  atomic_fetch_add(&b->count, 1);
  if (!atomic_load(&b->asleep)) return;
  uint32_t want = atomic_load(&b->want);
  if (want != kAnybody && want != s->hosts->me) return;
  if (atomic_exchange(&b->asleep, 0)) at_futex_wake_shared(&b->count);
}

// Wakes who waits here: a failure has come by message. NULL: nothing.
void at_pod_share_tell(at_pod_share *s) {
  if (!s) return;
  atomic_fetch_add(&s->told, 1);
  atomic_fetch_add(&s->bell->count, 1);
  if (atomic_exchange(&s->bell->asleep, 0))
    at_futex_wake_shared(&s->bell->count);
}

// Who led is awake: the event that the others wait for is replaced. Under the
// lock.
static at_event *change_news(at_pod_share *s) {
  at_event *old = s->news, *next = at_event_create();
  if (next) s->news = next;  // else who waits looks again and again
  return next ? old : at_event_retain(old);
}

// One sleeps on the bell, for `host`; the others wait until it wakes.
// heard: the bell's count before the caller last looked.
static void sleep_on(at_pod_share *s, uint32_t host, uint32_t heard,
                     uint64_t until_ns) {
  bell *b = s->bell;
  at_event *news = NULL;
  pthread_mutex_lock(&s->lock);
  if (s->led) {
    s->parked++;
    atomic_store(&b->want, (uint32_t)kAnybody);
    news = at_event_retain(s->news);
    pthread_mutex_unlock(&s->lock);
    if (atomic_load(&b->count) == heard) at_status_free(at_event_wait(news));
    at_event_release(news);
    pthread_mutex_lock(&s->lock);
    s->parked--;
    pthread_mutex_unlock(&s->lock);
    return;
  }
  s->led = true;
  atomic_store(&b->want, s->parked ? (uint32_t)kAnybody : host);
  atomic_store(&b->asleep, 1);
  pthread_mutex_unlock(&s->lock);
  at_futex_wait_shared(&b->count, heard, until_ns);
  pthread_mutex_lock(&s->lock);
  atomic_store(&b->asleep, 0);
  s->led = false;
  if (s->parked) news = change_news(s);
  pthread_mutex_unlock(&s->lock);
  if (!news) return;
  at_event_fire(news, AT_OK);
  at_event_release(news);
}

// ---- Boards
// Boards are only ever added, so one that has been found stays. NULL: that
// process has not opened the channel yet.
static const board *find_board(at_hosts_channel *c, uint32_t host) {
  if (c->boards[host]) return c->boards[host];
  const head *h = (const void *)c->all->maps[host].ptr;
  uint32_t n = atomic_load(&((head *)h)->num_boards);
  n = AT_MIN(n, (uint32_t)kBoards);
  for (uint32_t i = 0; i < n; i++)
    if (atomic_load(&((head *)h)->boards[i].name) == c->name)
      return c->boards[host] = &h->boards[i];
  return NULL;
}

// The phase aside.
static bool same_tag(uint64_t a, uint64_t b) {
  return !((a ^ b) & ~kPhaseMask);
}

// Has a host come to a phase of what has `state` here? *where: READY, SUMMED.
static bool has_come(at_hosts_channel *c, uint32_t host, uint64_t state,
                     at_hosts_phase phase, uint64_t *where) {
  board *b = (board *)find_board(c, host);
  for (uint32_t i = 0; b && i < AT_HOSTS_SLOTS; i++) {
    uint64_t there = atomic_load(&b->lines[i].state);
    if (!same_tag(there, state)) continue;
    if ((there & kPhaseMask) < phase) return false;
    if (where && phase <= AT_HOSTS_SUMMED)
      *where = atomic_load(&b->lines[i].where[phase - AT_HOSTS_READY]);
    return true;
  }
  // Who has left the line has ended what was on it.
  return phase == AT_HOSTS_DONE;
}

// Is the host still in that collective?
static bool is_there(at_hosts_channel *c, uint32_t host, uint64_t state) {
  board *b = (board *)find_board(c, host);
  for (uint32_t i = 0; b && i < AT_HOSTS_SLOTS; i++)
    if (same_tag(atomic_load(&b->lines[i].state), state)) return true;
  return false;
}

// ---- Waiting
typedef struct wait {
  at_hosts_channel *c;
  uint64_t state;
  at_hosts_phase phase;
  const uint32_t *hosts;
  uint32_t num_hosts;
  uint64_t *where;
} wait;

// One that has not come, best the one that others had to wait for last time;
// UINT32_MAX: all have.
static uint32_t missing(const wait *w) {
  uint32_t found = UINT32_MAX;
  for (uint32_t i = 0; i < w->num_hosts; i++) {
    uint64_t *where = w->where ? &w->where[i] : NULL;
    if (has_come(w->c, w->hosts[i], w->state, w->phase, where)) continue;
    found = w->hosts[i];
    if (found == w->c->late) return found;
  }
  return found;
}

static bool late_has_come(void *arg) {
  const wait *w = arg;
  return has_come(w->c, w->c->late, w->state, w->phase, NULL);
}

// For c->late. Where cores are few, the others may be waiting for this one.
static bool spin(wait *w) {
  const at_pod_share *s = w->c->all;
  for (int i = 0; s->face.crowded && i < kYields; i++) {
    sched_yield();
    if (late_has_come(w)) return true;
  }
  if (s->face.crowded) return false;
  uint64_t until = at_clock_ns() + kSpinNs;
  for (int turn = 0;; turn++) {
    at_spin_pause();
    if (late_has_come(w)) return true;
    if (turn % 16 == 0 && at_clock_ns() >= until) return false;
  }
}

// A thread that launches does not sleep here: it looks for a moment, then goes
// back to its work and another one waits; so it does from a program that has
// kept it for long, as a loop may. True: who was waited for has come.
static bool wait_on_caller(wait *w) {
  const uint64_t ns = at_fiber_on_caller_ns();
  if (!ns) return false;
  if (ns < kCallerMostNs &&
      at_linger_for(&w->c->all->callers, kCallerNs, late_has_come, w))
    return true;
  at_fiber_leave_caller();
  return late_has_come(w);
}

// Asks about failures of those that have not come.
static at_status check_missing(const wait *w, at_hosts_patience *p) {
  const at_hosts *h = w->c->all->hosts;
  for (uint32_t i = 0; i < w->num_hosts; i++)
    if (!has_come(w->c, w->hosts[i], w->state, w->phase, NULL))
      AT_TRY(h->check(h->arg, &w->c->tag, w->hosts[i], p));
  return AT_OK;
}

// Spins, sleeps on the bell, and asks every kTickNs whether somebody has
// failed.
static at_status wait_for_all(wait *w) {
  at_pod_share *s = w->c->all;
  uint64_t tick = 0;
  uint32_t asked = 0;  // at once, too, where something has been told before
  at_hosts_patience patience = {0};
  for (;;) {
    uint32_t heard = atomic_load(&s->bell->count);
    uint32_t told = atomic_load(&s->told);
    uint32_t host = missing(w);
    if (host == UINT32_MAX) return AT_OK;
    w->c->late = host;
    if (wait_on_caller(w) || spin(w)) continue;
    uint64_t now = at_clock_ns();
    if (!tick) patience.since_ns = now;
    if (told != asked || (tick && now >= tick)) {
      asked = told;
      // What has come before the end of its sender still counts.
      at_status st = check_missing(w, &patience);
      if (st.err && missing(w) == UINT32_MAX) {
        at_status_free(st);
        st = AT_OK;
      }
      if (st.err) return st;
    }
    if (!tick || now >= tick) tick = now + kTickNs;
    sleep_on(s, host, heard, tick);
  }
}

// ---- Channels
// at_hosts_share.among: can each of these share memory with each other?
static bool among(void *arg, const uint32_t *hosts, uint32_t n) {
  const at_pod_share *s = arg;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < i; j++)
      if (!s->with[hosts[i] * s->hosts->count + hosts[j]]) return false;
  return true;
}

// One block with its lists. NULL: no memory.
static at_hosts_channel *make_channel(at_pod_share *s, uint64_t name) {
  uint32_t n = s->hosts->count;
  at_hosts_channel *c = calloc(
      1,
      sizeof *c + n * (sizeof *c->boards + AT_HOSTS_SLOTS * sizeof **c->told));
  if (!c) return NULL;
  c->all = s;
  c->name = name;
  c->late = UINT32_MAX;
  c->boards = (const board **)(c + 1);
  for (uint32_t i = 0; i < AT_HOSTS_SLOTS; i++)
    c->told[i] = (uint32_t *)(c->boards + n) + i * n;
  return c;
}

// Under the lock.
static at_status add_channel(at_pod_share *s, uint64_t name,
                             at_hosts_channel **out) {
  uint32_t n = atomic_load(&s->head->num_boards);
  at_hosts_channel *c = n < kBoards ? make_channel(s, name) : NULL;
  if (!c)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no room for programs over one more set of devices: there "
                   "are %u of at most %d\nhint: programs over several "
                   "processes keep a place for each set of devices; use fewer",
                   n, kBoards);
  board *b = &s->head->boards[n];
  c->lines = b->lines;
  atomic_store(&b->name, name);
  atomic_store(&s->head->num_boards, n + 1);
  c->next = s->channels;
  s->channels = *out = c;
  return AT_OK;
}

// at_hosts_share.open: the same channel for the same name; kept until the end.
static at_status open_channel(void *arg, uint64_t name,
                              at_hosts_channel **out) {
  at_pod_share *s = arg;
  at_status st = AT_OK;
  pthread_mutex_lock(&s->lock);
  at_hosts_channel *c = s->channels;
  while (c && c->name != name) c = c->next;
  if (!c) st = add_channel(s, name, &c);
  pthread_mutex_unlock(&s->lock);
  if (!st.err) *out = c;
  return st;
}

// Of everything in the tag but the round; the low bits are left for the phase,
// and it is never 0.
static uint64_t state_of(const at_hosts_tag *tag) {
  at_hosts_tag t = *tag;
  t.round = t.pad = 0;
  uint64_t h = at_hash(AT_HASH_SEED, &t, sizeof t) & ~kPhaseMask;
  return h ? h : kPhaseMask + 1;
}

// Waits until these hosts are done with what the line in that slot has told
// them.
static at_status hear_ends(at_hosts_channel *c, uint32_t slot,
                           const uint32_t *hosts, uint32_t n) {
  wait w = {c, c->state[slot], AT_HOSTS_DONE, hosts, n, NULL};
  if (missing(&w) == UINT32_MAX) return AT_OK;
  atomic_fetch_add(&c->all->bell->ends, 1);
  atomic_thread_fence(memory_order_seq_cst);
  at_status st = wait_for_all(&w);
  atomic_fetch_sub(&c->all->bell->ends, 1);
  return st;
}

// at_hosts_share.begin: the line's former readers are done before it is
// written.
static at_status begin(at_hosts_channel *c, const at_hosts_tag *tag,
                       uint32_t *slot) {
  AT_ENSURE(!atomic_exchange(&c->busy, true));
  c->tag = *tag;
  c->ended = false;
  c->slot = c->turns++ % AT_HOSTS_SLOTS;
  at_status st = hear_ends(c, c->slot, c->told[c->slot], c->num_told[c->slot]);
  c->num_told[c->slot] = 0;
  if (st.err) {
    atomic_store(&c->busy, false);
    return st;
  }
  line *l = &c->lines[c->slot];
  c->state[c->slot] = state_of(tag);
  atomic_store(&l->state, 0);
  atomic_store(&l->group, tag->group);
  atomic_store(&l->launch, tag->launch);
  atomic_store(&l->program, tag->program);
  *slot = c->slot;
  return AT_OK;
}

// The state is stored before anybody is rung.
static void tell(at_hosts_channel *c, at_hosts_phase phase,
                 const uint32_t *hosts, uint32_t n) {
  atomic_store(&c->lines[c->slot].state, c->state[c->slot] | phase);
  for (uint32_t i = 0; i < n; i++) ring(c->all, hosts[i], phase);
}

// at_hosts_share.say: where the others find this process's bytes, then the
// phase.
static void say(at_hosts_channel *c, at_hosts_phase phase, uint64_t where,
                const uint32_t *hosts, uint32_t n) {
  AT_ASSERT(phase <= AT_HOSTS_SUMMED && n < c->all->hosts->count);
  atomic_store(&c->lines[c->slot].where[phase - AT_HOSTS_READY], where);
  if (phase == AT_HOSTS_READY) {
    memcpy(c->told[c->slot], hosts, n * sizeof *hosts);
    c->num_told[c->slot] = n;
  }
  tell(c, phase, hosts, n);
}

// at_hosts_share.hear.
static at_status hear(at_hosts_channel *c, at_hosts_phase phase,
                      const uint32_t *hosts, uint32_t n, uint64_t *where) {
  wait w = {c, c->state[c->slot], phase, hosts, n, where};
  return wait_for_all(&w);
}

// Why a host has left a collective, which it tells all of them next.
static at_status why_left(at_hosts_channel *c, uint32_t host) {
  const at_hosts *h = c->all->hosts;
  for (uint64_t until = at_clock_ns() + kTellNs; at_clock_ns() < until;) {
    AT_TRY(h->check(h->arg, &c->tag, host, NULL));
    usleep(1000);
  }
  return AT_FAIL(AT_ABORTED, "process %u failed in a collective", host);
}

// Who is in the collective cannot have left it: it waits for this process. If
// it has, it has failed, and may have changed what was read.
static at_status check_presence(at_hosts_channel *c, const uint32_t *hosts,
                                uint32_t n) {
  atomic_thread_fence(memory_order_seq_cst);
  for (uint32_t i = 0; i < n; i++)
    if (!is_there(c, hosts[i], c->state[c->slot])) return why_left(c, hosts[i]);
  return AT_OK;
}

// at_hosts_share.finish: nobody has left meanwhile, so what was read is good.
static at_status finish(at_hosts_channel *c, const uint32_t *hosts, uint32_t n,
                        bool waits) {
  AT_TRY(check_presence(c, hosts, n));
  tell(c, AT_HOSTS_DONE, hosts, n);
  if (waits) AT_TRY(hear_ends(c, c->slot, hosts, n));
  c->ended = true;
  return AT_OK;
}

// Who has failed leaves the line before its memory is used again, also where it
// was DONE and waited for one that it has given up: that one may go on, and
// must find that what it has read was no longer there (check_presence).
static void end(at_hosts_channel *c) {
  line *l = &c->lines[c->slot];
  if (!c->ended) {
    atomic_store(&l->state, 0);
    for (uint32_t i = 0; i < c->num_told[c->slot]; i++)
      ring(c->all, c->told[c->slot][i], AT_HOSTS_DONE);
  }
  atomic_store(&c->busy, false);
}

// ---- Memory
// Address space, not memory: no block ever finds it full.
static uint64_t arena_bytes(uint32_t count) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  uint64_t n =
      pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 4ull << 30;
  n = AT_MIN(at_align_up(16 * n, 1u << 30), kMostBytes);
  return AT_MIN(n, (1ull << 46) / at_align_up(AT_MAX(count, 4u), 4));
}

// With errno.
static at_status refused(const char *what) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "%s: %s", what, strerror(errno));
}

// A file that shrinks under a reader would end that process: it is sealed.
static at_status make_file(const char *name, uint64_t bytes, int *out) {
  struct rlimit most;
  if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur < bytes)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory to share: files have at most %llu bytes "
                   "(RLIMIT_FSIZE)",
                   (unsigned long long)most.rlim_cur);
  *out = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*out < 0 || ftruncate(*out, (off_t)bytes) ||
      fcntl(*out, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
    return refused("no memory to share");
  return AT_OK;
}

// *bytes: at least so many; set to what there are. Of another process's file
// everything is checked.
static at_status map_file(int fd, int access, uint64_t *bytes, void **out) {
  struct stat st;
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) ||
      st.st_size < (off_t)*bytes)
    return AT_FAIL(AT_FAILED_PRECONDITION, "not memory that can be shared");
  *bytes = (uint64_t)st.st_size;
  void *p = mmap(NULL, *bytes, access, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) return refused("no address space to share memory");
  *out = p;
  return AT_OK;
}

// The arena, a descriptor of it that can only be read, and the bell.
static at_status make_memory(at_pod_share *s) {
  char path[64];
  uint64_t bytes = arena_bytes(s->hosts->count), page = kPageBytes;
  void *p;
  AT_TRY(make_file("atoll-shared", bytes, &s->arena_fd));
  AT_TRY(make_file("atoll-bell", kPageBytes, &s->page_fd));
  snprintf(path, sizeof path, "/proc/self/fd/%d", s->arena_fd);
  s->readable_fd = open(path, O_RDONLY | O_CLOEXEC);
  if (s->readable_fd < 0) return refused("no read-only face of shared memory");
  AT_TRY(map_file(s->page_fd, PROT_READ | PROT_WRITE, &page, &p));
  s->bell = p;
  AT_TRY(map_file(s->arena_fd, PROT_READ | PROT_WRITE, &bytes, &p));
  (void)madvise(p, bytes, MADV_HUGEPAGE);
  s->head = p;
  s->face.own = p;
  s->face.bytes = bytes;
  s->face.first = at_align_up(sizeof(head), 4096);
  return AT_OK;
}

// at_share_taker.take: what another process has handed over.
static at_status take_memory(void *arg, uint32_t host, at_share_gift g) {
  at_pod_share *s = arg;
  uint64_t bytes = at_align_up(sizeof(head), 4096), page = kPageBytes;
  void *p;
  AT_TRY(map_file(g.page, PROT_READ | PROT_WRITE, &page, &p));
  s->peers[host].bell = p;
  AT_TRY(map_file(g.arena, PROT_READ, &bytes, &p));
  (void)madvise(p, bytes, MADV_DONTDUMP);
  s->maps[host] = (at_bytes){p, bytes};
  return AT_OK;
}

// ---- Opening
// One block for all lists. On failure nothing is left.
static at_status make(const at_hosts *hosts, at_pod_share **out) {
  uint32_t n = hosts->count;
  at_pod_share *s =
      calloc(1, sizeof *s + n * sizeof *s->peers + n * sizeof *s->maps +
                    (size_t)n * n * sizeof *s->with);
  at_event *news = s ? at_event_create() : NULL;
  if (!news) {
    free(s);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u processes", n);
  }
  s->maps = (at_bytes *)(s->peers + n);
  s->with = (uint8_t *)(s->maps + n);
  s->hosts = hosts;
  s->news = news;
  s->arena_fd = s->readable_fd = s->page_fd = -1;
  pthread_mutex_init(&s->lock, NULL);
  s->face = (at_hosts_share){.arg = s,
                             .maps = s->maps,
                             .among = among,
                             .open = open_channel,
                             .begin = begin,
                             .say = say,
                             .hear = hear,
                             .finish = finish,
                             .end = end};
  *out = s;
  return AT_OK;
}

static void shut(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

// Unmaps what that process has given.
static void leave(at_pod_share *s, uint32_t host) {
  if (s->peers[host].bell) munmap(s->peers[host].bell, kPageBytes);
  if (s->maps[host].ptr) munmap((void *)s->maps[host].ptr, s->maps[host].len);
  s->peers[host].bell = NULL;
  s->maps[host] = (at_bytes){0};
}

// This one included.
static uint32_t count_here(const at_pod_share *s) {
  uint32_t n = 0, me = s->hosts->me, count = s->hosts->count;
  for (uint32_t h = 0; h < count; h++) n += s->with[me * count + h];
  return n;
}

static at_status join(at_pod_share *s, const at_pod_job *job) {
  at_status st = make_memory(s), why = st;
  at_share_gift mine = {st.err ? -1 : s->readable_fd, s->page_fd};
  at_share_taker taker = {s, take_memory};
  st = at_share_meet(job, s->hosts, mine, taker, s->with, &why);
  const uint32_t n = st.err ? 1 : count_here(s), me = s->hosts->me;
  for (uint32_t h = 0; h < s->hosts->count; h++)
    if (!s->with[me * s->hosts->count + h]) leave(s, h);
  // Only one of the two threads of a process may keep a core without need.
  s->face.crowded = 2 * n > at_cpu_count();
  if (n > 1 && s->face.crowded) at_spin_allow(false);
  if (why.err)
    at_log(AT_LOG_INFO,
           "process %u shares memory with %u of %u others; the rest goes by "
           "messages\nreason: %s",
           me, n - 1, s->hosts->count - 1, at_status_message(why));
  at_status_free(why);
  shut(&s->arena_fd);
  shut(&s->readable_fd);
  shut(&s->page_fd);
  return st;
}

// *out is left as it is where nobody can share with this process.
at_status at_pod_share_open(const at_pod_job *job, const at_hosts *hosts,
                            at_pod_share **out) {
  at_pod_share *s;
  AT_TRY(make(hosts, &s));
  at_status st = join(s, job);
  if (st.err || count_here(s) < 2)
    at_pod_share_close(s);
  else
    *out = s;
  return st;
}

const at_hosts_share *at_pod_share_of(const at_pod_share *s) {
  return s ? &s->face : NULL;
}

// Mappings go; nobody waits in a channel.
void at_pod_share_close(at_pod_share *s) {
  if (!s) return;
  for (uint32_t h = 0; h < s->hosts->count; h++) leave(s, h);
  if (s->bell) munmap(s->bell, kPageBytes);
  if (s->head) munmap(s->head, s->face.bytes);
  for (at_hosts_channel *c = s->channels, *next; c; c = next) {
    next = c->next;
    free(c);
  }
  at_event_release(s->news);
  pthread_mutex_destroy(&s->lock);
  free(s);
}
