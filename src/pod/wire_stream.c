// The sending half of a wire over streams, and what its halves share;
// wire_poll.c is the receiving half.
#include "pod/wire_stream.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum {
  kGather = 4096,  // up to here, parts are copied into one frame
  kMs = 1000000    // ns
};

// ---- Words that processes share
// Returns also for no reason: callers look again.
void at_futex_wait_shared(_Atomic uint32_t *word, uint32_t value,
                          uint64_t until_ns) {
  struct timespec until = at_clock_timespec(until_ns);
  // BITSET: the time is absolute, on at_clock_ns's clock.
  syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value,
          until_ns == UINT64_MAX ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

// Everybody who sleeps on the word, in all processes.
void at_futex_wake_shared(_Atomic uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

// ---- Waiting
// A send to one lane.
typedef struct sender {
  at_stream *s;
  at_stream_lane *l;
  uint32_t to;
  at_wire_lane lane;
  at_wire_wait wait;
} sender;

// A new error.
static at_status why_lost(at_stream *s, uint32_t member) {
  pthread_mutex_lock(&s->lock);
  at_status st = at_status_clone(s->members[member].why);
  pthread_mutex_unlock(&s->lock);
  return st;
}

// The poller tells the sink when there is room for `need` bytes.
static at_status refuse(const sender *x, size_t need) {
  at_stream *s = x->s;
  x->l->refusals++;
  if (!atomic_exchange(&x->l->refused, need))
    atomic_fetch_add(&s->num_refused, 1);
  s->medium->want(s, x->to, x->lane, need, true);
  if (!at_stream_polls(s)) s->medium->wake(s);  // room may have come meanwhile
  return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                 "no credits or no room now for a message to process %u",
                 x->to);
}

// OK: the send goes on waiting for `need` bytes of room.
static at_status keep_waiting(const sender *x, size_t need) {
  if (atomic_load(&x->s->members[x->to].lost)) return why_lost(x->s, x->to);
  if (!x->wait.until_ns) return refuse(x, need);
  if (x->wait.cancel && atomic_load(x->wait.cancel))
    return AT_FAIL(AT_CANCELLED, "a send to process %u was cancelled", x->to);
  if (at_clock_ns() >= x->wait.until_ns)
    return AT_FAIL(AT_DEADLINE_EXCEEDED,
                   "process %u took no message in time: its credits are spent",
                   x->to);
  return AT_OK;
}

// Locks the lane, with the turn.
static at_status take_turn(const sender *x, size_t need) {
  at_stream_lane *l = x->l;
  const uint64_t until = x->wait.until_ns;
  const struct timespec t = at_clock_timespec(until);
  pthread_mutex_lock(&l->lock);
  at_status st = AT_OK;
  if (atomic_load(&x->s->members[x->to].lost)) st = why_lost(x->s, x->to);
  while (!st.err && l->taken) {
    st = keep_waiting(x, need);
    if (st.err) break;
    l->in_line++;
    if (until == UINT64_MAX)
      pthread_cond_wait(&l->turn, &l->lock);
    else
      pthread_cond_clockwait(&l->turn, &l->lock, CLOCK_MONOTONIC, &t);
    l->in_line--;
  }
  if (st.err) pthread_mutex_unlock(&l->lock);
  return st;
}

// The next in line may go.
static void end_turn(at_stream_lane *l) {
  if (l->in_line) pthread_cond_signal(&l->turn);
  pthread_mutex_unlock(&l->lock);
}

// A message goes where the window has room for it; one that is larger than the
// window goes alone.
static bool has_credit(const sender *x, uint64_t bytes) {
  const at_stream_credit *c = x->l->credit;
  uint64_t m = x->l->messages - atomic_load(&c->messages);
  uint64_t b = x->l->bytes - atomic_load(&c->bytes);
  return m < x->s->options.window_messages &&
         (!m || (b <= x->s->options.window_bytes &&
                 bytes <= x->s->options.window_bytes - b));
}

// Credits at the beginning of a message, room always.
static bool may_go(const sender *x, size_t need, const uint64_t *message) {
  return (!message || has_credit(x, *message)) &&
         x->s->medium->room(x->s, x->to, x->lane, x->wait.until_ns != 0) >=
             need;
}

// Between two frames, with the turn: receives what has come meanwhile, so that
// no second thread is woken for it.
static void look_between(const sender *x) {
  at_stream *s = x->s;
  if (!x->wait.looks || at_stream_polls(s)) return;
  x->l->taken = true;
  pthread_mutex_unlock(&x->l->lock);
  (void)at_stream_look(&s->face);
  pthread_mutex_lock(&x->l->lock);
  x->l->taken = false;
}

// For at_linger_for: what a sender looks for that waits for room.
typedef struct room_wait {
  const sender *x;
  uint32_t seen;
  bool busy;
} room_wait;

static bool room_came(void *arg) {
  room_wait *r = arg;
  if (atomic_load(r->x->l->room) != r->seen) return true;
  r->busy = at_stream_look(&r->x->s->face) == AT_WIRE_BUSY;
  return r->busy || atomic_load(r->x->l->room) != r->seen;
}

// True: room, or credits, may have come.
static bool look_for_room(const sender *x, uint32_t seen) {
  at_stream *s = x->s;
  if (!x->wait.looks || at_stream_polls(s)) return false;
  room_wait r = {.x = x, .seen = seen};
  if (atomic_load(x->l->room) != seen) return true;
  if (at_linger_for(&s->room_waits, s->options.spin_ns, room_came, &r))
    return !r.busy;
  at_stream_look_end(&s->face);
  return false;
}

// Sleeps until *l->room is not `seen`, the wait is over, or *tell_ns has come:
// then who is waited for is said, and *tell_ns is never again.
static void sleep_for_room(const sender *x, uint32_t seen, uint64_t *tell_ns) {
  const uint64_t ms = x->s->options.tell_ms;
  if (look_for_room(x, seen)) return;
  if (!*tell_ns) *tell_ns = at_clock_ns() + ms * kMs;
  at_futex_wait_shared(x->l->room, seen, AT_MIN(x->wait.until_ns, *tell_ns));
  at_tally(&x->s->tally.syscalls, 1);
  if (at_clock_ns() < *tell_ns) return;
  *tell_ns = UINT64_MAX;
  at_log(AT_LOG_WARNING,
         "process %u has waited %llu s to send to process %u, which lives but "
         "has not taken what was sent to it before",
         x->s->options.me, (unsigned long long)(ms / 1000), x->to);
}

// Waits, with the turn, for room for `need` bytes, and at the beginning of a
// message for credits for *message bytes. better: what to wait for where it has
// to be waited.
static at_status wait_for_room(const sender *x, size_t need, size_t better,
                               const uint64_t *message) {
  at_stream *s = x->s;
  at_stream_lane *l = x->l;
  at_status st = AT_OK;
  uint64_t tell_ns = 0;
  while (!may_go(x, need, message)) {
    st = keep_waiting(x, need);
    if (st.err) return st;
    uint32_t seen = atomic_load(l->room);
    atomic_fetch_add(&l->waiting, 1);
    s->medium->want(s, x->to, x->lane, better, false);
    st = keep_waiting(x, need);  // a flag set before `waiting` woke nobody
    if (!st.err && !may_go(x, need, message)) {
      s->medium->push(s, x->to, x->lane);
      l->taken = true;
      l->waits++;
      pthread_mutex_unlock(&l->lock);
      sleep_for_room(x, seen, &tell_ns);
      pthread_mutex_lock(&l->lock);
      l->taken = false;
    }
    atomic_fetch_sub(&l->waiting, 1);
    if (st.err) return st;
  }
  return AT_OK;
}

// Room or credits have come: wakes senders of that lane.
void at_stream_roomy(at_stream *s, uint32_t to, at_wire_lane lane) {
  at_stream_lane *l = &s->members[to].lanes[lane];
  atomic_fetch_add(l->room, 1);
  if (!atomic_load(&l->waiting)) return;
  at_futex_wake_shared(l->room);
  at_tally(&s->tally.syscalls, 1);
}

// ---- Frames
// What a frame takes in its stream, with `body` bytes.
static size_t frame_bytes(const at_stream *s, size_t body) {
  size_t seals = s->sealed ? AT_SEAL_BYTES * (body ? 2 : 1) : 0;
  return sizeof(at_frame) + body + seals;
}

// Sequence, sums and seals. Under the lane's lock; there is room.
static void put_frame(at_stream *s, uint32_t to, at_wire_lane lane, at_frame *f,
                      at_bytes body, bool sealed) {
  at_stream_lane *l = &s->members[to].lanes[lane];
  f->epoch = s->options.epoch;
  f->sequence = l->sequence++;
  f->length = (uint32_t)body.len;
  if (l->in.limits.check_bodies && body.len)
    f->body_sum = at_frame_sum(body.ptr, body.len);
  at_frame_seal(f);
  uint8_t seals[2][AT_SEAL_BYTES];
  struct iovec v[4] = {{f, sizeof *f}};
  int n = 1;
  if (sealed) {
    const at_bytes head = {(const uint8_t *)f, sizeof *f};
    at_seal_next(&l->send_seal, &head, 1, seals[0]);
    v[n++] = (struct iovec){seals[0], AT_SEAL_BYTES};
  }
  if (body.len) v[n++] = (struct iovec){(void *)body.ptr, body.len};
  if (body.len && sealed) {
    at_seal_next(&l->send_seal, &body, 1, seals[1]);
    v[n++] = (struct iovec){seals[1], AT_SEAL_BYTES};
  }
  s->medium->write(s, to, lane, v, n);
  l->frames++;
}

// As put_frame. A member that needs no seals is told first that none follow.
static void write_frame(at_stream *s, uint32_t to, at_wire_lane lane,
                        at_frame *f, at_bytes body) {
  at_stream_lane *l = &s->members[to].lanes[lane];
  if (l->waived && !l->bare) {
    at_frame bare = {.type = AT_FRAME_BARE};
    put_frame(s, to, lane, &bare, (at_bytes){0}, true);
    l->bare = true;
  }
  put_frame(s, to, lane, f, body, s->sealed && !l->bare);
}

// A frame without a body. False: no room for it now. LEAVE goes in any case:
// nothing follows it.
bool at_stream_notice(at_stream *s, uint32_t to, at_wire_lane lane,
                      at_frame_type type, at_wire_lane about, uint64_t bytes) {
  at_stream_lane *l = &s->members[to].lanes[lane];
  at_frame f = {.type = type, .kind = about, .bytes = bytes};
  pthread_mutex_lock(&l->lock);
  if (type == AT_FRAME_CREDIT) {  // under the lock: counts never fall
    const at_stream_credit *c = s->members[to].lanes[about].released;
    f.tag = atomic_load(&c->messages);
    f.bytes = atomic_load(&c->bytes);
  } else if (type == AT_FRAME_SOCKET) {
    const at_loopback_end e = s->medium->end(s, to, about);
    f.tag = e.cookie;
    f.bytes = e.place;
  }
  bool room = type == AT_FRAME_LEAVE ||
              s->medium->room(s, to, lane, false) >= frame_bytes(s, 0);
  if (room) {
    write_frame(s, to, lane, &f, (at_bytes){0});
    s->medium->push(s, to, lane);
  }
  pthread_mutex_unlock(&l->lock);
  return room;
}

// ---- Messages
// Where a message is that is being sent.
typedef struct reading {
  const at_wire_out *m;
  uint32_t part;
  size_t at;  // in the part
} reading;

// Saturates.
static uint64_t body_bytes(const at_wire_out *m) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < m->num_parts; i++)
    bytes = at_add(bytes, m->parts[i].len);
  return bytes;
}

// The rest of the part that comes next. Empty: there is none.
static at_bytes next_part(reading *r) {
  while (r->part < r->m->num_parts && r->at == r->m->parts[r->part].len)
    r->part++, r->at = 0;
  if (r->part == r->m->num_parts) return (at_bytes){0};
  const at_bytes *p = &r->m->parts[r->part];
  return (at_bytes){p->ptr + r->at, p->len - r->at};
}

// The next bytes of the body for one frame: of one part, or of several that are
// small.
static at_bytes next_slice(reading *r, uint32_t max,
                           uint8_t gathered[kGather]) {
  at_bytes part = next_part(r);
  if (part.len >= kGather || r->part + 1 >= r->m->num_parts) {
    part.len = AT_MIN(part.len, (size_t)max);
    r->at += part.len;
    return part;
  }
  size_t n = 0;
  while (part.len && n < kGather) {
    size_t k = AT_MIN(part.len, kGather - n);
    memcpy(gathered + n, part.ptr, k);
    n += k;
    r->at += k;
    part = next_part(r);
  }
  return (at_bytes){gathered, n};
}

// What a message takes in its stream, at most.
static size_t stream_bytes(const at_stream *s, uint64_t bytes) {
  return bytes + (bytes / s->checked_frame + 2) * frame_bytes(s, 1);
}

// In frames. One that does not wait has room for all of itself before it
// begins. A message that is given up halfway is abandoned, and counts no
// credits.
static at_status send_message(const sender *x, const at_wire_out *m) {
  at_stream *s = x->s;
  const uint32_t max = x->l->bare ? s->bare_frame : s->checked_frame;
  const uint64_t bytes = body_bytes(m);
  uint8_t gathered[kGather];
  reading r = {.m = m};
  for (uint64_t at = 0; at < bytes || !at;) {
    at_bytes slice = next_slice(&r, max, gathered);
    size_t better = AT_MIN(stream_bytes(s, bytes - at), (size_t)4 * max);
    size_t need =
        x->wait.until_ns ? frame_bytes(s, slice.len) : stream_bytes(s, bytes);
    if (x->wait.until_ns || !at) {
      at_status st = wait_for_room(x, need, better, at ? NULL : &bytes);
      if (st.err && at) {
        at_frame f = {.type = AT_FRAME_ABANDON};
        write_frame(s, x->to, x->lane, &f, (at_bytes){0});
        // Its receiver counts no credits for it.
        x->l->messages--;
        x->l->bytes -= bytes;
      }
      if (st.err) return st;
    }
    if (!at) x->l->messages++, x->l->bytes += bytes;
    at_frame f = {
        .type = AT_FRAME_DATA, .kind = m->kind, .tag = m->tag, .bytes = bytes};
    write_frame(s, x->to, x->lane, &f, slice);
    at += slice.len;
    if (at == bytes) break;
    s->medium->push(s, x->to, x->lane);
    look_between(x);
  }
  return AT_OK;
}

// INVALID_ARGUMENT: larger than the lane takes, or than can be sent without
// waiting.
static at_status check_message(const at_stream *s, at_wire_lane lane,
                               const at_wire_out *m, bool waits) {
  const uint64_t bytes = body_bytes(m);
  const uint64_t most =
      lane == AT_WIRE_CONTROL ? AT_WIRE_CONTROL_BYTES : s->options.max_bytes;
  const uint64_t at_once = AT_MIN(most, (uint64_t)AT_STREAM_AT_ONCE);
  if (bytes <= (waits ? most : at_once)) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "a message of %llu bytes; at most %llu go %s",
                 (unsigned long long)bytes,
                 (unsigned long long)(bytes > most ? most : at_once),
                 bytes > most ? "in this lane" : "without a wait");
}

// The poller pushes when it has done what it has at hand.
static void push_sent(const sender *x) {
  if (at_stream_polls(x->s))
    x->l->unpushed = true;
  else
    x->s->medium->push(x->s, x->to, x->lane);
}

// at_wire_vtable.send. *out_sent: whole messages.
static at_status stream_send(at_wire *w, uint32_t to, at_wire_lane lane,
                             const at_wire_out *messages, uint32_t count,
                             const at_wire_wait *wait, uint32_t *out_sent) {
  at_stream *s = (at_stream *)w;
  sender x = {s, &s->members[to].lanes[lane], to, lane, *wait};
  uint32_t sent = 0;
  if (out_sent) *out_sent = 0;
  for (uint32_t i = 0; i < count; i++)
    AT_TRY(check_message(s, lane, &messages[i], wait->until_ns != 0));
  if (wait->until_ns && at_stream_polls(s))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "a send from the wire's own thread may not wait");
  at_status st = take_turn(&x, sizeof(at_frame));
  if (st.err) return st;
  while (sent < count && !st.err) {
    st = send_message(&x, &messages[sent]);
    sent += !st.err;
  }
  push_sent(&x);
  end_turn(x.l);
  if (out_sent) *out_sent = sent;
  return st;
}

// ---- The face
static void stream_release(at_wire *w, uint32_t from, at_wire_lane lane,
                           uint64_t bytes) {
  at_stream_release((at_stream *)w, from, lane, bytes);
}

// Senders look at their cancel flags.
static void stream_wake(at_wire *w) {
  at_stream *s = (at_stream *)w;
  for (uint32_t m = 0; m < w->count; m++)
    if (m != w->me) at_stream_wake_senders(s, m);
}

// Those in line and those that wait for room.
void at_stream_wake_senders(at_stream *s, uint32_t member) {
  for (at_wire_lane k = 0; k < AT_WIRE_LANES; k++) {
    at_stream_lane *l = &s->members[member].lanes[k];
    pthread_mutex_lock(&l->lock);
    pthread_cond_broadcast(&l->turn);
    pthread_mutex_unlock(&l->lock);
    at_stream_roomy(s, member, k);
  }
}

static at_status stream_member(at_wire *w, uint32_t member) {
  at_stream *s = (at_stream *)w;
  return atomic_load(&s->members[member].lost) ? why_lost(s, member) : AT_OK;
}

// The poller does it.
static void stream_drop(at_wire *w, uint32_t member) {
  at_stream *s = (at_stream *)w;
  atomic_store(&s->members[member].given_up, true);
  atomic_store(&s->urgent, true);
  s->medium->wake(s);
}

// Not a snapshot: lanes are read one after another.
static void stream_counts(at_wire *w, at_wire_counts *out) {
  at_stream *s = (at_stream *)w;
  *out = (at_wire_counts){.received_messages = atomic_load(&s->tally.messages),
                          .received_bytes = atomic_load(&s->tally.bytes),
                          .received_frames = atomic_load(&s->tally.frames),
                          .received_bare = atomic_load(&s->tally.bare),
                          .wakeups = atomic_load(&s->tally.wakeups),
                          .bells = atomic_load(&s->tally.bells),
                          .syscalls = atomic_load(&s->tally.syscalls)};
  for (uint32_t m = 0; m < w->count; m++) {
    for (at_wire_lane k = 0; k < AT_WIRE_LANES && m != w->me; k++) {
      at_stream_lane *l = &s->members[m].lanes[k];
      pthread_mutex_lock(&l->lock);
      out->sent_messages += l->messages;
      out->sent_bytes += l->bytes;
      out->sent_frames += l->frames;
      out->refused += l->refusals;
      out->waits += l->waits;
      pthread_mutex_unlock(&l->lock);
    }
  }
}

// Says LEAVE, stops the poller, then the medium closes.
static void stream_close(at_wire *w) {
  at_stream *s = (at_stream *)w;
  for (uint32_t m = 0; m < w->count; m++)
    for (at_wire_lane k = 0; k < AT_WIRE_LANES && m != w->me; k++)
      if (!atomic_load(&s->members[m].lost))
        at_stream_notice(s, m, k, AT_FRAME_LEAVE, k, 0);
  pthread_mutex_lock(&s->lock);
  atomic_store(&s->stop, true);
  pthread_cond_signal(&s->stand_in);
  pthread_mutex_unlock(&s->lock);
  s->medium->wake(s);
  at_thread_join(s->poller);
  s->medium->close(s);
  at_stream_free(s);
}

// ---- Made and freed
static const at_wire_vtable kVtable = {
    .send = stream_send,
    .release = stream_release,
    .wake = stream_wake,
    .member = stream_member,
    .drop = stream_drop,
    .counts = stream_counts,
    .close = stream_close,
    .look = at_stream_look,
    .look_end = at_stream_look_end,
    .poll = at_stream_help,
    .poke = at_stream_poke,
    .poll_end = at_stream_help_end,
};

static void free_lane(at_stream_lane *l) {
  pthread_mutex_destroy(&l->lock);
  pthread_cond_destroy(&l->turn);
}

// No thread is left.
void at_stream_free(at_stream *s) {
  for (uint32_t m = 0; m < s->face.count; m++) {
    for (int k = 0; k < AT_WIRE_LANES; k++) free_lane(&s->members[m].lanes[k]);
    at_status_free(s->members[m].why);
  }
  pthread_mutex_destroy(&s->lock);
  pthread_mutex_destroy(&s->polls);
  pthread_cond_destroy(&s->stand_in);
  free(s);
}

// What a lane accepts: small messages in CONTROL, up to max_bytes in BULK.
// Bodies carry checksums where the medium needs them and nobody waived them.
static void init_lane(const at_stream *s, at_wire_lane lane,
                      at_stream_lane *l) {
  pthread_mutex_init(&l->lock, NULL);
  pthread_cond_init(&l->turn, NULL);
  l->in.limits = (at_frame_limits){
      .max_bytes = lane == AT_WIRE_CONTROL ? AT_WIRE_CONTROL_BYTES
                                           : s->options.max_bytes,
      .max_frame = s->medium->max_frame,
      .epoch = s->options.epoch,
      .lane = lane,
      .check_bodies = s->medium->sums && !s->options.unchecked};
}

// The group, addresses and links of the options are borrowed for the opening
// alone.
at_status at_stream_create(const at_stream_medium *medium,
                           const at_wire_options *options, void *own,
                           at_stream **out) {
  at_stream *s = calloc(1, sizeof *s + options->count * sizeof *s->members);
  if (!s)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory for a wire of %u processes", options->count);
  s->face = (at_wire){&kVtable, medium->name, options->count, options->me};
  s->medium = medium;
  s->checked_frame = s->bare_frame = medium->max_frame;
  s->own = own;
  s->options = *options;
  atomic_store(&s->aside_for, AT_STREAM_ASIDE_NS);
  s->options.group = s->options.addresses = NULL;
  s->options.links = NULL;
  s->options.absent = NULL;
  pthread_mutex_init(&s->lock, NULL);
  pthread_mutex_init(&s->polls, NULL);
  pthread_cond_init(&s->stand_in, NULL);
  for (uint32_t m = 0; m < options->count; m++)
    for (at_wire_lane k = 0; k < AT_WIRE_LANES; k++)
      init_lane(s, k, &s->members[m].lanes[k]);
  for (uint32_t m = 0; m < options->count; m++) {
    if (m == options->me || at_wire_meets(options, m)) continue;
    s->members[m].why =
        AT_FAIL(AT_UNAVAILABLE, "process %u is lost: it takes no part", m);
    atomic_store(&s->members[m].lost, true);
  }
  *out = s;
  return AT_OK;
}

// Before the stream starts.
void at_stream_seal(at_stream *s, uint32_t member, at_wire_lane lane,
                    const at_seal *send, const at_seal *recv) {
  at_stream_lane *l = &s->members[member].lanes[lane];
  s->sealed = true;
  l->send_seal = *send;
  l->recv_seal = *recv;
  l->in.limits.seal = &l->recv_seal;
  l->in.limits.check_bodies = false;
}

// Members whose connections never leave this kernel find that out by it, and
// need no seals then.
static void tell_sockets(at_stream *s) {
  for (uint32_t m = 0; m < s->face.count; m++)
    for (at_wire_lane k = 0; k < AT_WIRE_LANES && m != s->face.me &&
                             !atomic_load(&s->members[m].lost);
         k++)
      at_stream_notice(s, m, AT_WIRE_CONTROL, AT_FRAME_SOCKET, k, 0);
}

// The first beat says that this process has met everybody.
at_status at_stream_start(at_stream *s, at_wire **out) {
  *out = &s->face;
  s->medium->beat(s);  // from here on others expect more of them
  if (s->sealed && s->medium->end) tell_sockets(s);
  at_status st = at_thread_start("atoll-wire", AT_THREAD_STACK, at_stream_poll,
                                 s, &s->poller);
  if (!st.err) return st;
  *out = NULL;
  return at_status_prefix(st, "no thread to hear other processes");
}
