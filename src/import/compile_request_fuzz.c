// Any bytes as compile options.
#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(64u << 20);
  at_compile_request r;
  at_status s = at_compile_request_read((at_bytes){data, size}, a, &r);
  if (at_ok(s)) {
    // What was accepted is whole: every id and key is there to read.
    int64_t sum = 0;
    if (r.num_replicas < 1 || r.num_partitions < 1) __builtin_trap();
    for (int64_t i = 0; r.device_ids && i < r.num_replicas * r.num_partitions;
         i++)
      sum += r.device_ids[i] & 1;
    for (uint32_t i = 0; i < 2 * r.num_env_options; i++)
      for (size_t k = 0; k < r.env_options[i].len; k++)
        sum += r.env_options[i].ptr[k];
    if (sum == INT64_MIN) __builtin_trap();
  }
  at_status_free(s);
  at_arena_destroy(a);
  return 0;
}
