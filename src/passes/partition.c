// A program with shardings becomes the program of one device: shardings spread
// (propagate.c), then every node is rewritten, in order, to work on parts
// (partition_op.c). An op without a rule runs whole on every device; notes of
// the module say what was gathered for that, or for ops along such dimensions.
#include <ctype.h>
#include <stdio.h>

#include "passes/shard.h"

// ---- Places
static at_status new_place(at_cut *c, const at_type *t, at_place **out) {
  at_place *p;
  AT_TRY_ALLOC(p, at_new(c->m->arena, at_place, 1));
  p->whole = *t;
  p->open = ~0ull;
  AT_TRY_ALLOC(p->dims, at_new(c->m->arena, at_axes, t->rank + 1));
  *out = p;
  return AT_OK;
}

static at_status place_comp(at_cut *c, at_comp *comp, uint32_t banned);

// Does every dimension of p divide by what cuts it?
static bool is_even(const at_cut *c, const at_place *p) {
  bool even = true;
  for (uint32_t d = 0; d < p->whole.rank; d++)
    even &= at_axes_even(c, &p->dims[d], p->whole.dims[d]);
  return even;
}

// What is left of p where the axes `manual` belong to the program.
static void leave_axes(at_place *p, uint32_t manual) {
  for (uint32_t d = 0; d < p->whole.rank; d++)
    p->dims[d] = at_axes_within(&p->dims[d], ~manual);
  p->sums &= ~manual;
}

static at_lay lay_of(const at_place *p) { return (at_lay){p->dims, p->sums}; }

// A loop's value has one place: its result, and the parameters of both regions.
static at_status place_while(at_cut *c, at_node *n, uint32_t banned) {
  for (uint32_t k = 0; k < 2; k++) {
    at_comp *r = n->regions[k];
    AT_TRY(place_comp(c, r, banned));
    for (uint32_t i = 0; i < r->num_params; i++)
      ((at_place **)r->params[i]->aux)[0] = ((at_place **)n->aux)[i];
  }
  return AT_OK;
}

// In another order of devices nothing inside may be cut by us.
static at_status check_order(const at_cut *c, const at_node *n,
                             const at_place *p, uint32_t manual) {
  if (!p->devices || manual == (1u << c->num_atoms) - 1) return AT_OK;
  return at_fail_at(AT_UNIMPLEMENTED, n,
                    "a manual computation over some axes of a mesh whose "
                    "devices are in another order than those of the program's "
                    "first mesh");
}

// Places of a manual computation: `in_shardings` cut its operands, what is left
// of them without the manual axes cuts the body's parameters; `out_shardings`
// likewise for the results. The body must not cut along manual axes (banned).
static at_status place_manual(at_cut *c, at_node *n, uint32_t banned) {
  uint32_t manual;
  AT_TRY(at_axes_mask(c, at_node_str(n, AT_ATTR_MANUAL_AXES), &manual));
  at_str out = at_node_str(n, AT_ATTR_OUT_SHARDINGS);
  AT_TRY(place_comp(c, n->regions[0], banned | manual));
  at_str in = at_node_str(n, AT_ATTR_IN_SHARDINGS);
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_place *whole, *p = ((at_place **)n->regions[0]->params[i]->aux)[0];
    AT_TRY(new_place(c, at_value_type(n->operands[i]), &whole));
    AT_TRY(at_place_parse(c, at_sharding_item(in, i), true, whole));
    AT_TRY(check_order(c, n, whole, manual));
    for (uint32_t d = 0; d < p->whole.rank; d++) p->dims[d] = whole->dims[d];
    p->sums = whole->sums;
    leave_axes(p, manual);
    p->open = whole->open;
    p->later = NULL;
    p->outer = whole;  // what the operand is brought to
    // The operand would rather be there already.
    at_place *from = at_place_of(n->operands[i]);
    if (from && from->open && !at_dims_bits(from->dims, from->whole.rank)) {
      from->mesh = whole->mesh;
      for (uint32_t d = 0; d < from->whole.rank; d++)
        if ((from->open >> d & 1) &&
            !(at_axes_bits(&whole->dims[d]) & from->banned))
          from->dims[d] = whole->dims[d];
    }
  }
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_place *p = ((at_place **)n->aux)[i];
    AT_TRY(at_place_parse(c, at_sharding_item(out, i), true, p));
    AT_TRY(check_order(c, n, p, manual));
  }
  return AT_OK;
}

static bool is_call(const at_node *n, const char *target, uint32_t results) {
  return n->op == AT_OP_CUSTOM_CALL && n->num_operands == 1 &&
         n->num_results == results &&
         at_str_is(at_node_str(n, AT_ATTR_CALL_TARGET_NAME), target);
}

bool at_is_constraint(const at_node *n) { return is_call(n, "Sharding", 1); }

bool at_is_manual_entry(const at_node *n) {
  return is_call(n, "SPMDFullToShardShape", 1);
}
bool at_is_manual_exit(const at_node *n) {
  return is_call(n, "SPMDShardToFullShape", 1);
}

bool at_is_layout_constraint(const at_node *n) {
  return is_call(n, "LayoutConstraint", 1);
}

bool at_is_sharding_group(const at_node *n) {
  return is_call(n, "xla.sdy.ShardingGroup", 0);
}

// What only tells something, and is gone when it has been heard.
static bool is_told(const at_node *n) {
  return at_is_constraint(n) || at_is_layout_constraint(n) ||
         at_is_sharding_group(n) || at_is_manual_entry(n) ||
         at_is_manual_exit(n);
}

// What GSPMD's calls leave open: "unspecified_dims=[0,1]".
static void leave_open(at_str config, at_place *p) {
  if (!at_str_starts(config, "unspecified_dims=[")) return;
  for (size_t i = 0; i < config.len; i++) {
    uint32_t d = 0, digits = 0;
    for (; i < config.len && isdigit((unsigned char)config.ptr[i]); i++) {
      d = d * 10 + (uint32_t)(config.ptr[i] - '0');
      digits++;
    }
    if (digits && digits < 3 && d < 64) p->open |= 1ull << d;
  }
}

// Reads the sharding attribute of n onto its results' places: one text for all,
// or a list.
static at_status stated(at_cut *c, at_node *n) {
  at_str text = at_node_str(n, AT_ATTR_SHARDING);
  if (!text.len) return AT_OK;
  bool list = at_str_starts(text, "#sdy.sharding_per_value");
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_str item = list ? at_sharding_item(text, i) : text;
    if (item.len && (list || n->num_results == 1))
      AT_TRY(at_place_parse(c, item, false, ((at_place **)n->aux)[i]));
  }
  if (at_is_constraint(n) || at_is_manual_entry(n) || at_is_manual_exit(n))
    leave_open(at_node_str(n, AT_ATTR_BACKEND_CONFIG),
               ((at_place **)n->aux)[0]);
  return AT_OK;
}

// Axes along which n's results differ from device to device.
static at_status manual_axes_of(at_cut *c, const at_node *n, uint32_t *axes) {
  // An entry without a sharding leaves every axis to the program.
  uint32_t own = at_is_manual_entry(n) ? (1u << c->num_atoms) - 1 : 0;
  at_str text = at_node_str(n, AT_ATTR_SHARDING);
  if (text.len && (at_is_manual_entry(n) || at_is_manual_exit(n)))
    AT_TRY(at_manual_mask(c, text, &n->types[0], &own));
  *axes |= own;
  for (uint32_t i = 0; i < n->num_operands && !at_is_manual_exit(n); i++) {
    const at_place *p = at_place_of(n->operands[i]);
    if (p) *axes |= p->manual;
  }
  return AT_OK;
}

// Atoms that are manual on one side only.
uint32_t at_boundary_axes(const at_node *n) {
  return at_place_of(n->operands[0])->manual ^
         at_place_of((at_value){(at_node *)n, 0})->manual;
}

// Makes places for n's results (n->aux), with what the program states; then
// those of its regions. Operands have theirs.
static at_status place_node(at_cut *c, at_node *n, uint32_t banned) {
  at_place **list;
  AT_TRY(manual_axes_of(c, n, &banned));
  AT_TRY_ALLOC(list, at_new(c->m->arena, at_place *, n->num_results + 1));
  n->aux = list;
  c->channel = AT_MAX(c->channel, at_node_int(n, AT_ATTR_CHANNEL_ID, 0));
  for (uint32_t i = 0; i < n->num_results; i++) {
    if (!at_type_is_static(&n->types[i]))
      return at_fail_at(AT_UNIMPLEMENTED, n,
                        "a dynamic shape in a program over several "
                        "devices");
    AT_TRY(new_place(c, &n->types[i], &list[i]));
    list[i]->banned = list[i]->manual = banned;
  }
  AT_TRY(stated(c, n));
  if ((at_is_constraint(n) || at_is_layout_constraint(n)) &&
      !at_type_eq(at_value_type(n->operands[0]), &n->types[0]))
    return at_fail_at(AT_INVALID_ARGUMENT, n, "changes the value's type");
  // Only the program says how the axes of a manual computation cut its edge.
  if ((at_is_manual_entry(n) || at_is_manual_exit(n)) &&
      at_value_type(n->operands[0])->rank != n->types[0].rank)
    return at_fail_at(AT_INVALID_ARGUMENT, n,
                      "changes the number of dimensions");
  if (at_is_manual_entry(n))
    at_place_of(n->operands[0])->banned |= at_boundary_axes(n);
  if (at_is_manual_exit(n)) list[0]->banned |= at_boundary_axes(n);
  // Summands that other ops state are what they would rather make.
  for (uint32_t i = 0; i < n->num_results && !at_is_constraint(n); i++) {
    list[i]->wanted = list[i]->sums;
    list[i]->sums = 0;
  }
  for (uint32_t i = 0; i < n->num_results; i++)
    for (uint32_t d = 0; d < list[i]->whole.rank; d++)
      if (at_axes_bits(&list[i]->dims[d]) & banned) list[i]->dims[d].n = 0;
  switch (n->op) {
    case AT_OP_WHILE:
      return place_while(c, n, banned);
    case AT_OP_IF:
    case AT_OP_CASE:
      for (uint32_t k = 0; k < n->num_regions; k++)
        AT_TRY(place_comp(c, n->regions[k], banned));
      return AT_OK;
    case AT_OP_MANUAL_COMPUTATION:
      return place_manual(c, n, banned);
    default:
      if (at_is_sharding_group(n) && !at_vec_push(c->m->arena, &c->groups, n))
        return AT_NO_MEMORY("sharding groups");
      return AT_OK;
  }
}

static at_status place_comp(at_cut *c, at_comp *comp, uint32_t banned) {
  AT_FOR_NODES(n, comp) AT_TRY(place_node(c, n, banned));
  return AT_OK;
}

// Parameters: what the client states is exact. One without a sharding that is
// not open stays whole. Clients hold arguments evenly cut.
static at_status place_entry(at_cut *c) {
  at_comp *e = c->m->entry;
  AT_TRY(place_comp(c, e, 0));
  for (uint32_t i = 0; i < e->num_params; i++) {
    at_place *p = ((at_place **)e->params[i]->aux)[0];
    const char *text = c->m->params ? c->m->params[i].sharding : NULL;
    if (text) AT_TRY(at_place_parse(c, at_str_of(text), true, p));
    bool open = c->m->params && c->m->params[i].open;
    if (!text && !open) p->open = 0;
    p->even = true;
  }
  return AT_OK;
}

// What the caller wants of the results is known before propagation: a value
// that is returned would rather be there.
static at_status place_results(at_cut *c) {
  at_comp *e = c->m->entry;
  AT_TRY_ALLOC(c->results, at_new(c->m->arena, at_place *, e->num_results + 1));
  for (uint32_t i = 0; i < e->num_results; i++) {
    at_place *p = at_place_of(e->results[i]), *want;
    const char *text = c->m->results ? c->m->results[i].sharding : NULL;
    bool open = c->m->results && c->m->results[i].open;
    c->results[i] = NULL;  // as it comes
    if (!text && open) continue;
    AT_TRY(new_place(c, &p->whole, &want));
    if (text) AT_TRY(at_place_parse(c, at_str_of(text), true, want));
    c->results[i] = want;
    p->wanted |= want->sums;
    p->banned |= want->sums;
    if (at_dims_bits(p->dims, p->whole.rank)) continue;
    p->mesh = want->mesh;
    for (uint32_t d = 0; d < p->whole.rank; d++)
      if (p->open >> d & 1) p->dims[d] = want->dims[d];
  }
  return AT_OK;
}

// ---- Rewriting
static at_status rewrite_comp(at_cut *c, at_comp *comp);

// Result i of n now is the part: its type shrinks, and its place holds it.
static at_status cut_type_of(at_cut *c, at_node *n, uint32_t i) {
  at_place *p = at_place_of((at_value){n, i});
  p->now = (at_value){n, i};
  return at_type_cut(c, &p->whole, p->dims, &n->types[i]);
}

// v as `like` lives.
static at_status bring_to(at_cut *c, at_comp *comp, at_node *before,
                          const at_place *like, at_value *v) {
  return at_reshard(c, comp, before, at_place_of(*v), lay_of(like), v);
}

// Results of a body, each brought to where `like` has it.
static at_status rewrite_results(at_cut *c, at_comp *body,
                                 at_place *const *like) {
  for (uint32_t i = 0; i < body->num_results; i++)
    AT_TRY(bring_to(c, body, NULL, like[i], &body->results[i]));
  return AT_OK;
}

// Operands are brought to the carried places, which body and condition share;
// summands stay summands where the operand has them.
static at_status rewrite_while(at_cut *c, at_node *n) {
  at_place **carried = (at_place **)n->aux;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    carried[i]->sums = at_place_of(n->operands[i])->sums &
                       ~at_dims_bits(carried[i]->dims, carried[i]->whole.rank);
    AT_TRY(bring_to(c, n->parent, n, carried[i], &n->operands[i]));
  }
  for (uint32_t k = 0; k < 2; k++) {
    at_comp *r = n->regions[k];
    // Both regions share the places of what is carried: parts made for one are
    // not the other's.
    AT_TRY(rewrite_comp(c, r));
    if (k == 0) {
      at_place *p = at_place_of(r->results[0]);
      AT_TRY(at_reshard(c, r, NULL, p, lay_of(p), &r->results[0]));
    } else {
      AT_TRY(rewrite_results(c, r, carried));
    }
  }
  for (uint32_t i = 0; i < n->num_results; i++) AT_TRY(cut_type_of(c, n, i));
  return AT_OK;
}

// The predicate is needed by every device, whole.
static at_status rewrite_branches(at_cut *c, at_node *n) {
  for (uint32_t i = 0; i < n->num_operands; i++)
    AT_TRY(at_bring_whole(c, n, &n->operands[i]));
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_place *p = at_place_of((at_value){n, i});
    p->sums = p->wanted & ~at_dims_bits(p->dims, p->whole.rank);
  }
  for (uint32_t k = 0; k < n->num_regions; k++) {
    AT_TRY(rewrite_comp(c, n->regions[k]));
    AT_TRY(rewrite_results(c, n->regions[k], (at_place *const *)n->aux));
  }
  for (uint32_t i = 0; i < n->num_results; i++) AT_TRY(cut_type_of(c, n, i));
  return AT_OK;
}

// The body already speaks of parts: it takes the place of the node.
static at_status rewrite_manual(at_cut *c, at_node *n) {
  at_comp *body = n->regions[0];
  uint32_t manual;
  AT_TRY(at_axes_mask(c, at_node_str(n, AT_ATTR_MANUAL_AXES), &manual));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_place *p = at_place_of((at_value){body->params[i], 0});
    at_value v = n->operands[i];
    for (uint32_t d = 0; d < p->whole.rank; d++) {
      at_axes *all = &p->outer->dims[d];
      *all = at_axes_within(all, manual);
      for (uint32_t k = 0; k < p->dims[d].n && all->n < AT_MAX_ATOMS; k++)
        all->a[all->n++] = p->dims[d].a[k];
    }
    AT_TRY(at_reshard(c, n->parent, n, at_place_of(v), lay_of(p->outer),
                      &n->operands[i]));
    if (p->outer->devices)
      AT_TRY(at_reorder(c, n->parent, n, c->devices, p->outer->devices,
                        n->operands[i], &n->operands[i]));
  }
  // Parameters keep their nodes, as their place's value, until the body moves.
  AT_TRY(rewrite_comp(c, body));
  at_place **like, *whole;
  AT_TRY_ALLOC(like, at_new(c->m->arena, at_place *, n->num_results + 1));
  for (uint32_t i = 0; i < n->num_results; i++) {
    const at_place *result = at_place_of((at_value){n, i});
    AT_TRY(new_place(c, &n->types[i], &whole));
    for (uint32_t d = 0; d < whole->whole.rank; d++)
      whole->dims[d] = result->dims[d];
    whole->sums = result->sums;
    leave_axes(whole, manual);
    like[i] = whole;
  }
  AT_TRY(rewrite_results(c, body, like));
  at_value *out;
  AT_TRY_ALLOC(out, at_new(c->m->arena, at_value, n->num_results + 1));
  at_comp_splice(body, n->operands, n, out);
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_place *p = at_place_of((at_value){n, i});
    p->now = out[i];
    if (p->devices)
      AT_TRY(
          at_reorder(c, n->parent, n, p->devices, c->devices, p->now, &p->now));
  }
  n->num_regions = 0;
  return AT_OK;
}

// The constraint's place is what was asked for; the node itself goes.
static at_status rewrite_constraint(at_cut *c, at_node *n) {
  at_place *p = at_place_of((at_value){n, 0});
  return at_reshard(c, n->parent, n, at_place_of(n->operands[0]), lay_of(p),
                    &p->now);
}

// As a constraint, but summands may pass.
static at_status rewrite_layout(at_cut *c, at_node *n) {
  at_place *p = at_place_of((at_value){n, 0});
  p->sums = at_sums_carried(n, at_dims_bits(p->dims, p->whole.rank), 0);
  return at_reshard(c, n->parent, n, at_place_of(n->operands[0]), lay_of(p),
                    &p->now);
}

// The part that the device has is the value inside, and the other way round.
// Axes that are not the program's may cut both.
static at_status rewrite_boundary(at_cut *c, at_node *n) {
  at_place *from = at_place_of(n->operands[0]);
  at_place *p = at_place_of((at_value){n, 0}), *cut;
  bool entry = at_is_manual_entry(n);
  // `cut`: the value outside along the manual axes alone; its part must have
  // the type of the value inside.
  uint32_t manual = at_boundary_axes(n);
  const at_place *outside = entry ? from : p, *in = entry ? p : from;
  const at_type *inside = &in->whole;
  at_type part;
  AT_TRY(new_place(c, &outside->whole, &cut));
  for (uint32_t d = 0; d < inside->rank; d++)
    cut->dims[d] = at_axes_within(&outside->dims[d], manual);
  AT_TRY(at_type_cut(c, &cut->whole, cut->dims, &part));
  if (!is_even(c, cut) || !at_type_eq(&part, inside))
    return at_fail_at(AT_UNIMPLEMENTED, n,
                      "parts of another shape than its sharding gives");
  for (uint32_t d = 0; d < inside->rank; d++) {
    at_axes shared = at_axes_within(&(entry ? in : outside)->dims[d], ~manual);
    if (!entry) cut->dims[d].n = 0;
    for (uint32_t k = 0; k < shared.n && cut->dims[d].n < AT_MAX_ATOMS; k++)
      cut->dims[d].a[cut->dims[d].n++] = shared.a[k];
  }
  return at_reshard(c, n->parent, n, from, lay_of(cut), &p->now);
}

// A parameter whose client orders devices otherwise is permuted at the head of
// the entry.
static at_status rewrite_parameter(at_cut *c, at_node *n) {
  at_place *p = at_place_of((at_value){n, 0});
  AT_TRY(cut_type_of(c, n, 0));
  if (!p->devices || n->parent != c->m->entry) return AT_OK;
  return at_reorder(c, n->parent, c->head, p->devices, c->devices, p->now,
                    &p->now);
}

// n's operands have been rewritten: their places hold their parts.
static at_status rewrite_node(at_cut *c, at_node *n) {
  switch (n->op) {
    case AT_OP_PARAMETER:
      return rewrite_parameter(c, n);
    case AT_OP_WHILE:
      return rewrite_while(c, n);
    case AT_OP_IF:
    case AT_OP_CASE:
      return rewrite_branches(c, n);
    case AT_OP_MANUAL_COMPUTATION:
      return rewrite_manual(c, n);
    default:
      if (at_is_sharding_group(n)) return AT_OK;  // dropped at the end
      if (at_is_layout_constraint(n)) return rewrite_layout(c, n);
      if (at_is_manual_entry(n) || at_is_manual_exit(n))
        return rewrite_boundary(c, n);
      return at_is_constraint(n) ? rewrite_constraint(c, n)
                                 : at_partition_op(c, n);
  }
}

// A node without uses at the end, so that every node has a next one to build
// before.
static at_status close_comp(at_cut *c, at_comp *comp) {
  uint64_t zero[2] = {0};
  const at_literal *l;
  at_value v;
  AT_TRY(at_literal_make(c->m->arena, at_type_scalar(AT_PRED), zero, true,
                         false, &l));
  return at_build_constant(comp, NULL, l, &v);
}

// Visits the nodes that were there at the beginning; what is built in between
// has no place.
static at_status rewrite_comp(at_cut *c, at_comp *comp) {
  at_node *last = comp->last;
  AT_TRY(at_products_want(c, comp));
  AT_TRY(close_comp(c, comp));
  for (at_node *n = comp->first, *next; n && last; n = next) {
    next = n->next;
    // What was built for n-1 lies between; only nodes with places are the
    // program's.
    if (n->aux) AT_TRY(rewrite_node(c, n));
    if (n == last) break;
  }
  return AT_OK;
}

// ---- The pass
// What was replaced: constraints and bodies, and whatever nobody uses now.
static void drop_replaced(at_comp *comp) {
  for (at_node *n = comp->first, *next; n; n = next) {
    next = n->next;
    if (n->aux && (is_told(n) || n->op == AT_OP_MANUAL_COMPUTATION)) {
      at_node_remove(n);
      continue;
    }
    for (uint32_t k = 0; k < n->num_regions; k++) drop_replaced(n->regions[k]);
  }
}

// Tells the client, in HLO's text, how arguments and results are cut, and
// leaves the notes in the module.
static at_status tell(at_cut *c) {
  at_module *m = c->m;
  at_comp *e = m->entry;
  for (uint32_t i = 0; m->params && i < e->num_params; i++)
    AT_TRY(at_place_print(c, at_place_of((at_value){e->params[i], 0}),
                          &m->params[i].sharding));
  for (uint32_t i = 0; m->results && i < e->num_results; i++)
    AT_TRY(at_place_print(c, c->results[i], &m->results[i].sharding));
  if (c->notes.len)
    AT_TRY_ALLOC(m->notes, at_arena_printf(m->arena, "%.*s", (int)c->notes.len,
                                           c->notes.ptr));
  return AT_OK;
}

// How p's value leaves the program: as it is, but for what clients have no
// words for.
static at_status leaving_place(at_cut *c, at_place *p, at_place **out) {
  at_axes *dims;
  AT_TRY_ALLOC(dims, at_new(c->m->arena, at_axes, p->whole.rank + 1));
  for (uint32_t d = 0; d < p->whole.rank; d++) {
    dims[d] = p->dims[d];
    at_axes_keep_whole(c, p->mesh, p->whole.dims[d], &dims[d]);
  }
  *out = p;
  if (at_dims_axes_eq(dims, p->dims, p->whole.rank)) return AT_OK;
  AT_TRY(new_place(c, &p->whole, out));
  (*out)->dims = dims;
  return AT_OK;
}

// In this order: meshes, padding at the edges, places, wishes of the caller,
// propagation, rewriting.
static at_status partition(at_cut *c) {
  at_comp *e = c->m->entry;
  AT_TRY(at_cut_meshes(c));
  AT_TRY(at_uneven_edges(c));
  AT_TRY(place_entry(c));
  AT_TRY(place_results(c));
  AT_TRY(at_cut_tiles_mesh(c));
  at_sums_want(e);
  AT_TRY(at_propagate(c));
  // Values that all parts share (this device's digits) are made here.
  c->head = e->first;
  while (c->head && c->head->op == AT_OP_PARAMETER) c->head = c->head->next;
  for (uint32_t i = 0; i < e->num_results; i++)
    if (!c->results[i])
      AT_TRY(leaving_place(c, at_place_of(e->results[i]), &c->results[i]));
  AT_TRY(rewrite_comp(c, e));
  AT_TRY(rewrite_results(c, e, c->results));
  for (uint32_t i = 0; i < e->num_results; i++)
    if (c->results[i]->devices)
      AT_TRY(at_reorder(c, e, NULL, c->devices, c->results[i]->devices,
                        e->results[i], &e->results[i]));
  AT_TRY(tell(c));
  drop_replaced(e);
  return AT_OK;
}

// Without any, the program is already that of one device.
static bool has_shardings(const at_module *m) {
  bool any = m->mesh_text != NULL;
  for (uint32_t i = 0; m->params && i < m->entry->num_params; i++)
    any |= m->params[i].sharding != NULL;
  for (uint32_t i = 0; m->results && i < m->entry->num_results; i++)
    any |= m->results[i].sharding != NULL;
  AT_FOR_NODES(n, m->entry) any |= at_node_str(n, AT_ATTR_SHARDING).len > 0;
  return any;
}

// Programs of one device or without shardings are left alone.
at_status at_pass_partition(at_module *m, const at_pass_options *o) {
  if (m->num_partitions <= 1 || !has_shardings(m)) return AT_OK;
  // Sizes are constants here; once they are parts of values, nobody could tell.
  if (at_needs_refining(m)) AT_TRY(at_pass_refine(m, o));
  at_cut c = {.m = m};
  at_aux_clear(m);
  at_status st = partition(&c);
  at_strbuf_free(&c.notes);
  if (!st.err) at_dce(m);
  return st;
}
