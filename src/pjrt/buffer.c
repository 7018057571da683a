// Buffers: what they are, copies between host and device, external references.
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

#define NO_MEMORY() AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory")

// What every array costs beside its at_buffer: one malloc, and a hold on the
// client, which is one atomic addition.
at_status at_pjrt_buffer_wrap(PJRT_Memory *m, at_buffer *b, PJRT_Buffer **out) {
  AT_ASSERT(at_buffer_memory(b) == m->kind &&
            at_buffer_chip(b) == m->device->chip);
  PJRT_Buffer *p = malloc(sizeof *p);
  if (!p) {
    at_buffer_release(b);
    return NO_MEMORY();
  }
  p->vtable = NULL;
  p->buffer = b;
  p->memory = m;
  at_pjrt_client_hold(m->device->client);
  atomic_init(&p->external, 0);
  atomic_init(&p->donated, false);
  p->layout = NULL;
  *out = p;
  return AT_OK;
}

// The client goes last: it may be what ends the runtime that the buffer's
// memory belongs to.
void at_pjrt_buffer_free(PJRT_Buffer *b) {
  if (!b) return;
  // References of frameworks that outlive the wrapper would be their mistake;
  // the memory must not leak because of it.
  for (uint32_t n = atomic_load(&b->external); n; n--)
    at_buffer_unacquire(b->buffer);
  PJRT_Client *client = b->memory->device->client;
  at_buffer_release(b->buffer);
  free(b);
  at_pjrt_client_release(client);
}

at_status at_pjrt_buffer_deleted(const char *call) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "%s called on deleted or donated buffer",
                 call);
}

// The event tells when the client's memory may be used again; by the semantics
// that is at once, when the copy is made, or when the array is gone. Any
// strides are read; on the device the array is dense.
AT_API(Client_BufferFromHostBuffer) {
  AT_ARGS(PJRT_Client_BufferFromHostBuffer_Args);
  AT_CLIENT(a->client);
  PJRT_Memory *m;
  AT_PTRY(at_pjrt_place(a->client, a->device, a->memory, &m));
  at_pjrt_shape shape;
  AT_PTRY(at_pjrt_shape_check(a->type, a->dims, a->num_dims, a->device_layout,
                              &shape));
  if (shape.bytes) AT_HANDLE(a->data);
  if (a->num_byte_strides && a->num_byte_strides != a->num_dims)
    return AT_PFAIL(AT_INVALID_ARGUMENT,
                    "%zu byte strides for an array of rank %zu",
                    a->num_byte_strides, a->num_dims);
  if (a->num_byte_strides) AT_HANDLE(a->byte_strides);
  if ((unsigned)a->host_buffer_semantics >
      PJRT_HostBufferSemantics_kMutableZeroCopy)
    return AT_PFAIL(AT_INVALID_ARGUMENT, "unknown host buffer semantics %d",
                    (int)a->host_buffer_semantics);
  at_host_array src = {
      .dtype = shape.dtype,
      .dims = shape.dims,
      .byte_strides = a->num_byte_strides ? a->byte_strides : NULL,
      .data = a->data};
  at_buffer *b = NULL;
  at_event *done = NULL;
  AT_PTRY(at_buffer_from_host(m->device->chip, m->kind, &src,
                              (at_host_semantics)a->host_buffer_semantics, &b,
                              &done));
  PJRT_Buffer *wrapped;
  at_status st = at_pjrt_buffer_wrap(m, b, &wrapped);
  if (!at_ok(st)) {
    if (done) at_event_release(done);
    return at_pjrt_error(st);
  }
  PJRT_Event *event = at_pjrt_event_take(done);
  if (!event) {
    at_pjrt_buffer_free(wrapped);
    return at_pjrt_error(NO_MEMORY());
  }
  a->buffer = wrapped;
  a->done_with_host_buffer = event;
  return NULL;
}

// Defined at once, with whatever the memory has.
AT_API(Client_CreateUninitializedBuffer) {
  AT_ARGS(PJRT_Client_CreateUninitializedBuffer_Args);
  AT_CLIENT(a->client);
  PJRT_Memory *m;
  AT_PTRY(at_pjrt_place(a->client, a->device, a->memory, &m));
  at_pjrt_shape shape;
  AT_PTRY(at_pjrt_shape_check(a->shape_element_type, a->shape_dims,
                              a->shape_num_dims, a->shape_layout, &shape));
  at_buffer *b;
  AT_PTRY(
      at_buffer_create(m->device->chip, m->kind, shape.dtype, shape.dims, &b));
  at_buffer_define(b, AT_OK);
  return at_pjrt_error(at_pjrt_buffer_wrap(m, b, &a->buffer));
}

// An array that has failed: whoever reads it, and launches that take it, get
// its error.
AT_API(Client_CreateErrorBuffer) {
  AT_ARGS_UP_TO(PJRT_Client_CreateErrorBuffer_Args, buffer);
  AT_CLIENT(a->client);
  PJRT_Memory *m;
  AT_PTRY(at_pjrt_place(a->client, NULL, a->memory, &m));
  if (a->error_code == PJRT_Error_Code_OK)
    return AT_PFAIL(AT_INVALID_ARGUMENT, "error_code is OK");
  at_pjrt_shape shape;
  AT_PTRY(at_pjrt_shape_check(a->shape_element_type, a->shape_dims,
                              a->shape_num_dims, a->shape_layout, &shape));
  at_buffer *b;
  AT_PTRY(
      at_buffer_create(m->device->chip, m->kind, shape.dtype, shape.dims, &b));
  at_buffer_define(b, at_pjrt_status_of(a->error_code, a->error_message,
                                        a->error_message_size));
  return at_pjrt_error(at_pjrt_buffer_wrap(m, b, &a->buffer));
}

// Memory of the client's that a buffer stands for; freed with the buffer.
typedef struct view {
  PJRT_ViewDeleteCallback callback;
  void *ptr, *arg;
} view;

// The buffer is gone: the client's callback gets its memory back. Any thread.
static void view_release(void *arg) {
  view v = *(view *)arg;
  free(arg);
  if (v.callback) v.callback(v.ptr, v.arg);
}

// No copy: the array is the client's memory, which must stay until the
// callback.
AT_API(Client_CreateViewOfDeviceBuffer) {
  AT_ARGS_UP_TO(PJRT_Client_CreateViewOfDeviceBuffer_Args, buffer);
  AT_CLIENT(a->client);
  PJRT_Memory *m;
  AT_PTRY(at_pjrt_place(
      a->client, a->device,
      AT_HAS(PJRT_Client_CreateViewOfDeviceBuffer_Args, memory) ? a->memory
                                                                : NULL,
      &m));
  at_pjrt_shape shape;
  AT_PTRY(at_pjrt_shape_check(a->element_type, a->dims, a->num_dims, a->layout,
                              &shape));
  if (shape.bytes) AT_HANDLE(a->device_buffer_ptr);
  view *v = malloc(sizeof *v);
  if (!v) return at_pjrt_error(NO_MEMORY());
  *v = (view){a->on_delete_callback, a->device_buffer_ptr,
              a->on_delete_callback_arg};
  at_buffer *b;
  at_status st =
      at_buffer_view(m->device->chip, m->kind, shape.dtype, shape.dims,
                     a->device_buffer_ptr, view_release, v, &b);
  if (!at_ok(st)) {
    free(v);
    return at_pjrt_error(st);
  }
  return at_pjrt_error(at_pjrt_buffer_wrap(m, b, &a->buffer));
}

// The handle goes; launches that use the array hold it for themselves.
AT_API(Buffer_Destroy) {
  AT_ARGS(PJRT_Buffer_Destroy_Args);
  at_pjrt_buffer_free(a->buffer);
  return NULL;
}

AT_API(Buffer_ElementType) {
  AT_ARGS(PJRT_Buffer_ElementType_Args);
  AT_HANDLE(a->buffer);
  a->type = at_pjrt_type(at_buffer_dtype(a->buffer->buffer));
  return NULL;
}

// Borrowed from the buffer.
AT_API(Buffer_Dimensions) {
  AT_ARGS(PJRT_Buffer_Dimensions_Args);
  AT_HANDLE(a->buffer);
  at_dims d = at_buffer_dims(a->buffer->buffer);
  a->dims = d.ptr;
  a->num_dims = d.rank;
  return NULL;
}

// Arrays are never padded, so these are the dimensions.
AT_API(Buffer_UnpaddedDimensions) {
  AT_ARGS(PJRT_Buffer_UnpaddedDimensions_Args);
  AT_HANDLE(a->buffer);
  at_dims d = at_buffer_dims(a->buffer->buffer);
  a->unpadded_dims = d.ptr;
  a->num_dims = d.rank;
  return NULL;
}

// Every shape is static.
AT_API(Buffer_DynamicDimensionIndices) {
  AT_ARGS(PJRT_Buffer_DynamicDimensionIndices_Args);
  AT_HANDLE(a->buffer);
  static const size_t none[1] = {0};
  a->dynamic_dim_indices = none;
  a->num_dynamic_dims = 0;
  return NULL;
}

// Dense row-major, whatever layout a program asked for: that one is told by the
// layouts extension.
AT_API(Buffer_GetMemoryLayout) {
  AT_ARGS(PJRT_Buffer_GetMemoryLayout_Args);
  AT_HANDLE(a->buffer);
  uint32_t rank = at_buffer_dims(a->buffer->buffer).rank;
  a->layout = (PJRT_Buffer_MemoryLayout){
      .struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
      .tiled = {.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
                .minor_to_major = at_pjrt_minor_to_major(rank),
                .minor_to_major_size = rank},
      .type = PJRT_Buffer_MemoryLayout_Type_Tiled};
  return NULL;
}

// Of the dense array; 4-bit and 2-bit types take a byte each on a host, and
// here.
AT_API(Buffer_OnDeviceSizeInBytes) {
  AT_ARGS(PJRT_Buffer_OnDeviceSizeInBytes_Args);
  AT_HANDLE(a->buffer);
  a->on_device_size_in_bytes = at_buffer_bytes(a->buffer->buffer);
  return NULL;
}

AT_API(Buffer_Device) {
  AT_ARGS(PJRT_Buffer_Device_Args);
  AT_HANDLE(a->buffer);
  a->device = a->buffer->memory->device;
  return NULL;
}

AT_API(Buffer_Memory) {
  AT_ARGS(PJRT_Buffer_Memory_Args);
  AT_HANDLE(a->buffer);
  a->memory = a->buffer->memory;
  return NULL;
}

// Frees the memory once nobody uses it; the handle stays, and every use of it
// fails.
AT_API(Buffer_Delete) {
  AT_ARGS(PJRT_Buffer_Delete_Args);
  AT_HANDLE(a->buffer);
  at_buffer_delete(a->buffer->buffer);
  return NULL;
}

// True also of one that was donated.
AT_API(Buffer_IsDeleted) {
  AT_ARGS(PJRT_Buffer_IsDeleted_Args);
  AT_HANDLE(a->buffer);
  a->is_deleted = at_pjrt_buffer_gone(a->buffer);
  return NULL;
}

// The memory is a virtual chip's: clients that special-case CPU buffers (to
// read them behind the API's back) must not.
AT_API(Buffer_IsOnCpu) {
  AT_ARGS(PJRT_Buffer_IsOnCpu_Args);
  AT_HANDLE(a->buffer);
  a->is_on_cpu = false;
  return NULL;
}

// Fires when the array is there, or has failed. Of a deleted one it has fired
// with that error.
AT_API(Buffer_ReadyEvent) {
  AT_ARGS(PJRT_Buffer_ReadyEvent_Args);
  AT_HANDLE(a->buffer);
  if (at_pjrt_buffer_gone(a->buffer))
    return at_pjrt_error(at_pjrt_event_fired(
        at_pjrt_buffer_deleted("PJRT_Buffer_ReadyEvent"), &a->event));
  PJRT_Event *e =
      at_pjrt_event_take(at_event_retain(at_buffer_ready(a->buffer->buffer)));
  if (!e) return at_pjrt_error(NO_MEMORY());
  a->event = e;
  return NULL;
}

// ---- Device to host

// A copy that waits for its buffer, then writes with strides.
typedef struct strided_copy {
  at_buffer *buffer;  // one reference and one external reference
  at_event *done;     // one reference
  void *dst;
  int64_t strides[AT_PJRT_MAX_RANK];
} strided_copy;

// Copies, unless waiting has failed, then lets go of the buffer and fires the
// event. Frees c.
static void strided_copy_end(strided_copy *c, at_status s) {
  if (at_ok(s)) {
    const void *src = at_buffer_data(c->buffer);
    if (src || !at_buffer_bytes(c->buffer))
      at_pjrt_copy_strided(at_buffer_dtype(c->buffer),
                           at_buffer_dims(c->buffer), src, c->dst, c->strides);
    else
      s = at_pjrt_buffer_deleted("PJRT_Buffer_ToHostBuffer");
  }
  at_buffer_unacquire(c->buffer);
  at_buffer_release(c->buffer);
  at_event_fire(c->done, s);
  at_event_release(c->done);
  free(c);
}

static void strided_copy_later(void *arg) { strided_copy_end(arg, AT_OK); }

// The buffer is ready. If its bytes are still at a host of the pod a task
// fetches them, as this thread may not wait.
static void strided_copy_run(at_status s, void *arg) {
  strided_copy *c = arg;
  if (at_ok(s) && !at_buffer_is_here(c->buffer)) {
    s = at_buffer_defer(c->buffer, strided_copy_later, c);
    if (at_ok(s)) return;
  }
  strided_copy_end(c, s);
}

// *out_done is one reference. The acquired buffer cannot be donated or freed
// until the copy is made.
static at_status copy_strided_to_host(at_buffer *b, void *dst,
                                      const int64_t *strides,
                                      at_event **out_done) {
  AT_TRY(at_buffer_acquire(b));
  strided_copy *c = malloc(sizeof *c);
  at_event *done = at_event_create();
  at_status st;
  if (!c || !done) {
    st = NO_MEMORY();
    goto fail;
  }
  *c = (strided_copy){at_buffer_retain(b), at_event_retain(done), dst, {0}};
  memcpy(c->strides, strides, at_buffer_dims(b).rank * sizeof *strides);
  st = at_event_on(at_buffer_ready(b), strided_copy_run, c);
  if (at_ok(st)) {
    *out_done = done;
    return AT_OK;
  }
  at_buffer_release(b);
  at_event_release(done);
fail:
  if (done) at_event_release(done);
  free(c);
  at_buffer_unacquire(b);
  return st;
}

// INVALID_ARGUMENT: elements at these strides would lie outside of `room`
// bytes.
static at_status check_reach(at_dtype t, at_dims dims, const int64_t *strides,
                             size_t room) {
  int64_t low = 0, high = at_dtype_bytes(t);
  bool over = false;
  for (uint32_t d = 0; d < dims.rank; d++) {
    int64_t far = 0;
    if (!dims.ptr[d]) return AT_OK;
    over |= __builtin_mul_overflow(dims.ptr[d] - 1, strides[d], &far);
    over |= far < 0 ? __builtin_add_overflow(low, far, &low)
                    : __builtin_add_overflow(high, far, &high);
  }
  return !over && low == 0 && (uint64_t)high <= room
             ? AT_OK
             : AT_FAIL(AT_INVALID_ARGUMENT,
                       "PJRT_Buffer_ToHostBuffer: the strides reach beyond the "
                       "%zu bytes of dst",
                       room);
}

// Without a destination it only says how many bytes the dense array has. A
// layout of the host's that is not dense is written element by element, once
// the array is there; the client's memory must stay until the event fires.
AT_API(Buffer_ToHostBuffer) {
  AT_ARGS(PJRT_Buffer_ToHostBuffer_Args);
  AT_HANDLE(a->src);
  at_buffer *b = a->src->buffer;
  size_t need = at_buffer_bytes(b);
  if (!a->dst) {
    a->dst_size = need;
    a->event = NULL;
    return NULL;
  }
  if (at_pjrt_buffer_gone(a->src))
    return at_pjrt_error(at_pjrt_buffer_deleted("PJRT_Buffer_ToHostBuffer"));
  if (a->dst_size < need)
    return AT_PFAIL(AT_INVALID_ARGUMENT,
                    "PJRT_Buffer_ToHostBuffer: dst holds %zu bytes, the array "
                    "has %zu",
                    a->dst_size, need);
  int64_t strides[AT_PJRT_MAX_RANK];
  bool dense;
  AT_PTRY(at_pjrt_host_strides(a->host_layout, at_buffer_dtype(b),
                               at_buffer_dims(b), strides, &dense));
  if (!dense)
    AT_PTRY(check_reach(at_buffer_dtype(b), at_buffer_dims(b), strides,
                        a->dst_size));
  at_event *done = NULL;
  AT_PTRY(dense ? at_buffer_to_host(b, a->dst, 0, need, &done)
                : copy_strided_to_host(b, a->dst, strides, &done));
  PJRT_Event *e = at_pjrt_event_take(done);
  if (!e) return at_pjrt_error(NO_MEMORY());
  a->event = e;
  return NULL;
}

// Bytes [offset, offset + size) must be of the array; written so that no sum
// can overflow.
static at_status check_range(const at_buffer *b, int64_t offset, int64_t size) {
  size_t have = at_buffer_bytes(b);
  if (offset < 0 || size < 0 || (size_t)offset > have ||
      (size_t)size > have - (size_t)offset)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "bytes [%lld, %lld + %lld) of a buffer of %zu bytes",
                   (long long)offset, (long long)offset, (long long)size, have);
  return AT_OK;
}

// Bytes of the dense array, as they lie.
AT_API(Buffer_CopyRawToHost) {
  AT_ARGS(PJRT_Buffer_CopyRawToHost_Args);
  AT_HANDLE(a->buffer);
  if (a->transfer_size) AT_HANDLE(a->dst);
  if (at_pjrt_buffer_gone(a->buffer))
    return at_pjrt_error(at_pjrt_buffer_deleted("PJRT_Buffer_CopyRawToHost"));
  AT_PTRY(check_range(a->buffer->buffer, a->offset, a->transfer_size));
  at_event *done = NULL;
  AT_PTRY(at_buffer_to_host(a->buffer->buffer, a->dst, (size_t)a->offset,
                            (size_t)a->transfer_size, &done));
  PJRT_Event *e = at_pjrt_event_take(done);
  if (!e) return at_pjrt_error(NO_MEMORY());
  a->event = e;
  return NULL;
}

// A raw copy whose destination becomes known later.
typedef struct raw_future {
  at_buffer *buffer;
  at_event *done;
  size_t offset, size;
  PJRT_Client *client;  // held
} raw_future;

// An at_event callback that passes a status on to another event, whose
// reference it drops.
static void fire_event(at_status s, void *arg) {
  at_event_fire(arg, s);
  at_event_release(arg);
}

// The client tells the destination, or that there will be none. It calls this
// once; everything of the future is given back, and the event fires with the
// copy, or with what went wrong.
static void raw_future_ready(PJRT_Buffer_CopyRawToHostFuture_Callback_Args *a) {
  if (!a ||
      a->struct_size <
          PJRT_Buffer_CopyRawToHostFuture_Callback_Args_STRUCT_SIZE ||
      !a->callback_data)
    return;
  raw_future *f = a->callback_data;
  at_status st =
      at_pjrt_status_of(a->error_code, a->error_message, a->error_message_size);
  if (at_ok(st) && !a->dst && f->size)
    st = AT_FAIL(AT_INVALID_ARGUMENT, "the destination of a raw copy is NULL");
  at_event *copied = NULL;
  if (at_ok(st))
    st = at_buffer_to_host(f->buffer, a->dst, f->offset, f->size, &copied);
  if (copied) {
    st = at_event_on(copied, fire_event, f->done);
    at_event_release(copied);
    if (at_ok(st)) f->done = NULL;
  }
  if (f->done) fire_event(st, f->done);
  at_buffer_unacquire(f->buffer);
  at_buffer_release(f->buffer);
  at_pjrt_client_release(f->client);
  free(f);
}

// The buffer is acquired now, so that it cannot be donated between this call
// and the destination's.
AT_API(Buffer_CopyRawToHostFuture) {
  AT_ARGS(PJRT_Buffer_CopyRawToHostFuture_Args);
  AT_HANDLE(a->buffer);
  at_buffer *b = a->buffer->buffer;
  AT_PTRY(check_range(b, a->offset, a->transfer_size));
  AT_PTRY(at_buffer_acquire(b));
  raw_future *f = malloc(sizeof *f);
  at_event *done = at_event_create();
  PJRT_Event *e = NULL;
  if (f && done) e = at_pjrt_event_take(at_event_retain(done));
  if (!e) {
    if (done) at_event_release(done);
    free(f);
    at_buffer_unacquire(b);
    return at_pjrt_error(NO_MEMORY());
  }
  *f = (raw_future){at_buffer_retain(b), done, (size_t)a->offset,
                    (size_t)a->transfer_size,
                    at_pjrt_client_hold(a->buffer->memory->device->client)};
  a->event = e;
  a->callback_data = f;
  a->future_ready_callback = raw_future_ready;
  return NULL;
}

// ---- Copies between devices and memories

// To any memory of any device, also of another client of the process. The copy
// waits for its source by itself. A layout that a program asked for is
// remembered on devices only.
static PJRT_Error *copy_to(PJRT_Buffer *src, PJRT_Memory *m,
                           PJRT_Buffer **out) {
  if (at_pjrt_buffer_gone(src))
    return at_pjrt_error(at_pjrt_buffer_deleted("PJRT_Buffer_CopyToMemory"));
  AT_PTRY(at_pjrt_client_check(m->device->client, "PJRT_Buffer_CopyToMemory"));
  at_buffer *b;
  AT_PTRY(at_buffer_copy_to(src->buffer, m->device->chip, m->kind, &b));
  AT_PTRY(at_pjrt_buffer_wrap(m, b, out));
  if (m->kind != AT_MEM_UNPINNED_HOST) (*out)->layout = src->layout;
  return NULL;
}

// To the device's own memory, whatever kind the source is in.
AT_API(Buffer_CopyToDevice) {
  AT_ARGS(PJRT_Buffer_CopyToDevice_Args);
  AT_HANDLE(a->buffer);
  AT_HANDLE(a->dst_device);
  return copy_to(a->buffer, &a->dst_device->memories[AT_MEM_DEVICE],
                 &a->dst_buffer);
}

AT_API(Buffer_CopyToMemory) {
  AT_ARGS(PJRT_Buffer_CopyToMemory_Args);
  AT_HANDLE(a->buffer);
  AT_HANDLE(a->dst_memory);
  return copy_to(a->buffer, a->dst_memory, &a->dst_buffer);
}

// ---- References of other frameworks

// DLPack and the like: while it is above 0 the memory is neither freed nor
// donated.
AT_API(Buffer_IncreaseExternalReferenceCount) {
  AT_ARGS(PJRT_Buffer_IncreaseExternalReferenceCount_Args);
  AT_HANDLE(a->buffer);
  AT_PTRY(at_buffer_acquire(a->buffer->buffer));
  atomic_fetch_add(&a->buffer->external, 1);
  return NULL;
}

// The loop takes one from a count above 0 and from no other, whatever other
// threads do.
AT_API(Buffer_DecreaseExternalReferenceCount) {
  AT_ARGS(PJRT_Buffer_DecreaseExternalReferenceCount_Args);
  AT_HANDLE(a->buffer);
  uint32_t n = atomic_load(&a->buffer->external);
  do {
    if (n == 0)
      return AT_PFAIL(AT_INVALID_ARGUMENT,
                      "the buffer has no external references to give back");
  } while (!atomic_compare_exchange_weak(&a->buffer->external, &n, n - 1));
  at_buffer_unacquire(a->buffer->buffer);
  return NULL;
}

// Waits until the array is there. INVALID_ARGUMENT: deleted; the array's own
// error.
static at_status data_of(PJRT_Buffer *b, const char *call, void **out) {
  if (at_pjrt_buffer_gone(b)) return at_pjrt_buffer_deleted(call);
  at_event *ready = at_buffer_ready(b->buffer);
  AT_TRY(at_event_wait(ready));
  *out = at_buffer_data(b->buffer);
  return AT_OK;
}

// The memory's address; it does not keep the array. While the package
// identifies arrays (at_pjrt_identifies) it is the handle's address instead.
AT_API(Buffer_UnsafePointer) {
  AT_ARGS(PJRT_Buffer_UnsafePointer_Args);
  AT_HANDLE(a->buffer);
  if (at_pjrt_identifies) return a->buffer_pointer = (uintptr_t)a->buffer, NULL;
  void *p = NULL;
  AT_PTRY(data_of(a->buffer, "PJRT_Buffer_UnsafePointer", &p));
  a->buffer_pointer = (uintptr_t)p;
  return NULL;
}

// The same address as UnsafePointer's; the client holds the buffer by an
// external reference.
AT_API(Buffer_OpaqueDeviceMemoryDataPointer) {
  AT_ARGS(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args);
  AT_HANDLE(a->buffer);
  void *p = NULL;
  AT_PTRY(data_of(a->buffer, "PJRT_Buffer_OpaqueDeviceMemoryDataPointer", &p));
  a->device_memory_ptr = p;
  return NULL;
}
