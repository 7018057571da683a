// Memory layout on a machine of tiles without shared memory (an IPU): where
// each piece of each tensor lives, what a step then has to move, and what that
// takes.
//
// A graph holds variables, compute sets and a program. A view names elements of
// variables in some order and shape without copying them. Variables are mapped
// to tiles through views; vertices run on tiles and name their operands as
// views. `at_tiles_compile` derives what every step exchanges and rearranges,
// places everything in each tile's memory and counts cycles; `at_tiles_run`
// also computes values.
//
// Everything of a graph lives and dies with it. Nothing is thread-safe but
// different graphs in different threads. Positions and lengths are in elements
// unless a name says bytes. Errors name the tensor, the range and the tiles.
//
// Errors: INVALID_ARGUMENT for shapes, ranges and tiles that do not fit,
// FAILED_PRECONDITION for what is not mapped, RESOURCE_EXHAUSTED for host
// memory and for a tile's.
#ifndef ATOLL_TILES_TILES_H_
#define ATOLL_TILES_TILES_H_

#include "abi/dtype.h"
#include "base/arena.h"
#include "base/parallel.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "machine/machine.h"
#include "tiles/atoll_tiles.h"  // the types that its callers share

// ---- Machine
// The figures are those of data/hw; sizes are bytes of one tile.
typedef struct at_tiles_machine {
  const char *name;
  int64_t tiles, bytes_per_tile, workers, vector_bytes;
  int64_t interleaved_bytes;  // of bytes_per_tile: the part at its end
  // Bytes per cycle and tile.
  int64_t exchange_bytes, copy_bytes, copy_interleaved_bytes;
  // Cycles: of a copy's call, of a global sync, of a tile's supervisor per
  // vertex.
  int64_t copy_call, sync, sync_delay, supervisor;
  double clock_hz;
  double f32_macs, f16_macs;  // multiply-adds per cycle and tile
} at_tiles_machine;
// FAILED_PRECONDITION: the description lacks a figure, or is not of tiles.
// *out borrows texts from m.
at_status at_tiles_machine_read(const at_machine *m, at_tiles_machine *out);

// ---- Graph and variables
// An empty graph; the machine is copied, its name borrowed. The caller destroys
// it. RESOURCE_EXHAUSTED: no memory.
at_status at_tiles_graph_create(const at_tiles_machine *m,
                                at_tiles_graph **out);
void at_tiles_graph_destroy(at_tiles_graph *g);  // NULL allowed
// Owned by the graph.
const at_tiles_machine *at_tiles_graph_machine(const at_tiles_graph *g);

// A new tensor, unmapped; the view of all of it. Tokens have no elements and
// are refused. ALREADY_EXISTS: the name is taken.
at_status at_tiles_variable_add(at_tiles_graph *g, const char *name, at_dtype t,
                                at_dims dims, const at_tiles_view **out);
// Flags of the variable behind a view of a whole variable.
at_status at_tiles_variable_flag(const at_tiles_view *v, uint32_t flags);

// ---- Views
// Element type of the variables that it names.
at_dtype at_tiles_view_dtype(const at_tiles_view *v);
// Major to minor; borrowed, as long as the graph.
at_dims at_tiles_view_dims(const at_tiles_view *v);
// Product of the dimensions.
int64_t at_tiles_view_elements(const at_tiles_view *v);
// Elements [begin, end) of dimension dim.
at_status at_tiles_view_slice(const at_tiles_view *v, uint32_t dim,
                              int64_t begin, int64_t end,
                              const at_tiles_view **out);
// Element i of dimension 0, which goes.
// INVALID_ARGUMENT where there is no such element.
at_status at_tiles_view_at(const at_tiles_view *v, int64_t i,
                           const at_tiles_view **out);
// n >= 1 views of one graph and element type, equal but along `dim`.
// INVALID_ARGUMENT says which does not fit.
at_status at_tiles_view_concat(const at_tiles_view *const *v, uint32_t n,
                               uint32_t dim, const at_tiles_view **out);
// The same elements in the same order. INVALID_ARGUMENT: their number differs.
// `dims` is copied.
at_status at_tiles_view_reshape(const at_tiles_view *v, at_dims dims,
                                const at_tiles_view **out);
// Rank 1.
at_status at_tiles_view_flatten(const at_tiles_view *v,
                                const at_tiles_view **out);
// Result dimension d is dimension perm[d].
// perm must name each dimension once.
at_status at_tiles_view_dimshuffle(const at_tiles_view *v, at_dims perm,
                                   const at_tiles_view **out);
// Dimension `dim` backwards. INVALID_ARGUMENT: no such dimension.
at_status at_tiles_view_reverse(const at_tiles_view *v, uint32_t dim,
                                const at_tiles_view **out);
// Elements 0, step, 2 step, ... of dimension dim.
at_status at_tiles_view_subsample(const at_tiles_view *v, uint32_t dim,
                                  int64_t step, const at_tiles_view **out);
// Dimension dim n times after itself.
at_status at_tiles_view_broadcast(const at_tiles_view *v, uint32_t dim,
                                  int64_t n, const at_tiles_view **out);
// Flat views of the same elements, all reordered alike so that what lies
// together in v[0]'s variables comes together. Only for ops that do not care
// for order.
at_status at_tiles_view_reorder(const at_tiles_view *const *v, uint32_t n,
                                const at_tiles_view **out);
// Consecutive elements of one variable, `count` of them, `step` apart, in view
// order.
// step may be negative or 0.
typedef struct at_tiles_run {
  uint32_t var;
  int64_t begin, count, step;
} at_tiles_run;
// A growing list; zeroed, it is empty.
typedef struct at_tiles_runs {
  at_tiles_run *ptr;  // owned: free()
  size_t len, cap, floor;
} at_tiles_runs;
// Runs in the order of the view, joined where they make one progression.
// Where elements [begin, end) of a view are, appended to *out.
// OUT_OF_RANGE: not positions of the view. *out may hold some of the runs on an
// error; freeing it is the caller's in any case.
at_status at_tiles_view_runs(const at_tiles_view *v, int64_t begin, int64_t end,
                             at_tiles_runs *out);

// New variables with the structure and the mapping of v's: what an op gives its
// result when it works on its operand where it lies. Names: name, name.1, ...
at_status at_tiles_view_clone(const at_tiles_view *v, const char *name,
                              const at_tiles_view **out);

// In-tile layouts: logical [N,H,W,C] over a padded variable. `form` names it.
// Channels are padded with zeros to a multiple of four.
typedef enum at_tiles_layout {
  AT_TILES_NC4HW4,  // [N, ceil(C/4), H, W, 4]
  AT_TILES_NHC4W4   // [N, H, ceil(C/4), W, 4]
} at_tiles_layout;
// A variable in that layout; *out is its logical view f32[N,H,W,C], *out_padded
// everything with the padding.
at_status at_tiles_layout_add(at_tiles_graph *g, const char *name, at_dtype t,
                              at_tiles_layout form, int64_t n, int64_t h,
                              int64_t w, int64_t c, const at_tiles_view **out,
                              const at_tiles_view **out_padded);

// ---- Mapping
// For mappings from now on: what happens to an element that has a home when it
// is mapped elsewhere.
void at_tiles_mapping_policy(at_tiles_graph *g, at_tiles_policy p);

// Where the elements of a view have their homes.
// Positions are those of the view, not of its variables.
typedef struct at_tiles_mapping {
  at_tiles_interval *ptr;  // owned: free(); sorted, neighbours on a tile joined
  size_t len, cap;
} at_tiles_mapping;

// All of it or, on an error, nothing.
// INVALID tiles are OUT_OF_RANGE; a second home is FAILED_PRECONDITION under
// the policy REFUSE.
at_status at_tiles_mapping_set(const at_tiles_view *v, uint32_t tile);
// Interval by interval of v's positions; gaps stay as they are.
at_status at_tiles_mapping_set_all(const at_tiles_view *v,
                                   const at_tiles_mapping *m);
// Homes of v's elements; AT_TILES_NOWHERE where unmapped.
// On success *out is the caller's to free (free(ptr)); on an error nothing is.
at_status at_tiles_mapping_get(const at_tiles_view *v, at_tiles_mapping *out);
// The same for several views, positions counted through all of them.
at_status at_tiles_mapping_get_list(const at_tiles_view *const *v, uint32_t n,
                                    at_tiles_mapping *out);
// Spread evenly in order: grain elements stay together (0: a vector), a tile
// that gets anything gets at least min_bytes (0: 128).
at_status at_tiles_mapping_linear(const at_tiles_view *v, int64_t grain,
                                  int64_t min_bytes);
// dst's elements go where src's of the same position are.
at_status at_tiles_mapping_copy(const at_tiles_view *src,
                                const at_tiles_view *dst);
// FAILED_PRECONDITION names the first unmapped range.
at_status at_tiles_mapping_check(const at_tiles_view *v);
// Bytes of variables on each tile, copies included: out[tiles].
void at_tiles_mapping_bytes(const at_tiles_graph *g, int64_t *out);

// ---- Regions
// The parts of a view on one tile; `groups` counts the stretches without a gap.
// A stretch is contiguous in the tile's memory.
typedef struct at_tiles_regions {
  at_tiles_region *ptr;  // owned: free()
  size_t len, cap;
  uint32_t groups;
} at_tiles_regions;
// The parts of v that have their home on `tile`, in the order of its memory.
// *out is the caller's to free, on success only.
at_status at_tiles_regions_of(const at_tiles_view *v, uint32_t tile,
                              at_tiles_regions *out);
// Cuts regions into at most `parts` lists (6: one per thread), each of a
// multiple of `grain` elements but the last, none above `most` (0: no limit;
// then more lists than parts may come). Sets `group` of every piece to its
// list.
// *out is the caller's to free, on success only. INVALID_ARGUMENT: no parts, or
// a grain below 1.
at_status at_tiles_regions_split(const at_tiles_regions *r, uint32_t parts,
                                 int64_t grain, int64_t most,
                                 at_tiles_regions *out);
// The view's elements in the regions' order, flat.
// Vertices name what they read and write of a tensor by such views.
at_status at_tiles_regions_view(const at_tiles_view *v,
                                const at_tiles_region *r, size_t n,
                                const at_tiles_view **out);

// ---- Codelets and compute sets
// What a vertex does to a field: read it, write all of it, or both.
// A field that is OUT must be written whole: what was there is not kept.
typedef enum at_tiles_access {
  AT_TILES_IN,
  AT_TILES_OUT,
  AT_TILES_INOUT
} at_tiles_access;
// In which form a codelet takes an operand.
typedef enum at_tiles_want {
  AT_TILES_VECTOR,   // one contiguous vector in order
  AT_TILES_REGIONS,  // a list of vectors, used where they lie
  AT_TILES_EITHER    // whichever takes fewer cycles
} at_tiles_want;
// A field of a codelet: how it uses an operand, and in which form it wants it.
typedef struct at_tiles_field {
  const char *name;
  at_tiles_access access;
  at_tiles_want want;
  uint32_t align_bytes;  // a vector that begins elsewhere is copied first
} at_tiles_field;
// What an estimator and a run see of one vertex.
typedef struct at_tiles_operand {
  at_dtype dtype;
  at_dims dims;
  int64_t elements, regions;  // regions: vectors that it comes in
  void *data;  // dense, in order; NULL when only cycles are asked
} at_tiles_operand;
// One vertex as its codelet sees it: an operand for each field, a number for
// each parameter. Borrowed for the call.
typedef struct at_tiles_work {
  const at_tiles_machine *machine;
  const at_tiles_operand *fields;
  uint32_t num_fields;
  const double *params;
} at_tiles_work;
// The code of a vertex. Constant, or a caller's own, which must outlive the
// graph.
typedef struct at_tiles_codelet {
  const char *name;
  const at_tiles_field *fields;
  uint32_t num_fields, num_params;
  // A supervisor vertex shares its work among the tile's workers and its cycles
  // are the tile's; else one worker runs it, and `cycles` counts that worker's
  // turns.
  bool supervisor, floats_only;
  uint32_t code_bytes;
  // Cycles of one vertex from sizes alone, without data. The same for equal
  // arguments.
  int64_t (*cycles)(const at_tiles_work *w);
  // Computes OUT and INOUT fields in place, on any thread. NULL: the codelet
  // can be planned but not run (UNIMPLEMENTED).
  void (*run)(const at_tiles_work *w);
} at_tiles_codelet;
// Codelets that come with Atoll (codelets.def); NOT_FOUND lists them.
at_status at_tiles_codelet_find(const char *name, const at_tiles_codelet **out);

// An empty set of vertices, which run in one step; name copied. Owned by the
// graph.
at_status at_tiles_set_add(at_tiles_graph *g, const char *name,
                           at_tiles_set **out);
// fields: codelet->num_fields views. OUT_OF_RANGE: no such tile.
at_status at_tiles_vertex_add(at_tiles_set *s, const at_tiles_codelet *c,
                              uint32_t tile, const at_tiles_view *const *fields,
                              const double *params);
// An elementwise op over whole tensors, vertices made by the library: on the
// tiles of `out`, one vertex per tile, over out's regions there. in: num_fields
// - 1 views of out's element count.
at_status at_tiles_map_elementwise(at_tiles_set *s, const at_tiles_codelet *c,
                                   const at_tiles_view *const *in,
                                   const at_tiles_view *out,
                                   const double *params);

// Where the result of an elementwise op should live, by estimated cycles: with
// an operand (in place), half with each of two operands that are apart, or
// spread.
typedef enum at_tiles_choice {
  AT_TILES_WITH_OPERAND,
  AT_TILES_HALVES,
  AT_TILES_SPREAD
} at_tiles_choice;
// Makes the result (a clone of the operand, or a new variable), maps it, and
// adds the vertices. *out_choice and *out_cycles may be NULL.
at_status at_tiles_plan_elementwise(at_tiles_set *s, const at_tiles_codelet *c,
                                    const at_tiles_view *const *in,
                                    const char *name, const double *params,
                                    const at_tiles_view **out,
                                    at_tiles_choice *out_choice,
                                    int64_t *out_cycles);

// ---- Programs
// An empty sequence. Programs are owned by their graph.
at_status at_tiles_program_sequence(at_tiles_graph *g, at_tiles_program **out);
// Appends p; it may be part of several programs. INVALID_ARGUMENT: no sequence,
// another graph, or the sequence is inside p.
at_status at_tiles_program_add(at_tiles_program *sequence, at_tiles_program *p);
// Runs all vertices of the set once. Vertices that are added later count, too,
// until it is compiled.
at_status at_tiles_program_execute(at_tiles_set *s, at_tiles_program **out);
// Element i of src to element i of dst. INVALID_ARGUMENT: numbers of elements,
// types or graphs differ.
at_status at_tiles_program_copy(const at_tiles_view *src,
                                const at_tiles_view *dst,
                                at_tiles_program **out);
// Turns of loops in each other, at most.
#define AT_TILES_MOST_TURNS (1ll << 40)

// *sum += n * times; INT64_MAX where that would be more.
static inline void at_tiles_add(int64_t *sum, int64_t n, int64_t times) {
  int64_t all;
  if (__builtin_mul_overflow(n, times, &all) ||
      __builtin_add_overflow(*sum, all, sum))
    *sum = INT64_MAX;
}

// The body `times` times. INVALID_ARGUMENT: fewer than 0.
at_status at_tiles_program_repeat(int64_t times, at_tiles_program *body,
                                  at_tiles_program **out);
// pred: one element; not zero: `yes`. Either may be NULL.
at_status at_tiles_program_branch(const at_tiles_view *pred,
                                  at_tiles_program *yes, at_tiles_program *no,
                                  at_tiles_program **out);

// ---- Exchange
// One tile sends the same bytes to one or more others.
typedef struct at_tiles_message {
  uint32_t from;
  uint32_t first, count;  // receivers: list[first .. first + count)
  int64_t bytes;
  int64_t start;  // cycle at which it starts; filled by the plan
} at_tiles_message;
// Elements that a message carries, in the order in which they are sent.
typedef struct at_tiles_sent {
  uint32_t message, var;
  int64_t begin, end;
} at_tiles_sent;
// The messages of one exchange and, once planned, their order. Arrays are
// borrowed from the graph or the arena that they were made in.
typedef struct at_tiles_exchange {
  at_tiles_message *messages;
  size_t num_messages;
  const uint32_t *receivers;
  // By message, what it carries; NULL for what was not derived from a graph.
  const at_tiles_sent *sent;
  size_t num_sent;
  int64_t cycles;       // of the plan
  int64_t lower_bound;  // the busiest tile's bytes at full rate
  int64_t sent_bytes, received_bytes, multicast_saved_bytes;
  int64_t instruction_bytes;  // of the busiest tile's send and receive code
  int64_t *tile_code;  // [tiles] the same of each tile is added; NULL: not told
} at_tiles_exchange;
// Orders the messages so that no tile sends or receives two at once.
// Tries several orders, from the cheapest to find, until one is near the lower
// bound. Fills in starts, cycles and bytes. OUT_OF_RANGE: a message names a
// tile that the machine does not have. Leaves x without an order on an error.
at_status at_tiles_exchange_plan(const at_tiles_machine *m,
                                 at_tiles_exchange *x);
// Without an order: cycles are the lower bound, bytes are counted.
// For plans that are only compared: the order is the dearest part of a plan.
at_status at_tiles_exchange_bound(const at_tiles_machine *m,
                                  at_tiles_exchange *x);
// INTERNAL when two messages of one tile overlap: what every plan must pass.
at_status at_tiles_exchange_verify(const at_tiles_machine *m,
                                   const at_tiles_exchange *x);

// Patterns among the first n tiles, every message `bytes` long, whose cycles
// have a closed form at `rate` bytes per cycle. The exchange lives in `a`.
typedef enum at_tiles_pattern {
  AT_TILES_ALL_TO_ALL,
  AT_TILES_BROADCAST,
  AT_TILES_GATHER,
  AT_TILES_NEIGHBOUR,
  AT_TILES_TRANSPOSE,
  AT_TILES_ALL_GATHER,
  AT_TILES_PATTERNS
} at_tiles_pattern;
// Its name in tables; static, "?" for none.
const char *at_tiles_pattern_text(at_tiles_pattern p);
// Not planned yet. *closed_form: cycles of the best order, without the sync.
at_status at_tiles_pattern_make(at_arena *a, at_tiles_pattern which, uint32_t n,
                                int64_t bytes, int64_t rate,
                                at_tiles_exchange *out, int64_t *closed_form);
// All of them, in several sizes up to `most` tiles, planned and verified: a
// table.
at_status at_tiles_patterns_text(const at_tiles_machine *m, uint32_t most,
                                 at_strbuf *out);

// ---- Compiled programs
enum { kTilesSpread = 16 };
// One execution of a compute set, or one copy. Names live with the plan.
typedef struct at_tiles_step {
  const char *name;
  int64_t times;  // in the loops around it
  // Cycles of one pass; pre, execute and post are the busiest tile's.
  int64_t sync, exchange, pre, execute, post, cycles;
  int64_t exchange_bytes;  // received by all tiles
  int64_t exchange_bound;
  int64_t rearranged_bytes;
  int64_t saved_cycles;  // by using fragments where they lie
  // What the step would take where its operands are, if nothing had to move
  // there; 0: something must.
  int64_t stay_cycles;
  uint32_t busiest, idle_tiles;
  double balance;        // mean work of all tiles over the busiest's
  const uint32_t *work;  // pre + execute + post of each tile; may be NULL
  // Of 255: tiles that work, and that have k sixteenths of the busiest's work.
  uint8_t spread[kTilesSpread];
} at_tiles_step;
// A block in one tile's memory while steps [first, last] run (phases of a step:
// 4 step + 0 exchange, 1 pre-arrange, 2 execute, 3 post-arrange).
// Memory of one tile for a span of steps, inclusive.
// Blocks whose spans overlap do not overlap in memory.
typedef struct at_tiles_block {
  const char *name;
  int64_t bytes, at;  // at: address from the start of the tile's memory
  int32_t first, last;
  uint8_t category;
  bool interleaved;  // has to lie in the interleaved part
} at_tiles_block;
// What memory is for.
// RECEIVED: what the exchange brings; ARRANGED: copies in a codelet's order.
typedef enum at_tiles_category {
  AT_TILES_MEM_VARIABLES,
  AT_TILES_MEM_COPIES,
  AT_TILES_MEM_RECEIVED,
  AT_TILES_MEM_ARRANGED,
  AT_TILES_MEM_VERTICES,
  AT_TILES_MEM_CODE,
  AT_TILES_MEM_EXCHANGE_CODE,
  AT_TILES_MEM_COPY_DESCRIPTORS,
  AT_TILES_MEM_STACK,
  AT_TILES_MEM_PADDING,
  AT_TILES_MEM_COUNT
} at_tiles_category;
// What the memory is for, in words; static.
const char *at_tiles_category_text(at_tiles_category c);
// What moving one tensor costs over the program.
// For advice: which tensor should live elsewhere.
typedef struct at_tiles_tensor {
  const char *name, *shape, *home;  // "f32[8,4]", "64 x 23 blocks of [32, 128]"
  const char *step, *want;  // the step that pays most, and what it wants
  int64_t bytes, cycles;    // received by all tiles; of the busiest, by step
  int64_t tile_bytes;       // where it takes most space
} at_tiles_tensor;
// A compiled program. All that it points to lives with its graph, or with the
// arena that it was lowered into.
typedef struct at_tiles_plan {
  const at_tiles_machine *machine;
  at_tiles_step *steps;
  uint32_t num_steps;
  int64_t cycles;  // all steps with their loops
  // Memory of the fullest tile: in all; data only; data if nothing shared
  // space.
  int64_t peak_bytes, data_bytes, unshared_bytes;
  uint32_t fullest;
  const int64_t *tile_cycles;    // [tiles] work of all steps; NULL: see steps
  const int64_t *tile_bytes;     // [tiles]
  const int64_t *tile_received;  // [tiles] bytes over the program; may be NULL
  const int64_t (*categories)[AT_TILES_MEM_COUNT];  // [tiles]
  at_tiles_block *blocks;                           // of the fullest tile
  uint32_t num_blocks;
  const char *advice;  // lines of text; "" when there is nothing to say
  const at_tiles_tensor *tensors;  // those that cost the most, dearest first
  uint32_t num_tensors;
  const struct at_tiles_lowerer *lowered;  // of a whole program; else NULL
} at_tiles_plan;
// Zeroed: a program that does not fit is refused.
typedef struct at_tiles_options {
  bool lenient;  // over memory: a plan, not RESOURCE_EXHAUSTED
} at_tiles_options;
// Lives with the graph. Errors: FAILED_PRECONDITION (unmapped, two writers),
// RESOURCE_EXHAUSTED (tile, step and largest variables).
at_status at_tiles_compile(at_tiles_graph *g, at_tiles_program *p,
                           const at_tiles_options *o,
                           const at_tiles_plan **out);

// What one execution of a compute set, or one copy, exchanges: before it or,
// with `after`, with its results. INVALID_ARGUMENT for other programs.
at_status at_tiles_program_exchange(at_tiles_program *p, bool after,
                                    const at_tiles_exchange **out);
// "tile 3 -> 4, 5: at cycle 12, 128 bytes: A[0, 32)", a message a line.
at_status at_tiles_exchange_text(at_tiles_program *p, at_strbuf *out);

// ---- Values
// Dense, in the view's order, in storage form.
at_status at_tiles_write(const at_tiles_view *v, const void *data,
                         size_t bytes);
// INVALID_ARGUMENT: bytes is not the view's size. Elements that nothing has
// written are zero.
at_status at_tiles_read(const at_tiles_view *v, void *data, size_t bytes);
// Runs a program; vertices of a set in parallel on `pool` (NULL: alone). The
// same values and cycles every time. *out_cycles: with loops and branches as
// taken.
at_status at_tiles_run_program(at_tiles_graph *g, at_tiles_program *p,
                               at_pool *pool, int64_t *out_cycles);

// ---- Reports
// A few lines, appended: cycles, the fullest tile, and where they go.
void at_tiles_report_text(const at_tiles_plan *p, at_strbuf *out);
// The same as JSON, with a record for each step.
void at_tiles_report_json(const at_tiles_plan *p, at_strbuf *out);
// A page with pictures.
void at_tiles_report_html(const at_tiles_plan *p, const char *title,
                          at_strbuf *out);

#endif
