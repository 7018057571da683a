// Copies. They are made when they are started, so a wait never has to wait for
// an engine; the checks keep the time between start and wait apart
// (core_access.c).
#include "device/core_internal.h"

// Generated code is trusted for addresses, not for what it asks.
static void stop_rank(core_state *c, const at_core_dma *d) {
  if (d->rank < 0 || d->rank > AT_CORE_MAX_RANK || d->elem_bytes < 1)
    core_stop(c, AT_INVALID_ARGUMENT, d->loc, "copy of rank %d, %d bytes each",
              d->rank, d->elem_bytes);
  int32_t bits = d->packed_bits;
  if (bits && (bits < 0 || 8 % bits || d->elem_bytes != 1 || d->add ||
               d->rank == AT_CORE_MAX_RANK))
    core_stop(c, AT_UNIMPLEMENTED, d->loc,
              "a copy of elements of %d bits to or from %d dimensions of %d "
              "bytes each%s",
              bits, d->rank, d->elem_bytes, d->add ? " that adds" : "");
}

// Only the side that holds narrow elements in bytes counts several as one.
int64_t core_dma_elements(const at_core_dma *d, bool dst) {
  return d->packed_bits > 0 && dst == (d->unpack != 0) ? 8 / d->packed_bits : 1;
}

// What the copy moves, without padding.
int64_t core_dma_bytes(const at_core_dma *d) {
  int64_t n = d->elem_bytes;
  for (int32_t i = 0; i < d->rank; i++) n *= d->size[i];
  return n;
}

int64_t core_dma_signals(const at_core_dma *d, bool dst) {
  return (core_dma_bytes(d) + d->padding) * core_dma_elements(d, dst);
}

// From the first byte to behind the last of a strided side.
int64_t core_dma_extent(const at_core_dma *d, bool dst) {
  const int64_t *stride = dst ? d->dst_stride : d->src_stride;
  int64_t n = d->elem_bytes + (core_dma_elements(d, dst) - 1) * d->packed_step;
  for (int32_t i = 0; i < d->rank; i++) {
    if (d->size[i] <= 0) return 0;
    n += (d->size[i] - 1) * stride[i];
  }
  return n;
}

// Generated code checks the slices that it makes; this holds the whole copy
// inside the memory it starts in, whoever made the addresses.
static const region *stop_outside(core_state *c, const at_core_dma *d,
                                  bool dst) {
  const void *base = dst ? d->dst : d->src;
  region_hint *hint = dst ? &c->copied_to : &c->copied_from;
  const char *what = dst ? "destination" : "source";
  int64_t last = core_dma_extent(d, dst);
  if (!last) return NULL;
  const region *r = core_region_near(c, base, hint);
  if (r && (size_t)((const uint8_t *)base - r->base) + (size_t)last <= r->bytes)
    return r;
  char name[64] = "memory that the kernel allocated";
  if (r && r->ref >= 0) core_ref_text(c, (uint32_t)r->ref, name, sizeof name);
  core_stop(
      c, AT_OUT_OF_RANGE, d->loc,
      "DMA %s out of bounds: %lld bytes at offset %lld of a memory of %zu%s%s",
      what, (long long)last,
      r ? (long long)((const uint8_t *)base - r->base) : -1ll,
      r ? r->bytes : (size_t)0, r ? "\ndetail: it is " : "", r ? name : "");
}

// dst += src for n elements of a row, of types that copies add on the chip.
// Copies of several cores may add to one element, and none is lost: so it goes
// element by element.
#define ADD_ROW(T)                                                            \
  static void add_row_##T(uint8_t *dst, const uint8_t *src, int64_t n,        \
                          int64_t dst_stride, int64_t src_stride) {           \
    for (int64_t i = 0; i < n; i++, dst += dst_stride, src += src_stride) {   \
      T old, by, sum;                                                         \
      memcpy(&by, src, sizeof by);                                            \
      __atomic_load((T *)dst, &old, __ATOMIC_RELAXED);                        \
      do sum = (T)(old + by);                                                 \
      while (!__atomic_compare_exchange((T *)dst, &old, &sum, true,           \
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
    }                                                                         \
  }
ADD_ROW(float)
ADD_ROW(uint32_t)
ADD_ROW(uint16_t)
#undef ADD_ROW

typedef void (*add_row_fn)(uint8_t *dst, const uint8_t *src, int64_t n,
                           int64_t dst_stride, int64_t src_stride);

// Types that copies add on the chip; NULL: others.
static add_row_fn add_row_of(at_dtype t) {
  switch (t) {
    case AT_F32:
      return add_row_float;
    case AT_S32:
    case AT_U32:
      return add_row_uint32_t;
    case AT_S16:
    case AT_U16:
      return add_row_uint16_t;
    default:
      return NULL;
  }
}

// Rows are the last dimension.
static void add_box(const box *b, uint32_t d, uint8_t *dst, const uint8_t *src,
                    add_row_fn add) {
  if (d + 1 >= b->rank) {
    bool one = d == b->rank;
    add(dst, src, one ? 1 : b->size[d], one ? 0 : b->dst_stride[d],
        one ? 0 : b->src_stride[d]);
    return;
  }
  for (int64_t i = 0; i < b->size[d]; i++)
    add_box(b, d + 1, dst + i * b->dst_stride[d], src + i * b->src_stride[d],
            add);
}

static box box_of(const at_core_dma *d, void *dst) {
  return (box){
      dst,     d->src,        (uint32_t)d->rank, (uint32_t)d->elem_bytes,
      d->size, d->dst_stride, d->src_stride};
}

// Is it left for later?
static bool is_page(core_state *c, const core_state *to, const at_core_dma *d,
                    const region *from) {
  if (!d->lazy || to != c || d->add) return false;
  box b = box_of(d, d->dst);
  size_t bytes = d->packed_bits ? 0 : core_box_run(&b);
  if (bytes && from && from->stays && core_pages_note(c, d->dst, d->src, bytes))
    return true;
  // What is copied now must not be overwritten by what waits.
  core_pages_settle(c, d->dst, (size_t)core_dma_extent(d, true));
  return false;
}

// A byte on one side, 8 / bits elements in bytes of their own on the other.
static void repack_byte(const at_core_dma *d, uint8_t *dst,
                        const uint8_t *src) {
  int32_t bits = d->packed_bits;
  uint8_t mask = (uint8_t)((1u << bits) - 1), all = 0;
  uint8_t sign = d->packed_signed ? (uint8_t)(1u << (bits - 1)) : 0;
  for (int32_t i = 0; i < 8 / bits; i++) {
    int64_t at = i * d->packed_step;
    if (d->unpack)
      dst[at] = (uint8_t)((((*src >> (i * bits)) & mask) ^ sign) - sign);
    else
      all |= (uint8_t)((src[at] & mask) << (i * bits));
  }
  if (!d->unpack) *dst = all;
}

// Byte by byte: such copies are rare and small.
void core_dma_repack(const at_core_dma *d, uint8_t *dst) {
  int64_t at[AT_CORE_MAX_RANK] = {0};
  AT_ASSERT(d->packed_bits > 0 && 8 % d->packed_bits == 0 &&
            d->elem_bytes == 1 && !d->add);
  for (int64_t left = core_dma_bytes(d); left > 0; left--) {
    int64_t to = 0, from = 0;
    for (int32_t k = 0; k < d->rank; k++) {
      to += at[k] * d->dst_stride[k];
      from += at[k] * d->src_stride[k];
    }
    repack_byte(d, dst + to, (const uint8_t *)d->src + from);
    for (int32_t k = d->rank - 1; k >= 0 && ++at[k] == d->size[k]; k--)
      at[k] = 0;
  }
}

// Refuses sums of types that the chip does not add.
static void stop_sum(core_state *c, const at_core_dma *d) {
  if (d->add && !add_row_of((at_dtype)d->add))
    core_stop(c, AT_UNIMPLEMENTED, d->loc, "copies that add %s",
              at_dtype_of((at_dtype)d->add)->text);
}

// Now, on this thread, with the help of others for large copies.
static void move(core_state *c, const at_core_dma *d, void *dst) {
  box b = box_of(d, dst);
  if (d->packed_bits) {
    core_dma_repack(d, dst);
    return;
  }
  if (!d->add) {
    core_copy_shared(c->launch->par->pool, &b);
    return;
  }
  stop_sum(c, d);
  if ((uintptr_t)dst % (uintptr_t)d->elem_bytes)
    core_stop(c, AT_INVALID_ARGUMENT, d->loc,
              "copies that add %s to an address that is no multiple of %d",
              at_dtype_of((at_dtype)d->add)->text, d->elem_bytes);
  add_box(&b, 0, dst, d->src, add_row_of((at_dtype)d->add));
}

// ---- Padding

// Elements [first, end) of dimensions k and on.
static void clear_box(const at_core_dma *d, uint32_t k, uint8_t *dst,
                      const int64_t *first, const int64_t *end) {
  if (k == (uint32_t)d->rank) {
    memset(dst, 0, (size_t)d->elem_bytes);
    return;
  }
  bool dense = k + 1 == (uint32_t)d->rank && d->dst_stride[k] == d->elem_bytes;
  if (dense && end[k] > first[k])
    memset(dst + first[k] * d->elem_bytes, 0,
           (size_t)((end[k] - first[k]) * d->elem_bytes));
  for (int64_t i = first[k]; !dense && i < end[k]; i++)
    clear_box(d, k + 1, dst + i * d->dst_stride[k], first, end);
}

// What a copy takes along from behind its array is zero: on the chip the rest
// of a tile comes, and not what an earlier copy left where this one goes.
// Checks make it undefined instead.
static bool clears_padding(const core_state *c, const at_core_dma *d) {
  return d->padding && !d->packed_bits && !c->shadow;
}

// The part beyond `size` up to `asked`, dimension by dimension, as far as it is
// VMEM.
static void clear_padding(core_state *to, const at_core_dma *d, uint8_t *dst) {
  int64_t first[AT_CORE_MAX_RANK] = {0}, end[AT_CORE_MAX_RANK];
  const region *r = core_region_of(to, dst);
  size_t last = (size_t)d->elem_bytes;
  for (int32_t k = 0; k < d->rank; k++) {
    end[k] = AT_MAX(d->asked[k], d->size[k]);
    // `asked` may come from another process: a sum too large saturates.
    last = at_add(last, at_mul((size_t)(end[k] - 1), (size_t)d->dst_stride[k]));
  }
  if (!r || r->space != AT_CORE_VMEM ||
      last > r->bytes - (size_t)(dst - r->base))
    return;
  for (int32_t k = 0; k < d->rank; k++) {
    first[k] = AT_MAX(d->size[k], (int64_t)0);
    clear_box(d, 0, dst, first, end);
    first[k] = 0;
    end[k] = AT_MAX(d->size[k], (int64_t)0);
  }
}

// ---- Other processes
void core_dma_dense(const at_core_dma *d, int64_t *stride) {
  int64_t step = d->elem_bytes;
  for (int32_t k = d->rank - 1; k >= 0; k--) {
    stride[k] = step;
    step *= d->size[k];
  }
}

bool core_dma_land(core_state *to, const at_core_dma *d, uint8_t *dst) {
  box b = box_of(d, dst);
  add_row_fn add = d->add ? add_row_of((at_dtype)d->add) : NULL;
  bool suits = add && !((uintptr_t)dst % (uintptr_t)d->elem_bytes);
  if (d->add && !suits) return false;
  if (d->packed_bits)
    core_dma_repack(d, dst);
  else if (add)
    add_box(&b, 0, dst, d->src, add);
  else
    core_copy_box(&b);
  if (clears_padding(to, d)) clear_padding(to, d, dst);
  return true;
}

// The semaphore at the same place of another core; p must be one of `from`'s.
static sem *sem_at(core_state *from, core_state *to, void *p, int32_t loc) {
  uint8_t *first = (uint8_t *)from->sems, *at = p;
  if (at < first || at >= first + sizeof(sem) * from->cap_sems)
    core_stop(from, AT_INVALID_ARGUMENT, loc, "not a semaphore of this core");
  return (sem *)((uint8_t *)to->sems + (at - first));
}

// Signals both sides; the copy is done.
static void finish(core_state *c, core_state *to, const at_core_dma *d) {
  if (d->src_sem)
    core_signal(c, c, sem_at(c, c, d->src_sem, d->loc),
                core_dma_signals(d, false), d->loc);
  if (d->dst_sem)
    core_signal(c, to, sem_at(c, to, d->dst_sem, d->loc),
                core_dma_signals(d, true), d->loc);
}

static int64_t sem_index(core_state *c, void *p, int32_t loc) {
  return p ? sem_at(c, c, p, loc) - c->sems : -1;
}

// With the signal of its destination.
static void copy_elsewhere(core_state *c, const at_core_dma *d) {
  stop_outside(c, d, false);
  const region *r = stop_outside(c, d, true);
  stop_sum(c, d);
  core_far_copy(c, d, r, sem_index(c, d->dst_sem, d->loc));
}

// copied: the destination has been signalled.
static void finish_elsewhere(core_state *c, const at_core_dma *d, bool copied) {
  far_core to = {d->device, d->core, d->subcore, 0};
  int64_t s = sem_index(c, d->dst_sem, d->loc);
  if (s >= 0 && !copied)
    core_far_signal(c, to, s, core_dma_signals(d, true), d->loc);
  if (d->src_sem)
    core_signal(c, c, sem_at(c, c, d->src_sem, d->loc),
                core_dma_signals(d, false), d->loc);
}

static void start_elsewhere(core_state *c, const at_core_dma *d) {
  bool copies = core_dma_bytes(d) > 0;
  if (copies) copy_elsewhere(c, d);
  finish_elsewhere(c, d, copies);
}

// Bounds on both sides, then the checks, then the bytes, then the signals. An
// empty copy signals, too.
void at_core_dma_start(at_core *core, const at_core_dma *d) {
  core_state *c = state_of(core);
  stop_rank(c, d);
  if (core_is_elsewhere(c, d->device)) {
    start_elsewhere(c, d);
    return;
  }
  core_state *to = core_peer(c, d->device, d->core, d->subcore, 0, d->loc);
  if (core_dma_bytes(d) > 0) {
    const region *from = stop_outside(c, d, false);
    stop_outside(c, d, true);
    void *dst = core_translate(c, to, d->dst);
    if (!dst)
      core_stop(
          c, AT_INVALID_ARGUMENT, d->loc,
          "device %d has no such memory: remote copies go to whole operands, "
          "scratch or allocations",
          to->head.device_id);
    if (c->shadow) core_shadow_copy(c, to, d, dst);
    if (!is_page(c, to, d, from)) move(c, d, dst);
    if (clears_padding(c, d)) clear_padding(to, d, dst);
  } else if (c->shadow && to == c) {
    core_shadow_empty_copy(c, d);
  } else if (clears_padding(c, d) && to == c) {
    clear_padding(c, d, d->dst);
  }
  finish(c, to, d);
}

static bool holds(const region *r, const void *p, int64_t bytes) {
  return r && bytes <= (int64_t)r->bytes - ((const uint8_t *)p - r->base);
}

// The short form of a copy to scratch: noted for later if the source stays,
// else a plain copy.
void at_core_page_start(at_core *core, void *dst, void *src, int64_t bytes,
                        void *p, int32_t loc) {
  core_state *c = state_of(core);
  const region *from = core_region_near(c, src, &c->copied_from);
  const region *to = core_region_near(c, dst, &c->copied_to);
  if (!c->shadow && holds(from, src, bytes) && holds(to, dst, bytes) &&
      from->stays && core_pages_note(c, dst, src, (size_t)bytes)) {
    core_signal(c, c, sem_at(c, c, p, loc), bytes, loc);
    return;
  }
  at_core_dma d = {.src = src,
                   .dst = dst,
                   .dst_sem = p,
                   .device = AT_CORE_SELF,
                   .core = AT_CORE_SELF,
                   .subcore = AT_CORE_SELF,
                   .rank = 1,
                   .elem_bytes = 1,
                   .loc = loc,
                   .lazy = 1,
                   .size = {bytes},
                   .src_stride = {1},
                   .dst_stride = {1}};
  at_core_dma_start(core, &d);
}

void at_core_dma_wait(at_core *core, void *p, int64_t bytes, int32_t loc) {
  core_state *c = state_of(core);
  core_wait(c, sem_at(c, c, p, loc), bytes, loc);
}

// ---- Rows by index
// to: NULL: another process has it.
static void move_row(core_state *c, core_state *to, const at_core_dma *row) {
  if (!to) {
    copy_elsewhere(c, row);
    return;
  }
  stop_outside(c, row, false);
  stop_outside(c, row, true);
  void *dst = core_translate(c, to, row->dst);
  if (!dst)
    core_stop(c, AT_INVALID_ARGUMENT, row->loc, "device %d has no such memory",
              to->head.device_id);
  if (c->shadow) core_shadow_copy(c, to, row, dst);
  move(c, row, dst);
}

// Row i of the dense side is row offsets[i] of the table. Indices equal to the
// filter are skipped; others must be in the table.
void at_core_indirect_start(at_core *core, const at_core_indirect *x) {
  core_state *c = state_of(core);
  at_core_dma row = x->rows;
  stop_rank(c, &row);
  if (row.rank < 1)
    core_stop(c, AT_INVALID_ARGUMENT, row.loc, "indirect copy of a scalar");
  core_state *to =
      core_is_elsewhere(c, row.device)
          ? NULL
          : core_peer(c, row.device, row.core, row.subcore, 0, row.loc);
  int64_t rows = row.size[0];
  int64_t src_step = row.src_stride[0], dst_step = row.dst_stride[0];
  bool skips = c->program->record->flags & AT_CORE_NO_BOUNDS_CHECKS &&
               !(c->launch->checks & AT_CHECK_BOUNDS);
  row.size[0] = 1;
  row.asked[0] = 0;
  if (!to) row.dst_sem = NULL, row.padding = 0;  // all rows have one signal
  for (int64_t i = 0; i < rows; i++) {
    int32_t at;
    memcpy(&at, (const uint8_t *)x->offsets + i * x->offset_step, sizeof at);
    bool outside = at < 0 || at >= x->table_rows;
    if (x->has_filter && at == x->filter) continue;
    if (outside && skips) continue;
    if (outside)
      core_stop(c, AT_OUT_OF_RANGE, row.loc,
                "indirect DMA: index %d (element %lld) is outside a table of "
                "%lld rows",
                at, (long long)i, (long long)x->table_rows);
    row.src = (uint8_t *)x->rows.src + (x->scatter ? i : at) * src_step;
    row.dst = (uint8_t *)x->rows.dst + (x->scatter ? at : i) * dst_step;
    if (core_dma_bytes(&row) <= 0) continue;
    move_row(c, to, &row);
  }
  if (c->shadow) core_shadow_indices(c, x);
  if (to)
    finish(c, to, &x->rows);
  else
    finish_elsewhere(c, &x->rows, false);
}
