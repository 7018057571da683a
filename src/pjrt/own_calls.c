// The custom calls that compiled programs hold of the compiler's own: checks of
// ATOLL_CHECK=nan, and tile programs (ATOLL_TARGET=mk2 with ATOLL_TILES=tiles).
#include "compile/compile.h"
#include "pjrt/pjrt_internal.h"

// Before the first program runs. Registering twice does no harm.
at_status at_pjrt_own_calls_serve(void) {
  AT_TRY(at_custom_register(AT_STR(AT_NAN_TARGET), AT_CUSTOM_OWN,
                            (void *)(uintptr_t)at_nan_call, 0));
  return at_on_tiles_runs()
             ? at_custom_register(AT_STR(AT_ON_TILES_TARGET), AT_CUSTOM_OWN,
                                  (void *)(uintptr_t)at_on_tiles_call, 0)
             : AT_OK;
}
