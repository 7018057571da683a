// Pods of several kinds of chips: a program is compiled for the kind of its
// devices. A compilation takes ATOLL_TARGET, so those for one kind run beside
// each other, those for another wait.
#include <pthread.h>
#include <stdio.h>

#include "base/config.h"
#include "pjrt/pjrt_internal.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static uint32_t running;

// Waits until no compilation for another kind runs, and makes the target this
// one's. leave() is due only on success.
static at_status enter(const char *target) {
  at_status st = AT_OK;
  pthread_mutex_lock(&lock);
  while (running && strcmp(at_config_text(AT_CONFIG_TARGET), target))
    pthread_cond_wait(&news, &lock);
  if (!running) st = at_config_set(AT_CONFIG_TARGET, target);
  running += !st.err;
  pthread_mutex_unlock(&lock);
  return st;
}

// The last one lets compilations for another kind in.
static void leave(void) {
  pthread_mutex_lock(&lock);
  running--;
  pthread_cond_broadcast(&news);
  pthread_mutex_unlock(&lock);
}

static const PJRT_DeviceDescription *find(const PJRT_Client *c, int64_t id) {
  return id >= 0 && id < c->num_devices ? c->devices[id].description : NULL;
}

// The first device; all are of its kind, or there is an error.
static at_status find_kind(const PJRT_Client *c, const at_pjrt_options *o,
                           const PJRT_DeviceDescription **out) {
  size_t n =
      o->has_assignment ? (size_t)o->num_replicas * o->num_partitions : 0;
  *out = find(c, n ? o->assignment[0] : AT_MAX(o->device_ordinal, 0));
  for (size_t i = 0; i < n; i++) {
    const PJRT_DeviceDescription *d = find(c, o->assignment[i]);
    if (!d || !*out)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "the device assignment names device %lld; there are %u",
                     (long long)o->assignment[i], c->num_devices);
    if (strcmp(d->kind, (*out)->kind))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "a program over devices of two kinds: device %u is a %s, "
                     "device %u a %s\nhint: one program for each, and "
                     "jax.device_put between them",
                     (*out)->info.id, (*out)->kind, d->info.id, d->kind);
  }
  return *out ? AT_OK : AT_FAIL(AT_INVALID_ARGUMENT, "there is no such device");
}

// Where all chips are alike this is at_pjrt_compile.
at_status at_pjrt_compile_for(PJRT_Client *c, const PJRT_Program *program,
                              at_bytes options, at_pjrt_program **out) {
  if (!c->pod || !at_client_is_mixed(c->pod))
    return at_pjrt_compile(program, options, c->topology, out);
  at_pjrt_options o;
  const PJRT_DeviceDescription *d = NULL;
  AT_TRY(at_pjrt_options_parse(options, &o));
  at_status st = find_kind(c, &o, &d);
  at_pjrt_options_free(&o);
  if (!st.err) st = enter(at_client_target_of(c->pod, d->info.id));
  if (st.err) return st;
  st = at_pjrt_compile(program, options, c->topology, out);
  leave();
  if (!st.err) snprintf((*out)->chip, sizeof(*out)->chip, "%s", d->kind);
  return st;
}
