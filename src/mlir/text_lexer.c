// Characters, words, numbers and strings: what the functions of the text reader
// are made of. Each passes over white space first, but for at_mtext_suffix and
// at_mtext_symbol_name, which continue what stands in front of them.
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "mlir/text.h"

// The text is borrowed for as long as t is used.
void at_mtext_init(at_mtext *t, at_arena *a, at_str text) {
  memset(t, 0, sizeof *t);
  t->c = (at_mctx){a, at_map_in(a)};
  t->aliases = t->resources = t->values = at_map_in(a);
  t->base = t->p = text.ptr;
  t->end = text.ptr + text.len;
}

// Lines and columns are counted only here, so that reading need not.
at_status at_mtext_fail(at_mtext *t, const char *fmt, ...) {
  char what[256];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  uint32_t line = 1, column = 1;
  for (const char *q = t->base; q < t->p; q++)
    if (*q == '\n')
      line++, column = 1;
    else
      column++;
  return AT_FAIL(AT_INVALID_ARGUMENT, "MLIR text, %u:%u: %s", line, column,
                 what);
}

// Comments run from two slashes to the end of the line.
void at_mtext_space(at_mtext *t) {
  while (t->p < t->end) {
    if (isspace((unsigned char)*t->p)) {
      t->p++;
    } else if (*t->p == '/' && t->p + 1 < t->end && t->p[1] == '/') {
      while (t->p < t->end && *t->p != '\n') t->p++;
    } else {
      return;
    }
  }
}

// Passes over white space, whatever it finds.
bool at_mtext_at(at_mtext *t, const char *lit) {
  at_mtext_space(t);
  size_t n = strlen(lit);
  return (size_t)(t->end - t->p) >= n && memcmp(t->p, lit, n) == 0;
}

// Punctuation: what follows it does not matter.
bool at_mtext_accept(at_mtext *t, const char *lit) {
  if (!at_mtext_at(t, lit)) return false;
  t->p += strlen(lit);
  return true;
}

// Of names, which may have dots.
static bool word_char(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.';
}

// Only a whole word: "dense" is not taken from "dense_resource".
bool at_mtext_accept_word(at_mtext *t, const char *word) {
  size_t n = strlen(word);
  if (!at_mtext_at(t, word)) return false;
  if ((size_t)(t->end - t->p) > n && word_char(t->p[n])) return false;
  t->p += n;
  return true;
}

at_status at_mtext_expect(at_mtext *t, const char *lit) {
  if (at_mtext_accept(t, lit)) return AT_OK;
  return at_mtext_fail(t, "'%s' is expected", lit);
}

at_status at_mtext_expect_word(at_mtext *t, const char *word) {
  if (at_mtext_accept_word(t, word)) return AT_OK;
  return at_mtext_fail(t, "'%s' is expected", word);
}

// Letters, digits, _, $ and dots, not beginning with a digit.
bool at_mtext_word(at_mtext *t, at_str *out) {
  at_mtext_space(t);
  const char *q = t->p;
  if (q == t->end || (!isalpha((unsigned char)*q) && *q != '_')) return false;
  while (q < t->end && word_char(*q)) q++;
  *out = (at_str){t->p, (size_t)(q - t->p)};
  t->p = q;
  return true;
}

// What begins with a digit is a number: %0 and not %0x.
bool at_mtext_suffix(at_mtext *t, at_str *out) {
  const char *q = t->p;
  if (q < t->end && isdigit((unsigned char)*q))
    while (q < t->end && isdigit((unsigned char)*q)) q++;
  else
    while (q < t->end && (word_char(*q) || *q == '-')) q++;
  *out = (at_str){t->p, (size_t)(q - t->p)};
  t->p = q;
  return out->len != 0;
}

// -1: no digit.
static int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = (char)tolower((unsigned char)c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Escapes are \" \\ \n \t and two hex digits. Strings do not span lines.
at_status at_mtext_quoted(at_mtext *t, at_str *out) {
  AT_TRY(at_mtext_expect(t, "\""));
  const char *q = t->p;
  while (q < t->end && *q != '"' && *q != '\n')
    q += *q == '\\' && q + 1 < t->end ? 2 : 1;
  if (q >= t->end || *q != '"') return at_mtext_fail(t, "a string has no end");
  char *s;
  size_t n = 0;
  AT_TRY_ALLOC(s, at_arena_alloc(t->c.arena, (size_t)(q - t->p) + 1, 1));
  for (const char *r = t->p; r < q; r++) {
    if (*r != '\\') {
      s[n++] = *r;
      continue;
    }
    r++;
    int hi = hex(*r), lo = r + 1 < q ? hex(r[1]) : -1;
    if (*r == '"' || *r == '\\') {
      s[n++] = *r;
    } else if (*r == 'n' || *r == 't') {
      s[n++] = *r == 'n' ? '\n' : '\t';
    } else if (hi >= 0 && lo >= 0) {
      s[n++] = (char)(hi * 16 + lo);
      r++;
    } else {
      t->p = r;
      return at_mtext_fail(t, "an unknown escape in a string");
    }
  }
  t->p = q + 1;
  *out = (at_str){s, n};
  return AT_OK;
}

// Decimal or hexadecimal, up to 64 bits; positive numbers over INT64_MAX keep
// their bits.
at_status at_mtext_i64(at_mtext *t, int64_t *out) {
  at_mtext_space(t);
  const char *q = t->p;
  bool neg = q < t->end && *q == '-';
  uint64_t v = 0;
  q += neg;
  if (q == t->end || !isdigit((unsigned char)*q))
    return at_mtext_fail(t, "an integer is expected");
  if (*q == '0' && q + 2 < t->end && q[1] == 'x' && hex(q[2]) >= 0) {
    for (q += 2; q < t->end && hex(*q) >= 0; q++) {
      if (v >> 60) return at_mtext_fail(t, "an integer is too large");
      v = v << 4 | (uint64_t)hex(*q);
    }
  } else {
    for (; q < t->end && isdigit((unsigned char)*q); q++)
      if (__builtin_mul_overflow(v, 10, &v) ||
          __builtin_add_overflow(v, (uint64_t)(*q - '0'), &v))
        return at_mtext_fail(t, "an integer is too large");
  }
  if (neg && v > 1ull << 63) return at_mtext_fail(t, "an integer is too large");
  t->p = q;
  *out = (int64_t)(neg ? 0 - v : v);
  return AT_OK;
}

// Decimal only; at most 63 characters.
at_status at_mtext_f64(at_mtext *t, double *out) {
  at_mtext_space(t);
  // strtod needs an end and no hexadecimal, so the number is copied.
  char z[64];
  size_t n = 0;
  const char *q = t->p;
  if (q < t->end && *q == '-') z[n++] = *q++;
  if (q == t->end || !isdigit((unsigned char)*q))
    return at_mtext_fail(t, "a number is expected");
  for (; q < t->end && n < sizeof z - 1; q++) {
    bool e = n && (z[n - 1] == 'e' || z[n - 1] == 'E');
    if (!isdigit((unsigned char)*q) && *q != '.' && *q != 'e' && *q != 'E' &&
        !(e && (*q == '-' || *q == '+')))
      break;
    z[n++] = *q;
  }
  z[n] = 0;
  char *stop;
  *out = strtod(z, &stop);
  if (stop == z) return at_mtext_fail(t, "a number is expected");
  t->p += stop - z;
  return AT_OK;
}

// Appends to *out.
at_status at_mtext_i64_list(at_mtext *t, const char *open, const char *close,
                            at_mi64_vec *out) {
  AT_TRY(at_mtext_expect(t, open));
  if (at_mtext_accept(t, close)) return AT_OK;
  do {
    int64_t v = AT_MDYN;
    if (!at_mtext_accept(t, "?")) AT_TRY(at_mtext_i64(t, &v));
    if (!at_vec_push(t->c.arena, out, v)) return AT_NO_MEMORY("integers");
  } while (at_mtext_accept(t, ","));
  return at_mtext_expect(t, close);
}

// Brackets nest by kind; strings are opaque and "->" closes nothing.
at_status at_mtext_balanced(at_mtext *t, at_str *out) {
  AT_TRY(at_mtext_expect(t, "<"));
  const char *start = t->p;
  char open[AT_MLIR_MAX_NESTING];
  size_t n = 1;
  open[0] = '>';
  for (; t->p < t->end; t->p++) {
    switch (*t->p) {
      case '"': {
        at_str ignored;
        AT_TRY(at_mtext_quoted(t, &ignored));
        t->p--;
        break;
      }
      case '-':
        if (t->p + 1 < t->end && t->p[1] == '>') t->p++;
        break;
      case '<':
      case '(':
      case '[':
      case '{':
        if (n == AT_LEN(open))
          return at_mtext_fail(t, "brackets are nested too deep");
        open[n++] = *t->p == '<'   ? '>'
                    : *t->p == '(' ? ')'
                    : *t->p == '[' ? ']'
                                   : '}';
        break;
      case '>':
      case ')':
      case ']':
      case '}':
        if (open[n - 1] != *t->p)
          return at_mtext_fail(t, "brackets do not match");
        if (--n == 0) {
          *out = (at_str){start, (size_t)(t->p - start)};
          t->p++;
          return AT_OK;
        }
        break;
      default:
        break;
    }
  }
  return at_mtext_fail(t, "a bracket is not closed");
}

// Bounds every recursion of the reader.
at_status at_mtext_enter(at_mtext *t) {
  if (t->depth >= AT_MLIR_MAX_NESTING)
    return at_mtext_fail(t, "the text is nested too deep");
  t->depth++;
  return AT_OK;
}

// Quoted, or as a suffix.
at_status at_mtext_symbol_name(at_mtext *t, at_str *out) {
  if (t->p < t->end && *t->p == '"') return at_mtext_quoted(t, out);
  if (!at_mtext_suffix(t, out)) return at_mtext_fail(t, "a name is expected");
  return AT_OK;
}
