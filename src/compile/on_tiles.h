// Programs for a machine of tiles (ATOLL_TARGET=mk2): what they take there, and
// whether they fit, comes from `tiles`. They run as on any other target, or, if
// asked, as the tiles would.
#ifndef ATOLL_COMPILE_ON_TILES_H_
#define ATOLL_COMPILE_ON_TILES_H_

#include "passes/passes.h"
#include "tiles/lower.h"

// Whether ATOLL_TARGET's text names such a machine; *out is then filled.
bool at_on_tiles(const char *target, at_tiles_machine *out);
// Runs the passes on m, which nothing else uses, and lowers it.
// RESOURCE_EXHAUSTED: it does not fit; UNIMPLEMENTED names what tiles cannot
// do.
at_status at_on_tiles_plan(const at_tiles_machine *machine, at_module *m,
                           const at_pass_options *o, at_arena *a,
                           const at_tiles_plan **out);

// ---- Values from the tiles: ATOLL_TILES=tiles
// The executable is then one custom call that carries the program's text; who
// serves it calls at_on_tiles_call.
#define AT_ON_TILES_TARGET "atoll.tiles"
#define AT_ON_TILES_PROGRAM "program"
// Whether the knobs ask for it.
bool at_on_tiles_runs(void);
// A program with `whole`'s arguments and results whose only op is that call.
at_status at_on_tiles_wrap(const at_module *whole, at_str program, at_arena *a,
                           at_module **out);
// Runs a program's text on dense arrays, tile by tile. It is laid out on its
// first call and kept. Thread-safe; one at a time.
at_status at_on_tiles_call(at_str program, const void *const *args,
                           uint32_t num_args, void *const *results,
                           uint32_t num_results);

#endif
