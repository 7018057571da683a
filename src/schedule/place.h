// Where blocks of memory lie, so that those which live at the same time have
// bytes of their own.
//
// Threads: any; nothing is kept between calls.
#ifndef ATOLL_SCHEDULE_PLACE_H_
#define ATOLL_SCHEDULE_PLACE_H_

#include "schedule/lifetime.h"

typedef struct at_block {
  at_span_time time;  // both ends included
  uint64_t bytes;
  uint32_t owner;   // the caller's
  uint64_t offset;  // out: a multiple of 64
} at_block;

// Sets offsets and *total, the bytes that all take; blocks may change places.
// First fit by decreasing size, which packs well, as long as not too many pairs
// of blocks live at once; else blocks take the places of dead ones of their
// size, in the order of their beginnings. RESOURCE_EXHAUSTED: no memory.
at_status at_blocks_place(at_block *blocks, uint32_t n, at_arena *a,
                          uint64_t *total);

#endif
