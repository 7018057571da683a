// CONV: every convolution is a product whose A is gathered from the input while
// it is packed (no im2col matrix exists): rows are output positions, k runs
// over the window and the input features, groups are a batch. Depthwise has
// a loop of its own; where features are few nothing is packed (conv_direct.c).
#include "kernels/conv_internal.h"
#include "kernels/gemm_internal.h"

// Stays negative whatever offsets are added to it.
static const int64_t OUTSIDE = INT64_MIN / 16;
_Static_assert(AT_K_MAX_RANK < 16, "sums of OUTSIDE must not wrap");

// A convolution as a product: row (batch, position), column (output feature), k
// (window index, input feature).
typedef struct conv {
  const at_k_conv_params *p;
  uint32_t d;                  // spatial rank
  int64_t groups;              // feature or batch groups
  int64_t batch, in_f, out_f;  // of one group
  int64_t window,
      positions;     // products of the kernel's and output's spatial sizes
  bool batch_minor;  // rows count (positions, batch) instead of (batch,
                     // positions)
  // where[d][o * kernel + k]: offset of the input that output o and window
  // index k meet along dim d, or OUTSIDE.
  const int64_t *where[AT_K_MAX_RANK];
  const char *zeros;  // in_f zero elements
} conv;

// Counts indices of several dims, minor fastest.
static void advance(const int64_t *size, uint32_t d, int64_t *at) {
  for (uint32_t i = d; i-- > 0;) {
    if (++at[i] < size[i]) return;
    at[i] = 0;
  }
}
// Takes index apart into indices of d dims, the minor one fastest.
static void locate(const int64_t *size, uint32_t d, int64_t index,
                   int64_t *at) {
  for (uint32_t i = d; i-- > 0;) at[i] = index % size[i], index /= size[i];
}

enum { MAX_PANEL = 32 };
// A few rows of A: for each, where its batch element lies and the tables that
// say where window indices meet the input.
typedef struct panel {
  int64_t rows;
  int64_t base[MAX_PANEL];   // of the row's batch element
  int64_t outer[MAX_PANEL];  // and of all dims of the window but the last
  const int64_t
      *row[AT_K_MAX_RANK][MAX_PANEL];  // where[d] of the row's position
} panel;

// Fills in the panel of rows [i, i + rows), at most MAX_PANEL: one division for
// the first, then counting.
static void panel_make(const conv *c, int64_t i, int64_t rows, panel *pn) {
  const at_k_conv_params *p = c->p;
  int64_t o[AT_K_MAX_RANK], b;
  if (c->batch_minor)
    b = i % c->batch, locate(p->out_size, c->d, i / c->batch, o);
  else
    b = i / c->positions, locate(p->out_size, c->d, i % c->positions, o);
  pn->rows = rows;
  for (int64_t r = 0; r < rows; r++) {
    pn->base[r] = b * p->in_batch_stride;
    for (uint32_t d = 0; d < c->d; d++)
      pn->row[d][r] = c->where[d] + o[d] * p->kernel_size[d];
    if (c->batch_minor) {
      if (++b == c->batch) b = 0, advance(p->out_size, c->d, o);
    } else {
      advance(p->out_size, c->d, o);
      bool wrapped = true;
      for (uint32_t d = 0; d < c->d; d++) wrapped = wrapped && o[d] == 0;
      b += wrapped;
    }
  }
}

// Offsets of the panel's rows at window index `k`; negative for padding and
// holes. Returns true when the rows are all inside and one element apart. Calls
// for one panel follow each other in the window's order.
static bool panel_offsets(const conv *c, panel *pn, const int64_t *k,
                          bool first, int64_t *off) {
  uint32_t last = c->d - 1;
  if (c->d == 0) {
    memcpy(off, pn->base, (size_t)pn->rows * sizeof *off);
  } else {
    if (first || k[last] == 0)
      for (int64_t r = 0; r < pn->rows; r++) {
        pn->outer[r] = pn->base[r];
        for (uint32_t d = 0; d < last; d++) pn->outer[r] += pn->row[d][r][k[d]];
      }
    for (int64_t r = 0; r < pn->rows; r++)
      off[r] = pn->outer[r] + pn->row[last][r][k[last]];
  }
  bool run = off[0] >= 0;
  for (int64_t r = 1; r < pn->rows; r++) run &= off[r] == off[0] + r;
  return run;
}

// Short, of a length that only the caller knows.
static void copy_short(char *dst, const char *src, int64_t bytes) {
  int64_t i = 0;
  for (; i + 16 <= bytes; i += 16) memcpy(dst + i, src + i, 16);
  for (; i + 4 <= bytes; i += 4) memcpy(dst + i, src + i, 4);
  for (; i < bytes; i++) dst[i] = src[i];
}

// Copies features [f, f + n) of every row; dst at the first of them.
#define COPY_FEATURES(name, T)                                                \
  static void name(const conv *c, int64_t rows, const int64_t *off, bool run, \
                   const char *srcv, int64_t f, int64_t n, bool row_major,    \
                   int64_t ld, char *dstv) {                                  \
    const T *src = (const T *)(const void *)srcv;                             \
    T *dst = (T *)(void *)dstv;                                               \
    int64_t fs = c->p->in_feature_stride;                                     \
    if (run && !row_major) {                                                  \
      for (int64_t q = 0; q < n; q++)                                         \
        copy_short((char *)(dst + q * ld),                                    \
                   (const char *)(src + off[0] + (f + q) * fs),               \
                   rows *(int64_t)sizeof(T));                                 \
      return;                                                                 \
    }                                                                         \
    int64_t rs = row_major ? ld : 1, qs = row_major ? 1 : ld;                 \
    for (int64_t r = 0; r < rows; r++) {                                      \
      bool in = off[r] >= 0;                                                  \
      const T *s =                                                            \
          in ? src + off[r] + f * fs : (const T *)(const void *)c->zeros;     \
      int64_t ss = in ? fs : 0;                                               \
      T *d = dst + r * rs;                                                    \
      if (row_major && ss == 1)                                               \
        memcpy(d, s, (size_t)n * sizeof(T));                                  \
      else                                                                    \
        for (int64_t q = 0; q < n; q++) d[q * qs] = s[q * ss];                \
    }                                                                         \
  }
// An element of 16 bytes.
typedef struct w16 {
  uint64_t w[2];
} w16;
COPY_FEATURES(copy1, uint8_t)
COPY_FEATURES(copy2, uint16_t)
COPY_FEATURES(copy4_any, uint32_t)
COPY_FEATURES(copy8, uint64_t)
COPY_FEATURES(copy16, w16)

// Contiguous features of 4 bytes, transposed four rows at a time.
static void copy4(const conv *c, int64_t rows, const int64_t *off, bool run,
                  const char *srcv, int64_t f, int64_t n, bool row_major,
                  int64_t ld, char *dstv) {
  if (run || row_major || c->p->in_feature_stride != 1 || n < 4) {
    copy4_any(c, rows, off, run, srcv, f, n, row_major, ld, dstv);
    return;
  }
  const float *src = (const float *)(const void *)srcv;
  float *dst = (float *)(void *)dstv;
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float *s[4];
    for (int i = 0; i < 4; i++)
      s[i] = off[r + i] < 0 ? (const float *)(const void *)c->zeros
                            : src + off[r + i] + f;
    int64_t q = 0;
    for (; q + 4 <= n; q += 4) {
      __m128 a = _mm_loadu_ps(s[0] + q), b = _mm_loadu_ps(s[1] + q);
      __m128 e = _mm_loadu_ps(s[2] + q), g = _mm_loadu_ps(s[3] + q);
      _MM_TRANSPOSE4_PS(a, b, e, g);
      _mm_storeu_ps(dst + q * ld + r, a);
      _mm_storeu_ps(dst + (q + 1) * ld + r, b);
      _mm_storeu_ps(dst + (q + 2) * ld + r, e);
      _mm_storeu_ps(dst + (q + 3) * ld + r, g);
    }
    for (; q < n; q++)
      for (int i = 0; i < 4; i++) dst[q * ld + r + i] = s[i][q];
  }
  if (r < rows)
    copy4_any(c, rows - r, off + r, false, srcv, f, n, false, ld, dstv + r * 4);
}

// at_gemm_pack_a_fn of convolutions: window index by window index, the features
// of all rows, zeros where the window meets padding or a hole.
static void pack_a_conv(const at_gemm_job *j, int64_t batch, int64_t i,
                        int64_t rows, int64_t width, int64_t k, int64_t kc,
                        int64_t kpad, bool row_major, int64_t ld, void *dst) {
  const conv *c = j->pack_a_ctx;
  uint32_t es = at_dtype_bytes((at_dtype)j->a_type);
  int64_t goff[3], at[AT_K_MAX_RANK], off[MAX_PANEL];
  j->batch_off(j, batch, goff);
  const char *src = j->a + goff[0] * es;
  char *d = dst;
  if (rows < width || kc < kpad)
    memset(d, 0, (size_t)((row_major ? width * ld : kpad * ld) * es));
  panel pn;
  panel_make(c, i, rows, &pn);
  locate(c->p->kernel_size, c->d, k / c->in_f, at);
  int64_t f = k % c->in_f;
  for (int64_t q = 0; q < kc;) {
    int64_t n = AT_MIN(c->in_f - f, kc - q);
    bool run = panel_offsets(c, &pn, at, q == 0, off);
    char *to = d + (row_major ? q : q * ld) * es;
    switch (es) {
      case 1:
        copy1(c, rows, off, run, src, f, n, row_major, ld, to);
        break;
      case 2:
        copy2(c, rows, off, run, src, f, n, row_major, ld, to);
        break;
      case 4:
        copy4(c, rows, off, run, src, f, n, row_major, ld, to);
        break;
      case 8:
        copy8(c, rows, off, run, src, f, n, row_major, ld, to);
        break;
      default:
        copy16(c, rows, off, run, src, f, n, row_major, ld, to);
    }
    q += n, f = 0;
    advance(c->p->kernel_size, c->d, at);
  }
}

// Group g of features or of the batch: where its input, kernel and output
// begin.
static void batch_off_conv(const at_gemm_job *j, int64_t g, int64_t off[3]) {
  const conv *c = j->pack_a_ctx;
  const at_k_conv_params *p = c->p;
  off[0] = p->feature_groups > 1 ? g * c->in_f * p->in_feature_stride
                                 : g * c->batch * p->in_batch_stride;
  off[1] = g * c->out_f * p->kernel_out_stride;
  off[2] = g * c->out_f * p->out_feature_stride;
}

// The type that sums are held in: the widest of the three operands, f32 for
// narrow floats and s32 for narrow integers.
static uint32_t acc_type(const at_k_conv_params *p) {
  uint32_t t[3] = {p->lhs, p->rhs, p->out};
  bool cplx = false, wide = false, flt = false;
  for (int i = 0; i < 3; i++) {
    at_dtype d = (at_dtype)t[i];
    cplx = cplx || at_is_complex(d);
    flt = flt || at_is_float(d);
    wide = wide || d == AT_F64 || d == AT_C128 || d == AT_S64 || d == AT_U64;
  }
  if (cplx) return wide ? AT_C128 : AT_C64;
  if (flt) return wide ? AT_F64 : AT_F32;
  return wide ? AT_S64 : AT_S32;
}

// INVALID_ARGUMENT for sizes, groups, strides or dilations that cannot be;
// nothing is read before.
static at_status check_conv(const at_k_conv_params *p) {
  AT_K_CHECK(p->spatial_rank <= AT_K_MAX_RANK,
             "conv: spatial rank %u is over %d", p->spatial_rank,
             AT_K_MAX_RANK);
  AT_K_CHECK(
      at_dtype_bytes((at_dtype)p->lhs) && at_dtype_bytes((at_dtype)p->rhs) &&
          at_dtype_bytes((at_dtype)p->out),
      "conv: operand types %s, %s -> %s have no data", at_k_dtype_text(p->lhs),
      at_k_dtype_text(p->rhs), at_k_dtype_text(p->out));
  AT_K_CHECK(p->batch >= 0 && p->in_features >= 0 && p->out_features >= 0,
             "conv: negative size");
  AT_K_CHECK(p->feature_groups >= 1 && p->batch_groups >= 1 &&
                 (p->feature_groups == 1 || p->batch_groups == 1),
             "conv: %ld feature groups with %ld batch groups",
             p->feature_groups, p->batch_groups);
  AT_K_CHECK(p->in_features % p->feature_groups == 0 &&
                 p->batch % p->batch_groups == 0 &&
                 p->out_features % (p->feature_groups * p->batch_groups) == 0,
             "conv: groups do not divide batch %ld, features %ld -> %ld",
             p->batch, p->in_features, p->out_features);
  for (uint32_t d = 0; d < p->spatial_rank; d++)
    AT_K_CHECK(p->in_size[d] >= 0 && p->kernel_size[d] >= 0 &&
                   p->out_size[d] >= 0 && p->window_stride[d] >= 1 &&
                   p->lhs_dilation[d] >= 1 && p->rhs_dilation[d] >= 1,
               "conv: spatial dim %u has a bad size, stride or dilation", d);
  return AT_OK;
}

// Tables of c->where, one per spatial dim: out_size x kernel_size offsets in
// elements.
static at_status make_where(const at_k_call *call, conv *c) {
  const at_k_conv_params *p = c->p;
  for (uint32_t d = 0; d < c->d; d++) {
    int64_t ks = p->kernel_size[d], os = p->out_size[d], *t;
    AT_K_SCRATCH(t, call, at_mul((size_t)(ks * os), sizeof *t));
    for (int64_t o = 0; o < os; o++)
      for (int64_t k = 0; k < ks; k++) {
        int64_t x =
            o * p->window_stride[d] - p->pad_low[d] + k * p->rhs_dilation[d];
        bool in = x >= 0 && x % p->lhs_dilation[d] == 0 &&
                  x / p->lhs_dilation[d] < p->in_size[d];
        t[o * ks + k] = in ? x / p->lhs_dilation[d] * p->in_stride[d] : OUTSIDE;
      }
    c->where[d] = t;
  }
  return AT_OK;
}

// True if t[i] = i * t[1]: a stride replaces the table.
static bool evenly_spaced(const int64_t *t, int64_t n) {
  if (n > 0 && t[0] != 0) return false;
  for (int64_t i = 2; i < n; i++)
    if (t[i] != t[1] * i) return false;
  return true;
}

// Offset tables of C's rows and of B's k.
static at_status make_offsets(const at_k_call *call, const conv *c,
                              at_gemm_job *j) {
  const at_k_conv_params *p = c->p;
  int64_t *m, *k, at[AT_K_MAX_RANK];
  AT_K_SCRATCH(m, call, at_mul((size_t)j->m, sizeof *m));
  AT_K_SCRATCH(k, call, at_mul((size_t)j->k, sizeof *k));
  for (int64_t x = 0; x < c->positions; x++) {
    locate(p->out_size, c->d, x, at);
    int64_t o = 0;
    for (uint32_t d = 0; d < c->d; d++) o += at[d] * p->out_stride[d];
    for (int64_t b = 0; b < c->batch; b++)
      m[c->batch_minor ? x * c->batch + b : b * c->positions + x] =
          o + b * p->out_batch_stride;
  }
  for (int64_t x = 0; x < c->window; x++) {
    locate(p->kernel_size, c->d, x, at);
    int64_t o = 0;
    for (uint32_t d = 0; d < c->d; d++)
      o += (p->reversal[d] ? p->kernel_size[d] - 1 - at[d] : at[d]) *
           p->kernel_stride[d];
    for (int64_t f = 0; f < c->in_f; f++)
      k[x * c->in_f + f] = o + f * p->kernel_in_stride;
  }
  // at_gemm_off.inner: so many indices in a row grow by one stride.
  // Segments: the minor run of each table.
  int64_t row_inner = c->batch_minor ? c->batch
                      : c->d         ? p->out_size[c->d - 1]
                                     : 1;
  int64_t row_stride = c->batch_minor ? p->out_batch_stride
                       : c->d         ? p->out_stride[c->d - 1]
                                      : 1;
  j->c_m = (at_gemm_off){m, row_stride, AT_MAX(1, row_inner)};
  j->b_k = (at_gemm_off){k, p->kernel_in_stride, AT_MAX(1, c->in_f)};
  if (evenly_spaced(m, j->m))
    j->c_m = (at_gemm_off){NULL, j->m > 1 ? m[1] : 1, INT64_MAX};
  if (evenly_spaced(k, j->k))
    j->b_k = (at_gemm_off){NULL, j->k > 1 ? k[1] : 1, INT64_MAX};
  j->b_n = (at_gemm_off){NULL, p->kernel_out_stride, INT64_MAX};
  j->c_n = (at_gemm_off){NULL, p->out_feature_stride, INT64_MAX};
  return AT_OK;
}

// ---- Depthwise
enum { DEPTHWISE_BLOCK = 64 };
typedef struct depthwise {
  const conv *c;
  uint32_t acc;             // f32 or s32
  const char *in, *kernel;  // the kernel is of that type
  char *out;
} depthwise;

// Sums or operands of one block, of the accumulator's type.
typedef union lanes {
  float f[DEPTHWISE_BLOCK];
  uint32_t u[DEPTHWISE_BLOCK];
} lanes;

// acc[q] += a[q] * b[q].
static void depthwise_add(uint32_t t, lanes *acc, const void *a, const void *b,
                          int64_t n) {
  if (t == AT_F32) {
    float *restrict s = acc->f;
    const float *restrict x = a, *restrict y = b;
    for (int64_t q = 0; q < n; q++) s[q] = __builtin_fmaf(x[q], y[q], s[q]);
  } else {
    uint32_t *restrict s = acc->u;
    const uint32_t *restrict x = a, *restrict y = b;
    for (int64_t q = 0; q < n; q++) s[q] += x[q] * y[q];
  }
}

// Output rows [begin, end): for each, 64 features at a time, the sum over the
// window.
static void depthwise_range(void *arg, int64_t begin, int64_t end,
                            uint32_t worker) {
  const depthwise *w = arg;
  const conv *c = w->c;
  const at_k_conv_params *p = c->p;
  int64_t es = at_dtype_bytes((at_dtype)p->lhs);
  int64_t out_es = at_dtype_bytes((at_dtype)p->out);
  for (int64_t i = begin; i < end; i++) {
    panel pn;
    panel_make(c, i, 1, &pn);
    int64_t o[AT_K_MAX_RANK], out = i / c->positions * p->out_batch_stride;
    locate(p->out_size, c->d, i % c->positions, o);
    for (uint32_t d = 0; d < c->d; d++) out += o[d] * p->out_stride[d];
    for (int64_t f = 0; f < c->groups; f += DEPTHWISE_BLOCK) {
      int64_t n = AT_MIN(DEPTHWISE_BLOCK, c->groups - f);
      lanes acc = {0}, x;
      int64_t at[AT_K_MAX_RANK] = {0};
      for (int64_t k = 0; k < c->window;
           k++, advance(p->kernel_size, c->d, at)) {
        int64_t off, kernel = 0;
        panel_offsets(c, &pn, at, k == 0, &off);
        if (off < 0) continue;
        for (uint32_t d = 0; d < c->d; d++)
          kernel += (p->reversal[d] ? p->kernel_size[d] - 1 - at[d] : at[d]) *
                    p->kernel_stride[d];
        const char *a = w->in + (off + f) * es;
        if (p->lhs != w->acc) at_k_convert(w->acc, &x, p->lhs, a, n);
        depthwise_add(w->acc, &acc, p->lhs == w->acc ? (const void *)a : &x,
                      w->kernel + (kernel + f) * 4, n);
      }
      at_k_convert(p->out, w->out + (out + f) * out_es, w->acc, &acc, n);
    }
  }
}

// One input and one output feature per group, all of them dense: a product
// would have one column.
static bool is_depthwise(const conv *c) {
  const at_k_conv_params *p = c->p;
  uint32_t acc = acc_type(p);
  return p->feature_groups > 1 && c->in_f == 1 && c->out_f == 1 &&
         (acc == AT_F32 || acc == AT_S32) && p->in_feature_stride == 1 &&
         p->kernel_out_stride == 1 && p->out_feature_stride == 1;
}

// Converts the kernel to the accumulator's type once, then shares out rows.
static at_status run_depthwise(const at_k_call *call, const conv *c,
                               int64_t rows) {
  const at_k_conv_params *p = c->p;
  depthwise w = {c, acc_type(p), call->bufs[0], call->bufs[1], call->bufs[2]};
  if (p->rhs != w.acc && c->window > 0) {
    // All of it, in its own order: strides of a residue leave gaps.
    int64_t span = c->groups;
    for (uint32_t d = 0; d < c->d; d++)
      span += AT_MAX(0, p->kernel_size[d] - 1) * p->kernel_stride[d];
    void *kernel;
    AT_K_SCRATCH(kernel, call, at_mul((size_t)span, 4));
    at_k_convert(w.acc, kernel, p->rhs, w.kernel, span);
    w.kernel = kernel;
  }
  int64_t grain = 16384 / AT_MAX(1, c->window * c->groups) + 1;
  at_par_for(call->par, rows, grain, depthwise_range, &w);
  return AT_OK;
}

// ---- One convolution without holes
static at_status run(const at_k_call *call) {
  const at_k_conv_params *p = call->params;
  conv c = {.p = p, .d = p->spatial_rank, .window = 1, .positions = 1};
  c.groups = p->feature_groups * p->batch_groups;
  c.batch = p->batch / p->batch_groups;
  c.in_f = p->in_features / p->feature_groups;
  c.out_f = p->out_features / c.groups;
  for (uint32_t d = 0; d < c.d; d++)
    c.window *= p->kernel_size[d], c.positions *= p->out_size[d];
  c.batch_minor =
      p->in_batch_stride == 1 && c.batch > 1 && p->in_feature_stride != 1;
  at_gemm_job j = {.batch = c.groups,
                   .m = c.batch * c.positions,
                   .n = c.out_f,
                   .k = c.window * c.in_f,
                   .a_type = p->lhs,
                   .b_type = p->rhs,
                   .c_type = p->out,
                   .a = call->bufs[0],
                   .b = call->bufs[1],
                   .c = call->bufs[2],
                   .pack_a = pack_a_conv,
                   .pack_a_ctx = &c,
                   .a_by_k = p->in_feature_stride != 1 || c.in_f == 1,
                   .batch_off = batch_off_conv};
  if (j.m == 0 || j.n == 0) return AT_OK;
  if (!is_depthwise(&c) && at_conv_direct_fits(p)) return at_conv_direct(call);
  j.e = at_gemm_engine_of(p->lhs, p->rhs, acc_type(p));
  AT_TRY(make_where(call, &c));
  AT_TRY(make_offsets(call, &c, &j));
  if (is_depthwise(&c)) return run_depthwise(call, &c, j.m);
  size_t zero_bytes = (size_t)AT_MAX(1, c.in_f) * 16;
  void *zeros;
  AT_K_SCRATCH(zeros, call, zero_bytes);
  memset(zeros, 0, zero_bytes);
  c.zeros = zeros;
  return at_gemm_run(call->par, &j);
}

// ---- Dilated inputs
// The input gradient of a strided convolution is one over an input with holes.
// Outputs that are `lhs_dilation` apart meet the same part of the window and
// none of the holes, so each residue is a convolution of its own. More of them
// than this are not worth it.
enum { MAX_RESIDUES = 16 };

// True if the input has holes along d that outputs meet in a fixed pattern.
static bool splits(const at_k_conv_params *p, uint32_t d) {
  return p->lhs_dilation[d] > 1 && p->window_stride[d] == 1 &&
         p->rhs_dilation[d] == 1;
}

// Scratch memory that one residue after the other uses.
enum { MAX_BLOCKS = 16 };
typedef struct again {
  const at_par *par;
  int used;
  void *block[MAX_BLOCKS];
  size_t bytes[MAX_BLOCKS];
} again;

// at_par's source of scratch memory for one residue: what the residue before
// asked for in the same place, grown if it is too small.
static void *take_again(void *owner, size_t bytes) {
  again *a = owner;
  if (a->used == MAX_BLOCKS) return at_par_scratch(a->par, bytes);
  int i = a->used++;
  if (!a->block[i] || a->bytes[i] < bytes) {
    a->block[i] = at_par_scratch(a->par, bytes);
    a->bytes[i] = bytes;
  }
  return a->block[i];
}

// Runs every residue of dims d and following, each a convolution without holes
// along them: every step-th output with every step-th tap of the kernel.
static at_status run_residues(const at_k_call *call, again *memory,
                              uint32_t d) {
  const at_k_conv_params *p = call->params;
  while (d < p->spatial_rank && !splits(p, d)) d++;
  if (d == p->spatial_rank) {
    memory->used = 0;
    return run(call);
  }
  int64_t step = p->lhs_dilation[d], taps = p->kernel_size[d];
  for (int64_t r = 0; r < AT_MIN(step, p->out_size[d]); r++) {
    at_k_conv_params q = *p;
    char *kernel = call->bufs[1], *out = call->bufs[2];
    // The first tap that meets an element of the input, for outputs r, r +
    // step, ...
    int64_t first = ((p->pad_low[d] - r) % step + step) % step;
    q.kernel_size[d] = first < taps ? at_k_ceil_div(taps - first, step) : 0;
    q.out_size[d] = at_k_ceil_div(p->out_size[d] - r, step);
    q.pad_low[d] = (p->pad_low[d] - r - first) / step;
    q.lhs_dilation[d] = 1;
    q.kernel_stride[d] *= step, q.out_stride[d] *= step;
    int64_t last = first + (q.kernel_size[d] - 1) * step;
    int64_t tap = p->reversal[d] ? taps - 1 - last : first;
    if (q.kernel_size[d] > 0)
      kernel += tap * p->kernel_stride[d] * at_dtype_bytes((at_dtype)p->rhs);
    out += r * p->out_stride[d] * at_dtype_bytes((at_dtype)p->out);
    void *bufs[] = {call->bufs[0], kernel, out};
    at_k_call part = {call->par, &q, bufs, 3, NULL};
    AT_TRY(run_residues(&part, memory, d + 1));
  }
  return AT_OK;
}

// Splits inputs with holes into residues where that are few, else runs at once.
at_status at_k_conv(const at_k_call *call) {
  const at_k_conv_params *p = call->params;
  AT_K_BUFS(call, 3);
  AT_TRY(check_conv(p));
  int64_t residues = 1;
  for (uint32_t d = 0; d < p->spatial_rank && residues <= MAX_RESIDUES; d++)
    if (splits(p, d)) residues *= AT_MIN(p->lhs_dilation[d], MAX_RESIDUES + 1);
  if (residues == 1 || residues > MAX_RESIDUES) return run(call);
  again memory = {.par = call->par};
  at_par par = {call->par->pool, take_again, &memory};
  at_k_call parts = {&par, p, call->bufs, 3, NULL};
  return run_residues(&parts, &memory, 0);
}
