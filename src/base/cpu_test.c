// A CPU below the baseline is told so.
#include "base/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

// With every feature limited away; the message names what is missing.
static void below_the_baseline(void **state) {
  assert_true(at_ok(at_cpu_check()));  // this machine's
  at_cpu_limit(0);
  at_status st = at_cpu_check();
  assert_int_equal(at_status_code(st), AT_FAILED_PRECONDITION);
  assert_non_null(strstr(at_status_message(st), "AVX2"));
  at_status_free(st);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(below_the_baseline)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
