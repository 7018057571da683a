// Loaded executables and their launches. The path of a launch allocates one
// wrapper per output and nothing else.
#include <stdlib.h>

#include "base/clock.h"
#include "pjrt/pjrt_internal.h"
#include "profile/profile.h"

#define NO_MEMORY() AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory")

// Arguments and outputs up to this many live on the stack of the call.
enum { STACK_SLOTS = 64 };

// NULL is allowed; also of one that at_pjrt_load could not finish. Launches
// under way hold the code for themselves.
static void loaded_free(PJRT_LoadedExecutable *l) {
  if (!l) return;
  if (l->loaded) at_loaded_release(l->loaded);
  at_pjrt_program_release(l->program);
  free(l->devices);
  free(l->chips);
  free(l->logical_ids);
  free(l->assigned);
  at_pjrt_client_release(l->client);
  free(l);
}

// Finds the devices by the program's assignment, else by device_ordinal, else
// the first ones. A portable program has none: each launch names its own.
// INVALID_ARGUMENT: too many, one that is not there, one twice.
static at_status assign_devices(PJRT_LoadedExecutable *l) {
  const at_pjrt_options *o = &l->program->parsed;
  PJRT_Client *c = l->client;
  size_t want = o->portable ? 0 : at_mul(o->num_replicas, o->num_partitions);
  if (want > c->num_devices)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "the program needs %zu devices (%u replicas of %u "
                   "partitions), but there are %u\n"
                   "hint: set ATOLL_TARGET to a larger topology",
                   want, o->num_replicas, o->num_partitions, c->num_devices);
  uint32_t n = (uint32_t)want;
  l->devices = calloc(n + 1, sizeof *l->devices);
  l->chips = calloc(n + 1, sizeof *l->chips);
  l->logical_ids = calloc(n + 1, sizeof *l->logical_ids);
  l->assigned = calloc(n + 1, sizeof *l->assigned);
  if (!l->devices || !l->chips || !l->logical_ids || !l->assigned)
    return NO_MEMORY();
  for (uint32_t i = 0; i < n; i++) {
    int64_t id = o->has_assignment ? o->assignment[i]
                 : n == 1 && o->device_ordinal > 0
                     ? o->device_ordinal
                     : c->devices[i].description->info.id;
    for (uint32_t d = 0; d < c->num_devices && !l->devices[i]; d++)
      if (c->devices[d].description->info.id == id)
        l->devices[i] = &c->devices[d];
    if (!l->devices[i])
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "the device assignment names device %lld; there are %u",
                     (long long)id, c->num_devices);
    for (uint32_t k = 0; k < i; k++)
      if (l->devices[k] == l->devices[i])
        return AT_FAIL(AT_INVALID_ARGUMENT,
                       "the device assignment names device %lld twice",
                       (long long)id);
    l->chips[i] = l->devices[i]->chip;
    l->assigned[i] = id;
    l->logical_ids[i] =
        (PJRT_LogicalDeviceIds){.replica = (int32_t)(i / o->num_partitions),
                                .partition = (int32_t)(i % o->num_partitions)};
  }
  l->num_devices = l->num_assigned = n;
  return AT_OK;
}

// A program whose devices are not all of this process: clients see theirs
// alone.
static at_status span_processes(PJRT_LoadedExecutable *l) {
  uint32_t own = 0;
  for (uint32_t i = 0; i < l->num_devices; i++)
    own += at_pjrt_is_own(l->devices[i]);
  if (own == l->num_devices) return AT_OK;
  l->spans = own;
  if (own) AT_TRY(at_loaded_span(l->loaded, l->chips));
  uint32_t k = 0;
  for (uint32_t i = 0; i < l->num_devices; i++) {
    if (!at_pjrt_is_own(l->devices[i])) continue;
    l->devices[k] = l->devices[i];
    l->chips[k] = l->chips[i];
    l->logical_ids[k++] = l->logical_ids[i];
  }
  AT_ASSERT(k == own);
  l->num_devices = own;
  return AT_OK;
}

// A program that can never run is refused when it is compiled, as the chip's
// compiler does.
static at_status check_memory(const PJRT_LoadedExecutable *l) {
  const PJRT_Client *c = l->client;
  const at_pjrt_program *p = l->program;
  if (c->num_devices == 0) return AT_OK;
  const PJRT_Device *d = l->num_devices ? l->devices[0] : &c->devices[0];
  uint64_t limit = at_chip_memory_stats(d->chip).limit;
  if (p->device_bytes <= limit) return AT_OK;
  const at_xheader *h = p->header;
  const char *largest = at_pjrt_program_string(p, h->largest);
  const char *advice = at_pjrt_program_string(p, h->advice);
  return AT_FAIL(
      AT_RESOURCE_EXHAUSTED,
      "Ran out of memory on HBM, the total memory required for HLO temporaries "
      "(%.2fG) exceeds available HBM (%.2fG)\n"
      "detail: %s on %s; arguments %.2fG, results %.2fG, temporaries "
      "%.2fG%s%s\n"
      "hint: %s%sset ATOLL_TARGET to a chip with more memory",
      (double)p->device_bytes / (double)(1 << 30),
      (double)limit / (double)(1 << 30),
      at_pjrt_program_string(p, p->header->name), d->description->kind,
      (double)h->hbm_argument_bytes / (double)(1 << 30),
      (double)(h->hbm_output_bytes - h->hbm_alias_bytes) / (double)(1 << 30),
      (double)h->hbm_temp_bytes / (double)(1 << 30),
      *largest ? "; the largest buffers:\n" : "", largest, advice,
      *advice ? "; or " : "");
}

// In a pod of several kinds of chips.
static at_status check_kind(const PJRT_LoadedExecutable *l) {
  if (!l->client->pod || !at_client_is_mixed(l->client->pod)) return AT_OK;
  for (uint32_t i = 0; i < l->num_devices; i++) {
    const PJRT_DeviceDescription *d = l->devices[i]->description;
    if (strcmp(d->kind, l->program->chip))
      return AT_FAIL(AT_FAILED_PRECONDITION,
                     "the program is for %s, device %u is a %s",
                     l->program->chip, d->info.id, d->kind);
  }
  return AT_OK;
}

// Not once Python is ending: jaxlib's devices, and then the client, are gone.
static at_status python_goes_on(void) {
  return at_pjrt_python_ends() ? AT_FAIL(AT_CANCELLED, "Python is ending")
                               : AT_OK;
}

// Takes over one reference to the program, also on failure.
at_status at_pjrt_load(PJRT_Client *c, at_pjrt_program *p,
                       PJRT_LoadedExecutable **out) {
  PJRT_LoadedExecutable *l = calloc(1, sizeof *l);
  if (!l) {
    at_pjrt_program_release(p);
    return NO_MEMORY();
  }
  l->client = at_pjrt_client_hold(c);
  l->program = p;
  atomic_init(&l->deleted, false);
  at_status st;
  AT_TRY_GOTO(st, assign_devices(l), fail);
  AT_TRY_GOTO(st, check_kind(l), fail);
  AT_TRY_GOTO(st, check_memory(l), fail);
  AT_TRY_GOTO(st, at_loaded_create(c->runtime, p->executable, &l->loaded),
              fail);
  at_pjrt_epoch_hold(c);
  l->epoch = at_pjrt_epoch(c);
  st = span_processes(l);
  at_pjrt_epoch_release(c);
  if (!at_ok(st)) goto fail;
  AT_TRY_GOTO(st, python_goes_on(), fail);
  *out = l;
  return AT_OK;
fail:
  loaded_free(l);
  return st;
}

// Compiles and loads. Times and counts of recompiles are taken here, as this is
// what JAX calls.
AT_API(Client_Compile) {
  AT_ARGS(PJRT_Client_Compile_Args);
  AT_PTRY(python_goes_on());
  AT_CLIENT(a->client);
  uint64_t start = at_clock_ns();
  at_pjrt_program *p;
  AT_PTRY(at_pjrt_compile_for(
      a->client, a->program,
      (at_bytes){(const uint8_t *)a->compile_options, a->compile_options_size},
      &p));
  AT_PTRY(at_pjrt_load(a->client, p, &a->executable));
  at_pjrt_note_compiled(a->executable->loaded, start);
  return NULL;
}

// For a program that was compiled for a topology, or is loaded elsewhere
// already.
AT_API(Client_Load) {
  AT_ARGS(PJRT_Client_Load_Args);
  AT_CLIENT(a->client);
  AT_HANDLE(a->executable);
  return at_pjrt_error(
      at_pjrt_load(a->client, at_pjrt_program_retain(a->executable->program),
                   &a->loaded_executable));
}

// Compile options that come with the call take the place of the serialised
// ones. In a pod of several kinds of chips any kind is read; check_kind then
// compares it with its devices.
AT_API(Executable_DeserializeAndLoad) {
  AT_ARGS_UP_TO(PJRT_Executable_DeserializeAndLoad_Args, loaded_executable);
  AT_CLIENT(a->client);
  AT_HANDLE(a->serialized_executable);
  at_bytes options = {0};
  if (AT_HAS(PJRT_Executable_DeserializeAndLoad_Args,
             overridden_serialized_compile_options_size) &&
      a->overridden_serialized_compile_options)
    options =
        (at_bytes){(const uint8_t *)a->overridden_serialized_compile_options,
                   a->overridden_serialized_compile_options_size};
  at_pjrt_program *p;
  bool any = a->client->pod && at_client_is_mixed(a->client->pod);
  const char *chip = any ? NULL : at_pjrt_topology_chip(a->client->topology);
  AT_PTRY(
      at_pjrt_program_read((at_bytes){(const uint8_t *)a->serialized_executable,
                                      a->serialized_executable_size},
                           options, chip, &p));
  return at_pjrt_error(at_pjrt_load(a->client, p, &a->loaded_executable));
}

// Launches under way go on.
AT_API(LoadedExecutable_Destroy) {
  AT_ARGS(PJRT_LoadedExecutable_Destroy_Args);
  loaded_free(a->executable);
  return NULL;
}

AT_API(LoadedExecutable_Delete) {
  AT_ARGS(PJRT_LoadedExecutable_Delete_Args);
  AT_HANDLE(a->executable);
  // The code stays mapped until Destroy: another thread may be launching it.
  atomic_store(&a->executable->deleted, true);
  return NULL;
}

AT_API(LoadedExecutable_IsDeleted) {
  AT_ARGS(PJRT_LoadedExecutable_IsDeleted_Args);
  AT_HANDLE(a->executable);
  a->is_deleted = atomic_load(&a->executable->deleted);
  return NULL;
}

// Those of this process; none for a portable program.
AT_API(LoadedExecutable_AddressableDevices) {
  AT_ARGS(PJRT_LoadedExecutable_AddressableDevices_Args);
  AT_HANDLE(a->executable);
  a->addressable_devices = a->executable->devices;
  a->num_addressable_devices = a->executable->num_devices;
  return NULL;
}

// Replica and partition of each of those devices.
AT_API(LoadedExecutable_AddressableDeviceLogicalIds) {
  AT_ARGS(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args);
  AT_HANDLE(a->executable);
  a->addressable_device_logical_ids = a->executable->logical_ids;
  a->num_addressable_device_logical_ids = a->executable->num_devices;
  return NULL;
}

// The assignment over all processes, as a DeviceAssignmentProto; its deleter is
// free.
AT_API(LoadedExecutable_GetDeviceAssignment) {
  AT_ARGS(PJRT_LoadedExecutable_GetDeviceAssignment_Args);
  AT_HANDLE(a->executable);
  const PJRT_LoadedExecutable *l = a->executable;
  at_strbuf proto = {0};
  if (l->num_assigned)  // a portable executable has no assignment: no bytes
    at_pjrt_assignment_write(l->program->parsed.num_replicas,
                             l->program->parsed.num_partitions, l->assigned,
                             &proto);
  at_status st = at_strbuf_status(&proto);
  at_pjrt_blob *b = at_ok(st) ? at_pjrt_blob_copy(proto.ptr, proto.len) : NULL;
  at_strbuf_free(&proto);
  if (!at_ok(st)) return at_pjrt_error(st);
  if (!b) return at_pjrt_error(NO_MEMORY());
  a->serialized_bytes = b->bytes;
  a->serialized_bytes_size = b->size;
  a->serialized_device_assignment = (PJRT_DeviceAssignmentSerialized *)b;
  a->serialized_device_assignment_deleter =
      (void (*)(PJRT_DeviceAssignmentSerialized *))free;
  return NULL;
}

// ---- Launches

// Where the arguments and outputs of all devices of a launch are gathered, one
// device after another.
typedef struct gather {
  at_buffer **args, **outputs;
  bool *not_donatable;
  at_pjrt_channels *channels;  // one for each device, or NULL
  bool alone;                  // of a program over several devices one:
  uint32_t device;             // number `device`
  void *block;                 // heap, when the stack did not suffice
} gather;

// Some clients count on through the arguments of all devices. An argument that
// is kept on one device is kept on all.
static at_status mark_kept(const PJRT_LoadedExecutable_Execute_Args *a,
                           bool *not_donatable) {
  const PJRT_ExecuteOptions *o = a->options;
  size_t all = a->num_args * a->num_devices;
  memset(not_donatable, 0, a->num_args);
  for (size_t i = 0; i < o->num_non_donatable_input_indices; i++) {
    int64_t index = o->non_donatable_input_indices[i];
    if (index < 0 || (size_t)index >= all)
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "non_donatable_input_indices names argument %lld of %zu "
                     "on %zu devices",
                     (long long)index, a->num_args, a->num_devices);
    not_donatable[(size_t)index % a->num_args] = true;
  }
  return AT_OK;
}

// Borrowed from the handles, which must stay until the call returns; the launch
// takes references of its own.
static at_status take_args(PJRT_Buffer *const *list, size_t n,
                           at_buffer **args) {
  for (size_t i = 0; i < n; i++) {
    const PJRT_Buffer *b = list[i];
    if (AT_UNLIKELY(!b))
      return AT_FAIL(AT_INVALID_ARGUMENT, "argument %zu is NULL", i);
    if (AT_UNLIKELY(atomic_load_explicit(&b->donated, memory_order_relaxed)))
      return AT_FAIL(AT_INVALID_ARGUMENT,
                     "argument %zu has been deleted or donated", i);
    args[i] = b->buffer;
  }
  return AT_OK;
}

// Takes back outputs that the caller is not to see.
static void free_list(PJRT_Buffer **list, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    at_pjrt_buffer_free(list[i]);
    list[i] = NULL;
  }
}

// Wraps the outputs; on failure every output is released.
static at_status wrap_outputs(const PJRT_LoadedExecutable *l, PJRT_Device *d,
                              at_buffer **outputs, PJRT_Buffer **list) {
  uint32_t n = l->program->num_outputs;
  for (uint32_t i = 0; i < n; i++) {
    PJRT_Memory *m = &d->memories[at_buffer_memory(outputs[i])];
    at_status st = at_pjrt_buffer_wrap(m, outputs[i], &list[i]);
    if (AT_LIKELY(at_ok(st))) {
      list[i]->layout = l->program->layouts[l->program->num_inputs + i].text;
      continue;
    }
    free_list(list, i);
    for (uint32_t j = i + 1; j < n; j++) at_buffer_release(outputs[j]);
    return st;
  }
  return AT_OK;
}

// Everything that was handed out for the first `devices` devices.
static void take_back(const PJRT_LoadedExecutable_Execute_Args *a,
                      size_t devices, size_t events) {
  uint32_t n = a->executable->program->num_outputs;
  for (size_t d = 0; d < devices; d++) free_list(a->output_lists[d], n);
  for (size_t d = 0; d < events; d++) {
    PJRT_Event_Destroy_Args e = {
        .struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE,
        .event = a->device_complete_events[d]};
    at_status_free(at_pjrt_error_take(at_PJRT_Event_Destroy(&e)));
    a->device_complete_events[d] = NULL;
  }
}

// The d-th device of the launch.
static PJRT_Device *device_of(const PJRT_LoadedExecutable_Execute_Args *a,
                              size_t d) {
  return a->execute_device ? a->execute_device : a->executable->devices[d];
}

// Outputs and events of all devices; on failure nothing reaches the caller.
static at_status hand_out(const PJRT_LoadedExecutable_Execute_Args *a,
                          const gather *g, at_event *done) {
  const PJRT_LoadedExecutable *l = a->executable;
  uint32_t n = l->program->num_outputs;
  for (size_t d = 0; d < a->num_devices; d++) {
    at_status st = n ? wrap_outputs(l, device_of(a, d), g->outputs + d * n,
                                    a->output_lists[d])
                     : AT_OK;
    if (AT_LIKELY(at_ok(st))) continue;
    for (size_t k = (d + 1) * n; k < a->num_devices * n; k++)
      at_buffer_release(g->outputs[k]);
    take_back(a, d, 0);
    return st;
  }
  for (size_t d = 0; a->device_complete_events && d < a->num_devices; d++) {
    PJRT_Event *e = at_pjrt_event_take(at_event_retain(done));
    a->device_complete_events[d] = e;
    if (AT_LIKELY(e != NULL)) {
      if (e->event) e->of_launch = true;
      continue;
    }
    take_back(a, a->num_devices, d);
    return NO_MEMORY();
  }
  return AT_OK;
}

// The channels of all devices; `done` NULL: the launch has not begun, so they
// go now.
static void release_channels(const gather *g, size_t devices, at_event *done) {
  for (size_t d = 0; g->channels && d < devices; d++)
    at_pjrt_channels_release(&g->channels[d], done);
}

// Fails as a launch, in its results.
static at_status refuse(PJRT_LoadedExecutable *l, const at_launch *launch,
                        at_status why, at_buffer **outputs, at_event **done) {
  at_event *e = done ? at_event_create() : NULL;
  if (done && !e) return NO_MEMORY();
  at_status st = at_launch_refuse(l->loaded, launch, why, false, outputs);
  if (e) at_event_fire(e, at_status_clone(why));
  if (at_ok(st) && done)
    *done = e;
  else if (e)
    at_event_release(e);
  return st;
}

// By the processes that there are now.
static at_status launch_over_several(PJRT_LoadedExecutable *l,
                                     const at_launch *launch,
                                     at_buffer **outputs, at_event **done) {
  at_status why, st;
  at_pjrt_epoch_hold(l->client);
  st = at_pjrt_epoch_span(l);
  if (at_ok(st) && at_pjrt_epoch_owes(l, &why)) {
    st = refuse(l, launch, why, outputs, done);
    at_status_free(why);
  } else if (at_ok(st)) {
    st = at_island_launch(l->client->island, l->loaded, launch, outputs, done);
  }
  at_pjrt_epoch_release(l->client);
  return st;
}

// An event is asked for only where somebody wants it. Callbacks' channels wait
// for it, too.
static at_status launch_gathered(const PJRT_LoadedExecutable_Execute_Args *a,
                                 const gather *g, at_chip *const *chips,
                                 const at_channel_list *channels) {
  PJRT_LoadedExecutable *l = a->executable;
  at_launch launch = {.chip = chips[0],
                      .chips = chips,
                      .num_chips = a->num_devices > 1 ? a->num_devices : 0,
                      .alone = g->alone,
                      .device = g->device,
                      .args = g->args,
                      .num_args = (uint32_t)a->num_args,
                      .not_donatable = g->not_donatable,
                      .channels = channels,
                      .launch_id = a->options->launch_id};
  bool wants_event = a->device_complete_events || g->channels;
  at_event *done = NULL;
  at_status st = l->spans
                     ? launch_over_several(l, &launch, g->outputs,
                                           wants_event ? &done : NULL)
                     : at_island_launch(l->client->island, l->loaded, &launch,
                                        g->outputs, wants_event ? &done : NULL);
  release_channels(g, a->num_devices, at_ok(st) ? done : NULL);
  if (AT_LIKELY(at_ok(st))) st = hand_out(a, g, done);
  if (done) at_event_release(done);
  return st;
}

// Borrowed buffers of all devices' arguments, in order. INVALID_ARGUMENT: a
// list is missing.
static at_status gather_args(const PJRT_LoadedExecutable_Execute_Args *a,
                             const gather *g) {
  for (size_t d = 0; d < a->num_devices; d++) {
    if (a->num_args && !a->argument_lists[d])
      return AT_FAIL(AT_INVALID_ARGUMENT, "argument_lists[%zu] is NULL", d);
    if (a->executable->program->num_outputs && !a->output_lists[d])
      return AT_FAIL(AT_INVALID_ARGUMENT, "output_lists[%zu] is NULL", d);
    if (a->num_args)
      AT_TRY(take_args(a->argument_lists[d], a->num_args,
                       g->args + d * a->num_args));
  }
  return AT_OK;
}

static bool has_callbacks(const PJRT_ExecuteOptions *o) {
  return o->num_send_ops || o->num_recv_ops;
}

// The callbacks of every device, then the launch.
static at_status launch_with_channels(
    const PJRT_LoadedExecutable_Execute_Args *a, gather *g,
    at_chip *const *chips) {
  size_t n = a->num_devices;
  at_channel_list *lists = calloc(n, sizeof *lists + sizeof(at_pjrt_channels));
  if (!lists) return NO_MEMORY();
  g->channels = (at_pjrt_channels *)(lists + n);
  at_status st = AT_OK;
  for (size_t d = 0; d < n && at_ok(st); d++) {
    st = at_pjrt_channels_create(a->options, d, &g->channels[d]);
    lists[d] = (at_channel_list){g->channels[d].channels, g->channels[d].count};
  }
  if (at_ok(st))
    st = launch_gathered(a, g, chips, lists);
  else
    release_channels(g, n, NULL);
  free(lists);
  return st;
}

// Are all devices of the program of other processes? Its launches are no work
// here: they bring arguments and outputs of no device.
static bool is_elsewhere(const PJRT_LoadedExecutable *l) {
  return l->num_assigned && !l->num_devices;
}

// Whatever can be wrong with the args and is cheap to see, before anything is
// taken.
static at_status check_execute(const PJRT_LoadedExecutable_Execute_Args *a) {
  const PJRT_LoadedExecutable *l = a->executable;
  AT_TRY(at_pjrt_client_check(l->client, "PJRT_LoadedExecutable_Execute"));
  if (atomic_load_explicit(&l->deleted, memory_order_relaxed))
    return AT_FAIL(AT_INVALID_ARGUMENT, "the executable has been deleted");
  const PJRT_ExecuteOptions *o = a->options;
  if (o->struct_size < offsetof(PJRT_ExecuteOptions, context))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "PJRT_ExecuteOptions: struct_size is %zu, expected at least "
                   "%zu",
                   o->struct_size, offsetof(PJRT_ExecuteOptions, context));
  if (is_elsewhere(l) && !a->num_devices && !a->execute_device) return AT_OK;
  if (a->num_args != l->program->num_inputs)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "the program takes %u arguments, %zu were passed",
                   l->program->num_inputs, a->num_args);
  size_t want = a->execute_device ? 1 : l->num_devices;
  bool portable = !l->num_assigned;
  if (a->num_devices != want || (!a->execute_device && portable))
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "the program runs on %zu devices, arguments were passed for "
        "%zu%s",
        want, a->num_devices,
        portable ? "\nhint: a portable executable needs execute_device" : "");
  if ((a->num_args && !a->argument_lists) ||
      (l->program->num_outputs && !a->output_lists))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "argument_lists or output_lists is NULL");
  if (o->num_non_donatable_input_indices && !o->non_donatable_input_indices)
    return AT_FAIL(AT_INVALID_ARGUMENT, "non_donatable_input_indices is NULL");
  return AT_OK;
}

// Where execute_device stands among the devices of a program over several. Of a
// portable executable any device will do.
static at_status place_of(const PJRT_LoadedExecutable_Execute_Args *a,
                          gather *g) {
  const PJRT_LoadedExecutable *l = a->executable;
  if (!l->num_assigned) return AT_OK;
  uint32_t d = 0;
  while (d < l->num_devices && l->devices[d] != a->execute_device) d++;
  if (d == l->num_devices)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "execute_device is device %u, which is none of the %zu "
                   "devices that the program was compiled for",
                   a->execute_device->description->info.id,
                   (size_t)l->num_devices);
  g->alone = l->num_devices > 1;
  g->device = d;
  return AT_OK;
}

// Fills the lists and launches; no list outlives the call.
static at_status launch_all(const PJRT_LoadedExecutable_Execute_Args *a,
                            gather *g) {
  if (a->options->num_non_donatable_input_indices)
    AT_TRY(mark_kept(a, g->not_donatable));
  else
    g->not_donatable = NULL;
  AT_TRY(gather_args(a, g));
  at_chip *one;
  at_chip *const *chips = a->executable->chips;
  if (a->execute_device) {
    AT_TRY(place_of(a, g));
    one = a->execute_device->chip;
    chips = &one;
  }
  return AT_UNLIKELY(has_callbacks(a->options))
             ? launch_with_channels(a, g, chips)
             : launch_gathered(a, g, chips, NULL);
}

// Lists of up to STACK_SLOTS buffers lie on the stack, so a small launch
// allocates nothing for them. A launch that hands out what a graph has made
// does not run.
AT_API(LoadedExecutable_Execute) {
  AT_ARGS(PJRT_LoadedExecutable_Execute_Args);
  AT_HANDLE(a->executable);
  AT_HANDLE(a->options);
  AT_PTRY(check_execute(a));
  if (!a->num_devices) return NULL;
  PJRT_Error *adopted;
  if (at_pjrt_adopts(a, &adopted)) return adopted;
  if (AT_UNLIKELY(at_profile_on())) at_pjrt_profiled_call(a);
  size_t args = a->num_args * a->num_devices;
  size_t outputs = a->executable->program->num_outputs * a->num_devices;
  at_buffer *stack[2 * STACK_SLOTS];
  bool kept[STACK_SLOTS];
  gather g = {
      .args = stack, .outputs = stack + STACK_SLOTS, .not_donatable = kept};
  if (AT_UNLIKELY(args > STACK_SLOTS || outputs > STACK_SLOTS)) {
    g.block = malloc((args + outputs) * sizeof(at_buffer *) + args);
    if (!g.block) return at_pjrt_error(NO_MEMORY());
    g.args = g.block;
    g.outputs = g.args + args;
    g.not_donatable = (bool *)(g.outputs + outputs);
  }
  at_status st = launch_all(a, &g);
  free(g.block);
  return at_pjrt_error(st);
}
