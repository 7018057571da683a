// Latency hiding of whole programs: layers whose weights are gathered as they
// are needed (FSDP), on targets that are only estimated.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include <math.h>

#include "base/json.h"
#include "schedule/overlap.h"
#include "schedule/schedule.h"

enum { kLayers = 6 };

static at_module *fsdp(at_arena *a) {
  at_strbuf b = {0};
  at_strbuf_addz(
      &b,
      "hlo module \"fsdp\" partitions=8 entry=\"main\" {\nfunc \"main\" (%0: "
      "bf16[4096,4096]");
  for (int i = 1; i <= kLayers; i++)
    at_strbuf_addf(&b, ", %%%d: bf16[512,4096]", i);
  at_strbuf_addz(&b, ") -> (bf16[4096,4096]) {\n");
  for (int i = 0; i < kLayers; i++) {
    at_strbuf_addf(
        &b,
        "  %%%d = all_gather %%%d {channel_id=1, use_global_device_ids=true, "
        "replica_groups=[[0,1,2,3,4,5,6,7]], all_gather_dim=0} : "
        "bf16[4096,4096]\n",
        100 + 2 * i, i + 1);
    at_strbuf_addf(
        &b,
        "  %%%d = dot_general %%%d, %%%d {lhs_contracting_dimensions=[1], "
        "rhs_contracting_dimensions=[0]} : bf16[4096,4096]\n",
        101 + 2 * i, i ? 99 + 2 * i : 0, 100 + 2 * i);
  }
  at_strbuf_addf(&b, "  return %%%d\n}\n}\n", 99 + 2 * kLayers);
  at_module *m = NULL;
  at_status st = at_hlo_parse(at_strbuf_str(&b), a, &m);
  if (!at_ok(st)) fail_msg("%s\n%s", at_status_message(st), b.ptr);
  at_strbuf_free(&b);
  return m;
}

static void gathers_hide_behind_products(void **state) {
  static const char *const targets[] = {"v5p:2x2x2", "v6e:8", "H100:8",
                                        "B200:8"};
  for (size_t i = 0; i < AT_LEN(targets); i++) {
    at_arena *a = at_arena_create();
    at_target *t;
    at_overlap o;
    at_lhs_options options = {0};
    at_module *m = fsdp(a);
    assert_int_equal(at_code_take(at_target_parse(at_str_of(targets[i]),
                                                  AT_INTERP_ATOLL, a, &t)),
                     0);
    at_status st = at_overlap_of(m, t, &options, a, &o);
    if (!at_ok(st)) fail_msg("%s", at_status_message(st));
    printf(
        "%s: %.0f us, %.0f exposed -> %.0f us, %.0f exposed; %u of %u pairs "
        "with work between\n",
        targets[i], o.before.seconds * 1e6, o.before.exposed * 1e6,
        o.after.seconds * 1e6, o.after.exposed * 1e6, o.after.pairs,
        o.collectives);
    assert_int_equal(o.collectives, kLayers);
    assert_int_equal(o.before.pairs, 0);
    // Where a product takes as long as a gather, all but the first can hide.
    double product = (o.before.seconds - o.before.exposed) / kLayers;
    double gather = o.before.exposed / kLayers;
    if (product >= gather) {
      assert_true(o.after.pairs >= kLayers - 1);
      assert_true(o.after.exposed <= 0.5 * o.before.exposed);
    } else {  // the network decides: it is never idle but for a product or two
      assert_true(o.after.seconds <= o.before.exposed + 2 * product);
    }
    assert_true(o.after.seconds <= o.before.seconds);
    // A limit on memory is kept where the program's own order keeps it.
    options = (at_lhs_options){.memory_limit = o.before.peak, .reruns = 5};
    at_overlap tight;
    assert_int_equal(at_code_take(at_overlap_of(m, t, &options, a, &tight)), 0);
    assert_true(tight.after.peak <= o.before.peak);
    assert_true(tight.after.seconds <= o.before.seconds);
    at_arena_destroy(a);
  }
}

// The program itself takes the order: a verified program with asynchronous ops,
// planned without two values in one place.
static void programs_take_the_order(void **state) {
  at_arena *a = at_arena_create();
  at_target *t;
  at_overlap o, again;
  at_lhs_options options = {0};
  at_module *m = fsdp(a), *copy;
  assert_int_equal(at_code_take(at_target_parse(AT_STR("v5p:2x2x2"),
                                                AT_INTERP_ATOLL, a, &t)),
                   0);
  assert_int_equal(at_code_take(at_overlap_apply(m, t, &options, a, &o)), 0);
  at_status st = at_verify(m, "schedule");
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
  uint32_t starts = 0, between = 0;
  AT_FOR_NODES(n, m->entry) {
    if (!at_node_bool(n, AT_ATTR_ASYNC)) continue;
    starts++;
    bool product = false;
    for (at_node *k = n->next; k->op != AT_OP_ASYNC_DONE; k = k->next)
      product |= k->op == AT_OP_DOT_GENERAL;
    between += product;
  }
  assert_int_equal(starts, kLayers - 1);
  assert_int_equal(between, kLayers - 1);
  // What the order takes does not depend on how the program says it.
  at_strbuf text = {0};
  assert_int_equal(at_code_take(at_hlo_print(m, &text)), 0);
  assert_int_equal(at_code_take(at_hlo_parse(at_strbuf_str(&text), a, &copy)),
                   0);
  assert_int_equal(at_code_take(at_overlap_of(copy, t, &options, a, &again)),
                   0);
  assert_int_equal(again.collectives, kLayers);
  assert_true(fabs(again.before.seconds - o.after.seconds) < 1e-9);
  assert_true(again.before.pairs == o.after.pairs);
  at_strbuf_free(&text);
  at_plan plan;
  assert_int_equal(at_code_take(at_plan_memory(m, NULL, a, &plan)), 0);
  assert_int_equal(at_code_take(at_plan_verify(m, &plan)), 0);
  at_arena_destroy(a);
}

// The number behind `key` in an event, or `absent`.
static double number(const at_json *event, const char *key, double absent) {
  return at_json_get_num(event, key, absent);
}

// The timeline of the scheduled program: a lane of work and one for gathers,
// each event where at_overlap_of has it; on a lane one after the other.
static void timelines_show_the_order(void **state) {
  at_arena *a = at_arena_create();
  at_target *t;
  at_overlap o;
  at_lhs_options options = {0};
  at_module *m = fsdp(a);
  at_strbuf b = {0};
  const at_json *list;
  assert_int_equal(at_code_take(at_target_parse(AT_STR("v5p:2x2x2"),
                                                AT_INTERP_ATOLL, a, &t)),
                   0);
  assert_int_equal(at_code_take(at_overlap_of(m, t, &options, a, &o)), 0);
  assert_int_equal(at_code_take(at_overlap_trace(m, t, &options, a, &b)), 0);
  at_bytes text = {(const uint8_t *)b.ptr, b.len};
  assert_int_equal(at_code_take(at_json_parse(text, a, &list)), 0);
  assert_int_equal(list->kind, AT_JSON_ARRAY);
  double end[64] = {0}, last = 0;
  uint32_t names = 0, count[64] = {0};
  for (size_t i = 0; i < list->len; i++) {
    const at_json *e = &list->items[i];
    int lane = (int)number(e, "tid", -1);
    assert_in_range(lane, 1, 63);
    if (at_str_is(at_json_get(e, "ph")->string, "M")) {
      names++;
      continue;
    }
    double from = number(e, "ts", -1), to = from + number(e, "dur", -1);
    assert_true(from >= end[lane] - 1e-3 && to > from);
    end[lane] = to;
    count[lane]++;
    last = fmax(last, to);
  }
  assert_int_equal(count[1], kLayers);  // products
  assert_int_equal(count[2 + AT_ALL_GATHER], kLayers);
  assert_true(names > 2 + AT_ALL_GATHER);
  assert_true(fabs(last - o.after.seconds * 1e6) < 1e-2);
  at_strbuf_free(&b);
  at_arena_destroy(a);
}

// ---- Copies between the memories of a device and its host
// Two layers whose weights wait on the host, and a loop that keeps what it
// makes there.
#define BIG "bf16[4096,4096]"
#define PRODUCT \
  "{lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]} : " BIG "\n"
static const char *const kOffload =
    "hlo module \"m\" entry=\"main\" {\n"
    "func \"main\" (%0: " BIG " <memory_kind=\"device\">, %1: " BIG
    " <memory_kind=\"pinned_host\">, %2: " BIG
    " <memory_kind=\"pinned_host\">, %3: bf16[4,4096,4096]) -> "
    "(bf16[4,4096,4096], " BIG
    ") {\n"
    "  %4 = constant {value=i32[] 0} : i32[]\n"
    "  %10 = copy %1 {memory_space=\"device\"} : " BIG
    "\n"
    "  %11 = dot_general %0, %10 " PRODUCT
    "  %12 = copy %2 {memory_space=\"device\"} : " BIG
    "\n"
    "  %13 = copy %12 {memory_space=\"device\"} : " BIG
    "\n"
    "  %14 = dot_general %11, %13 " PRODUCT
    "  %15:3 = while %3, %14, %4 ((%20: bf16[4,4096,4096], %21: " BIG
    ", %22: i32[]) {\n"
    "      %23 = constant {value=i32[] 4} : i32[]\n"
    "      %24 = compare %22, %23 {comparison_direction=LT, "
    "compare_type=SIGNED} : i1[]\n"
    "      return %24\n"
    "    }, (%30: bf16[4,4096,4096], %31: " BIG
    ", %32: i32[]) {\n"
    "      %33 = constant {value=i32[] 1} : i32[]\n"
    "      %34 = copy %31 {memory_space=\"pinned_host\"} : " BIG
    "\n"
    "      %35 = reshape %34 : bf16[1,4096,4096]\n"
    "      %39 = constant {value=i32[] 0} : i32[]\n"
    "      %36 = dynamic_update_slice %30, %35, %32, %39, %39 : "
    "bf16[4,4096,4096]\n"
    "      %37 = dot_general %31, %31 " PRODUCT
    "      %38 = add %32, %33 : i32[]\n"
    "      return %36, %37, %38\n"
    "    }) : bf16[4,4096,4096], " BIG
    ", i32[]\n"
    "  %16 = dynamic_slice %15.0, %4, %4, %4 {slice_sizes=[1,4096,4096]} : "
    "bf16[1,4096,4096]\n"
    "  %17 = reshape %16 : " BIG
    "\n"
    "  %18 = copy %17 {memory_space=\"device\"} : " BIG
    "\n"
    "  %19 = dot_general %18, %15.1 " PRODUCT "  return %15.0, %19\n}\n}\n";

static at_overlap offloaded(const char *target, at_arena *a) {
  at_module *m;
  at_target *t;
  at_overlap o = {0};
  at_lhs_options options = {0};
  at_status st = at_hlo_parse(at_str_of(kOffload), a, &m);
  if (at_ok(st)) st = at_verify(m, "parse");
  if (at_ok(st))
    st = at_target_parse(at_str_of(target), AT_INTERP_ATOLL, a, &t);
  if (at_ok(st)) st = at_overlap_of(m, t, &options, a, &o);
  if (!at_ok(st)) fail_msg("%s: %s", target, at_status_message(st));
  return o;
}

static void copies_from_the_host_hide(void **state) {
  at_arena *a = at_arena_create();
  at_overlap o = offloaded("v6e", a);
  // The second copy of one value moves nothing; that in the loop is one.
  assert_int_equal(o.host_copies, 4);
  double one = 2. * 4096 * 4096 / 32e9;
  // Three copies, and one each turn.
  assert_true(fabs(o.before.exposed / one - 7) < 1e-6);
  assert_int_equal(o.before.pairs, 0);
  assert_true(o.after.pairs >= 2);
  assert_true(o.after.exposed < o.before.exposed);
  assert_true(o.after.seconds < o.before.seconds);
  // A machine that is its own host moves nothing.
  assert_int_equal(offloaded("cpu", a).host_copies, 0);
  at_arena_destroy(a);
}

// ---- Calls beside the rest
static bool is_call(const at_node *n) { return n->op == AT_OP_CUSTOM_CALL; }
static double millisecond(const at_node *n) { return 1e-3; }
static bool update_in_place(void *user, const at_node *n, uint32_t r,
                            uint32_t o) {
  return is_call(n) && n->num_operands == 3 && o == 1;
}

#define DOT                                                             \
  "{lhs_contracting_dimensions=[1], rhs_contracting_dimensions=[0]} : " \
  "f32[512,512]\n"
// An update and a lookup of its table, of which the products know nothing; then
// who reads the lookup, and an update that waits for that.
static const char *const kPipelined =
    "hlo module \"m\" entry=\"main\" {\n"
    "func \"main\" (%0: f32[512,512] <alias=0>, %1: f32[512,512], %2: "
    "i32[512]) -> (f32[512,512], f32[512,512], f32[512,512]) {\n"
    "  %10 = custom_call %2, %0, %1 {call_target_name=\"update\"} : "
    "f32[512,512]\n"
    "  %11 = custom_call %2, %10 {call_target_name=\"lookup\"} : "
    "f32[512,512]\n"
    "  %12 = negate %11 : f32[512,512]\n"
    "  %13 = dot_general %1, %1 " DOT "  %14 = dot_general %13, %1 " DOT
    "  return %10, %12, %14\n}\n}\n";

static at_module *beside(const char *text, double least, at_arena *a,
                         uint32_t *calls) {
  at_module *m;
  at_target *t;
  at_beside b = {is_call, millisecond, least};
  assert_int_equal(at_code_take(at_hlo_parse(at_str_of(text), a, &m)), 0);
  assert_int_equal(
      at_code_take(at_target_parse(AT_STR("v5p"), AT_INTERP_ATOLL, a, &t)), 0);
  assert_int_equal(at_code_take(at_overlap_beside(m, t, &b, a, calls)), 0);
  at_status st = at_verify(m, "beside");
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
  return m;
}

static void calls_run_beside_the_rest(void **state) {
  at_arena *a = at_arena_create();
  uint32_t calls;
  at_module *m = beside(kPipelined, 0, a, &calls), *copy;
  assert_int_equal(calls, 2);
  static const at_op order[] = {AT_OP_CUSTOM_CALL, AT_OP_CUSTOM_CALL,
                                AT_OP_DOT_GENERAL, AT_OP_DOT_GENERAL,
                                AT_OP_ASYNC_DONE,  AT_OP_NEGATE,
                                AT_OP_ASYNC_DONE};
  size_t i = 0;
  AT_FOR_NODES(n, m->entry) {
    if (n->op == AT_OP_PARAMETER) continue;
    assert_true(i < AT_LEN(order));
    assert_int_equal(n->op, order[i++]);
  }
  at_strbuf text = {0};
  assert_int_equal(at_code_take(at_hlo_print(m, &text)), 0);
  assert_int_equal(at_code_take(at_hlo_parse(at_strbuf_str(&text), a, &copy)),
                   0);
  assert_int_equal(at_code_take(at_verify(copy, "text")), 0);
  at_strbuf_free(&text);
  // The table stays where it is, although the update is not done when the
  // lookup begins.
  at_plan plan;
  at_plan_hooks hooks = {.can_alias = update_in_place};
  assert_int_equal(at_code_take(at_plan_memory(m, &hooks, a, &plan)), 0);
  assert_int_equal(at_code_take(at_plan_verify(m, &plan)), 0);
  const at_node *update = m->entry->params[2]->next;
  assert_int_equal(at_plan_slot(&plan, (at_value){(at_node *)update, 0}),
                   at_plan_slot(&plan, (at_value){m->entry->params[0], 0}));
  at_arena_destroy(a);
}

static void calls_stay_where_little_is_gained(void **state) {
  at_arena *a = at_arena_create();
  uint32_t calls;
  at_module *m = beside(kPipelined, 1, a, &calls);
  assert_int_equal(calls, 0);
  AT_FOR_NODES(n, m->entry) assert_false(at_node_bool(n, AT_ATTR_ASYNC));
  at_arena_destroy(a);
}

// Nothing lies between a lookup and who reads it: a step that is not pipelined.
static void steps_that_wait_stay_sequential(void **state) {
  at_arena *a = at_arena_create();
  uint32_t calls;
  at_module *m = beside(
      "hlo module \"m\" entry=\"main\" {\n"
      "func \"main\" (%0: f32[512,512], %2: i32[512]) -> (f32[512,512]) {\n"
      "  %10 = custom_call %2, %0 {call_target_name=\"lookup\"} : "
      "f32[512,512]\n"
      "  %11 = dot_general %10, %10 " DOT
      "  %12 = custom_call %2, %0, %11 {call_target_name=\"update\"} : "
      "f32[512,512]\n"
      "  return %12\n}\n}\n",
      1e-9, a, &calls);
  assert_int_equal(calls, 0);
  AT_FOR_NODES(n, m->entry) assert_false(at_node_bool(n, AT_ATTR_ASYNC));
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gathers_hide_behind_products),
      cmocka_unit_test(programs_take_the_order),
      cmocka_unit_test(timelines_show_the_order),
      cmocka_unit_test(copies_from_the_host_hide),
      cmocka_unit_test(calls_run_beside_the_rest),
      cmocka_unit_test(calls_stay_where_little_is_gained),
      cmocka_unit_test(steps_that_wait_stay_sequential)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
