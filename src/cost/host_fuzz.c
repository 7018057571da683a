// Whatever the bytes: as a measured host they give a status or times that are
// numbers; as the trace of a previous run, a status or durations.
#include <math.h>
#include <stdlib.h>

#include "cost/cost.h"

static const char kProgram[] =
    "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (%0: f32[64,64]) -> "
    "(f32[64,64], f32[64,64], f32[64,64]) {\n  %1 = tanh %0 : f32[64,64]\n  "
    "%2 = dot_general %0, %1 {lhs_contracting_dimensions=[1], "
    "rhs_contracting_dimensions=[0]} : f32[64,64]\n  %3 = transpose %2 "
    "{permutation=[1,0]} : f32[64,64]\n  return %1, %2, %3\n}\n}\n";

static void ask(const at_target *t, const at_module *m) {
  AT_FOR_NODES(n, m->entry) {
    at_cost_time time;
    if (!at_code_take(at_cost_node(t, n, &time)) && !(time.seconds >= 0))
      abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(64u << 20);
  at_machine machine;
  at_target *t;
  at_module *m;
  const at_cost_profile *p;
  at_bytes text = {data, size};
  if (at_code_take(at_hlo_parse(AT_STR(kProgram), a, &m))) abort();
  if (!at_code_take(at_machine_read(text, a, &machine)) &&
      !at_code_take(at_target_make(&machine, AT_INTERP_ATOLL, a, &t)))
    ask(t, m);
  if (!at_code_take(at_cost_profile_read(text, a, &p))) {
    AT_FOR_NODES(n, m->entry) {
      double seconds = 0;
      if (at_cost_profiled(p, n, &seconds) && !(seconds >= 0)) abort();
    }
  }
  at_arena_destroy(a);
  return 0;
}
