// Ops that the run time's library computes (src/kernels): for each the choice
// of a kernel, its parameters as abi/kernels.h has them, and a time in
// nanoseconds of one thread, by which steps are split and ordered.
//
// A chooser that leaves the kernel AT_RT_COUNT has found no library kernel for
// the node's types or shape, and the code generator gets it. The table of
// choosers is at the end.
#include "compile/runtime_ops.h"

#include "compile/sparse.h"
#include "passes/passes.h"
#include "sparsecore/sparsecore.h"

typedef at_status (*choose_fn)(const at_node *n, at_arena *a,
                               at_rt_choice *out);

// Overflow cannot be: the type has a size in bytes.
void at_row_major_strides(at_dims d, int64_t *strides) {
  int64_t s = 1;
  for (uint32_t i = d.rank; i-- > 0;) {
    strides[i] = s;
    s *= d.ptr[i];
  }
  AT_ASSERT(!d.rank || strides[d.rank - 1] == 1);
}

// Copies the parameters, which the caller has on its stack, into the arena.
static at_status finish(at_rt_choice *out, at_arena *a, at_rt_kernel id,
                        const void *p, size_t bytes, const at_node *n,
                        double ns) {
  void *copy;
  AT_TRY_ALLOC(copy, at_arena_copy(a, p, bytes, 16));
  *out = (at_rt_choice){id, copy, (uint32_t)bytes, ns, n->num_operands, NULL};
  return AT_OK;
}

static const at_type *operand_type(const at_node *n, uint32_t i) {
  return at_value_type(n->operands[i]);
}
// Ops that do little but move data.
static double bytes_ns(const at_node *n) {
  double b = 0;
  for (uint32_t i = 0; i < n->num_operands; i++)
    b += (double)at_type_bytes(operand_type(n, i));
  for (uint32_t i = 0; i < n->num_results; i++)
    b += (double)at_type_bytes(&n->types[i]);
  return b / 8.0;  // 8 GB/s of one thread
}

// ---- Dot
// The type that the GEMM kernel accumulates in.
static at_dtype accumulator(at_dtype a, at_dtype b, at_dtype c) {
  if (at_is_complex(a) && a == b && a == c) return a;
  if (at_is_float(a) && at_is_float(b) && at_is_float(c))
    return a == AT_F64 || b == AT_F64 || c == AT_F64 ? AT_F64 : AT_F32;
  if (!at_is_int(a) || !at_is_int(b) || !at_is_int(c)) return AT_INVALID;
  // Integers wrap, so any accumulator as wide as the result is exact.
  bool wide = at_dtype_of(c)->bits > 32;
  return at_is_signed_int(c) ? (wide ? AT_S64 : AT_S32)
                             : (wide ? AT_U64 : AT_U32);
}

// Product of the sizes of one kind of dimensions.
static int64_t size_of(const at_k_gemm_dims *d) {
  int64_t n = 1;
  for (uint32_t i = 0; i < d->rank; i++) n *= d->size[i];
  return n;
}

// The kinds of dimensions are all that operands and result have.
static bool sizes_agree(const at_node *n, const at_k_gemm_params *p) {
  int64_t batch = size_of(&p->batch), m = size_of(&p->m), k = size_of(&p->k);
  return batch * m * k == at_type_elements(operand_type(n, 0));
}

// A product of operands 0 and 1. Dimensions `group` of the second are of no
// kind; those of the result begin with number `at`. False: the kernel has no
// such product.
static bool read_dot(const at_node *n, at_dims group, uint32_t at,
                     at_k_gemm_params *p) {
  const at_type *ta = operand_type(n, 0), *tb = operand_type(n, 1),
                *tc = &n->types[0];
  at_dtype acc = accumulator(ta->dtype, tb->dtype, tc->dtype);
  if (acc == AT_INVALID || ta->rank > AT_K_MAX_RANK ||
      tb->rank > AT_K_MAX_RANK || tc->rank > AT_K_MAX_RANK)
    return false;
  at_dims lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  at_dims rb = at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS);
  at_dims lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  at_dims rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS);
  int64_t sa[AT_K_MAX_RANK], sb[AT_K_MAX_RANK], sc[AT_K_MAX_RANK];
  at_row_major_strides(at_type_dims(ta), sa);
  at_row_major_strides(at_type_dims(tb), sb);
  at_row_major_strides(at_type_dims(tc), sc);
  *p = (at_k_gemm_params){
      .a = ta->dtype, .b = tb->dtype, .acc = acc, .c = tc->dtype};
  for (uint32_t i = 0; i < lb.rank; i++, at++) {
    p->batch.size[i] = ta->dims[lb.ptr[i]];
    p->batch.stride_x[i] = sa[lb.ptr[i]];
    p->batch.stride_y[i] = sb[rb.ptr[i]];
    p->batch.stride_z[i] = sc[at];
  }
  p->batch.rank = lb.rank;
  for (uint32_t d = 0; d < ta->rank; d++) {
    if (at_dims_has(lb, d) || at_dims_has(lc, d)) continue;
    p->m.size[p->m.rank] = ta->dims[d];
    p->m.stride_x[p->m.rank] = sa[d];
    p->m.stride_y[p->m.rank++] = sc[at++];
  }
  for (uint32_t d = 0; d < tb->rank; d++) {
    if (at_dims_has(rb, d) || at_dims_has(rc, d) || at_dims_has(group, d))
      continue;
    p->n.size[p->n.rank] = tb->dims[d];
    p->n.stride_x[p->n.rank] = sb[d];
    p->n.stride_y[p->n.rank++] = sc[at++];
  }
  for (uint32_t i = 0; i < lc.rank; i++) {
    p->k.size[i] = ta->dims[lc.ptr[i]];
    p->k.stride_x[i] = sa[lc.ptr[i]];
    p->k.stride_y[i] = sb[rc.ptr[i]];
  }
  p->k.rank = lc.rank;
  AT_ASSERT(at == tc->rank && sizes_agree(n, p));
  p->b_is_constant = n->operands[1].node->op == AT_OP_CONSTANT;
  return true;
}

// One thread's, for a product with the sizes of all its dimensions.
static double dot_ns(const at_node *n) {
  const at_type *a = operand_type(n, 0);
  at_dims lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  double flops = 2.0 * (double)at_type_elements(&n->types[0]);
  for (uint32_t i = 0; i < lc.rank; i++) flops *= (double)a->dims[lc.ptr[i]];
  return flops / 50.0 + 200;
}

// GEMM where read_dot has it.
static at_status choose_dot(const at_node *n, at_arena *a, at_rt_choice *out) {
  at_k_gemm_params p;
  if (!read_dot(n, (at_dims){NULL, 0}, 0, &p)) return AT_OK;
  return finish(out, a, AT_RT_GEMM, &p, sizeof p, n, dot_ns(n));
}

// Rows of sizes are for the batches and, before the ragged dimension, the free
// dimensions.
static bool sizes_fit(const at_type *sizes, at_k_ragged_params *p) {
  const at_k_gemm_dims *batch = &p->product.batch, *m = &p->product.m;
  if (sizes->rank == 1) return true;
  p->batch_dims = p->kind == AT_RAGGED_BATCH ? p->dim : batch->rank;
  p->m_dims = p->kind == AT_RAGGED_ROWS ? p->dim : 0;
  if (sizes->rank - 1 != p->batch_dims + p->m_dims) return false;
  for (uint32_t i = 0; i + 1 < sizes->rank; i++) {
    bool by_batch = i < p->batch_dims;
    int64_t want = by_batch ? batch->size[i] : m->size[i - p->batch_dims];
    if (sizes->dims[i] != want) return false;
  }
  return p->kind != AT_RAGGED_K || p->dim == 0;
}

// Where `d` stands in `list`.
static uint32_t place_in(at_dims list, int64_t d) {
  uint32_t i = 0;
  while (i < list.rank && list.ptr[i] != d) i++;
  return i;
}

// By which side of the product is ragged: rows, contraction or batch. Sizes are
// per group.
static at_status choose_ragged_dot(const at_node *n, at_arena *a,
                                   at_rt_choice *out) {
  at_dims lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  at_dims lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  at_dims group = at_node_ints(n, AT_ATTR_RHS_GROUP_DIMENSIONS);
  int64_t dim = at_node_ints(n, AT_ATTR_LHS_RAGGED_DIMENSIONS).ptr[0];
  const at_type *b = operand_type(n, 1), *sizes = operand_type(n, 2);
  at_k_ragged_params p = {.kind = AT_RAGGED_ROWS, .sizes_type = sizes->dtype};
  p.groups = sizes->dims[sizes->rank - 1];
  if (at_dims_has(lc, dim)) {
    p.kind = AT_RAGGED_K;
    p.dim = place_in(lc, dim);
  } else if (at_dims_has(lb, dim)) {
    p.kind = AT_RAGGED_BATCH;
    p.dim = place_in(lb, dim);
  } else {
    for (uint32_t d = 0; d < dim; d++)
      p.dim += !at_dims_has(lb, d) && !at_dims_has(lc, d);
  }
  if (!read_dot(n, group, p.kind == AT_RAGGED_K, &p.product)) return AT_OK;
  if (!sizes_fit(sizes, &p)) return AT_OK;
  if (group.rank) {
    int64_t sb[AT_K_MAX_RANK];
    at_row_major_strides(at_type_dims(b), sb);
    p.group_stride = sb[group.ptr[0]];
  } else if (p.kind == AT_RAGGED_K && p.groups > 0) {
    p.group_stride = at_type_elements(&n->types[0]) / p.groups;
  }
  double ns = dot_ns(n) / (p.kind == AT_RAGGED_K ? AT_MAX(p.groups, 1) : 1);
  return finish(out, a, AT_RT_RAGGED_DOT, &p, sizeof p, n, ns);
}

// ---- Convolution
static void window_or(at_dims d, uint32_t rank, int64_t absent, int64_t *to) {
  for (uint32_t i = 0; i < rank; i++) to[i] = i < d.rank ? d.ptr[i] : absent;
}

// Any convolution of up to AT_K_MAX_RANK dimensions; strides tell the kernel
// where each dimension lies.
static at_status choose_conv(const at_node *n, at_arena *a, at_rt_choice *out) {
  const at_type *tl = operand_type(n, 0), *tr = operand_type(n, 1),
                *to = &n->types[0];
  if (tl->rank > AT_K_MAX_RANK || tl->rank < 2) return AT_OK;
  at_k_conv_params p = {.lhs = tl->dtype,
                        .rhs = tr->dtype,
                        .out = to->dtype,
                        .spatial_rank = tl->rank - 2};
  int64_t sl[AT_K_MAX_RANK], sr[AT_K_MAX_RANK], so[AT_K_MAX_RANK];
  at_row_major_strides(at_type_dims(tl), sl);
  at_row_major_strides(at_type_dims(tr), sr);
  at_row_major_strides(at_type_dims(to), so);
  int64_t ib = at_node_int(n, AT_ATTR_INPUT_BATCH_DIMENSION, 0);
  int64_t inf = at_node_int(n, AT_ATTR_INPUT_FEATURE_DIMENSION, 0);
  int64_t kif = at_node_int(n, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 0);
  int64_t kof = at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0);
  int64_t ob = at_node_int(n, AT_ATTR_OUTPUT_BATCH_DIMENSION, 0);
  int64_t of = at_node_int(n, AT_ATTR_OUTPUT_FEATURE_DIMENSION, 0);
  at_dims is = at_node_ints(n, AT_ATTR_INPUT_SPATIAL_DIMENSIONS);
  at_dims ks = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  at_dims os = at_node_ints(n, AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS);
  p.batch = tl->dims[ib];
  p.in_features = tl->dims[inf];
  p.out_features = tr->dims[kof];
  p.feature_groups = at_node_int(n, AT_ATTR_FEATURE_GROUP_COUNT, 1);
  p.batch_groups = at_node_int(n, AT_ATTR_BATCH_GROUP_COUNT, 1);
  p.in_batch_stride = sl[ib];
  p.in_feature_stride = sl[inf];
  p.kernel_in_stride = sr[kif];
  p.kernel_out_stride = sr[kof];
  p.out_batch_stride = so[ob];
  p.out_feature_stride = so[of];
  double window = (double)tr->dims[kif];
  for (uint32_t i = 0; i < p.spatial_rank; i++) {
    p.in_size[i] = tl->dims[is.ptr[i]], p.in_stride[i] = sl[is.ptr[i]];
    p.kernel_size[i] = tr->dims[ks.ptr[i]], p.kernel_stride[i] = sr[ks.ptr[i]];
    p.out_size[i] = to->dims[os.ptr[i]], p.out_stride[i] = so[os.ptr[i]];
    window *= (double)p.kernel_size[i];
  }
  window_or(at_node_ints(n, AT_ATTR_WINDOW_STRIDES), p.spatial_rank, 1,
            p.window_stride);
  window_or(at_node_ints(n, AT_ATTR_LHS_DILATION), p.spatial_rank, 1,
            p.lhs_dilation);
  window_or(at_node_ints(n, AT_ATTR_RHS_DILATION), p.spatial_rank, 1,
            p.rhs_dilation);
  at_dims pad = at_node_ints(n, AT_ATTR_PADDING);
  at_dims rev = at_node_ints(n, AT_ATTR_WINDOW_REVERSAL);
  for (uint32_t i = 0; i < p.spatial_rank; i++) {
    p.pad_low[i] = 2 * i + 1 < pad.rank ? pad.ptr[2 * i] : 0;
    p.pad_high[i] = 2 * i + 1 < pad.rank ? pad.ptr[2 * i + 1] : 0;
    p.reversal[i] = i < rev.rank && rev.ptr[i];
  }
  double flops = 2.0 * window * (double)at_type_elements(to);
  return finish(out, a, AT_RT_CONV, &p, sizeof p, n, flops / 30.0 + 500);
}

// ---- Movement
// Where a value's dimensions lie in what it is a permutation of: dim[d] of
// that, turned around or not.
typedef struct turned_dims {
  uint32_t dim[AT_K_MAX_RANK];
  bool back[AT_K_MAX_RANK];
} turned_dims;

// Goes from a transpose's or reversal's result to its operand.
static void turn_back(const at_node *n, turned_dims *t) {
  at_dims dims = n->op == AT_OP_TRANSPOSE ? at_node_ints(n, AT_ATTR_PERMUTATION)
                                          : at_node_ints(n, AT_ATTR_DIMENSIONS);
  for (uint32_t d = 0; d < n->types[0].rank; d++) {
    if (n->op == AT_OP_TRANSPOSE)
      t->dim[d] = (uint32_t)dims.ptr[t->dim[d]];
    else
      t->back[d] ^= at_dims_has(dims, t->dim[d]);
  }
}

// TRANSPOSE of an operand of type ti into n's result, whose dimensions are t's.
static at_status finish_transpose(const at_node *n, const at_type *ti,
                                  const turned_dims *t, at_arena *a,
                                  at_rt_choice *out) {
  const at_type *to = &n->types[0];
  at_k_transpose_params p = {.element_bytes = at_dtype_bytes(to->dtype),
                             .rank = to->rank};
  int64_t s[AT_K_MAX_RANK];
  at_row_major_strides(at_type_dims(ti), s);
  for (uint32_t d = 0; d < to->rank; d++) {
    int64_t stride = s[t->dim[d]];
    p.out_size[d] = to->dims[d];
    p.in_stride[d] = t->back[d] ? -stride : stride;
    if (t->back[d]) p.in_first += (to->dims[d] - 1) * stride;
  }
  return finish(out, a, AT_RT_TRANSPOSE, &p, sizeof p, n, bytes_ns(n) * 2);
}

static at_status choose_transpose(const at_node *n, at_arena *a,
                                  at_rt_choice *out) {
  if (n->types[0].rank > AT_K_MAX_RANK || at_transpose_is_narrow(n))
    return AT_OK;
  turned_dims t = {0};
  for (uint32_t d = 0; d < n->types[0].rank; d++) t.dim[d] = d;
  turn_back(n, &t);
  return finish_transpose(n, operand_type(n, 0), &t, a, out);
}

// Transposes and reversals of the one operand that leave its rows as they are,
// and nothing else.
static at_status choose_fusion(const at_node *n, at_arena *a,
                               at_rt_choice *out) {
  const at_comp *c = n->regions[0];
  const at_type *to = &n->types[0];
  if (c->num_results != 1 || c->num_params != 1 || to->rank > AT_K_MAX_RANK ||
      !to->rank || !at_type_elements(to))
    return AT_OK;
  turned_dims t = {0};
  for (uint32_t d = 0; d < to->rank; d++) t.dim[d] = d;
  const at_node *from = c->results[0].node;
  bool moves = false;
  for (; from->op == AT_OP_TRANSPOSE || from->op == AT_OP_REVERSE;
       from = from->operands[0].node) {
    moves |= from->op == AT_OP_TRANSPOSE;
    turn_back(from, &t);
  }
  uint32_t last = to->rank - 1;
  if (from->op != AT_OP_PARAMETER || !moves || t.dim[last] != last ||
      t.back[last])
    return AT_OK;
  return finish_transpose(n, operand_type(n, 0), &t, a, out);
}

// A copy of a splat is a fill, which reads no operand.
static at_status choose_copy(const at_node *n, at_arena *a, at_rt_choice *out) {
  const at_literal *l = at_node_literal(n->operands[0].node);
  if (l && l->splat) {
    at_k_fill_params f = {.elements = at_type_elements(&n->types[0]),
                          .element_bytes = at_dtype_bytes(n->types[0].dtype)};
    memcpy(f.element, l->data, (size_t)f.element_bytes);
    AT_TRY(finish(out, a, AT_RT_FILL, &f, sizeof f, n, bytes_ns(n)));
    out->operands = 0;
    return AT_OK;
  }
  at_k_copy_params p = {(int64_t)at_type_bytes(&n->types[0])};
  return finish(out, a, AT_RT_COPY, &p, sizeof p, n, bytes_ns(n));
}

// The dimension `d` of a type as (before, size, after).
static void split_at(const at_type *t, int64_t d, int64_t *outer, int64_t *size,
                     int64_t *inner) {
  *outer = *inner = 1;
  for (uint32_t i = 0; i < t->rank; i++) {
    if (i < d) *outer *= t->dims[i];
    if (i > d) *inner *= t->dims[i];
  }
  *size = t->rank ? t->dims[d] : 1;
}

// ---- Sort, top-k, scan
static at_status choose_sort(const at_node *n, at_arena *a, at_rt_choice *out) {
  at_k_sort_params p = {.num_operands = n->num_operands,
                        .stable = at_node_bool(n, AT_ATTR_IS_STABLE)};
  if (n->num_operands > AT_LEN(p.dtype))
    return AT_FAIL(AT_UNIMPLEMENTED, "sort of %u operands; at most %zu",
                   n->num_operands, AT_LEN(p.dtype));
  int64_t dim = at_node_int(n, AT_ATTR_DIMENSION, -1);
  if (dim < 0) dim += n->types[0].rank;
  split_at(&n->types[0], dim, &p.outer, &p.size, &p.inner);
  for (uint32_t i = 0; i < n->num_operands; i++) {
    p.dtype[i] = n->types[i].dtype;
    p.element_bytes[i] = at_dtype_bytes(n->types[i].dtype);
  }
  if (!at_sort_order(n->regions[0], n->num_operands, &p.order, &p.num_keys))
    p.order = AT_ORDER_CUSTOM;
  AT_TRY(finish(out, a, AT_RT_SORT, &p, sizeof p, n, bytes_ns(n) * 20));
  if (p.order == AT_ORDER_CUSTOM) out->comparator = n->regions[0];
  return AT_OK;
}

// Over the last dimension.
static at_status choose_top_k(const at_node *n, at_arena *a,
                              at_rt_choice *out) {
  const at_type *t = operand_type(n, 0);
  at_k_top_k_params p = {t->dtype, (uint32_t)at_node_int(n, AT_ATTR_LARGEST, 1),
                         0, 0, at_node_int(n, AT_ATTR_K, 0)};
  int64_t one;
  split_at(t, t->rank - 1, &p.rows, &p.size, &one);
  return finish(out, a, AT_RT_TOP_K, &p, sizeof p, n, bytes_ns(n) * 2);
}

// Is `v` the value that leaves `op` unchanged? Then a scan needs no initial
// value.
static bool is_identity(at_value v, at_k_reduce_op op) {
  const at_literal *l = at_node_literal(v.node);
  if (!l || at_type_elements(&l->type) != 1 || at_is_complex(l->type.dtype))
    return false;
  at_dtype t = l->type.dtype;
  if (at_is_float(t)) {
    double x = at_literal_float(l, 0);
    switch (op) {
      case AT_REDUCE_ADD:
        return x == 0;
      case AT_REDUCE_MUL:
        return x == 1;
      case AT_REDUCE_MIN:
        return x == __builtin_inf();
      case AT_REDUCE_MAX:
        return x == -__builtin_inf();
      default:
        return false;
    }
  }
  int bits = at_dtype_of(t)->bits;
  bool sign = at_is_signed_int(t);
  int64_t x = at_literal_int(l, 0);
  int64_t ones = t == AT_PRED         ? 1
                 : sign || bits == 64 ? -1
                                      : (int64_t)((1ull << bits) - 1);
  switch (op) {
    case AT_REDUCE_ADD:
    case AT_REDUCE_OR:
    case AT_REDUCE_XOR:
      return x == 0;
    case AT_REDUCE_MUL:
      return x == 1;
    case AT_REDUCE_AND:
      return x == ones;
    case AT_REDUCE_MAX:
      return x == (sign ? (int64_t)(-(1ull << (bits - 1))) : 0);
    case AT_REDUCE_MIN:
      return x == (sign ? (int64_t)((1ull << (bits - 1)) - 1) : ones);
  }
  return false;
}

// In either order of the parameters: all of these commute.
bool at_reduce_op_of(const at_comp *c, at_k_reduce_op *out) {
  static const struct {
    at_op op;
    at_k_reduce_op r;
  } rows[] = {{AT_OP_ADD, AT_REDUCE_ADD},     {AT_OP_MULTIPLY, AT_REDUCE_MUL},
              {AT_OP_MINIMUM, AT_REDUCE_MIN}, {AT_OP_MAXIMUM, AT_REDUCE_MAX},
              {AT_OP_AND, AT_REDUCE_AND},     {AT_OP_OR, AT_REDUCE_OR},
              {AT_OP_XOR, AT_REDUCE_XOR}};
  if (c->num_params != 2 || c->num_results != 1) return false;
  const at_node *n = c->results[0].node;
  if (n->num_operands != 2 || n->parent != c) return false;
  const at_node *x = n->operands[0].node, *y = n->operands[1].node;
  if (!((x == c->params[0] && y == c->params[1]) ||
        (x == c->params[1] && y == c->params[0])))
    return false;
  for (size_t i = 0; i < AT_LEN(rows); i++)
    if (rows[i].op == n->op) return *out = rows[i].r, true;
  return false;
}

// One input, from the identity, of at least a byte an element.
static at_status choose_scan(const at_node *n, at_arena *a, at_rt_choice *out) {
  at_k_reduce_op op;
  at_dtype t = n->types[0].dtype;
  bool plain =
      at_dtype_of(t)->bits >= 8 && (!at_is_float(t) || at_dtype_bytes(t) >= 2);
  if (n->num_results != 1 || !at_reduce_op_of(n->regions[0], &op) || !plain ||
      !is_identity(n->operands[1], op))
    return AT_OK;
  // Booleans: add is or, multiply is and, and so are max and min.
  if (t == AT_PRED)
    op = op == AT_REDUCE_ADD || op == AT_REDUCE_MAX   ? AT_REDUCE_OR
         : op == AT_REDUCE_MUL || op == AT_REDUCE_MIN ? AT_REDUCE_AND
                                                      : op;
  at_k_scan_params p = {
      .dtype = t, .op = op, .reverse = at_node_bool(n, AT_ATTR_REVERSE)};
  split_at(&n->types[0], at_node_int(n, AT_ATTR_DIMENSION, 0), &p.outer,
           &p.size, &p.inner);
  AT_TRY(finish(out, a, AT_RT_SCAN, &p, sizeof p, n, bytes_ns(n)));
  out->operands = 1;
  return AT_OK;
}

// ---- FFT, random bits
static at_status choose_fft(const at_node *n, at_arena *a, at_rt_choice *out) {
  at_dims len = at_node_ints(n, AT_ATTR_FFT_LENGTH);
  at_k_fft_params p = {.type = (uint32_t)at_node_int(n, AT_ATTR_FFT_TYPE, 0),
                       .rank = len.rank,
                       .batch = 1};
  at_dtype t = n->types[0].dtype;
  p.double_precision = t == AT_C128 || t == AT_F64;
  const at_type *ti = operand_type(n, 0);
  if (len.rank < 1 || len.rank > AT_LEN(p.length) || len.rank > ti->rank)
    return AT_FAIL(AT_UNIMPLEMENTED, "fft over %u dimensions; 1 to 3 are there",
                   len.rank);
  for (uint32_t i = 0; i < len.rank; i++) p.length[i] = len.ptr[i];
  for (uint32_t i = 0; i + len.rank < ti->rank; i++) p.batch *= ti->dims[i];
  return finish(out, a, AT_RT_FFT, &p, sizeof p, n, bytes_ns(n) * 8);
}

// Algorithms are passed on as XLA numbers them.
static at_status choose_rng_bits(const at_node *n, at_arena *a,
                                 at_rt_choice *out) {
  const at_type *bits = &n->types[1];
  const at_type *state = operand_type(n, 0);
  if (bits->rank > AT_K_MAX_RANK) return AT_OK;
  at_k_rng_params p = {
      .algorithm = (uint32_t)at_node_int(n, AT_ATTR_RNG_ALGORITHM, 0),
      .dtype = bits->dtype,
      .state_words = (uint32_t)(at_type_bytes(state) / 8),
      .rank = bits->rank,
      .elements = at_type_elements(bits)};
  for (uint32_t i = 0; i < bits->rank; i++) p.dims[i] = bits->dims[i];
  return finish(out, a, AT_RT_RNG_BITS, &p, sizeof p, n, bytes_ns(n) * 10);
}

// Operands are the bounds; the shape operand is not read.
static at_status choose_rng(const at_node *n, at_arena *a, at_rt_choice *out) {
  if (n->types[0].rank > AT_K_MAX_RANK) return AT_OK;
  at_k_rng_params p = {
      .algorithm = (uint32_t)at_node_int(n, AT_ATTR_RNG_DISTRIBUTION, 1),
      .dtype = n->types[0].dtype,
      .rank = n->types[0].rank,
      .elements = at_type_elements(&n->types[0])};
  for (uint32_t i = 0; i < p.rank; i++) p.dims[i] = n->types[0].dims[i];
  AT_TRY(finish(out, a, AT_RT_RNG, &p, sizeof p, n, bytes_ns(n) * 20));
  out->operands = 2;
  return AT_OK;
}

// ---- Linear algebra
static void matrix_dims(const at_type *t, at_k_linalg_params *p) {
  p->batch = 1;
  for (uint32_t i = 0; i + 2 < t->rank; i++) p->batch *= t->dims[i];
  p->m = t->rank >= 2 ? t->dims[t->rank - 2] : 1;
  p->n = t->rank >= 1 ? t->dims[t->rank - 1] : 1;
}

// Batches of [n, n].
static at_status choose_cholesky(const at_node *n, at_arena *a,
                                 at_rt_choice *out) {
  at_k_linalg_params p = {.dtype = n->types[0].dtype,
                          .lower = at_node_bool(n, AT_ATTR_LOWER)};
  matrix_dims(&n->types[0], &p);
  return finish(out, a, AT_RT_CHOLESKY, &p, sizeof p, n,
                bytes_ns(n) * (double)(p.n + 8));
}

// p.m and p.n are those of the result.
static at_status choose_triangular_solve(const at_node *n, at_arena *a,
                                         at_rt_choice *out) {
  at_k_linalg_params p = {
      .dtype = n->types[0].dtype,
      .lower = at_node_bool(n, AT_ATTR_LOWER),
      .left_side = at_node_bool(n, AT_ATTR_LEFT_SIDE),
      .unit_diagonal = at_node_bool(n, AT_ATTR_UNIT_DIAGONAL),
      .transpose_a =
          (uint32_t)at_node_int(n, AT_ATTR_TRANSPOSE_A, AT_NO_TRANSPOSE)};
  matrix_dims(&n->types[0], &p);
  return finish(out, a, AT_RT_TRIANGULAR_SOLVE, &p, sizeof p, n,
                bytes_ns(n) * (double)(p.n + 8));
}

// Element types that the LAPACK-like kernels have.
static bool linalg_dtype(at_dtype t) {
  return t == AT_F32 || t == AT_F64 || t == AT_C64 || t == AT_C128 ||
         t == AT_BF16 || t == AT_F16;
}

// UNIMPLEMENTED without SparseCores, as on the chip.
static at_status choose_csr(const at_node *n, at_arena *a, at_rt_kernel id,
                            at_rt_choice *out) {
  at_k_csr_params p;
  AT_TRY(at_sc_csr_read(n, &p));
  if (!at_sparse_cores())
    return AT_FAIL(AT_UNIMPLEMENTED, "the target has no SparseCores");
  return finish(out, a, id, &p, sizeof p, n, bytes_ns(n));
}

// Custom calls of linear algebra, by name, and of the SparseCore's formats.
// Unknown names are left to the host.
static at_status choose_custom(const at_node *n, at_arena *a,
                               at_rt_choice *out) {
  at_sc_kind sparse = at_sc_kind_of(n);
  if (sparse == AT_SC_GATHER) return choose_csr(n, a, AT_RT_CSR_GATHER, out);
  if (sparse == AT_SC_IOTA) return choose_csr(n, a, AT_RT_CSR_IOTA, out);
  static const struct {
    const char *name;
    at_rt_kernel id;
    uint32_t in, res;
  } rows[] = {{"Qr", AT_RT_QR, 1, 2},
              {"ProductOfElementaryHouseholderReflectors",
               AT_RT_HOUSEHOLDER_PRODUCT, 2, 1},
              {"LuDecomposition", AT_RT_LU, 1, 3},
              {"Eigh", AT_RT_EIGH, 1, 2}};
  at_str name = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    if (!at_str_is(name, rows[i].name)) continue;
    if (n->num_operands < rows[i].in || n->num_results != rows[i].res ||
        operand_type(n, 0)->rank < 2)
      return AT_FAIL(
          AT_INVALID_ARGUMENT,
          "custom call %s: takes %u matrices and gives %u results; it has %u "
          "operands and %u results",
          rows[i].name, rows[i].in, rows[i].res, n->num_operands,
          n->num_results);
    at_k_linalg_params p = {.dtype = operand_type(n, 0)->dtype,
                            .sort_eigenvalues = 1};
    if (!linalg_dtype(p.dtype))
      return AT_FAIL(AT_UNIMPLEMENTED, "custom call %s of %s", rows[i].name,
                     at_dtype_of(p.dtype)->text);
    matrix_dims(operand_type(n, 0), &p);
    if (rows[i].id == AT_RT_HOUSEHOLDER_PRODUCT) {
      const at_type *taus = operand_type(n, 1);
      p.k = taus->rank ? taus->dims[taus->rank - 1] : 0;
    }
    // Eigh's config: "lower,sort,sweeps,tolerance".
    at_str cfg = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
    if (rows[i].id == AT_RT_EIGH) {
      p.lower = cfg.len < 1 || cfg.ptr[0] != '0';
      p.sort_eigenvalues = cfg.len < 3 || cfg.ptr[2] != '0';
    }
    AT_TRY(finish(out, a, rows[i].id, &p, sizeof p, n,
                  bytes_ns(n) * (double)(p.n + 8) * 4));
    out->operands = rows[i].in;
    return AT_OK;
  }
  return AT_OK;
}

// ---- Table
static const struct {
  at_op op;
  choose_fn choose;
} rows[] = {
    {AT_OP_DOT_GENERAL, choose_dot},
    {AT_OP_RAGGED_DOT, choose_ragged_dot},
    {AT_OP_CONVOLUTION, choose_conv},
    {AT_OP_TRANSPOSE, choose_transpose},
    {AT_OP_FUSION, choose_fusion},
    {AT_OP_COPY, choose_copy},
    {AT_OP_SORT, choose_sort},
    {AT_OP_TOP_K, choose_top_k},
    {AT_OP_SCAN, choose_scan},
    {AT_OP_FFT, choose_fft},
    {AT_OP_RNG_BIT_GENERATOR, choose_rng_bits},
    {AT_OP_RNG, choose_rng},
    {AT_OP_CHOLESKY, choose_cholesky},
    {AT_OP_TRIANGULAR_SOLVE, choose_triangular_solve},
    {AT_OP_CUSTOM_CALL, choose_custom},
};

// By the table of rows.
at_status at_rt_choose(const at_node *n, at_arena *a, at_rt_choice *out) {
  *out = (at_rt_choice){.id = AT_RT_COUNT};
  for (size_t i = 0; i < AT_LEN(rows); i++)
    if (rows[i].op == n->op) return rows[i].choose(n, a, out);
  return AT_OK;
}
