// Products with matrices that have few nonzeros in a column, as interpolation
// (jax.image.resize) makes them from the sizes alone: each element of the
// result is a sum of a few weighted elements instead of all along the
// contracted dimension. What is not finite among the others still reaches the
// result, as zero times infinity does: a sum of zero times all of them is
// added.
#include "passes/passes_internal.h"

enum {
  MAX_TERMS = 12,
  MIN_K = 16,
  MIN_WORK = 1 << 16,      // multiplications of the product
  MAX_ELEMENTS = 1 << 18,  // of the matrix
  MAX_NODES = 128          // that it is made by
};

// ---- Values that depend on nothing
typedef struct evaluation {
  at_rw *r;
  at_map known;  // at_node * -> const at_literal *, or NULL where it is to come
  AT_VEC(const at_node *) nodes;
} evaluation;

// Can the evaluator compute n from its operands alone: one static, unquantised
// result of at most MAX_ELEMENTS, no effect, no value captured by a region?
static bool is_plain(const at_rw *r, const at_node *n) {
  bool leaf = n->op == AT_OP_CONSTANT || n->op == AT_OP_IOTA;
  // Leaves are constants and iotas; a parameter is never one.
  if (n->num_results != 1 || (!leaf && n->num_operands == 0) ||
      at_is_control(n->op) || n->op == AT_OP_PARAMETER || !at_is_pure(r->m, n))
    return false;
  if (!at_type_is_static(&n->types[0]) || n->types[0].quant ||
      at_type_elements(&n->types[0]) > MAX_ELEMENTS)
    return false;
  for (uint32_t i = 0; i < n->num_regions; i++) AT_FOR_NODES(k, n->regions[i]) {
      if (k->num_regions) return false;
      for (uint32_t j = 0; j < k->num_operands; j++)
        if (k->operands[j].node->parent != n->regions[i]) return false;
    }
  return true;
}

// The value known of v, replacements included; NULL: not known yet.
static const at_literal *value_of(const evaluation *e, at_value v) {
  const at_node *n = at_fwd(v).node;
  if (n->op == AT_OP_CONSTANT) return at_node_literal(n);
  void **at = at_map_find_ptr(&e->known, n);
  return at ? *at : NULL;
}

// All nodes that `root` is made by. *out: they are few and depend on nothing.
static at_status collect(evaluation *e, const at_node *root, bool *out) {
  at_arena *a = e->r->m->arena;
  *out = false;
  if (!at_vec_push(a, &e->nodes, root)) return AT_NO_MEMORY("products");
  for (size_t i = 0; i < e->nodes.len; i++) {
    const at_node *n = e->nodes.ptr[i];
    if (!is_plain(e->r, n) || e->nodes.len > MAX_NODES) return AT_OK;
    for (uint32_t k = 0; k < n->num_operands; k++) {
      const at_node *in = at_fwd(n->operands[k]).node;
      if (in->op == AT_OP_CONSTANT || at_map_find_ptr(&e->known, in)) continue;
      void **at;
      AT_TRY_ALLOC(at, at_map_put_ptr(&e->known, in));
      *at = NULL;
      if (!at_vec_push(a, &e->nodes, in)) return AT_NO_MEMORY("products");
    }
  }
  return *out = true, AT_OK;
}

// *did: all of its operands are known, and so is n now.
static at_status evaluate_node(evaluation *e, const at_node *n, bool *did) {
  at_arena *a = e->r->m->arena;
  const at_literal **args, *l;
  *did = false;
  AT_TRY_ALLOC(args, at_new(a, const at_literal *, n->num_operands + 1));
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!(args[i] = value_of(e, n->operands[i]))) return AT_OK;
  at_eval_options opt = {.max_ops = 4 * MAX_ELEMENTS};
  at_status st = at_eval_node(n, args, &opt, a, &l);
  if (!at_ok(st)) {  // the program does it at run time
    at_status_free(st);
    return AT_OK;
  }
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(&e->known, n));
  *at = (void *)l;
  return *did = true, AT_OK;
}

// *out NULL: it depends on something, or takes too long.
static at_status evaluate(at_rw *r, const at_node *root,
                          const at_literal **out) {
  evaluation e = {.r = r, .known = at_map_in(r->m->arena)};
  *out = at_node_literal(root);
  if (*out) return AT_OK;
  bool few, progress = true;
  AT_TRY(collect(&e, root, &few));
  if (!few) return AT_OK;
  while (progress && !*out) {
    progress = false;
    for (size_t i = e.nodes.len; i-- > 0;) {
      bool did = false;
      void **at = at_map_find_ptr(&e.known, e.nodes.ptr[i]);
      if (!at || !*at) AT_TRY(evaluate_node(&e, e.nodes.ptr[i], &did));
      progress |= did;
    }
    *out = value_of(&e, (at_value){(at_node *)root, 0});
  }
  return AT_OK;
}

// ---- The terms
typedef struct terms {
  int64_t columns;
  uint32_t count;  // of a column, at most
  int32_t *place;  // [count][columns]
  float *weight;   // zero where a column has fewer
} terms;

// Element k of a column of the f32 matrix m; `along_rows`: columns of the
// product are rows of m.
static float weight_at(const at_literal *m, bool along_rows, int64_t k,
                       int64_t column) {
  int64_t i =
      along_rows ? column * m->type.dims[1] + k : k * m->type.dims[1] + column;
  float w;
  memcpy(&w, at_literal_at(m, m->splat ? 0 : i), sizeof w);
  return w;
}

// count 0: there are too many.
static at_status find_terms(at_arena *a, const at_literal *m, uint32_t dim,
                            terms *t) {
  int64_t size = m->type.dims[dim];
  *t = (terms){.columns = m->type.dims[1 - dim]};
  size_t most = at_mul(MAX_TERMS, (size_t)t->columns);
  AT_TRY_ALLOC(t->place, at_new(a, int32_t, most));
  AT_TRY_ALLOC(t->weight, at_new(a, float, most));
  for (size_t i = 0; i < most; i++) t->place[i] = 0, t->weight[i] = 0;
  uint32_t count = 1;
  for (int64_t c = 0; c < t->columns; c++) {
    uint32_t n = 0;
    int32_t last = 0;
    for (int64_t k = 0; k < size; k++) {
      float w = weight_at(m, dim == 1, k, c);
      if (w == 0) continue;
      if (n == MAX_TERMS) return AT_OK;
      t->place[n * t->columns + c] = last = (int32_t)k;
      t->weight[n++ * t->columns + c] = w;
    }
    count = AT_MAX(count, n);
    for (; n < MAX_TERMS; n++) t->place[n * t->columns + c] = last;
  }
  t->count = count;
  return AT_OK;
}

// Neighbours in memory are read one by one where few lie side by side behind
// the dimension.
static bool is_worth(const terms *t, const at_type *x, uint32_t dim) {
  int64_t inner = 1, k = x->dims[dim];
  for (uint32_t d = dim + 1; d < x->rank; d++) inner *= x->dims[d];
  double work = (double)at_type_elements(x) * (double)t->columns;
  if (t->count == 0 || work < MIN_WORK) return false;
  return (inner >= 8 ? 4 : 20) * (int64_t)t->count <= k;
}

// *out = the sum over the terms of (x gathered along `dim` at their places) *
// weight, plus 0 * (sum of x along `dim`), which is NaN exactly where the dense
// product would be. The result has t->columns elements in place of dimension
// `dim`.
static at_status sum_terms(at_node *n, at_value x, int64_t dim, const terms *t,
                           at_value *out) {
  // One gather and one product for the i-th term of all columns together.
  at_dims size = {&t->columns, 1};
  for (uint32_t i = 0; i < t->count; i++) {
    at_value v;
    int64_t first = i * t->columns;
    AT_TRY(at_mk_take(n, x, dim, size, t->place + first, &v));
    AT_TRY(at_mk_weighted(n, v, dim, size, t->weight + first, &v));
    if (i > 0) AT_TRY(at_mk2(n, AT_OP_ADD, *out, v, &v));
    *out = v;
  }
  // Zero, or NaN where something along the dimension is not finite.
  const at_type *from = at_value_type(x), *to = at_value_type(*out);
  int64_t *kept, num = 0;
  AT_TRY_ALLOC(kept, at_new(n->parent->module->arena, int64_t, from->rank));
  for (int64_t d = 0; d < from->rank; d++)
    if (d != dim) kept[num++] = d;
  at_value zeros, zero, check;
  AT_TRY(at_mk_splat_int(n, *from, 0, &zeros));
  AT_TRY(at_mk_splat_int(n, at_type_scalar(from->dtype), 0, &zero));
  AT_TRY(at_mk2(n, AT_OP_MULTIPLY, x, zeros, &check));
  AT_TRY(at_mk_reduce(n, AT_OP_ADD, check, zero, (at_dims){&dim, 1}, &check));
  AT_TRY(at_mk_broadcast(n, check, at_type_dims(to), kept, &check));
  return at_mk2(n, AT_OP_ADD, *out, check, out);
}

// The product's operand x, whose dimension `at` is contracted, under a
// transpose that need not be done: dimension i of x is perm[i] of `x`.
typedef struct operand {
  at_value x;
  const int64_t *perm;  // NULL: x itself
  uint32_t at;          // of the product's operand
} operand;

static int64_t below(const operand *o, uint32_t d) {
  return o->perm ? o->perm[d] : d;
}

// Looks through a transpose, so that the gather reads x as it lies in memory.
static operand look_below(at_value x, uint32_t at) {
  operand o = {x, NULL, at};
  if (x.node->op != AT_OP_TRANSPOSE) return o;
  o.perm = at_node_ints(x.node, AT_ATTR_PERMUTATION).ptr;
  o.x = x.node->operands[0];
  return o;
}

// The dimension to where the product has it: first or last.
static at_status put_dim(at_node *n, at_value v, const operand *o, bool first,
                         at_value *out) {
  uint32_t rank = at_value_type(v)->rank, at = 0;
  int64_t *perm;
  AT_TRY_ALLOC(perm, at_new(n->parent->module->arena, int64_t, rank));
  if (first) perm[at++] = below(o, o->at);
  for (uint32_t d = 0; d < rank; d++)
    if (d != o->at) perm[at++] = below(o, d);
  if (!first) perm[at] = below(o, o->at);
  return at_mk_transpose(n, v, perm, out);
}

// Tries each side as the matrix: of rank 2, f32, few nonzeros in a column,
// computed by the program from nothing. The first side that pays is taken.
at_status at_products_banded(at_rw *r, at_node *n) {
  at_dims lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS),
          c[2] = {at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS),
                  at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS)};
  if (lb.rank || c[0].rank != 1 || n->types[0].dtype != AT_F32) return AT_OK;
  for (uint32_t side = 0; side < 2; side++) {
    at_value m = n->operands[side], x = n->operands[1 - side];
    const at_type *mt = at_value_type(m), *xt = at_value_type(x);
    if (mt->rank != 2 || mt->dtype != AT_F32 || xt->dtype != AT_F32) continue;
    uint32_t dim = (uint32_t)c[side].ptr[0], at = (uint32_t)c[1 - side].ptr[0];
    if (mt->dims[dim] < MIN_K || mt->dims[1 - dim] == 0 ||
        at_type_elements(mt) > MAX_ELEMENTS)
      continue;
    const at_literal *l;
    AT_TRY(evaluate(r, m.node, &l));
    terms t;
    if (!l) continue;
    AT_TRY(find_terms(r->m->arena, l, dim, &t));
    operand o = look_below(x, at);
    int64_t along = below(&o, at);
    if (!is_worth(&t, at_value_type(o.x), (uint32_t)along)) continue;
    at_value v;
    AT_TRY(sum_terms(n, o.x, along, &t, &v));
    AT_TRY(put_dim(n, v, &o, side == 0, &v));
    return at_fwd_set(r, n, 0, v);
  }
  return AT_OK;
}
