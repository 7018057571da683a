// Which way to cut a node's work: where an operand is already, or the best that
// a search finds, whichever takes fewer cycles.
#include "tiles/lower_internal.h"

// A block of a summed factor has only its share of the products.
double at_tiles_grid_depth(const at_node *n, const at_tiles_rule *r,
                           const at_tiles_grid *g) {
  double depth = at_tiles_depth(n);
  for (uint32_t f = 0; depth > 0 && f < g->num; f++)
    if (g->sum[f])
      depth *= (double)at_ceil_div(r->r.size[f], g->dim[f].cuts) /
               (double)AT_MAX(r->r.size[f], 1);
  return depth;
}

// Of equal ones the first.
uint32_t at_tiles_largest_operand(const at_node *n, const at_tiles_rule *r) {
  uint32_t best = 0;
  int64_t most = -1;
  for (uint32_t t = 0; t < n->num_operands; t++) {
    int64_t e = r->r.places[t] ? at_type_elements(&r->r.places[t]->whole) : -1;
    if (e > most) most = e, best = t;
  }
  return best;
}

// Whether the summed dimensions of a product's operand are its last ones.
static bool sums_last(const at_tiles_rule *r, uint32_t t) {
  uint32_t rank = r->r.places[t] ? r->r.places[t]->whole.rank : 0;
  if (!rank) return true;
  const at_dim_factors *x = &r->r.dims[t][rank - 1];
  return r->r.places[t]->whole.dims[rank - 1] == 1 ||
         (x->n && r->r.kind[x->f[0]] == AT_FACTOR_SUM);
}

// One operand streams through the multiplier along the summed dimension, the
// other is loaded into it in any order.
int32_t at_tiles_turned_operand(const at_node *n, const at_tiles_rule *r) {
  if (n->op != AT_OP_DOT_GENERAL || sums_last(r, 0) || sums_last(r, 1))
    return -1;
  return at_type_elements(at_value_type(n->operands[0])) <=
                 at_type_elements(at_value_type(n->operands[1]))
             ? 0
             : 1;
}

// Elements of the largest block of l.
static int64_t largest_block(const at_tiles_lay *l) {
  int64_t n = 1;
  for (uint32_t d = 0; d < l->rank; d++) {
    int64_t most = 0;
    for (int64_t k = 0; k < l->dim[d].cuts; k++)
      most = AT_MAX(most, l->dim[d].end[k] - l->dim[d].bound[k]);
    n *= most;
  }
  return n;
}

// What a tile sends, receives and copies at most.
static at_status busiest(const at_tiles_lowerer *w, const at_tiles_moves *m,
                         int64_t *moved, int64_t *arranged) {
  int64_t *sent;
  AT_TRY_ALLOC(sent, at_new(m->arena, int64_t, (size_t)w->m.tiles));
  *moved = *arranged = 0;
  for (size_t i = 0; i < m->messages.len; i++) {
    const at_tiles_message *g = &m->messages.ptr[i];
    *moved = AT_MAX(*moved, sent[g->from] += g->bytes);
  }
  for (int64_t t = 0; t < w->m.tiles; t++) {
    *moved = AT_MAX(*moved, m->received[t]);
    *arranged = AT_MAX(*arranged, m->arranged[t]);
  }
  return AT_OK;
}

// room: what a step may take beside the values that live meanwhile, seven
// tenths of a tile, or five where memory has run out before.
int64_t at_tiles_crowded(const at_tiles_lowerer *w, int64_t bytes,
                         int64_t cycles) {
  int64_t room = (w->tight ? 5 : 7) * w->m.bytes_per_tile / 10;
  return bytes > room ? cycles * (2 + 8 * bytes / w->m.bytes_per_tile) : cycles;
}

// Cycles of the exchange that brings m's messages, planned as lowering does.
static at_status exchange_cycles(const at_tiles_lowerer *w,
                                 const at_tiles_moves *m, int64_t *out) {
  at_tiles_exchange x = {.messages = m->messages.ptr,
                         .num_messages = m->messages.len,
                         .receivers = m->receivers.ptr};
  AT_TRY(w->quick ? at_tiles_exchange_bound(&w->m, &x)
                  : at_tiles_exchange_plan(&w->m, &x));
  *out = x.cycles;
  return AT_OK;
}

// Cycles of a grid, the operands where they are; *moves: whether anything
// moves. An exchange is guessed at its bound, or planned where `exact`.
static at_status grid_cycles(at_tiles_lowerer *w, const at_node *n,
                             const at_tiles_rule *r, const at_tiles_grid *g,
                             bool exact, at_arena *a, int64_t *out,
                             bool *moves) {
  at_tiles_moves m;
  at_tiles_lay o, in = {0};
  uint32_t *group, num, big = at_tiles_largest_operand(n, r);
  int64_t moved, arranged;
  AT_TRY(at_tiles_moves_in(w, a, &m));
  AT_TRY(at_tiles_bring_all(w, n, r, g, &m, true));
  if (n->num_operands)
    AT_TRY(at_tiles_grid_lay(a, r, g, big, &in, &group, &num));
  AT_TRY(at_tiles_grid_lay(a, r, g, n->num_operands, &o, &group, &num));
  // The slowest tile sets the pace of the exchange and of the copies behind it.
  AT_TRY(busiest(w, &m, &moved, &arranged));
  int64_t e = largest_block(&o);
  *out = at_tiles_node_cycles(&w->m, n, e,
                              n->num_operands ? largest_block(&in) : 0,
                              at_tiles_grid_depth(n, r, g)) +
         at_tiles_copy_cycles(&w->m, arranged, !w->narrow);
  int64_t exchange = at_ceil_div(moved, w->m.exchange_bytes);
  if (moved && exact) AT_TRY(exchange_cycles(w, &m, &exchange));
  if (moved) *out += w->m.sync + exchange;
  // Parts of sums on several tiles: each then adds up its share of the results.
  if (num > 1)
    *out += w->m.sync + e * 4 / num * (num - 1) / w->m.exchange_bytes +
            at_tiles_shared_cycles(&w->m, e / 2, 1, 2);
  *moves = moved > 0 || num > 1;
  *out = at_tiles_crowded(w, moved + arranged, *out);
  return AT_OK;
}

// grid_cycles with scratch memory of its own.
static at_status weigh(at_tiles_lowerer *w, const at_node *n,
                       const at_tiles_rule *r, const at_tiles_grid *g,
                       bool exact, int64_t *out, bool *moves) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("grid");
  at_status st = grid_cycles(w, n, r, g, exact, a, out, moves);
  at_arena_destroy(a);
  return st;
}

// Does the grid use three quarters of the tiles, or of the tiles that 64
// elements each would fill?
static bool spreads_well(const at_tiles_lowerer *w, const at_node *n,
                         const at_tiles_grid *g) {
  int64_t cuts = 1, e = AT_MAX(at_type_elements(&n->types[0]), 1);
  for (uint32_t f = 0; f < g->num; f++) cuts *= g->dim[f].cuts;
  return 4 * cuts >= 3 * AT_MIN(w->m.tiles, at_ceil_div(e, 64));
}

// Two homes that are cut alike, the one `shift` tiles behind the other.
static bool shifted(const at_tiles_lay *a, const at_tiles_lay *b,
                    int64_t *shift) {
  *shift = 0;
  if (a->rank != b->rank) return false;
  for (uint32_t d = 0; d < a->rank; d++) {
    const at_tiles_dim *x = &a->dim[d], *y = &b->dim[d];
    size_t n = (size_t)x->cuts;
    if (x->cuts != y->cuts || memcmp(x->bound, y->bound, n * sizeof *x->bound))
      return false;
    int64_t by = (int64_t)y->off[0] - x->off[0];
    for (size_t k = 0; k < n; k++)
      if ((int64_t)y->off[k] - x->off[k] != by) return false;
    *shift += by;
  }
  return *shift != 0;
}

// Operands that lie alike on different tiles: each tile does half of each
// block.
static at_status halves(at_tiles_lowerer *w, const at_tiles_rule *r, uint32_t t,
                        const at_tiles_lay *a, const at_tiles_lay *b,
                        at_tiles_grid *out, bool *fits) {
  int64_t shift;
  uint32_t widest = UINT32_MAX;
  *fits = shifted(a, b, &shift);
  if (!*fits) return AT_OK;
  AT_TRY(at_tiles_grid_follow(w, r, t, shift > 0 ? a : b, out, fits));
  for (uint32_t f = 0; *fits && f < out->num; f++) {
    bool wider =
        widest == UINT32_MAX || r->r.size[f] * out->dim[widest].cuts >
                                    r->r.size[widest] * out->dim[f].cuts;
    if (!out->sum[f] && wider) widest = f;
  }
  *fits = *fits && widest != UINT32_MAX;
  uint32_t group[] = {0, (uint32_t)(shift > 0 ? shift : -shift)};
  return *fits ? at_tiles_dim_again(w->arena, &out->dim[widest], group, 2,
                                    &out->dim[widest])
               : AT_OK;
}

// Halves of every two of the homes, if they take fewer cycles than *least.
static at_status try_halves(at_tiles_lowerer *w, const at_node *n,
                            const at_tiles_rule *r, const at_tiles_lay *seen,
                            const uint32_t *operand, uint32_t num,
                            int64_t *least, at_tiles_grid *best) {
  for (uint32_t i = 0; i < num; i++)
    for (uint32_t k = i + 1; k < num; k++) {
      at_tiles_grid g;
      bool fits, moves;
      int64_t cycles;
      AT_TRY(halves(w, r, operand[i], &seen[i], &seen[k], &g, &fits));
      if (!fits) continue;
      AT_TRY(weigh(w, n, r, &g, false, &cycles, &moves));
      if (cycles < *least) *least = cycles, *best = g;
    }
  return AT_OK;
}

// Candidates: to follow each operand that has a home, halves of two homes, and
// the best of a search. An elementwise op that need not move anything and
// spreads well stays without a search.
at_status at_tiles_grid_choose(at_tiles_lowerer *w, const at_node *n,
                               const at_tiles_rule *r, at_tiles_grid *best,
                               int64_t *stay) {
  int64_t least = INT64_MAX, cycles;
  *stay = 0;
  // At most four different homes are tried; operands with the same one are
  // tried once.
  bool product = at_tiles_depth(n) > 0, moves;
  at_tiles_grid still = {0};
  at_tiles_lay seen[4];
  uint32_t num_seen = 0, operand[4];
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
    operand[num_seen] = t;
    seen[num_seen++] = v->lay;
    at_tiles_grid g;
    AT_TRY(at_tiles_grid_follow(w, r, t, &v->lay, &g, &fits));
    if (!fits) continue;
    AT_TRY(weigh(w, n, r, &g, false, &cycles, &moves));
    if (cycles < least) least = cycles, *best = g;
    if (!moves && (!*stay || cycles < *stay)) *stay = cycles, still = g;
    if (!moves && !product && spreads_well(w, n, &g)) return AT_OK;
  }
  if (at_op_is(n->op, AT_ELEMENTWISE))
    AT_TRY(try_halves(w, n, r, seen, operand, num_seen, &least, best));
  // Products are tried in several ways, from where their operands are.
  at_tiles_grid *ways;
  uint32_t num, most = product && !w->o->linear ? 2 * kTilesWays : 1;
  AT_TRY_ALLOC(ways, at_new(w->arena, at_tiles_grid, most));
  AT_TRY(at_tiles_grid_search(w, n, r, most, ways, &num));
  // Nothing to compare it with.
  if (least == INT64_MAX && num == 1) return *best = ways[0], AT_OK;
  for (uint32_t i = 0; i < num; i++) {
    AT_TRY(weigh(w, n, r, &ways[i], false, &cycles, &moves));
    if (cycles < least) least = cycles, *best = ways[i];
  }
  if (!*stay || product) return AT_OK;
  // The grids were compared by guesses; to move has to win by the plan.
  AT_TRY(weigh(w, n, r, best, true, &cycles, &moves));
  if (moves && cycles >= *stay) *best = still;
  return AT_OK;
}
