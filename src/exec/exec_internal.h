// What the files of this room share. Nothing here is a contract for others.
#ifndef ATOLL_EXEC_EXEC_INTERNAL_H_
#define ATOLL_EXEC_EXEC_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "abi/launch.h"
#include "base/arena.h"
#include "base/parallel.h"
#include "base/strbuf.h"
#include "device/core.h"
#include "device/device.h"
#include "exec/exec.h"
#include "exec/proxy.h"
#include "kernels/kernels.h"
#include "profile/profile.h"
#include "profile/spans.h"
#include "sparsecore/engine.h"

// ---- blocks.c: pooled host memory
// Not thread-safe: its chip's lock covers it. Blocks are 64-byte aligned, keep
// their pages when given back, and are never zeroed.
typedef struct at_blocks at_blocks;
typedef struct at_shared at_shared;  // shared.c
at_blocks *at_blocks_create(void);
void at_blocks_destroy(at_blocks *b);  // every block must be back, or is leaked
void *at_blocks_take(at_blocks *b, size_t bytes);  // NULL: no host memory
// From now on blocks of such a size come from memory that other processes read.
void at_blocks_share(at_blocks *b, at_shared *s, size_t bytes);
void at_blocks_give(at_blocks *b, void *p, size_t bytes);  // bytes as taken
size_t at_blocks_cached_bytes(const at_blocks *b);
size_t at_blocks_capacity(size_t bytes);  // what a request really gets
enum { AT_BLOCK_CLASSES = 16 + 38 * 8 };
uint32_t at_block_class(size_t bytes, size_t *out_size);  // of a request

// ---- shared.c: blocks that other processes of this machine read
// Thread-safe. Blocks are 4096-byte aligned and keep their pages when given
// back.
at_shared *at_shared_create(const at_hosts_share *h);  // NULL: no memory
void at_shared_destroy(at_shared *s);
void *at_shared_take(at_shared *s, size_t bytes);  // NULL: there is no more
void at_shared_give(at_shared *s, void *p, size_t bytes);
// The memory that others read from now on; nobody reads a block of before.
at_status at_shared_renew(at_shared *s, const at_hosts_share *h);
bool at_shared_has(const at_shared *s, const void *p);  // one of its blocks
// Where bytes lie in the memory that others read; UINT64_MAX: they do not.
uint64_t at_shared_offset(const at_shared *s, const void *p, uint64_t bytes);
void *at_shared_at(const at_shared *s, uint64_t offset);  // its inverse

// ---- spill.c: memory that chips have no room for (ATOLL_SPILL_DIR)
// Thread-safe. RESOURCE_EXHAUSTED: the file system refuses.
typedef struct at_spill at_spill;
at_status at_spill_open(const char *dir, at_spill **out);
void at_spill_close(at_spill *s);  // NULL: nothing
at_status at_spill_write(at_spill *s, const void *data, size_t bytes,
                         uint64_t *out_at);
at_status at_spill_read(at_spill *s, uint64_t at, void *data, size_t bytes);
void at_spill_drop(at_spill *s, uint64_t at, size_t bytes);  // bytes as written

// ---- object.c: the ELF loader
typedef struct at_object at_object;
// Maps one relocatable object. INVALID_ARGUMENT for whatever is malformed or
// needs something that is not there (names it).
at_status at_object_load(at_bytes elf, at_object **out);
void at_object_unload(at_object *o);
void *at_object_symbol(const at_object *o, const char *name);  // NULL: none
size_t at_object_mapped_bytes(const at_object *o);
const at_ximport *at_import_find(at_str name);  // imports.c; NULL: none

// Where programs of hosts that share memory meet (far_share.c).
typedef struct at_far_channel at_far_channel;

// ---- chip.c
typedef struct at_part at_part;

struct at_chip {
  at_runtime *runtime;
  at_chip_info info;
  at_chip
      *body;  // whose memory it uses: itself, or the chip that it is a view of
  _Atomic(at_chip *) next_view;  // of the same chip, which comes first
  const at_hw *hw;
  pthread_mutex_t lock;  // blocks, live list, stats, queue
  at_blocks *blocks;
  at_buffer *live;  // buffers that hold accounted memory
  at_memory_stats stats;
  uint64_t temp_in_use;  // scratch of the running launch, part of stats.in_use
  uint32_t transfers;    // running on fibers
  at_event *freed;       // fires when memory came back; NULL: nobody waits
  _Atomic bool wanted;   // somebody may wait for `freed`
  uint64_t uses;         // of buffers, so far
  at_part *head, *tail;  // shares of launches that wait for their turn
  // The part that has the turn; NULL: none, or a caller's thread has it.
  // Written under the lock; the search for deadlocks reads it without.
  _Atomic(at_part *) current;
  _Atomic uint32_t depth;   // of the queue, the current one included
  _Atomic uint32_t active;  // someone runs launches of this chip
};

at_status at_chip_init(at_chip *c, at_runtime *rt, const at_topology *t,
                       uint32_t index);
void at_chip_fini(at_chip *c);
// The next of all chips and views of them; `after` NULL: the first. NULL: none.
at_chip *at_runtime_next_chip(const at_runtime *rt, at_chip *after);
// Memory for a buffer on its memory kind: accounts b->padded_bytes and sets
// b->data. May wait for running work to give memory back unless
// `on_chip_queue`.
at_status at_chip_allocate(at_chip *c, at_buffer *b, bool on_chip_queue);
void at_chip_free(at_chip *c, at_buffer *b);
// Its memory is there, and stays, until it is unpinned as often; one that was
// allocated is pinned once. Where there is no room, what nobody has pinned for
// longest goes to ATOLL_SPILL_DIR. RESOURCE_EXHAUSTED: all is pinned.
at_status at_chip_pin_slowly(at_chip *c, at_buffer *b);
// The same, and waits while running work will give memory back. Not for the
// chip's own threads.
at_status at_chip_pin_in_time(at_chip *c, at_buffer *b);
void at_chip_unpin_slowly(at_chip *c, at_buffer *b);
// Moves `from`'s memory to `to` (both accounted alike).
void at_chip_move(at_chip *c, at_buffer *from, at_buffer *to);
at_status at_chip_take_scratch(at_chip *c, size_t bytes, bool accounted,
                               void **out);
void at_chip_give_scratch(at_chip *c, void *p, size_t bytes, bool accounted);
void at_chip_notify(at_chip *c);  // a launch ended: waiters look again
at_event *at_chip_next_notice(at_chip *c);  // one reference; NULL: no memory
void at_chip_transfer_begin(at_chip *c);
void at_chip_transfer_end(at_chip *c);

// Lanes run the parts of launches that can go on, one at a time each, in the
// order in which they became ready. At most one lane per core; none when there
// is nothing to do.
typedef struct at_lanes {
  pthread_mutex_t lock;
  at_part *head, *tail;
  uint32_t most;     // lanes at once
  uint32_t active;   // lanes that run or look for parts
  uint32_t heavy;    // of these, in a part that takes long
  uint32_t looking;  // of these, between two parts
  uint32_t sparse;   // of these, lookups and updates beside a launch
  uint32_t blocked;  // lanes inside foreign code, which may take for ever
  bool checking;     // the one active lane looks for deadlocks
  bool again;        // look for deadlocks once more before the last lane ends
  _Atomic uint32_t waiting;  // parts that stopped at a collective
} at_lanes;

struct at_runtime {
  at_topology topology;
  at_pool *pool;
  at_pool *serial;  // one thread: kernels of a launch that fills the lanes
  at_pool
      *beside;  // of SparseCores while others use `pool`; NULL: there are none
  at_lanes lanes;
  at_spill *spill;                // NULL: what does not fit is refused
  _Atomic uint64_t queued_bytes;  // memory of launches that have not run
  _Atomic uint32_t far_work;      // launches and copies over several hosts
  at_sched *sched;
  const at_hosts *hosts;         // NULL: all chips are here
  uint32_t places;               // processes that have a share of the chips
  const at_proxy *proxy;         // NULL: some are
  _Atomic uint32_t proxy_asked;  // questions that are not answered yet
  pthread_mutex_t proxy_lock;    // groups of arrays, placements of programs
  struct at_far_set *far_sets;   // under the lanes' lock
  at_shared *shared;             // NULL: no process reads this one's memory
  at_far_channel *far_channels;  // under the lanes' lock
  uint32_t num_chips;
  at_chip *chips;
  _Atomic uint32_t num_views;  // of all chips
};
at_status at_runtime_check(const at_runtime *rt);  // not in a forked child
// Threads for SparseCores that run beside other work; once is enough.
at_status at_runtime_prepare_beside(at_runtime *rt);

// ---- proxy.c: what stands for buffers and programs of other processes
typedef struct at_proxy_array at_proxy_array;
typedef struct at_proxy_moment at_proxy_moment;
typedef struct at_placement at_placement;  // a program on some chips
void at_proxy_ask(at_buffer *b);           // b->ready fires some time
void at_proxy_end(at_runtime *rt);         // no question is under way any more
void at_proxy_let_go(at_buffer *b);        // nobody uses it any more
void at_proxy_moment_release(at_proxy_moment *m);
at_status at_proxy_from_host(at_chip *c, at_memory_kind k,
                             const at_host_array *src, at_buffer **out);
at_status at_proxy_create(at_chip *c, at_memory_kind k, at_dtype t,
                          at_dims dims, at_buffer **out);
void at_proxy_define(at_buffer *b, at_status s);  // consumes s
void *at_proxy_data(at_buffer *b);                // NULL: it cannot be had
// Takes over a hold.
at_status at_proxy_to_host(at_buffer *b, void *dst, size_t offset, size_t n,
                           at_event **out_done);
at_status at_proxy_copy(at_buffer *b, at_chip *c, at_memory_kind k,
                        at_buffer **out);
// The arguments are held, and the donated ones deleted; gives the holds back.
at_status at_proxy_run(at_loaded *l, const at_launch *in,
                       const uint8_t *donated, at_buffer **outputs,
                       at_event **out_done);
void at_proxy_unload(at_loaded *l);

// ---- buffer.c
// state: references in bits 0..31, holds in 32..62, DELETED in 63. A hold keeps
// the memory and the object; deletion keeps new holds away. Memory is freed at
// the one moment when no hold is left and the buffer is deleted or
// unreferenced.
struct at_buffer {
  _Atomic uint64_t state;
  at_chip *chip;
  at_memory_kind kind;
  at_dtype dtype;
  uint32_t rank;
  bool owned;  // data is a block of the chip
  bool listed;
  size_t bytes, padded_bytes;
  void *data;
  void (*on_release)(void *);
  void *release_arg;
  at_event *ready;
  at_buffer *prev, *next;  // live list
  // Under the chip's lock, where there is a spill:
  uint64_t used, spilled_at;  // of at_chip.uses; where it lies
  uint32_t pins;
  bool spilled;
  // Of one that is elsewhere (proxy.c); NULL: its bytes are here.
  at_proxy_array *array;
  at_proxy_moment *moment;  // when it is defined
  uint32_t shard;
  int64_t dims[];
};
#define AT_BUFFER_HOLD (1ull << 32)
#define AT_BUFFER_DELETED (1ull << 63)

static inline at_status at_chip_pin(at_chip *c, at_buffer *b) {
  return AT_LIKELY(!c->runtime->spill) ? AT_OK : at_chip_pin_slowly(c, b);
}
static inline void at_chip_unpin(at_chip *c, at_buffer *b) {
  if (AT_UNLIKELY(c->runtime->spill != NULL)) at_chip_unpin_slowly(c, b);
}

// Without memory; `ready` is consumed. RESOURCE_EXHAUSTED: no host memory.
at_status at_buffer_make(at_chip *c, at_memory_kind k, at_dtype t, at_dims dims,
                         at_event *ready, at_buffer **out);
bool at_buffer_delete_once(at_buffer *b);  // false: it was deleted before
bool at_buffer_sole_hold(const at_buffer *b);
uint32_t at_buffer_holds(const at_buffer *b);
// `to`, without memory, becomes another face of the memory of `from`, which the
// caller holds: accounted like a copy, which the chip makes. False: `from` is
// somebody else's memory or of another kind; st is then OK.
bool at_buffer_share(at_buffer *from, at_buffer *to, bool on_chip_queue,
                     at_status *st);
void at_copy_bytes(at_pool *p, void *dst, const void *src, size_t n);
// transfer.c
bool at_host_array_is_dense(const at_host_array *a);
void at_host_array_gather(at_pool *p, const at_host_array *a, void *dst,
                          size_t bytes);
// A line of the profile, where one is recorded.
void at_transfer_record(const at_chip *c, uint64_t start, size_t bytes,
                        const char *name);
void at_size_print(uint64_t bytes, at_strbuf *out);  // "15.75G", "512B"
void at_shape_print(at_dtype t, at_dims dims, at_strbuf *out);

// ---- loaded.c
typedef struct at_ref {
  uint32_t base;  // see at_base
  uint64_t offset;
} at_ref;
enum { AT_BASE_NOTHING, AT_BASE_TEMP, AT_BASE_CONST, AT_BASE_INPUTS };

// How long a kernel's last run took, and where that counts.
typedef struct at_core_pace {
  _Atomic int64_t ns;
  _Atomic int64_t *all;
} at_core_pace;

typedef struct at_op {
  uint32_t kind, target;
  uint32_t args, num_args;
  int64_t tasks, grain, aux;
  at_kernel_fn fn;           // KERNEL
  at_comparator_fn compare;  // RUNTIME SORT
  const void *params;
  uint32_t params_bytes;
  const at_k_info *kernel;  // RUNTIME
  at_core_program *cores;   // CORE: `aux` of them, owned
  at_core_pace *pace;       // CORE: goes with `cores`
  bool meets;               // all devices must be there: colls[target] says who
} at_op;

typedef struct at_far_plan at_far_plan;    // far_plan.h
typedef struct at_far_among at_far_among;  // far_share.c
// A collective step, ready to run.
typedef struct at_coll {
  const at_x_collective *x;
  const at_x_exchange *values;
  const uint32_t *group_of, *rank_of, *begin_of, *size_of, *members, *source_of;
  // Of value i: block 2i, tail 2i + 1; may be NULL. SPARSE: one each launch.
  const at_kernel_fn *kernels;
  const at_x_sparse *sparse;  // SPARSE, else NULL
  uint32_t meetings;          // where its groups count in a task
  void *owned;                // `x`, where the program has no copy of it
  // Reductions: the places of each group's members by the number of the device.
  // Owned.
  uint32_t *order;
  uint32_t started, moved;  // START: where devices and groups count turns
  // Of a program that spans hosts: the groups, by devices of all hosts. The
  // tables above then say that all devices of this host meet.
  struct at_coll *whole;
  at_far_plan *plan;    // NULL: the sizes of messages are not known before
  at_far_among *among;  // whom it meets in shared memory; NULL: plan
  uint32_t turns;       // where its exchanges are counted in a task
} at_coll;

// Launches of one program on one set of hosts, under every at_loaded of it.
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
  uint32_t all_hosts;            // of the job; some may have no device
  uint64_t program;              // at_hosts_tag
  at_far_set *set;               // borrowed
  at_far_count *count;           // borrowed
  uint32_t *host_of;             // by device
  uint32_t *mine;                // by place
  uint32_t *others, num_others;  // hosts that take part
  at_far_channel *channel;       // of hosts that share memory; NULL: messages
  uint32_t *place_of;            // by device: which of its host's it is
  _Atomic uint64_t sent;         // bytes
} at_far;
void at_coll_prepare(const at_x_collective *x, at_coll *out);
// A meeting of all devices that exchanges no values by itself.
at_status at_coll_everyone(uint32_t devices, at_coll *out);

struct at_loaded {
  _Atomic uint32_t refs;
  at_runtime *runtime;
  uint8_t *block;  // 64-byte aligned copy
  const at_xheader *header;
  at_object **objects;
  uint32_t num_objects;
  uint32_t num_inputs, num_outputs, num_args;
  const at_xio *inputs, *outputs;
  const at_xtype *types;
  const int64_t *dims;
  const uint32_t *args;
  at_ref *arg_refs;  // per ARGS entry
  at_op *ops;        // per STEPS entry
  uint32_t num_ops;
  uint32_t checks;     // at_core_checks, for Pallas kernels
  uint64_t max_turns;  // of their loops
  at_coll *colls;      // per COLLECTIVE step: op.target
  at_kernel_fn *coll_kernels;
  uint32_t num_colls, num_coll_kernels, num_meetings;
  uint32_t num_beside;   // STARTs of SparseCores
  uint32_t num_devices;  // replicas x partitions
  uint32_t depth;        // levels of control flow, the program itself included
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
typedef struct at_frame {
  const at_loaded *loaded;
  at_chip *chip;
  at_pool *pool;  // for kernels
  void **bufs;    // per ARGS entry
  const at_channel_list *channels;
  int64_t launch_id;
  uint64_t flow;            // at_launch.flow
  uint32_t device;          // of the program
  bool recorded;            // a profiling session runs
  bool in_lane;             // not on a caller's thread
  _Atomic(void *) scratch;  // blocks of the running kernel
} at_frame;
// Memory of a running kernel (at_par); any thread of it may ask. `owner`: a
// frame.
void *at_frame_take_scratch(void *owner, size_t bytes);
void at_frame_give_scratch(at_frame *f);

// Says which op of the program failed, and where the program says it came from.
at_status at_op_blame(const at_frame *f, const at_op *op, at_status st);
// For the profile: the step took from `start` until now.
void at_op_record(const at_frame *f, const at_op *op, uint64_t start);
// An event with times, kind and chip gets the texts of the step.
void at_op_record_event(const at_frame *f, const at_op *op,
                        at_profile_event *e);

// ---- core.c: Pallas kernels
at_status at_core_prepare(at_loaded *l, const at_xstep *step, at_op *op);
at_core_launch at_core_launch_make(const at_frame *f, const at_op *op,
                                   const at_par *par);
at_status at_core_step_run(at_frame *f, const at_op *op, const at_par *par);
// Scratch memory of one dot, and the threads that it may use.
typedef struct at_core_dot_scratch {
  at_frame frame;
  at_par par;
} at_core_dot_scratch;
void at_core_dot_begin(at_core *core, at_core_dot_scratch *s);
void at_core_dot_end(at_core_dot_scratch *s);
// c (+)= a b of a few rows and pages. false: nothing was done, since this
// product has no such form.
bool at_core_dot_few(at_core *core, const at_core_dot *d);
void at_core_dot_fetch(at_core *core, const at_core_dot *d);
// The same by packed blocks, which stay with the core where operands do.
bool at_core_dot_blocks(at_core *core, const at_par *par, const at_core_dot *d,
                        at_status *st);
// Do kernels of several devices talk to each other in this step?
bool at_core_communicates(const at_loaded *l, const at_xstep *step);
// core_group.c: the step on all devices of a launch, all of which wait here.
at_status at_core_group_run(at_task *t, const at_op *op);
// core_line.c: such a step with the devices of other hosts. `line` is open from
// when all devices here have joined the group.
typedef struct at_core_line {
  at_core_far face;  // for the group
  at_core_group *group;
  at_task *task;
  const at_op *op;
  at_hosts_tag tag;
  const at_hosts_lines *lines;
  at_hosts_line *line;
} at_core_line;
void at_core_line_init(at_core_line *l, at_task *t, const at_op *op);
void at_core_line_close(at_core_line *l);

// Where a device is in the program: ranges of steps, the innermost last.
typedef struct at_level {
  uint32_t pc, end, loop;  // loop: the step that owns the range
  uint32_t kind;           // at_level_kind
  uint64_t entered_ns;     // recorded
} at_level;
typedef struct at_cursor {
  at_frame frame;
  at_part *part;
  uint32_t depth;
  uint64_t started_ns;      // recorded: all of it
  uint64_t arrived_ns;      // recorded: at the collective it stopped at
  const at_op *stopped_at;  // NULL: nowhere
  at_level *levels;         // loaded->depth entries
} at_cursor;
void at_cursor_start(at_cursor *c, at_level *levels);
// Runs on until the program ends or stops at a collective that others have to
// reach (*waits: the cursor may be running elsewhere by now).
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

// One device's share of a launch.
struct at_part {
  at_part *next;     // in a chip's queue, then in a list of ready parts
  uint64_t turn_ns;  // when its turn came, where spans are kept
  at_task *task;
  at_chip *chip;
  uint32_t device;
  // at_part_state. Written under the task's lock, read without by who looks for
  // deadlocks.
  _Atomic uint32_t state;
  const at_op *stop;    // WAITING: where
  at_cursor *cursor;    // NULL: not started, or done
  void *tables, *temp;  // of the cursor
  uint32_t pinned;      // arguments that are
};

// A lookup or update that all devices have started; `part` was the last.
typedef struct at_sparse_job {
  const at_op *op;
  at_part *part;
} at_sparse_job;

struct at_task {
  at_loaded *loaded;
  at_launch_message *message;
  at_event *done;          // referenced
  at_event *unwanted;      // referenced; NULL: it is wanted
  at_launch_times *times;  // borrowed; NULL: nobody asks
  uint64_t flow, made_ns;  // of spans; made_ns 0: none were kept then
  const at_channel_list *channels;
  uint64_t bytes;
  pthread_mutex_t lock;        // what follows
  at_part *heads;              // parts whose turn came before the arguments did
  bool asking, ready;          // for arguments
  bool local;                  // all of it runs on the caller's thread
  _Atomic bool heavy;          // parts take long enough to be worth a wake-up
  _Atomic uint64_t asked;      // arguments known to be there
  uint64_t met_ns;             // when a collective was last done
  uint64_t pace_ns;            // of one device's work between them, of late
  uint64_t far_launch;         // of a program that spans hosts
  _Atomic uint32_t *far_work;  // the runtime's, counts it; NULL: it does not
  uint32_t finished;
  at_status failed;  // the first failure
  _Atomic bool has_failed;
  // Per group of each collective, how many have arrived. Per START also: how
  // often each device has passed it, and how often the bytes of each group have
  // moved.
  uint32_t *meetings;
  uint32_t moving;   // STARTs whose bytes are on their way
  at_part *leaving;  // parts that have failed and wait until none is
  // A ring of loaded->num_beside: a START comes again only after its DONE.
  at_sparse_job *jobs;
  uint32_t first_job, num_jobs;
  bool jobs_run;                     // a lane works them off
  at_part *ready_head, *ready_tail;  // local
  at_part parts[];
};
static inline uint32_t at_task_devices(const at_task *t) {
  return t->message->num_devices;
}
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
_Static_assert(sizeof(void *) == sizeof(uint64_t), "handles are addresses");
// Memory of one part and where the program finds it; then it may run.
at_status at_part_begin(at_part *p);
void at_part_end(at_part *p);  // gives back all but outputs
void at_task_free(at_task *t);
// The first failure ends the launch on every device; consumes st.
void at_task_fail(at_task *t, at_status st);

// ---- queue.c: turns and lanes
void at_chip_next_turn(
    at_chip *c);  // the chip is active and has no current part
bool at_chip_become_active(at_chip *c);
void at_chip_end_turn(at_chip *c);  // of a caller
void at_task_run_here(at_task *t);  // local; frees nothing
void at_parts_ready(at_task *t, at_part *first, uint32_t count);
// Around foreign code that may block: another lane may start meanwhile.
void at_lane_block(at_runtime *rt);
void at_lane_unblock(at_runtime *rt);

// A lane for the jobs of a launch; then it is one like the others.
void at_lane_for_jobs(at_task *t);

// ---- sparse.c: SparseCores
at_status at_sparse_run(at_cursor *c, const at_op *op, void *const *const *bufs,
                        at_pool *pool);
// Does this START or DONE belong to the queue of its launch?
bool at_sparse_is_beside(const at_cursor *c, const at_op *op);
// The cursor passes such a START.
at_status at_sparse_start(at_cursor *c, const at_op *op);
// Until there is no job left; t may be gone then.
void at_sparse_run_jobs(at_task *t);
void at_lanes_share(at_runtime *rt);  // under the lanes' lock

// ---- collective.c, exchange.c
// The cursor's device has come to a collective. *waits: it is not the last.
at_status at_meet(at_cursor *c, const at_op *op, bool *waits);
// Passes a START; the last of the group moves the bytes.
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
// Moves the bytes of one group: bufs[i] are member i's operands, then results.
// What is NULL is elsewhere: such operands give nothing, such results take
// nothing.
at_status at_exchange(const at_coll *c, void *const *const *bufs,
                      uint32_t begin, uint32_t size, at_pool *pool);
// The piece of member `rank`, of an operand or of a result, as one run of
// bytes.
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
at_status at_ragged_check(const at_x_exchange *x, uint32_t size);
// Exchanges of fewer bytes are as fast on one thread; results of more than no
// cache holds are written past it.
#define AT_EXCHANGE_SPLIT ((uint64_t)1 << 18)
#define AT_EXCHANGE_STREAM ((uint64_t)8 << 20)
// Copies; stream: past the caches (then an _mm_sfence is the caller's).
void at_put_bytes(uint8_t *dst, const uint8_t *src, size_t n, bool stream);

// ---- reduce.c: sums over devices
// The bytes from `first` on of the operand of a device, or of what all members
// of a block of devices add up to, of which `device` is one.
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
void at_sum_run(const at_sum *s, at_pool *pool);
// log2 of the least aligned block of devices that has both; 0: they are one.
uint32_t at_block_joins(uint32_t a, uint32_t b);
at_status at_coll_order(at_coll *c);  // makes c->order

// ---- far.c: other hosts
// A collective of a program that spans hosts; the last device of this one
// calls.
at_status at_far_run(at_cursor *c, const at_op *op, at_pool *pool);
at_status at_far_run_ragged(at_task *t, const at_op *op);  // far_ragged.c
// far_share.c: the same where all its hosts share memory.
at_status at_far_run_shared(at_task *t, const at_op *op, at_pool *pool);
// Prepares a program, and then its collectives, for that.
at_status at_far_share(at_loaded *l, at_chip *const *chips);
at_status at_far_among_make(at_loaded *l, const at_op *op);
void at_far_channels_free(at_runtime *rt);
// Devices in no group receive nothing.
void at_far_write_zeros(at_task *t, const at_op *op);
// far.c: what tells the exchanges of a launch apart, but for their rounds.
at_hosts_tag at_far_tag(at_task *t);
at_hosts_tag at_far_next_turn(at_task *t, const at_op *op);
at_status at_far_swap(at_task *t, const at_hosts_tag *tag, at_hosts_mail *mails,
                      uint32_t num_mails);
at_status at_far_no_memory(void);
void at_far_sets_free(at_runtime *rt);
// An at_sc_hosts of a step, and its end.
typedef struct at_far_call {
  at_task *task;
  const at_op *op;
  at_hosts_mail *mails;  // one for every other host of the job
  at_bytes *out;         // of each
} at_far_call;
at_status at_far_call_begin(at_cursor *c, const at_op *op, at_far_call *call,
                            at_sc_hosts *out);
void at_far_call_end(at_far_call *call);
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
// whom. Only while nothing runs.
void at_deadlock_check(at_runtime *rt);
at_status at_task_deadlock(at_task *t);  // of one launch, local

// ---- custom.c
// Argument i of an op: its slot, and its bytes as a device has them once a host
// has written them.
const at_xslot *at_arg_slot(const at_loaded *l, const at_op *op, uint32_t i);
void at_arg_settle(const at_frame *f, const at_op *op, uint32_t i);
// UNIMPLEMENTED: nobody serves calls of that target. Thread-safe.
at_status at_custom_check(const char *target);
at_status at_custom_run(at_frame *f, const at_op *op, const at_xstep *step);

#endif
