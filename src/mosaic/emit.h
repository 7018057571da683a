// The writer of kernel bodies. Vector values are expressions: nothing is
// computed until a sink (a store, a reduction, a product, a value that several
// sinks need) walks them in one loop nest. Refs are descriptions of memory
// whose parts are constants or registers; views of refs cost nothing.
//
// One thread writes a function. What is made on the way lives in its arena, and
// in LLVM's context, until the function is done.
#ifndef ATOLL_MOSAIC_EMIT_H_
#define ATOLL_MOSAIC_EMIT_H_

#include "base/map.h"
#include "base/walk.h"
#include "codegen/build.h"
#include "mosaic/code.h"
#include "mosaic/forms.h"
#include "mosaic/plan.h"

typedef struct at_me_node at_me_node;
typedef struct at_me_life at_me_life;
typedef struct at_me_link at_me_link;

enum {
  AT_ME_RANK = AT_CORE_MAX_RANK,
  AT_ME_MAX_IN = 8,
  AT_ME_KEEP_COST = 6,    // of an element that a cut keeps in memory
  AT_ME_MAX_HEIGHT = 600  // of an expression; walks over one may recurse
};

// A number that may be known: v NULL means the constant c; v is i64.
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
static inline int32_t at_me_ref_number(const at_me_ref *r) {
  if (r->home->arg) return (int32_t)r->home->arg;
  return r->home->space == AT_MSPACE_SEMAPHORE ? AT_CORE_OWN_SEMAPHORES
                                               : AT_CORE_OWN;
}

typedef enum at_me_kind {
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
enum { AT_ME_LIST_ANY = 64, AT_ME_LIST_DOTS, AT_ME_LISTS };
// Where a loop over a list is. The loop may compute nodes, which leave it.
typedef struct at_me_cursor {
  at_me_link *next;
  struct at_me_cursor *outer;
} at_me_cursor;

// A record under construction (emit_record.c): what is known of it, and values
// that are stored at run time.
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
// NULL: no memory.
at_me_symbols *at_me_symbols_new(at_arena *a);
at_me_places *at_me_places_new(at_arena *a, const at_mloc **locs,
                               const char **ops, uint32_t max);
at_me_temp *at_me_temp_new(at_arena *a, LLVMValueRef base);
at_me_pending *at_me_pending_new(at_arena *a);
at_me_records *at_me_records_new(at_arena *a);
at_me_products *at_me_products_new(at_arena *a);
at_me_mxu *at_me_mxu_new(at_arena *a);

// A function under construction.
typedef struct at_me {
  at_em *const e;
  at_arena *const a;
  const at_mosaic_kernel *const k;
  const at_mosaic_program *const p;
  const at_mosaic_code_options *const o;
  const at_mosaic_window *const window;  // a transform; NULL: the body
  const at_mplan *const plan;
  const LLVMValueRef core, grid, refs;
  at_me_symbols *const symbols;
  at_me_places *const places;
  at_me_temp *const temp;
  at_me_pending *const pending;
  at_me_records *const records;
  at_me_products *const products;
  at_me_mxu *const mxu;
  // Where code is written.
  uint32_t region, next_region, depth;
  uint32_t calls;   // nesting of func.call
  uint32_t guards;  // bounds tests written so far
  bool within;      // nodes that are made now stay in their loop over rows
  const at_me_rows *rows;
  at_me_share *share;  // a loop that threads share is written; NULL: none
} at_me;

// ---- values
// What a value is. One that is not there yet, or is something else: an internal
// error is noted, and the result is poison or NULL.
LLVMValueRef at_me_scalar(at_me *m, const at_mvalue *v);
at_me_node *at_me_vector(at_me *m, const at_mvalue *v);
const at_me_ref *at_me_memory(at_me *m, const at_mvalue *v);
void at_me_set_scalar(at_me *m, const at_mvalue *v, LLVMValueRef s);
// Takes over the node as the result of an operation: lazy, or computed at once
// when the analysis says so.
at_status at_me_set_node(at_me *m, at_mvalue *v, at_me_node *n);
void at_me_set_ref(at_me *m, const at_mvalue *v, const at_me_ref *r);
// `to` is what `from` is.
void at_me_same_value(at_me *m, const at_mvalue *from, const at_mvalue *to);
void at_me_forget(at_me *m, const at_mvalue *v);  // nothing yet
// Is it a ref of folded rows? False: it is not there yet.
bool at_me_is_folded(at_me *m, const at_mvalue *v);
// The operands of op, which may be NULL, are used once more, now.
void at_me_drop_operands(at_me *m, const at_mop *op);
// The number of op's place; in transforms -1. Operations inside `op` without a
// place of their own stand where it does, between enter and leave, which is
// given what enter yielded.
int32_t at_me_loc(at_me *m, const at_mop *op);
LLVMValueRef at_me_loc_value(at_me *m, const at_mop *op);  // as an i32
const at_mloc *at_me_place_enter(at_me *m, const at_mop *op);
void at_me_place_leave(at_me *m, const at_mloc *outer);
uint32_t at_me_places_num(const at_me *m);
__attribute__((format(printf, 3, 4))) at_status at_me_refuse(at_me *m,
                                                             const at_mop *op,
                                                             const char *fmt,
                                                             ...);

LLVMValueRef at_me_i32(at_me *m, int64_t v);
LLVMValueRef at_me_i64(at_me *m, LLVMValueRef i32);  // sign-extended
// An i32 of the at_core, `at` bytes from its start.
LLVMValueRef at_me_core_field(at_me *m, size_t at);
LLVMValueRef at_me_num_value(at_me *m, at_me_num n);
// base + n * bytes
LLVMValueRef at_me_offset(at_me *m, LLVMValueRef base, uint32_t bytes,
                          at_me_num n);
// Stores v `at` bytes behind p.
void at_me_put(at_me *m, LLVMValueRef p, size_t at, LLVMValueRef v);
// All begins as zeros; a place takes one value. The pointer that `end` yields
// holds until the next record is made.
void at_me_record_begin(at_me_record *r, size_t bytes);
void at_me_record_i32(at_me_record *r, size_t at, int32_t v);
void at_me_record_num(at_me *m, at_me_record *r, size_t at, at_me_num i64);
void at_me_record_value(at_me *m, at_me_record *r, size_t at, LLVMValueRef v);
LLVMValueRef at_me_record_end(at_me *m, const at_me_record *r);
// Records are completed at `place` from now on (NULL: memory that the next one
// takes); yields the old one. Functions that are written inside another have a
// stack of their own.
LLVMValueRef at_me_records_move(at_me *m, LLVMValueRef place);
at_me_num at_me_num_of(LLVMValueRef i64);
at_me_num at_me_add(at_me *m, at_me_num a, at_me_num b);
at_me_num at_me_mul(at_me *m, at_me_num a, at_me_num b);

// ---- nodes
at_me_node *at_me_node_new(at_me *m, at_me_kind kind, const at_mop *op,
                           const at_mtype *type);
// A ref of n's own: a copy of what it has, to be changed before anybody else
// sees n. Never NULL; no memory is noted (at_em_fail).
at_me_ref *at_me_node_ref(at_me *m, at_me_node *n);
void at_me_node_hold(at_me *m, at_me_node *n, at_me_node *in);
void at_me_node_reads(at_me *m, at_me_node *n, uint64_t roots);
void at_me_node_release(at_me *m, at_me_node *n);
at_me_node *at_me_retain(at_me_node *n);  // one use more
void at_me_expect_uses(at_me_node *n, uint32_t uses);
uint32_t at_me_uses_of(const at_me_node *n);  // nodes that hold it, too
// Nodes on the longest path of the expression.
uint32_t at_me_height_of(const at_me_node *n);
// Does its memory have the rows of one turn only?
bool at_me_is_of_turn(const at_me_node *n);
// For walks over expressions: every use begins with a clear.
at_walk *at_me_walk(at_me *m);
void at_me_node_unlist(at_me *m, at_me_node *n);
// Nodes of a list, each once, while others may leave it:
//   at_me_cursor c;
//   for (at_me_node *n = at_me_list_begin(m, list, &c); n; n =
//   at_me_list_next(&c)) at_me_list_end(m, &c), also where the loop ends early.
at_me_node *at_me_list_begin(at_me *m, uint32_t list, at_me_cursor *c);
at_me_node *at_me_list_next(at_me_cursor *c);
void at_me_list_end(at_me *m, at_me_cursor *c);
// The first list from `list` on whose nodes may read one of these roots;
// AT_ME_LIST_DOTS: none is left.
uint32_t at_me_list_of(uint64_t roots, uint32_t list);
// A home, or a packing, of r's own: a copy of what it has, to be changed before
// anybody else sees r. Never NULL; no memory is noted (at_em_fail).
at_me_home *at_me_rehome(at_me *m, at_me_ref *r);
at_me_packing *at_me_repack(at_me *m, at_me_ref *r);
// A copy for at_me_ref.valid.
const at_me_num *at_me_keep_valid(at_me *m, const at_me_num valid[AT_ME_RANK]);
// The last `rank` dimensions; those before have size 1.
void at_me_ref_trim(at_me *m, at_me_ref *r, uint32_t rank);
// Strides of `to` (sizes known) over the memory of `from`; false: not one view.
bool at_me_reshape_view(at_me *m, const at_me_ref *from, at_me_ref *to);
void at_me_node_drop(at_me *m, at_me_node *n);  // one use fewer
int64_t at_me_elements(const at_me_node *n);
at_me_node *at_me_splat(at_me *m, at_dtype t, LLVMValueRef scalar);
at_val at_me_eval(at_me *m, at_me_node *n, const at_pos *p);
at_val at_me_apply(at_me *m, const at_mop *op, at_mosaic_opcode code,
                   const at_dtype *types, at_dtype rt, at_val *args);
at_dtype at_me_unsigned_of(at_dtype t);
// Registers as integers of the storage width (logical bits, zero above) and
// back.
LLVMValueRef at_me_to_bits(at_me *m, at_dtype t, LLVMValueRef v);
LLVMValueRef at_me_from_bits(at_me *m, at_dtype t, LLVMValueRef bits);
at_val at_me_ref_load(at_me *m, const at_me_ref *r, const at_pos *p);
void at_me_ref_store(at_me *m, const at_me_ref *r, const at_pos *p, at_val v);

// ---- sinks
// Makes a BUFFER (or what is as good: a dense constant) of n, in place if its
// region is this one, else a new node; the caller drops it either way.
at_me_node *at_me_materialise(at_me *m, at_me_node *n);
// The same for what only needs random access: loads stay.
at_me_node *at_me_readable(at_me *m, at_me_node *n);
at_me_node *at_me_buffer(at_me *m, const at_mop *op, at_dtype t, uint32_t rank,
                         const int64_t *dim);
// Computes n and, in the same loops, what n is made of and operations to come
// use, too: a chain of values that is cut like this is computed once.
void at_me_cut(at_me *m, at_me_node *n);
// Everything below n that cannot be computed inside a loop nest is computed.
void at_me_prepare(at_me *m, at_me_node *n);
// turn: transposes that are computed by turning squares, too.
void at_me_prepare_as(at_me *m, at_me_node *n, bool turn);
// Computes lazy nodes that read these roots and are needed after the current
// operation, whose operand `own` (or NULL) is.
void at_me_settle(at_me *m, uint64_t roots, const at_me_node *own);
void at_me_settle_all(at_me *m, const at_mop *region);
// dst[i] = n[i] (where mask), over all elements.
typedef enum at_me_store_mode { AT_ME_PLAIN, AT_ME_ADD } at_me_store_mode;
void at_me_copy_to(at_me *m, at_me_node *n, const at_me_ref *dst,
                   at_me_node *mask, at_me_store_mode mode);
// Is n a transpose that is computed by turning squares of vectors? Into dst:
// false where its layout does not allow that, and nothing is done.
bool at_me_turns_lanes(at_me *m, const at_me_node *n);
bool at_me_turn_into(at_me *m, at_me_node *n, const at_me_ref *dst);
typedef void (*at_me_body_fn)(at_me *m, const at_pos *p, void *arg);
// Runs body over digits whose innermost has the lanes that fit `nodes`.
typedef struct at_me_space {
  int64_t total, cut[3 * AT_ME_RANK];  // suffix products
  uint32_t n;
  uint32_t widest;  // register bytes
  bool scalar;      // no lanes
  double work;      // what all of it costs, where threads may share it; else 0
} at_me_space;
void at_me_space_add(at_me_space *s, int64_t suffix);
void at_me_space_dims(at_me_space *s, uint32_t rank, const int64_t *dim);
void at_me_space_ref(at_me_space *s, const at_me_ref *r);
void at_me_space_widen(at_me_space *s, at_dtype t);  // registers hold t, too
void at_me_space_tree(at_me *m, at_me_space *s, at_me_node *n);
void at_me_loops(at_me *m, const at_me_space *s, at_me_body_fn body, void *arg);
uint32_t at_me_lanes(at_me *m, const at_me_space *s, int64_t size);
LLVMValueRef at_me_temp_at(at_me *m, int64_t offset);
LLVMValueRef at_me_turn_at(at_me *m, int64_t offset);
int64_t at_me_temp_alloc(at_me *m, int64_t bytes);
void at_me_temp_free(at_me *m, int64_t offset, int64_t bytes);
// The same of memory for the rows of one turn, which has no other use until
// the loop over rows ends.
int64_t at_me_turn_alloc(at_me *m, int64_t bytes);
void at_me_turn_free(at_me *m, int64_t offset, int64_t bytes);
void at_me_turns_end(at_me *m);
// Frees the buffer when the loop around it ends, which comes round again.
void at_me_temp_later(at_me *m, at_me_node *n);
void at_me_leave_loop(at_me *m);
int64_t at_me_temp_bytes(const at_me *m);  // taken at the same time, at most

// ---- loops that threads share
// Is it worth the while, and may this be one? work: elements times the cost of
// one.
bool at_me_shares(at_me *m, double work);
// The code between the two is turns of `step` out of [0, size), which nothing
// orders: lo .. hi are those of a call.
void at_me_share_begin(at_me *m, at_me_share *s, int64_t size, int64_t step,
                       LLVMValueRef *lo, LLVMValueRef *hi);
void at_me_share_end(at_me *m);
// A constant in which loops differ that are the same code else: that code is
// compiled once, when it is handed the constant.
LLVMValueRef at_me_handed(at_me *m, LLVMValueRef constant);
// A loop over [0, size) by step, a divisor, whose turns threads share or not.
void at_me_loop_begin(at_me *m, at_me_share *s, at_loop *l, int64_t size,
                      int64_t step, bool shared);
void at_me_loop_end(at_me *m, const at_me_share *s, at_loop *l);
// What an element of n costs.
double at_me_node_cost(at_me *m, const at_me_node *n);

void at_me_dense(at_me *m, at_me_ref *r, LLVMValueRef base, at_dtype t,
                 uint32_t rank, const int64_t *dim);
// A view of n's elements for a callee: n is made readable in one type without
// casts. Yields the node to drop.
at_me_node *at_me_view(at_me *m, at_me_node *n, at_me_ref *view);
// The same for a callee that knows what to do where view->pages.
at_me_node *at_me_view_pages(at_me *m, at_me_node *n, at_me_ref *view);

LLVMValueRef at_me_mark(at_me *m);
void at_me_release_to(at_me *m, const at_mop *op, LLVMValueRef mark);

// ---- operations: one handler for each that ops.def names
#define AT_MOSAIC_OP(Id, name, operands, results, attrs, rule, cost, form, \
                     weight, handler, doc)                                 \
  at_status at_me_op_##handler(at_me *m, at_mop *op);
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP
at_status at_me_emit_block(at_me *m, at_mblock *b);
// Calls for a debugger, where the options want them (emit_debug.c): before an
// operation, if its line is not *line, which then is; where a block begins;
// behind an operation that makes a ref.
void at_me_debug_line(at_me *m, const at_mop *op, const at_mloc **line);
void at_me_debug_block(at_me *m, const at_mblock *b);
void at_me_debug_made(at_me *m, const at_mop *op);
at_status at_me_emit_ops(at_me *m, at_mblock *b, uint32_t count);  // the first
// One loop over the rows of the values of a run.
at_status at_me_emit_rows(at_me *m, const at_mplan_run *run);
// A loop over a dimension of what is computed; of the outermost that is not 1,
// only over the rows of this turn.
void at_me_rows_begin(at_me *m, at_loop *l, int64_t extent, bool outermost,
                      at_ix *ix);
at_status at_me_emit_op(at_me *m, at_mop *op);
// Around the body: memory for the MXU's registers, and a test that the sums are
// empty.
at_status at_me_mxu_begin(at_me *m, const at_mblock *body);
void at_me_mxu_end(at_me *m);
// sum += a b for matrices (b transposed: a b'); where `first` holds, sum = a b.
at_status at_me_dot_add(at_me *m, const at_mop *op, at_me_node *a,
                        at_me_node *b, bool transposed, const at_me_ref *sum,
                        LLVMValueRef first);
void at_me_dot_run(at_me *m, at_me_node *dot, const at_me_ref *dst,
                   bool accumulate);
// A sum that a store begins with a product (plan.h): where `first` holds, what
// was there does not count. NULL: the store does not begin one.
typedef struct at_me_start {
  LLVMValueRef first;
  bool may_wait;  // the product may come later than the store
} at_me_start;
bool at_me_dot_into(at_me *m, at_me_node *value, const at_me_ref *dst,
                    at_me_start start);
// Before the loop, for each such product, at_me_dot_rows_pack, and after it
// at_me_dot_rows_free once. Each thread's turns lie between begin and end.
// a_too: the first operand is there before the loop.
void at_me_dot_rows_pack(at_me *m, const at_mop *op, bool a_too);
void at_me_dot_rows_begin(at_me *m);
void at_me_dot_rows_end(at_me *m);
void at_me_dot_rows_free(at_me *m);
at_me_start at_me_start_of(at_me *m, const at_mop *store);
// Zeros into the sum where `first` holds.
void at_me_start_now(at_me *m, LLVMValueRef first, const at_me_ref *sum);
// Before a block that uses sums whose products may still be missing.
void at_me_late_finish(at_me *m, const at_mblock *b);
// The store of a value that is such a sum, perhaps rounded, into a box: true
// where it is done, false where it is still to be done.
bool at_me_late_take(at_me *m, const at_mop *store, const at_me_ref *box);
// A ref that control flow chooses or carries. begin: at the start of a block;
// a: one that comes in, b: the other one, NULL: a loop brings more, which lie
// in memory as a does. add: for each way in, a whole ref.
typedef struct at_me_join {
  at_me_ref ref;
  uint32_t phis;
} at_me_join;
void at_me_join_begin(at_me *m, const at_me_ref *a, const at_me_ref *b,
                      at_me_join *j);
at_status at_me_join_add(at_me *m, const at_mop *op, at_me_join *j,
                         const at_me_ref *r, LLVMBasicBlockRef from);

#endif
