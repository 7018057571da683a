// `atoll tune`: the sweep is Python's (python/atoll/_tune.py), as kernels are
// written in it; it asks `atoll dump --mosaic --timing --json` of this program.
#include "cli/cli.h"

at_status at_cli_tune(int argc, char **argv) {
  char folder[3072], program[3200];
  AT_TRY(at_cli_own_folder(folder, sizeof folder));
  snprintf(program, sizeof program, "--atoll=%s/atoll", folder);
  return at_cli_become_module("atoll._tune", "jax and atoll", program, argc - 1,
                              argv + 1);
}
