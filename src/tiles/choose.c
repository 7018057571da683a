// Where the result of an elementwise op goes. There are up to four candidates:
// with the first operand, with the second, halfway between them, and spread
// evenly over all tiles. Each is costed from the operands' mappings alone, in
// cycles: those of the busiest tile's vertex, plus a sync and the exchange of
// the tile that sends or receives most, if anything moves. The cheapest is
// made; of equals the first, so that results stay with their operands.
#include <string.h>

#include "tiles/tiles_internal.h"

typedef struct chooser {
  const at_tiles_machine *m;
  const at_tiles_codelet *c;
  at_dtype dtype;
  uint32_t inputs;
  at_tiles_mapping in[2];
  const double *params;
  int64_t *work, *receives, *sends;  // per tile: elements, bytes, bytes
} chooser;

// The end of the stretch from `at` on, at most `end`, over which every operand
// is on one tile; tiles[i] is operand i's. `cursor` is where the caller is in
// each mapping, and only moves on: a walk over all elements is linear in the
// number of intervals.
static int64_t stretch(const chooser *x, size_t *cursor, int64_t at,
                       int64_t end, uint32_t *tiles) {
  for (uint32_t i = 0; i < x->inputs; i++) {
    while (x->in[i].ptr[cursor[i]].end <= at) cursor[i]++;
    AT_ASSERT(cursor[i] < x->in[i].len && x->in[i].ptr[cursor[i]].begin <= at);
    tiles[i] = x->in[i].ptr[cursor[i]].tile;
    end = AT_MIN(end, x->in[i].ptr[cursor[i]].end);
  }
  return end;
}

// Cycles if the result were mapped as `out`, which covers all elements: the
// busiest tile's vertex and, where anything moves, a sync and the busiest
// tile's transfer.
static int64_t cost(chooser *x, const at_tiles_mapping *out) {
  size_t n = (size_t)x->m->tiles, cursor[2] = {0, 0};
  int64_t size = at_dtype_bytes(x->dtype), busiest = 0, moved = 0;
  memset(x->work, 0, 3 * n * sizeof *x->work);
  for (size_t i = 0; i < out->len; i++) {
    const at_tiles_interval *o = &out->ptr[i];
    x->work[o->tile] += o->end - o->begin;
    for (int64_t at = o->begin; at < o->end;) {
      uint32_t tiles[2];
      int64_t end = stretch(x, cursor, at, o->end, tiles);
      for (uint32_t k = 0; k < x->inputs; k++) {
        if (tiles[k] == o->tile) continue;
        x->receives[o->tile] += (end - at) * size;
        x->sends[tiles[k]] += (end - at) * size;
      }
      at = end;
    }
  }
  for (size_t t = 0; t < n; t++) {
    at_tiles_operand f[3];
    for (uint32_t i = 0; i <= x->inputs; i++)
      f[i] = (at_tiles_operand){x->dtype, {0}, x->work[t], 1, NULL};
    at_tiles_work w = {x->m, f, x->inputs + 1, x->params};
    if (x->work[t]) busiest = AT_MAX(busiest, x->c->cycles(&w));
    moved = AT_MAX(moved, AT_MAX(x->receives[t], x->sends[t]));
  }
  return busiest +
         (moved ? x->m->sync + at_ceil_div(moved, x->m->exchange_bytes) : 0);
}

// Where the two operands are apart, each tile takes half, in whole vectors.
static at_status halves(const chooser *x, int64_t elements,
                        at_tiles_mapping *out) {
  size_t cursor[2] = {0, 0};
  int64_t grain = AT_MAX(x->m->vector_bytes / at_dtype_bytes(x->dtype), 1);
  for (int64_t at = 0; at < elements;) {
    uint32_t tiles[2];
    int64_t end = stretch(x, cursor, at, elements, tiles);
    int64_t mid =
        tiles[0] == tiles[1] ? end : at + (end - at) / 2 / grain * grain;
    AT_ASSERT(mid >= at && mid <= end && end > at);
    at_tiles_interval a = {at, mid, tiles[0]}, b = {mid, end, tiles[1]};
    if ((mid > at && !at_tiles_push(out, a)) ||
        (end > mid && !at_tiles_push(out, b)))
      return AT_NO_MEMORY("elementwise op");
    at = end;
  }
  return AT_OK;
}

// Even shares in whole vectors, so that no two tiles differ by more than one.
static at_status spread(const chooser *x, int64_t elements,
                        at_tiles_mapping *out) {
  int64_t grain = AT_MAX(x->m->vector_bytes / at_dtype_bytes(x->dtype), 1);
  int64_t grains = at_ceil_div(elements, grain),
          tiles = AT_MIN(x->m->tiles, grains);
  for (int64_t t = 0; t < tiles; t++) {
    int64_t end = AT_MIN((t + 1) * grains / tiles * grain, elements);
    at_tiles_interval i = {t * grains / tiles * grain, end, (uint32_t)t};
    if (!at_tiles_push(out, i)) return AT_NO_MEMORY("elementwise op");
  }
  return AT_OK;
}

// One way to map the result. map: borrowed from the operand for WITH_OPERAND,
// else the candidate's own.
typedef struct candidate {
  at_tiles_choice choice;
  uint32_t operand;
  at_tiles_mapping map;
  int64_t cycles;
} candidate;

// Makes the result as `best` says and adds the vertices to s.
static at_status make(at_tiles_set *s, const at_tiles_codelet *c,
                      const at_tiles_view *const *in, const char *name,
                      const double *params, const candidate *best,
                      const at_tiles_view **out) {
  const at_tiles_view *from = in[best->operand];
  if (best->choice == AT_TILES_WITH_OPERAND) {
    AT_TRY(at_tiles_view_clone(from, name, out));
  } else {
    AT_TRY(at_tiles_variable_add(s->graph, name, from->dtype,
                                 at_tiles_view_dims(from), out));
    AT_TRY(at_tiles_mapping_set_all(*out, &best->map));
  }
  return at_tiles_map_elementwise(s, c, in, *out, params);
}

// Fills in the candidates, with operands first. *count is right on an error
// too: their maps are freed by the caller.
static at_status weigh(chooser *x, const at_tiles_view *const *in, candidate *k,
                       uint32_t *count) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < x->inputs; i++) {
    AT_TRY(at_tiles_mapping_check(in[i]));
    AT_TRY(at_tiles_mapping_get(in[i], &x->in[i]));
  }
  for (uint32_t i = 0; i < x->inputs; i++)
    k[n++] =
        (candidate){AT_TILES_WITH_OPERAND, i, x->in[i], cost(x, &x->in[i])};
  *count = n;
  for (int c = x->inputs == 2 ? AT_TILES_HALVES : AT_TILES_SPREAD;
       c <= AT_TILES_SPREAD; c++) {
    k[n] = (candidate){(at_tiles_choice)c, 0, {0}, 0};
    *count = n + 1;
    AT_TRY(c == AT_TILES_HALVES ? halves(x, in[0]->elements, &k[n].map)
                                : spread(x, in[0]->elements, &k[n].map));
    k[n].cycles = cost(x, &k[n].map);
    n++;
  }
  return AT_OK;
}

// See tiles.h. Of equal candidates the first one wins.
at_status at_tiles_plan_elementwise(at_tiles_set *s, const at_tiles_codelet *c,
                                    const at_tiles_view *const *in,
                                    const char *name, const double *params,
                                    const at_tiles_view **out,
                                    at_tiles_choice *out_choice,
                                    int64_t *out_cycles) {
  chooser x = {.m = &s->graph->machine, .c = c, .params = params};
  if (c->num_fields < 2 || c->num_fields > 3)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%s is not elementwise with one or two operands", c->name);
  x.inputs = c->num_fields - 1;
  x.dtype = in[0]->dtype;
  if (in[x.inputs - 1]->elements != in[0]->elements)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "compute set %s: operands of %lld and %lld elements",
                   s->name, (long long)in[0]->elements,
                   (long long)in[x.inputs - 1]->elements);
  candidate k[4];
  uint32_t n = 0, best = 0;
  x.work = calloc(3 * (size_t)x.m->tiles, sizeof *x.work);
  if (!x.work) return AT_NO_MEMORY("elementwise op");
  x.receives = x.work + x.m->tiles;
  x.sends = x.work + 2 * x.m->tiles;
  at_status st = weigh(&x, in, k, &n);
  for (uint32_t i = 1; at_ok(st) && i < n; i++)
    if (k[i].cycles < k[best].cycles) best = i;
  if (at_ok(st)) st = make(s, c, in, name, params, &k[best], out);
  if (at_ok(st) && out_choice) *out_choice = k[best].choice;
  if (at_ok(st) && out_cycles) *out_cycles = k[best].cycles;
  for (uint32_t i = x.inputs; i < n; i++) at_tiles_mapping_free(&k[i].map);
  for (uint32_t i = 0; i < 2; i++) at_tiles_mapping_free(&x.in[i]);
  free(x.work);
  return st;
}
