// Where the elements of a view are: a walk over its boxes in row-major order.
#include <string.h>

#include "tiles/tiles_internal.h"

// Appends, joined with the last run where the two make one progression. Runs
// below `floor` stay as they are.
bool at_tiles_runs_push(at_tiles_runs *out, at_tiles_run r) {
  if (r.count == 1) r.step = 1;
  if (out->len > out->floor) {
    at_tiles_run *l = &out->ptr[out->len - 1];
    int64_t step = l->count > 1 ? l->step : r.begin - l->begin;
    bool joins = l->var == r.var &&
                 (step == 1 || (step == -1 && l->count > 1) ||
                  (l->count > 1 && r.count == 1)) &&
                 r.begin == l->begin + l->count * step &&
                 (r.count == 1 || r.step == step);
    if (joins) {
      l->step = step;
      l->count += r.count;
      return true;
    }
  }
  return at_tiles_push(out, r);
}

// One walk over a view of rank 2 and more. Lists are cut into one part for each
// dimension.
typedef struct walk {
  const at_tiles_view *v;
  int64_t begin, end;  // positions wanted
  at_tiles_runs *out;
  int64_t *inner;   // elements below one index of dimension d
  uint32_t *lists;  // (rank + 1) lists of active pieces
  int64_t *cuts;    // (rank + 1) lists of cuts
} walk;

static at_status walk_view(const at_tiles_view *v, int64_t begin, int64_t end,
                           at_tiles_runs *out);

// Elements start, start + step, ... of another view's row-major order.
static at_status walk_order(const at_tiles_view *of, int64_t start,
                            int64_t count, int64_t step, at_tiles_runs *out) {
  if (count == 1) step = 1;
  if (step == 1) return walk_view(of, start, start + count, out);
  // Backwards: forwards, and the new runs turned around. `floor` keeps them
  // from joining older ones.
  if (step == -1) {
    size_t first = out->len, floor = out->floor;
    out->floor = first;
    at_status st = walk_view(of, start - count + 1, start + 1, out);
    out->floor = floor;
    AT_TRY(st);
    for (size_t i = first, j = out->len; i < j; i++) {
      at_tiles_run *r = &out->ptr[i];
      r->begin += (r->count - 1) * r->step;
      if (r->count > 1) r->step = -r->step;
    }
    for (size_t i = first, j = out->len; i + 1 < j; i++) {
      at_tiles_run t = out->ptr[--j];
      out->ptr[j] = out->ptr[i];
      out->ptr[i] = t;
    }
    return AT_OK;
  }
  for (int64_t i = 0; i < count; i++)
    AT_TRY(walk_view(of, start + i * step, start + i * step + 1, out));
  return AT_OK;
}

// `count` elements from `start`, `step` apart, of what piece p names.
static at_status emit(walk *w, const at_tiles_piece *p, int64_t start,
                      int64_t count, int64_t step) {
  if (p->of) return walk_order(p->of, start, count, step, w->out);
  at_tiles_run r = {p->var, start, count, step};
  return at_tiles_runs_push(w->out, r) ? AT_OK : AT_NO_MEMORY("runs");
}

// Whether dimensions d.. of one piece, whole from d + 1 on, are one
// progression.
static bool flat_from(const at_tiles_view *v, const at_tiles_piece *p,
                      uint32_t d, int64_t *step) {
  int64_t expect = 0;
  bool any = false;
  *step = 1;
  for (uint32_t k = v->rank; k-- > d;) {
    if (v->dims[k] == 1) continue;
    if (any && p->stride[k] != expect) return false;
    if (!any) *step = p->stride[k];
    any = true;
    expect = p->stride[k] * v->dims[k];
  }
  return true;
}

static at_status walk_dim(walk *w, uint32_t d, int64_t base,
                          const uint32_t *active, uint32_t n, int64_t *index);

// Indices [from, to) of dimension d; one piece covers all of it.
static at_status walk_single(walk *w, uint32_t d, int64_t base, uint32_t which,
                             int64_t from, int64_t to, int64_t *index) {
  const at_tiles_piece *p = &w->v->pieces[which];
  int64_t inner = w->inner[d], step;
  if (flat_from(w->v, p, d, &step)) {
    int64_t b = AT_MAX(base + from * inner, w->begin),
            e = AT_MIN(base + to * inner, w->end);
    if (b >= e) return AT_OK;
    int64_t at = p->offset;
    for (uint32_t k = 0; k < d; k++) at += (index[k] - p->lo[k]) * p->stride[k];
    return emit(w, p, at + (b - base - p->lo[d] * inner) * step, e - b, step);
  }
  for (int64_t i = from; i < to; i++) {
    if (base + (i + 1) * inner <= w->begin) continue;
    if (base + i * inner >= w->end) break;
    index[d] = i;
    AT_TRY(walk_dim(w, d + 1, base + i * inner, &which, 1, index));
  }
  return AT_OK;
}

// For qsort: ascending.
static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// Cuts dimension d where any active piece begins or ends.
static at_status walk_cut(walk *w, uint32_t d, int64_t base,
                          const uint32_t *active, uint32_t n, int64_t lo,
                          int64_t hi, int64_t *index) {
  size_t cap = w->v->num_pieces;
  int64_t *cuts = w->cuts + 2 * (cap + 1) * d;
  uint32_t *list = w->lists + cap * (d + 1);
  size_t k = 0;
  cuts[k++] = lo;
  cuts[k++] = hi;
  for (uint32_t i = 0; i < n; i++) {
    const at_tiles_piece *p = &w->v->pieces[active[i]];
    int64_t a = p->lo[d], b = a + p->size[d];
    if (a > lo && a < hi) cuts[k++] = a;
    if (b > lo && b < hi) cuts[k++] = b;
  }
  qsort(cuts, k, sizeof *cuts, by_value);
  for (size_t c = 0; c + 1 < k; c++) {
    if (cuts[c] == cuts[c + 1]) continue;
    uint32_t m = 0;
    for (uint32_t i = 0; i < n; i++) {
      const at_tiles_piece *p = &w->v->pieces[active[i]];
      if (p->lo[d] <= cuts[c] && cuts[c] < p->lo[d] + p->size[d])
        list[m++] = active[i];
    }
    AT_ENSURE(m == 1 || (m > 1 && d + 1 < w->v->rank));
    if (m == 1) {
      AT_TRY(walk_single(w, d, base, list[0], cuts[c], cuts[c + 1], index));
      continue;
    }
    for (int64_t i = cuts[c]; i < cuts[c + 1]; i++) {
      index[d] = i;
      AT_TRY(walk_dim(w, d + 1, base + i * w->inner[d], list, m, index));
    }
  }
  return AT_OK;
}

// Indices of dimension d that the wanted positions touch; base: position of its
// index 0. `active`: the n pieces that cover the indices above.
static at_status walk_dim(walk *w, uint32_t d, int64_t base,
                          const uint32_t *active, uint32_t n, int64_t *index) {
  int64_t inner = w->inner[d];
  int64_t lo = AT_MAX((w->begin - base) / inner, 0);
  int64_t hi = AT_MIN((w->end - base + inner - 1) / inner, w->v->dims[d]);
  if (w->begin <= base) lo = 0;
  if (lo >= hi) return AT_OK;
  if (n == 1) return walk_single(w, d, base, active[0], lo, hi, index);
  return walk_cut(w, d, base, active, n, lo, hi, index);
}

// Rank 1 has sorted pieces: find the first by bisection.
static at_status walk_flat(const at_tiles_view *v, int64_t begin, int64_t end,
                           at_tiles_runs *out) {
  walk w = {.v = v, .out = out};
  uint32_t lo = 0, hi = v->num_pieces;
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (v->pieces[mid].lo[0] + v->pieces[mid].size[0] <= begin)
      lo = mid + 1;
    else
      hi = mid;
  }
  for (uint32_t i = lo; i < v->num_pieces && v->pieces[i].lo[0] < end; i++) {
    const at_tiles_piece *p = &v->pieces[i];
    int64_t b = AT_MAX(begin, p->lo[0]), e = AT_MIN(end, p->lo[0] + p->size[0]);
    AT_TRY(emit(&w, p, p->offset + (b - p->lo[0]) * p->stride[0], e - b,
                p->stride[0]));
  }
  return AT_OK;
}

// Positions [begin, end) of v. Recursion is as deep as views stand on views.
static at_status walk_view(const at_tiles_view *v, int64_t begin, int64_t end,
                           at_tiles_runs *out) {
  if (begin >= end) return AT_OK;
  if (v->rank == 1) return walk_flat(v, begin, end, out);
  walk w = {.v = v, .begin = begin, .end = end, .out = out};
  if (!v->rank) return emit(&w, &v->pieces[0], v->pieces[0].offset, 1, 1);
  int64_t inner[64], index[64];
  if (v->rank > 64)
    return AT_FAIL(AT_UNIMPLEMENTED, "a view of rank %u", v->rank);
  w.inner = inner;
  inner[v->rank - 1] = 1;
  for (uint32_t d = v->rank - 1; d-- > 0;)
    inner[d] = inner[d + 1] * v->dims[d + 1];
  if (v->num_pieces == 1) {
    uint32_t only = 0;
    return walk_dim(&w, 0, 0, &only, 1, index);
  }
  size_t n = v->num_pieces;
  w.lists = malloc(at_mul(n * (v->rank + 1), sizeof *w.lists));
  w.cuts = malloc(at_mul(2 * (n + 1) * v->rank, sizeof *w.cuts));
  at_status st = AT_OK;
  if (!w.lists || !w.cuts) {
    st = AT_NO_MEMORY("runs");
  } else {
    for (uint32_t i = 0; i < n; i++) w.lists[i] = i;
    st = walk_dim(&w, 0, 0, w.lists, (uint32_t)n, index);
  }
  free(w.lists);
  free(w.cuts);
  return st;
}

// *out keeps what it held; new runs may join its last one.
at_status at_tiles_view_runs(const at_tiles_view *v, int64_t begin, int64_t end,
                             at_tiles_runs *out) {
  if (begin < 0 || end > v->elements || begin > end)
    return AT_FAIL(AT_OUT_OF_RANGE, "elements [%lld, %lld) of a view of %lld",
                   (long long)begin, (long long)end, (long long)v->elements);
  return walk_view(v, begin, end, out);
}

// One piece for each run.
at_status at_tiles_view_of_runs(at_tiles_graph *g, at_dtype t,
                                const at_tiles_run *r, size_t n,
                                const at_tiles_view **out) {
  int64_t elements = 0;
  for (size_t i = 0; i < n; i++) elements += r[i].count;
  if (n > UINT32_MAX / 4) return AT_NO_MEMORY("view");
  at_tiles_view *v;
  AT_TRY(at_tiles_view_new(g, t, (at_dims){&elements, 1}, (uint32_t)n, &v));
  int64_t at = 0;
  for (size_t i = 0; i < n; i++) {
    at_tiles_piece *p = &v->pieces[v->num_pieces++];
    p->var = r[i].var;
    p->offset = r[i].begin;
    p->lo[0] = at;
    p->size[0] = r[i].count;
    p->stride[0] = r[i].step;
    at += r[i].count;
  }
  *out = v;
  return AT_OK;
}
