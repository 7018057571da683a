// Messages for people. The level is a knob; warnings and errors are findings,
// too (finding.h), whether they are printed or not.
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "base/finding.h"

static const char *const g_names[] = {"off", "error", "warning", "info",
                                      "debug"};

static int level_of(at_word w) { return (int)w - AT_WORD_LOG_OFF; }
_Static_assert(AT_WORD_LOG_DEBUG - AT_WORD_LOG_OFF == AT_LOG_DEBUG,
               "the words of ATOLL_LOG are the levels, in their order");

// The knob is read once: the level does not change while the process runs.
bool at_log_on(at_log_level level) {
  static _Atomic int limit = -1;
  int now = atomic_load_explicit(&limit, memory_order_relaxed);
  if (now < 0) {
    now = level_of(at_config_word(AT_CONFIG_LOG));
    atomic_store_explicit(&limit, now, memory_order_relaxed);
  }
  return level != AT_LOG_OFF && (int)level <= now;
}

// Bytes of a message; the rest is cut.
enum { kMostText = 1000 };

// One write, so that lines of several threads do not mix.
static void put(at_log_level level, const char *text) {
  char line[kMostText + 24];
  int n = snprintf(line, sizeof line - 1, "atoll %s: %s", g_names[level], text);
  size_t len = AT_MIN((size_t)n, sizeof line - 2);
  line[len++] = '\n';
  // One write, so that lines of several threads do not mix.
  ssize_t ignored = write(STDERR_FILENO, line, len);
  (void)ignored;
}

static _Thread_local unsigned long warnings;
unsigned long at_log_warnings(void) { return warnings; }

// What is severe is a finding, too, printed or not.
static bool is_severe(at_log_level level) {
  return level == AT_LOG_WARNING || level == AT_LOG_ERROR;
}

// Formats into text (kMostText bytes) and notes findings; whether the message
// is to be printed.
static bool says(char *text, at_log_level level, const char *fmt, va_list ap) {
  bool on = at_log_on(level);
  warnings += is_severe(level);
  if (!on && !is_severe(level)) return false;
  vsnprintf(text, kMostText, fmt, ap);
  if (is_severe(level)) at_finding_log(level, text);
  return on;
}

// Nothing is formatted below the level, but for what is a finding.
void at_log(at_log_level level, const char *fmt, ...) {
  char text[kMostText];
  va_list ap;
  va_start(ap, fmt);
  bool on = says(text, level, fmt, ap);
  va_end(ap);
  if (on) put(level, text);
}

// True the first time that it is asked.
static bool is_news(uint64_t h) {
  enum { kMost = 64 };
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static uint64_t said[kMost];
  static size_t count;
  bool news = true;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < AT_MIN(count, (size_t)kMost); i++)
    if (said[i] == h) news = false;
  if (news) said[count++ % kMost] = h;
  pthread_mutex_unlock(&lock);
  return news;
}

// Counts as a warning each time (at_log_warnings): only the line is left out.
void at_log_once(at_log_level level, const char *fmt, ...) {
  char text[kMostText];
  va_list ap;
  va_start(ap, fmt);
  bool on = says(text, level, fmt, ap);
  va_end(ap);
  if (on && is_news(at_hash(AT_HASH_SEED, text, strlen(text))))
    put(level, text);
}
