// What is decided about a body before its machine code is written. Passes over
// the operations (plan_*.c, one file each, in the order of the table in
// plan_make.c) fill a plan in; whoever writes code only reads it. Each pass is
// linear in the body, but for what its file says.
#ifndef ATOLL_MOSAIC_PLAN_H_
#define ATOLL_MOSAIC_PLAN_H_

#include "base/map.h"
#include "mosaic/code.h"

typedef struct at_mplan at_mplan;

// Refs of different roots do not overlap, but for AT_MPLAN_ANY_ROOT. Roots are
// numbered in the order of the text, arguments first.
#define AT_MPLAN_ANY_ROOT UINT32_MAX
// A set of roots is 64 bits; those from 63 on share the last one.
// ANY_ROOT is every bit.
uint64_t at_mplan_root_bit(uint32_t root);

// Of a value.
typedef struct at_mplan_value {
  uint32_t uses;  // operands that name it
  double cost;    // of an element, if computed where it is used
  // Computed once, where it is defined, and kept in memory: several need it and
  // it is worth that; each lane of a wider vector would compute it again; it is
  // too much for the loop that uses it.
  bool kept, spread, deep;
  bool counts;         // it is used otherwise than where a choice may drop it
  bool pages;          // a ref to scratch where copies may wait
  bool feeds_product;  // a load that only the second operand of a product takes
  uint32_t root;       // of a ref, or of the memory of a vector that a loop
                       // carries
} at_mplan_value;

// A run of operations whose values come row from row: one loop over the rows
// takes all of them. Those of `before` do not depend on the row.
enum {
  AT_MPLAN_IN_LOOP = 1,
  AT_MPLAN_WITHIN = 2,  // nothing behind the loop uses the result
  AT_MPLAN_FEEDS = 4,   // a product behind the loop takes the result
  AT_MPLAN_MAX_STORES = 8,
  AT_MPLAN_ROW_PRODUCTS = 4
};
typedef struct at_mplan_run {
  const at_mblock *block;
  uint32_t begin, end;  // operations of the block
  int64_t rows, columns;
  int64_t step;  // rows of a turn, a divisor
  double work;   // that threads could share, in operations on single elements
  const uint8_t *flags;   // of each operation
  uint32_t num_products;  // up to AT_MPLAN_ROW_PRODUCTS
  uint32_t num_stores;
  const at_mop *stores[AT_MPLAN_MAX_STORES];
  uint64_t roots[AT_MPLAN_MAX_STORES];  // where each store goes
  uint64_t written;                     // all of them
  at_map inside;  // at_mvalue * -> AT_MPLAN_BEFORE or _ROW, of its results
} at_mplan_run;
enum { AT_MPLAN_BEFORE = 1, AT_MPLAN_ROW = 2 };
// ROW: the run computes it row by row; else it is there before the loop.
int at_mplan_place_of(const at_mplan_run *r, const at_mvalue *v);
// Does a load from memory of these roots read what the run writes there only at
// the load's own place, in the same turn?
bool at_mplan_loads_agree(const at_mplan_run *r, const at_mop *load,
                          uint64_t roots);

// Of an operation; all zero for most.
// Zeros are safe: such an operation writes nothing and begins nothing.
typedef struct at_mplan_op {
  // Roots that it may write, with what is inside it, but for memory that only
  // exists inside it.
  uint64_t writes;
  uint64_t allocates;  // roots that begin inside it
  // A branch that fills a sum with zeros: the store that begins the sum with a
  // product does it.
  bool left_out;
  const at_mop *start;  // of such a store: that branch
  bool may_wait;        // the product may come later than the store
  const at_mvalue
      *takes;  // a store: of this sum, whose products may be missing
  const at_mplan_run *run;  // that begins here; NULL: none
} at_mplan_op;

// What a plan is made for; borrowed as long as the plan is.
typedef struct at_mplan_input {
  const at_mosaic_kernel *kernel;
  const at_mosaic_program *program;
  const at_mosaic_code_options *options;
  const at_mblock *body;  // the program's, or that of a window's transform
  uint64_t cpu;           // features, base/cpu.h
} at_mplan_input;
// A plan for the body and all functions that it calls, in `a`. Borrows what
// `in` names.
at_status at_mplan_make(const at_mplan_input *in, at_arena *a,
                        const at_mplan **out);

// Never NULL: what no pass has seen has a plan of zeros.
// Constant time, borrowed from the plan.
const at_mplan_value *at_mplan_value_of(const at_mplan *p, const at_mvalue *v);
// The same of an operation.
const at_mplan_op *at_mplan_op_of(const at_mplan *p, const at_mop *op);
// Must products that wait be computed before this block?
bool at_mplan_finishes(const at_mplan *p, const at_mblock *b);

// The operations, each with what the passes say of it. passes: names with
// commas; NULL: all. INVALID_ARGUMENT: no such pass.
at_status at_mplan_print(const at_mplan *p, const char *passes, at_strbuf *out);

#endif
