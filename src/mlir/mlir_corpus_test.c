// Every program of the conformance corpus, where it is at hand: read, printed
// and written, and read back equal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "mlir/mlir.h"

// NULL: not there. The caller frees.
static uint8_t *load(const char *name, size_t *len) {
  const char *root = getenv("AT_SOURCE_DIR");
  char path[512];
  snprintf(path, sizeof path, "%s/../shared/conformance/corpus/%s",
           root ? root : ".", name);
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  fseek(f, 0, SEEK_END);
  *len = (size_t)ftell(f);
  rewind(f);
  uint8_t *b = malloc(*len + 1);
  assert_int_equal(fread(b, 1, *len, f), *len);
  b[*len] = 0;
  fclose(f);
  return b;
}

// One program survives both text forms and bytecode.
static void check(at_bytes program, size_t index) {
  at_arena *a = at_arena_create();
  at_mmodule *m = NULL;
  at_status s = at_mlir_read(program, false, a, &m);
  if (!at_ok(s)) fail_msg("program %zu: %s", index, at_status_message(s));
  for (int form = 0; form < 3; form++) {
    at_mlir_print_options opt = {.generic = form == 0, .locations = form == 0};
    at_strbuf b = {0};
    at_mmodule *again = NULL;
    assert_true(at_ok(form == 2 ? at_mlir_write_bytecode(m, "atoll", &b)
                                : at_mlir_print(m, &opt, &b)));
    s = at_mlir_read((at_bytes){(const uint8_t *)b.ptr, b.len}, false, a,
                     &again);
    if (!at_ok(s))
      fail_msg("program %zu, form %d: %s", index, form, at_status_message(s));
    if (!at_mop_eq(m->op, again->op, form != 1, a))
      fail_msg("program %zu differs after form %d", index, form);
    at_strbuf_free(&b);
  }
  at_arena_destroy(a);
}

// Skipped without the corpus.
static void every_program_reads(void **state) {
  size_t index_len, len, count = 0;
  char *index = (char *)load("index.json", &index_len);
  uint8_t *programs = load("programs.bin", &len);
  if (!index || !programs) {
    print_message("the corpus is not here: 1 test skipped\n");
    free(index);
    free(programs);
    skip();
  }
  for (const char *p = index; (p = strstr(p, "\"bc\":["));) {
    char *end;
    size_t at = strtoul(p + 6, &end, 10);
    size_t n = strtoul(end + 1, NULL, 10);
    assert_true(*end == ',' && at <= len && n <= len - at);
    check((at_bytes){programs + at, n}, count++);
    p = end;
  }
  print_message("%zu programs\n", count);
  assert_true(count > 1000);
  free(index);
  free(programs);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_program_reads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
