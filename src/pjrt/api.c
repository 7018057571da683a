// The function table, the plug-in's attributes, and the functions that no
// client of one machine calls.
#include <stdatomic.h>
#include <stdlib.h>

#include "base/locale.h"
#include "pjrt/pjrt_internal.h"

// Everything is set up on first use, so there is nothing to do here.
AT_API(Plugin_Initialize) {
  AT_ARGS(PJRT_Plugin_Initialize_Args);
  return NULL;
}

// What JAX reads before it makes a client: the versions of StableHLO that
// programs may have. The values are static.
AT_API(Plugin_Attributes) {
  // Until version 71 the struct's size left out its last field, which clients
  // had all the same.
  AT_ARGS_UP_TO(PJRT_Plugin_Attributes_Args, attributes);
  // The newest and oldest StableHLO that `import` reads; JAX serialises
  // programs for the former.
  static const int64_t current[3] = {1, 17, 0}, minimum[3] = {0, 9, 0};
  static const PJRT_NamedValue attributes[] = {
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
       .name = "xla_version",
       .name_size = 11,
       .type = PJRT_NamedValue_kInt64,
       .int64_value = 2,
       .value_size = 1},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
       .name = "stablehlo_current_version",
       .name_size = 25,
       .type = PJRT_NamedValue_kInt64List,
       .int64_array_value = current,
       .value_size = 3},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
       .name = "stablehlo_minimum_version",
       .name_size = 25,
       .type = PJRT_NamedValue_kInt64List,
       .int64_array_value = minimum,
       .value_size = 3},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
       .name = "atoll_version",
       .name_size = 13,
       .type = PJRT_NamedValue_kString,
       .string_value = AT_VERSION,
       .value_size = sizeof AT_VERSION - 1},
  };
  a->attributes = attributes;
  a->num_attributes = AT_LEN(attributes);
  return NULL;
}

// Reasons: README.md, "What is not there".
AT_API(Device_PoisonExecution) {
  AT_ARGS_UP_TO(PJRT_Device_PoisonExecution_Args, poisoned);
  AT_HANDLE(a->device);
  return AT_PFAIL(AT_UNIMPLEMENTED,
                  "PJRT_Device_PoisonExecution: poisoning a launch by its id");
}

// What clients call: the table's functions in the C locale.
#define AT_ENTER(name)                              \
  static PJRT_Error *enter_##name(name##_Args *a) { \
    locale_t before = at_locale_enter();            \
    PJRT_Error *e = at_##name(a);                   \
    at_locale_leave(before);                        \
    return e;                                       \
  }
PJRT_API_FUNCTIONS_RETURNING_ERROR(AT_ENTER)
#undef AT_ENTER
#define enter_PJRT_Error_Destroy at_PJRT_Error_Destroy
#define enter_PJRT_Error_Message at_PJRT_Error_Message

// The table: every entry of the API is set, from the list that pjrt_abi.h has
// of them.
static PJRT_Api api = {
    .struct_size = PJRT_Api_STRUCT_SIZE,
    .pjrt_api_version = {.struct_size = PJRT_Api_Version_STRUCT_SIZE,
                         .major_version = PJRT_API_MAJOR,
                         .minor_version = PJRT_API_MINOR},
#define AT_ENTRY(name) .name = enter_##name,
    PJRT_API_FUNCTIONS(AT_ENTRY)
#undef AT_ENTRY
};

// Chains the extensions and hands out the table. Clients look for an extension
// by its type, so their order says nothing.
const PJRT_Api *at_pjrt_api(void) {
  static PJRT_Extension_Base *const chain[] = {
      &at_pjrt_layouts_extension.base,    &at_pjrt_ffi_extension.base,
      &at_pjrt_memory_extension.base,     &at_pjrt_raw_buffer_extension.base,
      &at_pjrt_shardings_extension.base,  &at_pjrt_profiler_extension.base,
      &at_pjrt_cross_host_extension.base, &at_pjrt_rewrites_extension.base,
      &at_pjrt_own_extension.base,
  };
  // Any number of threads may come here; all write the same values.
  for (size_t i = 0; i < AT_LEN(chain); i++)
    __atomic_store_n(&chain[i]->next,
                     i + 1 < AT_LEN(chain) ? chain[i + 1] : NULL,
                     __ATOMIC_RELAXED);
  __atomic_store_n(&api.extension_start, chain[0], __ATOMIC_RELEASE);
  return &api;
}
