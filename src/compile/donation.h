// Which argument gives its memory to which result.
#ifndef ATOLL_COMPILE_DONATION_H_
#define ATOLL_COMPILE_DONATION_H_

#include "hlo/hlo.h"

// Keeps those aliases of m's arguments whose sizes and layouts agree with the
// result's, gives each donor without one a result of its type or size that
// nobody else takes, and makes the others the caller's. Marks m's parameters.
// Scratch is in `a`.
at_status at_donation_settle(at_module *m, at_arena *a);
// Of each result the argument whose memory it takes, -1: none. At least one
// entry, in `a`.
at_status at_donation_takers(const at_module *m, at_arena *a, int32_t **out);

#endif
