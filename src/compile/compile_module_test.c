// at_compile_module: what it gives lives in the caller's arena alone; programs
// nested too deeply are refused, whatever nests them. cmocka.h needs the others
// first.
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
    "  %0 = stablehlo.constant dense<[1.0, 2.5, 3.0, 4.0, 5.0]> : "
    "tensor<5xf32>\n"
    "  %1 = stablehlo.add %arg0, %0 : tensor<5xf32> "
    "loc(\"sum\"(\"file.py\":3:1))\n"
    "  return %1 : tensor<5xf32> } }";

static void constants_and_places_stay(void **state) {
  at_arena *a = at_arena_create();
  at_compile_options o = {.threads = 1, .no_cache = true};
  at_module *m;
  at_bytes program = {(const uint8_t *)kProgram, sizeof kProgram - 1};
  assert_true(at_ok(at_compile_module(program, &o, NULL, NULL, a, &m)));
  at_strbuf b = {0};
  assert_true(at_ok(at_hlo_print(m, &b)));
  assert_non_null(strstr(b.ptr, "2.5"));
  assert_non_null(strstr(b.ptr, "file.py"));
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

static void print_nested_text(at_strbuf *b, int depth) {
  at_strbuf_addz(b,
                 "hlo module \"m\" entry=\"main\" {\n"
                 "func \"main\" (%0: i1[], %1: f32[]) -> (f32[]) {\n");
  for (int i = 0; i < depth; i++)
    at_strbuf_addf(b, "%%%d = if %%0 (() {\n", depth + 2 - i);
  at_strbuf_addz(b, "%2 = negate %1 : f32[]\n");
  for (int i = 0; i < depth; i++)
    at_strbuf_addf(b, "return %%%d }, () { return %%1 }) : f32[]\n", i + 2);
  at_strbuf_addf(b, "return %%%d\n}\n}\n", depth + 2);
}

static void print_nested_mlir(at_strbuf *b, int depth) {
  at_strbuf_addz(b,
                 "module @m { func.func @main(%p: tensor<i1>, %v: tensor<f32>) "
                 "-> tensor<f32> {\n");
  for (int i = 0; i < depth; i++)
    at_strbuf_addf(b, "%%r%d = \"stablehlo.if\"(%%p) ({\n", i);
  at_strbuf_addf(b, "%%r%d = stablehlo.negate %%v : tensor<f32>\n", depth);
  for (int i = depth; i > 0; i--)
    at_strbuf_addf(
        b,
        "stablehlo.return %%r%d : tensor<f32> }, {\n"
        "stablehlo.return %%v : tensor<f32> }) : (tensor<i1>) -> tensor<f32>\n",
        i);
  at_strbuf_addz(b, "return %r0 : tensor<f32> } }\n");
}

// Functions that call each other from a branch.
static void print_nested_calls(at_strbuf *b, int depth) {
  at_strbuf_addz(b, "module @m {\n");
  for (int i = 0; i < depth; i++) {
    char name[32];
    snprintf(name, sizeof name, "private @f%d", i);
    at_strbuf_addf(b,
                   "func.func %s(%%p: tensor<i1>, %%v: tensor<f32>) -> "
                   "tensor<f32> {\n"
                   "%%r = \"stablehlo.if\"(%%p) ({\n",
                   i ? name : "@main");
    if (i + 1 < depth)
      at_strbuf_addf(b,
                     "%%c = func.call @f%d(%%p, %%v) : (tensor<i1>, "
                     "tensor<f32>) -> tensor<f32>\n",
                     i + 1);
    else
      at_strbuf_addz(b, "%c = stablehlo.negate %v : tensor<f32>\n");
    at_strbuf_addz(
        b,
        "stablehlo.return %c : tensor<f32> }, {\n"
        "stablehlo.return %v : tensor<f32> }) : (tensor<i1>) -> tensor<f32>\n"
        "return %r : tensor<f32> }\n");
  }
  at_strbuf_addz(b, "}\n");
}

static void deep_nesting_is_refused(void **state) {
  static void (*const print[])(at_strbuf *, int) = {
      print_nested_text, print_nested_mlir, print_nested_calls};
  static const int depths[] = {100, 10000};
  for (size_t i = 0; i < AT_LEN(print) * AT_LEN(depths); i++) {
    int depth = depths[i % 2];
    at_arena *a = at_arena_create();
    at_compile_options o = {.threads = 1, .no_cache = true};
    at_strbuf b = {0};
    at_module *m;
    print[i / 2](&b, depth);
    at_str s = at_strbuf_str(&b);
    at_status st = at_compile_module((at_bytes){(const uint8_t *)s.ptr, s.len},
                                     &o, NULL, NULL, a, &m);
    if (at_ok(st) != (depth == 100) ||
        !strstr(at_status_message(st), depth == 100 ? "" : "nested"))
      fail_msg("%zu: %s", i, at_status_message(st));
    at_status_free(st);
    at_strbuf_free(&b);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(constants_and_places_stay),
      cmocka_unit_test(deep_nesting_is_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
