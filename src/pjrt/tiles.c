// ATOLL_TARGET=mk2 with ATOLL_TILES=tiles: the custom call in which the tile
// program computes.
#include "base/config.h"
#include "compile/compile.h"
#include "pjrt/pjrt_internal.h"

at_status at_pjrt_tiles_serve(void) {
  const char *who = at_config_text(AT_CONFIG_TILES);
  if (strcmp(who, "host") && strcmp(who, "tiles"))
    return AT_FAIL(AT_INVALID_ARGUMENT, "ATOLL_TILES=%s\nhint: host or tiles",
                   who);
  return at_on_tiles_runs()
             ? at_custom_register(AT_STR(AT_ON_TILES_TARGET), AT_CUSTOM_OWN,
                                  (void *)(uintptr_t)at_on_tiles_call, 0)
             : AT_OK;
}
