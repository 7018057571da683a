// A pod of this machine: its controller here, its hosts as processes beside it.
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "compile/compile.h"
#include "control/controller.h"
#include "control/token.h"
#include "control/tool.h"

enum { kMostHosts = 1024, kTickUs = 50000, kGraceTicks = 60 };

static volatile sig_atomic_t ended;
static void end(int signal) {
  (void)signal;
  ended = 1;
}

static at_status token(at_token *out) {
  char file[4000];
  at_cache_file("pod.token", file, sizeof file);
  return at_control_token(file, out, NULL);
}

// ---- Processes
// They end with this one, however it ends.
static pid_t start(char *const *argv) {
  pid_t parent = getpid(), pid = fork();
  if (pid) return pid;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  execvp(argv[0], argv);
  fprintf(stderr, "atoll pod: cannot start %s: %s\n", argv[0], strerror(errno));
  _exit(127);
}

typedef struct pod {
  at_controller *controller;
  uint32_t num_hosts;
  pid_t hosts[kMostHosts];  // 0: it has ended
  pid_t command;            // 0: none
  int status;               // of the command
  bool told;                // that it is up
  char program[4096], address[300];
} pod;

static at_status start_hosts(pod *p) {
  ssize_t n = readlink("/proc/self/exe", p->program, sizeof p->program - 1);
  if (n <= 0)
    return AT_FAIL(AT_NOT_FOUND, "cannot tell where this program lies");
  snprintf(p->address, sizeof p->address, "--controller=%s",
           at_controller_address(p->controller));
  char *argv[] = {p->program, "host", p->address, NULL};
  for (uint32_t i = 0; i < p->num_hosts; i++)
    if ((p->hosts[i] = start(argv)) < 0)
      return AT_FAIL(AT_RESOURCE_EXHAUSTED, "cannot start host %u: %s", i,
                     strerror(errno));
  return AT_OK;
}

// What a program on the pod needs.
static void set_environment(const pod *p) {
  char folder[3072], library[3200];
  setenv("ATOLL_POD", at_controller_address(p->controller), 1);
  at_status st = at_cli_own_folder(folder, sizeof folder);
  if (at_code_take(st)) return;
  snprintf(library, sizeof library, "%s/libatoll.so", folder);
  if (!access(library, R_OK)) setenv("TPU_LIBRARY_PATH", library, 0);
}

static at_status gone(pod *p, pid_t pid, int status) {
  if (pid == p->command) {
    p->command = 0;
    p->status =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended = 1;
    return AT_OK;
  }
  for (uint32_t i = 0; i < p->num_hosts; i++) {
    if (p->hosts[i] != pid) continue;
    p->hosts[i] = 0;
    if (!p->told)
      return AT_FAIL(AT_UNAVAILABLE, "host process %d ended with status %d",
                     (int)pid, status);
    at_log(AT_LOG_WARNING, "host process %d ended with status %d", (int)pid,
           status);
  }
  return AT_OK;
}

static at_status watch(pod *p, char **command) {
  while (!ended && !at_controller_stopped(p->controller)) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
      AT_TRY(gone(p, pid, status));
    if (!p->told && at_controller_hosts(p->controller) == p->num_hosts) {
      p->told = true;
      if (!command) {
        printf("ATOLL_POD=%s\n", at_controller_address(p->controller));
        fflush(stdout);
      } else {
        set_environment(p);
        if ((p->command = start(command)) < 0)
          return AT_FAIL(AT_RESOURCE_EXHAUSTED, "cannot start %s: %s",
                         command[0], strerror(errno));
      }
    }
    usleep(kTickUs);
  }
  return AT_OK;
}

static void stop(pod *p) {
  if (p->command > 0) kill(p->command, SIGTERM);
  at_controller_close(p->controller);
  for (int i = 0; i < kGraceTicks; i++) {
    bool left = false;
    for (uint32_t k = 0; k < p->num_hosts; k++) {
      if (p->hosts[k] > 0 && waitpid(p->hosts[k], NULL, WNOHANG))
        p->hosts[k] = 0;
      left |= p->hosts[k] > 0;
    }
    if (!left) return;
    usleep(kTickUs);
  }
  for (uint32_t k = 0; k < p->num_hosts; k++)
    if (p->hosts[k] > 0) kill(p->hosts[k], SIGKILL);
}

static at_status up(int argc, char **argv) {
  static pod p;
  const char *hosts = "1";
  at_controller_options o = {.listen = "127.0.0.1:0",
                             .target = at_config_text(AT_CONFIG_TARGET)};
  at_cli_option(&argc, argv, "--hosts=", &hosts);
  at_cli_option(&argc, argv, "--target=", &o.target);
  at_cli_option(&argc, argv, "--listen=", &o.listen);
  char **command = NULL;
  if (argc > 2 && !strcmp(argv[2], "--")) {
    command = argv + 3;
    argc = 2;
    if (!*command) return AT_FAIL(AT_INVALID_ARGUMENT, "no command behind --");
  }
  AT_TRY(at_cli_no_more_options(argc, argv, "pod"));
  char *tail;
  unsigned long n = strtoul(hosts, &tail, 10);
  if (*tail || !n || n > kMostHosts)
    return AT_FAIL(AT_INVALID_ARGUMENT, "--hosts=%s is not 1 to %d", hosts,
                   kMostHosts);
  AT_TRY(token(&o.token));
  o.num_hosts = p.num_hosts = (uint32_t)n;
  signal(SIGTERM, end);
  signal(SIGINT, end);
  AT_TRY(at_controller_open(&o, &p.controller));
  at_status st = start_hosts(&p);
  if (!st.err) st = watch(&p, command);
  stop(&p);
  if (!st.err && command) exit(p.status);
  return st;
}

// ---- Asking
static at_status ask(int argc, char **argv, at_message_kind kind,
                     at_strbuf *out) {
  at_tool_options o = {.address = at_config_text(AT_CONFIG_POD),
                       .source = "ATOLL_POD"};
  if (at_cli_option(&argc, argv, "--pod=", &o.address)) o.source = "--pod";
  AT_TRY(at_cli_no_more_options(argc, argv, "pod"));
  if (!*o.address)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "which pod?\nhint: --pod=HOST:PORT, or ATOLL_POD");
  AT_TRY(token(&o.token));
  return at_tool_ask(&o, kind, out);
}

static void print_status(const at_json *s) {
  at_str target = at_json_get_str(s, "target", AT_STR("?"));
  at_str state = at_json_get_str(s, "state", AT_STR("?"));
  printf("%.*s, %lld chips, %.*s\n", (int)target.len, target.ptr,
         (long long)at_json_get_int(s, "num_chips", 0), (int)state.len,
         state.ptr);
  const at_json *hosts = at_json_get(s, "hosts");
  for (size_t i = 0; hosts && i < hosts->len; i++) {
    const at_json *h = &hosts->items[i];
    at_str is = at_json_get_str(h, "state", AT_STR("?"));
    at_str at = at_json_get_str(h, "address", AT_STR("?"));
    at_str why = at_json_get_str(h, "why", AT_STR(""));
    printf("  host %-4lld %-8.*s process %-8lld %lld chips  %.*s  %.*s\n",
           (long long)at_json_get_int(h, "host", 0), (int)is.len, is.ptr,
           (long long)at_json_get_int(h, "pid", 0),
           (long long)at_json_get_int(h, "chips", 0), (int)at.len, at.ptr,
           (int)why.len, why.ptr);
  }
  const at_json *clients = at_json_get(s, "clients");
  for (size_t i = 0; clients && i < clients->len; i++) {
    const at_json *c = &clients->items[i];
    at_str name = at_json_get_str(c, "name", AT_STR("?"));
    printf(
        "  client %-2lld process %-8lld %lld arrays, %lld programs, %lld "
        "launches  %.*s\n",
        (long long)at_json_get_int(c, "client", 0),
        (long long)at_json_get_int(c, "pid", 0),
        (long long)at_json_get_int(c, "arrays", 0),
        (long long)at_json_get_int(c, "programs", 0),
        (long long)at_json_get_int(c, "launches", 0), (int)name.len, name.ptr);
  }
}

static at_status status(int argc, char **argv) {
  bool json = at_cli_option(&argc, argv, "--json", NULL);
  at_strbuf text = {0};
  at_status st = ask(argc, argv, AT_MSG_STATUS, &text);
  at_arena *a = at_arena_create();
  const at_json *s = NULL;
  if (!st.err) st = at_strbuf_status(&text);
  if (!st.err && json) puts(text.ptr);
  if (!st.err && !json)
    st = at_json_parse((at_bytes){(const uint8_t *)text.ptr, text.len}, a, &s);
  if (s) print_status(s);
  at_arena_destroy(a);
  at_strbuf_free(&text);
  return st;
}

at_status at_cli_pod(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "up")) return up(argc, argv);
  if (!strcmp(what, "status")) return status(argc, argv);
  if (!strcmp(what, "down")) return ask(argc, argv, AT_MSG_STOP, NULL);
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "unknown word '%s'\nhint: up, status or down", what);
}
