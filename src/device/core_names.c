// What messages call the parts of a kernel, and who works on them.
#include "base/strbuf.h"
#include "device/core_internal.h"

// Among those of its role, and as the kernel's function counts its arguments.
void core_name_ref(const core_state *c, uint32_t ref, at_strbuf *out) {
  static const char *const roles[] = {"prefetched scalars", "input", "output",
                                      "scratch"};
  const at_xcore_ref *x = c->program->refs;
  uint32_t among = 0;
  AT_ASSERT(ref < c->program->record->num_refs && x[ref].role < AT_LEN(roles));
  for (uint32_t i = 0; i < ref; i++) among += x[i].role == x[ref].role;
  at_strbuf_addf(out, "%s %u (argument %u)", roles[x[ref].role], among, ref);
}

// For messages: cut to n bytes, "?" without memory.
const char *core_ref_text(const core_state *c, uint32_t ref, char *buf,
                          size_t n) {
  at_strbuf b = {0};
  core_name_ref(c, ref, &b);
  snprintf(buf, n, "%s", b.ptr ? b.ptr : "?");
  at_strbuf_free(&b);
  return buf;
}

// Names as much as tells cores of this launch apart.
const char *core_who(const core_state *c, char *buf, size_t n) {
  char subcore[32] = "", device[32] = "";
  if (c->program->record->type == AT_CORE_SC_VECTOR)
    snprintf(subcore, sizeof subcore, ", subcore %d", c->head.subcore_index);
  if (c->launch->num_devices > 1)
    snprintf(device, sizeof device, " of device %d", c->head.device_id);
  snprintf(buf, n, "core %d%s%s", c->head.core_index, subcore, device);
  return buf;
}

void core_name_sem(const core_state *c, const sem *s, at_strbuf *out) {
  const at_xcore *r = c->program->record;
  if (s < c->sems + kFirstSem) {
    bool collective = s < c->sems + kBarrierSems;
    at_strbuf_addz(out, collective ? "the barrier semaphore"
                                   : "the barrier of the subcores");
    return;
  }
  for (uint32_t i = 0; i < r->num_refs; i++) {
    const at_xcore_ref *x = &c->program->refs[i];
    const sem *first = c->refs[i].base;
    if (x->space != AT_CORE_SEM || s < first || s >= first + core_elements(x))
      continue;
    at_strbuf_addf(out, "semaphore %lld of ", (long long)(s - first));
    core_name_ref(c, i, out);
    return;
  }
  at_strbuf_addf(out,
                 "a semaphore that the kernel allocated (%lld of this core)",
                 (long long)(s - c->sems));
}
