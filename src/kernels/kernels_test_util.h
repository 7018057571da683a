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
  char *block[TU_MAX_BLOCKS];
  size_t bytes[TU_MAX_BLOCKS];
  int count;
} tu_owner;

// at_par's allocator. Memory is filled with 0xa5, so reading what was not
// written shows in results; NULL beyond 4 GiB, as kernels must refuse that by
// themselves.
static inline void *tu_scratch(void *owner, size_t bytes) {
  tu_owner *o = owner;
  if (o->count == TU_MAX_BLOCKS || bytes > (size_t)4 << 30) return NULL;
  char *p = aligned_alloc(64, (bytes + TU_GUARD + 63) / 64 * 64);
  if (!p) return NULL;
  memset(p, 0xa5, bytes + TU_GUARD);
  o->block[o->count] = p;
  o->bytes[o->count++] = bytes;
  return p;
}
// Fails the test if a kernel has written behind a block, and frees all.
static inline void tu_release(tu_owner *o) {
  for (int i = 0; i < o->count; i++) {
    for (int g = 0; g < TU_GUARD; g++)
      assert_int_equal((uint8_t)o->block[i][o->bytes[i] + (size_t)g], 0xa5);
    free(o->block[i]);
  }
  o->count = 0;
}

// threads: 1 or 2. Pools live for the whole test program.
static inline at_pool *tu_pool(uint32_t threads) {
  static at_pool *pools[3];
  if (!pools[threads]) {
    at_status s = at_pool_create(threads, &pools[threads]);
    assert_int_equal(at_code_take(s), AT_OK_CODE);
  }
  return pools[threads];
}

// Runs a kernel on `threads` threads; the code of its status.
// Scratch is checked and freed before it returns. cmp: NULL, or SORT's
// comparator in place of generated code.
static inline at_code tu_run_cmp(at_rt_kernel id, const void *params,
                                 uint32_t nbufs, void *const *bufs,
                                 uint32_t threads, at_comparator_fn cmp) {
  tu_owner o = {.count = 0};
  at_par par = {tu_pool(threads), tu_scratch, &o};
  at_k_call c = {&par, params, bufs, nbufs, cmp};
  at_status s = at_k_of(id)->run(&c);
  if (!at_ok(s)) print_message("%s\n", at_status_message(s));
  tu_release(&o);
  return at_code_take(s);
}
static inline at_code tu_run(at_rt_kernel id, const void *params,
                             uint32_t nbufs, void *const *bufs,
                             uint32_t threads) {
  return tu_run_cmp(id, params, nbufs, bufs, threads, NULL);
}

// SplitMix64: the same numbers on every machine. s: the state, advanced.
static inline uint64_t tu_rand(uint64_t *s) {
  uint64_t z = (*s += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
// Uniform enough for tests: the bias of the remainder is n / 2^64.
static inline int64_t tu_below(uint64_t *s, int64_t n) {
  return (int64_t)(tu_rand(s) % (uint64_t)n);
}
// One dimension of an array and where its stride, in elements, goes.
typedef struct tu_slot {
  int64_t size, *stride;
} tu_slot;
// Dense strides, in the given order or in a random one; returns the elements.
// The last dimension in order is dense. Returns the product of all sizes.
static inline int64_t tu_lay_out(const tu_slot *s, int count, bool shuffle,
                                 uint64_t *seed) {
  int order[40];
  for (int i = 0; i < count; i++) order[i] = i;
  for (int i = count - 1; shuffle && i > 0; i--) {
    int x = (int)tu_below(seed, i + 1), t = order[i];
    order[i] = order[x], order[x] = t;
  }
  int64_t step = 1;
  for (int i = count - 1; i >= 0; i--) {
    *s[order[i]].stride = step;
    step *= s[order[i]].size;
  }
  return step;
}
// Uniform in [-1, 1).
static inline double tu_unit(uint64_t *s) {
  return (double)(int64_t)tu_rand(s) * 0x1p-63;
}

// Random elements: small integers, floats in [-1, 1).
// n >= 0 elements, malloc'ed; the caller frees. Integers are -8 to 8,
// wrapped for unsigned types. Products of a few hundred stay exact in f32.
static inline void *tu_fill(uint32_t t, int64_t n, uint64_t *s) {
  int64_t es = at_dtype_bytes((at_dtype)t);
  char *p = malloc((size_t)(n * es) + 1);
  for (int64_t i = 0; i < n; i++) {
    if (at_is_complex((at_dtype)t)) {
      for (int h = 0; h < 2; h++)
        at_k_store_f64(at_real_of((at_dtype)t), p + i * es + h * (es / 2),
                       tu_unit(s));
    } else {
      bool f = at_is_float((at_dtype)t);
      double v = f ? tu_unit(s) : (double)(tu_below(s, 17) - 8);
      at_k_store_f64(t, p + i * es, v);
    }
  }
  return p;
}

// Feature sets that the tests run under.
// Everything; without AMX; AVX-512 alone; and the baseline. What the machine
// lacks stays off.
static const uint64_t tu_features[] = {
    UINT64_MAX, ~(uint64_t)(AT_CPU_AMX_BF16 | AT_CPU_AMX_INT8), AT_CPU_AVX512,
    AT_CPU_AVX2};

#endif
