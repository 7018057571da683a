// The model of TPU kernels: the same in C and in tools/fit_tpu.py, close to
// what the compiler says, monotone, and silent on machines that it does not
// know.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cost/tpu.h"

// A file of the repository, in static memory.
static at_bytes read_file(const char *name) {
  char path[4096];
  const char *root = getenv("AT_SOURCE_DIR");
  snprintf(path, sizeof path, "%s/%s", root ? root : ".", name);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  static char text[1 << 20];
  size_t n = fread(text, 1, sizeof text, f);
  fclose(f);
  assert_true(n < sizeof text);
  return (at_bytes){(const uint8_t *)text, n};
}

// The figures of a TPU.
static at_tpu_chip chip_named(at_str name) {
  const at_machine *m;
  at_tpu_chip c;
  assert_int_equal(at_code_take(at_machine_find(name, &m)), 0);
  assert_int_equal(at_code_take(at_tpu_chip_of(m, &c)), 0);
  return c;
}

// A kernel by the names of its fields.
static at_tpu_kernel kernel_of(const at_json *row) {
  static const char *const kinds[] = {"loop", "copy", "reduce", "matmul",
                                      "conv"};
  at_tpu_kernel k = {0};
  at_str kind = at_json_get_str(row, "kind", AT_STR(""));
  for (uint32_t i = 0; i < AT_LEN(kinds); i++)
    if (at_str_is(kind, kinds[i])) k.kind = (at_tpu_kind)i;
#define FIELD(name) k.name = at_json_get_num(row, #name, NAN);
  FIELD(steps)
  FIELD(out_windows)
  FIELD(hbm_in)
  FIELD(hbm_out)
  FIELD(vmem_in)
  FIELD(tiles)
  FIELD(narrow_tiles)
  FIELD(in_tiles)
  FIELD(out_tiles)
  FIELD(hbm_out_narrow)
  FIELD(vmem_out_narrow)
  FIELD(ops)
  FIELD(reduces)
  FIELD(rows)
  FIELD(cols)
  FIELD(depth)
  FIELD(batch)
  FIELD(operand_bytes)
  FIELD(repeat)
#undef FIELD
  return k;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Equal to the script but for rounding; half within 5 % of the compiler, nine
// tenths within 30 %.
static void agrees_with_the_script_and_the_compiler(void **state) {
  at_arena *a = at_arena_create();
  const at_json *rows;
  at_bytes text = read_file("data/tpu/kernel_vectors.json");
  assert_int_equal(at_code_take(at_json_parse(text, a, &rows)), 0);
  assert_true(rows->len > 100);
  double errors[512];
  size_t judged = 0;
  for (size_t i = 0; i < rows->len; i++) {
    const at_json *row = &rows->items[i];
    at_tpu_chip c = chip_named(at_json_get_str(row, "chip", AT_STR("")));
    at_tpu_kernel k = kernel_of(row);
    double got = at_tpu_kernel_cycles(&k, &c).total;
    double want = at_json_get_num(row, "cycles", NAN);
    assert_true(fabs(got - want) <= 1e-6 * want + 1e-6);
    double given = at_json_get_num(row, "given", NAN);
    if (given >= 1000 && judged < AT_LEN(errors))
      errors[judged++] = fabs(got / given - 1);
  }
  qsort(errors, judged, sizeof *errors, ascending);
  assert_true(errors[judged / 2] <= .05);
  assert_true(errors[judged * 9 / 10] <= .30);
  at_arena_destroy(a);
}

// A bf16 product with everything in HBM.
static at_tpu_kernel matmul(double m, double k, double n) {
  return (at_tpu_kernel){.kind = AT_TPU_MATMUL,
                         .rows = m,
                         .cols = n,
                         .depth = k,
                         .batch = 1,
                         .operand_bytes = 2,
                         .repeat = 1,
                         .hbm_in = 2 * (m * k + k * n),
                         .hbm_out = 2 * m * n,
                         .hbm_out_narrow = m * n / 1024,
                         .out_tiles = m * n / 1024,
                         .tiles = fmax(m, n) * k / 1024};
}

// Larger kernels take longer, no less than the units or HBM need, and large
// products little more.
static void grows_with_work(void **state) {
  static const char *const names[] = {"v4", "v5e", "v5p", "v6e", "7x"};
  for (size_t i = 0; i < AT_LEN(names); i++) {
    at_tpu_chip c = chip_named(at_str_of(names[i]));
    double before = 0;
    for (double size = 256; size <= 16384; size *= 2) {
      at_tpu_kernel k = matmul(size, size, size);
      at_tpu_kernel_grid(&k, &c, true);
      double now = at_tpu_kernel_cycles(&k, &c).total;
      assert_true(now > before);
      double ideal = size * size * size / (c.arrays * c.array * c.array);
      assert_true(now >= ideal);
      if (size >= 4096) assert_true(now < 1.3 * ideal);
      before = now;
    }
    before = 0;
    for (double tiles = 1; tiles < 1e7; tiles *= 2) {
      at_tpu_kernel k = {.kind = AT_TPU_LOOP,
                         .tiles = tiles,
                         .hbm_in = tiles * 4096,
                         .hbm_out = tiles * 4096,
                         .out_tiles = tiles,
                         .ops = 3};
      at_tpu_kernel_grid(&k, &c, true);
      double now = at_tpu_kernel_cycles(&k, &c).total;
      assert_true(now > before && now >= tiles * 8192 / c.hbm_rate);
      before = now;
    }
  }
}

// Tiles of 8 x 128, by hand.
static void tiles_pad(void **state) {
#define TILES(...)                                       \
  at_tpu_tiles((at_dims){(const int64_t[]){__VA_ARGS__}, \
                         AT_LEN(((const int64_t[]){__VA_ARGS__}))})
  assert_true(at_tpu_tiles((at_dims){NULL, 0}) == 0);
  assert_true(TILES(8192) == 8);
  assert_true(TILES(1) == 1);
  assert_true(TILES(8, 128) == 1);
  assert_true(TILES(9, 129) == 4);
  assert_true(TILES(2048, 10) == 32);  // ten rows of lanes, not ten lanes
  assert_true(TILES(0, 128) == 0);
  assert_true(TILES(4, 1000, 1000) == 4 * 125 * 8);
  assert_true(at_tpu_tile_bytes(AT_BF16) == 2048);
}

// By hand: the dimension that lies along the lanes, and the tiles.
static void compact_layouts_pad_least(void **state) {
#define COMPACT(lanes, ...)                                                 \
  at_tpu_compact_tiles((at_dims){(const int64_t[]){__VA_ARGS__},            \
                                 AT_LEN(((const int64_t[]){__VA_ARGS__}))}, \
                       lanes)
  uint32_t lanes = 9;
  assert_true(COMPACT(&lanes, 2048, 512) == 1024 && lanes == 1);
  assert_true(COMPACT(&lanes, 512, 1000) == 500 && lanes == 0);
  assert_true(COMPACT(&lanes, 128, 4, 16, 16) == 128 && lanes == 0);
  assert_true(COMPACT(&lanes, 64, 128, 4, 128) == 4096 && lanes == 3);
  assert_true(COMPACT(NULL, 3, 128) == .5);  // tiles of four sublanes
  assert_true(COMPACT(NULL, 1, 128) == .125);
  assert_true(COMPACT(&lanes, 4096) == 4 && lanes == 0);
  assert_true(COMPACT(NULL, 0, 128) == 0);
  assert_true(at_tpu_compact_tiles((at_dims){NULL, 0}, &lanes) == 0);
}

// What is rewritten or passed over again costs more, in proportion.
static void relaid_tiles_cost_more(void **state) {
  at_tpu_chip c = chip_named(AT_STR("v5e"));
  at_tpu_kernel k = {.kind = AT_TPU_COPY,
                     .tiles = 1024,
                     .out_tiles = 1024,
                     .steps = 1,
                     .hbm_in = 1024 * 4096,
                     .hbm_out = 1024 * 4096};
  double plain = at_tpu_kernel_cycles(&k, &c).total;
  k.relaid = 1024;
  double once = at_tpu_kernel_cycles(&k, &c).total - plain;
  k.relaid = 2048;
  double twice = at_tpu_kernel_cycles(&k, &c).total - plain;
  assert_true(once > 5 * 1024 && fabs(twice - 2 * once) < 1e-6 * once);
}

// Kernels as libtpu 0.0.52 estimates them; none of them was fitted to.
typedef struct sample {
  const char *chip;
  at_tpu_kind kind;
  bool fused, narrow, vmem;  // its operands are in VMEM
  double tiles, operands, results, ops;
  double cycles;
} sample;

static const sample kSamples[] = {
    {"v5e", AT_TPU_LOOP, false, false, false, 1024, 2, 1, .5, 40208},
    {"v5e", AT_TPU_LOOP, true, false, false, 1024, 2, 1, 4, 30498},
    {"v5e", AT_TPU_LOOP, true, false, false, 1024, 2, 1, 64, 41540},
    {"v5e", AT_TPU_LOOP, true, true, false, 1024, 2, 1, 8, 27514},
    {"v6e", AT_TPU_LOOP, false, false, false, 1024, 2, 1, .5, 16327},
    {"v6e", AT_TPU_LOOP, true, false, false, 1024, 2, 1, 16, 22026},
    {"v6e", AT_TPU_LOOP, true, false, false, 4096, 2, 1, 4, 64796},
    {"v5p", AT_TPU_LOOP, false, false, false, 1024, 2, 1, .5, 11868},
    {"v5p", AT_TPU_LOOP, true, false, false, 1024, 2, 1, 16, 15776},
    {"v5p", AT_TPU_LOOP, true, true, false, 1024, 2, 1, 8, 12483},
    {"v5e", AT_TPU_REDUCE, false, false, true, 1152, 1, 0, 0, 21294},
    {"v5e", AT_TPU_REDUCE, false, false, true, 4096, 1, 0, 0, 126368},
    {"v5e", AT_TPU_REDUCE, true, true, false, 3072, 1, 0, 1, 45107},
    {"v6e", AT_TPU_REDUCE, true, false, false, 2304, 1, 0, 2, 25160},
    {"v6e", AT_TPU_REDUCE, false, false, true, 4096, 1, 0, 0, 87712},
    {"v6e", AT_TPU_REDUCE, true, false, false, 2048, 1, 0, 2, 22600},
    {"v5p", AT_TPU_REDUCE, false, false, true, 2304, 1, 0, 0, 16456},
    {"v5p", AT_TPU_REDUCE, true, false, false, 3072, 1, 0, 2, 23928},
};

// Within 6 %.
static void streams_take_what_the_compiler_says(void **state) {
  for (size_t i = 0; i < AT_LEN(kSamples); i++) {
    const sample *s = &kSamples[i];
    at_tpu_chip c = chip_named(at_str_of(s->chip));
    double bytes = s->tiles * (s->narrow ? 2048 : 4096);
    at_tpu_kernel k = {.kind = s->kind,
                       .tiles = s->tiles,
                       .in_tiles = s->operands * s->tiles,
                       .out_tiles = s->results * s->tiles,
                       .ops = s->ops,
                       .reduces = s->kind == AT_TPU_REDUCE,
                       .hbm_out = s->results * bytes};
    *(s->vmem ? &k.vmem_in : &k.hbm_in) = s->operands * bytes;
    if (s->narrow) k.narrow_tiles = s->tiles, k.hbm_out_narrow = k.out_tiles;
    at_tpu_kernel_grid(&k, &c, s->fused);
    double got = at_tpu_kernel_cycles(&k, &c).total;
    assert_true(fabs(got / s->cycles - 1) <= .06);
  }
}

// bf16 products as libtpu 0.0.52 estimates them; none of them was fitted to.
typedef struct product {
  const char *chip;
  double rows, depth, cols;
  double lhs, rhs;         // arrays in HBM that each operand is made of
  double others, results;  // of the result's size, read beside it and written
  double cycles;
} product;

static const product kProducts[] = {
    {"v6e", 8192, 8192, 2048, 1, 0, 0, 1, 606428},
    {"v6e", 8192, 8192, 2048, 2, 0, 0, 1, 667018},
    {"v6e", 8192, 8192, 2048, 2, 1, 0, 1, 942904},
    {"v6e", 8192, 2048, 8192, 0, 1, 0, 1, 615120},
    {"v5e", 8192, 8192, 2048, 1, 0, 0, 1, 2166624},
    {"v5e", 8192, 8192, 2048, 2, 0, 0, 1, 2177712},
    {"v5e", 8192, 2048, 8192, 0, 1, 1, 1, 2152721},
    {"v5e", 8192, 2048, 8192, 0, 1, 2, 2, 2253168},
};

static at_tpu_kernel kernel_of_product(const product *p) {
  double result = p->results * p->rows * p->cols;
  at_tpu_kernel k = matmul(p->rows, p->depth, p->cols);
  k.lhs_in = p->lhs * 2 * p->rows * p->depth;
  k.rhs_in = p->rhs * 2 * p->depth * p->cols;
  k.hbm_in = k.lhs_in + k.rhs_in + p->others * 2 * p->rows * p->cols;
  k.hbm_out = 2 * result;
  k.out_tiles = k.hbm_out_narrow = result / 1024;
  return k;
}

// Within 11 %: what an operand is made of and what windows read again takes its
// time.
static void products_move_what_the_compiler_says(void **state) {
  for (size_t i = 0; i < AT_LEN(kProducts); i++) {
    const product *p = &kProducts[i];
    at_tpu_chip c = chip_named(at_str_of(p->chip));
    at_tpu_kernel k = kernel_of_product(p);
    at_tpu_kernel_grid(&k, &c, true);
    double got = at_tpu_kernel_cycles(&k, &c).total;
    if (fabs(got / p->cycles - 1) > .11)
      fail_msg("%zu: %g cycles for %g", i, got, p->cycles);
  }
}

// Only the product's own result is widened: others of its kernel take what
// writing them takes.
static void further_results_are_only_written(void **state) {
  at_tpu_chip c = chip_named(AT_STR("v6e"));
  product p = {"v6e", 8192, 128, 2048, 1, 1, 0, 1, 0};
  at_tpu_kernel one = kernel_of_product(&p);
  p.results = 7;
  at_tpu_kernel seven = kernel_of_product(&p);
  one.steps = one.out_windows = seven.steps = seven.out_windows = 16;
  double more = at_tpu_kernel_cycles(&seven, &c).total -
                at_tpu_kernel_cycles(&one, &c).total;
  double written = (seven.hbm_out - one.hbm_out) / c.hbm_rate;
  assert_true(more > .9 * written && more < 1.1 * written);
}

// Eight products that fill VMEM one by one are eight times one of them, and
// operands that are there are not read again.
static void batches_take_as_long_as_their_products(void **state) {
  at_tpu_chip c = chip_named(AT_STR("v6e"));
  product p = {"v6e", 8192, 8192, 2048, 1, 1, 0, 1, 0};
  at_tpu_kernel one = kernel_of_product(&p), all = one;
  all.batch = 8;
  all.lhs_in *= 8, all.rhs_in *= 8, all.hbm_in *= 8, all.hbm_out *= 8;
  all.out_tiles *= 8, all.hbm_out_narrow *= 8, all.tiles *= 8;
  at_tpu_kernel_grid(&one, &c, true);
  at_tpu_kernel_grid(&all, &c, true);
  double single = at_tpu_kernel_cycles(&one, &c).total;
  assert_true(at_tpu_kernel_cycles(&all, &c).total <= 8 * single);
  assert_true(one.again_in > 0);
  p.lhs = p.rhs = 0;
  at_tpu_kernel near = kernel_of_product(&p);
  at_tpu_kernel_grid(&near, &c, true);
  assert_true(near.again_in == 0);
  assert_true(at_tpu_kernel_cycles(&near, &c).total < single);
}

// A GPU has no TPU figures.
static void other_machines_are_refused(void **state) {
  const at_machine *m;
  at_tpu_chip c;
  assert_int_equal(at_code_take(at_machine_find(AT_STR("H100"), &m)), 0);
  assert_int_equal(at_code_take(at_tpu_chip_of(m, &c)), AT_FAILED_PRECONDITION);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(agrees_with_the_script_and_the_compiler),
      cmocka_unit_test(grows_with_work),
      cmocka_unit_test(tiles_pad),
      cmocka_unit_test(compact_layouts_pad_least),
      cmocka_unit_test(relaid_tiles_cost_more),
      cmocka_unit_test(streams_take_what_the_compiler_says),
      cmocka_unit_test(products_move_what_the_compiler_says),
      cmocka_unit_test(further_results_are_only_written),
      cmocka_unit_test(batches_take_as_long_as_their_products),
      cmocka_unit_test(other_machines_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
