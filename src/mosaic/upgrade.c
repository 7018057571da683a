// From a serialised module (operations "stable_mosaic.x", an older version) to
// the newest form under plain names.
#include "mosaic/mosaic_internal.h"

#define PREFIX "stable_mosaic."

typedef struct upgrade {
  at_mosaic_kernel *k;
  at_arena *a;
  at_map opcodes;  // name -> opcode
  int64_t version;
  bool mangled;
  at_mosaic_core core;   // of the function around
  AT_VEC(at_mop *) ops;  // the block being rebuilt
  bool added;
} upgrade;

static at_status malformed(upgrade *u, const at_mop *op, const char *what) {
  return at_mosaic_fail(u->k, op, AT_INVALID_ARGUMENT,
                        "version %lld of this operation: %s",
                        (long long)u->version, what);
}

// ---- Segments
enum { MAX_SEGMENTS = 8 };
typedef struct segments {
  int32_t size[MAX_SEGMENTS];
  uint32_t n;
} segments;

// Exactly `want` groups that add up to the operands.
static at_status get_segments(upgrade *u, const at_mop *op, uint32_t want,
                              segments *s) {
  at_dims d;
  if (!at_mosaic_attr_ints(at_mop_attr(op, "operandSegmentSizes"), u->a, &d) ||
      d.rank != want)
    return malformed(u, op,
                     "operandSegmentSizes is missing or of another size");
  s->n = want;
  int64_t sum = 0;
  for (uint32_t i = 0; i < want; i++) {
    if (d.ptr[i] < 0 || d.ptr[i] > op->num_operands)
      return malformed(u, op, "operandSegmentSizes: impossible size");
    s->size[i] = (int32_t)d.ptr[i];
    sum += d.ptr[i];
  }
  if (sum != op->num_operands)
    return malformed(u, op, "operandSegmentSizes do not add up");
  return AT_OK;
}

// How many operands each group of an operation has.
static at_status set_segments(upgrade *u, at_mop *op, const segments *s) {
  const at_mattr *v;
  AT_TRY(at_mosaic_attr_new_i32s(u->a, s->size, s->n, &v));
  return at_mosaic_attr_set(u->a, op, "operandSegmentSizes", v);
}

// ---- New operations
static const at_mtype type_i32 = {.kind = AT_MTYPE_INTEGER, .width = 32};

// An operation of one i32 result before the one being upgraded; x NULL: no
// operands.
static at_status new_op(upgrade *u, const at_mop *like, at_mosaic_opcode code,
                        at_mvalue *x, at_mvalue *y, at_mop **out) {
  at_mop *op;
  at_mvalue **args;
  AT_TRY_ALLOC(op, at_new(u->a, at_mop, 1));
  AT_TRY_ALLOC(op->results, at_new(u->a, at_mvalue, 1));
  AT_TRY_ALLOC(args, at_new(u->a, at_mvalue *, 2));
  args[0] = x;
  args[1] = y;
  op->name = at_mosaic_op_info_of(code)->name;
  op->tag = code;
  op->operands = args;
  op->num_operands = x ? 2 : 0;
  op->num_results = 1;
  op->results[0] = (at_mvalue){.type = &type_i32, .op = op};
  op->loc = like->loc;
  op->block = like->block;
  if (!at_vec_push(u->a, &u->ops, op)) return AT_NO_MEMORY("operations");
  u->added = true;
  *out = op;
  return AT_OK;
}

// Before version 14 a vector subcore was named by core * 16 + subcore.
static at_status split_core(upgrade *u, at_mop *op, segments *s, uint32_t core,
                            uint32_t subcore) {
  if (u->core != AT_MCORE_SC_VECTOR || s->size[core] == 0) return AT_OK;
  uint32_t core_at = 0, sub_at = 0;
  for (uint32_t i = 0; i < core; i++) core_at += (uint32_t)s->size[i];
  for (uint32_t i = 0; i < subcore; i++) sub_at += (uint32_t)s->size[i];
  at_mop *c16, *div, *rem;
  AT_TRY(new_op(u, op, AT_MOSAIC_ARITH_CONSTANT, NULL, NULL, &c16));
  const at_mattr *v;
  AT_TRY(at_mosaic_attr_new_i32(u->a, 16, &v));
  AT_TRY(at_mosaic_attr_set(u->a, c16, "value", v));
  at_mvalue *linear = op->operands[core_at];
  AT_TRY(new_op(u, op, AT_MOSAIC_ARITH_DIVUI, linear, c16->results, &div));
  AT_TRY(new_op(u, op, AT_MOSAIC_ARITH_REMUI, linear, c16->results, &rem));
  at_mvalue **args;
  AT_TRY_ALLOC(args, at_new(u->a, at_mvalue *, op->num_operands + 1));
  for (uint32_t i = 0, n = 0; n <= op->num_operands; n++)
    args[n] = n == sub_at    ? rem->results
              : i == core_at ? (i++, div->results)
                             : op->operands[i++];
  op->operands = args;
  op->num_operands++;
  s->size[subcore] = 1;
  return AT_OK;
}

// ---- Rules by operation
// The new last group is empty unless split_core fills it.
static at_status add_segment(upgrade *u, at_mop *op, uint32_t old,
                             uint32_t core, uint32_t subcore) {
  segments s = {0};
  AT_TRY(get_segments(u, op, old, &s));
  s.size[s.n++] = 0;
  AT_TRY(split_core(u, op, &s, core, subcore));
  return set_segments(u, op, &s);
}

static at_status set_false(upgrade *u, at_mop *op, const char *name) {
  const at_mattr *v;
  AT_TRY(at_mosaic_attr_new_bool(u->a, false, &v));
  return at_mosaic_attr_set(u->a, op, name, v);
}

// Segments that version `added` brought, for an operation without them.
static at_status first_segments(upgrade *u, at_mop *op, int64_t added,
                                uint32_t want, segments s) {
  if (u->version >= added) return AT_OK;
  if (op->num_operands != want)
    return malformed(u, op, "another number of operands is expected");
  return set_segments(u, op, &s);
}

// Version 2 brought segments, version 14 the subcore.
static at_status upgrade_enqueue(upgrade *u, at_mop *op) {
  if (op->num_operands == 3)
    AT_TRY(first_segments(u, op, 2, 3, (segments){{1, 0, 1, 1, 0, 0}, 6}));
  else
    AT_TRY(first_segments(u, op, 2, 5, (segments){{1, 1, 1, 1, 1, 0}, 6}));
  return u->version < 14 ? add_segment(u, op, 6, 5, 6) : AT_OK;
}

// Older ones have no groups; since version 14 there is one more.
static at_status upgrade_signal(upgrade *u, at_mop *op) {
  if (op->num_operands == 2)
    AT_TRY(first_segments(u, op, 2, 2, (segments){{1, 1, 0, 0}, 4}));
  else
    AT_TRY(first_segments(u, op, 2, 3, (segments){{1, 1, 1, 0}, 4}));
  return u->version < 14 ? add_segment(u, op, 4, 3, 4) : AT_OK;
}

// Until version 11 it waited for as many bytes as one memref has.
static at_status upgrade_wait(upgrade *u, at_mop *op) {
  if (at_mop_attr(op, "operandSegmentSizes"))
    return u->version < 14 ? add_segment(u, op, 6, 5, 6) : AT_OK;
  if (u->version > 11 || op->num_operands != 2) return AT_OK;
  at_mvalue **args;
  AT_TRY_ALLOC(args, at_new(u->a, at_mvalue *, 3));
  args[0] = op->operands[0];
  args[1] = args[2] = op->operands[1];
  op->operands = args;
  op->num_operands = 3;
  op->tag = AT_MOSAIC_TPU_WAIT_DMA2;
  op->name = at_mosaic_op_info_of(AT_MOSAIC_TPU_WAIT_DMA2)->name;
  segments s = {{1, 1, 1, 0, 0}, 5};
  return set_segments(u, op, &s);
}

// One `dimension` became a list.
static at_status upgrade_dimensions(upgrade *u, at_mop *op, int64_t added) {
  int64_t d;
  if (u->version >= added) return AT_OK;
  if (!at_mosaic_attr_int(op, "dimension", &d) || d != (int32_t)d)
    return malformed(u, op, "dimension is missing or of another kind");
  const at_mattr *v;
  AT_TRY(at_mosaic_attr_new_i32s(u->a, &(int32_t){(int32_t)d}, 1, &v));
  AT_TRY(at_mosaic_attr_set(u->a, op, "dimension", NULL));
  return at_mosaic_attr_set(u->a, op, "dimensions", v);
}

// Rotations by a number: the amount was an attribute.
static at_status upgrade_rotate(upgrade *u, at_mop *op) {
  int64_t amount;
  if (op->num_operands != 1 || !at_mosaic_attr_int(op, "amount", &amount))
    return AT_OK;
  at_mop *c;
  at_mvalue **args;
  const at_mattr *v;
  AT_TRY(new_op(u, op, AT_MOSAIC_ARITH_CONSTANT, NULL, NULL, &c));
  AT_TRY(at_mosaic_attr_new_i32(u->a, (int32_t)amount, &v));
  AT_TRY(at_mosaic_attr_set(u->a, c, "value", v));
  AT_TRY_ALLOC(args, at_new(u->a, at_mvalue *, 2));
  args[0] = op->operands[0];
  args[1] = c->results;
  op->operands = args;
  op->num_operands = 2;
  return at_mosaic_attr_set(u->a, op, "amount", NULL);
}

// reinterpret_cast: dynamic sizes came with version 15's three groups, strides
// with 16.
static at_status upgrade_cast(upgrade *u, at_mop *op) {
  segments s = {{1, op->num_operands > 1, 0, 0}, 4};
  if (u->version >= 16) return AT_OK;
  if (u->version == 15) {
    AT_TRY(get_segments(u, op, 3, &s));
    s.size[s.n++] = 0;
  } else if (op->num_operands < 1 || op->num_operands > 2) {
    return malformed(u, op, "one or two operands are expected");
  }
  return set_segments(u, op, &s);
}

// What is optional here (priority, strict_ordering, add, a scan's dimension) or
// has several forms (lists of numbers, kinds of scans) is read as it is.
static at_status upgrade_op(upgrade *u, at_mop *op) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_TPU_ENQUEUE_DMA:
      return upgrade_enqueue(u, op);
    case AT_MOSAIC_TPU_WAIT_DMA:
      return upgrade_wait(u, op);
    case AT_MOSAIC_TPU_WAIT_DMA2:
      return first_segments(u, op, 7, 3, (segments){{1, 1, 1, 0, 0}, 5});
    case AT_MOSAIC_TPU_SEM_SIGNAL:
      return upgrade_signal(u, op);
    case AT_MOSAIC_TPU_DYNAMIC_GATHER:
      return upgrade_dimensions(u, op, 5);
    case AT_MOSAIC_TPU_IOTA:
      return upgrade_dimensions(u, op, 6);
    case AT_MOSAIC_TPU_DYNAMIC_ROTATE:
      return upgrade_rotate(u, op);
    case AT_MOSAIC_TPU_REINTERPRET_CAST:
      return upgrade_cast(u, op);
    case AT_MOSAIC_TPU_MATMUL:
      return u->version < 13 ? set_false(u, op, "transpose_lhs_hint") : AT_OK;
    default:
      return AT_OK;
  }
}

// Drops the prefix, sets the tag, and renames what has another form here. A
// module is either serialised throughout or not at all.
static at_status find_opcode(upgrade *u, at_mop *op) {
  size_t n = strlen(PREFIX);
  bool mangled = !strncmp(op->name, PREFIX, n);
  if (mangled != u->mangled)
    return at_mosaic_fail(u->k, op, AT_INVALID_ARGUMENT,
                          u->mangled ? "Operation not in a serialized form"
                                     : "a serialised operation in a module "
                                       "without stable_mosaic.version");
  if (mangled) op->name += n;
  void **slot;
  AT_TRY_ALLOC(slot, at_map_put_ptr(&u->opcodes, op->name));
  if (!*slot) *slot = (void *)(uintptr_t)at_mosaic_opcode_find(op->name);
  op->tag = (uint32_t)(uintptr_t)*slot;
  AT_TRY(at_mosaic_rename(u->k, op));
  if (op->tag == AT_MOSAIC_NO_OP)
    return at_mosaic_fail(u->k, op, AT_UNIMPLEMENTED,
                          "operation %s is not known", op->name);
  return AT_OK;
}

// Names first, in the block and inside it; then the operations are upgraded
// into a new list, which replaces the block's only if something was added.
static at_status walk_block(upgrade *u, at_mblock *b, int depth) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    at_mop *op = b->ops[i];
    AT_TRY(find_opcode(u, op));
    at_mosaic_core outer = u->core;
    if (op->tag == AT_MOSAIC_FUNC_FUNC) u->core = at_mosaic_core_of(op);
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t n = 0; n < op->regions[r]->num_blocks; n++)
        AT_TRY(walk_block(u, op->regions[r]->blocks[n], depth + 1));
    u->core = outer;
  }
  if (u->version >= AT_MOSAIC_VERSION) return AT_OK;
  u->ops.len = 0;
  u->added = false;
  for (uint32_t i = 0; i < b->num_ops; i++) {
    at_mop *op = b->ops[i];
    const at_mop *f = at_mosaic_function_of(op);
    u->core = f ? at_mosaic_core_of(f) : AT_MCORE_ANY;
    AT_TRY(upgrade_op(u, op));
    if (!at_vec_push(u->a, &u->ops, op)) return AT_NO_MEMORY("operations");
  }
  if (!u->added) return AT_OK;
  AT_TRY_ALLOC(b->ops, at_arena_copy(u->a, u->ops.ptr,
                                     u->ops.len * sizeof *u->ops.ptr, 8));
  b->num_ops = (uint32_t)u->ops.len;
  return AT_OK;
}

// A module without stable_mosaic.version is in the newest form under plain
// names.
at_status at_mosaic_upgrade(at_mosaic_kernel *k) {
  at_mop *m = k->module->op;
  upgrade u = {.k = k, .a = k->arena, .opcodes = at_map_in(k->arena)};
  u.version = AT_MOSAIC_VERSION;
  u.mangled = at_mop_attr(m, "stable_mosaic.version") != NULL;
  if (u.mangled && !at_mosaic_attr_int(m, "stable_mosaic.version", &u.version))
    return at_mosaic_fail(k, m, AT_INVALID_ARGUMENT,
                          "Missing or invalid version attribute");
  if (u.version > AT_MOSAIC_VERSION || u.version < AT_MOSAIC_OLDEST_VERSION)
    return at_mosaic_fail(k, m, AT_UNIMPLEMENTED,
                          "the kernel is serialised in version %lld of Mosaic, "
                          "versions %d to %d are understood",
                          (long long)u.version, AT_MOSAIC_OLDEST_VERSION,
                          AT_MOSAIC_VERSION);
  k->serde_version = u.version;
  m->tag = AT_MOSAIC_BUILTIN_MODULE;
  AT_TRY(at_mosaic_attr_set(k->arena, m, "stable_mosaic.version", NULL));
  for (uint32_t r = 0; r < m->num_regions; r++)
    for (uint32_t i = 0; i < m->regions[r]->num_blocks; i++)
      AT_TRY(walk_block(&u, m->regions[r]->blocks[i], 0));
  return AT_OK;
}
