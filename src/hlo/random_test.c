// Random programs build, verify, print, parse, and evaluate; the same seed
// gives the same program. cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdlib.h>

#include "hlo/random.h"

static void check(at_status s, uint64_t seed) {
  if (!at_ok(s))
    fail_msg("seed %llu: %s", (unsigned long long)seed, at_status_message(s));
}

// A program prints, parses and prints the same, and both evaluate to the same
// bits. Counts its ops.
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
  at_eval_options e = {.custom = at_eval_linalg_custom};
  check(at_eval(m->entry, args, &e, a, x), seed);
  check(at_eval(again->entry, args, &e, a, y), seed);
  assert_in_range(m->entry->num_results, 0, 8);
  for (uint32_t i = 0; i < m->entry->num_results; i++)
    assert_memory_equal(x[i]->data, y[i]->data, x[i]->bytes);
  AT_FOR_NODES(n, m->entry) seen[n->op]++;
  at_strbuf_free(&text);
  at_strbuf_free(&second);
  at_arena_destroy(a);
}

// Every op of the table is generated, or random.def says why not.
static void test_programs(void **state) {
  uint64_t seen[AT_OP_COUNT] = {0};
  for (uint64_t seed = 0; seed < 250; seed++) one(seed, 0, seen);
  for (uint32_t f = 0; f < 8; f++)
    for (uint64_t seed = 0; seed < 15; seed++) one(seed, 1u << f, seen);
  for (uint32_t op = 0; op < AT_OP_COUNT; op++) {
    bool row = false;
    for (uint32_t r = 0; r < at_random_num_rows(); r++)
      row |= at_random_row_op(r) == op && at_random_row_types(r);
    bool reason = at_random_reason((at_op)op) != NULL;
    if (row == reason)
      fail_msg("%s: random.def needs rows or a reason", at_op_text((at_op)op));
    if (row && !seen[op])
      fail_msg("%s: no program had it", at_op_text((at_op)op));
  }
}

// A round of the walk meets every pair once.
static void test_walk(void **state) {
  at_random_options o = {.families = AT_RANDOM_DOT | AT_RANDOM_INDEX};
  uint32_t n = at_random_num_pairs(&o);
  assert_in_range(n, 100, 2000);
  uint8_t *met = calloc((size_t)at_random_num_rows() * AT_DTYPE_COUNT, 1);
  for (uint64_t k = 7 * (uint64_t)n; k < 8 * (uint64_t)n; k++) {
    at_random_pair p = at_random_nth(&o, k);
    assert_true(at_random_row_types(p.row) >> p.dtype & 1);
    assert_int_equal(met[p.row * AT_DTYPE_COUNT + p.dtype]++, 0);
  }
  free(met);
}

// The program is a function of the seed; types that the options leave out do
// not appear.
static void test_same_seed(void **state) {
  at_arena *a = at_arena_create();
  at_random_options o = {.seed = 42, .dtypes = 1ull << AT_S16};
  at_strbuf text[2] = {{0}, {0}};
  for (int i = 0; i < 2; i++) {
    at_module *m;
    assert_true(at_ok(at_random_module(a, &o, &m)));
    assert_true(at_ok(at_hlo_print(m, &text[i])));
  }
  assert_string_equal(text[0].ptr, text[1].ptr);
  assert_null(strstr(text[0].ptr, "complex<f64>["));
  at_strbuf_free(&text[0]);
  at_strbuf_free(&text[1]);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs),
                                     cmocka_unit_test(test_walk),
                                     cmocka_unit_test(test_same_seed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
