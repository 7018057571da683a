// Every kernel of the corpus, where it is at hand: read, verified, described,
// printed and read back.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "mosaic/mosaic_corpus_test.h"

static void print_and_read_back(const at_mosaic_kernel *k, at_arena *a,
                                const char *id, at_str config) {
  at_strbuf text = {0};
  at_status s = at_mosaic_print(k, true, &text);
  if (!at_ok(s)) fail_msg("%s: %s", id, at_status_message(s));
  at_mosaic_call call = k->call;
  call.payload = (at_bytes){(const uint8_t *)text.ptr, text.len};
  call.config = config;
  at_mosaic_kernel *again = NULL;
  s = at_mosaic_read(&call, a, &again);
  if (!at_ok(s)) fail_msg("%s, printed: %s", id, at_status_message(s));
  if (!at_mop_eq(k->module->op, again->module->op, true, a))
    fail_msg("%s differs after printing", id);
  assert_int_equal(k->num_programs, again->num_programs);
  at_strbuf_free(&text);
}

static void every_kernel_reads(void **state) {
  corpus c = {0};
  if (!corpus_open(&c, "corpus.tar.xz") || !corpus_index(&c)) {
    print_message("the corpus is not here: 1 test skipped\n");
    skip();
  }
  size_t failures = 0, printed = 0;
  for (size_t i = 0; i < c.kernels.len; i++) {
    const corpus_kernel *e = &c.kernels.ptr[i];
    at_arena *a = at_arena_create();
    at_mosaic_kernel *k = NULL;
    at_status s = at_mosaic_read(&e->call, a, &k);
    if (!at_ok(s)) {
      if (failures++ < 20)
        print_message("%s (%s): %s\n", e->id, e->test, at_status_message(s));
      at_status_free(s);
    } else if (e->call.payload.len < 20000 && i % 4 == 0) {
      print_and_read_back(k, a, e->id, e->call.config);
      printed++;
    }
    at_arena_destroy(a);
  }
  print_message("%zu kernels, %zu printed and read back\n", c.kernels.len,
                printed);
  assert_int_equal(failures, 0);
  assert_true(c.kernels.len > 4000);
  corpus_close(&c);
}

static void the_library_reads(void **state) {
  corpus c = {0};
  if (!corpus_open(&c, "library.tar.xz")) {
    print_message("the library is not here: 1 test skipped\n");
    skip();
  }
  size_t n = 0;
  for (size_t i = 0; i < c.files.len; i++) {
    at_str path = c.files.entries[i].key;
    if (path.len < 3 || memcmp(path.ptr + path.len - 3, ".bc", 3)) continue;
    at_arena *a = at_arena_create();
    at_mosaic_kernel *k = NULL;
    at_mosaic_call call = {.payload = *(at_bytes *)c.files.entries[i].value};
    at_status s = at_mosaic_read(&call, a, &k);
    if (!at_ok(s)) fail_msg("%s: %s", path.ptr, at_status_message(s));
    print_and_read_back(k, a, path.ptr, AT_STR(""));
    at_arena_destroy(a);
    n++;
  }
  print_message("%zu kernels\n", n);
  assert_true(n > 100);
  corpus_close(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_kernel_reads),
                                     cmocka_unit_test(the_library_reads)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
