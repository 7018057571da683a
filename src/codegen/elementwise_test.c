// Elementwise ops on every element type, for both widths of vectors.
#include "codegen/check.h"

static const uint64_t k_targets[] = {~0ull, AT_CPU_AVX2};

typedef enum at_kinds {
  F = 1,
  I = 2,
  U = 4,
  B = 8,
  C = 16,
  N = 32, /* narrow floats too */
  S = 64  /* infinities and NaN of complex numbers too */
} at_kinds;

static const struct {
  at_op op;
  uint32_t arity, kinds;
  double ulps, absolute;
} k_ops[] = {
    {AT_OP_ABS, 1, F | I | C, 4, 0},
    {AT_OP_CBRT, 1, F, 4, 0},
    {AT_OP_CEIL, 1, F, 0, 0},
    {AT_OP_COSINE, 1, F, 4, 1e-7},
    {AT_OP_EXPONENTIAL, 1, F, 4, 0},
    {AT_OP_EXPONENTIAL_MINUS_ONE, 1, F, 4, 0},
    {AT_OP_FLOOR, 1, F, 0, 0},
    {AT_OP_IS_FINITE, 1, F, 0, 0},
    {AT_OP_LOG, 1, F, 4, 0},
    {AT_OP_LOG_PLUS_ONE, 1, F, 4, 0},
    {AT_OP_LOGISTIC, 1, F, 6, 0},
    {AT_OP_NEGATE, 1, F | I | C, 0, 0},
    {AT_OP_NOT, 1, I | U | B, 0, 0},
    {AT_OP_POPCNT, 1, I | U, 0, 0},
    {AT_OP_COUNT_LEADING_ZEROS, 1, I | U, 0, 0},
    {AT_OP_ROUND_NEAREST_AFZ, 1, F, 0, 0},
    {AT_OP_ROUND_NEAREST_EVEN, 1, F, 0, 0},
    {AT_OP_RSQRT, 1, F, 4, 0},
    {AT_OP_SIGN, 1, F | I, 0, 0},
    {AT_OP_SINE, 1, F, 4, 1e-7},
    {AT_OP_SQRT, 1, F, 1, 0},
    {AT_OP_TAN, 1, F, 6, 1e-6},
    {AT_OP_TANH, 1, F, 6, 0},
    {AT_OP_REAL, 1, C, 0, 0},
    {AT_OP_IMAG, 1, C, 0, 0},
    {AT_OP_ERF, 1, F, 6, 0},
    {AT_OP_TAN, 1, C | S, 8, 0},
    {AT_OP_TANH, 1, C | S, 8, 0},
    {AT_OP_ACOS, 1, C, 8, 0},
    {AT_OP_ACOSH, 1, C, 8, 0},
    {AT_OP_ASIN, 1, C, 8, 0},
    {AT_OP_ASINH, 1, C, 8, 0},
    {AT_OP_ATAN, 1, C, 8, 0},
    {AT_OP_ATANH, 1, C, 8, 0},
    {AT_OP_ADD, 2, F | I | U | B | C | N, 0, 0},
    {AT_OP_SUBTRACT, 2, F | I | U | C | N, 0, 0},
    {AT_OP_MULTIPLY, 2, F | I | U | B | N, 0, 0},
    {AT_OP_DIVIDE, 2, F | I | U | N, 0, 0},
    {AT_OP_REMAINDER, 2, F | I | U, 0, 0},
    {AT_OP_MAXIMUM, 2, F | I | U | B | N, 0, 0},
    {AT_OP_MINIMUM, 2, F | I | U | B | N, 0, 0},
    {AT_OP_AND, 2, I | U | B, 0, 0},
    {AT_OP_OR, 2, I | U | B, 0, 0},
    {AT_OP_XOR, 2, I | U | B, 0, 0},
    {AT_OP_POWER, 2, F | I | U, 8, 0},
    {AT_OP_ATAN2, 2, F, 4, 0},
    {AT_OP_SHIFT_LEFT, 2, I | U, 0, 0},
    {AT_OP_SHIFT_RIGHT_ARITHMETIC, 2, I | U, 0, 0},
    {AT_OP_SHIFT_RIGHT_LOGICAL, 2, I | U, 0, 0},
    {AT_OP_MULHI, 2, I | U, 0, 0},
    {AT_OP_NEXT_AFTER, 2, F, 0, 0},
    {AT_OP_POLYGAMMA, 2, F, 0, 0},
    {AT_OP_ZETA, 2, F, 0, 0},
};

// Does the op have this element type?
static bool takes(uint32_t kinds, at_dtype t) {
  if (t == AT_PRED) return kinds & B;
  if (at_is_complex(t)) return kinds & C;
  if (at_is_signed_int(t)) return kinds & I;
  if (at_is_unsigned_int(t)) return kinds & U;
  if (at_dtype_bytes(t) > 1) return kinds & F;
  return kinds & N;
}

// Each op on each type that it has, for both widths of vectors. 0 ulps: bits
// must agree.
static void test_every_op(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    for (int t = AT_PRED; t < AT_TOKEN; t++) {
      ck c;
      ck_begin(&c, k_targets[f]);
      for (size_t i = 0; i < AT_LEN(k_ops); i++) {
        if (!takes(k_ops[i].kinds, (at_dtype)t)) continue;
        bool ends = !at_is_complex((at_dtype)t) || k_ops[i].kinds & S;
        int64_t n = k_ops[i].kinds & S ? 2000 : 77;
        at_type type = ck_type(&c, (at_dtype)t, 1, &n), two[] = {type, type};
        c.ulps = k_ops[i].ulps;
        c.absolute = k_ops[i].absolute;
        ck_op(&c, k_ops[i].op, two, k_ops[i].arity, NULL, 0, NULL, ends);
      }
      ck_end(&c);
    }
  }
}

// The sign of complex numbers whose magnitude is subnormal.
static void test_tiny_signs(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    ck_text(&c, "%0: f64[50], %1: f64[50]", "complex<f64>[50]",
            "%9 = fusion %0, %1 {kind=LOOP} ((%2: f64[50], %3: f64[50]) {\n"
            "%4 = constant {value=f64[] 1e-321} : f64[]\n"
            "%5 = broadcast_in_dim %4 {broadcast_dimensions=[]} : f64[50]\n"
            "%6 = multiply %2, %5 : f64[50]\n"
            "%7 = multiply %3, %5 : f64[50]\n"
            "%8 = complex %6, %7 : complex<f64>[50]\n"
            "%10 = sign %8 : complex<f64>[50]\nreturn %10\n"
            "}) : complex<f64>[50]\nreturn %9");
    ck_end(&c);
  }
}

// All directions, in natural and in total order; scalars beside arrays where
// the op allows them.
static void test_compare_select_clamp(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    for (int t = AT_PRED; t < AT_C64; t++) {
      int64_t n = 50;
      at_type type = ck_type(&c, (at_dtype)t, 1, &n), two[] = {type, type};
      at_type three[] = {type, type, type}, s = at_type_scalar((at_dtype)t);
      at_type mixed[] = {s, type, s},
              pick[] = {ck_type(&c, AT_PRED, 1, &n), type, type};
      at_type pick1[] = {at_type_scalar(AT_PRED), type, type};
      for (int64_t d = AT_EQ; d <= AT_LT; d++) {
        at_attr a[] = {{.id = AT_ATTR_COMPARISON_DIRECTION, .i = d},
                       {.id = AT_ATTR_COMPARE_TYPE, .i = AT_CMP_NOTYPE}};
        ck_op(&c, AT_OP_COMPARE, two, 2, a, 2, NULL, true);
        a[1].i = AT_CMP_TOTALORDER;
        if (at_is_float((at_dtype)t))
          ck_op(&c, AT_OP_COMPARE, two, 2, a, 2, NULL, true);
      }
      ck_op(&c, AT_OP_SELECT, pick, 3, NULL, 0, NULL, true);
      ck_op(&c, AT_OP_SELECT, pick1, 3, NULL, 0, NULL, true);
      ck_op(&c, AT_OP_CLAMP, three, 3, NULL, 0, NULL, true);
      ck_op(&c, AT_OP_CLAMP, mixed, 3, NULL, 0, NULL, true);
    }
    ck_end(&c);
  }
}

// Every type to every other: bits must agree.
static void test_convert(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    for (int a = AT_PRED; a < AT_TOKEN; a++) {
      for (int b = AT_PRED; b < AT_TOKEN; b++) {
        if (at_is_complex((at_dtype)a) && !at_is_complex((at_dtype)b)) continue;
        int64_t n = 90;
        at_type from = ck_type(&c, (at_dtype)a, 1, &n);
        at_type to = ck_type(&c, (at_dtype)b, 1, &n);
        c.ulps = 0;
        ck_op(&c, AT_OP_CONVERT, &from, 1, NULL, 0, &to, true);
      }
    }
    ck_end(&c);
  }
}

// Around vector lengths, nothing at all, and enough for several tasks.
static void test_sizes(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    static const int64_t sizes[] = {0, 1, 2, 3, 15, 16, 17, 64, 1000, 100003};
    static const at_dtype types[] = {AT_F32, AT_BF16, AT_U8,
                                     AT_F64, AT_C64,  AT_PRED};
    for (size_t i = 0; i < AT_LEN(sizes); i++) {
      for (size_t k = 0; k < AT_LEN(types); k++) {
        at_type t = ck_type(&c, types[k], 1, &sizes[i]), two[] = {t, t};
        ck_op(&c, AT_OP_ADD, two, 2, NULL, 0, NULL, false);
      }
    }
    ck_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sizes), cmocka_unit_test(test_every_op),
      cmocka_unit_test(test_tiny_signs),
      cmocka_unit_test(test_compare_select_clamp),
      cmocka_unit_test(test_convert)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
