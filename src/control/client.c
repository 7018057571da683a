// The client's side of a pod: what happens to arrays and programs goes to the
// controller as a stream, bytes go to the hosts that have them.
#include "control/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/client_internal.h"
#include "control/record.h"

enum {
  kTimeoutMs = 120000,
  kHostMs = 20000,  // one that lacks a core; who is lost is not waited for
  kTellMs = 5000,
  kLookMs = 100,
  kDropBytes = 1 << 20,  // memory that is not left lying
  kCallThreads = 8,
  kCallStack = 1 << 20
};

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a message to the pod");
}

_Thread_local bool at_far_poller;

// The first reason is kept: what follows from it says less.
at_status at_client_why(at_client *c) {
  pthread_mutex_lock(&c->lock);
  at_status st = c->why.err ? at_status_clone(c->why)
                            : AT_FAIL(AT_UNAVAILABLE, "the pod is closed");
  pthread_mutex_unlock(&c->lock);
  return st;
}

// ---- The stream
// A DROP as long as there can be one.
typedef struct dropping {
  at_msg_drop head;
  uint64_t names[256];
} dropping;

// Moves the names that wait into *out and empties the list. False: there were
// none, and nothing is to be sent.
static bool take_drops(at_client *c, dropping *out) {
  pthread_mutex_lock(&c->drops_lock);
  out->head.count = c->num_drops;
  memcpy(out->names, c->drops, c->num_drops * sizeof *c->drops);
  c->num_drops = 0;
  c->drop_bytes = 0;
  pthread_mutex_unlock(&c->drops_lock);
  return out->head.count;
}

// Sends messages in a row and counts them. Waits for credits for as long as the
// client is open; where the send failed because the client closed, the error is
// why it did.
static at_status send_all(at_client *c, const at_wire_out *m, uint32_t n) {
  const at_wire_wait wait = {.until_ns = UINT64_MAX, .cancel = &c->closed};
  if (atomic_load_explicit(&c->closed, memory_order_relaxed))
    return at_client_why(c);
  for (uint32_t i = 0; i < n; i++) {
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < m[i].num_parts; k++) bytes += m[i].parts[k].len;
    atomic_fetch_add_explicit(&c->sent_bytes, bytes, memory_order_relaxed);
  }
  atomic_fetch_add_explicit(&c->sent_messages, n, memory_order_relaxed);
  at_status st =
      at_wire_send(c->controller, 0, AT_WIRE_BULK, m, n, &wait, NULL);
  if (!st.err || !atomic_load(&c->closed)) return st;
  at_status_free(st);
  return at_client_why(c);
}

// Drops go in front, in the same call of the wire, so that memory is free
// before what comes next needs it.
at_status at_client_say(at_client *c, uint32_t kind, const at_bytes *parts,
                        uint32_t n) {
  dropping d;
  at_wire_out m[2] = {{.kind = kind, .num_parts = n, .parts = parts}};
  at_bytes drops;
  if (!take_drops(c, &d)) return send_all(c, m, 1);
  drops = (at_bytes){(const uint8_t *)&d,
                     sizeof d.head + d.head.count * sizeof *d.names};
  m[1] = m[0];
  m[0] = (at_wire_out){.kind = AT_MSG_DROP, .num_parts = 1, .parts = &drops};
  return send_all(c, m, 2);
}

// A thread that traces keeps it, too.
at_status at_client_say_step(at_client *c, uint32_t kind, const at_bytes *parts,
                             uint32_t n) {
  AT_TRY(at_client_say(c, kind, parts, n));
  if (AT_UNLIKELY(at_trace_is_on(c))) at_trace_step(kind, parts, n);
  return AT_OK;
}

// A poller must not wait for room, so it leaves its drops to the outbox `late`.
void at_client_flush(at_client *c) {
  dropping d;
  if (!take_drops(c, &d)) return;
  const at_bytes part = {(const uint8_t *)&d,
                         sizeof d.head + d.head.count * sizeof *d.names};
  const at_wire_out m = {.kind = AT_MSG_DROP, .num_parts = 1, .parts = &part};
  if (at_far_poller)
    at_outbox_send(c->late,
                   &(at_outbox_post){.lane = AT_WIRE_BULK, .message = m});
  else
    at_status_free(send_all(c, &m, 1));  // the pod that is lost has dropped all
}

// ---- What the runtime asks (exec/proxy.h)
// Names are never used again: 64 bits suffice.
static uint64_t names(void *arg, uint32_t count) {
  at_client *c = arg;
  return atomic_fetch_add_explicit(&c->next_name, count, memory_order_relaxed);
}

static at_bytes dims_of(at_dims d) {
  return (at_bytes){(const uint8_t *)d.ptr, d.rank * sizeof *d.ptr};
}

// The poller of the session, on which callbacks of events run, must not wait.
static at_status send_later(far_host *h, const at_wire_out *m, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (!at_outbox_send(h->outbox, &(at_outbox_post){.lane = AT_WIRE_BULK,
                                                     .message = m[i]}))
      return no_memory();
  return AT_OK;
}

// `writing` keeps a WRITE and its DATA together, which other threads' messages
// would part.
at_status at_far_host_say(far_host *h, at_wire *w, const at_wire_out *m,
                          uint32_t n) {
  at_client *c = h->client;
  const at_wire_wait wait = {.until_ns = UINT64_MAX, .cancel = &c->closed};
  if (at_far_poller) return send_later(h, m, n);
  pthread_mutex_lock(&h->writing);
  at_status st = at_wire_send(w, 0, AT_WIRE_BULK, m, n, &wait, NULL);
  pthread_mutex_unlock(&h->writing);
  return st;
}

// Arrays of a host that is lost carry its loss. The stream may make them on the
// process that comes in its place, which the session with that tells.
static at_status say_host(at_client *c, uint32_t host, uint64_t array,
                          const at_wire_out *m, uint32_t n) {
  far_host *h = &c->hosts[host];
  at_wire *w;
  AT_TRY(at_far_host_wire(c, host, &w));
  if (w && array < atomic_load(&h->lost_before)) return AT_OK;
  at_status st = w ? at_far_host_say(h, w, m, n) : AT_OK;
  if (w && at_status_code(st) != AT_UNAVAILABLE) return st;
  at_status_free(st);
  atomic_store(&h->unsaid, true);
  return at_far_host_wire(c, host, &w);  // it may have come back meanwhile
}

// A WRITE and its DATA, joined by a tag of their own. m->bytes of them; an
// empty piece has no part.
static at_status write_piece(at_client *c, uint32_t host, const at_msg_write *m,
                             const uint8_t *from) {
  uint64_t tag = atomic_fetch_add(&c->next_tag, 1);
  const at_bytes head = {(const uint8_t *)m, sizeof *m};
  const at_bytes data = {from, m->bytes};
  const at_wire_out both[] = {{AT_MSG_WRITE, tag, 1, &head},
                              {AT_MSG_DATA, tag, m->bytes ? 1 : 0, &data}};
  return say_host(c, host, m->shard.array, both, 2);
}

// In pieces, so that one large array does not hold up everybody's messages. An
// empty array is one empty piece: the host has to hear that it is complete.
static at_status write_array(void *arg, const at_proxy_shard *s,
                             at_bytes data) {
  at_client *c = arg;
  at_msg_write m = {.total = data.len};
  AT_TRY(at_far_shard(c, s, &m.shard));
  do {
    m.bytes = AT_MIN(data.len - m.offset, (uint64_t)AT_MESSAGE_PIECE);
    AT_TRY(write_piece(c, c->host_of[s->chip], &m, data.ptr + m.offset));
    m.offset += m.bytes;
  } while (m.offset < data.len);
  return AT_OK;
}

// The array will not get its bytes: `why` takes their place.
static at_status refuse(void *arg, const at_proxy_shard *s, at_status why) {
  at_msg_refuse m = {.code = (uint64_t)at_status_code(why)};
  AT_TRY(at_far_shard(arg, s, &m.shard));
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            at_message_text(why)};
  const at_wire_out out = {
      .kind = AT_MSG_REFUSE, .num_parts = 2, .parts = parts};
  at_client *c = arg;
  return say_host(c, c->host_of[s->chip], m.shard.array, &out, 1);
}

// Small arrays travel inside the stream's message and need no session with the
// host. Others are announced by the stream, and their bytes follow beside it.
static at_status create(void *arg, const at_proxy_spec *s,
                        const at_bytes *data) {
  at_client *c = arg;
  bool goes_along = data && data->len <= AT_MESSAGE_INLINE;
  if (AT_UNLIKELY(at_trace_is_on(c)) && data) at_trace_create(s, *data);
  at_msg_create m = {.array = s->array,
                     .kind = (uint16_t)s->kind,
                     .dtype = (uint16_t)s->dtype,
                     .rank = s->dims.rank,
                     .has_data = goes_along};
  AT_TRY(at_far_chip(c, s->chip, &m.chip));
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            dims_of(s->dims),
                            goes_along ? *data : (at_bytes){0}};
  AT_TRY(at_client_say(c, AT_MSG_CREATE, parts, 3));
  if (!data || goes_along) return AT_OK;
  return write_array(c, &(at_proxy_shard){s->array, 0, s->chip}, *data);
}

// One array of the shards of others; the host of each shard finds its own.
static at_status group(void *arg, uint64_t array, const at_proxy_shard *shards,
                       uint32_t count) {
  at_msg_group m = {.array = array, .count = count};
  at_msg_shard *list = malloc(count * sizeof *list);
  at_status st = list ? AT_OK : no_memory();
  for (uint32_t i = 0; i < count && !st.err; i++)
    st = at_far_shard(arg, &shards[i], &list[i]);
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            {(const uint8_t *)list, count * sizeof *list}};
  if (!st.err) st = at_client_say_step(arg, AT_MSG_GROUP, parts, 2);
  free(list);
  return st;
}

// The destination's host makes an array of one shard.
static at_status copy(void *arg, const at_proxy_shard *from,
                      const at_proxy_spec *to) {
  at_msg_copy m = {.array = to->array,
                   .kind = (uint32_t)to->kind,
                   .dtype = (uint16_t)to->dtype,
                   .rank = to->dims.rank};
  AT_TRY(at_far_shard(arg, from, &m.from));
  AT_TRY(at_far_chip(arg, to->chip, &m.chip));
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m}, dims_of(to->dims)};
  return at_client_say_step(arg, AT_MSG_COPY, parts, 2);
}

// Another thread may be about to send as many as there is room for.
static void drop_now(at_client *c, uint64_t array, uint64_t bytes) {
  pthread_mutex_lock(&c->drops_lock);
  while (c->num_drops == AT_LEN(c->drops)) {
    pthread_mutex_unlock(&c->drops_lock);
    at_client_flush(c);
    pthread_mutex_lock(&c->drops_lock);
  }
  AT_ASSERT(c->num_drops < AT_LEN(c->drops));
  c->drops[c->num_drops++] = array;
  c->drop_bytes += bytes;
  bool much = c->drop_bytes >= kDropBytes || c->num_drops == AT_LEN(c->drops) ||
              atomic_load_explicit(&c->drops_at_once, memory_order_relaxed);
  pthread_mutex_unlock(&c->drops_lock);
  if (much) at_client_flush(c);
}

void at_client_drop(at_client *c, uint64_t array) { drop_now(c, array, 0); }

// Arrays that a traced program uses are dropped with that program.
static void drop(void *arg, uint64_t array, uint64_t bytes) {
  at_client *c = arg;
  if (!at_pin_drop(c, &c->pinned_arrays, array)) drop_now(c, array, bytes);
}

// ---- Programs
// Remembers a program before LOAD is sent: a launch may follow from another
// thread at once. chips: filled in with their numbers in messages.
static at_status enter_program(at_client *c, uint64_t program, at_bytes block,
                               const uint32_t *devices, uint32_t n,
                               uint32_t *chips) {
  far_program *p = NULL;
  pthread_mutex_lock(&c->lock);
  at_status st = at_far_program_make(c, program, block, devices, n, chips, &p);
  if (!st.err && !at_table_put(&c->programs, program, p)) {
    at_far_program_free(p);
    st = no_memory();
  }
  pthread_mutex_unlock(&c->lock);
  return st;
}

// The checks that this process wants travel along: ATOLL_CHECK is the client's
// setting, and hosts do not have it.
static at_status load(void *arg, uint64_t program, at_bytes executable,
                      const uint32_t *devices, uint32_t num_chips) {
  at_client *c = arg;
  at_kernel_checks checks = at_kernel_checks_wanted();
  at_msg_load m = {.program = program,
                   .num_chips = num_chips,
                   .checks = checks.checks,
                   .turns = checks.turns};
  uint32_t *chips = calloc(1, at_message_chips_bytes(num_chips));
  at_status st =
      chips ? enter_program(c, program, executable, devices, num_chips, chips)
            : no_memory();
  const at_bytes parts[] = {
      {(const uint8_t *)&m, sizeof m},
      {(const uint8_t *)chips, at_message_chips_bytes(num_chips)},
      executable};
  if (!st.err) st = at_client_say(c, AT_MSG_LOAD, parts, 3);
  free(chips);
  return st;
}

// Out of the table first, so that no new launch finds it; launches that were
// sent before it go on.
void at_client_unload(at_client *c, uint64_t program) {
  at_msg_unload m = {program};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  pthread_mutex_lock(&c->lock);
  far_program *p = at_table_take(&c->programs, program);
  pthread_mutex_unlock(&c->lock);
  at_far_program_free(p);
  at_status_free(at_client_say(c, AT_MSG_UNLOAD, &part, 1));  // as with drops
}

// at_proxy.unload. A program that a graph has is unloaded with the graph.
static void unload(void *arg, uint64_t program) {
  at_client *c = arg;
  if (!at_pin_drop(c, &c->pinned_programs, program))
    at_client_unload(c, program);
}

// Has a host or a device of the program been replaced since it was loaded? The
// runtime loads it again then.
static bool is_stale(void *arg, uint64_t program) {
  at_client *c = arg;
  pthread_mutex_lock(&c->lock);
  const far_program *p = at_table_find(&c->programs, program);
  bool stale = p && p->stale;
  pthread_mutex_unlock(&c->lock);
  return stale;
}

// Over all devices.
static uint32_t count_channels(const at_proxy_launch *l) {
  uint32_t n = 0;
  for (uint32_t d = 0; l->channels && d < l->num_devices; d++)
    n += l->channels[d].count;
  return n;
}

// Channels of all devices, one device after another, as LAUNCH lists them.
static void fill_channels(const at_proxy_launch *l, at_msg_channel *out) {
  for (uint32_t d = 0; l->channels && d < l->num_devices; d++)
    for (uint32_t i = 0; i < l->channels[d].count; i++) {
      const at_host_channel *x = &l->channels[d].list[i];
      *out++ = (at_msg_channel){.id = x->channel_id,
                                .device = d,
                                .sends = x->send != NULL,
                                .receives = x->recv != NULL};
    }
}

// The flow ties it to what the controller and hosts record of the same launch.
void at_client_record_launch(const at_client *c, uint64_t begin_ns,
                             uint64_t outputs) {
  at_span_record(&(at_profile_span){.start_ns = begin_ns,
                                    .end_ns = at_clock_ns(),
                                    .flow = at_span_flow(c->client, outputs),
                                    .kind = AT_SPAN_LAUNCH},
                 "launch");
}

// Lays the variable parts into `room`, of the size that launch() has computed,
// and sends all in three parts.
static at_status send_launch(at_client *c, const at_proxy_launch *l,
                             uint64_t number, uint8_t *room) {
  uint32_t channels = count_channels(l);
  at_msg_launch m = {.program = l->program,
                     .outputs = l->outputs,
                     .launch_id = l->launch_id,
                     .number = number,
                     .num_args = l->num_args,
                     .num_outputs = l->num_outputs,
                     .num_channels = channels};
  at_msg_arg *args = (void *)room;
  at_msg_channel *list = (void *)(args + l->num_args);
  for (uint32_t i = 0; i < l->num_args; i++)
    args[i] = (at_msg_arg){l->args[i].array, l->args[i].first,
                           (l->args[i].donated ? AT_MSG_DONATED : 0u) |
                               (l->args[i].given ? AT_MSG_GIVEN : 0u)};
  fill_channels(l, list);
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            {(const uint8_t *)args, l->num_args * sizeof *args},
                            {(const uint8_t *)list, channels * sizeof *list}};
  if (!at_spans_on()) return at_client_say_step(c, AT_MSG_LAUNCH, parts, 3);
  uint64_t begin = at_clock_ns();
  at_status st = at_client_say_step(c, AT_MSG_LAUNCH, parts, 3);
  at_client_record_launch(c, begin, l->num_outputs ? l->outputs : 0);
  return st;
}

// Where somebody waits for the launch, the question exists before the message
// goes, and the sessions with its hosts are open, since these answer directly.
// Small argument lists live on the stack.
static at_status launch(void *arg, const at_proxy_launch *l) {
  at_client *c = arg;
  _Alignas(8) uint8_t few[4096];
  size_t bytes = l->num_args * sizeof(at_msg_arg) +
                 count_channels(l) * sizeof(at_msg_channel);
  uint8_t *room = bytes <= sizeof few ? few : malloc(bytes);
  uint64_t number = 0;
  at_status st = room ? AT_OK : no_memory();
  if (!st.err && l->done) {
    pthread_mutex_lock(&c->lock);
    const far_program *p = at_table_find(&c->programs, l->program);
    pthread_mutex_unlock(&c->lock);
    // Hosts say that it is done, and what it sends, by their sessions.
    at_wire *w;
    for (uint32_t i = 0; p && i < p->num_hosts && !st.err; i++)
      st = at_far_host_wire(c, p->hosts[i], &w);
    if (!st.err) number = p ? at_question_launch(c, p, l) : 0;
    if (!st.err && !number) st = no_memory();
  }
  if (!st.err) st = send_launch(c, l, number, room);
  if (st.err && number) at_question_forget(c, number);
  if (room != few) free(room);
  return st;
}

// ---- The controller's messages
// The parts of a mixed target are kept apart, for whoever asks for the target
// of one device.
static at_status keep_target(at_client *c) {
  AT_TRY(at_topology_parse(c->target, &c->topology));
  if (c->topology.num_devices != c->num_chips)
    return AT_FAIL(AT_INVALID_ARGUMENT, "the controller has odd chips");
  for (uint32_t i = 0; i < c->topology.num_parts; i++) {
    at_str part = at_topology_part_text(c->target, i);
    c->part_targets[i] = strndup(part.ptr, part.len);
    if (!c->part_targets[i]) return no_memory();
  }
  return AT_OK;
}

// Everything that the client knows of the pod. Runs once, before anybody else
// can use the client; what has been made when it fails is freed by
// at_client_close.
static at_status keep_welcome(at_client *c, at_bytes body, uint32_t spares) {
  const at_msg_welcome *m = (const void *)body.ptr;
  const uint8_t *target =
      (const uint8_t *)(m + 1) + at_message_chips_bytes(m->num_chips);
  c->client = m->client;
  c->cpu = m->cpu;
  memcpy(c->key, m->key, sizeof c->key);
  c->num_hosts = m->num_hosts;
  c->num_chips = m->num_chips;
  c->num_listed = m->num_listed;
  c->target = strndup((const char *)target, m->target_bytes);
  c->address =
      strndup((const char *)target + m->target_bytes, m->addresses_bytes);
  c->hosts = calloc(c->num_hosts, sizeof *c->hosts);
  if (!c->target || !c->address || !c->hosts) return no_memory();
  AT_TRY(keep_target(c));
  AT_TRY(at_spares_open(c, (const uint32_t *)(m + 1), spares));
  char *at = c->address;
  for (uint32_t h = 0; h < c->num_hosts; h++) {
    c->hosts[h] =
        (far_host){.client = c, .number = h, .address = strsep(&at, ",")};
    if (!c->hosts[h].address)
      return AT_FAIL(AT_INVALID_ARGUMENT, "the controller has odd addresses");
    atomic_store(&c->hosts[h].lost, !*c->hosts[h].address);  // or not come yet
    pthread_mutex_init(&c->hosts[h].opening, NULL);
    pthread_mutex_init(&c->hosts[h].writing, NULL);
    AT_TRY(at_outbox_create(&c->hosts[h].outbox));
  }
  return AT_OK;
}

// Nothing can be asked any more. Consumes why.
static void give_up(at_client *c, at_status why) {
  pthread_mutex_lock(&c->lock);
  if (!c->why.err) c->why = at_status_clone(why);
  atomic_store(&c->closed, true);
  pthread_cond_broadcast(&c->news);
  bool hosts = c->welcomed;
  pthread_mutex_unlock(&c->lock);
  at_questions_fail(c, UINT32_MAX, why);
  at_status_free(why);
  if (c->controller) at_wire_wake(c->controller);
  for (uint32_t h = 0; hosts && h < c->num_hosts; h++)
    if (atomic_load(&c->hosts[h].wire)) at_wire_wake(c->hosts[h].wire);
}

// at_proxy.end: the runtime goes, nothing waits any longer.
static void end(void *arg) {
  give_up(arg, AT_FAIL(AT_CANCELLED, "the client of the pod is closed"));
}

// Hosts that are drained end once nothing is left on them.
static bool look_for_drains(at_client *c) {
  bool any = false;
  for (uint32_t h = 0; h < c->num_hosts; h++)
    any |= atomic_load(&c->hosts[h].drains) && !atomic_load(&c->hosts[h].lost);
  atomic_store(&c->drops_at_once, any);
  return any;
}

// Whatever waits for that host fails. Its session may still be open.
static void host_lost(at_client *c, at_bytes body) {
  const at_msg_host_lost *m = (const void *)body.ptr;
  if (!c->welcomed || m->host >= c->num_hosts) return;
  at_status why =
      AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost: %.*s", m->host,
              (int)(body.len - sizeof *m), (const char *)(m + 1));
  atomic_store(&c->hosts[m->host].lost, true);
  look_for_drains(c);
  at_questions_fail(c, m->host, why);
  at_status_free(why);
}

// Under the lock.
static void mark_stale(at_client *c, uint32_t host) {
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(&c->programs, &at));) {
    far_program *p = s->value;
    for (uint32_t i = 0; i < p->num_hosts; i++) p->stale |= p->hosts[i] == host;
  }
}

// The session with the process before stays open until the end: others may be
// about to use it.
static at_status renew_host(at_client *c, far_host *h, at_str address) {
  char *copy = strndup(address.ptr, address.len);
  at_outbox *outbox = NULL;
  at_status st = copy ? at_outbox_create(&outbox) : no_memory();
  uint32_t n = atomic_load(&h->generation);
  if (!st.err && n + 1 == AT_FAR_PROCESSES)
    st = AT_FAIL(AT_DATA_LOSS, "host %u was lost %u times", h->number, n + 1);
  if (st.err) {
    at_outbox_free(outbox);
    free(copy);
    return st;
  }
  pthread_mutex_lock(&h->opening);
  h->formers[n] = h->outbox;
  h->former_wires[n] = atomic_load(&h->wire);
  atomic_store(&h->generation, n + 1);
  h->outbox = outbox;
  free(h->own_address);
  h->address = h->own_address = copy;
  atomic_store(&h->wire, NULL);
  atomic_store(&h->lost_before, atomic_load(&c->next_name));
  atomic_store(&h->lost, false);
  pthread_mutex_unlock(&h->opening);
  return AT_OK;
}

// Not the poller's work: somebody may be calling the process before.
typedef struct coming_back {
  at_client *client;
  far_host *host;
  size_t bytes;
  char address[];
} coming_back;

// The task for one HOST_BACK. Where bytes for the host had been held back, the
// session is opened now, as its IAM says which arrays are not to be expected.
static void come_back(void *arg) {
  coming_back *b = arg;
  at_client *c = b->client;
  at_status st = renew_host(c, b->host, (at_str){b->address, b->bytes});
  if (st.err) at_log(AT_LOG_ERROR, "%s", at_status_message(st));
  at_status_free(st);
  pthread_mutex_lock(&c->lock);
  mark_stale(c, b->host->number);
  atomic_fetch_add(&c->replaced, 1);
  pthread_mutex_unlock(&c->lock);
  at_wire *w;
  if (atomic_exchange(&b->host->unsaid, false))
    at_status_free(at_far_host_wire(c, b->host->number, &w));
  free(b);
}

// Also for a host whose loss has not been heard of: it counts as lost first, so
// that questions to the former process fail.
static at_status host_back(at_client *c, at_bytes body) {
  const at_msg_host_back *m = (const void *)body.ptr;
  if (!c->welcomed || m->host >= c->num_hosts) return AT_OK;
  size_t bytes = body.len - sizeof *m;
  coming_back *b = malloc(sizeof *b + bytes);
  if (!b) return no_memory();
  *b = (coming_back){c, &c->hosts[m->host], bytes};
  memcpy(b->address, m + 1, bytes);
  at_status why = AT_FAIL(AT_DATA_LOSS, "host %u of the pod is lost", m->host);
  atomic_store(&c->hosts[m->host].lost, true);
  at_questions_fail(c, m->host, why);
  at_status_free(why);
  at_status st = at_sched_spawn(c->calls, come_back, b);
  if (st.err) free(b);
  return st;
}

// Names that were collected are dropped at once now, since the drain waits for
// them. What other threads have said is on its way already, so HEARD is behind
// it.
static void host_drains(at_client *c, const at_msg_host_drains *m) {
  if (!c->welcomed || m->host >= c->num_hosts) return;
  atomic_store(&c->hosts[m->host].drains, m->drains);
  if (look_for_drains(c)) at_client_flush(c);
  if (!m->number) return;
  const at_msg_heard heard = {m->number};
  const at_bytes part = {(const uint8_t *)&heard, sizeof heard};
  at_outbox_send(c->late, &(at_outbox_post){.lane = AT_WIRE_BULK,
                                            .message = {.kind = AT_MSG_HEARD,
                                                        .num_parts = 1,
                                                        .parts = &part}});
}

// Before anything is sent.
static at_status simulated(at_client *c, const at_msg_simulated *m) {
  if (c->welcomed || c->clock) return AT_OK;
  c->clock = at_virtual_clock_create(m);
  c->on_cpus = m->on_cpus;
  c->meet_ns = m->meet_ns;
  c->bandwidth = m->bandwidth > 0 ? m->bandwidth : 0;
  at_wire *w =
      c->clock ? at_virtual_wire(c->clock, c->controller, UINT32_MAX) : NULL;
  if (!w) return no_memory();
  pthread_mutex_lock(&c->lock);
  c->controller = w;
  pthread_mutex_unlock(&c->lock);
  at_log(
      AT_LOG_WARNING,
      "the pod's hosts are simulated: programs do not run, all values are 0, "
      "and time is virtual");
  return AT_OK;
}

// One message of the controller. Kinds that a client has no use for are
// ignored; a malformed one ends the client, as the stream cannot be relied on
// any more.
static void hear(at_client *c, const at_wire_head *head, at_bytes body) {
  at_status st = at_message_check(head->kind, body);
  if (!st.err && head->kind == AT_MSG_WELCOME && !c->greeted) {
    c->greeted = true;
    pthread_mutex_lock(&c->lock);
    st = keep_welcome(c, body, c->num_spares);
    c->welcomed = !st.err;
    pthread_cond_broadcast(&c->news);
    pthread_mutex_unlock(&c->lock);
  } else if (!st.err && head->kind == AT_MSG_SLICED && c->welcomed) {
    st = at_spares_heard(c, body);
  } else if (!st.err && head->kind == AT_MSG_SIMULATED) {
    st = simulated(c, (const void *)body.ptr);
  } else if (!st.err && head->kind == AT_MSG_HOST_LOST) {
    host_lost(c, body);
  } else if (!st.err && head->kind == AT_MSG_HOST_BACK) {
    st = host_back(c, body);
  } else if (!st.err && head->kind == AT_MSG_HOST_DRAINS) {
    host_drains(c, (const void *)body.ptr);
  } else if (!st.err && head->kind == AT_MSG_ANSWER) {
    at_question_answered(c, head->tag, body);
  } else if (!st.err && head->kind == AT_MSG_RECORD) {
    const at_msg_record *m = (const void *)body.ptr;
    atomic_store(&c->records, m->number);
    at_record_answer(c->late, m);
  } else if (!st.err && head->kind == AT_MSG_FAILED) {
    const at_msg_failed *m = (const void *)body.ptr;
    st = at_message_error(m->code, at_message_tail(body, sizeof *m));
  }
  if (st.err) give_up(c, at_status_prefix(st, "the controller of the pod"));
}

// The controller's messages. The thread is marked as a poller, so that nothing
// below waits for a wire.
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  at_far_poller = true;
  hear(arg, head, (at_bytes){body, head->bytes});
  at_far_poller = false;
  free(body);
  return true;
}

// Everything that is asked fails with the reason. Consumes why.
static void lost(void *arg, uint32_t member, at_status why) {
  at_far_poller = true;
  give_up(arg, at_status_prefix(why, "the controller of the pod is lost"));
  at_far_poller = false;
}

// ---- Sessions with hosts
// Of this thread: the host that it calls.
static _Thread_local const far_host *calling;
static bool call_is_over(void) {
  return atomic_load(&calling->lost) || atomic_load(&calling->client->closed);
}

// Opens the session and says IAM before anything else; the wire becomes visible
// to other threads only then. Under h->opening.
static at_status call_host(at_client *c, far_host *h) {
  at_session_options o = {.address = h->address,
                          .source = "the controller of the pod",
                          .token = c->token,
                          .hello = {.kind = AT_SESSION_CLIENT},
                          .timeout_ms = kHostMs,
                          .interrupted = call_is_over,
                          .sink = at_far_host_sink};
  at_wire *w;
  uint32_t n = atomic_load(&h->generation);
  h->sessions[n] = (far_session){h, n};
  o.sink.arg = &h->sessions[n];
  snprintf(o.hello.name, sizeof o.hello.name, "client %llu",
           (unsigned long long)c->client);
  calling = h;
  AT_TRY(at_session_open(&o, &w));
  at_msg_iam m = {.client = c->client, .since = atomic_load(&h->lost_before)};
  memcpy(m.key, c->key, sizeof m.key);
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  const at_wire_out iam = {.kind = AT_MSG_IAM, .num_parts = 1, .parts = &part};
  const at_wire_wait wait = {.until_ns = UINT64_MAX, .cancel = &c->closed};
  at_wire *own = c->clock ? at_virtual_wire(c->clock, w, h->number) : w;
  if (!own) return at_wire_close(w), no_memory();
  // On the lane of what follows it.
  at_status_free(at_wire_send(own, 0, AT_WIRE_BULK, &iam, 1, &wait, NULL));
  at_outbox_open(h->outbox, w, 0);
  atomic_store(&h->wire, own);
  return AT_OK;
}

// What this process lacks is not the host's loss, nor is its own end; one that
// is lost already has been told of. Consumes st, which is an error.
static at_status not_reached(at_client *c, far_host *h, at_status st) {
  if (atomic_load(&h->lost)) return at_status_free(st), AT_OK;
  if (atomic_load(&c->closed)) return st;
  if (at_status_code(st) == AT_RESOURCE_EXHAUSTED)
    return at_status_prefix(st, "host %u of the pod", h->number);
  at_status why =
      AT_FAIL(AT_DATA_LOSS, "host %u of the pod cannot be reached: %s",
              h->number, at_status_message(st));
  atomic_store(&h->lost, true);
  at_questions_fail(c, h->number, why);
  at_log(AT_LOG_ERROR, "%s", at_status_message(why));
  at_status_free(why);
  at_status_free(st);
  return AT_OK;
}

// Double-checked: the usual call is one load. Concurrent callers wait for the
// one that opens the session.
at_status at_far_host_wire(at_client *c, uint32_t host, at_wire **out) {
  far_host *h = &c->hosts[host];
  at_status st = AT_OK;
  *out = atomic_load_explicit(&h->wire, memory_order_acquire);
  if (!*out && !atomic_load(&h->lost)) {
    pthread_mutex_lock(&h->opening);
    if (!atomic_load(&h->wire) && !atomic_load(&h->lost)) {
      st = call_host(c, h);
      if (st.err) st = not_reached(c, h, st);
    }
    *out = atomic_load(&h->wire);
    pthread_mutex_unlock(&h->opening);
  }
  if (atomic_load(&h->lost)) *out = NULL;
  return st;
}

// ---- Life
// Polls `interrupted` every 100 ms and tells people every 5 s that it still
// waits.
static at_status wait_for_welcome(at_client *c, const at_client_options *o) {
  uint64_t start = at_clock_ns(), told = start;
  uint64_t most = o->timeout_ms ? o->timeout_ms : kTimeoutMs;
  at_status st = AT_OK;
  pthread_mutex_lock(&c->lock);
  while (!c->welcomed && !c->why.err && !st.err) {
    struct timespec until =
        at_clock_timespec(at_clock_ns() + kLookMs * 1000000ull);
    pthread_cond_timedwait(&c->news, &c->lock, &until);
    uint64_t now = at_clock_ns();
    if (o->interrupted && o->interrupted())
      st = AT_FAIL(AT_CANCELLED, "interrupted while the pod was not complete");
    else if (now - start > most * 1000000ull && !c->welcomed)
      st = AT_FAIL(AT_UNAVAILABLE,
                   "the pod at %s (%s) is not complete after %llu s\nhint: "
                   "`atoll pod status` says which hosts are there",
                   o->address, o->source, (unsigned long long)(most / 1000));
    if (now - told > kTellMs * 1000000ull) {
      at_log(AT_LOG_WARNING, "waiting for the hosts of the pod at %s",
             o->address);
      told = now;
    }
  }
  if (!st.err && c->why.err) st = at_status_clone(c->why);
  pthread_mutex_unlock(&c->lock);
  return st;
}

// The outbox `late` opens last: a SIMULATED before WELCOME exchanges the wire.
static at_status call_controller(at_client *c, const at_client_options *o) {
  at_session_options s = {.address = o->address,
                          .source = o->source,
                          .token = o->token,
                          .hello = {.kind = AT_SESSION_CLIENT},
                          .interrupted = o->interrupted,
                          .sink = {.arg = c,
                                   .place = at_session_block,
                                   .message = message,
                                   .abandon = at_session_unblock,
                                   .lost = lost}};
  snprintf(s.hello.name, sizeof s.hello.name, "%s", o->name ? o->name : "");
  AT_TRY(at_outbox_create(&c->late));
  AT_TRY(at_session_open(&s, &c->controller));
  at_status st = wait_for_welcome(c, o);
  at_outbox_open(c->late, c->controller, 0);  // which may be another one now
  return st;
}

// The table of calls is filled in last, as it has what the welcome says.
at_status at_client_open(const at_client_options *o, at_client **out) {
  at_client *c = calloc(1, sizeof *c);
  if (!c) return no_memory();
  pthread_mutex_init(&c->lock, NULL);
  pthread_mutex_init(&c->drops_lock, NULL);
  at_clock_cond_init(&c->news);
  c->token = o->token;
  c->num_spares = o->spares;
  atomic_init(&c->next_name, 1);
  atomic_init(&c->next_tag, 1);
  at_status st = at_sched_create(kCallThreads, kCallStack, &c->calls);
  if (!st.err) st = call_controller(c, o);
  if (st.err) {
    at_client_close(c);
    return st;
  }
  c->face = (at_proxy){.arg = c,
                       .num_hosts = c->num_hosts,
                       .host_of = c->host_of,
                       .names = names,
                       .create = create,
                       .write = write_array,
                       .refuse = refuse,
                       .group = group,
                       .copy = copy,
                       .drop = drop,
                       .read = at_question_read,
                       .watch = at_question_watch,
                       .load = load,
                       .unload = unload,
                       .is_stale = is_stale,
                       .launch = launch,
                       .end = end,
                       .stats = at_question_stats};
  at_spin_allow(false);  // hosts may share the cores of this machine
  *out = c;
  return AT_OK;
}

const at_proxy *at_client_proxy(const at_client *c) { return &c->face; }
const char *at_client_target(const at_client *c) { return c->target; }
bool at_client_is_mixed(const at_client *c) {
  return c->topology.num_parts > 1;
}
// A spare device has the target of the chips that it may stand for.
const char *at_client_target_of(const at_client *c, uint32_t device) {
  if (device >= c->num_chips)
    device =
        at_topology_spare(&c->topology, c->num_spares, device - c->num_chips);
  return c->part_targets[at_topology_place(&c->topology, device).part];
}
uint64_t at_client_cpu(const at_client *c) { return c->cpu; }
uint32_t at_client_listed(const at_client *c) { return c->num_listed; }
uint32_t at_client_spares(const at_client *c) { return c->num_spares; }

bool at_client_drains(const at_client *c, uint32_t chip) {
  return chip < c->num_chips && atomic_load(&c->hosts[c->host_of[chip]].drains);
}

// Zeros where hosts are real: nothing is to be predicted.
at_client_pace at_client_pace_of(const at_client *c) {
  if (!c->clock) return (at_client_pace){0};
  return (at_client_pace){.target = c->on_cpus ? "cpu" : c->target,
                          .bandwidth = c->bandwidth,
                          .chips_per_host = c->num_chips / c->num_hosts,
                          .meet_ns = c->meet_ns};
}

uint64_t at_client_virtual_ns(const at_client *c) {
  return c->clock ? at_virtual_clock_ns(c->clock) : 0;
}

// Two loads that do not belong to one moment; for people.
at_client_counts at_client_count(const at_client *c) {
  return (at_client_counts){atomic_load(&c->sent_messages),
                            atomic_load(&c->sent_bytes)};
}

// Its poller may answer until the wire is closed.
static void close_session(at_outbox *o, at_wire *w) {
  if (o) at_outbox_stop(o);
  at_wire_close(w);
  at_outbox_free(o);
}

// With the sessions of the processes that were this host before.
static void close_host(far_host *h) {
  close_session(h->outbox, atomic_load(&h->wire));
  for (uint32_t i = 0; i < atomic_load(&h->generation); i++)
    close_session(h->formers[i], h->former_wires[i]);
  free(h->own_address);
  pthread_mutex_destroy(&h->opening);
  pthread_mutex_destroy(&h->writing);
}

// In this order: drops go, the controller's wire closes, questions fail,
// callbacks end, then the hosts' wires close; nobody can reach the tables after
// that. Also called for a client that is half open.
void at_client_close(at_client *c) {
  if (!c) return;
  at_client_flush(c);
  if (c->controller && at_spans_on())
    at_record_rest(c->controller, atomic_load(&c->records));
  close_session(c->late, c->controller);
  c->controller = NULL;
  c->late = NULL;
  end(c);
  pthread_mutex_lock(&c->lock);
  c->closes = true;
  pthread_mutex_unlock(&c->lock);
  at_sched_destroy(c->calls);
  for (uint32_t h = 0; c->hosts && h < c->num_hosts; h++)
    if (c->hosts[h].client) close_host(&c->hosts[h]);
  at_questions_end(c);
  size_t at = 0;
  for (at_table_slot *s; (s = at_table_next(&c->programs, &at));)
    at_far_program_free(s->value);
  at_table_free(&c->programs);
  at_table_free(&c->pinned_arrays);
  at_table_free(&c->pinned_programs);
  at_table_free(&c->questions);
  at_status_free(c->why);
  at_virtual_clock_free(c->clock);
  free(c->hosts);
  at_spares_close(c);
  for (uint32_t i = 0; i < AT_TOPOLOGY_PARTS; i++) free(c->part_targets[i]);
  free(c->target);
  free(c->address);
  pthread_mutex_destroy(&c->lock);
  pthread_mutex_destroy(&c->drops_lock);
  pthread_cond_destroy(&c->news);
  free(c);
}
