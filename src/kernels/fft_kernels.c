// The transforms of a group of lines, per element type and instruction set.
#include <math.h>

#include "kernels/fft_internal.h"
#include "kernels/lanes.h"

#pragma STDC FP_CONTRACT ON

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

#define FAMILY(name, lanes) \
  { lanes, name##_group, name##_unravel, name##_ravel, name##_multiply }
const at_fft_kernels at_fft_kernel[2][2] = {
    {FAMILY(f32_v3, 16), FAMILY(f32_v4, 16)},
    {FAMILY(f64_v3, 8), FAMILY(f64_v4, 8)}};
