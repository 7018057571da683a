// Convolution against the definition, with random windows, dilations, paddings,
// groups and memory orders.
#include "kernels/kernels_test_util.h"

// Element i as a double; h: its imaginary part, 0 for real types.
static double part(uint32_t t, const char *p, int64_t i, int h) {
  int64_t es = at_dtype_bytes((at_dtype)t);
  if (!at_is_complex((at_dtype)t)) return h ? 0 : at_k_load_f64(t, p + i * es);
  return at_k_load_f64(at_real_of((at_dtype)t), p + i * es + h * es / 2);
}

// The element of the output at batch b, feature f, position o, in double.
static void plain(const at_k_conv_params *p, const char *in, const char *kernel,
                  int64_t b, int64_t f, const int64_t *o, double out[2]) {
  int64_t window = 1, ic = p->in_features / p->feature_groups;
  uint32_t d = p->spatial_rank;
  for (uint32_t i = 0; i < d; i++) window *= p->kernel_size[i];
  int64_t per = p->out_features / (p->feature_groups * p->batch_groups);
  int64_t fg = p->feature_groups > 1 ? f / per : 0;
  int64_t bg = p->batch_groups > 1 ? f / per : 0;
  int64_t batch = b + bg * (p->batch / p->batch_groups);
  out[0] = out[1] = 0;
  for (int64_t w = 0; w < window; w++) {
    int64_t rest = w, at = batch * p->in_batch_stride,
            k = f * p->kernel_out_stride;
    bool inside = true;
    for (uint32_t i = d; i-- > 0;) {
      int64_t q = rest % p->kernel_size[i];
      rest /= p->kernel_size[i];
      int64_t x =
          o[i] * p->window_stride[i] + q * p->rhs_dilation[i] - p->pad_low[i];
      inside = inside && x >= 0 && x % p->lhs_dilation[i] == 0 &&
               x / p->lhs_dilation[i] < p->in_size[i];
      at += x / p->lhs_dilation[i] * p->in_stride[i];
      k += (p->reversal[i] ? p->kernel_size[i] - 1 - q : q) *
           p->kernel_stride[i];
    }
    for (int64_t c = 0; c < ic && inside; c++) {
      int64_t ai = at + (fg * ic + c) * p->in_feature_stride;
      int64_t ki = k + c * p->kernel_in_stride;
      double ar = part(p->lhs, in, ai, 0), am = part(p->lhs, in, ai, 1);
      double br = part(p->rhs, kernel, ki, 0), bm = part(p->rhs, kernel, ki, 1);
      out[0] += ar * br - am * bm, out[1] += ar * bm + am * br;
    }
  }
}

// Output sizes from the rest of p, memory in order or shuffled; one thread and
// two give the same bits, and those are near the definition.
static void run_conv(at_k_conv_params p, bool shuffle, uint64_t *seed) {
  uint32_t d = p.spatial_rank;
  tu_slot li[16] = {{p.batch, &p.in_batch_stride}}, lk[16], lo[16];
  int64_t positions = 1;
  for (uint32_t i = 0; i < d; i++) {
    int64_t in = (p.in_size[i] - 1) * p.lhs_dilation[i] + 1;
    if (p.in_size[i] == 0) in = 0;
    int64_t k = (p.kernel_size[i] - 1) * p.rhs_dilation[i] + 1;
    int64_t room = in + p.pad_low[i] + p.pad_high[i] - k;
    p.out_size[i] = room < 0 || k <= 0 ? 0 : room / p.window_stride[i] + 1;
    li[1 + i] = (tu_slot){p.in_size[i], &p.in_stride[i]};
    lk[i] = (tu_slot){p.kernel_size[i], &p.kernel_stride[i]};
    lo[1 + i] = (tu_slot){p.out_size[i], &p.out_stride[i]};
    positions *= p.out_size[i];
  }
  int64_t out_batch = p.batch / p.batch_groups;
  li[1 + d] = (tu_slot){p.in_features, &p.in_feature_stride};
  lk[d] = (tu_slot){p.in_features / p.feature_groups, &p.kernel_in_stride};
  lk[d + 1] = (tu_slot){p.out_features, &p.kernel_out_stride};
  lo[0] = (tu_slot){out_batch, &p.out_batch_stride};
  lo[1 + d] = (tu_slot){p.out_features, &p.out_feature_stride};
  int64_t ni = tu_lay_out(li, (int)d + 2, shuffle, seed);
  int64_t nk = tu_lay_out(lk, (int)d + 2, shuffle, seed);
  int64_t no = tu_lay_out(lo, (int)d + 2, shuffle, seed);
  char *in = tu_fill(p.lhs, ni, seed), *kernel = tu_fill(p.rhs, nk, seed);
  size_t bytes = (size_t)no * at_dtype_bytes((at_dtype)p.out);
  char *out[2];
  for (uint32_t t = 0; t < 2; t++) {
    out[t] = malloc(bytes + 16);
    memset(out[t], 0x5a, bytes + 16);
    void *bufs[] = {in, kernel, out[t]};
    assert_int_equal(tu_run(AT_RT_CONV, &p, 3, bufs, t + 1), AT_OK_CODE);
  }
  assert_memory_equal(out[0], out[1], bytes + 16);
  double tol = p.out == AT_BF16  ? 0.15
               : p.out == AT_F16 ? 0.02
               : at_is_float((at_dtype)p.out) || at_is_complex((at_dtype)p.out)
                   ? 1e-4
                   : 0;
  for (int64_t b = 0; b < out_batch; b++)
    for (int64_t f = 0; f < p.out_features; f++)
      for (int64_t x = 0; x < positions; x++) {
        int64_t o[12], rest = x,
                       at = b * p.out_batch_stride + f * p.out_feature_stride;
        for (uint32_t i = d; i-- > 0;) {
          o[i] = rest % p.out_size[i], rest /= p.out_size[i];
          at += o[i] * p.out_stride[i];
        }
        double want[2];
        plain(&p, in, kernel, b, f, o, want);
        for (int h = 0; h < 2; h++) {
          double got = part(p.out, out[0], at, h);
          double w = at_is_complex((at_dtype)p.out) || !h ? want[h] : 0;
          if (!(fabs(got - w) <= tol))
            fail_msg(
                "%s rank %u batch %ld features %ld -> %ld groups %ld/%ld: "
                "[%ld,%ld,"
                "%ld] is %g, want %g",
                at_k_dtype_text(p.lhs), d, p.batch, p.in_features,
                p.out_features, p.feature_groups, p.batch_groups, b, f, x, got,
                w);
        }
      }
  free(in), free(kernel), free(out[0]), free(out[1]);
}

// Windows of three on seven positions, padded to the same size.
static at_k_conv_params conv_make(uint32_t t, uint32_t out, uint32_t rank,
                                  int64_t batch, int64_t in_f, int64_t out_f) {
  at_k_conv_params p = {.lhs = t,
                        .rhs = t,
                        .out = out,
                        .spatial_rank = rank,
                        .batch = batch,
                        .in_features = in_f,
                        .out_features = out_f,
                        .feature_groups = 1,
                        .batch_groups = 1};
  for (uint32_t i = 0; i < rank; i++) {
    p.in_size[i] = 7, p.kernel_size[i] = 3;
    p.window_stride[i] = p.lhs_dilation[i] = p.rhs_dilation[i] = 1;
    p.pad_low[i] = p.pad_high[i] = 1;
  }
  return p;
}

static const uint32_t types[][2] = {
    {AT_F32, AT_F32}, {AT_BF16, AT_BF16}, {AT_BF16, AT_F32}, {AT_F16, AT_F16},
    {AT_F64, AT_F64}, {AT_S8, AT_S32},    {AT_S32, AT_S32},  {AT_S64, AT_S64},
    {AT_C64, AT_C64}, {AT_C128, AT_C128}, {AT_U8, AT_S32}};

// Windows, strides, dilations, paddings (negative, too), reversals, groups of
// either kind.
static void test_random(void **state) {
  uint64_t seed = 21;
  for (size_t f = 0; f < AT_LEN(tu_features); f++) {
    at_k_limit_features(tu_features[f]);
    for (size_t t = 0; t < AT_LEN(types); t++)
      for (int round = 0; round < 24; round++) {
        at_k_conv_params p =
            conv_make(types[t][0], types[t][1], (uint32_t)tu_below(&seed, 4),
                      1 + tu_below(&seed, 3), 1 + tu_below(&seed, 5),
                      1 + tu_below(&seed, 5));
        int64_t g = 1 + tu_below(&seed, 3);
        if (round % 3 == 1)
          p.feature_groups = g, p.in_features *= g, p.out_features *= g;
        if (round % 3 == 2)
          p.batch_groups = g, p.batch *= g, p.out_features *= g;
        for (uint32_t i = 0; i < p.spatial_rank; i++) {
          p.in_size[i] = 1 + tu_below(&seed, 7),
          p.kernel_size[i] = 1 + tu_below(&seed, 3);
          p.window_stride[i] = 1 + tu_below(&seed, 3);
          p.lhs_dilation[i] = 1 + tu_below(&seed, 3);
          p.rhs_dilation[i] = 1 + tu_below(&seed, 3);
          p.pad_low[i] = tu_below(&seed, 5) - 2,
          p.pad_high[i] = tu_below(&seed, 5) - 1;
          p.reversal[i] = (uint8_t)tu_below(&seed, 2);
        }
        run_conv(p, round % 2, &seed);
      }
  }
  at_k_limit_features(UINT64_MAX);
}

// The forms of a training step: forward, input gradient (reversed kernel),
// weight gradient (features and batch trade places), depthwise.
static void test_training_forms(void **state) {
  uint64_t seed = 22;
  for (size_t f = 0; f < AT_LEN(tu_features); f++) {
    at_k_limit_features(tu_features[f]);
    for (size_t t = 0; t < AT_LEN(types); t++) {
      at_k_conv_params p = conv_make(types[t][0], types[t][1], 2, 2, 16, 40);
      run_conv(p, false, &seed);
      p.reversal[0] = p.reversal[1] = 1,
      p.lhs_dilation[0] = p.lhs_dilation[1] = 2;
      run_conv(p, false, &seed);
      p = conv_make(types[t][0], types[t][1], 2, 20, 3, 33);
      p.in_size[0] = p.in_size[1] = 6, p.kernel_size[0] = p.kernel_size[1] = 6;
      run_conv(p, false, &seed);
      run_conv(p, true, &seed);
      p = conv_make(types[t][0], types[t][1], 2, 2, 70, 70);
      p.feature_groups = 70;
      run_conv(p, false, &seed);
      p.reversal[1] = 1, p.lhs_dilation[0] = 3, p.lhs_dilation[1] = 2;
      run_conv(p, false, &seed);
    }
  }
  at_k_limit_features(UINT64_MAX);
}

// Few features on one side or both, in rows long enough for whole tiles and for
// several blocks; strides, dilations and memory orders.
static void test_few_features(void **state) {
  static const int64_t features[][2] = {{1, 1},  {1, 32}, {3, 4}, {4, 6},
                                        {64, 3}, {3, 33}, {8, 8}, {17, 16}};
  uint64_t seed = 24;
  for (size_t f = 0; f < AT_LEN(tu_features); f++) {
    at_k_limit_features(tu_features[f]);
    for (size_t t = 0; t < 4; t++)
      for (size_t i = t ? t - 1 : 0; i < AT_LEN(features); i += t ? 3 : 1) {
        uint32_t rank = 1 + (uint32_t)tu_below(&seed, 3);
        at_k_conv_params p = conv_make(types[t][0], types[t][1], rank, 2,
                                       features[i][0], features[i][1]);
        if (i % 3 == 2)
          p.feature_groups = 2, p.in_features *= 2, p.out_features *= 2;
        p.in_size[rank - 1] = 20 + tu_below(&seed, 60);
        if (rank == 3) p.in_size[0] = p.in_size[1] = 3;
        for (uint32_t d = 0; d < rank; d++) {
          p.kernel_size[d] = 1 + tu_below(&seed, d + 1 < rank ? 3 : 5);
          p.window_stride[d] = 1 + tu_below(&seed, 3);
          p.rhs_dilation[d] = 1 + tu_below(&seed, 2);
          p.pad_low[d] = tu_below(&seed, 6) - 2;
          p.pad_high[d] = tu_below(&seed, 6) - 1;
          p.reversal[d] = (uint8_t)tu_below(&seed, 2);
        }
        run_conv(p, false, &seed);
        run_conv(p, true, &seed);
        p.window_stride[rank - 1] = 1, p.lhs_dilation[rank - 1] = 2;
        run_conv(p, false, &seed);
      }
    at_k_conv_params p = conv_make(AT_F32, AT_F32, 1, 1, 1, 1);
    p.in_size[0] = 60000, p.kernel_size[0] = 9;  // a row of several blocks
    run_conv(p, false, &seed);
    p.window_stride[0] = 3;
    run_conv(p, false, &seed);
    p = conv_make(AT_BF16, AT_F32, 1, 2, 300, 5);
    p.in_size[0] = 300;
    run_conv(p, false, &seed);
  }
  at_k_limit_features(UINT64_MAX);
}

// No batch, no features, no positions but padding.
static void test_empty(void **state) {
  uint64_t seed = 23;
  at_k_conv_params p = conv_make(AT_F32, AT_F32, 2, 0, 3, 4);
  run_conv(p, false, &seed);
  p = conv_make(AT_F32, AT_F32, 2, 2, 0, 4);
  run_conv(p, false, &seed);
  p = conv_make(AT_F32, AT_F32, 1, 2, 3, 4);
  p.in_size[0] = 0, p.pad_low[0] = p.pad_high[0] = 3;
  run_conv(p, false, &seed);
}

// Taps that are 2^32 - 1 apart in both dimensions, most of them in the padding:
// a copy of what they span has 2^64 elements.
static void test_far_taps(void **state) {
  uint64_t seed = 29;
  const int64_t far = (INT64_C(1) << 32) - 1;
  at_k_conv_params p = conv_make(AT_F32, AT_F32, 2, 1, 1, 8);
  for (int i = 0; i < 2; i++) {
    p.in_size[i] = 1, p.kernel_size[i] = 2;
    p.rhs_dilation[i] = p.pad_low[i] = far, p.pad_high[i] = 0;
  }
  run_conv(p, false, &seed);
}

// Groups that do not divide, no stride, too many dimensions.
static void test_errors(void **state) {
  float x[64] = {0};
  void *bufs[] = {x, x, x};
  at_k_conv_params p = conv_make(AT_F32, AT_F32, 1, 1, 2, 2);
  p.feature_groups = 3;
  assert_int_equal(tu_run(AT_RT_CONV, &p, 3, bufs, 1), AT_INVALID_ARGUMENT);
  p.feature_groups = 1, p.window_stride[0] = 0;
  assert_int_equal(tu_run(AT_RT_CONV, &p, 3, bufs, 1), AT_INVALID_ARGUMENT);
  p.spatial_rank = 99;
  assert_int_equal(tu_run(AT_RT_CONV, &p, 3, bufs, 1), AT_INVALID_ARGUMENT);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random),
                                     cmocka_unit_test(test_training_forms),
                                     cmocka_unit_test(test_few_features),
                                     cmocka_unit_test(test_empty),
                                     cmocka_unit_test(test_far_taps),
                                     cmocka_unit_test(test_errors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
