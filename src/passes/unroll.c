// Loops of known turns say so, since fusing hides how they count; and
// a loop whose turns hold collectives does several of them in one, so that the
// collectives of a turn can move beside the work of another (schedule/overlap).
#include "cost/count.h"
#include "passes/passes_internal.h"

// Turns in one: the most that divide the loop's. A body of more nodes than this
// would cost more to compile than it gains.
static const int at_factors[] = {4, 3, 2, 5, 7, 6, 8};
enum { kMostNodes = 800 };

// In the body itself; those of inner loops are unrolled there.
static bool has_collective(const at_comp *c) {
  AT_FOR_NODES(n, c)
  if (at_op_is(n->op, AT_COLLECTIVE) && n->num_operands) return true;
  return false;
}

// Regions included.
static uint32_t count_nodes(const at_comp *c) {
  uint32_t sum = 0;
  AT_FOR_NODES(n, c) {
    sum++;
    for (uint32_t r = 0; r < n->num_regions; r++)
      sum += count_nodes(n->regions[r]);
  }
  return sum;
}

// Effects of a turn keep their order, and so do turns: nothing forbids them.
static int factor_of(const at_node *loop, double turns) {
  if (turns < 2 || !has_collective(loop->regions[1])) return 1;
  uint32_t nodes = count_nodes(loop->regions[1]);
  for (size_t i = 0; i < AT_LEN(at_factors); i++)
    if ((int64_t)turns % at_factors[i] == 0 &&
        nodes * (uint32_t)at_factors[i] <= kMostNodes)
      return at_factors[i];
  return 1;
}

// The body followed by factor - 1 clones, each fed with what the one before it
// returns.
static at_status unroll(at_module *m, at_node *loop, int factor) {
  at_comp *body = loop->regions[1], *copies[8];
  for (int i = 1; i < factor; i++) {
    at_map map = at_map_in(m->arena);
    AT_TRY(at_comp_clone(m, body, &map, &copies[i]));
  }
  at_value *state;
  AT_TRY_ALLOC(state, at_new(m->arena, at_value, body->num_results + 1));
  if (body->num_results)
    memcpy(state, body->results, body->num_results * sizeof *state);
  // A node to splice before: the end of a computation has no name.
  at_node *end;
  at_node_desc d = {.op = AT_OP_CREATE_TOKEN, .loc = loop->loc};
  AT_TRY(at_build(body, NULL, &d, &end));
  for (int i = 1; i < factor; i++) {
    at_value *next;
    AT_TRY_ALLOC(next, at_new(m->arena, at_value, body->num_results + 1));
    at_comp_splice(copies[i], state, end, next);
    state = next;
  }
  at_node_remove(end);
  return at_comp_return(body, state, body->num_results);
}

// Inner loops first. Notes the number of turns that the loop makes now.
static at_status walk(at_module *m, at_comp *c, bool unrolls) {
  AT_FOR_NODES(n, c) {
    for (uint32_t r = 0; r < n->num_regions; r++)
      AT_TRY(walk(m, n->regions[r], unrolls));
    if (n->op != AT_OP_WHILE) continue;
    bool known;
    double turns = at_count_trips(n, &known);
    if (!known || turns > 1e9) continue;
    int factor = unrolls ? factor_of(n, turns) : 1;
    if (factor > 1) AT_TRY(unroll(m, n, factor));
    at_attr count = {.id = AT_ATTR_TRIP_COUNT, .i = (int64_t)turns / factor};
    AT_TRY(at_node_set_attr(n, count));
  }
  return AT_OK;
}

// The caller's hook runs before loops change.
at_status at_pass_unroll(at_module *m, const at_pass_options *o) {
  bool alone = m->num_replicas * m->num_partitions < 2;
  if (o->before_unroll) AT_TRY(o->before_unroll(m, o->user));
  return walk(m, m->entry, o->unroll && !alone);
}
