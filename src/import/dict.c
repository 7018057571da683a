// Attribute dictionaries in their byte form, see abi/attrdict.h.
#include "abi/attrdict.h"
#include "base/verify.h"
#include "import/import_internal.h"

// n bytes of v, little-endian. Failure to grow stays in b->failed until
// at_strbuf_status.
static void put(at_strbuf *b, uint64_t v, size_t n) {
  for (size_t i = 0; i < n; i++) at_strbuf_addc(b, (char)(v >> (8 * i)));
}

// Length in 4 bytes, then the bytes without a terminator.
static void put_text(at_strbuf *b, at_str s) {
  put(b, s.len, 4);
  at_strbuf_add(b, s);
}

// Anything that the byte form has no tag for, as MLIR prints it.
static void put_other(at_strbuf *b, const at_mattr *t) {
  at_strbuf text = {0};
  at_mattr_print(&text, t);
  put(b, AT_DICT_OTHER, 1);
  put_text(b, at_strbuf_str(&text));
  b->failed |= text.failed;
  at_strbuf_free(&text);
}

// Tag, width in bits (index: 64; at most 255), unsigned or not, then the value
// in 8 bytes. Values wider than 64 bits go through put_other.
static void put_int(at_strbuf *b, const at_mattr *t) {
  bool integer = t->type && t->type->kind == AT_MTYPE_INTEGER;
  put(b, AT_DICT_INT, 1);
  put(b, integer ? AT_MIN(t->type->width, 255) : 64, 1);
  put(b, integer && t->type->sign == AT_UNSIGNED, 1);
  put(b, (uint64_t)t->i, 8);
}

// Tag, hlo's element type, then the value as the bits of a double: every
// smaller float is exact in it.
static at_status put_float(at_imp *x, const at_mop *op, at_strbuf *b,
                           const at_mattr *t) {
  at_dtype d = AT_F64;
  if (t->type) AT_TRY(at_imp_dtype(x, op, t->type, &d));
  uint64_t bits;
  memcpy(&bits, &t->f, sizeof bits);
  put(b, AT_DICT_FLOAT, 1);
  put(b, d, 1);
  put(b, bits, 8);
  return AT_OK;
}

// Tag, element type, splat, rank, dimensions, data. A splat's data is one
// element. Elements that hlo has no type for go through put_other.
static at_status put_dense(at_imp *x, const at_mop *op, at_strbuf *b,
                           const at_mattr *t) {
  const at_mtype *type = t->type;
  bool tensor = type && type->kind == AT_MTYPE_TENSOR;
  const at_mtype *elem = tensor ? type->elem : type;
  if (!elem || elem->kind == AT_MTYPE_INDEX || t->data.len > UINT32_MAX)
    return put_other(b, t), AT_OK;
  at_dtype d;
  AT_TRY(at_imp_dtype(x, op, elem, &d));
  int64_t flat = (int64_t)(t->data.len / AT_MAX(at_dtype_bytes(d), 1));
  at_dims dims = tensor ? type->shape : (at_dims){&flat, 1};
  put(b, AT_DICT_DENSE, 1);
  put(b, d, 1);
  put(b, t->splat, 1);
  put(b, dims.rank, 4);
  for (uint32_t i = 0; i < dims.rank; i++) put(b, (uint64_t)dims.ptr[i], 8);
  put_text(b, (at_str){(const char *)t->data.ptr, t->data.len});
  return AT_OK;
}

static at_status put_value(at_imp *x, const at_mop *op, at_strbuf *b,
                           const at_mattr *t, int depth);

// Number of fields, then a name and a value for each, in MLIR's order (by
// name).
static at_status put_dict(at_imp *x, const at_mop *op, at_strbuf *b,
                          const at_mattr *t, int depth) {
  put(b, t->num_elems, 4);
  for (uint32_t i = 0; i < t->num_elems; i++) {
    put_text(b, at_str_of(t->fields[i].name));
    AT_TRY(put_value(x, op, b, t->fields[i].value, depth + 1));
  }
  return AT_OK;
}

static at_status put_value(at_imp *x, const at_mop *op, at_strbuf *b,
                           const at_mattr *t, int depth) {
  // Shared parts may make a small file large; 64 MiB is no dictionary.
  if (depth > 30 || b->len > (64u << 20))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "attribute dictionary is nested too deeply or too large");
  switch (t->kind) {
    case AT_MATTR_UNIT:
      put(b, AT_DICT_UNIT, 1);
      break;
    case AT_MATTR_BOOL:
      put(b, AT_DICT_BOOL, 1);
      put(b, t->i != 0, 1);
      break;
    case AT_MATTR_INTEGER:
      if (t->wide.len)
        put_other(b, t);
      else
        put_int(b, t);
      break;
    case AT_MATTR_FLOAT:
      return put_float(x, op, b, t);
    case AT_MATTR_STRING:
      put(b, AT_DICT_TEXT, 1);
      put_text(b, t->str);
      break;
    case AT_MATTR_ARRAY:
      put(b, AT_DICT_ARRAY, 1);
      put(b, t->num_elems, 4);
      for (uint32_t i = 0; i < t->num_elems; i++)
        AT_TRY(put_value(x, op, b, t->elems[i], depth + 1));
      break;
    case AT_MATTR_DICT:
      put(b, AT_DICT_DICT, 1);
      return put_dict(x, op, b, t, depth);
    case AT_MATTR_DENSE:
    case AT_MATTR_DENSE_ARRAY:
    case AT_MATTR_RESOURCE:
      return put_dense(x, op, b, t);
    default:
      put_other(b, t);
  }
  return AT_OK;
}

// Whatever happens, the buffer is freed; on failure *out is not to be used.
// Whether the reader finds every field of t.
static bool has_fields(at_str bytes, const at_mattr *t) {
  at_dict_value v;
  for (uint32_t i = 0; i < t->num_elems; i++)
    if (!at_dict_find(bytes.ptr, bytes.len, t->fields[i].name, &v))
      return false;
  return true;
}

at_status at_imp_dict(at_imp *x, const at_mop *op, const at_mattr *t,
                      at_str *out) {
  if (t->kind != AT_MATTR_DICT)
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "expected a dictionary");
  at_strbuf b = {0};
  char *copy = NULL;
  at_status s = put_dict(x, op, &b, t, 0);
  if (at_ok(s)) s = at_strbuf_status(&b);
  if (at_ok(s) && !(copy = at_arena_str(x->a, at_strbuf_str(&b))))
    s = AT_NO_MEMORY("attribute dictionary");
  *out = (at_str){copy, b.len};
  AT_VERIFY(!at_ok(s) || has_fields(*out, t));
  at_strbuf_free(&b);
  return s;
}
