// Any bytes as an archive: a status, or arrays that lie within 64 MiB.
#include "cli/npz.h"

// The arena's limit stands for the machine's memory: sizes in the file are not
// to be believed.
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  at_arena *a = at_arena_create_limited(64u << 20);
  at_npy *arrays;
  uint32_t count;
  if (a) (void)at_code_take(at_npz_read((at_bytes){p, n}, a, &arrays, &count));
  at_arena_destroy(a);
  return 0;
}
