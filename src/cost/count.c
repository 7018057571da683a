#include "cost/count.h"

#include "base/json.h"

static double elements(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_elements(t) : 0;
}
static double bytes(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_bytes(t) : 0;
}

static double contraction(const at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims k = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  double size = 1;
  for (uint32_t i = 0; i < k.rank; i++) size *= (double)t->dims[k.ptr[i]];
  return size;
}

// Operations behind one output element of a convolution.
static double window(const at_node *n) {
  const at_type *k = at_value_type(n->operands[1]);
  double size = elements(k);
  int64_t of = at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0);
  return k->rank && k->dims[of] ? size / (double)k->dims[of] : 0;
}

static void add_comp(const at_comp *c, bool in_kernel, at_count *sum);

static void add_arithmetic(const at_node *n, at_count *sum) {
  double out = n->num_results ? elements(&n->types[0]) : 0;
  switch (n->op) {
    case AT_OP_DOT_GENERAL:
    case AT_OP_RAGGED_DOT:
      sum->flops += 2 * out * contraction(n);
      return;
    case AT_OP_CONVOLUTION:
      sum->flops += 2 * out * window(n);
      return;
    case AT_OP_REDUCE:
    case AT_OP_SCAN:
    case AT_OP_REDUCE_WINDOW:
      sum->flops += elements(at_value_type(n->operands[0]));
      return;
    default:
      break;
  }
  switch (at_op_of(n->op)->cost) {
    case AT_COST_TRANSCENDENTAL:
      sum->transcendentals += out;
      break;
    case AT_COST_VECTOR:
      if (at_op_is(n->op, AT_ELEMENTWISE)) sum->flops += out;
      break;
    default:
      break;
  }
}

// What a Pallas kernel says of itself stands for all that it does.
static bool add_estimate(const at_node *n, at_count *sum) {
  at_str config = at_node_str(n, AT_ATTR_BACKEND_CONFIG);
  if (n->op != AT_OP_CUSTOM_CALL || !config.len ||
      !at_str_is(at_node_str(n, AT_ATTR_CALL_TARGET_NAME), "tpu_custom_call"))
    return false;
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
    sum->flops += at_json_get_num(cost, "flops", 0);
    sum->transcendentals += at_json_get_num(cost, "transcendentals", 0);
    sum->bytes_accessed += at_json_get_num(cost, "bytes_accessed", 0);
  }
  at_arena_destroy(a);
  return known;
}

// The same bytes under another type: no kernel.
static bool is_view(const at_node *n) {
  return n->op == AT_OP_RESHAPE || n->op == AT_OP_OPTIMIZATION_BARRIER ||
         n->op == AT_OP_ASYNC_DONE;
}

static void add_node(const at_node *n, bool in_kernel, at_count *sum) {
  if (add_estimate(n, sum)) return;
  if (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT) return;
  bool nested = n->op == AT_OP_FUSION || at_op_is(n->op, AT_CONTROL);
  if (nested)
    for (uint32_t r = 0; r < n->num_regions; r++)
      add_comp(n->regions[r], n->op == AT_OP_FUSION, sum);
  else
    add_arithmetic(n, sum);
  if (in_kernel || at_op_is(n->op, AT_CONTROL) || is_view(n)) return;
  for (uint32_t i = 0; i < n->num_operands; i++)
    sum->bytes_accessed += bytes(at_value_type(n->operands[i]));
  for (uint32_t r = 0; r < n->num_results; r++)
    sum->bytes_accessed += bytes(&n->types[r]);
}

static void add_comp(const at_comp *c, bool in_kernel, at_count *sum) {
  AT_FOR_NODES(n, c) add_node(n, in_kernel, sum);
}

at_count at_count_of(const at_module *m) {
  at_count sum = {0};
  add_comp(m->entry, false, &sum);
  return sum;
}

at_count at_count_of_node(const at_node *n) {
  at_count sum = {0};
  if (!at_op_is(n->op, AT_CONTROL)) return add_node(n, false, &sum), sum;
  bool known;
  double turns = n->op == AT_OP_WHILE ? at_count_trips(n, &known) : 1;
  for (uint32_t r = 0; r < n->num_regions; r++) AT_FOR_NODES(k, n->regions[r]) {
      at_count one = at_count_of_node(k);
      sum.flops += turns * one.flops;
      sum.transcendentals += turns * one.transcendentals;
      sum.bytes_accessed += turns * one.bytes_accessed;
    }
  return sum;
}
