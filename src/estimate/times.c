// The time of one kernel, collective or copy.
#include <math.h>

#include "estimate/walk.h"
#include "mosaic/mosaic.h"
#include "tpu/tpu.h"

// Collectives, and copies between the memories of a device and its host.
bool at_est_is_beside(const at_est_walk *w, const at_node *n) {
  return at_op_is(n->op, AT_COLLECTIVE) ||
         at_cost_host_copy_of(w->target, n) != AT_HOST_COPY_NONE;
}

// Does the kernel model know such a kernel? Of the others only bytes are
// counted, and the report says so.
static bool is_modelled(const at_est_group *g) {
  if (g->product || g->reduces > 0) return true;
  switch (g->root->op) {
    case AT_OP_SORT:
    case AT_OP_TOP_K:
    case AT_OP_SCAN:
    case AT_OP_GATHER:
    case AT_OP_SCATTER:
    case AT_OP_FFT:
    case AT_OP_CHOLESKY:
    case AT_OP_TRIANGULAR_SOLVE:
    case AT_OP_CUSTOM_CALL:
    case AT_OP_RNG:
    case AT_OP_RNG_BIT_GENERATOR:
    case AT_OP_SELECT_AND_SCATTER:
      return false;
    default:
      return true;
  }
}

// Of equal ones matrix comes first, then memory, then vector.
at_bound at_est_bound_of(const at_estimate_op *o) {
  if (o->network) return AT_BOUND_NETWORK;
  double most = fmax(fmax(o->matrix, o->vector), fmax(o->memory, o->latency));
  if (most == o->matrix) return AT_BOUND_MATRIX;
  if (most == o->memory) return AT_BOUND_MEMORY;
  return most == o->vector ? AT_BOUND_VECTOR : AT_BOUND_LATENCY;
}

// Is n computed in the group, but not its root?
static bool computes(const at_est_group *g, const at_node *n) {
  for (size_t i = 0; i < g->nodes.len; i++)
    if (g->nodes.ptr[i] == n) return n != g->root;
  return false;
}

// What a Pallas kernel's operands tell: bounds of its grid that are constants.
static at_status operands_of(const at_node *n, at_arena *a,
                             at_mosaic_given *out) {
  int64_t *bounds;
  const at_literal **constants;
  AT_TRY_ALLOC(bounds, at_new(a, int64_t, n->num_operands + 1));
  AT_TRY_ALLOC(constants, at_new(a, const at_literal *, n->num_operands + 1));
  *out = (at_mosaic_given){.bounds = bounds,
                           .num_bounds = n->num_operands,
                           .constants = constants,
                           .num_constants = n->num_operands};
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value v = at_est_behind(n->operands[i]);
    const at_literal *l = at_node_literal(v.node);
    const at_type *t = at_value_type(v);
    uint8_t class = at_dtype_of(t->dtype)->dclass;
    if (l && (class == AT_CLASS_SINT || class == AT_CLASS_UINT))
      constants[i] = l;
    bounds[i] = l && t->dtype == AT_S32 && !t->rank ? at_literal_int(l, 0) : -1;
  }
  return AT_OK;
}

// And inputs that are made in its windows.
static at_status given_of(at_est_walk *w, const at_est_group *g,
                          at_mosaic_given *out) {
  const at_node *n = g->root;
  at_mosaic_made *made;
  AT_TRY(operands_of(n, w->arena, out));
  AT_TRY_ALLOC(made, at_new(w->arena, at_mosaic_made, n->num_operands + 1));
  out->made = made;
  double bytes = 0;
  for (size_t i = 0; i < g->reads.len; i++) bytes += g->reads.ptr[i].bytes;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value v = at_est_behind(n->operands[i]);
    const at_type *t = at_value_type(v);
    if (computes(g, v.node))
      made[out->num_made++].operand = i;
    else if (at_type_is_static(t))
      bytes -= (double)at_type_bytes(t);
  }
  for (uint32_t i = 0; i < out->num_made; i++) {
    made[i].bytes = fmax(0, bytes) / out->num_made;
    made[i].ops = g->ops / out->num_made;
  }
  return AT_OK;
}

// Bounds of a grid that nobody knows count as the most that shapes allow, or
// with one step. *note: what was guessed; NULL: nothing.
static at_status guess_bounds(const at_mosaic_kernel *k, const at_machine *chip,
                              at_arena *a, at_mosaic_given *given,
                              const char **note) {
  at_mosaic_formula f;
  *note = NULL;
  AT_TRY(at_mosaic_formula_of(k, 0, chip, given, a, &f));
  if (!f.num_bounds) return AT_OK;
  int64_t *bounds;
  uint32_t found;
  AT_TRY(at_mosaic_bounds_at_most(&k->programs[0], given, a, &found));
  AT_TRY_ALLOC(bounds, at_arena_copy(a, given->bounds,
                                     given->num_bounds * sizeof *bounds, 8));
  for (uint32_t i = 0; i < given->num_bounds; i++)
    if (bounds[i] < 0) bounds[i] = 1;
  given->bounds = bounds;
  at_strbuf b = {0};
  at_mosaic_formula_sum(&f, &b);
  const char *sum;
  AT_TRY_ALLOC(sum, at_strbuf_move(&b, a));
  AT_TRY_ALLOC(*note,
               at_arena_printf(
                   a,
                   "Pallas kernel %.80s: how many steps it has is known at run "
                   "time, %s cycles (n0: bound of dimension 0 of its grid); "
                   "counted with %s",
                   k->name, sum,
                   found == f.num_bounds
                       ? "as many as shapes allow"
                       : "one step along each that shapes do not bound"));
  return AT_OK;
}

// The timing of a Pallas kernel for its operands. Errors as at_mosaic_read and
// at_mosaic_timing_of.
static at_status timing_of(const at_node *n, const at_machine *chip,
                           at_mosaic_given *given, at_arena *a,
                           const char **note, at_mosaic_timing **out) {
  at_mosaic_call call;
  at_mosaic_kernel *k;
  AT_TRY(at_mosaic_call_of(n, a, &call));
  AT_TRY(at_mosaic_read(&call, a, &k));
  AT_TRY(guess_bounds(k, chip, a, given, note));
  return at_mosaic_timing_of(k, 0, chip, given, a, out);
}

// A kernel that cannot be read has no FLOPs that are known.
at_status at_estimate_kernel_flops(const at_node *kernel,
                                   const at_machine *chip, at_arena *a,
                                   double *out) {
  at_mosaic_given given;
  at_mosaic_timing *t;
  const char *note;
  *out = 0;
  AT_TRY(operands_of(kernel, a, &given));
  at_status st = timing_of(kernel, chip, &given, a, &note, &t);
  if (at_status_code(st) == AT_RESOURCE_EXHAUSTED) return st;
  if (at_ok(st)) *out = t->flops;
  at_status_free(st);
  return AT_OK;
}

// A Pallas kernel says itself what it does.
static at_status cost_kernel(at_est_walk *w, at_est_group *g,
                             at_estimate_op *o) {
  at_mosaic_timing *t;
  at_mosaic_given given;
  const char *note = NULL;
  AT_TRY(given_of(w, g, &given));
  at_status st =
      timing_of(g->root, w->chip.machine, &given, w->arena, &note, &t);
  if (note) AT_TRY(at_est_note(w, note));
  if (at_status_code(st) == AT_RESOURCE_EXHAUSTED) return st;
  if (!at_ok(st)) {
    const char *why = at_arena_printf(
        w->arena, "a Pallas kernel of which only the bytes are counted: %.200s",
        at_status_message(st));
    at_status_free(st);
    return at_est_note(w, why);
  }
  double s = 1 / t->clock;
  o->seconds = t->seconds;
  o->matrix = t->units.matrix * s;
  o->vector = (t->units.vector + t->units.xlu + t->units.eup) * s;
  o->memory = t->transfer * s;
  o->latency = (t->bubbles + t->waits) * s;
  o->hbm_bytes = t->hbm_bytes;
  at_count said;
  if (!at_count_said(g->root, &said)) o->flops += t->flops;
  o->from = AT_COST_FROM_KERNEL;
  return AT_OK;
}

// The kernel model; a Pallas kernel's own program goes before it.
at_status at_est_cost_tpu(at_est_walk *w, at_est_group *g, at_est_residency *r,
                          at_estimate_op *o) {
  at_est_pin_first(r, g);
  // Two cores share a device's kernels, but not their VMEM: only what a fusion
  // makes for the next kernel stays there.
  r->leaves =
      w->chip.cores < 2 || (!g->product && g->writes.len == 1 && !g->alone);
  at_est_placement p = {at_est_in_vmem, at_est_out_vmem, r};
  at_est_kernel(g, &p, &g->kernel);
  at_tpu_kernel *k = &g->kernel;
  at_est_shuffle shuffle;
  if (at_est_shuffle_of(r, g->root, &shuffle))
    *k = at_est_shuffle_kernel(r, &shuffle, AT_EST_SHUFFLE_MOVE);
  else
    at_tpu_kernel_grid(k, &w->chip, !g->alone);
  at_tpu_cycles c = at_tpu_kernel_cycles(k, &w->chip);
  double s = 1 / w->chip.clock;
  o->seconds = c.total * s;
  o->matrix = c.matrix * s;
  o->vector = c.vector * s;
  o->memory = c.memory * s;
  o->latency = c.latency * s;
  o->hbm_bytes = k->hbm_in + k->hbm_out;
  o->vmem_bytes = k->vmem_in;
  o->from = is_modelled(g) ? AT_COST_FROM_KERNEL : AT_COST_FROM_ROOFLINE;
  if (at_mosaic_is_call(g->root)) return cost_kernel(w, g, o);
  if (g->root->op == AT_OP_CUSTOM_CALL) {
    at_str name = at_node_str(g->root, AT_ATTR_CALL_TARGET_NAME);
    AT_TRY(at_est_note(
        w, at_arena_printf(w->arena,
                           "custom call %.*s: only its bytes are counted",
                           (int)AT_MIN(name.len, (size_t)80), name.ptr)));
  } else if (!is_modelled(g)) {
    AT_TRY(at_est_note(
        w,
        at_arena_printf(w->arena,
                        "%s: there is no basis for the time of this op on a "
                        "TPU; only its bytes are counted, which is too little",
                        at_op_text(g->root->op))));
  }
  return AT_OK;
}

// The host's model: its latency is what neither computes nor moves.
static at_status cost_host(at_est_walk *w, at_est_group *g, at_est_reuse *reuse,
                           at_estimate_op *o) {
  at_host_time t;
  at_host_memory memory = at_est_host_memory(reuse);
  AT_TRY(at_host_node(w->target, g->root, &memory, &t));
  bool product =
      g->root->op == AT_OP_DOT_GENERAL || g->root->op == AT_OP_CONVOLUTION;
  o->seconds = t.total;
  o->from = AT_COST_FROM_HOST;
  o->hbm_bytes = t.bytes;
  *(product ? &o->matrix : &o->vector) = t.compute;
  o->memory = t.memory;
  o->latency = t.total - fmax(t.compute, t.memory);
  return AT_OK;
}

// What cost/cost.h says of the node; it is bound by memory unless it
// multiplies.
at_status at_est_cost_other(at_est_walk *w, at_est_group *g,
                            at_est_residency *r, at_estimate_op *o) {
  if (w->target->host) return cost_host(w, g, &r->reuse, o);
  at_cost_time t;
  AT_TRY(at_cost_node(w->target, g->root, &t));
  o->seconds = t.seconds;
  o->from = t.source;
  for (size_t i = 0; i < g->reads.len; i++)
    o->hbm_bytes += g->reads.ptr[i].bytes;
  for (size_t i = 0; i < g->writes.len; i++)
    o->hbm_bytes += (double)at_type_bytes(at_value_type(g->writes.ptr[i]));
  bool product =
      g->root->op == AT_OP_DOT_GENERAL || g->root->op == AT_OP_CONVOLUTION;
  *(product ? &o->matrix : &o->memory) = t.seconds;
  return AT_OK;
}

// Collectives of a program need the devices that it is for; on a host they
// share it.
static at_status check_devices(const at_est_walk *w, const at_node *n) {
  const at_module *m = n->parent->module;
  int64_t devices = m->num_replicas * m->num_partitions;
  const char *platform = w->target->machine->platform;
  if (devices <= w->target->num_devices || !strcmp(platform, "host"))
    return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "the program is for %lld devices, the target has %u\n"
                 "hint: a larger target, as in v6e:2x4 or H100:8",
                 (long long)devices, w->target->num_devices);
}

// A copy's bytes are its result's.
at_status at_est_cost_network(at_est_walk *w, const at_node *n,
                              at_estimate_op *o) {
  at_collective c;
  bool is;
  at_cost_time t = {0};
  if (at_op_is(n->op, AT_COLLECTIVE)) AT_TRY(check_devices(w, n));
  AT_TRY(at_cost_collective_of(n, w->arena, &is, &c));
  if (is)
    AT_TRY(at_cost_collective(w->target, &c, &t));
  else
    AT_TRY(at_cost_node(w->target, n, &t));
  o->seconds = t.seconds;
  o->from = t.source;
  o->network = true;
  o->host_link = t.source == AT_COST_FROM_HOST_LINK;
  if (is) o->network_bytes = (double)c.bytes;
  if (o->host_link) o->network_bytes = (double)at_type_bytes(&n->types[0]);
  return AT_OK;
}
