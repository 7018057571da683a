// A growable text buffer on the heap. An allocation failure is sticky and is
// reported once, by at_strbuf_status, so that printers need not check each
// call.
//
// Memory: the text is the buffer's own until at_strbuf_free or at_strbuf_move.
// Threads: one at a time.
#ifndef ATOLL_BASE_STRBUF_H_
#define ATOLL_BASE_STRBUF_H_

#include <stdarg.h>

#include "base/arena.h"
#include "base/status.h"

// Zeroed it is an empty buffer.
typedef struct at_strbuf {
  char *ptr;  // owned, NUL-terminated when not NULL
  size_t len, cap;
  bool failed;
} at_strbuf;

// Frees the text and makes the buffer empty and usable again, without its
// failure.
void at_strbuf_free(at_strbuf *b);
// Appends; `s` may hold NUL bytes, and must not be a part of the buffer. After
// a failure this and all that follow do nothing, so the text is a prefix of
// what was meant.
void at_strbuf_add(at_strbuf *b, at_str s);
// The same of a string that ends in NUL; NULL counts as "".
void at_strbuf_addz(at_strbuf *b, const char *z);
// One byte.
void at_strbuf_addc(at_strbuf *b, char c);
// Appends formatted text of any length; nothing where the format fails.
__attribute__((format(printf, 2, 3))) void at_strbuf_addf(at_strbuf *b,
                                                          const char *fmt, ...);
// RESOURCE_EXHAUSTED if any call since the beginning (or at_strbuf_free) had no
// memory.
at_status at_strbuf_status(const at_strbuf *b);
// Moves the text into the arena and frees the buffer. NULL where either had no
// memory; the arena remembers it (at_arena_status).
char *at_strbuf_move(at_strbuf *b, at_arena *a);
// The text so far; borrowed until the buffer changes.
static inline at_str at_strbuf_str(const at_strbuf *b) {
  return (at_str){b->ptr ? b->ptr : "", b->len};
}

// Length of the well-formed UTF-8 sequence at p, 0 when there is none.
size_t at_utf8_length(const uint8_t *p, size_t left);

#endif
