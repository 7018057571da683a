// What the files of `tiles` share.
//
// Errors: as tiles.h.
// Memory: everything is the graph's, but for vectors that a line says to free.
// Threads: one at a time on a graph.
#ifndef ATOLL_TILES_TILES_INTERNAL_H_
#define ATOLL_TILES_TILES_INTERNAL_H_

#include <stdlib.h>

#include "base/arena.h"
#include "base/map.h"
#include "tiles/tiles.h"

// ---- Growing arrays on the heap
// A run, mapping or region array may be large and short-lived, so not in an
// arena. Yields false when there is no memory.
// Makes room for `want` elements, at least doubling what there is; *ptr stays
// as it is where that fails. at_tiles_push appends one element to any struct of
// ptr, len and cap.
bool at_tiles_grow(void **ptr, size_t *cap, size_t want, size_t elem_bytes);
#define at_tiles_push(v, ...)                                 \
  (at_tiles_grow((void **)&(v)->ptr, &(v)->cap, (v)->len + 1, \
                 sizeof *(v)->ptr) &&                         \
   ((v)->ptr[(v)->len++] = (__VA_ARGS__), true))

// ---- Graph
// A variable of a graph; its number is its index in at_tiles_graph.vars.
typedef struct at_tiles_var {
  const char *name;
  at_dtype dtype;
  at_dims dims;
  int64_t elements;
  uint32_t flags;
  // Elements that no tile has are unmapped: a program that uses them is
  // refused.
  at_tiles_mapping home;    // intervals of the variable, disjoint
  at_tiles_mapping copies;  // by the duplicating policy; may overlap over tiles
  uint8_t *data;            // dense; NULL until a value is needed
  const at_tiles_view *view;
} at_tiles_var;

// A codelet on a tile with its operands: codelet->num_fields views, num_params
// numbers.
typedef struct at_tiles_vertex {
  const at_tiles_codelet *codelet;
  uint32_t tile;
  const at_tiles_view **fields;
  const double *params;
} at_tiles_vertex;

struct at_tiles_set {
  at_tiles_graph *graph;
  const char *name;
  // In the order in which they were added. Those on one tile run on its
  // workers.
  AT_VEC(at_tiles_vertex) vertices;
};

// Variables, sets, views and programs, all in one arena.
// Freed as a whole: nothing of it is freed before.
struct at_tiles_graph {
  at_arena *arena;
  at_tiles_machine machine;
  // What happens to an element that has a home and is mapped again.
  at_tiles_policy policy;
  AT_VEC(at_tiles_var) vars;
  // Names that are taken.
  at_map by_name;
  uint64_t looks;  // so far, for at_tiles_program.look
};

// ---- Views
// A view is cut into boxes. A piece says where the elements of one box are: at
// offset + sum (index - lo) * stride of a variable, or of another view's
// row-major order (`of`; what a reshape that strides cannot say leaves behind).
typedef struct at_tiles_piece {
  const at_tiles_view *of;  // NULL: the variable
  uint32_t var;
  int64_t offset;
  int64_t *lo, *size, *stride;  // rank entries each
} at_tiles_piece;
struct at_tiles_view {
  at_tiles_graph *graph;
  at_dtype dtype;
  uint32_t rank, num_pieces;
  const int64_t *dims;
  int64_t elements;
  at_tiles_piece *pieces;  // rank 1: sorted by lo
};
// A view with room for n pieces; dims are copied.
// The pieces are the caller's to fill in.
at_status at_tiles_view_new(at_tiles_graph *g, at_dtype t, at_dims dims,
                            uint32_t n, at_tiles_view **out);
// A flat view of runs, in order.
at_status at_tiles_view_of_runs(at_tiles_graph *g, at_dtype t,
                                const at_tiles_run *r, size_t n,
                                const at_tiles_view **out);
// Appends r, joined with the last run where both make one progression. False:
// no memory.
// out: on the heap, the caller's to free.
bool at_tiles_runs_push(at_tiles_runs *out, at_tiles_run r);

// ---- Where runs live
// Part of a run on one tile; `tile` AT_TILES_NOWHERE: unmapped.
typedef struct at_tiles_part {
  uint32_t var, tile;
  int64_t begin, count, step;
  int64_t at;  // position in the view
} at_tiles_part;
// A growing list; zeroed, it is empty.
typedef struct at_tiles_parts {
  at_tiles_part *ptr;  // owned: free()
  size_t len, cap;
} at_tiles_parts;
// Positions [begin, end) of v with their tiles, in the view's order, appended
// to *out: the caller frees it, on an error too.
at_status at_tiles_locate(const at_tiles_view *v, int64_t begin, int64_t end,
                          at_tiles_parts *out);
// FAILED_PRECONDITION: `what` uses elements of p, which have no home.
at_status at_tiles_unmapped(const at_tiles_graph *g, const at_tiles_part *p,
                            const char *what);
// Lowest element of a part and the one after its highest.
static inline int64_t at_tiles_low(int64_t begin, int64_t count, int64_t step) {
  return step < 0 ? begin + (count - 1) * step : begin;
}
// One past the highest.
static inline int64_t at_tiles_high(int64_t begin, int64_t count,
                                    int64_t step) {
  return (step < 0 ? begin : begin + (count - 1) * step) + 1;
}
// Frees and empties m.
void at_tiles_mapping_free(at_tiles_mapping *m);

// ---- Programs
// What a program is made of.
typedef enum at_tiles_kind {
  // Its parts, one after the other.
  AT_TILES_SEQUENCE,
  // The vertices of a set, all at the same time: one step.
  AT_TILES_EXECUTE,
  // One step that only moves: src to dst, which have the same elements' type
  // and number.
  AT_TILES_COPY,
  // Its body `times` times.
  AT_TILES_REPEAT,
  // The first part where pred is true, else the second.
  AT_TILES_BRANCH
} at_tiles_kind;
struct at_tiles_program {
  at_tiles_graph *graph;
  at_tiles_kind kind;
  AT_VEC(at_tiles_program *) parts;  // sequence; repeat: body; branch: yes, no
  at_tiles_set *set;
  // Copies have src and dst, branches pred, repeats times.
  const at_tiles_view *src, *dst, *pred;
  int64_t times;
  struct at_tiles_derived *derived;  // execute, copy: filled on first use
  uint64_t look;  // the last look for a program that saw this one
};

// What one step does, derived from where operands lie.
typedef struct at_tiles_derived {
  const char *name;
  bool is_copy;
  // Messages that bring operands to their vertices' tiles, and results home.
  at_tiles_exchange in, out;  // before and after execution
  // Per tile, cycles and bytes.
  uint32_t *pre, *execute, *post;
  // received: by exchange; arranged: copied into the order that vertices want;
  // the rest is what the step keeps on a tile.
  int64_t *received, *arranged, *vertex_bytes, *code_bytes, *descriptor_bytes,
      *exchange_code;
  // Sums over all tiles.
  int64_t rearranged_bytes, saved_cycles;
  uint8_t *reads, *writes;  // a bit per variable
  uint8_t *direct;          // per tile: what it receives is used as it arrived
  int64_t *moved;           // per variable: bytes that vertices elsewhere need
  uint32_t num_vars;        // when this was derived
} at_tiles_derived;
// The step of an EXECUTE or COPY program, derived at the first call and kept:
// what is mapped or added later does not change it. Owned by the graph.
at_status at_tiles_derive(at_tiles_program *p, at_tiles_derived **out);
// Cycles of one tile: pre-arrange, execute, post-arrange.
int64_t at_tiles_derived_work(const at_tiles_derived *d, uint32_t tile);
// Cycles of one pass: sync, exchange, the busiest tile's work.
at_tiles_step at_tiles_step_of(const at_tiles_machine *m,
                               const at_tiles_derived *d);

// How a step's work is spread: work counted by sixteenths of the busiest
// tile's, then the share (of 255) of tiles that have at least k sixteenths.
static inline void at_tiles_spread_add(uint32_t *histogram, int64_t work,
                                       int64_t most) {
  if (work > 0)
    histogram[AT_MIN(work * kTilesSpread / AT_MAX(most, 1),
                     (int64_t)kTilesSpread - 1)]++;
}
// out[k]: the share of tiles with at least k sixteenths.
static inline void at_tiles_spread_end(const uint32_t *histogram, int64_t tiles,
                                       uint8_t *out) {
  int64_t n = 0;
  for (int k = kTilesSpread; k-- > 0;) {
    n += histogram[k];
    out[k] = (uint8_t)(255 * n / AT_MAX(tiles, 1));
  }
}

// Cycles of a supervisor vertex whose workers share so many vectors, `loop`
// cycles each, in so many regions.
int64_t at_tiles_shared_cycles(const at_tiles_machine *m, int64_t vectors,
                               int64_t regions, int64_t loop);
// Cycles of copying so many bytes inside a tile.
int64_t at_tiles_copy_cycles(const at_tiles_machine *m, int64_t bytes,
                             bool interleaved);
// Bit i of a set, eight to a byte.
static inline bool at_tiles_bit(const uint8_t *bits, uint32_t i) {
  return bits[i >> 3] >> (i & 7) & 1;
}

// ---- Memory of one tile
// Places blocks whose lives overlap beside each other; *out_high: the end of
// the highest. Largest first, each as low as it fits; interleaved ones from
// `interleaved_at` on.
at_status at_tiles_place(at_tiles_block *b, uint32_t n, int64_t interleaved_at,
                         int64_t *out_high);

// A set of messages while it is gathered: who needs which elements from whom.
typedef struct at_tiles_need {
  // The variable, the tile that has the elements, and the one that wants them.
  uint32_t var, from, to;
  // Elements [begin, end) of the variable, row-major.
  int64_t begin, end;
} at_tiles_need;
// A growing list; zeroed, it is empty.
typedef struct at_tiles_needs {
  at_tiles_need *ptr;  // owned: free()
  size_t len, cap;
} at_tiles_needs;
// Sorts and unites `n`; messages with the same sender and receivers become one.
// received[tile] += bytes, each element counted once per tile; tile_code[tile]
// += bytes of send and receive code.
at_status at_tiles_exchange_of(at_tiles_graph *g, at_tiles_needs *n,
                               int64_t *received, int64_t *tile_code,
                               at_tiles_exchange *out);

// Starts every message as soon as its buses are free, the urgent ones first.
// pair[message]: both buses of each pair carry it. False: no memory, or too
// many messages; nothing is changed.
bool at_tiles_greedy(const at_tiles_machine *m, at_tiles_exchange *x,
                     const uint8_t *pair);

// The round of each message, as many as the busiest tile has messages. False:
// not all messages have one receiver, or there are too many; `round` is then
// not filled.
bool at_tiles_rounds(const at_tiles_machine *m, const at_tiles_exchange *x,
                     uint32_t *round);

#endif
