// One program with two sources: one key, and an executable that is told either.
// cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
// clang-format on

#include "compile/places.h"
#include "base/config.h"
#include "compile/compile.h"

#define PROGRAM(a, b)                                                          \
  "module @m { func.func @main(%arg0: tensor<64x64xf32>) -> "                  \
  "tensor<64x64xf32> {\n"                                                      \
  "  %0 = stablehlo.dot_general %arg0, %arg0, contracting_dims = [1] x [0]"    \
  " : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc(" a      \
  ")\n"                                                                        \
  "  %1 = \"stablehlo.sort\"(%0) ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n" \
  "    %c = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>)"         \
  " -> tensor<i1> loc(" b                                                      \
  ")\n"                                                                        \
  "    stablehlo.return %c : tensor<i1> })"                                    \
  " {dimension = 1 : i64, is_stable = true} : (tensor<64x64xf32>)"             \
  " -> tensor<64x64xf32> loc(" b                                               \
  ")\n"                                                                        \
  "  return %1 : tensor<64x64xf32> } }"

static const char kHere[] =
    PROGRAM("\"dot\"(\"here.py\":3:1)", "\"sort\"(\"here.py\":4:1)");
static const char kThere[] = PROGRAM(
    "\"dot\"(callsite(\"/other/folder/there.py\":30:7 at \"main.py\":1:1))",
    "\"sort\"(\"/other/folder/there.py\":77:1)");
static const char kRenamed[] =
    PROGRAM("\"dot2\"(\"here.py\":3:1)", "\"sort\"(\"here.py\":4:1)");
static const char kNowhere[] = PROGRAM("\"dot\"", "\"sort\"(\"here.py\":4:1)");
static const char kOneLine[] =
    PROGRAM("\"dot\"(\"one.py\":9:1)", "\"sort\"(\"one.py\":9:1)");

static at_digest read_places(const char *text, at_arena *a, at_places *p) {
  at_mmodule *m;
  at_digest d = at_digest_start(0);
  assert_true(at_ok(at_mlir_read_text(at_str_of(text), a, &m)));
  assert_true(at_ok(at_places_read(p, m, a, &d)));
  return d;
}

static void files_and_lines_do_not_count(void **state) {
  at_arena *a = at_arena_create();
  at_places p, q;
  at_digest here = read_places(kHere, a, &p);
  assert_true(at_digest_eq(here, read_places(kThere, a, &q)));
  assert_false(at_digest_eq(p.said, q.said));
  assert_false(at_digest_eq(here, read_places(kRenamed, a, &q)));
  assert_false(at_digest_eq(here, read_places(kNowhere, a, &q)));
  // Which operations share a line depends on what a process traced before.
  assert_true(at_digest_eq(here, read_places(kOneLine, a, &q)));
  at_arena_destroy(a);
}

static at_bytes compiled(const char *text) {
  at_compile_options o = {.threads = 1, .no_cache = true};
  at_bytes x;
  at_status st =
      at_compile((at_bytes){(const uint8_t *)text, strlen(text)}, &o, &x);
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
  return x;
}

// Files and lines of all steps, as text.
static void listed(at_bytes x, char *out, size_t size) {
  const at_xheader *h = (const at_xheader *)x.ptr;
  const char *strings = (const char *)x.ptr + h->sections[AT_XS_STRINGS].offset;
  const at_xstep *s = (const void *)(x.ptr + h->sections[AT_XS_STEPS].offset);
  size_t n = 0;
  for (uint64_t i = 0; i < h->sections[AT_XS_STEPS].count; i++)
    n += (size_t)snprintf(out + n, size - n, "%s:%u %s;", strings + s[i].file,
                          s[i].line, strings + s[i].op_name);
}

// What was compiled from either is told any, again and again, as if compiled
// from it.
static void an_executable_is_told_other_places(void **state) {
  static const char *const texts[] = {kHere, kThere, kOneLine};
  for (size_t from = 0; from < AT_LEN(texts); from++) {
    at_arena *a = at_arena_create();
    at_bytes x = compiled(texts[from]);
    for (size_t k = 0; k < 2 * AT_LEN(texts); k++) {
      at_places p;
      at_bytes y = compiled(texts[k % AT_LEN(texts)]);
      char got[1024], want[1024];
      read_places(texts[k % AT_LEN(texts)], a, &p);
      assert_true(at_ok(at_places_put(&p, &x)));
      listed(x, got, sizeof got);
      listed(y, want, sizeof want);
      assert_string_equal(got, want);
      assert_true(k % AT_LEN(texts) != 1 ||
                  strstr(want, "/other/folder/there.py:30 dot;"));
      free((void *)y.ptr);
    }
    free((void *)x.ptr);
    at_arena_destroy(a);
  }
}

// Every bit of the header and of what is read: a status or an executable.
static void a_damaged_executable_is_refused(void **state) {
  at_arena *a = at_arena_create();
  at_places p;
  read_places(kThere, a, &p);
  at_bytes x = compiled(kHere);
  for (size_t bit = 0; bit < AT_MIN(x.len * 8, (size_t)40000); bit++) {
    uint8_t *copy = aligned_alloc(64, at_align_up(x.len, 64));
    memcpy(copy, x.ptr, x.len);
    copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
    at_bytes b = {copy, x.len};
    at_status_free(at_places_put(&p, &b));
    free((void *)b.ptr);
  }
  free((void *)x.ptr);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_and_lines_do_not_count),
      cmocka_unit_test(an_executable_is_told_other_places),
      cmocka_unit_test(a_damaged_executable_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
