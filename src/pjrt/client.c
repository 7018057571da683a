// Clients, devices and memories.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/config.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/thread.h"
#include "compile/compile.h"
#include "pjrt/pjrt_internal.h"

const char at_pjrt_platform_name[] = "tpu";

static char platform_version[128];
// JAX's caches of compiled programs hash this text: it must change when the
// build or a setting does that decides on executables.
static void make_platform_version(void) {
  at_digest build = {{0}}, settings = {{0}};
  // What is wrong with either is said where programs are compiled.
  at_status_free(at_compile_build(&build));
  at_status_free(at_compile_settings(&settings));
  snprintf(platform_version, sizeof platform_version,
           "Atoll " AT_VERSION
           " (a TPU pod in software; build %016llx, settings %016llx)",
           (unsigned long long)build.h[0], (unsigned long long)settings.h[0]);
}
const char *at_pjrt_platform_version(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_platform_version);
  return platform_version;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// Clients that are there, newest first, under `lock`.
static PJRT_Client *all;
// Taken before `lock`.
static pthread_mutex_t end_lock = PTHREAD_MUTEX_INITIALIZER;

// From here on at_pjrt_pod_now, at_pjrt_queued and the others find the client.
static void client_enter(PJRT_Client *c) {
  pthread_mutex_lock(&lock);
  c->next = all;
  all = c;
  pthread_mutex_unlock(&lock);
}

// Takes it from the list, which it may not be in. Its objects live on.
static void client_leave(const PJRT_Client *c) {
  pthread_mutex_lock(&lock);
  for (PJRT_Client **at = &all; *at; at = &(*at)->next)
    if (*at == c) {
      *at = c->next;
      break;
    }
  pthread_mutex_unlock(&lock);
}

// Asked when Python ends: as long as it is true, callbacks into the interpreter
// may come.
bool at_pjrt_clients_busy(void) {
  bool busy = false;
  pthread_mutex_lock(&lock);
  for (const PJRT_Client *c = all; c && !busy; c = c->next)
    busy = at_runtime_busy(c->runtime);
  pthread_mutex_unlock(&lock);
  return busy;
}

// Reading a DATA_LOSS is what lets launches go on after a process has come back
// (at_pjrt_epoch_owes). Anything else is cheap: no lock is taken.
void at_pjrt_note_read(at_status s) {
  if (AT_LIKELY(!s.err) || at_status_code(s) != AT_DATA_LOSS) return;
  pthread_mutex_lock(&lock);
  for (PJRT_Client *c = all; c; c = c->next) at_pjrt_epochs_heard(c);
  pthread_mutex_unlock(&lock);
}

// The newest client of a pod. Not held: the package asks while it has devices
// of the client, so it is there.
PJRT_Client *at_pjrt_pod_client(void) {
  pthread_mutex_lock(&lock);
  PJRT_Client *c = all;
  while (c && !c->pod) c = c->next;
  pthread_mutex_unlock(&lock);
  return c;
}

at_client *at_pjrt_pod_now(void) {
  const PJRT_Client *c = at_pjrt_pod_client();
  return c ? c->pod : NULL;
}

// ---- How long a client lives
// Ends everything that runs; the handles that clients have stay.
static void client_stop(PJRT_Client *c) {
  at_pjrt_epochs_stop(c);
  at_island_destroy(c->island);
  if (c->runtime) at_runtime_destroy(c->runtime);
  at_client_close(c->pod);
  at_pjrt_epochs_free(c);
  at_pjrt_hosts_close(c->hosts);
  c->island = NULL;
  c->runtime = NULL;
  c->pod = NULL;
  c->hosts = NULL;
}

// The descriptions, devices and memories: what clients hold by raw pointers
// without an object of ours.
static void client_free(PJRT_Client *c) {
  if (!c) return;
  at_pjrt_topology_destroy(c->topology);
  free(c->devices);
  free(c->device_pointers);
  free(c->memory_pointers);
  free(c);
}

// The clients that ended last: a ring.
static PJRT_Client *ended[AT_PJRT_ENDED];
// So far in all: its remainder is the slot of the next one.
static uint32_t num_ended;

// The last hold is gone. The client's shell stays in the ring, since JAX may
// still ask its devices for their names.
static void client_end(void *arg) {
  PJRT_Client *c = arg;
  client_stop(c);
  pthread_mutex_lock(&lock);
  PJRT_Client **slot = &ended[num_ended++ % AT_PJRT_ENDED];
  PJRT_Client *oldest = *slot;
  *slot = c;
  pthread_mutex_unlock(&lock);
  client_free(oldest);
}

static _Thread_local uint32_t callbacks;  // that this thread is in
void at_pjrt_callback_enter(void) { callbacks++; }
void at_pjrt_callback_leave(void) {
  AT_ASSERT(callbacks);
  callbacks--;
}

// Relaxed: whoever holds the client has it already.
PJRT_Client *at_pjrt_client_hold(PJRT_Client *c) {
  atomic_fetch_add_explicit(&c->holds, 1, memory_order_relaxed);
  return c;
}

// A thread of the runtime cannot wait for its own end.
static void end_elsewhere(PJRT_Client *c) {
  static at_thread *before;
  pthread_mutex_lock(&end_lock);
  at_thread_join(before);
  before = NULL;
  at_status st =
      at_thread_start("at-end", AT_THREAD_STACK, client_end, c, &before);
  pthread_mutex_unlock(&end_lock);
  if (st.err)
    at_log(AT_LOG_WARNING, "the threads of a client stay: %s",
           at_status_message(st));
  at_status_free(st);
}

// A callback, or a fiber, runs on a thread of the runtime, and ending the
// runtime joins its threads.
void at_pjrt_client_release(PJRT_Client *c) {
  if (!c) return;
  const uint64_t before = atomic_fetch_sub(&c->holds, 1);
  AT_ASSERT(before);  // nobody gives back what nobody has taken
  if (before != 1) return;
  if (callbacks || at_in_fiber())
    end_elsewhere(c);
  else
    client_end(c);
}

// Every call checks it, so it is one relaxed load; a call that races with
// Destroy may still be taken.
at_status at_pjrt_client_check(const PJRT_Client *c, const char *call) {
  return AT_LIKELY(!atomic_load_explicit(&c->destroyed, memory_order_relaxed))
             ? AT_OK
             : AT_FAIL(AT_FAILED_PRECONDITION,
                       "%s: the client has been destroyed", call);
}

// Fills device i and its memories: ids count through all memories of all
// devices, as JAX wants them to be unique.
static void device_set(PJRT_Client *c, uint32_t i) {
  PJRT_Device *d = &c->devices[i];
  d->client = c;
  d->chip = at_runtime_chip(c->runtime, i);
  d->description = &c->topology->devices[i];
  c->device_pointers[i] = d;
  for (int k = 0; k < AT_MEM_KINDS; k++) {
    PJRT_Memory *m = &d->memories[k];
    m->id = (int32_t)(i * AT_MEM_KINDS) + k;
    m->kind = (at_memory_kind)k;
    m->device = d;
    const char *kind = at_memory_kind_name(m->kind);
    snprintf(m->debug_string, sizeof m->debug_string,
             "%s memory %d of device %u", kind, m->id, d->description->info.id);
    snprintf(m->to_string, sizeof m->to_string, "%s(id=%d)", kind, m->id);
    d->memory_pointers[k] = m;
    c->memory_pointers[i * AT_MEM_KINDS + k] = m;
  }
}

// A client option that counts processes. INVALID_ARGUMENT: not an integer, or
// one that no job has.
static at_status read_count(const PJRT_NamedValue *v, const char *name,
                            uint32_t *out) {
  if (v->type != PJRT_NamedValue_kInt64 || v->int64_value < 0 ||
      v->int64_value > 1024)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "client option %s is not an integer in [0, 1024]", name);
  *out = (uint32_t)v->int64_value;
  return AT_OK;
}

// Options that this client understands; others belong to other plug-ins and are
// passed by frameworks to all of them, so they are ignored.
static at_status read_options(const PJRT_NamedValue *options, size_t count,
                              at_runtime_options *out, char **out_target,
                              at_pjrt_job *job) {
  if (count && !options)
    return AT_FAIL(AT_INVALID_ARGUMENT, "create_options is NULL");
  for (size_t i = 0; i < count; i++) {
    const PJRT_NamedValue *v = &options[i];
    at_str name = {v->name, v->name ? v->name_size : 0};
    if (at_str_is(name, "target")) {
      if (v->type != PJRT_NamedValue_kString || !v->string_value)
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       "client option target is not a string");
      free(*out_target);
      *out_target = strndup(v->string_value, v->value_size);
      if (!*out_target)
        return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
      out->target = *out_target;
    } else if (at_str_is(name, "threads")) {
      if (v->type != PJRT_NamedValue_kInt64 || v->int64_value < 0 ||
          v->int64_value > 4096)
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       "client option threads is not an integer in [0, 4096]");
      out->threads = (uint32_t)v->int64_value;
    } else if (at_str_is(name, "num_nodes")) {
      AT_TRY(read_count(v, "num_nodes", &job->count));
    } else if (at_str_is(name, "node_id")) {
      AT_TRY(read_count(v, "node_id", &job->me));
    }
  }
  if (job->count && job->me >= job->count)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "client option node_id is %u, but num_nodes is %u", job->me,
                   job->count);
  return AT_OK;
}

// Compilations take ATOLL_TARGET, without a client: so the target that a client
// asks for is the process's, and the first client settles it.
static pthread_mutex_t target_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t target_users;  // clients that were created or are about to be

// Settles the target for this client: what is asked for, unless an earlier
// client has settled another one. Counts the client as a user; target_drop
// takes that back.
static at_status target_take(const char *asked) {
  at_status st = AT_OK;
  pthread_mutex_lock(&target_lock);
  const char *now = at_config_text(AT_CONFIG_TARGET);
  if (asked && *asked && strcmp(asked, now))
    st = target_users
             ? AT_FAIL(
                   AT_FAILED_PRECONDITION,
                   "client option target is %.80s, but this process has had a "
                   "client for %.80s\nhint: one process has one target; start "
                   "another process",
                   asked, now)
             : at_config_set(AT_CONFIG_TARGET, asked);
  target_users += at_ok(st);
  pthread_mutex_unlock(&target_lock);
  return st;
}

// The client was not created after all.
static void target_drop(void) {
  pthread_mutex_lock(&target_lock);
  AT_ASSERT(target_users);
  if (!--target_users) at_status_free(at_config_set(AT_CONFIG_TARGET, NULL));
  pthread_mutex_unlock(&target_lock);
}

// Meets the other processes of the job, where it has several.
static at_status open_hosts(PJRT_Client *c, at_pjrt_job *job,
                            at_runtime_options *o) {
  at_strbuf what = {0};
  at_strbuf_addf(&what, "Atoll " AT_VERSION " %s",
                 o->target ? o->target : at_config_text(AT_CONFIG_TARGET));
  at_status st = at_strbuf_status(&what);
  if (at_ok(st)) st = at_pjrt_hosts_open(job, what.ptr, &c->hosts);
  at_strbuf_free(&what);
  o->hosts = at_pod_hosts_of(c->hosts);
  return st;
}

// Its target is that of the pod.
static at_status open_pod(PJRT_Client *c, at_runtime_options *o,
                          char **target) {
  AT_TRY(at_pjrt_pod_open(&c->pod));
  if (!c->pod) return AT_OK;
  if (*target && strcmp(*target, at_client_target(c->pod)))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "client option target is %.80s, but the pod (ATOLL_POD) is "
                   "%.80s",
                   *target, at_client_target(c->pod));
  free(*target);
  *target = strdup(at_client_target(c->pod));
  if (!*target) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  o->target = *target;
  o->proxy = at_client_proxy(c->pod);
  o->spares = at_client_spares(c->pod);
  return AT_OK;
}

// The largest of the clients' counts: each client has runtime and queues of its
// own.
uint32_t at_pjrt_queued(uint32_t device) {
  uint32_t queued = 0;
  pthread_mutex_lock(&lock);
  for (const PJRT_Client *c = all; c; c = c->next)
    for (uint32_t i = 0; i < c->num_devices; i++)
      if ((uint32_t)c->devices[i].description->info.id == device)
        queued = AT_MAX(queued, at_chip_queued(c->devices[i].chip));
  pthread_mutex_unlock(&lock);
  return queued;
}

// PJRT_Client_Create, in the order in which a failure costs least: the
// settings, the options, the pod or the other processes, then the runtime.
// Whatever fails, what was made before is taken back at the end.
static PJRT_Error *create(PJRT_Client_Create_Args *a) {
  AT_ARGS_UP_TO(PJRT_Client_Create_Args, client);
  at_runtime_options o = {0};
  at_pjrt_job job = {.get = a->kv_get_callback,
                     .put = a->kv_put_callback,
                     .get_arg = a->kv_get_user_arg,
                     .put_arg = a->kv_put_user_arg};
  char *target = NULL;
  PJRT_Client *c = NULL;
  bool taken = false;
  at_status st = at_knobs_check();
  if (!at_ok(st)) goto out;
  AT_TRY_GOTO(
      st, read_options(a->create_options, a->num_options, &o, &target, &job),
      out);
  c = calloc(1, sizeof *c);
  if (!c) {
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory for a client");
    goto out;
  }
  atomic_init(&c->holds, 1);
  AT_TRY_GOTO(st, open_pod(c, &o, &target), out);
  AT_TRY_GOTO(st, target_take(c->pod ? at_client_target_of(c->pod, 0) : target),
              out);
  taken = true;
  AT_TRY_GOTO(st, at_pjrt_own_calls_serve(), out);
  if (!c->pod) AT_TRY_GOTO(st, open_hosts(c, &job, &o), out);
  AT_TRY_GOTO(st, at_runtime_create(&o, &c->runtime), out);
  c->num_own = at_runtime_own_chips(c->runtime, &c->first_own);
  AT_TRY_GOTO(st, at_island_create(c->hosts, &c->island), out);
  if (c->hosts) AT_TRY_GOTO(st, at_pjrt_epochs_begin(c), out);
  // Spare ones, and chips whose hosts have not come.
  uint32_t hidden =
      c->pod ? at_runtime_num_chips(c->runtime) - at_client_listed(c->pod) : 0;
  AT_TRY_GOTO(st, at_pjrt_topology_create(c->runtime, hidden, &c->topology),
              out);
  uint32_t n = c->num_devices = o.spares || !c->pod
                                    ? at_runtime_num_chips(c->runtime)
                                    : c->topology->num_devices;
  if (c->pod) c->num_own = n;
  c->devices = calloc(n ? n : 1, sizeof *c->devices);
  c->device_pointers = calloc(n ? n : 1, sizeof(void *));
  c->memory_pointers = calloc(n ? n * AT_MEM_KINDS : 1, sizeof(void *));
  if (!c->devices || !c->device_pointers || !c->memory_pointers) {
    st = AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory for a client");
    goto out;
  }
  for (uint32_t i = 0; i < n; i++) device_set(c, i);
  client_enter(c);
  at_pjrt_watch_end();
  at_pjrt_banner(c);
  a->client = c;
  c = NULL;
  taken = false;
out:
  if (c) client_stop(c);
  client_free(c);
  if (taken) target_drop();
  free(target);
  return at_pjrt_error(st);
}

// Where JAX_PLATFORMS does not name the platform, JAX passes over a client that
// failed and computes elsewhere, without a word. So the word is ours; JAX may
// try again, so it is said once.
static void say_why(const PJRT_Error *e) {
  at_log_once(AT_LOG_ERROR,
              "no client, so JAX has no devices of Atoll and may go on with "
              "others\nreason: %s",
              at_status_message(e->status));
}

// The error goes to the client, and to the log, too.
AT_API(Client_Create) {
  PJRT_Error *e = create(a);
  if (e) say_why(e);
  return e;
}

// Drops the client's hold on itself. A second call is FAILED_PRECONDITION for
// as long as the shell is kept.
AT_API(Client_Destroy) {
  AT_ARGS(PJRT_Client_Destroy_Args);
  if (!a->client) return NULL;
  AT_CLIENT(a->client);
  atomic_store(&a->client->destroyed, true);
  client_leave(a->client);
  at_pjrt_client_release(a->client);
  return NULL;
}

// Chips are few and this is no launch's way: a scan will do.
PJRT_Device *at_pjrt_device_of(const PJRT_Client *c, const at_chip *chip) {
  for (uint32_t i = 0; i < c->num_devices; i++)
    if (c->devices[i].chip == chip) return &c->devices[i];
  return NULL;
}

// By the buffer's chip and its kind of memory.
PJRT_Memory *at_pjrt_memory_of(const PJRT_Client *c, const at_buffer *b) {
  PJRT_Device *d = at_pjrt_device_of(c, at_buffer_chip(b));
  return d ? &d->memories[at_buffer_memory(b)] : NULL;
}

// A device stands for its own device memory. Devices of other processes hold no
// arrays of this one.
at_status at_pjrt_place(const PJRT_Client *c, PJRT_Device *device,
                        PJRT_Memory *memory, PJRT_Memory **out) {
  if (!memory && !device)
    return AT_FAIL(AT_INVALID_ARGUMENT, "neither device nor memory is given");
  memory = memory ? memory : &device->memories[AT_MEM_DEVICE];
  AT_TRY(at_pjrt_client_check(memory->device->client, "putting an array"));
  if (memory->device->client != c)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "the device or memory is of another client than the array");
  if (!at_pjrt_is_own(memory->device))
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "device %u belongs to process %u: this one cannot put arrays "
        "there",
        memory->device->description->info.id,
        memory->device->description->info.host);
  *out = memory;
  return AT_OK;
}

// Own devices are one run of the list; the unsigned difference checks both ends
// at once.
bool at_pjrt_is_own(const PJRT_Device *d) {
  const PJRT_Client *c = d->client;
  return (size_t)(d - c->devices) - c->first_own < c->num_own;
}

// JAX picks its TPU rules by this name.
AT_API(Client_PlatformName) {
  AT_ARGS(PJRT_Client_PlatformName_Args);
  AT_CLIENT(a->client);
  a->platform_name = at_pjrt_platform_name;
  a->platform_name_size = strlen(at_pjrt_platform_name);
  return NULL;
}

// JAX shows it, and hashes it into the keys of its cache.
AT_API(Client_PlatformVersion) {
  AT_ARGS(PJRT_Client_PlatformVersion_Args);
  AT_CLIENT(a->client);
  a->platform_version = at_pjrt_platform_version();
  a->platform_version_size = strlen(a->platform_version);
  return NULL;
}

// The process's number in the job; 0 where there is one process, or one
// controller.
AT_API(Client_ProcessIndex) {
  AT_ARGS(PJRT_Client_ProcessIndex_Args);
  AT_CLIENT(a->client);
  a->process_index =
      a->client->hosts ? (int)at_pod_hosts_of(a->client->hosts)->me : 0;
  return NULL;
}

// The devices of all processes, spare ones of a pod included: atoll/_virtual.py
// hides those.
AT_API(Client_Devices) {
  AT_ARGS(PJRT_Client_Devices_Args);
  AT_CLIENT(a->client);
  a->devices = a->client->device_pointers;
  a->num_devices = a->client->num_devices;
  return NULL;
}

// Those that this process may put arrays on.
AT_API(Client_AddressableDevices) {
  AT_ARGS(PJRT_Client_AddressableDevices_Args);
  AT_CLIENT(a->client);
  a->addressable_devices = a->client->device_pointers + a->client->first_own;
  a->num_addressable_devices = a->client->num_own;
  return NULL;
}

// INVALID_ARGUMENT: there is none with that id; `what` names the id in the
// message.
static PJRT_Error *lookup(const PJRT_Client *c, int64_t id, const char *what,
                          PJRT_Device **out) {
  for (uint32_t i = 0; i < c->num_devices; i++) {
    if (c->devices[i].description->info.id == id) {
      *out = &c->devices[i];
      return NULL;
    }
  }
  return AT_PFAIL(AT_INVALID_ARGUMENT, "no device with %s %lld; there are %u",
                  what, (long long)id, c->num_devices);
}

// By the id that the description has, over all processes' devices.
AT_API(Client_LookupDevice) {
  AT_ARGS(PJRT_Client_LookupDevice_Args);
  AT_CLIENT(a->client);
  return lookup(a->client, a->id, "id", &a->device);
}

// A local hardware id counts the devices of this process from 0; any other id
// is refused as one that is not there.
AT_API(Client_LookupAddressableDevice) {
  AT_ARGS(PJRT_Client_LookupAddressableDevice_Args);
  AT_CLIENT(a->client);
  int64_t id = a->local_hardware_id;
  bool own = id >= 0 && id < a->client->num_own;
  if (own) id += a->client->first_own;
  return lookup(a->client, own ? id : -1, "local hardware id",
                &a->addressable_device);
}

// All memories of the own devices: they lie in the list as the devices do.
AT_API(Client_AddressableMemories) {
  AT_ARGS(PJRT_Client_AddressableMemories_Args);
  AT_CLIENT(a->client);
  const PJRT_Client *c = a->client;
  a->addressable_memories =
      c->memory_pointers + (size_t)c->first_own * AT_MEM_KINDS;
  a->num_addressable_memories = (size_t)c->num_own * AT_MEM_KINDS;
  return NULL;
}

// Borrowed from the client; PJRT_TopologyDescription_Destroy is not for it.
AT_API(Client_TopologyDescription) {
  AT_ARGS(PJRT_Client_TopologyDescription_Args);
  AT_CLIENT(a->client);
  a->topology = a->client->topology;
  return NULL;
}

// The first devices of the topology, replica by replica. INVALID_ARGUMENT: the
// topology has too few, or the client brings too little room.
AT_API(Client_DefaultDeviceAssignment) {
  AT_ARGS(PJRT_Client_DefaultDeviceAssignment_Args);
  AT_CLIENT(a->client);
  if (a->num_replicas < 1 || a->num_partitions < 1)
    return AT_PFAIL(AT_INVALID_ARGUMENT,
                    "num_replicas is %d and num_partitions is %d; both must be "
                    "positive",
                    a->num_replicas, a->num_partitions);
  size_t n = at_mul((size_t)a->num_replicas, (size_t)a->num_partitions);
  if (n > a->client->topology->num_devices)
    return AT_PFAIL(AT_INVALID_ARGUMENT,
                    "%d replicas of %d partitions need %zu devices, but there "
                    "are %u\nhint: set ATOLL_TARGET to a larger topology",
                    a->num_replicas, a->num_partitions, n,
                    a->client->topology->num_devices);
  if (a->default_assignment_size < n || !a->default_assignment)
    return AT_PFAIL(AT_INVALID_ARGUMENT,
                    "default_assignment holds %zu entries, %zu are needed",
                    a->default_assignment_size, n);
  for (size_t i = 0; i < n; i++)
    a->default_assignment[i] =
        (int32_t)a->client->devices[i].description->info.id;
  return NULL;
}

// Processes know of each other from the moment they have met.
AT_API(Client_UpdateGlobalProcessInfo) {
  AT_ARGS(PJRT_Client_UpdateGlobalProcessInfo_Args);
  AT_CLIENT(a->client);
  if (a->num_process_infos) AT_HANDLE(a->process_infos);
  return NULL;
}

// Host memory is reachable by every virtual device as it is, so mapping it for
// DMA needs no work.
AT_API(Client_DmaMap) {
  AT_ARGS(PJRT_Client_DmaMap_Args);
  AT_CLIENT(a->client);
  AT_HANDLE(a->data);
  return NULL;
}

AT_API(Client_DmaUnmap) {
  AT_ARGS(PJRT_Client_DmaUnmap_Args);
  AT_CLIENT(a->client);
  AT_HANDLE(a->data);
  return NULL;
}

// ---- Devices

AT_API(Device_GetDescription) {
  AT_ARGS(PJRT_Device_GetDescription_Args);
  AT_HANDLE(a->device);
  a->device_description = a->device->description;
  return NULL;
}

// Whether this process may put arrays on it.
AT_API(Device_IsAddressable) {
  AT_ARGS(PJRT_Device_IsAddressable_Args);
  AT_HANDLE(a->device);
  a->is_addressable = at_pjrt_is_own(a->device);
  return NULL;
}

// Counted among the devices of this process; -1 for others'.
AT_API(Device_LocalHardwareId) {
  AT_ARGS(PJRT_Device_LocalHardwareId_Args);
  AT_HANDLE(a->device);
  const PJRT_Client *c = a->device->client;
  a->local_hardware_id = at_pjrt_is_own(a->device)
                             ? (int32_t)(a->device - c->devices - c->first_own)
                             : -1;
  return NULL;
}

// HBM, pinned and unpinned host memory, in the order of at_memory_kind.
AT_API(Device_AddressableMemories) {
  AT_ARGS(PJRT_Device_AddressableMemories_Args);
  AT_HANDLE(a->device);
  a->memories = a->device->memory_pointers;
  a->num_memories = AT_MEM_KINDS;
  return NULL;
}

// Where arrays go that name a device and no memory.
AT_API(Device_DefaultMemory) {
  AT_ARGS(PJRT_Device_DefaultMemory_Args);
  AT_HANDLE(a->device);
  a->memory = &a->device->memories[AT_MEM_DEVICE];
  return NULL;
}

// What the chip's HBM holds now and held at most. Nothing here is pooled or
// fragmented, so those fields say that they are not set, or the whole free
// part.
AT_API(Device_MemoryStats) {
  AT_ARGS_UP_TO(PJRT_Device_MemoryStats_Args, largest_free_block_bytes_is_set);
  AT_HANDLE(a->device);
  AT_CLIENT(a->device->client);
  at_memory_stats s = at_chip_memory_stats(a->device->chip);
  a->bytes_in_use = (int64_t)s.in_use;
  a->peak_bytes_in_use = (int64_t)s.peak_in_use;
  a->peak_bytes_in_use_is_set = true;
  a->num_allocs = (int64_t)s.num_allocs;
  a->num_allocs_is_set = true;
  a->largest_alloc_size = (int64_t)s.largest_alloc;
  a->largest_alloc_size_is_set = true;
  a->bytes_limit = (int64_t)s.limit;
  a->bytes_limit_is_set = true;
  a->bytes_reserved = (int64_t)s.reserved;
  a->bytes_reserved_is_set = true;
  a->peak_bytes_reserved_is_set = false;
  a->bytes_reservable_limit = (int64_t)s.limit;
  a->bytes_reservable_limit_is_set = true;
  // Virtual memory does not fragment: what is free is free in one piece.
  a->largest_free_block_bytes =
      (int64_t)(s.limit > s.in_use ? s.limit - s.in_use : 0);
  a->largest_free_block_bytes_is_set = true;
  if (AT_HAS(PJRT_Device_MemoryStats_Args, peak_pool_bytes_is_set)) {
    a->pool_bytes_is_set = false;
    a->peak_pool_bytes_is_set = false;
  }
  return NULL;
}

// Peaks begin anew from what is in use.
AT_API(Device_ClearMemoryStats) {
  AT_ARGS(PJRT_Device_ClearMemoryStats_Args);
  AT_HANDLE(a->device);
  AT_CLIENT(a->device->client);
  at_chip_memory_stats_clear(a->device->chip);
  return NULL;
}

struct PJRT_Device_Attributes {
  void *vtable;
};
// The deleter of attributes that the device owns.
static void attributes_keep(PJRT_Device_Attributes *d) { (void)d; }

// Those of the description: they live as long as the device, so the deleter has
// nothing to do.
AT_API(Device_GetAttributes) {
  AT_ARGS(PJRT_Device_GetAttributes_Args);
  AT_HANDLE(a->device);
  static PJRT_Device_Attributes holder;
  a->attributes = a->device->description->attributes;
  a->num_attributes = AT_PJRT_ATTRIBUTES;
  a->device_attributes = &holder;  // the device owns them; nothing to free
  a->attributes_deleter = attributes_keep;
  return NULL;
}

struct PJRT_AsyncTrackingEvent {
  void *vtable;
  char description[];
};

// Tools mark work on a device by such an event. Nothing here shows it; the
// description is kept for a debugger to see.
AT_API(Device_CreateAsyncTrackingEvent) {
  AT_ARGS(PJRT_Device_CreateAsyncTrackingEvent_Args);
  AT_HANDLE(a->device);
  if (a->description_size) AT_HANDLE(a->description);
  if (a->description_size > 1 << 20)
    return AT_PFAIL(AT_INVALID_ARGUMENT, "a description of %zu bytes",
                    a->description_size);
  PJRT_AsyncTrackingEvent *e = calloc(1, sizeof *e + a->description_size + 1);
  if (!e) return AT_PFAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
  if (a->description_size)
    memcpy(e->description, a->description, a->description_size);
  a->event = e;
  return NULL;
}

AT_API(AsyncTrackingEvent_Destroy) {
  AT_ARGS(PJRT_AsyncTrackingEvent_Destroy_Args);
  free(a->event);
  return NULL;
}

// ---- Memories

// Unique among the memories of the client.
AT_API(Memory_Id) {
  AT_ARGS(PJRT_Memory_Id_Args);
  AT_HANDLE(a->memory);
  a->id = a->memory->id;
  return NULL;
}

// "device", "pinned_host" or "unpinned_host".
AT_API(Memory_Kind) {
  AT_ARGS(PJRT_Memory_Kind_Args);
  AT_HANDLE(a->memory);
  a->kind = at_memory_kind_name(a->memory->kind);
  a->kind_size = strlen(a->kind);
  return NULL;
}

AT_API(Memory_Kind_Id) {
  AT_ARGS(PJRT_Memory_Kind_Id_Args);
  AT_HANDLE(a->memory);
  a->kind_id = a->memory->kind;
  return NULL;
}

AT_API(Memory_DebugString) {
  AT_ARGS(PJRT_Memory_DebugString_Args);
  AT_HANDLE(a->memory);
  a->debug_string = a->memory->debug_string;
  a->debug_string_size = strlen(a->debug_string);
  return NULL;
}

AT_API(Memory_ToString) {
  AT_ARGS(PJRT_Memory_ToString_Args);
  AT_HANDLE(a->memory);
  a->to_string = a->memory->to_string;
  a->to_string_size = strlen(a->to_string);
  return NULL;
}

// A memory belongs to one device: a list of one, in the client's list of
// devices.
AT_API(Memory_AddressableByDevices) {
  AT_ARGS(PJRT_Memory_AddressableByDevices_Args);
  AT_HANDLE(a->memory);
  PJRT_Device *d = a->memory->device;
  a->devices = &d->client->device_pointers[d - d->client->devices];
  a->num_devices = 1;
  return NULL;
}
