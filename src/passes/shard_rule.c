// One rule per op: which dimensions of its operands and results are cut alike.
#include "passes/shard.h"

// ---- Building
static uint32_t tensor_rank(const at_rule *r, uint32_t t) {
  return r->places[t] ? r->places[t]->whole.rank : 0;
}
static int64_t dim_of(const at_rule *r, uint32_t t, uint32_t d) {
  return r->places[t]->whole.dims[d];
}

// A new factor; 0xff when there are too many, and nobody is bound to it.
static uint8_t factor(at_rule *r, int64_t size, at_factor_kind kind) {
  if (r->num_factors == AT_MAX_FACTORS) return 0xff;
  r->size[r->num_factors] = size;
  r->kind[r->num_factors] = kind;
  return (uint8_t)r->num_factors++;
}

// Appends f to the factors of dimension d, minor to what is there. Beyond
// AT_MAX_DIM_FACTORS it is left out: the dimension is then cut less.
static void bind(at_rule *r, uint32_t t, uint32_t d, uint8_t f) {
  at_dim_factors *x = &r->dims[t][d];
  if (f == 0xff || x->n == AT_MAX_DIM_FACTORS) return;
  x->f[x->n++] = f;
}

// Place of d in the list; -1: not in it.
static int64_t index_in(at_dims list, int64_t d) {
  for (uint32_t i = 0; i < list.rank; i++)
    if (list.ptr[i] == d) return i;
  return -1;
}

// Dimension d of every tensor in [from, to) that has as many dimensions as
// `like`.
static void bind_all(at_rule *r, uint32_t from, uint32_t to, uint32_t like,
                     uint32_t d) {
  uint8_t f = factor(r, dim_of(r, like, d), AT_FACTOR_PASS);
  for (uint32_t t = from; t < to; t++)
    if (tensor_rank(r, t) == tensor_rank(r, like)) bind(r, t, d, f);
}

// Elementwise, but for the dimensions in `whole`.
static void rule_identity(at_rule *r, at_dims whole) {
  uint32_t like = r->num_tensors - 1;
  for (uint32_t d = 0; d < tensor_rank(r, like); d++)
    if (!at_dims_has(whole, d)) bind_all(r, 0, r->num_tensors, like, d);
}

// Parts change their ends: there must be no padding at them.
static void rule_reverse(at_rule *r, const at_node *n) {
  at_dims turned = at_node_ints(n, AT_ATTR_DIMENSIONS);
  rule_identity(r, (at_dims){0});
  for (uint32_t i = 0; i < turned.rank; i++) {
    const at_dim_factors *x = &r->dims[1][turned.ptr[i]];
    for (uint32_t k = 0; k < x->n; k++) r->even[x->f[k]] = true;
  }
}

// ---- Shapes
static int64_t gcd(int64_t a, int64_t b) {
  for (int64_t rest; b; b = rest) {
    rest = a % b;
    a = b;
  }
  return a;
}

// Walks both shapes from the major end and splits dimensions into common
// factors, as [6, 4] -> [2, 12] has factors 2, 3, 4. Stops where sizes share
// none.
static void rule_reshape(at_rule *r) {
  uint32_t i = 0, j = 0, ni = tensor_rank(r, 0), nj = tensor_rank(r, 1);
  int64_t a = 1, b = 1;  // what is left of the current dimensions
  for (uint32_t d = 0; d < ni; d++)
    if (dim_of(r, 0, d) == 0) return;
  for (;;) {
    while (a == 1 && i < ni) a = dim_of(r, 0, i++);
    while (b == 1 && j < nj) b = dim_of(r, 1, j++);
    if (a == 1 || b == 1) return;
    int64_t common = gcd(a, b);
    if (common == 1) return;  // hang together in no simple way
    uint8_t f = factor(r, common, AT_FACTOR_PASS);
    bind(r, 0, i - 1, f);
    bind(r, 1, j - 1, f);
    if (common != a && common != b) return;  // as does what follows
    a /= common;
    b /= common;
  }
}

// A dimension that is stretched is cut in the result alone.
static void rule_broadcast(at_rule *r, const at_node *n) {
  at_dims where = at_node_ints(n, AT_ATTR_BROADCAST_DIMENSIONS);
  for (uint32_t d = 0; d < tensor_rank(r, 1); d++) {
    int64_t k = index_in(where, d);
    uint8_t f = factor(r, dim_of(r, 1, d), AT_FACTOR_PASS);
    bind(r, 1, d, f);
    if (k >= 0 && dim_of(r, 0, (uint32_t)k) == dim_of(r, 1, d))
      bind(r, 0, (uint32_t)k, f);
  }
}

// Dimension d of the result is perm[d] of the operand.
static void rule_transpose(at_rule *r, const at_node *n) {
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  for (uint32_t d = 0; d < perm.rank; d++) {
    uint8_t f = factor(r, dim_of(r, 1, d), AT_FACTOR_PASS);
    bind(r, 1, d, f);
    bind(r, 0, (uint32_t)perm.ptr[d], f);
  }
}

// Dimensions that keep their size from tensor a to tensor b, others whole.
static void rule_same_size(at_rule *r, uint32_t a, uint32_t b) {
  for (uint32_t d = 0; d < tensor_rank(r, a); d++)
    if (dim_of(r, a, d) == dim_of(r, b, d)) {
      uint8_t f = factor(r, dim_of(r, a, d), AT_FACTOR_PASS);
      bind(r, a, d, f);
      bind(r, b, d, f);
    }
}

// Padded dimensions stay whole.
static void rule_pad(at_rule *r, const at_node *n) {
  at_dims lo = at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW);
  at_dims hi = at_node_ints(n, AT_ATTR_EDGE_PADDING_HIGH);
  at_dims in = at_node_ints(n, AT_ATTR_INTERIOR_PADDING);
  uint32_t out = r->num_tensors - 1;
  for (uint32_t d = 0; d < tensor_rank(r, out); d++)
    if (!lo.ptr[d] && !hi.ptr[d] && !in.ptr[d]) {
      uint8_t f = factor(r, dim_of(r, out, d), AT_FACTOR_PASS);
      bind(r, 0, d, f);
      bind(r, out, d, f);
    }
}

// Where one element of a dimension is replaced, only who holds it does so.
static void rule_update_slice(at_rule *r) {
  uint32_t out = r->num_tensors - 1;
  for (uint32_t d = 0; d < tensor_rank(r, out); d++) {
    bool all = dim_of(r, 1, d) == dim_of(r, 0, d);
    if (!all && dim_of(r, 1, d) != 1) continue;
    uint8_t f =
        factor(r, dim_of(r, out, d), all ? AT_FACTOR_PASS : AT_FACTOR_STORE);
    bind(r, 0, d, f);
    if (all) bind(r, 1, d, f);
    bind(r, out, d, f);
  }
}

// The trailing dimension that a change of width adds or takes stays whole.
static void rule_bitcast(at_rule *r) {
  uint32_t rank = AT_MIN(tensor_rank(r, 0), tensor_rank(r, 1));
  for (uint32_t d = 0; d < rank; d++) {
    uint8_t f = factor(r, dim_of(r, 0, d), AT_FACTOR_PASS);
    bind(r, 0, d, f);
    bind(r, 1, d, f);
  }
}

// ---- Contractions
static void rule_dot(at_rule *r, const at_node *n) {
  at_dims lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  at_dims rb = at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS);
  at_dims lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  at_dims rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS);
  uint32_t out = 0;
  for (uint32_t i = 0; i < lb.rank; i++) {
    uint8_t f = factor(r, dim_of(r, 2, out), AT_FACTOR_PASS);
    bind(r, 0, (uint32_t)lb.ptr[i], f);
    bind(r, 1, (uint32_t)rb.ptr[i], f);
    bind(r, 2, out++, f);
  }
  for (uint32_t side = 0; side < 2; side++)
    for (uint32_t d = 0; d < tensor_rank(r, side); d++) {
      if (at_dims_has(side ? rb : lb, d) || at_dims_has(side ? rc : lc, d))
        continue;
      uint8_t f = factor(r, dim_of(r, side, d), AT_FACTOR_PASS);
      bind(r, side, d, f);
      bind(r, 2, out++, f);
    }
  for (uint32_t i = 0; i < lc.rank; i++) {
    uint8_t f = factor(r, dim_of(r, 0, (uint32_t)lc.ptr[i]), AT_FACTOR_SUM);
    bind(r, 0, (uint32_t)lc.ptr[i], f);
    bind(r, 1, (uint32_t)rc.ptr[i], f);
  }
  r->combine = AT_OP_ADD;
}

// Entry i of an optional attribute is v; `absent`: what holds without one.
static bool all_are(at_dims list, uint32_t i, int64_t v, bool absent) {
  return list.rank ? list.ptr[i] == v : absent;
}

// Batch and output features pass, input features are summed. Spatial dimensions
// pass where the window is one element. Grouped convolutions are cut by batch
// only.
static void rule_convolution(at_rule *r, const at_node *n) {
  at_dims in = at_node_ints(n, AT_ATTR_INPUT_SPATIAL_DIMENSIONS);
  at_dims kernel = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  at_dims outs = at_node_ints(n, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS);
  at_dims pad = at_node_ints(n, AT_ATTR_PADDING);
  bool groups = at_node_int(n, AT_ATTR_FEATURE_GROUP_COUNT, 1) != 1;
  bool batches = at_node_int(n, AT_ATTR_BATCH_GROUP_COUNT, 1) != 1;
  uint32_t ib = (uint32_t)at_node_int(n, AT_ATTR_INPUT_BATCH_DIMENSION, 0);
  uint32_t jf = (uint32_t)at_node_int(n, AT_ATTR_INPUT_FEATURE_DIMENSION, 0);
  uint32_t ki =
      (uint32_t)at_node_int(n, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 0);
  uint32_t ko =
      (uint32_t)at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0);
  uint32_t ob = (uint32_t)at_node_int(n, AT_ATTR_OUTPUT_BATCH_DIMENSION, 0);
  uint32_t of = (uint32_t)at_node_int(n, AT_ATTR_OUTPUT_FEATURE_DIMENSION, 0);
  if (!batches) {
    uint8_t f = factor(r, dim_of(r, 0, ib), AT_FACTOR_PASS);
    bind(r, 0, ib, f);
    bind(r, 2, ob, f);
  }
  if (!batches && !groups) {
    uint8_t f = factor(r, dim_of(r, 1, ko), AT_FACTOR_PASS);
    bind(r, 1, ko, f);
    bind(r, 2, of, f);
  }
  if (!groups) {
    uint8_t f = factor(r, dim_of(r, 0, jf), AT_FACTOR_SUM);
    bind(r, 0, jf, f);
    bind(r, 1, ki, f);
  }
  for (uint32_t i = 0; i < in.rank; i++) {
    uint32_t d = (uint32_t)in.ptr[i];
    bool plain = dim_of(r, 1, (uint32_t)kernel.ptr[i]) == 1 &&
                 all_are(at_node_ints(n, AT_ATTR_WINDOW_STRIDES), i, 1, true) &&
                 all_are(at_node_ints(n, AT_ATTR_LHS_DILATION), i, 1, true) &&
                 all_are(pad, 2 * i, 0, true) &&
                 all_are(pad, 2 * i + 1, 0, true);
    if (!plain) continue;
    uint8_t f = factor(r, dim_of(r, 0, d), AT_FACTOR_PASS);
    bind(r, 0, d, f);
    bind(r, 2, (uint32_t)outs.ptr[i], f);
  }
  r->combine = AT_OP_ADD;
}

// ---- Reductions and windows
static bool combines(at_op op) {
  return op == AT_OP_ADD || op == AT_OP_MULTIPLY || op == AT_OP_MINIMUM ||
         op == AT_OP_MAXIMUM || op == AT_OP_AND || op == AT_OP_OR;
}

// Reduced dimensions may be cut where partial results combine: a binary op from
// its identity. Initial values are scalars and have no factors.
static void rule_reduce(at_rule *r, const at_node *n) {
  at_dims gone = at_node_ints(n, AT_ATTR_DIMENSIONS);
  uint32_t k = n->num_results, out = 0;
  r->combine = k == 1 ? at_region_binary(n->regions[0]) : AT_OP_COUNT;
  bool sum = combines(r->combine) && at_is_identity(r->combine, n->operands[1]);
  for (uint32_t d = 0; d < tensor_rank(r, 0); d++) {
    bool cut = at_dims_has(gone, d);
    if (cut && !sum) continue;
    uint8_t f =
        factor(r, dim_of(r, 0, d), cut ? AT_FACTOR_SUM : AT_FACTOR_PASS);
    for (uint32_t t = 0; t < k; t++) {
      bind(r, t, d, f);
      if (!cut) bind(r, n->num_operands + t, out, f);
    }
    out += !cut;
  }
}
// Dimensions in which the window is one element pass.
static void rule_reduce_window(at_rule *r, const at_node *n) {
  at_dims size = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
  uint32_t k = n->num_results;
  for (uint32_t d = 0; d < tensor_rank(r, 0); d++) {
    at_dims pad = at_node_ints(n, AT_ATTR_PADDING);
    bool plain = size.ptr[d] == 1 &&
                 all_are(at_node_ints(n, AT_ATTR_WINDOW_STRIDES), d, 1, true) &&
                 all_are(at_node_ints(n, AT_ATTR_BASE_DILATIONS), d, 1, true) &&
                 all_are(pad, 2 * d, 0, true) &&
                 all_are(pad, 2 * d + 1, 0, true);
    if (!plain) continue;
    uint8_t f = factor(r, dim_of(r, 0, d), AT_FACTOR_PASS);
    for (uint32_t t = 0; t < k; t++) {
      bind(r, t, d, f);
      bind(r, n->num_operands + t, d, f);
    }
  }
}

// Tensors: operand, source, initial value, result.
static void rule_select_and_scatter(at_rule *r, const at_node *n) {
  at_dims size = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
  for (uint32_t d = 0; d < tensor_rank(r, 0); d++) {
    if ((size.rank && size.ptr[d] != 1) || dim_of(r, 0, d) != dim_of(r, 1, d))
      continue;
    uint8_t f = factor(r, dim_of(r, 0, d), AT_FACTOR_PASS);
    bind(r, 0, d, f);
    bind(r, 1, d, f);
    bind(r, 3, d, f);
  }
}

// Every tensor of the full rank alike but along `whole`; sorts and scans.
static void rule_along(at_rule *r, int64_t whole) {
  for (uint32_t d = 0; d < tensor_rank(r, 0); d++)
    if (d != whole) bind_all(r, 0, r->num_tensors, 0, d);
}

// Leading dimensions, all but the last `tail`.
static void rule_leading(at_rule *r, uint32_t tail) {
  uint32_t rank = tensor_rank(r, 0);
  for (uint32_t d = 0; d + tail < rank; d++)
    bind_all(r, 0, r->num_tensors, 0, d);
}

// Right-hand sides are independent: their dimension passes.
static void rule_triangular_solve(at_rule *r, const at_node *n) {
  uint32_t rank = tensor_rank(r, 1);
  rule_leading(r, 2);
  uint32_t d = rank - (at_node_bool(n, AT_ATTR_LEFT_SIDE) ? 1 : 2);
  uint8_t f = factor(r, dim_of(r, 1, d), AT_FACTOR_PASS);
  bind(r, 1, d, f);
  bind(r, 2, d, f);
}

// ---- Gather and scatter
typedef struct indexing {
  at_dims window;     // gather: offset_dims, scatter: update_window_dims
  at_dims dropped;    // collapsed or inserted dimensions of the operand
  at_dims batching;   // of the operand
  at_dims ibatching;  // of the indices
  at_dims map;        // operand dimension of each index component
  int64_t vector;     // index_vector_dim
} indexing;

// The same six attributes under the names of gather or scatter.
static indexing indexing_of(const at_node *n) {
  bool g = n->op == AT_OP_GATHER;
  return (indexing){
      at_node_ints(n, g ? AT_ATTR_OFFSET_DIMS : AT_ATTR_UPDATE_WINDOW_DIMS),
      at_node_ints(
          n, g ? AT_ATTR_COLLAPSED_SLICE_DIMS : AT_ATTR_INSERTED_WINDOW_DIMS),
      at_node_ints(
          n, g ? AT_ATTR_OPERAND_BATCHING_DIMS : AT_ATTR_INPUT_BATCHING_DIMS),
      at_node_ints(n, g ? AT_ATTR_START_INDICES_BATCHING_DIMS
                        : AT_ATTR_SCATTER_INDICES_BATCHING_DIMS),
      at_node_ints(n, g ? AT_ATTR_START_INDEX_MAP
                        : AT_ATTR_SCATTER_DIMS_TO_OPERAND_DIMS),
      at_node_int(n, AT_ATTR_INDEX_VECTOR_DIM, 0)};
}

// Binds operand tensors [0, k), indices, and the batched side [b0, b1): a
// gather's result or a scatter's updates. `results`: first of a scatter's
// results, else 0.
static void rule_indexed(at_rule *r, const at_node *n, uint32_t k,
                         uint32_t indices, uint32_t b0, uint32_t b1,
                         uint32_t results) {
  indexing x = indexing_of(n);
  uint32_t w = 0;
  at_factor_kind own =
      n->op == AT_OP_GATHER ? AT_FACTOR_LOOKUP : AT_FACTOR_STORE;
  uint8_t batch[64];
  memset(batch, 0xff, sizeof batch);
  for (uint32_t d = 0; d < tensor_rank(r, 0); d++) {
    uint8_t f = 0xff;
    int64_t at = index_in(x.batching, d);
    if (at >= 0) {
      f = factor(r, dim_of(r, 0, d), AT_FACTOR_PASS);
      if (x.ibatching.ptr[at] < 64) batch[x.ibatching.ptr[at]] = f;
    } else if (at_dims_has(x.dropped, d)) {
      // Bound to the operand alone; only one dimension is served that way.
      if (at_dims_has(x.map, d) && !at_is_complex(r->places[0]->whole.dtype) &&
          (own == AT_FACTOR_STORE || k == 1)) {
        bool first = true;
        for (uint32_t i = 0; i < r->num_factors; i++)
          first &= r->kind[i] != own;
        if (first) f = factor(r, dim_of(r, 0, d), own);
      }
    } else {
      uint32_t o = (uint32_t)x.window.ptr[w++];
      // A scatter's window may begin past 0 and lose its end: it stays whole.
      bool moves = results && at_dims_has(x.map, d);
      if (!moves && dim_of(r, b0, o) == dim_of(r, 0, d)) {
        f = factor(r, dim_of(r, 0, d), AT_FACTOR_PASS);
        for (uint32_t t = b0; t < b1; t++) bind(r, t, o, f);
      }
    }
    for (uint32_t t = 0; t < k; t++) {
      bind(r, t, d, f);
      if (results) bind(r, results + t, d, f);
    }
  }
  // Batch dimensions of the indices and of the batched side, in order.
  uint32_t o = 0;
  for (uint32_t d = 0; d < tensor_rank(r, indices); d++) {
    if (d == x.vector) continue;
    while (o < tensor_rank(r, b0) && at_dims_has(x.window, o)) o++;
    uint8_t f = d < 64 ? batch[d] : 0xff;
    if (f == 0xff && !at_dims_has(x.ibatching, d)) {
      bool sum = results != 0;
      if (!sum || combines(r->combine))
        f = factor(r, dim_of(r, indices, d),
                   sum ? AT_FACTOR_SUM : AT_FACTOR_PASS);
      // Padding would be stored somewhere.
      if (sum && f != 0xff) r->even[f] = true;
    }
    bind(r, indices, d, f);
    for (uint32_t t = b0; t < b1; t++) bind(r, t, o, f);
    o++;
  }
}

// Operands: k inputs, indices, k updates; then k results.
static void rule_scatter(at_rule *r, const at_node *n) {
  uint32_t k = n->num_results;
  r->combine = k == 1 ? at_region_binary(n->regions[0]) : AT_OP_COUNT;
  rule_indexed(r, n, k, k, k + 1, 2 * k + 1, n->num_operands);
}

// ---- Collectives inside manual computations
static void rule_collective(at_rule *r, const at_node *n) {
  int64_t whole[2] = {-1, -1};
  if (n->op == AT_OP_ALL_GATHER)
    whole[0] = at_node_int(n, AT_ATTR_ALL_GATHER_DIM, 0);
  if (n->op == AT_OP_REDUCE_SCATTER)
    whole[0] = at_node_int(n, AT_ATTR_SCATTER_DIMENSION, 0);
  if (n->op == AT_OP_ALL_TO_ALL) {
    whole[0] = at_node_int(n, AT_ATTR_SPLIT_DIMENSION, 0);
    whole[1] = at_node_int(n, AT_ATTR_CONCAT_DIMENSION, 0);
  }
  for (uint32_t i = 0; i < n->num_results && i < n->num_operands; i++)
    for (uint32_t d = 0; d < tensor_rank(r, i); d++) {
      if (d == whole[0] || d == whole[1]) continue;
      uint8_t f = factor(r, dim_of(r, i, d), AT_FACTOR_PASS);
      bind(r, i, d, f);
      bind(r, n->num_operands + i, d, f);
    }
}

// ---- Custom calls
static bool rule_custom(at_rule *r, const at_node *n) {
  if (!at_is_constraint(n) && !at_is_layout_constraint(n)) return false;
  rule_identity(r, (at_dims){0});
  r->plain = true;
  return true;
}

// ---- The table
static bool rule_of(at_rule *r, const at_node *n) {
  at_dims none = {0};
  if (at_op_is(n->op, AT_ELEMENTWISE)) {
    rule_identity(r, none);
    r->plain = true;
    return true;
  }
  switch (n->op) {
    case AT_OP_PARAMETER:
    case AT_OP_PARTITION_ID:
    case AT_OP_REPLICA_ID:
    case AT_OP_CREATE_TOKEN:
    case AT_OP_AFTER_ALL:
      return true;
    case AT_OP_CONSTANT:
    case AT_OP_IOTA:
    case AT_OP_COPY:
    case AT_OP_MAP:
      rule_identity(r, none);
      return true;
    case AT_OP_REVERSE:
      rule_reverse(r, n);
      return true;
    case AT_OP_RESHAPE:
      rule_reshape(r);
      r->plain = true;
      return true;
    case AT_OP_TRANSPOSE:
      rule_transpose(r, n);
      r->plain = true;
      return true;
    case AT_OP_BROADCAST_IN_DIM:
      rule_broadcast(r, n);
      return true;
    case AT_OP_BITCAST_CONVERT:
      rule_bitcast(r);
      return true;
    case AT_OP_SLICE:
    case AT_OP_DYNAMIC_SLICE:
      rule_same_size(r, 0, r->num_tensors - 1);
      return true;
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      rule_update_slice(r);
      return true;
    case AT_OP_PAD:
      rule_pad(r, n);
      return true;
    case AT_OP_CONCATENATE: {
      int64_t d = at_node_int(n, AT_ATTR_DIMENSION, 0);
      rule_identity(r, (at_dims){&d, 1});
      return true;
    }
    case AT_OP_DOT_GENERAL:
      rule_dot(r, n);
      return true;
    case AT_OP_CONVOLUTION:
      rule_convolution(r, n);
      return true;
    case AT_OP_REDUCE:
      rule_reduce(r, n);
      return true;
    case AT_OP_REDUCE_WINDOW:
      rule_reduce_window(r, n);
      return true;
    case AT_OP_SELECT_AND_SCATTER:
      rule_select_and_scatter(r, n);
      return true;
    case AT_OP_SORT:
    case AT_OP_SCAN:
      rule_along(r, at_node_int(n, AT_ATTR_DIMENSION, 0));
      return true;
    case AT_OP_TOP_K:
      rule_leading(r, 1);
      return true;
    case AT_OP_FFT:
      rule_leading(r, at_node_ints(n, AT_ATTR_FFT_LENGTH).rank);
      return true;
    case AT_OP_CHOLESKY:
      rule_leading(r, 2);
      return true;
    case AT_OP_TRIANGULAR_SOLVE:
      rule_triangular_solve(r, n);
      return true;
    case AT_OP_GATHER:
      rule_indexed(r, n, 1, 1, 2, 3, 0);
      return true;
    case AT_OP_SCATTER:
      rule_scatter(r, n);
      return true;
    case AT_OP_ALL_REDUCE:
    case AT_OP_COLLECTIVE_BROADCAST:
    case AT_OP_COLLECTIVE_PERMUTE:
    case AT_OP_ALL_GATHER:
    case AT_OP_REDUCE_SCATTER:
    case AT_OP_ALL_TO_ALL:
      rule_collective(r, n);
      return true;
    case AT_OP_CUSTOM_CALL:
      return rule_custom(r, n);
    default:
      return false;
  }
}

// Parts of a dimension of several factors, or of a factor that is not all of
// it, only fit those of others when they are equal.
static void keep_even(at_rule *r) {
  for (uint32_t t = 0; t < r->num_tensors; t++)
    for (uint32_t d = 0; d < tensor_rank(r, t); d++) {
      const at_dim_factors *x = &r->dims[t][d];
      if (x->n == 0 || (x->n == 1 && r->size[x->f[0]] == dim_of(r, t, d)))
        continue;
      for (uint32_t k = 0; k < x->n; k++) r->even[x->f[k]] = true;
    }
}

// A value without a place (its node's aux is NULL) counts as one of rank 0.
at_status at_rule_make(at_arena *a, const at_node *n, at_rule *out) {
  *out = (at_rule){.num_tensors = n->num_operands + n->num_results,
                   .combine = AT_OP_COUNT};
  AT_TRY_ALLOC(out->places, at_new(a, at_place *, out->num_tensors + 1));
  AT_TRY_ALLOC(out->dims, at_new(a, at_dim_factors *, out->num_tensors + 1));
  for (uint32_t t = 0; t < out->num_tensors; t++) {
    bool result = t >= n->num_operands;
    at_place *p =
        result ? at_place_of((at_value){(at_node *)n, t - n->num_operands})
               : at_place_of(n->operands[t]);
    out->places[t] = p;
    AT_TRY_ALLOC(out->dims[t],
                 at_new(a, at_dim_factors, (p ? p->whole.rank : 0) + 1));
  }
  out->known = rule_of(out, n);
  keep_even(out);
  return AT_OK;
}

// ---- Reading
void at_rule_project(const at_cut *c, const at_rule *r, uint32_t t,
                     const at_axes *dims, at_axes *factors) {
  for (uint32_t f = 0; f < r->num_factors; f++) factors[f].n = 0;
  for (uint32_t d = 0; d < tensor_rank(r, t); d++) {
    const at_dim_factors *x = &r->dims[t][d];
    if (!x->n) continue;
    uint32_t k = 0;
    int64_t left = r->size[x->f[0]];
    for (uint32_t i = 0; i < dims[d].n; i++) {
      int64_t size = c->size[dims[d].a[i]];
      while (left == 1 && k + 1 < x->n) left = r->size[x->f[++k]];
      if (r->even[x->f[k]] && left % size) break;
      left = (left + size - 1) / size;
      at_axes *to = &factors[x->f[k]];
      to->a[to->n++] = dims[d].a[i];
    }
  }
}

// Axes of the factors in order; a factor that its axes do not cut fully ends
// the list, as what follows would not be contiguous.
at_axes at_rule_dim(const at_cut *c, const at_rule *r, uint32_t t, uint32_t d,
                    const at_axes *factors) {
  at_axes out = {0};
  const at_dim_factors *x = &r->dims[t][d];
  for (uint32_t k = 0; k < x->n; k++) {
    const at_axes *from = &factors[x->f[k]];
    for (uint32_t i = 0; i < from->n && out.n < AT_MAX_ATOMS; i++)
      out.a[out.n++] = from->a[i];
    if (at_axes_size(c, from) != r->size[x->f[k]]) break;
  }
  return out;
}
