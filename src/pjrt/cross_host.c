// jax.device_put between devices of different processes.
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

// A key in the place of a pointer to keys: clients of older versions.
enum { kLeastPointer = 1 << 16 };
static _Atomic bool is_old;

// UNIMPLEMENTED for clients that pass one key where the list's address belongs.
// What was seen once holds for the process: such a client's later keys may look
// like addresses.
static at_status check_keys(const int64_t *keys) {
  if ((uintptr_t)keys < kLeastPointer) atomic_store(&is_old, true);
  if (!atomic_load(&is_old)) return AT_OK;
  return AT_FAIL(AT_UNIMPLEMENTED,
                 "transfers between processes as jaxlib before 0.10 asks for "
                 "them\nhint: update jax and jaxlib");
}

// The process of the device that `ids` names.
static at_status find_process(const PJRT_Client *c, const void *ids,
                              uint32_t *out) {
  uint32_t id;
  memcpy(&id, ids, sizeof id);
  for (uint32_t d = 0; d < c->num_devices; d++) {
    if (c->devices[d].description->info.id != id) continue;
    *out = c->devices[d].description->info.host;
    return AT_OK;
  }
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "a transfer names device %u; there are %u", id,
                 c->num_devices);
}

// The older way, by descriptors, which needs a channel between clients that JAX
// no longer has.
static PJRT_Error *refuse(void *args) {
  return AT_PFAIL(AT_UNIMPLEMENTED,
                  "transfers between processes by descriptors");
}

// What has been begun goes on by itself.
static void drop_events(PJRT_Event **events, size_t n) {
  for (size_t i = 0; i < n; i++) {
    PJRT_Event_Destroy_Args e = {
        .struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE, .event = events[i]};
    at_status_free(at_pjrt_error_take(at_PJRT_Event_Destroy(&e)));
    events[i] = NULL;
  }
}

// Sends array i; its event fires when the receiver has it, or will not get it.
static at_status send_one(const at_pjrt_cross_host_send_args *a, size_t i,
                          uint32_t process) {
  at_event *done;
  AT_TRY(at_buffer_send(a->buffers[i]->buffer, process, (uint64_t)a->keys[i],
                        &done));
  a->events[i] = at_pjrt_event_take(done);
  return a->events[i] ? AT_OK
                      : AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory");
}

// Arrays go out one by one, each within one epoch of the job. If one cannot be
// sent the events of those before are dropped, but they arrive.
static PJRT_Error *send_arrays(at_pjrt_cross_host_send_args *a) {
  AT_ARGS_UP_TO(at_pjrt_cross_host_send_args, events);
  AT_CLIENT(a->client);
  if (!a->num_buffers) return NULL;
  AT_PTRY(check_keys(a->keys));
  uint32_t process;
  AT_PTRY(find_process(a->client, a->ids, &process));
  for (size_t i = 0; i < a->num_buffers; i++) {
    at_pjrt_epoch_hold(a->client);
    at_status st = send_one(a, i, process);
    at_pjrt_epoch_release(a->client);
    if (at_ok(st)) continue;
    drop_events(a->events, i);
    return at_pjrt_error(st);
  }
  return NULL;
}

// Array i, which is defined when it has come.
static at_status receive_one(const at_pjrt_cross_host_receive_args *a, size_t i,
                             PJRT_Memory *m, uint32_t process) {
  at_pjrt_shape shape;
  AT_TRY(at_pjrt_shape_check(a->types[i], a->dims[i], a->num_dims[i],
                             a->layouts ? a->layouts[i] : NULL, &shape));
  at_buffer *b;
  AT_TRY(at_buffer_receive(m->device->chip, m->kind, shape.dtype, shape.dims,
                           process, (uint64_t)a->keys[i], &b));
  return at_pjrt_buffer_wrap(m, b, &a->buffers[i]);
}

// All arrays come from one process, which the ids name. On failure those that
// were begun are freed; their senders find nobody.
static PJRT_Error *receive_arrays(at_pjrt_cross_host_receive_args *a) {
  AT_ARGS_UP_TO(at_pjrt_cross_host_receive_args, buffers);
  AT_CLIENT(a->client);
  if (!a->num_shapes) return NULL;
  AT_PTRY(check_keys(a->keys));
  uint32_t process;
  PJRT_Memory *m;
  AT_PTRY(find_process(a->client, a->ids, &process));
  AT_PTRY(at_pjrt_place(a->client, a->device, NULL, &m));
  for (size_t i = 0; i < a->num_shapes; i++) {
    at_pjrt_epoch_hold(a->client);
    at_status st = receive_one(a, i, m, process);
    at_pjrt_epoch_release(a->client);
    if (at_ok(st)) continue;
    while (i-- > 0) at_pjrt_buffer_free(a->buffers[i]);
    return at_pjrt_error(st);
  }
  return NULL;
}

at_pjrt_cross_host at_pjrt_cross_host_extension = {
    .base = {.struct_size = sizeof(at_pjrt_cross_host),
             .type = PJRT_Extension_Type_CrossHostTransfers},
    .make_receive_buffers = refuse,
    .copy_to_remote_device = refuse,
    .receive = receive_arrays,
    .send = send_arrays,
};
