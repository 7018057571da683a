// The emitter: one LLVM function under construction, and what code is written
// in: register values, index expressions, loops, loads and stores, elements of
// hlo values. Emission never returns errors: the first failure is kept in `st`,
// and poison values flow on until the caller looks.
//
// Memory: everything is the arena's or the module's.
// Threads: each function under construction belongs to one; several are built
// side by side in modules of their own.
#ifndef ATOLL_CODEGEN_EMIT_H_
#define ATOLL_CODEGEN_EMIT_H_

#include "codegen/math.h"
#include "hlo/hlo.h"

// Chains of the memo; lanes of a value at most.
enum { AT_EM_BUCKETS = 4096, AT_EM_MAX_LANES = 64 };

// An element, or `lanes` of them, in registers. bool: i1; integers: their
// storage width, kept in range; bf16, f16 and smaller floats: f32 that holds a
// rounded value; complex: two parts.
typedef struct at_val {
  LLVMValueRef re, im;
} at_val;

// An index: lane l has base + vec[l] + c + lane * l. Passed by value; what it
// points to is the module's. Parts that are known cost no code.
typedef struct at_ix {
  // An i64, the same for all lanes. NULL: 0.
  LLVMValueRef base;
  // Lanes of the index lane type. NULL: 0.
  LLVMValueRef vec;
  // Lanes of i1: the others are never used and may be anywhere; the bounds are
  // not theirs. NULL: all are used.
  LLVMValueRef mask;
  // The constant part, and the step from lane to lane.
  int64_t c, lane;
  // base is a multiple of this: what loads may assume about alignment, and
  // divisions about remainders.
  int64_t mult;
  // Bounds, inclusive, over all lanes and all turns of the loops around.
  // INT64_MIN, INT64_MAX: unknown.
  int64_t lo, hi;
} at_ix;

// Where an element is: row-major digits, major to minor. The product of extents
// is the element count; the digits need not match the dimensions of the value,
// so a reshape changes nothing. Interned: equal positions are one pointer.
typedef struct at_pos {
  uint32_t n;
  // It differs by lane though no digit says so: in bodies of reductions, whose
  // parameters are vectors.
  bool lanes;
  const int64_t *extent;
  const at_ix *ix;
} at_pos;

// Where a value lives, so that at_em_elem need not compute it. One of ptr,
// table, val and alias.
typedef struct at_home {
  // Dense storage, in storage form.
  LLVMValueRef ptr;
  // A table of pointers, of which each use loads one: for kernels of many
  // buffers.
  LLVMValueRef table;
  uint32_t index;  // of the pointer in `table`
  // Elements of the value that lie before ptr; they are not read.
  int64_t skip;
  // How elements are stored, if not as values of its type; else AT_INVALID.
  at_dtype stored;
  // Nothing writes it while the kernel runs, so loads may move.
  bool invariant;
  // A scalar in registers, or one of e->lanes.
  at_val val;
  const at_value *alias;  // another value's home: the same elements
} at_home;

typedef struct at_em at_em;

// A key of three words and its value; `next` is the entry before it in its
// chain, + 1.
typedef struct at_memo_entry {
  const void *a, *c;
  uint64_t b;
  at_val v;
  uint32_t next;
} at_memo_entry;

// One function under construction. Made by module.c for each job; other rooms
// read ctx, module, b, fn and lanes, and change `lanes` alone.
struct at_em {
  at_arena *arena;  // of this function
  LLVMContextRef ctx;
  LLVMModuleRef module;
  LLVMBuilderRef b;
  LLVMValueRef fn;
  // Where stack memory is made and base pointers are loaded; it gets its branch
  // last.
  LLVMBasicBlockRef entry;
  // at_cpu_features that the code may use.
  uint64_t cpu;
  // Of values that are emitted now; 1: scalars. Set around a loop, put back
  // behind it.
  uint32_t lanes;
  // Index lanes are i64, else i32: chosen by the largest value of the kernel.
  bool wide_index;
  // The function may write what it has read: no load is of memory that stays as
  // it is.
  bool rewritten;
  const char *prefix;  // of globals' names; unique in the module
  uint32_t next_global;
  // The first failure.
  at_status st;
  // ctx, module and b once more, for math.h.
  at_math math;
  // A stack: scopes are its lengths.
  AT_VEC(at_memo_entry) memo;
  uint32_t buckets[AT_EM_BUCKETS];
  uint32_t hidden_from, hidden_to;  // of the memo: not there now
  // at_literal * -> LLVMValueRef; of the module.
  at_map globals;
  // Ops that are functions of the module (outline.c).
  at_map outlined;
  // Nodes of the kernel, by op: what is there often is called. NULL: ops are
  // emitted in place.
  uint32_t *uses;
  // Compiled quickly: long ops are called (tier.c, outline.c).
  bool quick;
  uint32_t depth;
};

// Consumes st. Poison values are fine from then on: nothing of the function is
// used.
void at_em_fail(at_em *e, at_status st);  // keeps the first
// Has nothing failed so far?
bool at_em_ok(const at_em *e);

// ---- memo: values that dominate the insertion point
// The value remembered under (a, b, c); NULL: none, or one that does not
// dominate this place. Valid until the next at_em_memo_put.
at_val *at_em_memo_find(at_em *e, const void *a, uint64_t b, const void *c);
// Remembers it until the scope at hand is popped. Keys are compared bit for
// bit.
void at_em_memo_put(at_em *e, const void *a, uint64_t b, const void *c,
                    at_val v);
// What is remembered between push and pop is forgotten at pop.
uint32_t at_em_scope_push(at_em *e);
// scope: what the push returned. Scopes nest.
void at_em_scope_pop(at_em *e, uint32_t scope);

// ---- types and constants
// A scalar integer type.
LLVMTypeRef at_em_int(at_em *e, uint32_t bits);
// `lanes` times t; t itself where the function has one lane.
LLVMTypeRef at_em_widen(at_em *e, LLVMTypeRef t);
// The scalar type in which a register holds an element of t, or one part of a
// complex one.
LLVMTypeRef at_em_reg_type(at_em *e, at_dtype t);
// The scalar type in which memory holds an element of t, or one part of a
// complex one; narrow floats are integers of their bits.
LLVMTypeRef at_em_storage_type(at_em *e, at_dtype t);  // scalar; one part
// The scalar in e->lanes lanes; itself where the function has one. NULL stays
// NULL.
LLVMValueRef at_em_splat(at_em *e, LLVMValueRef scalar);  // to lanes
// The integer constant v; t may be a vector.
LLVMValueRef at_em_ci(at_em *e, LLVMTypeRef t, int64_t v);  // t may be a vector
// The constant in t's precision (rounded to nearest); t is a float, or a vector
// of them.
LLVMValueRef at_em_cf(at_em *e, LLVMTypeRef t, double v);
// A scalar constant.
LLVMValueRef at_em_i64(at_em *e, int64_t v);
// Zero of a register of type t, `lanes` wide; both parts of a complex one.
at_val at_em_zero(at_em *e, at_dtype t);
// Element i of l, in all lanes.
at_val at_em_literal(at_em *e, const at_literal *l, int64_t i);  // splat
// The same of both parts of an element.
at_val at_em_splat_val(at_em *e, at_val scalar);
// The integer type of as many bits, with as many lanes.
LLVMTypeRef at_em_bits_type(at_em *e,
                            LLVMTypeRef t);         // float -> int, same shape
LLVMValueRef at_em_bits(at_em *e, LLVMValueRef v);  // bitcast to ints
uint32_t at_em_bits_of(LLVMTypeRef t);              // scalar width

// ---- conversion
// v, a register of type `from`, as one of `to`, as CONVERT defines it: floats
// round to nearest even, floats to integers saturate and NaN is 0, complex to
// real drops the imaginary part.
at_val at_em_convert(at_em *e, at_dtype from, at_dtype to, at_val v);
// Brings a freshly computed register back into the type's set of values.
at_val at_em_normalize(at_em *e, at_dtype t, at_val v);
// A computed f32, rounded to nearest even to what bf16, f16 or a smaller float
// t can hold; still an f32.
LLVMValueRef at_em_round(at_em *e, at_dtype t, LLVMValueRef f32);
// A register of type t as storage, and back. What is encoded is rounded to t
// already (at_em_round, at_em_normalize).
LLVMValueRef at_em_encode(at_em *e, at_dtype t,
                          LLVMValueRef reg);  // to storage
LLVMValueRef at_em_decode(at_em *e, at_dtype t,
                          LLVMValueRef storage);  // from it

// ---- index arithmetic
// The same constant for all lanes.
at_ix at_ix_const(int64_t c);
// A computed i64 that is in [lo, hi] and a multiple of `mult`. Wrong bounds
// give wrong code: index arithmetic believes them.
at_ix at_ix_of(LLVMValueRef base, int64_t lo, int64_t hi, int64_t mult);
// base + lane: neighbouring indices, one a lane.
at_ix at_ix_lanes(at_em *e, at_ix base);
// Sums wrap as i64; bounds saturate.
at_ix at_ix_add(at_em *e, at_ix a, at_ix b);
// a + c, without code.
at_ix at_ix_addc(at_ix a, int64_t c);
// a * k, any k.
at_ix at_ix_mulc(at_em *e, at_ix a, int64_t k);
// The quotient, rounded down; a >= 0, k > 0.
at_ix at_ix_divc(at_em *e, at_ix a, int64_t k);  // a >= 0, k > 0
// The remainder; a >= 0, k > 0, as of at_ix_divc.
at_ix at_ix_modc(at_em *e, at_ix a, int64_t k);
// The nearest of [lo, hi], lane by lane; no code where the bounds say that it
// is within.
at_ix at_ix_clamp(at_em *e, at_ix a, int64_t lo, int64_t hi);
// The same where nobody uses the lanes that are out of bounds: neighbours stay
// neighbours in memory.
at_ix at_ix_among(at_em *e, at_ix a, int64_t lo, int64_t hi);
// lo <= a < hi, as i1 or lanes of i1; NULL: always true.
LLVMValueRef at_ix_within(at_em *e, at_ix a, int64_t lo, int64_t hi);
// The same index in all lanes, for sure?
bool at_ix_uniform(const at_ix *a);
// A uniform index as an i64: base + c.
LLVMValueRef at_ix_value(at_em *e, at_ix a);  // uniform: i64
// Any index as lanes of the index lane type; of one lane: a scalar of it.
LLVMValueRef at_ix_vector(at_em *e, at_ix a);  // lanes x index lane type
// The value of an element as an index; lo..hi bound what it may be.
at_ix at_ix_from(at_em *e, at_dtype t, at_val v, int64_t lo, int64_t hi);
// The index as an element of type t, in e->lanes.
at_val at_ix_to(at_em *e, at_dtype t, at_ix a);

// Interned in e's arena; extent[n] and ix[n] are copied, but for digits of
// extent 1. Never NULL: without memory e fails, and it is the scalar position.
const at_pos *at_pos_make(at_em *e, bool lanes, uint32_t n,
                          const int64_t *extent, const at_ix *ix);
// The same element under other digits (their product must agree): out[n], one
// for each extent. Returns p.
const at_pos *at_pos_regroup(at_em *e, const at_pos *p, uint32_t n,
                             const int64_t *extent, at_ix *out);
// The digits as one row-major index, for loads and stores of dense memory.
at_ix at_pos_linear(at_em *e, const at_pos *p);
// The same element for all lanes, for sure?
bool at_pos_uniform(const at_pos *p);

// ---- memory
// Element `lin` of dense storage at ptr: contiguous lanes as one load, uniform
// ones as one element, others gathered. `invariant`: nothing writes the memory
// while the kernel runs.
at_val at_em_load(at_em *e, LLVMValueRef ptr, at_dtype t, at_ix lin,
                  bool invariant);
// As at_em_load; lanes must differ in their element. Values are encoded to
// storage form.
void at_em_store(at_em *e, LLVMValueRef ptr, at_dtype t, at_ix lin, at_val v);
// What is loaded is not written while the function runs.
void at_em_mark_invariant(at_em *e, LLVMValueRef load);
// `count` elements on the function's stack, for as long as it runs, wherever it
// is asked for.
LLVMValueRef at_em_alloca(at_em *e, LLVMTypeRef t, int64_t count);
// The address of its data, dense in storage form (a splat's element repeated),
// read-only and 64-byte aligned: one global for each literal of a module.
LLVMValueRef at_em_literal_global(at_em *e, const at_literal *l);

// ---- control
// On the caller's stack, from begin to end. i: the index, for index arithmetic;
// phi: the same as a value; NULL where `single`.
typedef struct at_loop {
  LLVMBasicBlockRef body, exit;
  LLVMValueRef phi, hi;
  at_ix i;
  int64_t step;
  uint32_t scope;
  bool single;  // one trip known: no loop at all
} at_loop;
// for (i = lo; i < hi; i += step). The bounds are what i may be, for index
// maths.
void at_loop_begin(at_em *e, at_loop *l, LLVMValueRef lo, LLVMValueRef hi,
                   int64_t step, int64_t min, int64_t max);
// The same with constant bounds; one trip is no loop.
void at_loop_range(at_em *e, at_loop *l, int64_t lo, int64_t hi, int64_t step);
// Ends the body and the loop's scope: what was remembered in it is forgotten.
// Code goes on behind the loop.
void at_loop_end(at_em *e, at_loop *l);
// On the caller's stack, from begin to end.
typedef struct at_branch {
  LLVMBasicBlockRef other, end;
  uint32_t scope;
} at_branch;
// What comes next runs where cond (i1) holds, in a scope of its own.
void at_if_begin(at_em *e, at_branch *f, LLVMValueRef cond);
// What comes next runs where it does not.
void at_if_else(at_em *e, at_branch *f);
// Code goes on behind both; at_if_else may be left out.
void at_if_end(at_em *e, at_branch *f);
// A new block at the function's end; code does not go there yet. The name is
// for readers of the text.
LLVMBasicBlockRef at_em_block(at_em *e, const char *name);

// The smaller of two i64.
LLVMValueRef at_em_min(at_em *e, LLVMValueRef a, LLVMValueRef b);  // of i64

// ---- elements of hlo values
// v lives in h (copied) until the scope at hand is popped.
void at_em_bind(at_em *e, at_value v, at_home h);
// The latest home of v; NULL: it has none, and must be computed. Valid while
// its scope is.
const at_home *at_em_home(at_em *e, at_value v);  // NULL: has none
// The element of v at p, computed from whatever of its producers has a home:
// remembered by (v, p) in the scope at hand. Fails e with UNIMPLEMENTED for ops
// without a form here.
at_val at_em_elem(at_em *e, at_value v, const at_pos *p);
// The same, lane after lane in a loop: for what has no vector form.
at_val at_em_by_lane(at_em *e, at_value v, const at_pos *p);
// Counts the ops of n's regions for at_em.uses: those that are there often may
// be called from here on.
void at_em_count_ops(at_em *e, const at_node *n);
// A function of the module that this one calls, with its attributes.
LLVMValueRef at_em_inner_function(at_em *e, const char *name, LLVMTypeRef type);
// n by a call; false: it is to be emitted in place. args as of at_em_apply.
bool at_em_apply_outlined(at_em *e, const at_node *n, const at_val *args,
                          at_val *out);
// The same in place; args: a register for each operand.
at_val at_em_apply_here(at_em *e, const at_node *n, const at_val *args);
// The same of at_em_apply_real, for functions that are compiled quickly.
bool at_em_apply_real_outlined(at_em *e, at_op op, at_dtype t, at_val a,
                               at_val b, at_val *out);
// at_em_apply_real in place.
at_val at_em_apply_real_here(at_em *e, at_op op, at_dtype t, at_val a,
                             at_val b);
// One elementwise op on registers. args[number of operands], each a register of
// its operand's element type; the result is normalised. Called out of line
// where at_em_count_ops said so. UNIMPLEMENTED in e->st where the type lacks
// the op.
at_val at_em_apply(at_em *e, const at_node *n, const at_val *args);
// The same for a real type and an op that needs nothing but its operands (no
// compare, convert or attributes); b.re is NULL for one operand.
at_val at_em_apply_real(at_em *e, at_op op, at_dtype t, at_val a, at_val b);
// a, a register of float t, rounded to so many bits of exponent (>= 1) and
// mantissa (>= 0); to be normalised.
LLVMValueRef at_em_reduce_precision(at_em *e, at_dtype t, int64_t exponent,
                                    int64_t mantissa, LLVMValueRef a);
// at_em_apply of ops on complex numbers.
at_val at_em_apply_complex(at_em *e, const at_node *n, const at_val *args);
// i1, or lanes of i1; t is the operands' type, c AT_CMP_NOTYPE for its natural
// order.
LLVMValueRef at_em_compare(at_em *e, at_dtype t, at_direction d,
                           at_compare_type c, at_val a, at_val b);
// Runs a region of scalars on registers; results in out. args: one for each
// parameter, out: one for each result, both registers of the types that the
// region declares, of e->lanes unless the region has control flow.
void at_em_body(at_em *e, const at_comp *c, const at_val *args, at_val *out);
// Has the region loops or branches? Then e->lanes must be 1.
bool at_em_has_control(const at_comp *c);
// As at_em_body, and every node is emitted where it stands.
void at_em_body_in_order(at_em *e, const at_comp *c, const at_val *args,
                         at_val *out);
// Bodies of at_em_elem, by theme; n has no home, and e has not failed. Data
// movement: broadcast, slice, pad, gather, ...
at_val at_em_elem_move(at_em *e, const at_node *n, const at_pos *p);
// Reductions over few elements, in the order of the evaluator.
at_val at_em_elem_reduce(at_em *e, at_value v, const at_pos *p);
// Windows, one result element at a time.
at_val at_em_elem_window(at_em *e, at_value v, const at_pos *p);
// Dots and convolutions, one result element at a time.
at_val at_em_elem_contract(at_em *e, const at_node *n, const at_pos *p);

#endif
