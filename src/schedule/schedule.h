// When each node runs, and where each value lives.
//
// Errors: INTERNAL: the plan breaks one of its laws; RESOURCE_EXHAUSTED.
// Memory: plans live in the arena that is given.
// Threads: one at a time on a module: COPY nodes are added to it.
#ifndef ATOLL_SCHEDULE_SCHEDULE_H_
#define ATOLL_SCHEDULE_SCHEDULE_H_

#include "abi/executable.h"
#include "hlo/hlo.h"

// Control flow whose regions run as steps of their own.
static inline bool at_has_steps(const at_node *n) {
  return n->op == AT_OP_WHILE || n->op == AT_OP_CASE || n->op == AT_OP_IF;
}

// Orders the nodes of the entry and of its control-flow regions, in place, so
// that fewer bytes are live at once. Effects keep their order. A new order is
// kept only where its peak is lower than that of the order it found.
at_status at_schedule_order(at_module *m);

// Must it keep its place among others like it? Also for what its regions do.
bool at_schedule_has_effect(const at_node *n);

// Questions that the planner asks of whoever generates code.
typedef struct at_plan_hooks {
  // May result r be written over operand o (each element is read no later than
  // it is overwritten)? NULL: never.
  bool (*can_alias)(void *user, const at_node *n, uint32_t result,
                    uint32_t operand);
  void *user;
} at_plan_hooks;

typedef struct at_plan {
  const at_xslot *slots;  // `type` is left UINT32_MAX
  uint32_t num_slots;
  uint64_t temp_bytes;
  // What the planner knows of each value; private.
  const struct at_plan_values *values;
} at_plan;
// Inserts COPY nodes where a value must have memory of its own (loop state,
// branch results, entry results), shares memory where lifetimes allow, and
// gives every value of the entry and of its nested control flow a slot:
// parameters live in inputs, entry results in outputs, constants in CONST
// (offset: to be filled in by the writer; slot.index counts constants), tokens
// in NULL, the rest in the launch scratch. Loop operand i, result i, parameters
// i and body result i share a slot.
//
// An entry parameter with at_io_info.alias = r shares its memory with output r:
// the launcher makes both the same buffer (copying the argument first if the
// caller keeps it), so the program may write there as soon as the parameter is
// dead. A result that is another entry parameter has that input's slot: nothing
// is copied, unless the program is nothing but copies.
at_status at_plan_memory(at_module *m, const at_plan_hooks *hooks, at_arena *a,
                         at_plan *out);
// Slot of a value. Every value of the planned computations has one.
// Tokens have slot 0. The plan must be of this program.
uint32_t at_plan_slot(const at_plan *p, at_value v);
// A node that needs no step: its results are where its operands are.
bool at_plan_is_view(const at_node *n);
// The plan's laws, from the program and the slots alone: no two live values
// that hold different data share bytes, arguments that the caller keeps and
// constants are not written, loops and branches pass their values on in place,
// arguments and results are where the caller has them. INTERNAL names the value
// that breaks one. at_plan_memory asks it of each plan (base/verify.h).
at_status at_plan_verify(const at_module *m, const at_plan *p);

#endif
