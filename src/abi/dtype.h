// Element types, shared by the compile side and the run side.
#ifndef ATOLL_ABI_DTYPE_H_
#define ATOLL_ABI_DTYPE_H_

#include <stdbool.h>
#include <stdint.h>

// The numbers are part of the executable's format and of the wire's messages;
// their order is dtype.def's. AT_INVALID is 0.
typedef enum at_dtype {
#define AT_DTYPE(Id, ...) AT_##Id,
#include "abi/dtype.def"
#undef AT_DTYPE
  AT_DTYPE_COUNT
} at_dtype;

// The kind of arithmetic; OTHER: no values that programs compute with, such as
// tokens.
typedef enum at_dclass {
  AT_CLASS_OTHER,
  AT_CLASS_BOOL,
  AT_CLASS_SINT,
  AT_CLASS_UINT,
  AT_CLASS_FLOAT,
  AT_CLASS_COMPLEX
} at_dclass;

// A row of dtype.def.
typedef struct at_dtype_info {
  // MLIR's and HLO's name: "f32", "bf16".
  const char *text;
  // bits: of a value; storage_bytes: of an element in an array, 0 where there
  // are no arrays of it; dclass: at_dclass; pjrt: the PJRT_Buffer_Type.
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

// The row of any number: AT_INVALID's for one that is no type. Static.
static inline const at_dtype_info *at_dtype_of(at_dtype t) {
  return &at_dtype_table[(unsigned)t < AT_DTYPE_COUNT ? t : AT_INVALID];
}
// Bytes of an element in a dense array: 4-bit types take what `storage` of
// dtype.def says, not their bits.
static inline uint32_t at_dtype_bytes(at_dtype t) {
  return at_dtype_of(t)->storage_bytes;
}
// The four below are disjoint, and false for PRED.
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
