// Kernels written by hand: what is read of them, what is refused and how.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "mosaic/code.h"
#include "mosaic/mosaic.h"

#define VM ", #tpu.memory_space<vmem>>"

// A kernel on one (rows x 128) input and output whose body is `ops`; `attrs`
// goes into the program's attributes.
static char *kernel_text(at_arena *a, const char *type, const char *attrs,
                         const char *ops) {
  return at_arena_printf(
      a,
      "\"builtin.module\"() ({\n\"func.func\"() ({\n^bb0(%%x: %s, %%o: %s):\n"
      "%%i = \"arith.constant\"() {value = 0 : index} : () -> index\n%s\n"
      "\"func.return\"() : () -> ()\n}) {%sdimension_semantics = [], "
      "function_type = (%s, %s) -> (), scalar_prefetch = 0 : i64, "
      "scratch_operands = 0 : i64, sym_name = \"k\", "
      "tpu.core_type = #tpu.core_type<tc>} : () -> ()\n}) : () -> ()\n",
      type, type, ops, attrs, type, type);
}

static at_status read_text(at_arena *a, const char *text, const char *config,
                           at_mosaic_kernel **k) {
  at_mosaic_call call = {
      .payload = {(const uint8_t *)text, strlen(text)},
      .config = at_str_of(config),
  };
  return at_mosaic_read(&call, a, k);
}

static void expect_message(at_status s, const char *part) {
  if (at_ok(s) || !strstr(at_status_message(s), part))
    fail_msg("want \"%s\", have \"%s\"", part, at_status_message(s));
  at_status_free(s);
}

#define ADD(t)                                                             \
  "%v = \"vector.load\"(%x, %i, %i) : (memref<8x128x" t VM                 \
  ", index, index) -> vector<8x128x" t                                     \
  ">\n%w = \"arith.addi\"(%v, %v) : (vector<8x128x" t ">, vector<8x128x" t \
  ">) -> vector<8x128x" t                                                  \
  ">\n\"vector.store\"(%w, %o, %i, %i) : (vector<8x"                       \
  "128x" t ">, memref<8x128x" t VM ", index, index) -> ()"

static void a_kernel_is_described(void **state) {
  at_arena *a = at_arena_create();
  at_mosaic_kernel *k = NULL;
  at_status s = read_text(
      a, kernel_text(a, "memref<8x128xi32" VM, "", ADD("i32")),
      "{\"custom_call_config\": {\"collective_id\": 3, \"has_communication\": "
      "true}, \"scoped_memory_configs\": [{\"memory_space\": 1, \"offset\": 0, "
      "\"size\": 4096}]}",
      &k);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  assert_string_equal(k->name, "k");
  assert_int_equal(k->num_programs, 1);
  assert_int_equal(k->programs[0].num_windows, 2);
  assert_int_equal(k->programs[0].windows[0].ref.dtype, AT_S32);
  assert_int_equal(k->programs[0].core, AT_MCORE_TC);
  assert_int_equal(k->config.collective_id, 3);
  assert_true(k->config.has_communication);
  assert_true(k->config.shape_invariant_numerics);
  assert_int_equal(k->config.vmem_limit_bytes, 4096);
  at_arena_destroy(a);
}

#define ALLOC(v, rows)                                           \
  "\n%" v                                                        \
  " = \"memref.alloca\"() {operandSegmentSizes = array<i32: 0, " \
  "0>} : () -> memref<" rows "x128xi32" VM
#define SEMS(v, n)                                   \
  "\n%" v " = \"tpu.sem_alloc\"() : () -> memref<" n \
  "x!tpu.semaphore, #tpu.memory_space<semaphore_mem>>"
#define SCOPE(ops) \
  "\n\"tpu.region\"() ({" ops "\n\"tpu.yield\"() : () -> ()}) : () -> ()"
#define LOOP(ops)                                      \
  "\n\"scf.for\"(%i, %i, %i) ({\n^bb0(%t: index):" ops \
  "\n\"scf.yield\"() : () -> ()}) : (index, index, index) -> ()"

// Scopes one after the other share memory, scopes in each other do not.
static void allocations_are_counted(void **state) {
  static const struct {
    const char *ops;
    int64_t bytes, sems;
  } cases[] = {
      {"", 0, 0},
      {SCOPE(ALLOC("a", "8")), 4096, 0},
      {SCOPE(ALLOC("a", "8")) SCOPE(ALLOC("b", "16")), 8192, 0},
      {SCOPE(ALLOC("a", "8") SCOPE(ALLOC("b", "16") SEMS("s", "3"))), 12288, 3},
      {SCOPE(ALLOC("a", "8")) ALLOC("b", "1") SCOPE(ALLOC("c", "8")), 4608, 0},
      {LOOP(SCOPE(ALLOC("a", "8"))), 4096, 0},
      {LOOP(ALLOC("a", "8")), -1, -1},
      {SCOPE(LOOP(SEMS("s", "2"))), -1, -1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    at_arena *a = at_arena_create();
    at_mosaic_kernel *k = NULL;
    at_mosaic_stack stack;
    at_status s = read_text(
        a, kernel_text(a, "memref<8x128xi32" VM, "", cases[i].ops), "", &k);
    if (!at_ok(s)) fail_msg("%zu: %s", i, at_status_message(s));
    s = at_mosaic_stack_of(k, &k->programs[0], a, &stack);
    assert_true(at_ok(s));
    assert_int_equal(stack.bytes, cases[i].bytes);
    assert_int_equal(stack.sems, cases[i].sems);
    at_arena_destroy(a);
  }
}

static void loads_before_stores_go(void **state) {
  at_arena *a = at_arena_create();
  at_mosaic_kernel *k = NULL;
  at_status s = read_text(
      a,
      kernel_text(a, "memref<8x128xi32" VM, "",
                  ADD("i32") "\n%dead = \"vector.load\"(%o, %i, %i) : "
                             "(memref<8x128xi32" VM
                             ", index, index) -> vector<8x128xi32>"),
      "", &k);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  const at_mblock *b = k->programs[0].body;
  uint32_t loads = 0;
  for (uint32_t i = 0; i < b->num_ops; i++)
    loads += at_mosaic_opcode_of(b->ops[i]) == AT_MOSAIC_VECTOR_LOAD;
  assert_int_equal(loads, 1);
  at_arena_destroy(a);
}

#define CAST(to, op, from, t, u)                               \
  "\n%" to " = \"arith." op "\"(%" from ") : (vector<8x128x" t \
  ">) -> vector<8x128x" u ">"
#define STORE(v, t)                                           \
  "\n\"vector.store\"(%" v ", %o, %i, %i) : (vector<8x128x" t \
  ">, memref<8x128x" t VM ", index, index) -> ()"

// What is left of a value that is widened and narrowed back.
static void round_trips_go(void **state) {
  static const struct {
    const char *type, *ops;
    uint32_t casts;
  } cases[] = {
      {"bf16",
       CAST("w", "extf", "v", "bf16", "f32")
           CAST("n", "truncf", "w", "f32", "bf16") STORE("n", "bf16"),
       0},
      // Others want the wide value as well.
      {"bf16",
       CAST("w", "extf", "v", "bf16", "f32")
           CAST("n", "truncf", "w", "f32", "bf16") STORE(
               "n",
               "bf16") "\n%s = \"arith.addf\"(%w, %w) : (vector<8x128xf32>, "
                       "vector<8x128xf32>) -> vector<8x128xf32>",
       1},
      // Another type, and values that were rounded before.
      {"f16",
       CAST("w", "extf", "v", "f16", "f32")
           CAST("n", "truncf", "w", "f32", "bf16")
               CAST("b", "bitcast", "n", "bf16", "f16") STORE("b", "f16"),
       2},
      {"f32",
       CAST("n", "truncf", "v", "f32", "bf16")
           CAST("w", "extf", "n", "bf16", "f32") STORE("w", "f32"),
       2}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_arena *a = at_arena_create();
    at_mosaic_kernel *k = NULL;
    const char *t = cases[i].type;
    char *type = at_arena_printf(a, "memref<8x128x%s" VM, t);
    char *load = at_arena_printf(
        a,
        "%%v = \"vector.load\"(%%x, %%i, %%i) : (%s, index, index) -> "
        "vector<8x128x%s>%s",
        type, t, cases[i].ops);
    at_status s = read_text(a, kernel_text(a, type, "", load), "", &k);
    if (!at_ok(s)) fail_msg("%s", at_status_message(s));
    const at_mblock *b = k->programs[0].body;
    uint32_t casts = 0;
    for (uint32_t n = 0; n < b->num_ops; n++) {
      at_mosaic_opcode c = at_mosaic_opcode_of(b->ops[n]);
      casts += c == AT_MOSAIC_ARITH_EXTF || c == AT_MOSAIC_ARITH_TRUNCF;
    }
    assert_int_equal(casts, cases[i].casts);
    at_arena_destroy(a);
  }
}

// A product of 8x128 and 128x16 with those dimension numbers.
#define PRODUCT(numbers)                                                       \
  "%a = \"arith.constant\"() {value = dense<1.0> : vector<8x128xf32>} : () "   \
  "-> "                                                                        \
  "vector<8x128xf32>\n"                                                        \
  "%b = \"arith.constant\"() {value = dense<1.0> : vector<128x16xf32>} : () "  \
  "-> vector<128x16xf32>\n"                                                    \
  "%z = \"arith.constant\"() {value = dense<0.0> : vector<8x16xf32>} : () -> " \
  "vector<8x16xf32>\n"                                                         \
  "%v = \"tpu.matmul\"(%a, %b, %z) {dimension_numbers = "                      \
  "#tpu.dot_dimension_numbers<" numbers                                        \
  ">, transpose_lhs = false, transpose_rhs = false} : (vector<8x128xf32>, "    \
  "vector<128x16xf32>, vector<8x16xf32>) -> vector<8x16xf32>\n"

// A dimension in two lists or in none, contracted ones of different sizes,
// results of another shape.
static void products_cover_their_operands(void **state) {
  static const struct {
    const char *ops, *want;  // NULL: it is a product
  } cases[] = {
      {PRODUCT("[1], [0], [0], [1], [0, 0, 1, 1], [], []"), NULL},
      {PRODUCT("[1], [0], [1], [1], [0, 0, 1, 1], [], []"), "do not cover"},
      {PRODUCT("[1], [0], [0], [0], [0, 0, 1, 1], [], []"), "do not cover"},
      {PRODUCT("[1], [0], [], [1], [0, 0, 1, 1], [], []"), "do not cover"},
      {PRODUCT("[1], [0], [0], [1], [0, 0], [], []"), "do not cover"},
      {PRODUCT("[1], [0], [0], [1], [0, 0, 1, 1], [0], []"), "do not cover"},
      {PRODUCT("[1], [2], [0], [1], [0, 0, 1, 1], [], []"), "do not cover"},
      {PRODUCT("[0], [0], [1], [1], [0, 1, 1, 1], [], []"), "same size"},
      {PRODUCT("[1], [0], [0], [1], [1, 1, 0, 0], [], []"), "result's shape"},
      {PRODUCT("[1], [0], [0], [1], [0, 0, 1, 0], [], []"), "result's shape"},
      {PRODUCT("[1], [0], [0], [1], [0, 0, 1, 2], [], []"), "result's shape"},
      {PRODUCT("[1], [0], [0], [1], [0, 0, 2, 1], [], []"), "result's shape"},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_arena *a = at_arena_create();
    at_mosaic_kernel *k = NULL;
    at_status s = read_text(
        a, kernel_text(a, "memref<8x128xi32" VM, "", cases[i].ops), "", &k);
    if (cases[i].want)
      expect_message(s, cases[i].want);
    else
      assert_int_equal(at_code_take(s), AT_OK_CODE);
    at_arena_destroy(a);
  }
}

static void malformed_kernels_name_themselves(void **state) {
  static const struct {
    const char *ops, *want;
  } cases[] = {
      {"%v = \"arith.nothing\"() : () -> i32",
       "kernel k: operation arith.nothing is not known"},
      {"%v = \"arith.addi\"(%i) : (index) -> index",
       "wrong number of operands"},
      {"%v = \"arith.negf\"(%i) : (index) -> index", "must be a float"},
      {"%v = \"arith.constant\"() {value = dense<0> : vector<8x128xi32>} : () "
       "-> vector<8x128xi32>\n\"vector.store\"(%v, %o, %i) : "
       "(vector<8x128xi32>, memref<8x128xi32" VM ", index) -> ()",
       "requires 2 indices"},
      {"%v = \"arith.constant\"() {value = dense<0> : vector<16x128xi32>} : () "
       "-> vector<16x128xi32>\n\"vector.store\"(%v, %o, %i, %i) : "
       "(vector<16x128xi32>, memref<8x128xi32" VM ", index, index) -> ()",
       "leaves a dimension"},
      {"%v = \"arith.addi\"(%w, %i) : (index, index) -> index\n%w = "
       "\"arith.constant\"() {value = 1 : index} : () -> index",
       ""},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_arena *a = at_arena_create();
    at_mosaic_kernel *k = NULL;
    at_status s = read_text(
        a, kernel_text(a, "memref<8x128xi32" VM, "", cases[i].ops), "", &k);
    expect_message(s, cases[i].want);
    at_arena_destroy(a);
  }
  at_arena *a = at_arena_create();
  at_mosaic_kernel *k = NULL;
  expect_message(
      read_text(a,
                kernel_text(a, "memref<8x128xi32" VM,
                            "iteration_bounds = array<i64: -4>, ", ""),
                "", &k),
      "kernel k: grid dimension 0 is negative");
  expect_message(read_text(a,
                           "\"builtin.module\"() ({\n}) "
                           "{stable_mosaic.version = 99 : i64} : () -> ()",
                           "", &k),
                 "serialised in version 99 of Mosaic, versions 1 to 18 are");
  expect_message(
      read_text(a, "", "{\"custom_call_config\": {\"body\": \"?\"}}", &k),
      "not base64");
  expect_message(read_text(a, "", "{\"custom_call_config\": 3}", &k),
                 "custom_call_config is not an object");
  at_arena_destroy(a);
}

// A kernel on vectors of n elements, where n is a placeholder that `mapping`
// (attributes of the module) explains.
static at_status read_symbolic(at_arena *a, const char *mapping, int64_t rows,
                               int64_t value, at_mosaic_kernel **out) {
  static const char body[] =
      "\"builtin.module\"() ({\n\"func.func\"() ({\n^bb0(%%x: REF, %%o: REF):\n"
      "%%n = \"arith.constant\"() {value = 2147483647 : i32} : () -> i32\n"
      "\"func.return\"() : () -> ()\n}) {function_type = (REF, REF) -> (), "
      "scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, sym_name = "
      "\"k\", "
      "tpu.core_type = #tpu.core_type<tc>} : () -> ()\n}) {%s} : () -> ()\n";
  at_strbuf b = {0};
  at_strbuf_addf(&b, body, mapping);
  at_strbuf text = {0};
  for (const char *p = b.ptr; p && *p; p++) {
    bool ref = !strncmp(p, "REF", 3);
    if (ref)
      at_strbuf_addz(&text, "memref<2147483647x128xf32" VM);
    else
      at_strbuf_addc(&text, *p);
    p += ref ? 2 : 0;
  }
  int64_t dims[] = {rows, 128};
  at_type array = {.dtype = AT_F32, .rank = 2, .dims = dims};
  at_type operands[] = {array};
  int64_t values[] = {value};
  at_mosaic_call call = {.payload = {(const uint8_t *)text.ptr, text.len},
                         .operands = operands,
                         .results = &array,
                         .num_operands = 1,
                         .num_results = 1,
                         .values = values};
  at_status s = at_mosaic_read(&call, a, out);
  at_strbuf_free(&b);
  at_strbuf_free(&text);
  return s;
}

#define MAPPING(places, function)                                            \
  "tpu.dynamic_dimension_mapping_indices_2147483647 = [" places              \
  "], tpu.dynamic_dimension_mapping_module_2147483647 = \"module {\\0A "     \
  "func.func public @main(%arg0: tensor<i32>) -> tensor<i32> {\\0A" function \
  "\\0A }\\0A}\""
#define ROWS "{dimension_index = 0 : i64, operand_index = 0 : i64}"
#define VALUE "{dimension_index = -1 : i64, operand_index = 0 : i64}"
#define SAME "return %arg0 : tensor<i32>"

static void symbolic_sizes(void **state) {
  at_arena *a = at_arena_create();
  at_mosaic_kernel *k = NULL;
  at_status s = read_symbolic(a, MAPPING(ROWS, SAME), 24, AT_MDYN, &k);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  assert_false(k->symbolic);
  assert_int_equal(k->programs[0].windows[0].ref.shape.ptr[0], 24);
  assert_int_equal(k->programs[0].windows[1].whole.dims[0], 24);
  // The body's constant is the size, too.
  assert_int_equal(at_mop_attr(k->programs[0].body->ops[0], "value")->i, 24);

  // What the call does not tell stays open.
  s = read_symbolic(a, MAPPING(VALUE, SAME), 24, AT_MDYN, &k);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  assert_true(k->symbolic);
  s = read_symbolic(a, MAPPING(VALUE, SAME), 24, 8, &k);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  assert_int_equal(k->programs[0].windows[0].ref.shape.ptr[0], 8);

  static const struct {
    const char *mapping, *want;
  } wrong[] = {
      {MAPPING(ROWS ", " ROWS, SAME), "has another signature"},
      {MAPPING("3", SAME), "without operand or dimension"},
      {MAPPING(ROWS, "return %arg1 : tensor<i32>"), "kernel k: "},
      {MAPPING(ROWS,
               "%0 = stablehlo.negate %arg0 : tensor<i32>\\0A"
               "return %0 : tensor<i32>"),
       "negative"},
      {MAPPING(ROWS,
               "%0 = func.call @main(%arg0) : (tensor<i32>) -> "
               "tensor<i32>\\0Areturn %0 : tensor<i32>"),
       "kernel k: "},
      {"tpu.dynamic_dimension_mapping_module_2147483647 = \"module {}\"",
       "is not said"},
      {"tpu.dynamic_dimension_mapping_module_2147483647 = 3 : i32",
       "is not said"},
      {"tpu.dynamic_dimension_mapping_module_ = \"\"", "is not said"}};
  for (size_t i = 0; i < AT_LEN(wrong); i++)
    expect_message(read_symbolic(a, wrong[i].mapping, 24, AT_MDYN, &k),
                   wrong[i].want);
  at_arena_destroy(a);
}

// A kernel over a grid of 4 whose input is placed by `map`.
static at_status read_mapped(at_arena *a, const char *map,
                             at_mosaic_kernel **k) {
#define BLOCK "memref<8x128xf32, #tpu.memory_space<vmem>>"
  const char *text = at_arena_printf(
      a,
      "\"builtin.module\"() ({\n\"func.func\"() ({\n^bb0(%%g: i32, %%x: " BLOCK
      ", %%o: " BLOCK
      "):\n\"func.return\"() : () -> ()\n}) {dimension_semantics = "
      "[#tpu.dimension_semantics<arbitrary>], function_type = (i32, " BLOCK
      ", " BLOCK
      ") -> (), iteration_bounds = array<i64: 4>, scalar_prefetch = 0 : i64, "
      "scratch_operands = 0 : i64, sym_name = \"k\", tpu.core_type = "
      "#tpu.core_type<tc>, window_params = [{transform_indices = "
      "affine_map<(d0) -> (%s)>}, {transform_indices = affine_map<(d0) -> (0, "
      "0)>}]} : () -> ()\n}) : () -> ()\n",
      map);
  return read_text(a, text, "{\"custom_call_config\": {},}", k);
}

static void windows_are_placed_by_maps(void **state) {
  at_arena *a = at_arena_create();
  at_mosaic_kernel *k = NULL;
  at_status s = read_mapped(a, "d0 * 2 + 1, 0", &k);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  const at_mosaic_window *w = k->programs[0].windows;
  assert_int_equal(w[0].kind, AT_MWIN_BLOCKED);
  assert_true(w[0].moves);
  const at_mblock *b = w[0].transform->regions[0]->blocks[0];
  assert_int_equal(b->num_args, 1);
  assert_int_equal(at_mosaic_opcode_of(b->ops[1]), AT_MOSAIC_ARITH_MULI);
  assert_null(w[1].transform);  // stays where it is
  expect_message(read_mapped(a, "d0 floordiv 2, 0", &k), "transform_indices");
  expect_message(read_mapped(a, "d0", &k), "one index per dimension");
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_are_placed_by_maps),
      cmocka_unit_test(a_kernel_is_described),
      cmocka_unit_test(allocations_are_counted),
      cmocka_unit_test(loads_before_stores_go),
      cmocka_unit_test(round_trips_go),
      cmocka_unit_test(malformed_kernels_name_themselves),
      cmocka_unit_test(products_cover_their_operands),
      cmocka_unit_test(symbolic_sizes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
