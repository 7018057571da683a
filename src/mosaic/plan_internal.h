// What the passes share that make a plan. Nothing of it is for who writes code.
#ifndef ATOLL_MOSAIC_PLAN_INTERNAL_H_
#define ATOLL_MOSAIC_PLAN_INTERNAL_H_

#include "base/walk.h"
#include "mosaic/forms.h"
#include "mosaic/mosaic_internal.h"
#include "mosaic/plan.h"

// In the units of ops.def's `weight`, for one element.
enum {
  AT_MPLAN_DEEP_COST = 600,  // more than that in one loop: into memory
  AT_MPLAN_KEEP_COST = 6     // that much for several sinks: into memory
};

// An operation that names a ref.
// A ref's uses, so that a pass need not walk the program for each.
typedef struct at_mplan_use {
  const at_mop *op;
  struct at_mplan_use *next;  // in the order of the text
} at_mplan_use;

// What passes know of a value.
typedef struct at_mplan_fact {
  at_mplan_value out;  // first: what the plan tells
  uint32_t shares;     // of the uses, those by elementwise operations
  uint32_t products;   // of the uses, those by products
  uint32_t depth;      // loops around the definition
  const at_mop *sink;  // the only operation that makes somebody compute it
  bool many;           // several do
  at_mplan_use *first_use, *last_use;  // of a ref
  bool packed;       // a ref whose elements are not those of its memory
  at_dtype storage;  // a ref: elements of its memory
} at_mplan_fact;

// The plan while passes fill it in and after; const once at_mplan_make has
// returned.
// Lives in the arena of at_mplan_build; everything in it is borrowed by the
// writer of code.
struct at_mplan {
  const at_mplan_input *in;
  AT_VEC(const at_mblock *) blocks;  // the body, then functions that are called
  at_map values;                     // at_mvalue * -> at_mplan_fact *
  at_map ops;                        // at_mop * -> at_mplan_op *
  at_map finishes;                   // at_mblock * -> not NULL
};

// What passes share while a plan is made. `walk` is for one traversal at a time
// and is cleared by who uses it.
// On the stack of at_mplan_make. One thread.
typedef struct at_mplan_build {
  at_mplan *plan;
  const at_mplan_input *in;
  at_arena *a;
  at_walk walk;
  bool failed;  // no memory
} at_mplan_build;

// Never NULL; without memory a spare one, and `failed` is set.
// Made at its first use, zero.
at_mplan_fact *at_mplan_fact_of(at_mplan_build *b, const at_mvalue *v);
// The same of an operation.
at_mplan_op *at_mplan_facts_of_op(at_mplan_build *b, const at_mop *op);
// Does its region run several times?
// Branches are none: their regions run once.
static inline bool at_mplan_is_loop(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return c == AT_MOSAIC_SCF_FOR || c == AT_MOSAIC_SCF_WHILE;
}

// ---- Passes, in their order
// Each pass reads what those before it have filled in and sets only its own
// fields; a lack of memory sets b->failed, which at_mplan_make tells.
void at_mplan_uses(at_mplan_build *b);
// What an element of each value costs to compute.
void at_mplan_costs(at_mplan_build *b);
// Which operation makes somebody compute each value.
void at_mplan_sinks(at_mplan_build *b);
// Values that only go where a choice may drop them.
void at_mplan_choices(at_mplan_build *b);
// Which memory each ref is of, and what each operation may write.
void at_mplan_memory(at_mplan_build *b);
// Copies that may wait until they are read.
void at_mplan_pages(at_mplan_build *b);
// Sums that begin with zeros, and products that may come later than their
// stores.
void at_mplan_sums(at_mplan_build *b);
// Runs of values that share a loop over rows.
void at_mplan_rows(at_mplan_build *b);

// Are its runs whole, apart from each other, and where they say? Walks all
// blocks, with memory of `a`: for AT_VERIFY (plan_laws.c).
bool at_mplan_holds(const at_mplan *p, at_arena *a);

#endif
