// The text of a traced program (graph.h): nodes are what makes values, edges
// say how these get from one sharding to another.
#include <stdlib.h>
#include <string.h>

#include "control/graph.h"
#include "control/plan.h"

enum { kMembers = 4 };  // of a list that is written out

// Devices of a computation, in its order.
typedef struct devices {
  uint32_t count;
  uint32_t *chips;
} devices;

typedef struct printer {
  const at_graph *g;
  at_strbuf *out;
  uint32_t *maker;   // by made: step
  uint64_t *member;  // by made that a copy makes: shard of the group that has
                     // it; 0: none
  uint32_t *shard;
  uint32_t *value;   // by made: 1 + its number in the text; 0: not yet
  uint32_t *inputs;  // by input; those of one host's bytes have one
  uint32_t *first_drop, *next_drop;
  uint32_t num_values, num_sets, num_nodes;
  devices *sets;
  bool good;
} printer;

static uint32_t number(uint64_t name) { return (uint32_t)name; }

// Which node has made a name; called for what a step makes.
static bool note_maker(void *arg, uint64_t *name, bool makes, uint32_t count) {
  printer *p = arg;
  for (uint32_t i = 0; makes && i < count; i++)
    p->maker[number(*name) + i] = p->num_nodes;  // the step, meanwhile
  return true;
}

// A shard that is copied alone only to become a member of a group is printed as
// that group.
static void note_members(printer *p, const at_graph_step *s) {
  const at_msg_group *m = (const void *)s->body;
  const at_msg_shard *x = (const void *)(m + 1);
  for (uint32_t i = 0; s->kind == AT_MSG_GROUP && i < m->count; i++) {
    if (!(x[i].array & AT_MSG_MADE) || x[i].shard) continue;
    p->member[number(x[i].array)] = m->array;
    p->shard[number(x[i].array)] = i;
  }
}

// ---- Devices
// The number of a set of devices, a new one if it has not been met. p->good
// becomes false without memory.
static uint32_t set_of(printer *p, const uint32_t *chips, uint32_t n,
                       size_t stride) {
  uint32_t *list = malloc((n + 1) * sizeof *list);
  devices *more = realloc(p->sets, (p->num_sets + 1) * sizeof *more);
  if (more) p->sets = more;
  p->good &= list && more;
  if (!p->good) return free(list), 0;
  for (uint32_t i = 0; i < n; i++) list[i] = chips[i * stride];
  for (uint32_t k = 0; k < p->num_sets; k++)
    if (p->sets[k].count == n &&
        !memcmp(p->sets[k].chips, list, n * sizeof *list))
      return free(list), k;
  p->sets[p->num_sets] = (devices){n, list};
  return p->num_sets++;
}

// Sets of devices are numbered as they are met.
static void print_set(printer *p, const uint32_t *chips, uint32_t n,
                      size_t stride) {
  at_strbuf_addf(p->out, "d%u", set_of(p, chips, n, stride));
}

// ---- Edges
// The COPY that makes the array of a shard; NULL: another step does, or none.
static const at_msg_copy *copy_of(const printer *p, const at_msg_shard *s) {
  const at_graph_step *by =
      s->array & AT_MSG_MADE ? &p->g->steps[p->maker[number(s->array)]] : NULL;
  return by && by->kind == AT_MSG_COPY ? (const void *)by->body : NULL;
}

// What a shard that is copied alone is a shard of.
static at_msg_shard whole_of(const printer *p, at_msg_shard s) {
  uint32_t k = number(s.array);
  if (!copy_of(p, &s) || !p->member[k]) return s;
  return (at_msg_shard){p->member[k], p->shard[k], s.chip};
}

// Is it an input that the client makes between two steps?
static bool is_late(const printer *p, uint32_t input) {
  return input >= p->g->num_arrays &&
         p->g->hosts[input - p->g->num_arrays] == AT_GRAPH_LATE;
}

// Which bytes of the host an input is made of; UINT32_MAX: it is an array.
static uint32_t host_of(const printer *p, uint64_t name) {
  uint32_t k = number(name);
  return name & AT_MSG_INPUT && k >= p->g->num_arrays
             ? p->g->hosts[k - p->g->num_arrays]
             : UINT32_MAX;
}

static void print_name(printer *p, uint64_t name);

// How the shards of a group get where they are.
typedef struct plan {
  const char *name;  // NULL: they come of several arrays
  uint64_t of;
} plan;

// one-to-one where every shard comes from the shard of the same number,
// one-to-many where parts are picked or one array is spread.
static plan plan_of(const printer *p, const at_msg_group *m) {
  const at_msg_shard *s = (const void *)(m + 1);
  plan out = {"one-to-one", 0};
  for (uint64_t i = 0; i < m->count; i++) {
    const at_msg_copy *c = copy_of(p, &s[i]);
    const at_msg_shard from = c ? whole_of(p, c->from) : s[i];
    uint64_t of = from.array;
    uint32_t shard = from.shard;
    if (!i) out.of = of;
    bool same = of == out.of || (host_of(p, of) != UINT32_MAX &&
                                 host_of(p, of) == host_of(p, out.of));
    if (!same) return (plan){NULL, 0};
    if (host_of(p, of) != UINT32_MAX ? m->count > 1 : shard != i)
      out.name = "one-to-many";
  }
  return out;
}

// "%1 -one-to-many-> d2"; members of several arrays in brackets, the first
// kMembers of them.
static void print_group(printer *p, const at_msg_group *m) {
  const at_msg_shard *s = (const void *)(m + 1);
  plan x = plan_of(p, m);
  if (x.name) {
    print_name(p, x.of);
  } else {
    at_strbuf_addc(p->out, '(');
    for (uint64_t i = 0; i < m->count && i < kMembers; i++) {
      if (i) at_strbuf_addz(p->out, ", ");
      print_name(p, s[i].array);
      if (s[i].shard) at_strbuf_addf(p->out, "[%u]", s[i].shard);
    }
    if (m->count > kMembers)
      at_strbuf_addf(p->out, ", ... %llu in all", (unsigned long long)m->count);
    at_strbuf_addc(p->out, ')');
  }
  at_strbuf_addf(p->out, " -%s-> ", x.name ? x.name : "joined");
  print_set(p, &s->chip, (uint32_t)m->count, sizeof *s / sizeof s->chip);
}

// From, by which kind of plan, and to where.
static void print_reshard(printer *p, const at_msg_reshard *m) {
  at_resharding r = at_message_resharding(m);
  print_name(p, whole_of(p, r.from[0]).array);
  at_strbuf_addf(p->out, " -%s-> ", at_plan_name(m));
  print_set(p, r.chips, m->num_to, 1);
}

// A value's number where it has one, else the edge by which it is made. Edges
// lead to values, so this ends.
static void print_name(printer *p, uint64_t name) {
  if (name & AT_MSG_INPUT) {
    at_strbuf_addf(p->out, "%%%u", p->inputs[number(name)] - 1);
  } else if (!(name & AT_MSG_MADE)) {
    at_strbuf_addz(p->out, "constant");
  } else if (p->value[number(name)]) {
    at_strbuf_addf(p->out, "%%%u", p->value[number(name)] - 1);
  } else {
    const at_graph_step *by = &p->g->steps[p->maker[number(name)]];
    if (by->kind == AT_MSG_GROUP) return print_group(p, (const void *)by->body);
    if (by->kind == AT_MSG_RESHARD)
      return print_reshard(p, (const void *)by->body);
    const at_msg_copy *m = (const void *)by->body;
    print_name(p, m->from.array);
    if (m->from.shard) at_strbuf_addf(p->out, "[%u]", m->from.shard);
    at_strbuf_addz(p->out, " -one-to-one-> ");
    print_set(p, &m->chip, 1, 1);
  }
}

// ---- Nodes
// Gives an input its node when it is first used. Inputs made of the same bytes
// of the host are one argument.
static bool see_input(void *arg, uint64_t *name, bool makes, uint32_t count) {
  printer *p = arg;
  if (!(*name & AT_MSG_INPUT) || p->inputs[number(*name)] ||
      is_late(p, number(*name)))
    return true;
  uint32_t host = host_of(p, *name), value = ++p->num_values;
  at_strbuf_addf(p->out, "  %%%u = argument %u%s\n", value - 1,
                 host == UINT32_MAX ? number(*name) : host,
                 host == UINT32_MAX ? "" : " of the host");
  p->num_nodes++;
  for (uint32_t k = 0; k < p->g->num_inputs; k++)
    if (k == number(*name) ||
        (host != UINT32_MAX && host_of(p, AT_MSG_INPUT | k) == host))
      p->inputs[k] = value;
  return true;
}

// A node: results, computation, arguments, devices, types.
static void print_launch(printer *p, const at_graph_step *s) {
  const at_msg_launch *m = (const void *)s->body;
  const at_msg_arg *args = (const void *)(m + 1);
  p->num_nodes++;
  at_strbuf_addz(p->out, "  ");
  for (uint32_t o = 0; o < m->num_outputs; o++) {
    p->value[number(m->outputs) + o] = ++p->num_values;
    at_strbuf_addf(p->out, "%s%%%u", o ? ", " : "", p->num_values - 1);
  }
  at_strbuf_addf(p->out, "%scompute %s(", m->num_outputs ? " = " : "",
                 s->program->text);
  for (uint32_t i = 0; i < m->num_args; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    print_name(p, args[i].array);
    if (args[i].first) at_strbuf_addf(p->out, "[%u:]", args[i].first);
    if (args[i].flags & AT_MSG_DONATED) at_strbuf_addz(p->out, " donated");
  }
  at_strbuf_addz(p->out, ") on ");
  print_set(p, s->program->chips, s->program->num_chips, 1);
  if (*s->program->results)
    at_strbuf_addf(p->out, " : %s", s->program->results);
  at_strbuf_addc(p->out, '\n');
}

// A node for a function of the client; the inputs that it makes get their
// numbers here.
static void print_host(printer *p, const at_graph_host *h) {
  p->num_nodes++;
  at_strbuf_addz(p->out, "  ");
  for (uint32_t k = 0; k < h->num_inputs; k++) {
    p->inputs[h->first_input + k] = ++p->num_values;
    at_strbuf_addf(p->out, "%s%%%u", k ? ", " : "", p->num_values - 1);
  }
  at_strbuf_addf(p->out, "%shost %s(", h->num_inputs ? " = " : "", h->text);
  for (uint32_t i = 0; i < h->num_results; i++) {
    if (i) at_strbuf_addz(p->out, ", ");
    print_name(p, p->g->results[h->first_result + i]);
  }
  at_strbuf_addz(p->out, ")\n");
}

// Those that have a name in the text and are not needed behind a step: chains
// of `made`, 1 + its number; 0: none.
static void chain_drops(printer *p) {
  for (uint32_t k = p->g->num_made; k--;) {
    const at_graph_made *m = &p->g->made[k];
    bool launched =
        m->last != UINT32_MAX && p->g->steps[p->maker[k]].kind == AT_MSG_LAUNCH;
    if (!launched || m->kept || m->taken) continue;
    p->next_drop[k] = p->first_drop[m->last];
    p->first_drop[m->last] = k + 1;
  }
}

// Those of the steps behind `from` up to `to`: what an edge needs last is said
// behind the node that it leads to.
static void print_drops(printer *p, uint32_t from, uint32_t to) {
  bool any = false;
  for (uint32_t i = from; i <= to; i++)
    for (uint32_t k = p->first_drop[i]; k; k = p->next_drop[k - 1]) {
      at_strbuf_addf(p->out, "%s%%%u", any ? ", " : "  drop ",
                     p->value[k - 1] - 1);
      any = true;
    }
  if (any) at_strbuf_addc(p->out, '\n');
}

// Arguments first, in the order of their first use, then computations, then
// what is returned.
static void print_nodes(printer *p) {
  const at_graph *g = p->g;
  uint32_t seen = 0;
  for (uint32_t i = 0; i < g->num_steps; i++)
    if (!g->steps[i].removed)
      at_message_names(g->steps[i].kind, g->steps[i].body, see_input, p);
  for (uint32_t i = 0; i < g->num_results; i++)
    if (g->results[i]) see_input(p, &g->results[i], false, 1);
  for (uint32_t i = 0; i < g->num_steps; i++) {
    const at_graph_step *s = &g->steps[i];
    if (s->kind == AT_GRAPH_HOST) print_host(p, (const void *)s->body);
    if (s->removed || s->kind != AT_MSG_LAUNCH) continue;
    print_launch(p, s);
    print_drops(p, seen, i);
    seen = i + 1;
  }
  at_strbuf_addz(p->out, "  return");
  for (uint32_t i = g->num_taken; i < g->num_results; i++) {
    at_strbuf_addz(p->out, i > g->num_taken ? ", " : " ");
    print_name(p, g->results[i]);
  }
  p->num_nodes++;
  at_strbuf_addc(p->out, '\n');
  if (g->num_steps) print_drops(p, seen, g->num_steps - 1);
  at_strbuf_addz(p->out, "}\n");
}

// Legend: sizes of the sets of devices, and what the passes have done.
static void print_rest(printer *p) {
  static const char *const names[AT_GRAPH_PASSES] = {
      [AT_GRAPH_COPIES] = "copies removed or shortened",
      [AT_GRAPH_SAME] = "done once instead of twice",
      [AT_GRAPH_DEAD] = "without a use removed",
      [AT_GRAPH_DROPS] = "arrays dropped after their last use"};
  for (uint32_t k = 0; k < p->num_sets; k++)
    at_strbuf_addf(p->out, "d%u: %u device%s\n", k, p->sets[k].count,
                   p->sets[k].count == 1 ? "" : "s");
  for (uint32_t i = 0; i < AT_GRAPH_PASSES; i++)
    if (p->g->counts[i])
      at_strbuf_addf(p->out, "pass: %u %s\n", p->g->counts[i], names[i]);
}

// The text is made beside `out`, which gets all of it or, without memory, only
// its mark of failure.
void at_graph_print(const at_graph *g, at_strbuf *out) {
  at_strbuf body = {0};
  printer p = {.g = g,
               .out = &body,
               .maker = calloc(g->num_made + 1, sizeof *p.maker),
               .member = calloc(g->num_made + 1, sizeof *p.member),
               .shard = calloc(g->num_made + 1, sizeof *p.shard),
               .value = calloc(g->num_made + 1, sizeof *p.value),
               .inputs = calloc(g->num_inputs + 1, sizeof *p.inputs),
               .first_drop = calloc(g->num_steps + 1, sizeof *p.first_drop),
               .next_drop = calloc(g->num_made + 1, sizeof *p.next_drop)};
  p.good = p.maker && p.member && p.shard && p.value && p.inputs &&
           p.first_drop && p.next_drop;
  for (uint32_t i = 0; p.good && i < g->num_steps; i++) {
    p.num_nodes = i;
    if (g->steps[i].removed) continue;
    at_message_names(g->steps[i].kind, g->steps[i].body, note_maker, &p);
    note_members(&p, &g->steps[i]);
  }
  p.num_nodes = 0;
  if (p.good) chain_drops(&p);
  if (p.good) print_nodes(&p);
  if (p.good) print_rest(&p);
  if (p.good) {
    at_strbuf_addf(out, "program of %u nodes {\n", p.num_nodes);
    at_strbuf_add(out, at_strbuf_str(&body));
  }
  out->failed |= !p.good || body.failed;
  at_strbuf_free(&body);
  for (uint32_t k = 0; k < p.num_sets; k++) free(p.sets[k].chips);
  free(p.sets);
  free(p.maker);
  free(p.member);
  free(p.shard);
  free(p.value);
  free(p.inputs);
  free(p.first_drop);
  free(p.next_drop);
}
