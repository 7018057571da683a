// The functions that a foreign handler may call.
#include <stdlib.h>

#include "exec/custom_internal.h"

struct ffi_error {
  at_status status;
};

// Takes over st. NULL is no answer: to a handler that means success.
static ffi_error *make_error(at_status st) {
  ffi_error *e = malloc(sizeof *e);
  if (!e) {
    // A handler must see a failure: this one is shared and never freed.
    static ffi_error no_memory;
    at_status_free(st);
    return &no_memory;
  }
  e->status = st;
  return e;
}

// UNIMPLEMENTED: `what` is not there.
static ffi_error *lacks(const char *what) {
  return make_error(AT_FAIL(AT_UNIMPLEMENTED,
                            "custom calls of this platform have no %s", what));
}

// The shared error of a failed malloc has no status and is not freed.
at_status at_ffi_take_error(ffi_error *e) {
  if (!e) return AT_OK;
  at_status st = e->status;
  if (!st.err)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a handler's error");
  free(e);
  return st;
}

// The text is copied by the status.
static ffi_error *error_create(ffi_error_create_args *a) {
  return make_error(
      AT_FAIL((at_code)a->code, "%s", a->message ? a->message : ""));
}
static void error_message(ffi_error_message_args *a) {
  a->message = at_status_message(a->error->status);
}
static void error_destroy(ffi_error_destroy_args *a) {
  if (a->error) at_status_free(at_ffi_take_error(a->error));
}

static ffi_error *handler_register(void *args) {
  return lacks("registration from inside a handler");
}
static ffi_error *stream_get(ffi_stream_args *a) {
  a->stream = NULL;
  return lacks("stream: they run on the host");
}
// Numbers are of the process and never 0.
static ffi_error *type_register(ffi_type_register_args *a) {
  static _Atomic int64_t next = 1;
  if (*a->type_id == 0) *a->type_id = atomic_fetch_add(&next, 1);
  return NULL;
}
static ffi_error *context_get(ffi_context_get_args *a) {
  a->data = NULL;
  return lacks("user data in their context");
}
static ffi_error *state_set(ffi_state_args *a) { return lacks("state"); }
static ffi_error *state_get(ffi_state_args *a) {
  a->state = NULL;
  return lacks("state");
}

// From the chip's blocks, which are aligned to 64 bytes; not accounted in HBM.
static ffi_error *memory_allocate(ffi_allocate_args *a) {
  if (a->alignment > 64) return lacks("memory aligned to more than 64 bytes");
  at_status st =
      at_chip_take_scratch(a->ctx->frame->chip, a->size, false, &a->data);
  return st.err ? make_error(st) : NULL;
}
static ffi_error *memory_free(ffi_free_args *a) {
  at_chip_give_scratch(a->ctx->frame->chip, a->data, a->size, false);
  return NULL;
}

typedef struct scheduled {
  void (*task)(void *);
  void *data;
} scheduled;
// On a fiber; the task itself gets a thread's whole stack, as foreign code may
// need it.
static void run_scheduled(void *arg) {
  scheduled s = *(scheduled *)arg;
  free(arg);
  at_fiber_call_on_thread(s.task, s.data);
}
// On a fiber that calls the task on a thread's own stack.
static ffi_error *thread_schedule(ffi_schedule_args *a) {
  scheduled *s = malloc(sizeof *s);
  if (!s)
    return make_error(AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a task"));
  *s = (scheduled){a->task, a->data};
  at_status st =
      at_sched_spawn(a->ctx->frame->chip->runtime->sched, run_scheduled, s);
  if (!st.err) return NULL;
  free(s);
  return make_error(st);
}
static ffi_error *thread_count(ffi_threads_args *a) {
  *a->num_threads = at_pool_threads(a->ctx->frame->pool);
  return NULL;
}

// A future is an event.
at_event *at_ffi_future_event(ffi_future *f) { return (at_event *)f; }
static ffi_error *future_create(ffi_future_args *a) {
  a->future = (ffi_future *)at_event_create();
  if (a->future) return NULL;
  return make_error(AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a future"));
}
static ffi_error *future_set_available(ffi_future_args *a) {
  at_event_fire(at_ffi_future_event(a->future), AT_OK);
  return NULL;
}
// Consumes the error, as the interface says.
static ffi_error *future_set_error(ffi_future_args *a) {
  at_event_fire(at_ffi_future_event(a->future), at_ffi_take_error(a->error));
  return NULL;
}

static ffi_error *run_id_get(ffi_run_id_args *a) {
  a->run_id = a->ctx->frame->launch_id;
  return NULL;
}
static ffi_error *device_ordinal_get(ffi_ordinal_args *a) {
  a->device_ordinal = (int32_t)a->ctx->frame->chip->info.id;
  return NULL;
}

const ffi_api at_ffi_api = {
    .struct_size = sizeof(ffi_api),
    .version = {.struct_size = sizeof(ffi_version),
                .major_version = AT_FFI_MAJOR,
                .minor_version = AT_FFI_MINOR},
    .error_create = error_create,
    .error_message = error_message,
    .error_destroy = error_destroy,
    .handler_register = handler_register,
    .stream_get = stream_get,
    .type_register = type_register,
    .context_get = context_get,
    .state_set = state_set,
    .state_get = state_get,
    .memory_allocate = memory_allocate,
    .memory_free = memory_free,
    .thread_schedule = thread_schedule,
    .thread_count = thread_count,
    .future_create = future_create,
    .future_set_available = future_set_available,
    .future_set_error = future_set_error,
    .run_id_get = run_id_get,
    .device_ordinal_get = device_ordinal_get,
};
