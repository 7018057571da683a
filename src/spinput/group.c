// A SparseCore's share of a stack: ids of its samples, sorted by (owner, local
// row, sample), equal ones merged by adding their gains.
#include <math.h>
#include <stdlib.h>

#include "spinput/spinput_internal.h"

// What a sample's gains are divided by: the same sums in the same order and
// precision as jax-tpu-embedding.
static float divisor(int32_t combiner, const float *w, int64_t n) {
  float sum = 0;
  if (combiner == AT_SPINPUT_MEAN) {
    for (int64_t i = 0; i < n; i++) sum += w[i];
    return sum;
  }
  if (combiner == AT_SPINPUT_SQRTN) {
    for (int64_t i = 0; i < n; i++)
      sum = (float)((double)sum + (double)w[i] * (double)w[i]);
    return sqrtf(sum);
  }
  return 1;
}

// Of a sample without weights: each counts 1.
static float even_gain(int32_t combiner, int64_t n) {
  if (combiner == AT_SPINPUT_MEAN) return 1.0f / (float)n;
  return combiner == AT_SPINPUT_SQRTN ? 1.0f / sqrtf((float)n) : 1.0f;
}

// The raw ids: keys[i] = (owner, local row) above, and below the sample, or,
// with weights, i.
typedef struct raw_ids {
  uint64_t *keys;
  uint32_t *row;  // weighted: sample of raw id i
  float *gain;    // weighted: of raw id i; else of a sample
  int64_t n;
  int local_bits;
} raw_ids;

// Looks through the sample again for what `take` found wrong.
static at_status bad_id(const at_spi_view *v, const at_spinput_feature *f,
                        int32_t combiner, int64_t sample) {
  at_spi_sample s = at_spi_sample_of(v, sample);
  for (int64_t i = 0; i < s.len; i++) {
    int64_t id = at_spi_id(v, s.ids, i);
    if (id < 0 || id >= f->vocabulary)
      return AT_FAIL(
          AT_INVALID_ARGUMENT,
          "table '%s', feature '%s', sample %lld: id %lld is outside "
          "0..%lld",
          f->table, f->name, (long long)sample, (long long)id,
          (long long)f->vocabulary - 1);
    if (s.weights && !isfinite(s.weights[i]))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "table '%s', feature '%s', sample %lld: the weight of id "
                     "%lld is %g",
                     f->table, f->name, (long long)sample, (long long)id,
                     (double)s.weights[i]);
  }
  // Ids and weights are right, but not what they come to.
  return AT_FAIL(
      AT_INVALID_ARGUMENT,
      "table '%s', feature '%s', sample %lld: combiner %s divides by "
      "what its %lld weights come to, %g\n"
      "hint: leave ids without weight out",
      f->table, f->name, (long long)sample,
      combiner == AT_SPINPUT_MEAN ? "mean" : "sqrtn", (long long)s.len,
      (double)divisor(combiner, s.weights, s.len));
}

typedef struct slice {  // one feature's samples of this core
  const at_spi_view *v;
  const at_spinput_feature *f;
  int64_t begin, end;
  uint32_t row;  // of sample `begin` in the core's batch
} slice;

// Feature i's samples that this core works on: each core has an equal run of
// every feature's batch.
static slice slice_of(const at_spi_run *r, const at_spi_task *t, int32_t i) {
  const at_spinput_options *o = r->o;
  const at_spinput_feature *f = &t->stack->features[i];
  const at_spi_view *v = &r->views[f->input];
  int64_t share =
      v->b->samples / ((int64_t)o->local_devices * o->cores_per_device);
  int64_t k = (int64_t)t->device * o->cores_per_device + t->core;
  return (slice){v, f, k * share, (k + 1) * share,
                 (uint32_t)(f->row_offset / r->cores)};
}

// Specialised by the compiler for the width of ids and for weights. Returns the
// first sample with a wrong id or weight, -1 without one.
__attribute__((always_inline)) static inline int64_t take(
    const at_spi_run *r, const at_spi_task *t, const slice *s, raw_ids *raw,
    bool wide, bool weighted) {
  const uint32_t mask = (uint32_t)r->cores - 1;
  const uint32_t shift = (uint32_t)s->f->col_shift;
  const uint32_t offset = (uint32_t)s->f->col_offset;
  const uint64_t vocabulary = (uint64_t)s->f->vocabulary;
  const int core_bits = r->core_bits, local_bits = raw->local_bits;
  const int32_t combiner = t->stack->combiner;
  uint64_t *keys = raw->keys + raw->n;
  uint32_t row = s->row;
  int64_t n = raw->n;
  for (int64_t sample = s->begin; sample < s->end; sample++, row++) {
    at_spi_sample x = at_spi_sample_of(s->v, sample);
    const int32_t *narrow_ids = x.ids;
    const int64_t *wide_ids = x.ids;
    bool bad = false;
    for (int64_t i = 0; i < x.len; i++) {
      uint64_t id =
          wide ? (uint64_t)wide_ids[i] : (uint64_t)(int64_t)narrow_ids[i];
      bad |= id >= vocabulary;
      // Rotated by whole SparseCores within its group of N rows, then moved
      // behind the tables before it.
      uint32_t col =
          (((uint32_t)id + shift) & mask) + ((uint32_t)id & ~mask) + offset;
      uint64_t key = (uint64_t)(col & mask) << local_bits | col >> core_bits;
      keys[i] = key << 32 | (weighted ? (uint32_t)(n + i) : row);
    }
    if (weighted) {
      // Gains are computed once a sample, before ids are sorted.
      // A feature without weights in a stack with some counts 1 each.
      float even = even_gain(combiner, x.len);
      float d = x.weights ? divisor(combiner, x.weights, x.len) : 1;
      bad |= !isfinite(d);
      for (int64_t i = 0; i < x.len; i++) {
        float w = x.weights ? x.weights[i] : even;
        raw->row[n + i] = row;
        raw->gain[n + i] = w / d;
        bad |= !isfinite(raw->gain[n + i]);
      }
    } else if (combiner != AT_SPINPUT_SUM) {
      raw->gain[row] = even_gain(combiner, x.len);
    }
    if (AT_UNLIKELY(bad)) return sample;
    keys += x.len;
    n += x.len;
  }
  raw->n = n;
  return -1;
}

// Raw ids, before equal ones are merged.
static int64_t count_ids(const slice *s) {
  const at_spi_view *v = s->v;
  if (v->splits) return v->splits[s->end] - v->splits[s->begin];
  if (v->b->form == AT_SPINPUT_DENSE) return (s->end - s->begin) * v->b->width;
  int64_t n = 0;
  for (int64_t i = s->begin; i < s->end; i++) n += v->b->rows[i].len;
  return n;
}

// One weighted feature makes the whole stack weighted, as ids of all are sorted
// together.
static bool stack_weighted(const at_spi_run *r, const at_spinput_stack *k) {
  for (int32_t i = 0; i < k->feature_count; i++)
    if (at_spi_weighted(r->views[k->features[i].input].b)) return true;
  return false;
}

// Equal (owner, local row, sample) become one; partitions are counted. Keys
// come sorted. Gains of equal ones are added in the order of the input, as
// sorting is stable.
static void merge(const at_spi_run *r, at_spi_task *t, const uint64_t *keys,
                  const raw_ids *raw, bool weighted) {
  const bool sum = t->stack->combiner == AT_SPINPUT_SUM;
  const uint32_t local_mask = (uint32_t)(((uint64_t)1 << raw->local_bits) - 1);
  int64_t i = 0, m = 0;
  for (int32_t g = 0; g < r->cores; g++) {
    const int64_t first = m;
    // Keys of partition g end here; the last one takes what is left, as its end
    // may not fit in 64 bits.
    const uint64_t end = ((uint64_t)g + 1) << raw->local_bits << 32;
    uint32_t last_row = UINT32_MAX, last_key = UINT32_MAX;
    int32_t unique = 0;
    for (; i < raw->n && (keys[i] < end || g == r->cores - 1); i++) {
      uint32_t key = (uint32_t)(keys[i] >> 32), low = (uint32_t)keys[i];
      uint32_t row = weighted ? raw->row[low] : low;
      float gain = weighted ? raw->gain[low] : sum ? 1.0f : raw->gain[low];
      // The same id again in one sample: its gain is added.
      if (key == last_key && row == last_row && m > first) {
        t->gain[m - 1] += gain;
        if (t->times) t->times[m - 1]++;
        continue;
      }
      unique += key != last_key || m == first;
      last_key = key;
      last_row = row;
      t->local[m] = key & local_mask;
      t->row[m] = row;
      t->gain[m] = gain;
      if (t->times) t->times[m] = 1;
      m++;
    }
    t->ids[g] = (int32_t)(m - first);
    t->unique[g] = unique;
    AT_ASSERT(t->unique[g] <= t->ids[g]);
  }
  AT_ASSERT(i == raw->n && m <= raw->n);
  t->n = m;
}

// Without mini-batches: ids over the limits go, in sorted order. Closes the
// gaps, so that what is kept lies dense again. Needs `times`, to count what was
// merged.
static at_status drop(const at_spi_run *r, at_spi_task *t) {
  int64_t from = 0, m = 0;
  for (int32_t g = 0; g < r->cores; g++) {
    int64_t end = from + t->ids[g], start = m;
    bool over =
        t->ids[g] > t->stack->max_ids || t->unique[g] > t->stack->max_unique;
    if (over && !r->o->allow_dropping) return at_spi_over(r, t, g, -1);
    int32_t unique = 0, seen = 0;
    for (int64_t i = from; i < end; i++) {
      // Ids and unique ids count from the partition's begin; both limits hold
      // for what is kept.
      if (over) {
        unique += i == from || t->local[i] != t->local[i - 1];
        if (++seen > t->stack->max_ids || unique > t->stack->max_unique) {
          t->dropped += t->times[i];
          continue;
        }
      }
      t->local[m] = t->local[i];
      t->row[m] = t->row[i];
      t->gain[m] = t->gain[i];
      m++;
    }
    t->kept[g] = (int32_t)(m - start);
    AT_ASSERT(t->kept[g] <= t->ids[g] && t->kept[g] <= t->stack->max_ids);
    from = end;
  }
  t->n = m;
  return AT_OK;
}

// In any partition.
static bool over_limits(const at_spi_run *r, const at_spi_task *t) {
  for (int32_t g = 0; g < r->cores; g++)
    if (t->ids[g] > t->stack->max_ids || t->unique[g] > t->stack->max_unique)
      return true;
  return false;
}

// Of what was found, before anything is dropped.
int64_t at_spi_padded(const at_spi_run *r, const at_spi_task *t) {
  int64_t sum = 0;
  for (int32_t g = 0; g < r->cores; g++)
    sum += (int64_t)at_align_up((size_t)t->ids[g], AT_SPINPUT_ALIGN);
  return sum;
}

// Each core has an equal part of the device's buffer, and row pointers count
// from its beginning.
static at_status fill_whole(at_spi_run *r, at_spi_task *t) {
  int64_t size = t->out->coo_per_device / r->o->cores_per_device;
  at_spi_segment s = {.local = t->local,
                      .row = t->row,
                      .gain = t->gain,
                      .counts = t->ids,
                      .rows = t->core * at_spi_row_block(r),
                      .begin = t->core * size,
                      .end = (t->core + 1) * size,
                      .base = t->core * size};
  if (t->over) {
    AT_TRY(drop(r, t));
    s.counts = t->kept;
  }
  int64_t lost = at_spi_fill(r, t, &s);
  if (lost) AT_TRY(at_spi_too_small(r, t));
  t->dropped += lost;
  return AT_OK;
}

// Bits that local rows of the stack take.
static int local_bits(const at_spi_run *r, const at_spinput_stack *k) {
  int64_t rows = 1;
  for (int32_t i = 0; i < k->feature_count; i++) {
    const at_spinput_feature *f = &k->features[i];
    int64_t end = (f->col_offset + f->vocabulary - 1) / r->cores + 1;
    rows = AT_MAX(rows, end);
  }
  int bits = 0;
  while (bits < 32 && ((int64_t)1 << bits) < rows) bits++;
  return bits;
}

// Keys: owner and local row in the upper half, sorted as one number; the lower
// half says where the id came from. With mini-batches the result outlives the
// worker's scratch and gets a block of its own.
at_status at_spi_group(at_spi_run *r, at_spi_task *t, uint32_t worker) {
  const at_spinput_stack *k = t->stack;
  const bool weighted = stack_weighted(r, k);
  int64_t n = 0;
  for (int32_t i = 0; i < k->feature_count; i++) {
    slice s = slice_of(r, t, i);
    n += count_ids(&s);
  }
  if (n > INT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table '%s': %lld ids for one SparseCore; 2^31 - 1 at most",
                   k->name, (long long)n);
  // keys twice, the merged arrays, and for gains.
  size_t per = (size_t)n * 4, gains = weighted ? per : (size_t)t->samples * 4;
  size_t keep = per * (r->o->allow_dropping ? 4 : 3);
  size_t bytes = per * 4 + keep + gains + (weighted ? per : 0) + 64;
  char *p = at_spi_scratch_of(&r->scratch[worker], bytes);
  if (!p) return AT_NO_MEMORY("ids of a SparseCore");
  // Two arrays of keys for the sort, then the merged arrays, then gains and
  // rows by raw id.
  uint64_t *a = (uint64_t *)p, *b = a + n;
  char *merged = p + per * 4;
  raw_ids raw = {.keys = a, .local_bits = local_bits(r, k)};
  raw.gain = (float *)(merged + keep);
  raw.row = (uint32_t *)(merged + keep + gains);
  if (r->o->minibatching && n) {  // these outlive this call
    t->block = merged = malloc(keep + (size_t)n);
    if (!merged) return AT_NO_MEMORY("ids of a SparseCore");
    t->bucket = (uint8_t *)merged + keep;
  }
  t->local = (uint32_t *)merged;
  t->row = t->local + n;
  t->gain = (float *)(t->row + n);
  t->times = r->o->allow_dropping ? (uint32_t *)(t->gain + n) : NULL;
  for (int32_t i = 0; i < k->feature_count; i++) {
    slice s = slice_of(r, t, i);
    // Four copies of the loop, so that neither test is inside of it.
    bool wide = s.v->b->id_bytes == 8;
    int64_t bad = weighted ? (wide ? take(r, t, &s, &raw, true, true)
                                   : take(r, t, &s, &raw, false, true))
                           : (wide ? take(r, t, &s, &raw, true, false)
                                   : take(r, t, &s, &raw, false, false));
    if (bad >= 0) return bad_id(s.v, s.f, t->stack->combiner, bad);
  }
  AT_ASSERT(raw.n == n);  // count_ids told how much room there must be
  uint64_t *sorted = at_spi_sort(a, b, raw.n, raw.local_bits + r->core_bits);
  if (weighted)
    merge(r, t, sorted, &raw, true);
  else
    merge(r, t, sorted, &raw, false);
  t->over = over_limits(r, t);
  return r->o->minibatching ? AT_OK : fill_whole(r, t);
}

// Features lie behind each other, so the last that begins at or before the row
// has it. *sample: of its batch on this host.
const at_spinput_feature *at_spi_feature_of(const at_spi_run *r,
                                            const at_spi_task *t, uint32_t row,
                                            int64_t *sample) {
  for (int32_t i = t->stack->feature_count; i-- > 0;) {
    slice s = slice_of(r, t, i);
    if (row < s.row) continue;
    *sample = s.begin + (row - s.row);
    return s.f;
  }
  *sample = -1;
  return &t->stack->features[0];
}
