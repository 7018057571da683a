// Whatever the bytes: a status or a description whose figures can be asked for.
#include <stdlib.h>

#include "machine/machine.h"

// A description that is taken answers to its name, and every figure of it has a
// source.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(64u << 20);
  at_machine m;
  if (!at_code_take(at_machine_read((at_bytes){data, size}, a, &m))) {
    if (!at_machine_answers_to(&m, at_str_of(m.name))) abort();
    for (size_t i = 0; i < m.tree->len; i++) {
      char *key = at_arena_str(a, m.tree->keys[i]);
      at_figure f;
      if (key && at_machine_figure(&m, key, &f) && !f.source.len) abort();
    }
  }
  at_arena_destroy(a);
  return 0;
}
