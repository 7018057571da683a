// Single LLVM instructions behind build.h.
#include "codegen/build.h"

#include <llvm-c/Core.h>
#include <stdio.h>

// The opcodes stand in the order of at_b_op.
LLVMValueRef at_b_bin(at_em *e, at_b_op op, LLVMValueRef a, LLVMValueRef b) {
  static const LLVMOpcode code[AT_B_OP_COUNT] = {
      LLVMAdd,  LLVMSub,  LLVMMul,  LLVMSDiv, LLVMUDiv, LLVMSRem,
      LLVMURem, LLVMAnd,  LLVMOr,   LLVMXor,  LLVMShl,  LLVMLShr,
      LLVMAShr, LLVMFAdd, LLVMFSub, LLVMFMul, LLVMFDiv};
  return LLVMBuildBinOp(e->b, code[op], a, b, "");
}

// In the order of at_b_ipred.
LLVMValueRef at_b_icmp(at_em *e, at_b_ipred p, LLVMValueRef a, LLVMValueRef b) {
  static const LLVMIntPredicate code[] = {
      LLVMIntEQ,  LLVMIntNE,  LLVMIntSLT, LLVMIntSLE, LLVMIntSGT,
      LLVMIntSGE, LLVMIntULT, LLVMIntULE, LLVMIntUGT, LLVMIntUGE};
  return LLVMBuildICmp(e->b, code[p], a, b, "");
}

// The predicate is masked: callers pass numbers of MLIR's attributes.
LLVMValueRef at_b_fcmp(at_em *e, at_b_fpred p, LLVMValueRef a, LLVMValueRef b) {
  // MLIR's order; LLVM has UNO before UEQ.
  static const LLVMRealPredicate to[] = {[AT_B_FALSE] = LLVMRealPredicateFalse,
                                         [AT_B_OEQ] = LLVMRealOEQ,
                                         [AT_B_OGT] = LLVMRealOGT,
                                         [AT_B_OGE] = LLVMRealOGE,
                                         [AT_B_OLT] = LLVMRealOLT,
                                         [AT_B_OLE] = LLVMRealOLE,
                                         [AT_B_ONE] = LLVMRealONE,
                                         [AT_B_ORD] = LLVMRealORD,
                                         [AT_B_UEQ] = LLVMRealUEQ,
                                         [AT_B_UGT_F] = LLVMRealUGT,
                                         [AT_B_UGE_F] = LLVMRealUGE,
                                         [AT_B_ULT_F] = LLVMRealULT,
                                         [AT_B_ULE_F] = LLVMRealULE,
                                         [AT_B_UNE] = LLVMRealUNE,
                                         [AT_B_UNO] = LLVMRealUNO,
                                         [AT_B_TRUE] = LLVMRealPredicateTrue};
  return LLVMBuildFCmp(e->b, to[p & 15], a, b, "");
}
LLVMValueRef at_b_select(at_em *e, LLVMValueRef cond, LLVMValueRef a,
                         LLVMValueRef b) {
  return LLVMBuildSelect(e->b, cond, a, b, "");
}
LLVMValueRef at_b_not(at_em *e, LLVMValueRef a) {
  return LLVMBuildNot(e->b, a, "");
}

// In the order of at_b_cast_kind.
LLVMValueRef at_b_cast(at_em *e, at_b_cast_kind k, LLVMValueRef v,
                       LLVMTypeRef t) {
  static const LLVMOpcode code[] = {LLVMTrunc,   LLVMZExt,     LLVMSExt,
                                    LLVMBitCast, LLVMPtrToInt, LLVMIntToPtr};
  return LLVMBuildCast(e->b, code[k], v, t, "");
}

// ---- types and constants
LLVMTypeRef at_b_ptr(at_em *e) { return LLVMPointerTypeInContext(e->ctx, 0); }
LLVMTypeRef at_b_f32(at_em *e) { return LLVMFloatTypeInContext(e->ctx); }
LLVMTypeRef at_b_type_of(LLVMValueRef v) { return LLVMTypeOf(v); }
LLVMTypeRef at_b_vector(LLVMTypeRef elem, uint32_t lanes) {
  return LLVMVectorType(elem, lanes);
}
bool at_b_is_vector(LLVMValueRef v) {
  return LLVMGetTypeKind(LLVMTypeOf(v)) == LLVMVectorTypeKind;
}
LLVMValueRef at_b_null(LLVMTypeRef t) { return LLVMConstNull(t); }
// A freeze keeps LLVM from folding what is computed of it.
LLVMValueRef at_b_unfolded(at_em *e, LLVMValueRef constant) {
  return LLVMBuildFreeze(e->b, constant, "");
}
LLVMValueRef at_b_poison(LLVMTypeRef t) { return LLVMGetPoison(t); }
LLVMValueRef at_b_f32_bits(at_em *e, uint32_t bits) {
  return LLVMConstBitCast(LLVMConstInt(at_em_int(e, 32), bits, false),
                          at_b_f32(e));
}
LLVMValueRef at_b_const_vector(LLVMValueRef *lanes, uint32_t n) {
  return LLVMConstVector(lanes, n);
}
// Sign-extended.
bool at_b_const_int(LLVMValueRef v, int64_t *out) {
  if (!LLVMIsAConstantInt(v)) return false;
  *out = LLVMConstIntGetSExtValue(v);
  return true;
}

// A private global; its name is unique by the function's prefix and a counter.
LLVMValueRef at_b_bytes(at_em *e, const void *data, size_t len) {
  LLVMValueRef init = LLVMConstStringInContext2(e->ctx, data, len, true);
  char name[64];
  snprintf(name, sizeof name, "%s.c%u", e->prefix, e->next_global++);
  LLVMValueRef g =
      LLVMAddGlobal(e->module, LLVMArrayType2(at_em_int(e, 8), len), name);
  LLVMSetInitializer(g, init);
  LLVMSetGlobalConstant(g, true);
  LLVMSetLinkage(g, LLVMPrivateLinkage);
  LLVMSetAlignment(g, 64);
  return g;
}

void at_b_copy(at_em *e, LLVMValueRef dst, LLVMValueRef src, uint64_t bytes) {
  LLVMBuildMemCpy(e->b, dst, 64, src, 64, at_em_i64(e, (int64_t)bytes));
}

// ---- lanes
LLVMValueRef at_b_extract_at(at_em *e, LLVMValueRef v, LLVMValueRef lane) {
  return LLVMBuildExtractElement(e->b, v, lane, "");
}
LLVMValueRef at_b_extract(at_em *e, LLVMValueRef v, uint32_t lane) {
  return at_b_extract_at(e, v, LLVMConstInt(at_em_int(e, 32), lane, false));
}
LLVMValueRef at_b_insert(at_em *e, LLVMValueRef v, LLVMValueRef x,
                         uint32_t lane) {
  return LLVMBuildInsertElement(
      e->b, v, x, LLVMConstInt(at_em_int(e, 32), lane, false), "");
}
// n is at most twice the lanes of a vector.
LLVMValueRef at_b_shuffle(at_em *e, LLVMValueRef a, LLVMValueRef b,
                          const int *lane, uint32_t n) {
  LLVMValueRef mask[2 * AT_EM_MAX_LANES];
  LLVMTypeRef i32 = at_em_int(e, 32);
  for (uint32_t i = 0; i < n; i++)
    mask[i] = LLVMConstInt(i32, (unsigned long long)lane[i], false);
  return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(mask, n), "");
}

// ---- memory
LLVMValueRef at_b_param(at_em *e, uint32_t i) { return LLVMGetParam(e->fn, i); }
LLVMValueRef at_b_gep(at_em *e, LLVMTypeRef elem, LLVMValueRef ptr,
                      LLVMValueRef i64) {
  return LLVMBuildGEP2(e->b, elem, ptr, &i64, 1, "");
}
LLVMValueRef at_b_load(at_em *e, LLVMTypeRef t, LLVMValueRef ptr,
                       uint32_t align) {
  LLVMValueRef v = LLVMBuildLoad2(e->b, t, ptr, "");
  LLVMSetAlignment(v, align);
  return v;
}
// The masked load does not touch memory of lanes that are off.
LLVMValueRef at_b_load_some(at_em *e, LLVMValueRef ptr, uint32_t align,
                            LLVMValueRef mask, LLVMValueRef otherwise) {
  LLVMTypeRef types[2] = {LLVMTypeOf(otherwise), LLVMTypeOf(ptr)};
  unsigned id = LLVMLookupIntrinsicID("llvm.masked.load", 16);
  LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->module, id, types, 2);
  LLVMValueRef args[4] = {ptr, LLVMConstInt(at_em_int(e, 32), align, false),
                          mask, otherwise};
  return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, types, 2), fn,
                        args, 4, "");
}
void at_b_store(at_em *e, LLVMValueRef v, LLVMValueRef ptr, uint32_t align) {
  LLVMSetAlignment(LLVMBuildStore(e->b, v, ptr), align);
}

// ---- calls
LLVMValueRef at_b_call(at_em *e, const char *name, LLVMTypeRef ret,
                       LLVMValueRef *args, uint32_t n) {
  LLVMTypeRef types[AT_B_MAX_ARGS];
  if (n > AT_B_MAX_ARGS) {
    at_em_fail(e,
               AT_FAIL(AT_INTERNAL, "a call of %s with %u arguments", name, n));
    // The code is not used; it only has to be well-formed.
    n = AT_B_MAX_ARGS;
  }
  for (uint32_t i = 0; i < n; i++) types[i] = LLVMTypeOf(args[i]);
  LLVMTypeRef ft = LLVMFunctionType(ret ? ret : LLVMVoidTypeInContext(e->ctx),
                                    types, n, false);
  LLVMValueRef f = LLVMGetNamedFunction(e->module, name);
  if (!f) {
    f = LLVMAddFunction(e->module, name, ft);
    unsigned nounwind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMAddAttributeAtIndex(f, LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(e->ctx, nounwind, 0));
  }
  return LLVMBuildCall2(e->b, ft, f, args, n, "");
}
// The type of the first argument chooses the overload.
LLVMValueRef at_b_intrinsic(at_em *e, const char *name, LLVMValueRef *args,
                            uint32_t n) {
  LLVMTypeRef type = LLVMTypeOf(args[0]);
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, &type, 1),
                        LLVMGetIntrinsicDeclaration(e->module, id, &type, 1),
                        args, n, "");
}

// ---- blocks
LLVMBasicBlockRef at_b_here(at_em *e) { return LLVMGetInsertBlock(e->b); }
void at_b_at_end(at_em *e, LLVMBasicBlockRef block) {
  LLVMPositionBuilderAtEnd(e->b, block);
}
void at_b_br(at_em *e, LLVMBasicBlockRef to) { LLVMBuildBr(e->b, to); }
void at_b_cond_br(at_em *e, LLVMValueRef cond, LLVMBasicBlockRef yes,
                  LLVMBasicBlockRef no) {
  LLVMBuildCondBr(e->b, cond, yes, no);
}
LLVMValueRef at_b_phi(at_em *e, LLVMTypeRef t) {
  return LLVMBuildPhi(e->b, t, "");
}
void at_b_phi_add(LLVMValueRef phi, LLVMValueRef v, LLVMBasicBlockRef from) {
  LLVMAddIncoming(phi, &v, &from, 1);
}
void at_b_ret(at_em *e) { LLVMBuildRetVoid(e->b); }
