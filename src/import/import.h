// StableHLO, VHLO (0.9 and newer) and what JAX sends beside it (chlo
// composites, Shardy, custom calls) into hlo; compile options out of their
// protobuf.
//
// Memory: what is made lives in `a` and borrows nothing of the tree but what a
// line says.
// Threads: any, on arenas of their own.
//
// Errors: only what a line says, and RESOURCE_EXHAUSTED.
#ifndef ATOLL_IMPORT_IMPORT_H_
#define ATOLL_IMPORT_IMPORT_H_

#include "hlo/hlo.h"
#include "mlir/mlir.h"

// The entry is the public function `main`. Functions stay functions, calls stay
// CALL by name; a composite becomes the op of its name where hlo has one (its
// version and attributes suiting), else COMPOSITE with its decomposition's
// name. Errors name the op, its source line, and what was expected:
// INVALID_ARGUMENT; UNIMPLEMENTED for ops, versions and types that Atoll lacks,
// by name.
at_status at_import(const at_mmodule *m, at_arena *a, at_module **out);

// A location of the program as at_import gives it to nodes; NULL: it says
// nothing. `memo` keeps what was read (at_mloc -> at_loc) and says where it
// lives.
at_status at_import_loc(const at_mmodule *m, const at_mloc *l, at_map *memo,
                        const at_loc **out);

// What a program's caller asks for: CompileOptionsProto, decoded.
typedef struct at_compile_request {
  // The grid of devices; device_ids is row-major, replica by replica.
  int64_t num_replicas, num_partitions;  // >= 1
  const int64_t *device_ids;  // num_replicas x num_partitions, or NULL
  // Flags as XLA has them.
  bool use_spmd_partitioning, use_shardy;
  bool compile_portable_executable;
  bool parameter_is_tupled;
  // One for each result and parameter, or a single one for all; none: as if
  // false.
  const bool *allow_spmd_sharding_propagation_to_output;
  uint32_t num_allow_output;
  const bool *allow_spmd_sharding_propagation_to_parameters;
  uint32_t num_allow_parameters;
  const at_str *env_options;  // key, value pairs (2 * n): env_option_overrides
  uint32_t num_env_options;
  int64_t device_ordinal;  // -1: unset
} at_compile_request;
// INVALID_ARGUMENT on malformed bytes; unknown fields are skipped.
at_status at_compile_request_read(at_bytes proto, at_arena *a,
                                  at_compile_request *out);

// Markdown: each VHLO op and version, the hlo op it becomes.
at_status at_import_ops_doc(at_strbuf *out);

#endif
