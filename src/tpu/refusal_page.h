// Where docs/refusals.md says why a kernel is refused, and what to do.
#ifndef ATOLL_TPU_REFUSAL_PAGE_H_
#define ATOLL_TPU_REFUSAL_PAGE_H_

#include "base/status.h"

// Consumes a refusal and returns it with its part of the page in its hint, as
// in "docs/refusals.md#where-a-window-begins". Anything else as it is.
at_status at_mosaic_refusal_page(at_status s);

#endif
