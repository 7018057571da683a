// The transforms of a group of lines, per element type and instruction set, and
// plans.
#include <math.h>

#include "kernels/fft_internal.h"

#define NAME f32_v3
#define REAL float
#define WIDTH 16
#define ATTR
#include "kernels/fft_template.h"

#define NAME f32_v4
#define REAL float
#define WIDTH 16
#define ATTR AT_V4_WIDE
#include "kernels/fft_template.h"

#define NAME f64_v3
#define REAL double
#define WIDTH 8
#define ATTR
#include "kernels/fft_template.h"

#define NAME f64_v4
#define REAL double
#define WIDTH 8
#define ATTR AT_V4_WIDE
#include "kernels/fft_template.h"

const at_fft_group_fn at_fft_group[2][2] = {{f32_v3_group, f32_v4_group},
                                            {f64_v3_group, f64_v4_group}};

size_t at_fft_work_bytes(const at_fft_plan *plan) {
  return (size_t)(plan->conv ? plan->conv->n : plan->n) * 4 * 64;
}

static const int radices[] = {4, 2, 3, 5, 7, 11, 13};

bool at_fft_smooth(int64_t n) {
  for (size_t i = 1; i < AT_LEN(radices); i++)
    while (n % radices[i] == 0) n /= radices[i];
  return n == 1;
}

void at_fft_roots(int64_t n, int64_t step, int64_t count, double *out) {
  for (int64_t e = 0; e < count; e++) {
    double a = -2 * M_PI * ((double)(e * step) / (double)n);
    out[2 * e] = cos(a), out[2 * e + 1] = sin(a);
  }
}

static void put(void *table, int64_t i, bool dbl, double re, double im) {
  if (dbl)
    ((double *)table)[2 * i] = re, ((double *)table)[2 * i + 1] = im;
  else
    ((float *)table)[2 * i] = (float)re,
                         ((float *)table)[2 * i + 1] = (float)im;
}

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "fft: no scratch memory for a plan");
}

static at_status plan_stages(const at_par *par, bool dbl, at_fft_plan *p) {
  int64_t left = p->n, s = 1;
  for (size_t i = 0; i < AT_LEN(radices); i++)
    while (left % radices[i] == 0) {
      int r = radices[i];
      left /= r;
      void *tw = at_par_scratch(par, (size_t)(left * (r - 1)) * (dbl ? 16 : 8));
      if (!tw) return no_memory();
      double inv = 1.0 / (double)(left * r);
      for (int64_t q = 0; q < left; q++)
        for (int j = 1; j < r; j++) {
          double a = -2 * M_PI * ((double)(q * j % (left * r)) * inv);
          put(tw, q * (r - 1) + j - 1, dbl, cos(a), sin(a));
        }
      p->stage[p->count++] = (at_fft_stage){r, left, s, tw};
      s *= r;
    }
  return AT_OK;
}

void at_fft_chirp(int64_t n, int64_t j, double out[2]) {
  // j^2 mod 2n keeps the angle exact.
  uint64_t e =
      (uint64_t)((unsigned __int128)j * (uint64_t)j % (uint64_t)(2 * n));
  double a = -M_PI * ((double)e / (double)n);
  out[0] = cos(a), out[1] = sin(a);
}

// chirp[j] = exp(-pi i j^2 / n); its conjugate, wrapped, transformed and
// divided by the length, is chirp_ft.
static at_status plan_bluestein(const at_par *par, bool dbl, at_fft_plan *p) {
  int64_t c = 1;
  while (c < 2 * p->n - 1) c *= 2;
  AT_TRY(at_fft_plan_make(par, c, dbl, &p->conv));
  size_t pair = dbl ? 16 : 8;
  char *chirp = at_par_scratch(par, (size_t)p->n * pair);
  char *ft = at_par_scratch(par, (size_t)c * pair);
  p->chirp = chirp, p->chirp_ft = ft;
  void *work = at_par_scratch(par, at_fft_work_bytes(p->conv));
  if (!chirp || !ft || !work) return no_memory();
  memset(ft, 0, (size_t)c * pair);
  for (int64_t j = 0; j < p->n; j++) {
    double w[2];
    at_fft_chirp(p->n, j, w);
    double re = w[0], im = w[1];
    put(chirp, j, dbl, re, im);
    put(ft, j, dbl, re / (double)c, -im / (double)c);
    if (j) put(ft, c - j, dbl, re / (double)c, -im / (double)c);
  }
  at_fft_pass pass = {.plan = p->conv,
                      .src = {ft, false, 0, 1, 1},
                      .dst = {ft, false, 0, 1, 1},
                      .lines = 1,
                      .inner = 1,
                      .in_count = c,
                      .out_count = c,
                      .scale = 1};
  at_fft_group[dbl][at_k_has(AT_CPU_AVX512)](&pass, 0, work);
  return AT_OK;
}

at_status at_fft_plan_make(const at_par *par, int64_t n, bool dbl,
                           const at_fft_plan **out) {
  at_fft_plan *p = at_par_scratch(par, sizeof *p);
  if (!p) return no_memory();
  *p = (at_fft_plan){.n = n};
  *out = p;
  return at_fft_smooth(n) ? plan_stages(par, dbl, p)
                          : plan_bluestein(par, dbl, p);
}
