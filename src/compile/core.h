// Pallas kernels (tpu_custom_call) as records of an executable.
#ifndef ATOLL_COMPILE_CORE_H_
#define ATOLL_COMPILE_CORE_H_

#include "compile/steps.h"
#include "cost/count.h"
#include "machine/machine.h"
#include "mosaic/mosaic.h"

// A kernel's call, or the FUSION of one and what makes its inputs.
bool at_core_is_kernel(const at_node *n);
// The call; NULL: it is no kernel.
const at_node *at_core_kernel_of(const at_node *n);
// True if ATOLL_CHECK asks for checks inside of kernels.
bool at_core_is_checked(void);
// Before other work is gathered: kernels and what makes their inputs become
// FUSIONs of the KERNEL kind, where they ask for it and it is sound.
at_status at_core_fuse(at_module *m);
// Does the program only read its argument `arg` (of its function)?
at_status at_core_only_reads(const at_mosaic_program *p, uint32_t arg,
                             at_arena *a, bool *out);
// Pushes the step's buffers: dynamic bounds, scalars, inputs, outputs, and what
// the made inputs read.
at_status at_core_push(at_emit_steps *e, const at_node *n, at_xstep *s);
// May the result share the operand's memory: did the kernel ask for it?
bool at_core_can_alias(const at_node *n, uint32_t result, uint32_t operand);
// Reads the kernel, adds its functions to e->cg and its records to e->w; fills
// in what the step says of them.
at_status at_core_emit(at_emit_steps *e, const at_node *n, at_xstep *s);
// Before memory is planned: what kernels leave in VMEM and SMEM becomes one
// value per core, where a device has several.
at_status at_core_spread(at_module *m, at_arena *a);
// Writes into the kernels' configurations how much VMEM each of them takes on
// the target, as the TPU compiler does in the program that it returns.
at_status at_core_tell_memory(at_module *m, at_arena *a);
// The chip that ATOLL_TARGET names; NULL: no TPU.
const at_machine *at_core_chip(void);
// Counts FLOPs and bytes, with the products that Pallas kernels make.
at_counter at_core_counter(at_arena *a);
// After the code is made: what is only known then.
at_status at_core_finish(at_emit_steps *e);

#endif
