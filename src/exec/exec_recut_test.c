// Bitcasts between element types, some of which do not fill their bytes.
#include "exec/exec_internal.h"
#include "exec/exec_test_util.h"

// Elements under 8 bits take a byte each here: 0x47 0xe1 as s4 are 7, 4, 1, -2
// (low half first, signs extended), and back, also into a wider type.
static void bytes_become_halves(void **state) {
  static const uint8_t bytes[] = {0x47, 0xe1};
  int8_t halves[4];
  OK(at_recut_check(AT_U8, 2, AT_S4, 4));
  at_recut(AT_U8, bytes, AT_S4, halves, 4);
  static const int8_t want[] = {7, 4, 1, -2};
  assert_memory_equal(halves, want, 4);
  uint8_t back[2];
  OK(at_recut_check(AT_S4, 4, AT_U8, 2));
  at_recut(AT_S4, halves, AT_U8, back, 2);
  assert_memory_equal(back, bytes, 2);
  uint16_t wide;
  OK(at_recut_check(AT_S4, 4, AT_U16, 2));
  at_recut(AT_S4, halves, AT_U16, &wide, 2);
  assert_int_equal(wide, 0xe147);
}

// Signs are cut off or made up: s4 -1 is u4 15, whose quarters as s2 are -1,
// -1.
static void narrow_types_among_themselves(void **state) {
  static const int8_t signs[] = {-1, 5};
  uint8_t whole[2];
  at_recut(AT_S4, signs, AT_U4, whole, 2);
  assert_true(whole[0] == 15 && whole[1] == 5);
  int8_t quarters[4];
  OK(at_recut_check(AT_U4, 2, AT_S2, 4));
  at_recut(AT_U4, whole, AT_S2, quarters, 4);
  static const int8_t want[] = {-1, -1, 1, 1};
  assert_memory_equal(quarters, want, 4);
}

// Bytes stay what they are between types that fill them, and pred.
static void copies(void **state) {
  assert_true(at_recut_is_copy(AT_F32, AT_U8));
  assert_true(at_recut_is_copy(AT_U8, AT_PRED));
  assert_true(at_recut_is_copy(AT_S4, AT_S4));
  assert_false(at_recut_is_copy(AT_S4, AT_U4));
  assert_false(at_recut_is_copy(AT_U8, AT_S4));
}

// Sizes that do not add up, widths that do not divide each other, types without
// bits.
static void refused(void **state) {
  static const struct {
    at_dtype from, to;
    size_t from_bytes, to_bytes;
  } cases[] = {
      {AT_U8, AT_S4, 1, 1},        {AT_S4, AT_U8, 3, 1},
      {AT_U8, AT_U8, 1, 2},        {AT_F6E2M3FN, AT_U8, 4, 3},
      {AT_TOKEN, AT_U8, 0, 0},     {AT_U8, AT_TOKEN, 0, 0},
      {AT_U8, AT_S4, 1, SIZE_MAX},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_status st = at_recut_check(cases[i].from, cases[i].from_bytes,
                                  cases[i].to, cases[i].to_bytes);
    assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_become_halves),
      cmocka_unit_test(narrow_types_among_themselves),
      cmocka_unit_test(copies),
      cmocka_unit_test(refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
