// Regions: what of a view lies on one tile, in the order of that tile's memory.
#include "tiles/tiles_internal.h"

enum { kMostApart = 1 << 22 };

// By variable and place in it.
static int by_place(const void *a, const void *b) {
  const at_tiles_region *x = a, *y = b;
  if (x->var != y->var) return x->var < y->var ? -1 : 1;
  if (x->at != y->at) return x->at < y->at ? -1 : 1;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

// Elements of a part that lie one after another, forwards, in memory.
static at_status add_part(const at_tiles_part *p, at_tiles_regions *out) {
  int64_t n = p->step == 1 ? 1 : p->count;
  int64_t each = p->count / n;
  for (int64_t k = 0; k < n; k++) {
    at_tiles_region r = {p->at + k * each, p->at + (k + 1) * each, 0, p->var,
                         p->begin + k * p->step};
    if (!at_tiles_push(out, r)) return AT_NO_MEMORY("regions");
  }
  return AT_OK;
}

// Regions that follow each other in memory get one group.
at_status at_tiles_regions_of(const at_tiles_view *v, uint32_t tile,
                              at_tiles_regions *out) {
  at_tiles_parts parts = {0};
  at_tiles_regions r = {0};
  at_status st = at_tiles_locate(v, 0, v->elements, &parts);
  for (size_t i = 0; at_ok(st) && i < parts.len; i++)
    if (parts.ptr[i].tile == tile) st = add_part(&parts.ptr[i], &r);
  free(parts.ptr);
  if (!at_ok(st)) return free(r.ptr), st;
  if (r.len) qsort(r.ptr, r.len, sizeof *r.ptr, by_place);
  for (size_t i = 0; i < r.len; i++) {
    const at_tiles_region *p = i ? &r.ptr[i - 1] : NULL;
    if (!p || p->var != r.ptr[i].var ||
        p->at + (p->end - p->begin) != r.ptr[i].at)
      r.groups++;
    r.ptr[i].group = r.groups - 1;
    AT_ASSERT(r.ptr[i].begin < r.ptr[i].end && r.ptr[i].end <= v->elements);
  }
  AT_ASSERT(r.groups <= r.len);
  *out = r;
  return AT_OK;
}

// Lists differ by one grain at most. Pieces are cut where a list ends.
at_status at_tiles_regions_split(const at_tiles_regions *r, uint32_t parts,
                                 int64_t grain, int64_t most,
                                 at_tiles_regions *out) {
  if (!parts || grain < 1 || most < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "split of regions: %u parts, grain %lld, at most %lld",
                   parts, (long long)grain, (long long)most);
  int64_t total = 0;
  for (size_t i = 0; i < r->len; i++) total += r->ptr[i].end - r->ptr[i].begin;
  int64_t grains = at_ceil_div(total, grain),
          lists = AT_MIN((int64_t)parts, grains);
  if (most) lists = AT_MAX(lists, at_ceil_div(grains, AT_MAX(most / grain, 1)));
  at_tiles_regions s = {0};
  int64_t done = 0, list = 0;
  for (size_t i = 0; i < r->len; i++) {
    at_tiles_region x = r->ptr[i];
    while (x.begin < x.end) {
      int64_t end = AT_MIN((list + 1) * grains / lists * grain, total);
      if (done >= end) {
        list++;
        continue;
      }
      at_tiles_region part = x;
      part.end = AT_MIN(x.end, x.begin + end - done);
      part.group = (uint32_t)list;
      if (!at_tiles_push(&s, part)) return free(s.ptr), AT_NO_MEMORY("regions");
      done += part.end - part.begin;
      x.at += part.end - part.begin;
      x.begin = part.end;
    }
  }
  // Each list has a grain at least, and all elements are in one.
  AT_ASSERT(done == total && lists <= grains && list < AT_MAX(lists, 1));
  s.groups = (uint32_t)lists;
  *out = s;
  return AT_OK;
}

// The runs of each region, one after the other.
at_status at_tiles_regions_view(const at_tiles_view *v,
                                const at_tiles_region *r, size_t n,
                                const at_tiles_view **out) {
  at_tiles_runs runs = {0};
  at_status st = AT_OK;
  for (size_t i = 0; at_ok(st) && i < n; i++)
    st = at_tiles_view_runs(v, r[i].begin, r[i].end, &runs);
  if (at_ok(st))
    st = at_tiles_view_of_runs(v->graph, v->dtype, runs.ptr, runs.len, out);
  free(runs.ptr);
  return st;
}

// ---- Reordering
// By the lowest element of a part.
static int by_memory(const void *a, const void *b) {
  const at_tiles_part *x = a, *y = b;
  if (x->var != y->var) return x->var < y->var ? -1 : 1;
  int64_t l = at_tiles_low(x->begin, x->count, x->step),
          r = at_tiles_low(y->begin, y->count, y->step);
  if (l != r) return l < r ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

// Runs that do not go forwards element by element are taken apart, so that what
// another run has in between comes between; not of views so large that this
// would cost more than it is worth.
static at_status add_order(const at_tiles_run *r, int64_t at, bool apart,
                           at_tiles_parts *out) {
  int64_t pieces = apart && r->step != 1 && r->step ? r->count : 1,
          each = r->count / pieces;
  for (int64_t k = 0; k < pieces; k++) {
    at_tiles_part p = {r->var,
                       0,
                       r->begin + k * each * r->step,
                       each,
                       pieces > 1 ? 1 : r->step,
                       at + k * each};
    if (!at_tiles_push(out, p)) return AT_NO_MEMORY("reorder");
  }
  return AT_OK;
}

// The order of v[0]'s memory, applied to all views.
at_status at_tiles_view_reorder(const at_tiles_view *const *v, uint32_t n,
                                const at_tiles_view **out) {
  if (!n) return AT_OK;
  for (uint32_t i = 1; i < n; i++)
    if (v[i]->elements != v[0]->elements || v[i]->graph != v[0]->graph)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "reorder: view %u has %lld elements, view 0 %lld", i,
                     (long long)v[i]->elements, (long long)v[0]->elements);
  at_tiles_runs order = {0}, runs = {0};
  at_tiles_parts parts = {0};
  at_status st = at_tiles_view_runs(v[0], 0, v[0]->elements, &order);
  int64_t at = 0;
  bool apart = v[0]->elements <= kMostApart;
  for (size_t i = 0; at_ok(st) && i < order.len; i++) {
    st = add_order(&order.ptr[i], at, apart, &parts);
    at += order.ptr[i].count;
  }
  AT_ASSERT(!at_ok(st) || at == v[0]->elements);
  if (at_ok(st) && parts.len)
    qsort(parts.ptr, parts.len, sizeof *parts.ptr, by_memory);
  for (uint32_t i = 0; at_ok(st) && i < n; i++) {
    runs.len = 0;
    const at_tiles_view *f = v[i];
    if (v[i]->rank != 1) st = at_tiles_view_flatten(v[i], &f);
    for (size_t k = 0; at_ok(st) && k < parts.len; k++)
      st = at_tiles_view_runs(f, parts.ptr[k].at,
                              parts.ptr[k].at + parts.ptr[k].count, &runs);
    if (at_ok(st))
      st = at_tiles_view_of_runs(v[0]->graph, v[i]->dtype, runs.ptr, runs.len,
                                 &out[i]);
  }
  free(order.ptr);
  free(runs.ptr);
  free(parts.ptr);
  return st;
}
