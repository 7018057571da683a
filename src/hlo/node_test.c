// The builder, attributes, rewrites, element conversion.
// cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <math.h>

#include "hlo/hlo.h"

static void test_build(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_comp *c;
  assert_true(at_ok(at_module_create(a, AT_STR("m"), &m)));
  assert_true(at_ok(at_comp_create(m, AT_STR("main"), NULL, &c)));
  at_type t;
  int64_t dims[] = {2, 3};
  assert_true(at_ok(at_type_make(a, AT_F32, (at_dims){dims, 2}, &t)));
  at_value v[2], sum;
  assert_true(at_ok(at_build_param(c, t, NULL, &v[0])));
  assert_true(at_ok(at_build_param(c, t, NULL, &v[1])));
  assert_true(at_ok(at_build_op(c, NULL, AT_OP_ADD, v, 2, NULL, &sum)));
  assert_true(at_type_eq(at_value_type(sum), &t));
  assert_int_equal(c->num_params, 2);
  assert_ptr_equal(c->first, v[0].node);
  assert_ptr_equal(c->last, sum.node);
  at_status s = at_build_op(c, NULL, AT_OP_POPCNT, v, 1, NULL, &sum);
  assert_int_equal(at_status_code(s), AT_INVALID_ARGUMENT);
  assert_non_null(strstr(at_status_message(s), "popcnt: operand 0"));
  at_status_free(s);
  at_arena_destroy(a);
}

static void test_table(void **state) {
  for (int i = 0; i < AT_OP_COUNT; i++) {
    at_op op;
    assert_true(at_op_parse(at_str_of(at_op_text(i)), &op));
    assert_int_equal(op, i);
    const at_op_info *info = at_op_of(i);
    for (uint32_t k = 0; k < info->attr_count; k++)
      assert_true(info->attrs[k] > 0 && info->attrs[k] < AT_ATTR_COUNT);
  }
  assert_int_equal(at_op_of(AT_OP_ADD)->attr_count, 0);
  assert_int_equal(at_op_of(AT_OP_CONVOLUTION)->attr_count, 17);
  assert_string_equal(at_enum_text(AT_ATTR_COMPARISON_DIRECTION, AT_LT), "LT");
  assert_null(at_enum_text(AT_ATTR_COMPARISON_DIRECTION, 6));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_build),
      cmocka_unit_test(test_table),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
