// Layouts of results: where they come from, and what finding them takes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/walk.h"
#include "compile/layouts.h"

// A program whose results were left open; its parameters, too, or as `layout`.
static at_module *read(at_arena *a, const char *text, const char *layout) {
  at_module *m;
  at_status st = at_hlo_parse(at_str_of(text), a, &m);
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
  m->params = at_new(a, at_io_info, m->entry->num_params);
  m->results = at_new(a, at_io_info, m->entry->num_results);
  for (uint32_t i = 0; i < m->entry->num_params; i++)
    m->params[i] = (at_io_info){.alias = -1, .layout = layout};
  for (uint32_t i = 0; i < m->entry->num_results; i++)
    m->results[i] = (at_io_info){.alias = -1, .layout = "auto"};
  return m;
}

static at_value add(at_comp *c, at_value a, at_value b) {
  at_value out;
  assert_true(at_ok(
      at_build_op(c, NULL, AT_OP_ADD, (at_value[]){a, b}, 2, NULL, &out)));
  return out;
}

// Every value is the sum of the two before it, n times, behind a transpose.
static uint64_t visits_of_chain(uint32_t n, const char *layout,
                                const char *want) {
  at_arena *a = at_arena_create();
  at_module *m = read(a,
                      "hlo module \"t\" entry=\"main\" {\n"
                      "func \"main\" (%0: f32[8,16]) -> (f32[16,8]) {\n"
                      "  %1 = constant {value=f32[16,8] splat 1} : f32[16,8]\n"
                      "  %2 = transpose %0 {permutation=[1,0]} : f32[16,8]\n"
                      "  return %2\n"
                      "}\n"
                      "}\n",
                      layout);
  at_comp *c = m->entry;
  at_value x = {c->last, 0}, y = {c->last->prev, 0};
  for (uint32_t i = 0; i < n; i++) {
    at_value z = add(c, x, y);
    y = x;
    x = z;
  }
  assert_true(at_ok(at_comp_return(c, &x, 1)));
  uint64_t before = at_walk_visits();
  assert_true(at_ok(at_layouts_settle(m)));
  uint64_t visits = at_walk_visits() - before;
  assert_string_equal(m->results[0].layout, want);
  at_arena_destroy(a);
  return visits;
}

static void each_value_is_visited_once(void **state) {
  assert_int_equal(visits_of_chain(30, "{1,0}", "{0,1}"), 33);
  assert_int_equal(visits_of_chain(100000, "{1,0}", "{0,1}"), 100003);
}

// What is no order of the dimensions says nothing, whoever wrote it.
static void orders_name_each_dimension_once(void **state) {
  static const char *const asked[][2] = {
      {"[[0,1]]", "{0,1}"},
      {"[[1,1]]", "auto"},
      {"[[-1,0]]", "auto"},
      {"[[4611686018427387904,-4611686018427387904]]", "auto"}};
  for (size_t i = 0; i < AT_LEN(asked); i++) {
    at_arena *a = at_arena_create();
    const char *text = at_arena_printf(
        a,
        "hlo module \"t\" entry=\"main\" {\n"
        "func \"main\" (%%0: f32[8,16]) -> (f32[8,16]) {\n"
        "  %%1 = custom_call %%0 {call_target_name=\"LayoutConstraint\", "
        "result_layouts=%s} : f32[8,16]\n"
        "  return %%1\n}\n}\n",
        asked[i][0]);
    at_module *m = read(a, text, NULL);
    assert_true(at_ok(at_layouts_settle(m)));
    assert_string_equal(m->results[0].layout, asked[i][1]);
    at_arena_destroy(a);
  }
  // An order that a client asks for is one, too.
  assert_int_equal(visits_of_chain(3, "{1,0}", "{0,1}"), 6);
  assert_int_equal(visits_of_chain(3, "{0,1}", "auto"), 6);
  assert_int_equal(visits_of_chain(3, "{0,0}", "{0,1}"), 6);
  assert_int_equal(visits_of_chain(3, "{42,41}", "{0,1}"), 6);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_value_is_visited_once),
      cmocka_unit_test(orders_name_each_dimension_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
