// How long a node is needed, and where its memory is: for those who compute
// nodes and give memory out.
#ifndef ATOLL_MOSAIC_EMIT_LIFE_H_
#define ATOLL_MOSAIC_EMIT_LIFE_H_

#include "mosaic/emit.h"

struct at_me_life {
  uint32_t refs;  // uses to come, and nodes that hold it (`holds`)
  uint32_t holds;
  uint32_t depth;   // loops around the definition
  uint32_t region;  // where it was defined
  bool within;      // needed only in the loop over rows that defines it
  uint32_t height;  // of the expression: nodes on its longest path
  int64_t slot;     // BUFFER: offset in the temporary memory, -1: not owned
  int64_t slot_bytes;
  at_me_link *links;  // one for each list that it is in, while not computed
  bool turn;          // BUFFER: the temporary memory has the rows of one turn
};

#endif
