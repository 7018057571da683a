// Random control flow, calls, and the collectives of one device.
#include "hlo/random_internal.h"

// op(x, x) for a body.
static at_status twice(at_gen *g, at_comp *c, at_value x, at_value *out) {
  return at_build_op(c, NULL, at_gen_exact_binary(g, at_value_type(x)->dtype),
                     (at_value[]){x, x}, 2, NULL, out);
}

// A counter from 0 to at most 3, and one value that each turn changes.
at_status at_gen_while(at_gen *g, at_op op, at_dtype t) {
  at_value x, zero, p[2], limit, one, r[2];
  AT_TRY(at_gen_value(g, t, &x));
  at_step s = {.op = op, .num_regions = 2};
  AT_TRY(at_gen_int(g, g->c, AT_S32, 0, &zero));
  at_step_operand(&s, zero);
  at_step_operand(&s, x);
  for (int i = 0; i < 2; i++) {
    at_comp *c;
    AT_TRY(at_region_create(g->m, &c));
    s.regions[i] = c;
    AT_TRY(at_build_param(c, at_type_scalar(AT_S32), NULL, &p[0]));
    AT_TRY(at_build_param(c, *at_value_type(x), NULL, &p[1]));
    if (i == 0) {
      at_step less = {.op = AT_OP_COMPARE};
      AT_TRY(at_gen_int(g, c, AT_S32, at_gen_below(g, 4), &limit));
      at_step_operand(&less, p[0]);
      at_step_operand(&less, limit);
      at_step_int(&less, AT_ATTR_COMPARISON_DIRECTION, AT_LT);
      AT_TRY(at_step_in(c, &less, &r[0]));
      AT_TRY(at_comp_return(c, r, 1));
    } else {
      AT_TRY(at_gen_int(g, c, AT_S32, 1, &one));
      AT_TRY(at_build_op(c, NULL, AT_OP_ADD, (at_value[]){p[0], one}, 2, NULL,
                         &r[0]));
      AT_TRY(twice(g, c, p[1], &r[1]));
      AT_TRY(at_comp_return(c, r, 2));
    }
  }
  return at_step_build(g, &s);
}

// If and case; the branches use values from around them.
at_status at_gen_branch(at_gen *g, at_op op, at_dtype t) {
  at_value x, selector;
  bool is_if = op == AT_OP_IF;
  AT_TRY(at_gen_value(g, t, &x));
  at_step s = {.op = op, .num_regions = is_if ? 2 : 1 + at_gen_below(g, 4)};
  AT_TRY(at_gen_like(g, at_type_scalar(is_if ? AT_PRED : AT_S32), &selector));
  at_step_operand(&s, selector);
  for (uint32_t i = 0; i < s.num_regions; i++) {
    at_value r = x;
    AT_TRY(at_region_create(g->m, &s.regions[i]));
    if (at_gen_chance(g, 70)) AT_TRY(twice(g, s.regions[i], x, &r));
    AT_TRY(at_comp_return(s.regions[i], &r, 1));
  }
  return at_step_build(g, &s);
}

// Call and composite.
at_status at_gen_call(at_gen *g, at_op op, at_dtype t) {
  char *name;
  at_comp *f;
  at_value x, p, r;
  AT_TRY(at_gen_value(g, t, &x));
  AT_TRY_ALLOC(name, at_arena_printf(g->a, "f%u", g->m->num_funcs));
  AT_TRY(at_comp_create(g->m, at_str_of(name), NULL, &f));
  AT_TRY(at_build_param(f, *at_value_type(x), NULL, &p));
  AT_TRY(twice(g, f, p, &r));
  AT_TRY(at_comp_return(f, &r, 1));
  at_step s = {.op = op};
  at_step_operand(&s, x);
  if (op == AT_OP_COMPOSITE) {
    at_step_str(&s, AT_ATTR_NAME, "random.twice");
    at_step_int(&s, AT_ATTR_VERSION, 1);
  }
  at_step_str(&s, AT_ATTR_CALLEE, name);
  return at_step_build(g, &s);
}

// One operand or two.
at_status at_gen_barrier(at_gen *g, at_op op, at_dtype t) {
  at_value x, y;
  AT_TRY(at_gen_value(g, t, &x));
  AT_TRY(at_gen_value(g, t, &y));
  at_step s = {.op = op};
  at_step_operand(&s, x);
  if (at_gen_chance(g, 50)) at_step_operand(&s, y);
  return at_step_build(g, &s);
}

// Groups of device 0 alone. Permutes send (0, 0), or have no pair, which gives
// zeros.
at_status at_gen_collective(at_gen *g, at_op op, at_dtype t) {
  static const int64_t zero[] = {0}, loop[] = {0, 0};
  at_value x;
  AT_TRY(at_gen_ranked(g, t, 1, 4, &x));
  const at_type *r = at_value_type(x);
  int64_t d = at_gen_below(g, r->rank);
  bool declared = op == AT_OP_ALL_GATHER || op == AT_OP_ALL_TO_ALL ||
                  op == AT_OP_REDUCE_SCATTER;
  at_dims *group;
  AT_TRY_ALLOC(group, at_new(g->a, at_dims, 1));
  *group =
      op == AT_OP_COLLECTIVE_PERMUTE ? (at_dims){loop, 2} : (at_dims){zero, 1};
  at_step s = {.op = op, .types = declared ? r : NULL, .num_types = declared};
  at_step_operand(&s, x);
  bool apart = op == AT_OP_COLLECTIVE_PERMUTE && at_gen_chance(g, 30);
  s.attrs[s.num_attrs++] = (at_attr){.id = op == AT_OP_COLLECTIVE_PERMUTE
                                               ? AT_ATTR_SOURCE_TARGET_PAIRS
                                               : AT_ATTR_REPLICA_GROUPS,
                                     .groups = {group, !apart}};
  if (op == AT_OP_ALL_GATHER) at_step_int(&s, AT_ATTR_ALL_GATHER_DIM, d);
  if (op == AT_OP_REDUCE_SCATTER) at_step_int(&s, AT_ATTR_SCATTER_DIMENSION, d);
  if (op == AT_OP_ALL_TO_ALL) {
    at_step_int(&s, AT_ATTR_SPLIT_DIMENSION, d);
    at_step_int(&s, AT_ATTR_CONCAT_DIMENSION, d);
    at_step_int(&s, AT_ATTR_SPLIT_COUNT, 1);
  }
  if (op == AT_OP_ALL_REDUCE || op == AT_OP_REDUCE_SCATTER) {
    s.num_regions = 1;
    AT_TRY(at_gen_binary_region(g, at_gen_reducer(g, t), t, &s.regions[0]));
  }
  return at_step_build(g, &s);
}
