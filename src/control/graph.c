// A graph as the body of a GRAPH.
#include "control/graph.h"

#include <stdlib.h>

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a traced program");
}

static void add_bytes(at_strbuf *b, const void *p, size_t n) {
  at_strbuf_add(b, (at_str){p, n});
}

// A step's head, its body, and zeros up to a multiple of eight.
static void add_step(at_strbuf *b, uint32_t kind, const void *body,
                     size_t bytes) {
  static const uint8_t pad[8];
  at_msg_step s = {kind, (uint32_t)bytes};
  add_bytes(b, &s, sizeof s);
  add_bytes(b, body, bytes);
  add_bytes(b, pad, at_message_step_bytes(s.bytes) - sizeof s - bytes);
}

// By the step that used them last: chains of `made`, 1 + its number; 0: none.
static uint32_t *chain_drops(const at_graph *g, uint32_t *next) {
  uint32_t *first = calloc(g->num_steps + 1, sizeof *first);
  for (uint32_t k = 0; first && k < g->num_made; k++) {
    const at_graph_made *m = &g->made[k];
    if (m->kept || m->taken || m->last == UINT32_MAX) continue;
    AT_ASSERT(m->last < g->num_steps);
    next[k] = first[m->last];
    first[m->last] = k + 1;
  }
  return first;
}

// One DROP for all arrays of the chain. room: [1 + its length].
static void add_drops(at_strbuf *b, uint32_t first, const uint32_t *next,
                      uint64_t *room) {
  // Its body is the number of names, then the names.
  uint64_t n = 0;
  for (uint32_t k = first; k; k = next[k - 1])
    room[1 + n++] = AT_MSG_MADE | (k - 1);
  room[0] = n;
  if (n) add_step(b, AT_MSG_DROP, room, (1 + n) * sizeof *room);
}

// The head needs the numbers of kept arrays and of steps, so these are counted
// first: a step has one more behind it where something is dropped.
static void add_all(const at_graph *g, at_msg_graph m, const uint32_t *first,
                    const uint32_t *next, uint64_t *room, at_strbuf *b) {
  for (uint32_t k = 0; k < g->num_made; k++) m.num_kept += g->made[k].kept;
  for (uint32_t i = 0; i < g->num_steps; i++)
    if (!g->steps[i].removed && g->steps[i].kind != AT_GRAPH_HOST)
      m.num_steps += 1 + (first[i] != 0);
  add_bytes(b, &m, sizeof m);
  for (uint64_t k = 0; k < g->num_made; k++)
    if (g->made[k].kept) add_bytes(b, &k, sizeof k);
  for (uint32_t i = 0; i < g->num_steps; i++) {
    const at_graph_step *s = &g->steps[i];
    if (s->removed || s->kind == AT_GRAPH_HOST) continue;
    add_step(b, s->kind, s->body, s->bytes);
    add_drops(b, first[i], next, room);
  }
}

// Three lists: the first array that each step drops, the next of the same step,
// and room for one DROP.
at_status at_graph_write(const at_graph *g, uint64_t name, at_strbuf *out) {
  at_msg_graph m = {
      .graph = name, .num_inputs = g->num_inputs, .num_made = g->num_made};
  uint32_t *next = calloc(g->num_made + 1, sizeof *next);
  uint64_t *room = calloc(g->num_made + 2, sizeof *room);
  uint32_t *first = next && room ? chain_drops(g, next) : NULL;
  if (first) add_all(g, m, first, next, room, out);
  free(next);
  free(room);
  free(first);
  return first ? at_strbuf_status(out) : no_memory();
}
