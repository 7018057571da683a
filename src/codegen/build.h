// Single instructions for rooms that write code with emit.h and do not see
// llvm-c: arithmetic on registers, memory, calls, blocks. Scalars and vectors
// alike unless said otherwise; operand types must agree as in LLVM IR. Nothing
// fails: what LLVM refuses is found by its verifier.
//
// Errors: none is returned: as everywhere in emit.h the first is kept in e->st,
// and values are poison from then on.
// Memory: values, types and blocks are the module's.
// Threads: the one that emits the function.
#ifndef ATOLL_CODEGEN_BUILD_H_
#define ATOLL_CODEGEN_BUILD_H_

#include "codegen/emit.h"

// Integer ops wrap; S ops take operands as signed, U and L ops as unsigned. F
// ops round to nearest.
typedef enum at_b_op {
  AT_B_ADD,
  AT_B_SUB,
  AT_B_MUL,
  AT_B_SDIV,
  AT_B_UDIV,
  AT_B_SREM,
  AT_B_UREM,
  AT_B_AND,
  AT_B_OR,
  AT_B_XOR,
  AT_B_SHL,
  AT_B_LSHR,
  AT_B_ASHR,
  AT_B_FADD,
  AT_B_FSUB,
  AT_B_FMUL,
  AT_B_FDIV,
  AT_B_OP_COUNT
} at_b_op;
// Both operands of one type, scalar or vector: integers for the integer ops,
// floats for AT_B_FADD and on. Division by zero and shifts by the width or more
// are undefined, as in LLVM: the caller guards them.
LLVMValueRef at_b_bin(at_em *e, at_b_op op, LLVMValueRef a, LLVMValueRef b);

// Predicates are numbered as arith.cmpi and arith.cmpf number them, so that
// their attributes can be cast.
typedef enum at_b_ipred {
  AT_B_EQ,
  AT_B_NE,
  AT_B_SLT,
  AT_B_SLE,
  AT_B_SGT,
  AT_B_SGE,
  AT_B_ULT,
  AT_B_ULE,
  AT_B_UGT,
  AT_B_UGE
} at_b_ipred;
// i1, or lanes of i1, of two integers or pointers of one type.
LLVMValueRef at_b_icmp(at_em *e, at_b_ipred p, LLVMValueRef a, LLVMValueRef b);
// Ordered and unordered comparisons; ORD: no operand is NaN, UNO: one is.
typedef enum at_b_fpred {
  AT_B_FALSE,
  AT_B_OEQ,
  AT_B_OGT,
  AT_B_OGE,
  AT_B_OLT,
  AT_B_OLE,
  AT_B_ONE,
  AT_B_ORD,
  AT_B_UEQ,
  AT_B_UGT_F,
  AT_B_UGE_F,
  AT_B_ULT_F,
  AT_B_ULE_F,
  AT_B_UNE,
  AT_B_UNO,
  AT_B_TRUE
} at_b_fpred;
// i1, or lanes of i1; O predicates are false, U ones true where an operand is
// NaN.
LLVMValueRef at_b_fcmp(at_em *e, at_b_fpred p, LLVMValueRef a, LLVMValueRef b);
// cond: i1, or lanes of i1 for vectors lane by lane.
LLVMValueRef at_b_select(at_em *e, LLVMValueRef cond, LLVMValueRef a,
                         LLVMValueRef b);
// All bits of an integer, or of its lanes.
LLVMValueRef at_b_not(at_em *e, LLVMValueRef a);

// Truncation, zero and sign extension of integers; BITCAST between types of
// equal size; pointers from and to i64.
typedef enum at_b_cast_kind {
  AT_B_TRUNC,
  AT_B_ZEXT,
  AT_B_SEXT,
  AT_B_BITCAST,
  AT_B_PTRTOINT,
  AT_B_INTTOPTR
} at_b_cast_kind;
// An unsigned or signed extension, truncation, or the same bits in another
// type.
LLVMValueRef at_b_cast(at_em *e, at_b_cast_kind k, LLVMValueRef v,
                       LLVMTypeRef t);

// ---- types and constants
// The type of addresses (there is one, in address space 0). Types and constants
// live as long as the module's context.
LLVMTypeRef at_b_ptr(at_em *e);
// The type of 32-bit floats.
LLVMTypeRef at_b_f32(at_em *e);
// The type of a value.
LLVMTypeRef at_b_type_of(LLVMValueRef v);
// `lanes` times a scalar type; lanes >= 1.
LLVMTypeRef at_b_vector(LLVMTypeRef elem, uint32_t lanes);
// Also of one lane.
bool at_b_is_vector(LLVMValueRef v);
// Zero of any type; NULL of addresses.
LLVMValueRef at_b_null(LLVMTypeRef t);
// A constant as a value that a task is handed, not one that is in its code.
LLVMValueRef at_b_unfolded(at_em *e, LLVMValueRef constant);
// A value that must not be used: what is computed of it is poison, too. For
// lanes that nobody reads, and after errors.
LLVMValueRef at_b_poison(LLVMTypeRef t);
// The float constant with these bits, NaN's payload included.
LLVMValueRef at_b_f32_bits(at_em *e, uint32_t bits);  // the float with these
// Constants of one scalar type, n of them; the list is not kept.
LLVMValueRef at_b_const_vector(LLVMValueRef *lanes, uint32_t n);
// Is v a scalar integer constant? *out: sign-extended.
bool at_b_const_int(LLVMValueRef v,
                    int64_t *out);  // a scalar integer constant?
// Read-only bytes of the module, 64-byte aligned.
LLVMValueRef at_b_bytes(at_em *e, const void *data, size_t len);

// ---- lanes
// Lane `lane` of a vector, below its number of lanes.
LLVMValueRef at_b_extract(at_em *e, LLVMValueRef v, uint32_t lane);
// The same with a lane that is computed (an integer); poison out of bounds.
LLVMValueRef at_b_extract_at(at_em *e, LLVMValueRef v, LLVMValueRef lane);
// The vector with x in that lane.
LLVMValueRef at_b_insert(at_em *e, LLVMValueRef v, LLVMValueRef x,
                         uint32_t lane);
// Lanes of a and b by number (b's start at a's lane count).
LLVMValueRef at_b_shuffle(at_em *e, LLVMValueRef a, LLVMValueRef b,
                          const int *lane, uint32_t n);

// ---- memory
// Parameter i of the function that is written, below their number.
LLVMValueRef at_b_param(at_em *e, uint32_t i);
// ptr + i64 elements of type elem.
LLVMValueRef at_b_gep(at_em *e, LLVMTypeRef elem, LLVMValueRef ptr,
                      LLVMValueRef i64);
// A value of type t from ptr, which is a multiple of `align` bytes (a power of
// two).
LLVMValueRef at_b_load(at_em *e, LLVMTypeRef t, LLVMValueRef ptr,
                       uint32_t align);
// Of a vector, the elements that the mask lets through; the others are those of
// `otherwise`, and their memory need not be there.
LLVMValueRef at_b_load_some(at_em *e, LLVMValueRef ptr, uint32_t align,
                            LLVMValueRef mask, LLVMValueRef otherwise);
// v to ptr, aligned as at_b_load has it.
void at_b_store(at_em *e, LLVMValueRef v, LLVMValueRef ptr, uint32_t align);
// `bytes` from src to dst, both 64-byte aligned.
void at_b_copy(at_em *e, LLVMValueRef dst, LLVMValueRef src, uint64_t bytes);

// ---- calls
// A function of abi/imports.def. ret NULL: none.
enum { AT_B_MAX_ARGS = 24 };
// n <= AT_B_MAX_ARGS; more is INTERNAL in e->st. A name that the table does not
// have is refused when the code is loaded.
LLVMValueRef at_b_call(at_em *e, const char *name, LLVMTypeRef ret,
                       LLVMValueRef *args, uint32_t n);
// An intrinsic overloaded on the first argument's type ("llvm.smax").
LLVMValueRef at_b_intrinsic(at_em *e, const char *name, LLVMValueRef *args,
                            uint32_t n);

// ---- tasks: code that threads share
// A function of its own, void (ptr handed, i64 begin, i64 end, ptr memory).
// What is written between begin and end goes there, one lane wide at both, and
// may use any value that is there at begin; values of its own are gone behind
// the end.
typedef struct at_b_task {
  LLVMValueRef begin, end, memory;  // parameters
  // Of the function that is not written now: the one around, between begin and
  // end.
  LLVMValueRef fn;
  LLVMBasicBlockRef entry, here;
  LLVMBasicBlockRef start;  // of the task
  uint32_t scope;
} at_b_task;
// From here to at_b_task_end code goes into the task. `t` is the caller's and
// must stay until then.
void at_b_task_begin(at_em *e, at_b_task *t);
// Between the two calls code goes before the task, in the function around; what
// it makes may be used in the task and behind it.
void at_b_task_outside(at_em *e, at_b_task *t);
// Ends what at_b_task_outside began.
void at_b_task_inside(at_em *e, at_b_task *t);
// out: the function, and what it is to be handed. Does the task use `watched`,
// a value of the function around?
bool at_b_task_end(at_em *e, at_b_task *t, LLVMValueRef out[2],
                   LLVMValueRef watched);

// ---- helpers: code that is the same in many places
// A function of the module, void (ptr, ptr), that is written once and called by
// its name (at_b_call). false: it is there; else what is written until the end
// goes there, and uses its parameters and constants only.
typedef struct at_b_helper {
  at_b_task task;
  uint32_t hidden_from, hidden_to;  // of the function around
} at_b_helper;
// name: unique in the module, for what the helper computes.
bool at_b_helper_begin(at_em *e, at_b_helper *h, const char *name);
// Code goes on where it was before at_b_helper_begin. Only after that returned
// true.
void at_b_helper_end(at_em *e, at_b_helper *h);

// ---- blocks
// The block that code is appended to.
LLVMBasicBlockRef at_b_here(at_em *e);
// From now on code is appended to that block.
void at_b_at_end(at_em *e, LLVMBasicBlockRef block);
// Ends the block. Every block is ended once, and nothing is appended to it
// then.
void at_b_br(at_em *e, LLVMBasicBlockRef to);
// Ends the block; cond: i1.
void at_b_cond_br(at_em *e, LLVMValueRef cond, LLVMBasicBlockRef yes,
                  LLVMBasicBlockRef no);
// Of type t, without values yet. It stands first in its block.
LLVMValueRef at_b_phi(at_em *e, LLVMTypeRef t);
// v where control comes from block `from`; once for each way into the phi's
// block.
void at_b_phi_add(LLVMValueRef phi, LLVMValueRef v, LLVMBasicBlockRef from);
// Ends the block and the function, which returns nothing.
void at_b_ret(at_em *e);

#endif
