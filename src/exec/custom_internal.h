#ifndef ATOLL_EXEC_CUSTOM_INTERNAL_H_
#define ATOLL_EXEC_CUSTOM_INTERNAL_H_

#include "exec/exec_internal.h"
#include "exec/ffi_abi.h"

int32_t at_ffi_dtype(at_dtype t);  // -1: none
// The attributes of abi/attrdict.h bytes; borrows `config`, the rest lives in
// `a`.
at_status at_ffi_attrs(at_bytes config, at_arena *a, ffi_attrs *out);

// What a handler's context pointer means to us.
struct ffi_context {
  at_frame *frame;
};
extern const ffi_api at_ffi_api;
at_status at_ffi_take_error(ffi_error *e);  // consumes; NULL: OK
at_event *at_ffi_future_event(ffi_future *f);

#endif
