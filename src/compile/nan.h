// ATOLL_CHECK=nan for programs: the op that made a NaN which reached a result.
//
// Before ops are fused, every op that computes floating-point values is
// followed by a custom call that looks at what it read and made; at the end of
// the program another looks at the results. They share a record, a small array
// that the first node of the program makes and that regions read from around
// them. A NaN in a result is followed back through the values that held one, to
// the first op that made one of operands without: an element of its own for
// elementwise ops, whole arrays for others. A NaN that a select leaves out,
// that came in as an argument or that is written down as a constant is nobody's
// mistake. Each device has a record of its own: what a collective brings is
// told by the device that made it, as far as it reaches a result there; what a
// sum over devices makes of operands without is told by each that receives it.
#ifndef ATOLL_COMPILE_NAN_H_
#define ATOLL_COMPILE_NAN_H_

#include "hlo/hlo.h"

// Adds these calls to m, whose ops are not fused yet; their target is
// AT_NAN_TARGET, which at_nan_call (compile/compile.h) serves. Linear.
at_status at_nan_watch(at_module *m);
// INVALID_ARGUMENT: the program as it came has such a call.
at_status at_nan_refuse(const at_module *m);

#endif
