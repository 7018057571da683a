// What is done to narrow panels of large matrices, per element type and
// instruction set.
#ifndef ATOLL_KERNELS_LINALG_PANEL_H_
#define ATOLL_KERNELS_LINALG_PANEL_H_

#include "kernels/kernels_internal.h"

// A matrix in memory: element (i, j) is p[i * down + j * right].
typedef struct at_view {
  void *p;
  int64_t down, right;
} at_view;

// The functions of one element type and width of vectors.
typedef struct at_panel_fns {
  // to = from, rows x columns; times -1 where `negative`. Both have dense rows
  // or columns.
  void (*copy)(at_view to, at_view from, int64_t rows, int64_t columns,
               bool negative);
  // Columns [begin, end) of the dense rows of x: t x = b for `n` rows. t is
  // lower if `forward`.
  void (*solve)(at_view t, bool forward, bool unit, int64_t n, at_view x,
                int64_t begin, int64_t end);
  // t x = b in place for the n dense elements of x. t has dense rows or columns
  // and is lower if `forward`; what is not in its triangle is not read.
  void (*solve_vector)(at_view t, bool forward, bool unit, int64_t n, void *x);
  // c -= t, rows [begin, end) of dense rows.
  void (*subtract)(at_view c, at_view t, int64_t begin, int64_t end,
                   int64_t columns);
  // The n x n dense rows of a: u of u^T u in their upper triangle. false: it
  // has none.
  bool (*cholesky)(at_view a, int64_t n);
  // p holds columns of `rows` elements: LU in place. pivots: counted from the
  // panel's first row.
  void (*lu)(void *p, int64_t rows, int64_t columns, int32_t *pivots);
  // p holds columns of `rows` elements: reflectors below the diagonal in place,
  // and tau.
  void (*qr)(void *p, int64_t rows, int64_t columns, void *tau);
  // t (columns x columns, dense, upper) of 1 - v t v^T, from the products v^T
  // v, where v is the reflectors with ones on the diagonal and zeros above it.
  void (*join)(const void *products, int64_t columns, const void *tau, void *t);
  // Swaps rows i and pivots[i], for i < count, in columns [begin, end).
  void (*swap)(at_view a, const int32_t *pivots, int64_t count, int64_t begin,
               int64_t end);
} at_panel_fns;
// [double precision][AVX-512]
extern const at_panel_fns at_panel[2][2];

#endif
