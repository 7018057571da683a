// Both sides of each bound of rules_ops.c and rules_fold.c: which element types
// a generation computes with, multiplies and converts, what is folded away
// before, and what is left of masks.
#include "tpu/rules_test_util.h"

// %b = the body's %y, of V:t, from %x of V:s that %a holds.
typedef struct one {
  const char *chip, *s, *t;
  const char *op;  // with %y, %x and %w (another load); types are V:s, V:t
  const char *says;
} one;

static void expect_one(const one *x) {
  at_arena *a = at_arena_create();
  const char *body = at_arena_printf(
      a,
      "%%x = 'vector.load'(%%a, %%i, %%i) : (M:%s, index, index) -> V:%s\n"
      "%%w = 'vector.load'(%%c, %%i, %%i) : (M:%s, index, index) -> V:%s\n"
      "%s\n"
      "'vector.store'(%%y, %%b, %%i, %%i) : (V:%s, M:%s, index, index) -> "
      "()\n",
      x->s, x->s, x->s, x->s, x->op, x->t, x->t);
  const char *in = at_arena_printf(a, "M:%s", x->s);
  const refused r = {
      x->says, x->chip, {in, at_arena_printf(a, "M:%s", x->t), in}, body};
  expect_refusal(kernel_of(a, &r), x->chip, x->says);
  at_arena_destroy(a);
}

static void expect_ones(const one *rows, size_t n) {
  for (size_t i = 0; i < n; i++) expect_one(&rows[i]);
}

#define BINARY(op, t) "%y = '" op "'(%x, %w) : (V:" t ", V:" t ") -> V:" t
#define UNARY(op, s, t) "%y = '" op "'(%x) : (V:" s ") -> V:" t
#define ILLEGAL(op) "failed to legalize operation '" op "'"
#define NO_SUBTRACT "target().SupportsVectorSubtract(signed_arith_type)"
#define NARROW "Only vector<i16> and vector<i32> are supported, but got "

// Integers of a vector: words do everything, narrower ones little.
static void integers(void **state) {
  static const one rows[] = {
      {"v5e", "i32", "i32", BINARY("arith.addi", "i32"), NULL},
      {"v5e", "i16", "i16", BINARY("arith.addi", "i16"), NULL},
      {"v6e", "i16", "i16", BINARY("arith.muli", "i16"), NULL},
      {"v6e", "i8", "i8", BINARY("arith.addi", "i8"), NARROW "'i8'"},
      {"7x", "i4", "i4", BINARY("arith.subi", "i4"), NARROW "'i4'"},
      {"v6e", "i8", "i8", BINARY("arith.andi", "i8"), NULL},
      {"v5e", "i32", "i32", BINARY("arith.divsi", "i32"), NULL},
      {"v5e", "i16", "i16", BINARY("arith.divsi", "i16"),
       ILLEGAL("arith.divsi")},
      {"v5e", "i16", "i16", BINARY("arith.divui", "i16"), NULL},
      {"v5e", "i8", "i8", BINARY("arith.divui", "i8"), NO_SUBTRACT},
      {"v6e", "i8", "i8", BINARY("arith.divui", "i8"), NULL},
      {"v6e", "i8", "i8", BINARY("arith.remui", "i8"), NULL},
      {"v6e", "i4", "i4", BINARY("arith.remui", "i4"), ILLEGAL("arith.remui")},
      {"v5e", "i32", "i32", BINARY("arith.maxsi", "i32"), NULL},
      {"v5e", "i16", "i16", BINARY("arith.maxsi", "i16"),
       ILLEGAL("arith.maxsi")},
      {"7x", "i8", "i8", BINARY("arith.minui", "i8"), ILLEGAL("arith.minui")},
      {"v5e", "i16", "i16", UNARY("math.absi", "i16", "i16"), NULL},
      {"v5e", "i8", "i8", UNARY("math.absi", "i8", "i8"), ILLEGAL("math.absi")},
      {"v5e", "i32", "i32", UNARY("math.ctlz", "i32", "i32"), NULL},
      {"v5e", "i16", "i16", UNARY("math.ctpop", "i16", "i16"),
       ILLEGAL("math.ctpop")},
      // An extremum of what was widened, cut back, is one of narrow numbers.
      {"v5e", "i16", "i16",
       "%x1 = 'arith.extsi'(%x) : (V:i16) -> V:i32\n"
       "%w1 = 'arith.extsi'(%w) : (V:i16) -> V:i32\n"
       "%m = 'arith.maxsi'(%x1, %w1) : (V:i32, V:i32) -> V:i32\n"
       "%y = 'arith.trunci'(%m) : (V:i32) -> V:i16",
       ILLEGAL("arith.maxsi")},
      {"v5e", "i16", "i16",
       "%x1 = 'arith.extsi'(%x) : (V:i16) -> V:i32\n"
       "%w1 = 'arith.extsi'(%w) : (V:i16) -> V:i32\n"
       "%m = 'arith.addi'(%x1, %w1) : (V:i32, V:i32) -> V:i32\n"
       "%y = 'arith.trunci'(%m) : (V:i32) -> V:i16",
       NULL},
  };
  expect_ones(rows, AT_LEN(rows));
}

// select(a < b, a, b) is a minimum, whichever way it is written.
static void extrema(void **state) {
  static const struct {
    int predicate;
    bool crossed;
    const char *name;
  } rows[] = {
      {2, false, "arith.minsi"}, {2, true, "arith.maxsi"},
      {3, false, "arith.minsi"}, {4, false, "arith.maxsi"},
      {5, true, "arith.minsi"},  {6, false, "arith.minui"},
      {7, true, "arith.maxui"},  {8, false, "arith.maxui"},
      {9, true, "arith.minui"},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    const char *op = at_arena_printf(
        a,
        "%%m = 'arith.cmpi'(%%x, %%w) {predicate = %d : i64} : (V:i16, "
        "V:i16) -> V:i1\n"
        "%%y = 'arith.select'(%%m, %s) : (V:i1, V:i16, V:i16) -> V:i16",
        rows[i].predicate, rows[i].crossed ? "%w, %x" : "%x, %w");
    const one x = {"v6e", "i16", "i16", op,
                   at_arena_printf(a, ILLEGAL("%s"), rows[i].name)};
    expect_one(&x);
    at_arena_destroy(a);
  }
  // Equality chooses; so does a comparison of other numbers.
  static const one chosen[] = {
      {"v6e", "i16", "i16",
       "%m = 'arith.cmpi'(%x, %w) {predicate = 0 : i64} : (V:i16, V:i16) -> "
       "V:i1\n"
       "%y = 'arith.select'(%m, %x, %w) : (V:i1, V:i16, V:i16) -> V:i16",
       NULL},
      {"v6e", "i16", "i16",
       "%s = 'arith.addi'(%x, %w) : (V:i16, V:i16) -> V:i16\n"
       "%m = 'arith.cmpi'(%x, %s) {predicate = 2 : i64} : (V:i16, V:i16) -> "
       "V:i1\n"
       "%y = 'arith.select'(%m, %x, %w) : (V:i1, V:i16, V:i16) -> V:i16",
       NULL},
      // Nobody reads it: the compiler drops it before any rule.
      {"v6e", "i16", "i16",
       "%z = 'arith.maxsi'(%x, %w) : (V:i16, V:i16) -> V:i16\n" BINARY(
           "arith.addi", "i16"),
       NULL},
  };
  expect_ones(chosen, AT_LEN(chosen));
}

// Operations that give an operand back are gone, and so is what only they read.
static void folded(void **state) {
  static const struct {
    const char *op;
    int constant;
    bool right, kept;
  } rows[] = {
      {"arith.addi", 0, true, false},  {"arith.addi", 0, false, false},
      {"arith.addi", 1, true, true},   {"arith.ori", 0, false, false},
      {"arith.xori", 0, true, false},  {"arith.subi", 0, true, false},
      {"arith.subi", 0, false, true},  {"arith.shli", 0, true, false},
      {"arith.shrsi", 0, true, false}, {"arith.shrui", 1, true, true},
      {"arith.muli", 1, true, false},  {"arith.muli", 1, false, false},
      {"arith.muli", 2, true, true},   {"arith.divsi", 1, true, false},
      {"arith.divui", 1, false, true}, {"arith.maxui", 0, true, false},
  };
  // The mask of the select is x < x + 0: where the sum is folded away, it is
  // an extremum of x and w after all.
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    const char *op = at_arena_printf(
        a,
        "%%k = 'arith.constant'() {value = dense<%d> : V:i16} : () -> V:i16\n"
        "%%s = '%s'(%s) : (V:i16, V:i16) -> V:i16\n"
        "%%m = 'arith.cmpi'(%%s, %%w) {predicate = 2 : i64} : (V:i16, V:i16) "
        "-> V:i1\n"
        "%%y = 'arith.select'(%%m, %%x, %%w) : (V:i1, V:i16, V:i16) -> V:i16",
        rows[i].constant, rows[i].op, rows[i].right ? "%x, %k" : "%k, %x");
    const char *says = !rows[i].kept ? ILLEGAL("arith.minsi") : NULL;
    const one x = {"v6e", "i16", "i16", op, says};
    expect_one(&x);
    at_arena_destroy(a);
  }
}

// Floats that the vector unit has, and conversions that each generation has.
static void floats(void **state) {
  static const one rows[] = {
      {"v5e", "f32", "f32", BINARY("arith.addf", "f32"), NULL},
      {"v5e", "bf16", "bf16", BINARY("arith.addf", "bf16"), NULL},
      {"v6e", "f8E5M2", "f8E5M2", BINARY("arith.addf", "f8E5M2"),
       ILLEGAL("arith.addf")},
      {"v6e", "f8E5M2", "f8E5M2", BINARY("arith.divf", "f8E5M2"),
       "Unsupported data type"},
      {"v6e", "bf16", "bf16", BINARY("arith.divf", "bf16"), NULL},
      {"v6e", "bf16", "bf16", BINARY("arith.remf", "bf16"),
       ILLEGAL("arith.remf")},
      {"v6e", "f32", "f32", BINARY("arith.remf", "f32"), NULL},
      {"v6e", "bf16", "bf16", BINARY("math.atan2", "bf16"),
       ILLEGAL("math.atan2")},
      {"v6e", "f8E5M2", "f8E5M2", UNARY("math.exp", "f8E5M2", "f8E5M2"),
       ILLEGAL("math.exp")},
      {"v6e", "f32", "f32", UNARY("math.exp", "f32", "f32"), NULL},
      {"v6e", "f32", "f8E5M2", UNARY("arith.truncf", "f32", "f8E5M2"), NULL},
      {"v6e", "f32", "f4E2M1FN", UNARY("arith.truncf", "f32", "f4E2M1FN"),
       "Conversion to 4-bit not supported before TPUv7"},
      {"7x", "f32", "f4E2M1FN", UNARY("arith.truncf", "f32", "f4E2M1FN"), NULL},
      {"v6e", "f4E2M1FN", "f32", UNARY("arith.extf", "f4E2M1FN", "f32"),
       "Unsupported type 'vector<8x128x8xf4E2M1FN>'"},
      {"7x", "f4E2M1FN", "f32", UNARY("arith.extf", "f4E2M1FN", "f32"), NULL},
  };
  expect_ones(rows, AT_LEN(rows));
}

// ---- Products
// 8 x 128 of `left` times 128 x 128 of `right`, added to `sum`.
typedef struct product {
  const char *chip, *left, *right, *sum, *precision, *says;
} product;

static void expect_product(const product *x) {
  at_arena *a = at_arena_create();
  const char *body = at_arena_printf(
      a,
      "%%x = 'vector.load'(%%a, %%i, %%i) : (M:%s, index, index) -> V:%s\n"
      "%%w = 'vector.load'(%%b, %%i, %%i) : (memref<128x128x%s, in:vmem>, "
      "index, index) -> vector<128x128x%s>\n"
      "%%z = 'vector.load'(%%c, %%i, %%i) : (M:%s, index, index) -> V:%s\n"
      "%%y = 'tpu.matmul'(%%x, %%w, %%z) %s: (V:%s, vector<128x128x%s>, V:%s) "
      "-> V:%s\n"
      "'vector.store'(%%y, %%c, %%i, %%i) : (V:%s, M:%s, index, index) -> "
      "()\n",
      x->left, x->left, x->right, x->right, x->sum, x->sum,
      x->precision ? x->precision : "", x->left, x->right, x->sum, x->sum,
      x->sum, x->sum);
  const refused r = {
      x->says,
      x->chip,
      {at_arena_printf(a, "M:%s", x->left),
       at_arena_printf(a, "memref<128x128x%s, in:vmem>", x->right),
       at_arena_printf(a, "M:%s", x->sum)},
      body};
  expect_refusal(kernel_of(a, &r), x->chip, x->says);
  at_arena_destroy(a);
}

#define FP32 "{precision = #tpu.contract_precision<fp32>} "

static void products(void **state) {
  static const product rows[] = {
      {"v5e", "f32", "f32", "f32", NULL, NULL},
      {"v5e", "bf16", "bf16", "f32", NULL, NULL},
      {"v5e", "bf16", "f32", "f32", NULL, NULL},
      {"v5e", "f32", "f32", "f32", FP32, NULL},
      {"v5e", "bf16", "f32", "f32", FP32, "Bad lhs type"},
      {"v5e", "f32", "bf16", "f32", FP32, "Bad rhs type"},
      {"v5e", "i8", "i8", "i32", NULL, NULL},
      {"v5e", "i4", "i4", "i32", NULL, NULL},
      {"v5e", "i8", "i4", "i32", NULL, "Mix int/int - NYI"},
      {"v5e", "i16", "i16", "i32", NULL,
       "Bad lhs/rhs type: 'vector<8x128xi16>' 'vector<128x128xi16>'"},
      {"v5e", "i8", "i8", "f32", NULL, "float acc with int lhs"},
      {"v6e", "f8E5M2", "f8E5M2", "f32", NULL, NULL},
      {"v6e", "f4E2M1FN", "f4E2M1FN", "f32", NULL, "Bad lhs/rhs type"},
      {"7x", "f4E2M1FN", "f4E2M1FN", "f32", NULL, NULL},
      // v4's matrix unit has no bytes, that of v4i has.
      {"v4", "i8", "i8", "i32", NULL,
       "Unsupported matmul RHS type on target: vector<128x128xi8>"},
      {"v4i", "i8", "i8", "i32", NULL, NULL},
      {"v4", "bf16", "bf16", "f32", NULL, NULL},
      {"v4", "bf16", "f8E5M2", "f32", NULL,
       "Unsupported matmul RHS type on target: vector<128x128xf8E5M2>"},
      {"v4", "f8E5M2", "bf16", "f32", NULL,
       "unsupported data format for vmatmul: vector<8x128xf8E5M2>"},
      // From v7 on integers are multiplied as floats.
      {"7x", "i16", "i16", "i32", NULL, "Integer inputs with bitwidth 16"},
      {"7x", "bf16", "bf16", "i16", NULL, "Integer inputs with bitwidth 16"},
      {"7x", "i32", "i32", "f32", NULL, "float acc with int lhs"},
      {"7x", "i8", "i8", "i32", NULL, NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) expect_product(&rows[i]);
}

// ---- Gathers, rotations, masks
// %y of vectors of R x C: gathered along `dim`.
static void gathers(void **state) {
  static const struct {
    const char *chip, *size, *t, *index;
    int dim;
    const char *says;
  } rows[] = {
      {"v5e", "8x128", "f32", "i32", 1, NULL},
      {"v5e", "8x128", "f32", "i32", 0, NULL},
      {"v5e", "16x128", "f32", "i32", 0, "Multiple source vregs"},
      {"v5e", "8x256", "f32", "i32", 1, "Multiple source vregs"},
      {"v6e", "16x128", "bf16", "i16", 0, NULL},
      {"v6e", "24x128", "bf16", "i16", 0, "Multiple source vregs"},
      {"v6e", "32x128", "i8", "i8", 0, NULL},
      {"v5e", "16x128", "bf16", "i16", 0, "Byte gather not supported"},
      {"v5e", "16x128", "bf16", "i16", 1, "Unsupported set permute mode"},
      {"v5e", "32x128", "i8", "i8", 1, NULL},
      {"v6e", "16x128", "bf16", "i16", 1, NULL},
      {"v6e", "64x128", "i4", "i4", 1, "Only 8-, 16- or 32-bit gathers"},
      {"v5e", "1x128", "bf16", "i16", 0, NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    const char *size = rows[i].size, *t = rows[i].t, *k = rows[i].index;
    const char *body = at_arena_printf(
        a,
        "%%x = 'vector.load'(%%a, %%i, %%i) : (memref<%sx%s, in:vmem>, index, "
        "index) -> vector<%sx%s>\n"
        "%%k = 'vector.load'(%%b, %%i, %%i) : (memref<%sx%s, in:vmem>, index, "
        "index) -> vector<%sx%s>\n"
        "%%y = 'tpu.dynamic_gather'(%%x, %%k) {dimensions = array<i32: %d>} : "
        "(vector<%sx%s>, vector<%sx%s>) -> vector<%sx%s>\n"
        "'vector.store'(%%y, %%a, %%i, %%i) : (vector<%sx%s>, memref<%sx%s, "
        "in:vmem>, index, index) -> ()\n",
        size, t, size, t, size, k, size, k, rows[i].dim, size, t, size, k, size,
        t, size, t, size, t);
    const refused r = {rows[i].says,
                       rows[i].chip,
                       {at_arena_printf(a, "memref<%sx%s, in:vmem>", size, t),
                        at_arena_printf(a, "memref<%sx%s, in:vmem>", size, k)},
                       body};
    expect_refusal(kernel_of(a, &r), r.chip, r.says);
    at_arena_destroy(a);
  }
}

// By 7, and by one more along another dimension.
static void rotations(void **state) {
  static const struct {
    const char *chip, *size, *t;
    int dim, along;
    const char *says;
  } rows[] = {
      {"v5e", "8x128", "f32", 1, 0, NULL},
      {"v5e", "8x128", "f32", 0, 1, "stride dimension is the minor most"},
      {"v5e", "8x64", "f32", 1, 0, "unsupported unaligned shape"},
      {"v5e", "16x128", "i16", 1, 0, NULL},
      {"v5e", "32x128", "i8", 1, 0,
       "must be >= 16 (got 8) on TPU v5 when stride dimension"},
      {"v6e", "32x128", "i8", 1, 0, NULL},
      {"v6e", "64x128", "i4", 1, 0,
       "must be >= 8 (got 4) on TPU v6 when stride dimension"},
      {"v5e", "12x128", "f32", 0, 1, "unsupported unaligned shape"},
      {"v5e", "2x8x128", "f32", 2, 0, NULL},
      {"v5e", "2x8x128", "f32", 1, 0, NULL},
      {"v5e", "2x8x128", "f32", 0, 1, "rotation dimension must be the minor"},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    const char *size = rows[i].size, *t = rows[i].t;
    bool three = strchr(strchr(size, 'x') + 1, 'x') != NULL;
    const char *at = three ? "%i, %i, %i" : "%i, %i";
    const char *is = three ? "index, index, index" : "index, index";
    const char *ref = at_arena_printf(a, "memref<%sx%s, in:vmem>", size, t);
    const char *body = at_arena_printf(
        a,
        "%%x = 'vector.load'(%%a, %s) : (%s, %s) -> vector<%sx%s>\n"
        "%%y = 'tpu.dynamic_rotate'(%%x, %%n) {dimension = %d : i32, stride = "
        "1 : i32, stride_dimension = %d : i32} : (vector<%sx%s>, i32) -> "
        "vector<%sx%s>\n"
        "'vector.store'(%%y, %%a, %s) : (vector<%sx%s>, %s, %s) -> ()\n",
        at, ref, is, size, t, rows[i].dim, rows[i].along, size, t, size, t, at,
        size, t, ref, is);
    const refused r = {rows[i].says, rows[i].chip, {ref}, body};
    expect_refusal(kernel_of(a, &r), r.chip, r.says);
    at_arena_destroy(a);
  }
}

// Masks of `first` and of `second` rows or lanes, joined.
static void joined_masks(void **state) {
  static const struct {
    const char *first, *second, *both;
    int dim;
    bool good;
  } rows[] = {
      {"8x128", "8x128", "16x128", 0, true},
      {"4x128", "4x128", "8x128", 0, false},
      {"16x128", "4x128", "20x128", 0, true},
      {"8x128", "8x128", "8x256", 1, true},
      {"8x64", "8x64", "8x128", 1, false},
      {"8x256", "8x64", "8x320", 1, true},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    const char *f = rows[i].first, *s = rows[i].second, *o = rows[i].both;
    const char *body = at_arena_printf(
        a,
        "%%x = 'vector.load'(%%a, %%i, %%i) : (memref<%sxi32, in:vmem>, "
        "index, index) -> vector<%sxi32>\n"
        "%%w = 'vector.load'(%%b, %%i, %%i) : (memref<%sxi32, in:vmem>, "
        "index, index) -> vector<%sxi32>\n"
        "%%p = 'arith.cmpi'(%%x, %%x) {predicate = 2 : i64} : (vector<%sxi32>, "
        "vector<%sxi32>) -> vector<%sxi1>\n"
        "%%q = 'arith.cmpi'(%%w, %%w) {predicate = 4 : i64} : (vector<%sxi32>, "
        "vector<%sxi32>) -> vector<%sxi1>\n"
        "%%m = 'tpu.concatenate'(%%p, %%q) {dimension = %d : i32} : "
        "(vector<%sxi1>, vector<%sxi1>) -> vector<%sxi1>\n"
        "%%y = 'arith.extui'(%%m) : (vector<%sxi1>) -> vector<%sxi32>\n"
        "'vector.store'(%%y, %%c, %%i, %%i) : (vector<%sxi32>, memref<%sxi32, "
        "in:vmem>, index, index) -> ()\n",
        f, f, s, s, f, f, f, s, s, s, rows[i].dim, f, s, o, o, o, o, o);
    const char *says = rows[i].good ? NULL : "Invalid vector register cast";
    const refused r = {says,
                       "v5e",
                       {at_arena_printf(a, "memref<%sxi32, in:vmem>", f),
                        at_arena_printf(a, "memref<%sxi32, in:vmem>", s),
                        at_arena_printf(a, "memref<%sxi32, in:vmem>", o)},
                       body};
    expect_refusal(kernel_of(a, &r), "v5e", says);
    at_arena_destroy(a);
  }
}

// The generator takes one number or two; a product's left side goes in by
// another way from v7 on.
static void seeds_and_registers(void **state) {
  static const refused rows[] = {
      {NULL, "v5e", {"S:i32"}, "'tpu.prng_set_seed_32'(%n) : (i32) -> ()\n"},
      {NULL,
       "v5e",
       {"S:i32"},
       "'tpu.prng_set_seed_32'(%n, %n) : (i32, i32) -> ()\n"},
      {NULL,
       "7x",
       {"M:bf16"},
       "%x = 'vector.load'(%a, %i, %i) : (M:bf16, index, index) -> V:bf16\n"
       "'tpu.matmul_acc_lhs'(%x) {acc = 0 : i32, mxu_index = 0 : i32} : "
       "(V:bf16) -> ()\n"},
      {NULL,
       "v6e",
       {"M:bf16"},
       "%x = 'vector.load'(%a, %i, %i) : (M:bf16, index, index) -> V:bf16\n"
       "'tpu.matmul_lhs_fifo'(%x) {mxu_index = 0 : i32} : (V:bf16) -> ()\n"},
  };
  refuse_all(rows, AT_LEN(rows));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers),
      cmocka_unit_test(extrema),
      cmocka_unit_test(folded),
      cmocka_unit_test(floats),
      cmocka_unit_test(products),
      cmocka_unit_test(gathers),
      cmocka_unit_test(rotations),
      cmocka_unit_test(joined_masks),
      cmocka_unit_test(seeds_and_registers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
