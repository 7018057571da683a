// Speed of the runtime kernels: GFLOP/s or GB/s, and the part of this machine's
// limit.
//   kernels_bench [-t threads] [-f filter] [-c 1]
// Limits are measured on the same threads: f32 FMA and a triad first, and
// beside each product (-f gemm) what bounds it: FMA, bf16 tiles (AMX, else
// pairs of AVX-512), or reading B. With -c 1 times are CPU time of the process,
// which on a busy machine says more (use -t 1).
#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "base/cpu.h"
#include "kernels/kernels.h"

static clockid_t clock_used = CLOCK_MONOTONIC;
static double now(void) {
  struct timespec t;
  clock_gettime(clock_used, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Scratch as `exec` gives it: blocks that stay warm between calls.
enum { MAX_BLOCKS = 64 };
static struct {
  void *p;
  size_t bytes;
} warm[MAX_BLOCKS];
static int warm_used;
static void *alloc_pages(size_t bytes) {
  bytes = (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
  void *p = aligned_alloc(2 << 20, bytes);
  if (p) madvise(p, bytes, MADV_HUGEPAGE);
  return p;
}
static void *scratch(void *owner, size_t bytes) {
  if (warm_used == MAX_BLOCKS) return NULL;
  int i = warm_used++;
  if (warm[i].bytes < bytes) {
    free(warm[i].p);
    warm[i].p = alloc_pages(bytes);
    warm[i].bytes = bytes;
  }
  return warm[i].p;
}

static at_par par = {NULL, scratch, NULL};
static const char *filter;
static double peak_f32, peak_bytes;

static uint64_t seed = 1;
static uint64_t rnd(void) {
  uint64_t z = (seed += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  return z ^ (z >> 29);
}
static float *floats(int64_t n) {
  float *p = alloc_pages((size_t)n * 4);
  for (int64_t i = 0; i < n; i++)
    p[i] = (float)((double)(int64_t)rnd() * 0x1p-63);
  return p;
}
static uint16_t *bf16s(int64_t n) {
  uint16_t *p = alloc_pages((size_t)n * 2);
  for (int64_t i = 0; i < n; i++) p[i] = (uint16_t)((rnd() & 0x80ff) | 0x3f00);
  return p;
}

// Best of several runs, at least 0.3 s in all.
static double time_kernel(at_rt_kernel id, const void *params,
                          void *const *bufs, uint32_t nbufs) {
  at_k_call c = {&par, params, bufs, nbufs, NULL};
  double best = 1e9, until = now() + 0.4;
  for (int i = 0; i < 4 || now() < until; i++) {
    warm_used = 0;
    double t = now();
    at_status s = at_k_of(id)->run(&c);
    t = now() - t;
    if (!at_ok(s)) {
      printf("%s\n", at_status_message(s));
      at_status_free(s);
      return 1e9;
    }
    if (t < best) best = t;
  }
  return best;
}

static void report(const char *name, double t, double work, const char *unit,
                   double limit) {
  printf("%-28s %9.3f ms %9.1f %s", name, t * 1e3, work / t * 1e-9, unit);
  if (limit > 0) printf("  %3.0f%% of the limit", 100 * work / t / limit);
  printf("\n");
  fflush(stdout);
}
static bool wanted(const char *name) { return !filter || strstr(name, filter); }

// ---- Products
// What a product is measured against, sampled in turns with it, since others
// may use the machine too.
typedef enum bound { BY_FMA, BY_TILES, BY_READING } bound;
typedef struct sample {
  const char *read;  // BY_READING: what a product has to read
  int64_t bytes;
} sample;

enum { SAMPLE_CHUNKS = 32, SAMPLE_ROUNDS = 2000 };
static volatile float sink[64 * 16];

#define CHAINS(T, zero, step)                    \
  T acc[12];                                     \
  for (int i = 0; i < 12; i++) acc[i] = (zero);  \
  for (int64_t i = begin; i < end; i++)          \
    for (int k = 0; k < SAMPLE_ROUNDS; k++)      \
      for (int q = 0; q < 12; q++) {             \
        __asm__ volatile("" : "+x"(acc[q]));     \
        acc[q] = (step);                         \
      }                                          \
  for (int q = 1; q < 12; q++) acc[0] += acc[q]; \
  sink[worker % 64 * 16] = acc[0][0];
__attribute__((target("avx512f"))) static void fma_wide(void *arg,
                                                        int64_t begin,
                                                        int64_t end,
                                                        uint32_t worker) {
  __m512 x = _mm512_set1_ps(0.999f);
  CHAINS(__m512, x, _mm512_fmadd_ps(acc[q], x, x))
}
__attribute__((target("avx2,fma"))) static void fma_narrow(void *arg,
                                                           int64_t begin,
                                                           int64_t end,
                                                           uint32_t worker) {
  __m256 x = _mm256_set1_ps(0.999f);
  CHAINS(__m256, x, _mm256_fmadd_ps(acc[q], x, x))
}
__attribute__((target("avx512f,avx512bf16"))) static void pairs(
    void *arg, int64_t begin, int64_t end, uint32_t worker) {
  __m512bh x = (__m512bh)_mm512_set1_epi16(0x3c00);
  CHAINS(__m512, _mm512_set1_ps(1), _mm512_dpbf16_ps(acc[q], x, x))
}
__attribute__((target("amx-tile,amx-bf16"))) static void tiles(
    void *arg, int64_t begin, int64_t end, uint32_t worker) {
  struct {
    uint8_t palette, start, zero[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } cfg = {.palette = 1};
  static const char zeros[1024];
  for (int i = 0; i < 8; i++) cfg.bytes[i] = 64, cfg.rows[i] = 16;
  _tile_loadconfig(&cfg);
  _tile_loadd(4, zeros, 64), _tile_loadd(5, zeros, 64);
  _tile_loadd(6, zeros, 64), _tile_loadd(7, zeros, 64);
  _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3);
  for (int64_t i = begin; i < end; i++)
    for (int k = 0; k < SAMPLE_ROUNDS; k++) {
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  _tile_release();
}
enum { READ_CHUNK = 1 << 18 };
__attribute__((target("avx2"))) static void read_all(void *arg, int64_t begin,
                                                     int64_t end,
                                                     uint32_t worker) {
  const sample *s = arg;
  __m256i sum[4] = {{0}};
  for (int64_t at = begin * READ_CHUNK;
       at + 128 <= AT_MIN(end * READ_CHUNK, s->bytes); at += 128)
    for (int q = 0; q < 4; q++) {
      const void *p = s->read + at + 32 * q;
      sum[q] = _mm256_xor_si256(sum[q], _mm256_loadu_si256(p));
    }
  sum[0] ^= sum[1] ^ sum[2] ^ sum[3];
  sink[worker % 64 * 16] = (float)sum[0][0];
}

static double limit_rate(bound by, const sample *s) {
  uint64_t cpu = at_cpu_features();
  double work = (double)SAMPLE_CHUNKS * SAMPLE_ROUNDS, t = now();
  int64_t chunks = SAMPLE_CHUNKS;
  at_range_fn fn = cpu & AT_CPU_AVX512 ? fma_wide : fma_narrow;
  work *= 12 * (cpu & AT_CPU_AVX512 ? 32 : 16);
  if (by == BY_TILES && cpu & AT_CPU_AMX_BF16)
    fn = tiles, work *= 4 * 16 * 16 * 64 / (12 * 32.0);
  else if (by == BY_TILES && cpu & AT_CPU_AVX512_BF16)
    fn = pairs, work *= 2;
  if (by == BY_READING) {
    fn = read_all, work = (double)s->bytes;
    chunks = (s->bytes + READ_CHUNK - 1) / READ_CHUNK;
  }
  at_par_for(&par, chunks, 1, fn, (void *)s);
  return work / (now() - t);
}

typedef struct product {
  int64_t batch, m, n, k;
  bool a_turned, b_turned;  // stored [k][m], [n][k]
  int64_t groups;           // of rows, each with a B of its own; 0: one
} product;

static at_k_gemm_params product_params(const product *x, uint32_t t) {
  at_k_gemm_params p = {.a = t, .b = t, .acc = AT_F32, .c = t};
  int64_t m = x->m, n = x->n, k = x->k;
  p.batch = (at_k_gemm_dims){1, {x->batch}, {m * k}, {k * n}, {m * n}};
  p.m = (at_k_gemm_dims){1, {m}, {x->a_turned ? 1 : k}, {n}, {0}};
  p.n = (at_k_gemm_dims){1, {n}, {x->b_turned ? k : 1}, {1}, {0}};
  p.k = (at_k_gemm_dims){
      1, {k}, {x->a_turned ? m : 1}, {x->b_turned ? 1 : n}, {0}};
  return p;
}

// Groups of uneven sizes, some of them empty.
static void fill_groups(int32_t *sizes, int64_t groups, int64_t rows) {
  for (int64_t g = 0; g < groups; g++) sizes[g] = 0;
  for (int64_t i = 0; i < rows; i++)
    sizes[(int64_t)(rnd() % (uint64_t)groups * (rnd() % (uint64_t)groups)) /
          groups]++;
}

static void bench_product(const product *x, uint32_t t) {
  char name[80];
  int at = snprintf(name, sizeof name, "gemm %s %s",
                    t == AT_F32 ? "f32" : "bf16", x->groups ? "ragged " : "");
  if (x->groups || x->batch > 1)
    at += snprintf(name + at, sizeof name - (size_t)at, "%ld of ",
                   x->groups ? x->groups : x->batch);
  snprintf(name + at, sizeof name - (size_t)at, "%ldx%ldx%ld%s%s", x->m, x->n,
           x->k, x->a_turned ? " aT" : "", x->b_turned ? " bT" : "");
  if (!wanted(name)) return;
  int64_t es = t == AT_F32 ? 4 : 2, copies = AT_MAX(x->groups, 1) * x->batch;
  int64_t a_n = x->batch * x->m * x->k, b_n = copies * x->n * x->k;
  void *a = t == AT_F32 ? (void *)floats(a_n) : (void *)bf16s(a_n);
  void *b = t == AT_F32 ? (void *)floats(b_n) : (void *)bf16s(b_n);
  void *c = floats(x->batch * x->m * x->n), *bufs[] = {a, b, c, c};
  int32_t sizes[256];
  at_k_ragged_params ragged = {.product = product_params(x, t),
                               .sizes_type = AT_S32,
                               .groups = x->groups,
                               .group_stride = x->n * x->k};
  if (x->groups) {
    fill_groups(sizes, x->groups, x->m);
    bufs[2] = sizes;
  }
  at_k_call call = {&par, &ragged, bufs, x->groups ? 4 : 3, NULL};
  at_rt_kernel id = x->groups ? AT_RT_RAGGED_DOT : AT_RT_GEMM;
  sample s = {b, b_n * es};
  bound by = x->m <= 16 && x->batch == 1 ? BY_READING
             : t == AT_F32               ? BY_FMA
                                         : BY_TILES;
  double flops =
      2.0 * (double)x->batch * (double)x->m * (double)x->n * (double)x->k;
  double work = by == BY_READING ? (double)s.bytes : flops;
  double best = 1e9, limit = 0, until = now() + 0.4;
  for (int i = 0; i < 4 || now() < until; i++) {
    limit = fmax(limit, limit_rate(by, &s));
    warm_used = 0;
    double start = now();
    at_status st = at_k_of(id)->run(&call);
    best = fmin(best, now() - start);
    if (!at_ok(st)) {
      printf("%s: %s\n", name, at_status_message(st));
      at_status_free(st);
      break;
    }
  }
  report(name, best, work, by == BY_READING ? "GB/s" : "GFLOP/s", limit);
  free(a), free(b), free(c);
}

static void bench_products(void) {
  static const product all[] = {
      {1, 64, 64, 64, 0, 0, 0},       {1, 128, 128, 128, 0, 0, 0},
      {1, 256, 256, 256, 0, 0, 0},    {1, 512, 512, 512, 0, 0, 0},
      {1, 1024, 1024, 1024, 0, 0, 0}, {1, 1024, 1024, 1024, 0, 1, 0},
      {1, 1024, 1024, 1024, 1, 0, 0}, {1, 2048, 2048, 2048, 0, 0, 0},
      {1, 4096, 1024, 1024, 0, 0, 0}, {48, 512, 512, 64, 0, 1, 0},
      {48, 512, 64, 512, 0, 0, 0},    {1000, 4, 4, 4, 0, 0, 0},
      {1000, 8, 8, 8, 0, 0, 0},       {1000, 16, 16, 16, 0, 0, 0},
      {1000, 32, 32, 32, 0, 0, 0},    {500, 64, 64, 64, 0, 0, 0},
      {1, 2048, 1024, 512, 0, 0, 8},  {1, 2048, 1024, 1024, 0, 0, 64},
      {1, 512, 512, 256, 0, 0, 16},   {1, 1, 4096, 4096, 0, 0, 0},
      {1, 1, 4096, 4096, 0, 1, 0},    {1, 4, 4096, 4096, 0, 0, 0},
      {1, 4, 4096, 4096, 0, 1, 0},    {1, 8, 4096, 4096, 0, 0, 0},
      {1, 8, 4096, 4096, 0, 1, 0},    {1, 16, 4096, 4096, 0, 0, 0},
      {1, 16, 4096, 4096, 0, 1, 0},   {1, 16, 2048, 512, 0, 0, 0},
      {1, 32, 2048, 512, 0, 0, 0}};
  for (int t = 0; t < 2; t++)
    for (size_t i = 0; i < AT_LEN(all); i++)
      bench_product(&all[i], t ? AT_BF16 : AT_F32);
}

static void bench_conv(void) {
  at_k_conv_params p = {.lhs = AT_F32,
                        .rhs = AT_F32,
                        .out = AT_F32,
                        .spatial_rank = 2,
                        .batch = 8,
                        .in_features = 64,
                        .out_features = 64,
                        .feature_groups = 1,
                        .batch_groups = 1};
  for (int d = 0; d < 2; d++) {
    p.in_size[d] = p.out_size[d] = 56, p.kernel_size[d] = 3;
    p.window_stride[d] = p.lhs_dilation[d] = p.rhs_dilation[d] = 1;
    p.pad_low[d] = p.pad_high[d] = 1;
  }
  const int64_t row = 56 * 64, image = 56 * row;
  p.in_batch_stride = p.out_batch_stride = image;
  p.in_stride[0] = p.out_stride[0] = row, p.in_stride[1] = p.out_stride[1] = 64;
  p.in_feature_stride = p.out_feature_stride = 1;
  p.kernel_stride[0] = 3 * 64 * 64, p.kernel_stride[1] = 64 * 64;
  p.kernel_in_stride = 64, p.kernel_out_stride = 1;
  void *x = floats(8 * image), *w = floats(9 * 64 * 64), *y = floats(8 * image);
  double flops = 2.0 * 8 * 56 * 56 * 64 * 64 * 9;
  void *forward[] = {x, w, y}, *weights[] = {x, y, w};
  if (wanted("conv forward"))
    report("conv forward", time_kernel(AT_RT_CONV, &p, forward, 3), flops,
           "GFLOP/s", peak_f32);
  at_k_conv_params q = p;  // input gradient: the kernel reversed and transposed
  q.reversal[0] = q.reversal[1] = 1, q.kernel_in_stride = 1,
  q.kernel_out_stride = 64;
  if (wanted("conv input gradient"))
    report("conv input gradient", time_kernel(AT_RT_CONV, &q, forward, 3),
           flops, "GFLOP/s", peak_f32);
  q = p;  // weight gradient: batch and features trade places
  q.batch = 64, q.in_features = 8, q.in_batch_stride = 1,
  q.in_feature_stride = image;
  for (int d = 0; d < 2; d++) q.kernel_size[d] = 56, q.out_size[d] = 3;
  q.kernel_in_stride = image, q.kernel_out_stride = 1;
  q.kernel_stride[0] = row, q.kernel_stride[1] = 64;
  q.out_batch_stride = 64, q.out_feature_stride = 1;
  q.out_stride[0] = 3 * 64 * 64, q.out_stride[1] = 64 * 64;
  if (wanted("conv weight gradient"))
    report("conv weight gradient", time_kernel(AT_RT_CONV, &q, weights, 3),
           flops, "GFLOP/s", peak_f32);
  free(x), free(w), free(y);
}

static void bench_memory(void) {
  const int64_t n = 8192;
  if (wanted("transpose")) {
    float *a = floats(n * n), *b = floats(n * n);
    void *bufs[] = {a, b};
    at_k_transpose_params p = {
        .element_bytes = 4, .rank = 2, .out_size = {n, n}, .in_stride = {1, n}};
    report("transpose 8192 f32", time_kernel(AT_RT_TRANSPOSE, &p, bufs, 2),
           8.0 * (double)(n * n), "GB/s", peak_bytes);
    p.element_bytes = 2;
    report("transpose 8192 bf16", time_kernel(AT_RT_TRANSPOSE, &p, bufs, 2),
           4.0 * (double)(n * n), "GB/s", peak_bytes);
    at_k_copy_params c = {n * n * 4};
    report("copy 256 MB", time_kernel(AT_RT_COPY, &c, bufs, 2),
           8.0 * (double)(n * n), "GB/s", peak_bytes);
    free(a), free(b);
  }
  if (wanted("scan")) {
    const int64_t e = 16 << 20;
    float *a = floats(e), *b = floats(e);
    void *bufs[] = {a, b};
    at_k_scan_params p = {AT_F32, AT_REDUCE_ADD, 0, 0, 1, e, 1};
    report("scan add 16M f32", time_kernel(AT_RT_SCAN, &p, bufs, 2),
           8.0 * (double)e, "GB/s", peak_bytes);
    p.outer = 4096, p.size = 4096;
    report("scan add 4096x4096 f32", time_kernel(AT_RT_SCAN, &p, bufs, 2),
           8.0 * (double)e, "GB/s", peak_bytes);
    p.outer = 1, p.inner = 4096;
    report("scan add columns f32", time_kernel(AT_RT_SCAN, &p, bufs, 2),
           8.0 * (double)e, "GB/s", peak_bytes);
    free(a), free(b);
  }
}

static void bench_sort(void) {
  const int64_t n = 4 << 20;
  float *x = floats(n), *y = floats(n);
  int32_t *ix = alloc_pages((size_t)n * 4), *iy = alloc_pages((size_t)n * 4);
  for (int64_t i = 0; i < n; i++) ix[i] = (int32_t)i;
  at_k_sort_params p = {.num_operands = 1,
                        .stable = 1,
                        .num_keys = 1,
                        .outer = 1,
                        .size = n,
                        .inner = 1,
                        .dtype = {AT_F32, AT_S32},
                        .element_bytes = {4, 4}};
  void *one[] = {x, y}, *two[] = {x, ix, y, iy};
  if (wanted("sort")) {
    report("sort 4M f32", time_kernel(AT_RT_SORT, &p, one, 2), 4.0 * (double)n,
           "GB/s", 0);
    p.num_operands = 2;
    report("argsort 4M f32", time_kernel(AT_RT_SORT, &p, two, 4),
           4.0 * (double)n, "GB/s", 0);
    p.num_operands = 1, p.size = 65536;
    report("sort 64K f32", time_kernel(AT_RT_SORT, &p, one, 2), 4.0 * 65536,
           "GB/s", 0);
    p.outer = 4096, p.size = 1024;
    report("sort 4096x1024 f32", time_kernel(AT_RT_SORT, &p, one, 2),
           4.0 * (double)n, "GB/s", 0);
    p.outer = 65536, p.size = 64;
    report("sort 65536x64 f32", time_kernel(AT_RT_SORT, &p, one, 2),
           4.0 * (double)n, "GB/s", 0);
  }
  if (wanted("top_k")) {
    at_k_top_k_params k = {AT_F32, 1, 1, n, 64};
    void *bufs[] = {x, y, iy};
    report("top_k 64 of 4M", time_kernel(AT_RT_TOP_K, &k, bufs, 3),
           4.0 * (double)n, "GB/s", peak_bytes);
    free(x);
    bufs[0] = x = floats(256 * 50000);
    k.rows = 256, k.size = 50000, k.k = 8;
    report("top_k 8 of 256x50000", time_kernel(AT_RT_TOP_K, &k, bufs, 3),
           4.0 * 256 * 50000, "GB/s", peak_bytes);
  }
  free(x), free(y), free(ix), free(iy);
}

static void bench_fft_rng(void) {
  static const int64_t sizes[][2] = {
      {1, 1 << 20}, {1024, 1024}, {4096, 256}, {1, 1000003}, {1, 4096}};
  for (size_t i = 0; i < AT_LEN(sizes); i++) {
    char name[64];
    snprintf(name, sizeof name, "fft %ldx%ld c64", sizes[i][0], sizes[i][1]);
    if (!wanted(name)) continue;
    int64_t n = sizes[i][0] * sizes[i][1];
    float *x = floats(2 * n), *y = floats(2 * n);
    void *bufs[] = {x, y};
    at_k_fft_params p = {
        .rank = 1, .batch = sizes[i][0], .length = {sizes[i][1]}};
    report(name, time_kernel(AT_RT_FFT, &p, bufs, 2),
           5.0 * (double)n * log2((double)sizes[i][1]), "GFLOP/s", peak_f32);
    free(x), free(y);
  }
  const int64_t n = 16 << 20;
  if (wanted("rng")) {
    uint64_t in[2] = {1, 2}, out[2];
    void *bits = floats(n), *bufs[] = {in, out, bits};
    at_k_rng_params p = {.algorithm = 1,
                         .dtype = AT_U32,
                         .state_words = 2,
                         .rank = 1,
                         .elements = n,
                         .dims = {n}};
    report("rng threefry 16M u32", time_kernel(AT_RT_RNG_BITS, &p, bufs, 3),
           4.0 * (double)n, "GB/s", peak_bytes);
    p.algorithm = 2;
    report("rng philox 16M u32", time_kernel(AT_RT_RNG_BITS, &p, bufs, 3),
           4.0 * (double)n, "GB/s", peak_bytes);
    free(bits);
  }
}

// ---- Limits
typedef struct limit_run {
  float *a, *b, *c;
  int64_t n;
} limit_run;
static void triad(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  limit_run *r = arg;
  for (int64_t i = begin; i < end; i++) r->a[i] = r->b[i] + 3 * r->c[i];
}
typedef float v16 __attribute__((vector_size(64)));
#define SPIN                                                 \
  v16 acc[16], x = (v16){0} + 0.999f, y = (v16){0} + 1e-3f;  \
  for (int i = 0; i < 16; i++) acc[i] = (v16){0} + (float)i; \
  for (int64_t i = begin * 20000; i < end * 20000; i++)      \
    for (int q = 0; q < 16; q++)                             \
      acc[q] = __builtin_elementwise_fma(acc[q], x, y);      \
  v16 sum = acc[0];                                          \
  for (int q = 1; q < 16; q++) sum += acc[q];                \
  ((limit_run *)arg)->a[worker * 16] = sum[0];
__attribute__((target("avx512f"))) static void spin_wide(void *arg,
                                                         int64_t begin,
                                                         int64_t end,
                                                         uint32_t worker) {
  SPIN
}
__attribute__((target("avx2,fma"))) static void spin(void *arg, int64_t begin,
                                                     int64_t end,
                                                     uint32_t worker) {
  SPIN
}

static void measure_limits(void) {
  limit_run r = {floats(16 << 20), floats(16 << 20), floats(16 << 20),
                 16 << 20};
  at_range_fn fn = at_cpu_features() & AT_CPU_AVX512 ? spin_wide : spin;
  for (int i = 0; i < 8; i++) {
    double t = now();
    at_par_for(&par, r.n, 1 << 16, triad, &r);
    peak_bytes = fmax(peak_bytes, 12.0 * (double)r.n / (now() - t));
    t = now();
    at_par_for(&par, 128, 1, fn, &r);
    peak_f32 = fmax(peak_f32, 128 * 20000.0 * 16 * 32 / (now() - t));
  }
  printf("limits on %u threads: %.0f GFLOP/s f32 FMA, %.1f GB/s triad\n",
         at_par_threads(&par), peak_f32 * 1e-9, peak_bytes * 1e-9);
  free(r.a), free(r.b), free(r.c);
}

int main(int argc, char **argv) {
  uint32_t threads = at_cpu_count();
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "-t"))
      threads = (uint32_t)atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "-f"))
      filter = argv[i + 1];
    else if (!strcmp(argv[i], "-c"))
      clock_used = CLOCK_PROCESS_CPUTIME_ID;
  }
  at_status s = at_pool_create(threads, &par.pool);
  if (!at_ok(s)) {
    fprintf(stderr, "%s\n", at_status_message(s));
    return 1;
  }
  measure_limits();
  bench_products();
  bench_conv();
  bench_memory();
  bench_sort();
  bench_fft_rng();
  return 0;
}
