// Fourier transforms: each axis in turn, splitting off the smallest prime
// factor and summing directly over primes, in long double.
#include <math.h>

#include "hlo/eval_internal.h"

typedef long double complex cx_t;

// The tables of one axis, in the scratch arena.
typedef struct plan {
  int64_t n;      // full length, of the table of roots
  cx_t *roots;    // roots[k] = e^(sign 2 pi i k / n)
  cx_t *scratch;  // n
} plan;

// The table has n roots, of the full length: shorter transforms of the
// recursion step through it.
static at_status plan_make(at_arena *a, int64_t n, bool inverse, plan *p) {
  p->n = n;
  AT_TRY_ALLOC(p->roots, at_new(a, cx_t, (size_t)n));
  AT_TRY_ALLOC(p->scratch, at_new(a, cx_t, (size_t)n));
  for (int64_t k = 0; k < n; k++) {
    // Eighths of a turn keep the table exact where it can be.
    long double turn = 2 * acosl(-1.0L) * (long double)k / (long double)n;
    long double re = cosl(turn), im = sinl(turn);
    if (4 * k == n || 4 * k == 3 * n) re = 0;
    if (2 * k == n) im = 0;
    p->roots[k] = CMPLXL(re, inverse ? im : -im);
  }
  return AT_OK;
}

// The least prime factor; n itself when n is prime or 1.
static int64_t smallest_factor(int64_t n) {
  for (int64_t f = 2; f * f <= n; f++)
    if (n % f == 0) return f;
  return n;
}

// out[k] = sum_j in[j * stride] root^(j k step), where step = p->n / n.
static void transform(const plan *p, const cx_t *in, int64_t stride, cx_t *out,
                      int64_t n) {
  if (n == 1) {
    out[0] = in[0];
    return;
  }
  int64_t f = smallest_factor(n), m = n / f, step = p->n / n;
  for (int64_t r = 0; r < f; r++)
    transform(p, in + r * stride, stride * f, out + r * m, m);
  // Combine: out[k] = sum_r root^(r k step) part_r[k mod m].
  for (int64_t k = 0; k < n; k++) {
    cx_t sum = 0;
    for (int64_t r = 0; r < f; r++)
      sum += out[r * m + k % m] * p->roots[(r * k % n) * step];
    p->scratch[k] = sum;
  }
  memcpy(out, p->scratch, (size_t)n * sizeof *out);
}

// Multiplications of one line of length n: n times the sum of its prime
// factors.
static int64_t fft_cost(int64_t n) {
  int64_t cost = 0, all = n;
  while (n > 1) {
    int64_t f = smallest_factor(n);
    cost += all * f;
    n /= f;
  }
  return cost + 1;
}

// The transformed axes of one batch element.
typedef struct grid {
  int64_t dims[3];  // lengths of the transformed axes, full
  uint32_t rank;
  int64_t total;
} grid;

// Transforms axis `d` of the block.
static at_status along(at_arena *a, const grid *g, uint32_t d, bool inverse,
                       cx_t *block) {
  int64_t n = g->dims[d], inner = 1;
  plan p;
  cx_t *line;
  for (uint32_t i = d + 1; i < g->rank; i++) inner *= g->dims[i];
  AT_TRY(plan_make(a, n, inverse, &p));
  AT_TRY_ALLOC(line, at_new(a, cx_t, (size_t)n));
  for (int64_t o = 0; o < g->total / (n * inner); o++)
    for (int64_t i = 0; i < inner; i++) {
      cx_t *first = block + o * n * inner + i;
      transform(&p, first, inner, line, n);
      for (int64_t k = 0; k < n; k++)
        first[k * inner] = inverse ? line[k] / (long double)n : line[k];
    }
  return AT_OK;
}

// Completes a half spectrum: the upper half of each line is the conjugate of
// the lower half's mirror image. Entries that are their own image are real. The
// outer axes are already transformed back.
static void fill_mirror(const grid *g, cx_t *block) {
  int64_t n = g->dims[g->rank - 1];
  for (int64_t row = 0; row < g->total / n; row++) {
    cx_t *line = block + row * n;
    line[0] = creall(line[0]);
    if (n % 2 == 0) line[n / 2] = creall(line[n / 2]);
    for (int64_t k = n / 2 + 1; k < n; k++) line[k] = conjl(line[n - k]);
  }
}

// One fft node while it is evaluated; block holds one batch element at a time.
typedef struct job {
  const at_eval_args *e;
  at_arena *a;
  grid g;
  int64_t type, in_last, out_last;  // stored lengths of the last axis
  cx_t *block;
} job;

// Reads one batch element into the full grid; what a half spectrum does not
// store is zero here and filled by fill_mirror.
static void load_block(const job *j, int64_t batch) {
  const at_literal *l = j->e->in[0];
  int64_t n = j->g.dims[j->g.rank - 1], rows = j->g.total / n;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = 0; k < n; k++) {
      double complex z = 0;
      if (k < j->in_last)
        z = at_load_complex(
            l->type.dtype,
            at_literal_at(l, (batch * rows + r) * j->in_last + k));
      j->block[r * n + k] = CMPLXL(creal(z), cimag(z));
    }
}

// Writes the stored part of the grid: all of it, or the first n / 2 + 1 entries
// of the last axis.
static void store_block(const job *j, int64_t batch, uint8_t *data) {
  at_dtype t = j->e->n->types[0].dtype;
  int64_t n = j->g.dims[j->g.rank - 1], rows = j->g.total / n;
  size_t w = at_dtype_bytes(t);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k = 0; k < j->out_last; k++) {
      cx_t z = j->block[r * n + k];
      uint8_t *p = data + (size_t)((batch * rows + r) * j->out_last + k) * w;
      if (at_is_complex(t))
        at_store_complex(t, p, CMPLX((double)creall(z), (double)cimagl(z)));
      else
        at_store_float(t, p, (double)creall(z));
    }
}

// Axes in order. irfft transforms the last axis last, once the outer axes are
// back, so that the mirror image is along one line.
static at_status run_block(const job *j) {
  bool inverse = j->type == AT_IFFT || j->type == AT_IRFFT;
  uint32_t last = j->g.rank - 1;
  for (uint32_t d = 0; d < j->g.rank; d++) {
    if (d == last && j->type == AT_IRFFT) fill_mirror(&j->g, j->block);
    AT_TRY(along(j->a, &j->g, d, inverse, j->block));
  }
  return AT_OK;
}

// The scratch arena is reset after each batch element, so that memory does not
// grow with the batch.
static at_status fft_all(job *j, uint8_t *data) {
  const at_type *t = &j->e->in[0]->type;
  int64_t batches = at_product(t->dims, t->rank - j->g.rank);
  for (int64_t b = 0; b < batches; b++) {
    AT_TRY_ALLOC(j->block, at_new(j->a, cx_t, (size_t)j->g.total));
    load_block(j, b);
    AT_TRY(run_block(j));
    store_block(j, b, data);
    at_arena_reset(j->a);
  }
  return AT_OK;
}

// At most three axes, which the shape rule checks. Nothing to do for arrays or
// lengths of size zero.
AT_EVAL(fft) {
  job j = {.e = e, .type = at_node_int(e->n, AT_ATTR_FFT_TYPE, AT_FFT)};
  at_dims len = at_node_ints(e->n, AT_ATTR_FFT_LENGTH);
  const at_type *t = &e->n->types[0];
  uint8_t *data;
  int64_t cost = 0;
  j.g.rank = len.rank;
  j.g.total = 1;
  for (uint32_t i = 0; i < len.rank; i++) {
    j.g.dims[i] = len.ptr[i];
    j.g.total *= len.ptr[i];
    cost += fft_cost(len.ptr[i]);
  }
  j.in_last = e->in[0]->type.dims[e->in[0]->type.rank - 1];
  j.out_last = t->dims[t->rank - 1];
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  if (at_type_elements(t) == 0 || j.g.total == 0) return AT_OK;
  AT_TRY(at_eval_spend(e->cx, at_type_elements(t) + cost));
  j.a = at_arena_create();
  if (!j.a) return AT_NO_MEMORY("fft");
  at_status st = fft_all(&j, data);
  at_arena_destroy(j.a);
  return st;
}
