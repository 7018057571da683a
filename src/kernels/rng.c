// RNG_BITS: three-fry 2x32 and Philox 4x32 with XLA's counters and word order.
// RNG: samples from a generator of the process.
#include <math.h>
#include <stdatomic.h>
#include <time.h>

#include "kernels/kernels_internal.h"

enum { DEFAULT = 0, THREE_FRY = 1, PHILOX = 2 };  // at_rng_algorithm
enum { UNIFORM = 1, NORMAL = 2 };                 // at_rng_distribution
enum { LANES = 16, GROUP = 4096 };
typedef uint32_t u32v __attribute__((vector_size(LANES * 4)));
typedef uint64_t u64v __attribute__((vector_size(LANES * 8)));

// Vectors wider than the baseline's must not cross a function, so these are
// macros.
#define ROTL(x, n) (((x) << (n)) | ((x) >> (32 - (n))))
#define MUL_HI_LO(a, k, hi, lo)                                 \
  do {                                                          \
    u64v p_ = __builtin_convertvector(a, u64v) * (uint64_t)(k); \
    (lo) = (a) * (k);                                           \
    (hi) = __builtin_convertvector(p_ >> 32, u32v);             \
  } while (0)

static const int rotation[8] = {13, 15, 26, 6, 17, 29, 16, 24};
// Encrypts LANES counters (a, b) in place; ks: key, key, parity word.
#define THREEFRY_LANES(ks, a, b)                                            \
  do {                                                                      \
    (a) += (ks)[0], (b) += (ks)[1];                                         \
    _Pragma("clang loop unroll(full)") for (uint32_t r = 0; r < 5; r++) {   \
      _Pragma("clang loop unroll(full)") for (uint32_t i = 0; i < 4; i++) { \
        (a) += (b);                                                         \
        (b) = ROTL(b, rotation[r % 2 * 4 + i]) ^ (a);                       \
      }                                                                     \
      (a) += (ks)[(r + 1) % 3];                                             \
      (b) += (ks)[(r + 2) % 3] + r + 1;                                     \
    }                                                                       \
  } while (0)

static const uint32_t lane_index[LANES] = {0, 1, 2,  3,  4,  5,  6,  7,
                                           8, 9, 10, 11, 12, 13, 14, 15};

// Words of counters start .. start + n (n a multiple of LANES).
#define THREEFRY_FN(name, ATTR)                                           \
  ATTR static void name(const uint32_t key[2], uint64_t start, int64_t n, \
                        uint32_t *w0, uint32_t *w1) {                     \
    u32v lane;                                                            \
    uint32_t ks[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bda};      \
    memcpy(&lane, lane_index, sizeof lane);                               \
    for (int64_t i = 0; i < n; i += LANES) {                              \
      uint64_t c = start + (uint64_t)i;                                   \
      u32v x0 = (u32v){0} + (uint32_t)c + lane;                           \
      /* a lane that wrapped carries into the high word */                \
      u32v x1 = (u32v){0} + (uint32_t)(c >> 32) - (u32v)(x0 < lane);      \
      THREEFRY_LANES(ks, x0, x1);                                         \
      memcpy(w0 + i, &x0, sizeof x0);                                     \
      memcpy(w1 + i, &x1, sizeof x1);                                     \
    }                                                                     \
  }
THREEFRY_FN(threefry_v3, )
THREEFRY_FN(threefry_v4, AT_V4_WIDE)

typedef void (*threefry_fn)(const uint32_t[2], uint64_t, int64_t, uint32_t *,
                            uint32_t *);

// out[4 i + q] = word q of counter state + start + i, for n counters (a
// multiple of LANES); the counter has 128 bits.
#define PHILOX_FN(name, ATTR)                                           \
  ATTR static void name(const uint32_t key[2], const uint64_t state[2], \
                        uint64_t start, int64_t n, uint32_t *out) {     \
    for (int64_t i = 0; i < n; i += LANES) {                            \
      uint32_t in[4][LANES];                                            \
      for (int l = 0; l < LANES; l++) {                                 \
        uint64_t lo = state[0] + start + (uint64_t)(i + l);             \
        uint64_t hi = state[1] + (lo < state[0]);                       \
        in[0][l] = (uint32_t)lo, in[1][l] = (uint32_t)(lo >> 32);       \
        in[2][l] = (uint32_t)hi, in[3][l] = (uint32_t)(hi >> 32);       \
      }                                                                 \
      u32v x[4];                                                        \
      memcpy(x, in, sizeof x);                                          \
      uint32_t k0 = key[0], k1 = key[1];                                \
      for (int r = 0; r < 10; r++) {                                    \
        u32v h0, l0, h1, l1;                                            \
        MUL_HI_LO(x[0], 0xd2511f53, h0, l0);                            \
        MUL_HI_LO(x[2], 0xcd9e8d57, h1, l1);                            \
        x[0] = h1 ^ x[1] ^ k0, x[1] = l1;                               \
        x[2] = h0 ^ x[3] ^ k1, x[3] = l0;                               \
        k0 += 0x9e3779b9, k1 += 0xbb67ae85;                             \
      }                                                                 \
      memcpy(in, x, sizeof x);                                          \
      for (int l = 0; l < LANES; l++)                                   \
        for (int q = 0; q < 4; q++) out[4 * (i + l) + q] = in[q][l];    \
    }                                                                   \
  }
PHILOX_FN(philox_v3, )
PHILOX_FN(philox_v4, AT_V4_WIDE)
typedef void (*philox_fn)(const uint32_t[2], const uint64_t[2], uint64_t,
                          int64_t, uint32_t *);

typedef struct bits_run {
  uint32_t key[2];
  uint64_t state[2];
  uint32_t bits;  // of an output element in memory: 8, 16, 32 or 64
  // Types of less than a byte keep their low bits, extended by their sign.
  uint32_t unused;
  bool sign;
  int64_t elements;
  // 32 bits and fewer, three-fry: out[a][2 * h + w][c] = word w of counter
  // (a * half + h) * post + c, `split` being the size of the dim that is
  // halved.
  int64_t split, half, post, counters;
  char *out;
  threefry_fn threefry;
  philox_fn philox;
} bits_run;

// Stores word w as element i of at most 32 bits: its low bits, extended to the
// element.
static inline void store_word(const bits_run *r, int64_t i, uint32_t w) {
  if (r->bits == 32)
    ((uint32_t *)(void *)r->out)[i] = w;
  else if (r->bits == 16)
    ((uint16_t *)(void *)r->out)[i] = (uint16_t)w;
  else if (r->sign)
    ((int8_t *)r->out)[i] = (int8_t)((int8_t)(w << r->unused) >> r->unused);
  else
    ((uint8_t *)r->out)[i] = (uint8_t)((uint8_t)(w << r->unused) >> r->unused);
}

// Stores the words of counters [c0, c0 + n).
static void spread_words(const bits_run *r, int64_t c0, int64_t n,
                         const uint32_t *w0, const uint32_t *w1) {
  // One dimension of 32-bit elements: the two words of a counter are
  // neighbours.
  if (r->post == 1 && r->split == r->elements && r->bits == 32) {
    uint32_t *out = (uint32_t *)(void *)r->out + 2 * c0;
    int64_t pairs = AT_MIN(n, r->elements / 2 - c0);
    for (int64_t i = 0; i < pairs; i++)
      out[2 * i] = w0[i], out[2 * i + 1] = w1[i];
    if (pairs < n) out[2 * pairs] = w0[pairs];
    return;
  }
  int64_t i = 0;
  while (i < n) {  // one run of columns at a time
    int64_t c = (c0 + i) % r->post, h = (c0 + i) / r->post % r->half;
    int64_t a = (c0 + i) / r->post / r->half;
    int64_t run = AT_MIN(r->post - c, n - i);
    int64_t at = (a * r->split + 2 * h) * r->post + c;
    if (r->bits == 32) {
      memcpy(r->out + at * 4, w0 + i, (size_t)run * 4);
    } else {
      for (int64_t q = 0; q < run; q++) store_word(r, at + q, w0[i + q]);
    }
    if (2 * h + 1 < r->split) {
      at += r->post;
      if (r->bits == 32) {
        memcpy(r->out + at * 4, w1 + i, (size_t)run * 4);
      } else {
        for (int64_t q = 0; q < run; q++) store_word(r, at + q, w1[i + q]);
      }
    }
    i += run;
  }
}

// Groups [begin, end) of GROUP counters. 64-bit elements take both words of a
// counter.
static void threefry_range(void *arg, int64_t begin, int64_t end,
                           uint32_t worker) {
  const bits_run *r = arg;
  uint32_t w0[GROUP], w1[GROUP];
  for (int64_t g = begin; g < end; g++) {
    int64_t c0 = g * GROUP, n = AT_MIN(GROUP, r->counters - c0);
    r->threefry(r->key, r->state[0] + (uint64_t)c0, at_k_round_up(n, LANES), w0,
                w1);
    if (r->bits == 64) {
      uint64_t *out = (uint64_t *)(void *)r->out + c0;
      for (int64_t i = 0; i < n; i++) out[i] = w0[i] | (uint64_t)w1[i] << 32;
    } else {
      spread_words(r, c0, n, w0, w1);
    }
  }
}

// Groups [begin, end) of GROUP words, four to a counter.
static void philox_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const bits_run *r = arg;
  uint32_t w[GROUP];
  int64_t words = r->bits == 64 ? 2 * r->elements : r->elements;
  for (int64_t g = begin; g < end; g++) {
    int64_t at = g * GROUP, n = AT_MIN(GROUP, words - at);
    r->philox(r->key, r->state, (uint64_t)at / 4,
              at_k_round_up(at_k_ceil_div(n, 4), LANES), w);
    if (r->bits >= 32)
      memcpy(r->out + at * 4, w, (size_t)n * 4);
    else
      for (int64_t i = 0; i < n; i++) store_word(r, at + i, w[i]);
  }
}

// The dim that three-fry halves: the first even one, else the largest.
static void plan_split(const at_k_rng_params *p, bits_run *r) {
  r->split = r->elements, r->post = 1;
  if (p->rank > 0) {
    uint32_t at = 0;
    while (at < p->rank && p->dims[at] % 2) at++;
    if (at == p->rank) {
      at = 0;
      for (uint32_t d = 1; d < p->rank; d++)
        if (p->dims[d] > p->dims[at]) at = d;
    }
    r->split = p->dims[at];
    for (uint32_t d = at + 1; d < p->rank; d++) r->post *= p->dims[d];
  }
  r->half = at_k_ceil_div(r->split, 2);
  r->counters = r->elements / r->split * r->half;
  AT_ASSERT(r->elements % (r->split * r->post) == 0);
  AT_ASSERT(2 * r->counters >= r->elements);
}

// Types, algorithm, state and shape of RNG_BITS.
static at_status check_bits(const at_k_rng_params *p) {
  uint32_t b = at_dtype_bytes((at_dtype)p->dtype);
  if (!(b == 1 || b == 2 || b == 4 || b == 8) || p->dtype == AT_PRED ||
      at_is_complex((at_dtype)p->dtype))
    return AT_FAIL(AT_UNIMPLEMENTED, "rng_bits: type %s",
                   at_k_dtype_text(p->dtype));
  AT_K_CHECK(p->algorithm <= PHILOX, "rng_bits: unknown algorithm %u",
             p->algorithm);
  AT_K_CHECK(
      p->state_words == 2 || (p->state_words == 3 && p->algorithm != THREE_FRY),
      "rng_bits: a state of %u words does not fit the algorithm",
      p->state_words);
  int64_t n = 1;
  AT_K_CHECK(p->rank <= AT_K_MAX_RANK, "rng_bits: rank %u", p->rank);
  for (uint32_t d = 0; d < p->rank; d++) n *= p->dims[d];
  AT_K_CHECK(p->elements >= 0 && (p->rank == 0 || n == p->elements),
             "rng_bits: dims hold %ld elements, not %ld", n, p->elements);
  return AT_OK;
}

// RNG_BITS: state bufs[0] to bufs[1], advanced by the counters used; random
// bits in bufs[2].
at_status at_k_rng_bits(const at_k_call *c) {
  const at_k_rng_params *p = c->params;
  AT_K_BUFS(c, 3);
  AT_TRY(check_bits(p));
  uint64_t in[3] = {0}, out[3];
  memcpy(in, c->bufs[0], p->state_words * 8);
  memcpy(out, in, sizeof out);
  bool wide = at_k_has(AT_CPU_AVX512);
  bits_run r = {.key = {(uint32_t)in[0], (uint32_t)(in[0] >> 32)},
                .bits = at_dtype_bytes((at_dtype)p->dtype) * 8,
                .unused = at_dtype_of((at_dtype)p->dtype)->bits < 8
                              ? 8u - at_dtype_of((at_dtype)p->dtype)->bits
                              : 0,
                .sign = at_is_signed_int((at_dtype)p->dtype),
                .elements = p->elements,
                .out = c->bufs[2],
                .threefry = wide ? threefry_v4 : threefry_v3,
                .philox = wide ? philox_v4 : philox_v3};
  if (p->algorithm == THREE_FRY) {
    r.state[0] = in[1];
    if (p->elements > 0) {
      if (r.bits == 64)
        r.counters = p->elements;
      else
        plan_split(p, &r);
      at_par_for(c->par, at_k_ceil_div(r.counters, GROUP), 4, threefry_range,
                 &r);
    }
    out[1] = in[1] + (uint64_t)r.counters;
  } else {
    // A state of two words is {high, low} of the counter, high being the key.
    r.state[0] = in[1], r.state[1] = p->state_words == 3 ? in[2] : in[0];
    int64_t words = r.bits == 64 ? 2 * p->elements : p->elements;
    at_par_for(c->par, at_k_ceil_div(words, GROUP), 4, philox_range, &r);
    out[1] = in[1] + (uint64_t)at_k_ceil_div(words, 4);
    if (p->state_words == 3) out[2] = in[2] + (out[1] < in[1]);
  }
  memcpy(c->bufs[1], out, p->state_words * 8);
  return AT_OK;
}

// ---- RNG
// Every call takes a fresh range of counters of one key per process.
static _Atomic uint64_t process_counter;
static _Atomic uint64_t process_key;

// The process's key, made from the clock at the first call; never 0. Threads
// that race agree on one.
static uint64_t process_key_get(void) {
  uint64_t k = atomic_load(&process_key);
  if (k) return k;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  uint64_t fresh =
      ((uint64_t)t.tv_sec * 1000000007u ^ (uint64_t)t.tv_nsec << 20) | 1;
  return atomic_compare_exchange_strong(&process_key, &k, fresh) ? fresh : k;
}

// One call of RNG. a, b: bounds, or mean and deviation.
typedef struct sample_run {
  uint32_t key[2], dtype, kind;
  uint64_t start;
  double a, b;
  int64_t lo;  // integers: a, and the number of values
  uint64_t span;
  char *out;
  int64_t elements;
  philox_fn philox;
} sample_run;

// Groups [begin, end) of elements: each takes one counter of Philox, 128 bits.
// Normal values by Box and Muller.
static void sample_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const sample_run *r = arg;
  int64_t es = at_dtype_bytes((at_dtype)r->dtype);
  uint32_t w[GROUP];
  const uint64_t state[2] = {r->start, 0};
  enum { PER = GROUP / 4 };  // one counter, four words, an element
  for (int64_t g = begin; g < end; g++) {
    int64_t at = g * PER, n = AT_MIN(PER, r->elements - at);
    r->philox(r->key, state, (uint64_t)at, at_k_round_up(n, LANES), w);
    for (int64_t i = 0; i < n; i++) {
      uint64_t x = w[4 * i] | (uint64_t)w[4 * i + 1] << 32;
      uint64_t y = w[4 * i + 2] | (uint64_t)w[4 * i + 3] << 32;
      char *dst = r->out + (at + i) * es;
      if (!at_is_float((at_dtype)r->dtype)) {
        int64_t v = r->span ? (int64_t)((uint64_t)r->lo + x % r->span) : r->lo;
        uint32_t wide = at_is_signed_int((at_dtype)r->dtype) ? AT_S64 : AT_U64;
        at_k_convert(r->dtype, dst, wide, &v, 1);
        continue;
      }
      double u = (double)(x >> 11) * 0x1p-53, v = (double)(y >> 11) * 0x1p-53,
             z;
      if (r->kind == NORMAL) {
        z = sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v) * r->b + r->a;
      } else {
        z = r->a + u * (r->b - r->a);
      }
      at_k_store_f64(r->dtype, dst, z);
      // Rounding may reach the open end of the interval.
      if (r->kind == UNIFORM && at_k_load_f64(r->dtype, dst) >= r->b &&
          r->b > r->a)
        at_k_store_f64(r->dtype, dst, r->a);
    }
  }
}

// RNG: bufs[0], bufs[1] are the parameters of the distribution, bufs[2] the
// result. Other values at every call.
at_status at_k_rng(const at_k_call *c) {
  const at_k_rng_params *p = c->params;
  AT_K_BUFS(c, 3);
  AT_K_CHECK(p->algorithm == UNIFORM || p->algorithm == NORMAL,
             "rng: unknown distribution %u", p->algorithm);
  bool flt = at_is_float((at_dtype)p->dtype);
  bool integer = at_is_int((at_dtype)p->dtype) || p->dtype == AT_PRED;
  if (!flt && !(integer && p->algorithm == UNIFORM))
    return AT_FAIL(AT_UNIMPLEMENTED, "rng: distribution %u of %s", p->algorithm,
                   at_k_dtype_text(p->dtype));
  AT_K_CHECK(p->elements >= 0, "rng: negative size");
  uint64_t key = process_key_get();
  sample_run r = {.key = {(uint32_t)key, (uint32_t)(key >> 32)},
                  .dtype = p->dtype,
                  .kind = p->algorithm,
                  .out = c->bufs[2],
                  .elements = p->elements,
                  .philox = at_k_has(AT_CPU_AVX512) ? philox_v4 : philox_v3};
  r.start = atomic_fetch_add(&process_counter, (uint64_t)p->elements);
  if (flt) {
    r.a = at_k_load_f64(p->dtype, c->bufs[0]),
    r.b = at_k_load_f64(p->dtype, c->bufs[1]);
  } else {
    int64_t hi;
    uint32_t wide = at_is_signed_int((at_dtype)p->dtype) ? AT_S64 : AT_U64;
    at_k_convert(wide, &r.lo, p->dtype, c->bufs[0], 1);
    at_k_convert(wide, &hi, p->dtype, c->bufs[1], 1);
    bool some = wide == AT_S64 ? hi > r.lo : (uint64_t)hi > (uint64_t)r.lo;
    r.span = some ? (uint64_t)hi - (uint64_t)r.lo : 0;
  }
  at_par_for(c->par, at_k_ceil_div(p->elements, GROUP / 4), 4, sample_range,
             &r);
  return AT_OK;
}
