// What any client may say to a controller, with hosts that take nothing, come
// and go: it is cut off, or what it says goes to hosts that are there; in the
// end nothing of it is left. A byte chooses what is said, and the names, chips
// and hosts are few, so that they meet.
#include <stdlib.h>
#include <string.h>

#include "control/controller_internal.h"
#include "control/fuzz_input.h"
#include "exec/exec.h"

enum { kHosts = 3, kChips = 12, kClients = 2, kMost = 1 << 12 };

static uint64_t number(input *in) { return number_of(in, 14); }
// Mostly one that is there, also a view of it, now and then any number.
static uint32_t chip(input *in) {
  uint8_t b = take(in);
  if (b >= 0xe0 && b < 0xf0) return b % kChips | 1u << AT_CHIP_VIEW;
  return b < 0xf0 ? b % kChips : (uint32_t)number(in);
}

// ---- The controller
// Without a session: its outbox is never opened.
static peer *make_peer(at_controller *c, uint32_t kind) {
  peer *p = calloc(1, sizeof *p);
  must(p && !at_outbox_create(&p->outbox).err);
  p->controller = c;
  p->kind = kind;
  p->client = ++c->num_clients;
  p->next = c->peers;
  c->peers = p;
  return p;
}

// Its outbox has dropped what waited.
static void free_peer(peer *p) {
  at_outbox_free(p->outbox);
  at_client_tables_free(p);
  free(p->session);
  free(p);
}

// As at_controller_open makes it, without listener and keeper.
static at_controller *make_controller(void) {
  at_controller *c = calloc(1, sizeof *c);
  must(c != NULL);
  pthread_mutex_init(&c->lock, NULL);
  c->num_hosts = c->max_hosts = kHosts;
  c->num_chips = kChips;
  must(!at_topology_parse("3*v5e:2x2", &c->topology).err);
  c->epoch = 1;
  c->host_of = calloc(kChips, sizeof *c->host_of);
  c->hosts = calloc(kHosts, sizeof *c->hosts);
  c->drains = calloc(kHosts, sizeof *c->drains);
  for (uint32_t i = 0; i < kChips; i++) c->host_of[i] = i / (kChips / kHosts);
  for (uint32_t i = 0; i < kHosts; i++) {
    c->hosts[i] = make_peer(c, AT_SESSION_HOST);
    c->hosts[i]->number = i;
    c->hosts[i]->joined = 1;
    c->hosts[i]->session = strdup("");
    c->hosts[i]->announced = true;
  }
  return c;
}

// Hosts drop what they have not taken, so no letter is left.
static void free_controller(at_controller *c) {
  for (uint32_t i = 0; i < kHosts; i++) at_outbox_stop(c->hosts[i]->outbox);
  at_operations_end(c);
  for (peer *p; (p = c->peers);) {
    c->peers = p->next;
    must(!p->letters);
    free_peer(p);
  }
  at_named_free(c);
  at_client_sets_free(c);
  pthread_mutex_destroy(&c->lock);
  free(c->host_of);
  free(c->hosts);
  free(c->drains);
  free(c);
}

// ---- Messages
static uint32_t fill(input *in, uint32_t kind, uint8_t *to);

// Few arguments and results, any names.
static uint32_t fill_launch(input *in, uint8_t *to) {
  at_msg_launch *m = (void *)to;
  *m = (at_msg_launch){.program = number(in),
                       .outputs = number(in),
                       .number = number(in),
                       .num_args = take(in) % 4,
                       .num_outputs = take(in) % 4,
                       .num_channels = take(in) % 2,
                       .refused = take(in) % 2};
  at_msg_arg *args = (void *)(m + 1);
  for (uint32_t i = 0; i < m->num_args; i++)
    args[i] = (at_msg_arg){number(in), take(in) % 4, take(in) % 4};
  at_msg_channel *x = (void *)(args + m->num_args);
  for (uint32_t i = 0; i < m->num_channels; i++)
    x[i] = (at_msg_channel){.id = take(in), .device = take(in) % 4};
  return (uint32_t)((uint8_t *)(x + m->num_channels) - to);
}

// A few steps, each a message of its own.
static uint32_t fill_graph(input *in, uint8_t *to) {
  static const uint32_t kinds[] = {AT_MSG_LAUNCH, AT_MSG_COPY, AT_MSG_GROUP,
                                   AT_MSG_DROP};
  at_msg_graph *m = (void *)to;
  *m = (at_msg_graph){.graph = number(in),
                      .num_inputs = take(in) % 4,
                      .num_made = take(in) % 6,
                      .num_kept = take(in) % 4,
                      .num_steps = take(in) % 5};
  uint64_t *kept = (void *)(m + 1);
  for (uint32_t i = 0; i < m->num_kept; i++) kept[i] = i + take(in) % 2;
  uint8_t *at = (uint8_t *)(kept + m->num_kept);
  for (uint32_t i = 0; i < m->num_steps; i++) {
    at_msg_step *s = (void *)at;
    s->kind = kinds[take(in) % AT_LEN(kinds)];
    s->bytes = fill(in, s->kind, (uint8_t *)(s + 1));
    at += at_message_step_bytes(s->bytes);
  }
  return (uint32_t)(at - to);
}

// In a graph names stand for other things now and then.
static uint64_t name(input *in) {
  uint64_t n = number(in);
  uint8_t b = take(in);
  return b < 0x60 ? n : b < 0xb0 ? (n | AT_MSG_MADE) : (n | AT_MSG_INPUT);
}

// An at_message_name_fn: any name, so that most graphs are refused and some are
// not.
static bool rename_one(void *arg, uint64_t *to, bool makes, uint32_t count) {
  *to = name(arg);
  return true;
}

// A message of that kind at `to`, often well formed; how long it is.
static uint32_t fill(input *in, uint32_t kind, uint8_t *to) {
  if (kind == AT_MSG_SAVE || kind == AT_MSG_RESTORE)
    return fill_files(in, kind == AT_MSG_SAVE, 14, chip, to);
  if (kind == AT_MSG_CREATE) {
    at_msg_create *m = (void *)to;
    *m = (at_msg_create){number(in), chip(in), 0, 11, 0, 0};
    return sizeof *m;
  }
  if (kind == AT_MSG_GROUP) {
    at_msg_group *m = (void *)to;
    at_msg_shard *s = (void *)(m + 1);
    *m = (at_msg_group){number(in), take(in) % 5};
    for (uint64_t i = 0; i < m->count; i++)
      s[i] = (at_msg_shard){number(in), take(in) % 4, chip(in)};
    return (uint32_t)(sizeof *m + m->count * sizeof *s);
  }
  if (kind == AT_MSG_COPY) {
    at_msg_copy *m = (void *)to;
    *m = (at_msg_copy){{number(in), take(in) % 4, chip(in)},
                       number(in),
                       chip(in),
                       0,
                       11,
                       0,
                       0};
    return sizeof *m;
  }
  if (kind == AT_MSG_DROP) {
    at_msg_drop *m = (void *)to;
    m->count = take(in) % 9;
    for (uint64_t i = 0; i < m->count; i++)
      ((uint64_t *)(m + 1))[i] = number(in);
    return (uint32_t)(sizeof *m + m->count * sizeof(uint64_t));
  }
  if (kind == AT_MSG_LOAD) {
    at_msg_load *m = (void *)to;
    uint32_t *chips = (void *)(m + 1);
    *m = (at_msg_load){.program = number(in), .num_chips = take(in) % 6};
    memset(chips, 0, 8 * sizeof *chips);
    for (uint64_t i = 0; i < m->num_chips; i++) chips[i] = chip(in);
    return (uint32_t)(sizeof *m + at_message_chips_bytes(m->num_chips) + 8);
  }
  if (kind == AT_MSG_LAUNCH) return fill_launch(in, to);
  if (kind == AT_MSG_GRAPH) return fill_graph(in, to);
  if (kind == AT_MSG_RUN) {
    at_msg_run *m = (void *)to;
    *m = (at_msg_run){number(in), number(in), take(in) % 4, 0};
    for (uint32_t i = 0; i < m->num_inputs; i++)
      ((uint64_t *)(m + 1))[i] = number(in);
    return (uint32_t)(sizeof *m + m->num_inputs * sizeof(uint64_t));
  }
  if (kind == AT_MSG_KEEP) {
    at_msg_keep *m = (void *)to;
    *m = (at_msg_keep){.tag = take(in),
                       .num_arrays = take(in) % 4,
                       .name_bytes = 1,
                       .about_bytes = take(in) % 4};
    uint8_t *text = (uint8_t *)((uint64_t *)(m + 1) + m->num_arrays);
    for (uint32_t i = 0; i < m->num_arrays; i++)
      ((uint64_t *)(m + 1))[i] = number(in);
    memset(text, 'a' + take(in) % 3, 1 + m->about_bytes);
    return (uint32_t)(text + 1 + m->about_bytes - to);
  }
  if (kind == AT_MSG_FETCH || kind == AT_MSG_DISCARD) {
    at_msg_named *m = (void *)to;
    *m = (at_msg_named){.tag = take(in),
                        .first = number(in),
                        .flags = take(in) % 2,
                        .name_bytes = 1};
    *(uint8_t *)(m + 1) = 'a' + take(in) % 3;
    return sizeof *m + 1;
  }
  if (kind == AT_MSG_OBJECTS) return memset(to, 0, sizeof(at_msg_named)), 32;
  if (kind == AT_MSG_SLICE) {
    at_msg_slice *m = (void *)to;
    *m = (at_msg_slice){.slice = number(in),
                        .memory = (uint64_t)(take(in) % 4) << 32,
                        .count = take(in) % 9,
                        .policy = take(in) % 2,
                        .island = take(in) % 4 - 1,
                        .host = take(in) % 4 - 1};
    if (take(in) % 4 == 0)
      for (int d = 0; d < 3; d++) m->shape[d] = 1 + take(in) % 2;
    return sizeof *m;
  }
  *(uint64_t *)(void *)to = number(in);  // UNLOAD, FORGET, UNSLICE
  return 8;
}

// A client says something; only what at_message_check lets through reaches the
// controller.
static void say(input *in, peer *p) {
  static const uint32_t kinds[] = {
      AT_MSG_CREATE,  AT_MSG_CREATE,  AT_MSG_CREATE,  AT_MSG_GROUP,
      AT_MSG_COPY,    AT_MSG_DROP,    AT_MSG_DROP,    AT_MSG_LOAD,
      AT_MSG_UNLOAD,  AT_MSG_LAUNCH,  AT_MSG_LAUNCH,  AT_MSG_GRAPH,
      AT_MSG_RUN,     AT_MSG_RUN,     AT_MSG_FORGET,  AT_MSG_LEFT,
      AT_MSG_STATUS,  AT_MSG_KEEP,    AT_MSG_KEEP,    AT_MSG_FETCH,
      AT_MSG_FETCH,   AT_MSG_DISCARD, AT_MSG_OBJECTS, AT_MSG_SLICE,
      AT_MSG_UNSLICE, AT_MSG_SAVE,    AT_MSG_RESTORE};
  static _Alignas(16) uint8_t room[1 << 16];
  uint32_t kind = kinds[take(in) % AT_LEN(kinds)];
  uint32_t n = fill(in, kind, room);
  if (kind == AT_MSG_GRAPH && take(in) % 4) {
    const at_msg_graph *m = (const void *)room;
    uint8_t *at = (uint8_t *)((uint64_t *)(m + 1) + m->num_kept);
    for (uint32_t i = 0; i < m->num_steps; i++) {
      const at_msg_step *s = (const void *)at;
      at_message_names(s->kind, at + sizeof *s, rename_one, in);
      at += at_message_step_bytes(s->bytes);
    }
  }
  if (kind == AT_MSG_LEFT || kind == AT_MSG_STATUS) n = 0;
  uint8_t *body = malloc(n + 1);
  memcpy(body, room, n);
  if (at_code_take(at_message_check(kind, (at_bytes){body, n}))) {
    free(body);
    return;
  }
  const at_wire_head head = {n, 0, kind, AT_WIRE_BULK};
  pthread_mutex_lock(&p->controller->lock);
  at_client_says(p, &head, body);
  at_flight_unlock(p->controller);
}

// A host has a client's launches in hand, as many as it may, or has ended them.
static void pace(peer *p, uint32_t host, bool ends) {
  host_set *one = malloc(sizeof *one + sizeof *one->hosts);
  must(one != NULL);
  *one = (host_set){.count = 1};
  one->hosts[0] = host;
  pthread_mutex_lock(&p->controller->lock);
  if (ends)
    at_flight_did(p, host, UINT64_MAX);
  else if (!p->left)
    at_flight_add(p, one, AT_FLIGHT_LAUNCHES);
  must(p->left || at_flight_may_go(p, one) == ends);
  at_client_goes_on(p);
  at_flight_unlock(p->controller);
  free(one);
}

// Mostly clients speak; hosts answer, are lost and come back in between.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  setenv("ATOLL_LOG", "off", 1);
  input in = {data, data + AT_MIN(size, (size_t)kMost)};
  at_controller *c = make_controller();
  peer *clients[kClients];
  for (int i = 0; i < kClients; i++)
    clients[i] = make_peer(c, AT_SESSION_CLIENT);
  while (in.at < in.end) {
    uint8_t what = take(&in);
    if (what >= 0xc0 && what < 0xd0) {  // a host has done what it was asked for
      const at_msg_answer m = {take(&in) % 4 ? 0 : AT_OUT_OF_RANGE};
      at_operation_acted(c->hosts[what % kHosts], 1 + take(&in) % 8u,
                         (at_bytes){(const uint8_t *)&m, sizeof m});
      continue;
    }
    if (what < 0xf4) {
      peer **p = &clients[what % kClients];
      if ((*p)->left) *p = make_peer(c, AT_SESSION_CLIENT);
      say(&in, *p);
      continue;
    }
    if (what >= 0xfc) {
      pace(clients[what % kClients], take(&in) % kHosts, what >= 0xfe);
      continue;
    }
    // A host goes, or another process comes in its place.
    peer *h = c->hosts[what % kHosts];
    h->gone = what < 0xfa;
    if (h->gone) {
      at_operations_lose(c, h->number);
      at_slices_move(c);
    }
    if (!h->gone) h->joined = ++c->epoch;
  }
  for (int i = 0; i < kClients; i++) at_client_leaves(clients[i]);
  for (int i = 0; i < kClients; i++) must(!clients[i]->arrays.slots);
  free_controller(c);
  return 0;
}
