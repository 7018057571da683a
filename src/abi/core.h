// Pallas TPU kernels at run time: what the machine code of a kernel and the
// virtual core that runs it know of each other, and the record that describes a
// kernel inside an executable.
//
// Memory. Every ref is dense host memory of storage elements (abi/dtype.h:
// types under 8 bits take a byte each), reached through a base pointer and byte
// strides; the last dimension is always dense. Windows of operands may be
// places inside the operand itself, so their strides are run-time values; all
// other refs are dense row-major. Bases are aligned to the element only.
//
// Failure. No function here returns after it failed: control goes back to the
// driver, and what the kernel's frames held is dropped. Generated code
// therefore keeps nothing that must be given back.
//
// Memory: what a function returns is the core's and lasts until the launch
// ends, unless its line says less.
// Threads: a core's functions are called by the thread that runs its step;
// several threads may run steps of one core where its record allows it, and
// then only what works on their own step is called.
#ifndef ATOLL_ABI_CORE_H_
#define ATOLL_ABI_CORE_H_

#include <stddef.h>

#include "abi/dtype.h"

enum {
  AT_CORE_MAX_RANK = 8,    // of refs
  AT_CORE_MAX_GRID = 8,    // grid dimensions
  AT_CORE_SEM_BYTES = 16,  // distance of semaphores in a ref of them
  AT_CORE_ALLOC_ALIGN = 64
};
// Where a device, core or subcore is named: this one. Kernels compute such
// numbers, and one below zero is an error of theirs.
enum { AT_CORE_SELF = INT32_MIN };

typedef enum at_core_space {
  AT_CORE_HBM,  // `any` and `hbm`
  AT_CORE_VMEM,
  AT_CORE_SMEM,
  // Refs of semaphores: elements of AT_CORE_SEM_BYTES. As operands and results
  // they are s32, the semaphores' values between kernels.
  AT_CORE_SEM,
  AT_CORE_VMEM_SHARED,  // one for the subcores of a SparseCore
  AT_CORE_HOST,
  AT_CORE_SPACE_COUNT
} at_core_space;

typedef enum at_core_type {
  AT_CORE_TC,
  AT_CORE_SC_SCALAR,
  AT_CORE_SC_VECTOR
} at_core_type;

// ---- What generated code is called with
// The head of a core, at fixed offsets for generated code; `device` keeps more
// behind it.
typedef struct at_core {
  void *temp;  //  0: temp_bytes of the record, 64-byte aligned; contents
               //     do not last from step to step
  const int32_t *bounds;  //  8: grid bounds, dynamic ones filled in
  int64_t budget;         // 16: see at_core_budget
  int32_t device_id;      // 24: logical id of this device among the program's
  int32_t core_index;     // 28: of the cores of this device that run the kernel
  int32_t num_cores;      // 32: how many those are
  int32_t subcore_index;  // 36: SparseCore vector subcores
  int32_t of_nan;         // 40: what NaN becomes as an integer, where the check
                          //     for NaN is made
} at_core;

// One argument of the kernel after the grid ids, in the order of the function's
// arguments: prefetched scalars, windows and whole operands, scratch.
typedef struct at_core_ref {
  void *base;
  int64_t stride[AT_CORE_MAX_RANK];  // bytes; stride[rank - 1] is the element's
} at_core_ref;

// One grid step. grid: ids, one per dimension. Symbol "at_core_body".
typedef void (*at_core_body_fn)(at_core *core, const int32_t *grid,
                                const at_core_ref *refs);
// A window's index map: block indices (elements for AT_CORE_ELEMENT windows),
// one per dimension of the operand. refs: as for the body, of which only the
// prefetched scalars are set. Symbol "at_core_index_<k>": k counts operands
// that have windows or could have (`window_params` order).
typedef void (*at_core_index_fn)(at_core *core, const int32_t *grid,
                                 const at_core_ref *refs, int32_t *out);

// What makes an input, one box of it at a time. bufs: what it reads; start and
// size: the box in the input, in elements; dst: where its first element goes;
// stride: bytes between elements of dst, its last dimension is dense. Symbol
// "at_core_fill_<k>".
typedef void (*at_core_fill_fn)(void *const *bufs, const int64_t *start,
                                const int64_t *size, void *dst,
                                const int64_t *stride);

// ---- What generated code may call
// loc: index into the locations of this kernel (at_mosaic_code), for messages.

// Dynamic indices are checked by generated code against the ref's shape; this
// reports one that leaves it. ref: 1 + the argument it belongs to, or what the
// kernel allocated itself. Never returns.
enum { AT_CORE_OWN = 0, AT_CORE_OWN_SEMAPHORES = -1 };
// Ends the core with OUT_OF_RANGE: elements index to index + size - 1 of
// dimension `dim`, which has `limit`, of ref number `ref` - 1 (0: memory that
// the kernel allocated; AT_CORE_OWN_SEMAPHORES). Does not return.
void at_core_out_of_bounds(at_core *core, int32_t loc, int32_t dim,
                           int64_t index, int64_t size, int64_t limit,
                           int32_t ref);
// Tests and reports in one; returns where all is well. For code whose size
// counts more than its speed.
void at_core_within(at_core *core, int32_t loc, int32_t dim, int64_t index,
                    int64_t size, int64_t limit, int32_t ref);
// Any other refusal at run time, with a text that lives in the object's
// constants.
void at_core_fail(at_core *core, int32_t loc, const char *text);
// Loops subtract 1 or more from core->budget per turn and call this once it is
// negative: refills it, or fails when the whole kernel ran out.
void at_core_budget(at_core *core, int32_t loc);

// Turns begin .. end - 1 of a loop that nothing orders; memory: of the thread,
// 64-byte aligned.
typedef void (*at_core_turns_fn)(void *arg, int64_t begin, int64_t end,
                                 void *memory);
// All n turns, by the threads that are free, each with `bytes` of memory of its
// own. alone: by the caller only.
void at_core_share(at_core *core, at_core_turns_fn fn, void *arg, int64_t n,
                   int64_t bytes, int32_t alone);

typedef struct at_core_view {
  void *base;
  int32_t rank, elem_bytes;
  int64_t size[AT_CORE_MAX_RANK], stride[AT_CORE_MAX_RANK];  // elements, bytes
} at_core_view;

// A box that leaves its ref, of a kernel without bounds checks.
typedef struct at_core_beyond {
  at_core_view ref;                  // what is there, in the ref's layout
  int64_t index[AT_CORE_MAX_RANK];   // elements; may be negative
  int64_t stride[AT_CORE_MAX_RANK];  // of the memory in its place, bytes
  int32_t count[AT_CORE_MAX_RANK], step[AT_CORE_MAX_RANK];  // elements
  int32_t loc, pad;
} at_core_beyond;
// Memory in the box's place, of these strides: what is there of the box, else
// zeros. It lasts until many more have been asked for.
void *at_core_beyond_begin(at_core *core, const at_core_beyond *b);
// Brings what is there of the box back from the memory.
void at_core_beyond_end(at_core *core, const at_core_beyond *b, void *memory);

// What an out-of-range element reads as, where a select may drop it: zero, or
// under checks an undefined value.
// Valid until the core's next call.
const void *at_core_undefined(at_core *core, int32_t dtype, int32_t loc);

// Executables built with checks announce every load and store (after the bounds
// test, loads before they read, stores before they write).
typedef enum at_core_access_kind {
  AT_CORE_LOAD = 0,
  AT_CORE_STORE = 1,
  AT_CORE_MASKED = 2,  // flag: nobody knows which of the elements
  AT_CORE_CHOSEN = 4   // flag: a choice may drop what is loaded
} at_core_access_kind;
// `kind`: an at_core_access_kind. Ends the core (FAILED_PRECONDITION with both
// places) where a check that is on finds a race, memory that nobody wrote, or
// the like.
void at_core_access(at_core *core, const at_core_view *v, int32_t kind,
                    int32_t loc);
// A store of the elements whose mask (a byte each, row-major) is not 0.
void at_core_access_masked(at_core *core, const at_core_view *v,
                           const uint8_t *mask, int32_t loc);
// Elements one after another in the last dimension, as many as the mask has.
void at_core_access_packed(at_core *core, const at_core_view *v,
                           const uint8_t *mask, int64_t n, int32_t kind,
                           int32_t loc);
// Elements at indices, one list of n per dimension, where the mask (a byte
// each; NULL: all) is not 0.
typedef struct at_core_places {
  at_core_view ref;
  const int32_t *index[AT_CORE_MAX_RANK];
  const uint8_t *mask;
  int64_t n;
  int32_t kind, loc;
} at_core_places;
// Each element is announced as at_core_access would.
void at_core_access_places(at_core *core, const at_core_places *x);
// Floating-point results under ATOLL_CHECK=nan: fails if one of n elements is
// NaN whose mask (a byte each; NULL: all) is not 0.
// A NaN that arose at a place of the kernel is AT_CORE_NAN + 1 + `loc`, where
// the check for NaN is made and loc is less than AT_CORE_NAN_PLACES.
enum { AT_CORE_NAN = 0x7fc00000, AT_CORE_NAN_PLACES = 0xffff };
typedef enum at_core_nan_use {
  AT_CORE_NAN_STORED,
  AT_CORE_NAN_CONVERTED,  // to integers, which are never NaN
  AT_CORE_NAN_CHOSEN      // the same, where a choice may drop the integers
} at_core_nan_use;
// dtype: an at_dtype; others than F32, BF16 and F16 are not looked at. A NaN
// that came in with an operand is no finding. use: an at_core_nan_use. On a
// finding the core ends.
void at_core_check_nan(at_core *core, const void *data, const uint8_t *mask,
                       int32_t dtype, int64_t n, int32_t use, int32_t loc);

// Under checks. Indices of single elements along dimension `dim`, which has
// `limit` elements: fails if one leaves it whose mask (a byte each; NULL: all)
// is not 0.
void at_core_check_indices(at_core *core, const int32_t *index,
                           const uint8_t *mask, int64_t n, int64_t limit,
                           int32_t dim, int32_t loc, int32_t ref);
// `tpu.assume_multiple`: is it one?
void at_core_check_multiple(at_core *core, int32_t loc, int32_t value,
                            int32_t multiple);

// Executables built for a debugger. A line of the source begins; loops: how
// many loops around it count their turns.
void at_core_debug_line(at_core *core, int32_t loc, int32_t loops);
// Such a loop begins a turn; depth: how many are around it.
void at_core_debug_turn(at_core *core, int32_t loc, int32_t depth,
                        int32_t turn);
// The kernel has allocated this ref, of semaphores where dtype is AT_INVALID.
void at_core_debug_made(at_core *core, const at_core_view *v, int32_t dtype,
                        int32_t space, int32_t loc);

// Memory with stack discipline: `tpu.region` and `memref.alloca`,
// `tpu.sem_alloc`. Semaphores begin at 0. bytes: dense size; semaphores: 16
// each.
// The stack as it is now, for at_core_release.
int64_t at_core_mark(at_core *core);
// space: an at_core_space. Not zeroed, but for semaphores; lives until the
// release of a mark from before. Ends the core: RESOURCE_EXHAUSTED where the
// chip's memory would be full, INVALID_ARGUMENT for a negative size.
void *at_core_alloc(at_core *core, int32_t space, int64_t bytes, int32_t loc);
// Frees everything that was allocated since `mark` was taken. Under checks,
// semaphores that are not 0 are a finding.
void at_core_release(at_core *core, int64_t mark, int32_t loc);

// Semaphores. sem: address of one. device, core, subcore: AT_CORE_SELF for this
// one. owner: 1 + at_core_type of the program whose
// semaphore it is, 0 for this one's; programs of one kernel list the same
// semaphores in the same order.
// Adds `amount` (any sign); wakes whoever waits. A core, device or address that
// there is not ends the core with its place. Any device of the launch, also of
// another process.
void at_core_sem_signal(at_core *core, void *sem, int64_t amount,
                        int32_t device, int32_t core_id, int32_t subcore,
                        int32_t owner, int32_t loc);
// Waits until the value is at least `amount`, then subtracts it.
void at_core_sem_wait(at_core *core, void *sem, int64_t amount, int32_t loc);
// Adds to a word of SMEM on core `core_id` (among vector subcores: on that
// subcore of the same core) at once; what was there before. p:
// the address of this core's.
int32_t at_core_fetch_add(at_core *core, void *p, int32_t amount,
                          int32_t core_id, int32_t loc);
// The value now, without waiting. Loops that only read count their turns
// faster: where nobody is left to signal, they are stopped.
int32_t at_core_sem_read(at_core *core, void *sem, int32_t loc);
// The semaphore that all kernels with this collective id share on this device.
void *at_core_sem_barrier(at_core *core, int32_t loc);
// tpu.barrier: all subcores of a SparseCore meet.
void at_core_barrier(at_core *core, int32_t barrier, int32_t loc);

// Copies. DMA semaphores count the bytes that arrived (storage bytes of the
// destination); each copy adds them to both of its semaphores.
typedef struct at_core_dma {
  void *src, *dst;  // dst: an address of this core, even if the copy goes
                    // to the same place of another
  void *src_sem, *dst_sem;  // NULL: none. dst_sem is signalled where dst lies
  int32_t device, core;     // of dst, or AT_CORE_SELF
  int32_t subcore;
  int32_t rank, elem_bytes;
  int32_t loc;
  int32_t add;  // at_dtype: dst += src in this type; 0 (AT_INVALID): copy
  // Only such copies write dst's memory, and whoever reads it says so first
  // (at_core_pages_fetch) or is a dot with `pages`: the copy may wait.
  int32_t lazy;
  // packed_bits > 0: elem_bytes is 1, and one side, dst where `unpack`, holds
  // elements of so many bits in a byte each, packed_step bytes apart: 8 /
  // packed_bits of them make a byte of the other side, low bits first. size and
  // strides count bytes of that other side.
  int32_t packed_bits, unpack;
  int32_t packed_signed;  // such elements are kept with their sign
  int64_t packed_step;
  int64_t padding;  // bytes that the semaphores count beyond those of `size`
  int64_t size[AT_CORE_MAX_RANK];  // elements
  int64_t src_stride[AT_CORE_MAX_RANK], dst_stride[AT_CORE_MAX_RANK];  // bytes
  // Elements that the kernel asked for, where a side reaches into the room
  // behind its array; else 0: `size`.
  int64_t asked[AT_CORE_MAX_RANK];
} at_core_dma;
// The bytes arrive, and the semaphores are raised, before or after this
// returns: a kernel may rely on no more than on the chip. Sizes of 0 or less
// copy nothing. Ends the core: OUT_OF_RANGE outside of what src or dst are in,
// INVALID_ARGUMENT for a rank or a device that there is not.
void at_core_dma_start(at_core *core, const at_core_dma *d);
// Waits until `sem` has counted `bytes`, then subtracts them; a wait for ever
// is a deadlock, which ends the core.
void at_core_dma_wait(at_core *core, void *sem, int64_t bytes, int32_t loc);
// Under checks, before a wait: the memory whose copy it is for.
void at_core_expect(at_core *core, const at_core_view *v, int32_t loc);
// A `lazy` copy of bytes that are dense on both sides, on this core; sem: of
// dst.
void at_core_page_start(at_core *core, void *dst, void *src, int64_t bytes,
                        void *sem, int32_t loc);
// Before these bytes are read: makes the copies to them that wait.
void at_core_pages_fetch(at_core *core, const void *at, int64_t bytes);

// Rows chosen by indices. Gather: dst row i = table row offsets[i]; scatter:
// the other way round. A row is the trailing dims of the view of the dense
// side, whose dim 0 counts the offsets.
typedef struct at_core_indirect {
  at_core_dma rows;  // src and dst: the table is one of them; size[0]: rows
  const int32_t *offsets;
  int64_t offset_step;         // bytes from one to the next
  int64_t table_rows;          // for bounds
  int32_t scatter;             // 0: src is the table, 1: dst is the table
  int32_t has_filter, filter;  // offsets equal to `filter` are skipped
} at_core_indirect;
// As at_core_dma_start; an offset outside of the table is OUT_OF_RANGE, unless
// the kernel asked for no bounds checks.
void at_core_indirect_start(at_core *core, const at_core_indirect *d);

// Random bits of the core's generator.
// Starts the sequence anew; equal seeds give equal bits on every machine, which
// are not the chip's.
void at_core_prng_seed(at_core *core, const int32_t *seeds, int64_t n);
// n words, each of 32 random bits. Words come in pairs: an odd n drops half of
// the last.
void at_core_prng_bits(at_core *core, uint32_t *out, int64_t n);

// pl.debug_print. `text` as in tpu.log: "$0" is replaced by argument 0;
// without any such place, the arguments follow, each "f32[2] {1, 0.5}".
typedef struct at_core_log_arg {
  const void *data;  // dense
  int32_t dtype, rank;
  int64_t size[AT_CORE_MAX_RANK];
} at_core_log_arg;
// Prints a line to stderr, with the device and core where there are several.
// `text` and `args` are read during the call.
void at_core_log(at_core *core, const char *text, const at_core_log_arg *args,
                 int64_t n, int32_t loc);
// begin 1 opens a span of the profile, 0 closes the last one; `text` must
// outlive the launch. Without a profile or checks: nothing.
void at_core_trace(at_core *core, const char *text, int32_t begin);  // spans
// "text = value" as an instant of the profile.
void at_core_trace_value(at_core *core, const char *text, int64_t value);
// Nothing happens: time on the chip has no counterpart here.
void at_core_delay(at_core *core, int64_t cycles);

// A matrix product that is worth packing: c[m, n] (+)= sum over k of a b, per
// batch element. Strides in bytes. Uses the thread pool when the core runs
// alone.
typedef struct at_core_dot {
  const void *a, *b;
  void *c;
  int32_t a_type, b_type, c_type;  // at_dtype; c: F32 or S32
  int32_t accumulate;              // adds to c instead of overwriting it
  int32_t round_bf16;              // F32 operands are rounded to bf16 first
  int32_t loc;
  int32_t later;  // see at_core_dot_finish
  int32_t pages;  // b lies in memory that copies with `lazy` fill
  int64_t batch, m, n, k;
  int64_t a_batch, a_m, a_k, b_batch, b_k, b_n, c_batch, c_m, c_n;
} at_core_dot;
// Operands are only read, c must not overlap them. Sizes of 0 or less leave c
// as it is. Ends the core: UNIMPLEMENTED for types that it does not know,
// RESOURCE_EXHAUSTED without scratch memory.
void at_core_dot_run(at_core *core, const at_core_dot *d);
// A dot with `later` set may leave c as it is until this is called, until c is
// overwritten by another with the same c, or until the core leaves an output's
// window or ends: products of many steps become one.
void at_core_dot_finish(at_core *core);
// out[i, j] = c[i, j], with what is still to be added to c, rounded to the type
// of out. c itself may stay behind, as above. Neighbours along n are dense.
typedef struct at_core_dot_taken {
  const float *c;
  void *out;
  int32_t out_type, loc;  // F32 or BF16
  int64_t m, n, c_m, out_m;
} at_core_dot_taken;
// m rows of n elements, c_m and out_m bytes apart; out does not overlap c.
void at_core_dot_take(at_core *core, const at_core_dot_taken *d);

// Products of a loop over rows of their results, bf16 or rounded to it, for
// CPUs with AVX512-BF16. `pack_b` and `pack_a` come before the loop and yield
// the operand packed: in `room`, or where it stays with the core. `rows` is
// called in the loop with the rows of a turn, a multiple of 32, as m, by a
// thread between its `rows_begin` and `rows_end`, in which it runs no other
// product. packed_a: where these rows begin, d->a NULL; or else room for them,
// d->a in memory. Rooms: see at_core_dot_room; 64-byte aligned.
// room: at_core_dot_room(d->m, d->k) bytes.
const void *at_core_dot_pack_a(at_core *core, const at_core_dot *d, void *room);
// room: at_core_dot_room(d->n, d->k) bytes.
const void *at_core_dot_pack_b(at_core *core, const at_core_dot *d, void *room);
// Makes the thread's tile registers ready, where the CPU has some.
void at_core_dot_rows_begin(void);
// c is F32; it is overwritten unless d->accumulate. Does nothing but compute:
// no failure, no allocation.
void at_core_dot_rows(const at_core_dot *d, void *packed_a,
                      const void *packed_b);
// Releases them.
void at_core_dot_rows_end(void);
// Bytes of an operand with so many rows or columns, packed.
static inline int64_t at_core_dot_room(int64_t outer, int64_t k) {
  return (outer + 31) / 32 * ((k + 31) / 32) * 2048;
}

// ---- The record in an executable
typedef enum at_core_role {
  AT_CORE_PREFETCH,  // scalars, copied to SMEM before the grid starts
  AT_CORE_IN,
  AT_CORE_OUT,
  AT_CORE_SCRATCH  // lasts over all steps of a core
} at_core_role;

typedef enum at_core_window {
  AT_CORE_WHOLE,    // no window: the whole operand; in VMEM or SMEM it counts
                    // there
  AT_CORE_BLOCKED,  // index map gives block numbers
  AT_CORE_ELEMENT   // index map gives element offsets
} at_core_window;

typedef enum at_core_pipeline {
  AT_CORE_DOUBLE,      // default: two buffers
  AT_CORE_SYNCHRONOUS  // one buffer: the window does not move
} at_core_pipeline;

// One argument of the kernel after the grid ids. The step's buffers are
// [dynamic grid bounds][prefetch][in][out] in this order, and then what makes
// inputs that are no arrays reads.
typedef struct at_xcore_ref {
  uint32_t role, space, window, pipeline;
  uint32_t dtype, rank;  // SEM scratch: dtype AT_INVALID
  uint32_t buffers;      // buffering depth, 0: as `pipeline` says
  uint32_t stored;       // the kernel may write it: an input then needs a copy
  uint32_t dense;        // the kernel reshapes it: its dimensions must be dense
  int32_t alias;    // in: the out (index among outs) that shares its memory, -1
  uint64_t kernel;  // index map: KERNELS + 1, 0: none
  // in, of blocks: nobody made it, and its buffer is NULL; each block is made
  // when the window comes there, by KERNELS + 1 (0: the array is there) from
  // the step's buffers from fill_bufs on.
  uint32_t fill, fill_bufs, num_fill_bufs;
  // LOCATIONS + 1, 0: unknown. Of the index map; of the first load of it; of
  // the last store to it.
  uint32_t place, loaded_at, stored_at;
  uint64_t cores;  // operands of one core each, one after the other; 0: one
  int64_t dims[AT_CORE_MAX_RANK];   // of the operand; scratch: of the ref
  int64_t block[AT_CORE_MAX_RANK];  // of the window; = dims without one
  int64_t pad_low[AT_CORE_MAX_RANK], pad_high[AT_CORE_MAX_RANK];  // ELEMENT
} at_xcore_ref;

typedef enum at_core_dim {
  AT_CORE_ARBITRARY,
  AT_CORE_PARALLEL,
  AT_CORE_CORE_PARALLEL,
  AT_CORE_SUBCORE_PARALLEL
} at_core_dim;

typedef enum at_core_flags {
  AT_CORE_HAS_COMMUNICATION = 1,
  // Indices of indirect copies that are outside of their table are skipped,
  // and the code has no tests that end the kernel (at_core_beyond_begin).
  AT_CORE_NO_BOUNDS_CHECKS = 2,
  AT_CORE_NO_SEMAPHORE_CHECKS = 4,
  AT_CORE_SKIP_DEVICE_BARRIER = 8,
  AT_CORE_CHECKED = 16,  // the code announces its accesses
  AT_CORE_SEQUENTIAL =
      32,  // steps must not run on several threads: the body
           // touches memory that steps share other than windows
           // (scratch kept between steps, prints, PRNG state)
  AT_CORE_SIDE_EFFECTS = 64,
  AT_CORE_SIGNALS = 128  // the body signals or waits: cores may talk
} at_core_flags;

// One kernel. Lists are index ranges of their sections.
typedef struct at_xcore {
  uint32_t name;    // string: kernel name
  uint32_t type;    // at_core_type
  uint32_t flags;   // at_core_flags
  uint32_t kernel;  // KERNELS: the body
  uint32_t grid_rank,
      num_dynamic;          // dynamic bounds are the first buffers (s32)
  uint32_t refs, num_refs;  // CORE_REFS
  uint32_t locations, num_locations;     // LOCATIONS
  int64_t collective_id;                 // -1: none
  int64_t grid[AT_CORE_MAX_GRID];        // -1: dynamic
  uint32_t semantics[AT_CORE_MAX_GRID];  // at_core_dim
  uint64_t temp_bytes;                   // core->temp
  // What at_core_alloc gives out at the same time: bytes, each allocation in
  // whole multiples of AT_CORE_ALLOC_ALIGN, and semaphores. -1: not known.
  int64_t stack_bytes, stack_sems;
  double flops, bytes, transcendentals;  // cost estimate, 0: none
} at_xcore;

typedef struct at_xlocation {
  uint32_t file, op;  // strings
  uint32_t line, column;
  uint32_t place;  // as in at_xstep
} at_xlocation;

#endif
