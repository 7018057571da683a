// Dynamic shapes whose sizes are constants become static ones. One walk in
// order: shape arithmetic is folded, dynamic ops turn static, result types
// follow.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };

typedef struct refiner {
  at_rw rw;
  int64_t budget;  // element operations for folding shape arithmetic
} refiner;

// Results only.
static bool is_static(const at_node *n) {
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!at_type_is_static(&n->types[i])) return false;
  return true;
}

// Operands only.
static bool operands_static(const at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!at_type_is_static(at_value_type(n->operands[i]))) return false;
  return true;
}

// A constant list of sizes.
static bool sizes_of(at_value v, int64_t *out, uint32_t *rank) {
  const at_literal *l = at_const_of(v);
  if (!l || l->type.rank > 1 || !at_type_is_static(&l->type) ||
      at_type_elements(&l->type) > MAX_RANK ||
      !(at_is_int(l->type.dtype) || l->type.dtype == AT_PRED))
    return false;
  *rank = (uint32_t)at_type_elements(&l->type);
  for (uint32_t i = 0; i < *rank; i++) out[i] = at_literal_int(l, i);
  return true;
}

// The shape that operand i gives, or that the result type already states.
static bool shape_of(const at_node *n, uint32_t i, at_type *t, int64_t *dims) {
  uint32_t rank;
  *t = n->types[0];
  if (at_type_is_static(t)) return true;
  if (!sizes_of(n->operands[i], dims, &rank)) return false;
  t->rank = rank;
  t->dims = dims;
  t->bounds = NULL;
  return true;
}

// A new op of that kind takes the place of n; t NULL: its type is inferred.
static at_status become(refiner *w, at_node *n, at_op op,
                        const at_value *operands, uint32_t num,
                        const at_attr *attrs, uint32_t num_attrs,
                        const at_type *t) {
  at_value v;
  AT_TRY(at_mk(n, op, operands, num, attrs, num_attrs, t, &v));
  return at_fwd_set(&w->rw, n, 0, v);
}

// DYNAMIC_PAD with constant amounts; the three lists have one length, as the
// verifier has seen to.
static at_status pad(refiner *w, at_node *n) {
  int64_t low[MAX_RANK], high[MAX_RANK], interior[MAX_RANK];
  uint32_t rank;
  if (!sizes_of(n->operands[2], low, &rank) ||
      !sizes_of(n->operands[3], high, &rank) ||
      !sizes_of(n->operands[4], interior, &rank))
    return AT_OK;
  at_attr attrs[3] = {at_attr_ints(AT_ATTR_EDGE_PADDING_LOW, low, rank),
                      at_attr_ints(AT_ATTR_EDGE_PADDING_HIGH, high, rank),
                      at_attr_ints(AT_ATTR_INTERIOR_PADDING, interior, rank)};
  return become(w, n, AT_OP_PAD, n->operands, 2, attrs, 3, NULL);
}

// With constant bounds a SLICE; with variable ones, unit strides and a known
// result size a DYNAMIC_SLICE.
static at_status slice(refiner *w, at_node *n) {
  int64_t s[MAX_RANK], l[MAX_RANK], t[MAX_RANK];
  uint32_t rank;
  if (!sizes_of(n->operands[3], t, &rank)) return AT_OK;
  if (sizes_of(n->operands[1], s, &rank) &&
      sizes_of(n->operands[2], l, &rank)) {
    at_attr attrs[3] = {at_attr_ints(AT_ATTR_START_INDICES, s, rank),
                        at_attr_ints(AT_ATTR_LIMIT_INDICES, l, rank),
                        at_attr_ints(AT_ATTR_STRIDES, t, rank)};
    return become(w, n, AT_OP_SLICE, n->operands, 1, attrs, 3, NULL);
  }
  // A moving window of a known size.
  if (!is_static(n)) return AT_OK;
  for (uint32_t i = 0; i < rank; i++)
    if (t[i] != 1) return AT_OK;
  at_value v[MAX_RANK + 1] = {n->operands[0]};
  for (uint32_t i = 0; i < rank; i++) {
    int64_t from = i, to = i + 1, one = 1;
    AT_TRY(at_mk_slice(n, n->operands[1], &from, &to, &one, &v[1 + i]));
    AT_TRY(at_mk_reshape(n, v[1 + i], (at_dims){NULL, 0}, &v[1 + i]));
  }
  at_attr sizes = at_attr_ints(AT_ATTR_SLICE_SIZES, n->types[0].dims, rank);
  return become(w, n, AT_OP_DYNAMIC_SLICE, v, rank + 1, &sizes, 1, NULL);
}

// The same attributes, one of them replaced or added.
static at_status with_attr(refiner *w, at_node *n, at_op op,
                           uint32_t num_operands, at_attr extra) {
  at_attr *attrs;
  AT_TRY_ALLOC(attrs,
               at_new(w->rw.m->arena, at_attr, (size_t)n->num_attrs + 1));
  memcpy(attrs, n->attrs, n->num_attrs * sizeof *attrs);
  attrs[n->num_attrs] = extra;
  return become(w, n, op, n->operands, num_operands, attrs, n->num_attrs + 1,
                NULL);
}

// n becomes `op` with its constant operand i as attribute `id`; operands before
// i stay.
static at_status from_list(refiner *w, at_node *n, uint32_t i, at_op op,
                           at_attr_id id) {
  int64_t list[2 * MAX_RANK];
  uint32_t rank;
  const at_literal *l = at_const_of(n->operands[i]);
  if (!l || at_type_elements(&l->type) > 2 * MAX_RANK) return AT_OK;
  rank = (uint32_t)at_type_elements(&l->type);
  for (uint32_t k = 0; k < rank; k++) list[k] = at_literal_int(l, k);
  return with_attr(w, n, op, i, at_attr_ints(id, list, rank));
}

// A known size is a constant.
static at_status dimension_size(refiner *w, at_node *n) {
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, 0);
  const at_type *t = at_value_type(n->operands[0]);
  if (d < 0 || d >= t->rank || t->dims[d] == AT_DYN) return AT_OK;
  at_value v;
  AT_TRY(at_mk_splat_int(n, n->types[0], t->dims[d], &v));
  return at_fwd_set(&w->rw, n, 0, v);
}

// Only the full size keeps the shape static.
static at_status set_dimension(refiner *w, at_node *n) {
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, 0), size;
  const at_type *t = at_value_type(n->operands[0]);
  if (d < 0 || d >= t->rank || !at_splat_int(n->operands[1], &size) ||
      t->dims[d] != size)
    return AT_OK;
  return at_fwd_set(&w->rw, n, 0, n->operands[0]);
}

// A foreign call's last operands may be the shapes of its results: then they
// are no operands of what is called.
static at_status call_shapes(refiner *w, at_node *n) {
  at_dims list = at_node_ints(n, AT_ATTR_SHAPE_OPERANDS);
  if (!list.rank || list.rank != n->num_results) return AT_OK;
  uint32_t left = n->num_operands - AT_MIN(list.rank, n->num_operands);
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (at_dims_has(list, i) != (i >= left)) return AT_OK;
  at_type *types;
  AT_TRY_ALLOC(types, at_new(w->rw.m->arena, at_type, n->num_results));
  for (uint32_t r = 0; r < n->num_results; r++) {
    int64_t dims[MAX_RANK];
    uint32_t rank;
    if (list.ptr[r] < left || list.ptr[r] >= n->num_operands ||
        !sizes_of(n->operands[list.ptr[r]], dims, &rank) ||
        rank != n->types[r].rank)
      return AT_OK;
    for (uint32_t d = 0; d < rank; d++)
      if (dims[d] < 0) return AT_OK;
    AT_TRY(at_type_make(w->rw.m->arena, n->types[r].dtype,
                        (at_dims){dims, rank}, &types[r]));
  }
  at_attr *attrs;
  AT_TRY_ALLOC(attrs, at_new(w->rw.m->arena, at_attr, n->num_attrs + 1));
  uint32_t kept = 0;
  for (uint32_t i = 0; i < n->num_attrs; i++) {
    at_attr a = n->attrs[i];
    if (a.id == AT_ATTR_SHAPE_OPERANDS) continue;
    if (a.id == AT_ATTR_OPERAND_LAYOUTS) a.groups.n = AT_MIN(a.groups.n, left);
    attrs[kept++] = a;
  }
  n->attrs = attrs;
  n->num_attrs = kept;
  n->types = types;
  n->num_operands = left;
  return AT_OK;
}

// Replaces a dynamic op whose sizes are constants; others stay, and refine_node
// reports them.
static at_status to_static(refiner *w, at_node *n) {
  int64_t dims[MAX_RANK];
  at_type t;
  switch (n->op) {
    case AT_OP_DYNAMIC_BROADCAST_IN_DIM:
      if (!shape_of(n, 1, &t, dims)) return AT_OK;
      return become(w, n, AT_OP_BROADCAST_IN_DIM, n->operands, 1, n->attrs,
                    n->num_attrs, &t);
    case AT_OP_DYNAMIC_RESHAPE:
      if (!shape_of(n, 1, &t, dims)) return AT_OK;
      return become(w, n, AT_OP_RESHAPE, n->operands, 1, NULL, 0, &t);
    case AT_OP_DYNAMIC_IOTA:
      if (!shape_of(n, 0, &t, dims)) return AT_OK;
      return become(w, n, AT_OP_IOTA, NULL, 0, n->attrs, n->num_attrs, &t);
    case AT_OP_DYNAMIC_PAD:
      return pad(w, n);
    case AT_OP_REAL_DYNAMIC_SLICE:
      return slice(w, n);
    case AT_OP_DYNAMIC_GATHER:
      return from_list(w, n, 2, AT_OP_GATHER, AT_ATTR_SLICE_SIZES);
    case AT_OP_DYNAMIC_CONV:
      return from_list(w, n, 2, AT_OP_CONVOLUTION, AT_ATTR_PADDING);
    case AT_OP_GET_DIMENSION_SIZE:
      return dimension_size(w, n);
    case AT_OP_SET_DIMENSION_SIZE:
      return set_dimension(w, n);
    case AT_OP_CUSTOM_CALL:
      return call_shapes(w, n);
    default:
      return AT_OK;
  }
}

static at_status refine_comp(refiner *w, at_comp *c);

// Regions take the types of what comes in, and give those of what goes out.
static at_status refine_regions(refiner *w, at_node *n) {
  for (uint32_t k = 0; k < n->num_regions; k++) {
    at_comp *c = n->regions[k];
    if (n->op == AT_OP_WHILE)
      for (uint32_t i = 0; i < c->num_params && i < n->num_operands; i++)
        if (!is_static(c->params[i]))
          c->params[i]->types[0] = *at_value_type(n->operands[i]);
    AT_TRY(refine_comp(w, c));
  }
  if (is_static(n)) return AT_OK;
  if (n->op == AT_OP_WHILE) {
    for (uint32_t i = 0; i < n->num_results; i++)
      n->types[i] = *at_value_type(n->operands[i]);
  } else if (at_is_control(n->op)) {
    for (uint32_t i = 0; i < n->num_results; i++)
      n->types[i] = *at_value_type(n->regions[0]->results[i]);
  }
  return AT_OK;
}

// The result types follow from static operands.
static at_status retype(refiner *w, at_node *n) {
  if (n->op == AT_OP_CONVERT) {
    n->types[0] =
        at_type_with(*at_value_type(n->operands[0]), n->types[0].dtype);
    return AT_OK;
  }
  at_type *before = n->types;
  uint32_t count = n->num_results;
  n->types = NULL;
  n->num_results = 0;
  at_status st = at_op_of(n->op)->infer(w->rw.m, n);
  if (at_ok(st) && n->types && n->num_results == count) return AT_OK;
  at_status_free(st);
  n->types = before;  // a rule that needs declared types
  n->num_results = count;
  return AT_OK;
}

// n static, or UNIMPLEMENTED. Results are folded at once, as later shapes
// depend on them.
static at_status refine_node(refiner *w, at_node *n) {
  AT_TRY(to_static(w, n));
  if (at_fwd_has(n)) return AT_OK;
  if (n->num_regions) AT_TRY(refine_regions(w, n));
  if (!is_static(n) && operands_static(n) && n->num_operands)
    AT_TRY(retype(w, n));
  if (!is_static(n))
    return at_fail_at(
        AT_UNIMPLEMENTED, n,
        "a dimension stays unknown once constants are folded\n"
        "hint: Atoll compiles static shapes; make the sizes that this "
        "depends on compile-time constants");
  bool did;
  return at_fold_node(&w->rw, n, &w->budget, &did);
}

// The dynamic ops stand side by side in the op table.
static bool needs_refining(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (!is_static(n) || at_node_attr(n, AT_ATTR_SHAPE_OPERANDS)) return true;
    if (n->op >= AT_OP_DYNAMIC_BROADCAST_IN_DIM &&
        n->op <= AT_OP_SET_DIMENSION_SIZE)
      return true;
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (needs_refining(n->regions[i])) return true;
  }
  return false;
}

bool at_needs_refining(const at_module *m) {
  bool any = false;
  for (uint32_t i = 0; i < m->num_funcs; i++)
    any |= needs_refining(m->funcs[i]);
  return any;
}

// Operands come first, so one walk refines all.
static at_status refine_comp(refiner *w, at_comp *c) {
  for (at_node *n = c->first, *next; n; n = next) {
    next = n->next;
    at_fwd_operands(n);
    AT_TRY(refine_node(w, n));
  }
  at_fwd_results(c);
  return AT_OK;
}

// The budget of 4 M element operations is for shape arithmetic, which is tiny.
at_status at_pass_refine(at_module *m, const at_pass_options *o) {
  refiner w = {.rw = {.m = m, .o = o}, .budget = 1 << 22};
  for (uint32_t i = 0; i < m->num_funcs; i++) {
    if (!needs_refining(m->funcs[i])) continue;
    AT_TRY(refine_comp(&w, m->funcs[i]));
  }
  at_dce(m);
  return AT_OK;
}
