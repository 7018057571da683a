// Bundles, registers and the map of VMEM of kernels written by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "base/json.h"
#include "tpu/view.h"

static at_arena *g_arena;

// Each test has an arena of its own.
static int begin(void **state) {
  g_arena = at_arena_create();
  return g_arena ? 0 : -1;
}
static int end(void **state) {
  at_arena_destroy(g_arena);
  return 0;
}

#define BLOCK "memref<512x256xf32, #tpu.memory_space<vmem>>"
#define VECTOR "vector<512x256xf32>"  // 128 registers
#define WINDOW(map) \
  "{transform_indices = @" map ", window_bounds = array<i64: 512, 256>}"
#define MAP(name)                                                             \
  "\"func.func\"() ({\n^bb0(%%i: i32):\n%%z = \"arith.constant\"() {value = " \
  "0 : i32} : () -> i32\n\"func.return\"(%%i, %%z) : (i32, i32) -> ()\n}) "   \
  "{function_type = (i32) -> (i32, i32), sym_name = \"" name                  \
  "\"} : () -> ()\n"
#define AT_LINE(n) " loc(\"k.py\":" #n ":1)"

// A kernel over a grid of 4 on an input, an output and a scratch of that size.
static at_mosaic_view view_of(const char *ops) {
  const char *text = at_arena_printf(
      g_arena,
      "\"builtin.module\"() ({\n\"func.func\"() ({\n^bb0(%%i: i32, %%x: " BLOCK
      ", %%o: " BLOCK ", %%s: " BLOCK
      "):\n%%c = \"arith.constant\"() {value = 0 : index} : () -> index\n"
      "%%v = \"vector.load\"(%%x, %%c, %%c) : (" BLOCK
      ", index, index) -> " VECTOR AT_LINE(1) "\n%s\n\"vector.store\"(%%w, "
      "%%o, %%c, %%c) : (" VECTOR ", " BLOCK ", index, index) -> ()" AT_LINE(9)
      "\n\"func.return\"() : () -> ()\n}) {dimension_semantics = "
      "[#tpu.dimension_semantics<arbitrary>], function_type = (i32, " BLOCK
      ", " BLOCK ", " BLOCK ") -> (), iteration_bounds = array<i64: 4>, "
      "scalar_prefetch = 0 : i64, scratch_operands = 1 : i64, sym_name = "
      "\"k\", tpu.core_type = #tpu.core_type<tc>, window_params = [" WINDOW("in") ", " WINDOW(
          "out") "]} : () -> ()\n" MAP("in") MAP("out") "}) : () -> ()\n",
      ops);
  at_mosaic_call call = {.payload = {(const uint8_t *)text, strlen(text)}};
  at_mosaic_kernel *k;
  at_status st = at_mosaic_read(&call, g_arena, &k);
  if (st.err) fail_msg("%s", at_status_message(st));
  const at_machine *m;
  assert_int_equal(at_code_take(at_machine_find(AT_STR("v6e"), &m)), 0);
  at_mosaic_view v;
  assert_int_equal(at_code_take(at_mosaic_view_of(k, 0, m, g_arena, &v)), 0);
  return v;
}

// Fails the test where the view has no such line.
static const at_mosaic_line *line_of(const at_mosaic_view *v, uint32_t line) {
  for (uint32_t i = 0; i < v->num_lines; i++)
    if (v->lines[i].line == line) return &v->lines[i];
  fail_msg("no line %u", line);
  return NULL;
}

#define ADD(out, a, b)                                               \
  "%" out " = \"arith.addf\"(%" a ", %" b ") : (" VECTOR ", " VECTOR \
  ") -> " VECTOR

// 128 registers, four a bundle; two are stored in each.
static void lines_have_bundles(void **state) {
  at_mosaic_view v = view_of(ADD("w", "v", "v") AT_LINE(5));
  assert_int_equal(v.num_lines, 3);
  assert_string_equal(line_of(&v, 5)->file, "k.py");
  assert_true(line_of(&v, 5)->bundles == 128 / 4);
  assert_true(line_of(&v, 9)->bundles == 128 / 2);
  assert_true(v.bundles == line_of(&v, 1)->bundles + 32 + 64);
  // Two lines that stand for one: their operations share bundles.
  at_mosaic_view two =
      view_of(ADD("u", "v", "v") AT_LINE(5) "\n" ADD("w", "u", "v") AT_LINE(5));
  assert_true(line_of(&two, 5)->bundles == 64);
}

// What goes on register by register holds a few; what must wait for an
// operation that needs everything holds all.
static void values_that_wait_hold_registers(void **state) {
  at_mosaic_view v =
      view_of(ADD("u", "v", "v") AT_LINE(5) "\n" ADD("w", "u", "v") AT_LINE(6));
  assert_true(v.registers < 32 && line_of(&v, 6)->spills == 0);
  v = view_of(ADD("u", "v", "v") AT_LINE(
      4) "\n%n = \"arith.constant\"() {value = 3 : i32} : () -> i32\n%r = "
         "\"tpu.dynamic_rotate\"(%u, %n) {dimension = 1 : i32} : (" VECTOR
         ", i32) -> " VECTOR AT_LINE(5) "\n" ADD("w", "u", "r") AT_LINE(6));
  assert_true(v.registers >= 128);
  assert_true(line_of(&v, 5)->spills >= 64);
}

// The compiler's own part, two windows of two buffers each, and the scratch,
// without gaps.
static void memory_has_addresses(void **state) {
  at_mosaic_view v = view_of(ADD("w", "v", "v") AT_LINE(5));
  const int64_t block = 512 * 256 * 4;
  assert_int_equal(v.num_regions, 4);
  assert_string_equal(v.regions[0].what, "compiler");
  int64_t next = 0, windows = 0;
  for (uint32_t i = 0; i < v.num_regions; i++) {
    assert_int_equal(v.regions[i].address, next);
    next += v.regions[i].bytes;
    if (v.regions[i].buffers == 2) {
      assert_int_equal(v.regions[i].bytes, 2 * block);
      windows++;
    }
  }
  assert_int_equal(windows, 2);
  assert_int_equal(next, (72 << 10) + 5 * block);
}

// As many lines and regions.
static void text_and_json_say_the_same(void **state) {
  at_mosaic_view v = view_of(ADD("w", "v", "v") AT_LINE(5));
  at_strbuf text = {0}, json = {0};
  at_mosaic_view_text(&v, &text);
  assert_non_null(strstr(text.ptr, "k.py:5"));
  assert_non_null(strstr(text.ptr, "scratch 0"));
  at_json_writer w = {&json, false};
  at_json_begin_object(&w);
  at_mosaic_view_json(&v, &w);
  at_json_end_object(&w);
  const at_json *j;
  at_bytes bytes = {(const uint8_t *)json.ptr, json.len};
  assert_int_equal(at_code_take(at_json_parse(bytes, g_arena, &j)), 0);
  assert_int_equal(at_json_get(j, "lines")->len, v.num_lines);
  assert_int_equal(at_json_get(j, "vmem")->len, v.num_regions);
  at_strbuf_free(&text);
  at_strbuf_free(&json);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(lines_have_bundles, begin, end),
      cmocka_unit_test_setup_teardown(values_that_wait_hold_registers, begin,
                                      end),
      cmocka_unit_test_setup_teardown(memory_has_addresses, begin, end),
      cmocka_unit_test_setup_teardown(text_and_json_say_the_same, begin, end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
