// A pod of this machine: its controller here, its hosts as processes beside it,
// or wherever people start them.
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/pod_internal.h"
#include "control/controller.h"
#include "pod/address.h"

enum { kTickUs = 50000 };
static const uint64_t kLookNs = 1000000000;

static volatile sig_atomic_t ended;
static void end(int signal) {
  (void)signal;
  ended = 1;
}

// A pod while `atoll pod up` runs; there is one in a process.
typedef struct pod {
  at_controller *controller;
  uint32_t num_hosts, max_hosts;  // max_hosts: 0, or more may come
  at_pod_processes processes;     // none: others start the hosts
  at_simulated_options simulates;
  at_simulated *simulated;  // NULL: hosts are processes
  char **command;           // NULL: none
  pid_t command_pid;        // 0: it does not run
  int status;               // of the command
  bool json;
  bool up;           // all hosts have been there
  uint64_t look_ns;  // when to look for lost hosts
} pod;

// What a program on the pod needs.
static void set_environment(const pod *p) {
  char folder[3072], library[3200];
  setenv("ATOLL_POD", at_controller_address(p->controller), 1);
  at_status st = at_cli_own_folder(folder, sizeof folder);
  if (at_code_take(st)) return;
  snprintf(library, sizeof library, "%s/libatoll.so", folder);
  if (!access(library, R_OK)) setenv("TPU_LIBRARY_PATH", library, 0);
}

// A child has ended. The command's end is the pod's; a host is started again,
// unless the pod has never been complete: then something is wrong with all of
// them.
static at_status gone(pod *p, pid_t pid, int status) {
  char text[96];
  if (pid == p->command_pid) {
    p->command_pid = 0;
    p->status =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended = 1;
    return AT_OK;
  }
  uint32_t host = at_pod_host_of(&p->processes, pid);
  if (host == p->processes.count) return AT_OK;
  if (!p->up)
    return AT_FAIL(AT_UNAVAILABLE,
                   "host %u: process %d %s before the pod was there", host,
                   (int)pid, at_pod_end_text(status, text));
  p->processes.hosts[host].rests = at_controller_drained(p->controller, host);
  at_pod_restart_later(&p->processes, host, status);
  return AT_OK;
}

// The line that scripts wait for: it is written when clients may come.
static void say_address(const pod *p) {
  const char *address = at_controller_address(p->controller);
  if (p->json)
    printf("{\"pod\": \"%s\", \"hosts\": %u}\n", address, p->num_hosts);
  else
    printf("ATOLL_POD=%s\n", address);
  fflush(stdout);
}

// All hosts are there for the first time.
static at_status begin(pod *p) {
  p->up = true;
  if (!p->command) {
    if (p->processes.count || p->simulated) say_address(p);
    return AT_OK;
  }
  set_environment(p);
  return at_pod_start(p->command, NULL, &p->command_pid);
}

// Once a second: the controller's word on its hosts, so that stuck processes
// are killed.
static void look_for_lost(pod *p) {
  uint64_t now = at_clock_ns();
  if (now < p->look_ns) return;
  p->look_ns = now + kLookNs;
  at_strbuf text = {0};
  at_controller_status(p->controller, &text);
  if (text.ptr) at_pod_kill_lost(&p->processes, text.ptr);
  at_strbuf_free(&text);
}

// Those that have ended; they may be wanted back.
static void look_for_drained(pod *p) {
  for (uint32_t i = 0; i < p->processes.count; i++)
    if (!p->processes.hosts[i].pid)
      p->processes.hosts[i].rests = at_controller_drained(p->controller, i);
}

// Until a signal, the command's end, or `atoll pod down`.
static at_status watch(pod *p) {
  // Children that have ended come first: a pod that cannot come up ends with
  // the reason.
  while (!ended && !at_controller_stopped(p->controller)) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
      AT_TRY(gone(p, pid, status));
    if (!p->up && at_controller_hosts(p->controller) >= p->num_hosts)
      AT_TRY(begin(p));
    if (p->up && p->processes.count) {
      look_for_drained(p);
      at_pod_restart_due(&p->processes);
      look_for_lost(p);
    }
    usleep(kTickUs);
  }
  return AT_OK;
}

// The controller goes first, so that hosts leave by themselves;
// at_pod_end_hosts then ends those that do not.
static void stop(pod *p) {
  if (p->command_pid > 0) kill(p->command_pid, SIGTERM);
  at_controller_close(p->controller);
  at_simulated_free(p->simulated);
  at_pod_end_hosts(&p->processes);
}

// INVALID_ARGUMENT: no count, or a list of machines, which is not what the
// option takes.
static at_status count_hosts(const char *option, const char *text,
                             uint32_t *out) {
  char *tail;
  unsigned long n = strtoul(text, &tail, 10);
  if (strchr(text, ':'))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%s=%s: processes of other machines are not started from "
                   "here\nhint: --wait-hosts=N here, and there `atoll host "
                   "--controller=HOST:PORT` (docs/pod.md)",
                   option, text);
  if (*tail || !n || n > AT_POD_MOST_HOSTS)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s=%s is not 1 to %d", option, text,
                   AT_POD_MOST_HOSTS);
  *out = (uint32_t)n;
  return AT_OK;
}

// Everything that contradicts something is refused here, before anything is
// started.
static at_status take_options(int argc, char **argv, pod *p,
                              at_controller_options *o) {
  const char *hosts = "1", *wait = NULL, *most = NULL;
  bool simulates;
  AT_TRY(at_pod_simulate_options(&argc, argv, &p->simulates, &simulates));
  bool counted = at_cli_option(&argc, argv, "--hosts=", &hosts);
  at_cli_option(&argc, argv, "--wait-hosts=", &wait);
  at_cli_option(&argc, argv, "--max-hosts=", &most);
  at_cli_option(&argc, argv, "--target=", &o->target);
  at_cli_option(&argc, argv, "--listen=", &o->listen);
  at_cli_option(&argc, argv, "--log-dir=", &p->processes.log_dir);
  p->json = at_cli_option(&argc, argv, "--json", NULL);
  if (argc > 2 && !strcmp(argv[2], "--")) {
    p->command = argv + 3;
    argc = 2;
    if (!*p->command)
      return AT_FAIL(AT_INVALID_ARGUMENT, "no command behind --");
  }
  AT_TRY(at_cli_no_more_options(argc, argv, "pod"));
  if (argc > 2)
    return AT_FAIL(AT_INVALID_ARGUMENT, "'%s'\nhint: -- before a command",
                   argv[2]);
  if (counted && wait)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "--hosts starts processes, --wait-hosts waits for those "
                   "that you start: take one");
  if ((wait || simulates) && p->processes.log_dir)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "--log-dir is for hosts that are started here");
  if (wait && simulates)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "simulated hosts are in this process: --hosts, not "
                   "--wait-hosts");
  AT_TRY(count_hosts(wait ? "--wait-hosts" : "--hosts", wait ? wait : hosts,
                     &p->num_hosts));
  if (!wait && !simulates) p->processes.count = p->num_hosts;
  p->simulates.num_hosts = simulates ? p->num_hosts : 0;
  if (most) AT_TRY(count_hosts("--max-hosts", most, &p->max_hosts));
  if (most && simulates)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "simulated hosts are all there: --hosts, not --max-hosts");
  // A pod may begin with fewer hosts than it will have, not with more.
  if (most && p->max_hosts < p->num_hosts)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "--max-hosts=%s, but the pod begins with %u", most,
                   p->num_hosts);
  if (p->processes.log_dir && mkdir(p->processes.log_dir, 0700) &&
      errno != EEXIST)
    return AT_FAIL(AT_NOT_FOUND, "--log-dir=%s: %s", p->processes.log_dir,
                   strerror(errno));
  return AT_OK;
}

// The engine that starts and watches hosts on many machines is Ray.
static at_status up_with_ray(int argc, char **argv) {
  char folder[3072], program[3200];
  AT_TRY(at_cli_own_folder(folder, sizeof folder));
  snprintf(program, sizeof program, "--atoll=%s/atoll", folder);
  return at_cli_become_module("atoll.pod_ray", "ray and atoll", program,
                              argc - 2, argv + 2);
}

// Only processes of this machine reach such an address.
static bool is_loopback(const struct addrinfo *a) {
  if (a->ai_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(
        &((const struct sockaddr_in6 *)a->ai_addr)->sin6_addr);
  uint32_t v4 = ((const struct sockaddr_in *)a->ai_addr)->sin_addr.s_addr;
  return a->ai_family == AF_INET && ntohl(v4) >> 24 == 127;
}

// Other machines that reach it need its token.
static at_status check_listen(const char *listen) {
  struct addrinfo *all;
  AT_TRY(at_address_resolve(&(at_addresses){listen, "--listen"}, 0, &all));
  bool here = true;
  for (const struct addrinfo *a = all; a; a = a->ai_next)
    here &= is_loopback(a);
  freeaddrinfo(all);
  if (!here && !*at_config_text(AT_CONFIG_POD_TOKEN_FILE))
    at_log(AT_LOG_WARNING,
           "--listen=%s: other machines cannot join, as the token of this pod "
           "is this user's on this machine\nhint: ATOLL_POD_TOKEN_FILE, the "
           "same on all machines (docs/pod.md)",
           listen);
  return AT_OK;
}

// `atoll pod up`. With a command the exit status is the command's.
static at_status up(int argc, char **argv) {
  static pod p;
  at_controller_options o = {.listen = "127.0.0.1:0",
                             .target = at_config_text(AT_CONFIG_TARGET)};
  if (at_cli_option(&argc, argv, "--ray", NULL)) return up_with_ray(argc, argv);
  AT_TRY(take_options(argc, argv, &p, &o));
  AT_TRY(at_pod_token(&o.token));
  AT_TRY(check_listen(o.listen));
  o.num_hosts = p.num_hosts;
  o.max_hosts = p.max_hosts;
  signal(SIGTERM, end);
  signal(SIGINT, end);
  // Simulated hosts are there before the controller, which they are handed to.
  if (p.simulates.num_hosts) {
    p.simulates.target = o.target;
    AT_TRY(at_pod_simulate(&p.simulates, &p.simulated));
    o.simulated = p.simulated;
  }
  AT_TRY(at_controller_open(&o, &p.controller));
  p.processes.controller = at_controller_address(p.controller);
  // Whoever starts the hosts needs the address before they are there.
  if (!p.processes.count && !p.simulated) say_address(&p);
  at_status st = at_pod_start_hosts(&p.processes);
  if (!st.err) st = watch(&p);
  stop(&p);
  if (!st.err && p.command) exit(p.status);
  return st;
}

// Each word is a function.
at_status at_cli_pod(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "up")) return up(argc, argv);
  if (!strcmp(what, "status")) return at_pod_status(argc, argv);
  if (!strcmp(what, "top")) return at_pod_top(argc, argv);
  if (!strcmp(what, "logs")) return at_pod_logs(argc, argv);
  if (!strcmp(what, "drain")) return at_pod_drain(argc, argv);
  if (!strcmp(what, "trace")) return at_pod_trace(argc, argv);
  if (!strcmp(what, "page")) return at_pod_page(argc, argv);
  if (!strcmp(what, "undrain")) return at_pod_drain(argc, argv);
  if (!strcmp(what, "objects")) return at_pod_objects(argc, argv);
  if (!strcmp(what, "down")) return at_pod_down(argc, argv);
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "unknown word '%s'\nhint: up, status, top, page, trace, logs, "
                 "objects, drain, "
                 "undrain or down",
                 what);
}
