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
//
// Memory: everything is the graph's.
// Threads: one at a time.
#ifndef ATOLL_TILES_LOWER_H_
#define ATOLL_TILES_LOWER_H_

#include "hlo/hlo.h"
#include "tiles/tiles.h"

// Zeroed: planned, and within memory.
typedef struct at_tiles_lower_options {
  bool linear;  // every value mapped linearly, whatever it is for: the baseline
  bool lenient;  // over memory: a plan, not RESOURCE_EXHAUSTED
} at_tiles_lower_options;

// The plan lives in `a`. The planner's layouts, or the linear ones where those
// take fewer cycles in all. Errors: UNIMPLEMENTED by name; RESOURCE_EXHAUSTED
// names tile, step and the largest values. The module must outlive the plan and
// is written to: its nodes' `aux`, and constants that bodies use go into them.
at_status at_tiles_lower(const at_tiles_machine *m, at_module *module,
                         const at_tiles_lower_options *o, at_arena *a,
                         const at_tiles_plan **out);

// Counted over all vertices, as the plan counts them.
// What a run did.
typedef struct at_tiles_run_counts {
  int64_t cycles;  // with loops and branches as taken
  int64_t vertices, received_bytes, turns;
} at_tiles_run_counts;

// Runs a lowered program: values live in blocks on their tiles, every vertex
// computes from what its tile has or receives, and the bytes received are those
// of the plan (INTERNAL if not). args: as the entry's parameters; results in
// `a`. pool NULL: alone. One run at a time per plan. The same values and cycles
// every time, on any number of threads.
at_status at_tiles_plan_run(const at_tiles_plan *p,
                            const at_literal *const *args, at_pool *pool,
                            at_arena *a, const at_literal **out_results,
                            at_tiles_run_counts *out_counts);

// Everything that lies on one tile, with its address and its life; of a graph's
// plan only the fullest tile is kept (UNIMPLEMENTED).
at_status at_tiles_plan_tile(const at_tiles_plan *p, uint32_t tile, at_arena *a,
                             at_tiles_block **out, uint32_t *out_num);

#endif
