// Simulated hosts: how what the controller says comes to them, and the thread
// that does it. Each host's wire ends in this process: what is sent to several
// hosts in one go is one job.
#include "control/simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "control/simulate_internal.h"
#include "device/device.h"
#include "machine/machine.h"

enum { kStack = 1 << 20 };

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for simulated hosts");
}

// ---- What is to be done
// Any thread; never waits.
void at_sim_post(at_simulated *s, sim_job *j) {
  j->next = NULL;
  pthread_mutex_lock(&s->lock);
  *s->end = j;
  s->end = &j->next;
  pthread_cond_signal(&s->news);
  pthread_mutex_unlock(&s->lock);
}

// Waits. NULL: it ends and nothing is left.
static sim_job *take_jobs(at_simulated *s) {
  pthread_mutex_lock(&s->lock);
  while (!s->first && !s->ends) pthread_cond_wait(&s->news, &s->lock);
  sim_job *all = s->first;
  s->first = NULL;
  s->end = &s->first;
  pthread_mutex_unlock(&s->lock);
  return all;
}

static void free_job(sim_job *j) {
  free(j->body);
  free(j);
}

// ---- The controller says something
// What this thread is about to send, because of which message.
typedef struct saying {
  const at_simulated *by;  // NULL: because of none
  uint64_t client, clock_ns, begin_ns;
  sim_job *first, *last;
  const void *last_body;  // that `last` is a copy of
} saying;
static _Thread_local saying now;

// CPU time of this thread: what others do on the machine does not count.
static uint64_t thread_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Kept by thread, as each session has its own.
void at_simulated_begin(at_simulated *s, uint64_t client, uint64_t clock_ns) {
  now = (saying){
      .by = s, .client = client, .clock_ns = clock_ns, .begin_ns = thread_ns()};
}

// The CPU time since at_simulated_begin is the controller's for this message;
// it is charged with the first job.
void at_simulated_end(at_simulated *s) {
  uint64_t spent = thread_ns() - now.begin_ns;
  sim_job *first = now.first;
  sim_job *heard = now.clock_ns ? calloc(1, sizeof *heard) : NULL;
  if (heard) *heard = (sim_job){.kind = kSimHeard, .client = now.client};
  now = (saying){0};
  if (first) first->spent_ns = spent;
  for (sim_job *next; first; first = next) {
    next = first->next;
    at_sim_post(s, first);
  }
  if (heard) at_sim_post(s, heard);
}

// Copies the message: it is done later, by another thread. NULL: no memory.
static sim_job *make_job(const at_simulated *s, const at_wire_out *m) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < m->num_parts; i++) bytes += m->parts[i].len;
  sim_job *j = calloc(1, sizeof *j + s->o.num_hosts * sizeof *j->hosts);
  uint8_t *body = malloc(bytes + 1);
  if (!j || !body) {
    free(j);
    free(body);
    return NULL;
  }
  j->kind = m->kind;
  j->client = m->tag;
  j->body = body;
  j->bytes = bytes;
  for (uint32_t i = 0; i < m->num_parts; i++) {
    if (m->parts[i].len) memcpy(body, m->parts[i].ptr, m->parts[i].len);
    body += m->parts[i].len;
  }
  return j;
}

// What the controller sends to several hosts in a row is one job with several
// hosts, recognized by its body.
static at_status say(sim_host *h, const at_wire_out *m) {
  at_simulated *s = h->owner;
  const void *body = m->num_parts ? m->parts[m->num_parts - 1].ptr : NULL;
  bool because = now.by == s && m->tag == now.client;
  sim_job *j = because && body && body == now.last_body ? now.last : NULL;
  if (j && j->kind == m->kind && j->num_hosts < s->o.num_hosts)
    return j->hosts[j->num_hosts++] = h->number, AT_OK;
  j = make_job(s, m);
  if (!j) return no_memory();
  j->hosts[j->num_hosts++] = h->number;
  if (!because) return at_sim_post(s, j), AT_OK;
  j->clock_ns = now.clock_ns;
  if (now.last)
    now.last->next = j;
  else
    now.first = j;
  now.last = j;
  now.last_body = body;
  return AT_OK;
}

// ---- The controller's ends of the wires
// The controller's end of a wire to a simulated host: takes everything at once.
static at_status wire_send(at_wire *w, uint32_t to, at_wire_lane lane,
                           const at_wire_out *messages, uint32_t count,
                           const at_wire_wait *wait, uint32_t *out_sent) {
  at_status st = AT_OK;
  uint32_t n = 0;
  for (; n < count && !st.err; n++) st = say((sim_host *)w, &messages[n]);
  if (out_sent) *out_sent = n - !!st.err;
  return st;
}
static void wire_release(at_wire *w, uint32_t from, at_wire_lane lane,
                         uint64_t bytes) {}
static void wire_wake(at_wire *w) {}
static at_status wire_member(at_wire *w, uint32_t member) { return AT_OK; }
static void wire_counts(at_wire *w, at_wire_counts *out) {
  *out = (at_wire_counts){0};
}
// It belongs to the host.
static void wire_close(at_wire *w) {}
static const at_wire_vtable kWire = {
    .send = wire_send,
    .release = wire_release,
    .wake = wire_wake,
    .member = wire_member,
    .counts = wire_counts,
    .close = wire_close,
};

// To the controller, whose sink takes the body.
static at_status tell_about(const sim_host *h, uint32_t kind, uint64_t tag,
                            const at_bytes *parts, uint32_t n) {
  at_wire_head head = {.tag = tag, .kind = kind, .lane = AT_WIRE_BULK};
  for (uint32_t i = 0; i < n; i++) head.bytes += parts[i].len;
  uint8_t *body = malloc(head.bytes + 1), *at = body;
  if (!body) return no_memory();
  for (uint32_t i = 0; i < n; i++) {
    memcpy(at, parts[i].ptr, parts[i].len);
    at += parts[i].len;
  }
  h->sink.message(h->sink.arg, 1, &head, body);
  return AT_OK;
}

// As tell_about, of nobody's message.
static at_status tell(const sim_host *h, uint32_t kind, const at_bytes *parts,
                      uint32_t n) {
  return tell_about(h, kind, 0, parts, n);
}

// As a real host does: asks, opens, says HOST.
static at_status join(at_simulated *s, sim_host *h,
                      const at_listener_calls *calls) {
  at_session_hello hello = {.version = AT_SESSION_VERSION,
                            .kind = AT_SESSION_HOST,
                            .id = h->number + 1,
                            .pid = (uint32_t)getpid()};
  void *peer;
  snprintf(hello.name, sizeof hello.name, "simulated host %u", h->number);
  AT_TRY(calls->ask(calls->arg, &hello, &h->sink, &peer));
  h->wire = (at_wire){.vtable = &kWire, .medium = "simulated", .count = 2};
  calls->opened(calls->arg, peer, &h->wire);
  const char *address = at_listener_address(s->listener);
  at_msg_host m = {.cpu = at_cpu_features(),
                   .place = h->number,
                   .session_bytes = strlen(address),
                   .pod_bytes = 1};
  const at_bytes parts[] = {{(const uint8_t *)&m, sizeof m},
                            {(const uint8_t *)address, m.session_bytes},
                            {(const uint8_t *)"-", 1}};
  return tell(h, AT_MSG_HOST, parts, 3);
}

// In the order of their numbers, so host i is host i.
at_status at_simulated_join(at_simulated *s, const at_listener_calls *calls) {
  for (uint32_t h = 0; h < s->o.num_hosts; h++)
    AT_TRY(join(s, &s->hosts[h], calls));
  return AT_OK;
}

// All hosts answer FORM at once: there is nobody to meet.
static void form(at_simulated *s, const sim_job *j) {
  const at_msg_form *m = (const void *)j->body;
  at_msg_formed formed = {.epoch = m->epoch};
  const at_bytes part = {(const uint8_t *)&formed, sizeof formed};
  memcpy(s->secret, m->secret, sizeof s->secret);
  at_status_free(tell(&s->hosts[j->hosts[0]], AT_MSG_FORMED, &part, 1));
}

// ---- What the controller asks beside the stream
// Simulated hosts hold nothing that people could be shown.
static void answer_look(const sim_host *h, const at_msg_look *m) {
  const at_msg_looks looks = {.number = m->number, .now_ns = at_clock_ns()};
  const at_bytes part = {(const uint8_t *)&looks, sizeof looks};
  at_status_free(tell(h, AT_MSG_LOOKS, &part, 1));
}

// ACTED with an error, for whatever the controller waits for.
static void refuse(const sim_host *h, uint64_t operation) {
  at_status why = AT_FAIL(AT_UNIMPLEMENTED,
                          "simulated hosts keep no objects and no checkpoints");
  const at_msg_answer a = {.code = (uint64_t)at_status_code(why)};
  const at_bytes parts[] = {{(const uint8_t *)&a, sizeof a},
                            at_message_text(why)};
  at_status_free(tell_about(h, AT_MSG_ACTED, operation, parts, 2));
  at_status_free(why);
}

// False: it is of the stream.
static bool answer(at_simulated *s, const sim_job *j) {
  for (uint32_t i = 0; i < j->num_hosts; i++) {
    const sim_host *h = &s->hosts[j->hosts[i]];
    if (j->kind == AT_MSG_LOOK)
      answer_look(h, (const void *)j->body);
    else if (j->kind == AT_MSG_REST)
      at_status_free(tell(h, AT_MSG_RESTED, NULL, 0));
    else if (j->kind == AT_MSG_KEEP)
      refuse(h, ((const at_msg_keep *)(const void *)j->body)->object);
    else if (j->kind == AT_MSG_SAVE || j->kind == AT_MSG_RESTORE ||
             j->kind == AT_MSG_PEEK)
      refuse(h, ((const at_msg_files *)(const void *)j->body)->operation);
    else if (j->kind == AT_MSG_COMMIT)
      refuse(h, ((const at_msg_commit *)(const void *)j->body)->operation);
    else
      return false;
  }
  return true;
}

// ---- Life
// Bodies are checked here as a real host does.
static void do_job(at_simulated *s, sim_job *j) {
  if (j->visitor)
    at_sim_visit(s, j);
  else if (j->kind == AT_MSG_FORM)
    form(s, j);
  else if (j->kind == kSimHeard)
    at_sim_heard(s, j->client);
  else if (!at_code_take(
               at_message_check(j->kind, (at_bytes){j->body, j->bytes})) &&
           !answer(s, j))
    at_sim_stream(s, j);
}

// The thread of virtual time. What people see is copied after each batch.
static void work(void *arg) {
  at_simulated *s = arg;
  for (sim_job *j; (j = take_jobs(s));) {
    for (sim_job *next; j; j = next) {
      next = j->next;
      do_job(s, j);
      free_job(j);
    }
    pthread_mutex_lock(&s->lock);
    s->shown = s->counts;
    pthread_mutex_unlock(&s->lock);
  }
}

// Tables by host, chip and core; the listener for clients; the thread. What is
// there when it fails is freed by at_simulated_free.
static at_status set_up(at_simulated *s) {
  at_topology t;
  uint32_t n = s->o.num_hosts;
  s->target = strdup(s->o.target);
  if (!s->target) return no_memory();
  s->o.target = s->target;
  AT_TRY(at_topology_parse(s->target, &t));
  if (t.num_parts > 1)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "target %s: simulated pods have chips of one kind",
                   s->target);
  if (!n || n > AT_SESSION_MOST || t.num_devices % n)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%u chips of target %s do not divide over %u hosts",
                   t.num_devices, s->target, n);
  s->num_chips = t.num_devices;
  s->hbm_bytes = t.parts[0].hw->hbm_bytes;
  s->chips_per_host = t.num_devices / n;
  s->chips_per_slice = t.num_devices / AT_MAX(t.parts[0].slices, 1u);
  s->hosts = calloc(n, sizeof *s->hosts);
  s->chip_ns = calloc(s->num_chips, sizeof *s->chip_ns);
  s->core_ns = calloc(s->o.cores + 1, sizeof *s->core_ns);
  if (!s->hosts || !s->chip_ns || !s->core_ns) return no_memory();
  for (uint32_t h = 0; h < n; h++) {
    s->hosts[h].owner = s;
    s->hosts[h].number = h;
  }
  AT_TRY(at_sim_listen(s));
  return at_thread_start("atoll-simulate", kStack, work, s, &s->thread);
}

// set_up may fail half-way, which at_simulated_free knows.
at_status at_simulated_create(const at_simulated_options *o,
                              at_simulated **out) {
  at_simulated *s = calloc(1, sizeof *s);
  if (!s) return no_memory();
  s->o = *o;
  s->end = &s->first;
  pthread_mutex_init(&s->lock, NULL);
  at_clock_cond_init(&s->news);
  at_status st = set_up(s);
  if (st.err)
    at_simulated_free(s);
  else
    *out = s;
  return st;
}

// Nobody calls any more, then the thread ends, then the sessions.
void at_simulated_free(at_simulated *s) {
  if (!s) return;
  at_listener_close(s->listener);
  pthread_mutex_lock(&s->lock);
  s->ends = true;
  pthread_cond_signal(&s->news);
  pthread_mutex_unlock(&s->lock);
  at_thread_join(s->thread);
  at_sim_visitors_free(s);
  for (sim_job *j; (j = s->first);) {
    s->first = j->next;
    free_job(j);
  }
  at_sim_tenants_free(s);
  free(s->hosts);
  free(s->chip_ns);
  free(s->core_ns);
  free(s->target);
  pthread_mutex_destroy(&s->lock);
  pthread_cond_destroy(&s->news);
  free(s);
}

const at_simulated_options *at_simulated_options_of(const at_simulated *s) {
  return &s->o;
}

// ---- The network, as the target's description has it
// Half of the round trip is one way. A host has the bandwidth of all its chips.
at_status at_simulated_network(at_simulated_options *o, at_strbuf *sources) {
  at_topology t;
  const at_machine *m;
  double dcn, latency, link, efficiency, links, hop;
  AT_TRY(at_topology_parse(o->target, &t));
  AT_TRY(at_machine_find(at_str_of(t.parts[0].hw->name), &m));
  AT_TRY(at_machine_need(m, "dcn_bytes_per_second_per_chip", &dcn));
  AT_TRY(at_machine_need(m, "dcn_latency_seconds", &latency));
  AT_TRY(at_machine_need(m, "ici_link_bytes_per_second", &link));
  AT_TRY(at_machine_need(m, "ici_efficiency", &efficiency));
  AT_TRY(at_machine_need(m, "ici_links_per_chip", &links));
  AT_TRY(at_machine_need(m, "ici_hop_seconds", &hop));
  o->latency = (uint64_t)(latency / 2 * 1e9);
  o->bytes_per_s = dcn * (double)(t.num_devices / AT_MAX(o->num_hosts, 1u));
  o->ici_latency = (uint64_t)(hop * 1e9);
  o->ici_bytes_per_s = link * efficiency;
  static const char *const names[] = {"dcn_bytes_per_second_per_chip",
                                      "dcn_latency_seconds",
                                      "ici_link_bytes_per_second"};
  for (size_t i = 0; sources && i < AT_LEN(names); i++) {
    at_figure f;
    if (!at_machine_figure(m, names[i], &f)) continue;
    at_strbuf_addf(sources, "%s %g: %.*s\n", names[i], f.value,
                   (int)f.source.len, f.source.ptr);
  }
  return AT_OK;
}
