// What a kernel needs to know before code is written: digits of its iteration
// space, cost of an element, width of its vectors.
#include "base/cpu.h"
#include "codegen/job.h"

// A fusion's result is computed in its region; a plain node is its own root.
at_value at_node_root(const at_node *n, uint32_t result) {
  return n->op == AT_OP_FUSION ? n->regions[0]->results[result]
                               : (at_value){(at_node *)n, result};
}
// Of the kernels around an update: COPY and FILL write an operand's elements
// into the result, UPDATE those of the update.
at_value at_job_root(const at_job *j, uint32_t i) {
  switch (j->kind) {
    case AT_JOB_COPY:
      return j->node->operands[j->results[i]];
    case AT_JOB_FILL:
      return j->node->operands[2];
    case AT_JOB_UPDATE:
      return j->node->operands[1];
    default:
      break;
  }
  return at_node_root(j->node, j->results[i]);
}

// ---- cuts
// Does each cut divide the next one, and the last one the space?
static bool nests(const at_cuts *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    int64_t above = i + 1 < c->n ? c->at[i + 1] : c->total;
    if (c->at[i] <= 1 || c->at[i] >= above || above % c->at[i]) return false;
  }
  return true;
}

// A cut that does not divide the cuts beside it is left out: digits must nest,
// and an index map that needs it is emitted with divisions instead.
void at_cuts_add(at_cuts *c, int64_t s) {
  if (s <= 1 || s >= c->total || c->total % s || c->n >= AT_CG_MAX_RANK - 1)
    return;
  uint32_t i = 0;
  while (i < c->n && c->at[i] < s) i++;
  if (i < c->n && (c->at[i] == s || c->at[i] % s)) return;
  if (i > 0 && s % c->at[i - 1]) return;
  memmove(c->at + i + 1, c->at + i, (c->n - i) * sizeof *c->at);
  c->at[i] = s;
  c->n++;
  AT_ASSERT(nests(c));
}

// Every dimension of t a digit of its own.
void at_cuts_add_type(at_cuts *c, const at_type *t) {
  int64_t s = 1;
  for (uint32_t d = t->rank; d-- > 1;) at_cuts_add(c, s *= t->dims[d]);
}

// n cuts make n + 1 digits, whose extents multiply to the total.
uint32_t at_cuts_extents(const at_cuts *c, int64_t *extent) {
  int64_t above = c->total;
  uint32_t n = 0;
  for (uint32_t i = c->n; i-- > 0;) {
    extent[n++] = above / c->at[i];
    above = c->at[i];
  }
  extent[n++] = above;
  int64_t all = 1;
  for (uint32_t i = 0; i < n; i++) all *= extent[i];
  AT_ASSERT(all == c->total && n == c->n + 1);
  return n;
}

// A broadcast of one element needs no digit, as every lane has the same.
static bool spreads(const at_node *n) {
  return n->op == AT_OP_BROADCAST_IN_DIM &&
         at_type_elements(at_value_type(n->operands[0])) > 1;
}

// Some value inside the kernel is repeated along a dimension, so where an
// element is in its row matters.
static bool has_broadcast(const at_node *kernel) {
  if (kernel->op != AT_OP_FUSION) return false;
  AT_FOR_NODES(n, kernel->regions[0]) if (spreads(n)) return true;
  return false;
}

// Pads or joins what the kernel computes: broadcasts there, in a space of their
// own, may need any dimension.
static bool moves_computed(const at_node *n) {
  if (n->op != AT_OP_PAD && n->op != AT_OP_CONCATENATE) return false;
  uint32_t parts = n->op == AT_OP_PAD ? 1 : n->num_operands;
  for (uint32_t i = 0; i < parts; i++) {
    const at_node *from = n->operands[i].node;
    while (from->op == AT_OP_SLICE || from->op == AT_OP_RESHAPE)
      from = from->operands[0].node;
    if (from->op != AT_OP_PARAMETER && from->op != AT_OP_CONSTANT) return true;
  }
  return false;
}

// Elements of t's dimensions from d on.
static int64_t elements_from(const at_type *t, uint32_t d) {
  int64_t s = 1;
  for (; d < t->rank; d++) s *= t->dims[d];
  return s;
}

// The minor elements that n, which moves its operands, leaves as they are: so
// far, digits of the operands are digits of the result. 1: none.
static int64_t kept_minor(const at_node *n) {
  const at_type *t = &n->types[0];
  if (n->op == AT_OP_REVERSE) return at_type_elements(t);
  if (n->op == AT_OP_CONCATENATE)
    return elements_from(t, (uint32_t)at_node_int(n, AT_ATTR_DIMENSION, 0) + 1);
  if (n->op != AT_OP_PAD && n->op != AT_OP_SLICE &&
      n->op != AT_OP_DYNAMIC_SLICE)
    return 1;
  const at_type *o = at_value_type(n->operands[0]);
  uint32_t d = t->rank;
  while (d > 0 && t->dims[d - 1] == o->dims[d - 1] &&
         (n->op != AT_OP_PAD ||
          at_node_ints(n, AT_ATTR_EDGE_PADDING_LOW).ptr[d - 1] == 0))
    d--;
  return elements_from(t, d);
}

// A value on the walk: digits of up to `minor` elements are the space's.
typedef struct at_cut_step {
  const at_node *node;
  int64_t minor;
} at_cut_step;

// The digits of n's own index map.
static void add_groups(at_cuts *c, const at_node *n, int64_t minor) {
  at_groups g;
  at_groups_of(n, &g);
  int64_t s = 1;
  for (uint32_t i = g.n; i-- > 1;)
    if ((s *= g.g[i].extent) <= minor) at_cuts_add(c, s);
}

// Goes from v towards the operands, through linear ops and those that leave
// minor dimensions as they are. Behind others the space is a different one, and
// their own index maps say what digits they need. A node is looked at again
// only where more of its digits count than before.
at_status at_cuts_walk(at_cuts *c, at_arena *a, at_value v,
                       const at_node *kernel) {
  at_map seen = at_map_in(a);  // node -> at_cut_step.minor
  AT_VEC(at_cut_step) stack = {0};
  bool broadcast = has_broadcast(kernel);
  if (!at_vec_push(a, &stack, (at_cut_step){v.node, c->total}))
    return AT_NO_MEMORY("fusion analysis");
  while (stack.len) {
    const at_cut_step s = stack.ptr[--stack.len];
    const at_node *n = s.node;
    void **known = at_map_put_ptr(&seen, n);
    if (!known) return AT_NO_MEMORY("fusion analysis");
    if ((int64_t)(intptr_t)*known >= s.minor) continue;
    *known = (void *)(intptr_t)s.minor;
    if (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT) continue;
    bool all = s.minor == c->total;
    int64_t minor = s.minor;
    if (!at_is_linear(n)) {
      if (n->op == AT_OP_REDUCE) {
        if (all) at_cuts_add_type(c, &n->types[0]);
        continue;
      }
      add_groups(c, n, minor);
      if (all && broadcast && moves_computed(n))
        at_cuts_add_type(c, &n->types[0]);
      minor = AT_MIN(minor, kept_minor(n));
      if (minor <= 1) continue;
    }
    // The operands of the kernel's own node are memory.
    for (uint32_t i = 0; n != kernel && i < n->num_operands; i++) {
      const at_type *t = at_value_type(n->operands[i]);
      if (at_is_linear(n) &&
          at_type_elements(t) != at_type_elements(&n->types[0]))
        continue;
      if (at_type_elements(t) % minor) continue;
      if (!at_vec_push(a, &stack, (at_cut_step){n->operands[i].node, minor}))
        return AT_NO_MEMORY("fusion analysis");
    }
  }
  return AT_OK;
}

// The stride, in the transpose's result, of the digit that holds the operand's
// minor dimension. 0: the minor digit itself holds it, so lanes read memory in
// order already.
static int64_t transpose_stride(const at_node *n) {
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  const at_type *t = at_value_type(n->operands[0]);
  int64_t minor = -1, stride = 1;
  for (uint32_t d = 0; d < t->rank; d++)
    if (t->dims[d] != 1) minor = d;
  at_groups g;
  at_groups_of(n, &g);
  for (uint32_t i = g.n; i-- > 0;) {
    bool has = false;
    for (uint32_t d = g.g[i].first; d <= g.g[i].last; d++)
      has = has || perm.ptr[d] == minor;
    if (has) return i + 1 == g.n ? 0 : stride;
    stride *= g.g[i].extent;
  }
  return 0;
}

// The first transpose that a walk like at_cuts_walk's meets decides.
at_status at_cuts_tile(at_arena *a, at_value v, int64_t total,
                       const at_node *kernel, int64_t *stride) {
  at_map seen = at_map_in(a);
  AT_VEC(const at_node *) stack = {0};
  if (!at_vec_push(a, &stack, v.node)) return AT_NO_MEMORY("fusion analysis");
  while (stack.len && *stride == 0) {
    const at_node *n = stack.ptr[--stack.len];
    void **known = at_map_put_ptr(&seen, n);
    if (!known) return AT_NO_MEMORY("fusion analysis");
    if (*known || n->op == AT_OP_PARAMETER) continue;
    *known = (void *)n;
    if (n->op == AT_OP_TRANSPOSE) *stride = transpose_stride(n);
    if (!at_is_linear(n)) continue;
    for (uint32_t i = 0; n != kernel && i < n->num_operands; i++)
      if (at_type_elements(at_value_type(n->operands[i])) == total &&
          !at_vec_push(a, &stack, n->operands[i].node))
        return AT_NO_MEMORY("fusion analysis");
  }
  return AT_OK;
}

// ---- cost
// Narrow floats are f32 in registers; pred is a bit that counts as a byte.
static uint32_t register_bytes(at_dtype t) {
  at_dtype r = at_real_of(t);
  if (r == AT_PRED) return 1;
  if (at_is_float(r)) return r == AT_F64 ? 8 : 4;
  return at_dtype_bytes(r);
}

// For the lanes (widest) and the width of indices (elements).
static void see_type(at_cg_cost *c, const at_type *t) {
  c->widest = AT_MAX(c->widest, register_bytes(t->dtype));
  c->elements = AT_MAX(c->elements, at_type_elements(t));
}

// Elements of a shape.
static int64_t product(at_dims d) {
  int64_t p = 1;
  for (uint32_t i = 0; i < d.rank; i++) p *= d.ptr[i];
  return p;
}

// How often the body of n runs for one element of its result.
static double inner_trips(const at_node *n) {
  const at_type *t = n->num_operands ? at_value_type(n->operands[0]) : NULL;
  int64_t out = AT_MAX(1, at_type_elements(&n->types[0]));
  switch (n->op) {
    case AT_OP_REDUCE:
      return (double)at_type_elements(t) / (double)out;
    case AT_OP_REDUCE_WINDOW:
      return (double)product(at_node_ints(n, AT_ATTR_WINDOW_DIMENSIONS));
    case AT_OP_DOT_GENERAL:
    case AT_OP_RAGGED_DOT: {
      at_dims c = at_node_ints(n, AT_ATTR_LHS_CONTRACTING_DIMENSIONS);
      double k = 1;
      for (uint32_t i = 0; i < c.rank; i++) k *= (double)t->dims[c.ptr[i]];
      return k;
    }
    case AT_OP_CONVOLUTION: {
      const at_type *w = at_value_type(n->operands[1]);
      int64_t f = at_node_int(n, AT_ATTR_KERNEL_OUTPUT_FEATURE_DIMENSION, 0);
      return (double)at_type_elements(w) / (double)AT_MAX(1, w->dims[f]);
    }
    default:
      return 1;
  }
}

// Lanes of the result are rows of the right operand's, so each product loads
// them apart.
static bool gathers_lanes(const at_node *n) {
  const at_type *b = at_value_type(n->operands[1]);
  at_dims rc = at_node_ints(n, AT_ATTR_RHS_CONTRACTING_DIMENSIONS);
  return b->rank > 0 && at_dims_has(rc, b->rank - 1) &&
         at_type_elements(b) > b->dims[b->rank - 1];
}

// Vector operations that one element of n takes, roughly. Narrow floats pay for
// the rounding after each op, complex numbers for four products.
static double weight(const at_node *n) {
  at_dtype t = n->types[0].dtype;
  double w = 1;
  switch (at_op_of(n->op)->cost) {
    case AT_COST_NONE:
      return 0;
    case AT_COST_TRANSCENDENTAL:
      w = n->op == AT_OP_POWER ? 100 : 14;
      break;
    case AT_COST_MEMORY:
      w = n->op == AT_OP_GATHER ? 8 : 1;
      break;
    case AT_COST_MXU:
      w = n->op == AT_OP_DOT_GENERAL && gathers_lanes(n) ? 16 : 2;
      break;
    default:
      break;
  }
  if (n->op == AT_OP_RESHAPE || n->op == AT_OP_BROADCAST_IN_DIM) w = 0.2;
  if (n->op == AT_OP_DIVIDE || n->op == AT_OP_REMAINDER)
    // There is no integer division of vectors.
    w = at_is_int(t) ? 20 : 4;
  if (at_is_float(t) && t != AT_F32 && t != AT_F64)
    w += at_dtype_bytes(t) == 1 ? 20 : 6;
  if (at_is_complex(t)) w *= 4;
  return w;
}

// Where elements are in their rows is no longer a constant for each lane.
static bool shifts(const at_node *n) {
  if (n->op != AT_OP_PAD && n->op != AT_OP_CONCATENATE) return false;
  const at_type *t = &n->types[0], *from = at_value_type(n->operands[0]);
  return t->rank && t->dims[t->rank - 1] != from->dims[t->rank - 1];
}

static at_status add_comp(at_arena *a, const at_comp *comp, double times,
                          at_cg_cost *c);

// n and what its regions do, `times` for each element of the kernel's result.
static at_status add_node(at_arena *a, const at_node *n, double times,
                          at_cg_cost *c) {
  for (uint32_t i = 0; i < n->num_results; i++) see_type(c, &n->types[i]);
  for (uint32_t i = 0; i < n->num_operands; i++)
    see_type(c, at_value_type(n->operands[i]));
  double trips = inner_trips(n) * times;
  double w = weight(n) * (n->num_regions ? times : trips);
  c->ops += w;
  if (n->num_results && register_bytes(n->types[0].dtype) > 4) c->wide_ops += w;
  if (at_op_of(n->op)->cost == AT_COST_TRANSCENDENTAL) c->heavy = true;
  if (shifts(n)) c->shifts = true;
  if (n->op == AT_OP_WHILE || n->op == AT_OP_IF || n->op == AT_OP_CASE ||
      n->op == AT_OP_RAGGED_DOT)
    c->vector = false;
  if (n->op == AT_OP_PARAMETER && !n->parent->owner) return AT_OK;
  for (uint32_t i = 0; i < n->num_regions; i++)
    AT_TRY(add_comp(a, n->regions[i], trips, c));
  return AT_OK;
}

// Regions nest only a few deep (bodies of reductions, of loops in them).
static at_status add_comp(at_arena *a, const at_comp *comp, double times,
                          at_cg_cost *c) {
  AT_FOR_NODES(n, comp) AT_TRY(add_node(a, n, times, c));
  return AT_OK;
}

// A fusion's nodes. What is as large as the largest operand of a reduction
// there is made for each of that operand's elements, `most` of them a result.
static at_status add_fused(at_arena *a, const at_comp *comp, int64_t most,
                           at_cg_cost *c) {
  int64_t reduced = INT64_MAX;
  AT_FOR_NODES(n, comp) {
    int64_t e = n->op == AT_OP_REDUCE
                    ? at_type_elements(at_value_type(n->operands[0]))
                    : 0;
    if (e > most && (reduced == INT64_MAX || e > reduced)) reduced = e;
  }
  AT_FOR_NODES(n, comp) {
    bool inner =
        n->num_results > 0 && at_type_elements(&n->types[0]) >= reduced;
    double times = inner ? (double)reduced / (double)most : 1;
    AT_TRY(add_node(a, n, times, c));
  }
  return AT_OK;
}

// Operand 0 is read in part only.
static bool takes_parts(at_op op) {
  return op == AT_OP_SLICE || op == AT_OP_DYNAMIC_SLICE || op == AT_OP_GATHER;
}

// Bytes that n reads at most: of an operand that is only sliced, the slices.
static at_status bytes_read(at_arena *a, const at_node *n, double *out) {
  *out = 0;
  if (n->op != AT_OP_FUSION) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      *out += i == 0 && takes_parts(n->op)
                  ? (double)at_type_bytes(&n->types[0])
                  : (double)at_type_bytes(at_value_type(n->operands[i]));
    return AT_OK;
  }
  const at_comp *c = n->regions[0];
  at_map params = at_map_in(a);
  double *parts;
  AT_TRY_ALLOC(parts, at_new(a, double, c->num_params + 1));
  for (uint32_t i = 0; i < c->num_params; i++) {
    void **at;
    AT_TRY_ALLOC(at, at_map_put_ptr(&params, c->params[i]));
    *at = &parts[i];
  }
  AT_FOR_NODES(b, c)
  for (uint32_t i = 0; i < b->num_operands; i++) {
    void **at = at_map_find_ptr(&params, b->operands[i].node);
    if (!at) continue;
    bool part = i == 0 && takes_parts(b->op);
    *(double *)*at += (double)at_type_bytes(
        part ? &b->types[0] : at_value_type(b->operands[i]));
  }
  for (uint32_t i = 0; i < c->num_params; i++)
    *out += AT_MIN(parts[i], (double)at_type_bytes(&c->params[i]->types[0]));
  return AT_OK;
}

// Bytes are spread over the elements of the largest result.
at_status at_cg_cost_of(at_arena *a, const at_node *n, at_cg_cost *out) {
  *out = (at_cg_cost){.vector = true, .widest = 1};
  int64_t most = 1;
  for (uint32_t i = 0; i < n->num_results; i++)
    most = AT_MAX(most, at_type_elements(&n->types[i]));
  if (n->op == AT_OP_FUSION)
    AT_TRY(add_fused(a, n->regions[0], most, out));
  else
    AT_TRY(add_node(a, n, 1, out));
  out->shifts &= has_broadcast(n);
  double bytes;
  AT_TRY(bytes_read(a, n, &bytes));
  for (uint32_t i = 0; i < n->num_results; i++)
    bytes += (double)at_type_bytes(&n->types[i]);
  out->touched = bytes;
  out->bytes = bytes / (double)most;
  return AT_OK;
}

// Scalar bodies of elementwise ops work on vectors as they stand; control flow
// does not.
bool at_reducer_vectorizes(const at_comp *c) {
  AT_FOR_NODES(n, c)
  if (n->num_regions || (!at_op_is(n->op, AT_ELEMENTWISE) &&
                         n->op != AT_OP_PARAMETER && n->op != AT_OP_CONSTANT))
    return false;
  return true;
}

// As many elements of the widest type as a vector register holds: 64 bytes with
// AVX-512, else 32. 1: something has no vector form.
uint32_t at_lanes_for(uint64_t cpu, const at_cg_cost *c) {
  if (!c->vector) return 1;
  uint32_t bytes = cpu & AT_CPU_AVX512 ? 64 : 32;
  // A few wide values (an index, say) do not halve the lanes of everything
  // else.
  uint32_t widest = c->widest;
  if (widest == 8 && c->wide_ops < 0.2 * c->ops) widest = 4;
  return AT_MAX(1, bytes / AT_MAX(1, widest));
}

// Nanoseconds a byte for one thread, on average over what a launch touches: as
// much as a cache holds comes at its rate, the rest from the next one. Of the
// last cache others have their part.
static double byte_ns(const at_cg_target *t, double touched) {
  double near = (double)t->near_bytes, last = (double)t->last_bytes / 2;
  double in_near = AT_MIN(touched, near);
  double in_last = AT_MIN(touched - in_near, AT_MAX(0, last - near));
  double beyond = touched - in_near - in_last;
  return (in_near * 0.012 + in_last * 0.025 + beyond * 0.08) /
         AT_MAX(1, touched);
}

// About 0.3 ns a vector operation; only ratios of such numbers decide anything.
double at_cg_cost_ns(const at_cg_target *t, const at_cg_cost *c,
                     uint32_t lanes) {
  return c->ops * 0.3 / AT_MAX(1, lanes) + c->bytes * byte_ns(t, c->touched) +
         0.01;
}

// What takes less than LEAST is one thread's. Else there are some PARTS chunks,
// so that threads end together, neither short ones nor much longer than LEAST.
int64_t at_grain_for(double task_ns, int64_t tasks) {
  enum { LEAST = 20000, SHORT = 4000, PARTS = 8 };
  double all = task_ns * (double)tasks;
  double chunk = AT_MIN(AT_MAX(all / PARTS, SHORT), LEAST);
  if (all <= LEAST) chunk = LEAST;
  double want = chunk / AT_MAX(task_ns, 0.1);
  if (want < 1) return 1;
  if (want > (double)tasks) return AT_MAX(1, tasks);
  // As many chunks, but none of them short.
  return at_ceil_div(tasks, at_ceil_div(tasks, (int64_t)want));
}
