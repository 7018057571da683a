// The layout of XLA's foreign function interface, C API version 0.3, as jaxlib
// ships it in include/xla/ffi/api/c_api.h: only the shapes of the structs that
// cross the boundary, under our names. Every struct starts with its size and an
// extension list.
#ifndef ATOLL_EXEC_FFI_ABI_H_
#define ATOLL_EXEC_FFI_ABI_H_

#include <stddef.h>
#include <stdint.h>

enum { AT_FFI_MAJOR = 0, AT_FFI_MINOR = 3 };

typedef struct ffi_extension {
  size_t struct_size;
  int32_t type;
  struct ffi_extension *next;
} ffi_extension;
#define FFI_HEAD      \
  size_t struct_size; \
  ffi_extension *extension_start

typedef struct ffi_error
    ffi_error;  // ours: made and destroyed through the table
typedef struct ffi_future ffi_future;  // ours
typedef struct ffi_context ffi_context;

typedef struct ffi_version {
  FFI_HEAD;
  int major_version, minor_version;
} ffi_version;

typedef struct ffi_span {
  const char *ptr;
  size_t len;
} ffi_span;

typedef struct ffi_buffer {
  FFI_HEAD;
  int32_t dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} ffi_buffer;

typedef struct ffi_scalar {
  int32_t dtype;
  void *value;
} ffi_scalar;
typedef struct ffi_array {
  int32_t dtype;
  size_t size;
  void *data;
} ffi_array;

enum { FFI_BUFFER = 1 };  // the only kind of argument and of result
enum { FFI_ATTR_ARRAY = 1, FFI_ATTR_DICT, FFI_ATTR_SCALAR, FFI_ATTR_STRING };
enum { FFI_STAGE_EXECUTE = 3 };

typedef struct ffi_args {
  FFI_HEAD;
  int64_t size;
  int32_t *types;
  void **args;
} ffi_args;
typedef struct ffi_attrs {
  FFI_HEAD;
  int64_t size;
  int32_t *types;
  ffi_span **names;  // ascending: handlers find attributes by rank
  void **attrs;
} ffi_attrs;

typedef struct ffi_api ffi_api;
typedef struct ffi_call_frame {
  FFI_HEAD;
  const ffi_api *api;
  ffi_context *ctx;
  int32_t stage;
  ffi_args args, rets;
  ffi_attrs attrs;
  ffi_future *future;  // set by a handler that goes on asynchronously
} ffi_call_frame;
typedef ffi_error *(*ffi_handler)(ffi_call_frame *);

typedef struct ffi_error_create_args {
  FFI_HEAD;
  const char *message;
  int32_t code;
} ffi_error_create_args;
typedef struct ffi_error_message_args {
  FFI_HEAD;
  ffi_error *error;
  const char *message;
} ffi_error_message_args;
typedef struct ffi_error_destroy_args {
  FFI_HEAD;
  ffi_error *error;
} ffi_error_destroy_args;
typedef struct ffi_stream_args {
  FFI_HEAD;
  ffi_context *ctx;
  void *stream;
} ffi_stream_args;
typedef struct ffi_type_register_args {
  FFI_HEAD;
  ffi_span name;
  int64_t *type_id;
  const void *type_info;
} ffi_type_register_args;
typedef struct ffi_context_get_args {
  FFI_HEAD;
  ffi_context *ctx;
  int64_t *type_id;
  void *data;
} ffi_context_get_args;
typedef struct ffi_state_args {
  FFI_HEAD;
  ffi_context *ctx;
  int32_t stage;
  int64_t *type_id;
  void *state;
} ffi_state_args;
typedef struct ffi_allocate_args {
  FFI_HEAD;
  ffi_context *ctx;
  size_t size, alignment;
  void *data;
} ffi_allocate_args;
typedef struct ffi_free_args {
  FFI_HEAD;
  ffi_context *ctx;
  size_t size;
  void *data;
} ffi_free_args;
typedef struct ffi_schedule_args {
  FFI_HEAD;
  ffi_context *ctx;
  void (*task)(void *);
  void *data;
} ffi_schedule_args;
typedef struct ffi_threads_args {
  FFI_HEAD;
  ffi_context *ctx;
  int64_t *num_threads;
} ffi_threads_args;
typedef struct ffi_future_args {  // create, set available, set error
  FFI_HEAD;
  ffi_future *future;
  ffi_error *error;  // set error only
} ffi_future_args;
typedef struct ffi_run_id_args {
  FFI_HEAD;
  ffi_context *ctx;
  int64_t run_id;
} ffi_run_id_args;
typedef struct ffi_ordinal_args {
  FFI_HEAD;
  ffi_context *ctx;
  int32_t device_ordinal;
} ffi_ordinal_args;

struct ffi_api {
  FFI_HEAD;
  ffi_version version;
  const void *internal_api;
  ffi_error *(*error_create)(ffi_error_create_args *);
  void (*error_message)(ffi_error_message_args *);
  void (*error_destroy)(ffi_error_destroy_args *);
  ffi_error *(*handler_register)(void *);
  ffi_error *(*stream_get)(ffi_stream_args *);
  ffi_error *(*type_register)(ffi_type_register_args *);
  ffi_error *(*context_get)(ffi_context_get_args *);
  ffi_error *(*state_set)(ffi_state_args *);
  ffi_error *(*state_get)(ffi_state_args *);
  ffi_error *(*memory_allocate)(ffi_allocate_args *);
  ffi_error *(*memory_free)(ffi_free_args *);
  ffi_error *(*thread_schedule)(ffi_schedule_args *);
  ffi_error *(*thread_count)(ffi_threads_args *);
  ffi_error *(*future_create)(ffi_future_args *);
  ffi_error *(*future_set_available)(ffi_future_args *);
  ffi_error *(*future_set_error)(ffi_future_args *);
  ffi_error *(*run_id_get)(ffi_run_id_args *);
  ffi_error *(*device_ordinal_get)(ffi_ordinal_args *);
};

#endif
