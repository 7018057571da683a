#include "pod/ucx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucs/debug/log_def.h>

#include "base/log.h"
#include "base/span.h"

static const char kLibrary[] = "libucp.so.0";

static struct {
  pthread_once_t once;
  at_ucx_api api;
  char why_not[256];  // "": it is there
} ucx = {.once = PTHREAD_ONCE_INIT};

// ---- Signals
// Its constructor takes over SIGSEGV, SIGHUP and others.
static void save_handlers(struct sigaction out[NSIG]) {
  for (int i = 1; i < NSIG; i++)
    if (sigaction(i, NULL, &out[i])) out[i] = (struct sigaction){0};
}

// Handlers of others that came meanwhile stay.
static void restore_handlers(const struct sigaction before[NSIG],
                             const void *of_ucx) {
  Dl_info lib, handler;
  if (!dladdr(of_ucx, &lib)) return;
  for (int i = 1; i < NSIG; i++) {
    struct sigaction now;
    if (sigaction(i, NULL, &now) || now.sa_handler == before[i].sa_handler)
      continue;
    if (dladdr((void *)now.sa_handler, &handler) &&
        handler.dli_fbase == lib.dli_fbase)
      (void)sigaction(i, &before[i], NULL);
  }
}

// ---- Messages
// Failures reach callers as statuses, so its errors are details. More than
// warnings comes only where UCX_LOG_LEVEL asks for it, in UCX's own way.
static ucs_log_func_rc_t log_message(const char *file, unsigned line,
                                     const char *function,
                                     ucs_log_level_t level,
                                     const ucs_log_component_config_t *of,
                                     const char *format, va_list args) {
  char text[512];
  (void)file, (void)line, (void)function, (void)of;
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_CONTINUE;
  vsnprintf(text, sizeof text, format, args);
  at_log(level == UCS_LOG_LEVEL_FATAL ? AT_LOG_ERROR : AT_LOG_INFO, "UCX: %s",
         text);
  return UCS_LOG_FUNC_RC_STOP;
}

// ---- Memory
// Its constructor would write jumps into mmap, munmap and others while threads
// run through them, for a cache of memory that devices know; it does without
// where there are no events. So the part that does it (libucm) is loaded first,
// told so, and has set itself up when the rest comes. The first words of its
// options are a level and whether there are events, in all versions since 1.13.
// Where somebody else in this process has loaded it, it stays as it is.
static bool stop_memory_events(int **out_options) {
  static const char kMemory[] = "libucm.so.0";
  *out_options = NULL;
  if (dlopen(kMemory, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD)) return true;
  // Lazy: what it lacks is in the rest, and of use with events only.
  void *lib = dlopen(kMemory, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (!lib) return false;
  int *options = dlsym(lib, "ucm_global_opts");
  void (*set)(const void *) = dlsym(lib, "ucm_set_global_opts");
  if (!options || !set || (options[1] != 0 && options[1] != 1)) return false;
  options[1] = 0;
  set(options);
  *out_options = options;
  return true;
}

// ---- Loading
// The first function that is missing is noted.
static void *find(void *lib, const char *name) {
  void *p = dlsym(lib, name);
  if (!p && !*ucx.why_not)
    snprintf(ucx.why_not, sizeof ucx.why_not, "%s lacks %s", kLibrary, name);
  return p;
}

// Once for the process, in an order that keeps UCX from patching functions and
// from keeping signals.
static void load(void) {
  struct sigaction before[NSIG];
  int *memory;
  const bool quiet = stop_memory_events(&memory);
  save_handlers(before);
  void *lib =
      quiet ? dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
  if (!lib) {
    const char *why = dlerror();
    snprintf(ucx.why_not, sizeof ucx.why_not, "%s",
             why ? why : "libucm.so.0 is not one that this build knows");
    return;
  }
  if (memory) memory[1] = 0;  // it has read its settings
#define X(f) ucx.api.f = find(lib, #f);
  AT_UCX_FUNCTIONS(X)
#undef X
  void (*push_handler)(ucs_log_func_t) = find(lib, "ucs_log_push_handler");
  if (!push_handler) return;
  restore_handlers(before, (void *)push_handler);
  push_handler(log_message);
}

// UNAVAILABLE, each time the same.
at_status at_ucx_load(const at_ucx_api **out) {
  pthread_once(&ucx.once, load);
  if (*ucx.why_not)
    return AT_FAIL(AT_UNAVAILABLE,
                   "UCX is not there: %s\nhint: install libucx0", ucx.why_not);
  *out = &ucx.api;
  return AT_OK;
}
