// The controller's process: who is there, and where what clients say goes.
#include "control/controller.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "control/controller_internal.h"
#include "control/simulate.h"
#include "device/device.h"

// Stack of the keeper; how often it looks at what nobody tells it, as a rule
// and while a trace is made; how long hosts may miss each other before the pod
// forms anew.
enum {
  kStack = 256 << 10,
  kLookNs = 200000000,
  kRecordNs = 50000000,
  kTornNs = 1000000000
};

// ---- Peers
// Under the lock. A peer that is not in the list is ignored.
static void leave_list(peer *p) {
  peer **at = &p->controller->peers;
  while (*at && *at != p) at = &(*at)->next;
  if (*at) *at = p->next;
}

// Under the lock: the keeper looks after it.
static void call_keeper(at_controller *c) { pthread_cond_signal(&c->news); }

// p is in no list and no table; not under the lock, since closing a wire waits
// for its poller.
static void free_peer(peer *p) {
  at_outbox_free(p->outbox);
  at_wire_close(p->wire);
  at_client_tables_free(p);
  free(p->looks);
  free(p->session);
  free(p->pod);
  free(p);
}

void at_peer_say(peer *p, uint32_t kind, const at_bytes *parts, uint32_t n) {
  at_outbox_send(p->outbox, &(at_outbox_post){.lane = AT_WIRE_BULK,
                                              .message = {.kind = kind,
                                                          .num_parts = n,
                                                          .parts = parts}});
}

// ---- The pod comes together; under the lock
// The CPU features that every host has: clients compile for these. All
// num_hosts hosts have come.
static uint64_t common_cpu(const at_controller *c) {
  uint64_t cpu = UINT64_MAX;
  for (uint32_t i = 0; i < c->num_hosts; i++) cpu &= c->hosts[i]->cpu;
  return cpu;
}

// It has ended, and no other process has its place.
static bool is_drained(const at_controller *c, uint32_t host) {
  return c->drains[host] == DRAIN_ENDED;
}

// Of those that have not come, and for a meeting of those that are drained: "".
static at_strbuf addresses_of(const at_controller *c, bool pod) {
  at_strbuf b = {0};
  for (uint32_t i = 0; i < c->num_hosts; i++) {
    const char *address = pod ? c->hosts[i]->pod : c->hosts[i]->session;
    at_strbuf_addf(&b, "%s%s", i ? "," : "",
                   pod && is_drained(c, i) ? "" : address);
  }
  for (uint32_t i = c->num_hosts; i < c->max_hosts && !pod; i++)
    at_strbuf_addz(&b, ",");
  return b;
}

// Is every host there that is not drained, and any?
static bool all_came(const at_controller *c) {
  bool any = false;
  for (uint32_t i = 0; i < c->num_hosts; i++) {
    if (is_drained(c, i)) continue;
    if (!c->hosts[i] || c->hosts[i]->gone) return false;
    any = true;
  }
  return any;
}

// If every host is there, tells all of them to form a new epoch. What they
// answer to earlier FORMs does not count any more. Those that are drained take
// no part.
static void form_if_complete(at_controller *c) {
  if (!all_came(c)) return;
  at_strbuf addresses = addresses_of(c, true);
  c->epoch++;
  c->formed = 0;
  c->up = false;
  c->forming = true;
  c->torn_ns = 0;
  for (uint32_t i = 0; i < c->num_hosts; i++) {
    at_msg_form m = {.me = i,
                     .count = c->num_hosts,
                     .places = c->max_hosts,
                     .epoch = c->epoch,
                     .target_bytes = strlen(c->target),
                     .addresses_bytes = addresses.len};
    if (is_drained(c, i)) continue;
    c->hosts[i]->formed = false;
    memcpy(m.secret, c->secret, sizeof m.secret);
    const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                              {(const uint8_t *)c->target, m.target_bytes},
                              {(const uint8_t *)addresses.ptr, addresses.len}};
    at_peer_say(c->hosts[i], AT_MSG_FORM, parts, 3);
  }
  at_strbuf_free(&addresses);
}

// With the reason, as the controller knows it.
static void say_lost(peer *client, const peer *host) {
  at_msg_host_lost m = {.host = host->number};
  const char *why = host->why;
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            {(const uint8_t *)why, strlen(why)}};
  at_peer_say(client, AT_MSG_HOST_LOST, parts, 2);
}

// Before WELCOME, so that the client's clock runs from its first message on.
static void say_simulated(at_controller *c, peer *p) {
  const at_simulated_options *o = at_simulated_options_of(c->simulated);
  // Where processes share cores, their chips are on these, too.
  at_msg_simulated m = {.client_ns = o->charges.client_message,
                        .bandwidth = o->bandwidth,
                        .on_cpus = o->cores > 0};
  if (o->cores)
    m.meet_ns = o->charges.chip_meet +
                o->charges.host_meet * c->num_hosts / c->num_chips;
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  at_peer_say(p, AT_MSG_SIMULATED, &part, 1);
}

// A client may begin: what the pod is, the key for its hosts, and then what it
// has missed: hosts that are lost, and those that are drained.
static void welcome(at_controller *c, peer *p) {
  if (c->simulated) say_simulated(c, p);
  at_strbuf addresses = addresses_of(c, false);
  at_msg_welcome m = {.client = p->client,
                      .epoch = c->epoch,
                      .cpu = common_cpu(c),
                      .num_hosts = c->max_hosts,
                      .num_chips = c->num_chips,
                      .num_listed = c->num_chips / c->max_hosts * c->num_hosts,
                      .target_bytes = strlen(c->target),
                      .addresses_bytes = addresses.len};
  at_control_key(c->secret, p->client, m.key);
  const at_bytes parts[] = {
      {(const uint8_t *)&m, sizeof m},
      {(const uint8_t *)c->host_of, at_message_chips_bytes(c->num_chips)},
      {(const uint8_t *)c->target, m.target_bytes},
      {(const uint8_t *)addresses.ptr, addresses.len}};
  at_recording_welcome(p);
  at_peer_say(p, AT_MSG_WELCOME, parts, 4);
  at_strbuf_free(&addresses);
  p->welcomed = true;
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->hosts[i]->gone) say_lost(p, c->hosts[i]);
  at_drain_tell(p);
}

// A drained host is not waited for, and is no pod by itself.
bool at_controller_is_complete(const at_controller *c) {
  uint32_t there = 0, drained = 0;
  for (uint32_t i = 0; i < c->num_hosts; i++) {
    there += c->hosts[i] && c->hosts[i]->formed && !c->hosts[i]->gone;
    drained += c->hosts[i] && is_drained(c, i);
  }
  return there && there + drained == c->num_hosts;
}

// Clients wait for the first case; the second is one of hosts that waited for
// the one that has just been drained.
void at_controller_go_on(at_controller *c) {
  if (!at_controller_is_complete(c)) {
    if (!c->forming) form_if_complete(c);
    return;
  }
  for (peer *p = c->peers; p; p = p->next)
    if (p->kind == AT_SESSION_CLIENT && !p->welcomed && !p->gone) welcome(c, p);
}

// With a zero behind it. NULL: no memory.
static char *copy_text(const uint8_t *p, uint64_t n) {
  char *text = malloc(n + 1);
  if (!text) return NULL;
  memcpy(text, p, n);
  text[n] = 0;
  return text;
}

// Its place among the hosts: the one that it asks for, if nobody has it; the
// next one, if there are more than have come. max_hosts: there is none.
static uint32_t free_place(const at_controller *c, int64_t wanted) {
  uint32_t first = c->num_hosts;
  for (uint32_t i = c->num_hosts; i-- > 0;)
    if ((!c->hosts[i] || c->hosts[i]->gone) && !is_drained(c, i)) {
      if ((int64_t)i == wanted) return i;
      first = i;
    }
  return first;
}

// Why there is no place for another host: where one is drained, how it is taken
// back.
static at_status no_place(const at_controller *c) {
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (is_drained(c, i))
      return AT_FAIL(AT_FAILED_PRECONDITION,
                     "host %u of the pod is drained, and no other place is "
                     "free\nhint: atoll pod undrain %u",
                     i, i);
  return AT_FAIL(AT_FAILED_PRECONDITION, "the pod has its %u hosts",
                 c->max_hosts);
}

// Consumes why.
static void turn_away(peer *p, at_status why) {
  at_log(AT_LOG_WARNING, "%s: %s", p->hello.name, at_status_message(why));
  at_status_free(why);
  at_peer_say(p, AT_MSG_STOP, NULL, 0);
}

// Gives a host its place. The second HOST of a session is ignored. A host
// beyond those that have come so far must have the CPU features that loaded
// programs may use.
static void host_came(peer *p, at_bytes body) {
  at_controller *c = p->controller;
  const at_msg_host *m = (const void *)body.ptr;
  const uint8_t *texts = (const uint8_t *)(m + 1);
  uint32_t place = free_place(c, m->place);
  if (p->session) return;
  if (place == c->max_hosts) return turn_away(p, no_place(c));
  if (place == c->num_hosts && (common_cpu(c) & ~m->cpu))
    return turn_away(p, AT_FAIL(AT_FAILED_PRECONDITION,
                                "its CPU lacks what programs of this pod use"));
  // The session's address for clients, then the one for other hosts.
  char *session = copy_text(texts, m->session_bytes);
  char *pod = copy_text(texts + m->session_bytes, m->pod_bytes);
  if (!session || !pod) {
    free(session);
    free(pod);
    return turn_away(p, AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a host"));
  }
  p->session = session;
  p->pod = pod;
  p->cpu = m->cpu;
  p->number = place;
  // It takes part from the next epoch on, which forms when all are there.
  p->joined = c->epoch + 1;
  // The process before it stays a peer until its session has closed.
  if (c->hosts[place]) c->hosts[place]->replaced = true;
  c->hosts[place] = p;
  if (place == c->num_hosts) c->num_hosts++;
  at_log(AT_LOG_INFO, "host %u of %u is there: %s", p->number, c->num_hosts,
         p->hello.name);
  form_if_complete(c);
}

// Arrays of before are not on the new process; the client hears where it is
// found.
static void say_back(peer *client, const peer *host) {
  at_msg_host_back m = {.host = host->number};
  const at_bytes parts[] = {
      {(const uint8_t *)&m, sizeof m},
      {(const uint8_t *)host->session, strlen(host->session)}};
  at_peer_say(client, AT_MSG_HOST_BACK, parts, 2);
}

// All hosts are there (again).
static void pod_formed(at_controller *c) {
  c->up = true;
  c->forming = false;
  at_log(AT_LOG_INFO, "the pod is there: %s over %u hosts, epoch %llu",
         c->target, c->num_hosts, (unsigned long long)c->epoch);
  for (uint32_t i = 0; i < c->num_hosts; i++) {
    peer *h = c->hosts[i];
    if (h->announced || h->gone) continue;
    h->announced = true;
    h->joined = c->epoch;
    for (peer *p = c->peers; p; p = p->next)
      if (p->kind == AT_SESSION_CLIENT && p->welcomed && !p->gone)
        say_back(p, h);
  }
  at_controller_go_on(c);
}

// FORMED counts for the current epoch only. A host that could not form is no
// reason to give up: after kTornNs all try again.
static void host_formed(peer *p, at_bytes body) {
  at_controller *c = p->controller;
  const at_msg_formed *m = (const void *)body.ptr;
  if (!p->session || p->formed || m->epoch != c->epoch) return;
  if (m->code) {
    snprintf(p->why, sizeof p->why, "%.*s", (int)(body.len - sizeof *m),
             (const char *)(m + 1));
    at_log(AT_LOG_WARNING, "host %u: %s", p->number, p->why);
    c->torn_ns = at_clock_ns();  // once more, with all that are there then
    return;
  }
  p->formed = true;
  *p->why = 0;
  c->formed++;
  if (at_controller_is_complete(c)) pod_formed(c);
}

// One of those who are to meet is gone: the others need not wait for it.
static void stop_forming(at_controller *c) {
  c->forming = false;
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->hosts[i] && !c->hosts[i]->gone)
      at_peer_say(c->hosts[i], AT_MSG_BREAK, NULL, 0);
}

// In this order: clients hear of it, what was held for them goes on, and only
// then operations end and devices move, since that may ask for more.
void at_host_leaves(peer *p) {
  at_controller *c = p->controller;
  c->up = false;
  c->formed -= p->formed;
  p->formed = false;
  p->gone = true;
  // Those who are still connecting to it need not go on.
  if (c->forming) stop_forming(c);
  for (peer *q = c->peers; q; q = q->next) {
    if (q->kind != AT_SESSION_CLIENT || !q->welcomed || q->gone) continue;
    say_lost(q, p);
    // Its launches will not end there: what was held for them goes on.
    at_flight_did(q, p->number, UINT32_MAX);
    at_client_goes_on(q);
  }
  at_operations_lose(c, p->number);
  at_slices_move(c);
}

// Launches that have ended let held messages of that client go on.
static void host_did(peer *p, const at_msg_did *m) {
  peer *client = p->controller->peers;
  while (client &&
         !(client->kind == AT_SESSION_CLIENT && client->client == m->client))
    client = client->next;
  if (!p->session || p->gone || !client) return;
  at_flight_did(client, p->number, m->launches);
  at_client_goes_on(client);
}

// The end of a host's session. One that was replaced, or has ended as it was
// told to, is no loss.
static void host_lost(peer *p) {
  if (!p->session || p->replaced || p->controller->closes) return;
  if (is_drained(p->controller, p->number)) return;
  at_log(AT_LOG_WARNING, "host %u is lost: %s", p->number, p->why);
  at_drain_lost(p);
  at_host_leaves(p);
}

// ---- Tools
// ORDERED, or FAILED with the error. Consumes st.
static void answer(peer *tool, at_status st) {
  at_msg_failed m = {.code = (uint64_t)at_status_code(st)};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            at_message_text(st)};
  at_peer_say(tool, st.err ? AT_MSG_FAILED : AT_MSG_ORDERED, parts,
              st.err ? 2 : 0);
  at_status_free(st);
}

// One order or question. Anything else is ignored.
static void tool_asks(peer *p, uint32_t kind, at_bytes body) {
  at_controller *c = p->controller;
  if (kind == AT_MSG_ERASE) {
    const at_str name = {(const char *)body.ptr, body.len};
    return answer(p, at_named_erase(c, name));
  }
  if (kind == AT_MSG_STOP) {
    c->stopped = true;
    answer(p, AT_OK);
  } else if (kind == AT_MSG_DRAIN) {
    answer(p, at_drain(c, (const void *)body.ptr));
  } else if (kind == AT_MSG_TRACE) {
    const at_msg_trace *m = (const void *)body.ptr;
    at_status st = at_recording_order(p, m->on);
    if (m->on || st.err) answer(p, st);
  } else if (kind == AT_MSG_STATUS) {
    const at_msg_status *m = (const void *)body.ptr;
    at_status_ask(p, body.len ? m->watch_ms : 0);
  }
}

// ---- The sink of all sessions
// Of a client's launch, before its body is sent on.
static uint64_t flow_of(const peer *p, const at_wire_head *head,
                        const void *body) {
  if (head->kind == AT_MSG_RUN)
    return at_span_flow(p->client, ((const at_msg_run *)body)->first);
  if (head->kind != AT_MSG_LAUNCH) return 0;
  const at_msg_launch *m = body;
  return at_span_flow(p->client, m->num_outputs ? m->outputs : 0);
}

// A client's message, with a span of how long the controller has had it where
// spans are kept. The return value is at_client_says's.
static bool client_says(peer *p, const at_wire_head *head, void *body,
                        uint64_t heard_ns) {
  if (head->kind == AT_MSG_RECORDED) {
    at_recording_heard(p, (at_bytes){body, head->bytes});
    free(body);
    return true;
  }
  if (AT_LIKELY(!heard_ns)) return at_client_says(p, head, body);
  uint64_t flow = flow_of(p, head, body);
  bool done = at_client_says(p, head, body);
  if (flow)
    at_span_record(&(at_profile_span){.start_ns = heard_ns,
                                      .end_ns = at_clock_ns(),
                                      .flow = flow,
                                      .kind = AT_SPAN_ORDER},
                   "order");
  return done;
}

// All messages go through the one lock, which is what puts those of several
// clients into one order. True: the message's credits go back now.
static bool hear(peer *p, const at_wire_head *head, void *body) {
  at_bytes b = {body, head->bytes};
  bool done = true;
  uint64_t heard_ns = at_spans_on() ? at_clock_ns() : 0;
  pthread_mutex_lock(&p->controller->lock);
  switch (p->kind) {
    case AT_SESSION_CLIENT:
      done = client_says(p, head, body, heard_ns);
      break;
    case AT_SESSION_HOST:
      if (head->kind == AT_MSG_HOST) host_came(p, b);
      if (head->kind == AT_MSG_FORMED) host_formed(p, b);
      if (head->kind == AT_MSG_ACTED) at_operation_acted(p, head->tag, b);
      if (head->kind == AT_MSG_MISSES && !p->controller->torn_ns)
        p->controller->torn_ns = at_clock_ns();
      if (head->kind == AT_MSG_DID) host_did(p, (const void *)b.ptr);
      if (head->kind == AT_MSG_RECORDED) at_recording_heard(p, b);
      if (head->kind == AT_MSG_LOOKS) at_status_heard(p, b);
      if (head->kind == AT_MSG_RESTED) at_drain_rested(p);
      break;
    default:
      tool_asks(p, head->kind, b);
  }
  at_flight_unlock(p->controller);
  return done;
}

// The sink of every session. Malformed messages are dropped and logged, and
// their sender stays.
static bool message(void *arg, uint32_t from, const at_wire_head *head,
                    void *body) {
  peer *p = arg;
  at_status st = at_message_check(head->kind, (at_bytes){body, head->bytes});
  if (st.err) {
    at_log(AT_LOG_WARNING, "%s: %s", p->hello.name, at_status_message(st));
    at_status_free(st);
    free(body);
    return true;
  }
  if (p->kind == AT_SESSION_CLIENT) return hear(p, head, body);
  hear(p, head, body);
  free(body);
  return true;
}

// Of a client of simulated hosts, whose virtual time is the tag.
static bool simulated_message(void *arg, uint32_t from,
                              const at_wire_head *head, void *body) {
  peer *p = arg;
  at_simulated *s = p->controller->simulated;
  at_simulated_begin(s, p->client, head->tag);
  bool done = message(arg, from, head, body);
  at_simulated_end(s);
  return done;
}

// The peer stays in its list until the keeper has closed its wire, which a
// wire's own thread cannot do.
static void lost(void *arg, uint32_t member, at_status why) {
  peer *p = arg;
  at_controller *c = p->controller;
  pthread_mutex_lock(&c->lock);
  if (!*p->why) snprintf(p->why, sizeof p->why, "%s", at_status_message(why));
  p->gone = true;
  if (p->kind == AT_SESSION_CLIENT) at_client_leaves(p);
  if (p->kind == AT_SESSION_HOST) host_lost(p);
  call_keeper(c);
  at_flight_unlock(c);
  at_status_free(why);
}

// ---- Who comes
// Under the lock.
static at_status check_kind(const at_controller *c,
                            const at_session_hello *hello) {
  if (hello->kind == AT_SESSION_HOST && free_place(c, -1) == c->max_hosts)
    return no_place(c);
  if (hello->kind < AT_SESSION_CLIENT || hello->kind > AT_SESSION_TOOL)
    return AT_FAIL(AT_INVALID_ARGUMENT, "this is the controller of a pod");
  return AT_OK;
}

// at_listener_calls.ask: the peer is in the list before its wire is open, as
// messages may come first.
static at_status ask(void *arg, const at_session_hello *hello,
                     at_wire_sink *sink, void **out) {
  at_controller *c = arg;
  peer *p = calloc(1, sizeof *p);
  at_status st = p ? at_outbox_create(&p->outbox)
                   : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a session");
  if (st.err) return free(p), st;
  p->controller = c;
  p->kind = hello->kind;
  p->hello = *hello;
  pthread_mutex_lock(&c->lock);
  st = check_kind(c, hello);
  if (!st.err) {
    p->client = ++c->num_clients;
    p->next = c->peers;
    c->peers = p;
  }
  pthread_mutex_unlock(&c->lock);
  if (st.err) return free_peer(p), st;
  *sink = (at_wire_sink){.arg = p,
                         .place = at_session_block,
                         .message = message,
                         .abandon = at_session_unblock,
                         .lost = lost};
  if (c->simulated && hello->kind == AT_SESSION_CLIENT)
    sink->message = simulated_message;
  *out = p;
  return AT_OK;
}

// at_listener_calls.opened: what was posted so far goes out.
static void opened(void *arg, void *peer_arg, at_wire *w) {
  at_controller *c = arg;
  peer *p = peer_arg;
  pthread_mutex_lock(&c->lock);
  p->wire = w;
  at_outbox_open(p->outbox, w, 1);
  if (p->kind == AT_SESSION_CLIENT && !p->gone && at_controller_is_complete(c))
    welcome(c, p);
  if (p->gone) call_keeper(c);
  pthread_mutex_unlock(&c->lock);
}

// at_listener_calls.broken: the session never opened, so nothing of it is under
// way.
static void broken(void *arg, void *peer_arg, at_status why) {
  at_controller *c = arg;
  peer *p = peer_arg;
  at_status_free(why);
  pthread_mutex_lock(&c->lock);
  leave_list(p);
  pthread_mutex_unlock(&c->lock);
  free_peer(p);
}

// ---- The keeper closes the sessions of those who are gone
// Under the lock. Hosts stay in the table of hosts, so that they have a name.
static peer *take_gone(at_controller *c) {
  for (peer *p = c->peers; p; p = p->next) {
    bool stays = p->kind == AT_SESSION_HOST && p->session && !p->replaced;
    if (!p->gone || !p->wire || p->letters || (stays && p->closed)) continue;
    p->closed = true;
    return p;
  }
  return NULL;
}

// All hosts are here, but some do not reach each other: it may have been the
// network, or that one did not get a core for long.
static void mend(at_controller *c) {
  c->torn_ns = 0;
  if (c->up)
    at_log(AT_LOG_WARNING,
           "hosts of the pod have lost each other: it forms anew");
  form_if_complete(c);  // or when the lost ones are back
}

// The keeper's thread. It closes sessions without the lock, since their threads
// may be waiting for it.
static void keep(void *arg) {
  at_controller *c = arg;
  pthread_mutex_lock(&c->lock);
  while (!c->closes) {
    if (c->torn_ns && at_clock_ns() - c->torn_ns > kTornNs) mend(c);
    at_drain_look(c);
    at_status_look(c);
    at_recording_look(c);
    peer *p = take_gone(c);
    if (!p) {  // one that is gone may still have letters under way
      struct timespec until = at_clock_timespec(
          at_clock_ns() + (c->recording.tool ? kRecordNs : kLookNs));
      pthread_cond_timedwait(&c->news, &c->lock, &until);
      continue;
    }
    bool stays = p->kind == AT_SESSION_HOST && p->session && !p->replaced;
    if (!stays) leave_list(p);
    pthread_mutex_unlock(&c->lock);
    if (stays)
      at_outbox_stop(p->outbox);
    else
      free_peer(p);
    pthread_mutex_lock(&c->lock);
  }
  pthread_mutex_unlock(&c->lock);
}

// ---- For people
void at_controller_status(at_controller *c, at_strbuf *out) {
  pthread_mutex_lock(&c->lock);
  at_controller_print(c, out);
  pthread_mutex_unlock(&c->lock);
}

// ---- Life
// Checks the options and makes the tables by chip and by host. The secret, of
// which clients' keys are made, is new with every controller.
static at_status count_chips(at_controller *c) {
  AT_TRY(at_topology_parse(c->target, &c->topology));
  c->num_chips = c->topology.num_devices;
  if (!c->num_hosts || c->num_hosts > c->max_hosts ||
      c->max_hosts > AT_SESSION_MOST || c->num_chips % c->max_hosts)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%u chips of target %s do not divide over %u hosts",
                   c->num_chips, c->target, c->max_hosts);
  c->host_of = calloc(c->num_chips + 1, sizeof *c->host_of);
  c->hosts = calloc(c->max_hosts, sizeof *c->hosts);
  c->drains = calloc(c->max_hosts, sizeof *c->drains);
  if (!c->host_of || !c->hosts || !c->drains)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a controller");
  for (uint32_t i = 0; i < c->num_chips; i++)
    c->host_of[i] = i / (c->num_chips / c->max_hosts);
  return at_random(c->secret, sizeof c->secret);
}

// The listener starts last: calls come from then on. Simulated hosts join by
// the same calls as real ones.
at_status at_controller_open(const at_controller_options *o,
                             at_controller **out) {
  at_controller *c = calloc(1, sizeof *c);
  if (!c) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a controller");
  pthread_mutex_init(&c->lock, NULL);
  at_clock_cond_init(&c->news);
  c->target = strdup(o->target);
  c->num_hosts = o->num_hosts;
  c->simulated = o->simulated;
  c->max_hosts = o->max_hosts ? o->max_hosts : o->num_hosts;
  at_status st =
      c->target ? count_chips(c)
                : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a controller");
  if (!st.err)
    st = at_thread_start("atoll-keeper", kStack, keep, c, &c->keeper);
  if (!st.err)
    st = at_listener_open(&(at_listener_options){.address = o->listen,
                                                 .source = "--listen",
                                                 .token = o->token,
                                                 .calls = {.arg = c,
                                                           .ask = ask,
                                                           .opened = opened,
                                                           .broken = broken}},
                          &c->listener);
  if (!st.err && c->simulated)
    st = at_simulated_join(
        c->simulated,
        &(at_listener_calls){
            .arg = c, .ask = ask, .opened = opened, .broken = broken});
  if (st.err)
    at_controller_close(c);
  else
    *out = c;
  return st;
}

const char *at_controller_address(const at_controller *c) {
  return at_listener_address(c->listener);
}

// How many have formed and are there.
uint32_t at_controller_hosts(at_controller *c) {
  uint32_t n = 0;
  pthread_mutex_lock(&c->lock);
  for (uint32_t i = 0; i < c->num_hosts; i++)
    n += c->hosts[i] && c->hosts[i]->formed && !c->hosts[i]->gone;
  pthread_mutex_unlock(&c->lock);
  return n;
}

// The host's process has ended and is not to come back by itself.
bool at_controller_drained(at_controller *c, uint32_t host) {
  pthread_mutex_lock(&c->lock);
  bool drained = host < c->num_hosts && is_drained(c, host);
  pthread_mutex_unlock(&c->lock);
  return drained;
}

bool at_controller_stopped(at_controller *c) {
  pthread_mutex_lock(&c->lock);
  bool stopped = c->stopped;
  pthread_mutex_unlock(&c->lock);
  return stopped;
}

// Beside what lies in its outbox, for which it may have no room.
void at_host_end(peer *host) {
  const at_wire_wait at_once = {0};
  const at_wire_out m = {.kind = AT_MSG_STOP};
  if (host->wire)
    at_status_free(
        at_wire_send(host->wire, 1, AT_WIRE_CONTROL, &m, 1, &at_once, NULL));
}

// No caller any more, then no keeper, then no operation, then no wires; peers
// are freed when nobody can name them.
void at_controller_close(at_controller *c) {
  if (!c) return;
  at_listener_close(c->listener);
  pthread_mutex_lock(&c->lock);
  c->closes = true;
  for (uint32_t i = 0; c->hosts && i < c->num_hosts; i++)
    if (c->hosts[i] && !c->hosts[i]->gone) at_host_end(c->hosts[i]);
  call_keeper(c);
  pthread_mutex_unlock(&c->lock);
  at_thread_join(c->keeper);
  pthread_mutex_lock(&c->lock);
  at_operations_end(c);  // which looks for peers
  c->closing = c->peers;
  c->peers = NULL;
  pthread_mutex_unlock(&c->lock);
  // Letters of clients lie in the outboxes of hosts, and what a client says
  // before its wire is closed still looks for them.
  for (peer *p = c->closing; p; p = p->next) at_outbox_stop(p->outbox);
  for (peer *p = c->closing; p; p = p->next) {
    at_wire_close(p->wire);
    p->wire = NULL;
  }
  for (peer *p; (p = c->closing);) {
    c->closing = p->next;
    free_peer(p);
  }
  at_named_free(c);
  at_client_sets_free(c);
  free(c->hosts);
  free(c->host_of);
  free(c->drains);
  free(c->target);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->news);
  free(c);
}
