// Copies to scratch that wait until somebody needs their data (plan_pages.c).
#include "mosaic/emit_memory.h"

// Bytes from the ref's first element to its last, by its strides.
void at_me_pages_fetch(at_me *m, const at_me_ref *r) {
  if (m->share) return;  // done before the loop
  at_me_num bytes = {r->bytes, NULL};
  for (uint32_t d = 0; d < r->rank; d++) {
    at_me_num last = at_me_add(m, r->size[d], (at_me_num){-1, NULL});
    last = at_me_mul(m, last, (at_me_num){r->bytes, NULL});
    bytes = at_me_add(m, bytes, at_me_mul(m, last, r->stride[d]));
  }
  LLVMValueRef args[3] = {m->core, r->base, at_me_num_value(m, bytes)};
  at_b_call(m->e, "at_core_pages_fetch", NULL, args, 3);
}
