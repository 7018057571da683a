// Literals: dense row-major data, or one element that stands for all.
#include "hlo/hlo_internal.h"

// `data` NULL: zeroes.
at_status at_literal_make(at_arena *a, at_type t, const void *data, bool splat,
                          bool borrow, const at_literal **out) {
  at_literal *l;
  if (!at_type_is_static(&t))
    return AT_FAIL(AT_INVALID_ARGUMENT, "literal of the dynamic type %s",
                   at_type_z(&t).z);
  size_t bytes = splat ? at_dtype_bytes(t.dtype) : at_type_bytes(&t);
  if (bytes == SIZE_MAX)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "literal of type %s is too large",
                   at_type_z(&t).z);
  AT_TRY_ALLOC(l, at_new(a, at_literal, 1));
  AT_TRY(at_type_copy(a, &t, &l->type));
  l->bytes = bytes;
  l->splat = splat;
  l->data = data;
  if (!borrow) {
    size_t align = 16;
    AT_TRY_ALLOC(l->data, at_arena_alloc(a, bytes, align));
    if (bytes && data) memcpy((void *)l->data, data, bytes);
  }
  *out = l;
  return AT_OK;
}

// A splat has its one element at every index.
const void *at_literal_at(const at_literal *l, int64_t i) {
  if (l->splat) return l->data;
  size_t at = (size_t)i * at_dtype_bytes(l->type.dtype);
  AT_ASSERT(i >= 0 && at < l->bytes);
  return (const uint8_t *)l->data + at;
}

int64_t at_literal_int(const at_literal *l, int64_t i) {
  return at_load_int(l->type.dtype, at_literal_at(l, i));
}
uint64_t at_literal_uint(const at_literal *l, int64_t i) {
  return (uint64_t)at_literal_int(l, i);
}
double at_literal_float(const at_literal *l, int64_t i) {
  return at_load_float(l->type.dtype, at_literal_at(l, i));
}
