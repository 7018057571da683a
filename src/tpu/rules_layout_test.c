// Both sides of each bound of rules_layout.c: where vectors may begin, what
// copies may cut, which shapes change into which. A row that says NULL must
// compile; what libtpu says of the same is in test/e2e/test_pallas_refusals.py.
#include "tpu/rules_test_util.h"

// ---- Tiles
// Rows of a tile, by width of element: 8 rows of words; more of narrow ones
// where the rows are a multiple of so many; fewer where there are fewer.
static void tiles(void **state) {
  static const struct {
    const char *chip;
    uint32_t bits;
    int64_t rows;
    bool argument;
    int64_t tile;
  } rows[] = {
      {"v5e", 32, 64, true, 8},   {"v5e", 32, 9, true, 8},
      {"v5e", 32, 7, true, 8},    {"v5e", 32, 5, true, 8},
      {"v5e", 32, 4, true, 4},    {"v5e", 32, 3, true, 4},
      {"v5e", 32, 2, true, 2},    {"v5e", 32, 1, true, 1},
      {"v3", 32, 1, true, 2},     {"v4", 32, 1, true, 1},
      {"v3", 16, 1, true, 4},     {"v5e", 16, 1, true, 2},
      {"v5e", 16, 16, true, 8},   {"v5e", 16, 16, false, 8},
      {"v6e", 16, 16, true, 8},   {"v6e", 16, 16, false, 16},
      {"v6e", 16, 24, false, 8},  {"7x", 16, 32, false, 16},
      {"v5e", 8, 32, true, 32},   {"v5e", 8, 40, true, 8},
      {"v5e", 8, 64, false, 32},  {"v5e", 8, 5, true, 8},
      {"v5e", 8, 1, true, 4},     {"v5e", 4, 64, true, 64},
      {"v5e", 4, 32, true, 8},    {"v5e", 4, 1, true, 8},
      {"v5e", 2, 128, true, 128}, {"v5e", 2, 64, true, 8},
      {"v5e", 2, 1, true, 16},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    int64_t tile =
        at_mosaic_tile_rows(at_mosaic_chip_find(at_str_of(rows[i].chip)),
                            rows[i].bits, rows[i].rows, rows[i].argument);
    if (tile != rows[i].tile)
      fail_msg("%s: %lld rows of %u bits: tiles of %lld, not %lld",
               rows[i].chip, (long long)rows[i].rows, rows[i].bits,
               (long long)tile, (long long)rows[i].tile);
  }
}

// ---- Loads and stores
// An index: a constant, or data times `times`.
typedef struct place {
  bool data;
  int64_t n;
} place;
#define AT(n) \
  { false, n }
#define TIMES(n) \
  { true, n }

// Defines %NAME as i32 or index, of a number that %d, in SMEM, holds.
static void put_place(at_strbuf *b, char name, place p, bool index) {
  const char *t = index ? "index" : "i32";
  if (!p.data) {
    at_strbuf_addf(b,
                   "%%%c = 'arith.constant'() {value = %lld : %s} : () -> "
                   "%s\n",
                   name, (long long)p.n, t, t);
    return;
  }
  at_strbuf_addf(b,
                 "%%%c0 = 'memref.load'(%%d, %%i) : (S:i32, index) -> i32\n"
                 "%%%c1 = 'arith.constant'() {value = %lld : i32} : () -> i32\n"
                 "%%%c%s = 'arith.muli'(%%%c0, %%%c1) : (i32, i32) -> i32\n",
                 name, name, (long long)p.n, name, index ? "2" : "", name,
                 name);
  if (index)
    at_strbuf_addf(b, "%%%c = 'arith.index_cast'(%%%c2) : (i32) -> index\n",
                   name, name);
}

// What of `ref` is loaded, at (row, lane), and stored at the same place, where
// `stores`, or else to (0, 0) of another one.
typedef struct access {
  const char *chip, *ref, *vector;
  place row, lane;
  bool stores;
  const char *says;
} access;

static void expect_access(const access *x) {
  at_arena *a = at_arena_create();
  const char *ref = at_arena_printf(a, "memref<%s, in:vmem>", x->ref);
  const char *same = at_arena_printf(a, "memref<%s, in:vmem>", x->vector);
  at_strbuf b = {0};
  put_place(&b, 'r', x->row, true);
  put_place(&b, 'l', x->lane, true);
  const char *load = x->stores ? same : ref, *store = x->stores ? ref : same;
  at_strbuf_addf(
      &b,
      "%%x = 'vector.load'(%s) : (%s, index, index) -> vector<%s>\n"
      "'vector.store'(%%x, %s) : (vector<%s>, %s, index, index) -> ()\n",
      x->stores ? "%b, %i, %i" : "%a, %r, %l", load, x->vector,
      x->stores ? "%a, %r, %l" : "%b, %i, %i", x->vector, store);
  const refused r = {x->says,
                     x->chip,
                     {ref, same, "S:i32", "S:i32"},
                     at_arena_printf(a, "%s", b.ptr)};
  at_strbuf_free(&b);
  expect_refusal(kernel_of(a, &r), x->chip, x->says);
  at_arena_destroy(a);
}

#define ROWS_OF(n) "index in dimension 0 is a multiple of " #n "\n"
#define LANES_OF(n) "index in dimension 1 is a multiple of " #n "\n"

static void accesses(void **state) {
  static const access rows[] = {
      // Words in one column of tiles: any row.
      {"v5e", "32x128xf32", "8x128xf32", TIMES(1), AT(0), false, NULL},
      {"v5e", "32x256xf32", "8x256xf32", TIMES(1), AT(0), false, ROWS_OF(8)},
      {"v5e", "32x256xf32", "8x256xf32", TIMES(4), AT(0), false, ROWS_OF(8)},
      {"v5e", "32x256xf32", "8x256xf32", TIMES(8), AT(0), false, NULL},
      {"v5e", "32x256xf32", "8x256xf32", TIMES(24), AT(0), true, NULL},
      {"v5e", "32x256xf32", "8x256xf32", AT(3), AT(0), false, NULL},
      // A row: all of it, or from a known tile on.
      {"v5e", "32x256xf32", "1x256xf32", TIMES(1), AT(0), false, NULL},
      {"v5e", "32x256xf32", "1x128xf32", TIMES(1), AT(0), false,
       "dynamic load with unaligned indices"},
      {"v5e", "32x256xf32", "1x129xf32", TIMES(1), AT(0), false, NULL},
      {"v5e", "32x384xf32", "1x128xf32", TIMES(1), AT(128), false,
       "dynamic load with unaligned indices"},
      {"v5e", "32x256xf32", "1x128xf32", TIMES(8), AT(0), false, NULL},
      {"v5e", "32x256xf32", "1x128xf32", TIMES(1), AT(0), true, ROWS_OF(8)},
      {"v5e", "32x256xf32", "1x128xf32", TIMES(8), AT(0), true, NULL},
      {"v5e", "32x256xf32", "1x128xf32", AT(5), AT(128), true, NULL},
      // Lanes begin at whole registers, unless they are known.
      {"v5e", "8x256xf32", "8x128xf32", AT(0), TIMES(64), false, LANES_OF(128)},
      {"v5e", "8x256xf32", "8x128xf32", AT(0), TIMES(128), false, NULL},
      {"v5e", "8x256xf32", "8x128xf32", AT(0), AT(64), false, NULL},
      {"v5e", "8x256xf32", "8x128xf32", AT(0), TIMES(64), true, LANES_OF(128)},
      // Narrow elements: by the tile.
      {"v5e", "64x128xbf16", "16x128xbf16", TIMES(4), AT(0), false, ROWS_OF(8)},
      {"v5e", "64x128xbf16", "16x128xbf16", TIMES(8), AT(0), false, NULL},
      {"v5e", "64x128xi8", "32x128xi8", TIMES(16), AT(0), false, ROWS_OF(32)},
      {"v5e", "64x128xi8", "32x128xi8", TIMES(32), AT(0), false, NULL},
      {"v5e", "40x128xi8", "8x128xi8", TIMES(8), AT(0), false, NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) expect_access(&rows[i]);
}

// Lines lie in rows of 4096 bits.
static void lines(void **state) {
  static const struct {
    const char *type;
    int64_t times;
    const char *says;
  } rows[] = {
      {"f32", 64, "dimension 0 is a multiple of 128\n"},   {"f32", 128, NULL},
      {"bf16", 128, "dimension 0 is a multiple of 256\n"}, {"bf16", 256, NULL},
      {"i8", 256, "dimension 0 is a multiple of 512\n"},   {"i8", 512, NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    const char *t = rows[i].type;
    const char *from = at_arena_printf(a, "memref<4096x%s, in:vmem>", t);
    const char *to = at_arena_printf(a, "memref<512x%s, in:vmem>", t);
    at_strbuf b = {0};
    put_place(&b, 'l', (place)TIMES(rows[i].times), true);
    at_strbuf_addf(&b,
                   "%%x = 'vector.load'(%%a, %%l) : (%s, index) -> "
                   "vector<512x%s>\n'vector.store'(%%x, %%b, %%i) : "
                   "(vector<512x%s>, %s, index) -> ()\n",
                   from, t, t, to);
    const refused r = {rows[i].says,
                       "v5e",
                       {from, to, "S:i32", "S:i32"},
                       at_arena_printf(a, "%s", b.ptr)};
    at_strbuf_free(&b);
    expect_refusal(kernel_of(a, &r), "v5e", rows[i].says);
    at_arena_destroy(a);
  }
}

// ---- Copies
#define SEM "memref<!tpu.dma_semaphore, #tpu.memory_space<semaphore_mem>>"

// A slice of `whole`, in HBM, from (row, lane) on, that is copied to VMEM.
typedef struct cut {
  const char *chip, *whole, *part;
  place row, lane;
  const char *says;
} cut;

static void expect_cut(const cut *x) {
  at_arena *a = at_arena_create();
  const char *from = at_arena_printf(a, "memref<%s, in:hbm>", x->whole);
  const char *part = at_arena_printf(a, "memref<%s, in:hbm>", x->part);
  const char *to = at_arena_printf(a, "memref<%s, in:vmem>", x->part);
  at_strbuf b = {0};
  put_place(&b, 'r', x->row, false);
  put_place(&b, 'l', x->lane, false);
  at_strbuf_addf(
      &b,
      "%%s = 'tpu.memref_slice'(%%a, %%r, %%l) {operandSegmentSizes = "
      "array<i32: 1, 2, 0>} : (%s, i32, i32) -> %s\n"
      "'tpu.enqueue_dma'(%%s, %%b, %%c) {operandSegmentSizes = array<i32: 1, "
      "0, 1, 1, 0, 0, 0>} : (%s, %s, " SEM ") -> ()\n",
      from, part, part, to);
  const refused r = {x->says,
                     x->chip,
                     {from, to, SEM, "S:i32"},
                     at_arena_printf(a, "%s", b.ptr)};
  at_strbuf_free(&b);
  expect_refusal(kernel_of(a, &r), x->chip, x->says);
  at_arena_destroy(a);
}

#define OFFSET(d, n) \
  "the index at dimension " #d " is divisible by the tile dimension " #n "."
#define SIZE(d, n) \
  "the size at dimension " #d " is divisible by the tile dimension " #n "."

static void cuts(void **state) {
  static const cut rows[] = {
      // Rows, of several columns of tiles.
      {"v5e", "32x256xf32", "8x256xf32", AT(8), AT(0), NULL},
      {"v5e", "32x256xf32", "8x256xf32", AT(4), AT(0), NULL},
      {"v5e", "32x256xf32", "8x256xf32", AT(3), AT(0), OFFSET(0, 8)},
      {"v5e", "32x256xf32", "4x256xf32", AT(2), AT(0), NULL},
      {"v5e", "32x256xf32", "4x256xf32", AT(6), AT(0), NULL},
      {"v5e", "32x256xf32", "4x256xf32", AT(5), AT(0), OFFSET(0, 8)},
      {"v5e", "32x256xf32", "12x256xf32", AT(0), AT(0), SIZE(0, 8)},
      {"v5e", "32x256xf32", "12x256xf32", AT(20), AT(0), OFFSET(0, 8)},
      {"v5e", "28x256xf32", "12x256xf32", AT(16), AT(0), NULL},
      {"v5e", "32x256xf32", "8x256xf32", TIMES(4), AT(0), OFFSET(0, 8)},
      {"v5e", "32x256xf32", "8x256xf32", TIMES(8), AT(0), NULL},
      {"v5e", "32x256xf32", "1x256xf32", TIMES(1), AT(0), NULL},
      {"v5e", "32x256xf32", "2x256xf32", TIMES(2), AT(0), NULL},
      {"v5e", "32x256xf32", "2x256xf32", TIMES(1), AT(0), OFFSET(0, 8)},
      {"v5e", "32x256xf32", "3x256xf32", TIMES(3), AT(0), OFFSET(0, 8)},
      // In one column of tiles a row of words is anywhere.
      {"v5e", "32x128xf32", "8x128xf32", TIMES(1), AT(0), NULL},
      {"v5e", "32x128xbf16", "8x128xbf16", TIMES(1), AT(0), OFFSET(0, 8)},
      {"v5e", "32x128xbf16", "8x128xbf16", TIMES(2), AT(0), NULL},
      {"v5e", "32x128xbf16", "3x128xbf16", AT(0), AT(0), SIZE(0, 8)},
      // Lanes: words of HBM, of which chips have different ones.
      {"v5e", "8x256xf32", "8x128xf32", AT(0), AT(128), NULL},
      {"v5e", "8x256xf32", "8x64xf32", AT(0), AT(0),
       "must be divisible by 512 bytes."},
      {"v6e", "8x256xf32", "8x64xf32", AT(0), AT(0), NULL},
      {"v6e", "8x256xf32", "8x8xf32", AT(0), AT(0), NULL},
      {"v6e", "8x256xf32", "8x4xf32", AT(0), AT(0),
       "must be divisible by 32 bytes."},
      {"v6e", "8x256xf32", "8x8xf32", AT(0), AT(4),
       "memory space word size (256 bits)"},
      {"v6e", "8x256xf32", "8x8xf32", AT(0), AT(8), NULL},
      {"v6e", "8x256xf32", "8x8xf32", AT(0), TIMES(8), NULL},
      {"v6e", "8x256xf32", "8x8xf32", AT(0), TIMES(4), OFFSET(1, 128)},
      {"v5e", "8x256xf32", "8x128xf32", AT(0), TIMES(128), NULL},
      {"v5e", "8x256xf32", "8x128xf32", AT(0), TIMES(64), OFFSET(1, 128)},
      {"v6e", "8x128xf32", "8x16xf32", AT(0), TIMES(4),
       "multiple of the word size (256 bits)"},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) expect_cut(&rows[i]);
}

// ---- Shapes of vectors
// A vector of type `from` that is cast and stored; masks as numbers.
typedef struct cast {
  const char *from, *to;
  const char *says;
} cast;

static void expect_cast(const cast *x, bool mask) {
  at_arena *a = at_arena_create();
  const char *t = mask ? "i32" : "f32", *e = mask ? "i1" : "f32";
  const char *in = at_arena_printf(a, "memref<%sx%s, in:vmem>", x->from, t);
  const char *out = at_arena_printf(a, "memref<%sx%s, in:vmem>", x->to, t);
  at_strbuf from = {0}, to = {0}, b = {0};
  for (int k = 0; x->from[k]; k++)
    if (x->from[k] == 'x') at_strbuf_addz(&from, ", %i");
  for (int k = 0; x->to[k]; k++)
    if (x->to[k] == 'x') at_strbuf_addz(&to, ", %i");
  // ", index" for each index: as many as dimensions.
  const char *is = ", index, index, index, index";
  size_t nf = 1, nt = 1;
  for (int k = 0; x->from[k]; k++) nf += x->from[k] == 'x';
  for (int k = 0; x->to[k]; k++) nt += x->to[k] == 'x';
  at_strbuf_addf(&b,
                 "%%x = 'vector.load'(%%a, %%i%s) : (%s%.*s) -> "
                 "vector<%sx%s>\n",
                 from.ptr ? from.ptr : "", in, (int)(7 * nf), is, x->from, t);
  if (mask)
    at_strbuf_addf(&b,
                   "%%m = 'arith.cmpi'(%%x, %%x) {predicate = 2 : i64} : "
                   "(vector<%sxi32>, vector<%sxi32>) -> vector<%sxi1>\n",
                   x->from, x->from, x->from);
  at_strbuf_addf(&b,
                 "%%y = 'vector.shape_cast'(%%%c) : (vector<%sx%s>) -> "
                 "vector<%sx%s>\n",
                 mask ? 'm' : 'x', x->from, e, x->to, e);
  if (mask)
    at_strbuf_addf(&b,
                   "%%z = 'arith.extui'(%%y) : (vector<%sxi1>) -> "
                   "vector<%sxi32>\n",
                   x->to, x->to);
  at_strbuf_addf(&b,
                 "'vector.store'(%%%c, %%b, %%i%s) : (vector<%sx%s>, "
                 "%s%.*s) -> ()\n",
                 mask ? 'z' : 'y', to.ptr ? to.ptr : "", x->to, t, out,
                 (int)(7 * nt), is);
  const refused r = {
      x->says, "v5e", {in, out}, at_arena_printf(a, "%s", b.ptr)};
  at_strbuf_free(&from);
  at_strbuf_free(&to);
  at_strbuf_free(&b);
  expect_refusal(kernel_of(a, &r), "v5e", x->says);
  at_arena_destroy(a);
}

#define CAST "infer-vector-layout: unsupported shape cast"

static void shape_casts(void **state) {
  static const cast rows[] = {
      {"8x128", "8x1x128", NULL}, {"8x96", "1x8x96", NULL},
      {"8x128", "1024", NULL},    {"1024", "8x128", NULL},
      {"8x64", "4x128", NULL},    {"8x64", "16x32", NULL},
      {"8x96", "12x64", CAST},    {"2x192", "3x128", CAST},
      {"2x96", "192", CAST},      {"2x96", "1x192", NULL},
      {"2x8x128", "8x256", NULL}, {"4x2x96", "4x192", NULL},
      {"2x8x128", "2048", NULL},  {"2x4x128", "1024", NULL},
      {"2x8x256", "4096", CAST},  {"16x160", "8x320", CAST},
      {"3x160", "1x480", NULL},   {"16x160", "10x256", CAST},
  };
  static const cast masks[] = {
      {"8x128", "1x8x128", NULL},
      {"8x128", "4x256",
       "changeBitwidth when src bitwidth and dst bitwidth differs too much."},
      {"2x8x128", "2x1024", "i1 transpose is not supported."},
      {"2x8x128", "8x256", CAST},
      {"2x8x128", "16x128", NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) expect_cast(&rows[i], false);
  for (size_t i = 0; i < AT_LEN(masks); i++) expect_cast(&masks[i], true);
}

// Masks are transposed with their lanes only.
static void mask_transposes(void **state) {
  static const struct {
    const char *from, *to, *permutation, *says;
  } rows[] = {
      {"128x256", "256x128", "1, 0", NULL},
      {"4x8x128", "8x4x128", "1, 0, 2", "i1 transpose is not supported."},
      {"4x128x256", "4x256x128", "0, 2, 1", NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    const char *f = rows[i].from, *o = rows[i].to;
    bool three = strlen(rows[i].permutation) > 4;
    const char *at = three ? "%i, %i, %i" : "%i, %i";
    const char *is = three ? "index, index, index" : "index, index";
    const char *in = at_arena_printf(a, "memref<%sxi32, in:vmem>", f);
    const char *out = at_arena_printf(a, "memref<%sxi32, in:vmem>", o);
    const char *body = at_arena_printf(
        a,
        "%%x = 'vector.load'(%%a, %s) : (%s, %s) -> vector<%sxi32>\n"
        "%%m = 'arith.cmpi'(%%x, %%x) {predicate = 2 : i64} : (vector<%sxi32>, "
        "vector<%sxi32>) -> vector<%sxi1>\n"
        "%%t = 'tpu.transpose'(%%m) {permutation = array<i64: %s>} : "
        "(vector<%sxi1>) -> vector<%sxi1>\n"
        "%%y = 'arith.extui'(%%t) : (vector<%sxi1>) -> vector<%sxi32>\n"
        "'vector.store'(%%y, %%b, %s) : (vector<%sxi32>, %s, %s) -> ()\n",
        at, in, is, f, f, f, f, rows[i].permutation, f, o, o, o, at, o, out,
        is);
    const refused r = {rows[i].says, "v5e", {in, out}, body};
    expect_refusal(kernel_of(a, &r), "v5e", rows[i].says);
    at_arena_destroy(a);
  }
}

// Eight rows at a stride: in one column of tiles any, in several only one row,
// again and again, of whole columns and at a known tile.
static void strides(void **state) {
  static const struct {
    const char *lanes;
    int stride;
    place row;
    const char *says;
  } rows[] = {
      {"128", 2, AT(0), NULL},
      {"256", 0, AT(0), NULL},
      {"256", 2, AT(0), "The last dim size is not 128 in original base memref"},
      {"192", 0, AT(0), "not a multiple of 128 in original base memref"},
      {"256", 0, TIMES(4),
       "Failed to prove that a tile index in dimension 0 is divisible"},
      {"256", 0, TIMES(8), NULL},
      {"128", 0, TIMES(4), NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    const char *n = rows[i].lanes;
    const char *in = at_arena_printf(a, "memref<32x%sxf32, in:vmem>", n);
    const char *out = at_arena_printf(a, "memref<8x%sxf32, in:vmem>", n);
    at_strbuf b = {0};
    put_place(&b, 'r', rows[i].row, true);
    at_strbuf_addf(
        &b,
        "%%x = 'tpu.strided_load'(%%a, %%r, %%i) {strides = array<i32: %d, "
        "1>} : (%s, index, index) -> vector<8x%sxf32>\n"
        "'vector.store'(%%x, %%b, %%i, %%i) : (vector<8x%sxf32>, %s, index, "
        "index) -> ()\n",
        rows[i].stride, in, n, n, out);
    const refused r = {rows[i].says,
                       "v5e",
                       {in, out, "S:i32", "S:i32"},
                       at_arena_printf(a, "%s", b.ptr)};
    at_strbuf_free(&b);
    expect_refusal(kernel_of(a, &r), "v5e", rows[i].says);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tiles),       cmocka_unit_test(accesses),
      cmocka_unit_test(lines),       cmocka_unit_test(cuts),
      cmocka_unit_test(shape_casts), cmocka_unit_test(mask_transposes),
      cmocka_unit_test(strides),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
