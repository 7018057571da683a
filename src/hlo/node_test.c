// The builder, attributes, rewrites, element conversion.
// cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include "hlo/hlo.h"

// Types are inferred, parameters stand first, and an op refuses elements that
// it does not take.
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
  assert_int_equal(at_param_index(c, v[0].node), 0);
  assert_int_equal(at_param_index(c, v[1].node), 1);
  assert_int_equal(at_param_index(c, sum.node), 2);
  assert_ptr_equal(c->last, sum.node);
  at_status s = at_build_op(c, NULL, AT_OP_POPCNT, v, 1, NULL, &sum);
  assert_int_equal(at_status_code(s), AT_INVALID_ARGUMENT);
  assert_non_null(strstr(at_status_message(s), "popcnt: operand 0"));
  at_status_free(s);
  at_arena_destroy(a);
}

// Names read back to their op, attribute lists hold attributes.
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

// A module with one function of that signature and body.
static at_module *parse(at_arena *a, const char *body) {
  at_module *m;
  const char *text = at_arena_printf(
      a, "hlo module \"m\" entry=\"main\" {\nfunc \"main\" %s\n}\n", body);
  at_status s = at_hlo_parse(at_str_of(text), a, &m);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  return m;
}

// A clone is verified inside another function and maps what it captures.
static void test_clone(void **state) {
  at_arena *a = at_arena_create();
  at_module *m =
      parse(a,
            "(%0: f32[2], %1: i1[]) -> (f32[2]) { %2 = tanh %0 : f32[2] "
            "%3 = if %1 (() { %4 = add %2, %0 : f32[2] return %4 }, "
            "() { return %2 }) : f32[2] return %3 }");
  at_map map = at_map_in(a);
  at_comp *copy, *f;
  assert_true(at_ok(at_comp_clone(m, m->entry, &map, &copy)));
  assert_int_equal(copy->num_params, 2);
  at_node *tanh = m->entry->params[1]->next;
  at_node **mapped = (at_node **)at_map_find_ptr(&map, tanh);
  assert_non_null(mapped);
  assert_ptr_equal((*mapped)->parent, copy);
  assert_ptr_equal(copy->last->regions[1]->results[0].node, *mapped);
  // As the body of a fusion, it makes a valid module.
  assert_true(at_ok(at_comp_create(m, AT_STR("f"), NULL, &f)));
  at_value p[2], r;
  for (int i = 0; i < 2; i++)
    assert_true(
        at_ok(at_build_param(f, copy->params[i]->types[0], NULL, &p[i])));
  at_node_desc d = {.op = AT_OP_FUSION,
                    .operands = p,
                    .num_operands = 2,
                    .regions = &copy,
                    .num_regions = 1};
  assert_true(at_ok(at_build(f, NULL, &d, &r.node)));
  r.index = 0;
  assert_true(at_ok(at_comp_return(f, &r, 1)));
  at_status s = at_verify(m, "clone");
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  // A region belongs to one node.
  s = at_build(f, NULL, &d, NULL);
  assert_int_equal(at_code_take(s), AT_INVALID_ARGUMENT);
  at_arena_destroy(a);
}

// Uses in regions and among results follow; removed and moved nodes leave a
// valid list.
static void test_rewrites(void **state) {
  at_arena *a = at_arena_create();
  at_module *m = parse(
      a,
      "(%0: f32[2], %1: i1[]) -> (f32[2], f32[2]) { %2 = tanh %0 : f32[2] "
      "%3 = sine %0 : f32[2] %5 = if %1 (() { %4 = add %2, %0 : f32[2] "
      "return %4 }, () { return %2 }) : f32[2] return %5, %2 }");
  at_node *tanh = m->entry->params[1]->next, *sine = tanh->next;
  // The uses inside regions and among the results follow.
  at_replace_uses(m->entry, (at_value){tanh, 0}, (at_value){sine, 0});
  at_node_remove(tanh);
  assert_ptr_equal(m->entry->params[1]->next, sine);
  assert_ptr_equal(m->entry->results[1].node, sine);
  assert_ptr_equal(m->entry->last->regions[1]->results[0].node, sine);
  assert_true(at_ok(at_verify(m, NULL)));
  at_value v;
  assert_true(at_ok(at_build_op(m->entry, sine, AT_OP_COSINE,
                                &sine->operands[0], 1, NULL, &v)));
  assert_ptr_equal(v.node->next, sine);
  at_node_move_before(v.node, m->entry->last);
  assert_ptr_equal(sine->next, v.node);
  at_node_move_before(v.node, NULL);
  assert_ptr_equal(m->entry->last, v.node);
  assert_true(at_ok(at_verify(m, NULL)));
  at_arena_destroy(a);
}

// Absent attributes read as their default; a changed one is seen by the
// verifier.
static void test_attributes(void **state) {
  at_arena *a = at_arena_create();
  at_module *m = parse(a,
                       "(%0: f32[2,3]) -> (f32[6]) { %1 = slice %0 "
                       "{start_indices=[0,0], limit_indices=[2,3], "
                       "strides=[1,1]} : f32[2,3] %2 = reshape %1 : f32[6] "
                       "return %2 }");
  at_node *n = m->entry->first->next;
  assert_int_equal(at_node_ints(n, AT_ATTR_LIMIT_INDICES).ptr[1], 3);
  assert_int_equal(at_node_ints(n, AT_ATTR_PERMUTATION).rank, 0);
  assert_int_equal(at_node_int(n, AT_ATTR_K, 17), 17);
  assert_null(at_node_literal(n));
  const int64_t strides[] = {1, 3};
  at_attr set = {.id = AT_ATTR_STRIDES, .ints = {strides, 2}};
  assert_true(at_ok(at_node_set_attr(n, set)));
  assert_int_equal(at_node_ints(n, AT_ATTR_STRIDES).ptr[1], 3);
  assert_int_equal(at_code_take(at_verify(m, NULL)), AT_INVALID_ARGUMENT);
  at_attr sharding = {.id = AT_ATTR_SHARDING, .s = AT_STR("{replicated}")};
  assert_true(at_ok(at_node_set_attr(n, sharding)));
  assert_true(at_str_is(at_node_str(n, AT_ATTR_SHARDING), "{replicated}"));
  at_attr wrong = {.id = AT_ATTR_K, .i = 1};
  assert_int_equal(at_code_take(at_node_set_attr(n, wrong)),
                   AT_INVALID_ARGUMENT);
  at_arena_destroy(a);
}

// Texts of nodes, locations and types in messages.
static void test_text(void **state) {
  at_arena *a = at_arena_create();
  at_module *m = parse(a,
                       "(%0: f32[2]) -> (f32[2]) { %1 = tanh %0 : f32[2] "
                       "@\"f.py\":3:7(\"jit(f)/tanh\") return %1 }");
  at_strbuf b = {0};
  at_node_describe(&b, m->entry->last);
  assert_string_equal(b.ptr, "%1 = tanh f32[2] at f.py:3:7 (jit(f)/tanh)");
  at_strbuf_free(&b);
  at_loc_print(&b, NULL);
  assert_string_equal(b.ptr, "unknown");
  at_strbuf_free(&b);
  const int64_t dims[] = {AT_DYN, 3}, bounds[] = {8, AT_DYN};
  at_type t = {.dtype = AT_C64, .rank = 2, .dims = dims, .bounds = bounds};
  at_type_print(&b, &t);
  assert_string_equal(b.ptr, "complex<f32>[?<=8,3]");
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// Sizes saturate, and sub-byte integers wrap and sign-extend.
static void test_sizes(void **state) {
  const int64_t huge[] = {INT64_MAX, 2}, empty[] = {INT64_MAX, 2, 0};
  at_type t = {.dtype = AT_F64, .rank = 2, .dims = huge};
  assert_int_equal(at_type_elements(&t), INT64_MAX);
  assert_int_equal(at_type_bytes(&t), SIZE_MAX);
  t = (at_type){.dtype = AT_F64, .rank = 3, .dims = empty};
  assert_int_equal(at_type_bytes(&t), 0);
  at_arena *a = at_arena_create();
  const at_literal *l;
  t = (at_type){.dtype = AT_F64, .rank = 2, .dims = huge};
  assert_int_equal(at_code_take(at_literal_make(a, t, NULL, false, false, &l)),
                   AT_RESOURCE_EXHAUSTED);
  uint8_t byte;
  at_store_int(AT_S4, &byte, 13);
  assert_int_equal(byte, 0xfd);
  assert_int_equal(at_load_int(AT_S4, &byte), -3);
  at_store_int(AT_U2, &byte, -1);
  assert_int_equal(byte, 3);
  at_store_int(AT_PRED, &byte, 256);
  assert_int_equal(byte, 1);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_build),      cmocka_unit_test(test_table),
      cmocka_unit_test(test_clone),      cmocka_unit_test(test_rewrites),
      cmocka_unit_test(test_attributes), cmocka_unit_test(test_text),
      cmocka_unit_test(test_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
