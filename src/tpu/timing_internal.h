// What the files about a kernel's size share.
#ifndef ATOLL_TPU_TIMING_INTERNAL_H_
#define ATOLL_TPU_TIMING_INTERNAL_H_

#include "mosaic/tree.h"
#include "tpu/timing.h"

// ---- timing_value.c: numbers that grid ids decide
// Integers that are known while one step is looked at. A value that changes
// from turn to turn is set anew.
// Wrong numbers would only make times wrong; nothing here is used for
// addresses.
typedef struct at_ms_values {
  at_arena *arena;
  at_map known;  // at_mvalue * -> int64_t *
  const at_mosaic_program *program;
  int64_t *bounds;               // of the grid
  bool zeros;                    // what depends on data is 0
  const at_mosaic_given *given;  // NULL: nothing
} at_ms_values;
// False: not known; *out stays.
bool at_ms_value(at_ms_values *v, const at_mvalue *x, int64_t *out);
// Forgets the value where `known` is false. RESOURCE_EXHAUSTED.
at_status at_ms_value_set(at_ms_values *v, const at_mvalue *x, bool known,
                          int64_t number);
// dst has from now on what src has.
at_status at_ms_value_copy(at_ms_values *v, const at_mvalue *dst,
                           const at_mvalue *src);
// Evaluates an op whose results are numbers; others are left unknown.
at_status at_ms_value_op(at_ms_values *v, const at_mop *op);
// What an index map says; false: it depends on data.
// ids: a number for each dimension of the grid; out: one for each dimension of
// the window. *known false: out means nothing.
at_status at_ms_window_at(at_ms_values *v, const at_mosaic_window *w,
                          const int64_t *ids, int64_t *out, bool *known);

// ---- timing_constant.c: numbers that a kernel reads of constant operands
// Which prefetched operand a ref is, as an argument of the body or of an index
// map; -1: it is another value.
int64_t at_ms_prefetched(const at_mosaic_program *p, const at_mvalue *ref);
// What a load of a prefetched ref gives; false: the operand is no constant, or
// the place is not known.
bool at_ms_constant(at_ms_values *v, const at_mop *op, int64_t *out);
// The grid ids (bits) on which places of such loads in the body depend.
at_status at_ms_constant_ids(const at_mosaic_program *p,
                             const at_mosaic_given *given, at_arena *a,
                             uint32_t *out);

// ---- timing_unit.c: cycles of one op
// Cycles in which nothing else of straight code can run, and how many it has
// had that make others wait.
// Products, reductions and transposes of one body overlap: the first of each
// kind shows its whole latency, later ones a part.
typedef struct at_ms_latency {
  double cycles;
  uint32_t products, reductions, transposes;
} at_ms_latency;
// `latency` grows by the cycles in which nothing else of the step can run.
at_status at_ms_units_add(const at_mop *op, const at_tpu_chip *chip,
                          at_arena *scratch, at_mosaic_units *u,
                          at_ms_latency *latency, double *flops);
// The figures of the units, which what follows takes. Any thread.
// Reads data/tpu/vector_unit.json, which is part of the library, once per
// process. Before it has returned OK the functions below yield zeros.
at_status at_ms_units_load(void);
// Registers that hold a value: packed, or 1 for a scalar.
double at_ms_registers(const at_mtype *t);
double at_ms_vector_slots(void);  // registers that the vector unit does a cycle
// What two parts take that run side by side: at least the longer one.
double at_ms_beside(double a, double b);
// to += u, and the cycles that all units take side by side.
void at_ms_units_sum(at_mosaic_units *to, const at_mosaic_units *u);
// In cycles, side by side.
double at_ms_units_time(const at_mosaic_units *u);
double at_ms_turn(void);  // cycles of a loop's turn beside its operations
double at_ms_step(const at_mosaic_program *p);  // of a step beside its body
// Copies between HBM and VMEM: cycles, bytes per cycle of one and of several
// that begin together.
typedef struct at_ms_copy {
  double latency_in, latency_out, rate, rate_of_all;
} at_ms_copy;
// Cycles before the first step, in which numbers go to SMEM.
double at_ms_prefetch(const at_mosaic_program *p, const at_ms_copy *c);
// Cycles beside the latency.
double at_ms_copy_time(const at_ms_copy *c, double largest, double all);
// A core's share of the chip's HBM rate.
at_ms_copy at_ms_copy_of(const at_tpu_chip *chip);

// ---- timing_body.c
enum { AT_MS_PENDING = 64 };
// Ends of copies in one direction, the oldest first.
typedef struct at_ms_queue {
  double end[AT_MS_PENDING];
  uint32_t first, count;
} at_ms_queue;

// One step under way. Segments end where the body waits for a copy: units run
// side by side within one, not across.
typedef struct at_ms_body {
  at_ms_values values;
  const at_tpu_chip *chip;
  at_arena *scratch;
  at_mosaic_units all;    // of the step
  at_mosaic_units open;   // since the last wait
  double time, waits;     // up to the last wait
  at_ms_latency latency;  // of the step, beside what units do
  double flops, copied;   // bytes that the body copies itself
  at_ms_queue in, out;    // copies that nobody has waited for
  uint32_t nest;          // loops around the operation
  int64_t exact;  // operations of further turns that are looked at, one by one
  bool follows_data;
} at_ms_body;
// One grid step: fills all but values, chip and scratch. exact: operations that
// turns of loops may take beyond the first ones.
at_status at_ms_body_run(at_ms_body *b, const int64_t *ids, int64_t exact);
// With those of all regions inside.
int64_t at_ms_count_ops(const at_mblock *b);

#endif
