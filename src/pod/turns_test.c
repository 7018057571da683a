// Many processes in one: what each of them does when, and how long a message
// takes, is drawn at random. Launches must come in one order, and all of them.
#include "pod/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { kMostHosts = 100, kMostThreads = 3, kMostLaunches = 64 };

// The seed, from which everything is drawn.
static uint64_t state;
static uint32_t draw(uint32_t below) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((state >> 33) % below);
}

// ---- A job
typedef struct program {
  uint32_t hosts[kMostHosts], num_hosts;
  bool blocks;  // its thread waits until it has run
  int needs;    // the result of this one of its thread; -1: none
} program;

typedef struct letter {
  struct letter *next;
  uint32_t from, to;
  at_turn_post post;
} letter;

typedef struct job job;
typedef struct process {
  job *job;
  uint32_t me;
  at_turns *turns;
  uint32_t next[kMostThreads];  // the launch a thread comes to
  bool let_in[kMostLaunches];
  at_turn *late[kMostLaunches];  // to be ready after the one it needs
  uint32_t queue[kMostLaunches], len, done;
  at_turn *begun[kMostLaunches];
  uint32_t launches, most;  // that it makes, and may make
  bool left;
} process;

struct job {
  uint32_t num_hosts, num_threads, num_launches;
  program programs[kMostLaunches];
  uint32_t thread_of[kMostLaunches];
  bool failed[kMostLaunches];  // some process has left without it
  bool leaves;                 // processes do, some of them early
  process processes[kMostHosts];
  letter *on_the_way, **end;  // the oldest first
  uint32_t letters;
};

// The letter goes to the end of the list; it comes when the test draws it.
static void send_post(void *arg, uint32_t to, const at_turn_post *post) {
  process *p = arg;
  letter *l = malloc(sizeof *l);
  *l = (letter){NULL, p->me, to, *post};
  *p->job->end = l;
  p->job->end = &l->next;
  p->job->letters++;
}

// Does the program run on that process, too?
static bool is_member(const program *p, uint32_t host) {
  for (uint32_t i = 0; i < p->num_hosts; i++)
    if (p->hosts[i] == host) return true;
  return false;
}

// Then a launch may be ready before the one that it needs, as both come in one
// order anyway.
static bool same_hosts(const program *a, const program *b) {
  return a->num_hosts == b->num_hosts &&
         !memcmp(a->hosts, b->hosts, a->num_hosts * sizeof *a->hosts);
}

// The launch before `k` in its thread that process p has a part in; -1: none.
static int before(const process *p, uint32_t k) {
  const job *j = p->job;
  for (int i = (int)k - 1; i >= 0; i--)
    if (j->thread_of[i] == j->thread_of[k] && is_member(&j->programs[i], p->me))
      return i;
  return -1;
}

// What `k` needs of what p has a part in; -1: nothing.
static int needed(const process *p, uint32_t k) {
  const int n = p->job->programs[k].needs;
  return n >= 0 && is_member(&p->job->programs[n], p->me) ? n : -1;
}

// ---- What a process does
static bool is_over(const process *p, int k) {
  return k < 0 || p->let_in[k] || p->job->failed[k];
}

// Launches that waited for k are ready now.
static void ready_those_after(process *p, uint32_t k) {
  for (uint32_t i = 0; i < p->job->num_launches; i++)
    if (p->late[i] && needed(p, i) == (int)k) {
      at_turns_ready(p->turns, p->late[i]);
      p->late[i] = NULL;
    }
}

// On all processes: one of them has left without it.
static void fail_launch(job *j, uint32_t k) {
  bool missed = false;
  for (uint32_t h = 0; h < j->num_hosts; h++) {
    const process *p = &j->processes[h];
    missed |= is_member(&j->programs[k], h) && p->left && !p->begun[k];
  }
  assert_true(missed);
  j->failed[k] = true;
  for (uint32_t h = 0; h < j->num_hosts; h++) {
    process *p = &j->processes[h];
    assert_false(p->let_in[k]);
    if (!p->begun[k]) continue;
    p->late[k] = NULL;
    at_turns_end(p->turns, p->begun[k]);
    p->begun[k] = NULL;
    ready_those_after(p, k);
  }
}

// A launch that a process has left without cannot come: it fails everywhere.
static void fail_hopeless(process *p) {
  for (uint32_t k = 0; k < p->job->num_launches; k++)
    if (p->begun[k] && at_turns_hopeless(p->turns, p->begun[k]) != UINT32_MAX)
      fail_launch(p->job, k);
}

// Takes all launches whose turn it is, in their order. Nothing that they need
// may be missing.
static void let_in(process *p) {
  fail_hopeless(p);
  for (at_turn *t; (t = at_turns_next(p->turns));) {
    const uint32_t k =
        (uint32_t)((program *)at_turn_user(t) - p->job->programs);
    assert_int_equal(at_turn_missing(p->turns, t), UINT32_MAX);
    const int n = needed(p, k);
    assert_true(is_over(p, n));
    at_turns_end(p->turns, t);
    p->begun[k] = NULL;
    p->queue[p->len++] = k;
    p->let_in[k] = true;
    ready_those_after(p, k);
  }
}

// A thread comes to launch k: it is begun, and ready at once or after the one
// that it needs.
static void launch(process *p, uint32_t k) {
  program *g = &p->job->programs[k];
  uint32_t me = 0;
  if (p->job->failed[k]) return;
  while (g->hosts[me] != p->me) me++;
  at_turn *t = at_turns_begin(p->turns, &(at_turn_key){7, k, 0}, g->hosts,
                              g->num_hosts, me, g);
  assert_non_null(t);
  assert_ptr_equal(at_turns_find(p->turns, &(at_turn_key){7, k, 0}), t);
  const int n = needed(p, k);
  p->begun[k] = t;
  const bool early =
      is_over(p, n) || (!p->late[n] && same_hosts(g, &p->job->programs[n]));
  if (early)
    at_turns_ready(p->turns, t);
  else
    p->late[k] = t;
  assert_int_equal(at_turn_is_ready(t), early);
  let_in(p);
}

// A thread goes one launch on, unless it waits for one.
static bool step_thread(process *p, uint32_t thread) {
  const job *j = p->job;
  uint32_t k = p->next[thread];
  while (k < j->num_launches &&
         (j->thread_of[k] != thread || !is_member(&j->programs[k], p->me)))
    k++;
  p->next[thread] = k;
  if (k == j->num_launches) return false;
  const int b = before(p, k);
  if (p->launches == p->most) return false;
  if (b >= 0 && j->programs[b].blocks && !j->failed[b]) {
    uint32_t at = 0;
    while (at < p->done && p->queue[at] != (uint32_t)b) at++;
    if (at == p->done) return false;
  }
  p->next[thread]++;
  p->launches++;
  launch(p, k);
  return true;
}

// Is there a launch that this process has not come to yet?
static bool can_come(const process *p) {
  for (uint32_t k = 0; k < p->job->num_launches; k++)
    if (is_member(&p->job->programs[k], p->me) && !p->begun[k] &&
        p->next[p->job->thread_of[k]] <= k)
      return true;
  return false;
}

// Who comes to nothing more says so once all that it has come to is known.
static bool step_leave(process *p) {
  if (p->left || !p->job->leaves) return false;
  for (uint32_t k = 0; k < p->job->num_launches; k++)
    if (p->late[k]) return false;
  if (p->launches < p->most && can_come(p)) return false;
  p->left = true;
  at_turns_leave(p->turns);
  return true;
}

// A program runs where all of its processes have come to it.
static bool step_queue(process *p) {
  if (p->done == p->len) return false;
  const program *g = &p->job->programs[p->queue[p->done]];
  for (uint32_t i = 0; i < g->num_hosts; i++) {
    const process *q = &p->job->processes[g->hosts[i]];
    if (q->done == q->len || q->queue[q->done] != p->queue[p->done])
      return false;
  }
  for (uint32_t i = 0; i < g->num_hosts; i++)
    p->job->processes[g->hosts[i]].done++;
  return true;
}

// One letter reaches its process.
static void deliver(job *j, letter **at) {
  letter *l = *at;
  *at = l->next;
  if (j->end == &l->next) j->end = at;
  at_status st =
      at_turns_hear(j->processes[l->to].turns, l->from,
                    (at_bytes){(const uint8_t *)&l->post, sizeof l->post});
  assert_null(st.err);
  free(l);
}

// One of the oldest letters comes, and perhaps others to the same process
// before it looks what they change.
static bool step_network(job *j) {
  letter **at = &j->on_the_way, **first = at;
  if (!*at) return false;
  for (uint32_t n = draw(6); n && (*at)->next; n--) at = &(*at)->next;
  // Those of one process to another arrive in order.
  while ((*first)->from != (*at)->from || (*first)->to != (*at)->to)
    first = &(*first)->next;
  process *p = &j->processes[(*first)->to];
  deliver(j, first);
  while (draw(2)) {
    for (at = &j->on_the_way; *at && (*at)->to != p->me;) at = &(*at)->next;
    if (*at) deliver(j, at);
  }
  let_in(p);
  return true;
}

// One thing happens, drawn at random; false: nothing can happen any more.
static bool step_anything(job *j) {
  const uint32_t first = draw(j->num_hosts);
  if (draw(2) && step_network(j)) return true;
  for (uint32_t i = 0; i < j->num_hosts; i++) {
    process *p = &j->processes[(first + i) % j->num_hosts];
    if (draw(2) && step_queue(p)) return true;
    const uint32_t thread = draw(j->num_threads);
    for (uint32_t t = 0; t < j->num_threads; t++)
      if (step_thread(p, (thread + t) % j->num_threads)) return true;
    if (step_queue(p) || step_leave(p)) return true;
  }
  return step_network(j);
}

static void draw_hosts(job *j, program *p, bool all) {
  for (uint32_t h = 0; h < j->num_hosts; h++)
    if (all || draw(2)) p->hosts[p->num_hosts++] = h;
  if (!p->num_hosts) p->hosts[p->num_hosts++] = draw(j->num_hosts);
}

static void run(uint64_t seed, uint32_t hosts, uint32_t launches) {
  job *j = calloc(1, sizeof *j);
  j->end = &j->on_the_way;
  state = seed;
  j->num_hosts = hosts;
  j->num_threads = 1 + draw(kMostThreads);
  j->num_launches = launches;
  j->leaves = !draw(2);
  // Launches of other processes than all come at once, later or never.
  const uint32_t uniform = draw(3) * launches / 2;
  for (uint32_t k = 0; k < launches; k++) {
    program *p = &j->programs[k];
    if (k && draw(2)) {  // of the same processes as an earlier one
      *p = j->programs[draw(k)];
    } else {
      draw_hosts(j, p, k < uniform || !draw(3));
    }
    p->blocks = !draw(3);
    j->thread_of[k] = draw(j->num_threads);
    p->needs = -1;
    for (uint32_t i = k; i-- > 0 && p->needs < 0 && draw(4);)
      if (j->thread_of[i] == j->thread_of[k]) p->needs = (int)i;
  }
  for (uint32_t h = 0; h < hosts; h++) {
    process *p = &j->processes[h];
    *p = (process){.job = j, .me = h, .most = kMostLaunches};
    if (j->leaves && !draw(3)) p->most = draw(launches);
    assert_non_null(p->turns = at_turns_create(h, hosts, send_post, p));
  }
  while (step_anything(j)) continue;
  for (uint32_t h = 0; h < hosts; h++) {
    process *p = &j->processes[h];
    uint32_t mine = 0;
    for (uint32_t k = 0; k < launches; k++)
      mine += is_member(&j->programs[k], h) && p->let_in[k];
    for (uint32_t k = 0; k < launches; k++)
      if (is_member(&j->programs[k], h) && !is_over(p, (int)k) &&
          !(j->leaves && !p->begun[k]))
        fail_msg("seed %llu: launch %u of process %u never ends",
                 (unsigned long long)seed, k, h);
    if (p->done != mine)
      fail_msg("seed %llu: process %u ran %u of %u", (unsigned long long)seed,
               h, p->done, mine);
    // Of what others came to, but not this one, something may be left.
    if (!j->leaves) assert_int_equal(at_turns_count(p->turns), 0);
    at_turns_destroy(p->turns);
  }
  free(j);
}

// ---- Tests
// Launches that all processes let in, in the same order on any two: else a
// program would never be in front on all of its processes, and not run.
static void test_random_jobs(void **arg) {
  for (uint64_t seed = 1; seed <= 400; seed++)
    run(seed, 1 + (uint32_t)(seed % 12), kMostLaunches);
  for (uint64_t seed = 1; seed <= 8; seed++)
    run(seed, 61 + (uint32_t)(seed % 39), 40);
}

// Work grows with the processes times their rounds, not with their square.
static void test_letters(void **arg) {
  const uint32_t want[][2] = {{1, 0}, {2, 2}, {16, 30}, {17, 306}, {64, 1792}};
  for (size_t i = 0; i < AT_LEN(want); i++) {
    job *j = calloc(1, sizeof *j);
    j->end = &j->on_the_way;
    j->num_hosts = want[i][0];
    j->num_threads = j->num_launches = 1;
    j->programs[0].needs = -1;
    for (uint32_t h = 0; h < j->num_hosts; h++) {
      process *p = &j->processes[h];
      *p = (process){.job = j,
                     .me = h,
                     .most = kMostLaunches,
                     .turns = at_turns_create(h, want[i][0], send_post, p)};
      j->programs[0].hosts[j->programs[0].num_hosts++] = h;
    }
    while (step_anything(j)) continue;
    assert_int_equal(j->letters, want[i][1]);
    for (uint32_t h = 0; h < j->num_hosts; h++) {
      assert_int_equal(j->processes[h].done, 1);
      at_turns_destroy(j->processes[h].turns);
    }
    free(j);
  }
}

// Who is missing is named, and a turn that is given up holds nobody up.
static void test_missing(void **arg) {
  job *j = calloc(1, sizeof *j);
  j->end = &j->on_the_way;
  process *p = &j->processes[0];
  *p = (process){.job = j, .turns = at_turns_create(0, 6, send_post, p)};
  const uint32_t hosts[] = {0, 3, 5};
  at_turn *a =
      at_turns_begin(p->turns, &(at_turn_key){1, 1, 1}, hosts, 3, 0, p);
  at_turn *b =
      at_turns_begin(p->turns, &(at_turn_key){1, 2, 1}, hosts, 1, 0, j);
  at_turns_ready(p->turns, a);
  at_turns_ready(p->turns, b);
  // What some process has not come to keeps nothing waiting.
  assert_ptr_equal(at_turns_next(p->turns), b);
  assert_int_equal(at_turn_missing(p->turns, a), 5);
  const at_turn_post post = {
      {1, 1, 1}, 9, .saying = AT_TURN_ROUND, .round = 0, .step = 1};
  assert_null(at_turns_hear(p->turns, 5,
                            (at_bytes){(const uint8_t *)&post, sizeof post})
                  .err);
  assert_int_equal(at_turn_missing(p->turns, a), 3);
  at_turns_end(p->turns, a);
  assert_ptr_equal(at_turns_next(p->turns), b);
  at_turns_end(p->turns, b);
  assert_int_equal(at_turns_count(p->turns), 0);
  for (letter *l = j->on_the_way, *next; l; l = next) {
    next = l->next;
    free(l);
  }
  at_turns_destroy(p->turns);
  free(j);
}

static void test_bad_posts(void **arg) {
  at_turns *t = at_turns_create(1, 40, send_post, NULL);
  const at_turn_key key = {1, 1, 1};
  const at_turn_post bad[] = {
      {key, 1, AT_TURN_ROUND, AT_TURN_ROUNDS, 1},
      {key, 1, AT_TURN_ROUND, 0, 0},
      {key, 1, AT_TURN_ROUND, 0, AT_TURN_RADIX},
      {key, UINT64_MAX, AT_TURN_ROUND, 0, 1},
      {key, 0, AT_TURN_CAME, 0, 0},   // not to this process
      {key, 0, AT_TURN_OTHER, 0, 0},  // nor this
      {key, 0, AT_TURN_SAYINGS, 0, 0}};
  for (size_t i = 0; i <= AT_LEN(bad); i++) {
    const at_bytes b = {(const uint8_t *)&bad[i % AT_LEN(bad)],
                        i < AT_LEN(bad) ? sizeof *bad : 11};
    assert_int_equal(at_code_take(at_turns_hear(t, 0, b)), AT_INVALID_ARGUMENT);
  }
  assert_int_equal(at_turns_count(t), 0);
  // Launches that this process has not come to yet are remembered.
  for (uint64_t k = 0; k < 1000; k++) {
    const at_turn_post p = {{1, k, 1}, k + 1, AT_TURN_ROUND, 0, 1};
    assert_null(
        at_turns_hear(t, 0, (at_bytes){(const uint8_t *)&p, sizeof p}).err);
  }
  assert_int_equal(at_turns_count(t), 1000);
  assert_null(at_turn_user(at_turns_find(t, &(at_turn_key){1, 999, 1})));
  at_turns_destroy(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_jobs), cmocka_unit_test(test_letters),
      cmocka_unit_test(test_missing), cmocka_unit_test(test_bad_posts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
