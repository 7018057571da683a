"""Writes pjrt_abi.h: the C layout of the PJRT API, as typed structs.

usage: gen_pjrt_abi.py OUTPUT

The layout (field order, widths, enumerators, struct sizes, offsets) comes from
the package pypjrt, which carries it as ctypes classes that were checked against
a C compiler. ctypes knows pointers only as void*; what they point to is added
here, by field name. Every offset becomes a static assertion in the header, so a
wrong table cannot compile.
"""

import ctypes
import re
import sys
from pathlib import Path

from pypjrt._abi import pjrt_0_114 as abi

SCALARS = {
    "c_ulong": "size_t", "c_long": "int64_t", "c_longlong": "int64_t",
    "c_int": "int32_t", "c_uint": "uint32_t", "c_short": "int16_t",
    "c_ushort": "uint16_t", "c_byte": "int8_t", "c_ubyte": "uint8_t",
    "c_bool": "bool", "c_float": "float", "c_double": "double",
    "c_char_p": "const char *", "c_void_p": "void *", "c_ulonglong": "uint64_t",
}

OPAQUE = """PJRT_Error PJRT_Event PJRT_Client PJRT_Device PJRT_Memory
PJRT_DeviceDescription PJRT_TopologyDescription PJRT_Executable
PJRT_LoadedExecutable PJRT_Buffer PJRT_FulfillAliasBufferCallback
PJRT_AsyncHostToDeviceTransferManager PJRT_AsyncTrackingEvent
PJRT_ExecuteContext PJRT_CopyToDeviceStream PJRT_RawBuffer
PJRT_MemoryDescription PJRT_Device_Attributes PJRT_SerializedExecutable
PJRT_SerializedCompileOptions PJRT_DeviceAssignmentSerialized
PJRT_SerializedTopology PJRT_Layouts_MemoryLayout PJRT_Layouts_SerializedLayout
PJRT_RuntimeAbiVersion PJRT_ExecutableAbiVersion
PJRT_SerializedProto PJRT_DeviceEventPromise PLUGIN_Profiler
PLUGIN_Profiler_Error PLUGIN_Profiler_ConsumeResult""".split()

# Callback types that the API names or that its fields imply.
CALLBACKS = """
typedef PJRT_Error *(*PJRT_CallbackError)(PJRT_Error_Code code,
                                          const char *message,
                                          size_t message_size);
typedef void (*PJRT_Event_OnReadyCallback)(PJRT_Error *error, void *user_arg);
typedef PJRT_Error *(*PJRT_SendCallback)(PJRT_Chunk *chunk,
                                         PJRT_CallbackError *callback_error,
                                         size_t total_size_in_bytes, bool done,
                                         void *user_arg);
typedef void (*PJRT_RecvCallback)(PJRT_CopyToDeviceStream *stream,
                                  void *user_arg);
typedef void (*PJRT_PayloadVisitor)(const char *key, size_t key_size,
                                    const char *value, size_t value_size,
                                    void *user_arg);
typedef void (*PJRT_ViewDeleteCallback)(void *device_buffer_ptr,
                                        void *user_arg);
typedef void (*PJRT_ChunkDeleter)(void *data, void *deleter_arg);
typedef PJRT_Error *(*PJRT_KeyValueGetCallback)(
    PJRT_KeyValueGetCallback_Args *args);
typedef PJRT_Error *(*PJRT_KeyValuePutCallback)(
    PJRT_KeyValuePutCallback_Args *args);
"""

# What a pointer field points to. Key: "Struct.field" or "field".
POINTERS = {
    "extension_start": "PJRT_Extension_Base *", "next": "PJRT_Extension_Base *",
    "error": "PJRT_Error *", "event": "PJRT_Event *", "client": "PJRT_Client *",
    "device": "PJRT_Device *", "dst_device": "PJRT_Device *",
    "device_out": "PJRT_Device *", "execute_device": "PJRT_Device *",
    "addressable_device": "PJRT_Device *",
    "devices": "PJRT_Device *const *",
    "addressable_devices": "PJRT_Device *const *",
    "memory": "PJRT_Memory *", "dst_memory": "PJRT_Memory *",
    "memory_space": "PJRT_Memory *",
    "memories": "PJRT_Memory *const *",
    "addressable_memories": "PJRT_Memory *const *",
    "device_description": "PJRT_DeviceDescription *",
    "descriptions": "PJRT_DeviceDescription *const *",
    "topology": "PJRT_TopologyDescription *",
    "topology_description": "PJRT_TopologyDescription *",
    "executable": "PJRT_Executable *",
    "loaded_executable": "PJRT_LoadedExecutable *",
    "buffer": "PJRT_Buffer *", "src": "PJRT_Buffer *",
    "dst_buffer": "PJRT_Buffer *", "out_buffer": "PJRT_Buffer *",
    "buffer_out": "PJRT_Buffer *", "alias_buffer": "PJRT_Buffer *",
    "raw_buffer": "PJRT_RawBuffer *",
    "transfer_manager": "PJRT_AsyncHostToDeviceTransferManager *",
    "fulfill_alias_buffer_cb": "PJRT_FulfillAliasBufferCallback *",
    "stream": "PJRT_CopyToDeviceStream *", "chunk": "PJRT_Chunk *",
    "done_with_host_buffer": "PJRT_Event *",
    "done_with_h2d_transfer": "PJRT_Event *",
    "transfer_complete": "PJRT_Event *",
    "device_complete_events": "PJRT_Event **",
    "context": "PJRT_ExecuteContext *", "options": "PJRT_ExecuteOptions *",
    "program": "PJRT_Program *", "data": "const void *", "dst": "void *",
    "dims": "const int64_t *", "unpadded_dims": "const int64_t *",
    "shape_dims": "const int64_t *", "byte_strides": "const int64_t *",
    "minor_to_major": "const int64_t *", "tile_dims": "const int64_t *",
    "tile_dim_sizes": "const size_t *", "dim_sizes": "const size_t *",
    "dynamic_dim_indices": "const size_t *",
    "non_donatable_input_indices": "const int64_t *",
    "task_ids": "int32_t *", "incarnation_ids": "int64_t *",
    "default_assignment": "int32_t *",
    "memory_space_kind_ids": "const int32_t *",
    "output_types": "const PJRT_Buffer_Type *",
    "device_layout": "PJRT_Buffer_MemoryLayout *",
    "shape_layout": "PJRT_Buffer_MemoryLayout *",
    "host_layout": "PJRT_Buffer_MemoryLayout *",
    "device_layouts": "PJRT_Buffer_MemoryLayout **",
    "shape_specs": "PJRT_ShapeSpec *",
    "create_options": "const PJRT_NamedValue *",
    "attributes": "const PJRT_NamedValue *",
    "properties": "const PJRT_NamedValue *",
    "transfer_metadata": "const PJRT_NamedValue *",
    "int64_array_value": "const int64_t *", "string_value": "const char *",
    "memory_kinds": "const char *const *",
    "memory_kind_sizes": "const size_t *",
    "shardings": "const char *const *", "sharding_sizes": "const size_t *",
    "memory_descriptions": "PJRT_MemoryDescription *const *",
    "memory_description": "PJRT_MemoryDescription *",
    "argument_lists": "PJRT_Buffer *const *const *",
    "output_lists": "PJRT_Buffer **const *",
    "send_callbacks": "PJRT_SendCallbackInfo **",
    "recv_callbacks": "PJRT_RecvCallbackInfo **",
    "send_callback": "PJRT_SendCallback", "recv_callback": "PJRT_RecvCallback",
    "serialized_executable_deleter": "void (*{})(PJRT_SerializedExecutable *)",
    "serialized_compile_options_deleter":
        "void (*{})(PJRT_SerializedCompileOptions *)",
    "serialized_device_assignment_deleter":
        "void (*{})(PJRT_DeviceAssignmentSerialized *)",
    "serialized_topology_deleter": "void (*{})(PJRT_SerializedTopology *)",
    "serialized_layout_deleter": "void (*{})(PJRT_Layouts_SerializedLayout *)",
    "serialized_shape_deleter": "void (*{})(const char *)",
    "serialized_proto_deleter": "void (*{})(PJRT_SerializedProto *)",
    "attributes_deleter": "void (*{})(PJRT_Device_Attributes *)",
    "device_attributes": "PJRT_Device_Attributes *",
    "serialized_executable": "PJRT_SerializedExecutable *",
    "serialized_compile_options": "PJRT_SerializedCompileOptions *",
    "serialized_device_assignment": "PJRT_DeviceAssignmentSerialized *",
    "serialized_layout": "PJRT_Layouts_SerializedLayout *",
    "serialized_topology": "PJRT_SerializedTopology *",
    "serialized_proto_holder": "PJRT_SerializedProto *",
    "serialized_proto": "const char *",
    "layout": "PJRT_Layouts_MemoryLayout *",
    "layouts": "PJRT_Layouts_MemoryLayout *const *",
    "callback_error": "PJRT_CallbackError *",
    "on_delete_callback": "PJRT_ViewDeleteCallback",
    "deleter": "PJRT_ChunkDeleter", "visitor": "PJRT_PayloadVisitor",
    "dependency_ready_callback":
        "void (*{})(PJRT_Buffer_DonateWithControlDependency_Callback_Args *)",
    "future_ready_callback":
        "void (*{})(PJRT_Buffer_CopyRawToHostFuture_Callback_Args *)",
    "kv_get_callback": "PJRT_KeyValueGetCallback",
    "kv_put_callback": "PJRT_KeyValuePutCallback",
    "value_deleter_callback": "void (*{})(char *)",
    "process_infos": "PJRT_ProcessInfo *",
    "base": "PJRT_Extension_Base",
    "profiler_api": "PLUGIN_Profiler_Api *",
    "profiler": "PLUGIN_Profiler *",
    "consume_result": "PLUGIN_Profiler_ConsumeResult *",
    "result": "PLUGIN_Profiler_ConsumeResult *",
    "addressable_device_logical_ids": "PJRT_LogicalDeviceIds *",
    "load_options": "PJRT_LoadOptions *",
    "type_info": "PJRT_FFI_Type_Info *",
    "dtor": "void (*{})(PJRT_XlaTransform_Callbacks *)",
    "transform_hlo_module":
        "void (*{})(PJRT_XlaTransform_Callbacks *, PJRT_XlaTransform_Args *)",
    "cleanup_fn": "void (*{})(void *)",
    # The same field name with another meaning.
    "PJRT_Register_Xla_Transform_Args.callbacks":
        "PJRT_XlaTransform_Callbacks *",
    "PJRT_Clear_Xla_Transform_Args.callbacks": "PJRT_XlaTransform_Callbacks *",
    "PJRT_XlaTransform_string.data": "const char *",
    "PJRT_XlaTransform_version_and_error.data": "void *",
    "PJRT_Client_Compile_Args.executable": "PJRT_LoadedExecutable *",
    "PJRT_KeyValueGetCallback_Args.value": "char *",
    "PJRT_Chunk.data": "void *", "PJRT_Client_DmaMap_Args.data": "void *",
    "PJRT_Client_DmaUnmap_Args.data": "void *",
    "PJRT_FFI_UserData.data": "void *",
    "PJRT_FFI_Type_Info.deleter": "void (*{})(void *)",
    "PJRT_AsyncTrackingEvent_Destroy_Args.event": "PJRT_AsyncTrackingEvent *",
    "PJRT_Device_CreateAsyncTrackingEvent_Args.event":
        "PJRT_AsyncTrackingEvent *",
    "PJRT_Event_OnReady_Args.callback": "PJRT_Event_OnReadyCallback",
    "PJRT_Client_CreateViewOfDeviceBuffer_Args.layout":
        "PJRT_Buffer_MemoryLayout *",
    "PJRT_Buffer_GetMemoryLayout_Args.layout": "PJRT_Buffer_MemoryLayout",
    "PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace_Args.layout":
        "PJRT_Buffer_MemoryLayout *",
    "PJRT_Executable_DeserializeAndLoad_Args.serialized_executable":
        "const char *",
    "PJRT_TopologyDescription_Deserialize_Args.serialized_topology":
        "const char *",
    "PJRT_Error_Message_Args.error": "const PJRT_Error *",
    "PJRT_Program.code": "char *",
    "PJRT_RawBuffer_CopyRawHostToDevice_Args.src": "const void *",
    "PLUGIN_Profiler_CollectData_Args.buffer": "uint8_t *",
    "PLUGIN_Profiler_Create_Args.options": "const char *",
    "PLUGIN_Profiler_Serialize_Args.serialized_bytes": "const char *",
    "PLUGIN_Profiler_Api.priv": "void *",
}
# Fields that are C strings by their name's ending or their name.
STRINGS = re.compile(
    r"^(name|code|format|kind|.*_name|.*_version_string|message|.*_message|key|"
    r"value|debug_string|to_string|device_kind|platform_version|description|"
    r"compile_options|serialized_bytes|.*_fingerprint|call_location|"
    r"computation_origin|serialized_shape|"
    r"overridden_serialized_compile_options)$")
# uint fields that hold an enum.
ENUMS = {
    "error_code": "PJRT_Error_Code", "status_code": "PJRT_Error_Code",
    "element_type": "PJRT_Buffer_Type",
    "shape_element_type": "PJRT_Buffer_Type",
    "host_buffer_semantics": "PJRT_HostBufferSemantics",
    "PJRT_Error_GetCode_Args.code": "PJRT_Error_Code",
    "PJRT_Buffer_ElementType_Args.type": "PJRT_Buffer_Type",
    "PJRT_Client_BufferFromHostBuffer_Args.type": "PJRT_Buffer_Type",
    "PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args.type": "PJRT_Buffer_Type",
    "PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args.type": "PJRT_Buffer_Type",
    "PJRT_NamedValue.type": "PJRT_NamedValue_Type",
    "PJRT_Buffer_MemoryLayout.type": "PJRT_Buffer_MemoryLayout_Type",
    "PJRT_Extension_Base.type": "PJRT_Extension_Type",
    "PJRT_ProcessInfo.state": "PJRT_ProcessState",
    "PJRT_Register_Xla_Transform_Args.stage": "PJRT_XlaTransform_PipelineStage",
    "PJRT_Clear_Xla_Transform_Args.stage": "PJRT_XlaTransform_PipelineStage",
}
# Members of extension tables that are functions: field -> Args struct.
EXTENSION_FUNCTIONS = {
    "PJRT_FFI_Extension.type_register": "PJRT_FFI_Type_Register_Args",
    "PJRT_FFI_Extension.user_data_add": "PJRT_FFI_UserData_Add_Args",
    "PJRT_FFI_Extension.register_handler": "PJRT_FFI_Register_Handler_Args",
    "PJRT_MemoryDescriptions_Extension.PJRT_DeviceDescription_MemoryDescriptions":
        "PJRT_DeviceDescription_MemoryDescriptions_Args",
    "PJRT_AbiVersion_Extension.client_runtime_abi_version":
        "PJRT_Client_RuntimeAbiVersion_Args",
    "PJRT_AbiVersion_Extension.executable_get_abi_version":
        "PJRT_Executable_GetAbiVersion_Args",
    "PJRT_Xla_Transform_Extension.register_xla_transform":
        "PJRT_Register_Xla_Transform_Args",
    "PJRT_Xla_Transform_Extension.clear_xla_transform":
        "PJRT_Clear_Xla_Transform_Args",
    "PJRT_Stream_Extension.get_stream":
        "PJRT_Get_Stream_For_External_Ready_Events_Args",
    "PJRT_Stream_Extension.wait_stream":
        "PJRT_Wait_Until_Buffer_Ready_On_Stream_Args",
}
VOID_FUNCTIONS = {"PJRT_Error_Destroy", "PJRT_Error_Message"}


def is_aggregate(t):
  return isinstance(t, type) and issubclass(
      t, (ctypes.Structure, ctypes.Union))


def function_args(struct, field):
  """The Args struct of a function-table member, or None."""
  args = EXTENSION_FUNCTIONS.get(f"{struct}.{field}")
  if args:
    return args
  for name in (f"{field}_Args", "PJRT_" + snake_to_camel(field) + "_Args"):
    if hasattr(abi, name):
      return name
  prefix = {"PLUGIN_Profiler_Api": "PLUGIN_Profiler_",
            "PJRT_AbiVersion_Extension": "PJRT_"}.get(struct)
  if prefix:
    name = prefix + snake_to_camel(field) + "_Args"
    if hasattr(abi, name):
      return name
    for head in ("RuntimeAbiVersion", "ExecutableAbiVersion", "Error",
                 "ConsumeResult"):
      flat = snake_to_camel(field)
      if flat.startswith(head):
        name = f"{prefix}{head}_{flat[len(head):]}_Args"
        if hasattr(abi, name):
          return name
  return None


def snake_to_camel(s):
  return "".join(w[:1].upper() + w[1:] for w in s.split("_"))


def is_table(struct):
  return (struct == "PJRT_Api" or struct.endswith("_Extension")
          or struct == "PLUGIN_Profiler_Api")


def declare(ctype, spelled):
  sep = "" if ctype.endswith("*") else " "
  return f"{ctype}{sep}{spelled}"


def field_text(struct, name, t):
  if isinstance(t, type) and issubclass(t, ctypes.Array):
    return field_text(struct, f"{name}[{t._length_}]", t._type_)
  if is_aggregate(t):
    spelled = "" if name.startswith("_anon") else name
    if not spelled:  # an anonymous union: its members in place
      members = " ".join(field_text(struct, f[0], f[1]) + ";"
                         for f in t._fields_)
      return f"union {{ {members} }}"
    return f"{t.__name__} {spelled}"
  scalar = SCALARS[t.__name__]
  if t is ctypes.c_void_p:
    if is_table(struct):
      args = function_args(struct, name)
      if args:
        ret = "void " if name in VOID_FUNCTIONS else "PJRT_Error *"
        if struct == "PLUGIN_Profiler_Api":
          ret = ("void " if name in ("error_destroy", "error_message")
                 else "PLUGIN_Profiler_Error *")
        return f"{ret}(*{name})({args} *)"
    known = POINTERS.get(f"{struct}.{name}") or POINTERS.get(name)
    if known is None and "AbiVersion" in struct:
      if name in ("abi_version", "other_abi_version", "executable_abi_version"):
        runtime = "Runtime" in struct and name != "executable_abi_version"
        known = ("PJRT_RuntimeAbiVersion *" if runtime
                 else "PJRT_ExecutableAbiVersion *")
    if struct.startswith("PLUGIN_Profiler") and name == "error":
      known = "PLUGIN_Profiler_Error *"
    if (struct.startswith("PJRT_LoadedExecutable") and name == "executable"
        and "GetExecutable" not in struct):
      known = "PJRT_LoadedExecutable *"
    if struct.startswith("PJRT_RawBuffer") and name == "buffer":
      known = ("PJRT_Buffer *" if "CreateRawAlias" in struct
               else "PJRT_RawBuffer *")
    if known is None and STRINGS.match(name):
      known = "const char *"
    known = known or "void *"
    if "{}" in known:
      return known.format(name)
    return declare(known, name)
  if t is ctypes.c_uint32 or scalar == "uint32_t":
    enum = ENUMS.get(f"{struct}.{name}") or ENUMS.get(name)
    if enum:
      return f"{enum} {name}"
  return declare(scalar, name)


def enums():
  """(name, [(enumerator, value)]) of each enum, from the module's sections."""
  text = Path(abi.__file__).read_text()
  found = re.findall(r"^# enum (\w+)\n((?:\w+ = -?\d+\n)+)", text, re.M)
  for name, body in found:
    if (not name.endswith("_STRUCT_SIZE")
        and name.startswith(("PJRT_", "PLUGIN_"))):
      yield name, re.findall(r"^(\w+) = (-?\d+)$", body, re.M)


def list_macro(macro, names):
  body = [f"  F({n}) \\" for n in names[:-1]] + [f"  F({names[-1]})"]
  return [f"#define {macro}(F) \\"] + body


def main(path):
  out = ["// Generated by tools/gen_pjrt_abi.py from the package pypjrt. Do not "
         "edit.",
         "#ifndef ATOLL_PJRT_ABI_H_", "#define ATOLL_PJRT_ABI_H_", "",
         "#include <stdbool.h>", "#include <stddef.h>", "#include <stdint.h>",
         ""]
  out.append(f"#define PJRT_API_MAJOR {abi.PJRT_API_MAJOR}")
  out.append(f"#define PJRT_API_MINOR {abi.PJRT_API_MINOR}")
  out.append("")
  for name, values in enums():
    body = ", ".join(f"{n} = {v}" for n, v in values)
    out.append(f"typedef enum {name} {{ {body} }} {name};")
  out.append("")
  for name in OPAQUE:
    out.append(f"typedef struct {name} {name};")

  classes = {n: c for n, c in vars(abi).items()
             if is_aggregate(c) and c.__module__ == abi.__name__
             and n.startswith(("PJRT_", "PLUGIN_"))
             and n not in OPAQUE and getattr(c, "_fields_", None)}
  for name, c in classes.items():
    kind = "union" if issubclass(c, ctypes.Union) else "struct"
    out.append(f"typedef {kind} {name} {name};")
  out.append(CALLBACKS)

  done = set()

  def emit(name, c):
    if name in done:
      return
    done.add(name)
    for f in c._fields_:
      t = f[1]
      while isinstance(t, type) and issubclass(t, ctypes.Array):
        t = t._type_
      if is_aggregate(t):
        parts = [t] if t.__name__ in classes else [x[1] for x in t._fields_]
        for part in parts:
          if is_aggregate(part) and part.__name__ in classes:
            emit(part.__name__, part)
    kind = "union" if issubclass(c, ctypes.Union) else "struct"
    lines = "\n".join(f"  {field_text(name, f[0], f[1])};" for f in c._fields_)
    out.append(f"{kind} {name} {{\n{lines}\n}};")
    for field, offset in getattr(abi, f"_OFFSETS_{name}", ()):
      if not field.startswith("_anon"):
        out.append(f"_Static_assert(offsetof({name}, {field}) == {offset}, "
                   f'"{name}.{field}");')

  for name, c in classes.items():
    emit(name, c)
  out.append("")
  for name, value in vars(abi).items():
    if (name.endswith("_STRUCT_SIZE") and isinstance(value, int)
        and name.startswith(("PJRT_", "PLUGIN_"))):
      out.append(f"#define {name} {value}")
  out.append("")
  names = list(abi.SLOT)
  out.append("// F(name): one per function of the table, in its order.")
  out += list_macro("PJRT_API_FUNCTIONS", names)
  out.append("// The same without those that return nothing.")
  out += list_macro("PJRT_API_FUNCTIONS_RETURNING_ERROR",
                    [n for n in names if n not in VOID_FUNCTIONS])
  out += ["", "#endif", ""]
  target = Path(path)
  target.parent.mkdir(parents=True, exist_ok=True)
  text = "\n".join(out)
  if not target.exists() or target.read_text() != text:
    target.write_text(text)


if __name__ == "__main__":
  if len(sys.argv) != 2:
    sys.exit(__doc__)
  main(sys.argv[1])
