// Windows as the checks see them: blocks that come, go back and are revisited.
#include "device/core_shadow.h"

// ---- Windows
// Row-major; *out_n: how many blocks there are. The number may lie outside,
// callers look.
static int64_t block_number(const at_xcore_ref *x, const int32_t *at,
                            int64_t *out_n) {
  int64_t n = 0;
  *out_n = 1;
  for (uint32_t d = 0; d < x->rank; d++) {
    int64_t blocks = x->block[d] ? at_ceil_div(x->dims[d], x->block[d]) : 1;
    n = n * blocks + at[d];
    *out_n *= AT_MAX(blocks, (int64_t)1);
  }
  return n;
}

// A step's windows are its own: copies to and from them must have ended. reads:
// only copies that write the window matter.
static void no_copies(core_state *c, uint32_t i, bool reads) {
  window *w = &c->windows[i];
  area box = area_of_bytes(w->buffer, w->buffer_bytes);
  flight f;
  char name[64];
  if (!core_checks(c, AT_CHECK_RACES) ||
      !flights_find(c, &box, reads ? ACCESS_WRITES : ACCESS_READS, &f))
    return;
  core_stop(
      c, AT_FAILED_PRECONDITION, f.by == c ? f.loc : core_window_loc(c, i),
      "race: the window of %s moves on while this copy still %s it\n"
      "detail: it has not been waited for when its grid step ends",
      core_ref_text(c, i, name, sizeof name), f.writes ? "writes" : "reads");
}

// What of the block lies outside of its array. Everything is padding first,
// then the part inside is filled.
static void mark_padding(core_state *c, uint32_t i, const shade *s) {
  const window *w = &c->windows[i];
  const int64_t *stride = c->refs[i].stride;
  area in = {.base = w->buffer,
             .rank = w->ref->rank,
             .elem_bytes = (uint32_t)s->granule};
  for (uint32_t k = 0; k < in.rank; k++) {
    in.base += w->skip[k] * stride[k];
    in.size[k] = w->valid[k];
    in.stride[k] = stride[k];
  }
  memset(s->filled, kPadding, s->count);
  shade_mark(s, core_region_of(c, w->buffer), &in, 0, in.base, 1);
}

// The buffer now holds another block; `now` says which. An input's block is
// defined; an output's is poison until it is written, and its earlier visits
// are looked up.
void core_shadow_window(core_state *c, uint32_t i) {
  window *w = &c->windows[i];
  const region *r = core_region_of(c, w->buffer);
  shade *s = r ? core_shade_of(c, r) : NULL;
  w->moved = true;
  if (!s) return;
  bool output = w->ref->role == AT_CORE_OUT;
  no_strays(c, r, "the window moved on");
  if (!output) no_copies(c, i, true);
  memset(s->filled, !output, s->count);
  if (!output && !w->whole) mark_padding(c, i, s);
  if (!output) return;
  core_fill(c, w->buffer, (at_dtype)w->ref->dtype,
            (int64_t)(w->buffer_bytes / s->granule));
  if (w->ref->window != AT_CORE_BLOCKED) return;
  int64_t n, block = block_number(w->ref, w->now, &n);
  if (block < 0 || block >= n) return;
  if (!c->shadow->visits[i].blocks)
    c->shadow->visits[i].blocks = core_shadow_take(c, (size_t)n, 1);
  c->shadow->visits[i].before = c->shadow->visits[i].blocks[block];
  c->shadow->visits[i].blocks[block] |= kVisited;
}

// What the block's earlier visit wrote went back; this store is the first of
// another. Only the first store after a block's return counts as too late.
void visits_stored(core_state *c, const region *r, int32_t loc) {
  if (r->ref < 0 || c->windows[r->ref].buffer != r->base) return;
  uint8_t *visits = c->shadow->visits[r->ref].blocks;
  const window *w = &c->windows[r->ref];
  int64_t n, block;
  if (!visits || shade_starts_filled(c, r)) return;
  block = block_number(w->ref, w->now, &n);
  AT_ASSERT(block >= 0 && block < n);  // index maps stay inside
  if (c->shadow->visits[r->ref].before & kWritten &&
      core_checks(c, AT_CHECK_UNINIT)) {
    char map[512] = "", name[64];
    if (c->program->refs[r->ref].place)
      core_place(c, core_window_loc(c, (uint32_t)r->ref), map, sizeof map);
    core_stop(c, AT_FAILED_PRECONDITION, loc,
              "an output is revisited too late: a store to a block of %s "
              "that an earlier step wrote and that has gone back since\n"
              "detail: what was there is lost; an output may be revisited on "
              "consecutive steps only%s%s",
              core_ref_text(c, (uint32_t)r->ref, name, sizeof name),
              *map ? ", and its blocks are chosen at " : "", map);
  }
  visits[block] |= kWritten;
}

// copied: the place of the copy, where no store is known.
_Noreturn void report_poison(core_state *c, uint32_t i, int32_t copied) {
  bool padding;
  int32_t read = core_undefined_at(c, &padding), store = core_store_loc(c, i);
  if (store == -1) store = copied;
  char other[512] = "", name[64];
  if (read != kNowhere)
    core_place(c, padding ? read : store, other, sizeof other);
  core_stop(
      c, AT_FAILED_PRECONDITION, read == kNowhere || padding ? store : read,
      "an element of %s is NaN: it was computed from undefined values, as "
      "%s%s%s",
      core_ref_text(c, i, name, sizeof name),
      padding ? "the padding of blocks at the edge has"
              : "uninitialised memory has",
      !*other   ? ""
      : padding ? "\ndetail: undefined values are read at "
                : "\ndetail: it is stored at ",
      other);
}

// What goes back must not come from the padding of another window. What nobody
// has written stays a hole of the operand: the end tells.
static void no_poison(core_state *c, uint32_t i, const at_core_dma *d) {
  const at_xcore_ref *x = c->windows[i].ref;
  const region *r = core_region_of(c, d->src);
  const shade *s = r ? core_shade_of(c, r) : NULL;
  int64_t at[AT_CORE_MAX_RANK] = {0};
  for (int64_t left = core_dma_bytes(d) / d->elem_bytes; left > 0; left--) {
    const uint8_t *p = d->src;
    for (int32_t k = 0; k < d->rank; k++) p += at[k] * d->src_stride[k];
    bool hole = s && !s->filled[(size_t)(p - r->base) / s->granule];
    if (!hole && core_is_poison(p, (at_dtype)x->dtype)) report_poison(c, i, -1);
    for (int32_t k = d->rank - 1; k >= 0 && ++at[k] == d->size[k]; k--)
      at[k] = 0;
  }
}

// The block goes back to the operand, holes included. The last two blocks that
// went back are kept in w->left, to tell late stores by.
void core_shadow_write_back(core_state *c, uint32_t i) {
  window *w = &c->windows[i];
  const at_xcore_ref *x = w->ref;
  at_core_dma d = {.src = w->buffer,
                   .dst = w->operand,
                   .rank = (int32_t)x->rank,
                   .elem_bytes = (int32_t)at_dtype_bytes((at_dtype)x->dtype)};
  uint8_t *src = w->buffer, *dst = w->operand;
  int64_t n = 1;
  no_copies(c, i, false);
  w->left[1] = w->left[0];
  w->left[0].steps = c->step;
  memcpy(w->left[0].start, w->start, sizeof w->start);
  memcpy(w->left[0].valid, w->valid, sizeof w->valid);
  for (uint32_t k = 0; k < x->rank; k++) {
    d.size[k] = w->valid[k];
    d.src_stride[k] = c->refs[i].stride[k];
    d.dst_stride[k] = w->operand_stride[k];
    src += w->skip[k] * d.src_stride[k];
    dst += w->start[k] * d.dst_stride[k];
    n *= w->valid[k];
  }
  d.src = src;
  d.dst = dst;
  if (n <= 0) return;
  if (core_checks(c, AT_CHECK_NAN)) no_poison(c, i, &d);
  copy_filled(c, c, &d, dst);
}
