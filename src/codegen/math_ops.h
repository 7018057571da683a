// Shorthand for the bodies of vector functions (math_f32.c, math_f64*.c):
// scalars or vectors of any width, by the type of the values. Every macro uses
// the at_math `m`.
//
// A body is a function of `m` and its arguments that reads like the formula:
//   V y = FMA(x, real(x, 2), POLY(z, kTable));
// Constants take the shape of a value (real, whole), so nothing here asks how
// many lanes there are. Choices are made by SEL on comparisons, never by
// branches: both sides are computed, and neither may trap.
#ifndef ATOLL_CODEGEN_MATH_OPS_H_
#define ATOLL_CODEGEN_MATH_OPS_H_

#include <llvm-c/Core.h>

#include "codegen/math.h"

// Short, since bodies are formulas.
// Bodies are written once for scalars and vectors of any width: the type comes
// from the value.
typedef LLVMValueRef V;

// The element type of a vector type; t itself if it is a scalar.
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
// A constant of type t with `element` in all lanes; lanes are at most 64.
// element: a constant of the element's type.
static inline V splat(LLVMTypeRef t, V element) {
  V lanes[64];
  if (LLVMGetTypeKind(t) != LLVMVectorTypeKind) return element;
  unsigned n = LLVMGetVectorSize(t);
  for (unsigned i = 0; i < n && i < 64; i++) lanes[i] = element;
  return LLVMConstVector(lanes, n);
}
// The float constant v in the type of `like`.
static inline V real(V like, double v) {
  LLVMTypeRef t = LLVMTypeOf(like);
  return splat(t, LLVMConstReal(scalar_of(t), v));
}
// The integer constant v in the type of `like`, which holds integers.
static inline V whole(V like, int64_t v) {
  LLVMTypeRef t = LLVMTypeOf(like);
  return splat(t, LLVMConstInt(scalar_of(t), (unsigned long long)v, true));
}
// Types with as many lanes as `like`, whatever it holds.
static inline LLVMTypeRef i32(const at_math *m, V like) {
  return shaped(LLVMInt32TypeInContext(m->ctx), like);
}
static inline LLVMTypeRef i64(const at_math *m, V like) {
  return shaped(LLVMInt64TypeInContext(m->ctx), like);
}
static inline LLVMTypeRef f64(const at_math *m, V like) {
  return shaped(LLVMDoubleTypeInContext(m->ctx), like);
}
// The same bits as type t.
// Both types have the same bits.
#define CAST(x, t) LLVMBuildBitCast(m->b, x, t, "")
// Floats, each rounded once.
#define ADD(x, y) LLVMBuildFAdd(m->b, x, y, "")
// x - y.
#define SUB(x, y) LLVMBuildFSub(m->b, x, y, "")
#define MUL(x, y) LLVMBuildFMul(m->b, x, y, "")
#define DIV(x, y) LLVMBuildFDiv(m->b, x, y, "")
// Flips the sign, of NaN too.
#define NEG(x) LLVMBuildFNeg(m->b, x, "")
// Integers, which wrap.
#define IADD(x, y) LLVMBuildAdd(m->b, x, y, "")
#define ISUB(x, y) LLVMBuildSub(m->b, x, y, "")
#define IAND(x, y) LLVMBuildAnd(m->b, x, y, "")
#define IOR(x, y) LLVMBuildOr(m->b, x, y, "")
#define IXOR(x, y) LLVMBuildXor(m->b, x, y, "")
#define INOT(x) LLVMBuildNot(m->b, x, "")
// Shifts by a constant below the width.
// k is below the width: other shifts are poison.
#define SHL(x, k) LLVMBuildShl(m->b, x, whole(x, k), "")
// Zeros come in from above.
#define SHR(x, k) LLVMBuildLShr(m->b, x, whole(x, k), "")
// Lane by lane: x where p is set.
// p: i1, or lanes of i1.
#define SEL(p, x, y) LLVMBuildSelect(m->b, p, x, y, "")
// Float comparisons are false where an operand is NaN.
#define LT(x, y) LLVMBuildFCmp(m->b, LLVMRealOLT, x, y, "")
#define GT(x, y) LLVMBuildFCmp(m->b, LLVMRealOGT, x, y, "")
#define LE(x, y) LLVMBuildFCmp(m->b, LLVMRealOLE, x, y, "")
#define GE(x, y) LLVMBuildFCmp(m->b, LLVMRealOGE, x, y, "")
#define EQ(x, y) LLVMBuildFCmp(m->b, LLVMRealOEQ, x, y, "")
// Integers differ.
#define INE(x, y) LLVMBuildICmp(m->b, LLVMIntNE, x, y, "")

// x y + z, rounded once.
// In one instruction where the machine has it; the baseline does.
static inline V fma_(const at_math *m, V x, V y, V z) {
  V args[] = {x, y, z};
  return at_math_intrinsic(m, "llvm.fma", args, 3);
}
#define FMA(x, y, z) fma_(m, x, y, z)
// The sign bit cleared: NaN stays NaN.
static inline V absolute(const at_math *m, V x) {
  return at_math_intrinsic(m, "llvm.fabs", &x, 1);
}
// |x| with the sign bit of `sign`.
static inline V copysign_(const at_math *m, V x, V sign) {
  V args[] = {x, sign};
  return at_math_intrinsic(m, "llvm.copysign", args, 2);
}
// c[0] + c[1] x + ... + c[n - 1] x^(n - 1) by Horner's rule, n >= 1.
// One fused multiply-add for each coefficient; the order is part of the result.
static inline V poly(const at_math *m, V x, const double *c, int n) {
  V y = real(x, c[n - 1]);
  for (int i = n - 2; i >= 0; i--) y = FMA(y, x, real(x, c[i]));
  return y;
}
// c is an array, not a pointer.
#define POLY(x, c) poly(m, x, c, (int)(sizeof(c) / sizeof *(c)))
// Clamps; NaN stays.
static inline V at_most(const at_math *m, V x, double hi) {
  return SEL(GT(x, real(x, hi)), real(x, hi), x);
}
static inline V at_least(const at_math *m, V x, double lo) {
  return SEL(LT(x, real(x, lo)), real(x, lo), x);
}

#endif
