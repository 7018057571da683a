#include "kernels/kernels.h"

#include <stdatomic.h>

#include "kernels/kernels_internal.h"

static const at_k_info kernel_table[AT_RT_COUNT] = {
#define AT_RT_KERNEL(Id, fn, params, doc) \
  [AT_RT_##Id] = {#Id, fn, sizeof(params), doc},
#include "abi/kernels.def"
#undef AT_RT_KERNEL
};

// NULL for an id that is none.
const at_k_info *at_k_of(at_rt_kernel id) {
  return (unsigned)id < AT_RT_COUNT ? &kernel_table[id] : NULL;
}

static _Atomic uint64_t feature_limit = UINT64_MAX;

// Relaxed: tests set the limit before they call.
uint64_t at_k_features(void) {
  return at_cpu_features() &
         atomic_load_explicit(&feature_limit, memory_order_relaxed);
}
// Takes effect for calls that begin later.
void at_k_limit_features(uint64_t mask) {
  atomic_store_explicit(&feature_limit, mask, memory_order_relaxed);
}
