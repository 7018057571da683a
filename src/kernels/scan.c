// SCAN: inclusive running reductions. Long rows are cut into blocks of a fixed
// size: totals of the blocks, then their running values, then each block from
// its start. The cut depends on the shape only, so results do not depend on the
// threads.
#include "kernels/kernels_internal.h"

enum { MAX_ITEM = 16, COLS = 512 };

typedef struct scan scan;
// Scans `n` steps of `w` neighbouring columns (step = distance of steps, in
// elements, negative when reversed). carry[w], in the accumulator's type, holds
// the value so far when `started`, and the last value afterwards. dst NULL:
// only the carry.
typedef void (*scan_fn)(const void *src, void *dst, int64_t n, int64_t step,
                        int64_t w, void *carry, bool started);
struct scan {
  const at_k_scan_params *p;
  const char *src;
  char *dst;
  scan_fn fn;
  int64_t es, acc_es, step;
  int64_t block, blocks, strips;  // blocks of a row, strips of columns
  char *carry;                    // [outer][blocks][inner]
};

#define IDENT(x) (x)
#define OP_ADD(a, b) ((a) + (b))
#define OP_MUL(a, b) ((a) * (b))
#define OP_UMUL(a, b) (1u * (a) * (b))  // no promotion to int on the way
#define OP_AND(a, b) ((a) & (b))
#define OP_OR(a, b) ((a) | (b))
#define OP_XOR(a, b) ((a) ^ (b))
#define OP_MIN(a, b) ((b) < (a) ? (b) : (a))
#define OP_MAX(a, b) ((a) < (b) ? (b) : (a))
// A NaN on either side stays.
#define OP_FMIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define OP_FMAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

// T: element, A: accumulator, LOAD and STORE between them. The wide form runs
// over the columns in the inner loop; the narrow one keeps its value in a
// register. src and dst may be one array, carry is apart from both.
#define SCAN_FN(name, T, A, LOAD, STORE, OP)                              \
  static void name(const void *srcv, void *dstv, int64_t n, int64_t step, \
                   int64_t w, void *carryv, bool started) {               \
    const T *src = srcv;                                                  \
    T *dst = dstv;                                                        \
    A *restrict carry = carryv;                                           \
    int64_t i = 0;                                                        \
    if (!started) {                                                       \
      for (int64_t c = 0; c < w; c++) {                                   \
        carry[c] = LOAD(src[c]);                                          \
        if (dst) dst[c] = src[c];                                         \
      }                                                                   \
      i = 1;                                                              \
    }                                                                     \
    if (w == 1) {                                                         \
      A v = carry[0];                                                     \
      if (dst)                                                            \
        for (; i < n; i++) {                                              \
          v = (A)OP(v, LOAD(src[i * step]));                              \
          dst[i * step] = STORE(v);                                       \
        }                                                                 \
      else                                                                \
        for (; i < n; i++) v = (A)OP(v, LOAD(src[i * step]));             \
      carry[0] = v;                                                       \
      return;                                                             \
    }                                                                     \
    for (; i < n; i++) {                                                  \
      const T *s = src + i * step;                                        \
      if (dst) {                                                          \
        T *d = dst + i * step;                                            \
        for (int64_t c = 0; c < w; c++) {                                 \
          A v = (A)OP(carry[c], LOAD(s[c]));                              \
          carry[c] = v;                                                   \
          d[c] = STORE(v);                                                \
        }                                                                 \
      } else {                                                            \
        for (int64_t c = 0; c < w; c++)                                   \
          carry[c] = (A)OP(carry[c], LOAD(s[c]));                         \
      }                                                                   \
    }                                                                     \
  }

// Sums, products and bits of integers do not depend on their sign; U wraps.
#define INT_FNS(sfx, S, U)                        \
  SCAN_FN(add_##sfx, U, U, IDENT, IDENT, OP_ADD)  \
  SCAN_FN(mul_##sfx, U, U, IDENT, IDENT, OP_UMUL) \
  SCAN_FN(and_##sfx, U, U, IDENT, IDENT, OP_AND)  \
  SCAN_FN(or_##sfx, U, U, IDENT, IDENT, OP_OR)    \
  SCAN_FN(xor_##sfx, U, U, IDENT, IDENT, OP_XOR)  \
  SCAN_FN(min_s##sfx, S, S, IDENT, IDENT, OP_MIN) \
  SCAN_FN(max_s##sfx, S, S, IDENT, IDENT, OP_MAX) \
  SCAN_FN(min_u##sfx, U, U, IDENT, IDENT, OP_MIN) \
  SCAN_FN(max_u##sfx, U, U, IDENT, IDENT, OP_MAX)
INT_FNS(8, int8_t, uint8_t)
INT_FNS(16, int16_t, uint16_t)
INT_FNS(32, int32_t, uint32_t)
INT_FNS(64, int64_t, uint64_t)

#define FLOAT_FNS(sfx, T, A, LOAD, STORE)        \
  SCAN_FN(add_##sfx, T, A, LOAD, STORE, OP_ADD)  \
  SCAN_FN(mul_##sfx, T, A, LOAD, STORE, OP_MUL)  \
  SCAN_FN(min_##sfx, T, A, LOAD, STORE, OP_FMIN) \
  SCAN_FN(max_##sfx, T, A, LOAD, STORE, OP_FMAX)
FLOAT_FNS(f32, float, float, IDENT, IDENT)
FLOAT_FNS(f64, double, double, IDENT, IDENT)
FLOAT_FNS(bf16, uint16_t, float, at_bf16_to_f32, at_f32_to_bf16)
FLOAT_FNS(f16, uint16_t, float, at_f16_to_f32, at_f32_to_f16)

typedef struct c64 {
  float re, im;
} c64;
typedef struct c128 {
  double re, im;
} c128;
#define C_ADD(T) \
  static inline T T##_add(T a, T b) { return (T){a.re + b.re, a.im + b.im}; }
#define C_MUL(T)                                                      \
  static inline T T##_mul(T a, T b) {                                 \
    return (T){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; \
  }
// clang-format off
C_ADD(c64) C_MUL(c64)
C_ADD(c128) C_MUL(c128)
#define CAST
#define C_SCAN(T, op) SCAN_FN(op##_##T, T, T, IDENT, IDENT, T##_##op)
C_SCAN(c64, add) C_SCAN(c64, mul)
C_SCAN(c128, add) C_SCAN(c128, mul)
    // clang-format on

    // One row of f32 sums: prefix sums of eight, then the carry, so that the
    // chain from element to element is one add per eight.
    static void add_row_f32(const void *srcv, void *dstv, int64_t n,
                            int64_t step, int64_t w, void *carryv,
                            bool started) {
  const float *src = srcv;
  float *dst = dstv;
  if (w != 1 || step != 1 || !started || n < 16) {
    add_f32(srcv, dstv, n, step, w, carryv, started);
    return;
  }
  float *carry = carryv;
  int64_t i = 0;
  if (!dst) {
    __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(),
                   _mm256_setzero_ps(), _mm256_setzero_ps()};
    for (; i + 32 <= n; i += 32)
      for (int q = 0; q < 4; q++)
        s[q] = _mm256_add_ps(s[q], _mm256_loadu_ps(src + i + 8 * q));
    float t[8];
    _mm256_storeu_ps(
        t, _mm256_add_ps(_mm256_add_ps(s[0], s[1]), _mm256_add_ps(s[2], s[3])));
    float v = *carry + (((t[0] + t[1]) + (t[2] + t[3])) +
                        ((t[4] + t[5]) + (t[6] + t[7])));
    for (; i < n; i++) v += src[i];
    *carry = v;
    return;
  }
  __m256 c = _mm256_set1_ps(*carry);
  const __m256i last = _mm256_set1_epi32(7);
  for (; i + 8 <= n; i += 8) {
    __m256 x = _mm256_loadu_ps(src + i);
    x = _mm256_add_ps(
        x, _mm256_castsi256_ps(_mm256_slli_si256(_mm256_castps_si256(x), 4)));
    x = _mm256_add_ps(
        x, _mm256_castsi256_ps(_mm256_slli_si256(_mm256_castps_si256(x), 8)));
    __m256 low = _mm256_permute2f128_ps(x, x, 0x08);  // the low half, moved up
    x = _mm256_add_ps(x, _mm256_shuffle_ps(low, low, 0xff));
    __m256 y = _mm256_add_ps(x, c);
    _mm256_storeu_ps(dst + i, y);
    c = _mm256_add_ps(c, _mm256_permutevar8x32_ps(x, last));
  }
  float v = _mm256_cvtss_f32(c);
  for (; i < n; i++) v += src[i], dst[i] = v;
  *carry = v;
}

// The scan of integers of t's size, or NULL: no such operation.
static scan_fn int_fn(uint32_t t, uint32_t op) {
#define PICK(sfx, S)                      \
  switch (op) {                           \
    case AT_REDUCE_ADD:                   \
      return add_##sfx;                   \
    case AT_REDUCE_MUL:                   \
      return mul_##sfx;                   \
    case AT_REDUCE_AND:                   \
      return and_##sfx;                   \
    case AT_REDUCE_OR:                    \
      return or_##sfx;                    \
    case AT_REDUCE_XOR:                   \
      return xor_##sfx;                   \
    case AT_REDUCE_MIN:                   \
      return S ? min_s##sfx : min_u##sfx; \
    case AT_REDUCE_MAX:                   \
      return S ? max_s##sfx : max_u##sfx; \
    default:                              \
      return NULL;                        \
  }
  bool s = at_is_signed_int((at_dtype)t);
  switch (at_dtype_bytes((at_dtype)t)) {
    case 1:
      PICK(8, s)
    case 2:
      PICK(16, s)
    case 4:
      PICK(32, s)
    case 8:
      PICK(64, s)
    default:
      return NULL;
  }
#undef PICK
}

// The scan of floats or complex numbers, or NULL.
static scan_fn float_fn(uint32_t t, uint32_t op) {
#define PICK(sfx)       \
  switch (op) {         \
    case AT_REDUCE_ADD: \
      return add_##sfx; \
    case AT_REDUCE_MUL: \
      return mul_##sfx; \
    case AT_REDUCE_MIN: \
      return min_##sfx; \
    case AT_REDUCE_MAX: \
      return max_##sfx; \
    default:            \
      return NULL;      \
  }
  switch (t) {
    case AT_F32:
      if (op == AT_REDUCE_ADD) return add_row_f32;
      PICK(f32)
    case AT_F64:
      PICK(f64)
    case AT_BF16:
      PICK(bf16)
    case AT_F16:
      PICK(f16)
    case AT_C64:
      return op == AT_REDUCE_ADD   ? add_c64
             : op == AT_REDUCE_MUL ? mul_c64
                                   : NULL;
    case AT_C128:
      return op == AT_REDUCE_ADD   ? add_c128
             : op == AT_REDUCE_MUL ? mul_c128
                                   : NULL;
    default:
      return NULL;
  }
#undef PICK
}

// The function for element type t, or NULL.
static scan_fn scan_fn_of(uint32_t t, uint32_t op) {
  if (t == AT_PRED) {  // 0 and 1: add is or, mul is and
    if (op == AT_REDUCE_ADD || op == AT_REDUCE_MAX) op = AT_REDUCE_OR;
    if (op == AT_REDUCE_MUL || op == AT_REDUCE_MIN) op = AT_REDUCE_AND;
    return int_fn(t, op);
  }
  // Two- and four-bit types would wrap at their own width.
  if (t == AT_S2 || t == AT_S4 || t == AT_U2 || t == AT_U4)
    return op == AT_REDUCE_ADD || op == AT_REDUCE_MUL ? NULL : int_fn(t, op);
  return at_is_int((at_dtype)t) ? int_fn(t, op) : float_fn(t, op);
}

// Runs block `b` of row `o`, columns [c0, c0 + w).
static void run_block(const scan *s, int64_t o, int64_t b, int64_t c0,
                      int64_t w, bool write, char *carry, bool started) {
  const at_k_scan_params *p = s->p;
  int64_t from = b * s->block, n = AT_MIN(s->block, p->size - from);
  AT_ASSERT(n > 0 && w > 0 && c0 + w <= p->inner && o < p->outer);
  int64_t first = p->reverse ? p->size - 1 - from : from;
  int64_t at = ((o * p->size + first) * p->inner + c0) * s->es;
  s->fn(s->src + at, write ? s->dst + at : NULL, n, s->step, w, carry, started);
}

// Tasks [begin, end): strip of columns fastest, then block, then row. Leaves
// the total of each block in s->carry.
static void totals_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const scan *s = arg;
  int64_t inner = s->p->inner;
  for (int64_t t = begin; t < end; t++) {
    int64_t strip = t % s->strips, b = t / s->strips % s->blocks;
    int64_t o = t / s->strips / s->blocks, c0 = strip * COLS;
    if (b + 1 == s->blocks) continue;  // nobody starts from the last total
    run_block(s, o, b, c0, AT_MIN(COLS, inner - c0), false,
              s->carry + ((o * s->blocks + b) * inner + c0) * s->acc_es, false);
  }
}

// The same tasks, from the running total of the block before, into the result.
static void scan_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const scan *s = arg;
  int64_t inner = s->p->inner;
  _Alignas(MAX_ITEM) char carry[COLS * MAX_ITEM];
  for (int64_t t = begin; t < end; t++) {
    int64_t strip = t % s->strips, b = t / s->strips % s->blocks;
    int64_t o = t / s->strips / s->blocks, c0 = strip * COLS;
    int64_t w = AT_MIN(COLS, inner - c0);
    if (b > 0)
      memcpy(carry,
             s->carry + ((o * s->blocks + b - 1) * inner + c0) * s->acc_es,
             (size_t)(w * s->acc_es));
    run_block(s, o, b, c0, w, true, carry, b > 0);
  }
}

// Turns the totals of the blocks into running totals, in place. The
// accumulators are elements of a dense [blocks][inner] array, so the scan
// itself does it.
static void prefix_totals(const scan *s, scan_fn acc_fn) {
  int64_t inner = s->p->inner;
  _Alignas(MAX_ITEM) char carry[COLS * MAX_ITEM];
  for (int64_t o = 0; o < s->p->outer; o++)
    for (int64_t c0 = 0; c0 < inner; c0 += COLS) {
      char *at = s->carry + (o * s->blocks * inner + c0) * s->acc_es;
      acc_fn(at, at, s->blocks - 1, inner, AT_MIN(COLS, inner - c0), carry,
             false);
    }
}

// SCAN: bufs[1] = inclusive scan of bufs[0] along `size`. bf16 and f16
// accumulate in f32.
at_status at_k_scan(const at_k_call *c) {
  const at_k_scan_params *p = c->params;
  AT_K_BUFS(c, 2);
  AT_K_CHECK(p->outer >= 0 && p->size >= 0 && p->inner >= 0,
             "scan: negative size");
  scan s = {.p = p, .src = c->bufs[0], .dst = c->bufs[1]};
  s.fn = scan_fn_of(p->dtype, p->op);
  if (!s.fn)
    return AT_FAIL(AT_UNIMPLEMENTED, "scan: operation %u on %s", p->op,
                   at_k_dtype_text(p->dtype));
  int64_t elements = p->outer * p->size * p->inner;
  if (elements == 0) return AT_OK;
  bool half = p->dtype == AT_BF16 || p->dtype == AT_F16;
  uint32_t acc_type = half ? (uint32_t)AT_F32 : p->dtype;
  s.es = at_dtype_bytes((at_dtype)p->dtype);
  s.acc_es = at_dtype_bytes((at_dtype)acc_type);
  s.step = p->reverse ? -p->inner : p->inner;
  s.strips = at_k_ceil_div(p->inner, COLS);
  // Blocks only where rows and strips alone are few.
  bool cut = p->outer * s.strips < 16 && elements > 1 << 17;
  s.block = cut ? AT_MAX(1024, at_k_ceil_div(p->size, 32)) : p->size;
  s.blocks = at_k_ceil_div(p->size, s.block);
  int64_t tasks = p->outer * s.blocks * s.strips;
  int64_t grain = 32768 / AT_MAX(1, elements / tasks) + 1;
  if (s.blocks > 1) {
    AT_K_SCRATCH(s.carry, c,
                 (size_t)(p->outer * s.blocks * p->inner * s.acc_es));
    at_par_for(c->par, tasks, grain, totals_range, &s);
    prefix_totals(&s, half ? scan_fn_of(AT_F32, p->op) : s.fn);
  }
  at_par_for(c->par, tasks, grain, scan_range, &s);
  return AT_OK;
}
