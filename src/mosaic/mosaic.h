// Pallas TPU kernels: the body of a tpu_custom_call, read, upgraded to the
// newest serialisation version, verified, and described: programs, grid,
// windows, scratch, configuration. Operations stay in the mlir tree, under
// their own names ("arith.addf", "tpu.enqueue_dma"); what is read here says
// where each argument of a program comes from and what the chip would refuse.
//
// Memory: everything lives in the arena given to the reader; texts by number
// are static. Threads: any; a kernel that has been read is not changed, but by
// who writes its code (code.h).
#ifndef ATOLL_MOSAIC_MOSAIC_H_
#define ATOLL_MOSAIC_MOSAIC_H_

#include "abi/dtype.h"
#include "base/json.h"
#include "hlo/hlo.h"
#include "mlir/mlir.h"

// ---- Operations: one table, ops.def
// Numbers are this build's alone: files name operations by their text.
typedef enum at_mosaic_opcode {
  AT_MOSAIC_NO_OP,  // not in the table
#define AT_MOSAIC_OP(Id, ...) AT_MOSAIC_##Id,
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP
  AT_MOSAIC_OP_COUNT
} at_mosaic_opcode;

// What an operation costs on the chip, and on which unit.
// Used by tpu (cycles) and by the planner (what is worth computing twice).
typedef enum at_mosaic_cost {
  AT_MOSAIC_COST_NONE,       // no instruction: constants, views, structure
  AT_MOSAIC_COST_SCALAR,     // scalar core only
  AT_MOSAIC_COST_CHEAP,      // one vector instruction per register
  AT_MOSAIC_COST_MEDIUM,     // division, remainder, exp, tanh, pow
  AT_MOSAIC_COST_EXPENSIVE,  // sin, cos, tan
  AT_MOSAIC_COST_MEMORY,     // vector loads and stores
  AT_MOSAIC_COST_XLU,        // crosses lanes or sublanes
  AT_MOSAIC_COST_REDUCE,     // by the reduced axis
  AT_MOSAIC_COST_BROADCAST,  // by the broadcast axis
  AT_MOSAIC_COST_MXU,
  AT_MOSAIC_COST_DMA,   // starts a transfer; the engine does the rest
  AT_MOSAIC_COST_SYNC,  // semaphores and barriers
} at_mosaic_cost;

// How an operation's results come about.
// Decides where code for an operation is written: a pass's default, which
// plan.h may change for one operation.
typedef enum at_mosaic_form {
  AT_MOSAIC_FORM_EFFECT,  // where it stands: memory, time or control flow count
  AT_MOSAIC_FORM_VALUE,   // of its operands' values only, all at once
  AT_MOSAIC_FORM_LOAD,    // of memory, element by element where it is used
  AT_MOSAIC_FORM_LAZY,  // of its operands, element by element where it is used
  AT_MOSAIC_FORM_EACH   // the same, of the same elements of the operands
} at_mosaic_form;

// One row of ops.def; all texts are static.
typedef struct at_mosaic_op_info {
  // Kinds of operands, results and attributes, in the language that the head of
  // ops.def explains.
  const char *name;      // "arith.addf"
  const char *operands;  // see ops.def
  const char *results;
  const char *attrs;
  const char *rule;  // type rule; "" where the kinds of operands say it all
  at_mosaic_cost cost;
  at_mosaic_form form;
  int weight;  // of an element on this machine, in cheap vector operations
  const char *doc;
} at_mosaic_op_info;
// The row of an operation; NO_OP has one of empty texts.
const at_mosaic_op_info *at_mosaic_op_info_of(at_mosaic_opcode op);
// NO_OP: no such operation.
at_mosaic_opcode at_mosaic_opcode_find(const char *name);
// Constant time: the reader leaves the opcode in the operation's tag.
at_mosaic_opcode at_mosaic_opcode_of(const at_mop *op);

// Dimension numbers of tpu.matmul, also where only the old transpose flags say
// them. output_order: pairs (0 lhs or 1 rhs, dimension) per result dimension.
typedef struct at_mosaic_dot {
  // Sizes are not stored: they follow from the operands' types.
  at_dims lhs_contracting, rhs_contracting, lhs_free, rhs_free, output_order,
      lhs_batch, rhs_batch;
} at_mosaic_dot;
// INVALID_ARGUMENT: numbers that do not fit the operands; RESOURCE_EXHAUSTED.
at_status at_mosaic_dot_of(const at_mop *op, at_arena *a, at_mosaic_dot *out);

// ---- References
// Where a ref's memory is.
// The numbers are this room's; the configuration's are at_mosaic_color.
typedef enum at_mosaic_space {
  AT_MSPACE_ANY,  // the compiler's choice: HBM
  AT_MSPACE_VMEM,
  AT_MSPACE_SMEM,
  AT_MSPACE_HBM,
  AT_MSPACE_CMEM,
  AT_MSPACE_SEMAPHORE,
  AT_MSPACE_VMEM_SHARED,  // Spmem of a SparseCore
  AT_MSPACE_HOST
} at_mosaic_space;

// Which kind of core runs a function or owns a memory.
// TC: the TensorCore; SC: a SparseCore's scalar sequencer or one of its vector
// subcores.
typedef enum at_mosaic_core {
  AT_MCORE_ANY,  // not said; the core that runs the program
  AT_MCORE_TC,
  AT_MCORE_SC_SCALAR,
  AT_MCORE_SC_VECTOR
} at_mosaic_core;

// A semaphore is four bytes on the chip, whatever its kind.
typedef enum at_mosaic_semaphore {
  AT_MSEM_NONE,     // the elements are numbers
  AT_MSEM_REGULAR,  // counts signals
  AT_MSEM_DMA,      // counts bytes that arrived
  AT_MSEM_BARRIER
} at_mosaic_semaphore;

// A memref type, taken apart.
typedef struct at_mosaic_ref {
  at_mosaic_space space;
  // ANY where the type names none: the program's own.
  at_mosaic_core core;  // whose memory, where the type says so
  at_mosaic_semaphore semaphore;
  at_dtype dtype;  // INVALID for semaphores
  at_dims shape;   // elements; AT_MDYN where dynamic
  const at_mtype *type;
} at_mosaic_ref;
// INVALID_ARGUMENT: not a memref, or of a space or element that does not exist.
at_status at_mosaic_ref_of(const at_mtype *type, at_mosaic_ref *out);
// Element type of a scalar, vector or memref of numbers; index is S32, as on
// the chip. Signless integers are signed. INVALID: none.
at_dtype at_mosaic_dtype_of(const at_mtype *type);
// Are the elements and the shape the same?
bool at_mosaic_same_type(const at_mtype *a, const at_mtype *b);
// "vmem", "smem", ...: as kernels are printed.
const char *at_mosaic_space_name(at_mosaic_space s);
// "tc", "sc_scalar_subcore", ...: likewise.
const char *at_mosaic_core_name(at_mosaic_core c);

// ---- Windows
// How a window's place in its operand follows from the transform.
typedef enum at_mosaic_window_kind {
  // Also arrays in HBM, which the body copies parts of by itself.
  AT_MWIN_WHOLE,  // the argument is the operand itself, wherever it lives
  // The block at the end of an array may reach beyond it: reads there are
  // undefined, writes are dropped.
  AT_MWIN_BLOCKED,  // the transform yields block numbers: start = i * bounds
  // Windows may overlap. Elements outside of the operand are padding.
  AT_MWIN_ELEMENT  // the transform yields element offsets, before `pad_low`
} at_mosaic_window_kind;

// One operand or result of the call as a program sees it: the block that the
// argument holds at a grid step, and where that block is in the whole array.
typedef const struct at_mosaic_window {
  at_mosaic_ref ref;  // the argument as the program sees it
  uint32_t arg;       // its index among the program's arguments
  // The body reads or writes it by argument `arg`; moves between windows and
  // arrays are the pipeline's.
  at_mosaic_window_kind kind;
  bool is_output;
  uint32_t index;  // of the custom call's operand, or result if is_output
  at_type whole;   // that operand's or result's type; rank 0 and INVALID when
                   // the call's types were not given
  at_dims bounds;  // block shape, full rank, a squeezed dimension is 1; of the
                   // whole argument if WHOLE
  // ELEMENT: elements before and after the operand that windows may cover.
  // Added to the operand on both sides; the transform counts from the padding's
  // first element.
  at_dims pad_low, pad_high;
  uint32_t buffers;  // 1 synchronous, 2 double-buffered (the default on a grid)
  bool buffers_given;  // the kernel asked for that number
  // Otherwise each output block is visited in one run of steps: what comes back
  // later has lost its contents.
  bool revisit_any;  // output blocks may come back in any order
  // The transform's result depends on a grid id of several values; false: the
  // block is the same at every step, and one buffer is enough.
  bool moves;
  // (grid ids: i32..., prefetch refs...) -> i32 per dimension. NULL: all zeros.
  // Evaluated on the scalar core before a step; may read prefetched operands
  // only.
  at_mop *transform;
  int color;  // memory space colour from the configuration; -1: none
  int alias;  // the other index of the alias: result of an input, operand of an
              // output; -1: none
  // Memory of a core that outlives the kernel: of so many cores, one after the
  // other (`whole` is of one); 0: there is one.
  int64_t cores;
} at_mosaic_window;

// dimension_semantics: in which order steps along a grid dimension may run, and
// on which cores.
typedef enum at_mosaic_dim {
  // ARBITRARY: in order, on one core. PARALLEL: any order; cores may share
  // them.
  AT_MDIM_ARBITRARY,
  AT_MDIM_PARALLEL,
  AT_MDIM_CORE_PARALLEL,     // one index per core
  AT_MDIM_SUBCORE_PARALLEL,  // one index per vector subcore
} at_mosaic_dim;

// A dimension of the grid. Its bound is known, or an operand of the call.
typedef struct at_mosaic_axis {
  at_mosaic_dim semantics;
  // Then `bound` means nothing.
  bool dynamic;   // the bound is operand `operand` of the call: i32[]
  int64_t bound;  // static
  uint32_t operand;
} at_mosaic_axis;

// One function that a core runs. Arguments, in order: grid ids (i32), scalar
// prefetch refs (SMEM), windows (inputs, then outputs), scratch.
// Belongs to one kernel; several programs run side by side on different cores
// of one device.
typedef struct at_mosaic_program {
  const char *name;
  // Its body must not be changed once the kernel has been described.
  at_mop *func;
  at_mblock *body;  // entry block of `func`
  at_mosaic_core core;
  const at_mosaic_axis *grid;  // grid_rank entries, leading first
  uint32_t grid_rank;          // 0: runs once
  // Read before the first step, whole, into SMEM.
  const at_mosaic_ref *prefetch;  // of operands num_dynamic.. of the call
  uint32_t num_prefetch, num_dynamic;
  const at_mosaic_window *windows;
  uint32_t num_windows, num_inputs;  // inputs come first
  // Lives as long as the program runs, not longer than one call.
  const at_mosaic_ref *scratch;  // uninitialised at the start; semaphores 0
  uint32_t num_scratch;
} at_mosaic_program;
// Index of the program's first argument of each group.
static inline uint32_t at_mosaic_arg_prefetch(const at_mosaic_program *p) {
  return p->grid_rank;
}
// The first window's index among the body's arguments, which are grid ids,
// prefetched scalars, windows, scratch.
static inline uint32_t at_mosaic_arg_window(const at_mosaic_program *p) {
  return p->grid_rank + p->num_prefetch;
}
// The first scratch buffer's.
static inline uint32_t at_mosaic_arg_scratch(const at_mosaic_program *p) {
  return p->grid_rank + p->num_prefetch + p->num_windows;
}

// ---- Configuration: every field of backend_config
// XLA's numbers of memory spaces, as they stand in the configuration.
// A colour fixes where XLA puts an operand or result.
typedef enum at_mosaic_color {
  AT_MCOLOR_HBM = 0,
  AT_MCOLOR_VMEM = 1,
  AT_MCOLOR_SEMAPHORE = 2,
  AT_MCOLOR_SMEM = 4,
  AT_MCOLOR_HOST = 5,
  AT_MCOLOR_SC_SCALAR_SEMAPHORE = 8
} at_mosaic_color;

// A flag of the TPU's compiler that the call sets for this kernel.
// Unknown names are kept: what the chip refuses is said by tpu/rules.h.
typedef struct at_mosaic_flag {
  const char *name;
  const at_json *value;  // BOOL or NUMBER
} at_mosaic_flag;

// A field that is absent has its default; one of another kind is
// INVALID_ARGUMENT to read; keys that are not known are ignored, as newer
// versions of JAX add some.
typedef const struct at_mosaic_config {
  bool has_communication;  // waits for or signals other chips
  int64_t collective_id;   // -1: none. Kernels with one id share a barrier
                           // semaphore
  bool has_cost_estimate;
  // The author's estimate for XLA's scheduler, not a measurement.
  int64_t flops, transcendentals, bytes_accessed, remote_bytes;
  bool needs_hlo_passes, needs_layout_passes;
  int64_t serialization_format;
  bool shape_invariant_numerics;   // default true
  const bool *allow_input_fusion;  // per operand; NULL: none
  uint32_t num_allow_input_fusion;
  // In bytes; takes part in the limit of VMEM.
  int64_t internal_scratch_bytes;  // of VMEM, for the compiler; 0: none given
  const int *input_colors, *output_colors;  // per operand, result; -1: none
  uint32_t num_input_colors, num_output_colors;
  bool disable_bounds_checks, disable_semaphore_checks, skip_device_barrier;
  at_bytes locations;       // bytecode of a module that lists them; often empty
  bool sparse_core;         // device_type
  bool sparse_core_tiling;  // TILING_SPARSE_CORE, else TILING_COMPACT
  // In bytes of VMEM for windows, scratch and the compiler's own.
  int64_t vmem_limit_bytes;  // scoped limit; -1: the target's default
  const at_mosaic_flag *flags;
  uint32_t num_flags;
  int64_t active_cores;  // megachip: how many are used; 0: all
} at_mosaic_config;

// ---- The kernel
// Operand `operand` and result `result` are one array.
// XLA gives both the same memory; the kernel sees two arguments.
typedef struct at_mosaic_alias {
  uint32_t operand, result;
} at_mosaic_alias;

// A tpu_custom_call as it stands in the program. Types may be absent
// (operands == NULL): then windows know only their own shapes.
// Borrowed by the reader, which copies what the kernel keeps.
typedef struct at_mosaic_call {
  at_bytes payload;  // bytecode or text; len 0: `config` holds it in base64
  at_str config;     // backend_config, JSON; empty: every default
  at_str name;       // kernel_name; empty: the name of the function
  const at_type *operands, *results;
  uint32_t num_operands, num_results;
  // Of operands that are one known integer; AT_MDYN: not known. NULL: none is.
  // Grid bounds and prefetched scalars, where the program around the call has
  // them as constants.
  const int64_t *values;
  const at_mosaic_alias *aliases;
  uint32_t num_aliases;
  bool has_side_effect;
} at_mosaic_call;

// Is this node a tpu_custom_call?
// By its target name alone; its configuration may still be malformed.
bool at_mosaic_is_call(const at_node *n);
// What such a node says. `out` borrows from the node and the arena.
// INVALID_ARGUMENT: its configuration is malformed; RESOURCE_EXHAUSTED.
at_status at_mosaic_call_of(const at_node *n, at_arena *a, at_mosaic_call *out);

// A kernel that has been read. Everything that it points to lives in `arena`.
// Fixed once it is read: any number of threads may look at it.
typedef struct at_mosaic_kernel {
  const char *name;
  at_mmodule *module;
  int64_t serde_version;  // as it came; the tree is at the newest
  // Exported for symbolic shapes, and the call does not tell them all: sizes
  // are placeholders; windows are not tied to the call.
  bool symbolic;
  const at_mosaic_program *programs;  // at least one; several for a mesh of
  uint32_t num_programs;              // different cores
  at_mosaic_config config;
  at_mosaic_call call;  // types and aliases copied into the arena
  at_arena *arena;
} at_mosaic_kernel;

// Reads, upgrades, drops dead loads before stores, verifies, describes.
// INVALID_ARGUMENT: malformed, with the kernel's name and the place;
// UNIMPLEMENTED: an operation or version that is not known, by name.
at_status at_mosaic_read(const at_mosaic_call *call, at_arena *a,
                         at_mosaic_kernel **out);
// The newest serialisation version that is understood.
// Older and newer ones are UNIMPLEMENTED by number.
enum { AT_MOSAIC_VERSION = 18, AT_MOSAIC_OLDEST_VERSION = 1 };

// The body in the configuration of a call: its bytes (MLIR), and where `config`
// has them as base64. Empty text: there is none. INVALID_ARGUMENT: malformed.
at_status at_mosaic_body_find(at_str config, at_arena *a, at_str *text,
                              at_bytes *body);

// ---- Places
// A position in the user's source.
// From debug information, so only for people: nothing is decided by it.
typedef struct at_mosaic_place {
  const char *file;  // "" if unknown
  uint32_t line, column;
  const char *what;       // name of the innermost step ("get", "swap"), or ""
  const at_mloc *caller;  // of that frame; NULL: not known
} at_mosaic_place;
// The innermost frame.
// loc may be NULL: the place is unknown then.
at_mosaic_place at_mosaic_place_of(const at_mloc *loc);
// ", called at file:line:column" for each frame around it. At most four frames
// are written; the buffer notes a lack of memory.
void at_mosaic_callers_put(at_strbuf *b, const at_mloc *loc);
// The operation's name and types, as MLIR's generic form ends.
void at_mosaic_op_put(at_strbuf *b, const at_mop *op);
// An error about `op`: "kernel NAME: message\nat: file:line:column (op)", with
// "near" where only an operation close by has a place. UNIMPLEMENTED adds the
// operation's types. The message may have detail and hint lines.
__attribute__((format(printf, 4, 5), warn_unused_result)) at_status
at_mosaic_fail(const at_mosaic_kernel *k, const at_mop *op, at_code code,
               const char *fmt, ...);

// ---- Text
// MLIR's generic form: read back by at_mosaic_read as payload. Fails only where
// the buffer has no memory (RESOURCE_EXHAUSTED).
at_status at_mosaic_print(const at_mosaic_kernel *k, bool locations,
                          at_strbuf *out);
// Programs, grid, windows, scratch and memory, one per line, each after `//`.
void at_mosaic_summary(const at_mosaic_kernel *k, at_strbuf *out);
// Coverage page, docs/mosaic_ops.md. RESOURCE_EXHAUSTED alone.
at_status at_mosaic_ops_doc(at_strbuf *out);

#endif
