// A lowered program run for real: every block of a grid by itself, from the
// boxes that it needs, partial sums combined.
#include "tiles/lower_internal.h"

typedef struct box {
  int64_t lo[kTilesRank], n[kTilesRank];
} box;

static int64_t volume(const box *b, uint32_t rank) {
  int64_t v = 1;
  for (uint32_t d = 0; d < rank; d++) v *= b->n[d];
  return v;
}

// Copies between a box of `whole` and a dense block.
static void copy_box(uint8_t *whole, const at_type *t, const box *b,
                     uint8_t *block, bool out) {
  int64_t index[kTilesRank] = {0}, total = volume(b, t->rank);
  size_t size = at_dtype_bytes(t->dtype);
  int64_t row = t->rank ? b->n[t->rank - 1] : 1;
  for (int64_t done = 0; done < total; done += row) {
    int64_t at = 0;
    for (uint32_t d = 0; d < t->rank; d++)
      at = at * t->dims[d] + b->lo[d] + index[d];
    uint8_t *w = whole + (size_t)at * size, *x = block + (size_t)done * size;
    memcpy(out ? w : x, out ? x : w, (size_t)row * size);
    for (uint32_t d = t->rank ? t->rank - 1 : 0; d-- > 0;) {
      if (++index[d] < b->n[d]) break;
      index[d] = 0;
    }
  }
}

static at_status block_type(at_arena *a, const at_type *t, const box *b,
                            at_type *out) {
  return at_type_make(a, t->dtype, (at_dims){b->n, t->rank}, out);
}

static at_status take(at_arena *a, const at_literal *l, const box *b,
                      const at_literal **out) {
  at_type t;
  AT_TRY(block_type(a, &l->type, b, &t));
  if (l->splat) return at_literal_make(a, t, l->data, true, true, out);
  uint8_t *data;
  AT_TRY_ALLOC(data, at_arena_alloc(a, at_type_bytes(&t) + 1, 64));
  copy_box((uint8_t *)(uintptr_t)l->data, &l->type, b, data, false);
  return at_literal_make(a, t, data, false, true, out);
}

typedef struct blocks {
  at_tiles_lowerer *w;
  const at_node *n;
  const at_tiles_rule *r;
  const at_tiles_grid *g;
  const at_literal **operands;
  at_tiles_lay *lays;
  uint8_t **results;
  int64_t index[kTilesFactors];
} blocks;

static void box_of(const blocks *b, uint32_t t, box *out) {
  const at_tiles_lay *l = &b->lays[t];
  for (uint32_t d = 0; d < l->rank; d++) {
    const at_dim_factors *x = &b->r->r.dims[t][d];
    int64_t k = x->n && l->dim[d].cuts > 1 ? b->index[x->f[0]] : 0;
    out->lo[d] = l->dim[d].bound[k];
    out->n[d] = l->dim[d].end[k] - l->dim[d].bound[k];
  }
}

// a (combine) b, of the same type.
static at_status join(at_op op, at_arena *a, const at_literal *x,
                      const at_literal *y, const at_literal **out) {
  at_node leaves[2] = {{.num_results = 1}, {.num_results = 1}};
  at_type tx = x->type, ty = y->type, to = x->type;
  leaves[0].types = &tx, leaves[1].types = &ty;
  at_value operands[2] = {{&leaves[0], 0}, {&leaves[1], 0}};
  at_node n = {.op = op,
               .num_operands = 2,
               .num_results = 1,
               .operands = operands,
               .types = &to};
  const at_literal *in[2] = {x, y};
  return at_eval_node(&n, in, NULL, a, out);
}

// One block of the results: over all blocks of the factors that are summed.
static at_status run_block(blocks *b, at_arena *a, const at_literal **sum,
                           bool first) {
  const at_node *n = b->n;
  const at_literal **in, **out;
  at_node part = *n;
  box x;
  AT_TRY_ALLOC(in, at_new(a, const at_literal *, n->num_operands + 1));
  AT_TRY_ALLOC(out, at_new(a, const at_literal *, n->num_results + 1));
  AT_TRY_ALLOC(part.types, at_new(a, at_type, n->num_results));
  // Operands of the part are leaves of the block's type.
  at_node *leaves;
  at_type *types;
  AT_TRY_ALLOC(leaves, at_new(a, at_node, n->num_operands + 1));
  AT_TRY_ALLOC(types, at_new(a, at_type, n->num_operands + 1));
  AT_TRY_ALLOC(part.operands, at_new(a, at_value, n->num_operands + 1));
  for (uint32_t t = 0; t < n->num_operands; t++) {
    box_of(b, t, &x);
    AT_TRY(take(a, b->operands[t], &x, &in[t]));
    types[t] = in[t]->type;
    leaves[t] =
        (at_node){.op = AT_OP_PARAMETER, .num_results = 1, .types = &types[t]};
    part.operands[t].node = &leaves[t];
  }
  for (uint32_t i = 0; i < n->num_results; i++) {
    box_of(b, n->num_operands + i, &x);
    if (!volume(&x, n->types[i].rank)) return AT_OK;
    AT_TRY(block_type(a, &n->types[i], &x, &part.types[i]));
  }
  AT_TRY(at_eval_node(&part, in, NULL, a, out));
  for (uint32_t i = 0; i < n->num_results; i++) {
    if (!first) AT_TRY(join(b->r->r.combine, a, sum[i], out[i], &out[i]));
    sum[i] = out[i];
  }
  return AT_OK;
}

static at_status store(blocks *b, at_arena *a, const at_literal *const *sum) {
  for (uint32_t i = 0; i < b->n->num_results; i++) {
    box x;
    box_of(b, b->n->num_operands + i, &x);
    if (!sum[i]) continue;
    const at_literal *l = sum[i];
    uint8_t *dense = (uint8_t *)(uintptr_t)l->data;
    if (l->splat) {
      size_t size = at_dtype_bytes(l->type.dtype);
      AT_TRY_ALLOC(dense, at_arena_alloc(a, at_type_bytes(&l->type) + 1, 64));
      for (int64_t k = 0; k < at_type_elements(&l->type); k++)
        memcpy(dense + (size_t)k * size, l->data, size);
    }
    copy_box(b->results[i], &b->n->types[i], &x, dense, true);
  }
  return AT_OK;
}

static bool step(const blocks *b, int64_t *index, bool sums) {
  for (uint32_t f = b->g->num; f-- > 0;) {
    if (b->g->sum[f] != sums) continue;
    if (++index[f] < b->g->dim[f].cuts) return true;
    index[f] = 0;
  }
  return false;
}

static at_status run_blocks(blocks *b) {
  do {
    at_arena *a = at_arena_create();
    if (!a) return AT_NO_MEMORY("block");
    const at_literal **sum =
        at_new(a, const at_literal *, b->n->num_results + 1);
    at_status st = sum ? AT_OK : AT_NO_MEMORY("block");
    bool first = true;
    do {
      if (at_ok(st)) st = run_block(b, a, sum, first);
      first = false;
    } while (at_ok(st) && step(b, b->index, true));
    if (at_ok(st)) st = store(b, a, sum);
    at_arena_destroy(a);
    AT_TRY(st);
  } while (step(b, b->index, false));
  return AT_OK;
}

// Ops whose blocks are the same op on smaller operands.
static bool in_blocks(const at_node *n, const at_tiles_rule *r,
                      const at_tiles_grid *g) {
  if (!r) return false;
  for (uint32_t i = 0; i < r->num_windows; i++)
    if (g->dim[r->windows[i].factor].cuts > 1) return false;
  for (uint32_t t = 0; t < r->r.num_tensors; t++)
    for (uint32_t d = 0; r->r.places[t] && d < r->r.places[t]->whole.rank; d++)
      if (r->r.dims[t][d].n > 1) return false;
  bool reduces = n->op == AT_OP_REDUCE &&
                 (n->num_results == 1 || r->r.combine == AT_OP_COUNT);
  return at_op_is(n->op, AT_ELEMENTWISE) || n->op == AT_OP_DOT_GENERAL ||
         n->op == AT_OP_CONVOLUTION || reduces;
}

at_status at_tiles_eval_node(at_tiles_lowerer *w, const at_node *n,
                             const at_tiles_rule *r, const at_tiles_grid *g) {
  const at_literal **in, **out;
  at_arena *a = w->arena;
  AT_TRY_ALLOC(in, at_new(a, const at_literal *, n->num_operands + 1));
  AT_TRY_ALLOC(out, at_new(a, const at_literal *, n->num_results + 1));
  for (uint32_t t = 0; t < n->num_operands; t++)
    in[t] = at_tiles_value_of(w, n->operands[t])->literal;
  if (!in_blocks(n, r, g)) {
    at_eval_options o = {.custom = NULL};
    AT_TRY(at_eval_node(n, in, &o, a, out));
  } else {
    blocks b = {.w = w, .n = n, .r = r, .g = g, .operands = in};
    AT_TRY_ALLOC(b.lays, at_new(a, at_tiles_lay, r->r.num_tensors + 1));
    AT_TRY_ALLOC(b.results, at_new(a, uint8_t *, n->num_results + 1));
    for (uint32_t t = 0; t < r->r.num_tensors; t++) {
      uint32_t *group, num;
      AT_TRY(at_tiles_grid_lay(a, r, g, t, &b.lays[t], &group, &num));
    }
    for (uint32_t i = 0; i < n->num_results; i++) {
      AT_TRY_ALLOC(b.results[i],
                   at_arena_alloc(a, at_type_bytes(&n->types[i]) + 1, 64));
      AT_TRY(
          at_literal_make(a, n->types[i], b.results[i], false, true, &out[i]));
    }
    AT_TRY(run_blocks(&b));
  }
  for (uint32_t i = 0; i < n->num_results; i++)
    at_tiles_value_of(w, (at_value){(at_node *)n, i})->literal = out[i];
  return AT_OK;
}
