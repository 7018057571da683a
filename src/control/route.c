// Where a client's messages go: to the hosts of the arrays and programs that
// they name. All of it happens under one lock, so hosts hear of things that
// concern several of them in one order.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "control/controller_internal.h"

// A message on its way to hosts.
typedef struct letter {
  peer *from;
  at_wire_head head;
  uint8_t *body;
  _Atomic uint32_t left;  // hosts that have not taken it, and one
} letter;

// ---- Sets of hosts
static host_set *intern(at_controller *c, const uint32_t *hosts, uint32_t n) {
  for (host_set *s = c->sets; s; s = s->next)
    if (s->count == n && !memcmp(s->hosts, hosts, n * sizeof *hosts)) return s;
  host_set *s = malloc(sizeof *s + n * sizeof *hosts);
  if (!s) return NULL;
  s->count = n;
  memcpy(s->hosts, hosts, n * sizeof *hosts);
  s->next = c->sets;
  return c->sets = s;
}

// The hosts of chips that lie `step` numbers apart. NULL: no such chip, or no
// memory.
static host_set *set_of(at_controller *c, const uint32_t *chips, uint64_t n,
                        size_t step) {
  bool has[AT_SESSION_MOST] = {0};
  uint32_t hosts[AT_SESSION_MOST], count = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (chips[i * step] >= c->num_chips) return NULL;
    has[c->host_of[chips[i * step]]] = true;
  }
  for (uint32_t h = 0; h < c->num_hosts; h++)
    if (has[h]) hosts[count++] = h;
  return intern(c, hosts, count);
}

void at_client_sets_free(at_controller *c) {
  for (host_set *s; (s = c->sets);) {
    c->sets = s->next;
    free(s);
  }
}

// ---- Letters
static bool taken(letter *l) {
  if (atomic_fetch_sub(&l->left, 1) != 1) return false;
  free(l->body);
  return true;
}

// On a thread of an outbox, or below `route`.
static void sent(void *arg) {
  letter *l = arg;
  peer *p = l->from;
  at_wire_head head = l->head;
  if (!taken(l)) return;
  free(l);
  // Not under the lock: who has it may wait for this outbox.
  if (p->wire) at_wire_release(p->wire, 1, head.lane, head.bytes);
  atomic_fetch_sub(&p->letters, 1);
}

static void post(letter *l, at_controller *c, uint32_t host, uint64_t client) {
  peer *h = c->hosts[host];
  if (h->gone) return;
  const at_bytes part = {l->body, l->head.bytes};
  atomic_fetch_add(&l->left, 1);
  at_outbox_send(h->outbox,
                 &(at_outbox_post){.lane = AT_WIRE_BULK,
                                   .message = {l->head.kind, client, 1, &part},
                                   .sent = sent,
                                   .arg = l});
}

// Takes the body.
static bool route(peer *p, const at_wire_head *head, void *body,
                  const host_set *to) {
  letter *l = malloc(sizeof *l);
  if (!l) {
    free(body);
    at_log(AT_LOG_ERROR, "no memory for a client's message: it is cut off");
    return true;
  }
  *l = (letter){p, *head, body, 1};
  atomic_fetch_add(&p->letters, 1);
  for (uint32_t i = 0; i < to->count; i++)
    post(l, p->controller, to->hosts[i], p->client);
  if (!taken(l)) return false;
  free(l);
  atomic_fetch_sub(&p->letters, 1);
  return true;
}

// A part of a message, to some.
static void say_to(peer *p, const host_set *to, uint32_t kind,
                   const at_bytes *parts, uint32_t n) {
  at_controller *c = p->controller;
  for (uint32_t i = 0; i < to->count; i++)
    if (!c->hosts[to->hosts[i]]->gone)
      at_outbox_send(c->hosts[to->hosts[i]]->outbox,
                     &(at_outbox_post){.lane = AT_WIRE_BULK,
                                       .message = {kind, p->client, n, parts}});
}

// ---- What clients say
static at_status unknown(const char *what, uint64_t name) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "there is no %s %llu", what,
                 (unsigned long long)name);
}

static at_status add_array(peer *p, uint64_t name, host_set *s) {
  if (!s) return AT_FAIL(AT_INVALID_ARGUMENT, "there is no such chip");
  if (at_table_find(&p->arrays, name))
    return AT_FAIL(AT_INVALID_ARGUMENT, "array %llu is there already",
                   (unsigned long long)name);
  if (!at_table_put(&p->arrays, name, s))
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an array's name");
  return AT_OK;
}

static at_status creates(peer *p, const at_msg_create *m, host_set **to) {
  *to = set_of(p->controller, &m->chip, 1, 1);
  return add_array(p, m->array, *to);
}

static at_status groups(peer *p, const at_msg_group *m, host_set **to) {
  const at_msg_shard *s = (const void *)(m + 1);
  for (uint64_t i = 0; i < m->count; i++)
    if (!at_table_find(&p->arrays, s[i].array))
      return unknown("array", s[i].array);
  *to = set_of(p->controller, &s->chip, m->count, sizeof *s / sizeof s->chip);
  return add_array(p, m->array, *to);
}

static at_status copies(peer *p, const at_msg_copy *m, host_set **to) {
  const uint32_t chips[] = {m->from.chip, m->chip};
  if (!at_table_find(&p->arrays, m->from.array))
    return unknown("array", m->from.array);
  *to = set_of(p->controller, chips, 2, 1);
  return add_array(p, m->array, set_of(p->controller, chips + 1, 1, 1));
}

static at_status loads(peer *p, const at_msg_load *m, host_set **to) {
  *to = set_of(p->controller, (const uint32_t *)(m + 1), m->num_chips, 1);
  if (!*to) return AT_FAIL(AT_INVALID_ARGUMENT, "there is no such chip");
  if (at_table_find(&p->programs, m->program))
    return AT_FAIL(AT_INVALID_ARGUMENT, "program %llu is there already",
                   (unsigned long long)m->program);
  placed *x = malloc(sizeof *x);
  if (x) *x = (placed){*to, p->controller->epoch};
  if (x && at_table_put(&p->programs, m->program, x)) return AT_OK;
  free(x);
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a program's name");
}

// Has a host of it been lost since? Others have no part in what is asked then.
static host_set *still_there(at_controller *c, const placed *x) {
  uint32_t hosts[AT_SESSION_MOST], count = 0;
  for (uint32_t i = 0; i < x->hosts->count; i++) {
    const peer *h = c->hosts[x->hosts->hosts[i]];
    if (!h->gone && h->joined <= x->epoch) hosts[count++] = x->hosts->hosts[i];
  }
  return count == x->hosts->count ? x->hosts : intern(c, hosts, count);
}

static at_status launches(peer *p, at_msg_launch *m, host_set **to) {
  const at_msg_arg *args = (const void *)(m + 1);
  const placed *x = at_table_find(&p->programs, m->program);
  if (!x) return unknown("program", m->program);
  for (uint32_t i = 0; i < m->num_args; i++)
    if (!at_table_find(&p->arrays, args[i].array))
      return unknown("array", args[i].array);
  for (uint32_t i = 0; i < m->num_args; i++)
    if (args[i].flags & AT_MSG_GIVEN) at_table_take(&p->arrays, args[i].array);
  for (uint32_t o = 0; o < m->num_outputs; o++)
    AT_TRY(add_array(p, m->outputs + o, x->hosts));
  *to = still_there(p->controller, x);
  if (!*to) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  m->refused = *to != x->hosts;
  p->launches++;
  return AT_OK;
}

static at_status unloads(peer *p, const at_msg_unload *m, host_set **to) {
  placed *x = at_table_take(&p->programs, m->program);
  if (!x) return unknown("program", m->program);
  *to = still_there(p->controller, x);
  free(x);
  return *to ? AT_OK
             : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a message");
}

// Names that follow each other mostly have the same hosts.
static void drops(peer *p, const at_msg_drop *m) {
  const uint64_t *names = (const void *)(m + 1);
  for (uint64_t begin = 0, end; begin < m->count; begin = end) {
    const host_set *to = at_table_take(&p->arrays, names[begin]);
    end = begin + 1;
    while (end < m->count && at_table_find(&p->arrays, names[end]) == to) {
      at_table_take(&p->arrays, names[end]);
      end++;
    }
    at_msg_drop some = {.count = end - begin};
    const at_bytes parts[] = {
        {(const uint8_t *)&some, sizeof some},
        {(const uint8_t *)(names + begin), (end - begin) * sizeof *names}};
    if (to) say_to(p, to, AT_MSG_DROP, parts, 2);
  }
}

static at_status find_hosts(peer *p, uint32_t kind, void *m, host_set **to) {
  switch (kind) {
    case AT_MSG_CREATE:
      return creates(p, m, to);
    case AT_MSG_GROUP:
      return groups(p, m, to);
    case AT_MSG_COPY:
      return copies(p, m, to);
    case AT_MSG_LOAD:
      return loads(p, m, to);
    case AT_MSG_LAUNCH:
      return launches(p, m, to);
    case AT_MSG_UNLOAD:
      return unloads(p, m, to);
    default:
      return AT_FAIL(AT_INVALID_ARGUMENT, "a client says %u", kind);
  }
}

// Nothing more of it is heard; its process is told why.
static void cut_off(peer *p, at_status why) {
  at_log(AT_LOG_ERROR, "client %llu (%s) is cut off: %s",
         (unsigned long long)p->client, p->hello.name, at_status_message(why));
  at_msg_failed m = {.code = (uint64_t)at_status_code(why)};
  const char *text = at_status_message(why);
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            {(const uint8_t *)text, strlen(text)}};
  at_peer_say(p, AT_MSG_FAILED, parts, 2);
  at_client_leaves(p);
  at_status_free(why);
}

bool at_client_says(peer *p, const at_wire_head *head, void *body) {
  if (p->gone || p->left) return free(body), true;
  p->messages++;
  p->bytes += head->bytes;
  if (head->kind == AT_MSG_DROP) {
    drops(p, body);
    return free(body), true;
  }
  host_set *to = NULL;
  at_status st = find_hosts(p, head->kind, body, &to);
  if (!st.err) return route(p, head, body, to);
  cut_off(p, st);
  return free(body), true;
}

void at_client_leaves(peer *p) {
  at_controller *c = p->controller;
  if (p->left) return;
  p->left = true;
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->hosts[i] && !c->hosts[i]->gone)
      at_outbox_send(c->hosts[i]->outbox,
                     &(at_outbox_post){
                         .lane = AT_WIRE_BULK,
                         .message = {.kind = AT_MSG_LEFT, .tag = p->client}});
  at_client_tables_free(p);
}

void at_client_tables_free(peer *p) {
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(&p->programs, &at));)
    free(s->value);
  at_table_free(&p->arrays);
  at_table_free(&p->programs);
}
