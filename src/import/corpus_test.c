// Real programs: what JAX 0.10.2 sends to a platform named tpu (test/ir/jax),
// and, where it is there, the conformance corpus: StableHLO's own tests as
// VHLO 1.13 artifacts. Each must import, and what comes out must be a lawful
// graph.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka wants the headers above first.
#include <cmocka.h>
#include <dirent.h>
#include <math.h>

#include "base/json.h"
#include "import/import.h"

// The whole file, in the arena. NOT_FOUND where it cannot be opened.
static at_status file_read(const char *path, at_arena *a, at_bytes *out) {
  FILE *f = fopen(path, "rb");
  if (!f) return AT_FAIL(AT_NOT_FOUND, "%s", path);
  fseek(f, 0, SEEK_END);
  size_t n = (size_t)ftell(f);
  rewind(f);
  uint8_t *p = at_arena_alloc(a, n + 1, 1);
  size_t got = p ? fread(p, 1, n, f) : 0;
  fclose(f);
  if (got != n) return AT_FAIL(AT_DATA_LOSS, "%s", path);
  *out = (at_bytes){p, n};
  return AT_OK;
}

// Bytecode or text to a verified graph.
static at_status import(at_bytes b, at_arena *a, at_module **out) {
  at_mmodule *m;
  AT_TRY(at_mlir_read(b, true, a, &m));
  AT_TRY(at_import(m, a, out));
  return at_verify(*out, "import");
}

// Under the source tree, wherever ctest runs.
static void path_of(char *out, size_t n, const char *tail) {
  const char *root = getenv("AT_SOURCE_DIR");
  snprintf(out, n, "%s/%s", root ? root : ".", tail);
}

// Prints a failed status, and frees it; true: there was none.
static bool report(const char *name, at_status s) {
  if (at_ok(s)) return true;
  print_message("%s: %s: %s\n", name, at_code_name(at_status_code(s)),
                at_status_message(s));
  at_status_free(s);
  return false;
}

// Every program that JAX sent imports; at least 40, so that an empty folder
// does not pass.
static void jax_programs(void **state) {
  char dir[512], path[1024];
  path_of(dir, sizeof dir, "test/ir/jax");
  DIR *d = opendir(dir);
  assert_non_null(d);
  int good = 0, all = 0;
  for (struct dirent *e; (e = readdir(d));) {
    if (!strstr(e->d_name, ".mlirbc")) continue;
    snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
    at_arena *a = at_arena_create();
    at_bytes b;
    at_module *m;
    at_status s = file_read(path, a, &b);
    if (at_ok(s)) s = import(b, a, &m);
    good += report(e->d_name, s);
    all++;
    at_arena_destroy(a);
  }
  closedir(d);
  print_message("%d of %d programs of JAX imported\n", good, all);
  assert_true(all >= 40);
  assert_int_equal(good, all);
}

// ---- The corpus

// Two blobs, and an index with offsets into them.
typedef struct corpus {
  at_bytes programs, data;
  const at_json *cases;
} corpus;

// The corpus lies beside the source tree and may be absent.
static at_status corpus_open(at_arena *a, corpus *out) {
  char path[512];
  at_bytes index;
  const at_json *root;
  path_of(path, sizeof path, "../shared/conformance/corpus/index.json");
  AT_TRY(file_read(path, a, &index));
  path_of(path, sizeof path, "../shared/conformance/corpus/programs.bin");
  AT_TRY(file_read(path, a, &out->programs));
  path_of(path, sizeof path, "../shared/conformance/corpus/data.bin");
  AT_TRY(file_read(path, a, &out->data));
  AT_TRY(at_json_parse(index, a, &root));
  out->cases = at_json_get(root, "cases");
  return out->cases ? AT_OK : AT_FAIL(AT_NOT_FOUND, "cases");
}

// `bc` is [offset, length] in programs.bin.
static at_status case_import(const corpus *c, const at_json *one, at_arena *a,
                             at_module **out) {
  const at_json *bc = at_json_get(one, "bc");
  if (!bc || bc->len != 2) return AT_FAIL(AT_DATA_LOSS, "no program");
  return import((at_bytes){c->programs.ptr + bc->items[0].integer,
                           (size_t)bc->items[1].integer},
                a, out);
}

// An array of the corpus as a literal of type t; its length must be the type's.
static at_status data_literal(const corpus *c, const at_json *d, at_type t,
                              at_arena *a, const at_literal **out) {
  int64_t off = at_json_get_int(d, "off", 0),
          len = at_json_get_int(d, "len", 0);
  if ((size_t)len != at_type_bytes(&t))
    return AT_FAIL(AT_DATA_LOSS, "%lld bytes of data for %zu", (long long)len,
                   at_type_bytes(&t));
  return at_literal_make(a, t, c->data.ptr + off, false, false, out);
}

// Real (0) or imaginary (1) part of element i as a double.
static double part_of(const at_literal *l, int64_t i, int part) {
  at_dtype t = l->type.dtype, real = at_real_of(t);
  const uint8_t *p = at_literal_at(l, i);
  if (at_is_float(real))
    return at_load_float(real, p + part * (int)at_dtype_bytes(real));
  return (double)at_load_int(t, p);
}

// Relative to 1 + |expected|; integers must be equal.
static double tolerance_of(at_dtype t) {
  switch (at_real_of(t)) {
    case AT_F64:
      return 1e-9;
    case AT_F32:
      return 1e-4;
    case AT_F16:
      return 4e-3;
    case AT_BF16:
      return 3e-2;
    default:
      return at_is_float(t) ? 0.3 : 0;
  }
}

// NaN matches NaN, infinities match exactly; all else within the larger of the
// case's tolerance and the type's.
static bool near_enough(const at_literal *have, const at_literal *want,
                        double tol) {
  int64_t n = at_type_elements(&have->type);
  tol = AT_MAX(tol, tolerance_of(have->type.dtype));
  for (int64_t i = 0; i < n; i++)
    for (int k = 0; k <= (int)at_is_complex(have->type.dtype); k++) {
      double h = part_of(have, i, k), w = part_of(want, i, k);
      if (h == w || (isnan(h) && isnan(w))) continue;
      if (!(fabs(h - w) <= tol * (1 + fabs(w)))) return false;
    }
  return true;
}

// Runs the reference evaluator on the case's inputs, and compares every output
// that the case records.
static at_status case_evaluate(const corpus *c, const at_json *one,
                               const at_module *m, at_arena *a) {
  const at_comp *f = m->entry;
  const at_json *in = &at_json_get(one, "inputs")->items[0];
  const at_json *outs = at_json_get(one, "outputs");
  const at_literal **args, **results;
  AT_TRY_ALLOC(args, at_new(a, const at_literal *, f->num_params + 1u));
  AT_TRY_ALLOC(results, at_new(a, const at_literal *, f->num_results + 1u));
  if (in->len != f->num_params) return AT_FAIL(AT_DATA_LOSS, "inputs");
  for (uint32_t i = 0; i < f->num_params; i++)
    AT_TRY(data_literal(c, &in->items[i], f->params[i]->types[0], a, &args[i]));
  at_eval_options opt = {.max_ops = 200000000};
  AT_TRY(at_eval(f, args, &opt, a, results));
  for (size_t i = 0; i < outs->len; i++) {
    const at_json *o = &outs->items[i];
    int64_t index = at_json_get_int(o, "out", 0);
    const at_literal *want;
    if (index < 0 || index >= f->num_results)
      return AT_FAIL(AT_DATA_LOSS, "outputs");
    AT_TRY(data_literal(c, at_json_get(o, "expected"), results[index]->type, a,
                        &want));
    if (!near_enough(results[index], want, at_json_get_num(o, "tol", 0)))
      return AT_FAIL(AT_DATA_LOSS, "result %lld is wrong", (long long)index);
  }
  return AT_OK;
}

// The plain evaluator runs one device's program.
static bool one_device(const at_json *one) {
  return at_json_get_int(one, "replicas", 1) == 1 &&
         at_json_get_int(one, "partitions", 1) == 1;
}

// All programs import; nearly all of those for one device also evaluate to the
// recorded outputs.
static void conformance_corpus(void **state) {
  at_arena *files = at_arena_create();
  corpus c;
  at_status s = corpus_open(files, &c);
  if (!at_ok(s)) {
    print_message("skipped: %s is not there\n", at_status_message(s));
    at_status_free(s);
    at_arena_destroy(files);
    skip();
    return;
  }
  int imported = 0, tried = 0, right = 0;
  for (size_t i = 0; i < c.cases->len; i++) {
    const at_json *one = &c.cases->items[i];
    at_arena *a = at_arena_create();
    at_module *m;
    const char *name =
        at_arena_str(a, at_json_get_str(one, "name", AT_STR("?")));
    bool ok = report(name, case_import(&c, one, a, &m));
    imported += ok;
    if (ok && one_device(one)) {
      tried++;
      right += report(name, case_evaluate(&c, one, m, a));
    }
    at_arena_destroy(a);
  }
  print_message(
      "%d of %zu programs of the corpus imported; %d of %d evaluate to "
      "what is expected\n",
      imported, c.cases->len, right, tried);
  assert_int_equal(imported, (int)c.cases->len);
  // The evaluator has its own tests for the last few; a wrong import breaks
  // many.
  assert_true(right >= tried - 8);
  at_arena_destroy(files);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(jax_programs),
                                     cmocka_unit_test(conformance_corpus)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
