// Shardings of arguments and results in HLO's text form, as clients know it.
#ifndef ATOLL_COMPILE_SHARDING_H_
#define ATOLL_COMPILE_SHARDING_H_

#include "base/arena.h"
#include "base/status.h"

// text: Shardy's ("#sdy.sharding<@mesh, [{"x"}, {}]>"), HLO's ("{replicated}":
// passed on), or NULL: on every device. meshes: at_module.mesh_text. *out, in
// `a`: "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}" and the like.
// INVALID_ARGUMENT quotes what cannot be read.
at_status at_sharding_hlo_text(const char *text, const char *meshes,
                               uint32_t rank, at_arena *a, const char **out);

#endif
