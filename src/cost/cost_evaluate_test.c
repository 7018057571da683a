// What the modes predict of points that were left out of the H100 and B200
// tables, the laws of the estimates, and how long a lookup takes.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cost/cost.h"

// A table that comes with Atoll.
static const at_perf_table *table(const char *name) {
  const at_perf_table *all;
  size_t n;
  assert_int_equal(at_code_take(at_perf_builtin(&all, &n)), 0);
  const at_perf_table *t = at_perf_find(all, n, name);
  assert_non_null(t);
  return t;
}

// Rows in the order of at_perf_evaluate; only atoll mode is held to bounds.
static void errors_on_left_out_points(void **state) {
  at_arena *a = at_arena_create();
  const at_perf_table *tables[] = {table("sm_90"), table("sm_100_B200")};
  at_perf_error *rows;
  size_t n;
  assert_int_equal(
      at_code_take(at_perf_evaluate(tables, 2, NULL, NULL, a, &rows, &n)), 0);
  assert_int_equal(n, 12);
  for (size_t i = 0; i < n; i++) {
    const at_perf_error *r = &rows[i];
    printf(
        "%-26s %-6s n=%4zu median %5.1f%% p90 %5.1f%% worst %5.1f%%, %zu "
        "within 10%%\n",
        r->what, at_interp_text(r->mode), r->count, r->median * 100,
        r->p90 * 100, r->worst * 100, r->within);
    if (r->mode != AT_INTERP_ATOLL) continue;
    if (i < 3)
      assert_true(r->count == 480 && r->median <= 0.10 && r->p90 <= 0.40);
    else if (i < 6)
      assert_true(r->median <= 0.10 && r->p90 <= 0.40);
    else if (i < 9)
      assert_true(r->count == 24 && r->median <= 0.05 && r->within == 24);
    else
      assert_true(r->median <= 0.06);
  }
  at_arena_destroy(a);
}

// Fails the test where the text is no target.
static at_target *target(at_arena *a, const char *text, at_interp mode) {
  at_target *t = NULL;
  at_status st = at_target_parse(at_str_of(text), mode, a, &t);
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
  return t;
}

// More bytes never take less time.
static void monotone_in_bytes(void **state) {
  static const char *const targets[] = {"H100:8",    "B200:8",    "GB200:72",
                                        "H100:32",   "A100:8",    "v5p:4x4x4",
                                        "v6e:16x16", "2*v5e:4x4", "7x:2x2x2"};
  at_arena *a = at_arena_create();
  for (size_t i = 0; i < AT_LEN(targets); i++) {
    at_target *t = target(a, targets[i], AT_INTERP_ATOLL);
    for (int op = AT_ALL_REDUCE; op < AT_COLLECTIVE_COUNT; op++) {
      uint32_t pairs[8][2];
      for (uint32_t k = 0; k < 8; k++)
        pairs[k][0] = k, pairs[k][1] = (k + 1) % 8;
      double last = 0;
      for (double size = 1; size < 1e12; size *= 1.07) {
        at_collective c = {.op = (at_collective_op)op,
                           .dtype = AT_F32,
                           .bytes = (int64_t)size,
                           .groups = {1, t->num_devices, NULL},
                           .pairs = (const uint32_t(*)[2])pairs,
                           .num_pairs = 8};
        at_cost_time time;
        assert_int_equal(at_code_take(at_cost_collective(t, &c, &time)), 0);
        if (!(time.seconds >= last * (1 - 1e-12)) || !isfinite(time.seconds))
          fail_msg("%s, %s: %.0f bytes take %.9g s, fewer took %.9g",
                   targets[i], at_collective_text(c.op), size, time.seconds,
                   last);
        last = time.seconds;
      }
    }
  }
  at_arena_destroy(a);
}

// A longer dimension never takes less time, whatever the type.
static void monotone_in_flops(void **state) {
  static const char *const targets[] = {"H100", "B200", "A100"};
  static const at_dtype types[] = {AT_BF16, AT_F32, AT_S8, AT_F16, AT_F64};
  at_arena *a = at_arena_create();
  for (size_t i = 0; i < AT_LEN(targets); i++) {
    at_target *t = target(a, targets[i], AT_INTERP_ATOLL);
    for (size_t k = 0; k < AT_LEN(types); k++)
      for (int dim = 0; dim < 4; dim++) {
        double last = 0;
        for (double size = 1; size < 20000; size *= 1.13) {
          int64_t d[4] = {2, 300, 1000, 777};
          d[dim] = (int64_t)size;
          at_gemm g = {types[k], types[k], types[k], d[0], d[1], d[2], d[3]};
          at_cost_time time;
          assert_int_equal(at_code_take(at_cost_gemm(t, &g, &time)), 0);
          if (!(time.seconds >= last * (1 - 1e-12)))
            fail_msg("%s: dimension %d of %.0f takes %.9g s, less took %.9g",
                     targets[i], dim, size, time.seconds, last);
          last = time.seconds;
        }
      }
  }
  at_arena_destroy(a);
}

// The least of several rounds, so that a busy machine does not count.
static void lookups_take_less_than_a_microsecond(void **state) {
  at_arena *a = at_arena_create();
  for (int mode = AT_INTERP_SEED; mode <= AT_INTERP_ATOLL; mode++) {
    at_perf *p;
    assert_int_equal(at_code_take(at_perf_prepare(
                         table("sm_90"), (at_interp)mode, false, a, &p)),
                     0);
    enum { kRounds = 20, kCalls = 2000 };
    double least[2] = {INFINITY, INFINITY}, sum = 0;
    for (int r = 0; r < kRounds; r++)
      for (int gemm = 0; gemm < 2; gemm++) {
        uint64_t from = at_clock_ns();
        for (int i = 0; i < kCalls; i++) {
          at_cost_time t;
          at_gemm g = {AT_BF16, AT_BF16,     AT_BF16, 1 + i % 4,
                       300 + i, 500 + 2 * i, 4000 - i};
          at_collective c = {.op = AT_ALL_GATHER,
                             .dtype = AT_BF16,
                             .bytes = 1000 + 7919 * i,
                             .groups = {1, 8, NULL}};
          at_status st =
              gemm ? at_perf_gemm(p, &g, &t) : at_perf_collective(p, &c, &t);
          if (at_code_take(st)) fail();
          sum += t.seconds;
        }
        least[gemm] =
            fmin(least[gemm], (double)(at_clock_ns() - from) / kCalls);
      }
    printf("%s: %.0f ns per collective, %.0f ns per product (%.3g)\n",
           at_interp_text((at_interp)mode), least[0], least[1], sum);
    // Sanitizers and debug builds are not what a lookup costs.
#if defined(NDEBUG) && !__has_feature(address_sanitizer) && \
    !__has_feature(thread_sanitizer)
    assert_true(least[0] < 1000 && least[1] < 1000);
#endif
  }
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_on_left_out_points),
      cmocka_unit_test(monotone_in_bytes),
      cmocka_unit_test(monotone_in_flops),
      cmocka_unit_test(lookups_take_less_than_a_microsecond),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
