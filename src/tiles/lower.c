// From hlo to steps: a home for every value, a grid for every node.
#include <math.h>

#include "cost/count.h"
#include "tiles/lower_internal.h"

// Follows aliases to the value that has a home or a recipe.
at_value at_tiles_root(const at_tiles_lowerer *w, at_value v) {
  for (;;) {
    void **place = at_map_find_ptr(&w->values, v.node);
    const at_tiles_value *x = place ? *place : NULL;
    if (!x || !x[v.index].same.node) return v;
    v = x[v.index].same;
  }
}

// NULL for nodes that were not declared: those of comparators and reductions.
at_tiles_value *at_tiles_value_of(const at_tiles_lowerer *w, at_value v) {
  v = at_tiles_root(w, v);
  void **place = at_map_find_ptr(&w->values, v.node);
  return place ? (at_tiles_value *)*place + v.index : NULL;
}

// Nobody wants it any more.
static void end_value(at_tiles_lowerer *w, at_tiles_value *v) {
  // Its memory is free from the phase before the next step on.
  if (v->ours && v->life)
    w->lives.ptr[v->life - 1].last = 4 * (int32_t)w->steps.len - 1;
  v->ours = false;
}

// Steps [first, now) are what `key` (a node, or a region that ends) became.
static at_status note_task(at_tiles_lowerer *w, const void *key, size_t first,
                           const at_tiles_grid *g) {
  at_tiles_task *t;
  void **slot;
  if (w->quick) return AT_OK;
  // Only for reports; plans that are compared have none.
  AT_TRY_ALLOC(t, at_new(w->arena, at_tiles_task, 1));
  t->first_step = (uint32_t)first;
  t->num_steps = (uint32_t)(w->steps.len - first);
  if (g) t->grid = *g, t->cut = true;
  if (t->num_steps) t->received = w->steps.ptr[first].exchange_bytes;
  AT_TRY_ALLOC(slot, at_map_put_ptr(&w->tasks, key));
  *slot = t;
  return AT_OK;
}

// ---- Nodes
// Result i of n lives in l from now on.
static at_status result_home(at_tiles_lowerer *w, const at_node *n, uint32_t i,
                             const at_tiles_lay *l) {
  at_tiles_value *v = at_tiles_value_of(w, (at_value){(at_node *)n, i});
  v->lay = *l;
  return at_tiles_own(w, v);
}

// Partial results on the tiles of `group`: each takes one share of the block.
static at_status combine(at_tiles_lowerer *w, const at_node *n, uint32_t i,
                         const at_tiles_lay *partial, const uint32_t *group,
                         uint32_t num) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("partial results");
  at_tiles_moves m;
  at_tiles_lay home = *partial;
  // Narrow types are summed as words.
  int64_t *work = NULL, size = AT_MAX(at_dtype_bytes(n->types[i].dtype), 4u);
  at_status st = at_tiles_moves_in(w, a, &m);
  // The dimension whose blocks are longest is cut again, one share for each
  // member.
  uint32_t widest = 0;
  for (uint32_t d = 1; d < home.rank; d++)
    if (n->types[i].dims[d] * home.dim[widest].cuts >
        n->types[i].dims[widest] * home.dim[d].cuts)
      widest = d;
  if (at_ok(st) && home.rank)
    st = at_tiles_dim_again(w->arena, &home.dim[widest], group, num,
                            &home.dim[widest]);
  // `source` is the partial result as member `from` has it: the same blocks, so
  // many tiles on.
  // Every member sends each other member its share.
  for (uint32_t from = 0; at_ok(st) && from < num; from++) {
    at_tiles_lay source = *partial;
    for (uint32_t d = 0; d < 1 && source.rank; d++) {
      uint32_t *off = at_new(a, uint32_t, (size_t)source.dim[0].cuts);
      if (!off) {
        st = AT_NO_MEMORY("partial results");
        break;
      }
      for (int64_t k = 0; k < source.dim[0].cuts; k++)
        off[k] = source.dim[0].off[k] + group[from];
      source.dim[0].off = off;
    }
    uint32_t none = 0;
    if (at_ok(st) && source.rank)
      st = at_tiles_move(&m, &source, &home, &none, 1, size);
    if (at_ok(st) && !source.rank &&
        from) {  // a scalar is added up on the first
      uint32_t to = 0;
      at_tiles_message g = {group[from], (uint32_t)m.receivers.len, 1, size, 0};
      if (!at_vec_push(a, &m.receivers, to) || !at_vec_push(a, &m.messages, g))
        st = AT_NO_MEMORY("partial results");
    }
  }
  if (at_ok(st) && !(work = at_new(a, int64_t, (size_t)w->m.tiles)))
    st = AT_NO_MEMORY("partial results");
  if (at_ok(st)) {
    // One step adds all shares: `num` summands for each element of the share,
    // two at a time.
    at_tiles_lay_elements(&home, w->m.tiles, work);
    for (int64_t t = 0; t < w->m.tiles; t++)
      if (work[t])
        work[t] =
            at_tiles_shared_cycles(&w->m, at_ceil_div(work[t] * num, 2), 1, 2);
    st = at_tiles_add_step(w, n, " sum", &m, work);
  }
  if (at_ok(st)) st = result_home(w, n, i, &home);
  at_arena_destroy(a);
  return st;
}

// Cycles of every tile's vertex: those of its block of the first result, with
// the largest operand's block. Tiles of one group do the same work.
static at_status work_of(at_tiles_lowerer *w, const at_node *n,
                         const at_tiles_rule *r, const at_tiles_grid *g,
                         at_arena *a, int64_t *work) {
  at_tiles_lay o, in = {0};
  uint32_t *group, num, *ingroup, innum, big = at_tiles_largest_operand(n, r);
  int64_t *read;
  AT_TRY_ALLOC(read, at_new(a, int64_t, (size_t)w->m.tiles));
  AT_TRY(at_tiles_grid_lay(a, r, g, n->num_operands, &o, &group, &num));
  at_tiles_lay_elements(&o, w->m.tiles, work);
  if (n->num_operands) {
    AT_TRY(at_tiles_grid_lay(a, r, g, big, &in, &ingroup, &innum));
    at_tiles_lay_elements(&in, w->m.tiles, read);
  }
  double depth = at_tiles_grid_depth(n, r, g);
  // Tiles of partial results and of replicated operands do the same as the
  // first.
  // From the last tile on, as a group's first tile writes to those behind it.
  for (int64_t t = w->m.tiles; t-- > 0;) {
    int64_t e = work[t], b = read[t];
    if (!e) continue;
    for (uint32_t k = num; k-- > 0;) {
      int64_t to = t + group[k];
      if (to < w->m.tiles)
        work[to] =
            at_tiles_node_cycles(&w->m, n, e, read[to] ? read[to] : b, depth);
    }
  }
  return AT_OK;
}

// The general way: a grid, a step that brings operands and computes, and for
// summed factors a second step that adds up.
static at_status lower_by_rule(at_tiles_lowerer *w, const at_node *n) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("node");
  at_tiles_rule r;
  at_tiles_grid g;
  at_tiles_moves m;
  size_t first = w->steps.len;
  int64_t stay = 0;
  int64_t *work = at_new(a, int64_t, (size_t)w->m.tiles);
  // The rule says how operands follow the results; the grid, how the work is
  // cut.
  at_status st = at_tiles_rule_make(a, n, &r);
  if (at_ok(st) && !work) st = AT_NO_MEMORY("node");
  if (at_ok(st)) st = at_tiles_grid_choose(w, n, &r, &g, &stay);
  if (at_ok(st)) st = at_tiles_moves_in(w, a, &m);
  if (at_ok(st)) st = at_tiles_bring_all(w, n, &r, &g, &m, false);
  if (at_ok(st)) st = work_of(w, n, &r, &g, a, work);
  if (at_ok(st)) st = at_tiles_add_step(w, n, "", &m, work);
  // Summed factors leave parts on several tiles, which a second step joins.
  for (uint32_t i = 0; at_ok(st) && i < n->num_results; i++) {
    at_tiles_lay l;
    uint32_t *group, num;
    if (n->types[i].dtype == AT_TOKEN) continue;
    st = at_tiles_grid_lay(w->arena, &r, &g, n->num_operands + i, &l, &group,
                           &num);
    if (!at_ok(st)) break;
    st = num > 1 ? combine(w, n, i, &l, group, num) : result_home(w, n, i, &l);
  }
  if (at_ok(st)) w->steps.ptr[first].stay_cycles = stay;
  if (at_ok(st)) st = note_task(w, n, first, &g);
  at_arena_destroy(a);
  return st;
}

// Through flat order: to the linear mapping of the new dimensions.
static at_status reshape_flat(at_tiles_lowerer *w, const at_node *n,
                              const at_tiles_lay *home,
                              const at_tiles_lay *linear, at_arena *a,
                              at_tiles_lay *out) {
  const at_type *old = at_value_type(n->operands[0]), *t = &n->types[0];
  at_tiles_lay flat_old, flat_new;
  int64_t e = at_type_elements(old), *work, size = at_dtype_bytes(t->dtype);
  bool a_fits, b_fits;
  at_tiles_moves m, second;
  uint32_t none = 0;
  AT_TRY_ALLOC(work, at_new(a, int64_t, (size_t)w->m.tiles));
  AT_TRY(at_tiles_moves_in(w, a, &m));
  AT_TRY(at_tiles_moves_in(w, a, &second));
  // First the blocks of the linear home, if they are not there already.
  AT_TRY(at_tiles_move(&m, home, linear, &none, 1, size));
  if (m.messages.len) {
    memcpy(m.arranged, m.received, (size_t)w->m.tiles * sizeof *m.arranged);
    AT_TRY(at_tiles_add_step(w, n, " to order", &m, work));
  }
  AT_TRY(at_tiles_lay_linear(w->arena, &w->m, t, out));
  AT_TRY(at_tiles_lay_reshape(a, linear, at_type_dims(old), (at_dims){&e, 1},
                              &flat_old, &a_fits));
  AT_TRY(at_tiles_lay_reshape(a, out, at_type_dims(t), (at_dims){&e, 1},
                              &flat_new, &b_fits));
  // Both cut flat order: elements move without a change of order.
  if (a_fits && b_fits)
    AT_TRY(at_tiles_move(&second, &flat_old, &flat_new, &none, 1, size));
  return second.messages.len ? at_tiles_add_step(w, n, "", &second, work)
                             : AT_OK;
}

// What has no home yet, or only a recipe, is made as the linear mapping says.
static at_status reshape_recipe(at_tiles_lowerer *w, const at_node *n,
                                const at_tiles_lay *linear, at_arena *a) {
  at_tiles_moves m;
  uint32_t none = 0;
  int64_t *work;
  AT_TRY_ALLOC(work, at_new(a, int64_t, (size_t)w->m.tiles));
  AT_TRY(at_tiles_moves_in(w, a, &m));
  AT_TRY(at_tiles_bring(w, &m, n->operands[0], linear, &none, 1, false));
  return m.messages.len ? at_tiles_add_step(w, n, "", &m, work) : AT_OK;
}

// The same elements under other dimensions, homes (and memory) kept where
// blocks stay boxes.
static at_status lower_reshape(at_tiles_lowerer *w, const at_node *n) {
  at_tiles_value *from = at_tiles_value_of(w, n->operands[0]),
                 *to = at_tiles_value_of(w, (at_value){(at_node *)n, 0});
  const at_type *old = at_value_type(n->operands[0]), *t = &n->types[0];
  if (from->everywhere) return to->everywhere = true, AT_OK;
  at_tiles_lay linear;
  bool fits = false;
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("reshape");
  at_status st = at_tiles_lay_linear(w->arena, &w->m, old, &linear);
  if (at_ok(st) && !from->placed) st = reshape_recipe(w, n, &linear, a);
  const at_tiles_lay *home = from->placed ? &from->lay : &linear;
  if (at_ok(st))
    st = at_tiles_lay_reshape(w->arena, home, at_type_dims(old),
                              at_type_dims(t), &to->lay, &fits);
  if (at_ok(st) && !fits) st = reshape_flat(w, n, home, &linear, a, &to->lay);
  at_arena_destroy(a);
  AT_TRY(st);
  // Same blocks at the same places: the result is another name of the memory.
  if (!fits || !from->placed) return at_tiles_own(w, to);
  to->placed = true;
  to->life = from->life;
  return AT_OK;
}

// A part of a home: the blocks that hold something of [start, start + dims).
static at_status part_of_home(at_tiles_lowerer *w, const at_tiles_lay *home,
                              at_dims start, at_dims dims, at_tiles_lay *out) {
  out->rank = home->rank;
  for (uint32_t d = 0; d < home->rank; d++) {
    const at_tiles_dim *h = &home->dim[d];
    int64_t lo = start.ptr[d], hi = lo + dims.ptr[d], n = 0, *bound;
    uint32_t *off;
    AT_TRY_ALLOC(bound, at_new(w->arena, int64_t, (size_t)h->cuts + 1));
    AT_TRY_ALLOC(off, at_new(w->arena, uint32_t, (size_t)h->cuts));
    // Blocks that the slice misses go; the others keep their tiles.
    for (int64_t k = 0; k < h->cuts; k++) {
      if (AT_MAX(h->bound[k], lo) >= AT_MIN(h->end[k], hi)) continue;
      bound[n] = AT_MAX(h->bound[k], lo) - lo;
      off[n++] = h->off[k];
    }
    bound[n] = dims.ptr[d];
    out->dim[d] = (at_tiles_dim){n, bound, bound + 1, off};
  }
  return AT_OK;
}

// A slice of what lies somewhere lies there too: a view, no copy. Not of what
// is much larger and would go otherwise.
static bool slice_is_view(const at_tiles_lowerer *w, const at_node *n) {
  const at_tiles_value *from = at_tiles_value_of(w, n->operands[0]);
  at_value u = at_tiles_root(w, n->operands[0]);
  at_dims strides = at_node_ints(n, AT_ATTR_STRIDES);
  int64_t e = at_type_elements(&n->types[0]);
  // Parameters of the program stay anyway, so a view of one costs nothing.
  bool stays = !u.node->parent->owner && u.node->op == AT_OP_PARAMETER;
  if (w->o->linear || !from->placed || !e ||
      (!stays && 4 * e < at_type_elements(at_value_type(u))))
    return false;
  for (uint32_t d = 0; d < strides.rank; d++)
    if (strides.ptr[d] != 1) return false;
  return true;
}

// A view where slice_is_view says so, else by the rule.
static at_status lower_slice(at_tiles_lowerer *w, const at_node *n) {
  at_tiles_value *from = at_tiles_value_of(w, n->operands[0]),
                 *to = at_tiles_value_of(w, (at_value){(at_node *)n, 0});
  if (!slice_is_view(w, n)) return lower_by_rule(w, n);
  AT_TRY(part_of_home(w, &from->lay, at_node_ints(n, AT_ATTR_START_INDICES),
                      at_type_dims(&n->types[0]), &to->lay));
  to->placed = true;
  to->life = from->life;
  return AT_OK;
}

// Dimensions change places inside each tile: a copy into the new order.
static at_status lower_transpose(at_tiles_lowerer *w, const at_node *n) {
  at_tiles_value *from = at_tiles_value_of(w, n->operands[0]);
  if (!from->placed) return lower_by_rule(w, n);
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  at_tiles_lay l = {.rank = perm.rank};
  // Tiles keep what they have: only the order inside of each changes.
  for (uint32_t d = 0; d < perm.rank; d++)
    l.dim[d] = from->lay.dim[perm.ptr[d]];
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("transpose");
  at_tiles_moves m;
  at_status st = at_tiles_moves_in(w, a, &m);
  int64_t *work = at_new(a, int64_t, (size_t)w->m.tiles);
  if (at_ok(st) && !work) st = AT_NO_MEMORY("transpose");
  if (at_ok(st)) {
    at_tiles_lay_bytes(&l, at_dtype_bytes(n->types[0].dtype), m.arranged);
    m.lands = true;
    st = at_tiles_add_step(w, n, "", &m, work);
    at_tiles_interleave(w, from);
  }
  if (at_ok(st)) st = result_home(w, n, 0, &l);
  if (at_ok(st))
    at_tiles_interleave(w, at_tiles_value_of(w, (at_value){(at_node *)n, 0}));
  at_arena_destroy(a);
  return st;
}

// What a loop's body or a branch takes lies where the operand does.
static at_status enter(at_tiles_lowerer *w, at_value outside, at_value inside) {
  at_tiles_value *o = at_tiles_value_of(w, outside),
                 *i = at_tiles_value_of(w, inside);
  if (at_value_type(outside)->dtype == AT_TOKEN) return AT_OK;
  // An operand without a home gets one before the region, as each turn reads it
  // there.
  if (!o->placed) {
    uint32_t none = 0;
    at_tiles_lay l;
    AT_TRY(at_tiles_lay_linear(w->arena, &w->m, at_value_type(outside), &l));
    if (!o->everywhere && !o->of.node)
      AT_TRY(at_tiles_place_value(w, outside, &l, &none, 1));
    i->lay = o->placed ? o->lay : l;
  } else {
    i->lay = o->lay;
  }
  i->placed = true;
  return AT_OK;
}

// Results of a region go to where those of the node are.
static at_status leave(at_tiles_lowerer *w, const at_node *n, const at_comp *c,
                       uint32_t skip) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("loop");
  at_tiles_moves m;
  at_status st = at_tiles_moves_in(w, a, &m);
  for (uint32_t i = skip; at_ok(st) && i < c->num_results; i++) {
    at_tiles_value *home = at_tiles_value_of(w, (at_value){(at_node *)n, i});
    uint32_t none = 0;
    if (home->placed)
      st = at_tiles_bring(w, &m, c->results[i], &home->lay, &none, 1, false);
  }
  int64_t *work = at_new(a, int64_t, (size_t)w->m.tiles);
  if (at_ok(st) && !work) st = AT_NO_MEMORY("loop");
  size_t first = w->steps.len;
  if (at_ok(st) && m.messages.len)
    st = at_tiles_add_step(w, n, " carry", &m, work);
  at_arena_destroy(a);
  AT_TRY(st);
  // What the region made ends with it.
  AT_FOR_NODES(x, c)
  for (uint32_t i = 0; i < x->num_results; i++)
    end_value(w, at_tiles_value_of(w, (at_value){x, i}));
  return note_task(w, c, first, NULL);
}

// The state of a loop has memory of its own; an operand that nobody wants
// afterwards hands over its.
static at_status loop_state(at_tiles_lowerer *w, const at_node *n, uint32_t i,
                            int32_t at) {
  at_tiles_value *o = at_tiles_value_of(w, n->operands[i]);
  at_tiles_value *r = at_tiles_value_of(w, (at_value){(at_node *)n, i});
  for (uint32_t k = 0; k < 2; k++)
    AT_TRY(enter(w, n->operands[i], (at_value){n->regions[k]->params[i], 0}));
  if (n->types[i].dtype == AT_TOKEN) return AT_OK;
  r->lay = at_tiles_value_of(w, (at_value){n->regions[1]->params[i], 0})->lay;
  if (o->last == at) end_value(w, o);
  return at_tiles_own(w, r);
}

// Condition and body are lowered once; their steps count as often as the loop
// turns, or once with a note where that is not known. INVALID_ARGUMENT, as for
// a program of tiles, where loops in each other turn more often than cycles
// could be counted.
static at_status lower_while(at_tiles_lowerer *w, const at_node *n) {
  bool known;
  double trips = at_count_trips(n, &known);
  if (!known)
    at_strbuf_addf(&w->notes, "%s: turns are not known; one is counted.\n",
                   at_tiles_step_name(w, n, ""));
  int64_t times = w->times;
  int32_t at = w->at;
  // Unknown turns count as one.
  double turns = known ? fmax(trips, 1) : 1;
  if (turns * (double)times > (double)AT_TILES_MOST_TURNS)
    return AT_FAIL(AT_INVALID_ARGUMENT, "loops of more than 2^40 turns");
  for (uint32_t i = 0; i < n->num_operands; i++)
    AT_TRY(loop_state(w, n, i, at));
  w->times = (int64_t)turns * times;
  for (uint32_t k = 0; k < 2; k++)
    AT_TRY(at_tiles_lower_comp(w, n->regions[k]));
  AT_TRY(leave(w, n, n->regions[1], 0));
  w->times = times;
  return AT_OK;
}

// Results get linear homes, to which every branch copies; the plan counts the
// dearest branch.
static at_status lower_branches(at_tiles_lowerer *w, const at_node *n) {
  int64_t before = w->cycles, dearest = 0;
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_tiles_value *r = at_tiles_value_of(w, (at_value){(at_node *)n, i});
    if (n->types[i].dtype == AT_TOKEN) continue;
    AT_TRY(at_tiles_lay_linear(w->arena, &w->m, &n->types[i], &r->lay));
    AT_TRY(at_tiles_own(w, r));
  }
  for (uint32_t k = 0; k < n->num_regions; k++) {
    int64_t start = w->cycles;
    // Only the dearest branch counts, so each begins at the same count.
    AT_TRY(at_tiles_lower_comp(w, n->regions[k]));
    AT_TRY(leave(w, n, n->regions[k], 0));
    dearest = AT_MAX(dearest, w->cycles - start);
  }
  w->cycles = before + dearest;
  return AT_OK;
}

// Is it made where it is needed, rather than sent there?
static bool cheap_constant(const at_node *n) {
  if (n->op == AT_OP_IOTA) return true;
  const at_literal *l = at_node_literal(n);
  return l && (l->splat || l->bytes <= 512);
}

// Result i of n itself, not what it is another name of.
static at_tiles_value *own_value(const at_tiles_lowerer *w, const at_node *n,
                                 uint32_t i) {
  void **place = at_map_find_ptr(&w->values, n);
  return place ? (at_tiles_value *)*place + i : NULL;
}

// Another name of the operand.
static at_status alias(at_tiles_lowerer *w, const at_node *n) {
  for (uint32_t i = 0; i < n->num_results && i < n->num_operands; i++)
    if (n->types[i].dtype != AT_TOKEN)
      own_value(w, n, i)->same = n->operands[i];
  return AT_OK;
}

// UNIMPLEMENTED for ops that cannot run on tiles: collectives, calls to foreign
// code, host callbacks.
static at_status lower_node(at_tiles_lowerer *w, const at_node *n) {
  at_tiles_value *v = at_tiles_value_of(w, (at_value){(at_node *)n, 0});
  switch (n->op) {
    case AT_OP_PARAMETER:
      return AT_OK;
    case AT_OP_CONSTANT:
    case AT_OP_IOTA:
      v->everywhere = cheap_constant(n);
      return AT_OK;
    case AT_OP_PARTITION_ID:
    case AT_OP_REPLICA_ID:
    case AT_OP_CREATE_TOKEN:
    case AT_OP_AFTER_ALL:
      v->everywhere = true;
      return AT_OK;
    case AT_OP_BROADCAST_IN_DIM: {
      at_tiles_value *u = at_tiles_value_of(w, n->operands[0]);
      v->everywhere = u->everywhere;
      if (!u->everywhere) v->of = n->operands[0];
      return AT_OK;
    }
    case AT_OP_OPTIMIZATION_BARRIER:
    case AT_OP_COPY:
      return alias(w, n);
    case AT_OP_RESHAPE:
      return lower_reshape(w, n);
    case AT_OP_TRANSPOSE:
      return lower_transpose(w, n);
    case AT_OP_SLICE:
      return lower_slice(w, n);
    case AT_OP_WHILE:
      return lower_while(w, n);
    case AT_OP_IF:
    case AT_OP_CASE:
      return lower_branches(w, n);
    default:
      break;
  }
  uint32_t traits = at_op_of(n->op)->traits;
  if (traits & (AT_COLLECTIVE | AT_OPAQUE | AT_CONTROL) ||
      at_op_of(n->op)->cost == AT_COST_HOST) {
    at_strbuf b = {0};
    at_node_describe(&b, n);
    at_status st = AT_FAIL(AT_UNIMPLEMENTED,
                           "%s on a machine of tiles\nhint: programs of one "
                           "chip without calls to foreign code",
                           at_strbuf_str(&b).ptr);
    at_strbuf_free(&b);
    return st;
  }
  return lower_by_rule(w, n);
}

// ---- Computations
// Also gives every node its places (`aux`), which the rules of passes/shard.h
// read.
at_status at_tiles_lower_declare(at_tiles_lowerer *w, const at_comp *c) {
  AT_FOR_NODES(n, c) {
    at_tiles_value *v;
    at_place *p, **list;
    void **slot;
    AT_TRY_ALLOC(v, at_new(w->arena, at_tiles_value, n->num_results + 1));
    AT_TRY_ALLOC(list, at_new(w->arena, at_place *, n->num_results + 1));
    AT_TRY_ALLOC(p, at_new(w->arena, at_place, n->num_results + 1));
    for (uint32_t i = 0; i < n->num_results; i++) {
      p[i].whole = n->types[i];
      list[i] = n->types[i].dtype == AT_TOKEN ? NULL : &p[i];
      v[i].last = -1;
      v[i].count = n->num_results;
      v[i].type = &n->types[i];
      v[i].name = at_tiles_step_name(w, n, "");
      if (!at_type_is_static(&n->types[i]))
        return AT_FAIL(AT_UNIMPLEMENTED, "%s: dynamic shapes on tiles",
                       v[i].name);
    }
    n->aux = list;
    AT_TRY_ALLOC(slot, at_map_put_ptr(&w->values, n));
    *slot = v;
    for (uint32_t k = 0; k < n->num_regions; k++)
      if (at_op_is(n->op, AT_CONTROL))
        AT_TRY(at_tiles_lower_declare(w, n->regions[k]));
  }
  return AT_OK;
}

// Views live on through their operands. Only values of c itself end in it.
static void wanted(at_tiles_lowerer *w, const at_comp *c, at_value v,
                   int32_t at) {
  at_tiles_value *x = at_tiles_value_of(w, v);
  if (!x || v.node->parent != c) return;
  x->last = AT_MAX(x->last, at);
  bool recipe = v.node->op == AT_OP_BROADCAST_IN_DIM ||
                v.node->op == AT_OP_RESHAPE || v.node->op == AT_OP_SLICE ||
                v.node->op == AT_OP_COPY ||
                v.node->op == AT_OP_OPTIMIZATION_BARRIER;
  if (recipe)
    wanted(w, c, v.node->operands[v.node->num_results > 1 ? v.index : 0], at);
}

// Uses of c's values in the regions below it count for their owner's place.
static void find_uses(at_tiles_lowerer *w, const at_comp *c,
                      const at_comp *inner, int32_t at) {
  AT_FOR_NODES(n, inner) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      wanted(w, c, n->operands[i], at);
    for (uint32_t k = 0; k < n->num_regions; k++)
      find_uses(w, c, n->regions[k], at);
  }
  for (uint32_t i = 0; i < inner->num_results; i++)
    wanted(w, c, inner->results[i], at);
}

// Parameters and constants of the program stay.
at_status at_tiles_lower_ends(const at_tiles_lowerer *w, const at_comp *c,
                              at_arena *a, at_tiles_value ***out) {
  int32_t at = 0, count = 0;
  AT_FOR_NODES(n, c) count++;
  AT_TRY_ALLOC(*out, at_new(a, at_tiles_value *, (size_t)count + 1));
  AT_FOR_NODES(n, c) {
    bool stays =
        !c->owner && (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT);
    for (uint32_t i = 0; i < n->num_results && !stays; i++) {
      at_tiles_value *v = own_value(w, n, i);
      int32_t last = AT_MAX(v->last, at);
      if (last >= count || v->same.node) continue;
      v->next = (*out)[last];
      (*out)[last] = v;
    }
    at++;
  }
  return AT_OK;
}

// First who wants each value last, then nodes in order; values end with their
// last user.
at_status at_tiles_lower_comp(at_tiles_lowerer *w, const at_comp *c) {
  int32_t at = 0;
  at_tiles_value **ends;
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      wanted(w, c, n->operands[i], at);
    for (uint32_t k = 0; k < n->num_regions; k++)
      find_uses(w, c, n->regions[k], at);
    at++;
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    wanted(w, c, c->results[i], INT32_MAX);
  AT_TRY(at_tiles_lower_ends(w, c, w->arena, &ends));
  at = 0;
  AT_FOR_NODES(n, c) {
    if (w->limit && w->cycles >= w->limit) return AT_OK;  // it has lost
    size_t first = w->steps.len;
    w->at = at;
    AT_TRY(lower_node(w, n));
    if (!at_map_find_ptr(&w->tasks, n) && !at_op_is(n->op, AT_CONTROL))
      AT_TRY(note_task(w, n, first, NULL));
    for (at_tiles_value *v = ends[at]; v; v = v->next) end_value(w, v);
    at++;
  }
  return AT_OK;
}
