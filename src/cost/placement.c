// Which memory a value lies in, and copies from one to the other.
#include "cost/cost_internal.h"

// Nodes looked at to tell where a value lies.
enum { kMostSteps = 64 };

// Is it a memory kind of the host?
static bool names_host(at_str space) {
  return at_str_starts(space, "pinned_host") ||
         at_str_starts(space, "unpinned_host");
}

// Does the program say that this argument lies on the host?
static bool argument_on_host(const at_node *n) {
  const at_comp *c = n->parent;
  const at_io_info *info = c->module->params;
  uint32_t i = at_param_index(c, n);
  return info && i < c->num_params && info[i].memory_kind &&
         names_host(at_str_of(info[i].memory_kind));
}

static bool on_host(at_value v, int *steps);

// What a loop hands on lies where its bodies leave it: stacks that are begun on
// the device and take in what was copied to the host are the host's.
static bool inner_on_host(const at_node *n, int *steps) {
  const at_comp *c = n->parent;
  const at_node *owner = c->owner;
  if (!owner) return argument_on_host(n);
  uint32_t i = at_param_index(c, n);
  if (i >= owner->num_operands || owner->op != AT_OP_WHILE)
    return owner->op == AT_OP_FUSION && i < owner->num_operands &&
           on_host(owner->operands[i], steps);
  return on_host(owner->operands[i], steps);
}

// Follows v to what decides where it lies; *steps bounds the walk. What is
// unknown counts as the device's.
static bool on_host(at_value v, int *steps) {
  const at_node *n = v.node;
  if ((*steps)-- <= 0) return false;
  switch (n->op) {
    case AT_OP_COPY: {
      const at_attr *space = at_node_attr(n, AT_ATTR_MEMORY_SPACE);
      return space ? names_host(space->s) : on_host(n->operands[0], steps);
    }
    case AT_OP_PARAMETER:
      return inner_on_host(n, steps);
    case AT_OP_RESHAPE:
    case AT_OP_TRANSPOSE:
    case AT_OP_SLICE:
    case AT_OP_DYNAMIC_SLICE:
      return on_host(n->operands[0], steps);
    case AT_OP_OPTIMIZATION_BARRIER:
    case AT_OP_ASYNC_DONE:
      return on_host(n->operands[v.index], steps);
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return on_host(n->operands[1], steps) || on_host(n->operands[0], steps);
    case AT_OP_WHILE:
      return on_host(n->regions[n->num_regions - 1]->results[v.index], steps);
    case AT_OP_FUSION:
      return on_host(n->regions[0]->results[v.index], steps);
    default:
      return false;
  }
}

bool at_cost_on_host(at_value v) {
  int steps = kMostSteps;
  return on_host(v, &steps);
}

static bool is_own_host(const at_target *t) {
  return t->host || !strcmp(t->machine->platform, "host");
}

bool at_cost_stays_on_host(const at_target *t, const at_node *n) {
  return !is_own_host(t) && n->op != AT_OP_COPY && n->num_results &&
         !at_op_is(n->op, AT_CONTROL) &&
         at_cost_on_host((at_value){(at_node *)n, 0});
}

at_host_copy at_cost_host_copy_of(const at_target *t, const at_node *n) {
  const at_attr *space = at_node_attr(n, AT_ATTR_MEMORY_SPACE);
  if (n->op != AT_OP_COPY || !space || is_own_host(t)) return AT_HOST_COPY_NONE;
  bool to = names_host(space->s);
  if (to == at_cost_on_host(n->operands[0])) return AT_HOST_COPY_NONE;
  return to ? AT_HOST_COPY_OUT : AT_HOST_COPY_IN;
}

at_status at_host_copy_node(const at_target *t, const at_node *n,
                            at_cost_time *out) {
  double rate;
  *out = (at_cost_time){0, AT_COST_FREE};
  if (at_cost_host_copy_of(t, n) == AT_HOST_COPY_NONE) return AT_OK;
  AT_TRY(at_machine_need(t->machine, "host_link_bytes_per_second", &rate));
  const at_type *type = &n->types[0];
  double bytes = at_type_is_static(type) ? (double)at_type_bytes(type) : 0;
  *out = (at_cost_time){bytes / rate, AT_COST_FROM_HOST_LINK};
  return AT_OK;
}
