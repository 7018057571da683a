// The layout of XLA's foreign function interface, C API version 0.3, as jaxlib
// ships it in include/xla/ffi/api/c_api.h: only the shapes of the structs that
// cross the boundary, under our names. Every struct starts with its size and an
// extension list. Nothing here may be reordered or resized: handlers are
// compiled against the original.
//
// A handler is called with a call frame and returns an error, NULL for success.
// All that a frame points to is this side's and lives until the call returns;
// with a future, until the future is fired. Functions of the table take one
// struct each, inputs and outputs together, and return an error or nothing.
#ifndef ATOLL_EXEC_FFI_ABI_H_
#define ATOLL_EXEC_FFI_ABI_H_

#include <stddef.h>
#include <stdint.h>

// The version that frames announce. Minor versions add fields at the ends of
// structs.
enum { AT_FFI_MAJOR = 0, AT_FFI_MINOR = 3 };

// A list of optional parts behind a struct. None is used here.
// Unknown types are skipped by whoever reads the list.
typedef struct ffi_extension {
  size_t struct_size;
  int32_t type;
  struct ffi_extension *next;
} ffi_extension;
// What every struct begins with: its own size in bytes, so that either side can
// tell what the other knows, and extensions (NULL).
#define FFI_HEAD      \
  size_t struct_size; \
  ffi_extension *extension_start

// An opaque error: code and text.
typedef struct ffi_error
    ffi_error;  // ours: made and destroyed through the table
// An opaque promise: fired once, by any thread, with or without an error.
typedef struct ffi_future ffi_future;  // ours
// Opaque to handlers, who give it back in calls of the table
// (custom_internal.h).
typedef struct ffi_context ffi_context;

// Of the interface that a table serves.
typedef struct ffi_version {
  FFI_HEAD;
  int major_version, minor_version;
} ffi_version;

// A text or bytes; not terminated.
// Lives as long as what it was found in.
typedef struct ffi_span {
  const char *ptr;
  size_t len;
} ffi_span;

// An array, dense row-major. dtype: at_ffi_dtype; dims: `rank` sizes. Types
// under 8 bits take a byte for each element. Handlers write results' data,
// never operands'.
typedef struct ffi_buffer {
  FFI_HEAD;
  // The numbers of XLA's PrimitiveType, as in protos.
  int32_t dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} ffi_buffer;

// An attribute that is one number; `value` points to its bytes.
typedef struct ffi_scalar {
  int32_t dtype;
  void *value;
} ffi_scalar;
// An attribute that is a list of numbers. size: how many.
typedef struct ffi_array {
  int32_t dtype;
  size_t size;
  void *data;
} ffi_array;

enum { FFI_BUFFER = 1 };  // the only kind of argument and of result
// What types[i] of ffi_attrs says of attrs[i]: an ffi_array, ffi_attrs,
// ffi_scalar or ffi_span.
enum { FFI_ATTR_ARRAY = 1, FFI_ATTR_DICT, FFI_ATTR_SCALAR, FFI_ATTR_STRING };
// The only stage that is called. The others (instantiate, prepare, initialize)
// are for handlers that keep state.
enum { FFI_STAGE_EXECUTE = 3 };

// Operands or results: args[i] is an ffi_buffer, types[i] FFI_BUFFER.
typedef struct ffi_args {
  FFI_HEAD;
  int64_t size;
  int32_t *types;
  void **args;
} ffi_args;
// A dictionary: `size` names, the kinds of their values, and the values.
typedef struct ffi_attrs {
  FFI_HEAD;
  int64_t size;
  int32_t *types;
  // Ascending, since handlers find attributes by rank.
  ffi_span **names;
  void **attrs;
} ffi_attrs;

typedef struct ffi_api ffi_api;
// What a handler gets. rets: results, in the form of operands.
typedef struct ffi_call_frame {
  FFI_HEAD;
  // The table below; the same in every call.
  const ffi_api *api;
  ffi_context *ctx;
  // FFI_STAGE_EXECUTE.
  int32_t stage;
  ffi_args args, rets;
  ffi_attrs attrs;
  // Set by a handler that goes on after it has returned; buffers and the
  // context then live until it is fired.
  ffi_future *future;
} ffi_call_frame;
// A handler, as registered. The error is the caller's to destroy.
typedef ffi_error *(*ffi_handler)(ffi_call_frame *);

// error_create: a new error. code: as absl::StatusCode, which at_code is;
// message: copied.
typedef struct ffi_error_create_args {
  FFI_HEAD;
  const char *message;
  int32_t code;
} ffi_error_create_args;
// error_message: *message is borrowed from the error.
typedef struct ffi_error_message_args {
  FFI_HEAD;
  ffi_error *error;
  const char *message;
} ffi_error_message_args;
// error_destroy. NULL is allowed.
typedef struct ffi_error_destroy_args {
  FFI_HEAD;
  ffi_error *error;
} ffi_error_destroy_args;
// stream_get: always fails, as calls run on the host.
// Handlers of GPUs ask for it; those learn that there is none.
typedef struct ffi_stream_args {
  FFI_HEAD;
  ffi_context *ctx;
  void *stream;
} ffi_stream_args;
// type_register: *type_id becomes a number of the type if it is 0.
typedef struct ffi_type_register_args {
  FFI_HEAD;
  ffi_span name;
  int64_t *type_id;
  const void *type_info;
} ffi_type_register_args;
// context_get: user data by type; none here.
typedef struct ffi_context_get_args {
  FFI_HEAD;
  ffi_context *ctx;
  int64_t *type_id;
  void *data;
} ffi_context_get_args;
// state_set, state_get: fail; there is no stage before execution to set it.
typedef struct ffi_state_args {
  FFI_HEAD;
  ffi_context *ctx;
  int32_t stage;
  int64_t *type_id;
  void *state;
} ffi_state_args;
// memory_allocate: scratch of the call, alignment at most 64. The handler frees
// it.
// out: data, NULL beside an error.
typedef struct ffi_allocate_args {
  FFI_HEAD;
  ffi_context *ctx;
  size_t size, alignment;
  void *data;
} ffi_allocate_args;
// memory_free: size as allocated.
typedef struct ffi_free_args {
  FFI_HEAD;
  ffi_context *ctx;
  size_t size;
  void *data;
} ffi_free_args;
// thread_schedule: runs task(data) some time, on a thread's own stack.
typedef struct ffi_schedule_args {
  FFI_HEAD;
  ffi_context *ctx;
  void (*task)(void *);
  void *data;
} ffi_schedule_args;
// thread_count: threads that kernels of this call may use.
// out: at least 1.
typedef struct ffi_threads_args {
  FFI_HEAD;
  ffi_context *ctx;
  int64_t *num_threads;
} ffi_threads_args;
// The handler fires each future once; setting an error consumes the error.
// out of create: future, which the frame then carries.
typedef struct ffi_future_args {  // create, set available, set error
  FFI_HEAD;
  ffi_future *future;
  ffi_error *error;  // set error only
} ffi_future_args;
// run_id_get: the launch_id that the client gave.
typedef struct ffi_run_id_args {
  FFI_HEAD;
  ffi_context *ctx;
  int64_t run_id;
} ffi_run_id_args;
// device_ordinal_get: the device's id in the target.
typedef struct ffi_ordinal_args {
  FFI_HEAD;
  ffi_context *ctx;
  int32_t device_ordinal;
} ffi_ordinal_args;

// The table of every call frame. The order of the functions is the interface.
struct ffi_api {
  FFI_HEAD;
  ffi_version version;
  // Of XLA's own handlers; NULL here.
  const void *internal_api;
  ffi_error *(*error_create)(ffi_error_create_args *);
  void (*error_message)(ffi_error_message_args *);
  void (*error_destroy)(ffi_error_destroy_args *);
  // Refused: handlers are registered through PJRT.
  ffi_error *(*handler_register)(void *);
  // Fails for every handler.
  ffi_error *(*stream_get)(ffi_stream_args *);
  // Registers a type of the handler's own, by name.
  ffi_error *(*type_register)(ffi_type_register_args *);
  ffi_error *(*context_get)(ffi_context_get_args *);
  ffi_error *(*state_set)(ffi_state_args *);
  ffi_error *(*state_get)(ffi_state_args *);
  // Scratch of the chip's host memory; memory_free gives it back.
  ffi_error *(*memory_allocate)(ffi_allocate_args *);
  ffi_error *(*memory_free)(ffi_free_args *);
  // Work beside the handler, on other threads.
  ffi_error *(*thread_schedule)(ffi_schedule_args *);
  ffi_error *(*thread_count)(ffi_threads_args *);
  // For handlers that return before they are done.
  ffi_error *(*future_create)(ffi_future_args *);
  ffi_error *(*future_set_available)(ffi_future_args *);
  ffi_error *(*future_set_error)(ffi_future_args *);
  // Which launch, and on which device.
  ffi_error *(*run_id_get)(ffi_run_id_args *);
  ffi_error *(*device_ordinal_get)(ffi_ordinal_args *);
};

#endif
