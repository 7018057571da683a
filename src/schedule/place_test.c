// Places of blocks against the plain readings of both ways to choose them.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdlib.h>

#include "schedule/place.h"

enum { ALIGN = 64, FEW = 40, MANY = 3300 };

static uint64_t next_random(uint64_t *s) {
  *s ^= *s << 13;
  *s ^= *s >> 7;
  *s ^= *s << 17;
  return *s;
}

static bool together(const at_block *x, const at_block *y) {
  return x->time.begin <= y->time.end && y->time.begin <= x->time.end;
}

static uint64_t aligned(uint64_t x) { return (x + ALIGN - 1) / ALIGN * ALIGN; }

static int by_owner(const void *a, const void *b) {
  const at_block *x = a, *y = b;
  return (x->owner > y->owner) - (x->owner < y->owner);
}

// Decreasing size; of equal ones the lower owner first.
static int large_first(const void *a, const void *b) {
  const at_block *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return by_owner(a, b);
}

// Each block at the lowest aligned offset where it meets none of those before
// it that live while it does. Every offset that may be one is tried.
static uint64_t plain_first_fit(at_block *b, uint32_t n) {
  uint64_t total = 0;
  qsort(b, n, sizeof *b, large_first);
  for (uint32_t i = 0; i < n; i++) {
    for (uint64_t at = 0;; at += ALIGN) {
      bool free = true;
      for (uint32_t k = 0; k < i && free; k++)
        free = !together(&b[i], &b[k]) || b[k].offset >= at + b[i].bytes ||
               at >= b[k].offset + b[k].bytes;
      b[i].offset = at;
      if (free) break;
    }
    if (b[i].offset + aligned(b[i].bytes) > total)
      total = b[i].offset + aligned(b[i].bytes);
  }
  return total;
}

// Sizes around multiples of the alignment, many of them equal.
static void first_fit(void **state) {
  uint64_t s = 28;
  for (int round = 0; round < 300; round++) {
    at_arena *a = at_arena_create();
    at_block b[FEW], want[FEW];
    uint32_t n = 1 + (uint32_t)(next_random(&s) % FEW);
    for (uint32_t i = 0; i < n; i++) {
      int64_t begin = (int64_t)(next_random(&s) % 20);
      b[i] = (at_block){
          .time = {begin, begin + (int64_t)(next_random(&s) % 8)},
          .bytes = 1 + next_random(&s) % 4 * 63 + next_random(&s) % 3,
          .owner = n - i};
      want[i] = b[i];
    }
    uint64_t total, most = plain_first_fit(want, n);
    assert_int_equal(at_code_take(at_blocks_place(b, n, a, &total)), 0);
    assert_int_equal(total, most);
    qsort(b, n, sizeof *b, by_owner);
    qsort(want, n, sizeof *want, by_owner);
    for (uint32_t i = 0; i < n; i++) {
      assert_int_equal(b[i].owner, want[i].owner);
      assert_int_equal(b[i].offset, want[i].offset);
    }
    at_arena_destroy(a);
  }
}

static void nothing(void **state) {
  uint64_t total = 1;
  assert_int_equal(at_code_take(at_blocks_place(NULL, 0, NULL, &total)), 0);
  assert_int_equal(total, 0);
}

// Blocks of that size that live at that time.
static uint64_t alive(const at_block *b, uint32_t n, int64_t at,
                      uint64_t bytes) {
  uint64_t count = 0;
  for (uint32_t i = 0; i < n; i++)
    count +=
        b[i].bytes == bytes && b[i].time.begin <= at && b[i].time.end >= at;
  return count;
}

// More pairs at once than first fit looks at: as many places of a size as there
// are ever blocks of it at a time, and none is taken twice at once.
static void too_many_pairs(void **state) {
  static const uint64_t sizes[] = {64, 100, 256};
  static at_block b[2 * MANY];
  uint64_t s = 5, total, want = 0;
  at_arena *a = at_arena_create();
  for (uint32_t i = 0; i < 2 * MANY; i++) {
    int64_t begin = (int64_t)(next_random(&s) % 4) + (i < MANY ? 0 : 30);
    b[i] = (at_block){
        .time = {begin, begin + 10 + (int64_t)(next_random(&s) % 10)},
        .bytes = sizes[next_random(&s) % AT_LEN(sizes)],
        .owner = i};
  }
  for (size_t k = 0; k < AT_LEN(sizes); k++) {
    uint64_t most = 0;
    for (int64_t t = 0; t < 60; t++)
      most = AT_MAX(most, alive(b, 2 * MANY, t, sizes[k]));
    want += most * aligned(sizes[k]);
  }
  assert_int_equal(at_code_take(at_blocks_place(b, 2 * MANY, a, &total)), 0);
  assert_int_equal(total, want);
  for (uint32_t i = 0; i < 2 * MANY; i++) {
    assert_int_equal(b[i].offset % ALIGN, 0);
    for (uint32_t k = 0; k < i; k++)
      if (together(&b[i], &b[k]) && b[i].offset < b[k].offset + b[k].bytes &&
          b[k].offset < b[i].offset + b[i].bytes)
        fail_msg("%u and %u share bytes", b[i].owner, b[k].owner);
  }
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(first_fit),
      cmocka_unit_test(nothing),
      cmocka_unit_test(too_many_pairs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
