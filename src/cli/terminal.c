// What only a terminal gets: colours, and lines that say how far work is.
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

// Static texts.
const char *at_cli_style_of(FILE *to, at_cli_style style) {
  static const char *const codes[] = {"\033[0m", "\033[1m", "\033[1;31m",
                                      "\033[1;33m", "\033[36m"};
  const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
  if ((no && *no) || !term || !strcmp(term, "dumb") || !isatty(fileno(to)))
    return "";
  return codes[style];
}

// The line is cleared before it is written, and stays without a newline.
void at_cli_progress(const char *fmt, ...) {
  if (!isatty(STDERR_FILENO)) return;
  va_list ap;
  va_start(ap, fmt);
  fputs("\r\033[K", stderr);
  vfprintf(stderr, fmt, ap);
  fflush(stderr);
  va_end(ap);
}
