// Hostile executables: a status, or a program that loads and of which every
// string can be read. Nothing of it is run.
#include <stdlib.h>
#include <string.h>

#include "exec/exec_internal.h"

static at_runtime *runtime(void) {
  static at_runtime *rt;
  at_runtime_options o = {.target = "v6e", .threads = 1};
  if (!rt && at_code_take(at_runtime_create(&o, &rt))) abort();
  return rt;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_loaded *l;
  at_runtime *rt = runtime();
  if (at_code_take(at_loaded_create(rt, (at_bytes){data, size}, &l))) return 0;
  uint64_t n;
  const at_xstep *s = at_loaded_section(l, AT_XS_STEPS, &n);
  size_t sum = strlen(at_loaded_string(l, l->header->name));
  for (uint64_t i = 0; i < n; i++) {
    sum += strlen(at_loaded_string(l, s[i].op_name));
    for (uint32_t k = 0; k < l->ops[i].num_args; k++) {
      at_ref r = l->arg_refs[l->ops[i].args + k];
      if (r.base >= AT_BASE_INPUTS + l->num_inputs + l->num_outputs) abort();
    }
  }
  if (sum == SIZE_MAX) abort();
  at_loaded_release(l);
  return 0;
}
