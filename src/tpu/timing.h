// What a kernel would take on a chip: cycles of each grid step by unit, windows
// that move beside them, where steps wait, and the VMEM that it needs.
//
// A step's body runs on units that work side by side (scalar, vector, XLU,
// EUP, loads, stores, MXU): it takes as long as its busiest unit, and some of
// the others' time. Windows move side by side, each at a copy's rate after a
// copy's latency, one step ahead where they have two buffers. Branches
// and loops on grid ids are followed; those on data are counted as taken, and
// once. Figures: data/tpu/vector_unit.json, cost/tpu.h.
//
// Errors: RESOURCE_EXHAUSTED beside those that are named. Memory: results live
// in the arena that is given and borrow the kernel's names; texts are appended
// to the caller's buffer. Threads: any; pure.
#ifndef ATOLL_TPU_TIMING_H_
#define ATOLL_TPU_TIMING_H_

#include "base/json.h"
#include "base/strbuf.h"
#include "cost/tpu.h"
#include "tpu/rules.h"

// Cycles in which a unit is busy.
// Summed over operations; a unit does one thing at a time, units work side by
// side. XLU: transposes and reductions across lanes; EUP: exp, tanh and other
// transcendentals; matrix: the MXU.
typedef struct at_mosaic_units {
  double scalar, vector, xlu, eup, load, store, matrix;
} at_mosaic_units;

// One step of the grid on the timeline, in cycles from the kernel's start.
// Two windows that move for one step share its in_ or out_ times: from the
// first copy's start to the last one's end.
typedef struct at_mosaic_step {
  int64_t index;               // in lexicographic order
  double ready;                // when the step before it had ended
  double start, end;           // start - ready: it waits for its windows
  double in_bytes, out_bytes;  // windows that move for it
  double in_start, in_end;     // its copies; 0, 0: none
  double out_start, out_end;
} at_mosaic_step;

// What a program takes. Cycles are of one core, the busiest; bytes are of all
// cores of the device.
typedef struct at_mosaic_timing {
  // Borrowed: the kernel's and the machine's.
  const char *kernel, *target;
  double clock;  // hertz
  // Cores beyond `busy` have no step of the grid: it is not split over cores,
  // or too short.
  uint32_t cores;  // of a device; `busy` of them get steps
  uint32_t busy;
  int64_t steps;  // of the busiest core
  double cycles;  // of all
  double seconds;
  at_mosaic_units units;  // of all steps of that core
  double compute;         // bodies, without waits
  double waits;           // for copies that the body starts itself
  double bubbles;         // for windows, between steps
  double transfer;        // bytes move: the largest window of each step
  double transfer_in, transfer_out;  // of windows in, of windows out
  // Of all cores: what the body computes, and what windows and copies move from
  // and to HBM.
  double flops, hbm_bytes;
  at_mosaic_memory memory;
  // vmem_limit is the kernel's own where it asks for one, else the chip's.
  int64_t vmem_limit, vmem_bytes;  // scoped limit; the core's memory
  // Transfers of each window over all steps.
  // Counted in copies: a block that stays from one step to the next is not
  // moved again.
  const double *moves;             // per window of the program
  const at_mosaic_step *timeline;  // the first num_timeline steps
  uint32_t num_timeline;
  // The times are then one of several possible: branches on data count as
  // taken.
  bool follows_data;  // branches, loops or index maps depend on data
} at_mosaic_timing;

// An input that is made block by block: the bytes that are read for all of it,
// and the elementwise operations for each element.
typedef struct at_mosaic_made {
  uint32_t operand;
  double bytes, ops;
} at_mosaic_made;

// Steps of a grid dimension whose bound comes as an operand, where `zeros`.
enum { AT_MOSAIC_UNKNOWN_STEPS = 40 };

// What a caller knows of a call.
typedef struct at_mosaic_given {
  // As the TPU compiler's own estimate counts: what a kernel reads of memory is
  // 0, branches, loops and index maps follow that, and unknown bounds of the
  // grid are AT_MOSAIC_UNKNOWN_STEPS. false: branches on data are taken.
  bool zeros;
  // Values of the operands that are grid bounds, in order; -1: not known.
  const int64_t *bounds;
  uint32_t num_bounds;
  const at_mosaic_made *made;
  uint32_t num_made;
  // What operands hold, in order; NULL: not known. Numbers that the kernel
  // reads of prefetched ones decide branches and index maps, as masks do.
  const at_literal *const *constants;
  uint32_t num_constants;
} at_mosaic_given;

// Bounds of the grid that `given` does not know become the most that shapes
// allow: the length of the prefetched array that an index map looks the grid id
// up in. out_found: how many did. What `given` points to is copied.
at_status at_mosaic_bounds_at_most(const at_mosaic_program *p,
                                   at_mosaic_given *given, at_arena *a,
                                   uint32_t *out_found);

// Of one program of a kernel. given NULL: nothing. FAILED_PRECONDITION: no TPU,
// or a bound of the grid is not known.
at_status at_mosaic_timing_of(const at_mosaic_kernel *k, uint32_t program,
                              const at_machine *machine,
                              const at_mosaic_given *given, at_arena *a,
                              at_mosaic_timing **out);

// Cycles of a kernel whose grid has bounds that are not known: a sum of terms,
// each a factor times some of these bounds.
enum { AT_MOSAIC_FREE = 3 };
typedef struct at_mosaic_formula {
  const char *kernel, *target;
  double clock;
  uint32_t num_bounds;
  uint32_t dim[AT_MOSAIC_FREE];  // of the grid
  // factor[s]: of the product of the bounds whose bits are set in s; [0]: of
  // what does not depend on them.
  double factor[1 << AT_MOSAIC_FREE];
  double other_steps;  // of the grid's other dimensions, for one of each free
  // How far the sum is from the timing of a grid that it was not made from.
  double error;
} at_mosaic_formula;
// UNIMPLEMENTED: more than AT_MOSAIC_FREE unknown bounds. num_bounds 0: all are
// known.
at_status at_mosaic_formula_of(const at_mosaic_kernel *k, uint32_t program,
                               const at_machine *machine,
                               const at_mosaic_given *given, at_arena *a,
                               at_mosaic_formula *out);
// For people: the sum, the target's clock and how far it may be off.
void at_mosaic_formula_text(const at_mosaic_formula *f, at_strbuf *out);
// The sum alone: "1200 + 310 n0".
void at_mosaic_formula_sum(const at_mosaic_formula *f, at_strbuf *out);

// For people: time, steps, units, windows, VMEM, and what bounds the kernel.
void at_mosaic_timing_text(const at_mosaic_timing *s, at_strbuf *out);
// What takes longest: "MXU", "vector unit", "HBM reads", "DMA latency and
// pipeline fill", ... Static text.
const char *at_mosaic_timing_bound(const at_mosaic_timing *s);
// Members of an object that is open: seconds, cycles by unit, bytes of VMEM.
void at_mosaic_timing_json(const at_mosaic_timing *s, at_json_writer *w);
// The grid as a timeline, in Chrome's trace format for Perfetto.
void at_mosaic_timing_trace(const at_mosaic_timing *s, at_strbuf *out);

#endif
