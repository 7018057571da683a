#include "pod/order.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "pod/turns.h"

enum { kFailed = 64 };

// ---- What is held
typedef struct held held;
typedef struct edge {
  struct edge *next;
  held *follower;
} edge;

// A launch that is not in the queues yet.
struct held {
  held *next, *prev;  // of those in order of launching
  held *same_slot;    // in the table of events
  at_task *task;
  at_event *done;  // retained; of its outputs
  uint32_t num_devices;
  uint64_t since_ns;
  bool told;      // that it has waited for long
  at_turn *turn;  // NULL: it waits for none
  // Of all the turns that it waits for, with what it needs; 0: of several.
  uint64_t group;
  uint32_t pending;  // held launches whose results it needs
  edge *followers;
};

typedef struct letter {
  struct letter *next;
  uint32_t peer;  // who sent it, or whom it is for
  at_turn_post post;
} letter;

typedef struct letters {
  letter *first, **end;
} letters;

struct at_order {
  at_pod_hosts *hosts;
  uint32_t me;
  // What the wire's thread leaves, under `mail`; any thread.
  pthread_mutex_t mail;
  letters heard;
  at_turn_key failed[kFailed];  // the last ones
  uint32_t num_failed;
  bool lost;  // a process was
  _Atomic bool news;
  // Under `lock`.
  pthread_mutex_t lock;
  at_turns *turns;
  // Sent before anything else is.
  letters out;    // for which there was no room, in order
  bool may_wait;  // for room
  bool any_lost;  // a process is
  bool leaving;   // this one is
  pid_t process;  // the one that made it; one that is forked of it has none
  pthread_cond_t none_held;
  uint32_t settled;  // `num_failed` when those were last looked at
  held *first, *last;
  held **table;  // of held launches, by their event
  uint32_t slots, num_held;
};

static void add_letter(letters *l, letter *one) {
  one->next = NULL;
  *l->end = one;
  l->end = &one->next;
}

// NULL: none.
static letter *take_letter(letters *l) {
  letter *one = l->first;
  if (one && !(l->first = one->next)) l->end = &l->first;
  return one;
}

static void free_letters(letters *l) {
  for (letter *one; (one = take_letter(l));) free(one);
}

static at_hosts_tag tag_of(const at_turn_key *k) {
  return (at_hosts_tag){
      .group = k->group, .program = k->program, .launch = k->launch};
}

// ---- Launches by the event of their results
// Events are aligned, so the low bits say nothing.
static uint32_t slot_of(const at_order *o, const at_event *e) {
  return (uint32_t)(((uintptr_t)e >> 4) * 0x9e3779b97f4a7c15ull >> 32) &
         (o->slots - 1);
}

static void table_add(at_order *o, held *h) {
  held **at = &o->table[slot_of(o, h->done)];
  h->same_slot = *at;
  *at = h;
}

// The held launch that will fire the event; NULL: none is held.
static held *table_find(const at_order *o, const at_event *e) {
  held *h = o->table[slot_of(o, e)];
  while (h && h->done != e) h = h->same_slot;
  return h;
}

static void table_remove(at_order *o, held *h) {
  held **at = &o->table[slot_of(o, h->done)];
  while (*at != h) at = &(*at)->same_slot;
  *at = h->same_slot;
}

// Without memory the chains only get longer.
static void table_grow(at_order *o) {
  held **wide = calloc((size_t)o->slots * 2, sizeof *wide);
  if (!wide) return;
  free(o->table);
  o->table = wide;
  o->slots *= 2;
  for (held *h = o->first; h; h = h->next) table_add(o, h);
}

// ---- A launch fails
// On all of its processes: it would wait for this one, or for its turn.
// Consumes `why`.
static void fail_everywhere(const at_order *o, const at_span *s,
                            at_status why) {
  const at_hosts *face = at_pod_hosts_of(o->hosts);
  const at_hosts_tag tag =
      tag_of(&(at_turn_key){s->group, s->program, s->launch});
  (face->fail)(face->arg, &tag, s->hosts, s->num_hosts, why);
  at_status_free(why);
}

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for the order of launches");
}

// Consumes `why`.
static void fail_held(const at_order *o, const held *h, at_status why) {
  at_span s;
  if (at_task_span(h->task, &s))
    fail_everywhere(o, &s, why);
  else
    at_status_free(why);
}

// ---- Posts
// True: it is in the wire, or of no use any more.
static bool post(at_order *o, const letter *l, bool wait) {
  at_status st = at_pod_hosts_post(
      o->hosts, l->peer, (at_bytes){(const uint8_t *)&l->post, sizeof l->post},
      wait);
  // Whoever is lost needs to hear nothing.
  return at_code_take(st) != AT_RESOURCE_EXHAUSTED;
}

// As far as there is room.
static void send_out(at_order *o) {
  while (o->out.first && post(o, o->out.first, o->may_wait))
    free(take_letter(&o->out));
}

// Called by `turns`.
static void send_post(void *arg, uint32_t to, const at_turn_post *p) {
  at_order *o = arg;
  letter one = {.peer = to, .post = *p};
  send_out(o);
  if (!o->out.first && post(o, &one, o->may_wait)) return;
  letter *kept = malloc(sizeof *kept);
  if (kept) {
    *kept = one;
    add_letter(&o->out, kept);
    return;
  }
  const at_turn *t = at_turns_find(o->turns, &p->key);
  const held *h = t ? at_turn_user(t) : NULL;
  at_log(AT_LOG_ERROR, "no memory to tell process %u of the order of launches",
         to);
  if (h) fail_held(o, h, no_memory());
}

// ---- Into the queues
static void enqueue(at_task *t, uint32_t num_devices) {
  // t is gone after the last
  for (uint32_t d = 0; d < num_devices; d++) at_launch_enqueue(t, d);
}

// Wakes who waits for the last one to go.
static void unlink_held(at_order *o, held *h) {
  table_remove(o, h);
  *(h->prev ? &h->prev->next : &o->first) = h->next;
  *(h->next ? &h->next->prev : &o->last) = h->prev;
  AT_ASSERT(o->num_held);
  o->num_held--;
  AT_ASSERT(!o->first == !o->num_held && !o->first == !o->last);
  if (o->leaving && !o->first) pthread_cond_signal(&o->none_held);
}

// And those that waited only for its results, and so on: a work list, in which
// who is ready first goes first.
static void release(at_order *o, held *h) {
  held *end = h;
  unlink_held(o, h);
  h->next = NULL;
  while (h) {
    enqueue(h->task, h->num_devices);
    for (edge *e = h->followers, *next; e; e = next) {
      next = e->next;
      held *f = e->follower;
      free(e);
      AT_ASSERT(f->pending);
      if (--f->pending) continue;
      if (f->turn) {
        if (!at_turn_is_ready(f->turn)) at_turns_ready(o->turns, f->turn);
        continue;
      }
      unlink_held(o, f);
      f->next = NULL;
      end->next = f;
      end = f;
    }
    held *done = h;
    h = h->next;
    at_event_release(done->done);
    free(done);
  }
}

// It goes as soon as it has what it needs.
static void end_turn(at_order *o, held *h) {
  AT_ASSERT(h->turn);
  at_turns_end(o->turns, h->turn);
  h->turn = NULL;
  if (!h->pending) release(o, h);
}

// What a launch needs has had its turn before it (pod/turns.h), unless its
// processes do not agree on what it needs: then it waits, and is told of.
static bool take_turn(at_order *o) {
  at_turn *t = at_turns_next(o->turns);
  held *h = t ? at_turn_user(t) : NULL;
  if (!h || h->pending) return false;
  end_turn(o, h);
  return true;
}

// ---- Who waits for long
// For people: who is missing, as far as this process can know.
static void tell_wait(const at_order *o, const held *h, uint64_t ns) {
  at_span s;
  const uint32_t missing = at_turn_missing(o->turns, h->turn);
  (void)at_task_span(h->task, &s);
  if (missing == UINT32_MAX)
    at_log(AT_LOG_WARNING,
           "process %u holds launch %llu of %s for %llu s: not all of its "
           "processes have come to it; process 0 tells which",
           o->me, (unsigned long long)s.launch, s.name,
           (unsigned long long)(ns / 1000000000u));
  else
    at_log(AT_LOG_WARNING,
           "process %u holds launch %llu of %s for %llu s: process %u is "
           "there, but has not come to it",
           o->me, (unsigned long long)s.launch, s.name,
           (unsigned long long)(ns / 1000000000u), missing);
}

// Every tick: says what has waited long, and fails what has waited too long.
static void look_at_held(at_order *o) {
  uint64_t tell_ns, end_ns;
  const uint64_t now = at_clock_ns();
  at_pod_hosts_patience(o->hosts, &tell_ns, &end_ns);
  for (held *h = o->first, *next; h; h = next) {
    next = h->next;
    if (!h->turn || h->pending) continue;
    const uint64_t ns = now - h->since_ns;
    if (!h->told && ns >= tell_ns) {
      h->told = true;
      tell_wait(o, h, ns);
    }
    if (!end_ns || ns < end_ns) continue;
    fail_held(o, h,
              AT_FAIL(AT_DEADLINE_EXCEEDED,
                      "its turn did not come in time "
                      "(ATOLL_POD_DEADLINE)"));
    end_turn(o, h);
    next = o->first;  // others went with it
  }
}

// ---- What has come
// What the poller has left in `heard`. Malformed posts are dropped.
static void hear_letters(at_order *o) {
  for (;;) {
    pthread_mutex_lock(&o->mail);
    letter *l = take_letter(&o->heard);
    pthread_mutex_unlock(&o->mail);
    if (!l) return;
    at_status st =
        at_turns_hear(o->turns, l->peer,
                      (at_bytes){(const uint8_t *)&l->post, sizeof l->post});
    if (st.err)
      at_log(AT_LOG_ERROR,
             "what process %u said of the order of launches is lost: %s",
             l->peer, at_status_message(st));
    at_status_free(st);
    free(l);
  }
}

// Among the last kFailed launches that another process has failed.
static bool has_failed(at_order *o, const at_turn_key *k) {
  bool found = false;
  pthread_mutex_lock(&o->mail);
  const uint32_t n = AT_MIN(o->num_failed, (uint32_t)kFailed);
  for (uint32_t i = 0; i < n && !found; i++)
    found = at_turn_key_equal(&o->failed[i], k);
  pthread_mutex_unlock(&o->mail);
  return found;
}

// Of its processes one is gone.
static bool has_lost(const at_order *o, const at_span *s) {
  for (uint32_t i = 0; i < s->num_hosts && o->any_lost; i++)
    if (!at_pod_hosts_has(o->hosts, s->hosts[i])) return true;
  return false;
}

// Failed launches have no turn to wait for.
static void settle_failed(at_order *o) {
  at_turn_key keys[kFailed];
  pthread_mutex_lock(&o->mail);
  const uint32_t failed = o->num_failed;
  memcpy(keys, o->failed, sizeof keys);
  pthread_mutex_unlock(&o->mail);
  if (failed == o->settled) return;
  o->settled = failed;
  for (uint32_t i = 0; i < AT_MIN(failed, (uint32_t)kFailed); i++) {
    at_turn *t = at_turns_find(o->turns, &keys[i]);
    held *h = t ? at_turn_user(t) : NULL;
    if (h)
      end_turn(o, h);
    else if (t)
      at_turns_end(o->turns, t);
  }
}

// Launches over a lost process go now, to fail in their exchanges; process 0's
// turns are agreed on by the rest.
static void settle_lost(at_order *o) {
  at_span s;
  pthread_mutex_lock(&o->mail);
  const bool lost = o->lost;
  o->lost = false;
  pthread_mutex_unlock(&o->mail);
  if (!lost) return;
  o->any_lost = true;
  for (held *h = o->first, *next; h; h = next) {
    next = h->next;
    if (!h->turn || !at_task_span(h->task, &s) || !has_lost(o, &s)) continue;
    end_turn(o, h);
    next = o->first;  // others went with it
  }
  if (!at_pod_hosts_has(o->hosts, 0)) at_turns_lost(o->turns, 0);
}

// Launches that a process which leaves has not come to never come.
static void settle_left(at_order *o) {
  for (held *h = o->first, *next; h; h = next) {
    next = h->next;
    const uint32_t host =
        h->turn ? at_turns_hopeless(o->turns, h->turn) : UINT32_MAX;
    if (host == UINT32_MAX) continue;
    fail_held(o, h, AT_FAIL(AT_ABORTED, "process %u ends without it", host));
    end_turn(o, h);
    next = o->first;  // others went with it
  }
}

// Under the lock. wait: for room for what is said.
static void go_on(at_order *o, bool wait) {
  o->may_wait = wait;
  send_out(o);
  hear_letters(o);
  settle_failed(o);
  settle_lost(o);
  settle_left(o);
  while (take_turn(o)) continue;
}

// Whoever has the lock looks again before and after he gives it back, so that
// nobody waits for it with news.
static void hear_news(at_order *o, bool wait) {
  while (atomic_load(&o->news)) {
    if (pthread_mutex_trylock(&o->lock)) return;
    atomic_store(&o->news, false);
    go_on(o, wait);
    pthread_mutex_unlock(&o->lock);
  }
}

// ---- The wire's thread
// at_pod_listener.heard, on the poller: leaves a letter and lets whoever has
// the lock look.
static void on_heard(void *arg, uint32_t from, at_bytes body) {
  at_order *o = arg;
  letter *l = malloc(sizeof *l);
  if (!l || body.len != sizeof l->post) {
    at_log(AT_LOG_ERROR,
           "what process %u said of the order of launches is lost: %s", from,
           l ? "it is malformed" : "no memory");
    free(l);
    return;
  }
  l->peer = from;
  memcpy(&l->post, body.ptr, sizeof l->post);
  pthread_mutex_lock(&o->mail);
  add_letter(&o->heard, l);
  pthread_mutex_unlock(&o->mail);
  atomic_store(&o->news, true);
  hear_news(o, false);
}

// at_pod_listener.room.
static void on_room(void *arg) {
  at_order *o = arg;
  atomic_store(&o->news, true);
  hear_news(o, false);
}

// at_pod_listener.failed.
static void on_failed(void *arg, const at_hosts_tag *tag) {
  at_order *o = arg;
  pthread_mutex_lock(&o->mail);
  o->failed[o->num_failed++ % kFailed] =
      (at_turn_key){tag->group, tag->program, tag->launch};
  pthread_mutex_unlock(&o->mail);
  on_room(o);
}

// at_pod_listener.lost.
static void on_lost(void *arg, uint32_t host) {
  at_order *o = arg;
  (void)host;
  pthread_mutex_lock(&o->mail);
  o->lost = true;
  pthread_mutex_unlock(&o->mail);
  on_room(o);
}

// at_pod_listener.tick, on the watcher's thread, which may wait.
static void on_tick(void *arg) {
  at_order *o = arg;
  if (pthread_mutex_trylock(&o->lock)) return;  // it is called again
  look_at_held(o);
  at_pod_hosts_watch(o->hosts, o->first != NULL);
  pthread_mutex_unlock(&o->lock);
  hear_news(o, true);
}

// ---- Launches
// h needs a result of `needed`. False: no memory.
static bool follow(held *h, held *needed) {
  edge *e = malloc(sizeof *e);
  if (!e) return false;
  *e = (edge){needed->followers, h};
  needed->followers = e;
  const bool ready = !needed->turn || at_turn_is_ready(needed->turn);
  const uint64_t group = ready ? needed->group : 0;
  h->group = h->pending++ && h->group != group ? 0 : group;
  return true;
}

// In the order of launching, and in the table by its event.
static void list(at_order *o, held *h) {
  if (!o->first) at_pod_hosts_watch(o->hosts, true);
  h->prev = o->last;
  *(o->last ? &o->last->next : &o->first) = h;
  o->last = h;
  if (++o->num_held > o->slots)
    table_grow(o);  // with h
  else
    table_add(o, h);
}

// This process is among the span's hosts.
static bool begin_turn(at_order *o, held *h, const at_span *s) {
  const at_turn_key k = {s->group, s->program, s->launch};
  uint32_t me = 0;
  while (s->hosts[me] != o->me) me++;
  h->turn = at_turns_begin(o->turns, &k, s->hosts, s->num_hosts, me, h);
  return h->turn != NULL;
}

// False: it waits for nothing, or there is no memory to hold it.
static bool hold(at_order *o, at_task *t, const at_launch *in,
                 const at_span *turn_of) {
  held *h = calloc(1, sizeof *h);
  const uint32_t n = in->num_chips ? in->num_chips : 1;
  bool good = h != NULL;
  for (size_t i = 0; i < (size_t)n * in->num_args && good && o->first; i++) {
    held *needed = table_find(o, at_buffer_ready(in->args[i]));
    if (needed) good = follow(h, needed);
  }
  if (good && turn_of) good = begin_turn(o, h, turn_of);
  if (!good && turn_of) fail_everywhere(o, turn_of, no_memory());
  // A follower that is listed waits; what it needs goes on without it.
  if (!h || (!h->pending && !h->turn)) return free(h), false;
  h->task = t;
  h->done = at_event_retain(at_task_done(t));
  h->num_devices = n;
  h->since_ns = at_clock_ns();
  list(o, h);
  if (!h->turn) return true;
  const bool early = !h->pending || h->group == turn_of->group;
  h->group = turn_of->group;
  if (early) at_turns_ready(o->turns, h->turn);
  return true;
}

// A launch of this process alone goes at once, unless it needs what is held.
void at_order_enqueue(at_order *o, at_task *t, const at_launch *in) {
  at_span s;
  pthread_mutex_lock(&o->lock);
  o->may_wait = true;
  const bool spans =
      at_task_span(t, &s) && !has_lost(o, &s) &&
      !has_failed(o, &(at_turn_key){s.group, s.program, s.launch});
  const bool held = (spans || o->first) && hold(o, t, in, spans ? &s : NULL);
  if (!held) enqueue(t, in->num_chips ? in->num_chips : 1);
  atomic_store(&o->news, false);
  go_on(o, true);
  pthread_mutex_unlock(&o->lock);
  hear_news(o, true);
}

// Also hears what has come meanwhile, so that a caller who polls sees the
// number fall.
uint32_t at_order_held(at_order *o) {
  pthread_mutex_lock(&o->lock);
  uint32_t n = o->num_held;
  pthread_mutex_unlock(&o->lock);
  hear_news(o, true);
  return n;
}

// ---- Made and freed
// Listens to the hosts from here on.
at_status at_order_create(at_pod_hosts *hosts, at_order **out) {
  enum { kSlots = 64 };
  const at_hosts *face = at_pod_hosts_of(hosts);
  at_order *o = calloc(1, sizeof *o);
  held **table = calloc(kSlots, sizeof *table);
  at_turns *turns = at_turns_create(face->me, face->count, send_post, o);
  if (!o || !table || !turns) {
    free(o);
    free(table);
    at_turns_destroy(turns);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a scheduler");
  }
  o->hosts = hosts;
  o->me = face->me;
  o->process = getpid();
  o->heard.end = &o->heard.first;
  o->out.end = &o->out.first;
  o->turns = turns;
  o->table = table;
  o->slots = kSlots;
  pthread_mutex_init(&o->mail, NULL);
  pthread_mutex_init(&o->lock, NULL);
  at_clock_cond_init(&o->none_held);
  const at_pod_listener listener = {o,         on_heard, on_room,
                                    on_failed, on_lost,  on_tick};
  at_pod_hosts_listen(hosts, &listener);
  return *out = o, AT_OK;
}

// Has every launch been announced to the others?
static bool all_ready(const at_order *o) {
  for (const held *h = o->first; h; h = h->next)
    if (h->turn && !at_turn_is_ready(h->turn)) return false;
  return true;
}

// What is held goes on: the others may still come to it. But two processes that
// leave, each with a launch that the other has not made, wait for nothing: that
// this one makes no more is said once what it has made is, or soon.
static void leave(at_order *o) {
  enum { kSoonMs = 2000, kLookMs = 50, kMs = 1000000 };
  const uint64_t soon = at_clock_ns() + (uint64_t)kSoonMs * kMs;
  bool told = false;
  pthread_mutex_lock(&o->lock);
  o->leaving = true;
  while (o->first) {
    const uint64_t now = at_clock_ns(), until = now + (uint64_t)kLookMs * kMs;
    const struct timespec t = at_clock_timespec(until);
    o->may_wait = true;
    if (!told && (all_ready(o) || now >= soon)) {
      told = true;
      at_turns_leave(o->turns);
    }
    atomic_store(&o->news, false);
    go_on(o, true);
    if (o->first) pthread_cond_timedwait(&o->none_held, &o->lock, &t);
  }
  pthread_mutex_unlock(&o->lock);
}

// A forked child has none of its threads, and only frees.
void at_order_destroy(at_order *o) {
  if (!o) return;
  if (o->process == getpid()) leave(o);
  at_pod_hosts_listen(o->hosts, NULL);
  free_letters(&o->heard);
  free_letters(&o->out);
  at_turns_destroy(o->turns);
  free(o->table);
  pthread_mutex_destroy(&o->mail);
  pthread_mutex_destroy(&o->lock);
  pthread_cond_destroy(&o->none_held);
  free(o);
}
