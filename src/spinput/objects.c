#include "spinput/objects.h"

#include <stdatomic.h>

// Objects of a task, and how far ahead their headers are fetched.
enum { CHUNK = 512, AHEAD = 16 };

typedef struct walk {
  const at_spinput_layout *l;
  const void *const *objects;
  at_spinput_row *rows;
  const void *element;  // the dtype of all
  int32_t bytes;
  _Atomic int64_t bad;  // least so far, or INT64_MAX
} walk;

// Objects are read as bytes: their type is known to the Python side only.
static const void *pointer_at(const void *object, int32_t offset) {
  const void *p;
  memcpy(&p, (const char *)object + offset, sizeof p);
  return p;
}
static int rank_of(const at_spinput_layout *l, const void *object) {
  int rank;
  memcpy(&rank, (const char *)object + l->rank_at, sizeof rank);
  return rank;
}

// False: not an array of the accepted kind. A stride matters only from two
// elements on.
static bool read_row(const walk *w, const void *object, at_spinput_row *row) {
  const at_spinput_layout *l = w->l;
  if (!object || pointer_at(object, l->type_at) != l->type ||
      rank_of(l, object) != 1 ||
      pointer_at(object, l->element_at) != w->element)
    return false;
  // Rank 1, so one length and one stride.
  int64_t len = *(const int64_t *)pointer_at(object, l->dims_at);
  int64_t stride = *(const int64_t *)pointer_at(object, l->strides_at);
  *row = (at_spinput_row){pointer_at(object, l->data_at), len};
  return stride == w->bytes || len <= 1;
}

// Two steps of prefetching, as each object points at its dimensions. Stops at
// the first that is wrong.
static void read_rows(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  walk *w = arg;
  for (int64_t i = begin; i < end; i++) {
    if (i + 2 * AHEAD < end) __builtin_prefetch(w->objects[i + 2 * AHEAD]);
    if (i + AHEAD < end && w->objects[i + AHEAD])
      __builtin_prefetch(pointer_at(w->objects[i + AHEAD], w->l->dims_at));
    if (read_row(w, w->objects[i], &w->rows[i])) continue;
    int64_t least = atomic_load(&w->bad);
    // Other workers go on: one of them may find an earlier one.
    while (i < least && !atomic_compare_exchange_weak(&w->bad, &least, i)) {
    }
    return;
  }
}

// The first object decides on the dtype of all. `bad` becomes the least index,
// so the answer does not depend on the threads.
int64_t at_spinput_rows_of(at_pool *pool, const at_spinput_layout *layout,
                           const void *const *objects, int64_t n,
                           at_spinput_row *rows, int32_t *bytes) {
  *bytes = layout->element_bytes[0];
  if (n < 1) return -1;
  if (!objects[0] || pointer_at(objects[0], layout->type_at) != layout->type)
    return 0;
  const void *element = pointer_at(objects[0], layout->element_at);
  int k = element == layout->element[0] ? 0 : 1;
  if (!element || element != layout->element[k]) return 0;
  walk w = {.l = layout,
            .objects = objects,
            .rows = rows,
            .element = element,
            .bytes = layout->element_bytes[k],
            .bad = INT64_MAX};
  *bytes = w.bytes;
  at_pool_for(pool, n, CHUNK, read_rows, &w);
  return w.bad == INT64_MAX ? -1 : w.bad;
}
