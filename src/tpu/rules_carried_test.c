// What loops carry (rules_carried.c): a value that begins as one number
// everywhere and becomes another carried one, which does not stay so, is
// refused; whatever is not certain is not.
#include "tpu/rules_test_util.h"

// for (k = 0; k < turns; k += step) (p, q) = (q, next): both begin as `p`, `q`.
// `body` defines %next; %x is a load of V:f32, %one a vector of ones.
typedef struct loop {
  const char *p, *q, *body, *yield;
  int turns, step;
  bool unread;  // nobody reads what p becomes
  bool good;
} loop;

static void expect_loop(const loop *l) {
  at_arena *a = at_arena_create();
  const char *body = at_arena_printf(
      a,
      "%%x = 'vector.load'(%%a, %%i, %%i) : (M:f32, index, index) -> V:f32\n"
      "%%one = 'arith.constant'() {value = dense<1.0> : V:f32} : () -> V:f32\n"
      "%%lo = 'arith.constant'() {value = 0 : i32} : () -> i32\n"
      "%%hi = 'arith.constant'() {value = %d : i32} : () -> i32\n"
      "%%st = 'arith.constant'() {value = %d : i32} : () -> i32\n"
      "%%r:2 = 'scf.for'(%%lo, %%hi, %%st, %s, %s) ({\n"
      "^bb0(%%k: i32, %%p: V:f32, %%q: V:f32):\n"
      "%s"
      "'scf.yield'(%s) : (V:f32, V:f32) -> ()\n"
      "}) : (i32, i32, i32, V:f32, V:f32) -> (V:f32, V:f32)\n"
      "%s"
      "'vector.store'(%%r#1, %%c, %%i, %%i) : (V:f32, M:f32, index, index) -> "
      "()\n",
      l->turns, l->step, l->p, l->q, l->body, l->yield,
      l->unread ? ""
                : "'vector.store'(%r#0, %b, %i, %i) : (V:f32, M:f32, index, "
                  "index) -> ()\n");
  const char *says = l->good ? NULL
                             : "Invalid relayout: Non-singleton logical "
                               "dimension is replicated in destination but "
                               "not in source for 'vector<8x128xf32>': carried "
                               "value 0 of the loop";
  const refused r = {says, "v5e", {"M:f32", "M:f32", "M:f32"}, body};
  expect_refusal(kernel_of(a, &r), "v5e", says);
  at_arena_destroy(a);
}

// Of i32, as floats.
#define IOTA(dim)                                     \
  "%n1 = 'tpu.iota'() {dimensions = array<i32: " #dim \
  ">} : () -> V:i32\n"                                \
  "%next = 'arith.sitofp'(%n1) : (V:i32) -> V:f32\n"
#define SUM(a, b) \
  "%next = 'arith.addf'(" a ", " b ") : (V:f32, V:f32) -> V:f32\n"

static void carried_values(void **state) {
  static const loop rows[] = {
      // p becomes q, q becomes what was loaded.
      {"%one", "%one", "", "%q, %x", 8, 1, false, false},
      {"%one", "%one", "", "%x, %q", 8, 1, false, true},
      {"%one", "%one", "", "%q, %one", 8, 1, false, true},
      {"%x", "%one", "", "%q, %x", 8, 1, false, true},
      {"%one", "%x", "", "%q, %x", 8, 1, false, true},
      // At most one turn is no loop.
      {"%one", "%one", "", "%q, %x", 2, 1, false, false},
      {"%one", "%one", "", "%q, %x", 1, 1, false, true},
      {"%one", "%one", "", "%q, %x", 3, 2, false, false},
      {"%one", "%one", "", "%q, %x", 2, 2, false, true},
      // Nobody reads it.
      {"%one", "%one", "", "%q, %x", 8, 1, true, true},
      {"%one", "%one", SUM("%p", "%x"), "%q, %next", 8, 1, true, false},
      // What q becomes: apart in one dimension is enough.
      {"%one", "%one", IOTA(0), "%q, %next", 8, 1, false, false},
      {"%one", "%one", IOTA(1), "%q, %next", 8, 1, false, false},
      {"%one", "%one", SUM("%one", "%one"), "%q, %next", 8, 1, false, true},
      {"%one", "%one", SUM("%one", "%x"), "%q, %next", 8, 1, false, false},
      {"%one", "%one", SUM("%q", "%one"), "%q, %next", 8, 1, false, true},
      {"%one", "%one",
       "%f = 'arith.sitofp'(%k) : (i32) -> f32\n"
       "%next = 'vector.broadcast'(%f) : (f32) -> V:f32\n",
       "%q, %next", 8, 1, false, true},
      // A dimension that is repeated may be kept either way.
      {"%one", "%one",
       "%l = 'vector.load'(%a, %i, %i) : (M:f32, index, index) -> "
       "vector<1x128xf32>\n"
       "%next = 'vector.broadcast'(%l) : (vector<1x128xf32>) -> V:f32\n",
       "%q, %next", 8, 1, false, false},
      {"%one", "%one",
       "%l = 'vector.load'(%a, %i, %i) : (M:f32, index, index) -> "
       "vector<1x1xf32>\n"
       "%next = 'vector.broadcast'(%l) : (vector<1x1xf32>) -> V:f32\n",
       "%q, %next", 8, 1, false, true},
      // The same registers under another leading dimension.
      {"%one", "%one",
       "%l = 'vector.shape_cast'(%x) : (V:f32) -> vector<1x8x128xf32>\n"
       "%next = 'vector.shape_cast'(%l) : (vector<1x8x128xf32>) -> V:f32\n",
       "%q, %next", 8, 1, false, false},
      {"%one", "%one",
       "%l = 'vector.shape_cast'(%x) : (V:f32) -> vector<16x64xf32>\n"
       "%next = 'vector.shape_cast'(%l) : (vector<16x64xf32>) -> V:f32\n",
       "%q, %next", 8, 1, false, true},
      // A branch has what both sides yield.
      {"%one", "%one",
       "%t = 'arith.cmpi'(%k, %n) {predicate = 2 : i64} : (i32, i32) -> i1\n"
       "%next = 'scf.if'(%t) ({\n'scf.yield'(%one) : (V:f32) -> ()\n}, {\n"
       "'scf.yield'(%x) : (V:f32) -> ()\n}) : (i1) -> V:f32\n",
       "%q, %next", 8, 1, false, false},
      {"%one", "%one",
       "%t = 'arith.cmpi'(%k, %n) {predicate = 2 : i64} : (i32, i32) -> i1\n"
       "%next = 'scf.if'(%t) ({\n'scf.yield'(%one) : (V:f32) -> ()\n}, {\n"
       "'scf.yield'(%q) : (V:f32) -> ()\n}) : (i1) -> V:f32\n",
       "%q, %next", 8, 1, false, true},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) expect_loop(&rows[i]);
}

// The same in a while loop, whose condition hands its values on; where it swaps
// them nothing is certain.
static void other_loops(void **state) {
  static const char says[] = "carried value 0 of the loop";
  static const refused rows[] = {
      {says,
       "v5e",
       {"M:f32", "M:f32", "S:i32"},
       "%x = 'vector.load'(%a, %i, %i) : (M:f32, index, index) -> V:f32\n"
       "%one = 'arith.constant'() {value = dense<1.0> : V:f32} : () -> V:f32\n"
       "%r:2 = 'scf.while'(%one, %one) ({\n"
       "^bb0(%p: V:f32, %q: V:f32):\n"
       "%s = 'memref.load'(%c, %i) : (S:i32, index) -> i32\n"
       "%t = 'arith.cmpi'(%s, %n) {predicate = 2 : i64} : (i32, i32) -> i1\n"
       "'scf.condition'(%t, %p, %q) : (i1, V:f32, V:f32) -> ()\n}, {\n"
       "^bb0(%p: V:f32, %q: V:f32):\n"
       "'memref.store'(%n, %c, %i) : (i32, S:i32, index) -> ()\n"
       "'scf.yield'(%q, %x) : (V:f32, V:f32) -> ()\n"
       "}) : (V:f32, V:f32) -> (V:f32, V:f32)\n"
       "'vector.store'(%r#0, %b, %i, %i) : (V:f32, M:f32, index, index) -> "
       "()\n"},
      {NULL,
       "v5e",
       {"M:f32", "M:f32", "S:i32"},
       "%x = 'vector.load'(%a, %i, %i) : (M:f32, index, index) -> V:f32\n"
       "%one = 'arith.constant'() {value = dense<1.0> : V:f32} : () -> V:f32\n"
       "%r:2 = 'scf.while'(%one, %one) ({\n"
       "^bb0(%p: V:f32, %q: V:f32):\n"
       "%s = 'memref.load'(%c, %i) : (S:i32, index) -> i32\n"
       "%t = 'arith.cmpi'(%s, %n) {predicate = 2 : i64} : (i32, i32) -> i1\n"
       "'scf.condition'(%t, %q, %p) : (i1, V:f32, V:f32) -> ()\n}, {\n"
       "^bb0(%p: V:f32, %q: V:f32):\n"
       "'memref.store'(%n, %c, %i) : (i32, S:i32, index) -> ()\n"
       "'scf.yield'(%q, %x) : (V:f32, V:f32) -> ()\n"
       "}) : (V:f32, V:f32) -> (V:f32, V:f32)\n"
       "'vector.store'(%r#0, %b, %i, %i) : (V:f32, M:f32, index, index) -> "
       "()\n"},
  };
  refuse_all(rows, AT_LEN(rows));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(carried_values),
      cmocka_unit_test(other_loops),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
