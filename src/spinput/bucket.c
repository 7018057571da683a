// Mini-batch buckets: HighwayHash-64 of the four bytes of a row number, under
// the key that jax-tpu-embedding fixes, modulo 64. Four bytes take one round on
// the padded packet and four closing rounds, whatever the value.
#include <immintrin.h>

#include "base/cpu.h"
#include "spinput/spinput.h"

// The hash's own constants, and the key that the library fixes: other values
// give other mini-batches than its.
static const uint64_t init0[4] = {0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0,
                                  0x13198a2e03707344, 0x243f6a8885a308d3};
static const uint64_t init1[4] = {0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c,
                                  0xbe5466cf34e90c6c, 0x452821e638d01377};
static const uint64_t key[4] = {0x4451e30f87db9609, 0xca7358a1fd2737f8,
                                0x4b2c991fcee4fdea, 0x0b2658e18326f6ba};

// The 32-bit halves of a lane.
static uint64_t swap_halves(uint64_t x) { return x << 32 | x >> 32; }

typedef struct hash_state {
  uint64_t v0[4], v1[4], mul0[4], mul1[4];
} hash_state;

// The state before the packet: the key mixed in, then the length (4 bytes).
static void start(hash_state *h) {
  for (int i = 0; i < 4; i++) {
    h->mul0[i] = init0[i];
    h->mul1[i] = init1[i];
    h->v0[i] = (init0[i] ^ key[i]) + (4ull << 32 | 4);
    uint64_t v = init1[i] ^ swap_halves(key[i]);
    uint32_t lo = (uint32_t)v, hi = (uint32_t)(v >> 32);
    h->v1[i] = (uint64_t)(hi << 4 | hi >> 28) << 32 | (lo << 4 | lo >> 28);
  }
}

// The byte order of one 16-byte half, as the hash's definition has it.
static const uint8_t zipper[16] = {3,  12, 2,  5,  14, 1, 15, 0,
                                   11, 4,  10, 13, 9,  6, 8,  7};

// Adds a half to another, its bytes in `zipper`'s order.
static void zip_add(const uint64_t *from, uint64_t *to) {
  uint8_t in[16], out[16];
  uint64_t add[2];
  memcpy(in, from, 16);
  for (int i = 0; i < 16; i++) out[i] = in[zipper[i]];
  memcpy(add, out, 16);
  to[0] += add[0];
  to[1] += add[1];
}

// One update of the hash with a packet of four lanes.
static void round_of(hash_state *h, const uint64_t lanes[4]) {
  for (int i = 0; i < 4; i++) {
    h->v1[i] += h->mul0[i] + lanes[i];
    h->mul0[i] ^= (h->v1[i] & UINT32_MAX) * (h->v0[i] >> 32);
    h->v0[i] += h->mul1[i];
    h->mul1[i] ^= (h->v0[i] & UINT32_MAX) * (h->v1[i] >> 32);
  }
  for (int i = 0; i < 4; i += 2) zip_add(h->v1 + i, h->v0 + i);
  for (int i = 0; i < 4; i += 2) zip_add(h->v0 + i, h->v1 + i);
}

// One hash at a time: the reference of the vector code below, and the tail of a
// list.
uint32_t at_spinput_bucket(int32_t col) {
  hash_state h;
  start(&h);
  round_of(&h, (uint64_t[4]){(uint32_t)col, 0, 0, 0});
  for (int r = 0; r < 4; r++) {
    uint64_t lanes[4];
    for (int i = 0; i < 4; i++) lanes[i] = swap_halves(h.v0[i ^ 2]);
    round_of(&h, lanes);
  }
  return (h.v0[0] + h.v1[0] + h.mul0[0] + h.mul1[0]) % AT_SPINPUT_BUCKETS;
}

// The same with one hash's four lanes in a register, four hashes at a time so
// that the multiplications overlap.
enum { ABREAST = 4 };

// round_of for ABREAST hashes.
__attribute__((target("avx2"), always_inline)) static inline void rounds_avx2(
    __m256i v0[ABREAST], __m256i v1[ABREAST], __m256i m0[ABREAST],
    __m256i m1[ABREAST], const __m256i in[ABREAST]) {
  const __m256i zip =
      _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)zipper));
  for (int j = 0; j < ABREAST; j++) {
    v1[j] = _mm256_add_epi64(v1[j], _mm256_add_epi64(m0[j], in[j]));
    m0[j] = _mm256_xor_si256(
        m0[j], _mm256_mul_epu32(v1[j], _mm256_srli_epi64(v0[j], 32)));
    v0[j] = _mm256_add_epi64(v0[j], m1[j]);
    m1[j] = _mm256_xor_si256(
        m1[j], _mm256_mul_epu32(v0[j], _mm256_srli_epi64(v1[j], 32)));
    v0[j] = _mm256_add_epi64(v0[j], _mm256_shuffle_epi8(v1[j], zip));
    v1[j] = _mm256_add_epi64(v1[j], _mm256_shuffle_epi8(v0[j], zip));
  }
}

// n must be a multiple of ABREAST; the rest is the caller's.
__attribute__((target("avx2"))) static void buckets_avx2(const uint32_t *cols,
                                                         size_t n,
                                                         uint8_t *out) {
  hash_state h;
  start(&h);
  for (size_t k = 0; k + ABREAST <= n; k += ABREAST) {
    __m256i v0[ABREAST], v1[ABREAST], m0[ABREAST], m1[ABREAST], in[ABREAST];
    for (int j = 0; j < ABREAST; j++) {
      v0[j] = _mm256_loadu_si256((const __m256i *)h.v0);
      v1[j] = _mm256_loadu_si256((const __m256i *)h.v1);
      m0[j] = _mm256_loadu_si256((const __m256i *)h.mul0);
      m1[j] = _mm256_loadu_si256((const __m256i *)h.mul1);
      // The packet: the number in lane 0, zeros in the others.
      in[j] = _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)cols[k + j]));
    }
    rounds_avx2(v0, v1, m0, m1, in);
    for (int r = 0; r < 4; r++) {
      for (int j = 0; j < ABREAST; j++)  // swap the pairs, and words in a lane
        in[j] = _mm256_shuffle_epi32(
            _mm256_permute4x64_epi64(v0[j], _MM_SHUFFLE(1, 0, 3, 2)),
            _MM_SHUFFLE(2, 3, 0, 1));
      rounds_avx2(v0, v1, m0, m1, in);
    }
    for (int j = 0; j < ABREAST; j++) {
      // Lane 0 of the sum of all state is the hash.
      __m256i sum = _mm256_add_epi64(_mm256_add_epi64(v0[j], v1[j]),
                                     _mm256_add_epi64(m0[j], m1[j]));
      out[k + j] =
          (uint8_t)(_mm256_extract_epi32(sum, 0) & (AT_SPINPUT_BUCKETS - 1));
    }
  }
}

// Blocks of ABREAST ids in vectors, the rest one by one; the same buckets.
void at_spinput_buckets(const uint32_t *cols, size_t n, uint8_t *out) {
  size_t done = 0;
  if (at_cpu_features() & AT_CPU_AVX2) {
    done = n / ABREAST * ABREAST;
    buckets_avx2(cols, done, out);
  }
  for (; done < n; done++)
    out[done] = (uint8_t)at_spinput_bucket((int32_t)cols[done]);
}
