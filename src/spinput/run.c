// The run over a batch: checks, tasks (stack, device, SparseCore), phases.
#include <stdlib.h>

#include "spinput/spinput_internal.h"

enum { MAX_CORES = 1 << 16 };

// A quarter more than asked for, so that it seldom grows.
void *at_spi_scratch_of(at_spi_scratch *s, size_t bytes) {
  if (bytes > s->cap) {
    free(s->ptr);
    // Contents need not survive, so free and allocate is cheaper than realloc.
    s->cap = at_align_up(bytes + bytes / 4, 4096);
    s->ptr = s->cap == SIZE_MAX ? NULL : aligned_alloc(64, s->cap);
    if (!s->ptr) s->cap = 0;
  }
  return s->ptr;
}

// ---- Checks

// Everything else is computed from these counts: they come first.
static at_status check_options(const at_spinput_options *o) {
  if (o->local_devices < 1 || o->cores_per_device < 1 ||
      o->global_devices < o->local_devices)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%d local devices, %d global devices, %d SparseCores each: "
                   "impossible",
                   o->local_devices, o->global_devices, o->cores_per_device);
  // Masks and shifts stand for division by N everywhere.
  int64_t cores = (int64_t)o->global_devices * o->cores_per_device;
  if (cores > MAX_CORES || (cores & (cores - 1)))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "Total number of SparseCores (%lld) must be a power of 2.\n"
                   "detail: %d devices of %d SparseCores; %d at most",
                   (long long)cores, o->global_devices, o->cores_per_device,
                   MAX_CORES);
  return AT_OK;
}

// The most that the limits can need: every partition of every core of every
// mini-batch full.
at_status at_spinput_sizes_of(const at_spinput_options *o,
                              const at_spinput_stack *k,
                              at_spinput_sizes *out) {
  AT_TRY(check_options(o));
  if (k->max_ids < 1 || k->max_unique < 1)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table '%s': max_ids_per_partition %d, "
                   "max_unique_ids_per_partition %d; both must be positive",
                   k->name, k->max_ids, k->max_unique);
  int64_t s = o->cores_per_device, n = o->global_devices * s;
  int64_t blocks = o->minibatching ? AT_SPINPUT_BUCKETS : 1;
  int64_t limit =
      (int64_t)at_align_up((size_t)k->max_ids, AT_SPINPUT_ALIGN) * s * blocks;
  limit = limit > INT64_MAX / n ? INT64_MAX : limit * n;
  int64_t coo = limit;
  if (k->coo_per_device) {
    // Each core's part must be a multiple of 8.
    int64_t step = AT_SPINPUT_ALIGN * s;
    coo = ((int64_t)k->coo_per_device + step - 1) / step * step;
    if (k->coo_per_device < 0 || coo > limit)
      return AT_FAIL(
          AT_INVALID_ARGUMENT,
          "Suggested Coo Buffer Size is larger than the theoretical "
          "max for table %s: %lld vs %lld. Adjust the suggested size "
          "or the max_ids_per_partition values.",
          k->name, (long long)coo, (long long)limit);
  }
  if (coo >= INT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "Computed Coo Buffer Size (%lld) for table %s is out of the "
                   "valid range (0, INT_MAX).\n"
                   "hint: lower max_ids_per_partition (%d), or set "
                   "suggested_coo_buffer_size_per_device",
                   (long long)coo, k->name, k->max_ids);
  *out =
      (at_spinput_sizes){AT_MAX(n, AT_SPINPUT_ALIGN) * blocks * s, coo, limit};
  return AT_OK;
}

// What a feature says of itself; check_stack compares it with the others.
static at_status check_feature(const at_spi_run *r, const at_spinput_stack *k,
                               const at_spinput_feature *f, int32_t batches) {
  if (f->input < 0 || f->input >= batches)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table '%s', feature '%s': batch %d of %d", f->table,
                   f->name, f->input, batches);
  if (f->vocabulary < 1 || f->col_offset < 0 || f->row_offset < 0 ||
      f->col_shift < 0 || f->col_shift >= r->cores || f->col_offset % r->cores)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "table '%s', feature '%s': stack metadata do not fit: "
        "vocabulary %lld, row offset %d, column offset %d, shift %d, "
        "with %d SparseCores",
        f->table, f->name, (long long)f->vocabulary, f->row_offset,
        f->col_offset, f->col_shift, r->cores);
  if (f->vocabulary > INT32_MAX - f->col_offset - r->cores)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table '%s', feature '%s': rows up to %lld of stack '%s'; "
                   "ids have 31 bits\n"
                   "hint: stack fewer tables",
                   f->table, f->name,
                   (long long)f->col_offset + (long long)f->vocabulary,
                   k->name);
  return AT_OK;
}

// Features lie behind each other in the core's batch without holes. Buffers
// must have just the sizes of at_spinput_sizes_of.
static at_status check_stack(const at_spi_run *r, const at_spinput_stack *k,
                             const at_spinput_out *out) {
  const at_spinput_options *o = r->o;
  at_spinput_sizes sizes;
  AT_TRY(at_spinput_sizes_of(o, k, &sizes));
  if (out->rows_per_device != sizes.rows_per_device ||
      out->coo_per_device != sizes.coo_per_device || !out->row_pointers ||
      !out->embedding_ids || !out->sample_ids || !out->gains)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "table '%s': buffers of %lld row pointers and %lld elements; "
        "%lld and %lld are needed",
        k->name, (long long)out->rows_per_device,
        (long long)out->coo_per_device, (long long)sizes.rows_per_device,
        (long long)sizes.coo_per_device);
  if (k->combiner < AT_SPINPUT_SUM || k->combiner > AT_SPINPUT_SQRTN)
    return AT_FAIL(AT_INVALID_ARGUMENT, "table '%s': combiner %d", k->name,
                   k->combiner);
  int64_t parts = (int64_t)o->local_devices * o->cores_per_device, rows = 0;
  for (int32_t i = 0; i < k->feature_count; i++) {
    const at_spinput_feature *f = &k->features[i];
    int64_t samples = r->batches[f->input].samples;
    if (samples % parts)
      return AT_FAIL(
          AT_INVALID_ARGUMENT,
          "table '%s', feature '%s': batch size (%lld) must be divisible by "
          "num_sc_per_device (%d) times local devices (%d)",
          f->table, f->name, (long long)samples, o->cores_per_device,
          o->local_devices);
    // Offsets are global: N times what one core has before.
    if (f->row_offset != rows * r->cores)
      return AT_FAIL(
          AT_INVALID_ARGUMENT,
          "table '%s', feature '%s': row offset %d, but the features "
          "before it in stack '%s' have %lld samples",
          f->table, f->name, f->row_offset, k->name,
          (long long)(rows * r->cores));
    rows += samples / parts;
  }
  if (rows * r->cores > INT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT, "table '%s': %lld samples", k->name,
                   (long long)(rows * r->cores));
  return AT_OK;
}

// One view a batch, though several features may read it.
static at_status open_views(at_spi_run *r, const at_spinput_stack *stacks,
                            int32_t stack_count, int32_t batch_count) {
  for (int32_t i = 0; i < stack_count; i++) {
    const at_spinput_stack *k = &stacks[i];
    if (k->feature_count < 1)
      return AT_FAIL(AT_INVALID_ARGUMENT, "table '%s' has no feature", k->name);
    for (int32_t j = 0; j < k->feature_count; j++) {
      const at_spinput_feature *f = &k->features[j];
      AT_TRY(check_feature(r, k, f, batch_count));
      at_spi_view *v = &r->views[f->input];
      if (!v->b) AT_TRY(at_spi_open(&r->batches[f->input], f, v));
    }
  }
  return AT_OK;
}

// max_ids_per_chip_per_sample, over all features of the sample. Off where the
// limit is 0. Sums over features, sample by sample.
static at_status check_samples(const at_spi_run *r,
                               const at_spinput_stack *stacks, int32_t count) {
  int32_t max = r->o->max_ids_per_sample;
  if (max <= 0) return AT_OK;
  int64_t samples = r->batches[stacks[0].features[0].input].samples;
  // All features have samples of one batch: sample k of each is the same
  // example.
  int64_t *sum = calloc((size_t)samples, sizeof *sum);
  if (!sum) return AT_NO_MEMORY("samples");
  at_status st = AT_OK;
  for (int32_t i = 0; i < count && at_ok(st); i++)
    for (int32_t j = 0; j < stacks[i].feature_count && at_ok(st); j++) {
      const at_spinput_feature *f = &stacks[i].features[j];
      const at_spi_view *v = &r->views[f->input];
      for (int64_t k = 0; k < AT_MIN(samples, v->b->samples); k++) {
        sum[k] += at_spi_sample_of(v, k).len;
        if (sum[k] <= max) continue;
        st = AT_FAIL(AT_RESOURCE_EXHAUSTED,
                     "sample %lld has %lld ids up to table '%s', feature '%s'; "
                     "max_ids_per_chip_per_sample is %d",
                     (long long)k, (long long)sum[k], f->table, f->name, max);
        break;
      }
    }
  free(sum);
  return st;
}

// ---- Phases

// Tasks of a worker: each writes its own status.
static void group(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  at_spi_run *r = arg;
  for (int64_t i = begin; i < end; i++)
    r->tasks[i].st = at_spi_group(r, &r->tasks[i], worker);
}

// In the order of tasks, so that the message does not depend on the threads.
// The others are freed.
static at_status first_error(at_spi_run *r) {
  at_status st = AT_OK;
  for (int64_t i = 0; i < r->task_count; i++) {
    st = at_status_join(st, r->tasks[i].st);
    r->tasks[i].st = AT_OK;
  }
  return st;
}

// Where a task's elements start: behind those of the device's cores before it.
static int64_t start_of(const at_spi_run *r, const at_spi_task *t) {
  int64_t at = 0;
  for (const at_spi_task *b = t - t->core; b < t; b++)
    at += r->minibatches > 1 ? at_spi_padded_split(r, b) : at_spi_padded(r, b);
  return AT_MIN(at, t->out->coo_per_device);
}

// With mini-batches, cores of a device share its buffer: where one begins
// depends on those before it.
static void fill(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  at_spi_run *r = arg;
  for (int64_t i = begin; i < end; i++) {
    at_spi_task *t = &r->tasks[i];
    int64_t start = start_of(r, t);
    if (r->minibatches > 1) {
      t->st = at_spi_fill_split(r, t, start, worker);
      continue;
    }
    at_spi_segment s = {.local = t->local,
                        .row = t->row,
                        .gain = t->gain,
                        .counts = t->ids,
                        .rows = t->core * at_spi_row_block(r),
                        .begin = start,
                        .end = t->out->coo_per_device};
    t->dropped = at_spi_fill(r, t, &s);
    if (t->dropped) t->st = at_spi_too_small(r, t);
  }
}

// ---- Agreement
static const uint64_t kFailed = UINT64_C(1) << 63;

at_status at_spi_agree(at_spi_run *r, bool again, uint64_t *bits) {
  if (!r->o->agree) return AT_OK;
  r->awaited = false;
  AT_TRY(r->o->agree(r->o->agree_arg, bits));
  if (*bits & kFailed)
    return AT_FAIL(AT_ABORTED, "another host failed in this batch");
  r->awaited = again && *bits;
  return AT_OK;
}

// The other hosts would wait for this one, which has failed, where they agree
// next.
static void tell_failure(at_spi_run *r) {
  uint64_t bits = kFailed;
  if (r->awaited) at_status_free(at_spi_agree(r, false, &bits));
}

// One mini-batch is enough where no task of any host is over a limit.
static at_status minibatch(at_spi_run *r) {
  uint64_t over = 0;
  for (int64_t i = 0; i < r->task_count; i++) over |= r->tasks[i].over;
  AT_TRY(at_spi_agree(r, true, &over));
  // Every host decides alike, as `over` was agreed on.
  if (over) AT_TRY(at_spi_split(r));
  at_pool_for(r->pool, r->task_count, 1, fill, r);
  return first_error(r);
}

// Statistics as the caller wants them, from what was counted before dropping.
static void count_stats(const at_spi_run *r) {
  const int32_t cores = r->cores, s = r->o->cores_per_device;
  for (int64_t i = 0; i < r->task_count; i++) {
    const at_spi_task *t = &r->tasks[i];
    at_spinput_out *o = t->out;
    for (int32_t g = 0; g < cores; g++) {
      int64_t at = (int64_t)t->device * cores + g;
      if (o->max_ids)
        o->max_ids[at] =
            t->core ? AT_MAX(o->max_ids[at], t->ids[g]) : t->ids[g];
      if (o->max_unique)
        o->max_unique[at] =
            t->core ? AT_MAX(o->max_unique[at], t->unique[g]) : t->unique[g];
    }
    if (o->required)
      o->required[t->device * s + t->core] = (int32_t)at_spi_padded(r, t);
    o->dropped += t->dropped;
  }
}

// A task for each SparseCore of this host and each stack. Counts of all lie in
// one array.
static at_status make_tasks(at_spi_run *r, const at_spinput_stack *stacks,
                            at_spinput_out *outs) {
  const at_spinput_options *o = r->o;
  const int64_t parts = (int64_t)o->local_devices * o->cores_per_device;
  r->tasks = calloc((size_t)r->task_count, sizeof *r->tasks);
  r->counts = calloc((size_t)r->task_count * 3, (size_t)r->cores * 4);
  r->scratch = calloc(at_pool_threads(r->pool), sizeof *r->scratch);
  if (!r->tasks || !r->counts || !r->scratch) return AT_NO_MEMORY("tasks");
  for (int64_t i = 0; i < r->task_count; i++) {
    at_spi_task *t = &r->tasks[i];
    int64_t part = i % parts;
    *t = (at_spi_task){.stack = &stacks[i / parts],
                       .out = &outs[i / parts],
                       .device = (int32_t)(part / o->cores_per_device),
                       .core = (int32_t)(part % o->cores_per_device)};
    for (int32_t j = 0; j < t->stack->feature_count; j++)
      t->samples += r->batches[t->stack->features[j].input].samples / parts;
    // Three counts by owner.
    t->ids = r->counts + i * 3 * r->cores;
    t->unique = t->ids + r->cores;
    t->kept = t->unique + r->cores;
  }
  return AT_OK;
}

// Also after a failure half-way.
static void release(at_spi_run *r, int32_t batch_count) {
  for (int64_t i = 0; r->tasks && i < r->task_count; i++) {
    at_spi_task *t = &r->tasks[i];
    at_status_free(t->st);
    free(t->block);
    if (t->kept != t->unique + r->cores) free(t->kept);
  }
  for (uint32_t i = 0; r->scratch && i < at_pool_threads(r->pool); i++)
    free(r->scratch[i].ptr);
  for (int32_t i = 0; r->views && i < batch_count; i++)
    at_spi_close(&r->views[i]);
  free(r->scratch);
  free(r->counts);
  free(r->tasks);
  free(r->views);
}

// Phases: check, group each core's ids, cut into mini-batches, write. Threads
// take whole tasks, so no phase needs a lock.
at_status at_spinput_run(at_pool *pool, const at_spinput_options *o,
                         const at_spinput_stack *stacks, int32_t stack_count,
                         const at_spinput_batch *batches, int32_t batch_count,
                         at_spinput_out *outs, int32_t *num_minibatches) {
  AT_TRY(check_options(o));
  if (stack_count < 1 || batch_count < 1)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%d stacks, %d batches: no input",
                   stack_count, batch_count);
  at_spi_run r = {.pool = pool,
                  .o = o,
                  .stacks = stacks,
                  .batches = batches,
                  .cores = o->global_devices * o->cores_per_device,
                  .awaited = o->minibatching && o->agree,
                  .minibatches = 1};
  r.core_bits = __builtin_ctz((uint32_t)r.cores);
  r.task_count = (int64_t)stack_count * o->local_devices * o->cores_per_device;
  r.views = calloc((size_t)batch_count, sizeof *r.views);
  at_status st = r.views ? AT_OK : AT_NO_MEMORY("batches");
  if (st.err) goto out;
  AT_TRY_GOTO(st, open_views(&r, stacks, stack_count, batch_count), out);
  for (int32_t i = 0; i < stack_count; i++) {
    outs[i].dropped = 0;
    AT_TRY_GOTO(st, check_stack(&r, &stacks[i], &outs[i]), out);
  }
  AT_TRY_GOTO(st, check_samples(&r, stacks, stack_count), out);
  AT_TRY_GOTO(st, make_tasks(&r, stacks, outs), out);
  at_pool_for(pool, r.task_count, 1, group, &r);
  AT_TRY_GOTO(st, first_error(&r), out);
  if (o->minibatching) AT_TRY_GOTO(st, minibatch(&r), out);
  count_stats(&r);
  *num_minibatches = r.minibatches;
out:
  if (st.err) tell_failure(&r);
  release(&r, batch_count);
  return st;
}
