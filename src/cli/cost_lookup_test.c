// `atoll cost lookup`: what is no question is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
// cmocka needs the three headers above first.
#include <cmocka.h>

#include "cli/cli.h"

// The code of a question over groups of an all-reduce.
static int ask(const char *groups) {
  char *argv[] = {"cost", "lookup", "--target=H100:8", "all-reduce",
                  "f32",  "1M",     (char *)groups,    NULL};
  return at_code_take(at_cli_cost(7, argv));
}

// Counts whose product does not fit 32 bits, and such as do not fit themselves.
static void groups_are_bounded(void **state) {
  assert_int_equal(ask("1x8"), 0);
  assert_int_equal(ask("8"), AT_INVALID_ARGUMENT);
  assert_int_equal(ask("0x8"), AT_INVALID_ARGUMENT);
  assert_int_equal(ask("65536x65536"), AT_INVALID_ARGUMENT);
  assert_int_equal(ask("4294967297x8"), AT_INVALID_ARGUMENT);
  assert_int_equal(ask("1x4294967304"), AT_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(groups_are_bounded)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
