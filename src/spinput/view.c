// The five forms of a batch as one: samples that can be found by number.
#include <stdlib.h>

#include "spinput/spinput_internal.h"

#define WHERE "table '%s', feature '%s'"
#define WHO(f) (f)->table, (f)->name

// s[0] may be above 0: a slice of a larger array.
static at_status check_splits(const at_spinput_batch *b,
                              const at_spinput_feature *f) {
  const int64_t *s = b->index;
  if (s[0] < 0 || s[b->samples] > b->nnz)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        WHERE ": row splits run from %lld to %lld, past the %lld ids", WHO(f),
        (long long)s[0], (long long)s[b->samples], (long long)b->nnz);
  for (int64_t i = 0; i < b->samples; i++)
    if (s[i] > s[i + 1])
      return AT_FAIL(
          AT_INVALID_ARGUMENT,
          WHERE ", sample %lld: row splits run backward, %lld to %lld", WHO(f),
          (long long)i, (long long)s[i], (long long)s[i + 1]);
  return AT_OK;
}

// The address and length of each sample's ids and weights.
static at_status check_rows(const at_spinput_batch *b,
                            const at_spinput_feature *f) {
  for (int64_t i = 0; i < b->samples; i++) {
    const at_spinput_row *ids = &b->rows[i];
    if (ids->len < 0 || (ids->len && !ids->ptr))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     WHERE ", sample %lld: %lld ids at no address", WHO(f),
                     (long long)i, (long long)ids->len);
    if (b->weight_rows && b->weight_rows[i].len != ids->len)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     WHERE ", sample %lld: %lld ids but %lld weights", WHO(f),
                     (long long)i, (long long)ids->len,
                     (long long)b->weight_rows[i].len);
    if (b->weight_rows && ids->len && !b->weight_rows[i].ptr)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     WHERE ", sample %lld: %lld weights at no address", WHO(f),
                     (long long)i, (long long)ids->len);
  }
  return AT_OK;
}

// Splits from the row numbers index[i * stride]; *sorted: they never decrease.
static at_status count_rows(const at_spinput_batch *b,
                            const at_spinput_feature *f, int stride,
                            int64_t *splits, bool *sorted) {
  *sorted = true;
  memset(splits, 0, ((size_t)b->samples + 1) * sizeof *splits);
  int64_t last = 0;
  for (int64_t i = 0; i < b->nnz; i++) {
    int64_t row = b->index[i * stride];
    if (row < 0 || row >= b->samples)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     WHERE ": element %lld is of sample %lld, of %lld samples",
                     WHO(f), (long long)i, (long long)row,
                     (long long)b->samples);
    *sorted &= row >= last;
    last = row;
    // Counts first; their running sum is where rows begin.
    splits[row + 1]++;
  }
  for (int64_t r = 0; r < b->samples; r++) splits[r + 1] += splits[r];
  AT_ASSERT(splits[b->samples] == b->nnz);
  return AT_OK;
}

// What a SparseTensor promises: columns inside the width, in strictly
// increasing row-major order.
static at_status check_sparse(const at_spinput_batch *b,
                              const at_spinput_feature *f) {
  for (int64_t i = 0; i < b->nnz; i++) {
    const int64_t *at = b->index + 2 * i, *prev = at - 2;
    if (at[1] < 0 || at[1] >= b->width)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     WHERE ", sample %lld: column %lld of %lld", WHO(f),
                     (long long)at[0], (long long)at[1], (long long)b->width);
    if (i && (at[0] < prev[0] || (at[0] == prev[0] && at[1] <= prev[1])))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     WHERE
                     ", sample %lld: indices are not in row-major order "
                     "at element %lld",
                     WHO(f), (long long)at[0], (long long)i);
  }
  return AT_OK;
}

// Raw COO whose rows come in any order: ids and weights by sample. A counting
// sort by sample, into the allocation that held the splits.
static at_status sort_rows(at_spi_view *v, int64_t *splits) {
  const at_spinput_batch *b = v->b;
  size_t n = (size_t)b->nnz, wide = (size_t)b->id_bytes;
  size_t head = ((size_t)b->samples + 1) * sizeof *splits;
  size_t bytes = at_add(at_add(head, at_mul(n, wide)), at_mul(n, 4));
  char *own = bytes == SIZE_MAX ? NULL : realloc(splits, bytes);
  if (!own) return AT_NO_MEMORY("row ids");  // the view still owns the splits
  v->own = own;
  splits = (int64_t *)own;
  v->splits = splits;
  char *ids = own + head;
  float *weights = (float *)(ids + n * wide);
  for (int64_t i = 0; i < b->nnz; i++) {
    int64_t at = splits[b->index[i]]++;
    AT_ASSERT(at < b->nnz);
    memcpy(ids + at * b->id_bytes, (const char *)b->ids + i * b->id_bytes,
           wide);
    if (b->weights) weights[at] = b->weights[i];
  }
  // Each entry has moved to its row's end, which is the next row's begin.
  memmove(splits + 1, splits, (size_t)b->samples * sizeof *splits);
  splits[0] = 0;
  v->ids = ids;
  if (b->weights) v->weights = weights;
  return AT_OK;
}

// For SPARSE and COO: splits are counted from the row numbers. On failure
// nothing is left.
static at_status open_coo(at_spi_view *v, const at_spinput_feature *f) {
  const at_spinput_batch *b = v->b;
  bool sparse = b->form == AT_SPINPUT_SPARSE, sorted;
  size_t bytes = at_mul((size_t)b->samples + 1, sizeof(int64_t));
  int64_t *splits = bytes == SIZE_MAX ? NULL : malloc(bytes);
  if (!splits) return AT_NO_MEMORY("row splits");
  v->own = splits;
  v->splits = splits;
  at_status st = count_rows(b, f, sparse ? 2 : 1, splits, &sorted);
  if (at_ok(st) && sparse) st = check_sparse(b, f);
  if (at_ok(st) && !sorted) st = sort_rows(v, splits);
  if (!at_ok(st)) at_spi_close(v);
  return st;
}

// What is borrowed stays the caller's; only unsorted COO is copied.
at_status at_spi_open(const at_spinput_batch *b, const at_spinput_feature *f,
                      at_spi_view *out) {
  *out = (at_spi_view){.b = b, .ids = b->ids, .weights = b->weights};
  if (b->samples < 1 || b->samples > INT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   WHERE ": a batch of %lld samples; 1 to %d", WHO(f),
                   (long long)b->samples, INT32_MAX);
  if (b->id_bytes != 4 && b->id_bytes != 8)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   WHERE
                   ": ids of %d bytes\n"
                   "hint: int32 or int64",
                   WHO(f), b->id_bytes);
  if (b->nnz < 0 || b->width < 0 ||
      at_mul((size_t)b->samples, (size_t)b->width) > PTRDIFF_MAX / 8)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   WHERE
                   ": impossible sizes: %lld "
                   "elements, width %lld",
                   WHO(f), (long long)b->nnz, (long long)b->width);
  // Empty batches may have no arrays.
  bool some = b->form == AT_SPINPUT_DENSE ? b->width > 0 : b->nnz > 0;
  if (b->form != AT_SPINPUT_ROWS && some && !b->ids)
    return AT_FAIL(AT_INVALID_ARGUMENT, WHERE ": no ids", WHO(f));
  switch (b->form) {
    case AT_SPINPUT_RAGGED:
      if (!b->index)
        return AT_FAIL(AT_INVALID_ARGUMENT, WHERE ": no row splits", WHO(f));
      out->splits = b->index;
      return check_splits(b, f);
    case AT_SPINPUT_DENSE:
      return AT_OK;
    case AT_SPINPUT_ROWS:
      if (!b->rows)
        return AT_FAIL(AT_INVALID_ARGUMENT, WHERE ": no rows", WHO(f));
      return check_rows(b, f);
    case AT_SPINPUT_SPARSE:
      if (b->weights)
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       WHERE
                       ": a sparse tensor has no weights\n"
                       "hint: give them as raw COO",
                       WHO(f));
      // fall through
    case AT_SPINPUT_COO:
      if (some && !b->index)
        return AT_FAIL(AT_INVALID_ARGUMENT, WHERE ": no row ids", WHO(f));
      return open_coo(out, f);
    default:
      return AT_FAIL(AT_INVALID_ARGUMENT, WHERE ": form %d of a batch", WHO(f),
                     b->form);
  }
}

void at_spi_close(at_spi_view *v) {
  free(v->own);
  v->own = NULL;
}
