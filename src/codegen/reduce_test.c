#include "codegen/check.h"

static const uint64_t k_targets[] = {~0ull, AT_CPU_AVX2};

static at_comp *binary_body(ck *c, at_op op, at_dtype t) {
  at_comp *b;
  at_value p, q, pq[2], r;
  ck_ok(at_region_create(c->module, &b));
  ck_ok(at_build_param(b, at_type_scalar(t), NULL, &p));
  ck_ok(at_build_param(b, at_type_scalar(t), NULL, &q));
  pq[0] = p;
  pq[1] = q;
  ck_ok(at_build_op(b, NULL, op, pq, 2, NULL, &r));
  ck_ok(at_comp_return(b, &r, 1));
  return b;
}

static const at_literal *scalar(ck *c, at_dtype t, double v) {
  at_type type = at_type_scalar(t);
  char *p = at_arena_alloc(c->arena, 16, 16);
  if (at_is_complex(t)) {
    at_store_float(at_real_of(t), p, v);
  } else if (at_is_float(t)) {
    at_store_float(t, p, v);
  } else {
    at_store_int(t, p, (int64_t)v);
  }
  const at_literal *l;
  ck_ok(at_literal_make(c->arena, type, p, false, true, &l));
  return l;
}

static void reduce(ck *c, at_op op, at_dtype t, uint32_t rank, const int64_t *dims,
                   uint32_t nd, const int64_t *over, double init) {
  at_type in = ck_type(c, t, rank, dims);
  at_value ops[2] = {ck_param(c, in), ck_param(c, at_type_scalar(t))};
  const at_literal *args[2] = {ck_random_literal(c, in, false), scalar(c, t, init)};
  at_comp *body = binary_body(c, op, t);
  at_attr attr = {.id = AT_ATTR_DIMENSIONS, .ints = {over, nd}};
  at_node_desc d = {.op = AT_OP_REDUCE, .operands = ops, .num_operands = 2,
                    .attrs = &attr, .num_attrs = 1, .regions = &body,
                    .num_regions = 1};
  at_node *n;
  ck_ok(at_build(c->comp, NULL, &d, &n));
  ck_add(c, n, args);
}

static const struct {
  uint32_t rank;
  int64_t dims[4];
  uint32_t nd;
  int64_t over[4];
} k_shapes[] = {
    {1, {1}, 1, {0}},          {1, {7}, 1, {0}},
    {1, {1000}, 1, {0}},       {1, {300001}, 1, {0}},
    {2, {5, 33}, 1, {1}},      {2, {5, 33}, 1, {0}},
    {2, {64, 64}, 2, {0, 1}},  {2, {1000, 3}, 1, {1}},
    {2, {1000, 3}, 1, {0}},    {3, {3, 17, 40}, 2, {0, 2}},
    {3, {3, 17, 40}, 1, {1}},  {3, {4, 1, 129}, 2, {0, 1}},
    {2, {4000, 70}, 1, {0}},   {2, {0, 3}, 1, {0}},
    {2, {3, 0}, 1, {0}},       {2, {2, 200000}, 1, {1}},
    {4, {3, 5, 7, 9}, 2, {1, 3}}, {2, {6, 8}, 0, {0}},
    {2, {1, 1}, 1, {0}},       {2, {200, 515}, 1, {0}},
};

static void test_shapes(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    for (size_t i = 0; i < AT_LEN(k_shapes); i++) {
      int64_t n = 1;
      for (uint32_t d = 0; d < k_shapes[i].rank; d++) n *= k_shapes[i].dims[d];
      c.ulps = 8;
      c.absolute = 1e-6 * (double)n;
      reduce(&c, AT_OP_ADD, AT_F32, k_shapes[i].rank, k_shapes[i].dims,
             k_shapes[i].nd, k_shapes[i].over, 0.5);
      c.absolute = 0;
      reduce(&c, AT_OP_MAXIMUM, AT_S32, k_shapes[i].rank, k_shapes[i].dims,
             k_shapes[i].nd, k_shapes[i].over, -3);
    }
    ck_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
