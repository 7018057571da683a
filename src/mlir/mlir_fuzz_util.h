// What the fuzz targets of this room hold every accepted input to.
#ifndef ATOLL_MLIR_MLIR_FUZZ_UTIL_H_
#define ATOLL_MLIR_MLIR_FUZZ_UTIL_H_

#include <stdlib.h>

#include "mlir/mlir.h"

// A finding stops where a fuzzer sees it.
static inline void check(bool ok) {
  if (!ok) abort();
}

// The tree that `text` stands for equals `m`.
static inline void same(const at_mmodule *m, at_strbuf *text, bool locations,
                        at_arena *a) {
  at_mmodule *again = NULL;
  at_bytes bytes = {(const uint8_t *)text->ptr, text->len};
  at_status s = at_mlir_read(bytes, false, a, &again);
  // The only excuse is the arena's limit.
  at_code code = at_code_take(s);
  if (code == AT_RESOURCE_EXHAUSTED) return;
  check(code == AT_OK_CODE && at_mop_eq(m->op, again->op, locations, a));
}

#endif
