// What is said of a program's memory: the largest buffers, and what helps.
#include "estimate/estimate_internal.h"

// See estimate.h; the last line has no line feed.
void at_estimate_largest(const at_estimate *e, uint32_t rows, at_strbuf *out) {
  for (uint32_t i = 0; i < AT_MIN(rows, e->num_buffers); i++) {
    const at_estimate_buffer *b = &e->buffers[i];
    at_strbuf_addf(out, "%s  %.1f MiB  %s  %s%s%s", i ? "\n" : "",
                   (double)b->bytes / (1 << 20), b->type, b->name,
                   *b->source ? "  " : "", b->source);
    if (*b->until)
      at_strbuf_addf(out, ", until %s", b->until);
    else if (!b->argument)
      at_strbuf_addz(out, b->result ? ", a result" : ", all the time");
  }
}

// Floating point of 32 bits or more?
static bool is_wide(const at_estimate_buffer *b) {
  return !strncmp(b->type, "f32", 3) || !strncmp(b->type, "f64", 3);
}

// The temporaries among the largest buffers: of loops, and in all.
static uint64_t temporaries_of(const at_estimate *e, bool loops, bool wide) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < e->num_buffers; i++) {
    const at_estimate_buffer *b = &e->buffers[i];
    if (b->argument || b->result) continue;
    if (loops && strncmp(b->name, "while.", 6)) continue;
    if (!wide || is_wide(b)) sum += b->bytes;
  }
  return sum;
}

// What would free the most comes first.
const char *at_estimate_memory_advice(const at_estimate *e) {
  uint64_t over = e->peak_bytes - AT_MIN(e->peak_bytes, e->memory_bytes);
  if (e->donatable_bytes && e->donatable_bytes >= over)
    return "donate the arguments that results replace (donate_argnums)";
  if (e->temp_bytes < e->argument_bytes)
    return "shard the arguments over more devices, or keep some in the host's "
           "memory (memory_kind=\"pinned_host\")";
  if (2 * temporaries_of(e, true, false) > e->temp_bytes)
    return "wrap the loop's body in jax.checkpoint, with a policy that saves "
           "less or offloads what it saves to the host";
  if (temporaries_of(e, false, true) > e->temp_bytes / 2)
    return "compute in bfloat16, wrap layers in jax.checkpoint, or shard the "
           "batch over more devices";
  return "wrap layers in jax.checkpoint, or shard the batch over more devices";
}
