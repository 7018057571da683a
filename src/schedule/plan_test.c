#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule/schedule.h"

// What a small program costs in copies, and that no two live values share
// bytes.
typedef struct want {
  const char *name, *text;
  uint32_t copies;  // that move bytes
  bool in_place;    // dynamic_update_slice and add may overwrite operand 0
} want;

static bool first_operand(void *user, const at_node *n, uint32_t r,
                          uint32_t o) {
  return *(bool *)user && o == 0 && r == 0 &&
         (n->op == AT_OP_DYNAMIC_UPDATE_SLICE || n->op == AT_OP_ADD);
}

static uint32_t copies_left(const at_plan *p, const at_comp *c) {
  uint32_t n = 0;
  AT_FOR_NODES(k, c) {
    if (k->op == AT_OP_COPY)
      n += at_plan_slot(p, k->operands[0]) != at_plan_slot(p, (at_value){k, 0});
    if (k->op == AT_OP_WHILE || k->op == AT_OP_IF || k->op == AT_OP_CASE)
      for (uint32_t r = 0; r < k->num_regions; r++)
        n += copies_left(p, k->regions[r]);
  }
  return n;
}

#define LOOP(body, results)                                                   \
  "hlo module \"t\" entry=\"main\" {\n"                                       \
  "func \"main\" (%0: f32[4], %1: f32[4]) -> (f32[4], f32[4]) {\n"            \
  "  %2 = constant {value=i32[] 0} : i32[]\n"                                 \
  "  %3 = constant {value=i32[] 5} : i32[]\n"                                 \
  "  %4 = constant {value=i32[] 1} : i32[]\n"                                 \
  "  %10:3 = while %2, %0, %1 ((%20: i32[], %21: f32[4], %22: f32[4]) {\n"    \
  "    %23 = compare %20, %3 {comparison_direction=LT, compare_type=SIGNED} " \
  ": i1[]\n"                                                                  \
  "    return %23\n"                                                          \
  "  }, (%30: i32[], %31: f32[4], %32: f32[4]) {\n"                           \
  "    %33 = add %30, %4 : i32[]\n" body                                      \
  "  }) : i32[], f32[4], f32[4]\n"                                            \
  "  return " results "\n}\n}\n"

static const want wants[] = {
    // Inputs into the state (2), counter from its constant (1), and a swap
    // through one
    // temporary (3); results leave in place.
    {"swap", LOOP("    return %33, %32, %31\n", "%10.1, %10.2"), 6, true},
    // An invariant state is never copied inside.
    {"invariant", LOOP("    return %33, %31, %32\n", "%10.1, %10.2"), 3, true},
    // In place: only the counter and the inputs are copied in.
    {"update",
     LOOP("    %34 = add %31, %32 : f32[4]\n    return %33, %34, %32\n",
          "%10.1, %10.2"),
     3, true},
    // Without in-place code the sum and the counter go through memory of their
    // own.
    {"no in-place",
     LOOP("    %34 = add %31, %32 : f32[4]\n    return %33, %34, %32\n",
          "%10.1, %10.2"),
     5, false},
    // The old value is still read after the new one is made: one copy more.
    {"old value lives",
     LOOP("    %34 = add %31, %31 : f32[4]\n    %35 = add %32, %31 : f32[4]\n"
          "    return %33, %34, %35\n",
          "%10.1, %10.2"),
     4, true},
    {"one result twice",
     "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%0: f32[4]) -> "
     "(f32[4], f32[4]) {\n"
     "  %1 = negate %0 : f32[4]\n  return %1, %1\n}\n}\n",
     1, false},
    {"input returned",
     "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%0: f32[4]) -> "
     "(f32[4]) {\n  return %0\n}\n}\n",
     1, false},
    {"input returned beside work",
     "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%0: f32[4]) -> "
     "(f32[4], f32[4], f32[4]) {\n"
     "  %1 = negate %0 : f32[4]\n  return %0, %1, %0\n}\n}\n",
     0, false},
    {"donated input returned twice",
     "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%0: f32[4] <alias=1>) "
     "-> (f32[4], f32[4], f32[4]) {\n"
     "  %1 = negate %0 : f32[4]\n  return %0, %0, %1\n}\n}\n",
     1, false},
    {"kept input returned where a donated one should live",
     "hlo module \"t\" entry=\"main\" {\n"
     "func \"main\" (%0: f32[4], %1: f32[4] <alias=0>) -> (f32[4], f32[4]) {\n"
     "  %2 = add %0, %1 : f32[4]\n  return %0, %2\n}\n}\n",
     1, false},
    {"branches",
     "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%0: i1[], %1: f32[4]) "
     "-> (f32[4]) {\n"
     "  %2 = if %0 (() {\n    %3 = negate %1 : f32[4]\n    return %3\n  }, () "
     "{\n    return %1\n  }) : f32[4]\n"
     "  return %2\n}\n}\n",
     1, false},
};

static void plan_one(const want *w) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_status st = at_hlo_parse(at_str_of(w->text), a, &m);
  if (st.err) fail_msg("%s: %s", w->name, at_status_message(st));
  bool in_place = w->in_place;
  at_plan_hooks hooks = {first_operand, &in_place};
  at_plan plan;
  assert_int_equal(at_code_take(at_schedule_order(m)), 0);
  assert_int_equal(at_code_take(at_plan_memory(m, &hooks, a, &plan)), 0);
  st = at_plan_verify(m, &plan);
  if (st.err) fail_msg("%s: %s", w->name, at_status_message(st));
  if (copies_left(&plan, m->entry) != w->copies)
    fail_msg("%s: %u copies, %u expected", w->name,
             copies_left(&plan, m->entry), w->copies);
  at_arena_destroy(a);
}

static void test_copies(void **state) {
  for (size_t i = 0; i < AT_LEN(wants); i++) plan_one(&wants[i]);
}

// A donated input and its output are one slot; the update is in place.
static void test_donation(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  const char *text =
      "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%0: f32[4] <alias=0>, "
      "%1: f32[4]) -> (f32[4]) {\n"
      "  %2 = add %0, %1 : f32[4]\n  return %2\n}\n}\n";
  at_status st = at_hlo_parse(at_str_of(text), a, &m);
  if (st.err) fail_msg("%s", at_status_message(st));
  bool in_place = true;
  at_plan_hooks hooks = {first_operand, &in_place};
  at_plan plan;
  assert_int_equal(at_code_take(at_plan_memory(m, &hooks, a, &plan)), 0);
  uint32_t in = at_plan_slot(&plan, (at_value){m->entry->params[0], 0});
  assert_int_equal(in, at_plan_slot(&plan, m->entry->results[0]));
  assert_int_equal(plan.slots[in].kind, AT_SLOT_OUTPUT);
  assert_int_equal(copies_left(&plan, m->entry), 0);
  assert_int_equal(plan.temp_bytes, 0);
  at_arena_destroy(a);
}

// Each array fits an int64, all of them do not.
static void test_huge(void **state) {
  static const char text[] =
      "hlo module \"t\" entry=\"main\" {\n"
      "func \"main\" (%0: f32[1152921504606846976]) -> "
      "(f32[1152921504606846976]) {\n"
      "%1 = sine %0 : f32[1152921504606846976]\n"
      "%2 = cosine %0 : f32[1152921504606846976]\n"
      "%3 = add %1, %2 : f32[1152921504606846976]\nreturn %3\n}\n}\n";
  at_arena *a = at_arena_create();
  at_module *m;
  assert_int_equal(at_code_take(at_hlo_parse(at_str_of(text), a, &m)), 0);
  assert_int_equal(at_code_take(at_schedule_order(m)), AT_RESOURCE_EXHAUSTED);
  at_arena_destroy(a);
}

// A chain reuses two blocks however long it is.
static void test_reuse(void **state) {
  at_arena *a = at_arena_create();
  at_strbuf b = {0};
  at_strbuf_addz(&b,
                 "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%0: "
                 "f32[1024]) -> (f32[1024]) {\n");
  for (int i = 1; i <= 50; i++)
    at_strbuf_addf(&b, "  %%%d = negate %%%d : f32[1024]\n", i, i - 1);
  at_strbuf_addz(&b, "  return %50\n}\n}\n");
  at_module *m;
  assert_int_equal(at_code_take(at_hlo_parse(at_strbuf_str(&b), a, &m)), 0);
  at_plan plan;
  assert_int_equal(at_code_take(at_plan_memory(m, NULL, a, &plan)), 0);
  assert_int_equal(at_code_take(at_plan_verify(m, &plan)), 0);
  assert_int_equal(plan.temp_bytes, 2 * 4096);
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// ---- Plans that break a law
// Each change of a right plan's slots that makes it wrong, and what is said.
typedef struct broken {
  const char *name;
  void (*change)(const at_module *m, const at_plan *p, at_xslot *slots);
  const char *says;
} broken;

static at_xslot *slot_at(const at_plan *p, at_xslot *slots, const at_comp *c,
                         uint32_t id) {
  AT_FOR_NODES(n, c)
  if (n->id == id) return &slots[at_plan_slot(p, (at_value){n, 0})];
  fail_msg("no node %%%u", id);
  return NULL;
}
#define SLOT(id) slot_at(p, slots, m->entry, id)

static void share(const at_module *m, const at_plan *p, at_xslot *slots) {
  SLOT(3)->offset = SLOT(2)->offset;  // %2 is read when %3 is there
}
static void touch(const at_module *m, const at_plan *p, at_xslot *slots) {
  at_xslot *low = SLOT(2), *high = SLOT(3);
  if (low->offset > high->offset) low = SLOT(3), high = SLOT(2);
  low->bytes = high->offset - low->offset + 1;  // by one byte
}
static void leave(const at_module *m, const at_plan *p, at_xslot *slots) {
  at_xslot *high = SLOT(2)->offset > SLOT(3)->offset ? SLOT(2) : SLOT(3);
  high->bytes = p->temp_bytes - high->offset + 1;
}
static void skew(const at_module *m, const at_plan *p, at_xslot *slots) {
  SLOT(2)->offset += 32;
}
static void shrink(const at_module *m, const at_plan *p, at_xslot *slots) {
  SLOT(3)->bytes--;
}
static void swap_arguments(const at_module *m, const at_plan *p,
                           at_xslot *slots) {
  SLOT(1)->index = 0;
}
static void swap_results(const at_module *m, const at_plan *p,
                         at_xslot *slots) {
  at_xslot *out = &slots[at_plan_slot(p, m->entry->results[0])];
  out->index = 1;
}
static void overwrite(const at_module *m, const at_plan *p, at_xslot *slots) {
  *SLOT(3) = *SLOT(1);
}

static void test_broken_plans(void **state) {
  static const broken rows[] = {
      {"two values in one place", share, "%3 and %2 live at once"},
      {"one byte in common", touch, "live at once"},
      {"behind the temporaries", leave, "a temporary at"},
      {"not aligned", skew, "a temporary at"},
      {"too small", shrink, "%3 does not fit into its slot"},
      {"the wrong argument", swap_arguments, "argument 1 is not where"},
      {"the wrong result", swap_results, "result 0 is not where"},
      {"over an argument", overwrite, "%3 is written over an argument"},
  };
  static const char text[] =
      "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%0: f32[32], %1: "
      "f32[32]) -> (f32[32], f32[32]) {\n"
      "  %2 = add %0, %1 : f32[32]\n  %3 = negate %2 : f32[32]\n"
      "  %4 = multiply %2, %3 : f32[32]\n  %5 = subtract %3, %4 : f32[32]\n"
      "  return %4, %5\n}\n}\n";
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    at_module *m;
    at_plan plan;
    assert_int_equal(at_code_take(at_hlo_parse(at_str_of(text), a, &m)), 0);
    assert_int_equal(at_code_take(at_plan_memory(m, NULL, a, &plan)), 0);
    at_xslot *slots =
        at_arena_copy(a, plan.slots, plan.num_slots * sizeof *slots, 8);
    rows[i].change(m, &plan, slots);
    plan.slots = slots;
    at_status st = at_plan_verify(m, &plan);
    if (at_status_code(st) != AT_INTERNAL ||
        !strstr(at_status_message(st), rows[i].says))
      fail_msg("%s: \"%s\"", rows[i].name, at_status_message(st));
    at_status_free(st);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_copies), cmocka_unit_test(test_donation),
      cmocka_unit_test(test_huge), cmocka_unit_test(test_reuse),
      cmocka_unit_test(test_broken_plans)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
