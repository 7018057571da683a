// How much work this process has done so far: what tests of how work grows with
// a program compare. Any thread.
#ifndef ATOLL_BASE_WORK_H_
#define ATOLL_BASE_WORK_H_

#include <stdint.h>

typedef struct at_work {
  uint64_t visits;       // of all walks (base/walk.h)
  uint64_t arena_bytes;  // allocated in arenas that are gone or were reset
  uint64_t blocks;  // of code that ran; 0 unless built with AT_COUNT_BLOCKS
} at_work;
// Sums since the process began. Each number is read by itself: not a snapshot
// while other threads work.
at_work at_work_done(void);

#endif
