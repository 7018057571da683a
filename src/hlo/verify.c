// Every law of the graph. A pass that breaks one is named in the message.
// One walk over all functions, in order. A node's operands must have been seen
// in a scope that is open: what a computation has defined is hidden again when
// its walk ends, so one map does for all scopes. Types are held against
// inference, which runs on a copy of the node. Linear, but for at_infer's own
// work and the search for an async_done behind its op.
#include "hlo/hlo_internal.h"

typedef struct verifier {
  const at_module *m;
  at_arena *scratch;
  at_map ids;      // node -> itself, for unique ids, keyed by the id's value
  at_map visible;  // node -> itself: defined so far in an open scope
  int depth;
} verifier;

// Of regions. More than AT_MOST_NESTED: programs that passes may make are still
// verified.
enum { kMaxNesting = 500 };

static at_status law(const at_node *n, const char *text) {
  return AT_BAD(n, "%s", text);
}

// ---- Signatures of regions

// The region takes `count` parameters of types that agree with `want`.
static at_status check_params(const at_node *n, const at_comp *c,
                              const at_type *want, uint32_t count) {
  if (c->num_params != count)
    return AT_BAD(n, "a region takes %u parameters, must take %u",
                  c->num_params, count);
  for (uint32_t i = 0; i < count; i++)
    if (!at_type_compatible(&c->params[i]->types[0], &want[i]))
      return AT_BAD(n, "region parameter %u is %s, must be %s", i,
                    at_type_z(&c->params[i]->types[0]).z,
                    at_type_z(&want[i]).z);
  return AT_OK;
}

// The computation returns `count` values of types that agree with `want`.
static at_status check_results(const at_node *n, const at_comp *c,
                               const at_type *want, uint32_t count) {
  if (c->num_results != count)
    return AT_BAD(n, "a region returns %u values, must return %u",
                  c->num_results, count);
  for (uint32_t i = 0; i < count; i++)
    if (!at_type_compatible(at_value_type(c->results[i]), &want[i]))
      return AT_BAD(n, "region result %u is %s, must be %s", i,
                    at_type_z(at_value_type(c->results[i])).z,
                    at_type_z(&want[i]).z);
  return AT_OK;
}

// Scalars (a0, a1, ..., b0, b1, ...) of the results' element types, twice.
static at_status check_reducer(verifier *v, const at_node *n) {
  uint32_t k = n->num_results;
  const at_comp *c = n->regions[0];
  at_type *want;
  if (n->op == AT_OP_REDUCE_SCATTER || n->op == AT_OP_ALL_REDUCE) k = 1;
  AT_TRY_ALLOC(want, at_new(v->scratch, at_type, 2 * (size_t)k));
  if (c->num_results != k || c->num_params != 2 * k)
    return AT_BAD(n,
                  "body takes %u values and returns %u, must take %u and "
                  "return %u",
                  c->num_params, c->num_results, 2 * k, k);
  // Accumulation in a wider type is allowed: the body's own types must agree.
  for (uint32_t i = 0; i < k; i++)
    want[i] = want[k + i] = at_type_scalar(at_value_type(c->results[i])->dtype);
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_dtype body = want[AT_MIN(i, k - 1)].dtype;
    if (n->types[i].dtype != body)
      return AT_BAD(n, "result %u is %s, its body computes %s", i,
                    at_type_z(&n->types[i]).z, at_dtype_of(body)->text);
  }
  AT_TRY(check_params(n, c, want, 2 * k));
  return check_results(n, c, want, k);
}

// Two of each operand's elements in turn (a0, b0, a1, b1, ...), and a boolean
// out: does a go before b?
static at_status check_sort(verifier *v, const at_node *n) {
  at_type *want, pred = at_type_scalar(AT_PRED);
  AT_TRY_ALLOC(want, at_new(v->scratch, at_type, 2 * (size_t)n->num_operands));
  for (uint32_t i = 0; i < n->num_operands; i++)
    want[2 * i] = want[2 * i + 1] =
        at_type_scalar(at_value_type(n->operands[i])->dtype);
  AT_TRY(check_params(n, n->regions[0], want, 2 * n->num_operands));
  return check_results(n, n->regions[0], &pred, 1);
}

// Elements in, one element out.
static at_status check_map(verifier *v, const at_node *n) {
  at_type *want, out = at_type_scalar(n->types[0].dtype);
  AT_TRY_ALLOC(want, at_new(v->scratch, at_type, n->num_operands));
  for (uint32_t i = 0; i < n->num_operands; i++)
    want[i] = at_type_scalar(at_value_type(n->operands[i])->dtype);
  AT_TRY(check_params(n, n->regions[0], want, n->num_operands));
  return check_results(n, n->regions[0], &out, 1);
}

// Which of two elements the window selects; how two that are scattered to one
// place are joined.
static at_status check_select_and_scatter(const at_node *n) {
  at_type in = at_type_scalar(at_value_type(n->operands[0])->dtype);
  at_type out = at_type_scalar(n->types[0].dtype);
  at_type pred = at_type_scalar(AT_PRED);
  AT_TRY(check_params(n, n->regions[0], (at_type[]){in, in}, 2));
  AT_TRY(check_results(n, n->regions[0], &pred, 1));
  AT_TRY(check_params(n, n->regions[1], (at_type[]){out, out}, 2));
  return check_results(n, n->regions[1], &out, 1);
}

// The state goes in and out of the body; the condition reads it.
static at_status check_while(const at_node *n) {
  at_type pred = at_type_scalar(AT_PRED);
  AT_TRY(check_params(n, n->regions[0], n->types, n->num_results));
  AT_TRY(check_results(n, n->regions[0], &pred, 1));
  AT_TRY(check_params(n, n->regions[1], n->types, n->num_results));
  return check_results(n, n->regions[1], n->types, n->num_results);
}

// Parameters are the operands; results are the node's.
static at_status check_fusion(verifier *v, const at_node *n) {
  at_type *want;
  AT_TRY_ALLOC(want, at_new(v->scratch, at_type, n->num_operands));
  for (uint32_t i = 0; i < n->num_operands; i++)
    want[i] = *at_value_type(n->operands[i]);
  AT_TRY(check_params(n, n->regions[0], want, n->num_operands));
  return check_results(n, n->regions[0], n->types, n->num_results);
}

// Branches take no parameters: they use values from around them.
static at_status check_branches(const at_node *n) {
  const at_type *p = at_value_type(n->operands[0]);
  at_dtype want = n->op == AT_OP_IF ? AT_PRED : AT_S32;
  if (p->rank || p->dtype != want)
    return AT_BAD(n, "the selector is %s, must be %s[]", at_type_z(p).z,
                  at_dtype_of(want)->text);
  if (!n->num_regions) return law(n, "has no branch");
  for (uint32_t i = 0; i < n->num_regions; i++) {
    AT_TRY(check_params(n, n->regions[i], NULL, 0));
    AT_TRY(check_results(n, n->regions[i], n->types, n->num_results));
  }
  return AT_OK;
}

// The callee's signature against the operands and declared results.
static at_status check_call(const verifier *v, const at_node *n) {
  at_str name = at_node_str(n, AT_ATTR_CALLEE);
  const at_comp *c = at_module_find(v->m, name);
  if (!c) return AT_BAD(n, "no function \"%.*s\"", (int)name.len, name.ptr);
  if (c->num_params != n->num_operands)
    return AT_BAD(n, "\"%s\" takes %u arguments", c->name, c->num_params);
  for (uint32_t i = 0; i < c->num_params; i++)
    if (!at_type_compatible(at_value_type(n->operands[i]),
                            &c->params[i]->types[0]))
      return AT_BAD(n, "\"%s\" takes %s as argument %u", c->name,
                    at_type_z(&c->params[i]->types[0]).z, i);
  return check_results(n, c, n->types, n->num_results);
}

// The body speaks of what one device holds: same element types and ranks.
static at_status check_manual(const at_node *n) {
  const at_comp *c = n->regions[0];
  if (c->num_params != n->num_operands || c->num_results != n->num_results)
    return AT_BAD(n,
                  "the body takes %u values and returns %u, must take %u and "
                  "return %u",
                  c->num_params, c->num_results, n->num_operands,
                  n->num_results);
  for (uint32_t i = 0; i < n->num_operands + n->num_results; i++) {
    bool in = i < n->num_operands;
    uint32_t k = in ? i : i - n->num_operands;
    const at_type *whole = in ? at_value_type(n->operands[k]) : &n->types[k];
    const at_type *part =
        in ? &c->params[k]->types[0] : at_value_type(c->results[k]);
    if (whole->dtype != part->dtype || whole->rank != part->rank)
      return AT_BAD(n, "%s %u is %s, in the body %s", in ? "operand" : "result",
                    k, at_type_z(whole).z, at_type_z(part).z);
  }
  return AT_OK;
}

// Ops without a law of their own may have any regions that at_node_check lets
// pass.
static at_status check_regions(verifier *v, const at_node *n) {
  switch (n->op) {
    case AT_OP_REDUCE:
    case AT_OP_REDUCE_WINDOW:
    case AT_OP_SCAN:
    case AT_OP_SCATTER:
    case AT_OP_ALL_REDUCE:
    case AT_OP_REDUCE_SCATTER:
      return check_reducer(v, n);
    case AT_OP_SELECT_AND_SCATTER:
      return check_select_and_scatter(n);
    case AT_OP_SORT:
      return check_sort(v, n);
    case AT_OP_MAP:
      return check_map(v, n);
    case AT_OP_WHILE:
      return check_while(n);
    case AT_OP_IF:
    case AT_OP_CASE:
      return check_branches(n);
    case AT_OP_FUSION:
      return check_fusion(v, n);
    case AT_OP_MANUAL_COMPUTATION:
      return check_manual(n);
    case AT_OP_CALL:
    case AT_OP_COMPOSITE:
      return check_call(v, n);
    default:
      return AT_OK;
  }
}

// ---- Nodes

// A known element type, and dimensions that are sizes or AT_DYN.
static at_status check_type(const at_node *n, const at_type *t) {
  if (t->dtype <= AT_INVALID || t->dtype >= AT_DTYPE_COUNT)
    return law(n, "a result has no element type");
  if (t->rank && !t->dims) return law(n, "a result has no dimensions");
  for (uint32_t i = 0; i < t->rank; i++)
    if (t->dims[i] < 0 && t->dims[i] != AT_DYN)
      return AT_BAD(n, "result dimension %u is %lld", i, (long long)t->dims[i]);
  return AT_OK;
}

// Infers on a copy, so that the node keeps its own types.
static at_status check_inference(verifier *v, const at_node *n) {
  at_module shadow = *v->m;
  at_node copy = *n;
  shadow.arena = v->scratch;
  at_status s = at_op_of(n->op)->infer(&shadow, &copy);
  return s;
}

// As many bytes as the type says: readers index without checks.
static at_status check_literal(const at_node *n) {
  const at_literal *l = at_node_literal(n);
  if (!l) return AT_OK;
  size_t want =
      l->splat ? at_dtype_bytes(l->type.dtype) : at_type_bytes(&l->type);
  if (l->bytes != want || (want && !l->data))
    return AT_BAD(n, "the literal has %zu bytes, %s has %zu", l->bytes,
                  at_type_z(&l->type).z, want);
  return AT_OK;
}

static bool is_async_call(const at_node *n) {
  return n->op == AT_OP_CUSTOM_CALL && at_node_bool(n, AT_ATTR_ASYNC);
}

// Results of an asynchronous op are nobody's but its done's, which takes all of
// them and stands in the same computation. Asynchronous calls run one after the
// other: a later one may read what an earlier one makes.
static at_status check_async(const at_node *n) {
  bool done = n->op == AT_OP_ASYNC_DONE;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_node *from = n->operands[i].node;
    bool async = at_node_bool(from, AT_ATTR_ASYNC);
    if (!done && async && !(is_async_call(n) && is_async_call(from)))
      return AT_BAD(n, "operand %u is not there before the async_done of %%%u",
                    i, from->id);
    if (done &&
        (!async || from != n->operands[0].node || from->parent != n->parent ||
         n->operands[i].index != i || from->num_results != n->num_operands))
      return law(n, "does not take all results of one asynchronous op");
  }
  if (!at_node_bool(n, AT_ATTR_ASYNC)) return AT_OK;
  uint32_t dones = 0;
  for (const at_node *k = n->next; k; k = k->next)
    dones += k->op == AT_OP_ASYNC_DONE && k->operands[0].node == n;
  return dones == 1 ? AT_OK
                    : AT_BAD(n, "has %u async_done, must have one", dones);
}

static at_status check_comp(verifier *v, const at_comp *c);

// Operands first, so that everything behind may look at their types; regions
// before inference, which may ask what they return.
static at_status check_node(verifier *v, const at_comp *c, const at_node *n) {
  void **place;
  if ((unsigned)n->op >= AT_OP_COUNT)
    return AT_FAIL(AT_INTERNAL, "node %u has no op", n->id);
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!n->operands[i].node ||
        n->operands[i].index >= n->operands[i].node->num_results)
      return AT_FAIL(AT_INTERNAL, "%s: operand %u names no value",
                     at_op_text(n->op), i);
  if (n->parent != c) return law(n, "lies in another computation's list");
  AT_TRY(at_node_check(n));
  AT_TRY_ALLOC(place,
               at_map_put_ptr(&v->ids, (void *)(uintptr_t)((size_t)n->id + 1)));
  if (*place) return AT_BAD(n, "id %%%u is not unique", n->id);
  *place = (void *)(uintptr_t)n;
  if (n->id >= v->m->next_id) return law(n, "its id is not below next_id");
  for (uint32_t i = 0; i < n->num_operands; i++) {
    place = at_map_find_ptr(&v->visible, n->operands[i].node);
    if (!place || !*place)
      return AT_BAD(n, "operand %u (%%%u) is not defined before it", i,
                    n->operands[i].node->id);
  }
  for (uint32_t i = 0; i < n->num_results; i++)
    AT_TRY(check_type(n, &n->types[i]));
  AT_TRY(check_literal(n));
  for (uint32_t i = 0; i < n->num_regions; i++) {
    if (!n->regions[i] || n->regions[i]->owner != n)
      return law(n, "a region is missing or belongs to another node");
    AT_TRY(check_comp(v, n->regions[i]));
  }
  AT_TRY(check_inference(v, n));
  AT_TRY(check_async(n));
  AT_TRY(check_regions(v, n));
  AT_TRY_ALLOC(place, at_map_put_ptr(&v->visible, n));
  *place = (void *)(uintptr_t)n;
  return AT_OK;
}

// Parameters are in the list of nodes and in the array of parameters: two views
// of the same fact.
static at_status check_comp_params(const at_comp *c) {
  uint32_t seen = 0;
  AT_FOR_NODES(n, c) {
    if (n->op != AT_OP_PARAMETER) continue;
    if (seen >= c->num_params || c->params[seen] != n ||
        at_node_int(n, AT_ATTR_INDEX, -1) != seen)
      return law(n, "parameters do not stand in order of their index");
    seen++;
  }
  if (seen != c->num_params)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a computation lists %u parameters and has %u",
                   c->num_params, seen);
  return AT_OK;
}

static at_status check_comp(verifier *v, const at_comp *c) {
  const at_node *prev = NULL;
  if (c->module != v->m)
    return AT_FAIL(AT_INVALID_ARGUMENT, "a computation is of another module");
  if (v->depth >= kMaxNesting)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "regions are nested too deeply");
  v->depth++;
  AT_TRY(check_comp_params(c));
  AT_FOR_NODES(n, c) {
    if (n->prev != prev) return law(n, "the list of nodes is broken");
    AT_TRY(check_node(v, c, n));
    prev = n;
  }
  if (c->last != prev)
    return AT_FAIL(AT_INTERNAL, "the list of nodes ends elsewhere");
  for (uint32_t i = 0; i < c->num_results; i++) {
    void **place = at_map_find_ptr(&v->visible, c->results[i].node);
    if (!place || !*place ||
        c->results[i].index >= c->results[i].node->num_results)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "result %u of \"%s\" is not defined in its scope", i,
                     c->name ? c->name : "a region");
    if (at_node_bool(c->results[i].node, AT_ATTR_ASYNC))
      return law(c->results[i].node, "is returned before its async_done");
  }
  // What was defined here is not visible outside.
  AT_FOR_NODES(n, c) {
    void **place = at_map_find_ptr(&v->visible, n);
    if (place) *place = NULL;
  }
  v->depth--;
  return AT_OK;
}

// Every function, in the order of the module; the entry must be one of them.
static at_status verify(verifier *v) {
  const at_module *m = v->m;
  bool entry = m->entry == NULL;
  for (uint32_t i = 0; i < m->num_funcs; i++) {
    const at_comp *c = m->funcs[i];
    entry |= c == m->entry;
    if (!c->name || c->owner)
      return AT_FAIL(AT_INVALID_ARGUMENT, "function %u has no name", i);
    AT_TRY(check_comp(v, c));
  }
  if (!entry)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the entry is not among the functions");
  return AT_OK;
}

// Scratch memory is the verifier's own; the module is not changed.
at_status at_verify(const at_module *m, const char *after) {
  at_arena *scratch = at_arena_create();
  if (!scratch) return AT_NO_MEMORY("verifier");
  verifier v = {.m = m,
                .scratch = scratch,
                .ids = at_map_in(scratch),
                .visible = at_map_in(scratch)};
  at_status s = verify(&v);
  at_arena_destroy(scratch);
  return at_ok(s) || !after ? s : at_status_prefix(s, "after %s", after);
}
