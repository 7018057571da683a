// The builtin dialect's own encoding of attributes, locations and types: a code
// (the cases below; BuiltinDialectBytecode.td has the list), then the parts of
// that kind. Codes from kMbcAffineMap on are read by at_mbc_affine_attr.
// bytecode_encode.c is the other direction.
#include <stdlib.h>

#include "mlir/mlir_internal.h"

// ---- Numbers
// An APInt of known width: one byte up to 8 bits, a signed varint up to 64,
// else a count of 64-bit words, least significant first, each a signed varint.
static at_status words(at_mbc *r, at_mcursor *c, uint32_t bits, uint64_t *out,
                       uint32_t max) {
  memset(out, 0, max * sizeof *out);
  if (bits <= 8) {
    uint8_t b;
    AT_TRY(at_mbc_byte(r, c, &b));
    out[0] = b;
    return AT_OK;
  }
  uint64_t n = 1;
  if (bits > 64) AT_TRY(at_mbc_varint(r, c, &n));
  if (n > max || n > ((uint64_t)bits + 63) / 64)
    return at_mbc_fail(r, c, "an integer has more words than its type");
  for (uint64_t i = 0; i < n; i++)
    AT_TRY(at_mbc_svarint(r, c, (int64_t *)&out[i]));
  return AT_OK;
}

// Narrow values come as they were stored; the sign is brought to 64 bits by the
// type's. Over 64 bits they stay bytes.
at_status at_mbc_apint(at_mbc *r, at_mcursor *c, const at_mtype *type,
                       const at_mattr **out) {
  uint32_t bits = type->kind == AT_MTYPE_INDEX ? 64 : type->width;
  if ((type->kind != AT_MTYPE_INDEX && type->kind != AT_MTYPE_INTEGER) ||
      bits == 0 || bits > AT_MAX_ATTR_BITS)
    return at_mbc_fail(r, c, "an integer attribute of no integer type");
  uint64_t w[64];
  AT_TRY(words(r, c, bits, w, 64));
  if (bits > 64) {
    size_t bytes = ((size_t)bits + 7) / 8;
    at_mattr *a;
    AT_TRY_ALLOC(a, at_mattr_make(&r->c, AT_MATTR_INTEGER));
    a->type = type;
    a->wide.len = bytes;
    AT_TRY_ALLOC(a->wide.ptr, at_arena_copy(r->c.arena, w, bytes, 8));
    *out = a;
    return AT_OK;
  }
  // Up to 64 bits the value is extended by the type's sign.
  uint64_t v = w[0];
  if (bits < 64) {
    v <<= 64 - bits;
    v = type->sign == AT_UNSIGNED ? v >> (64 - bits)
                                  : (uint64_t)((int64_t)v >> (64 - bits));
  }
  AT_TRY_ALLOC(*out, at_mattr_make_int(&r->c, type, (int64_t)v));
  return AT_OK;
}

// The bits of the float's format, as an integer of its width.
at_status at_mbc_apfloat(at_mbc *r, at_mcursor *c, const at_mtype *type,
                         double *out) {
  const at_mfloat *f = type->kind == AT_MTYPE_FLOAT
                           ? at_mfloat_find(at_str_of(type->name))
                           : NULL;
  if (!f)
    return AT_FAIL(AT_UNIMPLEMENTED, "float attribute of type %s",
                   type->name ? type->name : "that is no float");
  uint64_t w[1];
  AT_TRY(words(r, c, f->bits, w, 1));
  *out =
      at_mfloat_decode(f, f->bits < 64 ? w[0] & ((1ull << f->bits) - 1) : w[0]);
  return AT_OK;
}

// ---- Pieces
static at_status string_attr(at_mbc *r, at_mcursor *c, at_str *out) {
  const at_mattr *a;
  AT_TRY(at_mbc_attr(r, c, &a));
  if (a->kind != AT_MATTR_STRING)
    return at_mbc_fail(r, c, "a string attribute is expected");
  *out = a->str;
  return AT_OK;
}

// An index of an attribute that must be a location.
static at_status location(at_mbc *r, at_mcursor *c, const at_mloc **out) {
  const at_mattr *a;
  AT_TRY(at_mbc_attr(r, c, &a));
  if (a->kind != AT_MATTR_LOCATION)
    return at_mbc_fail(r, c, "a location is expected");
  *out = a->loc;
  return AT_OK;
}

// The type of elements: one with a shape.
static at_status shaped(at_mbc *r, at_mcursor *c, const at_mtype **out) {
  AT_TRY(at_mbc_type(r, c, out));
  if ((*out)->kind != AT_MTYPE_TENSOR && (*out)->kind != AT_MTYPE_VECTOR &&
      (*out)->kind != AT_MTYPE_MEMREF)
    return at_mbc_fail(r, c, "elements need a shaped type");
  return AT_OK;
}

// For qsort.
static int by_name(const void *a, const void *b) {
  return strcmp(((const at_mnamed *)a)->name, ((const at_mnamed *)b)->name);
}

// Dictionaries are held sorted by name, however they were written.
at_status at_mbc_sort_fields(at_mbc *r, at_mcursor *c, at_mnamed *f,
                             uint32_t n) {
  if (n) qsort(f, n, sizeof *f, by_name);
  for (uint32_t i = 1; i < n; i++)
    if (strcmp(f[i - 1].name, f[i].name) == 0)
      return at_mbc_fail(r, c, "a dictionary has a key twice");
  return AT_OK;
}

// Key and value by index. A key with a NUL ends there, and may then occur
// twice, which is refused.
static at_status dictionary(at_mbc *r, at_mcursor *c, at_mattr *a) {
  uint32_t n;
  AT_TRY(at_mbc_count(r, c, &n));
  at_mnamed *f;
  AT_TRY_ALLOC(f, at_new(r->c.arena, at_mnamed, n));
  for (uint32_t i = 0; i < n; i++) {
    at_str name;
    AT_TRY(string_attr(r, c, &name));
    AT_TRY_ALLOC(f[i].name, at_mctx_intern(&r->c, name));
    AT_TRY(at_mbc_attr(r, c, &f[i].value));
  }
  AT_TRY(at_mbc_sort_fields(r, c, f, n));
  a->fields = f;
  a->num_elems = n;
  return AT_OK;
}

// A root name, and the references nested in it.
static at_status symbol(at_mbc *r, at_mcursor *c, bool nested, at_mattr *a) {
  AT_TRY(string_attr(r, c, &a->str));
  if (!nested) return AT_OK;
  AT_TRY(at_mbc_attr_list(r, c, &a->elems, &a->num_elems));
  for (uint32_t i = 0; i < a->num_elems; i++)
    if (a->elems[i]->kind != AT_MATTR_SYMBOL)
      return at_mbc_fail(r, c, "a nested symbol is expected");
  return AT_OK;
}

// The blob itself stands in the section of resources, which was read before.
static at_status resource(at_mbc *r, at_mcursor *c, at_mattr *a) {
  uint64_t i;
  AT_TRY(shaped(r, c, &a->type));
  AT_TRY(at_mbc_varint(r, c, &i));
  if (i >= r->num_resources) return at_mbc_fail(r, c, "no such resource");
  a->name = r->resources[i].key;
  a->data = r->resources[i].data;
  return AT_OK;
}

// Its length and its number of bytes are both written and must agree.
static at_status dense_array(at_mbc *r, at_mcursor *c, at_mattr *a) {
  uint64_t n;
  at_bytes raw;
  AT_TRY(at_mbc_type(r, c, &a->type));
  AT_TRY(at_mbc_varint(r, c, &n));
  AT_TRY(at_mbc_blob(r, c, &raw));
  size_t each = at_mtype_elem_bytes(a->type);
  if (!each || each > 8 || a->type->kind == AT_MTYPE_COMPLEX)
    return at_mbc_fail(r, c, "a dense array holds integers or floats");
  if (n > UINT32_MAX || raw.len != at_mul(n, each))
    return at_mbc_fail(r, c, "a dense array's length and bytes disagree");
  a->num_elems = (uint32_t)n;
  a->data.len = raw.len;
  AT_TRY_ALLOC(a->data.ptr, at_arena_copy(r->c.arena, raw.ptr, raw.len, 8));
  return AT_OK;
}

// Strings of a tensor; of a splat one stands for all.
static at_status dense_strings(at_mbc *r, at_mcursor *c, at_mattr *a) {
  uint64_t splat;
  AT_TRY(shaped(r, c, &a->type));
  AT_TRY(at_mbc_varint(r, c, &splat));
  size_t n = at_mtype_num_elems(a->type);
  // Of a splat one string is written.
  if (splat) n = AT_MIN(n, 1);
  if (n > (size_t)(c->end - c->p))
    return at_mbc_fail(r, c, "more strings than bytes");
  const at_mattr **v;
  AT_TRY_ALLOC(v, at_new(r->c.arena, const at_mattr *, n));
  for (size_t i = 0; i < n; i++) {
    at_str s;
    AT_TRY(at_mbc_string(r, c, &s));
    AT_TRY_ALLOC(v[i], at_mattr_make_str(&r->c, s));
  }
  a->splat = splat && at_mtype_num_elems(a->type) > 1;
  a->elems = v;
  a->num_elems = (uint32_t)n;
  return AT_OK;
}

// Indices, then values, both dense elements; the type is that of the whole.
static at_status sparse(at_mbc *r, at_mcursor *c, at_mattr *a) {
  const at_mattr **v;
  AT_TRY_ALLOC(v, at_new(r->c.arena, const at_mattr *, 2));
  AT_TRY(shaped(r, c, &a->type));
  AT_TRY(at_mbc_attr(r, c, &v[0]));
  AT_TRY(at_mbc_attr(r, c, &v[1]));
  a->elems = v;
  a->num_elems = 2;
  return AT_OK;
}

// ---- Locations
// Up to four numbers: line, column, end line, end column. With three the third
// is the end column of the same line.
static at_status file_range(at_mbc *r, at_mcursor *c, at_mloc *l) {
  uint32_t n;
  uint64_t v[4] = {0};
  AT_TRY(at_mbc_count(r, c, &n));
  if (n > 4) return at_mbc_fail(r, c, "a file range has at most 4 numbers");
  for (uint32_t i = 0; i < n; i++) AT_TRY(at_mbc_varint(r, c, &v[i]));
  // Fewer than four numbers leave out what is the same at both ends.
  l->line = (uint32_t)v[0];
  l->column = (uint32_t)v[1];
  l->end_line = (uint32_t)(n == 4 ? v[2] : v[0]);
  l->end_column = (uint32_t)(n == 4 ? v[3] : n == 3 ? v[2] : v[1]);
  return AT_OK;
}

// Several locations of one operation; `metadata` says how they came together.
static at_status fused(at_mbc *r, at_mcursor *c, bool metadata, at_mloc *l) {
  const at_mattr *const *v;
  AT_TRY(at_mbc_attr_list(r, c, &v, &l->num_locs));
  const at_mloc **locs;
  AT_TRY_ALLOC(locs, at_new(r->c.arena, const at_mloc *, l->num_locs));
  for (uint32_t i = 0; i < l->num_locs; i++) {
    if (v[i]->kind != AT_MATTR_LOCATION)
      return at_mbc_fail(r, c, "a location is expected");
    locs[i] = v[i]->loc;
  }
  l->locs = locs;
  return metadata ? at_mbc_attr(r, c, &l->metadata) : AT_OK;
}

// Codes of location kinds; each is made into an attribute that holds the
// location, since locations are referred to by attribute indices.
static at_status loc_attr(at_mbc *r, at_mcursor *c, uint64_t code,
                          const at_mattr **out) {
  static const at_mloc_kind kinds[] = {
      [10] = AT_MLOC_CALLSITE, [11] = AT_MLOC_FILE, [12] = AT_MLOC_FUSED,
      [13] = AT_MLOC_FUSED,    [14] = AT_MLOC_NAME, [15] = AT_MLOC_UNKNOWN,
      [22] = AT_MLOC_FILE};
  at_mloc *l;
  at_str s = {0};
  uint64_t line, column;
  AT_TRY_ALLOC(l, at_new(r->c.arena, at_mloc, 1));
  l->kind = kinds[code];
  if (code == 11 || code == 14 || code == 22) {
    AT_TRY(string_attr(r, c, &s));
    AT_TRY_ALLOC(l->text, at_mctx_intern(&r->c, s));
  }
  switch (code) {
    // Call site: callee, caller.
    case 10:
      AT_TRY(location(r, c, &l->child));
      AT_TRY(location(r, c, &l->caller));
      break;
    // A place in a file.
    case 11:
      AT_TRY(at_mbc_varint(r, c, &line));
      AT_TRY(at_mbc_varint(r, c, &column));
      l->line = l->end_line = (uint32_t)line;
      l->column = l->end_column = (uint32_t)column;
      break;
    // Several, without and with metadata.
    case 12:
    case 13:
      AT_TRY(fused(r, c, code == 13, l));
      break;
    // A name for another location.
    case 14:
      AT_TRY(location(r, c, &l->child));
      break;
    // A range in a file.
    case 22:
      AT_TRY(file_range(r, c, l));
      break;
    default:
      break;
  }
  AT_TRY_ALLOC(*out, at_mattr_make_loc(&r->c, l));
  return AT_OK;
}

// ---- Attributes
// Kinds that fill in one node and nothing else.
static at_status plain_attr(at_mbc *r, at_mcursor *c, uint64_t code,
                            at_mattr *a) {
  switch (code) {
    // Array.
    case 0:
      return at_mbc_attr_list(r, c, &a->elems, &a->num_elems);
    // Dictionary.
    case 1:
      return dictionary(r, c, a);
    // String, without and with a type.
    case 2:
    case 3: {
      at_str s;
      AT_TRY(at_mbc_string(r, c, &s));
      a->str = (at_str){at_arena_str(r->c.arena, s), s.len};
      if (!a->str.ptr) return AT_NO_MEMORY("string");
      return code == 3 ? at_mbc_type(r, c, &a->type) : AT_OK;
    }
    // Symbol, without and with nested ones.
    case 4:
    case 5:
      return symbol(r, c, code == 5, a);
    // Type.
    case 6:
      return at_mbc_type(r, c, &a->type);
    // Dense resource.
    case 16:
      return resource(r, c, a);
    // Dense array.
    case 17:
      return dense_array(r, c, a);
    // Dense strings.
    case 19:
      return dense_strings(r, c, a);
    // Sparse elements.
    case 20:
      return sparse(r, c, a);
    default: {  // 21: distinct
      const at_mattr **v;
      AT_TRY_ALLOC(v, at_new(r->c.arena, const at_mattr *, 1));
      AT_TRY(at_mbc_attr(r, c, v));
      a->elems = v;
      a->num_elems = 1;
      return AT_OK;
    }
  }
}

// Kinds that are made whole by somebody else (unit, integers, floats, dense
// elements, locations) first, the others by plain_attr.
at_status at_mbc_builtin_attr(at_mbc *r, at_mcursor *c, const at_mattr **out) {
  static const at_mattr_kind kinds[] = {[0] = AT_MATTR_ARRAY,
                                        [1] = AT_MATTR_DICT,
                                        [2] = AT_MATTR_STRING,
                                        [3] = AT_MATTR_STRING,
                                        [4] = AT_MATTR_SYMBOL,
                                        [5] = AT_MATTR_SYMBOL,
                                        [6] = AT_MATTR_TYPE,
                                        [16] = AT_MATTR_RESOURCE,
                                        [17] = AT_MATTR_DENSE_ARRAY,
                                        [19] = AT_MATTR_DENSE_STRINGS,
                                        [20] = AT_MATTR_SPARSE,
                                        [21] = AT_MATTR_DISTINCT,
                                        [kMbcAffineMap] = AT_MATTR_AFFINE_MAP,
                                        [kMbcIntegerSet] = AT_MATTR_INTEGER_SET,
                                        [kMbcStridedLayout] = AT_MATTR_STRIDED};
  uint64_t code;
  const at_mtype *type;
  AT_TRY(at_mbc_varint(r, c, &code));
  if (code >= kMbcAttrCodes)
    return at_mbc_fail(r, c, "unknown builtin attribute");
  if ((code >= 10 && code <= 15) || code == 22)
    return loc_attr(r, c, code, out);
  switch (code) {
    // Unit.
    case 7:
      *out = &at_mattr_unit;
      return AT_OK;
    // Integer.
    case 8:
      AT_TRY(at_mbc_type(r, c, &type));
      return at_mbc_apint(r, c, type, out);
    // Float.
    case 9: {
      at_mattr *a;
      AT_TRY_ALLOC(a, at_mattr_make(&r->c, AT_MATTR_FLOAT));
      AT_TRY(at_mbc_type(r, c, &a->type));
      *out = a;
      return at_mbc_apfloat(r, c, a->type, &a->f);
    }
    // Dense elements.
    case 18: {
      at_bytes raw;
      AT_TRY(shaped(r, c, &type));
      AT_TRY(at_mbc_blob(r, c, &raw));
      at_status s = at_mattr_dense(&r->c, type, raw, r->borrow, out);
      return at_ok(s)
                 ? s
                 : at_status_prefix(s, "at byte %zu", (size_t)(c->p - c->base));
    }
    default: {
      at_mattr *a;
      AT_TRY_ALLOC(a, at_mattr_make(&r->c, kinds[code]));
      *out = a;
      return code >= kMbcAffineMap ? at_mbc_affine_attr(r, c, code, a)
                                   : plain_attr(r, c, code, a);
    }
  }
}

// ---- Types
static at_status memref(at_mbc *r, at_mcursor *c, bool space, at_mtype *t) {
  const at_mattr *layout;
  if (space) AT_TRY(at_mbc_attr(r, c, &t->space));
  AT_TRY(at_mbc_shape(r, c, &t->shape));
  AT_TRY(at_mbc_type(r, c, &t->elem));
  AT_TRY(at_mbc_attr(r, c, &layout));
  // Kinds that text could not tell apart are no layouts and no spaces.
  bool map = layout->kind == AT_MATTR_AFFINE_MAP;
  if (!map && layout->kind != AT_MATTR_STRIDED &&
      layout->kind != AT_MATTR_DIALECT && layout->kind != AT_MATTR_OPAQUE)
    return at_mbc_fail(r, c, "an impossible memref layout");
  if (space &&
      (t->space->kind == AT_MATTR_AFFINE_MAP ||
       t->space->kind == AT_MATTR_STRIDED || t->space->kind == AT_MATTR_UNIT))
    return at_mbc_fail(r, c, "an impossible memory space");
  // The identity map is what an absent layout means.
  bool identity = layout->kind == AT_MATTR_AFFINE_MAP && !layout->num_syms &&
                  layout->num_elems == layout->num_dims &&
                  layout->num_dims == t->shape.rank;
  for (uint32_t i = 0; identity && i < layout->num_elems; i++)
    identity =
        layout->exprs[i]->kind == AT_AFFINE_DIM && layout->exprs[i]->value == i;
  t->layout = identity ? NULL : layout;
  return AT_OK;
}

// Scalable dimensions are flagged one byte each, in front of the shape.
static at_status vector(at_mbc *r, at_mcursor *c, bool scalable, at_mtype *t) {
  if (scalable) {
    uint32_t n;
    AT_TRY(at_mbc_count(r, c, &n));
    int64_t *v;
    AT_TRY_ALLOC(v, at_new(r->c.arena, int64_t, n));
    for (uint32_t i = 0; i < n; i++) {
      uint8_t b;
      AT_TRY(at_mbc_byte(r, c, &b));
      v[i] = b & 1;
    }
    t->scalable = (at_dims){v, n};
  }
  AT_TRY(at_mbc_shape(r, c, &t->shape));
  return at_mbc_type(r, c, &t->elem);
}

// Types that are made of other types.
static at_status shaped_type(at_mbc *r, at_mcursor *c, uint64_t code,
                             at_mtype *t) {
  switch (code) {
    // Function: inputs, results.
    case 2:
      AT_TRY(at_mbc_type_list(r, c, &t->types, &t->num_types));
      return at_mbc_type_list(r, c, &t->results, &t->num_results);
    // Complex; memref and tensor of unknown rank.
    case 9:
    case 16:
    case 18:
      return at_mbc_type(r, c, &t->elem);
    // Memref, without and with a memory space.
    case 10:
    case 11:
      return memref(r, c, code == 11, t);
    // Tensor, without and with an encoding.
    case 13:
    case 14:
      if (code == 14) AT_TRY(at_mbc_attr(r, c, &t->encoding));
      AT_TRY(at_mbc_shape(r, c, &t->shape));
      return at_mbc_type(r, c, &t->elem);
    // Tuple.
    case 15:
      return at_mbc_type_list(r, c, &t->types, &t->num_types);
    // Memref of unknown rank with a memory space.
    case 17:
      AT_TRY(at_mbc_attr(r, c, &t->space));
      return at_mbc_type(r, c, &t->elem);
    default:
      return vector(r, c, code == 20, t);
  }
}

const char *const at_mbc_float_names[kMbcTypeCodes] = {
    [3] = "bf16",
    [4] = "f16",
    [5] = "f32",
    [6] = "f64",
    [7] = "f80",
    [8] = "f128",
    [21] = "tf32",
    [22] = "f8E5M2",
    [23] = "f8E4M3",
    [24] = "f8E4M3FN",
    [25] = "f8E5M2FNUZ",
    [26] = "f8E4M3FNUZ",
    [27] = "f8E4M3B11FNUZ",
    [28] = "f8E3M4",
    [29] = "f4E2M1FN",
    [30] = "f6E2M3FN",
    [31] = "f6E3M2FN",
    [32] = "f8E8M0FNU",
};

// Floats by name, integers by width and sign in one number, then what has
// parts.
at_status at_mbc_builtin_type(at_mbc *r, at_mcursor *c, const at_mtype **out) {
  static const at_mtype_kind kinds[] = {
      [2] = AT_MTYPE_FUNCTION,         [9] = AT_MTYPE_COMPLEX,
      [10] = AT_MTYPE_MEMREF,          [11] = AT_MTYPE_MEMREF,
      [13] = AT_MTYPE_TENSOR,          [14] = AT_MTYPE_TENSOR,
      [15] = AT_MTYPE_TUPLE,           [16] = AT_MTYPE_UNRANKED_MEMREF,
      [17] = AT_MTYPE_UNRANKED_MEMREF, [18] = AT_MTYPE_UNRANKED_TENSOR,
      [19] = AT_MTYPE_VECTOR,          [20] = AT_MTYPE_VECTOR};
  uint64_t code;
  AT_TRY(at_mbc_varint(r, c, &code));
  if (code >= kMbcTypeCodes) return at_mbc_fail(r, c, "unknown builtin type");
  if (at_mbc_float_names[code]) {
    AT_TRY_ALLOC(*out, at_mtype_make_float(&r->c, at_mbc_float_names[code]));
    return AT_OK;
  }
  // Integer: width and sign in one number.
  if (code == 0) {
    uint64_t v;
    AT_TRY(at_mbc_varint(r, c, &v));
    if ((v & 3) == 3 || v >> 2 > 1u << 24)
      return at_mbc_fail(r, c, "an impossible integer type");
    AT_TRY_ALLOC(
        *out, at_mtype_make_int(&r->c, (uint32_t)(v >> 2), (at_msign)(v & 3)));
    return AT_OK;
  }
  // Index and none have no parts.
  if (code == 1 || code == 12) {
    *out = code == 1 ? &at_mtype_index : &at_mtype_none;
    return AT_OK;
  }
  at_mtype *t;
  AT_TRY_ALLOC(t, at_mtype_make(&r->c, kinds[code]));
  *out = t;
  return shaped_type(r, c, code, t);
}
