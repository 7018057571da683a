// Virtual time: when hosts would have done what the stream says. Each process,
// chip and network card does one thing at a time, in the stream's order, so a
// message costs a few maxima for each host and chip that it concerns.
#include <stdlib.h>
#include <string.h>

#include "abi/collective.h"
#include "abi/executable.h"
#include "base/log.h"
#include "control/simulate_internal.h"
#include "exec/exec.h"

// 0 bytes/s: no limit, so no time.
static uint64_t moving_ns(uint64_t bytes, double bytes_per_s) {
  return bytes_per_s > 0 ? (uint64_t)((double)bytes / bytes_per_s * 1e9) : 0;
}

uint64_t at_sim_wire_ns(const at_simulated *s, uint64_t bytes) {
  return moving_ns(bytes, s->o.bytes_per_s);
}

// Notes that a core was idle. The ring keeps the last AT_SIM_GAPS gaps; older
// ones are as good as used.
static void leave_gap(at_simulated *s, uint64_t begin, uint64_t end) {
  if (end > begin) s->gaps[s->num_gaps++ % AT_SIM_GAPS] = (sim_gap){begin, end};
}

// The earliest gap into which it fits; NULL: none.
static sim_gap *find_gap(at_simulated *s, uint64_t ready_ns, uint64_t ns) {
  sim_gap *best = NULL;
  for (uint32_t i = 0; i < AT_SIM_GAPS; i++) {
    sim_gap *g = &s->gaps[i];
    if (AT_MAX(g->begin_ns, ready_ns) + ns <= g->end_ns &&
        (!best || g->begin_ns < best->begin_ns))
      best = g;
  }
  return best;
}

// Cores that processes share go to whoever comes next, who may come before
// what has been said earlier but begins later.
static uint64_t slice(at_simulated *s, uint64_t ready_ns, uint64_t ns) {
  sim_gap *g = find_gap(s, ready_ns, ns);
  if (g) {
    const uint64_t free_ns = g->begin_ns, begin = AT_MAX(g->begin_ns, ready_ns);
    g->begin_ns = begin + ns;
    leave_gap(s, free_ns, begin);
    return begin + ns;
  }
  uint32_t best = 0;
  for (uint32_t i = 1; i < s->o.cores; i++)
    if (s->core_ns[i] < s->core_ns[best]) best = i;
  const uint64_t begin = AT_MAX(s->core_ns[best], ready_ns);
  leave_gap(s, s->core_ns[best], begin);
  return s->core_ns[best] = begin + ns;
}

// The system takes turns with a core.
static uint64_t on_a_core(at_simulated *s, uint64_t ready_ns, uint64_t ns) {
  enum { kSlices = 8, kSliceNs = 1000 };
  if (!s->o.cores) return ready_ns + ns;
  const uint64_t most = AT_MAX(ns / kSlices, (uint64_t)kSliceNs);
  for (uint64_t now; ns; ns -= now) {
    now = AT_MIN(ns, most);
    ready_ns = slice(s, ready_ns, now);
  }
  return ready_ns;
}

// *free_ns is advanced to the end, which is returned.
uint64_t at_sim_work(at_simulated *s, uint64_t *free_ns, uint64_t ready_ns,
                     uint64_t ns) {
  return *free_ns = on_a_core(s, AT_MAX(*free_ns, ready_ns), ns);
}

// ---- Clients
// NULL: no such client, or no memory. The thread of virtual time alone.
sim_tenant *at_sim_tenant(at_simulated *s, uint64_t client, bool make) {
  sim_tenant *t = s->tenants;
  while (t && t->client != client) t = t->next;
  if (t || !make) return t;
  t = calloc(1, sizeof *t);
  if (!t) return NULL;
  t->client = client;
  t->next = s->tenants;
  return s->tenants = t;
}

// NULL: nothing.
static void free_program(sim_program *p) {
  if (!p) return;
  free(p->output_bytes);
  free(p->hosts);
  free(p->here);
  free(p);
}

// Programs have lists of their own, arrays and graphs are one block each.
static void free_tenant(sim_tenant *t) {
  at_table *const all[] = {&t->arrays, &t->programs, &t->graphs};
  for (uint32_t i = 0; i < AT_LEN(all); i++) {
    size_t at = 0;
    for (at_table_slot *x; (x = at_table_next(all[i], &at));)
      // The programs.
      if (i == 1)
        free_program(x->value);
      else
        free(x->value);
    at_table_free(all[i]);
  }
  at_sim_questions_free(t);
  free(t);
}

void at_sim_tenants_free(at_simulated *s) {
  for (sim_tenant *t; (t = s->tenants);) {
    s->tenants = t->next;
    free_tenant(t);
  }
}

// LEFT: all that the client has is forgotten.
static void leave(at_simulated *s, uint64_t client) {
  for (sim_tenant **at = &s->tenants; *at; at = &(*at)->next) {
    sim_tenant *t = *at;
    if (t->client != client) continue;
    *at = t->next;
    return free_tenant(t);
  }
}

// When the client has said it: it has worked since it last spoke, or since it
// got an answer.
static uint64_t client_said(at_simulated *s, sim_tenant *t, uint64_t clock) {
  if (!clock) return t->end_ns;  // of a thread without a clock
  uint64_t since = AT_MAX(t->clock_ns, AT_MIN(t->answered_ns, clock));
  uint64_t worked = clock > since ? clock - since : 0;
  uint64_t from = AT_MAX(t->end_ns, since);
  t->clock_ns = AT_MAX(t->clock_ns, clock);
  s->counts.client_ns += worked;
  t->end_ns = on_a_core(s, from, worked);
  if (s->o.cores) on_a_core(s, from, s->o.charges.client_beside);
  return t->end_ns;
}

// ---- From the client by the controller to hosts
// Sets h->arrive_ns of every host that the message concerns: the client's time,
// the way to the controller, its work for the message and for each host in
// turn, and the way on. `fixed`: charges are given instead of measured.
static void travel(at_simulated *s, sim_tenant *t, const sim_job *j) {
  const at_charges *c = &s->o.charges;
  uint64_t said = client_said(s, t, j->clock_ns);
  uint64_t there = said + s->o.latency + at_sim_wire_ns(s, j->bytes);
  bool fixed = c->controller_message || c->controller_host;
  uint64_t first = fixed ? c->controller_message : 0;
  uint64_t each =
      (fixed ? c->controller_host : j->spent_ns / AT_MAX(j->num_hosts, 1u)) +
      c->controller_send;
  uint64_t at = at_sim_work(s, &s->controller_ns, there, first);
  uint64_t wire = at_sim_wire_ns(s, j->bytes);
  for (uint32_t k = 0; k < j->num_hosts; k++) {
    sim_host *h = &s->hosts[j->hosts[k]];
    at = at_sim_work(s, &s->controller_ns, at, AT_MAX(each, wire));
    h->arrive_ns = at + s->o.latency;
    h->messages++;
  }
  s->counts.controller_ns += first + each * j->num_hosts;
  s->counts.messages++;
}

// A host's process does something for ns, from `ready` and from the message's
// arrival on; when it has. Adds to the sums that people see.
static uint64_t host_works(at_simulated *s, uint32_t host, uint64_t ready,
                           uint64_t ns) {
  sim_host *h = &s->hosts[host];
  h->busy_ns += ns;
  s->counts.hosts_ns += ns;
  s->counts.host_most_ns = AT_MAX(s->counts.host_most_ns, h->busy_ns);
  return at_sim_work(s, &h->free_ns, AT_MAX(ready, h->arrive_ns), ns);
}

// chip: as in messages, where a virtual device is a view of one.
static uint32_t host_of(const at_simulated *s, uint32_t chip) {
  return at_message_chip(chip) / s->chips_per_host;
}

// ---- Arrays
// NULL: no memory.
static sim_array *make_array(uint32_t count, uint64_t bytes) {
  sim_array *a = calloc(1, sizeof *a + count * sizeof *a->ready_ns);
  if (!a) return NULL;
  a->count = count;
  a->bytes = bytes;
  return a;
}

// Takes a; where the name cannot be entered, that is logged and a is freed.
static void enter(sim_tenant *t, uint64_t name, sim_array *a) {
  if (!a || at_table_find(&t->arrays, name) ||
      !at_table_put(&t->arrays, name, a)) {
    at_log(AT_LOG_ERROR,
           "client %llu: no memory for, or used twice: array %llu",
           (unsigned long long)t->client, (unsigned long long)name);
    free(a);
  }
}

// Dense; saturates.
static uint64_t bytes_of(uint32_t dtype, const int64_t *dims, uint32_t rank) {
  size_t n = at_dtype_bytes((at_dtype)dtype);
  for (uint32_t i = 0; i < rank; i++) n = at_mul(n, (size_t)dims[i]);
  return n;
}

// Bytes that did not come with the message travel over the client's network
// card and the host's.
static void create(at_simulated *s, sim_tenant *t, const at_msg_create *m) {
  sim_array *a =
      make_array(1, bytes_of(m->dtype, (const int64_t *)(m + 1), m->rank));
  if (a) {
    sim_host *h = &s->hosts[host_of(s, m->chip)];
    a->known_ns = a->ready_ns[0] =
        host_works(s, h->number, 0, s->o.charges.host_message);
    if (!m->has_data) {  // the client sends its bytes at once, to the host
                         // itself
      uint64_t begin = AT_MAX(AT_MAX(t->nic_ns, h->nic_ns), t->end_ns);
      t->nic_ns = h->nic_ns = begin + at_sim_wire_ns(s, a->bytes);
      s->counts.moved_bytes += a->bytes;
      a->ready_ns[0] = AT_MAX(a->ready_ns[0], t->nic_ns + s->o.latency);
    }
  }
  enter(t, m->array, a);
}

static const sim_array *find(const sim_tenant *t, uint64_t name) {
  return at_table_find(&t->arrays, name);
}

// Each shard is there when the shard is that it is made of.
static void make_group(sim_tenant *t, const at_msg_group *m) {
  const at_msg_shard *x = (const void *)(m + 1);
  sim_array *a = make_array((uint32_t)m->count, 0);
  for (uint32_t i = 0; a && i < m->count; i++) {
    const sim_array *of = find(t, x[i].array);
    if (!of || x[i].shard >= of->count) continue;
    a->ready_ns[i] = of->ready_ns[x[i].shard];
    a->bytes = of->bytes;
    a->known_ns = AT_MAX(a->known_ns, of->known_ns);
    if (of->failed) a->failed = of->failed;
  }
  enter(t, m->array, a);
}

// From chip to chip: over the links of a slice, or from host to host.
static uint64_t move(at_simulated *s, uint32_t from, uint32_t to,
                     uint64_t begin, uint64_t bytes) {
  sim_host *out = &s->hosts[host_of(s, from)], *in = &s->hosts[host_of(s, to)];
  s->counts.moved_bytes += bytes;
  if (s->o.ici_latency && at_message_chip(from) / s->chips_per_slice ==
                              at_message_chip(to) / s->chips_per_slice)
    return begin + s->o.ici_latency + moving_ns(bytes, s->o.ici_bytes_per_s);
  begin = AT_MAX(begin, AT_MAX(out->nic_ns, in->nic_ns));
  out->nic_ns = in->nic_ns = begin + at_sim_wire_ns(s, bytes);
  return in->nic_ns + (out == in ? 0 : s->o.latency);
}

// The sender's and the receiver's process both work for it; the bytes move when
// both have, and when the array is there.
static void copy(at_simulated *s, sim_tenant *t, const at_msg_copy *m) {
  const sim_array *of = find(t, m->from.array);
  sim_array *a =
      make_array(1, bytes_of(m->dtype, (const int64_t *)(m + 1), m->rank));
  if (!a) return enter(t, m->array, a);
  uint32_t from = host_of(s, m->from.chip), to = host_of(s, m->chip);
  bool there = of && m->from.shard < of->count;
  uint64_t known = s->o.sequential && there ? of->known_ns + s->o.latency : 0;
  uint64_t begin = host_works(s, from, known, s->o.charges.host_copy);
  a->known_ns =
      from == to ? begin : host_works(s, to, known, s->o.charges.host_copy);
  begin = AT_MAX(begin, a->known_ns);
  if (there) begin = AT_MAX(begin, of->ready_ns[m->from.shard]);
  a->ready_ns[0] = move(s, m->from.chip, m->chip, begin, a->bytes);
  a->failed = there ? of->failed : "the array that it copies is not there";
  enter(t, m->array, a);
}

// Boxes of shards: those of the same bytes to one host travel once.
static void reshard(at_simulated *s, sim_tenant *t, const at_msg_reshard *m) {
  const at_resharding r = at_message_resharding(m);
  sim_array *a =
      make_array(m->num_to, bytes_of(m->dtype, r.to_dims.ptr, r.to_dims.rank));
  uint64_t *came = calloc((size_t)m->num_boxes + 1, sizeof *came);
  for (uint32_t i = 0; came && a && i < m->num_boxes; i++) {
    const at_msg_box *b = at_message_box(m, &r, i);
    const at_msg_shard *x = &r.from[b->from];
    const sim_array *of = find(t, x->array);
    const int64_t *size = (const int64_t *)(const void *)(b + 1) + 2 * m->rank;
    bool there = of && x->shard < of->count;
    uint64_t begin =
        host_works(s, host_of(s, x->chip), 0, s->o.charges.host_copy);
    if (there) begin = AT_MAX(begin, of->ready_ns[x->shard]);
    came[i] = b->like == i ? move(s, x->chip, r.chips[b->to], begin,
                                  bytes_of(m->dtype, size, m->rank))
                           : came[b->like];
    a->ready_ns[b->to] = AT_MAX(a->ready_ns[b->to], came[i]);
    a->known_ns = AT_MAX(a->known_ns, begin);
    if (!there || of->failed)
      a->failed = there ? of->failed : "the array that it cuts is not there";
  }
  free(came);
  enter(t, m->array, a);
}

// Unknown names are ignored, as by real hosts.
static void drop(sim_tenant *t, const at_msg_drop *m) {
  const uint64_t *names = (const void *)(m + 1);
  for (uint64_t i = 0; i < m->count; i++)
    free(at_table_take(&t->arrays, names[i]));
}

// ---- Programs
// *count: how many of its items there are.
static const void *section(at_bytes x, at_xsection which, uint64_t *count) {
  const at_xheader *h = (const void *)x.ptr;
  *count = h->sections[which].count;
  return x.ptr + h->sections[which].offset;
}

// Is the step a collective that makes devices wait for each other? Asking for
// one's own number is none.
static bool talks(const at_xstep *s, at_bytes x) {
  uint64_t n;
  const uint8_t *params = section(x, AT_XS_PARAMS, &n);
  if (s->kind != AT_STEP_COLLECTIVE && s->kind != AT_STEP_START) return false;
  uint32_t kind =
      ((const at_x_collective *)(const void *)(params + s->params))->kind;
  return kind != AT_COLL_PARTITION_ID && kind != AT_COLL_REPLICA_ID;
}

// The executable has been checked.
static at_status read_program(sim_program *p, at_bytes x) {
  const at_xheader *h = (const void *)x.ptr;
  uint64_t num_steps, num_outputs, n;
  const at_xstep *steps = section(x, AT_XS_STEPS, &num_steps);
  const at_xio *outputs = section(x, AT_XS_OUTPUTS, &num_outputs);
  const at_xtype *types = section(x, AT_XS_TYPES, &n);
  const char *strings = section(x, AT_XS_STRINGS, &n);
  at_str name = at_str_of(strings + h->name);
  memcpy(p->name, name.ptr, AT_MIN(name.len, sizeof p->name - 1));
  p->ns = h->estimated_ns > 0 ? (uint64_t)AT_MIN(h->estimated_ns, 1e15) : 0;
  for (uint64_t i = 0; i < num_steps; i++) {
    p->meets |= talks(&steps[i], x);
    if (steps[i].kind == AT_STEP_SEND || steps[i].kind == AT_STEP_RECV ||
        steps[i].kind == AT_STEP_INFEED || steps[i].kind == AT_STEP_OUTFEED)
      p->refused =
          "simulated hosts do not call back: the program has host "
          "callbacks, infeeds or outfeeds";
  }
  p->num_outputs = (uint32_t)num_outputs;
  p->output_bytes = calloc(num_outputs + 1, sizeof *p->output_bytes);
  if (!p->output_bytes)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a program");
  for (uint64_t o = 0; o < num_outputs; o++)
    p->output_bytes[o] = types[outputs[o].type].bytes;
  return AT_OK;
}

// The hosts of the program's chips, ascending, and how many chips each has.
static at_status place(const at_simulated *s, sim_program *p,
                       const uint32_t *chips) {
  uint32_t *all = calloc(s->o.num_hosts + 1, sizeof *all);
  p->hosts = calloc(s->o.num_hosts + 1, sizeof *p->hosts);
  p->here = calloc(s->o.num_hosts + 1, sizeof *p->here);
  at_status st =
      all && p->hosts && p->here
          ? AT_OK
          : AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a program");
  for (uint32_t d = 0; !st.err && d < p->num_chips; d++) {
    p->chips[d] = at_message_chip(chips[d]);
    if (p->chips[d] >= s->num_chips)
      st = AT_FAIL(AT_INVALID_ARGUMENT, "there is no chip %u", p->chips[d]);
    else
      all[host_of(s, chips[d])]++;
  }
  for (uint32_t h = 0; !st.err && h < s->o.num_hosts; h++)
    if (all[h]) {
      p->here[p->num_hosts] = all[h];
      p->hosts[p->num_hosts++] = h;
    }
  free(all);
  return st;
}

// A program that cannot be loaded is logged; its launches find nothing.
static void load(at_simulated *s, sim_tenant *t, const at_msg_load *m,
                 size_t bytes) {
  size_t head = sizeof *m + at_message_chips_bytes(m->num_chips);
  at_bytes given = {(const uint8_t *)m + head, bytes - head};
  sim_program *p = calloc(1, sizeof *p + m->num_chips * sizeof *p->chips);
  // At a place that its parts may lie at.
  uint8_t *aligned = p ? aligned_alloc(64, at_align_up(given.len, 64)) : NULL;
  at_status st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a program");
  if (aligned) {
    at_status_free(st);
    memcpy(aligned, given.ptr, given.len);
    p->num_chips = m->num_chips;
    st = at_executable_check((at_bytes){aligned, given.len});
    if (!st.err) st = place(s, p, (const uint32_t *)(m + 1));
    if (!st.err) st = read_program(p, (at_bytes){aligned, given.len});
  }
  for (uint32_t i = 0; !st.err && i < p->num_hosts; i++)
    host_works(s, p->hosts[i], 0, s->o.charges.host_load);
  if (!st.err && (at_table_find(&t->programs, m->program) ||
                  !at_table_put(&t->programs, m->program, p)))
    st = AT_FAIL(AT_INVALID_ARGUMENT, "used twice, or no memory: program %llu",
                 (unsigned long long)m->program);
  free(aligned);
  if (!st.err) return;
  at_log(AT_LOG_ERROR, "client %llu: %s", (unsigned long long)t->client,
         at_status_message(st));
  at_status_free(st);
  free_program(p);
}

// ---- Launches
typedef struct launching {
  const at_msg_launch *m;
  const at_msg_arg *args;
  const sim_program *p;
  const sim_array **of;  // by argument; NULL: it is not there
  uint64_t *end_ns;      // by device
  const char *failed;
} launching;

// Every host of the program does its part of the launch; when the last has.
// `sequential`: not before those that made the arguments have told that they
// are done.
static uint64_t hosts_begin(at_simulated *s, launching *l) {
  const at_charges *c = &s->o.charges;
  uint64_t known = 0, last = 0;
  for (uint32_t i = 0; s->o.sequential && i < l->m->num_args; i++)
    if (l->of[i] && l->of[i]->known_ns)
      known = AT_MAX(known, l->of[i]->known_ns + s->o.latency);
  for (uint32_t i = 0; i < l->p->num_hosts; i++) {
    sim_host *h = &s->hosts[l->p->hosts[i]];
    h->done_ns = host_works(s, h->number, known,
                            c->host_launch + c->host_chip * l->p->here[i]);
    last = AT_MAX(last, h->done_ns);
  }
  return last;
}

// When the chip of device d may begin.
static uint64_t chip_begins(const at_simulated *s, const launching *l,
                            uint32_t d) {
  uint32_t chip = l->p->chips[d];
  uint64_t at = AT_MAX(s->hosts[host_of(s, chip)].done_ns, s->chip_ns[chip]);
  for (uint32_t i = 0; i < l->m->num_args; i++) {
    const sim_array *a = l->of[i];
    uint64_t shard = (uint64_t)l->args[i].first + d;
    if (a && shard < a->count) at = AT_MAX(at, a->ready_ns[shard]);
  }
  return at;
}

// Chips begin when their host, their arguments and they themselves are ready;
// where the program has collectives, all begin with the last and end together.
// Fills in l->end_ns and the record's times.
static void chips_run(at_simulated *s, launching *l, sim_record *r) {
  const sim_program *p = l->p;
  bool meets = p->meets && p->num_chips > 1;
  const uint64_t ns = p->ns + s->o.charges.chip_launch;
  uint64_t all = 0;
  r->begin_ns = UINT64_MAX;
  for (uint32_t d = 0; d < p->num_chips; d++) {
    l->end_ns[d] = chip_begins(s, l, d);
    r->begin_ns = AT_MIN(r->begin_ns, l->end_ns[d]);
    all = AT_MAX(all, l->end_ns[d]);
  }
  uint64_t end = 0;
  for (uint32_t d = 0; d < p->num_chips; d++) {
    l->end_ns[d] = on_a_core(s, meets ? all : l->end_ns[d], ns);
    end = AT_MAX(end, l->end_ns[d]);
  }
  for (uint32_t d = 0; d < p->num_chips; d++) {
    if (meets) l->end_ns[d] = end;
    s->chip_ns[p->chips[d]] = l->end_ns[d];
  }
  r->end_ns = end;
  s->counts.chips_ns += ns * p->num_chips;
}

// The results, each shard there when its chip is done. `known`: when the hosts
// have done their work for them.
static void hand_out(sim_tenant *t, const launching *l, uint64_t known) {
  for (uint32_t o = 0; o < l->m->num_outputs; o++) {
    sim_array *a = make_array(l->p->num_chips, l->p->output_bytes[o]);
    if (a) {
      memcpy(a->ready_ns, l->end_ns, l->p->num_chips * sizeof *l->end_ns);
      a->known_ns = known;
      a->failed = l->failed;
    }
    enter(t, l->m->outputs + o, a);
  }
}

// Into the ring of programs that people see.
static void note(at_simulated *s, sim_tenant *t, const launching *l,
                 sim_record r) {
  memcpy(r.name, l->p->name, sizeof r.name);
  r.client = t->client;
  r.said_ns = t->end_ns;
  pthread_mutex_lock(&s->lock);
  s->records[s->num_records++ % AT_SIM_RECORDS] = r;
  pthread_mutex_unlock(&s->lock);
  s->counts.launches++;
  s->counts.now_ns = AT_MAX(s->counts.now_ns, r.end_ns);
}

// A launch costs O(arguments x chips) here, whatever its program does. Every
// host of it says DONE to a client that wants to hear.
static void launch(at_simulated *s, sim_tenant *t, const at_msg_launch *m) {
  const sim_program *p = at_table_find(&t->programs, m->program);
  if (!p || m->num_outputs != p->num_outputs)
    return at_log(AT_LOG_ERROR,
                  "client %llu: not there, or of other results: program %llu",
                  (unsigned long long)t->client,
                  (unsigned long long)m->program);
  launching l = {.m = m, .args = (const void *)(m + 1), .p = p};
  uint8_t *room = calloc(1, (size_t)m->num_args * sizeof *l.of +
                                (size_t)p->num_chips * sizeof *l.end_ns + 1);
  if (!room) return at_log(AT_LOG_ERROR, "no memory for a launch");
  l.end_ns = (void *)room;
  l.of = (void *)(l.end_ns + p->num_chips);
  l.failed = m->num_channels ? "simulated hosts do not call back" : p->refused;
  for (uint32_t i = 0; i < m->num_args; i++) {
    l.of[i] = find(t, l.args[i].array);
    if (!l.failed && l.of[i]) l.failed = l.of[i]->failed;
  }
  sim_record r = {0};
  uint64_t known = hosts_begin(s, &l);
  chips_run(s, &l, &r);
  hand_out(t, &l, known);
  note(s, t, &l, r);
  for (uint32_t i = 0; m->number && i < p->num_hosts; i++)
    at_sim_say(s, t,
               &(sim_unsaid){.host = p->hosts[i],
                             .kind = AT_MSG_DONE,
                             .tag = m->number,
                             .ns = r.end_ns,
                             .failed = l.failed});
  for (uint32_t i = 0; i < m->num_args; i++)
    if (l.args[i].flags & AT_MSG_GIVEN)
      free(at_table_take(&t->arrays, l.args[i].array));
  free(room);
}

// ---- Traced programs
// A copy; `largest` is the room that a run needs for one step.
static void keep_graph(sim_tenant *t, const at_msg_graph *m, size_t bytes) {
  sim_graph *g = calloc(1, sizeof *g + bytes);
  if (!g || at_table_find(&t->graphs, m->graph) ||
      !at_table_put(&t->graphs, m->graph, g)) {
    at_log(AT_LOG_ERROR, "used twice, or no memory: graph %llu",
           (unsigned long long)m->graph);
    return free(g);
  }
  g->bytes = bytes;
  memcpy(g->body, m, bytes);
  const at_msg_graph *k = (const void *)g->body;
  const uint8_t *at =
      (const uint8_t *)((const uint64_t *)(k + 1) + k->num_kept);
  for (uint32_t i = 0; i < k->num_steps; i++) {
    const at_msg_step *x = (const void *)at;
    g->largest = AT_MAX(g->largest, (size_t)x->bytes);
    at += at_message_step_bytes(x->bytes);
  }
}

// A LAUNCH, COPY, GROUP, RESHARD or DROP, of the stream or of a graph.
static void do_step(at_simulated *s, sim_tenant *t, uint32_t kind,
                    const void *body) {
  if (kind == AT_MSG_LAUNCH) return launch(s, t, body);
  if (kind == AT_MSG_COPY) return copy(s, t, body);
  if (kind == AT_MSG_GROUP) return make_group(t, body);
  if (kind == AT_MSG_RESHARD) return reshard(s, t, body);
  drop(t, body);
}

// Each step is copied and given the run's names, then done.
static void run_graph(at_simulated *s, sim_tenant *t, const at_msg_run *m) {
  const sim_graph *g = at_table_find(&t->graphs, m->graph);
  const at_msg_graph *k = g ? (const void *)g->body : NULL;
  uint8_t *room =
      k && k->num_inputs == m->num_inputs ? malloc(g->largest + 1) : NULL;
  if (!room)
    return at_log(AT_LOG_ERROR, "not there, or no memory: graph %llu",
                  (unsigned long long)m->graph);
  const uint8_t *at =
      (const uint8_t *)((const uint64_t *)(k + 1) + k->num_kept);
  for (uint32_t i = 0; i < k->num_steps; i++) {
    const at_msg_step *x = (const void *)at;
    at += at_message_step_bytes(x->bytes);
    memcpy(room, x + 1, x->bytes);
    at_message_name_run(x->kind, room, m);
    do_step(s, t, x->kind, room);
  }
  free(room);
}

// ---- The stream
// Answered at once: of memory only the limit is known.
static void stats(at_simulated *s, sim_tenant *t, const at_msg_stats *m) {
  const uint32_t host = host_of(s, m->chip);
  at_sim_say(s, t,
             &(sim_unsaid){.host = host,
                           .kind = AT_MSG_STATS_ARE,
                           .tag = m->tag,
                           .ns = s->hosts[host].free_ns});
}

// One message, already checked. CREATE charges its host itself, as its bytes
// may come with it.
void at_sim_stream(at_simulated *s, sim_job *j) {
  const void *body = j->body;
  if (j->kind == AT_MSG_LEFT) return leave(s, j->client);
  sim_tenant *t = at_sim_tenant(s, j->client, true);
  if (!t) return at_log(AT_LOG_ERROR, "no memory for a client");
  travel(s, t, j);
  if (j->kind != AT_MSG_CREATE)
    for (uint32_t i = 0; i < j->num_hosts; i++)
      host_works(s, j->hosts[i], 0, s->o.charges.host_message);
  switch (j->kind) {
    case AT_MSG_CREATE:
      return create(s, t, body);
    case AT_MSG_LOAD:
      return load(s, t, body, j->bytes);
    case AT_MSG_UNLOAD:
      return free_program(
          at_table_take(&t->programs, ((const at_msg_unload *)body)->program));
    case AT_MSG_STATS:
      return stats(s, t, body);
    case AT_MSG_GRAPH:
      return keep_graph(t, body, j->bytes);
    case AT_MSG_RUN:
      return run_graph(s, t, body);
    case AT_MSG_FORGET:
      return free(
          at_table_take(&t->graphs, ((const at_msg_forget *)body)->graph));
    case AT_MSG_LAUNCH:
    case AT_MSG_COPY:
    case AT_MSG_GROUP:
    case AT_MSG_RESHARD:
    case AT_MSG_DROP:
      return do_step(s, t, j->kind, body);
    default:
      return;
  }
}

// Questions say how many messages came before them: this may be the one that
// they wait for.
void at_sim_heard(at_simulated *s, uint64_t client) {
  sim_tenant *t = at_sim_tenant(s, client, true);
  if (!t) return;
  t->heard++;
  if (t->waiting) at_sim_answer_waiting(s, t);
}

// ---- For people
static void put_records(const at_simulated *s,
                        at_json_writer *w) {  // under the lock
  uint64_t first =
      s->num_records > AT_SIM_RECORDS ? s->num_records - AT_SIM_RECORDS : 0;
  at_json_key(w, AT_STR("programs"));
  at_json_begin_array(w);
  for (uint64_t i = first; i < s->num_records; i++) {
    const sim_record *r = &s->records[i % AT_SIM_RECORDS];
    at_json_begin_object(w);
    at_json_key(w, AT_STR("name"));
    at_json_str(w, at_str_of(r->name));
    at_json_put_uint(w, "client", r->client);
    at_json_put_uint(w, "said_ns", r->said_ns);
    at_json_put_uint(w, "begin_ns", r->begin_ns);
    at_json_put_uint(w, "end_ns", r->end_ns);
    at_json_end_object(w);
  }
  at_json_end_array(w);
}

// What people see is the copy that is made after each batch of messages.
void at_simulated_print(at_simulated *s, at_json_writer *w) {
  pthread_mutex_lock(&s->lock);
  const sim_counts c = s->shown;
  at_json_key(w, AT_STR("simulated"));
  at_json_begin_object(w);
  at_json_put_uint(w, "virtual_ns", c.now_ns);
  at_json_put_uint(w, "cores", s->o.cores);
  at_json_put_uint(w, "launches", c.launches);
  at_json_put_uint(w, "messages", c.messages);
  at_json_put_uint(w, "client_busy_ns", c.client_ns);
  at_json_put_uint(w, "controller_busy_ns", c.controller_ns);
  at_json_put_uint(w, "hosts_busy_ns", c.hosts_ns);
  at_json_put_uint(w, "host_busy_most_ns", c.host_most_ns);
  at_json_put_uint(w, "chips_busy_ns", c.chips_ns);
  at_json_put_uint(w, "moved_bytes", c.moved_bytes);
  put_records(s, w);
  at_json_end_object(w);
  pthread_mutex_unlock(&s->lock);
}
