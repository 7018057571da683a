// UCX, loaded at run time: this library does not link to it. Only its messages
// are used. It stays loaded until the process ends.
#ifndef ATOLL_POD_UCX_H_
#define ATOLL_POD_UCX_H_

#include <ucp/api/ucp.h>

#include "base/status.h"

// Every function of UCX that wire_ucx.c calls; a version without one is not
// used.
#define AT_UCX_FUNCTIONS(X)         \
  X(ucp_config_read)                \
  X(ucp_config_modify)              \
  X(ucp_config_release)             \
  X(ucp_get_version_string)         \
  X(ucp_init_version)               \
  X(ucp_cleanup)                    \
  X(ucp_worker_create)              \
  X(ucp_worker_destroy)             \
  X(ucp_worker_get_address)         \
  X(ucp_worker_release_address)     \
  X(ucp_worker_get_efd)             \
  X(ucp_worker_arm)                 \
  X(ucp_worker_signal)              \
  X(ucp_worker_progress)            \
  X(ucp_worker_set_am_recv_handler) \
  X(ucp_ep_create)                  \
  X(ucp_ep_close_nbx)               \
  X(ucp_am_send_nbx)                \
  X(ucp_am_recv_data_nbx)           \
  X(ucp_request_free)               \
  X(ucs_status_string)

// Pointers into the library; filled in once, then constant.
typedef struct at_ucx_api {
#define X(f) __typeof__(f) *f;
  AT_UCX_FUNCTIONS(X)
#undef X
} at_ucx_api;

// Any thread. UNAVAILABLE: it is not installed, or lacks a function.
// What it does to a process when it is loaded is prevented or undone: it leaves
// no handlers of signals and no hooks in functions, and its messages go to
// base/log.h, not to stdout.
at_status at_ucx_load(const at_ucx_api **out);

#endif
