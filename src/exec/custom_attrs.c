// Attributes of a custom call (abi/attrdict.h) in the form that a handler
// reads.
#include <stdlib.h>

#include "abi/attrdict.h"
#include "exec/custom_internal.h"

enum { kMaxDepth = 32 };

// XLA's numbers of element types; -1: the interface has none.
int32_t at_ffi_dtype(at_dtype t) {
  static const int8_t codes[AT_DTYPE_COUNT] = {
      [AT_PRED] = 1,
      [AT_S2] = 26,
      [AT_S4] = 21,
      [AT_S8] = 2,
      [AT_S16] = 3,
      [AT_S32] = 4,
      [AT_S64] = 5,
      [AT_U2] = 27,
      [AT_U4] = 22,
      [AT_U8] = 6,
      [AT_U16] = 7,
      [AT_U32] = 8,
      [AT_U64] = 9,
      [AT_F16] = 10,
      [AT_F32] = 11,
      [AT_F64] = 12,
      [AT_BF16] = 16,
      [AT_C64] = 15,
      [AT_C128] = 18,
      [AT_TOKEN] = 17,
      [AT_F8E5M2] = 19,
      [AT_F8E3M4] = 29,
      [AT_F8E4M3] = 28,
      [AT_F8E4M3FN] = 20,
      [AT_F8E4M3B11FNUZ] = 23,
      [AT_F8E5M2FNUZ] = 24,
      [AT_F8E4M3FNUZ] = 25,
      [AT_F4E2M1FN] = 32,
      [AT_F8E8M0FNU] = 33,
  };
  return (unsigned)t < AT_DTYPE_COUNT && codes[t] ? codes[t] : -1;
}

// INVALID: a width that handlers cannot take.
static at_dtype int_dtype(uint8_t bits, bool is_unsigned) {
  switch (bits) {
    case 1:
      return AT_PRED;
    case 8:
      return is_unsigned ? AT_U8 : AT_S8;
    case 16:
      return is_unsigned ? AT_U16 : AT_S16;
    case 32:
      return is_unsigned ? AT_U32 : AT_S32;
    case 64:
      return is_unsigned ? AT_U64 : AT_S64;
    default:
      return AT_INVALID;
  }
}

// One number as `t` stores it. Narrow floats keep the nearest value, ties to
// even.
static bool store(uint8_t *to, at_dtype t, double f, int64_t i) {
  switch (t) {
    case AT_F64:
      return memcpy(to, &f, 8), true;
    case AT_F32: {
      float v = (float)f;
      return memcpy(to, &v, 4), true;
    }
    case AT_F16: {
      _Float16 v = (_Float16)f;
      return memcpy(to, &v, 2), true;
    }
    case AT_BF16: {
      float v = (float)f;
      uint32_t u;
      memcpy(&u, &v, 4);
      uint16_t r =
          v != v ? 0x7fc0 : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
      return memcpy(to, &r, 2), true;
    }
    default:
      break;
  }
  uint32_t bytes = at_is_int(t) || t == AT_PRED ? at_dtype_bytes(t) : 0;
  if (bytes && bytes <= 8) memcpy(to, &i, bytes);  // little-endian
  return bytes != 0;
}

// INVALID for what is no number.
static at_dtype dtype_of(const at_dict_value *v) {
  return v->tag == AT_DICT_INT     ? int_dtype(v->bits, v->is_unsigned)
         : v->tag == AT_DICT_FLOAT ? (at_dtype)v->dtype
         : v->tag == AT_DICT_BOOL  ? AT_PRED
                                   : AT_INVALID;
}

// UNIMPLEMENTED, with the attribute's name.
static at_status unsupported(ffi_span name) {
  return AT_FAIL(AT_UNIMPLEMENTED,
                 "custom call attribute \"%.*s\" has a form that handlers "
                 "cannot take\nhint: pass numbers, strings, NumPy arrays or "
                 "dictionaries of them",
                 (int)AT_MIN(name.len, (size_t)100), name.ptr);
}

// A number in storage form, 16 bytes of room for each.
static at_status make_scalar(at_arena *a, const at_dict_value *v, ffi_span name,
                             void **out) {
  at_dtype t = dtype_of(v);
  ffi_scalar *s;
  uint8_t *value;
  AT_TRY_ALLOC(s, at_new(a, ffi_scalar, 1));
  AT_TRY_ALLOC(value, at_arena_alloc(a, 16, 16));
  *s = (ffi_scalar){at_ffi_dtype(t), value};
  if (s->dtype < 0 || !store(value, t, v->f, v->i)) return unsupported(name);
  *out = s;
  return AT_OK;
}

// A dense array: splats are written out. What the dictionary says of sizes is
// checked against its bytes.
static at_status make_dense(at_arena *a, const at_dict_value *v, ffi_span name,
                            void **out) {
  size_t count = 1, each = at_dtype_bytes((at_dtype)v->dtype);
  for (uint32_t d = 0; d < v->count; d++) {
    int64_t n;
    memcpy(&n, v->dims + 8 * (size_t)d, 8);
    if (n < 0) return unsupported(name);
    count = at_mul(count, (size_t)n);
  }
  size_t bytes = at_mul(count, each);
  int32_t dtype = at_ffi_dtype((at_dtype)v->dtype);
  if (dtype < 0 || !each || v->bytes < (v->splat && count ? each : bytes))
    return unsupported(name);
  ffi_array *array;
  uint8_t *data;
  AT_TRY_ALLOC(array, at_new(a, ffi_array, 1));
  AT_TRY_ALLOC(data, at_arena_alloc(a, bytes, 16));
  for (size_t i = 0; v->splat && i < count; i++)
    memcpy(data + i * each, v->data, each);
  if (!v->splat && bytes) memcpy(data, v->data, bytes);
  *array = (ffi_array){dtype, count, data};
  *out = array;
  return AT_OK;
}

// A list of numbers of one type.
static at_status make_list(at_arena *a, const at_dict_value *v, at_bytes all,
                           ffi_span name, void **out) {
  at_dict_cursor c = {v->data, all.ptr + all.len, false};
  at_dtype t = AT_S64;
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(a, at_mul(v->count, 8), 16));
  for (uint32_t i = 0; i < v->count; i++) {
    at_dict_value item;
    if (!at_dict_read(&c, &item, 0)) return unsupported(name);
    if (i == 0) t = dtype_of(&item);
    if (dtype_of(&item) != t || at_ffi_dtype(t) < 0 ||
        !store(data + (size_t)i * at_dtype_bytes(t), t, item.f, item.i))
      return unsupported(name);
  }
  ffi_array *array;
  AT_TRY_ALLOC(array, at_new(a, ffi_array, 1));
  *array = (ffi_array){at_ffi_dtype(t), v->count, data};
  *out = array;
  return AT_OK;
}

static at_status make_dict(at_arena *a, at_dict_cursor c, uint32_t count,
                           at_bytes all, int depth, ffi_attrs *out);

// By the value's tag; *type says which struct *out is.
static at_status make_value(at_arena *a, const at_dict_value *v, at_bytes all,
                            int depth, ffi_span name, int32_t *type,
                            void **out) {
  switch (v->tag) {
    case AT_DICT_BOOL:
    case AT_DICT_INT:
    case AT_DICT_FLOAT:
      *type = FFI_ATTR_SCALAR;
      return make_scalar(a, v, name, out);
    case AT_DICT_DENSE:
      *type = FFI_ATTR_ARRAY;
      return make_dense(a, v, name, out);
    case AT_DICT_ARRAY:
      *type = FFI_ATTR_ARRAY;
      return make_list(a, v, all, name, out);
    case AT_DICT_TEXT: {
      ffi_span *s;
      AT_TRY_ALLOC(s, at_new(a, ffi_span, 1));
      *s = (ffi_span){v->text, v->bytes};
      *type = FFI_ATTR_STRING;
      *out = s;
      return AT_OK;
    }
    case AT_DICT_DICT: {
      ffi_attrs *d;
      AT_TRY_ALLOC(d, at_new(a, ffi_attrs, 1));
      at_dict_cursor c = {v->data, all.ptr + all.len, false};
      AT_TRY(make_dict(a, c, v->count, all, depth + 1, d));
      *type = FFI_ATTR_DICT;
      *out = d;
      return AT_OK;
    }
    default:
      return unsupported(name);
  }
}

static int compare_names(ffi_span a, ffi_span b) {
  int c = memcmp(a.ptr, b.ptr, AT_MIN(a.len, b.len));
  return c ? c : (a.len > b.len) - (a.len < b.len);
}

// `count` entries from c on, sorted by name. INVALID_ARGUMENT: malformed or
// nested too deep.
static at_status make_dict(at_arena *a, at_dict_cursor c, uint32_t count,
                           at_bytes all, int depth, ffi_attrs *out) {
  if (c.bad || depth > kMaxDepth || count > all.len)
    return AT_FAIL(AT_INVALID_ARGUMENT, "malformed custom call attributes");
  *out = (ffi_attrs){.struct_size = sizeof *out};
  ffi_span *names;
  AT_TRY_ALLOC(names, at_new(a, ffi_span, count + 1));
  AT_TRY_ALLOC(out->types, at_new(a, int32_t, count + 1));
  AT_TRY_ALLOC(out->names, at_new(a, ffi_span *, count + 1));
  AT_TRY_ALLOC(out->attrs, at_new(a, void *, count + 1));
  for (uint32_t i = 0; i < count; i++) {
    uint32_t len;
    names[i].ptr = at_dict_text(&c, &len);
    names[i].len = len;
    at_dict_value v;
    int32_t type = 0;
    void *value = NULL;
    if (!names[i].ptr || !at_dict_read(&c, &v, 0))
      return AT_FAIL(AT_INVALID_ARGUMENT, "malformed custom call attributes");
    AT_TRY(make_value(a, &v, all, depth, names[i], &type, &value));
    int64_t at = out->size++;  // insertion keeps them ascending
    for (; at > 0 && compare_names(*out->names[at - 1], names[i]) > 0; at--) {
      out->names[at] = out->names[at - 1];
      out->types[at] = out->types[at - 1];
      out->attrs[at] = out->attrs[at - 1];
    }
    out->names[at] = &names[i];
    out->types[at] = type;
    out->attrs[at] = value;
  }
  return AT_OK;
}

// No bytes: no attributes.
at_status at_ffi_attrs(at_bytes config, at_arena *a, ffi_attrs *out) {
  *out = (ffi_attrs){.struct_size = sizeof *out};
  if (!config.len) return AT_OK;
  uint32_t count;
  at_dict_cursor c = at_dict_open(config.ptr, config.len, &count);
  return make_dict(a, c, count, config, 0, out);
}
