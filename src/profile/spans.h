// What a process of a pod does, for a trace over several of them: intervals in
// rings of fixed size, one for each thread, which somebody empties now and
// then. Off, it costs one relaxed load; on, recording takes no lock and no
// memory. A ring that is full drops, and counts that.
#ifndef ATOLL_PROFILE_SPANS_H_
#define ATOLL_PROFILE_SPANS_H_

#include <stdatomic.h>

#include "base/span.h"
#include "base/status.h"

// Numbers of the wire (control/message.h); only add.
typedef enum at_span_kind {
  AT_SPAN_LAUNCH = 1,  // client: makes a launch, or a run of a traced program
  AT_SPAN_REPLY,       // client: an answer has come
  AT_SPAN_READ,        // client: from a question about bytes to its answer
  AT_SPAN_ORDER,       // controller: from hearing of a launch to passing it on
  AT_SPAN_QUEUE,       // host: from hearing of it to its turn in the stream
  AT_SPAN_TAKE,        // host: the stream's thread hands it to the chips
  AT_SPAN_TURN,        // chip: it waits for those before it
  AT_SPAN_ARGUMENTS,   // chip: it waits for what it reads, and for a core
  AT_SPAN_RUN,         // chip: it runs
  AT_SPAN_COLLECTIVE,  // chip: from its arrival to its end
  AT_SPAN_OP,          // chip: another step, one of those that take long
  AT_SPAN_TRANSFER,    // chip: bytes from or to it
  AT_SPAN_KINDS
} at_span_kind;

// AT_SPAN_LONG_OP_NS: steps that take less are not told one by one.
enum { AT_SPAN_NAME = 56, AT_SPAN_LONG_OP_NS = 20000 };

// An interval as a ring holds it: no pointers, so that it goes over the wire as
// it is.
// 96 bytes.
typedef struct at_profile_span {
  uint64_t start_ns, end_ns;  // at_clock_ns
  uint64_t flow;              // alike in all spans of one launch; 0: of none
  uint64_t bytes;
  uint32_t kind;            // at_span_kind
  uint32_t lane;            // chip; of LAUNCH to TAKE the ring, filled in
  char name[AT_SPAN_NAME];  // for people; ends with a zero
} at_profile_span;

// Read it through at_spans_on.
// Relaxed: a span at the border of a session may be missed or kept.
extern _Atomic bool at_spans_are_on;
// May lag behind at_spans_start and at_spans_stop of another thread.
static inline bool at_spans_on(void) {
  return AT_UNLIKELY(
      atomic_load_explicit(&at_spans_are_on, memory_order_relaxed));
}

// Of a launch: whose it is and the name of its first result.
static inline uint64_t at_span_flow(uint64_t client, uint64_t outputs) {
  return outputs ? client * 0x9e3779b97f4a7c15u + outputs : 0;
}

// From now on spans are kept; again: nothing. RESOURCE_EXHAUSTED.
at_status at_spans_start(void);
// Spans that are in the rings stay to be taken. Any thread.
void at_spans_stop(void);
// name: cut where it is too long. Any thread; nothing while it is off.
void at_span_record(const at_profile_span *s, const char *name);
// Takes up to `most` out of the rings; *dropped: since it was last asked. One
// thread at a time takes, others wait.
size_t at_spans_take(at_profile_span *out, size_t most, uint64_t *dropped);

#endif
