// Blocks of messages: the same memory again, and never more than is allowed.
#include "pod/blocks.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { kMiB = 1 << 20 };

// A block that was given back is handed out again: the smallest that is large
// enough, but none that would waste most of itself.
static void the_same_again(void **state) {
  at_pod_blocks b;
  at_pod_blocks_init(&b);
  void *p = at_pod_block_take(&b, 8 * kMiB), *q = at_pod_block_take(&b, kMiB);
  assert_true(p && q && p != q && (uintptr_t)p % 64 == 0);
  memset(p, 1, 8 * kMiB);
  at_pod_block_give(&b, p);
  at_pod_block_give(&b, q);
  assert_int_equal(b.count, 2);
  // Of those that are large enough the smallest; none that is much too large.
  assert_ptr_equal(at_pod_block_take(&b, 5 * kMiB), p);
  void *r = at_pod_block_take(&b, 2 * kMiB);
  assert_true(r && r != q);
  assert_ptr_equal(at_pod_block_take(&b, kMiB - 100), q);
  assert_int_equal(b.count, 0);
  assert_int_equal(b.bytes, 0);
  free(p), free(q), free(r);  // they may
  at_pod_blocks_free(&b);
}

// Below AT_POD_BLOCKS_FROM malloc is as good; above AT_POD_BLOCKS_BYTES one
// block would hold too much.
static void small_ones_are_not_kept(void **state) {
  at_pod_blocks b;
  at_pod_blocks_init(&b);
  void *p = at_pod_block_take(&b, AT_POD_BLOCKS_FROM / 2);
  assert_non_null(p);
  at_pod_block_give(&b, p);
  at_pod_block_give(&b, NULL);
  assert_int_equal(b.count, 0);
  p = at_pod_block_take(&b, (size_t)AT_POD_BLOCKS_BYTES + 1);
  assert_non_null(p);
  at_pod_block_give(&b, p);
  assert_int_equal(b.count, 0);
  at_pod_blocks_free(&b);
}

// By number and by bytes; the oldest go first.
static void they_are_bounded(void **state) {
  at_pod_blocks b;
  at_pod_blocks_init(&b);
  void *all[40];
  for (int i = 0; i < 40; i++) all[i] = at_pod_block_take(&b, kMiB);
  for (int i = 0; i < 40; i++) at_pod_block_give(&b, all[i]);
  assert_int_equal(b.count, AT_POD_BLOCKS);
  assert_ptr_equal(b.all[AT_POD_BLOCKS - 1], all[39]);
  for (int i = 0; i < 4; i++) all[i] = at_pod_block_take(&b, 50 * kMiB);
  for (int i = 0; i < 4; i++) at_pod_block_give(&b, all[i]);
  assert_int_equal(b.count, 2);
  assert_true(b.bytes <= AT_POD_BLOCKS_BYTES);
  assert_ptr_equal(b.all[1], all[3]);
  at_pod_blocks_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_same_again),
      cmocka_unit_test(small_ones_are_not_kept),
      cmocka_unit_test(they_are_bounded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
