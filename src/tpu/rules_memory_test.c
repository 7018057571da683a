// Both sides of the limits of rules_memory.c and rules_windows.c: what a
// program may take of each memory of a chip, how much of it the compiler keeps,
// and which blocks an array is cut into.
#include "tpu/rules_test_util.h"

// ---- Chips
static void chips_are_found_by_every_name(void **state) {
  static const struct {
    const char *target, *name;
  } rows[] = {
      {"v6e", "v6e"},           {"v6e:2x4", "v6e"}, {"TPU v6 lite", "v6e"},
      {"TPU v5 lite", "v5e"},   {"TPU v5", "v5p"},  {"v4i", "v4i"},
      {"2*v5p:2x2x1", "v5p"},   {"7x", "7x"},       {"TPU7x", "7x"},
      {"v5e:not-a-size", NULL}, {"v9", NULL},       {"", NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const at_mosaic_chip *c = at_mosaic_chip_find(at_str_of(rows[i].target));
    if (!c != !rows[i].name || (c && strcmp(c->name, rows[i].name)))
      fail_msg("%s: %s", rows[i].target, c ? c->name : "none");
  }
}

// ---- Scratch
// A program with one scratch ref, which it reads where it is large enough.
typedef struct scratch {
  const char *chip, *ref, *config, *says;
} scratch;

static void expect_scratch(const scratch *x) {
  at_arena *a = at_arena_create();
  bool vmem = strstr(x->ref, "in:vmem") != NULL;
  const char *use =
      vmem ? at_arena_printf(
                 a,
                 "%%i = 'arith.constant'() {value = 0 : index} : () -> index\n"
                 "%%x = 'vector.load'(%%s, %%i, %%i) : (%s, index, index) -> "
                 "vector<3x128xf32>\n"
                 "'vector.store'(%%x, %%s, %%i, %%i) : (vector<3x128xf32>, %s, "
                 "index, index) -> ()\n",
                 x->ref, x->ref)
           : "";
  const char *text = at_arena_printf(
      a,
      "'builtin.module'() ({\n'func.func'() ({\n^bb0(%%s: %s):\n"
      "%s'func.return'() : () -> ()\n}) {dimension_semantics = [], "
      "function_type = (%s) -> (), scalar_prefetch = 0 : i64, "
      "scratch_operands = 1 : i64, sym_name = 'k', tpu.core_type = "
      "#tpu.core_type<tc>} : () -> ()\n}) : () -> ()\n",
      x->ref, use, x->ref);
  at_mosaic_call call = {.config = at_str_of(x->config ? x->config : "")};
  expect_refusal(read_call(a, &call, spelled(a, text)), x->chip, x->says);
  at_arena_destroy(a);
}

#define SEMS(n) \
  "memref<" #n "x!tpu.dma_semaphore, #tpu.memory_space<semaphore_mem>>"
#define LIMIT(n)                                                       \
  "{\"scoped_memory_configs\": [{\"memory_space\": 1, \"offset\": 0, " \
  "\"size\": " #n "}]}"
#define INTERNAL(n) \
  "{\"custom_call_config\": {\"internal_scratch_in_bytes\": " #n "}}"

static void scratch_fits_its_memory(void **state) {
  static const scratch rows[] = {
      // VMEM: what one kernel gets, unless it asks for another limit.
      {"v5e", "memref<32768x128xf32, in:vmem>", NULL, NULL},
      {"v5e", "memref<32776x128xf32, in:vmem>", NULL,
       "size 16.00M and limit 16.00M exceeded scoped vmem limit by 4.0K."},
      {"v6e", "memref<65536x128xf32, in:vmem>", NULL, NULL},
      {"v6e", "memref<65544x128xf32, in:vmem>", NULL, "by 4.0K."},
      {"7x", "memref<65408x128xf32, in:vmem>", NULL, NULL},
      {"7x", "memref<65416x128xf32, in:vmem>", NULL, "by 4.0K."},
      {"v5e", "memref<8x128xf32, in:vmem>", LIMIT(4096), NULL},
      {"v5e", "memref<16x128xf32, in:vmem>", LIMIT(4096),
       "size 8.0K and limit 4.0K exceeded scoped vmem limit by 4.0K."},
      {"v5e", "memref<16x128xf32, in:vmem>", LIMIT(8191),
       "exceeded scoped vmem limit by 0.0K."},
      // A ref by itself: more than there is.
      {"v5e", "memref<262144x128xf32, in:vmem>", NULL,
       "exceeded scoped vmem limit by 112.00M."},
      {"v5e", "memref<262152x128xf32, in:vmem>", NULL,
       "Allocation (size=134221824) would exceed memory (size=134217728)"},
      {"v5p", "memref<131080x128xf32, in:vmem>", NULL,
       "Allocation (size=67112960) would exceed memory (size=67108864)"},
      // SMEM: the compiler keeps 1 KiB.
      {"v5e", "memref<261888xf32, in:smem>", NULL, NULL},
      {"v5e", "memref<261889xf32, in:smem>", NULL,
       "Ran out of memory in memory space smem. Used 1.00M of 1.00M smem. "
       "Exceeded smem capacity by 0.0K."},
      {"v5e", "memref<262145xf32, in:smem>", NULL,
       "Allocation (size=1048580) would exceed memory (size=1048576)"},
      {"v3", "memref<3840xf32, in:smem>", NULL, NULL},
      {"v3", "memref<3841xf32, in:smem>", NULL, "Ran out of memory"},
      // Semaphores are words; the compiler keeps 300 bytes, on 7x 860.
      {"v5e", SEMS(437), NULL, NULL},
      {"v5e", SEMS(438), NULL, "Ran out of memory in memory space sflag"},
      {"v5e", SEMS(512), NULL, "Ran out of memory in memory space sflag"},
      {"v5e", SEMS(513), NULL,
       "Allocation (size=2052) would exceed memory (size=2048)"},
      {"7x", SEMS(3881), NULL, NULL},
      {"7x", SEMS(3882), NULL, "Ran out of memory in memory space sflag"},
      // The compiler's own scratch: 72 KiB, and no more than is usable.
      {"v5e", "memref<8x128xf32, in:vmem>", INTERNAL(73728), NULL},
      {"v5e", "memref<8x128xf32, in:vmem>", INTERNAL(73727),
       "Requested internal scratch size 73727 needs to be at least 73728"},
      {"v6e", "memref<8x128xf32, in:vmem>", INTERNAL(134152192), NULL},
      {"v6e", "memref<8x128xf32, in:vmem>", INTERNAL(134152193),
       "Ran out of memory in memory space vmem"},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) expect_scratch(&rows[i]);
}

// Bytes of a ref, by memory and element.
static void refs_are_laid_out(void **state) {
  static const struct {
    const char *chip;
    at_mosaic_ref ref;
    int64_t dims[3];
    bool argument;
    int64_t bytes;
  } rows[] = {
      // Lines: whole rows of words in VMEM, words in SMEM.
      {"v5e", {.space = AT_MSPACE_VMEM, .dtype = AT_F32}, {1, -1}, true, 512},
      {"v5e",
       {.space = AT_MSPACE_VMEM, .dtype = AT_F32},
       {129, -1},
       true,
       1024},
      {"v5e",
       {.space = AT_MSPACE_VMEM, .dtype = AT_BF16},
       {257, -1},
       true,
       1024},
      {"v5e", {.space = AT_MSPACE_SMEM, .dtype = AT_F32}, {5, -1}, true, 20},
      {"v5e", {.space = AT_MSPACE_SMEM, .dtype = AT_S8}, {5, -1}, true, 8},
      // Masks take a word for each element.
      {"v5e",
       {.space = AT_MSPACE_VMEM, .dtype = AT_PRED},
       {8, 128, -1},
       true,
       4096},
      // 16 bits: tiles of 8 rows in HBM, of 16 in VMEM from v6e on.
      {"v5e",
       {.space = AT_MSPACE_VMEM, .dtype = AT_BF16},
       {24, 128, -1},
       true,
       24 * 256},
      {"v6e",
       {.space = AT_MSPACE_VMEM, .dtype = AT_BF16},
       {16, 128, -1},
       false,
       16 * 256},
      // Semaphores are dense; so is a subcore's memory.
      {"v5e",
       {.space = AT_MSPACE_SEMAPHORE, .semaphore = AT_MSEM_DMA},
       {3, 3, -1},
       true,
       36},
      {"v5p",
       {.space = AT_MSPACE_VMEM, .dtype = AT_F32, .core = AT_MCORE_SC_VECTOR},
       {3, 5, -1},
       false,
       60},
      // A number, a dynamic size, a negative one.
      {"v5e", {.space = AT_MSPACE_SMEM, .dtype = AT_F32}, {-1}, true, 4},
      {"v5e",
       {.space = AT_MSPACE_VMEM, .dtype = AT_F32},
       {AT_MDYN, 128, -1},
       true,
       -1},
      {"v5e",
       {.space = AT_MSPACE_VMEM, .dtype = AT_F32},
       {INT64_MAX, 8, -1},
       true,
       -1},
      {"v5e",
       {.space = AT_MSPACE_VMEM, .dtype = AT_F32},
       {8, INT64_MAX, -1},
       true,
       -1},
      {"v5e",
       {.space = AT_MSPACE_VMEM, .dtype = AT_F32},
       {INT64_MAX, -1},
       true,
       -1},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_mosaic_ref r = rows[i].ref;
    r.shape.ptr = (int64_t *)rows[i].dims;
    while (r.shape.rank < 3 && rows[i].dims[r.shape.rank] != -1) r.shape.rank++;
    int64_t n = at_mosaic_ref_bytes(
        at_mosaic_chip_find(at_str_of(rows[i].chip)), &r, rows[i].argument);
    if (n != rows[i].bytes)
      fail_msg("row %zu: %lld bytes, not %lld", i, (long long)n,
               (long long)rows[i].bytes);
  }
}

// What a body takes as it goes, beside a window of 4 KiB.
static void scopes(void **state) {
  static const struct {
    const char *ref, *says;
  } rows[] = {
      {"memref<32760x128xf32, in:vmem>", NULL},
      {"memref<32768x128xf32, in:vmem>", "exceeded scoped vmem limit by 4.0K."},
      // Rows of words that are no multiple of eight lie one by one.
      {"memref<32759x128xf32, in:vmem>", NULL},
      {"memref<32761x128xf32, in:vmem>", "exceeded scoped vmem limit by 0.5K."},
      {"memref<262152x128xf32, in:vmem>",
       "Allocation (size=134221824) would exceed memory (size=134217728)"},
      // Sizes whose product is too large for 64 bits take too much, not little.
      {"memref<8x4611686018427387904xf32, in:vmem>", "exceeded scoped vmem"},
      {"memref<3x4611686018427387904xf32, in:vmem>", "exceeded scoped vmem"},
      {"memref<3x9223372036854775807xf32, in:vmem>", "exceeded scoped vmem"},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    const char *body = at_arena_printf(
        a,
        "%%s = 'memref.alloca'() {operandSegmentSizes = array<i32: 0, 0>} : () "
        "-> %s\n"
        "%%x = 'vector.load'(%%s, %%i, %%i) : (%s, index, index) -> "
        "vector<3x128xf32>\n"
        "'vector.store'(%%x, %%a, %%i, %%i) : (vector<3x128xf32>, M:f32, "
        "index, index) -> ()\n",
        rows[i].ref, rows[i].ref);
    const refused r = {rows[i].says, "v5e", {"M:f32"}, body};
    expect_refusal(kernel_of(a, &r), "v5e", rows[i].says);
    at_arena_destroy(a);
  }
}

// ---- Windows
static void blocks(void **state) {
  static const char line[] = "requires that rank 1 block shapes",
                    plane[] = "requires that the last two dimensions";
  static const blocked rows[] = {
      {NULL,
       "memref<1024xf32, in:vmem>",
       ": 1024",
       "arbitrary",
       AT_F32,
       1,
       {4096}},
      {NULL,
       "memref<3072xf32, in:vmem>",
       ": 3072",
       "arbitrary",
       AT_F32,
       1,
       {6144}},
      {NULL,
       "memref<128xf32, in:vmem>",
       ": 128",
       "arbitrary",
       AT_F32,
       1,
       {4096}},
      {NULL,
       "memref<384xf32, in:vmem>",
       ": 384",
       "arbitrary",
       AT_F32,
       1,
       {384}},
      {NULL,
       "memref<256xbf16, in:vmem>",
       ": 256",
       "arbitrary",
       AT_BF16,
       1,
       {4096}},
      {line, "memref<64xf32, in:vmem>", ": 64", "arbitrary", AT_F32, 1, {4096}},
      {line,
       "memref<1536xf32, in:vmem>",
       ": 1536",
       "arbitrary",
       AT_F32,
       1,
       {4096}},
      {line,
       "memref<128xbf16, in:vmem>",
       ": 128",
       "arbitrary",
       AT_BF16,
       1,
       {4096}},
      {NULL, "M:f32", ": 8, 128", "arbitrary", AT_F32, 2, {16, 256}},
      {NULL,
       "memref<4x128xf32, in:vmem>",
       ": 4, 128",
       "arbitrary",
       AT_F32,
       2,
       {4, 256}},
      {NULL,
       "memref<8x64xf32, in:vmem>",
       ": 8, 64",
       "arbitrary",
       AT_F32,
       2,
       {16, 64}},
      {plane,
       "memref<8x64xf32, in:vmem>",
       ": 8, 64",
       "arbitrary",
       AT_F32,
       2,
       {16, 128}},
      {plane,
       "memref<12x128xf32, in:vmem>",
       ": 12, 128",
       "arbitrary",
       AT_F32,
       2,
       {24, 128}},
      {NULL,
       "memref<16x128xi2, in:vmem>",
       ": 16, 128",
       "arbitrary",
       AT_S2,
       2,
       {32, 128}},
      {"has tiling (16, 128)",
       "memref<8x128xi2, in:vmem>",
       ": 8, 128",
       "arbitrary",
       AT_S2,
       2,
       {32, 128}},
      {NULL,
       "memref<128x128xi2, in:vmem>",
       ": 128, 128",
       "arbitrary",
       AT_S2,
       2,
       {256, 128}},
      {"X{64|128} element",
       "memref<8x128xf64, in:vmem>",
       ": 8, 128",
       "arbitrary",
       AT_F64,
       2,
       {16, 128}},
      // Two buffers of a block that moves: 8 MiB each fit, more do not.
      {NULL,
       "memref<16384x128xf32, in:vmem>",
       ": 16384, 128",
       "arbitrary",
       AT_F32,
       2,
       {32768, 256}},
      {"exceeded scoped vmem limit by 8.0K.",
       "memref<16392x128xf32, in:vmem>",
       ": 16392, 128",
       "arbitrary",
       AT_F32,
       2,
       {32784, 256}},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++)
    expect_block_refused(&rows[i], "v5e", "");
}

// A core-parallel dimension of two steps: one for each core of a chip that has
// two.
static void cores(void **state) {
  static const struct {
    const char *chip, *semantics, *says;
  } rows[] = {
      {"v5p", "core_parallel", NULL},
      {"v4", "core_parallel", NULL},
      {"v5e", "core_parallel", "greater than the number of active cores: 1."},
      {"v4i", "core_parallel", "greater than the number of active cores: 1."},
      {"v5e", "parallel", NULL},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const blocked b = {rows[i].says, "M:f32", ": 8, 128", rows[i].semantics,
                       AT_F32,       2,       {16, 256}};
    expect_block_refused(&b, rows[i].chip, "");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(chips_are_found_by_every_name),
      cmocka_unit_test(scratch_fits_its_memory),
      cmocka_unit_test(refs_are_laid_out),
      cmocka_unit_test(scopes),
      cmocka_unit_test(blocks),
      cmocka_unit_test(cores),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
