#include <stdlib.h>

#include "cli/cli.h"

// The search traces the user's JAX program, so it is Python
// (atoll/_plan_command.py); it asks `atoll estimate` of this folder.
at_status at_cli_plan(int argc, char **argv) {
  char folder[3072], library[3200];
  AT_TRY(at_cli_own_folder(folder, sizeof folder));
  snprintf(library, sizeof library, "%s/libatoll.so", folder);
  setenv("ATOLL_LIBRARY", library, 1);
  return at_cli_become_module("atoll._plan_command", "jax and atoll", NULL,
                              argc - 1, argv + 1);
}
