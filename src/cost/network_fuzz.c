// Whatever the text: options and targets give a status, and figures stay
// positive.
#include <stdlib.h>

#include "cost/cost.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_str text = {(const char *)data, size};
  at_network net = {.launch = 1,
                    .nic = 1,
                    .chunk_prep = 1,
                    .rtt = 1,
                    .devices_per_host = 8,
                    .chunk_bytes = 1};
  at_status_free(at_network_options(text, &net));
  at_status_free(at_network_xla_flags(text, &net));
  if (!(net.nic > 0) || net.devices_per_host < 1 || net.chunk_bytes < 1 ||
      net.domain < 0)
    abort();
  double s;
  if (at_ok(at_network_ring(&net, AT_ALL_REDUCE, 1 << 20, 2, 1, &s)) &&
      !(s >= 0))
    abort();
  at_arena *a = at_arena_create_limited(16u << 20);
  at_target *t;
  // Descriptions of files and of the host would read the machine that runs
  // this.
  bool reads = memmem(data, size, ".json", 5) || memmem(data, size, "host", 4);
  if (!reads && !at_code_take(at_target_parse(text, AT_INTERP_ATOLL, a, &t)))
    if (!t->num_devices) abort();
  at_arena_destroy(a);
  return 0;
}
