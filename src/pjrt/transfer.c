// Buffers that are filled after they were made: transfer managers, aliases,
// donation that waits for something, and views under another type.
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

#define NO_MEMORY() AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory")

// A buffer that the manager fills. `defined` is set by whoever defines it
// first.
typedef struct pending {
  at_buffer *buffer;  // one reference
  _Atomic(bool) defined, retrieved;
} pending;

// Buffers of one memory, which the client gets before their data has come.
struct PJRT_AsyncHostToDeviceTransferManager {
  void *vtable;
  PJRT_Memory *memory;
  size_t count;
  pending buffers[];
};

// Consumes s. The last transfer, an error and the manager's end may come at the
// same time: one of them counts.
static void define_once(pending *p, at_status s) {
  if (atomic_exchange(&p->defined, true))
    at_status_free(s);
  else
    at_buffer_define(p->buffer, s);
}

// NULL is allowed. Buffers that are not complete fail with CANCELLED, as nobody
// can fill them any more.
static void manager_free(PJRT_AsyncHostToDeviceTransferManager *m) {
  if (!m) return;
  for (size_t i = 0; i < m->count; i++) {
    if (!m->buffers[i].buffer) continue;
    if (!atomic_load(&m->buffers[i].defined))
      define_once(&m->buffers[i],
                  AT_FAIL(AT_CANCELLED,
                          "the transfer manager was destroyed before buffer "
                          "%zu was complete",
                          i));
    at_buffer_release(m->buffers[i].buffer);
  }
  at_pjrt_client_release(m->memory->device->client);
  free(m);
}

// One buffer for each shape, all in one memory. On failure none is left.
AT_API(Client_CreateBuffersForAsyncHostToDevice) {
  AT_ARGS(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args);
  AT_CLIENT(a->client);
  PJRT_Memory *memory;
  AT_HANDLE(a->memory);
  AT_PTRY(at_pjrt_place(a->client, NULL, a->memory, &memory));
  if (a->num_shape_specs) AT_HANDLE(a->shape_specs);
  if (a->num_device_layouts) {
    AT_HANDLE(a->device_layouts);
    if (a->num_device_layouts != a->num_shape_specs)
      return AT_PFAIL(AT_INVALID_ARGUMENT, "%zu layouts for %zu shapes",
                      a->num_device_layouts, a->num_shape_specs);
  }
  PJRT_AsyncHostToDeviceTransferManager *m = NULL;
  size_t bytes = at_add(sizeof *m, at_mul(a->num_shape_specs, sizeof(pending)));
  if (bytes > (size_t)1 << 40 || !(m = calloc(1, bytes)))
    return at_pjrt_error(NO_MEMORY());
  m->memory = memory;
  at_pjrt_client_hold(m->memory->device->client);
  m->count = a->num_shape_specs;
  at_status st = AT_OK;
  for (size_t i = 0; i < m->count; i++) {
    const PJRT_ShapeSpec *spec = &a->shape_specs[i];
    at_pjrt_shape shape;
    AT_TRY_GOTO(
        st,
        at_pjrt_shape_check(spec->element_type, spec->dims, spec->num_dims,
                            a->num_device_layouts ? a->device_layouts[i] : NULL,
                            &shape),
        fail);
    AT_TRY_GOTO(
        st,
        at_buffer_create(memory->device->chip, memory->kind, shape.dtype,
                         shape.dims, &m->buffers[i].buffer),
        fail);
  }
  a->transfer_manager = m;
  return NULL;
fail:
  manager_free(m);
  return at_pjrt_error(st);
}

AT_API(AsyncHostToDeviceTransferManager_Destroy) {
  AT_ARGS(PJRT_AsyncHostToDeviceTransferManager_Destroy_Args);
  manager_free(a->transfer_manager);
  return NULL;
}

// INVALID_ARGUMENT: no such buffer.
static at_status slot_of(PJRT_AsyncHostToDeviceTransferManager *m, int index,
                         pending **out) {
  if (index < 0 || (size_t)index >= m->count)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "buffer_index is %d; the transfer manager has %zu buffers",
                   index, m->count);
  *out = &m->buffers[index];
  return AT_OK;
}

// FAILED_PRECONDITION, too: the buffer has its data, or an error.
static at_status slot_open(PJRT_AsyncHostToDeviceTransferManager *m, int index,
                           pending **out) {
  AT_TRY(slot_of(m, index, out));
  if (atomic_load(&(*out)->defined))
    return AT_FAIL(AT_FAILED_PRECONDITION, "buffer %d is complete already",
                   index);
  return AT_OK;
}

// Bytes of the dense array, at once; the last transfer defines the buffer,
// however many bytes came.
AT_API(AsyncHostToDeviceTransferManager_TransferData) {
  AT_ARGS(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args);
  AT_HANDLE(a->transfer_manager);
  pending *p;
  AT_PTRY(slot_open(a->transfer_manager, a->buffer_index, &p));
  size_t have = at_buffer_bytes(p->buffer);
  if (a->offset < 0 || a->transfer_size < 0 || (size_t)a->offset > have ||
      (size_t)a->transfer_size > have - (size_t)a->offset)
    return AT_PFAIL(AT_INVALID_ARGUMENT,
                    "bytes [%lld, %lld + %lld) of a buffer of %zu bytes",
                    (long long)a->offset, (long long)a->offset,
                    (long long)a->transfer_size, have);
  if (a->transfer_size) {
    AT_HANDLE(a->data);
    char *dst = at_buffer_data_mut(p->buffer);
    if (!dst) return at_pjrt_error(at_pjrt_buffer_deleted("a transfer"));
    memcpy(dst + a->offset, a->data, (size_t)a->transfer_size);
  }
  if (a->is_last_transfer) define_once(p, AT_OK);
  a->done_with_h2d_transfer = at_pjrt_event_ready();
  return NULL;
}

// The whole array, from any dense layout or strides of the host.
AT_API(AsyncHostToDeviceTransferManager_TransferLiteral) {
  AT_ARGS(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral_Args);
  AT_HANDLE(a->transfer_manager);
  pending *p;
  AT_PTRY(slot_open(a->transfer_manager, a->buffer_index, &p));
  at_pjrt_shape shape;
  AT_PTRY(at_pjrt_shape_check(a->shape_element_type, a->shape_dims,
                              a->shape_num_dims, NULL, &shape));
  if (shape.dtype != at_buffer_dtype(p->buffer) ||
      !at_dims_eq(shape.dims, at_buffer_dims(p->buffer)))
    return AT_PFAIL(AT_INVALID_ARGUMENT,
                    "the literal's shape differs from that of buffer %d",
                    a->buffer_index);
  int64_t strides[AT_PJRT_MAX_RANK];
  bool dense;
  AT_PTRY(at_pjrt_host_strides(a->shape_layout, shape.dtype, shape.dims,
                               strides, &dense));
  if (shape.bytes) {
    AT_HANDLE(a->data);
    void *dst = at_buffer_data_mut(p->buffer);
    if (!dst) return at_pjrt_error(at_pjrt_buffer_deleted("a transfer"));
    if (dense)
      memcpy(dst, a->data, shape.bytes);
    else
      at_pjrt_gather_strided(shape.dtype, shape.dims, a->data, strides, dst);
  }
  define_once(p, AT_OK);
  a->done_with_h2d_transfer = at_pjrt_event_ready();
  return NULL;
}

// Each buffer once; it may be used in launches before its data comes.
AT_API(AsyncHostToDeviceTransferManager_RetrieveBuffer) {
  AT_ARGS(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args);
  AT_HANDLE(a->transfer_manager);
  pending *p;
  AT_PTRY(slot_of(a->transfer_manager, a->buffer_index, &p));
  if (atomic_exchange(&p->retrieved, true))
    return AT_PFAIL(AT_FAILED_PRECONDITION, "buffer %d was retrieved already",
                    a->buffer_index);
  return at_pjrt_error(at_pjrt_buffer_wrap(a->transfer_manager->memory,
                                           at_buffer_retain(p->buffer),
                                           &a->buffer_out));
}

AT_API(AsyncHostToDeviceTransferManager_Device) {
  AT_ARGS(PJRT_AsyncHostToDeviceTransferManager_Device_Args);
  AT_HANDLE(a->transfer_manager);
  a->device_out = a->transfer_manager->memory->device;
  return NULL;
}

AT_API(AsyncHostToDeviceTransferManager_BufferCount) {
  AT_ARGS(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args);
  AT_HANDLE(a->transfer_manager);
  a->buffer_count = a->transfer_manager->count;
  return NULL;
}

AT_API(AsyncHostToDeviceTransferManager_BufferSize) {
  AT_ARGS(PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args);
  AT_HANDLE(a->transfer_manager);
  pending *p;
  AT_PTRY(slot_of(a->transfer_manager, a->buffer_index, &p));
  a->buffer_size = at_buffer_bytes(p->buffer);
  return NULL;
}

// The buffer fails: a code of 0 becomes UNKNOWN.
AT_API(AsyncHostToDeviceTransferManager_SetBufferError) {
  AT_ARGS(PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args);
  AT_HANDLE(a->transfer_manager);
  pending *p;
  AT_PTRY(slot_open(a->transfer_manager, a->buffer_index, &p));
  PJRT_Error_Code code =
      a->error_code ? a->error_code : PJRT_Error_Code_UNKNOWN;
  define_once(p,
              at_pjrt_status_of(code, a->error_message, a->error_message_size));
  return NULL;
}

// Metadata describes the transfer to tools; nothing here reads it.
AT_API(AsyncHostToDeviceTransferManager_AddMetadata) {
  AT_ARGS(PJRT_AsyncHostToDeviceTransferManager_AddMetadata_Args);
  AT_HANDLE(a->transfer_manager);
  if (a->num_metadata) AT_HANDLE(a->transfer_metadata);
  return NULL;
}

// ---- Filling one buffer from another

typedef struct fill {
  at_buffer *from, *to;  // one reference each; `from` also an external one
} fill;

// Copies, or recuts bits where the types' widths differ; an error goes on to
// `to`. Frees x and gives back all references.
static void fill_end(fill *x, at_status s) {
  fill f = *x;
  free(x);
  if (at_ok(s) && at_buffer_bytes(f.to)) {
    const void *src = at_buffer_data(f.from);
    at_dtype from = at_buffer_dtype(f.from), to = at_buffer_dtype(f.to);
    void *dst = at_buffer_data_mut(f.to);
    if (src && at_recut_is_copy(from, to))
      memcpy(dst, src, at_buffer_bytes(f.to));
    else if (src)
      at_recut(from, src, to, dst, at_buffer_bytes(f.to));
    else
      s = at_pjrt_buffer_deleted("copy");
  }
  at_buffer_define(f.to, s);
  at_buffer_unacquire(f.from);
  at_buffer_release(f.from);
  at_buffer_release(f.to);
}

static void fill_later(void *arg) { fill_end(arg, AT_OK); }

// `from` is ready. If its bytes are still at a host of the pod a task fetches
// them, as this thread may not wait.
static void fill_run(at_status s, void *arg) {
  fill *f = arg;
  if (at_ok(s) && !at_buffer_is_here(f->from)) {
    s = at_buffer_defer(f->from, fill_later, f);
    if (at_ok(s)) return;
  }
  fill_end(f, s);
}

// Defines `to` with the bits of `from` once that is defined; at_recut_check
// took their sizes. On failure `to` is defined with the error.
static void fill_when_ready(at_buffer *from, at_buffer *to) {
  at_status st = at_buffer_acquire(from);
  if (!at_ok(st)) {
    at_buffer_define(to, st);
    return;
  }
  fill *f = malloc(sizeof *f);
  if (f) {
    *f = (fill){at_buffer_retain(from), at_buffer_retain(to)};
    st = at_event_on(at_buffer_ready(from), fill_run, f);
    if (at_ok(st)) return;
    at_buffer_release(from);
    at_buffer_release(to);
    free(f);
  } else {
    st = NO_MEMORY();
  }
  at_buffer_unacquire(from);
  at_buffer_define(to, st);
}

struct PJRT_FulfillAliasBufferCallback {
  void *vtable;
  at_buffer *alias;     // one reference
  PJRT_Client *client;  // held
};

// A buffer, and a callback object by which another one's data gets into it
// later. The object must be used: it holds the client.
AT_API(Client_CreateAliasBuffer) {
  AT_ARGS(PJRT_Client_CreateAliasBuffer_Args);
  AT_CLIENT(a->client);
  PJRT_Memory *memory;
  AT_HANDLE(a->memory);
  AT_PTRY(at_pjrt_place(a->client, NULL, a->memory, &memory));
  at_pjrt_shape shape;
  AT_PTRY(at_pjrt_shape_check(a->shape_element_type, a->shape_dims,
                              a->shape_num_dims, a->shape_layout, &shape));
  at_buffer *b;
  AT_PTRY(at_buffer_create(memory->device->chip, memory->kind, shape.dtype,
                           shape.dims, &b));
  PJRT_FulfillAliasBufferCallback *cb = calloc(1, sizeof *cb);
  if (!cb) {
    at_buffer_release(b);
    return at_pjrt_error(NO_MEMORY());
  }
  cb->alias = at_buffer_retain(b);
  at_status st = at_pjrt_buffer_wrap(memory, b, &a->alias_buffer);
  if (!at_ok(st)) {
    at_buffer_release(cb->alias);
    free(cb);
    return at_pjrt_error(st);
  }
  cb->client = at_pjrt_client_hold(memory->device->client);
  a->fulfill_alias_buffer_cb = cb;
  return NULL;
}

// Clients leave `client` unset here; the callback knows its buffer. One call.
AT_API(Client_FulfillAliasBuffer) {
  AT_ARGS(PJRT_Client_FulfillAliasBuffer_Args);
  AT_HANDLE(a->fulfill_alias_buffer_cb);
  at_buffer *alias = a->fulfill_alias_buffer_cb->alias;
  at_status st = at_pjrt_status_of(a->status_code, a->error_message,
                                   a->error_message_size);
  if (at_ok(st)) {
    AT_HANDLE(a->buffer);
    at_buffer *from = a->buffer->buffer;
    AT_PTRY(at_recut_check(at_buffer_dtype(from), at_buffer_bytes(from),
                           at_buffer_dtype(alias), at_buffer_bytes(alias)));
    fill_when_ready(from, alias);
  } else {
    at_buffer_define(alias, st);
  }
  at_buffer_release(alias);
  at_pjrt_client_release(a->fulfill_alias_buffer_cb->client);
  free(a->fulfill_alias_buffer_cb);
  return NULL;
}

typedef struct donation {
  at_buffer *from, *to;  // one reference each
  PJRT_Client *client;   // held
} donation;

// What the donation waited for is there, or has failed. The old array is
// deleted in both cases, as the client has given it away.
static void donation_ready(
    PJRT_Buffer_DonateWithControlDependency_Callback_Args *a) {
  if (!a ||
      a->struct_size <
          PJRT_Buffer_DonateWithControlDependency_Callback_Args_STRUCT_SIZE ||
      !a->callback_data)
    return;
  donation *d = a->callback_data;
  at_status st =
      at_pjrt_status_of(a->error_code, a->error_message, a->error_message_size);
  if (at_ok(st))
    fill_when_ready(d->from, d->to);
  else
    at_buffer_define(d->to, st);
  at_buffer_delete(d->from);
  at_buffer_release(d->from);
  at_buffer_release(d->to);
  at_pjrt_client_release(d->client);
  free(d);
}

// The new array is there at once and defined when the client calls
// donation_ready. The old handle counts as deleted from here on; after a
// failure it does not.
AT_API(Buffer_DonateWithControlDependency) {
  AT_ARGS(PJRT_Buffer_DonateWithControlDependency_Args);
  AT_HANDLE(a->buffer);
  if (at_pjrt_buffer_gone(a->buffer) ||
      atomic_exchange(&a->buffer->donated, true))
    return at_pjrt_error(
        at_pjrt_buffer_deleted("PJRT_Buffer_DonateWithControlDependency"));
  at_buffer *from = a->buffer->buffer, *to = NULL;
  donation *d = malloc(sizeof *d);
  at_status st =
      d ? at_buffer_create(at_buffer_chip(from), at_buffer_memory(from),
                           at_buffer_dtype(from), at_buffer_dims(from), &to)
        : NO_MEMORY();
  if (at_ok(st)) {
    at_buffer_retain(to);
    st = at_pjrt_buffer_wrap(a->buffer->memory, to, &a->out_buffer);
    if (!at_ok(st)) at_buffer_release(to);
  }
  if (!at_ok(st)) {
    free(d);
    atomic_store(&a->buffer->donated, false);
    return at_pjrt_error(st);
  }
  *d = (donation){at_buffer_retain(from), to,
                  at_pjrt_client_hold(a->buffer->memory->device->client)};
  a->callback_data = d;
  a->dependency_ready_callback = donation_ready;
  return NULL;
}

// A view of the buffer is gone.
static void unacquire(void *arg) {
  at_buffer_unacquire(arg);
  at_buffer_release(arg);
}

// The same bits under another type: a view when they are there and their bytes
// stay what they are, else a copy that waits for them.
AT_API(Buffer_Bitcast) {
  AT_ARGS(PJRT_Buffer_Bitcast_Args);
  AT_HANDLE(a->buffer);
  at_buffer *from = a->buffer->buffer, *to = NULL;
  PJRT_Memory *m = a->buffer->memory;
  if (at_pjrt_buffer_gone(a->buffer))
    return at_pjrt_error(at_pjrt_buffer_deleted("PJRT_Buffer_Bitcast"));
  at_pjrt_shape shape;
  AT_PTRY(at_pjrt_shape_check(a->element_type, a->dims, a->num_dims,
                              a->device_layout, &shape));
  at_dtype old = at_buffer_dtype(from);
  AT_PTRY(at_recut_check(old, at_buffer_bytes(from), shape.dtype, shape.bytes));
  if (at_buffer_is_ready(from) && at_recut_is_copy(old, shape.dtype)) {
    AT_PTRY(at_event_status(at_buffer_ready(from)));
    AT_PTRY(at_buffer_acquire(from));
    at_buffer_retain(from);
    at_status st =
        at_buffer_view(m->device->chip, m->kind, shape.dtype, shape.dims,
                       at_buffer_data(from), unacquire, from, &to);
    if (!at_ok(st)) {
      unacquire(from);
      return at_pjrt_error(st);
    }
  } else {
    AT_PTRY(at_buffer_create(m->device->chip, m->kind, shape.dtype, shape.dims,
                             &to));
    fill_when_ready(from, to);
  }
  return at_pjrt_error(at_pjrt_buffer_wrap(m, to, &a->out_buffer));
}
