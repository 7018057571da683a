// What the files of the lowering share.
#ifndef ATOLL_TILES_LOWER_INTERNAL_H_
#define ATOLL_TILES_LOWER_INTERNAL_H_

#include "passes/shard.h"
#include "tiles/lower.h"
#include "tiles/tiles_internal.h"

// Dimensions of a value, and factors or windows of a rule, at most.
// A value or rule with more is UNIMPLEMENTED.
enum { kTilesRank = 12, kTilesFactors = 24 };

// One dimension of a value: block k is [bound[k], end[k]), and contributes
// off[k] to its tile. Blocks of a home are disjoint and in order (end == bound
// + 1); what a window needs may overlap.
typedef struct at_tiles_dim {
  int64_t cuts;
  const int64_t *bound, *end;
  const uint32_t *off;
} at_tiles_dim;
// How a value is cut: each block is a box, on the tile that its dimensions'
// offsets add up to.
typedef struct at_tiles_lay {
  uint32_t rank;
  at_tiles_dim dim[kTilesRank];
} at_tiles_lay;

// A block of the grid is one choice of a cut of every factor; it runs on the
// tile that the factors' offsets add up to.
// How a node's work is cut: along each factor of its rule.
typedef struct at_tiles_grid {
  uint32_t num;
  at_tiles_dim dim[kTilesFactors];
  // sum[f]: the factor is summed over: its blocks hold parts of a sum, which a
  // later step adds up.
  bool sum[kTilesFactors];
} at_tiles_grid;

// A rule, and dimensions of which a block of the result needs a window of an
// operand: indices [lo * scale + first, (hi - 1) * scale + first + extent) /
// holes.
// A mirrored one counts from the dimension's end.
typedef struct at_tiles_window {
  // Indices of the rule: which factor it runs with, which operand, and which of
  // its dimensions.
  uint32_t factor, tensor, dim;
  // In elements of the operand; holes: the distance between those that are read
  // (dilation).
  int64_t scale, first, extent, holes;
  bool mirrored;
} at_tiles_window;
// The rule of a node, with the windows of its operands.
typedef struct at_tiles_rule {
  at_rule r;
  at_tiles_window windows[kTilesFactors];
  uint32_t num_windows;
  // Zero: no window, as for element-wise work.
} at_tiles_rule;

// Blocks of a home: the product of the cuts.
static inline int64_t at_tiles_lay_blocks(const at_tiles_lay *l) {
  int64_t n = 1;
  for (uint32_t d = 0; d < l->rank; d++) n *= l->dim[d].cuts;
  return n;
}

// Elements of a value in its home: blocks in order, each dense.
typedef struct at_tiles_store {
  // Freed with the last value that holds it.
  uint32_t users;   // values that hold it
  int64_t *starts;  // of each block, in elements
  uint8_t *bytes;
} at_tiles_store;

// A value while its program is lowered.
typedef struct at_tiles_value {
  // Its home, where `placed`.
  at_tiles_lay lay;
  const char *name;
  bool placed;      // it has a home
  bool everywhere;  // constants, iota and what broadcasts them: made where
                    // needed
  bool ours;        // holds memory of its own, until `last`
  at_value
      of;  // a broadcast that is not written out: its operand; node NULL: none
  at_value same;  // another name of this value; node NULL: none
  const at_type *type;
  // A list by the node after which their memory is free.
  struct at_tiles_value *next;  // another that ends with the same node
  int32_t last;    // place in its computation of the last node that wants it
  uint32_t life;   // index + 1 of its memory; 0: none
  uint32_t count;  // results of its node
  // While the program runs:
  const at_literal *literal;  // all of it: arguments, constants
  at_tiles_store *store;
} at_tiles_value;

// Bytes of one thing on every tile while steps [first, last] run (phases as in
// at_tiles_block).
typedef struct at_tiles_life {
  const char *name;
  int32_t first, last;
  uint8_t category;
  bool interleaved;
  const at_tiles_value *value;  // its home says how many; NULL: `bytes` does
  const uint32_t *bytes;        // [tiles]
} at_tiles_life;

// What a node became: how it was cut, and its steps.
typedef struct at_tiles_task {
  at_tiles_grid grid;
  bool cut;  // by that grid
  uint32_t first_step, num_steps;
  // From other tiles; what lies on the tile already does not count.
  int64_t received;  // bytes, of its operands
} at_tiles_task;

// One operand's way to one step.
typedef struct at_tiles_way {
  const at_tiles_value *value;
  uint32_t step;
  int64_t bytes, cycles, arranged;  // received by all; on the busiest tile
  const char *want;                 // the blocks that the step wants
} at_tiles_way;

// State of one lowering, and what a run needs of it afterwards: the plan keeps
// it. In `arena`, but for `notes`.
typedef struct at_tiles_lowerer {
  at_tiles_machine m;
  // Borrowed from the caller.
  const at_tiles_lower_options *o;
  at_arena *arena;
  const at_comp *entry;
  at_map values;  // node to at_tiles_value[num_results]
  at_map tasks;   // node to at_tiles_task
  // In the order in which they run; a task has a range of them.
  AT_VEC(at_tiles_step) steps;
  // What lies in tiles' memory and when: the input of at_tiles_lower_memory.
  AT_VEC(at_tiles_life) lives;
  AT_VEC(at_tiles_way) ways;
  // Of the program so far; times: how often the code at hand runs (bodies of
  // loops).
  int64_t cycles, times;
  int32_t at;  // the node that is being lowered, in its computation
  // Arrays of one entry for each tile.
  int64_t *tile_cycles, *tile_received;  // per tile, over the program
  // Code and tables, per tile: what stays whatever runs.
  int64_t *vertices, *code, *exchange_code, *descriptors;
  // Bits of the kinds below: a codelet's code is stored once per tile that runs
  // it.
  uint64_t (*kinds)[4];              // codelets that a tile has
  uint16_t kind_of[AT_OP_COUNT][2];  // by width of the element
  uint32_t num_kinds;
  at_strbuf notes;
  bool narrow;    // nothing lies in interleaved memory
  bool tight;     // memory was too small for what is quickest
  bool quick;     // exchanges at their lower bound, unordered
  int64_t limit;  // 0, or cycles after which nobody wants the plan
} at_tiles_lowerer;

// The value of v, or of what v is another name of. NULL: its node was not
// declared.
at_tiles_value *at_tiles_value_of(const at_tiles_lowerer *w, at_value v);

// The value that `v` is another name of, or itself.
at_value at_tiles_root(const at_tiles_lowerer *w, at_value v);

// ---- lower.c
// A value, without a home, for every result of every node.
at_status at_tiles_lower_declare(at_tiles_lowerer *w, const at_comp *c);
// Steps for every node of c, in order.
at_status at_tiles_lower_comp(at_tiles_lowerer *w, const at_comp *c);
// By place in c: the values (a list through `next`) that nobody wants after
// that node.
at_status at_tiles_lower_ends(const at_tiles_lowerer *w, const at_comp *c,
                              at_arena *a, at_tiles_value ***out);

// ---- lower_step.c
// Moves while they are gathered: one per step.
typedef struct at_tiles_moves {
  at_arena *arena;
  AT_VEC(at_tiles_message) messages;
  AT_VEC(uint32_t) receivers;
  int64_t *received;  // per tile, bytes; may be NULL
  int64_t *arranged;  // per tile, bytes copied into order before it executes
  bool lands;         // what is copied is the result: no space of its own
  int64_t *before, *needed;  // scratch
} at_tiles_moves;
// Empty moves whose memory is `a`'s. `before` and `needed` are scratch for one
// operand at a time.
at_status at_tiles_moves_in(const at_tiles_lowerer *w, at_arena *a,
                            at_tiles_moves *out);
// Messages that bring a value as `need` wants it, to the tiles `group` of each
// block. dry: what has no home yet is guessed, and nothing is noted.
at_status at_tiles_bring(at_tiles_lowerer *w, at_tiles_moves *m, at_value v,
                         const at_tiles_lay *need, const uint32_t *group,
                         uint32_t n, bool dry);
// The same for every operand of n as grid g cuts it, and the copies that put an
// operand into its vectors' order.
at_status at_tiles_bring_all(at_tiles_lowerer *w, const at_node *n,
                             const at_tiles_rule *r, const at_tiles_grid *g,
                             at_tiles_moves *m, bool dry);
// Adds a step; work[tile] are cycles. n: its codelet is noted; NULL: it only
// moves.
at_status at_tiles_add_step(at_tiles_lowerer *w, const at_node *n,
                            const char *suffix, at_tiles_moves *m,
                            const int64_t *work);
// The value lives in its home from now on.
at_status at_tiles_own(at_tiles_lowerer *w, at_tiles_value *v);
// Copies of it are to run at the width of interleaved memory.
void at_tiles_interleave(at_tiles_lowerer *w, const at_tiles_value *v);
// A home for a value that has none: as `need` wants it, or linear.
at_status at_tiles_place_value(at_tiles_lowerer *w, at_value v,
                               const at_tiles_lay *need, const uint32_t *group,
                               uint32_t n);
// "op.id suffix name": how reports call a step. The name is the last part of
// the node's location.
const char *at_tiles_step_name(at_tiles_lowerer *w, const at_node *n,
                               const char *suffix);
// "64 x 23 blocks of [32, 128]".
const char *at_tiles_lay_text(at_arena *a, const at_tiles_lay *l);

// ---- choose_grid.c
// *stay: cycles of the best grid found under which nothing moves; 0: none.
at_status at_tiles_grid_choose(at_tiles_lowerer *w, const at_node *n,
                               const at_tiles_rule *r, at_tiles_grid *best,
                               int64_t *stay);
// `cycles` of a step that needs `bytes` of scratch on a tile; many times more
// where that is most of the tile's memory, so that any other way is chosen.
int64_t at_tiles_crowded(const at_tiles_lowerer *w, int64_t bytes,
                         int64_t cycles);
// Multiply-adds per result element of one block.
double at_tiles_grid_depth(const at_node *n, const at_tiles_rule *r,
                           const at_tiles_grid *g);
// The operand of n with the most elements; 0 if it has none.
uint32_t at_tiles_largest_operand(const at_node *n, const at_tiles_rule *r);
// The operand that a product's tiles first copy into the order of its vectors;
// -1: neither.
int32_t at_tiles_turned_operand(const at_node *n, const at_tiles_rule *r);

// ---- lower_memory.c
// Every tile's memory: p's bytes, categories and blocks of the fullest tile.
// *fits: every block has found its place.
// RESOURCE_EXHAUSTED is about the host's memory; a tile's is *fits.
at_status at_tiles_lower_memory(at_tiles_lowerer *w, at_tiles_plan *p,
                                bool *fits);
// ---- lower_part.c, product.c
// n on blocks of its operands: `in` are the blocks, lo[t] the first index of
// operand t's, `types` those of the results' blocks and out_lo the first index
// of the first result's.
// Results are dense, in `a`. Errors: the evaluator's.
at_status at_tiles_part_eval(const at_node *n, const at_literal *const *in,
                             int64_t (*lo)[kTilesRank], const at_type *types,
                             const int64_t *out_lo, at_arena *a,
                             const at_literal **out);
// The spatial dimensions of a convolution.
typedef struct at_tiles_spatial {
  uint32_t rank;
  int64_t in[kTilesRank], kernel[kTilesRank], out[kTilesRank];
  int64_t low[kTilesRank], stride[kTilesRank], holes[kTilesRank],
      spread[kTilesRank];
} at_tiles_spatial;
// Sizes of the blocks `in`, strides and dilations of n. The rank is at most
// kTilesRank.
at_tiles_spatial at_tiles_spatial_of(const at_node *n,
                                     const at_literal *const *in);
// dot_general and convolution of f32, summed in f32; *done false: not that.
at_status at_tiles_product(const at_node *n, const at_literal *const *in,
                           at_arena *a, const at_literal **out, bool *done);

// ---- grid.c
// One block of n elements, on the tile itself.
at_status at_tiles_dim_whole(at_arena *a, int64_t n, at_tiles_dim *out);
// Cut evenly, tiles `stride` apart.
// Lengths of blocks differ by one at most.
at_status at_tiles_dim_cut(at_arena *a, int64_t n, int64_t cuts, int64_t stride,
                           at_tiles_dim *out);
// Every block cut again for the tiles group[] of it.
at_status at_tiles_dim_again(at_arena *a, const at_tiles_dim *d,
                             const uint32_t *group, uint32_t n,
                             at_tiles_dim *out);
// A home's dimensions, copied into `a`.
at_status at_tiles_lay_keep(at_arena *a, at_tiles_lay *l);
// Do both cut alike, on the same tiles?
bool at_tiles_lay_eq(const at_tiles_lay *a, const at_tiles_lay *b);
// Major dimensions first, until every tile has something.
at_status at_tiles_lay_linear(at_arena *a, const at_tiles_machine *m,
                              const at_type *t, at_tiles_lay *out);
// Elements of each tile's block times `size`, added to out[tiles].
void at_tiles_lay_bytes(const at_tiles_lay *l, int64_t size, int64_t *out);
// Elements of each tile's block: out[tiles], zeroed before.
void at_tiles_lay_elements(const at_tiles_lay *l, int64_t tiles, int64_t *out);
// From homes to boxes: tile (sum of off) + group[i] needs that block of `need`.
at_status at_tiles_move(at_tiles_moves *v, const at_tiles_lay *home,
                        const at_tiles_lay *need, const uint32_t *group,
                        uint32_t num_group, int64_t size);

// The blocks of a home that hold something of a box, in order.
typedef struct at_tiles_walk {
  const at_tiles_lay *home;
  const int64_t *lo, *hi;  // the box
  int64_t first[kTilesRank], at[kTilesRank];
  bool more;
} at_tiles_walk;
// lo and hi, rank entries each, are borrowed as long as the walk. An empty box
// has no blocks.
// The walk lives on the caller's stack and owns nothing.
void at_tiles_walk_start(at_tiles_walk *w, const at_tiles_lay *home,
                         const int64_t *lo, const int64_t *hi);
// Goes to the next block; `more` says whether there is one.
void at_tiles_walk_next(at_tiles_walk *w);
// The tile of the walk's block, its place among the blocks, and what the block
// and the box share: [lo[d], hi[d]).
uint32_t at_tiles_walk_tile(const at_tiles_walk *w);
// In the order of the home: its store has starts by it.
// Row-major over the cuts.
int64_t at_tiles_walk_block(const at_tiles_walk *w);
// The part of the block that lies in the box, along d.
static inline int64_t at_tiles_walk_lo(const at_tiles_walk *w, uint32_t d) {
  return AT_MAX(w->lo[d], w->home->dim[d].bound[w->at[d]]);
}
static inline int64_t at_tiles_walk_hi(const at_tiles_walk *w, uint32_t d) {
  return AT_MIN(w->hi[d], w->home->dim[d].end[w->at[d]]);
}

// Dimensions before a reshape as dimensions after it; false where blocks would
// not be boxes.
// *out is undefined where it does not fit. UNIMPLEMENTED: a rank above
// kTilesRank.
at_status at_tiles_lay_reshape(at_arena *a, const at_tiles_lay *from,
                               at_dims old, at_dims dims, at_tiles_lay *out,
                               bool *fits);

// ---- rule.c
// The rule of n, with windows for the dimensions that passes/shard.h leaves
// whole. UNIMPLEMENTED: more factors or dimensions than there is room for.
at_status at_tiles_rule_make(at_arena *a, const at_node *n, at_tiles_rule *out);
// Tensor t of the node as the grid cuts it; *group: tiles of the factors that
// do not cut it, ascending.
at_status at_tiles_grid_lay(at_arena *a, const at_tiles_rule *r,
                            const at_tiles_grid *g, uint32_t t,
                            at_tiles_lay *out, uint32_t **group,
                            uint32_t *num_group);

// ---- planner.c
enum { kTilesWays = 3 };
// The best grids by estimated cycles, wherever operands are, at most `most`,
// cheapest first; the linear one if asked.
at_status at_tiles_grid_search(at_tiles_lowerer *w, const at_node *n,
                               const at_tiles_rule *r, uint32_t most,
                               at_tiles_grid *out, uint32_t *out_num);
// The grid that leaves operand t where it is; *fits false: it cannot.
at_status at_tiles_grid_follow(at_tiles_lowerer *w, const at_tiles_rule *r,
                               uint32_t t, const at_tiles_lay *home,
                               at_tiles_grid *out, bool *fits);

// ---- cost of one vertex (lower_cost.c)
// Cycles of the part of n whose first result has `out` elements and whose
// largest operand has `in`, with `depth` multiply-adds per result element.
int64_t at_tiles_node_cycles(const at_tiles_machine *m, const at_node *n,
                             int64_t out, int64_t in, double depth);
// Multiply-adds per result element of a product; 0: not one.
double at_tiles_depth(const at_node *n);

#endif
