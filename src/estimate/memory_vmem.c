// Which values stay in VMEM: those that wait the shortest, where they fit.
#include <math.h>
#include <stdlib.h>

#include "estimate/memory_internal.h"

typedef struct wish {
  live *x;
  double gap;  // seconds between its kernel and its last reader's
} wish;

static int by_gap(const void *a, const void *b) {
  const wish *x = a, *y = b;
  if (x->gap != y->gap) return x->gap < y->gap ? -1 : 1;
  return (x->x->bytes < y->x->bytes) - (x->x->bytes > y->x->bytes);
}

// Arguments that several kernels read are in VMEM, too, from the first of them
// to the last: that takes it from temporaries.
static bool is_prefetched(const lives *l, const live *x) {
  return x->argument && !l->comp->owner && x->readers.len > 1;
}

static uint32_t begin_of(const lives *l, const live *x) {
  uint32_t first = x->born;
  if (x->argument) first = l->groups.count;
  for (size_t r = 0; x->argument && r < x->readers.len; r++)
    first = AT_MIN(first, l->step[x->readers.ptr[r]]);
  return first;
}

static uint32_t end_of(const lives *l, const live *x) {
  uint32_t last = x->argument ? 0 : x->dies;
  for (size_t r = 0; x->argument && r < x->readers.len; r++)
    last = AT_MAX(last, l->step[x->readers.ptr[r]]);
  return last;
}

static bool fits(const lives *l, const live *x) {
  for (uint32_t s = begin_of(l, x); s <= end_of(l, x) && s < l->groups.count;
       s++)
    if (l->used[s] + (double)x->bytes > l->vmem) return false;
  return true;
}

at_status at_est_place_in_vmem(lives *l) {
  uint32_t count = l->groups.count, wishes = 0;
  wish *list;
  AT_TRY_ALLOC(list, at_new(l->arena, wish, l->list.len + 1));
  for (size_t i = 0; i < l->list.len; i++) {
    live *x = &l->list.ptr[i];
    bool may = at_est_is_temporary(l, x) && !x->kept && x->born <= x->dies &&
               !at_est_is_from_host(l, x->value.node);
    if (!x->bytes || !(may || is_prefetched(l, x))) continue;
    wish w = {x, 0};
    for (uint32_t s = begin_of(l, x) + 1; s < end_of(l, x) && s < count; s++)
      w.gap += l->seconds[s];
    list[wishes++] = w;
  }
  if (wishes) qsort(list, wishes, sizeof *list, by_gap);
  for (uint32_t i = 0; i < wishes; i++) {
    live *x = list[i].x;
    if (!fits(l, x)) continue;
    x->vmem = !x->argument;
    for (uint32_t s = begin_of(l, x); s <= end_of(l, x) && s < count; s++)
      l->used[s] += (double)x->bytes;
  }
  return AT_OK;
}
