// Objects that outlive their client: after PJRT_Client_Destroy every call
// returns a status or does what it always does, and objects are destroyed in
// any order.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>
// cmocka needs the four headers above first.
#include <cmocka.h>

#include "pjrt/pjrt_internal.h"

// The thread that ended the last client is joined when the next one ends, which
// does not come at a process's exit.
#if __has_feature(thread_sanitizer)
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(
    void) {
  return "report_thread_leaks=0";
}
#endif

#define ARGS(name, ...)                                                 \
  (&(PJRT_##name##_Args){.struct_size = PJRT_##name##_Args_STRUCT_SIZE, \
                         __VA_ARGS__})
#define CALL(name, args) assert_int_equal(code_of(at_PJRT_##name(args)), 0)
#define RAW(name) at_pjrt_raw_buffer_extension.PJRT_RawBuffer_##name

typedef PJRT_Error *(*any_function)(void *);
typedef struct entry {
  const char *name;
  any_function call;
  size_t struct_size;
} entry;
#define AT_THUNK(name) \
  static PJRT_Error *call_##name(void *a) { return at_##name(a); }
PJRT_API_FUNCTIONS_RETURNING_ERROR(AT_THUNK)
#undef AT_THUNK
static const entry entries[] = {
#define AT_ENTRY(name) {#name, call_##name, name##_Args_STRUCT_SIZE},
    PJRT_API_FUNCTIONS_RETURNING_ERROR(AT_ENTRY)
#undef AT_ENTRY
};

// Frees the error and returns its code; 0 for NULL.
static int code_of(PJRT_Error *e) {
  if (!e) return 0;
  PJRT_Error_GetCode_Args *c = ARGS(Error_GetCode, .error = e);
  assert_null(at_PJRT_Error_GetCode(c));
  at_PJRT_Error_Destroy(ARGS(Error_Destroy, .error = e));
  return (int)c->code;
}

// ---- One object of each kind
enum {
  kBuffer,    // in device memory
  kHost,      // in host memory
  kView,      // of memory of the client's
  kBitcast,   // a view of kBuffer
  kResult,    // of a launch that waits for kPending
  kPending,   // of kManager
  kAlias,     // filled by kFulfill
  kDonated,   // kHost, after kDonation
  kRaw,       // PJRT_RawBuffer of kBuffer
  kManager,   // a transfer manager
  kFulfill,   // a callback that fills kAlias
  kDonation,  // a callback that donates kHost
  kCopy,      // a callback that copies kBuffer
  kLoaded,
  kExecutable,
  kReady,     // an event that has fired
  kWaits,     // one that fires when kPending is there
  kTracking,  // an event of a device
  kObjects
};

// A client that was destroyed, and one object of each kind that it has left.
typedef struct world {
  PJRT_Client *client;
  PJRT_Device *device;
  PJRT_Memory *memory, *host;
  PJRT_TopologyDescription *topology;
  void *objects[kObjects];
  void (*ready[kObjects])(void *);  // of callbacks
  float numbers[4], copied[4];
  int released;  // views
  _Atomic bool over;
} world;

// Counts views that have ended.
static void on_release(void *ptr, void *arg) {
  (void)ptr;
  ++*(int *)arg;
}

static const int64_t kDims[] = {4};

static PJRT_Buffer *put(world *w, PJRT_Memory *m) {
  PJRT_Client_BufferFromHostBuffer_Args *a = ARGS(
      Client_BufferFromHostBuffer, .client = w->client, .data = w->numbers,
      .type = PJRT_Buffer_Type_F32, .dims = kDims, .num_dims = 1, .memory = m,
      .host_buffer_semantics =
          PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
  CALL(Client_BufferFromHostBuffer, a);
  CALL(Event_Destroy, ARGS(Event_Destroy, .event = a->done_with_host_buffer));
  return a->buffer;
}

// Arrays in both memories, and everything that shares memory with one.
static void make_buffers(world *w) {
  w->objects[kBuffer] = put(w, w->memory);
  w->objects[kHost] = put(w, w->host);
  PJRT_Client_CreateViewOfDeviceBuffer_Args *v = ARGS(
      Client_CreateViewOfDeviceBuffer, .client = w->client,
      .device_buffer_ptr = w->numbers, .dims = kDims, .num_dims = 1,
      .element_type = PJRT_Buffer_Type_F32, .memory = w->host,
      .on_delete_callback = on_release, .on_delete_callback_arg = &w->released);
  CALL(Client_CreateViewOfDeviceBuffer, v);
  w->objects[kView] = v->buffer;
  PJRT_Buffer_Bitcast_Args *b =
      ARGS(Buffer_Bitcast, .buffer = w->objects[kBuffer],
           .element_type = PJRT_Buffer_Type_S32, .dims = kDims, .num_dims = 1);
  CALL(Buffer_Bitcast, b);
  w->objects[kBitcast] = b->out_buffer;
  PJRT_RawBuffer_CreateRawAliasOfBuffer_Args raw = {
      .struct_size = PJRT_RawBuffer_CreateRawAliasOfBuffer_Args_STRUCT_SIZE,
      .buffer = w->objects[kBuffer]};
  assert_null(RAW(CreateRawAliasOfBuffer)(&raw));
  w->objects[kRaw] = raw.raw_buffer;
}

// Objects that wait for a call of the client's.
static void make_callbacks(world *w) {
  PJRT_Client_CreateAliasBuffer_Args *l =
      ARGS(Client_CreateAliasBuffer, .client = w->client, .memory = w->memory,
           .shape_dims = kDims, .shape_num_dims = 1,
           .shape_element_type = PJRT_Buffer_Type_F32);
  CALL(Client_CreateAliasBuffer, l);
  w->objects[kAlias] = l->alias_buffer;
  w->objects[kFulfill] = l->fulfill_alias_buffer_cb;
  PJRT_Buffer_DonateWithControlDependency_Args *d =
      ARGS(Buffer_DonateWithControlDependency, .buffer = w->objects[kHost]);
  CALL(Buffer_DonateWithControlDependency, d);
  w->objects[kDonated] = d->out_buffer;
  w->objects[kDonation] = d->callback_data;
  w->ready[kDonation] = (void (*)(void *))d->dependency_ready_callback;
  PJRT_Buffer_CopyRawToHostFuture_Args *c =
      ARGS(Buffer_CopyRawToHostFuture, .buffer = w->objects[kBuffer],
           .transfer_size = sizeof w->copied);
  CALL(Buffer_CopyRawToHostFuture, c);
  CALL(Event_Destroy, ARGS(Event_Destroy, .event = c->event));
  w->objects[kCopy] = c->callback_data;
  w->ready[kCopy] = (void (*)(void *))c->future_ready_callback;
}

// A buffer whose data has not come: what depends on it waits.
static void make_pending(world *w) {
  const PJRT_ShapeSpec spec = {.struct_size = PJRT_ShapeSpec_STRUCT_SIZE,
                               .dims = kDims,
                               .num_dims = 1,
                               .element_type = PJRT_Buffer_Type_F32};
  PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *m =
      ARGS(Client_CreateBuffersForAsyncHostToDevice, .client = w->client,
           .memory = w->memory, .shape_specs = (PJRT_ShapeSpec *)&spec,
           .num_shape_specs = 1);
  CALL(Client_CreateBuffersForAsyncHostToDevice, m);
  w->objects[kManager] = m->transfer_manager;
  PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *r =
      ARGS(AsyncHostToDeviceTransferManager_RetrieveBuffer,
           .transfer_manager = m->transfer_manager);
  CALL(AsyncHostToDeviceTransferManager_RetrieveBuffer, r);
  w->objects[kPending] = r->buffer_out;
}

// One argument, one result, on one device.
static PJRT_Error *execute(world *w, PJRT_Buffer *argument, void **result) {
  PJRT_ExecuteOptions o = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  PJRT_Buffer *in[] = {argument}, *out[] = {NULL};
  PJRT_Buffer *const *ins[] = {in};
  PJRT_Buffer **outs[] = {out};
  PJRT_Error *e = at_PJRT_LoadedExecutable_Execute(
      ARGS(LoadedExecutable_Execute, .executable = w->objects[kLoaded],
           .options = &o, .argument_lists = ins, .num_devices = 1,
           .num_args = 1, .output_lists = outs));
  *result = out[0];
  return e;
}

// A program, its description, and a launch that waits for the pending buffer.
static void make_programs(world *w) {
  static char text[] =
      "module @m { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
      "  %0 = stablehlo.add %x, %x : tensor<4xf32>\n"
      "  return %0 : tensor<4xf32> } }";
  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE,
                          .code = text,
                          .code_size = sizeof text - 1,
                          .format = "mlir",
                          .format_size = 4};
  PJRT_Client_Compile_Args *c =
      ARGS(Client_Compile, .client = w->client, .program = &program);
  CALL(Client_Compile, c);
  w->objects[kLoaded] = c->executable;
  PJRT_LoadedExecutable_GetExecutable_Args *e =
      ARGS(LoadedExecutable_GetExecutable, .loaded_executable = c->executable);
  CALL(LoadedExecutable_GetExecutable, e);
  w->objects[kExecutable] = e->executable;
  assert_null(execute(w, w->objects[kPending], &w->objects[kResult]));
}

// One that has fired, one that waits, and a device's tracking event.
static void make_events(world *w) {
  PJRT_Buffer_ReadyEvent_Args *r =
      ARGS(Buffer_ReadyEvent, .buffer = w->objects[kBuffer]);
  CALL(Buffer_ReadyEvent, r);
  w->objects[kReady] = r->event;
  r->buffer = w->objects[kResult];
  CALL(Buffer_ReadyEvent, r);
  w->objects[kWaits] = r->event;
  PJRT_Device_CreateAsyncTrackingEvent_Args *t =
      ARGS(Device_CreateAsyncTrackingEvent, .device = w->device);
  CALL(Device_CreateAsyncTrackingEvent, t);
  w->objects[kTracking] = t->event;
}

// A client with one object of each kind, destroyed when it is returned.
static void begin(world *w) {
  *w = (world){.numbers = {1, 2, 3, 4}};
  PJRT_Client_Create_Args *c = ARGS(Client_Create, .client = NULL);
  CALL(Client_Create, c);
  w->client = c->client;
  PJRT_Client_AddressableDevices_Args *d =
      ARGS(Client_AddressableDevices, .client = w->client);
  CALL(Client_AddressableDevices, d);
  w->device = d->addressable_devices[0];
  PJRT_Device_AddressableMemories_Args *m =
      ARGS(Device_AddressableMemories, .device = w->device);
  CALL(Device_AddressableMemories, m);
  w->memory = m->memories[AT_MEM_DEVICE];
  w->host = m->memories[AT_MEM_UNPINNED_HOST];
  PJRT_Client_TopologyDescription_Args *t =
      ARGS(Client_TopologyDescription, .client = w->client);
  CALL(Client_TopologyDescription, t);
  w->topology = t->topology;
  make_buffers(w);
  make_pending(w);
  make_programs(w);
  make_events(w);
  make_callbacks(w);
  CALL(Client_Destroy, ARGS(Client_Destroy, .client = w->client));
}

// ---- The end of one object
// The client's part of a donation or a raw copy.
static void call_ready(world *w, int i) {
  if (i == kCopy) {
    PJRT_Buffer_CopyRawToHostFuture_Callback_Args a = {
        .struct_size =
            PJRT_Buffer_CopyRawToHostFuture_Callback_Args_STRUCT_SIZE,
        .callback_data = w->objects[i],
        .dst = w->copied};
    w->ready[i](&a);
    return;
  }
  PJRT_Buffer_DonateWithControlDependency_Callback_Args a = {
      .struct_size =
          PJRT_Buffer_DonateWithControlDependency_Callback_Args_STRUCT_SIZE,
      .callback_data = w->objects[i]};
  w->ready[i](&a);
}

// Destroys object i, in the way of its kind.
static void end(world *w, int i) {
  void *o = w->objects[i];
  PJRT_RawBuffer_Destroy_Args raw = {
      .struct_size = PJRT_RawBuffer_Destroy_Args_STRUCT_SIZE, .buffer = o};
  switch (i) {
    case kRaw:
      assert_null(RAW(Destroy)(&raw));
      break;
    case kManager:
      CALL(AsyncHostToDeviceTransferManager_Destroy,
           ARGS(AsyncHostToDeviceTransferManager_Destroy,
                .transfer_manager = o));
      break;
    case kFulfill:
      CALL(Client_FulfillAliasBuffer,
           ARGS(Client_FulfillAliasBuffer, .fulfill_alias_buffer_cb = o,
                .status_code = PJRT_Error_Code_ABORTED, .error_message = "no",
                .error_message_size = 2));
      break;
    case kDonation:
    case kCopy:
      call_ready(w, i);
      break;
    case kLoaded:
      CALL(LoadedExecutable_Destroy,
           ARGS(LoadedExecutable_Destroy, .executable = o));
      break;
    case kExecutable:
      CALL(Executable_Destroy, ARGS(Executable_Destroy, .executable = o));
      break;
    case kReady:
    case kWaits:
      CALL(Event_Destroy, ARGS(Event_Destroy, .event = o));
      break;
    case kTracking:
      CALL(AsyncTrackingEvent_Destroy,
           ARGS(AsyncTrackingEvent_Destroy, .event = o));
      break;
    default:
      CALL(Buffer_Destroy, ARGS(Buffer_Destroy, .buffer = o));
  }
  w->objects[i] = NULL;
}

// ---- Tests
// Every object may be the last to go.
static void orders(void **state) {
  (void)state;
  for (int order = 0; order < kObjects + 1; order++) {
    world w;
    begin(&w);
    // Upwards, or downwards from any of them.
    for (int k = 0; k < kObjects; k++)
      end(&w, order == kObjects ? k : (order - k + kObjects) % kObjects);
    assert_int_equal(w.released, 1);
    assert_memory_equal(w.copied, w.numbers, sizeof w.copied);
  }
}

// A launch that was under way when its client was destroyed ends as it would
// have.
static void results_arrive(void **state) {
  (void)state;
  world w;
  begin(&w);
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *t =
      ARGS(AsyncHostToDeviceTransferManager_TransferData,
           .transfer_manager = w.objects[kManager], .data = w.numbers,
           .transfer_size = sizeof w.numbers, .is_last_transfer = true);
  CALL(AsyncHostToDeviceTransferManager_TransferData, t);
  float twice[4];
  PJRT_Buffer_ToHostBuffer_Args *g =
      ARGS(Buffer_ToHostBuffer, .src = w.objects[kResult], .dst = twice,
           .dst_size = sizeof twice);
  CALL(Buffer_ToHostBuffer, g);
  CALL(Event_Await, ARGS(Event_Await, .event = g->event));
  CALL(Event_Destroy, ARGS(Event_Destroy, .event = g->event));
  for (int i = 0; i < 4; i++) assert_true(twice[i] == 2 * w.numbers[i]);
  for (int i = 0; i < kObjects; i++) end(&w, i);
}

static bool is_one_of(const char *name, const char *const *list) {
  while (*list && strcmp(*list, name)) list++;
  return *list != NULL;
}

// Every function whose name begins so, with the handle alone: a code of
// `allowed`, which ends with -1.
static void call_all(const char *prefix, void *handle, const int *allowed) {
  // They make, wait for or end something; the tests above call them.
  static const char *const others[] = {
      "PJRT_Client_Create",
      "PJRT_Client_FulfillAliasBuffer",
      "PJRT_Event_Create",
      "PJRT_Buffer_ReadyEvent",
      "PJRT_Buffer_DonateWithControlDependency",
      "PJRT_Buffer_CopyRawToHostFuture",
      "PJRT_LoadedExecutable_GetExecutable",
      "PJRT_LoadedExecutable_GetDeviceAssignment",
      "PJRT_Executable_GetCompileOptions",
      "PJRT_Executable_Serialize",
      "PJRT_Executable_DeserializeAndLoad",
      "PJRT_Device_CreateAsyncTrackingEvent",
      "PJRT_TopologyDescription_Create",
      "PJRT_TopologyDescription_Serialize",
      "PJRT_TopologyDescription_Deserialize",
      NULL};
  int called = 0;
  for (size_t i = 0; i < AT_LEN(entries); i++) {
    const entry *e = &entries[i];
    if (strncmp(e->name, prefix, strlen(prefix)) || is_one_of(e->name, others))
      continue;
    if (strstr(e->name, "_Destroy") && strcmp(prefix, "PJRT_Client_")) continue;
    size_t block[128] = {e->struct_size, 0, (size_t)handle};
    const int code = code_of(e->call(block));
    const int *at = allowed;
    while (*at >= 0 && *at != code) at++;
    if (*at < 0) fail_msg("%s: %d", e->name, code);
    called++;
  }
  assert_true(called > 2);
}

// After Destroy no call crashes: those of the client are refused, others do
// what they always do or say why not.
static void every_call(void **state) {
  (void)state;
  static const int refused[] = {AT_FAILED_PRECONDITION, -1},
                   any[] = {0, AT_INVALID_ARGUMENT, AT_FAILED_PRECONDITION,
                            AT_UNIMPLEMENTED, -1};
  world w;
  begin(&w);
  // While there are objects, and when there are none.
  for (int there = 1; there >= 0; there--) {
    call_all("PJRT_Client_", w.client, refused);
    call_all("PJRT_Device_", w.device, any);
    call_all("PJRT_Memory_", w.memory, any);
    call_all("PJRT_TopologyDescription_", w.topology, any);
    if (!there) break;
    call_all("PJRT_Event_", w.objects[kReady], any);
    call_all("PJRT_LoadedExecutable_", w.objects[kLoaded], any);
    call_all("PJRT_Executable_", w.objects[kExecutable], any);
    call_all("PJRT_AsyncHostToDeviceTransferManager_", w.objects[kManager],
             any);
    void *none;
    assert_int_equal(code_of(execute(&w, w.objects[kBuffer], &none)),
                     AT_FAILED_PRECONDITION);
    call_all("PJRT_Buffer_", w.objects[kBuffer], any);
    for (int i = 0; i < kObjects; i++) end(&w, i);
  }
}

// The last object goes in a callback of the launch that made it, on a thread of
// the runtime.
static void drop_result(PJRT_Error *e, void *arg) {
  world *w = arg;
  code_of(e);
  end(w, kResult);
  atomic_store(&w->over, true);
}

static void ends_in_a_callback(void **state) {
  (void)state;
  world w;
  begin(&w);
  for (int i = 0; i < kObjects; i++)
    if (i != kResult && i != kManager && i != kWaits) end(&w, i);
  CALL(Event_OnReady, ARGS(Event_OnReady, .event = w.objects[kWaits],
                           .callback = drop_result, .user_arg = &w));
  end(&w, kManager);
  while (!atomic_load(&w.over)) usleep(1000);
  CALL(Event_Destroy, ARGS(Event_Destroy, .event = w.objects[kWaits]));
}

// What is kept of clients that have ended does not grow for ever.
static void many_clients(void **state) {
  (void)state;
  for (int i = 0; i < 3 * AT_PJRT_ENDED; i++) {
    PJRT_Client_Create_Args *c = ARGS(Client_Create, .client = NULL);
    CALL(Client_Create, c);
    CALL(Client_Destroy, ARGS(Client_Destroy, .client = c->client));
    assert_int_equal(code_of(at_PJRT_Client_Destroy(
                         ARGS(Client_Destroy, .client = c->client))),
                     AT_FAILED_PRECONDITION);
  }
}

int main(void) {
  setenv("ATOLL_TARGET", "v5e:2x2", 1);
  setenv("ATOLL_CACHE", "off", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(orders),       cmocka_unit_test(results_arrive),
      cmocka_unit_test(every_call),   cmocka_unit_test(ends_in_a_callback),
      cmocka_unit_test(many_clients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
