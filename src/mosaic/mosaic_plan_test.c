// Golden tests of the passes that plan a kernel: test/ir/plan/PASS.mlir or
// PASS_form.mlir holds a kernel, a line "----", and what the pass says of it.
// AT_UPDATE=1 writes the second half anew.
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "base/cpu.h"
#include "mosaic/code.h"

static const char *path_of(at_arena *a, const char *name) {
  const char *root = getenv("AT_SOURCE_DIR");
  const char *path =
      at_arena_printf(a, "%s/test/ir/plan/%s", root ? root : ".", name);
  assert_non_null(path);
  return path;
}

static at_str read_file(at_arena *a, const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("no file %s", path);
  enum { MOST = 1 << 20 };
  char *text = at_arena_alloc(a, MOST, 1);
  assert_non_null(text);
  size_t n = fread(text, 1, MOST, f);
  assert_true(n < MOST);
  fclose(f);
  return (at_str){text, n};
}

// The kernel, and the line after it.
static at_str kernel_of(at_str text, const char *path) {
  static const char mark[] = "\n----\n";
  const char *at = memmem(text.ptr, text.len, mark, strlen(mark));
  if (!at) fail_msg("%s: no line ----", path);
  return (at_str){text.ptr, (size_t)(at - text.ptr) + 1};
}

static at_status plan(at_str kernel, bool check, const char *passes,
                      at_arena *a, at_strbuf *out) {
  at_mosaic_call call = {.payload = {(const uint8_t *)kernel.ptr, kernel.len}};
  at_mosaic_code_options o = {.check = check};
  at_mosaic_kernel *k;
  AT_TRY(at_mosaic_read(&call, a, &k));
  for (uint32_t i = 0; i < k->num_programs; i++) {
    if (!check) AT_TRY(at_mosaic_narrow_lanes(&k->programs[i], a));
    AT_TRY(at_mosaic_plan_print(k, i, &o, passes, a, out));
  }
  return AT_OK;
}

static void check_file(const char *name) {
  at_arena *a = at_arena_create();
  const char *path = path_of(a, name);
  at_str text = read_file(a, path), kernel = kernel_of(text, path);
  char *pass = at_arena_printf(a, "%.*s", (int)strcspn(name, "_."), name);
  at_strbuf out = {0};
  at_strbuf_addf(&out, "%.*s----\n", (int)kernel.len, kernel.ptr);
  at_status s = plan(kernel, false, pass, a, &out);
  if (!at_ok(s)) fail_msg("%s: %s", path, at_status_message(s));
  if (!at_str_eq(at_strbuf_str(&out), text)) {
    if (!getenv("AT_UPDATE"))
      fail_msg("%s: another plan (AT_UPDATE=1, and look):\n%s", path, out.ptr);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(out.ptr, 1, out.len, f), out.len);
    fclose(f);
  }
  at_strbuf_free(&out);
  at_arena_destroy(a);
}

static void plans_are_as_recorded(void **state) {
  at_arena *a = at_arena_create();
  // Rows of products depend on the CPU.
  at_cpu_limit(AT_CPU_AVX2 | AT_CPU_AVX512);
  DIR *d = opendir(path_of(a, ""));
  assert_non_null(d);
  size_t n = 0;
  for (struct dirent *e; (e = readdir(d));) {
    size_t len = strlen(e->d_name);
    if (len < 5 || strcmp(e->d_name + len - 5, ".mlir") != 0) continue;
    check_file(e->d_name);
    n++;
  }
  closedir(d);
  assert_true(n >= 8);  // one for each pass
  at_arena_destroy(a);
}

// Where accesses are checked, each is announced as the kernel has it: no sum
// loses its zeros, and nothing waits.
static void checked_kernels_do_as_they_say(void **state) {
  static const char *const files[] = {"sums.mlir", "pages.mlir", "rows.mlir"};
  for (size_t i = 0; i < AT_LEN(files); i++) {
    at_arena *a = at_arena_create();
    const char *path = path_of(a, files[i]);
    at_strbuf out = {0};
    at_status s = plan(kernel_of(read_file(a, path), path), true,
                       "pages,sums,rows", a, &out);
    assert_true(at_ok(s));
    assert_true(out.len > 0);
    const char *said = strstr(out.ptr + strlen("// "), "//");
    if (said) fail_msg("%s: %s", path, said);
    at_strbuf_free(&out);
    at_arena_destroy(a);
  }
}

static void unknown_passes_are_refused(void **state) {
  at_arena *a = at_arena_create();
  const char *path = path_of(a, "uses.mlir");
  at_strbuf out = {0};
  at_status s =
      plan(kernel_of(read_file(a, path), path), false, "uses,cores", a, &out);
  assert_int_equal(at_status_code(s), AT_INVALID_ARGUMENT);
  assert_non_null(strstr(at_status_message(s), "cores"));
  at_status_free(s);
  at_strbuf_free(&out);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(plans_are_as_recorded),
      cmocka_unit_test(checked_kernels_do_as_they_say),
      cmocka_unit_test(unknown_passes_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
