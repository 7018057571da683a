// Checks that are off unless asked for (flags of spinput/flags.def): NaN going
// in and coming out, buffers that change though nobody writes them, devices
// that do not work on the same launch; and mini-batches written to files.
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "abi/dtype.h"
#include "sparsecore/engine_internal.h"

// The number of the first device here, among those of the program.
static uint32_t first_device(const at_sc_run *r) {
  return r->hosts ? r->hosts->me * at_sc_devices_here(r) : 0;
}

// ---- NaN
// Element i of a table of any type that a step takes.
static bool is_nan_at(const at_x_sparse *x, const void *table, uint64_t i) {
  if (x->dtype == AT_F32) return isnan(((const float *)table)[i]);
  if (x->dtype != AT_BF16) return false;  // integers
  return (((const uint16_t *)table)[i] & 0x7fff) > 0x7f80;
}

// n: there is none.
static uint64_t first_nan(const float *v, uint64_t n) {
  uint64_t i = 0;
  while (i < n && !isnan(v[i])) i++;
  return i;
}

// Where in a program: before a step or after it.
typedef struct nan_check {
  const at_sc_plan *p;
  void *const *const *tables;  // by device; bufs of each
  uint32_t table;              // which of them
  uint32_t count;              // tables: the table and its slots
  const char *what;
} nan_check;

// The row that an entry asks for, in the table and its slots, where a device of
// this host holds it.
static at_status nan_in_row(const nan_check *c, uint32_t device, uint32_t k,
                            uint32_t owner, uint64_t entry) {
  const at_sc_plan *p = c->p;
  const at_x_sparse *x = p->x;
  const at_sc_ids *b = &p->devices[device];
  uint64_t row = (owner % p->scs) * p->shard_rows + (uint32_t)b->ids[entry];
  uint32_t holder = owner / p->scs - p->first;
  if (holder >= p->here) return AT_OK;  // that host looks when it updates
  AT_ASSERT(row < x->rows);
  for (uint32_t t = 0; t < c->count; t++) {
    const void *table = c->tables[holder][c->table + t];
    for (uint64_t col = 0; col < x->width; col++) {
      uint64_t at = row * x->width + col;
      if (t ? !isnan(((const float *)table)[at]) : !is_nan_at(x, table, at))
        continue;
      return AT_FAIL(
          AT_INVALID_ARGUMENT,
          "NaN in the %s of table %s\ndetail: %s row %llu (id %llu), "
          "column %llu, for sample %d of SparseCore %u of device %u",
          c->what, p->run->name, t ? "slot of" : "table's",
          (unsigned long long)row,
          (unsigned long long)b->ids[entry] * p->num_scs + owner,
          (unsigned long long)col, b->samples[entry], k, p->first + device);
    }
  }
  return AT_OK;
}

// Gains, then rows. Entries out of range are blamed here, as the step itself
// comes later.
static at_status nan_in_span(const nan_check *c, uint32_t device, uint32_t k,
                             uint32_t batch, uint32_t owner) {
  const at_sc_ids *b = &c->p->devices[device];
  at_sc_span s = at_sc_span_of(c->p, device, k, batch, owner);
  uint64_t bad =
      at_sc_first_bad(b, s.begin, s.end, c->p->shard_rows, c->p->sc_samples);
  if (bad != s.end) return at_sc_blame(c->p, device, k, owner, bad);
  for (uint64_t i = s.begin; i < s.end; i++) {
    if (isnan(b->gains[i]))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "NaN in the gains of table %s\ndetail: id %llu, sample %d "
                     "of SparseCore %u of device %u",
                     c->p->run->name,
                     (unsigned long long)b->ids[i] * c->p->num_scs + owner,
                     b->samples[i], k, c->p->first + device);
    AT_TRY(nan_in_row(c, device, k, owner, i));
  }
  return AT_OK;
}

// Every entry of this host. Padding between spans may be anything.
static at_status nan_in_rows(const nan_check *c) {
  const at_sc_plan *p = c->p;
  for (uint32_t d = 0; d < p->here; d++)
    for (uint32_t k = 0; k < p->scs; k++)
      for (uint32_t m = 0; m < p->devices[d].batches; m++)
        for (uint32_t g = 0; g < p->num_scs; g++)
          AT_TRY(nan_in_span(c, d, k, m, g));
  return AT_OK;
}

// Samples by columns: gradients, activations. `buffer` is [samples, width] f32.
static at_status nan_in_samples(const at_sc_run *r, uint32_t buffer,
                                const char *what) {
  const at_x_sparse *x = r->x;
  for (uint32_t d = 0; d < at_sc_devices_here(r); d++) {
    uint64_t n = x->samples * x->width;
    uint64_t i = first_nan(r->bufs[d][buffer], n);
    if (i < n)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "NaN in the %s of table %s\ndetail: device %u, sample "
                     "%llu, column %llu",
                     what, r->name, first_device(r) + d,
                     (unsigned long long)(i / x->width),
                     (unsigned long long)(i % x->width));
  }
  return AT_OK;
}

// Of what goes in: rows, gains, and for an update the gradients.
static at_status nan_before(const at_sc_plan *p) {
  const at_sc_run *r = p->run;
  nan_check c = {p, r->bufs, at_x_sparse_table(p->x), p->x->num_tables,
                 "rows that go in"};
  AT_TRY(nan_in_rows(&c));
  if (p->x->op != AT_SPARSE_UPDATE) return AT_OK;
  return nan_in_samples(r, at_x_sparse_table(p->x) - 1, "gradients");
}

// Of what comes out: activations, or the rows that were updated.
static at_status nan_after(const at_sc_plan *p) {
  const at_sc_run *r = p->run;
  uint32_t results = at_x_sparse_operands(p->x);
  if (p->x->op != AT_SPARSE_UPDATE)
    return nan_in_samples(r, results, "activations");
  nan_check c = {p, r->bufs, results, p->x->num_tables, "rows that come out"};
  return nan_in_rows(&c);
}

// ---- Contents
// An update in place writes its operand: nothing to compare.
static bool is_result(const at_sc_run *r, uint32_t device, uint32_t operand) {
  uint32_t n = at_x_sparse_operands(r->x);
  for (uint32_t i = 0; i < at_x_sparse_results(r->x); i++)
    if (r->bufs[device][n + i] == r->bufs[device][operand]) return true;
  return false;
}

// Sums of every operand that the step must leave alone.
static void sum_operands(const at_sc_run *r, uint64_t *sums) {
  uint32_t n = at_x_sparse_operands(r->x);
  for (uint32_t d = 0; d < at_sc_devices_here(r); d++)
    for (uint32_t i = 0; i < n; i++)
      sums[d * n + i] = is_result(r, d, i)
                            ? 0
                            : at_hash(AT_HASH_SEED, r->bufs[d][i],
                                      at_sc_buffer_bytes(r->x, i));
}

// DATA_LOSS names the operand that changed.
static at_status compare_operands(const at_sc_run *r, const uint64_t *before,
                                  const uint64_t *after) {
  static const char *const names[] = {"row pointers", "ids", "samples",
                                      "gains"};
  uint32_t n = at_x_sparse_operands(r->x);
  uint32_t skipped = r->x->op == AT_SPARSE_LOCAL;  // has no row pointers
  for (uint32_t d = 0; d < at_sc_devices_here(r); d++)
    for (uint32_t i = 0; i < n; i++)
      if (before[d * n + i] != after[d * n + i])
        return AT_FAIL(AT_DATA_LOSS,
                       "the contents of a buffer of table %s changed while "
                       "nothing should write it\ndetail: device %u, operand %u "
                       "(%s)",
                       r->name, first_device(r) + d, i,
                       i + skipped < AT_LEN(names)    ? names[i + skipped]
                       : i == at_x_sparse_table(r->x) ? "table"
                                                      : "gradient or other");
  return AT_OK;
}

// ---- Launches
// What every device must bring alike: the number of mini-batches and the
// hyperparameters. Devices of this host only.
static at_status check_launch(const at_sc_run *r) {
  const at_x_sparse *x = r->x;
  uint32_t first = at_x_sparse_table(x) + x->num_tables;
  for (uint32_t d = 1; d < at_sc_devices_here(r); d++) {
    if (x->minibatching &&
        *(const int32_t *)r->bufs[d][4] != *(const int32_t *)r->bufs[0][4])
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "the devices work on different launches: table %s has %d "
                     "minibatches on device %u, %d on device %u",
                     r->name, *(const int32_t *)r->bufs[d][4],
                     first_device(r) + d, *(const int32_t *)r->bufs[0][4],
                     first_device(r));
    for (uint32_t h = 0; h < x->num_hypers; h++)
      if (memcmp(r->bufs[d][first + h], r->bufs[0][first + h],
                 x->hyper_bytes[h]))
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       "the devices work on different launches: "
                       "hyperparameter %u of table %s differs on device %u",
                       h, r->name, first_device(r) + d);
  }
  return AT_OK;
}

// ---- Mini-batches as files
// CSV, a line for each entry, with ids of the whole table.
static void write_entries(const at_sc_plan *p, FILE *f) {
  fprintf(f, "device,sparsecore,minibatch,partition,id,sample,gain\n");
  for (uint32_t d = 0; d < p->here; d++) {
    const at_sc_ids *b = &p->devices[d];
    for (uint32_t k = 0; k < p->scs; k++)
      for (uint32_t m = 0; m < b->batches; m++)
        for (uint32_t g = 0; g < p->num_scs; g++) {
          at_sc_span s = at_sc_span_of(p, d, k, m, g);
          for (uint64_t i = s.begin; i < s.end; i++)
            fprintf(f, "%u,%u,%u,%u,%lld,%d,%.9g\n", p->first + d, k, m, g,
                    (long long)b->ids[i] * p->num_scs + g, b->samples[i],
                    (double)b->gains[i]);
        }
  }
}

// One file a step: FOLDER/TABLE.NUMBER.csv, slashes of the name as underscores.
// The number counts all dumps of the process.
static at_status dump(const at_sc_plan *p) {
  static _Atomic uint32_t count;
  char path[4096], name[128];
  snprintf(name, sizeof name, "%s", p->run->name);
  for (char *c = name; *c; c++)
    if (*c == '/') *c = '_';
  int n = snprintf(path, sizeof path, "%s/%s.%06u.csv", p->run->dump, name,
                   atomic_fetch_add(&count, 1));
  FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "w") : NULL;
  if (!f)
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "cannot write %s\nhint: "
                   "xla_sparse_core_dump_training_mini_batch_path names a "
                   "folder that exists",
                   path);
  write_entries(p, f);
  bool written = !ferror(f);
  if (fclose(f) || !written)
    return AT_FAIL(AT_DATA_LOSS, "cannot write all of %s", path);
  return AT_OK;
}

// ---- A step with checks
// What the flags ask for before the step; *p is made unless the step is LOCAL.
static at_status check_before(const at_sc_run *r, at_sc_plan *p) {
  const uint32_t checks = r->x->checks;
  if (checks & AT_SPARSE_CHECK_LAUNCH) AT_TRY(check_launch(r));
  if (r->x->op == AT_SPARSE_LOCAL) return AT_OK;
  AT_TRY(at_sc_plan_make(r, p));
  if (checks & AT_SPARSE_CHECK_NAN) AT_TRY(nan_before(p));
  bool dumps = r->dump && *r->dump && r->x->op == AT_SPARSE_UPDATE;
  return dumps ? dump(p) : AT_OK;
}

// A failure here is told to the other hosts, which are waiting in the step's
// first exchange.
at_status at_sc_run_checked(const at_sc_run *r,
                            at_status (*step)(const at_sc_run *r)) {
  const uint32_t checks = r->x->checks;
  at_sc_plan p;
  bool parts = r->x->op != AT_SPARSE_LOCAL;
  at_status before = check_before(r, &p);
  if (before.err) return at_sc_tell(parts ? r->hosts : NULL, before);
  uint64_t *sums = NULL;
  size_t n = (size_t)at_sc_devices_here(r) * at_x_sparse_operands(r->x);
  at_status st = AT_OK;
  if (checks & AT_SPARSE_CHECK_CONTENTS) {
    sums = malloc(2 * n * sizeof *sums);
    if (!sums)  // hosts that wait for this one are told
      return at_sc_tell(
          parts ? r->hosts : NULL,
          AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a check"));
    sum_operands(r, sums);
  }
  AT_TRY_GOTO(st, step(r), out);
  if (sums) {
    sum_operands(r, sums + n);
    AT_TRY_GOTO(st, compare_operands(r, sums, sums + n), out);
  }
  if (parts && checks & AT_SPARSE_CHECK_NAN) st = nan_after(&p);
out:
  free(sums);
  return st;
}
