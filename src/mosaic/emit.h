// The writer of kernel bodies. Vector values are expressions: nothing is
// computed until a sink (a store, a reduction, a product, a value that several
// sinks need) walks them in one loop nest. Refs are descriptions of memory
// whose parts are constants or registers; views of refs cost nothing.
//
// One thread writes a function. What is made on the way lives in its arena, and
// in LLVM's context, until the function is done.
#ifndef ATOLL_MOSAIC_EMIT_H_
#define ATOLL_MOSAIC_EMIT_H_

#include "mosaic/emit_types.h"

// ---- parts of a function
// Each is made once per function, in the function's arena, and freed with it.
// NULL: no memory.
at_me_symbols *at_me_symbols_new(at_arena *a);
// locs and ops have room for `max` entries, which become the table that `loc`
// numbers index; places beyond that get the last one.
at_me_places *at_me_places_new(at_arena *a, const at_mloc **locs,
                               const char **ops, uint32_t max);
// base: the pointer to the core's temporary memory (at_core.temp).
at_me_temp *at_me_temp_new(at_arena *a, LLVMValueRef base);
at_me_pending *at_me_pending_new(at_arena *a);
at_me_records *at_me_records_new(at_arena *a);
at_me_products *at_me_products_new(at_arena *a);
at_me_mxu *at_me_mxu_new(at_arena *a);

// ---- values
// What a value is. One that is not there yet, or is something else: an internal
// error is noted, and the result is poison or NULL.
// scalar: a register of v's type, never NULL. vector and memory: borrowed, NULL
// after an error that at_em_fail has noted.
LLVMValueRef at_me_scalar(at_me *m, const at_mvalue *v);
at_me_node *at_me_vector(at_me *m, const at_mvalue *v);
const at_me_ref *at_me_memory(at_me *m, const at_mvalue *v);
// v is s from here on. A value is set once, but for block arguments of loops
// and of functions that are called again.
void at_me_set_scalar(at_me *m, const at_mvalue *v, LLVMValueRef s);
// Takes over the node as the result of an operation: lazy, or computed at once
// when the analysis says so.
at_status at_me_set_node(at_me *m, at_mvalue *v, at_me_node *n);
// Keeps a copy of *r; home, packing and valid are shared with it.
void at_me_set_ref(at_me *m, const at_mvalue *v, const at_me_ref *r);
// `to` is what `from` is.
// Scalars, refs and nodes alike; a node gets the uses that the plan counts for
// `to`.
void at_me_same_value(at_me *m, const at_mvalue *from, const at_mvalue *to);
// Before a function's body is written a second time: its values of the first
// call do not hold there.
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
// How many places at_me_loc has handed out so far.
uint32_t at_me_places_num(const at_me *m);
// UNIMPLEMENTED, with the kernel's name, the place and the operation's types:
// `fmt` says what has no code, as in "a mask over several rows". The caller
// returns it or hands it to at_em_fail.
__attribute__((format(printf, 3, 4))) at_status at_me_refuse(at_me *m,
                                                             const at_mop *op,
                                                             const char *fmt,
                                                             ...);

// Constants and addresses. None of these fails: without memory LLVM itself ends
// the process, and errors of ours are noted by at_em_fail.
LLVMValueRef at_me_i32(at_me *m, int64_t v);
LLVMValueRef at_me_i64(at_me *m, LLVMValueRef i32);  // sign-extended
// An i32 of the at_core, `at` bytes from its start.
LLVMValueRef at_me_core_field(at_me *m, size_t at);
// The number as an i64 register.
LLVMValueRef at_me_num_value(at_me *m, at_me_num n);
// base + n * bytes
LLVMValueRef at_me_offset(at_me *m, LLVMValueRef base, uint32_t bytes,
                          at_me_num n);
// Stores v `at` bytes behind p.
void at_me_put(at_me *m, LLVMValueRef p, size_t at, LLVMValueRef v);
// All begins as zeros; a place takes one value. The pointer that `end` yields
// holds until the next record is made.
void at_me_record_begin(at_me_record *r, size_t bytes);
// Constants go into the record's image, which is one constant of the module;
// registers are stored over it when the record is ended. `at` + the field's
// size must lie in the record (asserted).
void at_me_record_i32(at_me_record *r, size_t at, int32_t v);
void at_me_record_num(at_me *m, at_me_record *r, size_t at, at_me_num i64);
void at_me_record_value(at_me *m, at_me_record *r, size_t at, LLVMValueRef v);
LLVMValueRef at_me_record_end(at_me *m, const at_me_record *r);
// Records are completed at `place` from now on (NULL: memory that the next one
// takes); yields the old one. Functions that are written inside another have a
// stack of their own.
LLVMValueRef at_me_records_move(at_me *m, LLVMValueRef place);
// The number of a register; a constant register becomes a known number, so that
// arithmetic on it is folded.
at_me_num at_me_num_of(LLVMValueRef i64);
// Folded where both are known, and where one is 0 or (mul) 1.
at_me_num at_me_add(at_me *m, at_me_num a, at_me_num b);
at_me_num at_me_mul(at_me *m, at_me_num a, at_me_num b);

// ---- nodes
// A node of `type`'s element and shape without operands; op, which may be NULL,
// is the operation that errors and places are told of. NULL: no memory, which
// is noted.
at_me_node *at_me_node_new(at_me *m, at_me_kind kind, const at_mop *op,
                           const at_mtype *type);
// A ref of n's own: a copy of what it has, to be changed before anybody else
// sees n. Never NULL; no memory is noted (at_em_fail).
at_me_ref *at_me_node_ref(at_me *m, at_me_node *n);
// Adds `in` as the next operand of n: one use more of it, and n reads what it
// reads. At most AT_ME_MAX_IN.
void at_me_node_hold(at_me *m, at_me_node *n, at_me_node *in);
// n reads memory of these roots as well: it must be computed before any of them
// is written (at_me_settle).
void at_me_node_reads(at_me *m, at_me_node *n, uint64_t roots);
// Takes n, which is computed now, off its operands: each loses a use, and n
// reads nothing any more.
void at_me_node_release(at_me *m, at_me_node *n);
at_me_node *at_me_retain(at_me_node *n);  // one use more
// Adds so many uses to come, beside those of nodes that hold it.
void at_me_expect_uses(at_me_node *n, uint32_t uses);
uint32_t at_me_uses_of(const at_me_node *n);  // nodes that hold it, too
// Nodes on the longest path of the expression.
uint32_t at_me_height_of(const at_me_node *n);
// Does its memory have the rows of one turn only?
bool at_me_is_of_turn(const at_me_node *n);
// For walks over expressions: every use begins with a clear.
at_walk *at_me_walk(at_me *m);
// n is computed, or not needed: it leaves every list. Loops over a list that
// stand at it go on with the next one.
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
// The last one releases its operands and temporary memory. NULL: nothing.
void at_me_node_drop(at_me *m, at_me_node *n);  // one use fewer
// The product of the dimensions, which the reader keeps below 2^63.
int64_t at_me_elements(const at_me_node *n);
// Rank 0: it broadcasts to any shape. NULL: no memory, which is noted.
at_me_node *at_me_splat(at_me *m, at_dtype t, LLVMValueRef scalar);
// Code for the element, or the lanes, of n at position p of its own shape. What
// cannot be computed inside a loop nest must be in memory already
// (at_me_prepare).
at_val at_me_eval(at_me *m, at_me_node *n, const at_pos *p);
// One elementwise operation on registers: scalars or lanes. types: of the args;
// rt: of the result; `args` may be changed. What has no code for these types is
// refused through at_em_fail.
at_val at_me_apply(at_me *m, const at_mop *op, at_mosaic_opcode code,
                   const at_dtype *types, at_dtype rt, at_val *args);
// The unsigned type of a signed one's width; others are themselves.
at_dtype at_me_unsigned_of(at_dtype t);
// Registers as integers of the storage width (logical bits, zero above) and
// back.
LLVMValueRef at_me_to_bits(at_me *m, at_dtype t, LLVMValueRef v);
LLVMValueRef at_me_from_bits(at_me *m, at_dtype t, LLVMValueRef bits);
// Element p of the view, through its packing; without any check, which the
// caller has made.
at_val at_me_ref_load(at_me *m, const at_me_ref *r, const at_pos *p);
void at_me_ref_store(at_me *m, const at_me_ref *r, const at_pos *p, at_val v);

// ---- sinks
// Makes a BUFFER (or what is as good: a dense constant) of n, in place if its
// region is this one, else a new node; the caller drops it either way.
at_me_node *at_me_materialise(at_me *m, at_me_node *n);
// The same for what only needs random access: loads stay.
at_me_node *at_me_readable(at_me *m, at_me_node *n);
// Temporary memory of this shape, dense, not initialised; its slot is free
// again when the last use is dropped. NULL: no memory, which is noted.
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
// Before control flow: computes every product that still waits, and the lazy
// values that read memory which `region` may write.
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
// Adds a cut: loops are split where the number of elements from a dimension on
// is `suffix`. One that does not divide the total, or no other cut, is left
// out: indices along it are found by division.
void at_me_space_add(at_me_space *s, int64_t suffix);
void at_me_space_dims(at_me_space *s, uint32_t rank, const int64_t *dim);
void at_me_space_ref(at_me_space *s, const at_me_ref *r);
void at_me_space_widen(at_me_space *s, at_dtype t);  // registers hold t, too
void at_me_space_tree(at_me *m, at_me_space *s, at_me_node *n);
void at_me_loops(at_me *m, const at_me_space *s, at_me_body_fn body, void *arg);
uint32_t at_me_lanes(at_me *m, const at_me_space *s, int64_t size);
// Pointers into the temporary memory of the function, and into that of a turn
// of a loop over rows.
LLVMValueRef at_me_temp_at(at_me *m, int64_t offset);
LLVMValueRef at_me_turn_at(at_me *m, int64_t offset);
// Offset of so many bytes, aligned to a cache line; first fit among what is
// free. The most that is taken at once is what the core is asked for.
int64_t at_me_temp_alloc(at_me *m, int64_t bytes);
void at_me_temp_free(at_me *m, int64_t offset, int64_t bytes);
// The same of memory for the rows of one turn, which has no other use until
// the loop over rows ends.
int64_t at_me_turn_alloc(at_me *m, int64_t bytes);
void at_me_turn_free(at_me *m, int64_t offset, int64_t bytes);
void at_me_turns_end(at_me *m);
// Frees the buffer when the loop around it ends, which comes round again.
void at_me_temp_later(at_me *m, at_me_node *n);
// Frees what waited for the end of the innermost loop, which is written now.
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
// Goes back to the function around the shared turns.
void at_me_share_end(at_me *m);
// A constant in which loops differ that are the same code else: that code is
// compiled once, when it is handed the constant.
LLVMValueRef at_me_handed(at_me *m, LLVMValueRef constant);
// A loop over [0, size) by step, a divisor, whose turns threads share or not.
void at_me_loop_begin(at_me *m, at_me_share *s, at_loop *l, int64_t size,
                      int64_t step, bool shared);
// Of the same s and l as the begin.
void at_me_loop_end(at_me *m, const at_me_share *s, at_loop *l);
// What an element of n costs.
double at_me_node_cost(at_me *m, const at_me_node *n);

// *r becomes row-major memory at `base` of known sizes, the kernel's own VMEM.
void at_me_dense(at_me *m, at_me_ref *r, LLVMValueRef base, at_dtype t,
                 uint32_t rank, const int64_t *dim);
// A view of n's elements for a callee: n is made readable in one type without
// casts. Yields the node to drop.
at_me_node *at_me_view(at_me *m, at_me_node *n, at_me_ref *view);
// The same for a callee that knows what to do where view->pages.
at_me_node *at_me_view_pages(at_me *m, at_me_node *n, at_me_ref *view);

// The core's stack of allocations as it stands, and its reset to that mark; op,
// which may be NULL, is where the release happens.
LLVMValueRef at_me_mark(at_me *m);
// Everything that was allocated since the mark is gone at run time: values that
// read it must have been computed.
void at_me_release_to(at_me *m, const at_mop *op, LLVMValueRef mark);

// ---- operations: one handler for each that ops.def names
#define AT_MOSAIC_OP(Id, name, operands, results, attrs, rule, cost, form, \
                     weight, handler, doc)                                 \
  at_status at_me_op_##handler(at_me *m, at_mop *op);
#include "mosaic/ops.def"
#undef AT_MOSAIC_OP
// All operations of a block, in order; emit_op: one. UNIMPLEMENTED with name
// and place; RESOURCE_EXHAUSTED.
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
// Its results are set afterwards, and its operands have one use less.
at_status at_me_emit_op(at_me *m, at_mop *op);
// Around the body: memory for the MXU's registers, and a test that the sums are
// empty.
at_status at_me_mxu_begin(at_me *m, const at_mblock *body);
// A sum that is not empty ends the kernel here.
void at_me_mxu_end(at_me *m);
// sum += a b for matrices (b transposed: a b'); where `first` holds, sum = a b.
at_status at_me_dot_add(at_me *m, const at_mop *op, at_me_node *a,
                        at_me_node *b, bool transposed, const at_me_ref *sum,
                        LLVMValueRef first);
// Runs a DOT node into dst, which has its shape; accumulate: dst += product.
void at_me_dot_run(at_me *m, at_me_node *dot, const at_me_ref *dst,
                   bool accumulate);
// A sum that a store begins with a product (plan.h): where `first` holds, what
// was there does not count. NULL: the store does not begin one.
typedef struct at_me_start {
  LLVMValueRef first;
  bool may_wait;  // the product may come later than the store
} at_me_start;
// If `value` is a product, or a product added to what dst holds, runs it into
// dst. False: it is something else, or dst's layout does not allow it, and
// nothing is done.
bool at_me_dot_into(at_me *m, at_me_node *value, const at_me_ref *dst,
                    at_me_start start);
// Before the loop, for each such product, at_me_dot_rows_pack, and after it
// at_me_dot_rows_free once. Each thread's turns lie between begin and end.
// a_too: the first operand is there before the loop.
void at_me_dot_rows_pack(at_me *m, const at_mop *op, bool a_too);
void at_me_dot_rows_begin(at_me *m);
void at_me_dot_rows_end(at_me *m);
void at_me_dot_rows_free(at_me *m);
// What the plan says of this store.
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
