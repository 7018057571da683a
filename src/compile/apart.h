// Work on a thread of its own: with a deep stack, guarded (base/guard.h), and
// so that whoever waits for it may go away.
#ifndef ATOLL_COMPILE_APART_H_
#define ATOLL_COMPILE_APART_H_

#include <stdbool.h>

#include "base/status.h"

// One piece of work.
typedef struct at_apart_job {
  // Runs on the other thread; its status is at_apart_run's.
  at_status (*run)(void *arg);
  // Frees what `arg` owns, itself included; the status was nobody's.
  void (*drop)(void *arg);
  void *arg;
  // Asked now and then by the thread that waits; true: it goes. NULL: it stays.
  bool (*leave)(void);
} at_apart_job;

// The status of run(arg), which `what` could not do where it had to be left.
// `arg` is then the caller's. *out_left: the caller went before, the status is
// CANCELLED, and `arg` is the work's, which drops it when it has ended: soon
// (base/interrupt.h). The end of the process waits for that.
at_status at_apart_run(const char *what, const at_apart_job *job,
                       bool *out_left);
// Everybody who waits in at_apart_run goes. Thread-safe.
void at_apart_leave_all(void);

#endif
