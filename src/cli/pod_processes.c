// Processes are children of this one, so each end is seen by waitpid, and they
// end with it.
#include "cli/pod_processes.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

enum { kTickUs = 50000, kGraceTicks = 60 };
static const uint64_t kSecond = 1000000000, kMinute = 60000000000,
                      kFirstDelay = 500000000, kPatience = 3000000000;

// Only what may be called between fork and exec.
static void be(char *const *argv, const char *log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  if (log) {
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) _exit(126);
  }
  execvp(argv[0], argv);
  fprintf(stderr, "atoll pod: cannot start %s: %s\n", argv[0], strerror(errno));
  _exit(127);
}

// fork and exec; *out is the child, 0 on failure.
at_status at_pod_start(char *const *argv, const char *log, pid_t *out) {
  pid_t parent = getpid();
  *out = fork();
  if (*out < 0) {
    *out = 0;
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "cannot start %s: %s", argv[0],
                   strerror(errno));
  }
  if (!*out) be(argv, log, parent);
  return AT_OK;
}

// Returns out, for messages.
const char *at_pod_end_text(int status, char out[96]) {
  if (WIFSIGNALED(status))
    snprintf(out, 96, "was ended by signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  else
    snprintf(out, 96, "exited with status %d", WEXITSTATUS(status));
  return out;
}

// The same binary as `atoll host` at that place.
static at_status start_host(at_pod_processes *p, uint32_t host) {
  char program[4096], controller[320], place[32], log[4200];
  ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
  if (n <= 0)
    return AT_FAIL(AT_NOT_FOUND, "cannot tell where this program lies");
  program[n] = 0;
  snprintf(controller, sizeof controller, "--controller=%s", p->controller);
  snprintf(place, sizeof place, "--place=%u", host);
  if (p->log_dir)
    snprintf(log, sizeof log, "%.4000s/host-%u.log", p->log_dir, host);
  char *argv[] = {program, "host", controller, place, NULL};
  return at_pod_start(argv, p->log_dir ? log : NULL, &p->hosts[host].pid);
}

// One that cannot be started ends all of it: the caller stops those before.
at_status at_pod_start_hosts(at_pod_processes *p) {
  for (uint32_t i = 0; i < p->count; i++) AT_TRY(start_host(p, i));
  return AT_OK;
}

// Processes are few: a scan.
uint32_t at_pod_host_of(const at_pod_processes *p, pid_t pid) {
  uint32_t i = 0;
  while (i < p->count && p->hosts[i].pid != pid) i++;
  return i;
}

// How often it has been started again within the last minute.
static uint32_t recent_starts(const at_pod_process *h, uint64_t now) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < AT_POD_MOST_RESTARTS; i++)
    n += h->starts[i] && now - h->starts[i] < kMinute;
  return n;
}

// 0.5 s, doubled for each restart of the last minute. With AT_POD_MOST_RESTARTS
// of them it waits until the oldest is a minute old.
static uint64_t delay(const at_pod_process *h, uint64_t now) {
  uint32_t n = recent_starts(h, now);
  if (n < AT_POD_MOST_RESTARTS) return kFirstDelay << n;
  uint64_t oldest = h->starts[h->num_starts % AT_POD_MOST_RESTARTS];
  return oldest + kMinute - now;
}

// The process has been waited for. One that rests is not started until it is
// wanted back.
void at_pod_restart_later(at_pod_processes *p, uint32_t host, int status) {
  at_pod_process *h = &p->hosts[host];
  char text[96];
  uint64_t now = at_clock_ns(), wait = delay(h, now);
  at_pod_end_text(status, text);
  if (h->rests)
    at_log(AT_LOG_INFO, "host %u: process %d %s; it is drained", host,
           (int)h->pid, text);
  else
    at_log(AT_LOG_WARNING, "host %u: process %d %s; it starts again in %.1f s",
           host, (int)h->pid, text, (double)wait / (double)kSecond);
  h->pid = 0;
  h->lost_ns = 0;
  h->due_ns = now + wait;
}

// One that cannot be started is tried again later.
void at_pod_restart_due(at_pod_processes *p) {
  uint64_t now = at_clock_ns();
  for (uint32_t i = 0; i < p->count; i++) {
    at_pod_process *h = &p->hosts[i];
    // It runs, is drained, or has to wait.
    if (h->pid || h->rests || now < h->due_ns) continue;
    h->starts[h->num_starts++ % AT_POD_MOST_RESTARTS] = now;
    at_status st = start_host(p, i);
    if (st.err) {
      h->due_ns = now + delay(h, now);
      at_log(AT_LOG_ERROR, "host %u: %s", i, at_status_message(st));
      at_status_free(st);
    }
  }
}

// A row of the controller's hosts. Processes that are lost for longer than
// kPatience are killed; their end starts them again.
static void look_at(at_pod_processes *p, const at_json *row) {
  pid_t pid = (pid_t)at_json_get_int(row, "pid", 0);
  uint32_t host = pid > 0 ? at_pod_host_of(p, pid) : p->count;
  if (host == p->count) return;
  at_pod_process *h = &p->hosts[host];
  uint64_t now = at_clock_ns();
  at_str state = at_json_get_str(row, "state", AT_STR(""));
  if (!at_str_is(state, "lost") && !at_str_is(state, "drained")) {
    h->lost_ns = 0;
  } else if (!h->lost_ns) {
    h->lost_ns = now;
  } else if (now - h->lost_ns > kPatience) {
    at_log(AT_LOG_WARNING,
           "host %u: process %d is lost to the controller but has not ended; "
           "it is killed",
           host, (int)pid);
    kill(pid, SIGKILL);
    h->lost_ns = now;
  }
}

// A status that cannot be read kills nobody.
void at_pod_kill_lost(at_pod_processes *p, const char *status) {
  at_arena *a = at_arena_create();
  const at_json *s = NULL;
  at_bytes text = {(const uint8_t *)status, strlen(status)};
  at_status st = at_json_parse(text, a, &s);
  const at_json *hosts = st.err ? NULL : at_json_get(s, "hosts");
  for (size_t i = 0; hosts && i < hosts->len; i++) look_at(p, &hosts->items[i]);
  at_status_free(st);
  at_arena_destroy(a);
}

// Waits for no one; children that have ended are reaped.
static bool any_left(at_pod_processes *p) {
  bool left = false;
  for (uint32_t k = 0; k < p->count; k++) {
    pid_t pid = p->hosts[k].pid;
    if (pid > 0 && waitpid(pid, NULL, WNOHANG)) p->hosts[k].pid = 0;
    left |= p->hosts[k].pid > 0;
  }
  return left;
}

// Three seconds to leave, then SIGKILL.
void at_pod_end_hosts(at_pod_processes *p) {
  for (int i = 0; i < kGraceTicks && any_left(p); i++) usleep(kTickUs);
  for (uint32_t k = 0; k < p->count; k++)
    if (p->hosts[k].pid > 0) kill(p->hosts[k].pid, SIGKILL);
}
