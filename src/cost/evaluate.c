// Errors of the interpolation modes on points that they have not seen.
#include <math.h>
#include <stdlib.h>

#include "cost/cost_internal.h"

typedef AT_VEC(double) doubles;

// One kind of question to one mode.
typedef struct experiment {
  const char *what;
  at_interp mode;
  at_perf_seen seen;
  void *user;
  at_arena *arena;
  doubles errors;
} experiment;

// One prediction beside the truth, in seconds.
static at_status note(experiment *x, const char *machine, double given,
                      double predicted) {
  if (x->seen) x->seen(x->user, x->what, x->mode, machine, given, predicted);
  return at_vec_push(x->arena, &x->errors, fabs(predicted - given) / given)
             ? AT_OK
             : AT_NO_MEMORY("errors");
}

static int ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return a < b ? -1 : a > b;
}

// Order statistics of the errors, which are sorted.
static at_perf_error summary(experiment *x) {
  doubles *e = &x->errors;
  at_perf_error r = {.what = x->what, .mode = x->mode, .count = e->len};
  if (!e->len) return r;
  qsort(e->ptr, e->len, sizeof *e->ptr, ascending);
  size_t n = e->len;
  r.median = n % 2 ? e->ptr[n / 2] : (e->ptr[n / 2 - 1] + e->ptr[n / 2]) / 2;
  double at = 0.9 * (double)(n - 1);  // linear between order statistics
  size_t low = (size_t)at;
  r.p90 =
      e->ptr[low] +
      (low + 1 < n ? (at - (double)low) * (e->ptr[low + 1] - e->ptr[low]) : 0);
  r.worst = e->ptr[n - 1];
  while (r.within < n && e->ptr[r.within] <= 0.1) r.within++;
  return r;
}

// ---- Collectives
// Does a point stay in the thinned table?
typedef bool (*keep_fn)(const at_perf_series *s, const at_point *p,
                        int64_t size);

static bool differs(const at_perf_series *s, const at_point *p, int64_t size) {
  return p->at[0] != size;
}
static bool at_most(const at_perf_series *s, const at_point *p, int64_t size) {
  return p->at[0] <= size;
}

// The collectives of a table, without the points that `keep` refuses: of every
// series, so that no other number of devices gives the left-out size away.
static at_status thin(const at_perf_table *t, bool permutes, keep_fn keep,
                      int64_t size, at_arena *a, at_perf_table *out) {
  at_perf_series *list;
  AT_TRY_ALLOC(list, at_new(a, at_perf_series, t->count + 1));
  *out = *t;
  out->series = list, out->count = 0;
  for (size_t i = 0; i < t->count; i++) {
    at_perf_series s = t->series[i];
    if (s.is_gemm || (s.key.op == AT_PERMUTE) != permutes) continue;
    AT_TRY_ALLOC(s.points, at_new(a, at_point, s.count + 1));
    s.count = 0;
    for (size_t k = 0; k < t->series[i].count; k++)
      if (keep(&t->series[i], &t->series[i].points[k], size))
        s.points[s.count++] = t->series[i].points[k];
    list[out->count++] = s;
  }
  return AT_OK;
}

// Asks p for what the point `truth` of s measured.
static at_status add_error(experiment *x, const at_perf_table *table,
                           const at_perf *p, const at_perf_series *s,
                           const at_point *truth) {
  at_collective c = s->key;
  c.bytes = truth->at[0];
  at_cost_time t;
  AT_TRY(at_perf_collective(p, &c, &t));
  return note(x, table->machine, (double)c.bytes / truth->value, t.seconds);
}

// The smallest or largest size of a series.
static int64_t edge(const at_perf_series *s, bool high) {
  int64_t e = s->points[0].at[0];
  for (size_t i = 1; i < s->count; i++)
    e = high ? AT_MAX(e, s->points[i].at[0]) : AT_MIN(e, s->points[i].at[0]);
  return e;
}

// Every interior power of two of every series, left out of all of them at once.
static at_status left_out(experiment *x, const at_perf_table *t,
                          bool permutes) {
  for (int power = 0; power < 62; power++) {
    int64_t size = (int64_t)1 << power;
    at_perf_table less;
    at_perf *p = NULL;
    for (size_t i = 0; i < t->count; i++) {
      const at_perf_series *s = &t->series[i];
      if (s->is_gemm || (s->key.op == AT_PERMUTE) != permutes ||
          size <= edge(s, false) || size >= edge(s, true))
        continue;
      for (size_t k = 0; k < s->count; k++) {
        if (s->points[k].at[0] != size || !(s->points[k].value > 0)) continue;
        if (!p) {
          AT_TRY(thin(t, permutes, differs, size, x->arena, &less));
          AT_TRY(at_perf_prepare(&less, x->mode, false, x->arena, &p));
        }
        AT_TRY(add_error(x, t, p, s, &s->points[k]));
      }
    }
  }
  return AT_OK;
}

// 2 GiB, from tables that end at 256 MiB.
static at_status past_the_edge(experiment *x, const at_perf_table *t) {
  const int64_t known = 256 << 20, asked = (int64_t)2 << 30;
  at_perf_table less;
  at_perf *p;
  AT_TRY(thin(t, false, at_most, known, x->arena, &less));
  AT_TRY(at_perf_prepare(&less, x->mode, false, x->arena, &p));
  for (size_t i = 0; i < t->count; i++) {
    const at_perf_series *s = &t->series[i];
    for (size_t k = 0; k < s->count && !s->is_gemm && s->key.op != AT_PERMUTE;
         k++)
      if (s->points[k].at[0] == asked && s->points[k].value > 0)
        AT_TRY(add_error(x, t, p, s, &s->points[k]));
  }
  return AT_OK;
}

// ---- Products
// All points of s whose dimension `dim` is `size`, predicted from the others.
static at_status gemm_plane(experiment *x, const at_perf_table *t,
                            const at_perf_series *s, int dim, int64_t size) {
  at_perf_series less = *s;
  at_perf_table one = {
      .machine = t->machine, .source = "", .series = &less, .count = 1};
  AT_TRY_ALLOC(less.points, at_new(x->arena, at_point, s->count + 1));
  less.count = 0;
  for (size_t i = 0; i < s->count; i++)
    if (s->points[i].at[dim] != size) less.points[less.count++] = s->points[i];
  at_perf *p;
  AT_TRY(at_perf_prepare(&one, x->mode, false, x->arena, &p));
  for (size_t i = 0; i < s->count; i++) {
    const int64_t *q = s->points[i].at;
    if (q[dim] != size || !(s->points[i].value > 0)) continue;
    at_gemm g = {s->lhs, s->rhs, s->out, q[0], q[1], q[3], q[2]};
    at_cost_time time;
    AT_TRY(at_perf_gemm(p, &g, &time));
    double flops =
        2.0 * (double)q[0] * (double)q[1] * (double)q[2] * (double)q[3];
    AT_TRY(note(x, t->machine, flops / s->points[i].value, time.seconds));
  }
  return AT_OK;
}

// Every interior power of two along m, k and n.
static at_status gemm_left_out(experiment *x, const at_perf_table *t) {
  for (size_t i = 0; i < t->count; i++) {
    const at_perf_series *s = &t->series[i];
    for (int dim = 1; dim < 4 && s->is_gemm; dim++) {
      int64_t low = INT64_MAX, high = 0;
      for (size_t k = 0; k < s->count; k++) {
        low = AT_MIN(low, s->points[k].at[dim]);
        high = AT_MAX(high, s->points[k].at[dim]);
      }
      for (int power = 0; power < 62; power++) {
        int64_t size = (int64_t)1 << power;
        if (size > low && size < high) AT_TRY(gemm_plane(x, t, s, dim, size));
      }
    }
  }
  return AT_OK;
}

// Rows without any error are left out.
at_status at_perf_evaluate(const at_perf_table *const *tables, size_t count,
                           at_perf_seen seen, void *user, at_arena *a,
                           at_perf_error **out, size_t *num) {
  static const char *const names[] = {
      "collective, size left out", "permute, size left out",
      "2 GiB from <= 256 MiB", "GEMM, size left out"};
  AT_VEC(at_perf_error) rows = {0};
  for (size_t what = 0; what < AT_LEN(names); what++)
    for (int mode = AT_INTERP_SEED; mode <= AT_INTERP_ATOLL; mode++) {
      experiment x = {names[what], (at_interp)mode, seen, user, a, {0}};
      for (size_t i = 0; i < count; i++)
        AT_TRY(what == 3   ? gemm_left_out(&x, tables[i])
               : what == 2 ? past_the_edge(&x, tables[i])
                           : left_out(&x, tables[i], what == 1));
      if (x.errors.len && !at_vec_push(a, &rows, summary(&x)))
        return AT_NO_MEMORY("errors");
    }
  *out = rows.ptr;
  *num = rows.len;
  return AT_OK;
}
