#include "schedule/overlap.h"

#include <math.h>

#include "cost/count.h"
#include "schedule/host_pipeline.h"
#include "schedule/schedule.h"

typedef struct walk {
  const at_target *target;
  const at_lhs_options *options;
  at_arena *arena;
  at_overlap *sum;
  double turns;      // of the computation at hand, in one run of the program
  at_strbuf *trace;  // NULL: not asked for
  double now;        // where the computation at hand begins on it
  bool apply;        // the program takes the order that is found
} walk;

typedef struct graph {
  AT_VEC(at_lhs_node) nodes;
  AT_VEC(at_node *) from;  // what each of them is; a collective is two
  AT_VEC(double) given;    // cost with loops as the program has them
  at_map of;  // at_node -> index + 1 of the instruction that has its results
  at_host_pipeline shared;  // copies that a loop's turns share
  double loads, stores;     // seconds of those in a turn
} graph;

typedef AT_VEC(uint32_t) edges;

// Resources after those of the collectives: a link carries both ways at once.
// SparseCores run one call after the other.
enum { COPIES_OUT = AT_COLLECTIVE_COUNT, COPIES_IN, SPARSE_CORES, RESOURCES };

// Seconds of a computation as the program has it, and as it was scheduled.
typedef struct both {
  double before, after;
} both;

static at_status computation(walk *w, at_comp *c, both *seconds);

// The number + 1 of the instruction that has n's results; 0: none in this
// computation.
static uint32_t index_of(const graph *g, const at_node *n) {
  void **at = at_map_find_ptr(&g->of, n);
  return at ? (uint32_t)(uintptr_t)*at : 0;
}

// Adds the instruction of n to e, once.
static at_status add_edge(walk *w, const graph *g, const at_node *n, edges *e) {
  uint32_t i = index_of(g, n);
  for (size_t k = 0; k < e->len && i; k++)
    if (e->ptr[k] == i - 1) i = 0;
  if (i && !at_vec_push(w->arena, e, i - 1)) return AT_NO_MEMORY("schedule");
  return AT_OK;
}

// Everything that the node reads of this computation, also from inside its
// regions.
static at_status add_reads(walk *w, const graph *g, const at_node *n,
                           edges *e) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    AT_TRY(add_edge(w, g, n->operands[i].node, e));
  for (uint32_t r = 0; r < n->num_regions; r++) {
    AT_FOR_NODES(k, n->regions[r]) AT_TRY(add_reads(w, g, k, e));
    for (uint32_t i = 0; i < n->regions[r]->num_results; i++)
      AT_TRY(add_edge(w, g, n->regions[r]->results[i].node, e));
  }
  return AT_OK;
}

// Bytes of device memory that a node's results take.
static int64_t bytes_of(const at_node *n) {
  int64_t sum = 0;
  if (n->op == AT_OP_CONSTANT || n->op == AT_OP_PARAMETER || at_plan_is_view(n))
    return 0;
  for (uint32_t r = 0; r < n->num_results; r++) {
    if (at_cost_on_host((at_value){(at_node *)n, r})) continue;
    size_t b =
        at_type_is_static(&n->types[r]) ? at_type_bytes(&n->types[r]) : 0;
    sum += (int64_t)AT_MIN(b, (size_t)1 << 50);
  }
  return sum;
}

// 1: as early as possible, -1: as late as possible, as the program's frontend
// attributes say.
static int32_t force_of(const at_node *n) {
  const at_attr *a = at_node_attr(n, AT_ATTR_FRONTEND_ATTRIBUTES);
  for (uint32_t i = 0; a && i < a->dict.n; i++) {
    if (!at_str_is(a->dict.kv[2 * i + 1], "true")) continue;
    if (at_str_is(a->dict.kv[2 * i], "force_early")) return 1;
    if (at_str_is(a->dict.kv[2 * i], "force_delay")) return -1;
  }
  return 0;
}

// Appends an instruction that stands for n. `given` is its cost as the program
// has its loops.
static at_status push(walk *w, graph *g, const at_node *n, at_lhs_node x) {
  bool ok = at_vec_push(w->arena, &g->nodes, x) &&
            at_vec_push(w->arena, &g->given, x.cost) &&
            at_vec_push(w->arena, &g->from, (at_node *)n);
  return ok ? AT_OK : AT_NO_MEMORY("schedule");
}

// An op that is asynchronous already is its start alone; the done is a node of
// its own.
static at_status add_done(walk *w, graph *g, const at_node *n, at_lhs_node x) {
  uint32_t start = index_of(g, n->operands[0].node) - 1;
  AT_ASSERT(g->nodes.ptr && start < g->nodes.len);
  const at_lhs_node *s = &g->nodes.ptr[start];
  uint32_t *reads;
  AT_TRY_ALLOC(reads, at_new(w->arena, uint32_t, s->num_reads + 1));
  *reads = start;
  if (s->num_reads) memcpy(reads + 1, s->reads, s->num_reads * sizeof *reads);
  x.kind = AT_LHS_DONE, x.partner = start, x.resource = s->resource;
  x.bytes = s->bytes, x.reads = reads, x.num_reads = s->num_reads + 1;
  g->nodes.ptr[start].partner = (uint32_t)g->nodes.len;
  return push(w, g, n, x);
}

// The done keeps what the start reads, and its results are the start's.
static at_status add_pair(walk *w, graph *g, const at_node *n, at_lhs_node x,
                          uint32_t resource, double seconds) {
  uint32_t start = (uint32_t)g->nodes.len;
  uint32_t *done_reads;
  AT_TRY_ALLOC(done_reads, at_new(w->arena, uint32_t, x.num_reads + 1));
  *done_reads = start;
  if (x.num_reads)
    memcpy(done_reads + 1, x.reads, x.num_reads * sizeof *done_reads);
  at_lhs_node done = {.kind = AT_LHS_DONE,
                      .partner = start,
                      .resource = resource,
                      .force = x.force,
                      .bytes = x.bytes,
                      .reads = done_reads,
                      .num_reads = x.num_reads + 1};
  x.kind = AT_LHS_START, x.partner = start + 1, x.resource = resource;
  x.latency = seconds, x.cost = 0;
  AT_TRY(push(w, g, n, x));
  return at_node_bool(n, AT_ATTR_ASYNC) ? AT_OK : push(w, g, n, done);
}

// A collective as a pair, its latency from the cost model.
static at_status add_collective(walk *w, graph *g, const at_node *n,
                                at_lhs_node x, const at_collective *c) {
  at_cost_time time;
  AT_TRY(at_cost_collective(w->target, c, &time));
  w->sum->collectives++;
  return add_pair(w, g, n, x, c->op, time.seconds);
}

// A copy of the next turn, or of the last one, waits for nothing of this turn,
// and nothing waits for it; its memory is in use all the time.
static at_status add_shared_copy(walk *w, graph *g, const at_node *n,
                                 at_lhs_node x, at_host_copy way,
                                 double seconds) {
  bool out = way == AT_HOST_COPY_OUT;
  x.num_reads = 0;
  x.bytes =
      at_type_is_static(&n->types[0]) ? (int64_t)at_type_bytes(n->types) : 0;
  AT_TRY(add_pair(w, g, n, x, out ? COPIES_OUT : COPIES_IN, seconds));
  g->nodes.ptr[g->nodes.len - 1].output = true;
  *(out ? &g->stores : &g->loads) += seconds;
  return AT_OK;
}

// A copy between the memories of device and host as a pair; those that a loop's
// turns share have no edges.
static at_status add_host_copy(walk *w, graph *g, const at_node *n,
                               at_lhs_node x, at_host_copy way) {
  at_cost_time time;
  AT_TRY(at_cost_node(w->target, n, &time));
  w->sum->host_copies++;
  if (at_host_pipeline_has(&g->shared, n))
    return add_shared_copy(w, g, n, x, way, time.seconds);
  if (way == AT_HOST_COPY_OUT) x.bytes = 0;  // no memory of the device
  return add_pair(w, g, n, x, way == AT_HOST_COPY_OUT ? COPIES_OUT : COPIES_IN,
                  time.seconds);
}

// One node as one or two instructions: pairs for SparseCore calls, collectives
// and host copies, else work. Regions of control flow are scheduled by
// themselves first, and their time is the node's.
static at_status add_node(walk *w, graph *g, const at_node *n,
                          uint32_t *last_effect) {
  edges reads = {0};
  AT_TRY(add_reads(w, g, n, &reads));
  at_lhs_node x = {.bytes = bytes_of(n),
                   .force = force_of(n),
                   .reads = reads.ptr,
                   .num_reads = (uint32_t)reads.len};
  bool is = false;
  at_collective c;
  AT_TRY(at_cost_collective_of(n, w->arena, &is, &c));
  at_host_copy way = at_cost_host_copy_of(w->target, n);
  double sparse =
      w->target->kernels ? at_cost_kernels_sparse_of(w->target->kernels, n) : 0;
  if (sparse > 0) {
    AT_TRY(add_pair(w, g, n, x, SPARSE_CORES, sparse));
  } else if (is) {
    AT_TRY(add_collective(w, g, n, x, &c));
  } else if (way != AT_HOST_COPY_NONE) {
    AT_TRY(add_host_copy(w, g, n, x, way));
  } else if (n->op == AT_OP_ASYNC_DONE &&
             n->operands[0].node->op != AT_OP_CUSTOM_CALL) {
    AT_TRY(add_done(w, g, n, x));
  } else {
    at_cost_time time;
    AT_TRY(at_cost_node(w->target, n, &time));
    x.cost = time.seconds;
    double turns = w->turns, trips = 1;
    both longest = {0};
    at_strbuf *trace = w->trace;
    bool known;
    w->trace = NULL;  // it shows them when their turn has come
    if (n->op == AT_OP_WHILE) trips = at_count_trips(n, &known);
    w->turns *= trips;
    for (uint32_t r = 0; r < n->num_regions && at_has_steps(n); r++) {
      both s;
      AT_TRY(computation(w, n->regions[r], &s));
      // A loop runs both of its regions, a branch the longest of its own.
      bool sum = n->op == AT_OP_WHILE;
      longest.before =
          sum ? longest.before + s.before : fmax(longest.before, s.before);
      longest.after =
          sum ? longest.after + s.after : fmax(longest.after, s.after);
    }
    double given = x.cost + longest.before * trips;
    x.cost += longest.after * trips;
    w->turns = turns, w->trace = trace;
    if (x.cost == 0) x.kind = AT_LHS_NOP;
    bool effect = at_schedule_has_effect(n);
    if (effect && *last_effect) {
      uint32_t *after;
      AT_TRY_ALLOC(after, at_new(w->arena, uint32_t, 1));
      *after = *last_effect - 1;
      x.after = after, x.num_after = 1;
    }
    if (effect) *last_effect = (uint32_t)g->nodes.len + 1;
    AT_TRY(push(w, g, n, x));
    g->given.ptr[g->given.len - 1] = given;
  }
  if (at_host_pipeline_has(&g->shared, n)) return AT_OK;
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(&g->of, n));
  *at = (void *)(uintptr_t)g->nodes.len;
  return AT_OK;
}

// Adds what a computation of `turns` runs takes.
static void add_stats(at_lhs_stats *to, const at_lhs_stats *s, double turns,
                      bool entry) {
  to->exposed += s->exposed * turns;
  to->pairs += s->pairs;
  to->peak = AT_MAX(to->peak, s->peak);
  // The entry's own time holds its loops' times already.
  if (entry) to->seconds = s->seconds;
}

// ---- The program in the order found
// Less work than this share of what there is to hide is not worth a start and a
// done.
static const double kWorthHiding = 0.25;

// Is there enough work between the start at `at` and its done? Both are in the
// order.
static bool is_worth_it(const graph *g, const uint32_t *order, uint32_t at) {
  const at_lhs_node *x = g->nodes.ptr, *start = &x[order[at]];
  double between = 0;
  AT_ASSERT(start->kind == AT_LHS_START && start->partner < g->nodes.len);
  while (order[++at] != start->partner) {
    AT_ASSERT(at + 1 < g->nodes.len);  // the done comes after its start
    between += x[order[at]].cost;
  }
  return between > kWorthHiding * start->latency;
}

at_status at_overlap_split(at_comp *c, at_node *n, at_node **out_done) {
  at_value *results, after = {0};
  AT_TRY_ALLOC(results, at_new(c->module->arena, at_value, n->num_results + 1));
  for (uint32_t r = 0; r < n->num_results; r++) results[r] = (at_value){n, r};
  at_node_desc d = {.op = AT_OP_ASYNC_DONE,
                    .operands = results,
                    .num_operands = n->num_results,
                    .loc = n->loc};
  AT_TRY(at_build(c, NULL, &d, &after.node));
  for (uint32_t r = 0; r < n->num_results; r++) {
    at_replace_uses(c, results[r], (at_value){after.node, r});
    after.node->operands[r] = results[r];
  }
  *out_done = after.node;
  return at_node_set_attr(n, (at_attr){.id = AT_ATTR_ASYNC, .i = 1});
}

// Parameters stay in front; everything else is moved to the end in turn.
static at_status reorder(at_comp *c, const graph *g, const uint32_t *order) {
  for (uint32_t at = 0; at < g->nodes.len; at++) {
    const at_lhs_node *x = &g->nodes.ptr[order[at]];
    at_node *n = g->from.ptr[order[at]];
    if (n->op == AT_OP_PARAMETER) continue;
    if (x->kind != AT_LHS_DONE) at_node_move_before(n, NULL);
    bool async = at_node_bool(n, AT_ATTR_ASYNC);
    if (x->kind == AT_LHS_START && !async && is_worth_it(g, order, at)) {
      at_node *done;
      AT_TRY(at_overlap_split(c, n, &done));
      n->aux = done;
    }
    if (x->kind == AT_LHS_DONE && (async || n->op == AT_OP_ASYNC_DONE))
      at_node_move_before(async ? n->aux : n, NULL);
  }
  return AT_OK;
}

static at_status add_timeline(walk *w, const graph *g, const uint32_t *order);

// Exchanges the costs of loops as scheduled with those of loops as given.
static void swap_costs(graph *g) {
  for (size_t i = 0; i < g->nodes.len; i++) {
    double t = g->nodes.ptr[i].cost;
    g->nodes.ptr[i].cost = g->given.ptr[i], g->given.ptr[i] = t;
  }
}

// The graph of c, in program order. Results of c live to its end.
static at_status make_graph(walk *w, const at_comp *c, graph *g) {
  uint32_t last_effect = 0;
  *g = (graph){.of = at_map_in(w->arena)};
  // A program that runs keeps its copies where they are.
  if (!w->apply)
    AT_TRY(at_host_pipeline_of(c, w->target, w->arena, &g->shared));
  AT_FOR_NODES(n, c) AT_TRY(add_node(w, g, n, &last_effect));
  for (uint32_t i = 0; i < c->num_results; i++) {
    uint32_t k = index_of(g, c->results[i].node);
    if (k) g->nodes.ptr[k - 1].output = true;
  }
  return AT_OK;
}

// The first load and the last store have no turn to hide behind, the first turn
// has no store and the last one no load: each turn gets its part of that.
static void add_ends(const graph *g, at_lhs_stats *s) {
  if (g->shared.turns <= 0 || g->loads + g->stores <= 0) return;
  double work = s->seconds - s->exposed;
  if (work >= fmax(g->loads, g->stores)) work = s->seconds;  // others' waits
  double first = fmin(s->seconds, fmax(work, g->loads));
  double last = fmin(s->seconds, fmax(work, g->stores));
  double more = fmax(0, g->loads + first + last + g->stores - 2 * s->seconds);
  s->seconds += more / g->shared.turns;
  s->exposed += more / g->shared.turns;
}

// Schedules one computation and adds what it takes, before and after.
static at_status computation(walk *w, at_comp *c, both *seconds) {
  graph g;
  uint32_t *order;
  AT_TRY(make_graph(w, c, &g));
  at_lhs_stats before, after;
  uint32_t n = (uint32_t)g.nodes.len;
  swap_costs(&g);
  AT_TRY(at_lhs_simulate(g.nodes.ptr, n, w->options, NULL, w->arena, &before));
  swap_costs(&g);
  AT_TRY(at_lhs_run(g.nodes.ptr, n, w->options, w->arena, &order, &after));
  add_ends(&g, &after);
  bool entry = c == c->module->entry;
  add_stats(&w->sum->before, &before, w->turns, entry);
  add_stats(&w->sum->after, &after, w->turns, entry);
  *seconds = (both){before.seconds, after.seconds};
  if (w->trace) AT_TRY(add_timeline(w, &g, order));
  return w->apply && after.pairs ? reorder(c, &g, order) : AT_OK;
}

// One bar of the timeline; seconds from the beginning of the program.
static void add_event(walk *w, const at_node *n, int lane, double from,
                      double to) {
  at_strbuf_addf(w->trace,
                 "%s{\"name\":\"%s.%u\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,"
                 "\"ts\":%.4f,\"dur\":%.4f}",
                 w->trace->len > 1 ? ",\n" : "", at_op_text(n->op), n->id, lane,
                 from * 1e6, (to - from) * 1e6);
}

// Lane 1 is work; each kind of collective has one.
static at_status add_timeline(walk *w, const graph *g, const uint32_t *order) {
  double *begin, *end;
  AT_TRY(at_lhs_times(g->nodes.ptr, (uint32_t)g->nodes.len, w->options, order,
                      w->arena, &begin, &end));
  for (uint32_t at = 0; at < g->nodes.len; at++) {
    uint32_t i = order[at];
    const at_lhs_node *x = &g->nodes.ptr[i];
    at_node *n = g->from.ptr[i];
    double from = w->now + begin[i], to = w->now + end[i];
    if (x->kind == AT_LHS_START)
      add_event(w, n, 2 + (int)x->resource, from, to);
    if (x->kind != AT_LHS_START && x->cost > 0) add_event(w, n, 1, from, to);
    if (x->cost > 0 && at_has_steps(n)) {
      both seconds;
      walk inner = *w;
      at_overlap ignored = {0};
      inner.now = from, inner.sum = &ignored;
      uint32_t last = n->num_regions - 1;  // a loop's body; of branches, one
      AT_TRY(computation(&inner, n->regions[last], &seconds));
    }
  }
  return AT_OK;
}

// What Perfetto calls the lanes.
static void name_lanes(at_strbuf *trace) {
  at_strbuf_addz(trace,
                 "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":1,"
                 "\"args\":{\"name\":\"work\"}}");
  for (int r = 0; r < RESOURCES; r++)
    at_strbuf_addf(trace,
                   ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,"
                   "\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                   2 + r,
                   r == COPIES_OUT  ? "to host"
                   : r == COPIES_IN ? "from host"
                   : r == SPARSE_CORES
                       ? "SparseCores"
                       : at_collective_text((at_collective_op)r));
}

// Copies under way each way, one moving after the other; the TPU compiler
// starts a layer's five stores and waits for none before the turn's end.
enum { kCopiesInFlight = 24 };

// Collectives of all kinds use the same links, copies one way the same wires to
// the host.
static at_lhs_options on_one_network(const at_lhs_options *options) {
  at_lhs_options o = *options;
  for (int op = 0; op < AT_COLLECTIVE_COUNT; op++) o.link[op] = 1;
  for (int way = COPIES_OUT; way <= COPIES_IN; way++) {
    if (!o.limits[way]) o.limits[way] = kCopiesInFlight;
    o.link[way] = (uint8_t)(2 + way - COPIES_OUT);
    o.in_turn[way] = true;
  }
  return o;
}

at_status at_overlap_trace(const at_module *m, const at_target *t,
                           const at_lhs_options *options, at_arena *a,
                           at_strbuf *out) {
  at_overlap ignored = {0};
  at_lhs_options o = on_one_network(options);
  walk w = {.target = t,
            .options = &o,
            .arena = a,
            .sum = &ignored,
            .turns = 1,
            .trace = out};
  both seconds;
  at_strbuf_addz(out, "[");
  name_lanes(out);
  AT_TRY(computation(&w, m->entry, &seconds));
  at_strbuf_addz(out, "]\n");
  return at_strbuf_status(out);
}

at_lhs_options at_overlap_options(const at_target *t) {
  return (at_lhs_options){
      .reruns = 5,
      .memory_limit = (int64_t)(.8 * at_machine_number(
                                         t->machine, "hbm_bytes_per_chip", 0))};
}

// Of a pair, the transfer is what is placed.
at_status at_overlap_place(const at_comp *c, const at_target *t,
                           const at_lhs_options *options, at_arena *a,
                           at_map *of, double *seconds) {
  at_overlap ignored = {0};
  at_lhs_options o = on_one_network(options);
  walk w = {
      .target = t, .options = &o, .arena = a, .sum = &ignored, .turns = 1};
  graph g;
  at_lhs_stats stats;
  uint32_t *order;
  double *begin, *end;
  AT_TRY(make_graph(&w, c, &g));
  uint32_t n = (uint32_t)g.nodes.len;
  AT_TRY(at_lhs_run(g.nodes.ptr, n, &o, a, &order, &stats));
  AT_TRY(at_lhs_times(g.nodes.ptr, n, &o, order, a, &begin, &end));
  add_ends(&g, &stats);
  *of = at_map_in(a);
  for (uint32_t i = 0; i < n; i++) {
    if (g.nodes.ptr[i].kind == AT_LHS_DONE) continue;
    at_overlap_when *when;
    void **place;
    AT_TRY_ALLOC(when, at_new(a, at_overlap_when, 1));
    *when = (at_overlap_when){begin[i], end[i]};
    AT_TRY_ALLOC(place, at_map_put_ptr(of, g.from.ptr[i]));
    *place = when;
  }
  *seconds = stats.seconds;
  return AT_OK;
}

// The whole program, with collectives on one network.
static at_status run(const at_module *m, walk w, at_overlap *out) {
  at_overlap sum = {0};
  both seconds;
  at_lhs_options o = on_one_network(w.options);
  w.sum = &sum, w.turns = 1, w.options = &o;
  AT_TRY(computation(&w, m->entry, &seconds));
  *out = sum;
  return AT_OK;
}

at_status at_overlap_of(const at_module *m, const at_target *t,
                        const at_lhs_options *options, at_arena *a,
                        at_overlap *out) {
  return run(m, (walk){.target = t, .options = options, .arena = a}, out);
}

at_status at_overlap_apply(at_module *m, const at_target *t,
                           const at_lhs_options *options, at_arena *a,
                           at_overlap *out) {
  walk w = {.target = t, .options = options, .arena = a, .apply = true};
  return run(m, w, out);
}
