// Shared memory as a medium: for each lane and direction between two members a
// ring of bytes with one producer and one consumer, for each member a board
// with the word that its poller sleeps on. Only sleepers are woken by a call of
// the kernel. What another process writes here is checked wherever it is read.
//
// Who has died is told by the kernel: a poller holds a robust futex on its
// board, which the kernel marks before it takes the memory of a killed process
// apart.
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/linger.h"
#include "pod/wire_meet.h"
#include "pod/wire_stream.h"

enum {
  kControlRing = 64 << 10,  // bytes, powers of two
  kBulkRing = 512 << 10,
  kFrame = 64 << 10,
  kTickNs = 20000000,
  kStarved = 10,  // `stuck_ms` of silence of one that others keep from running
};
static const size_t kRingBytes[AT_WIRE_LANES] = {kControlRing, kBulkRing};

// ---- What processes share
typedef struct board {
  alignas(64) _Atomic uint32_t bell;  // 1: the poller sleeps on it
  _Atomic uint32_t owner;             // robust: the poller's thread
  _Atomic uint64_t beats;
} board;

typedef struct ring_head {
  alignas(64) _Atomic uint64_t tail;  // bytes written so far
  alignas(64) _Atomic uint64_t head;  // bytes read so far
  at_stream_credit credit;            // released by the consumer
  alignas(64) _Atomic uint32_t room;  // the producer's senders sleep on it
  _Atomic uint32_t want;  // free bytes that they wait for; 0: none do
  _Atomic uint32_t tell;  // the producer's poller waits for room
} ring_head;

typedef struct pair_head {
  alignas(64) _Atomic uint32_t dropped[2];  // by that side
  ring_head rings[2][AT_WIRE_LANES];        // written by that side
} pair_head;

enum {
  kBoardBytes = 4096,
  kPairHead = 4096,
  kPairBytes = kPairHead + 2 * (kControlRing + kBulkRing),
};
static_assert(sizeof(board) <= kBoardBytes && sizeof(pair_head) <= kPairHead,
              "heads fit");

// ---- What a process has of its own
typedef struct ring {
  ring_head *head;
  uint8_t *bytes;
  size_t size;
  uint64_t at;    // written, or read, so far
  uint64_t seen;  // of the other side's position
  uint64_t told;  // consumer: head as published
} ring;

typedef struct peer {
  pair_head *pair;
  board *board;
  uint32_t side;
  ring out[AT_WIRE_LANES], in[AT_WIRE_LANES];
  uint64_t beats, beat_ns;  // the last sign of life, and when it was seen
  pid_t pid;                // 0: the system does not say
  _Atomic bool bad;         // positions that cannot be
} peer;

typedef struct shm {
  const at_wire_options *options;  // while it opens
  at_stream *stream;
  board *board;
  int board_fd;
  int pair_fd;  // offered to the member that is called
  at_linger sleeps;
  struct robust_list held;
  struct robust_list_head robust;
  peer peers[];
} shm;

static shm *shm_of(const at_stream *s) { return s->own; }

// ---- Rings
// What the producer may write, or the consumer read: between 0 and size, else
// the other side has written nonsense.
static size_t distance(peer *k, uint64_t ahead, uint64_t behind, size_t size) {
  if (ahead - behind <= size) return (size_t)(ahead - behind);
  atomic_store(&k->bad, true);
  return 0;
}

// Looks at the consumer's position. 0 for a ring that has gone bad.
static size_t free_bytes(peer *k, ring *r) {
  r->seen = atomic_load_explicit(&r->head->head, memory_order_acquire);
  size_t used = distance(k, r->at, r->seen, r->size);
  if (atomic_load(&k->bad)) r->seen = r->at - r->size;  // full for ever
  size_t left = atomic_load(&k->bad) ? 0 : r->size - used;
  return left > AT_STREAM_RESERVE ? left - AT_STREAM_RESERVE : 0;
}

// at_stream_medium.room; looks at the other side only when the ring is more
// than a quarter full as last seen.
static size_t shm_room(at_stream *s, uint32_t to, at_wire_lane lane,
                       bool waits) {
  (void)waits;
  peer *k = &shm_of(s)->peers[to];
  ring *r = &k->out[lane];
  size_t left = r->size - (size_t)(r->at - r->seen);  // as last seen
  return left >= r->size / 4 * 3 ? left - AT_STREAM_RESERVE : free_bytes(k, r);
}

// Wraps around. The caller has checked the room.
static void copy_in(ring *r, const void *p, size_t n) {
  size_t at = r->at & (r->size - 1), first = AT_MIN(n, r->size - at);
  memcpy(r->bytes + at, p, first);
  if (n > first) memcpy(r->bytes, (const uint8_t *)p + first, n - first);
  r->at += n;
}

// The bytes are there before the position that says so.
static void shm_write(at_stream *s, uint32_t to, at_wire_lane lane,
                      const struct iovec *v, int n) {
  ring *r = &shm_of(s)->peers[to].out[lane];
  for (int i = 0; i < n; i++) copy_in(r, v[i].iov_base, v[i].iov_len);
  atomic_store_explicit(&r->head->tail, r->at, memory_order_release);
}

// Wakes the receiver, if it has said that it sleeps. The fence orders what was
// written before with the look at the bell, so a receiver that is about to
// sleep sees one of the two.
static void ring_bell(at_stream *s, board *b) {
  atomic_thread_fence(memory_order_seq_cst);
  if (!atomic_load_explicit(&b->bell, memory_order_relaxed)) return;
  if (!atomic_exchange(&b->bell, 0)) return;
  at_futex_wake_shared(&b->bell);
  at_tally(&s->tally.bells, 1);
  at_tally(&s->tally.syscalls, 1);
}

// at_stream_medium.push.
static void shm_push(at_stream *s, uint32_t to, at_wire_lane lane) {
  (void)lane;
  ring_bell(s, shm_of(s)->peers[to].board);
}

// at_stream_medium.want.
static void shm_want(at_stream *s, uint32_t to, at_wire_lane lane, size_t bytes,
                     bool poller) {
  ring_head *h = shm_of(s)->peers[to].out[lane].head;
  if (poller)
    atomic_store(&h->tell, 1);
  else
    atomic_store(&h->want, (uint32_t)AT_MAX(bytes, (size_t)1));
  atomic_thread_fence(memory_order_seq_cst);  // the caller looks again for room
}

// Room or credits have come for the other side's senders.
static void tell_producer(at_stream *s, peer *k, ring_head *h, size_t left,
                          bool credit) {
  atomic_thread_fence(memory_order_seq_cst);
  uint32_t want = atomic_load_explicit(&h->want, memory_order_relaxed);
  if (want && (credit || left >= want) && atomic_exchange(&h->want, 0)) {
    atomic_fetch_add(&h->room, 1);
    at_futex_wake_shared(&h->room);
    at_tally(&s->tally.bells, 1);
    at_tally(&s->tally.syscalls, 1);
  }
  if (atomic_load_explicit(&h->tell, memory_order_relaxed) &&
      atomic_exchange(&h->tell, 0))
    ring_bell(s, k->board);
}

static void shm_released(at_stream *s, uint32_t from, at_wire_lane lane) {
  peer *k = &shm_of(s)->peers[from];
  tell_producer(s, k, k->in[lane].head, 0, true);
}

// Bytes that have come.
static size_t readable(peer *k, ring *r) {
  if (r->seen == r->at)
    r->seen = atomic_load_explicit(&r->head->tail, memory_order_acquire);
  return distance(k, r->seen, r->at, r->size);
}

// at_stream_medium.read.
static size_t shm_read(at_stream *s, uint32_t from, at_wire_lane lane, void *to,
                       size_t n) {
  peer *k = &shm_of(s)->peers[from];
  ring *r = &k->in[lane];
  size_t have = readable(k, r);
  if (atomic_load(&k->bad)) return atomic_store(&s->urgent, true), (size_t)0;
  n = AT_MIN(n, have);
  size_t at = r->at & (r->size - 1), first = AT_MIN(n, r->size - at);
  memcpy(to, r->bytes + at, first);
  if (n > first) memcpy((uint8_t *)to + first, r->bytes, n - first);
  r->at += n;
  // Now and then, not for every piece: the producer reads this line.
  if (r->at != r->told && (n == have || r->at - r->told >= r->size / 8)) {
    r->told = r->at;
    atomic_store_explicit(&r->head->head, r->at, memory_order_release);
    tell_producer(s, k, r->head,
                  r->size - (size_t)(r->seen - r->at) - AT_STREAM_RESERVE,
                  false);
  }
  return n;
}

// ---- Sleep
// Of all members and lanes.
static bool any_readable(at_stream *s) {
  shm *m = shm_of(s);
  for (uint32_t i = 0; i < s->face.count; i++) {
    peer *k = &m->peers[i];
    if (!k->pair || atomic_load(&s->members[i].lost)) continue;
    for (int lane = 0; lane < AT_WIRE_LANES; lane++)
      if (readable(k, &k->in[lane])) return true;
  }
  return false;
}

static bool must_wake(void *stream) {
  return any_readable(stream) || at_stream_has_work(stream);
}

// at_stream_medium.sleep: the bell is armed before the last look, so no write
// is missed.
static void shm_sleep(at_stream *s, uint64_t until_ns) {
  board *b = shm_of(s)->board;
  if (!until_ns) return;  // reads find out by themselves
  if (must_wake(s) ||
      at_linger_for(&shm_of(s)->sleeps, s->options.spin_ns, must_wake, s))
    return;
  atomic_store(&b->bell, 1);
  atomic_thread_fence(memory_order_seq_cst);
  if (!any_readable(s) && !at_stream_has_work(s)) {
    at_futex_wait_shared(&b->bell, 1, until_ns);
    at_tally(&s->tally.syscalls, 1);
    at_tally(&s->tally.wakeups, 1);
  }
  atomic_store(&b->bell, 0);
}

static void shm_wake(at_stream *s) { ring_bell(s, shm_of(s)->board); }

// ---- Life
// The kernel walks this thread's list of robust futexes when it ends. The list
// itself is private memory; only the word is shared.
static void shm_start(at_stream *s) {
  shm *m = shm_of(s);
  m->robust = (struct robust_list_head){
      .list = {&m->held},
      .futex_offset = (char *)&m->board->owner - (char *)&m->held};
  m->held.next = &m->robust.list;
  atomic_store(&m->board->owner, (uint32_t)syscall(SYS_gettid));
  syscall(SYS_set_robust_list, &m->robust, sizeof m->robust);
}

// Is it there, and not stopped? Then it may be silent because others have the
// cores.
static bool may_run(pid_t pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return false;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = 0;
  const char *name_end = strrchr(text, ')');
  return name_end && name_end[1] == ' ' && !strchr("TtZXx", name_end[2]);
}

// A member that is silent but could run is given more time: others may have its
// cores.
static void hear_beats(at_stream *s, uint32_t member, uint64_t now_ns) {
  peer *k = &shm_of(s)->peers[member];
  const uint64_t stuck_ns = s->options.stuck_ms * 1000000ull;
  uint64_t beats = atomic_load(&k->board->beats);
  const uint64_t heard = s->members[member].heard_ns;
  if (!k->beat_ns) k->beat_ns = now_ns;
  if (beats != k->beats) {
    k->beats = beats;
    s->members[member].heard_ns = k->beat_ns = now_ns;
  } else if (now_ns > heard && now_ns - heard >= stuck_ns &&
             now_ns - k->beat_ns < kStarved * stuck_ns && may_run(k->pid)) {
    s->members[member].heard_ns = now_ns - stuck_ns / 2;  // asked again soon
  }
}

// at_stream_medium.check.
static at_status shm_check(at_stream *s, uint32_t member, uint64_t now_ns) {
  peer *k = &shm_of(s)->peers[member];
  if (atomic_load(&k->board->owner) & FUTEX_OWNER_DIED)
    return AT_FAIL(AT_UNAVAILABLE, "it was killed or has crashed");
  if (atomic_load(&k->pair->dropped[!k->side]))
    return AT_FAIL(AT_UNAVAILABLE, "it has given this process up");
  if (atomic_load(&k->bad))
    return AT_FAIL(AT_DATA_LOSS, "malformed positions in a ring");
  hear_beats(s, member, now_ns);
  return AT_OK;
}

static void shm_beat(at_stream *s) {
  atomic_fetch_add(&shm_of(s)->board->beats, 1);
}

// The other side finds out that it was given up.
static void shm_drop(at_stream *s, uint32_t member) {
  peer *k = &shm_of(s)->peers[member];
  atomic_store(&k->pair->dropped[k->side], 1);
  ring_bell(s, k->board);
}

// Everything that is mapped or open, at any stage of opening.
static void free_shm(shm *m, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (m->peers[i].pair) munmap(m->peers[i].pair, kPairBytes);
    if (m->peers[i].board) munmap(m->peers[i].board, kBoardBytes);
  }
  if (m->board) munmap(m->board, kBoardBytes);
  if (m->board_fd >= 0) close(m->board_fd);
  if (m->pair_fd >= 0) close(m->pair_fd);
  free(m);
}

static void shm_close(at_stream *s) { free_shm(shm_of(s), s->face.count); }

static const at_stream_medium kShm = {
    .name = "shm",
    .max_frame = kFrame,
    .tick_ns = kTickNs,
    .room = shm_room,
    .write = shm_write,
    .push = shm_push,
    .want = shm_want,
    .released = shm_released,
    .wake = shm_wake,
    .start = shm_start,
    .read = shm_read,
    .sleep = shm_sleep,
    .check = shm_check,
    .beat = shm_beat,
    .drop = shm_drop,
    .close = shm_close,
};

// ---- Memory
enum { kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

// Sealed against shrinking and growing.
static at_status make_memory(const char *name, size_t bytes, int *out) {
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0 && !ftruncate(fd, (off_t)bytes) &&
      !fcntl(fd, F_ADD_SEALS, kSeals))
    return *out = fd, AT_OK;
  at_status st =
      AT_FAIL(AT_RESOURCE_EXHAUSTED, "no shared memory: %s", strerror(errno));
  if (fd >= 0) close(fd);
  return st;
}

// Memory that shrinks under a reader would end this process: it must be sealed.
static at_status map_memory(int fd, size_t bytes, void **out) {
  struct stat st;
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || fstat(fd, &st) ||
      st.st_size != (off_t)bytes)
    return AT_FAIL(AT_FAILED_PRECONDITION, "not the memory that was agreed on");
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p == MAP_FAILED)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no shared memory: %s",
                   strerror(errno));
  *out = p;
  return AT_OK;
}

// ---- Meeting
// A name that goes with its socket; anybody may take it, hence `trust`.
static socklen_t socket_name(const shm *m, uint32_t member,
                             struct sockaddr_un *out) {
  at_digest g = at_meet_group(m->options);
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  int n =
      snprintf(out->sun_path + 1, sizeof out->sun_path - 1,
               "atoll-wire-%u-%016llx%016llx-%u", (unsigned)geteuid(),
               (unsigned long long)g.h[0], (unsigned long long)g.h[1], member);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

// at_meeting.listen.
static at_status shm_listen(void *arg, int *out) {
  shm *m = arg;
  struct sockaddr_un at;
  socklen_t n = socket_name(m, m->options->me, &at);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && !bind(fd, (void *)&at, n) && !listen(fd, AT_WIRE_MEMBERS))
    return *out = fd, AT_OK;
  at_status st = AT_FAIL(
      AT_UNAVAILABLE, "process %u cannot listen for its group: %s%s",
      m->options->me, strerror(errno),
      errno == EADDRINUSE ? "\nhint: another process has its number" : "");
  if (fd >= 0) close(fd);
  return st;
}

// *out stays -1 where nobody listens yet.
static at_status shm_call(void *arg, uint32_t member, uint64_t until_ns,
                          int *out) {
  struct sockaddr_un at;
  socklen_t n = socket_name(arg, member, &at);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return AT_FAIL(AT_UNAVAILABLE, "no socket: %s", strerror(errno));
  if (connect(fd, (void *)&at, n))
    close(fd);
  else
    *out = fd;
  return AT_OK;
}

// at_meeting.trust.
static at_status shm_trust(void *arg, int fd) {
  struct ucred who;
  socklen_t n = sizeof who;
  if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) &&
      who.uid == geteuid())
    return AT_OK;
  return AT_FAIL(AT_PERMISSION_DENIED,
                 "a process of another user is in a member's place");
}

// The caller makes the memory of the two; both give their boards.
static at_status shm_offer(void *arg, uint32_t member, bool answer,
                           int fds[AT_MEET_FDS], int *out_count) {
  shm *m = arg;
  *out_count = answer ? 1 : 2;
  fds[0] = m->board_fd;
  if (answer) return AT_OK;
  if (m->pair_fd >= 0) close(m->pair_fd);
  m->pair_fd = -1;
  AT_TRY(make_memory("atoll-wire-pair", kPairBytes, &m->pair_fd));
  fds[1] = m->pair_fd;
  return AT_OK;
}

// Each side writes two of the four rings.
static void make_rings(peer *k) {
  uint8_t *at = (uint8_t *)k->pair + kPairHead;
  for (uint32_t side = 0; side < 2; side++) {
    for (int lane = 0; lane < AT_WIRE_LANES; lane++) {
      ring *r = side == k->side ? &k->out[lane] : &k->in[lane];
      *r = (ring){.head = &k->pair->rings[side][lane],
                  .bytes = at,
                  .size = kRingBytes[lane]};
      at += r->size;
    }
  }
}

// at_meeting.met: maps what was handed over; descriptors are closed in any
// case.
static at_status shm_met(void *arg, uint32_t member, uint32_t call, int fd,
                         const int *fds, int count) {
  shm *m = arg;
  peer *k = &m->peers[member];
  const bool called = member > m->options->me;
  at_status st = AT_OK;
  void *b = NULL, *p = NULL;
  struct ucred who;
  socklen_t bytes = sizeof who;
  if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes)) k->pid = who.pid;
  close(fd);
  if (count != (called ? 2 : 1))
    st = AT_FAIL(AT_FAILED_PRECONDITION, "not the memory that was agreed on");
  if (!st.err) st = map_memory(fds[0], kBoardBytes, &b);
  if (!st.err) st = map_memory(called ? fds[1] : m->pair_fd, kPairBytes, &p);
  for (int i = 0; i < count; i++) close(fds[i]);
  k->board = b;
  k->pair = p;
  k->side = !called;
  if (st.err) return at_status_prefix(st, "process %u", member);
  make_rings(k);
  return AT_OK;
}

// Rings of one that takes no part, so that its lanes have words; nobody writes
// to them.
static at_status make_absent(peer *k) {
  void *p = mmap(NULL, kPairBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a wire: %s",
                   strerror(errno));
  k->pair = p;
  make_rings(k);
  return AT_OK;
}

// ---- Opening
static at_status can_notice_deaths(void) {
  struct robust_list_head *list;
  size_t n;
  if (!syscall(SYS_get_robust_list, 0, &list, &n)) return AT_OK;
  return AT_FAIL(AT_UNAVAILABLE,
                 "this system has no robust futexes, which tell who has died: "
                 "%s",
                 strerror(errno));
}

// This process's board.
static at_status make_shm(const at_wire_options *o, shm **out) {
  AT_TRY(can_notice_deaths());
  shm *m = calloc(1, sizeof *m + o->count * sizeof *m->peers);
  if (!m)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory for a wire of %u processes", o->count);
  m->options = o;
  m->board_fd = m->pair_fd = -1;
  m->sleeps.polite = true;
  at_status st = make_memory("atoll-wire-board", kBoardBytes, &m->board_fd);
  void *b = NULL;
  if (!st.err) st = map_memory(m->board_fd, kBoardBytes, &b);
  m->board = b;
  if (st.err)
    free_shm(m, o->count);
  else
    *out = m;
  return st;
}

// Words and credits of the lanes lie in the shared memory itself.
static void connect_lanes(shm *m, at_stream *s) {
  for (uint32_t i = 0; i < s->face.count; i++) {
    for (int lane = 0; lane < AT_WIRE_LANES && i != s->face.me; lane++) {
      at_stream_lane *l = &s->members[i].lanes[lane];
      l->room = &m->peers[i].out[lane].head->room;
      l->credit = &m->peers[i].out[lane].head->credit;
      l->released = &m->peers[i].in[lane].head->credit;
    }
  }
}

at_status at_wire_shm_open(const at_wire_options *o, at_wire **out) {
  shm *m;
  at_stream *s = NULL;
  AT_TRY(make_shm(o, &m));
  const at_meeting meeting = {o,        m,         1,         shm_listen,
                              shm_call, shm_trust, shm_offer, shm_met};
  at_status st = at_wire_meet(&meeting);
  for (uint32_t i = 0; i < o->count && !st.err; i++)
    if (i != o->me && !at_wire_meets(o, i)) st = make_absent(&m->peers[i]);
  if (!st.err) st = at_stream_create(&kShm, o, m, &s);
  if (!st.err) {
    m->options = NULL;
    connect_lanes(m, s);
    st = at_stream_start(s, out);
  }
  if (st.err) {
    if (s) at_stream_free(s);
    free_shm(m, o->count);
  }
  return st;
}
