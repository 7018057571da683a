#include "pod/wire_meet.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum {
  kRetryUs = 5000,    // between two calls
  kStrangerMs = 200,  // for who calls to say who that is; members try again
  kMs = 1000000,      // ns
  kVersion = 1,
};

typedef struct greeting {
  uint64_t magic;  // and version
  at_digest group, settings;
  uint32_t me, count, epoch, call;
} greeting;

typedef struct heard {
  greeting greeting;
  int fds[AT_MEET_FDS], num_fds;
} heard;

// Members of other groups, or of another version of the wire, have another
// digest.
at_digest at_meet_group(const at_wire_options *o) {
  at_digest d = at_digest_start(kVersion);
  at_digest_add_str(&d, at_str_of(o->group));
  return d;
}

// Settings are digested: both sides must have the same.
static greeting greeting_of(const at_wire_options *o, uint32_t call) {
  const uint64_t settings[] = {o->beat_ms,         o->stuck_ms,
                               o->max_bytes,       o->window_bytes,
                               o->window_messages, o->unchecked};
  greeting g = {.magic = 0x31657269776c7461,
                .group = at_meet_group(o),
                .settings = at_digest_start(kVersion),
                .me = o->me,
                .count = o->count,
                .epoch = o->epoch,
                .call = call};
  at_digest_add(&g.settings,
                (at_bytes){(const uint8_t *)settings, sizeof settings});
  return g;
}

// For poll; rounded up, so that it does not spin at the end.
static int ms_left(uint64_t until_ns) {
  uint64_t now = at_clock_ns();
  uint64_t ms = until_ns > now ? (until_ns - now + kMs - 1) / kMs : 0;
  return (int)AT_MIN(ms, (uint64_t)INT32_MAX);
}

// ---- Greetings
// With descriptors where there are any.
static bool send_greeting(int fd, const greeting *g, const int *fds,
                          int count) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int) * AT_MEET_FDS)];
  } control = {0};
  struct iovec v = {(void *)g, sizeof *g};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  if (count) {
    m.msg_control = &control;
    m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * (size_t)count);
  }
  // It fits into the buffer of a new connection.
  return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof *g;
}

static void close_fds(heard *h) {
  for (int i = 0; i < h->num_fds; i++) close(h->fds[i]);
  h->num_fds = 0;
}

// What does not fit is closed.
static void take_fds(struct msghdr *m, heard *h) {
  for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      if (h->num_fds < AT_MEET_FDS)
        h->fds[h->num_fds++] = fd;
      else
        close(fd);
    }
  }
}

// False: nobody of this kind, or not in time. Then there is nothing to close.
static bool hear_greeting(int fd, uint64_t until_ns, heard *out) {
  union {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int) * AT_MEET_FDS)];
  } control;
  *out = (heard){0};
  for (size_t at = 0; at < sizeof out->greeting;) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ready = poll(&p, 1, ms_left(until_ns));
    if (ready < 0 && errno == EINTR) continue;
    struct iovec v = {(uint8_t *)&out->greeting + at,
                      sizeof out->greeting - at};
    struct msghdr m = {.msg_iov = &v,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof control};
    ssize_t n =
        ready > 0 ? recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) : -1;
    if (n <= 0) return close_fds(out), false;
    take_fds(&m, out);
    at += (size_t)n;
  }
  return true;
}

// ---- Who is there
static at_status too_late(uint32_t member) {
  return AT_FAIL(AT_DEADLINE_EXCEEDED,
                 "process %u did not come\nhint: every process of the group "
                 "has to be started, each with its own number",
                 member);
}

// Which of the two settings, with both sides' numbers.
static at_status differs(const greeting *mine, const greeting *theirs,
                         const char *what) {
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "process %u does not fit to process %u: another %s\n"
                 "detail: %u processes and epoch %u there, %u and %u here",
                 theirs->me, mine->me, what, theirs->count, theirs->epoch,
                 mine->count, mine->epoch);
}

static bool is_stranger(const greeting *mine, const greeting *theirs) {
  return theirs->magic != mine->magic ||
         !at_digest_eq(theirs->group, mine->group);
}

// Strangers first: they are told nothing of the rest.
static at_status fits(const greeting *mine, const greeting *theirs) {
  if (is_stranger(mine, theirs)) return differs(mine, theirs, "group");
  if (theirs->epoch != mine->epoch) return differs(mine, theirs, "epoch");
  if (theirs->count != mine->count)
    return differs(mine, theirs, "number of processes");
  if (theirs->me >= mine->count || theirs->me == mine->me)
    return differs(mine, theirs, "place expected than its own number");
  if (!at_digest_eq(theirs->settings, mine->settings))
    return differs(mine, theirs, "setting of the wire");
  return AT_OK;
}

// What the medium hands to that member; nothing, where it has nothing to hand
// over.
static at_status offer_of(const at_meeting *m, uint32_t member, bool answer,
                          int fds[AT_MEET_FDS], int *out_count) {
  *out_count = 0;
  return m->offer ? m->offer(m->arg, member, answer, fds, out_count) : AT_OK;
}

// ---- Calls
// *out_met stays false when the member was not there, or broke off.
static at_status try_call(const at_meeting *m, uint32_t member, uint32_t call,
                          uint64_t until_ns, bool *out_met) {
  int fd = -1, fds[AT_MEET_FDS], n;
  AT_TRY(m->call(m->arg, member, until_ns, &fd));
  if (fd < 0) return AT_OK;
  const greeting mine = greeting_of(m->options, call);
  heard h = {0};
  at_status st = m->trust ? m->trust(m->arg, fd) : AT_OK;
  if (!st.err) st = offer_of(m, member, false, fds, &n);
  if (st.err || !send_greeting(fd, &mine, fds, n) ||
      !hear_greeting(fd, until_ns, &h))
    return close(fd), st;
  st = fits(&mine, &h.greeting);
  if (!st.err && h.greeting.me != member)
    st = differs(&mine, &h.greeting, "number than its place");
  if (st.err) return close_fds(&h), close(fd), st;
  *out_met = true;
  return m->met(m->arg, member, call, fd, h.fds, h.num_fds);
}

// One after another: each of them waits only for those before it.
static at_status call_all(const at_meeting *m, uint64_t until_ns) {
  for (uint32_t h = 0; h < m->options->me; h++) {
    if (!at_wire_meets(m->options, h)) continue;
    for (uint32_t call = 0; call < m->calls; call++) {
      for (bool met = false; !met;) {
        AT_TRY(try_call(m, h, call, until_ns, &met));
        if (met) break;
        if (at_clock_ns() >= until_ns) return too_late(h);
        usleep(kRetryUs);
      }
    }
  }
  return AT_OK;
}

// Calls that have come, by member and call.
typedef struct roll {
  bool *here;
  uint32_t missing;
} roll;

// Strangers, and members of another epoch, are turned away; others wait on.
static at_status answer(const at_meeting *m, int fd, uint64_t until_ns,
                        roll *r) {
  int fds[AT_MEET_FDS], n;
  const greeting mine = greeting_of(m->options, 0);
  heard h = {0};
  at_status st = m->trust ? m->trust(m->arg, fd) : AT_OK;
  bool mute =
      st.err ||
      !hear_greeting(
          fd, AT_MIN(until_ns, at_clock_ns() + (uint64_t)kStrangerMs * kMs),
          &h) ||
      is_stranger(&mine, &h.greeting);
  at_status_free(st);
  if (mute) return close_fds(&h), close(fd), AT_OK;
  const uint32_t who = h.greeting.me, call = h.greeting.call;
  st = offer_of(m, who, true, fds, &n);
  if (!st.err) (void)send_greeting(fd, &mine, fds, n);
  if (!st.err && h.greeting.epoch != mine.epoch)
    return close_fds(&h), close(fd), AT_OK;
  if (!st.err) st = fits(&mine, &h.greeting);
  if (!st.err &&
      (who < mine.me || call >= m->calls || r->here[who * m->calls + call]))
    st = differs(&mine, &h.greeting, "process has its number");
  if (st.err) return close_fds(&h), close(fd), st;
  r->here[who * m->calls + call] = true;
  r->missing--;
  return m->met(m->arg, who, call, fd, h.fds, h.num_fds);
}

// Until everybody behind this process has called.
static at_status hear_all(const at_meeting *m, int listener, uint64_t until_ns,
                          roll *r) {
  while (r->missing) {
    struct pollfd p = {.fd = listener, .events = POLLIN};
    int ready = poll(&p, 1, ms_left(until_ns));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      uint32_t i = (m->options->me + 1) * m->calls;
      while (r->here[i]) i++;
      return too_late(i / m->calls);
    }
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0) AT_TRY(answer(m, fd, until_ns, r));
  }
  return AT_OK;
}

// Listens first; a call that finds nobody is tried again.
at_status at_wire_meet(const at_meeting *m) {
  const at_wire_options *o = m->options;
  uint64_t until_ns = at_clock_ns() + (uint64_t)o->meet_ms * kMs;
  roll r = {.here = calloc(o->count, m->calls * sizeof *r.here)};
  int listener = -1;
  if (!r.here)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to meet %u processes",
                   o->count);
  for (uint32_t h = o->me + 1; h < o->count; h++)
    for (uint32_t call = 0; call < m->calls; call++)
      if (at_wire_meets(o, h))
        r.missing++;
      else
        r.here[h * m->calls + call] = true;  // nobody waits for it
  at_status st = m->listen(m->arg, &listener);
  if (!st.err) st = call_all(m, until_ns);
  if (!st.err) st = hear_all(m, listener, until_ns, &r);
  if (listener >= 0) close(listener);
  free(r.here);
  return st;
}
