// Questions of a tool (`atoll pod status`) to the controller of a pod.
//
// Errors: at_session_open's; UNAVAILABLE: the controller is gone;
// RESOURCE_EXHAUSTED.
// Threads: one at a time uses a connection.
#ifndef ATOLL_CONTROL_TOOL_H_
#define ATOLL_CONTROL_TOOL_H_

#include "base/strbuf.h"
#include "control/message.h"
#include "pod/proof.h"

// Texts are borrowed for the call.
typedef struct at_tool_options {
  // Of the controller; who says so, for messages.
  const char *address, *source;
  at_token token;
  uint32_t timeout_ms;  // 0: 10,000
} at_tool_options;

// kind: AT_MSG_STATUS (JSON is appended to *out), AT_MSG_STOP, AT_MSG_DRAIN or
// AT_MSG_ERASE
// (out may be NULL); body: of the message, may be empty. at_session_open's
// failures, UNAVAILABLE, or why the controller does not do it.
// Opens a connection, asks, waits and closes it.
at_status at_tool_ask(const at_tool_options *o, at_message_kind kind,
                      at_bytes body, at_strbuf *out);

// A trace of the whole pod, from its begin to its end: what clients, the
// controller and hosts say of themselves, in the order in which it came.
typedef struct at_tool_trace at_tool_trace;
// A list in the order in which they came.
typedef struct at_tool_spans {
  struct at_tool_spans *next;
  at_msg_spans *is;  // and its spans behind it
} at_tool_spans;
// FAILED_PRECONDITION: somebody makes one already.
// *out is written on success only, and is the caller's to free.
at_status at_tool_trace_begin(const at_tool_options *o, at_tool_trace **out);
// *out: as long as the trace; NULL: nothing has happened. Once.
// Waits until all processes have said their last spans, a few seconds at most.
// The trace is to be freed also on failure.
at_status at_tool_trace_end(at_tool_trace *x, const at_tool_spans **out);
// Ends the connection; NULL is allowed. Spans of at_tool_trace_end die with it.
void at_tool_trace_free(at_tool_trace *x);

#endif
