// Who needs which value: decides what is worth computing once, and what memory
// an operation writes.
#include "mosaic/emit.h"

// Cost of one element, in cheap vector operations.
double at_me_weight(at_mosaic_opcode c) {
  switch (c) {
    case AT_MOSAIC_ARITH_CONSTANT:
    case AT_MOSAIC_TPU_IOTA:
    case AT_MOSAIC_VECTOR_BROADCAST:
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
    case AT_MOSAIC_TPU_RESHAPE:
    case AT_MOSAIC_TPU_ASSUME_LAYOUT:
    case AT_MOSAIC_TPU_MASK_CAST:
      return 0;
    case AT_MOSAIC_ARITH_DIVSI:
    case AT_MOSAIC_ARITH_DIVUI:
    case AT_MOSAIC_ARITH_REMSI:
    case AT_MOSAIC_ARITH_REMUI:
    case AT_MOSAIC_ARITH_REMF:
    case AT_MOSAIC_MATH_POWF:
    case AT_MOSAIC_MATH_ATAN2:
    case AT_MOSAIC_MATH_SIN:
    case AT_MOSAIC_MATH_COS:
    case AT_MOSAIC_MATH_TAN:
    case AT_MOSAIC_MATH_ERF:
      return 20;
    case AT_MOSAIC_MATH_EXP:
    case AT_MOSAIC_MATH_EXP2:
    case AT_MOSAIC_MATH_EXPM1:
    case AT_MOSAIC_MATH_LOG:
    case AT_MOSAIC_MATH_LOG2:
    case AT_MOSAIC_MATH_LOG1P:
    case AT_MOSAIC_MATH_TANH:
    case AT_MOSAIC_TPU_LOGISTIC:
      return 12;
    case AT_MOSAIC_ARITH_DIVF:
    case AT_MOSAIC_MATH_SQRT:
    case AT_MOSAIC_MATH_RSQRT:
    case AT_MOSAIC_TPU_RECIPROCAL:
    case AT_MOSAIC_ARITH_TRUNCF:
      return 5;
    case AT_MOSAIC_TPU_TRANSPOSE:
    case AT_MOSAIC_VECTOR_TRANSPOSE:
    case AT_MOSAIC_TPU_DYNAMIC_GATHER:
    case AT_MOSAIC_TPU_DYNAMIC_ROTATE:
    case AT_MOSAIC_TPU_GATHER:
    case AT_MOSAIC_TPU_REPEAT:
    case AT_MOSAIC_TPU_BITCAST:
    case AT_MOSAIC_VECTOR_BITCAST:
      return 8;
    default:
      return 1;
  }
}

// Operations that become nodes instead of code.
bool at_me_lazy(at_mosaic_opcode c) {
  const at_mosaic_op_info *info = at_mosaic_op_info_of(c);
  switch (c) {
    case AT_MOSAIC_ARITH_CONSTANT:
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
    case AT_MOSAIC_TPU_STRIDED_LOAD:
    case AT_MOSAIC_VECTOR_BROADCAST:
    case AT_MOSAIC_VECTOR_SHAPE_CAST:
    case AT_MOSAIC_VECTOR_EXTRACT:
    case AT_MOSAIC_VECTOR_EXTRACT_STRIDED_SLICE:
    case AT_MOSAIC_VECTOR_BITCAST:
    case AT_MOSAIC_VECTOR_TRANSPOSE:
    case AT_MOSAIC_TPU_IOTA:
    case AT_MOSAIC_TPU_BITCAST:
    case AT_MOSAIC_TPU_RESHAPE:
    case AT_MOSAIC_TPU_TRANSPOSE:
    case AT_MOSAIC_TPU_DYNAMIC_ROTATE:
    case AT_MOSAIC_TPU_DYNAMIC_GATHER:
    case AT_MOSAIC_TPU_GATHER:
    case AT_MOSAIC_TPU_REPEAT:
    case AT_MOSAIC_TPU_CREATE_MASK:
    case AT_MOSAIC_TPU_ASSUME_LAYOUT:
    case AT_MOSAIC_TPU_MASK_CAST:
    case AT_MOSAIC_TPU_WEIRD:
    case AT_MOSAIC_TPU_RECIPROCAL:
    case AT_MOSAIC_TPU_LOGISTIC:
    case AT_MOSAIC_TPU_FPTOSI:
    case AT_MOSAIC_TPU_FPTOUI:
    case AT_MOSAIC_TPU_SITOFP:
    case AT_MOSAIC_TPU_UITOFP:
    case AT_MOSAIC_TPU_EXTF:
    case AT_MOSAIC_TPU_TRUNCF:
    case AT_MOSAIC_TPU_REDUCE_PRECISION:
    case AT_MOSAIC_TPU_STOCHASTIC_CONVERT:
    case AT_MOSAIC_TPU_STOCHASTIC_CONVERT_ELEMENTWISE:
    case AT_MOSAIC_TPU_PACK_ELEMENTWISE:
    case AT_MOSAIC_TPU_UNPACK_ELEMENTWISE:
      return true;
    default:
      return info && (!strncmp(info->name, "arith.", 6) ||
                      !strncmp(info->name, "math.", 5));
  }
}

// ---- costs, inside out
static void add_use(at_me *m, at_me_slot *s, const at_mop *op) {
  if (s->last_use && s->last_use->op == op) return;
  at_me_use *u = at_new(m->a, at_me_use, 1);
  if (!u) {
    at_em_fail(m->e, AT_NO_MEMORY("uses of refs"));
    return;
  }
  u->op = op;
  if (s->last_use)
    s->last_use->next = u;
  else
    s->first_use = u;
  s->last_use = u;
}

static void count_uses(at_me *m, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    bool in_place = at_me_elementwise(op);
    for (uint32_t k = 0; k < op->num_operands; k++) {
      at_me_slot *s = at_me_slot_of(m, op->operands[k]);
      if (op->operands[k]->type->kind == AT_MTYPE_MEMREF) add_use(m, s, op);
      s->uses++;
      s->shares += in_place;
      s->products += at_mosaic_opcode_of(op) == AT_MOSAIC_TPU_MATMUL;
    }
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        count_uses(m, op->regions[r]->blocks[k]);
  }
}

// What an operand adds. An element is computed once for all who want it at the
// same place and in the same loops, who share its cost; who moves elements has
// it computed again.
static double cost_of_operand(const at_me_slot *s, bool in_place) {
  bool kept = s->many && s->cost >= AT_ME_KEEP_COST;
  if (kept || s->cost > AT_ME_DEEP_COST) return 1;  // it is memory
  return in_place && !s->many ? s->cost / s->shares : s->cost;
}

static void count(at_me *m, at_mblock *b, uint32_t depth) {
  for (uint32_t i = 0; i < b->num_args; i++) {
    at_me_slot *s = at_me_slot_of(m, &b->args[i]);
    s->cost = 1;
    s->depth = depth;
  }
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    bool lazy = at_me_lazy(c), in_place = at_me_elementwise(op);
    double cost = lazy ? at_me_weight(c) : 1;
    for (uint32_t k = 0; lazy && k < op->num_operands; k++)
      if (at_me_is_vector(op->operands[k]))
        cost += cost_of_operand(at_me_slot_of(m, op->operands[k]), in_place);
    for (uint32_t k = 0; k < op->num_results; k++) {
      at_me_slot *s = at_me_slot_of(m, &op->results[k]);
      s->cost = cost;
      s->depth = depth;
    }
    bool loop = c == AT_MOSAIC_SCF_FOR || c == AT_MOSAIC_SCF_WHILE;
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        count(m, op->regions[r]->blocks[k], depth + loop);
  }
}

// ---- sinks, outside in
static void need(at_me *m, at_mvalue *v, const at_mop *sink, uint32_t depth) {
  if (!at_me_is_vector(v)) return;
  at_me_slot *s = at_me_slot_of(m, v);
  if (!sink || depth > s->depth || (s->sink && s->sink != sink)) s->many = true;
  s->sink = sink;
}

// A column that goes over many lanes.
static void find_spread(at_me *m, const at_mop *op) {
  const at_mvalue *in = op->operands[0];
  const at_mtype *t = op->results[0].type;
  if (!at_me_is_vector(in) || !in->type->shape.rank) return;
  int64_t last = in->type->shape.ptr[in->type->shape.rank - 1];
  if (last == 1 && t->shape.ptr[t->shape.rank - 1] > 1)
    at_me_slot_of(m, in)->spread = true;
}

bool at_me_computes(at_mosaic_opcode c) {
  switch (c) {
    case AT_MOSAIC_VECTOR_LOAD:
    case AT_MOSAIC_TPU_VECTOR_LOAD:
    case AT_MOSAIC_TPU_STRIDED_LOAD:
      return false;  // of indices, too
    case AT_MOSAIC_ARITH_INDEX_CAST:
    case AT_MOSAIC_TPU_CONCATENATE:
    case AT_MOSAIC_TPU_MATMUL:
    case AT_MOSAIC_VECTOR_MULTI_REDUCTION:
      return true;
    default:
      return at_me_lazy(c);
  }
}

// What `select` may drop, of operand k; of a wait the memory whose size it is.
static bool drops(at_mosaic_opcode c, uint32_t k) {
  return k > 0 && (c == AT_MOSAIC_ARITH_SELECT || c == AT_MOSAIC_TPU_WAIT_DMA2);
}

// A value that only goes where `select` may drop it, perhaps after arithmetic,
// does not count as read: JAX's where(first, x, acc[...] + x), where(i < n,
// ends[i] - starts[i], 0), or scores of keys that a mask drops behind the
// product. The second run tells what was dropped. Nor does a slice that only
// says how many bytes to wait for.
static void find_counting(at_me *m, const at_mop *op, at_mosaic_opcode c) {
  bool slice = c == AT_MOSAIC_TPU_MEMREF_SLICE;
  bool form = slice || c == AT_MOSAIC_TPU_MEMREF_SQUEEZE || at_me_computes(c);
  bool kept = form && op->num_results == 1 &&
              !at_me_slot_of(m, &op->results[0])->counts;
  for (uint32_t k = 0; k < op->num_operands; k++)
    if (!drops(c, k) && !(kept && !(slice && k)))
      at_me_slot_of(m, op->operands[k])->counts = true;
}

static void forget_sinks(at_me *m, const at_mblock *b) {
  for (uint32_t i = 0; i < b->num_ops; i++) {
    const at_mop *op = b->ops[i];
    for (uint32_t k = 0; k < op->num_operands; k++) {
      at_me_slot *s = at_me_slot_of(m, op->operands[k]);
      s->sink = NULL;
      s->many = s->spread = s->counts = false;
    }
    for (uint32_t r = 0; r < op->num_regions; r++)
      for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++)
        forget_sinks(m, op->regions[r]->blocks[k]);
  }
}

static void find_sinks(at_me *m, at_mblock *b, uint32_t depth) {
  for (uint32_t i = b->num_ops; i-- > 0;) {
    at_mop *op = b->ops[i];
    at_mosaic_opcode c = at_mosaic_opcode_of(op);
    bool loop = c == AT_MOSAIC_SCF_FOR || c == AT_MOSAIC_SCF_WHILE;
    for (uint32_t r = op->num_regions; r-- > 0;)
      for (uint32_t k = op->regions[r]->num_blocks; k-- > 0;)
        find_sinks(m, op->regions[r]->blocks[k], depth + loop);
    const at_mop *sink = op;
    if (at_me_lazy(c) && op->num_results == 1 &&
        at_me_is_vector(&op->results[0])) {
      at_me_slot *s = at_me_slot_of(m, &op->results[0]);
      if (s->uses == 0) continue;
      if (!s->many)
        sink = s->sink;
      else if (s->cost < AT_ME_KEEP_COST)
        sink = NULL;
    }
    if (c == AT_MOSAIC_VECTOR_BROADCAST) find_spread(m, op);
    find_counting(m, op, c);
    for (uint32_t k = 0; k < op->num_operands; k++)
      need(m, op->operands[k], sink, depth);
  }
}

// ---- memory
uint64_t at_me_root_bit(uint32_t root) {
  if (root == AT_ME_ANY_ROOT) return ~0ull;
  return 1ull << (root < 63 ? root : 63);
}

// The value that a view comes from; roots are numbered as refs are bound, so
// what is allocated inside the operation has none yet and does not matter.
static uint64_t root_of(at_me *m, const at_mvalue *v) {
  while (v->op && v->op->num_operands > 0 &&
         (v->op->operands[0]->type->kind == AT_MTYPE_MEMREF))
    v = v->op->operands[0];
  if (v->op && v->op->num_regions) return ~0ull;  // carried by a loop or branch
  if (!v->op && v->block && v->block->region && v->block->region->op &&
      at_mosaic_opcode_of(v->block->region->op) != AT_MOSAIC_FUNC_FUNC)
    return ~0ull;
  void **p = at_map_find_ptr(&m->slots, v);
  at_me_slot *s = p ? *p : NULL;
  return s && s->kind == AT_ME_MEMORY ? at_me_root_bit(s->ref->root) : 0;
}

static uint64_t written_by(at_me *m, const at_mop *op, bool dma_too) {
  switch (at_mosaic_opcode_of(op)) {
    case AT_MOSAIC_VECTOR_STORE:
    case AT_MOSAIC_TPU_VECTOR_STORE:
    case AT_MOSAIC_TPU_STRIDED_STORE:
    case AT_MOSAIC_TPU_STORE:
    case AT_MOSAIC_TPU_SHUFFLED_STORE:
    case AT_MOSAIC_TPU_VECTOR_STORE_IDX:
    case AT_MOSAIC_MEMREF_STORE:
      return root_of(m, op->operands[1]);
    case AT_MOSAIC_TPU_ENQUEUE_DMA: {
      uint32_t first;
      if (at_me_segment(op, 2, &first) != 1) return ~0ull;
      return root_of(m, op->operands[first]) | (dma_too ? m->dma_roots : 0);
    }
    case AT_MOSAIC_TPU_ENQUEUE_INDIRECT_DMA:
      return root_of(m, op->operands[1]) | (dma_too ? m->dma_roots : 0);
    case AT_MOSAIC_TPU_WAIT_DMA2:
    case AT_MOSAIC_TPU_WAIT_DMA:
    case AT_MOSAIC_TPU_WAIT_INDIRECT_DMA:
    case AT_MOSAIC_TPU_SEM_SIGNAL:
    case AT_MOSAIC_TPU_SEM_WAIT:
    case AT_MOSAIC_TPU_SEM_READ:
    case AT_MOSAIC_TPU_BARRIER:
      return dma_too ? m->dma_roots : 0;
    case AT_MOSAIC_TPU_FETCH_AND_ADD_SYNC:
      return root_of(m, op->operands[0]);
    case AT_MOSAIC_FUNC_CALL:
      return ~0ull;
    default:
      return 0;
  }
}

static uint64_t walk_written(at_me *m, const at_mop *op, bool dma_too) {
  uint64_t w = written_by(m, op, dma_too);
  for (uint32_t r = 0; r < op->num_regions; r++)
    for (uint32_t k = 0; k < op->regions[r]->num_blocks; k++) {
      const at_mblock *b = op->regions[r]->blocks[k];
      for (uint32_t i = 0; i < b->num_ops; i++)
        w |= walk_written(m, b->ops[i], dma_too);
    }
  return w;
}
uint64_t at_me_written(at_me *m, const at_mop *op) {
  return walk_written(m, op, true);
}

static bool is_dma(const at_mop *op) {
  at_mosaic_opcode c = at_mosaic_opcode_of(op);
  return c == AT_MOSAIC_TPU_ENQUEUE_DMA || c == AT_MOSAIC_FUNC_CALL ||
         c == AT_MOSAIC_TPU_ENQUEUE_INDIRECT_DMA ||
         c == AT_MOSAIC_TPU_SEM_SIGNAL || c == AT_MOSAIC_TPU_SEM_WAIT ||
         c == AT_MOSAIC_TPU_BARRIER;
}
static uint64_t find_dma(at_me *m, const at_mblock *b) {
  uint64_t w = 0;
  for (uint32_t i = 0; i < b->num_ops; i++) {
    // Memory that is allocated later may be a target too: any that has no
    // number of its own yet counts once there is a transfer at all.
    if (is_dma(b->ops[i])) w = ~0ull;
    for (uint32_t r = 0; r < b->ops[i]->num_regions; r++)
      for (uint32_t k = 0; k < b->ops[i]->regions[r]->num_blocks; k++)
        w |= find_dma(m, b->ops[i]->regions[r]->blocks[k]);
  }
  return w;
}

at_status at_me_analyse(at_me *m, at_mblock *body) {
  count_uses(m, body);
  count(m, body, 0);
  find_sinks(m, body, 0);
  // Sinks that are not the same do not share a value's cost.
  count(m, body, 0);
  forget_sinks(m, body);
  find_sinks(m, body, 0);
  m->dma_roots = find_dma(m, body);
  return AT_OK;
}
