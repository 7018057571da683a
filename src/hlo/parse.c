// Reads the text form that print.c writes. The grammar is in that file's head.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "hlo/hlo_internal.h"

// Where the reader is and what it has made. p moves forward only.
typedef struct parser {
  const char *start, *p, *end;
  at_arena *a;
  at_module *m;
  at_map ids;  // id + 1 -> node
  at_str entry;
  int depth;  // of regions
} parser;

__attribute__((format(printf, 2, 3))) static at_status fail(const parser *s,
                                                            const char *fmt,
                                                            ...) {
  char text[256];
  unsigned line = 1, column = 1;
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  for (const char *q = s->start; q < s->p; q++, column++)
    if (*q == '\n') line++, column = 0;
  return AT_FAIL(AT_INVALID_ARGUMENT, "hlo text %u:%u: %s", line, column, text);
}

// ---- Tokens

// White space; the text form has no comments.
static void skip(parser *s) {
  while (s->p < s->end &&
         (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
    s->p++;
}

// Whether z comes next. Tokens need no blank behind them: "iota2" would match
// "iota".
static bool peek(parser *s, const char *z) {
  size_t n = strlen(z);
  skip(s);
  return (size_t)(s->end - s->p) >= n && memcmp(s->p, z, n) == 0;
}

// Consumes z if it comes next.
static bool accept(parser *s, const char *z) {
  if (!peek(s, z)) return false;
  s->p += strlen(z);
  return true;
}

static at_status expect(parser *s, const char *z) {
  return accept(s, z) ? AT_OK : fail(s, "expected \"%s\"", z);
}

static bool word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

// Letters, digits and underscores; empty when none comes next.
static at_str word(parser *s) {
  skip(s);
  const char *q = s->p;
  while (s->p < s->end && word_char(*s->p)) s->p++;
  return (at_str){q, (size_t)(s->p - q)};
}

// Decimal, at most 2^64 - 1.
static at_status read_uint(parser *s, uint64_t *out) {
  skip(s);
  const char *q = s->p;
  uint64_t v = 0;
  for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
    if (__builtin_mul_overflow(v, 10, &v) ||
        __builtin_add_overflow(v, (uint64_t)(*s->p - '0'), &v))
      return fail(s, "number is too large");
  if (s->p == q) return fail(s, "expected a number");
  *out = v;
  return AT_OK;
}

// A minus sign may stand apart from its digits.
static at_status read_int(parser *s, int64_t *out) {
  bool negative = accept(s, "-");
  uint64_t v;
  AT_TRY(read_uint(s, &v));
  if (v > (uint64_t)INT64_MAX + negative) return fail(s, "number is too large");
  *out = negative ? (int64_t)-v : (int64_t)v;
  return AT_OK;
}

// UINT32_MAX itself is refused, so that id + 1 fits 32 bits.
static at_status read_u32(parser *s, uint32_t *out) {
  uint64_t v;
  AT_TRY(read_uint(s, &v));
  if (v >= UINT32_MAX) return fail(s, "number is too large");
  *out = (uint32_t)v;
  return AT_OK;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Two digits at q, or -1.
static int hex_byte(const parser *s, const char *q) {
  if (s->end - q < 2) return -1;
  int high = hex_digit(q[0]), low = hex_digit(q[1]);
  return high < 0 || low < 0 ? -1 : high << 4 | low;
}

// Escapes: \" and \\, or two hex digits for any byte. The copy has no more
// bytes than the text and ends in NUL.
static at_status read_string(parser *s, at_str *out) {
  char *z;
  size_t n = 0;
  AT_TRY(expect(s, "\""));
  const char *q = s->p;
  while (q < s->end && *q != '"') q += *q == '\\' ? 2 : 1;
  if (q >= s->end) return fail(s, "string does not end");
  AT_TRY_ALLOC(z, at_arena_alloc(s->a, (size_t)(q - s->p) + 1, 1));
  while (*s->p != '"') {
    char c = *s->p++;
    if (c != '\\') {
      z[n++] = c;
    } else if (*s->p == '"' || *s->p == '\\') {
      z[n++] = *s->p++;
    } else {
      int byte = hex_byte(s, s->p);
      if (byte < 0) return fail(s, "unknown escape in a string");
      z[n++] = (char)byte;
      s->p += 2;
      if (s->p >= s->end) return fail(s, "string does not end");
    }
  }
  s->p++;
  *out = (at_str){z, n};
  return AT_OK;
}

// A string without NUL bytes.
static at_status read_text(parser *s, const char **out) {
  at_str v;
  AT_TRY(read_string(s, &v));
  if (strlen(v.ptr) != v.len) return fail(s, "string contains a zero byte");
  *out = v.ptr;
  return AT_OK;
}

// Signed numbers by commas, in brackets.
static at_status read_ints(parser *s, at_dims *out) {
  AT_VEC(int64_t) v = {0};
  AT_TRY(expect(s, "["));
  while (!accept(s, "]")) {
    int64_t x;
    if (v.len) AT_TRY(expect(s, ","));
    AT_TRY(read_int(s, &x));
    if (!at_vec_push(s->a, &v, x)) return AT_NO_MEMORY("list");
  }
  *out = (at_dims){v.ptr, (uint32_t)v.len};
  return AT_OK;
}

// ---- Types and literals

// The longest name that fits, since some names begin with others (f8E4M3,
// f8E4M3FN).
static bool read_dtype(parser *s, at_dtype *out) {
  size_t best = 0;
  skip(s);
  for (int i = 1; i < AT_DTYPE_COUNT; i++) {
    at_str text = at_str_of(at_dtype_table[i].text);
    at_str rest = {s->p, (size_t)(s->end - s->p)};
    if (text.len > best && at_str_starts(rest, text.ptr)) {
      best = text.len;
      *out = (at_dtype)i;
    }
  }
  s->p += best;
  return best != 0;
}

// dtype[dims], where a dimension is a number, ? or ?<=bound; a quantised
// element type's text follows behind !.
static at_status read_type(parser *s, at_type *out) {
  AT_VEC(int64_t) dims = {0}, bounds = {0};
  bool bounded = false;
  at_type t = {0};
  if (!read_dtype(s, &t.dtype)) return fail(s, "expected a type");
  if (t.dtype != AT_TOKEN) AT_TRY(expect(s, "["));
  while (t.dtype != AT_TOKEN && !accept(s, "]")) {
    int64_t d = AT_DYN, b = AT_DYN;
    if (dims.len) AT_TRY(expect(s, ","));
    if (!accept(s, "?")) {
      AT_TRY(read_int(s, &d));
      if (d < 0) return fail(s, "dimension is negative");
    } else if (accept(s, "<=")) {
      AT_TRY(read_int(s, &b));
      if (b < 0) return fail(s, "bound is negative");
      bounded = true;
    }
    if (!at_vec_push(s->a, &dims, d) || !at_vec_push(s->a, &bounds, b))
      return AT_NO_MEMORY("type");
  }
  t.rank = (uint32_t)dims.len;
  t.dims = dims.ptr;
  if (bounded) t.bounds = bounds.ptr;
  if (accept(s, "!")) {
    AT_TRY(read_text(s, &t.quant));
    for (const char *q = t.quant; *q; q++)
      if (*q == '"' || *q < 32) return fail(s, "malformed quantised type");
  }
  *out = t;
  return AT_OK;
}

// Most significant byte first, as print_hex writes it.
static at_status read_hex_value(parser *s, size_t bytes, uint8_t *out) {
  for (size_t i = bytes; i-- > 0; s->p += 2) {
    int byte = hex_byte(s, s->p);
    if (byte < 0) return fail(s, "expected %zu hex digits", 2 * bytes);
    out[i] = (uint8_t)byte;
  }
  return AT_OK;
}

// At most 63 characters, which strtod must take whole.
static at_status read_decimal(parser *s, double *out) {
  char z[64];
  size_t n = 0;
  skip(s);
  while (s->p < s->end && n + 1 < sizeof z &&
         (word_char(*s->p) || *s->p == '.' || *s->p == '-' || *s->p == '+'))
    z[n++] = *s->p++;
  z[n] = 0;
  char *stop;
  *out = strtod(z, &stop);
  if (!n || *stop) return fail(s, "expected a float");
  return AT_OK;
}

// Hex bits are exact, also for NaN; a decimal is rounded once to t.
static at_status read_float(parser *s, at_dtype t, uint8_t *out) {
  double v;
  if (accept(s, "0x")) return read_hex_value(s, at_dtype_bytes(t), out);
  AT_TRY(read_decimal(s, &v));
  at_store_float(t, out, v);
  return AT_OK;
}

// One element in storage form at out, which has room for it. Numbers that t
// cannot hold are refused, not wrapped.
static at_status read_element(parser *s, at_dtype t, uint8_t *out) {
  if (at_is_complex(t)) {
    at_dtype real = at_real_of(t);
    AT_TRY(expect(s, "("));
    AT_TRY(read_float(s, real, out));
    AT_TRY(expect(s, ","));
    AT_TRY(read_float(s, real, out + at_dtype_bytes(real)));
    return expect(s, ")");
  }
  if (at_is_float(t)) return read_float(s, t, out);
  int64_t v;
  if (at_is_unsigned_int(t)) {
    uint64_t u;
    AT_TRY(read_uint(s, &u));
    v = (int64_t)u;
  } else {
    AT_TRY(read_int(s, &v));
  }
  at_store_int(t, out, v);
  if (at_load_int(t, out) != v) return fail(s, "value does not fit its type");
  return AT_OK;
}

// The element as stored is what its type allows (booleans 0 or 1, and so on).
static at_status check_storage(const parser *s, at_dtype t, const uint8_t *p) {
  uint8_t again[16];
  unsigned bits = at_dtype_of(t)->bits;
  if (at_is_float(t) && bits < 8 && *p >> bits)
    return fail(s, "element is not in storage form");
  if (at_is_float(t) || at_is_complex(t)) return AT_OK;
  at_store_int(t, again, at_load_int(t, p));
  return memcmp(again, p, at_dtype_bytes(t)) == 0
             ? AT_OK
             : fail(s, "element is not in storage form");
}

// [a, b, ...] with as many elements as the type has.
static at_status read_list(parser *s, at_type t, uint8_t *data) {
  int64_t n = at_type_elements(&t);
  size_t w = at_dtype_bytes(t.dtype);
  AT_TRY(expect(s, "["));
  for (int64_t i = 0; i < n; i++) {
    if (i) AT_TRY(expect(s, ","));
    AT_TRY(read_element(s, t.dtype, data + (size_t)i * w));
    AT_TRY(check_storage(s, t.dtype, data + (size_t)i * w));
  }
  return expect(s, "]");
}

// The bytes as they are in storage, two digits each: exact for every float.
static at_status read_hex_data(parser *s, at_type t, uint8_t *data) {
  size_t w = at_dtype_bytes(t.dtype), bytes = at_type_bytes(&t);
  for (size_t i = 0; i < bytes; i++, s->p += 2) {
    int byte = hex_byte(s, s->p);
    if (byte < 0) return fail(s, "expected %zu hex digits", 2 * bytes);
    data[i] = (uint8_t)byte;
    if ((i + 1) % w == 0) AT_TRY(check_storage(s, t.dtype, data + i + 1 - w));
  }
  return AT_OK;
}

// A type, then `splat x`, hex digits, a list or one scalar.
static at_status read_literal(parser *s, const at_literal **out) {
  at_type t;
  AT_TRY(read_type(s, &t));
  if (!at_type_is_static(&t)) return fail(s, "literal of a dynamic type");
  if (t.dtype == AT_TOKEN)
    return at_literal_make(s->a, t, NULL, true, false, out);
  bool splat = accept(s, "splat");
  size_t bytes = splat ? at_dtype_bytes(t.dtype) : at_type_bytes(&t);
  // Every element takes at least one character.
  if (!splat &&
      (bytes == SIZE_MAX || at_type_elements(&t) > (int64_t)(s->end - s->p)))
    return fail(s, "literal is longer than the text");
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(s->a, bytes, 16));
  if (splat || (!t.rank && !peek(s, "[") && !peek(s, "hex"))) {
    AT_TRY(read_element(s, t.dtype, data));
    AT_TRY(check_storage(s, t.dtype, data));
  } else if (accept(s, "hex")) {
    skip(s);
    AT_TRY(read_hex_data(s, t, data));
  } else {
    AT_TRY(read_list(s, t, data));
  }
  return at_literal_make(s->a, t, data, splat, true, out);
}

// ---- Attributes

static at_status read_bool(parser *s, int64_t *out) {
  if (accept(s, "true")) return *out = 1, AT_OK;
  if (accept(s, "false")) return *out = 0, AT_OK;
  return fail(s, "expected true or false");
}

// {"key" = "value", ...}
static at_status read_dict(parser *s, at_attr *a) {
  AT_VEC(at_str) v = {0};
  AT_TRY(expect(s, "{"));
  while (!accept(s, "}")) {
    at_str key, value;
    if (v.len) AT_TRY(expect(s, ","));
    AT_TRY(read_string(s, &key));
    AT_TRY(expect(s, "="));
    AT_TRY(read_string(s, &value));
    if (!at_vec_push(s->a, &v, key) || !at_vec_push(s->a, &v, value))
      return AT_NO_MEMORY("dictionary");
  }
  a->dict.kv = v.ptr;
  a->dict.n = (uint32_t)(v.len / 2);
  return AT_OK;
}

// [[0, 1], [2, 3]]
static at_status read_groups(parser *s, at_attr *a) {
  AT_VEC(at_dims) v = {0};
  AT_TRY(expect(s, "["));
  while (!accept(s, "]")) {
    at_dims d;
    if (v.len) AT_TRY(expect(s, ","));
    AT_TRY(read_ints(s, &d));
    if (!at_vec_push(s->a, &v, d)) return AT_NO_MEMORY("groups");
  }
  a->groups.list = v.ptr;
  a->groups.n = (uint32_t)v.len;
  return AT_OK;
}

// By the names of at_enum_text.
static at_status read_enum(parser *s, at_attr *a) {
  at_str w = word(s);
  if (!at_enum_parse(a->id, w, &a->i))
    return fail(s, "\"%.*s\" is no value of %s", (int)AT_MIN(w.len, 40u), w.ptr,
                at_attr_text(a->id));
  return AT_OK;
}

// In the form of the attribute's kind (attrs.def).
static at_status read_attr_value(parser *s, at_attr *a) {
  switch (at_attr_kind_of(a->id)) {
    case AT_KIND_INT:
      return read_int(s, &a->i);
    case AT_KIND_BOOL:
      return read_bool(s, &a->i);
    case AT_KIND_FLOAT:
      return read_float(s, AT_F64, (uint8_t *)&a->f);
    case AT_KIND_STR:
    case AT_KIND_BYTES:
      return read_string(s, &a->s);
    case AT_KIND_INTS:
      return read_ints(s, &a->ints);
    case AT_KIND_ENUM:
      return read_enum(s, a);
    case AT_KIND_LITERAL:
      return read_literal(s, &a->literal);
    case AT_KIND_DICT:
      return read_dict(s, a);
    case AT_KIND_GROUPS:
      return read_groups(s, a);
    case AT_KIND_TYPE:
      break;
  }
  at_type *t;
  AT_TRY_ALLOC(t, at_new(s->a, at_type, 1));
  AT_TRY(read_type(s, t));
  a->type = t;
  return AT_OK;
}

// Lists while they are read, in the arena.
typedef AT_VEC(at_attr) attr_vec;

// {name = value, ...}, or nothing.
static at_status read_attrs(parser *s, attr_vec *out) {
  if (!accept(s, "{")) return AT_OK;
  while (!accept(s, "}")) {
    at_attr a = {0};
    if (out->len) AT_TRY(expect(s, ","));
    at_str name = word(s);
    if (!at_attr_parse(name, &a.id))
      return fail(s, "no attribute is named \"%.*s\"",
                  (int)AT_MIN(name.len, 40u), name.ptr);
    AT_TRY(expect(s, "="));
    AT_TRY(read_attr_value(s, &a));
    if (!at_vec_push(s->a, out, a)) return AT_NO_MEMORY("attributes");
  }
  return AT_OK;
}

// Locations: `@"file":line:column(name)`, one more for each caller around it.
static at_status read_loc(parser *s, const at_loc **out) {
  at_loc *first = NULL, **last = &first;
  while (accept(s, "@")) {
    at_loc *l;
    AT_TRY_ALLOC(l, at_new(s->a, at_loc, 1));
    if (peek(s, "\"")) {
      AT_TRY(read_text(s, &l->file));
      AT_TRY(expect(s, ":"));
      AT_TRY(read_u32(s, &l->line));
      AT_TRY(expect(s, ":"));
      AT_TRY(read_u32(s, &l->column));
    }
    // No blank before it: "(" may also begin what follows.
    if (s->p < s->end && *s->p == '(') {
      s->p++;
      AT_TRY(read_text(s, &l->name));
      AT_TRY(expect(s, ")"));
    }
    *last = l;
    last = (at_loc **)&l->caller;
  }
  *out = first;
  return AT_OK;
}

// ---- Graph

static at_status read_id(parser *s, uint32_t *out) {
  AT_TRY(expect(s, "%"));
  return read_u32(s, out);
}

// Keys of the map of ids: never NULL.
static const void *id_key(uint32_t id) {
  return (const void *)(uintptr_t)((size_t)id + 1);
}

// From here on %id is n.
static at_status name_node(parser *s, at_node *n, uint32_t id) {
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&s->ids, id_key(id)));
  if (*place) return fail(s, "%%%u is defined twice", id);
  *place = n;
  n->id = id;
  return AT_OK;
}

// %7, or %7.1 for its second result.
static at_status read_value(parser *s, at_value *out) {
  uint32_t id, index = 0;
  AT_TRY(read_id(s, &id));
  if (s->p < s->end && *s->p == '.') {
    s->p++;
    AT_TRY(read_u32(s, &index));
  }
  void **place = at_map_find_ptr(&s->ids, id_key(id));
  if (!place) return fail(s, "%%%u is not defined", id);
  *out = (at_value){*place, index};
  if (index >= out->node->num_results)
    return fail(s, "%%%u has %u results", id, out->node->num_results);
  return AT_OK;
}

typedef AT_VEC(at_value) value_vec;
typedef AT_VEC(at_type) type_vec;
typedef AT_VEC(at_comp *) comp_vec;
typedef AT_VEC(at_io_info) io_vec;

// "%7 =" or "%7:2": not an operand, but the node after an op without any.
static bool starts_node(parser *s) {
  if (!peek(s, "%")) return false;
  const char *q = s->p + 1;
  while (q < s->end && *q >= '0' && *q <= '9') q++;
  if (q < s->end && *q == ':') return true;
  while (q < s->end && *q == ' ') q++;
  return q < s->end && *q == '=';
}

// Operands: a list by commas, perhaps empty.
static at_status read_values(parser *s, value_vec *out) {
  while (peek(s, "%") && !starts_node(s)) {
    at_value v;
    AT_TRY(read_value(s, &v));
    if (!at_vec_push(s->a, out, v)) return AT_NO_MEMORY("values");
    if (!accept(s, ",")) break;
  }
  return AT_OK;
}

// At least one, by commas.
static at_status read_types(parser *s, type_vec *out) {
  do {
    at_type t;
    AT_TRY(read_type(s, &t));
    if (!at_vec_push(s->a, out, t)) return AT_NO_MEMORY("types");
  } while (accept(s, ","));
  return AT_OK;
}

// <alias = 0, donor, sharding = "...", ...> of a parameter or result.
static at_status read_io(parser *s, at_io_info *io) {
  *io = (at_io_info){.alias = -1};
  if (!accept(s, "<")) return AT_OK;
  for (bool first = true; !accept(s, ">"); first = false) {
    if (!first) AT_TRY(expect(s, ","));
    at_str key = word(s);
    if (at_str_is(key, "donor")) {
      io->donor = true;
      continue;
    }
    AT_TRY(expect(s, "="));
    if (at_str_is(key, "alias")) {
      uint32_t alias;
      AT_TRY(read_u32(s, &alias));
      if (alias > INT32_MAX) return fail(s, "alias is too large");
      io->alias = (int32_t)alias;
    } else if (at_str_is(key, "sharding")) {
      AT_TRY(read_text(s, &io->sharding));
    } else if (at_str_is(key, "layout")) {
      AT_TRY(read_text(s, &io->layout));
    } else if (at_str_is(key, "memory_kind")) {
      AT_TRY(read_text(s, &io->memory_kind));
    } else if (at_str_is(key, "name")) {
      AT_TRY(read_text(s, &io->name));
    } else {
      return fail(s,
                  "expected alias, donor, sharding, layout, memory_kind or "
                  "name");
    }
  }
  return AT_OK;
}

// %0: type <...> {attributes} @location
static at_status read_param(parser *s, at_comp *c, io_vec *io) {
  uint32_t id;
  at_type t;
  at_io_info info;
  attr_vec attrs = {0};
  const at_loc *loc;
  at_value v;
  AT_TRY(read_id(s, &id));
  AT_TRY(expect(s, ":"));
  AT_TRY(read_type(s, &t));
  AT_TRY(read_io(s, &info));
  AT_TRY(read_attrs(s, &attrs));
  AT_TRY(read_loc(s, &loc));
  AT_TRY(at_build_param(c, t, loc, &v));
  for (size_t i = 0; i < attrs.len; i++) {
    if (attrs.ptr[i].id == AT_ATTR_INDEX ||
        at_node_attr(v.node, attrs.ptr[i].id))
      return fail(s, "attribute \"%s\" is given twice",
                  at_attr_text(attrs.ptr[i].id));
    AT_TRY(at_node_set_attr(v.node, attrs.ptr[i]));
  }
  if (!at_vec_push(s->a, io, info)) return AT_NO_MEMORY("parameters");
  return name_node(s, v.node, id);
}

// In parentheses; io receives an entry for each.
static at_status read_params(parser *s, at_comp *c, io_vec *io) {
  AT_TRY(expect(s, "("));
  while (!accept(s, ")")) {
    if (c->num_params) AT_TRY(expect(s, ","));
    AT_TRY(read_param(s, c, io));
  }
  return AT_OK;
}

static at_status read_body(parser *s, at_comp *c);

// Regions of a node: (params) { body }, by commas, in brackets.
static at_status read_regions(parser *s, comp_vec *out) {
  // Parameters or "()" come first, so that "((" or "()" follows.
  if (!accept(s, "(")) return AT_OK;
  do {
    at_comp *c;
    io_vec io = {0};
    AT_TRY(at_region_create(s->m, &c));
    AT_TRY(read_params(s, c, &io));
    AT_TRY(read_body(s, c));
    if (!at_vec_push(s->a, out, c)) return AT_NO_MEMORY("regions");
  } while (accept(s, ","));
  return expect(s, ")");
}

// %7:2 = op operands {attributes} (regions) : types @location. Built as every
// other caller builds nodes, so what it says is checked.
static at_status read_node(parser *s, at_comp *c) {
  uint32_t id, results = 1;
  value_vec operands = {0};
  attr_vec attrs = {0};
  comp_vec regions = {0};
  type_vec types = {0};
  at_node_desc d = {0};
  at_node *n;
  AT_TRY(read_id(s, &id));
  if (accept(s, ":")) AT_TRY(read_u32(s, &results));
  AT_TRY(expect(s, "="));
  at_str op = word(s);
  if (!at_op_parse(op, &d.op) || d.op == AT_OP_PARAMETER)
    return fail(s, "no op is named \"%.*s\"", (int)AT_MIN(op.len, 40u), op.ptr);
  AT_TRY(read_values(s, &operands));
  AT_TRY(read_attrs(s, &attrs));
  AT_TRY(read_regions(s, &regions));
  if (results && accept(s, ":")) AT_TRY(read_types(s, &types));
  if (types.len != results && types.len)
    return fail(s, "%%%u declares %u results and has %zu types", id, results,
                types.len);
  AT_TRY(read_loc(s, &d.loc));
  d.operands = operands.ptr;
  d.num_operands = (uint32_t)operands.len;
  d.attrs = attrs.ptr;
  d.num_attrs = (uint32_t)attrs.len;
  d.regions = regions.ptr;
  d.num_regions = (uint32_t)regions.len;
  // Types may be left out where they can be inferred.
  static const at_type none;
  d.types = results ? types.ptr : &none;
  d.num_types = (uint32_t)types.len;
  AT_TRY(at_build(c, NULL, &d, &n));
  if (n->num_results != results)
    return fail(s, "%%%u declares %u results and has %u", id, results,
                n->num_results);
  return name_node(s, n, id);
}

// Recursion over regions, bounded by AT_MOST_NESTED.
static at_status read_body(parser *s, at_comp *c) {
  value_vec results = {0};
  if (++s->depth > AT_MOST_NESTED)
    return fail(s, "regions are nested over %d deep", AT_MOST_NESTED);
  AT_TRY(expect(s, "{"));
  while (peek(s, "%")) AT_TRY(read_node(s, c));
  AT_TRY(expect(s, "return"));
  AT_TRY(read_values(s, &results));
  AT_TRY(at_comp_return(c, results.ptr, (uint32_t)results.len));
  s->depth--;
  return expect(s, "}");
}

// The entry is the function of the name that the head gave.
static at_status read_func(parser *s) {
  at_comp *c;
  at_str name;
  io_vec params = {0}, results = {0};
  type_vec types = {0};
  const char *text;
  AT_TRY(read_text(s, &text));
  name = at_str_of(text);
  AT_TRY(at_comp_create(s->m, name, NULL, &c));
  AT_TRY(read_params(s, c, &params));
  AT_TRY(expect(s, "->"));
  AT_TRY(expect(s, "("));
  while (!accept(s, ")")) {
    at_type t;
    at_io_info io;
    if (types.len) AT_TRY(expect(s, ","));
    AT_TRY(read_type(s, &t));
    AT_TRY(read_io(s, &io));
    if (!at_vec_push(s->a, &types, t) || !at_vec_push(s->a, &results, io))
      return AT_NO_MEMORY("results");
  }
  AT_TRY(read_body(s, c));
  if (c->num_results != types.len)
    return fail(s, "\"%s\" declares %zu results and returns %u", c->name,
                types.len, c->num_results);
  for (uint32_t i = 0; i < c->num_results; i++)
    if (!at_type_eq(at_value_type(c->results[i]), &types.ptr[i]))
      return fail(s, "result %u of \"%s\" is %s", i, c->name,
                  at_type_z(at_value_type(c->results[i])).z);
  if (!at_str_eq(name, s->entry) || !s->entry.ptr) return AT_OK;
  s->m->entry = c;
  s->m->params = params.ptr;
  s->m->results = results.ptr;
  return AT_OK;
}

// hlo module "name" replicas=.. partitions=.. mesh=".." entry=".." {
static at_status read_head(parser *s) {
  at_str name;
  const char *entry;
  AT_TRY(expect(s, "hlo"));
  AT_TRY(expect(s, "module"));
  const char *text;
  AT_TRY(read_text(s, &text));
  name = at_str_of(text);
  AT_TRY(at_module_create(s->a, name, &s->m));
  for (;;) {
    if (accept(s, "replicas=")) {
      AT_TRY(read_int(s, &s->m->num_replicas));
    } else if (accept(s, "partitions=")) {
      AT_TRY(read_int(s, &s->m->num_partitions));
    } else if (accept(s, "mesh=")) {
      AT_TRY(read_text(s, &s->m->mesh_text));
    } else if (accept(s, "entry=")) {
      AT_TRY(read_text(s, &entry));
      s->entry = at_str_of(entry);
    } else {
      break;
    }
  }
  if (s->m->num_replicas < 1 || s->m->num_partitions < 1 ||
      s->m->num_replicas > INT32_MAX || s->m->num_partitions > INT32_MAX)
    return fail(s, "replicas and partitions must be positive");
  return expect(s, "{");
}

// Ids stay as they are in the text; new nodes get larger ones.
static at_status read_module(parser *s) {
  AT_TRY(read_head(s));
  while (accept(s, "func")) AT_TRY(read_func(s));
  AT_TRY(expect(s, "}"));
  skip(s);
  if (s->p != s->end) return fail(s, "text after the module");
  if (s->entry.ptr && !s->m->entry)
    return fail(s, "the entry \"%s\" is missing", s->entry.ptr);
  s->m->next_id = 0;
  for (size_t i = 0; i < s->ids.len; i++) {
    const at_node *n = s->ids.entries[i].value;
    if (n->id >= s->m->next_id) s->m->next_id = n->id + 1;
  }
  return AT_OK;
}

// The module is not verified here: at_verify says whether it keeps the laws
// that at_build does not check.
at_status at_hlo_parse(at_str text, at_arena *a, at_module **out) {
  parser s = {.start = text.ptr,
              .p = text.ptr,
              .end = text.ptr + text.len,
              .a = a,
              .ids = at_map_in(a)};
  if (!text.len) return AT_FAIL(AT_INVALID_ARGUMENT, "hlo text is empty");
  AT_TRY(read_module(&s));
  *out = s.m;
  return AT_OK;
}
