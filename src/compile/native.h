// Loops and branches whose steps are short, as one kernel.
#ifndef ATOLL_COMPILE_NATIVE_H_
#define ATOLL_COMPILE_NATIVE_H_

#include "compile/steps.h"
#include "nest/nest.h"

// A nest and where its parameters live: slots[i] of parameter i. The number
// behind the plan's last slot is scratch of `scratch_bytes`.
typedef struct at_native_nest_out {
  at_nest *nest;  // NULL: the node stays steps
  const uint32_t *slots;
  uint32_t num_slots;
  uint64_t scratch_bytes;
  double ns;  // single-thread estimate; of a loop, much
} at_native_nest_out;

// Control flow n as a nest, where the code generator can write all that it does
// and no kernel of it is long enough for threads. Looks at every node inside of
// n once, however often it is asked about n and what is around it. Everything
// lives in the arena of `e`.
at_status at_native_nest(at_emit_steps *e, at_native *state, const at_node *n,
                         at_native_nest_out *out);

#endif
