// A PJRT plug-in that does nothing: one device, programs of one f32[8] result
// that is always the same buffer, ready at once. What a call through JAX costs
// with it is the floor under every plug-in (bench/tiny.py).
#include <stdio.h>
#include <string.h>

#include "pjrt/pjrt_abi.h"

// The objects: clients read the first word as a table of functions when not
// NULL.
typedef struct object {
  void *table;
  int code;
  const char *text;
} object;
static object client, device, memory, topology, executable, loaded, buffer,
    event;
static object unavailable = {.code = PJRT_Error_Code_UNIMPLEMENTED};
static float data[8] = {1, 1, 1, 1, 1, 1, 1, 1};
static const int64_t dims[1] = {8};

#define API(name) static PJRT_Error *do_##name(PJRT_##name##_Args *a)
#define GIVES(name, field, value) \
  API(name) {                     \
    a->field = (void *)(value);   \
    return NULL;                  \
  }
#define NUMBER(name, field, value) \
  API(name) {                      \
    a->field = value;              \
    return NULL;                   \
  }
#define TEXT(name, field, value)         \
  API(name) {                            \
    a->field = value;                    \
    a->field##_size = sizeof(value) - 1; \
    return NULL;                         \
  }
#define LIST(name, field, count, value) \
  API(name) {                           \
    static void *one[1];                \
    one[0] = &value;                    \
    a->field = (void *)one;             \
    a->count = 1;                       \
    return NULL;                        \
  }
#define NOTHING(name) \
  API(name) { return NULL; }

static void do_Error_Destroy(PJRT_Error_Destroy_Args *a) {}
static void do_Error_Message(PJRT_Error_Message_Args *a) {
  const object *e = (const object *)a->error;
  a->message = e->text;
  a->message_size = strlen(e->text);
}
NUMBER(Error_GetCode, code, PJRT_Error_Code_UNIMPLEMENTED)
NOTHING(Error_ForEachPayload)
NOTHING(Plugin_Initialize)
API(Plugin_Attributes) {
  static const int64_t current[3] = {1, 13, 0}, minimum[3] = {0, 9, 0};
  static const PJRT_NamedValue list[] = {
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
       .value_size = 3}};
  a->attributes = list;
  a->num_attributes = 2;
  return NULL;
}

NOTHING(Event_Destroy)
NUMBER(Event_IsReady, is_ready, true)
NOTHING(Event_Error)
NOTHING(Event_Await)
API(Event_OnReady) {
  a->callback(NULL, a->user_arg);
  return NULL;
}

GIVES(Client_Create, client, &client)
NOTHING(Client_Destroy)
TEXT(Client_PlatformName, platform_name, "tpu")
NUMBER(Client_ProcessIndex, process_index, 0)
TEXT(Client_PlatformVersion, platform_version, "empty")
LIST(Client_Devices, devices, num_devices, device)
LIST(Client_AddressableDevices, addressable_devices, num_addressable_devices,
     device)
GIVES(Client_LookupDevice, device, &device)
GIVES(Client_LookupAddressableDevice, addressable_device, &device)
LIST(Client_AddressableMemories, addressable_memories, num_addressable_memories,
     memory)
GIVES(Client_TopologyDescription, topology, &topology)
GIVES(Client_Compile, executable, &loaded)
API(Client_DefaultDeviceAssignment) {
  for (size_t i = 0; i < a->default_assignment_size; i++)
    ((int *)a->default_assignment)[i] = 0;
  return NULL;
}
API(Client_BufferFromHostBuffer) {
  a->done_with_host_buffer = (void *)&event;
  a->buffer = (void *)&buffer;
  return NULL;
}

GIVES(Device_GetDescription, device_description, &device)
NUMBER(Device_IsAddressable, is_addressable, true)
NUMBER(Device_LocalHardwareId, local_hardware_id, 0)
LIST(Device_AddressableMemories, memories, num_memories, memory)
GIVES(Device_DefaultMemory, memory, &memory)
static void drop(PJRT_Device_Attributes *attributes) {}
API(Device_GetAttributes) {
  a->attributes = NULL;
  a->num_attributes = 0;
  a->device_attributes = (void *)&device;
  a->attributes_deleter = drop;
  return NULL;
}
NUMBER(DeviceDescription_Id, id, 0)
NUMBER(DeviceDescription_ProcessIndex, process_index, 0)
API(DeviceDescription_Attributes) {
  static const int64_t coords[3];
  static const PJRT_NamedValue list[] = {
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
       .name = "coords",
       .name_size = 6,
       .type = PJRT_NamedValue_kInt64List,
       .int64_array_value = coords,
       .value_size = 3},
      {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
       .name = "core_on_chip",
       .name_size = 12,
       .type = PJRT_NamedValue_kInt64,
       .value_size = 1}};
  a->attributes = list;
  a->num_attributes = 2;
  return NULL;
}
TEXT(DeviceDescription_Kind, device_kind, "TPU v5")
TEXT(DeviceDescription_DebugString, debug_string, "empty")
TEXT(DeviceDescription_ToString, to_string, "empty")
NUMBER(Memory_Id, id, 0)
TEXT(Memory_Kind, kind, "device")
NUMBER(Memory_Kind_Id, kind_id, 1)
TEXT(Memory_DebugString, debug_string, "empty")
TEXT(Memory_ToString, to_string, "empty")
LIST(Memory_AddressableByDevices, devices, num_devices, device)
TEXT(TopologyDescription_PlatformName, platform_name, "tpu")
TEXT(TopologyDescription_PlatformVersion, platform_version, "empty")
LIST(TopologyDescription_GetDeviceDescriptions, descriptions, num_descriptions,
     device)
API(TopologyDescription_Attributes) {
  a->attributes = NULL;
  a->num_attributes = 0;
  return NULL;
}
NUMBER(TopologyDescription_Fingerprint, fingerprint, 0)

NOTHING(Executable_Destroy)
TEXT(Executable_Name, executable_name, "empty")
NUMBER(Executable_NumReplicas, num_replicas, 1)
NUMBER(Executable_NumPartitions, num_partitions, 1)
NUMBER(Executable_NumOutputs, num_outputs, 1)
TEXT(Executable_Fingerprint, executable_fingerprint, "empty")
API(Executable_OutputElementTypes) {
  static const PJRT_Buffer_Type types[1] = {PJRT_Buffer_Type_F32};
  a->output_types = types;
  a->num_output_types = 1;
  return NULL;
}
API(Executable_OutputDimensions) {
  static const size_t ranks[1] = {1};
  a->num_outputs = 1;
  a->dims = dims;
  a->dim_sizes = ranks;
  return NULL;
}
static const char *const kinds[1] = {"device"};
static const size_t kind_sizes[1] = {6};
API(Executable_OutputMemoryKinds) {
  a->num_outputs = 1;
  a->memory_kinds = kinds;
  a->memory_kind_sizes = kind_sizes;
  return NULL;
}
NOTHING(LoadedExecutable_Destroy)
NOTHING(LoadedExecutable_Delete)
NUMBER(LoadedExecutable_IsDeleted, is_deleted, false)
GIVES(LoadedExecutable_GetExecutable, executable, &executable)
LIST(LoadedExecutable_AddressableDevices, addressable_devices,
     num_addressable_devices, device)
API(LoadedExecutable_AddressableDeviceLogicalIds) {
  static PJRT_LogicalDeviceIds ids[1];
  a->addressable_device_logical_ids = ids;
  a->num_addressable_device_logical_ids = 1;
  return NULL;
}
static void keep_assignment(PJRT_DeviceAssignmentSerialized *s) {}
API(LoadedExecutable_GetDeviceAssignment) {
  // DeviceAssignmentProto: one replica and one partition, on device 0.
  static const char proto[] = "\x08\x01\x10\x01\x1a\x03\x0a\x01\x00";
  a->serialized_bytes = proto;
  a->serialized_bytes_size = sizeof proto - 1;
  a->serialized_device_assignment = (void *)&loaded;
  a->serialized_device_assignment_deleter = keep_assignment;
  return NULL;
}
TEXT(LoadedExecutable_Fingerprint, executable_fingerprint, "empty")
API(LoadedExecutable_Execute) {
  a->output_lists[0][0] = (void *)&buffer;
  if (a->device_complete_events) a->device_complete_events[0] = (void *)&event;
  return NULL;
}

NOTHING(Buffer_Destroy)
NOTHING(Buffer_Delete)
NUMBER(Buffer_IsDeleted, is_deleted, false)
NUMBER(Buffer_IsOnCpu, is_on_cpu, false)
NUMBER(Buffer_ElementType, type, PJRT_Buffer_Type_F32)
API(Buffer_Dimensions) {
  a->dims = dims;
  a->num_dims = 1;
  return NULL;
}
API(Buffer_UnpaddedDimensions) {
  a->unpadded_dims = dims;
  a->num_dims = 1;
  return NULL;
}
API(Buffer_DynamicDimensionIndices) {
  a->dynamic_dim_indices = NULL;
  a->num_dynamic_dims = 0;
  return NULL;
}
NUMBER(Buffer_OnDeviceSizeInBytes, on_device_size_in_bytes, sizeof data)
GIVES(Buffer_Device, device, &device)
GIVES(Buffer_Memory, memory, &memory)
GIVES(Buffer_ReadyEvent, event, &event)
NOTHING(Buffer_IncreaseExternalReferenceCount)
NOTHING(Buffer_DecreaseExternalReferenceCount)
API(Buffer_ToHostBuffer) {
  if (a->dst) memcpy(a->dst, data, sizeof data);
  a->dst_size = sizeof data;
  a->event = (void *)&event;
  return NULL;
}

// clang-format off
#define DONE(F)                                                               \
  F(Error_Destroy) F(Error_Message) F(Error_GetCode)                          \
  F(Error_ForEachPayload) F(Plugin_Initialize) F(Plugin_Attributes)           \
  F(Event_Destroy) F(Event_IsReady) F(Event_Error) F(Event_Await)             \
  F(Event_OnReady) F(Client_Create) F(Client_Destroy)                         \
  F(Client_PlatformName) F(Client_ProcessIndex) F(Client_PlatformVersion)     \
  F(Client_Devices) F(Client_AddressableDevices) F(Client_LookupDevice)       \
  F(Client_LookupAddressableDevice) F(Client_AddressableMemories)             \
  F(Client_TopologyDescription) F(Client_Compile)                             \
  F(Client_DefaultDeviceAssignment) F(Client_BufferFromHostBuffer)            \
  F(Device_GetDescription) F(Device_IsAddressable)                            \
  F(Device_LocalHardwareId) F(Device_AddressableMemories)                     \
  F(Device_DefaultMemory) F(Device_GetAttributes) F(DeviceDescription_Id)     \
  F(DeviceDescription_ProcessIndex) F(DeviceDescription_Attributes)           \
  F(DeviceDescription_Kind) F(DeviceDescription_DebugString)                  \
  F(DeviceDescription_ToString) F(Memory_Id) F(Memory_Kind)                   \
  F(Memory_Kind_Id) F(Memory_DebugString) F(Memory_ToString)                  \
  F(Memory_AddressableByDevices) F(TopologyDescription_PlatformName)          \
  F(TopologyDescription_PlatformVersion)                                      \
  F(TopologyDescription_GetDeviceDescriptions)                                \
  F(TopologyDescription_Attributes) F(TopologyDescription_Fingerprint)        \
  F(Executable_Destroy) F(Executable_Name) F(Executable_NumReplicas)          \
  F(Executable_NumPartitions) F(Executable_NumOutputs)                        \
  F(Executable_Fingerprint) F(Executable_OutputElementTypes)                  \
  F(Executable_OutputDimensions) F(Executable_OutputMemoryKinds)              \
  F(LoadedExecutable_Destroy) F(LoadedExecutable_Delete)                      \
  F(LoadedExecutable_IsDeleted) F(LoadedExecutable_GetExecutable)             \
  F(LoadedExecutable_AddressableDevices) F(LoadedExecutable_Fingerprint)      \
  F(LoadedExecutable_GetDeviceAssignment)                                     \
  F(LoadedExecutable_AddressableDeviceLogicalIds)                             \
  F(LoadedExecutable_Execute) F(Buffer_Destroy) F(Buffer_Delete)              \
  F(Buffer_IsDeleted) F(Buffer_IsOnCpu) F(Buffer_ElementType)                 \
  F(Buffer_Dimensions) F(Buffer_UnpaddedDimensions)                           \
  F(Buffer_DynamicDimensionIndices) F(Buffer_OnDeviceSizeInBytes)             \
  F(Buffer_Device) F(Buffer_Memory) F(Buffer_ReadyEvent)                      \
  F(Buffer_IncreaseExternalReferenceCount)                                    \
  F(Buffer_DecreaseExternalReferenceCount) F(Buffer_ToHostBuffer)
// clang-format on

// The rest says its name.
#define MISSING(name)                                     \
  static PJRT_Error *no_##name(name##_Args *a) {          \
    unavailable.text = "the empty plug-in has no " #name; \
    return (PJRT_Error *)&unavailable;                    \
  }
#define MISSING_ENTRY(name) .name = no_##name,
PJRT_API_FUNCTIONS_RETURNING_ERROR(MISSING)

static PJRT_Api api = {
    .struct_size = PJRT_Api_STRUCT_SIZE,
    .pjrt_api_version = {.struct_size = PJRT_Api_Version_STRUCT_SIZE,
                         .major_version = PJRT_API_MAJOR,
                         .minor_version = PJRT_API_MINOR},
    PJRT_API_FUNCTIONS_RETURNING_ERROR(MISSING_ENTRY)};

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void) {
#define ENTRY(name) api.PJRT_##name = do_##name;
  DONE(ENTRY)
  return &api;
}
