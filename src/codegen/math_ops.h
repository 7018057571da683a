// Shorthand for the bodies of vector functions (math_f32.c, math_f64*.c):
// scalars or vectors of any width, by the type of the values. Every macro uses
// the at_math `m`.
#ifndef ATOLL_CODEGEN_MATH_OPS_H_
#define ATOLL_CODEGEN_MATH_OPS_H_

#include <llvm-c/Core.h>

#include "codegen/math.h"

typedef LLVMValueRef V;

static inline LLVMTypeRef scalar_of(LLVMTypeRef t) {
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind ? LLVMGetElementType(t) : t;
}
// `e` with as many lanes as `like` has.
static inline LLVMTypeRef shaped(LLVMTypeRef e, V like) {
  LLVMTypeRef t = LLVMTypeOf(like);
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind
             ? LLVMVectorType(e, LLVMGetVectorSize(t))
             : e;
}
static inline V splat(LLVMTypeRef t, V element) {
  V lanes[64];
  if (LLVMGetTypeKind(t) != LLVMVectorTypeKind) return element;
  unsigned n = LLVMGetVectorSize(t);
  for (unsigned i = 0; i < n && i < 64; i++) lanes[i] = element;
  return LLVMConstVector(lanes, n);
}
static inline V real(V like, double v) {
  LLVMTypeRef t = LLVMTypeOf(like);
  return splat(t, LLVMConstReal(scalar_of(t), v));
}
static inline V whole(V like, int64_t v) {
  LLVMTypeRef t = LLVMTypeOf(like);
  return splat(t, LLVMConstInt(scalar_of(t), (unsigned long long)v, true));
}
static inline LLVMTypeRef i32(const at_math *m, V like) {
  return shaped(LLVMInt32TypeInContext(m->ctx), like);
}
static inline LLVMTypeRef i64(const at_math *m, V like) {
  return shaped(LLVMInt64TypeInContext(m->ctx), like);
}
static inline LLVMTypeRef f64(const at_math *m, V like) {
  return shaped(LLVMDoubleTypeInContext(m->ctx), like);
}
#define CAST(x, t) LLVMBuildBitCast(m->b, x, t, "")
#define ADD(x, y) LLVMBuildFAdd(m->b, x, y, "")
#define SUB(x, y) LLVMBuildFSub(m->b, x, y, "")
#define MUL(x, y) LLVMBuildFMul(m->b, x, y, "")
#define DIV(x, y) LLVMBuildFDiv(m->b, x, y, "")
#define NEG(x) LLVMBuildFNeg(m->b, x, "")
#define IADD(x, y) LLVMBuildAdd(m->b, x, y, "")
#define ISUB(x, y) LLVMBuildSub(m->b, x, y, "")
#define IAND(x, y) LLVMBuildAnd(m->b, x, y, "")
#define IOR(x, y) LLVMBuildOr(m->b, x, y, "")
#define IXOR(x, y) LLVMBuildXor(m->b, x, y, "")
#define INOT(x) LLVMBuildNot(m->b, x, "")
#define SHL(x, k) LLVMBuildShl(m->b, x, whole(x, k), "")
#define SHR(x, k) LLVMBuildLShr(m->b, x, whole(x, k), "")
#define SEL(p, x, y) LLVMBuildSelect(m->b, p, x, y, "")
#define LT(x, y) LLVMBuildFCmp(m->b, LLVMRealOLT, x, y, "")
#define GT(x, y) LLVMBuildFCmp(m->b, LLVMRealOGT, x, y, "")
#define LE(x, y) LLVMBuildFCmp(m->b, LLVMRealOLE, x, y, "")
#define GE(x, y) LLVMBuildFCmp(m->b, LLVMRealOGE, x, y, "")
#define EQ(x, y) LLVMBuildFCmp(m->b, LLVMRealOEQ, x, y, "")
#define INE(x, y) LLVMBuildICmp(m->b, LLVMIntNE, x, y, "")

static inline V fma_(const at_math *m, V x, V y, V z) {
  V args[] = {x, y, z};
  return at_math_intrinsic(m, "llvm.fma", args, 3);
}
#define FMA(x, y, z) fma_(m, x, y, z)
static inline V absolute(const at_math *m, V x) {
  return at_math_intrinsic(m, "llvm.fabs", &x, 1);
}
static inline V copysign_(const at_math *m, V x, V sign) {
  V args[] = {x, sign};
  return at_math_intrinsic(m, "llvm.copysign", args, 2);
}
// c[0] + c[1] x + ...
static inline V poly(const at_math *m, V x, const double *c, int n) {
  V y = real(x, c[n - 1]);
  for (int i = n - 2; i >= 0; i--) y = FMA(y, x, real(x, c[i]));
  return y;
}
#define POLY(x, c) poly(m, x, c, (int)(sizeof(c) / sizeof *(c)))
// Clamps; NaN stays.
static inline V at_most(const at_math *m, V x, double hi) {
  return SEL(GT(x, real(x, hi)), real(x, hi), x);
}
static inline V at_least(const at_math *m, V x, double lo) {
  return SEL(LT(x, real(x, lo)), real(x, lo), x);
}

#endif
