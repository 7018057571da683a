// Shared by pool.c, fiber.c and event.c only.
//
// Threads: any, but for what says "from within a fiber".
#ifndef ATOLL_BASE_PARALLEL_INTERNAL_H_
#define ATOLL_BASE_PARALLEL_INTERNAL_H_

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parallel.h"

static inline void at_futex_wait(const void *word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}
static inline void at_futex_wake(const void *word, int count) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

// How long to spin, of `ns` > 0: all of it, or not at all (at_spin_allow).
extern _Atomic bool at_spins;
static inline uint64_t at_spin_ns(uint64_t ns) {
  return atomic_load_explicit(&at_spins, memory_order_relaxed) ? ns : 0;
}

// How many forks lie between this process and the first one.
uint32_t at_fork_generation(void);

// Leaves the running fiber. `after` runs on the thread's own stack once the
// fiber's context is saved; from then on at_fiber_ready may resume it anywhere.
at_fiber *at_fiber_current(void);  // NULL outside a fiber
// From within a fiber only. `arg` may be on its stack, which stays while
// `after` has not made the fiber ready; `after` must copy what it needs after
// that.
void at_fiber_park(void (*after)(at_fiber *f, void *arg), void *arg);
// f, which is parked, goes on: on any thread of its scheduler. Once for each
// park. Any thread.
void at_fiber_ready(at_fiber *f);

#endif
