// The compile options that JAX 0.10.2 serialises
// (test/corpora/compile_request_fuzz), and small hand-made ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka wants the headers above first.
#include <cmocka.h>

#include "import/import.h"

// A file of the corpus; all are smaller than 64 KiB.
static at_bytes file_read(const char *name, at_arena *a) {
  char path[512];
  const char *root = getenv("AT_SOURCE_DIR");
  snprintf(path, sizeof path, "%s/test/corpora/compile_request_fuzz/%s",
           root ? root : ".", name);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  uint8_t *p = at_arena_alloc(a, 1 << 16, 1);
  size_t n = fread(p, 1, 1 << 16, f);
  fclose(f);
  return (at_bytes){p, n};
}

// Reads options that must be taken.
static at_compile_request read_ok(at_bytes b, at_arena *a) {
  at_compile_request r;
  at_status s = at_compile_request_read(b, a, &r);
  if (!at_ok(s)) print_error("%s\n", at_status_message(s));
  assert_int_equal(at_code_take(s), AT_OK_CODE);
  return r;
}

// What JAX sends for one device: counts of one, and an assignment.
static void one_device(void **state) {
  at_arena *a = at_arena_create();
  at_compile_request r = read_ok(file_read("one_device.pb", a), a);
  assert_int_equal(r.num_replicas, 1);
  assert_int_equal(r.num_partitions, 1);
  assert_int_equal(r.device_ordinal, -1);
  assert_non_null(r.device_ids);
  assert_false(r.parameter_is_tupled);
  assert_false(r.compile_portable_executable);
  at_arena_destroy(a);
}

// SPMD over four devices.
static void four_partitions(void **state) {
  at_arena *a = at_arena_create();
  at_compile_request r = read_ok(file_read("four_partitions.pb", a), a);
  assert_int_equal(r.num_replicas, 1);
  assert_int_equal(r.num_partitions, 4);
  assert_true(r.use_spmd_partitioning);
  assert_true(r.use_shardy);
  for (int i = 0; i < 4; i++) assert_int_equal(r.device_ids[i], i);
  at_arena_destroy(a);
}

// Two replicas of two partitions, with every option that is read set.
static void two_by_two(void **state) {
  at_arena *a = at_arena_create();
  at_compile_request r = read_ok(file_read("two_by_two.pb", a), a);
  assert_int_equal(r.num_replicas, 2);
  assert_int_equal(r.num_partitions, 2);
  // [replica][partition]
  for (int i = 0; i < 4; i++) assert_int_equal(r.device_ids[i], i);
  assert_true(r.use_spmd_partitioning);
  assert_true(r.use_shardy);
  assert_true(r.parameter_is_tupled);
  assert_true(r.compile_portable_executable);
  assert_int_equal(r.num_allow_output, 3);
  assert_true(r.allow_spmd_sharding_propagation_to_output[0]);
  assert_false(r.allow_spmd_sharding_propagation_to_output[1]);
  assert_true(r.allow_spmd_sharding_propagation_to_output[2]);
  assert_int_equal(r.num_env_options, 2);
  bool dump = false, fast = false;
  for (uint32_t i = 0; i < 4; i += 2) {
    dump |= at_str_is(r.env_options[i], "xla_dump_to") &&
            at_str_is(r.env_options[i + 1], "dumps");
    fast |= at_str_is(r.env_options[i], "xla_enable_fast_math") &&
            at_str_is(r.env_options[i + 1], "true");
  }
  assert_true(dump && fast);
  at_arena_destroy(a);
}

// No bytes at all are valid options: proto3's defaults.
static void empty_is_one_device(void **state) {
  at_arena *a = at_arena_create();
  at_compile_request r = read_ok((at_bytes){NULL, 0}, a);
  assert_int_equal(r.num_replicas, 1);
  assert_int_equal(r.num_partitions, 1);
  assert_int_equal(r.device_ordinal, -1);
  assert_null(r.device_ids);
  at_arena_destroy(a);
}

// Each kind of an override value arrives as text.
static void option_kinds(void **state) {
  // env_option_overrides (7): {"b": bool 1}, {"i": int -2}, {"d": double 0.5}.
  static const uint8_t bytes[] = {
      0x3a, 7,    0x0a, 1,    'b', 0x12, 2,    0x10, 1,    0x3a, 16,
      0x0a, 1,    'i',  0x12, 11,  0x18, 0xfe, 0xff, 0xff, 0xff, 0xff,
      0xff, 0xff, 0xff, 0xff, 1,   0x3a, 14,   0x0a, 1,    'd',  0x12,
      9,    0x21, 0,    0,    0,   0,    0,    0,    0xe0, 0x3f};
  at_arena *a = at_arena_create();
  at_compile_request r = read_ok((at_bytes){bytes, sizeof bytes}, a);
  assert_int_equal(r.num_env_options, 3);
  static const char *const want[] = {"b", "true", "i", "-2", "d", "0.5"};
  for (int i = 0; i < 6; i++) assert_true(at_str_is(r.env_options[i], want[i]));
  at_arena_destroy(a);
}

// Each is INVALID_ARGUMENT, whatever was read before it.
static void malformed(void **state) {
  static const struct {
    const char *what;
    uint8_t bytes[16];
    size_t n;
  } cases[] = {
      {"cut varint", {0x10, 0x80}, 2},
      {"endless varint",
       {0x10, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1},
       12},
      {"cut bytes", {0x1a, 5, 0x20, 1}, 4},
      {"length over 2^63",
       {0x1a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
       11},
      {"field number 0", {0x00, 1}, 2},
      {"group", {0x1b}, 1},
      {"cut fixed64", {0x19, 1, 2, 3}, 4},
      {"cut fixed32", {0x1d, 1}, 2},
      {"negative replicas",
       {0x1a, 11, 0x20, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        1},
       13},
      {"assignment of another size", {0x1a, 6, 0x4a, 4, 0x08, 2, 0x10, 1}, 8},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_arena *a = at_arena_create();
    at_compile_request r;
    at_status s =
        at_compile_request_read((at_bytes){cases[i].bytes, cases[i].n}, a, &r);
    if (at_ok(s)) print_error("%s was taken\n", cases[i].what);
    assert_int_equal(at_code_take(s), AT_INVALID_ARGUMENT);
    at_arena_destroy(a);
  }
}

// Every prefix of real options ends in a status, never in a read past the end.
static void prefixes(void **state) {
  at_arena *a = at_arena_create();
  at_bytes all = file_read("two_by_two.pb", a);
  for (size_t n = 0; n < all.len; n++) {
    uint8_t *copy = malloc(n + 1);
    memcpy(copy, all.ptr, n);
    at_compile_request r;
    at_status_free(at_compile_request_read((at_bytes){copy, n}, a, &r));
    free(copy);
  }
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_device),   cmocka_unit_test(four_partitions),
      cmocka_unit_test(two_by_two),   cmocka_unit_test(empty_is_one_device),
      cmocka_unit_test(option_kinds), cmocka_unit_test(malformed),
      cmocka_unit_test(prefixes)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
