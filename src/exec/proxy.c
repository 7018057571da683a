// Buffers, programs and launches that stand for those of other processes (see
// proxy.h). Their descriptions, holds and deletion are those of any buffer;
// what would touch bytes or code is asked of the hosts.
#include <stdlib.h>
#include <unistd.h>

#include "exec/exec_internal.h"

enum { kFewHosts = 16, kFewArgs = 64 };

typedef struct group group;

// One name, and how many of its shards are still used here.
struct at_proxy_array {
  uint64_t name;
  _Atomic uint32_t left;
  uint32_t num_shards;
  uint64_t bytes;  // of a shard
  // That it is a member of; made under the runtime's proxy_lock, by who holds a
  // shard.
  _Atomic(group *) group;
  bool given;              // a launch has taken it, its name included
  _Atomic bool unwritten;  // the hosts wait for `write` or `refuse`
};

// When the results of a launch on one host, or a new array, are defined. That
// is asked for once.
struct at_proxy_moment {
  _Atomic uint32_t refs;
  _Atomic bool asked;
  _Atomic(const at_buffer *) by;  // who asks, until it is answered
  at_event *event;
};

// Shards of several arrays under one more name, for launches that take them
// together. It goes when the first of its members goes.
struct group {
  group *next;  // of those that go behind a launch
  uint64_t name;
  uint32_t count;
  struct {
    at_proxy_array *array;
    uint32_t shard;
  } members[];
};

struct at_placement {
  at_placement *next;
  uint64_t program;
  uint32_t num_chips;
  uint32_t chips[];
};

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a buffer");
}

// Of the runtime that b is of.
static const at_proxy *proxy_of(const at_buffer *b) {
  return b->chip->runtime->proxy;
}

// b has an array still.
static at_proxy_shard shard_of(const at_buffer *b) {
  return (at_proxy_shard){b->array->name, b->shard, b->chip->info.id};
}

// ---- Moments
static at_proxy_moment *make_moment(void) {
  at_proxy_moment *m = calloc(1, sizeof *m);
  if (!m || !(m->event = at_event_create())) return free(m), NULL;
  atomic_init(&m->refs, 1);
  return m;
}

// The last one also drops the event.
void at_proxy_moment_release(at_proxy_moment *m) {
  if (!m || atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
    return;
  at_event_release(m->event);
  free(m);
}

// A question about a buffer. It goes to the hosts by another way than what
// drops or donates the array, so the buffer is held until the answer.
typedef struct query {
  at_buffer *buffer;
  at_event *done;  // referenced
  bool watches;
} query;

// Fires the caller's event with the answer.
static void answered(at_status s, void *arg) {
  query *q = arg;
  at_runtime *rt = q->buffer->chip->runtime;
  if (q->watches) atomic_store(&q->buffer->moment->by, NULL);
  at_buffer_unhold(q->buffer);  // before anybody knows
  at_event_fire(q->done, s);
  at_event_release(q->done);
  free(q);
  atomic_fetch_sub(&rt->proxy_asked, 1);
}

// What the proxy is to fire. NULL: no memory; else it takes over one hold.
static at_event *begin_query(at_buffer *b, at_event *done, bool watches) {
  query *q = malloc(sizeof *q);
  at_event *e = q ? at_event_create() : NULL;
  if (!e) return free(q), NULL;
  *q = (query){b, at_event_retain(done), watches};
  atomic_fetch_add(&b->chip->runtime->proxy_asked, 1);
  if (watches) atomic_store(&b->moment->by, b);
  if (!at_code_take(at_event_on(e, answered, q))) return e;
  if (watches) atomic_store(&b->moment->by, NULL);
  atomic_fetch_sub(&b->chip->runtime->proxy_asked, 1);
  at_event_release(q->done);
  at_event_release(e);
  return free(q), NULL;
}

// Once for each moment: the buffers of one launch on one host are defined
// together.
void at_proxy_ask(at_buffer *b) {
  const at_proxy *p = proxy_of(b);
  if (atomic_load_explicit(&b->moment->asked, memory_order_relaxed) ||
      !at_buffer_hold(b))
    return;
  at_event *e = NULL;
  if (!atomic_exchange(&b->moment->asked, true) &&
      !(e = begin_query(b, b->ready, true)))
    at_event_fire(b->ready, no_memory());
  if (!e) return at_buffer_unhold(b);
  at_proxy_shard s = shard_of(b);
  p->watch(p->arg, &s, e);
}

// The proxy answers everything that was asked with a failure; waits until that
// has been heard.
void at_proxy_end(at_runtime *rt) {
  if (!rt->proxy) return;
  rt->proxy->end(rt->proxy->arg);
  while (atomic_load(&rt->proxy_asked)) usleep(100);
}

// ---- Arrays
static at_proxy_array *make_array(uint64_t name, uint32_t shards,
                                  uint64_t bytes) {
  at_proxy_array *a = calloc(1, sizeof *a);
  if (!a) return NULL;
  a->name = name;
  a->num_shards = shards;
  a->bytes = bytes;
  atomic_init(&a->left, shards);
  return a;
}

// Under the lock: nobody finds it any more.
static void part(group *g) {
  for (uint32_t i = 0; i < g->count; i++)
    if (g->members[i].array->group == g)
      atomic_store(&g->members[i].array->group, NULL);
}

// Members are not touched: they may be gone.
static void drop_group(at_runtime *rt, group *g) {
  rt->proxy->drop(rt->proxy->arg, g->name, 0);
  free(g);
}

// Before the name of a member goes.
static void forget_group(at_runtime *rt, at_proxy_array *a) {
  // The lock may be held by who waits for the pod; this may be who must not.
  if (!atomic_load(&a->group)) return;
  pthread_mutex_lock(&rt->proxy_lock);
  group *g = a->group;
  if (g) {
    part(g);
    drop_group(rt, g);
  }
  pthread_mutex_unlock(&rt->proxy_lock);
}

// With the last shard the name goes to the hosts, unless a launch took it.
static void drop_shards(at_runtime *rt, at_proxy_array *a, uint32_t n) {
  uint32_t left = atomic_fetch_sub_explicit(&a->left, n, memory_order_acq_rel);
  AT_ASSERT(left >= n);
  if (left != n) return;
  forget_group(rt, a);
  if (!a->given)
    rt->proxy->drop(rt->proxy->arg, a->name, a->bytes * a->num_shards);
  free(a);
}

// The shard is not used here any more; b->array is NULL then.
void at_proxy_let_go(at_buffer *b) {
  // A group that is named no more must not keep the memory of one that is gone.
  if (atomic_exchange(&b->array->unwritten, false)) {
    const at_proxy *p = proxy_of(b);
    const at_proxy_shard s = shard_of(b);
    at_status why = AT_FAIL(AT_CANCELLED, "an array was deleted unwritten");
    at_status_free(p->refuse(p->arg, &s, why));
    at_status_free(why);
  }
  drop_shards(b->chip->runtime, b->array, 1);
  b->array = NULL;
}

// A buffer that stands for shard `shard`; consumes a reference of the moment,
// not of the array.
static at_status make_stand_in(at_chip *c, at_memory_kind k, at_dtype t,
                               at_dims dims, at_proxy_moment *m,
                               at_proxy_array *a, uint32_t shard,
                               at_buffer **out) {
  at_buffer *b;
  at_status st = at_buffer_make(c, k, t, dims, at_event_retain(m->event), &b);
  if (st.err) {
    at_proxy_moment_release(m);
    return st;
  }
  b->moment = m;
  b->array = a;
  b->shard = shard;
  *out = b;
  return AT_OK;
}

// Of one shard. *spec: what the hosts are told.
static at_status make_single(at_chip *c, at_memory_kind k, at_dtype t,
                             at_dims dims, at_proxy_spec *spec,
                             at_buffer **out) {
  const at_proxy *p = c->runtime->proxy;
  AT_TRY(at_runtime_check(c->runtime));
  at_proxy_moment *m = make_moment();
  at_proxy_array *a = m ? make_array(p->names(p->arg, 1), 1, 0) : NULL;
  if (!a) {
    at_proxy_moment_release(m);
    return no_memory();
  }
  at_status st = make_stand_in(c, k, t, dims, m, a, 0, out);
  if (st.err) {
    free(a);
    return st;
  }
  a->bytes = (*out)->padded_bytes;
  *spec = (at_proxy_spec){.array = a->name,
                          .chip = c->info.id,
                          .kind = k,
                          .dtype = t,
                          .dims = {(*out)->dims, (*out)->rank}};
  return AT_OK;
}

// What could not even be sent has no name there.
static void abandon(at_buffer *b) {
  b->array->given = true;
  at_buffer_release(b);
}

// Strided arrays are gathered first; the proxy copies the bytes during the
// call.
at_status at_proxy_from_host(at_chip *c, at_memory_kind k,
                             const at_host_array *src, at_buffer **out) {
  const at_proxy *p = c->runtime->proxy;
  at_proxy_spec spec;
  at_buffer *b;
  AT_TRY(make_single(c, k, src->dtype, src->dims, &spec, &b));
  at_status st = AT_OK;
  at_bytes data = {src->data, b->bytes};
  if (b->bytes && !src->data)
    st = AT_FAIL(AT_INVALID_ARGUMENT, "the host array has no data");
  void *dense = NULL;
  if (!st.err && !at_host_array_is_dense(src)) {
    st = at_chip_take_scratch(c, b->bytes, false, &dense);
    if (!st.err) at_host_array_gather(c->runtime->pool, src, dense, b->bytes);
    data.ptr = dense;
  }
  if (!st.err) st = p->create(p->arg, &spec, &data);
  if (dense) at_chip_give_scratch(c, dense, b->bytes, false);
  if (st.err)
    abandon(b);
  else
    *out = b;
  return st;
}

// Memory here is only for the bytes to be written once.
at_status at_proxy_create(at_chip *c, at_memory_kind k, at_dtype t,
                          at_dims dims, at_buffer **out) {
  const at_proxy *p = c->runtime->proxy;
  at_proxy_spec spec;
  at_buffer *b;
  AT_TRY(make_single(c, k, t, dims, &spec, &b));
  at_status st = at_chip_take_scratch(c, b->bytes, false, &b->data);
  if (!st.err) st = p->create(p->arg, &spec, NULL);
  if (st.err) {
    abandon(b);
    return st;
  }
  atomic_store(&b->array->unwritten, true);
  *out = b;
  return AT_OK;
}

// The bytes here are for writing them, once.
void at_proxy_define(at_buffer *b, at_status s) {
  const at_proxy *p = proxy_of(b);
  if (!b->array) {  // deleted before
    at_status_free(s);
    return;
  }
  at_proxy_shard shard = shard_of(b);
  atomic_store(&b->array->unwritten, false);
  if (!s.err) s = p->write(p->arg, &shard, (at_bytes){b->data, b->bytes});
  if (s.err) {
    at_status st = p->refuse(p->arg, &shard, s);
    if (!atomic_exchange(&b->moment->asked, true))
      at_event_fire(b->ready, s);
    else
      at_status_free(s);
    at_status_free(st);
  }
}

// Reads the whole shard, waits, and keeps the bytes for the next caller. Of two
// that read at once one throws its copy away.
void *at_proxy_data(at_buffer *b) {
  const at_proxy *p = proxy_of(b);
  pthread_mutex_t *lock = &b->chip->runtime->proxy_lock;
  void *data = NULL;
  at_event *done = NULL;
  pthread_mutex_lock(lock);
  void *have = b->data;
  pthread_mutex_unlock(lock);
  if (have) return have;
  at_status st = at_chip_take_scratch(b->chip, b->bytes, false, &data);
  if (!st.err && !(done = at_event_create())) st = no_memory();
  if (!st.err) {
    at_proxy_shard s = shard_of(b);
    p->read(p->arg, &s, data, 0, b->bytes, at_event_retain(done));
    st = at_event_wait(done);
  }
  at_event_release(done);
  pthread_mutex_lock(lock);
  if (!st.err && !b->data) {
    b->data = data;
    data = NULL;
  }
  have = b->data;
  pthread_mutex_unlock(lock);
  if (data) at_chip_give_scratch(b->chip, data, b->bytes, false);
  at_status_free(st);
  return have;
}

// The hold that the caller has is given back when the answer has come.
at_status at_proxy_to_host(at_buffer *b, void *dst, size_t offset, size_t n,
                           at_event **out_done) {
  const at_proxy *p = proxy_of(b);
  at_proxy_shard s = shard_of(b);
  at_event *done = at_event_create();
  at_event *e = done ? begin_query(b, done, false) : NULL;
  if (!e) {
    at_buffer_unhold(b);
    at_event_release(done);
    return no_memory();
  }
  *out_done = done;
  p->read(p->arg, &s, dst, offset, n, e);
  return AT_OK;
}

// From host to host; nothing comes here.
at_status at_proxy_copy(at_buffer *b, at_chip *c, at_memory_kind k,
                        at_buffer **out) {
  const at_proxy *p = proxy_of(b);
  at_proxy_spec spec;
  at_buffer *to;
  AT_TRY(make_single(c, k, b->dtype, (at_dims){b->dims, b->rank}, &spec, &to));
  at_proxy_shard from = shard_of(b);
  at_status st = p->copy(p->arg, &from, &spec);
  if (st.err)
    abandon(to);
  else
    *out = to;
  return st;
}

// ---- Programs
static uint32_t num_chips(const at_launch *in) {
  return in->num_chips ? in->num_chips : 1;
}
static at_chip *chip_of(const at_launch *in, uint32_t d) {
  return in->num_chips ? in->chips[d] : in->chip;
}

// Is the placement on just these chips, in this order?
static bool is_on(const at_placement *p, const at_launch *in) {
  bool same = p->num_chips == num_chips(in);
  for (uint32_t d = 0; same && d < p->num_chips; d++)
    same = p->chips[d] == chip_of(in, d)->info.id;
  return same;
}

// Under the lock.
static at_status place(at_loaded *l, const at_launch *in, at_placement **out) {
  const at_proxy *p = l->runtime->proxy;
  uint32_t n = num_chips(in);
  at_placement *made = malloc(sizeof *made + n * sizeof *made->chips);
  if (!made) return no_memory();
  made->num_chips = n;
  made->program = p->names(p->arg, 1);
  for (uint32_t d = 0; d < n; d++) made->chips[d] = chip_of(in, d)->info.id;
  at_status st =
      p->load(p->arg, made->program,
              (at_bytes){l->block, l->header->total_bytes}, made->chips, n);
  if (st.err) {
    free(made);
    return st;
  }
  made->next = l->placements;
  *out = l->placements = made;
  return AT_OK;
}

// Under the lock, and used under it: another launch may replace it.
static at_status find_placement(at_loaded *l, const at_launch *in,
                                at_placement **out) {
  const at_proxy *x = l->runtime->proxy;
  at_placement **at = &l->placements, *p;
  while ((p = *at) && !is_on(p, in)) at = &p->next;
  at_status st = AT_OK;
  if (p && x->is_stale(x->arg, p->program)) {
    *at = p->next;
    x->unload(x->arg, p->program);
    free(p);
    p = NULL;
  }
  if (p)
    *out = p;
  else
    st = place(l, in, out);
  return st;
}

// Nobody launches l any more.
void at_proxy_unload(at_loaded *l) {
  const at_proxy *p = l->runtime->proxy;
  for (at_placement *a = l->placements, *next; a; a = next) {
    next = a->next;
    p->unload(p->arg, a->program);
    free(a);
  }
}

// ---- Arguments of a launch
typedef struct launch {
  at_loaded *l;
  const at_launch *in;
  const uint8_t *donated;
  uint32_t num_devices;
  at_buffer **outputs;
  at_proxy_arg *args;         // [num_inputs]
  at_proxy_array **arrays;    // [num_outputs]
  at_proxy_moment **moments;  // by host
  group **retired;  // that others have replaced: the launch may name them
} launch;

// Input i of device d.
static at_buffer *argument(const launch *x, uint32_t i, uint32_t d) {
  return x->in->args[(size_t)d * x->l->num_inputs + i];
}

// Shards of one array, in its order?
static bool is_plain(const launch *x, uint32_t i) {
  const at_buffer *first = argument(x, i, 0);
  for (uint32_t d = 1; d < x->num_devices; d++) {
    const at_buffer *b = argument(x, i, d);
    if (b->array != first->array || b->shard != first->shard + d) return false;
  }
  return true;
}

// Are the shards of input i the group's members, in order?
static bool is_group(const launch *x, uint32_t i, const group *g) {
  bool same = g && g->count == x->num_devices;
  for (uint32_t d = 0; same && d < g->count; d++) {
    const at_buffer *b = argument(x, i, d);
    same = g->members[d].array == b->array && g->members[d].shard == b->shard;
  }
  return same;
}

// Under the lock: no array names g any more; it is dropped after the launch.
static void retire(const launch *x, group *g) {
  part(g);
  g->next = *x->retired;
  *x->retired = g;
}

// Under the lock.
static at_status make_group(const launch *x, uint32_t i, group **out) {
  const at_proxy *p = x->l->runtime->proxy;
  uint32_t n = x->num_devices;
  group *g = malloc(sizeof *g + n * sizeof *g->members);
  at_proxy_shard *shards = malloc(n * sizeof *shards);
  at_status st = g && shards ? AT_OK : no_memory();
  for (uint32_t d = 0; !st.err && d < n; d++) {
    at_buffer *b = argument(x, i, d);
    if (b->array->group) retire(x, b->array->group);
    g->members[d].array = b->array;
    g->members[d].shard = b->shard;
    shards[d] = shard_of(b);
  }
  if (!st.err) {
    g->count = n;
    g->name = p->names(p->arg, 1);
    st = p->group(p->arg, g->name, shards, n);
  }
  free(shards);
  if (st.err) {
    free(g);
    return st;
  }
  for (uint32_t d = 0; d < n; d++) atomic_store(&g->members[d].array->group, g);
  *out = g;
  return AT_OK;
}

// Who else uses a donated argument: who has only asked when it is defined takes
// its name, others its memory, too.
typedef enum others { NOBODY, WATCHERS, READERS } others;
// By the holds that are not the launch's own.
static others others_of(const launch *x, uint32_t i) {
  others o = NOBODY;
  for (uint32_t d = 0; d < x->num_devices; d++) {
    const at_buffer *b = argument(x, i, d);
    uint32_t holds = at_buffer_holds(b);  // one is the launch's
    if (holds == 2 && atomic_load(&b->moment->by) == b)
      o = WATCHERS;
    else if (holds > 1)
      return READERS;
  }
  return o;
}

// As an array with a first shard where the shards are one array's, in order;
// else as a group. Under the lock.
static at_status name_argument(const launch *x, uint32_t i) {
  at_proxy_arg *a = &x->args[i];
  const at_buffer *first = argument(x, i, 0);
  others others = x->donated[i] ? others_of(x, i) : READERS;
  a->donated = others != READERS;
  if (is_plain(x, i)) {
    a->array = first->array->name;
    a->first = first->shard;
    a->given = others == NOBODY && !first->array->group &&
               first->array->num_shards == x->num_devices;
    return AT_OK;
  }
  group *g = first->array->group;
  at_status st = is_group(x, i, g) ? AT_OK : make_group(x, i, &g);
  if (!st.err) a->array = g->name;
  return st;
}

// An array may be an argument twice: then its name goes with the drop.
static void give_once(const launch *x) {
  for (uint32_t i = 0; i < x->l->num_inputs; i++) {
    if (!x->args[i].given) continue;
    at_proxy_array *a = argument(x, i, 0)->array;
    a->given = true;
  }
}

// The launch has named them by now.
static void drop_retired(const launch *x) {
  for (group *g; (g = *x->retired);) {
    *x->retired = g->next;
    drop_group(x->l->runtime, g);
  }
}

// The lock keeps groups from going before the launch has named them.
static at_status send(const launch *x, at_event *done) {
  at_runtime *rt = x->l->runtime;
  at_proxy_launch m = {.outputs = x->l->num_outputs ? x->arrays[0]->name : 0,
                       .launch_id = x->in->launch_id,
                       .num_args = x->l->num_inputs,
                       .num_outputs = x->l->num_outputs,
                       .args = x->args,
                       .num_devices = x->num_devices,
                       .channels = x->in->channels,
                       .done = done};
  at_placement *p = NULL;
  pthread_mutex_lock(&rt->proxy_lock);
  at_status st = find_placement(x->l, x->in, &p);
  if (!st.err) m.program = p->program;
  for (uint32_t i = 0; !st.err && i < x->l->num_inputs; i++)
    st = name_argument(x, i);
  if (!st.err) st = rt->proxy->launch(rt->proxy->arg, &m);
  if (!st.err) give_once(x);
  drop_retired(x);
  pthread_mutex_unlock(&rt->proxy_lock);
  return st;
}

// ---- Results of a launch
static at_memory_kind output_kind(const at_loaded *l, uint32_t o) {
  const char *kind = at_loaded_string(l, l->outputs[o].memory_kind);
  return *kind == 'p'   ? AT_MEM_PINNED_HOST
         : *kind == 'u' ? AT_MEM_UNPINNED_HOST
                        : AT_MEM_DEVICE;
}

// Outputs of one host share a moment.
static at_status make_output(const launch *x, uint32_t d, uint32_t o) {
  const at_loaded *l = x->l;
  at_chip *c = chip_of(x->in, d);
  at_proxy_moment **m = &x->moments[l->runtime->proxy->host_of[c->info.id]];
  if (!*m && !(*m = make_moment())) return no_memory();
  const at_xtype *t = at_io_type(l, &l->outputs[o]);
  at_buffer **out = &x->outputs[(size_t)d * l->num_outputs + o];
  atomic_fetch_add_explicit(&(*m)->refs, 1, memory_order_relaxed);
  AT_TRY(make_stand_in(c, output_kind(l, o), (at_dtype)t->dtype,
                       (at_dims){l->dims + t->dims, t->rank}, *m, x->arrays[o],
                       d, out));
  x->arrays[o]->bytes = (*out)->padded_bytes;
  return AT_OK;
}

// Names are in a row, so that the launch says only the first.
static at_status make_outputs(const launch *x) {
  const at_proxy *p = x->l->runtime->proxy;
  uint32_t n = x->l->num_outputs;
  uint64_t name = n ? p->names(p->arg, n) : 0;
  for (uint32_t o = 0; o < n; o++)
    if (!(x->arrays[o] = make_array(name + o, x->num_devices, 0)))
      return no_memory();
  for (uint32_t d = 0; d < x->num_devices; d++)
    for (uint32_t o = 0; o < n; o++) AT_TRY(make_output(x, d, o));
  return AT_OK;
}

// Those that were made; the hosts know nothing of them.
static void take_back(const launch *x) {
  uint32_t n = x->l->num_outputs;
  for (uint32_t o = 0; o < n && x->arrays[o]; o++) x->arrays[o]->given = true;
  for (uint32_t o = 0; o < n && x->arrays[o]; o++) {
    uint32_t made = 0;
    for (uint32_t d = 0; d < x->num_devices; d++) {
      at_buffer **b = &x->outputs[(size_t)d * n + o];
      if (!*b) continue;
      made++;
      at_buffer_release(*b);
      *b = NULL;
    }
    if (made < x->num_devices)
      drop_shards(x->l->runtime, x->arrays[o], x->num_devices - made);
  }
}

// ---- Launching
static at_status run(const launch *x, at_event **out_done) {
  at_event *done = NULL;
  if (out_done || x->in->channels) {
    done = at_event_create();
    if (!done) return no_memory();
  }
  at_status st = make_outputs(x);
  if (!st.err) st = send(x, done);
  if (st.err) {
    take_back(x);
    at_event_release(done);
    return st;
  }
  if (out_done)
    *out_done = done;
  else
    at_event_release(done);
  return AT_OK;
}

// Tables on the stack for all but large programs. Holds of the arguments are
// given back on success, too.
at_status at_proxy_run(at_loaded *l, const at_launch *in,
                       const uint8_t *donated, at_buffer **outputs,
                       at_event **out_done) {
  uint32_t n = num_chips(in), hosts = l->runtime->proxy->num_hosts;
  size_t bytes = l->num_inputs * sizeof(at_proxy_arg) +
                 (l->num_outputs + (size_t)hosts) * sizeof(void *);
  _Alignas(16) uint8_t few[2048];
  void *table = bytes <= sizeof few ? few : malloc(bytes);
  at_status st = table ? AT_OK : no_memory();
  if (!st.err) {
    memset(table, 0, bytes);
    memset(outputs, 0, (size_t)n * l->num_outputs * sizeof *outputs);
    group *retired = NULL;
    launch x = {.l = l,
                .retired = &retired,
                .in = in,
                .donated = donated,
                .num_devices = n,
                .outputs = outputs,
                .args = table};
    x.arrays = (void *)(x.args + l->num_inputs);
    x.moments = (void *)(x.arrays + l->num_outputs);
    st = run(&x, out_done);
    for (uint32_t h = 0; h < hosts; h++) at_proxy_moment_release(x.moments[h]);
  }
  if (table != few) free(table);
  for (uint32_t i = 0; i < n * l->num_inputs; i++)
    at_buffer_unhold(in->args[i]);
  return st;
}

// ---- Arrays as a whole
at_status at_proxy_name(at_buffer *const *shards, uint32_t count,
                        uint64_t *out_name, at_proxy_shard *out_each) {
  at_runtime *rt = shards[0]->chip->runtime;
  const at_buffer *first = shards[0];
  group *retired = NULL, *g = NULL;
  bool whole = true;
  for (uint32_t i = 0; i < count; i++) {
    if (!shards[i]->array || shards[i]->chip->runtime != rt)
      return AT_FAIL(AT_INVALID_ARGUMENT, "shard %u is deleted, or elsewhere",
                     i);
    out_each[i] = shard_of(shards[i]);
    whole &= shards[i]->array == first->array && shards[i]->shard == i;
  }
  if (whole && first->array->num_shards == count)
    return *out_name = first->array->name, AT_OK;
  const at_launch as_argument = {.args = shards, .num_args = 1};
  at_loaded one = {.runtime = rt, .num_inputs = 1};
  const launch x = {
      .l = &one, .in = &as_argument, .num_devices = count, .retired = &retired};
  pthread_mutex_lock(&rt->proxy_lock);
  at_status st = AT_OK;
  if (is_group(&x, 0, first->array->group))
    g = first->array->group;
  else
    st = make_group(&x, 0, &g);
  if (!st.err) *out_name = g->name;
  drop_retired(&x);
  pthread_mutex_unlock(&rt->proxy_lock);
  return st;
}

// Shards that were not made are taken off the array's count.
at_status at_proxy_adopt(uint64_t name, const at_proxy_like *like,
                         at_buffer **out) {
  at_runtime *rt = like->chips[0]->runtime;
  uint32_t n = like->num_shards, made = 0;
  at_proxy_array *a = make_array(name, n, 0);
  at_proxy_moment **moments = calloc(rt->proxy->num_hosts, sizeof *moments);
  at_status st = a && moments ? AT_OK : no_memory();
  for (; made < n && !st.err; made += !st.err) {
    at_chip *c = like->chips[made];
    at_proxy_moment **m = &moments[rt->proxy->host_of[c->info.id]];
    if (!*m && !(*m = make_moment())) {
      st = no_memory();
      continue;
    }
    atomic_fetch_add_explicit(&(*m)->refs, 1, memory_order_relaxed);
    st = make_stand_in(c, like->kind, like->dtype, like->dims, *m, a, made,
                       &out[made]);
  }
  for (uint32_t h = 0; moments && h < rt->proxy->num_hosts; h++)
    at_proxy_moment_release(moments[h]);
  free(moments);
  if (!st.err) {
    a->bytes = out[0]->padded_bytes;
    return st;
  }
  for (uint32_t i = 0; i < made; i++) at_buffer_release(out[i]);
  if (a && made < n) drop_shards(rt, a, n - made);
  return st;
}
