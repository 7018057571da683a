// The transforms of a group of lines, per element type and instruction set.
#include <math.h>

#include "kernels/fft_internal.h"

// Shuffles of two vectors: which elements of the first, or counted on, of the
// second. LOW_d and HIGH_d swap blocks of d elements; EVEN and ODD take pairs apart.
#define LOW_8_16 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8_16 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#define LOW_4_16 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_4_16 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_2_16 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_2_16 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_1_16 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_1_16 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define EVEN_16 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD_16 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define ZIP_LOW_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define ZIP_HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW_4_8 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH_4_8 4, 5, 6, 7, 12, 13, 14, 15
#define LOW_2_8 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH_2_8 2, 3, 10, 11, 6, 7, 14, 15
#define LOW_1_8 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH_1_8 1, 9, 3, 11, 5, 13, 7, 15
#define EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
#define ODD_8 1, 3, 5, 7, 9, 11, 13, 15
#define ZIP_LOW_8 0, 8, 1, 9, 2, 10, 3, 11
#define ZIP_HIGH_8 4, 12, 5, 13, 6, 14, 7, 15

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
  {lanes, name##_group, name##_unravel, name##_ravel, name##_multiply}
const at_fft_kernels at_fft_kernel[2][2] = {
    {FAMILY(f32_v3, 16), FAMILY(f32_v4, 16)}, {FAMILY(f64_v3, 8), FAMILY(f64_v4, 8)}};
