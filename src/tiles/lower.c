// From hlo to steps: a home for every value, a grid for every node.
#include <math.h>

#include "cost/count.h"
#include "tiles/lower_internal.h"

at_tiles_value *at_tiles_value_of(const at_tiles_lowerer *w, at_value v) {
  void **place = at_map_find_ptr(&w->values, v.node);
  return place ? (at_tiles_value *)*place + v.index : NULL;
}

// ---- Memory over time
// -------------------------------------------------------------------
static void own(at_tiles_lowerer *w, at_tiles_value *v) {
  v->placed = v->ours = true;
  at_tiles_lay_bytes(&v->lay, at_dtype_bytes(v->type->dtype), w->now);
}

// What lives now and what this step needs beside it.
static at_status note_peak(at_tiles_lowerer *w, const char *step) {
  for (int64_t t = 0; t < w->m.tiles; t++) {
    int64_t b = w->now[t] + (w->temp ? w->temp[t] : 0);
    if (b <= w->peak[t]) continue;
    w->peak[t] = b;
    w->peak_step[t] = step;
    if (b > w->highest) w->highest = b, w->fullest_tile = (uint32_t)t;
  }
  return AT_OK;
}

static at_status place(at_tiles_lowerer *w, at_value v,
                       const at_tiles_lay *need, const uint32_t *group,
                       uint32_t n) {
  at_tiles_value *x = at_tiles_value_of(w, v);
  const at_type *t = at_value_type(v);
  if (w->o->linear) {
    AT_TRY(at_tiles_lay_linear(w->arena, &w->m, t, &x->lay));
  } else {
    x->lay = *need;
    uint32_t widest = 0;
    for (uint32_t d = 0; d < need->rank; d++) {
      const at_tiles_dim *y = &need->dim[d];
      if (y->end != y->bound + 1) {  // windows overlap: homes may not
        AT_TRY(at_tiles_dim_cut(w->arena, t->dims[d], 1, 0, &x->lay.dim[d]));
        int64_t *b, *e;
        AT_TRY_ALLOC(b, at_new(w->arena, int64_t, (size_t)y->cuts + 1));
        e = b;
        for (int64_t k = 0; k < y->cuts; k++)
          e[k] = k ? AT_MAX(y->bound[k], e[k - 1]) : 0;
        e[y->cuts] = t->dims[d];
        x->lay.dim[d] = (at_tiles_dim){y->cuts, b, b + 1, y->off};
      }
      const at_tiles_dim *a = &x->lay.dim[d], *b = &x->lay.dim[widest];
      if (t->dims[d] * b->cuts > t->dims[widest] * a->cuts) widest = d;
    }
    if (need->rank && n > 1) {
      at_tiles_dim *d = &x->lay.dim[widest];
      AT_TRY(at_tiles_dim_again(w->arena, d, group, n, d));
    }
  }
  AT_TRY(at_tiles_lay_keep(w->arena, &x->lay));  // `need` may be short-lived
  own(w, x);
  return AT_OK;
}

// Elements of the largest block.
static int64_t block_elements(const at_tiles_lay *l) {
  int64_t n = 1;
  for (uint32_t d = 0; d < l->rank; d++) {
    int64_t most = 0;
    for (int64_t k = 0; k < l->dim[d].cuts; k++)
      most = AT_MAX(most, l->dim[d].end[k] - l->dim[d].bound[k]);
    n *= most;
  }
  return n;
}

// ---- Operands
// ---------------------------------------------------------------------------
static at_status bring(at_tiles_lowerer *w, at_tiles_moves *m, at_value v,
                       const at_tiles_lay *need, const uint32_t *group,
                       uint32_t n, bool dry);

// A broadcast's operand: the dimensions that it adds only name more tiles.
static at_status bring_broadcast(at_tiles_lowerer *w, at_tiles_moves *m,
                                 at_value v, const at_tiles_lay *need,
                                 const uint32_t *group, uint32_t n, bool dry) {
  at_dims where = at_node_ints(v.node, AT_ATTR_BROADCAST_DIMENSIONS);
  at_value u = v.node->operands[0];
  const at_type *small = at_value_type(u), *large = at_value_type(v);
  at_tiles_lay l = {.rank = small->rank};
  uint32_t kept = 0;
  for (uint32_t k = 0; k < small->rank; k++) {
    bool same = small->dims[k] == large->dims[where.ptr[k]];
    if (same) kept |= 1u << where.ptr[k];
    if (same)
      l.dim[k] = need->dim[where.ptr[k]];
    else
      AT_TRY(at_tiles_dim_whole(m->arena, small->dims[k], &l.dim[k]));
  }
  size_t all = n;
  for (uint32_t d = 0; d < need->rank; d++)
    if (!(kept >> d & 1)) all *= (size_t)need->dim[d].cuts;
  uint32_t *list, len = n;
  AT_TRY_ALLOC(list, at_new(m->arena, uint32_t, all));
  memcpy(list, group, n * sizeof *list);
  for (uint32_t d = 0; d < need->rank; d++) {
    if (kept >> d & 1) continue;
    uint32_t before = len;
    for (int64_t c = need->dim[d].cuts; c-- > 0;)
      for (uint32_t i = 0; i < before; i++)
        list[(size_t)c * before + i] = list[i] + need->dim[d].off[c];
    len = before * (uint32_t)need->dim[d].cuts;
  }
  // Insertion keeps them ascending; they are nearly so.
  for (uint32_t i = 1; i < len; i++)
    for (uint32_t k = i; k > 0 && list[k] < list[k - 1]; k--) {
      uint32_t t = list[k];
      list[k] = list[k - 1], list[k - 1] = t;
    }
  return bring(w, m, u, &l, list, len, dry);
}

// What has no home yet would get one that is spread over those who want it:
// each has its share and receives the rest.
static at_status guess(at_tiles_lowerer *w, at_tiles_moves *m,
                       const at_tiles_lay *need, uint32_t n, int64_t size) {
  int64_t rest = block_elements(need) * size / n * (n - 1);
  for (int64_t t = 0; t < w->m.tiles; t++) m->received[t] += rest;
  return AT_OK;
}

static at_status bring(at_tiles_lowerer *w, at_tiles_moves *m, at_value v,
                       const at_tiles_lay *need, const uint32_t *group,
                       uint32_t n, bool dry) {
  at_tiles_value *x = at_tiles_value_of(w, v);
  if (!x || x->everywhere) return AT_OK;
  if (x->of.node) return bring_broadcast(w, m, v, need, group, n, dry);
  if (!x->placed && dry)
    return guess(w, m, need, n, at_dtype_bytes(at_value_type(v)->dtype));
  if (!x->placed) AT_TRY(place(w, v, need, group, n));
  return at_tiles_move(m, &x->lay, need, group, n,
                       at_dtype_bytes(at_value_type(v)->dtype));
}

static at_status bring_all(at_tiles_lowerer *w, const at_node *n,
                           const at_tiles_rule *r, const at_tiles_grid *g,
                           at_tiles_moves *m, bool dry) {
  for (uint32_t t = 0; t < n->num_operands; t++) {
    at_tiles_lay need;
    uint32_t *group, num;
    if (!r->r.places[t] || at_value_type(n->operands[t])->dtype == AT_TOKEN)
      continue;
    AT_TRY(at_tiles_grid_lay(m->arena, r, g, t, &need, &group, &num));
    AT_TRY(bring(w, m, n->operands[t], &need, group, num, dry));
  }
  return AT_OK;
}

// ---- Steps
// --------------------------------------------------------------------------------
static const char *step_name(at_tiles_lowerer *w, const at_node *n,
                             const char *suffix) {
  const char *s = n->loc && n->loc->name ? n->loc->name : NULL;
  const char *slash = s ? strrchr(s, '/') : NULL;
  const char *name = at_arena_printf(w->arena, "%s.%u%s%s%s", at_op_text(n->op),
                                     n->id, suffix, s ? " " : "",
                                     slash ? slash + 1
                                     : s   ? s
                                           : "");
  return name ? name : at_op_text(n->op);
}

// Adds a step; work[tile] are cycles (consumed), received[tile] temporary
// bytes.
static at_status add_step(at_tiles_lowerer *w, const char *name,
                          at_tiles_moves *m, int64_t *work, int64_t pre) {
  at_tiles_exchange x = {.messages = m->messages.ptr,
                         .num_messages = m->messages.len,
                         .receivers = m->receivers.ptr};
  AT_TRY(w->quick ? at_tiles_exchange_bound(&w->m, &x)
                  : at_tiles_exchange_plan(&w->m, &x));
  at_tiles_step s = {.name = name, .times = w->times};
  int64_t total = 0, most = -1;
  for (int64_t t = 0; t < w->m.tiles; t++) {
    total += work[t];
    s.idle_tiles += work[t] == 0;
    w->tile_cycles[t] += work[t] * w->times;
    if (work[t] > most) most = work[t], s.busiest = (uint32_t)t;
  }
  s.pre = pre;
  s.execute = AT_MAX(most - pre, 0);
  s.balance =
      most > 0 ? (double)total / ((double)most * (double)w->m.tiles) : 1;
  s.exchange = x.cycles;
  s.exchange_bound = x.lower_bound;
  s.exchange_bytes = x.received_bytes;
  s.sync = x.num_messages ? w->m.sync : 0;
  s.cycles = s.sync + s.exchange + AT_MAX(most, 0);
  w->cycles += s.cycles * w->times;
  w->temp = m->received;
  AT_TRY(note_peak(w, name));
  w->temp = NULL;
  return at_vec_push(w->arena, &w->steps, s) ? AT_OK : AT_NO_MEMORY("steps");
}

static at_status moves_in(at_tiles_lowerer *w, at_arena *a,
                          at_tiles_moves *out) {
  *out = (at_tiles_moves){.arena = a};
  AT_TRY_ALLOC(out->received, at_new(a, int64_t, (size_t)w->m.tiles));
  return AT_OK;
}

// ---- Choosing a grid
// ----------------------------------------------------------------------
static double depth_of(const at_node *n, const at_tiles_rule *r,
                       const at_tiles_grid *g) {
  double depth = at_tiles_depth(n);
  for (uint32_t f = 0; depth > 0 && f < g->num; f++)
    if (g->sum[f])
      depth *= (double)at_ceil_div(r->r.size[f], g->dim[f].cuts) /
               (double)AT_MAX(r->r.size[f], 1);
  return depth;
}

static uint32_t largest_operand(const at_node *n, const at_tiles_rule *r) {
  uint32_t best = 0;
  int64_t most = -1;
  for (uint32_t t = 0; t < n->num_operands; t++) {
    int64_t e = r->r.places[t] ? at_type_elements(&r->r.places[t]->whole) : -1;
    if (e > most) most = e, best = t;
  }
  return best;
}

// Cycles of a grid, the operands where they are; *moved: whether anything
// moves.
static at_status grid_cycles(at_tiles_lowerer *w, const at_node *n,
                             const at_tiles_rule *r, const at_tiles_grid *g,
                             int64_t *out, bool *moved) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("grid");
  at_tiles_moves m;
  at_tiles_lay o, in = {0};
  uint32_t *group, num, big = largest_operand(n, r);
  at_status st = moves_in(w, a, &m);
  if (at_ok(st)) st = bring_all(w, n, r, g, &m, true);
  if (at_ok(st) && n->num_operands)
    st = at_tiles_grid_lay(a, r, g, big, &in, &group, &num);
  if (at_ok(st))
    st = at_tiles_grid_lay(a, r, g, n->num_operands, &o, &group, &num);
  if (at_ok(st)) {
    int64_t e = block_elements(&o), busiest = 0,
            *sent = at_new(a, int64_t, (size_t)w->m.tiles);
    for (size_t i = 0; sent && i < m.messages.len; i++)
      busiest = AT_MAX(busiest,
                       sent[m.messages.ptr[i].from] += m.messages.ptr[i].bytes);
    for (int64_t t = 0; t < w->m.tiles; t++)
      busiest = AT_MAX(busiest, m.received[t]);
    *out = at_tiles_node_cycles(&w->m, n, e,
                                n->num_operands ? block_elements(&in) : 0,
                                depth_of(n, r, g));
    if (busiest) *out += w->m.sync + at_ceil_div(busiest, w->m.exchange_bytes);
    if (num > 1)
      *out += w->m.sync + e * 4 / num * (num - 1) / w->m.exchange_bytes +
              at_tiles_shared_cycles(&w->m, e / 2, 1, 2);
    *moved = busiest > 0 || num > 1;
    // What a tile cannot hold beside its share of everything else is no way to
    // go.
    if (2 * busiest > w->m.bytes_per_tile)
      *out *= 1 + 8 * busiest / w->m.bytes_per_tile;
  }
  at_arena_destroy(a);
  return st;
}

static bool spreads_well(const at_tiles_lowerer *w, const at_node *n,
                         const at_tiles_rule *r, const at_tiles_grid *g) {
  int64_t cuts = 1, e = AT_MAX(at_type_elements(&n->types[0]), 1);
  for (uint32_t f = 0; f < g->num; f++) cuts *= g->dim[f].cuts;
  return 4 * cuts >= 3 * AT_MIN(w->m.tiles, at_ceil_div(e, 64));
}

static at_status choose(at_tiles_lowerer *w, const at_node *n,
                        const at_tiles_rule *r, at_tiles_grid *best) {
  int64_t least = INT64_MAX, cycles;
  bool product = at_tiles_depth(n) > 0, moved;
  at_tiles_lay seen[4];
  uint32_t num_seen = 0;
  for (uint32_t t = 0; t < n->num_operands && !w->o->linear && num_seen < 4;
       t++) {
    at_tiles_value *v = at_tiles_value_of(w, n->operands[t]);
    if (!v || !v->placed || v->of.node || v->everywhere || !v->lay.rank ||
        !r->r.places[t])
      continue;
    bool again = false, fits;
    for (uint32_t i = 0; i < num_seen; i++)
      again |= at_tiles_lay_eq(&seen[i], &v->lay);
    if (again) continue;
    seen[num_seen++] = v->lay;
    at_tiles_grid g;
    AT_TRY(at_tiles_grid_follow(w, r, t, &v->lay, &g, &fits));
    if (!fits) continue;
    AT_TRY(grid_cycles(w, n, r, &g, &cycles, &moved));
    if (cycles < least) least = cycles, *best = g;
    if (!moved && !product && spreads_well(w, n, r, &g)) return AT_OK;
  }
  at_tiles_grid g;
  AT_TRY(at_tiles_grid_search(w, n, r, &g));
  if (least == INT64_MAX) return *best = g, AT_OK;
  AT_TRY(grid_cycles(w, n, r, &g, &cycles, &moved));
  if (cycles < least) *best = g;
  return AT_OK;
}

// ---- Nodes
// -----------------------------------------------------------------------------------
static at_status result_home(at_tiles_lowerer *w, const at_node *n, uint32_t i,
                             const at_tiles_lay *l) {
  at_tiles_value *v = at_tiles_value_of(w, (at_value){(at_node *)n, i});
  v->lay = *l;
  own(w, v);
  return AT_OK;
}

// Partial results on the tiles of `group`: each takes one share of the block.
static at_status combine(at_tiles_lowerer *w, const at_node *n, uint32_t i,
                         const at_tiles_lay *partial, const uint32_t *group,
                         uint32_t num) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("partial results");
  at_tiles_moves m;
  at_tiles_lay home = *partial;
  int64_t *work = NULL, size = AT_MAX(at_dtype_bytes(n->types[i].dtype), 4u);
  at_status st = moves_in(w, a, &m);
  uint32_t widest = 0;
  for (uint32_t d = 1; d < home.rank; d++)
    if (n->types[i].dims[d] * home.dim[widest].cuts >
        n->types[i].dims[widest] * home.dim[d].cuts)
      widest = d;
  if (at_ok(st) && home.rank)
    st = at_tiles_dim_again(w->arena, &home.dim[widest], group, num,
                            &home.dim[widest]);
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
    at_tiles_lay_elements(&home, w->m.tiles, work);
    for (int64_t t = 0; t < w->m.tiles; t++)
      if (work[t])
        work[t] =
            at_tiles_shared_cycles(&w->m, at_ceil_div(work[t] * num, 2), 1, 2);
    st = add_step(w, step_name(w, n, " sum"), &m, work, 0);
  }
  if (at_ok(st)) st = result_home(w, n, i, &home);
  at_arena_destroy(a);
  return st;
}

static at_status work_of(at_tiles_lowerer *w, const at_node *n,
                         const at_tiles_rule *r, const at_tiles_grid *g,
                         at_arena *a, int64_t *work) {
  at_tiles_lay o, in = {0};
  uint32_t *group, num, *ingroup, innum, big = largest_operand(n, r);
  int64_t *read;
  AT_TRY_ALLOC(read, at_new(a, int64_t, (size_t)w->m.tiles));
  AT_TRY(at_tiles_grid_lay(a, r, g, n->num_operands, &o, &group, &num));
  at_tiles_lay_elements(&o, w->m.tiles, work);
  if (n->num_operands) {
    AT_TRY(at_tiles_grid_lay(a, r, g, big, &in, &ingroup, &innum));
    at_tiles_lay_elements(&in, w->m.tiles, read);
  }
  double depth = depth_of(n, r, g);
  // Tiles of partial results and of replicated operands do the same as the
  // first.
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

static at_status lower_by_rule(at_tiles_lowerer *w, const at_node *n) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("node");
  at_tiles_rule r;
  at_tiles_grid g;
  at_tiles_moves m;
  int64_t *work = at_new(a, int64_t, (size_t)w->m.tiles);
  at_status st = at_tiles_rule_make(a, n, &r);
  if (at_ok(st) && !work) st = AT_NO_MEMORY("node");
  if (at_ok(st)) st = choose(w, n, &r, &g);
  if (at_ok(st)) st = moves_in(w, a, &m);
  if (at_ok(st)) st = bring_all(w, n, &r, &g, &m, false);
  if (at_ok(st)) st = work_of(w, n, &r, &g, a, work);
  if (at_ok(st)) st = add_step(w, step_name(w, n, ""), &m, work, 0);
  for (uint32_t i = 0; at_ok(st) && i < n->num_results; i++) {
    at_tiles_lay l;
    uint32_t *group, num;
    if (n->types[i].dtype == AT_TOKEN) continue;
    st = at_tiles_grid_lay(w->arena, &r, &g, n->num_operands + i, &l, &group,
                           &num);
    if (!at_ok(st)) break;
    st = num > 1 ? combine(w, n, i, &l, group, num) : result_home(w, n, i, &l);
  }
  if (at_ok(st) && w->eval) st = at_tiles_eval_node(w, n, &r, &g);
  at_arena_destroy(a);
  return st;
}

// The same elements under other dimensions, homes kept where blocks stay boxes.
static at_status lower_reshape(at_tiles_lowerer *w, const at_node *n) {
  at_value u = n->operands[0];
  at_tiles_value *from = at_tiles_value_of(w, u),
                 *to = at_tiles_value_of(w, (at_value){(at_node *)n, 0});
  const at_type *old = at_value_type(u), *t = &n->types[0];
  if (from->everywhere) return to->everywhere = true, AT_OK;
  at_tiles_lay l;
  bool fits = false;
  at_tiles_lay linear;
  AT_TRY(at_tiles_lay_linear(w->arena, &w->m, old, &linear));
  if (from->of.node || !from->placed) {
    // What has no home yet, or only a recipe, is made as the linear mapping
    // says.
    at_arena *a = at_arena_create();
    at_tiles_moves m;
    uint32_t none = 0;
    if (!a) return AT_NO_MEMORY("reshape");
    at_status st = moves_in(w, a, &m);
    if (at_ok(st)) st = bring(w, &m, u, &linear, &none, 1, false);
    int64_t *work = at_ok(st) ? at_new(a, int64_t, (size_t)w->m.tiles) : NULL;
    if (work && m.messages.len)
      st = add_step(w, step_name(w, n, ""), &m, work, 0);
    at_arena_destroy(a);
    AT_TRY(st);
  }
  const at_tiles_lay *home = from->placed ? &from->lay : &linear;
  AT_TRY(at_tiles_lay_reshape(w->arena, home, at_type_dims(old),
                              at_type_dims(t), &l, &fits));
  if (!fits) {
    // Through flat order: to the linear mapping of the new dimensions.
    at_tiles_lay flat_old, flat_new, want;
    int64_t e = at_type_elements(old);
    bool a_fits, b_fits;
    at_arena *a = at_arena_create();
    at_tiles_moves m, second;
    uint32_t none = 0;
    if (!a) return AT_NO_MEMORY("reshape");
    int64_t *work = at_new(a, int64_t, (size_t)w->m.tiles);
    at_status st = work ? moves_in(w, a, &m) : AT_NO_MEMORY("reshape");
    if (at_ok(st)) st = moves_in(w, a, &second);
    if (at_ok(st))
      st = at_tiles_move(&m, home, &linear, &none, 1, at_dtype_bytes(t->dtype));
    if (at_ok(st) && m.messages.len) {
      for (int64_t k = 0; k < w->m.tiles; k++)
        work[k] = at_tiles_copy_cycles(&w->m, m.received[k], false);
      st = add_step(w, step_name(w, n, " to order"), &m, work, 0);
    }
    if (at_ok(st)) st = at_tiles_lay_linear(w->arena, &w->m, t, &want);
    if (at_ok(st))
      st = at_tiles_lay_reshape(a, &linear, at_type_dims(old), (at_dims){&e, 1},
                                &flat_old, &a_fits);
    if (at_ok(st))
      st = at_tiles_lay_reshape(a, &want, at_type_dims(t), (at_dims){&e, 1},
                                &flat_new, &b_fits);
    if (at_ok(st) && a_fits && b_fits)
      st = at_tiles_move(&second, &flat_old, &flat_new, &none, 1,
                         at_dtype_bytes(t->dtype));
    memset(work, 0, (size_t)w->m.tiles * sizeof *work);
    if (at_ok(st) && second.messages.len)
      st = add_step(w, step_name(w, n, ""), &second, work, 0);
    at_arena_destroy(a);
    AT_TRY(st);
    l = want;
  }
  return result_home(w, n, 0, &l);
}

// Dimensions change places inside each tile: a copy into the new order.
static at_status lower_transpose(at_tiles_lowerer *w, const at_node *n) {
  at_tiles_value *from = at_tiles_value_of(w, n->operands[0]);
  if (!from->placed) return lower_by_rule(w, n);
  at_dims perm = at_node_ints(n, AT_ATTR_PERMUTATION);
  at_tiles_lay l = {.rank = perm.rank};
  for (uint32_t d = 0; d < perm.rank; d++)
    l.dim[d] = from->lay.dim[perm.ptr[d]];
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("transpose");
  at_tiles_moves m;
  at_status st = moves_in(w, a, &m);
  int64_t *work = at_new(a, int64_t, (size_t)w->m.tiles), most = 0;
  if (at_ok(st) && !work) st = AT_NO_MEMORY("transpose");
  if (at_ok(st)) {
    at_tiles_lay_elements(&l, w->m.tiles, work);
    for (int64_t t = 0; t < w->m.tiles; t++) {
      work[t] = at_tiles_copy_cycles(
          &w->m, work[t] * at_dtype_bytes(n->types[0].dtype), false);
      most = AT_MAX(most, work[t]);
    }
    st = add_step(w, step_name(w, n, ""), &m, work, most);
  }
  if (at_ok(st)) st = result_home(w, n, 0, &l);
  at_arena_destroy(a);
  return st;
}

// What a loop's body or a branch takes lies where the operand does.
static at_status enter(at_tiles_lowerer *w, at_value outside, at_value inside) {
  at_tiles_value *o = at_tiles_value_of(w, outside),
                 *i = at_tiles_value_of(w, inside);
  if (at_value_type(outside)->dtype == AT_TOKEN) return AT_OK;
  if (!o->placed) {
    AT_TRY(
        at_tiles_lay_linear(w->arena, &w->m, at_value_type(outside), &i->lay));
    if (!o->everywhere && !o->of.node) {
      o->lay = i->lay;
      own(w, o);
    }
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
  at_status st = moves_in(w, a, &m);
  for (uint32_t i = skip; at_ok(st) && i < c->num_results; i++) {
    at_tiles_value *home = at_tiles_value_of(w, (at_value){(at_node *)n, i});
    uint32_t none = 0;
    if (home->placed)
      st = bring(w, &m, c->results[i], &home->lay, &none, 1, false);
  }
  int64_t *work = at_new(a, int64_t, (size_t)w->m.tiles);
  if (at_ok(st) && !work) st = AT_NO_MEMORY("loop");
  if (at_ok(st) && m.messages.len)
    st = add_step(w, step_name(w, n, " carry"), &m, work, 0);
  at_arena_destroy(a);
  return st;
}

static at_status lower_while(at_tiles_lowerer *w, const at_node *n) {
  bool known;
  double trips = at_count_trips(n, &known);
  if (!known)
    at_strbuf_addf(&w->notes, "%s: turns are not known; one is counted.\n",
                   step_name(w, n, ""));
  int64_t times = w->times;
  for (uint32_t i = 0; i < n->num_operands; i++) {
    at_tiles_value *r = at_tiles_value_of(w, (at_value){(at_node *)n, i});
    for (uint32_t k = 0; k < 2; k++)
      AT_TRY(enter(w, n->operands[i], (at_value){n->regions[k]->params[i], 0}));
    r->lay = at_tiles_value_of(w, (at_value){n->regions[1]->params[i], 0})->lay;
    r->placed = n->types[i].dtype != AT_TOKEN;
  }
  bool eval = w->eval;
  w->eval = false;  // a loop is run whole
  w->times = AT_MAX((int64_t)(known ? trips : 1), 1) * times;
  for (uint32_t k = 0; k < 2; k++)
    AT_TRY(at_tiles_lower_comp(w, n->regions[k]));
  AT_TRY(leave(w, n, n->regions[1], 0));
  w->times = times;
  w->eval = eval;
  return AT_OK;
}

static at_status lower_branches(at_tiles_lowerer *w, const at_node *n) {
  int64_t before = w->cycles, dearest = 0;
  bool eval = w->eval;
  w->eval = false;
  for (uint32_t i = 0; i < n->num_results; i++) {
    at_tiles_value *r = at_tiles_value_of(w, (at_value){(at_node *)n, i});
    if (n->types[i].dtype == AT_TOKEN) continue;
    AT_TRY(at_tiles_lay_linear(w->arena, &w->m, &n->types[i], &r->lay));
    own(w, r);
  }
  for (uint32_t k = 0; k < n->num_regions; k++) {
    int64_t start = w->cycles;
    AT_TRY(at_tiles_lower_comp(w, n->regions[k]));
    AT_TRY(leave(w, n, n->regions[k], 0));
    dearest = AT_MAX(dearest, w->cycles - start);
  }
  w->cycles = before + dearest;
  w->eval = eval;
  return AT_OK;
}

static bool cheap_constant(const at_node *n) {
  if (n->op == AT_OP_IOTA) return true;
  const at_literal *l = at_node_literal(n);
  return l && (l->splat || l->bytes <= 512);
}

static at_status alias(at_tiles_lowerer *w, const at_node *n) {
  for (uint32_t i = 0; i < n->num_results && i < n->num_operands; i++) {
    at_tiles_value *from = at_tiles_value_of(w, n->operands[i]);
    at_tiles_value *to = at_tiles_value_of(w, (at_value){(at_node *)n, i});
    if (n->types[i].dtype == AT_TOKEN) continue;
    to->lay = from->lay, to->placed = from->placed,
    to->everywhere = from->everywhere;
    to->of = from->of;
    if (!from->placed && !from->everywhere && !from->of.node) {
      uint32_t none = 0;
      at_tiles_lay l;
      AT_TRY(at_tiles_lay_linear(w->arena, &w->m, &n->types[i], &l));
      AT_TRY(place(w, n->operands[i], &l, &none, 1));
      to->lay = from->lay, to->placed = true;
    }
  }
  return AT_OK;
}

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
// ------------------------------------------------------------------------------
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
      v[i].type = &n->types[i];
      v[i].name = step_name(w, n, "");
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

// A broadcast lives on through its operand.
static void wanted(at_tiles_lowerer *w, at_value v, int32_t at) {
  at_tiles_value *x = at_tiles_value_of(w, v);
  if (!x) return;
  x->last = AT_MAX(x->last, at);
  bool recipe = v.node->op == AT_OP_BROADCAST_IN_DIM ||
                v.node->op == AT_OP_RESHAPE || v.node->op == AT_OP_COPY ||
                v.node->op == AT_OP_OPTIMIZATION_BARRIER;
  if (recipe)
    wanted(w, v.node->operands[v.node->num_results > 1 ? v.index : 0], at);
}

static void find_uses(at_tiles_lowerer *w, const at_comp *c, int32_t at) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      wanted(w, n->operands[i], at);
    for (uint32_t k = 0; k < n->num_regions; k++)
      find_uses(w, n->regions[k], at);
  }
  for (uint32_t i = 0; i < c->num_results; i++) wanted(w, c->results[i], at);
}

// Values in the order in which nobody wants them any more. Parameters and
// constants of the program stay.
static at_status find_ends(at_tiles_lowerer *w, const at_comp *c, int32_t count,
                           at_tiles_value ***out) {
  int32_t at = 0;
  AT_TRY_ALLOC(*out, at_new(w->arena, at_tiles_value *, (size_t)count + 1));
  AT_FOR_NODES(n, c) {
    bool stays =
        !c->owner && (n->op == AT_OP_PARAMETER || n->op == AT_OP_CONSTANT);
    for (uint32_t i = 0; i < n->num_results && !stays; i++) {
      at_tiles_value *v = at_tiles_value_of(w, (at_value){n, i});
      int32_t last = AT_MAX(v->last, at);
      if (last >= count) continue;
      v->next = (*out)[last];
      (*out)[last] = v;
    }
    at++;
  }
  return AT_OK;
}

at_status at_tiles_lower_comp(at_tiles_lowerer *w, const at_comp *c) {
  int32_t at = 0;
  at_tiles_value **ends;
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      wanted(w, n->operands[i], at);
    for (uint32_t k = 0; k < n->num_regions; k++)
      find_uses(w, n->regions[k], at);
    at++;
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    wanted(w, c->results[i], INT32_MAX);
  AT_TRY(find_ends(w, c, at, &ends));
  at = 0;
  AT_FOR_NODES(n, c) {
    if (w->limit && w->cycles >= w->limit) return AT_OK;  // it has lost
    AT_TRY(lower_node(w, n));
    // What went by a rule was run there; the rest is run whole.
    if (w->eval && n->op != AT_OP_PARAMETER && n->num_results &&
        !at_tiles_value_of(w, (at_value){n, 0})->literal)
      AT_TRY(at_tiles_eval_node(w, n, NULL, NULL));
    for (at_tiles_value *v = ends[at]; v; v = v->next) {
      if (v->ours)
        at_tiles_lay_bytes(&v->lay, -(int64_t)at_dtype_bytes(v->type->dtype),
                           w->now);
      v->ours = false;
    }
    at++;
  }
  return AT_OK;
}
