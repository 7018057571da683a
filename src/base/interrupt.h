// Work that somebody may ask to stop: a thread that watches a flag ends what it
// is doing soon after the flag is set. Arenas then refuse memory, so whatever
// builds something ends at its next block; longer steps ask at_interrupted.
#ifndef ATOLL_BASE_INTERRUPT_H_
#define ATOLL_BASE_INTERRUPT_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

// The flag that this thread watches from now on; NULL: none. Borrowed. A thread
// that works for another watches the same one (at_interrupt_flag).
void at_interrupt_watch(const _Atomic bool *flag);
const _Atomic bool *at_interrupt_flag(void);
// Is the flag that this thread watches set? One relaxed load; false without a
// flag.
bool at_interrupted(void);

#endif
