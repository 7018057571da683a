// Compiles run on a thread of their own for three reasons: LLVM and the passes
// may need more stack than the caller has, a crash inside must not take the
// process along (base/guard.h), and a caller that is interrupted (Ctrl-C in
// Python) must get its thread back at once although LLVM cannot be stopped in
// the middle.
//
// A work item is in the list g_all from its start until whoever reaps it: its
// own caller, or, after the caller has left, the next call of at_apart_run or
// the end of the process (clear). `done`, `told` and `alone` are guarded by
// g_lock; `st` is written by the work's thread before `done` and read by nobody
// before that.
#include "compile/apart.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/guard.h"
#include "base/interrupt.h"
#include "base/span.h"
#include "base/thread.h"

// How often the waiting thread asks job.leave.
enum { kAskNs = 50000000 };

typedef struct work {
  struct work *next;  // in the list of all
  at_apart_job job;
  const char *what;
  at_thread *thread;
  pthread_cond_t news;
  bool done, told, alone;  // under g_lock; alone: nobody waits
  _Atomic bool left;
  at_status st;
} work;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static work *g_all;

// The work's thread. After the unlock the item may be freed by another thread.
static void begin(void *arg) {
  work *w = arg;
  at_interrupt_watch(&w->left);
  w->st = at_guard_run(w->what, w->job.run, w->job.arg);
  pthread_mutex_lock(&g_lock);
  w->done = true;
  pthread_cond_signal(&w->news);
  pthread_mutex_unlock(&g_lock);
}

// Waits for its thread, where it has one.
static at_status work_end(work *w) {
  at_thread_join(w->thread);
  at_status st = w->st;
  pthread_cond_destroy(&w->news);
  free(w);
  return st;
}

// Takes w out of the list; it must be there.
static void unlink_locked(work *w) {
  work **at = &g_all;
  while (*at != w) at = &(*at)->next;
  *at = w->next;
}

// Clears away work that nobody waits for and that has ended; `all`: waits for
// the rest.
static void clear(bool all) {
  pthread_mutex_lock(&g_lock);
  for (work *w = g_all; w;) {
    if (!w->alone || (!w->done && !all)) {
      w = w->next;
      continue;
    }
    unlink_locked(w);
    pthread_mutex_unlock(&g_lock);
    at_apart_job job = w->job;
    at_status_free(work_end(w));
    job.drop(job.arg);
    pthread_mutex_lock(&g_lock);
    w = g_all;
  }
  pthread_mutex_unlock(&g_lock);
}

// LLVM's own data goes when the process ends: not under a thread that uses it.
static void clear_all(void) { clear(true); }
static pthread_once_t g_once = PTHREAD_ONCE_INIT;
// Registered once, when the first compile begins: atexit handlers run in
// reverse order, so this one waits before LLVM's are run.
static void at_end(void) { atexit(clear_all); }

// The waiters see `told` and go; the work itself is stopped by at_interrupt
// where it asks.
void at_apart_leave_all(void) {
  pthread_mutex_lock(&g_lock);
  for (work *w = g_all; w; w = w->next) {
    w->told = true;
    pthread_cond_signal(&w->news);
  }
  pthread_mutex_unlock(&g_lock);
}

// Neither in the list nor started; NULL: no memory.
static work *work_make(const char *what, const at_apart_job *job) {
  work *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->job = *job;
  w->what = what;
  at_clock_cond_init(&w->news);
  return w;
}

// Under the lock: until the work has ended or its waiter is to go. True: ended.
static bool wait_locked(work *w) {
  while (!w->done && !w->told) {
    const struct timespec until = at_clock_timespec(at_clock_ns() + kAskNs);
    int err = w->job.leave ? pthread_cond_timedwait(&w->news, &g_lock, &until)
                           : pthread_cond_wait(&w->news, &g_lock);
    if (err != ETIMEDOUT || w->done || w->told) continue;
    pthread_mutex_unlock(&g_lock);
    bool leave = w->job.leave();
    pthread_mutex_lock(&g_lock);
    w->told |= leave;
  }
  return w->done;
}

// Starts the work, waits, and either reaps it or leaves it in the list for
// clear(). If the thread does not start, the status is that of the start and
// nothing ran.
at_status at_apart_run(const char *what, const at_apart_job *job,
                       bool *out_left) {
  *out_left = false;
  pthread_once(&g_once, at_end);
  clear(false);
  work *w = work_make(what, job);
  if (!w) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "%s: out of host memory", what);
  at_status st =
      at_thread_start("atoll-compile", AT_GUARD_THREAD, begin, w, &w->thread);
  if (st.err)
    return at_status_join(at_status_prefix(st, "%s", what), work_end(w));
  pthread_mutex_lock(&g_lock);
  w->next = g_all;
  g_all = w;
  bool ended = wait_locked(w);
  if (ended) unlink_locked(w);
  w->alone = !ended;
  atomic_store(&w->left, !ended);
  pthread_mutex_unlock(&g_lock);
  if (ended) return work_end(w);
  *out_left = true;
  return AT_FAIL(AT_CANCELLED, "%s: interrupted", what);
}
