// The knobs that decide what a client and a compilation do.
#include "base/config.h"
#include "compile/compile.h"
#include "machine/topology.h"

// INVALID_ARGUMENT: several targets, an unknown chip or topology, or a chip
// that programs do not run on.
static at_status check_target(const char *text) {
  const at_machine *m;
  at_topology_text said;
  if (strchr(text, ','))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "chips of several targets are a pod's under one controller"
                   "\nhint: atoll pod up --target=%.80s",
                   text);
  AT_TRY(at_topology_read(at_str_of(text), &m, &said));
  if (!strcmp(m->platform, "tpu") || !strcmp(m->platform, "ipu")) return AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "%s is no TPU and no machine of tiles\nhint: programs run for "
                 "v4, v5e, v5p, v6e, 7x or mk2; `atoll estimate` takes others",
                 m->name);
}

// Errors of the target name the knob, as at_config_check's do.
at_status at_knobs_check(void) {
  AT_TRY(at_config_check());
  const char *target = at_config_text(AT_CONFIG_TARGET);
  at_status st = check_target(target);
  if (at_ok(st)) return st;
  at_status named = AT_FAIL(AT_INVALID_ARGUMENT, "ATOLL_TARGET=%.80s: %s",
                            target, at_status_message(st));
  at_status_free(st);
  return named;
}
