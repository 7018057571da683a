// Loops and branches inside the bodies of other ops.
#include "codegen/check.h"

// A constant s32 in a region.
static at_value c_int(ck *c, at_comp *b, int64_t v) {
  int32_t x = (int32_t)v;
  const at_literal *l;
  at_value out;
  ck_ok(
      at_literal_make(c->arena, at_type_scalar(AT_S32), &x, false, false, &l));
  ck_ok(at_build_constant(b, NULL, l, &out));
  return out;
}
// An op of two operands of one type.
static at_value op2(at_comp *b, at_op op, at_value x, at_value y) {
  at_value v[2] = {x, y}, out;
  ck_ok(at_build_op(b, NULL, op, v, 2, NULL, &out));
  return out;
}
// x < y.
static at_value less(at_comp *b, at_value x, at_value y) {
  at_value v[2] = {x, y};
  at_attr a = {.id = AT_ATTR_COMPARISON_DIRECTION, .i = AT_LT};
  at_node_desc d = {.op = AT_OP_COMPARE,
                    .operands = v,
                    .num_operands = 2,
                    .attrs = &a,
                    .num_attrs = 1};
  at_node *n;
  ck_ok(at_build(b, NULL, &d, &n));
  return (at_value){n, 0};
}
// A new parameter of a region.
static at_value param(at_comp *b, at_type t) {
  at_value v;
  ck_ok(at_build_param(b, t, NULL, &v));
  return v;
}

// A map over operands of `state`, whose region is `body`.
static void add_map(ck *c, at_comp *body, const at_type *types, uint32_t n) {
  int64_t dims[1] = {37};
  at_value ops[3];
  const at_literal *args[3];
  at_type out = ck_type(c, types[0].dtype, 1, dims);
  for (uint32_t i = 0; i < n; i++) {
    at_type t = ck_type(c, types[i].dtype, 1, dims);
    ops[i] = ck_param(c, t);
    args[i] = ck_random_literal(c, t, false);
  }
  int64_t zero = 0;
  at_attr attr = {.id = AT_ATTR_DIMENSIONS, .ints = {&zero, 1}};
  at_node_desc d = {.op = AT_OP_MAP,
                    .operands = ops,
                    .num_operands = n,
                    .attrs = &attr,
                    .num_attrs = 1,
                    .regions = &body,
                    .num_regions = 1,
                    .types = &out,
                    .num_types = 1};
  at_node *node;
  ck_ok(at_build(c->comp, NULL, &d, &node));
  ck_add(c, node, args);
}

// for (i = 0; i < 5; i++) (a, b) = (b + i, a); the result is a
static void build_while(ck *c) {
  at_type s = at_type_scalar(AT_S32), state[3] = {s, s, s};
  at_comp *map, *cond, *body;
  ck_ok(at_region_create(c->module, &map));
  at_value a = param(map, s), b = param(map, s);
  at_value init[3] = {c_int(c, map, 0), a, b}, p[3], q[3];
  ck_ok(at_region_create(c->module, &cond));
  ck_ok(at_region_create(c->module, &body));
  for (int i = 0; i < 3; i++) p[i] = param(cond, s);
  for (int i = 0; i < 3; i++) q[i] = param(body, s);
  at_value go = less(cond, p[0], c_int(c, cond, 5));
  ck_ok(at_comp_return(cond, &go, 1));
  at_value next = op2(body, AT_OP_ADD, q[0], c_int(c, body, 1));
  at_value r[3] = {next, op2(body, AT_OP_ADD, q[2], next), q[1]};
  ck_ok(at_comp_return(body, r, 3));
  at_comp *regions[2] = {cond, body};
  at_node_desc w = {.op = AT_OP_WHILE,
                    .operands = init,
                    .num_operands = 3,
                    .regions = regions,
                    .num_regions = 2,
                    .types = state,
                    .num_types = 3};
  at_node *loop;
  ck_ok(at_build(map, NULL, &w, &loop));
  at_value result = {loop, 1};
  ck_ok(at_comp_return(map, &result, 1));
  add_map(c, map, state, 2);
}

// case k of { x + 1, x * x, if (x < 3) x - 7 else x }
static void build_case(ck *c) {
  at_type s = at_type_scalar(AT_S32), types[2] = {s, s};
  at_comp *map, *branch[3], *then[2];
  ck_ok(at_region_create(c->module, &map));
  at_value k = param(map, s), x = param(map, s), r;
  k = op2(map, AT_OP_AND, k, c_int(c, map, 3));
  for (int i = 0; i < 3; i++) ck_ok(at_region_create(c->module, &branch[i]));
  for (int i = 0; i < 2; i++) ck_ok(at_region_create(c->module, &then[i]));
  r = op2(branch[0], AT_OP_ADD, x, c_int(c, branch[0], 1));
  ck_ok(at_comp_return(branch[0], &r, 1));
  r = op2(branch[1], AT_OP_MULTIPLY, x, x);
  ck_ok(at_comp_return(branch[1], &r, 1));
  r = op2(then[0], AT_OP_SUBTRACT, x, c_int(c, then[0], 7));
  ck_ok(at_comp_return(then[0], &r, 1));
  ck_ok(at_comp_return(then[1], &x, 1));
  at_value lt = less(branch[2], x, c_int(c, branch[2], 3));
  at_node_desc d = {.op = AT_OP_IF,
                    .operands = &lt,
                    .num_operands = 1,
                    .regions = then,
                    .num_regions = 2,
                    .types = &s,
                    .num_types = 1};
  at_node *n;
  ck_ok(at_build(branch[2], NULL, &d, &n));
  r = (at_value){n, 0};
  ck_ok(at_comp_return(branch[2], &r, 1));
  at_node_desc cs = {.op = AT_OP_CASE,
                     .operands = &k,
                     .num_operands = 1,
                     .regions = branch,
                     .num_regions = 3,
                     .types = &s,
                     .num_types = 1};
  ck_ok(at_build(map, NULL, &cs, &n));
  r = (at_value){n, 0};
  ck_ok(at_comp_return(map, &r, 1));
  add_map(c, map, types, 2);
}

// Several of each in one generator, so that names and scopes cannot mix.
static void test_control(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  for (int i = 0; i < 3; i++) build_while(&c);
  for (int i = 0; i < 3; i++) build_case(&c);
  ck_end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_control)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
