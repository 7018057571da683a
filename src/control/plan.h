// How an array gets from one sharding to another: which box of which shard goes
// where. Every byte goes to a host once, from the nearest that has it,
// directly.
//
//   one-to-one    every new shard is a whole old one, of another chip
//   one-to-many   every new shard is a box of one old one, or all of it
//   many-to-many  new shards are made of boxes of several old ones
//
// Memory: a plan is one block, at_plan_free frees it; what is read of it points
// into it.
// Threads: a plan is read-only once made.
#ifndef ATOLL_CONTROL_PLAN_H_
#define ATOLL_CONTROL_PLAN_H_

#include "control/client.h"
#include "control/message.h"

// Shards of one shape, and where each begins in the array.
typedef struct at_shards {
  uint32_t count;
  const uint32_t *chips;  // [count]
  at_dims dims;           // of a shard
  const int64_t *at;      // [count][dims.rank]
} at_shards;

// Boxes to be copied between shards; immutable once made.
typedef struct at_plan at_plan;

// The shards of `from` cover those of `to`. INVALID_ARGUMENT: they do not, or
// sizes do not fit; RESOURCE_EXHAUSTED.
// host_of: [chips of the pod], the host of each; read once. *out is written on
// success only; the shards are borrowed for the call.
at_status at_plan_make(const _Atomic uint32_t *host_of, const at_shards *from,
                       const at_shards *to, at_dtype t, at_memory_kind k,
                       at_plan **out);
// NULL is allowed.
void at_plan_free(at_plan *p);
// Bytes that it sends from host to host; and what every plan has to: those that
// a host needs and has not.
// host_of must be what the plan was made with.
uint64_t at_plan_wire_bytes(const at_plan *p, const _Atomic uint32_t *host_of);
const at_msg_reshard *at_plan_message(const at_plan *p);  // its names are none
// What kind of plan it is, for people: "one-to-one", "one-to-many",
// "many-to-many"; static.
const char *at_plan_name(const at_msg_reshard *m);

// Makes array `name` of these shards, `from.count` of them. What cannot even be
// sent is an error; others are the array's.
// The plan may be used again, for other arrays of the same shards. Any thread.
at_status at_client_reshard(at_client *c, const at_plan *p,
                            const at_proxy_shard *from, uint64_t name);

#endif
