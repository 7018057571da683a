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
                                     cmocka_unit_test(form_does_not_count)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
