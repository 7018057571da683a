// What can be told of one operation by its text alone. The passes that plan a
// body and the writer of its machine code ask the same questions.
#ifndef ATOLL_MOSAIC_FORMS_H_
#define ATOLL_MOSAIC_FORMS_H_

#include "abi/core.h"
#include "mosaic/mosaic.h"

// By its type: vectors are expressions, everything else is a register or a ref.
bool at_mosaic_is_vector(const at_mvalue *v);

// ---- Attributes
// An integer or bool; `otherwise`: the operation has none of that name.
int64_t at_mosaic_op_int(const at_mop *op, const char *name, int64_t otherwise);
// Up to `max` integers of an array into `out`; *n is how many there are. False:
// there is no such attribute (*n 0), or it has more, and `out` is untouched.
bool at_mosaic_op_ints(const at_mop *op, const char *name, int64_t *out,
                       uint32_t max, uint32_t *n);
// How many operands are in group i of operandSegmentSizes; *first is the index
// of the first of them. 0: none, or the attribute is missing or wrong.
uint32_t at_mosaic_op_segment(const at_mop *op, uint32_t i, uint32_t *first);

// ---- Kinds of operations
// The cost of one element, in cheap vector operations.
double at_mosaic_weight_of(at_mosaic_opcode c);
// Do its vector results become expressions, computed where they are used?
bool at_mosaic_is_lazy(at_mosaic_opcode c);
// Does it make its results of its operands' values, and nothing else?
bool at_mosaic_computes(at_mosaic_opcode c);
// Does every element of the result come from the same element of the operands?
bool at_mosaic_is_elementwise(const at_mop *op);

// ---- Loads and stores
// Of a box that starts at scalar indices, without a mask; with steps or not. A
// plain store overwrites.
bool at_mosaic_is_plain_load(const at_mop *op);
bool at_mosaic_is_plain_store(const at_mop *op);
// Does it take every n-th element of some dimension?
bool at_mosaic_has_steps(const at_mop *op);

// The first dimension that is not 1, where it has that many rows; else -1.
int at_mosaic_row_dim(uint32_t rank, const int64_t *dim, int64_t rows);

#endif
