// Programs of a client as it remembers them: which hosts have them, what a
// text of a traced program says of them, and their executables.
#include <stdlib.h>
#include <string.h>

#include "abi/dtype.h"
#include "abi/executable.h"
#include "base/strbuf.h"
#include "control/client_internal.h"

// The block has been checked by the runtime that loads it.
static const void *section(const at_xheader *h, uint32_t which) {
  return (const uint8_t *)h + h->sections[which].offset;
}
static const char *string(const at_xheader *h, uint32_t at) {
  return (const char *)section(h, AT_XS_STRINGS) + at;
}

// "f32[8,4],s32[]@pinned_host": shards of the results.
static void print_results(const at_xheader *h, at_strbuf *out) {
  const at_xio *io = section(h, AT_XS_OUTPUTS);
  const at_xtype *types = section(h, AT_XS_TYPES);
  const int64_t *dims = section(h, AT_XS_DIMS);
  for (uint64_t o = 0; o < h->sections[AT_XS_OUTPUTS].count; o++) {
    const at_xtype *t = &types[io[o].type];
    at_strbuf_addf(out, "%s%s[", o ? "," : "",
                   at_dtype_of((at_dtype)t->dtype)->text);
    for (uint32_t i = 0; i < t->rank; i++)
      at_strbuf_addf(out, "%s%lld", i ? "," : "", (long long)dims[t->dims + i]);
    at_strbuf_addc(out, ']');
    const char *memory = string(h, io[o].memory_kind);
    if (*memory && strcmp(memory, "device")) at_strbuf_addf(out, "@%s", memory);
  }
}

static at_status no_memory(void) {
  return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a program");
}

// At least one element, so that NULL means no memory.
static uint32_t *copy_numbers(const uint32_t *from, uint32_t n) {
  uint32_t *to = malloc((n + 1) * sizeof *to);
  if (to && n) memcpy(to, from, n * sizeof *to);
  return to;
}

// The block is copied: hosts that come later need it, and the texts point into
// it.
static at_status remember(far_program *p, uint64_t name, at_bytes block,
                          const uint32_t *chips, uint32_t n) {
  const at_xheader *h = (const void *)block.ptr;
  at_strbuf results = {0};
  uint8_t *copy = malloc(block.len);
  print_results(h, &results);
  p->shown = (at_graph_program){
      .name = name,
      .effects = h->has_effects,
      .num_chips = n,
      .chips = copy_numbers(chips, n),
      .results = strndup(at_strbuf_str(&results).ptr, results.len)};
  p->block = (at_bytes){copy, block.len};
  bool good = p->shown.chips && copy && p->shown.results && !results.failed;
  at_strbuf_free(&results);
  if (!good) return no_memory();
  memcpy(copy, block.ptr, block.len);
  p->shown.text = string((const void *)copy, h->name);
  return AT_OK;
}

// Whom it concerns, and its chips in messages.
static at_status place(const at_client *c, far_program *p,
                       const uint32_t *devices, uint32_t n, uint32_t *chips) {
  bool *has = calloc(c->num_hosts, sizeof *has);
  at_status st = has ? AT_OK : no_memory();
  for (uint32_t i = 0; i < n && !st.err; i++) {
    st = at_far_chip(c, devices[i], &chips[i]);
    has[c->host_of[devices[i]]] = true;
    if (devices[i] >= c->num_chips) p->spares[p->num_spares++] = devices[i];
  }
  for (uint32_t h = 0; h < c->num_hosts && !st.err; h++)
    if (has[h]) p->hosts[p->num_hosts++] = h;
  free(has);
  return st;
}

// One block for the struct, its hosts and its spares.
at_status at_far_program_make(const at_client *c, uint64_t name, at_bytes block,
                              const uint32_t *devices, uint32_t num_devices,
                              uint32_t *chips, far_program **out) {
  far_program *p = calloc(
      1, sizeof *p + ((size_t)c->num_hosts + num_devices) * sizeof *p->hosts);
  if (!p) return no_memory();
  p->spares = p->hosts + c->num_hosts;
  at_status st = place(c, p, devices, num_devices, chips);
  if (!st.err) st = remember(p, name, block, chips, num_devices);
  if (st.err)
    at_far_program_free(p);
  else
    *out = p;
  return st;
}

// Names of its chips and results lie in blocks of their own.
void at_far_program_free(far_program *p) {
  if (!p) return;
  free((void *)(uintptr_t)p->block.ptr);
  free((void *)(uintptr_t)p->shown.chips);
  free((void *)(uintptr_t)p->shown.results);
  free(p);
}
