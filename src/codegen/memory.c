// Loads and stores of elements, by how the lanes lie in memory. at_ix knows it
// of a place: the same for all lanes (one load, spread), neighbours forwards or
// backwards (one vector), near each other (at_em_load_window), anywhere
// (gathers, which are slow). Complex elements are pairs of real ones; a vector
// of them is loaded whole and taken apart.
#include "codegen/window.h"

#include <llvm-c/Core.h>

// Memory that nobody writes while the function runs: LLVM may move such loads
// out of loops. Not where the function itself writes over it.
void at_em_mark_invariant(at_em *e, LLVMValueRef load) {
  if (e->rewritten) return;
  unsigned kind = LLVMGetMDKindIDInContext(e->ctx, "invariant.load", 14);
  LLVMSetMetadata(
      load, kind,
      LLVMMetadataAsValue(e->ctx, LLVMMDNodeInContext2(e->ctx, NULL, 0)));
}

// ptr + i elements.
static LLVMValueRef address(at_em *e, LLVMValueRef ptr, LLVMTypeRef t,
                            LLVMValueRef i) {
  return LLVMBuildGEP2(e->b, t, ptr, &i, 1, "");
}

// Type t at element i: alignment is the element's, as vectors begin anywhere.
static LLVMValueRef load_at(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem,
                            LLVMTypeRef t, LLVMValueRef i, bool invariant) {
  LLVMValueRef v = LLVMBuildLoad2(e->b, t, address(e, ptr, elem, i), "");
  LLVMSetAlignment(v, at_em_bits_of(elem) / 8);
  if (invariant) at_em_mark_invariant(e, v);
  return v;
}

// Lanes a, a + step, ... of v.
static LLVMValueRef pick(at_em *e, LLVMValueRef v, uint32_t n, int first,
                         int step) {
  LLVMTypeRef i32 = at_em_int(e, 32);
  LLVMValueRef lane[AT_EM_MAX_LANES];
  for (uint32_t i = 0; i < n; i++)
    lane[i] =
        LLVMConstInt(i32, (unsigned long long)(first + step * (int)i), false);
  return LLVMBuildShuffleVector(e->b, v, LLVMGetPoison(LLVMTypeOf(v)),
                                LLVMConstVector(lane, n), "");
}

// Lanes at known places whose element lies right behind that of the lane
// before.
static uint64_t following(at_em *e, const at_ix *lin) {
  int64_t at[AT_EM_MAX_LANES];
  uint64_t follows = 0;
  if (!at_ix_offsets(e, lin, at)) return 0;
  for (uint32_t i = 1; i < e->lanes; i++)
    if (at[i] == at[i - 1] + 1) follows |= 1ull << i;
  return follows;
}

// One part of every lane; element k of the part is at index k of type elem.
static LLVMValueRef gather(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem,
                           at_ix lin, bool invariant) {
  uint32_t bits = at_em_bits_of(elem);
  LLVMTypeRef i32 = at_em_int(e, 32), vt = at_em_widen(e, elem);
  LLVMValueRef near = at_em_load_window(e, ptr, elem, lin, invariant);
  if (near) return near;
  LLVMValueRef ix = at_ix_vector(e, lin);
  if (bits >= 32) {
    LLVMValueRef ptrs = LLVMBuildGEP2(e->b, elem, ptr, &ix, 1, "");
    LLVMTypeRef types[2] = {vt, LLVMTypeOf(ptrs)};
    unsigned id = LLVMLookupIntrinsicID("llvm.masked.gather", 18);
    LLVMValueRef fn = LLVMGetIntrinsicDeclaration(e->module, id, types, 2);
    LLVMValueRef args[4] = {ptrs, LLVMConstInt(i32, bits / 8, false),
                            LLVMConstAllOnes(at_em_widen(e, at_em_int(e, 1))),
                            LLVMGetPoison(vt)};
    return LLVMBuildCall2(e->b, LLVMIntrinsicGetType(e->ctx, id, types, 2), fn,
                          args, 4, "");
  }
  uint64_t follows = following(e, &lin);
  if (2 * (uint32_t)__builtin_popcountll(follows) >= e->lanes)
    return at_em_load_runs(e, ptr, elem, lin, follows, invariant);
  LLVMValueRef r = LLVMGetPoison(vt);
  for (uint32_t i = 0; i < e->lanes; i++) {
    LLVMValueRef k = LLVMConstInt(i32, i, false);
    LLVMValueRef at = LLVMBuildExtractElement(e->b, ix, k, "");
    at = LLVMBuildSExt(e->b, at, at_em_int(e, 64), "");
    r = LLVMBuildInsertElement(
        e->b, r, load_at(e, ptr, elem, elem, at, invariant), k, "");
  }
  return r;
}

// Lane by lane: AVX2 has no scatter.
static void scatter(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem, at_ix lin,
                    LLVMValueRef v) {
  LLVMTypeRef i32 = at_em_int(e, 32);
  LLVMValueRef ix = at_ix_vector(e, lin);
  for (uint32_t i = 0; i < e->lanes; i++) {
    LLVMValueRef k = LLVMConstInt(i32, i, false);
    LLVMValueRef at = LLVMBuildSExt(
        e->b, LLVMBuildExtractElement(e->b, ix, k, ""), at_em_int(e, 64), "");
    LLVMBuildStore(e->b, LLVMBuildExtractElement(e->b, v, k, ""),
                   address(e, ptr, elem, at));
  }
}

// One element for all lanes, or neighbours: both parts are in one load. Else a
// gather for each part.
static at_val load_complex(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem,
                           at_ix lin, bool invariant) {
  at_val v;
  if (at_ix_uniform(&lin)) {
    LLVMValueRef i = at_ix_value(e, at_ix_mulc(e, lin, 2));
    LLVMValueRef both =
        load_at(e, ptr, elem, LLVMVectorType(elem, 2), i, invariant);
    LLVMTypeRef i32 = at_em_int(e, 32);
    v.re = LLVMBuildExtractElement(e->b, both, LLVMConstInt(i32, 0, false), "");
    v.im = LLVMBuildExtractElement(e->b, both, LLVMConstInt(i32, 1, false), "");
    return at_em_splat_val(e, v);
  }
  if (lin.lane == 1 && !lin.vec && !lin.mask) {
    lin.lane = 0;
    LLVMValueRef i = at_ix_value(e, at_ix_mulc(e, lin, 2));
    LLVMValueRef both =
        load_at(e, ptr, elem, LLVMVectorType(elem, 2 * e->lanes), i, invariant);
    v.re = pick(e, both, e->lanes, 0, 2);
    v.im = pick(e, both, e->lanes, 1, 2);
    return v;
  }
  at_ix re = at_ix_mulc(e, lin, 2);
  v.re = gather(e, ptr, elem, re, invariant);
  v.im = gather(e, ptr, elem, at_ix_addc(re, 1), invariant);
  return v;
}

// Elements narrower than a register are widened by at_em_decode behind the
// load.
at_val at_em_load(at_em *e, LLVMValueRef ptr, at_dtype t, at_ix lin,
                  bool invariant) {
  LLVMTypeRef elem = at_em_storage_type(e, t);
  if (at_is_complex(t)) return load_complex(e, ptr, elem, lin, invariant);
  LLVMValueRef v;
  if (at_ix_uniform(&lin)) {
    uint32_t lanes = e->lanes;
    e->lanes = 1;
    v = load_at(e, ptr, elem, elem, at_ix_value(e, lin), invariant);
    v = at_em_decode(e, t, v);
    e->lanes = lanes;
    return (at_val){at_em_splat(e, v), NULL};
  }
  if (!lin.vec && !lin.mask && (lin.lane == 1 || lin.lane == -1)) {
    int64_t lane = lin.lane;
    if (lane < 0) lin = at_ix_addc(lin, -((int64_t)e->lanes - 1));
    lin.lane = 0;
    v = load_at(e, ptr, elem, at_em_widen(e, elem), at_ix_value(e, lin),
                invariant);
    if (lane < 0) v = pick(e, v, e->lanes, (int)e->lanes - 1, -1);
  } else {
    v = gather(e, ptr, elem, lin, invariant);
  }
  return (at_val){at_em_decode(e, t, v), NULL};
}

// Lanes that are no neighbours go one by one.
static void store_part(at_em *e, LLVMValueRef ptr, LLVMTypeRef elem, at_ix lin,
                       LLVMValueRef v) {
  if (e->lanes > 1 && (lin.vec || lin.lane != 1)) {
    scatter(e, ptr, elem, lin, v);
    return;
  }
  lin.lane = 0;
  LLVMValueRef s =
      LLVMBuildStore(e->b, v, address(e, ptr, elem, at_ix_value(e, lin)));
  LLVMSetAlignment(s, at_em_bits_of(elem) / 8);
}

// Neighbouring complex lanes are interleaved and stored as one vector.
void at_em_store(at_em *e, LLVMValueRef ptr, at_dtype t, at_ix lin, at_val v) {
  LLVMTypeRef elem = at_em_storage_type(e, t);
  if (!at_is_complex(t)) {
    LLVMValueRef stored = at_em_encode(e, t, v.re);
    AT_ASSERT(LLVMTypeOf(stored) == at_em_widen(e, elem));
    store_part(e, ptr, elem, lin, stored);
    return;
  }
  if (e->lanes > 1 && lin.lane == 1 && !lin.vec) {
    LLVMTypeRef i32 = at_em_int(e, 32);
    LLVMValueRef lane[2 * AT_EM_MAX_LANES];
    for (uint32_t i = 0; i < 2 * e->lanes; i++)
      lane[i] = LLVMConstInt(i32, i / 2 + (i & 1) * e->lanes, false);
    LLVMValueRef both = LLVMBuildShuffleVector(
        e->b, v.re, v.im, LLVMConstVector(lane, 2 * e->lanes), "");
    lin.lane = 0;
    LLVMValueRef s = LLVMBuildStore(
        e->b, both,
        address(e, ptr, elem, at_ix_value(e, at_ix_mulc(e, lin, 2))));
    LLVMSetAlignment(s, at_em_bits_of(elem) / 8);
    return;
  }
  at_ix re = at_ix_mulc(e, lin, 2);
  store_part(e, ptr, elem, re, v.re);
  store_part(e, ptr, elem, at_ix_addc(re, 1), v.im);
}
