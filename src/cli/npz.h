// NumPy's .npz archives: a zip of .npy arrays. Reads stored and deflated
// members, C and Fortran order, little-endian; writes stored members in C
// order.
#ifndef ATOLL_CLI_NPZ_H_
#define ATOLL_CLI_NPZ_H_

#include "abi/dtype.h"
#include "base/arena.h"
#include "base/status.h"

typedef struct at_npy {
  const char *name;  // without ".npy"
  at_dtype dtype;    // bf16 and the f8 kinds are written as NumPy's V2 and V1
  at_dims dims;
  const void *data;  // dense row-major, in the arena
  size_t bytes;
} at_npy;

// INVALID_ARGUMENT on malformed archives and on types that Atoll lacks.
at_status at_npz_read(at_bytes file, at_arena *a, at_npy **out,
                      uint32_t *out_count);
// Whether an array can be argument `index` of this type: INVALID_ARGUMENT names
// both types. Types that NumPy lacks may come as any array of as many bytes.
at_status at_npy_fits(const at_npy *x, uint32_t index, at_dtype dtype,
                      at_dims dims);
at_status at_npz_write(const char *path, const at_npy *arrays, uint32_t count);

#endif
