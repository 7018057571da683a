// Places of blocks in one region of memory, a problem of packing rectangles: a
// block is as high as its bytes and as wide as its life. First fit by
// decreasing size packs well, and its cost is that of looking at all pairs of
// blocks that live at once. A program of very many values that all live long
// would have too many of those (kPairs); there, places of dead blocks of equal
// size are used again, in one pass.
//
// The result depends on the blocks alone: ties are broken by owner.
#include "schedule/place.h"

#include <stdlib.h>

#include "base/verify.h"

enum {
  kAlign = 64,
  kPairs = 1 << 22,  // that first fit may look at, and for each block
  kPairsEach = 64
};

static int order_of(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

// Large first; ties by owner.
static int by_size(const void *a, const void *b) {
  const at_block *x = a, *y = b;
  if (x->bytes != y->bytes) return order_of(y->bytes, x->bytes);
  return order_of(x->owner, y->owner);
}

// In the order of beginnings; ties by owner.
static int by_begin(const void *a, const void *b) {
  const at_block *x = a, *y = b;
  if (x->time.begin != y->time.begin)
    return x->time.begin < y->time.begin ? -1 : 1;
  return order_of(x->owner, y->owner);
}

static int by_offset(const void *a, const void *b) {
  const at_block *x = *(at_block *const *)a, *y = *(at_block *const *)b;
  return order_of(x->offset, y->offset);
}

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

// ---- Which blocks live at once
// A tree over the points in time at which blocks begin or end. A block is
// listed at the widest ranges that it fills, and noted at all ranges around
// those.
typedef AT_VEC(at_block *) block_list;
// A node of the tree over time. fills: blocks that live over all of it; below:
// blocks that live over part of it.
typedef struct range {
  block_list fills, below;
} range;

typedef struct timeline {
  at_arena *arena;
  int64_t *points;  // sorted, each once
  size_t num_points;
  range *ranges;  // 1: all; 2 i and 2 i + 1 are the halves of i
  size_t leaves;  // a power of two
} timeline;

// The number of a point in time, at which some block begins or ends.
static size_t point_of(const timeline *t, int64_t when) {
  const int64_t *p =
      bsearch(&when, t->points, t->num_points, sizeof *p, by_value);
  AT_ASSERT(p);
  return (size_t)(p - t->points);
}

// An empty tree over the ends of n blocks.
static at_status timeline_make(timeline *t, const at_block *b, uint32_t n) {
  size_t count = 0;
  AT_TRY_ALLOC(t->points, at_new(t->arena, int64_t, 2 * (size_t)n + 1));
  for (uint32_t i = 0; i < n; i++) {
    t->points[2 * i] = b[i].time.begin;
    t->points[2 * i + 1] = b[i].time.end;
  }
  qsort(t->points, 2 * (size_t)n, sizeof *t->points, by_value);
  for (size_t i = 0; i < 2 * (size_t)n; i++)
    if (!count || t->points[i] != t->points[count - 1])
      t->points[count++] = t->points[i];
  t->num_points = count;
  for (t->leaves = 1; t->leaves < count;) t->leaves *= 2;
  AT_TRY_ALLOC(t->ranges, at_new(t->arena, range, 2 * t->leaves));
  return AT_OK;
}

// Notes b at every range around range `at`, from the inside out.
static bool note_around(timeline *t, size_t at, at_block *b) {
  for (at /= 2; at; at /= 2) {
    block_list *l = &t->ranges[at].below;
    if (l->len && l->ptr[l->len - 1] == b) return true;  // and around it, too
    if (!at_vec_push(t->arena, l, b)) return false;
  }
  return true;
}

// Cuts b's life into the O(log points) widest ranges of the tree.
static at_status timeline_add(timeline *t, at_block *b) {
  size_t from = point_of(t, b->time.begin) + t->leaves,
         to = point_of(t, b->time.end) + t->leaves + 1;
  bool ok = true;
  for (; from < to && ok; from /= 2, to /= 2) {
    if (from & 1) {
      ok = ok && at_vec_push(t->arena, &t->ranges[from].fills, b) &&
           note_around(t, from, b);
      from++;
    }
    if (to & 1) {
      to--;
      ok = ok && at_vec_push(t->arena, &t->ranges[to].fills, b) &&
           note_around(t, to, b);
    }
  }
  return ok ? AT_OK : AT_NO_MEMORY("memory plan");
}

// Adds what `from` holds and `seen` (by owner) does not have yet.
static bool take(const timeline *t, const block_list *from, uint32_t *seen,
                 uint32_t serial, block_list *out) {
  for (size_t i = 0; i < from->len; i++) {
    at_block *b = from->ptr[i];
    if (seen[b->owner] == serial) continue;
    seen[b->owner] = serial;
    if (!at_vec_push(t->arena, out, b)) return false;
  }
  return true;
}

// Who fills the range, lies below it, or fills one around it.
static bool take_range(const timeline *t, size_t at, uint32_t *seen,
                       uint32_t serial, block_list *out) {
  bool ok = take(t, &t->ranges[at].fills, seen, serial, out) &&
            take(t, &t->ranges[at].below, seen, serial, out);
  for (at /= 2; at && ok; at /= 2)
    ok = take(t, &t->ranges[at].fills, seen, serial, out);
  return ok;
}

// The blocks of the tree that live while b does.
static at_status timeline_find(const timeline *t, const at_block *b,
                               uint32_t *seen, uint32_t serial,
                               block_list *out) {
  size_t from = point_of(t, b->time.begin) + t->leaves,
         to = point_of(t, b->time.end) + t->leaves + 1;
  bool ok = true;
  out->len = 0;
  for (; from < to && ok; from /= 2, to /= 2) {
    if (from & 1) ok = ok && take_range(t, from++, seen, serial, out);
    if (to & 1) ok = ok && take_range(t, --to, seen, serial, out);
  }
  return ok ? AT_OK : AT_NO_MEMORY("memory plan");
}

// ---- First fit
// owners: one more than the greatest owner.
static at_status first_fit(at_block *b, uint32_t n, uint32_t owners,
                           at_arena *a, uint64_t *total) {
  timeline t = {.arena = a};
  uint32_t *seen;
  block_list busy = {0};
  AT_TRY_ALLOC(seen, at_new(a, uint32_t, owners));
  AT_TRY(timeline_make(&t, b, n));
  qsort(b, n, sizeof *b, by_size);
  for (uint32_t i = 0; i < n; i++) {
    uint64_t at = 0;
    AT_TRY(timeline_find(&t, &b[i], seen, i + 1, &busy));
    if (busy.len) qsort(busy.ptr, busy.len, sizeof *busy.ptr, by_offset);
    // Neighbours by offset: the first gap that is large enough.
    for (size_t j = 0; j < busy.len; j++) {
      const at_block *x = busy.ptr[j];
      if (x->offset >= at + b[i].bytes) break;
      at = AT_MAX(at, at_align_up(x->offset + x->bytes, kAlign));
    }
    b[i].offset = at;
    *total = AT_MAX(*total, at_align_up(at + b[i].bytes, kAlign));
    AT_TRY(timeline_add(&t, &b[i]));
  }
  return AT_OK;
}

// ---- Places of dead blocks
typedef AT_VEC(uint64_t) offset_list;

// The offsets that are free for blocks of so many bytes.
static at_status free_places(at_map *sizes, uint64_t bytes, offset_list **out) {
  void **slot;
  // Sizes stand in for pointers: the map asks for no more than their bits.
  AT_TRY_ALLOC(slot, at_map_put_ptr(sizes, (const void *)(uintptr_t)bytes));
  if (!*slot) AT_TRY_ALLOC(*slot, at_new(sizes->arena, offset_list, 1));
  *out = *slot;
  return AT_OK;
}

// In the order of ends; ties by owner.
static int by_end(const void *a, const void *b) {
  const at_block *x = *(at_block *const *)a, *y = *(at_block *const *)b;
  if (x->time.end != y->time.end) return x->time.end < y->time.end ? -1 : 1;
  return order_of(x->owner, y->owner);
}

// Blocks in the order in which they begin; each takes the place of a dead block
// of as many bytes, the one that died last, or a new one at the end. A place is
// never divided.
static at_status reuse_sizes(at_block *b, uint32_t n, at_arena *a,
                             uint64_t *total) {
  at_map sizes = at_map_in(a);
  at_block **ends;
  uint32_t dead = 0;
  AT_TRY_ALLOC(ends, at_new(a, at_block *, n + 1));
  qsort(b, n, sizeof *b, by_begin);
  for (uint32_t i = 0; i < n; i++) ends[i] = &b[i];
  qsort(ends, n, sizeof *ends, by_end);
  for (uint32_t i = 0; i < n; i++) {
    offset_list *free;
    for (; ends[dead]->time.end < b[i].time.begin; dead++) {
      AT_TRY(free_places(&sizes, ends[dead]->bytes, &free));
      if (!at_vec_push(a, free, ends[dead]->offset))
        return AT_NO_MEMORY("memory plan");
    }
    AT_TRY(free_places(&sizes, b[i].bytes, &free));
    if (free->len) {
      b[i].offset = free->ptr[--free->len];
      continue;
    }
    b[i].offset = *total;
    *total = at_align_up(*total + b[i].bytes, kAlign);
  }
  return AT_OK;
}

// Pairs of blocks that live at once: with n sorted by begin, those that begin
// before one ends, less those before it.
// Linear but for sorting and searching, so that it may be asked first.
static at_status count_pairs(at_block *b, uint32_t n, at_arena *a,
                             uint64_t *out) {
  int64_t *begins;
  AT_TRY_ALLOC(begins, at_new(a, int64_t, n + 1));
  qsort(b, n, sizeof *b, by_begin);
  for (uint32_t i = 0; i < n; i++) begins[i] = b[i].time.begin;
  *out = 0;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t low = i + 1, high = n;
    while (low < high) {
      uint32_t mid = low + (high - low) / 2;
      if (begins[mid] <= b[i].time.end)
        low = mid + 1;
      else
        high = mid;
    }
    *out += low - i - 1;
  }
  return AT_OK;
}

// ---- The law
// Of two blocks that live at once neither reaches into the other, and *total is
// the least that holds them all. b comes sorted by begin.
static bool are_placed(const at_block *b, uint32_t n, uint64_t total) {
  uint64_t high = 0;
  for (uint32_t i = 0; i < n; i++) {
    const at_block *x = &b[i];
    if (x->offset % kAlign) return false;
    high = AT_MAX(high, at_align_up(x->offset + x->bytes, kAlign));
    for (uint32_t k = i + 1; k < n && b[k].time.begin <= x->time.end; k++)
      if (x->offset < b[k].offset + b[k].bytes &&
          b[k].offset < x->offset + x->bytes)
        return false;
  }
  return high == total;
}

// A copy is sorted, since callers may look at the order. No memory: true.
static bool all_placed(const at_block *b, uint32_t n, at_arena *a,
                       uint64_t total) {
  at_block *copy =
      at_arena_copy(a, b, at_mul(n, sizeof *b), _Alignof(at_block));
  if (!copy) return true;
  qsort(copy, n, sizeof *copy, by_begin);
  return are_placed(copy, n, total);
}

// See place.h.
at_status at_blocks_place(at_block *b, uint32_t n, at_arena *a,
                          uint64_t *total) {
  uint64_t pairs;
  uint32_t owners = 1;
  *total = 0;
  if (!n) return AT_OK;
  AT_TRY(count_pairs(b, n, a, &pairs));
  for (uint32_t i = 0; i < n; i++) owners = AT_MAX(owners, b[i].owner + 1);
  if (pairs <= kPairs + (uint64_t)kPairsEach * n)
    AT_TRY(first_fit(b, n, owners, a, total));
  else
    AT_TRY(reuse_sizes(b, n, a, total));
  AT_VERIFY(all_placed(b, n, a, *total));
  return AT_OK;
}
