// Plans of resharding: what goes where, and that no byte crosses twice.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "control/plan.h"

enum { kChips = 16, kPerHost = 4, kSide = 12, kRank = 2 };
static _Atomic uint32_t g_host_of[kChips];

typedef struct cut {
  uint32_t rows, columns, copies;  // shards along each; so many times over
} cut;

typedef struct shards {
  at_shards s;
  uint32_t chips[kChips];
  int64_t dims[kRank], at[kChips][kRank];
} shards;

// The shards of a kSide x kSide array cut in that way, on chips from `first`
// on.
static void make(shards *x, cut c, uint32_t first) {
  uint32_t n = c.rows * c.columns * c.copies;
  x->dims[0] = kSide / c.rows;
  x->dims[1] = kSide / c.columns;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t k = i / c.copies;  // copies beside each other
    x->chips[i] = (first + i) % kChips;
    x->at[i][0] = (int64_t)(k / c.columns) * x->dims[0];
    x->at[i][1] = (int64_t)(k % c.columns) * x->dims[1];
  }
  x->s = (at_shards){n, x->chips, {x->dims, kRank}, x->at[0]};
}

// What the host has of the array.
static void mark(const shards *x, uint32_t host, bool out[kSide][kSide]) {
  for (uint32_t i = 0; i < x->s.count; i++)
    for (int64_t r = 0; g_host_of[x->chips[i]] == host && r < x->dims[0]; r++)
      memset(&out[x->at[i][0] + r][x->at[i][1]], 1, (size_t)x->dims[1]);
}

// What hosts need and have not.
static uint64_t least(const shards *from, const shards *to) {
  uint64_t sum = 0;
  for (uint32_t h = 0; h < kChips / kPerHost; h++) {
    bool has[kSide][kSide] = {{0}}, wants[kSide][kSide] = {{0}};
    mark(from, h, has);
    mark(to, h, wants);
    for (uint32_t r = 0; r < kSide; r++)
      for (uint32_t c = 0; c < kSide; c++)
        sum += 4 * (wants[r][c] && !has[r][c]);
  }
  return sum;
}

// Every cut to every other: as many bytes as hosts need and have not.
static void test_no_byte_crosses_twice(void **state) {
  static const cut cuts[] = {{1, 1, 1}, {2, 1, 1}, {1, 4, 1}, {2, 2, 2},
                             {1, 1, 8}, {3, 2, 1}, {4, 3, 1}, {1, 6, 2}};
  static const uint32_t starts[] = {0, 3, 8};
  for (uint32_t i = 0; i < AT_LEN(cuts) * AT_LEN(cuts) * AT_LEN(starts); i++) {
    shards from, to;
    at_plan *p = NULL;
    make(&from, cuts[i % AT_LEN(cuts)], 0);
    make(&to, cuts[i / AT_LEN(cuts) % AT_LEN(cuts)],
         starts[i / AT_LEN(cuts) / AT_LEN(cuts)]);
    assert_int_equal(at_code_take(at_plan_make(g_host_of, &from.s, &to.s,
                                               AT_F32, AT_MEM_DEVICE, &p)),
                     0);
    assert_int_equal(at_plan_wire_bytes(p, g_host_of), least(&from, &to));
    at_plan_free(p);
  }
}

// The name of a plan says how shards are made of others.
static void test_kinds(void **state) {
  static const struct {
    cut from, to;
    const char *name;
  } cases[] = {{{4, 1, 1}, {4, 1, 1}, "one-to-one"},
               {{1, 1, 1}, {1, 1, 1}, "one-to-one"},
               {{1, 1, 1}, {1, 1, 4}, "one-to-many"},
               {{2, 1, 1}, {4, 1, 1}, "one-to-many"},
               {{2, 1, 1}, {1, 1, 1}, "many-to-many"},
               {{4, 1, 1}, {1, 4, 1}, "many-to-many"}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    shards from, to;
    at_plan *p = NULL;
    make(&from, cases[i].from, 0);
    make(&to, cases[i].to, 8);
    assert_int_equal(at_code_take(at_plan_make(g_host_of, &from.s, &to.s,
                                               AT_F32, AT_MEM_DEVICE, &p)),
                     0);
    assert_string_equal(at_plan_name(at_plan_message(p)), cases[i].name);
    at_plan_free(p);
  }
}

// Shards that do not cover the array, and other ranks.
static void test_what_cannot_be(void **state) {
  shards from, to;
  at_plan *p = NULL;
  make(&from, (cut){2, 1, 1}, 0);
  make(&to, (cut){1, 1, 1}, 8);
  from.s.count = 1;  // half of it is nowhere
  assert_int_equal(at_code_take(at_plan_make(g_host_of, &from.s, &to.s, AT_F32,
                                             AT_MEM_DEVICE, &p)),
                   AT_INVALID_ARGUMENT);
  to.s.dims.rank = 1;
  assert_int_equal(at_code_take(at_plan_make(g_host_of, &from.s, &to.s, AT_F32,
                                             AT_MEM_DEVICE, &p)),
                   AT_INVALID_ARGUMENT);
}

int main(void) {
  for (uint32_t i = 0; i < kChips; i++) g_host_of[i] = i / kPerHost;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_byte_crosses_twice),
      cmocka_unit_test(test_kinds),
      cmocka_unit_test(test_what_cannot_be),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
