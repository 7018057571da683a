// Programs in Python that the command hands over to.
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

// Returns out or a static text.
const char *at_cli_python(char *out, size_t size) {
  static const char *const folders[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
  const char *python = getenv("PYTHON");
  if (python && *python) return python;
  for (size_t i = 0; i < AT_LEN(folders); i++) {
    const char *folder = getenv(folders[i]);
    if (!folder || !*folder) continue;
    snprintf(out, size, "%s/bin/python", folder);
    if (!access(out, X_OK)) return out;
  }
  return "python3";
}

at_status at_cli_become_python(char **argv, const char *needs) {
  execvp(argv[0], argv);
  return AT_FAIL(AT_NOT_FOUND,
                 "cannot start %s: %s\nhint: set PYTHON to the interpreter "
                 "that has %s",
                 argv[0], strerror(errno), needs);
}

// NOT_FOUND: there is no such interpreter. A missing package is Python's to
// say.
at_status at_cli_become_module(const char *module, const char *needs,
                               const char *first, int argc, char **argv) {
  char own[3200];
  char **longer = calloc((size_t)argc + 5, sizeof *longer);
  if (!longer) return AT_NO_MEMORY("arguments");
  int n = 0;
  longer[n++] = (char *)at_cli_python(own, sizeof own);
  longer[n++] = "-m";
  longer[n++] = (char *)module;
  if (first) longer[n++] = (char *)first;
  memcpy(longer + n, argv, (size_t)argc * sizeof *longer);
  at_status st = at_cli_become_python(longer, needs);
  free(longer);
  return st;
}
