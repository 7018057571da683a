// Every tile's memory over a lowered program. Tiles on which everything has the
// same size are one class and are laid out once: code and tables at the start,
// then blocks in the order in which they appear, each as low as it fits where
// nothing that lives then is.
#include <stdlib.h>
#include <string.h>

#include "base/verify.h"
#include "tiles/lower_internal.h"

enum { kStackBytes = 1024 };

// Code, tables and stack of tile t, which lie below all data.
static int64_t fixed_bytes(const at_tiles_lowerer *w, int64_t t) {
  return (int64_t)at_align_up(
      (size_t)(w->vertices[t] + w->code[t] + w->exchange_code[t] +
               w->descriptors[t] + kStackBytes),
      8);
}

// Blocks begin and end at multiples of 8 bytes.
static int64_t length_of(int64_t bytes) {
  return (int64_t)at_align_up((size_t)bytes, 8);
}

// Bytes of one life on every tile.
static void bytes_of(const at_tiles_lowerer *w, const at_tiles_life *l,
                     int64_t *out) {
  memset(out, 0, (size_t)w->m.tiles * sizeof *out);
  if (l->value)
    at_tiles_lay_bytes(&l->value->lay, at_dtype_bytes(l->value->type->dtype),
                       out);
  for (int64_t t = 0; l->bytes && t < w->m.tiles; t++) out[t] = l->bytes[t];
}

// ---- Placing
// Placing one tile's blocks: what lives now, its bytes (now), the most at once
// (peak, from phase peak_step on), the highest end.
typedef struct placing {
  at_tiles_block **live;  // by address
  uint32_t num;
  int64_t high, now, peak, base, interleaved_at;
  int32_t peak_step;
} placing;

static int64_t ends_at(const at_tiles_block *b) { return b->at + b->bytes; }

// The lowest gap from `floor` on that holds n bytes; *where: its place in live.
static int64_t find_gap(const placing *p, int64_t floor, int64_t n,
                        uint32_t *where) {
  int64_t at = floor;
  uint32_t k = 0;
  for (; k < p->num; k++) {
    const at_tiles_block *b = p->live[k];
    if (ends_at(b) <= at) continue;
    if (b->at >= at + n) break;
    at = ends_at(b);
  }
  *where = k;
  return at;
}

// Removes what ended before `now`; the order stays.
static void drop_ended(placing *p, int32_t now) {
  uint32_t k = 0;
  for (uint32_t i = 0; i < p->num; i++) {
    if (p->live[i]->last < now)
      p->now -= p->live[i]->bytes;
    else
      p->live[k++] = p->live[i];
  }
  p->num = k;
}

// By time; at one time interleaved blocks first, as they have less room, then
// large ones. Names make the order the same every time.
static int by_first(const void *a, const void *b) {
  const at_tiles_block *x = a, *y = b;
  if (x->first != y->first) return x->first < y->first ? -1 : 1;
  if (x->interleaved != y->interleaved) return x->interleaved ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

// Sorts and places n blocks above `base`.
static at_status place_all(const at_tiles_machine *m, at_tiles_block *b,
                           uint32_t n, int64_t base, placing *p) {
  *p = (placing){.high = base, .base = base, .peak_step = -1};
  p->interleaved_at = m->bytes_per_tile - m->interleaved_bytes;
  p->live = malloc(((size_t)n + 1) * sizeof *p->live);
  if (!p->live) return AT_NO_MEMORY("memory plan");
  if (n) qsort(b, n, sizeof *b, by_first);
  for (uint32_t i = 0; i < n; i++) {
    at_tiles_block *x = &b[i];
    if (!i || x->first != b[i - 1].first) drop_ended(p, x->first);
    uint32_t where;
    x->at = find_gap(p, x->interleaved ? AT_MAX(base, p->interleaved_at) : base,
                     x->bytes, &where);
    memmove(p->live + where + 1, p->live + where,
            (p->num - where) * sizeof *p->live);
    p->live[where] = x;
    p->num++;
    // Sorted, and nothing that lives at once overlaps.
    AT_ASSERT(!where || ends_at(p->live[where - 1]) <= x->at);
    AT_ASSERT(where + 1 == p->num || ends_at(x) <= p->live[where + 1]->at);
    p->high = AT_MAX(p->high, ends_at(x));
    p->now += x->bytes;
    AT_ASSERT(x->bytes > 0 && x->first <= x->last && p->now <= p->high - base);
    if (p->now > p->peak) p->peak = p->now, p->peak_step = x->first;
  }
  free(p->live);
  p->live = NULL;
  return AT_OK;
}

// Are no two blocks in one place at one time, and all above `base`?
static bool are_apart(const at_tiles_block *b, uint32_t n, int64_t base) {
  for (uint32_t i = 0; i < n; i++) {
    if (b[i].at < base) return false;
    for (uint32_t k = 0; k < i; k++)
      if (b[i].first <= b[k].last && b[k].first <= b[i].last &&
          b[i].at < ends_at(&b[k]) && b[k].at < ends_at(&b[i]))
        return false;
  }
  return true;
}

// What does not fit in the order of time may still be packed by size.
static at_status place_tighter(const at_tiles_machine *m, at_tiles_block *b,
                               uint32_t n, placing *p) {
  enum { kMost = 4096 };
  int64_t high;
  if (n > kMost || p->base + p->peak > m->bytes_per_tile) return AT_OK;
  AT_TRY(at_tiles_place(b, n, AT_MAX(p->interleaved_at - p->base, 0), &high));
  for (uint32_t i = 0; i < n; i++) b[i].at += p->base;
  p->high = p->base + high;
  AT_VERIFY(are_apart(b, n, p->base));
  return AT_OK;
}

// In the order of time and, if that is too high, by size.
static at_status lay_out(const at_tiles_machine *m, at_tiles_block *b,
                         uint32_t n, int64_t base, placing *p) {
  AT_TRY(place_all(m, b, n, base, p));
  return p->high > m->bytes_per_tile ? place_tighter(m, b, n, p) : AT_OK;
}

// ---- Classes
typedef struct classes {
  uint32_t *of;    // [tiles]
  uint32_t *tile;  // [num]: one of each
  uint32_t num;
} classes;

typedef struct hashed {
  uint64_t hash;
  uint32_t tile;
} hashed;
// Equal hashes are neighbours.
static int by_hash(const void *a, const void *b) {
  const hashed *x = a, *y = b;
  if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
  return (x->tile > y->tile) - (x->tile < y->tile);
}

// Tiles by a hash of the bytes of all lives and of what is fixed: same hash,
// same class.
static at_status find_classes(const at_tiles_lowerer *w, at_arena *a,
                              classes *out) {
  size_t n = (size_t)w->m.tiles;
  hashed *h;
  int64_t *bytes;
  AT_TRY_ALLOC(h, at_new(a, hashed, n));
  AT_TRY_ALLOC(bytes, at_new(a, int64_t, n));
  AT_TRY_ALLOC(out->of, at_new(a, uint32_t, 2 * n));
  out->tile = out->of + n;
  for (uint32_t t = 0; t < n; t++)
    h[t] = (hashed){(uint64_t)fixed_bytes(w, t), t};
  for (size_t i = 0; i < w->lives.len; i++) {
    bytes_of(w, &w->lives.ptr[i], bytes);
    for (size_t t = 0; t < n; t++)
      h[t].hash = (h[t].hash ^ (uint64_t)bytes[t]) * 0x9e3779b97f4a7c15ull +
                  (h[t].hash >> 29);
  }
  qsort(h, n, sizeof *h, by_hash);
  for (size_t i = 0; i < n; i++) {
    if (!i || h[i].hash != h[i - 1].hash) out->tile[out->num++] = h[i].tile;
    out->of[h[i].tile] = out->num - 1;
    AT_ASSERT(out->num && out->num <= n);
  }
  for (size_t i = 0; i < w->lives.len && at_verifying(); i++) {
    bytes_of(w, &w->lives.ptr[i], bytes);
    for (size_t t = 0; t < n; t++)
      AT_ASSERT(bytes[t] == bytes[out->tile[out->of[t]]]);
  }
  return AT_OK;
}

// ---- Results
// Bytes by category at the peak.
static void categories_at(const at_tiles_lowerer *w, uint32_t tile,
                          const at_tiles_block *b, uint32_t n, const placing *p,
                          int64_t *out) {
  int64_t at_peak = 0;
  for (uint32_t i = 0; i < n; i++)
    if (b[i].first <= p->peak_step && p->peak_step <= b[i].last)
      out[b[i].category] += b[i].bytes, at_peak += b[i].bytes;
  AT_ASSERT(at_peak == p->peak);
  out[AT_TILES_MEM_VERTICES] = w->vertices[tile];
  out[AT_TILES_MEM_CODE] = w->code[tile];
  out[AT_TILES_MEM_EXCHANGE_CODE] = w->exchange_code[tile];
  out[AT_TILES_MEM_COPY_DESCRIPTORS] = w->descriptors[tile];
  out[AT_TILES_MEM_STACK] = kStackBytes;
  out[AT_TILES_MEM_PADDING] =  // of code and tables
      p->base - w->vertices[tile] - w->code[tile] - w->exchange_code[tile] -
      w->descriptors[tile] - kStackBytes;
}

// The lives that have bytes on a tile, as blocks without an address. bytes: one
// number for each life.
static uint32_t blocks_of(const at_tiles_lowerer *w, const uint32_t *bytes,
                          at_tiles_block *out) {
  uint32_t n = 0;
  for (size_t i = 0; i < w->lives.len; i++) {
    const at_tiles_life *l = &w->lives.ptr[i];
    if (bytes[i])
      out[n++] = (at_tiles_block){
          l->name,     length_of(bytes[i]), 0, l->first, l->last,
          l->category, l->interleaved};
  }
  return n;
}

// bytes[class][life] of the tiles that stand for their classes.
static at_status class_bytes(const at_tiles_lowerer *w, const classes *c,
                             at_arena *a, uint32_t **out) {
  int64_t *all;
  AT_TRY_ALLOC(all, at_new(a, int64_t, (size_t)w->m.tiles));
  AT_TRY_ALLOC(*out, at_new(a, uint32_t, at_mul(c->num, w->lives.len) + 1));
  for (size_t i = 0; i < w->lives.len; i++) {
    bytes_of(w, &w->lives.ptr[i], all);
    for (uint32_t k = 0; k < c->num; k++)
      (*out)[k * w->lives.len + i] =
          (uint32_t)AT_MIN(all[c->tile[k]], (int64_t)UINT32_MAX - 8);
  }
  return AT_OK;
}

// Lays out one tile of each class, keeps the blocks of the fullest, and copies
// figures to the others.
static at_status plan_classes(at_tiles_lowerer *w, at_arena *a,
                              at_tiles_plan *p, int64_t *tile_bytes,
                              int64_t (*categories)[AT_TILES_MEM_COUNT],
                              bool *fits) {
  classes c = {0};
  uint32_t *bytes;
  at_tiles_block *b;
  placing at;
  AT_TRY(find_classes(w, a, &c));
  AT_TRY(class_bytes(w, &c, a, &bytes));
  AT_TRY_ALLOC(b, at_new(a, at_tiles_block, w->lives.len + 1));
  *fits = true;
  p->peak_bytes = -1;
  for (uint32_t k = 0; k < c.num; k++) {
    uint32_t tile = c.tile[k], n = blocks_of(w, bytes + k * w->lives.len, b);
    AT_TRY(lay_out(&w->m, b, n, fixed_bytes(w, tile), &at));
    int64_t need = at.base + at.peak, limit = w->m.bytes_per_tile;
    if (at.high > limit) *fits = false;
    if (at.high > limit) need = AT_MAX(need, at.high);
    categories_at(w, tile, b, n, &at, categories[tile]);
    categories[tile][AT_TILES_MEM_PADDING] += need - at.base - at.peak;
    tile_bytes[tile] = need;
    if (need <= p->peak_bytes) continue;
    p->peak_bytes = need;
    p->fullest = tile;
    p->data_bytes = at.peak;
    p->unshared_bytes = 0;
    for (uint32_t i = 0; i < n; i++) p->unshared_bytes += b[i].bytes;
    p->num_blocks = n;
    AT_TRY_ALLOC(p->blocks, at_arena_copy(w->arena, b, (n + 1) * sizeof *b, 8));
  }
  for (int64_t t = 0; t < w->m.tiles; t++) {
    uint32_t like = c.tile[c.of[t]];
    tile_bytes[t] = tile_bytes[like];
    if (like != t) memcpy(categories[t], categories[like], sizeof *categories);
  }
  return AT_OK;
}

// Results are the plan's, in the lowerer's arena; scratch memory goes at the
// end.
at_status at_tiles_lower_memory(at_tiles_lowerer *w, at_tiles_plan *p,
                                bool *fits) {
  int64_t *tile_bytes, (*categories)[AT_TILES_MEM_COUNT];
  size_t n = (size_t)w->m.tiles;
  AT_TRY_ALLOC(tile_bytes, at_new(w->arena, int64_t, n));
  AT_TRY_ALLOC(categories, (int64_t(*)[AT_TILES_MEM_COUNT])at_arena_alloc(
                               w->arena, at_mul(n, sizeof *categories), 8));
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("memory plan");
  at_status st = plan_classes(w, a, p, tile_bytes, categories, fits);
  at_arena_destroy(a);
  p->tile_bytes = tile_bytes;
  p->categories = (const int64_t(*)[AT_TILES_MEM_COUNT])categories;
  return st;
}

// Lays the tile out again: only the fullest one's blocks were kept.
at_status at_tiles_plan_tile(const at_tiles_plan *p, uint32_t tile, at_arena *a,
                             at_tiles_block **out, uint32_t *out_num) {
  const at_tiles_lowerer *w = p->lowered;
  if (tile >= (uint64_t)p->machine->tiles)
    return AT_FAIL(AT_OUT_OF_RANGE, "tile %u of a machine of %lld tiles", tile,
                   (long long)p->machine->tiles);
  if (!w && tile != p->fullest)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "tile %u: a graph's plan keeps the blocks of tile %u, the "
                   "fullest",
                   tile, p->fullest);
  if (!w) return *out = p->blocks, *out_num = p->num_blocks, AT_OK;
  int64_t *all;
  uint32_t *bytes;
  placing at;
  AT_TRY_ALLOC(all, at_new(a, int64_t, (size_t)w->m.tiles));
  AT_TRY_ALLOC(bytes, at_new(a, uint32_t, w->lives.len + 1));
  AT_TRY_ALLOC(*out, at_new(a, at_tiles_block, w->lives.len + 1));
  for (size_t i = 0; i < w->lives.len; i++) {
    bytes_of(w, &w->lives.ptr[i], all);
    bytes[i] = (uint32_t)AT_MIN(all[tile], (int64_t)UINT32_MAX - 8);
  }
  *out_num = blocks_of(w, bytes, *out);
  return lay_out(&w->m, *out, *out_num, fixed_bytes(w, tile), &at);
}
