// A client of four chips: launches over several of them, bitcasts of buffers,
// and functions that rewrite programs.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
// cmocka needs the four headers above first.
#include <cmocka.h>

#include "base/free_ports.h"
#include "pjrt/pjrt_internal.h"

#define ARGS(name, ...)                                                 \
  (&(PJRT_##name##_Args){.struct_size = PJRT_##name##_Args_STRUCT_SIZE, \
                         __VA_ARGS__})
#define CALL(name, args) done(at_PJRT_##name(args), #name)

enum { kChips = 2 };

typedef struct state {
  PJRT_Client *client;
  PJRT_Device *const *devices;
} state;

// Frees the error and returns its code; 0 for NULL.
static int code_of(PJRT_Error *e) {
  if (!e) return 0;
  PJRT_Error_GetCode_Args *c = ARGS(Error_GetCode, .error = e);
  assert_null(at_PJRT_Error_GetCode(c));
  at_PJRT_Error_Destroy(ARGS(Error_Destroy, .error = e));
  return (int)c->code;
}

static void done(PJRT_Error *e, const char *what) {
  int code = code_of(e);
  if (code) fail_msg("%s: %d", what, code);
}

// The event must fire without an error; its handle is freed.
static void wait_for(PJRT_Event *e) {
  CALL(Event_Await, ARGS(Event_Await, .event = e));
  CALL(Event_Destroy, ARGS(Event_Destroy, .event = e));
}

// An array on that device, copied from `data` before this returns.
static PJRT_Buffer *put(state *s, int chip, PJRT_Buffer_Type type,
                        const void *data, const int64_t *dims, size_t rank) {
  PJRT_Client_BufferFromHostBuffer_Args *a = ARGS(
      Client_BufferFromHostBuffer, .client = s->client, .data = data,
      .type = type, .dims = dims, .num_dims = rank, .device = s->devices[chip],
      .host_buffer_semantics =
          PJRT_HostBufferSemantics_kImmutableOnlyDuringCall);
  CALL(Client_BufferFromHostBuffer, a);
  wait_for(a->done_with_host_buffer);
  return a->buffer;
}

// Reads the array and checks its size.
static void get(PJRT_Buffer *b, void *dst, size_t bytes) {
  PJRT_Buffer_ToHostBuffer_Args *size = ARGS(Buffer_ToHostBuffer, .src = b);
  CALL(Buffer_ToHostBuffer, size);
  assert_int_equal(size->dst_size, bytes);
  PJRT_Buffer_ToHostBuffer_Args *a =
      ARGS(Buffer_ToHostBuffer, .src = b, .dst = dst, .dst_size = bytes);
  CALL(Buffer_ToHostBuffer, a);
  wait_for(a->event);
}

static bool is_deleted(PJRT_Buffer *b) {
  PJRT_Buffer_IsDeleted_Args *a = ARGS(Buffer_IsDeleted, .buffer = b);
  CALL(Buffer_IsDeleted, a);
  return a->is_deleted;
}

static void drop(PJRT_Buffer *b) {
  CALL(Buffer_Destroy, ARGS(Buffer_Destroy, .buffer = b));
}

// The program must compile for the options' bytes.
static PJRT_LoadedExecutable *compile(state *s, const char *text,
                                      const char *options, size_t size) {
  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE,
                          .code = (char *)text,
                          .code_size = strlen(text),
                          .format = "mlir",
                          .format_size = 4};
  PJRT_Client_Compile_Args *a =
      ARGS(Client_Compile, .client = s->client, .program = &program,
           .compile_options = options, .compile_options_size = size);
  CALL(Client_Compile, a);
  return a->executable;
}

// One argument and one result on each of kChips chips.
static PJRT_Error *execute(PJRT_LoadedExecutable *l, PJRT_Buffer **in,
                           PJRT_Buffer **out, const int64_t *kept,
                           size_t num_kept) {
  PJRT_ExecuteOptions o = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE,
                           .non_donatable_input_indices = kept,
                           .num_non_donatable_input_indices = num_kept};
  PJRT_Buffer *const *args[kChips] = {&in[0], &in[1]};
  PJRT_Buffer **outs[kChips] = {&out[0], &out[1]};
  return at_PJRT_LoadedExecutable_Execute(
      ARGS(LoadedExecutable_Execute, .executable = l, .options = &o,
           .argument_lists = args, .num_devices = kChips, .num_args = 1,
           .output_lists = outs));
}

static const char kReplicas[] = {0x1a, 4, 0x20, 2, 0x28, 1};
static const char kInPlace[] =
    "module @m { func.func @main(%x: tensor<2xf32> {tf.aliasing_output = 0 :"
    " i32}) -> tensor<2xf32> {\n"
    "  %0 = stablehlo.add %x, %x : tensor<2xf32>\n"
    "  return %0 : tensor<2xf32> } }";

// Indices may count on through the arguments of all devices.
static void kept_arguments(void **st) {
  state *s = *st;
  PJRT_LoadedExecutable *l = compile(s, kInPlace, kReplicas, sizeof kReplicas);
  const float x[] = {1, 2};
  const int64_t dims[] = {2}, all[] = {0, 1}, second[] = {1}, wrong[] = {2},
                negative[] = {-1};
  PJRT_Buffer *in[kChips], *out[kChips];
  for (int c = 0; c < kChips; c++)
    in[c] = put(s, c, PJRT_Buffer_Type_F32, x, dims, 1);
  assert_int_equal(code_of(execute(l, in, out, wrong, 1)), AT_INVALID_ARGUMENT);
  assert_int_equal(code_of(execute(l, in, out, negative, 1)),
                   AT_INVALID_ARGUMENT);
  static const size_t counts[] = {2, 1, 0};
  const int64_t *kept[] = {all, second, NULL};
  for (size_t i = 0; i < AT_LEN(kept); i++) {
    done(execute(l, in, out, kept[i], counts[i]), "Execute");
    for (int c = 0; c < kChips; c++) {
      float y[2];
      get(out[c], y, sizeof y);
      assert_true(y[0] == 2 && y[1] == 4);
      assert_int_equal(is_deleted(in[c]), counts[i] == 0);
      drop(out[c]);
    }
  }
  for (int c = 0; c < kChips; c++) drop(in[c]);
  CALL(LoadedExecutable_Destroy,
       ARGS(LoadedExecutable_Destroy, .executable = l));
}

static const char kShardy[] = {0x1a, 9, 0x20,       1, 0x28, 2,
                               0x30, 1, (char)0x98, 1, 1};
// What is known of a program's memory adds up, and older callers' structs are
// not written beyond their end.
static void memory_adds_up(void **st) {
  PJRT_LoadedExecutable *l =
      compile(*st, kInPlace, kReplicas, sizeof kReplicas);
  PJRT_LoadedExecutable_GetExecutable_Args *e =
      ARGS(LoadedExecutable_GetExecutable, .loaded_executable = l);
  CALL(LoadedExecutable_GetExecutable, e);
  PJRT_Executable_GetCompiledMemoryStats_Args *m =
      ARGS(Executable_GetCompiledMemoryStats, .executable = e->executable);
  CALL(Executable_GetCompiledMemoryStats, m);
  assert_true(m->generated_code_size_in_bytes > 0);
  assert_true(m->argument_size_in_bytes >= 8);
  assert_int_equal(m->argument_size_in_bytes, m->output_size_in_bytes);
  assert_int_equal(m->peak_memory_in_bytes,
                   m->argument_size_in_bytes + m->output_size_in_bytes +
                       m->temp_size_in_bytes - m->alias_size_in_bytes);
  assert_int_equal(m->total_size_in_bytes,
                   m->generated_code_size_in_bytes + m->peak_memory_in_bytes);
  PJRT_Executable_GetCompiledMemoryStats_Args old = {
      .struct_size = offsetof(PJRT_Executable_GetCompiledMemoryStats_Args,
                              peak_memory_in_bytes),
      .executable = e->executable,
      .peak_memory_in_bytes = -1,
      .total_size_in_bytes = -1};
  CALL(Executable_GetCompiledMemoryStats, &old);
  assert_int_equal(old.argument_size_in_bytes, m->argument_size_in_bytes);
  assert_int_equal(old.peak_memory_in_bytes, -1);
  assert_int_equal(old.total_size_in_bytes, -1);
  CALL(Executable_Destroy,
       ARGS(Executable_Destroy, .executable = e->executable));
  CALL(LoadedExecutable_Destroy,
       ARGS(LoadedExecutable_Destroy, .executable = l));
}

static const char kShards[] = {0x1a, 6, 0x20, 1, 0x28, 2, 0x30, 1};
static const char kRows[] =
    "module @m attributes {stablehlo.num_partitions = 2} {\n"
    "sdy.mesh @mesh = <[\"data\"=2]>\n"
    "func.func @main(%x: tensor<2x3xf32> {sdy.sharding ="
    " #sdy.sharding<@mesh, [{\"data\"}, {}]>}) -> tensor<2xf32> {\n"
    "  %c = stablehlo.constant dense<0.0> : tensor<f32>\n"
    "  %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across"
    " dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>\n"
    "  return %0 : tensor<2xf32> } }";

// Under Shardy a result that states no sharding has that of its value.
static void results_without_sharding(void **st) {
  state *s = *st;
  const float rows[kChips][3] = {{0, 1, 2}, {3, 4, 5}};
  const int64_t dims[] = {1, 3};
  for (int shardy = 0; shardy < 2; shardy++) {
    PJRT_LoadedExecutable *l = shardy
                                   ? compile(s, kRows, kShardy, sizeof kShardy)
                                   : compile(s, kRows, kShards, sizeof kShards);
    PJRT_Buffer *in[kChips], *out[kChips];
    for (int c = 0; c < kChips; c++)
      in[c] = put(s, c, PJRT_Buffer_Type_F32, rows[c], dims, 2);
    done(execute(l, in, out, NULL, 0), "Execute");
    for (int c = 0; c < kChips; c++) {
      float y[2];
      get(out[c], y, shardy ? 4 : 8);
      assert_true(y[0] == (shardy && c ? 12 : 3));
      assert_true(shardy || y[1] == 12);
      drop(in[c]);
      drop(out[c]);
    }
    CALL(LoadedExecutable_Destroy,
         ARGS(LoadedExecutable_Destroy, .executable = l));
  }
}

// On one device of the program's two, as clients with a thread for each do.
static PJRT_Error *execute_on(state *s, PJRT_LoadedExecutable *l, int chip,
                              PJRT_Buffer **in, PJRT_Buffer **out) {
  PJRT_ExecuteOptions o = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  PJRT_Buffer *const *args[] = {in};
  PJRT_Buffer **outs[] = {out};
  return at_PJRT_LoadedExecutable_Execute(
      ARGS(LoadedExecutable_Execute, .executable = l, .options = &o,
           .argument_lists = args, .num_devices = 1, .num_args = 1,
           .output_lists = outs, .execute_device = s->devices[chip]));
}

#define REPLICA(before, sum)                                            \
  "module @m attributes {stablehlo.num_replicas = 2} {\n"               \
  "func.func @main(%x: tensor<4096x64xf32>) -> tensor<4096x64xf32> {\n" \
  "  %r = stablehlo.replica_id : tensor<ui32>\n"                        \
  "  %f = stablehlo.convert %r : (tensor<ui32>) -> tensor<f32>\n"       \
  "  %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) ->"  \
  " tensor<4096x64xf32>\n" before "  %0 = stablehlo.add %x, " sum       \
  " : tensor<4096x64xf32>\n"                                            \
  "  return %0 : tensor<4096x64xf32> } }"
static const char kReplica[] = REPLICA("", "%b");
#define SUM(groups)                                                          \
  REPLICA(                                                                   \
      "  %s = \"stablehlo.all_reduce\"(%b) <{replica_groups = dense<" groups \
      "xi64>}> ({ ^a(%p: tensor<f32>, %q: tensor<f32>):"                     \
      " %t = stablehlo.add %p, %q : tensor<f32>\n"                           \
      "  stablehlo.return %t : tensor<f32> }) : (tensor<4096x64xf32>)"       \
      " -> tensor<4096x64xf32>\n",                                           \
      "%s")
static const char kMeets[] = SUM("[[0, 1]]> : tensor<1x2");
static const char kSolitary[] = SUM("[[0], [1]]> : tensor<2x1");
enum { kElements = 4096 * 64 };

// Each device is its own replica, whether the caller's thread runs it or, with
// an argument that is still being made, a lane.
static void runs_alone(state *s, const char *program) {
  static float x[kElements], y[kElements];
  const int64_t dims[] = {4096, 64};
  PJRT_LoadedExecutable *l = compile(s, program, kReplicas, sizeof kReplicas);
  for (int chip = kChips; chip-- > 0;) {
    PJRT_Buffer *b[4] = {put(s, chip, PJRT_Buffer_Type_F32, x, dims, 2)};
    for (int i = 0; i < 3; i++)
      done(execute_on(s, l, chip, &b[i], &b[i + 1]), "Execute");
    get(b[3], y, sizeof y);
    for (int i = 0; i < kElements; i++) assert_true(y[i] == 3.0f * (float)chip);
    for (int i = 0; i < 4; i++) drop(b[i]);
  }
  PJRT_Buffer *out, *b = put(s, 3, PJRT_Buffer_Type_F32, x, dims, 2);
  assert_int_equal(code_of(execute_on(s, l, 3, &b, &out)), AT_INVALID_ARGUMENT);
  assert_int_equal(code_of(execute_on(s, l, 1, &b, &out)), AT_INVALID_ARGUMENT);
  drop(b);
  CALL(LoadedExecutable_Destroy,
       ARGS(LoadedExecutable_Destroy, .executable = l));
}

static void one_device_of_several(void **st) {
  runs_alone(*st, kReplica);
  runs_alone(*st, kSolitary);
}

// One device would wait for the other: refused, and the program runs on both.
static void one_device_that_waits(void **st) {
  state *s = *st;
  static float x[kElements], y[kElements];
  const int64_t dims[] = {4096, 64};
  PJRT_LoadedExecutable *l = compile(s, kMeets, kReplicas, sizeof kReplicas);
  PJRT_Buffer *in[kChips], *out[kChips];
  for (int c = 0; c < kChips; c++)
    in[c] = put(s, c, PJRT_Buffer_Type_F32, x, dims, 2);
  assert_int_equal(code_of(execute_on(s, l, 1, &in[1], out)), AT_UNIMPLEMENTED);
  done(execute(l, in, out, NULL, 0), "Execute");
  for (int c = 0; c < kChips; c++) {
    get(out[c], y, sizeof y);
    assert_true(y[0] == 1 && y[kElements - 1] == 1);
    drop(in[c]);
    drop(out[c]);
  }
  CALL(LoadedExecutable_Destroy,
       ARGS(LoadedExecutable_Destroy, .executable = l));
}

// A new handle of the same bits.
static PJRT_Buffer *bitcast(PJRT_Buffer *b, PJRT_Buffer_Type type,
                            const int64_t *dims, size_t rank) {
  PJRT_Buffer_Bitcast_Args *a =
      ARGS(Buffer_Bitcast, .buffer = b, .element_type = type, .dims = dims,
           .num_dims = rank);
  CALL(Buffer_Bitcast, a);
  return a->out_buffer;
}

// 8 bits as two of 4 and back: bits are cut anew, low ones first.
static void bitcasts(void **st) {
  state *s = *st;
  const uint8_t byte = 0xe1;
  const int64_t two[] = {2};
  PJRT_Buffer *whole = put(s, 0, PJRT_Buffer_Type_U8, &byte, NULL, 0);
  PJRT_Buffer *halves = bitcast(whole, PJRT_Buffer_Type_S4, two, 1);
  PJRT_Buffer *back = bitcast(halves, PJRT_Buffer_Type_U8, NULL, 0);
  PJRT_Buffer *same = bitcast(whole, PJRT_Buffer_Type_S8, NULL, 0);
  uint8_t read[2];
  get(halves, read, 2);  // hosts see zeros in the high bits
  assert_true(read[0] == 0x1 && read[1] == 0xe);
  get(back, read, 1);
  assert_int_equal(read[0], byte);
  get(same, read, 1);
  assert_int_equal(read[0], byte);
  PJRT_Buffer_Bitcast_Args *wrong = ARGS(Buffer_Bitcast, .buffer = whole,
                                         .element_type = PJRT_Buffer_Type_S4);
  assert_int_equal(code_of(at_PJRT_Buffer_Bitcast(wrong)), AT_INVALID_ARGUMENT);
  PJRT_Buffer *all[] = {whole, halves, back, same};
  for (size_t i = 0; i < AT_LEN(all); i++) drop(all[i]);
}

// Strides that a client asks for are checked against the memory that it brings.
static void strides_stay_in_dst(void **st) {
  state *s = *st;
  const float x[] = {1, 2, 3, 4, 5, 6};
  const int64_t dims[] = {2, 3};
  float to[12] = {0};
  int64_t strides[] = {4, 8};
  PJRT_Buffer_MemoryLayout l = {
      .struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
      .strides = {.byte_strides = strides, .num_byte_strides = 2},
      .type = PJRT_Buffer_MemoryLayout_Type_Strides};
  PJRT_Buffer *b = put(s, 0, PJRT_Buffer_Type_F32, x, dims, 2);
  PJRT_Buffer_ToHostBuffer_Args *a =
      ARGS(Buffer_ToHostBuffer, .src = b, .host_layout = &l, .dst = to,
           .dst_size = sizeof x);
  CALL(Buffer_ToHostBuffer, a);
  wait_for(a->event);
  assert_true(to[0] == 1 && to[2] == 2 && to[1] == 4 && to[5] == 6);
  static const int64_t wrong[][2] = {
      {4, 12}, {24, 4}, {-4, 8}, {INT64_MAX, 8}, {4, INT64_MAX}};
  for (size_t i = 0; i < AT_LEN(wrong); i++) {
    memcpy(strides, wrong[i], sizeof strides);
    assert_int_equal(code_of(at_PJRT_Buffer_ToHostBuffer(a)),
                     AT_INVALID_ARGUMENT);
  }
  drop(b);
}

// A vector of floats; dims, which is borrowed, has one entry.
static PJRT_ShapeSpec floats(const int64_t *dims) {
  return (PJRT_ShapeSpec){.struct_size = PJRT_ShapeSpec_STRUCT_SIZE,
                          .dims = dims,
                          .num_dims = 1,
                          .element_type = PJRT_Buffer_Type_F32};
}

static PJRT_Memory *default_memory(PJRT_Device *d) {
  PJRT_Device_DefaultMemory_Args *a = ARGS(Device_DefaultMemory, .device = d);
  CALL(Device_DefaultMemory, a);
  return a->memory;
}

// A buffer that was deleted has no memory: whoever fills it is told so.
static void deleted_buffers_take_nothing(void **st) {
  state *s = *st;
  const int64_t dims[] = {2};
  const float x[] = {1, 2};
  PJRT_ShapeSpec spec = floats(dims);
  PJRT_Memory *m = default_memory(s->devices[0]);
  PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *c =
      ARGS(Client_CreateBuffersForAsyncHostToDevice, .client = s->client,
           .memory = m, .shape_specs = &spec, .num_shape_specs = 1);
  CALL(Client_CreateBuffersForAsyncHostToDevice, c);
  PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *r =
      ARGS(AsyncHostToDeviceTransferManager_RetrieveBuffer,
           .transfer_manager = c->transfer_manager);
  CALL(AsyncHostToDeviceTransferManager_RetrieveBuffer, r);
  PJRT_RawBuffer_CreateRawAliasOfBuffer_Args raw = {
      .struct_size = PJRT_RawBuffer_CreateRawAliasOfBuffer_Args_STRUCT_SIZE,
      .buffer = put(s, 0, PJRT_Buffer_Type_F32, x, dims, 1)};
  PJRT_RawBuffer_Extension *e = &at_pjrt_raw_buffer_extension;
  done(e->PJRT_RawBuffer_CreateRawAliasOfBuffer(&raw), "CreateRawAlias");
  CALL(Buffer_Delete, ARGS(Buffer_Delete, .buffer = r->buffer_out));
  CALL(Buffer_Delete, ARGS(Buffer_Delete, .buffer = raw.buffer));
  assert_int_equal(
      code_of(at_PJRT_AsyncHostToDeviceTransferManager_TransferData(
          ARGS(AsyncHostToDeviceTransferManager_TransferData,
               .transfer_manager = c->transfer_manager, .data = x,
               .transfer_size = sizeof x))),
      AT_INVALID_ARGUMENT);
  assert_int_equal(
      code_of(at_PJRT_AsyncHostToDeviceTransferManager_TransferLiteral(
          ARGS(AsyncHostToDeviceTransferManager_TransferLiteral,
               .transfer_manager = c->transfer_manager, .data = x,
               .shape_dims = dims, .shape_num_dims = 1,
               .shape_element_type = PJRT_Buffer_Type_F32))),
      AT_INVALID_ARGUMENT);
  PJRT_RawBuffer_CopyRawHostToDevice_Args w = {
      .struct_size = PJRT_RawBuffer_CopyRawHostToDevice_Args_STRUCT_SIZE,
      .buffer = raw.raw_buffer,
      .src = x,
      .transfer_size = sizeof x};
  assert_int_equal(code_of(e->PJRT_RawBuffer_CopyRawHostToDevice(&w)),
                   AT_INVALID_ARGUMENT);
  PJRT_RawBuffer_Destroy_Args d = {
      .struct_size = PJRT_RawBuffer_Destroy_Args_STRUCT_SIZE,
      .buffer = raw.raw_buffer};
  done(e->PJRT_RawBuffer_Destroy(&d), "RawBuffer_Destroy");
  drop(raw.buffer);
  drop(r->buffer_out);
  CALL(AsyncHostToDeviceTransferManager_Destroy,
       ARGS(AsyncHostToDeviceTransferManager_Destroy,
            .transfer_manager = c->transfer_manager));
}

// XLA's C++ clients without a store leave its callbacks unset, whatever lies
// there: processes that the environment names meet without them. Each process
// is a child, made before this one has threads.
static void unset_callbacks(void **st) {
  pid_t children[2];
  char addresses[256];
  assert_true(at_free_addresses(2, addresses, sizeof addresses));
  for (int me = 0; me < 2; me++) {
    children[me] = fork();
    if (children[me]) continue;
    setenv("TPU_PROCESS_ADDRESSES", addresses, 1);
    setenv("CLOUD_TPU_TASK_ID", me ? "1" : "0", 1);
    PJRT_Client_Create_Args *c = ARGS(Client_Create, .client = NULL);
    memset(&c->kv_get_callback, 0x11, sizeof c->kv_get_callback);
    memset(&c->kv_put_callback, 0x11, sizeof c->kv_put_callback);
    int code = code_of(at_PJRT_Client_Create(c));
    if (!code)
      code = code_of(
          at_PJRT_Client_Destroy(ARGS(Client_Destroy, .client = c->client)));
    _exit(code);
  }
  for (int me = 0; me < 2; me++) {
    int status;
    assert_int_equal(waitpid(children[me], &status, 0), children[me]);
    assert_int_equal(status, 0);
  }
}

// Memory of another client of the process takes no arrays of this one.
static void other_clients_keep_their_memory(void **st) {
  state *s = *st;
  const int64_t dims[] = {2};
  const float x[] = {1, 2};
  PJRT_ShapeSpec spec = floats(dims);
  PJRT_Client_Create_Args *c = ARGS(Client_Create, .client = NULL);
  CALL(Client_Create, c);
  PJRT_Client_AddressableDevices_Args *d =
      ARGS(Client_AddressableDevices, .client = c->client);
  CALL(Client_AddressableDevices, d);
  PJRT_Memory *m = default_memory(d->addressable_devices[0]);
  assert_int_equal(
      code_of(at_PJRT_Client_CreateBuffersForAsyncHostToDevice(
          ARGS(Client_CreateBuffersForAsyncHostToDevice, .client = s->client,
               .memory = m, .shape_specs = &spec, .num_shape_specs = 1))),
      AT_INVALID_ARGUMENT);
  assert_int_equal(code_of(at_PJRT_Client_CreateAliasBuffer(ARGS(
                       Client_CreateAliasBuffer, .client = s->client,
                       .memory = m, .shape_dims = dims, .shape_num_dims = 1,
                       .shape_element_type = PJRT_Buffer_Type_F32))),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(code_of(at_PJRT_Client_BufferFromHostBuffer(ARGS(
                       Client_BufferFromHostBuffer, .client = s->client,
                       .data = x, .type = PJRT_Buffer_Type_F32, .dims = dims,
                       .num_dims = 1, .device = d->addressable_devices[0],
                       .host_buffer_semantics =
                           PJRT_HostBufferSemantics_kImmutableOnlyDuringCall))),
                   AT_INVALID_ARGUMENT);
  CALL(Client_Destroy, ARGS(Client_Destroy, .client = c->client));
}

// ---- Rewrites
// A client's function that writes one opcode over another, as long.
typedef struct patch {
  PJRT_XlaTransform_Callbacks callbacks;
  const char *from, *to;  // NULL: the module comes back as it is
  const char *fails;      // what it says instead; NULL: it does not fail
  int calls, found, ended;
  char *copy;
} patch;

static void patch_free(void *copy) { free(copy); }

static void patch_run(PJRT_XlaTransform_Callbacks *c,
                      PJRT_XlaTransform_Args *a) {
  patch *p = (patch *)c;
  p->calls++;
  a->header.data = p->copy = malloc(a->hlo_module.size);
  a->header.cleanup_fn = patch_free;
  if (p->fails) {
    a->header.has_error = true;
    a->header.error_msg =
        (PJRT_XlaTransform_string){p->fails, strlen(p->fails)};
    return;
  }
  memcpy(p->copy, a->hlo_module.data, a->hlo_module.size);
  char *at = p->copy, *end = p->copy + a->hlo_module.size;
  size_t n = p->from ? strlen(p->from) : 0;
  while (n && (at = memmem(at, (size_t)(end - at), p->from, n))) {
    memcpy(at, p->to, n);
    at += n;
    p->found++;
  }
  a->transformed_hlo_module =
      (PJRT_XlaTransform_string){p->copy, a->hlo_module.size};
  a->changed = true;
}

static void patch_end(PJRT_XlaTransform_Callbacks *c) { ((patch *)c)->ended++; }

static PJRT_Error *patch_register(patch *p, const char *name, int stage) {
  p->callbacks.dtor = patch_end;
  p->callbacks.transform_hlo_module = patch_run;
  return at_pjrt_rewrites_extension.register_xla_transform(
      &(PJRT_Register_Xla_Transform_Args){
          .struct_size = PJRT_Register_Xla_Transform_Args_STRUCT_SIZE,
          .name = name,
          .name_size = strlen(name),
          .stage = (PJRT_XlaTransform_PipelineStage)stage,
          .callbacks = &p->callbacks});
}

static bool patch_clear(const char *name, int stage) {
  PJRT_Clear_Xla_Transform_Args a = {
      .struct_size = PJRT_Clear_Xla_Transform_Args_STRUCT_SIZE,
      .stage = (PJRT_XlaTransform_PipelineStage)stage,
      .name = name,
      .name_size = strlen(name)};
  done(at_pjrt_rewrites_extension.clear_xla_transform(&a), "Clear");
  return a.cleared;
}

static const char kSines[] =
    "module @m attributes {stablehlo.num_partitions = 2} {\n"
    "sdy.mesh @mesh = <[\"data\"=2]>\n"
    "func.func @main(%x: tensor<4xf32> {sdy.sharding ="
    " #sdy.sharding<@mesh, [{\"data\"}]>}) -> tensor<4xf32> {\n"
    "  %0 = stablehlo.sine %x : tensor<4xf32>\n"
    "  return %0 : tensor<4xf32> } }";

// What the program gives for half of an argument on each of two chips: the
// result keeps its sharding.
static void run_sines(state *s, PJRT_LoadedExecutable *l, float *out) {
  static const float x[kChips][2] = {{0.5f, 1}, {1.5f, 2}};
  const int64_t dims[] = {2};
  PJRT_Buffer *in[kChips], *y[kChips];
  for (int c = 0; c < kChips; c++)
    in[c] = put(s, c, PJRT_Buffer_Type_F32, x[c], dims, 1);
  done(execute(l, in, y, NULL, 0), "Execute");
  for (int c = 0; c < kChips; c++) {
    get(y[c], out + 2 * c, 8);
    drop(in[c]);
    drop(y[c]);
  }
}

// Does the program that clients show, also once it was serialised, have it?
static void shows(state *s, PJRT_LoadedExecutable *l, const char *word,
                  bool want) {
  PJRT_LoadedExecutable_GetExecutable_Args *e =
      ARGS(LoadedExecutable_GetExecutable, .loaded_executable = l);
  CALL(LoadedExecutable_GetExecutable, e);
  PJRT_Executable_Serialize_Args *x =
      ARGS(Executable_Serialize, .executable = e->executable);
  CALL(Executable_Serialize, x);
  PJRT_Executable_DeserializeAndLoad_Args *again =
      ARGS(Executable_DeserializeAndLoad, .client = s->client,
           .serialized_executable = x->serialized_bytes,
           .serialized_executable_size = x->serialized_bytes_size);
  CALL(Executable_DeserializeAndLoad, again);
  x->serialized_executable_deleter(x->serialized_executable);
  PJRT_LoadedExecutable *both[] = {l, again->loaded_executable};
  for (size_t i = 0; i < AT_LEN(both); i++) {
    PJRT_LoadedExecutable_GetExecutable_Args *b =
        ARGS(LoadedExecutable_GetExecutable, .loaded_executable = both[i]);
    CALL(LoadedExecutable_GetExecutable, b);
    PJRT_Program p = {.struct_size = PJRT_Program_STRUCT_SIZE};
    PJRT_Executable_OptimizedProgram_Args *o =
        ARGS(Executable_OptimizedProgram, .executable = b->executable,
             .program = &p);
    CALL(Executable_OptimizedProgram, o);
    p.code = malloc(p.code_size);
    CALL(Executable_OptimizedProgram, o);
    assert_true(!memmem(p.code, p.code_size, word, strlen(word)) == !want);
    free(p.code);
    CALL(Executable_Destroy,
         ARGS(Executable_Destroy, .executable = b->executable));
  }
  CALL(Executable_Destroy,
       ARGS(Executable_Destroy, .executable = e->executable));
  CALL(LoadedExecutable_Destroy,
       ARGS(LoadedExecutable_Destroy, .executable = again->loaded_executable));
}

// Programs that are compiled from then on are what the function makes of them,
// until it is cleared.
static void rewrites(void **st) {
  state *s = *st;
  for (int stage = 0; stage < 2; stage++) {
    patch p = {.callbacks = {.version = 1}, .from = "sine", .to = "tanh"};
    patch plain = {.callbacks = {.version = 1}};
    done(patch_register(&p, "patch", stage), "Register");
    done(patch_register(&plain, "plain", stage), "Register");
    float y[2 * kChips];
    PJRT_LoadedExecutable *l = compile(s, kSines, kShardy, sizeof kShardy);
    assert_true(p.calls == 1 && p.found >= 1 && plain.calls == 1);
    run_sines(s, l, y);
    for (int i = 0; i < 2 * kChips; i++)
      assert_float_equal(y[i], tanhf(0.5f * (float)(i + 1)), 1e-6f);
    shows(s, l, "tanh", true);
    shows(s, l, "sine", false);
    CALL(LoadedExecutable_Destroy,
         ARGS(LoadedExecutable_Destroy, .executable = l));
    assert_false(patch_clear("patch", !stage));
    assert_false(patch_clear("patc", stage));
    assert_int_equal(p.ended, 0);
    assert_true(patch_clear("patch", stage) && patch_clear("plain", stage));
    assert_false(patch_clear("patch", stage));
    assert_true(p.ended == 1 && plain.ended == 1);
    l = compile(s, kSines, kShardy, sizeof kShardy);
    assert_int_equal(p.calls, 1);
    run_sines(s, l, y);
    for (int i = 0; i < 2 * kChips; i++)
      assert_float_equal(y[i], sinf(0.5f * (float)(i + 1)), 1e-6f);
    shows(s, l, "sine", true);
    CALL(LoadedExecutable_Destroy,
         ARGS(LoadedExecutable_Destroy, .executable = l));
  }
}

// What compiling the sines ends with; 0: a program, which is destroyed again.
static int compile_code(state *s) {
  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE,
                          .code = (char *)kSines,
                          .code_size = sizeof kSines - 1,
                          .format = "mlir",
                          .format_size = 4};
  PJRT_Client_Compile_Args *c =
      ARGS(Client_Compile, .client = s->client, .program = &program,
           .compile_options = kShardy, .compile_options_size = sizeof kShardy);
  int code = code_of(at_PJRT_Client_Compile(c));
  if (!code)
    CALL(LoadedExecutable_Destroy,
         ARGS(LoadedExecutable_Destroy, .executable = c->executable));
  return code;
}

// A function that fails, or gives what is no program of the same values, fails
// the compile.
static void rewrites_that_fail(void **st) {
  static const struct {
    patch p;
    int code;
  } rows[] = {
      {{.fails = "not today"}, AT_INTERNAL},
      {{.from = "sine", .to = "sinf"}, AT_UNIMPLEMENTED},
      // The dimension of every array, in their shapes: 2 becomes 3.
      {{.from = "\x1a\x01\x02", .to = "\x1a\x01\x03"}, AT_INVALID_ARGUMENT},
      {{.from = "HloModule", .to = "HloModule"}, 0},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    patch p = rows[i].p;
    p.callbacks.version = 1;
    done(patch_register(&p, "patch", 0), "Register");
    int code = compile_code(*st);
    assert_true(p.calls == 1);
    if (code != rows[i].code) fail_msg("%zu: %d", i, code);
    assert_true(patch_clear("patch", 0));
  }
  patch p = {.callbacks = {.version = 2}};
  assert_int_equal(code_of(patch_register(&p, "p", 0)), AT_INVALID_ARGUMENT);
  p.callbacks.version = 1;
  assert_int_equal(code_of(patch_register(&p, "p", 2)), AT_INVALID_ARGUMENT);
  assert_int_equal(
      code_of(at_pjrt_rewrites_extension.register_xla_transform(
          &(PJRT_Register_Xla_Transform_Args){
              .struct_size = PJRT_Register_Xla_Transform_Args_STRUCT_SIZE})),
      AT_INVALID_ARGUMENT);
  assert_int_equal(
      code_of(at_pjrt_rewrites_extension.clear_xla_transform(
          &(PJRT_Clear_Xla_Transform_Args){
              .struct_size = PJRT_Clear_Xla_Transform_Args_STRUCT_SIZE})),
      AT_INVALID_ARGUMENT);
}

// One client of four devices for all tests.
static int start(void **st) {
  static state s;
  PJRT_Client_Create_Args *c = ARGS(Client_Create, .client = NULL);
  CALL(Client_Create, c);
  s.client = c->client;
  PJRT_Client_AddressableDevices_Args *d =
      ARGS(Client_AddressableDevices, .client = s.client);
  CALL(Client_AddressableDevices, d);
  assert_int_equal(d->num_addressable_devices, 4);
  s.devices = d->addressable_devices;
  *st = &s;
  return 0;
}

static int stop(void **st) {
  state *s = *st;
  CALL(Client_Destroy, ARGS(Client_Destroy, .client = s->client));
  return 0;
}

int main(void) {
  setenv("ATOLL_TARGET", "v5e:2x2", 1);
  setenv("ATOLL_CACHE", "off", 1);
  const struct CMUnitTest early[] = {cmocka_unit_test(unset_callbacks)};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(kept_arguments),
      cmocka_unit_test(memory_adds_up),
      cmocka_unit_test(results_without_sharding),
      cmocka_unit_test(one_device_of_several),
      cmocka_unit_test(one_device_that_waits),
      cmocka_unit_test(bitcasts),
      cmocka_unit_test(strides_stay_in_dst),
      cmocka_unit_test(deleted_buffers_take_nothing),
      cmocka_unit_test(other_clients_keep_their_memory),
      cmocka_unit_test(rewrites),
      cmocka_unit_test(rewrites_that_fail),
  };
  return cmocka_run_group_tests(early, NULL, NULL) +
         cmocka_run_group_tests(tests, start, stop);
}
