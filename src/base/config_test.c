// Every knob of the table with its good and bad examples, an empty value and a
// huge one; unknown variables; the nearest name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
// cmocka needs the first three headers before it.
#include <cmocka.h>

#include "base/config.h"
#include "base/nearest.h"

// Made for the test.
static char g_folder[64];
static char g_said[4096];  // what at_config_check wrote to stderr

// No knob is set.
static void clear_environment(void) {
  for (int i = 0; i < AT_CONFIG_COUNT; i++)
    unsetenv(at_config_info_of((at_config)i)->name);
}

// at_config_check with stderr in g_said; the code, and the message in `why`.
static at_code check(char *why, size_t size) {
  int ends[2], saved = dup(STDERR_FILENO);
  assert_int_equal(pipe(ends), 0);
  dup2(ends[1], STDERR_FILENO);
  at_status st = at_config_check();
  dup2(saved, STDERR_FILENO);
  close(saved), close(ends[1]);
  ssize_t n = read(ends[0], g_said, sizeof g_said - 1);
  g_said[n > 0 ? n : 0] = 0;
  close(ends[0]);
  snprintf(why, size, "%s", at_status_message(st));
  return at_code_take(st);
}

// The value in the environment: taken, or refused with a message that shows it
// and has a hint.
static void try_value(const at_config_info *row, const char *value, bool good) {
  char why[2048];
  setenv(row->name, value, 1);
  at_code code = check(why, sizeof why);
  unsetenv(row->name);
  if (good && code) fail_msg("%s=%.99s is refused: %s", row->name, value, why);
  if (good) return;
  if (code != AT_INVALID_ARGUMENT)
    fail_msg("%s=%.99s: code %d", row->name, value, code);
  char shown[128];
  snprintf(shown, sizeof shown, "%s=%.40s", row->name, value);
  if (!strstr(why, shown) || !strstr(why, "hint: ") || strlen(why) > 900)
    fail_msg("%s does not say what is wrong: %s", shown, why);
}

// Each of `examples`, parted by '|', with $T the folder of the test.
static void try_all(const at_config_info *row, const char *examples,
                    bool good) {
  for (const char *p = examples;; p++) {
    char value[512];
    size_t n = 0;
    for (; *p && *p != '|'; p++) {
      if (p[0] == '$' && p[1] == 'T') {
        n += (size_t)snprintf(value + n, sizeof value - n, "%s", g_folder);
        p++;
      } else {
        value[n++] = *p;
      }
    }
    value[n] = 0;
    try_value(row, value, good);
    if (!*p) return;
  }
}

// Good examples pass, bad ones name the knob and what it takes.
static void every_knob_has_its_law(void **state) {
  static char huge[1 << 17];
  for (int i = 0; i < AT_CONFIG_COUNT; i++) {
    const at_config_info *row = at_config_info_of((at_config)i);
    try_all(row, row->good, true);
    // The chips are known to a room above.
    if (row->kind != AT_CONFIG_TARGET_TEXT) try_all(row, row->bad, false);
    try_value(row, "", true);
    try_value(row, row->fallback, true);
    for (size_t k = 0; k < 2; k++) {
      size_t n = k ? sizeof huge - 1 : 5000;
      memset(huge, k ? '9' : 'x', n);
      huge[n] = 0;
      try_value(row, huge, false);
    }
  }
}

// Also those above. Places are looked at when a knob is checked, not when it is
// set.
static void folders_are_made(void **state) {
  char path[128];
  struct stat st;
  snprintf(path, sizeof path, "%s/one/two/three", g_folder);
  setenv("ATOLL_DUMP", path, 1);
  assert_int_equal(at_code_take(at_config_check()), 0);
  assert_true(stat(path, &st) == 0 && S_ISDIR(st.st_mode));
  unsetenv("ATOLL_DUMP");
  // An override is looked at as it is used, not as it is set.
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_COSTS, "/no/file")), 0);
  assert_int_equal(at_code_take(at_config_check()), AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_COSTS, NULL)), 0);
}

// What the readers give, and their defaults.
static void values_by_kind(void **state) {
  assert_false(at_config_flag(AT_CONFIG_VERIFY));
  setenv("ATOLL_VERIFY", "yes", 1);
  assert_true(at_config_flag(AT_CONFIG_VERIFY));
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_VERIFY, "off")), 0);
  assert_false(at_config_flag(AT_CONFIG_VERIFY));
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_VERIFY, "maybe")),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_config_set(AT_CONFIG_VERIFY, NULL)), 0);
  setenv("ATOLL_VERIFY", "maybe", 1);
  assert_false(at_config_flag(AT_CONFIG_VERIFY));
  setenv("ATOLL_THREADS", "12", 1);
  assert_int_equal(at_config_uint(AT_CONFIG_THREADS), 12);
  setenv("ATOLL_THREADS", "99999999999999999999", 1);
  assert_int_equal(at_config_uint(AT_CONFIG_THREADS), 0);
  assert_int_equal(at_config_word(AT_CONFIG_NUMERICS), AT_WORD_NUMERICS_MIXED);
  setenv("ATOLL_NUMERICS", "Tpu", 1);
  assert_int_equal(at_config_word(AT_CONFIG_NUMERICS), AT_WORD_NUMERICS_TPU);
  assert_false(at_config_has(AT_WORD_CHECK_NAN));
  setenv("ATOLL_CHECK", "interpret, nan", 1);
  assert_true(at_config_has(AT_WORD_CHECK_NAN));
  assert_true(at_config_has(AT_WORD_CHECK_INTERPRET));
  assert_false(at_config_has(AT_WORD_CHECK_RACES));
  setenv("ATOLL_CHECK", "all", 1);
  assert_true(at_config_has(AT_WORD_CHECK_RACES));
  assert_false(at_config_has(AT_WORD_CHECK_INTERPRET));
  clear_environment();
}

// With the name that was meant.
static void unknown_variables_are_said_once(void **state) {
  static const struct {
    const char *name, *near;
  } rows[] = {{"ATOLL_TARGTE", "ATOLL_TARGET"},
              {"ATOLL_THREAD", "ATOLL_THREADS"},
              {"ATOLL_CACHEDIR", "ATOLL_CACHE_DIR"},
              {"atoll_dump", "ATOLL_DUMP"},
              {"TPU_PROCESS_ADRESSES", "TPU_PROCESS_ADDRESSES"},
              {"ATOLL_ZZZZZZZZZZ", "docs/config.md"}};
  char why[512];
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    setenv(rows[i].name, "1", 1);
    assert_int_equal(check(why, sizeof why), 0);
    if (!strstr(g_said, rows[i].name) || !strstr(g_said, rows[i].near))
      fail_msg("%s: %s", rows[i].name, g_said);
    assert_int_equal(check(why, sizeof why), 0);
    assert_string_equal(g_said, "");
    unsetenv(rows[i].name);
  }
  setenv("TPU_PROCESS_BOUNDS", "1,1,1", 1);  // libtpu's, not ours
  assert_int_equal(check(why, sizeof why), 0);
  assert_string_equal(g_said, "");
  unsetenv("TPU_PROCESS_BOUNDS");
}

// Insertions, deletions, changes and swaps.
static void edits_are_counted(void **state) {
  static const struct {
    const char *a, *b;
    uint32_t edits;
  } rows[] = {{"", "", 0},        {"abc", "ABC", 0},   {"abc", "acb", 1},
              {"abc", "abcd", 1}, {"abc", "ab", 1},    {"abc", "xbz", 2},
              {"abc", "", 3},     {"abcd", "badc", 2}, {"abcdef", "uvwxyz", 4}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_str a = at_str_of(rows[i].a), b = at_str_of(rows[i].b);
    assert_int_equal(at_edits(a, b, 3), rows[i].edits);
    assert_int_equal(at_edits(b, a, 3), rows[i].edits);
  }
  static const char *const names[] = {"races", "bounds", "nan"};
  assert_string_equal(at_nearest(AT_STR("rases"), names, 3), "races");
  assert_null(at_nearest(AT_STR("x"), names, 3));
}

// docs/config.md holds the table that the code prints.
static void docs_are_current(void **state) {
  const char *dir = getenv("AT_SOURCE_DIR");
  if (!dir) skip();
  char path[4096];
  snprintf(path, sizeof path, "%s/docs/config.md", dir);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  static char text[1 << 16];
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  at_strbuf b = {0};
  at_config_doc(&b);
  assert_string_equal(text, b.ptr);
  at_strbuf_free(&b);
}

static int make_folder(void **state) {
  char file[96];
  snprintf(g_folder, sizeof g_folder, "/tmp/atoll_config_XXXXXX");
  if (!mkdtemp(g_folder)) return 1;
  snprintf(file, sizeof file, "%s/file", g_folder);
  FILE *f = fopen(file, "w");
  return !f || fclose(f);
}

static int remove_folder(void **state) {
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", g_folder);
  return system(command);
}

int main(void) {
  clear_environment();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_knob_has_its_law),
      cmocka_unit_test(folders_are_made),
      cmocka_unit_test(values_by_kind),
      cmocka_unit_test(unknown_variables_are_said_once),
      cmocka_unit_test(edits_are_counted),
      cmocka_unit_test(docs_are_current),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
