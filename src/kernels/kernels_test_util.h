// Shared by the tests of this room: a pool, scratch memory that is checked for
// overruns, calls with one and two threads, and a simple generator.
#ifndef ATOLL_KERNELS_KERNELS_TEST_UTIL_H_
#define ATOLL_KERNELS_KERNELS_TEST_UTIL_H_

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "kernels/kernels_internal.h"

// A kernel of this room asks for few blocks; more than TU_MAX_BLOCKS is a leak
// in a loop and fails as memory that is out.
enum { TU_MAX_BLOCKS = 64, TU_GUARD = 64 };
// Scratch memory of a call, with a guard behind each block.
typedef struct tu_owner {
  // bytes: as asked for; the guard of TU_GUARD bytes follows.
  char *block[TU_MAX_BLOCKS];
  size_t bytes[TU_MAX_BLOCKS];
  int count;
} tu_owner;

// at_par's allocator. Memory is filled with 0xa5, so reading what was not
// written shows in results; NULL beyond 4 GiB, as kernels must refuse that by
// themselves.
void *tu_scratch(void *owner, size_t bytes);
// Fails the test if a kernel has written behind a block, and frees all.
void tu_release(tu_owner *o);

// threads: 1 or 2. Pools live for the whole test program.
// Made on first use; not thread-safe. Borrowed.
at_pool *tu_pool(uint32_t threads);

// Runs a kernel on `threads` threads; the code of its status.
// Scratch is checked and freed before it returns. cmp: NULL, or SORT's
// comparator in place of generated code.
at_code tu_run_cmp(at_rt_kernel id, const void *params, uint32_t nbufs,
                   void *const *bufs, uint32_t threads, at_comparator_fn cmp);
// The same without a comparator.
at_code tu_run(at_rt_kernel id, const void *params, uint32_t nbufs,
               void *const *bufs, uint32_t threads);

// SplitMix64: the same numbers on every machine. s: the state, advanced.
uint64_t tu_rand(uint64_t *s);
// Uniform enough for tests: the bias of the remainder is n / 2^64.
// n > 0. In [0, n).
int64_t tu_below(uint64_t *s, int64_t n);
// One dimension of an array and where its stride, in elements, goes.
typedef struct tu_slot {
  int64_t size, *stride;
} tu_slot;
// Dense strides, in the given order or in a random one; returns the elements.
// The last dimension in order is dense. Returns the product of all sizes.
// shuffle: in an order drawn from *seed, so kernels that rely on row-major
// operands fail. At most 40 dimensions.
int64_t tu_lay_out(const tu_slot *s, int count, bool shuffle, uint64_t *seed);
// Uniform in [-1, 1).
double tu_unit(uint64_t *s);

// Random elements: small integers, floats in [-1, 1).
// n >= 0 elements, malloc'ed; the caller frees. Integers are -8 to 8,
// wrapped for unsigned types. Products of a few hundred stay exact in f32.
void *tu_fill(uint32_t t, int64_t n, uint64_t *s);

// Feature sets that the tests run under.
// Everything; without AMX; AVX-512 alone; and the baseline. What the machine
// lacks stays off.
static const uint64_t tu_features[] = {
    UINT64_MAX, ~(uint64_t)(AT_CPU_AMX_BF16 | AT_CPU_AMX_INT8), AT_CPU_AVX512,
    AT_CPU_AVX2};

#endif
