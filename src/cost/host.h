// One step of a program on this machine's cores, from what `atoll doctor
// --measure` found: cost per element of each op, rates of runtime kernels over
// size, memory by how long ago a value was touched, costs of a step.
//
// Errors: INVALID_ARGUMENT names the figure that a measured description lacks
// or has wrong; NOT_FOUND: nothing was measured.
// Threads: any.
#ifndef ATOLL_COST_HOST_H_
#define ATOLL_COST_HOST_H_

#include "cost/cost.h"

// The curves of a description, by kind of work: host_rates.def lists them.
typedef enum at_host_rate {
#define AT_HOST_RATE(Id, ...) AT_HOST_##Id,
#include "cost/host_rates.def"
#undef AT_HOST_RATE
  AT_HOST_RATES
} at_host_rate;
// The name of that rate's figure in a description; static.
const char *at_host_rate_figure(at_host_rate r);

enum { AT_HOST_POINTS = 12 };
// Seconds per unit over size, sizes ascending.
typedef struct at_host_curve {
  uint32_t count;  // 0: not measured
  double size[AT_HOST_POINTS], seconds[AT_HOST_POINTS];
} at_host_curve;

// The measured figures. Rates are those of one core.
typedef struct at_host {
  double cores;
  double step;     // seconds of a step that does nothing
  double fork;     // more, where all cores share it
  double scalar;   // of one operation of a loop on scalars
  double overlap;  // part of the smaller of arithmetic and memory not hidden
  at_host_curve curves[AT_HOST_RATES];
  float op[AT_OP_COUNT][AT_DTYPE_COUNT];  // seconds per element on one core
} at_host;
// *out NULL: the description has no such figures (an old or a plain one).
// INVALID_ARGUMENT names a figure that cannot be read.
at_status at_host_of(const at_machine *m, at_arena *a, const at_host **out);
// Seconds per unit at a size, in logs between points; the ends hold on.
// 0: not measured.
double at_host_seconds(const at_host *h, at_host_rate r, double size);

// Bytes touched since the value was last read or written, of which `bytes` are
// now. Called once for each operand and result of a node, in this order.
typedef double (*at_host_distance)(void *user, at_value v, double bytes,
                                   bool write);
// What the caller knows of a program's memory; any function may be NULL.
typedef struct at_host_memory {
  at_host_distance distance;  // NULL: touched within the value's own size
  // Do two values share memory? NULL: updates are in place.
  bool (*same)(void *user, at_value a, at_value b);
  void *user;
} at_host_memory;
// How long a step takes and what for. The parts overlap: total is no less than
// latency and the larger of the others.
typedef struct at_host_time {
  double compute, memory, latency;  // seconds, of all cores
  double total;
  double bytes;  // read and written
} at_host_time;
// A node that is a step of its own, not a collective and no control flow.
// `memory` NULL: nothing is known of it.
at_status at_host_node(const at_target *t, const at_node *n,
                       const at_host_memory *memory, at_host_time *out);
// [b, m, k] x [b, k, n] apart from memory; NOT_FOUND: nothing was measured.
at_status at_host_gemm(const at_target *t, const at_gemm *g, at_cost_time *out);

#endif
