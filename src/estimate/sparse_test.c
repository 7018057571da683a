// SparseCores in estimates: distributions of ids, single kernels beside the TPU
// compiler's estimates, and whole lookups and updates.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/json.h"
#include "estimate/estimate_test_util.h"
#include "estimate/sparse.h"
#include "schedule/overlap.h"

// Fails the test where the text is wrong.
static const at_est_ids_spec *spec(at_arena *a, const char *text) {
  const at_est_ids_spec *s;
  at_bytes bytes = {(const uint8_t *)text, strlen(text)};
  at_status st = at_estimate_lookups(bytes, a, &s);
  if (st.err) fail_msg("%s", at_status_message(st));
  return s;
}

// ---- Distributions
// The sum itself.
static double distinct(int rows, double draws, double zipf) {
  double sum = 0, out = 0;
  for (int r = 1; r <= rows; r++) sum += pow(r, -zipf);
  for (int r = 1; r <= rows; r++)
    out += 1 - pow(1 - pow(r, -zipf) / sum, draws);
  return out;
}

// Within 1 % of the sum rank by rank.
static void distinct_rows_are_those_of_the_sum(void **state) {
  (void)state;
  static const struct {
    int rows;
    double draws, zipf;
  } cases[] = {{100, 50, 0},      {100, 5000, 0},     {50000, 4000, .8},
               {50000, 4e5, 1.1}, {300000, 1e4, 1.5}, {7, 1000, 2}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    double want = distinct(cases[i].rows, cases[i].draws, cases[i].zipf);
    double got = at_est_distinct(cases[i].rows, cases[i].draws, cases[i].zipf);
    if (fabs(got / want - 1) > .01)
      fail_msg("case %zu: %g, the sum is %g", i, got, want);
  }
  assert_true(at_est_distinct(1e9, 1e5, 1.05) < 1e5);
  assert_true(at_est_distinct(0, 10, 1) == 0);
}

// Text and JSON; what is out of range, unknown or missing is refused.
static void specs_are_read(void **state) {
  (void)state;
  at_arena *a = at_arena_create();
  const at_est_ids_spec *s = spec(a, "16,zipf=1.05");
  assert_int_equal(s->num, 1);
  const at_est_ids *x = at_est_ids_of(s, AT_STR("anything"));
  assert_true(x->per_sample == 16 && x->zipf == 1.05 && x->unique < 0);
  s = spec(a,
           "{\"t\": {\"ids_per_sample\": 3, \"unique\": 0.5, \"shared\": 1},"
           " \"*\": {\"ids_per_sample\": 2}}");
  assert_true(at_est_ids_of(s, AT_STR("t"))->unique == .5);
  assert_true(at_est_ids_of(s, AT_STR("u"))->per_sample == 2);
  s = spec(a, "{\"t\": {\"ids_per_sample\": 3}}");
  assert_null(at_est_ids_of(s, AT_STR("u")));
  assert_null(at_est_ids_of(NULL, AT_STR("u")));
  static const char *const bad[] = {"",
                                    "many",
                                    "16,zipf",
                                    "16,zipf=",
                                    "16,zipf=1x",
                                    "16,zapf=1",
                                    "-1",
                                    "16,unique=2",
                                    "zipf=1",
                                    "16,unique=.5,zipf=1",
                                    "{}",
                                    "{\"t\": 3}",
                                    "{\"t\": {\"ids_per_sample\": \"3\"}}",
                                    "[1]"};
  for (size_t i = 0; i < AT_LEN(bad); i++) {
    at_bytes text = {(const uint8_t *)bad[i], strlen(bad[i])};
    if (at_code_take(at_estimate_lookups(text, a, &s)) != AT_INVALID_ARGUMENT)
      fail_msg("'%s' is taken", bad[i]);
  }
  at_arena_destroy(a);
}

// ---- Kernels beside the compiler: data/tpu/sparsecore_rows.json
static at_est_sparse_chip chip_of(at_arena *a, const char *target,
                                  at_target **t) {
  at_tpu_chip chip;
  at_est_sparse_chip out;
  assert_int_equal(
      at_code_take(at_target_parse(at_str_of(target), AT_INTERP_ATOLL, a, t)),
      0);
  assert_int_equal(at_code_take(at_tpu_chip_of((*t)->machine, &chip)), 0);
  assert_int_equal(at_code_take(at_est_sparse_chip_of(&chip, &out)), 0);
  return out;
}

// What of a kernel goes through a tile's port: rows that are gathered come and
// go at once.
static double moves_of(at_str name, at_str optimizer) {
  if (at_str_starts(name, "gather")) return 1;
  if (at_str_is(name, "accumulated_gradient_vectors_tuple")) return 2;
  if (at_str_is(name, "multiply_add_fusion")) return 3;
  if (at_str_is(name, "divide_subtract_fusion")) return 4;
  if (at_str_is(name, "multiply_subtract_fusion"))
    return at_str_is(optimizer, "adagrad") ? 4 : 3;
  return 0;
}

typedef struct errors {
  double off[256];
  size_t num;
} errors;

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The errors of one program's kernels.
static void add_kernels(const at_json *rows, at_str optimizer,
                        const at_est_sparse_chip *c, errors *e) {
  for (size_t i = 0; i < rows->len; i++) {
    const at_json *of = rows->items[i].items;
    double moves = moves_of(of[0].string, optimizer), count, width;
    if (!moves ||
        sscanf(of[2].string.ptr, "f32[<=%lf,%lf]", &count, &width) != 2)
      continue;
    double cycles = at_est_sparse_kernel(c, 1, moves * count * width * 4, 0);
    assert_true(e->num < AT_LEN(e->off));
    e->off[e->num++] = fabs(cycles / of[1].number - 1);
  }
}

// Bounds on the median and the ninth decile of the errors.
static void kernels_take_what_the_compiler_says(void **state) {
  (void)state;
  at_arena *a = at_arena_create();
  char path[4096];
  const char *root = getenv("AT_SOURCE_DIR");
  snprintf(path, sizeof path, "%s/data/tpu/sparsecore_rows.json",
           root ? root : ".");
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  static uint8_t text[1 << 17];
  at_bytes bytes = {text, fread(text, 1, sizeof text, f)};
  fclose(f);
  const at_json *all;
  assert_int_equal(at_code_take(at_json_parse(bytes, a, &all)), 0);
  assert_int_equal(all->len, 2);
  for (size_t i = 0; i < all->len; i++) {
    char target[16];
    at_target *t;
    snprintf(target, sizeof target, "%.*s", (int)all->keys[i].len,
             all->keys[i].ptr);
    at_est_sparse_chip c = chip_of(a, target, &t);
    errors e = {.num = 0};
    const at_json *programs = &all->items[i];
    for (size_t k = 0; k < programs->len; k++)
      add_kernels(&programs->items[k], programs->keys[k], &c, &e);
    qsort(e.off, e.num, sizeof *e.off, by_size);
    double median = e.off[e.num / 2], p90 = e.off[e.num * 9 / 10];
    printf("%s: %zu kernels, median %.3f, p90 %.3f\n", target, e.num, median,
           p90);
    assert_true(e.num > 50 && median < .12 && p90 < .25);
  }
  at_arena_destroy(a);
}

// ---- What a call moves
static at_est_sparse_work work_of(double width, double ids) {
  return (at_est_sparse_work){.ids = ids,
                              .unique = ids,
                              .touched = ids,
                              .samples = 512,
                              .width = width,
                              .element_bytes = 4,
                              .tables = 1,
                              .minibatches = 1,
                              .partitions = 16,
                              .devices = 4};
}

typedef struct timed {
  at_estimate_stage stages[AT_EST_STAGES];
  uint32_t num;
  double seconds;
} timed;

// Stages that add up to the whole.
static timed time_of(const at_est_sparse_chip *c, const at_target *t,
                     const at_est_sparse_work *w) {
  timed x;
  assert_int_equal(
      at_code_take(at_est_sparse_time(c, t, w, x.stages, &x.num, &x.seconds)),
      0);
  double sum = 0;
  for (uint32_t i = 0; i < x.num; i++) {
    sum += x.stages[i].seconds;
    // Never faster than HBM lets it.
    assert_true(x.stages[i].seconds >=
                x.stages[i].hbm_bytes / (c->hbm_rate * c->clock) * .999);
  }
  assert_true(fabs(sum / x.seconds - 1) < 1e-9);
  return x;
}

// Fails the test where there is none.
static const at_estimate_stage *stage(const timed *x, const char *name) {
  for (uint32_t i = 0; i < x->num; i++)
    if (!strcmp(x->stages[i].name, name)) return &x->stages[i];
  fail_msg("no stage %s", name);
  return NULL;
}

// Bytes of each stage by hand.
static void lookups_move_what_they_must(void **state) {
  (void)state;
  at_arena *a = at_arena_create();
  at_target *t;
  at_est_sparse_chip c = chip_of(a, "v5p:2x2x1", &t);
  at_est_sparse_work w = work_of(32, 1 << 16);
  timed x = time_of(&c, t, &w);
  // All four SparseCores of a device: rows read and put down, f32.
  double rows = 4. * (1 << 16) * 32 * 4;
  assert_true(fabs(stage(&x, "gather rows")->hbm_bytes / (2 * rows) - 1) <
              1e-9);
  // Three of four devices are elsewhere.
  assert_true(fabs(stage(&x, "exchange rows")->network_bytes / (.75 * rows) -
                   1) < 1e-9);
  // Duplicates are asked for once.
  at_est_sparse_work fewer = w;
  fewer.unique = w.unique / 4;
  timed y = time_of(&c, t, &fewer);
  assert_true(fabs(stage(&y, "exchange rows")->network_bytes /
                       stage(&x, "exchange rows")->network_bytes -
                   .25) < 1e-9);
  assert_true(stage(&y, "add up samples")->hbm_bytes ==
              stage(&x, "add up samples")->hbm_bytes);
  // One byte per element: HBM still moves whole granules.
  at_est_sparse_work bytes = work_of(8, 1 << 16);
  bytes.element_bytes = 1;
  at_est_sparse_work words = work_of(8, 1 << 16);
  timed narrow = time_of(&c, t, &bytes), wide = time_of(&c, t, &words);
  assert_true(stage(&narrow, "gather rows")->hbm_bytes ==
              stage(&wide, "gather rows")->hbm_bytes);
  // Mini-batches start every kernel again.
  at_est_sparse_work parts = w;
  parts.minibatches = 4;
  assert_true(time_of(&c, t, &parts).seconds > x.seconds);
  // Nobody else is asked.
  at_est_sparse_work alone = w;
  alone.local = true;
  timed local = time_of(&c, t, &alone);
  for (uint32_t i = 0; i < local.num; i++)
    assert_true(local.stages[i].network_bytes == 0);
  at_arena_destroy(a);
}

// More slots move more; what is read is written again.
static void updates_move_table_and_slots(void **state) {
  (void)state;
  at_arena *a = at_arena_create();
  at_target *t;
  at_est_sparse_chip c = chip_of(a, "v6e:2x2", &t);
  at_est_sparse_work w = work_of(64, 1 << 15);
  w.update = true;
  timed sgd = time_of(&c, t, &w);
  w.tables = 3;
  timed adam = time_of(&c, t, &w);
  double one = stage(&sgd, "scatter table and slots")->hbm_bytes;
  assert_true(
      fabs(stage(&adam, "scatter table and slots")->hbm_bytes / (3 * one) - 1) <
      1e-9);
  assert_true(stage(&adam, "exchange gradients")->network_bytes ==
              stage(&sgd, "exchange gradients")->network_bytes);
  w.touched /= 2;
  assert_true(time_of(&c, t, &w).seconds < adam.seconds);
  // A chip without SparseCores.
  at_tpu_chip v5e;
  at_target *without;
  assert_int_equal(at_code_take(at_target_parse(AT_STR("v5e"), AT_INTERP_ATOLL,
                                                a, &without)),
                   0);
  assert_int_equal(at_code_take(at_tpu_chip_of(without->machine, &v5e)), 0);
  assert_int_equal(at_code_take(at_est_sparse_chip_of(&v5e, &c)),
                   AT_FAILED_PRECONDITION);
  at_arena_destroy(a);
}

// ---- Programs
// A product of its own beside a lookup of 2,048 samples on one v5p device, four
// SparseCores; an update of the same table afterwards.
#define CONFIG                                                              \
  "backend_config = \"{\\22sparse_dense_matmul_config\\22: "                \
  "{\\22max_ids_per_partition\\22: 2048, "                                  \
  "\\22max_unique_ids_per_partition\\22: 1024, \\22sharding_strategy\\22: " \
  "1, \\22pad_value\\22: 2147483647%s}, \\22device_type\\22: "              \
  "\\22DEVICE_TYPE_SPARSECORE\\22}\"%s"
static const char g_program[] =
    "module @m {\n"
    "func.func private @\"sgd-t\"(%%g: tensor<1x12xf32>, %%t: "
    "tensor<1x12xf32>, %%r: tensor<1x12xf32>) -> tuple<tensor<1x12xf32>> {\n"
    "  %%0 = stablehlo.multiply %%g, %%r : tensor<1x12xf32>\n"
    "  %%1 = stablehlo.subtract %%t, %%0 : tensor<1x12xf32>\n"
    "  %%2 = stablehlo.tuple %%1 : tuple<tensor<1x12xf32>>\n"
    "  return %%2 : tuple<tensor<1x12xf32>>\n}\n"
    "func.func @main(%%p: tensor<32xi32>, %%i: tensor<32768xi32>, %%s: "
    "tensor<32768xi32>, %%w: tensor<32768xf32>, %%t: tensor<65536x12xf32> "
    "loc(\"tables['t'].table\"), %%x: tensor<4096x4096xbf16>, %%h: "
    "tensor<f32>) -> (tensor<2048x12xf32>, tensor<65536x12xf32>, "
    "tensor<4096x4096xbf16>) {\n"
    "  %%z = stablehlo.constant dense<0.0> : tensor<2048x12xf32>\n"
    "  %%a = stablehlo.custom_call @SparseDenseMatmulOp(%%p, %%i, %%s, %%w, "
    "%%t, %%z) {" CONFIG
    "} : (tensor<32xi32>, tensor<32768xi32>, tensor<32768xi32>, "
    "tensor<32768xf32>, tensor<65536x12xf32>, tensor<2048x12xf32>) -> "
    "tensor<2048x12xf32>\n"
    "  %%y = stablehlo.dot_general %%x, %%x, contracting_dims = [1] x [0] : "
    "(tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> "
    "tensor<4096x4096xbf16>\n"
    "  %%g = stablehlo.tanh %%a : tensor<2048x12xf32>\n"
    "  %%u = stablehlo.custom_call "
    "@SparseDenseMatmulGradOpWithOptimizerUpdate(%%p, %%i, %%s, %%w, %%g, "
    "%%t, %%h) {" CONFIG
    "} : (tensor<32xi32>, tensor<32768xi32>, tensor<32768xi32>, "
    "tensor<32768xf32>, tensor<2048x12xf32>, tensor<65536x12xf32>, "
    "tensor<f32>) -> tuple<tensor<65536x12xf32>>\n"
    "  %%v = stablehlo.get_tuple_element %%u[0] : "
    "(tuple<tensor<65536x12xf32>>) -> tensor<65536x12xf32>\n"
    "  return %%a, %%v, %%y : tensor<2048x12xf32>, tensor<65536x12xf32>, "
    "tensor<4096x4096xbf16>\n}\n}\n";

// A lookup and an SGD update of one table.
static const char *program(void) {
  static char text[1 << 13];
  snprintf(text, sizeof text, g_program, "", "",
           ", \\22num_slot_variables\\22: 0, \\22num_hyperparameters\\22: 1",
           ", called_computations = [@\"sgd-t\"]");
  return text;
}

// Its estimate on a v5p.
static at_estimate *with(at_arena *a, const char *lookups) {
  at_estimate_options o = {.target = "v5p",
                           .mode = AT_INTERP_ATOLL,
                           .lookups = lookups ? spec(a, lookups) : NULL};
  at_estimate *e;
  at_bytes bytes = {(const uint8_t *)program(), strlen(program())};
  at_status st = at_estimate_run(bytes, &o, a, &e);
  if (st.err) fail_msg("%s", at_status_message(st));
  return e;
}

// Does any advice say so?
static bool advises(const at_estimate *e, const char *what) {
  for (uint32_t i = 0; i < e->num_advice; i++)
    if (strstr(e->advice[i], what)) return true;
  return false;
}

// Table, kind and counts of both calls.
static void programs_show_their_lookups(void **state) {
  (void)state;
  at_arena *a = at_arena_create();
  at_estimate *e = with(a, NULL);
  assert_int_equal(e->num_embeddings, 2);
  const at_estimate_embedding *x = e->embeddings;
  assert_string_equal(x[0].table, "t");
  assert_true(!x[0].update && x[1].update && x[1].slots == 0);
  // Limits: four partitions of 2,048 ids, 1,024 different ones, per SparseCore.
  assert_true(x[0].ids == 4 * 4 * 2048 && x[0].unique == 4 * 4 * 1024);
  assert_true(x[0].width == 12 && x[0].padded_width == 16);
  assert_true(advises(e, "25% of it padding"));
  // They run beside the product, one after the other.
  double calls = x[0].seconds + x[1].seconds;
  assert_true(fabs(e->sparse / calls - 1) < 1e-9);
  assert_true(e->sparse_exposed < e->sparse && e->seconds < e->kernels + calls);
  assert_true(e->seconds >= calls && e->seconds >= e->kernels);
  at_arena_destroy(a);
}

// One model for the estimate and the scheduler.
static void the_scheduler_agrees(void **state) {
  (void)state;
  at_arena *a = at_arena_create();
  const at_estimate *e = with(a, NULL);
  at_target *t;
  at_module *m;
  at_overlap found;
  at_bytes bytes = {(const uint8_t *)program(), strlen(program())};
  assert_int_equal(
      at_code_take(at_target_parse(AT_STR("v5p"), AT_INTERP_ATOLL, a, &t)), 0);
  at_status st = at_estimate_module(bytes, t, a, &m);
  if (st.err) fail_msg("%s", at_status_message(st));
  at_lhs_options o = at_overlap_options(t);
  assert_int_equal(at_code_take(at_overlap_of(m, t, &o, a, &found)), 0);
  assert_true(fabs(found.after.seconds / e->seconds - 1) < 1e-9);
  assert_true(found.after.seconds < found.before.seconds);
  at_arena_destroy(a);
}

// Fewer ids, or fewer different ones, take less time.
static void distributions_count(void **state) {
  (void)state;
  at_arena *a = at_arena_create();
  const at_estimate *limits = with(a, NULL), *few = with(a, "1"),
                    *hot = with(a, "8,zipf=1.2"), *even = with(a, "8"),
                    *seen = with(a,
                                 "{\"t\": {\"ids_per_sample\": 8, "
                                 "\"unique\": 0.25, \"shared\": 0.5}}"),
                    *over = with(a, "40");
  assert_true(few->sparse < limits->sparse);
  assert_true(hot->sparse < even->sparse);
  assert_true(hot->embeddings[1].touched < hot->embeddings[1].unique);
  assert_true(seen->embeddings[1].ids == 8 * 2048 &&
              seen->embeddings[1].unique == 2 * 2048 &&
              seen->embeddings[1].touched == 2048);
  assert_true(advises(few, "LimitsEstimator"));
  assert_true(advises(over, "over its limits"));
  assert_false(advises(limits, "LimitsEstimator"));
  at_arena_destroy(a);
}

// In text, JSON, the trace and the page.
static void reports_have_embeddings(void **state) {
  (void)state;
  at_arena *a = at_arena_create();
  at_estimate *e = with(a, "8");
  at_strbuf text = {0}, json = {0}, trace = {0}, page = {0};
  at_estimate_text(e, 0, &text);
  assert_non_null(strstr(at_strbuf_str(&text).ptr, "lookup t ("));
  assert_non_null(strstr(at_strbuf_str(&text).ptr, "exchange rows"));
  at_estimate_json(e, &json);
  at_estimate_trace(e, &trace);
  const at_json *o;
  at_bytes bytes = {(const uint8_t *)json.ptr, json.len};
  assert_int_equal(at_code_take(at_json_parse(bytes, a, &o)), 0);
  const at_json *list = at_json_get(o, "embeddings");
  assert_int_equal(list->len, 2);
  assert_true(at_json_get_num(&list->items[0], "ids", 0) == 8 * 2048);
  assert_true(at_json_get(&list->items[1], "stages")->len > 5);
  bytes = (at_bytes){(const uint8_t *)trace.ptr, trace.len};
  assert_int_equal(at_code_take(at_json_parse(bytes, a, &o)), 0);
  assert_non_null(strstr(at_strbuf_str(&trace).ptr, "SparseCores"));
  assert_non_null(strstr(at_strbuf_str(&trace).ptr, "sum gradients"));
  at_estimate_html(e, NULL, &page);
  assert_true(at_ok(at_strbuf_status(&page)));
  assert_non_null(strstr(at_strbuf_str(&page).ptr, "add up samples"));
  at_strbuf_free(&text);
  at_strbuf_free(&json);
  at_strbuf_free(&trace);
  at_strbuf_free(&page);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(distinct_rows_are_those_of_the_sum),
      cmocka_unit_test(specs_are_read),
      cmocka_unit_test(kernels_take_what_the_compiler_says),
      cmocka_unit_test(lookups_move_what_they_must),
      cmocka_unit_test(updates_move_table_and_slots),
      cmocka_unit_test(programs_show_their_lookups),
      cmocka_unit_test(the_scheduler_agrees),
      cmocka_unit_test(distributions_count),
      cmocka_unit_test(reports_have_embeddings),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
