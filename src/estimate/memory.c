// Where the values of a program live: buffers of one device, in the target's
// layout. Arguments and results have their memory all the time; what lies
// between them is stored from the kernel that writes it to the last that reads
// it, on TPUs in VMEM where it fits and is not waited for too long.
#include <math.h>
#include <stdlib.h>

#include "cost/count.h"
#include "estimate/estimate_internal.h"

enum { kBuffersShown = 20 };
// Kernels leave this share of VMEM to values.
static const double kVmemShare = .875;

typedef struct live {
  at_value value;
  uint64_t bytes;       // of it alone; 0: it lies in another value's memory
  uint32_t born, dies;  // steps, inclusive; born > dies: never there
  uint32_t writer;      // group; UINT32_MAX: given
  bool argument, output;
  bool kept;      // an argument that the caller keeps
  bool vmem;      // never in HBM
  int64_t index;  // of the argument
  uint32_t uses;  // groups that read it and have not run yet
  AT_VEC(uint32_t) readers;
} live;

typedef AT_VEC(uint32_t) indices;

typedef struct use {
  const at_node *user;  // NULL: a result of `of`
  const at_comp *of;
  uint32_t index;  // of the operand or result
} use;
typedef AT_VEC(use) use_list;

typedef enum narrowness { UNKNOWN, ASKED, NARROW, WIDE } narrowness;

// Of a whole module: who uses a value, and which are stored in half.
typedef struct uses {
  at_arena *arena;
  at_map of;      // value (at_est_key) -> use_list
  at_map narrow;  // value -> narrowness
} uses;

typedef struct lives {
  const at_comp *comp;
  uses *uses;  // NULL: nothing is narrowed
  at_est_groups groups;
  const at_target *target;
  bool tpu;
  double vmem;         // bytes of it for this computation's values
  double rate, flops;  // bytes and FLOP per second
  at_arena *arena;
  AT_VEC(live) list;
  at_map of;         // value (at_est_key) -> index + 1
  indices *reads;    // of each group: values
  uint32_t *order;   // groups, as they run
  uint32_t *step;    // of each group
  double *seconds;   // of each step
  double *used;      // of each step: bytes of VMEM that its values take
  uint64_t *beside;  // of each step: what bodies of its loop or branch need
} lives;

uint64_t at_est_padded(const at_target *t, const at_type *type) {
  if (!at_type_is_static(type)) return 0;
  if (strcmp(t->machine->platform, "tpu")) return at_type_bytes(type);
  double tiles = at_tpu_tiles(at_type_dims(type));
  double bytes = tiles * at_tpu_tile_bytes(type->dtype);
  return bytes > 0 ? (uint64_t)bytes : type->rank ? 0 : 512;
}

static uint64_t on_device(const lives *l, at_value v) {
  return at_cost_on_host(v) ? 0 : at_est_padded(l->target, at_value_type(v));
}

// ---- Which values are stored as bf16
// Products at default precision round f32 operands: what only they read is
// rounded when it is written, also on its way through loops.

static at_status note_use(uses *u, at_value v, use how) {
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(&u->of, at_est_key(v)));
  if (!*place) AT_TRY_ALLOC(*place, at_new(u->arena, use_list, 1));
  use_list *list = *place;
  return at_vec_push(u->arena, list, how) ? AT_OK : AT_NO_MEMORY("uses");
}

static at_status note_uses(uses *u, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    for (uint32_t o = 0; o < n->num_operands; o++)
      AT_TRY(note_use(u, n->operands[o], (use){n, c, o}));
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(note_uses(u, n->regions[r]));
  }
  for (uint32_t r = 0; r < c->num_results; r++)
    AT_TRY(note_use(u, c->results[r], (use){NULL, c, r}));
  return AT_OK;
}

static at_status only_products(uses *u, at_value v, bool *out);

static at_status use_is_narrow(uses *u, use how, bool *out) {
  const at_node *n = how.user;
  const at_node *loop = n ? n : how.of->owner;
  *out = false;
  if (!n && !(loop && loop->op == AT_OP_WHILE && how.of == loop->regions[1]))
    return AT_OK;
  switch (loop->op) {
    case AT_OP_DOT_GENERAL:
    case AT_OP_CONVOLUTION: {
      at_dims p = at_node_ints(n, AT_ATTR_PRECISION);
      *out = true;
      for (uint32_t i = 0; i < p.rank; i++) *out &= !p.ptr[i];
      return AT_OK;
    }
    case AT_OP_WHILE:
      AT_TRY(only_products(u, (at_value){(at_node *)loop, how.index}, out));
      for (uint32_t r = 0; r < 2 && *out; r++)
        AT_TRY(only_products(
            u, (at_value){loop->regions[r]->params[how.index], 0}, out));
      return AT_OK;
    case AT_OP_DYNAMIC_UPDATE_SLICE:
    case AT_OP_DYNAMIC_SLICE:
      if (how.index > (loop->op == AT_OP_DYNAMIC_UPDATE_SLICE)) return AT_OK;
      return only_products(u, (at_value){(at_node *)n, 0}, out);
    case AT_OP_RESHAPE:
    case AT_OP_TRANSPOSE:
    case AT_OP_SLICE:
    case AT_OP_BROADCAST_IN_DIM:
      return only_products(u, (at_value){(at_node *)n, 0}, out);
    default:
      return AT_OK;
  }
}

static at_status only_products(uses *u, at_value v, bool *out) {
  void **place, **known;
  AT_TRY_ALLOC(place, at_map_put_ptr(&u->narrow, at_est_key(v)));
  *out = (uintptr_t)*place != WIDE;
  if (*place) return AT_OK;
  *place = (void *)(uintptr_t)ASKED;
  known = at_map_find_ptr(&u->of, at_est_key(v));
  const use_list *list = known ? *known : NULL;
  for (size_t i = 0; list && i < list->len && *out; i++)
    AT_TRY(use_is_narrow(u, list->ptr[i], out));
  AT_TRY_ALLOC(place, at_map_put_ptr(&u->narrow, at_est_key(v)));
  *place = (void *)(uintptr_t)(*out ? NARROW : WIDE);
  return AT_OK;
}

static at_status stored_bytes(const lives *l, at_value v, uint64_t *out) {
  const at_type *t = at_value_type(v);
  bool narrow = false;
  *out = on_device(l, v);
  if (!l->uses || t->dtype != AT_F32 || !t->rank) return AT_OK;
  if (!at_map_find_ptr(&l->uses->of, at_est_key(v))) return AT_OK;
  AT_TRY(only_products(l->uses, v, &narrow));
  if (narrow) *out /= 2;
  return AT_OK;
}

static at_status add(lives *l, live x) {
  void **place;
  if (!at_vec_push(l->arena, &l->list, x)) return AT_NO_MEMORY("buffers");
  AT_TRY_ALLOC(place, at_map_put_ptr(&l->of, at_est_key(x.value)));
  *place = (void *)(uintptr_t)l->list.len;
  return AT_OK;
}

static live *find(const lives *l, at_value v) {
  void **place = at_map_find_ptr(&l->of, at_est_key(at_est_behind(v)));
  return place ? &l->list.ptr[(uintptr_t)*place - 1] : NULL;
}

// ---- Who reads what

static at_status read(lives *l, at_value v, uint32_t group) {
  live *x = find(l, v);
  if (!x || x->writer == group) return AT_OK;
  for (size_t r = x->readers.len; r-- > 0;)
    if (x->readers.ptr[r] == group) return AT_OK;
  uint32_t index = (uint32_t)(x - l->list.ptr);
  if (!at_vec_push(l->arena, &x->readers, group) ||
      !at_vec_push(l->arena, &l->reads[group], index))
    return AT_NO_MEMORY("readers");
  return AT_OK;
}

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
                         .index = i,
                         .writer = UINT32_MAX,
                         .bytes = on_device(l, v)}));
  }
  return AT_OK;
}

// Constants that are not made where they are used lie there all the time.
static at_status add_constants(lives *l) {
  for (uint32_t k = 0; k < l->groups.count; k++) {
    const at_est_group *g = l->groups.list[k];
    for (size_t r = 0; r < g->reads.len; r++) {
      at_value v = g->reads.ptr[r].value;
      if (v.node->op != AT_OP_CONSTANT || find(l, v)) continue;
      AT_TRY(add(l, (live){.value = v,
                           .bytes = on_device(l, v),
                           .kept = true,
                           .writer = UINT32_MAX}));
    }
  }
  return AT_OK;
}

static at_status collect(lives *l) {
  uint32_t count = l->groups.count;
  AT_TRY_ALLOC(l->reads, at_new(l->arena, indices, count + 1));
  AT_TRY(add_given(l));
  AT_TRY(add_constants(l));
  for (uint32_t k = 0; k < count; k++) {
    const at_est_group *g = l->groups.list[k];
    for (size_t w = 0; w < g->writes.len; w++) {
      at_value v = g->writes.ptr[w];
      live x = {.value = v, .writer = k};
      AT_TRY(stored_bytes(l, v, &x.bytes));
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
    live *x = find(l, l->comp->results[r]);
    if (x) x->output = true;
  }
  return AT_OK;
}

// What becomes a result of the program is made in the result's memory.
static void pass_outputs_on(lives *l) {
  if (l->comp->owner) return;
  for (uint32_t k = l->groups.count; k-- > 0;) {
    const at_est_group *g = l->groups.list[k];
    for (uint32_t r = 0; r < g->root->num_results; r++) {
      at_value from;
      const live *to = find(l, (at_value){g->root, r});
      if (!to || !to->output || !takes_over(g->root, r, &from)) continue;
      live *x = find(l, from);
      if (x && !x->argument && x->readers.len == 1 && is_taken(g, from))
        x->output = true;
    }
  }
}

// State that a loop only reads, and state that was a donated argument, is where
// it was.
static void share_state(lives *l) {
  for (uint32_t k = 0; k < l->groups.count; k++) {
    const at_est_group *g = l->groups.list[k];
    at_node *n = g->root;
    for (uint32_t r = 0; r < n->num_results; r++) {
      at_value from;
      live *to = find(l, (at_value){n, r});
      if (!to || !takes_over(n, r, &from)) continue;
      const live *x = find(l, from);
      if (!x) continue;
      const at_comp *body = n->op == AT_OP_WHILE ? n->regions[1] : NULL;
      bool same = body && at_value_eq(at_est_behind(body->results[r]),
                                      (at_value){body->params[r], 0});
      bool donated = x->argument && !x->kept && x->readers.len == 1;
      if (same || donated) to->bytes = 0;
    }
  }
}

// ---- In which order kernels run

static bool is_temporary(const lives *l, const live *x) {
  return !x->argument && !(x->output && !l->comp->owner);
}

// Bytes that live longer once group k has run.
static int64_t growth(const lives *l, uint32_t k) {
  const at_est_group *g = l->groups.list[k];
  int64_t sum = 0;
  for (size_t w = 0; w < g->writes.len; w++) {
    const live *x = find(l, g->writes.ptr[w]);
    if (is_temporary(l, x)) sum += (int64_t)x->bytes;
  }
  for (size_t r = 0; r < l->reads[k].len; r++) {
    const live *x = &l->list.ptr[l->reads[k].ptr[r]];
    if (x->uses == 1 && is_temporary(l, x) && !x->kept && !x->output)
      sum -= (int64_t)x->bytes;
  }
  return sum;
}

typedef struct ordering {
  lives *l;
  uint32_t *waits;  // of each group: values it needs that are not there
  bool *done;
  uint32_t count;
  indices next;  // groups that may shrink what lives
} ordering;

static at_status propose(ordering *o, uint32_t k) {
  return at_vec_push(o->l->arena, &o->next, k) ? AT_OK
                                               : AT_NO_MEMORY("an order");
}

static at_status run_group(ordering *o, uint32_t k) {
  lives *l = o->l;
  const at_est_group *g = l->groups.list[k];
  o->done[k] = true;
  l->step[k] = o->count;
  l->order[o->count++] = k;
  for (size_t w = 0; w < g->writes.len; w++) {
    const live *x = find(l, g->writes.ptr[w]);
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
  return AT_OK;
}

// ---- When values live

static void set_times(lives *l) {
  uint32_t count = l->groups.count;
  for (size_t i = 0; i < l->list.len; i++) {
    live *x = &l->list.ptr[i];
    bool given = x->writer == UINT32_MAX;
    x->born = x->dies = given ? 0 : l->step[x->writer];
    for (size_t r = 0; r < x->readers.len; r++) {
      uint32_t k = x->readers.ptr[r], s = l->step[k];
      bool taken = s && is_taken(l->groups.list[k], x->value);
      if (taken) s--;
      x->dies = AT_MAX(x->dies, s);
    }
    if (x->output || x->kept) x->dies = count;
  }
}

// The new state of a loop goes where the old one was, unless that is needed
// still.
static void reuse_state(lives *l) {
  if (!is_body(l->comp)) return;
  for (uint32_t r = 0; r < l->comp->num_results; r++) {
    live *x = find(l, l->comp->results[r]);
    const live *old = find(l, (at_value){l->comp->params[r], 0});
    if (x && old && !x->argument && x->born >= old->dies) x->bytes = 0;
  }
}

// ---- What stays in VMEM

static at_status measure(const at_comp *c, const at_target *t, double vmem,
                         uses *u, at_arena *a, lives *out, uint64_t *temps,
                         uint32_t *when);

static double seconds_of(const lives *l, uint32_t k) {
  const at_est_group *g = l->groups.list[k];
  double bytes = 0;
  for (size_t r = 0; r < g->reads.len; r++) bytes += g->reads.ptr[r].bytes;
  for (size_t w = 0; w < g->writes.len; w++)
    bytes += (double)find(l, g->writes.ptr[w])->bytes;
  return fmax(bytes / l->rate, at_est_flops(g) / l->flops);
}

typedef struct wish {
  live *x;
  double gap;  // seconds between its kernel and its last reader's
} wish;

static int by_gap(const void *a, const void *b) {
  const wish *x = a, *y = b;
  if (x->gap != y->gap) return x->gap < y->gap ? -1 : 1;
  return (x->x->bytes < y->x->bytes) - (x->x->bytes > y->x->bytes);
}

static bool fits(const lives *l, const live *x) {
  for (uint32_t s = x->born; s <= x->dies && s < l->groups.count; s++)
    if (l->used[s] + (double)x->bytes > l->vmem) return false;
  return true;
}

static at_status place_in_vmem(lives *l) {
  uint32_t count = l->groups.count, wishes = 0;
  wish *list;
  AT_TRY_ALLOC(list, at_new(l->arena, wish, l->list.len + 1));
  for (size_t i = 0; i < l->list.len; i++) {
    live *x = &l->list.ptr[i];
    if (!is_temporary(l, x) || !x->bytes || x->kept || x->born > x->dies)
      continue;
    wish w = {x, 0};
    for (uint32_t s = x->born + 1; s < x->dies && s < count; s++)
      w.gap += l->seconds[s];
    list[wishes++] = w;
  }
  if (wishes) qsort(list, wishes, sizeof *list, by_gap);
  for (uint32_t i = 0; i < wishes; i++) {
    live *x = list[i].x;
    if (!fits(l, x)) continue;
    x->vmem = true;
    for (uint32_t s = x->born; s <= x->dies && s < count; s++)
      l->used[s] += (double)x->bytes;
  }
  return AT_OK;
}

// ---- The most that lives

// What the bodies of a loop or branch need beyond its own results.
static at_status inside(const lives *l, uint32_t step, uint64_t *out) {
  const at_node *n = l->groups.list[l->order[step]]->root;
  *out = 0;
  for (uint32_t r = 0; r < n->num_regions; r++) {
    lives inner;
    uint64_t temps;
    uint32_t when;
    AT_TRY(measure(n->regions[r], l->target, l->vmem - l->used[step], l->uses,
                   l->arena, &inner, &temps, &when));
    *out = AT_MAX(*out, temps);
  }
  return AT_OK;
}

static at_status most_of(const lives *l, uint64_t *temps, uint32_t *when) {
  int64_t *change, sum = 0;  // of what is live, step by step
  uint32_t count = l->groups.count;
  AT_TRY_ALLOC(change, at_new(l->arena, int64_t, count + 2));
  for (size_t i = 0; i < l->list.len; i++) {
    const live *x = &l->list.ptr[i];
    if (x->dies < x->born || x->vmem || !is_temporary(l, x)) continue;
    change[x->born] += (int64_t)x->bytes;
    change[x->dies + 1] -= (int64_t)x->bytes;
  }
  *temps = 0;
  *when = 0;
  for (uint32_t k = 0; k <= count; k++) {
    sum += change[k];
    if (k < count &&
        at_op_is(l->groups.list[l->order[k]]->root->op, AT_CONTROL))
      AT_TRY(inside(l, k, &l->beside[k]));
    uint64_t now = (uint64_t)sum + l->beside[k];
    if (now > *temps) *temps = now, *when = k;
  }
  return AT_OK;
}

static at_status measure(const at_comp *c, const at_target *t, double vmem,
                         uses *u, at_arena *a, lives *l, uint64_t *temps,
                         uint32_t *when) {
  *l = (lives){
      .comp = c, .uses = u, .target = t, .arena = a, .of = at_map_in(a)};
  l->tpu = !strcmp(t->machine->platform, "tpu");
  l->vmem = vmem;
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
  AT_TRY_ALLOC(l->used, at_new(a, double, count + 1));
  AT_TRY_ALLOC(l->beside, at_new(a, uint64_t, count + 1));
  AT_TRY(collect(l));
  pass_outputs_on(l);
  AT_TRY(order_groups(l));
  for (uint32_t s = 0; s < count; s++)
    l->seconds[s] = seconds_of(l, l->order[s]);
  share_state(l);
  set_times(l);
  reuse_state(l);
  if (l->tpu) AT_TRY(place_in_vmem(l));
  return most_of(l, temps, when);
}

// ---- What is told

static int by_size(const void *a, const void *b) {
  const live *const *x = a, *const *y = b;
  return ((*x)->bytes < (*y)->bytes) - ((*x)->bytes > (*y)->bytes);
}

static const char *name_of(const lives *l, const live *x) {
  const at_node *n = x->value.node;
  if (!x->argument)
    return at_arena_printf(l->arena, "%s.%u", at_op_text(n->op), n->id);
  const at_io_info *infos = l->comp->module->params;
  const char *named = infos ? infos[x->index].name : NULL;
  return at_arena_printf(l->arena, "argument %lld%s%s", (long long)x->index,
                         named ? " " : "", named ? named : "");
}

static at_status list_buffers(at_estimate *e, const lives *l, uint32_t when) {
  live **order;
  at_estimate_buffer *b;
  uint32_t count = 0;
  AT_TRY_ALLOC(order, at_new(l->arena, live *, l->list.len + 1));
  AT_TRY_ALLOC(b, at_new(l->arena, at_estimate_buffer, kBuffersShown));
  for (size_t i = 0; i < l->list.len; i++) {
    live *x = &l->list.ptr[i];
    bool there = !is_temporary(l, x) || (x->born <= when && when <= x->dies);
    if (x->bytes && there && !x->vmem) order[count++] = x;
  }
  qsort(order, count, sizeof *order, by_size);
  e->num_buffers = AT_MIN(count, (uint32_t)kBuffersShown);
  for (uint32_t i = 0; i < e->num_buffers; i++) {
    const live *x = order[i];
    AT_TRY_ALLOC(b[i].name, name_of(l, x));
    b[i].type = at_est_type(l->arena, at_value_type(x->value));
    b[i].source =
        x->argument ? "" : at_est_source(l->arena, x->value.node->loc);
    b[i].bytes = x->bytes;
    b[i].argument = x->argument;
    b[i].result = x->output;
    b[i].until = "";
    if (is_temporary(l, x) && x->dies < l->groups.count) {
      const at_node *n = l->groups.list[l->order[x->dies]]->root;
      AT_TRY_ALLOC(b[i].until, at_arena_printf(l->arena, "%s.%u",
                                               at_op_text(n->op), n->id));
    }
  }
  e->buffers = b;
  return AT_OK;
}

// Every temporary in HBM from the step that writes it to the last that reads
// it; what the bodies of a step's loop or branch need beside counts there.
static at_status list_lives(at_estimate *e, const lives *l) {
  uint32_t count = l->groups.count, lives = 0;
  const char **steps;
  at_estimate_life *told;
  AT_TRY_ALLOC(steps, at_new(l->arena, const char *, count + 1));
  AT_TRY_ALLOC(told,
               at_new(l->arena, at_estimate_life, l->list.len + count + 1));
  for (uint32_t s = 0; s < count; s++) {
    const at_node *n = l->groups.list[l->order[s]]->root;
    AT_TRY_ALLOC(steps[s],
                 at_arena_printf(l->arena, "%s.%u", at_op_text(n->op), n->id));
    at_estimate_life x = {
        .name = steps[s], .type = "inside", .from = s, .to = s};
    x.source = at_est_source(l->arena, n->loc);
    x.bytes = l->beside[s];
    if (x.bytes) told[lives++] = x;
  }
  for (size_t i = 0; i < l->list.len && count; i++) {
    const live *x = &l->list.ptr[i];
    if (x->dies < x->born || x->vmem || !is_temporary(l, x) || !x->bytes)
      continue;
    at_estimate_life *t = &told[lives++];
    *t = (at_estimate_life){.bytes = x->bytes, .from = x->born};
    t->to = AT_MIN(x->dies, count - 1);
    AT_TRY_ALLOC(t->name, name_of(l, x));
    t->type = at_est_type(l->arena, at_value_type(x->value));
    t->source = at_est_source(l->arena, x->value.node->loc);
  }
  e->lives = told, e->num_lives = lives;
  e->steps = steps, e->num_steps = count;
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

static void sum_interface(at_estimate *e, const lives *l) {
  const at_comp *c = l->comp;
  const at_io_info *infos = c->module->params;
  for (uint32_t i = 0; i < c->num_params; i++) {
    uint64_t bytes = on_device(l, (at_value){c->params[i], 0});
    e->argument_bytes += bytes;
    if (infos && infos[i].alias >= 0) e->alias_bytes += bytes;
  }
  for (uint32_t r = 0; r < c->num_results; r++) {
    uint64_t bytes = on_device(l, c->results[r]);
    e->output_bytes += bytes;
    if (could_be_donated(c, at_value_type(c->results[r])))
      e->donatable_bytes += bytes;
  }
}

at_status at_est_memory(at_estimate *e, const at_comp *c, const at_target *t,
                        bool over_time, at_arena *a) {
  lives l;
  uint32_t when;
  double vmem = kVmemShare *
                at_machine_number(t->machine, "vmem_bytes_per_core", 0) *
                at_machine_number(t->machine, "cores_per_device", 1);
  uses u = {.arena = a, .of = at_map_in(a), .narrow = at_map_in(a)};
  bool tpu = !strcmp(t->machine->platform, "tpu");
  if (tpu) AT_TRY(note_uses(&u, c));
  AT_TRY(measure(c, t, vmem, tpu ? &u : NULL, a, &l, &e->temp_bytes, &when));
  sum_interface(e, &l);
  e->peak_bytes =
      e->argument_bytes + e->output_bytes - e->alias_bytes + e->temp_bytes;
  AT_TRY(list_buffers(e, &l, when));
  if (over_time) AT_TRY(list_lives(e, &l));
  double chip = at_machine_number(t->machine, "hbm_bytes_per_chip", 0) -
                at_machine_number(t->machine, "hbm_reserved_bytes_per_chip", 0);
  e->memory_bytes = (uint64_t)(chip / AT_MAX(1u, t->devices_per_chip));
  return AT_OK;
}

at_status at_estimate_memory(const at_module *m, const at_target *t,
                             at_arena *a, const at_estimate **out) {
  at_estimate *e;
  AT_TRY_ALLOC(e, at_new(a, at_estimate, 1));
  AT_TRY(at_est_memory(e, m->entry, t, false, a));
  *out = e;
  return AT_OK;
}
