// Dialect attributes: those of the codec table field by field, convolution
// dimensions in their own notation, others by name with their text.
#include <ctype.h>

#include "mlir/text.h"

// ---- By the codec table
static at_status array_of_attrs(at_mtext *t, const at_mattr **out) {
  AT_TRY(at_mtext_read_attr(t, out));
  return (*out)->kind == AT_MATTR_ARRAY
             ? AT_OK
             : at_mtext_fail(t, "a list of attributes is expected");
}

// (1)2, as a field of an axis.
static at_status sub_axis(at_mtext *t, const at_mattr **out) {
  at_mattr *a;
  int64_t v[2];
  at_mnamed_vec f = {0};
  AT_TRY(at_mtext_expect(t, "("));
  AT_TRY(at_mtext_i64(t, &v[0]));
  AT_TRY(at_mtext_expect(t, ")"));
  AT_TRY(at_mtext_i64(t, &v[1]));
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DIALECT));
  AT_TRY_ALLOC(a->name,
               at_mctx_intern(&t->c, AT_STR("stablehlo.sub_axis_info")));
  AT_TRY(at_mnamed_add(t, &f, "pre_size", at_mattr_make_i64(&t->c, v[0])));
  AT_TRY(at_mnamed_add(t, &f, "size", at_mattr_make_i64(&t->c, v[1])));
  a->fields = f.ptr;
  a->num_elems = 2;
  *out = a;
  return AT_OK;
}

// [<name = "x", size = 2>], as a field of a mesh.
static at_status mesh_axes(at_mtext *t, const at_mattr **out) {
  at_mattr_vec v = {0};
  AT_TRY(at_mtext_expect(t, "["));
  do {
    const at_mattr *one;
    AT_TRY(at_mtext_codec(t, at_mcodec_by_name(AT_STR("stablehlo.mesh_axis")),
                          &one));
    if (!at_vec_push(t->c.arena, &v, one)) return AT_NO_MEMORY("axes");
  } while (at_mtext_accept(t, ","));
  AT_TRY_ALLOC(*out, at_mattr_make_array(&t->c, v.ptr, v.len));
  return at_mtext_expect(t, "]");
}

// The value of a field of that kind. Fields that are attributes may also be
// axes in their short notation.
static at_status codec_field(at_mtext *t, const at_mcodec *k, char kind,
                             const at_mattr **out) {
  int64_t v;
  double d;
  at_str s;
  switch (kind) {
    case 's':
    case 'p':
      AT_TRY(at_mtext_i64(t, &v));
      AT_TRY_ALLOC(*out, at_mattr_make_i64(&t->c, v));
      return AT_OK;
    case 'L': {
      at_mi64_vec list = {0};
      AT_TRY(at_mtext_i64_list(t, "[", "]", &list));
      AT_TRY_ALLOC(*out, at_mattr_make_i64s(&t->c, list.ptr, list.len));
      return AT_OK;
    }
    case 't': {
      const at_mtype *type;
      AT_TRY(at_mtext_read_type(t, &type));
      AT_TRY_ALLOC(*out, at_mattr_make_type(&t->c, type));
      return AT_OK;
    }
    case 'b': {
      bool yes = at_mtext_accept_word(t, "true");
      if (!yes) AT_TRY(at_mtext_expect_word(t, "false"));
      AT_TRY_ALLOC(*out, at_mattr_make_bool(&t->c, yes));
      return AT_OK;
    }
    case 'd':
      if (at_mtext_at(t, "0x")) {
        AT_TRY(at_mtext_i64(t, &v));
        memcpy(&d, &v, sizeof d);
      } else {
        AT_TRY(at_mtext_f64(t, &d));
      }
      AT_TRY_ALLOC(*out, at_mattr_make_f64(&t->c, d));
      return AT_OK;
    case 'A':
      return array_of_attrs(t, out);
    case 'S':
      AT_TRY(at_mtext_quoted(t, &s));
      AT_TRY_ALLOC(*out, at_mattr_make_str(&t->c, s));
      return AT_OK;
    default:
      if (at_mtext_at(t, "(")) return sub_axis(t, out);
      if (at_mtext_at(t, "[<")) return mesh_axes(t, out);
      return at_mtext_read_attr(t, out);
  }
}

// What an absent field means; NULL: it has to be there.
static const at_mattr *codec_default(at_mtext *t, char kind) {
  switch (kind) {
    case 'L':
      return at_mattr_make_i64s(&t->c, NULL, 0);
    case 's':
      return at_mattr_make_i64(&t->c, 0);
    case 'd':
      return at_mattr_make_f64(&t->c, 0);
    case 'A':
      return at_mattr_make_array(&t->c, NULL, 0);
    default:
      return NULL;
  }
}

// <name = value, ...> in any order. Absent fields get their default where they
// have one.
static at_status struct_body(at_mtext *t, const at_mcodec *k, at_mattr *a) {
  const at_mattr *values[16] = {0};
  at_mfield f;
  AT_TRY(at_mtext_expect(t, "<"));
  at_mtext_accept_word(t, "raw");  // of convolutions
  if (!at_mtext_at(t, ">")) {
    do {
      at_str w;
      if (at_mtext_at(t, ">")) break;  // a comma may end the list
      if (!at_mtext_word(t, &w)) return at_mtext_fail(t, "a field is expected");
      size_t i = 0;
      const char *l = k->layout;
      bool found = false;
      while (at_mcodec_next(&l, &f)) {
        AT_ASSERT(i < AT_LEN(values));
        if ((found = at_str_eq(f.name, w))) break;
        i++;
      }
      if (!found)
        return at_mtext_fail(t, "%s has no field '%.*s'", k->name,
                             (int)AT_MIN(w.len, 64), w.ptr);
      if (values[i])
        return at_mtext_fail(t, "field '%.*s' is given twice",
                             (int)AT_MIN(w.len, 64), w.ptr);
      AT_TRY(at_mtext_expect(t, "="));
      AT_TRY(codec_field(t, k, f.kind, &values[i]));
    } while (at_mtext_accept(t, ","));
  }
  AT_TRY(at_mtext_expect(t, ">"));
  // In the layout's order, whatever the text's.
  at_mnamed *fields;
  AT_TRY_ALLOC(fields, at_new(t->c.arena, at_mnamed, 16));
  size_t i = 0;
  for (const char *l = k->layout; at_mcodec_next(&l, &f); i++) {
    if (!values[i] && strchr("Lsd", f.kind))
      AT_TRY_ALLOC(values[i], codec_default(t, f.kind));
    if (!values[i] && !strchr("oqQp", f.kind))
      return at_mtext_fail(t, "%s needs its field '%.*s'", k->name,
                           (int)f.name.len, f.name.ptr);
    if (!values[i]) continue;
    AT_TRY_ALLOC(fields[a->num_elems].name, at_mctx_intern(&t->c, f.name));
    fields[a->num_elems++].value = values[i];
  }
  a->fields = fields;
  return AT_OK;
}

// One of the spellings of the enum.
static at_status enum_word(at_mtext *t, const at_mcodec *k, at_mattr *a) {
  at_str w;
  if (!at_mtext_word(t, &w) || at_mcodec_value(k->enums, w) < 0)
    return at_mtext_fail(t, "%s is one of: %s", k->name, k->enums);
  at_mcodec_spelling(k->enums, (uint64_t)at_mcodec_value(k->enums, w), &a->str);
  return AT_OK;
}

// Shardy's attributes and convolutions have notations of their own.
at_status at_mtext_codec(at_mtext *t, const at_mcodec *k,
                         const at_mattr **out) {
  if (strncmp(k->name, "sdy.", 4) == 0) return at_mtext_sdy(t, k, out);
  bool conv = strcmp(k->name, "stablehlo.conv") == 0;
  if (conv && (at_mtext_at(t, "<[") || at_mtext_at(t, "< ["))) {
    AT_TRY(at_mtext_expect(t, "<"));
    AT_TRY(at_mtext_conv(t, out));
    return at_mtext_expect(t, ">");
  }
  at_mattr *a;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DIALECT));
  AT_TRY_ALLOC(a->name, at_mctx_intern(&t->c, at_str_of(k->name)));
  *out = a;
  if (*k->layout) {
    AT_TRY(struct_body(t, k, a));
    return conv && !at_mconv_valid(a)
               ? at_mtext_fail(t, "convolution dimensions do not fit")
               : AT_OK;
  }
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(enum_word(t, k, a));
  return at_mtext_expect(t, ">");
}

// ---- Convolution: [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]
typedef struct conv_side {
  int64_t batch, feature;  // of a kernel: input and output feature
  int64_t spatial[64];
  uint32_t rank;
} conv_side;

// [b, 0, 1, f]: each name once; spatial dimensions count from 0 without gaps.
static at_status conv_dims(at_mtext *t, char batch, char feature,
                           conv_side *s) {
  uint64_t seen = 0;
  uint32_t i = 0;
  s->batch = s->feature = -1;
  AT_TRY(at_mtext_expect(t, "["));
  do {
    char name[2] = {batch, 0}, other[2] = {feature, 0};
    if (at_mtext_accept_word(t, name)) {
      if (s->batch >= 0) return at_mtext_fail(t, "'%c' occurs twice", batch);
      s->batch = i;
    } else if (at_mtext_accept_word(t, other)) {
      if (s->feature >= 0)
        return at_mtext_fail(t, "'%c' occurs twice", feature);
      s->feature = i;
    } else if (!at_mtext_accept(t, "?")) {
      int64_t v;
      AT_TRY(at_mtext_i64(t, &v));
      if (v < 0 || v > 61 || seen >> v & 1)
        return at_mtext_fail(t, "a spatial dimension is wrong");
      seen |= 1ull << v;
      s->spatial[v] = i;
      s->rank++;
    }
    if (++i > 64) return at_mtext_fail(t, "too many dimensions");
  } while (at_mtext_accept(t, ","));
  // Spatial dimensions are numbered without gaps.
  if (s->batch < 0 || s->feature < 0 || seen != (1ull << s->rank) - 1)
    return at_mtext_fail(t, "convolution dimensions are incomplete");
  return at_mtext_expect(t, "]");
}

// Three sides; the fields are made in the order of the codec's layout.
at_status at_mtext_conv(at_mtext *t, const at_mattr **out) {
  conv_side s[3] = {0};
  AT_TRY(conv_dims(t, 'b', 'f', &s[0]));
  AT_TRY(at_mtext_expect(t, "x"));
  AT_TRY(conv_dims(t, 'i', 'o', &s[1]));
  AT_TRY(at_mtext_expect(t, "->"));
  AT_TRY(conv_dims(t, 'b', 'f', &s[2]));
  at_mattr *a;
  at_mnamed *fields;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DIALECT));
  AT_TRY_ALLOC(fields, at_new(t->c.arena, at_mnamed, 9));
  AT_TRY_ALLOC(a->name, at_mctx_intern(&t->c, AT_STR("stablehlo.conv")));
  a->fields = fields;
  at_mfield f;
  const char *l = at_mcodec_by_name(AT_STR("stablehlo.conv"))->layout;
  for (; at_mcodec_next(&l, &f); a->num_elems++) {
    const conv_side *side = &s[a->num_elems / 3];
    const at_mattr *v =
        a->num_elems % 3 == 2
            ? at_mattr_make_i64s(&t->c, side->spatial, side->rank)
            : at_mattr_make_i64(&t->c,
                                a->num_elems % 3 ? side->feature : side->batch);
    if (!v) return AT_NO_MEMORY("convolution dimensions");
    AT_TRY_ALLOC(fields[a->num_elems].name, at_mctx_intern(&t->c, f.name));
    fields[a->num_elems].value = v;
  }
  *out = a;
  return AT_OK;
}

// ---- By name
// #stablehlo.bounds<4, ?>, which is the attribute type_extensions.
static at_status bounds(at_mtext *t, const at_mattr **out) {
  at_mattr *a;
  at_mnamed *f;
  at_mi64_vec v = {0};
  AT_TRY(at_mtext_i64_list(t, "<", ">", &v));
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DIALECT));
  AT_TRY_ALLOC(f, at_new(t->c.arena, at_mnamed, 1));
  AT_TRY_ALLOC(a->name,
               at_mctx_intern(&t->c, AT_STR("stablehlo.type_extensions")));
  AT_TRY_ALLOC(f->name, at_mctx_intern(&t->c, AT_STR("bounds")));
  AT_TRY_ALLOC(f->value, at_mattr_make_i64s(&t->c, v.ptr, v.len));
  a->fields = f;
  a->num_elems = 1;
  *out = a;
  return AT_OK;
}

// A copy without line breaks, after which something could look like an alias.
char *at_mtext_one_line(at_mtext *t, at_str body) {
  char *copy = at_arena_str(t->c.arena, body);
  for (size_t i = 0; copy && i < body.len; i++)
    if (isspace((unsigned char)copy[i])) copy[i] = ' ';
  return copy;
}

// Kept as text, so that it prints as it was.
static at_status unknown(at_mtext *t, at_str name, at_str body,
                         const at_mattr **out) {
  at_mattr *a;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DIALECT));
  AT_TRY_ALLOC(a->name, at_mctx_intern(&t->c, name));
  a->str = (at_str){at_mtext_one_line(t, body), body.len};
  *out = a;
  return a->str.ptr ? AT_OK : AT_NO_MEMORY("attribute");
}

// "#dialect<name body>": the name is the first word inside.
static at_status short_form(at_mtext *t, at_str dialect, const at_mattr **out) {
  at_str body, w;
  const char *from = t->p;
  AT_TRY(at_mtext_balanced(t, &body));
  const char *after = t->p;
  t->p = from;
  AT_TRY(at_mtext_expect(t, "<"));
  // What brackets hold is kept as it is, and would be a comment when read
  // again.
  bool comment = false;
  for (size_t i = 0; i + 1 < body.len; i++)
    comment |= body.ptr[i] == '/' && body.ptr[i + 1] == '/';
  if (comment || !at_mtext_word(t, &w)) {
    t->p = after;
    return unknown(t, dialect, body, out);
  }
  char *full;
  AT_TRY_ALLOC(full, at_arena_printf(t->c.arena, "%.*s.%.*s", (int)dialect.len,
                                     dialect.ptr, (int)w.len, w.ptr));
  if (strcmp(full, "stablehlo.bounds") == 0) {
    AT_TRY(bounds(t, out));
    return at_mtext_expect(t, ">");
  }
  const at_mcodec *k = at_mcodec_by_name(at_str_of(full));
  if (k && !*k->layout && !at_mtext_at(t, "<")) {
    at_mattr *a;
    AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DIALECT));
    AT_TRY_ALLOC(a->name, at_mctx_intern(&t->c, at_str_of(k->name)));
    *out = a;
    AT_TRY(enum_word(t, k, a));
    return at_mtext_expect(t, ">");
  }
  if (k) {
    AT_TRY(at_mtext_codec(t, k, out));
    return at_mtext_expect(t, ">");
  }
  // An unknown attribute keeps what follows its name.
  at_str rest = {t->p, (size_t)(body.ptr + body.len - t->p)};
  while (rest.len && isspace((unsigned char)*rest.ptr)) rest.ptr++, rest.len--;
  if (rest.len >= 2 && *rest.ptr == '<' && rest.ptr[rest.len - 1] == '>')
    rest = (at_str){rest.ptr + 1, rest.len - 2};
  t->p = after;
  return unknown(t, at_str_of(full), rest, out);
}

// <"dialect", "0x...">: what no reader understood.
at_status at_mtext_opaque(at_mtext *t, const char **dialect, at_bytes *bytes) {
  at_str name, hex;
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(at_mtext_quoted(t, &name));
  AT_TRY_ALLOC(*dialect, at_mctx_intern(&t->c, name));
  AT_TRY(at_mtext_expect(t, ","));
  AT_TRY(at_mtext_quoted(t, &hex));
  AT_TRY(at_mtext_hex_bytes(t, hex, bytes));
  return at_mtext_expect(t, ">");
}

// Behind the '#': an alias, #dialect.name<...>, or #dialect<name ...>.
at_status at_mtext_dialect_attr(at_mtext *t, const at_mattr **out) {
  at_str name, body = {0};
  if (!at_mtext_suffix(t, &name))
    return at_mtext_fail(t, "an attribute's name is expected");
  bool has_body = t->p < t->end && *t->p == '<';
  if (!memchr(name.ptr, '.', name.len)) {
    if (has_body && at_str_is(name, "opaque")) {
      at_mattr *a;
      AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_OPAQUE));
      *out = a;
      return at_mtext_opaque(t, &a->name, &a->bytes);
    }
    if (has_body) return short_form(t, name, out);
    at_mtext_alias *alias;
    AT_TRY(at_mtext_alias_find(t, '#', name, &alias));
    *out = alias->attr;
    return AT_OK;
  }
  if (at_str_is(name, "stablehlo.bounds")) return bounds(t, out);
  const at_mcodec *k = at_mcodec_by_name(name);
  if (k && has_body) return at_mtext_codec(t, k, out);
  if (has_body) AT_TRY(at_mtext_balanced(t, &body));
  return unknown(t, name, body, out);
}
