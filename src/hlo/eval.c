// The reference evaluator: walks a computation in order and calls the handler
// of each op. Control flow and calls are here; the rest is by theme in
// eval_*.c.
#include "base/verify.h"
#include "hlo/eval_internal.h"

enum { kMaxDepth = 200 };  // of calls and regions

// The counter saturates, so that a budget stops work whose size overflows.
at_status at_eval_spend(at_eval_ctx *cx, int64_t ops) {
  if (__builtin_add_overflow(*cx->ops, ops, cx->ops)) *cx->ops = INT64_MAX;
  if (cx->opt->max_ops && *cx->ops > cx->opt->max_ops)
    return AT_FAIL(AT_DEADLINE_EXCEEDED,
                   "evaluation needs more than %lld element operations",
                   (long long)cx->opt->max_ops);
  return AT_OK;
}

// Copies nothing and zeroes the data; both live in the context's arena.
at_status at_eval_new(at_eval_ctx *cx, const at_type *t, const at_literal **out,
                      uint8_t **data) {
  AT_TRY(at_literal_make(cx->arena, *t, NULL, false, false, out));
  *data = (uint8_t *)(uintptr_t)(*out)->data;
  return AT_OK;
}

// Looks through the enclosing computations, innermost first: that is how a
// region reads values that it captures.
const at_literal *at_env_get(const at_env *env, at_value v) {
  for (; env; env = env->outer) {
    void **place = at_map_find_ptr(&env->values, v.node);
    if (place) return ((const at_literal **)*place)[v.index];
  }
  return NULL;
}

// ---- Elementwise

// An operand of rank 0 stands for an element everywhere: a scalar predicate of
// select and scalar bounds of clamp.
static at_status eval_elementwise(const at_eval_args *e) {
  const at_node *n = e->n;
  const void *in[3];
  uint8_t *data;
  AT_ENSURE(n->num_operands <= 3);
  at_type t = n->types[0];
  AT_TRY(at_eval_new(e->cx, &t, e->out, &data));
  int64_t count = at_type_elements(&t);
  size_t width = at_dtype_bytes(t.dtype);
  AT_TRY(at_eval_spend(e->cx, count));
  for (int64_t i = 0; i < count; i++) {
    for (uint32_t k = 0; k < n->num_operands; k++)
      in[k] = at_literal_at(e->in[k], e->in[k]->type.rank ? i : 0);
    AT_TRY(at_eval_element(n, in, data + (size_t)i * width));
  }
  return AT_OK;
}

// ---- Leaves

// Tokens have no bytes; the literal only says that the effect has happened.
static at_status eval_token(const at_eval_args *e) {
  uint8_t *data;
  return at_eval_new(e->cx, &e->n->types[0], e->out, &data);
}

// Partition or replica number as u32[].
static at_status eval_id(const at_eval_args *e, int64_t id) {
  uint8_t *data;
  AT_TRY(at_eval_new(e->cx, &e->n->types[0], e->out, &data));
  at_store_int(AT_U32, data, id);
  return AT_OK;
}

// Results are the operands themselves: literals never change once they are
// made.
static at_status eval_forward(const at_eval_args *e) {
  for (uint32_t i = 0; i < e->n->num_operands; i++) e->out[i] = e->in[i];
  return AT_OK;
}

// ---- Control flow

// Region 0 is the true branch. Branches take no arguments and capture what they
// need.
static at_status eval_if(const at_eval_args *e) {
  bool taken = at_literal_int(e->in[0], 0) != 0;
  return at_eval_comp(e->cx, e->env, e->n->regions[taken ? 0 : 1], NULL,
                      e->out);
}

// An index out of range takes the last branch, as StableHLO defines it.
static at_status eval_case(const at_eval_args *e) {
  uint32_t branches = e->n->num_regions;
  int64_t i = at_literal_int(e->in[0], 0);
  if (i < 0 || i >= branches) i = (int64_t)branches - 1;
  return at_eval_comp(e->cx, e->env, e->n->regions[i], NULL, e->out);
}

// Copies `n` literals into an arena of their own.
static at_status copy_literals(at_arena *a, const at_literal *const *from,
                               uint32_t n, const at_literal **to) {
  for (uint32_t i = 0; i < n; i++)
    AT_TRY(at_literal_make(a, from[i]->type, from[i]->data, from[i]->splat,
                           false, &to[i]));
  return AT_OK;
}

// Each iteration computes in `work`; its state moves to the other of two
// arenas, so that a long loop needs no more memory than a short one.
static at_status loop(const at_eval_args *e, at_arena *work, at_arena **states,
                      const at_literal **state) {
  const at_node *n = e->n;
  at_eval_ctx inner = *e->cx;
  inner.arena = work;
  const at_literal **next;
  AT_TRY_ALLOC(next, at_new(e->cx->arena, const at_literal *, n->num_results));
  for (int turn = 0;; turn ^= 1) {
    const at_literal *go;
    AT_TRY(at_eval_spend(e->cx, 1));
    // The condition, then the body on the same state.
    AT_TRY(at_eval_comp(&inner, e->env, n->regions[0], state, &go));
    if (!at_literal_int(go, 0)) return AT_OK;
    AT_TRY(at_eval_comp(&inner, e->env, n->regions[1], state, next));
    at_arena_reset(states[turn]);
    AT_TRY(copy_literals(states[turn], next, n->num_results, state));
    at_arena_reset(work);
  }
}

// Three arenas: one for the work of an iteration and two that hold the state in
// turns. The final state is copied into the context's arena before they go.
static at_status eval_while(const at_eval_args *e) {
  at_arena *arenas[3] = {at_arena_create(), at_arena_create(),
                         at_arena_create()};
  uint32_t count = e->n->num_results;
  const at_literal **state = at_new(e->cx->arena, const at_literal *, count);
  at_status st = AT_OK;
  if (!arenas[0] || !arenas[1] || !arenas[2] || !state) {
    st = AT_NO_MEMORY("while");
    goto out;
  }
  for (uint32_t i = 0; i < count; i++) state[i] = e->in[i];
  AT_TRY_GOTO(st, loop(e, arenas[0], &arenas[1], state), out);
  st = copy_literals(e->cx->arena, state, count, e->out);
out:
  for (int i = 0; i < 3; i++) at_arena_destroy(arenas[i]);
  return st;
}

// A callee sees nothing of its caller: its environment has no outer one.
// Recursion ends at kMaxDepth.
static at_status eval_call(const at_eval_args *e) {
  at_str name = at_node_str(e->n, AT_ATTR_CALLEE);
  const at_comp *c = at_module_find(e->n->parent->module, name);
  if (!c)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s: no function \"%.*s\"",
                   at_op_text(e->n->op), (int)name.len, name.ptr);
  return at_eval_comp(e->cx, NULL, c, e->in, e->out);
}

// Every custom call is handed to the option's hook, which also says what it
// does not know.
static at_status eval_custom(const at_eval_args *e) {
  at_str name = at_node_str(e->n, AT_ATTR_CALL_TARGET_NAME);
  if (e->cx->opt->custom)
    return e->cx->opt->custom(e->cx->opt->user, e->n, e->in, e->cx->arena,
                              e->out);
  return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: custom_call \"%.*s\"",
                 (int)name.len, name.ptr);
}

static at_status eval_host(const at_eval_args *e) {
  return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %s needs a host",
                 at_op_text(e->n->op));
}

static at_status eval_fusion(const at_eval_args *e) {
  return at_eval_comp(e->cx, e->env, e->n->regions[0], e->in, e->out);
}

// ---- Dispatch

// The handler of the node's op. Operands have been checked against their types,
// `out` has room for all results.
static at_status dispatch(const at_eval_args *e) {
  switch (e->n->op) {
    case AT_OP_CONSTANT:
      e->out[0] = at_node_literal(e->n);
      return AT_OK;
    case AT_OP_IOTA:
      return at_eval_iota(e);
    case AT_OP_PARTITION_ID:
      return eval_id(e, e->cx->opt->partition_id);
    case AT_OP_REPLICA_ID:
      return eval_id(e, e->cx->opt->replica_id);
    case AT_OP_CREATE_TOKEN:
    case AT_OP_AFTER_ALL:
      return eval_token(e);
    case AT_OP_BITCAST_CONVERT:
      return at_eval_bitcast(e);
    case AT_OP_BROADCAST_IN_DIM:
      return at_eval_broadcast(e);
    case AT_OP_CONCATENATE:
      return at_eval_concatenate(e);
    case AT_OP_PAD:
      return at_eval_pad(e);
    case AT_OP_RESHAPE:
    case AT_OP_COPY:
      return at_eval_same_bytes(e);
    case AT_OP_REVERSE:
      return at_eval_reverse(e);
    case AT_OP_SLICE:
      return at_eval_slice(e);
    case AT_OP_TRANSPOSE:
      return at_eval_transpose(e);
    case AT_OP_DYNAMIC_SLICE:
      return at_eval_dynamic_slice(e);
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return at_eval_dynamic_update_slice(e);
    case AT_OP_GATHER:
      return at_eval_gather(e);
    case AT_OP_SCATTER:
      return at_eval_scatter(e);
    case AT_OP_SELECT_AND_SCATTER:
      return at_eval_select_and_scatter(e);
    case AT_OP_DYNAMIC_BROADCAST_IN_DIM:
    case AT_OP_DYNAMIC_CONV:
    case AT_OP_DYNAMIC_GATHER:
    case AT_OP_DYNAMIC_IOTA:
    case AT_OP_DYNAMIC_PAD:
    case AT_OP_DYNAMIC_RESHAPE:
    case AT_OP_REAL_DYNAMIC_SLICE:
    case AT_OP_GET_DIMENSION_SIZE:
    case AT_OP_SET_DIMENSION_SIZE:
      return at_eval_dynamic(e);
    case AT_OP_DOT_GENERAL:
      return at_eval_dot(e);
    case AT_OP_RAGGED_DOT:
      return at_eval_ragged_dot(e);
    case AT_OP_CONVOLUTION:
      return at_eval_convolution(e);
    case AT_OP_REDUCE:
      return at_eval_reduce(e);
    case AT_OP_REDUCE_WINDOW:
      return at_eval_reduce_window(e);
    case AT_OP_SCAN:
      return at_eval_scan(e);
    case AT_OP_MAP:
      return at_eval_map(e);
    case AT_OP_SORT:
      return at_eval_sort(e);
    case AT_OP_TOP_K:
      return at_eval_top_k(e);
    case AT_OP_BATCH_NORM_TRAINING:
    case AT_OP_BATCH_NORM_INFERENCE:
    case AT_OP_BATCH_NORM_GRAD:
      return at_eval_batch_norm(e);
    case AT_OP_FFT:
      return at_eval_fft(e);
    case AT_OP_CHOLESKY:
      return at_eval_cholesky(e);
    case AT_OP_TRIANGULAR_SOLVE:
      return at_eval_triangular_solve(e);
    case AT_OP_RNG:
      return at_eval_rng(e);
    case AT_OP_RNG_BIT_GENERATOR:
      return at_eval_rng_bit_generator(e);
    case AT_OP_CALL:
    case AT_OP_COMPOSITE:
      return eval_call(e);
    case AT_OP_CASE:
      return eval_case(e);
    case AT_OP_IF:
      return eval_if(e);
    case AT_OP_WHILE:
      return eval_while(e);
    case AT_OP_OPTIMIZATION_BARRIER:
    case AT_OP_ASYNC_DONE:
      return eval_forward(e);
    case AT_OP_CUSTOM_CALL:
      return eval_custom(e);
    case AT_OP_FUSION:
      return eval_fusion(e);
    case AT_OP_ALL_GATHER:
    case AT_OP_ALL_REDUCE:
    case AT_OP_ALL_TO_ALL:
    case AT_OP_COLLECTIVE_BROADCAST:
    case AT_OP_COLLECTIVE_PERMUTE:
    case AT_OP_RAGGED_ALL_TO_ALL:
    case AT_OP_REDUCE_SCATTER:
      return at_eval_collective(e);
    case AT_OP_INFEED:
    case AT_OP_OUTFEED:
    case AT_OP_SEND:
    case AT_OP_RECV:
      return eval_host(e);
    default:
      break;
  }
  if (at_op_is(e->n->op, AT_ELEMENTWISE)) return eval_elementwise(e);
  return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %s", at_op_text(e->n->op));
}

// Whether all that the node gives are arrays without elements, and all that it
// does is to give them. Handlers walk over batches, of which an array of size 0
// may have any number.
static bool is_empty(const at_node *n) {
  if (at_op_is(n->op, AT_EFFECT | AT_COLLECTIVE | AT_CONTROL | AT_OPAQUE))
    return false;
  bool empty = n->num_results > 0;
  for (uint32_t i = 0; i < n->num_results; i++)
    empty &= n->types[i].dtype != AT_TOKEN && at_type_is_static(&n->types[i]) &&
             at_type_elements(&n->types[i]) == 0;
  return empty;
}

// Results of the declared types, which have no bytes to compute.
static at_status make_empty(const at_eval_args *e) {
  uint8_t *data;
  for (uint32_t i = 0; i < e->n->num_results; i++)
    AT_TRY(at_eval_new(e->cx, &e->n->types[i], &e->out[i], &data));
  return AT_OK;
}

// Dynamic ops find their shape among their operands; all others need it known.
static bool finds_shape(at_op op) {
  return at_op_of(op)->infer == at_infer_given ||
         op == AT_OP_OPTIMIZATION_BARRIER || op == AT_OP_WHILE;
}

// Refuses what the handlers do not look at again: operand types, ranks over
// kMaxRank (their index arrays are on the stack), quantised elements, and
// results of unknown shape unless the handler finds the shape among its
// operands.
static at_status check_node(const at_node *n, const at_literal *const *in) {
  for (uint32_t i = 0; i < n->num_operands; i++) {
    if (in[i]->type.rank > kMaxRank)
      return AT_BAD(n, "operand %u has more than %d dimensions", i, kMaxRank);
    if (!at_type_compatible(&in[i]->type, at_value_type(n->operands[i])))
      return AT_BAD(n, "operand %u was given %s", i, at_type_z(&in[i]->type).z);
  }
  for (uint32_t i = 0; i < n->num_results; i++) {
    if (n->types[i].rank > kMaxRank)
      return AT_BAD(n, "result %u has more than %d dimensions", i, kMaxRank);
    if (n->types[i].quant)
      return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %s of quantised elements",
                     at_op_text(n->op));
    if (!at_type_is_static(&n->types[i]) && !finds_shape(n->op))
      return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %s of unknown shape %s",
                     at_op_text(n->op), at_type_z(&n->types[i]).z);
  }
  return AT_OK;
}

// Is what a handler left a value of the type that the node declares, with all
// its bytes? Of foreign calls the one who evaluates them says so.
static bool has_results(const at_node *n, const at_literal *const *out) {
  for (uint32_t i = 0; i < n->num_results; i++) {
    const at_literal *l = out[i];
    if (n->op == AT_OP_CUSTOM_CALL) continue;
    if (!l || !at_type_compatible(&l->type, &n->types[i]) ||
        l->bytes != (l->splat ? at_dtype_bytes(l->type.dtype)
                              : at_type_bytes(&l->type)))
      return false;
  }
  return true;
}

// Evaluates a node on given operands. Errors get the node's text in front, but
// for the budget's, which say nothing about the node.
static at_status eval_one(at_eval_ctx *cx, const at_env *env, const at_node *n,
                          const at_literal *const *in, const at_literal **out) {
  at_eval_args e = {cx, env, n, in, out};
  AT_TRY(check_node(n, in));
  at_status s = is_empty(n) ? make_empty(&e) : dispatch(&e);
  AT_ASSERT(!at_ok(s) || has_results(n, out));
  AT_VERIFY(!at_ok(s) || at_eval_holds(&e));
  if (at_ok(s) || at_status_code(s) == AT_DEADLINE_EXCEEDED) return s;
  at_strbuf b = {0};
  at_node_describe(&b, n);
  s = at_status_prefix(s, "%s", b.ptr ? b.ptr : at_op_text(n->op));
  at_strbuf_free(&b);
  return s;
}

// Finds n's operands in the environment, evaluates it, and binds its results.
static at_status eval_in_env(at_eval_ctx *cx, at_env *env, const at_node *n) {
  const at_literal **in, **out;
  void **place;
  AT_TRY_ALLOC(in, at_new(cx->arena, const at_literal *, n->num_operands));
  AT_TRY_ALLOC(out, at_new(cx->arena, const at_literal *, n->num_results));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    in[i] = at_env_get(env, n->operands[i]);
    if (!in[i]) return AT_BAD(n, "operand %u is used before it is computed", i);
  }
  AT_TRY(at_eval_spend(cx, 1));
  AT_TRY(eval_one(cx, env, n, in, out));
  AT_TRY_ALLOC(place, at_map_put_ptr(&env->values, n));
  *place = out;
  return AT_OK;
}

// Binds c's parameters to the arguments. Checks their types, since arguments
// come from callers and bodies from operands.
static at_status bind_params(at_env *env, const at_comp *c,
                             const at_literal *const *args) {
  for (uint32_t i = 0; i < c->num_params; i++) {
    const at_literal **one;
    void **place;
    const at_type *want = &c->params[i]->types[0];
    if (!args || !args[i] || !at_type_compatible(&args[i]->type, want))
      return AT_FAIL(AT_INVALID_ARGUMENT, "argument %u is %s, must be %s", i,
                     args && args[i] ? at_type_z(&args[i]->type).z : "missing",
                     at_type_z(want).z);
    AT_TRY_ALLOC(one, at_new(env->values.arena, const at_literal *, 1));
    AT_TRY_ALLOC(place, at_map_put_ptr(&env->values, c->params[i]));
    *one = args[i];
    *place = one;
  }
  return AT_OK;
}

// Nodes are in topological order, so one pass in list order computes every
// operand before its use.
at_status at_eval_comp(at_eval_ctx *cx, const at_env *outer, const at_comp *c,
                       const at_literal *const *args,
                       const at_literal **results) {
  at_eval_ctx inner = *cx;
  at_env env = {at_map_in(cx->arena), outer};
  if (++inner.depth > kMaxDepth)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "evaluator: calls are nested more than %d deep", kMaxDepth);
  AT_TRY(bind_params(&env, c, args));
  AT_FOR_NODES(n, c) {
    if (n->op != AT_OP_PARAMETER) AT_TRY(eval_in_env(&inner, &env, n));
  }
  for (uint32_t i = 0; i < c->num_results; i++) {
    results[i] = at_env_get(&env, c->results[i]);
    if (!results[i])
      return AT_FAIL(AT_INTERNAL, "result %u of a computation has no value", i);
  }
  return AT_OK;
}

static const at_eval_options no_options;

at_status at_eval_member(const at_comp *c, const at_literal *const *args,
                         const at_eval_options *opt, struct at_gang *gang,
                         int64_t device, at_arena *a,
                         const at_literal **out_results) {
  int64_t ops = 0;
  at_eval_ctx cx = {a, opt, &ops, 0, gang, device};
  return at_eval_comp(&cx, NULL, c, args, out_results);
}

at_status at_eval(const at_comp *c, const at_literal *const *args,
                  const at_eval_options *opt, at_arena *a,
                  const at_literal **out_results) {
  int64_t ops = 0;
  at_eval_ctx cx = {a, opt ? opt : &no_options, &ops, 0, NULL, 0};
  return at_eval_comp(&cx, NULL, c, args, out_results);
}

// One node by itself, with its operands at hand: constant folding asks for it.
at_status at_eval_node(const at_node *n, const at_literal *const *operands,
                       const at_eval_options *opt, at_arena *a,
                       const at_literal **out_results) {
  int64_t ops = 0;
  at_eval_ctx cx = {a, opt ? opt : &no_options, &ops, 0, NULL, 0};
  return eval_one(&cx, NULL, n, operands, out_results);
}
