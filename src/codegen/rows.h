// What was decided about a job that makes its results row by row. A row is
// swept several times while it is in the nearest cache: each sweep ends with
// the row's reductions that the next sweeps need, the last one makes the
// results. What is costly and needed by later sweeps is kept in a buffer of one
// row.
#ifndef ATOLL_CODEGEN_ROWS_H_
#define ATOLL_CODEGEN_ROWS_H_

#include "codegen/plan.h"
#include "hlo/rows.h"

typedef struct at_row_buffer {
  const at_node *node;
  at_dtype type;   // of its elements: that of registers
  uint32_t sweep;  // that fills it; later ones read it
  int64_t offset;  // bytes, inside the task's part of the scratch memory
} at_row_buffer;

// A value with one element a row that sweeps read: made before sweep `sweep`.
typedef struct at_row_one {
  at_value value;
  at_value as;  // whose elements are all that one while the row is swept
  uint32_t sweep;
} at_row_one;

typedef struct at_row_plan {
  at_rows roles;
  uint32_t sweeps;
  uint32_t *reduce_sweep;  // of each of the job's reduces: which one makes it
  AT_VEC(at_row_buffer) buffers;  // in the order of the nodes
  AT_VEC(at_row_one) ones;        // operands before users
  uint32_t *unroll;               // per sweep: vectors side by side
  int64_t per_task;               // rows
  int64_t *streamed;  // per result that is: where a row of it is made
  int64_t bytes;      // of a task's buffers and such rows
} at_row_plan;

at_status at_plan_rows(const at_cg_target *t, at_arena *a, const at_node *n,
                       const int32_t *alias, at_planned *p);
// May a result be where operand `operand` is? Both have as many elements.
bool at_rows_can_alias(const at_node *n, uint32_t result, uint32_t operand);
void at_job_emit_rows(at_em *e, const at_job *j, LLVMValueRef begin,
                      LLVMValueRef end);

#endif
