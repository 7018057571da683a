// What a TPU's kernel model needs to know of a group of nodes.
#include <math.h>

#include "cost/count.h"
#include "estimate/estimate_internal.h"

// Bytes without padding; 0: the size is not known.
static double dense(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_bytes(t) : 0;
}

// 0: not known.
static double elements(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_elements(t) : 0;
}

// Product of some dimensions of t.
static double product_of(const at_type *t, at_dims dims) {
  double n = 1;
  for (uint32_t i = 0; i < dims.rank; i++) n *= (double)t->dims[dims.ptr[i]];
  return n;
}

// ---- Contractions

// Sizes of a matrix product: rows x depth by depth x cols, `batch` times.
static void dot(const at_node *n, at_tpu_kernel *k) {
  const at_type *l = at_value_type(n->operands[0]);
  const at_type *r = at_value_type(n->operands[1]);
  k->kind = AT_TPU_MATMUL;
  k->batch = product_of(l, at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS));
  k->depth = product_of(l, at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS));
  double shared = fmax(1, k->batch * k->depth);
  k->rows = elements(l) / shared;
  k->cols = elements(r) / shared;
}

// f32 operands are multiplied in bf16 parts: three products at HIGH, six at
// HIGHEST.
double at_est_products(const at_node *n) {
  if (at_value_type(n->operands[0])->dtype != AT_F32) return 1;
  at_dims p = at_node_ints(n, AT_ATTR_PRECISION);
  int64_t most = 0;
  for (uint32_t i = 0; i < p.rank; i++) most = AT_MAX(most, p.ptr[i]);
  return most >= 2 ? 6 : most == 1 ? 3 : 1;
}

// Taps that step through the input by `stride` become taps of a denser input.
static void convolution(const at_node *n, at_tpu_kernel *k) {
  const at_type *kernel = at_value_type(n->operands[1]);
  at_dims spatial = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  at_dims strides = at_node_ints(n, AT_ATTR_WINDOW_STRIDES);
  int64_t of = at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0);
  int64_t in = at_node_int(n, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 0);
  k->kind = AT_TPU_CONV;
  k->cols = (double)kernel->dims[of];
  k->depth = (double)kernel->dims[in];
  k->batch = 1;
  for (uint32_t i = 0; i < spatial.rank; i++) {
    double taps = (double)kernel->dims[spatial.ptr[i]];
    double s = i < strides.rank ? (double)strides.ptr[i] : 1;
    if (s > 1 && k->depth * s <= 128) {
      k->batch *= ceil((taps + 1) / s);
      k->depth *= s;
    } else {
      k->batch *= taps;
    }
  }
  k->rows = k->cols > 0 ? elements(&n->types[0]) / k->cols : 0;
}

// Bytes of the narrower operand: products are as fast as that type.
static double narrower(const at_node *n) {
  double bits = 64;
  for (uint32_t o = 0; o < 2; o++)
    bits = fmin(bits, at_dtype_of(at_value_type(n->operands[o])->dtype)->bits);
  return fmax(1, bits / 8);
}

// Both kinds, also of nodes that other kernels compute again.
double at_est_flops(const at_est_group *g) {
  double sum = 0;
  for (size_t i = 0; i < g->nodes.len; i++) {
    at_count c = at_count_arithmetic(g->nodes.ptr[i]);
    sum += c.flops + c.transcendentals;
  }
  return sum;
}

// ---- Operands and results

static bool is_narrow(const at_type *t) {
  return at_dtype_of(t->dtype)->bits < 32;
}

// Tiled bytes of the part of a value that is read.
static double tiles_of(const at_type *t, double bytes) {
  if (!at_type_is_static(t)) return 0;
  double all = dense(t);
  return at_tpu_compact_tiles(at_type_dims(t), NULL) *
         (all > 0 ? fmin(1, bytes / all) : 0);
}

// Tiles and bytes of one operand, in VMEM or HBM.
static void add_read(const at_est_read *r, bool vmem, at_tpu_kernel *k) {
  const at_type *t = at_value_type(r->value);
  double tiles = tiles_of(t, r->bytes);
  k->tiles = fmax(k->tiles, tiles);
  k->in_tiles += tiles;
  if (is_narrow(t)) k->narrow_tiles = fmax(k->narrow_tiles, tiles);
  double bytes = tiles * at_tpu_tile_bytes(r->narrow ? AT_BF16 : t->dtype);
  *(vmem ? &k->vmem_in : &k->hbm_in) += bytes;
  if (!vmem && r->feeds[0]) k->lhs_in += bytes;
  if (!vmem && r->feeds[1]) k->rhs_in += bytes;
}

// An update in place writes what it updates.
static double written(at_value v) {
  const at_node *n = v.node;
  if (n->op == AT_OP_DYNAMIC_UPDATE_SLICE)
    return dense(at_value_type(n->operands[1]));
  if (n->op == AT_OP_SCATTER)
    return dense(at_value_type(n->operands[n->num_operands - 1]));
  return dense(at_value_type(v));
}

// Tiles and bytes of one result.
static void add_write(at_value v, bool vmem, at_tpu_kernel *k) {
  const at_type *t = at_value_type(v);
  double tiles = tiles_of(t, written(v));
  k->tiles = fmax(k->tiles, tiles);
  k->out_tiles += tiles;
  if (is_narrow(t)) k->narrow_tiles = fmax(k->narrow_tiles, tiles);
  if (!vmem) k->hbm_out += tiles * at_tpu_tile_bytes(t->dtype);
  if (is_narrow(t)) *(vmem ? &k->vmem_out_narrow : &k->hbm_out_narrow) += tiles;
}

// Tiles that a transpose rewrites: its layout holds another dimension along the
// lanes. The result's layout is that of the array that it becomes.
static double relaid(const at_node *n) {
  uint32_t from, to;
  const at_type *t = at_value_type(n->operands[0]);
  if (!at_type_is_static(t) || !at_type_is_static(&n->types[0])) return 0;
  at_dims p = at_node_ints(n, AT_ATTR_PERMUTATION);
  double in = at_tpu_compact_tiles(at_type_dims(t), &from);
  double out = at_tpu_compact_tiles(at_type_dims(&n->types[0]), &to);
  return to < p.rank && p.ptr[to] != from ? fmax(in, out) : 0;
}

// Along how many dimensions of tiles the root moves data by less than a tile:
// 128 lanes and 8 sublanes.
static double shifts(const at_node *n) {
  double count = 0;
  uint32_t rank = n->num_results ? n->types[0].rank : 0;
  for (uint32_t back = 0; back < 2 && back < rank; back++) {
    uint32_t d = rank - 1 - back;
    int64_t tile = back ? 8 : 128, by = 0;
    if (n->op == AT_OP_SLICE)
      by = at_node_ints(n, AT_ATTR_START_INDICES).ptr[d];
    else if (n->op == AT_OP_PAD)
      by = at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW).ptr[d];
    else if (n->op == AT_OP_CONCATENATE &&
             at_node_int(n, AT_ATTR_DIMENSION, 0) == (int64_t)d)
      by = at_value_type(n->operands[0])->dims[d];
    count += by % tile != 0;
  }
  return count;
}

// More than the 128 lanes of a vector?
static bool has_long_rows(const at_node *n) {
  uint32_t rank = n->num_results ? n->types[0].rank : 0;
  return rank && n->types[0].dims[rank - 1] > 128;
}

// Neither arithmetic nor a reduction?
static bool only_moves(const at_est_group *g) {
  for (size_t i = 0; i < g->nodes.len; i++)
    if (at_op_is(g->nodes.ptr[i]->op, AT_ELEMENTWISE)) return false;
  return !g->reduces;
}

// Operands and results, then what sort of kernel it is: a product, a reduction,
// a copy or a loop.
void at_est_kernel(const at_est_group *g, const at_est_placement *p,
                   at_tpu_kernel *out) {
  at_tpu_kernel k = {.kind = AT_TPU_LOOP,
                     .ops = g->ops,
                     .reduces = g->reduces,
                     .operand_bytes = 4,
                     .repeat = 1};
  for (size_t i = 0; i < g->reads.len; i++)
    add_read(&g->reads.ptr[i], p->in_vmem(p->user, g->reads.ptr[i].value), &k);
  for (size_t i = 0; i < g->writes.len; i++)
    add_write(g->writes.ptr[i], p->out_vmem(p->user, g->writes.ptr[i]), &k);
  if (g->product) {
    if (g->product->op == AT_OP_CONVOLUTION) {
      convolution(g->product, &k);
      at_est_image_work(g->product, &k);
    } else {
      dot(g->product, &k);
    }
    k.operand_bytes = narrower(g->product);
    k.repeat = at_est_products(g->product);
  } else if (g->reduces > 0) {
    k.kind = AT_TPU_REDUCE;
  } else if (only_moves(g)) {
    k.kind = AT_TPU_COPY;
    if (g->root->op == AT_OP_TRANSPOSE) k.relaid = relaid(g->root);
  }
  // Rows of 1,024 elements keep twice as many vector units busy as tiles do; so
  // does a kernel of one operation.
  if (g->root->num_results && g->root->types[0].rank == 1) k.ops /= 2;
  if (g->alone) k.ops /= 2;
  if (k.kind == AT_TPU_COPY || k.kind == AT_TPU_LOOP)
    *(has_long_rows(g->root) ? &k.shifted : &k.relaid) +=
        shifts(g->root) * k.out_tiles;
  if (g->softmax) k.row_tiles = k.tiles;
  AT_ASSERT(k.narrow_tiles <= k.tiles && k.tiles <= k.in_tiles + k.out_tiles);
  AT_ASSERT(k.hbm_out_narrow + k.vmem_out_narrow <= k.out_tiles);
  *out = k;
}
