// Whole ops on targets: XLA's speed-of-light cases and fusions
// (testdata/vectors.json: sol_estimator_hlo_cases_us and a6000_fusion_us, on
// the card of XLA's tests), and the order in which sources are asked.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cost/cost.h"
#include "cost/count.h"
#include "cost/gpu.h"

// An RTX A6000 as XLA's tests describe it; %s: the key of its tables.
static const char card[] =
    "{\"name\":\"A6000\",\"platform\":\"gpu\","
    "\"perf_table\":{\"value\":\"%s\",\"source\":\"XLA's test\"},"
    "\"op_table\":{\"value\":\"%s\",\"source\":\"XLA's test\"},"
    "\"cores_per_chip\":{\"value\":84,\"source\":\"XLA's test\"},"
    "\"fpus_per_core\":{\"value\":128,\"source\":\"XLA's test\"},"
    "\"clock_hz\":{\"value\":1.41e9,\"source\":\"XLA's test\"},"
    "\"hbm_bytes_per_second_per_chip\":{\"value\":768096000000,\"source\":"
    "\"XLA's test\"},"
    "\"l2_bytes\":{\"value\":6291456,\"source\":\"XLA's test\"},"
    "\"l1_bytes_per_core\":{\"value\":2048,\"source\":\"XLA's test\"},"
    "\"memory_transaction_bytes_per_clock\":{\"value\":32,\"source\":\"XLA's "
    "test\"},"
    "\"nvlink_links\":{\"value\":18,\"source\":\"XLA's test\"},"
    "\"nvlink_link_bytes_per_second\":{\"value\":25e9,\"source\":\"XLA's "
    "test\"}}";

// The card with the tables of machine `key`.
static at_target *card_target(at_arena *a, const char *key, at_interp mode) {
  char *text = at_arena_printf(a, card, key, key);
  at_machine *m = at_new(a, at_machine, 1);
  at_target *t = NULL;
  assert_int_equal(at_code_take(at_machine_read(
                       (at_bytes){(uint8_t *)text, strlen(text)}, a, m)),
                   0);
  assert_int_equal(at_code_take(at_target_make(m, mode, a, &t)), 0);
  return t;
}

// The network of XLA's tests.
static void test_network(at_target *t) {
  t->network.launch = t->network.chunk_prep = t->network.rtt = 100e-6;
  t->network.nic = 100e9;
}

// Fails the test where the text is no program.
static at_module *parse(at_arena *a, const char *text) {
  at_module *m = NULL;
  at_status st = at_hlo_parse(at_str_of(text), a, &m);
  if (!at_ok(st)) fail_msg("%s\n%s", at_status_message(st), text);
  return m;
}

// The last op of the entry.
static at_cost_time cost_of(at_arena *a, const at_target *t, const char *text) {
  at_module *m = parse(a, text);
  at_cost_time time = {0};
  at_status st = at_cost_node(t, m->entry->last, &time);
  if (!at_ok(st)) fail_msg("%s\n%s", at_status_message(st), text);
  return time;
}

#define PROGRAM(head, in, body, out)                               \
  "hlo module \"m\" " head " entry=\"main\" {\nfunc \"main\" (" in \
  ") -> (" out ") {\n" body "\n  return %9\n}\n}\n"
#define ADD(t)                                               \
  " ((%2: " t "[], %3: " t "[]) {\n    %4 = add %2, %3 : " t \
  "[]\n"                                                     \
  "    return %4\n  })"
#define BOTH_HOSTS "[[0,1,2,3,4,5,6,7],[8,9,10,11,12,13,14,15]]"
#define PAIRS "[[0,8],[1,9],[2,10],[3,11],[4,12],[5,13],[6,14],[7,15]]"
#define GATHER(groups, in, n)                                                \
  PROGRAM("partitions=16", "%0: bf16[16000," in "]",                         \
          "  %9 = all_gather %0 {channel_id=1, use_global_device_ids=true, " \
          "replica_groups=" groups ", all_gather_dim=1} : bf16[16000,8000]", \
          "bf16[16000,8000]")
#define SCATTER(partitions, rows, groups)                                    \
  PROGRAM(                                                                   \
      "partitions=" partitions, "%0: bf16[8192,128256]",                     \
      "  %9 = reduce_scatter %0 {channel_id=1, use_global_device_ids=true, " \
      "replica_groups=" groups                                               \
      ", scatter_dimension=0}" ADD("bf16") " : bf16[" rows ",128256]",       \
      "bf16[" rows ",128256]")
#define SHIFT(partitions, pairs)                                               \
  PROGRAM(                                                                     \
      "partitions=" partitions, "%0: f32[262144,1024]",                        \
      "  %9 = collective_permute %0 {channel_id=1, source_target_pairs=" pairs \
      "} "                                                                     \
      ": f32[262144,1024]",                                                    \
      "f32[262144,1024]")

// Microseconds, cut off, and the source that answers.
static void collectives(void **state) {
  at_arena *a = at_arena_create();
  static const struct {
    const char *program;
    bool test_flags;  // XLA's test gives the network, else the defaults hold
    double us;
    at_cost_source from;
  } rows[] = {
      {GATHER(BOTH_HOSTS, "1000", "8"), true, 695, AT_COST_FROM_FALLBACK},
      {GATHER(PAIRS, "4000", "2"), true, 5445, AT_COST_FROM_S_CURVE},
      {GATHER("[[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]]", "500", "16"), true,
       2324, AT_COST_FROM_S_CURVE},
      {SCATTER("128", "64", "[]"), true, 18895, AT_COST_FROM_S_CURVE},
      {SCATTER("8", "1024", "[[0,1,2,3,4,5,6,7]]"), false, 5716,
       AT_COST_FROM_FALLBACK},
      {SHIFT("4", "[[0,3],[1,0],[2,1],[3,2]]"), false, 3706,
       AT_COST_FROM_TABLE},
      {SHIFT("4", "[[0,1],[1,0],[2,3],[3,2]]"), false, 3696,
       AT_COST_FROM_TABLE},
      {SHIFT("4", "[[0,1],[2,3]]"), false, 3961, AT_COST_FROM_TABLE},
      {SHIFT("16", PAIRS), false, 27816, AT_COST_FROM_S_CURVE},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_target *t = card_target(a, "sm_90", AT_INTERP_XLA);
    if (rows[i].test_flags) test_network(t);
    at_cost_time time = cost_of(a, t, rows[i].program);
    if (floor(time.seconds * 1e6) != rows[i].us || time.source != rows[i].from)
      fail_msg("row %zu: %.3f us from %s, not %.0f", i, time.seconds * 1e6,
               at_cost_source_text(time.source), rows[i].us);
  }
  at_arena_destroy(a);
}

#define DOT(l, r, o, attrs)        \
  PROGRAM("", "%0: " l ", %1: " r, \
          "  %9 = dot_general %0, %1 {" attrs "} : " o, o)
#define PLAIN "lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]"

// One program for each source, in the order in which they are asked.
static void ops(void **state) {
  at_arena *a = at_arena_create();
  static const struct {
    const char *program;
    double us;
    at_cost_source from;
  } rows[] = {
      {DOT("bf16[1024,512]", "bf16[512,4096]", "bf16[1024,4096]", PLAIN), 12,
       AT_COST_FROM_TABLE},
      {DOT("f32[4,256,256]", "f32[4,256,1024]", "f32[4,256,1024]",
           "lhs_batching_dimensions=[0], rhs_batching_dimensions=[0], "
           "lhs_contracting_dimensions=[2], rhs_contracting_dimensions=[1]"),
       10, AT_COST_FROM_TABLE},
      {DOT("bf16[1024,1024]", "bf16[1024,1024]", "bf16[1024,1024]", PLAIN), 8,
       AT_COST_FROM_TABLE},
      {PROGRAM("", "%0: bf16[1024,1024], %1: bf16[1024,1024]",
               "  %9 = fusion %0, %1 {kind=LOOP} ((%5: bf16[1024,1024], %6: "
               "bf16[1024,1024]) {\n"
               "    %7 = dot_general %5, %6 {" PLAIN
               "} : bf16[1024,1024]\n    return %7\n  }) : "
               "bf16[1024,1024]",
               "bf16[1024,1024]"),
       8, AT_COST_FROM_TABLE},
      {PROGRAM("", "%0: bf16[1024,1024], %1: bf16[1024,1024]",
               "  %9 = fusion %0, %1 {kind=LOOP} ((%5: bf16[1024,1024], %6: "
               "bf16[1024,1024]) {\n"
               "    %7 = add %5, %6 : bf16[1024,1024]\n    return %7\n  }) : "
               "bf16[1024,1024]",
               "bf16[1024,1024]"),
       8, AT_COST_FROM_FUSION},
      {PROGRAM("", "%0: bf16[128,128]",
               "  %9 = custom_call %0 {call_target_name=\"mosaic_gpu_v2\", "
               "frontend_attributes={\"latency_metadata\"=\"30000\"}} : "
               "bf16[128,128]",
               "bf16[128,128]"),
       30, AT_COST_FROM_ATTRIBUTE},
      {PROGRAM(
           "", "%0: bf16[128,128]",
           "  %9 = custom_call %0 {call_target_name=\"other\"} : bf16[128,128]",
           "bf16[128,128]"),
       10, AT_COST_FROM_CLASS},
      {PROGRAM("", "", "  %9 = constant {value=f16[] 3.14} : f16[]", "f16[]"),
       0, AT_COST_FREE},
  };
  at_target *t = card_target(a, "sm_90", AT_INTERP_XLA);
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_cost_time time = cost_of(a, t, rows[i].program);
    if (floor(time.seconds * 1e6 + 1e-6) != rows[i].us ||
        time.source != rows[i].from)
      fail_msg("row %zu: %.3f us from %s, not %.0f", i, time.seconds * 1e6,
               at_cost_source_text(time.source), rows[i].us);
  }
  at_arena_destroy(a);
}

#define LOOP(in, body, out, args)                                            \
  PROGRAM("", in, "  %9 = fusion " args " {kind=LOOP} (" body "  }) : " out, \
          out)
#define MAX                                                                \
  " ((%12: f32[], %13: f32[]) {\n    %14 = maximum %12, %13 : f32[]\n    " \
  "return %14\n  })"

// Milliseconds of a card, measured by XLA's authors, with their tolerances.
// Each kernel adds its launch.
static void fusions(void **state) {
  at_arena *a = at_arena_create();
  static const struct {
    const char *program;
    double us, within, launches;
  } rows[] = {
      {LOOP("",
            "() {\n    %5 = constant {value=f32[] 0} : f32[]\n    %6 = "
            "broadcast_in_dim %5 "
            "{broadcast_dimensions=[]} : f32[10000000]\n    return %6\n",
            "f32[10000000]", ""),
       53, 10, 1},
      {LOOP("%0: f32[1000], %1: f32[1000]",
            "(%5: f32[1000], %6: f32[1000]) {\n"
            "    %7 = add %5, %6 : f32[1000]\n    return %7\n",
            "f32[1000]", "%0, %1"),
       1, 1, 1},
      {LOOP("%0: f32[10000000], %1: f32[10000000]",
            "(%5: f32[10000000], %6: f32[10000000]) {\n    %7 = add %5, %6 : "
            "f32[10000000]\n"
            "    return %7\n",
            "f32[10000000]", "%0, %1"),
       175, 30, 1},
      {LOOP("%0: f32[10000], %1: f32[10000000]",
            "(%5: f32[10000], %6: f32[10000000]) {\n    %7 = broadcast_in_dim "
            "%5 "
            "{broadcast_dimensions=[0]} : f32[10000,1000]\n    %8 = reshape %7 "
            ": f32[10000000]\n"
            "    %10 = add %8, %6 : f32[10000000]\n    return %10\n",
            "f32[10000000]", "%0, %1"),
       118, 12, 1},
      {LOOP("%0: f32[1000000], %1: f32[10000000]",
            "(%5: f32[1000000], %6: f32[10000000]) {\n    %7 = "
            "broadcast_in_dim %5 "
            "{broadcast_dimensions=[0]} : f32[1000000,10]\n    %8 = reshape %7 "
            ": f32[10000000]\n"
            "    %10 = add %8, %6 : f32[10000000]\n    return %10\n",
            "f32[10000000]", "%0, %1"),
       123, 12, 1},
      {LOOP("%0: f32[1500,32,128], %1: f32[]",
            "(%5: f32[1500,32,128], %6: f32[]) {\n    %7 = transpose %5 "
            "{permutation=[0,2,1]} : "
            "f32[1500,128,32]\n    %8 = reduce %7, %6 {dimensions=[1]}" MAX
            " : f32[1500,32]\n"
            "    return %8\n",
            "f32[1500,32]", "%0, %1"),
       514, 10, 1},
  };
  at_target *t = card_target(a, "sm_86", AT_INTERP_XLA);
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    double us = (cost_of(a, t, rows[i].program).seconds + t->gpu->launch) * 1e6;
    if (fabs(us - rows[i].us) > rows[i].within)
      fail_msg("row %zu: %.1f us, not %.0f", i, us, rows[i].us);
  }
  // The last one as two kernels.
  double transposed =
      cost_of(
          a, t,
          PROGRAM(
              "", "%0: f32[1500,32,128]",
              "  %9 = transpose %0 {permutation=[0,2,1]} : f32[1500,128,32]",
              "f32[1500,128,32]"))
          .seconds;
  double reduced = cost_of(a, t,
                           PROGRAM("", "%0: f32[1500,128,32], %1: f32[]",
                                   "  %9 = reduce %0, %1 {dimensions=[1]}" MAX
                                   " : f32[1500,32]",
                                   "f32[1500,32]"))
                       .seconds;
  double us = (transposed + reduced + 2 * t->gpu->launch) * 1e6;
  if (fabs(us - 105) > 10) fail_msg("unfused: %.1f us", us);
  at_arena_destroy(a);
}

// A loop that is one node counts all of its turns; the whole program counts a
// body once, as XLA does. Views move nothing.
static void counts_of_nodes(void **state) {
  at_arena *a = at_arena_create();
  const at_module *m = parse(
      a,
      "hlo module \"t\" entry=\"main\" {\n"
      "func \"main\" (%0: f32[4]) -> (f32[2,2]) {\n"
      "  %1 = constant {value=i32[] 0} : i32[]\n"
      "  %2:2 = while %1, %0 ((%3: i32[], %4: f32[4]) {\n"
      "    %5 = constant {value=i32[] 5} : i32[]\n"
      "    %6 = compare %3, %5 {comparison_direction=LT, compare_type=SIGNED} "
      ": i1[]\n"
      "    return %6\n"
      "  }, (%7: i32[], %8: f32[4]) {\n"
      "    %9 = constant {value=i32[] 1} : i32[]\n"
      "    %10 = add %7, %9 : i32[]\n"
      "    %11 = tanh %8 : f32[4]\n"
      "    return %10, %11\n"
      "  }) : i32[], f32[4]\n"
      "  %12 = reshape %2.1 : f32[2,2]\n"
      "  return %12\n"
      "}\n"
      "}\n");
  const at_node *view = m->entry->results[0].node;
  const at_node *loop = view->operands[0].node;
  at_counter c = {.arena = a};
  at_count turns = {0}, none = {0}, all;
  assert_true(at_ok(at_count_kernel(&c, loop, &turns)));
  assert_true(at_ok(at_count_kernel(&c, view, &none)));
  assert_true(at_ok(at_count_of(m, &c, &all)));
  assert_true(turns.transcendentals == 5 * 4);
  assert_true(turns.flops == 5 * 1);  // its condition is control
  assert_true(all.transcendentals == 4);
  assert_true(turns.bytes_accessed == 5 * all.bytes_accessed);
  assert_true(none.bytes_accessed == 0);
  at_arena_destroy(a);
}

// while (i < n) { i += 1; n += by }: known only where no turn changes n.
static double trips_of(const char *by, bool *known) {
  at_arena *a = at_arena_create();
  char *text =
      at_arena_printf(a,
                      "hlo module \"t\" entry=\"main\" {\n"
                      "func \"main\" () -> (i32[]) {\n"
                      "  %%0 = constant {value=i32[] 0} : i32[]\n"
                      "  %%1 = constant {value=i32[] 10} : i32[]\n"
                      "  %%2:2 = while %%0, %%1 ((%%3: i32[], %%4: i32[]) {\n"
                      "    %%5 = compare %%3, %%4 {comparison_direction=LT, "
                      "compare_type=SIGNED} : i1[]\n"
                      "    return %%5\n"
                      "  }, (%%6: i32[], %%7: i32[]) {\n"
                      "    %%8 = constant {value=i32[] 1} : i32[]\n"
                      "    %%9 = add %%6, %%8 : i32[]\n"
                      "%s"
                      "  }) : i32[], i32[]\n"
                      "  return %%2\n"
                      "}\n"
                      "}\n",
                      by);
  const at_node *loop = parse(a, text)->entry->results[0].node;
  double trips = at_count_trips(loop, known);
  at_arena_destroy(a);
  return trips;
}

// Handed on as it is, and shrinking.
static void turns_of_a_loop_whose_bound_is_state(void **state) {
  bool known;
  assert_true(trips_of("    return %9, %7\n", &known) == 10 && known);
  assert_true(trips_of("    %10 = subtract %7, %8 : i32[]\n"
                       "    return %9, %10\n",
                       &known) == 1);
  assert_false(known);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_of_nodes),
      cmocka_unit_test(turns_of_a_loop_whose_bound_is_state),
      cmocka_unit_test(collectives),
      cmocka_unit_test(ops),
      cmocka_unit_test(fusions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
