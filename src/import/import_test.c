// Errors by name and place, and what the golden files cannot show.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka wants the headers above first.
#include <cmocka.h>

#include "abi/attrdict.h"
#include "import/import.h"

// Reads a program's text, imports it and verifies the graph.
static at_status import(const char *text, at_arena *a, at_module **out) {
  at_mmodule *m;
  AT_TRY(at_mlir_read_text(at_str_of(text), a, &m));
  AT_TRY(at_import(m, a, out));
  return at_verify(*out, "import");
}

// Three ways to write less: a module, a function body with %x: tensor<4xf32>,
// and a body that must end in its own return.
#define BODY(ops)                                                      \
  "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n" ops \
  "\n  return %x : tensor<4xf32>\n}"

static const struct {
  const char *text;
  at_code code;
  const char *message;  // a part of it
} refused[] = {
    {BODY("%0 = stablehlo.custom_call @f(%x) {operand_layouts = [dense<0> : "
          "tensor<1xindex>], result_layouts = [dense<1> : tensor<1xindex>]} : "
          "(tensor<4xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "not an order of 1 dimensions"},
    // Lists and numbers
    {BODY("%0 = \"stablehlo.transpose\"(%x) <{permutation = dense<0> : "
          "tensor<99999999999xi64>}> : (tensor<4xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "a shorter list"},
    {BODY("%0 = \"stablehlo.transpose\"(%x) <{permutation = [\"a\"]}> : "
          "(tensor<4xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "a list of integers"},
    {BODY("%i = stablehlo.constant dense<1> : tensor<4xi32>\n"
          "%0 = \"chlo.constant_like\"(%i) <{value = 1.5 : f32}> : "
          "(tensor<4xi32>) -> tensor<4xi32>"),
     AT_INVALID_ARGUMENT, "differs from the result's type"},
    {BODY("%y = stablehlo.constant dense<1.0> : tensor<4x3xf32>\n"
          "%0 = \"chlo.broadcast_add\"(%y, %x) <{broadcast_dimensions = "
          "array<i64: 2>}> : (tensor<4x3xf32>, tensor<4xf32>) -> "
          "tensor<4x3xf32>"),
     AT_INVALID_ARGUMENT, "not sorted or too large"},
    // Types
    {BODY("%0 = stablehlo.constant dense<1.0> : "
          "tensor<2305843009213693952xf32>"),
     AT_INVALID_ARGUMENT, "over 2^63 bytes"},
    {BODY("%0 = stablehlo.broadcast_in_dim %x, dims = [0] : (tensor<4xf32>) -> "
          "tensor<4x1099511627776x524288xf32>"),
     AT_INVALID_ARGUMENT, "over 2^63 bytes"},
    {BODY("%0 = stablehlo.constant dense<1> : tensor<2xi3>"), AT_UNIMPLEMENTED,
     "element type is not supported"},
    {BODY("%0 = stablehlo.constant dense<1> : tensor<2xindex>"),
     AT_UNIMPLEMENTED, "element type is not supported"},
    {BODY("%0 = \"stablehlo.add\"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> "
          "tensor<*xf32>"),
     AT_UNIMPLEMENTED, "only ranked tensors"},
    {BODY("%0 = \"stablehlo.uniform_quantize\"(%x) : (tensor<4xf32>) -> "
          "tensor<4x!quant.uniform<i8:f32, 1.0>>"),
     AT_UNIMPLEMENTED, "stablehlo.uniform_quantize"},
    {"func.func @main(%x: tensor<4x!quant.uniform<i8:f32, 1.0>>) -> "
     "tensor<4x!quant.uniform<i8:f32, 1.0>> {\n  return %x : "
     "tensor<4x!quant.uniform<i8:f32, 1.0>>\n}",
     AT_UNIMPLEMENTED, "quantised element types"},
    {BODY("%0 = \"stablehlo.iota\"() <{iota_dimension = 0 : i64}> : () -> "
          "tensor<4611686018427387904x4xf32>"),
     AT_UNIMPLEMENTED, "too large"},
    // Futures
    {BODY("%0 = \"stablehlo.async_done\"(%x) : (tensor<4xf32>) -> "
          "tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "takes one future"},
    {BODY("%0 = \"stablehlo.async_start\"(%x) ({\n^bb0(%a: tensor<4xf32>):\n"
          "\"stablehlo.return\"(%a) : (tensor<4xf32>) -> ()\n}) : "
          "(tensor<4xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "gives one future"},
    {BODY("%0 = \"stablehlo.async_start\"(%x) ({\n^bb0(%a: tensor<2xf32>):\n"
          "\"stablehlo.return\"(%a) : (tensor<2xf32>) -> ()\n}) : "
          "(tensor<4xf32>) -> !stablehlo.future<tensor<2xf32>>"),
     AT_INVALID_ARGUMENT, "argument 0 of the body differs"},
    {BODY("%0 = \"stablehlo.async_start\"(%x) ({\n^bb0(%a: tensor<4xf32>):\n"
          "\"stablehlo.return\"(%a) : (tensor<4xf32>) -> ()\n}) : "
          "(tensor<4xf32>) -> !stablehlo.future<tensor<2xf32>>"),
     AT_INVALID_ARGUMENT, "is declared f32[2]"},
    // Names
    {BODY("\"foo.bar\"() : () -> ()"), AT_UNIMPLEMENTED, "foo.bar"},
    {BODY("%0 = \"stablehlo.warp\"(%x) : (tensor<4xf32>) -> tensor<4xf32>"),
     AT_UNIMPLEMENTED, "stablehlo.warp"},
    {BODY("%0 = \"vhlo.add_v9\"(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> "
          "tensor<4xf32>"),
     AT_UNIMPLEMENTED, "vhlo.add_v9"},
    {BODY("%0 = chlo.bessel_i1e %x : tensor<4xf32> -> tensor<4xf32>"),
     AT_UNIMPLEMENTED, "chlo.bessel_i1e"},
    {"\"ml_program.global\"() : () -> ()", AT_UNIMPLEMENTED, "module level"},
    // Attributes
    {BODY("%0 = \"stablehlo.iota\"() : () -> tensor<4xi32>"),
     AT_INVALID_ARGUMENT, "`iota_dimension` is missing"},
    {BODY("%0 = \"stablehlo.iota\"() <{iota_dimension = \"x\"}> : () -> "
          "tensor<4xi32>"),
     AT_INVALID_ARGUMENT, "`iota_dimension` must be an integer"},
    {BODY("%0 = \"stablehlo.compare\"(%x, %x) <{comparison_direction = "
          "\"ALMOST\"}> : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>"),
     AT_INVALID_ARGUMENT, "no value `ALMOST`"},
    {BODY("%0 = \"stablehlo.transpose\"(%x) <{permutation = \"x\"}> : "
          "(tensor<4xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "`permutation` must be a list"},
    {BODY("%0 = \"stablehlo.custom_call\"(%x) : (tensor<4xf32>) -> "
          "tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "`call_target_name` is missing"},
    {BODY("%0 = \"stablehlo.custom_call\"(%x) <{call_target_name = \"f\", "
          "api_version = 9 : i32}> : (tensor<4xf32>) -> tensor<4xf32>"),
     AT_UNIMPLEMENTED, "API version"},
    {BODY("%0 = \"stablehlo.all_gather\"(%x) <{all_gather_dim = 0 : i64, "
          "replica_groups = dense<0> : tensor<2xi64>}> : (tensor<4xf32>) -> "
          "tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "`replica_groups` must be a matrix"},
    // Declared types against inferred ones: both are named
    {BODY("%0 = \"stablehlo.abs\"(%x) : (tensor<4xf32>) -> tensor<5xf32>"),
     AT_INVALID_ARGUMENT, "f32[5]"},
    {BODY("%0 = \"stablehlo.abs\"(%x) : (tensor<4xf32>) -> tensor<5xf32>"),
     AT_INVALID_ARGUMENT, "f32[4]"},
    {BODY("%0 = \"stablehlo.optimization_barrier\"(%x) : (tensor<4xf32>) -> "
          "tensor<4xi32>"),
     AT_INVALID_ARGUMENT, "i32[4]"},
    {BODY("%0 = \"sdy.propagation_barrier\"(%x) <{allowed_direction = 0 : "
          "i32}> : (tensor<4xf32>) -> tensor<4xi32>"),
     AT_INVALID_ARGUMENT, "declared i32[4], its operands give f32[4]"},
    {BODY("%0 = \"stablehlo.add\"(%x) : (tensor<4xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "operands"},
    // Functions
    {BODY("%0 = call @missing(%x) : (tensor<4xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "no function `missing`"},
    {BODY("%0 = call @main(%x) : (tensor<4xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "recursive"},
    {BODY("%0 = call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>") "func.func "
                                                                 "@g(%x: "
                                                                 "tensor<5xf32>"
                                                                 ") -> "
                                                                 "tensor<4xf32>"
                                                                 " {\n  %0 = "
                                                                 "stablehlo."
                                                                 "slice %x "
                                                                 "[0:4] : "
                                                                 "(tensor<"
                                                                 "5xf32>) -> "
                                                                 "tensor<4xf32>"
                                                                 "\n  return "
                                                                 "%0 : "
                                                                 "tensor<4xf32>"
                                                                 "\n}",
     AT_INVALID_ARGUMENT, "differ from the function's type"},
    {"func.func @f() { return }\nfunc.func @g() { return }",
     AT_INVALID_ARGUMENT, "no function `main`"},
    {"func.func private @main(tensor<4xf32>) -> tensor<4xf32>",
     AT_INVALID_ARGUMENT, "no body"},
    {"module attributes {mhlo.num_partitions = 0 : i32} {}",
     AT_INVALID_ARGUMENT, "needs at least one replica and one partition"},
    // A prime: taking it apart would take an hour.
    {"module attributes {mhlo.num_partitions = 1099511627791 : i64} {}",
     AT_INVALID_ARGUMENT, "needs more than 1048576 devices"},
    {"module attributes {mhlo.num_replicas = 1048577 : i64} {}",
     AT_INVALID_ARGUMENT, "needs more than 1048576 devices"},
    {BODY("%0 = stablehlo.composite \"a.b\" %x {decomposition = @c} : "
          "(tensor<4xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "no function `c`"},
    {"func.func @main(%x: tensor<4xf32> {tf.aliasing_output = 7 : i32}) -> "
     "tensor<4xf32> {\n  return %x : tensor<4xf32>\n}",
     AT_INVALID_ARGUMENT, "aliasing_output"},
    {"module attributes {mhlo.num_partitions = 0 : i32} {\nfunc.func @main() "
     "{ return }\n}",
     AT_INVALID_ARGUMENT, "at least one"},
    // Tuples, rewrites
    {"func.func @main(%t: tuple<tensor<f32>>) -> tensor<f32> {\n  %0 = "
     "\"stablehlo.get_tuple_element\"(%t) <{index = 1 : i32}> : "
     "(tuple<tensor<f32>>) -> tensor<f32>\n  return %0 : tensor<f32>\n}",
     AT_INVALID_ARGUMENT, "index 1"},
    {BODY("%0 = \"stablehlo.einsum\"(%x, %x) <{einsum_config = \"...i,i->\"}> "
          ": (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>"),
     AT_UNIMPLEMENTED, "ellipses"},
    {BODY("%0 = \"stablehlo.einsum\"(%x, %x) <{einsum_config = \"i,i->j\"}> : "
          "(tensor<4xf32>, tensor<4xf32>) -> tensor<f32>"),
     AT_INVALID_ARGUMENT, "no operand"},
    {BODY("%0 = \"stablehlo.einsum\"(%x, %x) <{einsum_config = \"i,i->,j\"}> "
          ": (tensor<4xf32>, tensor<4xf32>) -> tensor<f32>"),
     AT_INVALID_ARGUMENT, "goes on behind its result"},
    {"sdy.mesh @m = <[\"x\"=2]>\nsdy.mesh @m = <[\"x\"=4]>\n"
     "func.func @main() { return }",
     AT_INVALID_ARGUMENT, "mesh `m` is defined twice"},
    {BODY("%0 = \"stablehlo.einsum\"(%x, %x) <{einsum_config = \"i\"}> : "
          "(tensor<4xf32>, tensor<4xf32>) -> tensor<f32>"),
     AT_INVALID_ARGUMENT, "must look like"},
    {BODY("%0 = \"stablehlo.torch_index_select\"(%x, %x) <{dim = 3 : i64, "
          "batch_dims = 0 : i64}> : (tensor<4xf32>, tensor<4xf32>) -> "
          "tensor<4xf32>"),
     AT_INVALID_ARGUMENT, "outside"},
    {BODY("%0 = \"chlo.broadcast_add\"(%x, %y) : (tensor<4xf32>, "
          "tensor<3xf32>) -> tensor<4xf32>"),
     AT_INVALID_ARGUMENT, ""},
    {"func.func @main(%x: tensor<4xf32>, %y: tensor<3xf32>) -> tensor<4xf32> "
     "{\n  %0 = \"chlo.broadcast_add\"(%x, %y) : (tensor<4xf32>, "
     "tensor<3xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}",
     AT_INVALID_ARGUMENT, "size 4 and 3 do not broadcast"},
};

// Each text is refused with that code and a message that contains the given
// part.
static void refusals(void **state) {
  int bad = 0;
  for (size_t i = 0; i < AT_LEN(refused); i++) {
    at_arena *a = at_arena_create();
    at_module *m;
    at_status s = import(refused[i].text, a, &m);
    bool ok = at_status_code(s) == refused[i].code &&
              strstr(at_status_message(s), refused[i].message);
    if (!ok)
      print_message("%s\n  gave %s: %s\n  not %s: %s\n", refused[i].text,
                    at_code_name(at_status_code(s)), at_status_message(s),
                    at_code_name(refused[i].code), refused[i].message);
    bad += !ok;
    at_status_free(s);
    at_arena_destroy(a);
  }
  assert_int_equal(bad, 0);
}

// The op and the line that JAX recorded.
static void errors_name_the_place(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_status s = import(BODY("%0 = \"stablehlo.iota\"() : () -> tensor<4xi32> "
                            "loc(\"jit(f)/iota\"(\"train.py\":7:3))"),
                       a, &m);
  assert_int_equal(at_status_code(s), AT_INVALID_ARGUMENT);
  assert_non_null(strstr(at_status_message(s), "stablehlo.iota"));
  assert_non_null(strstr(at_status_message(s), "train.py:7"));
  assert_non_null(strstr(at_status_message(s), "jit(f)/iota"));
  at_status_free(s);
  at_arena_destroy(a);
}

// Calls that stand for ops, one in the region of the other: nodes come from the
// calls, not from the copies that they are imported by.
static void calls_for_ops_keep_origins(void **state) {
  at_arena *a = at_arena_create();
  at_mmodule *mm;
  at_module *m = NULL;
  at_status s = at_mlir_read_text(
      AT_STR("func.func @main(%x: tensor<4xf32>, %c: tensor<f32>) -> "
             "tensor<f32> {\n"
             "  %0 = \"stablehlo.custom_call\"(%x, %c) <{call_target_name = "
             "\"mhlo.reduce\"}> ({\n"
             "  ^bb0(%p: tensor<f32>, %q: tensor<f32>):\n"
             "    %1 = \"stablehlo.custom_call\"(%p, %q) <{call_target_name = "
             "\"mhlo.add\"}> : (tensor<f32>, tensor<f32>) -> tensor<f32> "
             "loc(\"f.py\":2:1)\n"
             "    \"stablehlo.return\"(%1) : (tensor<f32>) -> ()\n"
             "  }) {mhlo.attributes = {dimensions = array<i64: 0>}} : "
             "(tensor<4xf32>, tensor<f32>) -> tensor<f32> loc(\"f.py\":1:1)\n"
             "  return %0 : tensor<f32>\n}"),
      a, &mm);
  if (at_ok(s)) s = at_import(mm, a, &m);
  if (!at_ok(s)) print_message("%s\n", at_status_message(s));
  assert_int_equal(at_code_take(s), AT_OK_CODE);
  const at_mop *func = mm->op->regions[0]->blocks[0]->ops[0];
  const at_mop *call = func->regions[0]->blocks[0]->ops[0];
  const at_mop *inner = call->regions[0]->blocks[0]->ops[0];
  const at_node *n = m->entry->results[0].node;
  assert_int_equal(n->op, AT_OP_REDUCE);
  assert_ptr_equal(n->loc->origin, call);
  n = n->regions[0]->results[0].node;
  assert_int_equal(n->op, AT_OP_ADD);
  assert_ptr_equal(n->loc->origin, inner);
  at_arena_destroy(a);
}

// A value of one branch is none of the other's.
static void scopes(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_status s = import(
      "func.func @main(%p: tensor<i1>, %x: tensor<f32>) -> tensor<f32> {\n"
      "  %0 = \"stablehlo.add\"(%y, %y) : (tensor<f32>, tensor<f32>) -> "
      "tensor<f32>\n"
      "  %y = \"stablehlo.abs\"(%x) : (tensor<f32>) -> tensor<f32>\n"
      "  return %0 : tensor<f32>\n}",
      a, &m);
  assert_int_equal(at_code_take(s), AT_INVALID_ARGUMENT);
  at_arena_destroy(a);
}

// Regions nested 300 deep end in a status, not in a stack overflow.
static void nested_too_deeply(void **state) {
  at_strbuf b = {0};
  at_strbuf_addz(&b,
                 "func.func @main(%p: tensor<i1>) -> tensor<i1> {\n  %r = ");
  enum { DEPTH = 300 };
  for (int i = 0; i < DEPTH; i++)
    at_strbuf_addf(&b, "\"stablehlo.if\"(%%p) ({\n%%a%d = ", i);
  at_strbuf_addz(&b, "stablehlo.not %p : tensor<i1>\n");
  for (int i = DEPTH - 1; i >= 0; i--)
    at_strbuf_addf(&b,
                   "stablehlo.return %%a%d : tensor<i1>\n}, {\n"
                   "stablehlo.return %%p : tensor<i1>\n}) : (tensor<i1>) -> "
                   "tensor<i1>\n",
                   i);
  at_strbuf_addz(&b, "  return %r : tensor<i1>\n}");
  at_arena *a = at_arena_create();
  at_module *m;
  assert_int_equal(at_code_take(import(b.ptr, a, &m)), AT_INVALID_ARGUMENT);
  at_arena_destroy(a);
  at_strbuf_free(&b);
}

// A tuple of tuples of tuples: 2^40 leaves in two thousand bytes.
static void tuple_bomb(void **state) {
  for (int empty = 0; empty < 2; empty++) {
    at_strbuf b = {0};
    at_strbuf_addf(&b, "!t0 = tuple<%s>\n", empty ? "" : "tensor<f32>");
    for (int i = 1; i <= 40; i++)
      at_strbuf_addf(&b, "!t%d = tuple<!t%d, !t%d>\n", i, i - 1, i - 1);
    at_strbuf_addz(&b, "func.func @main(%t: !t40) { return }");
    at_arena *a = at_arena_create_limited(256u << 20);
    at_module *m;
    at_status s = import(b.ptr, a, &m);
    if (empty)
      assert_int_equal(at_code_take(s), AT_OK_CODE);  // no leaves at all
    else
      assert_int_equal(at_code_take(s), AT_INVALID_ARGUMENT);
    at_arena_destroy(a);
    at_strbuf_free(&b);
  }
}

// Each computation calls the next one twice.
static void called_computation_bomb(void **state) {
  at_strbuf b = {0};
  at_strbuf_addz(&b, "func.func @main() { return }\n");
  for (int i = 0; i < 60; i++) {
    at_strbuf_addf(&b, "func.func @%s%d() {\n", i ? "f" : "g", i);
    for (int k = 0; k < 2; k++)
      at_strbuf_addf(&b,
                     "  stablehlo.custom_call @x() {called_computations = "
                     "[@f%d]} : () -> ()\n",
                     i + 1);
    at_strbuf_addz(&b, "  return\n}\n");
  }
  at_strbuf_addz(&b, "func.func @f60() { return }\n");
  // main is replaced by g0 as the only caller.
  at_strbuf c = {0};
  const char *rest = strstr(b.ptr, "func.func @g0");
  at_strbuf_addf(&c, "func.func @main() {%s", strchr(rest, '{') + 1);
  at_arena *a = at_arena_create_limited(1u << 30);
  at_module *m;
  assert_int_equal(at_code_take(import(c.ptr, a, &m)), AT_INVALID_ARGUMENT);
  at_arena_destroy(a);
  at_strbuf_free(&b);
  at_strbuf_free(&c);
}

// What JAX attaches to module, arguments and results arrives on the module;
// leaves of a tuple argument share it.
static void entry_facts(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_status s = import(
      "module @jit_f attributes {mhlo.num_partitions = 2 : i32, "
      "mhlo.num_replicas = 3 : i32} {\n"
      "func.func @main(%x: tensor<4xf32> {jax.buffer_donor = true} "
      "loc(\"weights\"), %t: tuple<tensor<f32>, tensor<i32>> "
      "{mhlo.memory_kind = \"pinned_host\", tf.aliasing_output = 0 : i32, "
      "mhlo.layout_mode = \"auto\"}) -> (tensor<4xf32> {jax.result_info = "
      "\"out\", mhlo.sharding = \"{replicated}\"}) {\n"
      "  return %x : tensor<4xf32>\n}\n}",
      a, &m);
  if (!at_ok(s)) print_message("%s\n", at_status_message(s));
  assert_int_equal(at_code_take(s), AT_OK_CODE);
  assert_string_equal(m->name, "jit_f");
  assert_int_equal(m->num_partitions, 2);
  assert_int_equal(m->num_replicas, 3);
  assert_int_equal(m->entry->num_params, 3);
  assert_true(m->params[0].donor);
  assert_int_equal(m->params[0].alias, -1);
  assert_string_equal(m->params[0].name, "weights");
  for (int i = 1; i < 3; i++) {  // both leaves of the tuple
    assert_string_equal(m->params[i].memory_kind, "pinned_host");
    assert_string_equal(m->params[i].layout, "auto");
    assert_int_equal(m->params[i].alias, 0);
    assert_false(m->params[i].donor);
  }
  assert_string_equal(m->results[0].name, "out");
  assert_string_equal(m->results[0].sharding, "{replicated}");
  at_arena_destroy(a);
}

// The result stands alone when it has an arena of its own.
static void other_arena(void **state) {
  at_arena *in = at_arena_create(), *a = at_arena_create();
  at_mmodule *mm;
  at_module *m = NULL;
  at_status s = at_mlir_read_text(
      AT_STR("func.func @main() -> tensor<3xi32> {\n  %0 = stablehlo.constant "
             "dense<[1, 2, 3]> : tensor<3xi32> loc(\"k\"(\"f.py\":1:2))\n  "
             "return %0 : tensor<3xi32>\n}"),
      in, &mm);
  if (at_ok(s)) s = at_import(mm, a, &m);
  assert_int_equal(at_code_take(s), AT_OK_CODE);
  at_arena_destroy(in);
  at_node *n = m->entry->first;
  assert_int_equal(at_literal_int(at_node_literal(n), 2), 3);
  assert_string_equal(n->loc->file, "f.py");
  assert_string_equal(n->loc->name, "k");
  at_arena_destroy(a);
}

// A backend_config dictionary through its byte form and back, and every prefix
// of those bytes.
static void dictionaries(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_status s = import(
      BODY("%0 = stablehlo.custom_call @f(%x) {api_version = 4 : i32, "
           "backend_config = {a = -5 : i32, b = true, c = \"text\", d = 0.5 : "
           "f64, e = [1 : i64, \"two\"], f = dense<[7, 8]> : tensor<2xi64>, g "
           "= {h = 18446744073709551615 : ui64}, u, l = array<i64: 3, 4>}} : "
           "(tensor<4xf32>) -> tensor<4xf32>"),
      a, &m);
  if (!at_ok(s)) print_message("%s\n", at_status_message(s));
  assert_int_equal(at_code_take(s), AT_OK_CODE);
  at_node *n = m->entry->params[0]->next;
  at_str d = at_node_str(n, AT_ATTR_BACKEND_CONFIG_DICT);
  at_dict_value v;
  assert_true(at_dict_find(d.ptr, d.len, "a", &v));
  assert_int_equal(v.tag, AT_DICT_INT);
  assert_int_equal(v.i, -5);
  assert_int_equal(v.bits, 32);
  assert_true(at_dict_find(d.ptr, d.len, "b", &v) && v.i == 1);
  assert_true(at_dict_find(d.ptr, d.len, "c", &v));
  assert_memory_equal(v.text, "text", v.bytes);
  assert_true(at_dict_find(d.ptr, d.len, "d", &v));
  assert_true(v.tag == AT_DICT_FLOAT && v.f == 0.5);
  assert_true(at_dict_find(d.ptr, d.len, "e", &v));
  assert_true(v.tag == AT_DICT_ARRAY && v.count == 2);
  assert_true(at_dict_find(d.ptr, d.len, "f", &v));
  assert_true(v.tag == AT_DICT_DENSE && v.count == 1 && v.bytes == 16);
  assert_int_equal(v.data[8], 8);
  assert_true(at_dict_find(d.ptr, d.len, "g", &v));
  assert_true(v.tag == AT_DICT_DICT && v.count == 1);
  assert_true(at_dict_find(d.ptr, d.len, "u", &v) && v.tag == AT_DICT_UNIT);
  assert_true(at_dict_find(d.ptr, d.len, "l", &v));
  assert_true(v.tag == AT_DICT_DENSE && v.bytes == 16 && v.data[0] == 3);
  assert_false(at_dict_find(d.ptr, d.len, "z", &v));
  // Cut anywhere, the reader stays inside.
  for (size_t k = 0; k < d.len; k++) {
    char *copy = malloc(k + 1);
    memcpy(copy, d.ptr, k);
    at_dict_find(copy, k, "z", &v);
    free(copy);
  }
  at_arena_destroy(a);
}

#define FUTURE "!stablehlo.future<tensor<8xf32>>"
#define GATHER                                                              \
  "%f = \"stablehlo.async_start\"(%x) ({\n^bb0(%a: tensor<4xf32>):\n"       \
  "%g = \"stablehlo.all_gather\"(%a) {all_gather_dim = 0 : i64, "           \
  "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) "  \
  "-> tensor<8xf32>\n\"stablehlo.return\"(%g) : (tensor<8xf32>) -> ()\n}) " \
  ": (tensor<4xf32>) -> " FUTURE "\n"

// A future stands for the values that its op gives, through calls as well.
static void futures(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_status st = import(
      "module attributes {mhlo.num_replicas = 2 : i32} {\n"
      "func.func private @wait(%f: " FUTURE
      ") -> tensor<8xf32> {\n"
      "%0 = \"stablehlo.async_done\"(%f) : (" FUTURE
      ") -> tensor<8xf32>\n"
      "return %0 : tensor<8xf32>\n}\n"
      "func.func @main(%x: tensor<4xf32>) -> (tensor<8xf32>, "
      "tensor<4xf32>) {\n" GATHER
      "%y = stablehlo.add %x, %x : tensor<4xf32>\n"
      "%0 = call @wait(%f) : (" FUTURE
      ") -> tensor<8xf32>\n"
      "return %0, %y : tensor<8xf32>, tensor<4xf32>\n}}",
      a, &m);
  assert_int_equal(at_code_take(st), AT_OK_CODE);
  at_strbuf b = {0};
  assert_int_equal(at_code_take(at_hlo_print(m, &b)), AT_OK_CODE);
  assert_non_null(strstr(b.ptr, "%1 = all_gather %0 {"));
  assert_non_null(strstr(b.ptr, "call %1 {callee=\"wait\"} : f32[8]"));
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// The page has a row for each op and version of VHLO.
static void doc(void **state) {
  at_strbuf b = {0};
  assert_int_equal(at_code_take(at_import_ops_doc(&b)), AT_OK_CODE);
  assert_non_null(strstr(b.ptr, "| `vhlo.add_v1` | 0.9.0–"));
  assert_non_null(strstr(b.ptr, "`vhlo.all_gather_v1` | 0.9.0–1.4.0"));
  assert_non_null(strstr(b.ptr, "`chlo.erf` |"));
  size_t rows = 0;
  for (const char *p = b.ptr; (p = strstr(p, "| `vhlo.")); p++) rows++;
  assert_int_equal(rows, 142);  // VHLO 0.9 to 1.17 has so many ops and versions
  at_strbuf_free(&b);
}

// What has lower rank takes its sizes to the dimensions that are named.
static void broadcast_by_dimension(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_status st = import(
      "func.func public @main(%x: tensor<4xf32>, %y: tensor<4x3xf32>) -> "
      "tensor<4x3xf32> {\n"
      "%0 = \"chlo.broadcast_add\"(%x, %y) <{broadcast_dimensions = array<i64: "
      "0>}> : (tensor<4xf32>, tensor<4x3xf32>) -> tensor<4x3xf32>\n"
      "return %0 : tensor<4x3xf32>\n}",
      a, &m);
  if (st.err) fail_msg("%s", at_status_message(st));
  const at_node *add = m->entry->results[0].node;
  assert_int_equal(add->op, AT_OP_ADD);
  const at_type *t = at_value_type(add->operands[0]);
  assert_int_equal(t->rank, 2);
  assert_true(t->dims[0] == 4 && t->dims[1] == 3);
  at_arena_destroy(a);
}

// Of fused locations the first that is known, wherever it stands.
static void fused_locations(void **state) {
  static const char *const lists[] = {"\"a.py\":3:4, \"b.py\":5:6",
                                      "unknown, \"a.py\":3:4, \"b.py\":5:6"};
  at_arena *a = at_arena_create();
  for (size_t i = 0; i < AT_LEN(lists); i++) {
    const char *text = at_arena_printf(
        a,
        "func.func public @main(%%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        "%%0 = stablehlo.negate %%x : tensor<4xf32> loc(fused[%s])\n"
        "return %%0 : tensor<4xf32>\n}",
        lists[i]);
    at_module *m;
    at_status st = import(text, a, &m);
    if (st.err) fail_msg("%s", at_status_message(st));
    const at_loc *l = at_loc_source(m->entry->results[0].node->loc);
    assert_non_null(l);
    assert_string_equal(l->file, "a.py");
    assert_int_equal(l->line, 3);
  }
  at_arena_destroy(a);
}

// Lists of integers in each width and form are the same list.
static void lists_of_integers(void **state) {
  static const char *const forms[] = {"dense<[2, 0, 1]> : tensor<3xi64>",
                                      "dense<[2, 0, 1]> : tensor<3xi32>",
                                      "dense<[2, 0, 1]> : tensor<3xi16>",
                                      "dense<[2, 0, 1]> : tensor<3xi8>",
                                      "array<i64: 2, 0, 1>",
                                      "array<i32: 2, 0, 1>",
                                      "[2 : i64, 0 : i64, 1 : i64]",
                                      "[2 : i32, 0 : i32, 1 : i32]"};
  at_arena *a = at_arena_create();
  for (size_t i = 0; i < AT_LEN(forms); i++) {
    const char *text = at_arena_printf(
        a,
        "func.func public @main(%%x: tensor<2x3x4xf32>) -> tensor<4x2x3xf32> "
        "{\n%%0 = \"stablehlo.transpose\"(%%x) <{permutation = %s}> : "
        "(tensor<2x3x4xf32>) -> tensor<4x2x3xf32>\n"
        "return %%0 : tensor<4x2x3xf32>\n}",
        forms[i]);
    at_module *m;
    at_status st = import(text, a, &m);
    if (st.err) fail_msg("%s\nof %s", at_status_message(st), forms[i]);
    const at_attr *p =
        at_node_attr(m->entry->results[0].node, AT_ATTR_PERMUTATION);
    assert_non_null(p);
    assert_int_equal(p->ints.rank, 3);
    assert_true(p->ints.ptr[0] == 2 && p->ints.ptr[1] == 0 &&
                p->ints.ptr[2] == 1);
  }
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(refusals),
      cmocka_unit_test(errors_name_the_place),
      cmocka_unit_test(scopes),
      cmocka_unit_test(nested_too_deeply),
      cmocka_unit_test(tuple_bomb),
      cmocka_unit_test(called_computation_bomb),
      cmocka_unit_test(entry_facts),
      cmocka_unit_test(other_arena),
      cmocka_unit_test(dictionaries),
      cmocka_unit_test(futures),
      cmocka_unit_test(doc),
      cmocka_unit_test(broadcast_by_dimension),
      cmocka_unit_test(fused_locations),
      cmocka_unit_test(lists_of_integers),
      cmocka_unit_test(calls_for_ops_keep_origins)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
