// Calls of the SparseCore as steps (abi/sparsecore.h).
#ifndef ATOLL_COMPILE_SPARSE_H_
#define ATOLL_COMPILE_SPARSE_H_

#include "compile/steps.h"

// SparseCores of one device of ATOLL_TARGET; 0: none.
uint32_t at_sparse_cores(void);
// A call that the engine runs.
bool at_sparse_is_call(const at_node *n);
// What such a call takes on a plain host, about.
double at_sparse_seconds(const at_node *n);
// May the result share the operand's memory: a table that is updated in place?
bool at_sparse_can_alias(const at_node *n, uint32_t result, uint32_t operand);
// The SparseCore's flags for one compilation: LIBTPU_INIT_ARGS, then the
// request's options (key, value pairs), then ATOLL_CHECK's `nan`.
// INVALID_ARGUMENT names a flag that is not known.
at_status at_sparse_flags(const at_str *options, uint32_t count,
                          at_spinput_flags *out);
// What the TPU compiler would refuse of the program's SparseCore calls, in its
// words; a warning with ATOLL_LENIENT. *stack: bytes of HBM that the calls hold
// at a time on a device; 0: there are none.
at_status at_sparse_check_size(const at_module *m, uint32_t num_devices,
                               const at_spinput_flags *f,
                               const at_spinput_limits *limits, at_arena *a,
                               uint64_t *stack);
// Fills in the step but for its arguments: the operands order[0, operands),
// then all results. The optimizer's kernels are added to e->cg.
at_status at_sparse_emit(at_emit_steps *e, const at_node *n, at_xstep *s,
                         const uint32_t **order, uint32_t *operands);

#endif
