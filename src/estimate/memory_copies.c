// Copies that the TPU compiler makes of values: narrower, or in the layout that
// an op wants.
#include <math.h>

#include "cost/count.h"
#include "estimate/memory_internal.h"

// ---- Arguments that loops read in bf16
// Products round f32 operands; those of a loop that are the same in every turn
// are rounded once, before the first loop that reads them.

// Is operand `o` of the loop only read by products, and stays as it is?
static bool only_multiplied(const lives *l, const at_node *loop, uint32_t o) {
  at_value state = {loop->regions[1]->params[o], 0};
  return at_value_eq(at_est_behind(loop->regions[1]->results[o]), state) &&
         at_est_only_products(l->uses, (at_value){(at_node *)loop, o});
}

// Who reads an argument in a way that wants a copy: in which steps, and how
// many bytes that takes.
typedef struct readers {
  uint32_t first, last;  // first > last: nobody
  double bytes;
} readers;

// One for each argument of the program, nobody yet.
static readers *readers_new(lives *l) {
  readers *all = at_new(l->arena, readers, l->comp->num_params + 1u);
  for (uint32_t i = 0; all && i < l->comp->num_params; i++)
    all[i].first = UINT32_MAX;
  return all;
}

// The argument's entry that v is, behind what moves nothing; NULL: it is none.
static readers *readers_of(const lives *l, readers *all, at_value v) {
  v = at_est_behind(v);
  if (v.node->op != AT_OP_PARAMETER || v.node->parent != l->comp) return NULL;
  return &all[at_node_int(v.node, AT_ATTR_INDEX, 0)];
}

static void note_reader(readers *r, uint32_t step, double bytes) {
  r->first = AT_MIN(r->first, step);
  r->last = AT_MAX(r->last, step);
  r->bytes = fmax(r->bytes, bytes);
}

// Loops that read an argument by products alone.
static void find_loops(const lives *l, readers *all) {
  for (uint32_t s = 0; s < l->groups.count; s++) {
    const at_node *n = l->groups.list[l->order[s]]->root;
    for (uint32_t o = 0; n->op == AT_OP_WHILE && o < n->num_operands; o++) {
      readers *r = readers_of(l, all, n->operands[o]);
      if (r && only_multiplied(l, n, o)) note_reader(r, s, 0);
    }
  }
}

// The same, where a loop's body reads the argument itself.
static void find_captures(const lives *l, readers *all) {
  for (uint32_t i = 0; i < l->comp->num_params; i++) {
    at_value v = {l->comp->params[i], 0};
    const live *x = at_est_live_of(l, v);
    for (size_t r = 0; x && r < x->readers.len; r++) {
      uint32_t k = x->readers.ptr[r];
      if (l->groups.list[k]->root->op == AT_OP_WHILE &&
          at_est_only_products(l->uses, v))
        note_reader(readers_of(l, all, v), l->step[k], 0);
    }
  }
}

// A copy in half the bytes, from the first such loop to the last.
static at_status add_rounded(lives *l) {
  if (l->comp->owner || !l->uses) return AT_OK;
  readers *all;
  AT_TRY_ALLOC(all, readers_new(l));
  find_loops(l, all);
  find_captures(l, all);
  for (uint32_t i = 0; i < l->comp->num_params; i++) {
    at_value v = {l->comp->params[i], 0};
    if (at_value_type(v)->dtype != AT_F32 || all[i].first > all[i].last)
      continue;
    live x = {.value = v,
              .bytes = at_est_on_device(l, v) / 2,
              .born = all[i].first,
              .dies = all[i].last,
              .made = " in bf16"};
    if (!at_vec_push(l->arena, &l->list, x)) return AT_NO_MEMORY("buffers");
  }
  return AT_OK;
}

// ---- Copies in the layout that an op wants

static bool is_conv(const at_node *n) { return n->op == AT_OP_CONVOLUTION; }

// Bytes with a dimension along the lanes and another along the sublanes.
static double bytes_along(const at_type *t, int64_t lanes, int64_t sublanes) {
  at_dims d = at_type_dims(t);
  double tiles = 1;
  for (uint32_t i = 0; i < d.rank; i++) {
    double n = (double)AT_MAX(d.ptr[i], 0);
    if (i == lanes) n = ceil(n / 128);
    if (i == sublanes) n = n > 4 ? ceil(n / 8) : n > 2 ? .5 : n / 8;
    tiles *= n;
  }
  return tiles * at_tpu_tile_bytes(t->dtype);
}

// Images have their features along the lanes and the batch along the sublanes,
// or the other way round where that pads less.
static double image_bytes(const at_type *t, int64_t batch, int64_t feature) {
  return fmin(bytes_along(t, feature, batch), bytes_along(t, batch, feature));
}

// Bytes in the layout of a convolution's result.
static double conv_result(const at_node *n, const at_type *t) {
  return image_bytes(t, at_node_int(n, AT_ATTR_OUTPUT_BATCH_DIMENSION, 0),
                     at_node_int(n, AT_ATTR_OUTPUT_FEATURE_DIMENSION, 0));
}

// Bytes in the layout that a convolution reads.
static double conv_operand(const at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  return image_bytes(t, at_node_int(n, AT_ATTR_INPUT_BATCH_DIMENSION, 0),
                     at_node_int(n, AT_ATTR_INPUT_FEATURE_DIMENSION, 0));
}

// Does an argument lie as its convolution wants it, the batch along the lanes?
static bool lies_well(const at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  int64_t batch = at_node_int(n, AT_ATTR_INPUT_BATCH_DIMENSION, 0);
  int64_t feature = at_node_int(n, AT_ATTR_INPUT_FEATURE_DIMENSION, 0);
  uint32_t lanes;
  at_tpu_compact_tiles(at_type_dims(t), &lanes);
  return lanes == batch &&
         bytes_along(t, batch, feature) < bytes_along(t, feature, batch);
}

// ---- Batches of small matrices
// A product's rows and columns lie along the tiles, never its batch: 32 columns
// take 128 lanes, although the batch would fill them.

// Bytes with two dimensions that are none of `batch` along lanes and sublanes,
// those that pad least; 0: there are no two.
static double matrix_bytes(const at_type *t, at_dims batch) {
  double least = 0;
  for (uint32_t lanes = 0; lanes < t->rank; lanes++) {
    for (uint32_t sublanes = 0; sublanes < t->rank; sublanes++) {
      if (lanes == sublanes || at_dims_has(batch, lanes) ||
          at_dims_has(batch, sublanes))
        continue;
      double bytes = bytes_along(t, lanes, sublanes);
      if (!least || bytes < least) least = bytes;
    }
  }
  return least;
}

// Bytes of operand `o` as the product reads it; 0: as it lies.
static double dot_operand(const at_node *n, uint32_t o) {
  at_dims batch = at_node_ints(
      n, o ? AT_ATTR_RHS_BATCHING_DIMENSIONS : AT_ATTR_LHS_BATCHING_DIMENSIONS);
  return batch.rank ? matrix_bytes(at_value_type(n->operands[o]), batch) : 0;
}

// Bytes of its result; 0: as it lies.
static double dot_result(const at_node *n) {
  static const int64_t first[] = {0, 1, 2, 3, 4, 5, 6, 7};
  uint32_t rank = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS).rank;
  if (!rank || rank > AT_LEN(first)) return 0;
  return matrix_bytes(&n->types[0], (at_dims){first, rank});
}

// An operand of the batch that no reshape is in front of.
static bool is_plain(at_value v) {
  return at_dims_eq(at_type_dims(at_value_type(v)),
                    at_type_dims(at_value_type(at_est_behind(v))));
}

// Convolutions and batched products that read an argument which lies otherwise.
static void find_convs(const lives *l, readers *all) {
  for (uint32_t s = 0; s < l->groups.count; s++) {
    const at_est_group *g = l->groups.list[l->order[s]];
    for (size_t k = 0; k < g->nodes.len; k++) {
      const at_node *n = g->nodes.ptr[k];
      readers *r = is_conv(n) ? readers_of(l, all, n->operands[0]) : NULL;
      if (r && !lies_well(n)) note_reader(r, s, conv_operand(n));
    }
    const at_node *p = g->product;
    for (uint32_t o = 0; p && p->op == AT_OP_DOT_GENERAL && o < 2; o++) {
      readers *r = readers_of(l, all, p->operands[o]);
      double bytes = dot_operand(p, o);
      if (r && is_plain(p->operands[o]) &&
          bytes > (double)at_est_on_device(l, p->operands[o]))
        note_reader(r, s, bytes);
    }
  }
}

// An argument that convolutions read is copied before the first of them.
static at_status add_images(lives *l) {
  if (!l->tpu || l->comp->owner) return AT_OK;
  readers *all;
  AT_TRY_ALLOC(all, readers_new(l));
  find_convs(l, all);
  for (uint32_t i = 0; i < l->comp->num_params; i++) {
    at_value v = {l->comp->params[i], 0};
    const readers *r = &all[i];
    if (r->first > r->last) continue;
    live x = {
        .value = v,
        .bytes = (uint64_t)(at_value_type(v)->dtype == AT_F32 ? r->bytes / 2
                                                              : r->bytes),
        .born = r->first ? r->first - 1 : 0,
        .dies = r->last,
        .made = " for convolutions"};
    if (!at_vec_push(l->arena, &l->list, x)) return AT_NO_MEMORY("buffers");
  }
  return AT_OK;
}

// With the last two dimensions along lanes and sublanes.
static uint64_t bytes_by_rows(const at_type *t) {
  return (uint64_t)bytes_along(t, t->rank - 1, (int64_t)t->rank - 2);
}

// Rows are gathered from and scattered into arrays whose last dimension lies
// along the lanes; others are copied, unless that takes more than twice the
// memory: 48 columns of f32 stay as they are, 60 are copied.
static bool is_copied_by_rows(const lives *l, at_value v) {
  const at_type *t = at_value_type(v);
  uint32_t lanes;
  if (t->rank < 2) return false;
  at_tpu_compact_tiles(at_type_dims(t), &lanes);
  return lanes != t->rank - 1u &&
         bytes_by_rows(t) <= 2 * at_est_on_device(l, v);
}

// A buffer of one step.
static at_status add_for(lives *l, uint32_t step, at_value v, uint64_t bytes,
                         const char *made) {
  AT_ASSERT(step < l->groups.count);
  live x = {
      .value = v, .bytes = bytes, .born = step, .dies = step, .made = made};
  return at_vec_push(l->arena, &l->list, x) ? AT_OK : AT_NO_MEMORY("buffers");
}

// A stable sort carries indices; scatters and gathers work on rows.
static at_status add_copies_of(lives *l, uint32_t step, at_node *n) {
  if (!n->num_results) return AT_OK;
  at_value v = {n, 0};
  const live *x = at_est_live_of(l, v);
  if (n->op == AT_OP_SORT && n->num_operands == 1 &&
      at_node_int(n, AT_ATTR_IS_STABLE, 0)) {
    at_type indices = n->types[0];
    indices.dtype = AT_S32;
    AT_TRY(add_for(l, step, v, at_est_padded(l->target, &indices), " indices"));
    l->list.ptr[l->list.len - 1].dead = true;
    return AT_OK;
  }
  if (n->op == AT_OP_SCATTER && n->num_operands == 3 &&
      is_copied_by_rows(l, v) && x && x->output)
    return add_for(l, step, v, bytes_by_rows(&n->types[0]), " by rows");
  if (n->op == AT_OP_GATHER) {
    at_value from = at_est_behind(n->operands[0]);
    const live *y = at_est_live_of(l, from);
    const at_type *t = at_value_type(from);
    bool narrow = x && x->narrow;
    if (y && y->argument && is_copied_by_rows(l, from))
      return add_for(l, step, from, bytes_by_rows(t) / (narrow ? 2 : 1),
                     " by rows");
  }
  return AT_OK;
}

// ---- State that is put together row by row
// What a product computes has its rows along the sublanes, also where its
// columns become several dimensions, as heads: an array that such rows are put
// into, one by one, has that layout where products read it, as keys and values
// are; and an array that columns are put into has them along the sublanes.

// Is v, through steps that keep all elements, a product's result of several
// rows whose columns become several dimensions?
static bool has_split_columns(at_value v) {
  enum { kMost = 16 };
  const at_type *t = at_value_type(v);
  if (!at_type_is_static(t) || !t->rank) return false;
  int64_t elements = at_type_elements(t);
  at_node *n = at_est_behind(v).node;
  for (int step = 0; step < kMost && n->op != AT_OP_DOT_GENERAL; step++) {
    at_node *next = NULL;
    bool steps = at_op_is(n->op, AT_ELEMENTWISE) || n->op == AT_OP_TRANSPOSE;
    for (uint32_t o = 0; steps && o < n->num_operands && !next; o++) {
      at_value from = at_est_behind(n->operands[o]);
      if (from.node->op != AT_OP_PARAMETER &&
          from.node->op != AT_OP_BROADCAST_IN_DIM &&
          at_type_elements(at_value_type(from)) == elements)
        next = from.node;
    }
    if (!next) return false;
    n = next;
  }
  at_dims d = at_type_dims(&n->types[0]);
  if (n->op != AT_OP_DOT_GENERAL || d.rank < 2) return false;
  int64_t columns = d.ptr[d.rank - 1];
  return columns > t->dims[t->rank - 1] && columns < elements;
}

// Does a product beside n read it?
static bool is_read_by_products(const at_node *n) {
  AT_FOR_NODES(p, n->parent) {
    for (uint32_t o = 0; p->op == AT_OP_DOT_GENERAL && o < 2; o++) {
      const at_node *from = at_est_behind(p->operands[o]).node;
      while (from->op == AT_OP_CONVERT || from->op == AT_OP_TRANSPOSE)
        from = at_est_behind(from->operands[0]).node;
      if (from == n) return true;
    }
  }
  return false;
}

// The dimension in which an update puts one row at an index that changes, so
// that the array has another layout; -1: there is none.
static int64_t row_of(const at_node *n) {
  at_dims to = at_type_dims(&n->types[0]);
  at_dims row = at_type_dims(at_value_type(n->operands[1]));
  bool outermost = true;
  for (uint32_t d = 0; d < to.rank; d++) {
    const at_node *index = at_est_behind(n->operands[2 + d]).node;
    if (!outermost && row.ptr[d] == 1 && to.ptr[d] > 1 &&
        index->op != AT_OP_CONSTANT &&
        (d + 1 == to.rank ||
         (has_split_columns(n->operands[1]) && is_read_by_products(n))))
      return d;
    outermost &= to.ptr[d] == 1;
  }
  return -1;
}

// The update that leaves v in a loop's turn; through the loops inside, whose
// stacks it goes into. NULL: none that moves the layout.
static const at_node *row_update(at_value v) {
  bool inside = false;
  for (;;) {
    v = at_est_behind(v);
    at_node *n = v.node;
    if (n->op == AT_OP_WHILE) {
      inside = true;
      v = n->regions[1]->results[v.index];
    } else if (n->op == AT_OP_DYNAMIC_UPDATE_SLICE) {
      if (row_of(n) >= 0) return n;
      if (!inside) return NULL;
      v = n->operands[1];
    } else {
      return NULL;
    }
  }
}

// Bytes where `outside`, a dimension of rows, lies outside: the last dimension
// along the lanes and, of the others, the one that pads least along the
// sublanes. Columns lie along the sublanes.
static double bytes_beside(const at_type *t, int64_t outside) {
  double least = 0;
  bool column = outside == (int64_t)t->rank - 1;
  for (int64_t d = 0; d + 1 < t->rank; d++) {
    double bytes = column ? bytes_along(t, d, outside)
                          : bytes_along(t, (int64_t)t->rank - 1, d);
    if (d != outside && (least <= 0 || bytes < least)) least = bytes;
  }
  return least;
}

// State `i` of a loop of the program.
static void lay_state_out(lives *l, at_node *loop, uint32_t i) {
  const at_node *n = row_update(loop->regions[1]->results[i]);
  live *x = n ? at_est_live_of(l, (at_value){loop, i}) : NULL;
  const at_type *t = &loop->types[i];
  int64_t d = n ? row_of(n) : -1;
  if (!x || !x->output || !at_type_is_static(t) || t->rank < 2) return;
  d += (int64_t)t->rank - n->types[0].rank;
  double bytes = bytes_beside(t, d);
  if (bytes <= 0) return;
  x->relaid = true;
  x->output = false;
  x->bytes = (uint64_t)bytes;
}

void at_est_lay_state_out(lives *l) {
  if (!l->tpu || l->comp->owner) return;
  for (uint32_t k = 0; k < l->groups.count; k++) {
    at_node *n = l->groups.list[k]->root;
    for (uint32_t i = 0; n->op == AT_OP_WHILE && i < n->num_results; i++)
      lay_state_out(l, n, i);
  }
}

// Do dimensions of the one become parts of several dimensions of the other?
// Splits and merges keep what lies along lanes and sublanes in some layout;
// this moves all elements.
static bool mixes(const at_type *from, const at_type *to) {
  uint32_t i = 0, j = 0;
  if (!at_type_is_static(from) || !at_type_is_static(to)) return false;
  while (i < from->rank && j < to->rank) {
    int64_t p = from->dims[i], q = to->dims[j];
    uint32_t left = p != 1, right = q != 1;
    i++, j++;
    while (p != q) {
      bool more = p < q;
      if (more ? i == from->rank : j == to->rank) return false;
      int64_t n = more ? from->dims[i++] : to->dims[j++];
      *(more ? &p : &q) *= n;
      *(more ? &left : &right) += n != 1;
    }
    if (left > 1 && right > 1) return true;
  }
  return false;
}

// A reshape that moves all elements is written, row by row, and so is what it
// reads.
static at_status add_reshaped(lives *l, uint32_t step, at_value v) {
  for (; at_est_is_renaming(v.node) && v.node->num_operands;
       v = v.node->operands[v.node->op == AT_OP_RESHAPE ? 0 : v.index]) {
    const at_type *t = at_value_type(v);
    if (v.node->op != AT_OP_RESHAPE || t->rank < 2 ||
        !mixes(at_value_type(v.node->operands[0]), t))
      continue;
    at_value from = at_est_behind(v);
    AT_TRY(add_for(l, step, v, bytes_by_rows(t), " as reshaped"));
    if (at_est_live_of(l, from) || from.node->op == AT_OP_CONSTANT)
      return AT_OK;
    return add_for(l, step, from, at_est_on_device(l, from), "");
  }
  return AT_OK;
}

// Of all nodes, and of the reshapes in front of them.
static at_status add_copies(lives *l) {
  for (uint32_t s = 0; l->tpu && s < l->groups.count; s++) {
    const at_est_group *g = l->groups.list[l->order[s]];
    for (size_t k = 0; k < g->nodes.len; k++) {
      at_node *n = g->nodes.ptr[k];
      AT_TRY(add_copies_of(l, s, n));
      for (uint32_t o = 0; o < n->num_operands; o++)
        AT_TRY(add_reshaped(l, s, n->operands[o]));
    }
  }
  return AT_OK;
}

// ---- Results that take donated arguments' memory over

// Does the group's product read v?
static bool is_multiplied(const at_est_group *g, at_value v) {
  for (uint32_t o = 0; g->product && o < g->product->num_operands; o++)
    if (at_value_eq(at_est_behind(g->product->operands[o]), v)) return true;
  return false;
}

// A result that is there before its argument's last reader has run waits
// elsewhere, and is copied then. Elementwise kernels write where they read.
static at_status add_waiting(lives *l, uint32_t argument, uint32_t result) {
  at_value from = {l->comp->params[argument], 0};
  at_value to = at_est_behind(l->comp->results[result]);
  const live *x = at_est_live_of(l, to), *old = at_est_live_of(l, from);
  if (!x || !old || x->argument || x->writer == UINT32_MAX || !x->bytes)
    return AT_OK;
  uint32_t last = 0;
  for (size_t r = 0; r < old->readers.len; r++) {
    uint32_t k = old->readers.ptr[r];
    bool same = k == x->writer && !is_multiplied(l->groups.list[k], from);
    if (!same) last = AT_MAX(last, l->step[k] + 1);
  }
  if (last <= l->step[x->writer]) return AT_OK;
  live waiting = {.value = to,
                  .bytes = x->bytes,
                  .born = l->step[x->writer],
                  .dies = last - 1,
                  .made = " until its argument is read"};
  return at_vec_push(l->arena, &l->list, waiting) ? AT_OK
                                                  : AT_NO_MEMORY("buffers");
}

// For each argument that is donated to a result.
static at_status add_all_waiting(lives *l) {
  const at_io_info *infos = l->comp->owner ? NULL : l->comp->module->params;
  for (uint32_t i = 0; l->tpu && infos && i < l->comp->num_params; i++)
    if (infos[i].alias >= 0 && (uint32_t)infos[i].alias < l->comp->num_results)
      AT_TRY(add_waiting(l, i, (uint32_t)infos[i].alias));
  return AT_OK;
}

// A result of the program that a convolution computes is copied from its
// layout.
static at_status add_image_results(lives *l) {
  for (uint32_t r = 0; l->tpu && !l->comp->owner && r < l->comp->num_results;
       r++) {
    const live *x = at_est_live_of(l, l->comp->results[r]);
    if (!x || x->writer == UINT32_MAX) continue;
    const at_node *p = l->groups.list[x->writer]->product;
    const at_type *t = at_value_type(x->value);
    if (!p || !is_conv(p) ||
        !at_dims_eq(at_type_dims(t), at_type_dims(&p->types[0])))
      continue;
    AT_TRY(add_for(l, l->step[x->writer], x->value, (uint64_t)conv_result(p, t),
                   " as its convolution has it"));
  }
  return AT_OK;
}

// A temporary has so many bytes at least, half where it is narrow.
static void widen(const lives *l, at_value v, double bytes) {
  live *x = at_est_live_of(l, v);
  if (!x || x->writer == UINT32_MAX || !at_est_is_temporary(l, x) || !x->bytes)
    return;
  if (x->narrow) bytes /= 2;
  x->bytes = AT_MAX(x->bytes, (uint64_t)bytes);
}

// What batched products read and write lies as they have it.
static void lay_batches_out(lives *l) {
  for (uint32_t k = 0; k < l->groups.count; k++) {
    const at_est_group *g = l->groups.list[k];
    const at_node *p = g->product;
    if (!p || p->op != AT_OP_DOT_GENERAL) continue;
    for (uint32_t o = 0; o < 2; o++)
      if (is_plain(p->operands[o])) widen(l, p->operands[o], dot_operand(p, o));
    for (size_t w = 0; w < g->writes.len; w++)
      if (at_dims_eq(at_type_dims(at_value_type(g->writes.ptr[w])),
                     at_type_dims(&p->types[0])))
        widen(l, g->writes.ptr[w], dot_result(p));
  }
}

// What is computed with a convolution has its result's layout, and what batched
// products read and write theirs.
void at_est_lay_images_out(lives *l) {
  if (l->tpu) lay_batches_out(l);
  for (size_t i = 0; l->tpu && i < l->list.len; i++) {
    live *x = &l->list.ptr[i];
    if (x->writer == UINT32_MAX || !at_est_is_temporary(l, x) || !x->bytes)
      continue;
    const at_node *p = l->groups.list[x->writer]->product;
    const at_type *t = at_value_type(x->value);
    if (!p || !is_conv(p) ||
        !at_dims_eq(at_type_dims(t), at_type_dims(&p->types[0])))
      continue;
    x->bytes = (uint64_t)(conv_result(p, t) / (x->narrow ? 2 : 1));
  }
}

// Steps and times are set; more lives follow.
at_status at_est_add_copies(lives *l) {
  AT_TRY(add_rounded(l));
  AT_TRY(add_images(l));
  AT_TRY(add_image_results(l));
  AT_TRY(add_all_waiting(l));
  return add_copies(l);
}
