// Short builders for passes: at_mk_x(at, ...) builds an op in front of node
// `at`, with its place in the source, and lets inference find the type where it
// can. What would change nothing (a reshape to the same shape, a slice of
// everything) is not built: the operand comes back.
// Attributes and literals are copied by the builder, so arguments may be on the
// stack.
#include <stdarg.h>
#include <stdio.h>

#include "passes/passes_internal.h"

at_attr at_attr_int(at_attr_id id, int64_t i) {
  at_attr a = {.id = id};
  a.i = i;
  return a;
}

at_attr at_attr_ints(at_attr_id id, const int64_t *p, uint32_t n) {
  at_attr a = {.id = id};
  a.ints = (at_dims){p, n};
  return a;
}

// The message is cut at 511 bytes; the node's text is the detail.
at_status at_fail_at(at_code code, const at_node *n, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  at_strbuf b = {0};
  at_node_describe(&b, n);
  at_status st = AT_FAIL(code, "%s: %s\ndetail: %.*s", at_op_text(n->op), text,
                         (int)b.len, b.ptr ? b.ptr : "");
  at_strbuf_free(&b);
  return st;
}

// type NULL: inferred. A result beside the first is reached through out->node.
at_status at_mk(at_node *at, at_op op, const at_value *operands, uint32_t n,
                const at_attr *attrs, uint32_t num_attrs, const at_type *type,
                at_value *out) {
  at_node_desc d = {.op = op,
                    .operands = operands,
                    .num_operands = n,
                    .attrs = attrs,
                    .num_attrs = num_attrs,
                    .types = type,
                    .num_types = type ? 1 : 0,
                    .loc = at->loc};
  at_node *node;
  AT_TRY(at_build(at->parent, at, &d, &node));
  *out = (at_value){node, 0};
  return AT_OK;
}

at_status at_mk1(at_node *at, at_op op, at_value a, at_value *out) {
  return at_mk(at, op, &a, 1, NULL, 0, NULL, out);
}

at_status at_mk2(at_node *at, at_op op, at_value a, at_value b, at_value *out) {
  at_value v[2] = {a, b};
  return at_mk(at, op, v, 2, NULL, 0, NULL, out);
}

static at_type type_of(at_dtype t, at_dims dims) {
  return (at_type){.dtype = t, .rank = dims.rank, .dims = dims.ptr};
}

// No node where the type is the same.
at_status at_mk_convert(at_node *at, at_value a, at_dtype t, at_value *out) {
  if (at_value_type(a)->dtype == t) {
    *out = a;
    return AT_OK;
  }
  at_type type = at_type_with(*at_value_type(a), t);
  return at_mk(at, AT_OP_CONVERT, &a, 1, NULL, 0, &type, out);
}

at_status at_mk_reshape(at_node *at, at_value a, at_dims dims, at_value *out) {
  const at_type *from = at_value_type(a);
  if (at_dims_eq(at_type_dims(from), dims)) {
    *out = a;
    return AT_OK;
  }
  at_type type = type_of(from->dtype, dims);
  return at_mk(at, AT_OP_RESHAPE, &a, 1, NULL, 0, &type, out);
}

// The result's type is inferred.
at_status at_mk_transpose(at_node *at, at_value a, const int64_t *perm,
                          at_value *out) {
  const at_type *from = at_value_type(a);
  bool same = true;
  for (uint32_t i = 0; i < from->rank; i++) {
    AT_ASSERT(perm[i] >= 0 && perm[i] < from->rank);
    same &= perm[i] == i;
  }
  if (same) {
    *out = a;
    return AT_OK;
  }
  at_attr attr = at_attr_ints(AT_ATTR_PERMUTATION, perm, from->rank);
  return at_mk(at, AT_OP_TRANSPOSE, &a, 1, &attr, 1, NULL, out);
}

// `where` may be NULL for a scalar.
at_status at_mk_broadcast(at_node *at, at_value a, at_dims dims,
                          const int64_t *where, at_value *out) {
  const at_type *from = at_value_type(a);
  bool same = at_dims_eq(at_type_dims(from), dims);
  for (uint32_t i = 0; same && i < from->rank; i++) same = where[i] == i;
  if (same) {
    *out = a;
    return AT_OK;
  }
  at_type type = type_of(from->dtype, dims);
  at_attr attr = at_attr_ints(AT_ATTR_BROADCAST_DIMENSIONS, where, from->rank);
  return at_mk(at, AT_OP_BROADCAST_IN_DIM, &a, 1, &attr, 1, &type, out);
}

at_status at_mk_slice(at_node *at, at_value a, const int64_t *start,
                      const int64_t *limit, const int64_t *stride,
                      at_value *out) {
  const at_type *from = at_value_type(a);
  bool whole = true;
  for (uint32_t i = 0; i < from->rank; i++) {
    AT_ASSERT(start[i] >= 0 && start[i] <= limit[i] && stride[i] > 0);
    whole &= start[i] == 0 && limit[i] == from->dims[i] && stride[i] == 1;
  }
  if (whole) {
    *out = a;
    return AT_OK;
  }
  at_attr attrs[3] = {at_attr_ints(AT_ATTR_START_INDICES, start, from->rank),
                      at_attr_ints(AT_ATTR_LIMIT_INDICES, limit, from->rank),
                      at_attr_ints(AT_ATTR_STRIDES, stride, from->rank)};
  return at_mk(at, AT_OP_SLICE, &a, 1, attrs, 3, NULL, out);
}

// `data` is copied: dims' elements of type t in storage form.
at_status at_mk_constant(at_node *at, at_dtype t, at_dims dims,
                         const void *data, at_value *out) {
  at_arena *a = at->parent->module->arena;
  at_type type;
  at_attr value = {.id = AT_ATTR_VALUE};
  AT_TRY(at_type_make(a, t, dims, &type));
  AT_TRY(at_literal_make(a, type, data, false, true, &value.literal));
  return at_mk(at, AT_OP_CONSTANT, NULL, 0, &value, 1, &type, out);
}

// A gather of whole slices: places[i] is the index along `dim` of the result's
// slice i. Out of range is clamped, as gathers have it.
at_status at_mk_take(at_node *at, at_value x, int64_t dim, at_dims size,
                     const int32_t *places, at_value *out) {
  const at_type *t = at_value_type(x);
  at_arena *a = at->parent->module->arena;
  int64_t *others, *window, num = 0;
  AT_TRY_ALLOC(others, at_new(a, int64_t, t->rank));
  AT_TRY_ALLOC(window, at_new(a, int64_t, t->rank));
  for (int64_t d = 0; d < t->rank; d++) {
    if (d != dim) others[num++] = d;
    window[d] = d == dim ? 1 : t->dims[d];
  }
  at_attr attrs[] = {at_attr_ints(AT_ATTR_OFFSET_DIMS, others, t->rank - 1),
                     at_attr_ints(AT_ATTR_COLLAPSED_SLICE_DIMS, &dim, 1),
                     at_attr_ints(AT_ATTR_START_INDEX_MAP, &dim, 1),
                     at_attr_int(AT_ATTR_INDEX_VECTOR_DIM, 1),
                     at_attr_ints(AT_ATTR_SLICE_SIZES, window, t->rank)};
  at_value v[2] = {x};
  AT_TRY(at_mk_constant(at, AT_S32, size, places, &v[1]));
  return at_mk(at, AT_OP_GATHER, v, 2, attrs, AT_LEN(attrs), NULL, out);
}

// x times weight[i] at index i along `dim`.
at_status at_mk_weighted(at_node *at, at_value x, int64_t dim, at_dims size,
                         const float *weight, at_value *out) {
  at_value w;
  AT_TRY(at_mk_constant(at, AT_F32, size, weight, &w));
  AT_TRY(at_mk_broadcast(at, w, at_type_dims(at_value_type(x)), &dim, &w));
  return at_mk2(at, AT_OP_MULTIPLY, x, w, out);
}

// One element in the arena, whatever t's size.
at_status at_mk_splat(at_node *at, at_type t, const void *element,
                      at_value *out) {
  const at_literal *l;
  AT_TRY(
      at_literal_make(at->parent->module->arena, t, element, true, false, &l));
  at_attr attr = {.id = AT_ATTR_VALUE};
  attr.literal = l;
  return at_mk(at, AT_OP_CONSTANT, NULL, 0, &attr, 1, &t, out);
}

// Also of floats and complex numbers: the whole number.
at_status at_mk_splat_int(at_node *at, at_type t, int64_t x, at_value *out) {
  uint64_t element[2] = {0};
  if (at_is_float(t.dtype) || at_is_complex(t.dtype))
    at_store_float(at_real_of(t.dtype), element, (double)x);
  else
    at_store_int(t.dtype, element, x);
  return at_mk_splat(at, t, element, out);
}

at_status at_mk_splat_float(at_node *at, at_type t, double x, at_value *out) {
  uint64_t element[2] = {0};  // the imaginary part of a complex number
  at_store_float(at_real_of(t.dtype), element, x);
  return at_mk_splat(at, t, element, out);
}

// The comparison type follows from the operands' element type.
at_status at_mk_compare(at_node *at, at_direction d, at_value a, at_value b,
                        at_value *out) {
  at_dtype t = at_value_type(a)->dtype;
  at_compare_type kind = at_is_float(t) || at_is_complex(t) ? AT_CMP_FLOAT
                         : at_is_signed_int(t)              ? AT_CMP_SIGNED
                                                            : AT_CMP_UNSIGNED;
  at_value v[2] = {a, b};
  at_attr attrs[2] = {at_attr_int(AT_ATTR_COMPARISON_DIRECTION, d),
                      at_attr_int(AT_ATTR_COMPARE_TYPE, kind)};
  return at_mk(at, AT_OP_COMPARE, v, 2, attrs, 2, NULL, out);
}

// The body of a reduction: op(a, b) of two scalars.
at_status at_mk_binary_region(at_module *m, at_op op, at_dtype t,
                              const at_loc *loc, at_comp **out) {
  at_comp *c;
  at_value v[2], r;
  AT_TRY(at_region_create(m, &c));
  AT_TRY(at_build_param(c, at_type_scalar(t), loc, &v[0]));
  AT_TRY(at_build_param(c, at_type_scalar(t), loc, &v[1]));
  AT_TRY(at_build_op(c, NULL, op, v, 2, loc, &r));
  AT_TRY(at_comp_return(c, &r, 1));
  *out = c;
  return AT_OK;
}

// The body is built here, of scalars of x's element type.
at_status at_mk_reduce(at_node *at, at_op op, at_value x, at_value init,
                       at_dims dims, at_value *out) {
  at_module *m = at->parent->module;
  at_comp *body;
  AT_TRY(at_mk_binary_region(m, op, at_value_type(x)->dtype, at->loc, &body));
  at_attr attr = at_attr_ints(AT_ATTR_DIMENSIONS, dims.ptr, dims.rank);
  at_value v[2] = {x, init};
  at_node_desc d = {.op = AT_OP_REDUCE,
                    .operands = v,
                    .num_operands = 2,
                    .attrs = &attr,
                    .num_attrs = 1,
                    .regions = &body,
                    .num_regions = 1,
                    .loc = at->loc};
  at_node *n;
  AT_TRY(at_build(at->parent, at, &d, &n));
  *out = (at_value){n, 0};
  return AT_OK;
}

// A scalar body on whole arrays: each of its nodes once, with the arrays'
// dimensions. A body that is not elementwise leaves *out without a node, and
// nothing is built.
at_status at_mk_mapped(at_node *at, const at_comp *body, const at_value *args,
                       at_dims dims, at_value *out) {
  at_arena *a = at->parent->module->arena;
  at_map values = at_map_in(a);
  out->node = NULL;
  AT_FOR_NODES(k, body) {
    bool leaf = k->op == AT_OP_PARAMETER || k->op == AT_OP_CONSTANT;
    if (!leaf && (!at_op_is(k->op, AT_ELEMENTWISE) || k->num_operands > 3))
      return AT_OK;
  }
  AT_FOR_NODES(k, body) {
    at_value v, in[3];
    at_type t = type_of(k->types[0].dtype, dims);
    if (k->op == AT_OP_PARAMETER) {
      v = args[at_node_int(k, AT_ATTR_INDEX, 0)];
    } else if (k->op == AT_OP_CONSTANT) {
      AT_TRY(at_mk_splat(at, t, at_literal_at(at_node_literal(k), 0), &v));
    } else {
      for (uint32_t i = 0; i < k->num_operands; i++) {
        void **known = at_map_find_ptr(&values, k->operands[i].node);
        if (known)
          in[i] = *(const at_value *)*known;
        else  // a scalar from outside
          AT_TRY(at_mk_broadcast(at, k->operands[i], dims, NULL, &in[i]));
      }
      AT_TRY(at_mk(at, k->op, in, k->num_operands, k->attrs, k->num_attrs, &t,
                   &v));
    }
    void **slot;
    AT_TRY_ALLOC(slot, at_map_put_ptr(&values, k));
    AT_TRY_ALLOC(*slot, at_arena_copy(a, &v, sizeof v, _Alignof(at_value)));
  }
  void **known = at_map_find_ptr(&values, body->results[0].node);
  if (known)
    *out = *(const at_value *)*known;
  else
    AT_TRY(at_mk_broadcast(at, body->results[0], dims, NULL, out));
  return AT_OK;
}
