// One process that keeps the order of launches, and others of which the input
// says what they post, when, and in which order: nothing crashes, nobody but
// the processes of a launch is written to, each round once, what has its turn
// is known to all, and no more is kept than was heard and begun.
#include <stdlib.h>
#include <string.h>

#include "pod/turns.h"

enum { kKeys = 8, kMost = 40, kNobody = UINT32_MAX };

typedef struct launch {
  at_turn *turn;  // NULL: not begun, or over
  const uint32_t *hosts;
  uint32_t num_hosts, me;
  uint8_t sent[AT_TURN_ROUNDS];  // bit `step` of a round
} launch;

typedef struct process {
  at_turns *turns;
  uint32_t who, count;  // this one, of so many
  launch launches[kKeys];
  uint64_t kept;  // turns that may be kept, at most
  uint32_t hosts[AT_TURN_HOSTS + kMost];
  const uint8_t *at, *end;
} process;

static void must(bool holds) {
  if (!holds) abort();
}

static uint8_t next_byte(process *p) { return p->at < p->end ? *p->at++ : 0; }

static at_turn_key key_of(uint32_t i) {
  return (at_turn_key){1 + i % 2, 1 + i / 2 % 2, i / 4};
}

// The launch with that key; NULL: none of ours.
static launch *find(process *p, const at_turn_key *key) {
  for (uint32_t i = 0; i < kKeys; i++) {
    at_turn_key k = key_of(i);
    if (at_turn_key_equal(&k, key)) return &p->launches[i];
  }
  return NULL;
}

// How many rounds bring word of all to all, each round reaching AT_TURN_RADIX
// times as far.
static uint32_t phase_of(uint32_t num_hosts) {
  uint32_t phase = 0;
  for (uint64_t all = 1; all < num_hosts; all *= AT_TURN_RADIX) phase++;
  return phase;
}

// How far a step of a round reaches, in members.
static uint32_t reach(uint32_t phase, uint32_t round, uint32_t step) {
  for (round %= phase; round--;) step *= AT_TURN_RADIX;
  return step;
}

// ---- What it says
static void sent_round(process *p, uint32_t to, const at_turn_post *post) {
  launch *l = find(p, &post->key);
  must(l && l->turn && at_turn_is_ready(l->turn));
  uint32_t phase = phase_of(l->num_hosts);
  must(post->round < 2 * phase && post->step && post->step < AT_TURN_RADIX);
  uint32_t far = reach(phase, post->round, post->step);
  must(far < l->num_hosts && to == l->hosts[(l->me + far) % l->num_hosts]);
  must(!(l->sent[post->round] >> post->step & 1));
  l->sent[post->round] |= (uint8_t)(1u << post->step);
}

// Everything that the process says is of a kind that it may say, to whom it may
// say it.
static void sent(void *arg, uint32_t to, const at_turn_post *post) {
  process *p = arg;
  switch ((at_turn_saying)post->saying) {
    case AT_TURN_ROUND:
      return sent_round(p, to, post);
    case AT_TURN_LEAVES:
      return must(to != p->who && to < p->count);
    case AT_TURN_CAME:
    case AT_TURN_OTHER:
      return must(p->who && !to);
    case AT_TURN_GO:
    case AT_TURN_ALONE:
      return must(!p->who && to && to < p->count);
    default:
      must(false);
  }
}

// ---- What it hears
static void hear(process *p, const void *post, size_t bytes) {
  const uint32_t from = next_byte(p) % (p->count + 1);
  at_status st = at_turns_hear(p->turns, from, (at_bytes){post, bytes});
  p->kept += !st.err;
  at_status_free(st);
}

// Bytes that may be no post at all.
static void hear_anything(process *p) {
  uint8_t bytes[sizeof(at_turn_post) + 1];
  size_t n = next_byte(p) % 4 ? sizeof(at_turn_post)
                              : next_byte(p) % (sizeof bytes + 1);
  for (size_t i = 0; i < n; i++) bytes[i] = next_byte(p);
  hear(p, bytes, n);
}

// Mostly small, now and then at the edges of 64 bits.
static uint64_t some_time(process *p) {
  static const uint64_t kEdges[] = {0, UINT64_MAX / 2, UINT64_MAX / 2 + 1,
                                    UINT64_MAX};
  uint8_t b = next_byte(p);
  return b < AT_LEN(kEdges) ? kEdges[b] : b;
}

// A post that is well formed but for one number, now and then.
static void hear_one(process *p, uint32_t i) {
  at_turn_post post = {.key = key_of(i),
                       .time = some_time(p),
                       .saying = next_byte(p) % (AT_TURN_SAYINGS + 1)};
  post.round = next_byte(p) % (AT_TURN_ROUNDS + 1);
  post.step = next_byte(p) % (AT_TURN_RADIX + 1);
  hear(p, &post, sizeof post);
}

// All that the other processes of a launch have to say, from a round on.
static void hear_all(process *p, uint32_t i) {
  const launch *l = &p->launches[i];
  uint32_t phase = l->turn ? phase_of(l->num_hosts) : 1;
  at_turn_post post = {.key = key_of(i), .time = some_time(p)};
  for (post.round = next_byte(p) % (2 * phase + 1); post.round < 2 * phase;
       post.round++)
    for (post.step = 1; post.step < AT_TURN_RADIX; post.step++)
      hear(p, &post, sizeof post);
}

// ---- What it does
static void begin(process *p, uint32_t i) {
  static const uint32_t kCounts[] = {1,
                                     2,
                                     3,
                                     5,
                                     8,
                                     9,
                                     16,
                                     17,
                                     64,
                                     65,
                                     511,
                                     512,
                                     513,
                                     600,
                                     4095,
                                     AT_TURN_HOSTS,
                                     AT_TURN_HOSTS + 1};
  launch *l = &p->launches[i];
  const at_turn_key key = key_of(i);
  uint32_t n = kCounts[next_byte(p) % AT_LEN(kCounts)];
  uint32_t me = next_byte(p) % AT_MIN(n, p->who + 1);
  if (l->turn) return;
  *l = (launch){.hosts = p->hosts + p->who - me, .num_hosts = n, .me = me};
  l->turn = at_turns_begin(p->turns, &key, l->hosts, n, me, l);
  must(!l->turn == (n > AT_TURN_HOSTS));
  p->kept += l->turn != NULL;
}

// Whoever has begun it sees that it is over.
static void end(process *p, at_turn *t) {
  launch *l = at_turn_user(t);
  if (l) l->turn = NULL;
  at_turns_end(p->turns, t);
  p->kept--;
}

// Ends what is there under the key, begun or only heard of.
static void end_any(process *p, uint32_t i) {
  const at_turn_key key = key_of(i);
  at_turn *t = at_turns_find(p->turns, &key);
  if (t) end(p, t);
}

// Whatever is handed out has its turn: it is ready, and nobody is missing.
static void take_turns(process *p) {
  for (at_turn *t; (t = at_turns_next(p->turns));) {
    launch *l = at_turn_user(t);
    must(l && l->turn == t && at_turn_is_ready(t));
    must(at_turn_missing(p->turns, t) == kNobody);
    end(p, t);
  }
}

// What the next byte says.
static void step(process *p) {
  uint8_t what = next_byte(p);
  uint32_t i = what >> 4 & (kKeys - 1);
  launch *l = &p->launches[i];
  switch (what & 7) {
    case 0:
      return hear_anything(p);
    case 1:
      return begin(p, i);
    case 2:
      if (l->turn && !at_turn_is_ready(l->turn))
        at_turns_ready(p->turns, l->turn);
      return;
    case 3:
      return end_any(p, i);
    case 4:
      return take_turns(p);
    case 5:
      return hear_all(p, i);
    case 6:
      return at_turns_lost(p->turns, next_byte(p) % p->count);
    default:
      return hear_one(p, i);
  }
}

// What must hold after every step.
static void look(const process *p) {
  must(at_turns_count(p->turns) <= p->kept);
  for (uint32_t i = 0; i < kKeys; i++) {
    const launch *l = &p->launches[i];
    const at_turn_key key = key_of(i);
    at_turn *t = at_turns_find(p->turns, &key);
    must(!l->turn || t == l->turn);
    must(!t || at_turn_missing(p->turns, t) != p->who);
    must(!t || at_turns_hopeless(p->turns, t) != p->who);
  }
}

// The first two bytes: how many processes there are, and which one this is.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const uint32_t kAll[] = {1, 2, 3, 5, 16, 17, kMost};
  static process p;
  p.at = data;
  p.end = data + size;
  p.count = kAll[next_byte(&p) % AT_LEN(kAll)];
  p.who = next_byte(&p) % p.count;
  p.kept = 0;
  memset(p.launches, 0, sizeof p.launches);
  for (uint32_t i = 0; i < AT_LEN(p.hosts); i++) p.hosts[i] = i;
  p.turns = at_turns_create(p.who, p.count, sent, &p);
  must(p.turns != NULL);
  while (p.at < p.end) {
    step(&p);
    look(&p);
  }
  at_turns_destroy(p.turns);
  return 0;
}
