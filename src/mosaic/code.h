// Machine code for a Pallas kernel: one function per program (a grid step, see
// abi/core.h: at_core_body_fn) and one per window transform (at_core_index_fn),
// handed to codegen's generator. Functions are written while at_cg_finish or
// at_cg_print run: what is not supported is found there, as UNIMPLEMENTED with
// the kernel's name and the place.
//
// Memory: results live in the arena that is given. Threads: any, one at a time
// for a kernel, as its body is rewritten.
#ifndef ATOLL_MOSAIC_CODE_H_
#define ATOLL_MOSAIC_CODE_H_

#include "abi/core.h"
#include "codegen/codegen.h"
#include "mosaic/mosaic.h"

// How a kernel's code is written. Borrowed by at_mosaic_code_add until the
// functions are written.
typedef struct at_mosaic_code_options {
  bool check;      // announce every load and store (at_core_access)
  bool check_nan;  // and look at floating-point values before they are stored
  // And at each line that begins (at_core_debug_line); with `check`.
  bool debug;
  // Float products of 32-bit operands round them to bf16 unless the kernel asks
  // for more; true: never.
  bool exact_dots;
} at_mosaic_code_options;

// What the allocations of a program's body take at the same time: bytes of its
// memories, each allocation in whole multiples of AT_CORE_ALLOC_ALIGN, and
// semaphores. -1: nobody knows, as they are made in a loop that keeps them.
typedef struct at_mosaic_stack {
  int64_t bytes, sems;
} at_mosaic_stack;

// What at_mosaic_code_add leaves of one program: kernel numbers to look the
// functions up by, and what the virtual core has to prepare before it runs
// them. All pointers borrow from the arena.
typedef struct at_mosaic_code {
  uint32_t body;          // kernel number in at_cg_output
  const uint32_t *index;  // per window: kernel number + 1; 0: all zeros
  at_mosaic_stack stack;
  // The rest is known once at_cg_finish has returned.
  uint64_t temp_bytes;              // of at_core.temp
  const at_mloc *const *locations;  // `loc` of the functions in abi/core.h
  const char *const *location_ops;  // name of the operation there
  uint32_t num_locations;
} at_mosaic_code;

// The core's memory that a space of a kernel is. ANY is HBM; CMEM is kept in
// VMEM. Never fails.
at_core_space at_mosaic_core_space(at_mosaic_space s);
// Of the body of `p`, without running it. RESOURCE_EXHAUSTED; `a` is scratch.
at_status at_mosaic_stack_of(const at_mosaic_kernel *k,
                             const at_mosaic_program *p, at_arena *a,
                             at_mosaic_stack *out);
// The kind of virtual core that runs a program.
// ANY runs on a TensorCore. Never fails.
at_core_type at_mosaic_core_type(at_mosaic_core c);

// Adds the functions of program `program` of `k` to `cg`, and changes its body
// to what they do. `k` and *out (in `a`) must live until at_cg_finish, or the
// last at_cg_print, has returned. In transforms `loc` is -1.
// RESOURCE_EXHAUSTED; what has no code is refused by at_cg_finish.
at_status at_mosaic_code_add(at_cg *cg, const at_mosaic_kernel *k,
                             uint32_t program, const at_mosaic_code_options *o,
                             at_arena *a, at_mosaic_code **out);

// What at_mosaic_code_add does to a body first, where accesses are not checked
// (fewer lanes of memory are written than the kernel says): what is the same in
// all lanes is computed in one. Once per program, with memory of `a`.
// RESOURCE_EXHAUSTED.
at_status at_mosaic_narrow_lanes(const at_mosaic_program *p, at_arena *a);

// What is planned for a program's body as at_mosaic_code_add leaves it, on this
// CPU: its operations, each with what the passes say of it. passes: names with
// commas (plan_print.c has them); NULL: all. INVALID_ARGUMENT: no such pass.
at_status at_mosaic_plan_print(const at_mosaic_kernel *k, uint32_t program,
                               const at_mosaic_code_options *o,
                               const char *passes, at_arena *a, at_strbuf *out);

#endif
