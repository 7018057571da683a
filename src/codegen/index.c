// Index arithmetic: constants, lanes and bounds are known here, so that most of
// it folds away before LLVM sees it.
#include "base/cpu.h"
#include "codegen/window.h"

#include <llvm-c/Core.h>

at_ix at_ix_const(int64_t c) { return (at_ix){.c = c, .lo = c, .hi = c}; }
// A constant base becomes c, so that it folds.
at_ix at_ix_of(LLVMValueRef base, int64_t lo, int64_t hi, int64_t mult) {
  if (LLVMIsConstant(base)) return at_ix_const(LLVMConstIntGetSExtValue(base));
  return (at_ix){.base = base, .lo = lo, .hi = hi, .mult = mult > 0 ? mult : 1};
}
// Without a vector there is nothing to add.
at_ix at_ix_lanes(at_em *e, at_ix a) {
  if (e->lanes == 1) return a;
  a.lane += 1;
  a.hi += e->lanes - 1;
  return a;
}
// A vec may hold equal lanes, which is not looked for.
bool at_ix_uniform(const at_ix *a) {
  return !a->vec && !a->mask && a->lane == 0;
}

// Remembered binary operations on i64 scalars or index lanes.
static LLVMValueRef op2(at_em *e, LLVMOpcode op, LLVMValueRef a,
                        LLVMValueRef b) {
  at_val *known = at_em_memo_find(e, a, (uint64_t)op << 8 | 1, b);
  if (known) return known->re;
  LLVMValueRef r = LLVMBuildBinOp(e->b, op, a, b, "");
  if (LLVMIsAInstruction(r) && (op == LLVMAdd || op == LLVMMul))
    LLVMSetNSW(r, 1);
  at_em_memo_put(e, a, (uint64_t)op << 8 | 1, b, (at_val){r, NULL});
  return r;
}

// 32 bits where every index of the kernel fits.
static LLVMTypeRef lane_type(at_em *e) {
  return at_em_int(e, e->wide_index ? 64 : 32);
}
static LLVMTypeRef lanes_type(at_em *e) { return at_em_widen(e, lane_type(e)); }

// |a|, or for INT64_MIN, whose magnitude has no int64, a divisor of it.
static int64_t magnitude(int64_t a) {
  return a == INT64_MIN ? INT64_C(1) << 62 : a < 0 ? -a : a;
}

// Of what two indices are multiples of; 0 is a multiple of all.
static int64_t gcd(int64_t a, int64_t b) {
  a = magnitude(a), b = magnitude(b);
  while (b) {
    int64_t t = a % b;
    a = b;
    b = t;
  }
  return a;
}
static int64_t mult_of(const at_ix *a) { return a->base ? a->mult : 0; }

// Hostile attributes may overflow; what they index is never reached.
static int64_t wrap_add(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}
static int64_t wrap_mul(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}

static int64_t sat_add(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_add_overflow(a, b, &r) ? (a < 0 ? INT64_MIN : INT64_MAX) : r;
}
// Bounds at the ends mean "unknown".
static int64_t sat_mul(int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r)
             ? ((a < 0) != (b < 0) ? INT64_MIN : INT64_MAX)
             : r;
}

// c is free: it goes into constants at the use.
at_ix at_ix_addc(at_ix a, int64_t c) {
  a.c = wrap_add(a.c, c);
  a.lo = sat_add(a.lo, c);
  a.hi = sat_add(a.hi, c);
  return a;
}

// Parts add up one by one: base with base, vec with vec.
at_ix at_ix_add(at_em *e, at_ix a, at_ix b) {
  at_ix r = {.c = wrap_add(a.c, b.c),
             .lane = wrap_add(a.lane, b.lane),
             .mult = gcd(mult_of(&a), mult_of(&b)),
             .lo = sat_add(a.lo, b.lo),
             .hi = sat_add(a.hi, b.hi)};
  r.base = !a.base   ? b.base
           : !b.base ? a.base
                     : op2(e, LLVMAdd, a.base, b.base);
  r.vec = !a.vec ? b.vec : !b.vec ? a.vec : op2(e, LLVMAdd, a.vec, b.vec);
  r.mask = !a.mask   ? b.mask
           : !b.mask ? a.mask
                     : op2(e, LLVMAnd, a.mask, b.mask);
  return at_ix_settle(e, r);
}

// The bounds swap for a negative k.
at_ix at_ix_mulc(at_em *e, at_ix a, int64_t k) {
  if (k == 1) return a;
  if (k == 0) return at_ix_const(0);
  int64_t x = sat_mul(a.lo, k), y = sat_mul(a.hi, k);
  a.c = wrap_mul(a.c, k);
  a.lane = wrap_mul(a.lane, k);
  a.mult = sat_mul(a.mult, magnitude(k));
  a.lo = AT_MIN(x, y);
  a.hi = AT_MAX(x, y);
  if (a.base) a.base = op2(e, LLVMMul, a.base, at_em_i64(e, k));
  if (a.vec) a.vec = op2(e, LLVMMul, a.vec, at_em_ci(e, lanes_type(e), k));
  return a;
}

// base + c: what lane 0 has, where there is no vec.
LLVMValueRef at_ix_value(at_em *e, at_ix a) {
  LLVMValueRef c = at_em_i64(e, a.c);
  if (!a.base) return c;
  return a.c ? op2(e, LLVMAdd, a.base, c) : a.base;
}

// Lanes that are not used are where the lowest may be.
static LLVMValueRef masked_vector(at_em *e, at_ix a) {
  LLVMValueRef mask = a.mask;
  a.mask = NULL;
  LLVMValueRef low = at_em_ci(e, lanes_type(e), a.lo);
  return LLVMBuildSelect(e->b, mask, at_ix_vector(e, a), low, "");
}

// Splat of the base, plus constants c + lane * i, plus vec. Splats of one base
// are remembered.
LLVMValueRef at_ix_vector(at_em *e, at_ix a) {
  if (a.mask) return masked_vector(e, a);
  LLVMTypeRef lt = lane_type(e);
  LLVMValueRef steps[AT_EM_MAX_LANES], r;
  if (e->lanes == 1) {
    LLVMValueRef s = at_ix_value(e, a);
    s = e->wide_index ? s : LLVMBuildTrunc(e->b, s, lt, "");
    return a.vec ? LLVMBuildAdd(e->b, s, a.vec, "") : s;
  }
  for (uint32_t i = 0; i < e->lanes; i++)
    steps[i] = LLVMConstInt(lt, (unsigned long long)(a.c + a.lane * i), true);
  r = LLVMConstVector(steps, e->lanes);
  if (a.vec) r = LLVMIsNull(r) ? a.vec : op2(e, LLVMAdd, a.vec, r);
  if (a.base) {
    at_val *known = at_em_memo_find(e, a.base, 2 + e->lanes, lt);
    LLVMValueRef base;
    if (known) {
      base = known->re;
    } else {
      base = e->wide_index ? a.base : LLVMBuildTrunc(e->b, a.base, lt, "");
      base = at_em_splat(e, base);
      at_em_memo_put(e, a.base, 2 + e->lanes, lt, (at_val){base, NULL});
    }
    r = LLVMIsNull(r) ? base : op2(e, LLVMAdd, base, r);
  }
  return r;
}

// Lanes that are data, in [lo, hi].
static at_ix of_vector(LLVMValueRef v, int64_t lo, int64_t hi) {
  return (at_ix){.vec = v, .lo = lo, .hi = hi};
}

// The same for lanes at known places behind a base that k divides; false: they
// are not.
static bool divide_known(at_em *e, at_ix a, int64_t k, at_ix *q, at_ix *r) {
  int64_t at[AT_EM_MAX_LANES], quot[AT_EM_MAX_LANES], rest[AT_EM_MAX_LANES];
  if (mult_of(&a) % k || e->lanes == 1 || !at_ix_offsets(e, &a, at))
    return false;
  at_ix low = {.lo = k - 1}, high = {0};  // bounds of the remainder
  for (uint32_t i = 0; i < e->lanes; i++) {
    if (a.c < 0 || a.c + at[i] < 0) return false;
    quot[i] = (a.c + at[i]) / k;
    rest[i] = (a.c + at[i]) % k;
    low.lo = AT_MIN(low.lo, rest[i]);
    high.hi = AT_MAX(high.hi, rest[i]);
  }
  *r = (at_ix){.vec = at_ix_const_lanes(e, rest), .lo = low.lo, .hi = high.hi};
  *q = (at_ix){.vec = at_ix_const_lanes(e, quot),
               .lo = a.lo > 0 ? a.lo / k : 0,
               .hi = a.hi > 0 ? a.hi / k : 0};
  if (a.base) {
    // Counting down from c, the base itself is negative.
    LLVMOpcode op = a.lo < a.c ? LLVMSDiv : LLVMUDiv;
    q->base = op2(e, op, a.base, at_em_i64(e, k));
    q->mult = a.mult / k;
  }
  *q = at_ix_settle(e, *q);
  *r = at_ix_settle(e, *r);
  return true;
}

// a = q * k + r with 0 <= r < k; a >= 0.
static void divide(at_em *e, at_ix a, int64_t k, at_ix *q, at_ix *r) {
  if (a.lo >= 0 && a.hi < k) {
    *q = at_ix_const(0);
    *r = a;
    return;
  }
  int64_t qlo = a.lo > 0 ? a.lo / k : 0, qhi = a.hi > 0 ? a.hi / k : 0;
  int64_t rhi = AT_MIN(k - 1, AT_MAX(a.hi, 0));
  if (!a.base && at_ix_uniform(&a)) {
    *q = at_ix_const(a.c / k);
    *r = at_ix_const(a.c % k);
    return;
  }
  if (a.vec && divide_known(e, a, k, q, r)) return;
  if (a.vec || a.mask) {
    LLVMValueRef v = at_ix_vector(e, a), kv = at_em_ci(e, lanes_type(e), k);
    *q = of_vector(op2(e, LLVMUDiv, v, kv), qlo, qhi);
    *r = of_vector(op2(e, LLVMURem, v, kv), 0, rhi);
    return;
  }
  if (mult_of(&a) % k == 0 && a.c >= 0) {
    // base divides: only the constant part has digits below k.
    at_ix base = a, low = {.c = a.c,
                           .lane = a.lane,
                           .lo = a.c,
                           .hi = a.c + a.lane * (e->lanes - 1)};
    if (a.lane >= 0 && low.hi / k == low.lo / k) {
      base.c = a.c / k * k;
      base.lane = 0;
      if (base.base) {
        // Counting down from c, the base itself is negative.
        LLVMOpcode op = a.lo < a.c ? LLVMSDiv : LLVMUDiv;
        *q =
            at_ix_of(op2(e, op, a.base, at_em_i64(e, k)), qlo, qhi, a.mult / k);
        *q = at_ix_addc(*q, a.c / k);
        q->lo = qlo;
        q->hi = qhi;
      } else {
        *q = at_ix_const(a.c / k);
      }
      *r = at_ix_addc(low, -(a.c / k * k));
      return;
    }
  }
  if (a.lane && divide_known(e, a, k, q, r)) return;
  if (a.lane == 0) {
    LLVMValueRef v = at_ix_value(e, a), kv = at_em_i64(e, k);
    *q = at_ix_of(op2(e, LLVMUDiv, v, kv), qlo, qhi, 1);
    *r = at_ix_of(op2(e, LLVMURem, v, kv), 0, rhi, 1);
    return;
  }
  // Lanes that cannot cross a multiple of k: the first lane's digits serve all.
  int64_t width = a.lane * (int64_t)e->lanes;
  int64_t m = gcd(mult_of(&a), a.c);
  if (a.lane > 0 && m > 0 && m % width == 0 && k % width == 0) {
    at_ix first = a;
    first.lane = 0;
    first.hi = a.hi - a.lane * ((int64_t)e->lanes - 1);
    divide(e, first, k, q, r);
    r->lane = a.lane;
    r->hi = k - 1;
    return;
  }
  LLVMValueRef v = at_ix_vector(e, a), kv = at_em_ci(e, lanes_type(e), k);
  *q = of_vector(op2(e, LLVMUDiv, v, kv), qlo, qhi);
  *r = of_vector(op2(e, LLVMURem, v, kv), 0, rhi);
}

at_ix at_ix_divc(at_em *e, at_ix a, int64_t k) {
  at_ix q, r;
  AT_ASSERT(k > 0);
  if (k == 1) return a;
  divide(e, a, k, &q, &r);
  return q;
}
at_ix at_ix_modc(at_em *e, at_ix a, int64_t k) {
  at_ix q, r;
  AT_ASSERT(k > 0);
  if (k == 1) return at_ix_const(0);
  divide(e, a, k, &q, &r);
  return r;
}

static LLVMValueRef minmax(at_em *e, const char *name, LLVMValueRef a,
                           LLVMValueRef b) {
  LLVMValueRef args[2] = {a, b};
  return at_math_intrinsic(&e->math, name, args, 2);
}

// Lanes known now are clamped now.
at_ix at_ix_clamp(at_em *e, at_ix a, int64_t lo, int64_t hi) {
  AT_ASSERT(lo <= hi);
  if (a.lo >= lo && a.hi <= hi) return a;
  int64_t at[AT_EM_MAX_LANES];
  if (!a.base && e->lanes > 1 && at_ix_offsets(e, &a, at)) {
    at_ix r = {.lo = hi, .hi = lo};
    for (uint32_t i = 0; i < e->lanes; i++) {
      at[i] = AT_MIN(AT_MAX(a.c + at[i], lo), hi);
      r.lo = AT_MIN(r.lo, at[i]);
      r.hi = AT_MAX(r.hi, at[i]);
    }
    r.vec = at_ix_const_lanes(e, at);
    return at_ix_settle(e, r);
  }
  int64_t rlo = AT_MIN(AT_MAX(a.lo, lo), hi),
          rhi = AT_MAX(AT_MIN(a.hi, hi), lo);
  if (at_ix_uniform(&a)) {
    if (!a.base) return at_ix_const(AT_MIN(AT_MAX(a.c, lo), hi));
    LLVMValueRef v = at_ix_value(e, a);
    if (a.lo < lo) v = minmax(e, "llvm.smax", v, at_em_i64(e, lo));
    if (a.hi > hi) v = minmax(e, "llvm.smin", v, at_em_i64(e, hi));
    return at_ix_of(v, rlo, rhi, 1);
  }
  LLVMValueRef v = at_ix_vector(e, a);
  LLVMTypeRef t = lanes_type(e);
  if (a.lo < lo) v = minmax(e, "llvm.smax", v, at_em_ci(e, t, lo));
  if (a.hi > hi) v = minmax(e, "llvm.smin", v, at_em_ci(e, t, hi));
  return of_vector(v, rlo, rhi);
}

// A mask keeps a row of lanes contiguous in memory, where clamping would make
// its lanes a gather.
at_ix at_ix_among(at_em *e, at_ix a, int64_t lo, int64_t hi) {
  if (a.lo >= lo && a.hi <= hi) return a;
  bool row = e->lanes > 1 && !a.vec && !a.mask && a.lane >= 1 &&
             a.lane <= AT_WINDOW_VECTORS;
  // Without AVX-512 a load of some lanes is a branch for each.
  if (!row || !(e->cpu & AT_CPU_AVX512)) return at_ix_clamp(e, a, lo, hi);
  a.mask = at_ix_within(e, a, lo, hi + 1);
  a.lo = AT_MIN(AT_MAX(a.lo, lo), hi);
  a.hi = AT_MAX(AT_MIN(a.hi, hi), lo);
  return a;
}

// Only the bound that may be broken is compared.
LLVMValueRef at_ix_within(at_em *e, at_ix a, int64_t lo, int64_t hi) {
  if (a.lo >= lo && a.hi < hi) return NULL;
  LLVMValueRef r = NULL, v;
  LLVMTypeRef t;
  if (at_ix_uniform(&a)) {
    v = at_ix_value(e, a);
    t = at_em_int(e, 64);
  } else {
    v = at_ix_vector(e, a);
    t = lanes_type(e);
  }
  if (a.lo < lo) r = LLVMBuildICmp(e->b, LLVMIntSGE, v, at_em_ci(e, t, lo), "");
  if (a.hi >= hi) {
    LLVMValueRef h = LLVMBuildICmp(e->b, LLVMIntSLT, v, at_em_ci(e, t, hi), "");
    r = r ? LLVMBuildAnd(e->b, r, h, "") : h;
  }
  if (at_ix_uniform(&a)) r = at_em_splat(e, r);
  return r;
}

// Clamped to [lo, hi] before it is narrowed to an index lane, so that no large
// value wraps into the range. Unsigned 64-bit values beyond INT64_MAX saturate.
at_ix at_ix_from(at_em *e, at_dtype t, at_val v, int64_t lo, int64_t hi) {
  bool sign = at_is_signed_int(t);
  uint32_t bits = 8 * at_dtype_bytes(t);
  LLVMTypeRef i64 = at_em_widen(e, at_em_int(e, 64));
  if (e->lanes == 1) {
    LLVMValueRef s = bits == 64 ? v.re
                     : sign     ? LLVMBuildSExt(e->b, v.re, i64, "")
                                : LLVMBuildZExt(e->b, v.re, i64, "");
    if (!sign && bits == 64)  // beyond i63 saturates
      s = minmax(e, "llvm.umin", s, at_em_ci(e, i64, INT64_MAX));
    at_ix r = at_ix_of(s, sign ? INT64_MIN : 0, INT64_MAX, 1);
    return at_ix_clamp(e, r, lo, hi);
  }
  // Clamp in the element's own type when it is wider than index lanes.
  LLVMTypeRef lt = lanes_type(e);
  LLVMValueRef s = v.re;
  uint32_t lane_bits = e->wide_index ? 64 : 32;
  if (bits < lane_bits || (!sign && bits == 32 && lane_bits == 32)) {
    if (bits == 32) {
      s = minmax(e, "llvm.umin", s, at_em_ci(e, lt, INT32_MAX));
    } else {
      s = sign ? LLVMBuildSExt(e->b, s, lt, "")
               : LLVMBuildZExt(e->b, s, lt, "");
    }
  } else if (bits > lane_bits) {
    LLVMTypeRef wide = LLVMTypeOf(s);
    if (sign)
      s = minmax(e, "llvm.smax", s, at_em_ci(e, wide, AT_MAX(lo, INT32_MIN)));
    s = minmax(e, sign ? "llvm.smin" : "llvm.umin", s,
               at_em_ci(e, wide, AT_MIN(hi, INT32_MAX)));
    s = LLVMBuildTrunc(e->b, s, lt, "");
  } else if (!sign && bits == 64) {
    s = minmax(e, "llvm.umin", s, at_em_ci(e, lt, INT64_MAX));
  }
  at_ix r = of_vector(s, INT64_MIN, INT64_MAX);
  return at_ix_clamp(e, r, lo, hi);
}

// A uniform index is converted once and spread.
at_val at_ix_to(at_em *e, at_dtype t, at_ix a) {
  at_val v;
  if (at_ix_uniform(&a)) {
    uint32_t lanes = e->lanes;
    e->lanes = 1;
    v = at_em_convert(e, AT_S64, t, (at_val){at_ix_value(e, a), NULL});
    e->lanes = lanes;
    return at_em_splat_val(e, v);
  }
  v.re = at_ix_vector(e, a);
  v.im = NULL;
  return at_em_convert(e, e->wide_index ? AT_S64 : AT_S32, t, v);
}

// ---- positions
const at_pos *at_pos_make(at_em *e, bool lanes, uint32_t n,
                          const int64_t *extent, const at_ix *ix) {
  at_pos tmp = {.lanes = lanes};
  int64_t *x = at_new(e->arena, int64_t, n + 1);
  at_ix *d = at_new(e->arena, at_ix, n + 1);
  at_pos *p = at_new(e->arena, at_pos, 1);
  if (!x || !d || !p) {
    static const at_pos nowhere;
    at_em_fail(e, AT_NO_MEMORY("codegen positions"));
    return &nowhere;
  }
  for (uint32_t i = 0; i < n; i++) {
    if (extent[i] == 1) continue;
    x[tmp.n] = extent[i];
    d[tmp.n++] = ix[i];
  }
  uint64_t h = at_hash(AT_HASH_SEED, x, tmp.n * sizeof *x);
  h = at_hash(h, d, tmp.n * sizeof *d) ^ (uint64_t)lanes;
  // Chained by hash through the memo, which forgets with the scope.
  at_val *known = at_em_memo_find(e, &e->memo, h, NULL);
  if (known) {
    const at_pos *q = (const at_pos *)known->re;
    if (q->n == tmp.n && q->lanes == lanes &&
        !memcmp(q->extent, x, tmp.n * sizeof *x) &&
        !memcmp(q->ix, d, tmp.n * sizeof *d))
      return q;
  }
  *p = (at_pos){.n = tmp.n, .lanes = lanes, .extent = x, .ix = d};
  at_em_memo_put(e, &e->memo, h, NULL, (at_val){(LLVMValueRef)p, NULL});
  return p;
}

// Of bodies (`lanes`), never: they have no digits, but their parameters differ
// by lane.
bool at_pos_uniform(const at_pos *p) {
  if (p->lanes) return false;
  for (uint32_t i = 0; i < p->n; i++)
    if (!at_ix_uniform(&p->ix[i])) return false;
  return true;
}

// Digits [from, to) as one index.
static at_ix merge(at_em *e, const at_pos *p, uint32_t from, uint32_t to) {
  at_ix r = at_ix_const(0);
  int64_t stride = 1;
  for (uint32_t i = to; i-- > from;) {
    r = at_ix_add(e, at_ix_mulc(e, p->ix[i], stride), r);
    stride *= p->extent[i];
  }
  return r;
}

at_ix at_pos_linear(at_em *e, const at_pos *p) { return merge(e, p, 0, p->n); }

// Digits that match on both sides pass as they are; a run that does not is
// merged to one index and taken apart by division. INTERNAL: the products
// differ.
const at_pos *at_pos_regroup(at_em *e, const at_pos *p, uint32_t n,
                             const int64_t *extent, at_ix *out) {
  bool empty = false;
  for (uint32_t k = 0; k < n; k++) empty = empty || extent[k] == 0;
  if (empty) {  // products are all zero: they say nothing, and no code runs
                // here
    for (uint32_t k = 0; k < n; k++) out[k] = at_ix_const(0);
    return p;
  }
  // Walk both lists from the minor end; cut where their products agree.
  uint32_t i = p->n, j = n;
  while (j > 0) {
    if (extent[j - 1] == 1) {
      out[--j] = at_ix_const(0);
      continue;
    }
    uint32_t i1 = i, j1 = j;
    int64_t x = 1, y = 1;
    do {
      if (x <= y && i > 0)
        x *= p->extent[--i];
      else if (j > 0)
        y *= extent[--j];
      else
        break;
    } while (x != y);
    if (x != y) {
      at_em_fail(e, AT_FAIL(AT_INTERNAL, "index digits do not agree"));
      for (j = 0; j < n; j++) out[j] = at_ix_const(0);
      return p;
    }
    if (i1 - i == 1 && j1 - j == 1) {
      out[j] = p->ix[i];
      continue;
    }
    at_ix all = merge(e, p, i, i1);
    for (uint32_t k = j1; k-- > j;) {
      if (k == j) {
        out[k] = all;
      } else {
        at_ix q = at_ix_divc(e, all, extent[k]);
        out[k] = at_ix_modc(e, all, extent[k]);
        all = q;
      }
    }
    // The most significant digit of a run has no division that bounds it.
    if (extent[j] > 0 && out[j].hi >= extent[j]) out[j].hi = extent[j] - 1;
  }
  return p;
}
