// Ids and parameters of the runtime kernels: what `compile` writes into a step
// and `kernels` reads. Plain data; a change of any struct bumps
// AT_EXECUTABLE_VERSION.
#ifndef ATOLL_ABI_KERNELS_H_
#define ATOLL_ABI_KERNELS_H_

#include "abi/dtype.h"

// Steps of executables hold these numbers: a new kernel goes to the end of
// kernels.def, or AT_EXECUTABLE_VERSION grows.
typedef enum at_rt_kernel {
#define AT_RT_KERNEL(Id, fn, params, doc) AT_RT_##Id,
#include "abi/kernels.def"
#undef AT_RT_KERNEL
  AT_RT_COUNT
} at_rt_kernel;

// Dimensions that a kernel's parameters can name. Programs of higher rank are
// folded or refused by `compile`.
enum { AT_K_MAX_RANK = 12 };

// COPY: bufs are the operand and the result, dense, `bytes` each. Both may be
// one buffer: nothing is copied then.
typedef struct at_k_copy_params {
  int64_t bytes;
} at_k_copy_params;
// FILL: one result of elements * element_bytes. `element`: the bytes of one, as
// in memory. element_bytes: 1, 2, 4, 8 or 16; elements at most INT64_MAX / 16.
typedef struct at_k_fill_params {
  int64_t elements, element_bytes;
  uint8_t element[16];
} at_k_fill_params;

// A group of dimensions of a GEMM, walked major to minor: sizes and the
// strides, in elements, that each has in an operand. The packer turns it into
// offset tables, so a transposed or split operand costs no copy.
typedef struct at_k_gemm_dims {
  // rank 0: one index, with offset 0. Sizes may be 0.
  uint32_t rank;
  int64_t size[AT_K_MAX_RANK];
  int64_t
      stride_x[AT_K_MAX_RANK];  // in A for M and K, in B for N, in A for batch
  int64_t stride_y[AT_K_MAX_RANK];  // in C for M and N, in B for K and batch
  int64_t stride_z[AT_K_MAX_RANK];  // batch: in C
} at_k_gemm_dims;
// What is done to a sum before it is rounded to the result's type.
typedef enum at_k_epilogue {
  AT_EPI_NONE,
  AT_EPI_BIAS_N  // bufs[2]: bias[n], accumulator type, added before rounding
} at_k_epilogue;
// bufs: A, B, [bias,] C. The sum over k has one order for a given shape, so
// bits do not depend on threads.
typedef struct at_k_gemm_params {
  uint32_t a, b, acc, c;   // at_dtype; acc: F32 F64 S32 S64 U32 U64 C64 C128
  uint32_t epilogue;       // at_k_epilogue
  uint32_t b_is_constant;  // the packed form of B may be kept between calls
  at_k_gemm_dims batch, m, n, k;
} at_k_gemm_params;

// Which dimension of A the groups divide: a free one (each group has its own
// B), one of k (each group has its own C), or a batch (what no group has is
// zero).
// Groups lie one behind the other; ends behind the dimension, or before an
// earlier one, are clipped.
typedef enum at_k_ragged_kind {
  AT_RAGGED_ROWS,
  AT_RAGGED_K,
  AT_RAGGED_BATCH
} at_k_ragged_kind;
// RAGGED: bufs are A, B, the sizes of groups, C.
typedef struct at_k_ragged_params {
  at_k_gemm_params product;  // of all groups together; no epilogue
  uint32_t kind;             // at_k_ragged_kind
  uint32_t dim;              // which dimension of product.m, .k or .batch
  uint32_t sizes_type;       // integers
  // Sizes have a row for each index of the first so many dimensions of batch
  // and m; both 0: one row.
  uint32_t batch_dims, m_dims;
  int64_t groups;
  int64_t group_stride;  // elements from group to group: ROWS in B, K in C
} at_k_ragged_params;

// CONV: bufs are input, kernel, output. Strides of windows and dilations are >=
// 1. Groups are >= 1 and divide the features (or the batch); only one of the
// two kinds may be over 1.
typedef struct at_k_conv_params {
  uint32_t lhs, rhs, out;  // at_dtype
  uint32_t spatial_rank;
  int64_t batch, in_features, out_features, feature_groups, batch_groups;
  // Spatial sizes, and the strides in elements of every dimension.
  int64_t in_size[AT_K_MAX_RANK], kernel_size[AT_K_MAX_RANK],
      out_size[AT_K_MAX_RANK];
  int64_t window_stride[AT_K_MAX_RANK], pad_low[AT_K_MAX_RANK],
      pad_high[AT_K_MAX_RANK];
  int64_t lhs_dilation[AT_K_MAX_RANK], rhs_dilation[AT_K_MAX_RANK];
  uint8_t reversal[AT_K_MAX_RANK];
  int64_t in_batch_stride, in_feature_stride, in_stride[AT_K_MAX_RANK];
  int64_t kernel_in_stride, kernel_out_stride, kernel_stride[AT_K_MAX_RANK];
  int64_t out_batch_stride, out_feature_stride, out_stride[AT_K_MAX_RANK];
} at_k_conv_params;

// TRANSPOSE: bufs are operand and result, which is dense. element_bytes: 1, 2,
// 4, 8 or 16. A dimension that is reversed, too, has a negative stride.
typedef struct at_k_transpose_params {
  uint32_t element_bytes, rank;
  int64_t out_size[AT_K_MAX_RANK];   // result dims
  int64_t in_stride[AT_K_MAX_RANK];  // stride in the operand of result dim d,
                                     // elements
  int64_t in_first;  // the operand's element that is the result's first
} at_k_transpose_params;

typedef enum at_k_order {
  AT_ORDER_ASC,  // by operand 0, total order: -NaN < -inf < ... < inf < NaN,
                 // with -0 == 0 and all NaN equal (JAX's default comparator)
  AT_ORDER_DESC,
  AT_ORDER_CUSTOM  // comparator kernel below
} at_k_order;
// Operands of a sort.
// The kernel refuses more, and sizes over UINT32_MAX.
enum { AT_K_SORT_OPERANDS = 256 };
// bufs: operands, then results in the same order, each of outer * size * inner
// elements. All are permuted alike. order is an at_k_order; keys have their
// type's own size.
typedef struct at_k_sort_params {
  uint32_t num_operands, stable, order;
  uint32_t
      num_keys;  // ASC and DESC: the first num_keys operands, lexicographic
  uint32_t comparator;  // index into the executable's kernels, for CUSTOM
  uint32_t pad;
  int64_t outer, size, inner;  // dims before, of, and after the sort dimension
  uint32_t dtype[AT_K_SORT_OPERANDS];  // at_dtype of each operand
  uint32_t element_bytes[AT_K_SORT_OPERANDS];
} at_k_sort_params;
// bufs: the operand, values and indices (S32), rows x k each. k <= size <=
// INT32_MAX. dtype: a float, an integer or PRED.
typedef struct at_k_top_k_params {
  uint32_t dtype, largest;
  int64_t rows, size, k;
} at_k_top_k_params;

// Reductions that a scan knows, on the element type as it is; integers wrap.
typedef enum at_k_reduce_op {
  AT_REDUCE_ADD,
  AT_REDUCE_MUL,
  AT_REDUCE_MIN,
  AT_REDUCE_MAX,
  AT_REDUCE_AND,
  AT_REDUCE_OR,
  AT_REDUCE_XOR
} at_k_reduce_op;
// SCAN: along `size`, for each of outer * inner; `reverse` starts at the end.
// op: an at_k_reduce_op.
typedef struct at_k_scan_params {
  uint32_t dtype, op, reverse, pad;
  int64_t outer, size, inner;
} at_k_scan_params;

// bufs: operand, result. RFFT keeps length / 2 + 1 elements of the last
// dimension, IRFFT takes as many. The inverse divides by the number of
// elements. rank is 1 to 3, lengths are below 2^40.
typedef struct at_k_fft_params {
  uint32_t type;  // at_fft_type: FFT IFFT RFFT IRFFT
  uint32_t double_precision;
  uint32_t rank;
  uint32_t pad;
  int64_t batch, length[3];  // transform lengths, major to minor
} at_k_fft_params;

// RNG_BIT_GENERATOR: bufs are state, new state, bits; the state has 2 words, or
// 3 where the algorithm is not THREE_FRY. RNG: two parameters of the
// distribution, and the result.
typedef struct at_k_rng_params {
  uint32_t algorithm;    // at_rng_algorithm; RNG: at_rng_distribution
  uint32_t dtype;        // of the output
  uint32_t state_words;  // 64-bit words of state
  uint32_t rank;
  int64_t elements;
  // Of the output: three-fry interleaves its two words along the first even
  // dimension, so the order of the bits depends on the shape.
  int64_t dims[AT_K_MAX_RANK];
} at_k_rng_params;

// CHOLESKY, EIGH: a is n x n. EIGH without sort_eigenvalues: rows and columns
// of zeros at the end of a keep their places, with a value of 0 each.
// TRIANGULAR_SOLVE: b and x are m x n, a is m x m when left_side, else n x n.
// QR, LU: a is m x n, with min(m, n) taus or pivots and a permutation of m.
// HOUSEHOLDER_PRODUCT: packed and q are m x n, k taus.
// Matrices are dense and row-major, `batch` of them one after the other. k
// <= n <= m for HOUSEHOLDER_PRODUCT; the kernels bound the sides.
typedef struct at_k_linalg_params {
  uint32_t dtype;
  uint32_t lower, left_side, unit_diagonal,
      transpose_a;  // transpose_a: at_transpose_a
  uint32_t sort_eigenvalues;
  int64_t batch, m, n, k;
} at_k_linalg_params;

// A matrix of rows of ids, as the SparseCore has them: row r ends before
// pointers[r], and the next begins there, rounded up to `alignment`. `entries`:
// of the buffer of ids, which is the number of results too.
// alignment >= 1. INVALID_ARGUMENT names the row whose pointer is before its
// beginning or behind `entries`, that has more than max_per_row entries, or an
// id outside of the table.
typedef struct at_k_csr_params {
  int64_t rows, entries, max_per_row, alignment;
  int64_t table_rows, row_bytes;  // CSR_GATHER
  int32_t pad_value;              // CSR_IOTA: where no entry is
  int32_t unused;
} at_k_csr_params;

#endif
