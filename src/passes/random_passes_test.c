// The pipeline on random programs: valid after every pass, and equal in
// meaning.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "hlo/random.h"
#include "passes/passes.h"

// Relative: a scan adds in another order than the window that it replaces.
static double tolerance(at_dtype t) {
  return t == AT_F64 ? 1e-9 : t == AT_F32 ? 1e-4 : 0.05;
}

static bool same_part(at_dtype t, const void *a, const void *b) {
  if (!at_is_float(t)) return at_load_int(t, a) == at_load_int(t, b);
  double x = at_load_float(t, a), y = at_load_float(t, b);
  if (x == y || (isnan(x) && isnan(y))) return true;
  return fabs(x - y) <= tolerance(t) * (1e-3 + fmax(fabs(x), fabs(y)));
}

static bool same_literal(const at_literal *a, const at_literal *b) {
  if (!at_type_eq(&a->type, &b->type)) return false;
  at_dtype part = at_real_of(a->type.dtype);
  size_t step = at_dtype_bytes(part);
  int parts = at_is_complex(a->type.dtype) ? 2 : 1;
  for (int64_t i = 0; i < at_type_elements(&a->type); i++)
    for (int k = 0; k < parts; k++)
      if (!same_part(part, (const uint8_t *)at_literal_at(a, i) + k * step,
                     (const uint8_t *)at_literal_at(b, i) + k * step))
        return false;
  return true;
}

// NaN are ordered by sign there, which rewrites need not keep.
static bool orders_nan(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (n->op == AT_OP_TOP_K) return true;
    if (at_node_int(n, AT_ATTR_COMPARE_TYPE, 0) == AT_CMP_TOTALORDER)
      return true;
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (orders_nan(n->regions[i])) return true;
  }
  return false;
}

static void check(uint64_t seed, uint32_t nodes, uint32_t families) {
  at_arena *a = at_arena_create();
  at_random_options ro = {
      .seed = seed, .nodes = nodes, .max_elements = 300, .families = families};
  at_module *before, *after;
  const at_literal **args, *x[64], *y[64];
  assert_true(at_ok(at_random_module(a, &ro, &before)));
  assert_true(at_ok(at_random_module(a, &ro, &after)));
  at_pass_options o = {.fuse = true, .fold_budget = 1 << 16};
  at_status st = at_passes_run(after, &o, true, NULL, NULL);
  if (!at_ok(st))
    fail_msg("seed %llu: %s", (unsigned long long)seed, at_status_message(st));
  assert_true(before->entry->num_results <= 64);
  bool loose = orders_nan(before->entry);
  for (int special = 0; special < 2; special++) {
    assert_true(at_ok(at_random_args(a, before->entry, seed, special, &args)));
    at_eval_options opt = {.custom = at_eval_linalg_custom};
    st = at_eval(before->entry, args, &opt, a, x);
    if (!at_ok(st))
      fail_msg("seed %llu: before: %s", (unsigned long long)seed,
               at_status_message(st));
    st = at_eval(after->entry, args, &opt, a, y);
    if (!at_ok(st))
      fail_msg("seed %llu: after: %s", (unsigned long long)seed,
               at_status_message(st));
    for (uint32_t i = 0; i < before->entry->num_results; i++)
      if (!loose && !same_literal(x[i], y[i]))
        fail_msg("seed %llu, %u nodes, families %u: result %u differs",
                 (unsigned long long)seed, nodes, families, i);
  }
  at_arena_destroy(a);
}

static uint64_t scale(void) {
  const char *z = getenv("AT_RANDOM_SCALE");
  return z ? strtoull(z, NULL, 10) : 1;
}

static void test_small(void **state) {
  for (uint64_t s = 1; s <= 150 * scale(); s++) check(s, 8, 0);
  check(620, 8, 0);  // means and variances at the end of what f64 holds
}
static void test_large(void **state) {
  for (uint64_t s = 1; s <= 60 * scale(); s++) check(s, 60, 0);
}
static void test_moves(void **state) {
  for (uint64_t s = 1; s <= 80 * scale(); s++)
    check(s, 30, AT_RANDOM_MOVE | AT_RANDOM_EXACT | AT_RANDOM_DOT);
}
static void test_control(void **state) {
  for (uint64_t s = 1; s <= 60 * scale(); s++)
    check(s, 30, AT_RANDOM_CONTROL | AT_RANDOM_EXACT | AT_RANDOM_REDUCE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small),
      cmocka_unit_test(test_large),
      cmocka_unit_test(test_moves),
      cmocka_unit_test(test_control),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
