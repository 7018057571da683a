// Threads whose stack is ours: its size does not depend on the limits of the
// process, and signals have a stack of their own beside it.
#ifndef ATOLL_BASE_THREAD_H_
#define ATOLL_BASE_THREAD_H_

#include "base/span.h"
#include "base/status.h"

typedef struct at_thread at_thread;
enum { AT_THREAD_STACK = 8 << 20 };

// Starts fn(arg). `name`: at most 15 bytes; stack_bytes: at least 64 KiB. A
// failure is RESOURCE_EXHAUSTED and says what was refused and which limit
// decides. Every thread is joined.
at_status at_thread_start(const char *name, size_t stack_bytes,
                          void (*fn)(void *), void *arg, at_thread **out);
void at_thread_join(at_thread *t);  // NULL: nothing; frees t

#endif
