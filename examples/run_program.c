// Loads a program and runs it, from C: argument i is a f32[8], all elements i
// + 1.
//
//   cc -std=c17 examples/run_program.c -I PREFIX/include -ldl -o run_program
//   ./run_program PREFIX/lib/atoll/libatoll.so examples/twice.mlir 1
//
// pjrt_abi.h is the PJRT C API with its argument structs;
// xla/pjrt/c/pjrt_c_api.h of OpenXLA does as well. docs/install.md says what
// PREFIX is.
#include <dlfcn.h>
#include <pjrt_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 8, MOST = 16 };

static const PJRT_Api *api;

// Calls one function of the API with a struct of arguments; ends on an error.
#define CALL(function, args)                         \
  ((args).struct_size = function##_Args_STRUCT_SIZE, \
   check(#function, api->function(&(args))))

static void check(const char *function, PJRT_Error *error) {
  if (!error) return;
  PJRT_Error_Message_Args m = {
      .struct_size = PJRT_Error_Message_Args_STRUCT_SIZE, .error = error};
  api->PJRT_Error_Message(&m);
  fprintf(stderr, "%s: %.*s\n", function, (int)m.message_size, m.message);
  exit(1);
}

// Waits for an event and frees it.
static void finish(PJRT_Event *event) {
  PJRT_Event_Await_Args wait = {.event = event};
  CALL(PJRT_Event_Await, wait);
  PJRT_Event_Destroy_Args destroy = {.event = event};
  CALL(PJRT_Event_Destroy, destroy);
}

static char *read_file(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  if (!f) return perror(path), exit(1), NULL;
  char *text = malloc(1 << 20);
  *size = text ? fread(text, 1, 1 << 20, f) : 0;
  fclose(f);
  return text;
}

static PJRT_Buffer *to_device(PJRT_Client *client, PJRT_Device *device,
                              float value) {
  float data[N];
  for (int i = 0; i < N; i++) data[i] = value;
  PJRT_Client_BufferFromHostBuffer_Args put = {.client = client,
                                               .data = data,
                                               .type = PJRT_Buffer_Type_F32,
                                               .dims = (int64_t[]){N},
                                               .num_dims = 1,
                                               .device = device};
  CALL(PJRT_Client_BufferFromHostBuffer, put);
  finish(put.done_with_host_buffer);  // data may go
  return put.buffer;
}

static void print(PJRT_Buffer *buffer) {
  PJRT_Buffer_ToHostBuffer_Args get = {.src = buffer};
  CALL(PJRT_Buffer_ToHostBuffer, get);  // only its size
  float *data = malloc(get.dst_size);
  get.dst = data;
  CALL(PJRT_Buffer_ToHostBuffer, get);
  finish(get.event);
  for (size_t i = 0; i < get.dst_size / sizeof *data; i++)
    printf("%g ", data[i]);
  puts("");
  free(data);
}

int main(int argc, char **argv) {
  if (argc != 4)
    return fprintf(stderr, "usage: %s LIBRARY PROGRAM ARGUMENTS\n", *argv), 2;
  void *library = dlopen(argv[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  const PJRT_Api *(*get_api)(void) =
      (const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi");
  api = get_api();

  PJRT_Client_Create_Args create = {0};
  CALL(PJRT_Client_Create, create);
  PJRT_Client_AddressableDevices_Args devices = {.client = create.client};
  CALL(PJRT_Client_AddressableDevices, devices);
  printf("%zu devices\n", devices.num_addressable_devices);

  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE,
                          .format = "mlir",
                          .format_size = 4};
  program.code = read_file(argv[2], &program.code_size);
  PJRT_Client_Compile_Args compile = {
      .client = create.client, .program = &program, .compile_options = ""};
  CALL(PJRT_Client_Compile, compile);

  size_t count = (size_t)atoi(argv[3]);
  PJRT_Buffer *arguments[MOST] = {0}, *results[MOST] = {0};
  for (size_t i = 0; i < count && i < MOST; i++)
    arguments[i] = to_device(create.client, devices.addressable_devices[0],
                             (float)(i + 1));
  PJRT_ExecuteOptions options = {.struct_size =
                                     PJRT_ExecuteOptions_STRUCT_SIZE};
  PJRT_Event *done = NULL;
  PJRT_LoadedExecutable_Execute_Args run = {
      .executable = compile.executable,
      .options = &options,
      .num_devices = 1,
      .num_args = count,
      .argument_lists = (PJRT_Buffer *const *[]){arguments},
      .output_lists = (PJRT_Buffer * *[]){results},
      .device_complete_events = &done};
  CALL(PJRT_LoadedExecutable_Execute, run);
  finish(done);
  for (size_t i = 0; i < MOST && results[i]; i++) print(results[i]);
  // The process ends: what it holds goes with it.
}
