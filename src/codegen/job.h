// One kernel to generate: what was decided about it before any LLVM is
// involved. Planning (plan.c, reduce_plan.c, ...) fills jobs on the caller's
// thread; compile threads turn them into functions later.
#ifndef ATOLL_CODEGEN_JOB_H_
#define ATOLL_CODEGEN_JOB_H_

#include "codegen/codegen.h"
#include "codegen/emit.h"
#include "codegen/groups.h"
#include "nest/nest.h"

// What a kernel does with its iteration space. All but COMPARATOR and EXTERNAL
// are functions of a range of tasks: void (buffers, begin, end), the buffers
// being the node's operands, its results, then scratch.
typedef enum at_job_kind {
  // Elements of results, each by at_em_elem.
  AT_JOB_LOOP,
  // Reduce nodes of one space, and what follows them elementwise.
  AT_JOB_REDUCE,
  // Adds up the partial results of a split REDUCE, which come before it.
  AT_JOB_COMBINE,
  // Operands into results, before an update in place.
  AT_JOB_COPY,
  // Before a SELECT_SCATTER: the init value everywhere.
  AT_JOB_FILL,
  // dynamic_update_slice: the elements of the update, to their places in the
  // result.
  AT_JOB_UPDATE,
  // Updates, one after another: they may meet in an element.
  AT_JOB_SCATTER,
  // select_and_scatter behind its FILL: windows that overlap in one task.
  AT_JOB_SELECT_SCATTER,
  // Running reductions along one dimension, in order.
  AT_JOB_SCAN,
  // Rows of results, swept several times (rows.h).
  AT_JOB_ROWS,
  // A sort's order: at_comparator_fn of `region`.
  AT_JOB_COMPARATOR,
  // Statements around other jobs (nest/nest.h), as one task.
  AT_JOB_NEST,
  AT_JOB_EXTERNAL  // written by another room
} at_job_kind;

// A tile of a transposing loop: so many values of the tiled digit by so many
// columns at most.
enum { AT_TILE_ROWS = 16, AT_TILE_COLUMNS = 64 };

// Where one digit is cut: ascending, inside of it.
typedef struct at_pieces {
  uint32_t cuts;
  const int64_t *at;  // [cuts]
} at_pieces;

// Written by planning on one thread, read by compile threads, but for the
// fields that codegen.c and tier.c set in between: index, unit, quick, plain,
// symbol. Lives in the generator's arena.
typedef struct at_job {
  at_job_kind kind;
  // Whose results it makes. NULL: COMPARATOR, NEST, EXTERNAL.
  const at_node *node;
  // COMPARATOR.
  const at_comp *region;
  // NEST; borrowed from the caller.
  const at_nest *nest;
  at_cg_function external;  // EXTERNAL
  // Its number among the kernels that are compiled; UINT32_MAX: it is only part
  // of nests.
  uint32_t index;
  // The module, and so the object, that it is compiled in.
  uint32_t unit;
  // How long it takes to compile, in operations that it is written from; 0:
  // always with all steps.
  uint64_t ops;
  // How much its speed matters: at_tier_measure.
  double work;
  bool quick;  // compiled with fewer steps (tier.c)
  bool plain;  // quick, and without any step that can be left out
  // Per result: operand in whose place it is, or -1. Loads of such an operand
  // come before the stores of the same step.
  const int32_t *alias;
  // Which results this kernel writes, ascending.
  const uint32_t *results;
  uint32_t num_results;
  // Of the vector loop; a power of two, 1: scalars.
  uint32_t lanes;
  bool wide_index;
  // The iteration space, outer to inner; the last is the vector loop's.
  uint32_t n;
  int64_t extent[AT_CG_MAX_RANK];
  bool reduced[AT_CG_MAX_RANK];
  // REDUCE, ROWS: which of the extents has the lanes.
  uint32_t vector;
  // Vectors side by side: accumulators of a REDUCE, steps in one turn of a
  // LOOP.
  uint32_t unroll;
  // Elements of the vector extent in a task.
  int64_t block;
  // LOOP: the digit that is walked in tiles, inside blocks; n: none.
  uint32_t tile;
  // LOOP: of each digit (pieces.h). NULL: none is cut.
  const at_pieces *pieces;
  // REDUCE: which extent is cut into blocks.
  uint32_t split_digit;
  // Elements of such a block; 0: not cut.
  int64_t split;
  // How many blocks: ceil(extent / split). COMBINE: how many to combine.
  int64_t parts;
  // The reduce nodes that are computed together; of a REDUCE all of one space.
  const at_node *const *reduces;
  uint32_t num_reduces;
  int64_t tasks, grain;
  double ns;
  // ROWS: its sweeps.
  const struct at_row_plan *rows;
  // Bit r: result r is stored past the caches. LOOP, ROWS (stream.h).
  uint64_t streams;
  // Takes a scratch buffer after results.
  bool scratch;
  // Per operand: elements before where its buffer begins. NULL: none.
  const int64_t *skip;
  // Of its function.
  char symbol[24];
} at_job;

// What the kernel evaluates for the i-th result that it writes: of a fusion a
// value of its region, whose parameters are bound to operands, else the node's
// own; of COPY, FILL and UPDATE an operand.
at_value at_job_root(const at_job *j, uint32_t i);
// The same of a node's result.
at_value at_node_root(const at_node *n, uint32_t result);
// Is operand i a constant that the code itself holds? Then its buffer is not
// read.
bool at_job_is_immediate(const at_node *n, uint32_t i);

// Cuts of a row-major space: suffix products at which index maps need digits.
// Cut at 12 and 4, a space of 120 has the digits 10, 3, 4.
typedef struct at_cuts {
  int64_t total;
  uint32_t n;
  int64_t
      at[AT_CG_MAX_RANK];  // > 1, < total, increasing; each divides the next
} at_cuts;
// Adds a cut where it nests with those that are there; else leaves it out,
// which costs divisions but is as right.
void at_cuts_add(at_cuts *c, int64_t suffix);
// The cuts between all dimensions of t, whose elements are those of the space.
void at_cuts_add_type(at_cuts *c, const at_type *t);
// Adds what the producers of v inside the kernel need, as long as their space
// is v's. RESOURCE_EXHAUSTED alone.
at_status at_cuts_walk(at_cuts *c, at_arena *a, at_value v,
                       const at_node *kernel);
// A stride in the space along which some producer reads memory in order, though
// the space's own minor digit does not: what a transpose asks to be tiled. 0:
// none.
at_status at_cuts_tile(at_arena *a, at_value v, int64_t total,
                       const at_node *kernel, int64_t *stride);
// The digits' extents, outer to inner; returns how many, at most
// AT_CG_MAX_RANK.
uint32_t at_cuts_extents(const at_cuts *c, int64_t *extent);

// What one element costs: what lanes, blocks and grains are chosen by. Rough,
// and the same on every machine of one target.
typedef struct at_cg_cost {
  // Weighted vector operations.
  double ops;
  // Operations that have no vector form.
  double scalar;
  // Bytes read and written, taken over the largest result.
  double bytes;
  // All of them: what a launch touches.
  double touched;
  // Register bytes of the widest type: what lanes follow from.
  uint32_t widest;
  // Part of ops on types of 8 bytes and more.
  double wide_ops;
  bool vector;  // everything has a vector form
  bool heavy;   // has transcendental functions
  bool shifts;  // pads or joins along the last dimension, and broadcasts
  // Elements of the largest value seen: whether indices need 64 bits.
  int64_t elements;
} at_cg_cost;
// Of computing one element of n's results from its operands. RESOURCE_EXHAUSTED
// alone.
at_status at_cg_cost_of(at_arena *a, const at_node *n, at_cg_cost *out);
// Lanes of a vector of such elements on that CPU (base/cpu.h); a power of two.
uint32_t at_lanes_for(uint64_t cpu, const at_cg_cost *c);
// Estimated nanoseconds of one element on one thread, with everything that the
// launch touches in the nearest of the target's caches that holds it.
double at_cg_cost_ns(const at_cg_target *t, const at_cg_cost *c,
                     uint32_t lanes);
// Has every op of a region of scalars a vector form?
bool at_reducer_vectorizes(const at_comp *c);
// How many tasks of that length a chunk has: all where they take less than 20
// us together, else a few us to 20 us of them, at least 1, and so that chunks
// are as even as that many can be.
int64_t at_grain_for(double task_ns, int64_t tasks);

// ---- emission
// Writes the whole function of a job: e stands in its start block, and every
// block has an end afterwards. The first failure, with the op's name; e's own
// status is OK again.
at_status at_job_emit(at_em *e, const at_job *j);
// Tasks [begin, end) of a job of the kind, where the function stands; buffers
// and operands are bound. Failures are e's.
void at_job_emit_loop(at_em *e, const at_job *j, LLVMValueRef begin,
                      LLVMValueRef end);
void at_job_emit_reduce(at_em *e, const at_job *j, LLVMValueRef begin,
                        LLVMValueRef end);
void at_job_emit_combine(at_em *e, const at_job *j, LLVMValueRef begin,
                         LLVMValueRef end);
void at_job_emit_scatter(at_em *e, const at_job *j, LLVMValueRef begin,
                         LLVMValueRef end);
void at_job_emit_select_scatter(at_em *e, const at_job *j, LLVMValueRef begin,
                                LLVMValueRef end);
void at_job_emit_scan(at_em *e, const at_job *j, LLVMValueRef begin,
                      LLVMValueRef end);
// Where element p of an update's operand 1 goes in the result, as a row-major
// index; starts are clamped.
at_ix at_update_target(at_em *e, const at_node *n, const at_pos *p);
// The whole body, with its return.
void at_job_emit_comparator(at_em *e, const at_job *j);
// All statements; what they call is written in place.
void at_job_emit_nest(at_em *e, const at_job *j);
// The whole of a range job, where the function under construction stands; its
// buffers are bound by at_job_bind_buffer.
void at_job_emit_inside(at_em *e, const at_job *j);
// Until the scope at hand is popped.
void at_job_bind_buffer(at_em *e, uint32_t index, LLVMValueRef ptr);
// Base pointer of a buffer, by its number among the function's.
LLVMValueRef at_job_buffer(at_em *e, uint32_t index);
// The pointer of that number in a table of pointers, loaded here.
LLVMValueRef at_job_load_buffer(at_em *e, LLVMValueRef table, uint32_t index);
// Of result `result` of the node, and of the scratch buffer.
LLVMValueRef at_job_result(at_em *e, const at_job *j, uint32_t result);
LLVMValueRef at_job_scratch(at_em *e, const at_job *j);

#endif
