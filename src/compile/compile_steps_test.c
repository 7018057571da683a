// Golden listings of executables: test/ir/steps/NAME.txt has what NAME.mlir of
// that folder, or else of test/ir/import, becomes: inputs and outputs, what
// shares memory, every step with its operands, in order. Times, bytes of code
// and numbers of nodes are left out. AT_UPDATE=1 writes the listings anew.
#include <ctype.h>

#include "base/cpu.h"
#include "base/golden_test_util.h"
#include "compile/compile.h"

static const char *path_of(at_arena *a, const char *dir, const char *name) {
  const char *root = getenv("AT_SOURCE_DIR");
  return at_arena_printf(a, "%s/test/ir/%s/%s.mlir", root ? root : ".", dir,
                         name);
}

static char *file_read(const char *path, at_arena *a) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  fseek(f, 0, SEEK_END);
  size_t n = (size_t)ftell(f);
  rewind(f);
  char *p = at_arena_alloc(a, n + 1, 1);
  assert_int_equal(fread(p, 1, n, f), n);
  p[n] = 0;
  fclose(f);
  return p;
}

// Without what a change of costs or of the code of a kernel would move.
static void settle(char *text) {
  char *to = text;
  for (char *p = text; *p;) {
    size_t skip = 0;
    if (!strncmp(p, ", code ", 7)) skip = strcspn(p, "\n");
    if (!strncmp(p, ") ", 2) && isdigit((unsigned char)p[2])) {
      *to++ = *p++;
      skip = strcspn(p, ";");
    }
    if (*p == '.' && p > text && isalpha((unsigned char)p[-1]))
      skip = 1 + strspn(p + 1, "0123456789");
    p += skip;
    if (!skip) *to++ = *p++;
  }
  *to = 0;
}

static void expect_listing(const char *name) {
  at_arena *a = at_arena_create();
  char *program = file_read(path_of(a, "steps", name), a);
  if (!program) program = file_read(path_of(a, "import", name), a);
  assert_non_null(program);
  // The widest baseline: the same kernels and steps on any machine.
  at_compile_options o = {
      .cpu_features = AT_CPU_AVX2, .threads = 1, .no_cache = true};
  at_strbuf b = {0};
  at_bytes bytes = {(const uint8_t *)program, strlen(program)};
  at_status s = at_compile_dump(bytes, &o, AT_STAGE_STEPS, &b);
  if (!at_ok(s)) fail_msg("%s: %s", name, at_status_message(s));
  settle(b.ptr);
  b.len = strlen(b.ptr);
  expect_golden(at_arena_printf(a, "test/ir/steps/%s.txt", name), &b);
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

static void programs_become_these_steps(void **state) {
  static const char *const names[] = {
      "accuracy",  "calls",       "chlo",     "constants",   "donated",
      "legacy",    "elementwise", "library",  "loop",        "mesh_groups",
      "locations", "movement",    "replicas", "sdy_devices", "tuples",
      "regions",   "resources"};
  for (size_t i = 0; i < AT_LEN(names); i++) expect_listing(names[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(programs_become_these_steps)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
