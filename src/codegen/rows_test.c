// Kernels that go row by row, and results that are stored past the caches.
#include "codegen/check.h"

static const uint64_t k_targets[] = {~0ull, AT_CPU_AVX2};

#define SUM                                                        \
  "((%100: f32[], %101: f32[]) {\n%102 = add %100, %101 : f32[]\n" \
  "return %102\n})"
#define SUM_AGAIN                                                  \
  "((%140: f32[], %141: f32[]) {\n%142 = add %140, %141 : f32[]\n" \
  "return %142\n})"
#define MAX                                                            \
  "((%110: f32[], %111: f32[]) {\n%112 = maximum %110, %111 : f32[]\n" \
  "return %112\n})"
#define ZERO "%80 = constant {value=f32[] 0.0} : f32[]\n"
#define LOW "%81 = constant {value=f32[] -inf} : f32[]\n"

// $A: rows x columns, f32; $R: rows; $H: $A in bf16; $C: columns; $I: rows,
// one index each. Parameters %1 (of `types[0]`) and %2; results of %1's rows.
typedef struct body {
  const char *name, *types[2], *results, *lines;
  bool in_place;  // result 0 may be where parameter 0 is
} body;

#define SOFTMAX(x)                                                        \
  ZERO LOW "%10 = reduce " x ", %81 {dimensions=[1]} " MAX                \
           " : $R\n"                                                      \
           "%11 = broadcast_in_dim %10 {broadcast_dimensions=[0]} : $A\n" \
           "%12 = subtract " x                                            \
           ", %11 : $A\n%13 = exponential %12 : $A\n"                     \
           "%14 = reduce %13, %80 {dimensions=[1]} " SUM " : $R\n"

static const body k_bodies[] = {
    {"softmax",
     {"$A", "$C"},
     "$A",
     SOFTMAX(
         "%1") "%15 = broadcast_in_dim %14 {broadcast_dimensions=[0]} : $A\n"
               "%16 = divide %13, %15 : $A\nreturn %16",
     true},
    {"log of the sum of exponentials",
     {"$A", "$C"},
     "$R, $R",
     SOFTMAX("%1") "%15 = log %14 : $R\n%16 = add %15, %10 : $R\n"
                   "return %16, %10",
     false},
    {"softmax in bf16",
     {"$H", "$C"},
     "$H",
     "%9 = convert %1 : $A\n" SOFTMAX(
         "%9") "%15 = broadcast_in_dim %14 {broadcast_dimensions=[0]} : $A\n"
               "%16 = divide %13, %15 : $A\n%17 = convert %16 : $H\nreturn %17",
     true},
    {"bf16 kept between sweeps",
     {"$H", "$C"},
     "$H",
     ZERO "%9 = exponential %1 : $H\n%8 = convert %9 : $A\n"
          "%10 = reduce %8, %80 {dimensions=[1]} " SUM " : $R\n"
          "%11 = broadcast_in_dim %10 {broadcast_dimensions=[0]} : $A\n"
          "%12 = divide %8, %11 : $A\n%13 = convert %12 : $H\n"
          "%14 = multiply %13, %9 : $H\nreturn %14",
     true},
    {"norm with gain, and the sums",
     {"$A", "$C"},
     "$A, $R",
     ZERO "%10 = reduce %1, %80 {dimensions=[1]} " SUM " : $R\n"
          "%11 = broadcast_in_dim %10 {broadcast_dimensions=[0]} : $A\n"
          "%12 = subtract %1, %11 : $A\n%13 = multiply %12, %12 : $A\n"
          "%14 = reduce %13, %80 {dimensions=[1]} " SUM_AGAIN " : $R\n"
          "%15 = rsqrt %14 : $R\n"
          "%16 = broadcast_in_dim %15 {broadcast_dimensions=[0]} : $A\n"
          "%17 = multiply %12, %16 : $A\n"
          "%18 = broadcast_in_dim %2 {broadcast_dimensions=[1]} : $A\n"
          "%19 = multiply %17, %18 : $A\nreturn %19, %10",
     true},
    {"a predicate kept, an index in the row",
     {"$A", "$I"},
     "$A, $R",
     SOFTMAX(
         "%1") "%15 = log %14 : $R\n"
               "%16 = broadcast_in_dim %15 {broadcast_dimensions=[0]} : $A\n"
               "%17 = subtract %12, %16 : $A\n"
               "%18 = gather %17, %2 {slice_sizes=[1,1], offset_dims=[], "
               "collapsed_slice_dims=[1], operand_batching_dims=[0], "
               "start_indices_batching_dims=[0], start_index_map=[1], "
               "index_vector_dim=1, indices_are_sorted=false} : $R\n"
               "%19 = compare %13, %11 {comparison_direction=GT, "
               "compare_type=FLOAT} : "
               "$P\n%20 = select %19, %17, %12 : $A\nreturn %20, %18",
     false},
    {"one value for the row, and of another row",
     {"$A", "$R"},
     "$A, $R",
     "%3 = reverse %2 {dimensions=[0]} : $R\n"
     "%4 = broadcast_in_dim %2 {broadcast_dimensions=[0]} : $A\n"
     "%5 = broadcast_in_dim %3 {broadcast_dimensions=[0]} : $A\n"
     "%6 = subtract %4, %5 : $A\n%9 = multiply %6, %1 : $A\n" SOFTMAX(
         "%9") "%15 = broadcast_in_dim %14 "
               "{broadcast_dimensions=[0]} : $A\n"
               "%16 = divide %13, %15 : $A\nreturn %16, %14",
     true},
    {"one value for the row, spread, and of another row",
     {"$A", "$R"},
     "$A, $R",
     "%4 = broadcast_in_dim %2 {broadcast_dimensions=[0]} : $A\n"
     "%5 = reverse %4 {dimensions=[0]} : $A\n"
     "%6 = subtract %4, %5 : $A\n%9 = multiply %6, %1 : $A\n" SOFTMAX(
         "%9") "%15 = broadcast_in_dim %14 "
               "{broadcast_dimensions=[0]} : $A\n"
               "%16 = divide %13, %15 : $A\nreturn %16, %14",
     true},
    {"an element elsewhere",
     {"$A", "$C"},
     "$A",
     SOFTMAX(
         "%1") "%15 = broadcast_in_dim %14 {broadcast_dimensions=[0]} : $A\n"
               "%16 = divide %13, %15 : $A\n%17 = reverse %1 {dimensions=[1]} "
               ": $A\n"
               "%18 = add %16, %17 : $A\nreturn %18",
     false},
};

// One of the short names of types above.
static void put_type(at_strbuf *s, char which, int64_t rows, int64_t columns) {
  switch (which) {
    case 'A':
      at_strbuf_addf(s, "f32[%lld,%lld]", (long long)rows, (long long)columns);
      break;
    case 'H':
      at_strbuf_addf(s, "bf16[%lld,%lld]", (long long)rows, (long long)columns);
      break;
    case 'P':
      at_strbuf_addf(s, "i1[%lld,%lld]", (long long)rows, (long long)columns);
      break;
    case 'R':
      at_strbuf_addf(s, "f32[%lld]", (long long)rows);
      break;
    case 'I':
      at_strbuf_addf(s, "i32[%lld,1]", (long long)rows);
      break;
    default:
      at_strbuf_addf(s, "f32[%lld]", (long long)columns);
      break;
  }
}

// Text with the short names replaced.
static void put(at_strbuf *s, const char *text, int64_t rows, int64_t columns) {
  for (; *text; text++) {
    if (*text == '$')
      put_type(s, *++text, rows, columns);
    else
      at_strbuf_addc(s, *text);
  }
}

// The fusion as the only node of a function.
static at_node *fusion_of(ck *c, const char *kind, const body *b, int64_t rows,
                          int64_t columns) {
  at_strbuf s = {0};
  uint32_t results = strstr(b->results, ", ") ? 2 : 1;
  put(&s, "hlo module \"t\" {\nfunc \"main\" (%60: ", rows, columns);
  put(&s, b->types[0], rows, columns);
  put(&s, ", %61: ", rows, columns);
  put(&s, b->types[1], rows, columns);
  put(&s, ") -> (", rows, columns);
  put(&s, b->results, rows, columns);
  at_strbuf_addf(&s, ") {\n%%70%s = fusion %%60, %%61 {kind=%s} ((%%1: ",
                 results == 2 ? ":2" : "", kind);
  put(&s, b->types[0], rows, columns);
  put(&s, ", %2: ", rows, columns);
  put(&s, b->types[1], rows, columns);
  at_strbuf_addz(&s, ") {\n");
  put(&s, b->lines, rows, columns);
  at_strbuf_addz(&s, "\n}) : ");
  put(&s, b->results, rows, columns);
  at_strbuf_addf(&s, "\nreturn %s\n}\n}\n",
                 results == 2 ? "%70.0, %70.1" : "%70");
  char *text = at_arena_str(c->arena, at_strbuf_str(&s));
  at_strbuf_free(&s);
  at_module *m;
  ck_ok(at_hlo_parse(at_str_of(text), c->arena, &m));
  ck_ok(at_verify(m, "test"));
  AT_FOR_NODES(n, m->funcs[0])
  if (n->op == AT_OP_FUSION) return n;
  fail_msg("no fusion");
  return NULL;
}

// Ordinary numbers, and rows with some that are not: one NaN, one infinity of
// either sign, nothing but -inf, all alike, denormals.
static const at_literal *numbers(ck *c, const at_type *t, int64_t columns) {
  const at_literal *l = ck_random_literal(c, *t, false);
  size_t one = at_dtype_bytes(t->dtype);
  char *data = (char *)l->data;
  int64_t rows = at_type_elements(t) / columns;
  for (int64_t r = 0; r < rows && rows > 1; r++) {
    char *row = data + (size_t)(r * columns) * one;
    char *some = row + (size_t)(ck_random(c) % (uint64_t)columns) * one;
    if (r % 9 == 1) at_store_float(t->dtype, some, NAN);
    if (r % 9 == 2) at_store_float(t->dtype, some, -INFINITY);
    if (r % 9 == 3) at_store_float(t->dtype, some, INFINITY);
    for (int64_t k = 0; k < columns; k++) {
      char *x = row + (size_t)k * one;
      if (r % 9 == 4) at_store_float(t->dtype, x, -INFINITY);
      if (r % 9 == 5) at_store_float(t->dtype, x, 2);
      if (r % 9 == 6) at_store_float(t->dtype, x, 1e-39);
    }
  }
  return l;
}

// Twice where it may be in place: once apart, once there.
static void add(ck *c, const char *kind, const body *b, int64_t rows,
                int64_t columns) {
  at_node *n = fusion_of(c, kind, b, rows, columns);
  const at_type *other = at_value_type(n->operands[1]);
  const at_literal *args[2] = {
      numbers(c, at_value_type(n->operands[0]), columns),
      other->dtype == AT_S32 ? ck_indices(c, *other, columns)
                             : ck_random_literal(c, *other, false)};
  ck_add(c, n, args);
  assert_int_equal(at_cg_can_alias(n, 0, 0), b->in_place);
  if (b->in_place) ck_add(c, n, args)->alias[0] = 0;
}

// Rows of one vector, of less, of many and a rest; each compiled three ways and
// once with streamed results.
static void test_bodies(void **state) {
  static const int64_t shapes[][2] = {{1, 2},    {3, 7},    {9, 16},  {40, 33},
                                      {11, 100}, {300, 64}, {2, 1037}};
  for (size_t f = 0; f < AT_LEN(k_targets); f++)
    for (size_t i = 0; i < AT_LEN(k_bodies); i++) {
      ck c;
      ck_begin(&c, k_targets[f]);
      c.streams = true;
      c.ulps = 64;
      c.absolute = 1e-4;
      snprintf(c.title, sizeof c.title, "%s: ", k_bodies[i].name);
      for (size_t s = 0; s < AT_LEN(shapes); s++)
        add(&c, "ROWS", &k_bodies[i], shapes[s][0], shapes[s][1]);
      ck_end(&c);
    }
}

// Rows of several digits: a mask of fewer dimensions, and columns in two.
static void test_digits(void **state) {
  static const body masked = {
      .name = "masked",
      .types = {"f32[3,2,5,36]", "f32[3,5,36]"},
      .results = "f32[3,2,5,36]",
      .lines = ZERO
      "%3 = broadcast_in_dim %2 {broadcast_dimensions=[0,2,3]} : "
      "f32[3,2,5,36]\n%4 = add %1, %3 : f32[3,2,5,36]\n"
      "%5 = reduce %4, %80 {dimensions=[3]} " SUM
      " : f32[3,2,5]\n"
      "%6 = broadcast_in_dim %5 {broadcast_dimensions=[0,1,2]} : "
      "f32[3,2,5,36]\n%7 = divide %4, %6 : f32[3,2,5,36]\nreturn %7",
      .in_place = true};
  static const body two = {
      .name = "two columns",
      .types = {"f32[6,7,24]", "f32[7]"},
      .results = "f32[6,7,24]",
      .lines = ZERO
      "%3 = broadcast_in_dim %2 {broadcast_dimensions=[1]} : f32[6,7,24]\n"
      "%4 = multiply %1, %3 : f32[6,7,24]\n%8 = exponential %4 : f32[6,7,24]\n"
      "%5 = reduce %8, %80 {dimensions=[1,2]} " SUM
      " : f32[6]\n"
      "%6 = broadcast_in_dim %5 {broadcast_dimensions=[0]} : f32[6,7,24]\n"
      "%7 = divide %8, %6 : f32[6,7,24]\nreturn %7",
      .in_place = true};
  static const body narrow = {
      .name = "short inner columns",
      .types = {"f32[6,30,3]", "f32[3]"},
      .results = "f32[6,30,3]",
      .lines = ZERO
      "%3 = broadcast_in_dim %2 {broadcast_dimensions=[2]} : f32[6,30,3]\n"
      "%4 = multiply %1, %3 : f32[6,30,3]\n"
      "%5 = reduce %4, %80 {dimensions=[1,2]} " SUM
      " : f32[6]\n"
      "%6 = broadcast_in_dim %5 {broadcast_dimensions=[0]} : f32[6,30,3]\n"
      "%7 = subtract %4, %6 : f32[6,30,3]\nreturn %7",
      .in_place = true};
  const body *all[] = {&masked, &two, &narrow};
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    c.streams = true;
    c.ulps = 64;
    c.absolute = 1e-4;
    for (size_t i = 0; i < AT_LEN(all); i++) add(&c, "ROWS", all[i], 1, 36);
    ck_end(&c);
  }
}

// The largest of each row and where it is: two values at once.
static void test_argmax(void **state) {
  static const body argmax = {
      .types = {"$A", "$C"},
      .results = "$R, $A",
      .lines = LOW
      "%3 = constant {value=i32[] 0} : i32[]\n"
      "%4 = iota {dimension=1} : i32[40,77]\n"
      "%5:2 = reduce %1, %4, %81, %3 {dimensions=[1]} "
      "((%120: f32[], %121: i32[], %122: f32[], %123: i32[]) {\n"
      "%124 = compare %120, %122 {comparison_direction=GE, "
      "compare_type=FLOAT} : i1[]\n"
      "%128 = compare %121, %123 {comparison_direction=LT, "
      "compare_type=SIGNED} : i1[]\n"
      "%127 = compare %120, %122 {comparison_direction=EQ, "
      "compare_type=FLOAT} : i1[]\n%129 = and %127, %128 : i1[]\n"
      "%126 = compare %120, %122 {comparison_direction=GT, "
      "compare_type=FLOAT} : i1[]\n%130 = or %126, %129 : i1[]\n"
      "%131 = select %124, %120, %122 : f32[]\n"
      "%132 = select %130, %121, %123 : i32[]\nreturn %131, %132\n}) : "
      "f32[40], i32[40]\n"
      "%6 = convert %5.1 : $R\n"
      "%7 = broadcast_in_dim %5.0 {broadcast_dimensions=[0]} : $A\n"
      "%8 = subtract %1, %7 : $A\nreturn %6, %8"};
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    at_node *n = fusion_of(&c, "ROWS", &argmax, 40, 77);
    const at_literal *args[2] = {
        ck_random_literal(&c, *at_value_type(n->operands[0]), false),
        ck_random_literal(&c, *at_value_type(n->operands[1]), false)};
    ck_add(&c, n, args);
    ck_end(&c);
  }
}

// What is not made row by row is refused.
static void test_refused(void **state) {
  static const body across = {
      .types = {"$A", "$C"},
      .results = "$A",
      .lines = ZERO "%3 = reduce %1, %80 {dimensions=[1]} " SUM
                    " : $R\n"
                    "%4 = broadcast_in_dim %3 {broadcast_dimensions=[1]} : $A\n"
                    "%5 = add %1, %4 : $A\nreturn %5"};
  ck c;
  ck_begin(&c, ~0ull);
  at_node *n = fusion_of(&c, "ROWS", &across, 8, 8);
  at_cg_target t = {.cpu_features = c.features};
  at_cg *cg;
  at_cg_plan plan;
  ck_ok(at_cg_create(&t, &cg));
  assert_int_equal(at_code_take(at_cg_node(cg, n, NULL, c.arena, &plan)),
                   AT_INVALID_ARGUMENT);
  assert_false(at_cg_can_alias(n, 0, 0));
  at_cg_destroy(cg);
  free(c.cases);
  at_arena_destroy(c.arena);
}

// ---- Loops whose results go past the caches
static void test_streamed_loops(void **state) {
  static const body bodies[] = {
      {"two results",
       {"$A", "$A"},
       "$A, $H",
       "%3 = add %1, %2 : $A\n%4 = multiply %1, %2 : $A\n"
       "%5 = convert %4 : $H\nreturn %3, %5",
       true},
      {"columns",
       {"$A", "$C"},
       "$A",
       "%3 = broadcast_in_dim %2 {broadcast_dimensions=[1]} : $A\n"
       "%4 = multiply %1, %3 : $A\nreturn %4",
       true},
      {"bytes",
       {"$A", "$A"},
       "$P",
       "%3 = compare %1, %2 {comparison_direction=LT, compare_type=FLOAT} : "
       "$P\nreturn %3",
       false}};
  static const int64_t shapes[][2] = {{1, 1},    {1, 63},   {1, 4097}, {3, 513},
                                      {5, 1000}, {70, 700}, {2, 30011}};
  for (size_t f = 0; f < AT_LEN(k_targets); f++) {
    ck c;
    ck_begin(&c, k_targets[f]);
    c.streams = true;
    for (size_t i = 0; i < AT_LEN(bodies); i++)
      for (size_t s = 0; s < AT_LEN(shapes); s++) {
        at_node *n =
            fusion_of(&c, "LOOP", &bodies[i], shapes[s][0], shapes[s][1]);
        const at_literal *args[2] = {
            ck_random_literal(&c, *at_value_type(n->operands[0]), true),
            ck_random_literal(&c, *at_value_type(n->operands[1]), true)};
        ck_add(&c, n, args);
        if (bodies[i].in_place) ck_add(&c, n, args)->alias[0] = 0;
      }
    ck_end(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_bodies), cmocka_unit_test(test_digits),
      cmocka_unit_test(test_argmax), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_streamed_loops)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
