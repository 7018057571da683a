// Errors at the edge: an at_status inside a PJRT_Error, and the checks on
// arguments that every function makes.
#include <stdlib.h>

#include "base/finding.h"
#include "pjrt/pjrt_internal.h"

// For when there is no memory for an error.
enum { kSpares = 16 };
static struct {
  _Atomic(bool) taken;
  PJRT_Error error;
} spare[kSpares];

// For when these are gone, too; never freed.
static PJRT_Error no_memory_error;

// One of the errors that are there from the start; NULL: all are in use. Any
// thread.
static PJRT_Error *take_spare(void) {
  for (int i = 0; i < kSpares; i++)
    if (!atomic_exchange(&spare[i].taken, true)) return &spare[i].error;
  return NULL;
}

// Gives a spare back to the pool, any other to the heap. The status is the
// caller's to free before.
static void free_error(PJRT_Error *e) {
  for (int i = 0; i < kSpares; i++)
    if (e == &spare[i].error) {
      atomic_store(&spare[i].taken, false);
      return;
    }
  free(e);
}

// The error for when even the spares are gone: it has no status of its own, so
// whoever reads it makes up the text.
static bool is_static(const PJRT_Error *e) { return e == &no_memory_error; }

// Never NULL: without memory it is a spare, then the static one, which loses
// the status but keeps the code RESOURCE_EXHAUSTED.
PJRT_Error *at_pjrt_error_make(at_status s) {
  // Those of compiles and launches are known by now; arrays have no room here.
  if (at_status_code(s) == AT_RESOURCE_EXHAUSTED) at_finding_note(s, "memory");
  PJRT_Error *e = calloc(1, sizeof *e);
  if (!e) e = take_spare();
  if (!e) {
    at_status_free(s);
    return &no_memory_error;
  }
  e->status = s;
  return e;
}

// The way back, for errors that client code returns to us.
at_status at_pjrt_error_take(PJRT_Error *e) {
  if (!e) return AT_OK;
  if (is_static(e)) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  at_status s = e->status;
  free_error(e);
  return s;
}

// The hint names the constant that the client should have used and our API's
// version, as an old header is the usual cause.
PJRT_Error *at_pjrt_bad_args(const char *what, const void *args, size_t have,
                             size_t want) {
  if (!args) return AT_PFAIL(AT_INVALID_ARGUMENT, "%s: args is NULL", what);
  return AT_PFAIL(AT_INVALID_ARGUMENT,
                  "%s: struct_size is %zu, expected at least %zu\n"
                  "hint: set struct_size to %s_STRUCT_SIZE; this plug-in "
                  "implements PJRT API %d.%d",
                  what, have, want, what, PJRT_API_MAJOR, PJRT_API_MINOR);
}

// `what` is the text of the expression that was checked; its "a->" is left out,
// so that the message has the field's name.
PJRT_Error *at_pjrt_null_handle(const char *function, const char *what) {
  if (what[0] == 'a' && what[1] == '-' && what[2] == '>') what += 3;
  return AT_PFAIL(AT_INVALID_ARGUMENT, "%s: %s is NULL", function, what);
}

// A code outside of the API's range becomes UNKNOWN; of the message at most 1
// MiB is read, and a NULL one is empty.
at_status at_pjrt_status_of(PJRT_Error_Code code, const char *message,
                            size_t message_size) {
  if (code == PJRT_Error_Code_OK) return AT_OK;
  if ((int)code < AT_CANCELLED || (int)code > AT_UNAUTHENTICATED)
    code = PJRT_Error_Code_UNKNOWN;
  if (!message) message_size = 0;
  int n = message_size > 1 << 20 ? 1 << 20 : (int)message_size;
  return AT_FAIL((at_code)code, "%.*s", n, message ? message : "");
}

// The at_pjrt_callback_error: a callback that fails with code 0 fails with
// UNKNOWN, since an error cannot be OK.
static PJRT_Error *callback_error(PJRT_Error_Code code, const char *message,
                                  size_t message_size) {
  if (code == PJRT_Error_Code_OK) code = PJRT_Error_Code_UNKNOWN;
  return at_pjrt_error_make(at_pjrt_status_of(code, message, message_size));
}
PJRT_CallbackError at_pjrt_callback_error = callback_error;

// Bad args are ignored: there is no error to return one in.
void at_PJRT_Error_Destroy(PJRT_Error_Destroy_Args *a) {
  if (!a || a->struct_size < PJRT_Error_Destroy_Args_STRUCT_SIZE) return;
  if (!a->error || is_static(a->error)) return;
  at_status_free(a->error->status);
  free_error(a->error);
}

// The text lives as long as the error.
void at_PJRT_Error_Message(PJRT_Error_Message_Args *a) {
  if (!a || a->struct_size < PJRT_Error_Message_Args_STRUCT_SIZE) return;
  const char *z = !a->error             ? ""
                  : is_static(a->error) ? "out of host memory"
                                        : at_status_message(a->error->status);
  a->message = z;
  a->message_size = strlen(z);
}

// Codes of at_status are those of the API, number by number.
AT_API(Error_GetCode) {
  AT_ARGS(PJRT_Error_GetCode_Args);
  AT_HANDLE(a->error);
  a->code = is_static(a->error)
                ? PJRT_Error_Code_RESOURCE_EXHAUSTED
                : (PJRT_Error_Code)at_status_code(a->error->status);
  return NULL;
}

// Errors carry no payloads: nothing to visit.
AT_API(Error_ForEachPayload) {
  AT_ARGS(PJRT_Error_ForEachPayload_Args);
  AT_HANDLE(a->error);
  AT_HANDLE(a->visitor);
  return NULL;
}

void at_pjrt_named_int(PJRT_NamedValue *v, const char *name, int64_t value) {
  *v = (PJRT_NamedValue){.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                         .name = name,
                         .name_size = strlen(name),
                         .type = PJRT_NamedValue_kInt64,
                         .int64_value = value,
                         .value_size = 1};
}

// A list of numbers, which v borrows.
void at_pjrt_named_ints(PJRT_NamedValue *v, const char *name,
                        const int64_t *values, size_t count) {
  *v = (PJRT_NamedValue){.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                         .name = name,
                         .name_size = strlen(name),
                         .type = PJRT_NamedValue_kInt64List,
                         .int64_array_value = values,
                         .value_size = count};
}

// z ends with a zero; the value has its length.
void at_pjrt_named_str(PJRT_NamedValue *v, const char *name, const char *z) {
  *v = (PJRT_NamedValue){.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                         .name = name,
                         .name_size = strlen(name),
                         .type = PJRT_NamedValue_kString,
                         .string_value = z,
                         .value_size = strlen(z)};
}

void at_pjrt_named_float(PJRT_NamedValue *v, const char *name, float value) {
  *v = (PJRT_NamedValue){.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                         .name = name,
                         .name_size = strlen(name),
                         .type = PJRT_NamedValue_kFloat,
                         .float_value = value,
                         .value_size = 1};
}
