#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"

static const char *const g_names[] = {"off", "error", "warning", "info",
                                      "debug"};

static int level_of(at_word w) { return (int)w - AT_WORD_LOG_OFF; }
_Static_assert(AT_WORD_LOG_DEBUG - AT_WORD_LOG_OFF == AT_LOG_DEBUG,
               "the words of ATOLL_LOG are the levels, in their order");

bool at_log_on(at_log_level level) {
  static _Atomic int limit = -1;
  int now = atomic_load_explicit(&limit, memory_order_relaxed);
  if (now < 0) {
    now = level_of(at_config_word(AT_CONFIG_LOG));
    atomic_store_explicit(&limit, now, memory_order_relaxed);
  }
  return level != AT_LOG_OFF && (int)level <= now;
}

void at_log(at_log_level level, const char *fmt, ...) {
  if (!at_log_on(level)) return;
  char line[1024];
  int head = snprintf(line, sizeof line, "atoll %s: ", g_names[level]);
  va_list ap;
  va_start(ap, fmt);
  int body = vsnprintf(line + head, 1000, fmt, ap);
  va_end(ap);
  size_t n = (size_t)head + (size_t)(body < 0 ? 0 : body < 1000 ? body : 999);
  line[n++] = '\n';
  // One write, so that lines of several threads do not mix.
  ssize_t ignored = write(STDERR_FILENO, line, n);
  (void)ignored;
}
