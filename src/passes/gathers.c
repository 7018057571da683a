// Gathers of a few neighbours each (the channels of a pixel) by several
// indices: their rows are one dimension and the indices are one, so that lanes
// that follow each other in memory are known to.
#include "passes/passes_internal.h"

enum { MAX_RANK = 32 };
// Elements of a slice: fewer have no neighbours, more fill vectors of their
// own.
enum { FEWEST = 2, MOST = 12 };

typedef struct gather {
  at_node *n;
  at_dims offset, collapsed, batch, map, size;
  // Dimensions of the indices, without the one of their vectors; those that
  // count with the operand's come first.
  uint32_t rows, batches;
  int64_t row_dims[MAX_RANK];
  uint32_t parts;  // of an index vector
} gather;

// Are the entries first, first + 1, ...?
static bool counts_from(at_dims list, int64_t first) {
  for (uint32_t i = 0; i < list.rank; i++)
    if (list.ptr[i] != first + i) return false;
  return true;
}

// Reads n; false: not a gather of a few neighbours behind its rows.
static bool read(at_node *n, gather *g) {
  if (n->op != AT_OP_GATHER) return false;
  const at_type *x = at_value_type(n->operands[0]),
                *it = at_value_type(n->operands[1]);
  if (!at_type_is_static(x) || !at_type_is_static(it) ||
      at_type_elements(&n->types[0]) == 0 || it->rank > MAX_RANK ||
      x->rank > MAX_RANK)
    return false;
  int64_t vec = at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, 0), slice = 1;
  *g = (gather){.n = n,
                .offset = at_node_ints(n, AT_ATTR_OFFSET_DIMS),
                .collapsed = at_node_ints(n, AT_ATTR_COLLAPSED_SLICE_DIMS),
                .batch = at_node_ints(n, AT_ATTR_OPERAND_BATCHING_DIMS),
                .map = at_node_ints(n, AT_ATTR_START_INDEX_MAP),
                .size = at_node_ints(n, AT_ATTR_SLICE_SIZES)};
  at_dims counted = at_node_ints(n, AT_ATTR_START_INDICES_BATCHING_DIMS);
  g->parts = g->map.rank, g->batches = counted.rank;
  g->rows = (uint32_t)vec;
  if (vec + 1 < it->rank || !counts_from(g->offset, vec) ||
      !counts_from(counted, 0))
    return false;
  for (uint32_t d = 0; d < g->rows; d++) g->row_dims[d] = it->dims[d];
  for (uint32_t d = 0; d < x->rank; d++) slice *= g->size.ptr[d];
  return slice >= FEWEST && slice <= MOST;
}

// Do the indices pick one element each along neighbouring dimensions, whose
// places can be numbered?
static bool numbers(const gather *g) {
  const at_type *x = at_value_type(g->n->operands[0]);
  int64_t places = 1;
  if (g->parts < 2 || !counts_from(g->map, g->map.ptr[0]) ||
      at_value_type(g->n->operands[1])->dtype != AT_S32)
    return false;
  for (uint32_t i = 0; i < g->parts; i++) {
    if (!at_dims_has(g->collapsed, g->map.ptr[i]) ||
        __builtin_mul_overflow(places, x->dims[g->map.ptr[i]], &places))
      return false;
  }
  return places <= INT32_MAX;
}

// One index for each vector of them, within bounds: the place's number.
static at_status number(const gather *g, at_value *index) {
  at_node *n = g->n;
  const at_type *x = at_value_type(n->operands[0]);
  int64_t start[MAX_RANK] = {0}, limit[MAX_RANK], one[MAX_RANK];
  for (uint32_t d = 0; d < g->rows; d++) limit[d] = g->row_dims[d], one[d] = 1;
  one[g->rows] = 1;
  at_value sum = {NULL, 0};
  for (uint32_t i = 0; i < g->parts; i++) {
    start[g->rows] = i, limit[g->rows] = i + 1;
    int64_t places = x->dims[g->map.ptr[i]];
    at_value part, bound;
    AT_TRY(at_mk_slice(n, *index, start, limit, one, &part));
    at_type t = *at_value_type(part);
    AT_TRY(at_mk_splat_int(n, t, 0, &bound));
    AT_TRY(at_mk2(n, AT_OP_MAXIMUM, part, bound, &part));
    AT_TRY(at_mk_splat_int(n, t, places - 1, &bound));
    AT_TRY(at_mk2(n, AT_OP_MINIMUM, part, bound, &part));
    if (!sum.node) {
      sum = part;
      continue;
    }
    AT_TRY(at_mk_splat_int(n, t, places, &bound));
    AT_TRY(at_mk2(n, AT_OP_MULTIPLY, sum, bound, &sum));
    AT_TRY(at_mk2(n, AT_OP_ADD, sum, part, &sum));
  }
  *index = sum;
  return AT_OK;
}

// The lists of a gather under construction. `gone` dimensions of the operand
// behind `at` are part of that one.
typedef struct lists {
  int64_t dims[MAX_RANK], size[MAX_RANK], collapsed[MAX_RANK], batch[MAX_RANK],
      offset[MAX_RANK];
  uint32_t rank, num_collapsed;
} lists;

static void renumber(const gather *g, int64_t at, int64_t gone, lists *l) {
  const at_type *x = at_value_type(g->n->operands[0]);
  l->rank = l->num_collapsed = 0;
  for (uint32_t d = 0; d < x->rank; d++) {
    if (d > at && d <= at + gone) {
      l->dims[l->rank - 1] *= x->dims[d];
      continue;
    }
    if (at_dims_has(g->collapsed, d))
      l->collapsed[l->num_collapsed++] = l->rank;
    l->dims[l->rank] = x->dims[d];
    l->size[l->rank++] = g->size.ptr[d];
  }
  for (uint32_t i = 0; i < g->batch.rank; i++)
    l->batch[i] = g->batch.ptr[i] - (g->batch.ptr[i] > at ? gone : 0);
}

// The gather with its rows behind those that are counted as one, and its
// indices as one where they can be.
static at_status join(at_rw *r, const gather *g) {
  at_node *n = g->n;
  bool one = numbers(g);
  int64_t rows = 1, gone = one ? g->parts - 1 : 0, shape[MAX_RANK],
          map[MAX_RANK], counted[MAX_RANK];
  uint32_t b = g->batches, parts = one ? 1 : g->parts;
  at_value in[] = {n->operands[0], n->operands[1]}, v;
  if (one) AT_TRY(number(g, &in[1]));
  for (uint32_t d = 0; d < g->rows; d++)
    if (d < b)
      shape[d] = g->row_dims[d], counted[d] = d;
    else
      rows *= g->row_dims[d];
  shape[b] = rows, shape[b + 1] = parts;
  AT_TRY(at_mk_reshape(n, in[1], (at_dims){shape, b + 2}, &in[1]));
  lists l = {0};
  renumber(g, one ? g->map.ptr[0] : MAX_RANK, gone, &l);
  AT_TRY(at_mk_reshape(n, in[0], (at_dims){l.dims, l.rank}, &in[0]));
  for (uint32_t i = 0; i < parts; i++) map[i] = g->map.ptr[i];
  for (uint32_t i = 0; i < g->offset.rank; i++) l.offset[i] = b + 1 + i;
  at_attr attrs[] = {
      at_attr_ints(AT_ATTR_SLICE_SIZES, l.size, l.rank),
      at_attr_ints(AT_ATTR_OFFSET_DIMS, l.offset, g->offset.rank),
      at_attr_ints(AT_ATTR_COLLAPSED_SLICE_DIMS, l.collapsed, l.num_collapsed),
      at_attr_ints(AT_ATTR_OPERAND_BATCHING_DIMS, l.batch, b),
      at_attr_ints(AT_ATTR_START_INDICES_BATCHING_DIMS, counted, b),
      at_attr_ints(AT_ATTR_START_INDEX_MAP, map, parts),
      at_attr_int(AT_ATTR_INDEX_VECTOR_DIM, b + 1),
      at_attr_int(AT_ATTR_INDICES_ARE_SORTED, 0)};
  AT_TRY(at_mk(n, AT_OP_GATHER, in, 2, attrs, AT_LEN(attrs), NULL, &v));
  AT_TRY(at_mk_reshape(n, v, at_type_dims(&n->types[0]), &v));
  return at_fwd_set(r, n, 0, v);
}

static at_status rewrite(at_rw *r, at_node *n) {
  gather g;
  bool joins = read(n, &g) && g.rows - g.batches >= 1 &&
               (g.rows - g.batches > 1 || numbers(&g));
  return joins ? join(r, &g) : AT_OK;
}

at_status at_pass_gathers(at_module *m, const at_pass_options *o) {
  return o->small_products ? at_rw_each(m, o, rewrite) : AT_OK;
}
