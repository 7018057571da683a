// Products with few rows (or columns): memory-bound, so B is read once and in
// place. Either the columns of B are contiguous (rows of B are added, scaled)
// or k is (dot products); at most 16 rows, eight at a time.
#include "kernels/gemm_internal.h"

typedef uint16_t u16x16 __attribute__((vector_size(32), aligned(2)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef uint16_t u16x8 __attribute__((vector_size(16), aligned(2)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef _Float16 f16x16 __attribute__((vector_size(32), aligned(2)));
typedef _Float16 f16x8 __attribute__((vector_size(16), aligned(2)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef int8_t s8x16 __attribute__((vector_size(16), aligned(1)));
typedef uint8_t u8x16 __attribute__((vector_size(16), aligned(1)));
typedef int8_t s8x8 __attribute__((vector_size(8), aligned(1)));
typedef uint8_t u8x8 __attribute__((vector_size(8), aligned(1)));

#define PLAIN(V, p) (*(const V *)(p))

#define BF16_V4(p) \
  ((f32x16)(__builtin_convertvector(*(const u16x16 *)(p), u32x16) << 16))
#define F16_V4(p) __builtin_convertvector(*(const f16x16 *)(p), f32x16)
#define F32_V4(p) PLAIN(f32_v4_vec, p)
#define F64_V4(p) PLAIN(f64_v4_vec, p)
#define BF16_V3(p) \
  ((f32x8)(__builtin_convertvector(*(const u16x8 *)(p), u32x8) << 16))
#define F16_V3(p) __builtin_convertvector(*(const f16x8 *)(p), f32x8)
#define F32_V3(p) PLAIN(f32_v3_vec, p)
#define F64_V3(p) PLAIN(f64_v3_vec, p)

#define S8_V4(p) __builtin_convertvector(*(const s8x16 *)(p), u32x16)
#define U8_V4(p) __builtin_convertvector(*(const u8x16 *)(p), u32x16)
#define S8_V3(p) __builtin_convertvector(*(const s8x8 *)(p), u32x8)
#define U8_V3(p) __builtin_convertvector(*(const u8x8 *)(p), u32x8)

#define FMA(a, b, c) __builtin_elementwise_fma(a, b, c)
#define INT_MADD(a, b, c) ((a) * (b) + (c))

#define NAME f32_v4
#define ACC float
#define MADD FMA
#define BYTES 64
#define ATTR AT_V4_WIDE
#define LOADS(X) \
  X(f32, float, F32_V4) X(bf16, uint16_t, BF16_V4) X(f16, uint16_t, F16_V4)
#include "kernels/gemm_thin_template.h"

#define NAME f32_v3
#define ACC float
#define MADD FMA
#define BYTES 32
#define ATTR
#define LOADS(X) \
  X(f32, float, F32_V3) X(bf16, uint16_t, BF16_V3) X(f16, uint16_t, F16_V3)
#include "kernels/gemm_thin_template.h"

#define NAME f64_v4
#define ACC double
#define MADD FMA
#define BYTES 64
#define ATTR AT_V4_WIDE
#define LOADS(X) X(f64, double, F64_V4)
#include "kernels/gemm_thin_template.h"

#define NAME f64_v3
#define ACC double
#define MADD FMA
#define BYTES 32
#define ATTR
#define LOADS(X) X(f64, double, F64_V3)
#include "kernels/gemm_thin_template.h"

#define NAME u32_v4
#define ACC uint32_t
#define MADD INT_MADD
#define BYTES 64
#define ATTR AT_V4_WIDE
#define LOADS(X) X(s8, int8_t, S8_V4) X(u8, uint8_t, U8_V4)
#include "kernels/gemm_thin_template.h"

#define NAME u32_v3
#define ACC uint32_t
#define MADD INT_MADD
#define BYTES 32
#define ATTR
#define LOADS(X) X(s8, int8_t, S8_V3) X(u8, uint8_t, U8_V3)
#include "kernels/gemm_thin_template.h"

// y[m][n] += a[m][k] b[k][n], and y[m][n] += a[m][k] . b[n][k]; see the
// template for the arguments.
typedef void (*rows_fn)(int, const void *, int64_t, const void *, int64_t,
                        int64_t, int64_t, void *, int64_t);
typedef void (*dots_fn)(int, int64_t, const void *, int64_t, const void *,
                        int64_t, int64_t, const void *, const void *, int64_t,
                        const void *, void *, int64_t);
typedef struct thin_fns {
  uint32_t b_type, acc;
  rows_fn rows[2];  // [0]: AVX2, [1]: AVX-512
  dots_fn dots[2];
} thin_fns;
#define THIN(b, acc, sfx, w)                          \
  {                                                   \
    b, acc, {w##_v3_rows_##sfx, w##_v4_rows_##sfx}, { \
      w##_v3_dots_##sfx, w##_v4_dots_##sfx            \
    }                                                 \
  }
static const thin_fns table[] = {
    THIN(AT_F32, AT_F32, f32, f32), THIN(AT_BF16, AT_F32, bf16, f32),
    THIN(AT_F16, AT_F32, f16, f32), THIN(AT_F64, AT_F64, f64, f64),
    THIN(AT_S8, AT_S32, s8, u32),   THIN(AT_U8, AT_S32, u8, u32)};

enum { GROUP = 8, MAX_ROWS = 16, K_BLOCK = 64 };
enum { K_CHUNK = 16384, DOT_COLS = 64, MAX_LANES = 16 };
// Columns that a second group of rows finds in a near cache.
enum { DOT_COLS_AGAIN = 12 };
// Half of a small first cache: the accumulators of a block of columns.
enum { BLOCK_ACC = 16 << 10 };
// Streams: accumulators that stay in the first cache, bytes of B of one task.
enum { STREAM_ACC = 32 << 10, STREAM_BYTES = 1 << 20 };

typedef struct thin {
  const at_gemm_job *j;
  rows_fn rows;
  dots_fn dots;
  bool by_rows;
  int m;
  int64_t es_b, es;  // bytes of B's and the accumulator's elements
  int64_t kpad, blocks, width, chunks, k_chunk;  // width: columns of a task
  int64_t ld;                                    // of rows of accumulators
  int lanes;
  char *a;  // [batch][m][kpad] in the accumulator's type
  char *y;  // rows: [worker][m][ld]; else: [batch][chunk][m][n]
} thin;

// A in the accumulator's type, rows of kpad elements, zeros behind k: a few
// rows, on this thread.
static void pack_rows(const thin *t) {
  const at_gemm_job *j = t->j;
  char raw[512 * 16];
  for (int64_t b = 0; b < j->batch; b++)
    for (int64_t i = 0; i < t->m; i++) {
      char *dst = t->a + (b * t->m + i) * t->kpad * t->es;
      for (int64_t k = 0; k < j->k; k += 512) {
        int64_t n = AT_MIN(512, j->k - k);
        at_gemm_pack_a_strided(j, b, i, 1, 1, k, n, n, true, n, raw);
        at_k_convert(j->e->acc_type, dst + k * t->es, j->a_type, raw, n);
      }
      memset(dst + j->k * t->es, 0, (size_t)((t->kpad - j->k) * t->es));
    }
}

// y[m][n] += a[m][kc] * b[kc][n], a block of k at a time while B's rows are in
// cache.
static void add_rows(const thin *t, const char *a, const char *b, int64_t brs,
                     int64_t kc, int64_t n, char *y) {
  int64_t step = t->m > GROUP ? K_BLOCK : kc;
  for (int64_t k = 0; k < kc; k += step)
    for (int i = 0; i < t->m; i += GROUP)
      t->rows(AT_MIN(GROUP, t->m - i), a + (i * t->kpad + k) * t->es, t->kpad,
              b + k * brs * t->es_b, brs, AT_MIN(step, kc - k), n,
              y + i * t->ld * t->es, t->ld);
}

// y[m][n] = a[m][kc] * b[kc][n] for any n and kc.
static void rows_block(const thin *t, const char *a, const char *b, int64_t kc,
                       int64_t n, char *y) {
  int64_t brs = t->j->b_k.stride, whole = n / t->lanes * t->lanes;
  memset(y, 0, (size_t)(t->m * t->ld * t->es));
  add_rows(t, a, b, brs, kc, whole, y);
  if (whole == n) return;
  // Kernels take whole vectors of columns.
  // The last columns, through a padded copy of a few rows of B at a time.
  char tail[64 * MAX_LANES * 8];
  memset(tail, 0, sizeof tail);
  for (int64_t k = 0; k < kc; k += 64) {
    int64_t rows = AT_MIN(64, kc - k);
    for (int64_t r = 0; r < rows; r++)
      memcpy(tail + r * t->lanes * t->es_b,
             b + ((k + r) * brs + whole) * t->es_b,
             (size_t)((n - whole) * t->es_b));
    add_rows(t, a + k * t->es, tail, t->lanes, rows, t->lanes,
             y + whole * t->es);
  }
}

// Blocks of columns [begin, end), counted through all batches; sums in this
// worker's accumulators.
static void rows_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const thin *t = arg;
  const at_gemm_job *j = t->j;
  char *y = t->y + (int64_t)worker * t->m * t->ld * t->es;
  for (int64_t x = begin; x < end; x++) {
    int64_t batch = x / t->blocks, n0 = x % t->blocks * t->width, off[3];
    int64_t n = AT_MIN(t->width, j->n - n0);
    j->batch_off(j, batch, off);
    const char *b = j->b + (off[1] + at_off(&j->b_n, n0)) * t->es_b;
    rows_block(t, t->a + batch * t->m * t->kpad * t->es, b, j->k, n, y);
    at_gemm_store(j, off[2], 0, t->m, n0, n, y, t->ld);
  }
}

// Whole rows of B, so that memory is read in one long stream; width is n, in
// whole vectors: the last one of a row must not reach another task's rows.
static void stream_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const thin *t = arg;
  const at_gemm_job *j = t->j;
  for (int64_t x = begin; x < end; x++) {
    int64_t batch = x / t->chunks, k0 = x % t->chunks * t->k_chunk, off[3];
    j->batch_off(j, batch, off);
    const char *b = j->b + (off[1] + k0 * j->b_k.stride) * t->es_b;
    rows_block(t, t->a + (batch * t->m * t->kpad + k0) * t->es, b,
               AT_MIN(t->k_chunk, j->k - k0), j->n,
               t->y + x * t->m * t->ld * t->es);
  }
}

// The last values of k, fewer than a vector, in the last lanes of one: rows of
// A behind zeros; B's columns as they lie in memory, read under a mask, or,
// where a column is shorter than a vector, a copy of them.
typedef struct dots_tail {
  _Alignas(64) char columns[DOT_COLS * MAX_LANES * 8];
  _Alignas(64) char rows[GROUP * MAX_LANES * 8];
  _Alignas(64) char keep[64];
  const char *b;
  int64_t stride;  // elements between columns of b
} dots_tail;

// k values that fill no vector: they become the end of one vector, so that
// nothing is read behind an operand. Where k is shorter than a vector, columns
// are copied.
static void find_tail(const thin *t, int m, const char *a, const char *b,
                      int64_t kc, int64_t rest, int64_t cols, dots_tail *tail) {
  int64_t zeros = t->lanes - rest, vector = t->lanes * t->es_b;
  memset(tail->keep, 0, sizeof tail->keep);
  memset(tail->keep + zeros * t->es, 0xff, (size_t)(rest * t->es));
  memset(tail->rows, 0, (size_t)(m * t->lanes * t->es));
  for (int i = 0; i < m; i++)
    memcpy(tail->rows + (i * t->lanes + zeros) * t->es,
           a + (i * t->kpad + kc - rest) * t->es, (size_t)(rest * t->es));
  tail->b = b + (kc - t->lanes) * t->es_b;
  tail->stride = t->j->b_n.stride;
  if (kc >= t->lanes) return;
  memset(tail->columns, 0, (size_t)(cols * vector));
  for (int64_t n = 0; n < cols; n++)
    memcpy(tail->columns + n * vector + zeros * t->es_b,
           b + n * tail->stride * t->es_b, (size_t)(rest * t->es_b));
  tail->b = tail->columns;
  tail->stride = t->lanes;
}

// Dot products of `rows` rows of A with `cols` columns of B, kc values of k, to
// y. The end of k that fills no vector goes through zero-padded copies of both
// operands.
static void dots_block(const thin *t, int rows, const char *a, const char *b,
                       int64_t kc, int64_t cols, char *y) {
  const at_gemm_job *j = t->j;
  int64_t whole = kc / t->lanes * t->lanes, rest = kc - whole;
  for (int i = 0; i < rows; i++)
    memset(y + i * j->n * t->es, 0, (size_t)(cols * t->es));
  dots_tail tail;
  tail.b = NULL, tail.stride = 0;
  if (rest) find_tail(t, rows, a, b, kc, rest, cols, &tail);
  t->dots(rows, cols, a, t->kpad, b, j->b_n.stride, whole, tail.rows, tail.b,
          tail.stride, tail.keep, y, j->n);
}

// Tasks [begin, end): a chunk of k of t->width columns of one batch, GROUP rows
// at a time, in parts as even as they can be.
static void dots_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const thin *t = arg;
  const at_gemm_job *j = t->j;
  int groups = (t->m + GROUP - 1) / GROUP;
  for (int64_t x = begin; x < end; x++) {
    int64_t chunk = x % t->chunks, block = x / t->chunks % t->blocks;
    int64_t batch = x / t->chunks / t->blocks, off[3];
    int64_t n0 = block * t->width, cols = AT_MIN(t->width, j->n - n0);
    int64_t k0 = chunk * K_CHUNK, kc = AT_MIN(K_CHUNK, j->k - k0);
    j->batch_off(j, batch, off);
    const char *a = t->a + (batch * t->m * t->kpad + k0) * t->es;
    const char *b = j->b + (off[1] + n0 * j->b_n.stride + k0) * t->es_b;
    char *y = t->y + ((batch * t->chunks + chunk) * t->m * j->n + n0) * t->es;
    for (int g = 0; g < groups; g++) {
      int i = t->m * g / groups, rows = t->m * (g + 1) / groups - i;
      dots_block(t, rows, a + i * t->kpad * t->es, b, kc, cols,
                 y + i * j->n * t->es);
    }
  }
}

// Adds the chunks of k in order and stores.
static void sum_chunks(const thin *t) {
  const at_gemm_job *j = t->j;
  int64_t row = t->by_rows ? t->ld : j->n, count = t->m * row, off[3];
  for (int64_t b = 0; b < j->batch; b++) {
    char *y = t->y + b * t->chunks * count * t->es;
    for (int64_t c = 1; c < t->chunks; c++)
      for (int64_t i = 0; i < count; i++) {
        if (j->e->acc_type == AT_S32)
          ((uint32_t *)y)[i] += ((uint32_t *)y)[c * count + i];
        else if (t->es == 4)
          ((float *)y)[i] += ((float *)y)[c * count + i];
        else
          ((double *)y)[i] += ((double *)y)[c * count + i];
      }
    j->batch_off(j, b, off);
    at_gemm_store(j, off[2], 0, t->m, 0, j->n, y, row);
  }
}

// True if the shape is thin, and sets t->by_rows: rows of B are dense, else
// columns are. A must fit into scratch memory as a whole.
static bool shape_fits(const at_gemm_job *j, thin *t) {
  bool tiny = j->n < 8 || j->k < 2;
  if (tiny && !(j->m == 1 && j->k >= 64)) return false;
  bool rows = at_off_dense(&j->b_n, 0, j->n) &&
              at_off_uniform(&j->b_k, 0, j->k) && j->n >= 16;
  bool dots =
      at_off_dense(&j->b_k, 0, j->k) && at_off_uniform(&j->b_n, 0, j->n);
  t->by_rows = rows;
  // Tiles do better from nine rows on, and so do dot products that can be
  // packed.
  int64_t most = j->e->kr == 1 ? MAX_ROWS : GROUP;
  if (rows && j->e->acc_type == AT_S32) most = GROUP / 2;
  if (j->m > most || (j->m > GROUP && j->n < 512)) return false;
  return (rows || dots) &&
         (double)j->batch * (double)j->m * (double)j->k < 16e6;
}

// Cuts the work by shape: streams over k where rows of B are long and sums few,
// else blocks of columns, or chunks of k for dot products.
static void plan(thin *t, uint32_t threads) {
  const at_gemm_job *j = t->j;
  int64_t row = j->n * t->es_b;
  t->k_chunk = K_CHUNK;
  if (t->by_rows && t->m * j->n * t->es <= STREAM_ACC && row >= 4096 &&
      j->k * row >= 4 * STREAM_BYTES) {
    t->k_chunk = at_k_round_up(STREAM_BYTES / row, 4);
    t->chunks = at_k_ceil_div(j->k, t->k_chunk);
    t->ld = t->width = at_k_round_up(j->n, t->lanes);
    t->blocks = 1;
    return;
  }
  t->chunks = t->by_rows ? 1 : at_k_ceil_div(j->k, K_CHUNK);
  if (!t->by_rows) {
    t->width = t->m > GROUP ? DOT_COLS_AGAIN : DOT_COLS;
    t->blocks = at_k_ceil_div(j->n, t->width);
    return;
  }
  t->width = j->n >= 2048 * (int64_t)threads ? 1024 : 256;
  while (t->width > 256 && t->m * t->width * t->es > BLOCK_ACC) t->width /= 2;
  t->ld = t->width + 64 / t->es;  // rows apart by a power of two share a set
  t->blocks = at_k_ceil_div(j->n, t->width);
}

// Few columns are turned into few rows first. false: no kernel for B's type,
// the shape does not fit, or AMX multiplies the integers without widening.
bool at_gemm_thin(const at_par *par, const at_gemm_job *job, at_status *st) {
  *st = AT_OK;
  at_gemm_job flipped;
  const at_gemm_job *j = job;
  if (j->m > GROUP && j->n <= GROUP) {
    at_gemm_transpose(job, &flipped);
    j = &flipped;
  }
  const thin_fns *f = NULL;
  for (size_t i = 0; i < AT_LEN(table); i++)
    if (table[i].b_type == j->b_type && table[i].acc == j->e->acc_type)
      f = &table[i];
  thin t = {.j = j, .m = (int)j->m};
  bool amx = j->e->begin && f && f->acc == AT_S32;  // it needs no wide B
  if (!f || amx || !shape_fits(j, &t)) return false;
  bool wide = at_k_has(AT_CPU_AVX512);
  t.rows = f->rows[wide], t.dots = f->dots[wide];
  t.es = at_dtype_bytes((at_dtype)f->acc);
  t.es_b = at_dtype_bytes((at_dtype)j->b_type);
  t.lanes = (int)((wide ? 64 : 32) / t.es);
  t.kpad = at_k_round_up(j->k, MAX_LANES);
  uint32_t threads = at_par_threads(par);
  t.a = at_par_scratch(par, (size_t)(j->batch * t.m * t.kpad * t.es));
  plan(&t, threads);
  // Without chunks of k a block is stored as soon as it is summed.
  bool own = t.by_rows && t.chunks == 1;  // accumulators are a worker's
  int64_t y = own ? (int64_t)threads * t.m * t.ld
                  : j->batch * t.chunks * t.m * (t.by_rows ? t.ld : j->n);
  t.y = at_par_scratch(par, (size_t)(y * t.es));
  if (!t.a || !t.y) {
    *st = AT_FAIL(AT_RESOURCE_EXHAUSTED,
                  "gemm: no scratch memory for a thin product");
    return true;
  }
  pack_rows(&t);
  int64_t tasks = j->batch * t.blocks * t.chunks;
  int64_t per_task = AT_MAX(1, j->k * j->n / (t.blocks * t.chunks));
  int64_t grain = 65536 / per_task + 1;
  at_par_for(par, tasks, grain,
             !t.by_rows ? dots_range
             : own      ? rows_range
                        : stream_range,
             &t);
  if (!own) sum_chunks(&t);
  return true;
}
