// Blocks of values and the messages between two ways to cut one.
#include "tiles/lower_internal.h"

// `cuts` blocks whose lengths differ by one at most; block b lies `stride`
// tiles behind block b - 1.
at_status at_tiles_dim_cut(at_arena *a, int64_t n, int64_t cuts, int64_t stride,
                           at_tiles_dim *out) {
  int64_t *bound;
  uint32_t *off;
  AT_TRY_ALLOC(bound, at_new(a, int64_t, (size_t)cuts + 1));
  AT_TRY_ALLOC(off, at_new(a, uint32_t, (size_t)cuts));
  for (int64_t b = 0; b < cuts; b++) {
    bound[b] = b * n / cuts;
    off[b] = (uint32_t)(b * stride);
  }
  bound[cuts] = n;
  AT_ASSERT(cuts > 0 && !bound[0] && bound[cuts - 1] <= n);
  *out = (at_tiles_dim){cuts, bound, bound + 1, off};
  return AT_OK;
}

at_status at_tiles_dim_whole(at_arena *a, int64_t n, at_tiles_dim *out) {
  return at_tiles_dim_cut(a, n, 1, 0, out);
}

// Block b becomes n blocks, on the tiles off[b] + group[k].
at_status at_tiles_dim_again(at_arena *a, const at_tiles_dim *d,
                             const uint32_t *group, uint32_t n,
                             at_tiles_dim *out) {
  int64_t *bound, cuts = d->cuts * n;
  uint32_t *off;
  AT_TRY_ALLOC(bound, at_new(a, int64_t, (size_t)cuts + 1));
  AT_TRY_ALLOC(off, at_new(a, uint32_t, (size_t)cuts));
  for (int64_t b = 0; b < d->cuts; b++)
    for (int64_t k = 0; k < n; k++) {
      bound[b * n + k] = d->bound[b] + (d->end[b] - d->bound[b]) * k / n;
      off[b * n + k] = d->off[b] + group[k];
      // Inside the block that is cut again.
      AT_ASSERT(bound[b * n + k] >= d->bound[b] &&
                bound[b * n + k] <= d->end[b]);
    }
  bound[cuts] = d->end[d->cuts - 1];
  *out = (at_tiles_dim){cuts, bound, bound + 1, off};
  return AT_OK;
}

// Bounds and offsets of l are copied; ends become the next bounds, so blocks
// must be disjoint and in order.
at_status at_tiles_lay_keep(at_arena *a, at_tiles_lay *l) {
  for (uint32_t d = 0; d < l->rank; d++) {
    at_tiles_dim *x = &l->dim[d];
    size_t n = (size_t)x->cuts;
    int64_t *bound;
    AT_TRY_ALLOC(bound, at_new(a, int64_t, n + 1));
    memcpy(bound, x->bound, n * sizeof *bound);
    bound[n] = x->end[n - 1];
    AT_TRY_ALLOC(x->off, at_arena_copy(a, x->off, n * sizeof *x->off, 4));
    x->bound = bound, x->end = bound + 1;
  }
  return AT_OK;
}

// By value; homes that share their arrays are equal at once.
bool at_tiles_lay_eq(const at_tiles_lay *a, const at_tiles_lay *b) {
  if (a->rank != b->rank) return false;
  for (uint32_t d = 0; d < a->rank; d++) {
    const at_tiles_dim *x = &a->dim[d], *y = &b->dim[d];
    if (x->bound == y->bound && x->end == y->end && x->off == y->off) continue;
    if (x->cuts != y->cuts ||
        memcmp(x->bound, y->bound, (size_t)x->cuts * sizeof *x->bound) ||
        memcmp(x->end, y->end, (size_t)x->cuts * sizeof *x->end) ||
        memcmp(x->off, y->off, (size_t)x->cuts * sizeof *x->off))
      return false;
  }
  return true;
}

// As at_tiles_mapping_linear spreads a variable: blocks of at least 128 bytes,
// the last dimension on neighbouring tiles.
at_status at_tiles_lay_linear(at_arena *a, const at_tiles_machine *m,
                              const at_type *t, at_tiles_lay *out) {
  if (t->rank > kTilesRank)
    return AT_FAIL(AT_UNIMPLEMENTED, "a value of rank %u on tiles", t->rank);
  out->rank = t->rank;
  int64_t bytes = AT_MAX((int64_t)at_type_bytes(t), 1),
          each = 128;  // at least, as the linear mapping has it
  int64_t left = AT_MAX(AT_MIN(m->tiles, bytes / each), 1);
  int64_t cuts[kTilesRank], stride = 1;
  for (uint32_t d = 0; d < t->rank; d++) {
    cuts[d] = AT_MAX(AT_MIN(t->dims[d], left), 1);
    left /= cuts[d];
  }
  for (uint32_t d = t->rank; d-- > 0;) {
    AT_TRY(at_tiles_dim_cut(a, t->dims[d], cuts[d], stride, &out->dim[d]));
    stride *= cuts[d];
  }
  return AT_OK;
}

// ---- Walking blocks
typedef struct cursor {
  int64_t at[kTilesRank];
} cursor;
// The next block, the last dimension fastest; false after the last one.
static bool next(const at_tiles_lay *l, cursor *c) {
  for (uint32_t d = l->rank; d-- > 0;) {
    if (++c->at[d] < l->dim[d].cuts) return true;
    c->at[d] = 0;
  }
  return false;
}
// The tile of the cursor's block.
static uint32_t tile_of(const at_tiles_lay *l, const cursor *c) {
  uint32_t t = 0;
  for (uint32_t d = 0; d < l->rank; d++) t += l->dim[d].off[c->at[d]];
  return t;
}
// Elements of the cursor's block.
static int64_t elements_of(const at_tiles_lay *l, const cursor *c) {
  int64_t n = 1;
  for (uint32_t d = 0; d < l->rank; d++)
    n *= l->dim[d].end[c->at[d]] - l->dim[d].bound[c->at[d]];
  return n;
}

// A tile may have several blocks.
void at_tiles_lay_bytes(const at_tiles_lay *l, int64_t size, int64_t *out) {
  cursor c = {{0}};
  do out[tile_of(l, &c)] += size * elements_of(l, &c);
  while (next(l, &c));
}

// Bytes of elements of one byte.
void at_tiles_lay_elements(const at_tiles_lay *l, int64_t tiles, int64_t *out) {
  memset(out, 0, (size_t)tiles * sizeof *out);
  at_tiles_lay_bytes(l, 1, out);
}

// ---- Reshapes
// Dimensions [d, d + n) as one: a block of it is a block of each, and must be
// one stretch.
static at_status merge_dims(at_arena *a, const at_tiles_dim *d,
                            const int64_t *size, uint32_t n, at_tiles_dim *out,
                            bool *fits) {
  int64_t cuts = 1, inner = 1, total = 1;
  for (uint32_t i = 0; i < n; i++) cuts *= d[i].cuts, total *= size[i];
  int64_t *bound;
  uint32_t *off;
  AT_TRY_ALLOC(bound, at_new(a, int64_t, (size_t)cuts + 1));
  AT_TRY_ALLOC(off, at_new(a, uint32_t, (size_t)cuts));
  bool cut =
      false;  // something below is cut: blocks above must be single indices
  for (uint32_t i = n; i-- > 0;) {
    for (int64_t b = 0; cut && b < d[i].cuts; b++)
      *fits = *fits && d[i].end[b] - d[i].bound[b] <= 1;
    cut = cut || d[i].cuts > 1;
  }
  // Block b counts through all dimensions, the last one fastest; its bound is
  // that of its first element.
  int64_t below = cuts;
  inner = total;
  for (uint32_t i = 0; i < n; i++) {
    below /= d[i].cuts;
    inner /= AT_MAX(size[i], 1);
    for (int64_t b = 0; b < cuts; b++) {
      int64_t k = b / below % d[i].cuts;
      bound[b] += d[i].bound[k] * inner;
      off[b] += d[i].off[k];
    }
  }
  bound[cuts] = total;
  AT_ASSERT(below == 1 && (inner == 1 || !n || !total));
  for (int64_t b = 0; *fits && b < cuts; b++)
    AT_ASSERT(bound[b] >= 0 && bound[b] <= bound[b + 1]);
  *out = (at_tiles_dim){cuts, bound, bound + 1, off};
  return AT_OK;
}

// One dimension as several: cut in whole slices of the first that is longer
// than one, or, where each index of that is cut alike, of the next.
static at_status split_dim(at_arena *a, const at_tiles_dim *d,
                           const int64_t *size, uint32_t n, at_tiles_dim *out,
                           bool *fits) {
  uint32_t first = 0;
  int64_t inner = 1;
  while (first + 1 < n && size[first] == 1) first++;
  for (uint32_t i = first + 1; i < n; i++) inner *= size[i];
  for (uint32_t i = 0; i < n; i++)
    AT_TRY(at_tiles_dim_whole(a, size[i], &out[i]));
  int64_t *bound;
  AT_TRY_ALLOC(bound, at_new(a, int64_t, (size_t)d->cuts + 1));
  for (int64_t b = 0; b <= d->cuts; b++) {
    int64_t at = b < d->cuts ? d->bound[b] : size[first] * inner;
    *fits = *fits && inner && at % inner == 0;
    bound[b] = inner ? at / inner : 0;
    AT_ASSERT(!*fits ||
              (bound[b] >= (b ? bound[b - 1] : 0) && bound[b] <= size[first]));
  }
  out[first] = (at_tiles_dim){d->cuts, bound, bound + 1, d->off};
  return AT_OK;
}

// Dimensions are matched in groups of equal size: each group of old ones is
// merged into one, which is split into the new ones.
at_status at_tiles_lay_reshape(at_arena *a, const at_tiles_lay *from,
                               at_dims old, at_dims dims, at_tiles_lay *out,
                               bool *fits) {
  if (dims.rank > kTilesRank)
    return AT_FAIL(AT_UNIMPLEMENTED, "a value of rank %u on tiles", dims.rank);
  out->rank = dims.rank;
  *fits = true;
  uint32_t i = 0, j = 0;
  while (i < old.rank || j < dims.rank) {
    uint32_t i0 = i, j0 = j;
    int64_t x = i < old.rank ? old.ptr[i++] : 1,
            y = j < dims.rank ? dims.ptr[j++] : 1;
    while (x != y && *fits) {
      if (x < y && i < old.rank)
        x *= old.ptr[i++];
      else if (y < x && j < dims.rank)
        y *= dims.ptr[j++];
      else
        *fits = false;
    }
    if (!*fits) return AT_OK;
    at_tiles_dim one;
    const int64_t *merged = i > i0 ? old.ptr + i0 : NULL;  // scalars have none
    AT_TRY(merge_dims(a, from->dim + i0, merged, i - i0, &one, fits));
    if (j > j0)
      AT_TRY(split_dim(a, &one, dims.ptr + j0, j - j0, out->dim + j0, fits));
    else
      *fits = *fits && one.cuts == 1;
    if (!*fits) return AT_OK;
  }
  return AT_OK;
}

// ---- Messages
// First block of d that ends after x.
static int64_t block_at(const at_tiles_dim *d, int64_t x) {
  int64_t lo = 0, hi = d->cuts;
  while (lo < hi) {
    int64_t mid = (lo + hi) / 2;
    if (d->end[mid] <= x)
      lo = mid + 1;
    else
      hi = mid;
  }
  AT_ASSERT(lo == d->cuts || d->end[lo] > x);
  AT_ASSERT(lo == 0 || d->end[lo - 1] <= x);
  return lo;
}

// One message from `src` to tile + group[], but not to itself.
static at_status add_message(at_tiles_moves *v, uint32_t src, uint32_t tile,
                             const uint32_t *group, uint32_t n, int64_t bytes) {
  at_tiles_message m = {src, (uint32_t)v->receivers.len, 0, bytes, 0};
  for (uint32_t i = 0; i < n; i++) {
    uint32_t to = tile + group[i];
    if (to == src) continue;
    if (!at_vec_push(v->arena, &v->receivers, to))
      return AT_NO_MEMORY("exchange");
    if (v->received) v->received[to] += bytes;
    m.count++;
  }
  if (m.count && !at_vec_push(v->arena, &v->messages, m))
    return AT_NO_MEMORY("exchange");
  return AT_OK;
}

// The first block of every dimension that ends behind the box's beginning.
void at_tiles_walk_start(at_tiles_walk *w, const at_tiles_lay *home,
                         const int64_t *lo, const int64_t *hi) {
  w->home = home, w->lo = lo, w->hi = hi;
  w->more = true;
  for (uint32_t d = 0; d < home->rank; d++) {
    w->more = w->more && lo[d] < hi[d];
    w->at[d] = w->first[d] = block_at(&home->dim[d], lo[d]);
  }
}

// The last dimension fastest; one that reaches the box's end starts again.
void at_tiles_walk_next(at_tiles_walk *w) {
  w->more = false;
  for (uint32_t d = w->home->rank; d-- > 0 && !w->more;) {
    const at_tiles_dim *h = &w->home->dim[d];
    if (w->at[d] + 1 < h->cuts && h->end[w->at[d]] < w->hi[d])
      w->at[d]++, w->more = true;
    else
      w->at[d] = w->first[d];
  }
}

// Offsets of the dimensions add up to the tile.
uint32_t at_tiles_walk_tile(const at_tiles_walk *w) {
  uint32_t t = 0;
  for (uint32_t d = 0; d < w->home->rank; d++)
    t += w->home->dim[d].off[w->at[d]];
  return t;
}

// Row-major number of the block.
int64_t at_tiles_walk_block(const at_tiles_walk *w) {
  int64_t b = 0;
  for (uint32_t d = 0; d < w->home->rank; d++)
    b = b * w->home->dim[d].cuts + w->at[d];
  return b;
}

// For every block of `need`, the blocks of `home` that it overlaps: linear in
// the number of overlaps.
at_status at_tiles_move(at_tiles_moves *v, const at_tiles_lay *home,
                        const at_tiles_lay *need, const uint32_t *group,
                        uint32_t num_group, int64_t size) {
  if (num_group == 1 && !group[0] && at_tiles_lay_eq(home, need)) return AT_OK;
  AT_ENSURE(home->rank == need->rank);
  cursor c = {{0}};
  do {
    int64_t lo[kTilesRank], hi[kTilesRank];
    for (uint32_t d = 0; d < need->rank; d++) {
      lo[d] = need->dim[d].bound[c.at[d]];
      hi[d] = need->dim[d].end[c.at[d]];
    }
    uint32_t tile = tile_of(need, &c);
    int64_t missing = size * elements_of(need, &c);
    at_tiles_walk s;
    for (at_tiles_walk_start(&s, home, lo, hi); s.more;
         at_tiles_walk_next(&s)) {
      int64_t volume = size;
      for (uint32_t d = 0; d < home->rank; d++)
        volume *= at_tiles_walk_hi(&s, d) - at_tiles_walk_lo(&s, d);
      missing -= volume;
      if (volume > 0)
        AT_TRY(add_message(v, at_tiles_walk_tile(&s), tile, group, num_group,
                           volume));
    }
    AT_ASSERT(missing == 0);  // homes cover a value, each element once
  } while (next(need, &c));
  return AT_OK;
}
