// Interpolators over points of a grid. Three of them imitate XLA's code to the
// last bit of its rounding (interpolator.h); log-log is ours.
#include <math.h>
#include <stdlib.h>

#include "cost/cost.h"

// By place, the first dimension first.
static int compare_places(const void *x, const void *y) {
  const at_point *a = (const at_point *)x, *b = (const at_point *)y;
  for (int d = 0; d < AT_POINT_DIMS; d++)
    if (a->at[d] != b->at[d]) return a->at[d] < b->at[d] ? -1 : 1;
  return 0;
}

// Equal places in the order of the file.
static int compare_points(const void *x, const void *y) {
  const at_point *a = (const at_point *)x, *b = (const at_point *)y;
  int c = compare_places(a, b);
  return c ? c : a->order < b->order ? -1 : a->order > b->order;
}

void at_points_sort(at_point *list, size_t *count, uint32_t dims,
                    at_points *out) {
  AT_ASSERT(dims > 0 && dims <= AT_POINT_DIMS);
  size_t n = *count, kept = 0;
  for (size_t i = 0; i < n; i++) list[i].order = (uint32_t)i;
  qsort(list, n, sizeof *list, compare_points);
  for (size_t i = 0; i < n; i++) {
    // A map that is written twice keeps the last value.
    if (kept && compare_places(&list[i], &list[kept - 1]) == 0) kept--;
    list[kept++] = list[i];
  }
  for (size_t i = 1; i < kept; i++)
    AT_ASSERT(compare_places(&list[i - 1], &list[i]) < 0);
  *count = kept;
  *out = (at_points){.list = list, .count = kept, .dims = dims};
  for (uint32_t d = 0; d < dims; d++) {
    out->least[d] = INT64_MAX, out->most[d] = INT64_MIN;
    for (size_t i = 0; i < kept; i++) {
      out->least[d] = AT_MIN(out->least[d], list[i].at[d]);
      out->most[d] = AT_MAX(out->most[d], list[i].at[d]);
    }
  }
}

static int64_t clamp(const at_points *p, uint32_t d, int64_t v) {
  return v < p->least[d] ? p->least[d] : v > p->most[d] ? p->most[d] : v;
}

// XLA passes the stored place through an int before it subtracts. Sums wrap
// instead of overflowing; places of real tables are far from that.
static int64_t distance2(const int64_t *stored, const int64_t *query,
                         uint32_t dims) {
  uint64_t sum = 0;
  for (uint32_t d = 0; d < dims; d++) {
    uint64_t diff = (uint64_t)(int64_t)(int32_t)stored[d] - (uint64_t)query[d];
    sum += diff * diff;
  }
  return (int64_t)sum;
}

double at_points_nearest(const at_points *p, const int64_t *query) {
  AT_ASSERT(p->count > 0);
  uint64_t best = UINT64_MAX;
  double value = p->list[0].value;
  for (size_t i = 0; i < p->count; i++) {
    uint64_t d = (uint64_t)distance2(p->list[i].at, query, p->dims);
    if (d < best) best = d, value = p->list[i].value;
  }
  return value;
}

// First point of [from, to) whose place along `d` is at least v. Places along
// `d` rise there: the dimensions before it are the same.
static size_t lower_bound(const at_points *p, size_t from, size_t to,
                          uint32_t d, int64_t v) {
  const size_t begin = from, end = to;
  while (from < to) {
    size_t mid = from + (to - from) / 2;
    if (p->list[mid].at[d] < v)
      from = mid + 1;
    else
      to = mid;
  }
  AT_ASSERT(from == end || p->list[from].at[d] >= v);
  AT_ASSERT(from == begin || p->list[from - 1].at[d] < v);
  return from;
}

// Narrows [from, to) dimension by dimension to the points that share the
// snapped places.
double at_points_complement(const at_points *p, const int64_t *query) {
  size_t from = 0, to = p->count;
  AT_ASSERT(to > 0);
  for (uint32_t d = 0; d < p->dims; d++) {
    int64_t q = clamp(p, d, query[d]);
    size_t next = lower_bound(p, from, to, d, q);
    int64_t snapped;
    if (next == to)
      snapped = p->list[to - 1].at[d];
    else if (next == from)
      snapped = p->list[from].at[d];
    else {
      int64_t below = p->list[next - 1].at[d], above = p->list[next].at[d];
      snapped = q - below < above - q ? below : above;
    }
    from = lower_bound(p, from, to, d, snapped);
    to = snapped == INT64_MAX ? to : lower_bound(p, from, to, d, snapped + 1);
  }
  AT_ASSERT(from < to);  // snapped is a place that is there
  return p->list[from].value;
}

// 0 and everything below stay; exact powers stay.
static int64_t power_above(int64_t n) {
  if (n <= 1) return 1;
  if (n > INT64_MAX / 2 + 1) return INT64_MAX;
  int64_t p = (int64_t)1 << (64 - __builtin_clzll((uint64_t)n - 1));
  AT_ASSERT(p / 2 < n && n <= p);
  return p;
}
static int64_t power_below(int64_t n) {
  if (n <= 1) return 1;
  int64_t p = (int64_t)1 << (63 - __builtin_clzll((uint64_t)n));
  AT_ASSERT(p <= n && n - p < p);
  return p;
}

// The point at that very place, or NULL.
static const at_point *find(const at_points *p, const int64_t *place) {
  size_t from = 0, to = p->count;
  for (uint32_t d = 0; d < p->dims && from < to; d++) {
    from = lower_bound(p, from, to, d, place[d]);
    size_t end = from;
    if (from < to && p->list[from].at[d] == place[d])
      end = d + 1 == p->dims || place[d] == INT64_MAX
                ? (d + 1 == p->dims ? from + 1 : to)
                : lower_bound(p, from, to, d, place[d] + 1);
    to = end;
  }
  const at_point *found = from < to ? &p->list[from] : NULL;
  for (uint32_t d = 0; found && d < p->dims; d++)
    AT_ASSERT(found->at[d] == place[d]);
  return found;
}

// The stored places around v along `d`, wherever they are: v's own when it is
// stored.
static void stored_around(const at_points *p, uint32_t d, int64_t v,
                          int64_t *low, int64_t *high) {
  *low = p->least[d], *high = p->most[d];
  bool below = false, above = false;
  for (size_t i = 0; i < p->count; i++) {
    int64_t at = p->list[i].at[d];
    if (at <= v && (!below || at > *low)) *low = at, below = true;
    if (at >= v && (!above || at < *high)) *high = at, above = true;
  }
  if (!below) *low = *high;
  if (!above) *high = *low;
}

// False: a corner is a hole of the grid.
static bool weigh_corners(const at_points *p, const int64_t *query,
                          const int64_t *low, const int64_t *high, bool holes,
                          double *out) {
  double sum = 0, weights = 0, least = INFINITY, most = -INFINITY;
  bool wrapped = false;
  uint32_t open = 0;  // dimensions whose two neighbours differ
  for (uint32_t d = 0; d < p->dims; d++)
    if (low[d] != high[d]) open |= 1u << d;
  for (uint32_t corner = 0; corner < 1u << p->dims; corner++) {
    // Where the two neighbours are one, XLA counts the corner twice: the
    // average does not change, so once is enough.
    if (corner & ~open) continue;
    int64_t place[AT_POINT_DIMS] = {0};
    for (uint32_t d = 0; d < p->dims; d++)
      place[d] = corner >> d & 1 ? high[d] : low[d];
    const at_point *at = find(p, place);
    if (!at && !holes) return false;
    if (!at) continue;
    float weight = 1.0f / ((float)distance2(place, query, p->dims) + 1.0f);
    wrapped |= !(weight > 0);
    sum += at->value * (double)weight;
    weights += (double)weight;
    least = fmin(least, at->value), most = fmax(most, at->value);
  }
  *out = sum / weights;
  // A mean is between what it is of, but for the rounding of its terms; not
  // where distances have wrapped.
  double slack = 1e-9 * (fabs(least) + fabs(most));
  AT_ASSERT(wrapped || !(weights > 0) || isinf(most) || isnan(sum) ||
            (*out >= least - slack && *out <= most + slack));
  return weights > 0;
}

// Corners at powers of two; where one is a hole, the stored neighbours; where
// those are holes, too, the nearest.
double at_points_weighted(const at_points *p, const int64_t *query) {
  int64_t low[AT_POINT_DIMS], high[AT_POINT_DIMS];
  double value;
  for (uint32_t d = 0; d < p->dims; d++) {
    low[d] = clamp(p, d, power_below(query[d]));
    high[d] = clamp(p, d, power_above(query[d]));
  }
  if (weigh_corners(p, query, low, high, false, &value)) return value;
  // Not a grid of powers of two, where XLA gives up: the stored neighbours.
  for (uint32_t d = 0; d < p->dims; d++)
    stored_around(p, d, clamp(p, d, query[d]), &low[d], &high[d]);
  if (weigh_corners(p, query, low, high, true, &value)) return value;
  return at_points_complement(p, query);
}

// ---- log-log
typedef struct loglog {
  const at_points *p;
  int64_t query[AT_POINT_DIMS];
  // The last fraction computed along each dimension: the corners of a full grid
  // share it.
  struct {
    int64_t low, high;
    double fraction;
  } last[AT_POINT_DIMS];
} loglog;

// How far the query lies between two places along d, in logs.
static double fraction_of(loglog *l, uint32_t d, int64_t low, int64_t high) {
  if (l->last[d].low != low || l->last[d].high != high) {
    double a = log((double)AT_MAX(low, 1)), b = log((double)AT_MAX(high, 1));
    double q = log((double)AT_MAX(l->query[d], 1));
    l->last[d].low = low, l->last[d].high = high;
    l->last[d].fraction = b > a ? (q - a) / (b - a) : 0;
  }
  AT_ASSERT(l->last[d].fraction >= 0 && l->last[d].fraction <= 1);
  return l->last[d].fraction;
}

// Log of the value at the query, from the points [from, to), which share their
// first d dimensions. At most AT_POINT_DIMS deep.
static double log_value(loglog *l, size_t from, size_t to, uint32_t d) {
  const at_points *p = l->p;
  if (d == p->dims) return log(p->list[from].value);
  int64_t q = l->query[d];
  size_t next = lower_bound(p, from, to, d, q);
  // Past this prefix's own edge: its nearest place.
  if (next == to) next = lower_bound(p, from, to, d, p->list[to - 1].at[d]);
  int64_t high = p->list[next].at[d];
  size_t end =
      d + 1 == p->dims ? next + 1 : lower_bound(p, next, to, d, high + 1);
  double above = log_value(l, next, end, d + 1);
  if (high <= q || next == from) return above;
  int64_t low = p->list[next - 1].at[d];
  size_t begin = lower_bound(p, from, next, d, low);
  double below = log_value(l, begin, next, d + 1);
  double f = fraction_of(l, d, low, high);
  return below + (above - below) * f;
}

double at_points_loglog(const at_points *p, const int64_t *query) {
  loglog l = {.p = p};
  for (uint32_t d = 0; d < p->dims; d++) {
    l.query[d] = clamp(p, d, query[d]);
    l.last[d].low = -1;
  }
  return exp(log_value(&l, 0, p->count, 0));
}
