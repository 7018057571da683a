// Types, attributes and locations in text, in full: aliases are the business of
// print_op.c. What is printed reads back to the same bits: floats whose decimal
// does not are given as bits, long dense data as one hexadecimal string.
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mlir/print.h"

// ---- Words and numbers
void at_mprint_string(at_strbuf *b, at_str s) {
  at_strbuf_addc(b, '"');
  for (size_t i = 0; i < s.len; i++) {
    unsigned char c = (unsigned char)s.ptr[i];
    if (c == '"' || c == '\\')
      at_strbuf_addf(b, "\\%c", c);
    else if (c >= 32 && c < 127)
      at_strbuf_addc(b, (char)c);
    else
      at_strbuf_addf(b, "\\%02X", c);
  }
  at_strbuf_addc(b, '"');
}

// Whether a name needs no quotes: it reads back as one word.
static bool bare(at_str s, bool symbol) {
  if (!s.len || (!isalpha((unsigned char)s.ptr[0]) && s.ptr[0] != '_'))
    return false;
  for (size_t i = 0; i < s.len; i++) {
    char c = s.ptr[i];
    if (!isalnum((unsigned char)c) && c != '_' && c != '$' && c != '.' &&
        !(symbol && c == '-'))
      return false;
  }
  return true;
}

// A dictionary's key.
void at_mprint_key(at_strbuf *b, at_str s) {
  if (bare(s, false))
    at_strbuf_add(b, s);
  else
    at_mprint_string(b, s);
}

// A dash at the end would be taken for the beginning of an arrow.
void at_mprint_symbol(at_strbuf *b, at_str s) {
  at_strbuf_addc(b, '@');
  if (bare(s, true) && s.ptr[s.len - 1] != '-')
    at_strbuf_add(b, s);
  else
    at_mprint_string(b, s);
}

// Unknown sizes are question marks.
static void integer_or_dyn(at_strbuf *b, int64_t v) {
  if (v == AT_MDYN)
    at_strbuf_addc(b, '?');
  else
    at_strbuf_addf(b, "%" PRId64, v);
}

// `open` and `close` may hold more than a bracket.
void at_mprint_dims(at_strbuf *b, const char *open, at_dims d,
                    const char *close) {
  at_strbuf_addz(b, open);
  for (uint32_t i = 0; i < d.rank; i++) {
    if (i) at_strbuf_addz(b, ", ");
    integer_or_dyn(b, d.ptr[i]);
  }
  at_strbuf_addz(b, close);
}

// The shortest of a few decimal forms that reads back as the same bits; what
// has none (NaN, infinities) is given as bits.
static void print_float(at_strbuf *b, const at_mfloat *f, uint64_t bits) {
  double v = at_mfloat_decode(f, bits);
  static const int digits[] = {6, 9, 17};
  if (isfinite(v)) {
    for (size_t i = 0; i < AT_LEN(digits); i++) {
      char z[40];
      snprintf(z, sizeof z, "%.*e", digits[i], v);
      if (at_mfloat_encode(f, strtod(z, NULL)) == bits) {
        at_strbuf_addz(b, z);
        return;
      }
    }
  }
  at_strbuf_addf(b, "0x%0*" PRIX64, (f->bits + 3) / 4, bits);
}

// A number without a type, in fields of structs.
void at_mprint_f64(at_strbuf *b, double v) {
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  print_float(b, at_mfloat_find(AT_STR("f64")), bits);
}

// One scalar in memory form.
static void print_scalar(at_strbuf *b, const at_mtype *e, const uint8_t *p,
                         size_t bytes) {
  uint64_t v = 0;
  memcpy(&v, p, AT_MIN(bytes, sizeof v));
  if (e->kind == AT_MTYPE_FLOAT) {
    print_float(b, at_mfloat_find(at_str_of(e->name)), v);
    return;
  }
  if (at_mtype_is_int(e, 1)) {
    at_strbuf_addz(b, v & 1 ? "true" : "false");
    return;
  }
  if (bytes < 8 && e->sign != AT_UNSIGNED) {
    uint32_t spare = 64 - 8 * (uint32_t)bytes;
    v = (uint64_t)((int64_t)(v << spare) >> spare);
  }
  if (e->sign == AT_UNSIGNED)
    at_strbuf_addf(b, "%" PRIu64, v);
  else
    at_strbuf_addf(b, "%" PRId64, (int64_t)v);
}

// Elements of up to 8 bytes; array<> holds no others.
void at_mprint_elems(at_strbuf *b, const at_mtype *elem, at_bytes data) {
  size_t each = at_mtype_elem_bytes(elem);
  for (size_t i = 0; i + each <= data.len; i += each) {
    if (i) at_strbuf_addz(b, ", ");
    print_scalar(b, elem, data.ptr + i, each);
  }
}

// ---- Types
static void type_list(at_strbuf *b, const at_mtype *const *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) at_strbuf_addz(b, ", ");
    at_mtype_print(b, v[i]);
  }
}

// "2x?x[4]x": each dimension is followed by an x.
static void shape(at_strbuf *b, const at_mtype *t) {
  for (uint32_t i = 0; i < t->shape.rank; i++) {
    bool scalable = i < t->scalable.rank && t->scalable.ptr[i];
    if (scalable) at_strbuf_addc(b, '[');
    integer_or_dyn(b, t->shape.ptr[i]);
    at_strbuf_addz(b, scalable ? "]x" : "x");
  }
}

// In memory order.
static void hex_bytes(at_strbuf *b, at_bytes v) {
  at_strbuf_addz(b, "\"0x");
  for (size_t i = 0; i < v.len; i++) at_strbuf_addf(b, "%02X", v.ptr[i]);
  at_strbuf_addc(b, '"');
}

// One result needs no brackets unless it is a function type itself.
static void function_type(at_strbuf *b, const at_mtype *t) {
  at_strbuf_addc(b, '(');
  type_list(b, t->types, t->num_types);
  at_strbuf_addz(b, ") -> ");
  bool one = t->num_results == 1 && t->results[0]->kind != AT_MTYPE_FUNCTION;
  if (!one) at_strbuf_addc(b, '(');
  type_list(b, t->results, t->num_results);
  if (!one) at_strbuf_addc(b, ')');
}

// "<storage:expressed, scale:zero, min:max, flags>", and lists with an axis.
static void quant(at_strbuf *b, const at_mtype *t) {
  bool axis = t->num_attrs == 2;
  at_strbuf_addf(b, "!%s<", t->name);
  bool vhlo = strncmp(t->name, "vhlo", 4) == 0;
  bool plain = !vhlo && t->types[0]->kind == AT_MTYPE_INTEGER;
  // MLIR writes the storage type with its sign, since the type itself is
  // signless.
  if (plain)
    at_strbuf_addf(b, "%s%u", t->ints.ptr[0] & 1 ? "i" : "u",
                   t->types[0]->width);
  else
    at_mtype_print(b, t->types[0]);
  if (plain)
    at_strbuf_addf(b, "<%" PRId64 ":%" PRId64 ">", t->ints.ptr[2],
                   t->ints.ptr[3]);
  at_strbuf_addc(b, ':');
  at_mtype_print(b, t->types[1]);
  if (axis && !vhlo) at_strbuf_addf(b, ":%" PRId64, t->ints.ptr[1]);
  at_strbuf_addz(b, ", ");
  if (vhlo) {
    if (axis) {
      at_strbuf_addf(b, "%" PRId64 ", [", t->ints.ptr[1]);
      for (uint32_t i = 0; i < t->attrs[0]->num_elems; i++) {
        if (i) at_strbuf_addz(b, ", ");
        at_mprint_f64(b, t->attrs[0]->elems[i]->f);
      }
      at_strbuf_addz(b, "], ");
      at_mprint_dims(b, "[", at_mattr_i64s(t->attrs[1]), "]");
    } else {
      at_mprint_f64(b, t->attrs[0]->f);
      at_strbuf_addf(b, ":%" PRId64, t->ints.ptr[1]);
    }
    at_strbuf_addf(b, ", %" PRId64 ":%" PRId64 ", %" PRId64 ">", t->ints.ptr[2],
                   t->ints.ptr[3], t->ints.ptr[0]);
    return;
  }
  if (axis) at_strbuf_addc(b, '{');
  for (uint32_t i = 0; i < (axis ? t->attrs[0]->num_elems : 1); i++) {
    if (i) at_strbuf_addz(b, ", ");
    at_mprint_f64(b, axis ? t->attrs[0]->elems[i]->f : t->attrs[0]->f);
    at_strbuf_addf(b, ":%" PRId64,
                   axis ? at_mattr_i64s(t->attrs[1]).ptr[i] : t->ints.ptr[1]);
  }
  at_strbuf_addz(b, axis ? "}>" : ">");
}

// Parameters as the reader of the dialect left them: types, or the text between
// the brackets.
static void dialect_type(at_strbuf *b, const at_mtype *t) {
  if (t->ints.rank == 4 && t->num_types == 2) {
    // MLIR spells both quantised types alike.
    at_mtype one = *t;
    if (strcmp(t->name, "quant.uniform_per_axis") == 0)
      one.name = "quant.uniform";
    quant(b, &one);
    return;
  }
  at_strbuf_addf(b, "!%s", t->name);
  if (t->num_types || strcmp(t->name, "stablehlo.future") == 0 ||
      strcmp(t->name, "vhlo.future_v1") == 0) {
    at_strbuf_addc(b, '<');
    type_list(b, t->types, t->num_types);
    at_strbuf_addc(b, '>');
  } else if (t->bytes.len) {
    at_strbuf_addc(b, '<');
    at_strbuf_add(b, (at_str){(const char *)t->bytes.ptr, t->bytes.len});
    at_strbuf_addc(b, '>');
  }
}

// Layout and memory space are told apart by their kind; where that does not do,
// by their order.
static void memref(at_strbuf *b, const at_mtype *t) {
  at_strbuf_addz(b, "memref<");
  if (t->kind == AT_MTYPE_UNRANKED_MEMREF)
    at_strbuf_addz(b, "*x");
  else
    shape(b, t);
  at_mtype_print(b, t->elem);
  // A layout of a dialect is told from a memory space by standing before one.
  bool odd = t->layout && t->layout->kind != AT_MATTR_AFFINE_MAP &&
             t->layout->kind != AT_MATTR_STRIDED;
  if (t->layout) at_strbuf_addz(b, ", "), at_mattr_print(b, t->layout);
  if (t->space)
    at_strbuf_addz(b, ", "), at_mattr_print(b, t->space);
  else if (odd)
    at_strbuf_addz(b, ", unit");
  at_strbuf_addc(b, '>');
}

// i8, si8, ui8.
static void integer_type(at_strbuf *b, const at_mtype *t) {
  static const char *const prefix[] = {"i", "si", "ui"};
  at_strbuf_addf(b, "%s%u", prefix[t->sign], t->width);
}

// Recursion as deep as the type, which readers bound.
void at_mtype_print(at_strbuf *b, const at_mtype *t) {
  switch (t->kind) {
    case AT_MTYPE_NONE:
      at_strbuf_addz(b, "none");
      break;
    case AT_MTYPE_INTEGER:
      integer_type(b, t);
      break;
    case AT_MTYPE_INDEX:
      at_strbuf_addz(b, "index");
      break;
    case AT_MTYPE_FLOAT:
      at_strbuf_addz(b, t->name);
      break;
    case AT_MTYPE_COMPLEX:
    case AT_MTYPE_VECTOR:
      at_strbuf_addz(b, t->kind == AT_MTYPE_VECTOR ? "vector<" : "complex<");
      shape(b, t);
      at_mtype_print(b, t->elem);
      at_strbuf_addc(b, '>');
      break;
    case AT_MTYPE_TENSOR:
    case AT_MTYPE_UNRANKED_TENSOR:
      at_strbuf_addz(b, "tensor<");
      if (t->kind == AT_MTYPE_UNRANKED_TENSOR) at_strbuf_addz(b, "*x");
      shape(b, t);
      at_mtype_print(b, t->elem);
      if (t->encoding) at_strbuf_addz(b, ", "), at_mattr_print(b, t->encoding);
      at_strbuf_addc(b, '>');
      break;
    case AT_MTYPE_MEMREF:
    case AT_MTYPE_UNRANKED_MEMREF:
      memref(b, t);
      break;
    case AT_MTYPE_FUNCTION:
      function_type(b, t);
      break;
    case AT_MTYPE_TUPLE:
      at_strbuf_addz(b, "tuple<");
      type_list(b, t->types, t->num_types);
      at_strbuf_addc(b, '>');
      break;
    case AT_MTYPE_DIALECT:
      dialect_type(b, t);
      break;
    case AT_MTYPE_OPAQUE:
      at_strbuf_addz(b, "!opaque<");
      at_mprint_string(b, at_str_of(t->name));
      at_strbuf_addz(b, ", ");
      hex_bytes(b, t->bytes);
      at_strbuf_addc(b, '>');
      break;
  }
}

// ---- Attributes
enum { MAX_LIST = 64 };  // longer dense data is written as bits

// *at is the byte offset of the next element; recursion over dimensions.
static void dense_nested(at_strbuf *b, const at_mattr *a, uint32_t dim,
                         size_t *at) {
  const at_mtype *t = a->type;
  size_t each = at_mtype_elem_bytes(t->elem);
  if (dim == t->shape.rank) {
    const uint8_t *p = a->data.ptr + *at;
    *at += each;
    if (t->elem->kind == AT_MTYPE_COMPLEX) {
      at_strbuf_addc(b, '(');
      print_scalar(b, t->elem->elem, p, each / 2);
      at_strbuf_addc(b, ',');
      print_scalar(b, t->elem->elem, p + each / 2, each / 2);
      at_strbuf_addc(b, ')');
    } else {
      print_scalar(b, t->elem, p, each);
    }
    return;
  }
  at_strbuf_addc(b, '[');
  for (int64_t i = 0; i < t->shape.ptr[dim]; i++) {
    if (i) at_strbuf_addz(b, ", ");
    dense_nested(b, a, dim + 1, at);
  }
  at_strbuf_addc(b, ']');
}

// No elements, bits in hexadecimal, one element, or a nested list.
static void dense(at_strbuf *b, const at_mattr *a) {
  const at_mtype *e = a->type->elem;
  size_t at = 0, n = at_mtype_num_elems(a->type);
  const at_mtype *s = e->kind == AT_MTYPE_COMPLEX ? e->elem : e;
  // Numbers over 64 bits have no decimal form here.
  bool wide = at_mtype_elem_bytes(s) > 8;
  at_strbuf_addz(b, "dense<");
  if (n == 0) {
    // no elements
  } else if (wide || (n > MAX_LIST && !a->splat)) {
    hex_bytes(b, a->data);
  } else if (a->splat) {
    dense_nested(b, a, a->type->shape.rank, &at);
  } else {
    dense_nested(b, a, 0, &at);
  }
  at_strbuf_addz(b, "> : ");
  at_mtype_print(b, a->type);
}

// By commas, without brackets.
static void attr_list(at_strbuf *b, const at_mattr *a) {
  for (uint32_t i = 0; i < a->num_elems; i++) {
    if (i) at_strbuf_addz(b, ", ");
    at_mattr_print(b, a->elems[i]);
  }
}

// Every operation in parentheses, so that no precedence matters.
static void affine(at_strbuf *b, const at_maffine *e) {
  static const char *const ops[] = {[AT_AFFINE_ADD] = " + ",
                                    [AT_AFFINE_MUL] = " * ",
                                    [AT_AFFINE_MOD] = " mod ",
                                    [AT_AFFINE_FLOORDIV] = " floordiv ",
                                    [AT_AFFINE_CEILDIV] = " ceildiv "};
  if (e->kind == AT_AFFINE_CONST) {
    at_strbuf_addf(b, "%" PRId64, e->value);
  } else if (e->kind == AT_AFFINE_DIM || e->kind == AT_AFFINE_SYM) {
    at_strbuf_addf(b, "%c%" PRId64, e->kind == AT_AFFINE_DIM ? 'd' : 's',
                   e->value);
  } else {
    at_strbuf_addc(b, '(');
    affine(b, e->lhs);
    at_strbuf_addz(b, ops[e->kind]);
    affine(b, e->rhs);
    at_strbuf_addc(b, ')');
  }
}

// Names are d0, d1, ... and s0, s1, ..., whatever the input called them.
static void affine_attr(at_strbuf *b, const at_mattr *a) {
  bool set = a->kind == AT_MATTR_INTEGER_SET;
  at_strbuf_addz(b, set ? "affine_set<(" : "affine_map<(");
  for (uint32_t i = 0; i < a->num_dims; i++)
    at_strbuf_addf(b, "%sd%u", i ? ", " : "", i);
  at_strbuf_addc(b, ')');
  if (a->num_syms) {
    at_strbuf_addc(b, '[');
    for (uint32_t i = 0; i < a->num_syms; i++)
      at_strbuf_addf(b, "%ss%u", i ? ", " : "", i);
    at_strbuf_addc(b, ']');
  }
  at_strbuf_addz(b, set ? " : (" : " -> (");
  for (uint32_t i = 0; i < a->num_elems; i++) {
    if (i) at_strbuf_addz(b, ", ");
    affine(b, a->exprs[i]);
    if (set) at_strbuf_addz(b, a->is_eq[i] ? " == 0" : " >= 0");
  }
  at_strbuf_addz(b, ")>");
}

// By the field's letter; what is an attribute prints as one.
static void field(at_strbuf *b, const at_mattr *v, char kind) {
  switch (kind) {
    case 's':
    case 'p':
      at_strbuf_addf(b, "%" PRId64, v->i);
      break;
    case 'L':
      at_mprint_dims(b, "[", at_mattr_i64s(v), "]");
      break;
    case 'b':
      at_strbuf_addz(b, v->i ? "true" : "false");
      break;
    case 'd':
      at_mprint_f64(b, v->f);
      break;
    case 'S':
      at_mprint_string(b, v->str);
      break;
    default:
      at_mattr_print(b, v);
      break;
  }
}

// Absent optional fields are skipped. Three structs leave out empty lists, as
// MLIR prints them.
void at_mprint_struct(at_strbuf *b, const at_mattr *a, const at_mcodec *k) {
  at_mfield f;
  uint32_t at = 0, shown = 0;
  bool brief = strcmp(k->name, "stablehlo.dot") == 0 ||
               strcmp(k->name, "stablehlo.gather") == 0 ||
               strcmp(k->name, "stablehlo.scatter") == 0;
  at_strbuf_addc(b, '<');
  for (const char *l = k->layout; at_mcodec_next(&l, &f);) {
    if (at >= a->num_elems || !at_str_is(f.name, a->fields[at].name)) continue;
    const at_mattr *v = a->fields[at++].value;
    if (brief && f.kind == 'L' && v->num_elems == 0) continue;
    if (shown++) at_strbuf_addz(b, ", ");
    at_strbuf_add(b, f.name);
    at_strbuf_addz(b, " = ");
    field(b, v, f.kind);
  }
  at_strbuf_addc(b, '>');
}

// Enums, structs and Shardy's notation by the codec table; other attributes by
// name and text.
static void dialect_attr(at_strbuf *b, const at_mattr *a) {
  const at_mcodec *k = at_mcodec_by_name(at_str_of(a->name));
  if (k && !*k->layout && a->str.len) {
    const char *dot = strchr(a->name, '.');
    at_strbuf_addf(b, "#%.*s<%s ", (int)(dot - a->name), a->name, dot + 1);
    at_strbuf_add(b, a->str);
    at_strbuf_addc(b, '>');
  } else if (k && a->num_elems && strncmp(a->name, "sdy.", 4) == 0) {
    at_mprint_sdy(b, a);
  } else if (k && strcmp(a->name, "stablehlo.conv") == 0 && a->num_elems) {
    at_strbuf_addz(b, "#stablehlo.conv<");
    at_mprint_conv(b, a);
    at_strbuf_addc(b, '>');
  } else if (k && strcmp(a->name, "stablehlo.type_extensions") == 0 &&
             a->num_elems) {
    at_strbuf_addz(b, "#stablehlo");
    at_mprint_dims(b, ".bounds<", at_mattr_i64s(a->fields[0].value), ">");
  } else if (k && a->num_elems) {
    at_strbuf_addf(b, "#%s", a->name);
    at_mprint_struct(b, a, k);
  } else {
    at_strbuf_addf(b, "#%s", a->name);
    if (a->str.len || !strchr(a->name, '.')) {
      at_strbuf_addc(b, '<');
      at_strbuf_add(b, a->str);
      at_strbuf_addc(b, '>');
    }
  }
}

// Over 64 bits in hexadecimal, all bytes.
static void integer(at_strbuf *b, const at_mattr *a) {
  if (a->wide.len) {
    at_strbuf_addz(b, "0x");
    for (size_t i = a->wide.len; i-- > 0;)
      at_strbuf_addf(b, "%02X", a->wide.ptr[i]);
  } else if (a->type->sign == AT_UNSIGNED &&
             a->type->kind == AT_MTYPE_INTEGER) {
    at_strbuf_addf(b, "%" PRIu64, (uint64_t)a->i);
  } else {
    at_strbuf_addf(b, "%" PRId64, a->i);
  }
  at_strbuf_addz(b, " : ");
  at_mtype_print(b, a->type);
}

// @root::@nested
static void symbol(at_strbuf *b, const at_mattr *a) {
  at_mprint_symbol(b, a->str);
  for (uint32_t i = 0; i < a->num_elems; i++) {
    at_strbuf_addz(b, "::");
    at_mprint_symbol(b, a->elems[i]->str);
  }
}

// A unit attribute is its name alone.
static void dictionary(at_strbuf *b, const at_mattr *a) {
  at_strbuf_addc(b, '{');
  for (uint32_t i = 0; i < a->num_elems; i++) {
    if (i) at_strbuf_addz(b, ", ");
    at_mprint_key(b, at_str_of(a->fields[i].name));
    if (a->fields[i].value->kind == AT_MATTR_UNIT) continue;
    at_strbuf_addz(b, " = ");
    at_mattr_print(b, a->fields[i].value);
  }
  at_strbuf_addc(b, '}');
}

// A splat stands without brackets.
static void dense_strings(at_strbuf *b, const at_mattr *a) {
  at_strbuf_addz(b, "dense<");
  if (!a->splat) at_strbuf_addc(b, '[');
  attr_list(b, a);
  at_strbuf_addz(b, a->splat ? "> : " : "]> : ");
  at_mtype_print(b, a->type);
}

// Kinds that few programs have.
static void rarer(at_strbuf *b, const at_mattr *a) {
  switch (a->kind) {
    case AT_MATTR_DENSE_STRINGS:
      dense_strings(b, a);
      break;
    case AT_MATTR_RESOURCE:
      at_strbuf_addz(b, "dense_resource<");
      at_mprint_key(b, at_str_of(a->name));
      at_strbuf_addz(b, "> : ");
      at_mtype_print(b, a->type);
      break;
    case AT_MATTR_SPARSE:
      at_strbuf_addz(b, "sparse<");
      attr_list(b, a);
      at_strbuf_addz(b, "> : ");
      at_mtype_print(b, a->type);
      break;
    case AT_MATTR_AFFINE_MAP:
    case AT_MATTR_INTEGER_SET:
      affine_attr(b, a);
      break;
    case AT_MATTR_STRIDED:
      at_mprint_dims(b, "strided<[", a->ints, "]");
      if (a->i) at_strbuf_addz(b, ", offset: "), integer_or_dyn(b, a->i);
      at_strbuf_addc(b, '>');
      break;
    case AT_MATTR_LOCATION:
      at_strbuf_addz(b, "loc(");
      at_mloc_print(b, a->loc);
      at_strbuf_addc(b, ')');
      break;
    case AT_MATTR_DISTINCT:
      at_strbuf_addf(b, "distinct[%" PRId64 "]<", a->i);
      attr_list(b, a);
      at_strbuf_addc(b, '>');
      break;
    default:  // AT_MATTR_OPAQUE
      at_strbuf_addz(b, "#opaque<");
      at_mprint_string(b, at_str_of(a->name));
      at_strbuf_addz(b, ", ");
      hex_bytes(b, a->bytes);
      at_strbuf_addc(b, '>');
      break;
  }
}

// Recursion as deep as the attribute, which readers bound.
void at_mattr_print(at_strbuf *b, const at_mattr *a) {
  switch (a->kind) {
    case AT_MATTR_UNIT:
      at_strbuf_addz(b, "unit");
      break;
    case AT_MATTR_BOOL:
      at_strbuf_addz(b, a->i ? "true" : "false");
      break;
    case AT_MATTR_INTEGER:
      integer(b, a);
      break;
    case AT_MATTR_FLOAT: {
      const at_mfloat *f = at_mfloat_find(at_str_of(a->type->name));
      print_float(b, f, at_mfloat_encode(f, a->f));
      at_strbuf_addz(b, " : ");
      at_mtype_print(b, a->type);
      break;
    }
    case AT_MATTR_STRING:
      at_mprint_string(b, a->str);
      if (a->type) at_strbuf_addz(b, " : "), at_mtype_print(b, a->type);
      break;
    case AT_MATTR_TYPE:
      at_mtype_print(b, a->type);
      break;
    case AT_MATTR_ARRAY:
      at_strbuf_addc(b, '[');
      attr_list(b, a);
      at_strbuf_addc(b, ']');
      break;
    case AT_MATTR_DICT:
      dictionary(b, a);
      break;
    case AT_MATTR_SYMBOL:
      symbol(b, a);
      break;
    case AT_MATTR_DENSE:
      dense(b, a);
      break;
    case AT_MATTR_DENSE_ARRAY:
      at_strbuf_addz(b, "array<");
      at_mtype_print(b, a->type);
      if (a->num_elems) at_strbuf_addz(b, ": ");
      at_mprint_elems(b, a->type, a->data);
      at_strbuf_addc(b, '>');
      break;
    case AT_MATTR_DIALECT:
      dialect_attr(b, a);
      break;
    default:
      rarer(b, a);
      break;
  }
}

// ---- Locations
void at_mloc_print(at_strbuf *b, const at_mloc *l) {
  switch (l->kind) {
    case AT_MLOC_FILE:
      at_mprint_string(b, at_str_of(l->text));
      at_strbuf_addf(b, ":%u:%u", l->line, l->column);
      if (l->end_line != l->line)
        at_strbuf_addf(b, " to %u:%u", l->end_line, l->end_column);
      else if (l->end_column != l->column)
        at_strbuf_addf(b, " to :%u", l->end_column);
      break;
    case AT_MLOC_NAME:
      at_mprint_string(b, at_str_of(l->text));
      if (l->child->kind == AT_MLOC_UNKNOWN) break;
      at_strbuf_addc(b, '(');
      at_mloc_print(b, l->child);
      at_strbuf_addc(b, ')');
      break;
    case AT_MLOC_CALLSITE:
      at_strbuf_addz(b, "callsite(");
      at_mloc_print(b, l->child);
      at_strbuf_addz(b, " at ");
      at_mloc_print(b, l->caller);
      at_strbuf_addc(b, ')');
      break;
    case AT_MLOC_FUSED:
      at_strbuf_addz(b, "fused");
      if (l->metadata) {
        at_strbuf_addc(b, '<');
        at_mattr_print(b, l->metadata);
        at_strbuf_addc(b, '>');
      }
      at_strbuf_addc(b, '[');
      for (uint32_t i = 0; i < l->num_locs; i++) {
        if (i) at_strbuf_addz(b, ", ");
        at_mloc_print(b, l->locs[i]);
      }
      at_strbuf_addc(b, ']');
      break;
    default:
      at_strbuf_addz(b, "unknown");
      break;
  }
}
