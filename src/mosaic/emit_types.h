// What the writer of kernel bodies works on: numbers and refs that may be
// known, expressions, records, and the function under construction. emit.h has
// the operations.
#ifndef ATOLL_MOSAIC_EMIT_TYPES_H_
#define ATOLL_MOSAIC_EMIT_TYPES_H_

#include "base/map.h"
#include "base/walk.h"
#include "codegen/build.h"
#include "mosaic/code.h"
#include "mosaic/forms.h"
#include "mosaic/plan.h"

typedef struct at_me_node at_me_node;
typedef struct at_me_life at_me_life;
typedef struct at_me_link at_me_link;

// AT_ME_RANK: dimensions of a value; AT_ME_MAX_IN: operands of an expression.
enum {
  AT_ME_RANK = AT_CORE_MAX_RANK,
  AT_ME_MAX_IN = 8,
  AT_ME_KEEP_COST = 6,    // of an element that a cut keeps in memory
  AT_ME_MAX_HEIGHT = 600  // of an expression; walks over one may recurse
};

// A number that may be known: v NULL means the constant c; v is i64.
// Arithmetic on known numbers is done while code is written, so constants leave
// no instructions.
typedef struct at_me_num {
  int64_t c;
  LLVMValueRef v;
} at_me_num;

// The memory that a ref is part of: what is known of it when an argument is
// bound or memory is allocated. Views share it.
typedef struct at_me_home {
  at_mosaic_space space;
  // Memory of different roots does not overlap, but for AT_MPLAN_ANY_ROOT.
  uint32_t root;
  bool pages;    // of scratch where copies may wait (plan_pages.c)
  uint32_t arg;  // 1 + the argument behind the grid ids that it is of, or 0
} at_me_home;

// How elements of a view lie in those of memory: bitcasts and packed rows.
typedef struct at_me_packing {
  // Both 1 where they are the same (at_me_plain). parts > 1: an element is made
  // of that many memory elements, part_stride apart along the packed dimension.
  // split > 1: a memory element holds that many of ours along the packed
  // dimension, which is `packed`; our index there counts from `row`.
  uint32_t parts, split, packed;
  at_me_num part_stride, row;
  // Greater than 1: rows of parts that were cut into so many along the packed
  // dimension, fold_stride apart. Only loads and stores know such a ref.
  uint32_t folds;
  at_me_num fold_stride;
} at_me_packing;
extern const at_me_packing at_me_plain;

// A memref: where its first element is and how its dimensions lie in memory.
// What home, packing and valid point to never changes: a view that differs gets
// its own (at_me_rehome, at_me_repack, at_me_keep_valid).
typedef struct at_me_ref {
  // A pointer to the element of index 0 in every dimension.
  LLVMValueRef base;
  at_dtype dtype;    // element of the view; INVALID: semaphores
  at_dtype storage;  // element in memory
  uint32_t bytes;    // of an element in memory; strides count these
  uint32_t rank;
  at_me_num size[AT_ME_RANK], stride[AT_ME_RANK];
  const at_me_home *home;        // never NULL
  const at_me_packing *packing;  // never NULL
  // An array in HBM has room up to the next tile, and slices may reach into it.
  // What is really there of each dimension; NULL: all of it.
  const at_me_num *valid;
} at_me_ref;
// As at_core_out_of_bounds is told of it.
// 1 + the argument's index for memory of the caller; for the kernel's own
// memory one number for semaphores and one for everything else.
static inline int32_t at_me_ref_number(const at_me_ref *r) {
  if (r->home->arg) return (int32_t)r->home->arg;
  return r->home->space == AT_MSPACE_SEMAPHORE ? AT_CORE_OWN_SEMAPHORES
                                               : AT_CORE_OWN;
}

// What a vector expression is. The comment of each kind says which fields of
// the node it uses; `in` holds the operands in the operation's order.
typedef enum at_me_kind {
  // scalar: its value.
  AT_ME_SPLAT,      // one scalar everywhere
  AT_ME_IOTA,       // ints: dimensions
  AT_ME_LOAD,       // `ref`, a view of this shape
  AT_ME_BUFFER,     // dense temporary or constant at ref.base
  AT_ME_APPLY,      // elementwise `op`
  AT_ME_RESHAPE,    // the same elements in row-major order
  AT_ME_BROADCAST,  // right-aligned dimensions
  AT_ME_TRANSPOSE,  // ints: permutation
  AT_ME_SLICE,      // ints: offsets; step: strides
  AT_ME_ROTATE,     // ints: dimension, stride, stride dimension or -1
  AT_ME_TAKE,       // in[1]: indices along ints[0]
  AT_ME_PICK,       // table: static indices along ints[0]
  AT_ME_REPEAT,     // copies one after another along ints[0]
  AT_ME_JOIN,       // part `ints[1]` .. of packed rows: bitcast to wider
  AT_ME_SPLIT,      // bitcast to narrower along dimension ints[0]
  AT_ME_MASK,       // ints: low, step: high per dimension
  AT_ME_DOT         // a product that nobody has asked for yet
} at_me_kind;

// A vector value, of `rank` dimensions `dim`, that is computed where it is
// used. Nodes live in the function's arena and are counted (at_me_life.refs):
// the last drop releases the temporary memory of a BUFFER.
struct at_me_node {
  at_me_kind kind;
  at_dtype dtype;
  uint32_t rank;
  int64_t dim[AT_ME_RANK];
  const at_mop *op;
  at_mosaic_opcode code;  // APPLY
  at_me_node *in[AT_ME_MAX_IN];
  uint32_t num_in;
  LLVMValueRef scalar;   // SPLAT: a register; ROTATE: the amount, i32
  const at_me_ref *ref;  // LOAD, BUFFER; MASK: sizes, strides; never NULL
  int64_t ints[AT_ME_RANK], step[AT_ME_RANK];
  uint64_t reads;    // roots that it may still read
  at_me_life *life;  // when it is needed, and where: emit_life.h
};

// Lists of nodes that are not computed yet: by a bit of `reads`, of those that
// read anything, of products.
// Loops within loops are linked, so that a node that leaves a list moves all of
// them on.
enum { AT_ME_LIST_ANY = 64, AT_ME_LIST_DOTS, AT_ME_LISTS };
// Where a loop over a list is. The loop may compute nodes, which leave it.
typedef struct at_me_cursor {
  at_me_link *next;
  struct at_me_cursor *outer;
} at_me_cursor;

// A record under construction (emit_record.c): what is known of it, and values
// that are stored at run time.
// Bytes of a record, and how many of its values may come at run time.
enum { AT_ME_RECORD_BYTES = 512, AT_ME_RECORD_LATE = 48 };
typedef struct at_me_record {
  uint32_t bytes, num_late;
  uint8_t known[AT_ME_RECORD_BYTES];
  struct {
    uint32_t at;
    LLVMValueRef v;
  } late[AT_ME_RECORD_LATE];
} at_me_record;

// A loop that threads share (emit_share.c).
typedef struct at_me_share {
  at_b_task task;
  LLVMValueRef record;  // of the function around
  int64_t turns;
  int64_t turn_bytes;  // memory for the rows of a turn, per thread
} at_me_share;

// Inside a loop over rows (emit_rows.c): how many there are, those of a turn,
// and the first of these. Count 0: everything is computed whole.
typedef struct at_me_rows {
  int64_t count, step;
  at_ix first;
} at_me_rows;
extern const at_me_rows at_me_whole_rows;

// Parts of a function under construction, each known to one file.
typedef struct at_me_symbols at_me_symbols;    // emit_symbols.c
typedef struct at_me_places at_me_places;      // emit_places.c
typedef struct at_me_temp at_me_temp;          // emit_temp.c
typedef struct at_me_pending at_me_pending;    // emit_value.c
typedef struct at_me_records at_me_records;    // emit_record.c
typedef struct at_me_products at_me_products;  // emit_dot_rows.c
typedef struct at_me_mxu at_me_mxu;            // emit_mxu.c

// A function under construction.
// Pointers that are const here are set once by emit_kernel.c; the last lines
// are the position of the writer, which loops, regions and calls save and put
// back.
typedef struct at_me {
  // Borrowed for as long as the function is written.
  // The generator's function: module, builder, status.
  at_em *const e;
  at_arena *const a;
  const at_mosaic_kernel *const k;
  const at_mosaic_program *const p;
  const at_mosaic_code_options *const o;
  const at_mosaic_window *const window;  // a transform; NULL: the body
  const at_mplan *const plan;
  // Its arguments: at_core *, the grid ids, at_core_ref[].
  const LLVMValueRef core, grid, refs;
  at_me_symbols *const symbols;
  at_me_places *const places;
  at_me_temp *const temp;
  at_me_pending *const pending;
  at_me_records *const records;
  at_me_products *const products;
  at_me_mxu *const mxu;
  // Where code is written.
  // region: the part of the body at hand, each with a number of its own; depth:
  // loops around it.
  uint32_t region, next_region, depth;
  uint32_t calls;          // nesting of func.call
  uint32_t written_calls;  // those that were written so far
  uint32_t guards;         // bounds tests written so far
  bool within;  // nodes that are made now stay in their loop over rows
  const at_me_rows *rows;
  at_me_share *share;  // a loop that threads share is written; NULL: none
} at_me;

#endif
