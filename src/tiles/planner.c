// How a node's work is cut: every way within reach is costed by what a tile
// computes, receives and adds up; the cheapest is taken.
#include <stdlib.h>

#include "tiles/lower_internal.h"

enum { kDecided = 5, kWays = 64 };

// A search over the cuts of a node's factors. On the heap: it is large.
typedef struct search {
  at_tiles_lowerer *w;
  const at_node *n;
  const at_rule *r;
  const at_tiles_rule *rule;
  double depth;
  struct cut {
    uint32_t num;
    int64_t size[kTilesFactors], cuts[kTilesFactors];
    bool sum[kTilesFactors];
  } g;
  struct cut best[kTilesWays];  // cheapest first
  double best_cost[kTilesWays];
  uint32_t num_best;
  uint32_t order[kTilesFactors];  // factors to decide, in this order
  uint32_t num;
  int64_t ways[kDecided][kWays];  // to cut each of them
  uint32_t num_ways[kDecided];
  bool large;  // there is work for every tile
  int64_t tries;
} search;

// Elements of tensor t that one block of the grid touches.
static double part(const search *s, uint32_t t) {
  const at_place *p = s->r->places[t];
  double n = 1;
  for (uint32_t d = 0; p && d < p->whole.rank; d++) {
    const at_dim_factors *x = &s->r->dims[t][d];
    double size = (double)p->whole.dims[d];
    for (uint32_t i = 0; i < x->n; i++) {
      int64_t f = s->g.size[x->f[i]], c = s->g.cuts[x->f[i]];
      size = size / (double)AT_MAX(f, 1) * (double)at_ceil_div(f, c);
    }
    for (uint32_t i = 0; !x->n && i < s->rule->num_windows; i++) {
      const at_tiles_window *w = &s->rule->windows[i];
      if (w->tensor != t || w->dim != d) continue;
      double c = (double)s->g.cuts[w->factor];
      size = AT_MIN(size, size / c + (double)w->extent);
    }
    n *= size;
  }
  return n;
}

// Cycles of the grid in s->g, wherever operands are now: all operands count as
// received, sums as one more exchange.
static double cost(const search *s) {
  const at_tiles_machine *m = &s->w->m;
  double out = 0, in = 0, received = 0, bytes = 0, summed = 1, depth = s->depth;
  uint32_t operands = s->n->num_operands;
  for (uint32_t t = 0; t < s->r->num_tensors; t++) {
    const at_place *p = s->r->places[t];
    if (!p) continue;
    double e = part(s, t), b = e * at_dtype_bytes(p->whole.dtype);
    bytes += b;
    if (t >= operands)
      out = AT_MAX(out, e);
    else
      in = AT_MAX(in, e);
    if (t >= operands) continue;
    at_tiles_value *v = at_tiles_value_of(s->w, s->n->operands[t]);
    if (v && v->everywhere) continue;
    received += b;
  }
  for (uint32_t f = 0; f < s->g.num; f++)
    if (s->g.sum[f])
      summed *= (double)s->g.cuts[f],
          depth *= (double)at_ceil_div(s->g.size[f], s->g.cuts[f]) /
                   (double)AT_MAX(s->g.size[f], 1);
  double c =
      (double)at_tiles_node_cycles(m, s->n, (int64_t)out, (int64_t)in, depth);
  if (received > 0) c += (double)m->sync + received / (double)m->exchange_bytes;
  if (summed > 1) {
    double piece = out * 4 / summed * (summed - 1);
    c += (double)m->sync + piece / (double)m->exchange_bytes +
         (double)at_tiles_shared_cycles(m, (int64_t)(out / 2), 1, 2);
  }
  return (double)at_tiles_crowded(s->w, (int64_t)bytes, (int64_t)c);
}

// Ways to cut n into blocks that are as long as each other but the last: 1, 2,
// 3, 4, 6, 8, 12, ..., n, and what 1,472 tiles divide into; all, if n is small.
static uint32_t ways_of(int64_t n, int64_t *out) {
  static const int64_t ladder[] = {
      1,  2,  3,   4,   6,   8,   12,  16,  23,   24,   32,       46,
      64, 92, 128, 184, 256, 368, 512, 736, 1024, 1472, INT64_MAX};
  enum { kSmall = 64 };
  uint32_t num = 0;
  int64_t last = 0;
  for (int64_t k = 0; k < (n <= kSmall ? n : (int64_t)AT_LEN(ladder)); k++) {
    int64_t c = AT_MIN(n <= kSmall ? k + 1 : ladder[k], n);
    c = at_ceil_div(n, at_ceil_div(n, c));
    if (c != last && num < kWays) out[num++] = c;
    last = c;
  }
  return num;
}

// Puts the grid among the best, cheapest first.
static void keep(search *s, double c) {
  uint32_t k = AT_MIN(s->num_best, kTilesWays - 1u);
  if (s->num_best == kTilesWays && c >= s->best_cost[k]) return;
  for (; k > 0 && c < s->best_cost[k - 1]; k--)
    s->best[k] = s->best[k - 1], s->best_cost[k] = s->best_cost[k - 1];
  s->best[k] = s->g, s->best_cost[k] = c;
  s->num_best = AT_MIN(s->num_best + 1, (uint32_t)kTilesWays);
}

// All ways to cut factors i and following into at most `left` blocks; stops
// after kTries grids.
static void visit(search *s, uint32_t i, int64_t left) {
  enum { kTries = 60000 };
  if (i == s->num) {
    // Far from using the tiles: there is better.
    if (3 * left > s->w->m.tiles && s->num_best && s->large) return;
    s->tries++;
    keep(s, cost(s));
    return;
  }
  uint32_t f = s->order[i];
  for (uint32_t k = 0; k < s->num_ways[i] && s->tries < kTries; k++) {
    int64_t c = s->ways[i][k];
    if (c > left) break;
    s->g.cuts[f] = c;
    visit(s, i + 1, left / c);
  }
  s->g.cuts[f] = 1;
}

// A factor that shares a dimension with others may be cut only if those before
// it are cut through; only the first of each such dimension is cut.
static void find_order(search *s) {
  uint64_t later = 0;
  for (uint32_t t = 0; t < s->r->num_tensors; t++)
    for (uint32_t d = 0; s->r->places[t] && d < s->r->places[t]->whole.rank;
         d++)
      for (uint32_t i = 1; i < s->r->dims[t][d].n; i++)
        later |= 1ull << s->r->dims[t][d].f[i];
  for (uint32_t f = 0; f < s->g.num; f++)
    if (s->g.size[f] > 1 && !(later >> f & 1) && s->num < kTilesFactors)
      s->order[s->num++] = f;
  // Large factors first; many small ones would only multiply the ways.
  for (uint32_t i = 1; i < s->num; i++)
    for (uint32_t k = i;
         k > 0 && s->g.size[s->order[k]] > s->g.size[s->order[k - 1]]; k--) {
      uint32_t x = s->order[k];
      s->order[k] = s->order[k - 1], s->order[k - 1] = x;
    }
  s->num = AT_MIN(s->num, (uint32_t)kDecided);
  double work = AT_MAX(s->depth, 1);
  for (uint32_t i = 0; i < s->num; i++) {
    uint32_t f = s->order[i];
    s->num_ways[i] = ways_of(s->g.size[f], s->ways[i]);
    if (!s->g.sum[f]) work *= (double)s->g.size[f];
  }
  s->large = work > 256 * (double)s->w->m.tiles;
}

// Major dimensions of the first result first, no partial sums.
static void linear(search *s) {
  const at_place *p = s->r->places[s->n->num_operands];
  int64_t bytes = p ? (int64_t)at_type_bytes(&p->whole) : 0;
  int64_t left = AT_MAX(AT_MIN(s->w->m.tiles, bytes / 128), 1);
  s->best[0] = s->g;
  s->num_best = 1;
  for (uint32_t d = 0; p && d < p->whole.rank; d++) {
    const at_dim_factors *x = &s->r->dims[s->n->num_operands][d];
    if (!x->n) continue;
    int64_t c = AT_MAX(AT_MIN(s->g.size[x->f[0]], left), 1);
    bool may = false;
    for (uint32_t i = 0; i < s->num; i++) may |= s->order[i] == x->f[0];
    if (!may) continue;
    s->best[0].cuts[x->f[0]] = c;
    left /= c;
  }
}

// Neighbours share what the innermost factor does not cut: summands of one
// result, or blocks of different ones.
static at_status grid_of(at_tiles_lowerer *w, const at_rule *r,
                         const struct cut *c, bool sums_inside,
                         at_tiles_grid *out) {
  int64_t stride = 1;
  *out = (at_tiles_grid){.num = r->num_factors};
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t f = c->num; f-- > 0;) {
      if (c->sum[f] != ((pass == 0) == sums_inside)) continue;
      out->sum[f] = c->sum[f];
      AT_TRY(at_tiles_dim_cut(w->arena, r->size[f], c->cuts[f], stride,
                              &out->dim[f]));
      stride *= c->cuts[f];
    }
  return AT_OK;
}

// Grids with partial sums come in two orders of tiles, as either may bring
// operands more cheaply.
at_status at_tiles_grid_search(at_tiles_lowerer *w, const at_node *n,
                               const at_tiles_rule *rule, uint32_t most,
                               at_tiles_grid *out, uint32_t *out_num) {
  const at_rule *r = &rule->r;
  search *s;
  AT_TRY_ALLOC(s, calloc(1, sizeof *s));
  *s = (search){
      .w = w, .n = n, .r = r, .rule = rule, .depth = at_tiles_depth(n)};
  s->g.num = r->num_factors;
  for (uint32_t f = 0; f < r->num_factors; f++) {
    s->g.size[f] = r->size[f];
    s->g.cuts[f] = 1;
    s->g.sum[f] = r->kind[f] == AT_FACTOR_SUM;
    // What indices point into stays whole on its tile.
    if (r->kind[f] == AT_FACTOR_LOOKUP || r->kind[f] == AT_FACTOR_STORE)
      s->g.size[f] = 1;
    if (s->g.sum[f] && n->op == AT_OP_SCATTER) s->g.size[f] = 1;
  }
  find_order(s);
  if (w->o->linear)
    linear(s);
  else
    visit(s, 0, w->m.tiles);
  if (!s->num_best) s->best[s->num_best++] = s->g;
  uint32_t num = 0;
  at_status st = AT_OK;
  for (uint32_t k = 0; at_ok(st) && k < s->num_best && num < most; k++) {
    st = grid_of(w, r, &s->best[k], true, &out[num++]);
    bool sums = false;
    for (uint32_t f = 0; f < s->g.num; f++)
      sums |= s->g.sum[f] && s->best[k].cuts[f] > 1;
    if (at_ok(st) && sums && num < most)
      st = grid_of(w, r, &s->best[k], false, &out[num++]);
  }
  free(s);
  AT_TRY(st);
  *out_num = num;
  return AT_OK;
}

// Every dimension of the home must be one factor, uncut by others, that passes
// through or is summed.
at_status at_tiles_grid_follow(at_tiles_lowerer *w, const at_tiles_rule *rule,
                               uint32_t t, const at_tiles_lay *home,
                               at_tiles_grid *out, bool *fits) {
  const at_rule *r = &rule->r;
  *fits = r->places[t] != NULL;
  *out = (at_tiles_grid){.num = r->num_factors};
  for (uint32_t f = 0; f < r->num_factors; f++) {
    out->sum[f] = r->kind[f] == AT_FACTOR_SUM;
    AT_TRY(at_tiles_dim_whole(w->arena, r->size[f], &out->dim[f]));
  }
  for (uint32_t d = 0; *fits && d < home->rank; d++) {
    if (home->dim[d].cuts == 1 && !home->dim[d].off[0]) continue;
    const at_dim_factors *x = &r->dims[t][d];
    *fits = x->n == 1 && r->size[x->f[0]] == r->places[t]->whole.dims[d] &&
            (r->kind[x->f[0]] == AT_FACTOR_PASS ||
             r->kind[x->f[0]] == AT_FACTOR_SUM);
    if (*fits) out->dim[x->f[0]] = home->dim[d];
  }
  return AT_OK;
}
