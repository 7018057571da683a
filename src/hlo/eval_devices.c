// A program over several devices: each device is a thread that evaluates the
// program; at a collective all of them meet, show their operands, and each
// takes its result.
#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "hlo/eval_internal.h"

// The devices of one evaluation. Fields from `waiting` to `failed` are the
// lock's; entries of `at` and `operands` are written by their device in front
// of a barrier and read by the others behind it.
struct at_gang {
  pthread_mutex_t lock;
  pthread_cond_t turned;
  int64_t replicas, partitions, devices;
  int64_t waiting;
  uint64_t round;
  bool failed;
  const at_node **at;                  // by device: where it is
  const at_literal *const **operands;  // by device: what it shows
};

// A barrier. `round` counts the barriers passed: a device waits until it
// changes, so that a fast device may enter the next barrier before the slow
// ones have left this one.
static at_status meet(struct at_gang *g) {
  pthread_mutex_lock(&g->lock);
  uint64_t round = g->round;
  if (++g->waiting == g->devices) {
    g->waiting = 0;
    g->round++;
    pthread_cond_broadcast(&g->turned);
  }
  while (g->round == round && !g->failed)
    pthread_cond_wait(&g->turned, &g->lock);
  bool failed = g->round == round;
  pthread_mutex_unlock(&g->lock);
  return failed ? AT_FAIL(AT_CANCELLED, "evaluator: another device failed")
                : AT_OK;
}

// A device that fails wakes the others: they end with CANCELLED at the barrier
// instead of waiting for it forever.
static void leave(struct at_gang *g) {
  pthread_mutex_lock(&g->lock);
  g->failed = true;
  pthread_cond_broadcast(&g->turned);
  pthread_mutex_unlock(&g->lock);
}

// ---- Groups
// Members of this device's group, in order; count 0: it is in none.
typedef struct members {
  int64_t *ids;
  int64_t count, rank;
} members;

// Appends a device to the group; `rank` becomes this device's place in it.
static void enlist(members *m, int64_t device, int64_t me, bool *mine) {
  if (device == me) {
    *mine = true;
    m->rank = m->count;
  }
  m->ids[m->count++] = device;
}

// How ids of a group name devices; StableHLO's process groups.
static void add_group(const struct at_gang *g, const at_node *n, at_dims ids,
                      int64_t me, members *m, bool *mine) {
  bool channel = at_node_int(n, AT_ATTR_CHANNEL_ID, 0) > 0;
  bool global = at_node_bool(n, AT_ATTR_USE_GLOBAL_DEVICE_IDS);
  bool reduces = n->op == AT_OP_ALL_REDUCE || n->op == AT_OP_ALL_GATHER ||
                 n->op == AT_OP_REDUCE_SCATTER;
  int64_t p = g->partitions, replica = me / p, partition = me % p;
  bool both = reduces && channel && !global;
  for (int64_t k = 0; k < (both ? p : 1); k++)
    for (uint32_t i = 0; i < ids.rank; i++) {
      int64_t id = ids.ptr[i];
      if (id < 0) continue;
      int64_t device = reduces && global     ? id
                       : both                ? id * p + k
                       : !reduces && channel ? replica * p + id
                                             : id * p + partition;
      if (device < g->devices) enlist(m, device, me, mine);
    }
}

// The group of the node's replica_groups that has this device, or, where there
// are none, the one group of all that the mode spans. count is 0 where the
// device is in no group.
static at_status group_of(const at_eval_args *e, members *m) {
  const struct at_gang *g = e->cx->gang;
  const at_attr *a = at_node_attr(e->n, AT_ATTR_REPLICA_GROUPS);
  AT_TRY_ALLOC(m->ids, at_new(e->cx->arena, int64_t, (size_t)g->devices + 1));
  bool mine = false;
  for (uint32_t i = 0; a && i < a->groups.n && !mine; i++) {
    m->count = 0;
    add_group(g, e->n, a->groups.list[i], e->cx->device, m, &mine);
  }
  if (!a || !a->groups.n) {  // one group of all that the mode spans
    int64_t all[4096];
    uint32_t count = 0;
    for (int64_t i = 0; i < g->devices && count < AT_LEN(all); i++)
      all[count++] = i;
    bool channel = at_node_int(e->n, AT_ATTR_CHANNEL_ID, 0) > 0;
    bool global = at_node_bool(e->n, AT_ATTR_USE_GLOBAL_DEVICE_IDS);
    bool reduces = e->n->op == AT_OP_ALL_REDUCE ||
                   e->n->op == AT_OP_ALL_GATHER ||
                   e->n->op == AT_OP_REDUCE_SCATTER;
    int64_t ids = reduces && global     ? g->devices
                  : !reduces && channel ? g->partitions
                                        : g->replicas;
    m->count = 0;
    add_group(g, e->n, (at_dims){all, (uint32_t)AT_MIN(ids, (int64_t)count)},
              e->cx->device, m, &mine);
  }
  if (!mine) m->count = 0;
  return AT_OK;
}

// Operand i of another device. Valid between the two barriers of a collective.
// Without a gang, of the only device.
static const at_literal *shown(const at_eval_args *e, int64_t device,
                               uint32_t i) {
  return e->cx->gang ? e->cx->gang->operands[device][i] : e->in[i];
}

// ---- Exchanges
// Copies `from`, a block of `count` indices of dimension d of `src` beginning
// at s0, to index d0 of the same dimension of `dst`.
static void copy_block(const at_literal *src, int64_t s0, const at_type *dt,
                       uint8_t *dst, int64_t d0, uint32_t d, int64_t count) {
  size_t inner = at_dtype_bytes(dt->dtype);
  int64_t outer = 1;
  for (uint32_t i = 0; i < d; i++) outer *= dt->dims[i];
  for (uint32_t i = d + 1; i < dt->rank; i++) inner *= (size_t)dt->dims[i];
  size_t es = at_dtype_bytes(dt->dtype);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t k = 0; k < count; k++)
      for (size_t b = 0; b < inner; b += es)
        memcpy(dst + ((size_t)(o * dt->dims[d] + d0 + k)) * inner + b,
               at_literal_at(
                   src,
                   (int64_t)(((size_t)(o * src->type.dims[d] + s0 + k) * inner +
                              b) /
                             es)),
               es);
}

// The least aligned block of device numbers that has both, as log2 of its size.
static int joined_at(int64_t a, int64_t b) {
  return a == b ? 0 : 64 - __builtin_clzll((uint64_t)(a ^ b));
}

// Replaces the two topmost partial sums by the reduction of both, the earlier
// one as the left argument.
static at_status join_last(const at_eval_args *e, const at_literal **sums,
                           int *depth) {
  const at_literal *r;
  AT_TRY(at_eval_comp(e->cx, e->env, e->n->regions[0], &sums[*depth - 2], &r));
  sums[--*depth - 1] = r;
  return AT_OK;
}

// Element i of operand `v`, reduced over the group: a tree over the numbers of
// its devices, in which aligned blocks of them come together.
static at_status reduce_element(const at_eval_args *e, const members *m,
                                uint32_t v, int64_t i, uint8_t *out) {
  at_type t = at_type_scalar(shown(e, m->ids[0], v)->type.dtype);
  const at_literal *sums[66];
  int levels[66], depth = 0;
  for (int64_t k = 0, at = -1; k < m->count; k++) {
    int64_t next = INT64_MAX;  // the smallest number behind `at`
    for (int64_t j = 0; j < m->count; j++)
      if (m->ids[j] > at) next = AT_MIN(next, m->ids[j]);
    int level = k ? joined_at(at, next) : 0;
    while (depth > 1 && levels[depth - 1] < level)
      AT_TRY(join_last(e, sums, &depth));
    levels[depth] = level;
    AT_TRY(at_literal_make(e->cx->arena, t, at_literal_at(shown(e, next, v), i),
                           false, true, &sums[depth++]));
    at = next;
  }
  while (depth > 1) AT_TRY(join_last(e, sums, &depth));
  memcpy(out, at_literal_at(sums[0], 0), at_dtype_bytes(t.dtype));
  return AT_OK;
}

// Every member computes the same tree of sums for itself, so that all get the
// same bits.
static at_status all_reduce(const at_eval_args *e, const members *m) {
  for (uint32_t v = 0; v < e->n->num_results; v++) {
    const at_type *t = &e->n->types[v];
    uint8_t *data;
    AT_TRY(at_eval_new(e->cx, t, &e->out[v], &data));
    for (int64_t i = 0; i < at_type_elements(t); i++)
      AT_TRY(reduce_element(e, m, v, i,
                            data + (size_t)i * at_dtype_bytes(t->dtype)));
  }
  return AT_OK;
}

// Reduces only the elements of this device's piece: along the scattered
// dimension, piece number `rank`.
static at_status scatter_one(const at_eval_args *e, const members *m,
                             uint32_t v) {
  uint32_t d = (uint32_t)at_node_int(e->n, AT_ATTR_SCATTER_DIMENSION, 0);
  const at_type *t = &e->n->types[v], *w = &e->in[v]->type;
  uint8_t *data;
  int64_t inner = 1;
  for (uint32_t i = d + 1; i < t->rank; i++) inner *= t->dims[i];
  AT_TRY(at_eval_new(e->cx, t, &e->out[v], &data));
  for (int64_t i = 0; i < at_type_elements(t); i++) {
    int64_t o = i / (t->dims[d] * inner), k = i / inner % t->dims[d];
    int64_t from =
        (o * w->dims[d] + m->rank * t->dims[d] + k) * inner + i % inner;
    AT_TRY(reduce_element(e, m, v, from,
                          data + (size_t)i * at_dtype_bytes(t->dtype)));
  }
  return AT_OK;
}

static at_status reduce_scatter(const at_eval_args *e, const members *m) {
  for (uint32_t v = 0; v < e->n->num_results; v++) AT_TRY(scatter_one(e, m, v));
  return AT_OK;
}

// Members' operands stand in group order along the gathered dimension.
static at_status all_gather(const at_eval_args *e, const members *m) {
  uint32_t d = (uint32_t)at_node_int(e->n, AT_ATTR_ALL_GATHER_DIM, 0);
  for (uint32_t v = 0; v < e->n->num_results; v++) {
    uint8_t *data;
    int64_t each = e->in[v]->type.dims[d];
    AT_TRY(at_eval_new(e->cx, &e->n->types[v], &e->out[v], &data));
    for (int64_t k = 0; k < m->count; k++)
      copy_block(shown(e, m->ids[k], v), 0, &e->n->types[v], data, k * each, d,
                 each);
  }
  return AT_OK;
}

// Takes piece number `rank` of every member's operand along the split dimension
// and joins them along the other one. A piece is copied through a literal of
// its own, since its shape differs from both ends.
static at_status all_to_all(const at_eval_args *e, const members *m) {
  uint32_t s = (uint32_t)at_node_int(e->n, AT_ATTR_SPLIT_DIMENSION, 0);
  uint32_t c = (uint32_t)at_node_int(e->n, AT_ATTR_CONCAT_DIMENSION, 0);
  for (uint32_t v = 0; v < e->n->num_results; v++) {
    const at_type *w = &e->in[v]->type;
    uint8_t *data, *piece;
    AT_TRY(at_eval_new(e->cx, &e->n->types[v], &e->out[v], &data));
    int64_t *dims;
    AT_TRY_ALLOC(dims, at_new(e->cx->arena, int64_t, w->rank));
    memcpy(dims, w->dims, w->rank * sizeof *dims);
    dims[s] /= m->count;
    at_type pt = *w;
    pt.dims = dims;
    for (int64_t k = 0; k < m->count; k++) {
      const at_literal *p;
      AT_TRY(at_eval_new(e->cx, &pt, &p, &piece));
      copy_block(shown(e, m->ids[k], v), m->rank * dims[s], &pt, piece, 0, s,
                 dims[s]);
      copy_block(p, 0, &e->n->types[v], data, k * dims[c], c, dims[c]);
    }
  }
  return AT_OK;
}

// The operand of the device that sends to this one; zeros where none does.
// Pairs name partitions with a channel, replicas without.
static at_status permute(const at_eval_args *e) {
  const at_attr *a = at_node_attr(e->n, AT_ATTR_SOURCE_TARGET_PAIRS);
  const struct at_gang *g = e->cx->gang;
  bool channel = at_node_int(e->n, AT_ATTR_CHANNEL_ID, 0) > 0;
  int64_t p = g->partitions, me = e->cx->device;
  uint8_t *data;
  for (uint32_t i = 0; a && i < a->groups.n; i++) {
    at_dims pair = a->groups.list[i];
    int64_t own = channel ? me % p : me / p;
    if (pair.rank != 2 || pair.ptr[1] != own) continue;
    int64_t from =
        channel ? me - me % p + pair.ptr[0] : pair.ptr[0] * p + me % p;
    if (from >= 0 && from < g->devices) {
      e->out[0] = shown(e, from, 0);
      return AT_OK;
    }
  }
  return at_eval_new(e->cx, &e->n->types[0], e->out, &data);  // zeros
}

// The operand of the group's first member; zeros outside of every group, as
// StableHLO defines it.
static at_status broadcast(const at_eval_args *e, const members *m) {
  uint8_t *data;
  if (!m->count) return at_eval_new(e->cx, &e->n->types[0], e->out, &data);
  e->out[0] = shown(e, m->ids[0], 0);
  return AT_OK;
}

// Rows of everybody's input where their offsets send them. Offsets and sizes of
// a sender are lists by receiver. Rows of the output operand that nobody sends
// to stay as they are.
static at_status ragged(const at_eval_args *e, const members *m) {
  enum { INPUT, OUTPUT, IN_OFFSETS, SEND_SIZES, OUT_OFFSETS };
  const at_type *t = &e->n->types[0];
  uint8_t *data;
  if (at_type_elements(&e->in[IN_OFFSETS]->type) < m->count)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "evaluator: ragged_all_to_all has fewer offsets than its "
                   "group has devices");
  AT_TRY(at_eval_new(e->cx, t, e->out, &data));
  copy_block(e->in[OUTPUT], 0, t, data, 0, 0, t->dims[0]);
  for (int64_t k = 0; k < m->count; k++) {
    int64_t from = at_literal_int(shown(e, m->ids[k], IN_OFFSETS), m->rank);
    int64_t rows = at_literal_int(shown(e, m->ids[k], SEND_SIZES), m->rank);
    int64_t to = at_literal_int(shown(e, m->ids[k], OUT_OFFSETS), m->rank);
    const at_literal *in = shown(e, m->ids[k], INPUT);
    if (from < 0 || rows < 0 || to < 0 || from > in->type.dims[0] - rows ||
        to > t->dims[0] - rows)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "evaluator: ragged_all_to_all out of bounds");
    copy_block(in, from, t, data, to, 0, rows);
  }
  return AT_OK;
}

// A group of one device sends to itself.
at_status at_eval_ragged_alone(const at_eval_args *e) {
  int64_t me = 0;
  return ragged(e, &(members){.ids = &me, .count = 1});
}

// Computes this device's results from what the members show. Runs between the
// two barriers and waits for nobody.
static at_status exchange(const at_eval_args *e) {
  members m = {0};
  if (e->n->op == AT_OP_COLLECTIVE_PERMUTE) return permute(e);
  AT_TRY(group_of(e, &m));
  if (e->n->op == AT_OP_COLLECTIVE_BROADCAST) return broadcast(e, &m);
  if (!m.count)
    return AT_FAIL(AT_INVALID_ARGUMENT, "evaluator: %s leaves device %lld out",
                   at_op_text(e->n->op), (long long)e->cx->device);
  switch (e->n->op) {
    case AT_OP_ALL_REDUCE:
      return all_reduce(e, &m);
    case AT_OP_REDUCE_SCATTER:
      return reduce_scatter(e, &m);
    case AT_OP_ALL_GATHER:
      return all_gather(e, &m);
    case AT_OP_ALL_TO_ALL:
      return all_to_all(e, &m);
    default:
      return ragged(e, &m);
  }
}

// Shows the operands, meets, takes the results, and meets again, so that no
// device goes on, and frees what it shows, while another still reads it.
at_status at_eval_gang_collective(const at_eval_args *e) {
  struct at_gang *g = e->cx->gang;
  g->at[e->cx->device] = e->n;
  g->operands[e->cx->device] = e->in;
  AT_TRY(meet(g));
  at_status st = AT_OK;
  for (int64_t i = 0; i < g->devices && !st.err; i++)
    if (g->at[i] != e->n)
      st = AT_FAIL(AT_INVALID_ARGUMENT,
                   "evaluator: devices meet at different collectives");
  if (!st.err) st = exchange(e);
  if (st.err) {
    leave(g);
    return st;
  }
  return meet(g);
}

// ---- Devices
typedef struct device {
  struct at_gang *gang;
  int64_t id;
  const at_comp *c;
  const at_literal *const *args;
  const at_eval_options *opt;
  at_arena *arena;
  const at_literal **out;
  at_thread *thread;  // NULL: it could not be started
  at_status st;
} device;

// The body of a device's thread. It sets `st` before leave() wakes the others,
// and the starter joins the thread before it reads `st`.
static void run_device(void *arg) {
  device *d = (device *)arg;
  at_eval_options opt = d->opt ? *d->opt : (at_eval_options){0};
  opt.replica_id = d->id / d->gang->partitions;
  opt.partition_id = d->id % d->gang->partitions;
  d->st = at_eval_member(d->c, d->args, &opt, d->gang, d->id, d->arena, d->out);
  if (d->st.err) leave(d->gang);
}

// Moves a device's results from the device's arena to the caller's.
static at_status copy_out(const device *d, at_arena *a) {
  for (uint32_t i = 0; i < d->c->num_results; i++) {
    at_type t = d->out[i]->type;
    int64_t *dims = NULL;
    if (t.rank)
      AT_TRY_ALLOC(dims, at_arena_copy(a, t.dims, t.rank * sizeof *dims,
                                       _Alignof(int64_t)));
    t.dims = dims;
    AT_TRY(at_literal_make(a, t, d->out[i]->data, d->out[i]->splat, false,
                           &d->out[i]));
  }
  return AT_OK;
}

// Each device has an arena of its own, since arenas are single-threaded; the
// results are copied into `a` once all threads have ended.
at_status at_eval_devices(const at_comp *c,
                          const at_literal *const *const *args,
                          const at_eval_options *opt, at_arena *a,
                          const at_literal **const *out_results) {
  const at_module *m = c->module;
  struct at_gang g = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .turned = PTHREAD_COND_INITIALIZER,
                      .replicas = AT_MAX(m->num_replicas, (int64_t)1),
                      .partitions = AT_MAX(m->num_partitions, (int64_t)1)};
  g.devices = g.replicas * g.partitions;
  if (g.devices > 256)
    return AT_FAIL(AT_UNIMPLEMENTED, "evaluator: %lld devices",
                   (long long)g.devices);
  device *list;
  AT_TRY_ALLOC(list, at_new(a, device, (size_t)g.devices));
  AT_TRY_ALLOC(g.at, at_new(a, const at_node *, (size_t)g.devices));
  AT_TRY_ALLOC(g.operands,
               at_new(a, const at_literal *const *, (size_t)g.devices));
  for (int64_t i = 0; i < g.devices; i++) {
    device *d = &list[i];
    *d = (device){.gang = &g,
                  .id = i,
                  .c = c,
                  .args = args[i],
                  .opt = opt,
                  .arena = at_arena_create(),
                  .out = out_results[i]};
    at_status st = d->arena ? at_thread_start("atoll-device", AT_THREAD_STACK,
                                              run_device, d, &d->thread)
                            : AT_NO_MEMORY("devices of the evaluator");
    if (st.err) {
      d->st = st;
      leave(&g);
    }
  }
  at_status first = AT_OK;
  for (int64_t i = 0; i < g.devices; i++) {
    at_thread_join(list[i].thread);
    // The device that failed tells more than those that it stopped.
    bool better =
        list[i].st.err && (!first.err || at_status_code(first) == AT_CANCELLED);
    if (better) {
      at_status_free(first);
      first = list[i].st;
    } else {
      at_status_free(list[i].st);
    }
  }
  for (int64_t i = 0; i < g.devices; i++) {
    if (!first.err) first = copy_out(&list[i], a);
  }
  for (int64_t i = 0; i < g.devices; i++) at_arena_destroy(list[i].arena);
  return first;
}
