// `atoll tune`: the sweep is Python's (python/atoll/_tune.py), as kernels are
// written in it; it asks `atoll dump --mosaic --timing --json` of this program.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

at_status at_cli_tune(int argc, char **argv) {
  char folder[3072], program[3200];
  AT_TRY(at_cli_own_folder(folder, sizeof folder));
  snprintf(program, sizeof program, "--atoll=%s/atoll", folder);
  char **longer = calloc((size_t)argc + 4, sizeof *longer);
  if (!longer) return AT_NO_MEMORY("arguments");
  const char *python = getenv("PYTHON");
  longer[0] = (char *)(python && *python ? python : "python3");
  longer[1] = "-m";
  longer[2] = "atoll._tune";
  longer[3] = program;
  memcpy(longer + 4, argv + 1, (size_t)(argc - 1) * sizeof *longer);
  execvp(longer[0], longer);
  at_status s = AT_FAIL(AT_NOT_FOUND,
                        "cannot start %s: %s\nhint: set PYTHON to the "
                        "interpreter that has jax and atoll",
                        longer[0], strerror(errno));
  free(longer);
  return s;
}
