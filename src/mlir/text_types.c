// Types in text: a word (i32, f8E4M3FN, index, none), a word with parameters in
// angle brackets (tensor, memref, vector, complex, tuple), a function type in
// round brackets, or, behind '!', an alias or a dialect's type. A dialect's
// type that is not known here keeps its name and the text between its brackets.
#include <ctype.h>
#include <stdlib.h>

#include "mlir/text.h"

static at_status parse_type(at_mtext *t, const at_mtype **out);

// Nesting is bounded by at_mtext_enter.
at_status at_mtext_read_type(at_mtext *t, const at_mtype **out) {
  AT_TRY(at_mtext_enter(t));
  at_status s = parse_type(t, out);
  t->depth--;
  return s;
}

// At least one.
at_status at_mtext_type_list(at_mtext *t, at_mtype_vec *out) {
  do {
    const at_mtype *one;
    AT_TRY(at_mtext_read_type(t, &one));
    if (!at_vec_push(t->c.arena, out, one)) return AT_NO_MEMORY("types");
  } while (at_mtext_accept(t, ","));
  return AT_OK;
}

// A single result needs no brackets.
at_status at_mtext_function_type(at_mtext *t, const at_mtype **out) {
  at_mtype *f;
  at_mtype_vec in = {0}, res = {0};
  AT_TRY_ALLOC(f, at_mtype_make(&t->c, AT_MTYPE_FUNCTION));
  AT_TRY(at_mtext_expect(t, "("));
  if (!at_mtext_accept(t, ")")) {
    AT_TRY(at_mtext_type_list(t, &in));
    AT_TRY(at_mtext_expect(t, ")"));
  }
  AT_TRY(at_mtext_expect(t, "->"));
  if (at_mtext_accept(t, "(")) {
    if (!at_mtext_accept(t, ")")) {
      AT_TRY(at_mtext_type_list(t, &res));
      AT_TRY(at_mtext_expect(t, ")"));
    }
  } else {
    const at_mtype *one;
    AT_TRY(at_mtext_read_type(t, &one));
    if (!at_vec_push(t->c.arena, &res, one)) return AT_NO_MEMORY("types");
  }
  f->types = in.ptr, f->num_types = (uint32_t)in.len;
  f->results = res.ptr, f->num_results = (uint32_t)res.len;
  *out = f;
  return AT_OK;
}

// "2x?x3x": dimensions each followed by 'x'. Scalable ones stand in brackets.
static at_status dimensions(at_mtext *t, at_mi64_vec *out, at_mi64_vec *scal) {
  for (;;) {
    at_mtext_space(t);
    const char *back = t->p;
    int64_t d = AT_MDYN, scalable = 0;
    if (scal && at_mtext_accept(t, "[")) scalable = 1;
    if (t->p < t->end && *t->p == '?') {
      t->p++;
    } else if (t->p < t->end && isdigit((unsigned char)*t->p)) {
      // "0x4xf32" is a dimension of zero, not a hexadecimal number.
      uint64_t v = 0;
      for (; t->p < t->end && isdigit((unsigned char)*t->p); t->p++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*t->p - '0'), &v) ||
            v > INT64_MAX)
          return at_mtext_fail(t, "a dimension is too large");
      d = (int64_t)v;
    } else if (!scalable) {
      return AT_OK;
    }
    if (scalable) AT_TRY(at_mtext_expect(t, "]"));
    if (!at_mtext_accept(t, "x")) {
      t->p = back;
      return at_mtext_fail(t, "'x' is expected after a dimension");
    }
    if (!at_vec_push(t->c.arena, out, d) ||
        (scal && !at_vec_push(t->c.arena, scal, scalable)))
      return AT_NO_MEMORY("dimensions");
  }
}

// <dims x element, encoding>, or <*x element>.
static at_status tensor(at_mtext *t, const at_mtype **out) {
  at_mtype *m;
  at_mi64_vec dims = {0};
  AT_TRY_ALLOC(m, at_mtype_make(&t->c, AT_MTYPE_TENSOR));
  *out = m;
  AT_TRY(at_mtext_expect(t, "<"));
  if (at_mtext_accept(t, "*")) {
    m->kind = AT_MTYPE_UNRANKED_TENSOR;
    AT_TRY(at_mtext_expect(t, "x"));
  } else {
    AT_TRY(dimensions(t, &dims, NULL));
    m->shape = (at_dims){dims.ptr, (uint32_t)dims.len};
  }
  AT_TRY(at_mtext_read_type(t, &m->elem));
  if (m->kind == AT_MTYPE_TENSOR && at_mtext_accept(t, ","))
    AT_TRY(at_mtext_read_attr(t, &m->encoding));
  return at_mtext_expect(t, ">");
}

// Whether the layout says what an absent one does.
static bool identity_map(const at_mattr *a, uint32_t rank) {
  if (a->kind != AT_MATTR_AFFINE_MAP || a->num_syms || a->num_dims != rank ||
      a->num_elems != rank)
    return false;
  for (uint32_t i = 0; i < rank; i++)
    if (a->exprs[i]->kind != AT_AFFINE_DIM || a->exprs[i]->value != i)
      return false;
  return true;
}

// <dims x element, layout, space>: which of the two an attribute is follows
// from its kind, or else from its place.
static at_status memref(at_mtext *t, const at_mtype **out) {
  at_mtype *m;
  at_mi64_vec dims = {0};
  AT_TRY_ALLOC(m, at_mtype_make(&t->c, AT_MTYPE_MEMREF));
  *out = m;
  AT_TRY(at_mtext_expect(t, "<"));
  if (at_mtext_accept(t, "*")) {
    m->kind = AT_MTYPE_UNRANKED_MEMREF;
    AT_TRY(at_mtext_expect(t, "x"));
  } else {
    AT_TRY(dimensions(t, &dims, NULL));
    m->shape = (at_dims){dims.ptr, (uint32_t)dims.len};
  }
  AT_TRY(at_mtext_read_type(t, &m->elem));
  while (at_mtext_accept(t, ",")) {
    const at_mattr *a;
    AT_TRY(at_mtext_read_attr(t, &a));
    bool layout = a->kind == AT_MATTR_AFFINE_MAP || a->kind == AT_MATTR_STRIDED;
    // A dialect's layout stands first, its memory space second.
    layout |= (a->kind == AT_MATTR_DIALECT || a->kind == AT_MATTR_OPAQUE) &&
              !m->layout && !m->space && m->kind == AT_MTYPE_MEMREF &&
              at_mtext_at(t, ",");
    // In place of an absent space.
    if (a->kind == AT_MATTR_UNIT) continue;
    if (layout && !m->layout && m->kind == AT_MTYPE_MEMREF) {
      m->layout = a;
    } else if (!m->space) {
      m->space = a;
    } else {
      return at_mtext_fail(t, "a memref has one layout and one memory space");
    }
  }
  if (m->layout && identity_map(m->layout, m->shape.rank)) m->layout = NULL;
  return at_mtext_expect(t, ">");
}

// <dims x element>; the list of scalable dimensions is kept only if there are
// any.
static at_status vector(at_mtext *t, const at_mtype **out) {
  at_mtype *m;
  at_mi64_vec dims = {0}, scalable = {0};
  AT_TRY_ALLOC(m, at_mtype_make(&t->c, AT_MTYPE_VECTOR));
  *out = m;
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(dimensions(t, &dims, &scalable));
  m->shape = (at_dims){dims.ptr, (uint32_t)dims.len};
  // One scalable dimension keeps the whole list.
  for (size_t i = 0; i < scalable.len; i++)
    if (scalable.ptr[i])
      m->scalable = (at_dims){scalable.ptr, (uint32_t)scalable.len};
  AT_TRY(at_mtext_read_type(t, &m->elem));
  return at_mtext_expect(t, ">");
}

// <a, b>
static at_status tuple(at_mtext *t, const at_mtype **out) {
  at_mtype *m;
  at_mtype_vec v = {0};
  AT_TRY_ALLOC(m, at_mtype_make(&t->c, AT_MTYPE_TUPLE));
  *out = m;
  AT_TRY(at_mtext_expect(t, "<"));
  if (!at_mtext_accept(t, ">")) {
    AT_TRY(at_mtext_type_list(t, &v));
    AT_TRY(at_mtext_expect(t, ">"));
  }
  m->types = v.ptr;
  m->num_types = (uint32_t)v.len;
  return AT_OK;
}

// "<storage:expressed, scale:zero>", "<i8<-8:7>:f32:1, {s:z, s:z}>"; zero and
// the storage bounds may be absent. flags bit 0: signed storage.
static at_status scale_attr(at_mtext *t, const at_mattr **out) {
  double s;
  if (at_mtext_at(t, "0x")) {
    int64_t bits;
    AT_TRY(at_mtext_i64(t, &bits));
    memcpy(&s, &bits, sizeof s);
  } else {
    AT_TRY(at_mtext_f64(t, &s));
  }
  AT_TRY_ALLOC(*out, at_mattr_make_f64(&t->c, s));
  return AT_OK;
}

// scale:zero, where the zero point may be absent.
static at_status quant_params(at_mtext *t, at_mattr_vec *scales,
                              at_mi64_vec *zeros) {
  const at_mattr *a;
  int64_t z = 0;
  AT_TRY(scale_attr(t, &a));
  if (at_mtext_accept(t, ":")) AT_TRY(at_mtext_i64(t, &z));
  if (!at_vec_push(t->c.arena, scales, a) || !at_vec_push(t->c.arena, zeros, z))
    return AT_NO_MEMORY("quantisation");
  return AT_OK;
}

// "u8" beside the integer types.
static at_status storage(at_mtext *t, const at_mtype **out) {
  at_mtext_space(t);
  if (t->p + 1 < t->end && *t->p == 'u' && isdigit((unsigned char)t->p[1])) {
    int64_t width;
    t->p++;
    AT_TRY(at_mtext_i64(t, &width));
    AT_TRY_ALLOC(*out, at_mtype_make_int(&t->c, (uint32_t)AT_MIN(width, 4096),
                                         AT_UNSIGNED));
    return AT_OK;
  }
  return at_mtext_read_type(t, out);
}

// ", a:b"
static at_status pair(at_mtext *t, int64_t *v) {
  AT_TRY(at_mtext_expect(t, ","));
  AT_TRY(at_mtext_i64(t, &v[0]));
  AT_TRY(at_mtext_expect(t, ":"));
  return at_mtext_i64(t, &v[1]);
}

// VHLO: "<storage:expressed, scale:zero, min:max, flags>", or with
// "axis, [scales], [zeros]".
static at_status vhlo_quant(at_mtext *t, bool axis, const at_mtype **out) {
  at_mtype *m;
  const at_mtype **types;
  const at_mattr **attrs;
  int64_t *ints;
  at_mattr_vec scales = {0};
  at_mi64_vec zeros = {0};
  AT_TRY_ALLOC(m, at_mtype_make(&t->c, AT_MTYPE_DIALECT));
  AT_TRY_ALLOC(types, at_new(t->c.arena, const at_mtype *, 2));
  AT_TRY_ALLOC(attrs, at_new(t->c.arena, const at_mattr *, 2));
  AT_TRY_ALLOC(ints, at_new(t->c.arena, int64_t, 4));
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(at_mtext_read_type(t, &types[0]));
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_read_type(t, &types[1]));
  AT_TRY(at_mtext_expect(t, ","));
  if (axis) {
    AT_TRY(at_mtext_i64(t, &ints[1]));
    AT_TRY(at_mtext_expect(t, ","));
    AT_TRY(at_mtext_expect(t, "["));
    if (!at_mtext_accept(t, "]")) {
      do {
        const at_mattr *a;
        AT_TRY(scale_attr(t, &a));
        if (!at_vec_push(t->c.arena, &scales, a)) return AT_NO_MEMORY("scales");
      } while (at_mtext_accept(t, ","));
      AT_TRY(at_mtext_expect(t, "]"));
    }
    AT_TRY(at_mtext_expect(t, ","));
    AT_TRY(at_mtext_i64_list(t, "[", "]", &zeros));
    AT_TRY_ALLOC(attrs[0], at_mattr_make_array(&t->c, scales.ptr, scales.len));
    AT_TRY_ALLOC(attrs[1], at_mattr_make_i64s(&t->c, zeros.ptr, zeros.len));
  } else {
    AT_TRY(scale_attr(t, &attrs[0]));
    AT_TRY(at_mtext_expect(t, ":"));
    AT_TRY(at_mtext_i64(t, &ints[1]));
  }
  AT_TRY(pair(t, &ints[2]));
  AT_TRY(at_mtext_expect(t, ","));
  AT_TRY(at_mtext_i64(t, &ints[0]));
  AT_TRY_ALLOC(m->name,
               at_mctx_intern(&t->c, axis ? AT_STR("vhlo.quant_per_axis_v1")
                                          : AT_STR("vhlo.quant_v1")));
  m->types = types, m->num_types = 2;
  m->attrs = attrs, m->num_attrs = axis ? 2 : 1;
  m->ints = (at_dims){ints, 4};
  *out = m;
  return at_mtext_expect(t, ">");
}

// Behind the name. The storage bounds default to all values of the storage
// type.
static at_status quant(at_mtext *t, const at_mtype **out) {
  at_mtype *m;
  const at_mtype **types;
  const at_mattr **attrs;
  int64_t *ints, axis = -1;
  at_mattr_vec scales = {0};
  at_mi64_vec zeros = {0};
  AT_TRY_ALLOC(m, at_mtype_make(&t->c, AT_MTYPE_DIALECT));
  AT_TRY_ALLOC(types, at_new(t->c.arena, const at_mtype *, 2));
  AT_TRY_ALLOC(attrs, at_new(t->c.arena, const at_mattr *, 2));
  AT_TRY_ALLOC(ints, at_new(t->c.arena, int64_t, 4));
  *out = m;
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(storage(t, &types[0]));
  const at_mtype *st = types[0];
  if (st->kind != AT_MTYPE_INTEGER || st->width == 0 || st->width > 32)
    return at_mtext_fail(t, "a quantised type is stored as a small integer");
  bool is_signed = st->sign != AT_UNSIGNED;
  ints[0] = is_signed;
  // All values of the storage type, unless bounds follow.
  int64_t lo = is_signed ? -(1ll << (st->width - 1)) : 0;
  int64_t hi = (1ll << (st->width - is_signed)) - 1;
  if (at_mtext_accept(t, "<")) {
    AT_TRY(at_mtext_i64(t, &lo));
    AT_TRY(at_mtext_expect(t, ":"));
    AT_TRY(at_mtext_i64(t, &hi));
    AT_TRY(at_mtext_expect(t, ">"));
  }
  // The storage type itself is signless; the flag says how it is read.
  AT_TRY_ALLOC(types[0], at_mtype_make_int(&t->c, st->width, AT_SIGNLESS));
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_read_type(t, &types[1]));
  if (at_mtext_accept(t, ":")) AT_TRY(at_mtext_i64(t, &axis));
  AT_TRY(at_mtext_expect(t, ","));
  if (axis >= 0) {
    AT_TRY(at_mtext_expect(t, "{"));
    do AT_TRY(quant_params(t, &scales, &zeros));
    while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "}"));
    ints[1] = axis;
    AT_TRY_ALLOC(attrs[0], at_mattr_make_array(&t->c, scales.ptr, scales.len));
    AT_TRY_ALLOC(attrs[1], at_mattr_make_i64s(&t->c, zeros.ptr, zeros.len));
  } else {
    AT_TRY(quant_params(t, &scales, &zeros));
    ints[1] = zeros.ptr[0];
    attrs[0] = scales.ptr[0];
  }
  ints[2] = lo, ints[3] = hi;
  AT_TRY_ALLOC(
      m->name,
      at_mctx_intern(&t->c, at_str_of(axis >= 0 ? "quant.uniform_per_axis"
                                                : "quant.uniform")));
  m->types = types, m->num_types = 2;
  m->attrs = attrs, m->num_attrs = axis >= 0 ? 2 : 1;
  m->ints = (at_dims){ints, 4};
  return at_mtext_expect(t, ">");
}

// <types>
static at_status future(at_mtext *t, at_mtype *m) {
  at_mtype_vec v = {0};
  AT_TRY(at_mtext_expect(t, "<"));
  if (!at_mtext_accept(t, ">")) {
    AT_TRY(at_mtext_type_list(t, &v));
    AT_TRY(at_mtext_expect(t, ">"));
  }
  m->types = v.ptr;
  m->num_types = (uint32_t)v.len;
  return AT_OK;
}

// "!alias", "!dialect.name<body>" or "!dialect<name body>".
static at_status dialect_type(at_mtext *t, const at_mtype **out) {
  at_str name, body = {0};
  if (!at_mtext_suffix(t, &name)) return at_mtext_fail(t, "a type is expected");
  if (!memchr(name.ptr, '.', name.len) && !(t->p < t->end && *t->p == '<')) {
    at_mtext_alias *alias;
    AT_TRY(at_mtext_alias_find(t, '!', name, &alias));
    *out = alias->type;
    return AT_OK;
  }
  if (at_str_is(name, "quant.uniform")) return quant(t, out);
  if (at_str_is(name, "vhlo.quant_v1")) return vhlo_quant(t, false, out);
  if (at_str_is(name, "vhlo.quant_per_axis_v1"))
    return vhlo_quant(t, true, out);
  at_mtype *m;
  AT_TRY_ALLOC(m, at_mtype_make(&t->c, AT_MTYPE_DIALECT));
  *out = m;
  if (at_str_is(name, "opaque")) {
    m->kind = AT_MTYPE_OPAQUE;
    return at_mtext_opaque(t, &m->name, &m->bytes);
  }
  if (at_str_is(name, "stablehlo.future") ||
      at_str_is(name, "vhlo.future_v1")) {
    AT_TRY_ALLOC(m->name, at_mctx_intern(&t->c, name));
    return future(t, m);
  }
  bool has_body = t->p < t->end && *t->p == '<';
  if (has_body) AT_TRY(at_mtext_balanced(t, &body));
  if (!memchr(name.ptr, '.', name.len)) {
    size_t n = 0;
    while (n < body.len && (isalnum((unsigned char)body.ptr[n]) ||
                            body.ptr[n] == '_' || body.ptr[n] == '.'))
      n++;
    if (n == 0) return at_mtext_fail(t, "a dialect's type has no name");
    char *full;
    AT_TRY_ALLOC(full, at_arena_printf(t->c.arena, "%.*s.%.*s", (int)name.len,
                                       name.ptr, (int)n, body.ptr));
    name = at_str_of(full);
    body = (at_str){body.ptr + n, body.len - n};
    while (body.len && isspace((unsigned char)*body.ptr))
      body.ptr++, body.len--;
    if (body.len >= 2 && *body.ptr == '<' && body.ptr[body.len - 1] == '>')
      body = (at_str){body.ptr + 1, body.len - 2};
  }
  AT_TRY_ALLOC(m->name, at_mctx_intern(&t->c, name));
  if (body.len)
    AT_TRY_ALLOC(m->bytes.ptr, (uint8_t *)at_mtext_one_line(t, body));
  m->bytes.len = body.len;
  return AT_OK;
}

// i8, si8 or ui8: at most 8 digits and 2^24 bits.
static bool integer_name(at_str w, uint32_t *width, at_msign *sign) {
  size_t skip = 1;
  *sign = AT_SIGNLESS;
  if (w.len > 1 && w.ptr[0] == 's' && w.ptr[1] == 'i')
    skip = 2, *sign = AT_SIGNED;
  else if (w.len > 1 && w.ptr[0] == 'u' && w.ptr[1] == 'i')
    skip = 2, *sign = AT_UNSIGNED;
  else if (!w.len || w.ptr[0] != 'i')
    return false;
  if (w.len == skip || w.len > skip + 8) return false;
  *width = 0;
  for (size_t i = skip; i < w.len; i++) {
    if (!isdigit((unsigned char)w.ptr[i])) return false;
    *width = *width * 10 + (uint32_t)(w.ptr[i] - '0');
  }
  return *width <= 1u << 24;
}

// A bracket is a function type, '!' a dialect's; other types begin with a word.
static at_status parse_type(at_mtext *t, const at_mtype **out) {
  if (at_mtext_at(t, "(")) return at_mtext_function_type(t, out);
  if (at_mtext_accept(t, "!")) return dialect_type(t, out);
  const char *back = t->p;
  at_str w;
  uint32_t width;
  at_msign sign;
  if (!at_mtext_word(t, &w)) return at_mtext_fail(t, "a type is expected");
  if (integer_name(w, &width, &sign)) {
    AT_TRY_ALLOC(*out, at_mtype_make_int(&t->c, width, sign));
    return AT_OK;
  }
  if (at_mfloat_find(w) || at_str_is(w, "f80") || at_str_is(w, "f128")) {
    const char *name;
    AT_TRY_ALLOC(name, at_mctx_intern(&t->c, w));
    AT_TRY_ALLOC(*out, at_mtype_make_float(&t->c, name));
    return AT_OK;
  }
  if (at_str_is(w, "index") || at_str_is(w, "none")) {
    *out = w.len == 5 ? &at_mtype_index : &at_mtype_none;
    return AT_OK;
  }
  if (at_str_is(w, "tensor")) return tensor(t, out);
  if (at_str_is(w, "memref")) return memref(t, out);
  if (at_str_is(w, "vector")) return vector(t, out);
  if (at_str_is(w, "tuple")) return tuple(t, out);
  if (at_str_is(w, "complex")) {
    at_mtype *m;
    AT_TRY_ALLOC(m, at_mtype_make(&t->c, AT_MTYPE_COMPLEX));
    *out = m;
    AT_TRY(at_mtext_expect(t, "<"));
    AT_TRY(at_mtext_read_type(t, &m->elem));
    return at_mtext_expect(t, ">");
  }
  t->p = back;
  return at_mtext_fail(t, "unknown type '%.*s'", (int)AT_MIN(w.len, 64), w.ptr);
}
