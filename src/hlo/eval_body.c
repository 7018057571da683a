// Bodies of scalars: the reducers, comparators and updates that ops call once
// per element.
#include "hlo/eval_internal.h"

enum { kSlot = 16 };  // bytes: the widest element

// Whether a node can run on slots: each result is one scalar with bytes of its
// own, and the op is elementwise or a leaf.
static bool node_is_plain(const at_node *n) {
  for (uint32_t i = 0; i < n->num_results; i++)
    if (n->types[i].rank || n->types[i].dtype == AT_TOKEN) return false;
  if (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT) return true;
  return at_op_is(n->op, AT_ELEMENTWISE);
}

// One node that is not plain sends the whole body to the general path.
static bool comp_is_plain(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (!node_is_plain(n)) return false;
  }
  return true;
}

// Where a value's element lies: a slot of this body, or the data outside.
static const void *place_of(const at_body *b, const at_map *index, at_value v) {
  void **place = at_map_find_ptr(index, v.node);
  if (place) return b->slots + kSlot * ((size_t)*place - 1);
  const at_literal *l = at_env_get(b->env, v);
  return l && l->type.rank == 0 ? l->data : NULL;
}

// Resolves each operand, result and parameter to an address once, so that a
// call only copies arguments, runs the elements in order and copies results.
// Constants are written into their slots here and stay there.
static at_status open_plain(at_body *b) {
  at_arena *a = b->cx->arena;
  const at_comp *c = b->comp;
  at_map index = at_map_in(a);
  size_t operands = 0;
  AT_FOR_NODES(n, c) {
    void **place;
    AT_TRY_ALLOC(place, at_map_put_ptr(&index, n));
    *place = (void *)(size_t)++b->num_nodes;
    operands += n->num_operands;
  }
  AT_TRY_ALLOC(b->slots, at_arena_alloc(a, at_mul(b->num_nodes, kSlot), 16));
  AT_TRY_ALLOC(b->nodes, at_new(a, const at_node *, b->num_nodes));
  AT_TRY_ALLOC(b->operands, at_new(a, const void *, operands));
  AT_TRY_ALLOC(b->results, at_new(a, const void *, c->num_results));
  AT_TRY_ALLOC(b->params, at_new(a, const void *, c->num_params));
  // Slots are numbered in list order; the index map holds number + 1, since
  // NULL means absent.
  const void **next = b->operands;
  uint32_t at = 0;
  AT_FOR_NODES(n, c) {
    b->nodes[at] = n;
    const at_literal *l = at_node_literal(n);
    if (l) memcpy(b->slots + (size_t)kSlot * at, l->data, l->bytes);
    for (uint32_t i = 0; i < n->num_operands; i++) {
      AT_ENSURE(*next = place_of(b, &index, n->operands[i]));
      next++;
    }
    at++;
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    AT_ENSURE(b->results[i] = place_of(b, &index, c->results[i]));
  for (uint32_t i = 0; i < c->num_params; i++)
    b->params[i] = place_of(b, &index, (at_value){c->params[i], 0});
  return AT_OK;
}

// What is allocated lives in the context's arena, but for the general path's
// scratch, which at_body_close frees.
at_status at_body_open(at_eval_ctx *cx, const at_env *env, const at_comp *c,
                       at_body *out) {
  at_body b = {.cx = cx, .env = env, .comp = c, .plain = comp_is_plain(c)};
  if (b.plain) {
    AT_TRY(open_plain(&b));
  } else {
    AT_TRY_ALLOC(b.args, at_new(cx->arena, const at_literal *, c->num_params));
    AT_TRY_ALLOC(b.outs, at_new(cx->arena, const at_literal *, c->num_results));
    AT_TRY_ALLOC(b.scratch, at_arena_create());
  }
  *out = b;
  return AT_OK;
}

void at_body_close(at_body *b) {
  at_arena_destroy(b->scratch);
  b->scratch = NULL;
}

// Operand addresses stand in one row, node by node, so that a cursor suffices.
static at_status call_plain(at_body *b, const void *const *args,
                            void *const *outs) {
  const at_comp *c = b->comp;
  const void **operands = b->operands;
  for (uint32_t i = 0; i < c->num_params; i++)
    memcpy((void *)b->params[i], args[i],
           at_dtype_bytes(c->params[i]->types[0].dtype));
  for (uint32_t i = 0; i < b->num_nodes; i++) {
    const at_node *n = b->nodes[i];
    if (n->op != AT_OP_PARAMETER && n->op != AT_OP_CONSTANT)
      AT_TRY(at_eval_element(n, operands, b->slots + (size_t)kSlot * i));
    operands += n->num_operands;
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    memcpy(outs[i], b->results[i],
           at_dtype_bytes(at_value_type(c->results[i])->dtype));
  return AT_OK;
}

// The scratch arena is reset at each call: results are copied out before, at
// the end of the call that made them.
static at_status call_general(at_body *b, const void *const *args,
                              void *const *outs) {
  const at_comp *c = b->comp;
  at_arena_reset(b->scratch);
  for (uint32_t i = 0; i < c->num_params; i++)
    AT_TRY(at_literal_make(b->scratch, c->params[i]->types[0], args[i], false,
                           false, &b->args[i]));
  at_eval_ctx inner = *b->cx;
  inner.arena = b->scratch;
  AT_TRY(at_eval_comp(&inner, b->env, c, b->args, b->outs));
  for (uint32_t i = 0; i < c->num_results; i++)
    memcpy(outs[i], at_literal_at(b->outs[i], 0),
           at_dtype_bytes(b->outs[i]->type.dtype));
  return AT_OK;
}

// Spends one operation and one more for each node of a plain body; the general
// path spends by itself, too.
at_status at_body_call(at_body *b, const void *const *args, void *const *outs) {
  AT_TRY(at_eval_spend(b->cx, 1 + b->num_nodes));
  return b->plain ? call_plain(b, args, outs) : call_general(b, args, outs);
}
