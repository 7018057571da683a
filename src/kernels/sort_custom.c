// Stable merge sort of indices by a compiled comparator.
#include "kernels/sort_internal.h"

// True if element b sorts before element a.
static bool after(const at_sort_row *r, uint32_t a, uint32_t b) {
  const void *ptrs[2 * AT_K_SORT_OPERANDS];
  for (uint32_t o = 0; o < r->num_operands; o++) {
    ptrs[2 * o] = r->base[o] + b * r->stride[o];
    ptrs[2 * o + 1] = r->base[o] + a * r->stride[o];
  }
  return r->compare(ptrs);
}

// Merges the runs a and b; a's elements come first where neither sorts before
// the other.
static void merge(const at_sort_row *r, const uint32_t *a, int64_t na,
                  const uint32_t *b, int64_t nb, uint32_t *out) {
  while (na > 0 && nb > 0) {
    if (after(r, *a, *b))
      *out++ = *b++, nb--;
    else
      *out++ = *a++, na--;
  }
  memcpy(out, a, (size_t)na * 4);
  memcpy(out + na, b, (size_t)nb * 4);
}

enum { RUN = 8, BLOCK = 4096 };

// Insertion sort of runs of RUN, then merging, to and fro between order and
// tmp.
void at_sort_custom(const at_sort_row *r, uint32_t *order, uint32_t *tmp,
                    int64_t n) {
  for (int64_t s = 0; s < n; s += RUN)
    for (int64_t i = s + 1; i < AT_MIN(s + RUN, n); i++) {
      uint32_t x = order[i];
      int64_t j = i;
      for (; j > s && after(r, order[j - 1], x); j--) order[j] = order[j - 1];
      order[j] = x;
    }
  uint32_t *from = order, *to = tmp;
  for (int64_t w = RUN; w < n; w *= 2) {
    for (int64_t i = 0; i < n; i += 2 * w) {
      int64_t na = AT_MIN(w, n - i), nb = AT_MIN(w, n - i - na);
      merge(r, from + i, na, from + i + na, nb, to + i);
    }
    uint32_t *t = from;
    from = to, to = t;
  }
  if (from != order) memcpy(order, from, (size_t)n * 4);
}

// One level of merging: pairs of runs of `width`.
typedef struct custom_run {
  const at_sort_row *r;
  uint32_t *from, *to;
  int64_t n, width;
} custom_run;

// Sorts blocks [begin, end) of BLOCK elements.
static void block_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const custom_run *c = arg;
  for (int64_t b = begin; b < end; b++)
    at_sort_custom(c->r, c->from + b * BLOCK, c->to + b * BLOCK,
                   AT_MIN(BLOCK, c->n - b * BLOCK));
}
// Merges pairs [begin, end) of runs.
static void merge_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const custom_run *c = arg;
  for (int64_t p = begin; p < end; p++) {
    int64_t i = p * 2 * c->width;
    int64_t na = AT_MIN(c->width, c->n - i),
            nb = AT_MIN(c->width, c->n - i - na);
    merge(c->r, c->from + i, na, c->from + i + na, nb, c->to + i);
  }
}

// Blocks side by side, then levels of merges: the last one is a single
// thread's.
void at_sort_custom_parallel(const at_par *par, const at_sort_row *r,
                             uint32_t *order, uint32_t *tmp, int64_t n) {
  custom_run c = {r, order, tmp, n, BLOCK};
  at_par_for(par, at_k_ceil_div(n, BLOCK), 1, block_range, &c);
  for (; c.width < n; c.width *= 2) {
    at_par_for(par, at_k_ceil_div(n, 2 * c.width), 1, merge_range, &c);
    uint32_t *t = c.from;
    c.from = c.to, c.to = t;
  }
  if (c.from != order) memcpy(order, c.from, (size_t)n * 4);
}
