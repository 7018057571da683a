// Where the values of a program live: buffers of one device, in the target's
// layout. Arguments and results have their memory all the time; what lies
// between them is stored from the kernel that writes it to the last that reads
// it, on TPUs in VMEM where it fits and is not waited for too long.
#include <math.h>
#include <stdlib.h>

#include "cost/count.h"
#include "estimate/memory_internal.h"
#include "schedule/place.h"

enum { kBuffersShown = 20 };

// Of a TPU: whole tiles; a scalar takes 512 bytes.
uint64_t at_est_padded(const at_target *t, const at_type *type) {
  if (!at_type_is_static(type)) return 0;
  if (strcmp(t->machine->platform, "tpu")) return at_type_bytes(type);
  double tiles = at_tpu_compact_tiles(at_type_dims(type), NULL);
  double bytes = tiles * at_tpu_tile_bytes(type->dtype);
  return bytes > 0 ? (uint64_t)bytes : type->rank ? 0 : 512;
}

uint64_t at_est_on_device(const lives *l, at_value v) {
  return at_cost_on_host(v) ? 0 : at_est_padded(l->target, at_value_type(v));
}

// Copies from the host go to HBM as they are.
bool at_est_is_from_host(const lives *l, const at_node *n) {
  return at_cost_host_copy_of(l->target, n) == AT_HOST_COPY_IN;
}

// Half where a TPU stores f32 as bf16: what products alone read.
static uint64_t stored_bytes(const lives *l, at_value v) {
  const at_type *t = at_value_type(v);
  uint64_t bytes = at_est_on_device(l, v);
  bool narrow = l->uses && t->dtype == AT_F32 && t->rank &&
                !at_est_is_from_host(l, v.node) &&
                at_map_find_ptr(&l->uses->read, at_est_key(v)) &&
                at_est_only_products(l->uses, v);
  return narrow ? bytes / 2 : bytes;
}

// A value that is stored, which at_est_live_of finds from now on.
static at_status add(lives *l, live x) {
  void **place;
  if (!at_vec_push(l->arena, &l->list, x)) return AT_NO_MEMORY("buffers");
  AT_TRY_ALLOC(place, at_map_put_ptr(&l->of, at_est_key(x.value)));
  *place = (void *)(uintptr_t)l->list.len;
  return AT_OK;
}

live *at_est_live_of(const lives *l, at_value v) {
  void **place = at_map_find_ptr(&l->of, at_est_key(at_est_behind(v)));
  return place ? &l->list.ptr[(uintptr_t)*place - 1] : NULL;
}

// ---- Who reads what

// Group `group` reads v; once for each.
static at_status read(lives *l, at_value v, uint32_t group) {
  live *x = at_est_live_of(l, v);
  if (!x || x->writer == group) return AT_OK;
  for (size_t r = x->readers.len; r-- > 0;)
    if (x->readers.ptr[r] == group) return AT_OK;
  uint32_t index = (uint32_t)(x - l->list.ptr);
  if (!at_vec_push(l->arena, &x->readers, group) ||
      !at_vec_push(l->arena, &l->reads[group], index))
    return AT_NO_MEMORY("readers");
  return AT_OK;
}

// Regions read for the op that they belong to.
static at_status read_regions(lives *l, const at_node *n, uint32_t group) {
  for (uint32_t r = 0; r < n->num_regions; r++) {
    AT_FOR_NODES(inner, n->regions[r]) {
      for (uint32_t o = 0; o < inner->num_operands; o++)
        AT_TRY(read(l, inner->operands[o], group));
      AT_TRY(read_regions(l, inner, group));
    }
    for (uint32_t o = 0; o < n->regions[r]->num_results; o++)
      AT_TRY(read(l, n->regions[r]->results[o], group));
  }
  return AT_OK;
}

// Loop state and updates in place take over an operand's memory: which operand
// the result of that index does; false: none.
static bool takes_over(const at_node *n, uint32_t result, at_value *operand) {
  bool state =
      n->op == AT_OP_WHILE || n->op == AT_OP_SCATTER || n->op == AT_OP_SORT;
  if (!state && n->op != AT_OP_DYNAMIC_UPDATE_SLICE) return false;
  if (result >= n->num_operands) return false;
  *operand = at_est_behind(n->operands[result]);
  return true;
}

// Whose results may take memory over: the kernel's last node, and arrays that
// it puts something into on the way.
static bool writes_in_place(const at_est_group *g, const at_node *n) {
  return n == g->root || n->op == AT_OP_DYNAMIC_UPDATE_SLICE;
}

// Do all uses of v by the group end in results that take its memory over? It
// is gone when the group runs, then.
static bool is_taken(const at_est_group *g, at_value v) {
  uint32_t uses = 0, taken = 0;
  for (size_t i = 0; i < g->nodes.len; i++) {
    const at_node *n = g->nodes.ptr[i];
    at_value from;
    for (uint32_t o = 0; o < n->num_operands; o++)
      uses += at_value_eq(at_est_behind(n->operands[o]), v);
    for (uint32_t r = 0; writes_in_place(g, n) && r < n->num_results; r++)
      taken += takes_over(n, r, &from) && at_value_eq(from, v);
  }
  return taken == 1 && uses == 1;
}

static bool is_body(const at_comp *c) {
  return c->owner && c->owner->op == AT_OP_WHILE && c == c->owner->regions[1];
}

// What is given: arguments, or the state of a loop.
static at_status add_given(lives *l) {
  const at_comp *c = l->comp;
  const at_io_info *infos = c->owner ? NULL : c->module->params;
  for (uint32_t i = 0; i < c->num_params; i++) {
    bool donated =
        is_body(c) || (infos && (infos[i].donor || infos[i].alias >= 0));
    at_value v = {c->params[i], 0};
    AT_TRY(add(l, (live){.value = v,
                         .argument = true,
                         .kept = !donated,
                         .writer = UINT32_MAX,
                         .bytes = at_est_on_device(l, v)}));
  }
  return AT_OK;
}

// Constants that are not made where they are used lie there all the time.
static at_status add_constants(lives *l) {
  for (uint32_t k = 0; k < l->groups.count; k++) {
    const at_est_group *g = l->groups.list[k];
    for (size_t r = 0; r < g->reads.len; r++) {
      at_value v = g->reads.ptr[r].value;
      if (v.node->op != AT_OP_CONSTANT || at_est_live_of(l, v)) continue;
      AT_TRY(add(l, (live){.value = v,
                           .bytes = at_est_on_device(l, v),
                           .kept = true,
                           .writer = UINT32_MAX}));
    }
  }
  return AT_OK;
}

// What is given, constants, what kernels write; then who reads it.
static at_status collect(lives *l) {
  uint32_t count = l->groups.count;
  AT_TRY_ALLOC(l->reads, at_new(l->arena, indices, count + 1));
  AT_TRY(add_given(l));
  AT_TRY(add_constants(l));
  for (uint32_t k = 0; k < count; k++) {
    const at_est_group *g = l->groups.list[k];
    for (size_t w = 0; w < g->writes.len; w++) {
      live x = {.value = g->writes.ptr[w], .writer = k};
      x.bytes = stored_bytes(l, x.value);
      x.narrow = x.bytes < at_est_on_device(l, x.value);
      AT_TRY(add(l, x));
    }
  }
  for (uint32_t k = 0; k < count; k++) {
    const at_est_group *g = l->groups.list[k];
    for (size_t r = 0; r < g->reads.len; r++)
      AT_TRY(read(l, g->reads.ptr[r].value, k));
    if (at_op_is(g->root->op, AT_CONTROL)) AT_TRY(read_regions(l, g->root, k));
  }
  for (uint32_t r = 0; r < l->comp->num_results; r++) {
    live *x = at_est_live_of(l, l->comp->results[r]);
    if (x) x->output = true;
  }
  return AT_OK;
}

// What becomes a result of the program is made in the result's memory.
static void pass_on(lives *l, const at_est_group *g, at_node *n) {
  for (uint32_t r = 0; r < n->num_results; r++) {
    at_value from;
    const live *to = at_est_live_of(l, (at_value){n, r});
    if (!to || !to->output || !takes_over(n, r, &from)) continue;
    live *x = at_est_live_of(l, from);
    if (x && !x->argument && x->readers.len == 1 && is_taken(g, from))
      x->output = true;
  }
}

// Where memory is tight, an elementwise kernel that writes a result works on
// what it alone reads in the result's memory.
static void pass_back(lives *l, const at_est_group *g) {
  if (g->product || g->reduces > 0 || g->writes.len != 1 ||
      !at_op_is(g->root->op, AT_ELEMENTWISE))
    return;
  const live *to = at_est_live_of(l, g->writes.ptr[0]);
  for (size_t r = 0; to && to->output && r < g->reads.len; r++) {
    live *x = at_est_live_of(l, g->reads.ptr[r].value);
    if (!x || x->argument || x->kept || x->output || x->readers.len != 1 ||
        x->bytes != to->bytes)
      continue;
    x->output = true;
    return;
  }
}

// From the last kernel to the first: what ends in a result's memory is not a
// temporary.
static void pass_outputs_on(lives *l) {
  if (l->comp->owner) return;
  for (uint32_t k = l->groups.count; k-- > 0;) {
    const at_est_group *g = l->groups.list[k];
    if (l->tight) pass_back(l, g);
    for (size_t i = g->own.len; i-- > 0;)
      if (writes_in_place(g, g->own.ptr[i])) pass_on(l, g, g->own.ptr[i]);
  }
}

// State that a loop only reads, and state that was a donated argument, is where
// it was.
static void share_with(lives *l, at_node *n) {
  for (uint32_t r = 0; r < n->num_results; r++) {
    at_value from;
    live *to = at_est_live_of(l, (at_value){n, r});
    if (!to || to->relaid || !takes_over(n, r, &from)) continue;
    const live *x = at_est_live_of(l, from);
    if (!x) continue;
    const at_comp *body = n->op == AT_OP_WHILE ? n->regions[1] : NULL;
    bool same = body && at_value_eq(at_est_behind(body->results[r]),
                                    (at_value){body->params[r], 0});
    bool donated = x->argument && !x->kept && x->readers.len == 1;
    if (same || donated) to->bytes = 0;
  }
}

// For all kernels: which results take no memory of their own.
static void share_state(lives *l) {
  for (uint32_t k = 0; k < l->groups.count; k++) {
    const at_est_group *g = l->groups.list[k];
    for (size_t i = 0; i < g->own.len; i++)
      if (writes_in_place(g, g->own.ptr[i])) share_with(l, g->own.ptr[i]);
  }
}

// ---- In which order kernels run

bool at_est_is_temporary(const lives *l, const live *x) {
  return !x->argument && !(x->output && !l->comp->owner);
}

// Bytes that live longer once group k has run.
static int64_t growth(const lives *l, uint32_t k) {
  const at_est_group *g = l->groups.list[k];
  int64_t sum = 0;
  for (size_t w = 0; w < g->writes.len; w++) {
    const live *x = at_est_live_of(l, g->writes.ptr[w]);
    if (at_est_is_temporary(l, x)) sum += (int64_t)x->bytes;
  }
  for (size_t r = 0; r < l->reads[k].len; r++) {
    const live *x = &l->list.ptr[l->reads[k].ptr[r]];
    if (x->uses == 1 && at_est_is_temporary(l, x) && !x->kept && !x->output)
      sum -= (int64_t)x->bytes;
  }
  return sum;
}

// The walk that orders kernels.
typedef struct ordering {
  lives *l;
  uint32_t *waits;  // of each group: values it needs that are not there
  bool *done;
  uint32_t count;
  indices next;  // groups that may shrink what lives
} ordering;

// May run as soon as nothing is missing.
static at_status propose(ordering *o, uint32_t k) {
  return at_vec_push(o->l->arena, &o->next, k) ? AT_OK
                                               : AT_NO_MEMORY("an order");
}

// k runs next. Its readers may be ready then, and the last readers of what it
// read.
static at_status run_group(ordering *o, uint32_t k) {
  lives *l = o->l;
  const at_est_group *g = l->groups.list[k];
  AT_ASSERT(!o->done[k] && !o->waits[k]);
  o->done[k] = true;
  l->step[k] = o->count;
  l->order[o->count++] = k;
  for (size_t w = 0; w < g->writes.len; w++) {
    const live *x = at_est_live_of(l, g->writes.ptr[w]);
    for (size_t r = 0; r < x->readers.len; r++)
      if (--o->waits[x->readers.ptr[r]] == 0)
        AT_TRY(propose(o, x->readers.ptr[r]));
  }
  for (size_t r = 0; r < l->reads[k].len; r++) {
    live *x = &l->list.ptr[l->reads[k].ptr[r]];
    if (--x->uses != 1) continue;
    for (size_t i = 0; i < x->readers.len; i++)
      if (!o->done[x->readers.ptr[i]]) AT_TRY(propose(o, x->readers.ptr[i]));
  }
  return AT_OK;
}

// As the program has them, but what frees as much as it writes runs as soon as
// it can: updates of weights when their gradients are there.
static at_status order_groups(lives *l) {
  uint32_t count = l->groups.count;
  ordering o = {.l = l};
  AT_TRY_ALLOC(o.waits, at_new(l->arena, uint32_t, count + 1));
  AT_TRY_ALLOC(o.done, at_new(l->arena, bool, count + 1));
  AT_TRY_ALLOC(l->order, at_new(l->arena, uint32_t, count + 1));
  AT_TRY_ALLOC(l->step, at_new(l->arena, uint32_t, count + 1));
  for (uint32_t k = 0; k < count; k++)
    for (size_t r = 0; r < l->reads[k].len; r++)
      o.waits[k] += l->list.ptr[l->reads[k].ptr[r]].writer != UINT32_MAX;
  for (size_t i = 0; i < l->list.len; i++)
    l->list.ptr[i].uses = (uint32_t)l->list.ptr[i].readers.len;
  for (uint32_t k = 0; k < count; k++) {
    if (!o.done[k]) AT_TRY(run_group(&o, k));
    while (l->tpu && o.next.len) {
      uint32_t n = o.next.ptr[--o.next.len];
      if (!o.done[n] && !o.waits[n] && growth(l, n) <= 0)
        AT_TRY(run_group(&o, n));
    }
  }
  AT_ASSERT(o.count == count);
  return AT_OK;
}

// ---- When values live

// In steps, both inclusive. What a kernel takes over is gone before its step.
static void set_times(lives *l) {
  uint32_t count = l->groups.count;
  for (size_t i = 0; i < l->list.len; i++) {
    live *x = &l->list.ptr[i];
    bool given = x->writer == UINT32_MAX;
    x->born = x->dies = given ? 0 : l->step[x->writer];
    for (size_t r = 0; r < x->readers.len; r++) {
      uint32_t k = x->readers.ptr[r], s = l->step[k];
      AT_ASSERT(given || s > x->born);
      bool taken = s && is_taken(l->groups.list[k], x->value);
      if (taken) s--;
      x->dies = AT_MAX(x->dies, s);
    }
    if (x->output || x->kept) x->dies = count;
  }
}

// A copy from the host begins as soon as what it copies is there.
static void start_copies(lives *l) {
  for (uint32_t s = 0; l->tpu && s < l->groups.count; s++) {
    at_node *n = l->groups.list[l->order[s]]->root;
    live *x =
        at_est_is_from_host(l, n) ? at_est_live_of(l, (at_value){n, 0}) : NULL;
    const live *from = x ? at_est_live_of(l, n->operands[0]) : NULL;
    if (!from) continue;
    x->born = from->writer == UINT32_MAX ? 0 : l->step[from->writer];
  }
}

// Does what the kernel's product multiplies need v? Looks at each node once.
static at_status feeds_product(const at_est_group *g, at_value v, at_arena *a,
                               bool *out) {
  AT_VEC(at_node *) open = {0};
  at_map inside = at_map_in(a);  // node of the kernel -> itself; NULL: seen
  void **place;
  *out = false;
  for (size_t i = 0; i < g->nodes.len; i++) {
    AT_TRY_ALLOC(place, at_map_put_ptr(&inside, g->nodes.ptr[i]));
    *place = g->nodes.ptr[i];
  }
  if (!at_vec_push(a, &open, g->product)) return AT_NO_MEMORY("operands");
  while (open.len && !*out) {
    const at_node *n = open.ptr[--open.len];
    for (uint32_t o = 0; o < n->num_operands; o++) {
      at_value from = at_est_behind(n->operands[o]);
      if (at_value_eq(from, v)) *out = true;
      place = at_map_find_ptr(&inside, from.node);
      if (!place || !*place) continue;
      *place = NULL;
      if (!at_vec_push(a, &open, from.node)) return AT_NO_MEMORY("operands");
    }
  }
  return AT_OK;
}

// The new state of a loop goes where the old one was, unless that is needed
// still: loops, reductions, and products of it write before they have read all.
// What only follows from a product adds to the state in place.
static at_status reuse_state(lives *l) {
  if (!is_body(l->comp)) return AT_OK;
  for (uint32_t r = 0; r < l->comp->num_results; r++) {
    live *x = at_est_live_of(l, l->comp->results[r]);
    const live *old = at_est_live_of(l, (at_value){l->comp->params[r], 0});
    if (!x || !old || x->argument || x->born < old->dies) continue;
    const at_est_group *g = l->groups.list[x->writer];
    bool at_once = (!g->reduces && !at_op_is(g->root->op, AT_CONTROL)) ||
                   x->value.node->op == AT_OP_DYNAMIC_UPDATE_SLICE;
    if (x->born == old->dies && at_once && g->product &&
        x->value.node->op != AT_OP_DYNAMIC_UPDATE_SLICE) {
      bool multiplied;
      AT_TRY(feeds_product(g, old->value, l->arena, &multiplied));
      at_once = !multiplied;
    }
    if (x->born > old->dies || at_once) x->bytes = 0;
  }
  return AT_OK;
}

// ---- Inside of loops and branches

static at_status measure(const at_comp *c, const at_target *t, uses *u,
                         bool tight, at_arena *a, lives *out);

// Lives of the regions of each step.
static at_status look_inside(lives *l) {
  uint32_t count = l->groups.count;
  AT_TRY_ALLOC(l->inside, at_new(l->arena, lives *, count + 1));
  for (uint32_t k = 0; k < count; k++) {
    const at_node *n = l->groups.list[l->order[k]]->root;
    if (!at_op_is(n->op, AT_CONTROL) || !n->num_regions) continue;
    AT_TRY_ALLOC(l->inside[k], at_new(l->arena, lives, n->num_regions));
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(measure(n->regions[r], l->target, l->uses, l->tight, l->arena,
                     &l->inside[k][r]));
  }
  return AT_OK;
}

// Roofline of a kernel; only relations between these matter.
static double seconds_of(const lives *l, uint32_t k) {
  const at_est_group *g = l->groups.list[k];
  double bytes = 0;
  for (size_t r = 0; r < g->reads.len; r++) bytes += g->reads.ptr[r].bytes;
  for (size_t w = 0; w < g->writes.len; w++)
    bytes += (double)at_est_live_of(l, g->writes.ptr[w])->bytes;
  return fmax(bytes / l->rate, at_est_flops(g) / l->flops);
}

static at_status measure(const at_comp *c, const at_target *t, uses *u,
                         bool tight, at_arena *a, lives *l) {
  *l = (lives){.comp = c,
               .uses = u,
               .target = t,
               .tight = tight,
               .arena = a,
               .of = at_map_in(a)};
  l->tpu = !strcmp(t->machine->platform, "tpu");
  double devices = AT_MAX(1u, t->devices_per_chip);
  l->rate = fmax(
      1, at_machine_number(t->machine, "hbm_bytes_per_second_per_chip", 1) /
             devices);
  l->flops = fmax(
      1, at_machine_number(t->machine, "bf16_flops_per_second_per_chip", 1) /
             devices);
  if (l->tpu)
    AT_TRY(at_est_group_stored(c, a, &l->groups));
  else
    AT_TRY(at_est_group_nodes(c, false, a, &l->groups));
  uint32_t count = l->groups.count;
  AT_TRY_ALLOC(l->seconds, at_new(a, double, count + 1));
  AT_TRY(collect(l));
  at_est_lay_state_out(l);
  pass_outputs_on(l);
  AT_TRY(order_groups(l));
  for (uint32_t s = 0; s < count; s++)
    l->seconds[s] = seconds_of(l, l->order[s]);
  share_state(l);
  at_est_lay_images_out(l);
  set_times(l);
  start_copies(l);
  AT_TRY(reuse_state(l));
  AT_TRY(at_est_add_copies(l));
  return look_inside(l);
}

// ---- Where temporaries lie

// A temporary with its place in time.
typedef struct stay {
  const lives *of;
  const live *x;
  at_span_time time;
} stay;
typedef AT_VEC(stay) stays;

// Does it take memory among the temporaries?
static bool is_stored(const lives *l, const live *x) {
  return x->bytes && x->born <= x->dies && !x->vmem &&
         at_est_is_temporary(l, x);
}

// One time for all computations: each kernel begins and ends, and what runs
// inside of a loop does so in between.
typedef struct schedule {
  stays temps;
  AT_VEC(const at_node *) at;  // of each time: the kernel's node; NULL: the end
} schedule;

// The next time, at which n is.
static at_status tick(schedule *s, const at_node *n, at_arena *a,
                      int64_t *time) {
  *time = (int64_t)s->at.len;
  return at_vec_push(a, &s->at, n) ? AT_OK : AT_NO_MEMORY("temporaries");
}

// Numbers all steps, those of regions between the begin and the end of their
// op.
static at_status set_clock(lives *l, schedule *out, at_arena *a) {
  uint32_t count = l->groups.count;
  at_span_time *of;
  AT_TRY_ALLOC(of, at_new(a, at_span_time, count + 1));
  l->time = of;
  for (uint32_t k = 0; k < count; k++) {
    const at_node *n = l->groups.list[l->order[k]]->root;
    AT_TRY(tick(out, n, a, &of[k].begin));
    for (uint32_t r = 0; l->inside[k] && r < n->num_regions; r++)
      AT_TRY(set_clock(&l->inside[k][r], out, a));
    AT_TRY(tick(out, n, a, &of[k].end));
  }
  AT_TRY(tick(out, NULL, a, &of[count].begin));
  of[count].end = of[count].begin;
  return AT_OK;
}

// Temporaries of a computation and of those inside.
static at_status add_stays(const lives *l, schedule *out, at_arena *a) {
  uint32_t count = l->groups.count;
  for (size_t i = 0; i < l->list.len; i++) {
    const live *x = &l->list.ptr[i];
    if (!is_stored(l, x)) continue;
    AT_ASSERT(x->dies <= count);
    stay s = {
        l, x, {l->time[x->born].begin, l->time[AT_MIN(x->dies, count)].end}};
    if (!at_vec_push(a, &out->temps, s)) return AT_NO_MEMORY("temporaries");
  }
  for (uint32_t k = 0; k < count; k++)
    for (uint32_t r = 0;
         l->inside[k] && r < l->groups.list[l->order[k]]->root->num_regions;
         r++)
      AT_TRY(add_stays(&l->inside[k][r], out, a));
  return AT_OK;
}

// By time, then the largest first.
static int by_begin(const void *a, const void *b) {
  const stay *x = a, *y = b;
  if (x->time.begin != y->time.begin)
    return x->time.begin < y->time.begin ? -1 : 1;
  return (x->x->bytes < y->x->bytes) - (x->x->bytes > y->x->bytes);
}

// Places them as XLA does, the largest first; what lies between them counts.
static at_status place_temps(at_estimate *e, const stays *list, at_arena *a) {
  at_block *blocks;
  at_estimate_temp *temps;
  uint32_t n = (uint32_t)list->len;
  AT_TRY_ALLOC(blocks, at_new(a, at_block, n + 1));
  AT_TRY_ALLOC(temps, at_new(a, at_estimate_temp, n + 1));
  for (uint32_t i = 0; i < n; i++) {
    const stay *s = &list->ptr[i];
    blocks[i] = (at_block){.time = s->time, .bytes = s->x->bytes, .owner = i};
    temps[i] = (at_estimate_temp){.value = s->x->value,
                                  .made = s->x->made,
                                  .bytes = s->x->bytes,
                                  .begin = s->time.begin,
                                  .end = s->time.end};
  }
  AT_TRY(at_blocks_place(blocks, n, a, &e->temp_bytes));
  for (uint32_t i = 0; i < n; i++)
    temps[blocks[i].owner].offset = blocks[i].offset;
  e->temps = temps;
  e->num_temps = n;
  return AT_OK;
}

// When the most bytes live. room: what they have been given.
static at_status find_peak(const stays *list, int64_t clock, uint64_t room,
                           at_arena *a, int64_t *out) {
  int64_t *change, sum = 0, most = 0;
  AT_TRY_ALLOC(change, at_new(a, int64_t, (size_t)clock + 2));
  for (size_t i = 0; i < list->len; i++) {
    const stay *s = &list->ptr[i];
    change[s->time.begin] += (int64_t)s->x->bytes;
    change[s->time.end + 1] -= (int64_t)s->x->bytes;
  }
  *out = 0;
  for (int64_t t = 0; t <= clock; t++) {
    sum += change[t];
    if (sum > most) most = sum, *out = t;
  }
  AT_ASSERT(!sum && (uint64_t)most <= room);
  return AT_OK;
}

// ---- What is told

// The largest first.
static int by_size(const void *a, const void *b) {
  const stay *x = a, *y = b;
  return (x->x->bytes < y->x->bytes) - (x->x->bytes > y->x->bytes);
}

// Arguments of the entry by number and name, all else by op and id.
const char *at_est_name(at_arena *a, at_value v, const char *made) {
  const at_node *n = v.node;
  const at_comp *c = n->parent;
  if (!made) made = "";
  if (n->op != AT_OP_PARAMETER || c->owner)
    return at_arena_printf(a, "%s.%u%s", at_op_text(n->op), n->id, made);
  const at_io_info *infos = c->module->params;
  uint32_t i = at_param_index(c, n);
  const char *named = infos ? infos[i].name : NULL;
  return at_arena_printf(a, "argument %u%s%s%s", i, named ? " " : "",
                         named ? named : "", made);
}

// What lives at the peak.
static at_status list_buffers(at_estimate *e, const lives *l,
                              const stays *temps, int64_t peak) {
  stays list = {0};
  at_estimate_buffer *b;
  for (size_t i = 0; i < temps->len; i++) {
    const stay *s = &temps->ptr[i];
    if (s->time.begin <= peak && peak <= s->time.end &&
        !at_vec_push(l->arena, &list, *s))
      return AT_NO_MEMORY("buffers");
  }
  for (size_t i = 0; i < l->list.len; i++) {
    const live *x = &l->list.ptr[i];
    if (!at_est_is_temporary(l, x) && x->bytes &&
        !at_vec_push(l->arena, &list, ((stay){l, x, {0, peak}})))
      return AT_NO_MEMORY("buffers");
  }
  AT_TRY_ALLOC(b, at_new(l->arena, at_estimate_buffer, kBuffersShown));
  if (list.len) qsort(list.ptr, list.len, sizeof *list.ptr, by_size);
  e->num_buffers = AT_MIN((uint32_t)list.len, (uint32_t)kBuffersShown);
  for (uint32_t i = 0; i < e->num_buffers; i++) {
    const live *x = list.ptr[i].x;
    const lives *of = list.ptr[i].of;
    AT_TRY_ALLOC(b[i].name, at_est_name(l->arena, x->value, x->made));
    b[i].type = at_est_type(l->arena, at_value_type(x->value));
    b[i].source =
        x->argument ? "" : at_est_source(l->arena, x->value.node->loc);
    b[i].bytes = x->bytes;
    b[i].argument = x->argument;
    b[i].result = x->output && of == l;
    b[i].until = "";
    if (at_est_is_temporary(of, x) && x->dies < of->groups.count) {
      const at_node *n = of->groups.list[of->order[x->dies]]->root;
      AT_TRY_ALLOC(b[i].until, at_arena_printf(l->arena, "%s.%u",
                                               at_op_text(n->op), n->id));
    }
  }
  e->buffers = b;
  return AT_OK;
}

// Arguments and results with their memory; what an argument gives to a result
// counts with both, and once more as aliased.
static bool could_be_donated(const at_comp *c, const at_type *t) {
  const at_io_info *infos = c->module->params;
  for (uint32_t i = 0; i < c->num_params; i++)
    if (at_type_eq(&c->params[i]->types[0], t) &&
        (!infos || (!infos[i].donor && infos[i].alias < 0)))
      return true;
  return false;
}

// Bytes of arguments and results, one by one and in all.
static at_status sum_interface(at_estimate *e, const lives *l) {
  const at_comp *c = l->comp;
  const at_io_info *infos = c->module->params;
  uint64_t *arguments, *results;
  AT_TRY_ALLOC(arguments, at_new(l->arena, uint64_t, c->num_params + 1));
  AT_TRY_ALLOC(results, at_new(l->arena, uint64_t, c->num_results + 1));
  for (uint32_t i = 0; i < c->num_params; i++) {
    arguments[i] = at_est_on_device(l, (at_value){c->params[i], 0});
    e->argument_bytes += arguments[i];
    if (infos && infos[i].alias >= 0) e->alias_bytes += arguments[i];
  }
  for (uint32_t r = 0; r < c->num_results; r++) {
    results[r] = at_est_on_device(l, c->results[r]);
    e->output_bytes += results[r];
    if (could_be_donated(c, at_value_type(c->results[r])))
      e->donatable_bytes += results[r];
  }
  e->each_argument = arguments;
  e->each_result = results;
  return AT_OK;
}

// Values, when they live and where temporaries lie.
static at_status plan(at_estimate *e, const at_comp *c, const at_target *t,
                      bool tight, schedule *s, lives *l, at_arena *a) {
  double vmem = at_machine_number(t->machine, "vmem_bytes_per_core", 0);
  uses u = {.arena = a, .read = at_map_in(a), .wide = at_map_in(a)};
  bool tpu = !strcmp(t->machine->platform, "tpu");
  *s = (schedule){0};
  if (tpu) AT_TRY(at_est_note_uses(&u, c));
  AT_TRY(measure(c, t, tpu ? &u : NULL, tight, a, l));
  l->uses = NULL;  // of this call alone
  AT_TRY(set_clock(l, s, a));
  if (tpu) AT_TRY(at_est_place_in_vmem(l, vmem, (int64_t)s->at.len));
  AT_TRY(add_stays(l, s, a));
  if (s->temps.len)
    qsort(s->temps.ptr, s->temps.len, sizeof *s->temps.ptr, by_begin);
  return place_temps(e, &s->temps, a);
}

// Once more with `tight` where a TPU's memory does not hold it.
at_status at_est_memory(at_estimate *e, const at_comp *c, const at_target *t,
                        at_arena *a) {
  lives *l;
  schedule s;
  int64_t peak;
  double chip = at_machine_number(t->machine, "hbm_bytes_per_chip", 0) -
                at_machine_number(t->machine, "hbm_reserved_bytes_per_chip", 0);
  bool tpu = !strcmp(t->machine->platform, "tpu");
  e->memory_bytes = (uint64_t)(chip / AT_MAX(1u, t->devices_per_chip));
  AT_TRY_ALLOC(l, at_new(a, lives, 1));
  AT_TRY(plan(e, c, t, false, &s, l, a));
  AT_TRY(sum_interface(e, l));
  uint64_t whole = e->argument_bytes + e->output_bytes - e->alias_bytes;
  if (tpu && e->memory_bytes && whole + e->temp_bytes > e->memory_bytes)
    AT_TRY(plan(e, c, t, true, &s, l, a));
  e->steps = s.at.ptr;
  e->num_steps = (uint32_t)s.at.len;
  e->peak_bytes = whole + e->temp_bytes;
  AT_TRY(find_peak(&s.temps, (int64_t)s.at.len, e->temp_bytes, a, &peak));
  return list_buffers(e, l, &s.temps, peak);
}

at_status at_estimate_memory(const at_module *m, const at_target *t,
                             at_arena *a, const at_estimate **out) {
  at_estimate *e;
  AT_TRY_ALLOC(e, at_new(a, at_estimate, 1));
  AT_TRY(at_est_memory(e, m->entry, t, a));
  *out = e;
  return AT_OK;
}
