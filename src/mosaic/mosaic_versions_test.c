// Kernels as older and newer versions of JAX serialise them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "mosaic/mosaic.h"
#include "mosaic/mosaic_internal.h"

static at_bytes load(at_arena *a, const char *folder, const char *name) {
  const char *root = getenv("AT_SOURCE_DIR");
  char *path = at_arena_printf(a, "%s/src/mosaic/testdata/%s/%s.bc",
                               root ? root : ".", folder, name);
  FILE *f = fopen(path, "rb");
  if (!f) fail_msg("no %s", path);
  enum { kMost = 1 << 16 };
  uint8_t *b = at_arena_alloc(a, kMost, 16);
  size_t n = fread(b, 1, kMost, f);
  fclose(f);
  return (at_bytes){b, n};
}

// Bodies of JAX 0.4.38 to 0.12, by tools/make_mosaic_corpus.py.
static void bodies_of_other_versions(void **state) {
  static const struct {
    const char *jax;
    int64_t version;
    const char *names[5];
  } bodies[] = {
      {"0.4.38", 3, {"copies", "moves"}},
      {"0.7.2", 8, {"copies", "moves", "semaphores", "loops"}},
      {"0.9.2", 11, {"copies", "moves", "semaphores", "loops"}},
      {"0.12.0", 18, {"copies", "moves", "semaphores", "loops"}},
  };
  for (size_t i = 0; i < AT_LEN(bodies); i++)
    for (const char *const *name = bodies[i].names; *name; name++) {
      at_arena *a = at_arena_create();
      at_mosaic_kernel *k = NULL;
      at_mosaic_call call = {.payload = load(a, bodies[i].jax, *name)};
      at_status s = at_mosaic_read(&call, a, &k);
      if (!at_ok(s))
        fail_msg("%s of %s: %s", *name, bodies[i].jax, at_status_message(s));
      assert_int_equal(k->serde_version, bodies[i].version);
      at_arena_destroy(a);
    }
}

#define VM ", #tpu.memory_space<vmem>>"
#define F32 "memref<8x128xf32" VM
#define DMA "memref<!tpu.dma_semaphore, #tpu.memory_space<semaphore_mem>>"
#define SEM "memref<!tpu.semaphore, #tpu.memory_space<semaphore_mem>>"
#define ROW "memref<16xf32" VM
#define SHARED "memref<8x128xf32, #tpu.memory_space<vmem_shared>>"

// A kernel of that version on a core of that kind: %x and %o are 8 x 128
// floats, %r is 16 of them, %q 8 x 128 that subcores share, %d and %s
// semaphores.
static char *kernel_text(at_arena *a, int version, const char *core,
                         const char *ops) {
  char *text = at_arena_printf(
      a,
      "\"builtin.module\"() ({\n\"stable_mosaic.func.func\"() ({\n"
      "^bb0(%%x: " F32 ", %%o: " F32 ", %%r: " ROW ", %%q: " SHARED
      ", %%d: " DMA ", %%s: " SEM
      "):\n"
      "%%i = \"stable_mosaic.arith.constant\"() {value = 0 : index} : () -> "
      "index\n"
      "%%n = \"stable_mosaic.arith.constant\"() {value = 1 : i32} : () -> i32\n"
      "%%v = \"stable_mosaic.vector.load\"(%%x, %%i, %%i) : (" F32
      ", index, index) -> vector<8x128xf32>\n"
      "%%u = \"stable_mosaic.vector.load\"(%%r, %%i) : (" ROW
      ", index) -> vector<16xf32>\n"
      "%%m = \"stable_mosaic.arith.constant\"() {value = dense<true> : "
      "vector<16xi1>} : () -> vector<16xi1>\n"
      "%s\n\"stable_mosaic.func.return\"() : () -> ()\n}) {"
      "dimension_semantics = [], function_type = (" F32 ", " F32 ", " ROW
      ", " SHARED ", " DMA ", " SEM
      ") -> (), scalar_prefetch = 0 : i64, scratch_operands = 4 : i64, "
      "sym_name = \"k\", tpu.core_type = #tpu.core_type<%s>} : () -> ()\n}) "
      "{stable_mosaic.version = %d : i64} : () -> ()\n",
      ops, core, version);
  return text;
}

typedef struct form {
  int version;
  const char *core, *op;
  at_mosaic_opcode code;  // what it is in the end
  uint32_t operands;
} form;

#define OP(name, args, attrs, in, out) \
  "%t = \"stable_mosaic." name "\"(" args ") {" attrs "} : (" in ") -> " out
#define DO(name, args, attrs, in) \
  "\"stable_mosaic." name "\"(" args ") {" attrs "} : (" in ") -> ()"

static const form forms[] = {
    {1, "tc", DO("tpu.enqueue_dma", "%x, %o, %d", "", F32 ", " F32 ", " DMA),
     AT_MOSAIC_TPU_ENQUEUE_DMA, 3},
    {1, "tc",
     DO("tpu.enqueue_dma", "%x, %d, %o, %d, %n", "",
        F32 ", " DMA ", " F32 ", " DMA ", i32"),
     AT_MOSAIC_TPU_ENQUEUE_DMA, 5},
    {1, "tc", DO("tpu.sem_signal", "%s, %n", "", SEM ", i32"),
     AT_MOSAIC_TPU_SEM_SIGNAL, 2},
    {3, "tc", DO("tpu.wait_dma", "%d, %x", "", DMA ", " F32),
     AT_MOSAIC_TPU_WAIT_DMA2, 3},
    {6, "tc", DO("tpu.wait_dma2", "%d, %x, %o", "", DMA ", " F32 ", " F32),
     AT_MOSAIC_TPU_WAIT_DMA2, 3},
    {5, "tc",
     OP("tpu.iota", "", "dimension = 1 : i32", "", "vector<8x128xi32>"),
     AT_MOSAIC_TPU_IOTA, 0},
    {8, "tc",
     OP("tpu.rotate", "%v", "amount = 3 : si32, dimension = 1 : si32",
        "vector<8x128xf32>", "vector<8x128xf32>"),
     AT_MOSAIC_TPU_DYNAMIC_ROTATE, 2},
    {9, "tc",
     DO("tpu.enqueue_dma", "%x, %o, %d",
        "operandSegmentSizes = array<i32: 1, 0, 1, 1, 0, 0>, "
        "strict_ordering = true",
        F32 ", " F32 ", " DMA),
     AT_MOSAIC_TPU_ENQUEUE_DMA, 3},
    {10, "tc", OP("tpu.reinterpret_cast", "%x", "", F32, "memref<4x128xf32" VM),
     AT_MOSAIC_TPU_REINTERPRET_CAST, 1},
    {15, "tc",
     OP("tpu.reinterpret_cast", "%x, %n",
        "operandSegmentSizes = array<i32: 1, 1, 0>", F32 ", i32",
        "memref<4x128xf32" VM),
     AT_MOSAIC_TPU_REINTERPRET_CAST, 2},
    {16, "tc",
     OP("tpu.reinterpret_cast", "%x, %n",
        "operandSegmentSizes = array<i32: 1, 1, 0, 0>", F32 ", i32",
        "memref<4x128xf32" VM),
     AT_MOSAIC_TPU_REINTERPRET_CAST, 2},
    {18, "sc_vector_subcore",
     OP("tpu.scan", "%u",
        "kind = #tpu.reduction_kind<maxf>, dimension = 0 : i64",
        "vector<16xf32>", "vector<16xf32>"),
     AT_MOSAIC_TPU_SCAN, 1},
    {18, "sc_vector_subcore",
     OP("tpu.expand_load_vreg", "%r, %i, %m", "", ROW ", index, vector<16xi1>",
        "vector<16xf32>") "\n" DO("tpu.compress_store_vreg", "%t, %r, %i, %m",
                                  "",
                                  "vector<16xf32>, " ROW
                                  ", index, vector<16xi1>"),
     AT_MOSAIC_TPU_VECTOR_LOAD, 3},
    {18, "sc_vector_subcore",
     DO("tpu.vector_compress_store", "%u, %r, %i, %m",
        "compress_dim = 0 : i32, add = true",
        "vector<16xf32>, " ROW ", index, vector<16xi1>"),
     AT_MOSAIC_TPU_VECTOR_STORE, 4},
    {18, "sc_vector_subcore",
     OP("tpu.load", "%r, %i", "sublane_mask = array<i1: true, true>",
        ROW ", index",
        "vector<16xf32>") "\n" DO("tpu.store", "%t, %r, %i",
                                  "sublane_mask = array<i1: true, true>, "
                                  "sublane_stride = 1 : i32, "
                                  "operandSegmentSizes = array<i32: 1, 1, 1, "
                                  "0>",
                                  "vector<16xf32>, " ROW ", index"),
     AT_MOSAIC_TPU_VECTOR_STORE, 3},
    {18, "sc_vector_subcore",
     OP("tpu.shared_memref_slice", "%q", "", SHARED, "memref<8x8xf32" VM),
     AT_MOSAIC_TPU_SHARED_MEMREF_SLICE, 1},
    {18, "tc", OP("tpu.annotate", "%x", "no_store = true", F32, F32),
     AT_MOSAIC_TPU_ERASE_MEMREF_LAYOUT, 1},
    {18, "tc",
     OP("tpu.memref_memory_space_is", "%x",
        "memory_space = #tpu.memory_space<smem>", F32, "i1"),
     AT_MOSAIC_ARITH_CONSTANT, 0},
};

static void old_and_new_forms(void **state) {
  for (size_t i = 0; i < AT_LEN(forms); i++) {
    const form *f = &forms[i];
    at_arena *a = at_arena_create();
    at_mosaic_kernel *k = NULL;
    char *text = kernel_text(a, f->version, f->core, f->op);
    at_mosaic_call call = {.payload = {(const uint8_t *)text, strlen(text)}};
    at_status s = at_mosaic_read(&call, a, &k);
    if (!at_ok(s)) fail_msg("%zu: %s", i, at_status_message(s));
    const at_mblock *b = k->programs[0].body;
    bool found = false;
    for (uint32_t n = 0; n < b->num_ops; n++)
      found |= at_mosaic_opcode_of(b->ops[n]) == f->code &&
               b->ops[n]->num_operands == f->operands;
    if (!found) fail_msg("%zu: no %s", i, at_mosaic_op_info_of(f->code)->name);
    at_arena_destroy(a);
  }
}

static void what_has_no_form_is_refused(void **state) {
  static const struct {
    int version;
    const char *op, *says;
  } cases[] = {
      {3, DO("tpu.enqueue_dma", "%x, %o, %d", "", F32 ", " F32 ", " DMA),
       "operandSegmentSizes"},
      {1, DO("tpu.sem_signal", "%s", "", SEM),
       "another number of operands is expected"},
      {4, OP("tpu.iota", "", "", "", "vector<8x128xi32>"),
       "dimension is missing"},
      {18,
       OP("tpu.vector_expand_load", "%x, %i, %i, %m", "expand_dim = 0 : i32",
          F32 ", index, index, vector<16xi1>", "vector<8x128xf32>"),
       "another dimension than the last"},
      {19, "", "serialised in version 19 of Mosaic, versions 1 to 18 are"},
      {0, "", "serialised in version 0 of Mosaic"},
      {18, OP("tpu.shared_memref_slice", "%x", "", F32, "memref<8x8xf32" VM),
       "takes memory in vmem_shared"},
      {18,
       OP("tpu.shared_memref_slice", "%q", "", SHARED, "memref<8x48xf32" VM),
       "divides the last dimension"},
      {18, OP("tpu.shared_memref_slice", "%q", "", SHARED, "memref<4x8xf32" VM),
       "divides the last dimension"},
      {18, DO("tpu.no_such_operation", "%x", "", F32),
       "operation tpu.no_such_operation is not known"},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_arena *a = at_arena_create();
    at_mosaic_kernel *k = NULL;
    char *text = kernel_text(a, cases[i].version, "tc", cases[i].op);
    at_mosaic_call call = {.payload = {(const uint8_t *)text, strlen(text)}};
    at_status s = at_mosaic_read(&call, a, &k);
    if (at_ok(s) || !strstr(at_status_message(s), cases[i].says))
      fail_msg("%zu: want \"%s\", have \"%s\"", i, cases[i].says,
               at_status_message(s));
    at_status_free(s);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bodies_of_other_versions),
      cmocka_unit_test(old_and_new_forms),
      cmocka_unit_test(what_has_no_form_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
