// The extension by which the Python package and the `atoll` command reach what
// the PJRT C API has no call for. Its fields are listed in
// python/atoll/_own.py, too.
#ifndef ATOLL_PJRT_OWN_H_
#define ATOLL_PJRT_OWN_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pjrt/pjrt_abi.h"

// It is found as every extension is: by its type in the chain of the API's
// table. Both sides are of one build, so fields may change with it; struct_size
// tells a library that is not.
// The type of the extension: "atol".
enum { AT_PJRT_OWN_EXTENSION = 0x61746f6c };
typedef struct at_pjrt_own {
  PJRT_Extension_Base base;
  // Ors *bits over the processes of the job. A code of at_code and, in `why`, a
  // text; one process alone agrees with itself.
  int (*agree)(uint64_t *bits, char *why, size_t why_bytes);
  // Programs that were compiled again because limits of their tables changed,
  // and how long that took.
  void (*recompiles)(uint64_t *count, uint64_t *ns);
  // at_compile_count.
  void (*compiled)(uint64_t *programs, uint64_t *cached, uint64_t *modules);
  // Traced programs of a pod (atoll.program).
  const struct at_pjrt_graph_calls *graphs;
  // May nothing new be placed on a device, as its host of the pod is drained?
  bool (*drains)(uint32_t device);
  // Named objects and checkpoints of a pod (atoll.objects).
  const struct at_pjrt_named_calls *named;
  // Slices of virtual devices (atoll.make_virtual_device_set).
  const struct at_pjrt_slice_calls *slices;
  // Virtual time of a pod's simulated hosts; 0: they are not.
  uint64_t (*virtual_ns)(void);
  // The `atoll` command: main's arguments, its exit status. NULL in a library
  // that was linked without it.
  // Runs in the caller's process, and may end it.
  int (*command)(int argc, char **argv);
  // Launches that wait or run on a device.
  uint32_t (*queued)(uint32_t device);
} at_pjrt_own;
extern at_pjrt_own at_pjrt_own_extension;

#endif
