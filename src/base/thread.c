// Threads on mappings of our own, so that their size does not follow `ulimit
// -s` and a stack overflow meets a wall that no other mapping can fill.
#include "base/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/locale.h"

// One mapping: stack for signals | no access | stack.
enum {
  kPage = 4096,
  kSignals = 64 << 10,
  kWall = 64 << 10,
  kBelow = kSignals + kWall,
};

// Freed by whoever joins it.
struct at_thread {
  pthread_t id;
  uint8_t *map;
  size_t bytes;
  void (*fn)(void *);
  void *arg;
};

// Signals get a stack, so that a stack overflow can be handled, and the C
// locale holds.
static void *begin(void *arg) {
  at_thread *t = arg;
  stack_t s = {.ss_sp = t->map, .ss_size = kSignals};
  sigaltstack(&s, NULL);
  at_locale_enter();
  t->fn(t->arg);
  s.ss_flags = SS_DISABLE;
  sigaltstack(&s, NULL);
  return NULL;
}

// Sets t->map and t->bytes, or leaves nothing mapped.
static at_status map_stack(at_thread *t, size_t stack_bytes) {
  t->bytes = at_add(at_align_up(stack_bytes, kPage), kBelow);
  t->map = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (t->map == MAP_FAILED)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "no memory for a thread's stack of %zu KiB\n"
                   "hint: the process has reached its limit of memory "
                   "(`ulimit -v`, cgroup)",
                   t->bytes >> 10);
  if (!mprotect(t->map + kSignals, kWall, PROT_NONE)) return AT_OK;
  munmap(t->map, t->bytes);
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to guard a thread's stack");
}

// Everything is undone where any step fails.
at_status at_thread_start(const char *name, size_t stack_bytes,
                          void (*fn)(void *), void *arg, at_thread **out) {
  at_thread *t = calloc(1, sizeof *t);
  pthread_attr_t attr;
  if (!t) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory: a thread");
  *t = (at_thread){.fn = fn, .arg = arg};
  at_status st = map_stack(t, stack_bytes);
  if (st.err) return free(t), st;
  int err = pthread_attr_init(&attr);
  if (!err) {
    err = pthread_attr_setstack(&attr, t->map + kBelow, t->bytes - kBelow);
    if (!err) err = pthread_create(&t->id, &attr, begin, t);
    pthread_attr_destroy(&attr);
  }
  if (err) {
    munmap(t->map, t->bytes);
    free(t);
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "cannot start the thread %s: %s\n"
                   "hint: the process or its user has reached a limit of "
                   "threads or memory (`ulimit -u`, `ulimit -v`, cgroup); "
                   "ATOLL_THREADS sets how many threads run kernels",
                   name, strerror(err));
  }
  pthread_setname_np(t->id, name);
  *out = t;
  return AT_OK;
}

// The stack is unmapped once nobody runs on it.
void at_thread_join(at_thread *t) {
  if (!t) return;
  pthread_join(t->id, NULL);
  munmap(t->map, t->bytes);
  free(t);
}
