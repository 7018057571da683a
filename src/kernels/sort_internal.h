// Keys and radix passes that SORT and TOP_K share.
#ifndef ATOLL_KERNELS_SORT_INTERNAL_H_
#define ATOLL_KERNELS_SORT_INTERNAL_H_

#include "kernels/kernels_internal.h"

// Number of 32-bit limbs of a key of this type, minor limb first; 0: no order
// known.
int at_sort_limbs(uint32_t dtype);
// Limb of the element at `p` as an unsigned key in SORT's ascending order: -0
// equals 0, every NaN is the largest.
uint32_t at_sort_limb(uint32_t dtype, int limb, const void *p);

// items[i] = limb of element i << 32 | i, for elements `stride` bytes apart,
// taken through `perm` when it is not NULL. flip: inverts the order.
void at_sort_items(uint32_t dtype, int limb, bool flip, const char *base,
                   int64_t stride, const uint32_t *perm, int64_t begin,
                   int64_t end, uint64_t *items);

// Sorts n items by all 64 bits, using tmp[n]; the result is in the returned
// array.
uint64_t *at_sort_merge(uint64_t *items, uint64_t *tmp, int64_t n);
// Stable by the upper 32 bits.
uint64_t *at_sort_radix(uint64_t *items, uint64_t *tmp, int64_t n);
// The same by all threads, and the same for items that are keys alone. Without
// scratch memory for the counts *st is RESOURCE_EXHAUSTED and items are as they
// were.
uint64_t *at_sort_radix_parallel(const at_par *par, uint64_t *items,
                                 uint64_t *tmp, int64_t n, at_status *st);
uint32_t *at_sort_radix32_parallel(const at_par *par, uint32_t *items,
                                   uint32_t *tmp, int64_t n, at_status *st);

// SORT with a comparator: order[n] of one row becomes its sorted order.
typedef struct at_sort_row {
  uint32_t num_operands;
  const char *base[AT_K_SORT_OPERANDS];
  int64_t stride[AT_K_SORT_OPERANDS];  // bytes
  at_comparator_fn compare;
} at_sort_row;
// tmp: n more indices, overwritten. The comparator must be a strict weak order;
// another one gives some permutation.
void at_sort_custom(const at_sort_row *r, uint32_t *order, uint32_t *tmp,
                    int64_t n);
// Calls the comparator from several threads: it must have no state.
// The same, over the pool.
void at_sort_custom_parallel(const at_par *par, const at_sort_row *r,
                             uint32_t *order, uint32_t *tmp, int64_t n);

#endif
