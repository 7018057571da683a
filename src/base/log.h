// Messages for people, on stderr, one line each, written at once. ATOLL_LOG
// sets the least severe one that is printed. Errors that are returned are not
// logged.
//
// Threads: any. A line is written whole.
#ifndef ATOLL_BASE_LOG_H_
#define ATOLL_BASE_LOG_H_

#include <stdbool.h>

// Each level prints itself and those above it.
typedef enum at_log_level {
  AT_LOG_OFF,
  AT_LOG_ERROR,
  AT_LOG_WARNING,
  AT_LOG_INFO,
  AT_LOG_DEBUG
} at_log_level;

// Would a message of that level be printed? Ask before making text that costs
// something. Any thread.
bool at_log_on(at_log_level level);
// "atoll warning: ...". At most 1,000 bytes; longer text is cut.
__attribute__((format(printf, 2, 3))) void at_log(at_log_level level,
                                                  const char *fmt, ...);

// The same, but each text once per process (of the last 64).
__attribute__((format(printf, 2, 3))) void at_log_once(at_log_level level,
                                                       const char *fmt, ...);

// Warnings and errors that this thread has logged so far, printed or not: who
// keeps a result keeps none that came with one, so that it is said again.
unsigned long at_log_warnings(void);

#endif
