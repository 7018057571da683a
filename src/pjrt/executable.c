// Executables: what a compiled program says of itself.
#include <stdlib.h>

#include "pjrt/pjrt_internal.h"

#define NO_MEMORY() AT_FAIL(AT_RESOURCE_EXHAUSTED, "out of host memory")

// Takes one reference to the program; releases it on failure.
static at_status executable_make(at_pjrt_program *p, PJRT_Executable **out) {
  PJRT_Executable *e = calloc(1, sizeof *e);
  if (!e) {
    at_pjrt_program_release(p);
    return NO_MEMORY();
  }
  e->program = p;
  *out = e;
  return AT_OK;
}

// For a topology, without a client: for programs that are compiled ahead of
// time and loaded elsewhere.
AT_API(Compile) {
  AT_ARGS(PJRT_Compile_Args);
  AT_HANDLE(a->topology);
  at_pjrt_program *p;
  AT_PTRY(at_pjrt_compile(
      a->program,
      (at_bytes){(const uint8_t *)a->compile_options, a->compile_options_size},
      a->topology, &p));
  return at_pjrt_error(executable_make(p, &a->executable));
}

// A handle of the same program, which outlives the loaded one.
AT_API(LoadedExecutable_GetExecutable) {
  AT_ARGS(PJRT_LoadedExecutable_GetExecutable_Args);
  AT_HANDLE(a->loaded_executable);
  return at_pjrt_error(executable_make(
      at_pjrt_program_retain(a->loaded_executable->program), &a->executable));
}

AT_API(Executable_Destroy) {
  AT_ARGS(PJRT_Executable_Destroy_Args);
  if (!a->executable) return NULL;
  at_pjrt_program_release(a->executable->program);
  free(a->executable);
  return NULL;
}

AT_API(Executable_Name) {
  AT_ARGS(PJRT_Executable_Name_Args);
  AT_HANDLE(a->executable);
  const at_pjrt_program *p = a->executable->program;
  a->executable_name = at_pjrt_program_string(p, p->header->name);
  a->executable_name_size = strlen(a->executable_name);
  return NULL;
}

// Of the compile options or their device assignment, at least 1.
AT_API(Executable_NumReplicas) {
  AT_ARGS(PJRT_Executable_NumReplicas_Args);
  AT_HANDLE(a->executable);
  a->num_replicas = a->executable->program->parsed.num_replicas;
  return NULL;
}

AT_API(Executable_NumPartitions) {
  AT_ARGS(PJRT_Executable_NumPartitions_Args);
  AT_HANDLE(a->executable);
  a->num_partitions = a->executable->program->parsed.num_partitions;
  return NULL;
}

AT_API(Executable_NumOutputs) {
  AT_ARGS(PJRT_Executable_NumOutputs_Args);
  AT_HANDLE(a->executable);
  a->num_outputs = a->executable->program->num_outputs;
  return NULL;
}

// Machine code of this host's CPU, which is what runs.
AT_API(Executable_SizeOfGeneratedCodeInBytes) {
  AT_ARGS(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args);
  AT_HANDLE(a->executable);
  a->size_in_bytes = (int64_t)a->executable->program->header->code_bytes;
  return NULL;
}

// Figures that the compiler has counted (flops, bytes accessed), borrowed from
// the program.
AT_API(Executable_GetCostAnalysis) {
  AT_ARGS(PJRT_Executable_GetCostAnalysis_Args);
  AT_HANDLE(a->executable);
  a->properties = a->executable->program->properties;
  a->num_properties = a->executable->program->num_properties;
  return NULL;
}

// Bytes in the device's memory and in the host's. The peak counts arguments,
// results and temporaries as if they were all there at once; what is aliased
// counts once.
AT_API(Executable_GetCompiledMemoryStats) {
  AT_ARGS_UP_TO(PJRT_Executable_GetCompiledMemoryStats_Args,
                host_temp_size_in_bytes);
  AT_HANDLE(a->executable);
  const at_pjrt_program *p = a->executable->program;
  const at_xheader *h = p->header;
  a->generated_code_size_in_bytes = (int64_t)h->code_bytes;
  a->argument_size_in_bytes = (int64_t)h->hbm_argument_bytes;
  a->output_size_in_bytes = (int64_t)h->hbm_output_bytes;
  a->alias_size_in_bytes = (int64_t)h->hbm_alias_bytes;
  a->temp_size_in_bytes = (int64_t)(h->hbm_temp_bytes + h->sparse_bytes);
  a->host_generated_code_size_in_bytes = 0;
  a->host_argument_size_in_bytes = (int64_t)p->host_input_bytes;
  a->host_output_size_in_bytes = (int64_t)p->host_output_bytes;
  a->host_alias_size_in_bytes = 0;
  a->host_temp_size_in_bytes = 0;
  if (AT_HAS(PJRT_Executable_GetCompiledMemoryStats_Args, peak_memory_in_bytes))
    a->peak_memory_in_bytes = (int64_t)p->device_bytes;
  if (AT_HAS(PJRT_Executable_GetCompiledMemoryStats_Args, total_size_in_bytes))
    a->total_size_in_bytes = (int64_t)(h->code_bytes + p->device_bytes);
  return NULL;
}

// One for each result of one device.
AT_API(Executable_OutputElementTypes) {
  AT_ARGS(PJRT_Executable_OutputElementTypes_Args);
  AT_HANDLE(a->executable);
  a->output_types = a->executable->program->output_types;
  a->num_output_types = a->executable->program->num_outputs;
  return NULL;
}

// The dimensions of all results in one list, dim_sizes[i] of them for result i.
AT_API(Executable_OutputDimensions) {
  AT_ARGS(PJRT_Executable_OutputDimensions_Args);
  AT_HANDLE(a->executable);
  a->num_outputs = a->executable->program->num_outputs;
  a->dims = a->executable->program->output_dims;
  a->dim_sizes = a->executable->program->output_ranks;
  return NULL;
}

// Names of memory kinds, borrowed from the program.
AT_API(Executable_OutputMemoryKinds) {
  AT_ARGS(PJRT_Executable_OutputMemoryKinds_Args);
  AT_HANDLE(a->executable);
  a->num_outputs = a->executable->program->num_outputs;
  a->memory_kinds = a->executable->program->output_kinds;
  a->memory_kind_sizes = a->executable->program->output_kind_sizes;
  return NULL;
}

AT_API(Executable_ParameterMemoryKinds) {
  AT_ARGS(PJRT_Executable_ParameterMemoryKinds_Args);
  AT_HANDLE(a->executable);
  a->num_parameters = a->executable->program->num_inputs;
  a->memory_kinds = a->executable->program->input_kinds;
  a->memory_kind_sizes = a->executable->program->input_kind_sizes;
  return NULL;
}

// Clients accept MLIR or an HLO proto here and turn either into HLO text.
AT_API(Executable_OptimizedProgram) {
  AT_ARGS(PJRT_Executable_OptimizedProgram_Args);
  AT_HANDLE(a->executable);
  AT_HANDLE(a->program);
  if (a->program->struct_size < PJRT_Program_STRUCT_SIZE)
    return at_pjrt_bad_args("PJRT_Program", a->program, a->program->struct_size,
                            PJRT_Program_STRUCT_SIZE);
  const char *format;
  at_str text = at_pjrt_program_text(a->executable->program, &format);
  a->program->format = format;
  a->program->format_size = strlen(format);
  if (!a->program->code) {
    a->program->code_size = text.len;
    return NULL;
  }
  if (a->program->code_size < text.len)
    return AT_PFAIL(AT_INVALID_ARGUMENT,
                    "code_size is %zu, the program needs %zu",
                    a->program->code_size, text.len);
  memcpy(a->program->code, text.ptr, text.len);
  a->program->code_size = text.len;
  return NULL;
}

// 32 hexadecimal digits; programs with one fingerprint are one program.
AT_API(Executable_Fingerprint) {
  AT_ARGS(PJRT_Executable_Fingerprint_Args);
  AT_HANDLE(a->executable);
  a->executable_fingerprint = a->executable->program->fingerprint;
  a->executable_fingerprint_size = 32;
  return NULL;
}

// The same as its executable's.
AT_API(LoadedExecutable_Fingerprint) {
  AT_ARGS(PJRT_LoadedExecutable_Fingerprint_Args);
  AT_HANDLE(a->executable);
  a->executable_fingerprint = a->executable->program->fingerprint;
  a->executable_fingerprint_size = 32;
  return NULL;
}

// The bytes that the program was compiled with, as they came.
AT_API(Executable_GetCompileOptions) {
  AT_ARGS(PJRT_Executable_GetCompileOptions_Args);
  AT_HANDLE(a->executable);
  at_bytes o = a->executable->program->options;
  at_pjrt_blob *b = at_pjrt_blob_copy(o.ptr, o.len);
  if (!b) return at_pjrt_error(NO_MEMORY());
  a->serialized_bytes = b->bytes;
  a->serialized_bytes_size = b->size;
  a->serialized_compile_options = (PJRT_SerializedCompileOptions *)b;
  a->serialized_compile_options_deleter =
      (void (*)(PJRT_SerializedCompileOptions *))free;
  return NULL;
}
