// Random data movement. The dynamic form of an op takes constants as its shape.
#include "hlo/random_internal.h"

// ---- Bits

// Any type of that many bits, complex exactly if t is; never booleans, of which
// most patterns are none.
static at_dtype other_of_width(at_gen *g, at_dtype t, uint32_t bits) {
  at_dtype to;
  do to = (at_dtype)(1 + at_gen_below(g, AT_TOKEN - 1));
  while (at_dtype_of(to)->bits != bits ||
         at_is_complex(to) != at_is_complex(t) || to == AT_PRED);
  return to;
}

// Between types of equal width.
at_status at_gen_bitcast(at_gen *g, at_op op, at_dtype t) {
  at_value x;
  AT_TRY(at_gen_value(g, other_of_width(g, t, at_dtype_of(t)->bits), &x));
  at_type r = at_type_with(*at_value_type(x), t);
  at_step s = {.op = op, .types = &r, .num_types = 1};
  at_step_operand(&s, x);
  return at_step_build(g, &s);
}

// From elements of another width: the minor dimension is their ratio.
at_status at_gen_bitcast_resize(at_gen *g, at_op op, at_dtype t) {
  static const uint32_t widths[] = {2, 4, 8, 16, 32, 64};
  uint32_t to = at_dtype_of(t)->bits, from;
  do from = AT_GEN_PICK(g, widths);
  while (to != 6 && (from == to || (from % to && to % from)));
  if (to == 6)
    return at_gen_bitcast(g, op, t);  // no width divides it but its own
  at_value x;
  at_type r, narrow;
  at_dtype d = other_of_width(g, t, from);
  int64_t *dims;
  AT_TRY(at_gen_type(g, t, 0, 3, true, &r));
  AT_TRY_ALLOC(dims, at_gen_dims(g, r.rank + 1));
  for (uint32_t i = 0; i < r.rank; i++) dims[i] = r.dims[i];
  dims[r.rank] = from > to ? from / to : to / from;
  narrow =
      (at_type){.dtype = from > to ? t : d, .rank = r.rank + 1, .dims = dims};
  AT_TRY(at_gen_like(g, from > to ? at_type_with(r, d) : narrow, &x));
  if (from > to) r = narrow;
  at_step s = {.op = op, .types = &r, .num_types = 1};
  at_step_operand(&s, x);
  return at_step_build(g, &s);
}

// ---- Shapes

// New dimensions go anywhere among the operand's, whose order stays; dimensions
// of size one may grow.
at_status at_gen_broadcast(at_gen *g, at_op op, at_dtype d) {
  at_value x, shape;
  AT_TRY(at_gen_value(g, d, &x));
  const at_type *t = at_value_type(x);
  uint32_t extra = at_gen_below(g, 3), rank = t->rank + extra, at = 0;
  int64_t *dims, *map;
  AT_TRY_ALLOC(dims, at_gen_dims(g, rank));
  AT_TRY_ALLOC(map, at_gen_dims(g, rank));
  int64_t count = AT_MAX(at_type_elements(t), 1);
  for (uint32_t i = 0; i < rank; i++) {
    bool fresh =
        t->rank - at < rank - i && (at == t->rank || at_gen_chance(g, 50));
    int64_t wanted = at_gen_size(g);
    if (fresh || t->dims[at] == 1) {
      dims[i] = count * wanted <= g->max_elements ? wanted : 1;
      count *= dims[i];
    } else {
      dims[i] = t->dims[at];
    }
    if (!fresh) map[at++] = i;
  }
  at_type r = {.dtype = t->dtype, .rank = rank, .dims = dims};
  at_step s = {.op = op, .types = &r, .num_types = 1};
  at_step_operand(&s, x);
  if (op == AT_OP_DYNAMIC_BROADCAST_IN_DIM) {
    AT_TRY(at_gen_list(g, dims, rank, &shape));
    at_step_operand(&s, shape);
  }
  at_step_ints(&s, AT_ATTR_BROADCAST_DIMENSIONS, map, t->rank);
  return at_step_build(g, &s);
}

// Merges two neighbours, or splits a dimension, or adds one of size 1.
static at_status reshaped(at_gen *g, const at_type *t, at_type *out) {
  int64_t *dims;
  AT_TRY_ALLOC(dims, at_gen_dims(g, t->rank + 1));
  at_type r = {.dtype = t->dtype, .rank = t->rank, .dims = dims};
  for (uint32_t i = 0; i < t->rank; i++) dims[i] = t->dims[i];
  uint32_t d = t->rank ? at_gen_below(g, t->rank) : 0;
  if (t->rank >= 2 && at_gen_chance(g, 50)) {
    d = AT_MIN(d, t->rank - 2);
    dims[d] *= dims[d + 1];
    for (uint32_t i = d + 1; i + 1 < t->rank; i++) dims[i] = dims[i + 1];
    r.rank--;
  } else if (t->rank < 5) {
    int64_t f = t->rank && dims[d] % 2 == 0 ? 2 : 1;
    for (uint32_t i = t->rank; i > d; i--) dims[i] = dims[i - 1];
    dims[d] = f;
    if (t->rank) dims[d + 1] /= f;
    r.rank++;
  }
  *out = r;
  return AT_OK;
}

// The dynamic form has its shape as an operand.
at_status at_gen_reshape(at_gen *g, at_op op, at_dtype t) {
  at_value x, shape;
  at_type r;
  AT_TRY(at_gen_value(g, t, &x));
  AT_TRY(reshaped(g, at_value_type(x), &r));
  at_step s = {.op = op, .types = &r, .num_types = 1};
  at_step_operand(&s, x);
  if (op == AT_OP_DYNAMIC_RESHAPE) {
    AT_TRY(at_gen_list(g, r.dims, r.rank, &shape));
    at_step_operand(&s, shape);
  }
  return at_step_build(g, &s);
}

// Transpose and reverse.
at_status at_gen_permuted(at_gen *g, at_op op, at_dtype d) {
  at_value x;
  int64_t *v;
  AT_TRY(at_gen_value(g, d, &x));
  uint32_t rank = at_value_type(x)->rank;
  AT_TRY_ALLOC(v, at_gen_dims(g, rank));
  for (uint32_t i = 0; i < rank; i++) v[i] = i;
  at_gen_shuffle(g, v, rank);
  at_step s = {.op = op};
  at_step_operand(&s, x);
  if (op == AT_OP_TRANSPOSE)
    at_step_ints(&s, AT_ATTR_PERMUTATION, v, rank);
  else
    at_step_ints(&s, AT_ATTR_DIMENSIONS, v, at_gen_below(g, rank + 1));
  return at_step_build(g, &s);
}

// set_dimension_size gets the size that it has.
at_status at_gen_dimension_size(at_gen *g, at_op op, at_dtype t) {
  at_value x, size;
  AT_TRY(at_gen_ranked(g, t, 1, 5, &x));
  const at_type *r = at_value_type(x);
  int64_t d = at_gen_below(g, r->rank);
  at_step s = {.op = op};
  at_step_operand(&s, x);
  if (op == AT_OP_SET_DIMENSION_SIZE) {
    AT_TRY(at_gen_int(g, g->c, AT_S32, r->dims[d], &size));
    at_step_operand(&s, size);
    s.types = r;
    s.num_types = 1;
  }
  at_step_int(&s, AT_ATTR_DIMENSION, d);
  return at_step_build(g, &s);
}

// ---- Parts

// An op of three lists of r->rank numbers, one after another in v: attributes,
// or, where it is dynamic, operands beside a result of type r.
static at_status with_lists(at_gen *g, at_step *s, bool dynamic,
                            const at_attr_id ids[3], const int64_t *v,
                            const at_type *r) {
  for (uint32_t i = 0; i < 3; i++, v += r->rank) {
    if (!dynamic) {
      at_step_ints(s, ids[i], v, r->rank);
      continue;
    }
    at_value list;
    AT_TRY(at_gen_list(g, v, r->rank, &list));
    at_step_operand(s, list);
    s->types = r;
    s->num_types = 1;
  }
  return at_step_build(g, s);
}

// Starts, limits and strides in range, also empty slices.
at_status at_gen_slice(at_gen *g, at_op op, at_dtype d) {
  at_value x;
  int64_t *v;
  AT_TRY(at_gen_value(g, d, &x));
  const at_type *t = at_value_type(x);
  AT_TRY_ALLOC(v, at_gen_dims(g, 4 * t->rank));
  int64_t *limit = v + t->rank, *stride = limit + t->rank,
          *dims = stride + t->rank;
  for (uint32_t i = 0; i < t->rank; i++) {
    uint32_t n = (uint32_t)t->dims[i];
    v[i] = at_gen_chance(g, 50) ? 0 : at_gen_below(g, n + 1);
    limit[i] =
        v[i] + (at_gen_chance(g, 50) ? n - v[i]
                                     : at_gen_below(g, n - (uint32_t)v[i] + 1));
    stride[i] = at_gen_chance(g, 70) ? 1 : 1 + at_gen_below(g, 3);
    dims[i] = (limit[i] - v[i] + stride[i] - 1) / stride[i];
  }
  static const at_attr_id ids[3] = {AT_ATTR_START_INDICES,
                                    AT_ATTR_LIMIT_INDICES, AT_ATTR_STRIDES};
  at_type r = {.dtype = d, .rank = t->rank, .dims = dims};
  at_step s = {.op = op};
  at_step_operand(&s, x);
  return with_lists(g, &s, op == AT_OP_REAL_DYNAMIC_SLICE, ids, v, &r);
}

// Negative edges cut off, but never more than there is.
at_status at_gen_pad(at_gen *g, at_op op, at_dtype d) {
  at_value x, fill;
  int64_t *v;
  AT_TRY(at_gen_value(g, d, &x));
  const at_type *t = at_value_type(x);
  AT_TRY_ALLOC(v, at_gen_dims(g, 4 * t->rank));
  int64_t *high = v + t->rank, *inside = high + t->rank,
          *dims = inside + t->rank;
  for (uint32_t i = 0; i < t->rank; i++) {
    bool small = at_type_elements(t) * 4 < g->max_elements;
    v[i] = small ? (int64_t)at_gen_below(g, 4) - 1 : 0;
    high[i] = small ? (int64_t)at_gen_below(g, 4) - 1 : 0;
    inside[i] = small && at_gen_chance(g, 20) ? 1 : 0;
    int64_t n = t->dims[i], body = n ? n + (n - 1) * inside[i] : 0;
    if (body + v[i] + high[i] < 0) v[i] = high[i] = 0;
    dims[i] = body + v[i] + high[i];
  }
  AT_TRY(at_gen_like(g, at_type_scalar(d), &fill));
  static const at_attr_id ids[3] = {AT_ATTR_EDGE_PADDING_LOW,
                                    AT_ATTR_EDGE_PADDING_HIGH,
                                    AT_ATTR_INTERIOR_PADDING};
  at_type r = {.dtype = d, .rank = t->rank, .dims = dims};
  at_step s = {.op = op};
  at_step_operand(&s, x);
  at_step_operand(&s, fill);
  return with_lists(g, &s, op == AT_OP_DYNAMIC_PAD, ids, v, &r);
}

// Dynamic slice and update. Starts of any integer type, in range or not.
at_status at_gen_dynamic_slice(at_gen *g, at_op op, at_dtype d) {
  static const at_dtype ints[] = {AT_S32, AT_S32, AT_S64, AT_U32,
                                  AT_U8,  AT_S8,  AT_U64, AT_S16};
  at_value x, u;
  int64_t *size;
  AT_TRY(at_gen_value(g, d, &x));
  const at_type *t = at_value_type(x);
  AT_TRY_ALLOC(size, at_gen_dims(g, t->rank));
  for (uint32_t i = 0; i < t->rank; i++)
    size[i] = at_gen_below(g, (uint32_t)t->dims[i] + 1);
  at_step s = {.op = op};
  at_step_operand(&s, x);
  if (op == AT_OP_DYNAMIC_UPDATE_SLICE) {
    at_type ut = *t;
    ut.dims = size;
    AT_TRY(at_gen_like(g, ut, &u));
    at_step_operand(&s, u);
  } else {
    at_step_ints(&s, AT_ATTR_SLICE_SIZES, size, t->rank);
  }
  at_dtype it = AT_GEN_PICK(g, ints);
  for (uint32_t i = 0; i < t->rank; i++) {
    at_value at;
    AT_TRY(at_gen_like(g, at_type_scalar(it), &at));
    at_step_operand(&s, at);
  }
  return at_step_build(g, &s);
}

// Up to four parts, some of them empty.
at_status at_gen_concatenate(at_gen *g, at_op op, at_dtype e) {
  at_value x;
  at_step s = {.op = op};
  AT_TRY(at_gen_ranked(g, e, 1, 5, &x));
  const at_type *t = at_value_type(x);
  uint32_t d = at_gen_below(g, t->rank), more = at_gen_below(g, 4);
  at_step_operand(&s, x);
  for (uint32_t k = 0; k < more; k++) {
    int64_t *dims;
    at_value y;
    AT_TRY_ALLOC(dims, at_gen_dims(g, t->rank));
    for (uint32_t i = 0; i < t->rank; i++)
      dims[i] = i == d ? at_gen_below(g, (uint32_t)t->dims[d] + 1) : t->dims[i];
    at_type u = {.dtype = t->dtype, .rank = t->rank, .dims = dims};
    AT_TRY(at_gen_like(g, u, &y));
    at_step_operand(&s, y);
  }
  at_step_int(&s, AT_ATTR_DIMENSION, d);
  return at_step_build(g, &s);
}
