#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "nest/nest.h"

// Fails with the status's message.
static void ok(at_status st) {
  if (st.err) fail_msg("%s", at_status_message(st));
}

// The verifier says INTERNAL, and why.
static void refused(at_status st, const char *why) {
  assert_non_null(st.err);
  assert_int_equal(at_status_code(st), AT_INTERNAL);
  assert_non_null(strstr(at_status_message(st), why));
  at_status_free(st);
}

// A statement at the end of b.
static at_nest_stmt *add(at_nest *n, at_nest_block *b, at_nest_kind kind,
                         uint32_t refs, uint32_t blocks) {
  at_nest_stmt *s;
  ok(at_nest_add(n->arena, b, kind, "s", refs, blocks, &s));
  return s;
}

// A buffer's number.
static uint32_t buffer(at_nest *n, at_nest_memory m, uint64_t bytes) {
  uint32_t b;
  ok(at_nest_add_buffer(n, m, bytes, &b));
  return b;
}

// for (; more(state); state = step(state, big)) ; and a pred that is local
typedef struct loop {
  at_nest *n;
  uint32_t state, big, pred;
  at_nest_stmt *turn, *test, *step;
} loop;

// A loop with a state of 8 bytes, a large operand and a local predicate.
static loop make_loop(at_arena *a) {
  static const int kernel;
  loop l;
  ok(at_nest_create(a, "loop", &l.n));
  l.state = buffer(l.n, AT_NEST_PARAM, 8);
  l.big = buffer(l.n, AT_NEST_PARAM, 1 << 20);
  l.pred = buffer(l.n, AT_NEST_LOCAL, 1);
  l.n->buffers.ptr[l.state].live_out = true;
  l.turn = add(l.n, &l.n->root, AT_NEST_WHILE, 1, 2);
  l.turn->refs[0] = (at_nest_ref){l.pred, AT_NEST_READ, 0, 1};
  l.test = add(l.n, &l.turn->blocks[0], AT_NEST_CALL, 2, 0);
  l.test->refs[0] = (at_nest_ref){l.state, AT_NEST_READ, 4, 4};
  l.test->refs[1] = (at_nest_ref){l.pred, AT_NEST_WRITE, 0, 1};
  l.step = add(l.n, &l.turn->blocks[1], AT_NEST_CALL, 3, 0);
  l.step->refs[0] = (at_nest_ref){l.big, AT_NEST_READ, 64, 128};
  l.step->refs[1] = (at_nest_ref){l.state, AT_NEST_READ, 0, 8};
  l.step->refs[2] = (at_nest_ref){l.state, AT_NEST_WRITE, 0, 8};
  l.test->kernel = l.step->kernel = &kernel;
  l.test->tasks = 1;
  l.step->tasks = 3;
  return l;
}

// The nest prints as `want`.
static void check_text(const at_nest *n, const char *want) {
  at_strbuf b = {0};
  at_nest_print(n, &b);
  assert_string_equal(b.ptr, want);
  at_strbuf_free(&b);
}

// The state becomes local and is copied in and out; the large operand stays.
static void test_localise(void **state) {
  at_arena *a = at_arena_create();
  loop l = make_loop(a);
  ok(at_nest_verify(l.n));
  check_text(l.n,
             "nest \"loop\" {\n"
             "  p0: parameter 0, 8 bytes, live out\n"
             "  p1: parameter 1, 1048576 bytes\n"
             "  l2: local, 1 bytes\n"
             "  while l2 after {\n"
             "    call \"s\" (p0[4+4]) -> (l2)\n"
             "  } do {\n"
             "    call \"s\" (p1[64+128], p0) -> (p0) x3\n"
             "  }\n"
             "}\n");
  ok(at_nest_localise(l.n));
  ok(at_nest_verify(l.n));
  check_text(l.n,
             "nest \"loop\" {\n"
             "  p0: parameter 0, 8 bytes, live out\n"
             "  p1: parameter 1, 1048576 bytes\n"
             "  l2: local, 1 bytes\n"
             "  l3: local, 8 bytes\n"
             "  copy l3 from p0\n"
             "  while l2 after {\n"
             "    call \"s\" (l3[4+4]) -> (l2)\n"
             "  } do {\n"
             "    call \"s\" (p1[64+128], l3) -> (l3) x3\n"
             "  }\n"
             "  copy p0 from l3\n"
             "}\n");
  assert_int_equal(at_nest_count(l.n), 5);
  at_arena_destroy(a);
}

// What is written but dead behind the nest may be another value's place by
// then.
static void test_dead_is_not_written_back(void **state) {
  at_arena *a = at_arena_create();
  loop l = make_loop(a);
  l.n->buffers.ptr[l.state].live_out = false;
  ok(at_nest_localise(l.n));
  assert_int_equal(at_nest_count(l.n), 4);
  assert_int_equal(l.n->root.last->kind, AT_NEST_WHILE);
  at_arena_destroy(a);
}

// A small buffer that is only read is copied in and not out.
static void test_only_read(void **state) {
  at_arena *a = at_arena_create();
  at_nest *n;
  ok(at_nest_create(a, "reads", &n));
  uint32_t from = buffer(n, AT_NEST_PARAM, 16);
  uint32_t to = buffer(n, AT_NEST_PARAM, 1 << 20);
  n->buffers.ptr[from].live_out = n->buffers.ptr[to].live_out = true;
  at_nest_stmt *s = add(n, &n->root, AT_NEST_COPY, 2, 0);
  s->refs[0] = (at_nest_ref){to, AT_NEST_WRITE, 32, 16};
  s->refs[1] = (at_nest_ref){from, AT_NEST_READ, 0, 16};
  ok(at_nest_localise(n));
  check_text(n,
             "nest \"reads\" {\n"
             "  p0: parameter 0, 16 bytes, live out\n"
             "  p1: parameter 1, 1048576 bytes, live out\n"
             "  l2: local, 16 bytes\n"
             "  copy l2 from p0\n"
             "  copy p1[32+16] from l2\n"
             "}\n");
  at_arena_destroy(a);
}

// A fill prints its element as a number, and where it goes.
static void test_fill(void **state) {
  at_arena *a = at_arena_create();
  at_nest *n;
  ok(at_nest_create(a, "fills", &n));
  uint32_t to = buffer(n, AT_NEST_PARAM, 1 << 20);
  at_nest_stmt *s = add(n, &n->root, AT_NEST_FILL, 1, 0);
  s->refs[0] = (at_nest_ref){to, AT_NEST_WRITE, 0, 1 << 20};
  s->element_bytes = 4;
  memcpy(s->element, "\x01\x02\x03\x0f", 4);
  ok(at_nest_verify(n));
  check_text(n,
             "nest \"fills\" {\n"
             "  p0: parameter 0, 1048576 bytes\n"
             "  fill p0 with 0x0f030201\n"
             "}\n");
  at_arena_destroy(a);
}

// Many small buffers: the stack has an end.
static void test_localise_stops(void **state) {
  enum { COUNT = 200, BYTES = 1024, MOST = 64 };
  at_arena *a = at_arena_create();
  at_nest *n;
  ok(at_nest_create(a, "many", &n));
  for (int i = 0; i < COUNT; i++) {
    at_nest_stmt *s = add(n, &n->root, AT_NEST_FILL, 1, 0);
    s->element_bytes = 4;
    s->refs[0] =
        (at_nest_ref){buffer(n, AT_NEST_PARAM, BYTES), AT_NEST_WRITE, 0, BYTES};
    n->buffers.ptr[i].live_out = true;
  }
  ok(at_nest_localise(n));
  ok(at_nest_verify(n));
  assert_int_equal(n->buffers.len, COUNT + MOST);
  assert_int_equal(at_nest_count(n), COUNT + 2 * MOST);
  at_arena_destroy(a);
}

// One lie at a time about a nest that is else right.
static void test_refused(void **state) {
  at_arena *a = at_arena_create();
  loop l = make_loop(a);
  l.step->refs[0].offset = (1 << 20) - 64;
  refused(at_nest_verify(l.n), "beyond its buffer");
  l = make_loop(a);
  l.step->refs[0].offset = UINT64_MAX;
  refused(at_nest_verify(l.n), "beyond its buffer");
  l = make_loop(a);
  l.step->refs[0].buffer = 3;
  refused(at_nest_verify(l.n), "no such buffer");
  l = make_loop(a);
  l.step->refs[0].access = 0;
  refused(at_nest_verify(l.n), "neither reads nor writes");
  l = make_loop(a);
  l.test->kernel = NULL;
  refused(at_nest_verify(l.n), "no kernel");
  l = make_loop(a);
  l.test->refs[1].buffer = l.state;
  refused(at_nest_verify(l.n), "local buffer that was not written");
  l = make_loop(a);
  l.turn->refs[0] = (at_nest_ref){l.state, AT_NEST_READ, 0, 8};
  refused(at_nest_verify(l.n), "a loop has a predicate");
  at_arena_destroy(a);
}

// case { local = 1 } { local = 2 or nothing } ; reads local
static at_nest *make_case(at_arena *a, bool both) {
  at_nest *n;
  ok(at_nest_create(a, "case", &n));
  uint32_t pick = buffer(n, AT_NEST_PARAM, 4),
           out = buffer(n, AT_NEST_PARAM, 4),
           local = buffer(n, AT_NEST_LOCAL, 4);
  at_nest_stmt *s = add(n, &n->root, AT_NEST_CASE, 1, 2);
  s->refs[0] = (at_nest_ref){pick, AT_NEST_READ, 0, 4};
  for (int i = 0; i < (both ? 2 : 1); i++) {
    at_nest_stmt *f = add(n, &s->blocks[i], AT_NEST_FILL, 1, 0);
    f->element_bytes = 1;
    f->refs[0] = (at_nest_ref){local, AT_NEST_WRITE, 0, 4};
  }
  s = add(n, &n->root, AT_NEST_COPY, 2, 0);
  s->refs[0] = (at_nest_ref){out, AT_NEST_WRITE, 0, 4};
  s->refs[1] = (at_nest_ref){local, AT_NEST_READ, 0, 4};
  return n;
}

// A local that only one branch writes is not written behind the CASE; wrong
// selectors and sizes are refused.
static void test_branches(void **state) {
  at_arena *a = at_arena_create();
  ok(at_nest_verify(make_case(a, true)));
  refused(at_nest_verify(make_case(a, false)), "that was not written");
  at_nest *n = make_case(a, true);
  n->root.first->is_bool = true;
  refused(at_nest_verify(n), "wrong selector");
  n = make_case(a, true);
  n->root.last->refs[1].bytes = 2;
  refused(at_nest_verify(n), "sizes differ");
  n = make_case(a, true);
  n->root.first->blocks[1].first->element_bytes = 3;
  refused(at_nest_verify(n), "does not divide");
  at_arena_destroy(a);
}

// A loop whose state of `bytes` is made anew in `next` and copied back:
// for (; more(state); state = next) next = step(state)
typedef struct swap_loop {
  at_nest *n;
  uint32_t state, next;
  at_nest_stmt *step, *copy;
} swap_loop;

static swap_loop make_swap(at_arena *a, uint64_t bytes) {
  static const int kernel;
  swap_loop l;
  ok(at_nest_create(a, "swap", &l.n));
  l.state = buffer(l.n, AT_NEST_PARAM, bytes);
  l.next = buffer(l.n, AT_NEST_PARAM, bytes);
  uint32_t pred = buffer(l.n, AT_NEST_LOCAL, 1);
  for (uint32_t i = 0; i < 2; i++) l.n->buffers.ptr[i].alone = true;
  l.n->buffers.ptr[l.state].live_out = true;
  at_nest_stmt *turn = add(l.n, &l.n->root, AT_NEST_WHILE, 1, 2);
  turn->refs[0] = (at_nest_ref){pred, AT_NEST_READ, 0, 1};
  at_nest_stmt *test = add(l.n, &turn->blocks[0], AT_NEST_CALL, 2, 0);
  test->refs[0] = (at_nest_ref){l.state, AT_NEST_READ, 0, 4};
  test->refs[1] = (at_nest_ref){pred, AT_NEST_WRITE, 0, 1};
  l.step = add(l.n, &turn->blocks[1], AT_NEST_CALL, 2, 0);
  l.step->refs[0] = (at_nest_ref){l.state, AT_NEST_READ, 0, bytes};
  l.step->refs[1] = (at_nest_ref){l.next, AT_NEST_WRITE, 0, bytes};
  test->kernel = l.step->kernel = &kernel;
  l.copy = add(l.n, &turn->blocks[1], AT_NEST_COPY, 2, 0);
  l.copy->refs[0] = (at_nest_ref){l.state, AT_NEST_WRITE, 0, bytes};
  l.copy->refs[1] = (at_nest_ref){l.next, AT_NEST_READ, 0, bytes};
  return l;
}

static bool exchanges(swap_loop l) {
  ok(at_nest_exchange(l.n));
  ok(at_nest_verify(l.n));
  return l.copy->kind == AT_NEST_EXCHANGE;
}

static void test_exchange(void **state) {
  at_arena *a = at_arena_create();
  swap_loop l = make_swap(a, 4096);
  assert_true(exchanges(l));
  check_text(l.n,
             "nest \"swap\" {\n"
             "  p0: parameter 0, 4096 bytes, live out\n"
             "  p1: parameter 1, 4096 bytes\n"
             "  l2: local, 1 bytes\n"
             "  while l2 after {\n"
             "    call \"s\" (p0[0+4]) -> (l2) x0\n"
             "  } do {\n"
             "    call \"s\" (p0) -> (p1) x0\n"
             "    exchange p0, p1\n"
             "  }\n"
             "}\n");
  // Short states are copied.
  assert_false(exchanges(make_swap(a, 1024)));
  // Others use its memory, or read it behind the nest.
  l = make_swap(a, 4096);
  l.n->buffers.ptr[l.next].alone = false;
  assert_false(exchanges(l));
  l = make_swap(a, 4096);
  l.n->buffers.ptr[l.state].alone = false;
  assert_false(exchanges(l));
  l = make_swap(a, 4096);
  l.n->buffers.ptr[l.next].live_out = true;
  assert_false(exchanges(l));
  // The turn reads what the one before has left, or writes a part only.
  l = make_swap(a, 4096);
  l.step->refs[1].access |= AT_NEST_READ;
  assert_false(exchanges(l));
  l = make_swap(a, 4096);
  l.step->refs[1].bytes = 4000;
  assert_false(exchanges(l));
  // It is used outside of the loop.
  l = make_swap(a, 4096);
  at_nest_stmt *s = add(l.n, &l.n->root, AT_NEST_COPY, 2, 0);
  s->refs[0] = (at_nest_ref){l.state, AT_NEST_WRITE, 0, 8};
  s->refs[1] = (at_nest_ref){l.next, AT_NEST_READ, 8, 8};
  assert_false(exchanges(l));
  at_arena_destroy(a);
}

// Outside of a loop's body, or of what is not alone.
static void test_exchange_refused(void **state) {
  at_arena *a = at_arena_create();
  swap_loop l = make_swap(a, 4096);
  assert_true(exchanges(l));
  l.n->buffers.ptr[l.next].alone = false;
  refused(at_nest_verify(l.n), "not a whole buffer, alone");
  l = make_swap(a, 4096);
  at_nest_stmt *s = add(l.n, &l.n->root, AT_NEST_EXCHANGE, 2, 0);
  s->refs[0] = (at_nest_ref){l.state, AT_NEST_READ, 0, 4096};
  s->refs[1] = (at_nest_ref){l.next, AT_NEST_READ, 0, 4096};
  refused(at_nest_verify(l.n), "outside of a loop's body");
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exchange),
      cmocka_unit_test(test_exchange_refused),
      cmocka_unit_test(test_localise),
      cmocka_unit_test(test_dead_is_not_written_back),
      cmocka_unit_test(test_only_read),
      cmocka_unit_test(test_fill),
      cmocka_unit_test(test_localise_stops),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_branches),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
