// Questions of a tool (`atoll pod status`) to the controller of a pod.
#ifndef ATOLL_CONTROL_TOOL_H_
#define ATOLL_CONTROL_TOOL_H_

#include "base/strbuf.h"
#include "control/message.h"
#include "pod/proof.h"

typedef struct at_tool_options {
  const char *address, *source;
  at_token token;
  uint32_t timeout_ms;  // 0: 10,000
} at_tool_options;

// kind: AT_MSG_STATUS (JSON is appended to *out), AT_MSG_STOP, AT_MSG_DRAIN or
// AT_MSG_ERASE
// (out may be NULL); body: of the message, may be empty. at_session_open's
// failures, UNAVAILABLE, or why the controller does not do it.
at_status at_tool_ask(const at_tool_options *o, at_message_kind kind,
                      at_bytes body, at_strbuf *out);

#endif
