// One line for people, at the first client of a process.
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "pjrt/pjrt_internal.h"

// Somebody reads stderr: it is a terminal, or this is the kernel of a notebook.
static bool is_read(void) {
  const char *notebook = getenv("JPY_PARENT_PID");
  return isatty(STDERR_FILENO) || (notebook && *notebook);
}

// ATOLL_BANNER says whether: off, on, or only where somebody reads it. The
// exchange on `said` makes one line of what several clients, in several
// threads, would write.
void at_pjrt_banner(const PJRT_Client *c) {
  static _Atomic bool said;
  at_word when = at_config_word(AT_CONFIG_BANNER);
  if (when == AT_WORD_BANNER_OFF || !at_log_on(AT_LOG_WARNING)) return;
  if ((when == AT_WORD_BANNER_AUTO && !is_read()) || !c->num_devices) return;
  if (atomic_exchange(&said, true)) return;
  uint32_t n = c->num_devices;
  fprintf(stderr,
          "Atoll " AT_VERSION
          ": %u chip%s of %s (%s), in software; ATOLL_BANNER=off silences "
          "this\n",
          n, n == 1 ? "" : "s", at_chip_info_of(c->devices[0].chip)->kind,
          at_config_text(AT_CONFIG_TARGET));
}
