// The type rules that rows of ops.def name.
#include "mosaic/mosaic_internal.h"

#define FAIL(v, op, ...) \
  at_mosaic_fail((v)->k, (op), AT_INVALID_ARGUMENT, __VA_ARGS__)
#define NEED(cond, ...)                           \
  do {                                            \
    if (!(cond)) return FAIL(v, op, __VA_ARGS__); \
  } while (0)

static const at_mtype *arg(const at_mop *op, uint32_t i) {
  return op->operands[i]->type;
}
static const at_mtype *res(const at_mop *op, uint32_t i) {
  return op->results[i].type;
}
static at_dims shape_of(const at_mtype *t) {
  return t->kind == AT_MTYPE_VECTOR || t->kind == AT_MTYPE_MEMREF
             ? t->shape
             : (at_dims){0};
}
static const at_mtype *elem_of(const at_mtype *t) {
  return t->kind == AT_MTYPE_VECTOR || t->kind == AT_MTYPE_MEMREF ? t->elem : t;
}
static uint32_t bits_of(const at_mtype *t) {
  const at_mtype *e = elem_of(t);
  if (e->kind == AT_MTYPE_INDEX) return 32;
  if (e->kind == AT_MTYPE_INTEGER) return e->width;
  return at_dtype_of(at_mosaic_dtype_of(e))->bits;
}
static bool same_elem(const at_mtype *a, const at_mtype *b) {
  return at_mtype_eq(elem_of(a), elem_of(b));
}
static bool same_shape(const at_mtype *a, const at_mtype *b) {
  return at_dims_eq(shape_of(a), shape_of(b));
}
static at_status ints(at_mosaic_verifier *v, const at_mop *op, const char *name,
                      at_dims *out) {
  NEED(at_mosaic_attr_ints(at_mop_attr(op, name), v->scratch, out),
       "'%s' op requires attribute '%s'", op->name, name);
  return AT_OK;
}

// ---- Elements
static at_status rule_NONE(at_mosaic_verifier *v, const at_mop *op) {
  return AT_OK;
}

static at_status rule_SAME(at_mosaic_verifier *v, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++)
    NEED(at_mtype_eq(arg(op, i), res(op, 0)),
         "'%s' op requires the same type for all operands and results",
         op->name);
  return AT_OK;
}

static at_status rule_PRECISION(at_mosaic_verifier *v, const at_mop *op) {
  int64_t exponent = 0, mantissa = -1;
  at_mosaic_attr_int(op, "exponent_bits", &exponent);
  at_mosaic_attr_int(op, "mantissa_bits", &mantissa);
  NEED(exponent >= 1 && mantissa >= 0,
       "'%s' op needs exponent_bits >= 1 and mantissa_bits >= 0", op->name);
  return rule_SAME(v, op);
}

static at_status rule_COMPARE(at_mosaic_verifier *v, const at_mop *op) {
  int64_t p = 0;
  for (uint32_t i = 1; i < op->num_operands; i++)
    NEED(at_mtype_eq(arg(op, i), arg(op, 0)),
         "'%s' op operands must have one type", op->name);
  NEED(same_shape(arg(op, 0), res(op, 0)),
       "'%s' op result must have the operands' shape", op->name);
  at_mosaic_attr_int(op, "predicate", &p);
  NEED(p >= 0 && p <= (op->tag == AT_MOSAIC_ARITH_CMPI ? 9 : 15),
       "'%s' op has no predicate %lld", op->name, (long long)p);
  return AT_OK;
}

static at_status rule_SELECT(at_mosaic_verifier *v, const at_mop *op) {
  NEED(at_mtype_eq(arg(op, 1), res(op, 0)) &&
           at_mtype_eq(arg(op, 2), res(op, 0)),
       "'arith.select' op values and result must have one type");
  NEED(
      arg(op, 0)->kind != AT_MTYPE_VECTOR || same_shape(arg(op, 0), res(op, 0)),
      "'arith.select' op condition must be one bool or have the values' shape");
  return AT_OK;
}

static at_status rule_SHAPE(at_mosaic_verifier *v, const at_mop *op) {
  for (uint32_t r = 0; r < op->num_results; r++)
    for (uint32_t i = 0; i < op->num_operands; i++)
      NEED(same_shape(arg(op, i), res(op, r)),
           "'%s' op operands and results must have one shape", op->name);
  return AT_OK;
}

static at_status rule_WIDEN(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_shape(arg(op, 0), res(op, 0)) &&
           bits_of(arg(op, 0)) < bits_of(res(op, 0)),
       "'%s' op result must be wider than the operand, in the same shape",
       op->name);
  return AT_OK;
}

static at_status rule_NARROW(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_shape(arg(op, 0), res(op, 0)) &&
           bits_of(arg(op, 0)) > bits_of(res(op, 0)),
       "'%s' op result must be narrower than the operand, in the same shape",
       op->name);
  return AT_OK;
}

static at_status rule_CONSTANT(at_mosaic_verifier *v, const at_mop *op) {
  const at_mattr *a = at_mop_attr(op, "value");
  const at_mtype *t = res(op, 0);
  bool fits = t->kind == AT_MTYPE_VECTOR
                  ? a->kind == AT_MATTR_DENSE
                  : a->kind == AT_MATTR_INTEGER || a->kind == AT_MATTR_BOOL ||
                        a->kind == AT_MATTR_FLOAT;
  NEED(fits && a->type && at_mtype_eq(a->type, t),
       "'arith.constant' op value and result must have one type");
  return AT_OK;
}

// Dimensions equal but for `at`, counted from the end, which takes the ratio of
// widths: the bits stay.
static bool same_bits(const at_mtype *a, const at_mtype *b, uint32_t at) {
  at_dims x = shape_of(a), y = shape_of(b);
  if (x.rank != y.rank) return false;
  uint32_t p = bits_of(a), q = bits_of(b);
  if (p == q) return at_dims_eq(x, y);
  if (x.rank < at) return false;
  for (uint32_t i = 0; i < x.rank; i++) {
    if (i == x.rank - at) {
      if (x.ptr[i] * p != y.ptr[i] * q) return false;
    } else if (x.ptr[i] != y.ptr[i]) {
      return false;
    }
  }
  return true;
}

static at_status rule_BITS(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_bits(arg(op, 0), res(op, 0), 1),
       "'%s' op operand and result must have the same bits", op->name);
  return AT_OK;
}

static at_status rule_VECTOR_BITS(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_bits(arg(op, 0), res(op, 0), 2) ||
           same_bits(arg(op, 0), res(op, 0), 1),
       "Expected input and output shapes are the same after multiplying the "
       "second-minor dimension by the ratio of bitwidths");
  return AT_OK;
}

static at_status rule_IOTA(at_mosaic_verifier *v, const at_mop *op) {
  at_dims d, s = shape_of(res(op, 0));
  AT_TRY(ints(v, op, "dimensions", &d));
  NEED(d.rank, "dimensions must not be empty");
  uint32_t seen = 0;
  for (uint32_t i = 0; i < d.rank; i++) {
    NEED(d.ptr[i] >= 0 && d.ptr[i] < s.rank,
         "dimensions must be in range [0, %u), but got %lld", s.rank,
         (long long)d.ptr[i]);
    NEED(!(seen >> d.ptr[i] & 1), "dimensions must not have repeats");
    seen |= 1u << d.ptr[i];
  }
  return AT_OK;
}

static at_status rule_PACK_ELEMENTWISE(at_mosaic_verifier *v,
                                       const at_mop *op) {
  const at_mattr *a = at_mop_attr(op, "target_type");
  at_dtype t = a->type ? at_mosaic_dtype_of(a->type) : AT_INVALID;
  NEED(op->num_operands && t != AT_INVALID, "'%s' op has no sources or no type",
       op->name);
  for (uint32_t i = 0; i < op->num_operands; i++)
    NEED(at_mtype_eq(arg(op, i), arg(op, 0)) &&
             same_shape(arg(op, i), res(op, 0)),
         "'%s' op sources must have one type and the result's shape", op->name);
  NEED(at_dtype_of(t)->bits * op->num_operands == bits_of(arg(op, 0)) &&
           bits_of(res(op, 0)) == bits_of(arg(op, 0)),
       "Number of sources must match packing factor");
  return AT_OK;
}

static at_status rule_PACK(at_mosaic_verifier *v, const at_mop *op) {
  at_dims p;
  NEED(op->num_operands, "'%s' op has no sources", op->name);
  AT_TRY(ints(v, op, "positions", &p));
  NEED(p.rank == op->num_operands, "Size of sources and positions must match");
  uint32_t factor =
      bits_of(res(op, 0)) ? bits_of(arg(op, 0)) / bits_of(res(op, 0)) : 0;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    NEED(at_mtype_eq(arg(op, i), arg(op, 0)), "sources must have one type");
    NEED(p.ptr[i] >= 0 && p.ptr[i] < factor,
         "Positions must be between 0 and the packing factor");
  }
  return AT_OK;
}

static at_status rule_UNPACK(at_mosaic_verifier *v, const at_mop *op) {
  int64_t i = 0;
  at_mosaic_attr_int(op, "index", &i);
  uint32_t a = bits_of(arg(op, 0)), r = bits_of(res(op, 0));
  NEED(a && r > a && r % a == 0 && i >= 0 && i < r / a,
       "Index must be between 0 and the packing factor");
  return AT_OK;
}

static at_status rule_CREATE_MASK(at_mosaic_verifier *v, const at_mop *op) {
  NEED(op->num_operands == 2 * shape_of(res(op, 0)).rank,
       "'%s' op needs two bounds per dimension", op->name);
  return AT_OK;
}

// ---- Shapes
static at_status rule_RESHAPE(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_elem(arg(op, 0), res(op, 0)) &&
           at_mosaic_elements(shape_of(arg(op, 0))) ==
               at_mosaic_elements(shape_of(res(op, 0))),
       "'%s' op source and result must have the same elements", op->name);
  return AT_OK;
}

static at_status rule_BROADCAST(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_TRANSPOSE(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_SLICE(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_EXTRACT(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_elem(arg(op, 0), res(op, 0)), "'%s' op changes elements", op->name);
  return positions(v, op, 1, shape_of(arg(op, 0)), res(op, 0));
}

static at_status rule_INSERT(at_mosaic_verifier *v, const at_mop *op) {
  NEED(at_mtype_eq(arg(op, 1), res(op, 0)) && same_elem(arg(op, 0), res(op, 0)),
       "'%s' op changes elements", op->name);
  return positions(v, op, 2, shape_of(res(op, 0)), arg(op, 0));
}

static at_status dimension(at_mosaic_verifier *v, const at_mop *op,
                           const char *name, uint32_t rank, int64_t *out) {
  NEED(at_mosaic_attr_int(op, name, out) && *out >= 0 && *out < rank,
       "'%s' op %s is not a dimension of rank %u", op->name, name, rank);
  return AT_OK;
}

static at_status rule_CONCATENATE(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_REPEAT(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_ROTATE(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_GATHER(at_mosaic_verifier *v, const at_mop *op) {
  at_dims i, a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  int64_t d;
  AT_TRY(ints(v, op, "indices", &i));
  AT_TRY(dimension(v, op, "dimension", a.rank, &d));
  NEED(a.rank == r.rank && r.ptr[d] == i.rank &&
           same_elem(arg(op, 0), res(op, 0)),
       "'tpu.gather' op does not fit its result");
  for (uint32_t k = 0; k < i.rank; k++)
    NEED(i.ptr[k] >= 0 && i.ptr[k] < a.ptr[d],
         "'tpu.gather' op index out of range");
  return AT_OK;
}

static at_status rule_DYNAMIC_GATHER(at_mosaic_verifier *v, const at_mop *op) {
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
static at_status rule_REDUCTION(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_ALL_REDUCE(at_mosaic_verifier *v, const at_mop *op) {
  int64_t d;
  at_dims a = shape_of(arg(op, 0)), r = shape_of(res(op, 0));
  AT_TRY(dimension(v, op, "dim", a.rank, &d));
  NEED(at_dims_eq(a, r) || (a.rank == 1 && r.rank == 1),
       "'tpu.all_reduce' op result has another shape");
  return AT_OK;
}

static at_status rule_REDUCE_INDEX(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_SCAN(at_mosaic_verifier *v, const at_mop *op) {
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

// ---- Products
static at_status list(const char **p, at_dims *out, int64_t *buf, int cap) {
  out->ptr = buf;
  out->rank = 0;
  *p += strspn(*p, " ,");
  if (**p != '[') return AT_FAIL(AT_INVALID_ARGUMENT, "a list is expected");
  for (++*p; **p && **p != ']';) {
    *p += strspn(*p, " ,");
    if (**p < '0' || **p > '9' || (int)out->rank == cap)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "a list of small numbers is expected");
    int64_t x = 0;
    while (**p >= '0' && **p <= '9' && x < 1000) x = x * 10 + (*(*p)++ - '0');
    buf[out->rank++] = x;
    *p += strspn(*p, " ,");
  }
  *p += **p == ']';
  return AT_OK;
}

at_status at_mosaic_dot_of(const at_mop *op, at_arena *a, at_mosaic_dot *out) {
  at_str s;
  const at_mattr *d = at_mop_attr(op, "dimension_numbers");
  static const char plain[] = "[1], [0], [0], [1], [0, 0, 1, 1], [], []";
  static const char rhs[] = "[1], [1], [0], [0], [0, 0, 1, 0], [], []";
  static const char lhs[] = "[0], [0], [1], [1], [0, 1, 1, 1], [], []";
  int64_t tl = 0, tr = 0;
  at_mosaic_attr_int(op, "transpose_lhs", &tl);
  at_mosaic_attr_int(op, "transpose_rhs", &tr);
  if (!d) {
    if (tl && tr) return AT_FAIL(AT_UNIMPLEMENTED, "both operands transposed");
    s = at_str_of(tl ? lhs : tr ? rhs : plain);
  } else if (!at_mosaic_attr_text(d, &s)) {
    return AT_FAIL(AT_INVALID_ARGUMENT, "dimension_numbers are malformed");
  }
  char *text;
  AT_TRY_ALLOC(text, at_arena_str(a, s));
  const char *p = text;
  at_dims *lists[] = {&out->lhs_contracting, &out->rhs_contracting,
                      &out->lhs_free,        &out->rhs_free,
                      &out->output_order,    &out->lhs_batch,
                      &out->rhs_batch};
  for (size_t i = 0; i < AT_LEN(lists); i++) {
    int64_t *buf;
    AT_TRY_ALLOC(buf, at_new(a, int64_t, 32));
    AT_TRY(list(&p, lists[i], buf, 32));
  }
  return AT_OK;
}

static bool partition(at_dims x, at_dims y, at_dims z, uint32_t rank) {
  uint32_t seen = 0, n = x.rank + y.rank + z.rank;
  at_dims all[] = {x, y, z};
  for (int l = 0; l < 3; l++)
    for (uint32_t i = 0; i < all[l].rank; i++) {
      if (all[l].ptr[i] >= rank || seen >> all[l].ptr[i] & 1) return false;
      seen |= 1u << all[l].ptr[i];
    }
  return n == rank;
}

static at_status rule_MATMUL(at_mosaic_verifier *v, const at_mop *op) {
  at_mosaic_dot d = {0};
  at_dims a = shape_of(arg(op, 0)), b = shape_of(arg(op, 1)),
          r = shape_of(res(op, 0));
  at_status s = at_mosaic_dot_of(op, v->scratch, &d);
  if (!at_ok(s))
    return at_status_prefix(s, "kernel %s: tpu.matmul", v->k->name);
  NEED(at_mtype_eq(arg(op, 2), res(op, 0)),
       "'tpu.matmul' op accumulator and result must have one type");
  NEED(partition(d.lhs_contracting, d.lhs_free, d.lhs_batch, a.rank) &&
           partition(d.rhs_contracting, d.rhs_free, d.rhs_batch, b.rank) &&
           d.lhs_contracting.rank == d.rhs_contracting.rank &&
           d.lhs_batch.rank == d.rhs_batch.rank &&
           d.output_order.rank == 2 * r.rank,
       "Illegal: dimension numbers do not cover the operands");
  for (uint32_t i = 0; i < d.lhs_contracting.rank; i++)
    NEED(a.ptr[d.lhs_contracting.ptr[i]] == b.ptr[d.rhs_contracting.ptr[i]],
         "Illegal: contracting dims must be of the same size");
  for (uint32_t i = 0; i < d.lhs_batch.rank; i++)
    NEED(a.ptr[d.lhs_batch.ptr[i]] == b.ptr[d.rhs_batch.ptr[i]],
         "Illegal: batch dims must be of the same size");
  for (uint32_t i = 0; i < r.rank; i++) {
    int64_t side = d.output_order.ptr[2 * i], n = d.output_order.ptr[2 * i + 1];
    at_dims from = side == 0 ? a : b;
    NEED(side <= 1 && n < from.rank && from.ptr[n] == r.ptr[i],
         "Illegal: output dim order does not give the result's shape");
  }
  return AT_OK;
}

// ---- Memory
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

static at_status rule_LOAD(at_mosaic_verifier *v, const at_mop *op) {
  return box(v, op, 0, op->num_operands - 1, res(op, 0));
}
static at_status rule_STORE(at_mosaic_verifier *v, const at_mop *op) {
  return box(v, op, 1, op->num_operands - 2, arg(op, 0));
}

static at_status no_strides(at_mosaic_verifier *v, const at_mop *op) {
  at_dims d;
  AT_TRY(ints(v, op, "strides", &d));
  NEED(d.rank == 0,
       "Not implemented: general vector load and store with "
       "strides");
  return AT_OK;
}

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

static at_status rule_TPU_LOAD(at_mosaic_verifier *v, const at_mop *op) {
  at_dims g = {0};
  NEED(at_mosaic_segments(op, v->scratch, &g) && g.rank == 3, "bad segments");
  AT_TRY(no_strides(v, op));
  AT_TRY(mask_fits(v, op, g.ptr[2] == 1, res(op, 0)));
  return box(v, op, 0, (uint32_t)g.ptr[1], res(op, 0));
}
static at_status rule_TPU_STORE(at_mosaic_verifier *v, const at_mop *op) {
  at_dims g = {0};
  NEED(at_mosaic_segments(op, v->scratch, &g) && g.rank == 4, "bad segments");
  AT_TRY(no_strides(v, op));
  AT_TRY(mask_fits(v, op, g.ptr[3] == 1, arg(op, 0)));
  return box(v, op, 1, (uint32_t)g.ptr[2], arg(op, 0));
}

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
static at_status rule_STRIDED_LOAD(at_mosaic_verifier *v, const at_mop *op) {
  return strided(v, op, 0, op->num_operands - 1, res(op, 0), 0);
}
static at_status rule_STRIDED_STORE(at_mosaic_verifier *v, const at_mop *op) {
  return strided(v, op, 1, op->num_operands - 2, arg(op, 0), 1);
}

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
static at_status rule_LOAD_IDX(at_mosaic_verifier *v, const at_mop *op) {
  at_dims g = {0};
  NEED(at_mosaic_segments(op, v->scratch, &g) && g.rank == 3, "bad segments");
  AT_TRY(mask_fits(v, op, g.ptr[2] == 1, res(op, 0)));
  return indexed(v, op, 0, g.ptr[1], res(op, 0));
}
static at_status rule_STORE_IDX(at_mosaic_verifier *v, const at_mop *op) {
  at_dims g = {0};
  NEED(at_mosaic_segments(op, v->scratch, &g) && g.rank == 4, "bad segments");
  AT_TRY(mask_fits(v, op, g.ptr[3] == 1, arg(op, 0)));
  return indexed(v, op, 1, g.ptr[2], arg(op, 0));
}

static at_status rule_SCALAR_LOAD(at_mosaic_verifier *v, const at_mop *op) {
  NEED(at_mtype_eq(elem_of(arg(op, 0)), res(op, 0)) &&
           op->num_operands - 1 == shape_of(arg(op, 0)).rank,
       "'memref.load' op does not fit its memref");
  return AT_OK;
}
static at_status rule_SCALAR_STORE(at_mosaic_verifier *v, const at_mop *op) {
  NEED(at_mtype_eq(elem_of(arg(op, 1)), arg(op, 0)) &&
           op->num_operands - 2 == shape_of(arg(op, 1)).rank,
       "'memref.store' op does not fit its memref");
  return AT_OK;
}
static at_status rule_ALLOCA(at_mosaic_verifier *v, const at_mop *op) {
  uint32_t dynamic = 0;
  at_dims s = shape_of(res(op, 0));
  for (uint32_t i = 0; i < s.rank; i++) dynamic += s.ptr[i] == AT_MDYN;
  NEED(dynamic == op->num_operands,
       "'memref.alloca' op needs one size per dynamic dimension");
  return AT_OK;
}

// ---- Views
static at_status rule_REF_SLICE(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_REF_SQUEEZE(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_REF_RESHAPE(at_mosaic_verifier *v, const at_mop *op) {
  NEED(same_elem(arg(op, 0), res(op, 0)), "Element types don't match.");
  int64_t a = at_mosaic_elements(shape_of(arg(op, 0))),
          r = at_mosaic_elements(shape_of(res(op, 0)));
  NEED(
      a == r || a < 0 || r < 0,
      "Number of elements doesn't match between input and output memref type.");
  return AT_OK;
}

static at_status rule_REF_BITCAST(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_REF_CAST(at_mosaic_verifier *v, const at_mop *op) {
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

static at_status rule_DMA(at_mosaic_verifier *v, const at_mop *op) {
  return AT_OK;
}

static at_status rule_INDIRECT_DMA(at_mosaic_verifier *v, const at_mop *op) {
  const at_mtype *o = arg(op, 2);
  NEED((o->kind == AT_MTYPE_VECTOR || o->kind == AT_MTYPE_MEMREF) &&
           at_mosaic_dtype_of(o) == AT_S32,
       "offsets must be a memref or a vector of i32");
  NEED(same_elem(arg(op, 0), arg(op, 1)),
       "Source and target element type mismatch");
  return AT_OK;
}

// ---- Structure
static const at_mblock *region(const at_mop *op, uint32_t i) {
  return op->regions[i]->num_blocks ? op->regions[i]->blocks[0] : NULL;
}

// The last operation of a region hands over `n` values of the given types.
static at_status yields(at_mosaic_verifier *v, const at_mop *op,
                        const at_mblock *b, at_mosaic_opcode want,
                        uint32_t skip, const at_mvalue *to, uint32_t n) {
  const at_mop *y = b->ops[b->num_ops - 1];
  NEED(at_mosaic_opcode_of(y) == want && y->num_operands == skip + n,
       "'%s' op region must end in %s of %u values", op->name,
       at_mosaic_op_info_of(want)->name, n);
  for (uint32_t i = 0; i < n; i++)
    NEED(at_mtype_eq(y->operands[skip + i]->type, to[i].type),
         "'%s' op region yields another type as value %u", op->name, i);
  return AT_OK;
}

static at_status rule_IF(at_mosaic_verifier *v, const at_mop *op) {
  NEED(op->num_regions == 2 && region(op, 0), "'scf.if' op needs two regions");
  NEED(region(op, 1) || !op->num_results, "'scf.if' op needs an else region");
  for (uint32_t i = 0; i < 2; i++)
    if (region(op, i)) {
      NEED(!region(op, i)->num_args, "'scf.if' op region takes no arguments");
      AT_TRY(yields(v, op, region(op, i), AT_MOSAIC_SCF_YIELD, 0, op->results,
                    op->num_results));
    }
  return AT_OK;
}

static at_status rule_FOR(at_mosaic_verifier *v, const at_mop *op) {
  const at_mblock *b = op->num_regions == 1 ? region(op, 0) : NULL;
  NEED(b && b->num_args == op->num_results + 1 &&
           op->num_operands == op->num_results + 3,
       "'scf.for' op carries as many values as it yields");
  for (uint32_t i = 0; i < 3; i++)
    NEED(at_mtype_eq(arg(op, i), b->args[0].type),
         "'scf.for' op bounds, step and index must have one type");
  for (uint32_t i = 0; i < op->num_results; i++)
    NEED(at_mtype_eq(arg(op, i + 3), res(op, i)) &&
             at_mtype_eq(b->args[i + 1].type, res(op, i)),
         "'scf.for' op carried value %u changes its type", i);
  return yields(v, op, b, AT_MOSAIC_SCF_YIELD, 0, op->results, op->num_results);
}

static at_status rule_WHILE(at_mosaic_verifier *v, const at_mop *op) {
  const at_mblock *b = op->num_regions == 2 ? region(op, 0) : NULL;
  const at_mblock *a = b ? region(op, 1) : NULL;
  NEED(a && b->num_args == op->num_operands && a->num_args == op->num_results,
       "'scf.while' op needs two regions that take its values");
  for (uint32_t i = 0; i < op->num_operands; i++)
    NEED(at_mtype_eq(arg(op, i), b->args[i].type),
         "'scf.while' op value %u changes its type", i);
  for (uint32_t i = 0; i < op->num_results; i++)
    NEED(at_mtype_eq(res(op, i), a->args[i].type),
         "'scf.while' op value %u changes its type", i);
  AT_TRY(yields(v, op, b, AT_MOSAIC_SCF_CONDITION, 1, op->results,
                op->num_results));
  return yields(v, op, a, AT_MOSAIC_SCF_YIELD, 0, b->args, b->num_args);
}

static at_status rule_CONDITION(at_mosaic_verifier *v, const at_mop *op) {
  const at_mop *p =
      op->block && op->block->region ? op->block->region->op : NULL;
  NEED(p && at_mosaic_opcode_of(p) == AT_MOSAIC_SCF_WHILE,
       "'scf.condition' op stands outside scf.while");
  return AT_OK;
}

static at_status rule_REGION(at_mosaic_verifier *v, const at_mop *op) {
  const at_mblock *b = op->num_regions == 1 ? region(op, 0) : NULL;
  NEED(b && !b->num_args, "'%s' op needs a region without arguments", op->name);
  return yields(v, op, b, AT_MOSAIC_TPU_YIELD, 0, op->results, op->num_results);
}

static at_status rule_FUNC(at_mosaic_verifier *v, const at_mop *op) {
  const at_mtype *t = at_mop_attr(op, "function_type")->type;
  const at_mblock *b = op->num_regions == 1 ? region(op, 0) : NULL;
  NEED(t && t->kind == AT_MTYPE_FUNCTION && b && b->num_args == t->num_types,
       "'func.func' op needs a body that takes the function's arguments");
  for (uint32_t i = 0; i < t->num_types; i++)
    NEED(at_mtype_eq(b->args[i].type, t->types[i]),
         "'func.func' op argument #%u has another type than the function's", i);
  const at_mop *y = b->ops[b->num_ops - 1];
  NEED(at_mosaic_opcode_of(y) == AT_MOSAIC_FUNC_RETURN &&
           y->num_operands == t->num_results,
       "'func.func' op must return %u values", t->num_results);
  for (uint32_t i = 0; i < t->num_results; i++)
    NEED(at_mtype_eq(y->operands[i]->type, t->results[i]),
         "'func.func' op returns another type as value %u", i);
  return AT_OK;
}

static at_status rule_RETURN(at_mosaic_verifier *v, const at_mop *op) {
  const at_mop *p =
      op->block && op->block->region ? op->block->region->op : NULL;
  NEED(p && at_mosaic_opcode_of(p) == AT_MOSAIC_FUNC_FUNC,
       "'func.return' op stands outside a function's block");
  return AT_OK;
}

static const at_mosaic_rule rules[] = {
    [AT_MOSAIC_NO_OP] = NULL,
#define AT_MOSAIC_OP(Id, name, operands, results, attrs, rule, cost, form, \
                     weight, handler, doc)                                 \
  [AT_MOSAIC_##Id] = rule_##rule,
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP
};

at_mosaic_rule at_mosaic_rule_of(at_mosaic_opcode op) {
  return op < AT_MOSAIC_OP_COUNT ? rules[op] : NULL;
}
