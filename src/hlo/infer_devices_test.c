// Each attribute of each collective: the shape rule takes the good value and
// refuses every bad one. An attribute that no row here has fails the test.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>

#include "hlo/hlo.h"

#define ADD                                      \
  " ((%90: f32[], %91: f32[]) { %92 = add %90, " \
  "%91 : f32[] return %92 })"

// A good program: `%2 = TEXT OPERANDS {attributes} BODY : RESULT`.
typedef struct base {
  at_op op;
  const char *params, *operands, *body, *result;
} base;

// One per collective.
static const base bases[] = {
    {AT_OP_ALL_GATHER, "%0: f32[4,6]", "%0", "", "f32[4,12]"},
    {AT_OP_ALL_REDUCE, "%0: f32[4,6]", "%0", ADD, "f32[4,6]"},
    {AT_OP_ALL_TO_ALL, "%0: f32[4,6]", "%0", "", "f32[8,3]"},
    {AT_OP_COLLECTIVE_BROADCAST, "%0: f32[4,6]", "%0", "", "f32[4,6]"},
    {AT_OP_COLLECTIVE_PERMUTE, "%0: f32[4,6]", "%0", "", "f32[4,6]"},
    {AT_OP_RAGGED_ALL_TO_ALL, "%0: f32[4,6], %1: f32[8,6], %3: i32[2]",
     "%0, %1, %3, %3, %3, %3", "", "f32[8,6]"},
    {AT_OP_REDUCE_SCATTER, "%0: f32[4,6]", "%0", ADD, "f32[4,3]"},
};

// The first value is good. A bad one comes with the others' good ones.
typedef struct values {
  at_attr_id id;
  const char *good, *bad[10];
} values;

#define DIMENSION "-1", "2", "-9223372036854775808", "9223372036854775807", "0"

// One per attribute.
static const values rows[] = {
    {AT_ATTR_ALL_GATHER_DIM, "1", {DIMENSION}},
    {AT_ATTR_SCATTER_DIMENSION, "1", {DIMENSION}},
    {AT_ATTR_SPLIT_DIMENSION, "1", {DIMENSION}},
    {AT_ATTR_CONCAT_DIMENSION,
     "0",
     {"-1", "2", "-9223372036854775808", "9223372036854775807", "1"}},
    {AT_ATTR_SPLIT_COUNT, "2", {"0", "-1", "-2", "1", "3", "4"}},
    {AT_ATTR_REPLICA_GROUPS,
     "[[0,1],[2,3]]",
     {"[[0,1],[1,2]]", "[[0,0],[2,3]]", "[[0,-2],[2,3]]"}},
    {AT_ATTR_SOURCE_TARGET_PAIRS,
     "[[0,1],[1,2]]",
     {"[[0,1],[2,1]]", "[[0,1],[2]]", "[[0,1,2],[2,3,4]]", "[[0,-1]]",
      "[[-1,0]]"}},
    {AT_ATTR_CHANNEL_ID, "1", {"-1", "-9223372036854775808"}},
};

// The good and bad values of an attribute; NULL where the table lacks them.
static const values *row_of(at_attr_id id) {
  for (size_t i = 0; i < AT_LEN(rows); i++)
    if (rows[i].id == id) return &rows[i];
  return NULL;
}

// Whether the op takes the attribute.
static bool has(at_op op, at_attr_id id) {
  const at_op_info *o = at_op_of(op);
  for (uint32_t i = 0; i < o->attr_count; i++)
    if (o->attrs[i] == id) return true;
  return false;
}

// Reads the program with `id` as given; NULL: as it should be. `more` goes
// behind the other attributes.
static at_status load(const base *b, at_attr_id id, const char *value,
                      const char *more, const char *result) {
  at_arena *a = at_arena_create();
  at_strbuf t = {0};
  at_module *m;
  const char *comma = "";
  at_strbuf_addf(&t,
                 "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%s) -> "
                 "(%s) {\n%%2 = %s %s {",
                 b->params, result, at_op_text(b->op), b->operands);
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    if (!has(b->op, rows[i].id)) continue;
    bool own = value && rows[i].id == id;
    at_strbuf_addf(&t, "%s%s=%s", comma, at_attr_text(rows[i].id),
                   own ? value : rows[i].good);
    comma = ", ";
  }
  at_strbuf_addf(&t, "%s}%s : %s return %%2}\n}\n", more, b->body, result);
  at_status st = at_hlo_parse((at_str){t.ptr, t.len}, a, &m);
  if (at_ok(st)) st = at_verify(m, "test");
  at_strbuf_free(&t);
  at_arena_destroy(a);
  return st;
}

// The program with good values is valid.
static void takes(const base *b, const char *more) {
  at_status st = load(b, 0, NULL, more, b->result);
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
}

// The program with one bad value is refused, and the message names the op.
static void refuses(const base *b, at_attr_id id, const char *value,
                    const char *more, const char *result) {
  at_status st = load(b, id, value, more, result);
  if (at_ok(st))
    fail_msg("%s takes %s=%s%s : %s", at_op_text(b->op),
             value ? at_attr_text(id) : "", value ? value : "", more, result);
  assert_int_equal(at_status_code(st), AT_INVALID_ARGUMENT);
  assert_non_null(strstr(at_status_message(st), at_op_text(b->op)));
  at_status_free(st);
}

// One bad value at a time among good ones.
static void test_attributes(void **state) {
  for (size_t i = 0; i < AT_LEN(bases); i++) {
    const base *b = &bases[i];
    const at_op_info *o = at_op_of(b->op);
    takes(b, "");
    for (uint32_t k = 0; k < o->attr_count; k++) {
      at_attr_id id = (at_attr_id)o->attrs[k];
      if (id == AT_ATTR_ASYNC) continue;  // verify_test.c
      if (id == AT_ATTR_USE_GLOBAL_DEVICE_IDS) {
        takes(b, ", use_global_device_ids=true");
        refuses(b, AT_ATTR_CHANNEL_ID, "0", ", use_global_device_ids=true",
                b->result);
        continue;
      }
      const values *v = row_of(id);
      if (!v)
        fail_msg("%s: no bad value of %s", at_op_text(b->op), at_attr_text(id));
      for (const char *const *bad = v->bad; *bad; bad++)
        refuses(b, id, *bad, "", b->result);
    }
  }
}

// A new collective must be added to the table.
static void test_every_collective_has_a_row(void **state) {
  for (uint32_t op = 0; op < AT_OP_COUNT; op++) {
    if (!at_op_is((at_op)op, AT_COLLECTIVE)) continue;
    bool found = false;
    for (size_t i = 0; i < AT_LEN(bases); i++) found |= bases[i].op == op;
    if (!found) fail_msg("%s", at_op_text((at_op)op));
  }
}

// Of another rank, element type, size.
static void test_results(void **state) {
  static const char *const bad[] = {"f32[4]",   "f32[4,6,1]", "i32[4,6]",
                                    "f32[5,6]", "f32[4,7]",   "f32[4,0]"};
  for (size_t i = 0; i < AT_LEN(bases); i++)
    for (size_t k = 0; k < AT_LEN(bad); k++)
      refuses(&bases[i], 0, NULL, "", bad[k]);
}

// As many pieces as a group has members, where the program says it.
static void test_pieces(void **state) {
  const char *global = ", use_global_device_ids=true";
  refuses(&bases[0], 0, NULL, global, "f32[4,18]");
  refuses(&bases[6], 0, NULL, global, "f32[4,2]");
  refuses(&bases[2], 0, NULL, "", "f32[12,2]");
}

// Only a reduction and a broadcast take groups of several sizes.
static void test_ragged_groups(void **state) {
  static const char *const ragged[] = {"[[0,1],[2]]", "[[0,1],[2,3,4]]"};
  for (size_t i = 0; i < AT_LEN(bases); i++) {
    const base *b = &bases[i];
    if (!has(b->op, AT_ATTR_REPLICA_GROUPS)) continue;
    for (size_t k = 0; k < AT_LEN(ragged); k++) {
      if (b->op != AT_OP_ALL_REDUCE && b->op != AT_OP_COLLECTIVE_BROADCAST) {
        refuses(b, AT_ATTR_REPLICA_GROUPS, ragged[k], "", b->result);
        continue;
      }
      at_status st = load(b, AT_ATTR_REPLICA_GROUPS, ragged[k], "", b->result);
      if (!at_ok(st)) fail_msg("%s", at_status_message(st));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attributes),
      cmocka_unit_test(test_every_collective_has_a_row),
      cmocka_unit_test(test_results), cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_ragged_groups)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
