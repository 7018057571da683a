// An estimate of whatever program: a status or figures that are numbers, never
// a crash. Programs as text of ours reach furthest.
#include <math.h>
#include <stdlib.h>

#include "estimate/estimate.h"

static void check(double x) {
  if (!isfinite(x) || x < 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  static const char *const targets[] = {"v5e", "v5p:2x2x2", "H100:8"};
  if (n > 1 << 16) return 0;
  at_arena *a = at_arena_create_limited(256u << 20);
  if (!a) return 0;
  at_estimate_options o = {.target = targets[n % AT_LEN(targets)],
                           .mode = AT_INTERP_ATOLL};
  at_estimate *e;
  if (at_code_take(at_estimate_run((at_bytes){p, n}, &o, a, &e)) == 0) {
    at_strbuf b = {0};
    check(e->seconds);
    check(e->exposed);
    check(e->kernels);
    if (e->low > e->seconds || e->high < e->seconds) abort();
    at_estimate_json(e, &b);
    at_estimate_trace(e, &b);
    at_strbuf_free(&b);
  }
  at_arena_destroy(a);
  return 0;
}
