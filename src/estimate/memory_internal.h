// What the files of the memory plan share: the values of one computation, and
// when they live.
#ifndef ATOLL_ESTIMATE_MEMORY_INTERNAL_H_
#define ATOLL_ESTIMATE_MEMORY_INTERNAL_H_

#include "estimate/estimate_internal.h"
#include "schedule/lifetime.h"

// A value that some memory holds, and the steps in which it does.
typedef struct live {
  at_value value;
  uint64_t bytes;  // of it alone; 0: it lies in another value's memory
  // A step is a kernel's place in the order in which they run.
  uint32_t born, dies;  // steps, inclusive; born > dies: never there
  uint32_t writer;      // group; UINT32_MAX: given
  // Whose memory it is: the caller's, or that of temporaries.
  bool argument, output;
  bool kept;         // an argument that the caller keeps
  bool vmem;         // never in HBM
  bool narrow;       // f32 that is stored as bf16
  bool relaid;       // a loop's state in another layout than the program's
  bool dead;         // nobody reads it, so that VMEM saves nothing
  double gain;       // seconds that VMEM saves, weighted by loops
  const char *made;  // of the value, for others: "in bf16"; NULL: it itself
  uint32_t uses;     // groups that read it and have not run yet
  AT_VEC(uint32_t) readers;
} live;

// Of groups or values.
typedef AT_VEC(uint32_t) indices;

// Of a whole module: which values are read, and which are stored in full.
typedef struct uses {
  at_arena *arena;
  at_map read;            // values (at_est_key) that something reads
  at_map wide;            // values that others than rounding products need
  AT_VEC(at_value) open;  // of `wide`: what hands them on is not marked yet
} uses;

// The memory plan of one computation; regions of control flow have plans of
// their own, in `inside`. Lives in `arena`.
typedef struct lives {
  const at_comp *comp;
  uses *uses;  // NULL: nothing is narrowed
  at_est_groups groups;
  const at_target *target;
  bool tpu;
  bool tight;  // the program does not fit otherwise
  // Rough peaks, which only weigh kernels against each other.
  double rate, flops;  // bytes and FLOP per second
  at_arena *arena;
  AT_VEC(live) list;
  at_map of;  // value (at_est_key) -> index + 1
  // Groups are numbered as groups.list has them, steps as they run; order and
  // step lead from the one to the other.
  indices *reads;         // of each group: values
  uint32_t *order;        // groups, as they run
  uint32_t *step;         // of each group
  double *seconds;        // of each step
  at_span_time *time;     // of each step, and of the end, in one clock for all
  struct lives **inside;  // of each step: its regions, or NULL
} lives;

// Looks through renamings. Valid until the list grows.
live *at_est_live_of(const lives *l, at_value v);  // NULL: it is not stored
// Bytes in the device's memory, as wide as the program has it.
uint64_t at_est_on_device(const lives *l, at_value v);
// It has its memory only while it lives.
bool at_est_is_temporary(const lives *l, const live *x);
// A copy that brings a value from the host's memory.
bool at_est_is_from_host(const lives *l, const at_node *n);

// ---- memory_narrow.c
// Looks at all readers in c and in the computations inside. *u: empty, with its
// arena and maps.
at_status at_est_note_uses(uses *u, const at_comp *c);
// Do only products at default precision read v, also on its way through loops?
bool at_est_only_products(const uses *u, at_value v);

// ---- memory_copies.c
// What is computed with a convolution takes the bytes of its result's layout.
// Sets bytes of values that are there already; before at_est_add_copies.
void at_est_lay_images_out(lives *l);
// State of the program's loops that is put together row by row has a layout of
// its own, and is copied to and from it: no result or argument is its memory.
// Before results are passed on.
void at_est_lay_state_out(lives *l);
// Adds the copies that the compiler makes: arguments rounded for loops, in the
// layouts that ops want, and what sorts add. Times are set.
at_status at_est_add_copies(lives *l);

// ---- memory_vmem.c
// Which temporaries of the entry and of what is inside stay in VMEM: sets
// `vmem`, or `born` to the kernel from which on HBM holds them. vmem: bytes of
// it; clock: how many times there are.
at_status at_est_place_in_vmem(lives *l, double vmem, int64_t clock);

#endif
