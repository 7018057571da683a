// From a program to its estimate: front end, kernels, their costs, the
// timeline.
#include <math.h>
#include <stdlib.h>

#include "cost/count.h"
#include "estimate/estimate_internal.h"
#include "hloproto/hloproto.h"
#include "import/import.h"
#include "mlir/mlir.h"
#include "mosaic/mosaic.h"
#include "passes/passes.h"

// ---- Items of a timeline

typedef struct item {
  at_est_group *group;
  double seconds;  // of the item, a loop with all its turns
  double start, end;
  bool network, free, done;
  uint32_t lane;  // who is busy with it: the core, the network, a link's way
  uint32_t first_op, num_ops;  // in walk.ops: itself, then what is inside
  AT_VEC(uint32_t) needs;      // items
} item;

typedef struct walk {
  at_arena *arena;
  const at_target *target;
  bool is_tpu;
  at_tpu_chip chip;
  at_estimate *e;
  AT_VEC(at_estimate_op) ops;
  AT_VEC(at_estimate_loop) loops;
  uint32_t loop;  // the innermost around what is walked, index + 1; 0: none
  AT_VEC(const char *) notes;
  const at_estimate_options *options;
} walk;

typedef struct span {
  double seconds, exposed;
} span;

static at_status walk_comp(walk *w, const at_comp *c, double count,
                           uint32_t level, span *out);

static at_status note(walk *w, const char *text) {
  if (!text) return AT_NO_MEMORY("notes");
  for (size_t i = 0; i < w->notes.len; i++)
    if (!strcmp(w->notes.ptr[i], text)) return AT_OK;
  return at_vec_push(w->arena, &w->notes, text) ? AT_OK : AT_NO_MEMORY("notes");
}

// ---- Where operands are (TPU)

typedef struct residency {
  walk *w;
  const at_comp *comp;
  at_map kept;  // values (at_est_key) that a kernel left in VMEM
  double used;  // bytes of VMEM
  double capacity;
  double now;             // seconds of kernels so far
  double fetched;         // when the prefetches so far are done
  at_map prefetched;      // parameters and constants (at_est_key)
  bool failed;            // no memory for one of the maps
  const at_node *pinned;  // brought in before the kernel that is asked about
  at_est_reuse reuse;     // the host's caches
} residency;

static bool is_in(const at_map *m, at_value v) {
  return at_map_find_ptr(m, at_est_key(v)) != NULL;
}

// False when it was there already, or there is no memory for it.
static bool put_in(residency *r, at_map *m, at_value v) {
  void **place = at_map_put_ptr(m, at_est_key(v));
  r->failed |= !place;
  if (!place || *place) return false;
  *place = v.node;
  return true;
}

static double tiled(at_value v) {
  const at_type *t = at_value_type(v);
  if (!at_type_is_static(t)) return 0;
  return at_tpu_compact_tiles(at_type_dims(t), NULL) *
         at_tpu_tile_bytes(t->dtype);
}

// A parameter is prefetched while earlier kernels run, where there was time and
// room.
static bool prefetch(residency *r, at_value v) {
  if (is_in(&r->prefetched, v)) return true;
  double bytes = tiled(v);
  double takes = bytes / r->w->chip.hbm_rate / r->w->chip.clock;
  if (bytes > r->capacity - r->used || r->fetched + takes > r->now)
    return false;
  r->fetched += takes;
  if (put_in(r, &r->prefetched, v)) r->used += bytes;
  return true;
}

static bool in_vmem(void *user, at_value v) {
  residency *r = user;
  if (v.node == r->pinned || is_in(&r->kept, v)) return true;
  if (v.node->op == AT_OP_PARAMETER || v.node->op == AT_OP_CONSTANT)
    return prefetch(r, v);
  return false;
}

static bool is_result(const residency *r, at_value v) {
  for (uint32_t i = 0; i < r->comp->num_results; i++)
    if (at_value_eq(at_est_behind(r->comp->results[i]), v)) return true;
  return false;
}

static bool out_vmem(void *user, at_value v) {
  residency *r = user;
  if (!r->comp->owner && is_result(r, v)) return false;
  return tiled(v) <= r->capacity - r->used;
}

// The operand that the compiler brings in ahead of the program's first
// contraction or reduction: the largest that fits.
static void pin_first(residency *r, const at_est_group *g) {
  r->pinned = NULL;
  if (r->now > 0 || !(g->product || g->reduces > 0)) return;
  double best = 0;
  for (size_t i = 0; i < g->reads.len; i++) {
    at_value v = g->reads.ptr[i].value;
    if (v.node->op != AT_OP_PARAMETER || tiled(v) > r->capacity) continue;
    if (tiled(v) > best) best = tiled(v), r->pinned = v.node;
  }
  double takes = best / r->w->chip.hbm_rate / r->w->chip.clock;
  r->fetched += takes;
  if (!r->comp->owner) r->w->e->prefetch += takes;
}

static void settle(residency *r, const at_est_group *g, uint32_t index,
                   const uint32_t *last_use) {
  for (size_t i = 0; i < g->writes.len; i++) {
    at_value v = g->writes.ptr[i];
    if (out_vmem(r, v) && put_in(r, &r->kept, v)) r->used += tiled(v);
  }
  for (size_t i = 0; i < g->reads.len; i++) {
    at_value v = g->reads.ptr[i].value;
    bool here = is_in(&r->kept, v) || is_in(&r->prefetched, v);
    if (here && last_use[i] == index) r->used = fmax(0, r->used - tiled(v));
  }
}

// ---- One kernel

// Of a timeline; host_copy is its way's lane.
enum { CORE_LANE, NETWORK_LANE, HOST_LANES, LANES = HOST_LANES + 3 };

static uint32_t lane_of(const walk *w, const at_node *n) {
  if (at_op_is(n->op, AT_COLLECTIVE)) return NETWORK_LANE;
  at_host_copy way = at_cost_host_copy_of(w->target, n);
  return way == AT_HOST_COPY_NONE ? CORE_LANE : HOST_LANES + (uint32_t)way;
}

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

static at_bound bound_of(const at_estimate_op *o) {
  if (o->network) return AT_BOUND_NETWORK;
  double most = fmax(fmax(o->matrix, o->vector), fmax(o->memory, o->latency));
  if (most == o->matrix) return AT_BOUND_MATRIX;
  if (most == o->memory) return AT_BOUND_MEMORY;
  return most == o->vector ? AT_BOUND_VECTOR : AT_BOUND_LATENCY;
}

static bool computes(const at_est_group *g, const at_node *n) {
  for (size_t i = 0; i < g->nodes.len; i++)
    if (g->nodes.ptr[i] == n) return n != g->root;
  return false;
}

// What a Pallas kernel's operands tell: bounds of its grid that are constants,
// and inputs that are made in its windows.
static at_status given_of(walk *w, const at_est_group *g,
                          const at_mosaic_call *call, at_mosaic_given *out) {
  const at_node *n = g->root;
  int64_t *bounds;
  at_mosaic_made *made;
  AT_TRY_ALLOC(bounds, at_new(w->arena, int64_t, n->num_operands + 1));
  AT_TRY_ALLOC(made, at_new(w->arena, at_mosaic_made, n->num_operands + 1));
  *out = (at_mosaic_given){bounds, n->num_operands, made, 0};
  double bytes = 0;
  for (size_t i = 0; i < g->reads.len; i++) bytes += g->reads.ptr[i].bytes;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_value v = at_est_behind(n->operands[i]);
    const at_literal *l = at_node_literal(v.node);
    const at_type *t = at_value_type(v);
    bounds[i] = l && t->dtype == AT_S32 && !t->rank ? at_literal_int(l, 0) : -1;
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
// with one step.
static at_status guess_bounds(walk *w, const at_mosaic_kernel *k,
                              at_mosaic_given *given) {
  at_mosaic_formula f;
  AT_TRY(at_mosaic_formula_of(k, 0, w->chip.machine, given, w->arena, &f));
  if (!f.num_bounds) return AT_OK;
  int64_t *bounds;
  uint32_t found;
  AT_TRY(at_mosaic_bounds_at_most(&k->programs[0], given, w->arena, &found));
  AT_TRY_ALLOC(bounds, at_arena_copy(w->arena, given->bounds,
                                     given->num_bounds * sizeof *bounds, 8));
  for (uint32_t i = 0; i < given->num_bounds; i++)
    if (bounds[i] < 0) bounds[i] = 1;
  given->bounds = bounds;
  at_strbuf b = {0};
  at_mosaic_formula_sum(&f, &b);
  const char *sum;
  AT_TRY_ALLOC(sum, at_strbuf_move(&b, w->arena));
  const char *text = at_arena_printf(
      w->arena,
      "Pallas kernel %.80s: how many steps it has is known at run time, %s "
      "cycles (n0: bound of dimension 0 of its grid); counted with %s",
      k->name, sum,
      found == f.num_bounds ? "as many as shapes allow"
                            : "one step along each that shapes do not bound");
  return note(w, text);
}

// A Pallas kernel says itself what it does.
static at_status cost_kernel(walk *w, at_est_group *g, at_estimate_op *o) {
  at_mosaic_call call;
  at_mosaic_kernel *k;
  at_mosaic_timing *t;
  at_mosaic_given given;
  AT_TRY(at_mosaic_call_of(g->root, w->arena, &call));
  AT_TRY(given_of(w, g, &call, &given));
  at_status st = at_mosaic_read(&call, w->arena, &k);
  if (at_ok(st)) st = guess_bounds(w, k, &given);
  if (at_ok(st))
    st = at_mosaic_timing_of(k, 0, w->chip.machine, &given, w->arena, &t);
  if (at_status_code(st) == AT_RESOURCE_EXHAUSTED) return st;
  if (!at_ok(st)) {
    const char *why = at_arena_printf(
        w->arena, "a Pallas kernel of which only the bytes are counted: %.200s",
        at_status_message(st));
    at_status_free(st);
    return note(w, why);
  }
  double s = 1 / t->clock;
  o->seconds = t->seconds;
  o->matrix = t->units.matrix * s;
  o->vector = (t->units.vector + t->units.xlu) * s;
  o->memory = t->transfer * s;
  o->latency = (t->bubbles + t->waits) * s;
  o->hbm_bytes = t->hbm_bytes;
  o->flops = t->flops + (given.num_made ? at_est_flops(g) : 0);
  o->from = AT_COST_FROM_KERNEL;
  return AT_OK;
}

static at_status cost_tpu(walk *w, at_est_group *g, residency *r,
                          at_estimate_op *o) {
  pin_first(r, g);
  at_est_placement p = {in_vmem, out_vmem, r};
  at_est_kernel(g, &p, &g->kernel);
  at_tpu_kernel *k = &g->kernel;
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
    AT_TRY(note(w, at_arena_printf(
                       w->arena, "custom call %.*s: only its bytes are counted",
                       (int)AT_MIN(name.len, (size_t)80), name.ptr)));
  } else if (!is_modelled(g)) {
    AT_TRY(note(w, at_arena_printf(
                       w->arena,
                       "%s: there is no basis for the time of this op on a "
                       "TPU; only its bytes are counted, which is too little",
                       at_op_text(g->root->op))));
  }
  return AT_OK;
}

static at_status cost_host(walk *w, at_est_group *g, at_est_reuse *reuse,
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

static at_status cost_other(walk *w, at_est_group *g, residency *r,
                            at_estimate_op *o) {
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
static at_status check_devices(const walk *w, const at_node *n) {
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

static at_status cost_network(walk *w, const at_node *n, at_estimate_op *o) {
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

// ---- Texts: "" where there is no memory, which the arena remembers

const char *at_est_source(at_arena *a, const at_loc *loc) {
  while (loc && !loc->file && loc->caller) loc = loc->caller;
  if (!loc || !loc->file) return "";
  const char *text = at_arena_printf(a, "%s:%u", loc->file, loc->line);
  return text ? text : "";
}

const char *at_est_type(at_arena *a, const at_type *t) {
  at_strbuf b = {0};
  at_type_print(&b, t);
  const char *text = at_strbuf_move(&b, a);
  return text ? text : "";
}

static const char *detail_of(at_arena *a, const at_est_group *g) {
  at_strbuf b = {0};
  for (size_t i = 0; i < g->writes.len; i++) {
    if (i) at_strbuf_addz(&b, ", ");
    at_type_print(&b, at_value_type(g->writes.ptr[i]));
  }
  for (size_t i = 0; i < g->reads.len; i++) {
    at_strbuf_addz(&b, i ? ", " : " <- ");
    at_type_print(&b, at_value_type(g->reads.ptr[i].value));
  }
  const char *text = at_strbuf_move(&b, a);
  return text ? text : "";
}

static at_estimate_op describe(walk *w, const at_est_group *g, double count,
                               uint32_t level) {
  const at_node *n = g->product ? g->product : g->root;
  const char *name =
      at_arena_printf(w->arena, "%s.%u", at_op_text(n->op), n->id);
  at_estimate_op o = {.name = name ? name : "",
                      .count = count,
                      .level = level,
                      .loop = w->loop};
  o.detail = detail_of(w->arena, g);
  o.source = at_est_source(w->arena, n->loc);
  o.scope = n->loc && n->loc->name ? n->loc->name : "";
  if (!at_mosaic_is_call(g->root)) o.flops = at_est_flops(g);
  o.nodes = (uint32_t)g->nodes.len;
  return o;
}

// ---- Items of a computation

static bool costs_nothing(const at_node *n) {
  return at_op_of(n->op)->cost == AT_COST_NONE &&
         !at_op_is(n->op, AT_CONTROL) && n->op != AT_OP_IOTA;
}

static at_status enter_loop(walk *w, const at_node *n, double turns) {
  at_estimate_loop loop = {.turns = turns, .parent = w->loop};
  AT_TRY_ALLOC(loop.name,
               at_arena_printf(w->arena, "%s.%u", at_op_text(n->op), n->id));
  if (!at_vec_push(w->arena, &w->loops, loop)) return AT_NO_MEMORY("loops");
  w->loop = (uint32_t)w->loops.len;
  return AT_OK;
}

static at_status make_control(walk *w, item *it, double count, uint32_t level) {
  const at_node *n = it->group->root;
  it->free = true;
  double slowest = -1;
  double turns = 1;
  if (n->op == AT_OP_WHILE) {
    bool known;
    turns = at_count_trips(n, &known);
    if (!known)
      AT_TRY(note(
          w, at_arena_printf(
                 w->arena,
                 "%s.%u: the number of its turns is not known; one is counted",
                 at_op_text(n->op), n->id)));
  }
  uint32_t first = n->op == AT_OP_WHILE ? 1 : 0, around = w->loop;
  if (first) AT_TRY(enter_loop(w, n, turns));
  for (uint32_t r = first; r < n->num_regions; r++) {
    size_t before = w->ops.len;
    span s;
    AT_TRY(walk_comp(w, n->regions[r], count * turns, level + 1, &s));
    if (s.seconds <= slowest) {
      w->ops.len = before;  // a branch that is not the slowest
      continue;
    }
    if (slowest >= 0) {
      size_t kept = w->ops.len - before;
      memmove(w->ops.ptr + it->first_op, w->ops.ptr + before,
              kept * sizeof *w->ops.ptr);
      w->ops.len = it->first_op + kept;
    }
    slowest = s.seconds;
  }
  if (first) w->loops.ptr[w->loop - 1].seconds = fmax(0, slowest);
  w->loop = around;
  it->seconds = fmax(0, slowest) * turns;
  it->num_ops = (uint32_t)w->ops.len - it->first_op;
  return AT_OK;
}

// Copies around a kernel that the program does not show: a parameter that the
// caller keeps is copied before it is updated in place, and images change
// layout around a convolution.
typedef struct copying {
  at_value v;
  double read, written;  // bytes in HBM or, of `read` in VMEM, there
  bool from_vmem;
  double tiles, relaid;
} copying;

static copying copy_of(at_value v, bool from_vmem, bool to_vmem) {
  double bytes = tiled(v);
  const at_type *t = at_value_type(v);
  return (copying){.v = v,
                   .read = bytes,
                   .written = to_vmem ? 0 : bytes,
                   .from_vmem = from_vmem,
                   .tiles = at_tpu_compact_tiles(at_type_dims(t), NULL)};
}

static at_status push_copy(walk *w, const copying *p, const at_est_group *g,
                           double count, uint32_t level, item *it) {
  const at_type *t = at_value_type(p->v);
  at_tpu_kernel k = {.kind = AT_TPU_COPY, .operand_bytes = 4, .repeat = 1};
  k.tiles = k.out_tiles = p->tiles;
  *(p->from_vmem ? &k.vmem_in : &k.hbm_in) = p->read;
  k.hbm_out = p->written;
  k.relaid = p->relaid;
  if (at_dtype_of(t->dtype)->bits < 32) k.narrow_tiles = k.tiles;
  at_tpu_kernel_grid(&k, &w->chip, true);
  at_tpu_cycles c = at_tpu_kernel_cycles(&k, &w->chip);
  double s = 1 / w->chip.clock;
  at_estimate_op o = describe(w, g, count, level);
  const char *name = at_arena_printf(w->arena, "copy for %s", o.name);
  o.name = name ? name : "copy";
  o.detail = at_est_type(w->arena, t);
  o.flops = 0;
  o.nodes = 0;
  o.start = it->seconds;
  o.seconds = c.total * s;
  o.memory = c.memory * s;
  o.latency = c.latency * s;
  o.hbm_bytes = k.hbm_in + k.hbm_out;
  o.vmem_bytes = k.vmem_in;
  o.from = AT_COST_FROM_KERNEL;
  o.bound = bound_of(&o);
  it->seconds += o.seconds;
  it->num_ops++;
  return at_vec_push(w->arena, &w->ops, o) ? AT_OK : AT_NO_MEMORY("ops");
}

static bool is_kept_parameter(const walk *w, const residency *r, at_value v) {
  v = at_est_behind(v);
  if (v.node->op != AT_OP_PARAMETER || r->comp->owner) return false;
  const at_io_info *info = r->comp->module->params;
  for (uint32_t i = 0; info && i < r->comp->num_params; i++)
    if (r->comp->params[i] == v.node)
      return !info[i].donor && info[i].alias < 0;
  return true;
}

// How a convolution sees an image: its batch, pixels and channels, and whether
// the kernel has more than one tap. A batch lies along the sublanes; one that
// does not fill them is filled with parts of the images.
enum { kWhole = 14 };  // images of this width are not cut into parts
typedef struct image {
  double batch, pixels, channels, width;
  bool taps, split;
} image;

static image image_of(const at_node *conv, const at_type *t, at_attr_id batch,
                      at_attr_id feature, at_attr_id spatial) {
  image m = {.pixels = 1, .width = 1};
  at_dims s = at_node_ints(conv, spatial);
  const at_type *kernel = at_value_type(conv->operands[1]);
  at_dims ks = at_node_ints(conv, AT_ATTR_KERNEL_SPATIAL_DIMENSIONS);
  m.batch = (double)t->dims[at_node_int(conv, batch, 0)];
  m.channels = (double)t->dims[at_node_int(conv, feature, 0)];
  for (uint32_t i = 0; i < s.rank; i++) {
    m.width = (double)t->dims[s.ptr[i]];
    m.pixels *= m.width;
  }
  for (uint32_t i = 0; i < ks.rank; i++) m.taps |= kernel->dims[ks.ptr[i]] > 1;
  m.split = m.batch < 8 && s.rank == 2 && m.width > kWhole;
  return m;
}

static at_status push_copies(walk *w, const copying *p, uint32_t times,
                             const at_est_group *g, double count,
                             uint32_t level, item *it) {
  copying inner = *p;
  inner.from_vmem = true, inner.written = 0;
  for (uint32_t i = 1; i < times; i++)
    AT_TRY(push_copy(w, &inner, g, count, level, it));
  return push_copy(w, p, g, count, level, it);
}

// Images of few channels are laid out with the batch along the lanes.
static at_status image_before(walk *w, at_est_group *g, double count,
                              uint32_t level, item *it) {
  at_value v = at_est_behind(g->product->operands[0]);
  if (v.node->op != AT_OP_PARAMETER) return AT_OK;
  const at_type *t = at_value_type(g->product->operands[0]);
  image m = image_of(g->product, t, AT_ATTR_INPUT_BATCH_DIMENSION,
                     AT_ATTR_INPUT_FEATURE_DIMENSION,
                     AT_ATTR_INPUT_SPATIAL_DIMENSIONS);
  copying p = copy_of(v, false, true);
  if (m.channels >= 8)
    return m.split ? push_copies(w, &p, m.taps ? 3 : 1, g, count, level, it)
                   : AT_OK;
  double half = m.pixels * ceil(m.batch / 128);  // tiles of 4 x 128
  double wide = at_dtype_of(t->dtype)->bits >= 32 ? 1.5 : 1;
  if (m.split) half /= 2, wide = 1;  // parts of the images fill the lanes
  p.written = half * ceil(m.channels / 4) * 4 * 128 * 2 * wide;
  return push_copy(w, &p, g, count, level, it);
}

static at_status image_after(walk *w, at_est_group *g, residency *r,
                             double count, uint32_t level, item *it) {
  if (!g->writes.len || !is_result(r, g->writes.ptr[0])) return AT_OK;
  at_value v = g->writes.ptr[0];
  const at_type *t = at_value_type(v);
  if (t->rank != g->product->types[0].rank) return AT_OK;
  image m = image_of(g->product, t, AT_ATTR_OUTPUT_BATCH_DIMENSION,
                     AT_ATTR_OUTPUT_FEATURE_DIMENSION,
                     AT_ATTR_OUTPUT_SPATIAL_DIMENSIONS);
  copying p = copy_of(v, tiled(v) <= r->capacity - r->used, false);
  if (m.split) return push_copies(w, &p, m.taps ? 3 : 2, g, count, level, it);
  // Rows that fill the sublanes are the layout that results have.
  if (fmod(m.width, 8) > 0) return AT_OK;
  return push_copy(w, &p, g, count, level, it);
}

// A transpose between two reshapes: the arrays around them have layouts of
// their own, which do not hold the dimensions that it moves.
static at_value around(const residency *r, const at_node *transpose,
                       bool after) {
  at_value v = {0};
  const at_node *from = transpose->operands[0].node;
  if (from->op != AT_OP_RESHAPE) return v;
  if (!after) return at_est_behind(transpose->operands[0]);
  AT_FOR_NODES(n, r->comp)
  if (n->op == AT_OP_RESHAPE && n->operands[0].node == transpose)
    v = (at_value){(at_node *)n, 0};
  return v;
}

static at_status reshaped(walk *w, at_est_group *g, residency *r, bool after,
                          double count, uint32_t level, item *it) {
  at_value v = around(r, g->root, after);
  if (!v.node) return AT_OK;
  copying p = copy_of(v, after, !after);
  p.relaid = p.tiles;
  return push_copy(w, &p, g, count, level, it);
}

static at_status copies_before(walk *w, at_est_group *g, residency *r,
                               double count, uint32_t level, item *it) {
  const at_node *n = g->root;
  if (at_est_updates(n) && is_kept_parameter(w, r, n->operands[0])) {
    copying p = copy_of(at_est_behind(n->operands[0]), false, false);
    AT_TRY(push_copy(w, &p, g, count, level, it));
  }
  if (n->op == AT_OP_TRANSPOSE)
    AT_TRY(reshaped(w, g, r, false, count, level, it));
  if (!g->product || g->product->op != AT_OP_CONVOLUTION) return AT_OK;
  return image_before(w, g, count, level, it);
}

static at_status copies_after(walk *w, at_est_group *g, residency *r,
                              double count, uint32_t level, item *it) {
  if (g->root->op == AT_OP_TRANSPOSE)
    AT_TRY(reshaped(w, g, r, true, count, level, it));
  if (!g->product || g->product->op != AT_OP_CONVOLUTION) return AT_OK;
  return image_after(w, g, r, count, level, it);
}

static at_status make_item(walk *w, at_est_group *g, residency *r, double count,
                           uint32_t level, item *it) {
  *it = (item){.group = g, .first_op = (uint32_t)w->ops.len};
  const at_node *n = g->root;
  if (at_op_is(n->op, AT_CONTROL)) return make_control(w, it, count, level);
  if ((costs_nothing(n) && g->nodes.len <= 1) ||
      at_cost_stays_on_host(w->target, n)) {
    it->free = true;
    return AT_OK;
  }
  if (w->is_tpu) AT_TRY(copies_before(w, g, r, count, level, it));
  at_estimate_op o = describe(w, g, count, level);
  it->lane = lane_of(w, n);
  if (it->lane != CORE_LANE)
    AT_TRY(cost_network(w, n, &o));
  else if (w->is_tpu)
    AT_TRY(cost_tpu(w, g, r, &o));
  else
    AT_TRY(cost_other(w, g, r, &o));
  if (at_cost_profiled(w->target->profile, n, &o.seconds))
    o.from = AT_COST_FROM_PROFILE;
  o.bound = bound_of(&o);
  o.start = it->seconds;
  it->seconds += o.seconds;
  it->network = o.network;
  it->num_ops++;
  if (!at_vec_push(w->arena, &w->ops, o)) return AT_NO_MEMORY("ops");
  return w->is_tpu ? copies_after(w, g, r, count, level, it) : AT_OK;
}

// ---- Timeline: one core, one network; any op starts when its operands are
// there

typedef struct queue {
  item *items;
  uint32_t count;
} queue;

static double ready_at(const queue *q, const item *it) {
  double at = 0;
  for (size_t i = 0; i < it->needs.len; i++) {
    const item *n = &q->items[it->needs.ptr[i]];
    if (!n->done) return INFINITY;
    at = fmax(at, n->end);
  }
  return at;
}

// The next item: what can start first; at the same time the one that comes
// first. A window bounds how far ahead of program order an item may run.
enum { kWindow = 256 };
static uint32_t pick(const queue *q, uint32_t from, const double *free_at) {
  uint32_t best = UINT32_MAX;
  double earliest = INFINITY;
  for (uint32_t i = from, seen = 0; i < q->count && seen < kWindow; i++) {
    const item *it = &q->items[i];
    if (it->done) continue;
    seen++;
    double at = ready_at(q, it);
    if (at == INFINITY) continue;
    if (!it->free || it->seconds > 0) at = fmax(at, free_at[it->lane]);
    if (at < earliest) earliest = at, best = i;
  }
  return best;
}

static span run_timeline(walk *w, queue *q) {
  double free_at[LANES] = {0}, busy = 0, end = 0;
  uint32_t from = 0;
  for (uint32_t done = 0; done < q->count; done++) {
    while (from < q->count && q->items[from].done) from++;
    uint32_t i = pick(q, from, free_at);
    if (i == UINT32_MAX) i = from;  // never, in a graph without cycles
    item *it = &q->items[i];
    double at = ready_at(q, it);
    if (at == INFINITY) at = free_at[CORE_LANE];
    if (it->seconds > 0) at = fmax(at, free_at[it->lane]);
    it->start = at;
    it->end = at + it->seconds;
    it->done = true;
    if (it->network || it->seconds > 0) free_at[it->lane] = it->end;
    if (!it->network && it->seconds > 0) busy += it->seconds;
    end = fmax(end, it->end);
    for (uint32_t o = 0; o < it->num_ops; o++)
      w->ops.ptr[it->first_op + o].start += it->start;
  }
  return (span){end, end - busy};
}

// Shares the time in which only the network works among its ops.
static void expose(walk *w, const queue *q, double exposed, double count) {
  double network = 0;
  for (uint32_t i = 0; i < q->count; i++)
    if (q->items[i].network) network += q->items[i].seconds;
  if (network <= 0) return;
  for (uint32_t i = 0; i < q->count; i++) {
    const item *it = &q->items[i];
    if (!it->network) continue;
    double alone = it->seconds;
    for (uint32_t j = 0; j < q->count; j++) {
      const item *other = &q->items[j];
      if (other->network || other->seconds <= 0) continue;
      alone -=
          fmax(0, fmin(it->end, other->end) - fmax(it->start, other->start));
    }
    w->ops.ptr[it->first_op].exposed = fmax(0, fmin(alone, exposed)) * count;
  }
}

typedef struct linking {
  walk *w;
  const at_est_groups *groups;
  const at_map *index;  // group -> item + 1
  item *it;
  uint32_t i;  // of it
} linking;

static at_status need(linking *l, at_value v) {
  void **g = at_map_find_ptr(&l->groups->of, at_est_behind(v).node);
  void **at = g ? at_map_find_ptr(l->index, *g) : NULL;
  uint32_t needed = at ? (uint32_t)(uintptr_t)*at - 1 : l->i;
  if (needed == l->i) return AT_OK;
  return at_vec_push(l->w->arena, &l->it->needs, needed)
             ? AT_OK
             : AT_NO_MEMORY("needs");
}

// A region uses values of the computation around it as they are.
static at_status need_inside(linking *l, const at_node *n) {
  for (uint32_t r = 0; r < n->num_regions; r++) {
    const at_comp *c = n->regions[r];
    AT_FOR_NODES(inner, c) {
      for (uint32_t o = 0; o < inner->num_operands; o++)
        AT_TRY(need(l, inner->operands[o]));
      AT_TRY(need_inside(l, inner));
    }
    for (uint32_t o = 0; o < c->num_results; o++)
      AT_TRY(need(l, c->results[o]));
  }
  return AT_OK;
}

static at_status link(walk *w, const at_est_groups *groups, queue *q,
                      uint32_t i, const at_map *index) {
  linking l = {w, groups, index, &q->items[i], i};
  const at_est_group *g = l.it->group;
  for (size_t r = 0; r < g->reads.len; r++)
    AT_TRY(need(&l, g->reads.ptr[r].value));
  return at_op_is(g->root->op, AT_CONTROL) ? need_inside(&l, g->root) : AT_OK;
}

// For each operand of each kernel: the last kernel that reads it.
static at_status last_uses(walk *w, const at_est_groups *g, uint32_t ***out) {
  at_map last = at_map_in(w->arena);
  AT_TRY_ALLOC(*out, at_new(w->arena, uint32_t *, g->count + 1));
  for (uint32_t i = 0; i < g->count; i++)
    for (size_t r = 0; r < g->list[i]->reads.len; r++) {
      void **place;
      AT_TRY_ALLOC(
          place,
          at_map_put_ptr(&last, at_est_key(g->list[i]->reads.ptr[r].value)));
      *place = (void *)(uintptr_t)i;
    }
  for (uint32_t i = 0; i < g->count; i++) {
    AT_TRY_ALLOC((*out)[i],
                 at_new(w->arena, uint32_t, g->list[i]->reads.len + 1));
    for (size_t r = 0; r < g->list[i]->reads.len; r++)
      (*out)[i][r] = (uint32_t)(uintptr_t)*at_map_find_ptr(
          &last, at_est_key(g->list[i]->reads.ptr[r].value));
  }
  return AT_OK;
}

static at_status walk_comp(walk *w, const at_comp *c, double count,
                           uint32_t level, span *out) {
  at_est_groups g;
  AT_TRY(at_est_group_nodes(c, w->is_tpu, w->arena, &g));
  uint32_t **last;
  AT_TRY(last_uses(w, &g, &last));
  queue q = {at_new(w->arena, item, g.count + 1), g.count};
  if (!q.items) return AT_NO_MEMORY("timeline");
  residency r = {
      .w = w,
      .comp = c,
      .kept = at_map_in(w->arena),
      .prefetched = at_map_in(w->arena),
      .capacity = w->is_tpu ? w->chip.vmem_bytes * w->chip.cores * .8 : 0};
  if (!level) AT_TRY(at_est_memory(w->e, c, w->target, true, w->arena));
  if (w->target->host)
    AT_TRY(
        at_est_reuse_start(w->target, w->options, w->e, c, w->arena, &r.reuse));
  at_map index = at_map_in(w->arena);
  for (uint32_t i = 0; i < g.count; i++) {
    AT_TRY(make_item(w, g.list[i], &r, count, level, &q.items[i]));
    settle(&r, g.list[i], i, last[i]);
    if (r.failed || r.reuse.failed) return AT_NO_MEMORY("values in VMEM");
    r.now += q.items[i].seconds;
    void **place;
    AT_TRY_ALLOC(place, at_map_put_ptr(&index, g.list[i]));
    *place = (void *)(uintptr_t)(i + 1);
  }
  for (uint32_t i = 0; i < q.count; i++) AT_TRY(link(w, &g, &q, i, &index));
  *out = run_timeline(w, &q);
  expose(w, &q, out->exposed, count);
  return AT_OK;
}

// ---- Sums

// Relative half width of the range, by where a figure comes from.
static double doubt(at_cost_source s) {
  switch (s) {
    case AT_COST_FREE:
    case AT_COST_FROM_ATTRIBUTE:
    case AT_COST_FROM_PROFILE:
      return .02;
    case AT_COST_FROM_TABLE:
    case AT_COST_FROM_KERNEL:
      return .10;
    case AT_COST_FROM_FALLBACK:
    case AT_COST_FROM_FUSION:
    case AT_COST_FROM_HOST:
      return .25;
    default:
      return .40;
  }
}

static void sum_up(walk *w, const span *s) {
  at_estimate *e = w->e;
  double spread = 0, work = 0;
  for (size_t i = 0; i < w->ops.len; i++) {
    const at_estimate_op *o = &w->ops.ptr[i];
    double all = o->seconds * o->count;
    e->flops += o->flops * o->count;
    if (!at_estimate_is_recomputed(o)) e->model_flops += o->flops * o->count;
    e->hbm_bytes += o->hbm_bytes * o->count;
    e->network_bytes += o->network_bytes * o->count;
    e->by_source[o->from] += all;
    if (o->network)
      e->network += all, e->exposed += o->exposed,
          e->host_link += o->host_link ? all : 0;
    else
      e->kernels += all;
    double seen = o->network ? o->exposed : all;
    work += seen;
    spread += seen * doubt(o->from);
  }
  e->seconds = s->seconds + e->prefetch;
  double half = work > 0 ? spread / work : 0;
  e->low = e->seconds * (1 - half);
  e->high = e->seconds * (1 + half);
  e->peak_flops = at_machine_number(w->target->machine,
                                    "bf16_flops_per_second_per_chip", 0) /
                  AT_MAX(1u, w->target->devices_per_chip);
  e->hbm_rate = w->is_tpu ? w->chip.hbm_rate * w->chip.clock : 0;
  if (e->peak_flops > 0 && e->seconds > 0) {
    e->mfu = e->model_flops / (e->seconds * e->peak_flops);
    e->hfu = e->flops / (e->seconds * e->peak_flops);
  }
}

static int by_start(const void *a, const void *b) {
  const at_estimate_op *x = a, *y = b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return (x->level > y->level) - (x->level < y->level);
}

// ---- Facade

static at_status read_program(at_bytes program, at_arena *a, at_module **out) {
  at_str text = {(const char *)program.ptr, program.len};
  if (at_str_starts(text, "hlo module")) return at_hlo_parse(text, a, out);
  if (at_hloproto_is(program))
    return at_hloproto_read(program, AT_HLOPROTO_UNKNOWN, a, out);
  at_mmodule *m;
  AT_TRY(at_mlir_read(program, true, a, &m));
  return at_import(m, a, out);
}

at_status at_estimate_run(at_bytes program, const at_estimate_options *o,
                          at_arena *a, at_estimate **out) {
  at_target *target;
  AT_TRY(at_target_parse(at_str_of(o->target), o->mode, a, &target));
  target->profile = o->profile;
  target->bandwidth = o->bandwidth;
  at_module *m = o->planned;
  if (!m) AT_TRY(read_program(program, a, &m));
  if (o->num_replicas > 0) m->num_replicas = o->num_replicas;
  if (o->num_partitions > 0) m->num_partitions = o->num_partitions;
  // As JAX compiles: results without a sharding of their own may get one.
  for (uint32_t i = 0; m->results && i < m->entry->num_results; i++)
    if (!m->results[i].sharding) m->results[i].open = true;
  walk w = {.arena = a,
            .target = target,
            .options = o,
            .is_tpu = !strcmp(target->machine->platform, "tpu")};
  if (w.is_tpu) AT_TRY(at_tpu_chip_of(target->machine, &w.chip));
  at_pass_options passes = {
      .fuse = !w.is_tpu, .placements = true, .fold_budget = 1 << 22};
  if (!o->planned) AT_TRY(at_passes_run(m, &passes, false, NULL, NULL));
  AT_TRY_ALLOC(w.e, at_new(a, at_estimate, 1));
  span s;
  AT_TRY(walk_comp(&w, m->entry, 1, 0, &s));
  sum_up(&w, &s);
  at_estimate *e = w.e;
  e->program = m->name ? m->name : "program";
  AT_TRY_ALLOC(e->target, at_arena_str(a, at_str_of(o->target)));
  e->machine = target->machine->name;
  e->num_devices = target->num_devices;
  e->program_devices = (uint32_t)(m->num_replicas * m->num_partitions);
  if (w.ops.len) qsort(w.ops.ptr, w.ops.len, sizeof *w.ops.ptr, by_start);
  e->ops = w.ops.ptr;
  e->num_ops = (uint32_t)w.ops.len;
  e->loops = w.loops.ptr;
  e->num_loops = (uint32_t)w.loops.len;
  e->notes = w.notes.ptr;
  e->num_notes = (uint32_t)w.notes.len;
  bool sharded = false;
  for (uint32_t i = 0; m->params && i < m->entry->num_params; i++)
    sharded |= m->params[i].sharding && strchr(m->params[i].sharding, '"');
  if (sharded && e->program_devices > 1 && e->network <= 0)
    AT_TRY(note(&w,
                "the program names shardings but holds no collectives: figures "
                "are those "
                "of the whole program on one device"));
  e->notes = w.notes.ptr;
  e->num_notes = (uint32_t)w.notes.len;
  *out = e;
  return at_arena_status(a);
}
