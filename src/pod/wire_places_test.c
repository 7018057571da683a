// The wire across machines, which two network namespaces stand for, and among
// strangers: other programs and other users at a member's door.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "pod/meet.h"
#include "pod/wire_carrier.h"
#include "pod/wire_meet.h"

enum { kBig = 5 << 20, kWaitMs = 20000, kMs = 1000000, kNobody = 65534 };

// ---- A member that counts
typedef struct count {
  _Atomic uint64_t bytes, wrong;
  _Atomic bool lost;
  char why[256];
} count;

static void *place(void *arg, uint32_t from, const at_wire_head *head) {
  (void)arg, (void)from;
  return malloc(head->bytes);
}
// Counts bytes, and those that are wrong.
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  count *c = arg;
  uint64_t wrong = 0;
  (void)from;
  for (uint64_t i = 0; i < head->bytes; i++)
    wrong += ((uint8_t *)body)[i] != (uint8_t)(i * 7 + (i >> 13));
  atomic_fetch_add(&c->wrong, wrong);
  atomic_fetch_add(&c->bytes, head->bytes);
  free(body);
  return true;
}
static void abandon(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  (void)arg, (void)from, (void)head;
  free(body);
}
// Keeps the reason. Consumes why.
static void lost(void *arg, uint32_t member, at_status why) {
  count *c = arg;
  (void)member;
  snprintf(c->why, sizeof c->why, "%s", at_status_message(why));
  at_status_free(why);
  atomic_store(&c->lost, true);
}

// One of two; says on stderr why it could not.
static at_code open_wire(const char *medium, const char *group,
                         const char *addresses, uint32_t me, uint32_t meet_ms,
                         count *c, at_wire **out) {
  const at_wire_options o = {.count = 2,
                             .me = me,
                             .group = group,
                             .addresses = addresses,
                             .meet_ms = meet_ms,
                             .sink = {c, place, message, abandon, NULL, lost}};
  at_status st = at_wire_open(medium, &o, out);
  if (st.err) fprintf(stderr, "process %u: %s\n", me, at_status_message(st));
  return at_code_take(st);
}

// Until exactly so many bytes have come, all of them right.
static bool wait_bytes(const count *c, uint64_t bytes) {
  uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (atomic_load(&c->bytes) < bytes && at_clock_ns() < until) usleep(1000);
  return atomic_load(&c->bytes) == bytes && !c->wrong;
}

// Both send data and something small; 0: all came.
static int talk(at_wire *w, const count *c) {
  uint8_t *p = malloc(kBig);
  for (size_t i = 0; i < kBig; i++) p[i] = (uint8_t)(i * 7 + (i >> 13));
  const at_bytes big = {p, kBig}, small = {p, 1000};
  const at_wire_out out[2] = {{.num_parts = 1, .parts = &big},
                              {.num_parts = 1, .parts = &small}};
  const at_wire_wait wait = {.until_ns = UINT64_MAX};
  at_code bad =
      at_code_take(at_wire_send(w, !w->me, AT_WIRE_BULK, out, 1, &wait, NULL));
  if (!bad)
    bad = at_code_take(
        at_wire_send(w, !w->me, AT_WIRE_CONTROL, out + 1, 1, &wait, NULL));
  free(p);
  return bad || !wait_bytes(c, kBig + 1000);
}

// A name that no other group of this machine has.
static char *make_group(void) {
  static char name[64];
  static int number;
  snprintf(name, sizeof name, "places %d %d", getpid(), number++);
  return name;
}

// The process ends with 0.
static void expect_end(pid_t pid) {
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0);
}

// ---- Two network namespaces
// A command of `ip`; 0: good. A, B: the namespaces, a, b: the ends of their
// cable.
static int ip(const char *what) {
  char text[512];
  char *at = text + snprintf(text, sizeof text, "ip ");
  for (; *what && at < text + sizeof text - 64; what++) {
    if (*what == '@')
      at += snprintf(at, 32, "atw%d", getpid() % 1000000);
    else
      *at++ = *what;
  }
  snprintf(at, 32, " 2>/dev/null");
  return system(text);
}

// Two namespaces with a cable between them; false: not allowed here, or no
// `ip`.
static bool make_places(void) {
  static const char *const kSteps[] = {
      "netns add @A",
      "netns add @B",
      "link add @a netns @A type veth peer name @b netns @B",
      "-n @A addr add 10.213.77.1/24 dev @a",
      "-n @B addr add 10.213.77.2/24 dev @b",
      "-n @A link set @a up",
      "-n @B link set @b up"};
  for (size_t i = 0; i < AT_LEN(kSteps); i++)
    if (ip(kSteps[i])) return false;
  return true;
}

static void remove_places(void) {
  (void)ip("netns del @A");
  (void)ip("netns del @B");
}

// This process is in that namespace from here on.
static bool enter(pid_t parent, uint32_t place) {
  char name[64];
  snprintf(name, sizeof name, "/var/run/netns/atw%d%c", parent % 1000000,
           "AB"[place]);
  int fd = open(name, O_RDONLY | O_CLOEXEC);
  bool good = fd >= 0 && !setns(fd, CLONE_NEWNET);
  if (fd >= 0) close(fd);
  return good;
}

// UCX finds devices in /sys, and takes those that the kernel calls up, which is
// a while after their cable is there.
static bool see_devices(pid_t parent, uint32_t me) {
  char name[64], state[16] = {0};
  if (unshare(CLONE_NEWNS) || mount("", "/", "none", MS_SLAVE | MS_REC, NULL) ||
      mount("place", "/sys", "sysfs", 0, NULL))
    return false;
  snprintf(name, sizeof name, "/sys/class/net/atw%d%c/operstate",
           parent % 1000000, "ab"[me]);
  uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (strncmp(state, "up", 2) && at_clock_ns() < until) {
    FILE *f = fopen(name, "re");
    if (!f || !fgets(state, sizeof state, f)) *state = 0;
    if (f) fclose(f);
    usleep(1000);
  }
  return !strncmp(state, "up", 2);
}

// Talks, then waits for the cable to be cut.
static int be_in_place(const char *medium, const char *group, pid_t parent,
                       uint32_t me, _Atomic uint32_t *ready) {
  if (!enter(parent, me)) return 10;
  if (!see_devices(parent, me)) return 14;
  static count c;
  at_wire *w;
  if (open_wire(medium, group, "10.213.77.1:7101,10.213.77.2:7102", me, kWaitMs,
                &c, &w))
    return 11;
  if (talk(w, &c)) return 12;
  atomic_fetch_add(ready, 1);
  while (atomic_load(ready) < 3) usleep(1000);
  uint64_t cut_ns = at_clock_ns();
  while (!atomic_load(&c.lost) && at_clock_ns() - cut_ns < 5000 * (uint64_t)kMs)
    usleep(1000);
  uint64_t took = (at_clock_ns() - cut_ns) / kMs;
  fprintf(stderr, "process %u: %llu ms after the cut: %s\n", me,
          (unsigned long long)took, c.why);
  at_wire_close(w);
  return took > 2000 || !strstr(c.why, "no sign of life") ? 13 : 0;
}

// In a process of its own: members are forked of one without UCX.
static bool has_ucx(void) {
  int status;
  pid_t pid = fork();
  if (!pid) {
    at_carrier *c;
    if (at_code_take(at_ucx_open(2, 0, true, true, &c))) exit(1);
    c->vtable->close(c);
    exit(0);
  }
  return waitpid(pid, &status, 0) == pid && !status;
}

// They talk; then one end of the cable is taken down, and both must notice
// within two seconds.
static void machines_talk_and_notice_a_cut_cable(void **state) {
  const char *medium = *state;
  if (!strcmp(medium, "ucx") && !has_ucx()) {
    print_message("skipped: no UCX\n");
    skip();
  }
  if (geteuid() || !make_places()) {
    remove_places();
    print_message("skipped: no network namespaces (root and ip needed)\n");
    skip();
  }
  _Atomic uint32_t *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const char *group = make_group();
  pid_t parent = getpid(), pids[2];
  int status[2];
  for (uint32_t i = 0; i < 2; i++) {
    pids[i] = fork();
    if (!pids[i]) exit(be_in_place(medium, group, parent, i, ready));
  }
  uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (atomic_load(ready) < 2 && at_clock_ns() < until) usleep(1000);
  (void)ip("-n @A link set @a down");
  atomic_fetch_add(ready, 1);
  for (int i = 0; i < 2; i++) waitpid(pids[i], &status[i], 0);
  remove_places();
  munmap((void *)ready, 4096);
  assert_int_equal(status[0], 0);
  assert_int_equal(status[1], 0);
}

// ---- Who listens on the cable
// What everybody on the cable sees, in A's namespace: packets, and those with
// the beginning of what `talk` says.
typedef struct capture {
  _Atomic bool ready, stop;
  uint64_t bytes, drops, hits;
} capture;

// Reads all packets of the cable and looks for the word.
static void *listen_in(void *arg) {
  capture *c = arg;
  const int much = 256 << 20;
  const struct timeval tick = {.tv_usec = 20000};
  struct tpacket_stats drops = {0};
  socklen_t size = sizeof drops;
  uint8_t word[24], *packet = malloc(1 << 17);
  for (size_t i = 0; i < sizeof word; i++) word[i] = (uint8_t)(i * 7);
  int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &much, sizeof much);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tick, sizeof tick);
  atomic_store(&c->ready, true);
  for (;;) {
    ssize_t n = recv(fd, packet, 1 << 17, 0);
    if (n < 0 && atomic_load(&c->stop)) break;
    if (n < 0) continue;
    c->bytes += (uint64_t)n;
    c->hits += memmem(packet, (size_t)n, word, sizeof word) != NULL;
  }
  if (!getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &drops, &size))
    c->drops = drops.tp_drops;
  close(fd);
  free(packet);
  return NULL;
}

// Proves the token, and talks in clear or over TLS.
static int talk_proved(uint32_t me, bool tls) {
  static const at_token token = {{5}};
  static count c;
  const at_addresses list = {"10.213.77.1:7103,10.213.77.2:7104", "addresses"};
  at_pod_link links[2 * AT_WIRE_LANES];
  uint64_t strangers;
  int listener;
  at_wire *w;
  if (at_code_take(at_address_bind(&list, me, &listener))) return 41;
  const at_pod_meeting about = {
      .addresses = &list,
      .token = &token,
      .card = {.me = me, .count = 2, .tls = tls},
      .calls = AT_WIRE_LANES,
      .listener = listener,
      .until_ns = at_clock_ns() + (uint64_t)kWaitMs * kMs};
  if (at_code_take(at_pod_meet(&about, links, &strangers))) return 42;
  const at_wire_options o = {.count = 2,
                             .me = me,
                             .links = links,
                             .meet_ms = kWaitMs,
                             .sink = {&c, place, message, abandon, NULL, lost}};
  if (at_code_take(at_wire_open("tcp", &o, &w))) return 43;
  int bad = talk(w, &c);
  at_wire_close(w);
  close(listener);
  return bad;
}

// The first one also listens in. In clear the word must be found, or the test
// would prove nothing; over TLS it must not.
static int be_heard(pid_t parent, uint32_t me, bool tls) {
  capture c = {0};
  pthread_t thread;
  if (!enter(parent, me)) return 40;
  if (me) return talk_proved(me, tls);
  if (pthread_create(&thread, NULL, listen_in, &c)) return 44;
  while (!atomic_load(&c.ready)) usleep(1000);
  int bad = talk_proved(me, tls);
  atomic_store(&c.stop, true);
  pthread_join(thread, NULL);
  fprintf(stderr, "%s: %llu bytes on the cable, %llu packets with the word\n",
          tls ? "over TLS" : "in clear", (unsigned long long)c.bytes,
          (unsigned long long)c.hits);
  if (bad) return bad;
  if (c.drops || c.bytes < 2 * kBig) return 45;
  return tls == !c.hits ? 0 : 46;
}

// See be_heard.
static void who_listens_reads_nothing_over_tls(void **state) {
  (void)state;
  if (geteuid() || !make_places()) {
    remove_places();
    print_message("skipped: no network namespaces (root and ip needed)\n");
    skip();
  }
  int status[2][2];
  for (int tls = 0; tls < 2; tls++) {
    pid_t parent = getpid(), pids[2];
    for (uint32_t i = 0; i < 2; i++) {
      pids[i] = fork();
      if (!pids[i]) _exit(be_heard(parent, i, tls));
    }
    for (int i = 0; i < 2; i++) waitpid(pids[i], &status[tls][i], 0);
  }
  remove_places();
  for (int i = 0; i < 4; i++) assert_int_equal(status[i / 2][i % 2], 0);
}

// ---- Strangers over TCP
static int connect_raw(uint16_t port) {
  const struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons(port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (at_clock_ns() < until) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!connect(fd, (const void *)&at, sizeof at)) return fd;
    close(fd);
    usleep(1000);
  }
  return -1;
}

// Joins the group and talks; the exit status.
static int be_member(const char *medium, const char *group,
                     const char *addresses, uint32_t me) {
  static count c;
  at_wire *w;
  if (open_wire(medium, group, addresses, me, kWaitMs, &c, &w)) return 20;
  int bad = talk(w, &c);
  at_wire_close(w);
  return bad;
}

// One says nothing, one nonsense, one goes at once, one is of another group.
static void strangers_at_the_port_are_turned_away(void **state) {
  (void)state;
  uint16_t ports[2];
  char addresses[64], noise[1000];
  const char *group = make_group();
  assert_true(at_free_ports(2, ports));
  snprintf(addresses, sizeof addresses, "127.0.0.1:%u,127.0.0.1:%u", ports[0],
           ports[1]);
  pid_t first = fork();
  if (!first) exit(be_member("tcp", group, addresses, 0));
  int silent = connect_raw(ports[0]), loud = connect_raw(ports[0]);
  assert_true(silent >= 0 && loud >= 0);
  close(connect_raw(ports[0]));
  memset(noise, 'x', sizeof noise);
  assert_int_equal(send(loud, noise, sizeof noise, MSG_NOSIGNAL), sizeof noise);
  count c = {0};
  at_wire *w;
  assert_int_equal(open_wire("tcp", "another", addresses, 1, 3000, &c, &w),
                   AT_DEADLINE_EXCEEDED);
  pid_t second = fork();
  if (!second) exit(be_member("tcp", group, addresses, 1));
  expect_end(first);
  expect_end(second);
  close(silent);
  close(loud);
}

// Strangers at the door of member 1 keep member 2 waiting there for longer than
// `stuck_ms`, when member 0 has met both.
static int be_one_of_three(const char *group, const char *addresses,
                           uint32_t me, _Atomic uint32_t *ready) {
  static count c;
  at_wire *w;
  const at_wire_options o = {.count = 3,
                             .me = me,
                             .group = group,
                             .addresses = addresses,
                             .meet_ms = kWaitMs,
                             .beat_ms = 30,
                             .stuck_ms = 150,
                             .sink = {&c, place, message, abandon, NULL, lost}};
  if (at_code_take(at_wire_open("tcp", &o, &w))) return 30;
  atomic_fetch_add(ready, 1);
  while (atomic_load(ready) < 3) usleep(1000);
  usleep(100000);
  bool bad = atomic_load(&c.lost);
  atomic_fetch_add(ready, 1);
  while (atomic_load(ready) < 6) usleep(1000);
  at_wire_close(w);
  return bad;
}

// A member that is through with meeting is patient with those that are not,
// longer than it would be with one that is stuck.
static void who_has_met_all_waits_for_the_others(void **state) {
  (void)state;
  enum { kStrangers = 3 };
  uint16_t ports[3];
  char addresses[96];
  const char *group = make_group();
  _Atomic uint32_t *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(at_free_ports(3, ports));
  snprintf(addresses, sizeof addresses,
           "127.0.0.1:%u,127.0.0.1:%u,127.0.0.1:%u", ports[0], ports[1],
           ports[2]);
  pid_t pids[3];
  int fds[kStrangers];
  for (uint32_t i = 0; i < 3; i++) {
    pids[i] = fork();
    if (!pids[i]) exit(be_one_of_three(group, addresses, i, ready));
    if (i != 1) continue;
    for (int k = 0; k < kStrangers; k++) fds[k] = connect_raw(ports[1]);
  }
  for (int i = 0; i < 3; i++) expect_end(pids[i]);
  for (int k = 0; k < kStrangers; k++) close(fds[k]);
  munmap((void *)ready, 4096);
}

// ---- Data that is held back on its way
static void connect_pair(int fds[2]) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  fds[0] = socket(AF_INET, SOCK_STREAM, 0);
  assert_true(!bind(listener, (void *)&at, len) && !listen(listener, 1) &&
              !getsockname(listener, (void *)&at, &len) &&
              !connect(fds[0], (void *)&at, len));
  fds[1] = accept(listener, NULL, NULL);
  assert_true(fds[1] >= 0);
  close(listener);
}

// fds: of CONTROL and of BULK.
static void open_linked(uint32_t me, const int fds[2], count *c,
                        at_wire **out) {
  at_pod_link links[2 * AT_WIRE_LANES];
  for (uint32_t i = 0; i < AT_LEN(links); i++) {
    const uint8_t keys[2][AT_SEAL_KEY] = {{1, (uint8_t)(i % 2)},
                                          {2, (uint8_t)(i % 2)}};
    links[i] = (at_pod_link){
        .fd = -1, .send = at_seal_of(keys[me]), .recv = at_seal_of(keys[!me])};
  }
  for (int lane = 0; lane < AT_WIRE_LANES; lane++)
    links[!me * AT_WIRE_LANES + lane].fd = fds[lane];
  const at_wire_options o = {.count = 2,
                             .me = me,
                             .links = links,
                             .meet_ms = 1,
                             .beat_ms = 20,
                             .stuck_ms = 150,
                             .sink = {c, place, message, abandon, NULL, lost}};
  assert_int_equal(at_code_take(at_wire_open("tcp", &o, out)), AT_OK_CODE);
}

// Small messages pass, and so does data, slowly; then data does not any more.
static void data_that_is_held_back_is_noticed(void **state) {
  (void)state;
  enum { kBytes = 20000, kPiece = 4000 };
  count c[2] = {{0}};
  at_wire *w[2];
  int control[2], from[2], to[2];
  uint8_t data[kBytes], piece[kPiece];
  connect_pair(control), connect_pair(from), connect_pair(to);
  open_linked(0, (int[]){control[0], from[0]}, &c[0], &w[0]);
  open_linked(1, (int[]){control[1], to[0]}, &c[1], &w[1]);
  for (size_t i = 0; i < kBytes; i++) data[i] = (uint8_t)(i * 7 + (i >> 13));
  const at_bytes body = {data, kBytes};
  const at_wire_out out = {.num_parts = 1, .parts = &body};
  for (int turn = 0; turn < 2; turn++) {
    assert_int_equal(at_code_take(at_wire_send(w[0], 1, AT_WIRE_BULK, &out, 1,
                                               &(at_wire_wait){0}, NULL)),
                     AT_OK_CODE);
    for (ssize_t n; !turn && c[1].bytes < kBytes;) {
      n = recv(from[1], piece, kPiece, MSG_DONTWAIT);
      usleep(100000);
      if (n > 0) assert_int_equal(send(to[1], piece, (size_t)n, 0), n);
    }
    assert_false(atomic_load(&c[1].lost));
  }
  uint64_t until = at_clock_ns() + (uint64_t)kWaitMs * kMs;
  while (!atomic_load(&c[1].lost) && at_clock_ns() < until) usleep(1000);
  assert_non_null(strstr(c[1].why, "bytes of data, of which only"));
  assert_int_equal(c[1].wrong, 0);
  for (int i = 0; i < 2; i++) at_wire_close(w[i]);
  close(from[1]), close(to[1]);
}

// ---- Other users
static struct sockaddr_un door(const char *group, uint32_t member,
                               socklen_t *out_len) {
  const at_wire_options o = {.group = group};
  at_digest g = at_meet_group(&o);
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1,
                   "atoll-wire-0-%016llx%016llx-%u", (unsigned long long)g.h[0],
                   (unsigned long long)g.h[1], member);
  *out_len =
      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
  return at;
}

// As another user: calls member 0, or stands in its place.
static int be_stranger(const char *group, bool calls, _Atomic uint32_t *ready) {
  socklen_t n;
  const struct sockaddr_un at = door(group, 0, &n);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (setgid(kNobody) || setuid(kNobody)) return 1;
  if (calls) {
    while (connect(fd, (const void *)&at, n)) usleep(1000);
  } else if (bind(fd, (const void *)&at, n) || listen(fd, 5)) {
    return 2;
  }
  atomic_store(ready, 1);
  char byte;
  if (calls) return recv(fd, &byte, 1, 0) != 0;  // turned away
  for (;;) pause();
}

// Sockets and memory of a group are one user's: another user's process cannot
// join, and disturbs nobody.
static void other_users_are_turned_away(void **state) {
  (void)state;
  if (geteuid()) {
    print_message("skipped: only root can be another user\n");
    skip();
  }
  _Atomic uint32_t *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const char *group = make_group();
  pid_t first = fork();
  if (!first) exit(be_member("shm", group, NULL, 0));
  pid_t stranger = fork();
  if (!stranger) exit(be_stranger(group, true, ready));
  expect_end(stranger);
  pid_t second = fork();
  if (!second) exit(be_member("shm", group, NULL, 1));
  expect_end(first);
  expect_end(second);
  // In a member's place.
  atomic_store(ready, 0);
  group = make_group();
  stranger = fork();
  if (!stranger) exit(be_stranger(group, false, ready));
  while (!atomic_load(ready)) usleep(1000);
  count c = {0};
  at_wire *w;
  assert_int_equal(open_wire("shm", group, NULL, 1, 3000, &c, &w),
                   AT_PERMISSION_DENIED);
  kill(stranger, SIGKILL);
  waitpid(stranger, NULL, 0);
  munmap((void *)ready, 4096);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_prestate(machines_talk_and_notice_a_cut_cable, "tcp"),
      cmocka_unit_test_prestate(machines_talk_and_notice_a_cut_cable, "ucx"),
      cmocka_unit_test(who_listens_reads_nothing_over_tls),
      cmocka_unit_test(strangers_at_the_port_are_turned_away),
      cmocka_unit_test(who_has_met_all_waits_for_the_others),
      cmocka_unit_test(data_that_is_held_back_is_noticed),
      cmocka_unit_test(other_users_are_turned_away),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
