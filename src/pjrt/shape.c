// Element types, shapes and layouts as PJRT spells them.
#include "pjrt/pjrt_internal.h"

// INVALID_ARGUMENT: a type that PJRT has and Atoll has not, or none at all.
at_status at_pjrt_dtype(PJRT_Buffer_Type t, at_dtype *out) {
  // Type 0 is PJRT's INVALID; a scan of 32 rows is cheaper than a table to
  // keep.
  for (int i = 1; i < AT_DTYPE_COUNT && t != PJRT_Buffer_Type_INVALID; i++) {
    if (at_dtype_table[i].pjrt == (int)t) {
      *out = (at_dtype)i;
      return AT_OK;
    }
  }
  return AT_FAIL(AT_INVALID_ARGUMENT, "unknown PJRT_Buffer_Type %d", (int)t);
}

const int64_t *at_pjrt_minor_to_major(uint32_t rank) {
  static const int64_t descending[AT_PJRT_MAX_RANK] = {
      63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48,
      47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37, 36, 35, 34, 33, 32,
      31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
      15, 14, 13, 12, 11, 10, 9,  8,  7,  6,  5,  4,  3,  2,  1,  0};
  if (rank > AT_PJRT_MAX_RANK) rank = AT_PJRT_MAX_RANK;
  return descending + (AT_PJRT_MAX_RANK - rank);
}

// In bytes, of a row-major array.
static void dense_strides(at_dtype dtype, at_dims dims, int64_t *strides) {
  int64_t step = at_dtype_bytes(dtype);
  for (uint32_t d = dims.rank; d-- > 0;) {
    strides[d] = step;
    step *= dims.ptr[d];
  }
}

// Strides along dimensions of size 1 never matter.
static bool same_strides(at_dims dims, const int64_t *x, const int64_t *y) {
  for (uint32_t d = 0; d < dims.rank; d++)
    if (dims.ptr[d] == 0) return true;
  for (uint32_t d = 0; d < dims.rank; d++)
    if (dims.ptr[d] != 1 && x[d] != y[d]) return false;
  return true;
}

// A layout is byte strides, or an order of dimensions from minor to major.
// UNIMPLEMENTED: tiles on the host's side.
at_status at_pjrt_host_strides(const PJRT_Buffer_MemoryLayout *layout,
                               at_dtype dtype, at_dims dims, int64_t *strides,
                               bool *dense) {
  int64_t row_major[AT_PJRT_MAX_RANK];
  AT_ASSERT(dims.rank <= AT_PJRT_MAX_RANK);
  dense_strides(dtype, dims, row_major);
  memcpy(strides, row_major, dims.rank * sizeof *strides);
  *dense = true;
  if (!layout) return AT_OK;
  if (layout->type == PJRT_Buffer_MemoryLayout_Type_Strides) {
    if (layout->strides.num_byte_strides != dims.rank ||
        (dims.rank && !layout->strides.byte_strides))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "a layout of %zu byte strides for an array of rank %u",
                     layout->strides.num_byte_strides, dims.rank);
    if (dims.rank)
      memcpy(strides, layout->strides.byte_strides,
             dims.rank * sizeof *strides);
  } else if (layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled) {
    if (layout->tiled.num_tiles)
      return AT_FAIL(AT_UNIMPLEMENTED, "tiled layouts of host arrays");
    if (layout->tiled.minor_to_major_size != dims.rank ||
        (dims.rank && !layout->tiled.minor_to_major))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "a layout of %zu dimensions for an array of rank %u",
                     layout->tiled.minor_to_major_size, dims.rank);
    int64_t step = at_dtype_bytes(dtype);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < dims.rank; i++) {
      int64_t d = layout->tiled.minor_to_major[i];
      if (d < 0 || d >= (int64_t)dims.rank || seen & (uint64_t)1 << d)
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       "minor_to_major of a layout is not a permutation");
      seen |= (uint64_t)1 << d;
      strides[d] = step;
      step *= dims.ptr[d];
    }
  } else {
    return AT_FAIL(AT_INVALID_ARGUMENT, "unknown memory layout type %d",
                   (int)layout->type);
  }
  *dense = same_strides(dims, strides, row_major);
  return AT_OK;
}

// Sizes are multiplied with saturation, so no product can wrap. Zero dimensions
// are left out of the product: the other ones still have to fit, as other code
// multiplies them.
at_status at_pjrt_shape_check(PJRT_Buffer_Type t, const int64_t *dims,
                              size_t num_dims,
                              const PJRT_Buffer_MemoryLayout *layout,
                              at_pjrt_shape *out) {
  at_dtype dtype;
  AT_TRY(at_pjrt_dtype(t, &dtype));
  if (num_dims > AT_PJRT_MAX_RANK)
    return AT_FAIL(AT_INVALID_ARGUMENT, "rank %zu exceeds %d", num_dims,
                   AT_PJRT_MAX_RANK);
  if (num_dims && !dims)
    return AT_FAIL(AT_INVALID_ARGUMENT, "dims is NULL but num_dims is %zu",
                   num_dims);
  size_t bytes = at_dtype_bytes(dtype);
  bool empty = false;
  for (size_t i = 0; i < num_dims; i++) {
    if (dims[i] < 0)
      return AT_FAIL(AT_INVALID_ARGUMENT, "dimension %zu is %lld", i,
                     (long long)dims[i]);
    if (dims[i] == 0) empty = true;
    bytes = at_mul(bytes, (size_t)(dims[i] ? dims[i] : 1));
  }
  if (bytes > (size_t)INT64_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the array's size overflows 63 bits");
  at_dims shape = {dims, (uint32_t)num_dims};
  if (layout) {
    int64_t strides[AT_PJRT_MAX_RANK];
    bool dense;
    AT_TRY(at_pjrt_host_strides(layout, dtype, shape, strides, &dense));
    if (!dense)
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "device layouts other than dense row-major\n"
                     "hint: leave the layout to the device (do not pass "
                     "jax.experimental.layout.Layout)");
  }
  *out = (at_pjrt_shape){dtype, shape, empty ? 0 : bytes};
  return AT_OK;
}

// Walks a strided array in row-major order beside a dense one.
static void walk(size_t element, const int64_t *dims, const int64_t *strides,
                 uint32_t rank, char **dense, char *strided, bool to_strided) {
  if (rank == 0) {
    if (to_strided)
      memcpy(strided, *dense, element);
    else
      memcpy(*dense, strided, element);
    *dense += element;
    return;
  }
  for (int64_t i = 0; i < dims[0]; i++)
    walk(element, dims + 1, strides + 1, rank - 1, dense,
         strided + i * strides[0], to_strided);
}

static bool is_empty(at_dims dims) {
  for (uint32_t d = 0; d < dims.rank; d++)
    if (dims.ptr[d] == 0) return true;
  return false;
}

void at_pjrt_copy_strided(at_dtype dtype, at_dims dims, const void *src,
                          void *dst, const int64_t *strides) {
  if (is_empty(dims)) return;
  char *from = (char *)src;
  walk(at_dtype_bytes(dtype), dims.ptr, strides, dims.rank, &from, dst, true);
}

void at_pjrt_gather_strided(at_dtype dtype, at_dims dims, const void *src,
                            const int64_t *strides, void *dst) {
  if (is_empty(dims)) return;
  char *to = dst;
  walk(at_dtype_bytes(dtype), dims.ptr, strides, dims.rank, &to, (char *)src,
       false);
}
