// What was decided about a job that makes its results row by row. A row is
// swept several times while it is in the nearest cache: each sweep ends with
// the row's reductions that the next sweeps need, the last one makes the
// results. What is costly and needed by later sweeps is kept in a buffer of one
// row.
#ifndef ATOLL_CODEGEN_ROWS_H_
#define ATOLL_CODEGEN_ROWS_H_

#include "codegen/plan.h"
#include "hlo/rows.h"

// A node that a sweep keeps for later ones: one row of it, which the next row
// overwrites.
typedef struct at_row_buffer {
  const at_node *node;
  // Of its elements: that of registers, so that nothing is rounded on the way.
  at_dtype type;
  // The sweep that fills it; later ones read it.
  uint32_t sweep;
  // Bytes from the begin of the task's part of the scratch memory; a multiple
  // of 64.
  int64_t offset;
} at_row_buffer;

// A value with one element a row that sweeps read: made before sweep `sweep`.
typedef struct at_row_one {
  at_value value;
  // Whose elements are all that one while the row is swept: the value itself,
  // or its broadcast.
  at_value as;
  uint32_t sweep;
} at_row_one;

// Part of the job's plan; in its arena, constant once made.
typedef struct at_row_plan {
  // What each node of the body is to a row, and how many rows and columns there
  // are.
  at_rows roles;
  uint32_t sweeps;
  // By number in the job's reduces: the sweep that makes it.
  uint32_t *reduce_sweep;
  AT_VEC(at_row_buffer) buffers;  // in the order of the nodes
  AT_VEC(at_row_one) ones;        // operands before users
  // Per sweep: vectors side by side.
  uint32_t *unroll;
  int64_t per_task;  // rows
  // Per result that is stored past the caches: where a row of it is made, bytes
  // in the task's part.
  int64_t *streamed;
  // Bytes of a task's part: its buffers and such rows.
  int64_t bytes;
} at_row_plan;

// Plans a FUSION of kind ROWS as one job. INVALID_ARGUMENT: its results are not
// made row by row.
at_status at_plan_rows(const at_cg_target *t, at_arena *a, const at_node *n,
                       const int32_t *alias, at_planned *p);
// May a result be where operand `operand` is? Both have as many elements. n: a
// FUSION of kind ROWS.
bool at_rows_can_alias(const at_node *n, uint32_t result, uint32_t operand);
// Tasks [begin, end) of a ROWS job.
void at_job_emit_rows(at_em *e, const at_job *j, LLVMValueRef begin,
                      LLVMValueRef end);

#endif
