// Attributes and types of vhlo, stablehlo, chlo and sdy from their own
// encodings.
#include "mlir/mlir_internal.h"

// ---- By the codec table
// One field of a struct by its letter in the layout (mlir_internal.h); *out
// NULL: optional and absent.
static at_status field(at_mbc *r, at_mcursor *c, const at_mcodec *k, char kind,
                       const at_mattr **out) {
  int64_t v;
  uint64_t u;
  uint8_t byte;
  bool flag;
  at_dims dims;
  at_str s;
  *out = NULL;
  switch (kind) {
    case 's':
      AT_TRY(at_mbc_svarint(r, c, &v));
      AT_TRY_ALLOC(*out, at_mattr_make_i64(&r->c, v));
      return AT_OK;
    case 'L':
      AT_TRY(at_mbc_svarints(r, c, &dims));
      AT_TRY_ALLOC(*out, at_mattr_make_i64s(&r->c, dims.ptr, dims.rank));
      return AT_OK;
    case 't': {
      const at_mtype *t;
      AT_TRY(at_mbc_type(r, c, &t));
      AT_TRY_ALLOC(*out, at_mattr_make_type(&r->c, t));
      return AT_OK;
    }
    case 'b':
      AT_TRY(at_mbc_byte(r, c, &byte));
      AT_TRY_ALLOC(*out, at_mattr_make_bool(&r->c, byte));
      return AT_OK;
    case 'd': {
      double d;
      AT_TRY(at_mbc_apfloat(r, c, &at_mtype_f64, &d));
      AT_TRY_ALLOC(*out, at_mattr_make_f64(&r->c, d));
      return AT_OK;
    }
    case 'a':
      return at_mbc_attr(r, c, out);
    case 'o':
      return at_mbc_opt_attr(r, c, out);
    case 'q':
      AT_TRY(at_mbc_varint(r, c, &u));
      return u ? at_mbc_attr(r, c, out) : AT_OK;
    case 'Q':
      AT_TRY(at_mbc_byte(r, c, &byte));
      return byte ? at_mbc_attr(r, c, out) : AT_OK;
    case 'A': {
      at_mattr *a;
      AT_TRY_ALLOC(a, at_mattr_make(&r->c, AT_MATTR_ARRAY));
      *out = a;
      return at_mbc_attr_list(r, c, &a->elems, &a->num_elems);
    }
    case 'S':
      AT_TRY(at_mbc_string(r, c, &s));
      AT_TRY_ALLOC(*out, at_mattr_make_str(&r->c, s));
      return AT_OK;
    case 'p':
      AT_TRY(at_mbc_flagged(r, c, &u, &flag));
      if (flag) AT_TRY_ALLOC(*out, at_mattr_make_i64(&r->c, (int64_t)u));
      return AT_OK;
    default:  // 'E'
      AT_TRY(at_mbc_svarint(r, c, &v));
      if (v < 0 || v > 63 || !at_mcodec_spelling(k->enums, (uint64_t)v, &s))
        return at_mbc_fail(r, c, "no such enumerator");
      // The first one, sum, is what a sharding without it means; the text has
      // no word for it.
      *out = NULL;
      if (v == 0) return AT_OK;
      AT_TRY_ALLOC(*out,
                   at_mattr_make_enum(&r->c, AT_STR("sdy.reduction_op"), s));
      return AT_OK;
  }
}

enum { MAX_FIELDS = 12 };  // of a layout of codec.c

// Fields in the layout's order; absent ones are left out of the attribute. Ends
// with the checks that printers rely on.
static at_status by_table(at_mbc *r, at_mcursor *c, const at_mcodec *k,
                          const at_mattr **out) {
  at_mattr *a;
  AT_TRY_ALLOC(a, at_mattr_make(&r->c, AT_MATTR_DIALECT));
  AT_TRY_ALLOC(a->name, at_mctx_intern(&r->c, at_str_of(k->name)));
  *out = a;
  // An enum: its value alone.
  if (!*k->layout) {
    uint64_t v;
    AT_TRY(at_mbc_varint(r, c, &v));
    if (v > 63 || !at_mcodec_spelling(k->enums, v, &a->str))
      return at_mbc_fail(r, c, "no such enumerator");
    return AT_OK;
  }
  at_mnamed *fields;
  AT_TRY_ALLOC(fields, at_new(r->c.arena, at_mnamed, MAX_FIELDS));
  at_mfield f;
  for (const char *l = k->layout; at_mcodec_next(&l, &f);) {
    const at_mattr *v;
    AT_TRY(field(r, c, k, f.kind, &v));
    if (!v) continue;
    AT_ASSERT(a->num_elems < MAX_FIELDS);
    AT_TRY_ALLOC(fields[a->num_elems].name, at_mctx_intern(&r->c, f.name));
    fields[a->num_elems++].value = v;
  }
  // A sharding from before unreduced axes has none of them.
  if (strcmp(k->name, "sdy.sharding") == 0 && a->num_elems == 3) {
    AT_TRY_ALLOC(fields[3].name,
                 at_mctx_intern(&r->c, AT_STR("unreduced_axes")));
    AT_TRY_ALLOC(fields[3].value, at_mattr_make(&r->c, AT_MATTR_ARRAY));
    a->num_elems = 4;
  }
  a->fields = fields;
  // Printers index the fields of these by what the layout promises.
  bool conv = strcmp(k->name, "stablehlo.conv") == 0;
  if ((conv && !at_mconv_valid(a)) ||
      (strncmp(k->name, "sdy.", 4) == 0 && !at_msdy_valid(a)))
    return at_mbc_fail(r, c, "an attribute has impossible parts");
  return AT_OK;
}

// ---- VHLO's own spellings of builtin attributes
static at_status vhlo_dict(at_mbc *r, at_mcursor *c, const at_mattr **out) {
  at_mattr *a;
  uint32_t n;
  AT_TRY(at_mbc_count(r, c, &n));
  AT_TRY_ALLOC(a, at_mattr_make(&r->c, AT_MATTR_DICT));
  at_mnamed *f;
  AT_TRY_ALLOC(f, at_new(r->c.arena, at_mnamed, n));
  for (uint32_t i = 0; i < n; i++) {
    const at_mattr *key;
    AT_TRY(at_mbc_attr(r, c, &key));
    if (key->kind != AT_MATTR_STRING)
      return at_mbc_fail(r, c, "a dictionary key is no string");
    AT_TRY_ALLOC(f[i].name, at_mctx_intern(&r->c, key->str));
    AT_TRY(at_mbc_attr(r, c, &f[i].value));
  }
  AT_TRY(at_mbc_sort_fields(r, c, f, n));
  a->fields = f;
  a->num_elems = n;
  *out = a;
  return AT_OK;
}

// VHLO's codes for what the builtin dialect has, too. *known false: a code that
// is not listed.
static at_status vhlo_attr(at_mbc *r, at_mcursor *c, uint64_t code,
                           const at_mattr **out, bool *known) {
  const at_mtype *type;
  uint64_t v;
  at_str s;
  at_bytes raw;
  at_mattr *a;
  switch (code) {
    // array_v1
    case 1:
      return field(r, c, NULL, 'A', out);
    // bool_v1
    case 2:
      AT_TRY(at_mbc_varint(r, c, &v));
      if (v > 1) return at_mbc_fail(r, c, "a boolean is neither 0 nor 1");
      AT_TRY_ALLOC(*out, at_mattr_make_bool(&r->c, v));
      return AT_OK;
    // dict_v1
    case 6:
      return vhlo_dict(r, c, out);
    // float_v1
    case 8:
      AT_TRY_ALLOC(a, at_mattr_make(&r->c, AT_MATTR_FLOAT));
      AT_TRY(at_mbc_type(r, c, &a->type));
      *out = a;
      return at_mbc_apfloat(r, c, a->type, &a->f);
    // integer_v1
    case 9:
      AT_TRY(at_mbc_type(r, c, &type));
      return at_mbc_apint(r, c, type, out);
    // string_v1
    case 14:
      AT_TRY(at_mbc_string(r, c, &s));
      AT_TRY_ALLOC(*out, at_mattr_make_str(&r->c, s));
      return AT_OK;
    // tensor_v1
    case 15:
      AT_TRY(at_mbc_type(r, c, &type));
      AT_TRY(at_mbc_blob(r, c, &raw));
      return at_mattr_dense(&r->c, type, raw, r->borrow, out);
    // type_v1
    case 17:
      return field(r, c, NULL, 't', out);
    default:
      *known = false;
      return AT_OK;
  }
}

// The cursor is at the code. Dialects without a table are not known here.
at_status at_mbc_dialect_attr(at_mbc *r, at_mcursor *c, const char *dialect,
                              const at_mattr **out, bool *known) {
  uint64_t code;
  *known = true;
  bool vhlo = strcmp(dialect, "vhlo") == 0;
  if (!vhlo && strcmp(dialect, "stablehlo") && strcmp(dialect, "chlo") &&
      strcmp(dialect, "sdy")) {
    *known = false;
    return AT_OK;
  }
  AT_TRY(at_mbc_varint(r, c, &code));
  // VHLO has structs in the table, and what mirrors the builtin dialect not.
  const at_mcodec *k = at_mcodec_by_code(at_str_of(dialect), code);
  if (k) return by_table(r, c, k, out);
  if (vhlo) return vhlo_attr(r, c, code, out, known);
  *known = false;
  return AT_OK;
}

// ---- Types
// Flags, storage and expressed type, scale, zero point, bounds of the storage
// type; `ints` gets (flags, zero, min, max).
static at_status quant(at_mbc *r, at_mcursor *c, at_mtype *t) {
  uint64_t flags;
  int64_t *v;
  double scale;
  const at_mtype **types;
  const at_mattr **attrs;
  AT_TRY_ALLOC(v, at_new(r->c.arena, int64_t, 4));
  AT_TRY_ALLOC(types, at_new(r->c.arena, const at_mtype *, 2));
  AT_TRY_ALLOC(attrs, at_new(r->c.arena, const at_mattr *, 1));
  AT_TRY(at_mbc_varint(r, c, &flags));
  AT_TRY(at_mbc_type(r, c, &types[0]));
  AT_TRY(at_mbc_type(r, c, &types[1]));
  AT_TRY(at_mbc_apfloat(r, c, &at_mtype_f64, &scale));
  for (int i = 1; i < 4; i++) AT_TRY(at_mbc_svarint(r, c, &v[i]));
  v[0] = (int64_t)flags;
  AT_TRY_ALLOC(attrs[0], at_mattr_make_f64(&r->c, scale));
  t->types = types, t->num_types = 2;
  t->attrs = attrs, t->num_attrs = 1;
  t->ints = (at_dims){v, 4};
  return AT_OK;
}

// A scale and a zero point for each index along one dimension; `ints` gets
// (flags, axis, min, max).
static at_status quant_per_axis(at_mbc *r, at_mcursor *c, at_mtype *t) {
  uint64_t flags, axis;
  int64_t *v;
  uint32_t n;
  at_dims zeros;
  const at_mtype **types;
  const at_mattr **attrs, **scales;
  AT_TRY_ALLOC(v, at_new(r->c.arena, int64_t, 4));
  AT_TRY_ALLOC(types, at_new(r->c.arena, const at_mtype *, 2));
  AT_TRY_ALLOC(attrs, at_new(r->c.arena, const at_mattr *, 2));
  AT_TRY(at_mbc_varint(r, c, &flags));
  AT_TRY(at_mbc_type(r, c, &types[0]));
  AT_TRY(at_mbc_type(r, c, &types[1]));
  AT_TRY(at_mbc_varint(r, c, &axis));
  AT_TRY(at_mbc_svarint(r, c, &v[2]));
  AT_TRY(at_mbc_svarint(r, c, &v[3]));
  AT_TRY(at_mbc_count(r, c, &n));
  AT_TRY_ALLOC(scales, at_new(r->c.arena, const at_mattr *, n));
  for (uint32_t i = 0; i < n; i++) AT_TRY(field(r, c, NULL, 'd', &scales[i]));
  AT_TRY(at_mbc_svarints(r, c, &zeros));
  v[0] = (int64_t)flags;
  v[1] = (int64_t)axis;
  AT_TRY_ALLOC(attrs[0], at_mattr_make_array(&r->c, scales, n));
  AT_TRY_ALLOC(attrs[1], at_mattr_make_i64s(&r->c, zeros.ptr, zeros.rank));
  t->types = types, t->num_types = 2;
  t->attrs = attrs, t->num_attrs = 2;
  t->ints = (at_dims){v, 4};
  return AT_OK;
}

static const struct {
  at_mtype_kind kind;
  const char *name;
  uint8_t width;
  at_msign sign;
  // By VHLO's code. Types with parts have only their kind here.
} vhlo_types[] = {
    [0] = {AT_MTYPE_INTEGER, NULL, 1, AT_SIGNLESS},
    [1] = {.kind = AT_MTYPE_COMPLEX},
    [2] = {AT_MTYPE_FLOAT, "bf16", 0, 0},
    [3] = {AT_MTYPE_FLOAT, "f16", 0, 0},
    [4] = {AT_MTYPE_FLOAT, "f32", 0, 0},
    [5] = {AT_MTYPE_FLOAT, "f64", 0, 0},
    [6] = {AT_MTYPE_FLOAT, "f8E4M3FN", 0, 0},
    [7] = {AT_MTYPE_FLOAT, "f8E5M2", 0, 0},
    [8] = {.kind = AT_MTYPE_FUNCTION},
    [9] = {.kind = AT_MTYPE_INDEX},
    [10] = {AT_MTYPE_INTEGER, NULL, 4, AT_SIGNLESS},
    [11] = {AT_MTYPE_INTEGER, NULL, 8, AT_SIGNLESS},
    [12] = {AT_MTYPE_INTEGER, NULL, 16, AT_SIGNLESS},
    [13] = {AT_MTYPE_INTEGER, NULL, 32, AT_SIGNLESS},
    [14] = {AT_MTYPE_INTEGER, NULL, 64, AT_SIGNLESS},
    [15] = {AT_MTYPE_INTEGER, NULL, 4, AT_UNSIGNED},
    [16] = {AT_MTYPE_INTEGER, NULL, 8, AT_UNSIGNED},
    [17] = {AT_MTYPE_INTEGER, NULL, 16, AT_UNSIGNED},
    [18] = {AT_MTYPE_INTEGER, NULL, 32, AT_UNSIGNED},
    [19] = {AT_MTYPE_INTEGER, NULL, 64, AT_UNSIGNED},
    [20] = {.kind = AT_MTYPE_TENSOR},
    [21] = {.kind = AT_MTYPE_TENSOR},
    [22] = {AT_MTYPE_DIALECT, "vhlo.token_v1", 0, 0},
    [23] = {.kind = AT_MTYPE_TUPLE},
    [24] = {AT_MTYPE_DIALECT, "vhlo.quant_v1", 0, 0},
    [25] = {.kind = AT_MTYPE_UNRANKED_TENSOR},
    [26] = {AT_MTYPE_DIALECT, "vhlo.witness_v1", 0, 0},
    [27] = {AT_MTYPE_FLOAT, "f8E4M3FNUZ", 0, 0},
    [28] = {AT_MTYPE_FLOAT, "f8E5M2FNUZ", 0, 0},
    [29] = {AT_MTYPE_FLOAT, "f8E4M3B11FNUZ", 0, 0},
    [30] = {AT_MTYPE_DIALECT, "vhlo.quant_per_axis_v1", 0, 0},
    [31] = {AT_MTYPE_INTEGER, NULL, 2, AT_SIGNLESS},
    [32] = {AT_MTYPE_INTEGER, NULL, 2, AT_UNSIGNED},
    [33] = {.kind = AT_MTYPE_NONE},
    [34] = {AT_MTYPE_FLOAT, "tf32", 0, 0},
    [35] = {AT_MTYPE_FLOAT, "f8E4M3", 0, 0},
    [36] = {AT_MTYPE_FLOAT, "f8E3M4", 0, 0},
    [37] = {AT_MTYPE_FLOAT, "f4E2M1FN", 0, 0},
    [38] = {AT_MTYPE_FLOAT, "f6E2M3FN", 0, 0},
    [39] = {AT_MTYPE_FLOAT, "f6E3M2FN", 0, 0},
    [40] = {AT_MTYPE_FLOAT, "f8E8M0FNU", 0, 0},
    [41] = {.kind = AT_MTYPE_MEMREF},
    [42] = {AT_MTYPE_DIALECT, "vhlo.future_v1", 0, 0},
};

// code is one of the table. Parts by kind; leaves have none.
static at_status vhlo_type(at_mbc *r, at_mcursor *c, uint64_t code,
                           const at_mtype **out) {
  at_mtype *t;
  AT_TRY_ALLOC(t, at_mtype_make(&r->c, vhlo_types[code].kind));
  const char *name = vhlo_types[code].name;
  if (name) AT_TRY_ALLOC(t->name, at_mctx_intern(&r->c, at_str_of(name)));
  t->width = vhlo_types[code].width;
  t->sign = vhlo_types[code].sign;
  *out = t;
  switch (code) {
    // Complex; tensor of unknown rank.
    case 1:
    case 25:
      return at_mbc_type(r, c, &t->elem);
    // Function: inputs, results.
    case 8:
      AT_TRY(at_mbc_type_list(r, c, &t->types, &t->num_types));
      return at_mbc_type_list(r, c, &t->results, &t->num_results);
    // Tensor, without and with an encoding; buffer.
    case 20:
    case 21:
    case 41:
      if (code == 21) AT_TRY(at_mbc_attr(r, c, &t->encoding));
      AT_TRY(at_mbc_shape(r, c, &t->shape));
      return at_mbc_type(r, c, &t->elem);
    // Tuple; future.
    case 23:
    case 42:
      return at_mbc_type_list(r, c, &t->types, &t->num_types);
    case 24:
      return quant(r, c, t);
    case 30:
      return quant_per_axis(r, c, t);
    default:
      return AT_OK;
  }
}

// VHLO's types by its table, StableHLO's two by their code; other dialects'
// types are not known here.
at_status at_mbc_dialect_type(at_mbc *r, at_mcursor *c, const char *dialect,
                              const at_mtype **out, bool *known) {
  uint64_t code;
  bool vhlo = strcmp(dialect, "vhlo") == 0;
  *known = vhlo || strcmp(dialect, "stablehlo") == 0;
  if (!*known) return AT_OK;
  AT_TRY(at_mbc_varint(r, c, &code));
  if (vhlo && code < AT_LEN(vhlo_types)) return vhlo_type(r, c, code, out);
  if (vhlo || code > 1) {
    *known = false;
    return AT_OK;
  }
  at_mtype *t;
  AT_TRY_ALLOC(t, at_mtype_make(&r->c, AT_MTYPE_DIALECT));
  AT_TRY_ALLOC(t->name,
               at_mctx_intern(&r->c, code == 0 ? AT_STR("stablehlo.token")
                                               : AT_STR("stablehlo.future")));
  *out = t;
  return code == 0 ? AT_OK : at_mbc_type_list(r, c, &t->types, &t->num_types);
}
