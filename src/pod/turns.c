#include "pod/turns.h"

#include <stdlib.h>
#include <string.h>

#include "base/verify.h"

enum { kNowhere = UINT32_MAX, kLooked = 64 };

typedef struct turn_list {
  at_turn *first, *last;
} turn_list;

struct at_turn {
  at_turn *same_slot;
  at_turn_key key;
  uint64_t time;  // the latest that was proposed, as far as it is known
  uint64_t at;    // it comes no earlier; in the heap
  uint8_t heard[AT_TURN_ROUNDS];  // bit `step` of a round
  const uint32_t *hosts;          // NULL: not launched here
  uint32_t num_hosts, me;
  uint32_t phase;   // rounds of each of both halves
  uint32_t rounds;  // that were sent
  bool ready, known;
  uint32_t place;  // in the heap
  // Turns that the first process gives.
  uint32_t came;         // bit of a process; the first process's own is `ready`
  at_turn *next, *prev;  // of those that wait for it, or were given
  turn_list *list;
  void *user;
};

struct at_turns {
  uint32_t me, hosts;
  void (*send)(void *arg, uint32_t to, const at_turn_post *post);
  void *arg;
  // The first process gives turns: to which of them came, in order, and which
  // of those have been given.
  bool given_by_first, told_other;
  bool leaves;           // this one: it says so once turns are not given
  bool *left, any_left;  // processes
  turn_list came, given;
  uint64_t clock;
  at_turn **table;  // by key
  uint32_t slots, count;
  at_turn **heap;  // of what has a time, the earliest first
  uint32_t waiting, room;
};

// ---- By key
// Where the chain of the key begins.
static at_turn **slot_of(const at_turns *t, const at_turn_key *k) {
  return &t->table[at_hash(AT_HASH_SEED, k, sizeof *k) & (t->slots - 1)];
}

// NULL: unknown.
at_turn *at_turns_find(const at_turns *t, const at_turn_key *k) {
  at_turn *u = *slot_of(t, k);
  while (u && !at_turn_key_equal(&u->key, k)) u = u->same_slot;
  return u;
}

// Without memory the chains only get longer.
static void grow_table(at_turns *t) {
  at_turn **old = t->table, **wide = calloc((size_t)t->slots * 2, sizeof *wide);
  const uint32_t slots = t->slots;
  if (!wide) return;
  t->table = wide;
  t->slots *= 2;
  for (uint32_t i = 0; i < slots; i++)
    for (at_turn *u = old[i], *next; u; u = next) {
      next = u->same_slot;
      at_turn **at = slot_of(t, &u->key);
      u->same_slot = *at;
      *at = u;
    }
  free(old);
}

// NULL: no memory.
static at_turn *find_or_add(at_turns *t, const at_turn_key *k) {
  at_turn *u = at_turns_find(t, k);
  if (u || !(u = calloc(1, sizeof *u))) return u;
  if (++t->count > t->slots) grow_table(t);
  at_turn **at = slot_of(t, k);
  u->key = *k;
  u->place = kNowhere;
  u->same_slot = *at;
  return *at = u;
}

// ---- By time
// By time, then by key: all processes sort equal times alike.
static bool before(const at_turn *a, const at_turn *b) {
  const uint64_t v[] = {a->at, a->key.group, a->key.program, a->key.launch};
  const uint64_t w[] = {b->at, b->key.group, b->key.program, b->key.launch};
  for (size_t i = 0; i < AT_LEN(v); i++)
    if (v[i] != w[i]) return v[i] < w[i];
  return false;
}

static void put(at_turns *t, at_turn *u, uint32_t place) {
  t->heap[place] = u;
  u->place = place;
}

// Towards the root while it is earlier than its parent.
static void sift_up(at_turns *t, at_turn *u) {
  uint32_t i = u->place;
  for (; i && before(u, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
    put(t, t->heap[(i - 1) / 2], i);
  put(t, u, i);
}

// Away from the root while a child is earlier.
static void sift_down(at_turns *t, at_turn *u) {
  uint32_t i = u->place;
  for (uint32_t next; (next = 2 * i + 1) < t->waiting; i = next) {
    if (next + 1 < t->waiting && before(t->heap[next + 1], t->heap[next]))
      next++;
    if (!before(t->heap[next], u)) break;
    put(t, t->heap[next], i);
  }
  put(t, u, i);
}

// No turn is earlier than its parent, and each knows where it is. Only of small
// heaps, as it takes as long as they are large.
static bool is_heap(const at_turns *t) {
  for (uint32_t i = 0; i < t->waiting && t->waiting <= kLooked; i++)
    if (t->heap[i]->place != i ||
        (i && before(t->heap[i], t->heap[(i - 1) / 2])))
      return false;
  return true;
}

// There is room: at_turns_begin has made it.
static void enter(at_turns *t, at_turn *u) {
  AT_ASSERT(t->waiting < t->room && u->place == kNowhere);
  put(t, u, t->waiting++);
  sift_up(t, u);
  AT_VERIFY(is_heap(t));
}

// Takes a turn out of the heap, wherever it is.
static void leave(at_turns *t, at_turn *u) {
  AT_ASSERT(u->place < t->waiting && t->heap[u->place] == u);
  at_turn *last = t->heap[--t->waiting];
  if (last != u) {
    put(t, last, u->place);
    sift_up(t, last);
    sift_down(t, last);
  }
  u->place = kNowhere;
  AT_VERIFY(is_heap(t));
}

// ---- Rounds
// How far a step of a round reaches: both halves of them go the same ways.
static uint32_t reach(const at_turn *u, uint32_t round, uint32_t step) {
  for (round %= u->phase; round--;) step *= AT_TURN_RADIX;
  return step;
}

// Has the round a message of this step?
static bool goes_on(const at_turn *u, uint32_t round, uint32_t step) {
  return step < AT_TURN_RADIX && reach(u, round, step) < u->num_hosts;
}

// Who sends this process the message of that round and step.
static uint32_t sender(const at_turn *u, uint32_t round, uint32_t step) {
  return u
      ->hosts[(u->me + u->num_hosts - reach(u, round, step)) % u->num_hosts];
}

// A process of whom a message of this round is missing.
static uint32_t missing_of(const at_turn *u, uint32_t round) {
  for (uint32_t s = 1; goes_on(u, round, s); s++)
    if (!(u->heard[round] >> s & 1)) return sender(u, round, s);
  return kNowhere;
}

// One message to each of up to AT_TURN_RADIX - 1 others.
static void send_round(at_turns *t, const at_turn *u, uint32_t round) {
  AT_ASSERT(round < AT_TURN_ROUNDS);
  at_turn_post p = {
      .key = u->key, .time = u->time, .round = (uint16_t)round, .step = 1};
  for (; goes_on(u, round, p.step); p.step++)
    t->send(t->arg, u->hosts[(u->me + reach(u, round, p.step)) % u->num_hosts],
            &p);
}

// All have come to it.
static void propose(at_turns *t, at_turn *u) {
  u->at = ++t->clock;
  u->time = AT_MAX(u->time, u->at);
  enter(t, u);
}

// A round's messages are sent when those of the rounds before have come.
static void go_on(at_turns *t, at_turn *u) {
  if (!u->ready || u->known) return;
  for (;;) {
    if (u->rounds && missing_of(u, u->rounds - 1) != kNowhere) return;
    if (u->rounds == u->phase) propose(t, u);
    if (u->rounds == 2 * u->phase) break;
    send_round(t, u, u->rounds++);
  }
  AT_ASSERT(u->place < t->waiting && u->time >= u->at);  // it moves back only
  u->known = true;
  u->at = u->time;
  sift_down(t, u);
  AT_VERIFY(is_heap(t));
}

// ---- Turns that the first process gives
static void list_add(turn_list *l, at_turn *u) {
  AT_ASSERT(!u->list && !l->first == !l->last);
  u->list = l;
  u->next = NULL;
  u->prev = l->last;
  *(l->last ? &l->last->next : &l->first) = u;
  l->last = u;
}

static void list_remove(at_turn *u) {
  turn_list *l = u->list;
  AT_ASSERT(l && (u->prev || l->first == u) && (u->next || l->last == u));
  *(u->prev ? &u->prev->next : &l->first) = u->next;
  *(u->next ? &u->next->prev : &l->last) = u->prev;
  u->list = NULL;
}

// A post without a time; key NULL: of no launch.
static void say(at_turns *t, uint32_t to, at_turn_saying saying,
                const at_turn_key *key) {
  at_turn_post p = {.saying = saying};
  if (key) p.key = *key;
  t->send(t->arg, to, &p);
}

static void say_to_all(at_turns *t, at_turn_saying saying,
                       const at_turn_key *key) {
  for (uint32_t h = 1; h < t->hosts; h++) say(t, h, saying, key);
}

// It has its turn: behind those that were given before.
static void give(at_turns *t, at_turn *u) {
  list_remove(u);
  list_add(&t->given, u);
}

// The first process: when all have come to it.
static void give_if_all_came(at_turns *t, at_turn *u) {
  const uint32_t others = (1u << t->hosts) - 2;
  if (!u->ready || u->came != others) return;
  say_to_all(t, AT_TURN_GO, &u->key);
  give(t, u);
}

// Behind all that this process has come to.
static void say_leaves(at_turns *t) {
  for (uint32_t h = 0; h < t->hosts; h++)
    if (h != t->me) say(t, h, AT_TURN_LEAVES, NULL);
}

// What has not been given its turn is agreed on by all.
static void end_giving(at_turns *t) {
  if (!t->given_by_first) return;
  t->given_by_first = false;
  if (!t->me) say_to_all(t, AT_TURN_ALONE, NULL);
  for (at_turn *u; (u = t->came.first);) {
    list_remove(u);
    go_on(t, u);
  }
  if (t->leaves) say_leaves(t);
}

// A launch of other processes.
static void want_end(at_turns *t) {
  if (!t->given_by_first || t->told_other) return;
  t->told_other = true;
  if (t->me)
    say(t, 0, AT_TURN_OTHER, NULL);
  else
    end_giving(t);
}

// This process has come to a launch.
static void come(at_turns *t, at_turn *u) {
  list_add(&t->came, u);
  if (t->me)
    say(t, 0, AT_TURN_CAME, &u->key);
  else
    give_if_all_came(t, u);
}

// ---- What happens
// Room in the heap is made here, so that nothing behind it can fail. hosts is
// borrowed as long as the turn. NULL: no memory, or too many processes.
at_turn *at_turns_begin(at_turns *t, const at_turn_key *key,
                        const uint32_t *hosts, uint32_t num_hosts, uint32_t me,
                        void *user) {
  AT_ASSERT(me < num_hosts && hosts[me] == t->me && user);
  if (num_hosts > AT_TURN_HOSTS) return NULL;
  if (t->room <= t->count) {
    const uint32_t room = 2 * t->count + 8;
    at_turn **heap = realloc(t->heap, room * sizeof *heap);
    if (!heap) return NULL;
    t->heap = heap;
    t->room = room;
  }
  at_turn *u = find_or_add(t, key);
  if (!u) return NULL;
  AT_ASSERT(!u->hosts);
  u->hosts = hosts;
  u->num_hosts = num_hosts;
  u->me = me;
  u->user = user;
  for (uint64_t all = 1; all < num_hosts; all *= AT_TURN_RADIX) u->phase++;
  if (num_hosts != t->hosts) want_end(t);
  return u;
}

// Everything that the launch needs has had its turn, or comes with it.
void at_turns_ready(at_turns *t, at_turn *u) {
  AT_ASSERT(u->hosts && !u->ready);
  u->ready = true;
  if (t->given_by_first)
    come(t, u);
  else
    go_on(t, u);
}

// A post of the agreement; may be of a launch that has not begun here.
static at_status hear_round(at_turns *t, const at_turn_post *p) {
  // Times are counts of launches: one near the end of the numbers is nobody's,
  // and would end the clock.
  if (p->round >= AT_TURN_ROUNDS || !p->step || p->step >= AT_TURN_RADIX ||
      p->time > UINT64_MAX / 2)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a malformed post");
  at_turn *u = find_or_add(t, &p->key);
  if (!u)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory for the order of launches");
  t->clock = AT_MAX(t->clock, p->time);
  // What comes after the time is known would change it on this process alone.
  if (u->known) return AT_FAIL(AT_INVALID_ARGUMENT, "a post out of turn");
  u->heard[p->round] |= (uint8_t)(1u << p->step);
  u->time = AT_MAX(u->time, p->time);
  if (!t->given_by_first) go_on(t, u);
  return AT_OK;
}

// The first process hears that another has come to a launch.
static at_status hear_came(at_turns *t, uint32_t from, const at_turn_key *key) {
  if (!t->given_by_first) return AT_OK;  // it will know
  at_turn *u = find_or_add(t, key);
  if (!u)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory for the order of launches");
  u->came |= 1u << from;
  if (u->list == &t->came) give_if_all_came(t, u);
  return AT_OK;
}

// The post is not trusted: sizes, sender and numbers are checked.
at_status at_turns_hear(at_turns *t, uint32_t from, at_bytes post) {
  at_turn_post p;
  if (post.len != sizeof p)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a post of %zu bytes", post.len);
  memcpy(&p, post.ptr, sizeof p);
  const bool to_first = !t->me && from && from < t->hosts;
  const bool from_first = t->me && !from;
  at_turn *u;
  if (p.saying == AT_TURN_ROUND) return hear_round(t, &p);
  if (p.saying == AT_TURN_CAME && to_first) return hear_came(t, from, &p.key);
  if (p.saying == AT_TURN_OTHER && to_first) return end_giving(t), AT_OK;
  if (p.saying == AT_TURN_ALONE && from_first) return end_giving(t), AT_OK;
  if (p.saying == AT_TURN_LEAVES && from < t->hosts && from != t->me) {
    t->left[from] = t->any_left = true;
    return AT_OK;
  }
  if (p.saying != AT_TURN_GO || !from_first)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a malformed post");
  // One that is over here has failed.
  if ((u = at_turns_find(t, &p.key)) && u->list == &t->came) give(t, u);
  return AT_OK;
}

// Others have to hear of each other then who has come.
void at_turns_leave(at_turns *t) {
  t->leaves = true;
  if (t->given_by_first)
    want_end(t);
  else
    say_leaves(t);
}

// Given by the first process, or agreed on.
static bool has_turn(const at_turns *t, const at_turn *u) {
  return u->known || u->list == &t->given;
}

// Messages of one sender arrive in order: that it has come is heard before that
// it leaves.
uint32_t at_turns_hopeless(const at_turns *t, const at_turn *u) {
  if (!t->any_left || t->given_by_first || !u->hosts || has_turn(t, u))
    return kNowhere;
  for (uint32_t s = 1; u->phase && goes_on(u, 0, s); s++) {
    const uint32_t h = sender(u, 0, s);
    if (!(u->heard[0] >> s & 1) && h < t->hosts && t->left[h]) return h;
  }
  return kNowhere;
}

void at_turns_lost(at_turns *t, uint32_t host) {
  if (!host) end_giving(t);
}

// The earliest turn whose time is known for good. NULL: none yet.
at_turn *at_turns_next(const at_turns *t) {
  at_turn *u = t->waiting ? t->heap[0] : NULL;
  if (t->given.first) u = t->given.first;
  if (!u || !has_turn(t, u)) return NULL;
  AT_ASSERT(u->ready);  // nobody runs what this process has not come to
  return u;
}

// Also of one that has no turn yet: it failed.
void at_turns_end(at_turns *t, at_turn *u) {
  at_turn **at = slot_of(t, &u->key);
  if (u->place != kNowhere) leave(t, u);
  if (u->list) list_remove(u);
  while (*at != u) at = &(*at)->same_slot;
  *at = u->same_slot;
  AT_ASSERT(t->count);
  t->count--;
  free(u);
}

// ---- What is asked
bool at_turn_is_ready(const at_turn *u) { return u->ready; }
void *at_turn_user(const at_turn *u) { return u->user; }
uint32_t at_turns_count(const at_turns *t) { return t->count; }

// UINT32_MAX: nobody that this process knows of.
uint32_t at_turn_missing(const at_turns *t, const at_turn *u) {
  uint32_t host = kNowhere;
  if (has_turn(t, u)) return host;
  if (t->given_by_first) {
    for (uint32_t h = 1; h < t->hosts && !t->me && host == kNowhere; h++)
      if (!(u->came >> h & 1)) host = h;
    return host;
  }
  for (uint32_t r = 0; u->hosts && r < 2 * u->phase && host == kNowhere; r++)
    host = missing_of(u, r);
  return host;
}

// ---- Made and freed
// send: called within the calls below, never later. NULL: no memory.
at_turns *at_turns_create(uint32_t me, uint32_t count,
                          void (*send)(void *arg, uint32_t to,
                                       const at_turn_post *post),
                          void *arg) {
  enum { kSlots = 64 };
  at_turns *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  *t = (at_turns){.me = me,
                  .hosts = count,
                  .given_by_first = count <= AT_TURN_FEW,
                  .send = send,
                  .arg = arg,
                  .slots = kSlots,
                  .left = calloc(count, sizeof *t->left),
                  .table = calloc(kSlots, sizeof *t->table)};
  if (t->table && t->left) return t;
  free(t->table);
  free(t->left);
  free(t);
  return NULL;
}

// Turns that were not ended go with it.
void at_turns_destroy(at_turns *t) {
  if (!t) return;
  for (uint32_t i = 0; i < t->slots; i++)
    for (at_turn *u = t->table[i], *next; u; u = next) {
      next = u->same_slot;
      free(u);
    }
  free(t->left);
  free(t->table);
  free(t->heap);
  free(t);
}
