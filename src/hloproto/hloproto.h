// HloModuleProto, XLA's own serialised programs, into hlo: what clients send in
// the formats "hlo" and "hlo_with_config", and what compilers dump.
//
// Errors: INVALID_ARGUMENT, UNIMPLEMENTED and RESOURCE_EXHAUSTED; writing fails
// for want of memory alone.
// Threads: any, on arenas of their own.
// Use: at_hloproto_is tells whether a file is one, at_hloproto_read makes a
// graph of it, at_hloproto_write a proto of a graph.
#ifndef ATOLL_HLOPROTO_HLOPROTO_H_
#define ATOLL_HLOPROTO_HLOPROTO_H_

#include "hlo/hlo.h"

// The message that the bytes are. UNKNOWN: a client's file; the reader looks.
typedef enum at_hloproto_form {
  AT_HLOPROTO_UNKNOWN,
  AT_HLOPROTO_MODULE,       // HloModuleProto
  AT_HLOPROTO_WITH_CONFIG,  // HloModuleProtoWithConfig
  AT_HLOPROTO_DUMP          // HloProto: a module and its buffers
} at_hloproto_form;

// Whether the bytes look like one of these messages: fields from beginning to
// end, with a module's computations where they belong. Texts and MLIR bytecode
// do not.
bool at_hloproto_is(at_bytes b);

// The module as a verified graph, in `a`. Fusions and called computations are
// functions, bodies of loops and reductions are regions, tuples are their
// leaves. Layouts of the entry's parameters and results, donation, shardings
// and source lines go over; layouts inside the program only say what a
// `bitcast` means. Constants are copied. The device counts are those of the
// configuration where there is one, else those that the shardings speak of.
// A module that XLA has partitioned already is one device's program: its
// shardings, which speak of the whole, are dropped.
// INVALID_ARGUMENT names the instruction, its source line and what was
// expected; UNIMPLEMENTED names opcodes, types and forms that Atoll lacks.
at_status at_hloproto_read(at_bytes b, at_hloproto_form form, at_arena *a,
                           at_module **out);

// A temporary: `name` is the instruction that makes it.
typedef struct at_hloproto_temp {
  at_value value;
  const char *name;
  uint64_t bytes, offset;
  int64_t begin, end;  // inclusive, in the order of the schedule
} at_hloproto_temp;
// What the plan of a program says of its memory, in bytes on one device.
typedef struct at_hloproto_memory {
  const at_hloproto_temp *temps;  // by begin
  uint32_t num_temps;
  // Of all temporaries, with the scratch of kernels and what lies between.
  uint64_t temp_bytes;
  // Of the entry's parameters and results, but for those of the host's memory;
  // NULL: dense.
  const uint64_t *param_bytes, *result_bytes;
} at_hloproto_memory;

// All zero: a plain module with row-major layouts.
typedef struct at_hloproto_write_options {
  bool tiles;  // layouts say how a TPU tiles its arrays: {1,0:T(8,128)}
  // The target has SparseCores: gathers and scatters that the client wants
  // there (`_xla_compute_type`) are asynchronous, on the thread "sparsecore".
  bool sparse_cores;
  // OpSharding of the entry's parameters and results, as bytes; NULL: none.
  const at_str *param_shardings, *result_shardings;
  // Not NULL: an HloProto instead, which says where the values lie, and whose
  // instructions have the names of the nodes (at_hloproto_name).
  const at_hloproto_memory *memory;
} at_hloproto_write_options;
// "fusion.12": the name of a node, as executables have it.
void at_hloproto_name(const at_node *n, at_strbuf *out);
// "dot"; NULL: XLA has no opcode for the op.
const char *at_hloproto_opcode(at_op op);
// An HloModuleProtoWithConfig of the graph as it stands: the order of its nodes
// is the schedule, FUSIONs are fusions, regions are computations whose captured
// values have become parameters. Ops that XLA has no opcode for are custom
// calls of their name. What can be read back is the program again, but for the
// asynchronous halves of ops that XLA has none of.
at_status at_hloproto_write(const at_module *m,
                            const at_hloproto_write_options *o, at_strbuf *out);

// Markdown: each opcode and the hlo op that it becomes.
at_status at_hloproto_ops_doc(at_strbuf *out);

#endif
