// Values of which the devices hold summands (Shardy's unreduced axes): which
// ops work on summands as they are, and where the program wants them.
#include "passes/shard.h"

// What an operand may be for the result to be made of summands.
typedef enum sums_kind {
  SUMS_NONE,  // it must be added up before
  SUMS_EACH,  // all such operands are summands alike: sums, selections, moves
  SUMS_ONE    // one of them is: products
} sums_kind;

// A body that adds, from an initial value (operand `init`) that adds nothing.
static bool adds(const at_node *n, uint32_t init) {
  return n->num_results == 1 && at_region_binary(n->regions[0]) == AT_OP_ADD &&
         (init == UINT32_MAX || at_is_identity(AT_OP_ADD, n->operands[init]));
}

// What operand t of n may be; linear ops only.
static sums_kind kind_of(const at_node *n, uint32_t t) {
  switch (n->op) {
    case AT_OP_ADD:
    case AT_OP_SUBTRACT:
    case AT_OP_COMPLEX:
    case AT_OP_CONCATENATE:
    case AT_OP_NEGATE:
    case AT_OP_CONVERT:
    case AT_OP_REAL:
    case AT_OP_IMAG:
    case AT_OP_COPY:
    case AT_OP_RESHAPE:
    case AT_OP_TRANSPOSE:
    case AT_OP_BROADCAST_IN_DIM:
    case AT_OP_SLICE:
    case AT_OP_REVERSE:
    case AT_OP_OPTIMIZATION_BARRIER:
      return SUMS_EACH;
    case AT_OP_CUSTOM_CALL:
      return at_is_layout_constraint(n) ? SUMS_EACH : SUMS_NONE;
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_GATHER:
      return t == 0 ? SUMS_EACH : SUMS_NONE;
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return t < 2 ? SUMS_EACH : SUMS_NONE;
    case AT_OP_SELECT:
      return t > 0 ? SUMS_EACH : SUMS_NONE;
    case AT_OP_PAD:
      return t == 0 && at_is_identity(AT_OP_ADD, n->operands[1]) ? SUMS_EACH
                                                                 : SUMS_NONE;
    case AT_OP_REDUCE:
      return t == 0 && adds(n, 1) ? SUMS_EACH : SUMS_NONE;
    case AT_OP_SCATTER:
      return t != 1 && adds(n, UINT32_MAX) ? SUMS_EACH : SUMS_NONE;
    case AT_OP_MULTIPLY:
    case AT_OP_DOT_GENERAL:
    case AT_OP_CONVOLUTION:
      return SUMS_ONE;
    case AT_OP_DIVIDE:
      return t == 0 ? SUMS_ONE : SUMS_NONE;
    default:
      return SUMS_NONE;
  }
}

// A barrier keeps its values apart: each result has its own operand.
static bool bears_on(const at_node *n, uint32_t operand, uint32_t result) {
  return n->op != AT_OP_OPTIMIZATION_BARRIER || operand == result;
}

// Atoms must be summed over in each EACH operand, or in exactly one ONE
// operand; of those, the wanted ones that no dimension is cut by.
uint32_t at_sums_carried(const at_node *n, uint32_t cut, uint32_t result) {
  uint32_t each = ~0u, one = 0, twice = 0;
  bool any = false;
  for (uint32_t t = 0; t < n->num_operands; t++) {
    const at_place *p = at_place_of(n->operands[t]);
    if (!p || !bears_on(n, t, result)) continue;
    switch (kind_of(n, t)) {
      case SUMS_EACH:
        each &= p->sums;
        any = true;
        break;
      case SUMS_ONE:
        twice |= one & p->sums;
        one |= p->sums;
        break;
      case SUMS_NONE:
        break;
    }
  }
  uint32_t sums = any ? each : one & ~twice;
  return sums & at_place_of((at_value){(at_node *)n, result})->wanted & ~cut;
}

bool at_sums_may_be(const at_node *n, uint32_t operand) {
  return kind_of(n, operand) != SUMS_NONE;
}

// Summands cannot also be cut by these atoms: they are banned.
static void want(at_place *p, uint32_t sums) {
  if (!p || !sums) return;
  sums &= ~at_dims_bits(p->dims, p->whole.rank);
  p->wanted |= sums;
  p->banned |= sums;
}

// From the last node back: an op whose result is wanted as summands would take
// its operands as summands, too.
void at_sums_want(at_comp *comp) {
  for (at_node *n = comp->last; n; n = n->prev) {
    if (!n->aux) continue;
    for (uint32_t i = 0; i < n->num_results; i++) {
      const at_place *p = at_place_of((at_value){n, i});
      uint32_t sums = at_is_constraint(n) ? p->sums : p->wanted;
      for (uint32_t t = 0; sums && t < n->num_operands; t++)
        if (at_is_constraint(n) ||
            (bears_on(n, t, i) && kind_of(n, t) == SUMS_EACH))
          want(at_place_of(n->operands[t]), sums);
    }
    for (uint32_t k = 0; k < n->num_regions; k++) at_sums_want(n->regions[k]);
  }
}
