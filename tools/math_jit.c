#include "math_jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Analysis.h>
#include <llvm-c/Core.h>
#include <llvm-c/ExecutionEngine.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>

#include "base/cpu.h"

typedef struct builder {
  LLVMContextRef ctx;
  LLVMModuleRef mod;
  LLVMBuilderRef b;
  LLVMValueRef fn, i;
  LLVMTypeRef element, vector;
} builder;

// Address of element i of the array that parameter `p` lists as number k.
static LLVMValueRef place(builder *w, unsigned p, unsigned k) {
  LLVMTypeRef ptr = LLVMPointerTypeInContext(w->ctx, 0);
  LLVMValueRef at = LLVMConstInt(LLVMInt64TypeInContext(w->ctx), k, 0);
  LLVMValueRef list =
      LLVMBuildGEP2(w->b, ptr, LLVMGetParam(w->fn, p), &at, 1, "");
  LLVMValueRef base = LLVMBuildLoad2(w->b, ptr, list, "");
  return LLVMBuildGEP2(w->b, w->element, base, &w->i, 1, "");
}
static LLVMValueRef load(builder *w, unsigned k) {
  LLVMValueRef x = LLVMBuildLoad2(w->b, w->vector, place(w, 0, k), "");
  LLVMSetAlignment(x, 4);
  return x;
}
static void store(builder *w, unsigned k, LLVMValueRef v) {
  LLVMSetAlignment(LLVMBuildStore(w->b, v, place(w, 1, k)), 4);
}

static void emit_complex(builder *w, const at_math *m, const mj_function *f) {
  at_em e = {
      .ctx = w->ctx, .module = w->mod, .b = w->b, .fn = w->fn, .math = *m};
  at_node n = {.op = f->op, .num_operands = (uint32_t)f->operands};
  at_val args[2];
  for (unsigned k = 0; k < (unsigned)f->operands; k++)
    args[k] = (at_val){load(w, 2 * k), load(w, 2 * k + 1)};
  at_val y = at_em_apply_complex(&e, &n, args);
  store(w, 0, y.re);
  if (y.im) store(w, 1, y.im);
}

static void emit(builder *w, const mj_function *f) {
  at_math m = {w->ctx, w->mod, w->b, at_cpu_features()};
  if (f->unary)
    store(w, 0, f->unary(&m, load(w, 0)));
  else if (f->binary)
    store(w, 0, f->binary(&m, load(w, 0), load(w, 1)));
  else
    emit_complex(w, &m, f);
}

static void emit_loop(builder *w, const mj_function *f) {
  LLVMTypeRef ptr = LLVMPointerTypeInContext(w->ctx, 0), params[] = {ptr, ptr};
  LLVMTypeRef i64 = LLVMInt64TypeInContext(w->ctx);
  LLVMTypeRef none = LLVMVoidTypeInContext(w->ctx);
  unsigned lanes = f->wide ? 8 : 16;
  w->element = f->wide ? LLVMDoubleTypeInContext(w->ctx)
                       : LLVMFloatTypeInContext(w->ctx);
  w->vector = LLVMVectorType(w->element, lanes);
  w->fn = LLVMAddFunction(w->mod, "f", LLVMFunctionType(none, params, 2, 0));
  LLVMBasicBlockRef entry =
      LLVMAppendBasicBlockInContext(w->ctx, w->fn, "entry");
  LLVMBasicBlockRef loop = LLVMAppendBasicBlockInContext(w->ctx, w->fn, "loop");
  LLVMPositionBuilderAtEnd(w->b, entry);
  LLVMBuildBr(w->b, loop);
  LLVMPositionBuilderAtEnd(w->b, loop);
  w->i = LLVMBuildPhi(w->b, i64, "i");
  emit(w, f);
  LLVMValueRef next = LLVMBuildAdd(w->b, w->i, LLVMConstInt(i64, lanes, 0), "");
  LLVMValueRef more =
      LLVMBuildICmp(w->b, LLVMIntULT, next, LLVMConstInt(i64, MJ_BLOCK, 0), "");
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(w->b);
  LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(w->ctx, w->fn, "done");
  LLVMBuildCondBr(w->b, more, loop, done);
  LLVMAddIncoming(w->i, (LLVMValueRef[]){LLVMConstInt(i64, 0, 0), next},
                  (LLVMBasicBlockRef[]){entry, latch}, 2);
  LLVMPositionBuilderAtEnd(w->b, done);
  LLVMBuildRetVoid(w->b);
  const char *features = at_cpu_llvm_features(at_cpu_features());
  LLVMAddAttributeAtIndex(
      w->fn, LLVMAttributeFunctionIndex,
      LLVMCreateStringAttribute(w->ctx, "target-features", 15, features,
                                (unsigned)strlen(features)));
}

mj_code mj_compile(const mj_function *f) {
  LLVMInitializeX86TargetInfo();
  LLVMInitializeX86Target();
  LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMLinkInMCJIT();
  builder w = {.ctx = LLVMContextCreate()};
  w.mod = LLVMModuleCreateWithNameInContext("m", w.ctx);
  w.b = LLVMCreateBuilderInContext(w.ctx);
  emit_loop(&w, f);
  LLVMDisposeBuilder(w.b);
  char *error = NULL;
  LLVMVerifyModule(w.mod, LLVMAbortProcessAction, &error);
  LLVMDisposeMessage(error);
  struct LLVMMCJITCompilerOptions o;
  LLVMInitializeMCJITCompilerOptions(&o, sizeof o);
  o.OptLevel = 2;
  LLVMExecutionEngineRef engine;
  if (LLVMCreateMCJITCompilerForModule(&engine, w.mod, &o, sizeof o, &error)) {
    fprintf(stderr, "%s\n", error);
    exit(2);
  }
  uint64_t at = LLVMGetFunctionAddress(engine, "f");
  return (mj_code){w.ctx, engine,
                   (void (*)(const void *const *, void *const *))at};
}

void mj_discard(mj_code *c) {
  LLVMDisposeExecutionEngine(c->engine);
  LLVMContextDispose(c->ctx);
}
