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

// A step, and what it makes that nobody uses behind it.
typedef struct step {
  uint32_t kind, bytes;
  uint8_t *body;
  uint64_t program;  // LAUNCH
} step;

// An array that the graph makes.
typedef struct made {
  uint32_t last;  // step that uses it, or makes it
  bool taken;     // by that, its name included
  bool kept;
} made;

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
  uint32_t num_arrays, num_inputs;  // uploads come behind arrays
  bool *donated;                    // by array
  at_bytes *hosts;
  uint32_t num_hosts;
  uploads uploads;
  step *steps;
  uint32_t num_steps, steps_room;
  made *made;
  uint32_t num_made, made_room;
  pins arrays, programs;
  at_status why;  // it cannot be kept
};

struct at_traced {
  at_client *client;
  uint64_t name;
  uint32_t num_arrays, num_inputs, num_made, replaced;
  bool *donated;
  uint32_t num_hosts;
  uint64_t *host_bytes;
  uploads uploads;
  pins arrays, programs;
  at_strbuf text;
};

static _Thread_local at_trace *current;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory to trace a program");
}

static void give_up(at_trace *t, at_status why) {
  t->why = at_status_join(t->why, why);
}

// ---- Constants stay: what drops them is done with the graph
typedef struct pin {
  uint32_t count;
  bool dropped;
} pin;

static bool add_pin(at_client *c, at_table *of, pins *list, uint64_t name) {
  for (uint32_t i = 0; i < list->count; i++)
    if (list->names[i] == name) return true;
  if (list->count == list->room) {
    uint32_t room = list->room ? 2 * list->room : 16;
    uint64_t *more = realloc(list->names, room * sizeof *more);
    if (!more) return false;
    list->names = more;
    list->room = room;
  }
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

bool at_pin_drop(at_client *c, at_table *of, uint64_t name) {
  if (!of->count) return false;  // most clients trace nothing
  pthread_mutex_lock(&c->lock);
  pin *p = at_table_find(of, name);
  if (p) p->dropped = true;
  pthread_mutex_unlock(&c->lock);
  return p != NULL;
}

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
static bool means(at_trace *t, uint64_t name, uint64_t code, uint32_t base) {
  meaning *m = malloc(sizeof *m);
  if (!m) return false;
  *m = (meaning){t->all, code, base};
  t->all = m;
  return at_table_put(&t->meanings, name, m);
}

static made *new_made(at_trace *t, uint32_t n) {
  while (t->num_made + n > t->made_room) {
    uint32_t room = t->made_room ? 2 * t->made_room : 64;
    made *more = realloc(t->made, room * sizeof *more);
    if (!more) return NULL;
    t->made = more;
    t->made_room = room;
  }
  made *first = t->made + t->num_made;
  memset(first, 0, n * sizeof *first);
  t->num_made += n;
  return first;
}

// ---- Keeping steps
typedef struct keeping {
  at_trace *t;
  uint32_t kind;
} keeping;

static void use(at_trace *t, uint32_t kind, uint64_t *name, const meaning *m) {
  uint32_t *shard = (uint32_t *)(name + 1);  // of all that name an array
  uint32_t *flags = kind == AT_MSG_LAUNCH ? shard + 1 : NULL;
  uint64_t k = m->code & ~(AT_MSG_INPUT | AT_MSG_MADE);
  *name = m->code;
  *shard += m->base;
  if (m->code & AT_MSG_MADE) {
    t->made[k].last = t->num_steps;
    t->made[k].taken |= flags && (*flags & AT_MSG_GIVEN);
  } else if (flags) {
    *flags &= ~(uint32_t)AT_MSG_GIVEN;  // the runs' callers drop the name
    if (k < t->num_arrays) t->donated[k] |= (*flags & AT_MSG_DONATED) != 0;
  }
}

static bool translate(void *arg, uint64_t *name, bool makes, uint32_t count) {
  const keeping *x = arg;
  at_trace *t = x->t;
  if (makes) {
    uint32_t first = t->num_made;
    made *m = new_made(t, count);
    for (uint32_t i = 0; m && i < count; i++) {
      m[i].last = t->num_steps;
      if (!means(t, *name + i, AT_MSG_MADE | (first + i), 0)) m = NULL;
    }
    if (!m) return give_up(t, no_memory()), false;
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

static step *new_step(at_trace *t) {
  if (t->num_steps == t->steps_room) {
    uint32_t room = t->steps_room ? 2 * t->steps_room : 64;
    step *more = realloc(t->steps, room * sizeof *more);
    if (!more) return NULL;
    t->steps = more;
    t->steps_room = room;
  }
  return &t->steps[t->num_steps];
}

static void keep_launch(at_trace *t, at_msg_launch *m) {
  if (m->num_channels)
    give_up(t, AT_FAIL(AT_FAILED_PRECONDITION,
                       "a traced program has host callbacks"));
  m->number = 0;  // nobody hears when it is done
  if (!add_pin(t->client, &t->client->pinned_programs, &t->programs,
               m->program))
    give_up(t, no_memory());
}

bool at_trace_is_on(const at_client *c) {
  return current && current->client == c;
}

void at_trace_step(uint32_t kind, const at_bytes *parts, uint32_t n) {
  at_trace *t = current;
  size_t bytes = 0;
  if (t->why.err) return;
  for (uint32_t i = 0; i < n; i++) bytes += parts[i].len;
  step *s = new_step(t);
  uint8_t *body = s ? malloc(bytes) : NULL;
  if (!body) return give_up(t, no_memory());
  *s = (step){.kind = kind, .bytes = (uint32_t)bytes, .body = body};
  for (uint32_t i = 0; i < n; i++) {
    if (parts[i].len) memcpy(body, parts[i].ptr, parts[i].len);
    body += parts[i].len;
  }
  if (kind == AT_MSG_LAUNCH) {
    keep_launch(t, (void *)s->body);
    s->program = ((const at_msg_launch *)(const void *)s->body)->program;
  }
  keeping x = {t, kind};
  at_message_names(kind, s->body, translate, &x);
  t->num_steps++;
}

void at_trace_create(const at_proxy_spec *s, at_bytes data) {
  at_trace *t = current;
  uint32_t h = 0;
  while (h < t->num_hosts &&
         (uint64_t)(data.ptr - t->hosts[h].ptr) >= t->hosts[h].len)
    h++;
  // A constant, which is found where it is used.
  if (t->why.err || !data.len || h == t->num_hosts) return;
  uploads *u = &t->uploads;
  if (u->count == u->room) {
    uint32_t room = u->room ? 2 * u->room : 16;
    upload *more = realloc(u->list, room * sizeof *more);
    if (!more) return give_up(t, no_memory());
    u->list = more;
    u->room = room;
  }
  upload *x = &u->list[u->count++];
  *x = (upload){.host = h,
                .offset = (uint64_t)(data.ptr - t->hosts[h].ptr),
                .bytes = data.len,
                .spec = *s};
  if (s->dims.rank)
    memcpy(x->dims, s->dims.ptr, s->dims.rank * sizeof *x->dims);
  if (x->bytes > t->hosts[h].len - x->offset ||
      !means(t, s->array, AT_MSG_INPUT | t->num_inputs++, 0))
    give_up(t, no_memory());
}

void at_trace_looks(void) {
  give_up(current, AT_FAIL(AT_FAILED_PRECONDITION,
                           "a traced program looks at the values of an array"));
}

// ---- Beginning and ending
static void free_trace(at_trace *t) {
  for (uint32_t i = 0; i < t->num_steps; i++) free(t->steps[i].body);
  free(t->steps);
  free(t->made);
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

void at_trace_abandon(at_trace *t) {
  if (!t) return;
  current = NULL;
  unpin(t->client, &t->client->pinned_arrays, &t->arrays, at_client_drop);
  unpin(t->client, &t->client->pinned_programs, &t->programs, at_client_unload);
  free_trace(t);
}

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

at_status at_trace_begin(at_client *c, const at_trace_array *inputs,
                         uint32_t count, const at_bytes *hosts,
                         uint32_t num_hosts, at_trace **out) {
  if (current)
    return AT_FAIL(AT_FAILED_PRECONDITION, "this thread traces already");
  at_trace *t = calloc(1, sizeof *t);
  if (!t) return no_memory();
  t->client = c;
  t->num_arrays = t->num_inputs = count;
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

static at_trace_result result_of(at_trace *t, uint64_t name) {
  const meaning *m = at_table_find(&t->meanings, name);
  if (!m) return (at_trace_result){AT_TRACE_CONSTANT, 0};
  uint32_t k = (uint32_t)m->code;
  if (m->code & AT_MSG_INPUT) return (at_trace_result){AT_TRACE_INPUT, k};
  t->made[k].kept = true;
  return (at_trace_result){AT_TRACE_MADE, k};
}

// ---- The graph as a message
static void add_bytes(at_strbuf *b, const void *p, size_t n) {
  at_strbuf_add(b, (at_str){p, n});
}

static void add_step(at_strbuf *b, uint32_t kind, const void *body,
                     size_t bytes) {
  static const uint8_t pad[8];
  at_msg_step s = {kind, (uint32_t)bytes};
  add_bytes(b, &s, sizeof s);
  add_bytes(b, body, bytes);
  add_bytes(b, pad, at_message_step_bytes(s.bytes) - sizeof s - bytes);
}

// By the step that used them last: chains of `made`, 1 + its number; 0: none.
static uint32_t *chain_drops(const at_trace *t, uint32_t *next) {
  uint32_t *first = calloc(t->num_steps + 1, sizeof *first);
  for (uint32_t k = 0; first && k < t->num_made; k++) {
    if (t->made[k].kept || t->made[k].taken) continue;
    next[k] = first[t->made[k].last];
    first[t->made[k].last] = k + 1;
  }
  return first;
}

static void add_drops(at_strbuf *b, uint32_t first, const uint32_t *next,
                      uint64_t *room) {
  uint64_t n = 0;
  for (uint32_t k = first; k; k = next[k - 1])
    room[1 + n++] = AT_MSG_MADE | (k - 1);
  room[0] = n;
  if (n) add_step(b, AT_MSG_DROP, room, (1 + n) * sizeof *room);
}

static at_status write_graph(const at_trace *t, uint64_t name, at_strbuf *b) {
  at_msg_graph m = {
      .graph = name, .num_inputs = t->num_inputs, .num_made = t->num_made};
  uint32_t *next = calloc(t->num_made + 1, sizeof *next);
  uint64_t *room = calloc(t->num_made + 2, sizeof *room);
  uint32_t *first = next && room ? chain_drops(t, next) : NULL;
  if (first) {
    for (uint32_t k = 0; k < t->num_made; k++) m.num_kept += t->made[k].kept;
    m.num_steps = t->num_steps;
    for (uint32_t i = 0; i < t->num_steps; i++) m.num_steps += first[i] != 0;
    add_bytes(b, &m, sizeof m);
    for (uint64_t k = 0; k < t->num_made; k++)
      if (t->made[k].kept) add_bytes(b, &k, sizeof k);
    for (uint32_t i = 0; i < t->num_steps; i++) {
      add_step(b, t->steps[i].kind, t->steps[i].body, t->steps[i].bytes);
      add_drops(b, first[i], next, room);
    }
  }
  free(next);
  free(room);
  free(first);
  return first ? at_strbuf_status(b) : no_memory();
}

// ---- For people
static void print_name(const at_trace *t, uint64_t name, at_strbuf *b) {
  if (name & AT_MSG_INPUT)
    at_strbuf_addf(b, "%%arg%u", (uint32_t)name);
  else if (name & AT_MSG_MADE)
    at_strbuf_addf(b, "%%%u", (uint32_t)name);
  else
    at_strbuf_addf(b, "@%llu", (unsigned long long)name);
}

static void print_launch(at_trace *t, const at_msg_launch *m, at_strbuf *b) {
  const at_msg_arg *args = (const void *)(m + 1);
  for (uint32_t o = 0; o < m->num_outputs; o++) {
    if (o) at_strbuf_addz(b, ", ");
    print_name(t, m->outputs + o, b);
  }
  at_strbuf_addf(b, "%scompute @%llu(", m->num_outputs ? " = " : "",
                 (unsigned long long)m->program);
  for (uint32_t i = 0; i < m->num_args; i++) {
    if (i) at_strbuf_addz(b, ", ");
    print_name(t, args[i].array, b);
    if (args[i].first) at_strbuf_addf(b, "[%u:]", args[i].first);
    if (args[i].flags & AT_MSG_DONATED) at_strbuf_addz(b, " donated");
  }
  at_strbuf_addc(b, ')');
}

static void print_step(at_trace *t, const step *s, at_strbuf *b) {
  at_strbuf_addz(b, "  ");
  if (s->kind == AT_MSG_LAUNCH) {
    print_launch(t, (const void *)s->body, b);
  } else if (s->kind == AT_MSG_COPY) {
    const at_msg_copy *m = (const void *)s->body;
    print_name(t, m->array, b);
    at_strbuf_addz(b, " = copy ");
    print_name(t, m->from.array, b);
    at_strbuf_addf(b, "[%u] from chip %u to chip %u", m->from.shard,
                   m->from.chip, m->chip);
  } else {
    const at_msg_group *m = (const void *)s->body;
    const at_msg_shard *x = (const void *)(m + 1);
    print_name(t, m->array, b);
    at_strbuf_addz(b, " = group(");
    for (uint64_t i = 0; i < m->count; i++) {
      if (i) at_strbuf_addz(b, ", ");
      print_name(t, x[i].array, b);
      at_strbuf_addf(b, "[%u]", x[i].shard);
    }
    at_strbuf_addc(b, ')');
  }
  at_strbuf_addc(b, '\n');
}

static void print_graph(at_trace *t, at_strbuf *b) {
  at_strbuf_addf(b, "program(%u arguments) {\n", t->num_inputs);
  for (uint32_t i = 0; i < t->num_steps; i++) print_step(t, &t->steps[i], b);
  at_strbuf_addz(b, "  return");
  for (uint32_t k = 0; k < t->num_made; k++)
    if (t->made[k].kept) at_strbuf_addf(b, " %%%u", k);
  at_strbuf_addz(b, "\n}\n");
}

static at_status make_traced(at_trace *t, at_traced **out) {
  at_traced *g = calloc(1, sizeof *g);
  at_strbuf body = {0};
  if (!g) return no_memory();
  g->client = t->client;
  g->name = t->client->face.names(t->client, 1);
  g->num_arrays = t->num_arrays;
  g->num_inputs = t->num_inputs;
  g->num_hosts = t->num_hosts;
  g->host_bytes = calloc(t->num_hosts + 1, sizeof *g->host_bytes);
  for (uint32_t h = 0; g->host_bytes && h < t->num_hosts; h++)
    g->host_bytes[h] = t->hosts[h].len;
  g->num_made = t->num_made;
  g->replaced = atomic_load(&t->client->replaced);
  print_graph(t, &g->text);
  at_status st = g->host_bytes ? write_graph(t, g->name, &body) : no_memory();
  const at_bytes part = {(const uint8_t *)body.ptr, body.len};
  if (!st.err) st = at_client_say(t->client, AT_MSG_GRAPH, &part, 1);
  at_strbuf_free(&body);
  if (st.err) {
    at_strbuf_free(&g->text);
    free(g->host_bytes);
    free(g);
    return st;
  }
  g->donated = t->donated;
  g->uploads = t->uploads;
  t->uploads = (uploads){0};
  g->arrays = t->arrays;
  g->programs = t->programs;
  t->donated = NULL;
  t->arrays = t->programs = (pins){0};
  *out = g;
  return AT_OK;
}

at_status at_trace_end(at_trace *t, const uint64_t *results, uint32_t count,
                       at_trace_result *out_results, at_traced **out) {
  current = NULL;
  at_status st = t->why;
  t->why = AT_OK;
  for (uint32_t i = 0; !st.err && i < count; i++)
    out_results[i] = result_of(t, results[i]);
  if (!st.err) st = make_traced(t, out);
  at_trace_abandon(t);
  return st;
}

// ---- Runs
uint32_t at_traced_inputs(const at_traced *g) { return g->num_arrays; }
bool at_traced_donates(const at_traced *g, uint32_t input) {
  return g->donated[input];
}
void at_traced_print(const at_traced *g, at_strbuf *out) {
  at_strbuf_add(out, at_strbuf_str(&g->text));
}

static at_status check_hosts(const at_traced *g, const at_bytes *hosts) {
  for (uint32_t h = 0; h < g->num_hosts; h++)
    if (hosts[h].len != g->host_bytes[h])
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "argument %u of the host has %zu bytes, not %llu", h,
                     hosts[h].len, (unsigned long long)g->host_bytes[h]);
  return AT_OK;
}

// Names of the inputs that this run makes; *made: how many are.
static at_status upload_all(at_traced *g, const at_bytes *hosts, uint64_t name,
                            uint64_t *names, uint32_t *made) {
  const at_proxy *p = &g->client->face;
  for (uint32_t i = 0; i < g->uploads.count; i++) {
    const upload *u = &g->uploads.list[i];
    at_proxy_spec spec = u->spec;
    at_bytes data = {hosts[u->host].ptr + u->offset, u->bytes};
    spec.array = names[i] = name + i;
    spec.dims.ptr = u->dims;
    AT_TRY(p->create(p->arg, &spec, &data));
    *made = i + 1;
  }
  return AT_OK;
}

static at_status run(at_traced *g, const uint64_t *inputs,
                     const uint64_t *uploads, uint64_t first) {
  at_msg_run m = {
      .graph = g->name, .first = first, .num_inputs = g->num_inputs};
  const at_bytes parts[] = {
      {(const uint8_t *)&m, sizeof m},
      {(const uint8_t *)inputs, g->num_arrays * sizeof *inputs},
      {(const uint8_t *)uploads, g->uploads.count * sizeof *uploads}};
  if (!at_spans_on()) return at_client_say(g->client, AT_MSG_RUN, parts, 3);
  uint64_t begin = at_clock_ns();
  at_status st = at_client_say(g->client, AT_MSG_RUN, parts, 3);
  at_client_record_launch(g->client, begin, first);
  return st;
}

at_status at_traced_run(at_traced *g, const uint64_t *inputs,
                        const at_bytes *hosts, uint64_t *first) {
  at_client *c = g->client;
  uint32_t n = g->uploads.count, made = 0;
  if (g->replaced != atomic_load(&c->replaced))
    return AT_FAIL(AT_FAILED_PRECONDITION, "hosts were replaced since");
  AT_TRY(check_hosts(g, hosts));
  uint64_t *names = malloc((n + 1) * sizeof *names);
  if (!names) return no_memory();
  *first = c->face.names(c, g->num_made + n);
  at_status st = upload_all(g, hosts, *first + g->num_made, names, &made);
  if (!st.err) st = run(g, inputs, names, *first);
  for (uint32_t i = 0; i < made; i++) at_client_drop(c, names[i]);
  free(names);
  return st;
}

void at_traced_free(at_traced *g) {
  if (!g) return;
  at_client *c = g->client;
  at_msg_forget m = {g->name};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  at_status_free(at_client_say(c, AT_MSG_FORGET, &part, 1));
  unpin(c, &c->pinned_arrays, &g->arrays, at_client_drop);
  unpin(c, &c->pinned_programs, &g->programs, at_client_unload);
  at_strbuf_free(&g->text);
  free(g->donated);
  free(g->host_bytes);
  free(g->uploads.list);
  free(g);
}
