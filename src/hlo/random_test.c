// Random programs build, verify, print, parse, and evaluate; the same seed
// gives the same program. cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include "hlo/random.h"

static void check(at_status s, uint64_t seed) {
  if (!at_ok(s))
    fail_msg("seed %llu: %s", (unsigned long long)seed, at_status_message(s));
}

static void one(uint64_t seed, uint32_t families, uint64_t *seen) {
  at_arena *a = at_arena_create();
  at_random_options o = {
      .seed = seed, .families = families, .max_elements = 300};
  at_module *m, *again;
  at_strbuf text = {0}, second = {0};
  const at_literal **args;
  check(at_random_module(a, &o, &m), seed);
  check(at_hlo_print(m, &text), seed);
  check(at_hlo_parse(at_strbuf_str(&text), a, &again), seed);
  check(at_hlo_print(again, &second), seed);
  assert_true(at_str_eq(at_strbuf_str(&text), at_strbuf_str(&second)));
  check(at_random_args(a, m->entry, seed, seed % 2, &args), seed);
  const at_literal *x[8], *y[8];
  check(at_eval(m->entry, args, NULL, a, x), seed);
  check(at_eval(again->entry, args, NULL, a, y), seed);
  assert_in_range(m->entry->num_results, 1, 8);
  for (uint32_t i = 0; i < m->entry->num_results; i++)
    assert_memory_equal(x[i]->data, y[i]->data, x[i]->bytes);
  AT_FOR_NODES(n, m->entry) seen[n->op / 64] |= 1ull << n->op % 64;
  at_strbuf_free(&text);
  at_strbuf_free(&second);
  at_arena_destroy(a);
}

static void test_programs(void **state) {
  uint64_t seen[4] = {0};
  for (uint64_t seed = 0; seed < 400; seed++) one(seed, 0, seen);
  for (uint32_t f = 0; f < 7; f++)
    for (uint64_t seed = 0; seed < 30; seed++) one(seed, 1u << f, seen);
  int ops = 0;
  for (int i = 0; i < 4; i++) ops += __builtin_popcountll(seen[i]);
  assert_true(ops > 75);
}

static void test_same_seed(void **state) {
  at_arena *a = at_arena_create();
  at_random_options o = {.seed = 42, .dtypes = 1ull << AT_F32};
  at_strbuf text[2] = {{0}, {0}};
  for (int i = 0; i < 2; i++) {
    at_module *m;
    assert_true(at_ok(at_random_module(a, &o, &m)));
    assert_true(at_ok(at_hlo_print(m, &text[i])));
  }
  assert_string_equal(text[0].ptr, text[1].ptr);
  assert_null(strstr(text[0].ptr, "f64["));
  at_strbuf_free(&text[0]);
  at_strbuf_free(&text[1]);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs),
                                     cmocka_unit_test(test_same_seed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
