// What one node takes, in the order in which XLA's speed-of-light estimator
// asks (sol_latency_estimator.cc): a latency that the program gives, what a
// model of the whole program found, the collective, the measured product, the
// model of one kernel, a size for the class.
#include <math.h>
#include <stdlib.h>

#include "cost/cost_internal.h"
#include "cost/gpu.h"
#include "cost/host.h"
#include "cost/tpu.h"

// Approximate costs of whole classes, in XLA's units, a hundredth of a
// microsecond.
#define CLASS_UNIT 1e-8
enum { kLow = 1, kForeign = 1000 };

// ---- Collectives
// See cost.h. Collectives of nobody, or of no bytes, are free.
at_status at_cost_collective(const at_target *t, const at_collective *c,
                             at_cost_time *out) {
  uint32_t members = c->op == AT_PERMUTE ? c->num_pairs : c->groups.size;
  if (c->bytes < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT, "collective: a negative size");
  if (!c->bytes || !members ||
      (c->op != AT_PERMUTE && (members == 1 || !c->groups.count))) {
    *out = (at_cost_time){0, AT_COST_FREE};
    return AT_OK;
  }
  if (t->gpu) return at_gpu_collective(t, c, out);
  if (t->user) {
    at_status st = at_perf_collective(t->user, c, out);
    if (at_status_code(st) != AT_NOT_FOUND) return st;
    at_status_free(st);
  }
  if (t->tpu) {
    out->source = AT_COST_FROM_TORUS;
    return at_torus_collective(t, c, &out->seconds);
  }
  // Devices that share one memory: every byte is read and written, twice to
  // reduce; and each of them comes to the meeting.
  double rate,
      launch = at_machine_number(t->machine, "kernel_launch_seconds", 0);
  AT_TRY(at_machine_need(t->machine, "hbm_bytes_per_second_per_chip", &rate));
  double copies = c->op == AT_ALL_REDUCE ? 4 : 2;
  if (c->op != AT_PERMUTE) copies *= c->groups.count;
  *out = (at_cost_time){
      members * launch + copies * (double)c->bytes * members / rate,
      AT_COST_FROM_ROOFLINE};
  return AT_OK;
}

// ---- Products
// FLOP per second of one device for operands of that type; bf16's where the
// description has none.
static double peak(const at_target *t, at_dtype type) {
  static const struct {
    at_dtype type;
    const char *figure;
  } rows[] = {{AT_BF16, "bf16_flops_per_second_per_chip"},
              {AT_F16, "f16_flops_per_second_per_chip"},
              {AT_F32, "f32_flops_per_second_per_chip"},
              {AT_F64, "f64_flops_per_second_per_chip"},
              {AT_S8, "int8_ops_per_second_per_chip"},
              {AT_U8, "int8_ops_per_second_per_chip"}};
  double value = 0, bf16 = at_machine_number(t->machine, rows[0].figure, 0);
  for (size_t i = 0; i < AT_LEN(rows); i++)
    if (rows[i].type == type)
      value = at_machine_number(t->machine, rows[i].figure, 0);
  if (value <= 0 && at_is_float(type) && at_dtype_bytes(type) == 1)
    value = at_machine_number(t->machine, "fp8_flops_per_second_per_chip", 0);
  return (value > 0 ? value : bf16) / t->devices_per_chip;
}

// The larger of FLOPs and bytes over the peaks.
static at_status gemm_roofline(const at_target *t, const at_gemm *g,
                               at_cost_time *out) {
  double rate = peak(t, g->lhs), hbm;
  AT_TRY(at_machine_need(t->machine, "hbm_bytes_per_second_per_chip", &hbm));
  if (rate <= 0)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "the description of %s does not say how fast it "
                   "multiplies",
                   t->machine->name);
  double b = (double)g->b, m = (double)g->m, n = (double)g->n, k = (double)g->k;
  double bytes =
      b * (m * k * at_dtype_bytes(g->lhs) + k * n * at_dtype_bytes(g->rhs) +
           m * n * at_dtype_bytes(g->out));
  double memory = bytes / hbm * t->devices_per_chip;
  *out = (at_cost_time){fmax(2 * b * m * n * k / rate, memory),
                        AT_COST_FROM_ROOFLINE};
  return AT_OK;
}

// A product as one kernel of the TPU model, operands in HBM.
static void gemm_on_tpu(const at_target *t, const at_gemm *g,
                        at_cost_time *out) {
  int64_t l[3] = {g->b, g->m, g->k}, r[3] = {g->b, g->k, g->n},
          o[3] = {g->b, g->m, g->n};
  double lt = at_tpu_tiles((at_dims){l, 3}), rt = at_tpu_tiles((at_dims){r, 3});
  double ot = at_tpu_tiles((at_dims){o, 3});
  bool narrow = at_dtype_bytes(g->out) < 4;
  at_tpu_kernel k = {
      .kind = AT_TPU_MATMUL,
      .rows = (double)g->m,
      .cols = (double)g->n,
      .depth = (double)g->k,
      .batch = (double)g->b,
      .repeat = 1,
      .tiles = fmax(ot, fmax(lt, rt)),
      .out_tiles = ot,
      .hbm_in = lt * at_tpu_tile_bytes(g->lhs) + rt * at_tpu_tile_bytes(g->rhs),
      .hbm_out = ot * at_tpu_tile_bytes(g->out),
      .narrow_tiles = narrow ? ot : 0,
      .hbm_out_narrow = narrow ? ot : 0,
      .operand_bytes = AT_MIN(at_dtype_bytes(g->lhs), at_dtype_bytes(g->rhs))};
  at_tpu_kernel_grid(&k, t->tpu, false);
  *out = (at_cost_time){at_tpu_kernel_cycles(&k, t->tpu).total / t->tpu->clock,
                        AT_COST_FROM_KERNEL};
}

// Thin products read their operands once, from memory as far as anybody knows.
static at_status gemm_on_host(const at_target *t, const at_gemm *g,
                              at_cost_time *out) {
  at_cost_time least;
  AT_TRY(gemm_roofline(t, g, &least));
  at_status st = at_host_gemm(t, g, out);
  if (at_status_code(st) == AT_NOT_FOUND) {
    at_status_free(st);
    *out = least;
    return AT_OK;
  }
  if (at_ok(st) && least.seconds > out->seconds) *out = least;
  return st;
}

at_status at_cost_gemm(const at_target *t, const at_gemm *g,
                       at_cost_time *out) {
  if (g->b < 0 || g->m < 0 || g->n < 0 || g->k < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT, "GEMM: a size is negative");
  if (!g->b || !g->m || !g->n || !g->k) {
    *out = (at_cost_time){0, AT_COST_FREE};
    return AT_OK;
  }
  if (t->host) return gemm_on_host(t, g, out);
  const at_perf *tables[2] = {t->user, t->perf};
  for (int i = 0; i < 2; i++) {
    if (!tables[i]) continue;
    at_status st = at_perf_gemm(tables[i], g, out);
    if (at_status_code(st) != AT_NOT_FOUND) return st;
    at_status_free(st);
  }
  if (!t->tpu) return gemm_roofline(t, g, out);
  gemm_on_tpu(t, g, out);
  return AT_OK;
}

// ---- Kernels of a whole program
// False: no memory, or n has a time.
static bool put_time(at_map *of, at_arena *a, const at_node *n,
                     double seconds) {
  void **place = at_map_put_ptr(of, n);
  double *time = at_new(a, double, 1);
  if (!place || *place || !time) return false;
  *time = seconds;
  *place = time;
  return true;
}

static double time_of(const at_map *of, const at_node *n) {
  void **place = at_map_find_ptr(of, n);
  return place ? *(double *)*place : 0;
}

bool at_cost_kernels_put(at_cost_kernels *k, at_arena *a, const at_node *n,
                         double seconds) {
  return put_time(&k->seconds, a, n, seconds);
}

bool at_cost_kernels_put_sparse(at_cost_kernels *k, at_arena *a,
                                const at_node *n, double seconds) {
  return put_time(&k->sparse, a, n, seconds);
}

double at_cost_kernels_of(const at_cost_kernels *k, const at_node *n) {
  return time_of(&k->seconds, n);
}

double at_cost_kernels_sparse_of(const at_cost_kernels *k, const at_node *n) {
  return time_of(&k->sparse, n);
}

// ---- Nodes
// The first dot_general of n or of its fusion; NULL: none.
static const at_node *product_in(const at_node *n) {
  if (n->op == AT_OP_DOT_GENERAL) return n;
  if (n->op != AT_OP_FUSION || !n->num_regions) return NULL;
  AT_FOR_NODES(k, n->regions[0]) if (k->op == AT_OP_DOT_GENERAL) return k;
  return NULL;
}

// Is d in the list?
static bool named(at_dims list, int64_t d) {
  for (uint32_t i = 0; i < list.rank; i++)
    if (list.ptr[i] == d) return true;
  return false;
}

bool at_cost_gemm_of(const at_node *n, at_gemm *out) {
  const at_type *l = at_value_type(n->operands[0]),
                *r = at_value_type(n->operands[1]);
  at_dims lb = at_node_ints(n, AT_ATTR_LHS_BATCHING_DIMENSIONS);
  at_dims lc = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
  at_dims rb = at_node_ints(n, AT_ATTR_RHS_BATCHING_DIMENSIONS);
  at_dims rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS);
  at_gemm g = {l->dtype, r->dtype, n->types[0].dtype, 1, 1, 1, 1};
  if (!at_type_is_static(l) || !at_type_is_static(r)) return false;
  bool fits = true;
  for (uint32_t d = 0; d < l->rank; d++) {
    int64_t *to = named(lb, d) ? &g.b : named(lc, d) ? &g.k : &g.m;
    fits &= !__builtin_mul_overflow(*to, l->dims[d], to);
  }
  for (uint32_t d = 0; d < r->rank; d++)
    if (!named(rb, d) && !named(rc, d))
      fits &= !__builtin_mul_overflow(g.n, r->dims[d], &g.n);
  *out = g;
  return fits;
}

// Does n do nothing at run time?
static bool is_free(const at_node *n) {
  switch (n->op) {
    case AT_OP_PARAMETER:
    case AT_OP_CONSTANT:
    case AT_OP_RESHAPE:
    case AT_OP_AFTER_ALL:
    case AT_OP_OPTIMIZATION_BARRIER:
    case AT_OP_ASYNC_DONE:
    case AT_OP_GET_DIMENSION_SIZE:
    case AT_OP_SET_DIMENSION_SIZE:
      return true;
    default:
      return at_op_is(n->op, AT_CONTROL);
  }
}

// Nanoseconds that a program says in mhlo.frontend_attributes =
// {latency_metadata}.
static bool given_latency(const at_node *n, double *seconds) {
  char text[32], *end;
  at_str v = at_node_told(n, "latency_metadata");
  if (!v.len || v.len >= sizeof text) return false;
  memcpy(text, v.ptr, v.len);
  text[v.len] = 0;
  double ns = strtod(text, &end);
  if (end != text + v.len || !(ns >= 0) || !isfinite(ns)) return false;
  *seconds = ns * 1e-9;
  return true;
}

static at_status kernel_on_gpu(const at_target *t, const at_node *n,
                               at_cost_time *out) {
  at_gpu_time k;
  AT_TRY(at_gpu_kernel(t->gpu, n, &k));
  // XLA's estimator leaves the launch out of an op's cost.
  double launch = t->mode == AT_INTERP_XLA ? 0 : t->gpu->launch;
  *out = (at_cost_time){k.exec + launch, AT_COST_FROM_FUSION};
  return AT_OK;
}

static double elements(const at_type *t) {
  return at_type_is_static(t) ? (double)at_type_elements(t) : 0;
}

// Vector operations and reductions of a fusion.
static void count_ops(const at_comp *c, at_tpu_kernel *k) {
  AT_FOR_NODES(n, c) {
    k->ops += at_op_is(n->op, AT_ELEMENTWISE);
    k->reduces += n->op == AT_OP_REDUCE || n->op == AT_OP_REDUCE_WINDOW;
  }
}

// Adds an operand or result, which lies in HBM, to the kernel.
static void add_tiles(const at_type *t, bool write, at_tpu_kernel *k) {
  if (!at_type_is_static(t)) return;
  double tiles = at_tpu_tiles(at_type_dims(t)),
         bytes = tiles * at_tpu_tile_bytes(t->dtype);
  bool narrow = at_dtype_of(t->dtype)->bits < 32;
  k->tiles = fmax(k->tiles, tiles);
  if (narrow) k->narrow_tiles = fmax(k->narrow_tiles, tiles);
  *(write ? &k->hbm_out : &k->hbm_in) += bytes;
  *(write ? &k->out_tiles : &k->in_tiles) += tiles;
  if (write && narrow) k->hbm_out_narrow += tiles;
}

// One kernel of the TPU model, from shapes alone.
static at_status kernel_on_tpu(const at_target *t, const at_node *n,
                               at_cost_time *out) {
  at_tpu_kernel k = {.kind = AT_TPU_LOOP, .operand_bytes = 4, .repeat = 1};
  bool slices = n->op == AT_OP_SLICE || n->op == AT_OP_DYNAMIC_SLICE ||
                n->op == AT_OP_GATHER;
  for (uint32_t i = 0; i < n->num_operands; i++)
    add_tiles(slices && !i ? &n->types[0] : at_value_type(n->operands[i]),
              false, &k);
  for (uint32_t i = 0; i < n->num_results; i++)
    add_tiles(&n->types[i], true, &k);
  if (n->op == AT_OP_FUSION && n->num_regions) {
    count_ops(n->regions[0], &k);
    if (k.reduces > 0) k.kind = AT_TPU_REDUCE;
  } else if (n->op == AT_OP_REDUCE || n->op == AT_OP_REDUCE_WINDOW) {
    k.kind = AT_TPU_REDUCE, k.ops = k.reduces = 1;
  } else if (at_op_is(n->op, AT_ELEMENTWISE)) {
    k.ops = 1;
  } else {
    k.kind = AT_TPU_COPY;
  }
  if (n->op == AT_OP_CONVOLUTION) {
    const at_type *w = at_value_type(n->operands[1]);
    at_dims spatial = at_node_ints(n, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
    k.kind = AT_TPU_CONV, k.batch = 1;
    k.cols =
        (double)
            w->dims[at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0)];
    k.depth =
        (double)
            w->dims[at_node_int(n, AT_ATTR_KERNEL_INPUT_FEATURE_DIMENSION, 0)];
    for (uint32_t i = 0; i < spatial.rank; i++)
      k.batch *= (double)w->dims[spatial.ptr[i]];
    k.rows = k.cols > 0 ? elements(&n->types[0]) / k.cols : 0;
    k.operand_bytes = fmax(1, at_dtype_bytes(w->dtype));
  }
  at_tpu_kernel_grid(&k, t->tpu, n->op == AT_OP_FUSION);
  *out = (at_cost_time){at_tpu_kernel_cycles(&k, t->tpu).total / t->tpu->clock,
                        AT_COST_FROM_KERNEL};
  return AT_OK;
}

static at_status kernel_on_host(const at_target *t, const at_node *n,
                                at_cost_time *out) {
  at_host_time k;
  AT_TRY(at_host_node(t, n, NULL, &k));
  *out = (at_cost_time){k.total, AT_COST_FROM_HOST};
  return AT_OK;
}

// A launch, and all bytes at the memory's rate.
static at_status kernel_roofline(const at_target *t, const at_node *n,
                                 at_cost_time *out) {
  double rate, bytes = 0;
  AT_TRY(at_machine_need(t->machine, "hbm_bytes_per_second_per_chip", &rate));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_type *o = at_value_type(n->operands[i]);
    if (at_type_is_static(o)) bytes += (double)at_type_bytes(o);
  }
  for (uint32_t i = 0; i < n->num_results; i++)
    if (at_type_is_static(&n->types[i]))
      bytes += (double)at_type_bytes(&n->types[i]);
  double launch = at_machine_number(t->machine, "kernel_launch_seconds", 0);
  *out = (at_cost_time){launch + bytes / rate * t->devices_per_chip,
                        AT_COST_FROM_ROOFLINE};
  return AT_OK;
}

static at_status collective_node(const at_target *t, const at_node *n,
                                 at_cost_time *out) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("collective");
  at_collective c;
  bool is = false;
  at_status st = at_cost_collective_of(n, a, &is, &c);
  if (at_ok(st)) st = at_cost_collective(t, &c, out);
  at_arena_destroy(a);
  return st;
}

// Asks the sources in the order that the top of this file gives.
static at_status cost_of(const at_target *t, const at_node *n,
                         at_cost_time *out) {
  *out = (at_cost_time){0, AT_COST_FREE};
  double given;
  if (given_latency(n, &given)) {
    *out = (at_cost_time){given, AT_COST_FROM_ATTRIBUTE};
    return AT_OK;
  }
  bool beside = at_op_is(n->op, AT_COLLECTIVE) ||
                at_cost_host_copy_of(t, n) != AT_HOST_COPY_NONE;
  if (t->kernels && !beside) {
    *out =
        (at_cost_time){at_cost_kernels_of(t->kernels, n), AT_COST_FROM_KERNEL};
    return AT_OK;
  }
  if (is_free(n) || at_cost_stays_on_host(t, n)) return AT_OK;
  if (at_cost_profiled(t->profile, n, &given)) {
    *out = (at_cost_time){given, AT_COST_FROM_PROFILE};
    return AT_OK;
  }
  if (at_op_is(n->op, AT_COLLECTIVE)) return collective_node(t, n, out);
  if (n->op == AT_OP_COPY && at_node_attr(n, AT_ATTR_MEMORY_SPACE))
    return at_host_copy_node(t, n, out);
  if (t->host && n->op != AT_OP_SEND && n->op != AT_OP_RECV)
    return kernel_on_host(t, n, out);
  at_gemm g;
  const at_node *product = product_in(n);
  if (product && at_cost_gemm_of(product, &g)) return at_cost_gemm(t, &g, out);
  at_cost_class class = at_op_of(n->op)->cost;
  if (class == AT_COST_HOST || class == AT_COST_NETWORK) {
    *out = (at_cost_time){kForeign * CLASS_UNIT, AT_COST_FROM_CLASS};
    return AT_OK;
  }
  if (class == AT_COST_NONE) return AT_OK;
  if (t->gpu) return kernel_on_gpu(t, n, out);
  if (t->tpu) return kernel_on_tpu(t, n, out);
  return kernel_roofline(t, n, out);
}

at_status at_cost_node(const at_target *t, const at_node *n,
                       at_cost_time *out) {
  AT_TRY(cost_of(t, n, out));
  AT_ASSERT(out->seconds >= 0);  // nor is it NaN
  AT_ASSERT(out->source != AT_COST_FREE || out->seconds == 0);
  return AT_OK;
}
