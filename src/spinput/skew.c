// Where a feature's ids go, and which of them are hot.
#include <stdlib.h>

#include "spinput/spinput_internal.h"

// Most frequent first, lower ids first among equals.
static int by_count(const void *a, const void *b) {
  const at_spinput_hot *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  return x->id < y->id ? -1 : x->id > y->id;
}

// Runs of equal ids in sorted keys; *out is the caller's to free.
static at_status count_equal(const uint64_t *keys, int64_t n,
                             at_spinput_hot **out, int64_t *found) {
  at_spinput_hot *all = malloc(at_mul((size_t)n + 1, sizeof *all));
  if (!all) return AT_NO_MEMORY("hot ids");
  // Equal ids are neighbours after the sort.
  int64_t m = 0;
  for (int64_t i = 0; i < n; i++) {
    int32_t id = (int32_t)(keys[i] >> 32);
    if (m && all[m - 1].id == id)
      all[m - 1].count++;
    else
      all[m++] = (at_spinput_hot){id, 1};
  }
  qsort(all, (size_t)m, sizeof *all, by_count);
  *out = all;
  *found = m;
  return AT_OK;
}

// keys: the ids in the upper halves, as at_spi_sort wants them.
static at_status collect(const at_spi_view *v, const at_spinput_feature *f,
                         int32_t cores, uint64_t *keys, int64_t *histogram) {
  int64_t n = 0;
  for (int64_t r = 0; r < v->b->samples; r++) {
    at_spi_sample s = at_spi_sample_of(v, r);
    for (int64_t i = 0; i < s.len; i++) {
      int64_t id = at_spi_id(v, s.ids, i);
      if (id < 0 || id >= f->vocabulary)
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       "table '%s', feature '%s', sample %lld: id %lld is "
                       "outside 0..%lld",
                       f->table, f->name, (long long)r, (long long)id,
                       (long long)f->vocabulary - 1);
      keys[n++] = (uint64_t)id << 32;
      histogram[(id + f->col_shift) & (cores - 1)]++;
    }
  }
  return AT_OK;
}

// Sorting all ids costs less than a hash table of them, and gives the counts in
// order.
at_status at_spinput_skew(const at_spinput_options *o,
                          const at_spinput_feature *f,
                          const at_spinput_batch *batch, int64_t *histogram,
                          at_spinput_hot *hot, int32_t hot_len,
                          int32_t *hot_found) {
  int64_t cores = (int64_t)o->global_devices * o->cores_per_device;
  if (cores < 1 || cores > INT32_MAX || (cores & (cores - 1)) ||
      f->vocabulary > INT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table '%s': vocabulary %lld over %lld SparseCores",
                   f->table, (long long)f->vocabulary, (long long)cores);
  if (hot_len < 0)
    return AT_FAIL(AT_INVALID_ARGUMENT, "table '%s': the %d ids that are hot",
                   f->table, hot_len);
  at_spi_view v;
  at_spinput_hot *all = NULL;
  int64_t n = 0, found;
  AT_TRY(at_spi_open(batch, f, &v));
  for (int64_t r = 0; r < batch->samples; r++) n += at_spi_sample_of(&v, r).len;
  // The sort counts in 32 bits.
  uint64_t *keys =
      n > UINT32_MAX ? NULL : malloc(at_mul(2 * (size_t)n + 1, sizeof *keys));
  at_status st = keys ? AT_OK : AT_NO_MEMORY("ids");
  memset(histogram, 0, (size_t)cores * sizeof *histogram);
  if (at_ok(st)) st = collect(&v, f, (int32_t)cores, keys, histogram);
  if (at_ok(st))
    st = count_equal(at_spi_sort(keys, keys + n, n, 31), n, &all, &found);
  if (at_ok(st)) {
    *hot_found = (int32_t)AT_MIN(found, hot_len);
    memcpy(hot, all, (size_t)*hot_found * sizeof *hot);
  }
  free(all);
  free(keys);
  at_spi_close(&v);
  return st;
}
