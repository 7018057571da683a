// Shape rules of contractions, windows, reductions and other ops with bodies;
// how a rule works is said in infer_move.c. Signatures of bodies are
// verify.c's: a rule only asks what a body returns.
#include "hlo/hlo_internal.h"

static bool agree(int64_t a, int64_t b) {
  return a == b || a == AT_DYN || b == AT_DYN;
}

// Contractions may accumulate into another element type: the declared one wins.
static at_dtype dot_dtype(const at_node *n) {
  return n->types && n->num_results ? n->types[0].dtype
                                    : at_value_type(n->operands[0])->dtype;
}

// Dimensions of the two sides that go together, pair by pair: in range, none
// twice, of equal size.
static at_status check_pairs(const at_node *n, at_attr_id li, at_attr_id ri,
                             at_dims l, at_dims r) {
  const at_type *a = at_value_type(n->operands[0]);
  const at_type *b = at_value_type(n->operands[1]);
  AT_TRY(at_dims_check(n, li, l, a->rank, false));
  AT_TRY(at_dims_check(n, ri, r, b->rank, false));
  if (l.rank != r.rank)
    return AT_BAD(n, "%s has %u entries, %s has %u", at_attr_text(li), l.rank,
                  at_attr_text(ri), r.rank);
  for (uint32_t i = 0; i < l.rank; i++)
    if (!agree(a->dims[l.ptr[i]], b->dims[r.ptr[i]]))
      return AT_BAD(n, "%s %lld is %lld long, %s %lld is %lld",
                    at_attr_text(li), (long long)l.ptr[i],
                    (long long)a->dims[l.ptr[i]], at_attr_text(ri),
                    (long long)r.ptr[i], (long long)b->dims[r.ptr[i]]);
  return AT_OK;
}

// No dimension of one side is both batching and contracting.
static at_status check_disjoint(const at_node *n, const char *side, at_dims b,
                                at_dims c) {
  for (uint32_t i = 0; i < b.rank; i++)
    if (at_dims_has(c, b.ptr[i]))
      return AT_BAD(n, "%s dimension %lld is both batching and contracting",
                    side, (long long)b.ptr[i]);
  return AT_OK;
}

// Batching and contracting dimensions of both sides.
typedef struct dot_dims {
  at_dims lb, rb, lc, rc;
} dot_dims;

// Reads the four lists and checks them: pairs agree in number and size, none is
// named twice.
static at_status read_dot(const at_node *n, dot_dims *d) {
  d->lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  d->rb = at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS);
  d->lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  d->rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS);
  AT_TRY(check_pairs(n, AT_ATTR_LHS_BATCHING_DIMENSIONS,
                     AT_ATTR_RHS_BATCHING_DIMENSIONS, d->lb, d->rb));
  AT_TRY(check_pairs(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS,
                     AT_ATTR_RHS_CONTRACTING_DIMENSIONS, d->lc, d->rc));
  AT_TRY(check_disjoint(n, "lhs", d->lb, d->lc));
  return check_disjoint(n, "rhs", d->rb, d->rc);
}

// Appends the dims of `t` that none of the lists names.
static uint32_t add_free(const at_type *t, at_dims x, at_dims y, at_dims z,
                         int64_t *dims, uint32_t rank) {
  for (uint32_t i = 0; i < t->rank; i++)
    if (!at_dims_has(x, i) && !at_dims_has(y, i) && !at_dims_has(z, i))
      dims[rank++] = t->dims[i];
  return rank;
}

// Batching dimensions first, in the order in which the left side names them,
// then what is left of each side.
at_status at_infer_dot_general(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  const at_type *b = at_value_type(n->operands[1]);
  dot_dims d;
  int64_t *dims;
  AT_TRY(read_dot(n, &d));
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, (size_t)a->rank + b->rank));
  uint32_t rank = 0;
  at_dims none = {NULL, 0};
  for (; rank < d.lb.rank; rank++) {
    dims[rank] = a->dims[d.lb.ptr[rank]];
    if (dims[rank] == AT_DYN) dims[rank] = b->dims[d.rb.ptr[rank]];
  }
  rank = add_free(a, d.lb, d.lc, none, dims, rank);
  rank = add_free(b, d.rb, d.rc, none, dims, rank);
  at_type r = {.dtype = dot_dtype(n), .rank = rank, .dims = dims};
  return at_infer_set(m, n, &r, 1);
}

// By what the left side's ragged dimension is: a free one (rows of the groups
// use different matrices of the right side, which `group` counts), a
// contracting one (each group gives a result of its own: a new first
// dimension), or a batching one.
at_status at_infer_ragged_dot(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  const at_type *b = at_value_type(n->operands[1]);
  const at_type *g = at_value_type(n->operands[2]);
  at_dims ragged = at_node_ints(n, AT_ATTR_LHS_RAGGED_DIMENSIONS);
  at_dims group = at_node_ints(n, AT_ATTR_RHS_GROUP_DIMENSIONS);
  dot_dims d;
  int64_t *dims;
  AT_TRY(read_dot(n, &d));
  AT_TRY(
      at_dims_check(n, AT_ATTR_LHS_RAGGED_DIMENSIONS, ragged, a->rank, false));
  AT_TRY(at_dims_check(n, AT_ATTR_RHS_GROUP_DIMENSIONS, group, b->rank, false));
  if (ragged.rank != 1)
    return AT_BAD(n, "lhs_ragged_dimensions has %u entries, needs 1",
                  ragged.rank);
  bool batch = at_dims_has(d.lb, ragged.ptr[0]);
  bool contracting = at_dims_has(d.lc, ragged.ptr[0]);
  if (group.rank != (batch || contracting ? 0u : 1u))
    return AT_BAD(n, "rhs_group_dimensions has %u entries, needs %d",
                  group.rank, batch || contracting ? 0 : 1);
  if (!g->rank || !at_is_int(g->dtype))
    return AT_BAD(n, "group sizes are %s, must be integers of rank >= 1",
                  at_type_z(g).z);
  int64_t groups = g->dims[g->rank - 1];
  if (group.rank &&
      (!agree(b->dims[group.ptr[0]], groups) ||
       at_dims_has(d.rb, group.ptr[0]) || at_dims_has(d.rc, group.ptr[0])))
    return AT_BAD(n,
                  "rhs_group_dimensions must name a dimension of its own of "
                  "size %lld",
                  (long long)groups);
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, (size_t)a->rank + b->rank + 1));
  uint32_t rank = 0;
  if (contracting) dims[rank++] = groups;
  for (uint32_t i = 0; i < d.lb.rank; i++) dims[rank++] = a->dims[d.lb.ptr[i]];
  rank = add_free(a, d.lb, d.lc, (at_dims){NULL, 0}, dims, rank);
  rank = add_free(b, d.rb, d.rc, group, dims, rank);
  at_type r = {.dtype = dot_dtype(n), .rank = rank, .dims = dims};
  return at_infer_set(m, n, &r, 1);
}

// ---- Windows

// Places of a window of `window` elements, window_dilation apart, on n
// elements, base_dilation apart, with low and high of padding (negative: cut
// off): floor((padded - span) / stride) + 1, and 0 where it does not fit once.
int64_t at_window_count(int64_t n, int64_t base_dilation, int64_t low,
                        int64_t high, int64_t window, int64_t window_dilation,
                        int64_t stride) {
  if (n == AT_DYN) return AT_DYN;
  // 128 bits: hostile attributes must not overflow.
  __int128 base = n ? (__int128)(n - 1) * base_dilation + 1 : 0;
  __int128 padded = base + low + high;
  __int128 span = window ? (__int128)(window - 1) * window_dilation + 1 : 0;
  if (padded < span || padded <= 0) return 0;
  __int128 count = (padded - span) / stride + 1;
  return count > INT64_MAX ? INT64_MAX : (int64_t)count;
}

// Window sizes, strides and dilations are at least 1; at_window_count divides
// by the stride.
static at_status check_positive(const at_node *n, at_attr_id id,
                                const int64_t *v, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (v[i] < 1)
      return AT_BAD(n, "%s[%u] = %lld must be positive", at_attr_text(id), i,
                    (long long)v[i]);
  return AT_OK;
}

// One entry for each dimension, 1 where the attribute is absent.
static at_status read_positive(at_arena *a, const at_node *n, at_attr_id id,
                               uint32_t count, const int64_t **out) {
  AT_TRY(at_ints_or(a, n, id, count, 1, out));
  return check_positive(n, id, *out, count);
}

// Every dimension of each of the three arrays is named once: as batch (or
// output feature), feature, or spatial.
at_status at_conv_dims_read(at_arena *a, const at_node *n, at_conv_dims *out) {
  at_conv_dims c = {0};
  const at_type *l = at_value_type(n->operands[0]);
  const at_type *k = at_value_type(n->operands[1]);
  if (l->rank < 2 || l->rank != k->rank)
    return AT_BAD(n, "operands must share a rank of at least 2");
  c.spatial = l->rank - 2;
  AT_TRY(read_positive(a, n, AT_ATTR_WINDOW_STRIDES, c.spatial, &c.strides));
  AT_TRY(read_positive(a, n, AT_ATTR_LHS_DILATION, c.spatial, &c.lhs_dilation));
  AT_TRY(read_positive(a, n, AT_ATTR_RHS_DILATION, c.spatial, &c.rhs_dilation));
  AT_TRY(at_ints_or(a, n, AT_ATTR_WINDOW_REVERSAL, c.spatial, 0, &c.reversal));
  if (n->op == AT_OP_CONVOLUTION)
    AT_TRY(at_ints_or(a, n, AT_ATTR_PADDING, 2 * c.spatial, 0, &c.padding));
  c.input_batch = at_node_int(n, AT_ATTR_INPUT_BATCH_DIMENSION, -1);
  c.input_feature = at_node_int(n, AT_ATTR_INPUT_FEATURE_DIMENSION, -1);
  c.input_spatial = at_node_ints(n, AT_ATTR_INPUT_SPATIAL_DIMENSIONS);
  c.kernel_input = at_node_int(n, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, -1);
  c.kernel_output = at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, -1);
  c.kernel_spatial = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  c.output_batch = at_node_int(n, AT_ATTR_OUTPUT_BATCH_DIMENSION, -1);
  c.output_feature = at_node_int(n, AT_ATTR_OUTPUT_FEATURE_DIMENSION, -1);
  c.output_spatial = at_node_ints(n, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS);
  c.feature_groups = at_node_int(n, AT_ATTR_FEATURE_GROUP_COUNT, 1);
  c.batch_groups = at_node_int(n, AT_ATTR_BATCH_GROUP_COUNT, 1);
  const struct {
    const char *what;
    int64_t x, y;
    at_dims s;
  } parts[] = {{"input", c.input_batch, c.input_feature, c.input_spatial},
               {"kernel", c.kernel_input, c.kernel_output, c.kernel_spatial},
               {"output", c.output_batch, c.output_feature, c.output_spatial}};
  for (size_t p = 0; p < AT_LEN(parts); p++) {
    bool fits = parts[p].s.rank == c.spatial;
    for (uint32_t d = 0; fits && d < l->rank; d++) {
      int times = (parts[p].x == d) + (parts[p].y == d);
      for (uint32_t i = 0; i < c.spatial; i++) times += parts[p].s.ptr[i] == d;
      fits = times == 1;
    }
    if (!fits)
      return AT_BAD(n, "%s dimension numbers are not a permutation of [0, %u)",
                    parts[p].what, l->rank);
  }
  if (c.feature_groups < 1 || c.batch_groups < 1 ||
      (c.feature_groups > 1 && c.batch_groups > 1))
    return AT_BAD(n,
                  "feature_group_count %lld and batch_group_count %lld: both "
                  "must be positive, one of them 1",
                  (long long)c.feature_groups, (long long)c.batch_groups);
  *out = c;
  return AT_OK;
}

// Groups of features: each sees its share of the input's. Groups of the batch:
// each makes its share of the output's features.
static at_status check_conv_groups(const at_node *n, const at_conv_dims *c) {
  const at_type *l = at_value_type(n->operands[0]);
  const at_type *k = at_value_type(n->operands[1]);
  int64_t in = l->dims[c->input_feature], batch = l->dims[c->input_batch];
  int64_t kin = k->dims[c->kernel_input], kout = k->dims[c->kernel_output];
  if (in != AT_DYN && kin != AT_DYN &&
      (in % c->feature_groups || in / c->feature_groups != kin))
    return AT_BAD(n, "%lld input features in %lld groups, kernel takes %lld",
                  (long long)in, (long long)c->feature_groups, (long long)kin);
  if (kout != AT_DYN && (kout % c->feature_groups || kout % c->batch_groups))
    return AT_BAD(n, "%lld output features do not split into %lld groups",
                  (long long)kout,
                  (long long)AT_MAX(c->feature_groups, c->batch_groups));
  if (batch != AT_DYN && batch % c->batch_groups)
    return AT_BAD(n, "batch of %lld does not split into %lld groups",
                  (long long)batch, (long long)c->batch_groups);
  return AT_OK;
}

// An unknown padding (dynamic_conv) leaves spatial dimensions open.
at_status at_infer_convolution(at_module *m, at_node *n) {
  const at_type *l = at_value_type(n->operands[0]);
  const at_type *k = at_value_type(n->operands[1]);
  at_conv_dims c;
  int64_t *dims;
  AT_TRY(at_conv_dims_read(m->arena, n, &c));
  AT_TRY(check_conv_groups(n, &c));
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, l->rank));
  int64_t batch = l->dims[c.input_batch];
  dims[c.output_batch] = batch == AT_DYN ? AT_DYN : batch / c.batch_groups;
  dims[c.output_feature] = k->dims[c.kernel_output];
  for (uint32_t i = 0; i < c.spatial; i++) {
    int64_t *d = &dims[c.output_spatial.ptr[i]];
    int64_t window = k->dims[c.kernel_spatial.ptr[i]];
    *d = c.padding && window != AT_DYN
             ? at_window_count(l->dims[c.input_spatial.ptr[i]],
                               c.lhs_dilation[i], c.padding[2 * i],
                               c.padding[2 * i + 1], window, c.rhs_dilation[i],
                               c.strides[i])
             : AT_DYN;
  }
  at_type r = {.dtype = dot_dtype(n), .rank = l->rank, .dims = dims};
  return at_infer_set(m, n, &r, 1);
}

// ---- Bodies

// (inputs..., inits...): the inputs share a shape, each init is a scalar.
static at_status check_reducer(const at_node *n, uint32_t *out_inputs) {
  uint32_t k = n->num_operands / 2;
  const at_type *a = at_value_type(n->operands[0]);
  if (n->num_operands % 2)
    return AT_BAD(n, "needs as many initial values as inputs");
  if (n->regions[0] && n->regions[0]->num_results != k)
    return AT_BAD(n, "body returns %u values, needs %u",
                  n->regions[0]->num_results, k);
  for (uint32_t i = 0; i < k; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    const at_type *init = at_value_type(n->operands[k + i]);
    at_type like = at_type_with(*a, t->dtype);
    if (!at_type_compatible(t, &like))
      return AT_BAD(n, "input %u is %s, must have the shape of %s", i,
                    at_type_z(t).z, at_type_z(a).z);
    if (init->rank)
      return AT_BAD(n, "initial value %u is %s, must be a scalar", i,
                    at_type_z(init).z);
  }
  *out_inputs = k;
  return AT_OK;
}

// Results have the shape `shape` and the body's element types.
static at_status set_reduced(at_module *m, at_node *n, uint32_t k,
                             at_type shape) {
  at_type *t;
  AT_TRY_ALLOC(t, at_new(m->arena, at_type, k));
  for (uint32_t i = 0; i < k; i++) {
    const at_type *r = at_value_type(n->regions[0]->results[i]);
    if (r->rank) return AT_BAD(n, "body result %u is not a scalar", i);
    t[i] = at_type_with(shape, r->dtype);
    t[i].quant = NULL;
  }
  return at_infer_set(m, n, t, k);
}

// The operand's dimensions without the reduced ones, in order.
at_status at_infer_reduce(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  at_dims gone = at_node_ints(n, AT_ATTR_DIMENSIONS);
  uint32_t k, rank = 0;
  int64_t *dims;
  AT_TRY(check_reducer(n, &k));
  AT_TRY(at_dims_check(n, AT_ATTR_DIMENSIONS, gone, a->rank, false));
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, a->rank));
  for (uint32_t i = 0; i < a->rank; i++)
    if (!at_dims_has(gone, i)) dims[rank++] = a->dims[i];
  return set_reduced(m, n, k, (at_type){.rank = rank, .dims = dims});
}

// Results are shaped like the inputs.
at_status at_infer_scan(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, -1);
  uint32_t k;
  AT_TRY(check_reducer(n, &k));
  if (d < 0 || d >= a->rank)
    return AT_BAD(n, "dimension %lld is not in [0, %u)", (long long)d, a->rank);
  return set_reduced(m, n, k, *a);
}

// One result element for each place of the window.
at_status at_infer_reduce_window(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  const int64_t *size, *stride, *base, *dilation, *pad;
  uint32_t k, rank = a->rank;
  int64_t *dims;
  AT_TRY(check_reducer(n, &k));
  AT_TRY(read_positive(m->arena, n, AT_ATTR_WINDOW_DIMENSIONS, rank, &size));
  AT_TRY(read_positive(m->arena, n, AT_ATTR_WINDOW_STRIDES, rank, &stride));
  AT_TRY(read_positive(m->arena, n, AT_ATTR_BASE_DILATIONS, rank, &base));
  AT_TRY(read_positive(m->arena, n, AT_ATTR_WINDOW_DILATIONS, rank, &dilation));
  AT_TRY(at_ints_or(m->arena, n, AT_ATTR_PADDING, 2 * rank, 0, &pad));
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, rank));
  for (uint32_t i = 0; i < rank; i++)
    dims[i] = at_window_count(a->dims[i], base[i], pad[2 * i], pad[2 * i + 1],
                              size[i], dilation[i], stride[i]);
  return set_reduced(m, n, k, (at_type){.rank = rank, .dims = dims});
}

// The source has one element for each window; the result is like the operand.
at_status at_infer_select_and_scatter(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  const at_type *s = at_value_type(n->operands[1]);
  const int64_t *size, *stride, *pad;
  int64_t *dims;
  AT_TRY(read_positive(m->arena, n, AT_ATTR_WINDOW_DIMENSIONS, a->rank, &size));
  AT_TRY(read_positive(m->arena, n, AT_ATTR_WINDOW_STRIDES, a->rank, &stride));
  AT_TRY(at_ints_or(m->arena, n, AT_ATTR_PADDING, 2 * a->rank, 0, &pad));
  AT_TRY_ALLOC(dims, at_new(m->arena, int64_t, a->rank));
  for (uint32_t i = 0; i < a->rank; i++)
    dims[i] = at_window_count(a->dims[i], 1, pad[2 * i], pad[2 * i + 1],
                              size[i], 1, stride[i]);
  at_type want = {.dtype = s->dtype, .rank = a->rank, .dims = dims};
  if (!at_type_compatible(s, &want))
    return AT_BAD(n, "source is %s, the windows give %s", at_type_z(s).z,
                  at_type_z(&want).z);
  if (at_value_type(n->operands[2])->rank)
    return AT_BAD(n, "initial value must be a scalar");
  at_type r = *a;
  if (n->types && n->num_results) r.dtype = n->types[0].dtype;
  return at_infer_set(m, n, &r, 1);
}

// Operands share a shape, their element types may differ.
at_status at_infer_map(at_module *m, at_node *n) {
  const at_comp *body = n->regions[0];
  if (!n->num_operands) return AT_BAD(n, "needs an operand");
  if (body->num_results != 1 || at_value_type(body->results[0])->rank)
    return AT_BAD(n, "body must return one scalar");
  const at_type *a = at_value_type(n->operands[0]);
  for (uint32_t i = 1; i < n->num_operands; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    at_type want = at_type_with(*a, t->dtype);
    if (!at_type_compatible(t, &want))
      return AT_BAD(n, "operand %u is %s, must have the shape of %s", i,
                    at_type_z(t).z, at_type_z(a).z);
  }
  at_type r = at_type_with(*a, at_value_type(body->results[0])->dtype);
  return at_infer_set(m, n, &r, 1);
}

// All operands are sorted by one comparison, so they share a shape.
at_status at_infer_sort(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  int64_t d = at_node_int(n, AT_ATTR_DIMENSION, -1);
  if (d < 0 || d >= a->rank)
    return AT_BAD(n, "dimension %lld is not in [0, %u)", (long long)d, a->rank);
  for (uint32_t i = 1; i < n->num_operands; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    at_type want = at_type_with(*a, t->dtype);
    if (!at_type_compatible(t, &want))
      return AT_BAD(n, "operand %u is %s, must have the shape of %s", i,
                    at_type_z(t).z, at_type_z(a).z);
  }
  return at_infer_operands(m, n);
}

at_status at_infer_while(at_module *m, at_node *n) {
  return at_infer_operands(m, n);
}

// ---- Batch norm, FFT, triangular solve

// x, then vectors along its feature dimension; the gradient also takes what
// comes from behind, shaped like x. Results: like x, and two such vectors.
static at_status infer_norm(at_module *m, at_node *n) {
  const at_type *x = at_value_type(n->operands[0]);
  int64_t f = at_node_int(n, AT_ATTR_FEATURE_INDEX, -1);
  if (!at_is_float(x->dtype)) return AT_BAD(n, "operands must be floats");
  if (f < 0 || f >= x->rank)
    return AT_BAD(n, "feature_index %lld is not in [0, %u)", (long long)f,
                  x->rank);
  at_type feature = {.dtype = x->dtype, .rank = 1, .dims = &x->dims[f]};
  for (uint32_t i = 1; i < n->num_operands; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    bool like_x = n->op == AT_OP_BATCH_NORM_GRAD && i == 4;
    if (!at_type_compatible(t, like_x ? x : &feature))
      return AT_BAD(n, "operand %u is %s, must be %s", i, at_type_z(t).z,
                    at_type_z(like_x ? x : &feature).z);
  }
  at_type t[3] = {*x, feature, feature};
  return at_infer_set(m, n, t, 3);
}
at_status at_infer_batch_norm_training(at_module *m, at_node *n) {
  return infer_norm(m, n);
}
at_status at_infer_batch_norm_grad(at_module *m, at_node *n) {
  return infer_norm(m, n);
}

// Of real input, or for real output, half of the last dimension is stored: n /
// 2 + 1.
at_status at_infer_fft(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  at_dims len = at_node_ints(n, AT_ATTR_FFT_LENGTH);
  int64_t type = at_node_int(n, AT_ATTR_FFT_TYPE, AT_FFT), *dims;
  bool real_in = type == AT_RFFT, real_out = type == AT_IRFFT;
  if (len.rank < 1 || len.rank > 3 || len.rank > a->rank)
    return AT_BAD(n,
                  "fft_length has %u entries, needs 1 to 3 and at most the "
                  "rank %u",
                  len.rank, a->rank);
  if (real_in ? a->dtype != AT_F32 && a->dtype != AT_F64
              : !at_is_complex(a->dtype))
    return AT_BAD(n, "%s takes %s elements",
                  at_enum_text(AT_ATTR_FFT_TYPE, type),
                  real_in ? "f32 or f64" : "complex");
  AT_TRY_ALLOC(dims, at_arena_copy(m->arena, a->dims, a->rank * sizeof *dims,
                                   _Alignof(int64_t)));
  for (uint32_t i = 0; i < len.rank; i++) {
    bool last = i + 1 == len.rank;
    int64_t *d = &dims[a->rank - len.rank + i];
    int64_t want =
        last && real_out && len.ptr[i] > 0 ? len.ptr[i] / 2 + 1 : len.ptr[i];
    if (len.ptr[i] < 0 || !agree(*d, want))
      return AT_BAD(n, "fft_length[%u] = %lld does not fit %s", i,
                    (long long)len.ptr[i], at_type_z(a).z);
    if (last && real_out) *d = len.ptr[i];
    if (last && real_in && len.ptr[i] > 0) *d = len.ptr[i] / 2 + 1;
  }
  at_dtype t = a->dtype;
  if (real_in) t = t == AT_F32 ? AT_C64 : AT_C128;
  if (real_out) t = at_real_of(t);
  at_type r = {.dtype = t, .rank = a->rank, .dims = dims};
  return at_infer_set(m, n, &r, 1);
}

// a is square in its last two dimensions, those before them are batches.
at_status at_infer_triangular_solve(at_module *m, at_node *n) {
  const at_type *a = at_value_type(n->operands[0]);
  const at_type *b = at_value_type(n->operands[1]);
  bool left = at_node_bool(n, AT_ATTR_LEFT_SIDE);
  bool fits = a->dtype == b->dtype && a->rank == b->rank && a->rank >= 2 &&
              (at_is_float(a->dtype) || at_is_complex(a->dtype));
  for (uint32_t i = 0; fits && i + 2 < a->rank; i++)
    fits = agree(a->dims[i], b->dims[i]);
  if (fits) {
    int64_t size = a->dims[a->rank - 1];
    fits = agree(size, a->dims[a->rank - 2]) &&
           agree(size, b->dims[b->rank - (left ? 2 : 1)]);
  }
  if (!fits)
    return AT_BAD(n, "operands do not form %s",
                  left ? "op(a) x = b" : "x op(a) = b");
  if (at_node_int(n, AT_ATTR_TRANSPOSE_A, AT_NO_TRANSPOSE) ==
      AT_TRANSPOSE_INVALID)
    return AT_BAD(n, "transpose_a is TRANSPOSE_INVALID");
  return at_infer_set(m, n, b, 1);
}
