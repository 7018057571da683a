#include "kernels/kernels.h"

#define MISSING(fn)                                              \
  at_status fn(const at_k_call *c) {                             \
    return AT_FAIL(AT_UNIMPLEMENTED, "runtime kernel %s", #fn);  \
  }
MISSING(at_k_sort)
MISSING(at_k_top_k)
MISSING(at_k_fft)
