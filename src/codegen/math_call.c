// Functions reached by one library call per lane, and intrinsics.
#include <stdio.h>
#include <string.h>

#include "codegen/math.h"

#include <llvm-c/Core.h>

// Declared in the module where it is not yet.
LLVMValueRef at_math_intrinsic(const at_math *m, const char *name,
                               LLVMValueRef *args, unsigned n) {
  LLVMTypeRef t = LLVMTypeOf(args[0]);
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(m->module, id, &t, 1);
  LLVMTypeRef ft = LLVMIntrinsicGetType(m->ctx, id, &t, 1);
  return LLVMBuildCall2(m->b, ft, f, args, n, "");
}

// A call on scalars. The attributes let LLVM move and drop it: the functions
// depend on their arguments alone.
static LLVMValueRef call1(const at_math *m, const char *name, LLVMTypeRef t,
                          LLVMValueRef *args, unsigned n) {
  LLVMTypeRef params[2] = {t, t};
  LLVMTypeRef ft = LLVMFunctionType(t, params, n, false);
  LLVMValueRef f = LLVMGetNamedFunction(m->module, name);
  if (!f) {
    f = LLVMAddFunction(m->module, name, ft);
    static const char *const attrs[] = {"nounwind", "willreturn", "nocallback",
                                        "nosync", "nofree"};
    for (unsigned i = 0; i < sizeof attrs / sizeof *attrs; i++) {
      unsigned k = LLVMGetEnumAttributeKindForName(attrs[i], strlen(attrs[i]));
      LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex,
                              LLVMCreateEnumAttribute(m->ctx, k, 0));
    }
    unsigned mem = LLVMGetEnumAttributeKindForName("memory", 6);
    LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(m->ctx, mem, 0));
  }
  return LLVMBuildCall2(m->b, ft, f, args, n, "");
}

// Lanes are taken out, called for one by one and put together.
LLVMValueRef at_math_call(const at_math *m, const char *name, LLVMValueRef x,
                          LLVMValueRef y) {
  LLVMTypeRef t = LLVMTypeOf(x);
  bool vec = LLVMGetTypeKind(t) == LLVMVectorTypeKind;
  LLVMTypeRef e = vec ? LLVMGetElementType(t) : t;
  char full[32];
  snprintf(full, sizeof full, "%s%s", name,
           LLVMGetTypeKind(e) == LLVMFloatTypeKind ? "f" : "");
  unsigned n = y ? 2 : 1;
  if (!vec) {
    LLVMValueRef args[2] = {x, y};
    return call1(m, full, e, args, n);
  }
  LLVMValueRef r = LLVMGetPoison(t);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(m->ctx);
  for (unsigned i = 0; i < LLVMGetVectorSize(t); i++) {
    LLVMValueRef k = LLVMConstInt(i32, i, false);
    LLVMValueRef args[2] = {LLVMBuildExtractElement(m->b, x, k, ""), NULL};
    if (y) args[1] = LLVMBuildExtractElement(m->b, y, k, "");
    r = LLVMBuildInsertElement(m->b, r, call1(m, full, e, args, n), k, "");
  }
  return r;
}
