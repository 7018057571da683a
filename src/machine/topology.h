// What a target's text names: a machine, how many of its chips, and how they
// are wired.
//
//   [slices "*"] machine [":" X ["x" Y ["x" Z]]]     v6e, v5p:2x2x4, 2*v5e:4x4
//   [slices "*"] machine "-" N                       v5litepod-16, v5p-128
//
// The second form is the cloud's accelerator type: N counts chips on v5e and
// v6e, TensorCores (two to a chip) on the others. Machines go by name, alias
// or device kind, in either case; the labels of node pools are aliases
// (tpu-v6e-slice:4x4). One chip unless the text says more.
//
// Of a TPU, shapes that its network cannot have are errors: more dimensions
// than it is wired in, more chips than a pod, or, for cubes, a plane over more
// than one host. A shape that a pod could have but the cloud does not offer
// is a warning, once per process. Both name the nearest that it offers.
//
// Errors: INVALID_ARGUMENT names the text, what is wrong with it and the
// nearest that is not.
// Memory: texts are borrowed.
// Threads: any.
#ifndef ATOLL_MACHINE_TOPOLOGY_H_
#define ATOLL_MACHINE_TOPOLOGY_H_

#include "base/strbuf.h"
#include "machine/machine.h"

typedef struct at_topology_text {
  at_str machine;    // borrows the text
  int64_t shape[3];  // chips of a slice along x, y, z; 1 where nothing is said
  uint32_t slices;   // >= 1
  uint32_t dims;     // that the text gives; 0: none
  uint64_t count;    // N of an accelerator type; 0: none
} at_topology_text;

// The parts of the text. INVALID_ARGUMENT shows the text and the grammar.
at_status at_topology_split(at_str text, at_topology_text *out);
// Judges the shape for the machine that at_topology_text.machine names, and
// fills in the shape of an accelerator type. INVALID_ARGUMENT names the
// nearest shapes that there are.
at_status at_topology_settle(at_str text, const at_machine *m,
                             at_topology_text *t);
// at_topology_split and at_topology_settle in one, for machines that come with
// Atoll; *machine lives as long as the process. INVALID_ARGUMENT as these,
// and with a list of the machines where the name is of none.
at_status at_topology_read(at_str text, const at_machine **machine,
                           at_topology_text *out);
// The machine of a text that at_topology_read accepts; NULL for another.
const at_machine *at_topology_machine(at_str text);
// The text of the first form for it.
void at_topology_print(const at_machine *m, const at_topology_text *t,
                       at_strbuf *out);

#endif
