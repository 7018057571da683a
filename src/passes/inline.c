// Calls and composites become the bodies that they name; what then nobody names
// is dropped. Custom calls that only place data are identities on one
// partition.
#include "passes/passes_internal.h"

// Where data lies: one memory of one chip or another.
static const char *const memory_calls[] = {
    "annotate_device_placement",
    "MoveToHost",
    "MoveToDevice",
};

// How data is cut: that is for the partitioner to read first.
static const char *const sharding_calls[] = {
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "LayoutConstraint",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
    "xla.sdy.PropagationBarrier",
    "xla.sdy.ReshardedCall",
    "xla.sdy.ShardingGroup",
};

// Buffers that keep their place: kernels update them by their aliases.
static bool is_pin(at_str target) {
  return at_str_is(target, "Pin") || at_str_is(target, "Unpin");
}

// The body of a reduction speaks of elements, which live nowhere.
static bool in_scalar_body(const at_node *n) {
  const at_node *owner = n->parent->owner;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (n->types[i].rank) return false;
  return owner && !at_is_control(owner->op) &&
         owner->op != AT_OP_MANUAL_COMPUTATION;
}

static bool is_one_of(at_str target, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (at_str_is(target, names[i])) return true;
  return false;
}

static bool is_placement(const at_module *m, const at_node *n, bool *memory) {
  if (n->op != AT_OP_CUSTOM_CALL || n->num_results > n->num_operands)
    return false;
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  *memory = is_one_of(target, memory_calls, AT_LEN(memory_calls));
  bool cut = is_one_of(target, sharding_calls, AT_LEN(sharding_calls)) &&
             (m->num_partitions == 1 || in_scalar_body(n));
  if (!*memory && !cut && !is_pin(target)) return false;
  for (uint32_t i = 0; i < n->num_results; i++)
    if (!at_type_eq(at_value_type(n->operands[i]), &n->types[i])) return false;
  return true;
}

// The memory that a call names.
static at_str memory_of(const at_node *n) {
  at_str target = at_node_str(n, AT_ATTR_CALL_TARGET_NAME);
  const at_attr *a = at_node_attr(n, AT_ATTR_FRONTEND_ATTRIBUTES);
  for (uint32_t i = 0; a && i < a->dict.n; i++)
    if (at_str_is(a->dict.kv[2 * i], "_xla_buffer_placement"))
      return a->dict.kv[2 * i + 1];
  return at_str_is(target, "MoveToHost") ? AT_STR("pinned_host")
                                         : AT_STR("device");
}

static at_status copy_to_memory(at_node *n, at_value *v) {
  at_value from = *v;
  AT_TRY(at_build_op(n->parent, n, AT_OP_COPY, &from, 1, n->loc, v));
  return at_node_set_attr(
      v->node, (at_attr){.id = AT_ATTR_MEMORY_SPACE, .s = memory_of(n)});
}

typedef struct inliner {
  at_rw rw;
  uint64_t budget;  // nodes that cloning may still make
} inliner;

static uint64_t comp_nodes(const at_comp *c) {
  uint64_t n = 0;
  AT_FOR_NODES(k, c) {
    n++;
    for (uint32_t i = 0; i < k->num_regions; i++)
      n += comp_nodes(k->regions[i]);
  }
  return n;
}

// State of a function, in the mark of its first parameter or node being
// unreliable, is kept in a map: absent, being walked, done.
enum { FN_OPEN = 1, FN_DONE = 2 };

static at_status inline_comp(inliner *w, at_comp *c, at_map *state);

static at_status inline_function(inliner *w, at_comp *f, at_map *state,
                                 const at_node *call) {
  void **slot = at_map_put_ptr(state, f);
  if (!slot) return AT_NO_MEMORY("inline");
  if (*slot == (void *)(uintptr_t)FN_DONE) return AT_OK;
  if (*slot == (void *)(uintptr_t)FN_OPEN)
    return at_fail_at(AT_UNIMPLEMENTED, call,
                      "function \"%s\" calls itself; recursion has no static "
                      "memory plan",
                      f->name);
  *slot = (void *)(uintptr_t)FN_OPEN;
  AT_TRY(inline_comp(w, f, state));
  *at_map_find_ptr(state, f) = (void *)(uintptr_t)FN_DONE;
  return AT_OK;
}

static at_status inline_call(inliner *w, at_node *n, at_map *state) {
  at_module *m = w->rw.m;
  at_str name = at_node_str(n, AT_ATTR_CALLEE);
  at_comp *f = at_module_find(m, name);
  if (!f)
    return at_fail_at(AT_INVALID_ARGUMENT, n, "there is no function \"%.*s\"",
                      (int)name.len, name.ptr);
  AT_TRY(inline_function(w, f, state, n));
  if (f->num_params != n->num_operands || f->num_results != n->num_results)
    return at_fail_at(AT_INVALID_ARGUMENT, n,
                      "function \"%s\" takes %u arguments and gives %u results",
                      f->name, f->num_params, f->num_results);
  uint64_t size = comp_nodes(f);
  if (size > w->budget)
    return at_fail_at(AT_RESOURCE_EXHAUSTED, n,
                      "the program has too many nodes once calls are inlined");
  w->budget -= size;
  at_map map = at_map_in(m->arena);
  at_comp *body;
  AT_TRY(at_comp_clone(m, f, &map, &body));
  at_value *out;
  AT_TRY_ALLOC(out, at_new(m->arena, at_value, AT_MAX(n->num_results, 1)));
  at_comp_splice(body, n->operands, n, out);
  for (uint32_t i = 0; i < n->num_results; i++)
    AT_TRY(at_fwd_set(&w->rw, n, i, out[i]));
  at_node_remove(n);
  return AT_OK;
}

static at_status inline_comp(inliner *w, at_comp *c, at_map *state) {
  for (at_node *n = c->first, *next; n; n = next) {
    bool memory;
    next = n->next;
    at_fwd_operands(n);
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(inline_comp(w, n->regions[i], state));
    if (n->op == AT_OP_CALL || n->op == AT_OP_COMPOSITE) {
      AT_TRY(inline_call(w, n, state));
    } else if (is_placement(w->rw.m, n, &memory)) {
      for (uint32_t i = 0; i < n->num_results; i++) {
        at_value v = n->operands[i];
        if (memory && w->rw.o->placements) AT_TRY(copy_to_memory(n, &v));
        AT_TRY(at_fwd_set(&w->rw, n, i, v));
      }
      at_node_remove(n);
    }
  }
  at_fwd_results(c);
  return AT_OK;
}

at_status at_pass_inline(at_module *m, const at_pass_options *o) {
  if (!m->entry)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "module \"%s\" has no entry function\n"
                   "hint: the function that runs is the public one, \"main\"",
                   m->name);
  inliner w = {.rw = {.m = m, .o = o}, .budget = 4u << 20};
  at_map state = at_map_in(m->arena);
  at_aux_clear(m);
  AT_TRY(inline_function(&w, m->entry, &state, NULL));
  // Functions other than the entry have no callers left.
  m->funcs[0] = m->entry;
  m->num_funcs = 1;
  at_dce(m);
  at_aux_clear(m);
  return AT_OK;
}
