// Hostile objects: a status, or a mapping whose symbols lie inside it.
#include <stdlib.h>

#include "exec/exec_internal.h"

// Nothing of the object is run: whatever it holds, loading must be safe.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_object *o;
  if (at_code_take(at_object_load((at_bytes){data, size}, &o))) return 0;
  (void)at_object_symbol(o, "k_add");
  at_object_unload(o);
  return 0;
}
