// Performance tables ready for lookups: series by key, planes over (bytes,
// devices), and in atoll mode smoothed curves.
//
// The keys follow XLA: a series answers a collective of the same groups (of the
// same element type where values are added up), a plane one of the same type
// and transfer scheme, permutes by how their pairs meet.
#include <math.h>

#include "cost/cost_internal.h"

// A series with its points ready for lookups.
typedef struct prepared {
  const at_perf_series *key;
  at_scheme scheme;
  at_permute_kind permute;
  at_points points;
  at_curve curve;  // atoll mode, collectives
} prepared;

// All series of one collective and scheme, over bytes and devices.
typedef struct plane {
  at_collective_op op;
  at_scheme scheme;
  at_points points;  // (bytes, devices)
} plane;

struct at_perf {
  at_interp mode;
  bool user;
  uint32_t domain;
  prepared *series;
  size_t num_series;
  plane *planes;
  size_t num_planes;
  at_points bytes_gemm;  // GEMMs of types without a series, over bytes
  bool has_gemm;
};

// XLA clamps to these whatever its table holds.
enum {
  kLeastBytes = 1 << 10,
  kMostBytes = 1 << 30,
  kLeastDevices = 2,
  kMostDevices = 8
};

// Collectives whose rate depends on the element type.
static bool adds_up(at_collective_op op) {
  return op == AT_ALL_REDUCE || op == AT_REDUCE_SCATTER;
}

// Does series a answer the key?
static bool same_series(const at_perf *p, const prepared *a,
                        const at_collective *key, at_permute_kind permute) {
  if (a->key->is_gemm || a->key->key.op != key->op) return false;
  if (key->op == AT_PERMUTE) return a->permute == permute;
  bool types = p->mode == AT_INTERP_XLA && (p->user || adds_up(key->op));
  if (types && a->key->key.dtype != key->dtype) return false;
  const at_groups *g = &a->key->key.groups, *k = &key->groups;
  // XLA reads a list of groups as if it were [groups, devices] in order.
  return g->count == k->count && g->size == k->size &&
         (!g->ids || at_groups_eq(g, k));
}

// The measured points of s; *n: how many.
static at_status copy_points(const at_perf_series *s, at_arena *a,
                             at_point **out, size_t *n) {
  AT_TRY_ALLOC(*out, at_new(a, at_point, s->count + 1));
  *n = 0;
  for (size_t i = 0; i < s->count; i++)
    if (s->points[i].value > 0) (*out)[(*n)++] = s->points[i];
  return AT_OK;
}

static void xla_limits(at_points *p) {
  p->least[0] = kLeastBytes, p->most[0] = kMostBytes;
  if (p->dims == 2) p->least[1] = kLeastDevices, p->most[1] = kMostDevices;
}

// Sorts the points, except for a user's table in xla mode, and sets the limits
// of queries.
static void index_points(at_perf *p, at_point *list, size_t n, uint32_t dims,
                         at_points *out) {
  if (p->mode == AT_INTERP_XLA &&
      p->user)  // in the file's order: the first of equals wins
    *out = (at_points){.list = list, .count = n, .dims = dims};
  else
    at_points_sort(list, &n, dims, out);
  if (p->mode == AT_INTERP_XLA && !p->user && dims < 3) xla_limits(out);
}

// ---- GEMM
// No product is slower than a larger one: the lower envelope of times over the
// grid. `list` is sorted; quadratic in the points of one type, once per table.
static void envelope(at_point *list, size_t n) {
  for (size_t i = 0; i < n; i++) {
    double flops = 2, least = INFINITY;
    for (int d = 0; d < AT_POINT_DIMS; d++) flops *= (double)list[i].at[d];
    for (size_t j = i; j < n; j++) {
      double f = 2;
      bool above = true;
      for (int d = 0; d < AT_POINT_DIMS; d++) {
        above &= list[j].at[d] >= list[i].at[d];
        f *= (double)list[j].at[d];
      }
      if (above) least = fmin(least, f / list[j].value);
    }
    AT_ASSERT(!(flops / least < list[i].value * (1 - 1e-9)));
    list[i].value = flops / least;
  }
}

// One series of products; in atoll mode with its envelope, unless it is very
// long.
static at_status prepare_gemm(at_perf *p, at_arena *a, const at_perf_series *s,
                              prepared *out) {
  at_point *list;
  size_t n;
  AT_TRY(copy_points(s, a, &list, &n));
  if (!n) return AT_OK;
  index_points(p, list, n, 4, &out->points);
  enum { kEnvelopeMost = 4096 };
  if (p->mode == AT_INTERP_ATOLL && out->points.count <= kEnvelopeMost)
    envelope(list, out->points.count);
  p->has_gemm = true;
  return AT_OK;
}

// Sizes in bytes of the result's type, so that one table serves other types: of
// the bf16 series, or of every series when the table is the user's.
static at_status prepare_bytes_gemm(at_perf *p, const at_perf_table *t,
                                    at_arena *a) {
  AT_VEC(at_point) all = {0};
  for (size_t i = 0; i < t->count; i++) {
    const at_perf_series *s = &t->series[i];
    bool bf16 = s->lhs == AT_BF16 && s->rhs == AT_BF16 && s->out == AT_BF16;
    if (!s->is_gemm || !(p->user || bf16)) continue;
    int64_t per = at_dtype_bytes(s->out);
    for (size_t j = 0; j < s->count; j++) {
      at_point q = s->points[j];
      bool fits = q.value > 0;
      for (int d = 1; d < 4; d++)
        fits &= !__builtin_mul_overflow(q.at[d], per, &q.at[d]);
      // XLA counts the FLOPs of a user's table over bytes as well.
      if (p->user) q.value *= (double)(per * per * per);
      if (fits && !at_vec_push(a, &all, q)) return AT_NO_MEMORY("GEMM points");
    }
  }
  if (!all.len) return AT_OK;
  index_points(p, all.ptr, all.len, 4, &p->bytes_gemm);
  return AT_OK;
}

static double gemm_flops(const int64_t *place) {
  return 2.0 * (double)place[0] * (double)place[1] * (double)place[2] *
         (double)place[3];
}

// FLOP per second at a place, as the mode finds it.
static double gemm_rate(const at_perf *p, const at_points *points,
                        const int64_t *place) {
  if (p->mode == AT_INTERP_XLA && p->user)
    return at_points_nearest(points, place);
  return p->mode == AT_INTERP_ATOLL ? at_points_loglog(points, place)
                                    : at_points_weighted(points, place);
}

// Products under the table's edge keep at least the time of its smallest one.
static double small_gemm(const at_points *points, const int64_t *place,
                         double rate) {
  int64_t at[4];
  double shrink = 1;
  for (int d = 0; d < 4; d++) {
    at[d] = AT_MAX(place[d], points->least[d]);
    shrink *= (double)place[d] / (double)at[d];
  }
  double least =
      gemm_flops(points->least) / at_points_loglog(points, points->least);
  return fmax(fmin(least, gemm_flops(at) / rate),
              gemm_flops(at) / rate * shrink);
}

// Atoll mode, a type that was not measured: the series whose operands and
// result are nearest in width, slower or faster by the ratio of the widths.
static const prepared *nearest_types(const at_perf *p, const at_gemm *g,
                                     double *scale) {
  const prepared *best = NULL;
  double least = INFINITY;
  double mine = at_dtype_bytes(g->lhs) + at_dtype_bytes(g->rhs);
  for (size_t i = 0; i < p->num_series; i++) {
    const at_perf_series *s = p->series[i].key;
    if (!s->is_gemm || !p->series[i].points.count) continue;
    double theirs = at_dtype_bytes(s->lhs) + at_dtype_bytes(s->rhs);
    double apart =
        fabs(log2(mine / theirs)) +
        0.1 *
            fabs(log2((double)at_dtype_bytes(g->out) / at_dtype_bytes(s->out)));
    if (apart < least)
      least = apart, best = &p->series[i], *scale = mine / theirs;
  }
  return best;
}

// The series of exactly these types, or NULL.
static const prepared *gemm_series(const at_perf *p, const at_gemm *g) {
  for (size_t i = 0; i < p->num_series; i++) {
    const at_perf_series *s = p->series[i].key;
    if (s->is_gemm && p->series[i].points.count && s->lhs == g->lhs &&
        s->rhs == g->rhs && s->out == g->out)
      return &p->series[i];
  }
  return NULL;
}

// The series of these types; else, in atoll mode, the nearest types; else the
// plane over bytes.
at_status at_perf_gemm(const at_perf *p, const at_gemm *g, at_cost_time *out) {
  int64_t place[4] = {g->b, g->m, g->k, g->n};
  for (int d = 0; d < 4; d++) {
    if (place[d] < 0)
      return AT_FAIL(AT_INVALID_ARGUMENT, "GEMM: a size is negative");
    if (place[d]) continue;
    *out = (at_cost_time){0, AT_COST_FREE};
    return AT_OK;
  }
  if (!at_dtype_bytes(g->lhs) || !at_dtype_bytes(g->rhs) ||
      !at_dtype_bytes(g->out))
    return AT_FAIL(AT_INVALID_ARGUMENT, "GEMM: a type without elements");
  if (!p->has_gemm)
    return AT_FAIL(AT_NOT_FOUND, "the table has no matrix products");
  bool xla_user = p->mode == AT_INTERP_XLA && p->user;
  const prepared *s = xla_user ? NULL : gemm_series(p, g);
  double scale = 1;
  if (!s && p->mode == AT_INTERP_ATOLL) s = nearest_types(p, g, &scale);
  if (s) {
    double rate = gemm_rate(p, &s->points, place);
    double seconds = p->mode == AT_INTERP_ATOLL
                         ? small_gemm(&s->points, place, rate) * scale
                         : gemm_flops(place) / rate;
    *out = (at_cost_time){seconds, scale == 1 && s == gemm_series(p, g)
                                       ? AT_COST_FROM_TABLE
                                       : AT_COST_FROM_FALLBACK};
    return AT_OK;
  }
  if (!p->bytes_gemm.count)
    return AT_FAIL(AT_NOT_FOUND, "the table has no bf16 products");
  int64_t per = at_dtype_bytes(g->out);
  for (int d = 1; d < 4; d++)
    if (__builtin_mul_overflow(place[d], per, &place[d])) place[d] = INT64_MAX;
  *out = (at_cost_time){gemm_flops(place) / gemm_rate(p, &p->bytes_gemm, place),
                        xla_user ? AT_COST_FROM_TABLE : AT_COST_FROM_FALLBACK};
  return AT_OK;
}

// ---- Collectives
// A series for each key; series with one key are joined.
static at_status prepare_collectives(at_perf *p, const at_perf_table *t,
                                     at_arena *a) {
  for (size_t i = 0; i < t->count; i++) {
    const at_perf_series *s = &t->series[i];
    if (s->is_gemm || s->key.op == AT_BROADCAST) continue;
    at_permute_kind kind = AT_PERMUTE_ONE_WAY;
    if (s->key.op == AT_PERMUTE) kind = at_collective_permute_kind(&s->key);
    // Series that XLA gives one key are one; the last measurement of a size
    // stays.
    prepared *mine = NULL;
    for (size_t k = 0; k < p->num_series && !mine; k++)
      if (same_series(p, &p->series[k], &s->key, kind) &&
          (s->key.op == AT_PERMUTE ||
           at_groups_eq(&p->series[k].key->key.groups, &s->key.groups)))
        mine = &p->series[k];
    size_t before = mine ? mine->points.count : 0, n = before;
    at_point *list;
    AT_TRY_ALLOC(list, at_new(a, at_point, before + s->count + 1));
    for (size_t k = 0; k < before; k++) list[k] = mine->points.list[k];
    for (size_t k = 0; k < s->count; k++)
      if (s->points[k].value > 0) list[n++] = s->points[k];
    if (!n) continue;
    if (!mine) mine = &p->series[p->num_series++];
    if (!before)
      *mine = (prepared){.key = s,
                         .scheme = at_collective_scheme(&s->key, p->domain),
                         .permute = kind};
    index_points(p, list, n, 1, &mine->points);
  }
  return AT_OK;
}

static plane *plane_of(at_perf *p, at_collective_op op, at_scheme scheme) {
  for (size_t i = 0; i < p->num_planes; i++)
    if (p->planes[i].op == op && p->planes[i].scheme == scheme)
      return &p->planes[i];
  return NULL;
}

// Planes for every collective but permutes, in every scheme.
static at_status prepare_planes(at_perf *p, const at_perf_table *t,
                                at_arena *a) {
  AT_TRY_ALLOC(p->planes, at_new(a, plane, AT_COLLECTIVE_COUNT * 3));
  size_t total = 0;
  for (size_t i = 0; i < t->count; i++)
    total = at_add(total, t->series[i].count);
  at_scheme *schemes;  // of long lists of devices they take a while to tell
  AT_TRY_ALLOC(schemes, at_new(a, at_scheme, t->count + 1));
  for (size_t i = 0; i < t->count; i++)
    if (!t->series[i].is_gemm)
      schemes[i] = at_collective_scheme(&t->series[i].key, p->domain);
  for (int key = 0; key < AT_PERMUTE * 3; key++) {
    at_collective_op op = (at_collective_op)(key / 3);
    at_scheme scheme = (at_scheme)(key % 3);
    at_point *list = NULL;
    size_t n = 0;
    for (size_t i = 0; i < t->count; i++) {
      const at_perf_series *s = &t->series[i];
      if (s->is_gemm || s->key.op != op || schemes[i] != scheme) continue;
      if (!list) AT_TRY_ALLOC(list, at_new(a, at_point, total + 1));
      for (size_t k = 0; k < s->count; k++)
        if (s->points[k].value > 0)
          list[n] = s->points[k], list[n++].at[1] = s->key.groups.size;
    }
    if (!n) continue;
    plane *q = &p->planes[p->num_planes++];
    q->op = op, q->scheme = scheme;
    index_points(p, list, n, 2, &q->points);
  }
  return AT_OK;
}

// Bytes a second on the links at the largest size.
static double rate_on_links(const prepared *s) {
  double passes = s->key->key.op == AT_ALL_REDUCE ? 2 : 1;
  return s->points.list[s->points.count - 1].value * passes;
}

// Doublings by which another collective of the same groups is faster at the
// same largest size.
static double room_of(const at_perf *p, const prepared *s) {
  double best = 0, mine = rate_on_links(s);
  const at_perf_series *key = s->key;
  int64_t size = s->points.list[s->points.count - 1].at[0];
  for (size_t i = 0; i < p->num_series && key->key.op != AT_PERMUTE; i++) {
    const prepared *other = &p->series[i];
    if (other->key->key.op != AT_PERMUTE &&
        at_groups_eq(&other->key->key.groups, &key->key.groups) &&
        other->points.list[other->points.count - 1].at[0] == size)
      best = fmax(best, rate_on_links(other));
  }
  return best > mine ? log2(best / mine) : 0;
}

// The smoothed curve of s, with the other series of its collective.
static at_status make_curve(at_perf *p, prepared *s, at_arena *a) {
  const at_points **siblings;
  at_point *points;
  size_t n = 0;
  AT_TRY_ALLOC(siblings, at_new(a, const at_points *, p->num_series + 1));
  at_collective_op op = s->key->key.op;
  for (size_t i = 0; i < p->num_series && op != AT_PERMUTE; i++) {
    const prepared *other = &p->series[i];
    if (other != s && other->key->key.op == op) siblings[n++] = &other->points;
  }
  AT_TRY(at_curve_with_siblings(&s->points, siblings, n, a, &points));
  AT_TRY(at_curve_make(points, s->points.count, a, &s->curve));
  s->curve.room = room_of(p, s);
  return AT_OK;
}

at_status at_perf_prepare(const at_perf_table *t, at_interp mode, bool user,
                          at_arena *a, at_perf **out) {
  at_perf *p;
  AT_TRY_ALLOC(p, at_new(a, at_perf, 1));
  *p = (at_perf){
      .mode = mode, .user = user, .domain = t->domain ? t->domain : 8};
  AT_TRY_ALLOC(p->series, at_new(a, prepared, t->count + 1));
  AT_TRY(prepare_collectives(p, t, a));
  for (size_t i = 0; i < p->num_series && mode == AT_INTERP_ATOLL; i++)
    AT_TRY(make_curve(p, &p->series[i], a));
  AT_TRY(prepare_planes(p, t, a));
  for (size_t i = 0; i < t->count; i++) {
    if (!t->series[i].is_gemm) continue;
    prepared *g = &p->series[p->num_series++];
    *g = (prepared){.key = &t->series[i]};
    AT_TRY(prepare_gemm(p, a, &t->series[i], g));
  }
  AT_TRY(prepare_bytes_gemm(p, t, a));
  *out = p;
  return AT_OK;
}

// Bytes per second at a place, as seed or xla find it.
static double rate_at(const at_perf *p, const at_points *points,
                      const int64_t *place) {
  if (p->mode == AT_INTERP_SEED) return at_points_weighted(points, place);
  return p->user ? at_points_nearest(points, place)
                 : at_points_complement(points, place);
}

// What a ring of n devices moves per byte, over a ring of m.
static double ring_ratio(double n, double m) {
  return (n - 1) / n * m / (m - 1);
}

// Atoll mode: between the measured numbers of devices, in logs; past them, as
// rings do.
static at_status over_devices(const at_perf *p, const at_collective *c,
                              at_scheme scheme, at_cost_time *out) {
  const prepared *low = NULL, *high = NULL;
  uint32_t n = c->groups.size;
  for (size_t i = 0; i < p->num_series; i++) {
    const prepared *s = &p->series[i];
    if (s->key->is_gemm || s->key->key.op != c->op || s->scheme != scheme ||
        !s->curve.count)
      continue;
    uint32_t size = s->key->key.groups.size;
    if (size <= n && (!low || size > low->key->key.groups.size)) low = s;
    if (size >= n && (!high || size < high->key->key.groups.size)) high = s;
  }
  if (!low && !high)
    return AT_FAIL(AT_NOT_FOUND, "the table has no %s of this kind",
                   at_collective_text(c->op));
  if (low && low->key->key.groups.size == n) high = low;
  const prepared *one = low ? low : high;
  double seconds = at_curve_seconds(&one->curve, (double)c->bytes);
  double m = one->key->key.groups.size;
  if (low && high && low != high) {
    double more = at_curve_seconds(&high->curve, (double)c->bytes);
    double f = log(n / m) / log(high->key->key.groups.size / m);
    seconds = exp(log(seconds) * (1 - f) + log(more) * f);
  } else if (m != n && n > 1 && m > 1) {
    seconds *= ring_ratio(n, m);
  }
  *out = (at_cost_time){seconds,
                        m == n ? AT_COST_FROM_TABLE : AT_COST_FROM_FALLBACK};
  return AT_OK;
}

// The series that answers c, or NULL.
static const prepared *exact_series(const at_perf *p, const at_collective *c) {
  at_permute_kind kind = AT_PERMUTE_ONE_WAY;
  if (c->op == AT_PERMUTE) kind = at_collective_permute_kind(c);
  for (size_t i = 0; i < p->num_series; i++)
    if (same_series(p, &p->series[i], c, kind)) return &p->series[i];
  return NULL;
}

// An exact series; else planes or, in atoll mode, curves over the numbers of
// devices.
at_status at_perf_collective(const at_perf *p, const at_collective *c,
                             at_cost_time *out) {
  if (c->bytes < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT, "collective: a negative size");
  uint32_t devices = c->op == AT_PERMUTE ? c->num_pairs : c->groups.size;
  if (!c->bytes || !devices || (c->op != AT_PERMUTE && devices == 1)) {
    *out = (at_cost_time){0, AT_COST_FREE};
    return AT_OK;
  }
  int64_t place[AT_POINT_DIMS] = {c->bytes, devices};
  at_scheme scheme = at_collective_scheme(c, p->domain);
  if (c->op == AT_PERMUTE && scheme != AT_SCHEME_INTRA)
    return AT_FAIL(AT_NOT_FOUND, "tables hold permutes inside one domain only");
  const prepared *s = exact_series(p, c);
  if (s && p->mode == AT_INTERP_ATOLL && s->scheme == scheme) {
    *out = (at_cost_time){at_curve_seconds(&s->curve, (double)c->bytes),
                          AT_COST_FROM_TABLE};
    return AT_OK;
  }
  bool seed_plane = p->mode == AT_INTERP_SEED && c->op != AT_PERMUTE;
  if (s && p->mode != AT_INTERP_ATOLL && !seed_plane) {
    *out = (at_cost_time){(double)c->bytes / rate_at(p, &s->points, place),
                          AT_COST_FROM_TABLE};
    return AT_OK;
  }
  if (c->op != AT_PERMUTE && p->mode == AT_INTERP_ATOLL)
    return over_devices(p, c, scheme, out);
  const plane *q =
      c->op == AT_PERMUTE ? NULL : plane_of((at_perf *)p, c->op, scheme);
  if (!q)
    return AT_FAIL(AT_NOT_FOUND, "the table has no %s of this kind",
                   at_collective_text(c->op));
  *out = (at_cost_time){(double)c->bytes / rate_at(p, &q->points, place),
                        s ? AT_COST_FROM_TABLE : AT_COST_FROM_FALLBACK};
  return AT_OK;
}

// ---- Saturation
void at_perf_warn(const at_perf_table *t, at_strbuf *out) {
  for (size_t i = 0; i < t->count; i++) {
    const at_perf_series *s = &t->series[i];
    if (s->is_gemm || s->count < 2) continue;
    const at_point *last = &s->points[0], *before = NULL;
    for (size_t k = 1; k < s->count; k++)
      if (s->points[k].at[0] > last->at[0]) last = &s->points[k];
    for (size_t k = 0; k < s->count; k++)
      if (s->points[k].at[0] < last->at[0] &&
          (!before || s->points[k].at[0] > before->at[0]))
        before = &s->points[k];
    if (!before || !(before->value > 0) || !(last->value > 0)) continue;
    // Per doubling, whatever the last step of the table is.
    double doublings = log2((double)last->at[0] / (double)before->at[0]);
    double gain = pow(last->value / before->value, 1 / doublings) - 1;
    if (gain > 0.05)
      at_strbuf_addf(
          out,
          "%s over %u devices: the last doubling, to %lld bytes, still gains "
          "%.0f%% "
          "of throughput: not saturated\n",
          at_collective_text(s->key.op),
          s->key.op == AT_PERMUTE ? s->key.num_pairs : s->key.groups.size,
          (long long)last->at[0], gain * 100);
  }
}
