// What the stream does: arrays, programs and launches of clients, in the order
// in which the controller has put them, which is the same on all hosts. So
// launches over several hosts need no order of their own (pod/order.h).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/host_internal.h"

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory on a host of the pod");
}

// A client that says what cannot be has itself to blame; its arrays are not
// there, and who asks for them waits.
static void odd(const tenant *t, const char *what, uint64_t name) {
  at_log(AT_LOG_ERROR, "client %llu: %s %llu", (unsigned long long)t->client,
         what, (unsigned long long)name);
}

// number: of at_runtime_view.
at_chip *at_stream_own_chip(const host *h, uint32_t number) {
  uint32_t first, n = at_runtime_own_chips(h->runtime, &first);
  uint32_t chip = at_message_chip(number);
  return chip >= first && chip - first < n ? at_runtime_view(h->runtime, number)
                                           : NULL;
}

// ---- Arrays
// Under the lock: its bytes may come. *cancelled: they will not.
static bool expect_bytes(tenant *t, const array *a, at_buffer **cancelled) {
  at_buffer *b = a->here[0].buffer;
  if (!b || at_code_take(at_buffer_acquire(b))) return true;
  at_buffer_retain(b);
  const bool never = t->mute || a->name < t->since;
  if (!never && at_table_put(&t->filling, a->name, b)) return true;
  *cancelled = b;
  return never;
}

// From here on others find it.
void at_stream_enter(tenant *t, array *a) {
  if (!a) return at_log(AT_LOG_ERROR, "no memory on a host of the pod");
  at_buffer *cancelled = NULL;
  pthread_mutex_lock(&t->host->lock);
  bool twice = at_tenant_array(t, a->name) ||
               (a->written && at_table_find(&t->filling, a->name));
  bool in = !twice && (!a->written || expect_bytes(t, a, &cancelled)) &&
            at_table_put(&t->arrays, a->name, a);
  if (in) at_tenant_answer_parked(t, a->name);
  const bool mute = t->mute;
  pthread_mutex_unlock(&t->host->lock);
  if (cancelled)
    at_filling_end(cancelled, mute ? AT_FAIL(AT_CANCELLED, "its client is gone")
                                   : at_filling_lost(t->host, a->name));
  if (in) return;
  odd(t, twice ? "used twice: array" : "no memory for array", a->name);
  at_array_free(a);
}

// An array of one shard on a chip: the buffer that was made, or one with the
// error, so that it is there. Consumes both. NULL: no memory.
static array *of_one(uint64_t name, at_chip *c, at_memory_kind k, at_dtype type,
                     at_dims dims, at_buffer *made, at_status st) {
  if (st.err && at_code_take(at_buffer_failed(c, k, type, dims, st, &made)))
    made = NULL;
  array *a = at_array_make(name, 1);
  if (!a) {
    at_buffer_release(made);
    at_status_free(st);
    return NULL;
  }
  a->here[0].buffer = made;
  a->why = st;
  return a;
}

// An array whose bytes are in the message is defined at once, others wait for
// their WRITE.
static void create(tenant *t, at_bytes body) {
  const at_msg_create *m = (const void *)body.ptr;
  at_chip *c = at_stream_own_chip(t->host, m->chip);
  if (!c) return odd(t, "no chip of this host for array", m->array);
  at_dtype type = (at_dtype)m->dtype;
  at_memory_kind kind = (at_memory_kind)m->kind;
  at_dims dims = {(const int64_t *)(m + 1), m->rank};
  at_buffer *b = NULL;
  at_status st;
  if (m->has_data) {
    const at_host_array src = {
        .dtype = type, .dims = dims, .data = dims.ptr + m->rank};
    at_event *done = NULL;
    st = at_buffer_from_host(c, kind, &src, AT_HOST_IMMUTABLE_ONLY_DURING_CALL,
                             &b, &done);
    at_event_release(done);
  } else {
    st = at_buffer_create(c, kind, type, dims, &b);
  }
  array *a = of_one(m->array, c, kind, type, dims, b, st);
  if (a) a->written = !m->has_data;
  at_stream_enter(t, a);
}

// Why a shard is not here, as far as can be told: lost with a former process,
// lost with a device's former chip, or never here.
static at_status not_here(const tenant *t, bool known, uint64_t name,
                          uint32_t shard, uint32_t chip) {
  const unsigned long long array = name;
  if (!known && t->host->born > 1)
    return AT_FAIL(AT_DATA_LOSS,
                   "array %llu was lost with the process that was host %u",
                   array, t->host->me);
  // Virtual devices come here from elsewhere, their arrays do not.
  if (chip >> AT_CHIP_VIEW)
    return AT_FAIL(AT_DATA_LOSS,
                   "shard %u of array %llu was lost with the chip that its "
                   "device stood for before",
                   shard, array);
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "shard %u of array %llu is not on host %u", shard, array,
                 t->host->me);
}

// The buffer of a shard, which stays until this thread drops it; NULL and why.
// chip: where it is thought to be.
static at_buffer *shard_of(const tenant *t, const array *a, uint64_t name,
                           uint32_t shard, uint32_t chip, at_status *why) {
  const piece *p = a ? at_array_piece(a, shard) : NULL;
  if (p && p->buffer) return p->buffer;
  if (!why->err)
    *why = p && a->why.err ? at_status_clone(a->why)
                           : not_here(t, a != NULL, name, shard, chip);
  return NULL;
}

at_buffer *at_stream_find(tenant *t, const at_msg_shard *s, at_status *why) {
  return shard_of(t, at_tenant_array(t, s->array), s->array, s->shard, s->chip,
                  why);
}

// The shards of this host alone. One that is missing gives the array its error
// and leaves the others.
static void make_group(tenant *t, at_bytes body) {
  const at_msg_group *m = (const void *)body.ptr;
  const at_msg_shard *s = (const void *)(m + 1);
  uint32_t n = 0;
  for (uint64_t i = 0; i < m->count; i++)
    n += !!at_stream_own_chip(t->host, s[i].chip);
  array *a = at_array_make(m->array, n);
  n = 0;
  for (uint64_t i = 0; a && i < m->count; i++) {
    if (!at_stream_own_chip(t->host, s[i].chip)) continue;
    at_buffer *b = at_stream_find(t, &s[i], &a->why);
    a->here[n++] = (piece){(uint32_t)i, b ? at_buffer_retain(b) : NULL};
  }
  at_stream_enter(t, a);
}

// Sender or receiver is this host.
static void copy_quickly(tenant *t, const at_msg_copy *m, uint32_t there,
                         uint32_t here, uint64_t key) {
  host *h = t->host;
  at_status st = AT_OK;
  if (there == h->me) {
    at_buffer *b = at_stream_find(t, &m->from, &st);
    if (b) st = at_copy_send(h, b, here, key);
    if (st.err) at_copy_refuse(h, here, key, st);
    return at_status_free(st);
  }
  at_chip *to = at_runtime_view(h->runtime, m->chip);
  at_dims dims = {(const int64_t *)(m + 1), m->rank};
  at_memory_kind kind = (at_memory_kind)m->kind;
  at_dtype type = (at_dtype)m->dtype;
  at_buffer *made = NULL;
  st = at_copy_receive(h, to, kind, type, dims, there, key, &made);
  at_stream_enter(t, of_one(m->array, to, kind, type, dims, made, st));
}

// Within this host, or one end of a transfer between hosts. Every error reaches
// the new array, also on the other host.
static void copy(tenant *t, at_bytes body) {
  const at_msg_copy *m = (const void *)body.ptr;
  host *h = t->host;
  const at_chip *from = at_runtime_view(h->runtime, m->from.chip);
  at_chip *to = at_runtime_view(h->runtime, m->chip);
  if (!from || !to) return odd(t, "no such chip for array", m->array);
  uint32_t there = at_chip_info_of(from)->host,
           here = at_chip_info_of(to)->host;
  at_memory_kind kind = (at_memory_kind)m->kind;
  at_dims dims = {(const int64_t *)(m + 1), m->rank};
  // Alike on both hosts, and of no other copy.
  uint64_t key = at_hash(at_hash(AT_HASH_SEED, &t->client, sizeof t->client),
                         &m->array, sizeof m->array);
  at_buffer *made = NULL;
  at_status st = AT_OK;
  if (there != here && at_copy_is_quick((at_dtype)m->dtype, dims))
    return copy_quickly(t, m, there, here, key);
  if (there == h->me) {
    at_buffer *b = at_stream_find(t, &m->from, &st);
    at_event *done = NULL;
    if (b && here == h->me)
      st = at_buffer_copy_to(b, to, kind, &made);
    else if (b)
      st = at_buffer_send(b, here, key, &done);
    if (st.err && here != h->me)
      st = at_status_join(st, at_transfer_refuse(h->runtime, here, key, st));
    at_event_release(done);
  } else {
    st = at_buffer_receive(to, kind, (at_dtype)m->dtype, dims, there, key,
                           &made);
    if (st.err)  // it would wait with the array in its hands
      st = at_status_join(st, at_transfer_refuse(h->runtime, there, key, st));
  }
  if (here != h->me) {
    if (st.err) at_log(AT_LOG_WARNING, "a copy: %s", at_status_message(st));
    return at_status_free(st);
  }
  at_stream_enter(
      t, of_one(m->array, to, kind, (at_dtype)m->dtype, dims, made, st));
}

// Names that are not here are ignored: a launch may have taken the array.
static void drop(tenant *t, at_bytes body) {
  const at_msg_drop *m = (const void *)body.ptr;
  const uint64_t *names = (const void *)(m + 1);
  for (uint64_t i = 0; i < m->count; i++) {
    pthread_mutex_lock(&t->host->lock);
    array *a = at_table_take(&t->arrays, names[i]);
    pthread_mutex_unlock(&t->host->lock);
    if (a) at_array_free(a);
  }
}

// ---- Programs
// The chips of the program, and which of them this host has. INVALID_ARGUMENT:
// no such chip.
static at_status place(const host *h, const at_msg_load *m, program *p) {
  const uint32_t *chips = (const void *)(m + 1);
  for (uint32_t d = 0; d < p->num_chips; d++) {
    p->all[d] = at_runtime_view(h->runtime, chips[d]);
    if (!p->all[d])
      return AT_FAIL(AT_INVALID_ARGUMENT, "there is no chip %u", chips[d]);
    if (!at_stream_own_chip(h, chips[d])) continue;
    p->chips[p->num_here] = p->all[d];
    p->devices[p->num_here++] = d;
  }
  return AT_OK;
}

// A program over several hosts is bound to the epoch: its collectives go over
// the hosts of that.
static at_status load_bytes(const host *h, at_bytes executable, program *p) {
  AT_TRY(at_loaded_create(h->runtime, executable, &p->loaded));
  at_loaded_check(p->loaded, p->checks);
  if (!p->num_here || p->num_here == p->num_chips) return AT_OK;
  p->epoch = h->epoch;
  return at_loaded_span(p->loaded, p->all);
}

// Hosts have been replaced since it was loaded.
static at_status refresh(const host *h, program *p) {
  if (!p->loaded || !p->epoch || p->epoch == h->epoch) return AT_OK;
  at_loaded *old = p->loaded;
  p->loaded = NULL;
  at_status st = load_bytes(h, at_loaded_bytes(old), p);
  at_loaded_release(old);
  if (!st.err) return st;
  at_loaded_release(p->loaded);
  p->loaded = NULL;
  at_status_free(p->why);
  p->why = at_status_clone(st);
  return st;
}

// What is made is p's, also on failure.
static at_status load_program(const host *h, at_bytes body, program *p) {
  const at_msg_load *m = (const void *)body.ptr;
  size_t head = sizeof *m + at_message_chips_bytes(m->num_chips);
  p->num_chips = m->num_chips;
  p->checks = (at_kernel_checks){.checks = m->checks, .turns = m->turns};
  p->all = calloc(m->num_chips, sizeof *p->all);
  p->chips = calloc(m->num_chips, sizeof *p->chips);
  p->devices = calloc(m->num_chips, sizeof *p->devices);
  at_status st =
      p->all && p->chips && p->devices ? place(h, m, p) : no_memory();
  if (!st.err)
    st = load_bytes(h, (at_bytes){body.ptr + head, body.len - head}, p);
  if (!st.err) {
    uint64_t n;
    (void)at_loaded_section(p->loaded, AT_XS_OUTPUTS, &n);
    p->num_outputs = (uint32_t)n;
    snprintf(p->title, sizeof p->title, "%s",
             at_loaded_string(p->loaded, at_loaded_header(p->loaded)->name));
  }
  return st;
}

// A program that could not be loaded is entered with its error.
static void load(tenant *t, at_bytes body) {
  const at_msg_load *m = (const void *)body.ptr;
  program *p = calloc(1, sizeof *p);
  if (!p) return odd(t, "no memory for program", m->program);
  p->name = m->program;
  p->why = load_program(t->host, body, p);
  if (p->why.err) {
    at_loaded_release(p->loaded);
    p->loaded = NULL;
  }
  pthread_mutex_lock(&t->host->lock);
  bool in = !at_table_find(&t->programs, p->name) &&
            at_table_put(&t->programs, p->name, p);
  pthread_mutex_unlock(&t->host->lock);
  if (in) return;
  odd(t, "used twice: program", p->name);
  at_program_free(p);
}

// Launches of it that are under way hold what they need.
static void unload(tenant *t, at_bytes body) {
  const at_msg_unload *m = (const void *)body.ptr;
  pthread_mutex_lock(&t->host->lock);
  program *p = at_table_take(&t->programs, m->program);
  pthread_mutex_unlock(&t->host->lock);
  if (p) at_program_free(p);
}

// ---- Launches
static void record(at_span_kind kind, uint64_t begin_ns, uint64_t flow,
                   const char *name) {
  at_span_record(&(at_profile_span){.start_ns = begin_ns,
                                    .end_ns = at_clock_ns(),
                                    .flow = flow,
                                    .kind = kind},
                 name);
}

typedef struct notice {
  tenant *tenant;
  uint64_t number;
  callbacks *callbacks;
} notice;

// An event's call, on any thread: a failed launch is told at once. Consumes s.
static void tell_done(at_status s, void *arg) {
  notice *n = arg;
  if (s.err) at_tenant_say_failed(n->tenant, n->number, s);
  // Whoever has callbacks may wait for their end, and for nothing else.
  at_ends_add(n->tenant, s.err ? 0 : n->number, s.err || n->callbacks);
  at_status_free(s);
  at_callbacks_free(n->callbacks);
  free(n);
}

// A launch while it is started; everything in it is borrowed but args, which is
// one block for args, outputs and keeps.
typedef struct launching {
  tenant *t;
  const program *p;
  const at_msg_launch *m;
  at_buffer **args, **outputs;  // by place
  bool *keeps;                  // by argument
  callbacks *callbacks;
  at_event *done;
  sample *sample;  // NULL: its time is not taken
} launching;

// The arguments' buffers on this host, by chip and then by argument. The first
// that is missing is the error.
static at_status gather(launching *l) {
  const at_msg_arg *args = (const void *)(l->m + 1);
  at_status st = AT_OK;
  for (uint32_t i = 0; i < l->m->num_args && !st.err; i++) {
    const array *a = at_tenant_array(l->t, args[i].array);
    for (uint32_t k = 0; k < l->p->num_here && !st.err; k++)
      l->args[(size_t)k * l->m->num_args + i] =
          shard_of(l->t, a, args[i].array, args[i].first + l->p->devices[k],
                   at_chip_info_of(l->p->chips[k])->id, &st);
  }
  return st;
}

// The controller has refused the launch because of that host.
static at_status lost_since(const program *p, uint32_t host) {
  return AT_FAIL(
      AT_DATA_LOSS, "host %u has been lost since %s was loaded", host,
      at_loaded_string(p->loaded, at_loaded_header(p->loaded)->name));
}

static uint64_t flow_of(const tenant *t, const at_msg_launch *m) {
  return at_span_flow(t->client, m->num_outputs ? m->outputs : 0);
}

// Starts the launch, or refuses it: then the results exist and carry the error,
// and hosts that wait in its collectives are told, unless the controller has
// refused it for all of them.
static at_status start(launching *l) {
  const program *p = l->p;
  const at_msg_arg *args = (const void *)(l->m + 1);
  for (uint32_t i = 0; i < l->m->num_args; i++)
    l->keeps[i] = !(args[i].flags & AT_MSG_DONATED);
  at_launch in = {.chip = p->chips[0],
                  .chips = p->chips,
                  .num_chips = p->num_here > 1 ? p->num_here : 0,
                  .args = l->args,
                  .num_args = l->m->num_args,
                  .not_donatable = l->keeps,
                  .launch_id = l->m->launch_id,
                  .unwanted = l->t->gone,
                  .times = l->sample ? &l->sample->times : NULL,
                  .flow = flow_of(l->t, l->m)};
  at_status st = l->m->refused ? lost_since(p, l->m->refused - 1) : gather(l);
  if (!st.err && at_event_fired(l->t->gone))
    st = AT_FAIL(AT_CANCELLED, "the client of a launch is gone");
  if (!st.err && l->m->num_channels)
    st = at_callbacks_make(l->t, p, l->m, &l->callbacks);
  if (l->callbacks) in.channels = at_callbacks_lists(l->callbacks);
  if (!st.err)
    st = at_island_launch(
        l->t->host->island, p->loaded, &in, l->outputs,
        l->m->number || at_pace_is_due(l->t) ? &l->done : NULL);
  if (!st.err) return st;
  at_sample_cancel(l->sample);
  in.times = NULL;
  at_status refused =
      at_launch_refuse(p->loaded, &in, st, !l->m->refused, l->outputs);
  if (refused.err) return at_status_free(st), refused;
  if (l->m->number && (l->done = at_event_create()))
    at_event_fire(l->done, st);
  else
    at_status_free(st);
  return AT_OK;
}

// The results, by output; `why`: there are none.
static void hand_out(launching *l, at_status why) {
  uint32_t n = l->m->num_outputs;
  for (uint32_t o = 0; o < n; o++) {
    array *a = at_array_make(l->m->outputs + o, l->p->num_here);
    for (uint32_t k = 0; a && k < l->p->num_here; k++)
      a->here[k] = (piece){l->p->devices[k],
                           why.err ? NULL : l->outputs[(size_t)k * n + o]};
    if (a && why.err) a->why = at_status_clone(why);
    at_stream_enter(l->t, a);
  }
  at_status_free(why);
}

// Nothing is watched where nobody wants to hear; then there are no callbacks
// either.
static void watch_done(launching *l) {
  if (!l->m->number) return;
  notice *n = malloc(sizeof *n);
  if (!n || !l->done) {
    free(n);
    return at_log(AT_LOG_ERROR, "no memory to tell that a launch is done");
  }
  *n = (notice){l->t, l->m->number, l->callbacks};
  pthread_mutex_lock(&l->t->host->lock);
  at_ends_begin(l->t);
  pthread_mutex_unlock(&l->t->host->lock);
  at_status st = at_event_on(l->done, tell_done, n);
  if (st.err) tell_done(st, n);
}

// The launch has taken over these arrays, and their names with them.
static void forget_given(tenant *t, const at_msg_launch *m) {
  const at_msg_arg *args = (const void *)(m + 1);
  for (uint32_t i = 0; i < m->num_args; i++) {
    if (!(args[i].flags & AT_MSG_GIVEN)) continue;
    pthread_mutex_lock(&t->host->lock);
    array *a = at_table_take(&t->arrays, args[i].array);
    pthread_mutex_unlock(&t->host->lock);
    if (a) at_array_free(a);
  }
}

// The client says how many results it names; the program decides.
static at_status check_sizes(const program *p, const at_msg_launch *m) {
  if (p->why.err) return at_status_clone(p->why);
  if (p->num_outputs == m->num_outputs) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT, "the program has %u results, not %u",
                 p->num_outputs, m->num_outputs);
}

// Results are entered in any case: what follows in the stream may use them.
static void launch(tenant *t, at_bytes body) {
  const at_msg_launch *m = (const void *)body.ptr;
  program *p = at_table_find(&t->programs, m->program);
  if (p) at_status_free(refresh(t->host, p));  // `why` has it
  if (!p || !p->num_here)
    return odd(t, "not on this host: program", m->program);
  launching l = {.t = t, .p = p, .m = m};
  uint64_t begin = at_spans_on() ? at_clock_ns() : 0;
  size_t args = at_mul(p->num_here, m->num_args);
  size_t outputs = at_mul(p->num_here, m->num_outputs);
  at_status st = check_sizes(p, m);
  if (!st.err) {
    l.args = calloc(1, (args + outputs) * sizeof *l.args + m->num_args + 1);
    l.outputs = l.args + args;
    l.keeps = (bool *)(l.outputs + outputs);
    l.sample = at_sample_begin(t, p);
    st = l.args ? start(&l) : no_memory();
    if (st.err) at_sample_cancel(l.sample);
  }
  if (st.err && m->number && (l.done = at_event_create()))
    at_event_fire(l.done, at_status_clone(st));
  hand_out(&l, st);
  watch_done(&l);
  if (l.done && at_pace_is_due(t)) at_pace_close(t, l.done);
  at_event_release(l.done);
  forget_given(t, m);
  free(l.args);
  if (begin) record(AT_SPAN_TAKE, begin, flow_of(t, m), p->title);
}

// ---- Traced programs
// A copy, checked as a message already. `largest` is the room that a run needs.
static void keep_graph(tenant *t, at_bytes body) {
  const at_msg_graph *m = (const void *)body.ptr;
  graph *g = calloc(1, sizeof *g);
  uint8_t *copy = g ? malloc(body.len) : NULL;
  if (!copy || at_table_find(&t->graphs, m->graph) ||
      !at_table_put(&t->graphs, m->graph, g)) {
    free(copy);
    free(g);
    return odd(t, "used twice, or no memory: graph", m->graph);
  }
  memcpy(copy, body.ptr, body.len);
  *g = (graph){.body = copy, .bytes = body.len};
  const at_msg_graph *k = (const void *)copy;
  const uint8_t *at =
      (const uint8_t *)((const uint64_t *)(k + 1) + k->num_kept);
  for (uint32_t i = 0; i < k->num_steps; i++) {
    const at_msg_step *s = (const void *)at;
    g->largest = AT_MAX(g->largest, (size_t)s->bytes);
    g->num_launches += s->kind == AT_MSG_LAUNCH;
    at += at_message_step_bytes(s->bytes);
  }
}

// Steps that this host has no part in are skipped; groups and drops find their
// own shards.
static bool concerns(const tenant *t, uint32_t kind, const void *body) {
  if (kind == AT_MSG_LAUNCH)
    return at_table_find(&t->programs,
                         ((const at_msg_launch *)body)->program) != NULL;
  if (kind == AT_MSG_RESHARD) return at_host_reshards(t->host, body);
  if (kind == AT_MSG_COPY) {
    const at_msg_copy *m = body;
    return at_stream_own_chip(t->host, m->from.chip) ||
           at_stream_own_chip(t->host, m->chip);
  }
  return true;
}

// A host that the run needs has been lost, and has no part in it.
static at_status lost_since_traced(uint32_t host) {
  return AT_FAIL(AT_DATA_LOSS,
                 "host %u has been lost since a program was traced", host);
}

// The copy's array gets the error on the host that would have had it.
static void refuse_copy(tenant *t, at_bytes body, uint32_t host) {
  const at_msg_copy *m = (const void *)body.ptr;
  at_chip *to = at_stream_own_chip(t->host, m->chip);
  if (!to) return;
  at_stream_enter(
      t, of_one(m->array, to, (at_memory_kind)m->kind, (at_dtype)m->dtype,
                (at_dims){(const int64_t *)(m + 1), m->rank}, NULL,
                lost_since_traced(host)));
}

// With a span of what taking the message took, where spans are kept.
static void copy_array(tenant *t, at_bytes body) {
  uint64_t begin = at_spans_on() ? at_clock_ns() : 0;
  copy(t, body);
  if (begin) record(AT_SPAN_TAKE, begin, 0, "copy");
}

// refused: 1 + a host that is lost, 0: none. Launches carry it in their own
// message.
static void do_step(tenant *t, uint32_t kind, at_bytes body, uint32_t refused) {
  if (kind == AT_MSG_LAUNCH) return launch(t, body);
  if (kind == AT_MSG_COPY && refused) return refuse_copy(t, body, refused - 1);
  if (kind == AT_MSG_COPY) return copy_array(t, body);
  if (kind == AT_MSG_RESHARD)
    return at_host_reshard(t, body,
                           refused ? lost_since_traced(refused - 1) : AT_OK);
  if (kind == AT_MSG_GROUP) return make_group(t, body);
  drop(t, body);
}

// Steps are done back to back, each copied and given the run's names; nothing
// goes over a wire in between.
static void run_graph(tenant *t, at_bytes body) {
  const at_msg_run *r = (const void *)body.ptr;
  const graph *g = at_table_find(&t->graphs, r->graph);
  const at_msg_graph *m = g ? (const void *)g->body : NULL;
  if (!m || m->num_inputs != r->num_inputs)
    return odd(t, "not on this host: graph", r->graph);
  uint64_t begin = at_spans_on() ? at_clock_ns() : 0;
  uint8_t *room = malloc(g->largest + 1);
  if (!room) return odd(t, "no memory for graph", r->graph);
  const uint8_t *at =
      (const uint8_t *)((const uint64_t *)(m + 1) + m->num_kept);
  at_pace_count(t, g->num_launches);  // of all hosts, as the controller does
  for (uint32_t i = 0; i < m->num_steps; i++) {
    const at_msg_step *s = (const void *)at;
    at += at_message_step_bytes(s->bytes);
    if (!concerns(t, s->kind, s + 1)) continue;
    memcpy(room, s + 1, s->bytes);
    if (s->kind == AT_MSG_LAUNCH)
      ((at_msg_launch *)(void *)room)->refused = r->refused;
    at_message_name_run(s->kind, room, r);
    do_step(t, s->kind, (at_bytes){room, s->bytes}, r->refused);
  }
  free(room);
  if (begin)
    record(AT_SPAN_TAKE, begin, at_span_flow(t->client, r->first),
           "a traced program");
}

// Runs that have begun are over: the stream does one message after another.
static void forget(tenant *t, at_bytes body) {
  graph *g = at_table_take(
      &t->graphs, ((const at_msg_forget *)(const void *)body.ptr)->graph);
  if (g) at_graph_free(g);
}

// None of those that were counted is here to wait for.
static void end_launches(tenant *t) {
  if (at_pace_is_due(t)) at_pace_close(t, NULL);
}

// It was heard, and waited for those before it in the stream.
static void record_queue(const tenant *t, const job *j) {
  const void *body = j->body;
  if (!t) return;
  if (j->kind == AT_MSG_LAUNCH)
    record(AT_SPAN_QUEUE, j->heard_ns, flow_of(t, body), "launch");
  if (j->kind == AT_MSG_RUN)
    record(AT_SPAN_QUEUE, j->heard_ns,
           at_span_flow(t->client, ((const at_msg_run *)body)->first),
           "a traced program");
}

// Every body has been checked; names in it have not. A tenant is made for
// whoever speaks first.
void at_stream_do(host *h, const job *j) {
  at_bytes body = {j->body, j->head.bytes};
  // Of no client.
  if (j->kind == AT_MSG_DISCARD) return at_named_discard(h, body);
  if (j->kind == AT_MSG_COMMIT) return at_files_commit(h, body);
  if (j->kind == AT_MSG_PEEK) return at_files_peek(h, body);
  pthread_mutex_lock(&h->lock);
  tenant *t = at_tenant_find(h, j->client, j->kind != AT_MSG_LEFT);
  if (t) t->streamed = true;
  pthread_mutex_unlock(&h->lock);
  if (!t && j->kind != AT_MSG_LEFT)
    return at_log(AT_LOG_ERROR, "no memory for a client");
  if (AT_UNLIKELY(j->heard_ns != 0)) record_queue(t, j);
  switch (j->kind) {
    case AT_MSG_CREATE:
      return create(t, body);
    case AT_MSG_GROUP:
      return make_group(t, body);
    case AT_MSG_COPY:
      return copy_array(t, body);
    case AT_MSG_RESHARD:
      return at_host_reshard(t, body, AT_OK);
    case AT_MSG_DROP:
      return drop(t, body);
    case AT_MSG_LOAD:
      return load(t, body);
    case AT_MSG_UNLOAD:
      return unload(t, body);
    case AT_MSG_LAUNCH:
      at_pace_count(t, 1);
      launch(t, body);
      return end_launches(t);
    case AT_MSG_STATS:
      return at_tenant_answer_stats(t, (const void *)body.ptr);
    case AT_MSG_GRAPH:
      return keep_graph(t, body);
    case AT_MSG_RUN:
      run_graph(t, body);
      return end_launches(t);
    case AT_MSG_FORGET:
      return forget(t, body);
    case AT_MSG_KEEP:
      return at_named_keep(t, body);
    case AT_MSG_FETCH:
      return at_named_fetch(t, body);
    case AT_MSG_SAVE:
      return at_files_save(t, body);
    case AT_MSG_RESTORE:
      return at_files_restore(t, body);
    case AT_MSG_LEFT:
      if (t) at_tenant_leave(t);
      return;
    default:
      return;
  }
}
