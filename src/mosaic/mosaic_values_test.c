// What kernels compute, element by element and between elements: each operation
// on values whose results are worked out here.
#include "mosaic/run_test_util.h"

#include <math.h>

enum { ROWS = 8, LANES = 128, N = ROWS * LANES };

// ---- Element by element
// An operation of two floats, those of one leave y alone; a third is |x|.
typedef struct float_op {
  const char *name, *attrs;
  uint32_t operands;
  double (*f)(double x, double y);
  double ulps;  // of f32 that the result may be away from f, rounded
} float_op;

static double f_add(double x, double y) { return x + y; }
static double f_sub(double x, double y) { return x - y; }
static double f_mul(double x, double y) { return x * y; }
static double f_div(double x, double y) { return x / y; }
static double f_fma(double x, double y) { return fma(x, y, fabs(x)); }
static double f_reciprocal(double x, double y) { return 1 / x; }
static double f_neg(double x, double y) { return -x; }
static double f_abs(double x, double y) { return fabs(x); }
static double f_ceil(double x, double y) { return ceil(x); }
static double f_floor(double x, double y) { return floor(x); }
static double f_round(double x, double y) { return round(x); }
static double f_even(double x, double y) { return rint(x); }
static double f_trunc(double x, double y) { return trunc(x); }
static double f_rem(double x, double y) { return fmod(x, y); }
static double f_sign(double x, double y) { return copysign(x, y); }
static double f_atan2(double x, double y) { return atan2(x, y); }
static double f_exp(double x, double y) { return exp(x); }
static double f_exp2(double x, double y) { return exp2(x); }
static double f_expm1(double x, double y) { return expm1(x); }
static double f_tanh(double x, double y) { return tanh(x); }
static double f_sin(double x, double y) { return sin(x); }
static double f_cos(double x, double y) { return cos(x); }
static double f_tan(double x, double y) { return tan(x); }
static double f_erf(double x, double y) { return erf(x); }
static double f_logistic(double x, double y) { return 1 / (1 + exp(-x)); }
static double f_max(double x, double y) {
  return isnan(x) || isnan(y) ? NAN : fmax(x, y);
}
static double f_min(double x, double y) {
  return isnan(x) || isnan(y) ? NAN : fmin(x, y);
}
static double f_maxnum(double x, double y) { return fmax(x, y); }
static double f_minnum(double x, double y) { return fmin(x, y); }
// Of numbers that are not negative.
static double f_log(double x, double y) { return log(fabs(x)); }
static double f_log2(double x, double y) { return log2(fabs(x)); }
static double f_log1p(double x, double y) { return log1p(fabs(x)); }
static double f_sqrt(double x, double y) { return sqrt(fabs(x)); }
static double f_rsqrt(double x, double y) { return 1 / sqrt(fabs(x)); }
static double f_pow(double x, double y) { return pow(fabs(x), y); }

static const float_op float_ops[] = {
    {"arith.addf %x, %y", "", 2, f_add, 0},
    {"arith.subf %x, %y", "", 2, f_sub, 0},
    {"arith.mulf %x, %y", "", 2, f_mul, 0},
    {"arith.divf %x, %y", "", 2, f_div, 0},
    {"arith.remf %x, %y", "", 2, f_rem, 0},
    {"arith.maximumf %x, %y", "", 2, f_max, 0},
    {"arith.minimumf %x, %y", "", 2, f_min, 0},
    {"arith.maxnumf %x, %y", "", 2, f_maxnum, 0},
    {"arith.minnumf %x, %y", "", 2, f_minnum, 0},
    {"arith.negf %x", "", 1, f_neg, 0},
    {"math.absf %x", "", 1, f_abs, 0},
    {"math.ceil %x", "", 1, f_ceil, 0},
    {"math.floor %x", "", 1, f_floor, 0},
    {"math.round %x", "", 1, f_round, 0},
    {"math.roundeven %x", "", 1, f_even, 0},
    {"math.trunc %x", "", 1, f_trunc, 0},
    {"math.copysign %x, %y", "", 2, f_sign, 0},
    {"math.fma %x, %y, %a", "", 3, f_fma, 0},
    {"tpu.reciprocal %x", "", 1, f_reciprocal, 0},
    {"math.atan2 %x, %y", "", 2, f_atan2, 4},
    {"math.exp %x", "", 1, f_exp, 4},
    {"math.exp2 %x", "", 1, f_exp2, 4},
    {"math.expm1 %x", "", 1, f_expm1, 4},
    {"math.tanh %x", "", 1, f_tanh, 8},
    {"math.sin %x", "", 1, f_sin, 4},
    {"math.cos %x", "", 1, f_cos, 4},
    {"math.tan %x", "", 1, f_tan, 4},
    {"math.erf %x", "", 1, f_erf, 8},
    {"tpu.logistic %x", "", 1, f_logistic, 8},
    {"math.log %a", "", 1, f_log, 4},
    {"math.log2 %a", "", 1, f_log2, 4},
    {"math.log1p %a", "", 1, f_log1p, 4},
    {"math.sqrt %a", "", 1, f_sqrt, 0},
    {"math.rsqrt %a", "", 1, f_rsqrt, 2},
    {"math.powf %a, %y", "", 2, f_pow, 8},
};

// "dialect.op %x, %y" becomes a line, its result stored as block `row` of %o.
static void add_op(at_strbuf *b, const char *op, const char *attrs, uint32_t n,
                   const char *from, const char *to, uint32_t row) {
  size_t name = strcspn(op, " ");
  at_strbuf_addf(b, "%%r%u = '%.*s'(%s) %s : (", row, (int)name, op,
                 op + name + 1, attrs);
  for (uint32_t i = 0; i < n; i++)
    at_strbuf_addf(b, "%s!8x128x%s", i ? ", " : "", from);
  at_strbuf_addf(b, ") -> !8x128x%s\n", to);
}

static void add_store(at_strbuf *b, const char *value, const char *type,
                      uint32_t rows, uint32_t block) {
  at_strbuf_addf(
      b,
      "%%at%u = 'arith.constant'() {value = %u : index} : () -> index\n"
      "'vector.store'(%s, %%o, %%at%u, %%c0) : (!8x128x%s, &%ux128x%s, index, "
      "index) -> ()\n",
      block, block * ROWS, value, block, type, rows, type);
}

static float g_x[N], g_y[N];
static int32_t g_p[N], g_q[N];

// Values of both signs, halves and specials; no y is 0.
static void fill(void) {
  static const float special[] = {0.0f, -0.0f, 0.5f, -0.5f, 1.5f, 2.5f, -2.5f};
  for (int i = 0; i < N; i++) {
    g_x[i] = i < 7 ? special[i] : (float)((i * 37) % 251 - 125) / 16;
    g_y[i] = (float)((i * 53) % 127 - 63) / 8;
    if (g_y[i] == 0) g_y[i] = 3;
    g_p[i] = (int32_t)((uint32_t)i * 2654435761u) >> (i % 28);
    g_q[i] = i % 5 == 0 ? -(i % 31) - 1 : i % 31 + 1;
  }
}

static bool is_close(float got, double want, double ulps) {
  if (isnan(want)) return isnan(got);
  if (got == (float)want) return true;
  return fabs(got - want) <= ulps * ldexp(fabs(want) + 0x1p-126, -23);
}

static float g_out[64 * N];

static void judge_floats(const rt_kernel *k) {
  for (size_t o = 0; o < AT_LEN(float_ops); o++)
    for (int i = 0; i < N; i++) {
      double want = float_ops[o].f(g_x[i], g_y[i]);
      if (!is_close(g_out[o * N + i], want, float_ops[o].ulps))
        fail_msg("%s of %g, %g: %.9g, want %.9g", float_ops[o].name, g_x[i],
                 g_y[i], g_out[o * N + i], want);
    }
}

static void floats(void **state) {
  enum { ROWS_OUT = (int)AT_LEN(float_ops) * ROWS };
  char type[32];
  snprintf(type, sizeof type, "%dx128xf32", ROWS_OUT);
  at_strbuf b = {0};
  at_strbuf_addz(
      &b,
      "%x = 'vector.load'(%in, %c0, %c0) : (&8x128xf32, index, index) -> "
      "!8x128xf32\n"
      "%y = 'vector.load'(%too, %c0, %c0) : (&8x128xf32, index, index) -> "
      "!8x128xf32\n"
      "%a = 'math.absf'(%x) : (!8x128xf32) -> !8x128xf32\n");
  for (uint32_t o = 0; o < AT_LEN(float_ops); o++) {
    char value[16];
    snprintf(value, sizeof value, "%%r%u", o);
    add_op(&b, float_ops[o].name, float_ops[o].attrs, float_ops[o].operands,
           "f32", "f32", o);
    add_store(&b, value, "f32", ROWS_OUT, o);
  }
  rt_kernel k = {{{"in", "8x128xf32", g_x, false},
                  {"too", "8x128xf32", g_y, false},
                  {"o", type, g_out, false}},
                 b.ptr,
                 NULL};
  fill();
  rt_each(&k, judge_floats);
  at_strbuf_free(&b);
}

// Of p and q as 32 bits; shifts take q's low bits.
typedef struct int_op {
  const char *name;
  uint32_t operands;
  int32_t (*f)(int32_t p, int32_t q);
} int_op;

static int32_t i_add(int32_t p, int32_t q) {
  return (int32_t)((uint32_t)p + (uint32_t)q);
}
static int32_t i_sub(int32_t p, int32_t q) {
  return (int32_t)((uint32_t)p - (uint32_t)q);
}
static int32_t i_mul(int32_t p, int32_t q) {
  return (int32_t)((uint32_t)p * (uint32_t)q);
}
static int32_t i_div(int32_t p, int32_t q) { return (int32_t)((int64_t)p / q); }
static int32_t i_divu(int32_t p, int32_t q) {
  return (int32_t)((uint32_t)p / (uint32_t)q);
}
static int32_t i_rem(int32_t p, int32_t q) { return (int32_t)((int64_t)p % q); }
static int32_t i_remu(int32_t p, int32_t q) {
  return (int32_t)((uint32_t)p % (uint32_t)q);
}
static int32_t i_and(int32_t p, int32_t q) { return p & q; }
static int32_t i_or(int32_t p, int32_t q) { return p | q; }
static int32_t i_xor(int32_t p, int32_t q) { return p ^ q; }
static int32_t i_shl(int32_t p, int32_t q) {
  return (int32_t)((uint32_t)p << (q & 31));
}
static int32_t i_shr(int32_t p, int32_t q) { return p >> (q & 31); }
static int32_t i_shru(int32_t p, int32_t q) {
  return (int32_t)((uint32_t)p >> (q & 31));
}
static int32_t i_max(int32_t p, int32_t q) { return p > q ? p : q; }
static int32_t i_min(int32_t p, int32_t q) { return p < q ? p : q; }
static int32_t i_maxu(int32_t p, int32_t q) {
  return (uint32_t)p > (uint32_t)q ? p : q;
}
static int32_t i_minu(int32_t p, int32_t q) {
  return (uint32_t)p < (uint32_t)q ? p : q;
}
static int32_t i_clz(int32_t p, int32_t q) {
  return p ? __builtin_clz((uint32_t)p) : 32;
}
static int32_t i_pop(int32_t p, int32_t q) {
  return __builtin_popcount((uint32_t)p);
}
static int32_t i_abs(int32_t p, int32_t q) {
  return p < 0 ? (int32_t) - (uint32_t)p : p;
}

static const int_op int_ops[] = {
    {"arith.addi %p, %q", 2, i_add},   {"arith.subi %p, %q", 2, i_sub},
    {"arith.muli %p, %q", 2, i_mul},   {"arith.divsi %p, %q", 2, i_div},
    {"arith.divui %p, %q", 2, i_divu}, {"arith.remsi %p, %q", 2, i_rem},
    {"arith.remui %p, %q", 2, i_remu}, {"arith.andi %p, %q", 2, i_and},
    {"arith.ori %p, %q", 2, i_or},     {"arith.xori %p, %q", 2, i_xor},
    {"arith.shli %p, %s", 2, i_shl},   {"arith.shrsi %p, %s", 2, i_shr},
    {"arith.shrui %p, %s", 2, i_shru}, {"arith.maxsi %p, %q", 2, i_max},
    {"arith.minsi %p, %q", 2, i_min},  {"arith.maxui %p, %q", 2, i_maxu},
    {"arith.minui %p, %q", 2, i_minu}, {"math.ctlz %p", 1, i_clz},
    {"math.ctpop %p", 1, i_pop},       {"math.absi %p", 1, i_abs},
};
static int32_t g_ints[64 * N];

// The predicates of arith.cmpi in their order.
static bool compares(int predicate, int32_t p, int32_t q) {
  uint32_t u = (uint32_t)p, v = (uint32_t)q;
  const bool all[] = {
      p == q, p != q, p<q, p <= q, p> q, p >= q, u<v, u <= v, u> v, u >= v};
  return all[predicate];
}

static void judge_ints(const rt_kernel *k) {
  for (size_t o = 0; o < AT_LEN(int_ops); o++)
    for (int i = 0; i < N; i++)
      if (g_ints[o * N + i] != int_ops[o].f(g_p[i], g_q[i]))
        fail_msg("%s of %d, %d: %d", int_ops[o].name, g_p[i], g_q[i],
                 g_ints[o * N + i]);
  for (int c = 0; c < 10; c++)
    for (int i = 0; i < N; i++) {
      int32_t want = compares(c, g_p[i], g_q[i]) ? g_p[i] : g_q[i];
      if (g_ints[(AT_LEN(int_ops) + c) * N + i] != want)
        fail_msg("predicate %d of %d, %d", c, g_p[i], g_q[i]);
    }
}

static void integers(void **state) {
  enum { ALL = ((int)AT_LEN(int_ops) + 10) * ROWS };
  char type[32], line[512], value[16];
  snprintf(type, sizeof type, "%dx128xi32", ALL);
  at_strbuf b = {0};
  at_strbuf_addz(
      &b,
      "%p = 'vector.load'(%in, %c0, %c0) : (&8x128xi32, index, index) -> "
      "!8x128xi32\n"
      "%q = 'vector.load'(%too, %c0, %c0) : (&8x128xi32, index, index) -> "
      "!8x128xi32\n"
      "%m = 'arith.constant'() {value = dense<31> : !8x128xi32} : () -> "
      "!8x128xi32\n"
      "%s = 'arith.andi'(%q, %m) : (!8x128xi32, !8x128xi32) -> !8x128xi32\n");
  for (uint32_t o = 0; o < AT_LEN(int_ops); o++) {
    snprintf(value, sizeof value, "%%r%u", o);
    add_op(&b, int_ops[o].name, "", int_ops[o].operands, "i32", "i32", o);
    add_store(&b, value, "i32", ALL, o);
  }
  for (uint32_t c = 0; c < 10; c++) {
    snprintf(line, sizeof line,
             "%%b%u = 'arith.cmpi'(%%p, %%q) {predicate = %u : i64} : "
             "(!8x128xi32, !8x128xi32) -> !8x128xi1\n"
             "%%t%u = 'arith.select'(%%b%u, %%p, %%q) : (!8x128xi1, "
             "!8x128xi32, !8x128xi32) -> !8x128xi32\n",
             c, c, c, c);
    at_strbuf_addz(&b, line);
    snprintf(value, sizeof value, "%%t%u", c);
    add_store(&b, value, "i32", ALL, (uint32_t)AT_LEN(int_ops) + c);
  }
  rt_kernel k = {{{"in", "8x128xi32", g_p, false},
                  {"too", "8x128xi32", g_q, false},
                  {"o", type, g_ints, false}},
                 b.ptr,
                 NULL};
  fill();
  rt_each(&k, judge_ints);
  at_strbuf_free(&b);
}

// ---- Conversions
#define EVEN " {rounding_mode = #tpu.rounding_mode<to_nearest_even>}"
#define ZERO " {rounding_mode = #tpu.rounding_mode<towards_zero>}"
// In this order; those called v0, v1, ... are stored.
static const struct {
  const char *to, *name, *from, *from_type, *to_type, *attrs;
} casts[] = {
    {"v0", "arith.sitofp", "p", "i32", "f32", ""},
    {"v1", "arith.uitofp", "p", "i32", "f32", ""},
    {"h", "arith.truncf", "x", "f32", "bf16", ""},
    {"v2", "arith.extf", "h", "bf16", "f32", ""},
    {"w", "arith.fptosi", "x", "f32", "i32", ""},
    {"v3", "arith.sitofp", "w", "i32", "f32", ""},
    {"l", "arith.trunci", "p", "i32", "i16", ""},
    {"s", "arith.extsi", "l", "i16", "i32", ""},
    {"v4", "arith.sitofp", "s", "i32", "f32", ""},
    {"u", "arith.extui", "l", "i16", "i32", ""},
    {"v5", "arith.sitofp", "u", "i32", "f32", ""},
    {"v6", "arith.bitcast", "p", "i32", "f32", ""},
    {"c", "arith.extui", "less", "i1", "i32", ""},
    {"v7", "arith.sitofp", "c", "i32", "f32", ""},
    {"m", "arith.extsi", "less", "i1", "i32", ""},
    {"v8", "arith.sitofp", "m", "i32", "f32", ""},
    {"v9", "tpu.sitofp", "p", "i32", "f32", EVEN},
    {"v10", "tpu.uitofp", "p", "i32", "f32", EVEN},
    {"t", "tpu.truncf", "x", "f32", "bf16", EVEN},
    {"v11", "tpu.extf", "t", "bf16", "f32", ""},
    {"z", "tpu.fptosi", "x", "f32", "i32", ZERO},
    {"v12", "arith.sitofp", "z", "i32", "f32", ""},
    {"e", "tpu.fptosi", "x", "f32", "i32", EVEN},
    {"v13", "arith.sitofp", "e", "i32", "f32", ""},
    {"v14", "tpu.reduce_precision", "x", "f32", "f32",
     " {exponent_bits = 8 : i32, mantissa_bits = 7 : i32}"},
    {"v15", "tpu.bitcast", "p", "i32", "f32", ""},
    {"v16", "vector.bitcast", "p", "i32", "f32", ""},
    {"d", "arith.fptoui", "a", "f32", "i32", ""},
    {"v17", "arith.uitofp", "d", "i32", "f32", ""},
};
enum { STORED = 18 };

static void judge_conversions(const rt_kernel *k) {
  for (int i = 0; i < N; i++) {
    uint16_t narrow;
    at_store_float(AT_BF16, &narrow, g_x[i]);
    int16_t low = (int16_t)g_p[i];
    float same_bits, less = g_x[i] < 1;
    memcpy(&same_bits, &g_p[i], sizeof same_bits);
    const float want[STORED] = {(float)g_p[i],
                                (float)(uint32_t)g_p[i],
                                (float)at_load_float(AT_BF16, &narrow),
                                truncf(g_x[i]),
                                (float)low,
                                (float)(uint16_t)low,
                                same_bits,
                                less,
                                -less,
                                (float)g_p[i],
                                (float)(uint32_t)g_p[i],
                                (float)at_load_float(AT_BF16, &narrow),
                                truncf(g_x[i]),
                                rintf(g_x[i]),
                                (float)at_load_float(AT_BF16, &narrow),
                                same_bits,
                                same_bits,
                                truncf(fabsf(g_x[i]))};
    for (size_t o = 0; o < STORED; o++)
      if (memcmp(&g_out[o * N + i], &want[o], sizeof(float)) &&
          g_out[o * N + i] != want[o])
        fail_msg("conversion %zu of %g, %d: %.9g, want %.9g", o, g_x[i], g_p[i],
                 g_out[o * N + i], want[o]);
  }
}

static void conversions(void **state) {
  at_strbuf b = {0};
  at_strbuf_addz(
      &b,
      "%x = 'vector.load'(%in, %c0, %c0) : (&8x128xf32, index, index) -> "
      "!8x128xf32\n"
      "%p = 'vector.load'(%ints, %c0, %c0) : (&8x128xi32, index, index) -> "
      "!8x128xi32\n"
      "%a = 'math.absf'(%x) : (!8x128xf32) -> !8x128xf32\n"
      "%one = 'arith.constant'() {value = dense<1.0> : !8x128xf32} : () -> "
      "!8x128xf32\n"
      "%less = 'arith.cmpf'(%x, %one) {predicate = 4 : i64} : (!8x128xf32, "
      "!8x128xf32) -> !8x128xi1\n");
  for (size_t i = 0; i < AT_LEN(casts); i++)
    at_strbuf_addf(&b, "%%%s = '%s'(%%%s)%s : (!8x128x%s) -> !8x128x%s\n",
                   casts[i].to, casts[i].name, casts[i].from, casts[i].attrs,
                   casts[i].from_type, casts[i].to_type);
  for (uint32_t o = 0; o < STORED; o++) {
    char value[16];
    snprintf(value, sizeof value, "%%v%u", o);
    add_store(&b, value, "f32", STORED * ROWS, o);
  }
  rt_kernel k = {{{"in", "8x128xf32", g_x, false},
                  {"ints", "8x128xi32", g_p, false},
                  {"o", "144x128xf32", g_out, false}},
                 b.ptr,
                 NULL};
  fill();
  rt_each(&k, judge_conversions);
  at_strbuf_free(&b);
}

int main(void) {
  // Products and sums of bf16 are another path on CPUs that have them.
  at_cpu_limit(AT_CPU_AVX2 | AT_CPU_AVX512);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(floats),
      cmocka_unit_test(integers),
      cmocka_unit_test(conversions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
