// The one exported symbol of libatoll.so, which holds the code of the `atoll`
// command as well.
#include "cli/cli.h"
#include "pjrt/own.h"
#include "pjrt/pjrt.h"

__attribute__((visibility("default"))) const struct PJRT_Api *GetPjrtApi(void);

// The command is reached by Atoll's own extension (pjrt/own.h), so nothing else
// needs to be exported.
const struct PJRT_Api *GetPjrtApi(void) {
  // Any number of threads may come here; all write the same value.
  __atomic_store_n(&at_pjrt_own_extension.command, at_cli_main,
                   __ATOMIC_RELAXED);
  return at_pjrt_api();
}
