// Monotonic time, in nanoseconds.
#ifndef ATOLL_BASE_CLOCK_H_
#define ATOLL_BASE_CLOCK_H_

#include <stdint.h>
#include <time.h>

static inline uint64_t at_clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// One polite turn of a spin loop.
static inline void at_spin_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

#endif
