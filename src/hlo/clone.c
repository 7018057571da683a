// Deep copies of computations.
#include "hlo/hlo_internal.h"

static at_status clone_into(at_module *m, const at_comp *c, at_map *map,
                            at_comp *out);

// The copy of v when its node was cloned before (or was put into the map by the
// caller), else v itself: a value from outside of what is copied.
static at_value mapped(const at_map *map, at_value v) {
  void **place = at_map_find_ptr(map, v.node);
  return place && *place ? (at_value){*place, v.index} : v;
}

// Copies n to the end of `out`. Regions are cloned first, so that at_build may
// infer the result types from them. The copy keeps n's types and location and
// gets an id of its own.
static at_status clone_node(at_module *m, const at_node *n, at_map *map,
                            at_comp *out) {
  at_value *operands;
  at_comp **regions;
  AT_TRY_ALLOC(operands, at_new(m->arena, at_value, n->num_operands));
  AT_TRY_ALLOC(regions, at_new(m->arena, at_comp *, n->num_regions));
  for (uint32_t i = 0; i < n->num_operands; i++)
    operands[i] = mapped(map, n->operands[i]);
  for (uint32_t i = 0; i < n->num_regions; i++) {
    AT_TRY(at_region_create(m, &regions[i]));
    AT_TRY(clone_into(m, n->regions[i], map, regions[i]));
  }
  at_node_desc d = at_node_desc_like(n, operands, regions);
  at_node *copy;
  AT_TRY(at_build(out, NULL, &d, &copy));
  void **place;
  AT_TRY_ALLOC(place, at_map_put_ptr(map, n));
  *place = copy;
  return AT_OK;
}

// Copies c's nodes, then its results, in order, so that each operand is in the
// map before the node that uses it. Recursion over regions only.
static at_status clone_into(at_module *m, const at_comp *c, at_map *map,
                            at_comp *out) {
  AT_FOR_NODES(n, c) {
    if (n->op != AT_OP_PARAMETER) {
      AT_TRY(clone_node(m, n, map, out));
      continue;
    }
    void **place;
    AT_TRY_ALLOC(place, at_map_put_ptr(map, n));
    at_value v;
    AT_TRY(at_build_param(out, n->types[0], n->loc, &v));
    *place = v.node;
  }
  at_value *results;
  AT_TRY_ALLOC(results, at_new(m->arena, at_value, c->num_results));
  for (uint32_t i = 0; i < c->num_results; i++)
    results[i] = mapped(map, c->results[i]);
  return at_comp_return(out, results, c->num_results);
}

// The entries of `map` stay valid after the call: the caller may look up what
// became of a node.
at_status at_comp_clone(at_module *m, const at_comp *c, at_map *map,
                        at_comp **out) {
  at_comp *copy;
  AT_TRY(at_region_create(m, &copy));
  AT_TRY(clone_into(m, c, map, copy));
  *out = copy;
  return AT_OK;
}
