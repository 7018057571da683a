// at_compile_module: what it gives lives in the caller's arena alone.
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

#include "compile/compile.h"
#include "hlo/hlo.h"

static const char kProgram[] =
    "module @m { func.func @main(%arg0: tensor<5xf32>) -> tensor<5xf32> {\n"
    "  %0 = stablehlo.constant dense<[1.0, 2.5, 3.0, 4.0, 5.0]> : tensor<5xf32>\n"
    "  %1 = stablehlo.add %arg0, %0 : tensor<5xf32> loc(\"sum\"(\"file.py\":3:1))\n"
    "  return %1 : tensor<5xf32> } }";

static void constants_and_places_stay(void **state) {
  at_arena *a = at_arena_create();
  at_compile_options o = {.threads = 1, .no_cache = true};
  at_module *m;
  at_bytes program = {(const uint8_t *)kProgram, sizeof kProgram - 1};
  assert_true(at_ok(at_compile_module(program, &o, NULL, a, &m)));
  at_strbuf b = {0};
  assert_true(at_ok(at_hlo_print(m, &b)));
  assert_non_null(strstr(b.ptr, "2.5"));
  assert_non_null(strstr(b.ptr, "file.py"));
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(constants_and_places_stay)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
