// Latency hiding: laws of every order, what is hidden, memory, and speed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <time.h>

#include "schedule/lhs.h"

static uint64_t g_seed;
static uint32_t draw(uint32_t below) {
  g_seed = g_seed * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(g_seed >> 33) % below;
}

// Layers of compute with collectives between some of them, in a random order
// that respects the edges; readers reach back at most `reach`.
static at_lhs_node *random_graph(at_arena *a, uint32_t n, uint32_t reach,
                                 bool control) {
  at_lhs_node *g = at_new(a, at_lhs_node, n);
  for (uint32_t i = 0; i < n; i++) {
    at_lhs_node *x = &g[i];
    uint32_t most = i < reach ? i : reach, *reads = at_new(a, uint32_t, 4);
    *x = (at_lhs_node){
        .cost = draw(100) * 1e-6, .bytes = draw(1000), .output = draw(20) == 0};
    if (i &&
        g[i - 1].kind == AT_LHS_START) {  // every start is followed by its done
      x->kind = AT_LHS_DONE, x->partner = i - 1,
      x->resource = g[i - 1].resource, x->cost = 1e-6,
      x->bytes = g[i - 1].bytes;
      reads[0] = i - 1, x->reads = reads, x->num_reads = 1;
      continue;
    }
    if (draw(8) == 0 && i + 1 < n) {
      x->kind = AT_LHS_START, x->partner = i + 1, x->resource = draw(3),
      x->cost = 1e-6;
      x->latency = draw(500) * 1e-6, x->output = false;
    } else if (draw(10) == 0) {
      x->kind = AT_LHS_NOP, x->cost = 0;
    }
    for (uint32_t k = 0; most && k < draw(4); k++) {
      uint32_t r = i - 1 - draw(most);
      bool again = g[r].kind == AT_LHS_START;
      for (uint32_t j = 0; j < x->num_reads; j++) again |= reads[j] == r;
      if (!again) reads[x->num_reads++] = r;
    }
    x->reads = reads;
    if (control && most && draw(10) == 0) {
      uint32_t *after = at_new(a, uint32_t, 1);
      *after = i - 1 - draw(most);
      if (g[*after].kind != AT_LHS_START) x->after = after, x->num_after = 1;
    }
  }
  return g;
}

static void check_order(const at_lhs_node *g, uint32_t n,
                        const at_lhs_options *o, const uint32_t *order,
                        at_arena *a) {
  uint32_t *at = at_new(a, uint32_t, n), flying[AT_LHS_RESOURCES] = {0};
  for (uint32_t i = 0; i < n; i++) at[i] = UINT32_MAX;
  for (uint32_t i = 0; i < n; i++) {
    assert_true(order[i] < n && at[order[i]] == UINT32_MAX);
    at[order[i]] = i;
  }
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t k = 0; k < g[i].num_reads; k++)
      assert_true(at[g[i].reads[k]] < at[i]);
    for (uint32_t k = 0; k < g[i].num_after; k++)
      assert_true(at[g[i].after[k]] < at[i]);
  }
  for (uint32_t i = 0; i < n; i++) {
    const at_lhs_node *x = &g[order[i]];
    uint32_t limit = o->limits[x->resource] ? o->limits[x->resource] : 1;
    if (x->kind == AT_LHS_START) assert_true(++flying[x->resource] <= limit);
    if (x->kind == AT_LHS_DONE) flying[x->resource]--;
  }
}

static void orders_respect_everything(void **state) {
  for (g_seed = 1; g_seed < 400;) {
    uint64_t seed = g_seed;
    at_arena *a = at_arena_create();
    uint32_t n = 1 + draw(200), *order;
    at_lhs_node *g = random_graph(a, n, 1 + draw(60), seed % 2);
    at_lhs_options o = {.limits = {1, 2, 3}, .reruns = draw(4)};
    at_lhs_stats before, after;
    assert_int_equal(at_code_take(at_lhs_simulate(g, n, &o, NULL, a, &before)),
                     0);
    o.memory_limit = draw(3) ? before.peak : 0;
    assert_int_equal(at_code_take(at_lhs_run(g, n, &o, a, &order, &after)), 0);
    check_order(g, n, &o, order, a);
    assert_true(after.seconds <= before.seconds);
    if (o.memory_limit) assert_true(after.peak <= o.memory_limit);
    at_arena_destroy(a);
    g_seed = seed + 1;
  }
}

// Two transfers of 100 us beside 150 us of work: on one network they are
// through after 200, on two after 100.
static void networks_are_shared(void **state) {
  at_arena *a = at_arena_create();
  uint32_t first[] = {0}, second[] = {1};
  at_lhs_node g[5] = {
      {.kind = AT_LHS_START, .latency = 100e-6, .partner = 3},
      {.kind = AT_LHS_START, .latency = 100e-6, .partner = 4, .resource = 1},
      {.cost = 150e-6},
      {.kind = AT_LHS_DONE, .partner = 0, .reads = first, .num_reads = 1},
      {.kind = AT_LHS_DONE,
       .partner = 1,
       .resource = 1,
       .reads = second,
       .num_reads = 1}};
  at_lhs_options two = {0}, one = {.link = {1, 1}};
  at_lhs_stats s;
  double *begin, *end;
  assert_int_equal(at_code_take(at_lhs_simulate(g, 5, &two, NULL, a, &s)), 0);
  assert_float_equal(s.exposed, 0, 1e-12);
  assert_int_equal(at_code_take(at_lhs_simulate(g, 5, &one, NULL, a, &s)), 0);
  assert_float_equal(s.exposed, 50e-6, 1e-12);
  assert_float_equal(s.seconds, 200e-6, 1e-12);
  // A shorter one leaves the network to the other when it is through.
  g[0].latency = 20e-6;
  assert_int_equal(
      at_code_take(at_lhs_times(g, 5, &one, NULL, a, &begin, &end)), 0);
  assert_float_equal(end[0], 40e-6, 1e-12);
  assert_float_equal(end[1], 120e-6, 1e-12);
  assert_float_equal(begin[2], 0, 1e-12);
  at_arena_destroy(a);
}

// A gradient's all-reduce beside the layers below it: all of it can hide.
static void work_is_put_between(void **state) {
  enum { kLayers = 8 };
  at_arena *a = at_arena_create();
  at_lhs_node g[3 * kLayers] = {0};
  uint32_t reads[3 * kLayers];
  for (uint32_t i = 0; i < kLayers;
       i++) {  // backward of layer i, its all-reduce
    at_lhs_node *b = &g[3 * i], *s = b + 1, *d = b + 2;
    *b = (at_lhs_node){.cost = 100e-6, .bytes = 10};
    if (i) reads[3 * i] = 3 * i - 3, b->reads = &reads[3 * i], b->num_reads = 1;
    *s = (at_lhs_node){.kind = AT_LHS_START,
                       .latency = 90e-6,
                       .bytes = 10,
                       .partner = 3 * i + 2,
                       .reads = &reads[3 * i + 1],
                       .num_reads = 1};
    *d = (at_lhs_node){.kind = AT_LHS_DONE,
                       .partner = 3 * i + 1,
                       .bytes = 10,
                       .output = true,
                       .reads = &reads[3 * i + 2],
                       .num_reads = 1};
    reads[3 * i + 1] = 3 * i, reads[3 * i + 2] = 3 * i + 1;
  }
  at_lhs_options o = {0};
  at_lhs_stats before, after;
  uint32_t *order;
  assert_int_equal(
      at_code_take(at_lhs_simulate(g, 3 * kLayers, &o, NULL, a, &before)), 0);
  assert_int_equal(
      at_code_take(at_lhs_run(g, 3 * kLayers, &o, a, &order, &after)), 0);
  printf("exposed %.0f us -> %.0f us, pairs with work between %u -> %u\n",
         before.exposed * 1e6, after.exposed * 1e6, before.pairs, after.pairs);
  assert_true(before.exposed > 719e-6 &&
              after.exposed < 91e-6);  // only the last one's
  assert_int_equal(after.pairs, kLayers - 1);
  at_arena_destroy(a);
}

static void bad_graphs_are_refused(void **state) {
  at_arena *a = at_arena_create();
  uint32_t *order, self = 0;
  at_lhs_options o = {0};
  at_lhs_stats s;
  at_lhs_node g[2] = {{.reads = &self, .num_reads = 1}};
  assert_int_equal(at_code_take(at_lhs_run(g, 1, &o, a, &order, &s)),
                   AT_INVALID_ARGUMENT);
  g[0] = (at_lhs_node){.kind = AT_LHS_START, .partner = 7};
  assert_int_equal(at_code_take(at_lhs_run(g, 1, &o, a, &order, &s)),
                   AT_INVALID_ARGUMENT);
  g[0] = (at_lhs_node){.cost = -1};
  assert_int_equal(at_code_take(at_lhs_run(g, 1, &o, a, &order, &s)),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_lhs_run(g, 0, &o, a, &order, &s)), 0);
  at_arena_destroy(a);
}

// Of this thread: what else the machine does is not the scheduler's.
static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void large_graphs_are_fast(void **state) {
  static const struct {
    uint32_t n;
    double most;
  } rows[] = {{10000, 1}, {100000, 15}};
  for (size_t i = 0; i < 2; i++) {
    at_arena *a = at_arena_create();
    uint32_t *order;
    g_seed = 7;
    at_lhs_node *g = random_graph(a, rows[i].n, 300, true);
    at_lhs_options o = {.limits = {1, 2, 3}};
    at_lhs_stats s;
    double from = cpu_seconds();
    assert_int_equal(at_code_take(at_lhs_run(g, rows[i].n, &o, a, &order, &s)),
                     0);
    double seconds = cpu_seconds() - from;
    printf("%u instructions: %.3f s\n", rows[i].n, seconds);
#ifdef NDEBUG
    assert_true(seconds <= rows[i].most);
#endif
    check_order(g, rows[i].n, &o, order, a);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(orders_respect_everything),
      cmocka_unit_test(networks_are_shared),
      cmocka_unit_test(work_is_put_between),
      cmocka_unit_test(bad_graphs_are_refused),
      cmocka_unit_test(large_graphs_are_fast),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
