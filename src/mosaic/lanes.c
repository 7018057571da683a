// Values that are the same in all lanes. The vector unit has no cheaper place
// for one number per row than a whole row of copies, and kernels keep maxima
// and sums that way, in memory too. Here a column is cheaper: operations on
// such values work on one lane, and memory that never holds anything else is
// read and written in its first lane only.
#include "mosaic/code.h"
#include "mosaic/forms.h"

enum { MIN_LANES = 8, MAX_REFS = 16 };

typedef struct lanes {
  at_arena *a;
  const at_mosaic_program *p;
  const at_mvalue *refs[MAX_REFS];  // whose lanes are all the same, as far as
  uint32_t num_refs;                // anybody knows
  at_map same;    // const at_mvalue * -> uintptr_t: SPLAT or COLUMN
  at_map narrow;  // const at_mvalue * -> at_mvalue *: one lane of it
  at_map types;   // const at_mtype * -> const at_mtype *
  bool sound;     // no ref was dropped in this round
} lanes;

// All elements are the same; those of a row are.
enum { SPLAT = 1, COLUMN = 2 };

static int64_t last_dim(const at_mtype *t) {
  return t->shape.rank ? t->shape.ptr[t->shape.rank - 1] : 1;
}

// 0: not in the map.
static uintptr_t place_of(const at_map *map, const at_mvalue *v) {
  void **x = at_map_find_ptr((at_map *)map, v);
  return x ? (uintptr_t)*x : 0;
}

static at_status put(at_map *map, const at_mvalue *v, const void *x) {
  void **p;
  AT_TRY_ALLOC(p, at_map_put_ptr(map, v));
  *p = (void *)x;
  return AT_OK;
}

// ---- refs
static bool is_ref(const lanes *l, const at_mvalue *v) {
  for (uint32_t i = 0; i < l->num_refs; i++)
    if (l->refs[i] == v) return true;
  return false;
}

// Some lane may differ: another round follows, as values loaded from it lose
// their kind.
static void drop_ref(lanes *l, const at_mvalue *v) {
  for (uint32_t i = 0; i < l->num_refs; i++)
    if (l->refs[i] == v) {
      l->refs[i] = l->refs[--l->num_refs];
      l->sound = false;
      return;
    }
}

// A candidate: a VMEM ref of rank 2 or more and enough lanes. The list is
// bounded; what does not fit is not rewritten.
static void add_ref(lanes *l, const at_mvalue *v) {
  at_mosaic_ref t;
  at_status st = at_mosaic_ref_of(v->type, &t);
  if (st.err) {
    at_status_free(st);
    return;
  }
  if (t.space != AT_MSPACE_VMEM || t.semaphore != AT_MSEM_NONE ||
      t.shape.rank < 2 || last_dim(v->type) < MIN_LANES ||
      l->num_refs == MAX_REFS)
    return;
  l->refs[l->num_refs++] = v;
}

// Scratch, and memory that the body takes.
static void find_refs(lanes *l, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (at_mosaic_opcode_of(op) == AT_MOSAIC_MEMREF_ALLOCA &&
        op->num_results == 1)
      add_ref(l, &op->results[0]);
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        find_refs(l, op->regions[r]->blocks[k]);
  }
}

// Whoever reads an output before it is written finds nothing that counts, so
// its lanes are the same too; but all of them are written.
static bool is_output(const at_mosaic_window *w) {
  return w->is_output && w->alias < 0 && !w->cores;
}

// The search begins at the windows that are results.
static void find_outputs(lanes *l) {
  for (uint32_t i = 0; i < l->p->num_windows; i++)
    if (is_output(&l->p->windows[i]))
      add_ref(l, &l->p->body->args[l->p->windows[i].arg]);
}

// Outputs are written in all lanes, since others read them.
static bool keeps_lanes(const lanes *l, const at_mvalue *ref) {
  for (uint32_t i = 0; i < l->p->num_windows; i++)
    if (ref == &l->p->body->args[l->p->windows[i].arg]) return true;
  return false;
}

// A constant index 0.
static bool is_zero(const at_mvalue *index) {
  return index->op &&
         at_mosaic_opcode_of(index->op) == AT_MOSAIC_ARITH_CONSTANT &&
         at_mosaic_op_int(index->op, "value", 1) == 0;
}

// All lanes of a load or store of `vector`, whose last operand is an index.
static bool takes_lanes(const at_mop *op, const at_mtype *vector,
                        const at_mvalue *ref) {
  return !at_mosaic_has_steps(op) &&
         is_zero(op->operands[op->num_operands - 1]) &&
         vector->shape.rank == ref->type->shape.rank &&
         last_dim(vector) == last_dim(ref->type);
}
static bool is_load_of(const at_mop *op, const at_mvalue *ref) {
  return at_mosaic_is_plain_load(op) && op->operands[0] == ref &&
         takes_lanes(op, op->results[0].type, ref);
}
static bool is_store_to(const at_mop *op, const at_mvalue *ref) {
  return at_mosaic_is_plain_store(op) && op->operands[1] == ref &&
         takes_lanes(op, op->operands[0]->type, ref);
}

// ---- which values
static bool is_wide(const at_mvalue *v) {
  return at_mosaic_is_vector(v) && v->type->shape.rank >= 2 &&
         last_dim(v->type) >= MIN_LANES;
}

// A scalar fills everything; one lane that is repeated fills its row.
static uintptr_t broadcast_kind(const lanes *l, const at_mop *op) {
  const at_mvalue *in = op->operands[0];
  if (!at_mosaic_is_vector(in)) return SPLAT;
  if (last_dim(in->type) != last_dim(op->results[0].type))
    return COLUMN;  // of one lane
  return place_of(&l->same, in);
}

// SPLAT, COLUMN, or 0 where lanes may differ. Elementwise operations have the
// weakest kind of their operands.
static uintptr_t kind_of(const lanes *l, const at_mop *op) {
  const at_mvalue *r = op->results;
  if (op->num_results != 1 || op->num_regions || !is_wide(r)) return 0;
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_ARITH_CONSTANT: {
      const at_mattr *t = at_mop_attr(op, "value");
      return t && t->kind == AT_MATTR_DENSE && t->splat ? SPLAT : 0;
    }
    case AT_MOSAIC_VECTOR_BROADCAST:
      return broadcast_kind(l, op);
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
      return is_wide(op->operands[0]) &&
                     last_dim(op->operands[0]->type) == last_dim(r->type)
                 ? place_of(&l->same, op->operands[0])
                 : 0;
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
      return is_ref(l, op->operands[0]) && is_load_of(op, op->operands[0])
                 ? COLUMN
                 : 0;
    default:
      break;
  }
  if (!at_mosaic_is_elementwise(op) || !op->num_operands) return 0;
  uintptr_t kind = SPLAT;
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mvalue *v = op->operands[i];
    if (!at_mosaic_is_vector(v)) continue;
    if (v->type->shape.rank != r->type->shape.rank) return 0;
    uintptr_t k = place_of(&l->same, v);
    if (!k) return 0;
    kind = AT_MAX(kind, k);
  }
  return kind;
}

// Refs that this operation uses otherwise have lanes of their own.
static void look_at_refs(lanes *l, const at_mop *op) {
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mvalue *v = op->operands[i];
    if (!is_ref(l, v) || is_load_of(op, v)) continue;
    if (i != 1 || !is_store_to(op, v) || !place_of(&l->same, op->operands[0]))
      drop_ref(l, v);
  }
}

// One round over all operations in order; nested blocks too.
static at_status look(lanes *l, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    look_at_refs(l, op);
    uintptr_t kind = kind_of(l, op);
    if (kind) AT_TRY(put(&l->same, &op->results[0], (void *)kind));
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        AT_TRY(look(l, op->regions[r]->blocks[k]));
  }
  return AT_OK;
}

// ---- one lane
typedef AT_VEC(at_mop *) op_list;

// The type with a last dimension of 1, made once per type.
static at_status narrow_type(lanes *l, const at_mtype *t,
                             const at_mtype **out) {
  void **p;
  AT_TRY_ALLOC(p, at_map_put_ptr(&l->types, t));
  if (!*p) {
    at_mtype *n;
    int64_t *dims;
    AT_TRY_ALLOC(n, at_arena_copy(l->a, t, sizeof *t, _Alignof(at_mtype)));
    AT_TRY_ALLOC(dims, at_arena_copy(l->a, t->shape.ptr,
                                     t->shape.rank * sizeof *dims, 8));
    dims[t->shape.rank - 1] = 1;
    n->shape.ptr = dims;
    *p = n;
  }
  *out = *p;
  return AT_OK;
}

// The operation's own list of operands, to be changed.
static at_status copy_operands(lanes *l, at_mop *op, at_mvalue ***out) {
  AT_TRY_ALLOC(*out, at_new(l->a, at_mvalue *, op->num_operands + 1));
  for (uint32_t i = 0; i < op->num_operands; i++) (*out)[i] = op->operands[i];
  op->operands = *out;
  return AT_OK;
}

// A result of its own for a copied operation, of type t.
static at_status give_result(lanes *l, at_mop *op, const at_mtype *t) {
  AT_TRY_ALLOC(op->results, at_new(l->a, at_mvalue, 1));
  op->results[0] = (at_mvalue){.type = t, .op = op};
  op->num_results = 1;
  return AT_OK;
}

// The splat constant `op` in one lane: its data is one element already.
static at_status narrow_constant(lanes *l, at_mop *n) {
  const at_mattr *t = at_mop_attr(n, "value");
  at_mattr *value;
  at_mnamed *attrs;
  AT_TRY_ALLOC(value, at_arena_copy(l->a, t, sizeof *t, _Alignof(at_mattr)));
  AT_TRY_ALLOC(attrs,
               at_arena_copy(l->a, n->attrs, n->num_attrs * sizeof *attrs, 8));
  value->type = n->results[0].type;
  for (uint32_t i = 0; i < n->num_attrs; i++)
    if (attrs[i].value == t) attrs[i].value = value;
  n->attrs = attrs;
  return AT_OK;
}

// One lane of v, which is known by now.
static at_mvalue *lane_of(lanes *l, const at_mvalue *v) {
  void **p = at_map_find_ptr(&l->narrow, v);
  return p ? *p : NULL;
}

// The operation in one lane, before `op`. Its operands come first.
static at_status make_lane(lanes *l, const at_mop *op, op_list *out) {
  const at_mtype *t;
  at_mop *n;
  AT_TRY(narrow_type(l, op->results[0].type, &t));
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  const at_mvalue *in = op->num_operands ? op->operands[0] : NULL;
  if (c == AT_MOSAIC_VECTOR_BROADCAST && at_mosaic_is_vector(in) &&
      at_mtype_eq(in->type, t))
    return put(&l->narrow, &op->results[0], in);
  at_mvalue **operands;
  AT_TRY_ALLOC(n, at_arena_copy(l->a, op, sizeof *op, _Alignof(at_mop)));
  AT_TRY(copy_operands(l, n, &operands));
  AT_TRY(give_result(l, n, t));
  if (c == AT_MOSAIC_ARITH_CONSTANT) AT_TRY(narrow_constant(l, n));
  bool load = at_mosaic_is_plain_load(op);
  for (uint32_t i = 0; i < n->num_operands && !load; i++) {
    at_mvalue *v = lane_of(l, operands[i]);
    if (v) operands[i] = v;
  }
  AT_TRY(put(&l->narrow, &op->results[0], &n->results[0]));
  return at_vec_push(l->a, out, n) ? AT_OK : AT_NO_MEMORY("lanes of a kernel");
}

// Whoever wants all lanes still finds them in the old value.
static at_status spread(lanes *l, at_mop *op) {
  at_mvalue **from;
  AT_TRY_ALLOC(from, at_new(l->a, at_mvalue *, 1));
  from[0] = lane_of(l, &op->results[0]);
  op->name = "vector.broadcast";
  op->tag = AT_MOSAIC_VECTOR_BROADCAST;
  op->operands = from;
  op->num_operands = 1;
  op->attrs = NULL;
  op->num_attrs = 0;
  return AT_OK;
}

// The store writes the one lane of its value.
static at_status store_lane(lanes *l, at_mop *op) {
  at_mvalue **operands;
  AT_TRY(copy_operands(l, op, &operands));
  operands[0] = lane_of(l, operands[0]);
  return AT_OK;
}

// Rebuilds each block's list: the narrow copy, then the operation, which
// becomes a broadcast of it. Whoever needs only one lane uses the copy; the
// broadcast is lazy and costs nothing unused.
static at_status rewrite(lanes *l, at_mblock *b) {
  op_list out = {0};
  for (uint32_t i = 0; i < b->num_ops; i++) {
    at_mop *op = b->ops[i];
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        AT_TRY(rewrite(l, op->regions[r]->blocks[k]));
    uintptr_t kind = op->num_results == 1 ? place_of(&l->same, op->results) : 0;
    if (kind) AT_TRY(make_lane(l, op, &out));
    if (kind == COLUMN) AT_TRY(spread(l, op));
    if (at_mosaic_is_plain_store(op) && is_ref(l, op->operands[1]) &&
        !keeps_lanes(l, op->operands[1]))
      AT_TRY(store_lane(l, op));
    if (!at_vec_push(l->a, &out, op)) return AT_NO_MEMORY("lanes of a kernel");
  }
  b->ops = out.ptr;
  b->num_ops = (uint32_t)out.len;
  return AT_OK;
}

// Repeats the analysis until no candidate is dropped: at most MAX_REFS + 1
// rounds.
at_status at_mosaic_narrow_lanes(const at_mosaic_program *p, at_arena *a) {
  lanes l = {.a = a, .p = p};
  at_mblock *body = p->body;
  l.types = at_map_in(l.a);
  l.narrow = at_map_in(l.a);
  for (uint32_t i = at_mosaic_arg_scratch(p); i < body->num_args; i++)
    add_ref(&l, &body->args[i]);
  find_refs(&l, body);
  find_outputs(&l);
  while (!l.sound) {
    l.sound = true;
    l.same = at_map_in(l.a);
    AT_TRY(look(&l, body));
  }
  return rewrite(&l, body);
}
