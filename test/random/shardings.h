// Random shardings of random programs, and what the parts of values are.
#ifndef ATOLL_TEST_RANDOM_SHARDINGS_H_
#define ATOLL_TEST_RANDOM_SHARDINGS_H_

#include "passes/shard.h"

uint64_t shardings_next(uint64_t *state);  // a random number

// Gives m a mesh, and parameters, results and nodes shardings: those of nodes
// need not divide. Returns the number of devices.
uint32_t shardings_add(at_arena *a, at_module *m, uint64_t *state);
// How many cuts so far were uneven.
uint64_t shardings_uneven(void);

// Where the elements of parts lie in the whole: the inverse of cutting, from
// the text of a sharding.
typedef struct tiling {
  at_cut cut;
  at_place place;
} tiling;
at_status tiling_read(at_arena *a, at_module *m, const at_type *whole,
                      at_str text, tiling *out);
// What `device` holds of `whole`.
at_status tiling_part(at_arena *a, const tiling *t, int64_t device,
                      const at_literal *whole, const at_literal **out);
// Whether `part` is that, but for what sums in another order round next to
// elements of this size, or to the element itself. *at: the element that
// differs.
bool tiling_agrees(const tiling *t, int64_t device, const at_literal *part,
                   const at_literal *whole, double size, int64_t *at);

#endif
