#include "control/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/client_internal.h"

// What a name stands for while a thread traces.
typedef struct meaning {
  struct meaning *next;  // of all, to free them
  uint64_t code;         // AT_MSG_INPUT or AT_MSG_MADE and its number
  uint32_t base;         // its shard 0 is that shard of the input
} meaning;

typedef struct pins {
  uint64_t *names;
  uint32_t count, room;
} pins;

// An input that is made of a host's bytes.
typedef struct upload {
  uint32_t host;
  uint64_t offset, bytes;
  at_proxy_spec spec;
  int64_t dims[AT_MESSAGE_RANK];
} upload;
typedef struct uploads {
  upload *list;
  uint32_t count, room;
} uploads;

struct at_trace {
  at_client *client;
  at_table meanings;  // by name
  meaning *all;
  bool *donated;  // by array
  at_bytes *hosts;
  uint32_t num_hosts;
  uploads uploads;
  at_graph graph;
  uint32_t steps_room, made_room;
  pins arrays, programs;
  at_status why;  // it cannot be kept
};

struct at_traced {
  at_client *client;
  _Atomic uint64_t name;
  pins names;  // all that it has had
  at_graph graph;
  _Atomic uint32_t replaced;  // hosts, when it was sent
  bool *donated;
  uint32_t num_hosts;
  uint64_t *host_bytes;
  uploads uploads;
  pins arrays, programs;
};

static _Thread_local at_trace *current;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to trace a program");
}

// The first reason counts. Consumes why.
static void give_up(at_trace *t, at_status why) {
  t->why = at_status_join(t->why, why);
}

// ---- Constants stay: what drops them is done with the graph
// How many graphs use an array or a program, and whether its owner has dropped
// it meanwhile.
typedef struct pin {
  uint32_t count;
  bool dropped;
} pin;

// Doubles, from 64. *list keeps its address where it has room. False: no
// memory, and the list is as it was.
static bool grow(void **list, uint32_t *room, uint32_t count, size_t each) {
  if (count <= *room) return true;
  uint32_t wanted = AT_MAX(count, *room ? 2 * *room : 64);
  void *more = realloc(*list, wanted * each);
  if (!more) return false;
  *list = more;
  *room = wanted;
  return true;
}

// For one name more; false: no memory.
static bool has_room(pins *list) {
  return grow((void **)&list->names, &list->room, list->count + 1,
              sizeof *list->names);
}

// Once for each graph, however often it uses it.
static bool add_pin(at_client *c, at_table *of, pins *list, uint64_t name) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->names[i] == name) return true;
  if (!has_room(list)) return false;
  pthread_mutex_lock(&c->lock);
  pin *p = at_table_find(of, name);
  if (!p && (p = calloc(1, sizeof *p)) && !at_table_put(of, name, p)) {
    free(p);
    p = NULL;
  }
  if (p) p->count++;
  pthread_mutex_unlock(&c->lock);
  if (p) list->names[list->count++] = name;
  return p != NULL;
}

// True: the drop is remembered, and happens with the last pin.
bool at_pin_drop(at_client *c, at_table *of, uint64_t name) {
  if (!of->count) return false;  // most clients trace nothing
  pthread_mutex_lock(&c->lock);
  pin *p = at_table_find(of, name);
  if (p) p->dropped = true;
  pthread_mutex_unlock(&c->lock);
  return p != NULL;
}

// Gives up all pins of a list and frees it. What was dropped meanwhile is
// dropped now, without the lock.
static void unpin(at_client *c, at_table *of, pins *list,
                  void (*drop)(at_client *, uint64_t)) {
  for (uint32_t i = 0; i < list->count; i++) {
    pthread_mutex_lock(&c->lock);
    pin *p = at_table_find(of, list->names[i]);
    bool last = p && !--p->count;
    if (last) at_table_take(of, list->names[i]);
    pthread_mutex_unlock(&c->lock);
    if (last && p->dropped) drop(c, list->names[i]);
    if (last) free(p);
  }
  free(list->names);
  *list = (pins){0};
}

// ---- Meanings
// A name that has a meaning gets the new one. False: no memory.
static bool means(at_trace *t, uint64_t name, uint64_t code, uint32_t base) {
  meaning *m = malloc(sizeof *m);
  if (!m) return false;
  *m = (meaning){t->all, code, base};
  t->all = m;
  return at_table_put(&t->meanings, name, m);
}

// n more arrays that steps make; NULL: no memory.
static at_graph_made *new_made(at_trace *t, uint32_t n) {
  at_graph *g = &t->graph;
  if (!grow((void **)&g->made, &t->made_room, g->num_made + n, sizeof *g->made))
    return NULL;
  at_graph_made *first = g->made + g->num_made;
  memset(first, 0, n * sizeof *first);
  g->num_made += n;
  return first;
}

// ---- Keeping steps
typedef struct keeping {
  at_trace *t;
  uint32_t kind;
} keeping;

// Puts the meaning of a name in its place. An input's memory may be donated by
// the graph's caller, but its name stays the caller's.
static void use(at_trace *t, uint32_t kind, uint64_t *name, const meaning *m) {
  uint32_t *shard = (uint32_t *)(name + 1);  // of all that name an array
  uint32_t *flags = kind == AT_MSG_LAUNCH ? shard + 1 : NULL;
  uint64_t k = m->code & ~(AT_MSG_INPUT | AT_MSG_MADE);
  *name = m->code;
  *shard += m->base;
  if (flags && !(m->code & AT_MSG_MADE)) {
    *flags &= ~(uint32_t)AT_MSG_GIVEN;  // the runs' callers drop the name
    if (k < t->graph.num_arrays)
      t->donated[k] |= (*flags & AT_MSG_DONATED) != 0;
  }
}

// An at_message_name_fn over a step as it was sent: names become inputs, made
// arrays or constants. Constants are pinned.
static bool translate(void *arg, uint64_t *name, bool makes, uint32_t count) {
  const keeping *x = arg;
  at_trace *t = x->t;
  if (makes) {
    uint32_t first = t->graph.num_made;
    bool good = new_made(t, count);
    for (uint32_t i = 0; good && i < count; i++)
      good = means(t, *name + i, AT_MSG_MADE | (first + i), 0);
    if (!good) return give_up(t, no_memory()), false;
    *name = AT_MSG_MADE | first;
    return true;
  }
  const meaning *m = at_table_find(&t->meanings, *name);
  if (m) return use(t, x->kind, name, m), true;
  const uint32_t *flags = (const uint32_t *)(name + 1) + 1;
  if (x->kind == AT_MSG_LAUNCH && (*flags & AT_MSG_DONATED))
    give_up(t, AT_FAIL(AT_FAILED_PRECONDITION,
                       "a traced program donates an array that is neither "
                       "its argument nor made by it"));
  if (!add_pin(t->client, &t->client->pinned_arrays, &t->arrays, *name))
    give_up(t, no_memory());
  return true;
}

// The program is pinned, so its text and chips stay as long as the graph.
static void keep_launch(at_trace *t, at_graph_step *s) {
  at_msg_launch *m = (void *)s->body;
  if (m->num_channels)
    give_up(t, AT_FAIL(AT_FAILED_PRECONDITION,
                       "a traced program has host callbacks"));
  m->number = 0;  // nobody hears when it is done
  if (!add_pin(t->client, &t->client->pinned_programs, &t->programs,
               m->program))
    give_up(t, no_memory());
  pthread_mutex_lock(&t->client->lock);
  const far_program *p = at_table_find(&t->client->programs, m->program);
  pthread_mutex_unlock(&t->client->lock);
  if (p)
    s->program = &p->shown;
  else
    give_up(t, AT_FAIL(AT_INTERNAL, "a traced program was unloaded"));
}

// NULL: no memory. The body is not filled in.
static at_graph_step *new_step(at_trace *t, uint32_t kind, size_t bytes) {
  at_graph *g = &t->graph;
  uint8_t *body = grow((void **)&g->steps, &t->steps_room, g->num_steps + 1,
                       sizeof *g->steps)
                      ? malloc(bytes)
                      : NULL;
  if (!body) return NULL;
  at_graph_step *s = &g->steps[g->num_steps++];
  *s = (at_graph_step){.kind = kind, .bytes = (uint32_t)bytes, .body = body};
  return s;
}

bool at_trace_is_on(const at_client *c) {
  return current && current->client == c;
}

// The message has been sent already: nothing here can fail the call.
void at_trace_step(uint32_t kind, const at_bytes *parts, uint32_t n) {
  at_trace *t = current;
  size_t bytes = 0;
  if (t->why.err) return;
  for (uint32_t i = 0; i < n; i++) bytes += parts[i].len;
  at_graph_step *s = new_step(t, kind, bytes);
  if (!s) return give_up(t, no_memory());
  uint8_t *body = s->body;
  for (uint32_t i = 0; i < n; i++) {
    if (parts[i].len) memcpy(body, parts[i].ptr, parts[i].len);
    body += parts[i].len;
  }
  if (kind == AT_MSG_LAUNCH) keep_launch(t, s);
  keeping x = {t, kind};
  at_message_names(kind, s->body, translate, &x);
}

// Every one is an input of the graph. Not filled in.
static upload *new_upload(at_trace *t) {
  uploads *u = &t->uploads;
  if (!grow((void **)&u->list, &u->room, u->count + 1, sizeof *u->list))
    return NULL;
  t->graph.num_inputs++;
  return &u->list[u->count++];
}

// Bytes that lie inside one of the trace's `hosts` are an input; others are a
// constant, as any array that was there.
void at_trace_create(const at_proxy_spec *s, at_bytes data) {
  at_trace *t = current;
  uint32_t h = 0, input = t->graph.num_inputs;
  while (h < t->num_hosts &&
         (uint64_t)(data.ptr - t->hosts[h].ptr) >= t->hosts[h].len)
    h++;
  // A constant, which is found where it is used.
  if (t->why.err || !data.len || h == t->num_hosts) return;
  upload *x = new_upload(t);
  if (!x) return give_up(t, no_memory());
  *x = (upload){.host = h,
                .offset = (uint64_t)(data.ptr - t->hosts[h].ptr),
                .bytes = data.len,
                .spec = *s};
  if (s->dims.rank)
    memcpy(x->dims, s->dims.ptr, s->dims.rank * sizeof *x->dims);
  if (x->bytes > t->hosts[h].len - x->offset ||
      !means(t, s->array, AT_MSG_INPUT | input, 0))
    give_up(t, no_memory());
}

// A value that the function branches on would be another one in the next run.
void at_trace_looks(void) {
  give_up(current, AT_FAIL(AT_FAILED_PRECONDITION,
                           "a traced program looks at the values of an array"));
}

// ---- Beginning and ending
static void free_graph(at_graph *g) {
  for (uint32_t i = 0; i < g->num_steps; i++) free(g->steps[i].body);
  free(g->steps);
  free(g->made);
  free(g->results);
  free((void *)(uintptr_t)g->hosts);
}

// Steps, constants' names and everything that find had to know.
static void free_trace(at_trace *t) {
  free_graph(&t->graph);
  free(t->donated);
  free(t->hosts);
  free(t->uploads.list);
  free(t->arrays.names);
  free(t->programs.names);
  for (meaning *m; (m = t->all);) {
    t->all = m->next;
    free(m);
  }
  at_table_free(&t->meanings);
  at_status_free(t->why);
  free(t);
}

// Pins go first: they need the client, which outlives the trace.
void at_trace_abandon(at_trace *t) {
  if (!t) return;
  current = NULL;
  unpin(t->client, &t->client->pinned_arrays, &t->arrays, at_client_drop);
  unpin(t->client, &t->client->pinned_programs, &t->programs, at_client_unload);
  free_trace(t);
}

void at_trace_pause(at_trace *t, bool on) { current = on ? NULL : t; }

// A shard of the input may also be named as an array of its own; it then means
// that shard.
static bool add_input(at_trace *t, const at_trace_array *a, uint32_t k) {
  bool good = means(t, a->name, AT_MSG_INPUT | k, 0);
  for (uint32_t i = 0; good && i < a->num_shards; i++) {
    if (a->shards[i].array == a->name ||
        at_table_find(&t->meanings, a->shards[i].array))
      continue;
    good =
        means(t, a->shards[i].array, AT_MSG_INPUT | k, i - a->shards[i].shard);
  }
  return good;
}

// hosts are copied as views: the bytes must stay until the trace ends.
at_status at_trace_begin(at_client *c, const at_trace_array *inputs,
                         uint32_t count, const at_bytes *hosts,
                         uint32_t num_hosts, at_trace **out) {
  if (current)
    return AT_FAIL(AT_FAILED_PRECONDITION, "this thread traces already");
  at_trace *t = calloc(1, sizeof *t);
  if (!t) return no_memory();
  t->client = c;
  t->graph.num_arrays = t->graph.num_inputs = count;
  t->hosts = malloc((num_hosts + 1) * sizeof *hosts);
  t->num_hosts = num_hosts;
  if (t->hosts && num_hosts) memcpy(t->hosts, hosts, num_hosts * sizeof *hosts);
  t->donated = calloc(count + 1, sizeof *t->donated);
  bool good = t->donated && t->hosts;
  for (uint32_t k = 0; good && k < count; k++)
    good = add_input(t, &inputs[k], k);
  if (!good) {
    free_trace(t);
    return no_memory();
  }
  *out = current = t;
  return AT_OK;
}

// A step of the client has no message; it is kept for the text, and so that
// results and late inputs have their order.
at_status at_trace_host(at_trace *t, const char *text, uint32_t num_taken,
                        const at_trace_array *made, uint32_t count,
                        uint32_t *first_input) {
  at_graph *g = &t->graph;
  size_t bytes = sizeof(at_graph_host) + strlen(text) + 1;
  at_graph_step *s = new_step(t, AT_GRAPH_HOST, bytes);
  if (!s) return no_memory();
  at_graph_host *h = (void *)s->body;
  *h = (at_graph_host){g->num_taken, num_taken, g->num_inputs, count};
  memcpy(h->text, text, strlen(text) + 1);
  g->num_taken += num_taken;
  for (uint32_t i = 0; i < count; i++) {
    upload *x = new_upload(t);
    if (!x) return no_memory();
    *x = (upload){.host = AT_GRAPH_LATE};
    if (!add_input(t, &made[i], h->first_input + i)) return no_memory();
  }
  *first_input = h->first_input;
  return AT_OK;
}

// code 0: an array that was there before.
static at_trace_result result_of(uint64_t code) {
  if (!code) return (at_trace_result){AT_TRACE_CONSTANT, 0};
  return (at_trace_result){code & AT_MSG_INPUT ? AT_TRACE_INPUT : AT_TRACE_MADE,
                           (uint32_t)code};
}

at_trace_result at_trace_find(const at_trace *t, uint64_t name) {
  const meaning *m = at_table_find(&t->meanings, name);
  return result_of(m ? m->code : 0);
}

// What a result is called; 0: it was there before.
static uint64_t code_of(at_trace *t, uint64_t name) {
  const meaning *m = at_table_find(&t->meanings, name);
  if (m && m->code & AT_MSG_MADE) t->graph.made[(uint32_t)m->code].kept = true;
  return m ? m->code : 0;
}

// Results are marked as kept before the passes run, which rename them.
static at_status finish_graph(at_trace *t, const uint64_t *results,
                              uint32_t count, bool passes) {
  at_graph *g = &t->graph;
  uint32_t *hosts = malloc((t->uploads.count + 1) * sizeof *hosts);
  g->hosts = hosts;
  g->results = malloc((count + 1) * sizeof *g->results);
  if (!hosts || !g->results) return no_memory();
  for (uint32_t i = 0; i < t->uploads.count; i++)
    hosts[i] = t->uploads.list[i].host;
  for (uint32_t i = 0; i < count; i++) g->results[i] = code_of(t, results[i]);
  g->num_results = count;
  return at_graph_optimize(g, passes);
}

// GRAPH under a new name; the former one stays until at_traced_free, as other
// threads may be running it.
static at_status send_graph(at_traced *g) {
  at_strbuf body = {0};
  uint64_t name = g->client->face.names(g->client, 1);
  uint32_t replaced = atomic_load(&g->client->replaced);
  at_status st = has_room(&g->names) ? at_graph_write(&g->graph, name, &body)
                                     : no_memory();
  const at_bytes part = {(const uint8_t *)body.ptr, body.len};
  if (!st.err) st = at_client_say(g->client, AT_MSG_GRAPH, &part, 1);
  at_strbuf_free(&body);
  if (st.err) return st;
  g->names.names[g->names.count++] = name;
  atomic_store(&g->name, name);
  atomic_store(&g->replaced, replaced);
  return AT_OK;
}

// Everything that the graph needs moves from the trace to it; on failure all of
// it is the trace's still.
static at_status make_traced(at_trace *t, at_traced **out) {
  at_traced *g = calloc(1, sizeof *g);
  if (!g) return no_memory();
  g->client = t->client;
  g->graph = t->graph;
  g->num_hosts = t->num_hosts;
  g->host_bytes = calloc(t->num_hosts + 1, sizeof *g->host_bytes);
  for (uint32_t h = 0; g->host_bytes && h < t->num_hosts; h++)
    g->host_bytes[h] = t->hosts[h].len;
  at_status st = g->host_bytes ? send_graph(g) : no_memory();
  if (st.err) {
    free(g->names.names);
    free(g->host_bytes);
    free(g);
    return st;
  }
  g->donated = t->donated;
  g->uploads = t->uploads;
  t->uploads = (uploads){0};
  g->arrays = t->arrays;
  g->programs = t->programs;
  t->graph = (at_graph){0};
  t->donated = NULL;
  t->arrays = t->programs = (pins){0};
  *out = g;
  return AT_OK;
}

// The trace is freed in any case.
at_status at_trace_end(at_trace *t, const uint64_t *results, uint32_t count,
                       bool passes, at_trace_result *out_results,
                       at_traced **out) {
  current = NULL;
  at_status st = t->why;
  t->why = AT_OK;
  if (!st.err) st = finish_graph(t, results, count, passes);
  for (uint32_t i = 0; !st.err && i < count; i++)
    out_results[i] = result_of(t->graph.results[i]);
  if (!st.err) st = make_traced(t, out);
  at_trace_abandon(t);
  return st;
}

// ---- Hosts that were replaced
// Another thread may be about to run the graph as it was, so that and its
// programs stay as long as this.
static at_status load_again(at_traced *g, const at_graph_program *old) {
  at_client *c = g->client;
  uint64_t name = c->face.names(c, 1);
  pthread_mutex_lock(&c->lock);
  const far_program *p = at_table_find(&c->programs, old->name);
  bool stale = p && p->stale;
  pthread_mutex_unlock(&c->lock);
  if (!stale) return AT_OK;
  AT_TRY(c->face.load(c, name, p->block, old->chips, old->num_chips));
  if (!add_pin(c, &c->pinned_programs, &g->programs, name)) {
    at_client_unload(c, name);
    return no_memory();
  }
  at_pin_drop(c, &c->pinned_programs, name);  // it goes with the graph
  pthread_mutex_lock(&c->lock);
  const far_program *made = at_table_find(&c->programs, name);
  pthread_mutex_unlock(&c->lock);
  for (uint32_t k = 0; k < g->graph.num_steps; k++) {
    at_graph_step *s = &g->graph.steps[k];
    if (s->program != old) continue;
    s->program = &made->shown;
    ((at_msg_launch *)(void *)s->body)->program = name;
  }
  return AT_OK;
}

// Virtual devices may stand for other chips now, which steps name.
static bool is_virtual(const at_graph_step *s) {
  if (s->program)
    for (uint32_t i = 0; i < s->program->num_chips; i++)
      if (s->program->chips[i] != at_message_chip(s->program->chips[i]))
        return true;
  if (s->kind == AT_MSG_COPY) {
    const at_msg_copy *m = (const void *)s->body;
    return m->chip != at_message_chip(m->chip) ||
           m->from.chip != at_message_chip(m->from.chip);
  }
  const at_msg_group *m = (const void *)s->body;
  const at_msg_shard *x = (const void *)(m + 1);
  for (uint64_t i = 0; s->kind == AT_MSG_GROUP && i < m->count; i++)
    if (x[i].chip != at_message_chip(x[i].chip)) return true;
  return false;
}

// Is a constant that a step names on a host that has lost it?
typedef struct losing {
  at_client *client;
  const at_graph_step *step;
  bool lost;
} losing;

// Was that array on a process of the chip's host that is gone?
static bool has_lost(const losing *x, uint32_t chip, uint64_t name) {
  return name <
         atomic_load(&x->client->hosts[x->client->host_of[chip]].lost_before);
}

// An at_message_name_fn.
static bool see_constant(void *arg, uint64_t *name, bool makes,
                         uint32_t count) {
  losing *x = arg;
  const at_graph_program *p = x->step->program;
  if (makes || *name & (AT_MSG_INPUT | AT_MSG_MADE)) return true;
  if (!p)
    x->lost |= has_lost(x, ((const uint32_t *)(name + 1))[1], *name);
  else
    for (uint32_t d = 0; d < p->num_chips; d++)
      x->lost |= has_lost(x, p->chips[d], *name);
  return true;
}

// Are the constants of all steps still there?
static bool has_constants(const at_traced *g) {
  losing x = {.client = g->client};
  for (uint32_t k = 0; k < g->graph.num_steps && !x.lost; k++) {
    x.step = &g->graph.steps[k];
    if (!x.step->removed)
      at_message_names(x.step->kind, x.step->body, see_constant, &x);
  }
  return !x.lost;
}

// Programs are loaded again where they are stale, and the graph is sent anew.
// The client's steps stay as they are.
at_status at_traced_relower(at_traced *g) {
  if (atomic_load(&g->replaced) == atomic_load(&g->client->replaced))
    return AT_OK;  // another thread has done it
  for (uint32_t k = 0; k < g->graph.num_steps; k++)
    if (is_virtual(&g->graph.steps[k]))
      return AT_FAIL(AT_FAILED_PRECONDITION,
                     "its virtual devices may stand for other chips");
  if (!has_constants(g))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "hosts were replaced, and have lost its constants");
  for (uint32_t k = 0; k < g->graph.num_steps; k++)
    if (g->graph.steps[k].program)
      AT_TRY(load_again(g, g->graph.steps[k].program));
  return send_graph(g);
}

// ---- Runs
uint32_t at_traced_inputs(const at_traced *g) { return g->graph.num_arrays; }
bool at_traced_donates(const at_traced *g, uint32_t input) {
  return g->donated[input];
}
void at_traced_print(const at_traced *g, at_strbuf *out) {
  at_graph_print(&g->graph, out);
}

// Bytes of the host have to be as long as those of the trace, since their
// places in it are fixed.
static at_status check_hosts(const at_traced *g, const at_bytes *hosts) {
  for (uint32_t h = 0; h < g->num_hosts; h++)
    if (hosts[h].len != g->host_bytes[h])
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "argument %u of the host has %zu bytes, not %llu", h,
                     hosts[h].len, (unsigned long long)g->host_bytes[h]);
  return AT_OK;
}

// Names of the inputs that this run makes, 0 for others; *made: how far it is.
static at_status upload_all(at_traced *g, const at_bytes *hosts, uint64_t name,
                            uint64_t *names, uint32_t *made) {
  const at_proxy *p = &g->client->face;
  for (uint32_t i = 0; i < g->uploads.count; i++) {
    const upload *u = &g->uploads.list[i];
    names[i] = 0;
    *made = i + 1;
    if (u->host == AT_GRAPH_LATE) continue;
    at_proxy_spec spec = u->spec;
    at_bytes data = {hosts[u->host].ptr + u->offset, u->bytes};
    spec.array = names[i] = name + i;
    spec.dims.ptr = u->dims;
    at_status st = p->create(p->arg, &spec, &data);
    if (st.err) return names[i] = 0, st;
  }
  return AT_OK;
}

// One message: RUN with the names of all inputs.
static at_status run(at_traced *g, const uint64_t *inputs,
                     const uint64_t *uploads, uint64_t first) {
  at_msg_run m = {.graph = atomic_load(&g->name),
                  .first = first,
                  .num_inputs = g->graph.num_inputs};
  const at_bytes parts[] = {
      {(const uint8_t *)&m, sizeof m},
      {(const uint8_t *)inputs, g->graph.num_arrays * sizeof *inputs},
      {(const uint8_t *)uploads, g->uploads.count * sizeof *uploads}};
  if (!at_spans_on()) return at_client_say(g->client, AT_MSG_RUN, parts, 3);
  uint64_t begin = at_clock_ns();
  at_status st = at_client_say(g->client, AT_MSG_RUN, parts, 3);
  at_client_record_launch(g->client, begin, first);
  return st;
}

// Inputs that it makes itself are dropped right behind the run, which hosts
// have by then.
at_status at_traced_run(at_traced *g, const uint64_t *inputs,
                        const at_bytes *hosts, const uint64_t *late,
                        uint64_t *first) {
  at_client *c = g->client;
  uint32_t n = g->uploads.count, made = 0;
  if (atomic_load(&g->replaced) != atomic_load(&c->replaced))
    return AT_FAIL(AT_FAILED_PRECONDITION, "hosts were replaced since");
  AT_TRY(check_hosts(g, hosts));
  uint64_t *names = malloc((2 * (size_t)n + 1) * sizeof *names);
  if (!names) return no_memory();
  *first = c->face.names(c, g->graph.num_made + n);
  at_status st = upload_all(g, hosts, *first + g->graph.num_made, names, &made);
  uint64_t *all = names + n;
  for (uint32_t i = 0; !st.err && i < made; i++)
    all[i] = names[i] ? names[i] : *late++;
  if (!st.err) st = run(g, inputs, all, *first);
  for (uint32_t i = 0; i < made; i++)
    if (names[i]) at_client_drop(c, names[i]);
  free(names);
  return st;
}

// All names that the graph has had are forgotten.
void at_traced_free(at_traced *g) {
  if (!g) return;
  at_client *c = g->client;
  for (uint32_t i = 0; i < g->names.count; i++) {
    at_msg_forget m = {g->names.names[i]};
    const at_bytes part = {(const uint8_t *)&m, sizeof m};
    at_status_free(at_client_say(c, AT_MSG_FORGET, &part, 1));
  }
  free(g->names.names);
  unpin(c, &c->pinned_arrays, &g->arrays, at_client_drop);
  unpin(c, &c->pinned_programs, &g->programs, at_client_unload);
  free_graph(&g->graph);
  free(g->donated);
  free(g->host_bytes);
  free(g->uploads.list);
  free(g);
}
