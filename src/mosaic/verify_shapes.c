// Type rules of what moves elements, and of reductions: one function for each
// operation that names its rule in ops.def (at_mosaic_rule_X), run by verify.c
// on every operation of the kernel. What MLIR's own verifier says is said in
// its words; NEED gives the first law that is broken. Rules here hold for any
// chip; what a certain chip cannot do is room tpu's.
#include "mosaic/verify_rules.h"

// As many elements of the same type.
at_status at_mosaic_rule_RESHAPE(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_elem(arg(op, 0), res(op, 0)) &&
           at_mosaic_elements(shape_of(arg(op, 0))) ==
               at_mosaic_elements(shape_of(res(op, 0))),
       "'%s' op source and result must have the same elements", op->name);
  return AT_OK;
}

// Right-aligned, as in vector.broadcast: dimensions of 1 are repeated, leading
// ones may be missing.
at_status at_mosaic_rule_BROADCAST(at_mosaic_verifier *v, const at_mop *op) {
  at_dims a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  NEED(same_elem(arg(op, 0), res(op, 0)) && a.rank <= r.rank,
       "'vector.broadcast' op source rank higher than destination rank");
  for (uint32_t i = 0; i < a.rank; i++) {
    int64_t x = a.ptr[i], y = r.ptr[r.rank - a.rank + i];
    NEED(x == 1 || x == y,
         "'vector.broadcast' op dimension mismatch (%lld vs. %lld)",
         (long long)x, (long long)y);
  }
  return AT_OK;
}

// A permutation of the source's dimensions that gives the result's sizes.
at_status at_mosaic_rule_TRANSPOSE(at_mosaic_verifier *v, const at_mop *op) {
  at_dims p, a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  AT_TRY(ints(v, op, "permutation", &p));
  NEED(
      same_elem(arg(op, 0), res(op, 0)) && p.rank == a.rank && a.rank == r.rank,
      "'%s' op permutation length does not match the ranks", op->name);
  uint32_t seen = 0;
  for (uint32_t i = 0; i < p.rank; i++) {
    NEED(p.ptr[i] >= 0 && p.ptr[i] < p.rank && !(seen >> p.ptr[i] & 1) &&
             r.ptr[i] == a.ptr[p.ptr[i]],
         "'%s' op is not a permutation of the source's dimensions", op->name);
    seen |= 1u << p.ptr[i];
  }
  return AT_OK;
}

// Of leading dimensions offsets and sizes may be given alone; strides
// are 1.
at_status at_mosaic_rule_SLICE(at_mosaic_verifier *v, const at_mop *op) {
  at_dims o, s, t, a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  AT_TRY(ints(v, op, "offsets", &o));
  AT_TRY(ints(v, op, "sizes", &s));
  AT_TRY(ints(v, op, "strides", &t));
  NEED(o.rank == s.rank && s.rank == t.rank && o.rank <= a.rank &&
           a.rank == r.rank && same_elem(arg(op, 0), res(op, 0)),
       "'%s' op offsets, sizes, strides and result do not fit", op->name);
  for (uint32_t i = 0; i < a.rank; i++) {
    int64_t from = i < o.rank ? o.ptr[i] : 0;
    int64_t size = i < o.rank ? s.ptr[i] : a.ptr[i];
    NEED((i >= o.rank || t.ptr[i] == 1) && from >= 0 && size == r.ptr[i] &&
             from <= a.ptr[i] - size,
         "'%s' op leaves dimension %u of its source", op->name, i);
  }
  return AT_OK;
}

// Positions in leading dimensions; a dynamic one is INT64_MIN in the attribute.
static at_status positions(at_mosaic_verifier *v, const at_mop *op,
                           uint32_t fixed, at_dims whole,
                           const at_mtype *part) {
  at_dims p = {0};
  at_mosaic_attr_ints(at_mop_attr(op, "static_position"), v->scratch, &p);
  uint32_t dynamic = 0;
  for (uint32_t i = 0; i < p.rank; i++) dynamic += p.ptr[i] == AT_MDYN;
  NEED(op->num_operands == fixed + dynamic && p.rank <= whole.rank,
       "'%s' op has a wrong number of positions", op->name);
  for (uint32_t i = 0; i < p.rank; i++)
    NEED(p.ptr[i] == AT_MDYN || (p.ptr[i] >= 0 && p.ptr[i] < whole.ptr[i]),
         "'%s' op position leaves dimension %u", op->name, i);
  at_dims rest = {whole.ptr + p.rank, whole.rank - p.rank};
  at_dims have = shape_of(part);
  NEED(at_dims_eq(rest, have) ||
           (at_mosaic_elements(rest) == 1 && at_mosaic_elements(have) == 1),
       "'%s' op part has another shape", op->name);
  return AT_OK;
}

at_status at_mosaic_rule_EXTRACT(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_elem(arg(op, 0), res(op, 0)), "'%s' op changes elements", op->name);
  return positions(v, op, 1, shape_of(arg(op, 0)), res(op, 0));
}

at_status at_mosaic_rule_INSERT(at_mosaic_verifier *v, const at_mop *op) {
  NEED(at_mtype_eq(arg(op, 1), res(op, 0)) && same_elem(arg(op, 0), res(op, 0)),
       "'%s' op changes elements", op->name);
  return positions(v, op, 2, shape_of(res(op, 0)), arg(op, 0));
}

// An attribute that names one of `rank` dimensions.
static at_status dimension(at_mosaic_verifier *v, const at_mop *op,
                           const char *name, uint32_t rank, int64_t *out) {
  NEED(at_mosaic_attr_int(op, name, out) && *out >= 0 && *out < rank,
       "'%s' op %s is not a dimension of rank %u", op->name, name, rank);
  return AT_OK;
}

// Equal but along `dimension`, where sizes add up.
at_status at_mosaic_rule_CONCATENATE(at_mosaic_verifier *v, const at_mop *op) {
  at_dims r = shape_of(res(op, 0));
  int64_t d, sum = 0;
  AT_TRY(dimension(v, op, "dimension", r.rank, &d));
  NEED(op->num_operands, "Expected at least one operand for concat");
  for (uint32_t i = 0; i < op->num_operands; i++) {
    at_dims a = shape_of(arg(op, i));
    NEED(a.rank == r.rank && same_elem(arg(op, i), res(op, 0)),
         "'tpu.concatenate' op operands must have the result's rank and "
         "elements");
    for (uint32_t k = 0; k < a.rank; k++)
      NEED(k == d || a.ptr[k] == r.ptr[k],
           "Not all operands have the same shape except the concat dimension");
    sum += a.ptr[d];
  }
  NEED(sum == r.ptr[d], "'tpu.concatenate' op sizes do not add up");
  return AT_OK;
}

// `times` copies along one dimension.
at_status at_mosaic_rule_REPEAT(at_mosaic_verifier *v, const at_mop *op) {
  at_dims a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  int64_t d, times = 0;
  AT_TRY(dimension(v, op, "dimension", r.rank, &d));
  at_mosaic_attr_int(op, "times", &times);
  NEED(a.rank == r.rank && times > 0 && times <= r.ptr[d] &&
           a.ptr[d] * times == r.ptr[d] && same_elem(arg(op, 0), res(op, 0)),
       "'tpu.repeat' op does not fit its result");
  for (uint32_t k = 0; k < a.rank; k++)
    NEED(k == d || a.ptr[k] == r.ptr[k],
         "'tpu.repeat' op does not fit its result");
  return AT_OK;
}

// stride and stride_dimension come together, along another dimension.
at_status at_mosaic_rule_ROTATE(at_mosaic_verifier *v, const at_mop *op) {
  uint32_t rank = shape_of(res(op, 0)).rank;
  int64_t d, s;
  NEED(at_mtype_eq(arg(op, 0), res(op, 0)), "'%s' op changes its type",
       op->name);
  AT_TRY(dimension(v, op, "dimension", rank, &d));
  bool stride = at_mop_attr(op, "stride") != NULL;
  NEED(stride == (at_mop_attr(op, "stride_dimension") != NULL),
       "Expected either none or both stride and stride_dimension are present");
  if (!stride) return AT_OK;
  AT_TRY(dimension(v, op, "stride_dimension", rank, &s));
  NEED(s != d, "Expected dimension and stride_dimension to be different");
  at_mosaic_attr_int(op, "stride", &s);
  NEED(s >= 0, "Rotate stride must be >= 0 if it is specified");
  return AT_OK;
}

// Static indices within the source, as many as the result has.
at_status at_mosaic_rule_GATHER(at_mosaic_verifier *v, const at_mop *op) {
  at_dims i, a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  int64_t d;
  AT_TRY(ints(v, op, "indices", &i));
  AT_TRY(dimension(v, op, "dimension", a.rank, &d));
  NEED(a.rank == r.rank && r.ptr[d] == i.rank &&
           same_elem(arg(op, 0), res(op, 0)),
       "'tpu.gather' op does not fit its result");
  for (uint32_t k = 0; k < a.rank; k++)
    NEED(k == d || a.ptr[k] == r.ptr[k],
         "'tpu.gather' op does not fit its result");
  for (uint32_t k = 0; k < i.rank; k++)
    NEED(i.ptr[k] >= 0 && i.ptr[k] < a.ptr[d],
         "'tpu.gather' op index out of range");
  return AT_OK;
}

// Indices are values; dimensions that are not gathered stay.
at_status at_mosaic_rule_DYNAMIC_GATHER(at_mosaic_verifier *v,
                                        const at_mop *op) {
  at_dims d, a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  AT_TRY(ints(v, op, "dimensions", &d));
  NEED(a.rank == r.rank && same_shape(arg(op, 1), res(op, 0)) &&
           same_elem(arg(op, 0), res(op, 0)),
       "Source and result must have the same rank and elements, indices the "
       "result's shape");
  uint32_t seen = 0;
  for (uint32_t i = 0; i < d.rank; i++) {
    NEED(d.ptr[i] >= 0 && d.ptr[i] < a.rank && !(seen >> d.ptr[i] & 1),
         "Dimensions must be in range and not repeat");
    seen |= 1u << d.ptr[i];
  }
  for (uint32_t i = 0; i < a.rank; i++)
    NEED(seen >> i & 1 || a.ptr[i] == r.ptr[i],
         "Source and result shapes must match on non-gather dimensions");
  return AT_OK;
}

// ---- Reductions
// The result's shape is what is left, and the accumulator has its type.
at_status at_mosaic_rule_REDUCTION(at_mosaic_verifier *v, const at_mop *op) {
  at_dims d, a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  AT_TRY(ints(v, op, "reduction_dims", &d));
  NEED(at_mtype_eq(arg(op, 1), res(op, 0)) && same_elem(arg(op, 0), res(op, 0)),
       "'vector.multi_reduction' op accumulator and result must have one type");
  uint32_t gone = 0, n = 0;
  for (uint32_t i = 0; i < d.rank; i++) {
    NEED(d.ptr[i] >= 0 && d.ptr[i] < a.rank && !(gone >> d.ptr[i] & 1),
         "'vector.multi_reduction' op reduces no such dimension");
    gone |= 1u << d.ptr[i];
  }
  for (uint32_t i = 0; i < a.rank; i++) {
    if (gone >> i & 1) continue;
    NEED(n < r.rank && r.ptr[n] == a.ptr[i],
         "'vector.multi_reduction' op result has another shape");
    n++;
  }
  NEED(n == r.rank, "'vector.multi_reduction' op result has another shape");
  return AT_OK;
}

// The result keeps the shape: it is broadcast back.
at_status at_mosaic_rule_ALL_REDUCE(at_mosaic_verifier *v, const at_mop *op) {
  int64_t d;
  at_dims a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  AT_TRY(dimension(v, op, "dim", a.rank, &d));
  NEED(at_dims_eq(a, r) || (a.rank == 1 && r.rank == 1),
       "'tpu.all_reduce' op result has another shape");
  return AT_OK;
}

// Rank 2 or more; the result has the shape without the axis.
at_status at_mosaic_rule_REDUCE_INDEX(at_mosaic_verifier *v, const at_mop *op) {
  at_dims a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  int64_t d;
  at_str kind = {0};
  AT_TRY(dimension(v, op, "axis", a.rank, &d));
  at_mosaic_attr_text(at_mop_attr(op, "kind"), &kind);
  NEED(at_str_is(kind, "arg_max") || at_str_is(kind, "arg_min"),
       "Reduction kind must be arg_max or arg_min");
  NEED(a.rank >= 2 && r.rank == a.rank - 1, "Input must have rank 2 or more");
  for (uint32_t i = 0; i < r.rank; i++)
    NEED(r.ptr[i] == a.ptr[i + (i >= d)],
         "Output shape must be the input's without the reduced dimension");
  return AT_OK;
}

// Input and output of one shape; the mask is as long as the last dimension.
at_status at_mosaic_rule_SCAN(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_shape(arg(op, 0), res(op, 0)),
       "Input and output shape mismatch. Input and output must have one shape");
  at_dims a = shape_of(arg(op, 0));
  int64_t d = a.rank - 1;
  if (at_mop_attr(op, "dimension"))
    AT_TRY(dimension(v, op, "dimension", a.rank, &d));
  if (op->num_operands > 1) {
    at_dims m = shape_of(arg(op, 1));
    NEED(m.rank == 1 && m.ptr[0] == a.ptr[a.rank - 1],
         "Mask and input mismatch: the mask has the last dimension's size");
  }
  return AT_OK;
}
