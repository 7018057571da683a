// ATOLL_TARGET=mk2 with ATOLL_TILES=tiles: the custom call in which the tile
// program computes.
#include "compile/compile.h"
#include "pjrt/pjrt_internal.h"

at_status at_pjrt_tiles_serve(void) {
  return at_on_tiles_runs()
             ? at_custom_register(AT_STR(AT_ON_TILES_TARGET), AT_CUSTOM_OWN,
                                  (void *)(uintptr_t)at_on_tiles_call, 0)
             : AT_OK;
}
