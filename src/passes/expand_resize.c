// Custom calls that resize images become gathers and products. An image is
// [batch, height, width, channels]; both dimensions are resized by the same
// rule, one after the other. With `scale` = size before / size after, the place
// that an output pixel i reads is i * scale, or (i + 1/2) * scale - 1/2 with
// half-pixel centres; with aligned corners the scale is that of the distances
// between the first and the last pixel.
#include <math.h>

#include "passes/passes_internal.h"

enum { RANK = 4 };

typedef struct resize {
  const char *target;
  bool bilinear;
  bool gradient;  // of the resize from the result's size to the operand's
} resize;

typedef struct resize_rule {
  bool bilinear, align_corners, half_pixel;
} resize_rule;

// What one pixel reads: pixel lo and, if bilinear, `weight` of pixel hi.
typedef struct tap {
  int32_t lo, hi;
  float weight;
} tap;

// Pixel `at` of `in`, or the last: in - 1 as a float may be one more than it.
static int32_t last_or(float at, int64_t in) {
  return (int32_t)AT_MIN((int64_t)at, in - 1);
}

// The tap of output pixel i when `in` pixels become `out`. In f32, as the
// weights are.
static tap tap_at(const resize_rule *k, int64_t i, int64_t in, int64_t out) {
  float scale = k->align_corners && out > 1 ? (float)(in - 1) / (float)(out - 1)
                                            : (float)in / (float)out;
  float half = k->half_pixel ? 0.5F : 0.0F;
  float at = ((float)i + half) * scale;
  if (!k->bilinear) {
    at = k->align_corners ? roundf(at) : floorf(at);
    int32_t lo = last_or(at, in);
    return (tap){lo, lo, 0};
  }
  at = fminf(fmaxf(at - half, 0), (float)(in - 1));
  int32_t lo = last_or(at, in);
  return (tap){lo, lo + (lo < in - 1), fmaxf(at - (float)lo, 0)};
}

// *x resized along `dim` to out_size pixels: a gather of the nearest pixel, or
// the weighted sum of two gathers.
static at_status resize_dim(at_node *n, const resize_rule *k, int64_t dim,
                            int64_t out_size, at_value *x) {
  at_arena *a = n->parent->module->arena;
  int64_t in = at_value_type(*x)->dims[dim];
  int32_t *lo, *hi;
  float *keep, *add;
  AT_TRY_ALLOC(lo, at_new(a, int32_t, (size_t)out_size));
  AT_TRY_ALLOC(hi, at_new(a, int32_t, (size_t)out_size));
  AT_TRY_ALLOC(keep, at_new(a, float, (size_t)out_size));
  AT_TRY_ALLOC(add, at_new(a, float, (size_t)out_size));
  for (int64_t i = 0; i < out_size; i++) {
    tap t = tap_at(k, i, in, out_size);
    lo[i] = t.lo;
    hi[i] = t.hi;
    keep[i] = 1 - t.weight;
    add[i] = t.weight;
  }
  at_dims size = {&out_size, 1};
  at_value low, high;
  AT_TRY(at_mk_take(n, *x, dim, size, lo, &low));
  if (k->bilinear) {
    AT_TRY(at_mk_take(n, *x, dim, size, hi, &high));
    AT_TRY(at_mk_weighted(n, low, dim, size, keep, &low));
    AT_TRY(at_mk_weighted(n, high, dim, size, add, &high));
    AT_TRY(at_mk2(n, AT_OP_ADD, low, high, &low));
  }
  *x = low;
  return AT_OK;
}

// What resize_dim does, transposed: a product with the matrix of its weights.
static at_status gradient_dim(at_node *n, const resize_rule *k, int64_t dim,
                              int64_t in, at_value *x) {
  at_arena *a = n->parent->module->arena;
  int64_t out_size = at_value_type(*x)->dims[dim], shape[2] = {out_size, in};
  float *w;
  AT_TRY_ALLOC(w, at_new(a, float, at_mul((size_t)out_size, (size_t)in)));
  for (int64_t i = 0; i < out_size * in; i++) w[i] = 0;
  for (int64_t i = 0; i < out_size; i++) {
    tap t = tap_at(k, i, in, out_size);
    w[i * in + t.lo] += 1 - t.weight;
    w[i * in + t.hi] += t.weight;
  }
  // Weights must not be rounded to bf16: precision HIGHEST.
  int64_t zero = 0, highest[2] = {2, 2};
  at_attr attrs[] = {at_attr_ints(AT_ATTR_LHS_CONTRACTING_DIMENSIONS, &dim, 1),
                     at_attr_ints(AT_ATTR_RHS_CONTRACTING_DIMENSIONS, &zero, 1),
                     at_attr_ints(AT_ATTR_PRECISION, highest, 2)};
  at_value v[2] = {*x};
  at_type type;
  // The product has the resized dimension last; perm brings it back.
  int64_t dims[RANK], perm[RANK], num = 0;
  for (int64_t d = 0; d < RANK; d++) {
    perm[d] = d == dim ? RANK - 1 : num;
    if (d != dim) dims[num++] = at_value_type(*x)->dims[d];
  }
  dims[RANK - 1] = in;
  AT_TRY(at_type_make(a, AT_F32, (at_dims){dims, RANK}, &type));
  AT_TRY(at_mk_constant(n, AT_F32, (at_dims){shape, 2}, w, &v[1]));
  AT_TRY(at_mk(n, AT_OP_DOT_GENERAL, v, 2, attrs, AT_LEN(attrs), &type, x));
  return at_mk_transpose(n, *x, perm, x);
}

// "\"ab\"": a: corners are aligned, b: centres are half a pixel in.
static at_status rule_read(const at_node *n, resize_rule *k) {
  at_str s = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  if (s.len == 4 && s.ptr[0] == '"' && s.ptr[3] == '"')
    s = (at_str){s.ptr + 1, 2};
  bool flags = s.len == 2;
  for (size_t i = 0; i < s.len; i++)
    flags = flags && (s.ptr[i] == '0' || s.ptr[i] == '1');
  if (!flags)
    return at_fail_at(AT_INVALID_ARGUMENT, n,
                      "the configuration must be two digits, 0 or 1");
  k->align_corners = s.ptr[0] == '1';
  k->half_pixel = s.ptr[1] == '1';
  return AT_OK;
}

// INVALID_ARGUMENT unless n takes and gives a 4-D image whose batch and
// channels agree and that has pixels; UNIMPLEMENTED for complex ones, and for
// more pixels in a row or column than s32 numbers.
static at_status check(const at_node *n) {
  const at_type *x =
      n->num_operands == 1 ? at_value_type(n->operands[0]) : NULL;
  if (!x || n->num_results != 1 || x->rank != RANK ||
      n->types[0].rank != RANK || x->dtype != n->types[0].dtype ||
      x->dims[0] != n->types[0].dims[0] || x->dims[3] != n->types[0].dims[3])
    return at_fail_at(AT_INVALID_ARGUMENT, n,
                      "takes and gives an image [batch, height, width, "
                      "channels] of one type");
  for (uint32_t d = 1; d < 3; d++) {
    if (x->dims[d] == 0 || n->types[0].dims[d] == 0)
      return at_fail_at(AT_INVALID_ARGUMENT, n, "the image has no pixels");
    // Places of pixels are s32.
    if (x->dims[d] > INT32_MAX || n->types[0].dims[d] > INT32_MAX)
      return at_fail_at(AT_UNIMPLEMENTED, n,
                        "the image has over %d rows or columns", INT32_MAX);
  }
  if (at_is_complex(x->dtype))
    return at_fail_at(AT_UNIMPLEMENTED, n, "complex numbers are not supported");
  return AT_OK;
}

// Width first, then height; a dimension of the right size already is left
// alone. Weights are f32, and so is the arithmetic.
at_status at_expand_resize(at_rw *r, at_node *n) {
  static const resize all[] = {{"ResizeBilinear", true, false},
                               {"ResizeNearest", false, false},
                               {"ResizeBilinearGrad", true, true},
                               {"ResizeNearestGrad", false, true}};
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  const resize *f = NULL;
  for (size_t i = 0; i < AT_LEN(all); i++)
    if (at_str_is(target, all[i].target)) f = &all[i];
  if (!f) return AT_OK;
  resize_rule k = {.bilinear = f->bilinear};
  AT_TRY(check(n));
  AT_TRY(rule_read(n, &k));
  at_value x = n->operands[0];
  if (f->bilinear || f->gradient) AT_TRY(at_mk_convert(n, x, AT_F32, &x));
  for (int64_t dim = 2; dim > 0; dim--) {
    int64_t size = n->types[0].dims[dim];
    if (at_value_type(x)->dims[dim] == size) continue;
    AT_TRY(f->gradient ? gradient_dim(n, &k, dim, size, &x)
                       : resize_dim(n, &k, dim, size, &x));
  }
  AT_TRY(at_mk_convert(n, x, n->types[0].dtype, &x));
  return at_fwd_set(r, n, 0, x);
}
