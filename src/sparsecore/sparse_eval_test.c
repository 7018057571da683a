// The evaluator's meaning of the calls against testdata/engine_cases.txt, for
// one device.
#include "sparsecore/cases_test_util.h"
#include "sparsecore/sparsecore.h"

#define OK(e) assert_int_equal(at_code_take(e), 0)

// n < 0: a scalar; width < 0: a list.
static at_type type_of(at_arena *a, at_dtype t, int64_t n, int64_t width) {
  at_type out;
  int64_t dims[2] = {n, width};
  uint32_t rank = n < 0 ? 0 : width < 0 ? 1 : 2;
  OK(at_type_make(a, t, (at_dims){dims, rank}, &out));
  return out;
}

// One node of the optimizer.
static at_value binary(at_comp *c, at_op op, at_value x, at_value y) {
  at_value v, operands[2] = {x, y};
  OK(at_build_op(c, NULL, op, operands, 2, NULL, &v));
  return v;
}

// slot += gradient; table -= rate x slot, on rows. As momentum() of
// run_test_util.h.
static at_comp *optimizer(at_module *m, at_type row) {
  at_comp *c;
  at_value p[4], results[2];
  OK(at_region_create(m, &c));
  for (int i = 0; i < 4; i++) OK(at_build_param(c, row, NULL, &p[i]));
  results[1] = binary(c, AT_OP_ADD, p[2], p[0]);
  results[0] = binary(c, AT_OP_SUBTRACT, p[1],
                      binary(c, AT_OP_MULTIPLY, p[3], results[1]));
  OK(at_comp_return(c, results, 2));
  return c;
}

// The call that a step of the engine came from.
static const char *target_of(const at_x_sparse *x) {
  if (x->op == AT_SPARSE_LOCAL) return "SparseDenseMatmulLocalOp";
  if (x->op == AT_SPARSE_LOOKUP)
    return x->minibatching ? "SparseDenseMatmulWithMinibatchingOp"
                           : "SparseDenseMatmulOp";
  return x->minibatching
             ? "SparseDenseMatmulGradOptimizerUpdateWithMinibatchingOp"
             : "SparseDenseMatmulGradOpWithOptimizerUpdate";
}

// Of the engine's buffer i.
static at_type buffer_type(at_arena *a, const at_x_sparse *x, uint32_t i) {
  uint32_t first = at_x_sparse_table(x);
  bool local = x->op == AT_SPARSE_LOCAL;
  int64_t w = (int64_t)x->width;
  if (!local && i == 0) return type_of(a, AT_S32, (int64_t)x->pointers, -1);
  uint32_t list = local ? i : i - 1;
  if (list < 3)
    return type_of(a, list == 2 ? AT_F32 : AT_S32, (int64_t)x->ids, -1);
  if (i == 4 && x->minibatching) return type_of(a, AT_S32, -1, -1);
  if (i >= first && i < first + x->num_tables)
    return type_of(a, (at_dtype)x->dtype, (int64_t)x->rows, w);
  if (i >= first + x->num_tables && x->op == AT_SPARSE_UPDATE)
    return type_of(a, AT_F32, -1, -1);
  return type_of(a, AT_F32, (int64_t)x->samples, w);
}

// The engine's buffer that operand i of the call is.
static uint32_t buffer_of(const at_x_sparse *x, uint32_t i) {
  if (x->op == AT_SPARSE_LOCAL) return i == 0 ? 3 : i < 4 ? i - 1 : i;
  if (x->op != AT_SPARSE_UPDATE || !x->minibatching) return i;
  // Tables come before the gradient.
  return i == 5 ? 6 : i == 6 ? 7 : i == 7 ? 5 : i;
}

// Builds the call as a program has it, evaluates it and compares bits.
static void check_case(const sc_case *c) {
  const at_x_sparse *x = &c->x;
  at_arena *a = at_arena_create();
  uint32_t n = at_x_sparse_operands(x), results = at_x_sparse_results(x);
  at_module *m;
  at_comp *main, *region = NULL;
  OK(at_module_create(a, AT_STR("m"), &m));
  OK(at_comp_create(m, AT_STR("main"), NULL, &main));
  at_value operands[kMaxBufs];
  const at_literal *in[kMaxBufs];
  for (uint32_t i = 0; i < n; i++) {
    at_type t = buffer_type(a, x, buffer_of(x, i));
    OK(at_build_param(main, t, NULL, &operands[i]));
    OK(at_literal_make(a, t, c->bufs[0][buffer_of(x, i)], false, false,
                       &in[i]));
  }
  at_type out[2];
  for (uint32_t r = 0; r < results; r++)
    out[r] = buffer_type(
        a, x, results == 2 ? at_x_sparse_table(x) : at_x_sparse_operands(x));
  char config[256] = "";
  if (x->num_buckets)
    snprintf(config, sizeof config,
             "{\"sparse_dense_matmul_config\": {\"quantization_config\": "
             "{\"min_value\": %g, \"max_value\": %g, \"num_buckets\": %u}}}",
             (double)x->low, (double)x->high, x->num_buckets);
  at_attr attrs[2] = {
      {.id = AT_ATTR_CALL_TARGET_NAME, .s = at_str_of(target_of(x))},
      {.id = AT_ATTR_BACKEND_CONFIG, .s = at_str_of(config)}};
  if (x->op == AT_SPARSE_UPDATE)
    region = optimizer(m, type_of(a, AT_F32, 1, (int64_t)x->width));
  at_node_desc d = {.op = AT_OP_CUSTOM_CALL,
                    .operands = operands,
                    .num_operands = n,
                    .attrs = attrs,
                    .num_attrs = 2,
                    .regions = &region,
                    .num_regions = region != NULL,
                    .types = out,
                    .num_types = results};
  at_node *call;
  OK(at_build(main, NULL, &d, &call));
  const at_literal *got[2];
  OK(at_sc_eval_custom((void *)&x->scs_per_device, call, in, a, got));
  for (uint32_t r = 0; r < results; r++)
    assert_memory_equal(got[r]->data, c->want[0][r], at_type_bytes(&out[r]));
  at_arena_destroy(a);
}

// All cases of one device.
static void means_what_numpy_says(void **state) {
  FILE *f = open_cases();
  sc_case c;
  int cases = 0;
  while (read_case(f, &c)) {
    if (c.x.num_devices == 1) {
      check_case(&c);
      cases++;
    }
    free_case(&c);
  }
  fclose(f);
  assert_true(cases >= 12);
}

// ---- Rows of ids
// A call with csr_config; NULL unless it succeeds.
static const at_literal *evaluate(at_arena *a, const char *target,
                                  const at_type *types, void *const *data,
                                  uint32_t n, at_type out, at_code want) {
  at_module *m;
  at_comp *main;
  at_value operands[3];
  const at_literal *in[3], *got = NULL;
  at_node *call;
  OK(at_module_create(a, AT_STR("m"), &m));
  OK(at_comp_create(m, AT_STR("main"), NULL, &main));
  for (uint32_t i = 0; i < n; i++) {
    OK(at_build_param(main, types[i], NULL, &operands[i]));
    OK(at_literal_make(a, types[i], data[i], false, false, &in[i]));
  }
  at_attr attrs[2] = {
      {.id = AT_ATTR_CALL_TARGET_NAME, .s = at_str_of(target)},
      {.id = AT_ATTR_BACKEND_CONFIG,
       .s = AT_STR("{\"csr_config\": {\"max_non_zeroes_per_row\": 8}}")}};
  at_node_desc d = {.op = AT_OP_CUSTOM_CALL,
                    .operands = operands,
                    .num_operands = n,
                    .attrs = attrs,
                    .num_attrs = 2,
                    .types = &out,
                    .num_types = 1};
  OK(at_build(main, NULL, &d, &call));
  uint32_t scs = 2;
  assert_int_equal(at_code_take(at_sc_eval_custom(&scs, call, in, a, &got)),
                   want);
  return got;
}

// Gather and iota of three rows, the second of which begins behind padding;
// then an id and types that are wrong.
static void rows_of_ids(void **state) {
  at_arena *a = at_arena_create();
  int32_t pointers[3] = {2, 8, 11}, ids[16] = {1, 0, [8] = 3, 2, 1};
  int16_t table[8] = {10, 11, 20, 21, 30, 31, 40, 41};
  at_type types[3] = {type_of(a, AT_S16, 4, 2), type_of(a, AT_S32, 3, -1),
                      type_of(a, AT_S32, 16, -1)};
  void *data[3] = {table, pointers, ids};
  at_type rows = type_of(a, AT_S16, 16, 2);
  const at_literal *l =
      evaluate(a, "SparseGather", types, data, 3, rows, AT_OK_CODE);
  static const int16_t want[32] = {20, 21, 10, 11, 40, 41, 30, 31, 20, 21};
  assert_memory_equal(l->data, want, sizeof want);
  l = evaluate(a, "SparseIota", types + 1, data + 1, 1, types[2], AT_OK_CODE);
  const int32_t *places = l->data;
  for (int i = 0; i < 16; i++)
    assert_int_equal(places[i], i < 2              ? i
                                : i >= 8 && i < 11 ? i - 6
                                                   : INT32_MAX);
  ids[9] = 4;
  evaluate(a, "SparseGather", types, data, 3, rows, AT_INVALID_ARGUMENT);
  at_type wrong = type_of(a, AT_S16, 16, -1);
  evaluate(a, "SparseGather", types, data, 3, wrong, AT_INVALID_ARGUMENT);
  evaluate(a, "SparseIota", types, data, 1, types[2], AT_INVALID_ARGUMENT);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(means_what_numpy_says),
                                     cmocka_unit_test(rows_of_ids)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
