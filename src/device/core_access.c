// What generated code announces to the checks: loads, stores and copies.
#include "device/core_shadow.h"

#include <stdlib.h>

// ---- Loads, stores, copies
// A load or store: copies under way first, then the granules, then what the
// ends of scopes need to know.
void at_core_access(at_core *core, const at_core_view *v, int32_t kind,
                    int32_t loc) {
  core_state *c = state_of(core);
  if (!c->shadow || v->rank < 0 || v->rank > AT_CORE_MAX_RANK) return;
  area box = area_of_view(v);
  bool writes = kind & AT_CORE_STORE;
  if (core_checks(c, AT_CHECK_RACES))
    flights_check(c, &box, writes ? ACCESS_WRITES : ACCESS_READS, loc,
                  writes ? "a store to" : "a load from");
  touch t = {.c = c,
             .owner = c,
             .box = &box,
             .writes = writes,
             .stores = writes,
             .strays = writes,
             .must_be_filled = !(kind & (AT_CORE_MASKED | AT_CORE_CHOSEN)),
             .may_be_dropped = kind & AT_CORE_CHOSEN,
             .loc = loc};
  touch_box(&t);
  if (writes) c->shadow->last_store[loc + 2] = ++c->shadow->num_stores;
  if (writes && t.region) visits_stored(c, t.region, loc);
}

void at_core_expect(at_core *core, const at_core_view *v, int32_t loc) {
  core_state *c = state_of(core);
  if (!c->shadow || v->rank < 0 || v->rank > AT_CORE_MAX_RANK) return;
  area box = area_of_view(v);
  flights_expect(c, &box, loc);
}

// Runs of a row, whose box is `row`.
static void store_runs(at_core *core, at_core_view row, const uint8_t *mask,
                       int64_t n, int32_t loc) {
  int32_t last = row.rank - 1;
  uint8_t *base = row.base;
  for (int64_t i = 0, end; i < n; i = end) {
    for (end = i; end < n && !mask[end] == !mask[i];) end++;
    row.base = base + i * row.stride[last];
    row.size[last] = end - i;
    if (mask[i]) at_core_access(core, &row, AT_CORE_STORE, loc);
  }
}

// Row by row, each run of set elements as a store of its own.
void at_core_access_masked(at_core *core, const at_core_view *v,
                           const uint8_t *mask, int32_t loc) {
  core_state *c = state_of(core);
  if (!c->shadow || v->rank < 1 || v->rank > AT_CORE_MAX_RANK) return;
  at_core_view row = *v;
  int64_t at[AT_CORE_MAX_RANK] = {0}, rows = 1, n = v->size[v->rank - 1];
  for (int32_t k = 0; k + 1 < v->rank; k++) {
    rows *= v->size[k];
    row.size[k] = 1;
  }
  for (; rows > 0; rows--, mask += n) {
    store_runs(core, row, mask, n, loc);
    for (int32_t k = v->rank - 1; k-- > 0;) {
      row.base = (uint8_t *)row.base + v->stride[k];
      if (++at[k] < v->size[k]) break;
      row.base = (uint8_t *)row.base - v->size[k] * v->stride[k];
      at[k] = 0;
    }
  }
}

// As many elements from the box's first as the mask has set.
void at_core_access_packed(at_core *core, const at_core_view *v,
                           const uint8_t *mask, int64_t n, int32_t kind,
                           int32_t loc) {
  at_core_view there = *v;
  int64_t count = 0;
  for (int64_t i = 0; i < n; i++) count += mask[i] != 0;
  if (!count || v->rank < 1 || v->rank > AT_CORE_MAX_RANK) return;
  there.size[v->rank - 1] = count;
  at_core_access(core, &there, kind, loc);
}

// One element at a time: their places need not be in any order.
void at_core_access_places(at_core *core, const at_core_places *x) {
  at_core_view one = x->ref;
  if (!state_of(core)->shadow || one.rank < 0 || one.rank > AT_CORE_MAX_RANK)
    return;
  for (int32_t d = 0; d < one.rank; d++) one.size[d] = 1;
  for (int64_t i = 0; i < x->n; i++) {
    if (x->mask && !x->mask[i]) continue;
    uint8_t *at = x->ref.base;
    for (int32_t d = 0; d < one.rank; d++)
      at += x->index[d][i] * x->ref.stride[d];
    one.base = at;
    at_core_access(core, &one, x->kind, x->loc);
  }
}

// A flag per element of one side of a copy (dst: where it goes), in row-major
// order: what the side holds, or for dst what it will hold. One that is packed
// stands for several of the other side.
static void flags_of(const shade *s, const region *r, const uint8_t *base,
                     const at_core_dma *d, bool dst, uint8_t *flags) {
  const int64_t *stride = dst ? d->dst_stride : d->src_stride;
  int64_t i[AT_CORE_MAX_RANK] = {0}, each = core_dma_elements(d, dst);
  int64_t count = core_dma_bytes(d) / d->elem_bytes;
  size_t width = AT_MAX((size_t)d->elem_bytes / s->granule, (size_t)1);
  for (int64_t n = 0; n < count; n++) {
    const uint8_t *p = base;
    for (int32_t k = 0; k < d->rank; k++) p += i[k] * stride[k];
    if (!dst) flags[n] = 1;
    for (int64_t k = 0; k < each; k++, p += d->packed_step) {
      size_t g = (size_t)(p - r->base) / s->granule;
      size_t those = g < s->count ? AT_MIN(width, s->count - g) : 0;
      if (dst)
        memset(s->filled + g, flags[n], those);
      else
        flags[n] &= those && !memchr(s->filled + g, 0, those);
    }
    for (int32_t k = d->rank - 1; k >= 0 && ++i[k] == d->size[k]; k--) i[k] = 0;
  }
}

// Holes travel with the bytes: what the source has not written stays unwritten
// at the destination.
bool copy_filled(core_state *c, core_state *to, const at_core_dma *d,
                 void *dst) {
  const region *a = core_region_of(c, d->src), *b = core_region_of(to, dst);
  const shade *from = a ? core_shade_of(c, a) : NULL,
              *into = b ? core_shade_of(to, b) : NULL;
  if (!from || !into) return false;
  size_t n = (size_t)core_dma_bytes(d) / (size_t)d->elem_bytes;
  uint8_t *flags = core_shadow_take(c, n, 1);
  core_lock(c);
  flags_of(from, a, d->src, d, false, flags);
  bool holes = memchr(flags, 0, n) != NULL;
  for (size_t i = 0; core_shadow_fetches(c) && i < n; i++)
    if (flags[i]) flags[i] = kFetched;
  flags_of(into, b, dst, d, true, flags);
  core_unlock(c);
  free(flags);
  return holes;
}

// Remembers the last copy into a region, for reports of elements that were
// never written.
static void note_copy(core_state *c, core_state *to, const at_core_dma *d,
                      const area *src, const area *dst, bool holes) {
  const region *r = core_region_of(to, dst->base);
  shade *s = r ? core_shade_of(to, r) : NULL;
  if (!s || c->program != to->program) return;
  int32_t store = touch_last_store(c, src);
  core_lock(c);  // other cores may copy to this memory at the same time
  s->left_at[kCopied] = d->loc + 2;
  if (holes && store >= 0) s->left_at[kIncomplete] = store + 2;
  core_unlock(c);
  if (store >= 0 && r->ref >= 0) core_note_brought(c, (uint32_t)r->ref, store);
}

// What a side of a copy holds, which is at `base`.
static area side_of(const at_core_dma *d, bool dst, void *base) {
  area a = {.base = base,
            .rank = (uint32_t)d->rank,
            .elem_bytes = (uint32_t)d->elem_bytes};
  memcpy(a.size, d->size, sizeof a.size);
  memcpy(a.stride, dst ? d->dst_stride : d->src_stride, sizeof a.stride);
  int64_t each = core_dma_elements(d, dst);
  if (each == 1) return a;
  a.size[a.rank] = each;
  a.stride[a.rank++] = d->packed_step;
  return a;
}

// Copies that this one, from `src` to `out`, would disturb.
static void no_disturbance(core_state *c, core_state *to, const at_core_dma *d,
                           const area *src, const area *out) {
  access_kind kind = d->add ? ACCESS_ADDS : ACCESS_WRITES;
  flights_check(c, src, ACCESS_READS, d->loc, "a copy from");
  if (to == c) flights_check(c, out, kind, d->loc, "a copy to");
  departures_check(c, src, d->loc, "a copy from");
  departures_check(c, out, d->loc, "a copy to");
  flights_check_others(c, c, src, ACCESS_READS, d->loc, "a copy from");
  flights_check_others(c, to, out, kind, d->loc, "a copy to");
  if (area_overlap(src, out) && to == c)
    core_stop(c, AT_FAILED_PRECONDITION, d->loc,
              "race: a copy reads memory that it writes");
}

// From now on until somebody waits for it.
static void add_flights(core_state *c, core_state *to, const at_core_dma *d,
                        const area *src, const area *out, uint32_t sent) {
  flight reads = {.box = *src,
                  .bytes = core_dma_signals(d, to == c && d->dst_sem),
                  .loc = d->loc,
                  .id = sent,
                  .by = c};
  flight writes = reads;
  writes.box = *out;
  writes.bytes = core_dma_signals(d, true);
  writes.writes = true;
  writes.adds = d->add != 0;
  const void *waited = to == c && d->dst_sem ? d->dst_sem : d->src_sem;
  flights_add(c, &reads, waited);
  flights_add(to, &writes, to == c ? waited : d->dst_sem);
}

// Races first, then what is read and written; last the flights, which later
// accesses are held against.
void core_shadow_copy(core_state *c, core_state *to, const at_core_dma *d,
                      void *dst) {
  area src = side_of(d, false, d->src), out = side_of(d, true, dst);
  bool adds = d->add != 0, races = core_checks(c, AT_CHECK_RACES);
  uint32_t sent = 0;
  if (races) no_disturbance(c, to, d, &src, &out);
  if (races && to != c) {
    core_lock(c);
    sent = sent_new(c);
    core_unlock(c);
  }
  // A plain copy may move what nobody has written, a sum may not take it.
  touch t = {.c = c,
             .owner = c,
             .box = &src,
             .must_be_filled = adds,
             .underway = true,
             .sent = sent,
             .loc = d->loc};
  touch_box(&t);
  touch w = {.c = c,
             .owner = to,
             .box = &out,
             .writes = true,
             .adds = adds,
             .must_be_filled = adds,
             .underway = true,
             .sent = sent,
             .loc = d->loc};
  touch_box(&w);
  if (to == c && core_shadow_fetches(c)) blocks_note_fetch(c, &out);
  if (!adds) blocks_pad(to, d, &out);
  bool holes = !adds && copy_filled(c, to, d, dst);
  note_copy(c, to, d, &src, &out, holes);
  if (!races) return;
  add_flights(c, to, d, &src, &out, sent);
  core_lock(c);
  sent_drop(core_marks(c), sent);
  core_unlock(c);
}

// Until the rows have been waited for, the indices may be read.
void core_shadow_indices(core_state *c, const at_core_indirect *x) {
  const at_core_dma *d = &x->rows;
  if (!core_checks(c, AT_CHECK_RACES) || d->size[0] <= 0) return;
  // The semaphore counts the rows alone.
  flight f = {.box = {.base = (uint8_t *)x->offsets,
                      .rank = 1,
                      .elem_bytes = sizeof *x->offsets,
                      .size = {d->size[0]},
                      .stride = {x->offset_step}},
              .loc = d->loc,
              .by = c};
  flights_add(c, &f, d->src_sem ? d->src_sem : d->dst_sem);
}
