// FFT: axes one after another. Short lines go through groups of lanes at once.
// A long line, or one of few, is a matrix: columns are transformed, turned,
// then rows. Lengths with large primes become a convolution (Bluestein).
// Lines of 2n reals are lines of n complex elements.
#include "kernels/fft_internal.h"

enum { FFT = 0, IFFT = 1, RFFT = 2, IRFFT = 3 };  // at_fft_type

// One call: the pool and the precision.
typedef struct fft {
  const at_par *par;
  bool dbl;
  int64_t real_bytes;
  const at_fft_kernels *k;
} fft;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "fft: no scratch memory");
}

// The side `offset` elements further on.
static at_fft_side side_at(const fft *f, at_fft_side s, int64_t offset) {
  s.p += offset * f->real_bytes * (s.real ? 1 : 2);
  return s;
}
// Complex elements, one line after the other.
static at_fft_side dense(char *p) { return (at_fft_side){p, false, 0, 1, 1}; }

// ---- Groups of lines
// One pass over groups of lines.
typedef struct pass_run {
  const fft *f;
  const at_fft_pass *pass;
  char *work;  // per worker: work_bytes
  size_t work_bytes;
} pass_run;

// Groups [begin, end), each of f->k->lanes lines.
static void group_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const pass_run *r = arg;
  for (int64_t g = begin; g < end; g++)
    r->f->k->group(r->pass, g * r->f->k->lanes,
                   r->work + worker * r->work_bytes);
}

// spread: over all threads; else by this one, with the first worker's memory.
static void pass_go(const fft *f, const at_fft_pass *p, char *work,
                    size_t work_bytes, bool spread) {
  pass_run r = {f, p, work, work_bytes};
  int64_t groups = at_k_ceil_div(p->lines, f->k->lanes);
  if (spread)
    at_par_for(f->par, groups, 8192 / (p->plan->n * f->k->lanes) + 1,
               group_range, &r);
  else
    group_range(&r, 0, groups, 0);
}

// ---- Long lines
// What one line at a time is transformed with.
typedef struct long_run {
  const fft *f;
  const at_fft_plan *plan;
  const at_fft_pass *pass;
  bool spread;  // the work on one line; else lines are spread
  char *mem;    // per worker that has lines: mem_bytes
  size_t mem_bytes, line_bytes, work_bytes;
} long_run;

// Parts of a worker's memory: `temp` lies between the two passes; `mid` holds
// complex lines beside those of the caller.
typedef struct long_mem {
  char *temp, *mid, *work;
} long_mem;

// The parts of a worker's memory; behind `work` lies another line, see
// long_line.
static long_mem memory_of(const long_run *r, uint32_t worker) {
  char *p = r->mem + worker * r->mem_bytes;
  return (long_mem){p, p + r->line_bytes, p + 2 * r->line_bytes};
}

// Transforms one line of n1 x n2 elements: columns of n1 (element j + n2 i of
// the line), turned, into temp; then its rows of n2, transposed into dst.
static void matrix(const long_run *r, const at_fft_plan *plan,
                   const long_mem *m, at_fft_side src, at_fft_side dst,
                   bool inverse, double scale) {
  int64_t n1 = plan->p1->n, n2 = plan->p2->n;
  at_fft_pass p = {.plan = plan->p1,
                   .lines = n2,
                   .inner = n2,
                   .in_count = n1,
                   .out_count = n1,
                   .inverse = inverse,
                   .scale = 1,
                   .turn = plan};
  p.src = src, p.src.line = src.elem, p.src.elem = src.elem * n2;
  p.dst = (at_fft_side){m->temp, false, 0, 1, n2};
  pass_go(r->f, &p, m->work, r->work_bytes, r->spread);
  at_fft_pass q = {.plan = plan->p2,
                   .lines = n1,
                   .inner = n1,
                   .in_count = n2,
                   .out_count = n2,
                   .inverse = inverse,
                   .scale = scale};
  q.src = (at_fft_side){m->temp, false, 0, n2, 1};
  q.dst = dst, q.dst.line = dst.elem, q.dst.elem = dst.elem * n1;
  pass_go(r->f, &q, m->work, r->work_bytes, r->spread);
}

// Element i of a side as a pair of doubles; the imaginary part of a real side
// is 0.
static inline void get(const fft *f, const at_fft_side *s, int64_t i,
                       double w[2]) {
  int64_t at = i * s->elem * (s->real ? 1 : 2);
  w[1] = 0;
  if (f->dbl) {
    const double *p = (const double *)(void *)s->p + at;
    w[0] = p[0];
    if (!s->real) w[1] = p[1];
  } else {
    const float *p = (const float *)(void *)s->p + at;
    w[0] = p[0];
    if (!s->real) w[1] = p[1];
  }
}
// Stores element i; a real side keeps the real part.
static inline void put(const fft *f, const at_fft_side *s, int64_t i, double re,
                       double im) {
  int64_t at = i * s->elem * (s->real ? 1 : 2);
  if (f->dbl) {
    double *p = (double *)(void *)s->p + at;
    p[0] = re;
    if (!s->real) p[1] = im;
  } else {
    float *p = (float *)(void *)s->p + at;
    p[0] = (float)re;
    if (!s->real) p[1] = (float)im;
  }
}

// Loops over the elements of a long line.
typedef struct element_run {
  const fft *f;
  const at_fft_plan *plan;
  at_fft_side from, to;
  const void *by;
  int64_t count;
  bool swap;
  double scale;
} element_run;

// to[i] = from[i], scaled, with the parts swapped when asked; zeros behind
// `count`.
static void copy_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const element_run *r = arg;
  for (int64_t i = begin; i < end; i++) {
    double x[2] = {0, 0};
    if (i < r->count) get(r->f, &r->from, i, x);
    put(r->f, &r->to, i, x[r->swap] * r->scale, x[!r->swap] * r->scale);
  }
}
// x[i] *= by[i] for complex elements [begin, end) of `to`.
static void multiply_range(void *arg, int64_t begin, int64_t end,
                           uint32_t worker) {
  const element_run *r = arg;
  r->f->k->multiply(r->to.p, r->by, begin, end);
}
// at_par's function: a range of pairs of one long line.
static void unravel_range(void *arg, int64_t begin, int64_t end,
                          uint32_t worker) {
  const element_run *r = arg;
  r->f->k->unravel(r->plan, r->from.p, r->to.p, begin, end, r->scale);
}
// The way back.
static void ravel_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const element_run *r = arg;
  r->f->k->ravel(r->plan, r->from.p, r->to.p, begin, end);
}
// Runs fn over `count` elements of a line, by all threads where those share the
// line.
static void elements(const long_run *r, int64_t count, at_range_fn fn,
                     element_run *e) {
  enum { ELEMENTS = 1 << 14 };
  e->f = r->f, e->plan = r->plan;
  if (r->spread)
    at_par_for(r->f->par, count, ELEMENTS, fn, e);
  else
    fn(e, 0, count, 0);
}

// Bluestein: the line times a chirp, convolved with the chirp's conjugate by
// transforms of length conv->n, times the chirp. The inverse swaps real and
// imaginary parts on the way in and out.
static void convolve(const long_run *r, const long_mem *m, at_fft_side src,
                     at_fft_side dst, bool inverse, double scale) {
  const at_fft_plan *plan = r->plan;
  int64_t n = plan->n, c = plan->conv->n;
  at_fft_side a = dense(m->mid);
  element_run in = {
      .from = src, .to = a, .count = n, .swap = inverse, .scale = 1};
  elements(r, c, copy_range, &in);
  element_run by = {.to = a, .by = plan->chirp};
  elements(r, n, multiply_range, &by);
  matrix(r, plan->conv, m, a, a, false, 1);
  by.by = plan->chirp_ft;
  elements(r, c, multiply_range, &by);
  matrix(r, plan->conv, m, a, a, true, 1);
  by.by = plan->chirp;
  elements(r, n, multiply_range, &by);
  element_run out = {
      .from = a, .to = dst, .count = n, .swap = inverse, .scale = scale};
  elements(r, n, copy_range, &out);
}

// One line of r->plan->n elements; src and dst may be the same.
static void transform(const long_run *r, const long_mem *m, at_fft_side src,
                      at_fft_side dst, bool inverse, double scale) {
  if (r->plan->conv)
    convolve(r, m, src, dst, inverse, scale);
  else
    matrix(r, r->plan, m, src, dst, inverse, scale);
}

// The whole spectrum of a real line from its first half.
static void complete(const fft *f, const at_fft_side *src, int64_t n,
                     const at_fft_side *to) {
  for (int64_t i = 0; i < n; i++) {
    int64_t k = i <= n / 2 ? i : n - i;
    double w[2];
    get(f, src, k, w);
    if (k == 0 || 2 * k == n) w[1] = 0;
    put(f, to, i, w[0], i == k ? w[1] : -w[1]);
  }
}

// A line whose result or source is not as the transform has it lies in `side`
// meanwhile.
static void long_line(const long_run *r, const long_mem *m, at_fft_side src,
                      at_fft_side dst) {
  const at_fft_pass *p = r->pass;
  int64_t n = r->plan->n;
  at_fft_side mid = dense(
      m->work + r->work_bytes * (r->spread ? at_par_threads(r->f->par) : 1));
  element_run e = {.from = mid, .to = dst, .scale = p->scale};
  if (p->fold == AT_FFT_UNRAVEL) {
    transform(r, m, src, mid, false, 1);
    elements(r, n / 2 + 1, unravel_range, &e);
  } else if (p->fold == AT_FFT_RAVEL) {
    e.from = src, e.to = mid;
    elements(r, n / 2 + 1, ravel_range, &e);
    transform(r, m, mid, dst, true, p->scale);
  } else if (p->hermitian) {
    complete(r->f, &src, n, &mid);
    transform(r, m, mid, dst, p->inverse, p->scale);
  } else if (p->out_count < n) {
    transform(r, m, src, mid, p->inverse, 1);
    e.count = p->out_count;
    elements(r, p->out_count, copy_range, &e);
  } else {
    transform(r, m, src, dst, p->inverse, p->scale);
  }
}

// Lines [begin, end) with this worker's memory.
static void line_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const long_run *r = arg;
  const at_fft_pass *p = r->pass;
  long_mem m = memory_of(r, worker);
  for (int64_t l = begin; l < end; l++) {
    int64_t o = l / p->inner, i = l % p->inner;
    long_line(r, &m, side_at(r->f, p->src, o * p->src.outer + i * p->src.line),
              side_at(r->f, p->dst, o * p->dst.outer + i * p->dst.line));
  }
}

// Longer lines are worked on by all threads together, however many there are.
enum { ALONE_TO = 1 << 17 };

// Every line of the pass as a long one: few lines one after the other with all
// threads on each, many side by side.
static at_status long_axis(const fft *f, const at_fft_pass *p, int64_t n) {
  long_run r = {.f = f, .pass = p};
  AT_TRY(at_fft_plan_get(f->par, n, f->dbl, AT_FFT_LONG, &r.plan));
  const at_fft_plan *whole = r.plan->conv ? r.plan->conv : r.plan;
  size_t threads = at_par_threads(f->par);
  r.spread = p->lines < (int64_t)threads || n > ALONE_TO;
  // A line, and what its real form may need beside the convolution's.
  size_t pair = (size_t)f->real_bytes * 2,
         line = at_mul((size_t)whole->n + 8, pair);
  r.line_bytes = (size_t)at_k_round_up((int64_t)line, 64);
  r.work_bytes =
      AT_MAX(at_fft_work_bytes(whole->p1), at_fft_work_bytes(whole->p2));
  size_t works = at_mul(r.work_bytes, r.spread ? threads : 1);
  r.mem_bytes = 3 * r.line_bytes + works;
  r.mem = at_par_scratch(f->par, at_mul(r.mem_bytes, r.spread ? 1 : threads));
  if (!r.mem) return no_memory();
  if (r.spread)
    line_range(&r, 0, p->lines, 0);
  else
    at_par_for(f->par, p->lines, 8192 / n + 1, line_range, &r);
  return AT_OK;
}

// ---- Axes
// Few lines leave lanes idle, or threads; long ones leave the caches. By shape
// alone, as the two ways round differently.
static bool is_long(const fft *f, const at_fft_pass *p, int64_t n) {
  bool few = p->lines < 2 * f->k->lanes;
  if (!at_fft_smooth(n)) return n > AT_FFT_DIRECT / 2 || (few && n >= 512);
  bool columns = p->src.elem > 1 && p->inner >= f->k->lanes;
  return n > (columns ? 4 * AT_FFT_DIRECT : AT_FFT_DIRECT) || (few && n >= 64);
}

// One pass over an axis of length n: plan, scratch memory, groups of lines.
static at_status run_axis(const fft *f, at_fft_pass *p, int64_t n) {
  if (is_long(f, p, n)) return long_axis(f, p, n);
  AT_TRY(at_fft_plan_get(f->par, n, f->dbl, AT_FFT_SHORT, &p->plan));
  size_t bytes = at_fft_work_bytes(p->plan);
  char *work = at_par_scratch(f->par, at_mul(bytes, at_par_threads(f->par)));
  if (!work) return no_memory();
  pass_go(f, p, work, bytes, true);
  return AT_OK;
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
  bool even = n % 2 == 0;
  int64_t h = n / 2 + 1, whole = even ? n / 2 : n;
  at_fft_side real = {inverse ? dst : src, !even, whole, 0, 1};
  at_fft_side half = {inverse ? src : dst, false, h, 0, 1};
  at_fft_pass p = {.src = inverse ? half : real,
                   .dst = inverse ? real : half,
                   .lines = lines,
                   .inner = 1,
                   .in_count = inverse ? h : whole,
                   .out_count = inverse ? whole : h,
                   .fold = !even     ? AT_FFT_PLAIN
                           : inverse ? AT_FFT_RAVEL
                                     : AT_FFT_UNRAVEL,
                   .hermitian = inverse && !even,
                   .inverse = inverse,
                   .scale = inverse ? 1.0 / (double)n : 1};
  return run_axis(f, &p, whole);
}

// FFT, IFFT: axis after axis, the first from operand to result, the others in
// place. RFFT: the minor axis first; IRFFT: last, so the others work in scratch
// memory.
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
  fft f = {c->par, dbl, dbl ? 8 : 4,
           &at_fft_kernel[dbl][at_k_has(AT_CPU_AVX512)]};
  char *src = c->bufs[0], *dst = c->bufs[1];
  uint32_t last = p->rank - 1;
  if (p->type == FFT || p->type == IFFT) {
    for (uint32_t a = p->rank; a-- > 0; src = dst)
      AT_TRY(complex_axis(&f, src, dst, p->batch, dims, p->rank, a,
                          p->type == IFFT));
    return AT_OK;
  }
  int64_t n = dims[last];
  // From here on the minor axis of the spectra.
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
