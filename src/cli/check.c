// `atoll check`: runs a program under all checks, in a process of its own, and
// tells what the runtime found there.
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/check.h"
#include "cli/cli.h"

// A turn of a kernel's loop takes microseconds under all checks, so that the
// runtime's own limit would stop a loop without an end after days.
static const char kTurns[] = "16777216";

// Exit statuses, beside 0 (clean) and 2 (wrong usage).
enum { kFound = 1, kFailed = 3 };

// What the arguments say, and where the child process leaves what it finds.
typedef struct check {
  const char *sarif, *junit, *html;  // NULL: not wanted
  bool json, strict, interpret;
  char **program;  // with its arguments; NULL behind them
  char folder[PATH_MAX], findings[PATH_MAX + 16], dump[PATH_MAX + 16];
} check;

// ---- Arguments
// Options with a value may have it in the next argument, which is then not the
// program.
static bool takes_value(const char *arg) {
  static const char *const names[] = {"--sarif", "--junit", "--html"};
  for (size_t i = 0; i < AT_LEN(names); i++)
    if (!strcmp(arg, names[i])) return true;
  return false;
}

// What follows the program is its own.
static at_status read_arguments(int argc, char **argv, check *c) {
  int own = 1;
  while (own < argc && argv[own][0] == '-') own += 1 + takes_value(argv[own]);
  if (own >= argc)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a program is needed\nhint: atoll check --help");
  c->program = argv + own;
  at_cli_option(&own, argv, "--sarif=", &c->sarif);
  at_cli_option(&own, argv, "--junit=", &c->junit);
  at_cli_option(&own, argv, "--html=", &c->html);
  c->json = at_cli_option(&own, argv, "--json", NULL);
  c->strict = at_cli_option(&own, argv, "--strict", NULL);
  c->interpret = at_cli_option(&own, argv, "--interpret", NULL);
  AT_TRY(at_cli_no_more_options(own, argv, "check"));
  if (access(c->program[0], R_OK))
    return AT_FAIL(AT_INVALID_ARGUMENT, "cannot read %s: %s", c->program[0],
                   strerror(errno));
  return AT_OK;
}

// ---- The folder between the two processes
// A fresh folder, which only this user may read. The file of findings is made
// here, so that a program that finds nothing leaves an empty one. at_cli_check
// removes it all.
static at_status make_folder(check *c) {
  const char *in = getenv("TMPDIR");
  if (!in || !*in) in = "/tmp";
  int n = snprintf(c->folder, sizeof c->folder, "%s/atoll-check-XXXXXX", in);
  if (n >= (int)sizeof c->folder)
    return AT_FAIL(AT_INVALID_ARGUMENT, "TMPDIR is too long a name");
  if (!mkdtemp(c->folder))
    return AT_FAIL(AT_FAILED_PRECONDITION,
                   "cannot make a folder in %s: %s\n"
                   "hint: set TMPDIR to a folder that you may write",
                   in, strerror(errno));
  snprintf(c->findings, sizeof c->findings, "%s/findings", c->folder);
  snprintf(c->dump, sizeof c->dump, "%s/dump", c->folder);
  at_strbuf nothing = {0};
  return at_cli_write_file(c->findings, &nothing);
}

// The files of a folder that has no folders in it, then the folder. What cannot
// be removed stays: there is nobody to tell who could do better.
static void remove_files(const char *folder) {
  DIR *d = opendir(folder);
  char path[PATH_MAX + 300];
  for (struct dirent *e; d && (e = readdir(d));) {
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    unlink(path);
  }
  if (d) closedir(d);
  rmdir(folder);
}

// ---- The program
// The child: `atoll run` of the same binary, with the checks on.
// ATOLL_KERNEL_TURNS is the user's if it is set. With --json stdout is the
// report's, so the program's output goes to stderr.
static _Noreturn void become_program(const check *c) {
  char *more[] = {"atoll", "run"};
  size_t n = 0;
  while (c->program[n]) n++;
  char **argv = calloc(n + AT_LEN(more) + 1, sizeof *argv);
  if (!argv) _exit(kFailed);
  memcpy(argv, more, sizeof more);
  memcpy(argv + AT_LEN(more), c->program, n * sizeof *argv);
  setenv("ATOLL_CHECK", c->interpret ? "all,interpret" : "all", 1);
  setenv("ATOLL_FINDINGS", c->findings, 1);
  setenv("ATOLL_KERNEL_TURNS", kTurns, 0);
  if (c->html) setenv("ATOLL_DUMP", c->dump, 1);
  // Reports in JSON are all that stdout may have.
  if (c->json) dup2(STDERR_FILENO, STDOUT_FILENO);  // which is ours
  execv("/proc/self/exe", argv);
  fprintf(stderr, "atoll check: cannot start it: %s\n", strerror(errno));
  _exit(kFailed);
}

// Waits for the program; its exit status and time go to *r. While it runs
// Ctrl-C is ignored here and ends the program alone.
static at_status run_program(const check *c, at_check_result *r) {
  uint64_t start = at_clock_ns();
  fflush(NULL);
  pid_t child = fork();
  if (child < 0)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "cannot start a process: %s",
                   strerror(errno));
  if (!child) become_program(c);
  // Ctrl-C is for the program; what it found until then is told.
  signal(SIGINT, SIG_IGN);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  signal(SIGINT, SIG_DFL);
  r->status =
      WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  r->seconds = (double)(at_clock_ns() - start) * 1e-9;
  return AT_OK;
}

// ---- The report
// Writes one form of the report to a file; path NULL: not wanted.
static at_status write_report(const at_check_result *r, const char *path,
                              void (*put)(const at_check_result *,
                                          at_strbuf *)) {
  if (!path) return AT_OK;
  at_strbuf b = {0};
  put(r, &b);
  at_status st = at_cli_write_file(path, &b);
  at_strbuf_free(&b);
  return st;
}

// The text or the JSON goes to stdout, the other forms to their files, even if
// there are no findings: a CI wants the file.
static at_status tell(const check *c, const at_check_result *r) {
  at_strbuf b = {0};
  (c->json ? at_check_json : at_check_text)(r, &b);
  at_status st = at_strbuf_status(&b);
  if (at_ok(st)) fwrite(b.ptr, 1, b.len, stdout);
  at_strbuf_free(&b);
  AT_TRY(st);
  AT_TRY(write_report(r, c->sarif, at_check_sarif));
  AT_TRY(write_report(r, c->junit, at_check_junit));
  return c->html ? at_check_pages(r, c->dump, c->html) : AT_OK;
}

// Runs the program, reads what it found, and tells it.
static at_status check_program(const check *c, at_check_result *r) {
  at_bytes lines;
  AT_TRY(run_program(c, r));
  AT_TRY(at_cli_read_file(c->findings, &lines));
  at_status st = at_check_read(lines, r);
  free((void *)lines.ptr);
  AT_TRY(st);
  return tell(c, r);
}

// Findings win over the program's own status.
static int status_of(const check *c, const at_check_result *r) {
  if (r->errors || (c->strict && r->warnings)) return kFound;
  return r->status ? kFailed : 0;
}

// The folder goes whatever happened. A failure of the command itself has a
// status of its own, as 1 says that there are findings.
at_status at_cli_check(int argc, char **argv) {
  check c = {0};
  AT_TRY(read_arguments(argc, argv, &c));
  at_check_result r = {
      .arena = at_arena_create(), .program = c.program[0], .strict = c.strict};
  at_status st = r.arena ? make_folder(&c) : AT_NO_MEMORY("a check");
  if (at_ok(st)) st = check_program(&c, &r);
  if (*c.folder) {
    remove_files(c.dump);
    remove_files(c.folder);
  }
  int code = status_of(&c, &r);
  if (r.arena) at_arena_destroy(r.arena);
  // 1 says that there are findings, so that a failure here is another status.
  if (!at_ok(st)) {
    fprintf(stderr, "atoll check: %s: %s\n", at_code_name(at_status_code(st)),
            at_status_message(st));
    at_status_free(st);
    code = kFailed;
  }
  fflush(stdout);
  if (code) exit(code);
  return AT_OK;
}
