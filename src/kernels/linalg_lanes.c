#include "kernels/linalg_lanes.h"

#include <math.h>

#include "kernels/lanes.h"

#pragma STDC FP_CONTRACT ON

enum { TRANSPOSED = 2, ADJOINT = 3 };  // at_transpose_a
enum { MAX_SWEEPS = 30 };              // Jacobi's method takes less than ten
enum { COLUMNS = 8 };                  // that share what is read of a matrix

// One element type and instruction set. Matrices [first, first + lanes) of the
// batch.
typedef void (*group_fn)(const at_k_linalg_params *p, void *const *bufs,
                         int64_t first, void *work);

#define NAME f32_v3
#define REAL float
#define WORD int32_t
#define SQRT sqrtf
#define TINY 0x1p-126f
#define EPSILON 0x1p-23f
#define WIDTH 16
#define ATTR
#include "kernels/linalg_lanes_template.h"

#define NAME f32_v4
#define REAL float
#define WORD int32_t
#define SQRT sqrtf
#define TINY 0x1p-126f
#define EPSILON 0x1p-23f
#define WIDTH 16
#define ATTR AT_V4_WIDE
#include "kernels/linalg_lanes_template.h"

#define NAME f64_v3
#define REAL double
#define WORD int64_t
#define SQRT sqrt
#define TINY 0x1p-1022
#define EPSILON 0x1p-52
#define WIDTH 8
#define ATTR
#include "kernels/linalg_lanes_template.h"

#define NAME f64_v4
#define REAL double
#define WORD int64_t
#define SQRT sqrt
#define TINY 0x1p-1022
#define EPSILON 0x1p-52
#define WIDTH 8
#define ATTR AT_V4_WIDE
#include "kernels/linalg_lanes_template.h"

#define FAMILY(n) \
  { n##_cholesky, n##_solve, n##_qr, n##_product, n##_lu, n##_eigh }
static const group_fn groups[2][2][AT_LANES_OPS] = {
    {FAMILY(f32_v3), FAMILY(f32_v4)}, {FAMILY(f64_v3), FAMILY(f64_v4)}};

// Matrices of a group.
static int64_t lanes_of(const at_k_linalg_params *p) {
  return p->dtype == AT_F64 ? 8 : 16;
}

// Half of the lanes must be busy, and a group must fit into the second cache.
bool at_lanes_fit(at_lanes_op op, const at_k_linalg_params *p) {
  if (p->dtype != AT_F32 && p->dtype != AT_F64) return false;
  // LAPACK's divide and conquer does less work on larger matrices than Jacobi's
  // rotations.
  int64_t most =
      op == AT_LANES_EIGH ? AT_LANES_MAX_SIDE / 2 : AT_LANES_MAX_SIDE;
  return p->batch * 2 >= lanes_of(p) && p->m <= most && p->n <= most;
}

typedef struct run {
  const at_k_linalg_params *p;
  void *const *bufs;
  group_fn group;
  int64_t lanes;
  char *work;
  size_t work_bytes;
} run;

// Groups [begin, end) with this worker's memory.
static void group_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const run *r = arg;
  for (int64_t g = begin; g < end; g++)
    r->group(r->p, r->bufs, g * r->lanes, r->work + worker * r->work_bytes);
}

// See linalg_lanes.h. Work memory is two matrices and two columns of vectors
// for each worker.
at_status at_lanes_run(const at_k_call *c, at_lanes_op op) {
  const at_k_linalg_params *p = c->params;
  bool dbl = p->dtype == AT_F64;
  int64_t side = AT_MAX(p->m, p->n);
  run r = {p, c->bufs, groups[dbl][at_k_has(AT_CPU_AVX512)][op], lanes_of(p),
           NULL,
           // Two matrices and two columns, a vector for each element.
           (size_t)(2 * side * side + 2 * side) * 64};
  AT_K_SCRATCH(r.work, c, at_mul(r.work_bytes, at_par_threads(c->par)));
  int64_t grain = 1 + 65536 / (side * side * side + 64);
  at_par_for(c->par, at_k_ceil_div(p->batch, r.lanes), AT_MIN(grain, 64),
             group_range, &r);
  return AT_OK;
}
