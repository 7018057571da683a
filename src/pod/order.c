#include "pod/order.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

enum { kMostHosts = 1000, kFailed = 64 };

typedef struct key {
  uint64_t group, program, launch;
} key;

// ---- Posts
// What processes say to each other; integers as they lie in memory, since all
// of them have one build.
typedef enum saying { SAY_ASK, SAY_GO, SAYINGS } saying;
typedef struct post {
  key key;
  uint32_t saying, num_hosts;
  uint32_t hosts[kMostHosts];  // ASK: whom to tell
} post;
_Static_assert(sizeof(post) <= AT_POD_POST_BYTES, "a post fits");

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
  bool keyed;  // waits for its turn, too
  bool told;   // that it has waited for long
  uint64_t since_ns;
  key key;           // with `keyed`
  uint32_t pending;  // held launches whose results it needs
  edge *followers;
};

typedef struct turn {
  struct turn *next;
  key key;
} turn;

typedef struct ask {
  struct ask *next;
  uint32_t told;  // of the hosts
  post post;
} ask;

struct at_order {
  at_pod_hosts *hosts;
  uint32_t me, count;
  // What the wire's thread leaves, under `mail`; any thread.
  pthread_mutex_t mail;
  turn *turns, **turns_end;
  ask *asks, **asks_end;
  key failed[kFailed];
  uint32_t num_failed;
  bool leaderless;  // a process was lost
  _Atomic bool news;
  // Under `lock`.
  pthread_mutex_t lock;
  turn *next, **next_end;  // turns that are to come, the first first
  uint32_t leader;
  uint32_t dropped;  // `num_failed` when turns were last dropped
  held *first, *last;
  held **table;  // of held launches, by their event
  uint32_t slots, num_held;
};

static bool same_key(const key *a, const key *b) {
  return a->group == b->group && a->program == b->program &&
         a->launch == b->launch;
}

// ---- Launches by the event of their results
static uint32_t slot_of(const at_order *o, const at_event *e) {
  return (uint32_t)(((uintptr_t)e >> 4) * 0x9e3779b97f4a7c15ull >> 32) &
         (o->slots - 1);
}

static void table_add(at_order *o, held *h) {
  held **at = &o->table[slot_of(o, h->done)];
  h->same_slot = *at;
  *at = h;
}

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

// ---- Into the queues
static void enqueue(at_task *t, uint32_t num_devices) {
  // t is gone after the last
  for (uint32_t d = 0; d < num_devices; d++) at_launch_enqueue(t, d);
}

static void unlink_held(at_order *o, held *h) {
  table_remove(o, h);
  *(h->prev ? &h->prev->next : &o->first) = h->next;
  *(h->next ? &h->next->prev : &o->last) = h->prev;
  o->num_held--;
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
      if (--f->pending || f->keyed) continue;
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

static held *find_held(const at_order *o, const key *k) {
  for (held *h = o->first; h; h = h->next)
    if (h->keyed && same_key(&h->key, k)) return h;
  return NULL;
}

// A launch whose turn it is has nothing held before it that it needs: what it
// needs of other processes' programs had an earlier turn, and the rest follows.
static bool take_turn(at_order *o) {
  held *h = o->next ? find_held(o, &o->next->key) : NULL;
  if (!h || h->pending) return false;
  turn *t = o->next;
  o->next = t->next;
  if (!o->next) o->next_end = &o->next;
  free(t);
  release(o, h);
  return true;
}

// ---- The scheduler's part
static bool say(at_order *o, uint32_t to, const post *p, bool wait) {
  const size_t bytes =
      offsetof(post, hosts) +
      (p->saying == SAY_ASK ? p->num_hosts * sizeof *p->hosts : 0);
  at_status st = at_pod_hosts_post(o->hosts, to,
                                   (at_bytes){(const uint8_t *)p, bytes}, wait);
  // Whoever is lost needs to hear nothing.
  return at_code_take(st) != AT_RESOURCE_EXHAUSTED;
}

// Tells the processes of a launch that it is their turn. False: not all of them
// have room; *told says how far it came.
static bool tell_all(at_order *o, const key *k, const uint32_t *hosts,
                     uint32_t count, uint32_t *told, bool wait) {
  const post p = {.key = *k, .saying = SAY_GO};
  for (; *told < count; ++*told)
    if (hosts[*told] != o->me && !say(o, hosts[*told], &p, wait)) return false;
  return true;
}

static bool answer_asks(at_order *o, bool wait) {
  for (;;) {
    pthread_mutex_lock(&o->mail);
    ask *a = o->asks;
    pthread_mutex_unlock(&o->mail);
    if (!a) return true;
    if (!tell_all(o, &a->post.key, a->post.hosts, a->post.num_hosts, &a->told,
                  wait))
      return false;
    pthread_mutex_lock(&o->mail);
    o->asks = a->next;
    if (!o->asks) o->asks_end = &o->asks;
    pthread_mutex_unlock(&o->mail);
    free(a);
  }
}

// ---- Who waits for long
// Others have launched something else first, which this process has not.
static void tell_wait(const at_order *o, const held *h, uint64_t ns) {
  at_span s;
  (void)at_task_span(h->task, &s);
  at_log(
      AT_LOG_WARNING,
      "process %u holds launch %llu of %s for %llu s: process %u has not "
      "come to it%s",
      o->me, (unsigned long long)s.launch, s.name,
      (unsigned long long)(ns / 1000000000u), o->leader,
      o->next ? ", but has launched a program that this process has not" : "");
}

// The others fail with it, and so do its results.
static void end_wait(at_order *o, held *h) {
  at_span s;
  const at_hosts *face = at_pod_hosts_of(o->hosts);
  (void)at_task_span(h->task, &s);
  const at_hosts_tag tag = {
      .group = s.group, .program = s.program, .launch = s.launch};
  uint32_t others[kMostHosts], n = 0;
  for (uint32_t i = 0; i < s.num_hosts; i++)
    if (s.hosts[i] != o->me) others[n++] = s.hosts[i];
  (face->fail)(face->arg, &tag, others, n,
               "its turn did not come in time (ATOLL_POD_DEADLINE)");
  release(o, h);
}

static void look_at_held(at_order *o) {
  uint64_t tell_ns, end_ns;
  const uint64_t now = at_clock_ns();
  at_pod_hosts_patience(o->hosts, &tell_ns, &end_ns);
  for (held *h = o->first, *next; h; h = next) {
    next = h->next;
    if (!h->keyed || h->pending) continue;
    const uint64_t ns = now - h->since_ns;
    if (!h->told && ns >= tell_ns) {
      h->told = true;
      tell_wait(o, h, ns);
    }
    if (!end_ns || ns < end_ns) continue;
    end_wait(o, h);
    next = o->first;  // others went with it
  }
}

// ---- What has come
static void take_turns(at_order *o) {
  pthread_mutex_lock(&o->mail);
  if (o->turns) {
    *o->next_end = o->turns;
    o->next_end = o->turns_end;
    o->turns = NULL;
    o->turns_end = &o->turns;
  }
  pthread_mutex_unlock(&o->mail);
}

static bool has_failed(at_order *o, const key *k) {
  bool found = false;
  pthread_mutex_lock(&o->mail);
  uint32_t n = AT_MIN(o->num_failed, (uint32_t)kFailed);
  for (uint32_t i = 0; i < n && !found; i++) found = same_key(&o->failed[i], k);
  pthread_mutex_unlock(&o->mail);
  return found;
}

// Turns of launches that have failed elsewhere are nobody's any more.
static void drop_failed(at_order *o) {
  pthread_mutex_lock(&o->mail);
  const uint32_t failed = o->num_failed;
  pthread_mutex_unlock(&o->mail);
  if (failed == o->dropped) return;
  o->dropped = failed;
  for (turn **at = &o->next; *at;) {
    turn *t = *at;
    if (has_failed(o, &t->key) && !find_held(o, &t->key)) {
      *at = t->next;
      free(t);
    } else {
      at = &t->next;
    }
  }
  o->next_end = &o->next;
  while (*o->next_end) o->next_end = &(*o->next_end)->next;
}

static int by_key(const void *a, const void *b) {
  const key *x = &(*(held *const *)a)->key, *y = &(*(held *const *)b)->key;
  const uint64_t v[3] = {x->group, x->program, x->launch};
  const uint64_t w[3] = {y->group, y->program, y->launch};
  for (int i = 0; i < 3; i++)
    if (v[i] != w[i]) return v[i] < w[i] ? -1 : 1;
  return 0;
}

// Everything goes on, by the names of launches, which are alike everywhere.
static void release_all(at_order *o) {
  while (o->first) {
    uint32_t n = 0;
    held **all = malloc(o->num_held * sizeof *all);
    for (held *h = o->first; h && all; h = h->next)
      if (h->keyed && !h->pending) all[n++] = h;
    if (n) qsort(all, n, sizeof *all, by_key);
    for (uint32_t i = 0; i < n; i++) release(o, all[i]);
    free(all);
    if (!n) release(o, o->first);  // no memory: in the order of launching
  }
}

// The scheduler is lost.
static void find_leader(at_order *o) {
  uint32_t h = o->leader;
  while (h < o->me && !at_pod_hosts_has(o->hosts, h)) h++;
  if (h == o->leader) return;
  at_log(AT_LOG_INFO,
         "process %u orders the launches of the job; process %u is lost", h,
         o->leader);
  o->leader = h;
  for (turn *t = o->next, *next; t; t = next) {
    next = t->next;
    free(t);
  }
  o->next = NULL;
  o->next_end = &o->next;
  release_all(o);
}

// Under the lock.
static void go_on(at_order *o, bool wait) {
  pthread_mutex_lock(&o->mail);
  bool lost = o->leaderless;
  o->leaderless = false;
  pthread_mutex_unlock(&o->mail);
  if (lost) find_leader(o);
  take_turns(o);
  drop_failed(o);
  while (take_turn(o)) continue;
  (void)answer_asks(o, wait);
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
static at_status check_post(const at_order *o, at_bytes body, post *p) {
  const size_t head = offsetof(post, hosts);
  if (body.len >= head && body.len <= sizeof *p) {
    memcpy(p, body.ptr, body.len);
    const size_t n = p->saying == SAY_ASK ? p->num_hosts : 0;
    bool good = p->saying < SAYINGS && n <= kMostHosts &&
                body.len == head + n * sizeof *p->hosts;
    for (size_t i = 0; i < n && good; i++) good = p->hosts[i] < o->count;
    if (good) return AT_OK;
  }
  return AT_FAIL(AT_INVALID_ARGUMENT, "a malformed post of %zu bytes",
                 body.len);
}

static bool keep_turn(at_order *o, const key *k) {
  turn *t = malloc(sizeof *t);
  if (!t) return false;
  *t = (turn){NULL, *k};
  pthread_mutex_lock(&o->mail);
  *o->turns_end = t;
  o->turns_end = &t->next;
  pthread_mutex_unlock(&o->mail);
  return true;
}

static bool keep_ask(at_order *o, const post *p) {
  ask *a = malloc(sizeof *a);
  if (!a) return false;
  *a = (ask){NULL, 0, *p};
  pthread_mutex_lock(&o->mail);
  *o->asks_end = a;
  o->asks_end = &a->next;
  pthread_mutex_unlock(&o->mail);
  return true;
}

static void on_heard(void *arg, uint32_t from, at_bytes body) {
  at_order *o = arg;
  post p;
  at_status st = check_post(o, body, &p);
  if (!st.err && !(p.saying == SAY_GO ? keep_turn(o, &p.key) : keep_ask(o, &p)))
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for the order of launches");
  if (st.err)
    at_log(AT_LOG_ERROR,
           "what process %u said of the order of launches is lost: %s", from,
           at_status_message(st));
  at_status_free(st);
  atomic_store(&o->news, true);
  hear_news(o, false);
}

static void on_room(void *arg) {
  at_order *o = arg;
  atomic_store(&o->news, true);
  hear_news(o, false);
}

static void on_failed(void *arg, const at_hosts_tag *tag) {
  at_order *o = arg;
  pthread_mutex_lock(&o->mail);
  o->failed[o->num_failed++ % kFailed] =
      (key){tag->group, tag->program, tag->launch};
  pthread_mutex_unlock(&o->mail);
  on_room(o);
}

static void on_tick(void *arg) {
  at_order *o = arg;
  if (pthread_mutex_trylock(&o->lock)) return;  // it is called again
  look_at_held(o);
  at_pod_hosts_watch(o->hosts, o->first != NULL);
  pthread_mutex_unlock(&o->lock);
  hear_news(o, true);
}

static void on_lost(void *arg, uint32_t host) {
  at_order *o = arg;
  (void)host;
  pthread_mutex_lock(&o->mail);
  o->leaderless = true;
  pthread_mutex_unlock(&o->mail);
  on_room(o);
}

// ---- Launches
static bool follow(held *h, held *needed) {
  edge *e = malloc(sizeof *e);
  if (!e) return false;
  *e = (edge){needed->followers, h};
  needed->followers = e;
  h->pending++;
  return true;
}

// *out NULL: it needs nothing that is held, nor a turn. Without memory a launch
// goes at once, in the order of its process.
static held *hold(at_order *o, at_task *t, const at_launch *in,
                  const key *turn_of) {
  held *h = calloc(1, sizeof *h);
  const uint32_t n = in->num_chips ? in->num_chips : 1;
  if (!h) return NULL;
  for (size_t i = 0; i < (size_t)n * in->num_args && o->first; i++) {
    held *needed = table_find(o, at_buffer_ready(in->args[i]));
    if (needed && !follow(h, needed)) break;
  }
  if (!h->pending && !turn_of) return free(h), NULL;
  h->task = t;
  h->done = at_event_retain(at_task_done(t));
  h->num_devices = n;
  h->keyed = turn_of != NULL;
  h->since_ns = at_clock_ns();
  if (turn_of) h->key = *turn_of;
  if (!o->first) at_pod_hosts_watch(o->hosts, true);
  h->prev = o->last;
  *(o->last ? &o->last->next : &o->first) = h;
  o->last = h;
  if (++o->num_held > o->slots)
    table_grow(o);  // with h
  else
    table_add(o, h);
  return h;
}

// The scheduler's own launches have their turn now, and so have those whose
// turn will not be told.
static bool decide(at_order *o, const at_span *s, const key *k) {
  uint32_t told = 0;
  if (has_failed(o, k)) return true;
  if (o->leader == o->me)
    return tell_all(o, k, s->hosts, s->num_hosts, &told, true);
  bool led = false;
  for (uint32_t i = 0; i < s->num_hosts; i++) led |= s->hosts[i] == o->leader;
  if (led || s->hosts[0] != o->me) return false;
  post p = {.key = *k, .saying = SAY_ASK, .num_hosts = s->num_hosts};
  memcpy(p.hosts, s->hosts, s->num_hosts * sizeof *p.hosts);
  (void)say(o, o->leader, &p, true);
  return false;
}

void at_order_enqueue(at_order *o, at_task *t, const at_launch *in) {
  at_span s;
  key k;
  pthread_mutex_lock(&o->lock);
  const bool spans = at_task_span(t, &s) && s.num_hosts <= kMostHosts;
  if (spans) k = (key){s.group, s.program, s.launch};
  const bool waits = spans && !decide(o, &s, &k);
  const uint32_t n = in->num_chips ? in->num_chips : 1;
  held *h = waits || o->first ? hold(o, t, in, waits ? &k : NULL) : NULL;
  if (!h) enqueue(t, n);
  atomic_store(&o->news, false);
  go_on(o, true);
  pthread_mutex_unlock(&o->lock);
  hear_news(o, true);
}

uint32_t at_order_held(at_order *o) {
  pthread_mutex_lock(&o->lock);
  uint32_t n = o->num_held;
  pthread_mutex_unlock(&o->lock);
  hear_news(o, true);
  return n;
}

// ---- Made and freed
at_status at_order_create(at_pod_hosts *hosts, at_order **out) {
  enum { kSlots = 64 };
  const at_hosts *face = at_pod_hosts_of(hosts);
  at_order *o = calloc(1, sizeof *o);
  held **table = calloc(kSlots, sizeof *table);
  if (!o || !table) {
    free(o);
    free(table);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a scheduler");
  }
  o->hosts = hosts;
  o->me = face->me;
  o->count = face->count;
  o->turns_end = &o->turns;
  o->asks_end = &o->asks;
  o->next_end = &o->next;
  o->table = table;
  o->slots = kSlots;
  pthread_mutex_init(&o->mail, NULL);
  pthread_mutex_init(&o->lock, NULL);
  const at_pod_listener listener = {o,         on_heard, on_room,
                                    on_failed, on_lost,  on_tick};
  at_pod_hosts_listen(hosts, &listener);
  return *out = o, AT_OK;
}

static void free_turns(turn *t) {
  for (turn *next; t; t = next) {
    next = t->next;
    free(t);
  }
}

void at_order_destroy(at_order *o) {
  if (!o) return;
  at_pod_hosts_listen(o->hosts, NULL);
  pthread_mutex_lock(&o->lock);
  release_all(o);
  pthread_mutex_unlock(&o->lock);
  free_turns(o->turns);
  free_turns(o->next);
  for (ask *a = o->asks, *next; a; a = next) {
    next = a->next;
    free(a);
  }
  free(o->table);
  pthread_mutex_destroy(&o->mail);
  pthread_mutex_destroy(&o->lock);
  free(o);
}
