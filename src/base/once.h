// What a process reads once, and reads again where it failed: a moment without
// memory must not leave half a table behind for good.
#ifndef ATOLL_BASE_ONCE_H_
#define ATOLL_BASE_ONCE_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"

// Static, initialised by AT_ONCE_INIT.
typedef struct at_once {
  pthread_mutex_t lock;
  _Atomic bool done;
} at_once;
#define AT_ONCE_INIT \
  { .lock = PTHREAD_MUTEX_INITIALIZER }

// Calls load(), one thread at a time, until it has succeeded once. A load that
// fails leaves things as it found them. Any thread.
static inline at_status at_once_do(at_once *o, at_status (*load)(void)) {
  if (atomic_load_explicit(&o->done, memory_order_acquire)) return AT_OK;
  pthread_mutex_lock(&o->lock);
  at_status st = AT_OK;
  if (!atomic_load_explicit(&o->done, memory_order_relaxed)) st = load();
  if (!st.err) atomic_store_explicit(&o->done, true, memory_order_release);
  pthread_mutex_unlock(&o->lock);
  return st;
}

#endif
