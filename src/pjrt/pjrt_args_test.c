// Every function of the table, called with what a careless client might pass.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka needs the four headers above first.
#include <cmocka.h>

#include "pjrt/pjrt_internal.h"

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
  PJRT_Error_GetCode_Args c = {
      .struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE, .error = e};
  assert_null(at_PJRT_Error_GetCode(&c));
  PJRT_Error_Message_Args m = {
      .struct_size = PJRT_Error_Message_Args_STRUCT_SIZE, .error = e};
  at_PJRT_Error_Message(&m);
  assert_true(m.message_size > 0);
  PJRT_Error_Destroy_Args d = {
      .struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE, .error = e};
  at_PJRT_Error_Destroy(&d);
  return (int)c.code;
}

// INVALID_ARGUMENT from every function of the table.
static void null_args(void **state) {
  for (size_t i = 0; i < AT_LEN(entries); i++) {
    int code = code_of(entries[i].call(NULL));
    if (code != AT_INVALID_ARGUMENT) fail_msg("%s: %d", entries[i].name, code);
  }
  at_PJRT_Error_Destroy(NULL);
  at_PJRT_Error_Message(NULL);
}

// Sizes that hold no struct at all.
static void short_args(void **state) {
  for (size_t i = 0; i < AT_LEN(entries); i++) {
    size_t block[128] = {0};
    for (size_t size = 0; size <= 8; size += 8) {
      block[0] = size;
      int code = code_of(entries[i].call(block));
      if (code != AT_INVALID_ARGUMENT)
        fail_msg("%s with struct_size %zu: %d", entries[i].name, size, code);
    }
  }
  size_t block[128] = {0};
  at_PJRT_Error_Destroy((void *)block);
  at_PJRT_Error_Message((void *)block);
}

// With null handles a function says so, or has nothing to do (Destroy of NULL).
static void null_handles(void **state) {
  static const char *const fine[] = {
      "PJRT_Plugin_Initialize",     "PJRT_Plugin_Attributes",
      "PJRT_Event_Create",          "PJRT_Client_Create",
      "PJRT_ExecuteContext_Create", "PJRT_TopologyDescription_Create"};
  for (size_t i = 0; i < AT_LEN(entries); i++) {
    bool skip = false;
    for (size_t j = 0; j < AT_LEN(fine); j++)
      skip |= strcmp(fine[j], entries[i].name) == 0;
    if (skip) continue;
    size_t block[128] = {entries[i].struct_size};
    int code = code_of(entries[i].call(block));
    bool destroy = strstr(entries[i].name, "_Destroy") != NULL;
    if (code != (destroy ? 0 : AT_INVALID_ARGUMENT))
      fail_msg("%s: %d", entries[i].name, code);
  }
}

// What a function says of null handles when its args claim `size` bytes; it
// must not write behind them. `real`: how many the client has, more than it
// claims where the size was defined too small.
static int code_at_size(const entry *e, size_t size, size_t real) {
  union {
    size_t words[256];
    uint8_t bytes[2048];
  } block = {.words = {size}};
  memset(block.bytes + real, 0xa5, sizeof block - real);
  int code = code_of(e->call(&block));
  for (size_t i = real; i < sizeof block; i++)
    if (block.bytes[i] != 0xa5)
      fail_msg("%s with struct_size %zu wrote byte %zu", e->name, size, i);
  return code;
}

// Functions that have nothing to check.
static bool works_without_handles(const char *name) {
  return strstr(name, "_Destroy") || !strcmp(name, "PJRT_Plugin_Initialize") ||
         !strcmp(name, "PJRT_Plugin_Attributes");
}

// What creates something is called by the clients that the other tests have.
static bool creates(const char *name) {
  return !strcmp(name, "PJRT_Event_Create") ||
         !strcmp(name, "PJRT_Client_Create") ||
         !strcmp(name, "PJRT_ExecuteContext_Create") ||
         !strcmp(name, "PJRT_TopologyDescription_Create");
}

static void newer_clients_have_longer_args(void **state) {
  for (size_t i = 0; i < AT_LEN(entries); i++) {
    const entry *e = &entries[i];
    if (creates(e->name)) continue;
    size_t size = e->struct_size + 64;
    int code = code_at_size(e, size, size);
    if (code != (works_without_handles(e->name) ? 0 : AT_INVALID_ARGUMENT))
      fail_msg("%s with struct_size %zu: %d", e->name, size, code);
  }
}

// The sizes of args that have grown, as clients from minor version 54 (of 2024)
// on have them, and how many bytes those clients have in fact.
static void older_clients_have_shorter_args(void **state) {
  static const struct {
    const char *name;
    size_t size, real;
  } old[] = {
      {"PJRT_Plugin_Attributes", 24, 32},
      {"PJRT_Client_CreateErrorBuffer", 96, 96},
      {"PJRT_Client_CreateViewOfDeviceBuffer", 104, 104},
      {"PJRT_Device_MemoryStats", 185, 192},
      {"PJRT_Device_PoisonExecution", 49, 56},
      {"PJRT_Executable_DeserializeAndLoad", 48, 48},
      {"PJRT_Executable_DeserializeAndLoad", 64, 64},
      {"PJRT_Executable_GetCompiledMemoryStats", 104, 104},
      {"PJRT_Executable_GetCompiledMemoryStats", 112, 112},
      {"PJRT_Executable_GetCompiledMemoryStats", 120, 120},
  };
  for (size_t i = 0; i < AT_LEN(old); i++) {
    size_t k = 0;
    while (strcmp(entries[k].name, old[i].name)) k++;
    // A null handle is what is wrong, not the size.
    size_t block[256] = {old[i].size};
    PJRT_Error *error = entries[k].call(block);
    PJRT_Error_Message_Args m = {
        .struct_size = PJRT_Error_Message_Args_STRUCT_SIZE, .error = error};
    if (error) at_PJRT_Error_Message(&m);
    if (error && !strstr(m.message, "is NULL"))
      fail_msg("%s with struct_size %zu: %s", old[i].name, old[i].size,
               m.message);
    code_of(error);
    code_at_size(&entries[k], old[i].size, old[i].real);
  }
  PJRT_Plugin_Attributes_Args a = {.struct_size = 24};
  assert_int_equal(code_of(at_PJRT_Plugin_Attributes(&a)), 0);
  assert_true(a.num_attributes > 0);
  assert_non_null(a.attributes);
}

// No entry of the version's table is NULL, and all extensions are chained.
static void table_is_full(void **state) {
  const PJRT_Api *api = at_pjrt_api();
  assert_int_equal(api->struct_size, PJRT_Api_STRUCT_SIZE);
  assert_int_equal(api->pjrt_api_version.minor_version, 114);
  void *const *p = (void *const *)&api->PJRT_Error_Destroy;
  size_t n = (sizeof *api - offsetof(PJRT_Api, PJRT_Error_Destroy)) / sizeof *p;
  assert_int_equal(n, 138);
  for (size_t i = 0; i < n; i++) assert_non_null(p[i]);
  size_t extensions = 0;
  for (const PJRT_Extension_Base *e = api->extension_start; e; e = e->next) {
    assert_true(e->struct_size >= sizeof *e);
    extensions++;
  }
  assert_int_equal(extensions, 9);
}

// Transfers between processes: bad args, and clients that pass one key where
// later ones pass a list of them.
static void transfers_of_older_clients_are_refused(void **state) {
  const at_pjrt_cross_host *x = &at_pjrt_cross_host_extension;
  assert_int_equal(code_of(x->send(NULL)), AT_INVALID_ARGUMENT);
  assert_int_equal(code_of(x->receive(NULL)), AT_INVALID_ARGUMENT);
  assert_int_equal(code_of(x->make_receive_buffers(NULL)), AT_UNIMPLEMENTED);
  static int32_t id;
  at_pjrt_cross_host_send_args s = {.struct_size = sizeof s, .num_buffers = 1};
  assert_int_equal(code_of(x->send(&s)), AT_INVALID_ARGUMENT);
  s.client = (PJRT_Client *)&id;  // not looked at
  s.ids = &id;
  s.keys = (const int64_t *)3;
  assert_int_equal(code_of(x->send(&s)), AT_UNIMPLEMENTED);
  s.keys = (const int64_t *)(1ull << 40);  // the same client, later
  assert_int_equal(code_of(x->send(&s)), AT_UNIMPLEMENTED);
}

// An event of the client's: it fires once, with the code and the text that it
// was given, cut at the given length.
static void events(void **state) {
  PJRT_Event_Create_Args c = {.struct_size =
                                  PJRT_Event_Create_Args_STRUCT_SIZE};
  assert_int_equal(code_of(at_PJRT_Event_Create(&c)), 0);
  PJRT_Event_IsReady_Args r = {
      .struct_size = PJRT_Event_IsReady_Args_STRUCT_SIZE, .event = c.event};
  assert_int_equal(code_of(at_PJRT_Event_IsReady(&r)), 0);
  assert_false(r.is_ready);
  PJRT_Event_Error_Args e = {.struct_size = PJRT_Event_Error_Args_STRUCT_SIZE,
                             .event = c.event};
  assert_int_equal(code_of(at_PJRT_Event_Error(&e)), AT_FAILED_PRECONDITION);
  PJRT_Event_Set_Args s = {.struct_size = PJRT_Event_Set_Args_STRUCT_SIZE,
                           .event = c.event,
                           .error_code = PJRT_Error_Code_DATA_LOSS,
                           .error_message = "gone!",
                           .error_message_size = 4};
  assert_int_equal(code_of(at_PJRT_Event_Set(&s)), 0);
  assert_int_equal(code_of(at_PJRT_Event_Set(&s)), AT_FAILED_PRECONDITION);
  PJRT_Event_Await_Args w = {.struct_size = PJRT_Event_Await_Args_STRUCT_SIZE,
                             .event = c.event};
  PJRT_Error *error = at_PJRT_Event_Await(&w);
  PJRT_Error_Message_Args m = {
      .struct_size = PJRT_Error_Message_Args_STRUCT_SIZE, .error = error};
  at_PJRT_Error_Message(&m);
  assert_int_equal(m.message_size, 4);
  assert_memory_equal(m.message, "gone", 4);
  assert_int_equal(code_of(error), AT_DATA_LOSS);
  PJRT_Event_Destroy_Args d = {
      .struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE, .event = c.event};
  assert_int_equal(code_of(at_PJRT_Event_Destroy(&d)), 0);
}

// A CompileOptionsProto with 2 replicas of 1 partition on devices 3 and 5.
static void options(void **state) {
  static const uint8_t proto[] = {0x1a, 0x0f, 0x20, 2,    0x28, 1,
                                  0x4a, 0x09, 0x08, 2,    0x10, 1,
                                  0x1a, 0x03, 0x0a, 0x01, 3};
  at_pjrt_options o = {0};
  // One of two replicas is missing from the assignment.
  assert_int_equal(
      at_code_take(at_pjrt_options_parse((at_bytes){proto, sizeof proto}, &o)),
      AT_INVALID_ARGUMENT);
  static const uint8_t whole[] = {0x1a, 0x10, 0x20, 2,    0x28, 1,    0x4a,
                                  0x0a, 0x08, 2,    0x10, 1,    0x1a, 0x04,
                                  0x0a, 0x02, 3,    5,    0x20, 1};
  assert_int_equal(
      at_code_take(at_pjrt_options_parse((at_bytes){whole, sizeof whole}, &o)),
      0);
  assert_true(o.portable && o.has_assignment);
  assert_int_equal(o.num_replicas, 2);
  assert_int_equal(o.num_partitions, 1);
  assert_int_equal(o.assignment[0], 3);
  assert_int_equal(o.assignment[1], 5);
  at_strbuf out = {0};
  at_pjrt_assignment_write(2, 1, o.assignment, &out);
  assert_int_equal(out.len, 10);
  assert_memory_equal(out.ptr, whole + 8, 10);
  at_strbuf_free(&out);
  at_pjrt_options_free(&o);
  // 2^20 replicas of 2^20 partitions, and not one id.
  static const uint8_t many[] = {0x1a, 0x0a, 0x4a, 8,    0x08, 0x80,
                                 0x80, 0x40, 0x10, 0x80, 0x80, 0x40};
  assert_int_equal(
      at_code_take(at_pjrt_options_parse((at_bytes){many, sizeof many}, &o)),
      AT_INVALID_ARGUMENT);
  for (size_t n = 0; n < sizeof whole; n++) {  // cut anywhere: no crash
    at_pjrt_options cut = {0};
    at_status s = at_pjrt_options_parse((at_bytes){whole, n}, &cut);
    if (at_ok(s)) at_pjrt_options_free(&cut);
    at_status_free(s);
  }
}

// However many layouts programs ask for, each is kept once.
static void layouts_are_kept(void **state) {
  const char *kept[200];
  char text[32];
  for (int turn = 0; turn < 2; turn++)
    for (int i = 0; i < 200; i++) {
      snprintf(text, sizeof text, "{1,0:T(%d)}", i);
      const char *is = at_pjrt_layout_keep(text);
      assert_string_equal(is, text);
      if (turn) assert_ptr_equal(is, kept[i]);
      kept[i] = is;
    }
  assert_null(at_pjrt_layout_keep("default"));
}

// Orders and strides of host arrays, copied there and back; orders that are no
// permutation are refused.
static void layouts(void **state) {
  const int64_t dims[] = {2, 3, 4};
  at_dims d = {dims, 3};
  int64_t order[] = {0, 1, 2}, strides[3];
  bool dense;
  PJRT_Buffer_MemoryLayout l = {
      .struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
      .tiled = {.minor_to_major = order, .minor_to_major_size = 3},
      .type = PJRT_Buffer_MemoryLayout_Type_Tiled};
  assert_int_equal(
      at_code_take(at_pjrt_host_strides(&l, AT_F32, d, strides, &dense)), 0);
  assert_false(dense);
  assert_int_equal(strides[0], 4);
  assert_int_equal(strides[1], 8);
  assert_int_equal(strides[2], 24);
  float src[24], dst[24] = {0}, back[24] = {0};
  for (int i = 0; i < 24; i++) src[i] = (float)i;
  at_pjrt_copy_strided(AT_F32, d, src, dst, strides);
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 3; j++)
      for (int k = 0; k < 4; k++)
        assert_true(dst[i + 2 * j + 6 * k] == src[(i * 3 + j) * 4 + k]);
  at_pjrt_gather_strided(AT_F32, d, dst, strides, back);
  assert_memory_equal(back, src, sizeof src);
  order[0] = 2, order[2] = 0;
  assert_int_equal(
      at_code_take(at_pjrt_host_strides(&l, AT_F32, d, strides, &dense)), 0);
  assert_true(dense);
  order[0] = 1;  // 1, 1, 0
  assert_int_equal(
      at_code_take(at_pjrt_host_strides(&l, AT_F32, d, strides, &dense)),
      AT_INVALID_ARGUMENT);
  assert_int_equal(at_pjrt_minor_to_major(2)[0], 1);
  at_pjrt_shape s;
  const int64_t huge[] = {INT64_MAX, 2, 0}, negative[] = {-1};
  assert_int_equal(at_code_take(at_pjrt_shape_check(PJRT_Buffer_Type_F32, huge,
                                                    2, NULL, &s)),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_pjrt_shape_check(PJRT_Buffer_Type_F32,
                                                    negative, 1, NULL, &s)),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_pjrt_shape_check((PJRT_Buffer_Type)99, dims,
                                                    3, NULL, &s)),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_pjrt_shape_check(PJRT_Buffer_Type_F32,
                                                    huge + 2, 1, NULL, &s)),
                   0);
  assert_int_equal(s.bytes, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(null_args),
      cmocka_unit_test(short_args),
      cmocka_unit_test(null_handles),
      cmocka_unit_test(newer_clients_have_longer_args),
      cmocka_unit_test(older_clients_have_shorter_args),
      cmocka_unit_test(table_is_full),
      cmocka_unit_test(transfers_of_older_clients_are_refused),
      cmocka_unit_test(events),
      cmocka_unit_test(options),
      cmocka_unit_test(layouts_are_kept),
      cmocka_unit_test(layouts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
