// What must hold of a handler's results, for AT_VERIFY: ops that move elements
// keep them all. Sums of the elements' hashes tell without another walk over
// indices, so that a handler and its check do not share their mistakes.
#include "hlo/eval_internal.h"

// Over all positions, of the hash of what the n arrays have there. The arrays
// are of one shape.
static uint64_t mass(const at_literal *const *l, uint32_t n) {
  uint64_t sum = 0;
  int64_t count = at_type_elements(&l[0]->type);
  for (int64_t i = 0; i < count; i++) {
    uint64_t h = AT_HASH_SEED;
    for (uint32_t k = 0; k < n; k++)
      h = at_hash(h, at_literal_at(l[k], i), at_dtype_bytes(l[k]->type.dtype));
    sum += h;
  }
  return sum;
}

// Each index says where its value stands in the operand.
static bool top_k_holds(const at_eval_args *e) {
  const at_literal *l = e->in[0];
  int64_t length = l->type.dims[l->type.rank - 1];
  int64_t k = e->out[0]->type.dims[l->type.rank - 1];
  size_t bytes = at_dtype_bytes(l->type.dtype);
  for (int64_t i = 0; i < at_type_elements(&e->out[0]->type); i++) {
    int64_t at = at_literal_int(e->out[1], i);
    if (at < 0 || at >= length ||
        memcmp(at_literal_at(e->out[0], i),
               at_literal_at(l, i / k * length + at), bytes) != 0)
      return false;
  }
  return true;
}

// What is not padding is the operand. Negative padding takes elements away.
static bool pad_holds(const at_eval_args *e) {
  static const at_attr_id sides[] = {AT_ATTR_EDGE_PADDING_LOW,
                                     AT_ATTR_EDGE_PADDING_HIGH};
  for (int s = 0; s < 2; s++) {
    at_dims d = at_node_ints(e->n, sides[s]);
    for (uint32_t i = 0; i < d.rank; i++)
      if (d.ptr[i] < 0) return true;
  }
  int64_t more =
      at_type_elements(&e->out[0]->type) - at_type_elements(&e->in[0]->type);
  return mass(e->out, 1) ==
         mass(e->in, 1) + (uint64_t)more * mass(e->in + 1, 1);
}

// Ops that are not named here have no check that is cheaper than doing them
// again.
bool at_eval_holds(const at_eval_args *e) {
  int64_t in = e->n->num_operands ? at_type_elements(&e->in[0]->type) : 0;
  uint64_t sum = 0;
  switch (e->n->op) {
    case AT_OP_TRANSPOSE:
    case AT_OP_REVERSE:
    case AT_OP_RESHAPE:
      return mass(e->in, 1) == mass(e->out, 1);
    case AT_OP_SORT:
      return mass(e->in, e->n->num_operands) ==
             mass(e->out, e->n->num_operands);
    case AT_OP_CONCATENATE:
      for (uint32_t i = 0; i < e->n->num_operands; i++)
        sum += mass(e->in + i, 1);
      return sum == mass(e->out, 1);
    case AT_OP_BROADCAST_IN_DIM:
      if (in)
        sum = mass(e->in, 1) *
              (uint64_t)(at_type_elements(&e->out[0]->type) / in);
      return sum == mass(e->out, 1);
    case AT_OP_PAD:
      return pad_holds(e);
    case AT_OP_TOP_K:
      return top_k_holds(e);
    default:
      return true;
  }
}
