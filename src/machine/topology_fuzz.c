// Whatever the text of a target: a status, or a machine and a shape that its
// network can have, which print as a text that means the same.
#include <stdlib.h>

#include "machine/topology.h"

// A text that is taken prints as one that means the same.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_str text = {(const char *)data, size};
  const at_machine *m, *again;
  at_topology_text t, u;
  if (at_code_take(at_topology_read(text, &m, &t))) return 0;
  at_strbuf b = {0};
  at_topology_print(m, &t, &b);
  if (at_code_take(at_topology_read(at_strbuf_str(&b), &again, &u))) abort();
  if (again != m || u.slices != t.slices) abort();
  if (memcmp(u.shape, t.shape, sizeof t.shape)) abort();
  at_strbuf_free(&b);
  return 0;
}
