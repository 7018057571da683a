// Kernels written by hand for tests of the chip's rules, in short names of
// types, and the check of what a chip says of one.
#ifndef ATOLL_TPU_RULES_TEST_UTIL_H_
#define ATOLL_TPU_RULES_TEST_UTIL_H_

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "mosaic/mosaic.h"
#include "tpu/rules.h"

// Kernels are written with ' for " and with short names of types: V:f32 is a
// vector of 8 x 128, M:f32 the same in VMEM, S:f32 four numbers in SMEM, in:hbm
// a memory space.
static const struct {
  const char *name, *before, *after;
} shorts[] = {{"V:", "vector<8x128x", ">"},
              {"M:", "memref<8x128x", ", #tpu.memory_space<vmem>>"},
              {"S:", "memref<4x", ", #tpu.memory_space<smem>>"},
              {"in:", "#tpu.memory_space<", ">"}};

// Writes the short names out; in `a`.
// Never NULL. Everything that is no short name is copied, with " for '.
const char *spelled(at_arena *a, const char *text);

// Must be read without error: what is refused is the chip's business.
// call: borrowed by the kernel, with its operands' types and configuration; its
// payload is set to the text, which must outlive it. The kernel is the arena's.
const at_mosaic_kernel *read_call(at_arena *a, at_mosaic_call *call,
                                  const char *text);

// A kernel of up to four arguments, %a to %d, of the given types, and what the
// chip says of it: a part of the refusal; NULL: it compiles.
typedef struct refused {
  const char *says;
  // As at_mosaic_chip_find knows it: "v5e".
  const char *chip;
  // Types, without the names; NULL from the first that is missing.
  const char *args[4];
  const char *body;
} refused;

// %i is index 0, %far 64, %n the number 7.
// In `a`. Short names in r's texts are written out.
const at_mosaic_kernel *kernel_of(at_arena *a, const refused *r);

// On four devices. The message must have `says` in it; NULL: there must be
// none.
void expect_refusal(const at_mosaic_kernel *k, const char *chip,
                    const char *says);

// Each row on its own chip.
// Fails the test at the first row whose message differs.
void refuse_all(const refused *rows, size_t n);

// ---- Windows
// An input in blocks of type `ref` and shape `bounds` over a grid of two steps;
// its index map gives the grid id for each of its dimensions.
typedef struct blocked {
  const char *says, *ref, *bounds, *semantics;
  at_dtype dtype;
  uint32_t rank;
  int64_t whole[2];
} blocked;

// `says`: NULL: it compiles. config: backend_config, as JSON.
void expect_block_refused(const blocked *b, const char *chip,
                          const char *config);

#endif
