// Launches over many chips from several threads: one order, no deadlock, and
// one that is told when the order is switched off. Programs hand their value to
// another chip, so that a launch which overtakes another shows in the values.
#include "exec/exec_test_util.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>

#include "abi/collective.h"
#include "pod/pod.h"

enum { kMost = 64 };
#if defined(__SANITIZE_THREAD__)
#define FEW 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FEW 1
#endif
#endif
#ifdef FEW
enum { kSteps = 150, kRounds = 100, kHeld = 200 };
#else
enum { kSteps = 2000, kRounds = 2000, kHeld = 1000 };
#endif

// out[d] = in[d - shift] on `n` chips; of three, asynchronously, in a program
// said to take long: its chips step back for each other.
static at_bytes rotation(uint32_t n, uint32_t shift) {
  bool async = shift == 3;
  builder b = b_new();
  b.h.num_partitions = n;
  if (async) b.h.estimated_ns = 1e9;
  uint32_t type = b_f32(&b, 4);
  uint32_t in = b_input(&b, type), out = b_output(&b, type);
  at_x_collective x = {AT_COLL_PERMUTE, 1, n, 1};
  at_x_exchange v = {.operand_bytes = 16,
                     .result_bytes = 16,
                     .rows = 1,
                     .lines = 1,
                     .run = 16,
                     .element_bytes = 4,
                     .block = UINT32_MAX,
                     .tail = UINT32_MAX};
  uint32_t tables[AT_COLL_TABLES][kMost] = {0};
  for (uint32_t d = 0; d < n; d++) {
    tables[1][d] = tables[4][d] = d;         // rank_of, members
    tables[3][d] = n;                        // size_of
    tables[5][d] = (d + n - shift % n) % n;  // source_of
  }
  uint32_t at = b_bytes(&b, AT_XS_PARAMS, &x, sizeof x, 16);
  b_bytes(&b, AT_XS_PARAMS, &v, sizeof v, 1);
  for (int t = 0; t < AT_COLL_TABLES; t++)
    b_bytes(&b, AT_XS_PARAMS, tables[t], n * sizeof(uint32_t), 1);
  at_xstep *s =
      b_step(&b, async ? AT_STEP_START : AT_STEP_COLLECTIVE, 0, ARGS(in, out));
  s->params = at;
  s->params_bytes = at_x_collective_bytes(&x);
  s->aux = 1;
  if (async) s->tasks = 1;
  if (async) b_step(&b, AT_STEP_DONE, 0, 0, NULL)->tasks = 1;
  return b_finish(&b, 0);
}

// One process with all chips of a target, and the programs that tests launch
// over them.
typedef struct pod {
  at_runtime *rt;
  at_island *island;
  uint32_t n;
  at_chip *chips[kMost];
  at_loaded *by[3];  // rotations by 1, 2, 3
} pod;

// A runtime of two threads, whatever the number of chips.
static pod pod_open(const char *target) {
  pod p = {.rt = test_runtime(target, 2)};
  p.n = at_runtime_num_chips(p.rt);
  OK(at_island_create(NULL, &p.island));
  at_island_set_ordered(p.island, true);
  for (uint32_t i = 0; i < p.n; i++) p.chips[i] = at_runtime_chip(p.rt, i);
  for (uint32_t k = 0; k < 3; k++)
    p.by[k] = test_load(p.rt, rotation(p.n, k + 1));
  return p;
}

// All launches have ended by then: destroying waits for them.
static void pod_close(pod *p) {
  for (uint32_t k = 0; k < 3; k++) at_loaded_release(p->by[k]);
  at_island_destroy(p->island);
  at_runtime_destroy(p->rt);
}

// Values that one thread hands from launch to launch.
typedef struct chain {
  pod *p;
  at_buffer *now[kMost];
  uint64_t shift;  // in all
  at_code code;    // of the last launch that was waited for
  char message[400];
  bool flipped;
} chain;

// Value i on chip i, so that it shows where each value has been.
static void chain_start(chain *c, pod *p) {
  *c = (chain){.p = p};
  for (uint32_t i = 0; i < p->n; i++) {
    float v[4] = {(float)i, 1, 2, 3};
    c->now[i] = test_array(p->chips[i], v, 4);
  }
}

static void chain_end(chain *c) {
  for (uint32_t i = 0; i < c->p->n; i++) at_buffer_release(c->now[i]);
}

// One launch; *wait: until it has ended.
static at_status step(chain *c, uint32_t by, bool wait) {
  at_buffer *out[kMost];
  at_event *done = NULL;
  at_launch l = {.chips = c->p->chips,
                 .num_chips = c->p->n,
                 .args = c->now,
                 .num_args = 1};
  AT_TRY(at_island_launch(c->p->island, c->p->by[by], &l, out, &done));
  c->shift += by + 1;
  chain_end(c);
  memcpy(c->now, out, c->p->n * sizeof *out);
  at_status st = wait ? at_event_wait(done) : AT_OK;
  at_event_release(done);
  return st;
}

// Value i must be where all rotations together have brought it.
static void chain_check(const chain *c) {
  uint32_t n = c->p->n;
  for (uint32_t i = 0; i < n; i++) {
    float v[4];
    test_fetch(c->now[i], v, 4);
    assert_true(v[0] == (float)((i + n - c->shift % n) % n));
    assert_true(v[1] == 1 && v[3] == 3);
  }
}

// Of this process, as the kernel lists them.
static int count_threads(void) {
  DIR *d = opendir("/proc/self/task");
  int n = 0;
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
  closedir(d);
  return n;
}

// Launches all steps without waiting for one, then checks values and that no
// thread was made for each launch.
static void steps_in_flight(const char *target, uint32_t chips,
                            uint32_t steps) {
  pod p = pod_open(target);
  chain c;
  assert_int_equal(p.n, chips);
  chain_start(&c, &p);
  for (uint32_t i = 0; i < steps; i++) OK(step(&c, i % 3, false));
  // Of a process that has two cores, as pod_open says.
  assert_in_range(count_threads(), 2, 2 + 8);
  chain_check(&c);
  chain_end(&c);
  pod_close(&p);
}

static void many_steps_are_in_flight(void **state) {
  steps_in_flight("v5e:1x2", 2, kSteps);
  steps_in_flight("v5e:2x4", 8, kSteps);
}

static void many_chips_need_few_threads(void **state) {
  steps_in_flight("v5e:8x8", 64, kSteps / 8);
}

// The argument of the first step comes late; the others are accepted meanwhile.
static void steps_are_accepted_while_the_first_waits(void **state) {
  pod p = pod_open("v5e:2x4");
  chain c;
  chain_start(&c, &p);
  const int64_t dim = 4;
  at_buffer *late;
  OK(at_buffer_create(p.chips[0], AT_MEM_DEVICE, AT_F32, (at_dims){&dim, 1},
                      &late));
  at_buffer_release(c.now[0]);
  c.now[0] = at_buffer_retain(late);
  for (uint32_t i = 0; i < kHeld; i++) OK(step(&c, i % 3, false));
  for (uint32_t i = 0; i < p.n; i++) assert_false(at_buffer_is_ready(c.now[i]));
  float *v = at_buffer_data_mut(late);
  for (int i = 0; i < 4; i++) v[i] = (float)i;
  at_buffer_define(late, AT_OK);
  at_buffer_release(late);
  chain_check(&c);
  chain_end(&c);
  pod_close(&p);
}

// ---- Opposite orders
static void *launch_both(void *arg) {
  chain *c = arg;
  for (int i = 0; i < kRounds && !c->code; i++) {
    at_status st = step(c, c->flipped ? 1 : 0, false);
    if (!st.err) st = step(c, c->flipped ? 0 : 1, i % 16 == 15);
    if (!st.err) continue;
    snprintf(c->message, sizeof c->message, "%s", at_status_message(st));
    c->code = at_code_take(st);
  }
  return NULL;
}

// Two threads launch the same two programs again and again, each pair in the
// opposite order.
static void run_both(pod *p, chain both[2]) {
  pthread_t t[2];
  for (int i = 0; i < 2; i++) {
    chain_start(&both[i], p);
    both[i].flipped = i;
  }
  for (int i = 0; i < 2; i++)
    pthread_create(&t[i], NULL, launch_both, &both[i]);
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
}

// The island orders launches, so the chips of all see the same order whatever
// threads do.
static void opposite_orders_never_deadlock(void **state) {
  pod p = pod_open("v5e:2x4");
  chain both[2];
  run_both(&p, both);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(both[i].code, 0);
    chain_check(&both[i]);
    chain_end(&both[i]);
  }
  pod_close(&p);
}

// With the order off the two threads deadlock sooner or later, which the watch
// of the chips must find and name. The values are of no use then.
static void without_an_order_the_deadlock_is_told(void **state) {
  pod p = pod_open("v5e:2x4");
  at_island_set_ordered(p.island, false);
  bool told = false;
  for (int tries = 0; tries < 20 && !told; tries++) {
    chain both[2];
    run_both(&p, both);
    for (int i = 0; i < 2; i++) {
      if (both[i].code == AT_ABORTED) {
        told = true;
        assert_non_null(strstr(both[i].message, "chip"));
      }
      chain_end(&both[i]);
    }
  }
  assert_true(told);
  pod_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_steps_are_in_flight),
      cmocka_unit_test(many_chips_need_few_threads),
      cmocka_unit_test(steps_are_accepted_while_the_first_waits),
      cmocka_unit_test(opposite_orders_never_deadlock),
      cmocka_unit_test(without_an_order_the_deadlock_is_told),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
