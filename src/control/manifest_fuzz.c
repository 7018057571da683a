// A manifest says anything: what is taken is the same once it is printed and
// read again, and fits itself.
#include <string.h>

#include "control/fuzz_input.h"
#include "control/manifest.h"

// Every sum is read, so that a sanitizer sees one that is not there.
static void check(const at_manifest *m) {
  for (uint32_t i = 0; i < m->num_arrays; i++) {
    const at_manifest_array *a = &m->arrays[i];
    uint64_t all = 0;
    must(a->num_tiles <= AT_MESSAGE_CHIPS);
    must(a->num_sums == at_manifest_sums(a->tile_bytes));
    for (uint64_t t = 0; t < a->num_tiles; t++)
      for (uint32_t k = 0; k < a->num_sums; k++) all ^= a->sums[t][k];
    must(all + 1 != all);
  }
}

// Whatever is accepted prints as something that reads the same.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(64 << 20);
  at_manifest m, n;
  at_strbuf once = {0}, twice = {0};
  if (!at_code_take(at_manifest_parse((at_bytes){data, size}, a, &m))) {
    check(&m);
    at_manifest_print(&m, &once);
    at_bytes text = {(const uint8_t *)once.ptr, once.len};
    must(!at_code_take(at_manifest_parse(text, a, &n)));
    at_manifest_print(&n, &twice);
    must(once.len == twice.len && !memcmp(once.ptr, twice.ptr, once.len));
  }
  at_strbuf_free(&once);
  at_strbuf_free(&twice);
  at_arena_destroy(a);
  return 0;
}
