// Findings as lines of JSON in a file.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "base/finding.h"
#include "base/json.h"

static char path[] = "/tmp/atoll_finding_XXXXXX";

// The file of ATOLL_FINDINGS.
static int make_file(void **state) {
  int fd = mkstemp(path);
  if (fd < 0) return -1;
  close(fd);
  at_status_free(at_config_set(AT_CONFIG_LOG, "off"));
  return at_code_take(at_config_set(AT_CONFIG_FINDINGS, path));
}

static int drop_file(void **state) { return unlink(path); }

// A failure of that stage.
static void note(const char *text, const char *stage) {
  at_status st = AT_FAIL(AT_OUT_OF_RANGE, "%s", text);
  at_finding_note(st, stage);
  at_status_free(st);
}

// The lines that are there now, as one array; empties the file.
static const at_json *take(at_arena *a) {
  at_strbuf b = {0};
  char line[2 * AT_FINDING_TEXT];
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  at_strbuf_addc(&b, '[');
  for (int i = 0; fgets(line, sizeof line, f); i++) {
    if (i) at_strbuf_addc(&b, ',');
    at_strbuf_addz(&b, line);
  }
  fclose(f);
  at_strbuf_addc(&b, ']');
  const at_json *out;
  at_bytes text = {(const uint8_t *)b.ptr, b.len};
  assert_int_equal(at_code_take(at_json_parse(text, a, &out)), 0);
  at_strbuf_free(&b);
  assert_int_equal(truncate(path, 0), 0);
  return out;
}

static void assert_member(const at_json *o, const char *key, const char *want) {
  at_str s = at_json_get_str(o, key, AT_STR("absent"));
  assert_int_equal(s.len, strlen(want));
  assert_memory_equal(s.ptr, want, s.len);
}

// Each once, with its members.
static void failures_and_warnings_are_lines(void **state) {
  at_arena *a = at_arena_create();
  note("kernel k: \"out\" of bounds\nat: k.py:3:1 (op)", "run");
  note("kernel k: \"out\" of bounds\nat: k.py:3:1 (op)", "memory");
  at_log(AT_LOG_WARNING, "few %s", "threads");
  at_log(AT_LOG_INFO, "nothing");
  const at_json *lines = take(a);
  assert_int_equal(lines->len, 2);  // once each; what is only told is none
  assert_member(&lines->items[0], "level", "error");
  assert_member(&lines->items[0], "stage", "run");
  assert_member(&lines->items[0], "code", "OUT_OF_RANGE");
  assert_member(&lines->items[0], "message",
                "kernel k: \"out\" of bounds\nat: k.py:3:1 (op)");
  assert_member(&lines->items[1], "level", "warning");
  assert_member(&lines->items[1], "stage", "log");
  assert_member(&lines->items[1], "message", "few threads");
  at_arena_destroy(a);
}

// CANCELLED says only that another failed.
static void followers_of_a_failure_are_none(void **state) {
  at_arena *a = at_arena_create();
  at_status st = AT_FAIL(AT_CANCELLED, "another core failed");
  at_finding_note(st, "run");
  at_status_free(st);
  at_finding_note(AT_OK, "run");
  assert_int_equal(take(a)->len, 0);
  at_arena_destroy(a);
}

// In number and in length.
static void what_is_written_is_bounded(void **state) {
  at_arena *a = at_arena_create();
  char *text = malloc(3 * AT_FINDING_TEXT + 1), number[32];
  memset(text, 'x', 3 * AT_FINDING_TEXT);
  text[3 * AT_FINDING_TEXT] = 0;
  note(text, "run");
  free(text);
  const at_json *one = take(a);
  assert_int_equal(at_json_get_str(one->items, "message", AT_STR("")).len,
                   AT_FINDING_TEXT);
  for (int i = 0; i < 2 * AT_FINDING_MOST; i++) {
    snprintf(number, sizeof number, "finding %d", i);
    note(number, "run");
  }
  size_t n = take(a)->len;
  assert_true(n > AT_FINDING_MOST / 2 && n <= AT_FINDING_MOST);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(failures_and_warnings_are_lines),
      cmocka_unit_test(followers_of_a_failure_are_none),
      cmocka_unit_test(what_is_written_is_bounded)};
  return cmocka_run_group_tests(tests, make_file, drop_file);
}
