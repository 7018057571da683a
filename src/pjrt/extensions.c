// The smaller extensions: layouts, foreign functions, raw buffers.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

#define NO_MEMORY() AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory")

// Layouts and raw buffers are what a client asks after an array's bytes;
// foreign functions are what it adds to programs.
// ---- Layouts: every array is dense and row-major
static struct {
  pthread_mutex_t lock;
  char **texts;
  uint32_t count;
} g_layouts = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Texts are interned for the life of the process: programs, buffers and layout
// objects share them without counting.
const char *at_pjrt_layout_keep(const char *text) {
  if (*text != '{') return NULL;
  const char *found = NULL;
  pthread_mutex_lock(&g_layouts.lock);
  for (uint32_t i = 0; i < g_layouts.count && !found; i++)
    if (!strcmp(g_layouts.texts[i], text)) found = g_layouts.texts[i];
  char **more = found ? NULL
                      : realloc(g_layouts.texts,
                                ((size_t)g_layouts.count + 1) * sizeof *more);
  if (more) g_layouts.texts = more;
  char *copy = more ? strdup(text) : NULL;
  if (copy) found = more[g_layouts.count++] = copy;
  pthread_mutex_unlock(&g_layouts.lock);
  return found;
}

// INVALID_ARGUMENT: more dimensions than an array can have. `text` is interned,
// or NULL.
static at_status layout_make(uint64_t rank, const char *text,
                             PJRT_Layouts_MemoryLayout **out) {
  if (rank > AT_PJRT_MAX_RANK)
    return AT_FAIL(AT_INVALID_ARGUMENT, "rank %llu exceeds %d",
                   (unsigned long long)rank, AT_PJRT_MAX_RANK);
  PJRT_Layouts_MemoryLayout *l = calloc(1, sizeof *l);
  if (!l) return NO_MEMORY();
  l->rank = (uint32_t)rank;
  l->text = text;
  *out = l;
  return AT_OK;
}

static PJRT_Error *layout_destroy(PJRT_Layouts_MemoryLayout_Destroy_Args *a) {
  AT_ARGS(PJRT_Layouts_MemoryLayout_Destroy_Args);
  free(a->layout);
  return NULL;
}

// XLA's text form: "{1,0}" is row-major of rank 2.
static PJRT_Error *layout_serialize(
    PJRT_Layouts_MemoryLayout_Serialize_Args *a) {
  AT_ARGS(PJRT_Layouts_MemoryLayout_Serialize_Args);
  AT_HANDLE(a->layout);
  at_strbuf text = {0};
  if (a->layout->text) {
    at_strbuf_addz(&text, a->layout->text);
  } else {
    at_strbuf_addc(&text, '{');
    for (uint32_t d = a->layout->rank; d-- > 0;)
      at_strbuf_addf(&text, d ? "%u," : "%u", d);
    at_strbuf_addc(&text, '}');
  }
  at_pjrt_blob *b = text.failed ? NULL : at_pjrt_blob_copy(text.ptr, text.len);
  at_strbuf_free(&text);
  if (!b) return at_pjrt_error(NO_MEMORY());
  a->serialized_bytes = b->bytes;
  a->serialized_bytes_size = b->size;
  a->serialized_layout = (PJRT_Layouts_SerializedLayout *)b;
  a->serialized_layout_deleter =
      (void (*)(PJRT_Layouts_SerializedLayout *))free;
  return NULL;
}

// The layout of any array of that rank, before there is one.
static PJRT_Error *layout_of_client(
    PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *a) {
  AT_ARGS(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args);
  AT_CLIENT(a->client);
  return at_pjrt_error(layout_make(a->num_dims, NULL, &a->layout));
}

static PJRT_Error *layout_of_topology(
    PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *a) {
  AT_ARGS(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args);
  AT_HANDLE(a->topology_description);
  return at_pjrt_error(layout_make(a->num_dims, NULL, &a->layout));
}

// The one that the program asked for that made the buffer, or the default.
static PJRT_Error *layout_of_buffer(
    PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *a) {
  AT_ARGS(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args);
  AT_HANDLE(a->buffer);
  return at_pjrt_error(layout_make(at_buffer_dims(a->buffer->buffer).rank,
                                   a->buffer->layout, &a->layout));
}

// The layouts of an executable belong to it.
static PJRT_Error *layouts_of_outputs(
    PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *a) {
  AT_ARGS(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args);
  AT_HANDLE(a->executable);
  const at_pjrt_program *p = a->executable->program;
  a->num_outputs = p->num_outputs;
  a->layouts = p->layout_pointers + p->num_inputs;
  return NULL;
}

// As layouts_of_outputs, for the arguments.
static PJRT_Error *layouts_of_parameters(
    PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args *a) {
  AT_ARGS(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args);
  AT_HANDLE(a->executable);
  const at_pjrt_program *p = a->executable->program;
  a->num_parameters = p->num_inputs;
  a->layouts = p->layout_pointers;
  return NULL;
}

PJRT_Layouts_Extension at_pjrt_layouts_extension = {
    .base = {.struct_size = PJRT_Layouts_Extension_STRUCT_SIZE,
             .type = PJRT_Extension_Type_Layouts},
    .PJRT_Layouts_MemoryLayout_Destroy = layout_destroy,
    .PJRT_Layouts_MemoryLayout_Serialize = layout_serialize,
    .PJRT_Layouts_PJRT_Client_GetDefaultLayout = layout_of_client,
    .PJRT_Layouts_PJRT_Buffer_MemoryLayout = layout_of_buffer,
    .PJRT_Layouts_PJRT_Topology_GetDefaultLayout = layout_of_topology,
    .PJRT_Layouts_PJRT_Executable_GetOutputLayouts = layouts_of_outputs,
    .PJRT_Layouts_PJRT_Executable_GetParameterLayouts = layouts_of_parameters,
};

// ---- Foreign functions

// Type names get ids from 1 on, for the life of the process.
static struct {
  pthread_mutex_t lock;
  char **names;
  size_t count;
} types = {.lock = PTHREAD_MUTEX_INITIALIZER};

// Gives *id (if it is not positive) the number of the name, which is new or
// known. ALREADY_EXISTS: the client names another number than the name has.
static at_status type_id(at_str name, int64_t *id) {
  at_status st = AT_OK;
  pthread_mutex_lock(&types.lock);
  size_t i = 0;
  while (i < types.count && !at_str_is(name, types.names[i])) i++;
  if (*id > 0) {
    if (i < types.count && (int64_t)i + 1 != *id)
      st = AT_FAIL(AT_ALREADY_EXISTS, "FFI type %.*s has id %zu", (int)name.len,
                   name.ptr, i + 1);
  } else if (i == types.count) {
    char **grown = realloc(types.names, (i + 1) * sizeof *grown);
    char *copy = strndup(name.ptr, name.len);
    if (grown) types.names = grown;
    if (grown && copy) {
      types.names[types.count++] = copy;
    } else {
      free(copy);
      st = NO_MEMORY();
    }
  }
  if (at_ok(st) && *id <= 0) *id = (int64_t)i + 1;
  pthread_mutex_unlock(&types.lock);
  return st;
}

// Ids of types are the client's to pass around; handlers find their types by
// them.
static PJRT_Error *ffi_type_register(PJRT_FFI_Type_Register_Args *a) {
  AT_ARGS(PJRT_FFI_Type_Register_Args);
  AT_HANDLE(a->type_name);
  return at_pjrt_error(
      type_id((at_str){a->type_name, a->type_name_size}, &a->type_id));
}

// See README.md, "What is not there".
static PJRT_Error *ffi_user_data_add(PJRT_FFI_UserData_Add_Args *a) {
  AT_ARGS(PJRT_FFI_UserData_Add_Args);
  AT_HANDLE(a->context);
  return AT_PFAIL(AT_UNIMPLEMENTED,
                  "PJRT_FFI_UserData_Add: user data for FFI handlers\n"
                  "hint: pass data to the handler as attributes or operands");
}

// From here on custom calls of that name go to the handler, which stays for the
// life of the process.
static PJRT_Error *ffi_register_handler(PJRT_FFI_Register_Handler_Args *a) {
  AT_ARGS(PJRT_FFI_Register_Handler_Args);
  AT_HANDLE(a->target_name);
  AT_HANDLE(a->handler);
  return at_pjrt_error(
      at_custom_register((at_str){a->target_name, a->target_name_size},
                         AT_CUSTOM_FFI, a->handler, a->traits));
}

PJRT_FFI_Extension at_pjrt_ffi_extension = {
    .base = {.struct_size = PJRT_FFI_Extension_STRUCT_SIZE,
             .type = PJRT_Extension_Type_FFI},
    .type_register = ffi_type_register,
    .user_data_add = ffi_user_data_add,
    .register_handler = ffi_register_handler,
};

// Launches take no data from it, so it is empty.
AT_API(ExecuteContext_Create) {
  AT_ARGS(PJRT_ExecuteContext_Create_Args);
  PJRT_ExecuteContext *c = calloc(1, sizeof *c);
  if (!c) return at_pjrt_error(NO_MEMORY());
  a->context = c;
  return NULL;
}

AT_API(ExecuteContext_Destroy) {
  AT_ARGS(PJRT_ExecuteContext_Destroy_Args);
  free(a->context);
  return NULL;
}

// ---- Raw buffers

// A second handle of a buffer's memory, by which clients read and write bytes.
struct PJRT_RawBuffer {
  void *vtable;
  at_buffer *buffer;  // one reference and one external reference
  PJRT_Memory *memory;
};

// A raw alias keeps the memory from being freed or donated (an external
// reference), and the client.
static PJRT_Error *raw_create(PJRT_RawBuffer_CreateRawAliasOfBuffer_Args *a) {
  AT_ARGS(PJRT_RawBuffer_CreateRawAliasOfBuffer_Args);
  AT_HANDLE(a->buffer);
  AT_PTRY(at_buffer_acquire(a->buffer->buffer));
  PJRT_RawBuffer *r = calloc(1, sizeof *r);
  if (!r) {
    at_buffer_unacquire(a->buffer->buffer);
    return at_pjrt_error(NO_MEMORY());
  }
  r->buffer = at_buffer_retain(a->buffer->buffer);
  r->memory = a->buffer->memory;
  at_pjrt_client_hold(r->memory->device->client);
  a->raw_buffer = r;
  return NULL;
}

// Gives back both references of raw_create.
static PJRT_Error *raw_destroy(PJRT_RawBuffer_Destroy_Args *a) {
  AT_ARGS(PJRT_RawBuffer_Destroy_Args);
  if (!a->buffer) return NULL;
  at_buffer_unacquire(a->buffer->buffer);
  at_buffer_release(a->buffer->buffer);
  at_pjrt_client_release(a->buffer->memory->device->client);
  free(a->buffer);
  return NULL;
}

static PJRT_Error *raw_size(PJRT_RawBuffer_GetOnDeviceSizeInBytes_Args *a) {
  AT_ARGS(PJRT_RawBuffer_GetOnDeviceSizeInBytes_Args);
  AT_HANDLE(a->buffer);
  a->on_device_size_in_bytes = at_buffer_bytes(a->buffer->buffer);
  return NULL;
}

static PJRT_Error *raw_memory(PJRT_RawBuffer_GetMemorySpace_Args *a) {
  AT_ARGS(PJRT_RawBuffer_GetMemorySpace_Args);
  AT_HANDLE(a->buffer);
  a->memory_space = a->buffer->memory;
  return NULL;
}

// Bytes [offset, offset + size) must be of the buffer, and there must be host
// memory for them.
static at_status raw_range(const PJRT_RawBuffer *r, const void *host,
                           int64_t offset, int64_t size) {
  size_t have = at_buffer_bytes(r->buffer);
  if (offset < 0 || size < 0 || (size_t)offset > have ||
      (size_t)size > have - (size_t)offset || (size && !host))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "bytes [%lld, %lld + %lld) of a raw buffer of %zu bytes",
                   (long long)offset, (long long)offset, (long long)size, have);
  return AT_OK;
}

// Waits for the buffer, then writes at once. High bits of narrow types are put
// in order, as the client's bytes may have any.
static PJRT_Error *raw_from_host(PJRT_RawBuffer_CopyRawHostToDevice_Args *a) {
  AT_ARGS(PJRT_RawBuffer_CopyRawHostToDevice_Args);
  AT_HANDLE(a->buffer);
  AT_PTRY(raw_range(a->buffer, a->src, a->offset, a->transfer_size));
  AT_PTRY(at_event_wait(at_buffer_ready(a->buffer->buffer)));
  char *dst = at_buffer_data_mut(a->buffer->buffer);
  if (a->transfer_size) {
    if (!dst) return at_pjrt_error(at_pjrt_buffer_deleted("a raw copy"));
    memcpy(dst + a->offset, a->src, (size_t)a->transfer_size);
    at_settle_bits(at_buffer_dtype(a->buffer->buffer), dst + a->offset,
                   (size_t)a->transfer_size);
  }
  a->event = at_pjrt_event_ready();
  return NULL;
}

// The event fires when the bytes are there.
static PJRT_Error *raw_to_host(PJRT_RawBuffer_CopyRawDeviceToHost_Args *a) {
  AT_ARGS(PJRT_RawBuffer_CopyRawDeviceToHost_Args);
  AT_HANDLE(a->buffer);
  AT_PTRY(raw_range(a->buffer, a->dst, a->offset, a->transfer_size));
  at_event *done = NULL;
  AT_PTRY(at_buffer_to_host(a->buffer->buffer, a->dst, (size_t)a->offset,
                            (size_t)a->transfer_size, &done));
  PJRT_Event *e = at_pjrt_event_take(done);
  if (!e) return at_pjrt_error(NO_MEMORY());
  a->event = e;
  return NULL;
}

// The device's memory itself: virtual chips have theirs in the host's address
// space.
static PJRT_Error *raw_host_pointer(PJRT_RawBuffer_GetHostPointer_Args *a) {
  AT_ARGS(PJRT_RawBuffer_GetHostPointer_Args);
  AT_HANDLE(a->buffer);
  AT_PTRY(at_event_wait(at_buffer_ready(a->buffer->buffer)));
  a->host_pointer = at_buffer_data_mut(a->buffer->buffer);
  return NULL;
}

PJRT_RawBuffer_Extension at_pjrt_raw_buffer_extension = {
    .base = {.struct_size = PJRT_RawBuffer_Extension_STRUCT_SIZE,
             .type = PJRT_Extension_Type_RawBuffer},
    .PJRT_RawBuffer_CreateRawAliasOfBuffer = raw_create,
    .PJRT_RawBuffer_Destroy = raw_destroy,
    .PJRT_RawBuffer_GetOnDeviceSizeInBytes = raw_size,
    .PJRT_RawBuffer_GetMemorySpace = raw_memory,
    .PJRT_RawBuffer_CopyRawHostToDevice = raw_from_host,
    .PJRT_RawBuffer_CopyRawDeviceToHost = raw_to_host,
    .PJRT_RawBuffer_GetHostPointer = raw_host_pointer,
};
