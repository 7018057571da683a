// Times on TPUs: programs whose cycles the TPU compiler said, and one model for
// the estimate and the scheduler.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/json.h"
#include "cost/tpu.h"
#include "estimate/estimate_test_util.h"
#include "schedule/overlap.h"

// Fails the test where the name is no target.
static at_target *target_of(at_arena *a, const char *name) {
  at_target *t;
  assert_int_equal(
      at_code_take(at_target_parse(at_str_of(name), AT_INTERP_ATOLL, a, &t)),
      0);
  return t;
}

// ---- Rows of data/tpu/time_rows.jsonl, written by tools/time_rows.py

// The caller closes it.
static FILE *open_rows(void) {
  char path[4096];
  const char *root = getenv("AT_SOURCE_DIR");
  snprintf(path, sizeof path, "%s/data/tpu/time_rows.jsonl", root ? root : ".");
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  return f;
}

// One line; NULL at the end.
static const at_json *next_row(FILE *f, at_arena *a) {
  static char line[1 << 18];
  const at_json *row;
  if (!fgets(line, sizeof line, f)) return NULL;
  at_bytes text = {(const uint8_t *)line, strlen(line)};
  assert_int_equal(at_code_take(at_json_parse(text, a, &row)), 0);
  return row;
}

// What the compiler and the estimate say of a chip's programs, in cycles.
typedef struct chip_row {
  const char *name;
  double median, p90, rank;  // of the programs left out, at most and at least
  double given[512], got[512];
  size_t count;
} chip_row;

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// How many of `x` are less than its element i.
static double rank_of(const double *x, size_t n, size_t i) {
  double less = 0;
  for (size_t k = 0; k < n; k++)
    less += x[k] < x[i] ? 1 : x[k] == x[i] && k != i ? .5 : 0;
  return less;
}

// Spearman's, of ranks that are shared where figures are equal.
static double rank_correlation(const chip_row *c) {
  double mean = (double)(c->count - 1) / 2, xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < c->count; i++) {
    double x = rank_of(c->given, c->count, i) - mean;
    double y = rank_of(c->got, c->count, i) - mean;
    xy += x * y, xx += x * x, yy += y * y;
  }
  return xy / sqrt(xx * yy);
}

// Adds a program, if the compiler told all of its ops.
static void judge(chip_row *c, const at_json *row) {
  const at_json *unknown = at_json_get(row, "unknown");
  double given = at_json_get_num(row, "sum", 0);
  // Of some ops the compiler does not say what they take.
  if ((unknown && unknown->len) || given < 1000) return;
  at_arena *a = at_arena_create();
  at_str program = at_json_get_str(row, "program", AT_STR(""));
  at_estimate *e = estimate(a, c->name, at_arena_str(a, program));
  assert_true(c->count < AT_LEN(c->given));
  c->given[c->count] = given;
  c->got[c->count++] = e->kernels * target_of(a, c->name)->tpu->clock;
  at_arena_destroy(a);
}

// Even seeds from here on judge, odd ones were learnt from.
enum { kLeftOut = 14 };
static bool is_left_out(const at_json *row) {
  int seed = (int)at_json_get_num(row, "seed", 0);
  return seed >= kLeftOut && seed % 2 == 0;
}

// Bounds on the relative error, and on the order of programs by time.
static void check(const chip_row *c) {
  double errors[512];
  for (size_t i = 0; i < c->count; i++)
    errors[i] = fabs(c->got[i] / c->given[i] - 1);
  assert_true(c->count >= 25);
  qsort(errors, c->count, sizeof *errors, ascending);
  double median = errors[c->count / 2], p90 = errors[c->count * 9 / 10];
  double rank = rank_correlation(c);
  if (median > c->median || p90 > c->p90 || rank < c->rank)
    fail_msg("%s: median %g, p90 %g, rank %g", c->name, median, p90, rank);
}

// No row that is judged was fitted to.
static void programs_left_out_take_what_the_compiler_says(void **state) {
  static chip_row chips[] = {
      {.name = "v5e", .median = .04, .p90 = .20, .rank = .985},
      {.name = "v6e", .median = .08, .p90 = .30, .rank = .98},
      {.name = "v5p", .median = .08, .p90 = .30, .rank = .98}};
  FILE *f = open_rows();
  for (bool more = true; more;) {
    at_arena *a = at_arena_create();
    const at_json *row = next_row(f, a);
    more = row != NULL;
    for (size_t i = 0; row && i < AT_LEN(chips); i++)
      if (is_left_out(row) &&
          at_str_is(at_json_get_str(row, "chip", AT_STR("")), chips[i].name))
        judge(&chips[i], row);
    at_arena_destroy(a);
  }
  fclose(f);
  for (size_t i = 0; i < AT_LEN(chips); i++) check(&chips[i]);
}

// Training steps whose layers are a loop put what the way back needs into
// arrays, in the kernels that compute it. The compiler leaves out a few puts of
// single rows, so that these are judged apart: within 15% each.
static void steps_with_loops_save_as_they_compute(void **state) {
  FILE *f = open_rows();
  size_t count = 0;
  for (bool more = true; more;) {
    at_arena *a = at_arena_create();
    const at_json *row = next_row(f, a);
    more = row != NULL;
    if (row && is_left_out(row) &&
        at_str_is(at_json_get_str(row, "class", AT_STR("")), "train_scan")) {
      const char *chip =
          at_arena_str(a, at_json_get_str(row, "chip", AT_STR("")));
      at_str program = at_json_get_str(row, "program", AT_STR(""));
      at_estimate *e = estimate(a, chip, at_arena_str(a, program));
      double given = at_json_get_num(row, "sum", 0);
      double got = e->kernels * target_of(a, chip)->tpu->clock;
      count++;
      if (fabs(got / given - 1) > .15)
        fail_msg("%s: %g cycles for %g", chip, got, given);
    }
    at_arena_destroy(a);
  }
  fclose(f);
  assert_true(count >= 9);
}

// ---- What the compiler makes of some programs

// The first op whose name begins so; NULL: none.
static const at_estimate_op *op_named(const at_estimate *e, const char *start) {
  for (uint32_t i = 0; i < e->num_ops; i++)
    if (!strncmp(e->ops[i].name, start, strlen(start))) return &e->ops[i];
  return NULL;
}

#define W "tensor<12x512x512x%s>"
#define C "tensor<128x512x%s>"
// scan(lambda c, w: (tanh(c @ w), None), x, weights)
static const char *scan(at_arena *a, const char *t) {
  return at_arena_printf(
      a,
      "func.func public @main(%%x: " C ", %%w: " W ") -> " C
      " {\n"
      "%%z = stablehlo.constant dense<0> : tensor<i32>\n"
      "%%n = stablehlo.constant dense<12> : tensor<i32>\n"
      "%%one = stablehlo.constant dense<1> : tensor<i32>\n"
      "%%r:2 = stablehlo.while(%%k = %%z, %%h = %%x) : tensor<i32>, " C
      "\ncond {\n%%c = stablehlo.compare LT, %%k, %%n : (tensor<i32>, "
      "tensor<i32>) -> tensor<i1>\nstablehlo.return %%c : tensor<i1>\n} do {\n"
      "%%s = stablehlo.dynamic_slice %%w, %%k, %%z, %%z, sizes = [1, 512, 512]"
      " : (" W
      ", tensor<i32>, tensor<i32>, tensor<i32>) -> "
      "tensor<1x512x512x%s>\n"
      "%%m = stablehlo.reshape %%s : (tensor<1x512x512x%s>) -> "
      "tensor<512x512x%s>\n"
      "%%y = stablehlo.dot_general %%h, %%m, contracting_dims = [1] x [0] : (" C
      ", tensor<512x512x%s>) -> " C "\n%%t = stablehlo.tanh %%y : " C
      "\n%%j = stablehlo.add %%k, %%one : tensor<i32>\n"
      "stablehlo.return %%j, %%t : tensor<i32>, " C "\n}\nreturn %%r#1 : " C
      "\n}\n",
      t, t, t, t, t, t, t, t, t, t, t, t, t, t);
}

// f32 weights are converted once; the products then read bf16 in VMEM. bf16
// weights stay in HBM, and so the state is copied in each turn.
static void loops_convert_their_weights(void **state) {
  at_arena *a = at_arena_create();
  at_estimate *wide = estimate(a, "v5e", scan(a, "f32"));
  at_estimate *narrow = estimate(a, "v5e", scan(a, "bf16"));
  const at_estimate_op *convert = op_named(wide, "convert for while");
  assert_non_null(convert);
  assert_true(convert->count == 1 && convert->hbm_bytes == 12. * 512 * 512 * 4);
  assert_true(op_named(wide, "dot_general")->hbm_bytes == 0);
  assert_null(op_named(wide, "copy"));
  assert_null(op_named(narrow, "convert"));
  assert_true(op_named(narrow, "dot_general")->hbm_bytes == 512 * 512 * 2);
  assert_true(op_named(narrow, "copy for dot_general")->count == 12);
  at_arena_destroy(a);
}

// Two results that read the same arrays are one kernel.
static void siblings_are_one_kernel(void **state) {
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(
      a, "v5e",
      "func.func public @main(%m: tensor<512x1000xf32>, %g: "
      "tensor<512x1000xf32>) -> (tensor<512x1000xf32>, tensor<512x1000xf32>) "
      "{\n"
      "%0 = stablehlo.add %m, %g : tensor<512x1000xf32>\n"
      "%1 = stablehlo.multiply %m, %g : tensor<512x1000xf32>\n"
      "%2 = stablehlo.sign %1 : tensor<512x1000xf32>\n"
      "return %0, %2 : tensor<512x1000xf32>, tensor<512x1000xf32>\n}\n");
  assert_int_equal(e->num_ops, 1);
  at_arena_destroy(a);
}

// A softmax of a matrix is three kernels, one whose rows lie in tiles is one.
static void softmaxes_hold_rows_of_three_dimensions(void **state) {
#define SOFTMAX(x, y, axis)                                                 \
  "func.func public @main(%x: tensor<" x "xf32>) -> tensor<" x              \
  "xf32> {\n"                                                               \
  "%i = stablehlo.constant dense<0xFF800000> : tensor<f32>\n"               \
  "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"                      \
  "%m = stablehlo.reduce(%x init: %i) applies stablehlo.maximum across "    \
  "dimensions = [" axis "] : (tensor<" x "xf32>, tensor<f32>) -> tensor<" y \
  "xf32>\n"                                                                 \
  "%b = stablehlo.broadcast_in_dim %m, dims = [" OUTER "] : (tensor<" y     \
  "xf32>) -> tensor<" x                                                     \
  "xf32>\n"                                                                 \
  "%d = stablehlo.subtract %x, %b : tensor<" x                              \
  "xf32>\n"                                                                 \
  "%e = stablehlo.exponential %d : tensor<" x                               \
  "xf32>\n"                                                                 \
  "%s = stablehlo.reduce(%e init: %z) applies stablehlo.add across "        \
  "dimensions = [" axis "] : (tensor<" x "xf32>, tensor<f32>) -> tensor<" y \
  "xf32>\n"                                                                 \
  "%c = stablehlo.broadcast_in_dim %s, dims = [" OUTER "] : (tensor<" y     \
  "xf32>) -> tensor<" x                                                     \
  "xf32>\n"                                                                 \
  "%r = stablehlo.divide %e, %c : tensor<" x                                \
  "xf32>\n"                                                                 \
  "return %r : tensor<" x "xf32>\n}\n"
  at_arena *a = at_arena_create();
#define OUTER "0"
  assert_int_equal(
      estimate(a, "v5e", SOFTMAX("2048x1024", "2048", "1"))->num_ops, 3);
#undef OUTER
#define OUTER "0, 1"
  assert_int_equal(
      estimate(a, "v5e", SOFTMAX("8x512x512", "8x512", "2"))->num_ops, 1);
#undef OUTER
#undef SOFTMAX
  at_arena_destroy(a);
}

// Rows of 56 pixels fill the sublanes and are read from HBM as they are; of 28,
// the batch does, and the image is brought into VMEM before the kernel.
static void images_are_turned_on_the_way(void **state) {
#define CONV(side, half)                                                      \
  "func.func public @main(%x: tensor<8x" side "x" side                        \
  "x128xbf16>, %w: tensor<1x1x128x128xbf16>) -> tensor<8x" half "x" half      \
  "x128xbf16> {\n%0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, " \
  "f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[0, 0], " \
  "[0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "  \
  "(tensor<8x" side "x" side                                                  \
  "x128xbf16>, tensor<1x1x128x128xbf16>) -> tensor<8x" half "x" half          \
  "x128xbf16>\nreturn %0 : tensor<8x" half "x" half "x128xbf16>\n}\n"
  at_arena *a = at_arena_create();
  const at_estimate_op *o =
      op_named(estimate(a, "v5e", CONV("56", "28")), "convolution");
  assert_true(o->hbm_bytes > 2. * 8 * 56 * 56 * 128);
  o = op_named(estimate(a, "v5e", CONV("28", "14")), "convolution");
  assert_true(o->hbm_bytes < 2. * 8 * 28 * 28 * 128);
#undef CONV
  at_arena_destroy(a);
}

// Where rows begin, of 64-bit indices: 256 do not fill a vector.
static void random_numbers_count_their_rows(void **state) {
#define COUNT(rows)                                                         \
  "func.func public @main() -> tensor<" rows                                \
  "x256xui32> {\n"                                                          \
  "%0 = stablehlo.iota dim = 0 : tensor<" rows                              \
  "x256xui64>\n"                                                            \
  "%1 = stablehlo.iota dim = 1 : tensor<" rows                              \
  "x256xui64>\n"                                                            \
  "%c = stablehlo.constant dense<256> : tensor<" rows                       \
  "x256xui64>\n"                                                            \
  "%2 = stablehlo.multiply %c, %0 : tensor<" rows                           \
  "x256xui64>\n"                                                            \
  "%3 = stablehlo.add %2, %1 : tensor<" rows                                \
  "x256xui64>\n"                                                            \
  "%4 = stablehlo.convert %3 : (tensor<" rows "x256xui64>) -> tensor<" rows \
  "x256xui32>\nreturn %4 : tensor<" rows "x256xui32>\n}\n"
  at_arena *a = at_arena_create();
  assert_non_null(op_named(estimate(a, "v5e", COUNT("256")), "row starts"));
  assert_null(op_named(estimate(a, "v5e", COUNT("1024")), "row starts"));
#undef COUNT
  at_arena_destroy(a);
}

// ---- One model

// Both orders of the scheduler take what the estimate says, to the cycle.
static void agree(const char *target, const char *text) {
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(a, target, text);
  at_target *t = target_of(a, target);
  at_bytes program = {(const uint8_t *)text, strlen(text)};
  at_module *m;
  at_overlap o;
  assert_int_equal(at_code_take(at_estimate_module(program, t, a, &m)), 0);
  at_lhs_options options = at_overlap_options(t);
  assert_int_equal(at_code_take(at_overlap_of(m, t, &options, a, &o)), 0);
  double serial = e->kernels + e->prefetch + e->network;
  double cycle = 1 / t->tpu->clock;
  assert_true(e->seconds > 0 && e->seconds <= serial + cycle);
  if (!(fabs(o.after.seconds - e->seconds) < cycle) ||
      !(fabs(o.before.seconds - serial) < cycle))
    fail_msg("%s: estimate %g and %g, scheduler %g and %g", target, serial,
             e->seconds, o.before.seconds, o.after.seconds);
  at_arena_destroy(a);
}

// One program of each class on each chip.
static void scheduler_and_estimate_agree(void **state) {
  static const char *const classes[] = {
      "loop",    "layers_scan", "train_mlp",     "conv",  "depthwise",
      "softmax", "attention",   "pixel_shuffle", "adamw", "threefry"};
  bool seen[3][AT_LEN(classes)] = {0};
  static const char *const chips[] = {"v5e", "v6e", "v5p"};
  FILE *f = open_rows();
  size_t judged = 0;
  for (bool more = true; more;) {
    at_arena *a = at_arena_create();
    const at_json *row = next_row(f, a);
    more = row != NULL;
    for (size_t c = 0; row && c < AT_LEN(chips); c++)
      for (size_t i = 0; i < AT_LEN(classes); i++) {
        if (seen[c][i] ||
            !at_str_is(at_json_get_str(row, "chip", AT_STR("")), chips[c]) ||
            !at_str_is(at_json_get_str(row, "class", AT_STR("")), classes[i]))
          continue;
        at_str text = at_json_get_str(row, "program", AT_STR(""));
        seen[c][i] = true;
        agree(chips[c], at_arena_str(a, text));
        judged++;
      }
    at_arena_destroy(a);
  }
  fclose(f);
  assert_int_equal(judged, AT_LEN(chips) * AT_LEN(classes));
}

#define T "tensor<1024x1024xbf16>"
#define SUM(of, to)                                                        \
  to " = \"stablehlo.all_reduce\"(" of                                     \
     ") ({\n^bb0(%p: tensor<bf16>, %q: "                                   \
     "tensor<bf16>):\n%s = stablehlo.add %p, %q : tensor<bf16>\n"          \
     "stablehlo.return %s : tensor<bf16>\n}) {replica_groups = dense<[[0," \
     " 1, 2, 3]]> : tensor<1x4xi64>} : (" T ") -> " T "\n"
#define DOT(to, x, y)                     \
  to " = stablehlo.dot_general " x ", " y \
     ", contracting_dims = [1] x [0]"     \
     " : (" T ", " T ") -> " T "\n"

// A sum that another product can hide, and one in each turn of a loop.
static void with_collectives_too(void **state) {
  static const char *const program =
      "module @m attributes {mhlo.num_replicas = 4 : i32} {\n"
      "func.func public @main(%x: " T ", %w: " T ") -> (" T ", " T ", " T
      ") {\n" DOT("%0", "%x", "%w") SUM("%0", "%1") DOT("%2", "%w", "%x")
      "%i = stablehlo.constant dense<0> : tensor<i32>\n"
      "%n = stablehlo.constant dense<12> : tensor<i32>\n"
      "%one = stablehlo.constant dense<1> : tensor<i32>\n"
      "%r:3 = stablehlo.while(%k = %i, %h = %1, %g = %2) : tensor<i32>, " T
      ", " T "\ncond {\n%c = stablehlo.compare LT, %k, %n : (tensor<i32>, "
      "tensor<i32>) -> tensor<i1>\nstablehlo.return %c : tensor<i1>\n} do {\n"
      DOT("%y", "%h", "%w") SUM("%y", "%z") DOT("%u", "%w", "%g")
      "%j = stablehlo.add %k, %one : tensor<i32>\n"
      "stablehlo.return %j, %z, %u : tensor<i32>, " T ", " T "\n}\n"
      "return %r#1, %r#2, %2 : " T ", " T ", " T "\n}\n}\n";
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(a, "v5e:2x2", program);
  assert_true(e->network > 0 && e->exposed < e->network);
  at_arena_destroy(a);
  agree("v5e:2x2", program);
  agree("v6e:2x2", program);
  agree("v5p:2x2x1", program);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(programs_left_out_take_what_the_compiler_says),
      cmocka_unit_test(steps_with_loops_save_as_they_compute),
      cmocka_unit_test(loops_convert_their_weights),
      cmocka_unit_test(siblings_are_one_kernel),
      cmocka_unit_test(softmaxes_hold_rows_of_three_dimensions),
      cmocka_unit_test(images_are_turned_on_the_way),
      cmocka_unit_test(random_numbers_count_their_rows),
      cmocka_unit_test(scheduler_and_estimate_agree),
      cmocka_unit_test(with_collectives_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
