// Partitions into the buffers: elements, padding between them, row pointers.
#include <math.h>

#include "spinput/spinput_internal.h"

// Elements [begin, end) of a device whose buffers begin at `base`: an id and
// sample that nobody has, a gain that would be seen.
static void pad(const at_spinput_out *o, int64_t base, int64_t begin,
                int64_t end) {
  for (int64_t i = base + begin; i < base + end; i++) {
    o->embedding_ids[i] = o->sample_ids[i] = AT_SPINPUT_PAD;
    o->gains[i] = nanf("");
  }
}

// Partition after partition, each padded to a multiple of 8. Where the buffer
// ends, what is left is lost, and later row pointers stay at the last element
// that was written.
int64_t at_spi_fill(const at_spi_run *r, const at_spi_task *t,
                    const at_spi_segment *s) {
  const at_spinput_out *o = t->out;
  const int64_t base = t->device * o->coo_per_device;
  int32_t *pointer = o->row_pointers + t->device * o->rows_per_device + s->rows;
  AT_ASSERT(s->begin <= s->end && s->end <= o->coo_per_device);
  AT_ASSERT(s->rows + at_spi_row_block(r) <= o->rows_per_device);
  int64_t from = 0, at = s->begin, lost = 0;
  int32_t g = 0;
  for (; g < r->cores && !lost; g++) {
    int64_t n = s->counts[g];
    if (n > s->end - at) {
      lost = n - (s->end - at);
      n -= lost;
    }
    // The arrays of the task lie in the order of the buffers.
    memcpy(o->embedding_ids + base + at, s->local + from, (size_t)n * 4);
    memcpy(o->sample_ids + base + at, s->row + from, (size_t)n * 4);
    memcpy(o->gains + base + at, s->gain + from, (size_t)n * 4);
    from += n;
    at += n;
    AT_ASSERT(n >= 0 && at <= s->end);
    if (lost) break;
    pointer[g] = (int32_t)(at - s->base);
    int64_t aligned =
        AT_MIN((int64_t)at_align_up((size_t)at, AT_SPINPUT_ALIGN), s->end);
    pad(o, base, at, aligned);
    at = aligned;
  }
  // Partitions that were not reached, and pointers that only fill the block,
  // end where the last one did.
  for (int64_t i = g; i < at_spi_row_block(r); i++)
    pointer[i] = (int32_t)(at - s->base);
  for (g++; lost && g < r->cores; g++) lost += s->counts[g];
  return lost;
}

// The size that would do goes into the message: of the whole device, as that is
// what users set.
at_status at_spi_too_small(const at_spi_run *r, const at_spi_task *t) {
  if (r->o->allow_dropping) return AT_OK;
  const int32_t cores = r->o->cores_per_device;
  int64_t need = 0;           // of the device
  if (!r->o->minibatching) {  // every core has a part of its own
    need = at_spi_padded(r, t) * cores;
  } else {
    // Tasks of a device's cores lie side by side.
    for (const at_spi_task *c = t - t->core; c < t - t->core + cores; c++)
      need +=
          r->minibatches > 1 ? at_spi_padded_split(r, c) : at_spi_padded(r, c);
  }
  return AT_FAIL(
      AT_RESOURCE_EXHAUSTED,
      "The static buffer is too small for the current batch: the ids of table "
      "'%s' take %lld elements on device %d (SparseCore %d is the "
      "first without room); there are %lld\n"
      "hint: raise suggested_coo_buffer_size_per_device to %lld, or allow ids "
      "to be dropped",
      t->stack->name, (long long)need, t->device, t->core,
      (long long)t->out->coo_per_device, (long long)need);
}

// Counts again up to the first element over a limit, and turns its row back
// into the id of its table by undoing offset and rotation.
at_status at_spi_over(const at_spi_run *r, const at_spi_task *t, int32_t owner,
                      int32_t bucket) {
  int64_t from = 0;
  for (int32_t g = 0; g < owner; g++) from += t->ids[g];
  int64_t end = from + t->ids[owner], first = -1;
  int32_t ids = 0, unique = 0, over_ids = 0, max = t->stack->max_ids;
  uint32_t last = UINT32_MAX;
  for (int64_t i = from; i < end; i++) {
    if (bucket >= 0 && t->bucket[i] != bucket) continue;
    ids++;
    unique += ids == 1 || t->local[i] != last;
    last = t->local[i];
    // The first that is over; the rest is still counted, for the figure in the
    // message.
    if (first < 0 && (ids > max || unique > t->stack->max_unique)) first = i;
  }
  over_ids = ids > max;
  if (first < 0) return AT_FAIL(AT_INTERNAL, "no id is over the limits");
  int64_t sample;
  const at_spinput_feature *f = at_spi_feature_of(r, t, t->row[first], &sample);
  const char *kind = over_ids ? "ids" : "unique ids";
  uint32_t col = t->local[first] * (uint32_t)r->cores + (uint32_t)owner -
                 (uint32_t)f->col_offset;
  uint32_t mask = (uint32_t)r->cores - 1;
  uint32_t id = ((col - (uint32_t)f->col_shift) & mask) | (col & ~mask);
  return AT_FAIL(
      AT_RESOURCE_EXHAUSTED,
      "Observed max %s per partition: %d for table: %s is greater than the set "
      "max %s per partition: %d. Use `allow_id_dropping` or increase the "
      "`max_%s_per_partition`. You could also try to reduce the batch size.\n"
      "detail: partition %d of SparseCore %d of device %d%s; the first id over "
      "the limit is %u of table '%s', feature '%s', sample %lld",
      kind, over_ids ? ids : unique, t->stack->name, kind,
      over_ids ? max : t->stack->max_unique, over_ids ? "ids" : "unique_ids",
      owner, t->core, t->device, bucket >= 0 ? ", in one mini-batch" : "", id,
      f->table, f->name, (long long)sample);
}
