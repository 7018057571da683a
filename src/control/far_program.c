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

static bool remember(far_program *p, uint64_t name, at_bytes block,
                     const uint32_t *chips, uint32_t num_chips) {
  const at_xheader *h = (const void *)block.ptr;
  at_strbuf results = {0};
  uint32_t *chips_copy = malloc(num_chips * sizeof *chips);
  uint8_t *copy = malloc(block.len);
  print_results(h, &results);
  p->shown = (at_graph_program){
      .name = name,
      .effects = h->has_effects,
      .num_chips = num_chips,
      .chips = chips_copy,
      .results = strndup(at_strbuf_str(&results).ptr, results.len)};
  p->block = (at_bytes){copy, block.len};
  bool good = chips_copy && copy && p->shown.results && !results.failed;
  at_strbuf_free(&results);
  if (!good) return false;
  memcpy(copy, block.ptr, block.len);
  memcpy(chips_copy, chips, num_chips * sizeof *chips);
  p->shown.text = string((const void *)copy, h->name);
  return true;
}

far_program *at_far_program_make(const at_client *c, uint64_t name,
                                 at_bytes block, const uint32_t *chips,
                                 uint32_t num_chips) {
  far_program *p = calloc(1, sizeof *p + c->num_hosts * sizeof *p->hosts);
  bool *has = calloc(c->num_hosts, sizeof *has);
  bool good = p && has && remember(p, name, block, chips, num_chips);
  for (uint32_t i = 0; good && i < num_chips; i++)
    has[c->host_of[chips[i]]] = true;
  for (uint32_t h = 0; good && h < c->num_hosts; h++)
    if (has[h]) p->hosts[p->num_hosts++] = h;
  free(has);
  if (good) return p;
  at_far_program_free(p);
  return NULL;
}

void at_far_program_free(far_program *p) {
  if (!p) return;
  free((void *)(uintptr_t)p->block.ptr);
  free((void *)(uintptr_t)p->shown.chips);
  free((void *)(uintptr_t)p->shown.results);
  free(p);
}
