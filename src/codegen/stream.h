// Stores past the caches: results so large that nothing of them is in a cache
// when somebody reads them. They would push out what is, and a line that is
// stored whole need not be read first. A part of the result is made in memory
// that stays in a cache, then sent on by whole lines.
//
// Who stores this way must call at_em_stream_fence before others may look: non-
// temporal stores become visible in any order.
#ifndef ATOLL_CODEGEN_STREAM_H_
#define ATOLL_CODEGEN_STREAM_H_

#include "codegen/job.h"

enum {
  AT_STREAM_PART = 512,  // elements of a part, in loops
  AT_STREAM_MOST = 12,   // results of a kernel that are stored so
  AT_STREAM_SOON = 6     // nodes: who reads a result soon reads it from caches
};

// Results of n (bit r: result r, the first 64) to be stored past the caches: of
// `bytes` and more, and nobody reads them soon.
uint64_t at_streams_of(const at_node *n, size_t bytes);
// Does the job store that result past the caches?
static inline bool at_job_streams(const at_job *j, uint32_t result) {
  return result < 64 && (j->streams >> result & 1);
}

// Copies `bytes` (i64) from what is in a cache to anywhere; lines that begin or
// end inside take ordinary stores.
void at_em_stream(at_em *e, LLVMValueRef to, LLVMValueRef from,
                  LLVMValueRef bytes);
// At the end of a function that streams: others see it after this.
void at_em_stream_fence(at_em *e);

#endif
