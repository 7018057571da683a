// What people are told of a pod: the controller's own tables, and what the
// hosts say of themselves when they are asked.
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "control/controller_internal.h"
#include "control/simulate.h"
#include "device/device.h"

static const uint64_t kPatienceNs = 500000000, kRateNs = 1000000000;

static void put_text(at_json_writer *w, const char *key, const char *value) {
  at_json_put_str(w, key, at_str_of(value));
}

static void put_real(at_json_writer *w, const char *key, double value) {
  at_json_key(w, at_str_of(key));
  at_json_num(w, value);
}

static void begin_list(at_json_writer *w, const char *key) {
  at_json_key(w, at_str_of(key));
  at_json_begin_array(w);
}

// ---- Hosts
// "up" where it has formed the epoch, "joining" while it has not; draining and
// loss go before these.
static const char *state_of(const peer *p) {
  switch ((drain_state)p->controller->drains[p->number]) {
    case DRAIN_ENDED:
      return "drained";
    case DRAIN_STARTED:
    case DRAIN_FORCED:
    case DRAIN_RESTS:
      return "draining";
    default:
      return p->gone ? "lost" : p->formed ? "up" : "joining";
  }
}

// One device of a host; sizes in bytes.
static void print_chip(at_json_writer *w, const at_topology *t,
                       const at_look_chip *c) {
  at_json_begin_object(w);
  at_json_put_uint(w, "chip", c->chip);
  if (c->chip < t->num_devices)
    at_json_put_uint(w, "slice", at_topology_place(t, c->chip).slice);
  at_json_put_uint(w, "queued", c->queued);
  at_json_put_uint(w, "in_use", c->in_use);
  at_json_put_uint(w, "peak", c->peak);
  at_json_put_uint(w, "limit", c->limit);
  at_json_end_object(w);
}

// What one client holds on a host.
static void print_holder(at_json_writer *w, const at_look_tenant *t) {
  at_json_begin_object(w);
  at_json_put_uint(w, "client", t->client);
  at_json_put_uint(w, "arrays", t->arrays);
  at_json_put_uint(w, "hbm_bytes", t->bytes);
  at_json_put_uint(w, "host_bytes", t->host_bytes);
  at_json_end_object(w);
}

// With what it has said last of its chips and clients; nothing of that once it
// is gone.
static void print_host(at_json_writer *w, const at_topology *t, const peer *p) {
  const at_controller *c = p->controller;
  at_json_begin_object(w);
  at_json_put_uint(w, "host", p->number);
  put_text(w, "name", p->hello.name);
  put_text(w, "address", p->session);
  at_json_put_uint(w, "pid", p->hello.pid);
  at_json_put_uint(w, "uid", p->hello.uid);
  at_json_put_uint(w, "chips", c->num_chips / c->max_hosts);
  put_text(w, "state", state_of(p));
  if (*p->why) put_text(w, "why", p->why);
  const at_msg_looks *l = p->gone ? NULL : p->looks;
  begin_list(w, "devices");
  for (uint32_t i = 0; l && i < l->num_chips; i++)
    print_chip(w, t, &at_look_chips(l)[i]);
  at_json_end_array(w);
  begin_list(w, "holders");
  for (uint32_t i = 0; l && i < l->num_tenants; i++)
    if (at_look_tenants(l)[i].arrays) print_holder(w, &at_look_tenants(l)[i]);
  at_json_end_array(w);
  at_json_end_object(w);
}

// ---- Clients
// Sums over all hosts that are there.
static at_look_tenant held_by(const at_controller *c, uint64_t client) {
  at_look_tenant sum = {.client = client};
  for (uint32_t i = 0; i < c->num_hosts; i++) {
    const peer *h = c->hosts[i];
    const at_msg_looks *l = h && !h->gone ? h->looks : NULL;
    for (uint32_t k = 0; l && k < l->num_tenants; k++) {
      if (at_look_tenants(l)[k].client != client) continue;
      sum.bytes += at_look_tenants(l)[k].bytes;
      sum.host_bytes += at_look_tenants(l)[k].host_bytes;
    }
  }
  return sum;
}

// launch_rate: launches per second, averaged over a second or more.
static void print_client(at_json_writer *w, const peer *p) {
  at_look_tenant holds = held_by(p->controller, p->client);
  at_json_begin_object(w);
  at_json_put_uint(w, "client", p->client);
  put_text(w, "name", p->hello.name);
  at_json_put_uint(w, "pid", p->hello.pid);
  at_json_put_uint(w, "uid", p->hello.uid);
  at_json_put_uint(w, "arrays", p->arrays.count);
  at_json_put_uint(w, "programs", p->programs.count);
  at_json_put_uint(w, "devices", at_client_devices(p));
  at_json_put_uint(w, "launches", p->launches);
  put_real(w, "launch_rate", p->launch_rate);
  at_json_put_uint(w, "messages", p->messages);
  at_json_put_uint(w, "bytes", p->bytes);
  at_json_put_uint(w, "hbm_bytes", holds.bytes);
  at_json_put_uint(w, "host_bytes", holds.host_bytes);
  at_json_end_object(w);
}

// ---- Programs, over the hosts that run them
// A program, as all hosts together tell of it.
typedef struct ran {
  at_look_program is;
  uint32_t hosts;
  uint32_t num_runs;
  uint64_t last_ns;  // before now
} ran;

// Of what all hosts say.
typedef struct work {
  ran *programs;
  size_t num_programs, num_runs;
  struct timed {
    uint64_t client, program, ns;
  } * runs;
} work;

// Runs of one program together.
static int by_program(const void *a, const void *b) {
  const ran *x = a, *y = b;
  // Numbers of programs are a client's own.
  if (x->is.client != y->is.client) return x->is.client < y->is.client ? -1 : 1;
  return (x->is.program > y->is.program) - (x->is.program < y->is.program);
}

// Within a program by duration, so that the median is in the middle.
static int by_time(const void *a, const void *b) {
  const struct timed *x = a, *y = b;
  if (x->client != y->client) return x->client < y->client ? -1 : 1;
  if (x->program != y->program) return x->program < y->program ? -1 : 1;
  return (x->ns > y->ns) - (x->ns < y->ns);
}

// The latest ones are at the end.
static int by_last(const void *a, const void *b) {
  const ran *x = a, *y = b;
  if (x->last_ns != y->last_ns) return x->last_ns < y->last_ns ? -1 : 1;
  return by_program(a, b);
}

// By binary search: k->programs is sorted by_program. NULL: no host has named
// it.
static ran *find_ran(const work *k, uint64_t client, uint64_t program) {
  const ran key = {.is = {.client = client, .program = program}};
  return k->num_programs ? bsearch(&key, k->programs, k->num_programs,
                                   sizeof *k->programs, by_program)
                         : NULL;
}

// Appends what one host has said; the lists have room.
static void collect(const at_msg_looks *l, work *k) {
  for (uint32_t i = 0; i < l->num_programs; i++)
    k->programs[k->num_programs++] =
        (ran){.is = at_look_programs(l)[i], .hosts = 1, .last_ns = UINT64_MAX};
  for (uint32_t i = 0; i < l->num_runs; i++) {
    const at_look_run *r = &at_look_runs(l)[i];
    k->runs[k->num_runs++] = (struct timed){
        r->client, r->program, r->end_ns - AT_MIN(r->start_ns, r->end_ns)};
  }
}

// One for each program, however many hosts name it.
static void join_hosts(work *k) {
  size_t n = 0;
  if (k->num_programs)
    qsort(k->programs, k->num_programs, sizeof *k->programs, by_program);
  for (size_t i = 0; i < k->num_programs; i++) {
    ran *last = n ? &k->programs[n - 1] : NULL;
    if (!last || by_program(last, &k->programs[i])) {
      k->programs[n++] = k->programs[i];
      continue;
    }
    last->hosts++;
    last->is.launches = AT_MAX(last->is.launches, k->programs[i].is.launches);
  }
  k->num_programs = n;
}

// How long ago each program ended last, by its own host's clock.
static void note_last(const at_msg_looks *l, const work *k) {
  for (uint32_t i = 0; i < l->num_runs; i++) {
    const at_look_run *r = &at_look_runs(l)[i];
    ran *x = find_ran(k, r->client, r->program);
    if (x) x->last_ns = AT_MIN(x->last_ns, l->now_ns - r->end_ns);
  }
}

// Its durations lie together in k->runs, shortest first, so the middle one is
// the median.
static void print_program(at_json_writer *w, const work *k, const ran *x) {
  const struct timed key = {x->is.client, x->is.program, 0};
  size_t low = 0, high = k->num_runs, n = 0;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (by_time(&k->runs[middle], &key) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  while (low + n < k->num_runs && k->runs[low + n].client == key.client &&
         k->runs[low + n].program == key.program)
    n++;
  at_json_begin_object(w);
  at_json_put_uint(w, "client", x->is.client);
  at_json_put_uint(w, "program", x->is.program);
  put_text(w, "name", x->is.name);
  at_json_put_uint(w, "launches", x->is.launches);
  at_json_put_uint(w, "hosts", x->hosts);
  at_json_put_uint(w, "measured", n);
  if (n) put_real(w, "p50_us", (double)k->runs[low + n / 2].ns / 1e3);
  if (n) put_real(w, "last_us", -(double)x->last_ns / 1e3);
  at_json_end_object(w);
}

// Times in microseconds before now, by the host's clock.
static void print_runs(at_json_writer *w, const peer *h) {
  const at_msg_looks *l = h->looks;
  for (uint32_t i = 0; i < l->num_runs; i++) {
    const at_look_run *r = &at_look_runs(l)[i];
    at_json_begin_object(w);
    at_json_put_uint(w, "host", h->number);
    at_json_put_uint(w, "client", r->client);
    at_json_put_uint(w, "program", r->program);
    put_text(w, "name", r->name);
    put_real(w, "given_us", ((double)r->given_ns - (double)l->now_ns) / 1e3);
    put_real(w, "start_us", ((double)r->start_ns - (double)l->now_ns) / 1e3);
    put_real(w, "end_us", ((double)r->end_ns - (double)l->now_ns) / 1e3);
    at_json_end_object(w);
  }
}

// All runs, then all programs, the one that ran last first.
static void print_work(at_json_writer *w, const at_controller *c, work *k) {
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->hosts[i] && c->hosts[i]->looks) collect(c->hosts[i]->looks, k);
  join_hosts(k);
  if (k->num_runs) qsort(k->runs, k->num_runs, sizeof *k->runs, by_time);
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->hosts[i] && c->hosts[i]->looks) note_last(c->hosts[i]->looks, k);
  begin_list(w, "runs");
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->hosts[i] && c->hosts[i]->looks) print_runs(w, c->hosts[i]);
  at_json_end_array(w);
  if (k->num_programs)
    qsort(k->programs, k->num_programs, sizeof *k->programs, by_last);
  begin_list(w, "last_programs");
  for (size_t i = 0; i < k->num_programs; i++)
    print_program(w, k, &k->programs[i]);
  at_json_end_array(w);
}

// Counts first, as lists are made at once. Without memory there is nothing of
// it in the text.
static void print_all_work(at_json_writer *w, const at_controller *c) {
  size_t programs = 1, runs = 1;
  for (uint32_t i = 0; i < c->num_hosts; i++) {
    const at_msg_looks *l = c->hosts[i] ? c->hosts[i]->looks : NULL;
    programs += l ? l->num_programs : 0;
    runs += l ? l->num_runs : 0;
  }
  work k = {.programs = calloc(programs, sizeof *k.programs),
            .runs = calloc(runs, sizeof *k.runs)};
  if (k.programs && k.runs) print_work(w, c, &k);
  free(k.programs);
  free(k.runs);
}

// Of all parts of the topology.
static uint32_t count_slices(const at_topology *t) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->num_parts; i++) n += t->parts[i].slices;
  return n;
}

// The names of the members are an interface: tools and tests read them.
void at_controller_print(const at_controller *c, at_strbuf *out) {
  at_json_writer w = {.out = out};
  at_topology t = {0};
  at_status_free(at_topology_parse(c->target, &t));
  at_json_begin_object(&w);
  put_text(&w, "target", c->target);
  put_text(&w, "state", at_controller_is_complete(c) ? "up" : "joining");
  at_json_put_uint(&w, "epoch", c->epoch);
  at_json_put_uint(&w, "num_hosts", c->num_hosts);
  at_json_put_uint(&w, "max_hosts", c->max_hosts);
  at_json_put_uint(&w, "num_chips", c->num_chips);
  at_json_put_uint(&w, "num_slices", count_slices(&t));
  if (c->simulated) at_simulated_print(c->simulated, &w);
  begin_list(&w, "hosts");
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (c->hosts[i]) print_host(&w, &t, c->hosts[i]);
  at_json_end_array(&w);
  begin_list(&w, "clients");
  for (const peer *p = c->peers; p; p = p->next)
    if (p->kind == AT_SESSION_CLIENT && !p->gone) print_client(&w, p);
  at_json_end_array(&w);
  print_all_work(&w, c);
  at_named_print(c, &w);
  at_json_end_object(&w);
}

// ---- Questions
// A host that could answer a LOOK.
static bool may_look(const peer *h) {
  return h && h->session && !h->gone && h->wire;
}

// This question, or a later one.
static bool all_have_answered(const at_controller *c, uint64_t number) {
  for (uint32_t i = 0; i < c->num_hosts; i++) {
    const peer *h = c->hosts[i];
    if (may_look(h) && (!h->looks || h->looks->number < number)) return false;
  }
  return true;
}

// The tool's answer: what is known now.
static void tell(peer *tool) {
  at_strbuf text = {0};
  at_controller_print(tool->controller, &text);
  const at_bytes part = {(const uint8_t *)text.ptr, text.len};
  at_peer_say(tool, AT_MSG_STATUS_IS, &part, 1);
  at_strbuf_free(&text);
  tool->waits_for = 0;
}

// Several tools may wait at a time; each waits for its own number.
void at_status_ask(peer *tool, uint64_t watch_ms) {
  at_controller *c = tool->controller;
  at_msg_look m = {.number = ++c->looks, .watch_ms = watch_ms};
  const at_bytes part = {(const uint8_t *)&m, sizeof m};
  for (uint32_t i = 0; i < c->num_hosts; i++)
    if (may_look(c->hosts[i])) at_peer_say(c->hosts[i], AT_MSG_LOOK, &part, 1);
  tool->waits_for = m.number;
  tool->asked_ns = at_clock_ns();
  if (all_have_answered(c, m.number)) tell(tool);
}

// Several tools may wait for different looks.
static void tell_those_who_wait(at_controller *c) {
  for (peer *p = c->peers; p; p = p->next)
    if (p->waits_for && !p->gone && all_have_answered(c, p->waits_for)) tell(p);
}

// An older answer than the last is ignored. Copies it: the message goes back to
// the wire.
void at_status_heard(peer *host, at_bytes body) {
  const at_msg_looks *m = (const void *)body.ptr;
  if (!host->session || m->number > host->controller->looks ||
      (host->looks && m->number <= host->looks->number))
    return;
  at_msg_looks *copy = malloc(body.len);
  if (!copy) return;
  memcpy(copy, m, body.len);
  free(host->looks);
  host->looks = copy;
  tell_those_who_wait(host->controller);
}

// At most once a second.
static void rate(peer *p, uint64_t now) {
  if (now - p->rated_ns < kRateNs) return;
  p->launch_rate = p->rated_ns ? (double)(p->launches - p->rated_at) * 1e9 /
                                     (double)(now - p->rated_ns)
                               : 0;
  p->rated_ns = now;
  p->rated_at = p->launches;
}

// Hosts that do not answer within kPatienceNs are shown with what they said
// before.
void at_status_look(at_controller *c) {
  uint64_t now = at_clock_ns();
  for (peer *p = c->peers; p; p = p->next) {
    if (p->kind == AT_SESSION_CLIENT) rate(p, now);
    if (p->waits_for && !p->gone && now - p->asked_ns > kPatienceNs) tell(p);
  }
}
