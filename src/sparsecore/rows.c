// Loops over rows, for AVX-512 and for the project's baseline.
#include <string.h>

#include "abi/dtype.h"
#include "base/cpu.h"
#include "sparsecore/engine_internal.h"

// Unaligned vectors: rows may be of any width.
typedef float row16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef float row8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float row4 __attribute__((vector_size(16), aligned(4), may_alias));

// Entries whose rows are on their way, and how much of each.
enum { kAhead = 12, kPrefetchBytes = 1024 };

#define AT_ROWS(name) name##_v3
#define AT_ROWS_TARGET
#include "sparsecore/rows_template.h"
#undef AT_ROWS
#undef AT_ROWS_TARGET

#define AT_ROWS(name) name##_v4
#define AT_ROWS_TARGET \
  __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq")))
#include "sparsecore/rows_template.h"
#undef AT_ROWS
#undef AT_ROWS_TARGET

// Bits are the same with and without AVX-512; see rows_template.h.
const at_sc_rows *at_sc_rows_of(uint64_t width) {
  bool wide = at_cpu_features() & AT_CPU_AVX512;
  const at_sc_rows *r = wide ? table_v4 : table_v3;
  while (r->width && r->width != width) r++;
  return r;
}
