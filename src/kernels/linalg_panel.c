#include "kernels/linalg_panel.h"

#include <math.h>

#include "kernels/lanes.h"

#pragma STDC FP_CONTRACT ON

enum { TILE = 4 };  // vectors of a tile of columns
enum { ROWS = 8 };  // unknowns of a vector that are found together

#define NAME(f) f32_v3_##f
#define REAL float
#define WORD int32_t
#define SQRT sqrtf
#define WIDTH 16
#define ATTR
#include "kernels/linalg_panel_template.h"

#define NAME(f) f32_v4_##f
#define REAL float
#define WORD int32_t
#define SQRT sqrtf
#define WIDTH 16
#define ATTR AT_V4_WIDE
#include "kernels/linalg_panel_template.h"

#define NAME(f) f64_v3_##f
#define REAL double
#define WORD int64_t
#define SQRT sqrt
#define WIDTH 8
#define ATTR
#include "kernels/linalg_panel_template.h"

#define NAME(f) f64_v4_##f
#define REAL double
#define WORD int64_t
#define SQRT sqrt
#define WIDTH 8
#define ATTR AT_V4_WIDE
#include "kernels/linalg_panel_template.h"

#define FAMILY(n)                                                              \
  {                                                                            \
    n##_copy, n##_solve, n##_solve_vector, n##_subtract, n##_cholesky, n##_lu, \
        n##_qr, n##_join, n##_swap                                             \
  }
const at_panel_fns at_panel[2][2] = {{FAMILY(f32_v3), FAMILY(f32_v4)},
                                     {FAMILY(f64_v3), FAMILY(f64_v4)}};
