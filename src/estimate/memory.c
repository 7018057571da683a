// What is live when, in the target's layout.
#include <stdlib.h>

#include "estimate/estimate_internal.h"

enum { kBuffersShown = 20 };

typedef struct live {
  at_value value;
  uint64_t bytes;
  uint32_t born, dies;  // kernels, inclusive; born > dies: never there
  bool argument, output;
  int64_t index;  // of the argument
} live;
typedef struct lives {
  const at_comp *comp;
  const at_est_groups *groups;
  const at_target *target;
  at_arena *arena;
  AT_VEC(live) list;
  at_map of;           // value (at_est_key) -> index + 1
  const at_map *vmem;  // values that never leave VMEM; may be NULL
} lives;

uint64_t at_est_padded(const at_target *t, const at_type *type) {
  if (!at_type_is_static(type)) return 0;
  if (strcmp(t->machine->platform, "tpu")) return at_type_bytes(type);
  double tiles = at_tpu_tiles(at_type_dims(type));
  double bytes = tiles * at_tpu_tile_bytes(type->dtype);
  return bytes > 0 ? (uint64_t)bytes : type->rank ? 0 : 512;
}

static uint64_t on_device(const lives *l, at_value v) {
  if (l->vmem && at_map_find_ptr(l->vmem, at_est_key(v))) return 0;
  return at_cost_on_host(v) ? 0 : at_est_padded(l->target, at_value_type(v));
}

static at_status add(lives *l, live x) {
  void **place;
  if (!at_vec_push(l->arena, &l->list, x)) return AT_NO_MEMORY("buffers");
  AT_TRY_ALLOC(place, at_map_put_ptr(&l->of, at_est_key(x.value)));
  *place = (void *)(uintptr_t)l->list.len;
  return AT_OK;
}

static live *find(lives *l, at_value v) {
  void **place = at_map_find_ptr(&l->of, at_est_key(at_est_behind(v)));
  return place ? &l->list.ptr[(uintptr_t)*place - 1] : NULL;
}

static void read(lives *l, at_value v, uint32_t when) {
  live *x = find(l, v);
  if (x && when > x->dies) x->dies = when;
}

static void read_regions(lives *l, const at_node *n, uint32_t when) {
  for (uint32_t r = 0; r < n->num_regions; r++) {
    AT_FOR_NODES(inner, n->regions[r]) {
      for (uint32_t o = 0; o < inner->num_operands; o++)
        read(l, inner->operands[o], when);
      read_regions(l, inner, when);
    }
    for (uint32_t o = 0; o < n->regions[r]->num_results; o++)
      read(l, n->regions[r]->results[o], when);
  }
}

// Loop state and updates in place take over an operand's memory: which operand
// the result of that index does; false: none.
static bool takes_over(const at_node *n, uint32_t result, at_value *operand) {
  bool state = n->op == AT_OP_WHILE || n->op == AT_OP_SCATTER;
  if (!state && n->op != AT_OP_DYNAMIC_UPDATE_SLICE) return false;
  if (result >= n->num_operands) return false;
  *operand = at_est_behind(n->operands[result]);
  return true;
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
    for (uint32_t r = 0; n == g->root && r < n->num_results; r++)
      taken += takes_over(n, r, &from) && at_value_eq(from, v);
  }
  return taken == 1 && uses == 1;
}

// What is given: arguments of the program die with their last use if they are
// donated; what a loop's body is given is its state, which it may overwrite.
static at_status add_given(lives *l) {
  const at_comp *c = l->comp;
  bool state =
      c->owner && c->owner->op == AT_OP_WHILE && c == c->owner->regions[1];
  const at_io_info *infos = c->owner ? NULL : c->module->params;
  for (uint32_t i = 0; i < c->num_params; i++) {
    bool donated = state || (infos && (infos[i].donor || infos[i].alias >= 0));
    at_value v = {c->params[i], 0};
    AT_TRY(add(l, (live){.value = v,
                         .argument = true,
                         .index = i,
                         .bytes = on_device(l, v),
                         .dies = donated ? 0 : l->groups->count}));
  }
  return AT_OK;
}

// Constants that are not made where they are used lie there all the time.
static at_status add_constants(lives *l) {
  for (uint32_t k = 0; k < l->groups->count; k++) {
    const at_est_group *g = l->groups->list[k];
    for (size_t r = 0; r < g->reads.len; r++) {
      at_value v = g->reads.ptr[r].value;
      if (v.node->op != AT_OP_CONSTANT || find(l, v)) continue;
      AT_TRY(add(l, (live){.value = v,
                           .bytes = on_device(l, v),
                           .dies = l->groups->count}));
    }
  }
  return AT_OK;
}

static at_status collect(lives *l) {
  uint32_t count = l->groups->count;
  AT_TRY(add_given(l));
  AT_TRY(add_constants(l));
  for (uint32_t k = 0; k < count; k++) {
    const at_est_group *g = l->groups->list[k];
    for (size_t w = 0; w < g->writes.len; w++) {
      at_value v = g->writes.ptr[w];
      AT_TRY(add(
          l,
          (live){.value = v, .bytes = on_device(l, v), .born = k, .dies = k}));
    }
  }
  for (uint32_t k = 0; k < count; k++) {
    const at_est_group *g = l->groups->list[k];
    for (size_t r = 0; r < g->reads.len; r++) {
      at_value v = g->reads.ptr[r].value;
      read(l, v, is_taken(g, v) && k ? k - 1 : k);
    }
    if (at_op_is(g->root->op, AT_CONTROL)) read_regions(l, g->root, k);
  }
  for (uint32_t r = 0; r < l->comp->num_results; r++) {
    live *x = find(l, l->comp->results[r]);
    if (!x) continue;
    x->dies = count;
    x->output = !x->argument;
  }
  return AT_OK;
}

static int by_size(const void *a, const void *b) {
  const live *const *x = a, *const *y = b;
  return ((*x)->bytes < (*y)->bytes) - ((*x)->bytes > (*y)->bytes);
}

// What the bodies of a loop or branch need beyond its own results.
static at_status inside(const at_node *n, const at_target *t, at_arena *a,
                        uint64_t *out);

static at_status peak_of(const lives *l, uint64_t *peak, uint32_t *when) {
  int64_t *change, sum = 0;  // of what is live, kernel by kernel
  uint32_t count = l->groups->count;
  AT_TRY_ALLOC(change, at_new(l->arena, int64_t, count + 2));
  for (size_t i = 0; i < l->list.len; i++) {
    const live *x = &l->list.ptr[i];
    if (x->dies < x->born) continue;
    change[x->born] += (int64_t)x->bytes;
    change[x->dies + 1] -= (int64_t)x->bytes;
  }
  *peak = 0;
  *when = 0;
  for (uint32_t k = 0; k <= count; k++) {
    uint64_t more = 0;
    sum += change[k];
    if (k < count && at_op_is(l->groups->list[k]->root->op, AT_CONTROL))
      AT_TRY(inside(l->groups->list[k]->root, l->target, l->arena, &more));
    uint64_t now = (uint64_t)sum + more;
    if (now > *peak) *peak = now, *when = k;
  }
  return AT_OK;
}

static at_status inside(const at_node *n, const at_target *t, at_arena *a,
                        uint64_t *out) {
  *out = 0;
  for (uint32_t r = 0; r < n->num_regions; r++) {
    const at_comp *c = n->regions[r];
    at_est_groups inner;
    uint64_t state = 0, peak;
    uint32_t when;
    AT_TRY(at_est_group_nodes(c, true, a, &inner));
    lives l = {.comp = c,
               .groups = &inner,
               .target = t,
               .arena = a,
               .of = at_map_in(a)};
    AT_TRY(collect(&l));
    AT_TRY(peak_of(&l, &peak, &when));
    for (uint32_t p = 0; p < c->num_params; p++)
      state += on_device(&l, (at_value){c->params[p], 0});
    *out = AT_MAX(*out, peak > state ? peak - state : 0);
  }
  return AT_OK;
}

at_status at_est_memory(at_estimate *e, const at_comp *c,
                        const at_est_groups *g, const at_target *t,
                        const at_map *vmem, at_arena *a) {
  lives l = {.comp = c,
             .groups = g,
             .target = t,
             .arena = a,
             .of = at_map_in(a),
             .vmem = vmem};
  uint32_t when = 0;
  AT_TRY(collect(&l));
  AT_TRY(peak_of(&l, &e->peak_bytes, &when));
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
