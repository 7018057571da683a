// Checks of whole structures against their laws, right after they were made:
// too dear for every run, so they are made in builds with a sanitizer and where
// ATOLL_VERIFY is on, as it is for unit tests. What is cheap is an AT_ASSERT
// (base/span.h), which every build has.
//
// Threads: any.
#ifndef ATOLL_BASE_VERIFY_H_
#define ATOLL_BASE_VERIFY_H_

#include "base/status.h"

// Are such checks to be made? ATOLL_VERIFY is read once in a process.
bool at_verifying(void);

// x holds of what was just made, or the process ends as by AT_ASSERT. x may
// take as long as making it did; it has no effect, and where it needs memory
// that is not there it is true.
#define AT_VERIFY(x)                  \
  do {                                \
    if (at_verifying()) AT_ASSERT(x); \
  } while (0)

// The same for a check that returns a status: INTERNAL is what does not hold.
// Any other error is the check's own (no memory) and says nothing.
#define AT_VERIFY_OK(e)                                                \
  do {                                                                 \
    if (at_verifying()) at_verify_status((e), #e, __FILE__, __LINE__); \
  } while (0)
// Consumes st. Returns unless its code is INTERNAL; then says its message on
// stderr and aborts.
void at_verify_status(at_status st, const char *what, const char *file,
                      int line);

#endif
