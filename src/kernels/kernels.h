// Runtime kernels: what is too large or too irregular to generate per program.
// Found by id (abi/kernels.def); called by `exec` with dense buffers and plain
// parameters.
//
// Memory: operands are borrowed for the call and never kept; scratch comes from
// the launch (at_par).
// Threads: kernels run on the caller's thread and the pool's, several calls
// side by side. Results do not depend on how many.
#ifndef ATOLL_KERNELS_KERNELS_H_
#define ATOLL_KERNELS_KERNELS_H_

#include "abi/executable.h"
#include "base/parallel.h"
#include "base/status.h"

// One call of a kernel; everything is borrowed.
typedef struct at_k_call {
  const at_par *par;
  const void *params;  // the struct of the kernel's row, checked for size
  void *const *bufs;   // operands, then results
  uint32_t num_bufs;
  at_comparator_fn compare;  // SORT with AT_ORDER_CUSTOM, else NULL
} at_k_call;
// Runs one call. Checks its parameters before it writes anything; blocks until
// results are complete. `par` may be used by other calls at the same time only
// if its scratch memory is not.
typedef at_status (*at_k_fn)(const at_k_call *c);

// One row of abi/kernels.def.
typedef struct at_k_info {
  const char *name;
  at_k_fn run;
  uint32_t params_bytes;
  const char *doc;
} at_k_info;
// Indexed by at_rt_kernel.
// NULL for an unknown id. The table is constant.
const at_k_info *at_k_of(at_rt_kernel id);

#define AT_RT_KERNEL(Id, fn, params, doc) at_status fn(const at_k_call *c);
#include "abi/kernels.def"
#undef AT_RT_KERNEL

// GEMM that adds to what C holds, with the bits of a product that is added
// afterwards: where C has the accumulator's type, f32 or s32, and dense rows,
// and the product is large enough to be packed with k in one block. false:
// nothing was done.
bool at_k_gemm_add(const at_k_call *c, at_status *st);

// ---- Blocks that take part in many products
// One operand: `outer` rows of A or columns of B, each of k values. Strides in
// bytes. f32 is rounded to bf16.
typedef struct at_k_matrix {
  const void *p;
  uint32_t type;
  int64_t outer, k, outer_stride, k_stride;
} at_k_matrix;
// Does this CPU multiply such operands as packed blocks? The other functions
// are only for those; the answer depends on types, sizes and strides alone.
bool at_k_block_fits(const at_k_matrix *a, const at_k_matrix *b);
// Bytes of m packed: whole panels of 32 rows by whole groups of 32 k, bf16.
size_t at_k_block_bytes(const at_k_matrix *m);  // packed
// to: 64-byte aligned. columns: m is B.
void at_k_block_pack(const at_par *par, const at_k_matrix *m, bool columns,
                     void *to);
// Parts of k: packed operands of as many rows and columns.
typedef struct at_k_block_part {
  const void *a, *b;
  int64_t k;
} at_k_block_part;
// c[i * ldc + j] = sum over k of all parts of a[i, k] b[k, j], or, where `add`,
// c plus that sum. Bits do not depend on threads, and are those of one product
// after the other, each added to c.
typedef struct at_k_block_sum {
  const at_k_block_part *parts;
  int64_t num_parts;
  float *c;
  int64_t ldc;
  bool add;
  void *to;  // takes the result instead of c, as F32 or BF16; NULL: c does
  uint32_t to_type;
  int64_t to_stride;  // of rows, in bytes
} at_k_block_sum;
// m: rows of the parts' a, n: columns of their b. Operands and c do not
// overlap; takes no scratch, cannot fail.
void at_k_block_multiply(const at_par *par, int64_t m, int64_t n,
                         const at_k_block_sum *s);
// The same by this thread alone, a few rows at a time: between begin and end it
// runs no other product. rows_pack: rows of A that were just computed.
void at_k_block_rows_begin(void);
// at_k_block_pack of rows of A by this thread alone.
void at_k_block_rows_pack(const at_k_matrix *a, void *to);
// m rows, at_k_block_multiply's sum of one part. Only between rows_begin and
// rows_end.
void at_k_block_rows(int64_t m, int64_t n, const at_k_block_part *part,
                     float *c, int64_t ldc, bool add);
// Releases what at_k_block_rows_begin set up for this thread (tile registers).
void at_k_block_rows_end(void);

// c[i * ldc + j] (+)= sum over k of a[i, k] b[k, j] for a few rows, both
// operands read where they lie. fits: is it for them, on this CPU? Else nothing
// else may be called. par: NULL: by this thread alone.
bool at_k_few_fits(const at_k_matrix *a, const at_k_matrix *b, bool add);
// pages: where b is, instead of b->p, `count` times `rows` of its columns if
// their k is dense, else of its k, an even number; NULL: b->p.
typedef struct at_k_pages {
  const void *const *page;
  int64_t count, rows;
  const void *next;  // which will be read after them, fetched; NULL: unknown
} at_k_pages;
// Takes no scratch memory and cannot fail. Bits do not depend on threads.
void at_k_few(const at_par *par, const at_k_matrix *a, const at_k_matrix *b,
              const at_k_pages *pages, float *c, int64_t ldc, bool add);

// dst[i] = (dst type) src[i] for n dense elements. Floats round to nearest
// even; wide integers wrap; float to integer truncates and saturates; real to
// complex has a zero imaginary part; complex to real keeps the real part. `dst`
// and `src` do not overlap.
void at_k_convert(uint32_t dst_type, void *dst, uint32_t src_type,
                  const void *src, int64_t n);

#endif
