// Loads ahead and stores late, of a loop's body. Values are followed once, in
// the order of the body.
#include "schedule/host_pipeline.h"

#include "cost/count.h"

// What is known of a value, in `facts` by its node; nodes have one bit for all
// their results.
enum {
  STEADY = 1,  // the next turn's can be had in this turn, without its kernels
  STORED = 2,  // on the host, made of what this turn copies there
};

// One loop body. Nothing of it outlives at_host_pipeline_of but `out`.
typedef struct search {
  const at_comp *c;
  const at_target *target;
  at_arena *arena;
  at_map facts;
  AT_VEC(const at_node *) stores;
  bool reads_back;  // a load may read what this turn or the last one stored
  at_host_pipeline *out;
} search;

// What is known of n's results. Values defined outside the body are ready
// before the first iteration.
static unsigned facts_of(const search *s, const at_node *n) {
  if (n->parent != s->c) return STEADY;
  void **at = at_map_find_ptr(&s->facts, n);
  return at ? (unsigned)(uintptr_t)*at : 0;
}

// Notes `bits` for n, or, in out->copies, that the turns share it.
static at_status put(search *s, at_map *to, const at_node *n, unsigned bits) {
  void **at;
  AT_TRY_ALLOC(at, at_map_put_ptr(to, n));
  *at = (void *)(uintptr_t)bits;
  return AT_OK;
}

static bool is_scalar(const at_node *n) {
  return n->num_results == 1 && n->types[0].rank == 0;
}

// State that a turn hands on as it is, or a number that it adds a constant to.
static bool is_steady_state(const at_node *n, const at_node *next) {
  if (next == n) return true;
  return is_scalar(n) && next->op == AT_OP_ADD &&
         ((next->operands[0].node == n &&
           next->operands[1].node->op == AT_OP_CONSTANT) ||
          (next->operands[1].node == n &&
           next->operands[0].node->op == AT_OP_CONSTANT));
}

// Can all operands of the next turn be had in this turn?
static bool all_steady(const search *s, const at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (!(facts_of(s, n->operands[i].node) & STEADY)) return false;
  return true;
}

// Also from inside its regions.
static bool reads_stored(const search *s, const at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    if (facts_of(s, n->operands[i].node) & STORED) return true;
  for (uint32_t r = 0; r < n->num_regions; r++) {
    AT_FOR_NODES(k, n->regions[r]) if (reads_stored(s, k)) return true;
    for (uint32_t i = 0; i < n->regions[r]->num_results; i++)
      if (facts_of(s, n->regions[r]->results[i].node) & STORED) return true;
  }
  return false;
}

// One node, whose operands were looked at before. Reading what was stored
// forbids late stores: they would be read a turn too early.
static at_status look_at(search *s, const at_node *n) {
  AT_ASSERT(n->parent == s->c);
  if (n->op == AT_OP_PARAMETER) return AT_OK;
  bool steady = !n->num_regions && all_steady(s, n),
       stored = reads_stored(s, n);
  at_host_copy way = at_cost_host_copy_of(s->target, n);
  bool on_host = at_cost_stays_on_host(s->target, n);
  if (way == AT_HOST_COPY_IN) {
    if (steady) return put(s, &s->out->copies, n, 1);
    s->reads_back = true;
    return AT_OK;
  }
  if (way == AT_HOST_COPY_OUT) {
    if (!at_vec_push(s->arena, &s->stores, n)) return AT_NO_MEMORY("copies");
    return put(s, &s->facts, n, STORED);
  }
  s->reads_back |= stored && !on_host;
  steady &= on_host || is_scalar(n) || n->op == AT_OP_CONSTANT;
  return put(s, &s->facts, n, (steady ? STEADY : 0u) | (stored ? STORED : 0u));
}

// Only bodies of loops with at least two known turns. Stores are shared only if
// no load may read them back.
at_status at_host_pipeline_of(const at_comp *c, const at_target *t, at_arena *a,
                              at_host_pipeline *out) {
  *out = (at_host_pipeline){.copies = at_map_in(a)};
  const at_node *loop = c->owner;
  if (!loop || loop->op != AT_OP_WHILE || c != loop->regions[1]) return AT_OK;
  bool known;
  double turns = at_count_trips(loop, &known);
  if (!known || turns < 2) return AT_OK;
  search s = {
      .c = c, .target = t, .arena = a, .facts = at_map_in(a), .out = out};
  for (uint32_t i = 0; i < c->num_params; i++)
    if (is_steady_state(c->params[i], c->results[i].node))
      AT_TRY(put(&s, &s.facts, c->params[i], STEADY));
  AT_FOR_NODES(n, c) AT_TRY(look_at(&s, n));
  for (size_t i = 0; i < s.stores.len && !s.reads_back; i++)
    AT_TRY(put(&s, &out->copies, s.stores.ptr[i], 1));
  out->turns = turns;
  return AT_OK;
}
