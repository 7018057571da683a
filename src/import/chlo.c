// chlo ops that hlo has no row for, as a few ops each.
#include "import/import_internal.h"

#include <math.h>

// Unary op: exactly one operand that is one tensor, and one result.
static at_status one_operand(at_imp *x, const at_mop *op, at_value *v) {
  AT_TRY(at_imp_need(x, op, 1, 1));
  return at_imp_single(x, op, 0, v);
}

// ---- Broadcasting

// Numpy's rule over n shapes, aligned at their last dimension. Dynamic sizes
// are refused: which side repeats is not known before the program runs.
static at_status broadcast_dims(at_imp *x, const at_mop *op, const at_value *v,
                                uint32_t n, at_dims *out) {
  uint32_t rank = 0;
  for (uint32_t i = 0; i < n; i++)
    rank = AT_MAX(rank, at_value_type(v[i])->rank);
  int64_t *dims;
  AT_TRY_ALLOC(dims, at_new(x->a, int64_t, (size_t)rank + 1));
  for (uint32_t d = 0; d < rank; d++) dims[d] = 1;
  for (uint32_t i = 0; i < n; i++) {
    const at_type *t = at_value_type(v[i]);
    for (uint32_t k = 0; k < t->rank; k++) {
      int64_t *have = &dims[rank - t->rank + k], size = t->dims[k];
      if (size == AT_DYN)
        return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED,
                          "broadcasting dynamic shapes is not supported");
      if (*have != 1 && size != 1 && *have != size)
        return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                          "operands of size %lld and %lld do not broadcast",
                          (long long)*have, (long long)size);
      if (size != 1) *have = size;
    }
  }
  *out = (at_dims){dims, rank};
  return AT_OK;
}

// Repeats *v to the shape `dims`; map[i] is the result dimension of v's
// dimension i. *v stays where it has that shape already.
static at_status broadcast_to(at_imp *x, const at_mop *op, at_dims dims,
                              at_dims map, at_value *v) {
  at_type t;
  if (at_dims_eq(at_type_dims(at_value_type(*v)), dims)) return AT_OK;
  AT_TRY(at_type_make(x->a, at_value_type(*v)->dtype, dims, &t));
  return at_imp_broadcast(x, op, *v, map, t, v);
}

// The map that aligns the dimensions of v at the end of a result of that rank,
// as numpy does.
static at_status trailing_map(at_imp *x, const at_value *v, uint32_t rank,
                              at_dims *out) {
  uint32_t mine = at_value_type(*v)->rank;
  int64_t *map;
  AT_TRY_ALLOC(map, at_new(x->a, int64_t, (size_t)mine + 1));
  for (uint32_t i = 0; i < mine; i++) map[i] = (int64_t)(rank - mine) + i;
  *out = (at_dims){map, mine};
  return AT_OK;
}

// broadcast_dimensions places the operand of lower rank; else ranks are aligned
// at the end.
static at_status spread(at_imp *x, const at_mop *op, at_value *v, uint32_t n) {
  at_dims dims, map, given = {0};
  const at_mattr *t = at_mop_attr(op, "broadcast_dimensions");
  if (t && n == 2)
    AT_TRY(at_imp_ints(x, op, "broadcast_dimensions", t, &given));
  uint32_t low = at_value_type(v[0])->rank > at_value_type(v[1])->rank;
  uint32_t high_rank = at_value_type(v[1 - low])->rank;
  if (t && n == 2 && given.rank == at_value_type(v[low])->rank &&
      given.rank < high_rank) {
    // Ones in between make the ranks equal, then the usual rule applies.
    int64_t *ones;
    AT_TRY_ALLOC(ones, at_new(x->a, int64_t, (size_t)high_rank + 1));
    for (uint32_t i = 0; i < high_rank; i++) ones[i] = 1;
    for (uint32_t i = 0; i < given.rank; i++) {
      if (given.ptr[i] < 0 || given.ptr[i] >= high_rank ||
          (i && given.ptr[i] <= given.ptr[i - 1]))
        return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                          "broadcast_dimensions are not sorted or too large");
      ones[given.ptr[i]] = at_value_type(v[low])->dims[i];
    }
    at_type shape;
    AT_TRY(at_type_make(x->a, at_value_type(v[low])->dtype,
                        (at_dims){ones, high_rank}, &shape));
    AT_TRY(at_imp_reshape(x, op, v[low], shape, &v[low]));
  }
  AT_TRY(broadcast_dims(x, op, v, n, &dims));
  for (uint32_t i = 0; i < n; i++) {
    AT_TRY(trailing_map(x, &v[i], dims.rank, &map));
    AT_TRY(broadcast_to(x, op, dims, map, &v[i]));
  }
  return AT_OK;
}

// Builds the node that the whole rewrite ends in, with the op's declared types,
// attributes and sharding, and defines the op's result by it.
static at_status finish(at_imp *x, const at_mop *op, at_op hlo,
                        const at_value *v, uint32_t n) {
  at_types t;
  AT_TRY(at_imp_result_types(x, op, &t));
  at_imp_node d = {.op = hlo,
                   .operands = v,
                   .num_operands = n,
                   .types = t.t,
                   .num_types = t.n,
                   .outer = true};
  AT_TRY(at_imp_attrs(x, op, hlo, &d.attrs));
  at_node *node;
  AT_TRY(at_imp_build(x, op, &d, &node));
  return at_imp_define_node(x, op, node);
}

// A binary op with implicit broadcasting: the broadcasts are spelled out, then
// row->op takes operands of one shape.
AT_IMP_HOW(chlo_broadcast) {
  at_value v[2];
  AT_TRY(at_imp_need(x, op, 2, 1));
  for (uint32_t i = 0; i < 2; i++) AT_TRY(at_imp_single(x, op, i, &v[i]));
  AT_TRY(spread(x, op, v, 2));
  return finish(x, op, row->op, v, 2);
}

// SELECT with implicit broadcasting of the predicate and of both branches.
AT_IMP_HOW(chlo_broadcast_select) {
  at_value v[3];
  AT_TRY(at_imp_need(x, op, 3, 1));
  for (uint32_t i = 0; i < 3; i++) AT_TRY(at_imp_single(x, op, i, &v[i]));
  AT_TRY(spread(x, op, v, 3));
  return finish(x, op, AT_OP_SELECT, v, 3);
}

// ---- Small graphs

// A constant in the shape of the operand.
AT_IMP_HOW(chlo_constant_like) {
  at_value shape, v;
  AT_TRY(one_operand(x, op, &shape));
  const at_mattr *t = at_mop_attr(op, "value");
  at_types want;
  AT_TRY(at_imp_result_types(x, op, &want));
  if (!t || want.n != 1 ||
      (t->kind != AT_MATTR_FLOAT && t->kind != AT_MATTR_INTEGER &&
       t->kind != AT_MATTR_BOOL))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "attribute `value` must be a number");
  if (!at_type_is_static(&want.t[0]))
    return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED,
                      "dynamic shapes are not supported here");
  uint8_t data[16] = {0};
  at_dtype d = want.t[0].dtype;
  double f = t->kind == AT_MATTR_FLOAT ? t->f : (double)t->i;
  if (at_is_float(d) || at_is_complex(d))
    at_store_float(at_real_of(d), data, f);
  else if (t->kind != AT_MATTR_FLOAT)
    at_store_int(d, data, t->i);
  else
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT,
                      "attribute `value` differs from the result's type");
  const at_literal *l;
  AT_TRY(at_literal_make(x->a, want.t[0], data, true, false, &l));
  at_imp_node n = {.op = AT_OP_CONSTANT, .outer = true};
  AT_TRY(at_imp_attr_put(x, &n.attrs,
                         (at_attr){.id = AT_ATTR_VALUE, .literal = l}));
  at_node *node;
  AT_TRY(at_imp_build(x, op, &n, &node));
  v = (at_value){node, 0};
  return at_imp_define_results(x, op, &v, 1);
}

// out[0] = real(v), out[1] = imag(v), both of the real element type.
static at_status real_and_imag(at_imp *x, const at_mop *op, at_value v,
                               at_value out[2]) {
  AT_TRY(at_imp_build_op(x, op, AT_OP_REAL, &v, 1, &out[0]));
  return at_imp_build_op(x, op, AT_OP_IMAG, &v, 1, &out[1]);
}

// The conjugate; real numbers stay as they are.
AT_IMP_HOW(chlo_conj) {
  at_value v, part[2];
  AT_TRY(one_operand(x, op, &v));
  if (!at_is_complex(at_value_type(v)->dtype))
    return at_imp_define_results(x, op, &v, 1);
  AT_TRY(real_and_imag(x, op, v, part));
  AT_TRY(at_imp_build_op(x, op, AT_OP_NEGATE, &part[1], 1, &part[1]));
  return finish(x, op, AT_OP_COMPLEX, part, 2);
}

// x * x; complex: ((a - b)(a + b), 2ab), which keeps infinities apart from NaN.
AT_IMP_HOW(chlo_square) {
  at_value v, p[2], d[2], two[2];
  AT_TRY(one_operand(x, op, &v));
  if (!at_is_complex(at_value_type(v)->dtype))
    return finish(x, op, AT_OP_MULTIPLY, (at_value[]){v, v}, 2);
  AT_TRY(real_and_imag(x, op, v, p));
  AT_TRY(at_imp_build_op(x, op, AT_OP_SUBTRACT, p, 2, &d[0]));
  AT_TRY(at_imp_build_op(x, op, AT_OP_ADD, p, 2, &d[1]));
  AT_TRY(at_imp_build_op(x, op, AT_OP_MULTIPLY, d, 2, &d[0]));
  AT_TRY(at_imp_build_op(x, op, AT_OP_MULTIPLY, p, 2, &two[0]));
  two[1] = two[0];
  AT_TRY(at_imp_build_op(x, op, AT_OP_ADD, two, 2, &d[1]));
  return finish(x, op, AT_OP_COMPLEX, d, 2);
}

// v == value, with `value` in v's shape.
static at_status equals(at_imp *x, const at_mop *op, at_value v, double value) {
  const at_type *t = at_value_type(v);
  at_value pair[2] = {v};
  if (!at_is_float(t->dtype))
    return AT_OP_FAIL(x, op, AT_INVALID_ARGUMENT, "takes floats");
  if (!at_type_is_static(t))
    return AT_OP_FAIL(x, op, AT_UNIMPLEMENTED,
                      "dynamic shapes are not supported here");
  AT_TRY(at_imp_scalar(x, op, t->dtype, value, &pair[1]));
  AT_TRY(at_imp_broadcast(x, op, pair[1], (at_dims){0}, *t, &pair[1]));
  at_imp_node d = {
      .op = AT_OP_COMPARE, .operands = pair, .num_operands = 2, .outer = true};
  AT_TRY(at_imp_attr_put(
      x, &d.attrs, (at_attr){.id = AT_ATTR_COMPARISON_DIRECTION, .i = AT_EQ}));
  AT_TRY(at_imp_attr_put(
      x, &d.attrs, (at_attr){.id = AT_ATTR_COMPARE_TYPE, .i = AT_CMP_FLOAT}));
  at_node *n;
  AT_TRY(at_imp_build(x, op, &d, &n));
  return at_imp_define_node(x, op, n);
}

// |x| == inf, so that both infinities answer true and NaN false.
AT_IMP_HOW(chlo_is_inf) {
  at_value v;
  AT_TRY(one_operand(x, op, &v));
  AT_TRY(at_imp_build_op(x, op, AT_OP_ABS, &v, 1, &v));
  return equals(x, op, v, INFINITY);
}
AT_IMP_HOW(chlo_is_pos_inf) {
  at_value v;
  AT_TRY(one_operand(x, op, &v));
  return equals(x, op, v, INFINITY);
}
AT_IMP_HOW(chlo_is_neg_inf) {
  at_value v;
  AT_TRY(one_operand(x, op, &v));
  return equals(x, op, v, -INFINITY);
}
