// What one client has on a host.
#include <stdlib.h>

#include "control/host_internal.h"

// ---- Arrays
array *at_array_make(uint64_t name, uint32_t count) {
  array *a = calloc(1, sizeof *a + count * sizeof *a->here);
  if (!a) return NULL;
  a->name = name;
  a->count = count;
  return a;
}

// Buffers go with their last reference, which a launch may have.
void at_array_free(array *a) {
  for (uint32_t i = 0; i < a->count; i++) at_buffer_release(a->here[i].buffer);
  at_status_free(a->why);
  free(a);
}

array *at_tenant_array(tenant *t, uint64_t name) {
  return at_table_find(&t->arrays, name);
}

// The shards of an array are ascending by number.
const piece *at_array_piece(const array *a, uint32_t shard) {
  if (!a->count || shard < a->here[0].shard) return NULL;
  // Shards of one host mostly follow each other.
  uint32_t i = shard - a->here[0].shard;
  if (i < a->count && a->here[i].shard == shard) return &a->here[i];
  uint32_t low = 0, high = a->count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (a->here[middle].shard < shard)
      low = middle + 1;
    else
      high = middle;
  }
  return low < a->count && a->here[low].shard == shard ? &a->here[low] : NULL;
}

// ---- Programs
void at_program_free(program *p) {
  at_loaded_release(p->loaded);
  at_status_free(p->why);
  free(p->all);
  free(p->chips);
  free(p->devices);
  free(p);
}

void at_graph_free(graph *g) {
  free(g->body);
  free(g);
}

// ---- Tenants
// In the list of tenants, without users. NULL: no memory.
static tenant *make(host *h, uint64_t client) {
  tenant *t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->gone = at_event_create();
  at_status st = t->gone ? at_outbox_create(&t->outbox)
                         : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory");
  if (at_code_take(st)) return at_event_release(t->gone), free(t), NULL;
  t->host = h;
  t->client = client;
  t->next_tag = 1;
  t->next = h->tenants;
  return h->tenants = t;
}

// A linear list: a host has few clients.
tenant *at_tenant_find(host *h, uint64_t client, bool creates) {
  tenant *t = h->tenants;
  while (t && t->client != client) t = t->next;
  return t || !creates ? t : make(h, client);
}

// Frees every value, and the table.
static void free_all(at_table *t, void (*one)(void *)) {
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(t, &at));) one(s->value);
  at_table_free(t);
}
static void free_array(void *a) { at_array_free(a); }
static void free_program(void *p) { at_program_free(p); }
static void free_parked(void *p) { at_parked_free(p); }
static void free_graph(void *g) { at_graph_free(g); }

// Nobody uses it, and it has left: nobody finds it any more.
static void remove_tenant(tenant *t) {
  tenant **at = &t->host->tenants;
  while (*at != t) at = &(*at)->next;
  *at = t->next;
  at_outbox_free(t->outbox);
  at_event_release(t->gone);
  at_table_free(&t->pending);
  at_table_free(&t->filling);
  free(t);
}

void at_tenant_release(tenant *t) {
  if (!--t->users && t->left) remove_tenant(t);
}

// Fires `gone`: launches that have not begun are dropped by the runtime. Any
// thread.
void at_tenant_is_gone(host *h, uint64_t client) {
  pthread_mutex_lock(&h->lock);
  const tenant *t = at_tenant_find(h, client, false);
  at_event *gone = t ? at_event_retain(t->gone) : NULL;
  pthread_mutex_unlock(&h->lock);
  if (!gone) return;
  at_event_fire(gone, AT_OK);
  at_event_release(gone);
}

// The tables are taken out under the lock and freed without it, since freeing a
// buffer may run events. The tenant itself goes with its last user.
void at_tenant_leave(tenant *t) {
  host *h = t->host;
  pthread_mutex_lock(&h->lock);
  t->left = true;
  t->users++;
  at_table arrays = t->arrays, programs = t->programs, waiting = t->parked;
  at_table pending = t->pending, filling = t->filling;
  t->arrays = t->programs = t->parked = (at_table){0};
  t->pending = t->filling = (at_table){0};
  pthread_mutex_unlock(&h->lock);
  at_event_fire(t->gone, AT_OK);
  at_transfers_cancel(&pending);
  at_fillings_cancel(&filling, "its client is gone");
  at_outbox_stop(t->outbox);  // what it would say holds memory of arrays
  free_all(&waiting, free_parked);
  free_all(&arrays, free_array);
  free_all(&programs, free_program);
  free_all(&t->graphs, free_graph);
  pthread_mutex_lock(&h->lock);
  at_tenant_release(t);
  pthread_mutex_unlock(&h->lock);
}
