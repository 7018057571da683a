// Compiles, runs, serialises and loads programs while the system refuses
// memory, threads or files: each attempt succeeds with the right bits or ends
// with a status that says what was missing; nothing leaks, and the next attempt
// is right.
//
//   faults_main [--samples=N] [--clients=1] [--kind=N --first=K --count=C]
//   FILE...
//
// samples: failures tried for each program, kind and length (0: every one).
// clients: also with a client of its own for each attempt. FILE: MLIR;
// NAME@4.mlir runs on 4 chips. FAULTS_TRACE=1 prints where the failing call was
// made, FAULTS_SHOW=1 statuses.
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/protobuf.h"
#include "base/strbuf.h"
#include "faults.h"
#include "pjrt/pjrt_internal.h"

#define ARGS(name, ...)                                                  \
  PJRT_##name##_Args a = {.struct_size = PJRT_##name##_Args_STRUCT_SIZE, \
                          __VA_ARGS__}
#define CALL(name) at_pjrt_error_take(at_PJRT_##name(&a))

typedef struct program {
  const char *name;
  at_bytes text, options;
  uint32_t devices;
  uint64_t *want;  // hash of each result, device by device; from the first run
  uint32_t num_want;
} program;

enum { kMaxValues = 256 };

static const char *g_doing = "";
static char g_where[256];

static void on_alarm(int sig) {
  dprintf(2, "faults: %s hangs while %s\n", g_where, g_doing);
  _exit(3);
}

static void broken(const char *format, const char *what) {
  printf("faults: %s: ", g_where);
  printf(format, what);
  printf("\n");
  fflush(stdout);
}

// ---- One attempt
typedef struct attempt {
  program *p;
  PJRT_Client *client;
  bool own_client;
  PJRT_Device *const *devices;
  PJRT_LoadedExecutable *loaded;
  PJRT_Buffer *args[kMaxValues], *results[kMaxValues];
  uint32_t num_args, num_results;  // of one device
  void *data[kMaxValues];
  uint64_t hash[kMaxValues];
} attempt;

static at_status await(PJRT_Event *event) {
  if (!event) return AT_OK;
  ARGS(Event_Await, .event = event);
  at_status st = CALL(Event_Await);
  PJRT_Event_Destroy_Args d = {
      .struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE, .event = event};
  return at_status_join(st, at_pjrt_error_take(at_PJRT_Event_Destroy(&d)));
}

static at_status make_client(attempt *t) {
  g_doing = "making a client";
  ARGS(Client_Create, .client = NULL);
  AT_TRY(CALL(Client_Create));
  t->client = a.client;
  t->own_client = true;
  return AT_OK;
}

static at_status find_devices(attempt *t) {
  ARGS(Client_AddressableDevices, .client = t->client);
  AT_TRY(CALL(Client_AddressableDevices));
  t->devices = a.addressable_devices;
  return AT_OK;
}

static at_status compile(attempt *t) {
  g_doing = "compiling";
  PJRT_Program p = {.struct_size = PJRT_Program_STRUCT_SIZE,
                    .code = (char *)t->p->text.ptr,
                    .code_size = t->p->text.len,
                    .format = "mlir",
                    .format_size = 4};
  ARGS(Client_Compile, .client = t->client, .program = &p,
       .compile_options = (const char *)t->p->options.ptr,
       .compile_options_size = t->p->options.len);
  AT_TRY(CALL(Client_Compile));
  t->loaded = a.executable;
  return AT_OK;
}

static at_status drop_loaded(attempt *t) {
  if (!t->loaded) return AT_OK;
  ARGS(LoadedExecutable_Destroy, .executable = t->loaded);
  t->loaded = NULL;
  return CALL(LoadedExecutable_Destroy);
}

static at_status load_serialised(attempt *t) {
  g_doing = "serialising";
  PJRT_LoadedExecutable_GetExecutable_Args g = {
      .struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE,
      .loaded_executable = t->loaded};
  AT_TRY(at_pjrt_error_take(at_PJRT_LoadedExecutable_GetExecutable(&g)));
  PJRT_Executable_Serialize_Args s = {
      .struct_size = PJRT_Executable_Serialize_Args_STRUCT_SIZE,
      .executable = g.executable};
  at_status st = at_pjrt_error_take(at_PJRT_Executable_Serialize(&s));
  PJRT_Executable_Destroy_Args d = {
      .struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE,
      .executable = g.executable};
  st = at_status_join(st, at_pjrt_error_take(at_PJRT_Executable_Destroy(&d)));
  AT_TRY(st);
  g_doing = "loading what was serialised";
  ARGS(Executable_DeserializeAndLoad, .client = t->client,
       .serialized_executable = s.serialized_bytes,
       .serialized_executable_size = s.serialized_bytes_size);
  st = CALL(Executable_DeserializeAndLoad);
  s.serialized_executable_deleter(s.serialized_executable);
  AT_TRY(st);
  AT_TRY(drop_loaded(t));
  t->loaded = a.loaded_executable;
  return AT_OK;
}

// Small numbers that differ, alike in every run.
static void fill(at_dtype dtype, uint8_t *p, size_t n, uint32_t seed) {
  for (size_t i = 0; i < n; i++) {
    double v = (double)((i * 7 + seed * 3) % 23) / 8.0 - 1.0;
    if (dtype == AT_F32)
      ((float *)p)[i] = (float)v;
    else if (dtype == AT_F64)
      ((double *)p)[i] = v;
    else if (dtype == AT_S32 || dtype == AT_U32)
      ((int32_t *)p)[i] = (int32_t)((i + seed) % 4);
    else if (dtype == AT_BF16)
      ((uint16_t *)p)[i] = (uint16_t)(0x3f00 + (i * 5 + seed) % 200);
    else
      memset(p + i * at_dtype_bytes(dtype), (int)((i + seed) % 2),
             at_dtype_bytes(dtype));
  }
}

static at_status put(attempt *t, const at_xtype *types, const int64_t *dims,
                     const at_xio *in, uint32_t device, uint32_t i) {
  const at_xtype *type = &types[in[i].type];
  size_t n = 1;
  for (uint32_t d = 0; d < type->rank; d++) n *= (size_t)dims[type->dims + d];
  at_dtype dtype = (at_dtype)type->dtype;
  uint32_t at = device * t->num_args + i;
  t->data[at] = malloc(n * at_dtype_bytes(dtype) + 1);
  if (!t->data[at])
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "the test's own memory");
  fill(dtype, t->data[at], n, i);
  ARGS(Client_BufferFromHostBuffer, .client = t->client, .data = t->data[at],
       .type = at_pjrt_type(dtype), .dims = dims + type->dims,
       .num_dims = type->rank, .device = t->devices[device],
       .host_buffer_semantics =
           PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes);
  AT_TRY(CALL(Client_BufferFromHostBuffer));
  t->args[at] = a.buffer;
  return await(a.done_with_host_buffer);
}

static at_status put_all(attempt *t) {
  g_doing = "putting arguments";
  uint64_t num_in, num_out, unused;
  const at_xio *in =
      at_loaded_section(t->loaded->loaded, AT_XS_INPUTS, &num_in);
  at_loaded_section(t->loaded->loaded, AT_XS_OUTPUTS, &num_out);
  const at_xtype *types =
      at_loaded_section(t->loaded->loaded, AT_XS_TYPES, &unused);
  const int64_t *dims =
      at_loaded_section(t->loaded->loaded, AT_XS_DIMS, &unused);
  t->num_args = (uint32_t)num_in;
  t->num_results = (uint32_t)num_out;
  if (t->p->devices * AT_MAX(num_in, num_out) > kMaxValues)
    return AT_FAIL(AT_INTERNAL, "too many values for this test");
  for (uint32_t d = 0; d < t->p->devices; d++)
    for (uint32_t i = 0; i < t->num_args; i++)
      AT_TRY(put(t, types, dims, in, d, i));
  return AT_OK;
}

static at_status execute(attempt *t) {
  g_doing = "running";
  PJRT_Buffer *const *args[64];
  PJRT_Buffer **results[64];
  PJRT_Event *done[64] = {0};
  for (uint32_t d = 0; d < t->p->devices; d++) {
    args[d] = t->args + d * t->num_args;
    results[d] = t->results + d * t->num_results;
  }
  PJRT_ExecuteOptions o = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  ARGS(LoadedExecutable_Execute, .executable = t->loaded, .options = &o,
       .argument_lists = args, .num_devices = t->p->devices,
       .num_args = t->num_args, .output_lists = results,
       .device_complete_events = done);
  AT_TRY(CALL(LoadedExecutable_Execute));
  at_status st = AT_OK;
  for (uint32_t d = 0; d < t->p->devices; d++)
    st = at_status_join(st, await(done[d]));
  return st;
}

static at_status get(attempt *t, uint32_t i) {
  PJRT_Buffer *b = t->results[i];
  ARGS(Buffer_ToHostBuffer, .src = b, .dst = NULL);
  AT_TRY(CALL(Buffer_ToHostBuffer));
  size_t n = a.dst_size;
  char *data = malloc(n + 1);
  if (!data) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "the test's own memory");
  a.dst = data;
  at_status st = CALL(Buffer_ToHostBuffer);
  if (!st.err) st = await(a.event);
  t->hash[i] = at_hash(AT_HASH_SEED, data, n);
  free(data);
  return st;
}

static void destroy_buffers(PJRT_Buffer **list) {
  for (uint32_t i = 0; i < kMaxValues; i++) {
    if (!list[i]) continue;
    ARGS(Buffer_Destroy, .buffer = list[i]);
    at_status_free(CALL(Buffer_Destroy));
  }
}

static at_status steps(attempt *t) {
  if (!t->client) AT_TRY(make_client(t));
  AT_TRY(find_devices(t));
  AT_TRY(compile(t));
  AT_TRY(load_serialised(t));
  AT_TRY(put_all(t));
  AT_TRY(execute(t));
  g_doing = "getting results";
  for (uint32_t i = 0; i < t->num_results * t->p->devices; i++)
    AT_TRY(get(t, i));
  return AT_OK;
}

static void end(attempt *t) {
  g_doing = "cleaning up";
  destroy_buffers(t->args);
  destroy_buffers(t->results);
  for (uint32_t i = 0; i < kMaxValues; i++) free(t->data[i]);
  at_status_free(drop_loaded(t));
  if (!t->own_client) return;
  ARGS(Client_Destroy, .client = t->client);
  at_status_free(CALL(Client_Destroy));
}

// ---- Many attempts
static int g_broken, g_tried, g_refused;

static bool same(const attempt *t) {
  const program *p = t->p;
  return t->num_results * p->devices == p->num_want &&
         !memcmp(t->hash, p->want, p->num_want * sizeof *t->hash);
}

static void judge(attempt *t, at_status st, bool hit) {
  const char *text = at_status_message(st);
  at_code code = at_status_code(st);
  if (!st.err && !same(t)) g_broken++, broken("wrong result%s", "");
  if (st.err && !hit) g_broken++, broken("fails by itself: %s", text);
  if (st.err && hit && (code != AT_RESOURCE_EXHAUSTED || !*text))
    g_broken++, broken("not a word of what was missing: %s", text);
  g_refused += st.err != NULL;
}

static void attempt_once(program *p, PJRT_Client *client, faults_kind kind,
                         uint64_t first, uint64_t count,
                         uint64_t calls[FAULTS_KINDS]) {
  static attempt t;
  t = (attempt){.p = p, .client = client};
  int64_t before = faults_live();
  alarm(60);
  faults_arm(kind, first, count);
  at_status st = steps(&t);
  faults_disarm(calls);
  bool hit = faults_hit();
  if (!p->want) {
    p->num_want = t.num_results * p->devices;
    p->want = malloc(p->num_want * sizeof *p->want + 1);
    memcpy(p->want, t.hash, p->num_want * sizeof *p->want);
  }
  judge(&t, st, hit);
  bool lost = strstr(at_status_message(st), "LLVM cannot") != NULL;
  bool failed = st.err != NULL;
  if (getenv("FAULTS_SHOW") && failed) broken("%s", at_status_message(st));
  at_status_free(st);
  end(&t);
  int64_t more = faults_live() - before;
  char text[64];
  snprintf(text, sizeof text, "%" PRId64, more);
  // What stays of a success is kept for the next one.
  if (hit && !lost && more > 4096 && failed)
    g_broken++, broken("leaks %s bytes", text);
  alarm(0);
}

typedef struct plan {
  uint64_t samples;
  int kind;  // -1: all
  uint64_t first, count;
  bool one;  // first and count are given
} plan;

static void try_one(program *p, PJRT_Client *client, int kind, uint64_t first,
                    uint64_t count) {
  uint64_t calls[FAULTS_KINDS];
  snprintf(g_where, sizeof g_where,
           "%s%s --kind=%d --first=%" PRIu64 " --count=%" PRIu64, p->name,
           client ? "" : " and its client", kind, first, count);
  g_tried++;
  attempt_once(p, client, (faults_kind)kind, first, count, calls);
  snprintf(g_where + strlen(g_where), 32, ", then");
  attempt_once(p, client, FAULTS_HEAP, UINT64_MAX, 0, calls);
}

// `client` NULL: each attempt makes its own.
static void try_program(program *p, PJRT_Client *client, const plan *how) {
  uint64_t all[FAULTS_KINDS], warm[FAULTS_KINDS];
  snprintf(g_where, sizeof g_where, "%s, without failures", p->name);
  for (int i = 0; i < 3; i++)
    attempt_once(p, client, FAULTS_HEAP, UINT64_MAX, 0, i ? warm : all);
  if (how->one) {
    try_one(p, client, how->kind, how->first, how->count);
    return;
  }
  static const uint64_t lengths[] = {1, 20, UINT64_MAX};
  for (int k = 0; k < FAULTS_KINDS; k++) {
    if (how->kind >= 0 && how->kind != k) continue;
    for (size_t l = 0; l < AT_LEN(lengths); l++) {
      uint64_t n =
          how->samples && how->samples < warm[k] ? how->samples : warm[k];
      for (uint64_t s = 0; s < n; s++) {
        // Spread evenly, another offset for each length.
        uint64_t first = n == warm[k] ? s : (s * warm[k] + l * warm[k] / 3) / n;
        try_one(p, client, k, first, lengths[l]);
      }
    }
  }
}

static at_bytes read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return (at_bytes){0};
  fseek(f, 0, SEEK_END);
  size_t n = (size_t)ftell(f);
  rewind(f);
  uint8_t *p = malloc(n + 1);
  n = fread(p, 1, n, f);
  fclose(f);
  return (at_bytes){p, n};
}

static at_bytes options_for(uint32_t devices) {
  if (devices == 1) return (at_bytes){0};
  at_strbuf inner = {0}, outer = {0}, assignment = {0};
  int64_t ids[64];
  for (uint32_t i = 0; i < devices; i++) ids[i] = i;
  at_pjrt_assignment_write(1, devices, ids, &assignment);
  at_proto_write_int(&inner, 4, 1);
  at_proto_write_int(&inner, 5, devices);
  at_proto_write_int(&inner, 6, 1);
  at_proto_write_bytes(&inner, 9, at_strbuf_str(&assignment));
  at_proto_write_bytes(&outer, 3, at_strbuf_str(&inner));
  return (at_bytes){(const uint8_t *)outer.ptr, outer.len};
}

static bool read_number(const char *arg, const char *name, uint64_t *out) {
  size_t n = strlen(name);
  if (strncmp(arg, name, n)) return false;
  *out = strtoull(arg + n, NULL, 10);
  return true;
}

int main(int argc, char **argv) {
  plan how = {.samples = 8, .kind = -1};
  uint64_t kind, with_client = 0;
  signal(SIGALRM, on_alarm);
  setenv("ATOLL_CACHE", "off", 1);
  setenv("ATOLL_TARGET", "v6e:2x2", 0);
  setenv("ATOLL_THREADS", "2", 0);
  setenv("ATOLL_LOG", "off", 0);
  attempt keep = {0};
  at_status st = make_client(&keep);
  for (int i = 1; i < argc && !st.err; i++) {
    const char *arg = argv[i];
    if (read_number(arg, "--samples=", &how.samples) ||
        read_number(arg, "--count=", &how.count) ||
        read_number(arg, "--clients=", &with_client))
      continue;
    if (read_number(arg, "--first=", &how.first)) {
      how.one = true;
      continue;
    }
    if (read_number(arg, "--kind=", &kind)) {
      how.kind = (int)kind;
      continue;
    }
    const char *name = strrchr(arg, '/') ? strrchr(arg, '/') + 1 : arg;
    const char *at = strchr(name, '@');
    program p = {.name = name,
                 .text = read_file(arg),
                 .devices = at ? (uint32_t)atoi(at + 1) : 1};
    if (!p.text.ptr) return fprintf(stderr, "cannot read %s\n", arg), 2;
    p.options = options_for(p.devices);
    int tried = g_tried, refused = g_refused;
    try_program(&p, keep.client, &how);
    printf("%-28s %5d failures, %5d statuses, %d broken\n", name,
           g_tried - tried, g_refused - refused, g_broken);
    fflush(stdout);
    if (with_client) try_program(&p, NULL, &how);
    free(p.want);
    free((void *)p.text.ptr);
    free((void *)p.options.ptr);
  }
  if (st.err) fprintf(stderr, "%s\n", at_status_message(st));
  at_status_free(st);
  end(&keep);
  return st.err || g_broken ? 1 : 0;
}
