// Mini-batches. By vocabulary: ids fall into 64 buckets by their hash, and
// neighbouring buckets are merged as far as the limits allow, by a binary tree
// over the buckets: inner node i of a level is cut when its two halves together
// are over a limit in any partition of any stack on any host. By sample: 2^k
// equal runs of samples.
#include <stdlib.h>

#include "spinput/spinput_internal.h"

enum { BUCKETS = AT_SPINPUT_BUCKETS };

// The cuts that one partition's counts ask for: bit i is node i, leaves'
// parents first. Destroys the counts. 63 inner nodes, so one word holds all.
static uint64_t cuts(int32_t *count, int32_t max) {
  uint64_t cut = 0;
  int bit = 0;
  for (int size = 2; size <= BUCKETS; size *= 2) {
    for (int i = 0; i < BUCKETS; i += size, bit++) {
      // A cut leaves the larger half to the next level, as either may be merged
      // on its other side.
      int32_t left = count[i], right = count[i + size / 2];
      if (left + right > max) {
        cut |= 1ull << bit;
        count[i] = AT_MAX(left, right);
      } else {
        count[i] = left + right;
      }
    }
  }
  return cut;
}

// Between bucket b - 1 and b lies exactly one node of the tree. Which node
// follows from the lowest bit of b.
static void number_minibatches(at_spi_run *r, uint64_t cut) {
  int minibatch = 0;
  r->minibatch_of[0] = 0;
  for (int b = 1; b < BUCKETS; b++) {
    // The node's level from the lowest bit of b, its place from the rest.
    int half = b & -b, bit = 0;
    for (int size = 2; size < 2 * half; size *= 2) bit += BUCKETS / size;
    minibatch += cut >> (bit + b / (2 * half)) & 1;
    r->minibatch_of[b] = (uint8_t)minibatch;
  }
  r->minibatches = minibatch + 1;
  AT_ASSERT(r->minibatches <= BUCKETS);
}

// ---- Buckets of a task's ids

// Run of the sample among k equal ones.
static int64_t bucket_of_sample(const at_spi_task *t, uint32_t row, int32_t k) {
  return (int64_t)row * k / t->samples;
}

// Each different row is hashed once.
static at_status hash_buckets(at_spi_run *r, at_spi_task *t, uint32_t worker) {
  uint32_t *cols =
      at_spi_scratch_of(&r->scratch[worker], (size_t)t->n * 5 + 64);
  if (!cols) return AT_NO_MEMORY("buckets");
  uint8_t *bucket = (uint8_t *)(cols + t->n);
  int64_t from = 0, m = 0;
  for (int32_t g = 0; g < r->cores; g++) {
    for (int64_t i = from; i < from + t->ids[g]; i++)
      if (i == from || t->local[i] != t->local[i - 1])
        cols[m++] = t->local[i] * (uint32_t)r->cores + (uint32_t)g;
    from += t->ids[g];
  }
  at_spinput_buckets(cols, (size_t)m, bucket);
  from = m = 0;
  for (int32_t g = 0; g < r->cores; g++) {
    for (int64_t i = from; i < from + t->ids[g]; i++) {
      m += i == from || t->local[i] != t->local[i - 1];
      t->bucket[i] = bucket[m - 1];
    }
    from += t->ids[g];
  }
  return AT_OK;
}

// Counts ids and unique ids by (owner, bucket), drops what is over the limits
// of a bucket, and finds the cuts. Only elements that are kept count for the
// buffers; cuts are made from all that were found, as the chip's library does.
static at_status count_buckets(at_spi_run *r, at_spi_task *t) {
  t->kept = calloc((size_t)r->cores * BUCKETS, sizeof *t->kept);
  if (!t->kept) return AT_NO_MEMORY("buckets");
  const int32_t max_ids = t->stack->max_ids, max_unique = t->stack->max_unique;
  t->split = 0;
  int64_t from = 0;
  for (int32_t g = 0; g < r->cores; g++) {
    int32_t ids[BUCKETS] = {0}, unique[BUCKETS] = {0}, *kept;
    uint32_t last[BUCKETS];
    kept = t->kept + (size_t)g * BUCKETS;
    const int64_t end = from + t->ids[g];
    for (int64_t i = from; i < end; i++) {
      uint8_t b = t->bucket[i];
      AT_ASSERT(b < BUCKETS);
      // Rows are sorted, but those of a bucket need not follow each other.
      unique[b] += ids[b] == 0 || t->local[i] != last[b];
      last[b] = t->local[i];
      ids[b]++;
      if (AT_UNLIKELY(ids[b] > max_ids || unique[b] > max_unique)) {
        if (!r->o->allow_dropping) return at_spi_over(r, t, g, b);
        t->dropped += t->times[i];
        t->bucket[i] = AT_SPI_DROPPED;
      } else {
        kept[b]++;
      }
    }
    t->split |= cuts(ids, max_ids) | cuts(unique, max_unique);
    from = end;
  }
  return AT_OK;
}

// The hash, or the run of the sample.
static void find_buckets(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  at_spi_run *r = arg;
  for (int64_t i = begin; i < end; i++) {
    at_spi_task *t = &r->tasks[i];
    if (r->o->split == AT_SPINPUT_BY_SAMPLE) {
      for (int64_t j = 0; j < t->n; j++)
        t->bucket[j] = (uint8_t)bucket_of_sample(t, t->row[j], r->minibatches);
    } else {
      t->st = hash_buckets(r, t, worker);
    }
    if (at_ok(t->st)) t->st = count_buckets(r, t);
  }
}

// ---- How many runs of samples

// Would k runs of samples keep all partitions inside their limits?
static bool fits(const at_spi_run *r, const at_spi_task *t, int32_t k) {
  int64_t from = 0;
  for (int32_t g = 0; g < r->cores; g++) {
    int32_t ids[BUCKETS] = {0}, unique[BUCKETS] = {0};
    uint32_t last[BUCKETS];
    for (int64_t i = from; i < from + t->ids[g]; i++) {
      int64_t b = bucket_of_sample(t, t->row[i], k);
      unique[b] += ids[b]++ == 0 || t->local[i] != last[b];
      last[b] = t->local[i];
      if (ids[b] > t->stack->max_ids || unique[b] > t->stack->max_unique)
        return false;
    }
    from += t->ids[g];
  }
  return true;
}

// Leaves log2 of the runs that a task needs as as many one bits, so that an or
// over tasks and hosts is the maximum.
static void find_runs(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  at_spi_run *r = arg;
  for (int64_t i = begin; i < end; i++) {
    at_spi_task *t = &r->tasks[i];
    int32_t k = 1;
    // 1, 2, 4 ... 64 runs, until all partitions fit; 64 are taken even if they
    // do not.
    for (t->split = 0; t->over && k < BUCKETS; t->split = t->split << 1 | 1) {
      k *= 2;
      if (fits(r, t, k)) {
        t->split = t->split << 1 | 1;
        break;
      }
    }
  }
}

// Bits of all tasks here and on all hosts.
static at_status agree_on(at_spi_run *r, uint64_t *bits) {
  *bits = 0;
  for (int64_t i = 0; i < r->task_count; i++) *bits |= r->tasks[i].split;
  return at_spi_agree(r, false, bits);
}

// Every host comes to the same cuts, as it sees the bits of all.
at_status at_spi_split(at_spi_run *r) {
  const bool by_sample = r->o->split == AT_SPINPUT_BY_SAMPLE;
  uint64_t bits;
  if (by_sample) {
    at_pool_for(r->pool, r->task_count, 1, find_runs, r);
    AT_TRY(agree_on(r, &bits));
    if (bits & (bits + 1) || bits >= BUCKETS)  // not what find_runs leaves
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "the hosts cut their batches differently: here by sample");
    r->minibatches = 1 << __builtin_popcountll(bits);
    for (int b = 0; b < BUCKETS; b++) r->minibatch_of[b] = (uint8_t)b;
  }
  at_pool_for(r->pool, r->task_count, 1, find_buckets, r);
  for (int64_t i = 0; i < r->task_count; i++) {
    at_status st = r->tasks[i].st;
    r->tasks[i].st = AT_OK;
    AT_TRY(st);
  }
  // The runs are the mini-batches; buckets by hash must still be merged.
  if (by_sample) return AT_OK;
  AT_TRY(agree_on(r, &bits));
  number_minibatches(r, bits);
  return AT_OK;
}

// ---- Writing

// How many elements each (mini-batch, owner) keeps: counts[minibatches * N].
static void count_parts(const at_spi_run *r, const at_spi_task *t,
                        int32_t *counts) {
  memset(counts, 0, (size_t)r->minibatches * (size_t)r->cores * sizeof *counts);
  for (int32_t g = 0; g < r->cores; g++)
    for (int b = 0; b < BUCKETS; b++)
      if (t->kept[(size_t)g * BUCKETS + b])
        counts[r->minibatch_of[b] * r->cores + g] +=
            t->kept[(size_t)g * BUCKETS + b];
}

// Of what is kept, with the cuts that were agreed on.
int64_t at_spi_padded_split(const at_spi_run *r, const at_spi_task *t) {
  int64_t sum = 0;
  for (int32_t g = 0; g < r->cores; g++) {
    int32_t in[BUCKETS] = {0};
    for (int b = 0; b < BUCKETS; b++)
      in[r->minibatch_of[b]] += t->kept[(size_t)g * BUCKETS + b];
    for (int b = 0; b < BUCKETS; b++)
      sum += (int64_t)at_align_up((size_t)in[b], AT_SPINPUT_ALIGN);
  }
  return sum;
}

// Scatters the task's elements into order: mini-batch, owner, bucket, local
// row, sample. `at`: room for the place of each (owner, bucket). A counting
// sort, so elements of a bucket stay in their order.
static void scatter(const at_spi_run *r, const at_spi_task *t,
                    const int32_t *counts, uint32_t *at, uint32_t *local,
                    uint32_t *row, float *gain) {
  uint32_t sum = 0;
  for (int32_t m = 0, b0 = 0; m < r->minibatches; m++) {
    int32_t b1 = b0;
    while (b1 < BUCKETS && r->minibatch_of[b1] == m) b1++;
    for (int32_t g = 0; g < r->cores; g++) {
      uint32_t in = sum;
      for (int32_t b = b0; b < b1; b++) {
        at[g * BUCKETS + b] = in;
        in += (uint32_t)t->kept[g * BUCKETS + b];
      }
      sum += (uint32_t)counts[m * r->cores + g];
    }
    b0 = b1;
  }
  int64_t from = 0;
  for (int32_t g = 0; g < r->cores; g++) {
    uint32_t *base = at + (size_t)g * BUCKETS;
    for (int64_t i = from; i < from + t->ids[g]; i++) {
      if (t->bucket[i] == AT_SPI_DROPPED) continue;
      uint32_t to = base[t->bucket[i]]++;
      AT_ASSERT(to < sum);  // as many places as count_buckets kept
      local[to] = t->local[i];
      row[to] = t->row[i];
      gain[to] = t->gain[i];
    }
    from += t->ids[g];
  }
}

// Mini-batch after mini-batch, each a segment of its own.
at_status at_spi_fill_split(at_spi_run *r, at_spi_task *t, int64_t begin,
                            uint32_t worker) {
  const size_t parts = (size_t)r->minibatches * (size_t)r->cores, n = t->n;
  const size_t places = (size_t)r->cores * BUCKETS;
  int32_t *counts =
      at_spi_scratch_of(&r->scratch[worker], (parts + places + 3 * n) * 4 + 64);
  if (!counts) return AT_NO_MEMORY("mini-batches");
  uint32_t *at = (uint32_t *)counts + parts, *local = at + places;
  at_spi_segment s = {.local = local,
                      .row = local + n,
                      .gain = (float *)(local + 2 * n),
                      .begin = begin,
                      .end = t->out->coo_per_device};
  count_parts(r, t, counts);
  scatter(r, t, counts, at, local, local + n, (float *)(local + 2 * n));
  for (int32_t m = 0; m < r->minibatches; m++) {
    s.counts = counts + (size_t)m * (size_t)r->cores;
    s.rows = (t->core * r->minibatches + m) * at_spi_row_block(r);
    int64_t lost = at_spi_fill(r, t, &s);
    if (lost) AT_TRY(at_spi_too_small(r, t));
    t->dropped += lost;
    for (int32_t g = 0; g < r->cores; g++) {
      s.local += s.counts[g];
      s.row += s.counts[g];
      s.gain += s.counts[g];
      s.begin += (int64_t)at_align_up((size_t)s.counts[g], AT_SPINPUT_ALIGN);
    }
    // Without room nothing more is written.
    s.begin = AT_MIN(s.begin, s.end);
  }
  return AT_OK;
}
