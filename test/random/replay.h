// One node of a program, evaluated on given operands.
#ifndef ATOLL_TEST_RANDOM_REPLAY_H_
#define ATOLL_TEST_RANDOM_REPLAY_H_

#include "hlo/hlo.h"

// What a value of the entry computation was.
typedef const at_literal *(*replay_lookup)(void *user, at_value v);

// in: the operands; want: n->num_results literals. Regions may use values of
// the entry, which `lookup` gives.
at_status replay_node(at_arena *a, const at_node *n, replay_lookup lookup,
                      void *user, const at_literal *const *in,
                      const at_literal **want);

#endif
