// The processes of the job that clients of this one belong to.
#include <pthread.h>
#include <stdio.h>

#include "base/config.h"
#include "compile/compile.h"
#include "pjrt/pjrt_internal.h"
#include "pod/join.h"

// How long the processes of a job wait for each other.
enum { CONNECT_SECONDS = 120 };

// Of the client that came last. Agreements hold the lock, so that it stays.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static at_pod_hosts *current;

// ---- The client's key-value store
// at_pod_store.put by the client's key-value store, which in JAX is the
// coordinator's.
static at_status store_put(void *arg, const char *key, at_str value) {
  const at_pjrt_job *j = arg;
  PJRT_KeyValuePutCallback_Args a = {
      .struct_size = sizeof a,
      .key = key,
      .key_size = strlen(key),
      .value = value.ptr,
      .value_size = value.len,
      .callback_error = &at_pjrt_callback_error,
      .user_arg = j->put_arg,
  };
  return at_pjrt_error_take(j->put(&a));
}

// at_pod_store.get: waits up to timeout_ms for the key. The store's value is
// given back by its deleter, if it has one.
static at_status store_get(void *arg, const char *key, uint64_t timeout_ms,
                           at_strbuf *out) {
  const at_pjrt_job *j = arg;
  PJRT_KeyValueGetCallback_Args a = {
      .struct_size = sizeof a,
      .key = key,
      .key_size = strlen(key),
      .timeout_in_ms = (int)AT_MIN(timeout_ms, (uint64_t)INT32_MAX),
      .callback_error = &at_pjrt_callback_error,
      .user_arg = j->get_arg,
  };
  AT_TRY(at_pjrt_error_take(j->get(&a)));
  at_strbuf_add(out, (at_str){a.value, a.value_size});
  if (a.value_deleter_callback) a.value_deleter_callback(a.value);
  return at_strbuf_status(out);
}

// What the client does not say is asked of Python (at_pjrt_python_job). Ctrl-C
// ends the waiting.
at_status at_pjrt_hosts_open(at_pjrt_job *job, const char *what,
                             at_pod_hosts **out) {
  char token[4000];
  at_pod_store store = {job, store_put, store_get};
  at_pod_said said = {.count = job->count,
                      .me = job->me,
                      .job = what,
                      .user_token = token,
                      .returns = true,
                      .timeout_s = CONNECT_SECONDS,
                      .interrupted = at_pjrt_interrupted};
  at_cache_file("pod.token", token, sizeof token);
  bool given = job->get && job->put;
  if (given && !said.count) at_pjrt_python_job(&said.count, &said.me);
  // XLA's C++ clients leave the callbacks unset, not NULL, where they have no
  // store (torch_xla): only who was told of other processes has one.
  if (given && said.count) said.store = &store;
  AT_TRY(at_pod_join(&said, out));
  pthread_mutex_lock(&lock);
  current = *out;
  pthread_mutex_unlock(&lock);
  return AT_OK;
}

// Agreements end first: the lock is theirs while they last.
void at_pjrt_hosts_close(at_pod_hosts *h) {
  pthread_mutex_lock(&lock);
  if (current == h) current = NULL;
  pthread_mutex_unlock(&lock);
  at_pod_hosts_close(h);
}

// A client that came later keeps its own.
void at_pjrt_hosts_replace(const at_pod_hosts *before, at_pod_hosts *now) {
  pthread_mutex_lock(&lock);
  if (current == before) current = now;
  pthread_mutex_unlock(&lock);
}

// Ors the bits over all processes, or says that they have not met. Holding the
// lock keeps the connections from being closed meanwhile.
static int agree(uint64_t *bits, char *why, size_t why_bytes) {
  uint32_t count = at_address_count(at_config_text(AT_CONFIG_PROCESSES)), me;
  // Not under the lock: it takes the interpreter's.
  if (!count) at_pjrt_python_job(&count, &me);
  pthread_mutex_lock(&lock);
  at_status st = AT_OK;
  if (current)
    st = at_pod_hosts_agree(current, bits);
  else if (count > 1)
    st = AT_FAIL(AT_FAILED_PRECONDITION,
                 "the %u processes of the job have not met\n"
                 "hint: ask for jax.devices() first",
                 count);
  pthread_mutex_unlock(&lock);
  if (st.err) snprintf(why, why_bytes, "%s", at_status_message(st));
  return at_code_take(st);
}

// Counts since the process began.
static void compiled(uint64_t *programs, uint64_t *cached, uint64_t *modules) {
  at_compile_counts c = at_compile_count();
  *programs = c.programs;
  *cached = c.cached;
  *modules = c.modules;
}

// The clock of simulated hosts, where the pod has them.
static uint64_t virtual_ns(void) {
  const at_client *pod = at_pjrt_pod_now();
  return pod ? at_client_virtual_ns(pod) : 0;
}

at_pjrt_own at_pjrt_own_extension = {
    .base = {.struct_size = sizeof(at_pjrt_own),
             .type = (PJRT_Extension_Type)AT_PJRT_OWN_EXTENSION},
    .agree = agree,
    .recompiles = at_pjrt_recompiles,
    .compiled = compiled,
    .graphs = &at_pjrt_graphs,
    .drains = at_pjrt_pod_drains,
    .named = &at_pjrt_named,
    .slices = &at_pjrt_slices,
    .virtual_ns = virtual_ns,
    .queued = at_pjrt_queued,
};
