// What the files of this room share. Nothing here is a contract for others.
#ifndef ATOLL_EXEC_EXEC_INTERNAL_H_
#define ATOLL_EXEC_EXEC_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/parallel.h"
#include "base/strbuf.h"
#include "device/core.h"
#include "device/device.h"
#include "exec/exec.h"
#include "kernels/kernels.h"

// ---- blocks.c: pooled host memory
// ------------------------------------------------ Not thread-safe: its chip's
// lock covers it. Blocks are 64-byte aligned, keep their pages when given back,
// and are never zeroed.
typedef struct at_blocks at_blocks;
at_blocks *at_blocks_create(void);
void at_blocks_destroy(at_blocks *b);  // every block must be back, or is leaked
void *at_blocks_take(at_blocks *b, size_t bytes);  // NULL: no host memory
void at_blocks_give(at_blocks *b, void *p, size_t bytes);  // bytes as taken
size_t at_blocks_cached_bytes(const at_blocks *b);
size_t at_blocks_capacity(size_t bytes);  // what a request really gets

// ---- object.c: the ELF loader
// ------------------------------------------------------
typedef struct at_object at_object;
// Maps one relocatable object. INVALID_ARGUMENT for whatever is malformed or
// needs something that is not there (names it).
at_status at_object_load(at_bytes elf, at_object **out);
void at_object_unload(at_object *o);
void *at_object_symbol(const at_object *o, const char *name);  // NULL: none
size_t at_object_mapped_bytes(const at_object *o);
const at_ximport *at_import_find(at_str name);  // imports.c; NULL: none

// ---- check.c: validation of a block
// ------------------------------------------------
at_status at_executable_check(at_bytes block);

// ---- chip.c
// ------------------------------------------------------------------------
typedef struct at_task at_task;

struct at_chip {
  at_runtime *runtime;
  at_chip_info info;
  const at_hw *hw;
  pthread_mutex_t lock;  // blocks, live list, stats, queue
  at_blocks *blocks;
  at_buffer *live;  // buffers that hold accounted memory
  at_memory_stats stats;
  uint64_t temp_in_use;  // scratch of the running launch, part of stats.in_use
  uint32_t transfers;    // running on fibers
  at_event *freed;       // fires when memory came back; NULL: nobody waits
  _Atomic bool wanted;   // somebody may wait for `freed`
  at_task *head, *tail;  // launches that wait for their turn
  _Atomic uint32_t depth;   // of the queue
  _Atomic uint32_t active;  // someone runs launches of this chip
};

at_status at_chip_init(at_chip *c, at_runtime *rt, const at_topology *t,
                       uint32_t index);
void at_chip_fini(at_chip *c);
// Memory for a buffer on its memory kind: accounts b->padded_bytes and sets
// b->data. May wait for running work to give memory back unless
// `on_chip_queue`.
at_status at_chip_allocate(at_chip *c, at_buffer *b, bool on_chip_queue);
void at_chip_free(at_chip *c, at_buffer *b);
// Moves `from`'s memory to `to` (both accounted alike).
void at_chip_move(at_chip *c, at_buffer *from, at_buffer *to);
at_status at_chip_take_scratch(at_chip *c, size_t bytes, bool accounted,
                               void **out);
void at_chip_give_scratch(at_chip *c, void *p, size_t bytes, bool accounted);
void at_chip_notify(at_chip *c);  // a launch ended: waiters look again
at_event *at_chip_next_notice(at_chip *c);  // one reference; NULL: no memory
void at_chip_transfer_begin(at_chip *c);
void at_chip_transfer_end(at_chip *c);

struct at_runtime {
  at_topology topology;
  at_pool *pool;
  at_sched *sched;
  uint32_t num_chips;
  at_chip *chips;
};
at_status at_runtime_check(const at_runtime *rt);  // not in a forked child

// ---- buffer.c
// ---------------------------------------------------------------------- state:
// references in bits 0..31, holds in 32..62, DELETED in 63. A hold keeps the
// memory and the object; deletion keeps new holds away. Memory is freed at the
// one moment when no hold is left and the buffer is deleted or unreferenced.
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
  int64_t dims[];
};
#define AT_BUFFER_HOLD (1ull << 32)
#define AT_BUFFER_DELETED (1ull << 63)

// Without memory; `ready` is consumed. RESOURCE_EXHAUSTED: no host memory.
at_status at_buffer_make(at_chip *c, at_memory_kind k, at_dtype t, at_dims dims,
                         at_event *ready, at_buffer **out);
bool at_buffer_hold(at_buffer *b);         // false: deleted
bool at_buffer_delete_once(at_buffer *b);  // false: it was deleted before
void at_buffer_unhold(at_buffer *b);
bool at_buffer_sole_hold(const at_buffer *b);
void at_copy_bytes(at_pool *p, void *dst, const void *src, size_t n);
void at_size_print(uint64_t bytes, at_strbuf *out);  // "15.75G", "512B"
void at_shape_print(at_dtype t, at_dims dims, at_strbuf *out);

// ---- loaded.c
// ----------------------------------------------------------------------
typedef struct at_ref {
  uint32_t base;  // see at_base
  uint64_t offset;
} at_ref;
enum { AT_BASE_NOTHING, AT_BASE_TEMP, AT_BASE_CONST, AT_BASE_INPUTS };

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
} at_op;

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
  uint32_t checks;   // at_core_checks, for Pallas kernels
  bool small;        // may run on the caller's thread
};
static inline const at_xtype *at_io_type(const at_loaded *l, const at_xio *io) {
  return &l->types[io->type];
}
// Do the input and the output that it names share memory during the launch?
bool at_io_shares(const at_loaded *l, uint32_t input);

// Address of an entry of KERNELS. INVALID_ARGUMENT: the object has no such symbol.
at_status at_loaded_kernel(const at_loaded *l, uint32_t kernel, void **out);

// ---- run.c: the steps
// ----------------------------------------------------------------
typedef struct at_frame {
  const at_loaded *loaded;
  at_chip *chip;
  at_pool *pool;
  void **bufs;  // per ARGS entry
  const at_host_channel *channels;
  uint32_t num_channels;
  int64_t launch_id;
  bool recorded;            // a profiling session runs
  _Atomic(void *) scratch;  // blocks of the running kernel
} at_frame;
at_status at_run_steps(at_frame *f, uint32_t begin, uint32_t end);
// Memory of a running kernel (at_par); any thread of it may ask. `owner`: a frame.
void *at_frame_take_scratch(void *owner, size_t bytes);
void at_frame_give_scratch(at_frame *f);

// ---- core.c: Pallas kernels
// --------------------------------------------------------
at_status at_core_prepare(const at_loaded *l, const at_xstep *step, at_op *op);
at_status at_core_step_run(at_frame *f, const at_op *op, const at_par *par);

// ---- custom.c
// ------------------------------------------------------------------------
at_status at_custom_run(at_frame *f, const at_op *op, const at_xstep *step);

// ---- launch.c
// ------------------------------------------------------------------------
void at_chip_drain(void *chip);  // fiber: runs the queue until it is empty

#endif
