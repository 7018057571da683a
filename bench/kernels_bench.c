// Speed of the runtime kernels: GFLOP/s or GB/s, and the part of this machine's
// limit.
//   kernels_bench [-t threads] [-f filter] [-c 1]
// Limits are measured first: f32 FMA and a triad, on the same threads. With -c
// 1 times are CPU time of the process, which on a busy machine says more (use
// -t 1).
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

static at_k_gemm_params gemm_params(uint32_t t, uint32_t out, int64_t m,
                                    int64_t n, int64_t k, bool bt) {
  at_k_gemm_params p = {.a = t, .b = t, .acc = AT_F32, .c = out};
  p.m = (at_k_gemm_dims){1, {m}, {k}, {n}, {0}};
  p.n = (at_k_gemm_dims){1, {n}, {bt ? k : 1}, {1}, {0}};
  p.k = (at_k_gemm_dims){1, {k}, {1}, {bt ? 1 : n}, {0}};
  return p;
}

static void bench_gemm(const char *name, uint32_t t, int64_t m, int64_t n,
                       int64_t k, bool bt) {
  if (!wanted(name)) return;
  at_k_gemm_params p = gemm_params(t, t, m, n, k, bt);
  void *a = t == AT_F32 ? (void *)floats(m * k) : (void *)bf16s(m * k);
  void *b = t == AT_F32 ? (void *)floats(n * k) : (void *)bf16s(n * k);
  void *c = floats(m * n), *bufs[] = {a, b, c};
  double s = time_kernel(AT_RT_GEMM, &p, bufs, 3),
         flops = 2.0 * (double)m * (double)n * (double)k;
  if (m <= 8)
    report(name, s, (double)(n * k) * (t == AT_F32 ? 4 : 2), "GB/s",
           peak_bytes);
  else
    report(name, s, flops, "GFLOP/s", peak_f32);
  free(a), free(b), free(c);
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
    at_k_transpose_params p = {4, 2, {n, n}, {1, n}};
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
  static const int64_t cubes[] = {64, 128, 256, 1024, 2048};
  for (int t = 0; t < 2; t++) {
    uint32_t type = t ? AT_BF16 : AT_F32;
    const char *tn = t ? "bf16" : "f32";
    char name[64];
    for (size_t i = 0; i < AT_LEN(cubes); i++) {
      snprintf(name, sizeof name, "gemm %s %ld", tn, cubes[i]);
      bench_gemm(name, type, cubes[i], cubes[i], cubes[i], false);
    }
    snprintf(name, sizeof name, "gemm %s 1024 bT", tn);
    bench_gemm(name, type, 1024, 1024, 1024, true);
    for (int64_t m = 1; m <= 8; m *= 8)
      for (int bt = 0; bt < 2; bt++) {
        snprintf(name, sizeof name, "gemm %s m=%ld 4096%s", tn, m,
                 bt ? " bT" : "");
        bench_gemm(name, type, m, 4096, 4096, bt);
      }
    snprintf(name, sizeof name, "gemm %s 16x2048x512", tn);
    bench_gemm(name, type, 16, 2048, 512, false);
    snprintf(name, sizeof name, "gemm %s 32x2048x512", tn);
    bench_gemm(name, type, 32, 2048, 512, false);
  }
  bench_conv();
  bench_memory();
  bench_sort();
  bench_fft_rng();
  return 0;
}
