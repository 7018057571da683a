// Windows, scatters, scans and products, one element at a time.
#include "codegen/check.h"

static const uint64_t k_targets[] = {~0ull, AT_CPU_AVX2};

#define BODY(op, t) "(" REGION(op, t) ")"
#define REGION(op, t)                                               \
  "(%100: " t "[], %101: " t "[]) {\n%102 = " op " %100, %101 : " t \
  "[]\n"                                                            \
  "return %102\n}"
#define GE(t)                         \
  "(%110: " t "[], %111: " t          \
  "[]) {\n%112 = compare %110, %111 " \
  "{comparison_direction=GE, compare_type=FLOAT} : i1[]\nreturn %112\n}, "

static const char *const k_cases[][3] = {
    {"%0: f32[4,20], %1: f32[]", "f32[4,9]",
     "reduce_window %0, %1 {window_dimensions=[1,3], window_strides=[1,2], "
     "padding=[0,0,0,0]} " BODY("maximum", "f32")},
    {"%0: f32[2,8,9,40], %1: f32[]", "f32[2,4,5,40]",
     "reduce_window %0, %1 {window_dimensions=[1,2,3,1], "
     "window_strides=[1,2,2,1], "
     "padding=[0,0,0,0,1,1,0,0]} " BODY("maximum", "f32")},
    {"%0: f32[5,50], %1: f32[]", "f32[5,50]",
     "reduce_window %0, %1 {window_dimensions=[5,5], window_strides=[1,1], "
     "padding=[2,2,2,2]} " BODY("add", "f32")},
    {"%0: f32[3,7,90], %1: f32[]", "f32[3,4,45]",
     "reduce_window %0, %1 {window_dimensions=[1,3,3], "
     "window_strides=[1,2,2], padding=[0,0,1,1,1,1]} " BODY("maximum", "f32")},
    {"%0: bf16[100], %1: bf16[]", "bf16[34]",
     "reduce_window %0, %1 {window_dimensions=[4], window_strides=[3], "
     "padding=[3,0]} " BODY("maximum", "bf16")},
    {"%0: ui8[3,200], %1: ui8[]", "ui8[3,50]",
     "reduce_window %0, %1 {window_dimensions=[2,5], window_strides=[1,4], "
     "padding=[1,0,2,2]} " BODY("maximum", "ui8")},
    {"%0: complex<f32>[40], %1: complex<f32>[]", "complex<f32>[40]",
     "reduce_window %0, %1 {window_dimensions=[3], window_strides=[1], "
     "padding=[1,1]} " BODY("add", "complex<f32>")},
    {"%0: i32[30], %1: i32[]", "i32[31]",
     "reduce_window %0, %1 {window_dimensions=[3], window_strides=[1], "
     "base_dilations=[1], window_dilations=[2], padding=[2,3]} " BODY("add",
                                                                      "i32")},
    {"%0: f32[12], %1: f32[]", "f32[23]",
     "reduce_window %0, %1 {window_dimensions=[1], window_strides=[1], "
     "base_dilations=[2], window_dilations=[1], padding=[0,0]} " BODY("add",
                                                                      "f32")},
    {"%0: f32[20,33], %1: i32[7,1], %2: f32[7,33]", "f32[20,33]",
     "scatter %0, %1, %2 {update_window_dims=[1], inserted_window_dims=[0], "
     "scatter_dims_to_operand_dims=[0], index_vector_dim=1} " BODY("add",
                                                                   "f32")},
    {"%0: f32[10,700], %1: i64[90,1], %2: f32[90,700]", "f32[10,700]",
     "scatter %0, %1, %2 {update_window_dims=[1], inserted_window_dims=[0], "
     "scatter_dims_to_operand_dims=[0], index_vector_dim=1} " BODY("add",
                                                                   "f32")},
    {"%0: i32[9], %1: i32[40], %2: i32[40]", "i32[9]",
     "scatter %0, %1, %2 {inserted_window_dims=[0], "
     "scatter_dims_to_operand_dims=[0], "
     "index_vector_dim=1} " BODY("maximum", "i32")},
    {"%0: bf16[9,8], %1: i32[6,2], %2: bf16[6,2,3]", "bf16[9,8]",
     "scatter %0, %1, %2 {update_window_dims=[1,2], "
     "scatter_dims_to_operand_dims=[0,1], index_vector_dim=1} " BODY("add",
                                                                     "bf16")},
    {"%0: f32[4,9,5], %1: i32[4,6,1], %2: f32[4,6,5]", "f32[4,9,5]",
     "scatter %0, %1, %2 {update_window_dims=[2], inserted_window_dims=[1], "
     "input_batching_dims=[0], scatter_indices_batching_dims=[0], "
     "scatter_dims_to_operand_dims=[1], index_vector_dim=2} " BODY("add",
                                                                   "f32")},
    {"%0: f32[2,8,9,20], %1: f32[2,4,5,20], %2: f32[]", "f32[2,8,9,20]",
     "select_and_scatter %0, %1, %2 {window_dimensions=[1,2,3,1], "
     "window_strides=[1,2,2,1], padding=[0,0,0,0,1,1,0,0]} (" GE("f32")
         REGION("add", "f32") ")"},
    {"%0: f32[13], %1: f32[7], %2: f32[]", "f32[13]",
     "select_and_scatter %0, %1, %2 {window_dimensions=[3], "
     "window_strides=[2], padding=[1,1]} (" GE("f32") REGION("add", "f32") ")"},
    {"%0: bf16[20,33], %1: f32[7,4], %2: f32[]", "f32[20,33]",
     "select_and_scatter %0, %1, %2 {window_dimensions=[2,6], "
     "window_strides=[3,7]} (" GE("bf16") REGION("add", "f32") ")"},
    {"%0: f32[3,50], %1: f32[]", "f32[3,50]",
     "scan %0, %1 {dimension=1} " BODY("add", "f32")},
    {"%0: i32[3,50,19], %1: i32[]", "i32[3,50,19]",
     "scan %0, %1 {dimension=1, reverse=true} " BODY("maximum", "i32")},
    {"%0: f32[6,7], %1: f32[7,40]", "f32[6,40]",
     "dot_general %0, %1 {lhs_contracting_dimensions=[1], "
     "rhs_contracting_dimensions=[0]}"},
    {"%0: i8[3,6,7], %1: i8[3,5,7]", "i32[3,6,5]",
     "dot_general %0, %1 {lhs_batching_dimensions=[0], "
     "rhs_batching_dimensions=[0], "
     "lhs_contracting_dimensions=[2], rhs_contracting_dimensions=[2]}"},
    {"%0: complex<f32>[4,9], %1: complex<f32>[9,17]", "complex<f32>[4,17]",
     "dot_general %0, %1 {lhs_contracting_dimensions=[1], "
     "rhs_contracting_dimensions=[0]}"},
    {"%0: bf16[4,9], %1: bf16[9,17]", "bf16[4,17]",
     "dot_general %0, %1 {lhs_contracting_dimensions=[1], "
     "rhs_contracting_dimensions=[0]}"},
    {"%0: f32[2,8,9,3], %1: f32[3,3,3,16]", "f32[2,8,9,16]",
     "convolution %0, %1 {window_strides=[1,1], padding=[1,1,1,1], "
     "lhs_dilation=[1,1], "
     "rhs_dilation=[1,1], input_batch_dimension=0, input_feature_dimension=3, "
     "input_spatial_dimensions=[1,2], kernel_input_feature_dimension=2, "
     "kernel_output_feature_dimension=3, kernel_spatial_dimensions=[0,1], "
     "output_batch_dimension=0, output_feature_dimension=3, "
     "output_spatial_dimensions=[1,2], feature_group_count=1, "
     "batch_group_count=1}"},
    {"%0: f32[2,6,11], %1: f32[4,3,3]", "f32[2,4,10]",
     "convolution %0, %1 {window_strides=[2], padding=[2,1], lhs_dilation=[2], "
     "rhs_dilation=[2], window_reversal=[1], input_batch_dimension=0, "
     "input_feature_dimension=1, input_spatial_dimensions=[2], "
     "kernel_input_feature_dimension=1, kernel_output_feature_dimension=0, "
     "kernel_spatial_dimensions=[2], output_batch_dimension=0, "
     "output_feature_dimension=1, output_spatial_dimensions=[2], "
     "feature_group_count=2, batch_group_count=1}"},
    {"%0: f32[12,5], %1: f32[3,5,6], %2: ui32[3]", "f32[12,6]",
     "ragged_dot %0, %1, %2 {lhs_contracting_dimensions=[1], "
     "rhs_contracting_dimensions=[1], lhs_ragged_dimensions=[0], "
     "rhs_group_dimensions=[0]}"},
    {"%0: f32[5,12], %1: f32[12,6], %2: ui32[3]", "f32[3,5,6]",
     "ragged_dot %0, %1, %2 {lhs_contracting_dimensions=[1], "
     "rhs_contracting_dimensions=[0], lhs_ragged_dimensions=[1]}"},
    {"%0: f32[40], %1: f32[40]", "f32[40]",
     "map %0, %1 {dimensions=[0]} " BODY("multiply", "f32")},
};

// All cases for both widths; in_place: results where their operands are, for
// the ops that allow it.
static void run(bool in_place) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    c.ulps = 16;
    for (size_t i = 0; i < AT_LEN(k_cases); i++) {
      char line[2048];
      c.absolute = strstr(k_cases[i][2], "bf16") ? 0.5 : 1e-4;
      snprintf(line, sizeof line, "%%9 = %s : %s\nreturn %%9", k_cases[i][2],
               k_cases[i][1]);
      ck_case *k = ck_text(&c, k_cases[i][0], k_cases[i][1], line);
      if (in_place && at_cg_can_alias(k->node, 0, 0)) k->alias[0] = 0;
    }
    ck_end(&c);
  }
}

static void test_windows(void **state) { run(false); }
static void test_in_place(void **state) { run(true); }

// Windows that reach over an edge load neighbours all the same, but for the
// lanes that are out of bounds.
static void test_edges_are_not_gathered(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_cg_target t = {.cpu_features = AT_CPU_AVX2 | AT_CPU_AVX512,
                    .threads = 1,
                    .opt_level = 2,
                    .verify = true};
  at_cg *cg;
  ck_ok(at_cg_create(&t, &cg));
  uint32_t found = 0;
  for (size_t i = 0; i < AT_LEN(k_cases); i++) {
    char line[2048];
    if (!strstr(k_cases[i][2], "padding=[2,2") &&
        !strstr(k_cases[i][2], "padding=[0,0,1,1,1,1"))
      continue;
    snprintf(line, sizeof line, "%%9 = %s : %s\nreturn %%9", k_cases[i][2],
             k_cases[i][1]);
    at_cg_plan plan;
    ck_case *k = ck_text(&c, k_cases[i][0], k_cases[i][1], line);
    ck_ok(at_cg_node(cg, k->node, NULL, c.arena, &plan));
    found++;
  }
  assert_int_equal(found, 2);
  at_strbuf s = {0};
  ck_ok(at_cg_print(cg, false, &s));
  assert_non_null(strstr(s.ptr, "masked.load"));
  assert_null(strstr(s.ptr, "masked.gather"));
  at_strbuf_free(&s);
  at_cg_destroy(cg);
  free(c.cases);
  at_arena_destroy(c.arena);
}

// Rows that are no multiple of the vectors that hold whole pixels: the place of
// every lane is known all the same, up to the row's end.
static void test_odd_rows_are_not_gathered(void **state) {
  static const char *const rows[] = {"f32[70,50,3]", "f32[66,71,5]"};
  ck c;
  ck_begin(&c, ~0ull);
  at_cg_target t = {.cpu_features = AT_CPU_AVX2 | AT_CPU_AVX512,
                    .threads = 1,
                    .opt_level = 2,
                    .verify = true};
  at_cg *cg;
  ck_ok(at_cg_create(&t, &cg));
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    char params[64], line[256];
    snprintf(params, sizeof params, "%%0: %s", rows[i]);
    snprintf(line, sizeof line,
             "%%9 = reverse %%0 {dimensions=[1]} : %s\nreturn %%9", rows[i]);
    at_cg_plan plan;
    ck_case *k = ck_text(&c, params, rows[i], line);
    ck_ok(at_cg_node(cg, k->node, NULL, c.arena, &plan));
  }
  at_strbuf s = {0};
  ck_ok(at_cg_print(cg, false, &s));
  assert_null(strstr(s.ptr, "masked.gather"));
  at_strbuf_free(&s);
  at_cg_destroy(cg);
  free(c.cases);
  at_arena_destroy(c.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_windows), cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_edges_are_not_gathered),
      cmocka_unit_test(test_odd_rows_are_not_gathered)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
