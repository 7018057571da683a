// The tile of a convolution of few features, and rows of pixels on their way in
// and out.
#include "kernels/conv_internal.h"

#define EIGHT(X, r) X(r, 1) X(r, 2) X(r, 4) X(r, 8)
#define FOUR(X, r) X(r, 1) X(r, 2) X(r, 4)
#define TWO(X, r) X(r, 1) X(r, 2)

#define NAME wide
#define BYTES 64
#define ATTR AT_V4_WIDE
#define TILES(X) \
  EIGHT(X, 1)    \
  EIGHT(X, 2)    \
  EIGHT(X, 3)    \
  FOUR(X, 4)     \
  FOUR(X, 5)     \
  FOUR(X, 6) TWO(X, 7) TWO(X, 8) TWO(X, 9) TWO(X, 10) TWO(X, 11) TWO(X, 12)
#include "kernels/conv_micro_template.h"

#define NAME narrow
#define BYTES 32
#define ATTR
#define TILES(X) \
  EIGHT(X, 1)    \
  FOUR(X, 2)     \
  FOUR(X, 3)     \
  TWO(X, 4)      \
  TWO(X, 5) TWO(X, 6) X(7, 1) X(8, 1) X(9, 1) X(10, 1) X(11, 1) X(12, 1)
#include "kernels/conv_micro_template.h"

// Vectors of a tile of so many rows: sums, weights and one input fit into 32
// registers, or 16.
static int most_wide(int rows) { return rows <= 3 ? 8 : rows <= 6 ? 4 : 2; }
// The same for 16 registers.
static int most_narrow(int rows) {
  return rows == 1 ? 8 : rows <= 3 ? 4 : rows <= 6 ? 2 : 1;
}

// AVX-512 where it is wanted and there, else AVX2.
const at_conv_micro *at_conv_micro_of(bool wide) {
  static const at_conv_micro v4 = {16, most_wide, wide_run},
                             v3 = {8, most_narrow, narrow_run};
  return wide && at_k_has(AT_CPU_AVX512) ? &v4 : &v3;
}

// True if lhs, rhs and out are each F32, BF16 or F16.
bool at_conv_is_float(const at_k_conv_params *p) {
  uint32_t t[3] = {p->lhs, p->rhs, p->out};
  for (int i = 0; i < 3; i++)
    if (t[i] != AT_F32 && t[i] != AT_BF16 && t[i] != AT_F16) return false;
  return true;
}

// ---- Rows in
enum { CHUNK = 256 };  // floats

// Where pixel x of the copy goes. Phases are the remainders of a stride: its
// pixels become neighbours.
static int64_t place(const at_conv_row *r, int64_t x) {
  if (r->phases == 1) return x * r->dst_pixel;
  return x % r->phases * r->dst_phase + x / r->phases * r->dst_pixel;
}

// Padding: all features of pixels [begin, end) become zero.
static void zero_pixels(const at_conv_row *r, int64_t begin, int64_t end) {
  for (int64_t x = begin; x < end; x++) {
    float *to = r->dst + place(r, x);
    for (int64_t f = 0; f < r->features; f++) to[f * r->dst_feature] = 0;
  }
}

// n floats from n elements `step` apart.
static void load(const at_conv_row *r, const char *src, int64_t step, int64_t n,
                 float *to) {
  if (step == 1) {
    at_k_convert(AT_F32, to, r->dtype, src, n);
  } else if (r->dtype == AT_F32) {
    const float *s = (const float *)(const void *)src;
    for (int64_t i = 0; i < n; i++) to[i] = s[i * step];
  } else {
    const uint16_t *s = (const uint16_t *)(const void *)src;
    if (r->dtype == AT_BF16)
      for (int64_t i = 0; i < n; i++) to[i] = at_bf16_to_f32(s[i * step]);
    else
      for (int64_t i = 0; i < n; i++) to[i] = at_f16_to_f32(s[i * step]);
  }
}

// Four pixels by four features from rows of pixels to rows of features.
static void transpose4(const float *src, int64_t src_step, float *dst,
                       int64_t dst_step) {
  __m128 a = _mm_loadu_ps(src), b = _mm_loadu_ps(src + src_step);
  __m128 c = _mm_loadu_ps(src + 2 * src_step),
         d = _mm_loadu_ps(src + 3 * src_step);
  _MM_TRANSPOSE4_PS(a, b, c, d);
  _mm_storeu_ps(dst, a), _mm_storeu_ps(dst + dst_step, b);
  _mm_storeu_ps(dst + 2 * dst_step, c), _mm_storeu_ps(dst + 3 * dst_step, d);
}

// Pixels [x, x + n) of the copy whose floats are in `v`, [pixel][feature].
static void spread(const at_conv_row *r, const float *v, int64_t x, int64_t n) {
  int64_t i = 0, c = r->features;
  if (r->phases == 1 && r->dst_pixel == 1)
    for (; i + 4 <= n; i += 4) {
      int64_t f = 0;
      float *to = r->dst + x + i;
      for (; f + 4 <= c; f += 4)
        transpose4(v + i * c + f, c, to + f * r->dst_feature, r->dst_feature);
      for (; f < c; f++)
        for (int q = 0; q < 4; q++)
          to[f * r->dst_feature + q] = v[(i + q) * c + f];
    }
  for (; i < n; i++) {
    float *to = r->dst + place(r, x + i);
    for (int64_t f = 0; f < c; f++) to[f * r->dst_feature] = v[i * c + f];
  }
}

// Pixels [begin, end) of the copy, whose features are neighbours in memory.
static void copy_by_pixel(const at_conv_row *r, int64_t begin, int64_t end) {
  int64_t es = at_dtype_bytes((at_dtype)r->dtype), c = r->features;
  bool dense = r->src_pixel == c;
  const char *src = r->src + (r->first + begin) * r->src_pixel * es;
  if (r->dst_feature == 1 && r->phases == 1) {
    if (dense && r->dst_pixel == c) {
      load(r, src, 1, (end - begin) * c, r->dst + begin * c);
      return;
    }
    for (int64_t x = begin; x < end; x++, src += r->src_pixel * es)
      load(r, src, 1, c, r->dst + place(r, x));
    return;
  }
  float buffer[CHUNK];
  if (!dense || c > CHUNK) {
    for (int64_t x = begin; x < end; x++, src += r->src_pixel * es)
      load(r, src, 1, c, r->dst + place(r, x));
    return;
  }
  for (int64_t x = begin; x < end;) {
    int64_t n = AT_MIN(end - x, CHUNK / c);
    const float *v = (const float *)(const void *)src;
    if (r->dtype != AT_F32) load(r, src, 1, n * c, buffer), v = buffer;
    spread(r, v, x, n);
    x += n, src += n * c * es;
  }
}

// The same of features that are planes.
static void copy_by_plane(const at_conv_row *r, int64_t begin, int64_t end) {
  int64_t es = at_dtype_bytes((at_dtype)r->dtype);
  float buffer[CHUNK];
  for (int64_t f = 0; f < r->features; f++) {
    const char *plane = r->src + f * r->src_feature * es;
    float *dst = r->dst + f * r->dst_feature;
    for (int64_t x = begin; x < end;) {
      int64_t n = AT_MIN(end - x, CHUNK);
      const char *src = plane + (r->first + x) * r->src_pixel * es;
      if (r->phases == 1 && r->dst_pixel == 1) {
        load(r, src, r->src_pixel, n, dst + x);
      } else {
        load(r, src, r->src_pixel, n, buffer);
        for (int64_t i = 0; i < n; i++) dst[place(r, x + i)] = buffer[i];
      }
      x += n;
    }
  }
}

// Clips the row to the input, then copies whichever way memory runs.
void at_conv_copy_row(const at_conv_row *r) {
  int64_t begin = AT_MIN(r->pixels, AT_MAX(0, -r->first));
  int64_t end = AT_MAX(begin, AT_MIN(r->pixels, r->size - r->first));
  if (!r->src) begin = end = r->pixels;
  zero_pixels(r, 0, begin);
  zero_pixels(r, end, r->pixels);
  if (begin == end) return;
  bool pixels = r->src_feature == 1 && r->features > 1 &&
                (r->dst_feature == 1 ||
                 (r->src_pixel == r->features && r->features <= CHUNK));
  (pixels ? copy_by_pixel : copy_by_plane)(r, begin, end);
}

// ---- Tiles out
void at_conv_put_tile(const at_conv_put *x) {
  int64_t es = at_dtype_bytes((at_dtype)x->dtype);
  for (int64_t r = 0; r < x->rows; r++) {
    const float *from = x->from + r * x->ld;
    char *to = x->to + r * x->row_stride * es;
    if (x->column_stride == 1) {
      at_k_convert(x->dtype, to, AT_F32, from, x->columns);
    } else if (x->dtype == AT_F32) {
      float *t = (float *)(void *)to;
      for (int64_t j = 0; j < x->columns; j++)
        t[j * x->column_stride] = from[j];
    } else {
      uint16_t *t = (uint16_t *)(void *)to;
      bool brain = x->dtype == AT_BF16;
      for (int64_t j = 0; j < x->columns; j++)
        t[j * x->column_stride] =
            brain ? at_f32_to_bf16(from[j]) : at_f32_to_f16(from[j]);
    }
  }
}
