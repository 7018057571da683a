#include "cost/gpu.h"

#include <math.h>

#include "cost/cost_internal.h"

// XLA's constants (gpu_performance_model_base.h, gpu_hlo_cost_analysis.cc).
#define OVERLAP 0.95
#define L2_SPEEDUP 2.5
#define L1_SPEEDUP 8
#define DRAM_ACCESS_BYTES 64.0
enum {
  kThreads = 128,
  kUnroll = 4,
  kDefaultCycles = 3,
  kConcatCycles = 6,
  kConcatSplit = 400
};

// Cycles per element: from the table that the machine names, or the one that
// XLA takes for unknown chips; other ops take kDefaultCycles.
static at_status read_cycles(at_gpu *g, const at_machine *m) {
  for (int op = 0; op < AT_OP_COUNT; op++)
    for (int t = 0; t < AT_DTYPE_COUNT; t++) g->cycles[op][t] = kDefaultCycles;
  const at_perf_table *tables;
  size_t count;
  at_figure key;
  AT_TRY(at_perf_builtin(&tables, &count));
  const char *name = "sm_86";  // what XLA takes for chips that it does not know
  if (at_machine_figure(m, "op_table", &key)) name = key.text.ptr;
  const at_perf_table *t = at_perf_find(tables, count, name);
  if (!t)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "op_table of %s: data/perf has no %s", m->name, name);
  for (size_t i = 0; i < t->num_cycles; i++) {
    const at_perf_cycles *c = &t->cycles[i];
    g->cycles[c->op][c->dtype] = (uint16_t)AT_MIN(c->cycles, UINT16_MAX);
  }
  return AT_OK;
}

// Figures without a default are FAILED_PRECONDITION.
at_status at_gpu_of(const at_machine *m, at_arena *a, const at_gpu **out) {
  at_gpu *g;
  double transaction;
  AT_TRY_ALLOC(g, at_new(a, at_gpu, 1));
  AT_TRY(at_machine_need(m, "cores_per_chip", &g->cores));
  AT_TRY(at_machine_need(m, "fpus_per_core", &g->fpus));
  AT_TRY(at_machine_need(m, "clock_hz", &g->clock));
  AT_TRY(at_machine_need(m, "hbm_bytes_per_second_per_chip", &g->hbm));
  AT_TRY(at_machine_need(m, "l2_bytes", &g->l2));
  AT_TRY(
      at_machine_need(m, "memory_transaction_bytes_per_clock", &transaction));
  g->l1 = at_machine_number(m, "l1_bytes_per_core", 0);
  g->launch = at_machine_number(m, "kernel_launch_seconds", 1e-6);
  g->block_rate = g->clock * transaction;
  AT_TRY(read_cycles(g, m));
  *out = g;
  return AT_OK;
}

static double elements(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_elements(t) : 0;
}
static double bytes_of(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_bytes(t) : 0;
}

// ---- Arithmetic
// Cycles of one application of a body.
static double body_cycles(const at_gpu *g, const at_comp *c) {
  double sum = 0;
  AT_FOR_NODES(n, c)
  if (at_op_is(n->op, AT_ELEMENTWISE) && n->num_results)
    sum += g->cycles[n->op][n->types[0].dtype];
  return sum;
}

// Products behind one element of a dot's result.
static double contraction(const at_node *n) {
  const at_type *t = at_value_type(n->operands[0]);
  at_dims k = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  double size = 1;
  for (uint32_t i = 0; i < k.rank; i++)
    if (k.ptr[i] < (int64_t)t->rank)
      size *= (double)AT_MAX(t->dims[k.ptr[i]], 0);
  return size;
}

// Cycles per element of a concatenation.
static double concat_cycles(const at_node *n) {
  // A warp on a border runs both branches.
  int64_t dim = at_node_int(n, AT_ATTR_DIMENSION, 0);
  for (uint32_t i = 0; i < n->num_operands && dim > 0; i++) {
    const at_type *t = at_value_type(n->operands[i]);
    if (dim < (int64_t)t->rank && t->dims[dim] % 32) return kConcatSplit;
  }
  return kConcatCycles;
}

// Lane operations of one op over its whole result.
static double op_flops(const at_gpu *g, const at_node *n) {
  if (!n->num_results) return 0;
  double out = elements(&n->types[0]);
  switch (n->op) {
    case AT_OP_REDUCE:
    case AT_OP_SCAN: {
      double in = elements(at_value_type(n->operands[0]));
      return fmax(in - (n->op == AT_OP_REDUCE ? out : 0), 0) *
             body_cycles(g, n->regions[0]);
    }
    case AT_OP_REDUCE_WINDOW: {
      at_dims w = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
      double window = 1;
      for (uint32_t i = 0; i < w.rank; i++) window *= (double)w.ptr[i];
      return out * window * body_cycles(g, n->regions[0]);
    }
    case AT_OP_MAP:
      return out * body_cycles(g, n->regions[0]);
    case AT_OP_CONCATENATE:
      return out * concat_cycles(n);
    case AT_OP_DOT_GENERAL:
    case AT_OP_RAGGED_DOT:
      return 2 * out * contraction(n);
    default:
      return at_op_is(n->op, AT_ELEMENTWISE)
                 ? out * g->cycles[n->op][n->types[0].dtype]
                 : 0;
  }
}

// ---- Reads
// How often each element of operand i is read while the whole result is made.
static double operand_use(const at_node *n, uint32_t i) {
  double in = elements(at_value_type(n->operands[i]));
  double out = n->num_results ? elements(&n->types[0]) : 0;
  if (in <= 0) return 0;
  switch (n->op) {
    case AT_OP_BROADCAST_IN_DIM:
      return out / in;
    case AT_OP_SLICE:
      return out / in;
    case AT_OP_DYNAMIC_SLICE:
    case AT_OP_GATHER:
      return i ? 1 : out / in;
    case AT_OP_DYNAMIC_UPDATE_SLICE:
      return i ? 1 : 0;  // in place
    case AT_OP_REDUCE_WINDOW: {
      at_dims w = at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS);
      double window = 1;
      for (uint32_t k = 0; k < w.rank; k++) window *= (double)w.ptr[k];
      return i ? 1 : window * out / in;
    }
    default:
      return 1;
  }
}

// Does a transpose move the minor dimension? Its reads are then scattered.
static bool moves_minor(const at_node *n) {
  at_dims p = at_node_ints(n, AT_ATTR_PERMUTATION);
  return n->op == AT_OP_TRANSPOSE && p.rank &&
         p.ptr[p.rank - 1] != (int64_t)p.rank - 1;
}

// Per node of a fusion: how often its elements are made, and whether some
// reader walks them against the grain. `aux` and `mark` are scratch of the
// walk.
typedef struct uses {
  double shared;  // by elementwise readers: computed once for all of them
  double own;     // by others, which each compute again
  bool scattered;
} uses;

static double total_use(const uses *u) { return u->shared + u->own; }

// Does the fusion reduce? One that does not, and transposes, is tiled through
// shared memory: its reads are coalesced.
static bool has_reduce(const at_comp *c) {
  AT_FOR_NODES(n, c) if (n->op == AT_OP_REDUCE) return true;
  return false;
}

static uses *uses_of(at_map *m, const at_node *n) {
  void **at = at_map_find_ptr(m, n);
  return at ? (uses *)*at : NULL;
}

// Hands n's uses on to its operands. Elementwise readers share one computation;
// others compute it again.
static void spread(at_map *m, const at_node *n, const uses *mine,
                   bool reduces) {
  bool elementwise = at_op_is(n->op, AT_ELEMENTWISE);
  for (uint32_t i = 0; i < n->num_operands; i++) {
    uses *u = uses_of(m, n->operands[i].node);
    if (!u) continue;
    u->scattered |= mine->scattered || (reduces && moves_minor(n));
    double use = total_use(mine);
    if (elementwise)
      u->shared = fmax(u->shared, use);
    else
      u->own += use * operand_use(n, i);
  }
}

// FLOPs of a fusion and, in m, the uses of its nodes, from the results back.
// False: no memory.
static bool walk(const at_gpu *g, const at_node *fusion, at_map *m,
                 at_gpu_time *t) {
  const at_comp *c = fusion->regions[0];
  AT_FOR_NODES(n, c) {
    void **at = at_map_put_ptr(m, n);
    if (!at || !(*at = at_new(m->arena, uses, 1))) return false;
  }
  for (uint32_t r = 0; r < c->num_results; r++) {
    uses *u = uses_of(m, c->results[r].node);
    if (u) u->shared = 1;
  }
  bool reduces = has_reduce(c);
  for (at_node *n = c->last; n; n = n->prev) {
    const uses *u = uses_of(m, n);
    t->flops += total_use(u) * op_flops(g, n);
    spread(m, n, u, reduces);
  }
  return true;
}

// Seconds to read `net` bytes once and the rest of `total` again, from the
// cache that holds them. waste: bytes fetched for each byte used.
static double read_seconds(const at_gpu *g, double net, double total,
                           double blocks, double waste) {
  double dram = g->hbm / waste, again = g->hbm;
  if (net < g->l2) {
    again *= L2_SPEEDUP;
    if (net < g->l1 * g->cores) again *= L1_SPEEDUP;
  } else {
    again /= waste;
  }
  double most = blocks * g->block_rate;
  double first = fmin(net, total);
  return first / fmin(dram, most) + (total - first) / fmin(again, most);
}

// Adds the reads of one operand.
static void add_read(const at_gpu *g, const at_type *t, double use,
                     bool scattered, double blocks, at_gpu_time *out) {
  double size = bytes_of(t), total = size * use;
  double element = fmax(1, at_dtype_bytes(t->dtype));
  out->bytes_read += total;
  out->read +=
      read_seconds(g, fmin(size, total), total, blocks,
                   scattered ? fmax(1, DRAM_ACCESS_BYTES / element) : 1);
}

// ---- Kernels
double at_gpu_compute(const at_gpu *g, double flops, double blocks,
                      double threads) {
  // XLA rounds the rate down to whole operations per nanosecond.
  double lanes = fmin(threads, g->fpus) * fmin(blocks, g->cores);
  double rate = floor(g->clock * 1e-9 * 2 * lanes);
  return flops / fmax(rate, 1) * 1e-9;
}

// Bytes written of a result; an update in place writes the update.
static double written(const at_node *n, uint32_t result) {
  if (n->op == AT_OP_DYNAMIC_UPDATE_SLICE)
    return bytes_of(at_value_type(n->operands[1]));
  if (n->op == AT_OP_FUSION && result < n->regions[0]->num_results) {
    const at_node *root = n->regions[0]->results[result].node;
    if (root->op == AT_OP_DYNAMIC_UPDATE_SLICE)
      return bytes_of(at_value_type(root->operands[1]));
  }
  return bytes_of(&n->types[result]);
}

// Blocks of kThreads threads with one element each, or kUnroll where there are
// many.
static double blocks_of(const at_gpu *g, double elems) {
  double per = kThreads;
  if (elems > g->cores * kThreads * kUnroll) per *= kUnroll;
  return fmax(1, ceil(elems / per));
}

// Arithmetic and reads of a fusion.
static at_status add_fusion(const at_gpu *g, const at_node *n, double blocks,
                            at_gpu_time *t) {
  at_arena *a = at_arena_create();
  at_map m = at_map_in(a);
  bool known = a && walk(g, n, &m, t);
  if (known) {
    const at_comp *c = n->regions[0];
    for (uint32_t i = 0; i < c->num_params && i < n->num_operands; i++) {
      const uses *u = uses_of(&m, c->params[i]);
      add_read(g, at_value_type(n->operands[i]), total_use(u), u->scattered,
               blocks, t);
    }
  }
  at_arena_destroy(a);
  return known ? AT_OK : AT_NO_MEMORY("the time of a fusion");
}

// See gpu.h. Compute and memory overlap but for a twentieth.
at_status at_gpu_kernel(const at_gpu *g, const at_node *n, at_gpu_time *out) {
  *out = (at_gpu_time){0};
  double elems = 0;
  for (uint32_t r = 0; r < n->num_results; r++) {
    elems = fmax(elems, elements(&n->types[r]));
    out->bytes_written += written(n, r);
  }
  // A reduction's grid follows what it reads.
  for (uint32_t i = 0; i < n->num_operands && n->op == AT_OP_REDUCE; i++)
    elems = fmax(elems, elements(at_value_type(n->operands[i])) / 32);
  double blocks = blocks_of(g, elems);
  if (n->op == AT_OP_FUSION && n->num_regions) {
    AT_TRY(add_fusion(g, n, blocks, out));
  } else {
    out->flops = op_flops(g, n);
    for (uint32_t i = 0; i < n->num_operands; i++) {
      // An operand that is named twice is read once.
      bool again = false;
      for (uint32_t k = 0; k < i; k++)
        again |= at_value_eq(n->operands[i], n->operands[k]);
      if (!again)
        add_read(g, at_value_type(n->operands[i]), fmin(operand_use(n, i), 1),
                 false, blocks, out);
    }
  }
  out->compute = at_gpu_compute(g, out->flops, blocks, kThreads);
  out->write = out->bytes_written / g->hbm;
  double memory = out->read + out->write;
  out->exec = out->compute + memory - OVERLAP * fmin(out->compute, memory);
  AT_ASSERT(!(out->exec < fmax(out->compute, memory) * (1 - 1e-9)));
  return AT_OK;
}
