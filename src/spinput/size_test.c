// Sizes against the memory reports of libtpu 0.0.52's ahead-of-time compiler,
// and its refusals word by word.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "spinput/size.h"

// A program of equal tables, and what the compiler's memory report says of it.
typedef struct row {
  const char *target;
  int devices, width, ids, unique, optimizer, batch;  // batch: of all devices
  int tables;
  int64_t stack;  // what the compiler reports
} row;

// slots -1: those of the optimizer.
static at_status size(const row *r, int serialized, at_spinput_size *out) {
  at_spinput_table tables[8];
  at_spinput_table_size sizes[8];
  at_spinput_program p = {.devices = r->devices,
                          .tables = tables,
                          .table_count = (size_t)r->tables,
                          .serialized = serialized};
  AT_TRY(at_spinput_chip_find(at_str_of(r->target), &p.chip));
  for (int i = 0; i < r->tables; i++)
    tables[i] = (at_spinput_table){.name = "t",
                                   .rows = 100000 + 1000 * i,
                                   .width = r->width,
                                   .max_ids = r->ids,
                                   .max_unique = r->unique,
                                   .samples = r->batch / r->devices,
                                   .element_bytes = 4,
                                   .optimizer = r->optimizer,
                                   .slots = -1};
  return at_spinput_size_of(&p, sizes, out);
}

enum {
  LOOKUP = AT_SPINPUT_LOOKUP_ONLY,
  SGD = AT_SPINPUT_SGD,
  ADAGRAD = AT_SPINPUT_ADAGRAD,
  ADAM = AT_SPINPUT_ADAM,
  FTRL = AT_SPINPUT_FTRL,
  LAPROP = AT_SPINPUT_LAPROP,
  MOMENTUM = AT_SPINPUT_ADAGRAD_MOMENTUM,
  F2A = AT_SPINPUT_F2A
};

#define P4 "v5p:2x2x1", 4
#define P8 "v5p:2x2x2", 8
#define E4 "v6e:2x2", 4

// To the byte.
static void stacks_of_width_128_are_exact(void **state) {
  static const row rows[] = {
      {P4, 128, 1024, 1024, LOOKUP, 1024, 1, 67878912},
      {P4, 128, 2048, 2048, LOOKUP, 1024, 1, 135512064},
      {P4, 128, 512, 512, LOOKUP, 1024, 1, 34062336},
      {P4, 128, 256, 256, LOOKUP, 1024, 1, 17154048},
      {P4, 128, 100, 100, LOOKUP, 1024, 1, 7127040},
      {P4, 128, 2048, 1024, LOOKUP, 1024, 1, 68141056},
      {P4, 128, 1024, 2048, LOOKUP, 1024, 1, 67878912},
      {P4, 128, 1024, 512, LOOKUP, 1024, 1, 34193408},
      {P4, 128, 1024, 1024, LOOKUP, 4096, 1, 67878912},
      {E4, 128, 1024, 1024, LOOKUP, 1024, 1, 17072128},
      {E4, 128, 256, 256, LOOKUP, 1024, 1, 4390912},
      {"v6e:2x4", 8, 128, 1024, 1024, LOOKUP, 1024, 1, 33980416},
      {"v6e:1x1", 1, 128, 256, 256, LOOKUP, 1024, 1, 1228800},
      {"7x:2x2x1", 8, 128, 256, 256, LOOKUP, 1024, 1, 8617984},
      {P8, 128, 1024, 1024, LOOKUP, 1024, 1, 135512064},
      {P8, 128, 256, 256, LOOKUP, 1024, 1, 34062336},
      {P4, 128, 1024, 1024, SGD, 1024, 1, 170295296},
      {P4, 128, 256, 256, SGD, 1024, 1, 43286528},
      {P4, 128, 1024, 512, SGD, 1024, 1, 85753856},
      {P4, 128, 2048, 1024, SGD, 1024, 1, 170557440},
      {P4, 128, 1024, 1024, SGD, 4096, 1, 171081728},
      {E4, 128, 1024, 1024, SGD, 1024, 1, 43073536},
      {P4, 128, 1024, 1024, ADAGRAD, 1024, 1, 203636736},
      {P4, 128, 256, 256, ADAGRAD, 1024, 1, 51658752},
      {P4, 128, 1024, 1024, ADAGRAD, 4096, 1, 204423168},
      {E4, 128, 1024, 1024, ADAGRAD, 1024, 1, 51445760},
      {P4, 128, 1024, 1024, ADAM, 1024, 1, 270761984},
      {P4, 128, 256, 256, ADAM, 1024, 1, 68452352},
      {E4, 128, 1024, 1024, ADAM, 1024, 1, 68239360},
      {P4, 128, 1024, 1024, FTRL, 1024, 1, 270761984},
      {P4, 128, 1024, 1024, LAPROP, 1024, 1, 237191168},
      {E4, 128, 1024, 1024, LAPROP, 1024, 1, 59834368},
      {P4, 128, 1024, 1024, MOMENTUM, 1024, 1, 237207552},
      {P4, 128, 1024, 1024, F2A, 1024, 1, 270761984},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_spinput_size s;
    assert_int_equal(at_code_take(size(&rows[i], 0, &s)), 0);
    if (s.stack_bytes != rows[i].stack)
      print_error("row %zu: %lld, the compiler %lld\n", i,
                  (long long)s.stack_bytes, (long long)rows[i].stack);
    assert_int_equal(s.stack_bytes, rows[i].stack);
  }
}

// Within 3 %; prints the worst.
static void other_stacks_are_near(void **state) {
  static const row rows[] = {
      {P4, 8, 1024, 1024, LOOKUP, 1024, 1, 4980736},
      {P4, 13, 1024, 1024, LOOKUP, 1024, 1, 9175040},
      {P4, 32, 1024, 1024, LOOKUP, 1024, 1, 17580032},
      {P4, 64, 1024, 1024, LOOKUP, 1024, 1, 34390016},
      {P4, 256, 1024, 1024, LOOKUP, 1024, 1, 135249920},
      {E4, 32, 1024, 1024, LOOKUP, 1024, 1, 4521984},
      {P8, 32, 1024, 1024, LOOKUP, 1024, 1, 34865152},
      {P4, 4096, 256, 256, LOOKUP, 1024, 1, 541442048},
      {P4, 131072, 256, 256, LOOKUP, 1024, 1, 17314463744},
      {P4, 128, 8192, 8192, LOOKUP, 1024, 1, 541310976},
      {P4, 128, 65536, 65536, LOOKUP, 1024, 1, 4446224384},
      {P4, 128, 1024, 1024, LOOKUP, 1024, 2, 135577600},
      {P4, 128, 1024, 1024, LOOKUP, 1024, 3, 203227136},
      {P4, 8, 1024, 1024, SGD, 1024, 1, 12959744},
      {P4, 32, 1024, 1024, SGD, 1024, 1, 44433408},
      {P4, 64, 1024, 1024, SGD, 1024, 1, 86409216},
      {P4, 256, 1024, 1024, SGD, 1024, 1, 338395136},
      {P4, 2048, 256, 256, SGD, 1024, 1, 676544512},
      {P4, 128, 4096, 4096, SGD, 1024, 1, 678445056},
      {P4, 128, 8192, 8192, SGD, 1024, 1, 1355825152},
      {P4, 128, 1024, 1024, SGD, 1024, 2, 339804160},
      {P4, 128, 1024, 1024, SGD, 1024, 3, 509165568},
      {P4, 32, 1024, 1024, ADAGRAD, 1024, 1, 52609024},
      {P4, 8192, 256, 256, ADAGRAD, 1024, 1, 3247521792},
      {P4, 128, 1024, 1024, ADAGRAD, 1024, 2, 439959552},
      {P4, 128, 1024, 1024, ADAGRAD, 1024, 3, 642596864},
      {P4, 128, 1024, 1024, ADAGRAD, 1024, 5, 1014071296},
      {P4, 128, 1024, 1024, ADAM, 1024, 2, 540704768},
      {P4, 128, 1024, 1024, ADAM, 1024, 3, 810385408},
      {P4, 32, 1024, 1024, ADAM, 1024, 1, 69402624},
      {P4, 4096, 256, 256, ADAM, 1024, 1, 2161213440},
      {E4, 2048, 256, 256, ADAM, 1024, 1, 271122432},
  };
  double worst = 0;
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_spinput_size s;
    assert_int_equal(at_code_take(size(&rows[i], 0, &s)), 0);
    double off = (double)s.stack_bytes / (double)rows[i].stack - 1;
    if (off < 0) off = -off;
    worst = AT_MAX(worst, off);
    if (off > .03)
      print_error("row %zu: %lld, the compiler %lld\n", i,
                  (long long)s.stack_bytes, (long long)rows[i].stack);
  }
  print_message("worst estimate: %.2f%%\n", 100 * worst);
  assert_true(worst <= .03);
}

// What the compiler accepts and refuses, and in which words.
static void verdicts_are_the_compilers(void **state) {
  static const struct {
    row r;
    at_code code;
    const char *says;
  } rows[] = {
      {{P4, 128, 100, 100, SGD, 1024, 1, 0}, 0, ""},
      {{P4, 128, 1024, 16384, LOOKUP, 1024, 1, 0}, 0, ""},
      {{P4, 128, 16384, 256, SGD, 1024, 1, 0}, 0, ""},
      {{P4, 128, 1048576, 256, SGD, 1024, 1, 0}, 0, ""},
      {{P4, 128, 14336, 14336, LOOKUP, 1024, 1, 0}, 0, ""},
      {{P4, 128, 65528, 65528, LOOKUP, 1024, 1, 0}, 0, ""},
      {{P4, 128, 65536, 65536, LOOKUP, 1024, 1, 0}, 0, ""},
      {{P4, 128, 98304, 98304, LOOKUP, 1024, 1, 0}, 0, ""},
      {{P4, 128, 14336, 14336, SGD, 1024, 1, 0}, 0, ""},
      {{P4, 128, 14336, 14336, ADAM, 1024, 1, 0}, 0, ""},
      {{E4, 128, 8192, 8192, LOOKUP, 1024, 1, 0}, 0, ""},
      {{E4, 128, 16384, 16384, LOOKUP, 1024, 1, 0}, 0, ""},
      {{E4, 128, 49152, 49152, LOOKUP, 1024, 1, 0}, 0, ""},
      {{E4, 128, 4096, 4096, SGD, 1024, 1, 0}, 0, ""},
      {{P4, 131072, 256, 256, LOOKUP, 1024, 1, 0}, 0, ""},
      {{P4, 8192, 256, 256, ADAGRAD, 1024, 1, 0}, 0, ""},
      {{P4, 4096, 256, 256, ADAM, 1024, 1, 0}, 0, ""},
      {{P4, 8192, 256, 256, ADAM, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Valid window was not found for"},
      {{E4, 16384, 256, 256, FTRL, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Valid window was not found for"},
      {{P4, 32, 16384, 16384, LOOKUP, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Can't fit a single row. TileSpmem bytes: 524128; Reserved bytes: 0; "
       "Available bytes: 524088; Row bytes: 2162688"},
      {{P4, 128, 61440, 61440, LOOKUP, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Can't fit a single row"},
      {{P4, 128, 131072, 131072, LOOKUP, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Available bytes: 524060; Row bytes: 8454144"},
      {{E4, 128, 65536, 65536, LOOKUP, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Can't fit a single row. TileSpmem bytes: 262112; Reserved bytes: 0; "
       "Available bytes: 262060; Row bytes: 4227072"},
      {{P8, 128, 8192, 8192, LOOKUP, 1024, 1, 0}, 0, ""},
      {{P8, 128, 65536, 65536, LOOKUP, 1024, 1, 0}, 0, ""},
      {{P8, 128, 32768, 32768, LOOKUP, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Available bytes: 524084; Row bytes: 16908288"},
      {{"v6e:1x1", 1, 128, 32768, 32768, LOOKUP, 1024, 1, 0}, 0, ""},
      {{"v6e:1x1", 1, 128, 65536, 65536, LOOKUP, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Available bytes: 262072; Row bytes: 4227072"},
      {{"v6e:2x4", 8, 128, 8192, 8192, LOOKUP, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Available bytes: 262072; Row bytes: 4227072"},
      {{"v6e:2x4", 8, 128, 32768, 32768, LOOKUP, 1024, 1, 0}, 0, ""},
      {{"v6e:2x4", 8, 128, 65536, 65536, LOOKUP, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Available bytes: 262044; Row bytes: 4227072"},
      {{"7x:2x2x1", 8, 128, 16384, 16384, LOOKUP, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Can't fit a single row. TileSpmem bytes: 524032; Reserved bytes: 0; "
       "Available bytes: 523992; Row bytes: 8454144"},
      {{P4, 2048, 32768, 32768, SGD, 1024, 1, 0},
       AT_INVALID_ARGUMENT,
       "last tried split factor for vector splitting = 256"},
      {{P4, 128, 524288, 524288, LOOKUP, 1024, 1, 0},
       AT_INVALID_ARGUMENT,
       "fixed_size_allocation_bytes = 0, row_dependent_size_allocation_bytes = "
       "4194304, total_spmem_size_bytes = 524128"},
      {{E4, 128, 8192, 8192, SGD, 1024, 1, 0},
       AT_INVALID_ARGUMENT,
       "E3001: CompileTimeSparseCoreInvalidReplicaCount:\nNo viable logical "
       "replica count for the embedding table with metadata: max_nz_per_row = "
       "8192, max_unique_nz_per_row = 8192, feature_width = 128, sample_count "
       "= 128 (last tried split factor for vector splitting = 16, "
       "fixed_size_allocation_bytes = 295936, "
       "row_dependent_size_allocation_bytes = 98304, total_spmem_size_bytes = "
       "262112)"},
      {{P4, 128, 16384, 16384, SGD, 1024, 1, 0},
       AT_INVALID_ARGUMENT,
       "fixed_size_allocation_bytes = 590848, "
       "row_dependent_size_allocation_bytes = 196608"},
      {{P4, 128, 16384, 16384, SGD, 1024, 1, 0},
       AT_INVALID_ARGUMENT,
       "Fixed size allocations (9 * 16384 + 256 = 147712 words) do not fit in "
       "TileSpmem (131032 words)."},
      {{P4, 128, 524288, 524288, LOOKUP, 1024, 1, 0},
       AT_INVALID_ARGUMENT,
       "Variable size allocations (2 * 524288 = 1048576 words)"},
      {{P4, 16384, 256, 256, SGD, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "Valid window was not found for"},
      {{E4, 8192, 256, 256, FTRL, 1024, 1, 0},
       AT_RESOURCE_EXHAUSTED,
       "scratchpad allocation size is 196544"},
      {{P4, 1024, 14336, 14336, ADAM, 1024, 4, 0},
       AT_RESOURCE_EXHAUSTED,
       "E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory "
       "required for HLO temporaries (112.0"},
      {{P4, 100000, 8, 8, LOOKUP, 1024, 1, 0}, 0, ""},
      {{"v5e:2x2", 4, 128, 256, 256, SGD, 1024, 1, 0},
       AT_UNIMPLEMENTED,
       "Only Megachip mode is supporting mixed device type computations."},
      {{"z80", 4, 128, 256, 256, SGD, 1024, 1, 0}, AT_INVALID_ARGUMENT, "z80"},
      {{P4, 128, 0, 256, SGD, 1024, 1, 0}, AT_INVALID_ARGUMENT, "impossible"},
      {{P4, 128, 256, 256, SGD, 24, 1, 0},
       AT_INVALID_ARGUMENT,
       "must be divisible by num_sc_per_device (4)."},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_spinput_size s;
    at_status st = size(&rows[i].r, 0, &s);
    if (at_status_code(st) != rows[i].code ||
        !strstr(at_status_message(st), rows[i].says))
      print_error("row %zu: %s\n", i, at_status_message(st));
    assert_non_null(strstr(at_status_message(st), rows[i].says));
    assert_int_equal(at_code_take(st), rows[i].code);
  }
}

// A thousand million rows of 512 bytes over four devices.
static void a_tensor_has_16_gib(void **state) {
  at_spinput_table t = {.name = "big",
                        .rows = 1000000000,
                        .width = 128,
                        .max_ids = 256,
                        .max_unique = 256,
                        .samples = 256,
                        .element_bytes = 4,
                        .slots = -1};
  at_spinput_table_size one;
  at_spinput_size s;
  at_spinput_program p = {.devices = 4, .tables = &t, .table_count = 1};
  assert_int_equal(at_code_take(at_spinput_chip_find(AT_STR("v5p"), &p.chip)),
                   0);
  at_status st = at_spinput_size_of(&p, &one, &s);
  assert_non_null(strstr(at_status_message(st),
                         "SparseCore only supports 16 GiB of HBM per tensor, "
                         "got 128000000000 in"));
  assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
}

// The largest figures that are taken at all must not wrap around.
static void huge_figures_are_refused(void **state) {
  at_spinput_table t = {.name = "huge",
                        .rows = INT32_MAX * 64ll,
                        .width = 1 << 24,
                        .max_ids = INT32_MAX,
                        .max_unique = INT32_MAX,
                        .samples = INT32_MAX / 4 * 4,
                        .element_bytes = 4,
                        .slots = -1};
  at_spinput_table_size one;
  at_spinput_size s;
  at_spinput_program p = {.devices = 1, .tables = &t, .table_count = 1};
  assert_int_equal(at_code_take(at_spinput_chip_find(AT_STR("v5p"), &p.chip)),
                   0);
  at_status st = at_spinput_size_of(&p, &one, &s);
  assert_non_null(strstr(at_status_message(st), "16 GiB of HBM per tensor"));
  assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
  assert_true(one.hbm_bytes > 0 && one.waste_bytes >= 0);
  // Few rows on many devices: what a lookup holds is too much.
  t.rows = 1;
  t.max_ids = t.max_unique = 1 << 15;
  p.devices = 1 << 14;
  st = at_spinput_size_of(&p, &one, &s);
  assert_int_equal(at_code_take(st), AT_RESOURCE_EXHAUSTED);
  assert_true(one.forward_bytes > p.chip.hbm_bytes);
}

// 32 MiB of samples a core do not fit its tiles; with `unstaged` that is an
// error.
static void gather_operands_are_staged(void **state) {
  at_spinput_table t = {.name = "t",
                        .rows = 1000,
                        .width = 512,
                        .max_ids = 64,
                        .max_unique = 64,
                        .samples = 65536,
                        .element_bytes = 4,
                        .slots = -1};
  at_spinput_table_size one;
  at_spinput_size s;
  at_spinput_program p = {.devices = 4, .tables = &t, .table_count = 1};
  assert_int_equal(at_code_take(at_spinput_chip_find(AT_STR("v5p"), &p.chip)),
                   0);
  assert_int_equal(at_code_take(at_spinput_size_of(&p, &one, &s)), 0);
  assert_false(one.gather_in_tile);
  assert_int_equal(one.gather_bytes, 65536 / 4 * 512 * 4 / 16);
  p.unstaged = true;
  at_status st = at_spinput_size_of(&p, &one, &s);
  assert_non_null(strstr(at_status_message(st), "Gather operand too large"));
  assert_int_equal(at_code_take(st), AT_RESOURCE_EXHAUSTED);
  t.samples = 1024;
  assert_int_equal(at_code_take(at_spinput_size_of(&p, &one, &s)), 0);
  assert_true(one.gather_in_tile);
}

// Each further table that waits for the others lowers it.
static void serialised_tables_lower_the_peak(void **state) {
  const row r = {P4, 64, 512, 512, ADAGRAD, 1024, 8, 0};
  int64_t last = INT64_MAX;
  for (int n = 1; n <= 7; n++) {
    at_spinput_size s;
    assert_int_equal(at_code_take(size(&r, n, &s)), 0);
    assert_true(s.stack_bytes < last);
    last = s.stack_bytes;
  }
}

// Rows of one element are padded to eight.
static void narrow_rows_waste(void **state) {
  at_spinput_table t = {.name = "narrow",
                        .rows = 100000000,
                        .width = 1,
                        .max_ids = 256,
                        .max_unique = 256,
                        .samples = 64,
                        .element_bytes = 4,
                        .slots = -1};
  at_spinput_table_size one;
  at_spinput_size s;
  at_spinput_program p = {.devices = 1,
                          .tables = &t,
                          .table_count = 1,
                          .dense_bytes = 7,
                          .prefetch_bytes = 5};
  at_strbuf b = {0};
  assert_int_equal(at_code_take(at_spinput_chip_find(AT_STR("v6e"), &p.chip)),
                   0);
  assert_int_equal(at_code_take(at_spinput_size_of(&p, &one, &s)), 0);
  assert_int_equal(one.hbm_bytes, 3200000000);
  assert_int_equal(one.waste_bytes, 2800000000);
  assert_int_equal(s.peak_bytes, s.stack_bytes + 3200000000 + 12);
  at_spinput_size_print(&p, &one, &s, &b);
  assert_non_null(strstr(b.ptr, "narrow"));
  assert_non_null(strstr(b.ptr, "87.5%"));
  at_strbuf_free(&b);
}

// Figures that the compiler's messages show.
static void chips_are_as_described(void **state) {
  static const struct {
    const char *name;
    int cores, lanes, lanes16;
    int64_t tile;
  } rows[] = {{"v4", 4, 8, 8, 524128},
              {"v5p:2x2x1", 4, 8, 8, 524128},
              {"2*v6e:2x2", 2, 8, 16, 262112},
              {"7x", 2, 16, 16, 524032}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_spinput_chip c;
    assert_int_equal(
        at_code_take(at_spinput_chip_find(at_str_of(rows[i].name), &c)), 0);
    assert_int_equal(c.cores, rows[i].cores);
    assert_int_equal(c.tiles, 16);
    assert_int_equal(c.lanes_32bit, rows[i].lanes);
    assert_int_equal(c.lanes_16bit, rows[i].lanes16);
    assert_int_equal(c.tile_bytes, rows[i].tile);
  }
  assert_int_equal(at_spinput_optimizer_of(AT_STR("AdaGrad")), ADAGRAD);
  assert_int_equal(at_spinput_optimizer_of(AT_STR("lion")), AT_SPINPUT_CUSTOM);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stacks_of_width_128_are_exact),
      cmocka_unit_test(other_stacks_are_near),
      cmocka_unit_test(verdicts_are_the_compilers),
      cmocka_unit_test(a_tensor_has_16_gib),
      cmocka_unit_test(huge_figures_are_refused),
      cmocka_unit_test(gather_operands_are_staged),
      cmocka_unit_test(serialised_tables_lower_the_peak),
      cmocka_unit_test(narrow_rows_waste),
      cmocka_unit_test(chips_are_as_described),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
