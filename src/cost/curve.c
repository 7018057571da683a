// Time over size, smoothed. Measurements of small transfers jump by a factor of
// two from one size to the next, partly noise, partly switches of algorithm, so
// that the nearest points are poor guides. What is used instead:
//
//   0. The same collective over other numbers of devices switches alike: each
//      point is averaged (in logs) with what those series say of its size,
//      moved to this series' own level near it.
//   1. A transfer can be padded to a larger one, so no size takes longer than a
//      larger size was seen to take: the lower envelope. It is one-sided, so it
//      is averaged (in logs) with the monotone least-squares fit (pool adjacent
//      violators).
//   2. Between points: linear in bytes (a launch plus a rate), averaged with a
//      monotone cubic in log-log space (Fritsch and Carlson).
//   3. Past the last point throughput still grows: the slope of log time over
//      log size stays under 1 by a deficit that falls by 0.7 per doubling;
//      where other collectives of the same groups are faster on the same links,
//      a part of that room is filled as well.
//
// The weights were chosen on H100 and B200 tables; `atoll cost evaluate` shows
// the error.
#include <math.h>

#include "cost/cost_internal.h"

#define SIBLING_WEIGHT 0.4
#define SIBLING_REACH 3.0  // doublings around a point that set the level
#define END_GAPS 3
#define ENVELOPE_WEIGHT 0.6
#define LINEAR_WEIGHT 0.75
#define DEFICIT_DECAY 0.7
#define ROOM_WEIGHT 0.08
#define MOST_ROOM 3.0  // doublings

// ---- Siblings
// Logs of size and time of the points that were measured; returns how many.
static size_t logs(const at_point *points, size_t count, double *x, double *y) {
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    if (!(points[i].value > 0) || points[i].at[0] < 1) continue;
    x[n] = log((double)points[i].at[0]);
    y[n] = x[n] - log(points[i].value);
    n++;
  }
  return n;
}

// Of a few numbers, which are sorted in place.
static double median(double *list, size_t n) {
  for (size_t i = 1; i < n; i++)  // a few numbers
    for (size_t k = i; k && list[k] < list[k - 1]; k--) {
      double t = list[k];
      list[k] = list[k - 1], list[k - 1] = t;
    }
  return n % 2 ? list[n / 2] : (list[n / 2 - 1] + list[n / 2]) / 2;
}

// What a sibling says of point i; false: nothing.
static bool moved(const double *x, const double *y, size_t n, size_t i,
                  const double *sx, const double *sy, size_t sn,
                  double *scratch, double *out) {
  size_t apart = 0, at = sn;
  for (size_t j = 0, k = 0; j < n; j++) {
    while (k < sn && sx[k] < x[j]) k++;
    if (k == sn || sx[k] != x[j]) continue;
    if (j == i) at = k;
    if (j != i && fabs(x[j] - x[i]) <= (SIBLING_REACH + .01) * M_LN2)
      scratch[apart++] = y[j] - sy[k];
  }
  if (at == sn || !apart) return false;
  *out = sy[at] + median(scratch, apart);
  return true;
}

// Siblings that share no size with `mine` change nothing.
at_status at_curve_with_siblings(const at_points *mine,
                                 const at_points *const *siblings, size_t num,
                                 at_arena *a, at_point **out) {
  size_t n = mine->count, most = n;
  double *x, *sum, *others;
  for (size_t s = 0; s < num; s++) most = AT_MAX(most, siblings[s]->count);
  AT_TRY_ALLOC(*out, at_new(a, at_point, n + 1));
  memcpy(*out, mine->list, n * sizeof **out);
  AT_TRY_ALLOC(x, at_new(a, double, at_mul(most + 1, 5)));
  AT_TRY_ALLOC(sum, at_new(a, double, at_mul(n + 1, 2)));
  double *y = x + most, *sx = y + most, *sy = sx + most, *scratch = sy + most;
  others = sum + n;
  memset(sum, 0, 2 * (n + 1) * sizeof *sum);
  if (logs(mine->list, n, x, y) != n) return AT_OK;  // some are not measured
  for (size_t s = 0; s < num; s++) {
    size_t sn = logs(siblings[s]->list, siblings[s]->count, sx, sy);
    for (size_t i = 0; i < n; i++) {
      double says;
      if (!moved(x, y, n, i, sx, sy, sn, scratch, &says)) continue;
      sum[i] += says, others[i]++;
    }
  }
  for (size_t i = 0; i < n; i++) {
    // The last gaps, from which the curve goes on, hold little noise.
    if (others[i] <= 0 || i + END_GAPS >= n) continue;
    double time =
        (1 - SIBLING_WEIGHT) * y[i] + SIBLING_WEIGHT * sum[i] / others[i];
    (*out)[i].value = exp(x[i] - time);
  }
  return AT_OK;
}

// ---- The curve
// Monotone least squares of y, into y. `weight` and `value` are scratch.
static void pool(double *y, size_t n, double *value, double *weight) {
  size_t blocks = 0;
  for (size_t i = 0; i < n; i++) {
    value[blocks] = y[i], weight[blocks++] = 1;
    while (blocks > 1 && value[blocks - 2] > value[blocks - 1]) {
      double w = weight[blocks - 2] + weight[blocks - 1];
      value[blocks - 2] = (value[blocks - 2] * weight[blocks - 2] +
                           value[blocks - 1] * weight[blocks - 1]) /
                          w;
      weight[--blocks - 1] = w;
    }
  }
  size_t at = 0;
  for (size_t b = 0; b < blocks; b++) {
    AT_ASSERT(!b || value[b - 1] <= value[b]);
    for (int k = 0; k < (int)weight[b]; k++) y[at++] = value[b];
  }
  AT_ASSERT(at == n);  // every point is in one block
}

// The envelope averaged with the monotone fit, both over raw. value and weight:
// scratch.
static void smooth(const double *raw, size_t n, double *y, double *value,
                   double *weight) {
  memcpy(y, raw, n * sizeof *y);
  pool(y, n, value, weight);
  double least = INFINITY;
  for (size_t i = n; i-- > 0;) {
    least = fmin(least, raw[i]);
    AT_ASSERT(least <= raw[i]);
    y[i] = ENVELOPE_WEIGHT * least + (1 - ENVELOPE_WEIGHT) * y[i];
    // Both parts rise, so the sum does.
    AT_ASSERT(i + 1 == n || y[i] <= y[i + 1] + 1e-12 * fabs(y[i]));
  }
}

// Slopes of the monotone cubic: harmonic means of the neighbouring secants.
static void slopes(const double *x, const double *y, size_t n, double *slope) {
  for (size_t i = 0; i < n; i++) {
    double left = i ? (y[i] - y[i - 1]) / (x[i] - x[i - 1]) : 0;
    double right = i + 1 < n ? (y[i + 1] - y[i]) / (x[i + 1] - x[i]) : 0;
    if (!i)
      slope[i] = right;
    else if (i + 1 == n)
      slope[i] = left;
    else if (left <= 0 || right <= 0)
      slope[i] = 0;
    else {
      double h0 = x[i] - x[i - 1], h1 = x[i + 1] - x[i];
      double w0 = 2 * h1 + h0, w1 = h1 + 2 * h0;
      slope[i] = (w0 + w1) / (w0 / left + w1 / right);
      // Fritsch and Carlson's bound, below which the cubic rises everywhere.
      AT_ASSERT(slope[i] > 0 && slope[i] <= 3.0001 * fmin(left, right));
    }
    AT_ASSERT(i + 1 == n || x[i] < x[i + 1]);
  }
}

// How much less than double a doubling costs at the end, from the last three
// gaps.
static double end_deficit(const double *x, const double *y, size_t n) {
  static const double weight[END_GAPS] = {0.6, 0.08, 0.192};
  double sum = 0, weights = 0;
  for (size_t k = 0; k < END_GAPS && k + 1 < n; k++) {
    size_t i = n - 1 - k;
    sum += weight[k] * (1 - (y[i] - y[i - 1]) / (x[i] - x[i - 1]));
    weights += weight[k];
  }
  // With fewer than three gaps the weights stand for all of them.
  return weights > 0 ? fmin(1, fmax(0, sum * (0.872 / weights))) : 0;
}

// One block of memory holds all arrays.
at_status at_curve_make(const at_point *points, size_t count, at_arena *a,
                        at_curve *out) {
  double *block;
  AT_TRY_ALLOC(block, at_new(a, double, at_mul(count, 7)));
  double *size = block, *x = size + count, *y = x + count, *slope = y + count;
  double *raw = slope + count, *value = raw + count, *weight = value + count;
  size_t n = 0;
  for (size_t i = 0; i < count; i++) {
    if (!(points[i].value > 0) || points[i].at[0] < 1)
      continue;  // a failed measurement
    size[n] = (double)points[i].at[0];
    x[n] = log(size[n]);
    raw[n] = x[n] - log(points[i].value);
    n++;
  }
  smooth(raw, n, y, value, weight);
  slopes(x, y, n, slope);
  *out = (at_curve){n, size, x, y, slope, end_deficit(x, y, n), 0};
  return AT_OK;
}

// Seconds behind the last point: the deficit of each doubling is 0.7 of the one
// before.
static double past_the_end(const at_curve *c, double bytes) {
  size_t i = c->count - 1;
  double doublings = (log(bytes) - c->log_size[i]) / M_LN2;
  // Sum of the deficits of the doublings so far: deficit * (r + r^2 + ...).
  double sum = 1 - pow(DEFICIT_DECAY, doublings);
  double saved = c->deficit * DEFICIT_DECAY * sum / (1 - DEFICIT_DECAY) +
                 fmin(MOST_ROOM, c->room) * ROOM_WEIGHT * sum;
  AT_ASSERT(doublings >= 0 && saved >= 0 && sum <= 1);
  return exp(c->log_time[i] + (doublings - saved) * M_LN2);
}

// Below the first point its time; between points by bisection.
double at_curve_seconds(const at_curve *c, double bytes) {
  if (!c->count || !(bytes > 0)) return 0;
  if (bytes <= c->size[0]) return exp(c->log_time[0]);
  if (bytes >= c->size[c->count - 1]) return past_the_end(c, bytes);
  size_t low = 0, high = c->count - 1;
  while (high - low > 1) {
    size_t mid = (low + high) / 2;
    if (c->size[mid] <= bytes)
      low = mid;
    else
      high = mid;
  }
  double t0 = exp(c->log_time[low]), t1 = exp(c->log_time[high]);
  double linear =
      t0 + (t1 - t0) * (bytes - c->size[low]) / (c->size[high] - c->size[low]);
  double h = c->log_size[high] - c->log_size[low],
         u = (log(bytes) - c->log_size[low]) / h;
  double v = 1 - u;
  double cubic = v * v * (1 + 2 * u) * c->log_time[low] +
                 u * u * (1 + 2 * v) * c->log_time[high] +
                 h * u * v * (v * c->slope[low] - u * c->slope[high]);
  double t = exp(LINEAR_WEIGHT * log(linear) + (1 - LINEAR_WEIGHT) * cubic);
  AT_ASSERT(c->size[low] <= bytes && bytes <= c->size[high]);
  AT_ASSERT(t >= .9999 * t0 && t <= 1.0001 * t1);  // both parts rise
  return t;
}
