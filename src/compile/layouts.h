// Layouts of a program's arguments and results. In this machine's memory every
// array is dense and row-major; a layout says how the chip would hold it, and
// clients are told.
#ifndef ATOLL_COMPILE_LAYOUTS_H_
#define ATOLL_COMPILE_LAYOUTS_H_

#include "hlo/hlo.h"

// Chooses what was left open ("auto"): arguments are held in the order in which
// the chip's tiles pad least; a result that is a transpose keeps the
// order in memory of what it transposes. A result behind a layout constraint
// has the constraint's. `m` is as import leaves it.
at_status at_layouts_settle(at_module *m);
// Whether parameter p and result r are held alike, so that one may take the
// other's memory.
bool at_layouts_agree(const at_module *m, uint32_t p, uint32_t r);

#endif
