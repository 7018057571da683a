// Walks over graphs: each item once, operands before users, any depth.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/walk.h"

enum { kMany = 200000 };

// Item i of a graph is the address of its place here.
static char item[kMany];
static uint32_t place(const void *p) {
  return (uint32_t)((const char *)p - item);
}

// Every item reads the two before it: 1.6^n paths.
static void joined_paths_are_walked_once(void **state) {
  at_arena *a = at_arena_create();
  at_walk w = at_walk_in(a);
  uint64_t before = at_walk_visits();
  uint32_t entered = 0, left = 0;
  at_walk_add(&w, &item[kMany - 1], 0);
  for (at_walk_step s; at_walk_next_both(&w, &s);) {
    uint32_t i = place(s.item);
    if (!s.leaving) {
      entered++;
      if (i > 0) at_walk_add(&w, &item[i - 1], 0);
      if (i > 1) at_walk_add(&w, &item[i - 2], 0);
      continue;
    }
    assert_int_equal(i, left++);  // operands have been left
    int64_t sum = i < 2;
    for (uint32_t k = 1; k <= 2 && k <= i; k++)
      sum += at_walk_get(&w, &item[i - k], 0)->i % 1000003;
    at_walk_set(&w, &s, (at_walk_value){.i = sum});
  }
  assert_true(at_ok(at_walk_status(&w)));
  assert_int_equal(entered, kMany);
  assert_int_equal(left, kMany);
  assert_int_equal(w.visits, kMany);
  assert_int_equal(at_walk_visits() - before, kMany);
  assert_int_equal(at_walk_get(&w, &item[4], 0)->i, 8);  // 1, 2, 3, 5, 8
  at_walk_add(&w, &item[9], 0);                          // known
  assert_false(at_walk_next_both(&w, &(at_walk_step){0}));
  at_arena_destroy(a);
}

// As a recursive walk would visit, each item once.
static void order_is_that_of_recursion(void **state) {
  at_arena *a = at_arena_create();
  at_walk w = at_walk_in(a);
  uint32_t seen[8], n = 0;
  const uint32_t want[] = {0, 1, 3, 4, 2, 5};
  at_walk_add(&w, &item[0], 0);
  for (at_walk_step s; at_walk_next(&w, &s);) {
    uint32_t i = place(s.item);
    seen[n++] = i;
    if (i == 0) at_walk_add(&w, &item[1], 0), at_walk_add(&w, &item[2], 0);
    if (i == 1) at_walk_add(&w, &item[3], 0), at_walk_add(&w, &item[4], 0);
    if (i == 4) at_walk_add(&w, &item[2], 0);  // before 0's own
    if (i == 2) at_walk_add(&w, &item[5], 0), at_walk_add(&w, &item[0], 0);
  }
  assert_int_equal(n, AT_LEN(want));
  assert_memory_equal(seen, want, sizeof want);
  at_arena_destroy(a);
}

// An item with two tags is two; a cycle is entered once.
static void tags_tell_apart_and_cycles_end(void **state) {
  at_arena *a = at_arena_create();
  at_walk w = at_walk_in(a);
  uint32_t n = 0;
  at_walk_add(&w, &item[0], 0);
  for (at_walk_step s; at_walk_next_both(&w, &s);) {
    if (s.leaving) continue;
    n++;
    assert_null(at_walk_get(&w, s.item, s.tag));  // still inside
    at_walk_add(&w, &item[(place(s.item) + 1) % 3], s.tag);
    at_walk_add(&w, s.item, 7);
  }
  assert_int_equal(n, 6);
  assert_non_null(at_walk_get(&w, &item[2], 7));
  assert_null(at_walk_get(&w, &item[2], 1));
  at_arena_destroy(a);
}

// What was left stays known until the walk is cleared.
static void stopped_walks_go_on_and_cleared_ones_forget(void **state) {
  at_arena *a = at_arena_create();
  at_walk w = at_walk_in(a);
  at_walk_step s;
  at_walk_add(&w, &item[0], 0);
  assert_true(at_walk_next_both(&w, &s));
  at_walk_add(&w, &item[1], 0);
  assert_true(at_walk_next_both(&w, &s));  // in 1
  assert_true(at_walk_next_both(&w, &s) && s.leaving);
  at_walk_set(&w, &s, (at_walk_value){.i = 5});
  at_walk_stop(&w);  // inside 0
  assert_false(at_walk_next_both(&w, &s));
  assert_int_equal(at_walk_get(&w, &item[1], 0)->i, 5);
  at_walk_add(&w, &item[0], 0);
  assert_true(at_walk_next_both(&w, &s) && !s.leaving && s.item == &item[0]);
  size_t used = 0;
  for (uint32_t round = 0; round < 100; round++) {
    at_walk_clear(&w);
    assert_null(at_walk_get(&w, &item[1], 0));
    at_walk_add(&w, &item[0], 0);
    for (uint32_t n = 0; at_walk_next_both(&w, &s);)
      if (!s.leaving && ++n < 1000) at_walk_add(&w, &item[n], 0);
    if (!round) used = at_arena_used_bytes(a);
    assert_int_equal(at_arena_used_bytes(a), used);
  }
  assert_true(at_ok(at_walk_status(&w)));
  at_arena_destroy(a);
}

// The walk ends early and says so.
static void refused_memory_is_a_status(void **state) {
  at_arena *a = at_arena_create_limited(1 << 16);
  at_walk w = at_walk_in(a);
  uint32_t n = 0;
  at_walk_add(&w, &item[0], 0);
  for (at_walk_step s; at_walk_next(&w, &s);)
    if (++n < kMany) at_walk_add(&w, &item[n], 0);
  assert_true(n < kMany);
  assert_int_equal(at_code_take(at_walk_status(&w)), AT_RESOURCE_EXHAUSTED);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(joined_paths_are_walked_once),
      cmocka_unit_test(order_is_that_of_recursion),
      cmocka_unit_test(tags_tell_apart_and_cycles_end),
      cmocka_unit_test(stopped_walks_go_on_and_cleared_ones_forget),
      cmocka_unit_test(refused_memory_is_a_status),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
