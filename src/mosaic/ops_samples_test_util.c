// Every operation of ops.def that does not work element by element, over the
// types it is used with, with results that are worked out here; or, where it
// has no code, its refusal.
#include "mosaic/ops_samples_test_util.h"

#include "base/span.h"

enum { R = SAMPLE_ROWS, C = SAMPLE_LANES };

int64_t sample_input(int64_t row, int64_t lane) {
  return (row * 7 + lane * 3) % 97 - 40;
}
static int64_t f(int64_t r, int64_t c) { return sample_input(r, c); }

// ---- What is expected at (r, c)
#define DEF(name, value) \
  static int64_t name(int r, int c) { return value; }
DEF(same, f(r, c))
DEF(seven, 7)
DEF(turned, f(c, r))
DEF(flat, f((r * 5 + c) / 37, (r * 5 + c) % 37))
DEF(part, f(r + 1, c + 30))
DEF(row_3, f(3, c))
DEF(number, f(2, 36))
DEF(put, r == 4 ? f(1, c) : f(r, c))
DEF(down, f((r + 3) % R, c))
DEF(slanted, f(r, (c + 2 * C - 2 - r) % C))
DEF(twice, f(r % R, c))
DEF(beside, c < C ? f(r, c) : f(r, c - C))
DEF(picked, f(((const int[]){4, 0, 4, 2})[r], c))
DEF(lane, c)
DEF(both, r *C + c)
DEF(crossed, f(r, (c * 3 + r) % C))
DEF(in_window, r >= 1 && r < 4 && c >= 30 && c < 36 ? f(r, c) : 0)
DEF(row_1_at_3, r == 3 ? f(1, c) : SAMPLE_UNTOUCHED_ELEMENT)
DEF(every_other, r % 2 == 0 ? f(r / 2, c) : SAMPLE_UNTOUCHED_ELEMENT)
DEF(positive, f(r, c) > 0 ? f(r, c) : SAMPLE_UNTOUCHED_ELEMENT)
DEF(loaded_by_strides, f(2 * r, c))
DEF(scattered, r == c % R ? f(0, c) : SAMPLE_UNTOUCHED_ELEMENT)
DEF(gathered, f(c % R, C - 1 - c))
DEF(box, r >= 1 && r < 4 && c >= 8 && c < 16 ? f(r + 1, c)
                                             : SAMPLE_UNTOUCHED_ELEMENT)
DEF(loop, 3 * f(r, c) + 0 + 1 + 2)
DEF(branch, r < 2 ? f(r, c) + 50 : f(r, c) - 50)
DEF(doubled, f(r, c) + 64)
DEF(called, f(r, c) + 4)
DEF(device, 3)
DEF(core, 4)
DEF(subcore, 1)
DEF(bound, 6)
DEF(old_and_new, 40 * 100 + 47)
DEF(count_of_semaphore, 5)
// Element p of the flat register is p / 2 of the p % 2nd part.
DEF(packed, f((r * C + c) / 2 / C + (r * C + c) % 2 * 2, (r * C + c) / 2 % C))
DEF(unpacked, f((2 * (r * C + c) + 1) / C, (2 * (r * C + c) + 1) % C))
DEF(random_words, 0x1000 + r * 37 + c)
DEF(rows_by_index, f(((const int[]){3, 1, 0, 1})[r], c))

static int64_t sum_of_row(int r, int c) {
  int64_t s = 0;
  for (int i = 0; i < C; i++) s += f(r, i) % 4;
  return s;
}
static int64_t sum_of_column(int r, int c) {
  int64_t s = 10;
  for (int i = 0; i < R; i++) s += f(i, c);
  return s;
}
static int64_t sum_of_whole_column(int r, int c) {
  return sum_of_column(r, c) - 10;
}
static int64_t largest_of_row(int r, int c) {
  int64_t s = f(c, 0);
  for (int i = 0; i < C; i++) s = AT_MAX(s, f(c, i));
  return s;
}
static int64_t least_of_column(int r, int c) {
  int64_t s = 20;
  for (int i = 0; i < R; i++) s = AT_MIN(s, f(i, c));
  return s;
}
static int64_t product_of_column(int r, int c) {
  uint32_t s = 3;
  for (int i = 0; i < R; i++) s *= (uint32_t)f(i, c);
  return (int32_t)s;
}
static int64_t and_of_column(int r, int c) {
  int64_t s = -1;
  for (int i = 0; i < R; i++) s &= f(i, c);
  return s;
}
static int64_t or_of_column(int r, int c) {
  int64_t s = 0;
  for (int i = 0; i < R; i++) s |= f(i, c);
  return s;
}
static int64_t xor_of_column(int r, int c) {
  int64_t s = 10;
  for (int i = 0; i < R; i++) s ^= f(i, c);
  return s;
}
static int64_t place_of_largest(int r, int c) {
  int best = 0;
  for (int i = 1; i < C; i++)
    if (f(c, i) > f(c, best)) best = i;
  return best;
}
static int64_t place_of_least(int r, int c) {
  int best = 0;
  for (int i = 1; i < C; i++)
    if (f(c, i) < f(c, best)) best = i;
  return best;
}
static int64_t running_sum(int r, int c) {
  int64_t s = 0;
  for (int i = 0; i <= c; i++) s += f(r, i);
  return s;
}
static int64_t running_largest(int r, int c) {
  int64_t s = f(r, 0);
  for (int i = 1; i <= c; i++) s = AT_MAX(s, f(r, i));
  return s;
}
static int64_t occurrence(int r, int c) {
  int64_t n = 0;
  for (int i = 0; i <= c; i++) n += (f(0, i) & 3) == (f(0, c) & 3);
  return n;
}
// Of 37 different keys; `first` is added to them.
static int64_t sorted_from(int c, int64_t first) {
  for (int i = 0; i < C; i++) {
    int less = 0;
    for (int k = 0; k < C; k++)
      less += (uint32_t)(f(0, k) + first) < (uint32_t)(f(0, i) + first);
    if (less == c) return f(0, i);
  }
  return SAMPLE_UNTOUCHED_ELEMENT;
}
DEF(sorted, sorted_from(c, 100))
// Integers are compared without their sign.
DEF(sorted_unsigned, sorted_from(c, 0))
DEF(crossed_back, f(r, (2 * C - c * 2 + r) % C))
static int64_t product(int r, int c) {
  int64_t s = 1;
  for (int k = 0; k < C; k++) s += f(r, k) % 4 * (f(c, k) % 4);
  return s;
}

// ---- The table
#define ALL "i32 f32 bf16 i16 i8"
#define WORDS "i32 f32"
#define V "!5x37x@"
#define M "&5x37x@"
#define I32(name, n) \
  "%" name " = 'arith.constant'() {value = " n " : i32} : () -> i32\n"
#define SPLAT(name, n, type)                                     \
  "%" name " = 'arith.constant'() {value = dense<" n "> : " type \
  "} : () "                                                      \
  "-> " type "\n"
#define DMA_SEM "memref<!tpu.dma_semaphore, #tpu.memory_space<semaphore_mem>>"
#define SEM "memref<!tpu.semaphore, #tpu.memory_space<semaphore_mem>>"
#define WITH_SEM(type, lines)                                            \
  "'tpu.region'() ({\n%sem = 'tpu.sem_alloc'() : () -> " type "\n" lines \
  "'tpu.yield'() : () -> ()\n}) : () -> ()\n"
#define STORE_X \
  "'vector.store'(%x, %o, %c0, %c0) : (" V ", " M ", index, index) -> ()\n"
// A number in every element of %v.
#define FILLED(value) \
  "%v = 'vector.broadcast'(%" value ") : (i32) -> !5x37xi32\n"
#define REDUCED(kind, dims, from, to)                                  \
  "%v = 'vector.multi_reduction'(%x, %acc) {kind = #vector.kind<" kind \
  ">, reduction_dims = [" dims "]} : (" from ", " to ") -> " to "\n"
#define SMALL                                                   \
  SPLAT("four", "4", "!5x37xi32")                               \
  "%s4 = 'arith.remsi'(%x, %four) : (!5x37xi32, !5x37xi32) -> " \
  "!5x37xi32\n%y = 'arith.sitofp'(%s4) : (!5x37xi32) -> !5x37xf32\n"

const sample samples[] = {
    {"arith.constant", "i32 i16 i8", R, C, seven, .lines = SPLAT("v", "7", V)},
    {"arith.constant", "f32 bf16", R, C, seven, .lines = SPLAT("v", "7.0", V)},
    {"vector.load", ALL, 1, C, row_3,
     .lines = "%v = 'vector.load'(%in, %c3, %c0) : (" M
              ", index, index) -> !1x37x@\n"},
    {"vector.load", "i32", 1, 1, NULL,
     .lines = "%v = 'vector.load'(%in, %c5, %c0) : (" M
              ", index, index) -> !1x1x@\n",
     ENDS, "dim 0: 5 + 1 of 5, ref 1"},
    {"vector.load", "i32", 6, 1, NULL,
     .lines = "%v = 'vector.load'(%in, %c0, %c0) : (" M
              ", index, index) -> !6x1x@\n",
     INVALID, "box of 6 leaves a dimension of 5"},
    {"vector.store", ALL, R, C, row_1_at_3,
     .lines = "%y = 'vector.load'(%in, %c1, %c0) : (" M
              ", index, index) -> !1x37x@\n'vector.store'(%y, %o, %c3, %c0) : "
              "(!1x37x@, " M ", index, index) -> ()\n"},
    {"vector.broadcast", ALL, R, C, row_3,
     .lines =
         "%y = 'vector.extract'(%x) {static_position = array<i64: 3>} : (" V
         ") -> !37x@\n%v = 'vector.broadcast'(%y) : (!37x@) -> " V "\n"},
    {"vector.broadcast", "i32", 2, C, NULL,
     .lines = "%v = 'vector.broadcast'(%x) : (" V ") -> !2x37x@\n", INVALID,
     "dimension mismatch (5 vs. 2)"},
    {"vector.shape_cast", ALL, C, R, flat,
     .lines = "%v = 'vector.shape_cast'(%x) : (" V ") -> !37x5x@\n"},
    {"vector.extract", "i32 f32", R, C, number,
     .lines =
         "%y = 'vector.extract'(%x) {static_position = array<i64: 2, 36>} : (" V
         ") -> @\n%v = 'vector.broadcast'(%y) : (@) -> " V "\n"},
    {"vector.extract", "i32", 0, C, NULL,
     .lines =
         "%v = 'vector.extract'(%x) {static_position = array<i64: 5>} : (" V
         ") -> !37x@\n",
     INVALID, "position leaves dimension 0"},
    {"vector.extract_strided_slice", ALL, 3, 6, part,
     .lines =
         "%v = 'vector.extract_strided_slice'(%x) {offsets = [1, 30], sizes = "
         "[3, 6], strides = [1, 1]} : (" V ") -> !3x6x@\n"},
    {"vector.extract_strided_slice", "i32", 3, 8, NULL,
     .lines =
         "%v = 'vector.extract_strided_slice'(%x) {offsets = [1, 30], sizes = "
         "[3, 8], strides = [1, 1]} : (" V ") -> !3x8x@\n",
     INVALID, "leaves dimension 1 of its source"},
    {"vector.multi_reduction", "i32", 0, C, sum_of_column,
     .lines = SPLAT("acc", "10", "!37x@") REDUCED("add", "0", V, "!37x@")},
    {"vector.multi_reduction", "f32", 0, C, sum_of_column,
     .lines = SPLAT("acc", "10.0", "!37x@") REDUCED("add", "0", V, "!37x@")},
    {"vector.multi_reduction", "i32", 0, R, largest_of_row,
     .lines =
         SPLAT("acc", "-2147483648", "!5x@") REDUCED("maxsi", "1", V, "!5x@")},
    {"vector.multi_reduction", "f32 bf16", 0, R, largest_of_row,
     .lines =
         SPLAT("acc", "-100.0", "!5x@") REDUCED("maximumf", "1", V, "!5x@")},
    {"vector.multi_reduction", "i32", 0, C, least_of_column,
     .lines = SPLAT("acc", "20", "!37x@") REDUCED("minsi", "0", V, "!37x@")},
    {"vector.multi_reduction", "i32", 0, C, product_of_column,
     .lines = SPLAT("acc", "3", "!37x@") REDUCED("mul", "0", V, "!37x@")},
    {"vector.multi_reduction", "i32", 0, C, and_of_column,
     .lines = SPLAT("acc", "-1", "!37x@") REDUCED("and", "0", V, "!37x@")},
    {"vector.multi_reduction", "i32", 0, C, or_of_column,
     .lines = SPLAT("acc", "0", "!37x@") REDUCED("or", "0", V, "!37x@")},
    {"vector.multi_reduction", "i32", 0, C, xor_of_column,
     .lines = SPLAT("acc", "10", "!37x@") REDUCED("xor", "0", V, "!37x@")},
    {"vector.bitcast", "i32", R, C, same,
     .lines =
         "%y = 'vector.bitcast'(%x) : (" V
         ") -> !5x74xi16\n%v = 'vector.bitcast'(%y) : (!5x74xi16) -> " V "\n"},
    {"vector.transpose", ALL, C, R, turned,
     .lines =
         "%v = 'vector.transpose'(%x) {permutation = array<i64: 1, 0>} : (" V
         ") -> !37x5x@\n"},
    {"vector.insert", ALL, R, C, put,
     .lines =
         "%y = 'vector.extract'(%x) {static_position = array<i64: 1>} : (" V
         ") -> !37x@\n%v = 'vector.insert'(%y, %x) {static_position = "
         "array<i64: "
         "4>} : (!37x@, " V ") -> " V "\n"},
    {"memref.load", "i32", R, C, seven,
     .lines =
         "%y = 'memref.load'(%s, %c4) : ($8xi32, index) -> i32\n" FILLED("y")},
    {"memref.load", "i32", R, C, NULL,
     .lines =
         "%y = 'memref.load'(%s, %c8) : ($8xi32, index) -> i32\n" FILLED("y"),
     ENDS, "dim 0: 8 + 1 of 8, ref 3"},
    {"memref.store", "i32", R, C, seven,
     .lines =
         "%y = 'memref.load'(%s, %c4) : ($8xi32, index) -> i32\n"
         "'memref.store'(%y, %s, %c0) : (i32, $8xi32, index) -> ()\n"
         "%z = 'memref.load'(%s, %c0) : ($8xi32, index) -> i32\n" FILLED("z")},
    {"memref.alloca", WORDS, R, C, same,
     .lines =
         "'tpu.region'() ({\n%m = 'memref.alloca'() {operandSegmentSizes = "
         "array<i32: 0, 0>} : () -> " M
         "\n'vector.store'(%x, %m, %c0, %c0) : (" V ", " M
         ", index, index) -> ()\n%y = 'vector.load'(%m, %c0, %c0) : (" M
         ", index, index) -> " V "\n'vector.store'(%y, %o, %c0, %c0) : (" V
         ", " M
         ", index, index) -> ()\n'tpu.yield'() : () -> ()\n}) : () -> ()\n"},
    {"scf.if", "i32", R, C, branch,
     .lines =
         "'scf.for'(%c0, %c5, %c1) ({\n^bb0(%i: index):\n"
         "%y = 'vector.load'(%in, %i, %c0) : (" M
         ", index, index) -> !1x37xi32\n"
         "%p = 'arith.cmpi'(%i, %c2) {predicate = 2 : i64} : (index, index) -> "
         "i1\n%n = 'scf.if'(%p) ({\n" I32(
             "h",
             "50") "'scf.yield'(%h) : (i32) -> "
                   "()\n}, {\n" I32(
                       "l",
                       "-50") "'scf.yield'(%l) : (i32) -> ()\n}) : (i1) "
                              "-> i32\n%b = 'vector.broadcast'(%n) : (i32) -> "
                              "!1x37xi32\n"
                              "%z = 'arith.addi'(%y, %b) : (!1x37xi32, "
                              "!1x37xi32) "
                              "-> !1x37xi32\n"
                              "'vector.store'(%z, %o, %i, %c0) : (!1x37xi32, " M
                              ", index, index) -> ()\n'scf.yield'() : () -> "
                              "()\n}) "
                              ": (index, index, "
                              "index) -> ()\n"},
    {"scf.for", "i32", R, C, loop,
     .lines = SPLAT(
         "z", "0",
         "!5x37xi32") "%v = 'scf.for'(%c0, %c3, %c1, %z) ({\n^bb0(%i: index, "
                      "%old: "
                      "!5x37xi32):\n%n = 'arith.index_cast'(%i) : (index) -> "
                      "i32\n"
                      "%b = 'vector.broadcast'(%n) : (i32) -> !5x37xi32\n"
                      "%a = 'arith.addi'(%old, %x) : (!5x37xi32, !5x37xi32) "
                      "-> !5x37xi32\n"
                      "%d = 'arith.addi'(%a, %b) : (!5x37xi32, !5x37xi32) -> "
                      "!5x37xi32\n"
                      "'scf.yield'(%d) : (!5x37xi32) -> ()\n}) : (index, "
                      "index, index, "
                      "!5x37xi32) -> !5x37xi32\n"},
    {"scf.while", "i32", R, C, doubled,
     .lines = I32("one", "1")
         I32("most", "40") "%n = 'scf.while'(%one) ({\n^bb0(%a: i32):\n%go = "
                           "'arith.cmpi'(%a, "
                           "%most) {predicate = 2 : i64} : (i32, i32) -> "
                           "i1\n'scf.condition'(%go, "
                           "%a) : (i1, i32) -> ()\n}, {\n^bb0(%b: i32):\n%d = "
                           "'arith.addi'(%b, %b) "
                           ": (i32, i32) -> i32\n'scf.yield'(%d) : (i32) -> "
                           "()\n}) : (i32) -> i32\n"
                           "%w = 'vector.broadcast'(%n) : (i32) -> !5x37xi32\n"
                           "%v = 'arith.addi'(%x, %w) : (!5x37xi32, !5x37xi32) "
                           "-> !5x37xi32\n"},
    {"func.call", "i32", R, C, called,
     .lines =
         I32("n", "3") "%m = 'func.call'(%n) {callee = @g} : (i32) -> i32\n"
                       "%w = 'vector.broadcast'(%m) : (i32) -> !5x37xi32\n"
                       "%v = 'arith.addi'(%x, %w) : (!5x37xi32, !5x37xi32) -> "
                       "!5x37xi32\n"},
    {"cf.assert", "i32", R, C, same,
     .lines = "%p = 'arith.cmpi'(%c1, %c2) {predicate = 2 : i64} : (index, "
              "index) -> "
              "i1\n'cf.assert'(%p) {msg = 'not less'} : (i1) -> ()\n" STORE_X},
    {"cf.assert", "i32", R, C, NULL,
     .lines =
         "%y = 'memref.load'(%s, %c0) : ($8xi32, index) -> i32\n"
         "%p = 'arith.cmpi'(%y, %y) {predicate = 1 : i64} : (i32, i32) -> i1\n"
         "'cf.assert'(%p) {msg = 'is equal'} : (i1) -> ()\n" STORE_X,
     ENDS, "is equal"},
    {"tpu.vector_load", ALL, R, C, same,
     .lines = "%v = 'tpu.vector_load'(%in, %c0, %c0) {strides = array<i32>, "
              "operandSegmentSizes = array<i32: 1, 2, 0>} : (" M
              ", index, index) -> " V "\n"},
    {"tpu.vector_load", "i32", R, C, NULL,
     .lines =
         "%v = 'tpu.vector_load'(%in, %c0, %c0) {strides = array<i32: 2, 1>, "
         "operandSegmentSizes = array<i32: 1, 2, 0>} : (" M
         ", index, index) -> " V "\n",
     INVALID, "with strides"},
    {"tpu.vector_store", "i32", R, C, positive,
     .lines = SPLAT(
         "z", "0",
         V) "%m = 'arith.cmpi'(%x, %z) {predicate = 4 : i64} : (" V ", " V
            ") -> !5x37xi1\n'tpu.vector_store'(%x, %o, %c0, %c0, %m) "
            "{strides = "
            "array<i32>, operandSegmentSizes = array<i32: 1, 1, 2, 1>} : (" V
            ", " M ", index, index, !5x37xi1) -> ()\n"},
    {"tpu.strided_load", ALL, 3, C, loaded_by_strides,
     .lines = "%v = 'tpu.strided_load'(%in, %c0, %c0) {strides = array<i32: 2, "
              "1>} : "
              "(" M ", index, index) -> !3x37x@\n"},
    {"tpu.strided_store", ALL, R, C, every_other,
     .lines =
         "%y = 'vector.load'(%in, %c0, %c0) : (" M
         ", index, index) -> !3x37x@\n'tpu.strided_store'(%y, %o, %c0, %c0) "
         "{strides = array<i32: 2, 1>} : (!3x37x@, " M
         ", index, index) -> ()\n"},
    {"tpu.strided_store", "i32", R, C, NULL,
     .lines =
         "'tpu.strided_store'(%x, %o, %c0, %c0) {strides = array<i32: 2, 1>} : "
         "(" V ", " M ", index, index) -> ()\n",
     INVALID, "leaves dimension 0 of the memref"},
    {"tpu.vector_load_idx", WORDS, 1, C, gathered,
     .lines =
         "%l = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> "
         "!1x37xi32\n" SPLAT("m", "5", "!1x37xi32") SPLAT(
             "e", "36", "!1x37xi32") "%r = 'arith.remsi'(%l, %m) : "
                                     "(!1x37xi32, !1x37xi32) -> !1x37xi32\n"
                                     "%b = 'arith.subi'(%e, %l) : "
                                     "(!1x37xi32, !1x37xi32) -> !1x37xi32\n"
                                     "%v = 'tpu.vector_load_idx'(%in, %r, "
                                     "%b) {operandSegmentSizes = "
                                     "array<i32: 1, 2, 0>} : (" M
                                     ", !1x37xi32, !1x37xi32) -> !1x37x@\n"},
    {"tpu.vector_store_idx", WORDS, R, C, scattered,
     .lines =
         "%l = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> "
         "!1x37xi32\n" SPLAT(
             "m", "5",
             "!1x37xi32") "%r = 'arith.remsi'(%l, %m) : (!1x37xi32, !1x37xi32) "
                          "-> "
                          "!1x37xi32\n"
                          "%y = 'vector.load'(%in, %c0, %c0) : (" M
                          ", index, index) -> "
                          "!1x37x@\n'tpu.vector_store_idx'(%y, "
                          "%o, %r, %l) "
                          "{operandSegmentSizes = array<i32: 1, 1, 2, 0>} : "
                          "(!1x37x@, " M ", !1x37xi32, !1x37xi32) -> ()\n"},
    // Views.
    {"tpu.memref_slice", ALL, R, C, box,
     .lines = I32("r", "1") I32("q", "2") I32(
         "l",
         "8") "%from = 'tpu.memref_slice'(%in, %q, %l) {operandSegmentSizes = "
              "array<i32: 1, 2, 0>} : (" M ", i32, i32) -> &3x8x@\n"
              "%to = 'tpu.memref_slice'(%o, %r, %l) {operandSegmentSizes = "
              "array<i32: "
              "1, 2, 0>} : (" M ", i32, i32) -> &3x8x@\n"
              "%y = 'vector.load'(%from, %c0, %c0) : (&3x8x@, index, index) -> "
              "!3x8x@\n'vector.store'(%y, %to, %c0, %c0) : (!3x8x@, &3x8x@, "
              "index, "
              "index) -> ()\n"},
// This is the second of two subcores.
#define SHARED "memref<2x74x@, #tpu.memory_space<vmem_shared>>"
    {"tpu.shared_memref_slice", WORDS, 2, C, same,
     .lines =
         "'tpu.region'() ({\n%m = 'memref.alloca'() {operandSegmentSizes = "
         "array<i32: 0, 0>} : () -> " SHARED
         "\n%y = 'vector.load'(%in, %c0, %c0) : (" M
         ", index, index) -> !2x37x@\n%at = 'arith.constant'() {value = 37 : "
         "index} : () -> index\n'vector.store'(%y, %m, %c0, %at) : "
         "(!2x37x@, " SHARED
         ", index, index) -> ()\n%q = 'tpu.shared_memref_slice'(%m) : (" SHARED
         ") -> &2x37x@\n%z = 'vector.load'(%q, %c0, %c0) : (&2x37x@, "
         "index, index) -> !2x37x@\n'vector.store'(%z, %o, %c0, %c0) : "
         "(!2x37x@, &2x37x@, index, index) -> ()\n'tpu.yield'() : () -> ()\n}) "
         ": "
         "() -> ()\n"},
    {"tpu.memref_squeeze", ALL, 1, C, row_3,
     .lines = I32("r", "3") I32(
         "z",
         "0") "%from = 'tpu.memref_slice'(%in, %r, %z) {operandSegmentSizes = "
              "array<i32: 1, 2, 0>} : (" M ", i32, i32) -> &1x37x@\n"
              "%q = 'tpu.memref_squeeze'(%from) : (&1x37x@) -> &37x@\n"
              "%y = 'vector.load'(%q, %c0) : (&37x@, index) -> !37x@\n"
              "%v = 'vector.shape_cast'(%y) : (!37x@) -> !1x37x@\n"},
    {"tpu.memref_squeeze", "i32", R, C, NULL,
     .lines = "%q = 'tpu.memref_squeeze'(%in) : (" M ") -> &37x@\n" STORE_X,
     INVALID, "only dimensions of size 1 go"},
    {"tpu.memref_reshape", ALL, C, R, flat,
     .lines =
         "%q = 'tpu.memref_reshape'(%in) : (" M
         ") -> &37x5x@\n%v = 'vector.load'(%q, %c0, %c0) : (&37x5x@, index, "
         "index) -> !37x5x@\n"},
    {"tpu.memref_bitcast", WORDS, R, C, same,
     .lines = "%q = 'tpu.memref_bitcast'(%in) : (" M
              ") -> &5x37xi32\n%y = 'vector.load'(%q, %c0, %c0) : (&5x37xi32, "
              "index, "
              "index) -> !5x37xi32\n%v = 'tpu.bitcast'(%y) : (!5x37xi32) -> " V
              "\n"},
    {"tpu.reinterpret_cast", ALL, R, C, same,
     .lines =
         "%q = 'tpu.reinterpret_cast'(%in) {operandSegmentSizes = array<i32: "
         "1, "
         "0, 0, 0>} : (" M ") -> " M "\n%v = 'vector.load'(%q, %c0, %c0) : (" M
         ", index, index) -> " V "\n"},
    {"tpu.assume_layout", ALL, R, C, same,
     .lines = "%v = 'tpu.assume_layout'(%x) : (" V ") -> " V "\n"},
    {"tpu.erase_memref_layout", ALL, R, C, same,
     .lines = "%q = 'tpu.erase_memref_layout'(%in) : (" M ") -> " M
              "\n%v = 'vector.load'(%q, %c0, %c0) : (" M ", index, index) -> " V
              "\n"},
    // Elements.
    {"tpu.iota", "i32", R, C, lane,
     .lines =
         "%v = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> !5x37xi32\n"},
    {"tpu.iota", "i32", R, C, both,
     .lines = "%v = 'tpu.iota'() {dimensions = array<i32: 0, 1>} : () -> "
              "!5x37xi32\n"},
    {"tpu.iota", "i32", R, C, NULL,
     .lines =
         "%v = 'tpu.iota'() {dimensions = array<i32: 2>} : () -> !5x37xi32\n",
     INVALID, "in range [0, 2)"},
    {"tpu.bitcast", "bf16 i16", 4, C, same,
     .lines =
         "%w = 'vector.load'(%in, %c0, %c0) : (" M
         ", index, index) -> !4x37x@\n%y = 'tpu.bitcast'(%w) : (!4x37x@) -> "
         "!2x37xi32\n%v = 'tpu.bitcast'(%y) : (!2x37xi32) -> !4x37x@\n"},
    {"tpu.assume_multiple", "i32", R, C, seven,
     .lines = "%y = 'memref.load'(%s, %c4) : ($8xi32, index) -> i32\n"
              "%z = 'tpu.assume_multiple'(%y) {multiple = 7 : i32} : (i32) -> "
              "i32\n" FILLED("z")},
#define PACK(format)                                                    \
  "%a = 'vector.load'(%in, %c0, %c0) : (" M                             \
  ", index, index) -> !2x37x@\n%b = 'vector.load'(%in, %c2, %c0) : (" M \
  ", index, index) -> !2x37x@\n%aw = 'arith.extsi'(%a) : (!2x37x@) -> " \
  "!2x37xi32\n%bw = 'arith.extsi'(%b) : (!2x37x@) -> !2x37xi32\n%v = "  \
  "'tpu.pack_subelements'(%aw, %bw) {positions = array<i32: 0, 1>, "    \
  "pack_format = #tpu.pack_format<" format                              \
  ">} : (!2x37xi32, !2x37xi32) -> !4x37x@\n"
#define UNPACK(index, format)                                              \
  "%a = 'vector.load'(%in, %c0, %c0) : (" M                                \
  ", index, index) -> !4x37x@\n%w = 'tpu.unpack_subelements'(%a) {index "  \
  "= " index " : i32, pack_format = #tpu.pack_format<" format              \
  ">} : (!4x37x@) -> !2x37xi32\n%v = 'arith.trunci'(%w) : (!2x37xi32) -> " \
  "!2x37x@\n"
    {"tpu.pack_subelements", "i16", 4, C, same, .lines = PACK("compressed")},
    {"tpu.pack_subelements", "i16", 4, C, packed, .lines = PACK("interleaved")},
    {"tpu.unpack_subelements", "i16", 2, C, same,
     .lines = UNPACK("0", "compressed")},
    {"tpu.unpack_subelements", "i16", 2, C, unpacked,
     .lines = UNPACK("1", "interleaved")},
    {"tpu.unpack_subelements", "i16", 2, C, NULL,
     .lines = UNPACK("2", "interleaved"), INVALID,
     "Index must be between 0 and the packing factor"},
    {"tpu.create_mask", "i32", R, C, in_window,
     .lines =
         "%l1 = 'arith.constant'() {value = 30 : index} : () -> index\n"
         "%h1 = 'arith.constant'() {value = 36 : index} : () -> index\n" SPLAT(
             "z", "0",
             V) "%m = 'tpu.create_mask'(%c1, %l1, %c4, %h1) : (index, "
                "index, index, "
                "index) -> !5x37xi1\n%v = 'arith.select'(%m, %x, %z) : "
                "(!5x37xi1, " V ", " V ") -> " V "\n"},
    // Movement.
    {"tpu.concatenate", ALL, 2 * R, C, twice,
     .lines = "%v = 'tpu.concatenate'(%x, %x) {dimension = 0 : i32} : (" V
              ", " V ") -> !10x37x@\n"},
    {"tpu.concatenate", ALL, R, 2 * C, beside,
     .lines = "%v = 'tpu.concatenate'(%x, %x) {dimension = 1 : i32} : (" V
              ", " V ") -> !5x74x@\n"},
    {"tpu.concatenate", "i32", R, C, NULL,
     .lines = "%v = 'tpu.concatenate'(%x, %x) {dimension = 0 : i32} : (" V
              ", " V ") -> " V "\n",
     INVALID, "sizes do not add up"},
    {"tpu.repeat", ALL, 2 * R, C, twice,
     .lines =
         "%v = 'tpu.repeat'(%x) {dimension = 0 : i32, times = 2 : i32} : (" V
         ") -> !10x37x@\n"},
    {"tpu.repeat", "i32", R, C, NULL,
     .lines =
         "%y = 'tpu.repeat'(%x) {dimension = 0 : i32, times = 0 : i32} : (" V
         ") -> !0x37x@\n" STORE_X,
     INVALID, "must be a vector of rank 1 or more"},
    {"tpu.reshape", ALL, C, R, flat,
     .lines = "%v = 'tpu.reshape'(%x) : (" V ") -> !37x5x@\n"},
    {"tpu.transpose", ALL, C, R, turned,
     .lines = "%v = 'tpu.transpose'(%x) {permutation = array<i64: 1, 0>} : (" V
              ") -> !37x5x@\n"},
    {"tpu.transpose", "i32", C, R, NULL,
     .lines = "%v = 'tpu.transpose'(%x) {permutation = array<i64: 1, 1>} : (" V
              ") -> !37x5x@\n",
     INVALID, "is not a permutation"},
    {"tpu.dynamic_rotate", ALL, R, C, down,
     .lines = I32(
         "n", "2") "%v = 'tpu.dynamic_rotate'(%x, %n) {dimension = 0 : i32} "
                   ": (" V ", i32) -> " V "\n"},
    {"tpu.dynamic_rotate", WORDS, R, C, slanted,
     .lines = I32(
         "n", "2") "%v = 'tpu.dynamic_rotate'(%x, %n) {dimension = 1 : i32, "
                   "stride = 1 : i32, stride_dimension = 0 : i32} : (" V
                   ", i32) -> " V "\n"},
    {"tpu.gather", ALL, 4, C, picked,
     .lines = "%v = 'tpu.gather'(%x) {dimension = 0 : i32, indices = "
              "array<i32: 4, 0, "
              "4, 2>} : (" V ") -> !4x37x@\n"},
    {"tpu.gather", "i32", 1, C, NULL,
     .lines = "%v = 'tpu.gather'(%x) {dimension = 0 : i32, indices = "
              "array<i32: 5>} : "
              "(" V ") -> !1x37x@\n",
     INVALID, "index out of range"},
    {"tpu.gather", "i32", 1, 40, NULL,
     .lines = "%v = 'tpu.gather'(%x) {dimension = 0 : i32, indices = "
              "array<i32: 4>} : "
              "(" V ") -> !1x40x@\n",
     INVALID, "does not fit its result"},
    {"tpu.dynamic_gather", WORDS, R, C, crossed,
     .lines =
         "%l = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> !5x37xi32\n"
         "%r = 'tpu.iota'() {dimensions = array<i32: 0>} : () -> "
         "!5x37xi32\n" SPLAT(
             "three", "3",
             "!5x37xi32") "%a = 'arith.muli'(%l, %three) : "
                          "(!5x37xi32, !5x37xi32) -> "
                          "!5x37xi32\n%i = 'arith.addi'(%a, %r) : "
                          "(!5x37xi32, !5x37xi32) -> "
                          "!5x37xi32\n%v = 'tpu.dynamic_gather'(%x, "
                          "%i) {dimensions = array<i32: "
                          "1>} : (" V ", !5x37xi32) -> " V "\n"},
    {"tpu.dynamic_gather", WORDS, R, C, crossed_back,
     .lines =
         "%l = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> !5x37xi32\n"
         "%r = 'tpu.iota'() {dimensions = array<i32: 0>} : () -> "
         "!5x37xi32\n" SPLAT(
             "two", "-2",
             "!5x37xi32") "%a = 'arith.muli'(%l, %two) : (!5x37xi32, "
                          "!5x37xi32) -> "
                          "!5x37xi32\n%i = 'arith.addi'(%a, %r) : (!5x37xi32, "
                          "!5x37xi32) -> "
                          "!5x37xi32\n%v = 'tpu.dynamic_gather'(%x, %i) "
                          "{dimensions = array<i32: "
                          "1>} : (" V ", !5x37xi32) -> " V "\n"},
    // Reductions, scans, sorts.
    {"tpu.all_reduce", "i32", R, C, sum_of_row,
     .lines = SMALL "%v = 'tpu.all_reduce'(%s4) {dim = 1 : i64, kind = "
                    "#tpu.reduction_kind<sum>} : (!5x37xi32) -> !5x37xi32\n"},
    {"tpu.all_reduce", WORDS, R, C, sum_of_whole_column,
     .lines = "%v = 'tpu.all_reduce'(%x) {dim = 0 : i64, kind = "
              "#tpu.reduction_kind<sum>} : (" V ") -> " V "\n"},
    {"tpu.reduce_index", "f32", 0, R, place_of_largest,
     .lines = "%v = 'tpu.reduce_index'(%x) {axis = 1 : i32, kind = "
              "#tpu.reduction_kind<arg_max>} : (" V ") -> !5xi32\n"},
    {"tpu.reduce_index", "f32", 0, R, place_of_least,
     .lines = "%v = 'tpu.reduce_index'(%x) {axis = 1 : i32, kind = "
              "#tpu.reduction_kind<arg_min>} : (" V ") -> !5xi32\n"},
    {"tpu.reduce_index", "f32", 0, R, NULL,
     .lines = "%v = 'tpu.reduce_index'(%x) {axis = 1 : i32, kind = "
              "#tpu.reduction_kind<sum>} : (" V ") -> !5xi32\n",
     INVALID, "must be arg_max or arg_min"},
    {"tpu.scan", WORDS, R, C, running_sum,
     .lines = "%v = 'tpu.scan'(%x) {kind = #tpu.reduction_kind<sum>} : (" V
              ") -> " V "\n"},
    {"tpu.scan", "i32", R, C, running_largest,
     .lines = "%v = 'tpu.scan'(%x) {kind = #tpu.reduction_kind<maxsi>} : (" V
              ") -> " V "\n"},
    {"tpu.scan_count", "i32", 0, C, occurrence,
     .lines =
         "%y = 'vector.extract'(%x) {static_position = array<i64: 0>} : (" V
         ") -> !37xi32\n" SPLAT("three", "3", "!37xi32") SPLAT(
             "on", "true", "!37xi1") "%k = 'arith.andi'(%y, %three) : "
                                     "(!37xi32, !37xi32) -> !37xi32\n"
                                     "%last, %v = 'tpu.scan_count'(%on, %k) "
                                     ": (!37xi1, !37xi32) -> (!37xi1, "
                                     "!37xi32)\n"},
#define SORT                                                            \
  "%y = 'vector.extract'(%x) {static_position = array<i64: 0>} : (" V   \
  ") -> !37x@\n%m, %v, %w = 'tpu.sort'(%y, %y) {descending = false} : " \
  "(!37x@, !37x@) -> (!37xi1, !37x@, !37x@)\n"
    {"tpu.sort", "f32", 0, C, sorted, .lines = SORT},
    {"tpu.sort", "i32", 0, C, sorted_unsigned, .lines = SORT},
    // Products.
    {"tpu.matmul", "i32", R, R, product,
     .lines = SMALL SPLAT(
         "one", "1.0",
         "!5x5xf32") "%p = 'tpu.matmul'(%y, %y, %one) {dimension_numbers = "
                     "#tpu.dot_dimension_numbers<[1], [1], [0], [0], [0, 0, 1, "
                     "0], [], []>, "
                     "transpose_lhs = false, transpose_rhs = false} : "
                     "(!5x37xf32, !5x37xf32, "
                     "!5x5xf32) -> !5x5xf32\n%v = 'arith.fptosi'(%p) : "
                     "(!5x5xf32) -> "
                     "!5x5xi32\n"},
#define MXU(pop)                                                      \
  SMALL                                                               \
  "'tpu.matmul_push_rhs'(%y) {mxu_index = 0 : i32, staging_register " \
  "= 0 : i32, transpose = true} : (!5x37xf32) -> ()\n"                \
  "'tpu.matmul_acc_lhs'(%y) {acc = 0 : i32, mxu_index = 0 : i32, "    \
  "load_staged_rhs = 0 : i32} : (!5x37xf32) -> ()\n" pop
    {"tpu.matmul_push_rhs", "i32", R, C, NULL, .lines = MXU("") STORE_X, ENDS,
     "a sum is left in the MXU where a grid step ends: pop it before"},
    {"tpu.matmul_acc_lhs", "i32", R, C, NULL,
     .lines =
         SMALL "'tpu.matmul_acc_lhs'(%y) {acc = 0 : i32, mxu_index = 0 : i32, "
               "load_staged_rhs = 0 : i32} : (!5x37xf32) -> ()\n" STORE_X,
     REFUSED, "weights that nobody pushes"},
    {"tpu.matmul_pop", "i32", R, R, product,
     .lines = MXU(
         "%p = 'tpu.matmul_pop'() {acc = 0 : i32, mxu_index = 0 : i32} : () "
         "-> !5x5xf32\n")
         SPLAT(
             "one", "1.0",
             "!5x5xf32") "%p1 = 'arith.addf'(%p, %one) : (!5x5xf32, !5x5xf32) "
                         "-> !5x5xf32\n"
                         "%v = 'arith.fptosi'(%p1) : (!5x5xf32) -> !5x5xi32\n"},
    // Cores, semaphores, transfers.
    {"tpu.device_id", "i32", R, C, device,
     .lines = "%n = 'tpu.device_id'() : () -> i32\n" FILLED("n")},
    {"tpu.core_id", "i32", R, C, core,
     .lines = "%n = 'tpu.core_id'() : () -> i32\n" FILLED("n")},
    {"tpu.subcore_id", "i32", R, C, subcore,
     .lines = "%n = 'tpu.subcore_id'() : () -> i32\n" FILLED("n")},
    {"tpu.iteration_bound", "i32", R, C, bound,
     .lines =
         "%n = 'tpu.iteration_bound'() {dim = 0 : i32} : () -> i32\n" FILLED(
             "n")},
    {"tpu.iteration_bound", "i32", R, C, NULL,
     .lines =
         "%n = 'tpu.iteration_bound'() {dim = 1 : i32} : () -> i32\n" FILLED(
             "n"),
     REFUSED, "its dimension"},
    {"tpu.sem_alloc", "i32", R, C, same, .lines = WITH_SEM(SEM, STORE_X)},
    {"tpu.sem_barrier", "i32", R, C, count_of_semaphore,
     .lines = "%b = 'tpu.sem_barrier'() : () -> " SEM "\n"
              "%n = 'tpu.sem_read'(%b) : (" SEM ") -> i32\n" FILLED("n")},
    {"tpu.sem_read", "i32", R, C, seven,
     .lines = WITH_SEM(
         SEM,
         I32("n",
             "7") "'tpu.sem_signal'(%sem, %n) {operandSegmentSizes = "
                  "array<i32: 1, 1, 0, "
                  "0, 0>} : (" SEM
                  ", i32) -> ()\n%k = 'tpu.sem_read'(%sem) : (" SEM
                  ") -> i32\n%w = 'vector.broadcast'(%k) : (i32) -> !5x37xi32\n"
                  "'vector.store'(%w, %o, %c0, %c0) : (!5x37xi32, " M
                  ", index, index) -> ()\n'tpu.sem_wait'(%sem, %n) : (" SEM
                  ", i32) -> ()\n")},
    {"tpu.sem_wait", "i32", R, C, NULL,
     .lines = WITH_SEM(SEM, I32("n", "7") "'tpu.sem_wait'(%sem, %n) : (" SEM
                                          ", i32) -> ()\n" STORE_X),
     ENDS, "waits for ever"},
    {"tpu.sem_signal", "i32", R, C, same,
     .lines = WITH_SEM(
         SEM, I32("n", "7") "'tpu.sem_signal'(%sem, %n) {operandSegmentSizes = "
                            "array<i32: 1, 1, 0, "
                            "0, 0>} : (" SEM
                            ", i32) -> ()\n'tpu.sem_wait'(%sem, %n) : (" SEM
                            ", i32) -> ()\n" STORE_X)},
    {"tpu.barrier", "i32", R, C, same,
     .lines = "'tpu.barrier'(%c3) : (index) -> ()\n" STORE_X,
     .told = "barrier 3"},
    {"tpu.enqueue_dma", WORDS, R, C, same,
     .lines = WITH_SEM(
         DMA_SEM,
         "'tpu.enqueue_dma'(%in, %o, %sem) {operandSegmentSizes = array<i32: "
         "1, "
         "0, 1, 1, 0, 0, 0>, priority = 0 : i32, strict_ordering = false} : (" M
         ", " M ", " DMA_SEM ") -> ()\n"
         "'tpu.wait_dma2'(%sem, %in, %o) {operandSegmentSizes = array<i32: 1, "
         "1, "
         "1, 0, 0>, strict_ordering = false} : (" DMA_SEM ", " M ", " M
         ") -> ()\n")},
    {"tpu.wait_dma2", "i32", R, C, NULL,
     .lines = WITH_SEM(DMA_SEM,
                       "'tpu.wait_dma2'(%sem, %in, %o) {operandSegmentSizes = "
                       "array<i32: 1, 1, "
                       "1, 0, 0>, strict_ordering = false} : (" DMA_SEM ", " M
                       ", " M ") -> ()\n"),
     ENDS, "waits for ever"},
    {"tpu.wait_dma", "bf16 i8", R, C, same,
     .lines = WITH_SEM(
         DMA_SEM,
         "'tpu.enqueue_dma'(%in, %o, %sem) {operandSegmentSizes = array<i32: "
         "1, "
         "0, 1, 1, 0, 0, 0>, priority = 0 : i32, strict_ordering = false} : (" M
         ", " M ", " DMA_SEM ") -> ()\n"
         "'tpu.wait_dma'(%in, %o, %sem) {operandSegmentSizes = array<i32: 1, "
         "0, "
         "1, 1, 0, 0, 0>, priority = 0 : i32, strict_ordering = false} : (" M
         ", " M ", " DMA_SEM ") -> ()\n")},
#define ROWS_OF_TABLE                                                        \
  "%of = 'tpu.memref_slice'(%idx, %z) {operandSegmentSizes = array<i32: 1, " \
  "1, 0>} : (&4xi32, i32) -> &4xi32\n"
    {"tpu.enqueue_indirect_dma", WORDS, 4, C, rows_by_index,
     .lines = WITH_SEM(
         DMA_SEM,
         "'tpu.enqueue_indirect_dma'(%in, %o, %idx, %sem) {add = false} : (" M
         ", &4x37x@, &4xi32, " DMA_SEM ") -> ()\n"
         "'tpu.wait_indirect_dma'(%sem, %in, %o) : (" DMA_SEM ", " M
         ", &4x37x@) -> ()\n")},
    {"tpu.wait_indirect_dma", "i32", R, C, NULL,
     .lines =
         WITH_SEM(DMA_SEM, "'tpu.wait_indirect_dma'(%sem, %in, %o) : (" DMA_SEM
                           ", " M ", " M ") -> ()\n"),
     ENDS, "waits for ever"},
    {"tpu.fetch_and_add_sync", "i32", R, C, old_and_new,
     .lines = I32("n", "7") I32("z", "0") I32(
         "h",
         "100") "%old = 'tpu.fetch_and_add_sync'(%s, %c3, %n, %z) : ($8xi32, "
                "index, "
                "i32, i32) -> i32\n%k = 'memref.load'(%s, %c3) : ($8xi32, "
                "index) -> "
                "i32\n%a = 'arith.muli'(%old, %h) : (i32, i32) -> i32\n"
                "%b = 'arith.addi'(%a, %k) : (i32, i32) -> i32\n" FILLED("b")},
    // Structure, traces, random numbers.
    {"tpu.region", WORDS, R, C, same,
     .lines = "%v = 'tpu.region'() ({\n'tpu.yield'(%x) : (" V
              ") -> ()\n}) : () -> " V "\n"},
    {"tpu.trace", WORDS, R, C, same,
     .lines = "%v = 'tpu.trace'() ({\n'tpu.yield'(%x) : (" V
              ") -> ()\n}) {message = 'm', level = 1 : i32} : () -> " V "\n"},
    {"tpu.trace_start", "i32", R, C, same,
     .lines = "'tpu.trace_start'() {message = 'part', level = 1 : i32} : () -> "
              "()\n" STORE_X,
     .told = "begin part"},
    {"tpu.trace_stop", "i32", R, C, same,
     .lines = "'tpu.trace_start'() {message = 'part', level = 1 : i32} : () -> "
              "()\n" STORE_X "'tpu.trace_stop'() : () -> ()\n",
     .told = "end"},
    {"tpu.trace_value", "i32", R, C, same,
     .lines = I32(
         "n",
         "-7") "'tpu.trace_value'(%n) {label = 'n'} : (i32) -> ()\n" STORE_X,
     .told = "n = -7"},
    {"tpu.log", "i32", R, C, same,
     .lines =
         I32("n", "-7") "'tpu.log'(%n) {tag = 'n is'} : (i32) -> ()\n" STORE_X,
     .told = "n is -7"},
    {"tpu.log_buffer", "i32", R, C, same,
     .lines =
         "'tpu.log_buffer'(%in) {shape = array<i32: 5, 37>, tag = 'in'} : (" M
         ") -> ()\n" STORE_X,
     .told = "in -40"},
    {"tpu.delay", "i32", R, C, same,
     .lines = I32("n", "100") "'tpu.delay'(%n) : (i32) -> ()\n" STORE_X,
     .told = "delay 100"},
    {"tpu.prng_set_seed_32", "i32", R, C, random_words,
     .lines =
         I32("n", "4096") "'tpu.prng_set_seed_32'(%n) : (i32) -> ()\n"
                          "%v = 'tpu.prng_random_bits'() : () -> !5x37xi32\n"},
    {"tpu.prng_random_bits", "i32", R, C, random_words,
     .lines =
         I32("n", "4096") "'tpu.prng_set_seed_32'(%n) : (i32) -> ()\n"
                          "%v = 'tpu.prng_random_bits'() : () -> !5x37xi32\n"},
    // Sizes of 0 are refused.
    {"vector.load", "i32", R, C, NULL,
     .lines = "%y = 'vector.load'(%in, %c0, %c0) : (" M
              ", index, index) -> !0x37x@\n'vector.store'(%y, %o, %c0, %c0) : "
              "(!0x37x@, " M ", index, index) -> ()\n",
     INVALID, "must be a vector"},
// No code.
#define NO_CODE(op) REFUSED, "no machine code for " op
    {"tpu.load", "i32", R, C, NULL,
     .lines = "%y = 'tpu.load'(%in, %c0, %c0) {sublane_mask = array<i1: "
              "false>} : (" M ", index, index) -> !8x128xi32\n" STORE_X,
     NO_CODE("tpu.load")},
    {"tpu.store", "i32", R, C, NULL,
     .lines = "'tpu.store'(%x, %o, %c0, %c0) {sublane_mask = array<i1: false>, "
              "operandSegmentSizes = array<i32: 1, 1, 2, 0>} : (" V ", " M
              ", index, index) -> ()\n",
     NO_CODE("tpu.store")},
    {"tpu.shuffled_load", "i32", R, C, NULL,
     .lines =
         "%y = 'tpu.shuffled_load'(%in, %c0, %c0) {sublane_mask = array<i1: "
         "true>, sublane_offsets = array<i32: 0>} : (" M
         ", index, index) -> !8x128xi32\n" STORE_X,
     NO_CODE("tpu.shuffled_load")},
    {"tpu.shuffled_store", "i32", R, C, NULL,
     .lines =
         "'tpu.shuffled_store'(%x, %o, %c0, %c0) {sublane_mask = array<i1: "
         "true>, sublane_offsets = array<i32: 0>} : (" V ", " M
         ", index, index) -> ()\n",
     NO_CODE("tpu.shuffled_store")},
    {"tpu.internal_scratch", "i32", R, C, NULL,
     .lines = "%y = 'tpu.internal_scratch'() : () -> &8x128xi32\n" STORE_X,
     NO_CODE("tpu.internal_scratch")},
    {"tpu.bitcast_vreg", "i32", R, C, NULL,
     .lines = "%y = 'tpu.bitcast_vreg'(%x) : (" V ") -> !5x37xf32\n" STORE_X,
     NO_CODE("tpu.bitcast_vreg")},
    {"tpu.pack_vmsk", "i32", R, C, NULL,
     .lines = SPLAT(
         "m", "true",
         "!8x128xi1") "%y = 'tpu.pack_vmsk'(%m, %m) {positions = array<i32: "
                      "0, 1>} : "
                      "(!8x128xi1, !8x128xi1) -> !8x128x2xi1\n" STORE_X,
     NO_CODE("tpu.pack_vmsk")},
    {"tpu.create_subelement_mask", "i32", R, C, NULL,
     .lines =
         "%y = 'tpu.create_subelement_mask'() {from = 0 : i32, to = 1 : i32} : "
         "() -> !8x128xi1\n" STORE_X,
     NO_CODE("tpu.create_subelement_mask")},
    {"tpu.broadcast_in_sublanes", "i32", R, C, NULL,
     .lines = "%y = 'tpu.broadcast_in_sublanes'(%x) {lane = 0 : i32} : (" V
              ") -> !8x128xi32\n" STORE_X,
     NO_CODE("tpu.broadcast_in_sublanes")},
    {"tpu.sublane_shuffle", "i32", R, C, NULL,
     .lines =
         "%y = 'tpu.sublane_shuffle'(%x, %x) {pattern = array<i32: 0>} : (" V
         ", " V ") -> " V "\n" STORE_X,
     NO_CODE("tpu.sublane_shuffle")},
    {"tpu.roll_vectors", "i32", R, C, NULL,
     .lines = "%y = 'tpu.roll_vectors'(%x) : (" V ") -> " V "\n" STORE_X,
     NO_CODE("tpu.roll_vectors")},
    {"tpu.unroll_vectors", "i32", R, C, NULL,
     .lines = "%y = 'tpu.unroll_vectors'(%x) : (" V ") -> " V "\n" STORE_X,
     NO_CODE("tpu.unroll_vectors")},
    {"tpu.matmul_lhs_fifo", "i32", R, C, NULL,
     .lines = "'tpu.matmul_lhs_fifo'(%x) {mxu_index = 0 : i32} : (" V
              ") -> ()\n" STORE_X,
     NO_CODE("tpu.matmul_lhs_fifo")},
    {"tpu.matmul_pop_fifo", "i32", R, C, NULL,
     .lines = "%y = 'tpu.matmul_pop_fifo'() {mxu_index = 0 : i32} : () -> " V
              "\n" STORE_X,
     NO_CODE("tpu.matmul_pop_fifo")},
};
const uint32_t num_samples = AT_LEN(samples);
