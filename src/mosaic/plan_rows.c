// Runs of operations that work row by row. A kernel's vectors are whole blocks,
// and what one operation leaves is read by the next: a softmax goes over its
// block five times. Where every value of a row comes from the same row of
// others, one loop over the rows takes all operations with it, a few rows at a
// time, which then lie in the first cache.
//
// Linear in the block: an operation is looked at by the run that it begins or
// is in, and the search for a run stops where one did before.
#include "mosaic/matmul.h"
#include "mosaic/plan_internal.h"

enum {
  MIN_ROWS = 8,
  MIN_COLUMNS = 64,
  MAX_ROW_BYTES = 16 << 10,
  MIN_ELEMENTS = 8 << 10,
  STEP_BYTES = 2 << 10,  // of one value in a turn of the loop
  MIN_SINKS = 3
};

// The first operation of a block from `from` on where runs may end.
typedef struct stop {
  const at_mblock *block;
  uint32_t from, at;
} stop;

typedef struct search {
  at_mplan_build *b;
  at_mplan_run *run;  // under construction
  uint32_t sinks;     // values of the run that are computed into memory
  bool products;      // may be part of the run
  stop stops[2];      // without products, with them
} search;

// ---- shapes
// -1: no vector, or its first dimension that is not 1 has another size.
static int row_dim_of(const at_mvalue *v, int64_t rows) {
  if (!at_mosaic_is_vector(v)) return -1;
  return at_mosaic_row_dim(v->type->shape.rank, v->type->shape.ptr, rows);
}

int at_mplan_place_of(const at_mplan_run *r, const at_mvalue *v) {
  void **x = at_map_find_ptr(&r->inside, v);
  // A value that was there before may be read anywhere.
  return x ? (int)(uintptr_t)*x : AT_MPLAN_BEFORE;
}

// False: no memory, which `failed` notes.
static bool put(search *s, const at_mvalue *v, int place) {
  void **x = at_map_put_ptr(&s->run->inside, v);
  if (x) *x = (void *)(uintptr_t)place;
  s->b->failed |= !x;
  return x != NULL;
}

// ---- memory
// The same value, or equal constants.
static bool same_index(const at_mvalue *a, const at_mvalue *b) {
  if (a == b) return true;
  if (!a->op || !b->op) return false;
  return at_mosaic_opcode_of(a->op) == AT_MOSAIC_ARITH_CONSTANT &&
         at_mosaic_opcode_of(b->op) == AT_MOSAIC_ARITH_CONSTANT &&
         at_mosaic_op_int(a->op, "value", 0) ==
             at_mosaic_op_int(b->op, "value", 1);
}

// Do a load and a store go over the same elements in the same order?
static bool same_box(const at_mop *load, const at_mop *store) {
  if (!at_mosaic_is_plain_load(load) || at_mosaic_has_steps(load)) return false;
  if (load->operands[0] != store->operands[1]) return false;
  const at_mtype *a = load->results[0].type, *b = store->operands[0]->type;
  if (!at_dims_eq(a->shape, b->shape)) return false;
  for (uint32_t i = 1; i < load->num_operands; i++)
    if (!same_index(load->operands[i], store->operands[i + 1])) return false;
  return true;
}

// What the ref of a load or store may share with others; 0: not known.
static uint64_t roots_of(search *s, const at_mvalue *ref) {
  const at_mplan_fact *f = at_mplan_fact_of(s->b, ref);
  return f->packed ? 0 : at_mplan_root_bit(f->out.root);
}

// A load that the run does before the loop agrees with no store of the run to
// the same memory.
bool at_mplan_loads_agree(const at_mplan_run *r, const at_mop *load,
                          uint64_t roots) {
  void **x = at_map_find_ptr(&r->inside, &load->results[0]);
  bool early = x && (uintptr_t)*x == AT_MPLAN_BEFORE;
  for (uint32_t i = 0; i < r->num_stores; i++)
    if ((r->roots[i] & roots) && (early || !same_box(load, r->stores[i])))
      return false;
  return true;
}

// Stores to the same memory must go to the same place of it.
static bool stores_agree(const at_mplan_run *r) {
  for (uint32_t i = 0; i < r->num_stores; i++)
    for (uint32_t k = 0; k < i; k++) {
      const at_mop *a = r->stores[i], *b = r->stores[k];
      if (r->roots[i] != r->roots[k]) continue;
      if (a->operands[1] != b->operands[1]) return false;
      for (uint32_t d = 2; d < a->num_operands; d++)
        if (!same_index(a->operands[d], b->operands[d])) return false;
      if (a->operands[0]->type != b->operands[0]->type) return false;
    }
  return true;
}

// ---- which operations
static bool all_before(search *s, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++)
    if (at_mplan_place_of(s->run, op->operands[i]) != AT_MPLAN_BEFORE)
      return false;
  return true;
}

// Operands of the same shape, or scalars.
static bool works_in_rows(search *s, const at_mop *op) {
  const at_mtype *t = op->results[0].type;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mvalue *v = op->operands[i];
    if (!at_mosaic_is_vector(v)) {
      if (at_mplan_place_of(s->run, v) != AT_MPLAN_BEFORE) return false;
      continue;
    }
    if (!at_dims_eq(v->type->shape, t->shape)) return false;
  }
  return true;
}

// Only dimensions behind the row are reduced, and the accumulator is ready
// before the loop.
static bool reduces_in_rows(search *s, const at_mop *op) {
  const at_mvalue *a = op->operands[0], *acc = op->operands[1];
  int at = row_dim_of(a, s->run->rows);
  int64_t dims[AT_CORE_MAX_RANK];
  uint32_t n;
  if (at < 0 || row_dim_of(&op->results[0], s->run->rows) < 0 ||
      at_mplan_place_of(s->run, acc) != AT_MPLAN_BEFORE ||
      !at_mosaic_is_vector(acc))
    return false;
  if (!at_mosaic_op_ints(op, "reduction_dims", dims, AT_CORE_MAX_RANK, &n))
    return false;
  for (uint32_t i = 0; i < n; i++)
    if (dims[i] <= at) return false;
  return true;
}

// The row dimension stays where it is, counted from the end for broadcasts.
static bool moves_in_rows(search *s, const at_mop *op) {
  const at_mvalue *in = op->operands[0];
  int from = row_dim_of(in, s->run->rows);
  int to = row_dim_of(&op->results[0], s->run->rows);
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
  bool load = at_mosaic_is_plain_load(op) && !at_mosaic_has_steps(op);
  if (op->num_regions || (!load && !at_mosaic_is_lazy(at_mosaic_opcode_of(op))))
    return false;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    void **x = at_map_find_ptr(when, op->operands[i]);
    if (x && (uintptr_t)*x == LATE) return false;
  }
  return true;
}

// It is computed before the loop then, and so is what it is made of.
static bool compute_before(search *s, const at_map *when,
                           const at_mvalue *value) {
  at_walk *w = &s->b->walk;
  at_walk_clear(w);
  at_walk_add(w, value, 0);
  for (at_walk_step k; at_walk_next(w, &k);) {
    const at_mvalue *v = k.item;
    void **x = at_map_find_ptr(when, v);
    if (!x || (uintptr_t)*x != EARLY || !at_mosaic_is_vector(v) ||
        at_map_find_ptr(&s->run->inside, v))
      continue;
    if (!put(s, v, AT_MPLAN_BEFORE)) return false;
    for (uint32_t i = 0; i < v->op->num_operands; i++)
      at_walk_add(w, v->op->operands[i], 0);
  }
  return !w->failed;
}

static bool is_marked_before(const search *s, const at_mvalue *v) {
  void **x = at_map_find_ptr(&s->run->inside, v);
  return x && (uintptr_t)*x == AT_MPLAN_BEFORE;
}

// Rows must come in whole turns of AT_MPRODUCT_ROWS, and b must be ready before
// the loop.
static bool multiplies_in_rows(search *s, const at_mop *op) {
  const at_mvalue *acc = op->operands[2];
  at_mplan_run *r = s->run;
  if (!s->products || r->num_products == AT_MPLAN_ROW_PRODUCTS ||
      r->rows % AT_MPRODUCT_ROWS ||
      at_mplan_place_of(r, op->operands[1]) != AT_MPLAN_BEFORE ||
      !at_mosaic_is_vector(acc) ||
      !at_mproduct_has_rows(op, r->rows, s->b->in->options->exact_dots,
                            s->b->in->cpu))
    return false;
  r->num_products++;
  s->sinks++;
  return true;
}

// Plain stores of whole rows to a known root; at most AT_MPLAN_MAX_STORES.
static bool add_store(search *s, const at_mop *op) {
  at_mplan_run *r = s->run;
  uint64_t root = roots_of(s, op->operands[1]);
  if (at_mosaic_has_steps(op) || !root || root >> 63 ||
      r->num_stores == AT_MPLAN_MAX_STORES ||
      row_dim_of(op->operands[0], r->rows) < 0)
    return false;
  r->roots[r->num_stores] = root;
  r->stores[r->num_stores++] = op;
  r->written |= root;
  s->sinks++;
  return true;
}

// Where the operation belongs; 0: the run ends before it.
static int classify(search *s, const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  int64_t rows = s->run->rows;
  if (op->num_regions) return 0;
  if (at_mosaic_is_plain_store(op)) return add_store(s, op) ? AT_MPLAN_ROW : 0;
  if (op->num_results != 1) return 0;
  const at_mvalue *r = &op->results[0];
  if (at_mosaic_is_plain_load(op)) {
    if (at_mosaic_has_steps(op) || !roots_of(s, op->operands[0])) return 0;
    return row_dim_of(r, rows) >= 0 && !is_marked_before(s, r)
               ? AT_MPLAN_ROW
               : AT_MPLAN_BEFORE;
  }
  bool before = all_before(s, op);
  if (is_marked_before(s, r)) return before ? AT_MPLAN_BEFORE : 0;
  if (!at_mosaic_is_vector(r))
    return at_mosaic_is_lazy(c) && before && r->type->kind != AT_MTYPE_MEMREF
               ? AT_MPLAN_BEFORE
               : 0;
  switch (c) {
    case AT_MOSAIC_ARITH_CONSTANT:
    case AT_MOSAIC_TPU_IOTA:
      return AT_MPLAN_BEFORE;
    case AT_MOSAIC_VECTOR_BROADCAST:
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
    case AT_MOSAIC_TPU_RESHAPE:
      if (before) return AT_MPLAN_BEFORE;
      return moves_in_rows(s, op) ? AT_MPLAN_ROW : 0;
    case AT_MOSAIC_VECTOR_MULTI_REDUCTION:
      if (!reduces_in_rows(s, op)) return 0;
      s->sinks++;
      return AT_MPLAN_ROW;
    case AT_MOSAIC_TPU_MATMUL:
      return multiplies_in_rows(s, op) ? AT_MPLAN_ROW : 0;
    default:
      if (!at_mosaic_is_elementwise(op)) return 0;
      if (row_dim_of(r, rows) >= 0 && works_in_rows(s, op)) return AT_MPLAN_ROW;
      return before ? AT_MPLAN_BEFORE : 0;
  }
}

// ---- where runs may be
static bool is_reduction(const at_mop *op) {
  return at_mosaic_opcode_of(op) == AT_MOSAIC_VECTOR_MULTI_REDUCTION;
}

// No run goes beyond such an operation.
static bool ends_runs(const search *s, const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return !at_mosaic_is_lazy(c) && !is_reduction(op) &&
         !at_mosaic_is_plain_load(op) && !at_mosaic_is_plain_store(op) &&
         !(s->products && c == AT_MOSAIC_TPU_MATMUL);
}

// The first reduction from the run's begin on, or what ends runs before it, or
// the end of the block. It is the same for every operation before it, and so
// found once.
static uint32_t find_stop(search *s) {
  stop *x = &s->stops[s->products];
  const at_mblock *b = s->run->block;
  uint32_t begin = s->run->begin, i = begin;
  if (x->block == b && x->from <= begin && begin <= x->at) return x->at;
  while (i < b->num_ops && !is_reduction(b->ops[i]) && !ends_runs(s, b->ops[i]))
    i++;
  *x = (stop){b, begin, i};
  return i;
}

// The first reduction that could be part of a run says how many rows. `end` is
// left behind what has been looked at.
static bool find_rows(search *s) {
  at_mplan_run *r = s->run;
  const at_mblock *b = r->block;
  uint32_t at = find_stop(s), d = 0;
  r->end = AT_MIN(at + 1, b->num_ops);
  if (at == b->num_ops || !is_reduction(b->ops[at])) return false;
  const at_mvalue *in = b->ops[at]->operands[0];
  const at_mtype *t = in->type;
  if (!at_mosaic_is_vector(in)) return false;
  while (d < t->shape.rank && t->shape.ptr[d] == 1) d++;
  if (d + 1 >= t->shape.rank) return false;
  r->rows = t->shape.ptr[d];
  r->columns = 1;
  for (uint32_t k = d + 1; k < t->shape.rank; k++)
    r->columns *= t->shape.ptr[k];
  return r->rows >= MIN_ROWS && r->columns >= MIN_COLUMNS &&
         r->columns <= MAX_ROW_BYTES / 4 &&
         r->rows >= MIN_ELEMENTS / r->columns;
}

// Operands of products come before the loop: the second, and the first if it
// can.
static bool place_operands(search *s) {
  const at_mblock *b = s->run->block;
  at_map when = at_map_in(s->b->a);  // of values that the run could define
  uint32_t products = 0;
  for (uint32_t i = s->run->begin; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (ends_runs(s, op) || products > AT_MPLAN_ROW_PRODUCTS) break;
    bool early = is_early(&when, op);
    for (uint32_t k = 0; k < op->num_results; k++) {
      void **x = at_map_put_ptr(&when, &op->results[k]);
      s->b->failed |= !x;
      if (!x) return false;
      *x = (void *)(uintptr_t)(early ? EARLY : LATE);
    }
    if (at_mosaic_opcode_of(op) != AT_MOSAIC_TPU_MATMUL) continue;
    products++;
    for (uint32_t k = 0; k < 2; k++)
      if (!compute_before(s, &when, op->operands[k])) return false;
  }
  return true;
}

// From `begin` on, as long as operations can be classified. Worth it from
// MIN_SINKS values that would each be a loop of their own; loads and stores of
// the same memory must agree.
static bool find_run(search *s) {
  at_mplan_run *r = s->run;
  r->inside = at_map_in(s->b->a);
  r->num_stores = r->num_products = s->sinks = 0;
  r->written = 0;
  if (s->products && !place_operands(s)) return false;
  for (r->end = r->begin; r->end < r->block->num_ops; r->end++) {
    const at_mop *op = r->block->ops[r->end];
    int place = classify(s, op);
    if (!place) break;
    if (!op->num_results) continue;
    if (!put(s, &op->results[0], place)) return false;
    s->sinks += place == AT_MPLAN_ROW &&
                at_mplan_fact_of(s->b, &op->results[0])->out.kept;
  }
  if (s->sinks < MIN_SINKS || !stores_agree(r)) return false;
  for (uint32_t i = r->begin; i < r->end; i++) {
    const at_mop *op = r->block->ops[i];
    if (at_mosaic_is_plain_load(op) &&
        !at_mplan_loads_agree(r, op, roots_of(s, op->operands[0])))
      return false;
  }
  return true;
}

// ---- what is known of a run
// How often the run uses its values; by products, in the high half.
static const uintptr_t PRODUCT_USE = (uintptr_t)1 << 32;

// Uses of each value by operations of the run.
static void count_inside(search *s, at_map *uses) {
  const at_mplan_run *r = s->run;
  for (uint32_t i = r->begin; i < r->end; i++) {
    const at_mop *op = r->block->ops[i];
    bool product = at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL;
    for (uint32_t k = 0; k < op->num_operands; k++) {
      void **x = at_map_put_ptr(uses, op->operands[k]);
      if (x)
        *x = (void *)((uintptr_t)*x + 1 + (product ? PRODUCT_USE : 0));
      else
        s->b->failed = true;
    }
  }
}

// WITHIN: all uses are in the run. FEEDS: a product behind it uses the value.
static uint8_t flags_of(search *s, const at_map *uses, const at_mop *op) {
  if (!op->num_results) return AT_MPLAN_IN_LOOP;
  const at_mvalue *v = &op->results[0];
  if (at_mplan_place_of(s->run, v) != AT_MPLAN_ROW) return 0;
  const at_mplan_fact *f = at_mplan_fact_of(s->b, v);
  void **x = at_map_find_ptr(uses, v);
  uintptr_t inside = x ? (uintptr_t)*x : 0;
  bool within = inside % PRODUCT_USE == f->out.uses;
  bool feeds = f->products > inside / PRODUCT_USE;
  return (uint8_t)(AT_MPLAN_IN_LOOP | (within ? AT_MPLAN_WITHIN : 0) |
                   (feeds ? AT_MPLAN_FEEDS : 0));
}

// What threads could share of it, in operations on single elements.
static double work_of(const at_mplan_run *r) {
  double cost = 0, products = 0;
  int64_t least = r->num_products ? 2 : 8;  // turns
  if (r->rows / r->step < least) return 0;
  for (uint32_t i = r->begin; i < r->end; i++) {
    const at_mop *op = r->block->ops[i];
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL)
      products += at_mproduct_row_work(op);
    else if (r->flags[i - r->begin] & AT_MPLAN_IN_LOOP)
      cost += 1 + at_mosaic_weight_of(at_mosaic_opcode_of(op));
  }
  return (cost * (double)r->columns + products) * (double)r->rows;
}

// Keeps the run in the plan, at its first operation, with rows per turn chosen
// so that a turn's values fit the first cache.
static void finish(search *s) {
  at_mplan_run *r = s->run;
  at_map uses = at_map_in(s->b->a);
  uint8_t *flags = at_new(s->b->a, uint8_t, r->end - r->begin);
  at_mplan_run *kept =
      at_arena_copy(s->b->a, r, sizeof *r, _Alignof(at_mplan_run));
  if (!flags || !kept) {
    s->b->failed = true;
    return;
  }
  count_inside(s, &uses);
  for (uint32_t i = r->begin; i < r->end; i++)
    flags[i - r->begin] = flags_of(s, &uses, r->block->ops[i]);
  kept->flags = flags;
  kept->step = AT_MAX(STEP_BYTES / (4 * r->columns), (int64_t)1);
  if (r->num_products) kept->step = AT_MPRODUCT_ROWS;
  while (kept->rows % kept->step) kept->step--;
  kept->work = work_of(kept);
  at_mplan_facts_of_op(s->b, r->block->ops[r->begin])->run = kept;
}

// With products or without; *s->run is left as found.
static bool find(search *s, bool products) {
  s->products = products;
  return find_rows(s) && find_run(s);
}

// Runs first with products, then without; blocks inside a run's operations need
// no visit, as runs hold no regions.
static void visit(search *s, const at_mblock *block) {
  for (uint32_t i = 0, end; i < block->num_ops; i = end) {
    *s->run = (at_mplan_run){.block = block, .begin = i};
    bool found = find(s, true) || find(s, false);
    if (found) finish(s);
    end = AT_MAX(s->run->end, i + 1);
    for (uint32_t k = i; !found && k < end; k++) {
      const at_mop *op = block->ops[k];
      for (uint32_t r = 0; r < op->num_regions; r++)
        for (uint32_t n = 0; n < op->regions[r]->num_blocks; n++)
          visit(s, op->regions[r]->blocks[n]);
    }
  }
}

// Not with checks, whose order of accesses is that of the text, and not in
// transforms.
void at_mplan_rows(at_mplan_build *b) {
  at_mplan_run run;
  search s = {.b = b, .run = &run};
  if (b->in->options->check || b->in->body != b->in->program->body) return;
  for (size_t i = 0; i < b->plan->blocks.len; i++)
    visit(&s, b->plan->blocks.ptr[i]);
}
