// Monotonic time, in nanoseconds, and conditions that are waited for by it.
#ifndef ATOLL_BASE_CLOCK_H_
#define ATOLL_BASE_CLOCK_H_

#include <pthread.h>
#include <stdint.h>
#include <time.h>

// Since some moment of the machine's own; never goes back.
// Does not move with the wall clock; not comparable between machines.
static inline uint64_t at_clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// A moment of at_clock_ns, for calls that take a timespec.
// Only for conditions of at_clock_cond_init: others wait by the wall clock.
static inline struct timespec at_clock_timespec(uint64_t ns) {
  return (struct timespec){(time_t)(ns / 1000000000u),
                           (long)(ns % 1000000000u)};
}

// A condition for pthread_cond_timedwait until at_clock_timespec.
// pthread_cond_destroy ends it.
static inline void at_clock_cond_init(pthread_cond_t *c) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(c, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

// One polite turn of a spin loop.
// Tells the core that another one is waited for; no system call.
static inline void at_spin_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

#endif
