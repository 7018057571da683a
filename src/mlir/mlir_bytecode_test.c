// Bytecode: real files, what their attributes become, and damaged input.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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
static int teardown(void **state) {
  at_arena_destroy(arena);
  return 0;
}

// A file of testdata, at most 1 MiB, in the test's arena.
static at_bytes load(const char *name) {
  const char *root = getenv("AT_SOURCE_DIR");
  char path[512];
  snprintf(path, sizeof path, "%s/src/mlir/testdata/%s", root ? root : ".",
           name);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("no %s", path);
  uint8_t *b = at_arena_alloc(arena, 1 << 20, 16);
  size_t n = fread(b, 1, 1 << 20, f);
  fclose(f);
  return (at_bytes){b, n};
}

// A file of testdata; the test fails where it does not read.
static at_mmodule *must_read(const char *name) {
  at_mmodule *m = NULL;
  at_status s = at_mlir_read(load(name), false, arena, &m);
  if (!at_ok(s)) fail_msg("%s: %s", name, at_status_message(s));
  return m;
}

// The first operation of that name, in the order of the text.
static const at_mop *find(const at_mop *op, const char *name) {
  if (strcmp(op->name, name) == 0) return op;
  for (uint32_t i = 0; i < op->num_regions; i++)
    for (uint32_t k = 0; k < op->regions[i]->num_blocks; k++) {
      const at_mblock *b = op->regions[i]->blocks[k];
      for (uint32_t n = 0; n < b->num_ops; n++) {
        const at_mop *found = find(b->ops[n], name);
        if (found) return found;
      }
    }
  return NULL;
}

// The first operation of that name; fails where there is none.
static const at_mop *must_find(const at_mmodule *m, const char *name) {
  const at_mop *op = find(m->op, name);
  if (!op) fail_msg("no %s", name);
  return op;
}

// VHLO's types and attributes become builtin ones.
static void a_portable_artifact(void **state) {
  const at_mmodule *m = must_read("while.mlirbc");
  assert_int_equal(m->bytecode_version, 6);
  assert_string_equal(m->producer, "StableHLO_v1.13.0");
  bool vhlo = false;
  for (uint32_t i = 0; i < m->num_dialects; i++)
    vhlo |= strcmp(m->dialects[i], "vhlo") == 0;
  assert_true(vhlo);
  const at_mop *f = must_find(m, "vhlo.func_v1");
  assert_true(at_str_is(at_mop_attr(f, "sym_name")->str, "main"));
  const at_mtype *t = at_mop_attr(f, "function_type")->type;
  assert_int_equal(t->kind, AT_MTYPE_FUNCTION);
  assert_int_equal(t->types[0]->kind, AT_MTYPE_TENSOR);
  assert_int_equal(t->types[0]->shape.ptr[1], 16);
  assert_string_equal(t->types[0]->elem->name, "f32");
  const at_mop *loop = must_find(m, "vhlo.while_v1");
  assert_int_equal(loop->num_regions, 2);
  assert_ptr_equal(loop->operands[0], &f->regions[0]->blocks[0]->args[0]);
  const at_mop *less = must_find(m, "vhlo.compare_v1");
  const at_mattr *d = at_mop_attr(less, "comparison_direction");
  assert_string_equal(d->name, "vhlo.comparison_direction_v1");
  assert_true(at_str_is(d->str, "LT"));
  const at_mop *c = must_find(m, "vhlo.constant_v1");
  const at_mattr *v = at_mop_attr(c, "value");
  assert_int_equal(v->kind, AT_MATTR_DENSE);
  assert_int_equal(v->data.len, 4);
  assert_int_equal(loop->loc->kind, AT_MLOC_NAME);
  // Equal names are one pointer.
  assert_ptr_equal(must_find(m, "vhlo.return_v1")->name,
                   f->regions[0]
                       ->blocks[0]
                       ->ops[f->regions[0]->blocks[0]->num_ops - 1]
                       ->name);
}

// Shardy's attributes have all their fields, also from older encodings.
static void shardings(void **state) {
  static const char *const files[] = {"shard_map.mlirbc",
                                      "shard_map_native.mlirbc"};
  for (size_t i = 0; i < AT_LEN(files); i++) {
    const at_mmodule *m = must_read(files[i]);
    const at_mattr *mesh = at_mop_attr(must_find(m, "sdy.mesh"), "mesh");
    assert_string_equal(mesh->name, "sdy.mesh");
    const at_mattr *axis = mesh->fields[0].value->elems[1];
    assert_true(at_str_is(axis->fields[0].value->str, "b"));
    assert_int_equal(axis->fields[1].value->i, 2);
    const at_mop *manual = must_find(m, "sdy.manual_computation");
    const at_mattr *in = at_mop_attr(manual, "in_shardings");
    const at_mattr *s = in->fields[0].value->elems[0];
    assert_string_equal(s->name, "sdy.sharding");
    assert_string_equal(s->fields[1].name, "dim_shardings");
    assert_int_equal(s->fields[1].value->num_elems, 2);
    assert_string_equal(s->fields[3].name, "unreduced_axes");
    assert_int_equal(s->fields[0].value->kind, AT_MATTR_SYMBOL);
    const at_mattr *axes = at_mop_attr(manual, "manual_axes");
    assert_int_equal(axes->fields[0].value->num_elems, 2);
  }
}

// The same program from StableHLO's own encoding and from text.
static void native_properties_equal_the_text(void **state) {
  const at_mmodule *a = must_read("cond_native.mlirbc");
  const at_mmodule *b = must_read("cond.mlir");
  assert_true(at_mop_eq(a->op, b->op, false, arena));
  assert_false(at_mop_eq(a->op, must_read("while.mlirbc")->op, false, arena));
}

// top_k and a custom call: StableHLO 1.22 knows an attribute of each that
// earlier writers do not have.
static void attributes_that_were_added(void **state) {
  const at_mmodule *text = must_read("added.mlir");
  const at_mmodule *now = must_read("added_native.mlirbc");
  const at_mmodule *before = must_read("added_before.mlirbc");
  assert_true(at_mop_eq(now->op, text->op, false, arena));
  assert_true(at_mop_eq(before->op, text->op, false, arena));
}

// A dialect without a table keeps names and text.
static void a_mosaic_body(void **state) {
  const at_mmodule *m = must_read("mosaic.mlirbc");
  const at_mop *f = must_find(m, "stable_mosaic.func.func");
  const at_mtype *ref = f->regions[0]->blocks[0]->args[0].type;
  assert_int_equal(ref->kind, AT_MTYPE_MEMREF);
  assert_null(ref->layout);  // the identity
  assert_string_equal(ref->space->name, "tpu.memory_space");
  assert_true(at_str_is(ref->space->str, "smem"));
}

// Write and read again, in both forms, gives an equal tree.
static void every_file_survives_a_round_trip(void **state) {
  static const char *const files[] = {
      "while.mlirbc",       "shard_map.mlirbc", "shard_map_native.mlirbc",
      "cond_native.mlirbc", "conv.mlirbc",      "mosaic.mlirbc",
      "added_native.mlirbc"};
  for (size_t i = 0; i < AT_LEN(files); i++) {
    const at_mmodule *m = must_read(files[i]);
    for (int form = 0; form < 3; form++) {
      at_mlir_print_options opt = {.generic = form == 0,
                                   .locations = form == 0};
      at_strbuf b = {0};
      at_mmodule *again = NULL;
      assert_true(at_ok(form == 2 ? at_mlir_write_bytecode(m, "atoll", &b)
                                  : at_mlir_print(m, &opt, &b)));
      at_bytes bytes = {(const uint8_t *)b.ptr, b.len};
      at_status s = at_mlir_read(bytes, false, arena, &again);
      if (!at_ok(s)) fail_msg("%s: %s", files[i], at_status_message(s));
      assert_true(at_mop_eq(m->op, again->op, form != 1, arena));
      if (form == 2) assert_string_equal(again->producer, "atoll");
      at_strbuf_free(&b);
    }
  }
}

// Cut anywhere, a file is refused; with any byte changed it is refused or read,
// and what is read can be printed.
static void damage_is_a_status(void **state) {
  at_bytes whole = load("shard_map.mlirbc");
  for (size_t n = 0; n < whole.len; n++) {
    at_arena *a = at_arena_create_limited(16u << 20);
    at_mmodule *m = NULL;
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, whole.ptr, n);
    at_code code =
        at_code_take(at_mlir_read_bytecode((at_bytes){copy, n}, true, a, &m));
    assert_int_equal(code, AT_INVALID_ARGUMENT);
    free(copy);
    at_arena_destroy(a);
  }
  uint32_t read = 0;
  uint8_t *copy = malloc(whole.len);
  for (size_t n = 4; n < whole.len; n++) {
    at_arena *a = at_arena_create_limited(16u << 20);
    at_mmodule *m = NULL;
    memcpy(copy, whole.ptr, whole.len);
    copy[n] ^= (uint8_t)(1u << n % 8);
    if (at_code_take(at_mlir_read_bytecode((at_bytes){copy, whole.len}, false,
                                           a, &m)) == AT_OK_CODE) {
      at_strbuf b = {0};
      assert_true(at_ok(at_mlir_print(m, NULL, &b)));
      at_strbuf_free(&b);
      read++;
    }
    at_arena_destroy(a);
  }
  free(copy);
  assert_true(read > 0);
}

// A newer version is refused by its number.
static void versions_are_named(void **state) {
  static const uint8_t seven[] = {'M', 'L', 0xef, 'R', 7 << 1 | 1, 0};
  at_mmodule *m = NULL;
  at_status s =
      at_mlir_read_bytecode((at_bytes){seven, sizeof seven}, false, arena, &m);
  assert_int_equal(at_status_code(s), AT_UNIMPLEMENTED);
  assert_non_null(strstr(at_status_message(s), "version 7"));
  at_status_free(s);
  s = at_mlir_read_bytecode((at_bytes){seven, 3}, false, arena, &m);
  assert_int_equal(at_code_take(s), AT_INVALID_ARGUMENT);
}

// A handful of bytes that would stand for a tree of 2^40 parts.
static void a_tree_that_explodes_is_refused(void **state) {
  at_mattr *a = NULL;
  at_mctx c = {arena, at_map_in(arena)};
  const at_mattr *inner = &at_mattr_unit;
  for (int i = 0; i < 40; i++) {
    const at_mattr *pair[2] = {inner, inner};
    inner = at_mattr_make_array(&c, pair, 2);
  }
  at_mnamed n = {"x", inner};
  at_mop op = {
      .name = "a.b", .attrs = &n, .num_attrs = 1, .loc = &at_mloc_unknown};
  at_mmodule m = {.op = &op};
  at_strbuf b = {0};
  assert_true(at_ok(at_mlir_write_bytecode(&m, "x", &b)));
  assert_true(b.len < 1000);
  at_mmodule *again = NULL;
  at_bytes bytes = {(const uint8_t *)b.ptr, b.len};
  assert_int_equal(at_code_take(at_mlir_read(bytes, false, arena, &again)),
                   AT_INVALID_ARGUMENT);
  at_strbuf_free(&b);
  assert_null(a);
}

// A sharding whose sums are added is one that says nothing of how.
static void added_sums_are_not_said(void **state) {
  static const char *const texts[] = {
      "#sdy.sharding<@m, [{\"x\"}], unreduced=max{\"w\"}>",
      "#sdy.sharding<@m, [{\"x\"}], unreduced=min{\"w\"}>",
      "#sdy.sharding<@m, [{\"x\"}], unreduced={\"w\"}>"};
  at_strbuf b[2] = {{0}}, text = {0};
  at_mmodule *m = NULL;
  for (int i = 0; i < 2; i++) {
    text.len = 0;
    at_strbuf_addf(&text, "\"a.b\"() {x = %s} : () -> ()", texts[i]);
    assert_true(at_ok(at_mlir_read_text(at_strbuf_str(&text), arena, &m)));
    assert_true(at_ok(at_mlir_write_bytecode(m, "x", &b[i])));
  }
  // The one byte that differs is the enumerator: 1 and 2, as signed numbers.
  size_t at = 0;
  assert_int_equal(b[0].len, b[1].len);
  while (b[0].ptr[at] == b[1].ptr[at]) at++;
  assert_int_equal(b[0].ptr[at], 5);
  assert_int_equal(b[1].ptr[at], 9);
  b[0].ptr[at] = 1;  // 0
  at_bytes bytes = {(const uint8_t *)b[0].ptr, b[0].len};
  assert_true(at_ok(at_mlir_read(bytes, false, arena, &m)));
  text.len = 0;
  at_mattr_print(&text, at_mop_attr(find(m->op, "a.b"), "x"));
  assert_string_equal(text.ptr, texts[2]);
  at_strbuf_free(&text);
  for (int i = 0; i < 2; i++) at_strbuf_free(&b[i]);
}

// Longer than any recursion would like; 1,000 is the limit. A list of them
// (JAX 0.12 has one beside a kernel) is no deeper than they are.
static void long_chains_of_locations(void **state) {
  at_mctx c = {arena, at_map_in(arena)};
  for (int length = 900; length <= 1100; length += 200) {
    const at_mloc *l = &at_mloc_unknown;
    for (int i = 0; i < length; i++) {
      at_mloc *next = at_new(arena, at_mloc, 1);
      *next = (at_mloc){.kind = AT_MLOC_NAME, .text = "x", .child = l};
      l = next;
    }
    const at_mattr *one = at_mattr_make_loc(&c, l);
    at_mnamed list = {"locs", at_mattr_make_array(&c, &one, 1)};
    at_mop op = {.name = "a.b", .attrs = &list, .num_attrs = 1, .loc = l};
    at_mmodule m = {.op = &op};
    at_strbuf b = {0};
    assert_true(at_ok(at_mlir_write_bytecode(&m, "x", &b)));
    at_mmodule *again = NULL;
    at_bytes bytes = {(const uint8_t *)b.ptr, b.len};
    at_code code = at_code_take(at_mlir_read(bytes, false, arena, &again));
    at_strbuf_free(&b);
    if (length > 1000) {
      assert_int_equal(code, AT_INVALID_ARGUMENT);
      continue;
    }
    assert_int_equal(code, AT_OK_CODE);
    at_mop *inner = again->op->regions[0]->blocks[0]->ops[0];
    const at_mattr *read = at_mop_attr(inner, "locs");
    int parts = 0;
    l = read->elems[0]->loc;
    for (; l->kind == AT_MLOC_NAME; l = l->child) parts++;
    assert_int_equal(parts, length);
    inner->num_attrs = 0;  // text has them less deep
    at_mlir_print_options opt = {.generic = true, .locations = true};
    assert_true(at_ok(at_mlir_print(again, &opt, &b)));
    at_mmodule *third = NULL;
    assert_true(at_ok(at_mlir_read_text(at_strbuf_str(&b), arena, &third)));
    assert_true(at_mop_eq(again->op, third->op, true, arena));
    at_strbuf_free(&b);
  }
}

// Packed and unpacked booleans, splats, and sizes that do not fit.
static void dense_buffers(void **state) {
  at_mctx c = {arena, at_map_in(arena)};
  static const int64_t ten[] = {10}, three[] = {3}, none[] = {0};
  at_mtype t = {
      .kind = AT_MTYPE_TENSOR, .shape = {ten, 1}, .elem = &at_mtype_i1};
  const at_mattr *a = NULL;
  static const uint8_t packed[] = {0x05, 0x02};
  assert_true(at_ok(at_mattr_dense(&c, &t, (at_bytes){packed, 2}, false, &a)));
  assert_int_equal(a->data.len, 10);
  assert_int_equal(a->data.ptr[2], 1);
  assert_int_equal(a->data.ptr[9], 1);
  assert_int_equal(a->data.ptr[8], 0);
  static const uint8_t ones[] = {0xff};
  assert_true(at_ok(at_mattr_dense(&c, &t, (at_bytes){ones, 1}, false, &a)));
  assert_true(a->splat && a->data.ptr[0] == 1);
  // Four bits, signless: extended.
  at_mtype i4 = {.kind = AT_MTYPE_INTEGER, .width = 4};
  at_mtype v = {.kind = AT_MTYPE_TENSOR, .shape = {three, 1}, .elem = &i4};
  static const uint8_t nibbles[] = {0x0f, 0x07, 0x08};
  assert_true(at_ok(at_mattr_dense(&c, &v, (at_bytes){nibbles, 3}, false, &a)));
  assert_int_equal((int8_t)a->data.ptr[0], -1);
  assert_int_equal((int8_t)a->data.ptr[1], 7);
  assert_int_equal((int8_t)a->data.ptr[2], -8);
  // Nothing at all, whatever the buffer says.
  at_mtype z = {
      .kind = AT_MTYPE_TENSOR, .shape = {none, 1}, .elem = &at_mtype_i64};
  assert_true(at_ok(at_mattr_dense(&c, &z, (at_bytes){nibbles, 3}, false, &a)));
  assert_true(a->data.len == 0 && !a->splat);
  // Too short.
  assert_int_equal(
      at_code_take(at_mattr_dense(&c, &v, (at_bytes){nibbles, 2}, false, &a)),
      AT_INVALID_ARGUMENT);
}

// MLIR 24 has codes of its own for what older writers have as text.
static void affine_attributes(void **state) {
  static const struct {
    const char *name, *text;
  } want[] = {
      {"a_identity", "affine_map<(d0, d1) -> (d0, d1)>"},
      {"b_turned", "affine_map<(d0, d1, d2) -> (d2, d0, d1)>"},
      {"c_fewer", "affine_map<(d0, d1, d2) -> (d2, d0)>"},
      {"d_general",
       "affine_map<(d0, d1)[s0] -> (d0 + s0 * 3, d1 floordiv 2, "
       "d0 mod 7, 5, d1 ceildiv 4)>"},
      {"e_set", "affine_set<(d0)[s0] : (d0 + -3 >= 0, d0 - s0 == 0)>"},
      {"f_strided", "strided<[4, ?], offset: ?>"},
      {"g_type", "memref<4x4xf32, strided<[8, 1], offset: 3>>"},
  };
  const at_mop *op = must_find(must_read("affine.mlirbc"), "t.op");
  for (size_t i = 0; i < AT_LEN(want); i++) {
    const at_mattr *a = at_mop_attr(op, want[i].name), *b;
    at_mmodule *m;
    char *text =
        at_arena_printf(arena, "\"t.op\"() {v = %s} : () -> ()", want[i].text);
    assert_true(at_ok(at_mlir_read_text(at_str_of(text), arena, &m)));
    b = at_mop_attr(must_find(m, "t.op"), "v");
    at_strbuf x = {0}, y = {0};
    at_mattr_print(&x, a);
    at_mattr_print(&y, b);
    if (!at_str_eq(at_strbuf_str(&x), at_strbuf_str(&y)))
      fail_msg("want %s, have %s", at_strbuf_str(&y).ptr,
               at_strbuf_str(&x).ptr);
    at_strbuf_free(&x);
    at_strbuf_free(&y);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(affine_attributes, setup, teardown),
      cmocka_unit_test_setup_teardown(a_portable_artifact, setup, teardown),
      cmocka_unit_test_setup_teardown(shardings, setup, teardown),
      cmocka_unit_test_setup_teardown(attributes_that_were_added, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(native_properties_equal_the_text, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(a_mosaic_body, setup, teardown),
      cmocka_unit_test_setup_teardown(every_file_survives_a_round_trip, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(damage_is_a_status, setup, teardown),
      cmocka_unit_test_setup_teardown(versions_are_named, setup, teardown),
      cmocka_unit_test_setup_teardown(a_tree_that_explodes_is_refused, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(added_sums_are_not_said, setup, teardown),
      cmocka_unit_test_setup_teardown(long_chains_of_locations, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(dense_buffers, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
