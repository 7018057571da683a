// Digests of programs: equal for what at_mop_eq calls equal, different
// otherwise. cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
// clang-format on

#include "mlir/mlir.h"

// Without hooks: locations do not count.
static at_digest digest_of(const at_mop *op, at_arena *a) {
  at_digest d = at_digest_start(0);
  assert_true(at_ok(at_mop_digest(op, &(at_mdigest_hooks){0}, a, &d)));
  return d;
}

// The module's operation.
static const at_mop *parse(const char *text, at_arena *a) {
  at_mmodule *m;
  at_status st = at_mlir_read_text(at_str_of(text), a, &m);
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
  return m->op;
}

// The program that kChanges alters.
static const char kProgram[] =
    "module @m { func.func @main(%arg0: tensor<4xf32> loc(\"a.py\":1:1)) -> "
    "tensor<4xf32> {\n"
    "  %0 = stablehlo.constant dense<2.0> : tensor<4xf32> loc(\"a.py\":2:1)\n"
    "  %1 = stablehlo.multiply %arg0, %0 : tensor<4xf32> loc(\"a.py\":3:1)\n"
    "  %2 = stablehlo.add %1, %arg0 : tensor<4xf32> loc(\"a.py\":4:1)\n"
    "  return %2 : tensor<4xf32> } }";

// Every place of the text where something else may stand, and what.
static const struct {
  const char *was, *is;
  bool same;
} kChanges[] = {{"\"a.py\":3:1", "\"/elsewhere/b.py\":300:7", true},
                {"%1 = stablehlo", "%1 =   stablehlo", true},
                {"dense<2.0>", "dense<[2.0, 2.0, 2.0, 2.0]>", true},
                {"dense<2.0>", "dense<[2.0, 2.0, 2.0, 3.0]>", false},
                {"dense<2.0>", "dense<-2.0>", false},
                {"@m ", "@n ", false},
                {"@main", "@other", false},
                {"multiply", "subtract", false},
                {"%arg0, %0", "%0, %arg0", false},
                {"add %1, %arg0", "add %1, %1", false},
                {"return %2", "return %1", false}};

// The program with `is` in place of `was`; the caller frees it.
static char *changed(const char *was, const char *is) {
  const char *at = strstr(kProgram, was);
  assert_non_null(at);
  char *text = malloc(sizeof kProgram + strlen(is) + 1);
  sprintf(text, "%.*s%s%s", (int)(at - kProgram), kProgram, is,
          at + strlen(was));
  return text;
}

// What a program means changes its digest; how it is written does not.
static void meaning_counts(void **state) {
  at_arena *a = at_arena_create();
  const at_mop *plain = parse(kProgram, a);
  for (size_t i = 0; i < AT_LEN(kChanges); i++) {
    char *text = changed(kChanges[i].was, kChanges[i].is);
    const at_mop *op = parse(text, a);
    free(text);
    bool same = at_digest_eq(digest_of(plain, a), digest_of(op, a));
    if (same != kChanges[i].same || same != at_mop_eq(plain, op, false, a))
      fail_msg("%s for %s", kChanges[i].is, kChanges[i].was);
  }
  at_arena_destroy(a);
}

// Attributes and types (as TYPE attributes) that differ in one thing alone, and
// some that only look different.
static const struct {
  const char *a, *b;
  bool same;
} kPairs[] = {
    {"1 : i32", "1 : i32", true},
    {"1 : i32", "2 : i32", false},
    {"1 : i32", "1 : i64", false},
    {"1 : si32", "1 : ui32", false},
    {"1 : i32", "1 : index", false},
    {"0x10000000000000000 : i128", "0x20000000000000000 : i128", false},
    // Floats by their bits.
    {"1.0 : f32", "1.0 : f64", false},
    {"0.0 : f32", "-0.0 : f32", false},
    {"0x7FC00000 : f32", "0x7FC00000 : f32", true},
    {"true", "false", false},
    {"true", "unit", false},
    {"\"a\"", "\"b\"", false},
    {"\"a\"", "\"ab\"", false},
    // Lists in order, dictionaries by name.
    {"[1, 2]", "[1, 2]", true},
    {"[1, 2]", "[2, 1]", false},
    {"[1, 2]", "[1, 2, 3]", false},
    {"{x = 1, y = 2}", "{y = 2, x = 1}", true},
    {"{x = 1}", "{y = 1}", false},
    {"{x = 1}", "{x = 2}", false},
    {"@x", "@y", false},
    {"@x::@y", "@x::@z", false},
    {"@x", "@x::@y", false},
    // Elements: a splat is what it stands for.
    {"dense<1> : tensor<2xi32>", "dense<[1, 1]> : tensor<2xi32>", true},
    {"dense<1> : tensor<2xi32>", "dense<[1, 2]> : tensor<2xi32>", false},
    {"dense<1> : tensor<2xi32>", "dense<1> : tensor<3xi32>", false},
    {"dense<1> : tensor<2xi32>", "dense<1> : vector<2xi32>", false},
    {"dense<[1, 2]> : tensor<2xi32>", "dense<[[1, 2]]> : tensor<1x2xi32>",
     false},
    {"dense<true> : tensor<2xi1>", "dense<[true, true]> : tensor<2xi1>", true},
    {"array<i32: 1, 2>", "array<i32: 1, 3>", false},
    {"array<i32: 1>", "array<i64: 1>", false},
    {"array<i32: 1>", "array<i32: 1, 1>", false},
    // Types.
    {"f32", "bf16", false},
    {"i8", "ui8", false},
    {"tensor<4xf32>", "tensor<?xf32>", false},
    {"tensor<4xf32>", "tensor<4x1xf32>", false},
    {"tensor<4xf32>", "tensor<*xf32>", false},
    {"tensor<4xf32>", "vector<4xf32>", false},
    {"vector<4xf32>", "vector<[4]xf32>", false},
    {"memref<4xf32>", "memref<4xf32, 1>", false},
    {"memref<4xf32, 1>", "memref<4xf32, 2>", false},
    {"memref<4xf32, strided<[1], offset: 2>>",
     "memref<4xf32, strided<[1], offset: 3>>", false},
    {"memref<4xf32, strided<[1]>>", "memref<4xf32, strided<[2]>>", false},
    {"(i32) -> f32", "(i32) -> f32", true},
    {"(i32) -> f32", "(f32) -> f32", false},
    {"(i32) -> f32", "(i32) -> (f32, f32)", false},
    {"(i32) -> f32", "(i32, i32) -> f32", false},
    {"tuple<i32, f32>", "tuple<f32, i32>", false},
    {"complex<f32>", "complex<f64>", false},
    // Maps by their expressions, which are not reordered.
    {"affine_map<(d0) -> (d0)>", "affine_map<(d0) -> (d0)>", true},
    {"affine_map<(d0) -> (d0)>", "affine_map<(d0) -> (d0 + 1)>", false},
    {"affine_map<(d0, d1) -> (d0)>", "affine_map<(d0, d1) -> (d1)>", false},
    {"affine_map<(d0) -> (d0)>", "affine_map<(d0)[s0] -> (d0)>", false},
    {"affine_map<(d0)[s0] -> (d0)>", "affine_map<(d0)[s0] -> (s0)>", false},
    {"affine_map<(d0) -> (d0 mod 2)>", "affine_map<(d0) -> (d0 floordiv 2)>",
     false},
    {"affine_map<(d0) -> (d0 ceildiv 2)>",
     "affine_map<(d0) -> (d0 floordiv 2)>", false},
    {"affine_set<(d0) : (d0 >= 0)>", "affine_set<(d0) : (d0 == 0)>", false},
    {"#stablehlo<comparison_direction GT>",
     "#stablehlo<comparison_direction LT>", false},
};

static void parts_are_compared(void **state) {
  for (size_t i = 0; i < AT_LEN(kPairs); i++) {
    at_arena *a = at_arena_create();
    const at_mop *op[2];
    for (int k = 0; k < 2; k++)
      op[k] = parse(at_arena_printf(a, "module attributes {m.a = %s} {}",
                                    k ? kPairs[i].b : kPairs[i].a),
                    a);
    bool same = at_mop_eq(op[0], op[1], true, a);
    if (same != kPairs[i].same || same != at_mop_eq(op[1], op[0], true, a) ||
        same != at_digest_eq(digest_of(op[0], a), digest_of(op[1], a)))
      fail_msg("%s and %s", kPairs[i].a, kPairs[i].b);
    at_arena_destroy(a);
  }
}

// Places count where they are asked for, each part of them.
static void places_are_compared(void **state) {
  static const char *const places[] = {
      "\"a.py\":1:2",
      "\"b.py\":1:2",
      "\"a.py\":2:2",
      "\"a.py\":1:3",
      "\"name\"(\"a.py\":1:2)",
      "\"other\"(\"a.py\":1:2)",
      "callsite(\"f\" at \"a.py\":1:2)",
      "callsite(\"f\" at \"a.py\":1:3)",
      "callsite(\"g\" at \"a.py\":1:2)",
      "fused[\"a.py\":1:2, \"a.py\":3:4]",
      "fused[\"a.py\":1:2, \"a.py\":3:5]",
      "fused<\"m\">[\"a.py\":1:2, \"a.py\":3:4]",
      "unknown"};
  at_arena *a = at_arena_create();
  const at_mop *ops[AT_LEN(places)];
  for (size_t i = 0; i < AT_LEN(places); i++)
    ops[i] = parse(
        at_arena_printf(a, "\"t.op\"() : () -> () loc(%s)", places[i]), a);
  for (size_t i = 0; i < AT_LEN(places); i++)
    for (size_t k = 0; k < AT_LEN(places); k++) {
      if (at_mop_eq(ops[i], ops[k], true, a) != (i == k))
        fail_msg("%s and %s", places[i], places[k]);
      assert_true(at_mop_eq(ops[i], ops[k], false, a));
    }
  at_arena_destroy(a);
}

// A file of testdata, in a buffer that the next call takes over.
static at_bytes load(const char *name) {
  char path[512];
  const char *root = getenv("AT_SOURCE_DIR");
  snprintf(path, sizeof path, "%s/src/mlir/testdata/%s", root ? root : ".",
           name);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  static uint8_t bytes[1 << 20];
  size_t n = fread(bytes, 1, sizeof bytes, f);
  fclose(f);
  return (at_bytes){bytes, n};
}

// Bytecode numbers attributes and types as it likes; a program means the same
// as text.
static void form_does_not_count(void **state) {
  static const char *const names[] = {"conv.mlirbc", "mosaic.mlirbc",
                                      "shard_map.mlirbc", "while.mlirbc",
                                      "cond.mlir"};
  for (size_t i = 0; i < AT_LEN(names); i++) {
    at_arena *a = at_arena_create();
    at_mmodule *m, *again;
    assert_true(at_ok(at_mlir_read(load(names[i]), false, a, &m)));
    for (int form = 0; form < 2; form++) {
      at_strbuf b = {0};
      at_mlir_print_options plain = {.generic = true};
      assert_true(at_ok(form ? at_mlir_write_bytecode(m, "x", &b)
                             : at_mlir_print(m, &plain, &b)));
      assert_true(at_ok(at_mlir_read((at_bytes){(const uint8_t *)b.ptr, b.len},
                                     false, a, &again)));
      at_strbuf_free(&b);
      if (!at_digest_eq(digest_of(m->op, a), digest_of(again->op, a)))
        fail_msg("%s, form %d", names[i], form);
    }
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(meaning_counts),
                                     cmocka_unit_test(parts_are_compared),
                                     cmocka_unit_test(places_are_compared),
                                     cmocka_unit_test(form_does_not_count)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
