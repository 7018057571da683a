// A host of a pod: the process that has chips and does what the controller
// says.
#include <signal.h>
#include <stdlib.h>

#include "base/config.h"
#include "cli/cli.h"
#include "compile/compile.h"
#include "control/host.h"
#include "control/token.h"
#include "exec/exec.h"

static volatile sig_atomic_t ended;
// A signal's handler: it only notes it.
static void end(int signal) {
  (void)signal;
  ended = 1;
}
// Asked by the host's loop: then it leaves the pod in order.
static bool interrupted(void) { return ended; }

// Returns when the controller ends the host, is lost, or a signal comes.
at_status at_cli_host(int argc, char **argv) {
  at_host_options o = {.place = -1,
                       .controller = at_config_text(AT_CONFIG_POD),
                       .listen = "127.0.0.1:0",
                       .pod = "127.0.0.1:0",
                       .interrupted = interrupted};
  char file[4000];
  const char *place = NULL;
  at_cli_option(&argc, argv, "--controller=", &o.controller);
  at_cli_option(&argc, argv, "--listen=", &o.listen);
  at_cli_option(&argc, argv, "--pod=", &o.pod);
  if (at_cli_option(&argc, argv, "--place=", &place))
    o.place = (int32_t)AT_MIN(strtoul(place, NULL, 10), (size_t)INT32_MAX);
  if (at_cli_option(&argc, argv, "--simulate", NULL))
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "simulated hosts live in their controller's process, however "
        "many\nhint: atoll pod up --simulate --hosts=N "
        "(docs/pod-simulation.md)");
  AT_TRY(at_cli_no_more_options(argc, argv, "host"));
  if (!*o.controller)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "no controller\nhint: --controller=HOST:PORT, or ATOLL_POD; "
                   "`atoll pod up` starts one");
  at_cache_file("pod.token", file, sizeof file);
  AT_TRY(at_control_token(file, &o.token, &o.token_of_user));
  // What programs hold of the compiler's own, whatever their clients ask for.
  AT_TRY(at_custom_register(AT_STR(AT_NAN_TARGET), AT_CUSTOM_OWN,
                            (void *)(uintptr_t)at_nan_call, 0));
  AT_TRY(at_custom_register(AT_STR(AT_ON_TILES_TARGET), AT_CUSTOM_OWN,
                            (void *)(uintptr_t)at_on_tiles_call, 0));
  signal(SIGTERM, end);
  signal(SIGINT, end);
  return at_host_run(&o);
}
