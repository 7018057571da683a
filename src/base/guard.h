// Calls of code that may end the process: a library that aborts, throws, or
// runs out of its stack. A guarded call ends with a status instead.
//
// What it survives, on its own thread:
//   - at_guard_leave, from a handler that the library calls before it gives up;
//   - a C++ exception (std::bad_alloc) that nobody catches;
//   - abort(), and SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP where the faulting
//     instruction is of this library or of one named by at_guard_trust. In any
//     other (malloc, say) a lock may be held: that fault is the host's;
//   - the end of its stack, where signals have a stack of their own (thread.h).
// It runs on a stack of its own. When it is left, that stays as it is for ever:
// libraries keep lists of objects that lie on stacks. What the call had in hand
// is lost, too: memory leaks, its locks stay locked. So guard code that owns
// what it works on.
//
// Handlers of signals are set while a guarded call runs and hand on to those of
// the host whatever is not of a guarded call. Other threads are not touched.
#ifndef ATOLL_BASE_GUARD_H_
#define ATOLL_BASE_GUARD_H_

#include "base/status.h"

// Where sanitizers look on, the call runs on its thread's stack.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AT_HOST_SEES_FAULTS 1
#endif
#endif

// Bytes of its stack, and of one for a thread that does nothing else.
enum {
  AT_GUARD_STACK = 64 << 20,
#ifdef AT_HOST_SEES_FAULTS
  AT_GUARD_THREAD = AT_GUARD_STACK
#else
  AT_GUARD_THREAD = 512 << 10
#endif
};

// The status of fn(arg), or the one with which it was left, behind "`what`: ".
// Not in a fiber. RESOURCE_EXHAUSTED also where there is no memory for the
// stack.
at_status at_guard_run(const char *what, at_status (*fn)(void *), void *arg);
// What would be INTERNAL is RESOURCE_EXHAUSTED where memory was refused before:
// the errno of the call is ENOMEM.
// Ends the innermost guarded call of this thread with a status of `code` and
// `why` (at most 500 bytes). Returns only where there is none.
void at_guard_leave(at_code code, const char *why);
// A call may be left at any instruction of the library that holds `address`.
void at_guard_trust(const void *address);

#endif
