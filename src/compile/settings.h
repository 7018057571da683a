// What decides on an executable beside the program and its options.
#ifndef ATOLL_COMPILE_SETTINGS_H_
#define ATOLL_COMPILE_SETTINGS_H_

#include "base/digest.h"
#include "spinput/flags.h"

// Mixes in this build, the CPU's features, the threads, every knob that could
// change what is compiled, and what the files hold that knobs and flags name.
// `sparse`: its padding is zero.
at_status at_settings_add(uint64_t cpu, uint32_t threads,
                          const at_spinput_flags *sparse, at_digest *io);
// Threads that programs are compiled for. 0: as ATOLL_THREADS has it.
uint32_t at_settings_threads(uint32_t asked);

#endif
