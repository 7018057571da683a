// Errors of the f32 vector functions against the C library in f64 (or wider), over
// every STEP-th of all 2^32 inputs. Prints one row a function; exit 1 over 3 ULP.
//   math_ulp [step] [function]
#include <llvm-c/Analysis.h>
#include <llvm-c/ExecutionEngine.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "codegen/math.h"

enum { kLanes = 16, kBlock = 4096 };

static double reference_logistic(double x) { return 1 / (1 + exp(-x)); }
static const struct {
  const char *name;
  at_math_unary_fn emit;
  double (*reference)(double);
} functions[] = {
    {"exp", at_math_exp, exp},       {"expm1", at_math_expm1, expm1},
    {"log", at_math_log, log},       {"log1p", at_math_log1p, log1p},
    {"logistic", at_math_logistic, reference_logistic},
    {"tanh", at_math_tanh, tanh},    {"erf", at_math_erf, erf},
    {"sin", at_math_sin, sin},       {"cos", at_math_cos, cos},
    {"tan", at_math_tan, tan},
};

typedef void (*loop_fn)(const float *x, float *y);

// void f(const float *x, float *y): kBlock elements, kLanes at a time. The engine and
// its context go with discard().
typedef struct compiled {
  LLVMContextRef ctx;
  LLVMExecutionEngineRef engine;
  loop_fn run;
} compiled;

static void discard(compiled *c) {
  LLVMDisposeExecutionEngine(c->engine);
  LLVMContextDispose(c->ctx);
}

static compiled build(at_math_unary_fn emit) {
  LLVMContextRef ctx = LLVMContextCreate();
  LLVMModuleRef mod = LLVMModuleCreateWithNameInContext("m", ctx);
  LLVMBuilderRef b = LLVMCreateBuilderInContext(ctx);
  LLVMTypeRef p = LLVMPointerTypeInContext(ctx, 0), params[] = {p, p};
  LLVMTypeRef i64 = LLVMInt64TypeInContext(ctx), f32 = LLVMFloatTypeInContext(ctx);
  LLVMValueRef f = LLVMAddFunction(mod, "f", LLVMFunctionType(LLVMVoidTypeInContext(ctx), params, 2, 0));
  LLVMBasicBlockRef entry = LLVMAppendBasicBlockInContext(ctx, f, "entry");
  LLVMBasicBlockRef loop = LLVMAppendBasicBlockInContext(ctx, f, "loop");
  LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(ctx, f, "done");
  LLVMPositionBuilderAtEnd(b, entry);
  LLVMBuildBr(b, loop);
  LLVMPositionBuilderAtEnd(b, loop);
  LLVMValueRef i = LLVMBuildPhi(b, i64, "i");
  LLVMValueRef x = LLVMBuildLoad2(b, LLVMVectorType(f32, kLanes), LLVMBuildGEP2(b, f32, LLVMGetParam(f, 0), &i, 1, ""), "");
  LLVMSetAlignment(x, 4);
  at_math m = {ctx, mod, b, at_cpu_features()};
  LLVMValueRef y = emit(&m, x);
  LLVMSetAlignment(LLVMBuildStore(b, y, LLVMBuildGEP2(b, f32, LLVMGetParam(f, 1), &i, 1, "")), 4);
  LLVMValueRef next = LLVMBuildAdd(b, i, LLVMConstInt(i64, kLanes, 0), "");
  LLVMValueRef more = LLVMBuildICmp(b, LLVMIntULT, next, LLVMConstInt(i64, kBlock, 0), "");
  LLVMBuildCondBr(b, more, loop, done);
  LLVMValueRef in[] = {LLVMConstInt(i64, 0, 0), next};
  LLVMBasicBlockRef from[] = {entry, LLVMGetInsertBlock(b)};
  LLVMAddIncoming(i, in, from, 2);
  LLVMPositionBuilderAtEnd(b, done);
  LLVMBuildRetVoid(b);
  const char *features = at_cpu_llvm_features(at_cpu_features());
  LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex,
                          LLVMCreateStringAttribute(ctx, "target-features", 15, features, (unsigned)strlen(features)));
  char *error = NULL;
  LLVMDisposeBuilder(b);
  LLVMVerifyModule(mod, LLVMAbortProcessAction, &error);
  LLVMDisposeMessage(error);
  struct LLVMMCJITCompilerOptions o;
  LLVMInitializeMCJITCompilerOptions(&o, sizeof o);
  o.OptLevel = 2;
  LLVMExecutionEngineRef engine;
  if (LLVMCreateMCJITCompilerForModule(&engine, mod, &o, sizeof o, &error)) {
    fprintf(stderr, "%s\n", error);
    exit(2);
  }
  return (compiled){ctx, engine, (loop_fn)LLVMGetFunctionAddress(engine, "f")};
}

// Distance of y from the exact value, in units of the f32 spacing there.
static double ulps(float y, double exact) {
  float rounded = (float)exact;
  if (isnan(exact)) return isnan(y) ? 0 : INFINITY;
  if (isinf(rounded) || isinf(y)) return y == rounded ? 0 : fabs((double)y - exact) > 1e32 && fabs(exact) < 3.4028236e38 * 1.0000001 ? 1 : INFINITY;
  double spacing = ldexp(1, fmax(ilogb(exact == 0 ? 1e-300 : exact), -126) - 23);
  return fabs((double)y - exact) / spacing;
}

static double check(const char *name, loop_fn f, double (*reference)(double), uint64_t step) {
  static float x[kBlock], y[kBlock];
  double worst = 0;
  float where = 0, got = 0;
  for (uint64_t at = 0; at < (uint64_t)1 << 32; at += step * kBlock) {
    for (int i = 0; i < kBlock; i++) {
      uint32_t bits = (uint32_t)(at + (uint64_t)i * step);
      memcpy(&x[i], &bits, 4);
    }
    f(x, y);
    for (int i = 0; i < kBlock; i++) {
      double e = ulps(y[i], reference((double)x[i]));
      if (e > worst) worst = e, where = x[i], got = y[i];
    }
  }
  printf("%-10s %6.2f ULP at %.9g (%a): got %.9g, exact %.9g\n", name, worst, (double)where, (double)where,
         (double)got, reference((double)where));
  fflush(stdout);
  return worst;
}

int main(int argc, char **argv) {
  LLVMInitializeX86TargetInfo(), LLVMInitializeX86Target(), LLVMInitializeX86TargetMC();
  LLVMInitializeX86AsmPrinter();
  LLVMLinkInMCJIT();
  uint64_t step = argc > 1 ? strtoull(argv[1], NULL, 10) : 997;
  double worst = 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    if (argc > 2 && strcmp(argv[2], functions[i].name)) continue;
    compiled c = build(functions[i].emit);
    worst = fmax(worst, check(functions[i].name, c.run, functions[i].reference, step ? step : 1));
    discard(&c);
  }
  return worst > 3;
}
