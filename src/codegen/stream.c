// Which results go past the caches, and the copy that takes them there.
#include "codegen/stream.h"

#include <llvm-c/Core.h>

enum { LINE = 64 };

// Copies are nearly always of a place to itself.
static bool reads(const at_node *n, at_value v) {
  if (n->op == AT_OP_COPY) return false;
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (at_value_eq(n->operands[i], v)) return true;
  return n->num_regions > 0 && n->op != AT_OP_FUSION && n->op != AT_OP_REDUCE;
}

// Looks at the next AT_STREAM_SOON nodes in program order.
static bool is_read_soon(const at_node *n, uint32_t result) {
  at_value v = {(at_node *)n, result};
  const at_node *u = n->next;
  for (uint32_t i = 0; u && i < AT_STREAM_SOON; i++, u = u->next)
    if (reads(u, v)) return true;
  return false;
}

// The first AT_STREAM_MOST of the results that qualify.
uint64_t at_streams_of(const at_node *n, size_t bytes) {
  uint64_t streams = 0;
  uint32_t count = 0;
  uint32_t some = AT_MIN(n->num_results, 64u);  // bits of the mask
  for (uint32_t r = 0; r < some && count < AT_STREAM_MOST; r++) {
    const at_type *t = &n->types[r];
    if (t->dtype == AT_TOKEN || !at_type_is_static(t) ||
        at_type_bytes(t) < bytes || is_read_soon(n, r))
      continue;
    streams |= 1ull << r;
    count++;
  }
  return streams;
}

// A loop of i8 or whole lines over [lo, hi) bytes.
static void copy_loop(at_em *e, LLVMValueRef to, LLVMValueRef from,
                      LLVMValueRef lo, LLVMValueRef hi, bool lines) {
  LLVMTypeRef i8 = at_em_int(e, 8);
  LLVMTypeRef t = lines ? LLVMVectorType(i8, LINE) : i8;
  at_loop l;
  at_loop_begin(e, &l, lo, hi, lines ? LINE : 1, 0, INT64_MAX);
  LLVMValueRef src = LLVMBuildGEP2(e->b, i8, from, &l.phi, 1, "");
  LLVMValueRef dst = LLVMBuildGEP2(e->b, i8, to, &l.phi, 1, "");
  LLVMValueRef v = LLVMBuildLoad2(e->b, t, src, "");
  LLVMSetAlignment(v, 1);
  LLVMValueRef s = LLVMBuildStore(e->b, v, dst);
  LLVMSetAlignment(s, lines ? LINE : 1);
  if (lines) {
    unsigned kind = LLVMGetMDKindIDInContext(e->ctx, "nontemporal", 11);
    LLVMMetadataRef one =
        LLVMValueAsMetadata(LLVMConstInt(at_em_int(e, 32), 1, false));
    LLVMSetMetadata(
        s, kind,
        LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, &one, 1)));
  }
  at_loop_end(e, &l);
}

// Head up to the first whole line, lines with non-temporal stores, tail.
void at_em_stream(at_em *e, LLVMValueRef to, LLVMValueRef from,
                  LLVMValueRef bytes) {
  if (!at_em_ok(e)) return;
  LLVMTypeRef i64 = at_em_int(e, 64);
  LLVMValueRef at = LLVMBuildPtrToInt(e->b, to, i64, "");
  LLVMValueRef head = LLVMBuildAnd(e->b, LLVMBuildNeg(e->b, at, ""),
                                   at_em_i64(e, LINE - 1), "");
  head = at_em_min(e, head, bytes);
  LLVMValueRef whole = LLVMBuildAnd(e->b, LLVMBuildSub(e->b, bytes, head, ""),
                                    at_em_i64(e, -(int64_t)LINE), "");
  LLVMValueRef tail = LLVMBuildAdd(e->b, head, whole, "");
  copy_loop(e, to, from, LLVMConstNull(i64), head, false);
  copy_loop(e, to, from, head, tail, true);
  copy_loop(e, to, from, tail, bytes, false);
}

// Non-temporal stores are not ordered by what synchronises threads otherwise.
void at_em_stream_fence(at_em *e) {
  unsigned id = LLVMLookupIntrinsicID("llvm.x86.sse.sfence", 19);
  LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->module, id, NULL, 0);
  LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, NULL, 0), fn, NULL, 0,
                 "");
}
