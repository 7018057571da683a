// Loads of lanes at known distances: a few whole vectors and shuffles instead
// of a gather.
#include "codegen/window.h"

#include <llvm-c/Core.h>

// Lane steps plus a constant vec.
bool at_ix_offsets(at_em *e, const at_ix *a, int64_t *out) {
  if (a->mask || (a->vec && !LLVMIsConstant(a->vec))) return false;
  for (uint32_t i = 0; i < e->lanes; i++) {
    out[i] = a->lane * (int64_t)i;
    if (!a->vec) continue;
    LLVMValueRef v = LLVMGetAggregateElement(a->vec, i);
    if (!v || !LLVMIsAConstantInt(v)) return false;
    out[i] += LLVMConstIntGetSExtValue(v);
  }
  return true;
}

// A constant vector of equal steps is c and lane.
at_ix at_ix_settle(at_em *e, at_ix a) {
  int64_t at[AT_EM_MAX_LANES];
  if (!a.vec || e->lanes == 1 || !LLVMIsConstant(a.vec)) return a;
  if (!at_ix_offsets(e, &a, at)) return a;
  for (uint32_t i = 2; i < e->lanes; i++)
    if (at[i] - at[i - 1] != at[1] - at[0]) return a;
  a.c += at[0];
  a.lane = at[1] - at[0];
  a.vec = NULL;
  return a;
}

// In the type of index lanes.
LLVMValueRef at_ix_const_lanes(at_em *e, const int64_t *at) {
  LLVMTypeRef t = at_em_int(e, e->wide_index ? 64 : 32);
  LLVMValueRef lane[AT_EM_MAX_LANES];
  for (uint32_t i = 0; i < e->lanes; i++)
    lane[i] = LLVMConstInt(t, (unsigned long long)at[i], true);
  return LLVMConstVector(lane, e->lanes);
}

typedef struct at_window {
  at_em *e;
  LLVMValueRef ptr;
  LLVMTypeRef elem;
  at_ix lin;  // of the base: without lanes
  bool invariant;
} at_window;

// `n` elements from `first` on, counted from the base.
static LLVMValueRef load_part(const at_window *w, int64_t first, int64_t n) {
  at_em *e = w->e;
  LLVMValueRef i = at_ix_value(e, at_ix_addc(w->lin, first));
  LLVMValueRef at = LLVMBuildGEP2(e->b, w->elem, w->ptr, &i, 1, "");
  AT_ASSERT(n > 0 && n <= e->lanes);
  LLVMTypeRef t = LLVMVectorType(w->elem, (unsigned)n);
  LLVMValueRef v = LLVMBuildLoad2(e->b, t, at, "");
  LLVMSetAlignment(v, at_em_bits_of(w->elem) / 8);
  if (w->invariant) at_em_mark_invariant(e, v);
  return v;
}

// Lanes whose elements are in [first, first + n) from `part`, others as they
// are. all: NULL at first.
static LLVMValueRef take(const at_window *w, LLVMValueRef all,
                         LLVMValueRef part, const int64_t *at, int64_t first,
                         int64_t n) {
  at_em *e = w->e;
  LLVMTypeRef i32 = at_em_int(e, 32);
  LLVMValueRef lane[AT_EM_MAX_LANES];
  for (uint32_t i = 0; i < e->lanes; i++) {
    bool in = at[i] >= first && at[i] < first + n;
    int64_t from = in ? at[i] - first + (all ? e->lanes : 0) : i;
    lane[i] = in || all ? LLVMConstInt(i32, (unsigned long long)from, false)
                        : LLVMGetPoison(i32);
  }
  if (!all) {
    all = part;
    part = LLVMGetPoison(LLVMTypeOf(part));
  }
  return LLVMBuildShuffleVector(e->b, all, part,
                                LLVMConstVector(lane, e->lanes), "");
}

// Elements [first, first + lanes) that lanes are at which are used.
static LLVMValueRef load_used(const at_window *w, LLVMValueRef used,
                              const int64_t *at, int64_t first) {
  at_em *e = w->e;
  LLVMTypeRef i32 = at_em_int(e, 32), vt = at_em_widen(e, w->elem);
  LLVMValueRef lane[AT_EM_MAX_LANES], none = LLVMConstNull(LLVMTypeOf(used));
  for (uint32_t i = 0; i < e->lanes; i++)
    lane[i] = LLVMConstInt(i32, e->lanes, false);
  for (uint32_t i = 0; i < e->lanes; i++)
    if (at[i] >= first && at[i] < first + e->lanes)
      lane[at[i] - first] = LLVMConstInt(i32, i, false);
  LLVMValueRef mask = LLVMBuildShuffleVector(
      e->b, used, none, LLVMConstVector(lane, e->lanes), "");
  LLVMValueRef i = at_ix_value(e, at_ix_addc(w->lin, first));
  LLVMValueRef p = LLVMBuildGEP2(e->b, w->elem, w->ptr, &i, 1, "");
  LLVMTypeRef types[2] = {vt, LLVMTypeOf(p)};
  unsigned id = LLVMLookupIntrinsicID("llvm.masked.load", 16);
  LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->module, id, types, 2);
  LLVMValueRef args[4] = {p,
                          LLVMConstInt(i32, at_em_bits_of(w->elem) / 8, false),
                          mask, LLVMConstNull(vt)};
  return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, types, 2), fn,
                        args, 4, "");
}

// Lanes a fixed step apart, some of which are not used.
static LLVMValueRef load_steps(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem,
                               at_ix lin) {
  if (lin.vec || lin.lane < 1 || lin.lane > AT_WINDOW_VECTORS) return NULL;
  int64_t at[AT_EM_MAX_LANES], W = e->lanes;
  for (uint32_t i = 0; i < W; i++) at[i] = lin.lane * (int64_t)i;
  LLVMValueRef used = lin.mask, all = NULL;
  lin.lane = 0;
  lin.mask = NULL;
  at_window w = {.e = e, .ptr = ptr, .elem = elem, .lin = lin};
  for (int64_t first = 0; first <= at[W - 1]; first += W)
    all = take(&w, all, load_used(&w, used, at, first), at, first, W);
  return all;
}

// At most AT_WINDOW_VECTORS loads from the lowest to the highest lane, each
// shuffled into what is there. Nothing outside of these two is touched.
LLVMValueRef at_em_load_window(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem,
                               at_ix lin, bool invariant) {
  int64_t at[AT_EM_MAX_LANES] = {0}, W = e->lanes;
  if (W > 1 && lin.mask) return load_steps(e, ptr, elem, lin);
  if (W == 1 || !at_ix_offsets(e, &lin, at)) return NULL;
  int64_t lo = at[0], hi = at[0];
  for (uint32_t i = 1; i < W; i++) {
    lo = AT_MIN(lo, at[i]);
    hi = AT_MAX(hi, at[i]);
  }
  if (hi - lo >= AT_WINDOW_VECTORS * W) return NULL;
  lin.lane = 0;
  lin.vec = NULL;
  at_window w = {e, ptr, elem, lin, invariant};
  if (hi - lo < W)  // one vector, shorter if nothing else is used
    return take(&w, NULL, load_part(&w, lo, hi - lo + 1), at, lo, hi - lo + 1);
  LLVMValueRef all = NULL;
  for (int64_t first = lo; first <= hi; first += W) {
    // The last one reaches back: behind the highest lane may be nothing.
    int64_t from = AT_MIN(first, hi + 1 - W);
    all = take(&w, all, load_part(&w, from, W), at, from, W);
  }
  return all;
}

// `part`'s n elements in lanes [first, first + n) of `all`, which is NULL at
// first.
static LLVMValueRef put_run(at_em *e, LLVMValueRef all, LLVMValueRef part,
                            uint32_t first, uint32_t n) {
  LLVMTypeRef i32 = at_em_int(e, 32);
  LLVMValueRef wide[AT_EM_MAX_LANES], lane[AT_EM_MAX_LANES];
  for (uint32_t i = 0; i < e->lanes; i++) {
    bool in = i >= first && i < first + n;
    wide[i] = in ? LLVMConstInt(i32, i - first, false) : LLVMGetPoison(i32);
    lane[i] = LLVMConstInt(i32, in ? e->lanes + i : i, false);
  }
  part = LLVMBuildShuffleVector(e->b, part, LLVMGetPoison(LLVMTypeOf(part)),
                                LLVMConstVector(wide, e->lanes), "");
  return all ? LLVMBuildShuffleVector(e->b, all, part,
                                      LLVMConstVector(lane, e->lanes), "")
             : part;
}

// One load and two shuffles for each run.
LLVMValueRef at_em_load_runs(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem,
                             at_ix lin, uint64_t follows, bool invariant) {
  LLVMTypeRef i32 = at_em_int(e, 32), i64 = at_em_int(e, 64);
  LLVMValueRef ix = at_ix_vector(e, lin), all = NULL;
  for (uint32_t i = 0, end; i < e->lanes; i = end) {
    for (end = i + 1; end < e->lanes && follows >> end & 1;) end++;
    LLVMValueRef at =
        LLVMBuildExtractElement(e->b, ix, LLVMConstInt(i32, i, false), "");
    at = LLVMBuildSExt(e->b, at, i64, "");
    at = LLVMBuildGEP2(e->b, elem, ptr, &at, 1, "");
    LLVMValueRef part =
        LLVMBuildLoad2(e->b, LLVMVectorType(elem, end - i), at, "");
    LLVMSetAlignment(part, at_em_bits_of(elem) / 8);
    if (invariant) at_em_mark_invariant(e, part);
    all = put_run(e, all, part, i, end - i);
  }
  return all;
}
