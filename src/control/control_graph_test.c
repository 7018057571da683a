// Passes over traced programs, and their text.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "control/graph.h"

enum { kDevices = 4, kSteps = 64, kMade = 64 };
static const uint32_t kHere[] = {0, 1, 2, 3}, kThere[] = {4, 5, 6, 7};
static const at_graph_program kF = {1, "f", "f32[2]", false, kDevices, kHere},
                              kG = {2, "g", "f32[2]", false, kDevices, kThere},
                              kPrint = {3,    "prints", "f32[2]",
                                        true, kDevices, kHere};

typedef struct built {
  at_graph g;
  at_graph_step steps[kSteps];
  at_graph_made made[kMade];
  uint64_t results[4];
} built;

// A graph of that many inputs, without steps.
static built *make(uint32_t inputs) {
  built *b = calloc(1, sizeof *b);
  b->g = (at_graph){.num_arrays = inputs,
                    .num_inputs = inputs,
                    .steps = b->steps,
                    .made = b->made,
                    .results = b->results};
  return b;
}

// Appends a step with a copy of the body.
static void add(built *b, uint32_t kind, const void *body, size_t bytes,
                const at_graph_program *p) {
  uint8_t *copy = malloc(bytes);
  memcpy(copy, body, bytes);
  b->steps[b->g.num_steps++] = (at_graph_step){
      .kind = kind, .bytes = (uint32_t)bytes, .body = copy, .program = p};
}

static uint64_t input(uint32_t k) { return AT_MSG_INPUT | k; }
static uint64_t new_made(built *b) { return AT_MSG_MADE | b->g.num_made++; }

// One argument, one result, whose name is returned.
static uint64_t launch(built *b, const at_graph_program *p, uint64_t x,
                       uint32_t flags) {
  struct {
    at_msg_launch m;
    at_msg_arg arg;
  } s = {{.program = p->name,
          .outputs = new_made(b),
          .launch_id = (int64_t)b->g.num_steps,
          .num_args = 1,
          .num_outputs = 1},
         {x, 0, flags}};
  add(b, AT_MSG_LAUNCH, &s, sizeof s, p);
  return s.m.outputs;
}

// Of one shard to another chip; the new array's name.
static uint64_t copy(built *b, uint64_t x, uint32_t shard, uint32_t from,
                     uint32_t to) {
  struct {
    at_msg_copy m;
    int64_t dims[1];
  } s = {{.from = {x, shard, from},
          .array = new_made(b),
          .chip = to,
          .dtype = 1,
          .rank = 1},
         {2}};
  add(b, AT_MSG_COPY, &s, sizeof s, NULL);
  return s.m.array;
}

// Of shards by their arrays' names, one for each device.
static uint64_t group(built *b, const uint64_t *x, const uint32_t *shards,
                      const uint32_t *chips) {
  struct {
    at_msg_group m;
    at_msg_shard s[kDevices];
  } s = {{.array = new_made(b), .count = kDevices}, {{0}}};
  for (uint32_t i = 0; i < kDevices; i++)
    s.s[i] = (at_msg_shard){x[i], shards ? shards[i] : 0, chips[i]};
  add(b, AT_MSG_GROUP, &s, sizeof s, NULL);
  return s.m.array;
}

// As JAX moves an array to other devices: shard by shard; `each`: what the
// shards are called alone, and of the new array then.
static uint64_t move(built *b, uint64_t x, uint64_t *each, const uint32_t *from,
                     const uint32_t *to) {
  for (uint32_t i = 0; i < kDevices; i++)
    each[i] = each[i] ? copy(b, each[i], 0, from[i], to[i])
                      : copy(b, x, i, from[i], to[i]);
  return group(b, each, NULL, to);
}

// y 0: there is one result.
static void results(built *b, uint64_t x, uint64_t y) {
  const uint64_t all[] = {x, y};
  for (uint32_t i = 0; i < 2 && all[i]; i++) {
    b->results[b->g.num_results++] = all[i];
    if (all[i] & AT_MSG_MADE) b->made[(uint32_t)all[i]].kept = true;
  }
}

// Checks the message, too.
static void expect(built *b, const char *text) {
  at_strbuf out = {0}, body = {0};
  at_graph_print(&b->g, &out);
  assert_string_equal(at_strbuf_str(&out).ptr, text);
  assert_int_equal(at_code_take(at_graph_write(&b->g, 9, &body)), 0);
  assert_int_equal(
      at_code_take(at_message_check(
          AT_MSG_GRAPH, (at_bytes){(const uint8_t *)body.ptr, body.len})),
      0);
  at_strbuf_free(&out);
  at_strbuf_free(&body);
}

// The graph and all that it points to.
static void drop(built *b) {
  for (uint32_t i = 0; i < b->g.num_steps; i++) free(b->steps[i].body);
  free(b);
}

static void optimize(built *b) {
  assert_int_equal(at_code_take(at_graph_optimize(&b->g, true)), 0);
}

// Eight copies and groups between two computations are one edge of the text.
static void test_a_chain_is_four_nodes(void **state) {
  built *b = make(1);
  uint64_t each[kDevices] = {0}, x = launch(b, &kF, input(0), 0);
  results(b, launch(b, &kG, move(b, x, each, kHere, kThere), 0), 0);
  optimize(b);
  expect(b,
         "program of 4 nodes {\n"
         "  %0 = argument 0\n"
         "  %1 = compute f(%0) on d0 : f32[2]\n"
         "  %2 = compute g(%1 -one-to-one-> d1) on d1 : f32[2]\n"
         "  drop %1\n"
         "  return %2\n"
         "}\n"
         "d0: 4 devices\n"
         "d1: 4 devices\n"
         "pass: 6 arrays dropped after their last use\n");
  drop(b);
}

// A chain of two dead steps goes; a step with effects stays.
static void test_what_nobody_uses_goes(void **state) {
  built *b = make(1);
  uint64_t x = launch(b, &kF, input(0), 0), y = launch(b, &kF, x, 0);
  launch(b, &kF, y, 0);      // and so does y
  launch(b, &kPrint, x, 0);  // it may have been seen
  results(b, x, 0);
  optimize(b);
  expect(b,
         "program of 4 nodes {\n"
         "  %0 = argument 0\n"
         "  %1 = compute f(%0) on d0 : f32[2]\n"
         "  %2 = compute prints(%1) on d0 : f32[2]\n"
         "  drop %2\n"
         "  return %1\n"
         "}\n"
         "d0: 4 devices\n"
         "pass: 2 without a use removed\n"
         "pass: 1 arrays dropped after their last use\n");
  drop(b);
}

// A dead step that would have taken memory does not keep its maker alive; an
// array that is given away is dropped by nobody.
static void test_what_takes_memory_takes_it_no_more(void **state) {
  built *b = make(1);
  uint64_t x = launch(b, &kF, input(0), 0);
  launch(b, &kF, x, AT_MSG_DONATED | AT_MSG_GIVEN);
  results(b, launch(b, &kPrint, input(0), 0), 0);
  optimize(b);
  assert_true(b->steps[0].removed && b->steps[1].removed);
  assert_int_equal(b->g.counts[AT_GRAPH_DROPS], 0);
  drop(b);
  b = make(1);
  x = launch(b, &kF, input(0), 0);
  results(b, launch(b, &kF, x, AT_MSG_DONATED | AT_MSG_GIVEN), 0);
  optimize(b);  // nobody drops x
  assert_true(b->made[0].taken);
  assert_int_equal(b->g.counts[AT_GRAPH_DROPS], 0);
  drop(b);
}

// Only what has no effects, whose memory nobody takes, and of two results both
// stay.
static void test_the_same_is_done_once(void **state) {
  built *b = make(2);
  uint64_t x = launch(b, &kF, input(0), 0), y = launch(b, &kF, input(0), 0);
  launch(b, &kPrint, input(0), 0);
  launch(b, &kPrint, input(0), 0);
  results(b, launch(b, &kF, x, 0), launch(b, &kF, y, 0));
  optimize(b);
  // Both results stay: one may be donated.
  expect(b,
         "program of 7 nodes {\n"
         "  %0 = argument 0\n"
         "  %1 = compute f(%0) on d0 : f32[2]\n"
         "  %2 = compute prints(%0) on d0 : f32[2]\n"
         "  drop %2\n"
         "  %3 = compute prints(%0) on d0 : f32[2]\n"
         "  drop %3\n"
         "  %4 = compute f(%1) on d0 : f32[2]\n"
         "  %5 = compute f(%1) on d0 : f32[2]\n"
         "  drop %1\n"
         "  return %4, %5\n"
         "}\n"
         "d0: 4 devices\n"
         "pass: 1 done once instead of twice\n"
         "pass: 3 arrays dropped after their last use\n");
  drop(b);
  b = make(1);  // the second is the result: now the first is
  x = launch(b, &kF, input(0), 0);
  y = launch(b, &kF, input(0), 0);
  uint64_t z = launch(b, &kF, x, 0);
  results(b, y, z);
  optimize(b);
  assert_int_equal(b->results[0], x);
  assert_true(b->made[0].kept && !b->made[1].kept && b->steps[1].removed);
  drop(b);
  b = make(1);  // its memory is taken
  x = launch(b, &kF, input(0), 0);
  y = launch(b, &kF, input(0), 0);
  z = launch(b, &kF, x, AT_MSG_DONATED | AT_MSG_GIVEN);
  results(b, y, z);
  optimize(b);
  assert_false(b->steps[1].removed);
  drop(b);
}

// An array that returns to the device's memory is the array itself.
static void test_there_and_back_is_no_copy(void **state) {
  built *b = make(1);
  uint64_t each[kDevices] = {0}, x = launch(b, &kF, input(0), 0);
  move(b, x, each, kHere, kThere);
  results(b, launch(b, &kF, move(b, 0, each, kThere, kHere), 0), 0);
  optimize(b);
  expect(b,
         "program of 4 nodes {\n"
         "  %0 = argument 0\n"
         "  %1 = compute f(%0) on d0 : f32[2]\n"
         "  %2 = compute f(%1) on d0 : f32[2]\n"
         "  drop %1\n"
         "  return %2\n"
         "}\n"
         "d0: 4 devices\n"
         "pass: 5 copies removed or shortened\n"
         "pass: 5 without a use removed\n"
         "pass: 1 arrays dropped after their last use\n");
  drop(b);
}

// Copies are shortened only where nothing else needs the one in between.
static void test_a_copy_of_a_copy_is_one(void **state) {
  static const uint32_t kElse[] = {8, 9, 10, 11};
  built *b = make(1);
  uint64_t each[kDevices] = {0};
  move(b, input(0), each, kHere, kThere);
  results(b, move(b, 0, each, kThere, kElse), 0);
  optimize(b);
  expect(b,
         "program of 2 nodes {\n"
         "  %0 = argument 0\n"
         "  return %0 -one-to-one-> d0\n"
         "}\n"
         "d0: 4 devices\n"
         "pass: 4 copies removed or shortened\n"
         "pass: 5 without a use removed\n"
         "pass: 4 arrays dropped after their last use\n");
  drop(b);
  b = make(1);  // the first one is needed: no second way from afar
  memset(each, 0, sizeof each);
  uint64_t y = launch(b, &kG, move(b, input(0), each, kHere, kThere), 0);
  results(b, y, move(b, 0, each, kThere, kElse));
  optimize(b);
  expect(b,
         "program of 3 nodes {\n"
         "  %0 = argument 0\n"
         "  %1 = compute g(%0 -one-to-one-> d0) on d0 : f32[2]\n"
         "  return %1, %0 -one-to-one-> d0 -one-to-one-> d1\n"
         "}\n"
         "d0: 4 devices\n"
         "d1: 4 devices\n"
         "pass: 9 arrays dropped after their last use\n");
  drop(b);
}

// The origin has been donated before the second copy, so that reads the first
// one.
static void test_memory_that_was_taken_is_not_read(void **state) {
  static const uint32_t kElse[] = {8, 9, 10, 11};
  built *b = make(1);
  uint64_t each[kDevices] = {0};
  uint64_t x = launch(b, &kF, input(0), 0);
  move(b, x, each, kHere, kThere);
  uint64_t y = launch(b, &kF, x, AT_MSG_DONATED | AT_MSG_GIVEN);
  results(b, y, move(b, 0, each, kThere, kElse));
  optimize(b);
  assert_int_equal(b->g.counts[AT_GRAPH_COPIES], 0);
  assert_int_equal(b->g.counts[AT_GRAPH_DEAD], 1);  // the group in between
  drop(b);
}

// In another order they are another array.
static void test_all_shards_in_order_are_the_array(void **state) {
  static const uint32_t kOrder[] = {0, 1, 2, 3}, kOther[] = {1, 0, 2, 3};
  for (int k = 0; k < 2; k++) {
    built *b = make(1);
    uint64_t x = launch(b, &kF, input(0), 0), all[] = {x, x, x, x};
    uint64_t y = group(b, all, k ? kOther : kOrder, kHere);
    results(b, launch(b, &kF, y, 0), 0);
    optimize(b);
    assert_int_equal(b->g.counts[AT_GRAPH_COPIES], !k);
    drop(b);
  }
}

// A function takes values, so what it takes is made, and what it makes is an
// input.
static void test_functions_of_the_client(void **state) {
  _Alignas(8) uint8_t read[sizeof(at_graph_host) + 8] = {0};
  at_graph_host *h = (void *)read;
  *h = (at_graph_host){.num_results = 1, .first_input = 1, .num_inputs = 1};
  memcpy(h->text, "count", 6);
  static const uint32_t kHosts[] = {AT_GRAPH_LATE};
  built *b = make(1);
  b->g.num_inputs = 2;
  b->g.hosts = kHosts;
  // What is taken stays, though it is done twice.
  uint64_t x = launch(b, &kF, input(0), 0), y = launch(b, &kF, input(0), 0);
  add(b, AT_GRAPH_HOST, read, sizeof read, NULL);
  results(b, y, launch(b, &kF, input(1), 0));
  b->g.num_taken = 1;
  launch(b, &kF, x, 0);
  optimize(b);
  expect(b,
         "program of 5 nodes {\n"
         "  %0 = argument 0\n"
         "  %1 = compute f(%0) on d0 : f32[2]\n"
         "  %2 = host count(%1)\n"
         "  %3 = compute f(%2) on d0 : f32[2]\n"
         "  return %3\n"
         "}\n"
         "d0: 4 devices\n"
         "pass: 1 done once instead of twice\n"
         "pass: 1 without a use removed\n");
  drop(b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_chain_is_four_nodes),
      cmocka_unit_test(test_what_nobody_uses_goes),
      cmocka_unit_test(test_what_takes_memory_takes_it_no_more),
      cmocka_unit_test(test_the_same_is_done_once),
      cmocka_unit_test(test_there_and_back_is_no_copy),
      cmocka_unit_test(test_a_copy_of_a_copy_is_one),
      cmocka_unit_test(test_memory_that_was_taken_is_not_read),
      cmocka_unit_test(test_all_shards_in_order_are_the_array),
      cmocka_unit_test(test_functions_of_the_client),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
