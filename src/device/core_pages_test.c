// Copies that wait: where they are read from, and when they are made.
#include "device/core_test_util.h"

enum { kRows = 512, kPage = 80, kMany = 70 };  // floats of a page: 2 KiB

// A copy of one page that may wait: source page `from` to scratch page `to`.
static at_core_dma page(const at_core_ref *r, int64_t to, int64_t from) {
  float *dst = r[1].base, *src = r[0].base;
  at_core_dma d =
      copy_of(dst + to * kRows, src + from * kRows, kRows, r[2].base);
  d.lazy = 1;
  return d;
}

// With its wait, which such a copy satisfies at once.
static void start(at_core *c, const at_core_ref *r, int64_t to, int64_t from) {
  at_core_dma d = page(r, to, from);
  at_core_dma_start(c, &d);
  at_core_dma_wait(c, r[2].base, 4 * kRows, 0);
}

// Row i of argument `ref`.
static const float *at(const at_core_ref *r, int ref, int64_t i) {
  return (const float *)r[ref].base + i * kRows;
}

// While a page waits, its scratch is unchanged and at_core_pages_of tells the
// source; any other read makes the copy.
static void stand_for_memory(at_core *c, const int32_t *g,
                             const at_core_ref *r) {
  at_core_pages p;
  float *dst = r[1].base;
  dst[0] = -1;
  start(c, r, 0, 5);
  start(c, r, 1, 3);
  assert_true(at_core_pages_of(c, dst, 2 * 4 * kRows, &p));
  assert_int_equal(p.count, 2);
  assert_int_equal(p.bytes, 4 * kRows);
  assert_ptr_equal(p.page[0], at(r, 0, 5));
  assert_ptr_equal(p.page[1], at(r, 0, 3));
  assert_true(dst[0] == -1);
  start(c, r, 0, 4);  // instead of the first
  assert_true(at_core_pages_of(c, dst, 4 * kRows, &p));
  assert_ptr_equal(p.page[0], at(r, 0, 4));
  // A part of a page, or one page too many, is memory.
  assert_false(at_core_pages_of(c, dst + 8, 64, &p));
  assert_memory_equal(dst, at(r, 0, 4), 4 * kRows);
  assert_false(at_core_pages_of(c, dst + kRows, 2 * 4 * kRows, &p));
  assert_memory_equal(dst + kRows, at(r, 0, 3), 4 * kRows);
  assert_false(at_core_pages_of(c, dst, 4 * kRows, &p));
}

// Reads, and copies that meet a page in part, make just those pages that they
// meet.
static void are_made_when_read(at_core *c, const int32_t *g,
                               const at_core_ref *r) {
  float *dst = r[1].base;
  start(c, r, 2, 7);
  start(c, r, 3, 8);
  dst[2 * kRows] = dst[3 * kRows] = -1;
  at_core_pages_fetch(c, dst, 4 * kRows);
  assert_true(dst[2 * kRows] == -1);
  at_core_pages_fetch(c, dst + 3 * kRows - 1, 4);
  assert_memory_equal(dst + 2 * kRows, at(r, 0, 7), 4 * kRows);
  assert_true(dst[3 * kRows] == -1);
  // A copy over the end of one and the start of another.
  at_core_dma d = page(r, 0, 0);
  d.dst = dst + 2 * kRows + 8;
  d.size[0] = kRows;
  at_core_dma_start(c, &d);
  at_core_pages_fetch(c, dst, 4 * 4 * kRows);
  assert_memory_equal(dst + 2 * kRows, at(r, 0, 7), 4 * 8);
  assert_memory_equal(dst + 2 * kRows + 8, at(r, 0, 0), 4 * kRows);
  assert_memory_equal(dst + 3 * kRows + 8, at(r, 0, 8) + 8, 4 * (kRows - 8));
  // A short one over it is made at once.
  start(c, r, 3, 9);
  d.dst = dst + 3 * kRows;
  d.size[0] = 4;
  at_core_dma_start(c, &d);
  at_core_pages_fetch(c, dst + 3 * kRows, 4 * kRows);
  assert_memory_equal(dst + 3 * kRows, at(r, 0, 0), 4 * 4);
  assert_memory_equal(dst + 3 * kRows + 4, at(r, 0, 9) + 4, 4 * (kRows - 4));
  // One element of each of two pages that wait.
  start(c, r, 4, 1);
  start(c, r, 5, 2);
  d.dst = dst + 4 * kRows;
  d.size[0] = 2;
  d.dst_stride[0] = 4 * kRows;
  at_core_dma_start(c, &d);
  at_core_pages_fetch(c, dst + 4 * kRows, 2 * 4 * kRows);
  for (int i = 0; i < 2; i++) {
    assert_true(dst[(4 + i) * kRows] == at(r, 0, 0)[i]);
    assert_memory_equal(dst + (4 + i) * kRows + 1, at(r, 0, 1 + i) + 1,
                        4 * (kRows - 1));
  }
}

// More pages than are kept: the rest is copied at once.
static void are_limited(at_core *c, const int32_t *g, const at_core_ref *r) {
  for (int64_t i = 0; i < kMany; i++) start(c, r, i, kMany - i);
  for (int64_t i = 0; i < kMany; i++) {
    at_core_pages p;
    const float *from = at(r, 1, i);
    if (at_core_pages_of(c, from, 4 * kRows, &p)) from = p.page[0];
    assert_memory_equal(from, at(r, 0, kMany - i), 4 * kRows);
  }
}

// refs: in (HBM), scratch (VMEM), semaphore.
static kernel paged(at_core_body_fn body, float *in) {
  return (kernel){
      .record = {.num_refs = 3},
      .refs = {whole(AT_CORE_IN, AT_CORE_HBM, AT_F32, kPage * kRows),
               whole(AT_CORE_SCRATCH, AT_CORE_VMEM, AT_F32, kPage * kRows),
               whole(AT_CORE_SCRATCH, AT_CORE_SEM, AT_INVALID, 1)},
      .body = body,
      .bufs = {in}};
}

static void runs_body(at_core_body_fn body) {
  static float in[kPage * kRows];
  for (int i = 0; i < kPage * kRows; i++) in[i] = (float)i;
  kernel k = paged(body, in);
  runs(&k);
}
static void pages_stand_for_memory(void **state) {
  runs_body(stand_for_memory);
}
static void pages_are_made_when_read(void **state) {
  runs_body(are_made_when_read);
}
static void pages_are_limited(void **state) { runs_body(are_limited); }

// A source that may change is copied at once.
static void copied(at_core *c, const int32_t *g, const at_core_ref *r) {
  at_core_pages p;
  start(c, r, 0, 1);
  assert_false(at_core_pages_of(c, r[1].base, 4 * kRows, &p));
  assert_memory_equal(r[1].base, at(r, 0, 1), 4 * kRows);
}
// Neither may a page wait where races are looked for.
static void written_sources_are_copied(void **state) {
  static float in[kPage * kRows];
  kernel k = paged(copied, in);
  k.refs[0].stored = 1;
  runs(&k);
  k.refs[0].stored = 0;
  g_checks = AT_CHECK_RACES;
  runs(&k);
  g_checks = 0;
}

int main(void) {
  if (at_code_take(at_pool_create(3, &g_pool)) ||
      at_code_take(at_sched_create(3, 1 << 18, &g_sched)))
    return 1;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pages_stand_for_memory),
      cmocka_unit_test(pages_are_made_when_read),
      cmocka_unit_test(pages_are_limited),
      cmocka_unit_test(written_sources_are_copied)};
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  at_sched_destroy(g_sched);
  at_pool_destroy(g_pool);
  return failed;
}
