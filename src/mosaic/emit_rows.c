// Runs of operations that work row by row. A kernel's vectors are whole blocks,
// and what one operation leaves is read by the next: a softmax goes over its
// block five times. Where every value of a row comes from the same row of
// others, one loop over the rows takes all operations with it, a few rows at a
// time, which then lie in the first cache.
#include "mosaic/emit.h"

enum {
  MIN_ROWS = 8,
  MIN_COLUMNS = 64,
  MAX_ROW_BYTES = 16 << 10,
  MIN_ELEMENTS = 8 << 10,
  STEP_BYTES = 2 << 10,  // of one value in a turn of the loop
  MIN_SINKS = 3,
  MAX_STORES = 8
};

typedef struct plan {
  at_me *m;
  const at_mblock *b;
  uint32_t begin, end;
  int64_t rows, columns;
  const at_mop *stores[MAX_STORES];
  uint32_t num_stores, sinks;
  uint64_t written;
  bool products;  // may be part of the run
  uint32_t num_products;
  at_map inside;  // const at_mvalue * -> 1: computed before the loop, 2: in it
  at_map uses;    // const at_mvalue * -> how often the run uses it
} plan;

enum { FREE = 1, ROW = 2 };
// Uses by products count also here, in the numbers of `uses`.
static const uintptr_t PRODUCT_USE = (uintptr_t)1 << 32;

// ---- shapes
int at_me_row_dim(uint32_t rank, const int64_t *dim, int64_t rows) {
  uint32_t d = 0;
  while (d < rank && dim[d] == 1) d++;
  return d < rank && dim[d] == rows ? (int)d : -1;
}
static int row_dim_of(const at_mvalue *v, int64_t rows) {
  if (!at_me_is_vector(v)) return -1;
  return at_me_row_dim(v->type->shape.rank, v->type->shape.ptr, rows);
}

// A value that was there before may be read anywhere.
static uintptr_t place_of(plan *p, const at_mvalue *v) {
  void **x = at_map_find_ptr(&p->inside, v);
  return x ? (uintptr_t)*x : FREE;
}
static bool put(plan *p, const at_mvalue *v, uintptr_t place) {
  void **x = at_map_put_ptr(&p->inside, v);
  if (x) *x = (void *)place;
  return x != NULL;
}

// ---- memory
static bool same_index(const at_mvalue *a, const at_mvalue *b) {
  if (a == b) return true;
  if (!a->op || !b->op) return false;
  return at_mosaic_opcode_of(a->op) == AT_MOSAIC_ARITH_CONSTANT &&
         at_mosaic_opcode_of(b->op) == AT_MOSAIC_ARITH_CONSTANT &&
         at_me_int(a->op, "value", 0) == at_me_int(b->op, "value", 1);
}

bool at_me_plain_load(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return (c == AT_MOSAIC_VECTOR_LOAD || c == AT_MOSAIC_TPU_VECTOR_LOAD) &&
         op->num_operands == 1 + op->operands[0]->type->shape.rank;
}
bool at_me_plain_store(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return (c == AT_MOSAIC_VECTOR_STORE || c == AT_MOSAIC_TPU_VECTOR_STORE) &&
         op->num_operands == 2 + op->operands[1]->type->shape.rank &&
         !at_me_int(op, "add", 0);
}
bool at_me_has_steps(const at_mop *op) {
  int64_t steps[AT_ME_RANK];
  uint32_t n;
  (void)at_me_ints(op, "strides", steps, AT_ME_RANK, &n);
  return n > 0;
}

// Do a load and a store go over the same elements in the same order?
static bool same_box(const at_mop *load, const at_mop *store) {
  if (!at_me_plain_load(load) || at_me_has_steps(load)) return false;
  if (load->operands[0] != store->operands[1]) return false;
  const at_mtype *a = load->results[0].type, *b = store->operands[0]->type;
  if (!at_dims_eq(a->shape, b->shape)) return false;
  for (uint32_t i = 1; i < load->num_operands; i++)
    if (!same_index(load->operands[i], store->operands[i + 1])) return false;
  return true;
}

// What the ref of a load or store may share with others, by its root.
static uint64_t root_of(plan *p, const at_mvalue *ref) {
  void **x = at_map_find_ptr(&p->m->slots, ref);
  at_me_slot *s = x ? *x : NULL;
  if (!s || s->kind != AT_ME_MEMORY || s->ref->parts > 1 || s->ref->split > 1)
    return 0;
  return at_me_root_bit(s->ref->root);
}

// ---- which operations
bool at_me_elementwise(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  switch (c) {
    case AT_MOSAIC_TPU_RECIPROCAL:
    case AT_MOSAIC_TPU_LOGISTIC:
    case AT_MOSAIC_TPU_FPTOSI:
    case AT_MOSAIC_TPU_SITOFP:
    case AT_MOSAIC_TPU_EXTF:
    case AT_MOSAIC_TPU_TRUNCF:
    case AT_MOSAIC_TPU_REDUCE_PRECISION:
      return true;
    case AT_MOSAIC_ARITH_CONSTANT:
    case AT_MOSAIC_ARITH_BITCAST:
      return false;
    default:
      return at_me_lazy(c) && (!strncmp(op->name, "arith.", 6) ||
                               !strncmp(op->name, "math.", 5));
  }
}

static bool all_free(plan *p, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (place_of(p, op->operands[i]) != FREE) return false;
  return true;
}

// Operands of the same shape, or scalars.
static bool works_in_rows(plan *p, const at_mop *op) {
  const at_mtype *t = op->results[0].type;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mvalue *v = op->operands[i];
    if (!at_me_is_vector(v)) {
      if (place_of(p, v) != FREE) return false;
      continue;
    }
    if (!at_dims_eq(v->type->shape, t->shape)) return false;
  }
  return true;
}

static bool reduces_in_rows(plan *p, const at_mop *op) {
  const at_mvalue *a = op->operands[0], *acc = op->operands[1];
  int at = row_dim_of(a, p->rows);
  int64_t dims[AT_ME_RANK];
  uint32_t n;
  if (at < 0 || row_dim_of(&op->results[0], p->rows) < 0 ||
      place_of(p, acc) != FREE || !at_me_is_vector(acc))
    return false;
  if (!at_me_ints(op, "reduction_dims", dims, AT_ME_RANK, &n)) return false;
  for (uint32_t i = 0; i < n; i++)
    if (dims[i] <= at) return false;
  return true;
}

static bool moves_in_rows(plan *p, const at_mop *op) {
  const at_mvalue *in = op->operands[0];
  int from = row_dim_of(in, p->rows);
  int to = row_dim_of(&op->results[0], p->rows);
  if (from < 0 || to < 0) return false;
  if (at_mosaic_opcode_of(op) != AT_MOSAIC_VECTOR_BROADCAST) return true;
  uint32_t lead = op->results[0].type->shape.rank - in->type->shape.rank;
  return (uint32_t)from + lead == (uint32_t)to;
}

// ---- operands of products
enum { EARLY = 1, LATE = 2 };

// Can it be computed before the loop? What the run does not define was there
// before.
static bool is_early(const at_map *when, const at_mop *op) {
  bool load = at_me_plain_load(op) && !at_me_has_steps(op);
  if (op->num_regions || (!load && !at_me_lazy(at_mosaic_opcode_of(op))))
    return false;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    void **x = at_map_find_ptr(when, op->operands[i]);
    if (x && (uintptr_t)*x == LATE) return false;
  }
  return true;
}

// It is computed before the loop then, and so is what it is made of.
static bool make_free(plan *p, const at_map *when, const at_mvalue *value) {
  at_walk *w = &p->m->walk;
  at_walk_clear(w);
  at_walk_add(w, value, 0);
  for (at_walk_step s; at_walk_next(w, &s);) {
    const at_mvalue *v = s.item;
    void **x = at_map_find_ptr(when, v);
    if (!x || (uintptr_t)*x != EARLY || !at_me_is_vector(v) ||
        at_map_find_ptr(&p->inside, v))
      continue;
    if (!put(p, v, FREE)) return false;
    for (uint32_t i = 0; i < v->op->num_operands; i++)
      at_walk_add(w, v->op->operands[i], 0);
  }
  return !w->failed;
}

static bool is_marked_free(const plan *p, const at_mvalue *v) {
  void **x = at_map_find_ptr(&p->inside, v);
  return x && (uintptr_t)*x == FREE;
}

static bool multiplies_in_rows(plan *p, const at_mop *op) {
  const at_mvalue *acc = op->operands[2];
  if (!p->products || p->num_products == AT_ME_ROW_PRODUCTS ||
      p->rows % AT_ME_PRODUCT_ROWS || place_of(p, op->operands[1]) != FREE ||
      !at_me_is_vector(acc) || !at_me_dot_has_rows(p->m, op, p->rows))
    return false;
  p->num_products++;
  p->sinks++;
  return true;
}

static bool add_store(plan *p, const at_mop *op) {
  uint64_t root = root_of(p, op->operands[1]);
  if (!at_me_plain_store(op) || at_me_has_steps(op) || !root || root >> 63 ||
      p->num_stores == MAX_STORES || row_dim_of(op->operands[0], p->rows) < 0)
    return false;
  p->stores[p->num_stores++] = op;
  p->written |= root;
  p->sinks++;
  return true;
}

// Where the operation belongs; 0: the run ends before it.
static uintptr_t classify(plan *p, const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  if (op->num_regions) return 0;
  if (at_me_plain_store(op)) return add_store(p, op) ? ROW : 0;
  if (op->num_results != 1) return 0;
  const at_mvalue *r = &op->results[0];
  if (at_me_plain_load(op)) {
    if (at_me_has_steps(op) || !root_of(p, op->operands[0])) return 0;
    return row_dim_of(r, p->rows) >= 0 && !is_marked_free(p, r) ? ROW : FREE;
  }
  if (is_marked_free(p, r)) return all_free(p, op) ? FREE : 0;
  if (!at_me_is_vector(r))
    return at_me_lazy(c) && all_free(p, op) && r->type->kind != AT_MTYPE_MEMREF
               ? FREE
               : 0;
  switch (c) {
    case AT_MOSAIC_ARITH_CONSTANT:
    case AT_MOSAIC_TPU_IOTA:
      return FREE;
    case AT_MOSAIC_VECTOR_BROADCAST:
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
    case AT_MOSAIC_TPU_RESHAPE:
      if (all_free(p, op)) return FREE;
      return moves_in_rows(p, op) ? ROW : 0;
    case AT_MOSAIC_VECTOR_MULTI_REDUCTION:
      if (!reduces_in_rows(p, op)) return 0;
      p->sinks++;
      return ROW;
    case AT_MOSAIC_TPU_MATMUL:
      return multiplies_in_rows(p, op) ? ROW : 0;
    default:
      if (!at_me_elementwise(op)) return 0;
      if (row_dim_of(r, p->rows) >= 0 && works_in_rows(p, op)) return ROW;
      return all_free(p, op) ? FREE : 0;
  }
}

static bool is_reduction(const at_mop *op) {
  return at_mosaic_opcode_of(op) == AT_MOSAIC_VECTOR_MULTI_REDUCTION;
}

// No run goes beyond such an operation.
static bool ends_runs(const plan *p, const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return !at_me_lazy(c) && !is_reduction(op) && !at_me_plain_load(op) &&
         !at_me_plain_store(op) && !(p->products && c == AT_MOSAIC_TPU_MATMUL);
}

// The first reduction from `begin` on, or what ends runs before it, or the end
// of the block. It is the same for every operation before it, and so found
// once.
static uint32_t find_stop(plan *p) {
  at_me_stop *s = &p->m->rows.stop[p->products];
  if (s->block == p->b && s->from <= p->begin && p->begin <= s->at)
    return s->at;
  uint32_t i = p->begin;
  while (i < p->b->num_ops && !is_reduction(p->b->ops[i]) &&
         !ends_runs(p, p->b->ops[i]))
    i++;
  *s = (at_me_stop){p->b, p->begin, i};
  return i;
}

// The first reduction that could be part of a run says how many rows. `end` is
// left behind what has been looked at.
static bool find_rows(plan *p) {
  uint32_t at = find_stop(p), d = 0;
  p->end = AT_MIN(at + 1, p->b->num_ops);
  if (at == p->b->num_ops || !is_reduction(p->b->ops[at])) return false;
  const at_mvalue *in = p->b->ops[at]->operands[0];
  const at_mtype *t = in->type;
  if (!at_me_is_vector(in)) return false;
  while (d < t->shape.rank && t->shape.ptr[d] == 1) d++;
  if (d + 1 >= t->shape.rank) return false;
  p->rows = t->shape.ptr[d];
  p->columns = 1;
  for (uint32_t k = d + 1; k < t->shape.rank; k++)
    p->columns *= t->shape.ptr[k];
  return p->rows >= MIN_ROWS && p->columns >= MIN_COLUMNS &&
         p->columns <= MAX_ROW_BYTES / 4 &&
         p->rows >= MIN_ELEMENTS / p->columns;
}

// Operands of products come before the loop: the second, and the first if it
// can.
static bool free_operands(plan *p) {
  at_map when = at_map_in(p->m->a);  // of values that the run could define
  uint32_t products = 0;
  for (uint32_t i = p->begin; i < p->b->num_ops; i++) {
    const at_mop *op = p->b->ops[i];
    if (ends_runs(p, op) || products > AT_ME_ROW_PRODUCTS) break;
    bool early = is_early(&when, op);
    for (uint32_t k = 0; k < op->num_results; k++) {
      void **x = at_map_put_ptr(&when, &op->results[k]);
      if (!x) return false;
      *x = (void *)(uintptr_t)(early ? EARLY : LATE);
    }
    if (at_mosaic_opcode_of(op) != AT_MOSAIC_TPU_MATMUL) continue;
    products++;
    for (uint32_t k = 0; k < 2; k++)
      if (!make_free(p, &when, op->operands[k])) return false;
  }
  return true;
}

// A load from memory that the run writes must read what is written there, in
// the loop.
static bool loads_agree(plan *p, const at_mop *load, uint64_t root) {
  bool early = is_marked_free(p, &load->results[0]);
  for (uint32_t i = 0; i < p->num_stores; i++)
    if ((root_of(p, p->stores[i]->operands[1]) & root) &&
        (early || !same_box(load, p->stores[i])))
      return false;
  return true;
}

static bool stores_agree(plan *p) {
  for (uint32_t i = 0; i < p->num_stores; i++)
    for (uint32_t k = 0; k < i; k++) {
      const at_mop *a = p->stores[i], *b = p->stores[k];
      if (root_of(p, a->operands[1]) != root_of(p, b->operands[1])) continue;
      if (a->operands[1] != b->operands[1]) return false;
      for (uint32_t d = 2; d < a->num_operands; d++)
        if (!same_index(a->operands[d], b->operands[d])) return false;
      if (a->operands[0]->type != b->operands[0]->type) return false;
    }
  return true;
}

static bool find_run(plan *p) {
  p->inside = at_map_in(p->m->a);
  p->sinks = p->num_stores = p->num_products = 0;
  p->written = 0;
  if (p->products && !free_operands(p)) return false;
  for (p->end = p->begin; p->end < p->b->num_ops; p->end++) {
    const at_mop *op = p->b->ops[p->end];
    uintptr_t place = classify(p, op);
    if (!place) break;
    if (op->num_results && !put(p, &op->results[0], place)) return false;
    if (place == ROW && op->num_results) {
      const at_me_slot *s = at_me_slot_of(p->m, &op->results[0]);
      p->sinks += s->many && s->cost >= AT_ME_KEEP_COST;
    }
  }
  if (p->sinks < MIN_SINKS || !stores_agree(p)) return false;
  for (uint32_t i = p->begin; i < p->end; i++) {
    const at_mop *op = p->b->ops[i];
    if (at_me_plain_load(op) &&
        !loads_agree(p, op, root_of(p, op->operands[0])))
      return false;
  }
  return true;
}

// ---- what was there before
// Is a row of n made of the same row of what it reads, as far as n says?
static bool keeps_rows(plan *p, const at_me_node *n) {
  int at = at_me_row_dim(n->rank, n->dim, p->rows);
  if (at < 0) return false;
  switch (n->kind) {
    case AT_ME_LOAD:
      return n->op && at_me_plain_load(n->op) &&
             loads_agree(p, n->op, at_me_root_bit(n->ref.root));
    case AT_ME_APPLY:
    case AT_ME_RESHAPE:
      return true;
    case AT_ME_BROADCAST:
      return at_me_row_dim(n->in[0]->rank, n->in[0]->dim, p->rows) +
                 (int)(n->rank - n->in[0]->rank) ==
             at;
    default:
      return false;
  }
}

// The walk holds what is known to be in rows; m->walk is not cleared between.
static bool in_rows(plan *p, const at_me_node *tree) {
  at_walk *w = &p->m->walk;
  at_walk_add(w, tree, 0);
  for (at_walk_step s; at_walk_next(w, &s);) {
    const at_me_node *n = s.item;
    if (n->kind != AT_ME_DOT && !(n->reads & p->written)) continue;
    if (n->kind == AT_ME_DOT || !keeps_rows(p, n)) {
      at_walk_clear(w);
      return false;
    }
    for (uint32_t i = 0; i < n->num_in; i++) at_walk_add(w, n->in[i], 0);
  }
  return true;
}

// Are the elements of n one row after the other, whatever it is made of? Loops
// over a reshape of other dimensions are also divided where those are.
static bool divides_at_rows(plan *p, at_me_node *n) {
  at_me_space s = {.total = at_me_elements(n)};
  at_me_space_tree(p->m, &s, n);
  for (uint32_t i = 0; i < s.n; i++)
    if (s.total / p->rows % s.cut[i]) return false;
  return true;
}

// Products are not computed in rows, nor is what has other dimensions.
static void settle_free(plan *p, const at_mvalue *v) {
  at_me_node *n = at_me_vector(p->m, v);
  if (n && row_dim_of(v, p->rows) >= 0 && !divides_at_rows(p, n))
    at_me_node_drop(p->m, at_me_materialise(p->m, n));
  else
    at_me_prepare(p->m, n);
}

static void settle_list(plan *p, uint32_t list) {
  at_me *m = p->m;
  at_me_cursor c;
  at_walk_clear(&m->walk);
  for (at_me_node *n = at_me_list_begin(m, list, &c); n && at_em_ok(m->e);
       n = at_me_list_next(&c)) {
    if (n->region != m->region || n->kind == AT_ME_BUFFER) continue;
    if (!(n->reads & p->written) || in_rows(p, n)) continue;
    at_me_node_drop(m, at_me_materialise(m, n));
    at_walk_clear(&m->walk);
  }
  at_me_list_end(m, &c);
}

static void settle_before(plan *p) {
  for (uint32_t l = at_me_list_of(p->written, 0); l != AT_ME_LIST_DOTS;
       l = at_me_list_of(p->written, l + 1))
    settle_list(p, l);
  for (uint32_t i = p->begin; i < p->end; i++) {
    const at_mop *op = p->b->ops[i];
    for (uint32_t k = 0; k < op->num_operands; k++) {
      const at_mvalue *v = op->operands[k];
      if (at_me_is_vector(v) && place_of(p, v) == FREE) settle_free(p, v);
    }
  }
}

static void pack_before(plan *p) {
  for (uint32_t i = p->begin; i < p->end; i++) {
    const at_mop *op = p->b->ops[i];
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL)
      at_me_dot_rows_pack(p->m, op, place_of(p, op->operands[0]) == FREE);
  }
}

// ---- the loop
// How often the run uses its values.
static bool count_inside(plan *p) {
  p->uses = at_map_in(p->m->a);
  for (uint32_t i = p->begin; i < p->end; i++) {
    const at_mop *op = p->b->ops[i];
    bool product = at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL;
    for (uint32_t k = 0; k < op->num_operands; k++) {
      void **x = at_map_put_ptr(&p->uses, op->operands[k]);
      if (!x) return false;
      *x = (void *)((uintptr_t)*x + 1 + (product ? PRODUCT_USE : 0));
    }
  }
  return true;
}
static uintptr_t uses_inside(const plan *p, const at_mvalue *v) {
  void **x = at_map_find_ptr(&p->uses, v);
  return x ? (uintptr_t)*x : 0;
}

// Does a product behind the run take it?
static bool feeds_product(const plan *p, const at_mvalue *v) {
  return at_me_slot_of(p->m, v)->products > uses_inside(p, v) / PRODUCT_USE;
}

// Does nothing behind the run need the value?
static bool stays_within(const plan *p, const at_mvalue *v) {
  return uses_inside(p, v) % PRODUCT_USE == at_me_slot_of(p->m, v)->uses;
}

static at_status emit_place(plan *p, uintptr_t place) {
  for (uint32_t i = p->begin; i < p->end; i++) {
    at_mop *op = p->b->ops[i];
    const at_mvalue *r = op->num_results ? &op->results[0] : NULL;
    if ((r ? place_of(p, r) : ROW) != place) continue;
    p->m->rows.within = place == ROW && r && stays_within(p, r);
    AT_TRY(at_me_emit_op(p->m, op));
  }
  p->m->rows.within = false;
  return AT_OK;
}

// Is n made of what only this turn of the loop has?
static bool needs_turn(at_me *m, const at_me_node *tree) {
  at_walk_clear(&m->walk);
  at_walk_add(&m->walk, tree, 0);
  for (at_walk_step s; at_walk_next(&m->walk, &s);) {
    const at_me_node *n = s.item;
    if (n->turn || n->kind == AT_ME_DOT) return true;
    for (uint32_t i = 0; i < n->num_in; i++) at_walk_add(&m->walk, n->in[i], 0);
  }
  return false;
}

// What is needed behind the loop and cannot be computed there.
static void leave_turn(plan *p) {
  at_me *m = p->m;
  for (uint32_t i = p->begin; i < p->end; i++) {
    const at_mop *op = p->b->ops[i];
    const at_mvalue *v = op->num_results ? &op->results[0] : NULL;
    if (!v || place_of(p, v) != ROW || stays_within(p, v)) continue;
    at_me_node *n = at_me_vector(m, v);
    if (!n || n->kind == AT_ME_BUFFER) continue;
    if (needs_turn(m, n) || (n->kind == AT_ME_APPLY && feeds_product(p, v)))
      at_me_node_drop(m, at_me_materialise(m, n));
  }
}

// ---- threads
// May threads share the turns? What a turn loads must be there before.
static bool is_shared(plan *p) {
  double cost = 0, products = 0;
  for (uint32_t i = p->begin; i < p->end; i++) {
    const at_mop *op = p->b->ops[i];
    bool load = at_me_plain_load(op), store = at_me_plain_store(op);
    if (load && !at_me_stays_inside(p->m, op, 0, op->results[0].type))
      return false;
    if (store && !at_me_stays_inside(p->m, op, 1, op->operands[0]->type))
      return false;
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL)
      products += at_me_dot_row_work(op);
    else if (!op->num_results || place_of(p, &op->results[0]) == ROW)
      cost += 1 + at_me_weight(at_mosaic_opcode_of(op));
  }
  double row = cost * (double)p->columns + products;
  return at_me_shares(p->m, row * (double)p->rows);
}

static void fetch_before(plan *p) {
  for (uint32_t i = p->begin; i < p->end; i++) {
    const at_mop *op = p->b->ops[i];
    const at_me_ref *ref =
        at_me_plain_load(op) ? at_me_memory(p->m, op->operands[0]) : NULL;
    if (ref && ref->pages) at_me_pages_fetch(p->m, ref);
  }
}

// The rows' loop, by all threads or not.
static at_status emit_loop(plan *p, int64_t step, bool shared) {
  at_me *m = p->m;
  at_me_share share;
  at_loop l;
  LLVMValueRef lo = at_em_i64(m->e, 0), hi = at_em_i64(m->e, p->rows);
  if (shared) {
    fetch_before(p);
    at_me_share_begin(m, &share, p->rows, step, &lo, &hi);
  }
  at_me_dot_rows_begin(m);
  at_loop_begin(m->e, &l, lo, hi, step, 0, p->rows - step);
  m->depth++;
  m->rows.count = p->rows;
  m->rows.step = step;
  m->rows.first = l.i;
  at_status st = emit_place(p, ROW);
  if (!st.err) leave_turn(p);
  at_me_turns_end(m);
  m->depth--;
  at_loop_end(m->e, &l);
  at_me_dot_rows_end(m);
  if (shared) at_me_share_end(m);
  return st;
}

at_status at_me_emit_rows(at_me *m, at_mblock *b, uint32_t begin, uint32_t *end,
                          bool *done) {
  plan *p = at_new(m->a, plan, 1);
  if (!p) return AT_NO_MEMORY("a run of rows");
  *p = (plan){.m = m, .b = b, .begin = begin, .products = true};
  bool may = !m->o->check && !m->window && !m->rows.count;
  *done = may && find_rows(p) && find_run(p);
  if (!*done) {
    p->products = false;
    *done = may && find_rows(p) && find_run(p);
  }
  *end = AT_MAX(p->end, begin + 1);
  if (!*done) return AT_OK;
  if (!count_inside(p)) return AT_NO_MEMORY("a run of rows");
  int64_t step = AT_MAX(STEP_BYTES / (4 * p->columns), (int64_t)1);
  if (p->num_products) step = AT_ME_PRODUCT_ROWS;
  while (p->rows % step) step--;
  AT_TRY(emit_place(p, FREE));
  settle_before(p);
  pack_before(p);
  int64_t least = p->num_products ? 2 : 8;  // turns
  at_status st = emit_loop(p, step, p->rows / step >= least && is_shared(p));
  at_me_leave_loop(m);
  at_me_dot_rows_free(m);
  return st;
}

void at_me_rows_begin(at_me *m, at_loop *l, int64_t extent, bool outermost,
                      at_ix *ix) {
  bool part = outermost && m->rows.count;
  if (part && extent != m->rows.count)
    at_em_fail(m->e,
               AT_FAIL(AT_INTERNAL, "a value without rows in their loop"));
  at_loop_range(m->e, l, 0, part ? m->rows.step : extent, 1);
  *ix = part ? at_ix_add(m->e, m->rows.first, l->i) : l->i;
}
