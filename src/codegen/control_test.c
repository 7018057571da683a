#include "codegen/check.h"

static at_value c_int(ck *c, at_comp *b, int64_t v) {
  int32_t x = (int32_t)v;
  const at_literal *l;
  at_value out;
  ck_ok(
      at_literal_make(c->arena, at_type_scalar(AT_S32), &x, false, false, &l));
  ck_ok(at_build_constant(b, NULL, l, &out));
  return out;
}
static at_value op2(at_comp *b, at_op op, at_value x, at_value y) {
  at_value v[2] = {x, y}, out;
  ck_ok(at_build_op(b, NULL, op, v, 2, NULL, &out));
  return out;
}
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
static at_value param(at_comp *b, at_type t) {
  at_value v;
  ck_ok(at_build_param(b, t, NULL, &v));
  return v;
}

// while (i < n) { i += 1; (a, b) = (b + i, a); v = reversed(v) + i } in a
// fusion
static void build_while(ck *c) {
  int64_t five = 5;
  at_type s = at_type_scalar(AT_S32), t5 = ck_type(c, AT_S32, 1, &five);
  at_type state[4] = {s, s, s, t5};
  at_comp *fusion, *cond, *body;
  ck_ok(at_region_create(c->module, &fusion));
  at_value init[4], limit;
  for (int i = 0; i < 4; i++) init[i] = param(fusion, state[i]);
  limit = param(fusion, s);
  ck_ok(at_region_create(c->module, &cond));
  ck_ok(at_region_create(c->module, &body));
  at_value p[4], q[4], r[4];
  for (int i = 0; i < 4; i++) p[i] = param(cond, state[i]);
  for (int i = 0; i < 4; i++) q[i] = param(body, state[i]);
  at_value go = less(cond, p[0], limit);
  ck_ok(at_comp_return(cond, &go, 1));
  r[0] = op2(body, AT_OP_ADD, q[0], c_int(c, body, 1));
  r[1] = op2(body, AT_OP_ADD, q[2], r[0]);
  r[2] = q[1];
  int64_t zero = 0;
  at_attr dims = {.id = AT_ATTR_DIMENSIONS, .ints = {&zero, 1}};
  at_attr none = {.id = AT_ATTR_BROADCAST_DIMENSIONS, .ints = {&zero, 0}};
  at_node_desc rev = {.op = AT_OP_REVERSE,
                      .operands = &q[3],
                      .num_operands = 1,
                      .attrs = &dims,
                      .num_attrs = 1};
  at_node_desc bc = {.op = AT_OP_BROADCAST_IN_DIM,
                     .operands = &r[0],
                     .num_operands = 1,
                     .attrs = &none,
                     .num_attrs = 1,
                     .types = &t5,
                     .num_types = 1};
  at_node *reversed, *wide;
  ck_ok(at_build(body, NULL, &rev, &reversed));
  ck_ok(at_build(body, NULL, &bc, &wide));
  r[3] = op2(body, AT_OP_ADD, (at_value){reversed, 0}, (at_value){wide, 0});
  ck_ok(at_comp_return(body, r, 4));
  at_comp *regions[2] = {cond, body};
  at_node_desc w = {.op = AT_OP_WHILE,
                    .operands = init,
                    .num_operands = 4,
                    .regions = regions,
                    .num_regions = 2,
                    .types = state,
                    .num_types = 4};
  at_node *loop;
  ck_ok(at_build(fusion, NULL, &w, &loop));
  for (uint32_t i = 0; i < 4; i++) r[i] = (at_value){loop, i};
  ck_ok(at_comp_return(fusion, r, 4));
  at_attr kind = {.id = AT_ATTR_KIND, .i = AT_FUSION_SCALAR};
  at_value ops[5];
  const at_literal *args[5];
  for (int i = 0; i < 5; i++) {
    ops[i] = ck_param(c, i < 4 ? state[i] : s);
    args[i] = ck_random_literal(c, i < 4 ? state[i] : s, false);
  }
  at_node_desc f = {.op = AT_OP_FUSION,
                    .operands = ops,
                    .num_operands = 5,
                    .attrs = &kind,
                    .num_attrs = 1,
                    .regions = &fusion,
                    .num_regions = 1,
                    .types = state,
                    .num_types = 4};
  at_node *n;
  ck_ok(at_build(c->comp, NULL, &f, &n));
  ck_add(c, n, args);
}

// case k of { x + 1, x * x, if (x < 3) x - 7 else x }
static void build_case(ck *c) {
  at_type s = at_type_scalar(AT_S32);
  at_comp *fusion, *branch[3], *then[2];
  ck_ok(at_region_create(c->module, &fusion));
  at_value k = param(fusion, s), x = param(fusion, s), r;
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
  ck_ok(at_build(fusion, NULL, &cs, &n));
  r = (at_value){n, 0};
  ck_ok(at_comp_return(fusion, &r, 1));
  at_attr kind = {.id = AT_ATTR_KIND, .i = AT_FUSION_SCALAR};
  at_value ops[2] = {ck_param(c, s), ck_param(c, s)};
  at_node_desc f = {.op = AT_OP_FUSION,
                    .operands = ops,
                    .num_operands = 2,
                    .attrs = &kind,
                    .num_attrs = 1,
                    .regions = &fusion,
                    .num_regions = 1,
                    .types = &s,
                    .num_types = 1};
  ck_ok(at_build(c->comp, NULL, &f, &n));
  for (int32_t i = -1; i < 5; i++) {
    const at_literal *args[2];
    int32_t v = 4 - 3 * i;
    ck_ok(at_literal_make(c->arena, s, &i, false, false, &args[0]));
    ck_ok(at_literal_make(c->arena, s, &v, false, false, &args[1]));
    ck_add(c, n, args);
  }
}

static void test_control(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  for (int i = 0; i < 5; i++) build_while(&c);
  build_case(&c);
  ck_end(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_control)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
