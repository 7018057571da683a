// Which tile each element lives on. A variable's homes are sorted intervals; a
// view is mapped by mapping what it names.
#include <string.h>

#include "base/verify.h"
#include "tiles/tiles_internal.h"

void at_tiles_mapping_policy(at_tiles_graph *g, at_tiles_policy p) {
  g->policy = p;
}

// It may be filled again afterwards.
void at_tiles_mapping_free(at_tiles_mapping *m) {
  free(m->ptr);
  *m = (at_tiles_mapping){0};
}

// Appends to a sorted mapping, joined with its last interval where they touch.
static bool append(at_tiles_mapping *m, at_tiles_interval i) {
  if (i.begin >= i.end) return true;
  if (m->len) {
    at_tiles_interval *l = &m->ptr[m->len - 1];
    if (l->end == i.begin && l->tile == i.tile) return l->end = i.end, true;
  }
  return at_tiles_push(m, i);
}

// First interval that ends after x.
static size_t find(const at_tiles_mapping *m, int64_t x) {
  size_t lo = 0, hi = m->len;
  while (lo < hi) {
    size_t mid = lo + (hi - lo) / 2;
    if (m->ptr[mid].end <= x)
      lo = mid + 1;
    else
      hi = mid;
  }
  AT_ASSERT(lo == m->len || m->ptr[lo].end > x);
  AT_ASSERT(lo == 0 || m->ptr[lo - 1].end <= x);
  return lo;
}

// Is every element of a variable on one tile at most, in the order of places,
// and are neighbours on a tile joined?
static bool is_home(const at_tiles_graph *g, const at_tiles_mapping *m) {
  for (size_t i = 0; i < m->len; i++) {
    const at_tiles_interval *x = &m->ptr[i], *before = i ? x - 1 : NULL;
    if (x->begin < 0 || x->begin >= x->end ||
        x->tile >= (uint64_t)g->machine.tiles)
      return false;
    if (before && (before->end > x->begin ||
                   (before->end == x->begin && before->tile == x->tile)))
      return false;
  }
  return true;
}

// ---- Locating
// Appends a part, joined with the last one where both go on in variable, view
// and tile.
static bool push_part(at_tiles_parts *out, at_tiles_part p) {
  if (out->len) {
    at_tiles_part *l = &out->ptr[out->len - 1];
    if (l->var == p.var && l->tile == p.tile && l->step == 1 && p.step == 1 &&
        l->begin + l->count == p.begin && l->at + l->count == p.at)
      return l->count += p.count, true;
  }
  return at_tiles_push(out, p);
}

// Cuts run r, whose first element is position `at` of the view, where homes
// begin and end; any step.
static at_status locate_run(const at_tiles_var *v, const at_tiles_run *r,
                            int64_t at, at_tiles_parts *out) {
  const at_tiles_mapping *m = &v->home;
  int64_t done = 0;
  while (done < r->count) {
    int64_t x = r->begin + done * r->step, left = r->count - done, n;
    size_t k = find(m, x);
    bool in = k < m->len && m->ptr[k].begin <= x;
    uint32_t tile = in ? m->ptr[k].tile : AT_TILES_NOWHERE;
    if (r->step > 0) {
      int64_t end = in           ? m->ptr[k].end
                    : k < m->len ? m->ptr[k].begin
                                 : INT64_MAX;
      n = end == INT64_MAX ? left : (end - x + r->step - 1) / r->step;
    } else if (r->step < 0) {
      int64_t low = in ? m->ptr[k].begin : k ? m->ptr[k - 1].end : INT64_MIN;
      n = low == INT64_MIN ? left : (x - low) / -r->step + 1;
    } else {
      n = left;
    }
    n = AT_MIN(n, left);
    AT_ASSERT(n > 0);
    int64_t end = x + (n - 1) * r->step;  // of the same interval, or of none
    AT_ASSERT(!in || (end >= m->ptr[k].begin && end < m->ptr[k].end));
    at_tiles_part p = {r->var, tile, x, n, n == 1 ? 1 : r->step, at + done};
    if (!push_part(out, p)) return AT_NO_MEMORY("mapping");
    done += n;
  }
  return AT_OK;
}

// Runs of the view, cut by the homes of their variables.
at_status at_tiles_locate(const at_tiles_view *v, int64_t begin, int64_t end,
                          at_tiles_parts *out) {
  at_tiles_runs runs = {0};
  at_status st = at_tiles_view_runs(v, begin, end, &runs);
  int64_t at = begin;
  for (size_t i = 0; at_ok(st) && i < runs.len; i++) {
    st =
        locate_run(&v->graph->vars.ptr[runs.ptr[i].var], &runs.ptr[i], at, out);
    at += runs.ptr[i].count;
  }
  AT_ASSERT(!at_ok(st) || at == end);
  free(runs.ptr);
  return st;
}

at_status at_tiles_unmapped(const at_tiles_graph *g, const at_tiles_part *p,
                            const char *what) {
  return AT_FAIL(AT_FAILED_PRECONDITION,
                 "%s: elements [%lld, %lld) of tensor %s are on no tile\n"
                 "hint: map them before they are used",
                 what, (long long)at_tiles_low(p->begin, p->count, p->step),
                 (long long)at_tiles_high(p->begin, p->count, p->step),
                 g->vars.ptr[p->var].name);
}

// ---- Setting
static int by_begin(const void *a, const void *b) {
  const at_tiles_interval *x = a, *y = b;
  return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
                              : (x->end > y->end) - (x->end < y->end);
}

// Intervals of variable `var` that v names in [begin, end), sorted and
// disjoint.
static at_status intervals_of(const at_tiles_run *r, size_t n, uint32_t tile,
                              at_tiles_mapping *out) {
  for (size_t i = 0; i < n; i++) {
    bool dense = r[i].step == 1 || r[i].step == -1 || r[i].step == 0;
    int64_t pieces = dense ? 1 : r[i].count;
    for (int64_t k = 0; k < pieces; k++) {
      int64_t lo = dense ? at_tiles_low(r[i].begin, r[i].count, r[i].step)
                         : r[i].begin + k * r[i].step;
      int64_t hi = r[i].step == 0 ? lo + 1 : dense ? lo + r[i].count : lo + 1;
      at_tiles_interval x = {lo, hi, tile};
      if (!at_tiles_push(out, x)) return AT_NO_MEMORY("mapping");
    }
  }
  if (out->len) qsort(out->ptr, out->len, sizeof *out->ptr, by_begin);
  size_t w = 0;
  for (size_t i = 0; i < out->len; i++) {
    if (w && out->ptr[i].begin <= out->ptr[w - 1].end)
      out->ptr[w - 1].end = AT_MAX(out->ptr[w - 1].end, out->ptr[i].end);
    else
      out->ptr[w++] = out->ptr[i];
  }
  out->len = w;
  return AT_OK;
}

// FAILED_PRECONDITION: elements that have a home are mapped elsewhere.
static at_status refuse(const at_tiles_var *v, int64_t begin, int64_t end,
                        uint32_t old, uint32_t tile) {
  return AT_FAIL(
      AT_FAILED_PRECONDITION,
      "tensor %s: elements [%lld, %lld) live on tile %u already and would be "
      "mapped to tile %u\n"
      "detail: a second mapping through a view keeps a copy on both tiles\n"
      "hint: map the op to where its operand is (at_tiles_mapping_get), or "
      "choose the policy "
      "duplicate or replace",
      v->name, (long long)begin, (long long)end, old, tile);
}

// One variable's homes with new intervals.
typedef struct merge {
  at_tiles_var *v;
  at_tiles_policy policy;
  at_tiles_mapping home,
      copies;  // homes as they will be; copies that come along
} merge;

// Elements that are on `old` and are mapped to `tile`: what becomes of them is
// the policy's. False: *st says why.
static bool merge_one(merge *m, int64_t begin, int64_t end, uint32_t old,
                      uint32_t tile, at_status *st) {
  at_tiles_interval keep = {begin, end, old};
  if (old != tile && m->policy == AT_TILES_REFUSE) {
    *st = refuse(m->v, begin, end, old, tile);
    return false;
  }
  if (m->policy == AT_TILES_REPLACE) keep.tile = tile;
  bool fine = append(&m->home, keep);
  if (old != tile && m->policy == AT_TILES_DUPLICATE) {
    at_tiles_interval copy = {begin, end, tile};
    fine = fine && at_tiles_push(&m->copies, copy);
  }
  if (!fine) *st = AT_NO_MEMORY("mapping");
  return fine;
}

// Old homes and new intervals, both sorted, side by side.
static at_status merge_all(merge *m, const at_tiles_mapping *add) {
  const at_tiles_mapping *old = &m->v->home;
  at_status st = AT_OK;
  size_t i = 0, j = 0;
  int64_t x = INT64_MIN;
  while (i < old->len || j < add->len) {
    const at_tiles_interval *a = i < old->len ? &old->ptr[i] : NULL;
    const at_tiles_interval *b = j < add->len ? &add->ptr[j] : NULL;
    if (a && a->end <= x) {
      i++;
      continue;
    }
    if (b && b->end <= x) {
      j++;
      continue;
    }
    int64_t ab = a ? AT_MAX(a->begin, x) : INT64_MAX,
            bb = b ? AT_MAX(b->begin, x) : INT64_MAX;
    int64_t begin = AT_MIN(ab, bb);
    bool ina = ab == begin, inb = bb == begin;
    int64_t end = AT_MIN(ina ? a->end : ab, inb ? b->end : bb);
    if (ina && inb) {
      if (!merge_one(m, begin, end, a->tile, b->tile, &st)) return st;
    } else {
      at_tiles_interval k = {begin, end, ina ? a->tile : b->tile};
      if (!append(&m->home, k)) return AT_NO_MEMORY("mapping");
    }
    AT_ASSERT(begin < end && x <= begin);  // homes stay sorted and disjoint
    x = end;
  }
  return st;
}

// A copy of what is on its tile already adds nothing.
static at_status add_copies(at_tiles_var *v, const at_tiles_mapping *add) {
  for (size_t i = 0; i < add->len; i++) {
    bool known = false;
    for (size_t k = 0; !known && k < v->copies.len; k++) {
      const at_tiles_interval *c = &v->copies.ptr[k];
      known = c->tile == add->ptr[i].tile && c->begin <= add->ptr[i].begin &&
              c->end >= add->ptr[i].end;
    }
    if (!known && !append(&v->copies, add->ptr[i]))
      return AT_NO_MEMORY("mapping");
  }
  return AT_OK;
}

// With `commit` false only says whether it can be done.
static at_status set_var(at_tiles_graph *g, uint32_t var,
                         const at_tiles_mapping *add, bool commit) {
  at_tiles_var *v = &g->vars.ptr[var];
  if (!add->len) return AT_OK;
  // In order, as most are: no merging.
  if (!v->home.len || v->home.ptr[v->home.len - 1].end <= add->ptr[0].begin) {
    for (size_t i = 0; commit && i < add->len; i++)
      if (!append(&v->home, add->ptr[i])) return AT_NO_MEMORY("mapping");
    return AT_OK;
  }
  merge m = {.v = v, .policy = g->policy};
  at_status st = merge_all(&m, add);
  if (at_ok(st) && commit) st = add_copies(v, &m.copies);
  if (at_ok(st) && commit) {
    at_tiles_mapping old = v->home;
    v->home = m.home;
    m.home = old;
  }
  at_tiles_mapping_free(&m.home);
  at_tiles_mapping_free(&m.copies);
  return st;
}

// Runs of one variable side by side.
static int by_var(const void *a, const void *b) {
  const at_tiles_run *x = a, *y = b;
  if (x->var != y->var) return x->var < y->var ? -1 : 1;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

// Positions [begin, end) of v on one tile. OUT_OF_RANGE: no such tile.
static at_status set_range(const at_tiles_view *v, int64_t begin, int64_t end,
                           uint32_t tile) {
  const at_tiles_graph *g = v->graph;
  if (tile >= (uint64_t)g->machine.tiles) {
    at_tiles_runs first = {0};
    const char *name = "of no elements";
    if (begin < end) {
      at_status looked = at_tiles_view_runs(v, begin, begin + 1, &first);
      if (at_ok(looked)) name = g->vars.ptr[first.ptr[0].var].name;
      at_status_free(looked);
    }
    at_status st = AT_FAIL(AT_OUT_OF_RANGE,
                           "tensor %s: tile %u of a machine of %lld tiles",
                           name, tile, (long long)g->machine.tiles);
    free(first.ptr);
    return st;
  }
  at_tiles_runs runs = {0};
  at_tiles_mapping m = {0};
  at_status st = at_tiles_view_runs(v, begin, end, &runs);
  if (at_ok(st) && runs.len > 1)
    qsort(runs.ptr, runs.len, sizeof *runs.ptr, by_var);
  // All or nothing: over several variables, a first round only looks.
  bool several = runs.len && runs.ptr[0].var != runs.ptr[runs.len - 1].var;
  for (int commit = !several; commit < 2; commit++)
    for (size_t i = 0; at_ok(st) && i < runs.len;) {
      size_t k = i + 1;
      while (k < runs.len && runs.ptr[k].var == runs.ptr[i].var) k++;
      m.len = 0;
      st = intervals_of(runs.ptr + i, k - i, tile, &m);
      if (at_ok(st)) st = set_var(v->graph, runs.ptr[i].var, &m, commit);
      AT_VERIFY(is_home(g, &g->vars.ptr[runs.ptr[i].var].home));
      i = k;
    }
  free(runs.ptr);
  free(m.ptr);
  return st;
}

at_status at_tiles_mapping_set(const at_tiles_view *v, uint32_t tile) {
  return set_range(v, 0, v->elements, tile);
}

// Intervals before the one that fails stay set.
at_status at_tiles_mapping_set_all(const at_tiles_view *v,
                                   const at_tiles_mapping *m) {
  for (size_t i = 0; i < m->len; i++) {
    const at_tiles_interval *x = &m->ptr[i];
    if (x->begin < 0 || x->end > v->elements || x->begin > x->end)
      return AT_FAIL(
          AT_OUT_OF_RANGE,
          "mapping: interval [%lld, %lld) of a view of %lld elements",
          (long long)x->begin, (long long)x->end, (long long)v->elements);
    if (x->tile == AT_TILES_NOWHERE) continue;
    AT_TRY(set_range(v, x->begin, x->end, x->tile));
  }
  return AT_OK;
}

// ---- Reading
// Positions of view i begin behind all of view i - 1.
at_status at_tiles_mapping_get_list(const at_tiles_view *const *v, uint32_t n,
                                    at_tiles_mapping *out) {
  at_tiles_mapping m = {0};
  at_tiles_parts parts = {0};
  at_status st = AT_OK;
  int64_t base = 0;
  for (uint32_t i = 0; at_ok(st) && i < n; i++) {
    parts.len = 0;
    st = at_tiles_locate(v[i], 0, v[i]->elements, &parts);
    for (size_t k = 0; at_ok(st) && k < parts.len; k++) {
      const at_tiles_part *p = &parts.ptr[k];
      at_tiles_interval x = {base + p->at, base + p->at + p->count, p->tile};
      if (!append(&m, x)) st = AT_NO_MEMORY("mapping");
    }
    base += v[i]->elements;
  }
  free(parts.ptr);
  if (!at_ok(st)) return at_tiles_mapping_free(&m), st;
  *out = m;
  return AT_OK;
}

at_status at_tiles_mapping_get(const at_tiles_view *v, at_tiles_mapping *out) {
  return at_tiles_mapping_get_list(&v, 1, out);
}

// Shares of whole grains, as even as they can be, on tiles 0, 1, ...
at_status at_tiles_mapping_linear(const at_tiles_view *v, int64_t grain,
                                  int64_t min_bytes) {
  const at_tiles_machine *m = &v->graph->machine;
  int64_t bytes = at_dtype_bytes(v->dtype);
  if (grain < 0 || min_bytes < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "linear mapping: grain %lld, minimum %lld bytes",
                   (long long)grain, (long long)min_bytes);
  if (!grain) grain = AT_MAX(m->vector_bytes / bytes, 1);
  if (!min_bytes) min_bytes = 128;
  int64_t grains = at_ceil_div(v->elements, grain);
  int64_t least = AT_MAX(at_ceil_div(at_ceil_div(min_bytes, bytes), grain), 1);
  int64_t tiles = AT_MIN(m->tiles, AT_MAX(grains / least, 1));
  for (int64_t i = 0; i < tiles; i++) {
    int64_t b = AT_MIN(i * grains / tiles * grain, v->elements);
    int64_t e = AT_MIN((i + 1) * grains / tiles * grain, v->elements);
    if (b < e) AT_TRY(set_range(v, b, e, (uint32_t)i));
  }
  return AT_OK;
}

// dst is mapped element by element as src is; their shapes may differ.
at_status at_tiles_mapping_copy(const at_tiles_view *src,
                                const at_tiles_view *dst) {
  if (src->elements != dst->elements)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "copy of a mapping: %lld elements to %lld",
                   (long long)src->elements, (long long)dst->elements);
  at_tiles_mapping m = {0};
  AT_TRY(at_tiles_mapping_get(src, &m));
  at_status st = at_tiles_mapping_set_all(dst, &m);
  at_tiles_mapping_free(&m);
  return st;
}

// Names the first range, in the view's order.
at_status at_tiles_mapping_check(const at_tiles_view *v) {
  at_tiles_parts parts = {0};
  at_status st = at_tiles_locate(v, 0, v->elements, &parts);
  for (size_t i = 0; at_ok(st) && i < parts.len; i++)
    if (parts.ptr[i].tile == AT_TILES_NOWHERE)
      st = at_tiles_unmapped(v->graph, &parts.ptr[i], "mapping");
  free(parts.ptr);
  return st;
}

// Homes and copies of all variables; what is mapped nowhere counts nowhere.
void at_tiles_mapping_bytes(const at_tiles_graph *g, int64_t *out) {
  memset(out, 0, (size_t)g->machine.tiles * sizeof *out);
  for (size_t i = 0; i < g->vars.len; i++) {
    const at_tiles_var *v = &g->vars.ptr[i];
    const at_tiles_mapping *both[] = {&v->home, &v->copies};
    for (size_t b = 0; b < AT_LEN(both); b++)
      for (size_t k = 0; k < both[b]->len; k++)
        out[both[b]->ptr[k].tile] +=
            (both[b]->ptr[k].end - both[b]->ptr[k].begin) *
            at_dtype_bytes(v->dtype);
  }
}
