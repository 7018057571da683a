// The controller's named objects: which arrays of which hosts a name stands
// for. Hosts have them under the controller's numbers; what hosts are asked to
// do is an operation, which is over when all of them have said so.
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"

// Limits for the whole pod, so that clients cannot fill the controller's
// memory: objects, and bytes that clients leave with them.
enum { kObjects = 1 << 16, kAbout = 256 << 20 };

// Its texts lie behind it in one block. pid, client and owner: who put it, for
// people.
typedef struct object {
  struct object *next;
  uint64_t number, client, epoch, bytes;
  uint32_t pid, num_arrays;
  host_set *hosts;
  at_str name, label, owner;
  at_bytes about;
  char texts[];
} object;

// at_operation_begin fails for two reasons, and does not say which.
static at_status no_memory(void) {
  return AT_FAIL(
      AT_RESOURCE_EXHAUSTED,
      "the pod's controller has no memory, or too much to do at once");
}

// ---- Objects
// o is in no list any more. Its hosts drop the arrays; those that are away have
// dropped them, or will not come back with them.
static void forget(at_controller *c, object *o) {
  const at_msg_named m = {.object = o->number};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  at_hosts_tell(c, o->hosts, 0, AT_MSG_DISCARD, &part, 1);
  c->about_bytes -= o->about.len;
  free(o);
}

// By its name, of any client; NULL: there is none.
static object *find(const at_controller *c, at_str name) {
  object *o = c->objects;
  while (o && !at_str_eq(o->name, name)) o = o->next;
  return o;
}

// Out of the list, and out of what its hosts are counted to hold.
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

// The status of a name that nobody has kept.
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

// Appends to the texts behind an object.
static at_str copy_text(char **to, const void *from, size_t n) {
  memcpy(*to, from, n);
  at_str s = {*to, n};
  *to += n;
  return s;
}

// Copies what the client says of it. It has no number and is in no list yet.
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
  *o = (object){.client = p->client,
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

// ---- What clients say
// All hosts have their copies, or one has not.
static void kept(operation *x) {
  at_controller *c = x->controller;
  object *o = x->what;
  if (x->why.err) {
    forget(c, o);
  } else {
    object *old = take(c, o->name);
    if (old) forget(c, old);
    o->next = c->objects;
    c->objects = o;
    o->hosts->arrays += o->num_arrays;
    c->num_objects++;
  }
  at_client_refuse(x->asker, x->tag, x->why);
  x->why = AT_OK;
  at_operation_free(x);
}

// What hosts cannot do is answered; what a client cannot say is returned.
static at_status keeps(peer *p, const at_msg_keep *m) {
  at_controller *c = p->controller;
  const uint64_t *arrays = (const void *)(m + 1);
  host_set *hosts;
  uint32_t refused = 0;
  object *o = NULL;
  AT_TRY(at_arrays_hosts(p, arrays, m->num_arrays, &hosts));
  at_status st = AT_OK;
  if (!at_hosts_still_there(c, hosts, c->epoch, &refused)) st = no_memory();
  if (refused)
    st = AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost", refused - 1);
  if (!st.err) st = make_object(p, m, hosts, &o);
  operation *x = st.err ? NULL : at_operation_begin(p, m->tag, hosts, kept, o);
  if (!st.err && !x) {
    forget(c, o);
    st = no_memory();
  }
  if (st.err) return at_client_refuse(p, m->tag, st), AT_OK;
  o->number = x->number;
  // Hosts need the arrays and the number alone.
  const at_msg_keep to = {.object = x->number,
                          .num_arrays = m->num_arrays,
                          .flags = m->flags,
                          .name_bytes = 1};
  const at_bytes parts[] = {
      {(const uint8_t *)&to, sizeof to},
      {(const uint8_t *)arrays, m->num_arrays * sizeof *arrays},
      {(const uint8_t *)".", 1}};
  at_hosts_tell(c, hosts, p->client, AT_MSG_KEEP, parts, 3);
  return AT_OK;
}

// The client has the arrays at once: hosts hear of it in the stream's order,
// behind what they have copied. A lost host makes the whole object useless.
static at_status fetches(peer *p, const at_msg_named *m, at_str name) {
  at_controller *c = p->controller;
  object *o = find(c, name);
  if (!o) return at_client_refuse(p, m->tag, not_found(name)), AT_OK;
  uint32_t lost = lost_host(c, o);
  if (lost != UINT32_MAX)
    return at_client_refuse(
               p, m->tag,
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
  at_hosts_tell(c, o->hosts, p->client, AT_MSG_FETCH, &part, 1);
  const at_msg_fetched is = {o->num_arrays};
  at_client_answer(p, m->tag, AT_OK,
                   (at_bytes){(const uint8_t *)&is, sizeof is}, o->about);
  if (m->flags & AT_MSG_FETCH_TAKES) forget(c, take(c, name));
  return AT_OK;
}

// OBJECTS: the answer is JSON.
static void list(const peer *p, uint64_t tag) {
  at_strbuf text = {0};
  at_json_writer w = {.out = &text};
  at_json_begin_object(&w);
  at_named_print(p->controller, &w);
  at_json_end_object(&w);
  at_client_answer(p, tag, at_strbuf_status(&text), (at_bytes){0},
                   (at_bytes){(const uint8_t *)text.ptr, text.len});
  at_strbuf_free(&text);
}

// The kinds that at_named_says takes.
bool at_named_is(uint32_t kind) {
  return kind == AT_MSG_KEEP || kind == AT_MSG_FETCH ||
         kind == AT_MSG_DISCARD || kind == AT_MSG_OBJECTS;
}

// KEEP, FETCH, OBJECTS or DISCARD.
at_status at_named_says(peer *p, uint32_t kind, const void *body) {
  if (kind == AT_MSG_KEEP) return keeps(p, body);
  const at_msg_named *m = body;
  at_str name = {(const char *)(m + 1), m->name_bytes};
  if (kind == AT_MSG_FETCH) return fetches(p, m, name);
  if (kind == AT_MSG_OBJECTS)
    list(p, m->tag);
  else
    at_client_refuse(p, m->tag, at_named_erase(p->controller, name));
  return AT_OK;
}

// A tool may, whoever has made the object.
at_status at_named_erase(at_controller *c, at_str name) {
  object *o = take(c, name);
  if (!o) return not_found(name);
  forget(c, o);
  return AT_OK;
}

// ---- For people
void at_named_print(const at_controller *c, at_json_writer *w) {
  at_json_key(w, AT_STR("objects"));
  at_json_begin_array(w);
  for (const object *o = c->objects; o; o = o->next) {
    uint32_t lost = lost_host((at_controller *)c, o);
    at_json_begin_object(w);
    at_json_put_str(w, "name", o->name);
    at_json_put_str(w, "label", o->label);
    at_json_put_str(w, "owner", o->owner);
    at_json_put_uint(w, "client", o->client);
    at_json_put_uint(w, "pid", o->pid);
    at_json_put_uint(w, "arrays", o->num_arrays);
    at_json_put_uint(w, "bytes", o->bytes);
    at_json_put_uint(w, "hosts", o->hosts->count);
    at_json_put_str(w, "state",
                    lost == UINT32_MAX ? AT_STR("there") : AT_STR("lost"));
    if (lost != UINT32_MAX) at_json_put_uint(w, "lost_host", lost);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

// Hosts end as well, so nobody is told.
void at_named_free(at_controller *c) {
  for (object *o; (o = c->objects);) {
    c->objects = o->next;
    free(o);
  }
}
