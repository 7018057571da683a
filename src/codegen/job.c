// From a planned kernel to the body of its function.
#include "codegen/job.h"

#include <llvm-c/Core.h>
#include "codegen/rows.h"
#include "codegen/stream.h"

// Base pointers behind these are loaded where they are used: so many values
// that live through the whole function cost LLVM's allocator of registers their
// number squared, and are in memory all the same.
enum { HELD_BUFFERS = 64 };

// Entry `index` of a table of pointers.
LLVMValueRef at_job_load_buffer(at_em *e, LLVMValueRef table, uint32_t index) {
  LLVMTypeRef ptr = LLVMPointerTypeInContext(e->ctx, 0);
  LLVMValueRef k = at_em_i64(e, index);
  LLVMValueRef at = LLVMBuildGEP2(e->b, ptr, table, &k, 1, "");
  return LLVMBuildLoad2(e->b, ptr, at, "");
}

// Held in the entry block, once for the function.
LLVMValueRef at_job_buffer(at_em *e, uint32_t index) {
  at_val *known = at_em_memo_find(e, &e->fn, index, NULL);
  if (known) return known->re;
  if (index >= HELD_BUFFERS)
    return at_job_load_buffer(e, LLVMGetParam(e->fn, 0), index);
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
  LLVMPositionBuilderAtEnd(e->b, e->entry);
  LLVMValueRef p = at_job_load_buffer(e, LLVMGetParam(e->fn, 0), index);
  LLVMPositionBuilderAtEnd(e->b, here);
  at_job_bind_buffer(e, index, p);
  return p;
}
// From now on buffer `index` is ptr.
void at_job_bind_buffer(at_em *e, uint32_t index, LLVMValueRef ptr) {
  at_em_memo_put(e, &e->fn, index, NULL, (at_val){ptr, NULL});
}
LLVMValueRef at_job_result(at_em *e, const at_job *j, uint32_t result) {
  return at_job_buffer(e, j->node->num_operands + result);
}
LLVMValueRef at_job_scratch(at_em *e, const at_job *j) {
  return at_job_buffer(e, j->node->num_operands + j->node->num_results);
}

// Does a result lie in the operand's place? Then its loads may not be moved
// over stores.
static bool written(const at_job *j, uint32_t operand) {
  for (uint32_t r = 0; r < j->node->num_results; r++)
    if (j->alias && j->alias[r] == (int32_t)operand) return true;
  return false;
}

// Does operand i say where n writes?
static bool is_target(const at_node *n, uint32_t i) {
  if (n->op == AT_OP_SCATTER) return i == n->num_operands / 2;
  return n->op == AT_OP_DYNAMIC_UPDATE_SLICE && i >= 2;
}

// A scalar constant needs no load. Where to write is loaded all the same: the
// steps of an unrolled loop share a kernel then.
bool at_job_is_immediate(const at_node *n, uint32_t i) {
  const at_literal *l = at_node_literal(n->operands[i].node);
  return l && !is_target(n, i) && (l->splat || at_type_elements(&l->type) == 1);
}

// A fusion's operands are its parameters in the region; a plain node's operands
// are values of their own. Immediates have no home: they are constants where
// they are used.
static void bind_operands(at_em *e, const at_job *j) {
  const at_node *n = j->node;
  bool fusion = n->op == AT_OP_FUSION;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value v =
        fusion ? (at_value){n->regions[0]->params[i], 0} : n->operands[i];
    if (at_job_is_immediate(n, i)) {
      if (fusion) at_em_bind(e, v, (at_home){.alias = &n->operands[i]});
      continue;
    }
    // Who inlines the job may have bound its buffers already (nest.c).
    at_val *known = at_em_memo_find(e, &e->fn, i, NULL);
    bool held = known || i < HELD_BUFFERS;
    at_em_bind(e, v,
               (at_home){.ptr = held ? at_job_buffer(e, i) : NULL,
                         .table = held ? NULL : LLVMGetParam(e->fn, 0),
                         .index = i,
                         .skip = j->skip ? j->skip[i] : 0,
                         .invariant = !written(j, i)});
  }
}

// The other room's status and the emitter's, whichever came first.
static at_status emit_external(at_em *e, const at_job *j) {
  at_status st = j->external.emit(e, j->external.arg);
  st = at_status_join(st, e->st);
  e->st = AT_OK;
  return st;
}

// Tasks begin to end of a job whose buffers and operands are bound.
static void emit_range(at_em *e, const at_job *j, LLVMValueRef begin,
                       LLVMValueRef end) {
  switch (j->kind) {
    case AT_JOB_LOOP:
    case AT_JOB_COPY:
    case AT_JOB_FILL:
    case AT_JOB_UPDATE:
      at_job_emit_loop(e, j, begin, end);
      break;
    case AT_JOB_SCATTER:
      at_job_emit_scatter(e, j, begin, end);
      break;
    case AT_JOB_SELECT_SCATTER:
      at_job_emit_select_scatter(e, j, begin, end);
      break;
    case AT_JOB_SCAN:
      at_job_emit_scan(e, j, begin, end);
      break;
    case AT_JOB_REDUCE:
      at_job_emit_reduce(e, j, begin, end);
      break;
    case AT_JOB_COMBINE:
      at_job_emit_combine(e, j, begin, end);
      break;
    case AT_JOB_NEST:
      at_job_emit_nest(e, j);
      break;
    case AT_JOB_ROWS:
      at_job_emit_rows(e, j, begin, end);
      break;
    case AT_JOB_COMPARATOR:
    case AT_JOB_EXTERNAL:
      break;
  }
  if (at_em_ok(e) && j->streams) at_em_stream_fence(e);
}

// All tasks, one after another; the caller's width of indices comes back.
void at_job_emit_inside(at_em *e, const at_job *j) {
  bool wide = e->wide_index;
  e->wide_index = j->wide_index;
  at_em_count_ops(e, j->node);
  bind_operands(e, j);
  emit_range(e, j, at_em_i64(e, 0), at_em_i64(e, j->tasks));
  e->wide_index = wide;
}

// Parameters: the buffers, begin, end; of a comparator the pointers alone. The
// error names the op; e->st is OK again.
at_status at_job_emit(at_em *e, const at_job *j) {
  if (j->kind == AT_JOB_EXTERNAL) return emit_external(e, j);
  if (j->node) {
    at_em_count_ops(e, j->node);
    bind_operands(e, j);
  }
  bool range = j->kind != AT_JOB_COMPARATOR;
  if (range)
    emit_range(e, j, LLVMGetParam(e->fn, 1), LLVMGetParam(e->fn, 2));
  else
    at_job_emit_comparator(e, j);
  if (at_em_ok(e) && range) LLVMBuildRetVoid(e->b);
  at_status st = e->st;
  e->st = AT_OK;
  if (st.err && j->node)
    return at_status_prefix(st, "%s", at_op_text(j->node->op));
  return st;
}
