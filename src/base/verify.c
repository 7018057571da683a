// Whether expensive checks are made, and what happens where one fails.
#include "base/verify.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/config.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(undefined_behavior_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

enum { UNKNOWN, OFF, ON };

// Read once; two threads that race read the same.
bool at_verifying(void) {
  static _Atomic int known = UNKNOWN;
  int is = atomic_load_explicit(&known, memory_order_relaxed);
  if (AT_LIKELY(is != UNKNOWN)) return is == ON;
  bool on = SANITIZED || at_config_flag(AT_CONFIG_VERIFY);
  atomic_store_explicit(&known, on ? ON : OFF, memory_order_relaxed);
  return on;
}

// Other codes are the check's own trouble (no memory), not the checked thing's.
void at_verify_status(at_status st, const char *what, const char *file,
                      int line) {
  if (at_status_code(st) != AT_INTERNAL) {
    at_status_free(st);
    return;
  }
  fprintf(stderr, "atoll: %s\n", at_status_message(st));
  at_assert_fail(what, file, line);
}
