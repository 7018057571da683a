// at_donation_settle: over random programs, no result is taken twice, what is
// taken fits, and nobody goes without a result that would fit. cmocka.h needs
// the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
// clang-format on

#include "compile/donation.h"
#include "compile/layouts.h"

enum { kPrograms = 400, kMost = 12 };

static uint32_t below(uint32_t *seed, uint32_t n) {
  *seed = *seed * 1664525u + 1013904223u;
  return (uint32_t)((uint64_t)*seed * n >> 32);
}

// Arguments of few types, each with its negative; results among both.
static at_module *random_module(at_arena *a, uint32_t *seed) {
  static const int64_t dims[][2] = {{4, 2}, {2, 4}, {4, 4}};
  static const char *const layouts[] = {NULL, "{0,1}", "{1,0}"};
  at_module *m;
  at_value values[2 * kMost], results[kMost];
  assert_true(at_ok(at_module_create(a, at_str_of("m"), &m)));
  assert_true(at_ok(at_comp_create(m, at_str_of("main"), NULL, &m->entry)));
  uint32_t n = 1 + below(seed, kMost), num_results = below(seed, kMost + 1);
  m->params = at_new(a, at_io_info, n);
  m->results = at_new(a, at_io_info, num_results + 1);
  for (uint32_t i = 0; i < n; i++) {
    at_type t;
    at_dtype e = below(seed, 3) ? AT_F32 : AT_S32;
    assert_true(
        at_ok(at_type_make(a, e, (at_dims){dims[below(seed, 3)], 2}, &t)));
    assert_true(at_ok(at_build_param(m->entry, t, NULL, &values[i])));
    m->params[i] =
        (at_io_info){.alias = (int32_t)below(seed, 2 * kMost) - kMost,
                     .donor = below(seed, 2),
                     .layout = layouts[below(seed, 3)]};
    if (m->params[i].alias < 0) m->params[i].alias = -1;
  }
  for (uint32_t i = 0; i < n; i++)
    assert_true(at_ok(at_build_op(m->entry, NULL, AT_OP_NEGATE, &values[i], 1,
                                  NULL, &values[n + i])));
  for (uint32_t r = 0; r < num_results; r++) {
    results[r] = values[below(seed, 2 * n)];
    m->results[r] =
        (at_io_info){.alias = -1, .layout = layouts[below(seed, 3)]};
  }
  assert_true(at_ok(at_comp_return(m->entry, results, num_results)));
  return m;
}

static bool fits(const at_module *m, uint32_t p, uint32_t r) {
  return at_type_bytes(&m->entry->params[p]->types[0]) ==
             at_type_bytes(at_value_type(m->entry->results[r])) &&
         at_layouts_agree(m, p, r);
}

static void check(const at_module *m, const bool *donor,
                  const int32_t *takers) {
  const at_comp *c = m->entry;
  for (uint32_t p = 0; p < c->num_params; p++) {
    int32_t own = m->params[p].alias;
    assert_int_equal(m->params[p].donor, own >= 0);
    if (own >= 0) {
      assert_true(donor[p] && (uint32_t)own < c->num_results &&
                  fits(m, p, (uint32_t)own));
      assert_int_equal(takers[own], p);  // nobody else takes it
    }
    for (uint32_t r = 0; donor[p] && own < 0 && r < c->num_results; r++)
      assert_true(takers[r] >= 0 || !fits(m, p, r));
  }
  for (uint32_t r = 0; r < c->num_results; r++)
    if (takers[r] >= 0) assert_int_equal(m->params[takers[r]].alias, r);
}

static void all_that_fits_is_taken_once(void **state) {
  uint32_t seed = 7, aliases = 0;
  for (int i = 0; i < kPrograms; i++) {
    at_arena *a = at_arena_create();
    at_module *m = random_module(a, &seed);
    bool donor[kMost];
    int32_t *takers;
    for (uint32_t p = 0; p < m->entry->num_params; p++)
      donor[p] = m->params[p].donor || m->params[p].alias >= 0;
    assert_true(at_ok(at_donation_settle(m, a)));
    assert_true(at_ok(at_donation_takers(m, a, &takers)));
    check(m, donor, takers);
    for (uint32_t r = 0; r < m->entry->num_results; r++)
      aliases += takers[r] >= 0;
    at_arena_destroy(a);
  }
  assert_true(aliases > kPrograms);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_that_fits_is_taken_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
