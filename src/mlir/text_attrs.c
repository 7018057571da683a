// Attributes and locations in text. The first character says what an attribute
// is: a string, list, number, dictionary, symbol, dialect attribute or alias; a
// word begins a builtin attribute or a type. Numbers and strings may have a
// type behind a colon. Aliases are read where they are defined, when first
// used.
#include <ctype.h>
#include <stdlib.h>

#include "mlir/text.h"

static at_status parse_attr(at_mtext *t, const at_mattr **out);

// Nesting is bounded by at_mtext_enter.
at_status at_mtext_read_attr(at_mtext *t, const at_mattr **out) {
  AT_TRY(at_mtext_enter(t));
  at_status s = parse_attr(t, out);
  t->depth--;
  return s;
}

// Reads where the alias is defined, once; the definition may come later.
at_status at_mtext_alias_find(at_mtext *t, char sigil, at_str name,
                              at_mtext_alias **out) {
  char key[256];
  at_mtext_alias *a = NULL;
  if (name.len < sizeof key - 1) {
    key[0] = sigil;
    memcpy(key + 1, name.ptr, name.len);
    void **slot = at_map_find(&t->aliases, (at_str){key, name.len + 1});
    a = slot ? *slot : NULL;
  }
  if (!a)
    return at_mtext_fail(t, "%c%.*s is not defined", sigil,
                         (int)AT_MIN(name.len, 64), name.ptr);
  if (a->busy) return at_mtext_fail(t, "an alias is defined by itself");
  *out = a;
  if (a->attr || a->type) return AT_OK;
  // Reading goes on at the definition and comes back.
  const char *back = t->p;
  t->p = a->at;
  a->busy = true;
  at_status s = sigil == '!' ? at_mtext_read_type(t, &a->type)
                             : at_mtext_read_attr(t, &a->attr);
  a->busy = false;
  if (at_ok(s)) t->p = back;
  return s;
}

// For qsort, by name.
int at_mnamed_order(const void *a, const void *b) {
  return strcmp(((const at_mnamed *)a)->name, ((const at_mnamed *)b)->name);
}

// a NULL stands for a constructor that got no memory.
at_status at_mnamed_add(at_mtext *t, at_mnamed_vec *v, const char *name,
                        const at_mattr *a) {
  at_mnamed n = {NULL, a};
  if (!a) return AT_NO_MEMORY("attribute");
  AT_TRY_ALLOC(n.name, at_mctx_intern(&t->c, at_str_of(name)));
  return at_vec_push(t->c.arena, v, n) ? AT_OK : AT_NO_MEMORY("attributes");
}

// A name without a value is a unit attribute. Names may be quoted.
at_status at_mtext_dict(at_mtext *t, at_mnamed_vec *out) {
  AT_TRY(at_mtext_expect(t, "{"));
  if (at_mtext_accept(t, "}")) return AT_OK;
  do {
    at_str name;
    at_mnamed n = {NULL, &at_mattr_unit};
    if (at_mtext_at(t, "\""))
      AT_TRY(at_mtext_quoted(t, &name));
    else if (!at_mtext_word(t, &name))
      return at_mtext_fail(t, "an attribute name is expected");
    AT_TRY_ALLOC(n.name, at_mctx_intern(&t->c, name));
    if (at_mtext_accept(t, "=")) AT_TRY(at_mtext_read_attr(t, &n.value));
    if (!at_vec_push(t->c.arena, out, n)) return AT_NO_MEMORY("attributes");
  } while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, "}");
}

// Nothing where no brace follows.
at_status at_mtext_opt_dict(at_mtext *t, at_mnamed_vec *out) {
  return at_mtext_at(t, "{") ? at_mtext_dict(t, out) : AT_OK;
}

// Sorts the entries; a name that occurs twice is refused.
at_status at_mtext_dict_make(at_mtext *t, at_mnamed_vec *v,
                             const at_mattr **out) {
  at_mattr *a;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DICT));
  if (v->len) qsort(v->ptr, v->len, sizeof *v->ptr, at_mnamed_order);
  for (size_t i = 1; i < v->len; i++)
    if (strcmp(v->ptr[i - 1].name, v->ptr[i].name) == 0)
      return at_mtext_fail(t, "'%s' occurs twice", v->ptr[i].name);
  a->fields = v->ptr;
  a->num_elems = (uint32_t)v->len;
  *out = a;
  return AT_OK;
}

// [a, b, c]
static at_status array(at_mtext *t, const at_mattr **out) {
  at_mattr_vec v = {0};
  AT_TRY(at_mtext_expect(t, "["));
  if (!at_mtext_accept(t, "]")) {
    do {
      const at_mattr *one;
      AT_TRY(at_mtext_read_attr(t, &one));
      if (!at_vec_push(t->c.arena, &v, one)) return AT_NO_MEMORY("array");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "]"));
  }
  AT_TRY_ALLOC(*out, at_mattr_make_array(&t->c, v.ptr, v.len));
  return AT_OK;
}

// ---- Numbers
// Integers over 64 bits: decimal where 64 bits hold them, else hexadecimal.
static at_status wide_integer(at_mtext *t, const at_mtype *type,
                              const at_mattr **out) {
  at_mattr *a;
  int64_t v = 0;
  if (type->width > AT_MAX_ATTR_BITS)
    return at_mtext_fail(t, "an integer of more bits than an attribute holds");
  size_t bytes = ((size_t)type->width + 7) / 8;
  uint8_t *w = at_arena_alloc(t->c.arena, bytes, 8);
  if (!w || !(a = at_mattr_make(&t->c, AT_MATTR_INTEGER)))
    return AT_NO_MEMORY("integer");
  at_mtext_space(t);
  if (t->p + 1 < t->end && t->p[0] == '0' && t->p[1] == 'x') {
    const char *first = t->p += 2;
    while (t->p < t->end && isxdigit((unsigned char)*t->p)) t->p++;
    // From the last digit on: the least significant byte comes first.
    for (size_t i = 0; i < (size_t)(t->p - first); i++) {
      char c = t->p[-1 - (ptrdiff_t)i];
      uint32_t d = isdigit((unsigned char)c)
                       ? (uint32_t)(c - '0')
                       : (uint32_t)(tolower((unsigned char)c) - 'a' + 10);
      if (i / 2 < bytes)
        w[i / 2] |= (uint8_t)(d << (i % 2 * 4));
      else if (d)
        return at_mtext_fail(t, "an integer is too large");
    }
  } else {
    AT_TRY(at_mtext_i64(t, &v));
    memset(w, v < 0 ? 0xff : 0, bytes);
    memcpy(w, &v, sizeof v);
  }
  a->type = type;
  a->wide = (at_bytes){w, bytes};
  *out = a;
  return AT_OK;
}

// The bounds are computed in 64 bits, which is why types of 64 bits are not
// asked: every int64 is one of theirs.
at_status at_mtext_int_fits(at_mtext *t, const at_mtype *type, int64_t v) {
  if (type->kind != AT_MTYPE_INTEGER || type->width >= 64) return AT_OK;
  int64_t half = type->width ? (int64_t)1 << (type->width - 1) : 0;
  int64_t least = type->sign == AT_UNSIGNED ? 0 : -half;
  int64_t most = type->sign == AT_SIGNED ? half : 2 * half;  // exclusive
  if (type->width == 0) most = 1;
  return v >= least && v < most
             ? AT_OK
             : at_mtext_fail(t, "%lld does not fit into %u bits", (long long)v,
                             type->width);
}

// Reads the number again, at `from`, now that its type is known. Hexadecimal
// floats are bit patterns.
static at_status typed_number(at_mtext *t, const char *from, bool integral,
                              const at_mtype *type, const at_mattr **out) {
  const char *after = t->p;
  int64_t v = 0;
  t->p = from;
  at_mattr *a;
  if (type->kind == AT_MTYPE_INTEGER || type->kind == AT_MTYPE_INDEX) {
    if (!integral) return at_mtext_fail(t, "an integer type, but a fraction");
    if (type->kind == AT_MTYPE_INTEGER && type->width > 64) {
      AT_TRY(wide_integer(t, type, out));
    } else {
      AT_TRY(at_mtext_i64(t, &v));
      AT_TRY(at_mtext_int_fits(t, type, v));
      uint32_t n = type->kind == AT_MTYPE_INDEX ? 64 : type->width;
      if (n == 0) v = 0;
      if (n && n < 64) {
        uint64_t up = (uint64_t)v << (64 - n);
        v = type->sign == AT_UNSIGNED ? (int64_t)(up >> (64 - n))
                                      : (int64_t)up >> (64 - n);
      }
      AT_TRY_ALLOC(*out, at_mattr_make_int(&t->c, type, v));
    }
  } else if (type->kind == AT_MTYPE_FLOAT) {
    const at_mfloat *f = at_mfloat_find(at_str_of(type->name));
    if (!f)
      return AT_FAIL(AT_UNIMPLEMENTED, "float attribute of type %s",
                     type->name);
    AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_FLOAT));
    a->type = type;
    *out = a;
    // The bits of the format.
    if (from[0] == '0' && from + 1 < t->end && from[1] == 'x') {
      AT_TRY(at_mtext_i64(t, &v));
      if (f->bits < 64 && (uint64_t)v >> f->bits)
        return at_mtext_fail(t, "a bit pattern is too large for its type");
      a->f = at_mfloat_decode(f, (uint64_t)v);
    } else {
      double d;
      AT_TRY(at_mtext_f64(t, &d));
      a->f = at_mfloat_decode(f, at_mfloat_encode(f, d));
    }
  } else {
    return at_mtext_fail(t, "a number needs a numeric type");
  }
  t->p = after;
  return AT_OK;
}

// Without a type integers are i64 and others f64. The number is passed over
// first, since its type stands behind it.
at_status at_mtext_number(at_mtext *t, const at_mattr **out) {
  at_mtext_space(t);
  const char *from = t->p, *q = t->p;
  bool integral = true, hexa;
  if (q < t->end && *q == '-') q++;
  hexa = q + 1 < t->end && q[0] == '0' && q[1] == 'x' && q + 2 < t->end &&
         isxdigit((unsigned char)q[2]);
  if (hexa) {
    q += 2;
    while (q < t->end && isxdigit((unsigned char)*q)) q++;
  } else {
    while (q < t->end && isdigit((unsigned char)*q)) q++;
    if (q == t->p + (*from == '-'))
      return at_mtext_fail(t, "a number is expected");
    if (q < t->end && *q == '.') {
      double ignored;
      integral = false;
      AT_TRY(at_mtext_f64(t, &ignored));
      q = t->p;
    }
  }
  // Behind the number stands its type, if any.
  t->p = q;
  const at_mtype *type = integral ? &at_mtype_i64 : &at_mtype_f64;
  if (at_mtext_accept(t, ":")) AT_TRY(at_mtext_read_type(t, &type));
  return typed_number(t, from, integral, type, out);
}

// ---- Other builtin attributes
static at_status symbol(at_mtext *t, const at_mattr **out) {
  at_str name;
  at_mattr *a;
  at_mattr_vec nested = {0};
  AT_TRY(at_mtext_symbol_name(t, &name));
  AT_TRY_ALLOC(a, (at_mattr *)at_mattr_make_symbol(&t->c, name));
  while (at_mtext_accept(t, "::@")) {
    const at_mattr *n;
    AT_TRY(at_mtext_symbol_name(t, &name));
    AT_TRY_ALLOC(n, at_mattr_make_symbol(&t->c, name));
    if (!at_vec_push(t->c.arena, &nested, n)) return AT_NO_MEMORY("symbol");
  }
  a->elems = nested.ptr;
  a->num_elems = (uint32_t)nested.len;
  *out = a;
  return AT_OK;
}

// A string may have a type behind a colon; `none` is no type. A double colon
// belongs to a symbol around it.
static at_status string(at_mtext *t, const at_mattr **out) {
  at_str s;
  at_mattr *a;
  AT_TRY(at_mtext_quoted(t, &s));
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_STRING));
  a->str = s;
  *out = a;
  if (at_mtext_at(t, "::") || !at_mtext_accept(t, ":")) return AT_OK;
  AT_TRY(at_mtext_read_type(t, &a->type));
  if (a->type->kind == AT_MTYPE_NONE) a->type = NULL;
  return AT_OK;
}

// strided<[1, ?], offset: ?>, behind the word.
static at_status strided(at_mtext *t, const at_mattr **out) {
  at_mattr *a;
  at_mi64_vec v = {0};
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_STRIDED));
  AT_TRY(at_mtext_expect(t, "<"));
  AT_TRY(at_mtext_i64_list(t, "[", "]", &v));
  if (at_mtext_accept(t, ",")) {
    AT_TRY(at_mtext_expect_word(t, "offset"));
    AT_TRY(at_mtext_expect(t, ":"));
    a->i = AT_MDYN;
    if (!at_mtext_accept(t, "?")) AT_TRY(at_mtext_i64(t, &a->i));
  }
  a->ints = (at_dims){v.ptr, (uint32_t)v.len};
  *out = a;
  return at_mtext_expect(t, ">");
}

// dense_resource<key> : type. The blob stands at the end of the file and was
// read first; a key without one has no bytes.
static at_status resource(at_mtext *t, const at_mattr **out) {
  at_mattr *a;
  at_str key;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_RESOURCE));
  AT_TRY(at_mtext_expect(t, "<"));
  if (at_mtext_at(t, "\""))
    AT_TRY(at_mtext_quoted(t, &key));
  else if (!at_mtext_word(t, &key))
    return at_mtext_fail(t, "a resource's name is expected");
  AT_TRY_ALLOC(a->name, at_mctx_intern(&t->c, key));
  AT_TRY(at_mtext_expect(t, ">"));
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_read_type(t, &a->type));
  void **slot = at_map_find(&t->resources, key);
  if (slot && *slot) a->data = *(at_bytes *)*slot;
  *out = a;
  return AT_OK;
}

// Indices and values with their types: sparse<dense<..> : t, dense<..> : t> :
// t. MLIR leaves those types out; that form is refused.
static at_status sparse(at_mtext *t, const at_mattr **out) {
  at_mattr *a;
  const at_mattr **v;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_SPARSE));
  AT_TRY_ALLOC(v, at_new(t->c.arena, const at_mattr *, 2));
  AT_TRY(at_mtext_expect(t, "<"));
  if (at_mtext_at(t, "["))
    return AT_FAIL(AT_UNIMPLEMENTED, "sparse elements without types in text");
  AT_TRY(at_mtext_read_attr(t, &v[0]));
  AT_TRY(at_mtext_expect(t, ","));
  AT_TRY(at_mtext_read_attr(t, &v[1]));
  AT_TRY(at_mtext_expect(t, ">"));
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_read_type(t, &a->type));
  a->elems = v;
  a->num_elems = 2;
  *out = a;
  return AT_OK;
}

// distinct[id]<attribute>
static at_status distinct(at_mtext *t, const at_mattr **out) {
  at_mattr *a;
  const at_mattr **v;
  AT_TRY_ALLOC(a, at_mattr_make(&t->c, AT_MATTR_DISTINCT));
  AT_TRY_ALLOC(v, at_new(t->c.arena, const at_mattr *, 1));
  AT_TRY(at_mtext_expect(t, "["));
  AT_TRY(at_mtext_i64(t, &a->i));
  AT_TRY(at_mtext_expect(t, "]"));
  AT_TRY(at_mtext_expect(t, "<"));
  *v = &at_mattr_unit;
  if (!at_mtext_at(t, ">")) AT_TRY(at_mtext_read_attr(t, v));
  a->elems = v;
  a->num_elems = 1;
  *out = a;
  return at_mtext_expect(t, ">");
}

// What begins with a word: a builtin attribute, or else a type.
static at_status word_attr(at_mtext *t, const at_mattr **out) {
  const char *back = t->p;
  at_str w;
  if (!at_mtext_word(t, &w))
    return at_mtext_fail(t, "an attribute is expected");
  if (at_str_is(w, "unit")) {
    *out = &at_mattr_unit;
    return AT_OK;
  }
  if (at_str_is(w, "true") || at_str_is(w, "false")) {
    AT_TRY_ALLOC(*out, at_mattr_make_bool(&t->c, w.len == 4));
    return AT_OK;
  }
  if (at_str_is(w, "dense")) return at_mtext_dense(t, out);
  if (at_str_is(w, "array")) return at_mtext_dense_array(t, out);
  if (at_str_is(w, "dense_resource")) return resource(t, out);
  if (at_str_is(w, "sparse")) return sparse(t, out);
  if (at_str_is(w, "affine_map")) return at_mtext_affine_map(t, out);
  if (at_str_is(w, "affine_set")) return at_mtext_affine_set(t, out);
  if (at_str_is(w, "strided")) return strided(t, out);
  if (at_str_is(w, "distinct")) return distinct(t, out);
  if (at_str_is(w, "loc")) {
    const at_mloc *l;
    AT_TRY(at_mtext_loc(t, &l));
    AT_TRY_ALLOC(*out, at_mattr_make_loc(&t->c, l));
    return AT_OK;
  }
  // None of these: the word begins a type.
  t->p = back;
  const at_mtype *type;
  AT_TRY(at_mtext_read_type(t, &type));
  AT_TRY_ALLOC(*out, at_mattr_make_type(&t->c, type));
  return AT_OK;
}

// The first character decides.
static at_status parse_attr(at_mtext *t, const at_mattr **out) {
  at_mtext_space(t);
  char c = t->p < t->end ? *t->p : 0;
  if (c == '"') return string(t, out);
  if (c == '[') return array(t, out);
  if (c == '-' || isdigit((unsigned char)c)) return at_mtext_number(t, out);
  if (c == '#') {
    t->p++;
    return at_mtext_dialect_attr(t, out);
  }
  if (c == '@') {
    t->p++;
    return symbol(t, out);
  }
  if (c == '{') {
    at_mnamed_vec v = {0};
    AT_TRY(at_mtext_dict(t, &v));
    return at_mtext_dict_make(t, &v, out);
  }
  if (c == '(' || c == '!') {
    const at_mtype *type;
    AT_TRY(at_mtext_read_type(t, &type));
    AT_TRY_ALLOC(*out, at_mattr_make_type(&t->c, type));
    return AT_OK;
  }
  return word_attr(t, out);
}

// ---- Locations
static at_status location(at_mtext *t, const at_mloc **out);

// line:column, perhaps with an end: "to line:column" or "to :column".
static at_status file_position(at_mtext *t, at_mloc *l) {
  int64_t v;
  l->kind = AT_MLOC_FILE;
  AT_TRY(at_mtext_i64(t, &v));
  l->line = l->end_line = (uint32_t)v;
  if (!at_mtext_accept(t, ":")) return AT_OK;
  AT_TRY(at_mtext_i64(t, &v));
  l->column = l->end_column = (uint32_t)v;
  if (!at_mtext_accept_word(t, "to")) return AT_OK;
  if (!at_mtext_at(t, ":")) {
    AT_TRY(at_mtext_i64(t, &v));
    l->end_line = (uint32_t)v;
  }
  AT_TRY(at_mtext_expect(t, ":"));
  AT_TRY(at_mtext_i64(t, &v));
  l->end_column = (uint32_t)v;
  return AT_OK;
}

// fused<metadata>[a, b]; the metadata is optional.
static at_status fused(at_mtext *t, at_mloc *l) {
  AT_VEC(const at_mloc *) v = {0};
  l->kind = AT_MLOC_FUSED;
  if (at_mtext_accept(t, "<")) {
    AT_TRY(at_mtext_read_attr(t, &l->metadata));
    AT_TRY(at_mtext_expect(t, ">"));
  }
  AT_TRY(at_mtext_expect(t, "["));
  if (!at_mtext_accept(t, "]")) {
    do {
      const at_mloc *one;
      AT_TRY(location(t, &one));
      if (!at_vec_push(t->c.arena, &v, one)) return AT_NO_MEMORY("location");
    } while (at_mtext_accept(t, ","));
    AT_TRY(at_mtext_expect(t, "]"));
  }
  l->locs = v.ptr;
  l->num_locs = (uint32_t)v.len;
  return AT_OK;
}

// callsite(callee at caller)
static at_status callsite(at_mtext *t, at_mloc *l) {
  l->kind = AT_MLOC_CALLSITE;
  AT_TRY(at_mtext_expect(t, "("));
  AT_TRY(location(t, &l->child));
  AT_TRY(at_mtext_expect_word(t, "at"));
  AT_TRY(location(t, &l->caller));
  return at_mtext_expect(t, ")");
}

// An alias, `unknown`, one of the forms with a word, or a quoted text, which is
// a file where a colon follows and else a name.
static at_status parse_location(at_mtext *t, const at_mloc **out) {
  at_str s;
  if (at_mtext_accept(t, "#")) {
    at_mtext_alias *alias;
    if (!at_mtext_suffix(t, &s)) return at_mtext_fail(t, "a name is expected");
    AT_TRY(at_mtext_alias_find(t, '#', s, &alias));
    if (!alias->attr || alias->attr->kind != AT_MATTR_LOCATION)
      return at_mtext_fail(t, "#%.*s is no location", (int)AT_MIN(s.len, 64),
                           s.ptr);
    *out = alias->attr->loc;
    return AT_OK;
  }
  if (at_mtext_accept_word(t, "unknown")) {
    *out = &at_mloc_unknown;
    return AT_OK;
  }
  // loc(...) may also stand inside.
  if (at_mtext_accept_word(t, "loc")) return at_mtext_loc(t, out);
  at_mloc *l;
  AT_TRY_ALLOC(l, at_new(t->c.arena, at_mloc, 1));
  *out = l;
  if (at_mtext_accept_word(t, "callsite")) return callsite(t, l);
  if (at_mtext_accept_word(t, "fused")) return fused(t, l);
  AT_TRY(at_mtext_quoted(t, &s));
  AT_TRY_ALLOC(l->text, at_mctx_intern(&t->c, s));
  if (at_mtext_accept(t, ":")) return file_position(t, l);
  l->kind = AT_MLOC_NAME;
  l->child = &at_mloc_unknown;
  if (!at_mtext_accept(t, "(")) return AT_OK;
  AT_TRY(location(t, &l->child));
  return at_mtext_expect(t, ")");
}

// Nesting is bounded by at_mtext_enter.
static at_status location(at_mtext *t, const at_mloc **out) {
  AT_TRY(at_mtext_enter(t));
  at_status s = parse_location(t, out);
  t->depth--;
  return s;
}

// (location)
at_status at_mtext_loc(at_mtext *t, const at_mloc **out) {
  AT_TRY(at_mtext_expect(t, "("));
  AT_TRY(location(t, out));
  return at_mtext_expect(t, ")");
}

// *out stays as it is where no location follows.
at_status at_mtext_opt_loc(at_mtext *t, const at_mloc **out) {
  if (!at_mtext_accept_word(t, "loc")) return AT_OK;
  return at_mtext_loc(t, out);
}
