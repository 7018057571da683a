// Requests of a debugger from any bytes: an answer or a status, and numbers in
// range.
#include <stdlib.h>

#include "device/core_debug.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create();
  debug_request r;
  if (!a) return 0;
  at_status st = debug_read_request((at_bytes){data, size}, a, &r);
  if (!st.err) {
    if (!(r.num_breaks <= DEBUG_MOST_BREAKS)) abort();
    if (!(r.box.rank <= AT_CORE_MAX_RANK)) abort();
    if (!(r.first_line <= r.last_line)) abort();
    for (uint32_t i = 0; i < r.num_breaks; i++) {
      const debug_break *b = &r.breaks[i];
      if (!(b->file && b->kernel && b->line <= b->last)) abort();
      if (!(b->rank <= AT_CORE_MAX_GRID)) abort();
      if (!(b->box.rank <= AT_CORE_MAX_RANK)) abort();
    }
  }
  at_status_free(st);
  at_arena_destroy(a);
  return 0;
}
