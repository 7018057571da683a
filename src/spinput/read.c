// The buffers read back: partitions in order, each checked before it is used.
#include <math.h>

#include "spinput/spinput_internal.h"

// Counts first, then whether as many row pointers and elements are there as
// they need.
static at_status check_shape(const at_spinput_coo *c, const char *table) {
  int64_t block = AT_MAX(c->cores, AT_SPINPUT_ALIGN);
  if (c->cores < 1 || (c->cores & (c->cores - 1)) || c->cores_per_device < 1 ||
      c->cores_per_device > c->cores || c->minibatches < 1 ||
      c->minibatches > AT_SPINPUT_BUCKETS ||
      (c->minibatches > 1 && !c->minibatching) || c->coo < 0 ||
      c->coo > INT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table '%s': %d SparseCores, %d per device, %d "
                   "mini-batches, %lld elements: impossible",
                   table, c->cores, c->cores_per_device, c->minibatches,
                   (long long)c->coo);
  // Row pointers may be more than needed: room for mini-batches that are not
  // there.
  int64_t need = block * c->cores_per_device * c->minibatches;
  if (c->rows < need)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "row_ptrs should be aligned to HBM granularity!\n"
                   "detail: table '%s' has %lld row pointers; %d SparseCores "
                   "and %d mini-batches take %lld",
                   table, (long long)c->rows, c->cores_per_device,
                   c->minibatches, (long long)need);
  if (!c->minibatching && c->coo % c->cores_per_device)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table '%s': %lld elements for %d SparseCores", table,
                   (long long)c->coo, c->cores_per_device);
  return AT_OK;
}

// Elements of one partition.
static at_status check_ids(const at_spinput_coo *c, const char *table,
                           const at_spinput_part *p) {
  for (int64_t i = p->begin; i < p->end; i++) {
    if (c->embedding_ids[i] < 0 || c->embedding_ids[i] >= c->rows_per_core)
      return AT_FAIL(AT_OUT_OF_RANGE,
                     "table '%s', SparseCore %d, sample %d: row %d of the %lld "
                     "on SparseCore %d (id %lld of the stack)",
                     table, p->core, c->sample_ids[i], c->embedding_ids[i],
                     (long long)c->rows_per_core, p->owner,
                     (long long)c->embedding_ids[i] * c->cores + p->owner);
    if (c->sample_ids[i] < 0 || c->sample_ids[i] >= c->samples_per_core)
      return AT_FAIL(AT_OUT_OF_RANGE,
                     "table '%s', SparseCore %d: sample %d of %lld, row %d",
                     table, p->core, c->sample_ids[i],
                     (long long)c->samples_per_core, c->embedding_ids[i]);
    if (isnan(c->gains[i]))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "table '%s', SparseCore %d, sample %d, row %d: the gain "
                     "is NaN",
                     table, p->core, c->sample_ids[i], c->embedding_ids[i]);
  }
  return AT_OK;
}

// With mini-batches, partitions of all cores lie behind each other in one
// buffer; without, each core has a part of its own.
at_status at_spinput_read(const at_spinput_coo *c, const char *table, bool ids,
                          at_status (*fn)(void *arg, const at_spinput_part *p),
                          void *arg) {
  AT_TRY(check_shape(c, table));
  const int64_t block = AT_MAX(c->cores, AT_SPINPUT_ALIGN);
  const int64_t slice = c->coo / c->cores_per_device;
  const int32_t *pointer = c->row_pointers;
  int64_t at = 0;
  for (int32_t k = 0; k < c->cores_per_device; k++) {
    int64_t base = c->minibatching ? 0 : k * slice;
    int64_t limit = c->minibatching ? c->coo : base + slice;
    if (!c->minibatching) at = base;
    for (int32_t m = 0; m < c->minibatches; m++, pointer += block) {
      AT_ASSERT(pointer - c->row_pointers + block <= c->rows);  // check_shape
      for (int32_t g = 0; g < c->cores; g++) {
        // A partition begins where the one before ended, rounded up to 8.
        at_spinput_part p = {k, m, g, at, base + pointer[g]};
        if (p.end < p.begin || p.end > limit)
          return AT_FAIL(
              AT_INVALID_ARGUMENT,
              "table '%s', SparseCore %d, mini-batch %d: the row pointer of "
              "partition %d %s: %d, after %lld of %lld",
              table, k, m, g,
              p.end < p.begin ? "runs backward" : "is past the buffer",
              pointer[g], (long long)(p.begin - base),
              (long long)(limit - base));
        if (ids) AT_TRY(check_ids(c, table, &p));
        if (fn) AT_TRY(fn(arg, &p));
        at = AT_MIN((int64_t)at_align_up((size_t)p.end, AT_SPINPUT_ALIGN),
                    limit);
      }
    }
  }
  return AT_OK;
}
