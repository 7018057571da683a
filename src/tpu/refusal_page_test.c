// Hints of refusals name their part of docs/refusals.md.
#include "tpu/refusal_page.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

// The message after the page has been added. Takes s.
static void says(at_status s, const char *want) {
  s = at_mosaic_refusal_page(s);
  assert_string_equal(at_status_message(s), want);
  at_status_free(s);
}

// Behind a hint that is there, or as a hint of its own.
static void test_hints(void **state) {
  (void)state;
  says(AT_FAIL(AT_UNIMPLEMENTED, "Couldn't prove that tiling\nhint: do"),
       "Couldn't prove that tiling\nhint: do; "
       "docs/refusals.md#where-a-window-begins has cause and cure");
  says(AT_FAIL(AT_UNIMPLEMENTED, "x: to not contain X{64|128} element types"),
       "x: to not contain X{64|128} element types\nhint: "
       "docs/refusals.md#64-bit-types has cause and cure");
  says(AT_FAIL(AT_UNIMPLEMENTED, "E1001: CompileTimeScopedVmemOom"),
       "E1001: CompileTimeScopedVmemOom\nhint: "
       "docs/refusals.md#vmem-smem-and-semaphores-are-too-small has cause and "
       "cure");
}

// Errors that the page does not know, and the code of those that it does.
static void test_what_is_no_refusal_stays(void **state) {
  (void)state;
  assert_true(at_ok(at_mosaic_refusal_page(AT_OK)));
  says(AT_FAIL(AT_INTERNAL, ""), "");
  says(AT_FAIL(AT_INTERNAL, "broken\ndetail: kernel takes an integer"),
       "broken\ndetail: kernel takes an integer");
  at_status s = at_mosaic_refusal_page(
      AT_FAIL(AT_RESOURCE_EXHAUSTED, "E1001: CompileTimeScopedVmemOom"));
  assert_int_equal(at_code_take(s), AT_RESOURCE_EXHAUSTED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hints),
      cmocka_unit_test(test_what_is_no_refusal_stays)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
