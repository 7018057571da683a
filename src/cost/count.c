#include "cost/count.h"

#include <math.h>

#include "base/json.h"

static double elements(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_elements(t) : 0;
}
static double bytes(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_bytes(t) : 0;
}

// Products behind one element of the result. Where a ragged dimension is summed
// over, each group sums its part of it: together, one element of each group has
// all of them.
static double contraction(const at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims k = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  at_dims ragged = at_node_ints(n, AT_ATTR_LHS_RAGGED_DIMENSIONS);
  double size = 1;
  for (uint32_t i = 0; i < k.rank; i++) {
    size *= (double)t->dims[k.ptr[i]];
    if (n->op == AT_OP_RAGGED_DOT && ragged.rank && k.ptr[i] == ragged.ptr[0])
      size /= fmax(1, (double)n->types[0].dims[0]);
  }
  return size;
}

// Operations behind one output element of a convolution.
static double window(const at_node *n) {
  const at_type *k = at_value_type(n->operands[1]);
  double size = elements(k);
  int64_t of = at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0);
  return k->rank && k->dims[of] ? size / (double)k->dims[of] : 0;
}

// Has the type one element at most?
static bool is_element(const at_type *t) {
  return at_type_is_static(t) && at_type_elements(t) <= 1;
}

// What a loop's condition does with single elements.
static bool is_control(const at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!is_element(at_value_type(n->operands[i]))) return false;
  const at_comp *c = n->parent;
  while (c && c->owner && c->owner->op == AT_OP_FUSION) c = c->owner->parent;
  const at_node *loop = c ? c->owner : NULL;
  return loop && loop->op == AT_OP_WHILE && c == loop->regions[0];
}

// FLOPs and transcendentals of one node by its op: the table of count.h.
static at_count arithmetic_of(const at_node *n) {
  double out = n->num_results ? elements(&n->types[0]) : 0;
  switch (n->op) {
    case AT_OP_DOT_GENERAL:
    case AT_OP_RAGGED_DOT:
      return (at_count){.flops = 2 * out * contraction(n)};
    case AT_OP_CONVOLUTION:
      return (at_count){.flops = 2 * out * window(n)};
    case AT_OP_REDUCE:
    case AT_OP_SCAN:
    case AT_OP_REDUCE_WINDOW:
      return (at_count){.flops = elements(at_value_type(n->operands[0]))};
    default:
      break;
  }
  if (at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL)
    return (at_count){.transcendentals = out};
  if (at_op_of(n->op)->cost == AT_COST_VECTOR &&
      at_op_is(n->op, AT_ELEMENTWISE))
    return (at_count){.flops = out};
  return (at_count){0};
}

// Is n a call of a Pallas TPU kernel?
static bool is_pallas(const at_node *n) {
  return n->op == AT_OP_CUSTOM_CALL &&
         at_str_is(at_node_str(n, AT_ATTR_CALL_TARGET_NAME), "tpu_custom_call");
}

// See count.h. Text that is no JSON says nothing.
bool at_count_said(const at_node *n, at_count *out) {
  at_str config = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  if (!is_pallas(n) || !config.len) return false;
  at_arena *a = at_arena_create();
  const at_json *j = NULL, *call = NULL, *cost = NULL;
  at_bytes text = {(const uint8_t *)config.ptr, config.len};
  at_status st = a ? at_json_parse(text, a, &j) : AT_OK;
  if (st.err) at_status_free(st);
  if (j && j->kind == AT_JSON_OBJECT)
    call = at_json_get(j, "custom_call_config");
  if (call && call->kind == AT_JSON_OBJECT)
    cost = at_json_get(call, "cost_estimate");
  bool known = cost && cost->kind == AT_JSON_OBJECT;
  if (known) {
    out->flops = at_json_get_num(cost, "flops", 0);
    out->transcendentals = at_json_get_num(cost, "transcendentals", 0);
    out->bytes_accessed = at_json_get_num(cost, "bytes_accessed", 0);
  }
  at_arena_destroy(a);
  return known;
}

// The same bytes under another type: no kernel.
static bool is_view(const at_node *n) {
  return n->op == AT_OP_RESHAPE || n->op == AT_OP_OPTIMIZATION_BARRIER ||
         n->op == AT_OP_ASYNC_DONE;
}

at_count at_count_arithmetic(const at_node *n) {
  at_count c = {0};
  if (at_count_said(n, &c)) return c.bytes_accessed = 0, c;
  if (n->op == AT_OP_FUSION || at_op_is(n->op, AT_CONTROL) || is_control(n))
    return c;
  return arithmetic_of(n);
}

// ---- Sums
typedef enum how { ONCE, EACH_TURN } how;  // bodies of loops

static at_status add_node(at_counter *c, const at_node *n, how loops,
                          at_count *sum);

// sum += times * c.
static void add(at_count *sum, double times, const at_count *c) {
  sum->flops += times * c->flops;
  sum->transcendentals += times * c->transcendentals;
  sum->bytes_accessed += times * c->bytes_accessed;
}

// Clones of a node compute its value again; what stands for it may take more or
// fewer operations on this machine.
static at_status add_value(at_counter *c, const at_node *n, at_count *sum) {
  const at_node *value = n->origin ? n->origin : n;
  at_count one = {0}, said;
  if (c->products && is_pallas(n) && !at_count_said(n, &said))
    AT_TRY(c->products(c->user, n, c->arena, &one.flops));
  else if (!is_control(n))
    one = at_count_arithmetic(value);
  if (one.flops == 0 && one.transcendentals == 0) return AT_OK;
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&c->seen, value));
  if (!*place) add(sum, 1, &one);
  *place = c;
  return AT_OK;
}

// Every node of a fusion, and of fusions inside it.
static at_status add_fused(at_counter *c, const at_comp *fused, at_count *sum) {
  AT_FOR_NODES(n, fused)
  if (n->op == AT_OP_FUSION)
    AT_TRY(add_fused(c, n->regions[0], sum));
  else
    AT_TRY(add_value(c, n, sum));
  return AT_OK;
}

// Regions of control flow, with a counter of their own: what they compute again
// counts again.
static at_status add_regions(const at_counter *c, const at_node *n, how loops,
                             at_count *sum) {
  bool known;
  double turns = n->op == AT_OP_WHILE && loops == EACH_TURN
                     ? at_count_trips(n, &known)
                     : 1;
  for (uint32_t r = 0; r < n->num_regions; r++) {
    at_counter inner = *c;
    inner.seen = at_map_in(c->arena);
    at_count one = {0};
    AT_FOR_NODES(k, n->regions[r]) AT_TRY(add_node(&inner, k, loops, &one));
    add(sum, turns, &one);
  }
  return AT_OK;
}

// Operands and results of a kernel, or what a Pallas kernel says of itself.
static void add_bytes(const at_node *n, at_count *sum) {
  at_count said;
  if (at_count_said(n, &said)) {
    sum->bytes_accessed += said.bytes_accessed;
    return;
  }
  for (uint32_t i = 0; i < n->num_operands; i++)
    sum->bytes_accessed += bytes(at_value_type(n->operands[i]));
  for (uint32_t r = 0; r < n->num_results; r++)
    sum->bytes_accessed += bytes(&n->types[r]);
}

// One node of a computation: arithmetic once for each value, bytes for each
// kernel.
static at_status add_node(at_counter *c, const at_node *n, how loops,
                          at_count *sum) {
  if (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT) return AT_OK;
  if (at_op_is(n->op, AT_CONTROL)) return add_regions(c, n, loops, sum);
  if (n->op == AT_OP_FUSION)
    AT_TRY(add_fused(c, n->regions[0], sum));
  else
    AT_TRY(add_value(c, n, sum));
  if (!is_view(n)) add_bytes(n, sum);
  return AT_OK;
}

at_status at_count_of(const at_module *m, at_counter *c, at_count *out) {
  *out = (at_count){0};
  c->seen = at_map_in(c->arena);
  AT_FOR_NODES(n, m->entry) AT_TRY(add_node(c, n, ONCE, out));
  return AT_OK;
}

at_status at_count_kernel(at_counter *c, const at_node *n, at_count *sum) {
  if (!c->seen.arena) c->seen = at_map_in(c->arena);
  return add_node(c, n, EACH_TURN, sum);
}
