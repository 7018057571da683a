// Constructors of types and attributes, and the dense element buffer. Nothing
// is shared but names and a few constants: two equal types may be two objects.
// Each constructor returns NULL when the arena refuses, and the caller says so.
#include "mlir/mlir_internal.h"

const at_mtype at_mtype_i1 = {.kind = AT_MTYPE_INTEGER, .width = 1};
const at_mtype at_mtype_i32 = {.kind = AT_MTYPE_INTEGER, .width = 32};
const at_mtype at_mtype_i64 = {.kind = AT_MTYPE_INTEGER, .width = 64};
const at_mtype at_mtype_f64 = {.kind = AT_MTYPE_FLOAT, .name = "f64"};
const at_mtype at_mtype_index = {.kind = AT_MTYPE_INDEX};
const at_mtype at_mtype_none = {.kind = AT_MTYPE_NONE};
const at_mattr at_mattr_unit = {.kind = AT_MATTR_UNIT};
const at_mloc at_mloc_unknown = {.kind = AT_MLOC_UNKNOWN};

// The map's key is the copy, so that the caller's text may go. Names end at
// their first NUL because users take them as C strings.
const char *at_mctx_intern(at_mctx *c, at_str s) {
  if (s.len) s.len = strnlen(s.ptr, s.len);
  void **have = at_map_find(&c->names, s);
  if (have) return *have;
  char *z = at_arena_str(c->arena, s);
  if (!z) return NULL;
  void **slot = at_map_put(&c->names, (at_str){z, s.len});
  if (!slot) return NULL;
  return *slot = z;
}

// NULL: no memory.
at_mtype *at_mtype_make(at_mctx *c, at_mtype_kind kind) {
  at_mtype *t = at_new(c->arena, at_mtype, 1);
  if (t) t->kind = kind;
  return t;
}

// NULL: no memory.
at_mattr *at_mattr_make(at_mctx *c, at_mattr_kind kind) {
  at_mattr *a = at_new(c->arena, at_mattr, 1);
  if (a) a->kind = kind;
  return a;
}

// Not shared: types are compared by structure.
const at_mtype *at_mtype_make_int(at_mctx *c, uint32_t width, at_msign sign) {
  at_mtype *t = at_mtype_make(c, AT_MTYPE_INTEGER);
  if (!t) return NULL;
  t->width = width;
  t->sign = sign;
  return t;
}

// The name is interned, so that equal float types share it.
const at_mtype *at_mtype_make_float(at_mctx *c, const char *name) {
  at_mtype *t = at_mtype_make(c, AT_MTYPE_FLOAT);
  if (!t) return NULL;
  t->name = at_mctx_intern(c, at_str_of(name));
  return t->name ? t : NULL;
}

// One form for booleans, whatever the file had.
const at_mattr *at_mattr_make_bool(at_mctx *c, bool v) {
  at_mattr *a = at_mattr_make(c, AT_MATTR_BOOL);
  if (!a) return NULL;
  a->type = &at_mtype_i1;
  a->i = v;
  return a;
}

// Of i1 it is a BOOL, the one form in which booleans are held.
const at_mattr *at_mattr_make_int(at_mctx *c, const at_mtype *type, int64_t v) {
  if (at_mtype_is_int(type, 1) && type->sign == AT_SIGNLESS)
    return at_mattr_make_bool(c, v & 1);
  at_mattr *a = at_mattr_make(c, AT_MATTR_INTEGER);
  if (!a) return NULL;
  a->type = type;
  a->i = v;
  return a;
}

const at_mattr *at_mattr_make_i64(at_mctx *c, int64_t v) {
  return at_mattr_make_int(c, &at_mtype_i64, v);
}

// v is not rounded.
const at_mattr *at_mattr_make_f64(at_mctx *c, double v) {
  at_mattr *a = at_mattr_make(c, AT_MATTR_FLOAT);
  if (!a) return NULL;
  a->type = &at_mtype_f64;
  a->f = v;
  return a;
}

// May hold NULs: the length counts.
const at_mattr *at_mattr_make_str(at_mctx *c, at_str s) {
  at_mattr *a = at_mattr_make(c, AT_MATTR_STRING);
  if (!a) return NULL;
  a->str = (at_str){at_arena_str(c->arena, s), s.len};
  return a->str.ptr ? a : NULL;
}

// Types as attributes: TypeAttr.
const at_mattr *at_mattr_make_type(at_mctx *c, const at_mtype *t) {
  at_mattr *a = at_mattr_make(c, AT_MATTR_TYPE);
  if (a) a->type = t;
  return a;
}

// n elements of `bytes` each, aligned for the widest of them.
static const at_mattr *dense_array(at_mctx *c, const at_mtype *elem,
                                   const void *v, size_t n, size_t bytes) {
  at_mattr *a = at_mattr_make(c, AT_MATTR_DENSE_ARRAY);
  if (!a) return NULL;
  a->type = elem;
  a->num_elems = (uint32_t)n;
  a->data.len = n * bytes;
  a->data.ptr = at_arena_copy(c->arena, v, n * bytes, 8);
  return a->data.ptr ? a : NULL;
}

const at_mattr *at_mattr_make_i64s(at_mctx *c, const int64_t *v, size_t n) {
  return dense_array(c, &at_mtype_i64, v, n, 8);
}

const at_mattr *at_mattr_make_i32s(at_mctx *c, const int32_t *v, size_t n) {
  return dense_array(c, &at_mtype_i32, v, n, 4);
}

// The spelling is interned: it is one of a few.
const at_mattr *at_mattr_make_enum(at_mctx *c, at_str name, at_str v) {
  at_mattr *a = at_mattr_make(c, AT_MATTR_DIALECT);
  if (!a) return NULL;
  a->name = at_mctx_intern(c, name);
  a->str = (at_str){at_mctx_intern(c, v), v.len};
  return a->str.ptr && a->name ? a : NULL;
}

const at_mattr *at_mattr_make_symbol(at_mctx *c, at_str root) {
  at_mattr *a = at_mattr_make(c, AT_MATTR_SYMBOL);
  if (!a) return NULL;
  a->str = (at_str){at_arena_str(c->arena, root), root.len};
  return a->str.ptr ? a : NULL;
}

// n is below 2^32.
const at_mattr *at_mattr_make_array(at_mctx *c, const at_mattr *const *v,
                                    size_t n) {
  at_mattr *a = at_mattr_make(c, AT_MATTR_ARRAY);
  if (!a) return NULL;
  a->num_elems = (uint32_t)n;
  a->elems = at_arena_copy(c->arena, v, n * sizeof *v, _Alignof(void *));
  return a->elems ? a : NULL;
}

const at_mattr *at_mattr_make_loc(at_mctx *c, const at_mloc *l) {
  at_mattr *a = at_mattr_make(c, AT_MATTR_LOCATION);
  if (a) a->loc = l;
  return a;
}

// Signless, signed or unsigned alike.
bool at_mtype_is_int(const at_mtype *t, uint32_t width) {
  return t && t->kind == AT_MTYPE_INTEGER && t->width == width;
}

// Sub-byte types take a whole byte. Complex numbers of complex numbers, floats
// without a known format and non-numbers are no dense elements.
size_t at_mtype_elem_bytes(const at_mtype *elem) {
  if (!elem) return 0;
  switch (elem->kind) {
    case AT_MTYPE_INTEGER:
      return ((size_t)elem->width + 7) / 8;
    case AT_MTYPE_INDEX:
      return 8;
    case AT_MTYPE_FLOAT: {
      const at_mfloat *f = at_mfloat_find(at_str_of(elem->name));
      return f ? ((size_t)f->bits + 7) / 8 : 0;
    }
    case AT_MTYPE_COMPLEX:
      return elem->elem && elem->elem->kind != AT_MTYPE_COMPLEX
                 ? 2 * at_mtype_elem_bytes(elem->elem)
                 : 0;
    default:
      return 0;
  }
}

// A dimension of size zero wins over an overflow of the others.
size_t at_mtype_num_elems(const at_mtype *shaped) {
  size_t n = 1;
  bool zero = false;
  for (uint32_t i = 0; i < shaped->shape.rank; i++) {
    int64_t d = shaped->shape.ptr[i];
    if (d < 0) return SIZE_MAX;
    zero |= d == 0;
    n = at_mul(n, d ? (size_t)d : 1);
  }
  return zero ? 0 : n;
}

// Unpacks i1 elements. Producers of different ages pack eight to a byte, or
// give a byte each; a splat is one byte, all ones or all zeros (packed), or 1.
static at_status unpack_i1(at_mctx *c, at_bytes raw, size_t n, at_mattr *a) {
  size_t packed = n / 8 + (n % 8 != 0);
  // One byte for several elements: a splat, unless it can be packed bits.
  if (raw.len == 1 && n > 1 &&
      (raw.ptr[0] == 0xff || n > 8 || (raw.ptr[0] == 0))) {
    uint8_t one = raw.ptr[0] != 0;
    a->splat = true;
    a->data.len = 1;
    AT_TRY_ALLOC(a->data.ptr, at_arena_copy(c->arena, &one, 1, 1));
    return AT_OK;
  }
  if (raw.len != packed && raw.len != n)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "dense i1 elements: %zu bytes for %zu elements", raw.len, n);
  uint8_t *out = at_arena_alloc(c->arena, n, 1);
  if (!out) return AT_NO_MEMORY("dense elements");
  for (size_t i = 0; i < n; i++)
    out[i] = raw.len == n ? raw.ptr[i] != 0 : raw.ptr[i / 8] >> (i % 8) & 1;
  a->data = (at_bytes){out, n};
  return AT_OK;
}

// Sub-byte integers: one byte each, extended to the whole byte.
static void extend_small(uint8_t *p, size_t n, const at_mtype *e) {
  uint32_t spare = 8 - e->width;
  for (size_t i = 0; i < n; i++) {
    uint8_t up = (uint8_t)(p[i] << spare);
    p[i] = e->sign == AT_UNSIGNED ? (uint8_t)(up >> spare)
                                  : (uint8_t)((int8_t)up >> spare);
  }
}

// raw is what the producer wrote: all elements, or one that stands for all. It
// is copied unless the caller lends it and it is large and aligned.
at_status at_mattr_dense(at_mctx *c, const at_mtype *type, at_bytes raw,
                         bool borrow, const at_mattr **out) {
  const at_mtype *e = type->elem;
  size_t n = at_mtype_num_elems(type), each = at_mtype_elem_bytes(e);
  if ((type->kind != AT_MTYPE_TENSOR && type->kind != AT_MTYPE_VECTOR &&
       type->kind != AT_MTYPE_MEMREF) ||
      n == SIZE_MAX || !each)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "dense elements need a static shape of numbers");
  at_mattr *a = at_mattr_make(c, AT_MATTR_DENSE);
  if (!a) return AT_NO_MEMORY("dense elements");
  a->type = type;
  *out = a;
  if (n == 0) return AT_OK;
  if (at_mtype_is_int(e, 1)) return unpack_i1(c, raw, n, a);
  // As many bytes as one element has, for several of them.
  a->splat = raw.len == each && n > 1;
  if (!a->splat && raw.len != at_mul(n, each))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "dense elements: %zu bytes for %zu elements of %zu bytes",
                   raw.len, n, each);
  bool small = e->kind == AT_MTYPE_INTEGER && e->width < 8;
  a->data = raw;
  if (borrow && !small && raw.len >= 4096 && (uintptr_t)raw.ptr % 16 == 0)
    return AT_OK;
  uint8_t *copy = at_arena_copy(c->arena, raw.ptr, raw.len, 16);
  if (!copy) return AT_NO_MEMORY("dense elements");
  if (small) extend_small(copy, raw.len, e);
  a->data.ptr = copy;
  return AT_OK;
}

// Linear: operations have few attributes.
const at_mattr *at_mop_attr(const at_mop *op, const char *name) {
  for (uint32_t i = 0; i < op->num_attrs; i++)
    if (strcmp(op->attrs[i].name, name) == 0) return op->attrs[i].value;
  return NULL;
}

// The kinds that hold named parts; any other has none.
const at_mattr *at_mattr_field(const at_mattr *t, const char *name) {
  if (t->kind != AT_MATTR_DIALECT && t->kind != AT_MATTR_DICT) return NULL;
  for (uint32_t i = 0; i < t->num_elems; i++)
    if (t->fields[i].name && !strcmp(t->fields[i].name, name))
      return t->fields[i].value;
  return NULL;
}
