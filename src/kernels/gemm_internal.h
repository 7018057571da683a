// The blocked matrix product behind GEMM and CONV. An engine is a microkernel
// with its packed layouts; a job says how to pack A, where B and C live, and
// what follows the last block of k.
//
// Memory: packed blocks lie in scratch of the launch; nothing is allocated on
// the way.
// Threads: tiles of C run side by side; a tile is one thread's, and sums go
// over k in the same blocks whatever their number.
#ifndef ATOLL_KERNELS_GEMM_INTERNAL_H_
#define ATOLL_KERNELS_GEMM_INTERNAL_H_

#include "kernels/kernels_internal.h"

// Offsets, in elements, of the indices of one group of dimensions. Inside a
// segment of `inner` indices the offsets grow by `stride`.
// Most operands have one group with one stride; a table is made where a group
// of several dimensions is not one progression.
typedef struct at_gemm_off {
  const int64_t *table;  // NULL: index * stride
  int64_t stride, inner;
} at_gemm_off;
// Offset in elements of index i of the group.
static inline int64_t at_off(const at_gemm_off *o, int64_t i) {
  return o->table ? o->table[i] : i * o->stride;
}
// True if [i, i + n) lies in one segment.
static inline bool at_off_uniform(const at_gemm_off *o, int64_t i, int64_t n) {
  return !o->table || n <= 1 || i / o->inner == (i + n - 1) / o->inner;
}
// True if the indices [i, i + n) are neighbours in memory.
static inline bool at_off_dense(const at_gemm_off *o, int64_t i, int64_t n) {
  return n <= 1 || (o->stride == 1 && at_off_uniform(o, i, n));
}

// What an engine needs to multiply blocks that are packed on their own.
typedef struct at_gemm_blocks at_gemm_blocks;

// A microkernel and the layout of the operands that it reads. Engines are
// constants; which one a CPU has is decided by at_gemm_engine_of.
typedef struct at_gemm_engine {
  const char *name;
  uint32_t pack_type;  // element type of packed A and B
  uint32_t acc_type;   // element type of the accumulator
  int32_t mr, nr;      // rows and columns of a microtile
  int32_t kr;          // k values that stand together in packed B
  int32_t kstep;       // k is padded with zeros to a multiple of this
  int32_t kc;          // k of one block, a multiple of kstep
  bool a_tiles;        // packed A is [kc / kstep][mr][kstep], else [kc][mr]
  // c[i * ldc + j] (+)= sum over k of a, b for i < mr, j < nr. kc is padded.
  // Packed B is [kc / kr][nr][kr].
  void (*micro)(int64_t kc, const void *a, const void *b, void *c, int64_t ldc,
                int mr, int nr, bool add);
  // micro at full width with rows of B brs elements apart, which are also
  // copied to `packed` for the next rows of A. NULL: the engine has none.
  void (*copying)(int64_t kc, const void *a, const void *b, int64_t brs,
                  void *c, int64_t ldc, int mr, bool add, void *packed);
  void (*begin)(void);  // per task: AMX loads and releases its tiles
  void (*end)(void);
  // The same product into tiles that lie dense, which C is made of at the end.
  // NULL: micro writes to C at once.
  const at_gemm_blocks *blocks;
} at_gemm_engine;

// The engine for operands of these types, by the features of this CPU. NULL:
// none.
// Static. The types are at_dtype.
const at_gemm_engine *at_gemm_engine_of(uint32_t a, uint32_t b, uint32_t acc);
// The one whose operands are of the accumulator's type.
const at_gemm_engine *at_gemm_wide_engine(uint32_t acc);
// The AMX engine, or the one of AVX512-BF16 and VNNI (gemm_pairs.c), for these
// types. NULL: this CPU or these types have none.
// They are different engines; the first that is there is taken.
const at_gemm_engine *at_gemm_amx_engine(uint32_t a, uint32_t b, uint32_t acc);
// k whose products AVX512-BF16 adds up before they are added to C.
enum { AT_PAIRS_BLOCK = 128 };
const at_gemm_engine *at_gemm_pairs_engine(uint32_t a, uint32_t b,
                                           uint32_t acc);

// Packed blocks: rows of A and columns of B stand in panels, k in groups of one
// tile.
enum {
  AT_GEMM_PANEL = 32,
  AT_GEMM_GROUP = 32,
  AT_GEMM_GROUP_BYTES = AT_GEMM_PANEL * AT_GEMM_GROUP * 2
};
// Groups that hold k values; the last one is filled up with zeros.
// k >= 0.
static inline int64_t at_gemm_groups(int64_t k) {
  return at_k_ceil_div(k, AT_GEMM_GROUP);
}
// A tile that is done: to = from, or `old` plus that. Strides of rows in bytes.
// Done beside a product, row by row, so that stores fill the time that loads
// leave.
typedef struct at_gemm_put {
  const float *from;  // 32 x 32, dense
  const char *old;    // f32; NULL: nothing
  char *to;
  int64_t old_stride, stride;
  int rows;
  uint32_t columns;  // a bit for each of the 32 that is there
  bool narrow;       // to is bf16
} at_gemm_put;
// Rows [begin, end).
void at_gemm_put_rows(const at_gemm_put *x, int begin, int end);

// c[i * ldc + j], all 32 x 32 of it: sums over groups of 32 k, which go on from
// what c holds (or, block by block, are added to it) or begin with zeros. A is
// [group][32 rows][32 k], B [group][16][32 columns][2], both bf16.
// The operands are packed as at_gemm_block_pack does.
typedef struct at_gemm_block {
  int64_t groups;
  const void *a, *b;
  // Fetched into the second cache meanwhile, so many lines of 64 bytes for each
  // group; NULL: nothing.
  const void *next_a, *next_b;
  int lines_a, lines_b;
  float *c;
  int64_t ldc;
  const float *next_c;  // where a tile lies that goes on next; NULL: unknown
  bool go_on;
  bool half;  // only the first 16 rows are wanted; the others may be anything
  const at_gemm_put *put;  // done meanwhile, in other memory; NULL: nothing
} at_gemm_block;
// Between begin and end this thread runs nothing else that uses AMX tiles.
struct at_gemm_blocks {
  void (*multiply)(const at_gemm_block *x);
  void (*begin)(void);
  void (*end)(void);
  int64_t whole;  // groups whose sum is added to c whole where it goes on
};
// By the features of this CPU. NULL: packed blocks are not for it.
// Static; the same answer for the whole process, but for tests that limit
// features.
const at_gemm_blocks *at_gemm_blocks_of(void);
const at_gemm_blocks *at_gemm_amx_blocks(void);
const at_gemm_blocks *at_gemm_pairs_blocks(void);
// A product of few rows or columns on AMX: c[i * 32 + j] is the sum, over
// groups of 32 k, of bf16 rows and columns, which goes on from what c holds or
// begins with zeros. Row i of A lies at a + i * a_stride, its groups a_step
// bytes apart: packed as at_gemm_block.a, or where the operand has it. B is
// packed as at_gemm_block.b, and near: in the first two caches.
typedef struct at_gemm_strip {
  int64_t groups;
  const void *a, *b;
  int64_t a_stride, a_step;  // bytes
  float *c;
  bool go_on;
  int rows, cols;  // that are wanted, 1 to 32; others of c may be anything, and
                   // those from 16 on are not read of A if none is wanted
} at_gemm_strip;
// Between begin and end of at_gemm_amx_blocks.
void at_gemm_amx_strip(const at_gemm_strip *x);

// One product C = A B, or many of one shape (batch). Sizes m, n, k are those of
// C's rows and columns and of the sum; offsets are in elements, also where an
// operand is transposed or split. The job borrows all that it points to until
// at_gemm_run returns.
typedef struct at_gemm_job at_gemm_job;
// Writes rows [i, i + rows) by k [k, k + kc) of A of one batch in its own
// element type. Row-major: dst[r * ld + k], else dst[k * ld + r]; zeros up to
// `width` rows and `kpad` columns.
typedef void (*at_gemm_pack_a_fn)(const at_gemm_job *j, int64_t batch,
                                  int64_t i, int64_t rows, int64_t width,
                                  int64_t k, int64_t kc, int64_t kpad,
                                  bool row_major, int64_t ld, void *dst);
struct at_gemm_job {
  const at_gemm_engine *e;
  int64_t batch, m, n, k;
  uint32_t a_type, b_type, c_type;
  const char *a, *b;
  char *c;
  at_gemm_pack_a_fn pack_a;
  const void *pack_a_ctx;
  // Decides in which order packing walks A.
  bool a_by_k;           // neighbours in A are of one k rather than of one row
  at_gemm_off a_m, a_k;  // used by at_gemm_pack_a_strided
  at_gemm_off b_k, b_n, c_m, c_n;
  // Offsets of batch `i` in A, B and C.
  void (*batch_off)(const at_gemm_job *j, int64_t i, int64_t off[3]);
  const void *batch_ctx;
  const void *bias;  // acc type, per column (per row when bias_rows), or NULL
  bool bias_rows;
  bool add;  // to what C holds, which is written in place; k is one block
};

// Runs all products of the job by packing. INVALID parameters must have been
// refused before. RESOURCE_EXHAUSTED without scratch memory, with C untouched.
at_status at_gemm_run(const at_par *par, const at_gemm_job *j);
// at_gemm_pack_a_fn of operands that offsets describe: a_m and a_k of the job.
void at_gemm_pack_a_strided(const at_gemm_job *j, int64_t batch, int64_t i,
                            int64_t rows, int64_t width, int64_t k, int64_t kc,
                            int64_t kpad, bool row_major, int64_t ld,
                            void *dst);
// Packs columns [n0, n0 + cols) of B (panels of nr, each kpad * nr elements,
// `panel` elements apart) for k in [k0, k0 + kc). raw: a panel of b_type per
// worker.
void at_gemm_pack_b(const at_gemm_job *j, int64_t batch, int64_t n0,
                    int64_t cols, int64_t k0, int64_t kc, int64_t kpad,
                    int64_t panel, void *raw, void *dst);
// Converts a finished tile of accumulators and stores it into C.
// Rows and columns behind m and n are not stored.
void at_gemm_store(const at_gemm_job *j, int64_t c_off, int64_t i0,
                   int64_t rows, int64_t j0, int64_t cols, void *acc,
                   int64_t ld);

// A tile of sums that is done, 32 columns wide, goes to rows [i0, i0 + rows)
// and columns [j0, j0 + cols) of C: by `put`, if it can be said so, which the
// caller then does, else at once.
void at_gemm_finish_tile(const at_gemm_job *j, int64_t c_off, int64_t i0,
                         int rows, int64_t j0, int cols, float *tile,
                         at_gemm_put *put);
// m must be F32 or BF16 with a dense side; `to` is 64-byte aligned and takes
// at_k_block_bytes(m). `columns`: m is B.
// Packs a block, whatever its size, on this thread.
void at_gemm_block_pack(const at_k_matrix *m, bool columns, void *to);

// The special forms below return true where they have run the product or failed
// with *st, and false, with nothing written, where the shape is not theirs or
// another form does it better. Types and shape alone decide.
// Few rows: streams B once, unpacked. Returns false when the shape is not its
// own.
bool at_gemm_thin(const at_par *par, const at_gemm_job *j, at_status *st);
// A few tiles of rows: B is packed by the first of them, panel by panel.
bool at_gemm_narrow(const at_par *par, const at_gemm_job *j, at_status *st);
// Many rows, read in place, of so few columns that one microtile has them all.
bool at_gemm_slim(const at_par *par, const at_gemm_job *j, at_status *st);
// A small C with a long sum: both operands are read in place.
bool at_gemm_long(const at_par *par, const at_gemm_job *j, at_status *st);
// C and the product transposed: few columns become few rows. *out refers to j.
// The product itself is not run.
void at_gemm_transpose(const at_gemm_job *j, at_gemm_job *out);
// A microkernel for operands in place: element (i, k) of A is at
// a[i * ars + k * acs], rows of B are brs apart and hold whole vectors. NULL:
// the type has none.
typedef void (*at_gemm_strided_fn)(int64_t kc, const void *a, int64_t ars,
                                   int64_t acs, const void *b, int64_t brs,
                                   void *c, int64_t ldc, int mr, int nr,
                                   bool add);
at_gemm_strided_fn at_gemm_strided_of(uint32_t acc);
// The same on AMX.
bool at_gemm_strips(const at_par *par, const at_gemm_job *j, at_status *st);
// Small, dense and of one float type, or a batch of such products: no packing.
// False, with C as it was, where it is not that.
bool at_gemm_small(const at_par *par, const at_gemm_job *j);

#endif
