// Kernels written by hand: what a chip refuses, and how its layouts pad. The
// compiler's own verdicts are compared in test/e2e/test_pallas_refusals.py.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "mosaic/mosaic.h"
#include "tpu/rules.h"

#define VM ", #tpu.memory_space<vmem>>"

// A kernel that adds an input of type t to itself, read.
static at_mosaic_kernel *doubling(at_arena *a, const char *t,
                                  const char *config) {
  char *text = at_arena_printf(
      a,
      "\"builtin.module\"() ({\n\"func.func\"() ({\n"
      "^bb0(%%x: memref<8x128x%s" VM ", %%o: memref<8x128x%s" VM
      "):\n"
      "%%i = \"arith.constant\"() {value = 0 : index} : () -> index\n"
      "%%v = \"vector.load\"(%%x, %%i, %%i) : (memref<8x128x%s" VM
      ", index, index) -> vector<8x128x%s>\n"
      "%%w = \"arith.addi\"(%%v, %%v) : (vector<8x128x%s>, vector<8x128x%s>)"
      " -> vector<8x128x%s>\n"
      "\"vector.store\"(%%w, %%o, %%i, %%i) : (vector<8x128x%s>, "
      "memref<8x128x%s" VM
      ", index, index) -> ()\n"
      "\"func.return\"() : () -> ()\n}) {dimension_semantics = [], "
      "function_type = (memref<8x128x%s" VM ", memref<8x128x%s" VM
      ") -> (), scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, "
      "sym_name = \"k\", tpu.core_type = #tpu.core_type<tc>} : () -> ()\n"
      "}) : () -> ()\n",
      t, t, t, t, t, t, t, t, t, t, t);
  at_mosaic_call call = {.payload = {(const uint8_t *)text, strlen(text)},
                         .config = at_str_of(config)};
  at_mosaic_kernel *k = NULL;
  at_status s = at_mosaic_read(&call, a, &k);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  return k;
}

// Takes s.
static void expect_message(at_status s, const char *part) {
  if (at_ok(s) || !strstr(at_status_message(s), part))
    fail_msg("want \"%s\", have \"%s\"", part, at_status_message(s));
  at_status_free(s);
}

#define ADD(t)                                                             \
  "%v = \"vector.load\"(%x, %i, %i) : (memref<8x128x" t VM                 \
  ", index, index) -> vector<8x128x" t                                     \
  ">\n%w = \"arith.addi\"(%v, %v) : (vector<8x128x" t ">, vector<8x128x" t \
  ">) -> vector<8x128x" t                                                  \
  ">\n\"vector.store\"(%w, %o, %i, %i) : (vector<8x"                       \
  "128x" t ">, memref<8x128x" t VM ", index, index) -> ()"

// Two windows of 4 KiB do not fit a kernel's own limit of 4 KiB.
static void windows_fit_the_limit_that_a_kernel_asks_for(void **state) {
  at_arena *a = at_arena_create();
  at_mosaic_kernel *k = doubling(
      a, "i32",
      "{\"scoped_memory_configs\": [{\"memory_space\": 1, \"offset\": 0, "
      "\"size\": 4096}]}");
  const at_mosaic_chip *v5e = at_mosaic_chip_find(AT_STR("v5e:2x2"));
  assert_non_null(v5e);
  expect_message(at_mosaic_check(k, v5e, 1), "exceeded scoped vmem limit");
  assert_true(at_ok(at_mosaic_check(doubling(a, "i32", ""), v5e, 1)));
  at_arena_destroy(a);
}

// In the compiler's own words.
static void narrow_integers_are_refused_as_the_compiler_does(void **state) {
  at_arena *a = at_arena_create();
  expect_message(
      at_mosaic_check(doubling(a, "i8", ""), at_mosaic_chip_find(AT_STR("v6e")),
                      1),
      "Not implemented: Only vector<i16> and vector<i32> are supported, but "
      "got 'i8'. Please cast your input.");
  at_arena_destroy(a);
}

// 12 x 320 floats are 2 x 3 tiles of 8 x 128; one element takes a row of lanes.
static void layouts_are_padded(void **state) {
  const at_mosaic_chip *c = at_mosaic_chip_find(AT_STR("v5e"));
  static const struct {
    int64_t dims[2];
    at_dtype t;
    int64_t bytes;
  } cases[] = {{{12, 320}, AT_F32, 6 * 4096}, {{8, 128}, AT_F32, 4096},
               {{1, 1}, AT_F32, 512},         {{8, 128}, AT_BF16, 2048},
               {{3, 128}, AT_F32, 4 * 512},   {{32, 128}, AT_S8, 4096},
               {{1, 128}, AT_S8, 512},        {{64, 128}, AT_S4, 4096}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_mosaic_ref r = {.space = AT_MSPACE_VMEM,
                       .dtype = cases[i].t,
                       .shape = {cases[i].dims, 2}};
    assert_int_equal(at_mosaic_ref_bytes(c, &r, true), cases[i].bytes);
  }
  int64_t huge[] = {INT64_MAX / 2, 1 << 20};
  at_mosaic_ref r = {
      .space = AT_MSPACE_VMEM, .dtype = AT_F32, .shape = {huge, 2}};
  assert_int_equal(at_mosaic_ref_bytes(c, &r, true), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_fit_the_limit_that_a_kernel_asks_for),
      cmocka_unit_test(narrow_integers_are_refused_as_the_compiler_does),
      cmocka_unit_test(layouts_are_padded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
