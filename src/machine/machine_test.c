// The descriptions that come with Atoll, and what the reader refuses.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>

#include "machine/machine.h"

// By name, alias and device kind, in either case.
static void every_machine_of_the_list_is_there(void **state) {
  static const struct {
    const char *name, *platform;
  } rows[] = {{"v4", "tpu"},         {"v5e", "tpu"},  {"v5p", "tpu"},
              {"v6e", "tpu"},        {"7x", "tpu"},   {"A100", "gpu"},
              {"H100", "gpu"},       {"B200", "gpu"}, {"GB200", "gpu"},
              {"MK2", "ipu"},        {"h100", "gpu"}, {"TPU7x", "tpu"},
              {"nvidia b200", "gpu"}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const at_machine *m = NULL;
    assert_int_equal(at_code_take(at_machine_find(at_str_of(rows[i].name), &m)),
                     0);
    assert_string_equal(m->platform, rows[i].platform);
  }
  const at_machine *m;
  assert_int_equal(at_code_take(at_machine_find(AT_STR("Z80"), &m)),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_machine_find(AT_STR(""), &m)),
                   AT_INVALID_ARGUMENT);
}

// All figures of all built-in files, and one of each kind by value.
static void figures_have_sources(void **state) {
  assert_true(at_machine_count() >= 10);
  for (size_t i = 0; i < at_machine_count(); i++) {
    const at_machine *m = at_machine_at(i);
    for (size_t k = 0; k < m->tree->len; k++)
      if (m->tree->items[k].kind == AT_JSON_OBJECT)
        assert_true(
            at_json_get_str(&m->tree->items[k], "source", AT_STR("")).len > 10);
  }
  const at_machine *h100;
  assert_int_equal(at_code_take(at_machine_find(AT_STR("H100"), &h100)), 0);
  at_figure f;
  assert_true(at_machine_figure(h100, "hbm_bytes_per_second_per_chip", &f));
  assert_true(f.value == 3352320000000.0 && f.source.len && !f.text.len);
  assert_true(at_machine_figure(h100, "compute_capability", &f));
  assert_true(at_str_is(f.text, "9.0"));
  assert_false(at_machine_figure(h100, "vmem_bytes_per_core", &f));
  double v;
  at_status st = at_machine_need(h100, "vmem_bytes_per_core", &v);
  assert_non_null(strstr(at_status_message(st), "H100"));
  assert_int_equal(at_code_take(st), AT_FAILED_PRECONDITION);
}

// Absent rows, rows without a value and no rows at all give NaN.
static void missing_coefficients_are_not_numbers(void **state) {
  at_arena *a = at_arena_create();
  static const char text[] = "{\"x\": {\"value\": 3}, \"y\": {}, \"z\": 4}";
  const at_json *rows;
  at_bytes bytes = {(const uint8_t *)text, sizeof text - 1};
  assert_int_equal(at_code_take(at_json_parse(bytes, a, &rows)), 0);
  assert_true(at_coefficient(rows, "x", "test") == 3);
  static const char *const none[] = {"y", "z", "w"};
  for (size_t i = 0; i < AT_LEN(none); i++) {
    double v = at_coefficient(rows, none[i], "test");
    assert_true(v != v);
  }
  assert_true(at_coefficient(NULL, "x", "test") != 3);
  at_arena_destroy(a);
}

// The description without key `left_out`, or with that key's value of the other
// kind.
static at_code read_changed(const at_json *tree, size_t left_out, bool retyped,
                            at_arena *a, at_machine *m) {
  at_strbuf b = {0};
  at_json_writer w = {.out = &b};
  at_json_begin_object(&w);
  for (size_t i = 0; i < tree->len; i++) {
    if (i == left_out && !retyped) continue;
    at_json_key(&w, tree->keys[i]);
    if (i != left_out || tree->items[i].kind != AT_JSON_OBJECT) {
      i != left_out ? at_json_value(&w, &tree->items[i]) : at_json_int(&w, 7);
      continue;
    }
    const at_json *v = at_json_get(&tree->items[i], "value");
    at_json_begin_object(&w);
    at_json_key(&w, AT_STR("value"));
    v->kind == AT_JSON_NUMBER ? at_json_str(&w, AT_STR("7"))
                              : at_json_int(&w, 7);
    at_json_key(&w, AT_STR("source"));
    at_json_str(&w, AT_STR("a test"));
    at_json_end_object(&w);
  }
  at_json_end_object(&w);
  at_str text = at_strbuf_str(&b);
  char *copy = at_arena_str(a, text);
  at_strbuf_free(&b);
  assert_non_null(copy);
  return at_code_take(
      at_machine_read((at_bytes){(uint8_t *)copy, text.len}, a, m));
}

// Of a key that is not missed when the file is read: is it one that users need
// by at_machine_need, or one that the table calls optional?
static bool may_be_absent(at_str key) {
  const char *const names[] = {
#define USE ""
#define OPTIONAL ""
#define AT_FIGURE(name, kind, needed, doc) *needed ? "" : #name,
#include "machine/figures.def"
#undef AT_FIGURE
#undef USE
#undef OPTIONAL
  };
  for (size_t i = 0; i < AT_LEN(names); i++)
    if (at_str_is(key, names[i])) return true;
  return at_str_is(key, "aliases");
}

// Each key of each file is left out, then given the other kind.
static void no_key_of_a_data_file_goes_unmissed(void **state) {
  size_t missed = 0;
  for (size_t i = 0; i < at_machine_count(); i++) {
    const at_json *tree = at_machine_at(i)->tree;
    for (size_t k = 0; k < tree->len; k++) {
      at_arena *a = at_arena_create();
      at_machine m;
      if (!read_changed(tree, k, false, a, &m)) {
        at_status st = at_machine_complete(&m);
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)tree->keys[k].len,
                 tree->keys[k].ptr);
        bool said = strstr(at_status_message(st), key) &&
                    strstr(at_status_message(st), m.name);
        if (at_code_take(st) ? !said : !may_be_absent(tree->keys[k]))
          fail_msg("%s without %s goes unmissed", m.name, key);
        missed += said;
      }
      assert_int_equal(read_changed(tree, k, true, a, &m), AT_INVALID_ARGUMENT);
      at_arena_destroy(a);
    }
  }
  assert_true(missed > 200);
}

// A misspelt figure is named, and so is what is missing.
static void figures_that_nothing_reads_are_told(void **state) {
  static const char text[] =
      "{\"name\": \"x\", \"platform\": \"host\", \"clock_herz\": {\"value\": "
      "1, \"source\": \"me\"}}";
  at_arena *a = at_arena_create();
  at_machine m;
  assert_int_equal(
      at_code_take(at_machine_read(
          (at_bytes){(const uint8_t *)text, sizeof text - 1}, a, &m)),
      0);
  at_status st = at_machine_complete(&m);
  assert_non_null(strstr(at_status_message(st), "clock_herz"));
  assert_non_null(
      strstr(at_status_message(st), "hbm_bytes_per_second_per_chip"));
  assert_int_equal(at_code_take(st), AT_FAILED_PRECONDITION);
  at_arena_destroy(a);
}

// The message names the member that is wrong.
static void bad_descriptions_are_refused(void **state) {
  static const struct {
    const char *text, *says;
  } rows[] = {
      {"", "JSON"},
      {"[]", "not a JSON object"},
      {"{}", "\"name\""},
      {"{\"name\":\"x\"}", "platform"},
      {"{\"name\":\"x\",\"platform\":\"abacus\"}", "platform"},
      {"{\"name\":\"x\",\"platform\":\"gpu\",\"aliases\":3}", "aliases"},
      {"{\"name\":\"x\",\"platform\":\"gpu\",\"aliases\":[\"\"]}", "aliases"},
      {"{\"name\":\"x\",\"platform\":\"gpu\",\"a\":1}", "\"a\" has no value"},
      {"{\"name\":\"x\",\"platform\":\"gpu\",\"a\":{\"value\":1}}",
       "\"a\" has no source"},
      {"{\"name\":\"x\",\"platform\":\"gpu\",\"a\":{\"value\":-1,\"source\":"
       "\"s\"}}",
       "\"a\""},
      {"{\"name\":\"x\",\"platform\":\"gpu\",\"a\":{\"value\":null,\"source\":"
       "\"s\"}}",
       "\"a\""}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    at_machine m;
    at_status st = at_machine_read(
        (at_bytes){(const uint8_t *)rows[i].text, strlen(rows[i].text)}, a, &m);
    if (i && !strstr(at_status_message(st), rows[i].says))
      fail_msg("row %zu: %s", i, at_status_message(st));
    assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_machine_of_the_list_is_there),
      cmocka_unit_test(figures_have_sources),
      cmocka_unit_test(missing_coefficients_are_not_numbers),
      cmocka_unit_test(no_key_of_a_data_file_goes_unmissed),
      cmocka_unit_test(figures_that_nothing_reads_are_told),
      cmocka_unit_test(bad_descriptions_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
