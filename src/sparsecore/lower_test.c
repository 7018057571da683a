// Configs and calls: what is read, and what is refused with which words.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka wants the four above first.
#include <cmocka.h>
#include <string.h>

#include "sparsecore/sparsecore.h"

#define OK(e) assert_int_equal(at_code_take(e), 0)

// Takes st.
static void assert_refused(at_status st, at_code code, const char *says) {
  assert_non_null(st.err);
  if (!strstr(at_status_message(st), says))
    fail_msg("%s\nlacks: %s", at_status_message(st), says);
  assert_int_equal(at_code_take(st), code);
}

// ---- Configs
// Empty, with all fields, and in the older spelling of quantisation.
static void reads_configs(void **state) {
  at_sc_config c;
  OK(at_sc_config_read(AT_STR(""), &c));
  assert_true(!c.quantised && !c.max_ids && c.num_slots == -1);
  OK(at_sc_config_read(
      AT_STR("{\"sparse_dense_matmul_config\": {\"max_ids_per_partition\": 8, "
             "\"max_unique_ids_per_partition\": 4, \"sharding_strategy\": 1, "
             "\"pad_value\": 2147483647, \"num_slot_variables\": 2, "
             "\"num_hyperparameters\": 0, \"quantization_config\": "
             "{\"min_value\": -1, \"max_value\": 2.5, \"num_buckets\": 256}}, "
             "\"device_type\": \"DEVICE_TYPE_SPARSECORE\"}"),
      &c));
  assert_true(c.max_ids == 8 && c.max_unique == 4 && c.num_slots == 2);
  assert_true(c.num_hypers == 0 && c.quantised && c.num_buckets == 256);
  assert_true(c.low == -1 && c.high == 2.5);
  OK(at_sc_config_read(
      AT_STR(
          "{\"sparse_dense_matmul_config\": {\"quantization_config_low\": 0, "
          "\"quantization_config_high\": 1, "
          "\"quantization_config_num_buckets\": 2}}"),
      &c));
  assert_true(c.quantised && c.num_buckets == 2 && c.high == 1);
}

// One wrong field each; the message names it.
static void refuses_configs(void **state) {
  static const struct {
    const char *matmul, *says;
  } bad[] = {
      {"3", "must be an object"},
      {"{\"max_ids_per_partition\": 0}", "max_ids_per_partition"},
      {"{\"max_ids_per_partition\": 1.5}", "max_ids_per_partition"},
      {"{\"max_unique_ids_per_partition\": -4}",
       "max_unique_ids_per_partition"},
      {"{\"max_ids_per_partition\": 4294967296}", "max_ids_per_partition"},
      {"{\"sharding_strategy\": 2}", "sharding_strategy 2"},
      {"{\"pad_value\": 7}", "pad_value must be 2147483647, got 7"},
      {"{\"quantization_config\": []}", "quantization_config"},
      {"{\"quantization_config\": {\"min_value\": 0, \"max_value\": 1}}",
       "num_buckets is missing"},
      {"{\"quantization_config\": {\"min_value\": 0, \"max_value\": 1, "
       "\"num_buckets\": 1}}",
       "num_buckets must be at least 2, got 1"},
      {"{\"quantization_config\": {\"min_value\": 1, \"max_value\": 1, "
       "\"num_buckets\": 4}}",
       "min_value must be less than max_value, got 1 and 1"},
      {"{\"quantization_config\": {\"min_value\": \"a\", \"max_value\": 1, "
       "\"num_buckets\": 4}}",
       "min_value must be a number"},
      {"{\"quantization_config_low\": 2, \"quantization_config_high\": 1, "
       "\"quantization_config_num_buckets\": 4}",
       "quantization_config_low must be less"},
  };
  at_sc_config c;
  for (size_t i = 0; i < AT_LEN(bad); i++) {
    char text[512];
    snprintf(text, sizeof text, "{\"sparse_dense_matmul_config\": %s}",
             bad[i].matmul);
    assert_refused(at_sc_config_read(at_str_of(text), &c), AT_INVALID_ARGUMENT,
                   bad[i].says);
  }
  assert_refused(at_sc_config_read(AT_STR("{\"device_type\": \"TC\"}"), &c),
                 AT_INVALID_ARGUMENT, "DEVICE_TYPE_SPARSECORE");
  assert_refused(at_sc_config_read(AT_STR("[]"), &c), AT_INVALID_ARGUMENT,
                 "an object is expected");
  assert_refused(at_sc_config_read(AT_STR("{"), &c), AT_INVALID_ARGUMENT,
                 "backend_config");
}

// By target text, as ATOLL_TARGET has it; 0 where there are none.
static void counts_cores(void **state) {
  static const struct {
    const char *target;
    uint32_t cores;
  } rows[] = {
      {"v4", 4}, {"v5p:2x2x1", 4}, {"v6e", 2},           {"2*v6e:2x2", 2},
      {"7x", 2}, {"v5e", 0},       {"v6litepod:2x4", 2}, {"nothing", 0},
      {"", 0}};
  for (size_t i = 0; i < AT_LEN(rows); i++)
    assert_int_equal(at_sc_count(at_str_of(rows[i].target)), rows[i].cores);
}

// ---- Calls
// A program of one call; `types` are those of its operands.
static at_status read_call(const char *target, const char *const *types,
                           const char *result, uint32_t devices, uint32_t scs,
                           at_sc_call *out) {
  at_arena *a = at_arena_create();
  at_strbuf b = {0};
  uint32_t n = 0;
  at_strbuf_addz(&b, "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (");
  for (; types[n]; n++)
    at_strbuf_addf(&b, "%s%%%u: %s", n ? ", " : "", n, types[n]);
  at_strbuf_addf(&b, ") -> (%s) {\n  %%99 = custom_call ", result);
  for (uint32_t i = 0; i < n; i++)
    at_strbuf_addf(&b, "%s%%%u", i ? ", " : "", i);
  at_strbuf_addf(&b, " {call_target_name=\"%s\"} : %s\n  return %%99\n}\n}\n",
                 target, result);
  at_module *m;
  at_status st = at_hlo_parse(at_strbuf_str(&b), a, &m);
  if (st.err) fail_msg("%s\n%s", b.ptr, at_status_message(st));
  at_node *call = m->entry->last;
  while (call->op != AT_OP_CUSTOM_CALL) call = call->prev;
  st = at_sc_call_read(call, devices, scs, out);
  at_strbuf_free(&b);
  at_arena_destroy(a);
  return st;
}

#define LISTS "i32[64]", "i32[64]", "f32[64]"
#define LOOKUP "SparseDenseMatmulOp"

// A call with lists of 64 entries and an initial value.
static at_status lookup(const char *pointers, const char *table,
                        const char *result, uint32_t devices, uint32_t scs,
                        at_sc_call *c) {
  const char *types[] = {pointers, LISTS, table, result, NULL};
  return read_call(LOOKUP, types, result, devices, scs, c);
}

// Tables of rank 1 and 2, input for another number of SparseCores, LOCAL,
// minibatches.
static void reads_lookups(void **state) {
  at_sc_call c;
  OK(lookup("i32[16]", "f32[32,8]", "f32[16,8]", 1, 2, &c));
  assert_true(c.x.op == AT_SPARSE_LOOKUP && c.x.rows == 32 && c.x.width == 8);
  assert_true(c.x.samples == 16 && c.x.ids == 64 && c.x.has_init == 1);
  assert_true(c.num_operands == 6 && c.operands[4] == 4 && c.operands[5] == 5);
  OK(lookup("i32[64]", "f32[32]", "f32[16]", 4, 4, &c));  // a table of rank 1
  assert_true(c.x.width == 1 && c.x.scs_per_device == 4);
  OK(lookup("i32[32]", "bf16[32,8]", "f32[16,8]", 1, 2, &c));
  assert_int_equal(c.x.scs_per_device, 4);  // the row pointers tell
  const char *local[] = {"f32[8,4]", LISTS, NULL};
  OK(read_call("SparseDenseMatmulLocalOp", local, "f32[6,4]", 2, 2, &c));
  assert_true(c.x.op == AT_SPARSE_LOCAL && !c.x.has_init && c.operands[0] == 1);
  assert_int_equal(c.operands[3], 0);
  const char *batches[] = {"i32[1024]", LISTS, "i32[]", "f32[32,8]", NULL};
  OK(read_call("SparseDenseMatmulWithMinibatchingOp", batches, "f32[16,8]", 1,
               2, &c));
  assert_true(c.x.minibatching && c.x.pointers == 1024);
}

// One wrong operand or size each.
static void refuses_lookups(void **state) {
  at_sc_call c;
  assert_refused(lookup("i32[16]", "f32[32,8]", "f32[16,8]", 1, 0, &c),
                 AT_UNIMPLEMENTED, "Only Megachip mode is supporting mixed");
  assert_refused(lookup("i32[24]", "f32[32,8]", "f32[16,8]", 1, 2, &c),
                 AT_INVALID_ARGUMENT,
                 "row_ptrs should be aligned to HBM granularity!");
  assert_refused(lookup("i32[16]", "f32[33,8]", "f32[16,8]", 1, 2, &c),
                 AT_INVALID_ARGUMENT, "33 rows do not divide");
  assert_refused(lookup("i32[16]", "f32[32,8]", "f32[15,8]", 1, 2, &c),
                 AT_INVALID_ARGUMENT, "a batch of 15 does not divide");
  assert_refused(lookup("i32[16]", "f32[32,8]", "f32[16,4]", 1, 2, &c),
                 AT_INVALID_ARGUMENT, "4 wide, the table 8");
  assert_refused(lookup("i32[16]", "f64[32,8]", "f32[16,8]", 1, 2, &c),
                 AT_UNIMPLEMENTED, "a table of f64");
  assert_refused(lookup("i32[16]", "i8[32,8]", "f32[16,8]", 1, 2, &c),
                 AT_INVALID_ARGUMENT, "needs a quantization_config");
  assert_refused(lookup("f32[16]", "f32[32,8]", "f32[16,8]", 1, 2, &c),
                 AT_INVALID_ARGUMENT, "row pointers must be a list of");
  assert_refused(
      lookup("i32[16]", "f32[40000000,128]", "f32[16,128]", 1, 2, &c),
      AT_INVALID_ARGUMENT, "SparseCore only supports 16 GiB of HBM per tensor");
  const char *few[] = {"i32[16]", "i32[64]", "i32[64]", NULL};
  assert_refused(read_call(LOOKUP, few, "f32[16,8]", 1, 2, &c),
                 AT_INVALID_ARGUMENT, "operand 3 (gains) is missing");
  const char *uneven[] = {"i32[16]", "i32[64]",   "i32[64]",
                          "f32[63]", "f32[32,8]", NULL};
  assert_refused(read_call(LOOKUP, uneven, "f32[16,8]", 1, 2, &c),
                 AT_INVALID_ARGUMENT, "differ in length: 64, 64, 63");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_configs),   cmocka_unit_test(refuses_configs),
      cmocka_unit_test(counts_cores),    cmocka_unit_test(reads_lookups),
      cmocka_unit_test(refuses_lookups),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
