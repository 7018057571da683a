// Calls and composites become the bodies that they name; what then nobody names
// is dropped. Custom calls that only place data are identities on one
// partition. JAX's program of eigenvectors becomes one op (eigen.c).
#include "base/walk.h"
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

// Calls that are identities here. *memory: it names a memory, and may become a
// copy.
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
  at_str placement = at_node_told(n, "_xla_buffer_placement");
  if (placement.ptr) return placement;
  return at_str_is(target, "MoveToHost") ? AT_STR("pinned_host")
                                         : AT_STR("device");
}

// *v: a copy of *v in the memory that n names.
static at_status copy_to_memory(at_node *n, at_value *v) {
  at_value from = *v;
  AT_TRY(at_build_op(n->parent, n, AT_OP_COPY, &from, 1, n->loc, v));
  return at_node_set_attr(
      v->node, (at_attr){.id = AT_ATTR_MEMORY_SPACE, .s = memory_of(n)});
}

typedef struct inliner {
  at_rw rw;
  uint64_t budget;  // nodes that cloning may still make
  uint32_t depth;   // of the regions around the computation
} inliner;

// Nodes of c and its regions, calls not followed.
static uint64_t comp_nodes(const at_comp *c) {
  uint64_t n = 0;
  AT_FOR_NODES(k, c) {
    n++;
    for (uint32_t i = 0; i < k->num_regions; i++)
      n += comp_nodes(k->regions[i]);
  }
  return n;
}

static bool is_call(const at_node *n) {
  return n->op == AT_OP_CALL || n->op == AT_OP_COMPOSITE;
}

// INVALID_ARGUMENT: no such function, or another number of values.
static at_status callee_of(const at_module *m, const at_node *n,
                           at_comp **out) {
  at_str name = at_node_str(n, AT_ATTR_CALLEE);
  at_comp *f = *out = at_module_find(m, name);
  if (!f)
    return at_fail_at(AT_INVALID_ARGUMENT, n, "there is no function \"%.*s\"",
                      (int)name.len, name.ptr);
  if (f->num_params != n->num_operands || f->num_results != n->num_results)
    return at_fail_at(AT_INVALID_ARGUMENT, n,
                      "function \"%s\" takes %u arguments and gives %u results",
                      f->name, f->num_params, f->num_results);
  return AT_OK;
}

// The computations below c: its regions' and the functions that it calls.
// `left`: all of them have been walked, unless c leads to itself.
static at_status walk_below(at_walk *w, const at_module *m, const at_comp *c,
                            bool left) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (!left) at_walk_add(w, n->regions[i], 0);
    at_comp *f;
    if (!is_call(n)) continue;
    AT_TRY(callee_of(m, n, &f));
    if (!left)
      at_walk_add(w, f, 0);
    else if (f == c || !at_walk_get(w, f, 0))
      return at_fail_at(AT_UNIMPLEMENTED, n,
                        "function \"%s\" calls itself; recursion has no static "
                        "memory plan",
                        f->name);
  }
  return AT_OK;
}

// UNIMPLEMENTED if the call graph below the entry has a cycle. Each computation
// is walked once, on entering and on leaving.
static at_status check_calls(const at_module *m) {
  at_walk w = at_walk_in(m->arena);
  at_walk_add(&w, m->entry, 0);
  for (at_walk_step s; at_walk_next_both(&w, &s);)
    AT_TRY(walk_below(&w, m, s.item, s.leaving));
  return at_walk_status(&w);
}

// The called body in place of n; *next: where it begins, or what came after n.
// Calls in it are met there: a node is cloned once for each of its places.
static at_status inline_call(inliner *w, at_node *n, at_node **next) {
  at_module *m = w->rw.m;
  at_comp *f, *body;
  AT_TRY(callee_of(m, n, &f));
  bool done = false;
  if (w->rw.o->eigen) AT_TRY(at_eigen_call(&w->rw, n, f, &done));
  if (done) return AT_OK;
  uint64_t size = comp_nodes(f);
  if (size > w->budget)
    return at_fail_at(AT_RESOURCE_EXHAUSTED, n,
                      "the program has too many nodes once calls are inlined");
  w->budget -= size;
  at_map map = at_map_in(m->arena);
  AT_TRY(at_comp_clone(m, f, &map, &body));
  for (uint32_t i = 0; i < body->num_params; i++)
    AT_TRY(at_fwd_set(&w->rw, body->params[i], 0, n->operands[i]));
  for (uint32_t i = 0; i < n->num_results; i++)
    AT_TRY(at_fwd_set(&w->rw, n, i, body->results[i]));
  for (at_node *k = body->first, *after; k; k = after) {
    after = k->next;
    if (k->op == AT_OP_PARAMETER) continue;
    at_node_move_before(k, n);
    if (*next == n->next) *next = k;
  }
  at_node_remove(n);
  return AT_OK;
}

// Walks c in order; inlined nodes are visited next, so that nested calls are
// found without recursion over calls.
static at_status inline_comp(inliner *w, at_comp *c) {
  for (at_node *n = c->first, *next; n; n = next) {
    bool memory;
    next = n->next;
    at_fwd_operands(n);
    if (n->num_regions && w->depth == AT_MOST_NESTED)
      return at_fail_at(
          AT_INVALID_ARGUMENT, n,
          "regions are nested over %d deep once calls are inlined",
          AT_MOST_NESTED);
    w->depth++;
    for (uint32_t i = 0; i < n->num_regions; i++)
      AT_TRY(inline_comp(w, n->regions[i]));
    w->depth--;
    if (is_call(n)) {
      AT_TRY(inline_call(w, n, &next));
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

// 4 M nodes is the bound of all clones together: functions that call each other
// twice double at every level.
at_status at_pass_inline(at_module *m, const at_pass_options *o) {
  if (!m->entry)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "module \"%s\" has no entry function\n"
                   "hint: the function that runs is the public one, \"main\"",
                   m->name);
  inliner w = {.rw = {.m = m, .o = o}, .budget = 4u << 20};
  at_aux_clear(m);
  AT_TRY(check_calls(m));
  AT_TRY(inline_comp(&w, m->entry));
  // Functions other than the entry have no callers left.
  AT_TRY(at_module_keep(m, m->entry));
  at_dce(m);
  return AT_OK;
}
