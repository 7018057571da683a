// Random bits against words that XLA:CPU (jaxlib 0.10.2) produced, and samples
// by their moments.
#include "kernels/kernels_test_util.h"

enum { THREE_FRY = 1, PHILOX = 2 };
// What XLA made of one call.
typedef struct golden {
  // dtype: of the bits; dims: of the result, rank of them.
  uint32_t algorithm, dtype, rank;
  int64_t dims[3];
  uint64_t state[2], hash;  // new state; FNV-1a of the bits
} golden;
// The counter is near the end of its low word, so that it wraps within most
// calls.
static const uint64_t first_state[2] = {0x123456789abcdef0u,
                                        0xfffffffffffffff0u};
// By algorithm, type and shape. Odd sizes and a first even dimension that is
// not the first tell the order of three-fry's two words; a thousand rows,
// whether work that is shared keeps it.
static const golden goldens[] = {
    {THREE_FRY,
     AT_U8,
     1,
     {7},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0x4c393d9a0213d0e8u},
    {THREE_FRY,
     AT_U8,
     1,
     {8},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0x991415b187ab226bu},
    {THREE_FRY,
     AT_U8,
     2,
     {3, 5},
     {0x123456789abcdef0u, 0xfffffffffffffff9u},
     0xd16473b50986ebd1u},
    {THREE_FRY,
     AT_U8,
     2,
     {3, 4},
     {0x123456789abcdef0u, 0xfffffffffffffff6u},
     0x42bf17f5135332b8u},
    {THREE_FRY,
     AT_U8,
     3,
     {5, 6, 7},
     {0x123456789abcdef0u, 0x59u},
     0x57a2cd759cad28f9u},
    {THREE_FRY,
     AT_U8,
     3,
     {5, 3, 9},
     {0x123456789abcdef0u, 0x3bu},
     0x4e8515994605e0e7u},
    {THREE_FRY,
     AT_U8,
     2,
     {1000, 33},
     {0x123456789abcdef0u, 0x4064u},
     0xe581ef51668729bu},
    {THREE_FRY,
     AT_U8,
     1,
     {1},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x44bd08d473ccbc20u},
    {THREE_FRY,
     AT_U8,
     0,
     {},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x44bd08d473ccbc20u},
    {THREE_FRY,
     AT_U16,
     1,
     {7},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0xf173faa46d82935fu},
    {THREE_FRY,
     AT_U16,
     1,
     {8},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0x3aa0cb757ac474bfu},
    {THREE_FRY,
     AT_U16,
     2,
     {3, 5},
     {0x123456789abcdef0u, 0xfffffffffffffff9u},
     0x2a07c5c6d70de974u},
    {THREE_FRY,
     AT_U16,
     2,
     {3, 4},
     {0x123456789abcdef0u, 0xfffffffffffffff6u},
     0xafcef662aba7508eu},
    {THREE_FRY,
     AT_U16,
     3,
     {5, 6, 7},
     {0x123456789abcdef0u, 0x59u},
     0xdeb614a49c4a2a18u},
    {THREE_FRY,
     AT_U16,
     3,
     {5, 3, 9},
     {0x123456789abcdef0u, 0x3bu},
     0x422028840195d5d6u},
    {THREE_FRY,
     AT_U16,
     2,
     {1000, 33},
     {0x123456789abcdef0u, 0x4064u},
     0x9a0a767df8b8e959u},
    {THREE_FRY,
     AT_U16,
     1,
     {1},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x99f2fd00c4e52034u},
    {THREE_FRY,
     AT_U16,
     0,
     {},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x99f2fd00c4e52034u},
    {THREE_FRY,
     AT_U32,
     1,
     {7},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0x9262e348d9382ad0u},
    {THREE_FRY,
     AT_U32,
     1,
     {8},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0xd1496c26e45676cau},
    {THREE_FRY,
     AT_U32,
     2,
     {3, 5},
     {0x123456789abcdef0u, 0xfffffffffffffff9u},
     0x5a458f25c8090dd1u},
    {THREE_FRY,
     AT_U32,
     2,
     {3, 4},
     {0x123456789abcdef0u, 0xfffffffffffffff6u},
     0xf0264dfcc508a08fu},
    {THREE_FRY,
     AT_U32,
     3,
     {5, 6, 7},
     {0x123456789abcdef0u, 0x59u},
     0x33beb579de44b629u},
    {THREE_FRY,
     AT_U32,
     3,
     {5, 3, 9},
     {0x123456789abcdef0u, 0x3bu},
     0xd1063f964f119cc1u},
    {THREE_FRY,
     AT_U32,
     2,
     {1000, 33},
     {0x123456789abcdef0u, 0x4064u},
     0xa885f1115f0079b3u},
    {THREE_FRY,
     AT_U32,
     1,
     {1},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0xc3698180f4686d3eu},
    {THREE_FRY,
     AT_U32,
     0,
     {},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0xc3698180f4686d3eu},
    {THREE_FRY,
     AT_U64,
     1,
     {7},
     {0x123456789abcdef0u, 0xfffffffffffffff7u},
     0x595934b2e8d7e6efu},
    {THREE_FRY,
     AT_U64,
     1,
     {8},
     {0x123456789abcdef0u, 0xfffffffffffffff8u},
     0x3230af1f1cd494d5u},
    {THREE_FRY,
     AT_U64,
     2,
     {3, 5},
     {0x123456789abcdef0u, 0xffffffffffffffffu},
     0xd853e6e641846604u},
    {THREE_FRY,
     AT_U64,
     2,
     {3, 4},
     {0x123456789abcdef0u, 0xfffffffffffffffcu},
     0x6d606fd09da20e9fu},
    {THREE_FRY,
     AT_U64,
     3,
     {5, 6, 7},
     {0x123456789abcdef0u, 0xc2u},
     0xbad6560a49ddd3ccu},
    {THREE_FRY,
     AT_U64,
     3,
     {5, 3, 9},
     {0x123456789abcdef0u, 0x77u},
     0x946fa44260bf0a39u},
    {THREE_FRY,
     AT_U64,
     2,
     {1000, 33},
     {0x123456789abcdef0u, 0x80d8u},
     0xb3c01d0c8d7e0e0bu},
    {THREE_FRY,
     AT_U64,
     1,
     {1},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x8915d52a13b0f1e7u},
    {THREE_FRY,
     AT_U64,
     0,
     {},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x8915d52a13b0f1e7u},
    {PHILOX,
     AT_U8,
     1,
     {7},
     {0x123456789abcdef0u, 0xfffffffffffffff2u},
     0xe95eddedc8fe9d16u},
    {PHILOX,
     AT_U8,
     1,
     {8},
     {0x123456789abcdef0u, 0xfffffffffffffff2u},
     0x8ad03c0c88a4ff13u},
    {PHILOX,
     AT_U8,
     2,
     {3, 5},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0xf2bc839eed6c37acu},
    {PHILOX,
     AT_U8,
     2,
     {3, 4},
     {0x123456789abcdef0u, 0xfffffffffffffff3u},
     0xbc0e42efc29019a3u},
    {PHILOX,
     AT_U8,
     3,
     {5, 6, 7},
     {0x123456789abcdef0u, 0x25u},
     0x5c454921697e317bu},
    {PHILOX,
     AT_U8,
     3,
     {5, 3, 9},
     {0x123456789abcdef0u, 0x12u},
     0x4dbb8be38b42cb16u},
    {PHILOX,
     AT_U8,
     2,
     {1000, 33},
     {0x123456789abcdef0u, 0x202au},
     0x2ba632193ef2e29fu},
    {PHILOX,
     AT_U8,
     1,
     {1},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x44bd6fd473cd6b25u},
    {PHILOX,
     AT_U8,
     0,
     {},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x44bd6fd473cd6b25u},
    {PHILOX,
     AT_U16,
     1,
     {7},
     {0x123456789abcdef0u, 0xfffffffffffffff2u},
     0x7391fa954b6a2a79u},
    {PHILOX,
     AT_U16,
     1,
     {8},
     {0x123456789abcdef0u, 0xfffffffffffffff2u},
     0xb483a19c8c20b3e7u},
    {PHILOX,
     AT_U16,
     2,
     {3, 5},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0xbf38119062ddb8e7u},
    {PHILOX,
     AT_U16,
     2,
     {3, 4},
     {0x123456789abcdef0u, 0xfffffffffffffff3u},
     0xf5ceb2dfb722ffe7u},
    {PHILOX,
     AT_U16,
     3,
     {5, 6, 7},
     {0x123456789abcdef0u, 0x25u},
     0xe355c5b27e526449u},
    {PHILOX,
     AT_U16,
     3,
     {5, 3, 9},
     {0x123456789abcdef0u, 0x12u},
     0xf33e455f3eb880d6u},
    {PHILOX,
     AT_U16,
     2,
     {1000, 33},
     {0x123456789abcdef0u, 0x202au},
     0x176b72bc60fa96c4u},
    {PHILOX,
     AT_U16,
     1,
     {1},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x9b50ee00c60e5b38u},
    {PHILOX,
     AT_U16,
     0,
     {},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x9b50ee00c60e5b38u},
    {PHILOX,
     AT_U32,
     1,
     {7},
     {0x123456789abcdef0u, 0xfffffffffffffff2u},
     0x4d2c4f182f8e3f31u},
    {PHILOX,
     AT_U32,
     1,
     {8},
     {0x123456789abcdef0u, 0xfffffffffffffff2u},
     0xbbc75b6ed556908eu},
    {PHILOX,
     AT_U32,
     2,
     {3, 5},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0x5c6a11a0898a7de7u},
    {PHILOX,
     AT_U32,
     2,
     {3, 4},
     {0x123456789abcdef0u, 0xfffffffffffffff3u},
     0x1f9f89d31ba21551u},
    {PHILOX,
     AT_U32,
     3,
     {5, 6, 7},
     {0x123456789abcdef0u, 0x25u},
     0xbe839e06fe0a6927u},
    {PHILOX,
     AT_U32,
     3,
     {5, 3, 9},
     {0x123456789abcdef0u, 0x12u},
     0xf7f5ef9a743d82cdu},
    {PHILOX,
     AT_U32,
     2,
     {1000, 33},
     {0x123456789abcdef0u, 0x202au},
     0xab3f4c8b44db6ee4u},
    {PHILOX,
     AT_U32,
     1,
     {1},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x4b80fedb2bbd1c4bu},
    {PHILOX,
     AT_U32,
     0,
     {},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x4b80fedb2bbd1c4bu},
    {PHILOX,
     AT_U64,
     1,
     {7},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0xbdbc7aff0247d974u},
    {PHILOX,
     AT_U64,
     1,
     {8},
     {0x123456789abcdef0u, 0xfffffffffffffff4u},
     0x3762038325e1cbdu},
    {PHILOX,
     AT_U64,
     2,
     {3, 5},
     {0x123456789abcdef0u, 0xfffffffffffffff8u},
     0x1ca4abff5b473461u},
    {PHILOX,
     AT_U64,
     2,
     {3, 4},
     {0x123456789abcdef0u, 0xfffffffffffffff6u},
     0x8479d8bcf8bc7a3cu},
    {PHILOX,
     AT_U64,
     3,
     {5, 6, 7},
     {0x123456789abcdef0u, 0x59u},
     0x2883e03a8723dc73u},
    {PHILOX,
     AT_U64,
     3,
     {5, 3, 9},
     {0x123456789abcdef0u, 0x34u},
     0x4e749bc29e30809au},
    {PHILOX,
     AT_U64,
     2,
     {1000, 33},
     {0x123456789abcdef0u, 0x4064u},
     0xfcb5daa6b889c2d0u},
    {PHILOX,
     AT_U64,
     1,
     {1},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x7aab8373041ba266u},
    {PHILOX,
     AT_U64,
     0,
     {},
     {0x123456789abcdef0u, 0xfffffffffffffff1u},
     0x7aab8373041ba266u},
};

// FNV-1a, 64 bits.
// Bits are too many to be listed.
static uint64_t fnv(const uint8_t *p, size_t n) {
  uint64_t h = 1469598103934665603u;
  for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211u;
  return h;
}

// Each golden with and without AVX-512, by one thread and by two.
static void test_bits_equal_xla(void **state) {
  for (int wide = 0; wide < 2; wide++) {
    at_k_limit_features(wide ? UINT64_MAX : AT_CPU_AVX2);
    for (size_t i = 0; i < AT_LEN(goldens); i++)
      for (uint32_t threads = 1; threads <= 2; threads++) {
        const golden *g = &goldens[i];
        at_k_rng_params p = {.algorithm = g->algorithm,
                             .dtype = g->dtype,
                             .state_words = 2,
                             .rank = g->rank,
                             .elements = 1};
        for (uint32_t d = 0; d < g->rank; d++)
          p.dims[d] = g->dims[d], p.elements *= g->dims[d];
        size_t bytes = (size_t)p.elements * at_dtype_bytes((at_dtype)g->dtype);
        uint8_t *out = malloc(bytes);
        uint64_t in[2] = {first_state[0], first_state[1]}, next[2];
        void *bufs[] = {in, next, out};
        assert_int_equal(tu_run(AT_RT_RNG_BITS, &p, 3, bufs, threads),
                         AT_OK_CODE);
        if (next[0] != g->state[0] || next[1] != g->state[1] ||
            fnv(out, bytes) != g->hash)
          fail_msg(
              "algorithm %u %s rank %u [%ld,%ld,%ld]: state %lx %lx, hash %lx",
              g->algorithm, at_k_dtype_text(g->dtype), g->rank, g->dims[0],
              g->dims[1], g->dims[2], next[0], next[1], fnv(out, bytes));
        free(out);
      }
  }
  at_k_limit_features(UINT64_MAX);
}

// Counters that wrap, a state of three words, nothing to draw, what is refused.
// Each refusal by its code.
static void test_edges(void **state) {
  // A counter that wraps its low word inside a vector; three words of state; no
  // bits.
  uint64_t in[3] = {1, 0xfffffffau, 5}, next[3],
           far[3] = {1, UINT64_MAX - 2, 5};
  uint32_t a[64], b[64];
  at_k_rng_params p = {.algorithm = THREE_FRY,
                       .dtype = AT_U32,
                       .state_words = 2,
                       .rank = 1,
                       .elements = 64,
                       .dims = {64}};
  void *bufs[] = {in, next, a};
  assert_int_equal(tu_run(AT_RT_RNG_BITS, &p, 3, bufs, 1), AT_OK_CODE);
  // A pair of words belongs to one count: the i-th pair is the first of a call
  // that begins i counts later.
  for (int64_t i = 0; i < 32; i++) {
    uint64_t one[2] = {1, 0xfffffffau + (uint64_t)i};
    p.elements = 2, p.dims[0] = 2;
    void *single[] = {one, next, b};
    assert_int_equal(tu_run(AT_RT_RNG_BITS, &p, 3, single, 1), AT_OK_CODE);
    assert_true(a[2 * i] == b[0] && a[2 * i + 1] == b[1]);
  }
  // Philox carries into the third word of its state.
  p = (at_k_rng_params){
      .algorithm = PHILOX, .dtype = AT_U32, .state_words = 3, .elements = 16};
  void *wide[] = {far, next, a};
  assert_int_equal(tu_run(AT_RT_RNG_BITS, &p, 3, wide, 1), AT_OK_CODE);
  assert_true(next[0] == 1 && next[1] == 1 && next[2] == 6);
  // Nothing is drawn: the state stays.
  p.elements = 0;
  assert_int_equal(tu_run(AT_RT_RNG_BITS, &p, 3, wide, 1), AT_OK_CODE);
  assert_true(next[1] == far[1] && next[2] == far[2]);
  // Types and states that an algorithm does not have.
  p.dtype = AT_C64;
  assert_int_equal(tu_run(AT_RT_RNG_BITS, &p, 3, wide, 1), AT_UNIMPLEMENTED);
  p.dtype = AT_U32, p.algorithm = THREE_FRY;
  assert_int_equal(tu_run(AT_RT_RNG_BITS, &p, 3, wide, 1), AT_INVALID_ARGUMENT);
}

// Range, mean and variance; another call draws other numbers.
static void test_samples(void **state) {
  // So many that the tolerances below are seven standard deviations and more.
  enum { N = 200000 };
  float *x = malloc(N * 4), *y = malloc(N * 4), lo = -1, hi = 3;
  at_k_rng_params p = {.algorithm = 1, .dtype = AT_F32, .elements = N};
  void *bufs[] = {&lo, &hi, x};
  assert_int_equal(tu_run(AT_RT_RNG, &p, 3, bufs, 2), AT_OK_CODE);
  // Uniform over [-1, 3): mean 1, variance 16 / 12.
  double sum = 0, sq = 0;
  for (int i = 0; i < N; i++) {
    assert_true(x[i] >= lo && x[i] < hi);
    sum += x[i], sq += x[i] * x[i];
  }
  assert_true(fabs(sum / N - 1) < 0.02 && fabs(sq / N - 1 - 16.0 / 12) < 0.05);
  bufs[2] = y;
  assert_int_equal(tu_run(AT_RT_RNG, &p, 3, bufs, 2), AT_OK_CODE);
  assert_true(memcmp(x, y, N * 4) != 0);  // a new stretch of the generator
  // Normal: mean -1, deviation 3.
  p.algorithm = 2;
  assert_int_equal(tu_run(AT_RT_RNG, &p, 3, bufs, 2), AT_OK_CODE);
  sum = sq = 0;
  for (int i = 0; i < N; i++) sum += y[i], sq += y[i] * y[i];
  assert_true(fabs(sum / N + 1) < 0.05 && fabs(sq / N - 1 - 9) < 0.2);
  // Integers: all seven values of [-3, 4) about equally often.
  int8_t a = -3, b = 4, *z = malloc(N);
  p.algorithm = 1, p.dtype = AT_S8;
  void *ints[] = {&a, &b, z};
  assert_int_equal(tu_run(AT_RT_RNG, &p, 3, ints, 2), AT_OK_CODE);
  int count[7] = {0};
  for (int i = 0; i < N; i++) {
    assert_true(z[i] >= -3 && z[i] < 4);
    count[z[i] + 3]++;
  }
  for (int i = 0; i < 7; i++) assert_true(abs(count[i] - N / 7) < 1500);
  p.algorithm = 2;
  assert_int_equal(tu_run(AT_RT_RNG, &p, 3, ints, 2), AT_UNIMPLEMENTED);
  p.algorithm = 7;
  assert_int_equal(tu_run(AT_RT_RNG, &p, 3, ints, 2), AT_INVALID_ARGUMENT);
  free(x), free(y), free(z);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits_equal_xla),
                                     cmocka_unit_test(test_edges),
                                     cmocka_unit_test(test_samples)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
