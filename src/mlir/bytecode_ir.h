// The two halves of the bytecode reader: sections, and the operations in them.
//
// Errors: INVALID_ARGUMENT with the offset, RESOURCE_EXHAUSTED.
// Memory: operations are the context's arena's; bytes are borrowed from the
// file while it is read.
#ifndef ATOLL_MLIR_BYTECODE_IR_H_
#define ATOLL_MLIR_BYTECODE_IR_H_

#include "mlir/mlir_internal.h"

// Takes a section off the cursor: its id and its bytes, borrowed.
at_status at_mbc_section(at_mbc *r, at_mcursor *c, uint8_t *id, at_bytes *out);
// The IR section; the module is made up where the input has none at its top.
at_status at_mbc_ir(at_mbc *r, at_mcursor c, at_mop **out);

// Sorts by name and puts into the op. DUPLICATES: INVALID_ARGUMENT.
at_status at_mop_set_attrs(at_mctx *c, at_mop *op, at_mnamed *v, size_t n);
// Wraps a block of operations into builtin.module, unless it is one already.
at_status at_mmodule_wrap(at_mctx *c, at_mop **ops, size_t n, at_mop **out);

#endif
