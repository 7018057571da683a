// What kernels would take on a chip: which unit, which transfers, which waits.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "base/json.h"
#include "tpu/timing.h"

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

// In g_arena.
static at_mosaic_kernel *read_kernel(const char *text) {
  at_mosaic_call call = {.payload = {(const uint8_t *)text, strlen(text)}};
  at_mosaic_kernel *k;
  at_status st = at_mosaic_read(&call, g_arena, &k);
  if (st.err) fail_msg("%s", at_status_message(st));
  return k;
}

// By target, as ATOLL_TARGET names one.
static const at_machine *machine_of(const char *target) {
  const at_machine *m;
  assert_int_equal(at_code_take(at_machine_find(at_str_of(target), &m)), 0);
  return m;
}

// Of the first program. given NULL: nothing is known beside the kernel.
static at_mosaic_timing *timing_of(const char *text, const char *target,
                                   const at_mosaic_given *given) {
  at_mosaic_timing *t;
  at_status st = at_mosaic_timing_of(read_kernel(text), 0, machine_of(target),
                                     given, g_arena, &t);
  if (st.err) fail_msg("%s", at_status_message(st));
  return t;
}

#define REF "memref<64x512xf32, #tpu.memory_space<vmem>>"

// A kernel on blocks of 64 x 512 over a grid; `in`, `out`: what the index maps
// of input and output return (%i, %j: grid ids, %z: zero).
static const char *grid_text(const char *in, const char *out,
                             const char *semantics, const char *body,
                             const char *bounds) {
  const char *map =
      "\"func.func\"() ({\n^bb0(%%i: i32, %%j: i32):\n"
      "%%z = \"arith.constant\"() {value = 0 : i32} : () -> i32\n"
      "\"func.return\"(%s) : (i32, i32) -> ()\n}) {function_type = (i32, i32) "
      "-> (i32, i32), sym_name = \"%s\"} : () -> ()\n";
  const char *text = at_arena_printf(
      g_arena,
      "\"builtin.module\"() ({\n\"func.func\"() ({\n^bb0(%%i: i32, %%j: i32, "
      "%%x: " REF ", %%o: " REF
      "):\n%%c = \"arith.constant\"() {value = 0 : index} : () -> index\n"
      "%%v = \"vector.load\"(%%x, %%c, %%c) : (" REF
      ", index, index) -> vector<64x512xf32>\n%s\n"
      "\"vector.store\"(%%w, %%o, %%c, %%c) : (vector<64x512xf32>, " REF
      ", index, index) -> ()\n\"func.return\"() : () -> ()\n}) "
      "{dimension_semantics = [%s], function_type = (i32, i32, " REF ", " REF
      ") -> (), iteration_bounds = array<i64: %s>, scalar_prefetch = 0 : "
      "i64, "
      "scratch_operands = 0 : i64, sym_name = \"k\", tpu.core_type = "
      "#tpu.core_type<tc>, window_params = [{transform_indices = @in, "
      "window_bounds = array<i64: 64, 512>}, {transform_indices = @out, "
      "window_bounds = array<i64: 64, 512>}]} : () -> ()\n%s%s}) : () -> ()\n",
      body, semantics, bounds, at_arena_printf(g_arena, map, in, "in"),
      at_arena_printf(g_arena, map, out, "out"));
  assert_non_null(text);
  return text;
}

// Over 4 x 8 steps.
static at_mosaic_timing *grid_kernel(const char *in, const char *out,
                                     const char *semantics, const char *body,
                                     const char *target) {
  return timing_of(grid_text(in, out, semantics, body, "4, 8"), target, NULL);
}

#define UNARY(op)          \
  "%w = \"" op             \
  "\"(%v) : (vector<64x51" \
  "2xf32>) -> vector<64x512xf32>"
#define BINARY(op)                                                      \
  "%w = \"" op                                                          \
  "\"(%v, %v) : (vector<64x512xf32>, vector<64x512xf32>) -> vector<64x" \
  "512xf32>"
#define ARBITRARY \
  "#tpu.dimension_semantics<arbitrary>, #tpu.dimension_semantics<arbitrary>"
#define PARALLEL \
  "#tpu.dimension_semantics<parallel>, #tpu.dimension_semantics<arbitrary>"

// Windows that move with every step, on v5e.
static at_mosaic_timing *simple(const char *body) {
  return grid_kernel("%i, %j", "%i, %j", ARBITRARY, body, "v5e");
}

// Cheap operations go to the vector unit alone, transcendental ones to the EUP
// as well, and quotients cost more on old chips.
static void classes_of_operations(void **state) {
  double cheap = simple(BINARY("arith.addf"))->units.vector;
  at_mosaic_timing *medium = simple(UNARY("math.exp"));
  double expensive = simple(UNARY("math.sin"))->units.vector;
  // 32 registers in each of 32 steps, four at a time.
  assert_true(cheap == 32 * 32 / 4.0);
  assert_true(medium->units.vector < expensive);
  assert_true(medium->units.eup == 32 * 32);  // one at a time
  assert_true(simple(BINARY("arith.addf"))->units.eup == 0);
  // v5e has no quotient in hardware that is exact enough.
  double old = simple(BINARY("arith.divf"))->units.vector;
  double new =
      grid_kernel("%i, %j", "%i, %j", ARBITRARY, BINARY("arith.divf"), "v6e")
          ->units.vector;
  assert_true(old > 2 * new);
}

// Cycles of a step that reduces its block along that axis.
static double reduction(int axis) {
  const char *shape = axis ? "64" : "512";
  const char *reduce = at_arena_printf(
      g_arena,
      "%%a = \"arith.constant\"() {value = dense<0.0> : vector<%sxf32>} : () "
      "-> "
      "vector<%sxf32>\n%%r = \"vector.multi_reduction\"(%%v, %%a) {kind = "
      "#vector.kind<add>, reduction_dims = [%d]} : (vector<64x512xf32>, "
      "vector<%sxf32>) -> vector<%sxf32>\n",
      shape, shape, axis, shape, shape);
  const char *body =
      at_arena_printf(g_arena, "%s%s", reduce, BINARY("arith.addf"));
  return simple(body)->compute;
}

// Along sublanes registers are added first; along lanes each row of them
// crosses the XLU, which what follows waits for.
static void reductions_by_axis(void **state) {
  double none = simple(BINARY("arith.addf"))->compute;
  assert_true(reduction(0) > none);
  assert_true(reduction(0) < reduction(1));
}

#define UNKNOWN "-9223372036854775808"

// Within 2 %.
static bool near(double sum, double want) {
  return sum > 0.98 * want && sum < 1.02 * want;
}

// A grid whose bounds come as operands takes what one of fixed bounds takes,
// and the formula tells.
static void bounds_that_come_as_operands(void **state) {
  const char *add = BINARY("arith.addf");
  const char *both =
      grid_text("%i, %j", "%i, %j", ARBITRARY, add, UNKNOWN ", " UNKNOWN);
  const char *neither = grid_text("%i, %j", "%i, %j", ARBITRARY, add, "4, 8");
  const at_machine *m = machine_of("v5e");
  int64_t bounds[] = {4, 8};
  at_mosaic_given given = {.bounds = bounds, .num_bounds = 2};
  at_mosaic_timing *t;
  double fixed = simple(add)->cycles;
  assert_true(timing_of(both, "v5e", &given)->cycles == fixed);
  at_status st =
      at_mosaic_timing_of(read_kernel(both), 0, m, NULL, g_arena, &t);
  assert_int_equal(at_code_take(st), AT_FAILED_PRECONDITION);

  at_mosaic_formula f;
  st = at_mosaic_formula_of(read_kernel(both), 0, m, NULL, g_arena, &f);
  assert_int_equal(at_code_take(st), 0);
  assert_int_equal(f.num_bounds, 2);
  assert_true(f.error < 0.01);
  assert_true(
      near(f.factor[0] + 4 * f.factor[1] + 8 * f.factor[2] + 32 * f.factor[3],
           fixed));

  bounds[1] = -1;  // one of them is known
  st = at_mosaic_formula_of(read_kernel(both), 0, m, &given, g_arena, &f);
  assert_int_equal(at_code_take(st), 0);
  assert_true(f.num_bounds == 1 && f.dim[0] == 1 && f.other_steps == 4);
  assert_true(near(f.factor[0] + 8 * f.factor[1], fixed));
  at_strbuf b = {0};
  at_mosaic_formula_text(&f, &b);
  assert_non_null(strstr(b.ptr, " n1 at 1500 MHz"));
  assert_non_null(strstr(b.ptr, "a step "));
  at_strbuf_free(&b);

  bounds[0] = 0;
  bounds[1] = 8;
  assert_int_equal(timing_of(both, "v5e", &given)->steps, 0);
  st = at_mosaic_formula_of(read_kernel(neither), 0, m, NULL, g_arena, &f);
  assert_int_equal(at_code_take(st), 0);
  assert_int_equal(f.num_bounds, 0);
}

// Copies of a step go side by side: two blocks take little more than one, and
// while a step has little else to do, two of its copies are on their way.
static void windows_move_side_by_side(void **state) {
  const char *add = BINARY("arith.addf");
  at_mosaic_timing *two =
      grid_kernel("%i, %j", "%i, %j", ARBITRARY, add, "v5e");
  at_mosaic_timing *one =
      grid_kernel("%i, %j", "%z, %z", ARBITRARY, add, "v5e");
  assert_true(two->hbm_bytes > 1.9 * one->hbm_bytes);
  assert_true(two->cycles > one->cycles && two->cycles < 1.2 * one->cycles);
  assert_true(two->transfer_in > one->transfer_in);
  assert_true(two->transfer_in < 1.2 * one->transfer_in);
  // Two are on their way at a time.
  double latency = 0.76e-6 * two->clock;
  assert_true(one->cycles > 16 * latency && one->cycles < 32 * latency);
}

// Work beside the copies costs little while it is short, and all of itself when
// it is long; a reduction along lanes is waited for.
static void work_overlaps_copies_in_part(void **state) {
  at_mosaic_timing *shorter = simple(BINARY("arith.addf"));
  at_mosaic_timing *longer = simple(UNARY("math.sin"));
  double more = longer->compute - shorter->compute;
  assert_true(more > 0);
  assert_true(longer->cycles > shorter->cycles);
  assert_true(longer->cycles < shorter->cycles + more);
  assert_true(longer->cycles > longer->compute);
}

// The longest part, unless that is short beside the whole time.
static void what_bounds_a_kernel(void **state) {
  at_mosaic_timing t = {.cycles = 100, .transfer_in = 60};
  assert_string_equal(at_mosaic_timing_bound(&t), "HBM reads");
  t.transfer_out = 70;
  assert_string_equal(at_mosaic_timing_bound(&t), "HBM writes");
  t.units.matrix = 80;
  assert_string_equal(at_mosaic_timing_bound(&t), "MXU");
  t.cycles = 200;
  assert_string_equal(at_mosaic_timing_bound(&t),
                      "DMA latency and pipeline fill");
}

// A grid id that an index map looks up in an array of 8 is below 8.
static void shapes_bound_a_grid(void **state) {
  const char *text =
      "\"builtin.module\"() ({\n\"func.func\"() ({\n^bb0(%i: i32, %s: "
      "memref<8xi32, #tpu.memory_space<smem>>, %x: " REF ", %o: " REF
      "):\n%c = \"arith.constant\"() {value = 0 : index} : () -> index\n"
      "%v = \"vector.load\"(%x, %c, %c) : (" REF
      ", index, index) -> vector<64x512xf32>\n"
      "\"vector.store\"(%v, %o, %c, %c) : (vector<64x512xf32>, " REF
      ", index, index) -> ()\n\"func.return\"() : () -> ()\n}) "
      "{dimension_semantics = [#tpu.dimension_semantics<arbitrary>], "
      "function_type = (i32, memref<8xi32, #tpu.memory_space<smem>>, " REF
      ", " REF ") -> (), iteration_bounds = array<i64: " UNKNOWN
      ">, scalar_prefetch = 1 : i64, scratch_operands = 0 : i64, sym_name = "
      "\"k\", tpu.core_type = #tpu.core_type<tc>, window_params = "
      "[{transform_indices = @map, window_bounds = array<i64: 64, 512>}, "
      "{transform_indices = @map, window_bounds = array<i64: 64, 512>}]} : () "
      "-> ()\n\"func.func\"() ({\n^bb0(%i: i32, %s: memref<8xi32, "
      "#tpu.memory_space<smem>>):\n%z = \"arith.constant\"() {value = 0 : "
      "i32} : () -> i32\n%k = \"arith.index_cast\"(%i) : (i32) -> index\n%m = "
      "\"memref.load\"(%s, %k) : (memref<8xi32, #tpu.memory_space<smem>>, "
      "index) -> i32\n\"func.return\"(%m, %z) : (i32, i32) -> ()\n}) "
      "{function_type = (i32, memref<8xi32, #tpu.memory_space<smem>>) -> (i32, "
      "i32), sym_name = \"map\"} : () -> ()\n}) : () -> ()\n";
  at_mosaic_kernel *k = read_kernel(text);
  at_mosaic_given given = {0};
  uint32_t found = 0;
  assert_int_equal(at_code_take(at_mosaic_bounds_at_most(
                       &k->programs[0], &given, g_arena, &found)),
                   0);
  assert_int_equal(found, 1);
  assert_int_equal(given.bounds[0], 8);
  assert_int_equal(timing_of(text, "v5e", &given)->steps, 8);

  int64_t known = 3;  // what is known stays
  given = (at_mosaic_given){.bounds = &known, .num_bounds = 1};
  assert_int_equal(at_code_take(at_mosaic_bounds_at_most(
                       &k->programs[0], &given, g_arena, &found)),
                   0);
  assert_true(found == 0 && given.bounds[0] == 3);

  // An index map that looks nothing up says nothing.
  k = read_kernel(grid_text("%i, %j", "%i, %j", ARBITRARY, BINARY("arith.addf"),
                            UNKNOWN ", 8"));
  given = (at_mosaic_given){0};
  assert_int_equal(at_code_take(at_mosaic_bounds_at_most(
                       &k->programs[0], &given, g_arena, &found)),
                   0);
  assert_true(found == 0 && given.bounds[0] == -1);
}

// A block is moved once for all steps in a row that want it.
static void windows_that_stay_do_not_move(void **state) {
  const char *add = BINARY("arith.addf");
  at_mosaic_timing *t = grid_kernel("%i, %j", "%i, %z", ARBITRARY, add, "v5e");
  assert_true(t->moves[0] == 32 && t->moves[1] == 4);
  t = grid_kernel("%z, %j", "%i, %j", ARBITRARY, add, "v5e");
  assert_true(t->moves[0] == 32);
  t = grid_kernel("%z, %z", "%i, %j", ARBITRARY, add, "v5e");
  assert_true(t->moves[0] == 1 && t->moves[1] == 32);
  double block = 64 * 512 * 4;
  assert_true(t->hbm_bytes == 33 * block);
}

// Steps follow each other without gaps, and work, waits and bubbles make up the
// time.
static void the_timeline_adds_up(void **state) {
  at_mosaic_timing *t = simple(BINARY("arith.addf"));
  assert_int_equal(t->steps, 32);
  assert_int_equal(t->num_timeline, 33);  // the last output leaves
  double before = 0;
  for (uint32_t i = 0; i < t->num_timeline; i++) {
    const at_mosaic_step *s = &t->timeline[i];
    assert_true(s->ready == before && s->start >= s->ready);
    assert_true(s->end >= s->start && s->start >= s->in_end);
    before = s->end;
  }
  assert_true(before == t->cycles);
  double sum = t->compute + t->waits + t->bubbles;
  assert_true(sum > t->cycles * .999 && sum < t->cycles * 1.001);
  assert_int_equal(t->memory.windows, 4 * 64 * 512 * 4);
}

// The two cores of a v5p chip halve a grid that is declared parallel.
static void cores_share_parallel_dimensions(void **state) {
  const char *add = BINARY("arith.addf");
  at_mosaic_timing *t = grid_kernel("%i, %j", "%i, %j", PARALLEL, add, "v5p");
  assert_int_equal(t->busy, 2);
  assert_int_equal(t->steps, 16);
  t = grid_kernel("%i, %j", "%i, %j", ARBITRARY, add, "v5p");
  assert_int_equal(t->busy, 1);
  assert_int_equal(t->steps, 32);
  at_strbuf b = {0};
  at_mosaic_timing_text(t, &b);
  assert_non_null(strstr(b.ptr, "1 of 2 cores busy"));
  // 64 x 512 floats, twice, of input and output.
  assert_non_null(strstr(b.ptr, "VMEM        512.0 KiB windows + 0.0 KiB"));
  assert_non_null(strstr(b.ptr, "scratch of 16.00 MiB\n"));
  assert_non_null(strstr(b.ptr, "28%: 8.00 MiB\n"));
  at_strbuf_free(&b);
}

// A kernel without a grid whose body is `ops`: %n is a number of SMEM, %x a
// block of VMEM; DO is what shows in the time.
static at_mosaic_timing *data_kernel(const char *ops, bool zeros) {
  const char *text = at_arena_printf(
      g_arena,
      "\"builtin.module\"() ({\n\"func.func\"() ({\n^bb0(%%s: memref<8xi32, "
      "#tpu.memory_space<smem>>, %%x: " REF
      "):\n%%c = \"arith.constant\"() {value = 0 : index} : () -> index\n"
      "%%0 = \"arith.constant\"() {value = 0 : i32} : () -> i32\n"
      "%%1 = \"arith.constant\"() {value = 1 : i32} : () -> i32\n"
      "%%4 = \"arith.constant\"() {value = 4 : i32} : () -> i32\n"
      "%%n = \"memref.load\"(%%s, %%c) : (memref<8xi32, "
      "#tpu.memory_space<smem>>, index) -> i32\n%s\n\"func.return\"() : () -> "
      "()\n}) {dimension_semantics = [], function_type = (memref<8xi32, "
      "#tpu.memory_space<smem>>, " REF
      ") -> (), scalar_prefetch = 0 : i64, scratch_operands = 0 : i64, "
      "sym_name "
      "= \"k\", tpu.core_type = #tpu.core_type<tc>} : () -> ()\n}) : () -> "
      "()\n",
      ops);
  at_mosaic_given given = {.zeros = zeros};
  return timing_of(text, "v6e", &given);
}
#define DO                                                                   \
  "\n%v = \"vector.load\"(%x, %c, %c) : (" REF                               \
  ", index, index) -> vector<64x512xf32>\n\"vector.store\"(%v, %x, %c, %c) " \
  ": (vector<64x512xf32>, " REF ", index, index) -> ()\n"
#define BLOCK (64 * 512 / 1024)  // registers

// How often DO is executed.
static double stores(const char *ops, bool zeros) {
  return data_kernel(ops, zeros)->units.store * 2 / BLOCK;  // two a cycle
}

// Branches on what memory holds are taken, or follow from zeros as in the
// compiler's own estimate; loops likewise.
static void data_are_zeros_if_asked(void **state) {
  const char *nonzero =
      "%b = \"arith.cmpi\"(%n, %0) {predicate = 1 : i64} : (i32, i32) -> i1\n"
      "\"scf.if\"(%b) ({" DO "\"scf.yield\"() : () -> ()}, {}) : (i1) -> ()";
  assert_true(stores(nonzero, false) == 1 && stores(nonzero, true) == 0);
  assert_true(data_kernel(nonzero, false)->follows_data);
  const char *zero =
      "%b = \"arith.cmpi\"(%n, %0) {predicate = 0 : i64} : (i32, i32) -> i1\n"
      "\"scf.if\"(%b) ({" DO "\"scf.yield\"() : () -> ()}, {}) : (i1) -> ()";
  assert_true(stores(zero, true) == 1);
  const char *loop =
      "%e = \"arith.addi\"(%n, %4) : (i32, i32) -> i32\n"
      "\"scf.for\"(%0, %e, %1) ({\n^bb0(%i: i32):" DO
      "\"scf.yield\"() : () -> ()}) : (i32, i32, i32) -> ()";
  assert_true(stores(loop, false) == 1 && stores(loop, true) == 4);
}

// A mask that is a constant of the program: blocks that it leaves out are not
// computed, and index maps that follow it do not move.
static void constant_masks_leave_blocks_out(void **state) {
  const char *text =
      "\"builtin.module\"() ({\n\"func.func\"() ({\n^bb0(%i: i32, %s: "
      "memref<8xi32, #tpu.memory_space<smem>>, %x: " REF ", %o: " REF
      "):\n%c = \"arith.constant\"() {value = 0 : index} : () -> index\n"
      "%0 = \"arith.constant\"() {value = 0 : i32} : () -> i32\n"
      "%k = \"arith.index_cast\"(%i) : (i32) -> index\n"
      "%n = \"memref.load\"(%s, %k) : (memref<8xi32, "
      "#tpu.memory_space<smem>>, index) -> i32\n"
      "%b = \"arith.cmpi\"(%n, %0) {predicate = 1 : i64} : (i32, i32) -> i1\n"
      "\"scf.if\"(%b) ({" DO
      "\"scf.yield\"() : () -> ()}, {}) : (i1) -> ()\n"
      "\"func.return\"() : () -> ()\n}) "
      "{dimension_semantics = [#tpu.dimension_semantics<arbitrary>], "
      "function_type = (i32, memref<8xi32, #tpu.memory_space<smem>>, " REF
      ", " REF
      ") -> (), iteration_bounds = array<i64: 8>, scalar_prefetch = 1 : i64, "
      "scratch_operands = 0 : i64, sym_name = \"k\", tpu.core_type = "
      "#tpu.core_type<tc>, window_params = [{transform_indices = @map, "
      "window_bounds = array<i64: 64, 512>}, {transform_indices = @map, "
      "window_bounds = array<i64: 64, 512>}]} : () -> ()\n\"func.func\"() "
      "({\n^bb0(%i: i32, %s: memref<8xi32, #tpu.memory_space<smem>>):\n%z = "
      "\"arith.constant\"() {value = 0 : i32} : () -> i32\n%k = "
      "\"arith.index_cast\"(%i) : (i32) -> index\n%m = "
      "\"memref.load\"(%s, %k) : (memref<8xi32, #tpu.memory_space<smem>>, "
      "index) -> i32\n\"func.return\"(%m, %z) : (i32, i32) -> ()\n}) "
      "{function_type = (i32, memref<8xi32, #tpu.memory_space<smem>>) -> (i32, "
      "i32), sym_name = \"map\"} : () -> ()\n}) : () -> ()\n";
  static const int32_t numbers[8] = {0, 1, 1, 0, 0, 0, 2, 2};
  int64_t dims[1] = {8};
  at_literal mask = {.type = {.dtype = AT_S32, .rank = 1, .dims = dims},
                     .data = numbers,
                     .bytes = sizeof numbers};
  const at_literal *constants[1] = {&mask};
  at_mosaic_timing *none = timing_of(text, "v6e", NULL);
  assert_true(none->units.store * 2 / BLOCK == 8 && none->moves[0] == 8);
  assert_true(none->follows_data);
  at_mosaic_given given = {.constants = constants, .num_constants = 1};
  at_mosaic_timing *known = timing_of(text, "v6e", &given);
  assert_true(known->units.store * 2 / BLOCK == 4 && known->moves[0] == 4);
  assert_false(known->follows_data);
  assert_true(known->cycles < none->cycles);
  constants[0] = NULL;
  assert_true(timing_of(text, "v6e", &given)->moves[0] == 8);
}

// What a loop carries is known from turn to turn, and behind it.
static void carried_numbers_are_known(void **state) {
  const char *loop =
      "%r = \"scf.for\"(%0, %4, %1, %0) ({\n^bb0(%i: i32, %a: i32):\n"
      "%b = \"arith.cmpi\"(%a, %4) {predicate = 2 : i64} : (i32, i32) -> i1\n"
      "\"scf.if\"(%b) ({" DO
      "\"scf.yield\"() : () -> ()}, {}) : (i1) -> ()\n"
      "%z = \"arith.addi\"(%a, %4) : (i32, i32) -> i32\n"
      "\"scf.yield\"(%z) : (i32) -> ()}) : (i32, i32, i32, i32) -> i32\n"
      "%f = \"arith.cmpi\"(%r, %4) {predicate = 4 : i64} : (i32, i32) -> i1\n"
      "\"scf.if\"(%f) ({" DO "\"scf.yield\"() : () -> ()}, {}) : (i1) -> ()";
  assert_true(stores(loop, false) == 2);  // in the first turn, and at the end
  assert_false(data_kernel(loop, false)->follows_data);
  const char *loop_while =
      "\"scf.while\"(%0) ({\n^bb0(%a: i32):\n"
      "%b = \"arith.cmpi\"(%a, %4) {predicate = 2 : i64} : (i32, i32) -> i1\n"
      "\"scf.condition\"(%b, %a) : (i1, i32) -> ()}, {\n^bb0(%d: i32):" DO
      "%z = \"arith.addi\"(%d, %1) : (i32, i32) -> i32\n"
      "\"scf.yield\"(%z) : (i32) -> ()}) : (i32) -> i32\n";
  assert_true(stores(loop_while, false) == 4);
}

// Thousands of turns are not looked at one by one, and counted all the same.
static void long_loops_are_counted(void **state) {
  const char *loop =
      "%m = \"arith.constant\"() {value = 1000000 : i32} : () -> i32\n"
      "\"scf.for\"(%0, %m, %1) ({\n^bb0(%i: i32):" DO
      "\"scf.yield\"() : () -> ()}) : (i32, i32, i32) -> ()";
  assert_true(near(stores(loop, false), 1e6));
}

// AT_MOSAIC_UNKNOWN_STEPS for each bound that nobody knows.
static void unknown_bounds_are_forty_with_zeros(void **state) {
  const char *text = grid_text("%i, %j", "%i, %j", ARBITRARY,
                               BINARY("arith.addf"), UNKNOWN ", 8");
  at_mosaic_given given = {.zeros = true};
  assert_int_equal(timing_of(text, "v5e", &given)->steps,
                   8 * AT_MOSAIC_UNKNOWN_STEPS);
  int64_t known = 3;
  given.bounds = &known;
  given.num_bounds = 1;
  assert_int_equal(timing_of(text, "v5e", &given)->steps, 24);
}

// A number of an object, which must be there.
static double number_of(const at_json *o, const char *name) {
  const at_json *v = at_json_get(o, name);
  if (!v || v->kind != AT_JSON_NUMBER) fail_msg("no number %s", name);
  return v->is_int ? (double)v->integer : v->number;
}

// `simple` in a call that says which window is a result.
static at_mosaic_timing *in_and_out(const char *body) {
  static const int64_t dims[] = {4 * 64, 8 * 512};
  const at_type whole = {.dtype = AT_F32, .rank = 2, .dims = dims};
  const char *text = grid_text("%i, %j", "%i, %j", ARBITRARY, body, "4, 8");
  at_mosaic_call call = {.payload = {(const uint8_t *)text, strlen(text)},
                         .operands = &whole,
                         .results = &whole,
                         .num_operands = 1,
                         .num_results = 1};
  at_mosaic_kernel *k;
  at_mosaic_timing *t;
  assert_int_equal(at_code_take(at_mosaic_read(&call, g_arena, &k)), 0);
  assert_int_equal(at_code_take(at_mosaic_timing_of(k, 0, machine_of("v5e"),
                                                    NULL, g_arena, &t)),
                   0);
  return t;
}

// Each part of the time is in one place: bodies, their waits, and what passes
// between steps are all of it. Steps follow each other without gaps.
static void time_adds_up(void **state) {
  at_mosaic_timing *t = in_and_out(BINARY("arith.addf"));
  double all = t->compute + t->waits + t->bubbles;
  assert_true(fabs(all - t->cycles) <= 1e-9 * t->cycles);
  assert_true(fabs(t->seconds * t->clock - t->cycles) <= 1e-9 * t->cycles);
  assert_int_equal(t->num_timeline, 4 * 8 + 1);
  for (uint32_t i = 0; i < t->num_timeline; i++) {
    const at_mosaic_step *s = &t->timeline[i];
    assert_int_equal(s->index, i);
    assert_true(s->start >= s->ready && s->end >= s->start);
    if (i) assert_true(s->ready == t->timeline[i - 1].end);
    // 64 x 512 floats come and go with every step; none leaves before the
    // second, none comes after the last.
    const double block = 64 * 512 * 4;
    assert_true(s->in_bytes == (i < 32 ? block : 0));
    assert_true(s->out_bytes == (i ? block : 0));
    assert_true(s->in_end >= s->in_start && s->out_end >= s->out_start);
    if (i < 32) assert_true(s->start >= s->in_end);
  }
  assert_true(t->timeline[32].end == t->cycles);
}

// The figures as JSON: every one by its name, as the report has them.
static void figures_as_json(void **state) {
  at_mosaic_timing *t = in_and_out(BINARY("arith.addf"));
  at_strbuf b = {0};
  at_json_writer w = {.out = &b};
  const at_json *j;
  at_json_begin_object(&w);
  at_mosaic_timing_json(t, &w);
  at_json_end_object(&w);
  assert_int_equal(at_code_take(at_json_parse(
                       (at_bytes){(const uint8_t *)b.ptr, b.len}, g_arena, &j)),
                   0);
  const struct {
    const char *name;
    double value;
  } rows[] = {{"seconds", t->seconds},
              {"cycles", t->cycles},
              {"steps", 32},
              {"cores_busy", 1},
              {"compute_cycles", t->compute},
              {"dma_cycles", t->transfer},
              {"dma_in_cycles", t->transfer_in},
              {"dma_out_cycles", t->transfer_out},
              {"bubble_cycles", t->bubbles},
              {"wait_cycles", t->waits},
              {"mxu_cycles", t->units.matrix},
              {"vector_cycles", t->units.vector},
              {"xlu_cycles", t->units.xlu},
              {"eup_cycles", t->units.eup},
              {"load_cycles", t->units.load},
              {"store_cycles", t->units.store},
              {"scalar_cycles", t->units.scalar},
              {"flops", t->flops},
              {"hbm_bytes", 2 * 32 * 64 * 512 * 4.0},
              // Two buffers of each window.
              {"vmem_bytes", 4 * 64 * 512 * 4.0},
              {"vmem_limit_bytes", 16 << 20}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    double have = number_of(j, rows[i].name), want = rows[i].value;
    if (fabs(have - want) > 1e-6 * fabs(want))
      fail_msg("%s: %g, not %g", rows[i].name, have, want);
  }
  at_str bound = at_json_get_str(j, "bound", AT_STR(""));
  assert_true(at_str_is(bound, at_mosaic_timing_bound(t)));
  assert_non_null(at_json_get(j, "follows_data"));
  at_strbuf_free(&b);
}

// Of Chrome's trace format: a span for each step, and for each copy one that
// says how much it moves.
static void a_trace_is_json(void **state) {
  at_strbuf b = {0};
  const at_json *j;
  at_mosaic_timing *t = in_and_out(BINARY("arith.addf"));
  at_mosaic_timing_trace(t, &b);
  at_bytes text = {(const uint8_t *)b.ptr, b.len};
  assert_int_equal(at_code_take(at_json_parse(text, g_arena, &j)), 0);
  const at_json *events = at_json_get(j, "traceEvents");
  assert_non_null(events);
  int steps = 0, copies = 0, names = 0;
  for (size_t i = 0; i < events->len; i++) {
    const at_json *e = &events->items[i];
    at_str name = at_json_get_str(e, "name", AT_STR(""));
    const at_json *args = at_json_get(e, "args");
    if (at_str_is(name, "thread_name")) {
      names++;
      continue;
    }
    assert_true(number_of(e, "dur") > 0);
    assert_true(number_of(args, "cycles") > 0);
    bool moves = at_str_starts(name, "in ") || at_str_starts(name, "out ");
    steps += at_str_starts(name, "step ");
    copies += moves;
    if (moves)
      assert_true(number_of(args, "bytes") == 64 * 512 * 4);
    else
      assert_null(at_json_get(args, "bytes"));
  }
  assert_int_equal(names, 3);
  assert_int_equal(steps, 32);
  assert_int_equal(copies, 64);
  at_strbuf_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(classes_of_operations, begin, end),
      cmocka_unit_test_setup_teardown(reductions_by_axis, begin, end),
      cmocka_unit_test_setup_teardown(bounds_that_come_as_operands, begin, end),
      cmocka_unit_test_setup_teardown(windows_move_side_by_side, begin, end),
      cmocka_unit_test_setup_teardown(work_overlaps_copies_in_part, begin, end),
      cmocka_unit_test_setup_teardown(what_bounds_a_kernel, begin, end),
      cmocka_unit_test_setup_teardown(shapes_bound_a_grid, begin, end),
      cmocka_unit_test_setup_teardown(windows_that_stay_do_not_move, begin,
                                      end),
      cmocka_unit_test_setup_teardown(the_timeline_adds_up, begin, end),
      cmocka_unit_test_setup_teardown(cores_share_parallel_dimensions, begin,
                                      end),
      cmocka_unit_test_setup_teardown(data_are_zeros_if_asked, begin, end),
      cmocka_unit_test_setup_teardown(constant_masks_leave_blocks_out, begin,
                                      end),
      cmocka_unit_test_setup_teardown(carried_numbers_are_known, begin, end),
      cmocka_unit_test_setup_teardown(long_loops_are_counted, begin, end),
      cmocka_unit_test_setup_teardown(unknown_bounds_are_forty_with_zeros,
                                      begin, end),
      cmocka_unit_test_setup_teardown(time_adds_up, begin, end),
      cmocka_unit_test_setup_teardown(figures_as_json, begin, end),
      cmocka_unit_test_setup_teardown(a_trace_is_json, begin, end)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
