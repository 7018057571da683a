// What a checked run found, for a machine that reads it: with ATOLL_FINDINGS
// every failure of a compile or a launch, and every warning, is also a line of
// JSON in that file, whether or not anybody looks at the status:
//   {"level": "error", "stage": "run", "code": "FAILED_PRECONDITION",
//    "message": "kernel ring: race: ...\ndetail: ...\nat: ring.py:35:12 (...)"}
// Lines are appended whole (O_APPEND), so that processes may share a file. Each
// is there once per process, at most AT_FINDING_MOST of them, of at most
// AT_FINDING_TEXT bytes of message. `atoll check` reads them. Thread-safe.
#ifndef ATOLL_BASE_FINDING_H_
#define ATOLL_BASE_FINDING_H_

#include "base/log.h"
#include "base/status.h"

enum { AT_FINDING_MOST = 1000, AT_FINDING_TEXT = 16384 };

// stage: "compile", "run" or "memory". Borrows st. CANCELLED says only that
// another failed: it is not written.
void at_finding_note(at_status st, const char *stage);
// A warning or an error of the log.
void at_finding_log(at_log_level level, const char *text);

#endif
