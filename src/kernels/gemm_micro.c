// Microkernels: an mr x nr block of C stays in registers while k runs. Written
// with clang's vector types, so one body serves every width and element type.
#include "kernels/gemm_internal.h"

#define V3
#define FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#define INT_MADD(a, b, c) ((a) * (b) + (c))

#define NAME f32_v4
#define STRIDED
#define ELEM float
#define BYTES 64
#define ROWS 12
#define VECS 2
#define ATTR AT_V4_WIDE
#define MADD FMA
#include "kernels/gemm_micro_template.h"

#define NAME f32_v3
#define STRIDED
#define ELEM float
#define BYTES 32
#define ROWS 6
#define VECS 2
#define ATTR V3
#define MADD FMA
#include "kernels/gemm_micro_template.h"

#define NAME f64_v4
#define STRIDED
#define ELEM double
#define BYTES 64
#define ROWS 12
#define VECS 2
#define ATTR AT_V4_WIDE
#define MADD FMA
#include "kernels/gemm_micro_template.h"

#define NAME f64_v3
#define STRIDED
#define ELEM double
#define BYTES 32
#define ROWS 6
#define VECS 2
#define ATTR V3
#define MADD FMA
#include "kernels/gemm_micro_template.h"

#define NAME u32_v4
#define ELEM uint32_t
#define BYTES 64
#define ROWS 12
#define VECS 2
#define ATTR AT_V4_WIDE
#define MADD INT_MADD
#include "kernels/gemm_micro_template.h"

#define NAME u32_v3
#define ELEM uint32_t
#define BYTES 32
#define ROWS 6
#define VECS 2
#define ATTR V3
#define MADD INT_MADD
#include "kernels/gemm_micro_template.h"

#define NAME u64_v3
#define ELEM uint64_t
#define BYTES 32
#define ROWS 6
#define VECS 1
#define ATTR V3
#define MADD INT_MADD
#include "kernels/gemm_micro_template.h"

// Complex products: 4 x 8 pairs; the compiler vectorises over the columns. The
// four real products are summed apart, each rounded, and combined at the end:
// sums that cancel then lose what XLA's lose, and no more.
#define COMPLEX_MICRO(name, T)                                                \
  static void name(int64_t kc, const void *av, const void *bv, void *cv,      \
                   int64_t ldc, int mr, int nr, bool add) {                   \
    const T *restrict a = av;                                                 \
    const T *restrict b = bv;                                                 \
    T *restrict c = cv;                                                       \
    T rr[4][8] = {{0}}, ii[4][8] = {{0}}, ri[4][8] = {{0}}, ir[4][8] = {{0}}; \
    for (int64_t k = 0; k < kc; k++, a += 8, b += 16)                         \
      for (int i = 0; i < mr; i++)                                            \
        for (int j = 0; j < 8; j++) {                                         \
          T ar = a[2 * i], ai = a[2 * i + 1], br = b[2 * j],                  \
            bi = b[2 * j + 1];                                                \
          rr[i][j] += ar * br;                                                \
          ii[i][j] += ai * bi;                                                \
          ri[i][j] += ar * bi;                                                \
          ir[i][j] += ai * br;                                                \
        }                                                                     \
    for (int i = 0; i < mr; i++)                                              \
      for (int j = 0; j < nr; j++) {                                          \
        T *p = c + 2 * (i * ldc + j);                                         \
        T re = rr[i][j] - ii[i][j], im = ri[i][j] + ir[i][j];                 \
        p[0] = add ? p[0] + re : re;                                          \
        p[1] = add ? p[1] + im : im;                                          \
      }                                                                       \
  }
COMPLEX_MICRO(c64_micro, float)
COMPLEX_MICRO(c128_micro, double)

// An engine and the CPU features that it needs.
typedef struct engine_row {
  at_gemm_engine e;
  uint64_t needs;
} engine_row;
// First match of accumulator type and features wins.
static const engine_row engines[] = {
    {{"f32 avx512", AT_F32, AT_F32, 12, 32, 1, 1, 256, false, f32_v4_packed,
      f32_v4_copying, 0, 0, 0},
     AT_CPU_AVX512},
    {{"f32 avx2", AT_F32, AT_F32, 6, 16, 1, 1, 256, false, f32_v3_packed,
      f32_v3_copying, 0, 0, 0},
     0},
    {{"f64 avx512", AT_F64, AT_F64, 12, 16, 1, 1, 320, false, f64_v4_packed,
      f64_v4_copying, 0, 0, 0},
     AT_CPU_AVX512},
    {{"f64 avx2", AT_F64, AT_F64, 6, 8, 1, 1, 256, false, f64_v3_packed,
      f64_v3_copying, 0, 0, 0},
     0},
    {{"u32 avx512", AT_S32, AT_S32, 12, 32, 1, 1, 320, false, u32_v4_packed, 0,
      0, 0, 0},
     AT_CPU_AVX512},
    {{"u32 avx2", AT_S32, AT_S32, 6, 16, 1, 1, 256, false, u32_v3_packed, 0, 0,
      0, 0},
     0},
    {{"u64", AT_S64, AT_S64, 6, 4, 1, 1, 256, false, u64_v3_packed, 0, 0, 0, 0},
     0},
    {{"c64", AT_C64, AT_C64, 4, 8, 1, 1, 256, false, c64_micro, 0, 0, 0, 0}, 0},
    {{"c128", AT_C128, AT_C128, 4, 8, 1, 1, 256, false, c128_micro, 0, 0, 0, 0},
     0},
};

// Types whose values bf16 holds, none of them as a denormal: the products are
// those of bf16.
static uint32_t as_bf16(uint32_t t) {
  bool narrow = at_is_float((at_dtype)t) && at_dtype_bytes((at_dtype)t) == 1;
  return narrow && t != AT_F8E8M0FNU ? AT_BF16 : t;
}

// AMX before pairs of 16 bits before widening to the accumulator's type.
const at_gemm_engine *at_gemm_engine_of(uint32_t a, uint32_t b, uint32_t acc) {
  a = as_bf16(a), b = as_bf16(b);
  const at_gemm_engine *amx = at_gemm_amx_engine(a, b, acc);
  if (amx) return amx;
  const at_gemm_engine *pairs = at_gemm_pairs_engine(a, b, acc);
  return pairs ? pairs : at_gemm_wide_engine(acc);
}

// Unsigned accumulators take the signed engine of their size: sums wrap alike.
const at_gemm_engine *at_gemm_wide_engine(uint32_t acc) {
  if (acc == AT_U32) acc = AT_S32;
  if (acc == AT_U64) acc = AT_S64;
  for (size_t i = 0; i < AT_LEN(engines); i++)
    if (engines[i].e.acc_type == acc && at_k_has(engines[i].needs))
      return &engines[i].e;
  return NULL;
}

// F32 and F64 only: other types are packed.
at_gemm_strided_fn at_gemm_strided_of(uint32_t acc) {
  bool wide = at_k_has(AT_CPU_AVX512);
  if (acc == AT_F32) return wide ? f32_v4_strided : f32_v3_strided;
  if (acc == AT_F64) return wide ? f64_v4_strided : f64_v3_strided;
  return NULL;
}

// Below this many multiply-adds packing and threads cost more than they save.
enum { SMALL_WORK = 64 * 64 * 64 };

// Small, dense and of one float type.
static bool is_small(const at_gemm_job *j) {
  // One column would fill one lane: at_gemm_thin makes a row of it.
  if (j->n == 1 && j->m * j->k > 1024) return false;
  if (j->m > 512 || j->n > 512 || j->k > 512 ||
      j->m * j->n * j->k > SMALL_WORK || j->bias)
    return false;
  uint32_t t = j->c_type;
  if ((t != AT_F32 && t != AT_F64) || j->a_type != t || j->b_type != t ||
      j->e->acc_type != t)
    return false;
  return at_off_uniform(&j->a_m, 0, j->m) && at_off_uniform(&j->a_k, 0, j->k) &&
         at_off_uniform(&j->b_k, 0, j->k) && at_off_dense(&j->b_n, 0, j->n) &&
         at_off_uniform(&j->c_m, 0, j->m) && at_off_dense(&j->c_n, 0, j->n);
}

// Calls the strided microkernel on operands in place, tile by tile. The last
// columns of B are padded to whole vectors on the stack; the bound of 512 on k
// is that buffer's.
static void multiply_small(const at_gemm_job *j, int64_t batch) {
  at_gemm_strided_fn fn = at_gemm_strided_of(j->c_type);
  int64_t off[3], es = at_dtype_bytes((at_dtype)j->c_type);
  j->batch_off(j, batch, off);
  const char *a = j->a + off[0] * es, *b = j->b + off[1] * es;
  char *c = j->c + off[2] * es;
  int mr = j->e->mr, nr = j->e->nr;
  char edge[512 * 32 * 4];  // k x nr: the last columns of B, padded to a vector
  for (int64_t j0 = 0; j0 < j->n; j0 += nr) {
    int cols = (int)AT_MIN(nr, j->n - j0);
    const char *bp = b + j0 * es;
    int64_t brs = j->b_k.stride;
    if (cols < nr) {
      memset(edge, 0, (size_t)(j->k * nr * es));
      for (int64_t k = 0; k < j->k; k++)
        memcpy(edge + k * nr * es, bp + k * brs * es, (size_t)(cols * es));
      bp = edge, brs = nr;
    }
    for (int64_t i0 = 0; i0 < j->m; i0 += mr)
      fn(j->k, a + i0 * j->a_m.stride * es, j->a_m.stride, j->a_k.stride, bp,
         brs, c + (i0 * j->c_m.stride + j0) * es, j->c_m.stride,
         (int)AT_MIN(mr, j->m - i0), cols, false);
  }
}

static void small_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  for (int64_t b = begin; b < end; b++) multiply_small(arg, b);
}

// Threads share a batch; one product is one thread's.
bool at_gemm_small(const at_par *par, const at_gemm_job *j) {
  enum { SHARE = 1 << 17 };  // multiplications that are worth a thread
  if (!is_small(j)) return false;
  if (j->batch == 1)
    multiply_small(j, 0);
  else
    at_par_for(par, j->batch, SHARE / (j->m * j->n * j->k) + 1, small_range,
               (void *)j);
  return true;
}
