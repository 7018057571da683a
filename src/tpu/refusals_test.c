// Refusals that no kernel of test/e2e provokes: JAX does not lower to them, or
// checks for the same itself. Each is a kernel written by hand that is sound
// but for one operation, window or setting.
#include "tpu/rules_test_util.h"

// ---- Types and instructions
static void scalars(void **state) {
  static const refused rows[] = {
      {"Not implemented: Only i32 arith.addi is supported, but got 'i16'",
       "v5e",
       {"S:i16"},
       "%x = 'memref.load'(%a, %i) : (S:i16, index) -> i16\n"
       "%y = 'arith.addi'(%x, %x) : (i16, i16) -> i16\n"
       "'memref.store'(%y, %a, %i) : (i16, S:i16, index) -> ()\n"},
      {"Not implemented: Only i1 and i32 scalars are supported.",
       "v5e",
       {"S:i16"},
       "%x = 'memref.load'(%a, %i) : (S:i16, index) -> i16\n"
       "%y = 'arith.andi'(%x, %x) : (i16, i16) -> i16\n"
       "'memref.store'(%y, %a, %i) : (i16, S:i16, index) -> ()\n"},
      {"Only scalar extensions to f32 are supported.",
       "v5e",
       {"S:f8E5M2", "S:bf16"},
       "%x = 'memref.load'(%a, %i) : (S:f8E5M2, index) -> f8E5M2\n"
       "%y = 'arith.extf'(%x) : (f8E5M2) -> bf16\n"
       "'memref.store'(%y, %b, %i) : (bf16, S:bf16, index) -> ()\n"},
      {"failed to legalize unresolved materialization from () to ('bf16')",
       "v5e",
       {"S:bf16"},
       "%x = 'arith.constant'() {value = 1.0 : bf16} : () -> bf16\n"
       "'memref.store'(%x, %a, %i) : (bf16, S:bf16, index) -> ()\n"},
      {"Setting seed with more than 2 values is not supported.",
       "v5e",
       {"S:i32"},
       "'tpu.prng_set_seed_32'(%n, %n, %n) : (i32, i32, i32) -> ()\n"},
  };
  refuse_all(rows, AT_LEN(rows));
}

// Of everything to a scalar, and of 16-bit integers.
static void reductions(void **state) {
  static const refused rows[] = {
      {"Only vector reductions supported",
       "v5e",
       {"M:f32", "S:f32"},
       "%x = 'vector.load'(%a, %i, %i) : (M:f32, index, index) -> V:f32\n"
       "%z = 'memref.load'(%b, %i) : (S:f32, index) -> f32\n"
       "%y = 'vector.multi_reduction'(%x, %z) {kind = #vector.kind<add>, "
       "reduction_dims = [0, 1]} : (V:f32, f32) -> f32\n"
       "'memref.store'(%y, %b, %i) : (f32, S:f32, index) -> ()\n"},
      {"Unsupported element type for the selected reduction",
       "v6e",
       {"M:i16", "memref<128xi16, in:vmem>"},
       "%x = 'vector.load'(%a, %i, %i) : (M:i16, index, index) -> V:i16\n"
       "%z = 'vector.load'(%b, %i) : (memref<128xi16, in:vmem>, index) -> "
       "vector<128xi16>\n"
       "%y = 'vector.multi_reduction'(%x, %z) {kind = #vector.kind<add>, "
       "reduction_dims = [0]} : (V:i16, vector<128xi16>) -> vector<128xi16>\n"
       "'vector.store'(%y, %b, %i) : (vector<128xi16>, memref<128xi16, "
       "in:vmem>, index) -> ()\n"},
  };
  refuse_all(rows, AT_LEN(rows));
}

// Types that the chip cannot compare or load.
static void elements(void **state) {
  static const refused rows[] = {
      {"Target does not support this comparison",
       "v5e",
       {"M:f8E5M2", "M:f32"},
       "%x = 'vector.load'(%a, %i, %i) : (M:f8E5M2, index, index) -> V:f8E5M2\n"
       "%z = 'vector.load'(%b, %i, %i) : (M:f32, index, index) -> V:f32\n"
       "%y = 'arith.cmpf'(%x, %x) {predicate = 1 : i64} : (V:f8E5M2, "
       "V:f8E5M2) -> V:i1\n"
       "'tpu.vector_store'(%z, %b, %i, %i, %y) {operandSegmentSizes = "
       "array<i32: 1, 1, 2, 1>, strides = array<i32>, add = false} : "
       "(V:f32, M:f32, index, index, V:i1) -> ()\n"},
      {"Invalid vector type for load",
       "v5e",
       {"M:f16"},
       "%x = 'vector.load'(%a, %i, %i) : (M:f16, index, index) -> V:f16\n"
       "'vector.store'(%x, %a, %i, %i) : (V:f16, M:f16, index, index) -> ()\n"},
  };
  refuse_all(rows, AT_LEN(rows));
}

// Writes f32, rounded by random bits to t.
static void expect_rounding_refused(const char *chip, const char *t,
                                    const char *says) {
  at_arena *a = at_arena_create();
  const char *body = at_arena_printf(
      a,
      "%%x = 'vector.load'(%%a, %%i, %%i) : (M:f32, index, index) -> V:f32\n"
      "%%r = 'vector.load'(%%b, %%i, %%i) : (M:i32, index, index) -> V:i32\n"
      "%%y = 'tpu.stochastic_convert'(%%x, %%r) : (V:f32, V:i32) -> V:%s\n"
      "'vector.store'(%%y, %%c, %%i, %%i) : (V:%s, M:%s, index, index) -> "
      "()\n",
      t, t, t);
  refused r = {
      says, chip, {"M:f32", "M:i32", at_arena_printf(a, "M:%s", t)}, body};
  expect_refusal(kernel_of(a, &r), chip, says);
  at_arena_destroy(a);
}

// Before v5, and to a type that is none of the known ones.
static void roundings(void **state) {
  expect_rounding_refused(
      "v4", "bf16", "Stochastic convert not supported on TPU generations < 5.");
  expect_rounding_refused("v5e", "f16",
                          "Unsupported dtype for stochastic convert: f16");
}

// 8 x 128 of type `left` times 128 x 128 of `right`, added to `sum`.
static void expect_product_refused(const char *chip, const char *left,
                                   const char *right, const char *sum,
                                   const char *says) {
  at_arena *a = at_arena_create();
  const char *body = at_arena_printf(
      a,
      "%%x = 'vector.load'(%%a, %%i, %%i) : (M:%s, index, index) -> V:%s\n"
      "%%w = 'vector.load'(%%b, %%i, %%i) : (memref<128x128x%s, in:vmem>, "
      "index, index) -> vector<128x128x%s>\n"
      "%%z = 'vector.load'(%%c, %%i, %%i) : (M:%s, index, index) -> V:%s\n"
      "%%y = 'tpu.matmul'(%%x, %%w, %%z) : (V:%s, vector<128x128x%s>, V:%s) "
      "-> V:%s\n"
      "'vector.store'(%%y, %%c, %%i, %%i) : (V:%s, M:%s, index, index) -> "
      "()\n",
      left, left, right, right, sum, sum, left, right, sum, sum, sum, sum);
  refused r = {says,
               chip,
               {at_arena_printf(a, "M:%s", left),
                at_arena_printf(a, "memref<128x128x%s, in:vmem>", right),
                at_arena_printf(a, "M:%s", sum)},
               body};
  expect_refusal(kernel_of(a, &r), chip, says);
  at_arena_destroy(a);
}

// Accumulators and operands of types that do not go together.
static void products(void **state) {
  expect_product_refused("v5e", "bf16", "bf16", "bf16",
                         "Expected 32-bit acc in tpu::MatmulOp");
  expect_product_refused("7x", "bf16", "bf16", "bf16",
                         "Expected 32-bit acc in tpu::MatmulOp");
  expect_product_refused("v5e", "bf16", "i8", "i32",
                         "acc is int in mixed matmul. Expected float.");
  expect_product_refused("v5e", "bf16", "bf16", "i32",
                         "int acc with float lhs. Expected int lhs.");
  expect_product_refused("v5e", "i2", "i2", "i32",
                         "Unsupported type for matmul: 'vector<8x128xi2>'");
}

// The matrix units' registers: which generation has which.
static void registers(void **state) {
  static const refused rows[] = {
      {"MatmulAccLhsOp not supported on TPU generations < 7",
       "v6e",
       {"M:bf16"},
       "%x = 'vector.load'(%a, %i, %i) : (M:bf16, index, index) -> V:bf16\n"
       "'tpu.matmul_acc_lhs'(%x) {acc = 0 : i32, mxu_index = 0 : i32} : "
       "(V:bf16) -> ()\n"},
      {"MatmulLhsFifoOp not supported on TPU generations >= 7",
       "7x",
       {"M:bf16"},
       "%x = 'vector.load'(%a, %i, %i) : (M:bf16, index, index) -> V:bf16\n"
       "'tpu.matmul_lhs_fifo'(%x) {mxu_index = 0 : i32} : (V:bf16) -> ()\n"},
  };
  refuse_all(rows, AT_LEN(rows));
}

// ---- Layouts
static void gathers(void **state) {
  static const refused rows[] = {
      {"Not implemented: Gather indices and result have different bitwidths",
       "v6e",
       {"M:f32", "M:i16"},
       "%x = 'vector.load'(%a, %i, %i) : (M:f32, index, index) -> V:f32\n"
       "%k = 'vector.load'(%b, %i, %i) : (M:i16, index, index) -> V:i16\n"
       "%y = 'tpu.dynamic_gather'(%x, %k) {dimensions = array<i32: 1>} : "
       "(V:f32, V:i16) -> V:f32\n"
       "'vector.store'(%y, %a, %i, %i) : (V:f32, M:f32, index, index) -> ()\n"},
      {"Not implemented: Multiple source vregs along gather dimension",
       "v6e",
       {"memref<8x256xf32, in:vmem>", "memref<8x256xi32, in:vmem>"},
       "%x = 'vector.load'(%a, %i, %i) : (memref<8x256xf32, in:vmem>, index, "
       "index) -> vector<8x256xf32>\n"
       "%k = 'vector.load'(%b, %i, %i) : (memref<8x256xi32, in:vmem>, index, "
       "index) -> vector<8x256xi32>\n"
       "%y = 'tpu.dynamic_gather'(%x, %k) {dimensions = array<i32: 1>} : "
       "(vector<8x256xf32>, vector<8x256xi32>) -> vector<8x256xf32>\n"
       "'vector.store'(%y, %a, %i, %i) : (vector<8x256xf32>, "
       "memref<8x256xf32, in:vmem>, index, index) -> ()\n"},
  };
  refuse_all(rows, AT_LEN(rows));
}

// 64 lanes of every other row: from lane %at on, each or every other one.
static void expect_strided_refused(const char *t, const char *at, int step,
                                   const char *says) {
  at_arena *a = at_arena_create();
  const char *rows = at_arena_printf(a, "memref<16x128x%s, in:vmem>", t);
  const char *part = at_arena_printf(a, "memref<8x64x%s, in:vmem>", t);
  const char *body = at_arena_printf(
      a,
      "%%x = 'tpu.strided_load'(%%a, %%i, %s) {strides = array<i32: 2, %d>} : "
      "(%s, index, index) -> vector<8x64x%s>\n"
      "'vector.store'(%%x, %%b, %%i, %%i) : (vector<8x64x%s>, %s, index, "
      "index) -> ()\n",
      at, step, rows, t, t, part);
  refused r = {says, "v6e", {rows, part}, body};
  expect_refusal(kernel_of(a, &r), r.chip, says);
  at_arena_destroy(a);
}

// Along lanes, whatever the width of elements.
static void strided_reads(void **state) {
  expect_strided_refused("f32", "%far", 1,
                         "Not Implemented: Index on last dim is not 0");
  expect_strided_refused("bf16", "%far", 1,
                         "Not Implemented: Index on last dim is not 0");
  expect_strided_refused("f32", "%i", 2,
                         "Not Implemented: Stride on last dim is not 1");
  expect_strided_refused("bf16", "%i", 2,
                         "Not implemented: Stride on last dim is not 1");
}

// ---- Copies
#define SEMAPHORE "memref<!tpu.dma_semaphore, #tpu.memory_space<semaphore_mem>>"

// The slice that a copy reads, and the device that it goes to.
static void copies(void **state) {
  static const refused rows[] = {
      // Eight rows from row 2 on.
      {"Offsets along tiled dimensions must be aligned to tiles. Failed to "
       "verify that the index at dimension 0 is divisible by the tile "
       "dimension 8",
       "v5e",
       {"memref<32x256xf32, in:hbm>", "memref<8x256xf32, in:vmem>", SEMAPHORE},
       "%r = 'arith.constant'() {value = 2 : i32} : () -> i32\n"
       "%z = 'arith.constant'() {value = 0 : i32} : () -> i32\n"
       "%s = 'tpu.memref_slice'(%a, %r, %z) {operandSegmentSizes = "
       "array<i32: 1, 2, 0>} : (memref<32x256xf32, in:hbm>, i32, i32) -> "
       "memref<8x256xf32, in:hbm>\n"
       "'tpu.enqueue_dma'(%s, %b, %c) {operandSegmentSizes = array<i32: 1, 0, "
       "1, 1, 0, 0, 0>} : (memref<8x256xf32, in:hbm>, memref<8x256xf32, "
       "in:vmem>, " SEMAPHORE ") -> ()\n"},
      // There are four devices.
      {"Invalid device_id: 7.",
       "v5e",
       {"M:f32", "M:f32", SEMAPHORE, SEMAPHORE},
       "'tpu.enqueue_dma'(%a, %d, %b, %c, %n) {operandSegmentSizes = "
       "array<i32: 1, 1, 1, 1, 1, 0, 0>} : (M:f32, " SEMAPHORE
       ", M:f32, " SEMAPHORE ", i32) -> ()\n"},
  };
  refuse_all(rows, AT_LEN(rows));
}

// ---- Windows, grids, settings
// Ranks, shapes, layouts and semantics of a grid.
static void windows(void **state) {
  static const blocked rows[] = {
      {"The Pallas TPU lowering currently supports only blocks of rank >= 1.",
       "memref<f32, in:vmem>",
       "",
       "arbitrary",
       AT_F32,
       0,
       {0}},
      {"The Pallas TPU lowering currently requires that rank 1 block shapes",
       "memref<192xf32, in:vmem>",
       ": 192",
       "arbitrary",
       AT_F32,
       1,
       {384}},
      {"requires that the last two dimensions of your block shape are "
       "divisible by 8 and 128 respectively",
       "memref<4x128xf32, in:vmem>",
       ": 4, 128",
       "arbitrary",
       AT_F32,
       2,
       {8, 256}},
      {"Not implemented: layout too complicated",
       "memref<64x128xi2, in:vmem>",
       ": 64, 128",
       "arbitrary",
       AT_S2,
       2,
       {128, 256}},
      {"subcore_parallel is only supported on SparseCore.",
       "M:f32",
       ": 8, 128",
       "subcore_parallel",
       AT_F32,
       2,
       {16, 256}},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++)
    expect_block_refused(&rows[i], "v5e", "");
}

// A sound kernel with too little of it.
static void internal_scratch(void **state) {
  const blocked sound = {
      "Requested internal scratch size 1024 needs to be at least",
      "M:f32",
      ": 8, 128",
      "arbitrary",
      AT_F32,
      2,
      {16, 256}};
  expect_block_refused(
      &sound, "v5e",
      "{\"custom_call_config\": {\"internal_scratch_in_bytes\": 1024}}");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(scalars),          cmocka_unit_test(reductions),
      cmocka_unit_test(elements),         cmocka_unit_test(roundings),
      cmocka_unit_test(products),         cmocka_unit_test(registers),
      cmocka_unit_test(gathers),          cmocka_unit_test(strided_reads),
      cmocka_unit_test(copies),           cmocka_unit_test(windows),
      cmocka_unit_test(internal_scratch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
