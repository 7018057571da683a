// Custom calls: a registry of foreign handlers by target name.
#include <stdlib.h>

#include "exec/exec_internal.h"

typedef struct handler {
  struct handler *next;
  at_custom_kind kind;
  uint32_t traits;
  void *fn;
  char target[];
} handler;

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static handler *g_handlers;  // never freed: a launch may be using one

static const handler *find(const char *target) {
  pthread_mutex_lock(&g_lock);
  const handler *h = g_handlers;
  while (h && strcmp(h->target, target)) h = h->next;
  pthread_mutex_unlock(&g_lock);
  return h;
}

at_status at_custom_register(at_str target, at_custom_kind kind, void *fn,
                             uint32_t traits) {
  if (!fn || !target.len)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a custom call needs a name and a handler");
  handler *h = malloc(sizeof *h + target.len + 1);
  if (!h) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for a handler");
  *h = (handler){.kind = kind, .traits = traits, .fn = fn};
  memcpy(h->target, target.ptr, target.len);
  h->target[target.len] = 0;
  pthread_mutex_lock(&g_lock);
  h->next = g_handlers;  // a later registration wins
  g_handlers = h;
  pthread_mutex_unlock(&g_lock);
  return AT_OK;
}

at_status at_custom_run(at_frame *f, const at_op *op, const at_xstep *step) {
  const char *target = at_loaded_string(f->loaded, step->target);
  const handler *h = find(target);
  if (!h)
    return AT_FAIL(AT_UNIMPLEMENTED,
                   "no handler is registered for the custom call \"%s\"\n"
                   "hint: jax.ffi.register_ffi_target(\"%s\", ..., "
                   "platform=\"tpu\")",
                   target, target);
  return AT_FAIL(AT_UNIMPLEMENTED, "custom call \"%s\"", target);
}
