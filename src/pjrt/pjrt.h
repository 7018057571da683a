// The PJRT C API, version 0.114: the face that JAX sees. libatoll.so exports
// GetPjrtApi, which returns this table; everything else stays inside.
//
// Errors: every entry point returns a PJRT_Error of the status's code, message
// and hint.
// Threads: any, as PJRT has it.
#ifndef ATOLL_PJRT_PJRT_H_
#define ATOLL_PJRT_PJRT_H_

struct PJRT_Api;

// The function table; static, never freed. Every entry is set. Thread-safe.
const struct PJRT_Api *at_pjrt_api(void);

#endif
