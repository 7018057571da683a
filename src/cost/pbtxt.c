#include "cost/pbtxt.h"

enum { kMaxDepth = 32 };

// A position in the text; names and words borrow it.
typedef struct reader {
  at_arena *arena;
  const char *p, *end;
  uint32_t line;
} reader;

static at_status bad(const reader *r, const char *what) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "text proto, line %u: %s", r->line, what);
}

// Skips blanks and comments, counting lines.
static void skip(reader *r) {
  for (; r->p < r->end; r->p++) {
    if (*r->p == '#') {
      while (r->p < r->end && *r->p != '\n') r->p++;
      if (r->p == r->end) return;
    }
    if (*r->p == '\n')
      r->line++;
    else if (*r->p != ' ' && *r->p != '\t' && *r->p != '\r')
      return;
  }
}

// Skips blanks and takes c if it comes next.
static bool take(reader *r, char c) {
  skip(r);
  if (r->p == r->end || *r->p != c) return false;
  r->p++;
  return true;
}

// Characters of names, numbers and enumerators.
static bool in_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '+' || c == '-';
}

// The next word; empty if none comes.
static at_str word(reader *r) {
  skip(r);
  const char *from = r->p;
  while (r->p < r->end && in_word(*r->p)) r->p++;
  return (at_str){from, (size_t)(r->p - from)};
}

static int digit(char c, int base) {
  int v = c >= '0' && c <= '9'                 ? c - '0'
          : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                               : 99;
  return v < base ? v : -1;
}

// Up to `most` digits; -1: none.
static int escape_number(reader *r, int base, int most) {
  int v = -1;
  for (int i = 0; i < most && r->p < r->end && digit(*r->p, base) >= 0; i++)
    v = AT_MAX(v, 0) * base + digit(*r->p++, base);
  return v;
}

// The byte that an escape stands for, behind its backslash; -1: none.
static int escape(reader *r) {
  if (r->p == r->end) return -1;
  char c = *r->p++;
  static const char from[] = "abfnrtv\\'\"?", to[] = "\a\b\f\n\r\t\v\\'\"?";
  const char *known = c ? strchr(from, c) : NULL;
  if (known) return (unsigned char)to[known - from];
  if (c == 'x' || c == 'X') return escape_number(r, 16, 2);
  r->p--;
  int v = escape_number(r, 8, 3);
  return v > 255 ? -1 : v;
}

// Neighbouring strings join, as in C.
static at_status string(reader *r, at_str *out) {
  AT_VEC(char) text = {0};
  for (;;) {
    skip(r);
    if (r->p == r->end || (*r->p != '"' && *r->p != '\'')) break;
    char quote = *r->p++;
    for (;;) {
      if (r->p == r->end || *r->p == '\n')
        return bad(r, "a string does not end");
      char c = *r->p++;
      if (c == quote) break;
      int v = c == '\\' ? escape(r) : (unsigned char)c;
      if (v < 0) return bad(r, "unknown escape in a string");
      if (!at_vec_push(r->arena, &text, (char)v))
        return AT_NO_MEMORY("text proto");
    }
  }
  *out = (at_str){text.ptr, text.len};
  return AT_OK;
}

static at_status members(reader *r, char close, int depth, const at_pb **first);

// A message in {} or <>, a string, or a word. INVALID_ARGUMENT: nested too
// deeply.
static at_status value(reader *r, at_pb *f, int depth) {
  if (depth == kMaxDepth) return bad(r, "nested too deeply");
  if (take(r, '{') || (r->p < r->end && *r->p == '<')) {
    char close = '}';
    if (r->p[-1] != '{') r->p++, close = '>';
    f->message = true;
    return members(r, close, depth + 1, &f->first);
  }
  if (r->p < r->end && (*r->p == '"' || *r->p == '\''))
    return string(r, &f->text);
  f->text = word(r);
  return f->text.len ? AT_OK : bad(r, "a value is missing");
}

// A word, or an extension in brackets.
static at_status field_name(reader *r, at_str *out) {
  skip(r);
  if (r->p < r->end && *r->p == '[') {
    const char *from = r->p;
    while (r->p < r->end && *r->p != ']' && *r->p != '\n') r->p++;
    if (r->p == r->end || *r->p != ']')
      return bad(r, "a name's bracket does not close");
    r->p++;
    *out = (at_str){from, (size_t)(r->p - from)};
    return AT_OK;
  }
  *out = word(r);
  return out->len ? AT_OK : bad(r, "a field name is missing");
}

// One value, or a list of them, appended behind *tail.
static at_status field(reader *r, int depth, const at_pb ***tail) {
  at_str name;
  AT_TRY(field_name(r, &name));
  bool colon = take(r, ':'), list = take(r, '[');
  skip(r);
  if (!colon && !list && (r->p == r->end || (*r->p != '{' && *r->p != '<')))
    return bad(r, "neither ':' nor a message follows a name");
  if (list && take(r, ']')) return AT_OK;
  do {
    at_pb *f;
    AT_TRY_ALLOC(f, at_new(r->arena, at_pb, 1));
    skip(r);
    f->name = name, f->line = r->line;
    AT_TRY(value(r, f, depth));
    **tail = f;
    *tail = &f->next;
  } while (list && take(r, ','));
  return list && !take(r, ']') ? bad(r, "a list does not close") : AT_OK;
}

// Fields up to `close`; 0: to the end of the text.
static at_status members(reader *r, char close, int depth,
                         const at_pb **first) {
  const at_pb **tail = first;
  for (;;) {
    skip(r);
    if (r->p == r->end)
      return close ? bad(r, "a message does not close") : AT_OK;
    if (close && take(r, close)) return AT_OK;
    AT_TRY(field(r, depth, &tail));
    if (!take(r, ',')) (void)take(r, ';');
  }
}

at_status at_pb_parse(at_bytes text, at_arena *a, const at_pb **out) {
  const char *p = text.ptr ? (const char *)text.ptr : "";
  reader r = {a, p, p + text.len, 1};
  at_pb *root;
  AT_TRY_ALLOC(root, at_new(a, at_pb, 1));
  root->message = true;
  AT_TRY(members(&r, 0, 0, &root->first));
  *out = root;
  return AT_OK;
}

const at_pb *at_pb_get(const at_pb *m, const char *name) {
  for (const at_pb *f = m ? m->first : NULL; f; f = f->next)
    if (at_str_is(f->name, name)) return f;
  return NULL;
}

const at_pb *at_pb_next(const at_pb *field) {
  for (const at_pb *f = field->next; f; f = f->next)
    if (at_str_eq(f->name, field->name)) return f;
  return NULL;
}

at_str at_pb_str(const at_pb *m, const char *name) {
  const at_pb *f = at_pb_get(m, name);
  return f ? f->text : (at_str){"", 0};
}

// A decimal int64; `bad` for anything else.
static int64_t integer(at_str s, int64_t bad) {
  bool negative = s.len && *s.ptr == '-';
  int64_t v = 0;
  size_t i = negative;
  if (i == s.len) return bad;
  for (; i < s.len; i++)
    if (s.ptr[i] < '0' || s.ptr[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
        __builtin_add_overflow(v, s.ptr[i] - '0', &v))
      return bad;
  return negative ? -v : v;
}

int64_t at_pb_int(const at_pb *m, const char *name, int64_t absent,
                  int64_t bad) {
  const at_pb *f = at_pb_get(m, name);
  return f ? integer(f->text, bad) : absent;
}
