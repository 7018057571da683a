// Shared by the files of this room: feature selection, element conversion,
// checks.
//
// Errors: INVALID_ARGUMENT for parameters that cannot be, UNIMPLEMENTED for
// types that a kernel lacks; both before anything is written.
// Memory: scratch is the launch's (at_par).
// Threads: ranges run side by side and write what is theirs alone.
#ifndef ATOLL_KERNELS_KERNELS_INTERNAL_H_
#define ATOLL_KERNELS_KERNELS_INTERNAL_H_

#include <immintrin.h>

#include "base/cpu.h"
#include "kernels/kernels.h"

// Functions that may use AVX-512; callers check at_k_has(AT_CPU_AVX512) first.
#define AT_V4_FEATURES \
  "avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512cd"
// AT_V4_WIDE keeps 512-bit vectors. AT_V4 lets the compiler prefer 256 bits in
// code that it vectorises by itself, where 512 would lower the clock for
// little.
#define AT_V4_WIDE __attribute__((target(AT_V4_FEATURES)))
#define AT_V4 __attribute__((target(AT_V4_FEATURES ",prefer-256-bit")))
// Inlined also without optimisation: bodies whose arguments are constants, and
// those with AVX-512 vectors.
#define AT_INLINE static inline __attribute__((always_inline))

// The CPU's features, less what at_k_limit_features took away.
uint64_t at_k_features(void);
// All of these AT_CPU_ features, of the machine and of the limit that tests
// set.
static inline bool at_k_has(uint64_t bits) {
  return (at_k_features() & bits) == bits;
}
// Tests: keep only these features. UINT64_MAX restores all.
void at_k_limit_features(uint64_t mask);

// ---- Elements
// Elements of two bytes as the kernels see them: bits in a uint16_t. Exact.
static inline float at_bf16_to_f32(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
// Round to nearest even; NaN stays a quiet NaN.
static inline uint16_t at_f32_to_bf16(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint32_t r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  uint32_t nan = (u >> 16) | 0x40;
  return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? nan : r);
}
// By the F16C instructions of the baseline: exact this way, and rounded to
// nearest even with infinity for overflow that way.
static inline float at_f16_to_f32(uint16_t h) { return _cvtsh_ss(h); }
static inline uint16_t at_f32_to_f16(float f) { return _cvtss_sh(f, 0); }

// One element as a double (complex: its real part), and back.
double at_k_load_f64(uint32_t dtype, const void *p);
void at_k_store_f64(uint32_t dtype, void *p, double v);

// ---- Checks
// INVALID_ARGUMENT unless the call has `want` buffers.
#define AT_K_BUFS(c, want)                                                 \
  do {                                                                     \
    if ((c)->num_bufs != (want))                                           \
      return AT_FAIL(AT_INVALID_ARGUMENT, "%s: needs %u buffers, got %u",  \
                     __func__, (unsigned)(want), (unsigned)(c)->num_bufs); \
  } while (0)
// INVALID_ARGUMENT with this message unless cond holds.
#define AT_K_CHECK(cond, ...)                                      \
  do {                                                             \
    if (!(cond)) return AT_FAIL(AT_INVALID_ARGUMENT, __VA_ARGS__); \
  } while (0)
// p = scratch memory of the launch, valid until the call returns, or
// RESOURCE_EXHAUSTED. All three macros return from the function that uses them.
#define AT_K_SCRATCH(p, c, bytes)                                   \
  do {                                                              \
    (p) = at_par_scratch((c)->par, (bytes));                        \
    if (!(p))                                                       \
      return AT_FAIL(AT_RESOURCE_EXHAUSTED,                         \
                     "%s: no scratch memory (%zu bytes)", __func__, \
                     (size_t)(bytes));                              \
  } while (0)

// a / b and a, rounded up to whole b; a >= 0, b > 0.
// For sizes of arrays, whose sum with b fits an int64_t.
static inline int64_t at_k_ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
// The least multiple of b from a on.
static inline int64_t at_k_round_up(int64_t a, int64_t b) {
  return at_k_ceil_div(a, b) * b;
}
// For messages: "f32", "bf16". Static text; a number that is no at_dtype has
// AT_INVALID's.
static inline const char *at_k_dtype_text(uint32_t t) {
  return at_dtype_of((at_dtype)t)->text;
}

#endif
