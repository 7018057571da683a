// Reductions: shapes, types, and fusions with producers and epilogues.
#include "codegen/check.h"

static const uint64_t k_targets[] = {~0ull, AT_CPU_AVX2};

// A region that applies op to its two scalars.
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

// A literal of one element.
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

// One case: op over the dimensions `over`, from `init`.
static void reduce(ck *c, at_op op, at_dtype t, uint32_t rank,
                   const int64_t *dims, uint32_t nd, const int64_t *over,
                   double init) {
  at_type in = ck_type(c, t, rank, dims);
  at_value ops[2] = {ck_param(c, in), ck_param(c, at_type_scalar(t))};
  const at_literal *args[2] = {ck_random_literal(c, in, false),
                               scalar(c, t, init)};
  at_comp *body = binary_body(c, op, t);
  at_attr attr = {.id = AT_ATTR_DIMENSIONS, .ints = {over, nd}};
  at_node_desc d = {.op = AT_OP_REDUCE,
                    .operands = ops,
                    .num_operands = 2,
                    .attrs = &attr,
                    .num_attrs = 1,
                    .regions = &body,
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
    {1, {1}, 1, {0}},
    {1, {7}, 1, {0}},
    {1, {1000}, 1, {0}},
    {1, {300001}, 1, {0}},
    {2, {5, 33}, 1, {1}},
    {2, {5, 33}, 1, {0}},
    {2, {64, 64}, 2, {0, 1}},
    {2, {1000, 3}, 1, {1}},
    {2, {1000, 3}, 1, {0}},
    {3, {3, 17, 40}, 2, {0, 2}},
    {3, {3, 17, 40}, 1, {1}},
    {3, {4, 1, 129}, 2, {0, 1}},
    {2, {4000, 70}, 1, {0}},
    {2, {0, 3}, 1, {0}},
    {2, {3, 0}, 1, {0}},
    {2, {2, 200000}, 1, {1}},
    {4, {3, 5, 7, 9}, 2, {1, 3}},
    {2, {6, 8}, 0, {0}},
    {2, {1, 1}, 1, {0}},
    {2, {200, 515}, 1, {0}},
};

// Rows, columns, both, blocks that are split, empty ones and scalars. Sums may
// differ by their order, maxima may not.
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

// Every op that is known and one that is not (subtract), by rows, by columns
// and over all. Narrow sums are compared loosely: the evaluator rounds at other
// places.
static void test_types(void **state) {
  static const struct {
    at_op op;
    at_dtype t;
    double init;
  } cases[] = {
      {AT_OP_ADD, AT_BF16, 0},        {AT_OP_ADD, AT_F16, 1},
      {AT_OP_ADD, AT_F64, 0},         {AT_OP_ADD, AT_C64, 2},
      {AT_OP_ADD, AT_C128, 0},        {AT_OP_ADD, AT_S8, 3},
      {AT_OP_ADD, AT_U4, 3},          {AT_OP_ADD, AT_PRED, 0},
      {AT_OP_MULTIPLY, AT_S32, 1},    {AT_OP_MULTIPLY, AT_U64, 3},
      {AT_OP_MAXIMUM, AT_BF16, -100}, {AT_OP_MAXIMUM, AT_F64, 1},
      {AT_OP_MINIMUM, AT_U8, 255},    {AT_OP_MINIMUM, AT_S64, 5},
      {AT_OP_AND, AT_PRED, 1},        {AT_OP_OR, AT_PRED, 0},
      {AT_OP_XOR, AT_U32, 77},        {AT_OP_AND, AT_S16, -1},
      {AT_OP_MAXIMUM, AT_S4, -8},     {AT_OP_MAXIMUM, AT_F8E4M3FN, -2},
      {AT_OP_SUBTRACT, AT_S32, 9},
  };
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    for (size_t i = 0; i < AT_LEN(cases); i++) {
      c.ulps = 40;
      c.absolute = at_dtype_bytes(cases[i].t) == 2 ? 8 : 1e-3;
      static const int64_t zero[] = {0}, one[] = {1}, both[] = {0, 1};
      static const int64_t dims[] = {70, 133};
      reduce(&c, cases[i].op, cases[i].t, 2, dims, 1, zero, cases[i].init);
      reduce(&c, cases[i].op, cases[i].t, 2, dims, 1, one, cases[i].init);
      reduce(&c, cases[i].op, cases[i].t, 2, dims, 2, both, cases[i].init);
    }
    ck_end(&c);
  }
}

#define SUM                                                        \
  "((%100: f32[], %101: f32[]) {\n%102 = add %100, %101 : f32[]\n" \
  "return %102\n})"
#define MAX                                                            \
  "((%110: f32[], %111: f32[]) {\n%112 = maximum %110, %111 : f32[]\n" \
  "return %112\n})"
// The body of JAX's argmax: the larger value, then the lower index; NaN wins.
#define ARGMAX                                                                 \
  "((%120: f32[], %121: i32[], %122: f32[], %123: i32[]) {\n"                  \
  "%124 = compare %120, %122 {comparison_direction=GT, compare_type=FLOAT} : " \
  "i1[]\n"                                                                     \
  "%125 = compare %120, %120 {comparison_direction=NE, compare_type=FLOAT} : " \
  "i1[]\n"                                                                     \
  "%126 = or %124, %125 : i1[]\n"                                              \
  "%127 = compare %120, %122 {comparison_direction=EQ, compare_type=FLOAT} : " \
  "i1[]\n"                                                                     \
  "%128 = compare %121, %123 {comparison_direction=LT, compare_type=SIGNED} "  \
  ": i1[]\n"                                                                   \
  "%129 = and %127, %128 : i1[]\n"                                             \
  "%130 = or %126, %129 : i1[]\n"                                              \
  "%131 = select %126, %120, %122 : f32[]\n"                                   \
  "%132 = select %130, %121, %123 : i32[]\nreturn %131, %132\n})"

static const struct {
  const char *types[2], *results, *body;
} k_fusions[] = {
    // Producers before, an epilogue after, two reductions of one space.
    {{"f32[50,129]", "f32[129]"},
     "f32[50]",
     "%3 = broadcast_in_dim %2 {broadcast_dimensions=[1]} : f32[50,129]\n"
     "%4 = multiply %1, %3 : f32[50,129]\n%5 = constant {value=f32[] 0.0} : "
     "f32[]\n"
     "%6 = reduce %4, %5 {dimensions=[1]} " SUM " : f32[50]\n"
     "%7 = constant {value=f32[] 0.0078125} : f32[]\n"
     "%8 = broadcast_in_dim %7 {broadcast_dimensions=[]} : f32[50]\n"
     "%9 = multiply %6, %8 : f32[50]\nreturn %9"},
    {{"f32[50,129]", "f32[129]"},
     "f32[50], f32[50]",
     "%4 = multiply %1, %1 : f32[50,129]\n%5 = constant {value=f32[] 0.0} : "
     "f32[]\n"
     "%6 = reduce %4, %5 {dimensions=[1]} " SUM " : f32[50]\n"
     "%7 = constant {value=f32[] -9.0} : f32[]\n"
     "%8 = reduce %1, %7 {dimensions=[1]} " MAX " : f32[50]\nreturn %6, %8"},
    {{"f32[500,129]", "f32[129]"},
     "f32[129], f32[500]",
     "%4 = multiply %1, %1 : f32[500,129]\n%5 = constant {value=f32[] 0.0} : "
     "f32[]\n"
     "%6 = reduce %4, %5 {dimensions=[0]} " SUM " : f32[129]\n"
     "%7 = constant {value=f32[] -9.0} : f32[]\n"
     "%8 = reduce %1, %7 {dimensions=[1]} " MAX " : f32[500]\nreturn %6, %8"},
    {{"f32[30,777]", "f32[3]"},
     "f32[30], i32[30]",
     "%3 = iota {dimension=1} : i32[30,777]\n"
     "%5 = constant {value=f32[] -inf} : f32[]\n%6 = constant {value=i32[] 0} "
     ": i32[]\n"
     "%7:2 = reduce %1, %3, %5, %6 {dimensions=[1]} " ARGMAX
     " : f32[30], i32[30]\n"
     "return %7.0, %7.1"},
    {{"f32[300000]", "f32[3]"},
     "f32[], i32[]",
     "%3 = iota {dimension=0} : i32[300000]\n"
     "%5 = constant {value=f32[] -inf} : f32[]\n%6 = constant {value=i32[] 0} "
     ": i32[]\n"
     "%7:2 = reduce %1, %3, %5, %6 {dimensions=[0]} " ARGMAX " : f32[], i32[]\n"
     "return %7.0, %7.1"},
    // Several NaN: the first counts, in whatever lane or block it is.
    {{"f32[30,777]", "f32[3]"},
     "f32[30], i32[30]",
     "%4 = sqrt %1 : f32[30,777]\n"
     "%3 = iota {dimension=1} : i32[30,777]\n"
     "%5 = constant {value=f32[] -inf} : f32[]\n%6 = constant {value=i32[] 0} "
     ": i32[]\n"
     "%7:2 = reduce %4, %3, %5, %6 {dimensions=[1]} " ARGMAX
     " : f32[30], i32[30]\n"
     "return %7.0, %7.1"},
    {{"f32[8,40,9]", "f32[40]"},
     "f32[8,9]",
     "%3 = broadcast_in_dim %2 {broadcast_dimensions=[1]} : f32[8,40,9]\n"
     "%4 = add %1, %3 : f32[8,40,9]\n%5 = constant {value=f32[] 0.0} : f32[]\n"
     "%6 = reduce %4, %5 {dimensions=[1]} " SUM " : f32[8,9]\nreturn %6"},
    {{"f32[40,30]", "f32[1200]"},
     "f32[30]",
     "%3 = reshape %2 : f32[40,30]\n%4 = multiply %1, %3 : f32[40,30]\n"
     "%5 = constant {value=f32[] 0.0} : f32[]\n"
     "%6 = reduce %4, %5 {dimensions=[0]} " SUM " : f32[30]\n"
     "%7 = negate %6 : f32[30]\nreturn %7"},
    // Over no dimensions: the init value joins every element.
    {{"i64[3]", "i64[]"},
     "f64[3]",
     "%7 = reduce %1, %2 {dimensions=[]} ((%4: i64[], %5: i64[]) {\n"
     "%6 = minimum %4, %5 : i64[]\nreturn %6\n}) : i64[3]\n"
     "%8 = convert %7 : f64[3]\nreturn %8"},
    {{"f32[5,7]", "f32[]"},
     "f32[5]",
     "%7 = reduce %1, %2 {dimensions=[]} " SUM " : f32[5,7]\n"
     "%8 = negate %7 : f32[5,7]\n%9 = constant {value=f32[] 0.0} : f32[]\n"
     "%10 = reduce %8, %9 {dimensions=[1]} " MAX " : f32[5]\nreturn %10"},
    {{"f32[]", "f32[]"},
     "f32[]",
     "%7 = reduce %1, %2 {dimensions=[]} " SUM " : f32[]\n"
     "%8 = negate %7 : f32[]\nreturn %8"},
    // Nothing to reduce, seen through windows and reshapes.
    {{"f32[33,0,3,3]", "f32[]"},
     "i32[]",
     "%7 = reduce_window %1, %2 {window_dimensions=[2,1,2,2], "
     "window_strides=[1,1,1,1], padding=[0,0,0,0,0,0,0,0]} " MAX
     " : f32[32,0,2,2]\n"
     "%8 = reduce %7, %2 {dimensions=[1,3,2,0]} " SUM " : f32[]\n"
     "%9 = convert %8 : i32[]\nreturn %9"},
    {{"f32[4,0,2]", "f32[]"},
     "f32[3]",
     "%7 = reshape %1 : f32[0,3]\n"
     "%8 = transpose %7 {permutation=[1,0]} : f32[3,0]\n"
     "%9 = reduce %8, %2 {dimensions=[1]} " SUM " : f32[3]\n"
     "%10 = negate %9 : f32[3]\nreturn %10"},
};

// A node of its own does not look through the reduce that feeds it.
static void test_reduce_then_convert(void **state) {
  ck c;
  ck_begin(&c, ~0ull);
  at_type t = at_type_scalar(AT_S64);
  const int64_t dims[] = {3};
  at_type in = ck_type(&c, AT_S64, 1, dims), out = ck_type(&c, AT_F64, 1, dims);
  at_value ops[2] = {ck_param(&c, in), ck_param(&c, t)};
  at_comp *body = binary_body(&c, AT_OP_MINIMUM, AT_S64);
  at_attr attr = {.id = AT_ATTR_DIMENSIONS, .ints = {dims, 0}};
  at_node_desc d = {.op = AT_OP_REDUCE,
                    .operands = ops,
                    .num_operands = 2,
                    .attrs = &attr,
                    .num_attrs = 1,
                    .regions = &body,
                    .num_regions = 1};
  at_node *n, *after;
  ck_ok(at_build(c.comp, NULL, &d, &n));
  at_value v = {n, 0};
  at_node_desc e = {.op = AT_OP_CONVERT,
                    .operands = &v,
                    .num_operands = 1,
                    .types = &out,
                    .num_types = 1};
  ck_ok(at_build(c.comp, NULL, &e, &after));
  const at_literal *arg = ck_random_literal(&c, in, false);
  ck_add(&c, after, &arg);
  ck_end(&c);
}

// Producers before and epilogues behind reductions, several of one space, and
// argmax, whose ties and NaN must come out as in order.
static void test_fusions(void **state) {
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    c.ulps = 64;
    c.absolute = 1e-3;
    for (size_t i = 0; i < AT_LEN(k_fusions); i++) {
      char params[128], line[4096];
      snprintf(params, sizeof params, "%%20: %s, %%21: %s",
               k_fusions[i].types[0], k_fusions[i].types[1]);
      bool pair = strchr(k_fusions[i].results, ' ') != NULL;
      snprintf(line, sizeof line,
               "%%30%s = fusion %%20, %%21 {kind=REDUCE} ((%%1: %s, %%2: %s) "
               "{\n%s\n}) : "
               "%s\nreturn %s",
               pair ? ":2" : "", k_fusions[i].types[0], k_fusions[i].types[1],
               k_fusions[i].body, k_fusions[i].results,
               pair ? "%30.0, %30.1" : "%30");
      ck_text(&c, params, k_fusions[i].results, line);
    }
    ck_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                     cmocka_unit_test(test_types),
                                     cmocka_unit_test(test_reduce_then_convert),
                                     cmocka_unit_test(test_fusions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
