// f32 products and convolutions at default precision as the chip's matrix unit
// computes them: operands rounded to bf16, sums in f32. Only under
// ATOLL_NUMERICS=tpu; asked-for precision and algorithms are left alone.
#include "cost/tpu.h"
#include "passes/passes_internal.h"

static at_dtype operand_type(const at_node *n, uint32_t i) {
  return at_value_type(n->operands[i])->dtype;
}

// What bf16 holds as it is: also bytes, as jnp.matmul leaves them beside f32.
static bool fits_bf16(at_dtype t) {
  return t == AT_BF16 || (at_is_int(t) && at_dtype_of(t)->bits <= 8);
}

// Each feature by itself: nothing that the matrix unit could do.
static bool is_depthwise(const at_node *n) {
  int64_t d = at_node_int(n, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 0);
  return at_node_int(n, AT_ATTR_FEATURE_GROUP_COUNT, 1) > 1 &&
         at_value_type(n->operands[1])->dims[d] == 1;
}

// Of operands that are f32, or one f32 and one that fits.
static bool is_default_f32_product(const at_node *n) {
  bool dot = n->op == AT_OP_DOT_GENERAL;
  if ((!dot && n->op != AT_OP_CONVOLUTION) || n->types[0].dtype != AT_F32 ||
      at_node_str(n, AT_ATTR_DOT_ALGORITHM).len ||
      (dot ? at_tpu_is_sum_of_products(n) : is_depthwise(n)))
    return false;
  at_dtype a = operand_type(n, 0), b = operand_type(n, 1);
  if ((a != AT_F32 && !fits_bf16(a)) || (b != AT_F32 && !fits_bf16(b)))
    return false;
  at_dims p = at_node_ints(n, AT_ATTR_PRECISION);
  for (uint32_t i = 0; i < p.rank; i++)
    if (p.ptr[i] != 0) return false;
  return true;
}

// Operand i of n rounded: once for all products of the computation that read
// it.
static at_status round_operand(at_module *m, at_comp *c, at_map *rounded,
                               at_node *n, uint32_t i) {
  at_value v = n->operands[i];
  at_type t = at_type_with(*at_value_type(v), AT_BF16);
  at_node_desc d = {.op = AT_OP_CONVERT,
                    .operands = &v,
                    .num_operands = 1,
                    .types = &t,
                    .num_types = 1,
                    .loc = n->loc};
  at_node **list;
  void **slot = at_map_put_ptr(rounded, v.node);
  if (!slot) return AT_NO_MEMORY("numerics");
  if (!*slot)
    AT_TRY_ALLOC(*slot, at_new(m->arena, at_node *, v.node->num_results));
  list = *slot;
  if (!list[v.index]) AT_TRY(at_build(c, n, &d, &list[v.index]));
  n->operands[i] = (at_value){list[v.index], 0};
  return AT_OK;
}

// Regions first; each computation has a map of its own, as a convert made in a
// region is not seen around it.
static at_status round_products(at_module *m, at_comp *c) {
  at_map rounded = at_map_in(m->arena);
  AT_FOR_NODES(n, c) {
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(round_products(m, n->regions[r]));
    if (!is_default_f32_product(n)) continue;
    for (uint32_t i = 0; i < 2; i++)
      if (operand_type(n, i) == AT_F32)
        AT_TRY(round_operand(m, c, &rounded, n, i));
  }
  return AT_OK;
}

// Runs twice: operands that later passes introduce are rounded the second time;
// those of the first are bf16 already.
at_status at_pass_numerics(at_module *m, const at_pass_options *o) {
  for (uint32_t i = 0; o->bf16_dots && i < m->num_funcs; i++)
    AT_TRY(round_products(m, m->funcs[i]));
  return AT_OK;
}
