#include "base/linger.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/span.h"

enum {
  kMostDoubts = 5,        // then it is not worth trying
  kRetry = 16,            // but for one wait of so many
  kLostNs = 100000,       // a yield that takes longer: somebody has work to do
  kRestTimes = 32,        // as long as the core was lost
  kMostRest = 100000000,  // ns
  kSharedNs = 1200,       // a yield that takes longer: another thread has run
  kShared = 4             // of these in a row, then a polite one leaves
};

// Of all threads of this process: its cores are wanted by others until then.
static _Atomic uint64_t g_rest_until;

// Time on cores, of all threads of this process.
static uint64_t work_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The core was somebody else's for `ns`.
static void rest(uint64_t now, uint64_t ns) {
  atomic_store_explicit(&g_rest_until,
                        now + AT_MIN(ns * kRestTimes, (uint64_t)kMostRest),
                        memory_order_relaxed);
}

// How long it is worth; 0: not at all. Races only cost time.
static uint64_t worth(at_linger *p, uint64_t most_ns, uint64_t now) {
  if (now < atomic_load_explicit(&g_rest_until, memory_order_relaxed)) return 0;
  uint32_t doubts = atomic_load_explicit(&p->doubts, memory_order_relaxed);
  if (doubts < kMostDoubts) return most_ns >> doubts;
  uint32_t n = atomic_fetch_add_explicit(&p->skips, 1, memory_order_relaxed);
  return n % kRetry == kRetry - 1 ? most_ns : 0;
}

// A wait has come to its end without a loss.
static void learn(at_linger *p, bool paid) {
  uint32_t doubts = atomic_load_explicit(&p->doubts, memory_order_relaxed);
  if (paid && !doubts) return;
  doubts = paid ? 0 : AT_MIN(doubts + 1, (uint32_t)kMostDoubts);
  atomic_store_explicit(&p->doubts, doubts, memory_order_relaxed);
}

// A yield that took long is no loss where it was this process that worked
// meanwhile, perhaps at what is waited for.
bool at_linger_for(at_linger *p, uint64_t most_ns, bool (*came)(void *arg),
                   void *arg) {
  const uint64_t begin = at_clock_ns(),
                 until = begin + worth(p, most_ns, begin);
  if (until == begin) return false;
  if (came(arg)) return learn(p, true), true;
  const uint64_t work = work_ns();
  uint64_t now = begin;
  for (uint32_t shared = 0; now < until && shared < kShared;) {
    const uint64_t then = now;
    sched_yield();
    now = at_clock_ns();
    const bool lost = now - then > kLostNs, there = came(arg);
    shared = p->polite && now - then > kSharedNs ? shared + 1 : 0;
    if (lost && work_ns() - work < (now - begin) / 2) rest(now, now - then);
    if (there && !lost) learn(p, true);
    if (there || lost) return there;
  }
  if (now >= until) learn(p, false);
  return false;
}
