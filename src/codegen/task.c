// Code in a function of its own, for threads to share (build.h: at_b_task). It
// is written as if it stood where it is called from; what it uses of the
// function around is then found, and handed over in memory.
#include <llvm-c/Core.h>
#include <stdio.h>

#include "codegen/build.h"
#include "codegen/tier.h"

// Goes on in the other of the two functions.
static void change(at_em *e, at_b_task *t) {
  LLVMValueRef fn = e->fn;
  LLVMBasicBlockRef entry = e->entry, here = LLVMGetInsertBlock(e->b);
  e->fn = t->fn;
  e->entry = t->entry;
  LLVMPositionBuilderAtEnd(e->b, t->here);
  t->fn = fn;
  t->entry = entry;
  t->here = here;
}

// Entry for loads of what is handed over, start for the code.
static at_b_task inner_blocks(at_em *e, LLVMValueRef fn) {
  LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(e->ctx, fn, "entry");
  LLVMBasicBlockRef start = LLVMAppendBasicBlockInContext(e->ctx, fn, "start");
  return (at_b_task){.fn = fn, .entry = entry, .here = start, .start = start};
}

// Values of the function around may be used as if it stood in place;
// at_b_task_end finds them.
void at_b_task_begin(at_em *e, at_b_task *t) {
  LLVMTypeRef i64 = at_em_int(e, 64);
  LLVMTypeRef params[4] = {at_b_ptr(e), i64, i64, at_b_ptr(e)};
  char name[64];
  snprintf(name, sizeof name, "%s.t%u", e->prefix, e->next_global++);
  LLVMTypeRef type =
      LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), params, 4, false);
  *t = inner_blocks(e, at_em_inner_function(e, name, type));
  if (e->quick) at_tier_mark(e->ctx, t->fn);
  t->begin = LLVMGetParam(t->fn, 1);
  t->end = LLVMGetParam(t->fn, 2);
  t->memory = LLVMGetParam(t->fn, 3);
  t->scope = at_em_scope_push(e);
  change(e, t);
}

// What the task has remembered is hidden meanwhile: it does not exist outside.
void at_b_task_outside(at_em *e, at_b_task *t) {
  e->hidden_from = t->scope;
  e->hidden_to = at_em_scope_push(e);
  change(e, t);
}
void at_b_task_inside(at_em *e, at_b_task *t) {
  e->hidden_from = e->hidden_to = 0;
  change(e, t);
}

// ---- what is handed over
enum { MAX_HANDED = 2048 };

typedef struct handover {
  LLVMValueRef fn, value[MAX_HANDED], inside[MAX_HANDED];
  at_map index;  // of values, + 1
  uint32_t n;
} handover;

// An instruction or a parameter of another function.
static bool is_foreign(LLVMValueRef fn, LLVMValueRef v) {
  if (LLVMIsAArgument(v)) return LLVMGetParamParent(v) != fn;
  return LLVMIsAInstruction(v) &&
         LLVMGetBasicBlockParent(LLVMGetInstructionParent(v)) != fn;
}

// Each value has one place. False: no memory, or MAX_HANDED.
static bool hand_over(handover *h, LLVMValueRef v) {
  void **i = at_map_put_ptr(&h->index, v);
  if (!i || (!*i && h->n == MAX_HANDED)) return false;
  if (*i) return true;
  h->value[h->n++] = v;
  *i = (void *)(uintptr_t)h->n;
  return true;
}

typedef bool (*operand_fn)(handover *h, LLVMValueRef user, unsigned i,
                           LLVMValueRef v);

// Calls fn for each operand of the task that is not its own; false: fn gave up.
static bool each_foreign(handover *h, operand_fn fn) {
  for (LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(h->fn); b;
       b = LLVMGetNextBasicBlock(b))
    for (LLVMValueRef x = LLVMGetFirstInstruction(b); x;
         x = LLVMGetNextInstruction(x)) {
      unsigned n = (unsigned)LLVMGetNumOperands(x);
      for (unsigned i = 0; i < n; i++) {
        LLVMValueRef v = LLVMGetOperand(x, i);
        if (is_foreign(h->fn, v) && !fn(h, x, i, v)) return false;
      }
    }
  return true;
}

// First walk: collects.
static bool find(handover *h, LLVMValueRef user, unsigned i, LLVMValueRef v) {
  return hand_over(h, v);
}

// Second walk: the task's own copy instead.
static bool replace(handover *h, LLVMValueRef user, unsigned i,
                    LLVMValueRef v) {
  void **at = at_map_find_ptr(&h->index, v);
  AT_ASSERT(!at || LLVMTypeOf(h->inside[(uintptr_t)*at - 1]) == LLVMTypeOf(v));
  if (at) LLVMSetOperand(user, i, h->inside[(uintptr_t)*at - 1]);
  return at != NULL;
}

// A struct of all values, on the caller's stack.
static LLVMTypeRef record_of(at_em *e, const handover *h) {
  LLVMTypeRef types[MAX_HANDED];
  for (uint32_t i = 0; i < h->n; i++) types[i] = LLVMTypeOf(h->value[i]);
  return LLVMStructTypeInContext(e->ctx, types, h->n, false);
}

// UNIMPLEMENTED: more than MAX_HANDED values. The record is filled where the
// task is called, and outlives the call.
bool at_b_task_end(at_em *e, at_b_task *t, LLVMValueRef out[2],
                   LLVMValueRef watched) {
  handover *h = at_new(e->arena, handover, 1);
  at_em_scope_pop(e, t->scope);
  out[0] = e->fn;
  if (!h) {
    at_em_fail(e, AT_NO_MEMORY("a task"));
    change(e, t);
    out[1] = at_b_null(at_b_ptr(e));
    return false;
  }
  h->fn = e->fn;
  h->index = at_map_in(e->arena);
  LLVMBuildRetVoid(e->b);
  bool found = each_foreign(h, find);
  LLVMTypeRef record = record_of(e, h);
  LLVMPositionBuilderAtEnd(e->b, e->entry);
  for (uint32_t i = 0; i < h->n; i++) {
    LLVMValueRef at =
        LLVMBuildStructGEP2(e->b, record, LLVMGetParam(h->fn, 0), i, "");
    h->inside[i] = LLVMBuildLoad2(e->b, LLVMTypeOf(h->value[i]), at, "");
  }
  LLVMBuildBr(e->b, t->start);
  if (!found || !each_foreign(h, replace))
    at_em_fail(e, AT_FAIL(AT_UNIMPLEMENTED, "a task of so many values"));
  change(e, t);
  out[1] = at_em_alloca(e, record, 1);
  bool seen = false;
  for (uint32_t i = 0; i < h->n; i++) {
    LLVMValueRef at = LLVMBuildStructGEP2(e->b, record, out[1], i, "");
    LLVMBuildStore(e->b, h->value[i], at);
    seen |= h->value[i] == watched;
  }
  return seen;
}

// ---- helpers
bool at_b_helper_begin(at_em *e, at_b_helper *h, const char *name) {
  if (LLVMGetNamedFunction(e->module, name)) return false;
  LLVMTypeRef params[2] = {at_b_ptr(e), at_b_ptr(e)};
  LLVMTypeRef type =
      LLVMFunctionType(LLVMVoidTypeInContext(e->ctx), params, 2, false);
  *h = (at_b_helper){
      .task = inner_blocks(e, at_em_inner_function(e, name, type)),
      .hidden_from = e->hidden_from,
      .hidden_to = e->hidden_to};
  h->task.scope = at_em_scope_push(e);
  e->hidden_from = 0;
  e->hidden_to = h->task.scope;
  change(e, &h->task);
  return true;
}

// Leaves the caller's scope and hidden range as they were.
void at_b_helper_end(at_em *e, at_b_helper *h) {
  at_em_scope_pop(e, h->task.scope);
  LLVMBuildRetVoid(e->b);
  LLVMPositionBuilderAtEnd(e->b, e->entry);
  LLVMBuildBr(e->b, h->task.start);
  e->hidden_from = h->hidden_from;
  e->hidden_to = h->hidden_to;
  change(e, &h->task);
}
