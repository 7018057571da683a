#include "base/interrupt.h"

static _Thread_local const _Atomic bool *t_flag;

void at_interrupt_watch(const _Atomic bool *flag) { t_flag = flag; }
const _Atomic bool *at_interrupt_flag(void) { return t_flag; }

// Relaxed: that the flag is seen a moment later does not matter.
bool at_interrupted(void) {
  return t_flag && atomic_load_explicit(t_flag, memory_order_relaxed);
}
