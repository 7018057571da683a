// What a program would take on a machine: its kernels, their times, what
// overlaps, what memory it needs, and where each figure comes from.
//
//   bytes + target -> import, passes -> kernels as the target would cut them ->
//   cost of each -> timeline of one device -> report
//
// Times are seconds, sizes bytes.
//
// Errors: RESOURCE_EXHAUSTED beside those that are named. Memory: results live
// in the caller's arena and borrow from the program; reports are appended to
// the caller's buffer. Threads: any.
#ifndef ATOLL_ESTIMATE_ESTIMATE_H_
#define ATOLL_ESTIMATE_ESTIMATE_H_

#include "cost/cost.h"
#include "cost/count.h"
#include "profile/profile.h"

// How ids of embedding lookups are distributed, by stack of tables.
// Borrowed by the options that name it.
typedef struct at_est_ids_spec {
  const struct at_est_ids *list;
  uint32_t num;
} at_est_ids_spec;
// "16": ids of a sample of a feature, different rows drawn evenly;
// "16,zipf=1.05"; "16,unique=0.4,shared=0.9": different rows of a SparseCore
// per id, and of all SparseCores per such row; or a JSON object with such
// fields (ids_per_sample, ...) for each stack, "*" for the others.
// INVALID_ARGUMENT names what is wrong; lives in `a`.
at_status at_estimate_lookups(at_bytes text, at_arena *a,
                              const at_est_ids_spec **out);

// What to estimate for. Texts and tables are borrowed during the call; the
// target's text is copied.
// Zero fields have the defaults that they name.
typedef struct at_estimate_options {
  const char
      *target;  // at_target_parse's grammar: "v5p:2x2x4", "H100:8", "host"
  at_interp mode;
  int64_t num_replicas, num_partitions;  // 0: what the program says
  // The program as this host's compiler will run it (at_compile_module), for
  // the target "host"; borrowed. NULL: read and optimised here.
  at_module *planned;
  // Where its values lie in memory; false: not known. NULL: of none.
  bool (*address)(void *user, at_value v, uint64_t *out);
  void *address_user;
  const at_cost_profile *profile;  // NULL, or what its steps took before
  double bandwidth;                // at_target's
  const at_est_ids_spec *lookups;  // NULL: as many ids as limits allow
} at_estimate_options;

// What a kernel waits for most.
// The unit, or the medium, whose time is the kernel's.
typedef enum at_bound {
  AT_BOUND_MATRIX,
  AT_BOUND_VECTOR,
  AT_BOUND_MEMORY,
  AT_BOUND_LATENCY,  // DMA latency, launches, pipeline fill
  AT_BOUND_NETWORK,
  AT_BOUND_COUNT
} at_bound;
// "matrix", "vector", ...: static text.
const char *at_bound_text(at_bound b);

// One kernel, collective or copy of the timeline. Kernels that the program does
// not show (copies, conversions) are ops of their own. Texts live as long as
// the estimate.
typedef struct at_estimate_op {
  const char *name;  // "dot_general.12": op and node id of the kernel's root
  const char
      *detail;  // "bf16[8,512,1024] <- bf16[8,512,1024], bf16[1024,1024]"
  const char *source;  // "train.py:33", or ""
  const char *scope;   // JAX's name of the op, or ""
  double start;        // on the timeline, of its first run
  // Times are those of one device.
  double seconds;  // of one run
  double count;    // runs in one step of the program
  // Sums over the step multiply seconds by count; what runs beside kernels adds
  // `exposed` instead, which is of all runs already.
  // Comes of a measured table, a model or a guess: at_cost_source tells which.
  double exposed;  // of all runs: time that nothing else hides (network only)
  at_cost_source from;
  at_bound bound;
  // The longest of these is its bound.
  double matrix, vector, memory,
      latency;  // seconds busy in one run; may overlap
  // flops + transcendentals + again_flops is what the kernel computes.
  double flops, transcendentals;  // of one run, as cost/count.h has them
  double again_flops;  // of one run: both, of values that a kernel before it
                       // computed as well
  double hbm_bytes, vmem_bytes, network_bytes;  // of one run
  // Where in the program it is.
  uint32_t nodes;  // of the program, in this kernel
  uint32_t level;  // 0: the entry, 1: a loop's body, ...
  uint32_t loop;   // the innermost around it, index + 1; 0: none
  bool network;    // beside the kernels: a collective, or a copy as below
  bool host_link;  // between the memories of a device and its host
  bool sparse;     // on the SparseCores, beside the kernels
} at_estimate_op;

// A part of what SparseCores do for a lookup or an update.
typedef struct at_estimate_stage {
  const char *name;                          // "gather rows": static text
  double seconds, hbm_bytes, network_bytes;  // of a device
  at_bound bound;
} at_estimate_stage;

// A lookup in an embedding table, or its update. Counts are of one device.
// One for each lookup or update, however often a loop runs it (`count`).
typedef struct at_estimate_embedding {
  const char *name;   // of its op
  const char *table;  // the stack's name, or "" where it has none
  const char *basis;  // where the number of ids comes from: static text
  bool update;
  double rows, width, padded_width, slots;
  double samples;  // over all features of the stack
  // What it moves; then the limits that it was compiled for, and how far they
  // are used.
  double ids, unique;  // that it asks for; different rows of each SparseCore
  double touched;      // different rows of its own that anybody asks for
  double max_ids, max_unique;          // limits, per partition
  double seen_ids, seen_unique;        // on average, per partition; 0: unknown
  double minibatches;                  // of one run
  double tile_bytes, tile_bytes_most;  // of a tile's memory, at least
  double stack_bytes;                  // HBM that it holds while it runs
  const char *refusal;                 // the compiler's, or ""
  double seconds, count;               // of one run; runs
  const at_estimate_stage *stages;
  uint32_t num_stages;
} at_estimate_embedding;

// One of the largest buffers at the peak, for reports.
// For people; sums of them are not temp_bytes.
typedef struct at_estimate_buffer {
  const char *name;    // "argument 3", "dot_general.12"
  const char *type;    // "bf16[8,512,1024]"
  const char *source;  // "train.py:33", or ""
  uint64_t bytes;      // in the target's layout
  bool argument, result;
  const char *until;  // the kernel that needs it last; "": it lives to the end
} at_estimate_buffer;

// A temporary in HBM, from the kernel that writes it to the last that reads it.
// Two whose lives overlap do not overlap in memory.
typedef struct at_estimate_temp {
  at_value value;      // of the program that was estimated
  const char *made;    // of it, for others: " in bf16"; NULL: it itself
  uint64_t bytes;      // in the target's layout
  uint64_t offset;     // in the memory of all temporaries
  int64_t begin, end;  // of the steps, inclusive; each kernel begins and ends
} at_estimate_temp;

// A loop, entry or inner. Its ops are listed as of its first turn; count of an
// op has the turns of all loops around it.
typedef struct at_estimate_loop {
  const char *name;  // "while.12"
  double seconds;    // of one turn
  double turns;      // each time that the loop runs
  uint32_t parent;   // the loop around it, index + 1; 0: none
} at_estimate_loop;

// An op of the program as it runs on this machine, which is what profiles list:
// its name there, and what one run of it asks for.
// Not there unless whoever compiled it for this host has set them.
typedef struct at_estimate_here {
  const char *name;
  double flops, transcendentals, bytes_accessed;
} at_estimate_here;

// An estimate, which nobody changes once it is made. It lives in the arena that
// it was made in, with all that it points to.
// Units: seconds, FLOPs and bytes of one device and one step, unless a line
// says otherwise.
typedef struct at_estimate {
  const char *program, *target, *machine;
  uint32_t num_devices;       // of the target
  uint32_t program_devices;   // that the program is cut for
  const at_estimate_op *ops;  // in the order of their starts
  uint32_t num_ops;
  // low and high: by how far each source of figures can be trusted; no more
  // than a guide.
  double seconds, low, high;  // of one step
  double kernels;             // sum of all kernels of one device
  double network, exposed;    // sum of what is beside the kernels; what of it
                              // is not hidden
  double host_link;           // of it, copies to and from the host
  double prefetch;            // first operands, before anything can hide them
  // Of one device and step. flops, transcendentals: of the program, as profiles
  // and cost_analysis() count them; again_flops: what kernels compute beyond.
  double flops, transcendentals, again_flops, hbm_bytes, network_bytes;
  double model_flops;  // of flops, without what is recomputed for gradients
  double peak_flops;   // per second of one device; 0: not known
  double hbm_rate;     // bytes per second of one device; 0: not known
  double mfu;          // model_flops / (seconds * peak_flops); 0: not known
  double hfu;          // flops / (seconds * peak_flops); 0: not known
  // In HBM; what stays in VMEM is not counted.
  // peak: arguments + results - alias + temporaries; alias: what donated
  // arguments give to results.
  uint64_t argument_bytes, output_bytes, alias_bytes, temp_bytes, peak_bytes;
  // Of results that an argument of the same type could have been donated to.
  uint64_t donatable_bytes;
  // Of the entry's parameters and results, in their order.
  const uint64_t *each_argument, *each_result;
  // In the order of their begins; never more than temp_bytes at a time.
  const at_estimate_temp *temps;
  uint32_t num_temps;
  // The program fits where peak_bytes is at most memory_bytes.
  uint64_t memory_bytes;              // of one device; 0: not known
  const at_estimate_buffer *buffers;  // live at the peak, largest first
  uint32_t num_buffers;
  const at_estimate_loop *loops;
  uint32_t num_loops;
  // The schedule by which temporaries live: the last node of each kernel, at
  // its begin and at its end; NULL: a computation's end.
  const at_node *const *steps;
  uint32_t num_steps;
  // Lookups and updates of embedding tables, in the order of the program.
  const at_estimate_embedding *embeddings;
  uint32_t num_embeddings;
  double sparse;              // sum of what SparseCores do
  double sparse_exposed;      // of it, with no kernel beside it
  const char *const *advice;  // what would make them cheaper
  uint32_t num_advice;
  double by_source[AT_COST_SOURCE_COUNT];  // seconds
  const char *const *notes;                // what the figures do not cover
  uint32_t num_notes;
  // Set by whoever compiled the program for this machine too; num_here 0: not.
  const at_estimate_here *here;
  uint32_t num_here;
  at_count here_all;  // cost_analysis()'s: bodies of loops once
} at_estimate;

// `program`: MLIR bytecode or text, or hlo text. INVALID_ARGUMENT, NOT_FOUND
// and UNIMPLEMENTED as import, passes and at_target_parse give them.
at_status at_estimate_run(at_bytes program, const at_estimate_options *o,
                          at_arena *a, at_estimate **out);

// The program as it is estimated for target `t`, whose `kernels` become what
// its kernels take: at_overlap_of(*out, t) then schedules what at_estimate_run
// puts on its timeline. Errors as at_estimate_run.
at_status at_estimate_module(at_bytes program, at_target *t, at_arena *a,
                             at_module **out);

// The memory alone, of a program whose passes have run and whose ops are not
// fused: the figures in HBM and the buffers; all else is 0 or empty.
// RESOURCE_EXHAUSTED alone.
at_status at_estimate_memory(const at_module *m, const at_target *t,
                             at_arena *a, const at_estimate **out);
// FLOPs of the matrix products in the body of a Pallas kernel, as an estimate
// counts a kernel that says nothing of its costs; 0: they are not known.
// RESOURCE_EXHAUSTED alone.
at_status at_estimate_kernel_flops(const at_node *kernel,
                                   const at_machine *chip, at_arena *a,
                                   double *out);
// The largest buffers at the peak, a line each: size, shape, source, how long
// it lives. At most `rows`.
void at_estimate_largest(const at_estimate *e, uint32_t rows, at_strbuf *out);
// What would take less memory; static text.
const char *at_estimate_memory_advice(const at_estimate *e);

// Whether it is computed again for gradients, as jax.checkpoint has it.
bool at_estimate_is_recomputed(const at_estimate_op *o);

// Reports. `rows`: kernels listed at most; 0: all.
// Kernels by time, the longest first; embeddings and the largest buffers
// follow.
void at_estimate_text(const at_estimate *e, uint32_t rows, at_strbuf *out);
// One object with every figure, kernel and buffer.
void at_estimate_json(const at_estimate *e, at_strbuf *out);
// The timeline in Chrome's trace format, for Perfetto.
void at_estimate_trace(const at_estimate *e, at_strbuf *out);
// The same as events of a profile from a time on: a MODULE and its ops, a
// loop's in its first turn. num_ops + 1 of them; texts are *e's.
// at_ns: when the step starts. out: of the caller.
void at_estimate_events(const at_estimate *e, uint64_t at_ns, uint32_t chip,
                        at_profile_event *out);
// The same as an XSpace, for XProf, with each kernel's FLOPs and bytes of HBM
// and the chip's peaks. RESOURCE_EXHAUSTED alone.
at_status at_estimate_xspace(const at_estimate *e, at_strbuf *out);
// One self-contained page; `other` (may be NULL) is compared with.
void at_estimate_html(const at_estimate *e, const at_estimate *other,
                      at_strbuf *out);
// Two of them as text, kernel by kernel; `rows` as above.
void at_estimate_compare(const at_estimate *a, const at_estimate *b,
                         uint32_t rows, at_strbuf *out);

#endif
