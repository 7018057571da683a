// Layouts of what loops carry. The compiler gives a loop's values the layouts
// that they begin with, sees what the body makes of them, keeps what both say,
// and looks at the body once more. A value that begins as one number
// everywhere and is replaced by another carried one then has no place for what
// that has become: "Invalid relayout".
//
// Only whether a dimension is replicated is followed here, of the last two
// dimensions, and only where it is certain.
#include "base/log.h"
#include "tpu/rules_internal.h"

// Of a dimension; what is made of two operands has the lesser.
typedef enum state { kApart = 1, kUnknown, kReplicated } state;
typedef struct states {
  state row, column;
} states;

typedef struct carried {
  at_mosaic_judge *j;
  at_map known;   // at_mvalue * -> states, as kPacked; absent: unknown
  at_map used;    // at_mvalue * -> not NULL: an operation names it
  at_map wrong;   // at_mop * of loops -> 1 + the carried value
  uint64_t left;  // operations that may still be looked at
} carried;

// A body is looked at twice where a carried layout changes, a loop in it again
// as often. No kernel that was seen nests so many of them.
enum { kLooks = 256 };

// Both dimensions; unknown where nothing was noted.
static states states_of(const carried *c, const at_mvalue *v) {
  void **x = at_map_find_ptr(&c->known, v);
  uintptr_t n = x ? (uintptr_t)*x : 0;
  return n ? (states){(state)(n & 3), (state)(n >> 2)}
           : (states){kUnknown, kUnknown};
}
// Notes the state of a value.
static at_status set(carried *c, const at_mvalue *v, states s) {
  void **x;
  AT_TRY_ALLOC(x, at_map_put_ptr(&c->known, v));
  *x = (void *)((uintptr_t)s.row | (uintptr_t)s.column << 2);
  return AT_OK;
}
// Dimension by dimension.
static states least(states a, states b) {
  return (states){AT_MIN(a.row, b.row), AT_MIN(a.column, b.column)};
}
// Vectors with a row and a column.
static bool is_judged(const at_mvalue *v) {
  return at_mosaic_is_vector(v->type) && v->type->shape.rank >= 2;
}

// ---- Operations
// The dimension that it counts is not replicated, the others are.
static states of_iota(const at_mop *op) {
  states s = {kReplicated, kReplicated};
  int64_t rank = at_mosaic_res(op, 0)->shape.rank, dim = 0;
  const at_mattr *a = at_mop_attr(op, "dimensions");
  if (!a || a->kind != AT_MATTR_DENSE_ARRAY || a->data.len != 4)
    return (states){kUnknown, kUnknown};
  int32_t one;
  memcpy(&one, a->data.ptr, sizeof one);
  dim = one;
  if (dim == rank - 2) s.row = kApart;
  if (dim == rank - 1) s.column = kApart;
  return s;
}

// The same registers under more or fewer leading dimensions.
static states of_shape_cast(const carried *c, const at_mop *op) {
  const at_mtype *from = at_mosaic_arg(op, 0), *to = at_mosaic_res(op, 0);
  if (from->shape.rank < 2 ||
      at_mosaic_size(from, 1) != at_mosaic_size(to, 1) ||
      at_mosaic_size(from, 2) != at_mosaic_size(to, 2))
    return (states){kUnknown, kUnknown};
  return states_of(c, op->operands[0]);
}

// A dimension that is repeated is unknown: the compiler may keep it replicated
// or not.
static states of_broadcast(const carried *c, const at_mop *op) {
  const at_mtype *to = at_mosaic_res(op, 0), *from = at_mosaic_arg(op, 0);
  states s = {kReplicated, kReplicated};
  if (!at_mosaic_is_vector(from)) return s;
  s = states_of(c, op->operands[0]);
  if (from->shape.rank < 2) return (states){kUnknown, kUnknown};
  if (at_mosaic_size(from, 2) != at_mosaic_size(to, 2)) s.row = kUnknown;
  if (at_mosaic_size(from, 1) != at_mosaic_size(to, 1)) s.column = kUnknown;
  return s;
}

// The lesser of the operands' states, dimension by dimension.
static states of_operands(const carried *c, const at_mop *op) {
  states s = {kReplicated, kReplicated};
  const at_mtype *to = at_mosaic_res(op, 0);
  for (uint32_t i = 0; i < op->num_operands; i++) {
    const at_mvalue *v = op->operands[i];
    if (!at_mosaic_is_vector(v->type)) continue;
    s = least(s, states_of(c, v));
    // Conversions may choose a layout of their own for numbers.
    if (at_mosaic_bits(v->type) != at_mosaic_bits(to) &&
        at_mosaic_bits(v->type) > 1)
      s = least(s, (states){kUnknown, kUnknown});
  }
  return s;
}

// Loads keep their rows and columns apart; constants of one number are
// replicated; arithmetic follows its operands.
static states of_op(const carried *c, const at_mop *op) {
  at_mosaic_opcode code = at_mosaic_opcode_of(op);
  const at_mtype *t = at_mosaic_res(op, 0);
  switch (code) {
    case AT_MOSAIC_ARITH_CONSTANT: {
      const at_mattr *a = at_mop_attr(op, "value");
      state s =
          a && a->kind == AT_MATTR_DENSE && a->splat ? kReplicated : kUnknown;
      return (states){s, s};
    }
    case AT_MOSAIC_VECTOR_BROADCAST:
      return of_broadcast(c, op);
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
      return of_shape_cast(c, op);
    case AT_MOSAIC_TPU_IOTA:
      return of_iota(op);
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
      return (states){at_mosaic_size(t, 2) > 1 ? kApart : kUnknown,
                      at_mosaic_size(t, 1) > 1 ? kApart : kUnknown};
    case AT_MOSAIC_VECTOR_EXTRACT_STRIDED_SLICE:
      return least(states_of(c, op->operands[0]), (states){kUnknown, kUnknown});
    case AT_MOSAIC_ARITH_BITCAST:
      return (states){kUnknown, kUnknown};
    default:
      return code > AT_MOSAIC_ARITH_CONSTANT && code <= AT_MOSAIC_MATH_CTPOP
                 ? of_operands(c, op)
                 : (states){kUnknown, kUnknown};
  }
}

// ---- Regions
static at_status look(carried *c, const at_mblock *b);

// NULL: it has none.
static const at_mblock *block_of(const at_mop *op, uint32_t region) {
  return op->num_regions > region && op->regions[region]->num_blocks
             ? op->regions[region]->blocks[0]
             : NULL;
}
static const at_mop *last_of(const at_mblock *b) {
  return b && b->num_ops ? b->ops[b->num_ops - 1] : NULL;
}

// Results have what both sides yield.
static at_status branch(carried *c, const at_mop *op) {
  const at_mblock *yes = block_of(op, 0), *no = block_of(op, 1);
  if (yes) AT_TRY(look(c, yes));
  if (no) AT_TRY(look(c, no));
  const at_mop *x = last_of(yes), *y = last_of(no);
  for (uint32_t i = 0; x && y && i < op->num_results; i++)
    if (i < x->num_operands && i < y->num_operands)
      AT_TRY(set(
          c, &op->results[i],
          least(states_of(c, x->operands[i]), states_of(c, y->operands[i]))));
  return AT_OK;
}

// What a loop carries: value i begins as init[i], is arg[i] in the body, which
// yields next[i].
typedef struct loop {
  const at_mop *op;
  at_mvalue *const *init, *const *next;
  at_mvalue *arg;
  uint32_t n;
} loop;

// True where the loop wants a replicated dimension and the body yields one that
// is not, and somebody uses the value.
static bool is_lost(const carried *c, const loop *l, uint32_t i) {
  if (!is_judged(&l->arg[i])) return false;
  states have = states_of(c, l->next[i]), want = states_of(c, &l->arg[i]);
  const at_mtype *t = l->arg[i].type;
  bool row =
      at_mosaic_size(t, 2) > 1 && want.row == kReplicated && have.row == kApart;
  bool column = at_mosaic_size(t, 1) > 1 && want.column == kReplicated &&
                have.column == kApart;
  bool remains = at_map_find_ptr(&c->used, &l->arg[i]) ||
                 at_map_find_ptr(&c->used, &l->op->results[i]);
  return remains && (row || column);
}

// body: NULL, or what is looked at before it (the condition of a while).
static at_status carry(carried *c, const loop *l, const at_mblock *before,
                       const at_mblock *body) {
  bool again = true;
  for (int turn = 0; turn < 2 && again; turn++) {
    again = false;
    // The first turn begins with what comes in, the second with what both it
    // and the body say.
    for (uint32_t i = 0; i < l->n; i++) {
      states s = states_of(c, l->init[i]);
      if (turn) s = least(s, states_of(c, l->next[i]));
      AT_TRY(set(c, &l->arg[i], s));
    }
    if (before) AT_TRY(look(c, before));
    AT_TRY(look(c, body));
    for (uint32_t i = 0; i < l->n && !turn; i++) {
      states have = states_of(c, &l->arg[i]);
      states s = least(have, states_of(c, l->next[i]));
      again |= s.row != have.row || s.column != have.column;
    }
  }
  // Set anew each time that a loop is looked at: the last look of the outer
  // loops counts.
  void **wrong;
  AT_TRY_ALLOC(wrong, at_map_put_ptr(&c->wrong, l->op));
  *wrong = NULL;
  for (uint32_t i = l->n; i-- > 0;) {
    AT_TRY(set(c, &l->op->results[i], states_of(c, &l->arg[i])));
    if (is_lost(c, l, i)) *wrong = (void *)(uintptr_t)(i + 1);
  }
  return AT_OK;
}

// Is it known to turn at most once? The compiler has no loop then.
static bool is_trivial(const at_mop *op) {
  int64_t lo, hi, step;
  return at_mosaic_value_const(op->operands[0], &lo) &&
         at_mosaic_value_const(op->operands[1], &hi) &&
         at_mosaic_value_const(op->operands[2], &step) && hi - lo <= step;
}

// What goes round is the least of what comes in and what each turn yields.
static at_status for_loop(carried *c, const at_mop *op) {
  const at_mblock *b = block_of(op, 0);
  const at_mop *yield = last_of(b);
  uint32_t n = op->num_results;
  if (!yield || yield->num_operands != n || b->num_args != n + 1 ||
      op->num_operands != n + 3)
    return AT_OK;
  if (is_trivial(op)) return look(c, b);
  loop l = {op, op->operands + 3, yield->operands, b->args + 1, n};
  return carry(c, &l, NULL, b);
}

// The condition passes on what it is given, as JAX has it; others are unknown.
static at_status while_loop(carried *c, const at_mop *op) {
  const at_mblock *before = block_of(op, 0), *after = block_of(op, 1);
  const at_mop *cond = last_of(before), *yield = last_of(after);
  uint32_t n = op->num_results;
  if (!cond || !yield || op->num_operands != n || before->num_args != n ||
      after->num_args != n || cond->num_operands != n + 1 ||
      yield->num_operands != n)
    return AT_OK;
  for (uint32_t i = 0; i < n; i++)
    if (cond->operands[i + 1] != &before->args[i]) return AT_OK;
  loop l = {op, op->operands, yield->operands, after->args, n};
  return carry(c, &l, before, after);
}

// The order of the text; `left` bounds the work over nested loops, which are
// looked at again.
static at_status look(carried *c, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    if (!c->left) return AT_OK;
    c->left--;
    switch (at_mosaic_opcode_of(op)) {
      case AT_MOSAIC_SCF_FOR:
        AT_TRY(for_loop(c, op));
        continue;
      case AT_MOSAIC_SCF_WHILE:
        AT_TRY(while_loop(c, op));
        continue;
      case AT_MOSAIC_SCF_IF:
        AT_TRY(branch(c, op));
        continue;
      default:
        break;
    }
    for (uint32_t r = 0; r < op->num_regions; r++)
      if (block_of(op, r)) AT_TRY(look(c, block_of(op, r)));
    if (op->num_results == 1 && is_judged(op->results))
      AT_TRY(set(c, op->results, of_op(c, op)));
  }
  return AT_OK;
}

// Also counts the operations, on which the bound of the work depends.
static at_status find_used(carried *c, const at_mblock *b, uint64_t *ops) {
  *ops += b->num_ops;
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    for (uint32_t k = 0; k < op->num_operands; k++) {
      void **x;
      AT_TRY_ALLOC(x, at_map_put_ptr(&c->used, op->operands[k]));
      *x = c;
    }
    for (uint32_t r = 0; r < op->num_regions; r++)
      if (block_of(op, r)) AT_TRY(find_used(c, block_of(op, r), ops));
  }
  return AT_OK;
}

// Names the carried value, which the compiler does not.
static at_status refuse(carried *c, const at_mop *op, uint32_t i) {
  at_strbuf b = {0};
  at_mtype_print(&b, op->results[i].type);
  at_status s = at_mosaic_refuse(
      c->j, op, AT_INTERNAL,
      "Invalid relayout: Non-singleton logical dimension is replicated in "
      "destination but not in source for '%s': carried value %u of the loop "
      "begins as one number and is replaced by one that does not stay so",
      b.ptr ? b.ptr : "?", i);
  at_strbuf_free(&b);
  return s;
}

// The first loop in order whose carried value loses its layout is refused.
at_status at_mosaic_rules_carried(at_mosaic_judge *j) {
  carried c = {.j = j,
               .known = at_map_in(j->scratch),
               .used = at_map_in(j->scratch),
               .wrong = at_map_in(j->scratch)};
  AT_TRY(find_used(&c, j->p->body, &c.left));
  c.left = c.left * kLooks + 1;
  AT_TRY(look(&c, j->p->body));
  if (!c.left) {
    at_log(AT_LOG_WARNING,
           "kernel %s: what its loops carry is not judged, since loops that "
           "change it are nested too deep",
           j->k->name);
    return AT_OK;
  }
  for (size_t i = 0; i < c.wrong.len; i++) {
    uintptr_t n = (uintptr_t)c.wrong.entries[i].value;
    if (n)
      return refuse(&c,
                    (const at_mop *)(const void *)c.wrong.entries[i].key.ptr,
                    (uint32_t)n - 1);
  }
  return AT_OK;
}
