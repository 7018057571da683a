// Whatever the text: a status, or limits that are at least 1 and are found by
// the names of their tables.
#include <stdlib.h>

#include "spinput/limits.h"

// The arena is limited, so that a large text ends as a status.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(16 << 20);
  at_spinput_limits l;
  if (a &&
      !at_code_take(at_spinput_limits_parse((at_bytes){data, size}, a, &l)))
    for (uint32_t i = 0; i < l.count; i++)
      if (l.ptr[i].max_ids < 1 || l.ptr[i].max_unique < 1 ||
          at_spinput_limits_of(&l, l.ptr[i].table) != &l.ptr[i])
        abort();
  at_arena_destroy(a);
  return 0;
}
