// The map from numbers to pointers, beside one that looks through all it has.
#include "control/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

enum { kKeys = 600 };

// Finds, counts and iterates as the list does.
static void expect_same(const at_table *t, void *const *model,
                        const uint64_t *keys) {
  size_t count = 0, seen = 0, at = 0;
  for (size_t i = 0; i < kKeys; i++) {
    assert_ptr_equal(at_table_find(t, keys[i]), model[i]);
    count += model[i] != NULL;
  }
  assert_int_equal(t->count, count);
  for (at_table_slot *s; (s = at_table_next(t, &at)); seen++) {
    size_t i = 0;
    while (i < kKeys && keys[i] != s->key) i++;
    assert_in_range(i, 0, kKeys - 1);
    assert_ptr_equal(s->value, model[i]);
  }
  assert_int_equal(seen, count);
}

// Keys in a row, far apart, and such that all of them have one home.
static uint64_t key_of(int kind, uint64_t i) {
  switch (kind) {
    case 0:
      return i + 1;
    case 1:
      return UINT64_MAX - i * 0x123456789abcull;
    default:  // the inverse of the multiplier: bits 32 and up of it are equal
      return (i + 1) * 0xf1de83e19937733dull;
  }
}

// 60,000 random puts and takes, also of keys that collide.
static void it_is_what_a_list_would_be(void **state) {
  static int things[kKeys];
  for (int kind = 0; kind < 3; kind++) {
    at_table t = {0};
    void *model[kKeys] = {0};
    uint64_t keys[kKeys];
    srand(11);
    for (uint64_t i = 0; i < kKeys; i++) keys[i] = key_of(kind, i);
    for (int step = 0; step < 60000; step++) {
      // Now more puts, now more takes.
      size_t i = (size_t)rand() % (step % 9000 < 4500 ? kKeys : kKeys / 20);
      if (rand() % 100 < (step / 3000 % 2 ? 35 : 65)) {
        model[i] = &things[rand() % kKeys];
        assert_true(at_table_put(&t, keys[i], model[i]));
      } else {
        assert_ptr_equal(at_table_take(&t, keys[i]), model[i]);
        model[i] = NULL;
      }
      if (step % 500 == 0) expect_same(&t, model, keys);
    }
    expect_same(&t, model, keys);
    for (size_t i = 0; i < kKeys; i++)
      assert_ptr_equal(at_table_take(&t, keys[i]), model[i]);
    assert_int_equal(t.count, 0);
    at_table_free(&t);
    assert_null(t.slots);
  }
}

// Also after it has been emptied and freed.
static void an_empty_one_has_nothing(void **state) {
  at_table t = {0};
  size_t at = 0;
  assert_null(at_table_find(&t, 1));
  assert_null(at_table_take(&t, 1));
  assert_null(at_table_next(&t, &at));
  assert_true(at_table_put(&t, 5, &t));
  assert_null(at_table_find(&t, 0));
  assert_null(at_table_take(&t, 0));
  assert_ptr_equal(at_table_take(&t, 5), &t);
  at_table_free(&t);
  at_table_free(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_what_a_list_would_be),
      cmocka_unit_test(an_empty_one_has_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
