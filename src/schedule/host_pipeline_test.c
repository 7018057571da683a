// Which copies to and from the host a loop's turns share, and what that saves.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include <math.h>

#include "schedule/host_pipeline.h"
#include "schedule/overlap.h"

#define M "bf16[4096,4096]"
#define STACK "bf16[8,4096,4096]"
#define DOT \
  "{lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]} : " M "\n"
#define HOST " {memory_space=\"pinned_host\"} : " M "\n"
#define DEVICE " {memory_space=\"device\"} : " M "\n"

// A loop over %2, a stack of the host's: state %30 (of the device), %31 (a
// stack of the host's), %32 (turns). `body` makes %40 and %41 of them, with
// %33 = 1, %34 = 0.
static at_module *loop(const char *turns, const char *body, at_arena *a) {
  at_strbuf b = {0};
  at_strbuf_addf(&b,
                 "hlo module \"m\" entry=\"main\" {\n"
                 "func \"main\" (%%0: " M
                 " <memory_kind=\"device\">, %%1: " STACK
                 " <memory_kind=\"pinned_host\">, %%2: " STACK
                 " <memory_kind=\"pinned_host\">) -> (" M ", " STACK
                 " <memory_kind=\"pinned_host\">) {\n"
                 "  %%4 = constant {value=i32[] 0} : i32[]\n"
                 "  %%5:3 = while %%0, %%1, %%4 ((%%20: " M ", %%21: " STACK
                 ", %%22: i32[]) {\n"
                 "      %%23 = constant {value=i32[] %s} : i32[]\n"
                 "      %%24 = compare %%22, %%23 {comparison_direction=LT, "
                 "compare_type=SIGNED} : i1[]\n"
                 "      return %%24\n"
                 "    }, (%%30: " M ", %%31: " STACK
                 ", %%32: i32[]) {\n"
                 "      %%33 = constant {value=i32[] 1} : i32[]\n"
                 "      %%34 = constant {value=i32[] 0} : i32[]\n"
                 "%s"
                 "      %%39 = add %%32, %%33 : i32[]\n"
                 "      return %%40, %%41, %%39\n"
                 "    }) : " M ", " STACK
                 ", i32[]\n"
                 "  return %%5.0, %%5.1\n}\n}\n",
                 turns, body);
  at_module *m = NULL;
  at_status st = at_hlo_parse(at_str_of(b.ptr), a, &m);
  if (at_ok(st)) st = at_verify(m, "parse");
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
  at_strbuf_free(&b);
  return m;
}

// "IN", "OUT" in the order of the body: the copies that its turns share.
static const char *shared(const char *turns, const char *body) {
  static char text[64];
  at_arena *a = at_arena_create();
  at_module *m = loop(turns, body, a);
  at_target *t;
  at_host_pipeline p;
  at_code code =
      at_code_take(at_target_parse(at_str_of("v6e"), AT_INTERP_ATOLL, a, &t));
  assert_int_equal(code, 0);
  const at_comp *c = NULL;
  AT_FOR_NODES(n, m->entry) if (n->op == AT_OP_WHILE) c = n->regions[1];
  assert_int_equal(at_code_take(at_host_pipeline_of(c, t, a, &p)), 0);
  *text = 0;
  AT_FOR_NODES(n, c) {
    if (!at_host_pipeline_has(&p, n)) continue;
    bool in = at_cost_host_copy_of(t, n) == AT_HOST_COPY_IN;
    strcat(text, in ? "IN " : "OUT ");
  }
  at_arena_destroy(a);
  return text;
}

#define SLICE(index, stack)                           \
  "      %35 = dynamic_slice " stack ", " index       \
  ", %34, %34 "                                       \
  "{slice_sizes=[1,4096,4096]} : bf16[1,4096,4096]\n" \
  "      %36 = reshape %35 : " M                      \
  "\n"                                                \
  "      %37 = copy %36" DEVICE
#define PUT(value)                                \
  "      %42 = copy " value HOST                  \
  "      %43 = reshape %42 : bf16[1,4096,4096]\n" \
  "      %41 = dynamic_update_slice %31, %43, %32, %34, %34 : " STACK "\n"

static void loads_of_a_steady_stack_are_ahead(void **state) {
  static const char kLoad[] =
      SLICE("%32", "%2") "      %40 = dot_general %30, %37 " DOT
                         "      %41 = copy %31 : " STACK "\n";
  assert_string_equal(shared("8", kLoad), "IN ");
  assert_string_equal(shared("2", kLoad), "IN ");
  assert_string_equal(shared("1", kLoad), "");
  // From the end on: the index is computed of the counter.
  assert_string_equal(
      shared("8",
             "      %38 = constant {value=i32[] 7} : i32[]\n"
             "      %44 = subtract %38, %32 : i32[]\n" SLICE(
                 "%44", "%2") "      %40 = dot_general %30, %37 " DOT
                              "      %41 = copy %31 : " STACK "\n"),
      "IN ");
}

static void loads_that_wait_for_the_turn_are_not(void **state) {
  // The index is of what the last turn computed.
  assert_string_equal(
      shared("8",
             "      %45 = slice %30 {start_indices=[0,0], "
             "limit_indices=[1,1], strides=[1,1]} : bf16[1,1]\n"
             "      %46 = reshape %45 : bf16[]\n"
             "      %44 = convert %46 : i32[]\n" SLICE(
                 "%44", "%2") "      %40 = dot_general %30, %37 " DOT
                              "      %41 = copy %31 : " STACK "\n"),
      "");
  // What the last turn may have stored; then no store is late either.
  assert_string_equal(
      shared("8",
             SLICE("%32",
                   "%31") "      %40 = dot_general %30, %37 " DOT PUT("%40")),
      "");
}

static void stores_for_the_host_are_late(void **state) {
  assert_string_equal(
      shared("8", "      %40 = dot_general %30, %30 " DOT PUT("%40")), "OUT ");
  // A steady load beside it stays one.
  assert_string_equal(
      shared("8",
             SLICE("%32",
                   "%2") "      %40 = dot_general %30, %37 " DOT PUT("%40")),
      "IN OUT ");
  // The same turn reads back what it stored.
  assert_string_equal(
      shared("8", PUT("%30") "      %47 = copy %42" DEVICE
                             "      %40 = dot_general %30, %47 " DOT),
      "");
}

// Eight turns of a load, two products and a store, each way as long as a copy
// takes: the first load and the last store come on top.
static void turns_hide_their_copies(void **state) {
  at_arena *a = at_arena_create();
  at_module *m = loop(
      "8",
      SLICE("%32", "%2") "      %48 = dot_general %30, %37 " DOT
                         "      %40 = dot_general %48, %37 " DOT PUT("%40"),
      a);
  at_target *t;
  at_overlap o;
  at_lhs_options options = {0};
  assert_int_equal(
      at_code_take(at_target_parse(at_str_of("v6e"), AT_INTERP_ATOLL, a, &t)),
      0);
  assert_int_equal(at_code_take(at_overlap_of(m, t, &options, a, &o)), 0);
  double copy = 2. * 4096 * 4096 / 32e9;
  double work = (o.before.seconds - 16 * copy) / 8;
  assert_true(work > 0 && work < copy);
  assert_float_equal(o.before.exposed, 16 * copy, 1e-9);
  assert_float_equal(o.after.seconds, 8 * copy + 2 * copy, 1e-6);
  assert_float_equal(o.after.exposed, 10 * copy - 8 * work, 1e-6);
  // Stores alone: the first turn has none to wait for.
  m = loop("8", "      %40 = dot_general %30, %30 " DOT PUT("%40"), a);
  assert_int_equal(at_code_take(at_overlap_of(m, t, &options, a, &o)), 0);
  work = (o.before.seconds - 8 * copy) / 8;
  assert_float_equal(o.after.seconds, work + 8 * copy, 1e-6);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loads_of_a_steady_stack_are_ahead),
      cmocka_unit_test(loads_that_wait_for_the_turn_are_not),
      cmocka_unit_test(stores_for_the_host_are_late),
      cmocka_unit_test(turns_hide_their_copies)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
