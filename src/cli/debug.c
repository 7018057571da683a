// `atoll debug`: the prompt is Python's (python/atoll/_debug_command.py), which
// starts `atoll run` of this program and talks to the kernels that run there
// (device/core_debug.h).
#include "cli/cli.h"

// The prompt gets this program's path, to start it again.
at_status at_cli_debug(int argc, char **argv) {
  char folder[3072], program[3200];
  AT_TRY(at_cli_own_folder(folder, sizeof folder));
  snprintf(program, sizeof program, "--atoll=%s/atoll", folder);
  return at_cli_become_module("atoll._debug_command", "atoll", program,
                              argc - 1, argv + 1);
}
