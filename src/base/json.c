// A reader of JSON by recursive descent (RFC 8259), no deeper than
// AT_JSON_MAX_DEPTH, and a writer. Strings are held to be UTF-8; numbers
// keep whether they are whole, as 64-bit integers do not fit a double.
// Errors say line and column: files of hardware and knobs are written by hand.
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/map.h"

// Where the reader is; at <= end.
typedef struct reader {
  const char *at, *end, *start;
  at_arena *arena;
  uint32_t depth;
  bool loose;  // a comma may stand before a closing bracket
} reader;

// The error, with line and column of where the reader is.
static at_status bad(const reader *r, const char *what) {
  size_t line = 1, column = 1;
  for (const char *p = r->start; p < r->at; p++) {
    column = *p == '\n' ? 1 : column + 1;
    line += *p == '\n';
  }
  return AT_FAIL(AT_INVALID_ARGUMENT, "JSON, line %zu column %zu: %s", line,
                 column, what);
}

// The four characters that RFC 8259 allows.
static void skip_space(reader *r) {
  while (r->at < r->end &&
         (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
    r->at++;
}

// Takes c, after white space, if it is next.
static bool eat(reader *r, char c) {
  skip_space(r);
  if (r->at >= r->end || *r->at != c) return false;
  r->at++;
  return true;
}

// Takes the word if it is next; what follows it is not looked at.
static bool eat_word(reader *r, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n)) return false;
  r->at += n;
  return true;
}

// The value of four hexadecimal digits; -1: they are none.
static int hex4(const char *p) {
  int v = 0;
  for (int i = 0; i < 4; i++) {
    char c = p[i];
    int d = c >= '0' && c <= '9'   ? c - '0'
            : c >= 'a' && c <= 'f' ? c - 'a' + 10
            : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                   : -1;
    if (d < 0) return -1;
    v = v * 16 + d;
  }
  return v;
}

// Writes a code point; `to` has room for four bytes.
static char *put_utf8(char *to, uint32_t c) {
  if (c < 0x80) return *to++ = (char)c, to;
  if (c < 0x800) {
    *to++ = (char)(0xc0 | c >> 6);
  } else {
    if (c < 0x10000) {
      *to++ = (char)(0xe0 | c >> 12);
    } else {
      *to++ = (char)(0xf0 | c >> 18);
      *to++ = (char)(0x80 | (c >> 12 & 63));
    }
    *to++ = (char)(0x80 | (c >> 6 & 63));
  }
  *to++ = (char)(0x80 | (c & 63));
  return to;
}

// The code point of \uXXXX, or of a surrogate pair; `at` is behind the 'u'.
static at_status read_unicode(reader *r, uint32_t *out) {
  int hi = r->end - r->at >= 4 ? hex4(r->at) : -1;
  if (hi < 0) return bad(r, "\\u needs four hexadecimal digits");
  r->at += 4;
  *out = (uint32_t)hi;
  if (hi < 0xd800 || hi > 0xdfff) return AT_OK;
  bool pair =
      hi < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' && r->at[1] == 'u';
  int lo = pair ? hex4(r->at + 2) : -1;
  if (lo < 0xdc00 || lo > 0xdfff) return bad(r, "half of a surrogate pair");
  r->at += 6;
  *out = 0x10000u + (((uint32_t)hi & 0x3ff) << 10) + ((uint32_t)lo & 0x3ff);
  return AT_OK;
}

// Behind the backslash. *to moves by what was written.
static at_status read_escape(reader *r, char **to) {
  if (r->at >= r->end) return bad(r, "string does not end");
  static const char from[] = "\"\\/bfnrt", plain[] = "\"\\/\b\f\n\r\t";
  char c = *r->at++;
  if (c == 'u') {
    uint32_t code = 0;
    AT_TRY(read_unicode(r, &code));
    *to = put_utf8(*to, code);
    return AT_OK;
  }
  const char *k = c ? strchr(from, c) : NULL;
  if (!k) return bad(r, "unknown escape in a string");
  *(*to)++ = plain[k - from];
  return AT_OK;
}

// Into the arena, escapes resolved: the text never gets longer by that.
static at_status read_string(reader *r, at_str *out) {
  if (!eat(r, '"')) return bad(r, "expected a string");
  const char *close = r->at;
  while (close < r->end && *close != '"') close += *close == '\\' ? 2 : 1;
  if (close >= r->end) return bad(r, "string does not end");
  char *text;  // an escape is never shorter than what it stands for
  AT_TRY_ALLOC(text, at_new(r->arena, char, (size_t)(close - r->at) + 1));
  char *to = text;
  while (r->at < close) {
    if ((uint8_t)*r->at < 0x20) return bad(r, "control character in a string");
    if (*r->at == '\\') {
      r->at++;
      AT_TRY(read_escape(r, &to));
      continue;
    }
    size_t n = at_utf8_length((const uint8_t *)r->at, (size_t)(close - r->at));
    if (!n) return bad(r, "string is not UTF-8");
    memcpy(to, r->at, n);
    to += n;
    r->at += n;
  }
  r->at++;
  *out = (at_str){text, (size_t)(to - text)};
  return AT_OK;
}

// At least one.
static bool digits(reader *r) {
  const char *from = r->at;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
  return r->at > from;
}

// RFC 8259's grammar, which is stricter than strtod's.
static at_status read_number(reader *r, at_json *v) {
  const char *from = r->at;
  bool whole = true;
  if (r->at < r->end && *r->at == '-') r->at++;
  const char *first = r->at;
  if (!digits(r) || (*first == '0' && r->at - first > 1))
    return bad(r, "expected a value");
  if (r->at < r->end && *r->at == '.') {
    whole = false;
    r->at++;
    if (!digits(r)) return bad(r, "no digit after the decimal point");
  }
  if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
    whole = false;
    r->at++;
    if (r->at < r->end && (*r->at == '+' || *r->at == '-')) r->at++;
    if (!digits(r)) return bad(r, "no digit in the exponent");
  }
  char small[64];
  size_t n = (size_t)(r->at - from);
  char *text = small;
  if (n >= sizeof small) AT_TRY_ALLOC(text, at_new(r->arena, char, n + 1));
  memcpy(text, from, n);
  text[n] = 0;
  v->kind = AT_JSON_NUMBER;
  v->number = strtod(text, NULL);
  errno = 0;
  v->integer = whole ? strtoll(text, NULL, 10) : 0;
  v->is_int = whole && errno == 0;
  return AT_OK;
}

static at_status read_value(reader *r, at_json *v);

// Whether another item follows.
static bool more(reader *r, char close) {
  if (!eat(r, ',')) return false;
  skip_space(r);
  return !(r->loose && r->at < r->end && *r->at == close);
}

// Values by commas; the bracket was taken.
static at_status read_array(reader *r, at_json *v) {
  AT_VEC(at_json) items = {0};
  v->kind = AT_JSON_ARRAY;
  if (eat(r, ']')) return AT_OK;
  do {
    at_json item;
    AT_TRY(read_value(r, &item));
    if (!at_vec_push(r->arena, &items, item)) return AT_NO_MEMORY("JSON");
  } while (more(r, ']'));
  if (!eat(r, ']')) return bad(r, "expected ',' or ']'");
  v->items = items.ptr;
  v->len = items.len;
  return AT_OK;
}

// Members by commas; the brace was taken. A key that occurs twice is an error,
// since readers differ in which one they take.
static at_status read_object(reader *r, at_json *v) {
  AT_VEC(at_json) items = {0};
  AT_VEC(at_str) keys = {0};
  at_map seen = at_map_in(r->arena);
  v->kind = AT_JSON_OBJECT;
  if (eat(r, '}')) return AT_OK;
  do {
    at_str key = {0};
    at_json item;
    AT_TRY(read_string(r, &key));
    void **place = at_map_put(&seen, key);
    if (!place) return AT_NO_MEMORY("JSON");
    if (*place) return bad(r, "this key is there twice");
    *place = r->arena;
    if (!eat(r, ':')) return bad(r, "expected ':'");
    AT_TRY(read_value(r, &item));
    if (!at_vec_push(r->arena, &items, item) ||
        !at_vec_push(r->arena, &keys, key))
      return AT_NO_MEMORY("JSON");
  } while (more(r, '}'));
  if (!eat(r, '}')) return bad(r, "expected ',' or '}'");
  v->items = items.ptr;
  v->keys = keys.ptr;
  v->len = items.len;
  return AT_OK;
}

// The only recursion, bounded by AT_JSON_MAX_DEPTH.
static at_status read_nested(reader *r, at_json *v) {
  if (++r->depth > AT_JSON_MAX_DEPTH) return bad(r, "nested too deeply");
  char open = *r->at++;
  AT_TRY(open == '[' ? read_array(r, v) : read_object(r, v));
  r->depth--;
  return AT_OK;
}

// The first character says which kind.
static at_status read_value(reader *r, at_json *v) {
  *v = (at_json){0};
  skip_space(r);
  if (r->at >= r->end) return bad(r, "the text ends where a value should be");
  switch (*r->at) {
    case '[':
    case '{':
      return read_nested(r, v);
    case '"':
      v->kind = AT_JSON_STRING;
      return read_string(r, &v->string);
    case 't':
    case 'f':
      v->kind = AT_JSON_BOOL;
      v->boolean = *r->at == 't';
      if (eat_word(r, v->boolean ? "true" : "false")) return AT_OK;
      return bad(r, "expected a value");
    case 'n':
      if (eat_word(r, "null")) return AT_OK;
      return bad(r, "expected a value");
    default:
      return read_number(r, v);
  }
}

// One value with nothing behind it.
static at_status parse(at_bytes text, bool loose, at_arena *a,
                       const at_json **out) {
  const char *p = text.len ? (const char *)text.ptr : "";
  reader r = {
      .at = p, .start = p, .end = p + text.len, .arena = a, .loose = loose};
  at_json *v;
  AT_TRY_ALLOC(v, at_new(a, at_json, 1));
  AT_TRY(read_value(&r, v));
  skip_space(&r);
  if (r.at < r.end) return bad(&r, "something follows the value");
  *out = v;
  return AT_OK;
}

at_status at_json_parse(at_bytes text, at_arena *a, const at_json **out) {
  return parse(text, false, a, out);
}

at_status at_json_parse_loose(at_bytes text, at_arena *a, const at_json **out) {
  return parse(text, true, a, out);
}

// Linear: objects of descriptions and options are small.
const at_json *at_json_get(const at_json *object, const char *key) {
  if (!object || object->kind != AT_JSON_OBJECT) return NULL;
  for (size_t i = 0; i < object->len; i++)
    if (at_str_is(object->keys[i], key)) return &object->items[i];
  return NULL;
}

at_str at_json_get_str(const at_json *object, const char *key,
                       at_str fallback) {
  const at_json *v = at_json_get(object, key);
  return v && v->kind == AT_JSON_STRING ? v->string : fallback;
}

int64_t at_json_get_int(const at_json *object, const char *key,
                        int64_t fallback) {
  const at_json *v = at_json_get(object, key);
  return v && v->kind == AT_JSON_NUMBER && v->is_int ? v->integer : fallback;
}

double at_json_get_num(const at_json *object, const char *key,
                       double fallback) {
  const at_json *v = at_json_get(object, key);
  return v && v->kind == AT_JSON_NUMBER ? v->number : fallback;
}

// ---- Writer
// A comma in front of everything but the first.
static void separate(at_json_writer *w) {
  if (w->comma) at_strbuf_addc(w->out, ',');
  w->comma = true;
}

// What follows is the first of its parent.
static void open_with(at_json_writer *w, char c) {
  separate(w);
  at_strbuf_addc(w->out, c);
  w->comma = false;
}

// What was closed was a value of its parent.
static void close_with(at_json_writer *w, char c) {
  at_strbuf_addc(w->out, c);
  w->comma = true;
}

void at_json_begin_object(at_json_writer *w) { open_with(w, '{'); }
void at_json_end_object(at_json_writer *w) { close_with(w, '}'); }
void at_json_begin_array(at_json_writer *w) { open_with(w, '['); }
void at_json_end_array(at_json_writer *w) { close_with(w, ']'); }

// Valid UTF-8 passes as it is; control characters become \u00XX, other bytes
// U+FFFD.
static void quote(at_strbuf *out, at_str s) {
  at_strbuf_addc(out, '"');
  for (size_t i = 0; i < s.len;) {
    uint8_t c = (uint8_t)s.ptr[i];
    size_t n = at_utf8_length((const uint8_t *)s.ptr + i, s.len - i);
    if (!n) {
      at_strbuf_addz(out, "\xef\xbf\xbd");
      n = 1;
    } else if (c == '"' || c == '\\') {
      at_strbuf_addc(out, '\\');
      at_strbuf_addc(out, (char)c);
    } else if (c < 0x20) {
      at_strbuf_addf(out, "\\u%04x", c);
    } else {
      at_strbuf_add(out, (at_str){s.ptr + i, n});
    }
    i += n;
  }
  at_strbuf_addc(out, '"');
}

// The value that follows brings no comma.
void at_json_key(at_json_writer *w, at_str key) {
  separate(w);
  quote(w->out, key);
  at_strbuf_addc(w->out, ':');
  w->comma = false;
}

void at_json_str(at_json_writer *w, at_str s) {
  separate(w);
  quote(w->out, s);
}
void at_json_int(at_json_writer *w, int64_t v) {
  separate(w);
  at_strbuf_addf(w->out, "%lld", (long long)v);
}
void at_json_uint(at_json_writer *w, uint64_t v) {
  separate(w);
  at_strbuf_addf(w->out, "%llu", (unsigned long long)v);
}
// Fewer digits are tried first.
void at_json_num(at_json_writer *w, double v) {
  if (!isfinite(v)) {
    at_json_null(w);
    return;
  }
  char text[32];  // as short as reads back equal
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, v);
    if (strtod(text, NULL) == v) break;
  }
  separate(w);
  at_strbuf_addz(w->out, v == 0 && signbit(v) ? "-0.0" : text);
}
void at_json_bool(at_json_writer *w, bool v) {
  separate(w);
  at_strbuf_addz(w->out, v ? "true" : "false");
}
void at_json_null(at_json_writer *w) {
  separate(w);
  at_strbuf_addz(w->out, "null");
}

// Recursion as deep as the tree, which the reader bounds.
void at_json_value(at_json_writer *w, const at_json *v) {
  switch (v->kind) {
    case AT_JSON_NULL:
      at_json_null(w);
      return;
    case AT_JSON_BOOL:
      at_json_bool(w, v->boolean);
      return;
    case AT_JSON_STRING:
      at_json_str(w, v->string);
      return;
    case AT_JSON_NUMBER:
      if (v->is_int)
        at_json_int(w, v->integer);
      else
        at_json_num(w, v->number);
      return;
    case AT_JSON_ARRAY:
      at_json_begin_array(w);
      break;
    case AT_JSON_OBJECT:
      at_json_begin_object(w);
      break;
  }
  for (size_t i = 0; i < v->len; i++) {
    if (v->kind == AT_JSON_OBJECT) at_json_key(w, v->keys[i]);
    at_json_value(w, &v->items[i]);
  }
  if (v->kind == AT_JSON_OBJECT)
    at_json_end_object(w);
  else
    at_json_end_array(w);
}

void at_json_put_str(at_json_writer *w, const char *key, at_str value) {
  at_json_key(w, at_str_of(key));
  at_json_str(w, value);
}

void at_json_put_uint(at_json_writer *w, const char *key, uint64_t value) {
  at_json_key(w, at_str_of(key));
  at_json_uint(w, value);
}

void at_json_put_ints(at_json_writer *w, const char *key, const int64_t *v,
                      uint32_t n) {
  at_json_key(w, at_str_of(key));
  at_json_begin_array(w);
  for (uint32_t i = 0; i < n; i++) at_json_int(w, v[i]);
  at_json_end_array(w);
}
