// One kernel to generate: what was decided about it before any LLVM is
// involved. Planning (plan.c, reduce_plan.c, ...) fills jobs on the caller's
// thread; compile threads turn them into functions later.
#ifndef ATOLL_CODEGEN_JOB_H_
#define ATOLL_CODEGEN_JOB_H_

#include "codegen/codegen.h"
#include "codegen/emit.h"
#include "codegen/groups.h"
#include "nest/nest.h"

typedef enum at_job_kind {
  AT_JOB_LOOP,     // elements of results, by at_em_elem
  AT_JOB_REDUCE,   // reduce nodes and what follows them
  AT_JOB_COMBINE,  // partial results of a split reduce
  AT_JOB_COPY,     // operands into results (before an update in place)
  AT_JOB_FILL,     // select_and_scatter: the init value everywhere
  AT_JOB_UPDATE,   // dynamic_update_slice: the window
  AT_JOB_SCATTER,  // updates, one after another
  AT_JOB_SELECT_SCATTER,
  AT_JOB_SCAN,
  AT_JOB_ROWS,        // rows of results (rows.h)
  AT_JOB_COMPARATOR,  // a sort's order
  AT_JOB_NEST,        // statements around other jobs (nest/nest.h)
  AT_JOB_EXTERNAL     // written by another room
} at_job_kind;

enum { AT_TILE_ROWS = 16, AT_TILE_COLUMNS = 64 };

typedef struct at_job {
  at_job_kind kind;
  const at_node *node;      // NULL: comparator
  const at_comp *region;    // comparator
  const at_nest *nest;      // NEST
  at_cg_function external;  // EXTERNAL
  uint32_t index;  // of the kernels that are compiled; UINT32_MAX: it is only
                   // part of nests
  uint32_t unit;   // where it is compiled
  uint64_t ops;    // how long it takes to compile; 0: always with all steps
  double work;     // how much its speed matters
  bool quick;      // compiled with fewer steps (tier.c)
  bool plain;      // quick, and without any step that can be left out
  const int32_t *alias;     // per result: operand in whose place it is, or -1
  const uint32_t *results;  // which results this kernel writes
  uint32_t num_results;
  uint32_t lanes;  // of the vector loop
  bool wide_index;
  // The iteration space, outer to inner; the last is the vector loop's.
  uint32_t n;
  int64_t extent[AT_CG_MAX_RANK];
  bool reduced[AT_CG_MAX_RANK];
  uint32_t vector;       // REDUCE: which of the extents has the lanes
  uint32_t unroll;       // REDUCE: vectors side by side; LOOP: in one turn
  int64_t block;         // elements of the vector extent in a task
  uint32_t tile;         // LOOP: digit walked in tiles, inside blocks; n: none
  uint32_t split_digit;  // REDUCE: which extent is cut into blocks
  int64_t split;         // elements of such a block; 0: not cut
  int64_t parts;         // blocks: ceil(extent / split); COMBINE: to combine
  const at_node *const *reduces;  // the reduce nodes computed together
  uint32_t num_reduces;
  int64_t tasks, grain;
  double ns;
  const struct at_row_plan *rows;  // ROWS
  uint64_t streams;     // results stored past the caches: LOOP, ROWS (stream.h)
  bool scratch;         // takes a scratch buffer after results
  const int64_t *skip;  // per operand: elements before where its buffer begins
  char symbol[24];
} at_job;

// The computation that the kernel evaluates: what is bound to operands, and the
// values that are results. For a fusion its region, else the node itself.
at_value at_job_root(const at_job *j, uint32_t i);
at_value at_node_root(const at_node *n, uint32_t result);
// Is operand i a constant that the code itself holds?
bool at_job_is_immediate(const at_node *n, uint32_t i);

// ---- analysis
// Cuts of a row-major space: suffix products at which index maps need digits.
typedef struct at_cuts {
  int64_t total;
  uint32_t n;
  int64_t
      at[AT_CG_MAX_RANK];  // > 1, < total, increasing; each divides the next
} at_cuts;
void at_cuts_add(at_cuts *c, int64_t suffix);
void at_cuts_add_type(at_cuts *c, const at_type *t);
// What the producers of v inside the kernel need, as long as their space is
// v's.
at_status at_cuts_walk(at_cuts *c, at_arena *a, at_value v,
                       const at_node *kernel);
// A stride in the space along which some producer reads memory in order, though
// the space's own minor digit does not: what a transpose asks to be tiled. 0:
// none.
at_status at_cuts_tile(at_arena *a, at_value v, int64_t total,
                       const at_node *kernel, int64_t *stride);
// Digits, outer to inner.
uint32_t at_cuts_extents(const at_cuts *c, int64_t *extent);

typedef struct at_cg_cost {
  double ops;        // weighted vector operations an element
  double scalar;     // operations that have no vector form
  double bytes;      // moved an element
  uint32_t widest;   // register bytes of the widest type
  double wide_ops;   // part of ops on types of 8 bytes and more
  bool vector;       // everything has a vector form
  bool heavy;        // has transcendental functions
  bool shifts;       // pads or joins along the last dimension, and broadcasts
  int64_t elements;  // of the largest value seen
} at_cg_cost;
// Of computing one element of v from the operands.
at_status at_cg_cost_of(at_arena *a, const at_node *n, at_cg_cost *out);
uint32_t at_lanes_for(uint64_t cpu, const at_cg_cost *c);
double at_cg_cost_ns(const at_cg_cost *c, uint32_t lanes);
// A region whose every op has a vector form.
bool at_reducer_vectorizes(const at_comp *c);
// Tasks of a chunk: about 20 us, in chunks as even as that many can be.
int64_t at_grain_for(double task_ns, int64_t tasks);

// ---- emission
at_status at_job_emit(at_em *e, const at_job *j);
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
at_ix at_update_target(at_em *e, const at_node *n, const at_pos *p);
void at_job_emit_comparator(at_em *e, const at_job *j);
void at_job_emit_nest(at_em *e, const at_job *j);
// The whole of a range job, where the function under construction stands; its
// buffers are bound by at_job_bind_buffer.
void at_job_emit_inside(at_em *e, const at_job *j);
void at_job_bind_buffer(at_em *e, uint32_t index, LLVMValueRef ptr);
LLVMValueRef at_job_buffer(at_em *e, uint32_t index);  // base pointer
// The pointer of that number in a table of pointers, loaded here.
LLVMValueRef at_job_load_buffer(at_em *e, LLVMValueRef table, uint32_t index);
LLVMValueRef at_job_result(at_em *e, const at_job *j, uint32_t result);
LLVMValueRef at_job_scratch(at_em *e, const at_job *j);

#endif
