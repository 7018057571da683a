// NumPy's .npz archives: a zip of .npy arrays. Reads stored and deflated
// members, C and Fortran order, little-endian; writes stored members in C
// order.
#ifndef ATOLL_CLI_NPZ_H_
#define ATOLL_CLI_NPZ_H_

#include "abi/dtype.h"
#include "base/arena.h"
#include "base/status.h"

// An array of an archive.
typedef struct at_npy {
  const char *name;  // without ".npy"
  // A V2 is read as bf16: nothing else of two bytes has no code.
  at_dtype dtype;  // bf16 and the f8 kinds are written as NumPy's V2 and V1
  at_dims dims;
  const void *data;  // dense row-major, in the arena
  size_t bytes;
} at_npy;

// In the order of the archive's directory; all is in the arena, and `file` may
// go.
// INVALID_ARGUMENT on malformed archives and on types that Atoll lacks.
at_status at_npz_read(at_bytes file, at_arena *a, at_npy **out,
                      uint32_t *out_count);
// Whether an array can be argument `index` of this type: INVALID_ARGUMENT names
// both types. Types that NumPy lacks may come as any array of as many bytes.
at_status at_npy_fits(const at_npy *x, uint32_t index, at_dtype dtype,
                      at_dims dims);
// Members are named after their arrays, in that order. PERMISSION_DENIED: the
// file cannot be made; DATA_LOSS: not written whole, of which something may be
// there; UNIMPLEMENTED: over 4 GiB.
at_status at_npz_write(const char *path, const at_npy *arrays, uint32_t count);

#endif
