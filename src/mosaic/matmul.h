// tpu.matmul by its text: which dimensions it contracts, whether it rounds, and
// whether its result can be computed a few rows at a time.
#ifndef ATOLL_MOSAIC_MATMUL_H_
#define ATOLL_MOSAIC_MATMUL_H_

#include "mosaic/forms.h"

// An operand or a result of a product. `dim` is borrowed.
typedef struct at_mproduct_shape {
  at_dtype dtype;
  uint32_t rank;
  const int64_t *dim;
} at_mproduct_shape;
// The value must be of vector type.
at_mproduct_shape at_mproduct_shape_of(const at_mvalue *vector);

// Dimensions by number, in the order that the operation names them.
typedef struct at_mproduct_dims {
  uint32_t n;
  int64_t d[2 * AT_CORE_MAX_RANK];
} at_mproduct_dims;
// The one of these dimensions that is not 1; -1: none or several.
int64_t at_mproduct_only_dim(const at_mproduct_dims *list, const int64_t *dim);

// Dimension numbers: contracting, free and batch dimensions of each operand,
// and for each dimension of the result the pair (0: first operand, 1: second;
// dimension of it).
enum {
  AT_MPRODUCT_SUM_A,
  AT_MPRODUCT_SUM_B,
  AT_MPRODUCT_FREE_A,
  AT_MPRODUCT_FREE_B,
  AT_MPRODUCT_ORDER,
  AT_MPRODUCT_BATCH_A,
  AT_MPRODUCT_BATCH_B,
  AT_MPRODUCT_LISTS
};
typedef struct at_mproduct_numbers {
  at_mproduct_dims list[AT_MPRODUCT_LISTS];
} at_mproduct_numbers;
// False: malformed, or they do not fit operands of these shapes.
bool at_mproduct_numbers_of(const at_mop *op, const at_mproduct_shape *a,
                            const at_mproduct_shape *b,
                            at_mproduct_numbers *out);

// Does the product round its f32 operands to bf16? exact: the program's choice
// not to, see at_mosaic_code_options.
bool at_mproduct_rounds(const at_mop *op, const at_mproduct_shape *a,
                        const at_mproduct_shape *b, bool exact);

// Products in loops over rows: so many rows a turn.
enum { AT_MPRODUCT_ROWS = 32 };
// Can so many rows of the result be computed a few at a time, on a CPU with
// these features?
bool at_mproduct_has_rows(const at_mop *op, int64_t rows, bool exact,
                          uint64_t cpu);
// What one row costs, in operations on single elements.
double at_mproduct_row_work(const at_mop *op);

#endif
