// Errors. A status is one pointer: NULL is success, otherwise an owned error
// with a code, a message, and the place it came from. It must be consumed:
// returned, handed on, or released. Codes equal absl's and PJRT_Error_Code's,
// so the PJRT edge translates nothing.
//
// Errors: functions here do not fail; they return what they are given, or what
// they made of it.
// Memory: a status owns its error. at_status_free, at_code_take,
// at_status_prefix and at_status_join consume theirs, the others borrow. Texts
// that they return are the error's and last as long.
// Threads: one at a time uses an error; any may make them.
#ifndef ATOLL_BASE_STATUS_H_
#define ATOLL_BASE_STATUS_H_

#include <stdbool.h>
#include <stddef.h>

// What each is for: INVALID_ARGUMENT the input is wrong, FAILED_PRECONDITION it
// comes at the wrong time, UNIMPLEMENTED it is right but not supported,
// RESOURCE_EXHAUSTED memory or another limit, INTERNAL a bug of ours, DATA_LOSS
// a process or its bytes are gone, UNAVAILABLE it may work later.
typedef enum at_code {
  AT_OK_CODE = 0,
  AT_CANCELLED = 1,
  AT_UNKNOWN = 2,
  AT_INVALID_ARGUMENT = 3,
  AT_DEADLINE_EXCEEDED = 4,
  AT_NOT_FOUND = 5,
  AT_ALREADY_EXISTS = 6,
  AT_PERMISSION_DENIED = 7,
  AT_RESOURCE_EXHAUSTED = 8,
  AT_FAILED_PRECONDITION = 9,
  AT_ABORTED = 10,
  AT_OUT_OF_RANGE = 11,
  AT_UNIMPLEMENTED = 12,
  AT_INTERNAL = 13,
  AT_UNAVAILABLE = 14,
  AT_DATA_LOSS = 15,
  AT_UNAUTHENTICATED = 16,
} at_code;

// Opaque.
typedef struct at_error at_error;
// One word, passed by value. The compiler warns where one is dropped.
typedef struct __attribute__((warn_unused_result)) at_status {
  at_error *err;  // owned; NULL = OK
} at_status;

// The only status without an error.
#define AT_OK ((at_status){NULL})
// Makes an error. Never fails: when memory is gone it takes one of a few spare
// places, at last a static error of the same code. The message reads "what
// failed\ndetail: facts\nhint: what to do"; detail and hint are optional.
#ifndef __clang_analyzer__
#define AT_FAIL(code, ...) at_fail((code), __FILE__, __LINE__, __VA_ARGS__)
#else  // never OK: else clang-tidy follows paths that there are none of
#define AT_FAIL(code, ...) \
  ((at_status){((void)(__VA_ARGS__), (at_error *)(code))})
#endif
// What AT_FAIL calls. `file` is borrowed for good (__FILE__); the message is
// copied. AT_OK_CODE, and what is no code, become AT_UNKNOWN.
__attribute__((warn_unused_result, format(printf, 4, 5))) at_status at_fail(
    at_code code, const char *file, int line, const char *fmt, ...);

// Returns early on error. Only while the function owns nothing.
// e is evaluated once. Frames that own memory use AT_TRY_GOTO.
#define AT_TRY(e)          \
  do {                     \
    at_status s_ = (e);    \
    if (s_.err) return s_; \
  } while (0)
// Jumps to a clean-up label on error; `st` holds the error there.
#define AT_TRY_GOTO(st, e, label) \
  do {                            \
    (st) = (e);                   \
    if ((st).err) goto label;     \
  } while (0)
// An invariant that is believed, not proved: always checked, returns INTERNAL.
// For laws that other parts of the program keep; input from outside gets
// INVALID_ARGUMENT.
#define AT_ENSURE(x)                                                   \
  do {                                                                 \
    if (!(x)) return AT_FAIL(AT_INTERNAL, "broken invariant: %s", #x); \
  } while (0)

// Borrows s: an error still has to be consumed.
static inline bool at_ok(at_status s) { return s.err == NULL; }
// AT_OK_CODE for AT_OK.
at_code at_status_code(at_status s);  // borrowed
// With its detail and hint lines; as long as the error.
const char *at_status_message(at_status s);  // borrowed; "" when OK
const char *at_status_file(at_status s);     // where AT_FAIL stood
// The line in at_status_file; 0 when OK.
int at_status_line(at_status s);
const char *at_code_name(at_code code);  // "INVALID_ARGUMENT"
void at_status_free(at_status s);        // consumes
at_code at_code_take(at_status s);       // consumes, returns the code
// Independent of s; sharing an error between owners needs one clone each.
at_status at_status_clone(at_status s);  // borrows, returns an own copy
// Consumes `s` and returns it with "prefix: " before its message.
__attribute__((format(printf, 2, 3))) at_status at_status_prefix(
    at_status s, const char *fmt, ...);
// Keeps `first`; releases `second` unless `first` is OK.
at_status at_status_join(at_status first, at_status second);

#endif
