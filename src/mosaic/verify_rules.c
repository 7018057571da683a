// The table of type rules, and products.
#include "mosaic/verify_rules.h"

// ---- Products
// "[1, 2]" into buf, at most cap numbers, cut at 1000.
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

// From the attribute, or from the transpose flags of old kernels.
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

// Does each of `rank` dimensions stand in exactly one list?
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

// The lists cover both operands, contracted and batch sizes agree, and
// output_order gives the result's shape.
at_status at_mosaic_rule_MATMUL(at_mosaic_verifier *v, const at_mop *op) {
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

// ---- The table
static const at_mosaic_rule rules[] = {
    [AT_MOSAIC_NO_OP] = NULL,
#define AT_MOSAIC_OP(Id, name, operands, results, attrs, rule, cost, form, \
                     weight, handler, doc)                                 \
  [AT_MOSAIC_##Id] = at_mosaic_rule_##rule,
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP
};

at_mosaic_rule at_mosaic_rule_of(at_mosaic_opcode op) {
  return op < AT_MOSAIC_OP_COUNT ? rules[op] : NULL;
}
