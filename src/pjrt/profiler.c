// The profiler extension: a session that can be started and stopped. Its data
// is an XSpace; one without planes is an empty message, which is what there is
// to report until the runtime records events.
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"
#include "profile/profile.h"

// A session of one client; there is one at a time in the process.
struct PLUGIN_Profiler {
  void *vtable;
  bool running;
  at_strbuf xspace;  // of the last session
};
struct PLUGIN_Profiler_Error {
  PJRT_Error error;
};

// Both kinds of errors are one object, so that error_destroy and error_message
// need no second way.
static PLUGIN_Profiler_Error *as_error(PJRT_Error *e) {
  return (PLUGIN_Profiler_Error *)e;
}
// JAX 0.10.2 leaves struct_size of these structs unset, so only pointers are
// checked.
#define CHECK(type, handle)                                              \
  do {                                                                   \
    if (!a) return as_error(at_pjrt_bad_args(#type, a, 0, 0));           \
    if (!(handle)) return as_error(at_pjrt_null_handle(#type, #handle)); \
  } while (0)

static void error_destroy(PLUGIN_Profiler_Error_Destroy_Args *a) {
  if (a && a->error) at_status_free(at_pjrt_error_take(&a->error->error));
}

static void error_message(PLUGIN_Profiler_Error_Message_Args *a) {
  if (!a) return;
  PJRT_Error_Message_Args m = {
      .struct_size = PJRT_Error_Message_Args_STRUCT_SIZE,
      .error = a->error ? &a->error->error : NULL};
  at_PJRT_Error_Message(&m);
  a->message = m.message;
  a->message_size = m.message_size;
}

// at_status's code is the API's.
static PLUGIN_Profiler_Error *error_get_code(
    PLUGIN_Profiler_Error_GetCode_Args *a) {
  CHECK(PLUGIN_Profiler_Error_GetCode_Args, a->error);
  a->code = (int)at_status_code(a->error->error.status);
  return NULL;
}

// No session runs yet.
static PLUGIN_Profiler_Error *create(PLUGIN_Profiler_Create_Args *a) {
  CHECK(PLUGIN_Profiler_Create_Args, a);
  a->profiler = calloc(1, sizeof *a->profiler);
  return a->profiler
             ? NULL
             : as_error(AT_PFAIL(AT_RESOURCE_EXHAUSTED, "out of host memory"));
}

// Events, programs and chips as an XSpace, in p->xspace. `running` is false
// from here on, also on failure.
static at_status session_end(PLUGIN_Profiler *p) {
  p->running = false;
  at_profile *events;
  AT_TRY(at_profile_stop(&events));
  at_strbuf_free(&p->xspace);
  p->xspace = (at_strbuf){0};
  at_status st = at_pjrt_profiled_stop(events, &p->xspace);
  at_profile_destroy(events);
  return st;
}

// A session that still runs is ended and thrown away.
static PLUGIN_Profiler_Error *destroy(PLUGIN_Profiler_Destroy_Args *a) {
  CHECK(PLUGIN_Profiler_Destroy_Args, a);
  if (!a->profiler) return NULL;
  if (a->profiler->running) at_status_free(session_end(a->profiler));
  at_strbuf_free(&a->profiler->xspace);
  free(a->profiler);
  return NULL;
}

// FAILED_PRECONDITION: a session runs already. Nothing runs after a failure.
static PLUGIN_Profiler_Error *start(PLUGIN_Profiler_Start_Args *a) {
  CHECK(PLUGIN_Profiler_Start_Args, a->profiler);
  at_status st = at_profile_start(0);
  if (at_ok(st)) {
    st = at_pjrt_profiled_start();
    a->profiler->running = at_ok(st);
    at_profile *none = NULL;
    if (!at_ok(st)) at_status_free(at_profile_stop(&none));
    at_profile_destroy(none);
  }
  return as_error(at_pjrt_error(st));
}

// Ends the session; what was recorded waits for collect.
static PLUGIN_Profiler_Error *stop(PLUGIN_Profiler_Stop_Args *a) {
  CHECK(PLUGIN_Profiler_Stop_Args, a->profiler);
  if (!a->profiler->running)
    return as_error(
        AT_PFAIL(AT_FAILED_PRECONDITION, "the profiler session does not run"));
  return as_error(at_pjrt_error(session_end(a->profiler)));
}

// Without a buffer: the session's own memory, which some clients read, and its
// size, for which others then bring a buffer.
static PLUGIN_Profiler_Error *collect(PLUGIN_Profiler_CollectData_Args *a) {
  CHECK(PLUGIN_Profiler_CollectData_Args, a->profiler);
  const at_strbuf *x = &a->profiler->xspace;
  if (a->buffer) {
    if (a->buffer_size_in_bytes < x->len)
      return as_error(
          AT_PFAIL(AT_INVALID_ARGUMENT,
                   "the buffer holds %zu bytes, the profile has %zu",
                   a->buffer_size_in_bytes, x->len));
    if (x->len) memcpy(a->buffer, x->ptr, x->len);
  } else {
    a->buffer = (uint8_t *)x->ptr;
  }
  a->buffer_size_in_bytes = x->len;
  return NULL;
}

static PLUGIN_Profiler_Api profiler_api = {
    // JAX 0.10.2 refuses a table of any other size than up to collect_data.
    .struct_size = offsetof(PLUGIN_Profiler_Api, consume),
    .error_destroy = error_destroy,
    .error_message = error_message,
    .error_get_code = error_get_code,
    .create = create,
    .destroy = destroy,
    .start = start,
    .stop = stop,
    .collect_data = collect,
};

PJRT_Profiler_Extension at_pjrt_profiler_extension = {
    .base = {.struct_size = PJRT_Profiler_Extension_STRUCT_SIZE,
             .type = PJRT_Extension_Type_Profiler},
    .profiler_api = &profiler_api,
};
