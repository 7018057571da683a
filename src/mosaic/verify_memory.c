// Type rules of loads, stores, views and transfers.
#include "mosaic/verify_rules.h"

// A vector at one index per dimension of the ref: rank and sizes must fit,
// unless the kernel has no bounds checks.
static at_status box(at_mosaic_verifier *v, const at_mop *op, uint32_t ref,
                     uint32_t indices, const at_mtype *vec) {
  at_dims m = shape_of(arg(op, ref)), s = shape_of(vec);
  NEED(same_elem(arg(op, ref), vec),
       "base and value element type should match");
  NEED(indices == m.rank, "'%s' op requires %u indices", op->name, m.rank);
  NEED(s.rank <= m.rank, "'%s' op vector has more dimensions than the memref",
       op->name);
  for (uint32_t i = 0; i < s.rank; i++) {
    int64_t have = m.ptr[m.rank - s.rank + i];
    NEED(have == AT_MDYN || s.ptr[i] <= have ||
             v->k->config.disable_bounds_checks,
         "'%s' op box of %lld leaves a dimension of %lld", op->name,
         (long long)s.ptr[i], (long long)have);
  }
  return AT_OK;
}

at_status at_mosaic_rule_LOAD(at_mosaic_verifier *v, const at_mop *op) {
  return box(v, op, 0, op->num_operands - 1, res(op, 0));
}
at_status at_mosaic_rule_STORE(at_mosaic_verifier *v, const at_mop *op) {
  return box(v, op, 1, op->num_operands - 2, arg(op, 0));
}

// The attribute is there, and empty.
static at_status no_strides(at_mosaic_verifier *v, const at_mop *op) {
  at_dims d;
  AT_TRY(ints(v, op, "strides", &d));
  NEED(d.rank == 0,
       "Not implemented: general vector load and store with "
       "strides");
  return AT_OK;
}

// The mask's shape broadcasts to the value's.
static at_status mask_fits(at_mosaic_verifier *v, const at_mop *op, bool masked,
                           const at_mtype *value) {
  if (!masked) return AT_OK;
  const at_mtype *m = arg(op, op->num_operands - 1);
  at_dims ms = shape_of(m), vs = shape_of(value);
  bool fits = ms.rank == vs.rank;
  for (uint32_t i = 0; fits && i < ms.rank; i++)
    fits = ms.ptr[i] == vs.ptr[i] || ms.ptr[i] == 1;
  NEED(fits, "Expected valueToStore shape to be broadcastable from the mask's");
  return AT_OK;
}

// Segments: ref, indices, mask.
at_status at_mosaic_rule_TPU_LOAD(at_mosaic_verifier *v, const at_mop *op) {
  at_dims g = {0};
  NEED(at_mosaic_segments(op, v->scratch, &g) && g.rank == 3, "bad segments");
  AT_TRY(no_strides(v, op));
  AT_TRY(mask_fits(v, op, g.ptr[2] == 1, res(op, 0)));
  return box(v, op, 0, (uint32_t)g.ptr[1], res(op, 0));
}
// Segments: value, ref, indices, mask.
at_status at_mosaic_rule_TPU_STORE(at_mosaic_verifier *v, const at_mop *op) {
  at_dims g = {0};
  NEED(at_mosaic_segments(op, v->scratch, &g) && g.rank == 4, "bad segments");
  AT_TRY(no_strides(v, op));
  AT_TRY(mask_fits(v, op, g.ptr[3] == 1, arg(op, 0)));
  return box(v, op, 1, (uint32_t)g.ptr[2], arg(op, 0));
}

// Strides of at least `low`; the last element may not leave the ref whatever
// the start.
static at_status strided(at_mosaic_verifier *v, const at_mop *op, uint32_t ref,
                         uint32_t indices, const at_mtype *vec, int low) {
  at_dims t, m = shape_of(arg(op, ref)), s = shape_of(vec);
  AT_TRY(ints(v, op, "strides", &t));
  NEED(same_elem(arg(op, ref), vec),
       "base and value element type should match");
  NEED(indices == m.rank && t.rank == m.rank && s.rank == m.rank,
       "The number of strides, indices and dimensions must match");
  for (uint32_t i = 0; i < m.rank; i++) {
    NEED(t.ptr[i] >= low, "Strides[%u]=%lld must be >= %d", i,
         (long long)t.ptr[i], low);
    NEED(m.ptr[i] == AT_MDYN || (s.ptr[i] - 1) * t.ptr[i] < m.ptr[i],
         "'%s' op leaves dimension %u of the memref", op->name, i);
  }
  return AT_OK;
}
at_status at_mosaic_rule_STRIDED_LOAD(at_mosaic_verifier *v, const at_mop *op) {
  return strided(v, op, 0, op->num_operands - 1, res(op, 0), 0);
}
at_status at_mosaic_rule_STRIDED_STORE(at_mosaic_verifier *v,
                                       const at_mop *op) {
  return strided(v, op, 1, op->num_operands - 2, arg(op, 0), 1);
}

// One index vector of the value's shape per dimension.
static at_status indexed(at_mosaic_verifier *v, const at_mop *op, uint32_t ref,
                         int64_t indices, const at_mtype *value) {
  at_dims m = shape_of(arg(op, ref));
  NEED(indices == m.rank,
       "Expected one index vector for each dimension of the base memref with "
       "dimension: %u. Got: %lld.",
       m.rank, (long long)indices);
  NEED(same_elem(arg(op, ref), value),
       "Expected base and value element type to match");
  for (uint32_t i = 0; i < indices; i++)
    NEED(same_shape(arg(op, ref + 1 + i), value),
         "Expected value and indices shapes to match");
  return AT_OK;
}
// A gather: one index vector per dimension of the ref.
at_status at_mosaic_rule_LOAD_IDX(at_mosaic_verifier *v, const at_mop *op) {
  at_dims g = {0};
  NEED(at_mosaic_segments(op, v->scratch, &g) && g.rank == 3, "bad segments");
  AT_TRY(mask_fits(v, op, g.ptr[2] == 1, res(op, 0)));
  return indexed(v, op, 0, g.ptr[1], res(op, 0));
}
// A scatter, in the same form.
at_status at_mosaic_rule_STORE_IDX(at_mosaic_verifier *v, const at_mop *op) {
  at_dims g = {0};
  NEED(at_mosaic_segments(op, v->scratch, &g) && g.rank == 4, "bad segments");
  AT_TRY(mask_fits(v, op, g.ptr[3] == 1, arg(op, 0)));
  return indexed(v, op, 1, g.ptr[2], arg(op, 0));
}

at_status at_mosaic_rule_SCALAR_LOAD(at_mosaic_verifier *v, const at_mop *op) {
  NEED(at_mtype_eq(elem_of(arg(op, 0)), res(op, 0)) &&
           op->num_operands - 1 == shape_of(arg(op, 0)).rank,
       "'memref.load' op does not fit its memref");
  return AT_OK;
}
at_status at_mosaic_rule_SCALAR_STORE(at_mosaic_verifier *v, const at_mop *op) {
  NEED(at_mtype_eq(elem_of(arg(op, 1)), arg(op, 0)) &&
           op->num_operands - 2 == shape_of(arg(op, 1)).rank,
       "'memref.store' op does not fit its memref");
  return AT_OK;
}
// Dynamic sizes pass here; the writer refuses them.
at_status at_mosaic_rule_ALLOCA(at_mosaic_verifier *v, const at_mop *op) {
  uint32_t dynamic = 0;
  at_dims s = shape_of(res(op, 0));
  for (uint32_t i = 0; i < s.rank; i++) dynamic += s.ptr[i] == AT_MDYN;
  NEED(dynamic == op->num_operands,
       "'memref.alloca' op needs one size per dynamic dimension");
  return AT_OK;
}

// ---- Views
// One index per dimension; a static size may not exceed the ref's.
at_status at_mosaic_rule_REF_SLICE(at_mosaic_verifier *v, const at_mop *op) {
  at_dims g = {0}, m = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  NEED(at_mosaic_segments(op, v->scratch, &g) && g.rank == 3, "bad segments");
  NEED(g.ptr[1] == m.rank && r.rank == m.rank &&
           same_elem(arg(op, 0), res(op, 0)),
       "Memory slices must have one index per dimension and keep the rank");
  uint32_t dynamic = 0;
  for (uint32_t i = 0; i < r.rank; i++) {
    dynamic += r.ptr[i] == AT_MDYN;
    NEED(r.ptr[i] == AT_MDYN || m.ptr[i] == AT_MDYN ||
             (r.ptr[i] >= 0 && r.ptr[i] <= m.ptr[i]),
         "slice of %lld leaves dimension %u of %lld", (long long)r.ptr[i], i,
         (long long)m.ptr[i]);
  }
  NEED(dynamic == g.ptr[2],
       "Number of dynamic dimensions in result must match number of dynamic "
       "sizes");
  return AT_OK;
}

// The last dimension is divided among the subcores, in equal parts.
at_status at_mosaic_rule_REF_STRIPE(at_mosaic_verifier *v, const at_mop *op) {
  at_mosaic_ref from, to;
  AT_TRY(at_mosaic_ref_of(arg(op, 0), &from));
  AT_TRY(at_mosaic_ref_of(res(op, 0), &to));
  NEED(from.space == AT_MSPACE_VMEM_SHARED && to.space == AT_MSPACE_VMEM,
       "'%s' op takes memory in vmem_shared and gives some in vmem", op->name);
  at_dims m = from.shape, r = to.shape;
  bool fits = same_elem(arg(op, 0), res(op, 0)) && m.rank == r.rank && m.rank;
  for (uint32_t i = 0; fits && i + 1 < m.rank; i++) fits = m.ptr[i] == r.ptr[i];
  fits = fits && r.ptr[m.rank - 1] > 0 && m.ptr[m.rank - 1] > 0 &&
         m.ptr[m.rank - 1] % r.ptr[m.rank - 1] == 0;
  NEED(fits, "'%s' op divides the last dimension, and no other", op->name);
  return AT_OK;
}

// Dimensions of the result in the order of the source, without some of size 1.
at_status at_mosaic_rule_REF_SQUEEZE(at_mosaic_verifier *v, const at_mop *op) {
  at_dims m = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  NEED(same_elem(arg(op, 0), res(op, 0)), "Element types don't match.");
  uint32_t n = 0;
  for (uint32_t i = 0; i < m.rank; i++) {
    // Greedy from the front: a kept dimension of 1 may stand for any of
    // several.
    if (n < r.rank && r.ptr[n] == m.ptr[i]) {
      n++;
    } else {
      NEED(m.ptr[i] == 1, "Shape mismatch: only dimensions of size 1 go");
    }
  }
  NEED(n == r.rank, "Shape mismatch: only dimensions of size 1 go");
  return AT_OK;
}

// As many elements, where both counts are known.
at_status at_mosaic_rule_REF_RESHAPE(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_elem(arg(op, 0), res(op, 0)), "Element types don't match.");
  int64_t a = at_mosaic_elements(shape_of(arg(op, 0))),
          r = at_mosaic_elements(shape_of(res(op, 0)));
  NEED(
      a == r || a < 0 || r < 0,
      "Number of elements doesn't match between input and output memref type.");
  return AT_OK;
}

// The second-last dimension takes the ratio of widths, as registers pack along
// sublanes.
at_status at_mosaic_rule_REF_BITCAST(at_mosaic_verifier *v, const at_mop *op) {
  at_dims m = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  uint32_t p = bits_of(arg(op, 0)), q = bits_of(res(op, 0));
  NEED(m.rank == r.rank, "Ranks do not match.");
  NEED(p && q, "semaphores have no bits");
  if (p != q) NEED(m.rank >= 2, "Bitcast between sizes needs rank 2 or more");
  for (uint32_t i = 0; i < m.rank; i++) {
    bool dyn = m.ptr[i] == AT_MDYN || r.ptr[i] == AT_MDYN;
    if (p != q && i + 2 == m.rank)
      NEED(dyn || m.ptr[i] * p == r.ptr[i] * q,
           "Expected the 2nd minor dim to take the ratio of bitwidths");
    else
      NEED(dyn || m.ptr[i] == r.ptr[i], "Expected the same dim size on dim %u",
           i);
  }
  return AT_OK;
}

// The result must not take more bits than its source; semaphores count as
// words.
at_status at_mosaic_rule_REF_CAST(at_mosaic_verifier *v, const at_mop *op) {
  at_mosaic_ref a, r;
  AT_TRY(at_mosaic_ref_of(arg(op, 0), &a));
  AT_TRY(at_mosaic_ref_of(res(op, 0), &r));
  NEED(a.space == r.space, "'%s' op changes the memory space", op->name);
  int64_t n = at_mosaic_elements(a.shape), m = at_mosaic_elements(r.shape);
  uint32_t p = a.dtype ? bits_of(a.type) : 32,
           q = r.dtype ? bits_of(r.type) : 32;
  int64_t have, want;
  NEED(n < 0 || m < 0 ||
           (!__builtin_mul_overflow(n, p, &have) &&
            !__builtin_mul_overflow(m, q, &want) && want <= have),
       "'%s' op result is larger than its source", op->name);
  return AT_OK;
}

at_status at_mosaic_rule_DMA(at_mosaic_verifier *v, const at_mop *op) {
  return AT_OK;
}

// Offsets are 32-bit row numbers.
at_status at_mosaic_rule_INDIRECT_DMA(at_mosaic_verifier *v, const at_mop *op) {
  const at_mtype *o = arg(op, 2);
  NEED((o->kind == AT_MTYPE_VECTOR || o->kind == AT_MTYPE_MEMREF) &&
           at_mosaic_dtype_of(o) == AT_S32,
       "offsets must be a memref or a vector of i32");
  NEED(same_elem(arg(op, 0), arg(op, 1)),
       "Source and target element type mismatch");
  return AT_OK;
}
