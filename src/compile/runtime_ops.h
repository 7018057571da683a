// Which nodes become runtime kernels (abi/kernels.def), and with what
// parameters.
#ifndef ATOLL_COMPILE_RUNTIME_OPS_H_
#define ATOLL_COMPILE_RUNTIME_OPS_H_

#include "abi/kernels.h"
#include "hlo/hlo.h"

// A kernel of the library for one node.
typedef struct at_rt_choice {
  at_rt_kernel id;  // AT_RT_COUNT: none fits, generate code
  const void *params;
  uint32_t params_bytes;
  double ns;  // single-thread estimate
  // Buffers: the first `operands` operands, then all results.
  uint32_t operands;
  const at_comp *comparator;  // SORT with AT_ORDER_CUSTOM
} at_rt_choice;

// Chooses for one node; params live in `a`. UNIMPLEMENTED by name for custom
// calls that are known but unsuitable.
at_status at_rt_choose(const at_node *n, at_arena *a, at_rt_choice *out);
// Dense row-major strides, in elements: strides[rank].
void at_row_major_strides(at_dims dims, int64_t *strides);
// The order that a sort comparator region asks for, if it is one of JAX's.
bool at_sort_order(const at_comp *region, uint32_t num_operands,
                   uint32_t *out_order, uint32_t *out_num_keys);
// The operation of a two-argument region that is a plain binary op.
bool at_reduce_op_of(const at_comp *region, at_k_reduce_op *out);

#endif
