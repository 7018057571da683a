// What is live when, in the target's layout.
#include <stdlib.h>

#include "estimate/estimate_internal.h"

enum { kBuffersShown = 20 };

typedef struct live {
  at_value value;
  uint64_t bytes;
  uint32_t born, dies;  // kernels, inclusive
  bool argument, output;
  int64_t index;  // of the argument
} live;
typedef struct lives {
  AT_VEC(live) list;
  at_map of;           // node -> index + 1 of its first value
  const at_map *vmem;  // nodes whose results never leave VMEM; may be NULL
} lives;

uint64_t at_est_padded(const at_target *t, const at_type *type) {
  if (!at_type_is_static(type)) return 0;
  if (strcmp(t->machine->platform, "tpu")) return at_type_bytes(type);
  double tiles = at_tpu_tiles(at_type_dims(type));
  double bytes = tiles * at_tpu_tile_bytes(type->dtype);
  return bytes > 0 ? (uint64_t)bytes : type->rank ? 0 : 512;
}

static at_status add(lives *l, at_arena *a, live x) {
  if (!at_vec_push(a, &l->list, x)) return AT_NO_MEMORY("buffers");
  if (x.value.index) return AT_OK;
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&l->of, x.value.node));
  *place = (void *)(uintptr_t)l->list.len;
  return AT_OK;
}

static live *find(lives *l, at_value v) {
  v = at_est_behind(v);
  void **place = at_map_find_ptr(&l->of, v.node);
  if (!place) return NULL;
  size_t at = (uintptr_t)*place - 1 + v.index;
  return at < l->list.len ? &l->list.ptr[at] : NULL;
}

static void read(lives *l, at_value v, uint32_t when) {
  live *x = find(l, v);
  if (x && when > x->dies) x->dies = when;
}

static void read_regions(lives *l, const at_node *n, uint32_t when) {
  for (uint32_t r = 0; r < n->num_regions; r++)
    AT_FOR_NODES(inner, n->regions[r]) {
      for (uint32_t o = 0; o < inner->num_operands; o++)
        read(l, inner->operands[o], when);
      read_regions(l, inner, when);
    }
}

// Loop state and updates in place take over an operand's memory.
static bool takes_over(const at_node *n) {
  return n->op == AT_OP_WHILE || n->op == AT_OP_DYNAMIC_UPDATE_SLICE ||
         n->op == AT_OP_SCATTER;
}

static uint64_t on_device(const at_target *t, at_value v) {
  return at_cost_on_host(v) ? 0 : at_est_padded(t, at_value_type(v));
}

static at_status collect(lives *l, const at_module *m, const at_comp *c,
                         const at_est_groups *g, const at_target *t,
                         at_arena *a) {
  for (uint32_t i = 0; i < c->num_params; i++) {
    bool donated = m->params && (m->params[i].donor || m->params[i].alias >= 0);
    live x = {.value = {c->params[i], 0},
              .argument = true,
              .index = i,
              .bytes = on_device(t, (at_value){c->params[i], 0}),
              .dies = donated ? 0 : g->count};
    AT_TRY(add(l, a, x));
  }
  for (uint32_t k = 0; k < g->count; k++) {
    const at_est_group *gr = g->list[k];
    for (size_t w = 0; w < gr->writes.len; w++) {
      at_value v = gr->writes.ptr[w];
      live x = {.value = v, .bytes = on_device(t, v), .born = k, .dies = k};
      if (l->vmem && at_map_find_ptr(l->vmem, v.node)) x.bytes = 0;
      if (takes_over(v.node) && v.index < v.node->num_operands) {
        live *from = find(l, v.node->operands[v.index]);
        if (from && !from->argument && from->bytes >= x.bytes)
          from->dies = k ? k - 1 : 0;
      }
      AT_TRY(add(l, a, x));
    }
  }
  for (uint32_t k = 0; k < g->count; k++) {
    const at_est_group *gr = g->list[k];
    for (size_t r = 0; r < gr->reads.len; r++)
      if (!takes_over(gr->root)) read(l, gr->reads.ptr[r].value, k);
    if (at_op_is(gr->root->op, AT_CONTROL)) read_regions(l, gr->root, k);
  }
  for (uint32_t r = 0; r < c->num_results; r++) {
    live *x = find(l, c->results[r]);
    if (!x) continue;
    x->dies = g->count;
    x->output = !x->argument;
  }
  return AT_OK;
}

static int by_size(const void *a, const void *b) {
  const live *const *x = a, *const *y = b;
  return ((*x)->bytes < (*y)->bytes) - ((*x)->bytes > (*y)->bytes);
}

// What the bodies of a loop or branch need beyond its own results.
static uint64_t inside(const at_est_group *g, const at_target *t, at_arena *a);

static at_status peak_of(const lives *l, const at_est_groups *g,
                         const at_target *t, at_arena *a, uint64_t *peak,
                         uint32_t *when) {
  int64_t *change, sum = 0;  // of what is live, kernel by kernel
  AT_TRY_ALLOC(change, at_new(a, int64_t, g->count + 2));
  for (size_t i = 0; i < l->list.len; i++) {
    const live *x = &l->list.ptr[i];
    if (x->dies < x->born) continue;
    change[x->born] += (int64_t)x->bytes;
    change[x->dies + 1] -= (int64_t)x->bytes;
  }
  *peak = 0;
  *when = 0;
  for (uint32_t k = 0; k <= g->count; k++) {
    sum += change[k];
    uint64_t now = (uint64_t)sum;
    if (k < g->count && at_op_is(g->list[k]->root->op, AT_CONTROL))
      now += inside(g->list[k], t, a);
    if (now > *peak) *peak = now, *when = k;
  }
  return AT_OK;
}

static uint64_t inside(const at_est_group *g, const at_target *t, at_arena *a) {
  uint64_t most = 0;
  for (uint32_t r = 0; r < g->root->num_regions; r++) {
    const at_comp *c = g->root->regions[r];
    at_est_groups inner;
    lives l = {.of = at_map_in(a)};
    if (at_code_take(at_est_group_nodes(c, true, a, &inner))) continue;
    uint64_t state = 0;
    uint32_t when;
    for (uint32_t p = 0; p < c->num_params; p++)
      state += on_device(t, (at_value){c->params[p], 0});
    if (at_code_take(collect(&l, c->module, c, &inner, t, a))) continue;
    uint64_t peak;
    if (at_code_take(peak_of(&l, &inner, t, a, &peak, &when))) continue;
    most = AT_MAX(most, peak > state ? peak - state : 0);
  }
  return most;
}

at_status at_est_memory(at_estimate *e, const at_comp *c,
                        const at_est_groups *g, const at_target *t,
                        const at_map *vmem, at_arena *a) {
  lives l = {.of = at_map_in(a), .vmem = vmem};
  AT_TRY(collect(&l, c->module, c, g, t, a));
  uint32_t when = 0;
  AT_TRY(peak_of(&l, g, t, a, &e->peak_bytes, &when));
  live **order;
  AT_TRY_ALLOC(order, at_new(a, live *, l.list.len + 1));
  uint32_t count = 0;
  for (size_t i = 0; i < l.list.len; i++) {
    live *x = &l.list.ptr[i];
    if (x->argument) e->argument_bytes += x->bytes;
    if (x->output) e->output_bytes += x->bytes;
    if (x->bytes && x->born <= when && when <= x->dies) order[count++] = x;
  }
  uint64_t held = e->argument_bytes + e->output_bytes;
  e->temp_bytes = e->peak_bytes > held ? e->peak_bytes - held : 0;
  qsort(order, count, sizeof *order, by_size);
  at_estimate_buffer *b;
  e->num_buffers = AT_MIN(count, (uint32_t)kBuffersShown);
  AT_TRY_ALLOC(b, at_new(a, at_estimate_buffer, kBuffersShown));
  for (uint32_t i = 0; i < e->num_buffers; i++) {
    const live *x = order[i];
    const at_node *n = x->value.node;
    const char *named = x->argument && c->module->params
                            ? c->module->params[x->index].name
                            : NULL;
    b[i].name =
        x->argument
            ? at_arena_printf(a, "argument %lld%s%s", (long long)x->index,
                              named ? " " : "", named ? named : "")
            : at_arena_printf(a, "%s.%u", at_op_text(n->op), n->id);
    b[i].type = at_est_type(a, at_value_type(x->value));
    b[i].source = x->argument ? "" : at_est_source(a, n->loc);
    b[i].bytes = x->bytes;
    b[i].argument = x->argument;
  }
  e->buffers = b;
  double chip = at_machine_number(t->machine, "hbm_bytes_per_chip", 0) -
                at_machine_number(t->machine, "hbm_reserved_bytes_per_chip", 0);
  e->memory_bytes = (uint64_t)(chip / AT_MAX(1u, t->devices_per_chip));
  return AT_OK;
}
