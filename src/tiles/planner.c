// How a node's work is cut: every way within reach is costed by what a tile
// computes, receives and adds up; the cheapest is taken.
#include "tiles/lower_internal.h"

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
  } g, best;
  double best_cost;
  uint32_t order[kTilesFactors];  // factors to decide, in this order
  uint32_t num;
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
  if (bytes > 0.6 * (double)m->bytes_per_tile)
    c *= 1 + 8 * bytes / (double)m->bytes_per_tile;
  return c;
}

static void visit(search *s, uint32_t i, int64_t left) {
  enum { kTries = 40000 };
  if (i == s->num) {
    s->tries++;
    double c = cost(s);
    if (c < s->best_cost) s->best_cost = c, s->best = s->g;
    return;
  }
  uint32_t f = s->order[i];
  int64_t most = AT_MIN(s->g.size[f], left), last = 0;
  for (int64_t step = 0; step < 64 && s->tries < kTries; step++) {
    // 1, 2, 3, 4, 6, 8, 12, 16, 23, 24, 32, 46, ...: what 1,472 tiles divide
    // into.
    static const int64_t ladder[] = {1,   2,   3,   4,   6,    8,   12,  16,
                                     23,  24,  32,  46,  64,   92,  128, 184,
                                     256, 368, 512, 736, 1024, 1472};
    int64_t c = step < (int64_t)AT_LEN(ladder) ? ladder[step] : most;
    bool end = c >= most;
    c = AT_MIN(c, most);
    if (c != last) {
      s->g.cuts[f] = c;
      visit(s, i + 1, left / c);
    }
    last = c;
    if (end) break;
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
  s->num = AT_MIN(s->num, 5u);
}

// Major dimensions of the first result first, no partial sums.
static void linear(search *s) {
  const at_place *p = s->r->places[s->n->num_operands];
  int64_t bytes = p ? (int64_t)at_type_bytes(&p->whole) : 0;
  int64_t left = AT_MAX(AT_MIN(s->w->m.tiles, bytes / 128), 1);
  s->best = s->g;
  for (uint32_t d = 0; p && d < p->whole.rank; d++) {
    const at_dim_factors *x = &s->r->dims[s->n->num_operands][d];
    if (!x->n) continue;
    int64_t c = AT_MAX(AT_MIN(s->g.size[x->f[0]], left), 1);
    bool may = false;
    for (uint32_t i = 0; i < s->num; i++) may |= s->order[i] == x->f[0];
    if (!may) continue;
    s->best.cuts[x->f[0]] = c;
    left /= c;
  }
}

at_status at_tiles_grid_search(at_tiles_lowerer *w, const at_node *n,
                               const at_tiles_rule *rule, at_tiles_grid *out) {
  const at_rule *r = &rule->r;
  search s = {.w = w,
              .n = n,
              .r = r,
              .rule = rule,
              .best_cost = 1e300,
              .depth = at_tiles_depth(n)};
  s.g.num = r->num_factors;
  for (uint32_t f = 0; f < r->num_factors; f++) {
    s.g.size[f] = r->size[f];
    s.g.cuts[f] = 1;
    s.g.sum[f] = r->kind[f] == AT_FACTOR_SUM;
    // What indices point into stays whole on its tile.
    if (r->kind[f] == AT_FACTOR_LOOKUP || r->kind[f] == AT_FACTOR_STORE)
      s.g.size[f] = 1;
    if (s.g.sum[f] && n->op == AT_OP_SCATTER) s.g.size[f] = 1;
  }
  find_order(&s);
  s.best = s.g;
  if (w->o->linear)
    linear(&s);
  else
    visit(&s, 0, w->m.tiles);
  *out = (at_tiles_grid){.num = r->num_factors};
  // Summands of one result on neighbours.
  int64_t stride = 1;
  for (int pass = 0; pass < 2; pass++)
    for (uint32_t f = s.g.num; f-- > 0;) {
      if (s.g.sum[f] != (pass == 0)) continue;
      out->sum[f] = s.g.sum[f];
      AT_TRY(at_tiles_dim_cut(w->arena, r->size[f], s.best.cuts[f], stride,
                              &out->dim[f]));
      stride *= s.best.cuts[f];
    }
  return AT_OK;
}

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
