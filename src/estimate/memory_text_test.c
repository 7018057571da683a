// What a program that does not fit is told: its largest buffers, and what would
// take less.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "estimate/estimate_test_util.h"

// A program that does not fit on a v5e is told every wanted word.
static void check_advice(const char *text, const char *const *wanted) {
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(a, "v5e", text);
  assert_true(e->peak_bytes > e->memory_bytes);
  const char *advice = at_estimate_memory_advice(e);
  for (; *wanted; wanted++)
    if (!strstr(advice, *wanted)) fail_msg("no %s: %s", *wanted, advice);
  at_arena_destroy(a);
}

// 9 GiB that a result of 9 GiB could replace.
static void results_may_replace_arguments(void **state) {
  check_advice(
      "func.func public @main(%x: tensor<9x16384x16384xf32>) -> "
      "tensor<9x16384x16384xf32> {\n"
      "%y = stablehlo.sine %x : tensor<9x16384x16384xf32>\n"
      "return %y : tensor<9x16384x16384xf32>\n}\n",
      (const char *const[]){"donate_argnums", NULL});
}

// Arguments alone are more than the memory.
static void arguments_may_lie_elsewhere(void **state) {
  check_advice(
      "func.func public @main(%x: tensor<20x16384x16384xf32>) -> "
      "tensor<16384xf32> {\n"
      "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "%y = stablehlo.reduce(%x init: %z) applies stablehlo.add across "
      "dimensions = [0, 1] : (tensor<20x16384x16384xf32>, tensor<f32>) -> "
      "tensor<16384xf32>\nreturn %y : tensor<16384xf32>\n}\n",
      (const char *const[]){"shard", "pinned_host", NULL});
}

// A loop that saves 20 GiB of its turns, for what comes after.
static const char g_saves[] =
    "func.func public @main(%x: tensor<64xf32>) -> tensor<2048xf32> {\n"
    "%z = stablehlo.constant dense<0> : tensor<i32>\n"
    "%o = stablehlo.constant dense<1> : tensor<i32>\n"
    "%n = stablehlo.constant dense<1280> : tensor<i32>\n"
    "%f = stablehlo.constant dense<0.0> : tensor<1280x2048x2048xf32>\n"
    "%i0 = stablehlo.constant dense<0.0> : tensor<f32>\n"
    "%r:3 = stablehlo.while(%i = %z, %y = %x, %s = %f) : tensor<i32>, "
    "tensor<64xf32>, tensor<1280x2048x2048xf32>\n"
    "cond {\n%c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) "
    "-> tensor<i1>\nstablehlo.return %c : tensor<i1>\n} do {\n"
    "%j = stablehlo.add %i, %o : tensor<i32>\n"
    "%w = stablehlo.sine %y : tensor<64xf32>\n"
    "%u = stablehlo.constant dense<1.0> : tensor<1x2048x2048xf32>\n"
    "%t = stablehlo.dynamic_update_slice %s, %u, %i, %z, %z : "
    "(tensor<1280x2048x2048xf32>, tensor<1x2048x2048xf32>, tensor<i32>, "
    "tensor<i32>, tensor<i32>) -> tensor<1280x2048x2048xf32>\n"
    "stablehlo.return %j, %w, %t : tensor<i32>, tensor<64xf32>, "
    "tensor<1280x2048x2048xf32>\n} loc(\"train.py\":33:5)\n"
    "%q = stablehlo.reduce(%r#2 init: %i0) applies stablehlo.add across "
    "dimensions = [0, 1] : (tensor<1280x2048x2048xf32>, tensor<f32>) -> "
    "tensor<2048xf32>\nreturn %q : tensor<2048xf32>\n}\n";

// Most of its memory is what the loop saves.
static void loops_may_save_less(void **state) {
  check_advice(g_saves, (const char *const[]){"jax.checkpoint", "policy",
                                              "offload", "host", NULL});
}

// Products of `type` whose result is too large.
static void check_products(const char *type, const char *const *wanted) {
  at_strbuf b = {0};
  at_strbuf_addf(
      &b,
      "func.func public @main(%%x: tensor<65536x64x%s>, %%w: "
      "tensor<64x131072x%s>) -> tensor<%s> {\n"
      "%%z = stablehlo.constant dense<0.0> : tensor<%s>\n"
      "%%y = stablehlo.dot_general %%x, %%w, contracting_dims = [1] x [0] : "
      "(tensor<65536x64x%s>, tensor<64x131072x%s>) -> "
      "tensor<65536x131072x%s>\n"
      "%%s = \"stablehlo.sort\"(%%y) ({\n^bb0(%%p: tensor<%s>, %%q: "
      "tensor<%s>):\n%%c = stablehlo.compare LT, %%p, %%q : (tensor<%s>, "
      "tensor<%s>) -> tensor<i1>\nstablehlo.return %%c : tensor<i1>\n}) "
      "{dimension = 0 : i64} : (tensor<65536x131072x%s>) -> "
      "tensor<65536x131072x%s>\n"
      "%%r = stablehlo.reduce(%%s init: %%z) applies stablehlo.maximum across "
      "dimensions = [0, 1] : (tensor<65536x131072x%s>, tensor<%s>) -> "
      "tensor<%s>\nreturn %%r : tensor<%s>\n}\n",
      type, type, type, type, type, type, type, type, type, type, type, type,
      type, type, type, type, type);
  check_advice(b.ptr, wanted);
  at_strbuf_free(&b);
}

// f32 could be bf16.
static void temporaries_may_be_narrow(void **state) {
  check_products("f32", (const char *const[]){"bfloat16", "jax.checkpoint",
                                              "shard the batch", NULL});
}

// bf16 cannot be narrower.
static void temporaries_may_be_computed_again(void **state) {
  check_products(
      "bf16", (const char *const[]){"jax.checkpoint", "shard the batch", NULL});
}

// Size, shape, name, source line and how long it lives.
static void buffers_are_named(void **state) {
  at_arena *a = at_arena_create();
  at_strbuf b = {0};
  at_estimate_largest(estimate(a, "v5e", g_saves), 1, &b);
  static const char *const wanted[] = {"20480.0 MiB", "f32[1280,2048,2048]",
                                       "while.", "train.py:33",
                                       ", until reduce."};
  for (size_t i = 0; i < AT_LEN(wanted); i++)
    if (!strstr(b.ptr, wanted[i])) fail_msg("no %s: %s", wanted[i], b.ptr);
  assert_null(strchr(b.ptr, '\n'));
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(results_may_replace_arguments),
      cmocka_unit_test(arguments_may_lie_elsewhere),
      cmocka_unit_test(loops_may_save_less),
      cmocka_unit_test(temporaries_may_be_narrow),
      cmocka_unit_test(temporaries_may_be_computed_again),
      cmocka_unit_test(buffers_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
