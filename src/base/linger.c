#include "base/linger.h"

#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/span.h"

enum {
  kMostDoubts = 5,    // then it is not worth trying
  kRetry = 16,        // but for one wait of so many
  kLostNs = 100000,   // a yield that takes longer: somebody has work to do
  kRestNs = 2000000,  // after a loss; doubles with each that follows
  kMostLosses = 6,
  kSharedNs = 1200,  // a yield that takes longer: another thread has run
  kShared = 4        // of these in a row, then a polite one leaves
};

// Another thread has had the core for long.
static void rest(at_linger *p, uint64_t now) {
  uint32_t n = atomic_load_explicit(&p->losses, memory_order_relaxed);
  atomic_store_explicit(&p->rest_until_ns, now + ((uint64_t)kRestNs << n),
                        memory_order_relaxed);
  atomic_store_explicit(&p->losses, AT_MIN(n + 1, (uint32_t)kMostLosses),
                        memory_order_relaxed);
}

// How long it is worth; 0: not at all. Races only cost time.
static uint64_t worth(at_linger *p, uint64_t most_ns, uint64_t now) {
  if (now < atomic_load_explicit(&p->rest_until_ns, memory_order_relaxed))
    return 0;
  uint32_t doubts = atomic_load_explicit(&p->doubts, memory_order_relaxed);
  if (doubts < kMostDoubts) return most_ns >> doubts;
  uint32_t n = atomic_fetch_add_explicit(&p->skips, 1, memory_order_relaxed);
  return n % kRetry == kRetry - 1 ? most_ns : 0;
}

// A wait has come to its end without a loss.
static void learn(at_linger *p, bool paid) {
  uint32_t doubts = atomic_load_explicit(&p->doubts, memory_order_relaxed);
  if (paid) atomic_store_explicit(&p->losses, 0, memory_order_relaxed);
  if (paid && !doubts) return;
  doubts = paid ? 0 : AT_MIN(doubts + 1, (uint32_t)kMostDoubts);
  atomic_store_explicit(&p->doubts, doubts, memory_order_relaxed);
}

bool at_linger_for(at_linger *p, uint64_t most_ns, bool (*came)(void *arg),
                   void *arg) {
  if (came(arg)) return true;
  uint64_t now = at_clock_ns(), until = now + worth(p, most_ns, now);
  if (until == now) return false;
  for (uint32_t shared = 0; now < until && shared < kShared;) {
    const uint64_t then = now;
    sched_yield();
    now = at_clock_ns();
    const bool lost = now - then > kLostNs, there = came(arg);
    shared = p->polite && now - then > kSharedNs ? shared + 1 : 0;
    if (lost) rest(p, now);
    if (there && !lost) learn(p, true);
    if (there || lost) return there;
  }
  if (now >= until) learn(p, false);
  return false;
}
