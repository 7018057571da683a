// ATOLL_TARGET and other texts that name machines: split into slices, chip and
// shape (at_topology_split, which knows no chips), then settled with the chip's
// description, which says how it is wired, how many chips a pod has and which
// slices the cloud offers. What cannot be wired is an error that names the
// nearest shapes that can; what only the cloud does not offer is a warning.
#include "machine/topology.h"

#include <stdio.h>

#include "base/log.h"
#include "machine/topology_internal.h"

enum { kMostText = 255, kMostSlices = 4096, kMostSide = 1 << 16 };

// An error of form, with all forms that there are.
static at_status bad(at_str text, const char *why) {
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "target \"%.*s\": %s\nhint: [slices*]chip[:XxYxZ], as in "
                 "v6e, v5p:2x2x4, 2*v5e:4x4, H100:16, or an accelerator type: "
                 "v5litepod-16, v5p-128",
                 (int)AT_MIN(text.len, (size_t)64), text.ptr, why);
}

// The decimal number at the start of *s, in 1..most; 0: there is none.
static uint64_t take_number(at_str *s, uint64_t most) {
  uint64_t v = 0;
  size_t i = 0;
  for (; i < s->len && s->ptr[i] >= '0' && s->ptr[i] <= '9'; i++)
    if (v <= most) v = v * 10 + (uint64_t)(s->ptr[i] - '0');
  s->ptr += i, s->len -= i;
  return v > most ? 0 : v;
}

// One to three sides, nothing behind them.
static at_status read_shape(at_str text, at_str rest, at_topology_text *t) {
  for (;;) {
    if (t->dims == 3) return bad(text, "more than three dimensions");
    t->shape[t->dims] = (int64_t)take_number(&rest, kMostSide);
    if (!t->shape[t->dims++]) return bad(text, "a dimension is not 1..65536");
    if (!rest.len) return AT_OK;
    if (*rest.ptr != 'x' && *rest.ptr != 'X')
      return bad(text, "text follows the shape");
    rest.ptr++, rest.len--;
  }
}

// "v5p-128": 128, and the machine without it; 0: no accelerator type.
static uint64_t take_count(at_str *machine) {
  size_t n = machine->len;
  while (n && machine->ptr[n - 1] >= '0' && machine->ptr[n - 1] <= '9') n--;
  if (n < 2 || n == machine->len || machine->ptr[n - 1] != '-') return 0;
  at_str digits = {machine->ptr + n, machine->len - n};
  machine->len = n - 1;
  uint64_t v = take_number(&digits, UINT32_MAX);
  return v ? v : UINT64_MAX;  // nothing has so many
}

// Finds the parts from the outside: slices before a star, the shape behind the
// last colon, the count behind the last dash of what is left.
at_status at_topology_split(at_str text, at_topology_text *out) {
  at_topology_text t = {.slices = 1, .shape = {1, 1, 1}};
  at_str rest = text;
  if (text.len > kMostText) return bad(text, "too long");
  const char *star = text.len ? memchr(text.ptr, '*', text.len) : NULL;
  if (star) {
    t.slices = (uint32_t)take_number(&rest, kMostSlices);
    if (!t.slices || rest.ptr != star)
      return bad(text, "the number of slices is not 1..4096");
    rest.ptr++, rest.len--;
  }
  // The last colon, unless it is part of a path.
  size_t colon = rest.len;
  while (colon && rest.ptr[colon - 1] != ':' && rest.ptr[colon - 1] != '/')
    colon--;
  bool shaped = colon && rest.ptr[colon - 1] == ':';
  t.machine = (at_str){rest.ptr, shaped ? colon - 1 : rest.len};
  if (shaped)
    AT_TRY(read_shape(text, (at_str){rest.ptr + colon, rest.len - colon}, &t));
  t.count = take_count(&t.machine);
  *out = t;
  return AT_OK;
}

// ---- What the network can be
// An error of fact: the text is well formed, and no such machine can be.
static at_status impossible(at_str text, const at_machine *m,
                            const at_topology_text *t, const char *why) {
  at_strbuf near = {0};
  at_slices_nearest(m, t, &near);
  at_status st = AT_FAIL(AT_INVALID_ARGUMENT,
                         "target \"%.*s\": %s\nhint: the nearest are %s",
                         (int)AT_MIN(text.len, (size_t)64), text.ptr, why,
                         near.ptr ? near.ptr : "not known");
  at_strbuf_free(&near);
  return st;
}

// "v5p-128" counts TensorCores or chips, by the description's
// accelerator_type_cores_per_chip. A shape beside it must have as many chips.
static at_status read_accelerator(at_str text, const at_machine *m,
                                  at_topology_text *t) {
  char why[160];
  int64_t per = at_slices_whole(m, "accelerator_type_cores_per_chip", 0);
  if (per < 1)
    return bad(text, "only TPUs have accelerator types; chips follow a colon");
  at_topology_text found = *t;
  if (t->count % (uint64_t)per == 0 &&
      at_slices_find(m, t->count / (uint64_t)per, found.shape)) {
    if (t->dims && at_slices_chips(t->shape) != at_slices_chips(found.shape))
      return bad(text, "the shape has other chips than the accelerator type");
    if (!t->dims) *t = found, t->dims = 3;
    return AT_OK;
  }
  snprintf(why, sizeof why,
           "there is no such accelerator type: the number counts %s",
           per > 1 ? "TensorCores, two to a chip" : "chips");
  t->shape[0] = (int64_t)(t->count / (uint64_t)per);
  return impossible(text, m, t, why);
}

// What holds of every pod of such chips, also of a description that a user
// wrote: dimensions, number of chips, sides.
static at_status check_bounds(at_str text, const at_machine *m,
                              const at_topology_text *t) {
  char why[160];
  uint32_t wired = (uint32_t)at_slices_whole(m, "topology_dims", 3);
  uint64_t pod = (uint64_t)at_slices_whole(m, "pod_chips", 0);
  int64_t most[3] = {1, 1, 1};
  for (uint32_t i = wired; i < 3; i++)
    if (t->shape[i] > 1) {
      snprintf(why, sizeof why, "%s is wired in %u dimensions, not %u", m->name,
               wired, t->dims);
      return impossible(text, m, t, why);
    }
  if (pod && at_slices_chips(t->shape) > pod) {
    snprintf(why, sizeof why, "a pod of %s has %llu chips", m->name,
             (unsigned long long)pod);
    return impossible(text, m, t, why);
  }
  if (at_slices_shape(m, "pod_shape", most) &&
      !at_slices_fits(t->shape, most)) {
    snprintf(why, sizeof why, "a pod of %s has %lld by %lld chips", m->name,
             (long long)most[0], (long long)most[1]);
    return impossible(text, m, t, why);
  }
  return AT_OK;
}

// Errors for what cannot be wired, then, for machines whose hosts are
// described, one warning for what the cloud does not offer.
at_status at_topology_settle(at_str text, const at_machine *m,
                             at_topology_text *t) {
  char why[160];
  int64_t host[3] = {1, 1, 1};
  uint32_t wired = (uint32_t)at_slices_whole(m, "topology_dims", 3);
  if (t->count) AT_TRY(read_accelerator(text, m, t));
  if (strcmp(m->platform, "tpu") != 0) return AT_OK;
  AT_TRY(check_bounds(text, m, t));
  // What a pod of the cloud can be is not known of one's own description.
  if (!at_slices_shape(m, "host_shape", host)) return AT_OK;
  if (at_slices_offered(m, t->shape) || at_slices_fits(t->shape, host))
    return AT_OK;
  if (t->dims < wired && wired == 3) {
    snprintf(why, sizeof why,
             "%s is wired in 3 dimensions, and more than a host has all three",
             m->name);
    return impossible(text, m, t, why);
  }
  at_strbuf near = {0};
  at_slices_nearest(m, t, &near);
  at_log_once(
      AT_LOG_WARNING,
      "target \"%.*s\": the cloud has no such slice; the nearest are %s",
      (int)AT_MIN(text.len, (size_t)64), text.ptr, near.ptr ? near.ptr : "?");
  at_strbuf_free(&near);
  return AT_OK;
}

// ---- Both
at_status at_topology_read(at_str text, const at_machine **machine,
                           at_topology_text *out) {
  AT_TRY(at_topology_split(text, out));
  AT_TRY(at_status_prefix(at_machine_find(out->machine, machine),
                          "target \"%.*s\"", (int)AT_MIN(text.len, (size_t)64),
                          text.ptr));
  return at_topology_settle(text, *machine, out);
}

// For callers who only ask which machine; the status is dropped.
const at_machine *at_topology_machine(at_str text) {
  const at_machine *m = NULL;
  at_topology_text t;
  return at_code_take(at_topology_read(text, &m, &t)) ? NULL : m;
}

// Texts without a shape stay without one.
void at_topology_print(const at_machine *m, const at_topology_text *t,
                       at_strbuf *out) {
  if (t->slices > 1) at_strbuf_addf(out, "%u*", t->slices);
  at_strbuf_addz(out, m->name);
  if (t->dims) at_slices_print(m, t->shape, out);
}
