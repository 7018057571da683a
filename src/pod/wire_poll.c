// The receiving half of a wire over streams: one thread that reads what members
// send, hands it to the sink, and watches who is still there.
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "pod/wire_stream.h"

enum {
  kControlFrames = 64,  // of a member, before the next member's
  kRounds = 32,         // of frames of all, before a helper looks at them
  // For how long the poller keeps away after a look.
  kMostAside = 1000000,  // ns
  kLeastAside = 200000,
  kMs = 1000000,  // ns
};

static _Thread_local const at_stream *polling;  // the wire of this thread
bool at_stream_polls(const at_stream *s) { return polling == s; }

// ---- Credits
// Counts only grow; the medium tells the sender.
void at_stream_release(at_stream *s, uint32_t from, at_wire_lane lane,
                       uint64_t bytes) {
  at_stream_credit *c = s->members[from].lanes[lane].released;
  atomic_fetch_add(&c->bytes, bytes);
  atomic_fetch_add(&c->messages, 1);
  s->medium->released(s, from, lane);
}

// ---- From one lane
typedef struct receiver {
  at_stream *s;
  at_stream_lane *l;
  uint32_t from;
  at_wire_lane lane;
  at_status bad;  // what a notice has wrong
} receiver;

// at_frames_io.read.
static size_t read_lane(void *arg, void *to, size_t n) {
  receiver *r = arg;
  return r->s->medium->read(r->s, r->from, r->lane, to, n);
}

// at_frames_io.place.
static void *place(void *arg, const at_wire_head *head) {
  receiver *r = arg;
  const at_wire_sink *k = &r->s->options.sink;
  return k->place(k->arg, r->from, head);
}

// at_frames_io.message: credits go back where the sink is done with it.
static void message(void *arg, const at_wire_head *head, void *body) {
  receiver *r = arg;
  const at_wire_sink *k = &r->s->options.sink;
  at_tally(&r->s->tally.messages, 1);
  at_tally(&r->s->tally.bytes, head->bytes);
  if (k->message(k->arg, r->from, head, body))
    at_stream_release(r->s, r->from, r->lane, head->bytes);
}

// at_frames_io.abandon.
static void abandon(void *arg, const at_wire_head *head, void *body) {
  receiver *r = arg;
  const at_wire_sink *k = &r->s->options.sink;
  k->abandon(k->arg, r->from, head, body);
}

// Counts only grow, and not past what was sent.
static at_status take_credit(receiver *r, const at_frame *f) {
  at_stream_lane *l = &r->s->members[r->from].lanes[f->kind];
  at_stream_credit *c = l->credit;
  pthread_mutex_lock(&l->lock);
  bool good = f->tag <= l->messages && f->tag >= atomic_load(&c->messages) &&
              f->bytes <= l->bytes && f->bytes >= atomic_load(&c->bytes);
  if (good) {
    atomic_store(&c->bytes, f->bytes);
    atomic_store(&c->messages, f->tag);
  }
  pthread_mutex_unlock(&l->lock);
  if (!good) return AT_FAIL(AT_DATA_LOSS, "credits for what was never sent");
  at_stream_roomy(r->s, r->from, f->kind);
  return AT_OK;
}

// The member has said which socket its end of a lane is, once: where the kernel
// says the same, nobody is between.
static at_status take_socket(receiver *r, const at_frame *f) {
  at_stream *s = r->s;
  at_stream_lane *l = &s->members[r->from].lanes[f->kind];
  const at_loopback_end there = {f->tag, f->bytes};
  if (l->told_socket)
    return AT_FAIL(AT_DATA_LOSS, "it has said twice which socket it has");
  l->told_socket = true;
  if (!s->sealed || !s->medium->reaches ||
      !s->medium->reaches(s, r->from, f->kind, there))
    return AT_OK;
  l->in.limits.may_be_bare = true;
  at_stream_notice(s, r->from, AT_WIRE_CONTROL, AT_FRAME_WAIVE, f->kind, 0);
  return AT_OK;
}

// Only what is sent to that member changes.
static void take_waiver(receiver *r, const at_frame *f) {
  at_stream_lane *l = &r->s->members[r->from].lanes[f->kind];
  pthread_mutex_lock(&l->lock);
  l->waived = r->s->sealed;
  pthread_mutex_unlock(&l->lock);
}

// at_frames_io.notice. Errors are noted, and end the lane after the frame.
static void notice(void *arg, const at_frame *f) {
  receiver *r = arg;
  if (f->type == AT_FRAME_CREDIT)
    r->bad = at_status_join(r->bad, take_credit(r, f));
  else if (f->type == AT_FRAME_BEAT)
    r->s->members[r->from].bulk_bytes = f->bytes;
  else if (f->type == AT_FRAME_SOCKET)
    r->bad = at_status_join(r->bad, take_socket(r, f));
  else if (f->type == AT_FRAME_WAIVE)
    take_waiver(r, f);
  else if (f->type == AT_FRAME_LEAVE)
    r->l->left = true;
}

// Reads up to `frames` frames; true: something came.
static bool read_frames(at_stream *s, uint32_t from, at_wire_lane lane,
                        uint32_t frames, at_status *out) {
  receiver r = {s, &s->members[from].lanes[lane], from, lane, AT_OK};
  const at_frames_io io = {&r, read_lane, place, message, abandon, notice};
  bool any = false, read = true;
  for (uint32_t i = 0; i < frames && read && !out->err; i++) {
    if (r.l->left) break;
    *out = at_frames_step(&r.l->in, &io, &read);
    *out = at_status_join(*out, r.bad);
    r.bad = AT_OK;
    any |= read;
    at_tally(&s->tally.frames, read);
    at_tally(&s->tally.bare, read && s->sealed && !r.l->in.limits.seal);
  }
  return any;
}

// ---- Members that are lost
// Consumes `why`.
static void lose(at_stream *s, uint32_t member, at_status why) {
  at_stream_member *m = &s->members[member];
  at_status st = AT_FAIL(AT_UNAVAILABLE, "process %u is lost: %s", member,
                         at_status_message(why));
  at_status_free(why);
  pthread_mutex_lock(&s->lock);
  m->why = at_status_clone(st);
  atomic_store(&m->lost, true);
  pthread_mutex_unlock(&s->lock);
  for (at_wire_lane k = 0; k < AT_WIRE_LANES; k++) {
    receiver r = {s, &m->lanes[k], member, k, AT_OK};
    at_frames_end(&m->lanes[k].in,
                  &(at_frames_io){.arg = &r, .abandon = abandon});
    if (atomic_exchange(&m->lanes[k].refused, 0))
      atomic_fetch_sub(&s->num_refused, 1);
  }
  s->medium->drop(s, member);
  at_stream_wake_senders(s, member);
  s->options.sink.lost(s->options.sink.arg, member, st);
}

// This process itself is not.
static bool is_here(const at_stream *s, uint32_t member) {
  return member != s->face.me && !atomic_load(&s->members[member].lost);
}

// Reads some of a member's lanes; loses it when they are malformed or end.
static bool receive(at_stream *s, uint32_t from, at_wire_lane lane,
                    uint32_t frames) {
  if (!is_here(s, from)) return false;
  at_stream_member *m = &s->members[from];
  at_status bad = AT_OK;
  bool any = read_frames(s, from, lane, frames, &bad);
  if (bad.err)
    lose(s, from, bad);
  else if (m->lanes[AT_WIRE_CONTROL].left && m->lanes[AT_WIRE_BULK].left)
    lose(s, from, AT_FAIL(AT_UNAVAILABLE, "it has left"));
  return any;
}

// What it had sent before it ended still counts.
static void drain(at_stream *s, uint32_t member) {
  for (bool any = true; any;) {
    any = receive(s, member, AT_WIRE_CONTROL, kControlFrames);
    any |= receive(s, member, AT_WIRE_BULK, 1);
  }
}

// The medium's own signs, then silence.
static at_status check_member(at_stream *s, uint32_t member, uint64_t now_ns) {
  if (atomic_load(&s->members[member].given_up))
    return AT_FAIL(AT_UNAVAILABLE, "this process has given it up");
  AT_TRY(s->medium->check(s, member, now_ns));
  uint64_t heard = s->members[member].heard_ns;
  if (now_ns < heard || now_ns - heard < (uint64_t)s->options.stuck_ms * kMs)
    return AT_OK;
  return AT_FAIL(AT_UNAVAILABLE, "it gave no sign of life for %u ms",
                 s->options.stuck_ms);
}

// Deaths, signs of life, and beats of this process.
static void tick(at_stream *s, uint64_t now_ns) {
  // Whoever was stopped himself has not listened.
  bool slept = now_ns - s->ticked_ns > (uint64_t)s->options.stuck_ms * kMs / 2;
  s->ticked_ns = now_ns;
  for (uint32_t m = 0; m < s->face.count; m++) {
    if (!is_here(s, m)) continue;
    if (slept) s->members[m].heard_ns = AT_MAX(s->members[m].heard_ns, now_ns);
    at_status st = check_member(s, m, now_ns);
    if (st.err) drain(s, m);
    if (st.err && is_here(s, m))
      lose(s, m, st);
    else
      at_status_free(st);
  }
  if (now_ns >= s->beat_ns) {
    s->medium->beat(s);
    s->beat_ns = now_ns + (uint64_t)s->options.beat_ms * kMs;
  }
  s->tick_ns = AT_MIN(s->beat_ns, now_ns + s->medium->tick_ns);
}

// ---- The poller
// What the poller itself has written goes now.
static void push_all(at_stream *s) {
  for (uint32_t m = 0; m < s->face.count; m++) {
    for (at_wire_lane k = 0; k < AT_WIRE_LANES; k++) {
      at_stream_lane *l = &s->members[m].lanes[k];
      if (!l->unpushed) continue;
      l->unpushed = false;
      pthread_mutex_lock(&l->lock);
      s->medium->push(s, m, k);
      pthread_mutex_unlock(&l->lock);
    }
  }
}

// Is there room and credit for what was refused?
static bool has_room(at_stream *s, uint32_t to, at_wire_lane lane) {
  at_stream_lane *l = &s->members[to].lanes[lane];
  size_t need = atomic_load(&l->refused);
  if (!need) return false;
  pthread_mutex_lock(&l->lock);
  s->medium->want(s, to, lane, need, true);  // first: what comes later is told
  const at_stream_credit *c = l->credit;
  uint64_t held = l->messages - atomic_load(&c->messages);
  bool room =
      !l->taken && held < s->options.window_messages &&
      (!held || need <= s->options.window_bytes -
                            AT_MIN(s->options.window_bytes,
                                   l->bytes - atomic_load(&c->bytes))) &&
      s->medium->room(s, to, lane, false) >= need;
  pthread_mutex_unlock(&l->lock);
  return room;
}

// Tells the sink where room has come after a refusal.
static void answer_refused(at_stream *s) {
  if (!atomic_load(&s->num_refused)) return;
  const at_wire_sink *sink = &s->options.sink;
  for (uint32_t m = 0; m < s->face.count; m++) {
    for (at_wire_lane k = 0; k < AT_WIRE_LANES; k++) {
      if (!is_here(s, m) || !has_room(s, m, k)) continue;
      atomic_store(&s->members[m].lanes[k].refused, 0);
      atomic_fetch_sub(&s->num_refused, 1);
      if (sink->room) sink->room(sink->arg, m, k);
    }
  }
  push_all(s);
}

// Asked right before sleeping, and again after the bell has been armed.
bool at_stream_has_work(at_stream *s) {
  if (atomic_load(&s->stop) || atomic_load(&s->urgent) ||
      atomic_load(&s->poked))
    return true;
  if (!atomic_load(&s->num_refused)) return false;
  for (uint32_t m = 0; m < s->face.count; m++)
    for (at_wire_lane k = 0; k < AT_WIRE_LANES; k++)
      if (is_here(s, m) && has_room(s, m, k)) return true;
  return false;
}

// Small messages of all before a piece of data of each. True: something came.
static bool receive_all(at_stream *s) {
  bool any = false;
  for (uint32_t m = 0; m < s->face.count; m++)
    any |= receive(s, m, AT_WIRE_CONTROL, kControlFrames);
  push_all(s);
  for (uint32_t m = 0; m < s->face.count; m++)
    any |= receive(s, m, AT_WIRE_BULK, 1);
  push_all(s);
  return any;
}

// All that there is to do now; who polls.
static bool poll_once(at_stream *s) {
  bool any = receive_all(s);
  uint64_t now_ns = at_clock_ns();
  if (atomic_exchange(&s->urgent, false) || now_ns >= s->tick_ns)
    tick(s, now_ns);
  answer_refused(s);
  return any;
}

// Does another thread poll, or did one until just now?
static bool others_poll(at_stream *s) {
  return !atomic_load(&s->stop) &&
         (atomic_load(&s->helped) || at_clock_ns() < atomic_load(&s->aside_ns));
}

// Until somebody wants the poller, or that time.
static void stand_by(at_stream *s, uint64_t until_ns) {
  const struct timespec until = at_clock_timespec(until_ns);
  pthread_mutex_lock(&s->lock);
  if (others_poll(s))
    pthread_cond_clockwait(&s->stand_in, &s->lock, CLOCK_MONOTONIC, &until);
  pthread_mutex_unlock(&s->lock);
}

// As far as another thread polls: only now and then, if that is busy.
static void stand_in(at_stream *s) {
  stand_by(s, at_clock_ns() + s->medium->tick_ns);
  if (!atomic_load(&s->helped) || pthread_mutex_trylock(&s->polls)) return;
  polling = s;
  do {
    s->medium->sleep(s, 0);  // which finds out what there is
  } while (poll_once(s) && !atomic_load(&s->wanted));
  polling = NULL;
  pthread_mutex_unlock(&s->polls);
}

// While others poll.
static void stand_aside(at_stream *s) {
  polling = NULL;
  atomic_store(&s->aside, true);
  atomic_store(&s->called, false);
  pthread_mutex_unlock(&s->polls);
  while (others_poll(s)) {
    if (atomic_load(&s->helped))
      stand_in(s);
    else
      stand_by(s, atomic_load(&s->aside_ns));
  }
  const bool called_back = !atomic_load(&s->aside_ns);
  pthread_mutex_lock(&s->polls);
  atomic_store(&s->aside, false);
  polling = s;
  s->medium->sleep(s, 0);
  // Something has waited for it in vain: less, the next time.
  if (poll_once(s) && !called_back)
    atomic_store(&s->aside_for,
                 AT_MAX(atomic_load(&s->aside_for) / 2, (uint64_t)kLeastAside));
}

// What has come by now, as far as it is worth seeing at once. True: some has.
static bool poll_all(at_stream *s) {
  int rounds = 0;
  while (rounds < kRounds && poll_once(s)) rounds++;
  return rounds > 0;
}

void at_stream_poke(at_wire *w) {
  at_stream *s = (at_stream *)w;
  atomic_store(&s->poked, true);
  s->medium->wake(s);
}

void at_stream_help(at_wire *w, uint64_t until_ns) {
  at_stream *s = (at_stream *)w;
  if (AT_UNLIKELY(!atomic_exchange(&s->helped, true))) at_stream_poke(w);
  atomic_store(&s->wanted, true);
  pthread_mutex_lock(&s->polls);
  atomic_store(&s->wanted, false);
  polling = s;
  if (!poll_all(s) && !atomic_load(&s->poked)) {
    s->medium->sleep(s, AT_MIN(until_ns, s->tick_ns));
    poll_all(s);
  }
  atomic_store(&s->poked, false);
  polling = NULL;
  pthread_mutex_unlock(&s->polls);
}

void at_stream_help_end(at_wire *w) {
  at_stream *s = (at_stream *)w;
  pthread_mutex_lock(&s->lock);
  atomic_store(&s->helped, false);
  pthread_cond_signal(&s->stand_in);
  pthread_mutex_unlock(&s->lock);
}

// The poller keeps away from now on, for a while.
static void keep_away(at_stream *s, uint64_t ns) {
  atomic_store(&s->aside_ns, at_clock_ns() + ns);
}

// Only who looks again and again keeps the poller away: the first look takes it
// out of its sleep.
at_wire_seen at_stream_look(at_wire *w) {
  at_stream *s = (at_stream *)w;
  if (atomic_load(&s->helped)) return AT_WIRE_BUSY;
  const uint64_t ns = atomic_load(&s->aside_for);
  keep_away(s, ns);
  if (pthread_mutex_trylock(&s->polls)) {
    if (atomic_load(&s->aside)) return AT_WIRE_BUSY;
    if (!atomic_exchange(&s->called, true)) s->medium->wake(s);
    return AT_WIRE_NOTHING;
  }
  polling = s;
  bool any = poll_once(s);
  if (!any) {
    s->medium->sleep(s, 0);  // which finds out what there is
    any = poll_once(s);
  }
  polling = NULL;
  pthread_mutex_unlock(&s->polls);
  if (any && ns < kMostAside) atomic_store(&s->aside_for, ns + ns / 16);
  keep_away(s, ns);
  return any ? AT_WIRE_NEWS : AT_WIRE_NOTHING;
}

void at_stream_look_end(at_wire *w) {
  at_stream *s = (at_stream *)w;
  pthread_mutex_lock(&s->lock);
  atomic_store(&s->aside_ns, 0);
  pthread_cond_signal(&s->stand_in);
  pthread_mutex_unlock(&s->lock);
}

// Those that are lost from the beginning: the sink is told as of others.
static void tell_absent(at_stream *s) {
  for (uint32_t m = 0; m < s->face.count; m++)
    if (m != s->face.me && !is_here(s, m))
      s->options.sink.lost(s->options.sink.arg, m,
                           at_status_clone(s->members[m].why));
}

// The poller's thread, until the wire is closed.
void at_stream_poll(void *stream) {
  at_stream *s = stream;
  pthread_mutex_lock(&s->polls);
  polling = s;
  tell_absent(s);
  if (s->medium->start) s->medium->start(s);
  s->ticked_ns = at_clock_ns();
  // A member that has been met may still be waiting for another.
  for (uint32_t m = 0; m < s->face.count; m++)
    s->members[m].heard_ns = s->ticked_ns + (uint64_t)s->options.meet_ms * kMs;
  while (!atomic_load(&s->stop)) {
    polling = s;
    poll_once(s);
    if (others_poll(s))
      stand_aside(s);
    else
      s->medium->sleep(s, s->tick_ns);
  }
  polling = s;
  for (uint32_t m = 0; m < s->face.count; m++) {
    for (at_wire_lane k = 0; k < AT_WIRE_LANES; k++) {
      receiver r = {s, &s->members[m].lanes[k], m, k, AT_OK};
      at_frames_end(&r.l->in, &(at_frames_io){.arg = &r, .abandon = abandon});
    }
  }
  polling = NULL;
  pthread_mutex_unlock(&s->polls);
}
