// Expected values are mpmath's in 80 digits, rounded to 25.
#include "base/special.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "base/span.h"

// Arguments and the value.
typedef struct row {
  double a, b;
  long double want;
} row;

static const row zetas[] = {{1.5, 0.25, 1.021305536046660073888286e+1L},
                            {2, 1, 1.644934066848226436472415L},
                            {2, 0.001, 1.00000164253319582734467e+6L},
                            {3, 0.5, 8.414398322117159997798167L},
                            {4.25, 17.75, 2.935715518693563804055377e-5L},
                            {1.0000001, 3, 9.999999071377035075596325e+6L},
                            {20, 1000.0, 5.313324560120192304989080e-59L},
                            {2.5, 100000000.0, 6.666666716666666875e-13L},
                            {3, -2.25, -6.194847488703008279059366e+1L},
                            {4, -7.75, 2.597569867652677599701734e+2L},
                            {2, -0x1p40 - 0.25, 1.973920880217780774296721e+1L},
                            {60, 0.7, 1.968419230117607441409024e+9L}};
static const row polygammas[] = {{0, 1.5, 3.648997397857652055902367e-2L},
                                 {0, -0.75, -2.894120200042932074756197L},
                                 {0, 1e-05, -1.00000577199215672888681e+5L},
                                 {1, 1, 1.644934066848226436472415L},
                                 {1, 0.01, 1.000162121352831280378924e+4L},
                                 {2, 3.5, -1.082040516417274030037417e-1L},
                                 {3, 10000.0, 2.000300019999999900000001e-12L},
                                 {5, 0.3, 1.646348460992230364336655e+5L},
                                 {12, 2.25, -1.275593455234736769497639e+4L},
                                 {1, -2.25, 1.937941051186913736259519e+1L},
                                 {2, -30.125, 1.02229332494609237640911e+3L},
                                 {40, 9.5, -6.796206805302335955509401e+7L}};

// Relative errors of at most 1e-16.
static void check(const row *r, size_t n,
                  long double (*f)(long double, long double)) {
  for (size_t i = 0; i < n; i++) {
    long double got = f(r[i].a, r[i].b);
    assert_true(fabsl(got - r[i].want) <= 1e-16L * fabsl(r[i].want));
  }
}

static void test_values(void **state) {
  (void)state;
  check(zetas, AT_LEN(zetas), at_zeta);
  check(polygammas, AT_LEN(polygammas), at_polygamma);
}

// Poles, infinities and NaN.
static void test_special_arguments(void **state) {
  (void)state;
  assert_true(isinf(at_zeta(1, 3)));
  assert_true(isnan(at_zeta(0.5, 3)));
  assert_true(isnan(at_zeta(NAN, 3)) && isnan(at_zeta(2, NAN)));
  assert_true(at_zeta(2, INFINITY) == 0);
  assert_true(isinf(at_zeta(2, -3)) && isnan(at_zeta(3, -3)));
  assert_true(isnan(at_zeta(2.5, -0.5)));
  assert_true(isnan(at_polygamma(-1, 2)) && isnan(at_polygamma(1.5, 2)));
  assert_true(isnan(at_polygamma(0, -2)));
  assert_true(at_polygamma(0, 0.0) == -INFINITY);
  assert_true(at_polygamma(0, -0.0) == INFINITY);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_values),
      cmocka_unit_test(test_special_arguments),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
