// JSON, the log, and what the CPU reports.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/json.h"
#include "base/log.h"
#include "base/size_text.h"

// The code of reading the text.
static at_code parse(const char *text, at_arena *a, const at_json **out) {
  return at_code_take(
      at_json_parse((at_bytes){(const uint8_t *)text, strlen(text)}, a, out));
}

// Values, escapes and numbers at their limits.
static void json_reads_every_kind(void **state) {
  at_arena *a = at_arena_create();
  const at_json *j;
  assert_int_equal(
      parse(" {\"i\": -12, \"f\": 2.5e-1, \"s\": \"a\\u00e9\\ud83d\\ude00\\n\","
            "\"t\":true,\"n\":null,\"a\":[1,[],{}], \"big\": "
            "9223372036854775808} ",
            a, &j),
      0);
  assert_int_equal(at_json_get_int(j, "i", 0), -12);
  assert_true(at_json_get_num(j, "f", 0) == 0.25);
  assert_true(at_str_is(at_json_get_str(j, "s", AT_STR("")),
                        "a\xc3\xa9\xf0\x9f\x98\x80\n"));
  assert_true(at_json_get(j, "t")->boolean);
  assert_int_equal(at_json_get(j, "n")->kind, AT_JSON_NULL);
  assert_int_equal(at_json_get(j, "a")->len, 3);
  assert_false(at_json_get(j, "big")->is_int);
  assert_true(at_json_get_num(j, "big", 0) == 9223372036854775808.0);
  assert_int_equal(at_json_get_int(j, "big", -1), -1);
  assert_null(at_json_get(j, "absent"));
  assert_null(at_json_get(at_json_get(j, "a"), "x"));
  assert_null(at_json_get(NULL, "x"));
  at_arena_destroy(a);
}

// And strict JSON does not.
static void loose_json_takes_commas_at_ends(void **state) {
  at_arena *a = at_arena_create();
  const at_json *j;
  static const char ends[] = "{\"a\": [1, 2,],\n}", only[] = "{\"a\": [,]}";
  assert_int_equal(parse(ends, a, &j), AT_INVALID_ARGUMENT);
  at_bytes text = {(const uint8_t *)ends, sizeof ends - 1};
  assert_int_equal(at_code_take(at_json_parse_loose(text, a, &j)), 0);
  assert_int_equal(at_json_get(j, "a")->len, 2);
  text = (at_bytes){(const uint8_t *)only, sizeof only - 1};
  assert_int_equal(at_code_take(at_json_parse_loose(text, a, &j)),
                   AT_INVALID_ARGUMENT);
  at_arena_destroy(a);
}

// Each a rule of RFC 8259.
static void json_refuses_what_is_not_json(void **state) {
  static const char *const bad[] = {"",
                                    " ",
                                    "{",
                                    "[1,]",
                                    "{\"a\"}",
                                    "{\"a\":}",
                                    "01",
                                    "1.",
                                    "-",
                                    "1e",
                                    "+1",
                                    "nul",
                                    "\"\\x\"",
                                    "\"\\u12",
                                    "\"\\ud800",
                                    "\"\\ud800\\u0041\"",
                                    "\"a",
                                    "[1] 2",
                                    "\"\x01\"",
                                    "\"\xff\"",
                                    "\"\xc0\x80\"",
                                    "{1:2}",
                                    "truefalse",
                                    "{\"a\":1,\"a\":2}",
                                    "\"\xed\xa0\x80\"",
                                    "\"\\"};
  at_arena *a = at_arena_create();
  const at_json *j;
  for (size_t i = 0; i < AT_LEN(bad); i++)
    assert_int_equal(parse(bad[i], a, &j), AT_INVALID_ARGUMENT);
  char deep[400];
  memset(deep, '[', 200);
  memset(deep + 200, ']', 200);
  assert_int_equal(
      at_code_take(at_json_parse((at_bytes){(uint8_t *)deep, 400}, a, &j)),
      AT_INVALID_ARGUMENT);
  at_status st =
      at_json_parse((at_bytes){(const uint8_t *)"{\n \"a\": x}", 10}, a, &j);
  assert_non_null(strstr(at_status_message(st), "line 2 column 7"));
  at_status_free(st);
  at_arena_destroy(a);
  a = at_arena_create_limited(200);
  assert_int_equal(parse("[1,2,3,4,5,6,7,8,9]", a, &j), AT_RESOURCE_EXHAUSTED);
  at_arena_destroy(a);
}

// Digits by the hundred, as some writers print doubles.
static void json_numbers_may_be_long(void **state) {
  at_arena *a = at_arena_create();
  const at_json *j;
  for (size_t zeros = 55; zeros < 70; zeros++) {
    char text[128] = "0.";
    memset(text + 2, '0', zeros);
    snprintf(text + 2 + zeros, sizeof text - 2 - zeros, "125e%zu", zeros + 3);
    assert_int_equal(parse(text, a, &j), 0);
    assert_true(j->number == 125 && !j->is_int);
  }
  at_arena_destroy(a);
}

// A document of every kind is written as it was read.
static void json_values_come_back(void **state) {
  static const char text[] =
      "{\"a\":[null,true,false,-3,0.5,\"x\\u000ay\"],\"b\":{},\"c\":[],\"d\":{"
      "\"e\":9223372036854775807}}";
  at_arena *a = at_arena_create();
  const at_json *j;
  at_strbuf b = {0};
  at_json_writer w = {.out = &b};
  assert_int_equal(parse(text, a, &j), 0);
  at_json_value(&w, j);
  assert_string_equal(b.ptr, text);
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// Numbers read back as the same double, bytes that are no text become U+FFFD.
static void json_writes_what_it_reads(void **state) {
  at_strbuf b = {0};
  at_json_writer w = {.out = &b};
  at_json_begin_object(&w);
  at_json_key(&w, AT_STR("a\"\\\n"));
  at_json_begin_array(&w);
  at_json_num(&w, 0.1);
  at_json_num(&w, 1.0 / 3);
  at_json_num(&w, INFINITY);
  at_json_int(&w, INT64_MIN);
  at_json_uint(&w, UINT64_MAX);
  at_json_bool(&w, false);
  at_json_end_array(&w);
  at_json_key(&w, AT_STR(""));
  at_json_str(&w, AT_STR("\xff?"));
  at_json_end_object(&w);
  assert_string_equal(b.ptr,
                      "{\"a\\\"\\\\\\u000a\":[0.1,0.3333333333333333,null,"
                      "-9223372036854775808,18446744073709551615,false],"
                      "\"\":\"\xef\xbf\xbd?\"}");
  at_arena *a = at_arena_create();
  const at_json *j;
  assert_int_equal(parse(b.ptr, a, &j), 0);
  assert_true(j->items[0].items[1].number == 1.0 / 3);
  at_arena_destroy(a);
  at_strbuf_free(&b);
}

// ---- Log
static void log_obeys_its_level(void **state) {
  assert_true(at_log_on(AT_LOG_ERROR));
  assert_true(at_log_on(AT_LOG_WARNING));
  assert_false(at_log_on(AT_LOG_DEBUG));
  assert_false(at_log_on(AT_LOG_OFF));
  int ends[2], saved = dup(STDERR_FILENO);
  assert_int_equal(pipe(ends), 0);
  dup2(ends[1], STDERR_FILENO);
  at_log(AT_LOG_DEBUG, "not this");
  at_log(AT_LOG_WARNING, "this %d", 7);
  char longer[3000];
  memset(longer, 'y', sizeof longer);
  longer[2999] = 0;
  at_log(AT_LOG_ERROR, "%s", longer);
  dup2(saved, STDERR_FILENO);
  close(ends[1]);
  char got[4096];
  ssize_t n = 0, k;
  while ((k = read(ends[0], got + n, sizeof got - 1 - (size_t)n)) > 0) n += k;
  got[n] = 0;
  assert_true(at_str_starts((at_str){got, (size_t)n},
                            "atoll warning: this 7\natoll error: yyy"));
  assert_true(n > 1000 && n < 1100 && got[n - 1] == '\n');
}

// ---- CPU
static void cpu_levels_are_nested(void **state) {
  uint64_t f = at_cpu_features();
  assert_true(f == at_cpu_features());
  if (f & ~(uint64_t)AT_CPU_AVX2) assert_true(f & AT_CPU_AVX2);
  if (f & (AT_CPU_AMX_BF16 | AT_CPU_AVX512_BF16))
    assert_true(f & AT_CPU_AVX512);
  assert_true(at_cpu_count() >= 1);
  assert_true(at_cpu_cache_bytes(1) >= 8192);
  assert_int_equal(at_cpu_cache_bytes(9), 0);
  assert_string_equal(at_cpu_feature_name(AT_CPU_AMX_BF16), "amx_bf16");
  assert_string_equal(at_cpu_llvm_features(0), "");
  const char *both = at_cpu_llvm_features(AT_CPU_AVX2 | AT_CPU_AVX512_BF16);
  assert_non_null(strstr(both, "+avx2,"));
  assert_non_null(strstr(both, "+avx512bf16"));
  assert_null(strstr(both, "amx"));
}

// ---- Sizes
static void sizes_read_well(void **state) {
  static const struct {
    double bytes;
    const char *text;
  } rows[] = {{0, "0 B"},
              {1, "1 B"},
              {1023, "1023 B"},
              {1024, "1 KiB"},
              {1536, "1.5 KiB"},
              {-1536, "-1.5 KiB"},
              {1.25 * (1 << 30), "1.25 GiB"},
              {1000. * (1 << 20), "1000 MiB"},
              {1023.4 * (1 << 20), "1023 MiB"},
              {1023.6 * (1 << 20), "1 GiB"},
              {9.999 * (1 << 20), "10 MiB"},
              {99.97 * (1 << 20), "100 MiB"},
              {12.34 * (1 << 20), "12.3 MiB"},
              {0x1p60, "1 EiB"},
              {1e300, "1000000000 EiB"}};
  char text[AT_SIZE_TEXT];
  for (size_t i = 0; i < AT_LEN(rows); i++)
    assert_string_equal(at_size_text(rows[i].bytes, text), rows[i].text);
}

int main(void) {
  unsetenv("ATOLL_LOG");
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(json_reads_every_kind),
      cmocka_unit_test(loose_json_takes_commas_at_ends),
      cmocka_unit_test(json_refuses_what_is_not_json),
      cmocka_unit_test(json_numbers_may_be_long),
      cmocka_unit_test(json_values_come_back),
      cmocka_unit_test(json_writes_what_it_reads),
      cmocka_unit_test(log_obeys_its_level),
      cmocka_unit_test(cpu_levels_are_nested),
      cmocka_unit_test(sizes_read_well),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
