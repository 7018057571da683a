// What the parts of an estimate share: the walk over a program's computations,
// where values lie, the items of a timeline.
//
// One thread makes a walk. Everything lives in its arena; statuses are
// RESOURCE_EXHAUSTED where it has no memory.
#ifndef ATOLL_ESTIMATE_WALK_H_
#define ATOLL_ESTIMATE_WALK_H_

#include "cost/count.h"
#include "estimate/estimate_internal.h"

// The state of one estimate while it is made. ops, loops and the rest become
// the estimate's when the walk ends.
typedef struct at_est_walk {
  at_arena *arena;
  const at_target *target;
  // What the scheduler takes for the time of a node.
  at_cost_kernels times;  // of the items so far, but for what is beside them
  bool is_tpu;
  at_tpu_chip chip;
  at_estimate *e;
  AT_VEC(at_estimate_op) ops;
  AT_VEC(at_estimate_loop) loops;
  AT_VEC(at_estimate_embedding) embeddings;
  uint32_t loop;  // the innermost around what is walked, index + 1; 0: none
  AT_VEC(const char *) notes;
  const at_estimate_options *options;
  // What loops read as bf16 (at_est_key), converted before them -> where it is.
  at_map narrow;
} at_est_walk;
// Once each; RESOURCE_EXHAUSTED also where `text` is NULL.
// A sentence for the report on what its figures do not cover; borrowed.
at_status at_est_note(at_est_walk *w, const char *text);

// ---- Items of a timeline
// One kernel or control op on the timeline of its computation. Its ops are
// neighbours in walk.ops.
typedef struct at_est_item {
  at_est_group *group;
  double seconds;  // of the item, a loop with all its turns
  double lead;     // before it, for an operand that is brought in first
  double start, end;
  bool network;  // beside the kernels: a collective, a copy to the host, or
                 // a call of the SparseCores
  uint32_t first_op, num_ops;  // in walk.ops: itself, then what is inside
} at_est_item;
// The items of a computation, in the order of its groups.
typedef struct at_est_queue {
  at_est_item *items;
  uint32_t count;
} at_est_queue;
// How long a computation takes, and how much of that no kernel runs.
typedef struct at_est_span {
  double seconds, exposed;
} at_est_span;

// ---- Where operands are on a TPU (residency.c)
// What is known of VMEM while the kernels of one computation are costed in
// order.
typedef struct at_est_residency {
  at_est_walk *w;
  const at_comp *comp;
  at_counter counter;  // of what its kernels compute
  // Two sets of values. What is in neither is in HBM.
  at_map kept;  // values (at_est_key) that a kernel left in VMEM
  double used;  // bytes of VMEM
  double capacity;
  // The clock of prefetches, which take turns on one DMA queue.
  double now;             // seconds of kernels so far
  double fetched;         // when the prefetches so far are done
  at_map prefetched;      // from HBM, while kernels ran (at_est_key)
  bool failed;            // no memory for one of the maps
  bool leaves;            // the kernel at hand may leave its result in VMEM
  const at_node *pinned;  // brought in before the kernel that is asked about
  const at_est_group *previous;  // kernel
  at_est_reuse reuse;            // the host's caches
} at_est_residency;
// A value that is in VMEM when the computation begins, as loop state is.
// False when it was known.
bool at_est_keep(at_est_residency *r, at_value v);
// Bytes of a value in its layout; 0 where its size is not known.
double at_est_tiled(at_value v);
// at_est_placement's two questions; `user` is the residency.
bool at_est_in_vmem(void *user, at_value v);
// Would v fit, if the kernel at hand leaves it there?
bool at_est_out_vmem(void *user, at_value v);
// Does the computation return v? Looks through renamings.
bool at_est_is_result(const at_est_residency *r, at_value v);
// The operand that the compiler brings in ahead of the program's first
// contraction or reduction: the largest that fits.
void at_est_pin_first(at_est_residency *r, const at_est_group *g);
// Kernel `index` has run; last_use: of each of its reads, at_est_last_uses.
void at_est_settle(at_est_residency *r, const at_est_group *g, uint32_t index,
                   const uint32_t *last_use);
// For each operand of each kernel: the last kernel that reads it.
at_status at_est_last_uses(at_est_walk *w, const at_est_groups *g,
                           uint32_t ***out);

// ---- The time of one kernel, collective or copy (times.c)
// Is it beside the kernels?
bool at_est_is_beside(const at_est_walk *w, const at_node *n);
// What an op waits for most, by its seconds.
at_bound at_est_bound_of(const at_estimate_op *o);
// Fill the times and bytes of *o: a kernel on a TPU, on another machine, a
// collective or a copy to the host.
at_status at_est_cost_tpu(at_est_walk *w, at_est_group *g, at_est_residency *r,
                          at_estimate_op *o);
// Errors as at_host_node and at_cost_node.
at_status at_est_cost_other(at_est_walk *w, at_est_group *g,
                            at_est_residency *r, at_estimate_op *o);
// INVALID_ARGUMENT: the target has fewer devices than the program is for, or
// errors of at_cost_collective_of and at_cost_collective.
at_status at_est_cost_network(at_est_walk *w, const at_node *n,
                              at_estimate_op *o);

// ---- SparseCores (sparse.c)
// A lookup in an embedding table, or its update, on a TPU.
bool at_est_is_sparse(const at_est_walk *w, const at_node *n);
// Fills times and bytes of *o, and adds to the walk's embeddings.
// INVALID_ARGUMENT, UNIMPLEMENTED: the call is wrong, or the target has no
// SparseCores.
at_status at_est_cost_sparse(at_est_walk *w, const at_node *n,
                             at_estimate_op *o);
// Gives the estimate the embeddings, with notes and advice; its sums are known.
at_status at_est_end_sparse(at_est_walk *w);

// ---- Copies that the program does not show (copies.c)
// Each is an op of its own in front of or behind the kernel's.
// count, level: runs in a step, and loops around; they are the op's. *it grows
// by the copies' ops and seconds.
at_status at_est_copies_before(at_est_walk *w, at_est_group *g,
                               at_est_residency *r, double count,
                               uint32_t level, at_est_item *it);
// After the kernel's own op.
at_status at_est_copies_after(at_est_walk *w, at_est_group *g,
                              at_est_residency *r, double count, uint32_t level,
                              at_est_item *it);
// A kernel that the program does not show, "name for g"; t: what it makes.
at_status at_est_push_kernel(at_est_walk *w, const at_tpu_kernel *k,
                             const char *name, const at_type *t,
                             const at_est_group *g, double count,
                             uint32_t level, at_est_item *it);
// A copy of a loop's state within VMEM or HBM.
at_status at_est_push_state(at_est_walk *w, at_value v, bool vmem,
                            const at_est_group *g, double count, uint32_t level,
                            at_est_item *it);

// ---- Transposes between reshapes (shuffle.c)
// Sizes of the layouts that a pixel shuffle goes through.
typedef struct at_est_shuffle {
  at_value before, after;   // of the reshapes
  double blocks, quarters;  // of 128 x 128 that change lanes; lanes in use / 32
  double lanes_bytes;       // with the last dimension but one along the lanes
  double tiles, padded_bytes;  // with the last dimension along the lanes
  double rows;                 // of one array of the first dimension
} at_est_shuffle;
// The three kernels of a shuffle.
typedef enum at_est_shuffle_part {
  AT_EST_SHUFFLE_LANES,  // copies in the order in which they run
  AT_EST_SHUFFLE_MOVE,
  AT_EST_SHUFFLE_RESULT
} at_est_shuffle_part;
// False: no such transpose.
bool at_est_shuffle_of(const at_est_residency *r, const at_node *n,
                       at_est_shuffle *out);
// The kernel of one part; whether it reads and writes VMEM depends on what is
// there now.
at_tpu_kernel at_est_shuffle_kernel(const at_est_residency *r,
                                    const at_est_shuffle *s,
                                    at_est_shuffle_part part);

// ---- Loops on a TPU (loops.c)
enum { AT_EST_IN_HBM = 1, AT_EST_IN_VMEM };  // of walk.narrow
// What runs before the loop that is the item's root, an op each.
at_status at_est_enter_loop(at_est_walk *w, at_est_item *it,
                            const at_est_residency *r, double count,
                            uint32_t level);
// What a turn finds in VMEM, where r->comp is a loop's body.
// Nothing for a computation that is no body. Marks reads that are narrow.
void at_est_start_turn(at_est_residency *r, const at_est_groups *groups);
// After kernel g of a loop's body: a copy of state that it reads and writes.
at_status at_est_copy_state(at_est_walk *w, at_est_group *g,
                            const at_est_residency *r, double count,
                            uint32_t level, at_est_item *it);

// The op of a kernel without its time (run.c).
// Name, shapes, source, scope, count and level; "" for a text without memory.
at_estimate_op at_est_describe(at_est_walk *w, const at_est_group *g,
                               double count, uint32_t level);

// ---- The timeline (timeline.c)
// Places the items of computation c and their ops; needs the times of what is
// inside (walk.times).
at_status at_est_run_timeline(at_est_walk *w, const at_comp *c, at_est_queue *q,
                              at_est_span *out);
// Shares the time in which only the network works among its ops.
void at_est_expose(at_est_walk *w, const at_est_queue *q, double exposed,
                   double count);

#endif
