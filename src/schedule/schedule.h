// When each node runs, and where each value lives.
#ifndef ATOLL_SCHEDULE_SCHEDULE_H_
#define ATOLL_SCHEDULE_SCHEDULE_H_

#include "abi/executable.h"
#include "hlo/hlo.h"

// Orders the nodes of every computation (in place) to lower peak memory and to keep
// producers near consumers; effects keep their order.
at_status at_schedule_order(at_module *m);

// Questions that the planner asks of whoever generates code.
typedef struct at_plan_hooks {
  bool (*can_alias)(void *user, const at_node *n, uint32_t result, uint32_t operand);
  size_t (*scratch_bytes)(void *user, const at_node *n);  // extra TEMP for n alone
  void *user;
} at_plan_hooks;

typedef struct at_plan {
  const at_xslot *slots;  // `type` left UINT32_MAX
  uint32_t num_slots;
  uint64_t temp_bytes;
  at_map slot_of;     // key: see at_plan_slot
  at_map scratch_of;  // node pointer -> scratch slot + 1
} at_plan;
// Inserts COPY nodes where a value must not share (loop state, in-place updates of
// live values, results that are parameters or appear twice), then assigns every
// value of the entry and its nested regions a slot: parameters to inputs, entry
// results to outputs (or to a donated input that may alias), the rest to the launch
// scratch with offsets by liveness. While operand i, result i, body/cond parameter
// i and body result i share one slot. Effects: adds nodes to m.
at_status at_plan_memory(at_module *m, const at_plan_hooks *hooks, at_arena *a, at_plan *out);
uint32_t at_plan_slot(const at_plan *p, at_value v);
uint32_t at_plan_scratch(const at_plan *p, const at_node *n);  // UINT32_MAX: none
// Independent check: no two live values share bytes. INTERNAL names them.
at_status at_plan_verify(const at_module *m, const at_plan *p);

#endif
