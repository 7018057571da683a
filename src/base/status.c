// Errors as objects of one allocation each. Reporting must not fail where
// memory is gone: then an error takes one of sixteen spare places, and at last
// a static object of its code.
#include "base/status.h"

#include "base/strbuf.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Who frees it: malloc's heap, the table of spares, or nobody.
typedef enum at_error_place { ON_HEAP, IN_SPARE, IS_STATIC } at_error_place;

struct at_error {
  at_code code;
  int line;
  at_error_place place;
  const char *file;
  char *message;  // inside the same allocation
};

// For when the heap is gone: errors must still travel, and say what they can.
enum { kSpares = 16, kSpareText = 480 };
static struct {
  _Atomic bool taken;
  at_error e;
  char text[kSpareText];
} g_spare[kSpares];

// NULL: all are taken.
static at_error *take_spare(void) {
  for (int i = 0; i < kSpares; i++)
    if (!atomic_exchange(&g_spare[i].taken, true)) return &g_spare[i].e;
  return NULL;
}

// e is one of the table.
static void give_spare(const at_error *e) {
  for (int i = 0; i < kSpares; i++)
    if (&g_spare[i].e == e) atomic_store(&g_spare[i].taken, false);
}

// One per code, for when these are gone, too.
static at_error g_static[17] = {
#define S(c)                  \
  [c] = {c, 0, IS_STATIC, "", \
         (char *)"out of host memory while reporting an error"}
    S(1), S(2),  S(3),  S(4),  S(5),  S(6),  S(7),  S(8),
    S(9), S(10), S(11), S(12), S(13), S(14), S(15), S(16),
#undef S
};

// The guarded call that it is in, if any, ends with a status: abort() is caught
// there.
void at_assert_fail(const char *what, const char *file, int line) {
  fprintf(stderr, "atoll: %s:%d: `%s` does not hold: a bug of Atoll's\n", file,
          line, what);
  abort();
}

// Error and message are one allocation. Falls back to a spare, whose text is
// cut, and then to a static one.
static at_status make(at_code code, const char *file, int line,
                      const char *message, size_t len) {
  if (code <= AT_OK_CODE || code > AT_UNAUTHENTICATED) code = AT_UNKNOWN;
  at_error *e = malloc(sizeof *e + len + 1);
  at_error_place place = e ? ON_HEAP : IN_SPARE;
  if (!e) e = take_spare();
  if (!e) return (at_status){&g_static[code]};
  if (place == IN_SPARE) len = AT_MIN(len, (size_t)kSpareText - 1);
  *e = (at_error){code, line, place, file, (char *)(e + 1)};
  memcpy(e->message, message, len);
  e->message[len] = 0;
  return (at_status){e};
}

// Whoever shows a message expects text: bytes of hostile input that are none
// become question marks.
static void keep_text(char *text, size_t n) {
  for (size_t i = 0, step; i < n; i += step) {
    step = at_utf8_length((const uint8_t *)text + i, n - i);
    if (step) continue;
    text[i] = '?';
    step = 1;
  }
}

// Long messages are formatted on the heap, or cut where there is none.
static at_status make_v(at_code code, const char *file, int line,
                        const char *fmt, va_list ap) {
  char small[512], *text = small;
  va_list again;
  va_copy(again, ap);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  if (n < 0) n = 0, small[0] = 0;
  if ((size_t)n >= sizeof small) {
    text = malloc((size_t)n + 1);
    if (text)
      vsnprintf(text, (size_t)n + 1, fmt, again);
    else
      text = small, n = (int)sizeof small - 1;
  }
  va_end(again);
  keep_text(text, (size_t)n);
  at_status s = make(code, file, line, text, (size_t)n);
  if (text != small) free(text);
  return s;
}

at_status at_fail(at_code code, const char *file, int line, const char *fmt,
                  ...) {
  va_list ap;
  va_start(ap, fmt);
  at_status s = make_v(code, file, line, fmt, ap);
  va_end(ap);
  return s;
}

at_code at_status_code(at_status s) { return s.err ? s.err->code : AT_OK_CODE; }
const char *at_status_message(at_status s) {
  return s.err ? s.err->message : "";
}
const char *at_status_file(at_status s) { return s.err ? s.err->file : ""; }
int at_status_line(at_status s) { return s.err ? s.err->line : 0; }

// By number; "?" for what is no code.
const char *at_code_name(at_code code) {
  static const char *const names[] = {"OK",
                                      "CANCELLED",
                                      "UNKNOWN",
                                      "INVALID_ARGUMENT",
                                      "DEADLINE_EXCEEDED",
                                      "NOT_FOUND",
                                      "ALREADY_EXISTS",
                                      "PERMISSION_DENIED",
                                      "RESOURCE_EXHAUSTED",
                                      "FAILED_PRECONDITION",
                                      "ABORTED",
                                      "OUT_OF_RANGE",
                                      "UNIMPLEMENTED",
                                      "INTERNAL",
                                      "UNAVAILABLE",
                                      "DATA_LOSS",
                                      "UNAUTHENTICATED"};
  return (unsigned)code < sizeof names / sizeof *names ? names[code] : "?";
}

// Static ones are shared and stay.
void at_status_free(at_status s) {
  if (!s.err || s.err->place == IS_STATIC) return;
  if (s.err->place == IN_SPARE)
    give_spare(s.err);
  else
    free(s.err);
}

at_code at_code_take(at_status s) {
  at_code code = at_status_code(s);
  at_status_free(s);
  return code;
}

// Static ones are shared.
at_status at_status_clone(at_status s) {
  if (!s.err || s.err->place == IS_STATIC) return s;
  return make(s.err->code, s.err->file, s.err->line, s.err->message,
              strlen(s.err->message));
}

// Where there is no memory for the longer message the shorter one stays.
at_status at_status_prefix(at_status s, const char *fmt, ...) {
  if (!s.err || s.err->place == IS_STATIC) return s;
  va_list ap;
  va_start(ap, fmt);
  at_status head = make_v(s.err->code, s.err->file, s.err->line, fmt, ap);
  va_end(ap);
  if (head.err->place == IS_STATIC) return s;  // it says more alone
  at_status both = at_fail(s.err->code, s.err->file, s.err->line, "%s: %s",
                           head.err->message, s.err->message);
  at_status_free(head);
  if (both.err->place == IS_STATIC) return s;
  at_status_free(s);
  return both;
}

at_status at_status_join(at_status first, at_status second) {
  if (!first.err) return second;
  at_status_free(second);
  return first;
}
