// A compiled program: one flat, position-independent block of bytes that
// `compile` writes and `exec` runs. Sections hold arrays of the plain structs
// below; every reference is an index or a byte offset inside a section. It can
// be cached on disk, sent to another host, and needs no compiler to run.
// Little-endian.
#ifndef ATOLL_ABI_EXECUTABLE_H_
#define ATOLL_ABI_EXECUTABLE_H_

#include "abi/collective.h"
#include "abi/core.h"
#include "abi/dtype.h"
#include "abi/kernels.h"

#define AT_EXECUTABLE_MAGIC 0x4c4c4f5441ull  // "ATOLL"
// A reader refuses any other version: there is no conversion.
enum { AT_EXECUTABLE_VERSION = 15 };

// Every executable has all sections, empty ones included; the order is the
// format's. exec checks every index in them when it loads the block.
typedef enum at_xsection {
  AT_XS_STRINGS,  // char; NUL-terminated strings, offset 0 is ""
  AT_XS_DIMS,     // int64_t
  AT_XS_TYPES,    // at_xtype
  AT_XS_SLOTS,    // at_xslot
  AT_XS_ARGS,     // uint32_t: slot indices (steps), step ranges (control)
  AT_XS_PARAMS,  // bytes: parameter structs of runtime kernels, 16-byte aligned
  AT_XS_STEPS,   // at_xstep
  AT_XS_KERNELS,     // at_xkernel
  AT_XS_OBJECTS,     // at_xobject
  AT_XS_CODE,        // bytes: ELF relocatable objects, 64-byte aligned
  AT_XS_CONSTANTS,   // bytes: constant data, 64-byte aligned
  AT_XS_INPUTS,      // at_xio
  AT_XS_OUTPUTS,     // at_xio
  AT_XS_PROPERTIES,  // at_xproperty: cost analysis
  AT_XS_CORES,       // at_xcore: Pallas kernels
  AT_XS_CORE_REFS,   // at_xcore_ref
  AT_XS_LOCATIONS,   // at_xlocation: places in the source of Pallas kernels
  AT_XS_COUNT
} at_xsection;

// Where a section is.
typedef struct at_xspan {
  uint64_t offset;  // from the start of the block, 64-byte aligned
  uint64_t count;   // elements
} at_xspan;

// The block begins with it. header_bytes: its size when written, checked
// against the reader's.
typedef struct at_xheader {
  // AT_EXECUTABLE_MAGIC; anything else is no executable at all.
  uint64_t magic;
  uint32_t version, header_bytes;
  // Of the block, header and padding of sections included. Every section ends
  // inside of it.
  uint64_t total_bytes;
  uint64_t
      fingerprint[2];  // of the program and its options, alike on all machines
  uint64_t cpu_features;  // at_cpu_features that the code needs (base/cpu.h)
  uint64_t temp_bytes;    // scratch block of one launch, 64-byte aligned
  // Bytes of host memory as the client's memory analysis asks for them: sums
  // over arguments, results, results that take an argument's buffer, the most
  // at any time, and machine code.
  uint64_t host_argument_bytes, output_bytes, alias_bytes, peak_bytes,
      code_bytes;
  // HBM that lookups and updates of the SparseCore hold at a time on the chip:
  // no part of temp_bytes, of peak_bytes it is.
  uint64_t sparse_bytes;
  // Of a device of the target, in its layouts; no SparseCore's.
  uint64_t hbm_argument_bytes, hbm_output_bytes, hbm_alias_bytes,
      hbm_temp_bytes;
  uint32_t largest;  // string: the largest buffers at the peak, one a line
  uint32_t advice;   // string: what would take less
  // Devices of a launch are their product; device d is partition d %
  // num_partitions of its replica.
  uint32_t num_replicas, num_partitions;
  uint32_t main_begin, main_end;  // steps of the program, in order
  uint32_t name;                  // string
  uint32_t has_effects;  // host callbacks, infeed, outfeed, custom calls
  double estimated_ns;   // single-thread estimate; small programs run inline
  // By at_xsection. Each lies inside of the block.
  at_xspan sections[AT_XS_COUNT];
} at_xheader;

// Arrays are dense and row-major, whatever layout the client was told.
typedef struct at_xtype {
  // dtype: at_dtype. rank 0: a scalar.
  uint32_t dtype, rank;
  uint32_t dims;  // index into DIMS: rank entries
  uint32_t pad;
  uint64_t bytes;  // dense
} at_xtype;

typedef enum at_xslot_kind {
  AT_SLOT_NULL,    // zero bytes (tokens, empty arrays)
  AT_SLOT_INPUT,   // input `index`'s buffer + offset
  AT_SLOT_OUTPUT,  // output `index`'s buffer + offset
  AT_SLOT_TEMP,    // launch scratch + offset
  AT_SLOT_CONST    // CONSTANTS + offset
} at_xslot_kind;
// A place that steps refer to. `bytes` from `offset` lie inside of what `kind`
// and `index` name; exec has checked so before a step runs. pad fields of all
// structs are zero.
typedef struct at_xslot {
  uint32_t kind, index;
  uint64_t offset, bytes;
  uint32_t type;  // TYPES, or UINT32_MAX for raw scratch
  uint32_t pad;
} at_xslot;

// Input or output of the program.
typedef struct at_xio {
  uint32_t type;  // TYPES
  int32_t alias;  // output: input whose buffer it takes if donated, else -1;
                  // input: output that takes it, else -1
  uint32_t must_alias;   // the input must be donated
  uint32_t donated;      // input: the caller gives it up (alias or donor)
  uint32_t memory_kind;  // string; 0: "device"
  uint32_t name;         // string; 0: none
  uint32_t slot;  // SLOTS: where it lives during the launch; an output without
                  // alias may live in an input's: it is that input's buffer
  uint32_t sharding;  // string: HLO's text ("{replicated}"); 0: one device
  uint32_t layout;    // string; 0: default
  uint32_t pad;
} at_xio;

typedef enum at_xstep_kind {
  AT_STEP_KERNEL,   // target: KERNELS; args: its buffers
  AT_STEP_RUNTIME,  // target: at_rt_kernel; params; args: its buffers
  AT_STEP_WHILE,  // args: pred slot, cond begin, cond end, body begin, body end
  AT_STEP_CASE,   // args: selector slot (s32, or pred for `if` with target 1:
                  // branch 0 when true), then begin, end of each branch
  AT_STEP_CUSTOM,  // target: string (call target); params: backend config
                   // bytes; tasks: API version (0 legacy .. 4 typed FFI); args:
                   // operands then results; aux: number of operands
  AT_STEP_SEND,  // host callback: args: values; aux: channel id; tasks: 1 + the
                 // only partition that does it, or 0: every device
  AT_STEP_RECV,  // args: results; aux, tasks: as SEND
  // Infeed and outfeed have numbers, but programs with them are refused when
  // they are loaded.
  AT_STEP_INFEED,
  AT_STEP_OUTFEED,
  AT_STEP_CORE,  // target: first of CORES; aux: how many run together; args:
                 // the buffers that at_xcore_ref names
  AT_STEP_COLLECTIVE,  // abi/collective.h; params; args: operands, then
                       // results; aux: number of operands
  AT_STEP_START,  // a collective that nobody waits for yet; tasks: steps from
                  // here to its DONE, in the same range
  AT_STEP_DONE    // waits for it; tasks: steps back to its START
} at_xstep_kind;

// Steps of a range run in order; only collectives may begin early
// (AT_STEP_START).
typedef struct at_xstep {
  uint32_t kind, target;
  uint32_t args, num_args;        // ARGS
  uint32_t params, params_bytes;  // PARAMS, byte offset
  int64_t tasks;  // KERNEL: iterations to split over threads, >= 0
  int64_t grain;  // KERNEL: iterations of one chunk, >= 1
  // What it means depends on the kind of step.
  int64_t aux;
  double estimated_ns;           // single-thread
  uint32_t op_name, file, line;  // strings and line of the source, for profiles
  uint32_t hlo;                  // string: op text ("fusion.12 add,multiply")
  uint32_t place;  // which of the program's locations file and line are
                   // of; AT_NO_PLACE: of none that could change
} at_xstep;
// at_xstep.place of steps whose file and line stay, whatever client loads the
// program.
#define AT_NO_PLACE UINT32_MAX

typedef enum at_xkernel_kind {
  AT_XK_RANGE,       // at_kernel_fn
  AT_XK_COMPARATOR,  // at_comparator_fn
  AT_XK_CORE_BODY,   // at_core_body_fn
  AT_XK_CORE_INDEX,  // at_core_index_fn
  AT_XK_CORE_FILL    // at_core_fill_fn
} at_xkernel_kind;
// A function in an object, found by its symbol at load. The signature goes by
// `kind`.
typedef struct at_xkernel {
  // kind: at_xkernel_kind.
  uint32_t kind, object;  // OBJECTS
  uint32_t symbol;        // string: ELF symbol
  uint32_t pad;
} at_xkernel;
// An ELF relocatable file for this architecture; it may call at_ximport
// functions.
typedef struct at_xobject {
  uint64_t offset, bytes;  // in CODE
} at_xobject;
// One figure of the cost analysis: "flops", "bytes accessed", ...
typedef struct at_xproperty {
  uint32_t name, pad;  // string
  double value;
} at_xproperty;

// ---- Entry points of generated code
// Runs iterations [begin, end) of a kernel's outer loop. bufs: base pointers.
// Ranges may run at the same time on several threads; they write disjoint
// memory. Generated code does not fail, block or allocate.
typedef void (*at_kernel_fn)(void *const *bufs, int64_t begin, int64_t end);
// ptrs: for operand i, ptrs[2i] -> left element, ptrs[2i+1] -> right element.
// Returns whether left sorts before right (the comparator region's result).
// Total: any two elements may be asked for. Called from several threads at
// once.
typedef bool (*at_comparator_fn)(const void *const *ptrs);

// Functions that generated code may call, by symbol name.
typedef struct at_ximport {
  const char *name;
  void *address;
} at_ximport;

#endif
