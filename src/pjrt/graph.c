// Traced programs of a pod, for the Python package (atoll.program): what a
// function asks of the pod is kept once (control/trace.h) and runs again as one
// message. Its results reach JAX as the outputs of a launch that is announced
// for them, since PJRT has no other way to make an array of a client.
#include <stdio.h>
#include <stdlib.h>

#include "control/plan.h"
#include "control/trace.h"
#include "pjrt/pjrt_internal.h"

#define NO_MEMORY() AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory")

// A result: what its buffers look like.
typedef struct result {
  uint32_t number;  // of the array that the graph makes
  uint32_t num_shards;
  PJRT_Client *client;     // held, for the memories
  PJRT_Memory **memories;  // by shard
  at_chip **chips;
  at_memory_kind kind;
  at_dtype dtype;
  uint32_t rank;
  int64_t *dims;
  const char *layout;
} result;

typedef struct graph {
  _Atomic uint32_t refs;  // its owner's, and threads' that hold what it made
  at_traced *traced;      // or NULL:
  at_plan *plan;          // it reshards one array
  uint32_t num_results;
  result *results;  // by number, ascending
  uint32_t num_lates;
  result *lates;  // what functions of the client make, as `results`
} graph;

typedef struct tracing {
  at_trace *trace;
  uint32_t num_lates;
  result *lates;
} tracing;

// Arrays of one run that functions of the client will write.
typedef struct late {
  graph *graph;         // one reference
  at_buffer ***shards;  // by late array
} late;

// What a run has made, until launches hand it out. This thread's.
typedef struct made {
  graph *graph;            // one reference
  PJRT_Buffer ***buffers;  // by result and shard; NULL: handed out
  const uint32_t *next;    // numbers of the next launch's outputs
  uint32_t num_next;
} made;
static _Thread_local made now;
_Thread_local bool at_pjrt_identifies;

// How the package hears of a status: its text in `why`, cut to fit, and its
// code. Consumes st.
static int said(at_status st, char *why, size_t why_bytes) {
  if (st.err) snprintf(why, why_bytes, "%s", at_status_message(st));
  return at_code_take(st);
}

// ---- Arrays
// Those of a call, by name.
typedef struct arrays {
  at_trace_array *list;
  at_proxy_shard *shards;
  at_buffer **buffers;
  uint64_t *names;
} arrays;

static void free_arrays(arrays *a) {
  free(a->list);
  free(a->shards);
  free(a->buffers);
  free(a->names);
}

// Asks the pod's client for the name of each array and fills the lists by which
// traces know it. A buffer of one shard may be part of a larger array, so
// shards are named together. The caller frees *out, also on failure.
static at_status name_arrays(PJRT_Buffer *const *shards, const uint32_t *counts,
                             uint32_t n, arrays *out) {
  size_t all = 0, at = 0;
  for (uint32_t i = 0; i < n; i++) all += counts[i];
  *out = (arrays){
      calloc(n + 1, sizeof *out->list), calloc(all + 1, sizeof *out->shards),
      calloc(all + 1, sizeof *out->buffers), calloc(n + 1, sizeof *out->names)};
  if (!out->list || !out->shards || !out->buffers || !out->names)
    return NO_MEMORY();
  for (size_t i = 0; i < all; i++) {
    if (!shards[i] || at_pjrt_buffer_gone(shards[i]))
      return at_pjrt_buffer_deleted("a traced program");
    out->buffers[i] = shards[i]->buffer;
  }
  for (uint32_t i = 0; i < n; at += counts[i++]) {
    if (!counts[i])
      return AT_FAIL(AT_INVALID_ARGUMENT, "array %u has no shards", i);
    AT_TRY(at_proxy_name(out->buffers + at, counts[i], &out->names[i],
                         out->shards + at));
    out->list[i] = (at_trace_array){out->names[i], counts[i], out->shards + at};
  }
  return AT_OK;
}

// ---- Tracing
// From here on what this thread asks of the pod is noted until trace_end or
// trace_abandon. The arguments are the trace's first inputs, `hosts` the values
// that may differ from run to run. *out is the caller's until either.
static int trace_begin(PJRT_Buffer *const *shards, const uint32_t *counts,
                       uint32_t n, const at_bytes *hosts, uint32_t num_hosts,
                       void **out, char *why, size_t why_bytes) {
  arrays a = {0};
  at_client *pod = at_pjrt_pod_now();
  tracing *t = calloc(1, sizeof *t);
  at_status st = !t ? NO_MEMORY()
                 : pod
                     ? name_arrays(shards, counts, n, &a)
                     : AT_FAIL(AT_UNIMPLEMENTED, "there is no pod (ATOLL_POD)");
  if (!st.err) st = at_trace_begin(pod, a.list, n, hosts, num_hosts, &t->trace);
  free_arrays(&a);
  if (st.err)
    free(t);
  else
    *out = t;
  return said(st, why, why_bytes);
}

// What describe or describe_target has filled, also in part.
static void free_result(result *r) {
  at_pjrt_client_release(r->client);
  free(r->memories);
  free(r->chips);
  free(r->dims);
}

static void free_results(result *r, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) free_result(&r[i]);
  free(r);
}

// Ends a trace without a graph: its function is called as it is, each time.
static void trace_abandon(void *p) {
  tracing *t = p;
  at_trace_abandon(t->trace);
  free_results(t->lates, t->num_lates);
  free(t);
}

// While `on`, what the thread asks is done, but no part of the trace.
static void trace_pause(void *p, bool on) {
  at_trace_pause(((tracing *)p)->trace, on);
}

// Drops a reference; NULL is allowed. Threads that have not handed out what a
// run made hold one, too.
static void graph_free(void *p) {
  graph *g = p;
  if (!g || atomic_fetch_sub(&g->refs, 1) != 1) return;
  at_traced_free(g->traced);
  at_plan_free(g->plan);
  free_results(g->results, g->num_results);
  free_results(g->lates, g->num_lates);
  free(g);
}

// Notes what buffers of the array look like, so that a later run can make such
// ones. UNIMPLEMENTED: shards of several shapes. *r is to be freed also on
// failure.
static at_status describe(PJRT_Buffer *const *shards, uint32_t count,
                          uint32_t number, result *r) {
  const at_buffer *b = shards[0]->buffer;
  at_dims dims = at_buffer_dims(b);
  *r =
      (result){.number = number,
               .num_shards = count,
               .client = at_pjrt_client_hold(shards[0]->memory->device->client),
               .memories = calloc(count, sizeof *r->memories),
               .chips = calloc(count, sizeof *r->chips),
               .kind = at_buffer_memory(b),
               .dtype = at_buffer_dtype(b),
               .rank = dims.rank,
               .dims = calloc(dims.rank + 1, sizeof *r->dims),
               .layout = shards[0]->layout};
  if (!r->memories || !r->chips || !r->dims) return NO_MEMORY();
  if (dims.rank) memcpy(r->dims, dims.ptr, dims.rank * sizeof *r->dims);
  for (uint32_t i = 0; i < count; i++) {
    r->memories[i] = shards[i]->memory;
    r->chips[i] = at_buffer_chip(shards[i]->buffer);
    if (!at_dims_eq(at_buffer_dims(shards[i]->buffer), dims))
      return AT_FAIL(AT_UNIMPLEMENTED,
                     "a traced program's result has shards of several shapes");
  }
  return AT_OK;
}

// The order of graph.results: qsort's and bsearch's.
static int by_number(const void *a, const void *b) {
  uint32_t x = ((const result *)a)->number, y = ((const result *)b)->number;
  return (x > y) - (x < y);
}

// One entry for each array that the graph makes, though a function may return
// it several times.
static at_status describe_results(graph *g, PJRT_Buffer *const *shards,
                                  const uint32_t *counts, uint32_t n,
                                  const int64_t *what) {
  g->results = calloc(n + 1, sizeof *g->results);
  if (!g->results) return NO_MEMORY();
  for (uint32_t i = 0; i < n; shards += counts[i++]) {
    bool known = what[i] < 0;
    for (uint32_t k = 0; k < g->num_results && !known; k++)
      known = g->results[k].number == what[i];
    if (known) continue;
    AT_TRY(describe(shards, counts[i], (uint32_t)what[i],
                    &g->results[g->num_results++]));
  }
  qsort(g->results, g->num_results, sizeof *g->results, by_number);
  return AT_OK;
}

// at_pjrt_graph_calls' code for where an array comes from.
static int64_t code_of(at_trace_result is) {
  return is.is == AT_TRACE_MADE    ? (int64_t)is.number
         : is.is == AT_TRACE_INPUT ? -1 - (int64_t)is.number
                                   : INT64_MIN;
}

// Says of each array whether the trace makes it, takes it, or has never met it.
static int trace_find(void *p, PJRT_Buffer *const *shards,
                      const uint32_t *counts, uint32_t n, int64_t *what,
                      char *why, size_t why_bytes) {
  const tracing *t = p;
  arrays a = {0};
  at_status st = name_arrays(shards, counts, n, &a);
  for (uint32_t i = 0; !st.err && i < n; i++)
    what[i] = code_of(at_trace_find(t->trace, a.names[i]));
  free_arrays(&a);
  return said(st, why, why_bytes);
}

// A function of the client's in the middle of a traced one: what it has made
// (the arrays of the call) is an input of what comes after it, and its buffers
// are described for make_lates.
static at_status host_step(tracing *t, const char *text, uint32_t num_taken,
                           PJRT_Buffer *const *shards, const uint32_t *counts,
                           uint32_t n, uint32_t *first_input) {
  arrays a = {0};
  result *more =
      realloc(t->lates, ((size_t)t->num_lates + n + 1) * sizeof *more);
  if (!more) return NO_MEMORY();
  t->lates = more;
  at_status st = name_arrays(shards, counts, n, &a);
  if (!st.err)
    st = at_trace_host(t->trace, text, num_taken, a.list, n, first_input);
  for (uint32_t i = 0; !st.err && i < n; shards += counts[i++])
    st = describe(shards, counts[i], 0, &t->lates[t->num_lates++]);
  free_arrays(&a);
  return st;
}

// A step that runs in the client at each run of the graph, between those of the
// pod.
static int trace_host(void *p, const char *text, uint32_t num_taken,
                      PJRT_Buffer *const *shards, const uint32_t *counts,
                      uint32_t n, uint32_t *first_input, char *why,
                      size_t why_bytes) {
  tracing *t = p;
  // Buffers of several arrays are named together: that is no part of it.
  at_trace_pause(t->trace, true);
  at_status st = host_step(t, text, num_taken, shards, counts, n, first_input);
  at_trace_pause(t->trace, false);
  return said(st, why, why_bytes);
}

// Consumes the trace. g->traced is there on success; what[] is filled for all
// results.
static at_status end(at_trace *t, PJRT_Buffer *const *shards,
                     const uint32_t *counts, uint32_t n, const uint64_t *names,
                     bool passes, int64_t *what, graph *g) {
  at_trace_result *is = calloc(n + 1, sizeof *is);
  if (!is) return at_trace_abandon(t), NO_MEMORY();
  at_status st = at_trace_end(t, names, n, passes, is, &g->traced);
  for (uint32_t i = 0; !st.err && i < n; i++) what[i] = code_of(is[i]);
  free(is);
  return st.err ? st : describe_results(g, shards, counts, n, what);
}

// Consumes the trace, also on failure; *out is the graph, with one reference.
static int trace_end(void *p, PJRT_Buffer *const *shards,
                     const uint32_t *counts, uint32_t n, bool passes,
                     int64_t *what, void **out, char *why, size_t why_bytes) {
  tracing *t = p;
  arrays a = {0};
  graph *g = calloc(1, sizeof *g);
  if (g) atomic_init(&g->refs, 1);
  at_status st = g ? name_arrays(shards, counts, n, &a) : NO_MEMORY();
  if (st.err)
    at_trace_abandon(t->trace);
  else
    st = end(t->trace, shards, counts, n, a.names, passes, what, g);
  free_arrays(&a);
  if (st.err) {
    free_results(t->lates, t->num_lates);
    graph_free(g);
  } else {
    g->lates = t->lates;
    g->num_lates = t->num_lates;
    *out = g;
  }
  free(t);
  return said(st, why, why_bytes);
}

// names[n] only: for callers who need no shards.
at_status at_pjrt_name_arrays(PJRT_Buffer *const *shards,
                              const uint32_t *counts, uint32_t n,
                              uint64_t *names) {
  arrays a = {0};
  at_status st = name_arrays(shards, counts, n, &a);
  if (!st.err && n) memcpy(names, a.names, n * sizeof *names);
  free_arrays(&a);
  return st;
}

// ---- Running
// Frees what a run of this thread has made and no launch handed out.
static void forget_made(void) {
  for (uint32_t i = 0; now.buffers && i < now.graph->num_results; i++) {
    if (!now.buffers[i]) continue;
    for (uint32_t k = 0; k < now.graph->results[i].num_shards; k++)
      if (now.buffers[i][k]) at_pjrt_buffer_free(now.buffers[i][k]);
    free(now.buffers[i]);
  }
  free(now.buffers);
  graph_free(now.graph);
  now = (made){0};
}

// Buffers for an array that the pod makes under `name`: nothing is asked of the
// pod, they only stand for it. On failure none is left.
static at_status make_result(const result *r, uint64_t name,
                             PJRT_Buffer **out) {
  const at_proxy_like like = {.chips = r->chips,
                              .num_shards = r->num_shards,
                              .kind = r->kind,
                              .dtype = r->dtype,
                              .dims = {r->dims, r->rank}};
  at_buffer **b = calloc(r->num_shards, sizeof *b);
  at_status st = b ? at_proxy_adopt(name, &like, b) : NO_MEMORY();
  for (uint32_t k = 0; b && k < r->num_shards; k++) {
    if (st.err) {
      at_buffer_release(b[k]);
      continue;
    }
    st = at_pjrt_buffer_wrap(r->memories[k], b[k], &out[k]);
    if (!st.err) out[k]->layout = r->layout;
  }
  free(b);
  return st;
}

// Buffers of all results, in `now`; the first array of the run is called
// `first`. The caller calls forget_made on failure.
static at_status make_results(graph *g, uint64_t first) {
  atomic_fetch_add(&g->refs, 1);
  AT_ASSERT(!now.buffers);  // what was made before has been forgotten
  now = (made){.graph = g,
               .buffers = calloc(g->num_results + 1, sizeof *now.buffers)};
  if (!now.buffers) return NO_MEMORY();
  for (uint32_t i = 0; i < g->num_results; i++) {
    const result *r = &g->results[i];
    now.buffers[i] = calloc(r->num_shards, sizeof **now.buffers);
    if (!now.buffers[i]) return NO_MEMORY();
    AT_TRY(make_result(r, first + r->number, now.buffers[i]));
  }
  return AT_OK;
}

// ---- What functions of the client write
// NULL is allowed. Buffers that nobody has defined fail when their last
// reference goes.
static void late_free(void *p) {
  late *l = p;
  if (!l) return;
  for (uint32_t i = 0; l->shards && i < l->graph->num_lates; i++) {
    for (uint32_t k = 0; l->shards[i] && k < l->graph->lates[i].num_shards; k++)
      at_buffer_release(l->shards[i][k]);
    free(l->shards[i]);
  }
  free(l->shards);
  graph_free(l->graph);
  free(l);
}

// Buffers that the client will fill, and their name, by which the graph takes
// them before they are there.
static at_status make_late(const result *r, at_buffer **out, uint64_t *name) {
  at_dims dims = {r->dims, r->rank};
  at_proxy_shard *each = calloc(r->num_shards, sizeof *each);
  at_status st = each ? AT_OK : NO_MEMORY();
  for (uint32_t k = 0; !st.err && k < r->num_shards; k++)
    st = at_buffer_create(r->chips[k], r->kind, r->dtype, dims, &out[k]);
  if (!st.err) st = at_proxy_name(out, r->num_shards, name, each);
  free(each);
  return st;
}

// *out NULL: no function of the client makes anything. On failure everything is
// freed.
static at_status make_lates(graph *g, uint64_t *names, late **out) {
  if (!g->num_lates) return AT_OK;
  late *l = calloc(1, sizeof *l);
  if (!l) return NO_MEMORY();
  atomic_fetch_add(&g->refs, 1);
  l->graph = g;
  l->shards = calloc(g->num_lates, sizeof *l->shards);
  at_status st = l->shards ? AT_OK : NO_MEMORY();
  for (uint32_t i = 0; !st.err && i < g->num_lates; i++) {
    const result *r = &g->lates[i];
    l->shards[i] = calloc(r->num_shards, sizeof **l->shards);
    st = l->shards[i] ? make_late(r, l->shards[i], &names[i]) : NO_MEMORY();
  }
  if (st.err)
    late_free(l);
  else
    *out = l;
  return st;
}

// Fills array i with what a function has made, shard by shard. Shards of a
// wrong size fail; the error of the first is returned, but all shards are
// defined.
static int late_define(void *p, uint32_t i, const at_bytes *shards, char *why,
                       size_t why_bytes) {
  const late *l = p;
  const result *r = &l->graph->lates[i];
  at_status st = AT_OK;
  for (uint32_t k = 0; k < r->num_shards; k++) {
    at_buffer *b = l->shards[i][k];
    void *to = at_buffer_data_mut(b);
    at_status one = AT_OK;
    if (shards[k].len != at_buffer_bytes(b) || (!to && shards[k].len))
      one = AT_FAIL(AT_INVALID_ARGUMENT,
                    "a function of the client has made %zu bytes, not %zu",
                    shards[k].len, at_buffer_bytes(b));
    if (one.err)
      st = at_status_join(st, at_status_clone(one));
    else if (shards[k].len)
      memcpy(to, shards[k].ptr, shards[k].len);
    at_buffer_define(b, one);
  }
  return said(st, why, why_bytes);
}

// The function has raised: whoever waits for array i gets that error.
static void late_fail(void *p, uint32_t i, int code, const char *text) {
  const late *l = p;
  for (uint32_t k = 0; k < l->graph->lates[i].num_shards; k++)
    at_buffer_define(l->shards[i][k], AT_FAIL((at_code)code, "%s", text));
}

// One message to the pod; the results' buffers are there when this returns,
// before the pod has computed anything.
static at_status run_traced(graph *g, PJRT_Buffer *const *shards,
                            const uint32_t *counts, uint32_t n,
                            const at_bytes *hosts, late **out) {
  arrays a = {0};
  uint64_t first = 0, *names = calloc((size_t)g->num_lates + 1, sizeof *names);
  at_status st = names ? name_arrays(shards, counts, n, &a) : NO_MEMORY();
  if (!st.err) st = make_lates(g, names, out);
  if (!st.err) st = at_traced_run(g->traced, a.names, hosts, names, &first);
  if (!st.err) st = make_results(g, first);
  if (st.err) {
    late_free(*out);
    *out = NULL;
  }
  free_arrays(&a);
  free(names);
  return st;
}

// Arguments that the traced function donated are deleted once the run is under
// way, and only then: after a failure they are still the caller's.
static int graph_run(void *p, PJRT_Buffer *const *shards,
                     const uint32_t *counts, uint32_t n, const at_bytes *hosts,
                     void **out_late, char *why, size_t why_bytes) {
  graph *g = p;
  late *l = NULL;
  forget_made();
  at_status st = n == at_traced_inputs(g->traced)
                     ? run_traced(g, shards, counts, n, hosts, &l)
                     : AT_FAIL(AT_INVALID_ARGUMENT, "%u arguments, not %u", n,
                               at_traced_inputs(g->traced));
  if (st.err) forget_made();
  for (uint32_t i = 0; !st.err && i < n; shards += counts[i++])
    for (uint32_t k = 0; at_traced_donates(g->traced, i) && k < counts[i]; k++)
      at_buffer_delete(shards[k]->buffer);
  *out_late = l;
  return said(st, why, why_bytes);
}

// Lowers the graph once more, for the hosts that there are now.
static int graph_relower(void *p, char *why, size_t why_bytes) {
  return said(at_traced_relower(((graph *)p)->traced), why, why_bytes);
}

// ---- Resharding
// Devices of the result, in its order; its buffers' layout is the default.
static at_status describe_target(PJRT_Client *c, const at_pjrt_shards *to,
                                 at_memory_kind kind, at_dtype t,
                                 uint32_t *chips, result *r) {
  *r = (result){.num_shards = to->count,
                .client = at_pjrt_client_hold(c),
                .memories = calloc(to->count + 1, sizeof *r->memories),
                .chips = calloc(to->count + 1, sizeof *r->chips),
                .kind = kind,
                .dtype = t,
                .rank = to->rank,
                .dims = calloc(to->rank + 1, sizeof *r->dims)};
  if (!r->memories || !r->chips || !r->dims) return NO_MEMORY();
  if (to->rank) memcpy(r->dims, to->dims, to->rank * sizeof *r->dims);
  for (uint32_t i = 0; i < to->count; i++) {
    if (to->devices[i] >= c->num_devices)
      return AT_FAIL(AT_INVALID_ARGUMENT, "there is no device %u",
                     to->devices[i]);
    PJRT_Device *d = &c->devices[to->devices[i]];
    r->memories[i] = &d->memories[kind];
    r->chips[i] = d->chip;
    chips[i] = at_chip_info_of(d->chip)->id;
  }
  return AT_OK;
}

// It stands for a chip now, and may stand for another one when a plan runs.
static bool is_virtual(const at_client *pod, uint32_t device) {
  uint32_t chip, host;
  return !at_client_find_chip(pod, device, &chip, &host) || chip != device;
}

// How the array gets from its devices to others. UNIMPLEMENTED: a virtual
// device is among them, as its chip may change before the plan runs.
static at_status make_plan(PJRT_Buffer *const *shards, uint32_t count,
                           const int64_t *at, const at_pjrt_shards *to,
                           at_memory_kind kind, graph *g) {
  const at_client *pod = at_pjrt_pod_now();
  if (!pod || kind >= AT_MEM_KINDS || !count || !to->count)
    return AT_FAIL(AT_UNIMPLEMENTED, "there is no pod (ATOLL_POD)");
  for (uint32_t i = 0; i < count; i++)
    if (!shards[i] || at_pjrt_buffer_gone(shards[i]))
      return at_pjrt_buffer_deleted("a resharding");
  uint32_t *chips = calloc((size_t)count + to->count, sizeof *chips);
  g->results = calloc(1, sizeof *g->results);
  if (!chips || !g->results) return free(chips), NO_MEMORY();
  g->num_results = 1;
  for (uint32_t i = 0; i < count; i++)
    chips[i] = at_chip_info_of(at_buffer_chip(shards[i]->buffer))->id;
  const at_buffer *b = shards[0]->buffer;
  at_dtype t = at_buffer_dtype(b);
  const at_shards from = {count, chips, at_buffer_dims(b), at};
  at_status st = describe_target(shards[0]->memory->device->client, to, kind, t,
                                 chips + count, g->results);
  const at_shards into = {
      to->count, chips + count, {to->dims, to->rank}, to->at};
  for (uint32_t i = 0; i < count + to->count && !st.err; i++)
    if (is_virtual(pod, chips[i]))
      st = AT_FAIL(AT_UNIMPLEMENTED, "device %u is virtual", chips[i]);
  if (!st.err)
    st = at_plan_make(at_client_proxy(pod)->host_of, &from, &into, t, kind,
                      &g->plan);
  free(chips);
  return st;
}

// *out is a graph whose only result is array 0; graph_free frees it.
static int plan_make(PJRT_Buffer *const *shards, uint32_t count,
                     const int64_t *at, const at_pjrt_shards *to, uint32_t kind,
                     void **out, char *why, size_t why_bytes) {
  graph *g = calloc(1, sizeof *g);
  if (g) atomic_init(&g->refs, 1);
  at_status st = g ? make_plan(shards, count, at, to, (at_memory_kind)kind, g)
                   : NO_MEMORY();
  if (st.err)
    graph_free(g);
  else
    *out = g;
  return said(st, why, why_bytes);
}

// The array at the new places is called by one fresh name.
static at_status run_plan(graph *g, PJRT_Buffer *const *shards,
                          uint32_t count) {
  at_client *pod = at_pjrt_pod_now();
  arrays a = {0};
  at_status st = pod ? name_arrays(shards, &count, 1, &a)
                     : AT_FAIL(AT_UNAVAILABLE, "there is no pod");
  if (!st.err) {
    const at_proxy *p = at_client_proxy(pod);
    uint64_t name = p->names(p->arg, 1);
    st = at_client_reshard(pod, g->plan, a.shards, name);
    if (!st.err) st = make_results(g, name);
  }
  free_arrays(&a);
  return st;
}

// As graph_run, for a graph of plan_make.
static int plan_run(void *p, PJRT_Buffer *const *shards, uint32_t count,
                    char *why, size_t why_bytes) {
  forget_made();
  at_status st = run_plan(p, shards, count);
  if (st.err) forget_made();
  return said(st, why, why_bytes);
}

// Bytes that a run sends from host to host.
static uint64_t plan_wire_bytes(void *p) {
  const at_client *pod = at_pjrt_pod_now();
  return pod ? at_plan_wire_bytes(((const graph *)p)->plan,
                                  at_client_proxy(pod)->host_of)
             : 0;
}

// Nothing, where this thread's last run was another graph's. `results` is
// borrowed until the launch.
static void graph_adopt(void *p, const uint32_t *results, uint32_t count) {
  if (now.graph != p) return;
  now.next = results;
  now.num_next = count;
}

// ---- Arrays that no graph of this client makes
// As describe_target, by what the pod says of an array. INVALID_ARGUMENT: a
// memory or a chip that there is not.
static at_status describe_made(PJRT_Client *c, const at_pjrt_made *m,
                               uint32_t number, result *r) {
  *r = (result){.number = number,
                .num_shards = m->num_shards,
                .client = at_pjrt_client_hold(c),
                .memories = calloc(m->num_shards + 1, sizeof *r->memories),
                .chips = calloc(m->num_shards + 1, sizeof *r->chips),
                .kind = (at_memory_kind)m->kind,
                .dtype = (at_dtype)m->dtype,
                .rank = m->rank,
                .dims = calloc(m->rank + 1, sizeof *r->dims)};
  if (!r->memories || !r->chips || !r->dims) return NO_MEMORY();
  if (m->rank) memcpy(r->dims, m->dims, m->rank * sizeof *r->dims);
  if (m->kind >= AT_MEM_KINDS || !m->num_shards)
    return AT_FAIL(AT_INVALID_ARGUMENT, "no such memory, or no shards");
  for (uint32_t i = 0; i < m->num_shards; i++) {
    if (m->chips[i] >= c->num_devices)
      return AT_FAIL(AT_INVALID_ARGUMENT, "the pod has no device %u",
                     m->chips[i]);
    r->chips[i] = at_runtime_chip(c->runtime, m->chips[i]);
    r->memories[i] = &c->devices[m->chips[i]].memories[m->kind];
  }
  return AT_OK;
}

// Results of a graph that nothing runs: the pod makes, or has, the arrays
// already. What an earlier call left is freed.
at_status at_pjrt_made_begin(PJRT_Client *c, const at_pjrt_made *list,
                             uint32_t n, uint64_t first) {
  forget_made();
  graph *g = calloc(1, sizeof *g);
  if (!g) return NO_MEMORY();
  atomic_init(&g->refs, 1);
  g->results = calloc(n + 1, sizeof *g->results);
  at_status st = g->results ? AT_OK : NO_MEMORY();
  for (; !st.err && g->num_results < n; g->num_results++)
    st = describe_made(c, &list[g->num_results], g->num_results,
                       &g->results[g->num_results]);
  if (!st.err) st = make_results(g, first);
  if (st.err) forget_made();
  graph_free(g);
  return st;
}

// Nothing where this thread has made nothing.
void at_pjrt_made_adopt(const uint32_t *numbers, uint32_t count) {
  now.next = now.graph ? numbers : NULL;
  now.num_next = count;
}

// snprintf's way: the text as far as it fits, and how long it is in all.
static size_t graph_print(void *p, char *out, size_t bytes) {
  at_strbuf b = {0};
  at_traced_print(((const graph *)p)->traced, &b);
  size_t n = at_code_take(at_strbuf_status(&b)) ? 0 : b.len;
  if (bytes) {
    size_t some = AT_MIN(n, bytes - 1);
    if (some) memcpy(out, b.ptr, some);
    out[some] = 0;
  }
  at_strbuf_free(&b);
  return n;
}

static void identify(bool on) { at_pjrt_identifies = on; }

// ---- Handing out
// Takes the buffers of result `number` from what this thread has made.
// INVALID_ARGUMENT: there is none, it was taken before, or it has other shards
// than the launch has devices.
static at_status take_result(uint32_t number, size_t num_devices,
                             PJRT_Buffer ***out) {
  const graph *g = now.graph;
  const result key = {.number = number};
  const result *r = g->num_results ? bsearch(&key, g->results, g->num_results,
                                             sizeof key, by_number)
                                   : NULL;
  PJRT_Buffer ***from = r ? &now.buffers[r - g->results] : NULL;
  if (!from || !*from || r->num_shards != num_devices)
    return AT_FAIL(AT_INVALID_ARGUMENT, "result %u cannot be handed out",
                   number);
  *out = *from;
  *from = NULL;
  return AT_OK;
}

// The launch's outputs are buffers that are there already. INVALID_ARGUMENT:
// the announcement does not fit the program, or names a result that was handed
// out before; then none is handed out, and those that were taken are freed.
static at_status hand_out(const PJRT_LoadedExecutable_Execute_Args *a) {
  uint32_t n = 0;
  if (a->executable->program->num_outputs != now.num_next)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a launch with %u results cannot hand out %u",
                   a->executable->program->num_outputs, now.num_next);
  PJRT_Buffer ***taken = calloc((size_t)now.num_next + 1, sizeof *taken);
  at_status st = taken ? AT_OK : NO_MEMORY();
  while (!st.err && n < now.num_next) {
    st = take_result(now.next[n], a->num_devices, &taken[n]);
    n += !st.err;
  }
  for (uint32_t o = 0; o < n; o++) {
    for (size_t d = 0; d < a->num_devices; d++)
      if (st.err)
        at_pjrt_buffer_free(taken[o][d]);
      else
        a->output_lists[d][o] = taken[o][d];
    free(taken[o]);
  }
  free(taken);
  return st;
}

// The launch itself does not run: JAX gets the run's buffers as its outputs,
// and events that have fired.
bool at_pjrt_adopts(const PJRT_LoadedExecutable_Execute_Args *a,
                    PJRT_Error **out) {
  if (AT_LIKELY(!now.next)) return false;
  at_status st = hand_out(a);
  now.next = NULL;
  bool all = true;
  for (uint32_t i = 0; i < now.graph->num_results; i++) all &= !now.buffers[i];
  if (all) forget_made();
  for (size_t d = 0; !st.err && a->device_complete_events && d < a->num_devices;
       d++)
    a->device_complete_events[d] = at_pjrt_event_ready();
  *out = at_pjrt_error(st);
  return true;
}

const at_pjrt_graph_calls at_pjrt_graphs = {.trace_begin = trace_begin,
                                            .trace_pause = trace_pause,
                                            .trace_find = trace_find,
                                            .trace_host = trace_host,
                                            .trace_end = trace_end,
                                            .trace_abandon = trace_abandon,
                                            .graph_run = graph_run,
                                            .graph_relower = graph_relower,
                                            .graph_adopt = graph_adopt,
                                            .graph_print = graph_print,
                                            .graph_free = graph_free,
                                            .late_define = late_define,
                                            .late_fail = late_fail,
                                            .late_free = late_free,
                                            .plan_make = plan_make,
                                            .plan_run = plan_run,
                                            .plan_wire_bytes = plan_wire_bytes,
                                            .identify = identify};
