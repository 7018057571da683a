// Whole programs on tiles: nodes of hlo become compute sets, every value gets a
// home.
//
//   module (after passes, not fused) -> a layout per value, a grid per node ->
//   steps with their exchange -> at_tiles_plan
//
// A node's work is cut along its factors (passes/shard.h: dimensions of
// operands and results that hang together); each block of the grid is one
// vertex per tile. Operands come from their homes in boxes, with one message
// where many tiles need the same.
#ifndef ATOLL_TILES_LOWER_H_
#define ATOLL_TILES_LOWER_H_

#include "hlo/hlo.h"
#include "tiles/tiles.h"

typedef struct at_tiles_lower_options {
  bool linear;  // every value mapped linearly, whatever it is for: the baseline
  bool lenient;  // over memory: a plan, not RESOURCE_EXHAUSTED
} at_tiles_lower_options;

// The plan lives in `a`. The planner's layouts, or the linear ones where those
// take fewer cycles in all. Errors: UNIMPLEMENTED by name; RESOURCE_EXHAUSTED
// names tile, step and the largest values.
at_status at_tiles_lower(const at_tiles_machine *m, at_module *module,
                         const at_tiles_lower_options *o, at_arena *a,
                         const at_tiles_plan **out);

// Runs a module's entry as the tiles would: node by node, each block of a
// node's grid by itself from the boxes that it needs, partial sums combined as
// planned. For tests of the lowering; as slow as the evaluator.
at_status at_tiles_lower_eval(const at_tiles_machine *m, at_module *module,
                              const at_literal *const *args, at_arena *a,
                              const at_literal **out_results);

#endif
