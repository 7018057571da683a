// Memory and control of kernels: what is loaded and stored, views, loops,
// products, and what the virtual core is told and asked.
#include "mosaic/run_test_util.h"

enum { R = 16, C = 128 };

static int32_t g_in[R * C], g_out[4 * R * C];
static int32_t g_scalars[8] = {3, 5, -2, 40, 7, 0, 1, 9};

static int32_t f(int64_t r, int64_t c) {
  return (int32_t)((r * 7919 + c * 104729) % 65521 - 30000);
}

// A kernel from %in to %o, both of 16 x 128, with eight scalars in %s.
typedef struct task {
  const char *name, *lines, *functions;
  int32_t (*want)(int r, int c);
} task;

#define LOAD(v, ref, at)                 \
  "%" v " = 'vector.load'(%" ref ", " at \
  ") : (&16x128xi32, index, index) -> "  \
  "!16x128xi32\n"
#define STORE(v, ref, at)                \
  "'vector.store'(%" v ", %" ref ", " at \
  ") : (!16x128xi32, &16x128xi32, index, index) -> ()\n"
#define SCALAR(v, i)                                                  \
  "%" v " = 'memref.load'(%s, %c" i ") : ($8xi32, index) -> i32\n%" v \
  "i = 'arith.index_cast'(%" v ") : (i32) -> index\n"

// What of %o nobody writes stays 0x77777777.
enum { UNTOUCHED = 0x77777777 };

static int32_t w_row(int r, int c) { return r == 5 ? f(3, c) : UNTOUCHED; }
static int32_t w_double(int r, int c) { return r < 8 ? 2 * f(r, c) : f(r, c); }
static int32_t w_old(int r, int c) { return f((r + 1) % R, c); }
static int32_t w_every(int r, int c) {
  return r % 2 == 0 ? f(r / 2, c) : UNTOUCHED;
}
static int32_t w_masked(int r, int c) {
  return f(r, c) > 0 ? f(r, c) : UNTOUCHED;
}
static int32_t w_added(int r, int c) { return 2 * f(r, c) - (r < 8 ? 1 : 0); }
static int32_t w_view(int r, int c) {
  return r >= 4 && r < 8 && c >= 64 ? f(r + 1, c) : UNTOUCHED;
}
static int32_t w_loop(int r, int c) { return 5 * f(r, c) + 0 + 1 + 2 + 3 + 4; }
static int32_t w_if(int r, int c) { return f(r, c) + (r < 8 ? 100 : -100); }
static int32_t w_while(int r, int c) { return f(r, c) + 64; }
static int32_t w_called(int r, int c) { return f(r, c) + 3 * 5 + 1; }
static int32_t w_scratch(int r, int c) { return f(r, c) + 1; }
static int32_t w_scattered(int r, int c) {
  return r == c % 16 ? f(0, c) : UNTOUCHED;
}
static int32_t w_picked(int r, int c) {
  return r == 0 ? f(c % 16, C - 1 - c) : UNTOUCHED;
}
static int32_t w_copied(int r, int c) { return f(r, c); }

static const task tasks[] = {
    {"rows at indices that are read",
     SCALAR("a", "0") SCALAR("b", "1") "%v = 'vector.load'(%in, %ai, %c0) : "
                                       "(&16x128xi32, index, index) -> "
                                       "!1x128xi32\n"
                                       "'vector.store'(%v, %o, %bi, %c0) : "
                                       "(!1x128xi32, &16x128xi32, index, "
                                       "index) -> ()\n",
     NULL, w_row},
    {"a store that another load has come before",
     LOAD("x", "in", "%c0, %c0") STORE(
         "x", "o",
         "%c0, %c0") "%y = 'vector.load'(%o, %c0, %c0) : (&16x128xi32, index, "
                     "index) -> "
                     "!8x128xi32\n"
                     "%z = 'arith.addi'(%y, %y) : (!8x128xi32, !8x128xi32) -> "
                     "!8x128xi32\n"
                     "'vector.store'(%z, %o, %c0, %c0) : (!8x128xi32, "
                     "&16x128xi32, index, "
                     "index) -> ()\n",
     NULL, w_double},
    {"what was loaded before its memory was overwritten",
     LOAD("x", "in", "%c0, %c0") STORE("x", "o", "%c0, %c0") LOAD(
         "old", "o",
         "%c0, %c0") "%first = 'vector.extract_strided_slice'(%old) {offsets = "
                     "[0, 0], "
                     "sizes = [1, 128], strides = [1, 1]} : (!16x128xi32) -> "
                     "!1x128xi32\n"
                     "%rest = 'vector.extract_strided_slice'(%old) {offsets = "
                     "[1, 0], "
                     "sizes = [15, 128], strides = [1, 1]} : (!16x128xi32) -> "
                     "!15x128xi32\n"
                     "'vector.store'(%rest, %o, %c0, %c0) : (!15x128xi32, "
                     "&16x128xi32, index, index) -> ()\n"
                     "%last = 'arith.constant'() {value = 15 : index} : () -> "
                     "index\n"
                     "'vector.store'(%first, %o, %last, %c0) : (!1x128xi32, "
                     "&16x128xi32, index, index) -> ()\n",
     NULL, w_old},
    {"a store with strides",
     "%v = 'vector.load'(%in, %c0, %c0) : (&16x128xi32, index, index) -> "
     "!8x128xi32\n"
     "'tpu.strided_store'(%v, %o, %c0, %c0) {strides = array<i32: 2, 1>} : "
     "(!8x128xi32, &16x128xi32, index, index) -> ()\n",
     NULL, w_every},
    {"a store under a mask",
     LOAD("x", "in",
          "%c0, %c0") "%z = 'arith.constant'() {value = dense<0> : "
                      "!16x128xi32} : () -> "
                      "!16x128xi32\n"
                      "%m = 'arith.cmpi'(%x, %z) {predicate = 4 : i64} : "
                      "(!16x128xi32, "
                      "!16x128xi32) -> !16x128xi1\n"
                      "'tpu.vector_store'(%x, %o, %c0, %c0, %m) {strides = "
                      "array<i32>, "
                      "operandSegmentSizes = array<i32: 1, 1, 2, 1>} : "
                      "(!16x128xi32, "
                      "&16x128xi32, index, index, !16x128xi1) -> ()\n",
     NULL, w_masked},
    {"a store that adds",
     LOAD("x", "in", "%c0, %c0")
         STORE("x", "o", "%c0, %c0") "'tpu.vector_store'(%x, %o, %c0, %c0) "
                                     "{strides = array<i32>, add = "
                                     "true, operandSegmentSizes = array<i32: "
                                     "1, 1, 2, 0>} : (!16x128xi32, "
                                     "&16x128xi32, index, index) -> ()\n"
                                     "%n = 'arith.constant'() {value = "
                                     "dense<-1> : !8x128xi32} : () -> "
                                     "!8x128xi32\n"
                                     "'tpu.vector_store'(%n, %o, %c0, %c0) "
                                     "{strides = array<i32>, add = "
                                     "true, operandSegmentSizes = array<i32: "
                                     "1, 1, 2, 0>} : (!8x128xi32, "
                                     "&16x128xi32, index, index) -> ()\n",
     NULL, w_added},
    {"views of memory",
     "%r = 'arith.constant'() {value = 4 : i32} : () -> i32\n"
     "%r1 = 'arith.constant'() {value = 5 : i32} : () -> i32\n"
     "%l = 'arith.constant'() {value = 64 : i32} : () -> i32\n"
     "%from = 'tpu.memref_slice'(%in, %r1, %l) {operandSegmentSizes = "
     "array<i32: 1, 2, 0>} : (&16x128xi32, i32, i32) -> &4x64xi32\n"
     "%to = 'tpu.memref_slice'(%o, %r, %l) {operandSegmentSizes = array<i32: "
     "1, 2, 0>} : (&16x128xi32, i32, i32) -> &4x64xi32\n"
     "%v = 'vector.load'(%from, %c0, %c0) : (&4x64xi32, index, index) -> "
     "!4x64xi32\n"
     "'vector.store'(%v, %to, %c0, %c0) : (!4x64xi32, &4x64xi32, index, index) "
     "-> ()\n",
     NULL, w_view},
    {"a loop that carries a vector",
     LOAD("x", "in",
          "%c0, %c0") "%z = 'arith.constant'() {value = dense<0> : "
                      "!16x128xi32} : () -> "
                      "!16x128xi32\n"
                      "%sum = 'scf.for'(%c0, %c5, %c1, %z) ({\n^bb0(%i: index, "
                      "%old: "
                      "!16x128xi32):\n"
                      "%n = 'arith.index_cast'(%i) : (index) -> i32\n"
                      "%nv = 'vector.broadcast'(%n) : (i32) -> !16x128xi32\n"
                      "%a = 'arith.addi'(%old, %x) : (!16x128xi32, "
                      "!16x128xi32) -> "
                      "!16x128xi32\n"
                      "%b = 'arith.addi'(%a, %nv) : (!16x128xi32, !16x128xi32) "
                      "-> "
                      "!16x128xi32\n"
                      "'scf.yield'(%b) : (!16x128xi32) -> ()\n}) : (index, "
                      "index, index, "
                      "!16x128xi32) -> !16x128xi32\n" STORE("sum", "o",
                                                            "%c0, %c0"),
     NULL, w_loop},
    {"branches of a condition",
     "'scf.for'(%c0, %c2, %c1) ({\n^bb0(%i: index):\n"
     "%at = 'arith.muli'(%i, %c8) : (index, index) -> index\n"
     "%v = 'vector.load'(%in, %at, %c0) : (&16x128xi32, index, index) -> "
     "!8x128xi32\n"
     "%p = 'arith.cmpi'(%i, %c0) {predicate = 0 : i64} : (index, index) -> "
     "i1\n"
     "%n = 'scf.if'(%p) ({\n%h = 'arith.constant'() {value = 100 : i32} : () "
     "-> i32\n'scf.yield'(%h) : (i32) -> ()\n}, {\n%l = 'arith.constant'() "
     "{value = -100 : i32} : () -> i32\n'scf.yield'(%l) : (i32) -> ()\n}) : "
     "(i1) -> i32\n"
     "%nv = 'vector.broadcast'(%n) : (i32) -> !8x128xi32\n"
     "%w = 'arith.addi'(%v, %nv) : (!8x128xi32, !8x128xi32) -> !8x128xi32\n"
     "'vector.store'(%w, %o, %at, %c0) : (!8x128xi32, &16x128xi32, index, "
     "index) -> ()\n"
     "'scf.yield'() : () -> ()\n}) : (index, index, index) -> ()\n",
     NULL, w_if},
    // 1, 2, 4, ... while it is less than 40: 64.
    {"a loop that ends by itself",
     SCALAR("limit",
            "3") "%one = 'arith.constant'() {value = 1 : i32} : () -> "
                 "i32\n"
                 "%n = 'scf.while'(%one) ({\n^bb0(%a: i32):\n"
                 "%go = 'arith.cmpi'(%a, %limit) {predicate = 2 : "
                 "i64} : (i32, i32) -> i1\n"
                 "'scf.condition'(%go, %a) : (i1, i32) -> ()\n}, "
                 "{\n^bb0(%b: i32):\n"
                 "%d = 'arith.addi'(%b, %b) : (i32, i32) -> i32\n"
                 "'scf.yield'(%d) : (i32) -> ()\n}) : (i32) -> "
                 "i32\n" LOAD(
                     "x", "in",
                     "%c0, %c0") "%nv = 'vector.broadcast'(%n) : (i32) -> "
                                 "!16x128xi32\n"
                                 "%v = 'arith.addi'(%x, %nv) : (!16x128xi32, "
                                 "!16x128xi32) -> "
                                 "!16x128xi32\n" STORE("v", "o", "%c0, %c0"),
     NULL, w_while},
    {"a function that is called",
     SCALAR("a", "0") SCALAR(
         "b", "1") "%n = 'func.call'(%a, %b) {callee = @g} : (i32, i32) -> "
                   "i32\n" LOAD("x", "in",
                                "%c0, %c0") "%nv = 'vector.broadcast'(%n) : "
                                            "(i32) -> !16x128xi32\n"
                                            "%v = 'arith.addi'(%x, %nv) : "
                                            "(!16x128xi32, !16x128xi32) -> "
                                            "!16x128xi32\n" STORE("v", "o",
                                                                  "%c0, %c0"),
     "'func.func'() ({\n^bb0(%p: i32, %q: i32):\n%m = 'arith.muli'(%p, %q) : "
     "(i32, i32) -> i32\n%one = 'arith.constant'() {value = 1 : i32} : () -> "
     "i32\n%t = 'arith.addi'(%m, %one) : (i32, i32) -> i32\n'func.return'(%t) "
     ": (i32) -> ()\n}) {function_type = (i32, i32) -> i32, sym_name = 'g'} : "
     "() -> ()\n",
     w_called},
    {"truths that are known wrap as numbers of one bit",
     "%two = 'arith.constant'() {value = 2 : i32} : () -> i32\n"
     "%t = 'arith.trunci'(%two) : (i32) -> i1\n"
     "%yes = 'arith.constant'() {value = true} : () -> i1\n"
     "%u = 'arith.addi'(%yes, %yes) : (i1, i1) -> i1\n"
     "%e = 'arith.ori'(%t, %u) : (i1, i1) -> i1\n"
     "%n = 'arith.extui'(%e) : (i1) -> i32\n" LOAD(
         "x", "in",
         "%c0, %c0") "%nv = 'vector.broadcast'(%n) : (i32) -> !16x128xi32\n"
                     "%v = 'arith.addi'(%x, %nv) : (!16x128xi32, !16x128xi32) "
                     "-> "
                     "!16x128xi32\n" STORE("v", "o", "%c0, %c0"),
     NULL, w_copied},
    {"memory of a region",
     "'tpu.region'() ({\n"
     "%m = 'memref.alloca'() {operandSegmentSizes = array<i32: 0, 0>} : () -> "
     "&16x128xi32\n" LOAD("x", "in", "%c0, %c0") STORE("x", "m", "%c0, %c0")
         LOAD("y", "m", "%c0, %c0") "%one = 'arith.constant'() {value = "
                                    "dense<1> : !16x128xi32} : () "
                                    "-> !16x128xi32\n"
                                    "%v = 'arith.addi'(%y, %one) : "
                                    "(!16x128xi32, !16x128xi32) -> "
                                    "!16x128xi32\n" STORE(
                                        "v", "o",
                                        "%c0, %c0") "'tpu.yield'() : () -> "
                                                    "()\n}) : () -> ()\n",
     NULL, w_scratch},
    {"elements stored at indices",
     "%v = 'vector.load'(%in, %c0, %c0) : (&16x128xi32, index, index) -> "
     "!1x128xi32\n"
     "%l = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> !1x128xi32\n"
     "%m = 'arith.constant'() {value = dense<15> : !1x128xi32} : () -> "
     "!1x128xi32\n"
     "%r = 'arith.andi'(%l, %m) : (!1x128xi32, !1x128xi32) -> !1x128xi32\n"
     "'tpu.vector_store_idx'(%v, %o, %r, %l) {operandSegmentSizes = "
     "array<i32: 1, 1, 2, 0>} : (!1x128xi32, &16x128xi32, !1x128xi32, "
     "!1x128xi32) -> ()\n",
     NULL, w_scattered},
    {"elements loaded at indices",
     "%l = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> !1x128xi32\n"
     "%m = 'arith.constant'() {value = dense<15> : !1x128xi32} : () -> "
     "!1x128xi32\n"
     "%all = 'arith.constant'() {value = dense<127> : !1x128xi32} : () -> "
     "!1x128xi32\n"
     "%r = 'arith.andi'(%l, %m) : (!1x128xi32, !1x128xi32) -> !1x128xi32\n"
     "%back = 'arith.subi'(%all, %l) : (!1x128xi32, !1x128xi32) -> "
     "!1x128xi32\n"
     "%v = 'tpu.vector_load_idx'(%in, %r, %back) {operandSegmentSizes = "
     "array<i32: 1, 2, 0>} : (&16x128xi32, !1x128xi32, !1x128xi32) -> "
     "!1x128xi32\n"
     "'vector.store'(%v, %o, %c0, %c0) : (!1x128xi32, &16x128xi32, index, "
     "index) -> ()\n",
     NULL, w_picked},
    {"a copy and its semaphore",
     "'tpu.region'() ({\n"
     "%sem = 'tpu.sem_alloc'() : () -> memref<!tpu.dma_semaphore, "
     "#tpu.memory_space<semaphore_mem>>\n"
     "'tpu.enqueue_dma'(%in, %o, %sem) {operandSegmentSizes = array<i32: 1, 0, "
     "1, 1, 0, 0, 0>, priority = 0 : i32, strict_ordering = false} : "
     "(&16x128xi32, &16x128xi32, memref<!tpu.dma_semaphore, "
     "#tpu.memory_space<semaphore_mem>>) -> ()\n"
     "'tpu.wait_dma2'(%sem, %in, %o) {operandSegmentSizes = array<i32: 1, 1, "
     "1, 0, 0>, strict_ordering = false} : (memref<!tpu.dma_semaphore, "
     "#tpu.memory_space<semaphore_mem>>, &16x128xi32, &16x128xi32) -> ()\n"
     "'tpu.yield'() : () -> ()\n}) : () -> ()\n",
     NULL, w_copied},
};

static const task *g_task;

static void judge(const rt_kernel *k) {
  for (int r = 0; r < R; r++)
    for (int c = 0; c < C; c++)
      if (g_out[r * C + c] != g_task->want(r, c))
        fail_msg("%s: (%d, %d) is %d, want %d", g_task->name, r, c,
                 g_out[r * C + c], g_task->want(r, c));
}

static rt_kernel kernel_of(const char *lines, const char *functions) {
  for (int i = 0; i < R * C; i++) g_in[i] = f(i / C, i % C);
  memset(g_out, 0x77, sizeof g_out);
  return (rt_kernel){{{"in", "16x128xi32", g_in, false},
                      {"o", "16x128xi32", g_out, false},
                      {"s", "8xi32", g_scalars, true}},
                     lines,
                     functions,
                     0};
}

static void memory_is_as_the_kernel_says(void **state) {
  for (size_t i = 0; i < AT_LEN(tasks); i++) {
    g_task = &tasks[i];
    rt_kernel k = kernel_of(g_task->lines, g_task->functions);
    rt_each(&k, judge);
  }
}

// ---- What ends a kernel
static void ends_with(const char *lines, const char *why) {
  for (rt_mode mode = RT_FULL; mode < RT_MODES; mode++) {
    rt_kernel k = kernel_of(lines, NULL);
    rt_core *c = rt_run(&k, mode);
    if (strcmp(c->why, why)) fail_msg("\"%s\", want \"%s\"", c->why, why);
    free(c);
  }
}

#define ROWS_AT(v, i, n)                                              \
  SCALAR("a", i)                                                      \
  "%" v                                                               \
  " = 'vector.load'(%in, %ai, %c0) : (&16x128xi32, index, index) -> " \
  "!" n "x128xi32\n'vector.store'(%" v ", %o, %c0, %c0) : (!" n       \
  "x128xi32, &16x128xi32, index, index) -> ()\n"

static void kernels_end_where_they_leave_memory(void **state) {
  ends_with(ROWS_AT("v", "2", "1"), "dim 0: -2 + 1 of 16, ref 1");
  ends_with(ROWS_AT("v", "3", "1"), "dim 0: 40 + 1 of 16, ref 1");
  ends_with(ROWS_AT("v", "7", "8"), "dim 0: 9 + 8 of 16, ref 1");
  ends_with(ROWS_AT("v", "4", "8"), "");  // the last that fits: 7 + 8 < 16
  ends_with(SCALAR("a", "3")
                "%v = 'memref.load'(%s, %ai) : ($8xi32, index) -> i32\n"
                "'memref.store'(%v, %s, %c0) : (i32, $8xi32, index) -> ()\n",
            "dim 0: 40 + 1 of 8, ref 3");
}

static void asserts_and_endless_loops_end_a_kernel(void **state) {
  ends_with(SCALAR("a", "5")
                "%z = 'arith.constant'() {value = 0 : i32} : () -> i32\n"
                "%p = 'arith.cmpi'(%a, %z) {predicate = 1 : i64} : (i32, i32) "
                "-> i1\n"
                "'cf.assert'(%p) {msg = 'a is 0'} : (i1) -> ()\n",
            "a is 0");
  ends_with(
      "%one = 'arith.constant'() {value = 1 : i32} : () -> i32\n"
      "%n = 'scf.while'(%one) ({\n^bb0(%a: i32):\n"
      "%go = 'arith.cmpi'(%a, %a) {predicate = 0 : i64} : (i32, i32) -> "
      "i1\n"
      "'memref.store'(%a, %s, %c0) : (i32, $8xi32, index) -> ()\n"
      "'scf.condition'(%go, %a) : (i1, i32) -> ()\n}, {\n^bb0(%b: i32):\n"
      "'scf.yield'(%b) : (i32) -> ()\n}) : (i32) -> i32\n",
      "out of budget");
}

// ---- What has no code
// Compiling it fails, and the message says so.
static void is_refused(const char *lines, const char *functions,
                       const char *says) {
  rt_kernel k = kernel_of(lines, functions);
  at_arena *a = at_arena_create();
  at_cg_output out;
  at_mosaic_code *code;
  at_status st = rt_compile(&k, RT_FULL, a, &out, &code);
  if (!strstr(at_status_message(st), says))
    fail_msg("\"%s\" lacks \"%s\"", at_status_message(st), says);
  assert_int_equal(at_code_take(st), AT_UNIMPLEMENTED);
  at_arena_destroy(a);
}

// A register that is not there, named inside a function that the body calls.
static void registers_of_called_functions_are_checked(void **state) {
  is_refused(
      "%v = 'vector.load'(%in, %c0, %c0) : (&16x128xi32, index, index) -> "
      "!16x128xi32\n"
      "'func.call'(%v) {callee = @g} : (!16x128xi32) -> ()\n",
      "'func.func'() ({\n^bb0(%p: !16x128xi32):\n"
      "'tpu.matmul_push_rhs'(%p) {mxu_index = 0 : i32, staging_register = "
      "1000000 : i32} : (!16x128xi32) -> ()\n"
      "'func.return'() : () -> ()\n}) {function_type = (vector<16x128xi32>) "
      "-> (), sym_name = 'g'} : () -> ()\n",
      "its staging_register");
}

// Each of 24 functions calls the next one twice: 2^24 calls of the last.
static void calls_do_not_multiply_without_end(void **state) {
  at_strbuf b = {0};
  for (int i = 0; i < 24; i++)
    at_strbuf_addf(
        &b,
        "'func.func'() ({\n'func.call'() {callee = @g%d} : () -> ()\n"
        "'func.call'() {callee = @g%d} : () -> ()\n"
        "'func.return'() : () -> ()\n}) {function_type = () -> (), sym_name = "
        "'g%d'} : () -> ()\n",
        i + 1, i + 1, i);
  at_strbuf_addz(&b,
                 "'func.func'() ({\n'func.return'() : () -> ()\n}) "
                 "{function_type = () -> (), sym_name = 'g24'} : () -> ()\n");
  assert_int_equal(at_code_take(at_strbuf_status(&b)), 0);
  is_refused("'func.call'() {callee = @g0} : () -> ()\n", b.ptr,
             "more than 16384 calls");
  at_strbuf_free(&b);
}

// ---- What a checked kernel announces
static void accesses_are_announced(void **state) {
  rt_kernel k = kernel_of(
      "%v = 'vector.load'(%in, %c4, %c0) : (&16x128xi32, index, index) -> "
      "!8x128xi32\n"
      "%z = 'arith.constant'() {value = dense<0> : !8x128xi32} : () -> "
      "!8x128xi32\n"
      "%m = 'arith.cmpi'(%v, %z) {predicate = 4 : i64} : (!8x128xi32, "
      "!8x128xi32) -> !8x128xi1\n"
      "'tpu.vector_store'(%v, %o, %c2, %c0, %m) {strides = array<i32>, "
      "operandSegmentSizes = array<i32: 1, 1, 2, 1>} : (!8x128xi32, "
      "&16x128xi32, index, index, !8x128xi1) -> ()\n"
      "'vector.store'(%v, %o, %c8, %c0) : (!8x128xi32, &16x128xi32, index, "
      "index) -> ()\n",
      NULL);
  rt_core *c = rt_run(&k, RT_CHECKED);
  assert_string_equal(c->why, "");
  int64_t positive = 0;
  for (int r = 4; r < 12; r++)
    for (int i = 0; i < C; i++) positive += f(r, i) > 0;
  const rt_note want[] = {
      {AT_CORE_LOAD, (const char *)(g_in + 4 * C), 8 * C},
      {AT_CORE_STORE | AT_CORE_MASKED, (const char *)(g_out + 2 * C), positive},
      {AT_CORE_STORE, (const char *)(g_out + 8 * C), 8 * C}};
  assert_int_equal(c->num_notes, AT_LEN(want));
  for (size_t i = 0; i < AT_LEN(want); i++) {
    assert_int_equal(c->notes[i].kind, want[i].kind);
    assert_ptr_equal(c->notes[i].base, want[i].base);
    assert_int_equal(c->notes[i].elements, want[i].elements);
  }
  free(c);
}

// Index vectors of any width.
#define STORE_AT(elem, rows)                                            \
  "%l = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> !1x128xi32\n" \
  "%m = 'arith.constant'() {value = dense<7> : !1x128xi32} : () -> "    \
  "!1x128xi32\n"                                                        \
  "%small = 'arith.andi'(%l, %m) : (!1x128xi32, !1x128xi32) -> "        \
  "!1x128xi32\n" rows                                                   \
  "'tpu.vector_store_idx'(%l, %o, %r, %l) {operandSegmentSizes = "      \
  "array<i32: 1, 1, 2, 0>} : (!1x128xi32, &16x128xi32, !1x128x" elem    \
  ", !1x128xi32) -> ()\n"

static void narrow_and_wide_indices_are_checked(void **state) {
  const char *const good =
      STORE_AT("i16",
               "%r = 'arith.trunci'(%small) : (!1x128xi32) -> "
               "!1x128xi16\n");
  rt_kernel k = kernel_of(good, NULL);
  rt_core *c = rt_run(&k, RT_CHECKED);
  assert_string_equal(c->why, "");
  for (int i = 0; i < C; i++) assert_int_equal(g_out[(i & 7) * C + i], i);
  assert_int_equal(c->num_notes, 1);
  assert_int_equal(c->notes[0].kind, AT_CORE_STORE);  // of known places
  assert_int_equal(c->notes[0].elements, C);
  free(c);
  static const struct {
    const char *lines, *why;
  } bad[] = {
      {STORE_AT("i16",
                "%r = 'arith.constant'() {value = dense<16> : "
                "!1x128xi16} : () -> !1x128xi16\n"),
       "index 16 of 16"},
      {STORE_AT("i8",
                "%r = 'arith.constant'() {value = dense<-3> : "
                "!1x128xi8} : () -> !1x128xi8\n"),
       "index -3 of 16"},
      {STORE_AT("i64",
                "%r = 'arith.constant'() {value = dense<4294967296> : "
                "!1x128xi64} : () -> !1x128xi64\n"),
       "index 2147483647 of 16"},
  };
  for (size_t i = 0; i < AT_LEN(bad); i++) {
    k = kernel_of(bad[i].lines, NULL);
    c = rt_run(&k, RT_CHECKED);
    assert_string_equal(c->why, bad[i].why);
    free(c);
  }
}

static void prints_reach_the_core(void **state) {
  rt_kernel k = kernel_of(SCALAR("a", "4") "'tpu.log'(%a) {tag = 'a is'} : "
                                           "(i32) -> ()\n",
                          NULL);
  rt_core *c = rt_run(&k, RT_FULL);
  assert_string_equal(c->log, "a is 7");
  free(c);
}

// ---- Products
enum { M = 16, K = 128, B = 128 };
static float g_a[M * K], g_b[K * B], g_sum[M * B];

// Small integers: sums are exact, also of operands rounded to bf16.
static float a_of(int i, int k) { return (float)((i * 5 + k * 3) % 17 - 8); }
static float b_of(int k, int j) { return (float)((k * 7 + j) % 13 - 6); }
static bool g_turned;  // b's dimensions are the other way round

static void judge_product(const rt_kernel *k) {
  for (int i = 0; i < M; i++)
    for (int j = 0; j < B; j++) {
      float want = 1 + (g_turned ? 2 : 0);
      for (int n = 0; n < K; n++)
        want += a_of(i, n) * (g_turned ? b_of(j, n) : b_of(n, j));
      if (g_sum[i * B + j] != want)
        fail_msg("(%d, %d) is %g, want %g", i, j, g_sum[i * B + j], want);
    }
}

#define PRODUCT(contracted, free)                                       \
  "%a = 'vector.load'(%x, %c0, %c0) : (&16x128xf32, index, index) -> "  \
  "!16x128xf32\n"                                                       \
  "%b = 'vector.load'(%y, %c0, %c0) : (&128x128xf32, index, index) -> " \
  "!128x128xf32\n"                                                      \
  "%z = 'arith.constant'() {value = dense<1.0> : !16x128xf32} : () -> " \
  "!16x128xf32\n"                                                       \
  "%v = 'tpu.matmul'(%a, %b, %z) {dimension_numbers = "                 \
  "#tpu.dot_dimension_numbers<[1], [" contracted "], [0], [" free       \
  "], [0, 0, 1, " free                                                  \
  "], [], []>, transpose_lhs = false, transpose_rhs "                   \
  "= false} : (!16x128xf32, !128x128xf32, !16x128xf32) -> !16x128xf32\n"

static void products_are_sums(void **state) {
  for (int i = 0; i < M * K; i++) g_a[i] = a_of(i / K, i % K);
  for (int i = 0; i < K * B; i++) g_b[i] = b_of(i / B, i % B);
  rt_kernel k = {
      {{"x", "16x128xf32", g_a, false},
       {"y", "128x128xf32", g_b, false},
       {"o", "16x128xf32", g_sum, false}},
      PRODUCT("0", "1") "'vector.store'(%v, %o, %c0, %c0) : (!16x128xf32, "
                        "&16x128xf32, index, index) -> ()\n",
      NULL,
      0};
  g_turned = false;
  rt_each(&k, judge_product);
  // The other way round, added to what is in memory.
  k.body = PRODUCT("1", "0")
      "%old = 'arith.constant'() {value = dense<2.0> : !16x128xf32} : () -> "
      "!16x128xf32\n"
      "'vector.store'(%old, %o, %c0, %c0) : (!16x128xf32, &16x128xf32, index, "
      "index) -> ()\n"
      "%now = 'vector.load'(%o, %c0, %c0) : (&16x128xf32, index, index) -> "
      "!16x128xf32\n"
      "%new = 'arith.addf'(%now, %v) : (!16x128xf32, !16x128xf32) -> "
      "!16x128xf32\n"
      "'vector.store'(%new, %o, %c0, %c0) : (!16x128xf32, &16x128xf32, index, "
      "index) -> ()\n";
  g_turned = true;
  rt_each(&k, judge_product);
}

int main(void) {
  at_cpu_limit(AT_CPU_AVX2 | AT_CPU_AVX512);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(memory_is_as_the_kernel_says),
      cmocka_unit_test(kernels_end_where_they_leave_memory),
      cmocka_unit_test(asserts_and_endless_loops_end_a_kernel),
      cmocka_unit_test(registers_of_called_functions_are_checked),
      cmocka_unit_test(calls_do_not_multiply_without_end),
      cmocka_unit_test(accesses_are_announced),
      cmocka_unit_test(narrow_and_wide_indices_are_checked),
      cmocka_unit_test(prints_reach_the_core),
      cmocka_unit_test(products_are_sums),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
