// What the files of the lowering share.
#ifndef ATOLL_TILES_LOWER_INTERNAL_H_
#define ATOLL_TILES_LOWER_INTERNAL_H_

#include "passes/shard.h"
#include "tiles/lower.h"
#include "tiles/tiles_internal.h"

enum { kTilesRank = 12, kTilesFactors = 24 };

// One dimension of a value: block k is [bound[k], end[k]), and contributes
// off[k] to its tile. Blocks of a home are disjoint and in order (end == bound
// + 1); what a window needs may overlap.
typedef struct at_tiles_dim {
  int64_t cuts;
  const int64_t *bound, *end;
  const uint32_t *off;
} at_tiles_dim;
typedef struct at_tiles_lay {
  uint32_t rank;
  at_tiles_dim dim[kTilesRank];
} at_tiles_lay;

// How a node's work is cut: along each factor of its rule.
typedef struct at_tiles_grid {
  uint32_t num;
  at_tiles_dim dim[kTilesFactors];
  bool sum[kTilesFactors];
} at_tiles_grid;

// A rule, and dimensions of which a block of the result needs a window of an
// operand: indices [lo * scale + first, (hi - 1) * scale + first + extent) /
// holes.
typedef struct at_tiles_window {
  uint32_t factor, tensor, dim;
  int64_t scale, first, extent, holes;
} at_tiles_window;
typedef struct at_tiles_rule {
  at_rule r;
  at_tiles_window windows[kTilesFactors];
  uint32_t num_windows;
} at_tiles_rule;

static inline int64_t at_tiles_lay_blocks(const at_tiles_lay *l) {
  int64_t n = 1;
  for (uint32_t d = 0; d < l->rank; d++) n *= l->dim[d].cuts;
  return n;
}

// A value while its program is lowered.
typedef struct at_tiles_value {
  at_tiles_lay lay;
  const char *name;
  bool placed;      // it has a home
  bool everywhere;  // constants, iota and what broadcasts them: made where
                    // needed
  bool ours;        // holds memory of its own, until `last`
  at_value
      of;  // a broadcast that is not written out: its operand; node NULL: none
  const at_type *type;
  struct at_tiles_value *next;  // another that ends with the same node
  int32_t last;  // place in its computation of the last node that wants it
  const at_literal *literal;  // while a program is run
} at_tiles_value;

typedef struct at_tiles_lowerer {
  at_tiles_machine m;
  const at_tiles_lower_options *o;
  at_arena *arena;
  at_map values;  // node to at_tiles_value[num_results]
  AT_VEC(at_tiles_step) steps;
  int64_t cycles, times;
  int64_t *now, *peak, *temp, *tile_cycles;  // per tile
  const char **peak_step;                    // per tile
  int64_t highest;
  uint32_t fullest_tile;
  at_strbuf notes;
  bool eval;
  bool quick;     // exchanges at their lower bound, unordered
  int64_t limit;  // 0, or cycles after which nobody wants the plan
} at_tiles_lowerer;

at_tiles_value *at_tiles_value_of(const at_tiles_lowerer *w, at_value v);

// ---- lower.c
// A value, without a home, for every result of every node.
at_status at_tiles_lower_declare(at_tiles_lowerer *w, const at_comp *c);
// Steps for every node of c, in order.
at_status at_tiles_lower_comp(at_tiles_lowerer *w, const at_comp *c);

// ---- lower_eval.c
// Computes n's results block by block, as the grid cuts it; grid NULL: whole.
at_status at_tiles_eval_node(at_tiles_lowerer *w, const at_node *n,
                             const at_tiles_rule *r, const at_tiles_grid *g);

// ---- grid.c
at_status at_tiles_dim_whole(at_arena *a, int64_t n, at_tiles_dim *out);
// Cut evenly, tiles `stride` apart.
at_status at_tiles_dim_cut(at_arena *a, int64_t n, int64_t cuts, int64_t stride,
                           at_tiles_dim *out);
// Every block cut again for the tiles group[] of it.
at_status at_tiles_dim_again(at_arena *a, const at_tiles_dim *d,
                             const uint32_t *group, uint32_t n,
                             at_tiles_dim *out);
// A home's dimensions, copied into `a`.
at_status at_tiles_lay_keep(at_arena *a, at_tiles_lay *l);
bool at_tiles_lay_eq(const at_tiles_lay *a, const at_tiles_lay *b);
// Major dimensions first, until every tile has something.
at_status at_tiles_lay_linear(at_arena *a, const at_tiles_machine *m,
                              const at_type *t, at_tiles_lay *out);
// Elements of each tile's block times `size`, added to out[tiles].
void at_tiles_lay_bytes(const at_tiles_lay *l, int64_t size, int64_t *out);
// Elements of each tile's block: out[tiles], zeroed before.
void at_tiles_lay_elements(const at_tiles_lay *l, int64_t tiles, int64_t *out);
// Moves while they are gathered: one per step.
typedef struct at_tiles_moves {
  at_arena *arena;
  AT_VEC(at_tiles_message) messages;
  AT_VEC(uint32_t) receivers;
  int64_t *received;  // per tile, bytes; may be NULL
} at_tiles_moves;
// From homes to boxes: tile (sum of off) + group[i] needs that block of `need`.
at_status at_tiles_move(at_tiles_moves *v, const at_tiles_lay *home,
                        const at_tiles_lay *need, const uint32_t *group,
                        uint32_t num_group, int64_t size);

// Dimensions before a reshape as dimensions after it; false where blocks would
// not be boxes.
at_status at_tiles_lay_reshape(at_arena *a, const at_tiles_lay *from,
                               at_dims old, at_dims dims, at_tiles_lay *out,
                               bool *fits);

// ---- rule.c
at_status at_tiles_rule_make(at_arena *a, const at_node *n, at_tiles_rule *out);
// Tensor t of the node as the grid cuts it; *group: tiles of the factors that
// do not cut it, ascending.
at_status at_tiles_grid_lay(at_arena *a, const at_tiles_rule *r,
                            const at_tiles_grid *g, uint32_t t,
                            at_tiles_lay *out, uint32_t **group,
                            uint32_t *num_group);

// ---- planner.c
// The best grid by estimated cycles, wherever operands are; the linear one if
// asked.
at_status at_tiles_grid_search(at_tiles_lowerer *w, const at_node *n,
                               const at_tiles_rule *r, at_tiles_grid *out);
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
