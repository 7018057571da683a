// What the controller asks of hosts, and waits for.
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"

// Of all hosts, for one operation.
enum { kResults = 1 << 30, kMost = 4096 };

// ---- To hosts and clients
// The tag of the wire is the client's number. Hosts that are away are left out;
// who needs to know asks at_hosts_still_there before.
void at_hosts_tell(at_controller *c, const host_set *to, uint64_t client,
                   uint32_t kind, const at_bytes *parts, uint32_t n) {
  for (uint32_t i = 0; i < to->count; i++)
    if (!at_peer_is_away(c->hosts[to->hosts[i]]))
      at_outbox_send(c->hosts[to->hosts[i]]->outbox,
                     &(at_outbox_post){.lane = AT_WIRE_BULK,
                                       .message = {kind, client, n, parts}});
}

// head and rest are what was asked for; with an error its text goes instead.
void at_client_answer(const peer *p, uint64_t tag, at_status st, at_bytes head,
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

void at_client_refuse(const peer *p, uint64_t tag, at_status st) {
  at_client_answer(p, tag, st, (at_bytes){0}, (at_bytes){0});
}

// The union of the hosts of all arrays, ascending, without doubles.
at_status at_arrays_hosts(peer *p, const uint64_t *arrays, uint32_t n,
                          host_set **out) {
  at_controller *c = p->controller;
  bool has[AT_SESSION_MOST] = {0};
  uint32_t hosts[AT_SESSION_MOST], count = 0;
  for (uint32_t i = 0; i < n; i++) {
    const host_set *s = at_table_find(&p->arrays, arrays[i]);
    if (!s)
      return AT_FAIL(AT_INVALID_ARGUMENT, "there is no array %llu",
                     (unsigned long long)arrays[i]);
    for (uint32_t k = 0; k < s->count; k++) {
      AT_ASSERT(s->hosts[k] < c->num_hosts);
      has[s->hosts[k]] = true;
    }
  }
  for (uint32_t h = 0; h < c->num_hosts; h++)
    if (has[h]) hosts[count++] = h;
  *out = at_hosts_intern(c, hosts, count);
  return *out ? AT_OK
              : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a message");
}

// ---- Life
// x->waits has room for all of `hosts`; at_operation_again must not name more.
operation *at_operation_begin(peer *p, uint64_t tag, host_set *hosts,
                              void (*over)(operation *x), void *what) {
  at_controller *c = p->controller;
  operation *x = c->under_way < kMost
                     ? calloc(1, sizeof *x + hosts->count * sizeof *x->waits)
                     : NULL;
  if (!x) return NULL;
  *x = (operation){.controller = c,
                   .number = ++c->num_operations,
                   .tag = tag,
                   .asker = p,
                   .over = over,
                   .what = what,
                   .hosts = hosts};
  at_operation_again(x, hosts->hosts, hosts->count);
  return x;
}

// It goes to the front of the list, so walks over the list that call `over` do
// not meet it again.
void at_operation_again(operation *x, const uint32_t *hosts, uint32_t n) {
  AT_ASSERT(n && n <= x->hosts->count);  // room, and somebody ends it
  x->left = n;
  memcpy(x->waits, hosts, n * sizeof *hosts);
  x->next = x->controller->operations;
  x->controller->operations = x;
  x->controller->under_way++;
}

void at_operation_free(operation *x) {
  at_status_free(x->why);
  at_strbuf_free(&x->results);
  free(x);
}

// Consumes st.
static void one_less(operation *x, uint32_t host, at_status st) {
  uint32_t i = 0;
  while (i < x->left && x->waits[i] != host) i++;
  if (i == x->left) return at_status_free(st);
  x->waits[i] = x->waits[--x->left];
  x->why = at_status_join(x->why, st);
  if (x->left) return;
  AT_ASSERT(x->controller->under_way);
  operation **at = &x->controller->operations;
  while (*at != x) at = &(*at)->next;
  *at = x->next;
  x->controller->under_way--;
  x->over(x);
}

// Results are put one behind the other, whichever host is first.
void at_operation_acted(const peer *host, uint64_t number, at_bytes body) {
  const at_msg_answer *m = (const void *)body.ptr;
  at_bytes rest = at_message_tail(body, sizeof *m);
  operation *x = host->controller->operations;
  while (x && x->number != number) x = x->next;
  if (!x || !host->session || host->replaced) return;
  // What a host says is bounded, and an error of it ends the operation like any
  // other.
  at_status st = m->code ? at_message_error(m->code, rest) : AT_OK;
  if (!st.err && rest.len > kResults - x->results.len)
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "hosts say more than %u bytes",
                 (unsigned)kResults);
  if (!st.err)
    at_strbuf_add(&x->results, (at_str){(const char *)rest.ptr, rest.len});
  if (!st.err) st = at_strbuf_status(&x->results);
  one_less(x, host->number, st);
}

// What is over may begin others, at the front of the list.
void at_operations_lose(at_controller *c, uint32_t host) {
  for (operation *x = c->operations, *next; x; x = next) {
    next = x->next;
    one_less(x, host,
             AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost", host));
  }
}

// Hosts go on; their answers then reach nobody.
void at_operations_leave(const peer *client) {
  for (operation *x = client->controller->operations; x; x = x->next)
    if (x->asker == client) x->asker = NULL;
}

// `over` must not begin again here: at_controller.closes tells it.
void at_operations_end(at_controller *c) {
  for (operation *x; (x = c->operations);) {
    c->operations = x->next;
    c->under_way--;
    at_status_free(x->why);
    x->why = AT_FAIL(AT_CANCELLED, "the pod ends");
    x->asker = NULL;
    x->over(x);
  }
  AT_ASSERT(!c->under_way);
}
