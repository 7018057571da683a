// Linear time over a computation and its nested control flow, shared by the
// planner and its verifier.
//
// Threads: any, on a program that nobody changes.
#ifndef ATOLL_SCHEDULE_LIFETIME_H_
#define ATOLL_SCHEDULE_LIFETIME_H_

#include "schedule/schedule.h"

// Every value of the planned computations, numbered. Time runs in steps of two:
// a node at position p defines its results at 2p and reads its operands until
// 2p + 1, so an operand that dies at a node still overlaps the node's results.
// A while node spans [begin, end]: operands are read and parameters defined at
// `begin`, results defined at `end`; what is defined outside and used inside
// lives to `end`.
typedef struct at_span_time {
  int64_t begin, end;
} at_span_time;

typedef struct at_lifetime {
  at_value value;
  at_span_time span;  // [definition, last use]
  // The last use, but for asynchronous custom calls that are under way then:
  // those run in the order of their calls.
  int64_t read;
  uint64_t bytes;  // dense
} at_lifetime;

// Values are numbered in the order of the program; a node's results follow each
// other.
typedef struct at_lifetimes {
  at_lifetime *list;
  uint32_t count;
  at_map index;      // node -> first value number + 1
  at_map node_time;  // node -> at_span_time
  int64_t last;      // the end of time: where the entry returns
} at_lifetimes;

// Of the entry and of what its control flow holds. Everything in `a`; the
// module is only read and must not change. RESOURCE_EXHAUSTED.
at_status at_lifetimes_compute(const at_module *m, at_arena *a,
                               at_lifetimes *out);
// The value's place in list; UINT32_MAX: it is none of the entry's.
uint32_t at_lifetime_of(const at_lifetimes *l, at_value v);
// When the node runs; all zero: it is none of the entry's.
at_span_time at_lifetime_node(const at_lifetimes *l, const at_node *n);

#endif
