// Parameters, row pointers, and who is blamed for what is out of range.
#include "sparsecore/engine.h"

#include <math.h>

#include "abi/dtype.h"
#include "sparsecore/engine_internal.h"

#define BAD(what) \
  AT_FAIL(AT_INVALID_ARGUMENT, "malformed SparseCore step: " what)
static const uint64_t kMost = 1ull << 40;  // elements of anything

// Of a table.
static uint64_t element_bytes(const at_x_sparse *x) {
  return x->dtype == AT_F32 ? 4 : x->dtype == AT_BF16 ? 2 : 1;
}

// Bounds first, so that products cannot overflow, then what must divide.
static at_status check_sizes(const at_x_sparse *x) {
  if (x->pointers > kMost || x->ids > kMost || x->samples > kMost ||
      x->rows > kMost || x->width > kMost ||
      at_mul(AT_MAX(x->rows, x->samples), x->width) > kMost ||
      x->rows > UINT32_MAX)
    return BAD("sizes");
  if (x->op == AT_SPARSE_LOCAL) return AT_OK;
  uint64_t scs = x->scs_per_device;
  if (!scs) return x->minibatching ? AT_OK : BAD("no SparseCores");
  // Row pointers of a block: one per owner, at least 8.
  uint64_t per = AT_MAX(scs * x->num_devices, 8ull);
  bool blocks = x->minibatching ? x->pointers && x->pointers % (per * scs) == 0
                                : x->pointers == per * scs;
  if (!blocks || x->rows % scs || x->samples % scs ||
      (!x->minibatching && x->ids % scs))
    return BAD("what does not divide over the SparseCores");
  return AT_OK;
}

// Does a place of the optimizer lie inside what it names?
static bool place_fits(const at_x_sparse *x, const at_x_sparse_place *p) {
  switch (p->kind) {
    case AT_SPARSE_GRADIENT:
      return true;
    case AT_SPARSE_TABLE:
      return p->index < x->num_tables;
    case AT_SPARSE_HYPER:
      return p->index < x->num_hypers;
    case AT_SPARSE_SCRATCH:
      return p->index <= x->scratch_bytes;
    case AT_SPARSE_CONST:
      return p->index <= x->const_bytes;
    default:
      return false;
  }
}

// Launches stay inside the places, copies inside their sources.
static at_status check_optimizer(const at_x_sparse *x) {
  const at_x_sparse_place *places = at_x_sparse_places(x);
  for (uint32_t i = 0; i < x->num_places; i++)
    if (!place_fits(x, &places[i])) return BAD("a place");
  for (uint32_t i = 0; i < x->num_launches; i++) {
    const at_x_sparse_launch *l = &at_x_sparse_launches(x)[i];
    if (l->places > x->num_places || l->num_places > x->num_places - l->places)
      return BAD("a launch");
  }
  for (uint32_t i = 0; i < x->num_copies; i++) {
    const at_x_sparse_copy *c = &at_x_sparse_copies(x)[i];
    bool fits = c->table < x->num_tables && place_fits(x, &c->from) &&
                c->bytes == x->width * 4;
    if (fits && c->from.kind == AT_SPARSE_SCRATCH)
      fits = c->from.index + (uint64_t)c->bytes <= x->scratch_bytes;
    if (fits && c->from.kind == AT_SPARSE_CONST)
      fits = c->from.index + (uint64_t)c->bytes <= x->const_bytes;
    if (fits && c->from.kind == AT_SPARSE_HYPER)
      fits = c->bytes <= x->hyper_bytes[c->from.index];
    if (!fits) return BAD("a copy");
  }
  return AT_OK;
}

// The engine trusts what has passed here: parameters come from cached files.
at_status at_sc_check(const at_x_sparse *x, uint64_t bytes,
                      uint32_t num_devices) {
  if (bytes < sizeof *x || x->num_launches > 1u << 16 ||
      x->num_places > 1u << 20 || x->num_copies > 1u << 16 ||
      at_x_sparse_bytes(x) != bytes)
    return BAD("length");
  if (x->op >= AT_SPARSE_OPS || x->num_devices != num_devices ||
      !x->num_devices || x->scs_per_device > AT_SC_MAX_PER_DEVICE ||
      !x->num_tables || x->num_tables > AT_SPARSE_MAX_TABLES ||
      x->num_hypers > AT_SPARSE_MAX_HYPERS)
    return BAD("counts");
  // Integers are levels, so they need a quantisation.
  bool integer = x->dtype == AT_S8 || x->dtype == AT_U8;
  if (x->dtype != AT_F32 && x->dtype != AT_BF16 && !integer)
    return BAD("element type");
  if ((x->num_buckets || integer) &&
      (x->num_buckets < 2 || !(x->low < x->high) || !isfinite(x->low) ||
       !isfinite(x->high)))
    return BAD("quantisation");
  AT_TRY(check_sizes(x));
  if (x->op != AT_SPARSE_UPDATE)
    return x->num_tables == 1 && !x->num_hypers && !x->num_launches &&
                   !x->num_copies
               ? AT_OK
               : BAD("a lookup with an optimizer");
  if (x->dtype != AT_F32 || x->has_init) return BAD("an update");
  return check_optimizer(x);
}

// In the order of abi/sparsecore.h.
uint64_t at_sc_buffer_bytes(const at_x_sparse *x, uint32_t i) {
  uint64_t table = x->rows * x->width * element_bytes(x);
  uint64_t batch = x->samples * x->width * 4;
  uint32_t first = at_x_sparse_table(x), operands = at_x_sparse_operands(x);
  bool local = x->op == AT_SPARSE_LOCAL, update = x->op == AT_SPARSE_UPDATE;
  if (i >= operands) return update ? table : batch;
  if (i >= first + x->num_tables)
    return update ? x->hyper_bytes[i - first - x->num_tables] : batch;
  if (i >= first) return table;
  if (!local && i == 0) return x->pointers * 4;
  if (i < (local ? 3u : 4u)) return x->ids * 4;
  return i == 4 && x->minibatching ? 4 : batch;
}

// ---- Row pointers
// Partitions begin at multiples of 8 entries.
static uint64_t round8(uint64_t n) { return (n + 7) & ~7ull; }

// Where block `b` of row pointers begins among the entries, and its pointers.
// Blocks are SparseCore by SparseCore; with minibatches, batch by batch inside
// one, and entries go on from block to block.
static const int32_t *block_of(const at_sc_plan *p, const at_sc_ids *d,
                               uint32_t k, uint32_t batch, uint64_t *base,
                               uint64_t *start) {
  uint64_t b = (uint64_t)k * d->batches + batch;
  const int32_t *r = d->pointers + b * p->per;
  // Without minibatches each SparseCore has a part of the buffer, and pointers
  // count from its begin.
  *base = p->x->minibatching ? 0 : k * (p->x->ids / p->scs);
  *start = p->x->minibatching && b
               ? round8((uint32_t)r[-(int64_t)p->per + p->num_scs - 1])
               : 0;
  return r;
}

// Begins where the owner before ends, rounded up to 8; an owner without ids may
// end before that.
at_sc_span at_sc_span_of(const at_sc_plan *p, uint32_t device, uint32_t k,
                         uint32_t batch, uint32_t owner) {
  AT_ASSERT(device < p->here && k < p->scs && owner < p->num_scs &&
            batch < p->devices[device].batches);
  uint64_t base, start;
  const int32_t *r = block_of(p, &p->devices[device], k, batch, &base, &start);
  if (owner) start = round8((uint32_t)r[owner - 1]);
  uint64_t end = (uint32_t)r[owner];
  AT_ASSERT(base + end <= p->x->ids);  // check_pointers has seen the block
  return (at_sc_span){base + AT_MIN(start, end), base + end};
}

// One block: pointers must not go back and must stay inside the buffer, or the
// SparseCore's part of it.
static at_status check_pointers(const at_sc_plan *p, uint32_t device,
                                uint32_t k, uint32_t batch) {
  const at_sc_ids *d = &p->devices[device];
  uint64_t base, start, last = 0;
  const int32_t *r = block_of(p, d, k, batch, &base, &start);
  uint64_t room = p->x->minibatching ? p->x->ids : p->x->ids / p->scs;
  last = start;
  for (uint32_t g = 0; g < p->num_scs; g++) {
    // A partition without ids may end where the one before does.
    bool back = r[g] < 0 || round8((uint32_t)r[g]) < last;
    if (!back && (uint64_t)r[g] <= room) {
      last = round8((uint32_t)r[g]);
      continue;
    }
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "row pointers of table %s run %s\ndetail: device %u, SparseCore %u, "
        "minibatch %u: partition %u ends at %d, %s%llu",
        p->run->name, back ? "backward" : "past the buffer", p->first + device,
        k, batch, g, r[g], back ? "the one before at " : "of ",
        (unsigned long long)(back ? last : room));
  }
  return AT_OK;
}

// The number of minibatches is an operand: at least 1, at most what there are
// row pointers for.
static at_status read_batches(const at_sc_plan *p, uint32_t device,
                              at_sc_ids *d) {
  d->batches = 1;
  if (!p->x->minibatching) return AT_OK;
  int32_t n = *(const int32_t *)p->run->bufs[device][4];
  // Blocks that the row pointers have room for.
  uint64_t most = p->x->pointers / ((uint64_t)p->per * p->scs);
  if (n < 1 || (uint64_t)n > most)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table %s: device %u has %d minibatches; the row pointers "
                   "are for 1 to %llu",
                   p->run->name, p->first + device, n,
                   (unsigned long long)most);
  d->batches = (uint32_t)n;
  return AT_OK;
}

// SparseCores of a device, when only the number of minibatches tells: as many
// as leave no row pointer over; else the most that the row pointers allow.
static at_status find_scs(const at_sc_run *r, uint32_t *out) {
  const at_x_sparse *x = r->x;
  // The first device's; read_batches looks at each.
  int64_t n = *(const int32_t *)r->bufs[0][4];
  *out = 0;
  for (uint64_t s = 4; s && n > 0; s /= 2) {
    uint64_t one = AT_MAX(s * x->num_devices, 8ull) * s;
    bool fits = x->rows % s == 0 && x->samples % s == 0 &&
                x->pointers % one == 0 && x->pointers / one >= (uint64_t)n;
    bool all = fits && x->pointers == one * (uint64_t)n;
    if (all || (fits && !*out)) *out = (uint32_t)s;
    if (all) break;
  }
  if (*out) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "row_ptrs should be aligned to HBM granularity!\ndetail: "
                 "table %s: %llu row pointers for %u devices and %lld "
                 "minibatches",
                 r->name, (unsigned long long)x->pointers, x->num_devices,
                 (long long)n);
}

// Different rows of a span: equal ids follow each other. Valid as spans are
// sorted by id.
static uint64_t unique_of(const at_sc_ids *d, at_sc_span s) {
  uint64_t n = 0;
  for (uint64_t i = s.begin; i < s.end; i++)
    n += i == s.begin || d->ids[i] != d->ids[i - 1];
  return n;
}

// Counted where the limits are checked; the engine itself needs none. In the
// words of the chip's runtime.
static at_status check_limits(const at_sc_plan *p, uint32_t device, uint32_t k,
                              uint32_t batch) {
  const at_x_sparse *x = p->x;
  for (uint32_t g = 0; g < p->num_scs; g++) {
    at_sc_span s = at_sc_span_of(p, device, k, batch, g);
    if (x->max_ids && s.end - s.begin > x->max_ids)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "Per-core row_ptr has a larger row size than specified in "
                     "max_ids_per_partition (%llu)!\ndetail: table %s, device "
                     "%u, SparseCore %u, partition %u: %llu ids",
                     (unsigned long long)x->max_ids, p->run->name,
                     p->first + device, k, g,
                     (unsigned long long)(s.end - s.begin));
    uint64_t unique = unique_of(&p->devices[device], s);
    if (x->max_unique && unique > x->max_unique)
      return AT_FAIL(
          AT_INVALID_ARGUMENT,
          "DynamicBoundedSlice: Output size cannot accommodate slice "
          "in dimension 0\ndetail: table %s, device %u, SparseCore "
          "%u, partition %u: %llu unique ids, "
          "max_unique_ids_per_partition is %llu",
          p->run->name, p->first + device, k, g, (unsigned long long)unique,
          (unsigned long long)x->max_unique);
  }
  return AT_OK;
}

// All hosts have equally many; a LOCAL step is called device by device.
uint32_t at_sc_devices_here(const at_sc_run *r) {
  if (r->x->op == AT_SPARSE_LOCAL) return 1;
  return r->x->num_devices / (r->hosts ? r->hosts->count : 1);
}

// All memory is the run's scratch; the plan borrows the run's buffers.
at_status at_sc_plan_make(const at_sc_run *r, at_sc_plan *out) {
  const at_x_sparse *x = r->x;
  uint32_t scs = x->scs_per_device;
  if (!scs) AT_TRY(find_scs(r, &scs));
  at_sc_plan p = {.run = r,
                  .x = x,
                  .scs = scs,
                  .num_scs = x->num_devices * scs,
                  .here = at_sc_devices_here(r),
                  .shard_rows = x->rows / scs,
                  .sc_samples = x->samples / scs};
  // at_sc_check, or find_scs, has seen to it.
  AT_ASSERT(p.shard_rows * scs == x->rows && p.sc_samples * scs == x->samples);
  p.per = AT_MAX(p.num_scs, 8u);
  p.first = r->hosts ? r->hosts->me * p.here : 0;
  // Whoever shows the times does not know it otherwise.
  if (r->times) r->times->scs = scs;
  p.devices = at_par_scratch(r->par, p.here * sizeof *p.devices);
  if (!p.devices)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a lookup");
  *out = p;
  for (uint32_t d = 0; d < p.here; d++) {
    at_sc_ids *ids = &p.devices[d];
    *ids = (at_sc_ids){.pointers = r->bufs[d][0],
                       .ids = r->bufs[d][1],
                       .samples = r->bufs[d][2],
                       .gains = r->bufs[d][3]};
    AT_TRY(read_batches(&p, d, ids));
    for (uint32_t k = 0; k < scs; k++)
      for (uint32_t m = 0; m < ids->batches; m++) {
        AT_TRY(check_pointers(&p, d, k, m));
        if (x->checks & AT_SPARSE_CHECK_LIMITS)
          AT_TRY(check_limits(&p, d, k, m));
      }
  }
  return AT_OK;
}

// ---- Ids
// First without branches, as nearly all spans are good.
uint64_t at_sc_first_bad(const at_sc_ids *b, uint64_t begin, uint64_t end,
                         uint64_t rows, uint64_t samples) {
  AT_ASSERT(begin <= end);
  // Negative values are large ones here.
  uint32_t most_rows = (uint32_t)AT_MIN(rows, (uint64_t)INT32_MAX);
  uint32_t most_samples = (uint32_t)AT_MIN(samples, (uint64_t)INT32_MAX);
  // An or over all entries, which the compiler makes vectors of.
  uint32_t bad = 0;
  for (uint64_t i = begin; i < end; i++)
    bad |= ((uint32_t)b->ids[i] >= most_rows) |
           ((uint32_t)b->samples[i] >= most_samples);
  if (!bad) return end;
  uint64_t i = begin;
  while ((uint32_t)b->ids[i] < most_rows &&
         (uint32_t)b->samples[i] < most_samples)
    i++;
  return i;
}

// An id out of range counts before a sample.
at_status at_sc_blame(const at_sc_plan *p, uint32_t device, uint32_t k,
                      uint32_t owner, uint64_t entry) {
  const at_sc_ids *b = &p->devices[device];
  int32_t id = b->ids[entry], sample = b->samples[entry];
  bool row = id < 0 || (uint64_t)id >= p->shard_rows;
  AT_ASSERT(row || sample < 0 || (uint64_t)sample >= p->sc_samples);
  return AT_FAIL(
      AT_INVALID_ARGUMENT,
      "%s %d of table %s is out of range: it has %llu %s\ndetail: device %u, "
      "SparseCore %u, partition %u, entry %llu: id %d of sample %d (row %lld "
      "of "
      "the whole table)",
      row ? "id" : "sample", row ? id : sample, p->run->name,
      (unsigned long long)(row ? p->shard_rows : p->sc_samples),
      row ? "rows on a SparseCore" : "samples on a SparseCore",
      p->first + device, k, owner, (unsigned long long)entry, id, sample,
      (long long)id * p->num_scs + owner);
}

// ---- Times
// Widens the interval of a SparseCore; several threads may do so at once.
void at_sc_worked(const at_sc_run *r, uint32_t core, uint64_t begin) {
  if (!r->times || core >= r->times->count) return;
  at_sc_time *t = &r->times->list[core];
  // The earliest begin and the latest end of all threads.
  uint64_t end = at_clock_ns(), old = atomic_load(&t->begin_ns);
  while (begin < old &&
         !atomic_compare_exchange_weak(&t->begin_ns, &old, begin))
    continue;
  old = atomic_load(&t->end_ns);
  while (end > old && !atomic_compare_exchange_weak(&t->end_ns, &old, end))
    continue;
}

// A step without checks.
static at_status run_plain(const at_sc_run *r) {
  switch (r->x->op) {
    case AT_SPARSE_LOOKUP:
      return at_sc_lookup(r);
    case AT_SPARSE_LOCAL:
      return at_sc_local(r);
    default:
      return at_sc_update(r);
  }
}

// Only steps whose checks look at data take the longer way.
at_status at_sc_run_step(const at_sc_run *r) {
  const at_sc_hosts *h = r->hosts;
  if (h && (!h->count || h->me >= h->count || r->x->num_devices % h->count))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "table %s: %u devices do not divide over %u hosts (this is "
                   "host %u)",
                   r->name, r->x->num_devices, h->count, h->me);
  // Limits are checked with the row pointers.
  return r->x->checks & ~(uint32_t)AT_SPARSE_CHECK_LIMITS
             ? at_sc_run_checked(r, run_plain)
             : run_plain(r);
}
