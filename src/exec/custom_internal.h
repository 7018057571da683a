// What the files of custom calls share: how a step's arguments and attributes
// look to an XLA FFI handler, and the functions that a handler may call.
// custom.c fills in a call frame, calls the handler with it and takes its error
// or future; custom_attrs.c decodes attributes; custom_api.c is the handler's
// side.
#ifndef ATOLL_EXEC_CUSTOM_INTERNAL_H_
#define ATOLL_EXEC_CUSTOM_INTERNAL_H_

#include "exec/exec_internal.h"
#include "exec/ffi_abi.h"

// The FFI's number of an element type; -1: it has none.
int32_t at_ffi_dtype(at_dtype t);  // -1: none
// Decodes the attributes of abi/attrdict.h bytes; borrows `config`, the rest
// lives in `a`. INVALID_ARGUMENT: the bytes are malformed; RESOURCE_EXHAUSTED.
at_status at_ffi_attrs(at_bytes config, at_arena *a, ffi_attrs *out);

// What a handler's context pointer means to us. It lives as long as the call.
struct ffi_context {
  at_frame *frame;
};
// The table that every call frame carries. What custom calls on the host do not
// have (streams, state, user data) answers UNIMPLEMENTED.
extern const ffi_api at_ffi_api;
// Turns a handler's error into a status and frees it. NULL: OK.
at_status at_ffi_take_error(ffi_error *e);  // consumes; NULL: OK
// The event of a future; it has the future's one reference.
at_event *at_ffi_future_event(ffi_future *f);

#endif
