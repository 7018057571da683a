// Which values of a computation may be made row by row: a row is the elements
// of an array that share the indices of its major dimensions, and of each row
// nothing is needed but that row. What a softmax or a norm along the minor
// dimensions is, with what comes before and after.
//
// Errors: RESOURCE_EXHAUSTED alone.
// Threads: any, on a program that nobody changes.
#ifndef ATOLL_HLO_ROWS_H_
#define ATOLL_HLO_ROWS_H_

#include "hlo/hlo.h"

// How the elements of a value are asked for, as bits: a value may be asked for
// in several ways.
enum {
  AT_ROW_ALL = 1,     // rows x columns elements, each where it is
  AT_ROW_ONE = 2,     // one element a row
  AT_ROW_INSIDE = 4,  // rows x columns, any element of the row at hand
  AT_ROW_OTHER = 8    // anywhere
};

// The answer of at_rows_find, which at_rows_role and at_rows_asks read.
typedef struct at_rows {
  int64_t rows, columns;  // columns > 1
  at_map roles;           // at_node * -> bits
  bool fits;
} at_rows;

// Does the reduce n make one value of every row of some array? Then of how many
// rows and columns.
bool at_rows_of_reduce(const at_node *n, int64_t *rows, int64_t *columns);

// Roles of what is inside (`inside` says so of a node) and of what it reads
// directly, when `results` are rows x columns or `rows` elements. !fits: not to
// be made row by row. Work: each node once for each role. In `a`.
typedef bool (*at_rows_inside)(const void *arg, const at_node *n);
// `results` and `arg` are read during the call only. RESOURCE_EXHAUSTED: `a`
// refused; *out is then not to be used.
at_status at_rows_find(at_arena *a, int64_t rows, int64_t columns,
                       const at_value *results, uint32_t num_results,
                       at_rows_inside inside, const void *arg, at_rows *out);
// The bits in which n was asked for; 0: not at all.
uint32_t at_rows_role(const at_rows *r, const at_node *n);
// How n, asked for as `role`, asks for operand i; 0: that does not fit.
uint32_t at_rows_asks(const at_rows *r, const at_node *n, uint32_t i,
                      uint32_t role);
// What a result is asked for as; 0: it has neither number of elements.
uint32_t at_rows_asked(const at_rows *r, at_value result);

#endif
