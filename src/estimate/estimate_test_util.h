// What tests of estimates share.
#ifndef ATOLL_ESTIMATE_ESTIMATE_TEST_UTIL_H_
#define ATOLL_ESTIMATE_ESTIMATE_TEST_UTIL_H_

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "estimate/estimate_internal.h"

// Of a program's text, in `a`; a status fails the test.
static inline at_estimate *estimate(at_arena *a, const char *target,
                                    const char *text) {
  at_estimate_options o = {.target = target, .mode = AT_INTERP_ATOLL};
  at_estimate *e = NULL;
  at_bytes program = {(const uint8_t *)text, strlen(text)};
  at_status st = at_estimate_run(program, &o, a, &e);
  if (st.err) fail_msg("%s", at_status_message(st));
  return e;
}

// Temporaries, within 2 %.
static inline void is_mib(const at_estimate *e, double mib) {
  double got = (double)e->temp_bytes / (1 << 20);
  if (fabs(got - mib) > .02 * mib + .1)
    fail_msg("%g MiB of temporaries, not %g", got, mib);
}

#endif
