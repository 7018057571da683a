#include "pod/share_meet.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"

enum {
  kNameBytes = 16,  // random, of a socket
  kMeetMs = 10000,  // for all of it
  kGuestMs = 2000,  // for a guest to prove itself
  kCall = 1,        // at_card: the connection beside the one of messages
};
static const uint64_t kLaunch = UINT64_MAX - 1;  // of tags; no launch has it
static const uint64_t kMs = 1000000;

// What a process says of itself by message.
typedef struct about {
  at_digest machine;
  uint64_t user, can;  // can: it listens
  uint8_t name[kNameBytes];
} about;

typedef struct meeting {
  const at_pod_job *job;
  const at_hosts *hosts;
  at_share_gift mine;
  at_share_taker taker;
  uint8_t *took;  // this process's row of `with`
  about *abouts;  // of all
  int listener;
  uint64_t until_ns;
  at_proof_heard *heard;
  uint64_t since_ns;
  at_status *why;
} meeting;

// The last reason is what people are told.
static void note(meeting *m, uint32_t host, const char *what) {
  at_status_free(*m->why);
  *m->why = AT_FAIL(AT_UNAVAILABLE, "process %u: %s", host, what);
}

// ---- Messages
// `bytes` of every process, one behind the other; this one's are there. Nothing
// of those that take no part.
static at_status gather(const meeting *m, uint32_t turn, void *all,
                        size_t bytes) {
  const at_hosts *h = m->hosts;
  at_hosts_mail *mails = calloc(h->count, sizeof *mails);
  at_hosts_into *into = calloc(h->count, sizeof *into);
  if (!mails || !into) {
    free(mails);
    free(into);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for %u processes",
                   h->count);
  }
  at_bytes out = {(uint8_t *)all + h->me * bytes, bytes};
  uint32_t n = 0;
  for (uint32_t i = 0; i < h->count; i++) {
    if (i == h->me || !at_address_is_there(m->job->addresses.text, i)) continue;
    into[n] = (at_hosts_into){(uint8_t *)all + i * bytes, bytes};
    mails[n] = (at_hosts_mail){
        .host = i, .num_out = 1, .num_in = 1, .out = &out, .in = &into[n]};
    n++;
  }
  const at_hosts_tag tag = {.launch = kLaunch, .turn = turn};
  at_status st = h->exchange(h->arg, &tag, mails, n);
  free(mails);
  free(into);
  return st;
}

// ---- Sockets
// An abstract unix socket: it has no file, and goes with its process.
static socklen_t address_of(const about *a, struct sockaddr_un *out) {
  *out = (struct sockaddr_un){.sun_family = AF_UNIX};
  int n = snprintf(out->sun_path + 1, sizeof out->sun_path - 1,
                   "atoll-share-%llu-", (unsigned long long)a->user);
  for (int i = 0; i < kNameBytes; i++, n += 2)
    snprintf(out->sun_path + 1 + n, 3, "%02x", a->name[i]);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

// A random name, which only members learn.
static at_status listen_here(meeting *m, about *a) {
  struct sockaddr_un at;
  AT_TRY(at_random(a->name, sizeof a->name));
  socklen_t n = address_of(a, &at);
  m->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (m->listener >= 0 && !bind(m->listener, (void *)&at, n) &&
      !listen(m->listener, (int)m->hosts->count + 64))
    return AT_OK;
  return AT_FAIL(AT_UNAVAILABLE, "cannot listen for memory: %s",
                 strerror(errno));
}

// The kernel says who is at the other end.
static bool of_this_user(int fd) {
  struct ucred who;
  socklen_t n = sizeof who;
  return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) &&
         who.uid == geteuid();
}

// Until there is something to read.
static bool await(int fd, uint64_t until_ns) {
  for (;;) {
    uint64_t now = at_clock_ns();
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ms = until_ns > now ? (int)((until_ns - now + kMs - 1) / kMs) : 0;
    int n = poll(&p, 1, ms);
    if (n > 0) return true;
    if (n < 0 && errno == EINTR && ms) continue;
    return false;
  }
}

// False: it is gone.
static bool say(int fd, at_proof *p) {
  at_bytes out = at_proof_take(p);
  return !out.len || send(fd, out.ptr, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) ==
                         (ssize_t)out.len;
}

// Both sides of a proof, until it is over. The caller's number is known to the
// listener with ASKS.
static at_proof_state prove(int fd, at_proof *p, uint64_t until_ns) {
  uint8_t *to;
  for (size_t room; say(fd, p) && (room = at_proof_room(p, &to));) {
    if (!await(fd, until_ns)) return AT_PROOF_STRANGER;
    ssize_t n = recv(fd, to, room, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return AT_PROOF_STRANGER;
    at_proof_got(p, (size_t)n);
  }
  return p->state;
}

// ---- Gifts
typedef union control {
  struct cmsghdr head;
  char bytes[CMSG_SPACE(2 * sizeof(int))];
} control;

// Two descriptors with one byte.
static bool send_gift(int fd, at_share_gift g) {
  control c = {0};
  char byte = 1;
  struct iovec v = {&byte, 1};
  struct msghdr m = {.msg_iov = &v,
                     .msg_iovlen = 1,
                     .msg_control = &c,
                     .msg_controllen = sizeof c};
  int fds[2] = {g.arena, g.page};
  struct cmsghdr *h = CMSG_FIRSTHDR(&m);
  *h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fds),
                        .cmsg_level = SOL_SOCKET,
                        .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(h), fds, sizeof fds);
  return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

// Exactly two descriptors, which are the caller's then; anything else is
// closed.
static bool take_gift(int fd, uint64_t until_ns, at_share_gift *out) {
  control c = {0};
  char byte;
  struct iovec v = {&byte, 1};
  struct msghdr m = {.msg_iov = &v,
                     .msg_iovlen = 1,
                     .msg_control = &c,
                     .msg_controllen = sizeof c};
  int fds[2] = {-1, -1}, n = 0;
  if (!await(fd, until_ns) ||
      recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
    return false;
  struct cmsghdr *h = CMSG_FIRSTHDR(&m);
  if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
    n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(fds, CMSG_DATA(h), (size_t)AT_MIN(n, 2) * sizeof(int));
  }
  if (n == 2 && !(m.msg_flags & MSG_CTRUNC)) {
    *out = (at_share_gift){fds[0], fds[1]};
    return true;
  }
  for (int i = 0; i < AT_MIN(n, 2); i++) close(fds[i]);
  return false;
}

// Both sides send first, then take. A host gives once.
static bool swap_gifts(meeting *m, int fd, uint32_t host, uint64_t until_ns) {
  at_share_gift gift;
  if (m->took[host] || !send_gift(fd, m->mine) ||
      !take_gift(fd, until_ns, &gift))
    return false;
  at_status st = m->taker.take(m->taker.arg, host, gift);
  if (st.err) note(m, host, at_status_message(st));
  m->took[host] = !st.err;
  at_status_free(st);
  close(gift.arena);
  close(gift.page);
  return true;
}

// ---- Calls and guests
// As pod/hosts.c has it, but for another connection.
static at_card card_of(const meeting *m) {
  at_digest what = at_digest_start(m->hosts->count);
  at_digest_add_str(&what, at_str_of(m->job->job));
  return (at_card){
      .me = m->hosts->me, .count = m->hosts->count, .call = kCall, .job = what};
}

// Connects, proves, swaps. False: any of it failed.
static bool call(meeting *m, uint32_t host) {
  struct sockaddr_un at;
  socklen_t n = address_of(&m->abouts[host], &at);
  uint8_t nonce[AT_PROOF_NONCE];
  at_proof p;
  at_card card = card_of(m);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool good = fd >= 0 && !connect(fd, (void *)&at, n) && of_this_user(fd) &&
              !at_code_take(at_random(nonce, sizeof nonce));
  if (good) {
    at_proof_call(&p, &m->job->token, &card, host, nonce, at_clock_ns());
    good = prove(fd, &p, m->until_ns) == AT_PROOF_MET &&
           swap_gifts(m, fd, host, m->until_ns);
  }
  if (fd >= 0) close(fd);
  return good;
}

// Is it on this machine, and can both share?
static bool may_call(const meeting *m, uint32_t host) {
  const about *a = &m->abouts[host], *me = &m->abouts[m->hosts->me];
  return host < m->hosts->count && host != m->hosts->me && a->can && me->can &&
         at_digest_eq(a->machine, me->machine) && a->user == me->user;
}

// The process that a guest has proved to be; UINT32_MAX: a stranger.
static uint32_t serve(meeting *m, int fd) {
  uint64_t until =
      AT_MIN(m->until_ns, at_clock_ns() + (uint64_t)kGuestMs * kMs);
  uint8_t nonce[AT_PROOF_NONCE];
  at_proof p;
  at_card card = card_of(m);
  if (!of_this_user(fd) || at_code_take(at_random(nonce, sizeof nonce)))
    return UINT32_MAX;
  at_proof_listen(&p, &m->job->token, &card, m->heard, nonce, m->since_ns);
  if (prove(fd, &p, until) != AT_PROOF_ASKS) return UINT32_MAX;
  at_verdict v = p.verdict;
  uint32_t host = p.theirs.me;
  if (!v && (host <= m->hosts->me || !may_call(m, host) || m->took[host] ||
             p.theirs.call != kCall))
    v = AT_VERDICT_PLACE;
  at_proof_decide(&p, v);
  if (!say(fd, &p) || v || !swap_gifts(m, fd, host, until)) return UINT32_MAX;
  return host;
}

// Until everybody who may call has, or the time is over.
static void answer(meeting *m, uint32_t missing) {
  while (missing && await(m->listener, m->until_ns)) {
    int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) continue;
    if (serve(m, fd) != UINT32_MAX) missing--;
    close(fd);
  }
}

// ---- All of it
// The boot id: two containers of one machine have the same.
static at_digest this_machine(void) {
  char text[64] = {0};
  at_digest d = at_digest_start(1);
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (f && fgets(text, sizeof text, f)) at_digest_add_str(&d, at_str_of(text));
  if (f) fclose(f);
  return d;
}

// A process that calls waits for one before it only, so they all get on.
static void hand_over(meeting *m) {
  uint32_t me = m->hosts->me, missing = 0;
  for (uint32_t h = 0; h < me; h++)
    if (may_call(m, h) && !call(m, h))
      note(m, h, "it did not hand over memory by its unix socket");
  for (uint32_t h = me + 1; h < m->hosts->count; h++) missing += may_call(m, h);
  answer(m, missing);
  for (uint32_t h = 0; h < m->hosts->count; h++) {
    if (h == me || m->took[h] || m->why->err) continue;
    if (!m->abouts[h].can)
      note(m, h, "it has no memory to share");
    else if (!may_call(m, h))
      note(m, h, "it is on another machine, or another user's");
    else
      note(m, h, "it did not call the unix socket for memory");
  }
}

// Two rounds of messages around it: who is where, then who has whose memory.
static at_status meet(meeting *m, uint8_t *with) {
  uint32_t count = m->hosts->count, me = m->hosts->me;
  about *a = &m->abouts[me];
  *a = (about){.machine = this_machine(), .user = geteuid()};
  m->since_ns = at_clock_ns();
  at_status st = m->mine.arena >= 0 ? listen_here(m, a) : AT_OK;
  a->can = m->mine.arena >= 0 && !st.err;
  if (st.err) note(m, me, at_status_message(st));
  at_status_free(st);
  AT_TRY(gather(m, 0, m->abouts, sizeof *m->abouts));
  m->until_ns = at_clock_ns() + (uint64_t)kMeetMs * kMs;
  m->took = with + (size_t)me * count;
  if (a->can) hand_over(m);
  m->took[me] = 1;
  AT_TRY(gather(m, 1, with, count));
  // What one side has and the other has not is of no use to either.
  for (uint32_t i = 0; i < count; i++)
    for (uint32_t j = 0; j < i; j++)
      with[i * count + j] = with[j * count + i] =
          with[i * count + j] == 1 && with[j * count + i] == 1;
  return AT_OK;
}

// with: [count][count], all 0 at first. An error only where messages fail; *why
// says why somebody cannot share.
at_status at_share_meet(const at_pod_job *job, const at_hosts *hosts,
                        at_share_gift mine, at_share_taker taker, uint8_t *with,
                        at_status *why) {
  meeting m = {.job = job,
               .hosts = hosts,
               .mine = mine,
               .taker = taker,
               .listener = -1,
               .why = why};
  m.abouts = calloc(hosts->count, sizeof *m.abouts);
  m.heard = calloc(1, sizeof *m.heard);
  at_status st = m.abouts && m.heard
                     ? meet(&m, with)
                     : AT_FAIL(AT_RESOURCE_EXHAUSTED,
                               "no memory for %u processes", hosts->count);
  if (m.listener >= 0) close(m.listener);
  free(m.abouts);
  free(m.heard);
  return st;
}
