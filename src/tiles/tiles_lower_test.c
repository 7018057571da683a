// Whole programs on tiles: values equal the evaluator's, elementwise ops move
// nothing, the planner beats the linear mapping.
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "hlo/random.h"
#include "passes/passes.h"
#include "tiles/lower.h"
#include "tiles/tiles_test_util.h"

// A program after its passes, not fused.
static at_module *parse(at_arena *a, const char *text) {
  at_module *m;
  at_pass_options p = {.fold_budget = 1 << 20};
  ok(at_hlo_parse(at_str_of(text), a, &m));
  ok(at_passes_run(m, &p, false, NULL, NULL));
  return m;
}

// Planned or linear, whatever memory it takes.
static const at_tiles_plan *lower(at_arena *a, at_module *m, bool linear) {
  at_tiles_machine t = mk2();
  at_tiles_lower_options o = {.linear = linear, .lenient = true};
  const at_tiles_plan *p;
  ok(at_tiles_lower(&t, m, &o, a, &p));
  return p;
}

// As a double.
static double element(const at_literal *l, int64_t i) {
  at_dtype t = l->type.dtype;
  if (at_is_float(t)) return at_literal_float(l, i);
  return (double)at_literal_int(l, i);
}

// Exactly, or within rounding; what has no order of numbers is left out.
static void compare(const at_literal *want, const at_literal *got, bool exact,
                    const char *what) {
  if (want->type.dtype == AT_TOKEN || at_is_complex(want->type.dtype)) return;
  for (int64_t i = 0; i < at_type_elements(&want->type); i++) {
    double x = element(want, i), y = element(got, i);
    double tol = exact ? 0
                       : 1e-5 * (1 + fabs(x)) *
                             (at_dtype_bytes(want->type.dtype) < 4 ? 400 : 1);
    if (!(x == y || (x != x && y != y) || fabs(x - y) <= tol))
      fail_msg("%s[%lld]: %.9g, not %.9g", what, (long long)i, y, x);
  }
}

// A program run tile by tile, planned and linear, on several threads and alone,
// against the evaluator. False: tiles cannot do it, which is said by name.
static bool check_run(at_module *m, const at_literal *const *args, at_arena *a,
                      bool exact, const char *what) {
  at_tiles_machine t = mk2();
  uint32_t n = m->entry->num_results;
  const at_literal **want = at_new(a, const at_literal *, n + 1),
                   **got = at_new(a, const at_literal *, n + 1);
  at_eval_options e = {0};
  ok(at_eval(m->entry, args, &e, a, want));
  for (int linear = 0; linear < 2; linear++) {
    at_tiles_lower_options o = {.linear = linear, .lenient = true};
    const at_tiles_plan *p;
    at_tiles_run_counts counts;
    at_status st = at_tiles_lower(&t, m, &o, a, &p);
    if (at_status_code(st) == AT_UNIMPLEMENTED)
      return at_status_free(st), false;
    ok(st);
    at_pool *pool = NULL;
    if (!linear) ok(at_pool_create(3, &pool));
    ok(at_tiles_plan_run(p, args, pool, a, got, &counts));
    at_pool_destroy(pool);
    for (uint32_t r = 0; r < n; r++) compare(want[r], got[r], exact, what);
    bool known = !strstr(p->advice, "turns are not known");
    bool branches = false;
    AT_FOR_NODES(x, m->entry) branches |= at_op_is(x->op, AT_CONTROL);
    if (known && !branches) assert_int_equal(counts.cycles, p->cycles);
  }
  return true;
}

// Random programs of these families.
static void check_random(uint32_t families, uint64_t first, int count,
                         bool exact) {
  int compared = 0;
  for (int c = 0; c < count; c++) {
    at_arena *a = at_arena_create();
    at_module *m;
    const at_literal **args;
    at_random_options o = {.seed = first + (uint64_t)c,
                           .nodes = 8,
                           .max_elements = 3000,
                           .families = families};
    o.dtypes = 1ull << AT_F32 | 1ull << AT_S32;
    if (!(families & AT_RANDOM_CONTROL)) o.dtypes |= 1ull << AT_F16;
    ok(at_random_module(a, &o, &m));
    ok(at_random_args(a, m->entry, o.seed, false, &args));
    at_pass_options p = {.fold_budget = 1 << 20};
    if (families & AT_RANDOM_CONTROL)  // calls are inlined
      ok(at_passes_run(m, &p, false, NULL, NULL));
    char what[32];
    snprintf(what, sizeof what, "seed %llu", (unsigned long long)o.seed);
    compared += check_run(m, args, a, exact, what);
    at_arena_destroy(a);
  }
  print_message("%d of %d programs compared\n", compared, count);
  assert_true(2 * compared >= count);
}

// Exact ops: the same bits.
static void elementwise_programs_run_in_blocks(void **state) {
  check_random(AT_RANDOM_EXACT, 1, 60, true);
}
static void moves_and_reductions(void **state) {
  check_random(AT_RANDOM_EXACT | AT_RANDOM_MOVE | AT_RANDOM_REDUCE, 100, 60,
               false);
}
static void products(void **state) {
  check_random(AT_RANDOM_DOT | AT_RANDOM_EXACT, 300, 40, false);
}
static void gathers(void **state) {
  check_random(AT_RANDOM_INDEX, 500, 40, false);
}
// Windows that leave the ends of a parameter unread, reversals, scatters.
static void everything(void **state) {
  check_random(AT_RANDOM_CONTROL | AT_RANDOM_EXACT | AT_RANDOM_MOVE |
                   AT_RANDOM_REDUCE | AT_RANDOM_DOT | AT_RANDOM_INDEX,
               6340, 60, false);
}
static void loops_and_branches(void **state) {
  check_random(AT_RANDOM_CONTROL | AT_RANDOM_EXACT, 600, 60, false);
}

// ---- What plans are like
static void elementwise_ops_move_nothing(void **state) {
  at_arena *a = at_arena_create();
  at_module *m = parse(
      a,
      "hlo module \"m\" entry=\"main\" {\n"
      "func \"main\" (%0: f32[100,300], %1: f32[100,300], %2: f32[300]) -> "
      "(f32[100,300]) {\n"
      "  %3 = broadcast_in_dim %2 {broadcast_dimensions=[1]} : f32[100,300]\n"
      "  %4 = add %0, %3 : f32[100,300]\n"
      "  %5 = multiply %4, %1 : f32[100,300]\n"
      "  %6 = tanh %5 : f32[100,300]\n"
      "  %7 = subtract %6, %0 : f32[100,300]\n"
      "  return %7\n}\n}\n");
  const at_tiles_plan *p = lower(a, m, false);
  for (uint32_t i = 0; i < p->num_steps; i++) {
    bool broadcasts = !strncmp(p->steps[i].name, "add", 3);
    if (!broadcasts) assert_int_equal(p->steps[i].exchange_bytes, 0);
  }
  at_arena_destroy(a);
}

// On any layout: an elementwise step that could have stayed where its operands
// are moves them only if it takes fewer cycles so.
static void elementwise_ops_move_only_for_gain(void **state) {
  int moved = 0, stayed = 0;
  for (uint64_t seed = 2000; seed < 2150; seed++) {
    at_arena *a = at_arena_create();
    at_module *m;
    at_random_options o = {.seed = seed,
                           .nodes = 14,
                           .max_elements = 40000,
                           .families = AT_RANDOM_EXACT | AT_RANDOM_FUNCTIONS |
                                       AT_RANDOM_MOVE | AT_RANDOM_REDUCE |
                                       AT_RANDOM_DOT};
    ok(at_random_module(a, &o, &m));
    at_tiles_machine t = mk2();
    at_tiles_lower_options planned = {.lenient = true};
    const at_tiles_plan *p;
    at_status st = at_tiles_lower(&t, m, &planned, a, &p);
    bool skipped = at_status_code(st) == AT_UNIMPLEMENTED;
    if (skipped) at_status_free(st);
    if (!skipped) ok(st);
    for (uint32_t i = 0; !skipped && i < p->num_steps; i++) {
      const at_tiles_step *s = &p->steps[i];
      char op[64];
      at_op which;
      snprintf(op, sizeof op, "%.*s", (int)strcspn(s->name, "."), s->name);
      if (!at_op_parse(at_str_of(op), &which) ||
          !at_op_is(which, AT_ELEMENTWISE) || !s->stay_cycles)
        continue;
      *(s->exchange_bytes ? &moved : &stayed) += 1;
      if (s->exchange_bytes && s->cycles > s->stay_cycles)
        fail_msg(
            "seed %llu %s: moves %lld bytes for %lld cycles; staying "
            "would take %lld",
            (unsigned long long)seed, s->name, (long long)s->exchange_bytes,
            (long long)s->cycles, (long long)s->stay_cycles);
    }
    at_arena_destroy(a);
  }
  print_message("%d steps stay, %d move because it is cheaper\n", stayed,
                moved);
  assert_true(stayed > 50);
}

// Against the baseline, on shapes from square to one side long.
static void products_beat_the_linear_mapping(void **state) {
  static const int64_t shapes[][3] = {
      {512, 512, 512}, {128, 784, 512}, {2048, 64, 64}, {16, 4096, 1000}};
  for (size_t i = 0; i < AT_LEN(shapes); i++) {
    const long long x = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
    at_arena *a = at_arena_create();
    at_module *m =
        parse(a, at_arena_printf(
                     a,
                     "hlo module \"m\" entry=\"main\" {\n"
                     "func \"main\" (%%0: f32[%lld,%lld], %%1: f32[%lld,%lld]) "
                     "-> (f32[%lld,%lld]) {\n"
                     "  %%2 = dot_general %%0, %%1 "
                     "{lhs_batching_dimensions=[], rhs_batching_dimensions=[], "
                     "lhs_contracting_dimensions=[1], "
                     "rhs_contracting_dimensions=[0]} : f32[%lld,%lld]\n"
                     "  return %%2\n}\n}\n",
                     x, k, k, n, x, n, x, n));
    const at_tiles_plan *planned = lower(a, m, false),
                        *linear = lower(a, m, true);
    print_message("%lld x %lld x %lld: planned %lld cycles, linear %lld\n", x,
                  k, n, (long long)planned->cycles, (long long)linear->cycles);
    assert_true(2 * linear->cycles >= 3 * planned->cycles);
    // Never faster than the multiplier.
    assert_true((double)planned->cycles >=
                (double)x * (double)k * (double)n / (1472 * 16.1));
    at_arena_destroy(a);
  }
}

// Random programs: never worse than linear, whatever they do.
static void the_planner_is_never_worse(void **state) {
  for (uint64_t seed = 900; seed < 930; seed++) {
    at_arena *a = at_arena_create();
    at_module *m;
    at_random_options o = {.seed = seed,
                           .nodes = 12,
                           .max_elements = 50000,
                           .families = AT_RANDOM_EXACT | AT_RANDOM_FUNCTIONS |
                                       AT_RANDOM_MOVE | AT_RANDOM_REDUCE |
                                       AT_RANDOM_DOT};
    ok(at_random_module(a, &o, &m));
    at_tiles_machine t = mk2();
    at_tiles_lower_options planned = {.lenient = true},
                           linear = {.linear = true, .lenient = true};
    const at_tiles_plan *p, *l;
    at_status st = at_tiles_lower(&t, m, &planned, a, &p);
    if (at_status_code(st) ==
        AT_UNIMPLEMENTED) {  // a rank or an op that tiles lack
      at_status_free(st);
    } else {
      ok(st);
      ok(at_tiles_lower(&t, m, &linear, a, &l));
      assert_true(p->cycles <= l->cycles || l->peak_bytes > t.bytes_per_tile);
    }
    at_arena_destroy(a);
  }
}

// A chain of 10,000 ops over all tiles is planned in seconds.
static void ten_thousand_nodes(void **state) {
  enum { kNodes = 10000 };
  at_arena *a = at_arena_create();
  at_module *m;
  at_strbuf b = {0};
  at_strbuf_addz(&b,
                 "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (%0: "
                 "f32[1472,64], %1: f32[1472,64]) -> (f32[1472,64]) {\n");
  for (int i = 2; i < kNodes + 2; i++)
    at_strbuf_addf(&b, "  %%%d = %s %%%d, %%%d : f32[1472,64]\n", i,
                   i % 3 ? "add" : "multiply", i - 1, i > 200 ? i - 200 : 0);
  at_strbuf_addf(&b, "  return %%%d\n}\n}\n", kNodes + 1);
  ok(at_hlo_parse(at_strbuf_str(&b), a, &m));
  at_strbuf_free(&b);
  const at_tiles_plan *p = lower(a, m, false);
  assert_int_equal(p->num_steps, kNodes);
  assert_true(p->data_bytes < 201 * 64 * 4 + 4096);
  for (uint32_t i = 0; i < p->num_steps; i++)
    assert_int_equal(p->steps[i].exchange_bytes, 0);
  at_arena_destroy(a);
}

// More operands than a rule has room for windows.
static void wide_concatenations(void **state) {
  enum { kOperands = 40, kRows = 48 };
  at_arena *a = at_arena_create();
  at_module *m;
  const at_literal **args;
  at_strbuf b = {0};
  at_strbuf_addz(&b, "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (");
  for (int i = 0; i < kOperands; i++)
    at_strbuf_addf(&b, "%s%%%d: f32[%d,32]", i ? ", " : "", i, kRows);
  at_strbuf_addf(&b, ") -> (f32[%d,32]) {\n  %%%d = concatenate ",
                 kOperands * kRows, kOperands);
  for (int i = 0; i < kOperands; i++)
    at_strbuf_addf(&b, "%s%%%d", i ? ", " : "", i);
  at_strbuf_addf(&b, " {dimension=0} : f32[%d,32]\n  return %%%d\n}\n}\n",
                 kOperands * kRows, kOperands);
  ok(at_hlo_parse(at_strbuf_str(&b), a, &m));
  at_strbuf_free(&b);
  ok(at_random_args(a, m->entry, 1, false, &args));
  assert_true(check_run(m, args, a, true, "concatenate"));
  at_arena_destroy(a);
}

// tanh in a loop of so many turns.
static at_module *loop_of(at_arena *a, long long turns) {
  at_module *m;
  at_strbuf b = {0};
  at_strbuf_addf(&b,
                 "hlo module \"m\" entry=\"main\" {\n"
                 "func \"main\" (%%0: f32[64,64]) -> (f32[64,64]) {\n"
                 "  %%1 = constant {value=i64[] 0} : i64[]\n"
                 "  %%2:2 = while %%1, %%0 ((%%3: i64[], %%4: f32[64,64]) {\n"
                 "    %%5 = constant {value=i64[] %lld} : i64[]\n"
                 "    %%6 = compare %%3, %%5 {comparison_direction=LT} : i1[]\n"
                 "    return %%6\n  }, (%%7: i64[], %%8: f32[64,64]) {\n"
                 "    %%9 = constant {value=i64[] 1} : i64[]\n"
                 "    %%10 = add %%7, %%9 : i64[]\n"
                 "    %%11 = tanh %%8 : f32[64,64]\n"
                 "    return %%10, %%11\n  }) : i64[], f32[64,64]\n"
                 "  return %%2.1\n}\n}\n",
                 turns);
  ok(at_hlo_parse(at_strbuf_str(&b), a, &m));
  at_strbuf_free(&b);
  return m;
}

// A body counts once for each turn.
static void loops_count_their_turns(void **state) {
  static const long long turns[] = {7, 1ll << 40};
  for (size_t k = 0; k < AT_LEN(turns); k++) {
    at_arena *a = at_arena_create();
    const at_tiles_plan *p = lower(a, loop_of(a, turns[k]), false);
    bool found = false;
    for (uint32_t i = 0; i < p->num_steps; i++)
      if (!strncmp(p->steps[i].name, "tanh", 4))
        found = p->steps[i].times == turns[k];
    assert_true(found && p->cycles > turns[k]);
    at_arena_destroy(a);
  }
}

// Cycles of more turns than that are not counted.
static void too_many_turns_are_refused(void **state) {
  at_arena *a = at_arena_create();
  at_tiles_machine t = mk2();
  at_tiles_lower_options o = {0};
  const at_tiles_plan *p;
  expect(at_tiles_lower(&t, loop_of(a, (1ll << 40) + 1), &o, a, &p),
         AT_INVALID_ARGUMENT, "2^40 turns", "", "", "");
  int64_t sum = 5;
  at_tiles_add(&sum, 3, 4);
  assert_true(sum == 17);
  at_tiles_add(&sum, 1ll << 40, 1ll << 40);
  assert_true(sum == INT64_MAX);
  at_tiles_add(&sum, 1, 1);
  assert_true(sum == INT64_MAX);
  at_arena_destroy(a);
}

// RESOURCE_EXHAUSTED that says where.
static void too_large_names_tile_and_step(void **state) {
  at_arena *a = at_arena_create();
  at_module *m =
      parse(a,
            "hlo module \"m\" entry=\"main\" {\n"
            "func \"main\" (%0: f32[20000,20000]) -> (f32[20000,20000]) {\n"
            "  %1 = tanh %0 : f32[20000,20000]\n  return %1\n}\n}\n");
  at_tiles_machine t = mk2();
  at_tiles_lower_options o = {0};
  const at_tiles_plan *p;
  expect(at_tiles_lower(&t, m, &o, a, &p), AT_RESOURCE_EXHAUSTED, "tile ",
         "638976", "tanh", "parameter.0");
  at_arena_destroy(a);
}

// UNIMPLEMENTED with the op.
static void what_tiles_cannot_do_is_named(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  const char *text =
      "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (%0: f32[4]) -> "
      "(f32[4]) {\n"
      "  %1 = custom_call %0 {call_target_name=\"mine\"} : f32[4]\n  return "
      "%1\n}\n}\n";
  ok(at_hlo_parse(at_str_of(text), a, &m));
  at_tiles_machine t = mk2();
  at_tiles_lower_options o = {0};
  const at_tiles_plan *p;
  expect(at_tiles_lower(&t, m, &o, a, &p), AT_UNIMPLEMENTED, "custom_call");
  at_arena_destroy(a);
}

// Names are escaped, JSON parses, the page needs nothing from elsewhere.
static void reports_are_whole(void **state) {
  at_arena *a = at_arena_create();
  at_module *m =
      parse(a,
            "hlo module \"m\" entry=\"main\" {\n"
            "func \"main\" (%0: f32[300,40]) -> (f32[40]) {\n"
            "  %1 = constant {value=f32[] 0} : f32[]\n"
            "  %2 = reduce %0, %1 {dimensions=[0]} ((%3: f32[], %4: f32[]) {\n"
            "    %5 = add %3, %4 : f32[]\n    return %5\n  }) : f32[40]\n  "
            "return %2\n}\n}\n");
  const at_tiles_plan *p = lower(a, m, false);
  at_strbuf page = {0}, json = {0};
  at_tiles_report_html(p, "a <b> & c", &page);
  at_tiles_report_json(p, &json);
  assert_non_null(strstr(page.ptr, "a &lt;b&gt; &amp; c"));
  assert_non_null(strstr(page.ptr, "<svg"));
  assert_null(strstr(page.ptr, "http"));
  const at_json *j;
  ok(at_json_parse((at_bytes){(const uint8_t *)json.ptr, json.len}, a, &j));
  assert_int_equal(at_json_get_int(j, "cycles", -1), p->cycles);
  at_strbuf_free(&page);
  at_strbuf_free(&json);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementwise_programs_run_in_blocks),
      cmocka_unit_test(moves_and_reductions),
      cmocka_unit_test(products),
      cmocka_unit_test(gathers),
      cmocka_unit_test(loops_and_branches),
      cmocka_unit_test(everything),
      cmocka_unit_test(elementwise_ops_move_nothing),
      cmocka_unit_test(elementwise_ops_move_only_for_gain),
      cmocka_unit_test(products_beat_the_linear_mapping),
      cmocka_unit_test(the_planner_is_never_worse),
      cmocka_unit_test(ten_thousand_nodes),
      cmocka_unit_test(wide_concatenations),
      cmocka_unit_test(loops_count_their_turns),
      cmocka_unit_test(too_many_turns_are_refused),
      cmocka_unit_test(too_large_names_tile_and_step),
      cmocka_unit_test(what_tiles_cannot_do_is_named),
      cmocka_unit_test(reports_are_whole),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
