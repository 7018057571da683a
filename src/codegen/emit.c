// The emitter's core: failure, memo and scopes, types, constants, loops.
#include "codegen/emit.h"

#include <llvm-c/Core.h>

#include <stdio.h>

void at_em_fail(at_em *e, at_status st) { e->st = at_status_join(e->st, st); }
bool at_em_ok(const at_em *e) { return e->st.err == NULL; }

// ---- memo
// A table of chains over the list of entries. The list is a stack: what was put
// last goes first, so popping a scope is undoing its entries one by one.
static uint32_t bucket_of(const void *a, uint64_t b, const void *c) {
  uint64_t h = (uint64_t)(uintptr_t)a * 0x9e3779b97f4a7c15ull;
  h = (h ^ b) * 0xbf58476d1ce4e5b9ull;
  h = (h ^ (uint64_t)(uintptr_t)c) * 0x94d049bb133111ebull;
  return (uint32_t)(h >> 40) % AT_EM_BUCKETS;
}

// Walks one chain; what a helper being written must not see (at_b_helper) is
// passed over.
at_val *at_em_memo_find(at_em *e, const void *a, uint64_t b, const void *c) {
  for (uint32_t i = e->buckets[bucket_of(a, b, c)]; i;
       i = e->memo.ptr[i - 1].next) {
    at_memo_entry *m = &e->memo.ptr[i - 1];
    if (i > e->hidden_from && i <= e->hidden_to) continue;
    if (m->a == a && m->b == b && m->c == c) return &m->v;
  }
  return NULL;
}

// The newest entry of a key is found first.
void at_em_memo_put(at_em *e, const void *a, uint64_t b, const void *c,
                    at_val v) {
  uint32_t h = bucket_of(a, b, c);
  at_memo_entry m = {.a = a, .b = b, .c = c, .v = v, .next = e->buckets[h]};
  if (!at_vec_push(e->arena, &e->memo, m)) {
    at_em_fail(e, AT_NO_MEMORY("codegen memo"));
    return;
  }
  e->buckets[h] = (uint32_t)e->memo.len;
}

uint32_t at_em_scope_push(at_em *e) { return (uint32_t)e->memo.len; }

// Undoes the entries one by one: each is at the head of its chain.
void at_em_scope_pop(at_em *e, uint32_t scope) {
  AT_ASSERT(scope <= e->memo.len);  // scopes nest
  while (e->memo.len > scope) {
    at_memo_entry *m = &e->memo.ptr[--e->memo.len];
    e->buckets[bucket_of(m->a, m->b, m->c)] = m->next;
  }
}

// ---- types
LLVMTypeRef at_em_int(at_em *e, uint32_t bits) {
  return LLVMIntTypeInContext(e->ctx, bits);
}
// Of one lane: the scalar type, not a vector of one.
LLVMTypeRef at_em_widen(at_em *e, LLVMTypeRef t) {
  return e->lanes > 1 ? LLVMVectorType(t, e->lanes) : t;
}

// In registers narrow floats are f32, booleans i1, integers as wide as in
// memory. In memory (below) floats of under 16 bits are integers of their bits.
LLVMTypeRef at_em_reg_type(at_em *e, at_dtype t) {
  at_dtype r = at_real_of(t);
  if (r == AT_PRED) return at_em_int(e, 1);
  if (r == AT_F64) return LLVMDoubleTypeInContext(e->ctx);
  if (at_is_float(r)) return LLVMFloatTypeInContext(e->ctx);
  return at_em_int(e, 8 * at_dtype_bytes(r));
}

LLVMTypeRef at_em_storage_type(at_em *e, at_dtype t) {
  at_dtype r = at_real_of(t);
  if (r == AT_F64 || r == AT_F32) return at_em_reg_type(e, r);
  if (r == AT_F16) return LLVMHalfTypeInContext(e->ctx);
  return at_em_int(e, 8 * at_dtype_bytes(r));
}

// Of a vector: of one element. Pointers count as 64.
uint32_t at_em_bits_of(LLVMTypeRef t) {
  if (LLVMGetTypeKind(t) == LLVMVectorTypeKind) t = LLVMGetElementType(t);
  switch (LLVMGetTypeKind(t)) {
    case LLVMIntegerTypeKind:
      return LLVMGetIntTypeWidth(t);
    case LLVMHalfTypeKind:
      return 16;
    case LLVMFloatTypeKind:
      return 32;
    default:
      return 64;
  }
}

// Integers of as many bits, as many of them.
LLVMTypeRef at_em_bits_type(at_em *e, LLVMTypeRef t) {
  LLVMTypeRef i = at_em_int(e, at_em_bits_of(t));
  return LLVMGetTypeKind(t) == LLVMVectorTypeKind
             ? LLVMVectorType(i, LLVMGetVectorSize(t))
             : i;
}
LLVMValueRef at_em_bits(at_em *e, LLVMValueRef v) {
  return LLVMBuildBitCast(e->b, v, at_em_bits_type(e, LLVMTypeOf(v)), "");
}

// ---- constants
static LLVMValueRef const_splat(LLVMTypeRef t, LLVMValueRef scalar) {
  LLVMValueRef lane[2 * AT_EM_MAX_LANES];
  uint32_t n = LLVMGetVectorSize(t);
  for (uint32_t i = 0; i < n; i++) lane[i] = scalar;
  return LLVMConstVector(lane, n);
}

// Of a vector type: in all lanes.
LLVMValueRef at_em_ci(at_em *e, LLVMTypeRef t, int64_t v) {
  if (LLVMGetTypeKind(t) != LLVMVectorTypeKind)
    return LLVMConstInt(t, (unsigned long long)v, true);
  return const_splat(
      t, LLVMConstInt(LLVMGetElementType(t), (unsigned long long)v, true));
}
// Of a vector type: in all lanes.
LLVMValueRef at_em_cf(at_em *e, LLVMTypeRef t, double v) {
  if (LLVMGetTypeKind(t) != LLVMVectorTypeKind) return LLVMConstReal(t, v);
  return const_splat(t, LLVMConstReal(LLVMGetElementType(t), v));
}
LLVMValueRef at_em_i64(at_em *e, int64_t v) {
  return LLVMConstInt(at_em_int(e, 64), (unsigned long long)v, true);
}

// Constants need no instructions. NULL stays NULL: real values have no
// imaginary part.
LLVMValueRef at_em_splat(at_em *e, LLVMValueRef s) {
  if (!s || e->lanes == 1) return s;
  LLVMTypeRef t = LLVMVectorType(LLVMTypeOf(s), e->lanes);
  if (LLVMIsConstant(s)) return const_splat(t, s);
  LLVMTypeRef i32 = at_em_int(e, 32);
  LLVMValueRef one = LLVMBuildInsertElement(e->b, LLVMGetPoison(t), s,
                                            LLVMConstInt(i32, 0, false), "");
  return LLVMBuildShuffleVector(e->b, one, LLVMGetPoison(t),
                                LLVMConstNull(LLVMVectorType(i32, e->lanes)),
                                "");
}
at_val at_em_splat_val(at_em *e, at_val s) {
  return (at_val){at_em_splat(e, s.re), at_em_splat(e, s.im)};
}

// Of e->lanes.
at_val at_em_zero(at_em *e, at_dtype t) {
  LLVMValueRef z = LLVMConstNull(at_em_widen(e, at_em_reg_type(e, t)));
  return (at_val){z, at_is_complex(t) ? z : NULL};
}

// The bits of a float, kept exactly (NaN payloads, -0).
static LLVMValueRef const_float(at_em *e, at_dtype t, const void *p) {
  if (t == AT_F32) {
    uint32_t bits;
    memcpy(&bits, p, 4);
    return LLVMConstBitCast(LLVMConstInt(at_em_int(e, 32), bits, false),
                            at_em_reg_type(e, t));
  }
  if (t == AT_F64) {
    uint64_t bits;
    memcpy(&bits, p, 8);
    return LLVMConstBitCast(LLVMConstInt(at_em_int(e, 64), bits, false),
                            at_em_reg_type(e, t));
  }
  return LLVMConstReal(at_em_reg_type(e, t), at_load_float(t, p));
}

// Element i of l as an immediate, in all lanes.
at_val at_em_literal(at_em *e, const at_literal *l, int64_t i) {
  at_dtype t = l->type.dtype;
  const char *p = at_literal_at(l, i);
  at_val v = {0};
  if (at_is_complex(t)) {
    at_dtype r = at_real_of(t);
    v.re = const_float(e, r, p);
    v.im = const_float(e, r, p + at_dtype_bytes(r));
  } else if (at_is_float(t)) {
    v.re = const_float(e, t, p);
  } else {
    v.re = LLVMConstInt(at_em_reg_type(e, t),
                        (unsigned long long)at_load_int(t, p), true);
  }
  return at_em_splat_val(e, v);
}

// The module's table knows it by the literal's address. Splats are spread out,
// as loads index them like others.
LLVMValueRef at_em_literal_global(at_em *e, const at_literal *l) {
  void **known = at_map_put_ptr(&e->globals, l);
  if (known && *known) return *known;
  LLVMTypeRef i8 = at_em_int(e, 8);
  size_t bytes = at_type_bytes(&l->type), one = at_dtype_bytes(l->type.dtype);
  char *data = at_arena_alloc(e->globals.arena, bytes ? bytes : 1, 16);
  if (!data || !known) {
    at_em_fail(e, AT_NO_MEMORY("constant of generated code"));
    return LLVMGetPoison(LLVMPointerTypeInContext(e->ctx, 0));
  }
  for (size_t i = 0; i < bytes; i += l->splat ? one : bytes)
    memcpy(data + i, l->data, l->splat ? one : bytes);
  LLVMValueRef init = LLVMConstStringInContext2(e->ctx, data, bytes, true);
  char name[64];
  snprintf(name, sizeof name, "%s.c%u", e->prefix, e->next_global++);
  LLVMValueRef g = LLVMAddGlobal(e->module, LLVMArrayType2(i8, bytes), name);
  LLVMSetInitializer(g, init);
  LLVMSetGlobalConstant(g, true);
  LLVMSetLinkage(g, LLVMPrivateLinkage);
  LLVMSetAlignment(g, 64);
  return *known = g;
}

// ---- control
LLVMBasicBlockRef at_em_block(at_em *e, const char *name) {
  return LLVMAppendBasicBlockInContext(e->ctx, e->fn, name);
}

// In the entry block, so that a loop around does not grow the stack and LLVM
// can turn it into a register.
LLVMValueRef at_em_alloca(at_em *e, LLVMTypeRef t, int64_t count) {
  LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
  LLVMValueRef first = LLVMGetFirstInstruction(e->entry);
  AT_ASSERT(count > 0);
  if (first)
    LLVMPositionBuilderBefore(e->b, first);
  else
    LLVMPositionBuilderAtEnd(e->b, e->entry);
  LLVMValueRef p =
      count == 1
          ? LLVMBuildAlloca(e->b, t, "")
          : LLVMBuildAlloca(e->b, LLVMArrayType2(t, (uint64_t)count), "");
  if (count != 1) LLVMSetAlignment(p, 64);
  LLVMPositionBuilderAtEnd(e->b, here);
  return p;
}

// A loop of one turn is none: its index is a constant, and no blocks are made.
// `mult` is what every index is a multiple of, for alignments.
void at_loop_begin(at_em *e, at_loop *l, LLVMValueRef lo, LLVMValueRef hi,
                   int64_t step, int64_t min, int64_t max) {
  LLVMTypeRef i64 = at_em_int(e, 64);
  AT_ASSERT(step > 0);
  *l = (at_loop){.hi = hi, .step = step};
  bool known = LLVMIsConstant(lo) && LLVMIsConstant(hi);
  int64_t a = known ? LLVMConstIntGetSExtValue(lo) : 0;
  int64_t z = known ? LLVMConstIntGetSExtValue(hi) : 0;
  int64_t mult = step;
  if (LLVMIsConstant(lo)) {
    int64_t low = LLVMConstIntGetSExtValue(lo);
    while (mult > 1 && low % mult) mult /= 2;
    if (mult && low % mult) mult = 1;
  }
  l->scope = at_em_scope_push(e);
  if (known && z > a && z - a <= step) {
    l->single = true;
    l->i = at_ix_const(a);
    return;
  }
  LLVMBasicBlockRef pre = at_em_block(e, "pre");
  l->body = at_em_block(e, "loop");
  l->exit = at_em_block(e, "done");
  if (known)
    LLVMBuildBr(e->b, z > a ? pre : l->exit);
  else
    LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, lo, hi, ""), pre,
                    l->exit);
  LLVMPositionBuilderAtEnd(e->b, pre);
  LLVMBuildBr(e->b, l->body);
  LLVMPositionBuilderAtEnd(e->b, l->body);
  l->phi = LLVMBuildPhi(e->b, i64, "i");
  LLVMAddIncoming(l->phi, &lo, &pre, 1);
  l->i = at_ix_of(l->phi, min, max, mult);
}

// The index is in [lo, hi - 1].
void at_loop_range(at_em *e, at_loop *l, int64_t lo, int64_t hi, int64_t step) {
  at_loop_begin(e, l, at_em_i64(e, lo), at_em_i64(e, hi), step, lo,
                hi > lo ? hi - 1 : lo);
}

// The next index cannot overflow: hi is a size, and so is the step.
void at_loop_end(at_em *e, at_loop *l) {
  at_em_scope_pop(e, l->scope);
  if (l->single) return;
  LLVMValueRef next = LLVMBuildNSWAdd(e->b, l->phi, at_em_i64(e, l->step), "");
  LLVMBasicBlockRef latch = LLVMGetInsertBlock(e->b);
  LLVMAddIncoming(l->phi, &next, &latch, 1);
  LLVMBuildCondBr(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, next, l->hi, ""),
                  l->body, l->exit);
  LLVMPositionBuilderAtEnd(e->b, l->exit);
}

// What is emitted in a branch is forgotten at its end: it does not dominate
// what follows.
void at_if_begin(at_em *e, at_branch *f, LLVMValueRef cond) {
  LLVMBasicBlockRef then = at_em_block(e, "then");
  f->other = at_em_block(e, "else");
  f->end = at_em_block(e, "endif");
  LLVMBuildCondBr(e->b, cond, then, f->other);
  LLVMPositionBuilderAtEnd(e->b, then);
  f->scope = at_em_scope_push(e);
}
// What the first branch remembered is forgotten.
void at_if_else(at_em *e, at_branch *f) {
  at_em_scope_pop(e, f->scope);
  LLVMBuildBr(e->b, f->end);
  LLVMPositionBuilderAtEnd(e->b, f->other);
  f->other = NULL;
}
// Without an else, the other side goes straight on.
void at_if_end(at_em *e, at_branch *f) {
  at_em_scope_pop(e, f->scope);
  LLVMBuildBr(e->b, f->end);
  if (f->other) {
    LLVMPositionBuilderAtEnd(e->b, f->other);
    LLVMBuildBr(e->b, f->end);
  }
  LLVMPositionBuilderAtEnd(e->b, f->end);
}
