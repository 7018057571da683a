// What the files about virtual cores share.
#ifndef ATOLL_DEVICE_CORE_INTERNAL_H_
#define ATOLL_DEVICE_CORE_INTERNAL_H_

#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "device/core.h"

// A semaphore as it lies in memory.
// Sixteen bytes in memory that generated code names.
typedef struct sem {
  int64_t value;
  int32_t loc;     // of the last signal, for messages
  int32_t waited;  // 1 + that of the last wait, 0: none
} sem;
_Static_assert(sizeof(sem) == AT_CORE_SEM_BYTES,
               "semaphores in generated code");

// Memory that other cores may name: the same list, in the same order, on every
// core that runs the same program.
typedef struct region {
  uint8_t *base;
  size_t bytes;
  at_core_space space;
  int32_t ref;  // argument of the kernel, -1: other
  bool stays;   // an operand that nobody writes while the kernel runs
} region;
// Zero at first; a wrong hint costs a search.
typedef struct region_hint {
  uint32_t last, before;  // which were asked for: copies often take turns
} region_hint;
// kMaxSpans: named parts inside each other; kMaxPages: copies that wait at a
// time; kBeyondBytes: memory for boxes that leave their refs.
enum {
  kMaxSpans = 16,
  kMaxPages = 512,
  kMostSems = 8192,
  kBeyondBytes = 64 << 20,
  // The first semaphores of a core: the collective's barrier, then two for
  // at_core_barrier.
  kBarrierSems = 1,
  kFirstSem = 4
};

// A block of an output on its way back to the operand.
// Kept for the last two blocks of each output.
typedef struct departure {
  int64_t steps;  // up to and with the last that worked on it; 0: none
  int64_t start[AT_CORE_MAX_RANK], valid[AT_CORE_MAX_RANK];
} departure;

// An operand's window and where it is now.
// One per ref of the program, in the order of its arguments.
typedef struct window {
  const at_xcore_ref *ref;
  at_core_index_fn index;
  at_core_fill_fn fill;  // makes blocks of an operand that is no array
  // NULL: the ref never moves. With `fill`: what `fill` reads first.
  uint8_t *operand;
  int64_t operand_stride[AT_CORE_MAX_RANK];
  bool may_point;  // the body may work in the operand itself
  bool loaded, direct, whole;
  int32_t now[AT_CORE_MAX_RANK];  // what the index map said
  uint8_t *buffer;                // private copy, made on first need
  size_t buffer_bytes;
  // The part of the block that lies in the operand, in elements.
  int64_t start[AT_CORE_MAX_RANK], skip[AT_CORE_MAX_RANK],
      valid[AT_CORE_MAX_RANK];
  // Under checks: whether it moved in this step, and the blocks of an output
  // that went back last, the latest first.
  bool moved;
  departure left[2];
} window;

// A copy that is not made yet (core_pages.c).
// Both sides are dense.
typedef struct page {
  uint8_t *dst;
  const uint8_t *src;
  size_t bytes;
} page;

typedef struct core_state core_state;
typedef struct shadow shadow;
typedef struct debug_core debug_core;
typedef struct mark mark;
typedef struct sent sent;

// Tables of the checks (core_marks.c); entry 0 of both stands for nothing.
// Under the group's lock, or of a core that runs alone.
typedef struct marks {
  mark *at;
  sent *sent;
  uint32_t num, cap, num_sent, cap_sent;
  uint32_t free, free_sent;  // first of those that nobody uses; 0: none
} marks;

// The cores of one device in a group.
// Borrowed from the launch that runs them.
typedef struct team_of {
  core_state *cores;
  uint32_t num;
} team_of;

// What launches on several devices share. Under `lock`, but for the events and
// what is set when the group is made.
struct at_core_group {
  pthread_mutex_t lock;
  uint32_t devices, joined;
  uint32_t cores, waiting, ended;
  uint64_t changes;  // of semaphores, and cores that ended
  bool complete;     // every device is there
  bool failed;
  at_status why;      // owned; the first core that learns of it takes it
  core_state *first;  // every core, linked by `next`
  team_of *teams;     // by number of device
  uint32_t num_teams;
  uint32_t actors;  // numbers given to cores
  marks marks;
  at_event *all_here, *all_done;
  uint32_t left;  // devices that have left
  bool over;      // all_done has fired, or is about to
  // Devices of other processes; NULL: there are none.
  const at_core_far *far;
  uint32_t others;   // processes that have not sent their last message
  uint32_t hearing;  // messages that are being applied
  bool idle;         // far->waits
};

// One core, or one thread's share of a core's steps (`lead`). Generated code
// sees `head`, which stands first. Written by the thread that runs it; others
// take the group's lock where a comment says so.
struct core_state {
  at_core head;
  const at_core_launch *launch;
  const at_core_program *program;
  at_core_group *group;  // NULL: nobody else can signal
  core_state *next;
  // Where core_exit jumps to: kernels have no way back of their own.
  jmp_buf exit;
  at_status status;
  uint32_t program_index;
  bool initialised;
  core_state
      *elder;     // first core of the same program here, when this is another
  bool together;  // other cores may touch its memory
  // Asked by core_exit, which gives the lock back.
  bool locked;     // holds its group's lock
  uint32_t actor;  // its number in the checks, once it has joined its group
  team_of team;    // all cores of its device; num 0: one that runs alone
  core_state *sibling;  // subcore 0 of the same core, when this is another
  int32_t grid[AT_CORE_MAX_GRID];
  int64_t step;      // of its grid, counted from 0
  uint32_t mapping;  // 1 + the argument whose index map is running
  // Its share of the grid, when the cores of a chip split a dimension.
  bool shares;
  uint32_t share_dim;
  int32_t share_begin, share_end;
  int32_t bounds[AT_CORE_MAX_GRID];
  at_core_ref *refs;
  window *windows;  // per ref
  region *regions;  // room for all that the kernel's arguments can need
  uint32_t num_regions, cap_regions;
  page *pages;  // kMaxPages; NULL: none yet
  uint32_t num_pages, next_page, next_read;
  region_hint copied_from, copied_to;
  sem *sems;
  uint32_t cap_sems;             // the same on every core of a launch
  uint32_t num_sems, most_sems;  // used, now and ever
  uint8_t *stack;                // for allocas
  size_t stack_used, stack_bytes;
  uint8_t *beyond;  // for boxes that leave their refs, in turn; NULL: none yet
  size_t beyond_used;
  uint64_t nowhere;  // what an out-of-range element reads as
  uint8_t *shared;   // of each thread that shares a loop; NULL: none yet
  size_t shared_bytes;
  uint64_t turns;
  uint32_t barriers;  // passed
  // Parts that the kernel names, the innermost last. Only kept for the checks
  // and while a profile is taken.
  bool profiled;
  uint32_t lane;  // its line there
  uint32_t num_spans;
  struct {
    const char *name;
    uint64_t start_ns;
  } spans[kMaxSpans];
  uint64_t random[4];
  // Reads of semaphores since the group's `changes` last was polls_since
  // (under the group's lock).
  uint64_t polls_since;
  uint32_t polls;
  // While it waits (under the group's lock).
  // Read by the search for deadlocks.
  sem *wait_for;
  int64_t wait_amount;
  int32_t wait_loc;
  at_event *wake;
  shadow *shadow;     // NULL: no checks of memory
  debug_core *debug;  // NULL: no debugger
  core_state *lead;   // runs other steps of this core; NULL: this one does
  uint8_t *parcel;    // where copies to other processes are packed; NULL: none
  size_t parcel_bytes;
  _Atomic(void *) note;  // of who multiplies for it
  at_core_due due;
};
// The core that generated code was handed.
static inline core_state *state_of(at_core *c) { return (core_state *)c; }

// ---- core.c
// Dense bytes of the whole array, of all cores where each has its own.
size_t core_array_bytes(const at_xcore_ref *x);  // of an operand or result
// Both give the group's lock back if c holds it.
_Noreturn void core_exit(core_state *c, at_status st);  // consumes st
__attribute__((format(printf, 4, 5))) _Noreturn void core_stop(
    core_state *c, at_code code, int32_t loc, const char *fmt, ...);
// Where an argument's index map is, or where the kernel stores to it, whichever
// is known; in the numbers of `loc`.
int32_t core_window_loc(const core_state *c, uint32_t ref);
// Where output `ref` is stored, else where its block is chosen; -1: neither is
// known.
int32_t core_store_loc(const core_state *c, uint32_t ref);
// "file:line:column (op)", or "" when unknown; valid until the next call on
// `buf`.
const char *core_place(const core_state *c, int32_t loc, char *buf, size_t n);
// The kernel's name, "?" without one; borrowed from the launch.
const char *core_name(const core_state *c);

// ---- core_names.c
// "input 0 (argument 1)"
void core_name_ref(const core_state *c, uint32_t ref, at_strbuf *out);
// Which semaphore of which argument, or one of the core's own.
void core_name_sem(const core_state *c, const sem *s, at_strbuf *out);
// core_name_ref into a buffer, which is returned.
const char *core_ref_text(const core_state *c, uint32_t ref, char *buf,
                          size_t n);
// "core 0 of device 2"
const char *core_who(const core_state *c, char *buf, size_t n);

// Cores of a device in c's group; none if it does not take part.
team_of core_team(const core_state *c, int32_t device);
core_state *core_of_team(team_of team, int32_t core, int32_t subcore,
                         uint32_t type);  // NULL: there is none

// ---- core_memory.c
// Appends to the list; there is always room, as cap_regions counts what
// arguments can need. Borrowed until the launch ends.
region *core_region_add(core_state *c, void *base, size_t bytes,
                        at_core_space space, int32_t ref);
// The region that holds p; NULL: none. near: the same, first among the two that
// were asked for last.
const region *core_region_of(const core_state *c, const void *p);
// core_region_of for callers that ask again and again; *hint starts as zeros.
const region *core_region_near(const core_state *c, const void *p,
                               region_hint *hint);
// The same place of another core of the same program; NULL: none.
void *core_translate(const core_state *from, const core_state *to, void *p);
// owner: 0, or 1 + the type of its program.
// The core that an operation names, AT_CORE_SELF being c's own number. Stops c
// where there is none.
core_state *core_peer(core_state *c, int32_t device, int32_t core,
                      int32_t subcore, int32_t owner, int32_t loc);
// The memory behind allocas. Made at once where copies of other devices may
// arrive, so that every device has it at the same place of its list.
void core_stack_init(core_state *c);
// Scratch of the launch, aligned for vectors, not cleared. Stops c without
// memory, naming `what`.
void *core_take(core_state *c, size_t bytes, const char *what);

// ---- core_copy.c
typedef struct box {
  uint8_t *dst;
  const uint8_t *src;
  uint32_t rank, elem_bytes;
  const int64_t *size, *dst_stride, *src_stride;  // elements, bytes
} box;
// Elements go one by one in row-major order, runs of dense ones as a whole;
// sides may only overlap within one run.
void core_copy_box(const box *b);
// The bytes of a box that is dense on both sides; 0: it is not, or is empty.
size_t core_box_run(const box *b);
void core_copy_shared(at_pool *pool,
                      const box *b);  // a large one: by all threads
// Fills n elements with what nobody may rely on: a NaN that arithmetic does not
// make by itself, the smallest integer.
void core_fill_undefined(void *dst, at_dtype t, int64_t n);
// The same, or in a second run other values (core_again.c).
void core_fill(const core_state *c, void *dst, at_dtype t, int64_t n);

// ---- core_pages.c
// Does the copy wait until somebody needs it?
// True: noted, nothing is moved. The source must stay as it is while the kernel
// runs.
bool core_pages_note(core_state *c, void *dst, const void *src, size_t bytes);
// Makes the copies to any of these bytes.
void core_pages_settle(core_state *c, const void *at, size_t bytes);

// ---- core_misc.c
// A NaN that came from core_fill_undefined, perhaps through arithmetic.
bool core_is_poison(const void *element, at_dtype t);
// Of F32, BF16 and F16; false for other types.
bool core_is_nan(const void *element, at_dtype t);

// ---- core_dma.c
int64_t core_dma_bytes(const at_core_dma *d);
// Elements of a side, d->packed_step apart, that are moved as one: more than
// one where they have less than a byte and the other side packs them.
int64_t core_dma_elements(const at_core_dma *d, bool dst);
// Bytes that the semaphore of a side counts.
int64_t core_dma_signals(const at_core_dma *d, bool dst);
// Bytes from the first to behind the last of a side; 0: there are none.
int64_t core_dma_extent(const at_core_dma *d, bool dst);
// Strides of a dense array of the copy's bytes.
void core_dma_dense(const at_core_dma *d, int64_t *stride);
// The bytes of a copy whose destination packs several elements into one.
void core_dma_repack(const at_core_dma *d, uint8_t *dst);
// A copy that came from elsewhere, within the memory at dst; dst may not suit
// it.
bool core_dma_land(core_state *to, const at_core_dma *d, uint8_t *dst);

// ---- core_far.c: devices of other processes
// Is the device one of another process? False for numbers that are no device's.
bool core_is_elsewhere(const core_state *c, int32_t device);
// Which core is meant there.
typedef struct far_core {
  int32_t device, core, subcore, owner;  // as in core_peer
} far_core;
// sem: index among a core's, -1: none.
void core_far_signal(core_state *c, far_core to, int64_t sem, int64_t amount,
                     int32_t loc);
// r: where d->dst is here.
// Sends the bytes and, with the last of them, the signal. Stops c if the
// message cannot be sent.
void core_far_copy(core_state *c, const at_core_dma *d, const region *r,
                   int64_t sem);

// ---- core_grid.c
// Memories, semaphores and operands of all arguments. Stops c without memory.
void core_windows_init(core_state *c);
// Semaphores that are results keep their values for the next kernel.
void core_semaphores_store(core_state *c);
uint32_t core_first_out(const at_core_program *p);  // its buffer
int64_t core_elements(const at_xcore_ref *x);       // of an operand or scratch
// What the index map of argument i says at a grid step.
void core_window_index(core_state *c, uint32_t i, const int32_t *grid,
                       int32_t *at);
// Steps [begin, end) of the grid in lexicographic order.
void core_run_steps(core_state *c, int64_t begin, int64_t end);
// Grid ids of a step of this core's share, and how many steps that has.
void core_grid_at(const core_state *c, int64_t step, int32_t *grid);
// Steps of this core's share of the grid; ends at 2^62.
int64_t core_grid_steps(const core_state *c);

// ---- core_narrow.c: unsigned integers of 2 and 4 bits
bool core_has_narrow(const at_core_launch *l);
// The launch's buffers with operands as the kernel reads them; aliases must
// have been joined. The caller frees.
at_status core_narrow_begin(const at_core_launch *l, void ***bufs);
void core_narrow_end(const at_core_launch *l);  // results as arrays hold them
// What core_narrow_begin gave. NULL is allowed.
void core_narrow_free(void **bufs, const at_core_launch *l);

// ---- core_split.c
typedef struct core_split_plan {
  uint32_t threads, chunks_per_thread;
  int64_t chunk;  // out: steps of a chunk; 0: they stay together
} core_split_plan;
// plan: a core_split_plan, whose chunk is set to 0 where the steps stay on one
// thread. May stop c.
void core_plan_split(core_state *c, void *plan);
// Does a step leave something to the next that only one core has, like scalars
// or semaphores? `declared`: the kernel says that steps are independent, which
// is taken for its vector memory.
bool core_ties_steps(const core_state *c, bool declared);
int64_t core_block_count(const at_xcore_ref *x);  // of an operand

// ---- core_again.c
// Undefined values, those that are the likelier defect last: of the padding of
// blocks at the edge; of memory that nobody wrote, which a choice may drop; of
// a buffer that is partly written.
typedef enum undefined_kind {
  UNDEFINED_PADDING,
  UNDEFINED_CHOSEN,
  UNDEFINED_PART,
  kNumUndefined
} undefined_kind;

// In `checks` of a second run. No check of its own, but memory and cores are as
// under checks; steps of parallel indices are held apart.
enum { kMute = 1 << 30, kApart = 1 << 29 };

// What a second run makes of NaN: odd, and not far away, since it may be the
// turns of a loop.
enum { kOtherOfNan = 97 };

// What a first run notes for a second one.
typedef struct core_rerun {
  // Per kind: 2 + `loc` of the first load of such values, 0: none.
  _Atomic int32_t undefined_at[kNumUndefined];
  // That of a store of NaN of which nobody knows where it arose: perhaps there.
  _Atomic int32_t nan_at;
  // That of NaN that became an integer, which a choice may drop.
  _Atomic int32_t integer_at;
  // Per argument: that of the last store to what was copied to it.
  _Atomic int32_t *brought;
  bool second;
} core_rerun;
// Runs, and again with other undefined values where some were read: the results
// must not change. `run` only writes the launch's outputs.
at_status core_run_again(const at_core_launch *l,
                         at_status (*run)(const at_core_launch *));
// The first read of each kind is kept, for the message of a NaN or of a second
// run that differs.
void core_note_undefined(core_state *c, undefined_kind kind, int32_t loc);
// Where they were read, of the last kind that was; kNowhere.
enum { kNowhere = INT32_MIN };
// Where undefined values were read; *padding: they were of a block at the edge.
int32_t core_undefined_at(const core_state *c, bool *padding);
// A NaN may come from undefined values that reach no result: the results tell.
bool core_leaves_nan(core_state *c, int32_t loc);
// A NaN became an integer at loc, or decided a choice.
void core_note_integer(core_state *c, int32_t loc);
// The last copy that brought bytes to output `ref` is at loc. Only kept by
// launches that run again.
void core_note_brought(core_state *c, uint32_t ref, int32_t loc);
// Is this the second run, which shows what depends on undefined values?
bool core_runs_again(const core_state *c);

// ---- core_share.c
// Do the cores of a chip share the steps of this kernel? Which dimension they
// split: of the `parallel` ones before the first other, the first that is a
// multiple of the number of cores, else the first with two steps or more.
bool core_is_shared(const core_state *c, uint32_t *out_dim);
// A parallel dimension along which an output's window stays: every core would
// write it. Fails.
void core_check_parallel(core_state *c);

// ---- core_sync.c
// The group's lock, if c is of a group; c must not hold it already. Whoever
// stops c while it is held gives it back (core_exit).
void core_lock(core_state *c);
// Gives back what core_lock took.
void core_unlock(core_state *c);
// Adds to a semaphore of `to`, as done at loc by `from`. Takes the group's
// lock.
void core_signal(core_state *from, core_state *to, sem *s, int64_t amount,
                 int32_t loc);
// Waits until the semaphore has `amount` and takes it off. A core that runs
// alone and would wait for ever stops.
void core_wait(core_state *c, sem *s, int64_t amount, int32_t loc);
// Once per core of a group, whether it failed or not: others that wait for it
// may now be in a deadlock.
void core_ended(core_state *c);
// Under the group's lock: adds to a semaphore of `to`, which wakes it; gives up
// on every wait; looks whether anybody is left who could signal.
void core_raise(at_core_group *g, core_state *to, sem *s, int64_t amount,
                int32_t loc);
// Under the lock: ends every wait of the group.
void core_fail_group(at_core_group *g);
// Under the lock: fails the group, with the waits as its reason, if nobody is
// left who could signal.
void core_look_for_deadlock(at_core_group *g);
void core_set_idle(at_core_group *g, bool idle);  // of groups with a `far`
// Under the group's lock. True, once: all have left and nothing more will come,
// so that all_done is the caller's to fire.
bool core_group_is_over(at_core_group *g);

void marks_free(marks *m);  // core_marks.c

// ---- core_debug.c: a debugger; all but `begin` and `join` do nothing for
// cores that have none Before a launch: finds the debugger, where there is one.
at_status core_debug_begin(void);
void core_debug_join(core_state *c);  // once its memories are there
// The launch of this core has ended: the debugger forgets it.
void core_debug_part(core_state *c);
// One core at a time runs; the others stand at a line, wait, or have ended. May
// wait for its turn; c holds no lock.
void core_debug_enter(core_state *c);
// Gives the floor to other cores: before a wait, and at the end.
void core_debug_leave(core_state *c);
// Lets another core have the floor, if one wants it.
void core_debug_yield(core_state *c);
void core_debug_ended(core_state *c);  // will not run again
void core_debug_step(core_state *c);   // a step of the grid begins
// c is about to wait; its group's lock may be held.
void core_debug_waits(core_state *c, const sem *s, int64_t amount, int32_t loc);
void core_debug_released(core_state *c);  // memory of scopes
// c fails. Stays until the debugger lets go.
void core_debug_failed(core_state *c, at_status st);
// The same of a launch whose failure no core has told.
void core_debug_launch_failed(const at_core_launch *l, at_status st);

// ---- core_shadow.c and others: the checks; only called with a shadow
// Made where the launch has checks; shadow_free takes what was made, also of a
// core that has none.
void core_shadow_init(core_state *c);
// Also of a core whose set-up stopped half-way.
void core_shadow_free(core_state *c);
// p is new memory of a scope: undefined.
void core_shadow_alloc(core_state *c, void *p, size_t bytes);
// A scope ends: stops c where a copy still uses its memory, or a store is lost
// with it.
void core_shadow_freed(core_state *c, uint8_t *p, size_t bytes, int32_t loc);
// Semaphores from first_sem on are given back: stops c where one is not 0.
void core_shadow_release(core_state *c, uint32_t first_sem, int32_t loc);
void core_shadow_window(core_state *c, uint32_t ref);  // a buffer changes hands
void core_shadow_write_back(core_state *c,
                            uint32_t ref);  // before it is copied out
// A step of the grid begins.
void core_shadow_step(core_state *c);
// All windows are where this step wants them.
void core_shadow_moved(core_state *c);
// A copy of nothing was started.
void core_shadow_empty_copy(core_state *c, const at_core_dma *d);
// The kernel has ended: stops c for what was never waited for, never written or
// left signalled.
void core_shadow_finish(core_state *c);
// Before a signal, under the lock: who waits for it will know what `from`
// knows.
void core_shadow_signal(core_state *from, core_state *to, const sem *s);
// dst: where it goes, perhaps on another core.
void core_shadow_copy(core_state *c, core_state *to, const at_core_dma *d,
                      void *dst);
// The indices of a copy by index, which it reads until it is over.
void core_shadow_indices(core_state *c, const at_core_indirect *x);
// After a wait, under the lock: c knows what the signallers knew, and copies of
// that many bytes have arrived.
void core_shadow_wait(core_state *c, const sem *s, int64_t amount);

#endif
