// Where a client's messages go: to the hosts of the arrays and programs that
// they name. All of it happens under one lock, so hosts hear of things that
// concern several of them in one order.
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "control/controller_internal.h"
#include "exec/exec.h"

enum { kArrays = 1 << 24 };  // of a client

// A message on its way to hosts.
typedef struct letter {
  peer *from;
  at_wire_head head;
  uint8_t *body;
  _Atomic uint32_t left;  // hosts that have not taken it, and one
} letter;

// ---- Sets of hosts
// Linear: a pod has few different sets of hosts. NULL: no memory.
static host_set *intern(at_controller *c, const uint32_t *hosts, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    AT_ASSERT(hosts[i] < c->num_hosts && (!i || hosts[i - 1] < hosts[i]));
  for (host_set *s = c->sets; s; s = s->next)
    if (s->count == n && (!n || !memcmp(s->hosts, hosts, n * sizeof *hosts)))
      return s;
  host_set *s = malloc(sizeof *s + n * sizeof *hosts);
  if (!s) return NULL;
  s->arrays = 0;
  s->count = n;
  if (n) memcpy(s->hosts, hosts, n * sizeof *hosts);
  s->next = c->sets;
  return c->sets = s;
}

// The host of a chip, or of a view of it; num_hosts or more: there is none.
static uint32_t host_of(const at_controller *c, uint32_t number) {
  uint32_t chip = at_message_chip(number);
  bool is_one = chip < c->num_chips && number >> AT_CHIP_VIEW < AT_CHIP_VIEWS;
  return is_one ? c->host_of[chip] : UINT32_MAX;
}

// The hosts of chips that lie `step` numbers apart. NULL: no such chip, or no
// memory.
static host_set *set_of(at_controller *c, const uint32_t *chips, uint64_t n,
                        size_t step) {
  uint64_t has[AT_SESSION_MOST / 64] = {0};
  uint32_t hosts[AT_SESSION_MOST], count = 0;
  for (uint64_t i = 0; i < n; i++) {
    uint32_t h = host_of(c, chips[i * step]);
    if (h >= c->num_hosts) return NULL;
    has[h / 64] |= 1ull << h % 64;
  }
  for (uint32_t w = 0; w < AT_LEN(has); w++)
    for (uint64_t left = has[w]; left; left &= left - 1)
      hosts[count++] = w * 64 + (uint32_t)__builtin_ctzll(left);
  return intern(c, hosts, count);
}

// Nobody has one any more.
void at_client_sets_free(at_controller *c) {
  for (host_set *s; (s = c->sets);) {
    c->sets = s->next;
    free(s);
  }
}

// ---- Letters
// One host less has to take the letter. True: the last; the body is freed, the
// letter is the caller's.
static bool taken(letter *l) {
  AT_ASSERT(atomic_load(&l->left));
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

// The body is lent to the host's outbox until it calls `sent`.
static void post(letter *l, at_controller *c, uint32_t host, uint64_t client) {
  peer *h = c->hosts[host];
  if (at_peer_is_away(h)) return;
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
    if (!at_peer_is_away(c->hosts[to->hosts[i]]))
      at_outbox_send(c->hosts[to->hosts[i]]->outbox,
                     &(at_outbox_post){.lane = AT_WIRE_BULK,
                                       .message = {kind, p->client, n, parts}});
}

// ---- What clients say
static at_status unknown(const char *what, uint64_t name) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "there is no %s %llu", what,
                 (unsigned long long)name);
}

// NULL for s: the message named a chip that the pod does not have. Also for
// arrays that a launch will make.
static at_status add_array(peer *p, uint64_t name, host_set *s) {
  if (!s) return AT_FAIL(AT_INVALID_ARGUMENT, "there is no such chip");
  if (at_table_find(&p->arrays, name))
    return AT_FAIL(AT_INVALID_ARGUMENT, "array %llu is there already",
                   (unsigned long long)name);
  if (p->arrays.count >= kArrays)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "a client has %u arrays at most",
                   (unsigned)kArrays);
  if (!at_table_put(&p->arrays, name, s))
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for an array's name");
  s->arrays++;
  return AT_OK;
}

// NULL: there is none.
static host_set *take_array(peer *p, uint64_t name) {
  host_set *s = at_table_take(&p->arrays, name);
  if (s) s->arrays--;
  return s;
}

// Like the functions below: checks what the message names against the client's
// tables, enters what it makes, and sets *to to the hosts that have to hear it.
// An error ends the client.
static at_status creates(peer *p, const at_msg_create *m, host_set **to) {
  *to = set_of(p->controller, &m->chip, 1, 1);
  return add_array(p, m->array, *to);
}

// The array is on the hosts of its shards' chips. A host that has none of them
// never hears of it.
static at_status groups(peer *p, const at_msg_group *m, host_set **to) {
  const at_msg_shard *s = (const void *)(m + 1);
  for (uint64_t i = 0; i < m->count; i++)
    if (!at_table_find(&p->arrays, s[i].array))
      return unknown("array", s[i].array);
  *to = set_of(p->controller, &s->chip, m->count, sizeof *s / sizeof s->chip);
  return add_array(p, m->array, *to);
}

// Both hosts hear of it; the array is on the second one.
static at_status copies(peer *p, const at_msg_copy *m, host_set **to) {
  const uint32_t chips[] = {m->from.chip, m->chip};
  if (!at_table_find(&p->arrays, m->from.array))
    return unknown("array", m->from.array);
  *to = set_of(p->controller, chips, 2, 1);
  return add_array(p, m->array,
                   *to ? set_of(p->controller, chips + 1, 1, 1) : NULL);
}

// The hosts that a resharding concerns, and those of what it makes. NULL: no
// such chip, or no memory.
static void reshard_hosts(at_controller *c, const at_msg_reshard *m,
                          host_set **part, host_set **makes) {
  at_resharding r = at_message_resharding(m);
  uint32_t hosts[AT_SESSION_MOST], n = 0;
  *part =
      set_of(c, &r.from->chip, m->num_from, sizeof *r.from / sizeof *r.chips);
  *makes = set_of(c, r.chips, m->num_to, 1);
  if (!*part || !*makes) {
    *part = NULL;
    return;
  }
  bool has[AT_SESSION_MOST] = {0};
  for (uint32_t i = 0; i < (*part)->count; i++) has[(*part)->hosts[i]] = true;
  for (uint32_t i = 0; i < (*makes)->count; i++) has[(*makes)->hosts[i]] = true;
  for (uint32_t h = 0; h < c->num_hosts; h++)
    if (has[h]) hosts[n++] = h;
  *part = intern(c, hosts, n);
}

// Hosts that have an old shard or get a new one.
static at_status reshards(peer *p, const at_msg_reshard *m, host_set **to) {
  const at_msg_shard *s = (const void *)(m + 1);
  host_set *makes;
  for (uint32_t i = 0; i < m->num_from; i++)
    if (!at_table_find(&p->arrays, s[i].array))
      return unknown("array", s[i].array);
  reshard_hosts(p->controller, m, to, &makes);
  return add_array(p, m->array, *to ? makes : NULL);
}

// The epoch is kept with the program: a host that joins later does not have it.
static at_status loads(peer *p, const at_msg_load *m, host_set **to) {
  *to = set_of(p->controller, (const uint32_t *)(m + 1), m->num_chips, 1);
  if (!*to) return AT_FAIL(AT_INVALID_ARGUMENT, "there is no such chip");
  if (at_table_find(&p->programs, m->program))
    return AT_FAIL(AT_INVALID_ARGUMENT, "program %llu is there already",
                   (unsigned long long)m->program);
  placed *x = malloc(sizeof *x);
  if (x) *x = (placed){*to, p->controller->epoch};
  at_client_reaches(p, (const uint32_t *)(m + 1), m->num_chips);
  if (x && at_table_put(&p->programs, m->program, x)) return AT_OK;
  free(x);
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a program's name");
}

// Has a host of it been lost since? Others have no part in what is asked then.
static host_set *still_there(at_controller *c, host_set *all, uint64_t epoch,
                             uint32_t *refused) {
  uint32_t hosts[AT_SESSION_MOST], count = 0;
  *refused = 0;
  for (uint32_t i = 0; i < all->count; i++) {
    const peer *h = c->hosts[all->hosts[i]];
    if (!at_peer_is_away(h) && h->joined <= epoch)
      hosts[count++] = all->hosts[i];
    else
      *refused = 1 + all->hosts[i];
  }
  return *refused ? intern(c, hosts, count) : all;
}

// Its name goes to a launch on those hosts. Others that have some of it, as one
// that has come in the place of a lost host, have no part there and drop it.
static void give_array(peer *p, uint64_t name, const host_set *to) {
  const host_set *has = take_array(p, name);
  uint32_t hosts[AT_SESSION_MOST], n = 0;
  if (!has || has == to) return;
  for (uint32_t i = 0; i < has->count; i++) {
    uint32_t k = 0;
    while (k < to->count && to->hosts[k] != has->hosts[i]) k++;
    if (k == to->count) hosts[n++] = has->hosts[i];
  }
  const host_set *rest = intern(p->controller, hosts, n);
  const uint64_t drop[] = {1, name};
  const at_bytes part = {(const uint8_t *)drop, sizeof drop};
  if (rest) say_to(p, rest, AT_MSG_DROP, &part, 1);
}

// Results exist on all hosts of the program, also where a host is lost: they
// carry its loss there.
static at_status launches(peer *p, at_msg_launch *m, host_set **to) {
  const at_msg_arg *args = (const void *)(m + 1);
  const placed *x = at_table_find(&p->programs, m->program);
  if (!x) return unknown("program", m->program);
  for (uint32_t i = 0; i < m->num_args; i++)
    if (!at_table_find(&p->arrays, args[i].array))
      return unknown("array", args[i].array);
  *to = still_there(p->controller, x->hosts, x->epoch, &m->refused);
  if (!*to) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a launch");
  for (uint32_t i = 0; i < m->num_args; i++)
    if (args[i].flags & AT_MSG_GIVEN) give_array(p, args[i].array, *to);
  for (uint32_t o = 0; o < m->num_outputs; o++)
    AT_TRY(add_array(p, m->outputs + o, x->hosts));
  p->launches++;
  at_flight_add(p, *to, 1);
  return AT_OK;
}

// ---- Traced programs
// The hosts that a step concerns, and those of what it makes.
static at_status step_hosts(peer *p, uint32_t kind, const void *body,
                            host_set **part, host_set **makes) {
  at_controller *c = p->controller;
  *makes = NULL;
  if (kind == AT_MSG_LAUNCH) {
    const at_msg_launch *m = body;
    const placed *x = at_table_find(&p->programs, m->program);
    if (!x) return unknown("program", m->program);
    *part = *makes = x->hosts;
    return AT_OK;
  }
  if (kind == AT_MSG_GROUP) {
    const at_msg_shard *s = (const void *)((const at_msg_group *)body + 1);
    *part = *makes = set_of(c, &s->chip, ((const at_msg_group *)body)->count,
                            sizeof *s / sizeof s->chip);
  } else if (kind == AT_MSG_COPY) {
    const uint32_t chips[] = {((const at_msg_copy *)body)->from.chip,
                              ((const at_msg_copy *)body)->chip};
    *part = set_of(c, chips, 2, 1);
    *makes = set_of(c, chips + 1, 1, 1);
  } else if (kind == AT_MSG_RESHARD) {
    reshard_hosts(c, body, part, makes);
  } else {
    *part = intern(c, NULL, 0);
  }
  return *part ? AT_OK : AT_FAIL(AT_INVALID_ARGUMENT, "there is no such chip");
}

// As a number among the arrays of the graph. *count 0: it makes none.
static uint64_t first_made(uint32_t kind, const void *body, uint32_t *count) {
  *count = 1;
  if (kind == AT_MSG_LAUNCH) {
    *count = ((const at_msg_launch *)body)->num_outputs;
    return ((const at_msg_launch *)body)->outputs & ~AT_MSG_MADE;
  }
  if (kind == AT_MSG_COPY)
    return ((const at_msg_copy *)body)->array & ~AT_MSG_MADE;
  if (kind == AT_MSG_GROUP)
    return ((const at_msg_group *)body)->array & ~AT_MSG_MADE;
  if (kind == AT_MSG_RESHARD)
    return ((const at_msg_reshard *)body)->array & ~AT_MSG_MADE;
  *count = 0;
  return 0;
}

// The first of `kept` that is not smaller.
static uint32_t find_kept(const uint64_t *kept, uint32_t n, uint64_t made) {
  uint32_t low = 0, high = n;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (kept[middle] < made)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Marks in `has` the hosts of all steps, and finds the hosts of every kept
// array.
static at_status place_steps(peer *p, const at_msg_graph *m, placed_graph *g,
                             bool *has) {
  const uint64_t *kept = (const void *)(m + 1);
  const uint8_t *at = (const uint8_t *)(kept + m->num_kept);
  for (uint32_t i = 0; i < m->num_steps; i++) {
    const at_msg_step *s = (const void *)at;
    host_set *part, *makes;
    uint32_t count;
    AT_TRY(step_hosts(p, s->kind, s + 1, &part, &makes));
    for (uint32_t k = 0; k < part->count; k++) has[part->hosts[k]] = true;
    uint64_t first = first_made(s->kind, s + 1, &count);
    for (uint32_t k = find_kept(kept, m->num_kept, first);
         k < m->num_kept && kept[k] - first < count; k++)
      g->kept[k].hosts = makes;
    g->num_launches += s->kind == AT_MSG_LAUNCH;
    at += at_message_step_bytes(s->bytes);
  }
  return AT_OK;
}

// INVALID_ARGUMENT: a kept array is made by no step.
static at_status place_graph(peer *p, const at_msg_graph *m, placed_graph *g) {
  const uint64_t *kept = (const void *)(m + 1);
  bool has[AT_SESSION_MOST] = {0};
  uint32_t hosts[AT_SESSION_MOST], n = 0;
  AT_TRY(place_steps(p, m, g, has));
  for (uint32_t h = 0; h < p->controller->num_hosts; h++)
    if (has[h]) hosts[n++] = h;
  g->hosts = intern(p->controller, hosts, n);
  for (uint32_t k = 0; k < m->num_kept; k++) {
    g->kept[k].made = kept[k];
    if (!g->kept[k].hosts)
      return AT_FAIL(AT_INVALID_ARGUMENT, "no step makes array %llu of a graph",
                     (unsigned long long)kept[k]);
  }
  return g->hosts ? AT_OK
                  : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a graph");
}

// The graph's hosts are those of all its steps; each finds out which steps
// concern it.
static at_status graphs(peer *p, const at_msg_graph *m, host_set **to) {
  if (at_table_find(&p->graphs, m->graph))
    return AT_FAIL(AT_INVALID_ARGUMENT, "graph %llu is there already",
                   (unsigned long long)m->graph);
  placed_graph *g = calloc(1, sizeof *g + m->num_kept * sizeof *g->kept);
  if (!g) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a graph");
  g->epoch = p->controller->epoch;
  g->num_inputs = m->num_inputs;
  g->num_made = m->num_made;
  g->num_kept = m->num_kept;
  at_status st = place_graph(p, m, g);
  if (!st.err && !at_table_put(&p->graphs, m->graph, g))
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a graph");
  *to = g->hosts;
  if (st.err) free(g);
  return st;
}

// Only the kept arrays get names with the controller: others are gone when the
// run is over.
static at_status runs(peer *p, at_msg_run *m, host_set **to) {
  const placed_graph *g = at_table_find(&p->graphs, m->graph);
  const uint64_t *inputs = (const void *)(m + 1);
  if (!g || g->num_inputs != m->num_inputs) return unknown("graph", m->graph);
  for (uint32_t i = 0; i < m->num_inputs; i++)
    if (!at_table_find(&p->arrays, inputs[i]))
      return unknown("array", inputs[i]);
  for (uint32_t k = 0; k < g->num_kept; k++)
    AT_TRY(add_array(p, m->first + g->kept[k].made, g->kept[k].hosts));
  *to = still_there(p->controller, g->hosts, g->epoch, &m->refused);
  if (!*to) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a run");
  p->launches += g->num_launches;
  at_flight_add(p, *to, g->num_launches);
  return AT_OK;
}

// Hosts that have replaced others never had it.
static at_status forgets(peer *p, const at_msg_forget *m, host_set **to) {
  placed_graph *g = at_table_take(&p->graphs, m->graph);
  if (!g) return unknown("graph", m->graph);
  uint32_t lost;
  *to = still_there(p->controller, g->hosts, g->epoch, &lost);
  free(g);
  return *to ? AT_OK
             : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a message");
}

// Hosts that are other processes since have not loaded it, and hear nothing.
static at_status unloads(peer *p, const at_msg_unload *m, host_set **to) {
  // Its name is free for another program from here on.
  placed *x = at_table_take(&p->programs, m->program);
  if (!x) return unknown("program", m->program);
  uint32_t lost;
  *to = still_there(p->controller, x->hosts, x->epoch, &lost);
  free(x);
  return *to ? AT_OK
             : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a message");
}

// Names that follow each other mostly have the same hosts.
static void drops(peer *p, const at_msg_drop *m) {
  const uint64_t *names = (const void *)(m + 1);
  for (uint64_t begin = 0, end; begin < m->count; begin = end) {
    const host_set *to = take_array(p, names[begin]);
    end = begin + 1;
    while (end < m->count && at_table_find(&p->arrays, names[end]) == to) {
      take_array(p, names[end]);
      end++;
    }
    at_msg_drop some = {.count = end - begin};
    const at_bytes parts[] = {
        {(const uint8_t *)&some, sizeof some},
        {(const uint8_t *)(names + begin), (end - begin) * sizeof *names}};
    if (to) say_to(p, to, AT_MSG_DROP, parts, 2);
  }
}

// *to is set where OK is returned.
static at_status find_hosts(peer *p, uint32_t kind, void *m, host_set **to) {
  switch (kind) {
    case AT_MSG_CREATE:
      return creates(p, m, to);
    case AT_MSG_GROUP:
      return groups(p, m, to);
    case AT_MSG_COPY:
      return copies(p, m, to);
    case AT_MSG_RESHARD:
      return reshards(p, m, to);
    case AT_MSG_LOAD:
      return loads(p, m, to);
    case AT_MSG_LAUNCH:
      return launches(p, m, to);
    case AT_MSG_STATS:
      *to = set_of(p->controller, &((const at_msg_stats *)m)->chip, 1, 1);
      return *to ? AT_OK
                 : AT_FAIL(AT_INVALID_ARGUMENT, "there is no such chip");
    case AT_MSG_GRAPH:
      return graphs(p, m, to);
    case AT_MSG_RUN:
      return runs(p, m, to);
    case AT_MSG_FORGET:
      return forgets(p, m, to);
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
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            at_message_text(why)};
  at_peer_say(p, AT_MSG_FAILED, parts, 2);
  at_client_leaves(p);
  at_status_free(why);
}

// Takes the body. True: its credits go back now.
static bool pass_on(peer *p, const at_wire_head *head, void *body) {
  if (head->kind == AT_MSG_DROP) {
    drops(p, body);
    return free(body), true;
  }
  host_set *to = NULL;
  const bool named = at_named_is(head->kind), files = at_files_is(head->kind);
  at_status st;
  if (named)
    st = at_named_says(p, head->kind, body);
  else if (files)
    st = at_files_says(p, head->kind, (at_bytes){body, head->bytes});
  else if (head->kind == AT_MSG_SLICE)
    st = at_client_slice(p, body);
  else if (head->kind == AT_MSG_UNSLICE)
    st = at_client_unslice(p, body);
  else if (head->kind == AT_MSG_HEARD)
    at_drain_heard(p, body);
  else if (!(st = find_hosts(p, head->kind, body, &to)).err)
    return route(p, head, body, to);
  if (st.err) cut_off(p, st);
  return free(body), true;
}

// The hosts whose launches it would add to; NULL: none.
static const host_set *would_launch(const peer *p, uint32_t kind,
                                    const void *body) {
  if (kind == AT_MSG_LAUNCH) {
    const placed *x =
        at_table_find(&p->programs, ((const at_msg_launch *)body)->program);
    return x ? x->hosts : NULL;
  }
  if (kind != AT_MSG_RUN) return NULL;
  const placed_graph *g =
      at_table_find(&p->graphs, ((const at_msg_run *)body)->graph);
  return g ? g->hosts : NULL;
}

// Only launches are counted, and held.
static bool may_go(const peer *p, uint32_t kind, const void *body) {
  const host_set *to = would_launch(p, kind, body);
  return !to || at_flight_may_go(p, to);
}

// Anything behind a held message is held as well: the stream's order is kept.
bool at_client_says(peer *p, const at_wire_head *head, void *body) {
  if (p->gone || p->left || p->controller->closes) return free(body), true;
  p->messages++;
  p->bytes += head->bytes;
  if (!p->held && may_go(p, head->kind, body)) return pass_on(p, head, body);
  if (at_flight_hold(p, head, body)) return false;
  cut_off(p, AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for what waits"));
  return free(body), true;
}

// Stops at the first message that may not go yet. pass_on may end the client,
// which drops what is held.
void at_client_goes_on(peer *p) {
  while (p->held && !p->left) {
    held *x = p->held;
    const at_wire_head head = at_flight_head(x);
    if (!may_go(p, head.kind, at_flight_body(x))) return;
    at_flight_next(p);
    at_flight_went(p, x, pass_on(p, &head, at_flight_body(x)));
  }
}

// LEFT is the last that hosts hear of it.
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
  at_operations_leave(p);
  at_client_tables_free(p);
}

// May be called twice.
void at_client_tables_free(peer *p) {
  at_flight_drop(p);
  at_table *const owned[] = {&p->programs, &p->graphs};
  for (size_t i = 0; i < AT_LEN(owned); i++) {
    size_t at = 0;
    for (at_table_slot *s; (s = at_table_next(owned[i], &at));) free(s->value);
    at_table_free(owned[i]);
  }
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(&p->arrays, &at));)
    ((host_set *)s->value)->arrays--;
  at_table_free(&p->arrays);
  at_client_slices_free(p);
}

// ---- For named.c
host_set *at_hosts_intern(at_controller *c, const uint32_t *hosts, uint32_t n) {
  return intern(c, hosts, n);
}

host_set *at_hosts_still_there(at_controller *c, host_set *all, uint64_t epoch,
                               uint32_t *refused) {
  return still_there(c, all, epoch, refused);
}

at_status at_client_adds(peer *p, uint64_t name, host_set *hosts) {
  return add_array(p, name, hosts);
}
