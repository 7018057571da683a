// The processes of the job that clients of this one belong to.
#include <pthread.h>
#include <stdio.h>

#include "base/config.h"
#include "compile/compile.h"
#include "pjrt/pjrt_internal.h"

// How long the processes of a job wait for each other.
enum { CONNECT_SECONDS = 120 };

// Of the client that came last. Agreements hold the lock, so that it stays.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static at_pod_hosts *current;

at_status at_pjrt_hosts_open(const char *job, at_pod_hosts **out) {
  const char *addresses = at_config_text(AT_CONFIG_PROCESSES);
  if (at_pod_hosts_count(addresses) < 2) return AT_OK;
  uint64_t me = at_config_uint(AT_CONFIG_PROCESS);
  AT_TRY(at_pod_hosts_open(addresses,
                           (uint32_t)AT_MIN(me, (uint64_t)UINT32_MAX), job,
                           CONNECT_SECONDS, out));
  pthread_mutex_lock(&lock);
  current = *out;
  pthread_mutex_unlock(&lock);
  return AT_OK;
}

void at_pjrt_hosts_close(at_pod_hosts *h) {
  pthread_mutex_lock(&lock);
  if (current == h) current = NULL;
  pthread_mutex_unlock(&lock);
  at_pod_hosts_close(h);
}

static int agree(uint64_t *bits, char *why, size_t why_bytes) {
  pthread_mutex_lock(&lock);
  at_status st = AT_OK;
  if (current)
    st = at_pod_hosts_agree(current, bits);
  else if (at_pod_hosts_count(at_config_text(AT_CONFIG_PROCESSES)) > 1)
    st = AT_FAIL(AT_FAILED_PRECONDITION,
                 "the processes of TPU_PROCESS_ADDRESSES have not met\n"
                 "hint: ask for jax.devices() first");
  pthread_mutex_unlock(&lock);
  if (st.err) snprintf(why, why_bytes, "%s", at_status_message(st));
  return at_code_take(st);
}

static void compiled(uint64_t *programs, uint64_t *cached, uint64_t *modules) {
  at_compile_counts c = at_compile_count();
  *programs = c.programs;
  *cached = c.cached;
  *modules = c.modules;
}

at_pjrt_own at_pjrt_own_extension = {
    .base = {.struct_size = sizeof(at_pjrt_own),
             .type = (PJRT_Extension_Type)AT_PJRT_OWN_EXTENSION},
    .agree = agree,
    .recompiles = at_pjrt_recompiles,
    .compiled = compiled,
};
