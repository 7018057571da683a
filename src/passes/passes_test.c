// Golden tests of the passes: test/ir/<pass>/*.hlo hold a module, a line
// "----", and what the pass makes of it (or "error: CODE text"). Beside the
// text, the evaluator must give equal results before and after, for random
// arguments.
//   passes_test --update    writes the expected parts anew
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "passes/passes_internal.h"

static bool update;

typedef struct golden {
  char path[512];
  char *text;  // owned
  at_str input, expected;
  const char *mark;  // the first line, if it is one of those below; else ""
} golden;

static const char *source_dir(void) {
  const char *d = getenv("AT_SOURCE_DIR");
  return d ? d : ".";
}

static char *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  fseek(f, 0, SEEK_END);
  long size = ftell(f);
  rewind(f);
  char *text = malloc((size_t)size + 1);
  size_t got = fread(text, 1, (size_t)size, f);
  text[got] = 0;
  fclose(f);
  return text;
}

static const char separator[] = "\n----\n";
// "no-eval": text only. "close": finite arguments, results within 1e-4.
static const char no_eval[] = "# no-eval\n", close_enough[] = "# close\n";

static void split(golden *g) {
  const char *at = strstr(g->text, separator);
  g->mark = strncmp(g->text, no_eval, strlen(no_eval)) == 0 ? no_eval
            : strncmp(g->text, close_enough, strlen(close_enough)) == 0
                ? close_enough
                : "";
  const char *start = g->text + strlen(g->mark);
  size_t len = at ? (size_t)(at - start) + 1 : strlen(start);
  g->input = (at_str){start, len};
  g->expected = at ? at_str_of(at + strlen(separator)) : (at_str){"", 0};
}

// ---- Random arguments
static uint64_t next_random(uint64_t *s) {
  *s ^= *s << 13;
  *s ^= *s >> 7;
  *s ^= *s << 17;
  return *s;
}

static double random_float(uint64_t *s, bool finite) {
  static const double special[] = {0.0,      -0.0,      1.0, -1.0,
                                   INFINITY, -INFINITY, NAN, 0.5};
  uint64_t r = next_random(s);
  if (r % 8 == 0 && !finite) return special[(r >> 8) % AT_LEN(special)];
  return ((double)(int64_t)(r >> 40) - (double)(1 << 23)) / (double)(1 << 21);
}

static const at_literal *random_literal(at_arena *a, at_type t, uint64_t *s,
                                        bool finite) {
  size_t size = at_dtype_bytes(t.dtype);
  int64_t n = at_type_elements(&t);
  uint8_t *data = at_arena_alloc(a, at_mul((size_t)n, size) + 16, 16);
  assert_non_null(data);
  at_dtype part = at_real_of(t.dtype);
  size_t parts = at_is_complex(t.dtype) ? 2 : 1;
  for (size_t i = 0; i < (size_t)n * parts; i++) {
    uint8_t *p = data + i * (size / parts);
    if (at_is_float(part))
      at_store_float(part, p, random_float(s, finite));
    else if (part == AT_PRED)
      at_store_int(part, p, (int64_t)(next_random(s) & 1));
    else
      at_store_int(part, p, (int64_t)(next_random(s) % 23) - 6);
  }
  const at_literal *l;
  assert_true(at_ok(at_literal_make(a, t, data, false, true, &l)));
  return l;
}

static bool same_element(at_dtype t, const void *a, const void *b,
                         double tolerance) {
  if (at_is_float(t)) {
    double x = at_load_float(t, a), y = at_load_float(t, b);
    if (tolerance > 0 && fabs(x - y) <= tolerance * (1 + fabs(x))) return true;
    return x == y || (isnan(x) && isnan(y));
  }
  return at_load_int(t, a) == at_load_int(t, b);
}

static bool same_literal(const at_literal *a, const at_literal *b,
                         double tolerance) {
  if (!at_type_eq(&a->type, &b->type)) return false;
  at_dtype part = at_real_of(a->type.dtype);
  int64_t n = at_type_elements(&a->type);
  for (int64_t i = 0; i < n; i++) {
    const uint8_t *x = at_literal_at(a, i), *y = at_literal_at(b, i);
    if (!same_element(part, x, y, tolerance)) return false;
    if (at_is_complex(a->type.dtype) &&
        !same_element(part, x + at_dtype_bytes(part), y + at_dtype_bytes(part),
                      tolerance))
      return false;
  }
  return true;
}

static at_status evaluate(const at_module *m, const at_literal *const *args,
                          at_arena *a, const at_literal **out) {
  at_eval_options opt = {0};
  return at_eval(m->entry, args, &opt, a, out);
}

static void check_meaning(const golden *g, const at_module *before,
                          const at_module *after, at_arena *a) {
  const at_comp *c = before->entry;
  bool close = g->mark == close_enough;
  assert_int_equal(c->num_params, after->entry->num_params);
  assert_int_equal(c->num_results, after->entry->num_results);
  for (uint64_t seed = 1; seed <= 4; seed++) {
    uint64_t s = seed * 0x9e3779b97f4a7c15ull;
    const at_literal *args[32], *x[32], *y[32];
    for (uint32_t i = 0; i < c->num_params; i++)
      args[i] = random_literal(a, c->params[i]->types[0], &s, close);
    at_status st = evaluate(before, args, a, x);
    if (!at_ok(st)) {
      fail_msg("%s: input: %s", g->path, at_status_message(st));
    }
    st = evaluate(after, args, a, y);
    if (!at_ok(st)) fail_msg("%s: output: %s", g->path, at_status_message(st));
    for (uint32_t i = 0; i < c->num_results; i++)
      if (!same_literal(x[i], y[i], close ? 1e-4 : 0))
        fail_msg("%s: result %u differs after the pass (seed %llu)", g->path, i,
                 (unsigned long long)seed);
  }
}

// ---- One file
static at_module *parse(const golden *g, at_arena *a) {
  at_module *m;
  at_status st = at_hlo_parse(g->input, a, &m);
  if (!at_ok(st)) fail_msg("%s: %s", g->path, at_status_message(st));
  st = at_verify(m, "parse");
  if (!at_ok(st)) fail_msg("%s: %s", g->path, at_status_message(st));
  return m;
}

static at_status run_pass(const char *pass, at_module *m) {
  at_pass_options o = {
      .fuse = true,
      .fold_budget = 1 << 20,
      .eigen = strcmp(pass, "inline") == 0,
      .small_products =
          strcmp(pass, "products") == 0 || strcmp(pass, "scatters") == 0 ||
          strcmp(pass, "turn") == 0 || strcmp(pass, "windows") == 0 ||
          strcmp(pass, "sums") == 0 || strcmp(pass, "gathers") == 0 ||
          strcmp(pass, "unfilled") == 0};
  if (strcmp(pass, "pipeline") == 0)
    return at_passes_run(m, &o, true, NULL, NULL);
  for (const at_pass *p = at_pipeline; p->name; p++) {
    if (strcmp(p->name, pass)) continue;
    AT_TRY(at_pass_run(p, m, &o));
    return at_verify(m, pass);
  }
  return AT_FAIL(AT_NOT_FOUND, "no pass \"%s\"", pass);
}

static void write_expected(const golden *g, at_str text) {
  FILE *f = fopen(g->path, "wb");
  assert_non_null(f);
  fprintf(f, "%s%.*s----\n%.*s", g->mark, (int)g->input.len, g->input.ptr,
          (int)text.len, text.ptr);
  fclose(f);
}

static void check_file(const char *pass, golden *g) {
  at_arena *a = at_arena_create();
  at_module *before = parse(g, a), *after = parse(g, a);
  at_status st = run_pass(pass, after);
  at_strbuf out = {0};
  bool ok = at_ok(st);
  if (ok)
    at_status_free(at_hlo_print(after, &out));
  else
    at_strbuf_addf(&out, "error: %s %s\n", at_code_name(at_status_code(st)),
                   at_status_message(st));
  at_status_free(st);
  at_str text = at_strbuf_str(&out);
  if (update) {
    if (!at_str_eq(text, g->expected)) write_expected(g, text);
  } else if (!at_str_eq(text, g->expected)) {
    fail_msg(
        "%s: the pass gives another text (run with --update and look):\n%.*s",
        g->path, (int)text.len, text.ptr);
  }
  if (ok && g->mark != no_eval) check_meaning(g, before, after, a);
  at_strbuf_free(&out);
  at_arena_destroy(a);
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

static void check_folder(const char *pass) {
  char dir[400];
  snprintf(dir, sizeof dir, "%s/test/ir/%s", source_dir(), pass);
  DIR *d = opendir(dir);
  if (!d) fail_msg("no folder %s", dir);
  char *names[256];
  size_t count = 0;
  for (struct dirent *e; (e = readdir(d)) && count < AT_LEN(names);) {
    size_t len = strlen(e->d_name);
    if (len > 4 && strcmp(e->d_name + len - 4, ".hlo") == 0)
      names[count++] = strdup(e->d_name);
  }
  closedir(d);
  assert_true(count > 0);
  qsort(names, count, sizeof *names, by_name);
  for (size_t i = 0; i < count; i++) {
    golden g = {0};
    snprintf(g.path, sizeof g.path, "%s/%s", dir, names[i]);
    g.text = read_file(g.path);
    assert_non_null(g.text);
    split(&g);
    check_file(pass, &g);
    free(g.text);
    free(names[i]);
  }
}

#define FOLDER_TEST(name) \
  static void test_##name(void **state) { check_folder(#name); }
FOLDER_TEST(inline)
FOLDER_TEST(partition)
FOLDER_TEST(collectives)
FOLDER_TEST(combine)
FOLDER_TEST(simplify)
FOLDER_TEST(fold)
FOLDER_TEST(refine)
FOLDER_TEST(named)
FOLDER_TEST(expand)
FOLDER_TEST(recognise)
FOLDER_TEST(products)
FOLDER_TEST(turn)
FOLDER_TEST(scatters)
FOLDER_TEST(gathers)
FOLDER_TEST(sums)
FOLDER_TEST(windows)
FOLDER_TEST(unfilled)
FOLDER_TEST(barriers)
FOLDER_TEST(fuse)
FOLDER_TEST(pipeline)

int main(int argc, char **argv) {
  update = argc > 1 && strcmp(argv[1], "--update") == 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_inline),      cmocka_unit_test(test_simplify),
      cmocka_unit_test(test_fold),        cmocka_unit_test(test_refine),
      cmocka_unit_test(test_named),       cmocka_unit_test(test_expand),
      cmocka_unit_test(test_recognise),   cmocka_unit_test(test_products),
      cmocka_unit_test(test_barriers),    cmocka_unit_test(test_fuse),
      cmocka_unit_test(test_pipeline),    cmocka_unit_test(test_partition),
      cmocka_unit_test(test_collectives), cmocka_unit_test(test_combine),
      cmocka_unit_test(test_turn),        cmocka_unit_test(test_unfilled),
      cmocka_unit_test(test_scatters),    cmocka_unit_test(test_windows),
      cmocka_unit_test(test_gathers),     cmocka_unit_test(test_sums),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
