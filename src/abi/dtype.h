// Element types, shared by the compile side and the run side.
#ifndef ATOLL_ABI_DTYPE_H_
#define ATOLL_ABI_DTYPE_H_

#include <stdbool.h>
#include <stdint.h>

typedef enum at_dtype {
#define AT_DTYPE(Id, ...) AT_##Id,
#include "abi/dtype.def"
#undef AT_DTYPE
  AT_DTYPE_COUNT
} at_dtype;

typedef enum at_dclass {
  AT_CLASS_OTHER,
  AT_CLASS_BOOL,
  AT_CLASS_SINT,
  AT_CLASS_UINT,
  AT_CLASS_FLOAT,
  AT_CLASS_COMPLEX
} at_dclass;

typedef struct at_dtype_info {
  const char *text;
  uint8_t bits, storage_bytes, dclass, pjrt;
  const char *doc;
} at_dtype_info;

// Indexed by at_dtype.
static const at_dtype_info at_dtype_table[AT_DTYPE_COUNT] = {
#define AT_DTYPE(Id, text, bits, storage, class, pjrt, doc) \
  [AT_##Id] = {text, bits, storage, AT_CLASS_##class, pjrt, doc},
#include "abi/dtype.def"
#undef AT_DTYPE
};

static inline const at_dtype_info *at_dtype_of(at_dtype t) {
  return &at_dtype_table[(unsigned)t < AT_DTYPE_COUNT ? t : AT_INVALID];
}
static inline uint32_t at_dtype_bytes(at_dtype t) {
  return at_dtype_of(t)->storage_bytes;
}
static inline bool at_is_float(at_dtype t) {
  return at_dtype_of(t)->dclass == AT_CLASS_FLOAT;
}
static inline bool at_is_complex(at_dtype t) {
  return at_dtype_of(t)->dclass == AT_CLASS_COMPLEX;
}
static inline bool at_is_signed_int(at_dtype t) {
  return at_dtype_of(t)->dclass == AT_CLASS_SINT;
}
static inline bool at_is_unsigned_int(at_dtype t) {
  return at_dtype_of(t)->dclass == AT_CLASS_UINT;
}
static inline bool at_is_int(at_dtype t) {
  return at_is_signed_int(t) || at_is_unsigned_int(t);
}
// complex<f32> -> f32, complex<f64> -> f64, else t.
static inline at_dtype at_real_of(at_dtype t) {
  return t == AT_C64 ? AT_F32 : t == AT_C128 ? AT_F64 : t;
}

#endif
