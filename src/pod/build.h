// Which sources a process talks with: a number of what abi, exec, pod and
// control were when it was built, alike for the library and the command of one
// build. Processes of different ones are turned away, for what they send each
// other, and share in memory, need not have the same form.
//
// Threads: any.
#ifndef ATOLL_POD_BUILD_H_
#define ATOLL_POD_BUILD_H_

#include <stdint.h>

// A number made of the sources, at build time (cmake/AtollSources.cmake);
// constant.
uint32_t at_pod_build(void);

#endif
