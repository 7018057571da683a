// Flags by their real names, values of every kind, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>
#include <stdio.h>

#include "spinput/flags.h"

// One flag into flags that are all off.
static at_status set(at_spinput_flags *f, const char *name, const char *value) {
  *f = (at_spinput_flags){0};
  return at_spinput_flag_set(f, at_str_of(name), at_str_of(value));
}

// All flags of the table in one line, beside one that is not ours.
static void every_flag_is_read(void **state) {
  at_spinput_flags f = {0};
  const char *args =
      "--xla_sparse_core_enable_id_bound_check=true --xla_sc_detect_nan "
      "--xla_sc_assert_level=bounds  --xla_tpu_some_other_flag=7 "
      "--xla_tpu_buffer_contents_sanitizer_config='cores_to_sanitize: [TC, "
      "SC_SCS, SC_TILE], sanitizer_mode: LOCAL_ONLY' "
      "--xla_tpu_verify_launch_id_across_cores=1\n"
      "--xla_sparse_core_dump_training_mini_batch_path=\"/tmp/a b\" "
      "--xla_sparse_core_max_ids_file=limits.json "
      "--xla_sparse_core_estimate_max_ids=TRUE "
      "--xla_sc_num_serialized_tables_to_optimize_hbm=3 "
      "--tf_xla_disable_full_embedding_pipelining=true";
  assert_int_equal(at_code_take(at_spinput_flags_read(&f, at_str_of(args))), 0);
  assert_true(f.id_bound_check && f.detect_nan && f.assert_level &&
              f.verify_launch_id && f.estimate_max_ids && f.disable_pipelining);
  assert_int_equal(f.sanitizer, 7);
  assert_int_equal(f.serialized_tables, 3);
  assert_string_equal(f.minibatch_path, "/tmp/a b");
  assert_string_equal(f.max_ids_file, "limits.json");
}

// For each kind of value what it takes, what it refuses, and what a wrong name
// is told.
static void values_are_checked(void **state) {
  static const struct {
    const char *name, *value, *says;  // says NULL: fine
  } rows[] = {
      {"xla_sc_detect_nan", "no", NULL},
      {"xla_sc_detect_nan", "maybe", "'maybe' is not a valid bool value"},
      {"xla_sc_detect_nan", "", "is not a valid bool"},
      {"xla_sc_assert_level", "none", NULL},
      {"xla_sc_force_aligned_buffers", "false", NULL},
      {"xla_sc_force_aligned_buffers", "2", "not a valid bool value"},
      {"xla_sc_assert_level", "all", "level (none, bounds)"},
      {"xla_sc_num_serialized_tables_to_optimize_hbm", "-1", "valid int"},
      {"xla_sc_num_serialized_tables_to_optimize_hbm", "4294967296",
       "valid int"},
      {"xla_tpu_buffer_contents_sanitizer_config",
       "cores_to_sanitize:[SC_TILE]", NULL},
      {"xla_tpu_buffer_contents_sanitizer_config", "cores_to_sanitize: [XYZ]",
       "sanitizer configuration"},
      {"xla_tpu_buffer_contents_sanitizer_config", "cores_to_sanitize: [TC",
       "sanitizer configuration"},
      {"xla_tpu_buffer_contents_sanitizer_config", "sanitizer_mode: GLOBAL",
       "sanitizer configuration"},
      {"xla_sc_no_such_flag", "1",
       "No such compile option: "
       "'xla_sc_no_such_flag'"},
      {"xla_tpu_verify_launch_id_across_core", "1",
       "did you mean xla_tpu_verify_launch_id_across_cores?"},
      {"xla_tpu_buffer_content_sanitiser_config", "x",
       "did you mean xla_tpu_buffer_contents_sanitizer_config?"},
      {"xla_sc_detect_nans", "1", "did you mean xla_sc_detect_nan?"},
      {"xla_tpu_verify_launch_id", "1", NULL},  // far enough
      {"xla_sparse_core_typo", "1", "'xla_sparse_core_typo'"},
      {"tf_xla_enable_everything", "1", "'tf_xla_enable_everything'"},
      {"xla_dump_to", "/tmp", NULL},  // somebody else's
      {"", "", NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_spinput_flags f;
    at_status st = set(&f, rows[i].name, rows[i].value);
    if (rows[i].says)
      assert_non_null(strstr(at_status_message(st), rows[i].says));
    assert_int_equal(at_code_take(st), rows[i].says ? AT_INVALID_ARGUMENT : 0);
  }
  at_spinput_flags f;
  assert_int_equal(at_code_take(set(&f, "xla_sc_detect_nan", "false")), 0);
  assert_false(f.detect_nan);
  char path[AT_SPINPUT_FLAG_TEXT + 1];
  memset(path, 'a', sizeof path - 1);
  path[sizeof path - 1] = 0;
  assert_int_equal(at_code_take(set(&f, "xla_sparse_core_max_ids_file", path)),
                   AT_INVALID_ARGUMENT);
}

// Flags that say the same are the same bytes, whatever was said before.
static void texts_leave_nothing_behind(void **state) {
  at_spinput_flags once = {0}, twice = {0};
  const char *name = "--xla_sparse_core_max_ids_file=";
  char text[160];
  snprintf(text, sizeof text, "%sb", name);
  assert_int_equal(at_code_take(at_spinput_flags_read(&once, at_str_of(text))),
                   0);
  snprintf(text, sizeof text, "%slonger %sb", name, name);
  assert_int_equal(at_code_take(at_spinput_flags_read(&twice, at_str_of(text))),
                   0);
  assert_memory_equal(&once, &twice, sizeof once);
}

// From the environment; what is no flag, or another's, must not hide the one
// behind it.
static void the_process_has_flags(void **state) {
  at_spinput_flags f;
  setenv("LIBTPU_INIT_ARGS", "--xla_sc_detect_nan=1", 1);
  assert_int_equal(at_code_take(at_spinput_flags_of_process(&f)), 0);
  assert_true(f.detect_nan);
  setenv("LIBTPU_INIT_ARGS", "--xla_sc_detect_nans", 1);
  at_status st = at_spinput_flags_of_process(&f);
  assert_non_null(
      strstr(at_status_message(st), "did you mean xla_sc_detect_nan?"));
  assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
  setenv("LIBTPU_INIT_ARGS", "--xla_sparse_core_max_ids_file='x", 1);
  assert_int_equal(at_code_take(at_spinput_flags_of_process(&f)),
                   AT_INVALID_ARGUMENT);
  // Others of the chip, and what is no flag, beside one that acts.
  static const char *const beside[] = {
      "--xla_sc_disable_megacore_partitioning=true",
      "--xla_tpu_scoped_vmem_limit_kib=98304 --xla_tpu_x=true",
      "--tpu_x",
      "xla_tpu_spmd_rng_bit_generator_unsafe=1",
      "=",
      "--",
      "-",
      "--=1",
      "a = b",
      "--a = 'b c'"};
  for (size_t i = 0; i < AT_LEN(beside); i++) {
    char text[256];
    snprintf(text, sizeof text, " %s\t--xla_sc_detect_nan\n", beside[i]);
    setenv("LIBTPU_INIT_ARGS", text, 1);
    assert_int_equal(at_code_take(at_spinput_flags_of_process(&f)), 0);
    assert_true(f.detect_nan);
  }
  unsetenv("LIBTPU_INIT_ARGS");
  assert_int_equal(at_code_take(at_spinput_flags_of_process(&f)), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_flag_is_read),
      cmocka_unit_test(values_are_checked),
      cmocka_unit_test(texts_leave_nothing_behind),
      cmocka_unit_test(the_process_has_flags),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
