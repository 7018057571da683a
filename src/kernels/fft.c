// FFT: axes one after another. Short lines go through groups of lanes at once.
// A long line, or a lone one, is a matrix: columns are transformed, turned,
// then rows. Lengths with large primes become a convolution (Bluestein).
#include <math.h>

#include "kernels/fft_internal.h"

enum { FFT = 0, IFFT = 1, RFFT = 2, IRFFT = 3 };  // at_fft_type
enum { LONE_FROM = 512 };  // shorter lone lines waste their idle lanes

// One call: the pool and the precision.
typedef struct fft {
  const at_par *par;
  bool dbl;
  int64_t lanes, real_bytes;
  at_fft_group_fn group;
} fft;

typedef struct pass_run {
  const fft *f;
  const at_fft_pass *pass;
} pass_run;

static void group_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const pass_run *r = arg;
  char *work = (char *)r->pass->work + worker * r->pass->work_bytes;
  for (int64_t g = begin; g < end; g++)
    r->f->group(r->pass, g * r->f->lanes, work);
}

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "fft: no scratch memory");
}

static at_status pass_go(const fft *f, at_fft_pass *p, void *work) {
  p->work_bytes = at_fft_work_bytes(p->plan);
  p->work = work ? work
                 : at_par_scratch(
                       f->par, at_mul(p->work_bytes, at_par_threads(f->par)));
  if (!p->work) return no_memory();
  pass_run r = {f, p};
  int64_t groups = at_k_ceil_div(p->lines, f->lanes);
  int64_t grain = 4096 / (p->plan->n * f->lanes) + 1;
  at_par_for(f->par, groups, grain, group_range, &r);
  return AT_OK;
}

static at_fft_side side_at(const fft *f, at_fft_side s, int64_t offset) {
  s.p += offset * f->real_bytes * (s.real ? 1 : 2);
  return s;
}

// ---- Long lines
// The plan of one long length: n = n1 * n2 for a smooth n, else a convolution
// whose length is smooth.
typedef struct long_plan {
  int64_t n, n1, n2;
  const at_fft_plan *p1, *p2;
  double *hi, *lo;
  int64_t split;
  char *temp;  // n complex elements
  void *work1, *work2;
  struct long_plan *conv;  // NULL when n is smooth
  char *a, *ft, *chirp;    // Bluestein: conv->n, conv->n and n complex elements
} long_plan;

static at_status four_step(const fft *f, const long_plan *lp, at_fft_side src,
                           at_fft_side dst, bool inverse, double scale) {
  int64_t n1 = lp->n1, n2 = lp->n2;
  at_fft_side temp = {lp->temp, false, 0, 1, n2};
  at_fft_pass p = {.plan = lp->p1,
                   .lines = n2,
                   .inner = n2,
                   .in_count = n1,
                   .out_count = n1,
                   .inverse = inverse,
                   .scale = 1,
                   .turn_n = lp->n,
                   .turn_split = lp->split,
                   .turn_hi = lp->hi,
                   .turn_lo = lp->lo};
  p.src = src, p.src.line = src.elem, p.src.elem = src.elem * n2;
  p.dst = temp;
  AT_TRY(pass_go(f, &p, lp->work1));
  at_fft_pass q = {.plan = lp->p2,
                   .lines = n1,
                   .inner = n1,
                   .in_count = n2,
                   .out_count = n2,
                   .inverse = inverse,
                   .scale = scale};
  q.src = temp, q.src.line = n2, q.src.elem = 1;
  q.dst = dst, q.dst.line = dst.elem, q.dst.elem = dst.elem * n1;
  return pass_go(f, &q, lp->work2);
}

typedef struct chirp_run {
  const fft *f;
  const long_plan *lp;
  at_fft_side src, dst;
  bool inverse;
  double scale;
} chirp_run;

static inline void get(const fft *f, const char *p, int64_t i, double w[2]) {
  if (f->dbl)
    w[0] = ((const double *)p)[2 * i], w[1] = ((const double *)p)[2 * i + 1];
  else
    w[0] = ((const float *)p)[2 * i], w[1] = ((const float *)p)[2 * i + 1];
}
static inline void put(const fft *f, char *p, int64_t i, double re, double im) {
  if (f->dbl)
    ((double *)p)[2 * i] = re, ((double *)p)[2 * i + 1] = im;
  else
    ((float *)p)[2 * i] = (float)re, ((float *)p)[2 * i + 1] = (float)im;
}

static void make_chirp(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const chirp_run *r = arg;
  int64_t c = r->lp->conv->n;
  for (int64_t j = begin; j < end; j++) {
    double w[2];
    at_fft_chirp(r->lp->n, j, w);
    put(r->f, r->lp->chirp, j, w[0], w[1]);
    put(r->f, r->lp->ft, j, w[0] / (double)c, -w[1] / (double)c);
    if (j) put(r->f, r->lp->ft, c - j, w[0] / (double)c, -w[1] / (double)c);
  }
}
// a = source * chirp, then zeros. The inverse swaps the parts at both ends.
static void chirp_in(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const chirp_run *r = arg;
  for (int64_t j = begin; j < end; j++) {
    double x[2] = {0, 0}, w[2];
    if (j < r->lp->n) {
      int64_t at = j * r->src.elem;
      if (!r->src.real)
        get(r->f, r->src.p, at, x);
      else
        x[0] = r->f->dbl ? ((const double *)(void *)r->src.p)[at]
                         : (double)((const float *)(void *)r->src.p)[at];
      if (r->inverse) {
        double t = x[0];
        x[0] = x[1], x[1] = t;
      }
      get(r->f, r->lp->chirp, j, w);
      put(r->f, r->lp->a, j, x[0] * w[0] - x[1] * w[1],
          x[0] * w[1] + x[1] * w[0]);
    } else {
      put(r->f, r->lp->a, j, 0, 0);
    }
  }
}
static void chirp_mid(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const chirp_run *r = arg;
  for (int64_t j = begin; j < end; j++) {
    double x[2], w[2];
    get(r->f, r->lp->a, j, x), get(r->f, r->lp->ft, j, w);
    put(r->f, r->lp->a, j, x[0] * w[0] - x[1] * w[1],
        x[0] * w[1] + x[1] * w[0]);
  }
}
static void chirp_out(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const chirp_run *r = arg;
  for (int64_t j = begin; j < end; j++) {
    double x[2], w[2];
    get(r->f, r->lp->a, j, x), get(r->f, r->lp->chirp, j, w);
    double re = (x[0] * w[0] - x[1] * w[1]) * r->scale;
    double im = (x[0] * w[1] + x[1] * w[0]) * r->scale;
    if (r->inverse) {
      double t = re;
      re = im, im = t;
    }
    int64_t at = j * r->dst.elem;
    if (!r->dst.real)
      put(r->f, r->dst.p, at, re, im);
    else if (r->f->dbl)
      ((double *)(void *)r->dst.p)[at] = re;
    else
      ((float *)(void *)r->dst.p)[at] = (float)re;
  }
}

enum { ELEMS = 1 << 14 };

static at_status long_line(const fft *f, const long_plan *lp, at_fft_side src,
                           at_fft_side dst, bool inverse, double scale) {
  if (!lp->conv) return four_step(f, lp, src, dst, inverse, scale);
  chirp_run r = {f, lp, src, dst, inverse, scale};
  at_fft_side a = {lp->a, false, 0, 1, 1};
  int64_t c = lp->conv->n;
  at_par_for(f->par, c, ELEMS, chirp_in, &r);
  AT_TRY(four_step(f, lp->conv, a, a, false, 1));
  at_par_for(f->par, c, ELEMS, chirp_mid, &r);
  AT_TRY(four_step(f, lp->conv, a, a, true, 1));
  at_par_for(f->par, lp->n, ELEMS, chirp_out, &r);
  return AT_OK;
}

static at_status long_plan_make(const fft *f, int64_t n, long_plan **out);

static at_status long_plan_bluestein(const fft *f, long_plan *lp) {
  int64_t c = 1;
  while (c < 2 * lp->n - 1) c *= 2;
  AT_TRY(long_plan_make(f, c, &lp->conv));
  size_t pair = (size_t)f->real_bytes * 2;
  lp->a = at_par_scratch(f->par, at_mul((size_t)c, pair));
  lp->ft = at_par_scratch(f->par, at_mul((size_t)c, pair));
  lp->chirp = at_par_scratch(f->par, at_mul((size_t)lp->n, pair));
  if (!lp->a || !lp->ft || !lp->chirp) return no_memory();
  memset(lp->ft, 0, (size_t)c * pair);
  chirp_run r = {.f = f, .lp = lp};
  at_par_for(f->par, lp->n, ELEMS, make_chirp, &r);
  at_fft_side ft = {lp->ft, false, 0, 1, 1};
  return four_step(f, lp->conv, ft, ft, false, 1);
}

static at_status long_plan_make(const fft *f, int64_t n, long_plan **out) {
  long_plan *lp = at_par_scratch(f->par, sizeof *lp);
  if (!lp) return no_memory();
  *lp = (long_plan){.n = n};
  *out = lp;
  if (!at_fft_smooth(n)) return long_plan_bluestein(f, lp);
  lp->n1 = 1;
  for (int64_t d = (int64_t)sqrt((double)n) + 1; d >= 1; d--)
    if (n % d == 0) {
      lp->n1 = d;
      break;
    }
  lp->n2 = n / lp->n1;
  AT_TRY(at_fft_plan_make(f->par, lp->n1, f->dbl, &lp->p1));
  lp->p2 = lp->p1;
  if (lp->n2 != lp->n1)
    AT_TRY(at_fft_plan_make(f->par, lp->n2, f->dbl, &lp->p2));
  lp->split = AT_MAX(1, (int64_t)sqrt((double)n));
  int64_t his = at_k_ceil_div(n, lp->split);
  uint32_t threads = at_par_threads(f->par);
  lp->hi = at_par_scratch(f->par, (size_t)his * 16);
  lp->lo = at_par_scratch(f->par, (size_t)lp->split * 16);
  lp->temp =
      at_par_scratch(f->par, at_mul((size_t)n, (size_t)f->real_bytes * 2));
  lp->work1 =
      at_par_scratch(f->par, at_mul(at_fft_work_bytes(lp->p1), threads));
  lp->work2 =
      at_par_scratch(f->par, at_mul(at_fft_work_bytes(lp->p2), threads));
  if (!lp->hi || !lp->lo || !lp->temp || !lp->work1 || !lp->work2)
    return no_memory();
  at_fft_roots(n, lp->split, his, lp->hi);
  at_fft_roots(n, 1, lp->split, lp->lo);
  return AT_OK;
}

// The whole spectrum of a real line from its first half.
static void expand_hermitian(const fft *f, const at_fft_side *src, int64_t n,
                             char *out) {
  for (int64_t i = 0; i < n; i++) {
    int64_t k = i <= n / 2 ? i : n - i;
    double w[2];
    get(f, src->p, k * src->elem, w);
    if (k == 0 || 2 * k == n) w[1] = 0;
    put(f, out, i, w[0], i == k ? w[1] : -w[1]);
  }
}

static at_status long_axis(const fft *f, const at_fft_pass *p, int64_t n) {
  long_plan *lp;
  AT_TRY(long_plan_make(f, n, &lp));
  char *in = NULL, *out = NULL;
  size_t bytes = at_mul((size_t)n, (size_t)f->real_bytes * 2);
  if (p->hermitian && !(in = at_par_scratch(f->par, bytes))) return no_memory();
  bool part = p->out_count < n;
  if (part && !(out = at_par_scratch(f->par, bytes))) return no_memory();
  for (int64_t l = 0; l < p->lines; l++) {
    int64_t o = l / p->inner, i = l % p->inner;
    at_fft_side src = side_at(f, p->src, o * p->src.outer + i * p->src.line);
    at_fft_side dst = side_at(f, p->dst, o * p->dst.outer + i * p->dst.line);
    if (in) {
      expand_hermitian(f, &src, n, in);
      src = (at_fft_side){in, false, 0, 1, 1};
    }
    at_fft_side to = part ? (at_fft_side){out, false, 0, 1, 1} : dst;
    AT_TRY(long_line(f, lp, src, to, p->inverse, p->scale));
    for (int64_t k = 0; part && k < p->out_count; k++) {
      double w[2];
      get(f, out, k, w);
      put(f, dst.p, k * dst.elem, w[0], w[1]);
    }
  }
  return AT_OK;
}

// ---- Axes
static at_status run_axis(const fft *f, at_fft_pass *p, int64_t n) {
  bool lone = p->lines < f->lanes && n >= LONE_FROM && at_fft_smooth(n);
  if (n > AT_FFT_DIRECT || lone) return long_axis(f, p, n);
  AT_TRY(at_fft_plan_make(f->par, n, f->dbl, &p->plan));
  return pass_go(f, p, NULL);
}

// Axis `a` of complex [batch][dims...], from src to dst of the same shape.
static at_status complex_axis(const fft *f, char *src, char *dst, int64_t batch,
                              const int64_t *dims, uint32_t rank, uint32_t a,
                              bool inverse) {
  int64_t inner = 1, outer = batch, n = dims[a];
  for (uint32_t d = a + 1; d < rank; d++) inner *= dims[d];
  for (uint32_t d = 0; d < a; d++) outer *= dims[d];
  at_fft_side s = {src, false, n * inner, 1, inner},
              d = {dst, false, n * inner, 1, inner};
  at_fft_pass p = {.src = s,
                   .dst = d,
                   .lines = outer * inner,
                   .inner = inner,
                   .in_count = n,
                   .out_count = n,
                   .inverse = inverse,
                   .scale = inverse ? 1.0 / (double)n : 1};
  return run_axis(f, &p, n);
}

// The minor axis between n reals and n / 2 + 1 complex elements.
static at_status real_axis(const fft *f, char *src, char *dst, int64_t lines,
                           int64_t n, bool inverse) {
  int64_t h = n / 2 + 1;
  at_fft_side real = {inverse ? dst : src, true, n, 0, 1};
  at_fft_side half = {inverse ? src : dst, false, h, 0, 1};
  at_fft_pass p = {.src = inverse ? half : real,
                   .dst = inverse ? real : half,
                   .lines = lines,
                   .inner = 1,
                   .in_count = inverse ? h : n,
                   .out_count = inverse ? n : h,
                   .hermitian = inverse,
                   .inverse = inverse,
                   .scale = inverse ? 1.0 / (double)n : 1};
  return run_axis(f, &p, n);
}

at_status at_k_fft(const at_k_call *c) {
  const at_k_fft_params *p = c->params;
  AT_K_BUFS(c, 2);
  AT_K_CHECK(p->type <= IRFFT, "fft: unknown type %u", p->type);
  AT_K_CHECK(p->rank >= 1 && p->rank <= 3, "fft: rank %u is not 1, 2 or 3",
             p->rank);
  int64_t lines = p->batch, dims[3];
  AT_K_CHECK(p->batch >= 0, "fft: negative batch");
  for (uint32_t d = 0; d < p->rank; d++) {
    AT_K_CHECK(p->length[d] >= 0 && p->length[d] < (int64_t)1 << 40,
               "fft: bad length %ld", p->length[d]);
    dims[d] = p->length[d];
    if (d + 1 < p->rank) lines *= dims[d];
    if (dims[d] == 0) return AT_OK;
  }
  if (p->batch == 0) return AT_OK;
  bool dbl = p->double_precision != 0;
  fft f = {c->par, dbl, dbl ? 8 : 16, dbl ? 8 : 4,
           at_fft_group[dbl][at_k_has(AT_CPU_AVX512)]};
  char *src = c->bufs[0], *dst = c->bufs[1];
  uint32_t last = p->rank - 1;
  if (p->type == FFT || p->type == IFFT) {
    for (uint32_t a = p->rank; a-- > 0; src = dst)
      AT_TRY(complex_axis(&f, src, dst, p->batch, dims, p->rank, a,
                          p->type == IFFT));
    return AT_OK;
  }
  int64_t n = dims[last];
  dims[last] = n / 2 + 1;
  if (p->type == RFFT) {
    AT_TRY(real_axis(&f, src, dst, lines, n, false));
    for (uint32_t a = last; a-- > 0;)
      AT_TRY(complex_axis(&f, dst, dst, p->batch, dims, p->rank, a, false));
    return AT_OK;
  }
  if (last > 0) {
    char *temp;
    AT_K_SCRATCH(
        temp, c,
        at_mul((size_t)(lines * dims[last]), (size_t)f.real_bytes * 2));
    for (uint32_t a = 0; a < last; a++, src = temp)
      AT_TRY(complex_axis(&f, src, temp, p->batch, dims, p->rank, a, true));
  }
  return real_axis(&f, src, dst, lines, n, true);
}
