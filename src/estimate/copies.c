// Copies around a kernel that the program does not show: a parameter that the
// caller keeps is copied before it is updated in place, and images change
// layout around a convolution.
#include <math.h>

#include "estimate/walk.h"

// A copy of one value: what it reads and writes, in tiles as well; relaid:
// tiles that change their layout.
typedef struct copying {
  at_value v;
  double read, written;  // bytes in HBM or, of `read` in VMEM, there
  bool from_vmem;
  double tiles, relaid;
} copying;

// From VMEM or HBM to VMEM or HBM. Of a copy into VMEM nothing is written to
// HBM.
static copying copy_of(at_value v, bool from_vmem, bool to_vmem) {
  double bytes = at_est_tiled(v);
  const at_type *t = at_value_type(v);
  return (copying){.v = v,
                   .read = bytes,
                   .written = to_vmem ? 0 : bytes,
                   .from_vmem = from_vmem,
                   .tiles = at_tpu_compact_tiles(at_type_dims(t), NULL)};
}

// See walk.h. Its time goes onto the item, behind what is there; FLOPs and
// nodes are the kernel's that it is for.
at_status at_est_push_kernel(at_est_walk *w, const at_tpu_kernel *k,
                             const char *name, const at_type *t,
                             const at_est_group *g, double count,
                             uint32_t level, at_est_item *it) {
  AT_ASSERT(it->first_op + it->num_ops == w->ops.len);
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

// One copy as a kernel of its own, which keeps its data in tiles.
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

// Within the one memory or the other.
at_status at_est_push_state(at_est_walk *w, at_value v, bool vmem,
                            const at_est_group *g, double count, uint32_t level,
                            at_est_item *it) {
  copying p = copy_of(v, vmem, vmem);
  return push_copy(w, &p, g, count, level, it);
}

// Does the caller keep this argument, so that it must not be overwritten?
// Parameters of loops and branches are the loop's own.
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

// One pass over an image that only changes its layout.
typedef struct image_pass {
  at_est_walk *w;
  const at_est_group *g;
  at_value v;  // the image
  bool narrow;
  double count;
  uint32_t level;
  at_est_item *it;
} image_pass;

// hbm_in, hbm_out: bytes there, 0 for VMEM, where two cores keep none.
static at_status pass(const image_pass *p, at_tpu_kind kind, double tiles,
                      double hbm_in, double hbm_out) {
  double bytes = tiles * at_tpu_tile_bytes(p->narrow ? AT_BF16 : AT_F32);
  bool shared = p->w->chip.cores > 1;
  at_tpu_kernel k = {.kind = kind, .operand_bytes = 4, .repeat = 1, .ops = 1};
  k.tiles = k.in_tiles = k.out_tiles = tiles;
  if (p->narrow) k.narrow_tiles = k.vmem_out_narrow = tiles;
  k.hbm_in = hbm_in > 0 ? hbm_in : shared ? bytes : 0;
  k.hbm_out = hbm_out > 0 ? hbm_out : shared ? bytes : 0;
  k.vmem_in = k.hbm_in > 0 ? 0 : bytes;
  at_tpu_kernel_grid(&k, &p->w->chip, true);
  return at_est_push_kernel(p->w, &k, "copy", at_value_type(p->v), p->g,
                            p->count, p->level, p->it);
}

enum { kParts = 8, kTileRows = 8, kTileLanes = 128 };

// Channels go along the sublanes: in VMEM whole tiles move, but two cores that
// keep none there turn each tile on the way through HBM, with one core alone.
static at_status turn_flat(const image_pass *p, const at_est_image *m) {
  enum { kTilesOfWindow = 600 };
  static const double kTurned = .65;  // of relaying a tile
  double rows = m->height * (m->part + m->halo);
  double tiles =
      rows * ceil(m->batch * kParts / kTileLanes) * (m->channels > 4 ? 1 : .5);
  double planes = m->batch * m->channels * ceil(m->height / kTileLanes);
  double size = at_tpu_tile_bytes(AT_BF16), cores = p->w->chip.cores;
  at_tpu_kernel k = {.kind = AT_TPU_COPY,
                     .operand_bytes = 4,
                     .repeat = 1,
                     .tiles = tiles,
                     .in_tiles = planes * (m->part + m->halo),
                     .out_tiles = tiles,
                     .narrow_tiles = tiles,
                     .steps = cores * ceil(tiles / kTilesOfWindow),
                     .relaid = kTurned * cores * tiles};
  k.out_windows = k.steps;
  k.hbm_in = k.in_tiles * size;
  k.hbm_out = tiles * size;
  return at_est_push_kernel(p->w, &k, "copy", at_value_type(p->v), p->g,
                            p->count, p->level, p->it);
}

// Few channels and a batch that is cut: rows along the lanes, parts of the
// columns along the sublanes, each with its halo.
static at_status cut_flat(const image_pass *p, const at_est_image *m) {
  double planes = m->batch * m->channels * ceil(m->height / kTileLanes);
  double with_halo = m->part + m->halo;
  double in = at_est_tiled(p->v);
  AT_TRY(pass(p, AT_TPU_COPY, planes * ceil(m->width / kTileRows), in, 0));
  AT_TRY(pass(p, AT_TPU_COPY, planes * (kParts - 1) * ceil(m->halo / kTileRows),
              0, 0));
  AT_TRY(pass(p, AT_TPU_LOOP, planes * kParts * ceil(with_halo / kTileRows), 0,
              0));
  if (p->w->chip.cores < 2)
    return pass(p, AT_TPU_COPY, planes * with_halo, 0, 0);
  return turn_flat(p, m);
}

// Parts of rows in place of the batch: one pass that cuts, two that bring the
// halos.
static at_status cut(const image_pass *p, const at_est_image *m) {
  double tiles = at_est_image_tiles(m, false);
  AT_TRY(pass(p, AT_TPU_LOOP, tiles, at_est_tiled(p->v), 0));
  if (m->halo == 0) return AT_OK;
  AT_TRY(pass(p, AT_TPU_COPY, tiles, 0, 0));
  return pass(p, AT_TPU_COPY, tiles * m->halo / m->part, 0, 0);
}

// Few channels of a whole batch: every pixel becomes a tile of channels by
// batch, which the vector unit puts together.
static at_status spread(const image_pass *p, const at_est_image *m) {
  static const double kPerChannel = .3;  // of relaying a tile
  double tiles = m->height * ceil(m->width / kTileLanes) * 32 *
                 ceil(m->batch / kTileLanes);
  bool shared = p->w->chip.cores > 1;
  at_tpu_kernel k = {.kind = AT_TPU_COPY,
                     .operand_bytes = 4,
                     .repeat = 1,
                     .tiles = 1,
                     .steps = m->height,
                     .out_windows = m->height,
                     .relaid = tiles * kPerChannel * m->channels,
                     .resident = !shared,
                     .vmem_in = at_est_tiled(p->v)};
  if (shared) k.hbm_out = m->height * m->width * 1024;
  return at_est_push_kernel(p->w, &k, "copy", at_value_type(p->v), p->g,
                            p->count, p->level, p->it);
}

static bool is_narrow_image(const at_value v) {
  return at_dtype_of(at_value_type(v)->dtype)->bits < 32;
}

// An argument that a convolution reads comes in another layout; what kernels
// make is written in the right one.
static at_status image_before(at_est_walk *w, at_est_group *g, double count,
                              uint32_t level, at_est_item *it) {
  at_est_image m;
  image_pass p = {w,     g, at_est_behind(g->product->operands[0]), true, count,
                  level, it};  // products read bf16
  if (p.v.node->op != AT_OP_PARAMETER || !at_est_image_of(g->product, &m))
    return AT_OK;
  if (m.flat) return m.split ? cut_flat(&p, &m) : spread(&p, &m);
  return m.split ? cut(&p, &m) : AT_OK;
}

// A result of the program is copied from the convolution's layout; parts of
// rows are put together first.
static at_status image_after(at_est_walk *w, at_est_group *g,
                             at_est_residency *r, double count, uint32_t level,
                             at_est_item *it) {
  at_est_image m;
  if (!g->writes.len || !at_est_is_result(r, g->writes.ptr[0]) ||
      !at_est_image_of(g->product, &m))
    return AT_OK;
  at_value v = g->writes.ptr[0];
  image_pass p = {w, g, v, is_narrow_image(v), count, level, it};
  if (at_value_type(v)->rank != g->product->types[0].rank) return AT_OK;
  if (m.split) {
    double tiles = at_est_image_tiles(&m, true);
    AT_TRY(pass(&p, AT_TPU_COPY, tiles, 0, 0));
    if (!m.flat && m.halo > 0) AT_TRY(pass(&p, AT_TPU_LOOP, tiles, 0, 0));
    return pass(&p, AT_TPU_COPY, tiles, 0, at_est_tiled(v));
  }
  // Rows that fill the sublanes are the layout that results have.
  if (fmod(m.out_width, kTileRows) > 0) return AT_OK;
  copying c = copy_of(v, at_est_tiled(v) <= r->capacity - r->used, false);
  return push_copy(w, &c, g, count, level, it);
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

// The copy between a reshape's layout and the transpose's, before or after it;
// of a shuffle, its first or last step.
static at_status reshaped(at_est_walk *w, at_est_group *g, at_est_residency *r,
                          bool after, double count, uint32_t level,
                          at_est_item *it) {
  at_value v = around(r, g->root, after);
  at_est_shuffle s;
  if (!v.node) return AT_OK;
  if (at_est_shuffle_of(r, g->root, &s)) {
    at_tpu_kernel k = at_est_shuffle_kernel(
        r, &s, after ? AT_EST_SHUFFLE_RESULT : AT_EST_SHUFFLE_LANES);
    return at_est_push_kernel(w, &k, "copy", at_value_type(v), g, count, level,
                              it);
  }
  copying p = copy_of(v, after, !after);
  p.relaid = p.tiles;
  return push_copy(w, &p, g, count, level, it);
}

// Where the elements of a row begin, of 64-bit indices as random numbers count:
// a product of one dimension's index alone. The compiler computes it for that
// dimension, in halves, before the kernel that needs it for all.
static bool is_row_start(const at_node *n) {
  enum { kVector = 1024 };
  if (n->op != AT_OP_MULTIPLY || n->types[0].rank < 2 ||
      at_dtype_bytes(n->types[0].dtype) != 8)
    return false;
  for (uint32_t o = 0; o < 2; o++) {
    const at_node *index = at_est_behind(n->operands[o]).node;
    const at_node *by = at_est_behind(n->operands[1 - o]).node;
    if (by->op == AT_OP_BROADCAST_IN_DIM)
      by = at_est_behind(by->operands[0]).node;
    if (index->op != AT_OP_IOTA || by->op != AT_OP_CONSTANT) continue;
    int64_t rows = n->types[0].dims[at_node_int(index, AT_ATTR_DIMENSION, 0)];
    return rows % kVector != 0;  // whole vectors take next to nothing
  }
  return false;
}

// Kernels of one vector each, in front of the kernel that needs the product.
static at_status row_starts(at_est_walk *w, const at_est_group *g, double count,
                            uint32_t level, at_est_item *it) {
  for (size_t i = 0; i < g->nodes.len; i++) {
    const at_node *n = g->nodes.ptr[i];
    if (!is_row_start(n)) continue;
    // The low half, the high one, and that with a carry; in VMEM the last two
    // are one kernel.
    int kernels = w->chip.direct_vmem ? 2 : 3;
    at_tpu_kernel k = {.kind = AT_TPU_LOOP,
                       .tiles = 1,
                       .out_tiles = 1,
                       .vmem_in = 1,
                       .steps = 1,
                       .out_windows = 1};
    for (int x = 0; x < kernels; x++)
      AT_TRY(at_est_push_kernel(w, &k, "row starts", &n->types[0], g, count,
                                level, it));
  }
  return AT_OK;
}

// Arguments that are kept, layouts of transposes, row starts, images: in the
// order in which they run.
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
  AT_TRY(row_starts(w, g, count, level, it));
  if (!g->product || g->product->op != AT_OP_CONVOLUTION) return AT_OK;
  return image_before(w, g, count, level, it);
}

// Layouts of transposes, state of loops, images.
at_status at_est_copies_after(at_est_walk *w, at_est_group *g,
                              at_est_residency *r, double count, uint32_t level,
                              at_est_item *it) {
  if (g->root->op == AT_OP_TRANSPOSE)
    AT_TRY(reshaped(w, g, r, true, count, level, it));
  AT_TRY(at_est_copy_state(w, g, r, count, level, it));
  if (!g->product || g->product->op != AT_OP_CONVOLUTION) return AT_OK;
  return image_after(w, g, r, count, level, it);
}
