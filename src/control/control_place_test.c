// Where slices are put: neighbours, shapes, chips that several share, what is
// kept, and what is said when there is no place.
#include "control/place.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

enum { kChips = 16, kGiB = 1 << 30 };

// Two islands of 2x4 chips of two hosts each; the second may be of another
// kind.
static void make_pod(at_place_chip *chips, const char *second) {
  const at_hw *a, *b;
  assert_int_equal(at_code_take(at_hw_find(AT_STR("v5e"), &a)), 0);
  assert_int_equal(at_code_take(at_hw_find(at_str_of(second), &b)), 0);
  for (uint32_t i = 0; i < kChips; i++)
    chips[i] = (at_place_chip){.island = i / 8,
                               .host = i / 4,
                               .coords = {i % 2, i / 2 % 4, 0},
                               .hw = i < 8 ? a : b,
                               .live = true,
                               .free = kGiB};
}

static at_msg_slice wish(uint32_t count) {
  return (at_msg_slice){.slice = 1, .count = count, .island = -1, .host = -1};
}

// The slice lies on these chips, in this order.
static void expect(const at_place_chip *chips, const at_msg_slice *m,
                   const uint32_t *want) {
  uint32_t got[64];
  assert_int_equal(at_code_take(at_place_slice(chips, kChips, m, 1, got)), 0);
  for (uint32_t i = 0; i < m->count; i++) assert_int_equal(got[i], want[i]);
}
#define EXPECT(chips, m, ...) expect(chips, m, (const uint32_t[]){__VA_ARGS__})

// With that code, and that text in the message.
static void refused(const at_place_chip *chips, const at_msg_slice *m,
                    at_code code, const char *says) {
  uint32_t got[64];
  at_status st = at_place_slice(chips, kChips, m, 1, got);
  assert_int_equal(at_status_code(st), code);
  if (!strstr(at_status_message(st), says))
    fail_msg("%s", at_status_message(st));
  at_status_free(st);
}

// The fullest chip decides first, then the sum.
static void load_is_spread(void **state) {
  at_place_chip chips[kChips];
  make_pod(chips, "v5e");
  at_msg_slice four = wish(4), eight = wish(8);
  EXPECT(chips, &four, 0, 1, 2, 3);
  for (int i = 0; i < 4; i++) chips[i].load = 1;
  EXPECT(chips, &four, 4, 5, 6, 7);
  EXPECT(chips, &eight, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int i = 4; i < kChips; i++) chips[i].load = 1;
  chips[13].load = 0;
  at_msg_slice one = wish(1);
  EXPECT(chips, &one, 13);
  // Fuller chips, all in all, but none as full.
  for (int i = 0; i < kChips; i++) chips[i].load = i < 8 ? 2 : 0;
  chips[8].load = 3;
  chips[15].load = 3;
  EXPECT(chips, &eight, 0, 1, 2, 3, 4, 5, 6, 7);
}

// A slice with a shape is a box of the island, the least loaded one; where no
// box fits any chips will do.
static void shapes_are_boxes(void **state) {
  at_place_chip chips[kChips];
  make_pod(chips, "v5e");
  at_msg_slice box = wish(4);
  memcpy(box.shape, (uint32_t[]){2, 2, 1}, sizeof box.shape);
  chips[1].load = 1;
  EXPECT(chips, &box, 2, 3, 4, 5);
  memcpy(box.shape, (uint32_t[]){1, 4, 1}, sizeof box.shape);
  EXPECT(chips, &box, 0, 2, 4, 6);
  // No box is whole: any chips do, the least loaded ones.
  memcpy(box.shape, (uint32_t[]){4, 1, 1}, sizeof box.shape);
  box.island = 0;
  EXPECT(chips, &box, 0, 2, 3, 4);
}

// More devices than chips: the least loaded one each time.
static void chips_are_shared(void **state) {
  at_place_chip chips[kChips];
  make_pod(chips, "v5e");
  at_msg_slice m = wish(10);
  EXPECT(chips, &m, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1);
  m.host = 2;
  EXPECT(chips, &m, 8, 9, 10, 11, 8, 9, 10, 11, 8, 9);
  // A lost host's are not used.
  for (int i = 8; i < 12; i++) chips[i].live = false;
  refused(chips, &m, AT_UNAVAILABLE, "are lost");
  m.host = -1;
  m.island = 1;
  EXPECT(chips, &m, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13);
}

// By short name or by the name that JAX reports; what is wrong is named.
static void kinds_and_places(void **state) {
  at_place_chip chips[kChips];
  make_pod(chips, "v6e");
  at_msg_slice m = wish(2);
  strcpy(m.kind, "v6e");
  EXPECT(chips, &m, 8, 9);
  strcpy(m.kind, "TPU v5 lite");
  EXPECT(chips, &m, 0, 1);
  m.island = 1;
  refused(chips, &m, AT_INVALID_ARGUMENT, "slice 1 has no such chip");
  m.island = -1;
  m.host = 7;
  refused(chips, &m, AT_INVALID_ARGUMENT, "hosts 0 to 3");
  strcpy(m.kind, "v4");
  refused(chips, &m, AT_INVALID_ARGUMENT,
          "it has v5e (TPU v5 lite), v6e (TPU v6 lite)");
  strcpy(m.kind, "H100");
  refused(chips, &m, AT_INVALID_ARGUMENT, "kind H100");
}

// Chips with too little memory are left out.
static void memory_is_kept(void **state) {
  at_place_chip chips[kChips];
  make_pod(chips, "v5e");
  at_msg_slice m = wish(8);
  m.memory = kGiB / 2;
  chips[3].free = kGiB / 4;
  EXPECT(chips, &m, 8, 9, 10, 11, 12, 13, 14, 15);
  m.count = 17;  // twice on each of the eight, which leaves one over
  refused(chips, &m, AT_RESOURCE_EXHAUSTED, "17 devices of 536870912 bytes");
  m.count = 1;
  m.memory = (uint64_t)kGiB + 1;
  refused(chips, &m, AT_RESOURCE_EXHAUSTED, "at most 1073741824 bytes");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(load_is_spread),   cmocka_unit_test(shapes_are_boxes),
      cmocka_unit_test(chips_are_shared), cmocka_unit_test(kinds_and_places),
      cmocka_unit_test(memory_is_kept),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
