// Text: attributes, types and operations, read, printed and read again.
#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "mlir/mlir.h"
#include "mlir/mlir_internal.h"

// Of the running test.
static at_arena *arena;

// An arena for each test.
static int setup(void **state) {
  arena = at_arena_create();
  return arena ? 0 : 1;
}
// Frees all that the test has read.
static int teardown(void **state) {
  at_arena_destroy(arena);
  return 0;
}

// A program; the test fails where it does not read.
static at_mmodule *must_read(const char *text) {
  at_mmodule *m = NULL;
  at_status s = at_mlir_read_text(at_str_of(text), arena, &m);
  if (!at_ok(s)) fail_msg("%s\nin %s", at_status_message(s), text);
  return m;
}

// One attribute by itself; the test fails where it does not read.
static const at_mattr *must_attr(const char *text) {
  at_mctx c = {arena, at_map_in(arena)};
  const at_mattr *a = NULL;
  at_status s = at_mtext_attr(&c, at_str_of(text), &a);
  if (!at_ok(s)) fail_msg("%s\nin %s", at_status_message(s), text);
  return a;
}

// The module's first operation.
static at_mop *first_op(const at_mmodule *m) {
  return m->op->regions[0]->blocks[0]->ops[0];
}

// Print, read and compare, in both forms and through bytecode.
static void round_trip(const at_mmodule *m) {
  for (int form = 0; form < 3; form++) {
    at_mlir_print_options opt = {.generic = form == 1, .locations = form == 1};
    at_strbuf b = {0};
    at_status s = form == 2 ? at_mlir_write_bytecode(m, "test", &b)
                            : at_mlir_print(m, &opt, &b);
    assert_true(at_ok(s));
    at_mmodule *again = NULL;
    s = at_mlir_read((at_bytes){(const uint8_t *)b.ptr, b.len}, false, arena,
                     &again);
    if (!at_ok(s)) fail_msg("%s\nin %s", at_status_message(s), b.ptr);
    if (!at_mop_eq(m->op, again->op, form != 0, arena))
      fail_msg("not the same after form %d: %s", form, b.ptr);
    at_strbuf_free(&b);
  }
}

// An operation that has the attribute, in all forms.
static void round_trip_of(const char *attr) {
  at_mmodule *m = NULL;
  const char *text =
      at_arena_printf(arena, "\"t.op\"() {v = %s} : () -> ()", attr);
  at_status s = at_mlir_read_text(at_str_of(text), arena, &m);
  if (!at_ok(s)) fail_msg("%s\nin %s", at_status_message(s), text);
  round_trip(m);
}

// Each is printed exactly as it stands here.
static void attributes_print_as_they_read(void **state) {
  static const char *const same[] = {
      "unit",
      "true",
      "false",
      "1 : i64",
      "-3 : i32",
      "255 : ui8",
      "-1 : si8",
      "18446744073709551615 : ui64",
      "0 : index",
      "0x000000000000000100000000000000FF : i128",
      "1.500000e+00 : f32",
      "0x7FC00000 : f32",
      "0xFF800000 : f32",
      "-0.000000e+00 : f64",
      "1.000000e-01 : f64",
      "4.480000e+02 : f8E4M3FN",
      "\"a\\\"\\\\\\0A\\00b\"",
      "\"typed\" : i32",
      "@f",
      "@\"a b\"::@c",
      "[1 : i64, [], {a = true, \"b c\" = @x, u}]",
      "i32",
      "() -> ()",
      "(i1, tensor<2x?xf32>) -> (index, none)",
      "dense<1> : tensor<4xi32>",
      "dense<[[1, 2], [3, 4]]> : tensor<2x2xi8>",
      "dense<> : tensor<0x3xf32>",
      "dense<[true, false]> : tensor<2xi1>",
      "dense<(1.000000e+00,-2.000000e+00)> : tensor<complex<f32>>",
      "dense<[-8, 7]> : tensor<2xi4>",
      "dense<[15, 0]> : tensor<2xui4>",
      "dense<0x7F800000> : tensor<f32>",
      "array<i64: 1, -2>",
      "array<i64>",
      "array<i1: true, false>",
      "array<f32: 1.500000e+00>",
      "dense<[\"a\", \"b\"]> : tensor<2x!tf.string>",
      "dense_resource<blob> : tensor<2xf32>",
      "affine_map<(d0, d1)[s0] -> (((d0 * 2) + s0), (d1 floordiv 4))>",
      "affine_set<(d0) : (d0 >= 0, ((d0 mod 8) + -1) == 0)>",
      "strided<[1, ?], offset: 3>",
      "loc(\"f.py\":3:4)",
      "loc(callsite(\"a\" at fused<\"m\">[\"b\", unknown]))",
      "distinct[3]<unit>",
      "#stablehlo<precision HIGHEST>",
      "#stablehlo.dot<lhs_contracting_dimensions = [1], "
      "rhs_contracting_dimensions = [0]>",
      "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, f, 1, 0]>",
      "#stablehlo.bounds<?, 3>",
      "#stablehlo.channel_handle<handle = 1, type = 2>",
      "#vhlo<comparison_direction_v1 GT>",
      "#tpu.memory_space<vmem>",
      "#tpu.tiled<(8,128),[1,1]>",
      "#foo<\"x>\" [1]>",
      "#foo<x//y>",
      "#foo.x<[1/2]/3>",
      "#sdy.mesh<[\"x\"=2, \"y\"=4], device_ids=[1, 0]>",
      "#sdy.sharding<@m, [{\"x\", ?}p1, {}, {\"y\":(1)2}], "
      "replicated={\"z\"}, unreduced=max{\"w\"}>",
      "#sdy.sharding_per_value<[<@m, [{}]>, <mesh<[]>, []>]>",
      "#sdy<manual_axes {\"a\", \"b\"}>",
      "#sdy.op_sharding_rule<([i, jz_1])->([ij]) {i=2, j=4} "
      "reduction={i}, custom>",
      "#opaque<\"dialect\", \"0x00FF\">"};
  for (size_t i = 0; i < AT_LEN(same); i++) {
    at_strbuf b = {0};
    const at_mattr *a = must_attr(same[i]);
    at_mattr_print(&b, a);
    assert_string_equal(b.ptr, same[i]);
    assert_true(at_mattr_eq(a, must_attr(b.ptr)));
    round_trip_of(same[i]);
    at_strbuf_free(&b);
  }
  // The short form names the attribute, unless a comment would begin in it.
  assert_true(
      at_mattr_eq(must_attr("#foo<x [1/2]/3>"), must_attr("#foo.x<[1/2]/3>")));
}

// One text for each kind of type.
static void types_print_as_they_read(void **state) {
  static const char *const same[] = {
      "i1",
      "ui4",
      "si7",
      "index",
      "none",
      "bf16",
      "f8E4M3B11FNUZ",
      "tf32",
      "tensor<f32>",
      "tensor<0x?x3xcomplex<f64>>",
      "tensor<*xi8>",
      "tensor<2x3xf32, #stablehlo.bounds<?, 3>>",
      "vector<[4]x2xf32>",
      "vector<f32>",
      "memref<2x3xf32, strided<[3, 1]>, #tpu.memory_space<vmem>>",
      "memref<4xi8, 1 : i64>",
      "memref<*xf32>",
      "memref<f32>",
      "memref<8x128xf32, #tpu.tiled<(8,128)>, #tpu.memory_space<vmem>>",
      "tuple<>",
      "tuple<i1, tuple<f32>>",
      "(i1) -> (() -> i8)",
      "!stablehlo.token",
      "!stablehlo.future<tensor<1xf32>>",
      "!tpu.semaphore",
      "!tpu.dma_semaphore<3>",
      "!quant.uniform<i8<-128:127>:f32, 5.000000e-01:3>",
      "!quant.uniform<u8<0:255>:f32:1, {1.000000e+00:0, 2.000000e+00:-1}>",
      "!vhlo.quant_v1<i8:f32, 5.000000e-01:3, -128:127, 1>",
      "!opaque<\"d\", \"0x01\">"};
  at_mctx c = {arena, at_map_in(arena)};
  for (size_t i = 0; i < AT_LEN(same); i++) {
    const at_mtype *t = NULL;
    at_strbuf b = {0};
    at_status s = at_mtext_type(&c, at_str_of(same[i]), &t);
    if (!at_ok(s)) fail_msg("%s in %s", at_status_message(s), same[i]);
    at_mtype_print(&b, t);
    // A function in a function's results keeps its brackets.
    if (t->kind != AT_MTYPE_FUNCTION) assert_string_equal(b.ptr, same[i]);
    const at_mtype *again = NULL;
    assert_true(at_ok(at_mtext_type(&c, at_strbuf_str(&b), &again)));
    assert_true(at_mtype_eq(t, again));
    round_trip_of(b.ptr);
    at_strbuf_free(&b);
  }
}

static const at_mtype *must_type(const char *text) {
  at_mctx c = {arena, at_map_in(arena)};
  const at_mtype *t = NULL;
  at_status s = at_mtext_type(&c, at_str_of(text), &t);
  if (!at_ok(s)) fail_msg("%s\nin %s", at_status_message(s), text);
  return t;
}

// A layout that keeps every dimension where it is says what none says.
static void layouts_that_say_nothing(void **state) {
  const at_mtype *plain = must_type("memref<2x3xf32>");
  assert_true(at_mtype_eq(
      plain, must_type("memref<2x3xf32, affine_map<(d0, d1) -> (d0, d1)>>")));
  assert_false(at_mtype_eq(
      plain, must_type("memref<2x3xf32, affine_map<(d0, d1) -> (d1, d0)>>")));
  assert_false(at_mtype_eq(
      plain, must_type("memref<2x3xf32, affine_map<(d0, d1) -> (0, 1)>>")));
}

// The text with the names that the printer gives: arguments a and i, result 1.
static char *as_printed(const char *text) {
  at_strbuf b = {0};
  for (const char *p = text; *p; p++) {
    const char *name = p[0] != '%' || isalnum((unsigned char)p[2]) ? NULL
                       : p[1] == 'a'                               ? "%arg0"
                       : p[1] == 'i'                               ? "%arg1"
                       : p[1] == '1'                               ? "%0"
                                                                   : NULL;
    if (name)
      at_strbuf_addz(&b, name), p++;
    else
      at_strbuf_addc(&b, *p);
  }
  char *out = at_arena_printf(arena, "%s", b.ptr);
  at_strbuf_free(&b);
  return out;
}

// The program prints with that line, but for blanks at the ends of lines.
static void prints(const at_mmodule *m, const char *line) {
  at_strbuf b = {0}, flat = {0};
  at_mlir_print_options opt = {0};
  assert_int_equal(at_code_take(at_mlir_print(m, &opt, &b)), 0);
  for (const char *p = b.ptr; *p; p++) {
    bool blank = isspace((unsigned char)*p);
    if (!blank || (flat.len && flat.ptr[flat.len - 1] != ' '))
      at_strbuf_addc(&flat, blank ? ' ' : *p);
  }
  if (!strstr(flat.ptr, as_printed(line)))
    fail_msg("no %s\nin %s", as_printed(line), flat.ptr);
  at_strbuf_free(&b);
  at_strbuf_free(&flat);
}

// The form on the left reads as the one on the right, and both print as the
// left one, but for barriers.
static void pretty_forms_mean_their_generic_ones(void **state) {
  static const struct {
    const char *pretty, *generic;
  } cases[] = {
      {"%1 = stablehlo.add %a, %a : tensor<2x3xf32>",
       "%1 = \"stablehlo.add\"(%a, %a) : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
       "tensor<2x3xf32>"},
      {"%1 = stablehlo.slice %a [0:2, 1:3:2] : (tensor<2x3xf32>) -> "
       "tensor<2x1xf32>",
       "%1 = \"stablehlo.slice\"(%a) <{start_indices = array<i64: 0, 1>, "
       "limit_indices = array<i64: 2, 3>, strides = array<i64: 1, 2>}> : "
       "(tensor<2x3xf32>) -> tensor<2x1xf32>"},
      {"%1 = stablehlo.compare LT, %a, %a, TOTALORDER : (tensor<2x3xf32>, "
       "tensor<2x3xf32>) -> tensor<2x3xi1>",
       "%1 = \"stablehlo.compare\"(%a, %a) {compare_type = "
       "#stablehlo<comparison_type TOTALORDER>, comparison_direction = "
       "#stablehlo<comparison_direction LT>} : (tensor<2x3xf32>, "
       "tensor<2x3xf32>) -> tensor<2x3xi1>"},
      {"%1 = stablehlo.iota dim = 1 : tensor<4x5xi32>",
       "%1 = \"stablehlo.iota\"() {iota_dimension = 1 : i64} : () -> "
       "tensor<4x5xi32>"},
      {"%1 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [1], "
       "precision = [HIGH, DEFAULT] : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
       "tensor<2x2xf32>",
       "%1 = \"stablehlo.dot_general\"(%a, %a) {dot_dimension_numbers = "
       "#stablehlo.dot<lhs_contracting_dimensions = [1], "
       "rhs_contracting_dimensions = [1]>, precision_config = "
       "[#stablehlo<precision HIGH>, #stablehlo<precision DEFAULT>]} : "
       "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>"},
      {"%1 = stablehlo.reduce_precision %a, format = e5m10 : tensor<2x3xf32>",
       "%1 = \"stablehlo.reduce_precision\"(%a) {exponent_bits = 5 : i32, "
       "mantissa_bits = 10 : i32} : (tensor<2x3xf32>) -> tensor<2x3xf32>"},
      {"%1 = stablehlo.concatenate %a, %a, dim = 0 : (tensor<2x3xf32>, "
       "tensor<2x3xf32>) -> tensor<4x3xf32>",
       "%1 = \"stablehlo.concatenate\"(%a, %a) {dimension = 0 : i64} : "
       "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<4x3xf32>"},
      {"%1 = stablehlo.custom_call @foo(%a) {api_version = 1 : i32} : "
       "(tensor<2x3xf32>) -> tensor<f32>",
       "%1 = \"stablehlo.custom_call\"(%a) {api_version = 1 : i32, "
       "call_target_name = \"foo\"} : (tensor<2x3xf32>) -> tensor<f32>"},
      {"%1:2 = stablehlo.optimization_barrier %a, %i : tensor<2x3xf32>, "
       "tensor<f32>",
       "%1:2 = \"stablehlo.optimization_barrier\"(%a, %i) : (tensor<2x3xf32>, "
       "tensor<f32>) -> (tensor<2x3xf32>, tensor<f32>)"},
      {"%1 = stablehlo.reduce(%a init: %i) applies stablehlo.add across "
       "dimensions = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>",
       "%1 = \"stablehlo.reduce\"(%a, %i) <{dimensions = array<i64: 0, 1>}> ({ "
       "^bb0(%x: tensor<f32>, %y: tensor<f32>): %s = stablehlo.add %x, %y : "
       "tensor<f32> stablehlo.return %s : tensor<f32> }) : (tensor<2x3xf32>, "
       "tensor<f32>) -> tensor<f32>"},
      {"%1 = sdy.sharding_constraint %a <@mesh, [{\"x\"}, {}]> : "
       "tensor<2x3xf32>",
       "%1 = \"sdy.sharding_constraint\"(%a) {sharding = #sdy.sharding<@mesh, "
       "[{\"x\"}, {}]>} : (tensor<2x3xf32>) -> tensor<2x3xf32>"},
      {"%1 = sdy.reshard %a <@mesh, [{\"x\"}, {\"y\", ?}p1]> : "
       "tensor<2x3xf32>",
       "%1 = \"sdy.reshard\"(%a) {sharding = #sdy.sharding<@mesh, [{\"x\"}, "
       "{\"y\", ?}p1]>} : (tensor<2x3xf32>) -> tensor<2x3xf32>"},
      {"%1 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{\"x\"}, {}]>] "
       "out_shardings=[<@mesh, [{\"x\"}, {}]>] manual_axes={\"x\"} (%arg2: "
       "tensor<1x3xf32>) { \"sdy.return\"(%arg2) : (tensor<1x3xf32>) -> () } : "
       "(tensor<2x3xf32>) -> tensor<2x3xf32>",
       "%1 = \"sdy.manual_computation\"(%a) <{in_shardings = "
       "#sdy.sharding_per_value<[<@mesh, [{\"x\"}, {}]>]>, out_shardings = "
       "#sdy.sharding_per_value<[<@mesh, [{\"x\"}, {}]>]>, manual_axes = "
       "#sdy<manual_axes{\"x\"}>}> ({ ^bb0(%x: tensor<1x3xf32>): sdy.return %x "
       ": tensor<1x3xf32> }) : (tensor<2x3xf32>) -> tensor<2x3xf32>"},
      {"%1 = chlo.tan %a : tensor<2x3xf32> -> tensor<2x3xf32>",
       "%1 = \"chlo.tan\"(%a) : (tensor<2x3xf32>) -> tensor<2x3xf32>"},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_mmodule *m[2];
    for (int k = 0; k < 2; k++) {
      char *text = at_arena_printf(
          arena,
          "func.func @f(%%a: tensor<2x3xf32>, %%i: tensor<f32>) {\n %s\n "
          "return\n}\n",
          k ? cases[i].generic : cases[i].pretty);
      m[k] = must_read(text);
      round_trip(m[k]);
      // Barriers of several values print in the generic form.
      if (!strstr(cases[i].pretty, "_barrier")) prints(m[k], cases[i].pretty);
    }
    if (!at_mop_eq(m[0]->op, m[1]->op, false, arena))
      fail_msg("%s\nis not\n%s", cases[i].pretty, cases[i].generic);
  }
}

// Notations with structure, read and printed.
static void convolution_and_loop(void **state) {
  const at_mmodule *m = must_read(
      "func.func @f(%a: tensor<1x8x8x3xf32>, %k: tensor<3x3x3x4xf32>) -> "
      "tensor<1x8x8x4xf32> {\n"
      "  %0 = stablehlo.convolution(%a, %k) dim_numbers = [b, 0, 1, f]x[0, 1, "
      "i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], "
      "rhs_dilate = [1, 1], reverse = [false, true]} {batch_group_count = 1 : "
      "i64, feature_group_count = 1 : i64} : (tensor<1x8x8x3xf32>, "
      "tensor<3x3x3x4xf32>) -> tensor<1x8x8x4xf32>\n"
      "  %c = stablehlo.constant dense<0> : tensor<i32>\n"
      "  %1:2 = stablehlo.while(%x = %0, %y = %c) : tensor<1x8x8x4xf32>, "
      "tensor<i32> attributes {k = 1}\n"
      "  cond {\n    %p = stablehlo.compare LT, %y, %c : (tensor<i32>, "
      "tensor<i32>) -> tensor<i1>\n    stablehlo.return %p : tensor<i1>\n  } "
      "do "
      "{\n    stablehlo.return %x, %y : tensor<1x8x8x4xf32>, tensor<i32>\n  }\n"
      "  return %1#0 : tensor<1x8x8x4xf32>\n}\n");
  round_trip(m);
  const at_mop *f = first_op(m), *conv = f->regions[0]->blocks[0]->ops[0];
  const at_mattr *d = at_mop_attr(conv, "dimension_numbers");
  assert_string_equal(d->name, "stablehlo.conv");
  assert_int_equal(d->num_elems, 9);
  assert_string_equal(d->fields[4].name, "kernel_output_feature_dimension");
  assert_int_equal(d->fields[4].value->i, 3);
  const at_mattr *pad = at_mop_attr(conv, "padding");
  assert_int_equal(pad->type->shape.rank, 2);
  assert_int_equal(pad->data.len, 32);
  const at_mattr *reverse = at_mop_attr(conv, "window_reversal");
  assert_int_equal(reverse->num_elems, 2);
  assert_int_equal(reverse->data.ptr[1], 1);
  const at_mop *loop = f->regions[0]->blocks[0]->ops[2];
  assert_int_equal(loop->num_results, 2);
  assert_ptr_equal(loop->regions[1]->blocks[0]->ops[0]->operands[1],
                   &loop->regions[1]->blocks[0]->args[1]);
  const at_mop *ret = f->regions[0]->blocks[0]->ops[3];
  assert_ptr_equal(ret->operands[0], &loop->results[0]);
}

// Uses before definitions, of blocks, values, aliases and blobs.
static void blocks_aliases_and_resources(void **state) {
  const at_mmodule *m = must_read(
      "#map = affine_map<(d0) -> (d0)>\n!t = tensor<2xf32>\n"
      "\"test.f\"() ({\n^a(%x: !t loc(#l2)):\n"
      "  \"test.br\"(%y)[^c, ^b] : (!t) -> ()\n"
      "^b:\n  %y = \"test.def\"() {m = #map, r = dense_resource<blob> : !t} : "
      "() -> !t loc(#l1)\n  \"test.br\"()[^c] : () -> ()\n"
      "^c:\n  \"test.end\"() : () -> ()\n}, {}) : () -> () loc(#l1)\n"
      "#l1 = loc(\"n\"(#l2))\n#l2 = loc(\"f\":1:2 to :9)\n"
      "{-#\n  dialect_resources: {\n    builtin: {\n      blob: "
      "\"0x040000000000803F00000040\"\n    }\n  }\n#-}\n");
  round_trip(m);
  const at_mop *f = first_op(m);
  const at_mregion *r = f->regions[0];
  assert_int_equal(r->num_blocks, 3);
  assert_int_equal(f->regions[1]->num_blocks, 0);
  assert_ptr_equal(r->blocks[0]->ops[0]->successors[1], r->blocks[1]);
  // Used before its definition.
  assert_ptr_equal(r->blocks[0]->ops[0]->operands[0],
                   &r->blocks[1]->ops[0]->results[0]);
  assert_int_equal(f->loc->kind, AT_MLOC_NAME);
  assert_int_equal(f->loc->child->end_column, 9);
  const at_mattr *blob = at_mop_attr(r->blocks[1]->ops[0], "r");
  float v[2];
  assert_int_equal(blob->data.len, sizeof v);
  memcpy(v, blob->data.ptr, sizeof v);
  assert_true(v[0] == 1.0f && v[1] == 2.0f);
}

// Attributes of arguments and results, declarations too.
static void functions_keep_their_attributes(void **state) {
  const at_mmodule *m = must_read(
      "module @m attributes {mhlo.num_partitions = 2 : i32} {\n"
      "  func.func private @decl(tensor<f32> {a.b = 1 : i32}) -> i1\n"
      "  func.func public @main(%arg0: tensor<f32> {sdy.sharding = "
      "#sdy.sharding<@mesh, []>}, %arg1: tensor<f32>) -> (tensor<f32> {x}) {\n"
      "    %0 = call @decl(%arg0) : (tensor<f32>) -> i1\n"
      "    return %arg1 : tensor<f32>\n  }\n}\n");
  round_trip(m);
  const at_mop *decl = first_op(m);
  assert_int_equal(decl->regions[0]->num_blocks, 0);
  const at_mop *f = m->op->regions[0]->blocks[0]->ops[1];
  const at_mattr *args = at_mop_attr(f, "arg_attrs");
  assert_int_equal(args->num_elems, 2);
  assert_string_equal(args->elems[0]->fields[0].name, "sdy.sharding");
  assert_int_equal(args->elems[1]->num_elems, 0);
  assert_true(at_str_is(at_mop_attr(f, "sym_visibility")->str, "public"));
  assert_int_equal(at_mop_attr(f, "function_type")->type->num_types, 2);
  assert_string_equal(f->regions[0]->blocks[0]->ops[1]->name, "func.return");
}

// Each with its line and column.
static void bad_text_is_refused(void **state) {
  static const struct {
    const char *text, *message;
    at_code code;
  } cases[] = {
      {"\"a.b\"(%0) : (i1) -> ()", "%0 is used but not defined",
       AT_INVALID_ARGUMENT},
      {"%0 = \"a.b\"() : () -> (i1, i1)", "2 results, but names for 1",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() : () -> tensor<2x", "1:26", AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = dense<[1, 2]> : tensor<3xi8>} : () -> ()", "dimension 0",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = 1, x = 2} : () -> ()", "occurs twice",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = #nowhere} : () -> ()", "#nowhere is not defined",
       AT_INVALID_ARGUMENT},
      {"#x = [#x]\n", "defined by itself", AT_INVALID_ARGUMENT},
      {"linalg.fill %0", "generic form", AT_INVALID_ARGUMENT},
      {"%0 = \"a.b\"() : () -> i1\n\"a.c\"(%0) : (i2) -> ()", "another type",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() ({ \"a.c\"()[^x] : () -> () }) : () -> ()", "successor",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = \"open} : () -> ()", "no end", AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = 1.0 : f80} : () -> ()", "f80", AT_UNIMPLEMENTED},
      {"\"a.b\"() {x = 256 : i8} : () -> ()", "does not fit",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = -129 : i8} : () -> ()", "does not fit",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = 128 : si8} : () -> ()", "does not fit",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = -1 : ui8} : () -> ()", "does not fit",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = dense<[1, 16]> : tensor<2xi4>} : () -> ()",
       "does not fit", AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = array<i32: 4294967296>} : () -> ()", "does not fit",
       AT_INVALID_ARGUMENT},
      {"\"a.b\"() {x = #stablehlo.channel_handle<handle = 1, type = 2, handle "
       "= 3>} : () -> ()",
       "given twice", AT_INVALID_ARGUMENT},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_mmodule *m = NULL;
    at_status s = at_mlir_read_text(at_str_of(cases[i].text), arena, &m);
    assert_int_equal(at_status_code(s), cases[i].code);
    if (!strstr(at_status_message(s), cases[i].message))
      fail_msg("%s: %s", cases[i].text, at_status_message(s));
    at_status_free(s);
  }
}

// A status instead of a stack overflow.
static void deep_nesting_is_refused(void **state) {
  for (int kind = 0; kind < 4; kind++) {
    static const char *const open[] = {"[", "tuple<", "({\"a.b\"() (", "-("};
    at_strbuf b = {0};
    at_strbuf_addz(&b, kind == 3 ? "\"a.b\"() {x = affine_map<(d0) -> ("
                                 : "\"a.b\"() {x = ");
    for (int i = 0; i < 100000; i++) at_strbuf_addz(&b, open[kind]);
    at_mmodule *m = NULL;
    assert_int_equal(
        at_code_take(at_mlir_read_text(at_strbuf_str(&b), arena, &m)),
        AT_INVALID_ARGUMENT);
    at_strbuf_free(&b);
  }
}

// Every pattern of the narrow formats decodes and encodes to itself; NaN stays
// NaN.
static void floats_keep_every_bit(void **state) {
  static const char *const names[] = {
      "f8E5M2",        "f8E4M3", "f8E4M3FN", "f8E5M2FNUZ", "f8E4M3FNUZ",
      "f8E4M3B11FNUZ", "f8E3M4", "f4E2M1FN", "f6E2M3FN",   "f6E3M2FN",
      "f8E8M0FNU",     "f16",    "bf16"};
  for (size_t i = 0; i < AT_LEN(names); i++) {
    const at_mfloat *f = at_mfloat_find(at_str_of(names[i]));
    for (uint64_t bits = 0; bits < 1ull << f->bits; bits++) {
      double v = at_mfloat_decode(f, bits);
      uint64_t back = at_mfloat_encode(f, v);
      if (isnan(v))
        assert_true(isnan(at_mfloat_decode(f, back)));
      else
        assert_int_equal(back, bits);
    }
  }
  const at_mfloat *e4 = at_mfloat_find(AT_STR("f8E4M3FN"));
  assert_true(at_mfloat_decode(e4, 0x7e) == 448);
  assert_true(isnan(at_mfloat_decode(e4, at_mfloat_encode(e4, 1e9))));
  const at_mfloat *h = at_mfloat_find(AT_STR("f16"));
  assert_int_equal(at_mfloat_encode(h, 65520), 0x7c00);
  assert_int_equal(at_mfloat_encode(h, 5.960464477539063e-08), 1);
  // Half of the smallest denormal is a tie, and goes to the even zero.
  assert_int_equal(at_mfloat_encode(h, 2.98023223876953125e-08), 0);
  const at_mfloat *b = at_mfloat_find(AT_STR("bf16"));
  assert_int_equal(at_mfloat_encode(b, 1.00390625), 0x3f80);
}

// Large data is replaced by a resource that does not exist.
static void elided_data_says_so(void **state) {
  const at_mmodule *m = must_read(
      "%0 = stablehlo.constant dense<[1, 2, 3, 4]> : tensor<4xi32>\n");
  at_mlir_print_options opt = {.elide_dense_over = 3};
  at_strbuf b = {0};
  assert_true(at_ok(at_mlir_print(m, &opt, &b)));
  assert_non_null(strstr(b.ptr, "dense_resource<__elided__> : tensor<4xi32>"));
  at_strbuf_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(attributes_print_as_they_read, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(types_print_as_they_read, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(layouts_that_say_nothing, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(pretty_forms_mean_their_generic_ones,
                                      setup, teardown),
      cmocka_unit_test_setup_teardown(convolution_and_loop, setup, teardown),
      cmocka_unit_test_setup_teardown(blocks_aliases_and_resources, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(functions_keep_their_attributes, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(bad_text_is_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(deep_nesting_is_refused, setup, teardown),
      cmocka_unit_test_setup_teardown(floats_keep_every_bit, setup, teardown),
      cmocka_unit_test_setup_teardown(elided_data_says_so, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
