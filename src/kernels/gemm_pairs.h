// Pairs of bf16, (k, k + 1) of one row or column, as AVX512-BF16 multiplies
// them. f32 is rounded as it is loaded.
#ifndef ATOLL_KERNELS_GEMM_PAIRS_H_
#define ATOLL_KERNELS_GEMM_PAIRS_H_

#include "kernels/gemm_internal.h"

// Functions of this kind may only be called where at_k_has(AT_CPU_AVX512_BF16)
// holds; their vectors never cross a call, as they are inlined.
#define AT_PAIRS __attribute__((target(AT_V4_FEATURES ",avx512bf16")))

// 16 pairs: the low half of each is k, the high half k + 1.
typedef uint32_t at_pairs __attribute__((vector_size(64)));

// 32 values of k, of which `n` are there: all of them without masks, which are
// slow on some.
// type: AT_BF16 or AT_F32, rounded to nearest even. p: n elements from there
// on, of which none behind the last is touched.
AT_PAIRS AT_INLINE at_pairs at_pairs_along_k(uint32_t type, const uint8_t *p,
                                             int64_t n) {
  if (n >= 32)
    return type == AT_BF16 ? (at_pairs)_mm512_loadu_si512(p)
                           : (at_pairs)_mm512_cvtne2ps_pbh(
                                 _mm512_loadu_ps(p + 64), _mm512_loadu_ps(p));
  // Lanes that a mask leaves out are not read, so the operand may end at a
  // page.
  uint32_t there = (1u << n) - 1;
  if (type == AT_BF16) return (at_pairs)_mm512_maskz_loadu_epi16(there, p);
  __m512 low = _mm512_maskz_loadu_ps((__mmask16)there, p);
  __m512 high = _mm512_maskz_loadu_ps((__mmask16)(there >> 16), p + 64);
  return (at_pairs)_mm512_cvtne2ps_pbh(high, low);
}

// 16 neighbours, of which `n` are there, of k and of k + 1 (if that is there).
// p: row k of the operand; step: bytes to row k + 1. Lane i holds (k, k + 1) of
// column i; what is not there is zero.
AT_PAIRS AT_INLINE at_pairs at_pairs_across_k(uint32_t type, const uint8_t *p,
                                              int64_t step, int64_t n,
                                              bool second) {
  __mmask16 there = (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
  __mmask16 next = second ? there : 0;
  if (type == AT_BF16) {
    __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, p));
    __m512i odd =
        _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(next, p + step));
    return (at_pairs)_mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
  }
  // cvtne2ps_pbh puts the second row behind the first; this order brings
  // neighbours of one column together.
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11,
                                         26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  __m512 even = _mm512_maskz_loadu_ps(there, p);
  __m512 odd = _mm512_maskz_loadu_ps(next, p + step);
  return (at_pairs)_mm512_permutexvar_epi16(
      order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
}

#endif
