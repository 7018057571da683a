// Short waits of threads that share cores with others, also with other
// processes: what is waited for often comes within microseconds, and to wake a
// thread takes longer than that where its core has gone idle. Who lingers looks
// again and again and gives its core to whoever else can run between two looks.
//
// It learns: a place where lingering did not pay is left sooner each time, then
// without a look but for a try now and then. A process whose core was taken by
// another one with more to do does not linger for a while. So neither an idle
// process nor one beside busy others burns time, or loses its turn to them.
#ifndef ATOLL_BASE_LINGER_H_
#define ATOLL_BASE_LINGER_H_

#include <stdbool.h>
#include <stdint.h>

// What is known of a place where threads wait. Zeroed: nothing yet. Threads may
// share one.
typedef struct at_linger {
  // Leaves a core that others keep awake: what it waits for may be theirs to
  // do, and to wake a thread takes long only where its core sleeps.
  bool polite;
  _Atomic uint32_t doubts;  // what did not pay: halves the time, until none
  _Atomic uint32_t skips;   // since it was tried
} at_linger;

// Looks until came(arg), for `most_ns` at most. True: it came. False without a
// look where that is not worth it, so whoever can tell cheaply that it has come
// asks before. came must be short and may be called often.
bool at_linger_for(at_linger *p, uint64_t most_ns, bool (*came)(void *arg),
                   void *arg);

#endif
