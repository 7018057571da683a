// Names that were meant: how many letters two texts are apart, and the nearest
// of a list.
//
// Threads: any; pure functions, nothing is allocated.
#ifndef ATOLL_BASE_NEAREST_H_
#define ATOLL_BASE_NEAREST_H_

#include "base/span.h"

// Letters to insert, drop, change or swap with the next until the texts are
// equal, ignoring case; more than `most`, or texts over 64 bytes: most + 1.
uint32_t at_edits(at_str a, at_str b, uint32_t most);

// The nearest of names[0..n) that is at most a third of its letters away, and
// at least two; NULL when there is none.
const char *at_nearest(at_str text, const char *const *names, size_t n);

#endif
