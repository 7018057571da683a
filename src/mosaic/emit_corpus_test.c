// Machine code for kernels of the corpus, where it is at hand: each one passes
// LLVM's verifier and becomes an object. AT_MOSAIC_STEP=1 takes all of them
// (a sample otherwise), AT_MOSAIC_ID=sha one, AT_MOSAIC_PRINT shows the code.
// AT_MOSAIC_DIGEST=FILE writes a line per kernel with a digest of its objects:
// a change that only moves code about leaves the file as it was.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include <time.h>

#include "base/cpu.h"
#include "mosaic/code.h"
#include "mosaic/mosaic_corpus_test.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t digest_of(const at_cg_output *out) {
  uint64_t h = AT_HASH_SEED;
  for (uint32_t i = 0; i < out->num_objects; i++)
    h = at_hash(h, out->objects[i].ptr, out->objects[i].len);
  return h;
}

// *digest: of the objects.
static at_status compile(const at_mosaic_call *call, bool check, bool print,
                         uint64_t *digest) {
  at_arena *a = at_arena_create();
  at_mosaic_kernel *k = NULL;
  at_cg *cg = NULL;
  at_cg_target t = {.cpu_features = at_cpu_features(),
                    .threads = 1,
                    .opt_level = 2,
                    .verify = true};
  at_mosaic_code_options o = {.check = check};
  at_cg_output out;
  at_status s = at_mosaic_read(call, a, &k);
  if (at_ok(s)) s = at_cg_create(&t, &cg);
  for (uint32_t i = 0; at_ok(s) && i < k->num_programs; i++) {
    at_mosaic_code *code;
    s = at_mosaic_code_add(cg, k, i, &o, a, &code);
  }
  if (at_ok(s) && print) {
    at_strbuf text = {0};
    s = at_cg_print(cg, false, &text);
    if (at_ok(s)) printf("%.*s\n", (int)text.len, text.ptr);
    at_strbuf_free(&text);
  }
  if (at_ok(s)) s = at_cg_finish(cg, a, &out);
  if (at_ok(s)) assert_true(out.num_objects >= 1 && out.objects[0].len > 0);
  if (at_ok(s)) *digest = digest_of(&out);
  at_cg_destroy(cg);
  at_arena_destroy(a);
  return s;
}

static FILE *digests;  // NULL: not wanted

static void put_digest(const char *id, uint64_t digest) {
  if (digests) fprintf(digests, "%s %016llx\n", id, (unsigned long long)digest);
}

static int by_time(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static void the_corpus_compiles(void **state) {
  corpus c = {0};
  if (!corpus_open(&c, "corpus.tar.xz") || !corpus_index(&c)) {
    print_message("the corpus is not here: 1 test skipped\n");
    skip();
  }
  const char *every = getenv("AT_MOSAIC_STEP"), *id = getenv("AT_MOSAIC_ID");
  size_t step = every ? strtoul(every, NULL, 10) : 40, failures = 0,
         missing = 0, n = 0;
  double *time = calloc(c.kernels.len + 1, sizeof *time), most = 0;
  const char *slowest = "";
  for (size_t i = 0; i < c.kernels.len; i += id || !step ? 1 : step) {
    const corpus_kernel *e = &c.kernels.ptr[i];
    if (id && strcmp(e->id, id)) continue;
    double start = now();
    uint64_t digest = 0;
    at_status s = compile(&e->call, getenv("AT_MOSAIC_CHECK") != NULL,
                          getenv("AT_MOSAIC_PRINT") != NULL, &digest);
    time[n] = now() - start;
    if (time[n] > most) {
      most = time[n];
      slowest = e->id;
    }
    n++;
    put_digest(e->id, digest);
    if (at_ok(s)) continue;
    // What no rule of this machine covers yet says so by name.
    if (at_status_code(s) == AT_UNIMPLEMENTED)
      missing++;
    else
      failures++;
    print_message("%s (%s): %s\n", e->id, e->test, at_status_message(s));
    at_status_free(s);
  }
  qsort(time, n, sizeof *time, by_time);
  print_message(
      "%zu kernels, %zu failures, %zu not covered; %.1f ms median, %.1f ms "
      "largest "
      "(%s)\n",
      n, failures, missing, n ? 1e3 * time[n / 2] : 0, 1e3 * most, slowest);
  free(time);
  assert_int_equal(failures, 0);
  assert_true(missing * 50 <= n);
  corpus_close(&c);
}

static void the_library_compiles(void **state) {
  corpus c = {0};
  if (!corpus_open(&c, "library.tar.xz")) {
    print_message("the library is not here: 1 test skipped\n");
    skip();
  }
  size_t failures = 0, n = 0;
  for (size_t i = 0; i < c.files.len; i++) {
    at_str path = c.files.entries[i].key;
    if (path.len < 7 || memcmp(path.ptr + path.len - 7, ".v5e.bc", 7)) continue;
    at_mosaic_call call = {.payload = *(at_bytes *)c.files.entries[i].value};
    if (n++ % 4 && !getenv("AT_MOSAIC_STEP")) continue;
    uint64_t digest = 0;
    at_status s = compile(&call, false, false, &digest);
    put_digest(path.ptr, digest);
    if (at_ok(s)) continue;
    failures++;
    print_message("%s: %s\n", path.ptr, at_status_message(s));
    at_status_free(s);
  }
  assert_int_equal(failures, 0);
  corpus_close(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_corpus_compiles),
                                     cmocka_unit_test(the_library_compiles)};
  const char *path = getenv("AT_MOSAIC_DIGEST");
  digests = path ? fopen(path, "w") : NULL;
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (digests) failed |= fclose(digests) != 0;
  return failed || (path && !digests);
}
