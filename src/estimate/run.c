// From a program to its estimate: front end, the walk over its computations,
// sums.
#include <math.h>
#include <stdlib.h>

#include "cost/count.h"
#include "estimate/walk.h"
#include "hloproto/hloproto.h"
#include "import/import.h"
#include "mlir/mlir.h"
#include "mosaic/mosaic.h"
#include "passes/passes.h"

static at_status walk_comp(at_est_walk *w, const at_comp *c, double count,
                           uint32_t level, at_est_span *out);

// A linear search: few notes are expected.
at_status at_est_note(at_est_walk *w, const char *text) {
  if (!text) return AT_NO_MEMORY("notes");
  for (size_t i = 0; i < w->notes.len; i++)
    if (!strcmp(w->notes.ptr[i], text)) return AT_OK;
  return at_vec_push(w->arena, &w->notes, text) ? AT_OK : AT_NO_MEMORY("notes");
}

// ---- Texts: "" where there is no memory, which the arena remembers

// The innermost frame that names a file: "train.py:33".
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

// "results <- operands", as types.
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

// See walk.h. Named after the product, if there is one.
at_estimate_op at_est_describe(at_est_walk *w, const at_est_group *g,
                               double count, uint32_t level) {
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
  o.nodes = (uint32_t)g->nodes.len;
  return o;
}

// What a kernel asks for, as it is counted everywhere.
static at_status count_arithmetic(const at_est_group *g, at_counter *counter,
                                  at_estimate_op *o) {
  at_count sum = {0};
  for (size_t i = 0; i < g->nodes.len; i++)
    AT_TRY(at_count_kernel(counter, g->nodes.ptr[i], &sum));
  o->flops = sum.flops;
  o->transcendentals = sum.transcendentals;
  o->again_flops = fmax(0, at_est_flops(g) - sum.flops - sum.transcendentals);
  return AT_OK;
}

// ---- Items of a computation

// Ops that make no kernel; an iota that nobody fused does.
static bool costs_nothing(const at_node *n) {
  return at_op_of(n->op)->cost == AT_COST_NONE &&
         !at_op_is(n->op, AT_CONTROL) && n->op != AT_OP_IOTA;
}

// Adds a loop, around what is walked from now on.
static at_status begin_loop(at_est_walk *w, const at_node *n, double turns) {
  at_estimate_loop loop = {.turns = turns, .parent = w->loop};
  AT_TRY_ALLOC(loop.name,
               at_arena_printf(w->arena, "%s.%u", at_op_text(n->op), n->id));
  if (!at_vec_push(w->arena, &w->loops, loop)) return AT_NO_MEMORY("loops");
  w->loop = (uint32_t)w->loops.len;
  return AT_OK;
}

// The condition of a loop that looks at more than single elements; else the
// time of a turn has it.
static bool asks(const at_comp *condition) {
  AT_FOR_NODES(n, condition) {
    at_count c = at_count_arithmetic(n);
    if (c.flops + c.transcendentals > 0) return true;
  }
  return false;
}

// A loop: its condition and its body once, with the number of turns. Branches:
// the slowest counts, and only its ops are kept. Ops start as in the first
// turn.
static at_status make_control(at_est_walk *w, at_est_item *it,
                              const at_est_residency *r, double count,
                              uint32_t level) {
  const at_node *n = it->group->root;
  double slowest = -1;
  double turns = 1;
  if (n->op == AT_OP_WHILE) {
    bool known;
    turns = at_count_trips(n, &known);
    if (!known)
      AT_TRY(at_est_note(
          w, at_arena_printf(
                 w->arena,
                 "%s.%u: the number of its turns is not known; one is counted",
                 at_op_text(n->op), n->id)));
    if (w->is_tpu) AT_TRY(at_est_enter_loop(w, it, r, count, level));
  }
  double before_it = it->seconds;
  if (before_it > 0 && !at_cost_kernels_put(&w->times, w->arena, n, before_it))
    return AT_NO_MEMORY("times");
  bool is_loop = n->op == AT_OP_WHILE;
  uint32_t around = w->loop;
  at_est_span test = {0};
  if (is_loop) AT_TRY(begin_loop(w, n, turns));
  if (is_loop && asks(n->regions[0]))
    AT_TRY(walk_comp(w, n->regions[0], count * turns, level + 1, &test));
  size_t tests = w->ops.len;
  for (uint32_t k = is_loop ? 1 : 0; k < n->num_regions; k++) {
    size_t before = w->ops.len;
    at_est_span s;
    AT_TRY(walk_comp(w, n->regions[k], count * turns, level + 1, &s));
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
  for (size_t i = it->first_op + it->num_ops; i < w->ops.len; i++)
    w->ops.ptr[i].start += before_it + (i < tests ? 0 : test.seconds);
  double turn = test.seconds + fmax(0, slowest);
  if (is_loop) w->loops.ptr[w->loop - 1].seconds = turn;
  w->loop = around;
  it->seconds += turn * turns;
  it->num_ops = (uint32_t)w->ops.len - it->first_op;
  return AT_OK;
}

// One kernel, collective or control op: its ops, and its time for the
// scheduler.
static at_status make_item(at_est_walk *w, at_est_group *g, at_est_residency *r,
                           double count, uint32_t level, at_est_item *it) {
  *it = (at_est_item){.group = g, .first_op = (uint32_t)w->ops.len};
  const at_node *n = g->root;
  if (at_op_is(n->op, AT_CONTROL)) return make_control(w, it, r, count, level);
  if ((costs_nothing(n) && g->nodes.len <= 1) ||
      at_cost_stays_on_host(w->target, n))
    return AT_OK;
  if (w->is_tpu) AT_TRY(at_est_copies_before(w, g, r, count, level, it));
  at_estimate_op o = at_est_describe(w, g, count, level);
  AT_TRY(count_arithmetic(g, &r->counter, &o));
  double fetched = w->e->prefetch;
  if (at_est_is_sparse(w, n))
    AT_TRY(at_est_cost_sparse(w, n, &o));
  else if (at_est_is_beside(w, n))
    AT_TRY(at_est_cost_network(w, n, &o));
  else if (w->is_tpu)
    AT_TRY(at_est_cost_tpu(w, g, r, &o));
  else
    AT_TRY(at_est_cost_other(w, g, r, &o));
  if (at_cost_profiled(w->target->profile, n, &o.seconds))
    o.from = AT_COST_FROM_PROFILE;
  if (!o.sparse) o.bound = at_est_bound_of(&o);
  o.start = it->seconds;
  it->seconds += o.seconds;
  it->lead = w->e->prefetch - fetched;
  it->network = o.network || o.sparse;
  it->num_ops++;
  if (!at_vec_push(w->arena, &w->ops, o)) return AT_NO_MEMORY("ops");
  if (w->is_tpu) AT_TRY(at_est_copies_after(w, g, r, count, level, it));
  if (o.sparse &&
      !at_cost_kernels_put_sparse(&w->times, w->arena, n, o.seconds))
    return AT_NO_MEMORY("times");
  if (!it->network &&
      !at_cost_kernels_put(&w->times, w->arena, n, it->lead + it->seconds))
    return AT_NO_MEMORY("times");
  return AT_OK;
}

static at_status walk_comp(at_est_walk *w, const at_comp *c, double count,
                           uint32_t level, at_est_span *out) {
  at_est_groups g;
  AT_TRY(at_est_group_nodes(c, w->is_tpu, w->arena, &g));
  uint32_t **last;
  AT_TRY(at_est_last_uses(w, &g, &last));
  at_est_queue q = {at_new(w->arena, at_est_item, g.count + 1), g.count};
  if (!q.items) return AT_NO_MEMORY("timeline");
  at_est_residency r = {
      .w = w,
      .comp = c,
      .counter = {.arena = w->arena},
      .kept = at_map_in(w->arena),
      .prefetched = at_map_in(w->arena),
      .capacity = w->is_tpu ? w->chip.vmem_bytes * w->chip.cores * .8 : 0};
  if (!level) AT_TRY(at_est_memory(w->e, c, w->target, w->arena));
  if (w->target->host)
    AT_TRY(
        at_est_reuse_start(w->target, w->options, w->e, c, w->arena, &r.reuse));
  at_est_start_turn(&r, &g);
  for (uint32_t i = 0; i < g.count; i++) {
    AT_TRY(make_item(w, g.list[i], &r, count, level, &q.items[i]));
    at_est_settle(&r, g.list[i], i, last[i]);
    AT_ASSERT(q.items[i].first_op + q.items[i].num_ops == w->ops.len);
    AT_ASSERT(!(q.items[i].seconds < 0) && !(q.items[i].lead < 0));
    if (r.failed || r.reuse.failed) return AT_NO_MEMORY("values in VMEM");
    r.now += q.items[i].seconds;
  }
  AT_TRY(at_est_run_timeline(w, c, &q, out));
  at_est_expose(w, &q, out->exposed, count);
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

// Sums over the ops, and the range by how far each source of figures can be
// trusted.
static void sum_up(at_est_walk *w, const at_est_span *s) {
  at_estimate *e = w->e;
  double spread = 0, work = 0;
  for (size_t i = 0; i < w->ops.len; i++) {
    const at_estimate_op *o = &w->ops.ptr[i];
    double all = o->seconds * o->count;
    e->flops += o->flops * o->count;
    e->transcendentals += o->transcendentals * o->count;
    e->again_flops += o->again_flops * o->count;
    if (!at_estimate_is_recomputed(o)) e->model_flops += o->flops * o->count;
    e->hbm_bytes += o->hbm_bytes * o->count;
    e->network_bytes += o->network_bytes * o->count;
    e->by_source[o->from] += all;
    if (o->sparse)
      e->sparse += all, e->sparse_exposed += o->exposed;
    else if (o->network)
      e->network += all, e->exposed += o->exposed,
          e->host_link += o->host_link ? all : 0;
    else
      e->kernels += all;
    double seen = o->network || o->sparse ? o->exposed : all;
    work += seen;
    spread += seen * doubt(o->from);
  }
  // Every second has a source, and is of a kernel or beside them.
  double sources = 0, parts = e->kernels + e->network + e->sparse;
  for (int i = 0; i < AT_COST_SOURCE_COUNT; i++) sources += e->by_source[i];
  AT_ASSERT(!(fabs(sources - parts) > 1e-6 * parts));
  AT_ASSERT(!(e->host_link > e->network));
  e->seconds = s->seconds;
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

// Equal starts: what is outside first.
static int by_start(const void *a, const void *b) {
  const at_estimate_op *x = a, *y = b;
  if (x->start != y->start) return x->start < y->start ? -1 : 1;
  return (x->level > y->level) - (x->level < y->level);
}

// ---- Facade

// By its first bytes: hlo text, an HloModuleProto, or MLIR.
static at_status read_program(at_bytes program, at_arena *a, at_module **out) {
  at_str text = {(const char *)program.ptr, program.len};
  if (at_str_starts(text, "hlo module")) return at_hlo_parse(text, a, out);
  if (at_hloproto_is(program))
    return at_hloproto_read(program, AT_HLOPROTO_UNKNOWN, a, out);
  at_mmodule *m;
  AT_TRY(at_mlir_read(program, true, a, &m));
  return at_import(m, a, out);
}

// Reads and optimises the program, unless it is planned, and costs it.
static at_status walk_program(at_est_walk *w, at_bytes program, at_module **out,
                              at_est_span *s) {
  const at_estimate_options *o = w->options;
  at_module *m = o->planned;
  if (!m) AT_TRY(read_program(program, w->arena, &m));
  if (o->num_replicas > 0) m->num_replicas = o->num_replicas;
  if (o->num_partitions > 0) m->num_partitions = o->num_partitions;
  // As JAX compiles: results without a sharding of their own may get one.
  for (uint32_t i = 0; m->results && i < m->entry->num_results; i++)
    if (!m->results[i].sharding) m->results[i].open = true;
  w->is_tpu = !strcmp(w->target->machine->platform, "tpu");
  w->narrow = at_map_in(w->arena);
  w->times.seconds = at_map_in(w->arena);
  w->times.sparse = at_map_in(w->arena);
  if (w->is_tpu) AT_TRY(at_tpu_chip_of(w->target->machine, &w->chip));
  at_pass_options passes = {.fuse = !w->is_tpu,
                            .keep_barriers = w->is_tpu,
                            .placements = true,
                            .fold_budget = 1 << 22};
  if (!o->planned) AT_TRY(at_passes_run(m, &passes, false, NULL, NULL));
  AT_TRY_ALLOC(w->e, at_new(w->arena, at_estimate, 1));
  *out = m;
  return walk_comp(w, m->entry, 1, 0, s);
}

// The same walk; only its times are kept.
at_status at_estimate_module(at_bytes program, at_target *t, at_arena *a,
                             at_module **out) {
  static const at_estimate_options none;
  at_est_walk w = {.arena = a, .target = t, .options = &none};
  at_est_span s;
  at_cost_kernels *times;
  AT_TRY_ALLOC(times, at_new(a, at_cost_kernels, 1));
  AT_TRY(walk_program(&w, program, out, &s));
  *times = w.times;
  t->kernels = times;
  return at_arena_status(a);
}

// See estimate.h. Everything lives in `a`.
at_status at_estimate_run(at_bytes program, const at_estimate_options *o,
                          at_arena *a, at_estimate **out) {
  at_target *target;
  AT_TRY(at_target_parse(at_str_of(o->target), o->mode, a, &target));
  target->profile = o->profile;
  target->bandwidth = o->bandwidth;
  at_est_walk w = {.arena = a, .target = target, .options = o};
  at_module *m;
  at_est_span s;
  AT_TRY(walk_program(&w, program, &m, &s));
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
  AT_TRY(at_est_end_sparse(&w));
  bool sharded = false;
  for (uint32_t i = 0; m->params && i < m->entry->num_params; i++)
    sharded |= m->params[i].sharding && strchr(m->params[i].sharding, '"');
  if (sharded && e->program_devices > 1 && e->network <= 0)
    AT_TRY(at_est_note(
        &w,
        "the program names shardings but holds no collectives: figures "
        "are those "
        "of the whole program on one device"));
  e->notes = w.notes.ptr;
  e->num_notes = (uint32_t)w.notes.len;
  *out = e;
  return at_arena_status(a);
}
