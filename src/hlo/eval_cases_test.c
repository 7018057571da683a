// Replays testdata/eval_*.txt: programs that return (computed, expected) pairs.
// Every program is also verified, printed, read back and printed again.
// cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hlo/hlo.h"

// How far a result may be from what is expected: either bound suffices.
typedef struct tolerance {
  long ulp;
  double eps;  // relative to the largest expected magnitude, at least 1
} tolerance;

// Distance in representable values of the type.
static double ulps(at_dtype t, const void *a, const void *b) {
  int64_t x[2] = {0, 0};
  const void *p[2] = {a, b};
  unsigned bits = 8 * at_dtype_bytes(t);
  for (int i = 0; i < 2; i++) {
    uint64_t u = 0;
    memcpy(&u, p[i], at_dtype_bytes(t));
    int64_t s = (int64_t)(u << (64 - bits)) >> (64 - bits);
    x[i] = s < 0 ? (int64_t)(1ull << (bits - 1)) - (int64_t)(u) : s;
  }
  return fabs((double)x[0] - (double)x[1]);
}

// Within `eps` of the largest expected magnitude, or within `ulp` representable
// values. NaN equals NaN.
static bool same_float(at_dtype t, const void *a, const void *b, tolerance tol,
                       double scale) {
  double x = at_load_float(t, a), y = at_load_float(t, b);
  if (isnan(x) || isnan(y)) return isnan(x) && isnan(y);
  if (isinf(x) || isinf(y)) return x == y;
  if (tol.eps > 0 && fabs(x - y) <= tol.eps * fmax(1, scale)) return true;
  return ulps(t, a, b) <= (double)tol.ulp;
}

// The largest finite magnitude, of both parts of complex numbers.
static double largest(const at_literal *l) {
  at_dtype t = at_real_of(l->type.dtype);
  int64_t n = (int64_t)(l->bytes / at_dtype_bytes(t));
  double most = 0;
  for (int64_t i = 0; i < n; i++) {
    double v = fabs(at_load_float(
        t, (const uint8_t *)l->data + (size_t)i * at_dtype_bytes(t)));
    if (isfinite(v) && v > most) most = v;
  }
  return most;
}

// The index of the first difference, -1 for none.
static int64_t difference(const at_literal *got, const at_literal *want,
                          tolerance tol) {
  if (!at_type_eq(&got->type, &want->type)) return 0;
  at_dtype t = want->type.dtype, real = at_real_of(t);
  bool is_float = at_is_float(real);
  size_t w = at_dtype_bytes(real);
  int64_t parts = at_is_complex(t) ? 2 : 1;
  int64_t n = at_type_elements(&want->type);
  double scale = is_float && tol.eps > 0 ? largest(want) : 0;
  for (int64_t i = 0; i < n * parts; i++) {
    const uint8_t *a = (const uint8_t *)at_literal_at(got, i / parts) +
                       w * (size_t)(i % parts);
    const uint8_t *b = (const uint8_t *)at_literal_at(want, i / parts) +
                       w * (size_t)(i % parts);
    if (is_float ? !same_float(real, a, b, tol, scale) : memcmp(a, b, w) != 0)
      return i;
  }
  return -1;
}

// One part of an element, for the message.
static void show(const char *what, const at_literal *l, int64_t i) {
  at_dtype t = l->type.dtype, real = at_real_of(t);
  const uint8_t *p = at_literal_at(l, at_is_complex(t) ? i / 2 : i);
  if (at_is_complex(t)) p += at_dtype_bytes(real) * (size_t)(i % 2);
  if (at_is_float(real))
    fprintf(stderr, " %s %.17g", what, at_load_float(real, p));
  else
    fprintf(stderr, " %s %lld", what, (long long)at_load_int(t, p));
}

// Prints and frees an error.
static bool check_status(const char *name, at_status s) {
  if (at_ok(s)) return true;
  fprintf(stderr, "%s: %s\n", name, at_status_message(s));
  at_status_free(s);
  return false;
}

// Print, parse, verify, and print the same.
static bool round_trips(const char *name, const at_module *m, at_arena *a) {
  at_strbuf one = {0}, two = {0};
  at_module *again;
  bool good =
      check_status(name, at_hlo_print(m, &one)) &&
      check_status(name, at_hlo_parse(at_strbuf_str(&one), a, &again)) &&
      check_status(name, at_verify(again, NULL)) &&
      check_status(name, at_hlo_print(again, &two));
  if (good && !at_str_eq(at_strbuf_str(&one), at_strbuf_str(&two))) {
    fprintf(stderr, "%s: prints differ\n%s\n%s\n", name, one.ptr, two.ptr);
    good = false;
  }
  at_strbuf_free(&one);
  at_strbuf_free(&two);
  return good;
}

// Results come in pairs: what the program computes and what it should be.
static bool run_case(const char *name, at_str text, tolerance tol) {
  at_arena *a = at_arena_create();
  at_module *m;
  const at_literal *out[16];
  bool good = check_status(name, at_hlo_parse(text, a, &m)) &&
              check_status(name, at_verify(m, "parse")) &&
              round_trips(name, m, a) && m->entry->num_results <= 16 &&
              check_status(name, at_eval(m->entry, NULL, NULL, a, out));
  for (uint32_t i = 0; good && i + 1 < m->entry->num_results; i += 2) {
    int64_t at = difference(out[i], out[i + 1], tol);
    if (at < 0) continue;
    fprintf(stderr, "%s: result %u differs at %lld:", name, i / 2,
            (long long)at);
    show("got", out[i], at);
    show("want", out[i + 1], at);
    fprintf(stderr, "\n");
    good = false;
  }
  at_arena_destroy(a);
  return good;
}

// The whole file, terminated by NUL; the caller frees it.
static char *read_file(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  fseek(f, 0, SEEK_END);
  *size = (size_t)ftell(f);
  rewind(f);
  char *z = calloc(1, *size + 1);
  if (z && fread(z, 1, *size, f) != *size) *size = 0;
  fclose(f);
  return z;
}

// Cases are divided by lines of dashes; each starts with its name and
// tolerances.
static int run_file(const char *path, int *cases) {
  size_t size = 0;
  int bad = 0;
  char *text = read_file(path, &size);
  assert_non_null(text);
  for (char *p = text; p && *p;) {
    char *next = strstr(p, "---\n"), name[128] = "";
    char *end = next ? next : text + size;
    char *line = memchr(p, '\n', (size_t)(end - p));
    assert_non_null(line);
    char *options = memmem(p, (size_t)(line - p), " ulp=", 5);
    assert_non_null(options);
    snprintf(name, sizeof name, "%.*s", (int)(options - p - 2), p + 2);
    tolerance tol = {0};
    assert_int_equal(sscanf(options, " ulp=%ld eps=%lg", &tol.ulp, &tol.eps),
                     2);
    bad += !run_case(name, (at_str){line, (size_t)(end - line)}, tol);
    (*cases)++;
    p = next ? next + 4 : NULL;
  }
  free(text);
  return bad;
}

// Every file of testdata, so that a new one needs no entry here.
static void test_cases(void **state) {
  const char *root = getenv("AT_SOURCE_DIR");
  char folder[512], path[1024];
  int bad = 0, cases = 0;
  snprintf(folder, sizeof folder, "%s/src/hlo/testdata", root ? root : ".");
  DIR *d = opendir(folder);
  assert_non_null(d);
  for (struct dirent *e; (e = readdir(d));) {
    size_t n = strlen(e->d_name);
    if (n < 4 || strcmp(e->d_name + n - 4, ".txt")) continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    bad += run_file(path, &cases);
  }
  closedir(d);
  printf("%d cases, %d bad\n", cases, bad);
  assert_true(cases > 400);
  assert_int_equal(bad, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
