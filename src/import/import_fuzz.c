// Any bytes as a program: read, import, and what came out must be lawful.
#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(256u << 20);
  if (!a) return 0;
  at_mmodule *m;
  at_module *h;
  at_status s = at_mlir_read((at_bytes){data, size}, true, a, &m);
  if (at_ok(s)) s = at_import(m, a, &h);
  if (at_ok(s)) {
    s = at_verify(h, "import");
    // The builder has checked every node: a graph it gave out obeys the laws.
    if (!at_ok(s) && at_status_code(s) != AT_RESOURCE_EXHAUSTED)
      __builtin_trap();
  }
  at_status_free(s);
  at_arena_destroy(a);
  return 0;
}
