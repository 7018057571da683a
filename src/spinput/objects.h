// Ragged batches as Python has them: an array of references to small NumPy
// arrays, one per sample. Reading them here, in place, takes a hundredth of the
// time of a loop in Python.
#ifndef ATOLL_SPINPUT_OBJECTS_H_
#define ATOLL_SPINPUT_OBJECTS_H_

#include "spinput/spinput.h"

// How this process's NumPy lays out its array objects, as the Python face found
// it by looking at an array that it knows. Offsets in bytes.
typedef struct at_spinput_layout {
  const void *type;        // of ndarray
  const void *element[2];  // the dtypes to accept, any of them; NULL: none
  int32_t element_bytes[2];
  int32_t type_at, data_at, rank_at, dims_at, strides_at, element_at;
} at_spinput_layout;

// rows[i] = data and length of objects[i]. *bytes: of an element. Returns -1,
// or the first object that is not a contiguous one-dimensional array of an
// accepted dtype, the same for all of them. The objects are borrowed and not
// changed; the caller sees to it that nobody else changes them meanwhile.
int64_t at_spinput_rows_of(at_pool *pool, const at_spinput_layout *layout,
                           const void *const *objects, int64_t n,
                           at_spinput_row *rows, int32_t *bytes);

#endif
