#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

// The search traces the user's JAX program, so it is Python
// (atoll/_plan_command.py); it asks `atoll estimate` of this folder.
at_status at_cli_plan(int argc, char **argv) {
  char folder[3072], library[3200];
  AT_TRY(at_cli_own_folder(folder, sizeof folder));
  snprintf(library, sizeof library, "%s/libatoll.so", folder);
  setenv("ATOLL_LIBRARY", library, 1);
  const char *python = getenv("PYTHON");
  char **longer = calloc((size_t)argc + 3, sizeof *longer);
  if (!longer) return AT_FAIL(AT_RESOURCE_EXHAUSTED, "no memory for arguments");
  longer[0] = (char *)(python && *python ? python : "python3");
  longer[1] = "-m";
  longer[2] = "atoll._plan_command";
  memcpy(longer + 3, argv + 1, (size_t)(argc - 1) * sizeof *longer);
  execvp(longer[0], longer);
  return AT_FAIL(AT_NOT_FOUND,
                 "cannot start %s: %s\nhint: set PYTHON to the interpreter "
                 "that has jax and atoll",
                 longer[0], strerror(errno));
}
