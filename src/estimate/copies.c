// Copies around a kernel that the program does not show: a parameter that the
// caller keeps is copied before it is updated in place, and images change
// layout around a convolution.
#include <math.h>

#include "estimate/walk.h"

typedef struct copying {
  at_value v;
  double read, written;  // bytes in HBM or, of `read` in VMEM, there
  bool from_vmem;
  double tiles, relaid;
} copying;

static copying copy_of(at_value v, bool from_vmem, bool to_vmem) {
  double bytes = at_est_tiled(v);
  const at_type *t = at_value_type(v);
  return (copying){.v = v,
                   .read = bytes,
                   .written = to_vmem ? 0 : bytes,
                   .from_vmem = from_vmem,
                   .tiles = at_tpu_compact_tiles(at_type_dims(t), NULL)};
}

at_status at_est_push_kernel(at_est_walk *w, const at_tpu_kernel *k,
                             const char *name, const at_type *t,
                             const at_est_group *g, double count,
                             uint32_t level, at_est_item *it) {
  at_tpu_cycles c = at_tpu_kernel_cycles(k, &w->chip);
  double s = 1 / w->chip.clock;
  at_estimate_op o = at_est_describe(w, g, count, level);
  const char *text = at_arena_printf(w->arena, "%s for %s", name, o.name);
  o.name = text ? text : name;
  o.detail = at_est_type(w->arena, t);
  o.flops = 0;
  o.nodes = 0;
  o.start = it->seconds;
  o.seconds = c.total * s;
  o.memory = c.memory * s;
  o.latency = c.latency * s;
  o.hbm_bytes = k->hbm_in + k->hbm_out;
  o.vmem_bytes = k->vmem_in;
  o.from = AT_COST_FROM_KERNEL;
  o.bound = at_est_bound_of(&o);
  it->seconds += o.seconds;
  it->num_ops++;
  return at_vec_push(w->arena, &w->ops, o) ? AT_OK : AT_NO_MEMORY("ops");
}

static at_status push_copy(at_est_walk *w, const copying *p,
                           const at_est_group *g, double count, uint32_t level,
                           at_est_item *it) {
  const at_type *t = at_value_type(p->v);
  at_tpu_kernel k = {.kind = AT_TPU_COPY, .operand_bytes = 4, .repeat = 1};
  k.tiles = k.out_tiles = p->tiles;
  *(p->from_vmem ? &k.vmem_in : &k.hbm_in) = p->read;
  k.hbm_out = p->written;
  k.relaid = p->relaid;
  if (at_dtype_of(t->dtype)->bits < 32) k.narrow_tiles = k.tiles;
  at_tpu_kernel_grid(&k, &w->chip, true);
  return at_est_push_kernel(w, &k, "copy", t, g, count, level, it);
}

at_status at_est_push_state(at_est_walk *w, at_value v, bool vmem,
                            const at_est_group *g, double count, uint32_t level,
                            at_est_item *it) {
  copying p = copy_of(v, vmem, vmem);
  return push_copy(w, &p, g, count, level, it);
}

static bool is_kept_parameter(const at_est_walk *w, const at_est_residency *r,
                              at_value v) {
  v = at_est_behind(v);
  if (v.node->op != AT_OP_PARAMETER || r->comp->owner) return false;
  const at_io_info *info = r->comp->module->params;
  for (uint32_t i = 0; info && i < r->comp->num_params; i++)
    if (r->comp->params[i] == v.node)
      return !info[i].donor && info[i].alias < 0;
  return true;
}

// How a convolution sees an image: its batch, pixels and channels, and whether
// the kernel has more than one tap. A batch lies along the sublanes; one that
// does not fill them is filled with parts of the images.
enum { kWhole = 14 };  // images of this width are not cut into parts
typedef struct image {
  double batch, pixels, channels, width;
  bool taps, split;
} image;

static image image_of(const at_node *conv, const at_type *t, at_attr_id batch,
                      at_attr_id feature, at_attr_id spatial) {
  image m = {.pixels = 1, .width = 1};
  at_dims s = at_node_ints(conv, spatial);
  const at_type *kernel = at_value_type(conv->operands[1]);
  at_dims ks = at_node_ints(conv, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  m.batch = (double)t->dims[at_node_int(conv, batch, 0)];
  m.channels = (double)t->dims[at_node_int(conv, feature, 0)];
  for (uint32_t i = 0; i < s.rank; i++) {
    m.width = (double)t->dims[s.ptr[i]];
    m.pixels *= m.width;
  }
  for (uint32_t i = 0; i < ks.rank; i++) m.taps |= kernel->dims[ks.ptr[i]] > 1;
  m.split = m.batch < 8 && s.rank == 2 && m.width > kWhole;
  return m;
}

static at_status push_copies(at_est_walk *w, const copying *p, uint32_t times,
                             const at_est_group *g, double count,
                             uint32_t level, at_est_item *it) {
  copying inner = *p;
  inner.from_vmem = true, inner.written = 0;
  for (uint32_t i = 1; i < times; i++)
    AT_TRY(push_copy(w, &inner, g, count, level, it));
  return push_copy(w, p, g, count, level, it);
}

// Images of few channels are laid out with the batch along the lanes.
static at_status image_before(at_est_walk *w, at_est_group *g, double count,
                              uint32_t level, at_est_item *it) {
  at_value v = at_est_behind(g->product->operands[0]);
  if (v.node->op != AT_OP_PARAMETER) return AT_OK;
  const at_type *t = at_value_type(g->product->operands[0]);
  image m = image_of(g->product, t, AT_ATTR_INPUT_BATCH_DIMENSION,
                     AT_ATTR_INPUT_FEATURE_DIMENSION,
                     AT_ATTR_INPUT_SPATIAL_DIMENSIONS);
  copying p = copy_of(v, false, true);
  if (m.channels >= 8)
    return m.split ? push_copies(w, &p, m.taps ? 3 : 1, g, count, level, it)
                   : AT_OK;
  double half = m.pixels * ceil(m.batch / 128);  // tiles of 4 x 128
  double wide = at_dtype_of(t->dtype)->bits >= 32 ? 1.5 : 1;
  if (m.split) half /= 2, wide = 1;  // parts of the images fill the lanes
  p.written = half * ceil(m.channels / 4) * 4 * 128 * 2 * wide;
  return push_copy(w, &p, g, count, level, it);
}

static at_status image_after(at_est_walk *w, at_est_group *g,
                             at_est_residency *r, double count, uint32_t level,
                             at_est_item *it) {
  if (!g->writes.len || !at_est_is_result(r, g->writes.ptr[0])) return AT_OK;
  at_value v = g->writes.ptr[0];
  const at_type *t = at_value_type(v);
  if (t->rank != g->product->types[0].rank) return AT_OK;
  image m = image_of(g->product, t, AT_ATTR_OUTPUT_BATCH_DIMENSION,
                     AT_ATTR_OUTPUT_FEATURE_DIMENSION,
                     AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS);
  copying p = copy_of(v, at_est_tiled(v) <= r->capacity - r->used, false);
  if (m.split) return push_copies(w, &p, m.taps ? 3 : 2, g, count, level, it);
  // Rows that fill the sublanes are the layout that results have.
  if (fmod(m.width, 8) > 0) return AT_OK;
  return push_copy(w, &p, g, count, level, it);
}

// A transpose between two reshapes: the arrays around them have layouts of
// their own, which do not hold the dimensions that it moves.
static at_value around(const at_est_residency *r, const at_node *transpose,
                       bool after) {
  at_value v = {0};
  const at_node *from = transpose->operands[0].node;
  if (from->op != AT_OP_RESHAPE) return v;
  if (!after) return at_est_behind(transpose->operands[0]);
  AT_FOR_NODES(n, r->comp)
  if (n->op == AT_OP_RESHAPE && n->operands[0].node == transpose)
    v = (at_value){(at_node *)n, 0};
  return v;
}

static at_status reshaped(at_est_walk *w, at_est_group *g, at_est_residency *r,
                          bool after, double count, uint32_t level,
                          at_est_item *it) {
  at_value v = around(r, g->root, after);
  if (!v.node) return AT_OK;
  copying p = copy_of(v, after, !after);
  p.relaid = p.tiles;
  return push_copy(w, &p, g, count, level, it);
}

at_status at_est_copies_before(at_est_walk *w, at_est_group *g,
                               at_est_residency *r, double count,
                               uint32_t level, at_est_item *it) {
  const at_node *n = g->root;
  if (at_est_updates(n) && is_kept_parameter(w, r, n->operands[0])) {
    copying p = copy_of(at_est_behind(n->operands[0]), false, false);
    AT_TRY(push_copy(w, &p, g, count, level, it));
  }
  if (n->op == AT_OP_TRANSPOSE)
    AT_TRY(reshaped(w, g, r, false, count, level, it));
  if (!g->product || g->product->op != AT_OP_CONVOLUTION) return AT_OK;
  return image_before(w, g, count, level, it);
}

at_status at_est_copies_after(at_est_walk *w, at_est_group *g,
                              at_est_residency *r, double count, uint32_t level,
                              at_est_item *it) {
  if (g->root->op == AT_OP_TRANSPOSE)
    AT_TRY(reshaped(w, g, r, true, count, level, it));
  AT_TRY(at_est_copy_state(w, g, r, count, level, it));
  if (!g->product || g->product->op != AT_OP_CONVOLUTION) return AT_OK;
  return image_after(w, g, r, count, level, it);
}
