// What the files of this room share. Nothing here is a contract for others.
#ifndef ATOLL_EXEC_EXEC_INTERNAL_H_
#define ATOLL_EXEC_EXEC_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "abi/launch.h"
#include "base/arena.h"
#include "base/linger.h"
#include "base/parallel.h"
#include "base/strbuf.h"
#include "device/core.h"
#include "device/device.h"
#include "exec/blocks.h"
#include "exec/exec.h"
#include "exec/proxy.h"
#include "exec/proxy_internal.h"
#include "kernels/kernels.h"
#include "profile/profile.h"
#include "profile/spans.h"
#include "sparsecore/engine.h"

// ---- object.c: the ELF loader
// A relocatable object in this process's memory; its code is read-only and
// executable once loaded.
typedef struct at_object at_object;
// Maps one relocatable object (x86-64 ELF), resolves its symbols against the
// runtime's own (imports.c) and its own, and applies relocations. `elf` is read
// during the call only. INVALID_ARGUMENT for whatever is malformed or needs
// something that is not there (names it); nothing of a malformed object is run.
at_status at_object_load(at_bytes elf, at_object **out);
// NULL is allowed. None of its code may be running.
void at_object_unload(at_object *o);
// Address of a defined symbol, until the object is unloaded. NULL: none.
void *at_object_symbol(const at_object *o, const char *name);
// Bytes of address space that it takes, for reports.
size_t at_object_mapped_bytes(const at_object *o);
// A function of the runtime that compiled code may call. Static. NULL: none of
// that name (imports.c).
const at_ximport *at_import_find(at_str name);

// Where programs of hosts that share memory meet (far_share.c).
typedef struct at_far_channel at_far_channel;

// ---- chip.c
typedef struct at_part at_part;

// A device, or a view of one. A view has a queue of its own, but memory, blocks
// and statistics are those of `body`: use these of `body` alone.
struct at_chip {
  at_runtime *runtime;
  // Constant.
  at_chip_info info;
  at_chip
      *body;  // whose memory it uses: itself, or the chip that it is a view of
  _Atomic(at_chip *) next_view;  // of the same chip, which comes first
  const at_hw *hw;
  pthread_mutex_t lock;  // blocks, live list, stats, queue
  at_blocks *blocks;
  at_buffer *live;  // buffers that hold accounted memory
  at_memory_stats stats;
  // Bytes of scratch of the running launch; part of stats.in_use.
  uint64_t temp_in_use;
  // Transfers that run on fibers and will give memory back.
  uint32_t transfers;
  // Fires when memory came back. NULL: nobody waits.
  at_event *freed;
  // Somebody may wait for `freed`: read without the lock, so that who frees
  // takes the lock only then.
  _Atomic bool wanted;
  // A clock of uses of buffers: the one with the smallest `used` is spilled
  // first.
  uint64_t uses;
  // Parts of launches that wait for their turn, in the order of
  // at_launch_enqueue.
  at_part *head, *tail;
  // The part that has the turn; NULL: none, or a caller's thread has it.
  // Written under the lock; the search for deadlocks reads it without.
  _Atomic(at_part *) current;
  // Parts in the queue, the current one included.
  _Atomic uint32_t depth;
  // 1: somebody has the turn of this chip. Taken by compare-and-swap, without
  // the lock.
  _Atomic uint32_t active;
};

// Fills in device `index` of the target. RESOURCE_EXHAUSTED; then there is
// nothing to finish.
at_status at_chip_init(at_chip *c, at_runtime *rt, const at_topology *t,
                       uint32_t index);
// No work and no buffer of it may be left.
void at_chip_fini(at_chip *c);
// The next of all chips and views of them; `after` NULL: the first. NULL: none.
at_chip *at_runtime_next_chip(const at_runtime *rt, at_chip *after);
// Memory for a buffer on its memory kind: accounts b->padded_bytes, sets
// b->data (unless it is foreign) and lists b, pinned once. May wait for running
// work to give memory back unless `on_chip_queue`: a chip's own queue must not
// wait for itself. RESOURCE_EXHAUSTED: HBM, with the largest arrays as detail,
// or the host's memory; b is as before.
at_status at_chip_allocate(at_chip *c, at_buffer *b, bool on_chip_queue);
// Gives back all that at_chip_allocate took, a place in the spill included, and
// wakes who waits for memory. Nothing where nothing was allocated.
void at_chip_free(at_chip *c, at_buffer *b);
// Its memory is there, and stays, until it is unpinned as often; one that was
// allocated is pinned once. Where there is no room, what nobody has pinned for
// longest goes to ATOLL_SPILL_DIR. RESOURCE_EXHAUSTED: all is pinned.
at_status at_chip_pin_slowly(at_chip *c, at_buffer *b);
// The same, and waits while running work will give memory back. Not for the
// chip's own threads.
at_status at_chip_pin_in_time(at_chip *c, at_buffer *b);
void at_chip_unpin_slowly(at_chip *c, at_buffer *b);
// Moves `from`'s memory to `to` (both accounted alike): from then on `from` has
// none, and `to` is listed and pinned once.
void at_chip_move(at_chip *c, at_buffer *from, at_buffer *to);
// A block for the running launch or kernel. accounted: it counts against HBM as
// the program's scratch. RESOURCE_EXHAUSTED: *out is NULL, nothing is
// accounted. Never waits.
at_status at_chip_take_scratch(at_chip *c, size_t bytes, bool accounted,
                               void **out);
// p, bytes, accounted: as taken; p NULL: nothing.
void at_chip_give_scratch(at_chip *c, void *p, size_t bytes, bool accounted);
// A launch has ended: whoever waits for memory or for room in a queue looks
// again.
void at_chip_notify(at_chip *c);
// Fires with the next at_chip_notify or when memory comes back. One reference
// for the caller; NULL: no memory.
at_event *at_chip_next_notice(at_chip *c);
// Around a transfer that holds memory of the chip on a fiber: while one runs,
// at_chip_allocate waits instead of failing.
void at_chip_transfer_begin(at_chip *c);
void at_chip_transfer_end(at_chip *c);

// Lanes run the parts of launches that can go on, one at a time each, in the
// order in which they became ready. At most one lane per core; none when there
// is nothing to do.
typedef struct at_lanes {
  pthread_mutex_t lock;
  at_part *head, *tail;
  uint32_t most;    // lanes at once
  uint32_t active;  // lanes that run or look for parts
  // Lanes in a part that takes long (at_task.heavy).
  uint32_t heavy;
  // Lanes between two parts, which will take the next without being woken.
  uint32_t looking;
  // Lanes that work off lookups and updates beside a launch.
  uint32_t sparse;
  uint32_t blocked;  // lanes inside foreign code, which may take for ever
  // The one active lane looks for deadlocks; no other may start meanwhile.
  bool checking;
  // Something was queued after the last look: once more before the last lane
  // ends.
  bool again;
  // Parts that stopped at a collective. 0: there is no deadlock to look for.
  _Atomic uint32_t waiting;
  at_linger launchers;  // that wait for their launches' turn
} at_lanes;

// All of a process: devices, threads, lanes, and its connections to other
// processes. Fields without a remark are constant from at_runtime_create to
// at_runtime_destroy.
struct at_runtime {
  at_topology topology;
  at_pool *pool;
  // Of one thread: kernels of a launch whose devices fill the lanes.
  at_pool *serial;
  at_pool
      *beside;  // of SparseCores while others use `pool`; NULL: there are none
  at_lanes lanes;
  at_spill *spill;  // NULL: what does not fit is refused
  // Bytes that launches which have not ended take; at_launch_begin waits when
  // they are many.
  _Atomic uint64_t queued_bytes;
  // Launches and copies over several hosts that have not ended.
  _Atomic uint32_t far_work;
  at_sched *sched;
  const at_hosts *hosts;  // NULL: all chips are here
  // Processes that have a share of the chips in the end.
  uint32_t places;
  // This process's number among them. It stays when `hosts` is replaced, which
  // other threads may be reading.
  uint32_t me;
  const at_proxy *proxy;  // NULL: some are
  // Questions to the proxy that are not answered yet; at_proxy_end waits for
  // them.
  _Atomic uint32_t proxy_asked;
  // Groups of arrays, placements of programs, copies of what is elsewhere.
  pthread_mutex_t proxy_lock;
  // Sets of hosts with programs in common, and their counters of launches.
  struct at_far_set *far_sets;   // under the lanes' lock
  at_shared *shared;             // NULL: no process reads this one's memory
  at_far_channel *far_channels;  // under the lanes' lock
  uint32_t num_chips;
  at_chip *chips;
  _Atomic uint32_t num_views;  // of all chips
};
// FAILED_PRECONDITION in a forked child, which has none of the threads.
at_status at_runtime_check(const at_runtime *rt);
// Threads for SparseCores that run beside other work (rt->beside). Idempotent.
// RESOURCE_EXHAUSTED: no thread.
at_status at_runtime_prepare_beside(at_runtime *rt);

// ---- buffer.c
// state: references in bits 0..31, holds in 32..62, DELETED in 63. A hold keeps
// the memory and the object; deletion keeps new holds away. Memory is freed at
// the one moment when no hold is left and the buffer is deleted or
// unreferenced.
// Constant after at_buffer_make, but for `state`, what is said to be under the
// chip's lock, and `data`, which at_chip_allocate sets and at_chip_free clears.
struct at_buffer {
  _Atomic uint64_t state;
  at_chip *chip;
  at_memory_kind kind;
  at_dtype dtype;
  uint32_t rank;
  // `data` is a block of the chip, not the caller's or another buffer's memory.
  bool owned;
  bool listed;
  // Dense bytes here, and what the target's tiled layout takes in HBM.
  size_t bytes, padded_bytes;
  void *data;
  // Of a view: called once, when the memory is not used any more.
  void (*on_release)(void *);
  void *release_arg;
  at_event *ready;
  // Under the chip's lock.
  at_buffer *prev, *next;  // live list
  // Under the chip's lock, where there is a spill:
  uint64_t used, spilled_at;  // of at_chip.uses; where it lies
  uint32_t pins;
  bool spilled;
  // Of one that is elsewhere (proxy.c); NULL: its bytes are here.
  at_proxy_array *array;
  at_proxy_moment *moment;  // when it is defined
  // Of `array`.
  uint32_t shard;
  int64_t dims[];
};
// Units of at_buffer.state.
#define AT_BUFFER_HOLD (1ull << 32)
#define AT_BUFFER_DELETED (1ull << 63)

// Free where the runtime has no spill, as nothing ever moves then.
static inline at_status at_chip_pin(at_chip *c, at_buffer *b) {
  return AT_LIKELY(!c->runtime->spill) ? AT_OK : at_chip_pin_slowly(c, b);
}
static inline void at_chip_unpin(at_chip *c, at_buffer *b) {
  if (AT_UNLIKELY(c->runtime->spill != NULL)) at_chip_unpin_slowly(c, b);
}

// Without memory; `ready` is consumed. RESOURCE_EXHAUSTED: no host memory.
at_status at_buffer_make(at_chip *c, at_memory_kind k, at_dtype t, at_dims dims,
                         at_event *ready, at_buffer **out);
// Sets DELETED and frees the memory if no hold is left. False: it was deleted
// before.
bool at_buffer_delete_once(at_buffer *b);
// Is the caller's hold the only one? Once the buffer is deleted, nobody else
// can take another.
bool at_buffer_sole_hold(const at_buffer *b);
// Holds at this moment; others may come and go.
uint32_t at_buffer_holds(const at_buffer *b);
// `to`, without memory, becomes another face of the memory of `from`, which the
// caller holds: accounted like a copy, which the chip makes. False: `from` is
// somebody else's memory or of another kind; st is then OK.
bool at_buffer_share(at_buffer *from, at_buffer *to, bool on_chip_queue,
                     at_status *st);
// Copies n bytes, large copies on the threads of p (NULL: on this one).
void at_copy_bytes(at_pool *p, void *dst, const void *src, size_t n);
// transfer.c
// Row-major without gaps: the strides say nothing but that, or are NULL.
// Dimensions of 1 may have any stride.
bool at_host_array_is_dense(const at_host_array *a);
// Packs a strided array into dst, dense row-major; `bytes` is dst's size. p may
// be NULL.
void at_host_array_gather(at_pool *p, const at_host_array *a, void *dst,
                          size_t bytes);
// A line of the profile, where one is recorded.
void at_transfer_record(const at_chip *c, uint64_t start, size_t bytes,
                        const char *name);
// "15.75G", "512B": powers of 1024, as XLA prints them.
void at_size_print(uint64_t bytes, at_strbuf *out);
// "f32[8,128]".
void at_shape_print(at_dtype t, at_dims dims, at_strbuf *out);

// ---- loaded.c
// Where an argument of a step lies: the base of a device's table of memory, and
// bytes from there. Resolved once when the program is loaded.
typedef struct at_ref {
  // AT_BASE_*; inputs come first, then outputs: AT_BASE_INPUTS + i.
  uint32_t base;
  uint64_t offset;
} at_ref;
// NOTHING: the argument is left out, its address is NULL.
enum { AT_BASE_NOTHING, AT_BASE_TEMP, AT_BASE_CONST, AT_BASE_INPUTS };

// How long a kernel's last run took, and where that counts.
typedef struct at_core_pace {
  _Atomic int64_t ns;
  _Atomic int64_t *all;
} at_core_pace;

// A step, checked and resolved: what at_cursor_run reads. `kind` and `target`
// are those of at_xstep; arguments are [args, args + num_args) of the frame's
// bufs.
typedef struct at_op {
  uint32_t kind, target;
  uint32_t args, num_args;
  // KERNEL: how many tasks there are, and how many of them a thread takes at a
  // time. aux: by kind.
  int64_t tasks, grain, aux;
  // KERNEL: the function of its range of tasks.
  at_kernel_fn fn;
  // RUNTIME SORT and those like it: the order of two keys; else NULL.
  at_comparator_fn compare;
  // Of the block, borrowed.
  const void *params;
  uint32_t params_bytes;
  // RUNTIME: the kernel of the library (kernels/kernels.h).
  const at_k_info *kernel;
  // CORE: `aux` programs, owned, with `pace` behind them in one block.
  at_core_program *cores;
  at_core_pace *pace;  // CORE: goes with `cores`
  // All devices must be there: colls[target] says which.
  bool meets;
} at_op;

typedef struct at_far_plan at_far_plan;    // far_plan.h
typedef struct at_far_among at_far_among;  // far_share.c
// A collective step, ready to run.
typedef struct at_coll {
  const at_x_collective *x;
  const at_x_exchange *values;
  // By device: its group (UINT32_MAX: none), its rank there, where the group's
  // members begin, how many they are; by place: the members' devices; by
  // device: PERMUTE's source (UINT32_MAX: it receives zeros). Of the block, or
  // of `owned`.
  const uint32_t *group_of, *rank_of, *begin_of, *size_of, *members, *source_of;
  // Of value i: block 2i, tail 2i + 1; may be NULL. SPARSE: one each launch.
  const at_kernel_fn *kernels;
  const at_x_sparse *sparse;  // SPARSE, else NULL
  // Where its groups count arrivals in at_task.meetings.
  uint32_t meetings;
  // `x` and its tables, where the program has no copy of them. Owned.
  void *owned;
  // Reductions: the places of each group's members by the number of the device.
  // Owned.
  uint32_t *order;
  // START: where in at_task.meetings each device counts its turns, and each
  // group those whose bytes have moved.
  uint32_t started, moved;
  // Of a program that spans hosts: the groups, by devices of all hosts. The
  // tables above then say that all devices of this host meet. Owned.
  struct at_coll *whole;
  // Owned.
  at_far_plan *plan;  // NULL: the sizes of messages are not known before
  // Whom it meets in shared memory; NULL: it follows `plan`. Owned.
  at_far_among *among;
  // Where in at_task.meetings its exchanges with other hosts are counted.
  uint32_t turns;
} at_coll;

// Launches of one program on one set of hosts, under every at_loaded of it.
// Lives as long as the runtime, so no launch gets a number twice.
typedef struct at_far_count {
  struct at_far_count *next;
  uint64_t program;
  _Atomic uint64_t launches;
} at_far_count;

// Hosts that have programs in common, this one among them. They count the
// launches of each of those; other hosts know nothing of them.
typedef struct at_far_set {
  struct at_far_set *next;
  uint64_t name;
  at_far_count *counts;
  uint32_t count;
  uint32_t hosts[];  // ascending
} at_far_set;

// A program that spans hosts. Devices are those of all hosts, unless they are
// called places: of their host alone.
typedef struct at_far {
  uint32_t num_devices;
  // Hosts of the job; some may have no device of the program.
  uint32_t all_hosts;
  uint64_t program;     // at_hosts_tag
  at_far_set *set;      // borrowed
  at_far_count *count;  // borrowed
  // By device: the host that has it.
  uint32_t *host_of;
  // By place: the device's number in the whole program.
  uint32_t *mine;
  // Hosts that take part, without this one, ascending.
  uint32_t *others, num_others;
  at_far_channel *channel;  // of hosts that share memory; NULL: messages
  // By device: which of its host's it is.
  uint32_t *place_of;
  _Atomic uint64_t sent;  // bytes
} at_far;
// Points `out` at the tables behind x, which at_loaded_create has checked.
// Borrows x.
void at_coll_prepare(const at_x_collective *x, at_coll *out);
// A meeting of all devices that exchanges no values by itself. *out owns its
// tables. RESOURCE_EXHAUSTED.
at_status at_coll_everyone(uint32_t devices, at_coll *out);

// An executable, checked and mapped. Constant but for what is atomic; shared by
// all launches of it.
struct at_loaded {
  _Atomic uint32_t refs;
  at_runtime *runtime;
  uint8_t *block;  // 64-byte aligned copy
  const at_xheader *header;
  at_object **objects;
  uint32_t num_objects;
  // num_args: rows of the section ARGS.
  uint32_t num_inputs, num_outputs, num_args;
  const at_xio *inputs, *outputs;
  const at_xtype *types;
  const int64_t *dims;
  const uint32_t *args;
  // Per entry of ARGS: where it lies, resolved.
  at_ref *arg_refs;
  // Per entry of STEPS.
  at_op *ops;
  uint32_t num_ops;
  // at_kernel_checks, for Pallas kernels.
  uint32_t checks;
  uint64_t max_turns;  // of their loops
  // Collectives, in the order of their steps: at_op.target.
  at_coll *colls;
  at_kernel_fn *coll_kernels;
  uint32_t num_colls, num_coll_kernels, num_meetings;
  bool meets;  // devices exchange data or wait for each other
  // STARTs of SparseCores: as many jobs can be in a launch's queue.
  uint32_t num_beside;
  uint32_t num_devices;  // replicas x partitions
  // Levels of control flow nested in each other, the program itself included:
  // the size of at_cursor.levels.
  uint32_t depth;
  // Of a launch on one thread: what the compiler expects, and kernels as they
  // last ran. Small programs may run on the caller's thread. learns: of one
  // device, whose runs correct it (at_loaded_took); loops of unknown length are
  // a guess.
  _Atomic int64_t expected_ns;
  bool learns;
  _Atomic bool was_small;
  bool has_kernels;          // of Pallas
  at_far *far;               // NULL: all its devices are here
  at_placement *placements;  // where it was loaded elsewhere (proxy.c)
};
static inline const at_xtype *at_io_type(const at_loaded *l, const at_xio *io) {
  return &l->types[io->type];
}
// Do the input and the output that it names share memory during the launch?
bool at_io_shares(const at_loaded *l, uint32_t input);
// The input that an output is, whose buffer stays the caller's; -1: none.
int32_t at_io_passes(const at_loaded *l, uint32_t output);
// May its next launch run on the caller's thread, by the time that it takes?
bool at_loaded_is_small(at_loaded *l);
// A run of one that `learns` took so long. Any thread.
void at_loaded_took(at_loaded *l, uint64_t ns);

// Address of an entry of KERNELS. INVALID_ARGUMENT: the object has no such
// symbol.
at_status at_loaded_kernel(const at_loaded *l, uint32_t kernel, void **out);

// ---- run.c: the steps
// What a step sees of the launch and the device that it runs for. One thread
// uses it at a time, but for the scratch of its kernel.
typedef struct at_frame {
  const at_loaded *loaded;
  at_chip *chip;
  // Threads for kernels: rt->pool or rt->serial.
  at_pool *pool;
  // Per entry of ARGS: its address for this device.
  void **bufs;
  const at_channel_list *channels;
  int64_t launch_id;
  uint64_t flow;    // at_launch.flow
  uint32_t device;  // of the program
  bool recorded;    // a profiling session runs
  bool in_lane;     // not on a caller's thread
  // Blocks of the running kernel, a list.
  _Atomic(void *) scratch;
} at_frame;
// Memory of a running kernel (at_par); any thread of it may ask. `owner`: a
// frame. NULL: no memory. It stays until at_frame_give_scratch.
void *at_frame_take_scratch(void *owner, size_t bytes);
// After the kernel: gives back all blocks that it took.
void at_frame_give_scratch(at_frame *f);

// Says which op of the program failed, and where the program says it came from.
// Consumes st and returns it with more words; OK stays OK.
at_status at_op_blame(const at_frame *f, const at_op *op, at_status st);
// For the profile: the step took from `start` (at_clock_ns) until now. Where
// one is recorded only (f->recorded).
void at_op_record(const at_frame *f, const at_op *op, uint64_t start);
// An event with times, kind and chip gets the texts of the step.
void at_op_record_event(const at_frame *f, const at_op *op,
                        at_profile_event *e);

// ---- core.c: Pallas kernels
// Makes the programs of a CORE step from its rows of the block; op owns them
// afterwards, also on failure. INVALID_ARGUMENT: the rows do not make a kernel.
at_status at_core_prepare(at_loaded *l, const at_xstep *step, at_op *op);
// What a core needs to know of this launch; borrows all three.
at_core_launch at_core_launch_make(const at_frame *f, const at_op *op,
                                   const at_par *par);
// The kernel on one device, on all of its cores. Its failure names the place in
// the kernel's source.
at_status at_core_step_run(at_frame *f, const at_op *op, const at_par *par);
// Scratch memory of one dot, and the threads that it may use. On the caller's
// stack, between begin and end.
typedef struct at_core_dot_scratch {
  at_frame frame;
  at_par par;
} at_core_dot_scratch;
void at_core_dot_begin(at_core *core, at_core_dot_scratch *s);
void at_core_dot_end(at_core_dot_scratch *s);
// c (+)= a b of a few rows and pages (paged attention), without packing b.
// False: nothing was done, since this product has no such form.
bool at_core_dot_few(at_core *core, const at_core_dot *d);
// Brings in the pages that hold b, for products that read b where it lies.
void at_core_dot_fetch(at_core *core, const at_core_dot *d);
// The same by packed blocks, which stay with the core where operands are read
// more than once. False: no such form; what was postponed before it has been
// added, then. *st: RESOURCE_EXHAUSTED.
bool at_core_dot_blocks(at_core *core, const at_par *par, const at_core_dot *d,
                        at_status *st);
// Do kernels of several devices talk to each other in this step? Then all
// devices of the launch have to be in it at the same time.
bool at_core_communicates(const at_loaded *l, const at_xstep *step);
// core_group.c: the step on all devices of a launch, all of which wait here.
// The last device to arrive calls; each kernel runs on a fiber of its own. The
// first failure ends all of them.
at_status at_core_group_run(at_task *t, const at_op *op);
// core_line.c: such a step with the devices of other hosts. `line` is open from
// when all devices here have joined the group.
typedef struct at_core_line {
  at_core_far face;  // for the group
  at_core_group *group;
  at_task *task;
  const at_op *op;
  at_hosts_tag tag;
  // The runtime's, borrowed.
  const at_hosts_lines *lines;
  at_hosts_line *line;
} at_core_line;
// Fills in l; nothing is opened yet.
void at_core_line_init(at_core_line *l, at_task *t, const at_op *op);
// Also of a line that was never opened.
void at_core_line_close(at_core_line *l);

// Where a device is in the program: ranges of steps, the innermost last. pc:
// the next step of [pc, end).
typedef struct at_level {
  uint32_t pc, end, loop;  // loop: the step that owns the range
  uint32_t kind;           // at_level_kind
  uint64_t entered_ns;     // recorded
} at_level;
// A device's run through the program. It may move from thread to thread between
// steps, never within one.
typedef struct at_cursor {
  at_frame frame;
  at_part *part;
  uint32_t depth;
  uint64_t started_ns;  // recorded: all of it
  uint64_t arrived_ns;  // recorded: at the collective it stopped at
  // The collective that it waits at. NULL: nowhere.
  const at_op *stopped_at;
  at_level *levels;  // loaded->depth entries
} at_cursor;
// Puts the cursor before the first step. `levels` is borrowed until the cursor
// is done.
void at_cursor_start(at_cursor *c, at_level *levels);
// Runs on until the program ends or stops at a collective that others have to
// reach (*waits: the cursor may be running elsewhere by now, so it must not be
// touched any more). A failure is the device's: at_task_fail tells the others.
at_status at_cursor_run(at_cursor *c, bool *waits);

// ---- launch.c: what one launch is
typedef enum at_part_state {
  AT_PART_QUEUED,  // behind others of its chip, or its arguments are not there
  AT_PART_READY,   // a lane will take it
  AT_PART_RUNNING,
  AT_PART_WAITING,  // at a collective
  AT_PART_MEETING,  // at one where all have arrived: bytes are moving; or it
                    // has failed, and others still move bytes
  AT_PART_DONE
} at_part_state;

// One device's share of a launch. Part of its task; lists of parts link through
// `next`, one list at a time.
struct at_part {
  at_part *next;     // in a chip's queue, then in a list of ready parts
  uint64_t turn_ns;  // when its turn came, where spans are kept
  at_task *task;
  at_chip *chip;
  uint32_t device;
  // at_part_state. Written under the task's lock, read without by who looks for
  // deadlocks.
  _Atomic uint32_t state;
  const at_op *stop;  // WAITING: where
  at_cursor *cursor;  // NULL: not started, or done
  // tables: levels, addresses of arguments and of memory. temp: the program's
  // scratch. Both are blocks of the chip.
  void *tables, *temp;  // of the cursor
  uint32_t pinned;      // arguments that are
};

// A lookup or update that all devices have started; `part` was the last.
typedef struct at_sparse_job {
  const at_op *op;
  at_part *part;
} at_sparse_job;

// A launch: made by at_launch_begin, freed by the lane that ends its last part.
// It holds its program, the buffers of the message and their memory until then.
struct at_task {
  at_loaded *loaded;
  at_launch_message *message;
  at_event *done;          // referenced
  at_event *unwanted;      // referenced; NULL: it is wanted
  at_launch_times *times;  // borrowed; NULL: nobody asks
  uint64_t flow, made_ns;  // of spans; made_ns 0: none were kept then
  uint32_t first;          // the device number of part 0: at_launch.alone
  const at_channel_list *channels;
  // Of the runtime's queued_bytes.
  uint64_t bytes;
  pthread_mutex_t lock;  // what follows
  at_part *heads;        // parts whose turn came before the arguments did
  // Some part's turn has come, so arguments are asked for; all of them are
  // there.
  bool asking, ready;
  // All of it runs on the caller's thread, without lanes and queues.
  bool local;
  // It takes so short that a lane on the caller's thread may run it, until it
  // has to sleep for another process.
  bool brief;
  // Of the thread that launches it, as long as that would run its lane; under
  // the lanes' lock.
  at_kept_lane *kept;
  // Parts take long enough to be worth waking a lane for each.
  _Atomic bool heavy;
  // Arguments, counted from the first, that are known to be there.
  _Atomic uint64_t asked;
  // When a collective was last done, and how long a device's work between two
  // of them has taken of late: what `heavy` follows from.
  uint64_t met_ns;
  uint64_t pace_ns;  // of one device's work between them, of late
  // Of a program that spans hosts: at_hosts_tag.launch.
  uint64_t far_launch;
  _Atomic uint32_t *far_work;  // the runtime's, counts it; NULL: it does not
  // Parts that are DONE.
  uint32_t finished;
  // The first failure, under the lock; has_failed says without it that there is
  // one.
  at_status failed;
  _Atomic bool has_failed;
  // Per group of each collective, how many have arrived. Per START also: how
  // often each device has passed it, and how often the bytes of each group have
  // moved.
  uint32_t *meetings;
  // STARTs whose bytes are on their way; no memory of the launch goes while
  // there are any.
  uint32_t moving;
  // Parts that have failed and wait until `moving` is 0.
  at_part *leaving;
  // A ring of loaded->num_beside: a START comes again only after its DONE.
  at_sparse_job *jobs;
  uint32_t first_job, num_jobs;
  // A lane works the jobs off.
  bool jobs_run;
  at_part *ready_head, *ready_tail;  // local
  at_part parts[];
};
static inline uint32_t at_task_devices(const at_task *t) {
  return t->message->num_devices;
}
// The arguments and the outputs of a part, in the launch's message: num_inputs
// and num_outputs of each device, one device after another.
static inline at_buffer **at_part_args(const at_part *p) {
  at_launch_message *m = p->task->message;
  return (at_buffer **)(at_launch_inputs(m) +
                        (size_t)p->device * m->num_inputs);
}
static inline at_buffer **at_part_outputs(const at_part *p) {
  at_launch_message *m = p->task->message;
  return (at_buffer **)(at_launch_outputs(m) +
                        (size_t)p->device * m->num_outputs);
}
// Which of the program's devices here the cursor is: a row of the tables of
// collectives. A cursor without a part is that of a launch on one device.
static inline uint32_t at_cursor_place(const at_cursor *c) {
  const at_part *p = c->part;
  return p ? p->task->first + p->device : c->frame.device;
}
_Static_assert(sizeof(void *) == sizeof(uint64_t), "handles are addresses");
// Takes the memory of one part and fills in where the program finds it; then it
// may run. On failure at_part_end gives back what was taken.
at_status at_part_begin(at_part *p);
void at_part_end(at_part *p);  // gives back all but outputs
// With all references that it holds, but not those that finish_task gives back
// first.
void at_task_free(at_task *t);
// The first failure ends the launch on every device; later ones are dropped.
// Consumes st. Parts that wait at collectives go on, and end.
void at_task_fail(at_task *t, at_status st);

// ---- queue.c: turns and lanes
// Hands the chip's turn to the next part in its queue, or lets it go. Only with
// the turn.
void at_chip_next_turn(at_chip *c);
// Takes the turn of an idle chip. True: the caller must end it, by
// at_chip_end_turn or at_chip_next_turn.
bool at_chip_become_active(at_chip *c);
// Of a caller's thread: the turn goes to who was queued meanwhile.
void at_chip_end_turn(at_chip *c);
// Runs a local task on this thread, its devices in turn from collective to
// collective; frees nothing.
void at_task_run_here(at_task *t);
// Puts `count` parts of t, linked from `first`, into the line for lanes, and
// starts lanes if that is worth it. NULL: nothing.
void at_parts_ready(at_task *t, at_part *first, uint32_t count);
// Around foreign code that may block: another lane may start meanwhile. Calls
// pair up, on one lane.
void at_lane_block(at_runtime *rt);
void at_lane_unblock(at_runtime *rt);

// A lane for the jobs of a launch; then it is one like the others.
void at_lane_for_jobs(at_task *t);

// ---- sparse.c: SparseCores
// One lookup or update of the SparseCores, for all members of the cursor's
// group: bufs[i] are member i's arguments. Returns the engine's errors.
at_status at_sparse_run(at_cursor *c, const at_op *op, void *const *const *bufs,
                        at_pool *pool);
// Does this START or DONE belong to the queue of its launch?
bool at_sparse_is_beside(const at_cursor *c, const at_op *op);
// The cursor passes such a START. The last device of its group puts the job
// into the launch's queue.
at_status at_sparse_start(at_cursor *c, const at_op *op);
// The jobs of a launch, in order, until there is none left; t may be gone then.
void at_sparse_run_jobs(at_task *t);
// Deals the threads out between lookups and the rest of the program. Under the
// lanes' lock, whenever a count of lanes has changed.
void at_lanes_share(at_runtime *rt);

// The cursor's device has come to a collective. The last of its group runs it
// and lets the others go on; *waits: it is not the last.
at_status at_meet(at_cursor *c, const at_op *op, bool *waits);
// Passes a START; the last of the group moves the bytes. *waits: the device has
// passed it, and lets those go first that have not; its part is in the line
// again, so the cursor must not be touched any more.
at_status at_meet_start(at_cursor *c, const at_op *op, bool *waits);
// Under the task's lock: a device passes a START. True: all of its group have.
bool at_start_arrive(at_part *p, const at_coll *k);
// Bytes of a START have moved: who waits for them may go on, and so may parts
// that failed meanwhile. *more: are there jobs of SparseCores? (NULL: not
// asked.)
void at_release_started(at_part *p, const at_op *op, bool *more);
// The collective of the cursor's group, on its members' buffers.
at_status at_coll_run(at_cursor *c, const at_op *op, at_pool *pool);
// At its DONE. *waits: the bytes have not moved yet.
at_status at_meet_done(at_cursor *c, const at_op *op, bool *waits);
// May a failed part give its memory back? False while collectives still move
// bytes of its launch: the last of them makes the part READY again.
bool at_part_may_leave(at_part *p);
// Moves the bytes of one group, which begins at `begin` in the members and has
// `size` of them: bufs[i] are member i's operands, then results. What is NULL
// is elsewhere: such operands give nothing, such results take nothing. Operands
// are not written; results do not overlap them unless a device's are the same
// place.
at_status at_exchange(const at_coll *c, void *const *const *bufs,
                      uint32_t begin, uint32_t size, at_pool *pool);
// The piece of member `rank`, of an operand (cut) or of a result (put), as one
// run of rows * lines * run bytes.
void at_piece_cut(const at_x_exchange *x, uint32_t rank, const uint8_t *from,
                  uint8_t *to);
void at_piece_put(const at_x_exchange *x, uint32_t rank, const uint8_t *from,
                  uint8_t *to);
// RAGGED: the rows that entry i of a member, the `giver` in a group of `size`,
// sends. OUT_OF_RANGE: they are not there, or there is no room for them.
typedef struct at_ragged_rows {
  uint32_t taker;
  uint64_t from, to, bytes;  // in the giver's operand and the taker's result
} at_ragged_rows;
at_status at_ragged_rows_of(const at_x_exchange *x, void *const *bufs,
                            uint32_t giver, uint32_t size, uint64_t i,
                            at_ragged_rows *out);
// Before at_ragged_rows_of: the offsets of a RAGGED exchange divide over a
// group of `size`. INVALID_ARGUMENT: they do not.
at_status at_ragged_check(const at_x_exchange *x, uint32_t size);
// Bytes. Exchanges of fewer are as fast on one thread; results of more than the
// caches hold are written past them.
#define AT_EXCHANGE_SPLIT ((uint64_t)1 << 18)
#define AT_EXCHANGE_STREAM ((uint64_t)8 << 20)
// Copies; stream: past the caches (then an _mm_sfence is the caller's).
void at_put_bytes(uint8_t *dst, const uint8_t *src, size_t n, bool stream);

// Bytes of one summand: of the operand of a device, or of what all members of a
// block of devices add up to, of which `device` is one. data[0] is byte `first`
// of the value.
typedef struct at_summand {
  const uint8_t *data;
  uint64_t first;
  uint32_t device;
} at_summand;
// Bytes [begin, end) of one value of one group, to all results or to `out`; or
// as many of what its parts hold, whatever place that has in the operands.
typedef struct at_sum {
  const at_coll *c;
  uint32_t value;
  const at_summand *parts;  // by number
  uint32_t num_parts;
  void *const *const *bufs;  // by member: results come last; NULL: not here
  uint32_t size;             // members
  uint64_t begin, end;
  uint8_t *out;  // where byte `begin` goes; NULL: to the results
  bool stream;
} at_sum;
static inline uint8_t *at_sum_result(const at_sum *s, uint32_t member) {
  return s->bufs[member] ? s->bufs[member][s->c->x->num_values + s->value]
                         : NULL;
}
// Adds up in the order of the tree over device numbers, so that the bits are
// the same whoever adds. p: threads, or NULL.
void at_sum_run(const at_sum *s, at_pool *pool);
// log2 of the least aligned block of devices that has both; 0: they are one.
uint32_t at_block_joins(uint32_t a, uint32_t b);
// Makes c->order, for reductions only. RESOURCE_EXHAUSTED.
at_status at_coll_order(at_coll *c);  // makes c->order

// A collective of a program that spans hosts; the last device of this one
// calls. Fails as at_hosts.exchange.
at_status at_far_run(at_cursor *c, const at_op *op, at_pool *pool);
at_status at_far_run_ragged(at_task *t, const at_op *op);  // far_ragged.c
// far_share.c: the same where all its hosts share memory.
at_status at_far_run_shared(at_task *t, const at_op *op, at_pool *pool);
// Prepares a program, and then its collectives, for that. far_share makes
// l->far->channel where all hosts of the program share memory; else it stays
// NULL and messages are used.
at_status at_far_share(at_loaded *l, at_chip *const *chips);
at_status at_far_among_make(at_loaded *l, const at_op *op);
// When nothing runs any more.
void at_far_channels_free(at_runtime *rt);
// Devices in no group receive nothing.
void at_far_write_zeros(at_task *t, const at_op *op);
// far.c: what tells the exchanges of a launch apart, but for their steps and
// rounds.
at_hosts_tag at_far_tag(at_task *t);
// The tag of the next exchange of a step; counts the turns of a loop around it.
at_hosts_tag at_far_next_turn(at_task *t, const at_op *op);
// Exchanges `mails`, while another lane may use this one's core. Counts the
// bytes.
at_status at_far_swap(at_task *t, const at_hosts_tag *tag, at_hosts_mail *mails,
                      uint32_t num_mails);
at_status at_far_no_memory(void);
void at_far_sets_free(at_runtime *rt);
// An at_sc_hosts of a step, and its end. On the caller's stack; received blocks
// live until the next exchange or the end.
typedef struct at_far_call {
  at_task *task;
  const at_op *op;
  at_hosts_mail *mails;  // one for every other host of the job
  at_bytes *out;         // of each
} at_far_call;
at_status at_far_call_begin(at_cursor *c, const at_op *op, at_far_call *call,
                            at_sc_hosts *out);
void at_far_call_end(at_far_call *call);
// Frees l->far and the plans; nothing where l does not span hosts.
void at_far_free(at_loaded *l);
// The number of a device of this host in the whole program.
static inline uint32_t at_device_number(const at_loaded *l, uint32_t device) {
  return l->far ? l->far->mine[device] : device;
}

// Of the whole program.
static inline uint32_t at_device_count(const at_loaded *l) {
  return l->far ? l->far->num_devices : l->num_devices;
}

// If launches can never go on, one of them fails: ABORTED, with who waits for
// whom. Only while no lane runs a part (at_lanes.checking).
void at_deadlock_check(at_runtime *rt);
// The same of one local launch, none of whose parts can go on: always an error.
at_status at_task_deadlock(at_task *t);

// The slot of argument i of an op, in the block.
const at_xslot *at_arg_slot(const at_loaded *l, const at_op *op, uint32_t i);
// Brings the bytes of argument i, which foreign code has written, into the form
// that a device has them in (at_settle_bits).
void at_arg_settle(const at_frame *f, const at_op *op, uint32_t i);
// UNIMPLEMENTED: nobody serves calls of that target. Thread-safe.
at_status at_custom_check(const char *target);
// Calls the handler of a CUSTOM step on a thread's own stack, and waits for a
// future that it returns. The handler's error, with the op's name.
at_status at_custom_run(at_frame *f, const at_op *op, const at_xstep *step);

#endif
