// A program of one device as StableHLO, in MLIR's generic text: what clients
// show as the optimized program.
#ifndef ATOLL_COMPILE_STABLEHLO_H_
#define ATOLL_COMPILE_STABLEHLO_H_

#include "base/strbuf.h"
#include "hlo/hlo.h"

// `m` as `combine` leaves it, or before; no FUSIONs but those with Pallas
// kernels. Functions beside the entry become private ones. An op that only CHLO
// has a word for is a custom call "chlo.OP", one that neither has "atoll.OP".
// INVALID_ARGUMENT: a sharding that cannot be read.
at_status at_stablehlo_print(const at_module *m, at_strbuf *out);

#endif
