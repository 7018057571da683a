// Any text as the backend_config of a call: a status, or a config that holds
// what it promises.
#include <stdlib.h>

#include "sparsecore/sparsecore.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  at_sc_config c;
  if (at_code_take(at_sc_config_read((at_str){(const char *)p, n}, &c)))
    return 0;
  bool limits = c.max_ids >= 0 && c.max_unique >= 0 && c.num_slots >= -1 &&
                c.num_hypers >= -1;
  bool levels =
      !c.quantised || (c.num_buckets >= 2 && (float)c.low < (float)c.high);
  if (!limits || !levels) abort();
  return 0;
}
