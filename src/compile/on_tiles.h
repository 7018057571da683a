// Programs for a machine of tiles (ATOLL_TARGET=mk2): what they take there, and
// whether they fit, comes from `tiles`. They run as on any other target, or, if
// asked, as the tiles would.
#ifndef ATOLL_COMPILE_ON_TILES_H_
#define ATOLL_COMPILE_ON_TILES_H_

#include "compile/compile.h"
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

// A program with `whole`'s arguments and results whose only op is the call
// AT_ON_TILES_TARGET, which carries a program's text.
at_status at_on_tiles_wrap(const at_module *whole, at_str program, at_arena *a,
                           at_module **out);

#endif
