// The controller's named objects: which arrays of which hosts a name stands
// for. Hosts have them under the controller's numbers; what hosts are asked to
// do is an operation, which is over when all of them have said so.
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"

enum { kObjects = 1 << 16, kAbout = 256 << 20 };

typedef struct object {
  struct object *next;
  uint64_t number, client, epoch, bytes;
  uint32_t pid, num_arrays;
  host_set *hosts;
  at_str name, label, owner;
  at_bytes about;
  char texts[];
} object;

typedef struct operation {
  struct operation *next;
  uint64_t number, tag;
  const peer *asker;  // NULL: it is gone
  object *object;     // to be kept
  at_status why;      // the first error
  uint32_t left;
  uint32_t hosts[];  // [left] that have not answered
} operation;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory on the pod's controller");
}

// ---- To hosts and clients
static void tell(at_controller *c, const host_set *to, uint64_t client,
                 uint32_t kind, const at_bytes *parts, uint32_t n) {
  for (uint32_t i = 0; i < to->count; i++)
    if (!at_peer_is_away(c->hosts[to->hosts[i]]))
      at_outbox_send(c->hosts[to->hosts[i]]->outbox,
                     &(at_outbox_post){.lane = AT_WIRE_BULK,
                                       .message = {kind, client, n, parts}});
}

// Consumes st. p NULL: nobody waits for it.
static void answer(const peer *p, uint64_t tag, at_status st, at_bytes head,
                   at_bytes rest) {
  at_msg_answer m = {.code = (uint64_t)at_status_code(st)};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            st.err ? at_message_text(st) : head,
                            st.err ? (at_bytes){0} : rest};
  if (p)
    at_outbox_send(p->outbox, &(at_outbox_post){
                                  .lane = AT_WIRE_BULK,
                                  .message = {AT_MSG_ANSWER, tag, 3, parts}});
  at_status_free(st);
}

static void refuse(const peer *p, uint64_t tag, at_status st) {
  answer(p, tag, st, (at_bytes){0}, (at_bytes){0});
}

// ---- Objects
static void forget(at_controller *c, object *o) {
  const at_msg_named m = {.object = o->number};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  tell(c, o->hosts, 0, AT_MSG_DISCARD, &part, 1);
  c->about_bytes -= o->about.len;
  free(o);
}

static object *find(const at_controller *c, at_str name) {
  object *o = c->objects;
  while (o && !at_str_eq(o->name, name)) o = o->next;
  return o;
}

static object *take(at_controller *c, at_str name) {
  object **at = &c->objects;
  while (*at && !at_str_eq((*at)->name, name)) at = &(*at)->next;
  object *o = *at;
  if (!o) return NULL;
  *at = o->next;
  o->hosts->arrays -= o->num_arrays;
  c->num_objects--;
  return o;
}

static at_status not_found(at_str name) {
  return AT_FAIL(AT_NOT_FOUND, "the pod has no object %.*s", (int)name.len,
                 name.ptr);
}

// A host that was lost, or UINT32_MAX.
static uint32_t lost_host(at_controller *c, const object *o) {
  for (uint32_t i = 0; i < o->hosts->count; i++) {
    const peer *h = c->hosts[o->hosts->hosts[i]];
    if (at_peer_is_away(h) || h->joined > o->epoch) return h->number;
  }
  return UINT32_MAX;
}

static at_str copy_text(char **to, const void *from, size_t n) {
  memcpy(*to, from, n);
  at_str s = {*to, n};
  *to += n;
  return s;
}

static at_status make_object(const peer *p, const at_msg_keep *m,
                             host_set *hosts, object **out) {
  at_controller *c = p->controller;
  const char *texts = (const char *)((const uint64_t *)(m + 1) + m->num_arrays);
  size_t owner = strlen(p->hello.name);
  if (c->num_objects >= kObjects || m->about_bytes > kAbout - c->about_bytes)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED,
                   "the pod has %u objects, about which %llu bytes are said",
                   c->num_objects, (unsigned long long)c->about_bytes);
  object *o = malloc(sizeof *o + m->name_bytes + m->label_bytes + owner +
                     m->about_bytes);
  if (!o) return no_memory();
  *o = (object){.number = ++c->num_operations,
                .client = p->client,
                .pid = p->hello.pid,
                .epoch = c->epoch,
                .bytes = m->bytes,
                .num_arrays = m->num_arrays,
                .hosts = hosts};
  char *to = o->texts;
  o->name = copy_text(&to, texts, m->name_bytes);
  o->label = copy_text(&to, texts + m->name_bytes, m->label_bytes);
  o->owner = copy_text(&to, p->hello.name, owner);
  at_str about =
      copy_text(&to, texts + m->name_bytes + m->label_bytes, m->about_bytes);
  o->about = (at_bytes){(const uint8_t *)about.ptr, about.len};
  c->about_bytes += o->about.len;
  *out = o;
  return AT_OK;
}

// ---- Operations
// All hosts have answered.
static void end(at_controller *c, operation *x) {
  operation **at = &c->operations;
  while (*at != x) at = &(*at)->next;
  *at = x->next;
  if (x->why.err) {
    forget(c, x->object);
  } else {
    object *old = take(c, x->object->name);
    if (old) forget(c, old);
    x->object->next = c->objects;
    c->objects = x->object;
    x->object->hosts->arrays += x->object->num_arrays;
    c->num_objects++;
  }
  refuse(x->asker, x->tag, x->why);
  free(x);
}

// Consumes st. Was it over with that?
static bool one_less(at_controller *c, operation *x, uint32_t host,
                     at_status st) {
  uint32_t i = 0;
  while (i < x->left && x->hosts[i] != host) i++;
  if (i == x->left) return at_status_free(st), false;
  x->hosts[i] = x->hosts[--x->left];
  x->why = at_status_join(x->why, st);
  if (x->left) return false;
  end(c, x);
  return true;
}

void at_named_acted(const peer *host, uint64_t number, at_bytes body) {
  at_controller *c = host->controller;
  const at_msg_answer *m = (const void *)body.ptr;
  operation *x = c->operations;
  while (x && x->number != number) x = x->next;
  if (!x || !host->session || host->replaced) return;
  one_less(c, x, host->number,
           m->code ? at_message_error(m->code, at_message_tail(body, sizeof *m))
                   : AT_OK);
}

void at_named_host_lost(at_controller *c, uint32_t host) {
  for (operation *x = c->operations, *next; x; x = next) {
    next = x->next;
    one_less(c, x, host,
             AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost", host));
  }
}

void at_named_client_left(const peer *p) {
  for (operation *x = p->controller->operations; x; x = x->next)
    if (x->asker == p) x->asker = NULL;
}

// ---- What clients say
static at_status hosts_of(peer *p, const uint64_t *arrays, uint32_t n,
                          host_set **out) {
  at_controller *c = p->controller;
  bool has[AT_SESSION_MOST] = {0};
  uint32_t hosts[AT_SESSION_MOST], count = 0;
  for (uint32_t i = 0; i < n; i++) {
    const host_set *s = at_table_find(&p->arrays, arrays[i]);
    if (!s)
      return AT_FAIL(AT_INVALID_ARGUMENT, "there is no array %llu",
                     (unsigned long long)arrays[i]);
    for (uint32_t k = 0; k < s->count; k++) has[s->hosts[k]] = true;
  }
  for (uint32_t h = 0; h < c->num_hosts; h++)
    if (has[h]) hosts[count++] = h;
  *out = at_hosts_intern(c, hosts, count);
  return AT_OK;
}

// What hosts cannot do is answered; what a client cannot say is returned.
static at_status keeps(peer *p, const at_msg_keep *m) {
  at_controller *c = p->controller;
  const uint64_t *arrays = (const void *)(m + 1);
  host_set *hosts;
  uint32_t refused = 0;
  AT_TRY(hosts_of(p, arrays, m->num_arrays, &hosts));
  operation *x =
      hosts ? calloc(1, sizeof *x + hosts->count * sizeof *x->hosts) : NULL;
  if (!x) return refuse(p, m->tag, no_memory()), AT_OK;
  at_status st = AT_OK;
  if (!at_hosts_still_there(c, hosts, c->epoch, &refused)) st = no_memory();
  if (refused)
    st = AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost", refused - 1);
  if (!st.err) st = make_object(p, m, hosts, &x->object);
  if (st.err) return free(x), refuse(p, m->tag, st), AT_OK;
  x->number = x->object->number;
  x->tag = m->tag;
  x->asker = p;
  x->left = hosts->count;
  memcpy(x->hosts, hosts->hosts, hosts->count * sizeof *hosts->hosts);
  x->next = c->operations;
  c->operations = x;
  // Hosts need the arrays and the number alone.
  const at_msg_keep to = {.object = x->number,
                          .num_arrays = m->num_arrays,
                          .flags = m->flags,
                          .name_bytes = 1};
  const at_bytes parts[] = {
      {(const uint8_t *)&to, sizeof to},
      {(const uint8_t *)arrays, m->num_arrays * sizeof *arrays},
      {(const uint8_t *)".", 1}};
  tell(c, hosts, p->client, AT_MSG_KEEP, parts, 3);
  return AT_OK;
}

static at_status fetches(peer *p, const at_msg_named *m, at_str name) {
  at_controller *c = p->controller;
  object *o = find(c, name);
  if (!o) return refuse(p, m->tag, not_found(name)), AT_OK;
  uint32_t lost = lost_host(c, o);
  if (lost != UINT32_MAX)
    return refuse(p, m->tag,
                  AT_FAIL(AT_DATA_LOSS,
                          "host %u is lost, and with it a part of the object "
                          "%.*s\nhint: it can be deleted, or put once more",
                          lost, (int)name.len, name.ptr)),
           AT_OK;
  for (uint32_t i = 0; i < o->num_arrays; i++)
    AT_TRY(at_client_adds(p, m->first + i, o->hosts));
  const at_msg_named to = {
      .object = o->number, .first = m->first, .flags = m->flags};
  const at_bytes part = {(const uint8_t *)&to, sizeof to};
  tell(c, o->hosts, p->client, AT_MSG_FETCH, &part, 1);
  const at_msg_fetched is = {o->num_arrays};
  answer(p, m->tag, AT_OK, (at_bytes){(const uint8_t *)&is, sizeof is},
         o->about);
  if (m->flags & AT_MSG_FETCH_TAKES) forget(c, take(c, name));
  return AT_OK;
}

static void list(const peer *p, uint64_t tag) {
  at_strbuf text = {0};
  at_json_writer w = {.out = &text};
  at_json_begin_object(&w);
  at_named_print(p->controller, &w);
  at_json_end_object(&w);
  answer(p, tag, at_strbuf_status(&text), (at_bytes){0},
         (at_bytes){(const uint8_t *)text.ptr, text.len});
  at_strbuf_free(&text);
}

bool at_named_is(uint32_t kind) {
  return kind == AT_MSG_KEEP || kind == AT_MSG_FETCH ||
         kind == AT_MSG_DISCARD || kind == AT_MSG_OBJECTS;
}

at_status at_named_says(peer *p, uint32_t kind, const void *body) {
  if (kind == AT_MSG_KEEP) return keeps(p, body);
  const at_msg_named *m = body;
  at_str name = {(const char *)(m + 1), m->name_bytes};
  if (kind == AT_MSG_FETCH) return fetches(p, m, name);
  if (kind == AT_MSG_OBJECTS)
    list(p, m->tag);
  else
    refuse(p, m->tag, at_named_erase(p->controller, name));
  return AT_OK;
}

at_status at_named_erase(at_controller *c, at_str name) {
  object *o = take(c, name);
  if (!o) return not_found(name);
  forget(c, o);
  return AT_OK;
}

// ---- For people
static void put(at_json_writer *w, const char *key, at_str value) {
  at_json_key(w, at_str_of(key));
  at_json_str(w, value);
}

static void put_number(at_json_writer *w, const char *key, uint64_t value) {
  at_json_key(w, at_str_of(key));
  at_json_uint(w, value);
}

void at_named_print(const at_controller *c, at_json_writer *w) {
  at_json_key(w, AT_STR("objects"));
  at_json_begin_array(w);
  for (const object *o = c->objects; o; o = o->next) {
    uint32_t lost = lost_host((at_controller *)c, o);
    at_json_begin_object(w);
    put(w, "name", o->name);
    put(w, "label", o->label);
    put(w, "owner", o->owner);
    put_number(w, "client", o->client);
    put_number(w, "pid", o->pid);
    put_number(w, "arrays", o->num_arrays);
    put_number(w, "bytes", o->bytes);
    put_number(w, "hosts", o->hosts->count);
    put(w, "state", lost == UINT32_MAX ? AT_STR("there") : AT_STR("lost"));
    if (lost != UINT32_MAX) put_number(w, "lost_host", lost);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

void at_named_free(at_controller *c) {
  for (operation *x; (x = c->operations);) {
    c->operations = x->next;
    at_status_free(x->why);
    free(x->object);
    free(x);
  }
  for (object *o; (o = c->objects);) {
    c->objects = o->next;
    free(o);
  }
}
