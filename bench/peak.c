// What this machine can do at most, as one JSON object: f32 FMA and bf16 (AMX,
// else AVX512_BF16, else FMA) GFLOP/s with data in registers, over all cores of
// this process; with the argument `exp`, 1e9 exponentials of f32 a second, from
// registers; with `memory`, GB/s of all cores that copy arrays no cache holds,
// read and written.
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"

enum { kRounds = 100000000, kAccumulators = 12, kMostThreads = 64 };
enum { kTries = 40 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static volatile float sink;

__attribute__((target("avx512f"))) static double fma512(long rounds) {
  __m512 a[kAccumulators], b = _mm512_set1_ps(1.0000001f),
                           c = _mm512_set1_ps(1e-9f);
  for (int i = 0; i < kAccumulators; i++) a[i] = _mm512_set1_ps((float)i);
  for (long k = 0; k < rounds; k++) {
    __asm__ volatile("" : "+v"(b));
    for (int i = 0; i < kAccumulators; i++) a[i] = _mm512_fmadd_ps(a[i], b, c);
  }
  for (int i = 0; i < kAccumulators; i++) sink = _mm512_reduce_add_ps(a[i]);
  return 32.0 * kAccumulators * (double)rounds;
}

__attribute__((target("avx2,fma"))) static double fma256(long rounds) {
  __m256 a[kAccumulators], b = _mm256_set1_ps(1.0000001f),
                           c = _mm256_set1_ps(1e-9f);
  for (int i = 0; i < kAccumulators; i++) a[i] = _mm256_set1_ps((float)i);
  for (long k = 0; k < rounds; k++) {
    __asm__ volatile("" : "+x"(b));
    for (int i = 0; i < kAccumulators; i++) a[i] = _mm256_fmadd_ps(a[i], b, c);
  }
  for (int i = 0; i < kAccumulators; i++) sink = a[i][0];
  return 16.0 * kAccumulators * (double)rounds;
}

__attribute__((target("avx512f,avx512bf16"))) static double dot512(
    long rounds) {
  __m512 a[kAccumulators];
  __m512i b = _mm512_set1_epi16(0x3c00);
  for (int i = 0; i < kAccumulators; i++) a[i] = _mm512_set1_ps((float)i);
  for (long k = 0; k < rounds; k++) {
    __asm__ volatile("" : "+v"(b));
    for (int i = 0; i < kAccumulators; i++)
      a[i] = _mm512_dpbf16_ps(a[i], (__m512bh)b, (__m512bh)b);
  }
  for (int i = 0; i < kAccumulators; i++) sink = _mm512_reduce_add_ps(a[i]);
  return 64.0 * kAccumulators * (double)rounds;
}

__attribute__((target("amx-tile,amx-bf16"))) static double amx(long rounds) {
  struct {
    uint8_t palette, start, zero[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } cfg = {.palette = 1};
  for (int i = 0; i < 8; i++) cfg.bytes[i] = 64, cfg.rows[i] = 16;
  static const char zeros[1024];
  _tile_loadconfig(&cfg);
  _tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3);
  _tile_loadd(4, zeros, 64), _tile_loadd(5, zeros, 64);
  _tile_loadd(6, zeros, 64), _tile_loadd(7, zeros, 64);
  for (long k = 0; k < rounds; k++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 16 * 16 * 32 * 2 * (double)rounds;
}

// e^x to a bit or two: 2^n times a polynomial of degree 5. The counts are
// exponentials, not operations.
enum { kDegree = 5 };
static const float kPowers[kDegree + 1] = {0x1p0f,         0x1p0f,
                                           0x1.fffe1ep-2f, 0x1.55544ep-3f,
                                           0x1.573d9cp-5f, 0x1.12476ep-7f};

__attribute__((target("avx512f"))) static double exp512(long rounds) {
  __m512 x[kAccumulators];
  for (int i = 0; i < kAccumulators; i++)
    x[i] = _mm512_set1_ps(-0.125f * (float)i);
  for (long k = 0; k < rounds; k++)
    for (int i = 0; i < kAccumulators; i++) {
      __asm__ volatile("" : "+v"(x[i]));
      __m512 n = _mm512_roundscale_ps(
          _mm512_mul_ps(x[i], _mm512_set1_ps(0x1.715476p0f)), 8);
      __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.62e4p-1f), x[i]);
      r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0x1.7f7d1cp-20f), r);
      __m512 p = _mm512_set1_ps(kPowers[kDegree]);
      for (int d = kDegree; d-- > 0;)
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kPowers[d]));
      __m512 y = _mm512_scalef_ps(p, n);
      __asm__ volatile("" ::"v"(y));
    }
  return 16.0 * kAccumulators * (double)rounds;
}

__attribute__((target("avx2,fma"))) static double exp256(long rounds) {
  __m256 x[kAccumulators];
  for (int i = 0; i < kAccumulators; i++)
    x[i] = _mm256_set1_ps(-0.125f * (float)i);
  for (long k = 0; k < rounds; k++)
    for (int i = 0; i < kAccumulators; i++) {
      __asm__ volatile("" : "+x"(x[i]));
      __m256 n = _mm256_round_ps(
          _mm256_mul_ps(x[i], _mm256_set1_ps(0x1.715476p0f)), 8);
      __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.62e4p-1f), x[i]);
      r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0x1.7f7d1cp-20f), r);
      __m256 p = _mm256_set1_ps(kPowers[kDegree]);
      for (int d = kDegree; d-- > 0;)
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kPowers[d]));
      __m256i two = _mm256_slli_epi32(
          _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
      __m256 y = _mm256_mul_ps(p, _mm256_castsi256_ps(two));
      __asm__ volatile("" ::"x"(y));
    }
  return 8.0 * kAccumulators * (double)rounds;
}

typedef struct job {
  double (*fn)(long);
  long rounds;
  double flops;
} job;

static void *work(void *p) {
  job *j = p;
  j->flops = j->fn(j->rounds);
  return NULL;
}

// The best of many tries, since others may use the machine too.
static double peak(double (*fn)(long), long rounds) {
  unsigned n = at_cpu_count();
  pthread_t threads[kMostThreads];
  job jobs[kMostThreads];
  if (n > kMostThreads) n = kMostThreads;
  double best = 0;
  for (int t = 0; t < kTries; t++) {
    double start = now(), flops = 0;
    for (unsigned i = 0; i < n; i++) {
      jobs[i] = (job){fn, rounds / kTries, 0};
      if (pthread_create(&threads[i], NULL, work, &jobs[i])) return 0;
    }
    for (unsigned i = 0; i < n; i++) {
      pthread_join(threads[i], NULL);
      flops += jobs[i].flops;
    }
    double rate = flops / (now() - start) / 1e9;
    best = rate > best ? rate : best;
  }
  return best;
}

enum { kCopyBytes = 64 << 20 };  // of one core

typedef struct copy {
  char *from, *to;
} copy;

static void *copy_past_caches(void *p) {
  const copy *c = p;
  for (size_t i = 0; i < kCopyBytes; i += 64)
    for (size_t j = i; j < i + 64; j += 16)
      _mm_stream_si128(
          (__m128i *)(void *)(c->to + j),
          _mm_load_si128((const __m128i *)(const void *)(c->from + j)));
  _mm_sfence();
  return NULL;
}

static int print_memory(void) {
  unsigned n = at_cpu_count();
  pthread_t threads[kMostThreads];
  copy copies[kMostThreads];
  if (n > 8) n = 8;  // enough to fill the channels
  for (unsigned i = 0; i < n; i++) {
    copies[i].from = aligned_alloc(64, kCopyBytes);
    copies[i].to = aligned_alloc(64, kCopyBytes);
    if (!copies[i].from || !copies[i].to) return 1;
    memset(copies[i].from, 1, kCopyBytes);
    memset(copies[i].to, 1, kCopyBytes);
  }
  double best = 0;
  for (int round = 0; round < kTries; round++) {
    double start = now();
    for (unsigned i = 0; i < n; i++)
      if (pthread_create(&threads[i], NULL, copy_past_caches, &copies[i]))
        return 1;
    for (unsigned i = 0; i < n; i++) pthread_join(threads[i], NULL);
    double rate = 2.0 * kCopyBytes * n / (now() - start) / 1e9;
    best = rate > best ? rate : best;
  }
  for (unsigned i = 0; i < n; i++) {
    free(copies[i].from);
    free(copies[i].to);
  }
  printf("{\"memory\": %.2f}\n", best);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "memory")) return print_memory();
  uint64_t cpu = at_cpu_features();
  if (argc > 1 && !strcmp(argv[1], "exp")) {
    double rate = peak(cpu & AT_CPU_AVX512 ? exp512 : exp256, kRounds / 4);
    printf("{\"exp\": %.2f}\n", rate);
    return 0;
  }
  double f32 = peak(cpu & AT_CPU_AVX512 ? fma512 : fma256, kRounds);
  double bf16 = f32;
  if (cpu & AT_CPU_AVX512_BF16) {
    double dot = peak(dot512, kRounds / 4);
    bf16 = dot > bf16 ? dot : bf16;
  }
  if (cpu & AT_CPU_AMX_BF16) bf16 = peak(amx, kRounds / 4);
  printf("{\"f32\": %.1f, \"bf16\": %.1f}\n", f32, bf16);
  return 0;
}
