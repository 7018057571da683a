// Text that grows on the heap, by doubling. The first refusal of memory is
// remembered and ends all appending.
#include "base/strbuf.h"

#include <stdio.h>
#include <stdlib.h>

void at_strbuf_free(at_strbuf *b) {
  free(b->ptr);
  *b = (at_strbuf){0};
}

// Room for `extra` bytes and a NUL; doubles from 256. A failure is remembered
// and ends all appending.
static bool reserve(at_strbuf *b, size_t extra) {
  size_t want = at_add(at_add(b->len, extra), 1);
  if (b->failed) return false;
  if (want <= b->cap) return true;
  size_t cap = AT_MAX(want, AT_MAX((size_t)256, at_mul(b->cap, 2)));
  char *p = cap == SIZE_MAX ? NULL : realloc(b->ptr, cap);
  if (!p) return b->failed = true, false;
  b->ptr = p;
  b->cap = cap;
  return true;
}

void at_strbuf_add(at_strbuf *b, at_str s) {
  AT_ASSERT(s.ptr || !s.len);
  if (!reserve(b, s.len)) return;
  if (s.len) memcpy(b->ptr + b->len, s.ptr, s.len);
  b->len += s.len;
  AT_ASSERT(b->len < b->cap);
  b->ptr[b->len] = 0;
}

void at_strbuf_addz(at_strbuf *b, const char *z) {
  at_strbuf_add(b, at_str_of(z));
}

void at_strbuf_addc(at_strbuf *b, char c) { at_strbuf_add(b, (at_str){&c, 1}); }

// Formats twice: once for the length, once into the buffer.
void at_strbuf_addf(at_strbuf *b, const char *fmt, ...) {
  va_list ap, again;
  va_start(ap, fmt);
  va_copy(again, ap);
  int n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  if (n > 0 && reserve(b, (size_t)n)) {
    vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, again);
    b->len += (size_t)n;
  }
  va_end(again);
}

at_status at_strbuf_status(const at_strbuf *b) {
  return b->failed ? AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of memory for text")
                   : AT_OK;
}

char *at_strbuf_move(at_strbuf *b, at_arena *a) {
  char *text = NULL;
  if (b->failed)
    at_arena_refuse(a);
  else
    text = at_arena_str(a, at_strbuf_str(b));
  at_strbuf_free(b);
  return text;
}

// Overlong forms, surrogates and code points over U+10FFFF are none.
size_t at_utf8_length(const uint8_t *p, size_t left) {
  if (!left) return 0;
  if (p[0] < 0x80) return 1;
  size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  if (p[0] < 0xc2 || p[0] > 0xf4 || n > left) return 0;
  for (size_t i = 1; i < n; i++)
    if ((p[i] & 0xc0) != 0x80) return 0;
  if (p[0] == 0xe0 && p[1] < 0xa0) return 0;   // overlong
  if (p[0] == 0xed && p[1] >= 0xa0) return 0;  // surrogate
  if (p[0] == 0xf0 && p[1] < 0x90) return 0;
  if (p[0] == 0xf4 && p[1] >= 0x90) return 0;
  return n;
}
