#include "kernels/kernels.h"

#define MISSING(fn)                                              \
  at_status fn(const at_k_call *c) {                             \
    return AT_FAIL(AT_UNIMPLEMENTED, "runtime kernel %s", #fn);  \
  }
MISSING(at_k_conv)
MISSING(at_k_transpose)
MISSING(at_k_copy)
MISSING(at_k_fill)
MISSING(at_k_sort)
MISSING(at_k_top_k)
MISSING(at_k_scan)
MISSING(at_k_fft)
MISSING(at_k_rng_bits)
MISSING(at_k_rng)
MISSING(at_k_cholesky)
MISSING(at_k_triangular_solve)
MISSING(at_k_qr)
MISSING(at_k_householder_product)
MISSING(at_k_lu)
MISSING(at_k_eigh)
MISSING(at_k_gather_rows)
MISSING(at_k_scatter_rows_add)
