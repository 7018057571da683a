// Named objects on a host: arrays under numbers of the controller, which no
// client has. The stream's thread alone looks at them.
#include <stdlib.h>

#include "base/log.h"
#include "control/host_internal.h"

typedef struct object {
  uint64_t number;
  uint32_t count;
  array *arrays[];
} object;

// An object whose arrays are not all defined yet.
typedef struct keeping {
  host *host;
  uint64_t number;
  _Atomic uint32_t left;
  pthread_mutex_t lock;
  at_status why;  // the first error
} keeping;

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory on a host of the pod");
}

// Arrays that a failed KEEP has not made are NULL.
static void free_object(object *o) {
  for (uint32_t i = 0; i < o->count; i++)
    if (o->arrays[i]) at_array_free(o->arrays[i]);
  free(o);
}

// Consumes s.
static void one_less(at_status s, void *arg) {
  keeping *k = arg;
  if (s.err) {
    pthread_mutex_lock(&k->lock);
    k->why = at_status_join(k->why, s);
    pthread_mutex_unlock(&k->lock);
  }
  if (atomic_fetch_sub(&k->left, 1) != 1) return;
  at_host_acted(k->host, k->number, k->why, (at_bytes){0});
  at_status_free(k->why);
  pthread_mutex_destroy(&k->lock);
  free(k);
}

// k hears when the buffer is defined.
static void watch(keeping *k, at_buffer *b) {
  if (!k) return;
  atomic_fetch_add(&k->left, 1);
  at_status st = at_event_on(at_buffer_ready(b), one_less, k);
  if (st.err) one_less(st, k);
}

// A shard without a buffer counts as failed at once. Borrows why.
static void note(keeping *k, at_status why) {
  if (!k) return;
  atomic_fetch_add(&k->left, 1);
  one_less(at_status_clone(why), k);
}

// The same shards once more: copies, so that whoever donates his changes no
// other; or (moves) his own. k: hears when they are defined; or NULL.
static array *again(uint64_t name, const array *from, bool moves, keeping *k) {
  array *a = at_array_make(name, from->count);
  if (!a) return NULL;
  if (from->why.err) a->why = at_status_clone(from->why);
  for (uint32_t i = 0; i < from->count; i++) {
    at_buffer *b = from->here[i].buffer, *copy = NULL;
    at_status st = AT_OK;
    if (b && moves)
      copy = at_buffer_retain(b);
    else if (b)
      st = at_buffer_copy_to(b, at_buffer_chip(b), at_buffer_memory(b), &copy);
    a->here[i] = (piece){from->here[i].shard, copy};
    if (st.err && a->why.err)
      at_status_free(st);
    else if (st.err)
      a->why = st;
    if (copy)
      watch(k, copy);
    else
      note(k, a->why);
  }
  return a;
}

// Of one that is not on this host, or not any more.
static array *absent(const tenant *t, uint64_t name) {
  array *a = at_array_make(name, 0);
  if (!a) return NULL;
  a->why =
      t->host->born > 1
          ? AT_FAIL(AT_DATA_LOSS,
                    "an array of an object was lost with "
                    "the process that was host %u",
                    t->host->me)
          : AT_FAIL(AT_INVALID_ARGUMENT,
                    "an array of an object is not on host %u", t->host->me);
  return a;
}

// Each array is copied now, in the stream's order, whatever happens to the
// client's own afterwards. An array that is missing on this host becomes one
// without shards.
void at_named_keep(tenant *t, at_bytes body) {
  const at_msg_keep *m = (const void *)body.ptr;
  const uint64_t *names = (const void *)(m + 1);
  host *h = t->host;
  keeping *k = calloc(1, sizeof *k);
  object *o = calloc(1, sizeof *o + m->num_arrays * sizeof *o->arrays);
  if (!k || !o || !m->object) {
    free(k);
    free(o);
    at_status st = no_memory();
    at_host_acted(h, m->object, st, (at_bytes){0});
    return at_status_free(st);
  }
  *k = (keeping){.host = h, .number = m->object};
  pthread_mutex_init(&k->lock, NULL);
  atomic_init(&k->left, 1);
  o->number = m->object;
  o->count = m->num_arrays;
  at_status st = AT_OK;
  for (uint32_t i = 0; i < o->count && !st.err; i++) {
    const array *from = at_tenant_array(t, names[i]);
    o->arrays[i] = from ? again(i + 1, from, m->flags & AT_MSG_KEEP_MOVES, k)
                        : absent(t, i + 1);
    if (!o->arrays[i]) st = no_memory();
  }
  if (!st.err && at_table_find(&h->objects, o->number))
    st = AT_FAIL(AT_INTERNAL, "an object's number is used twice");
  if (!st.err && !at_table_put(&h->objects, o->number, o)) st = no_memory();
  if (st.err) free_object(o);
  one_less(st, k);
}

// Copies again, so that two clients may donate what they fetched; a fetch that
// takes hands over the object's own buffers.
void at_named_fetch(tenant *t, at_bytes body) {
  const at_msg_named *m = (const void *)body.ptr;
  object *o = at_table_find(&t->host->objects, m->object);
  bool takes = m->flags & AT_MSG_FETCH_TAKES;
  if (!o)
    return at_log(AT_LOG_ERROR, "client %llu: there is no object %llu here",
                  (unsigned long long)t->client, (unsigned long long)m->object);
  for (uint32_t i = 0; i < o->count; i++)
    at_stream_enter(t, again(m->first + i, o->arrays[i], takes, NULL));
  if (takes) at_named_discard(t->host, body);
}

// Unknown numbers are ignored: a KEEP that failed has left nothing.
void at_named_discard(host *h, at_bytes body) {
  object *o = at_table_take(
      &h->objects, ((const at_msg_named *)(const void *)body.ptr)->object);
  if (o) free_object(o);
}

// The process ends: whoever still fetches one gets nothing.
void at_named_close(host *h) {
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(&h->objects, &at));)
    free_object(s->value);
  at_table_free(&h->objects);
}
