// Whatever the bytes: a status, or tables that are written and read back equal
// and that answer questions.
#include <stdlib.h>

#include "cost/cost.h"

static void ask(const at_perf_table *t, at_arena *a) {
  for (int mode = AT_INTERP_SEED; mode <= AT_INTERP_ATOLL; mode++)
    for (int user = 0; user < 2; user++) {
      at_perf *p;
      if (at_code_take(at_perf_prepare(t, (at_interp)mode, user, a, &p)))
        return;
      for (size_t i = 0; i < t->count; i++) {
        at_collective c = t->series[i].key;
        c.bytes = 12345;
        at_gemm g = {t->series[i].lhs,
                     t->series[i].rhs,
                     t->series[i].out,
                     3,
                     300,
                     700,
                     20};
        at_cost_time time = {0};
        at_status st = t->series[i].is_gemm ? at_perf_gemm(p, &g, &time)
                                            : at_perf_collective(p, &c, &time);
        if (at_ok(st) && !(time.seconds >= 0)) abort();
        at_status_free(st);
      }
    }
}

static bool write(const at_perf_table *t, size_t n, at_strbuf *out) {
  return at_code_take(at_perf_write(t, n, out)) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(64u << 20);
  at_perf_table *t, *again;
  size_t n, m;
  at_strbuf one = {0}, two = {0};
  if (!at_code_take(at_perf_read((at_bytes){data, size}, a, &t, &n)) &&
      write(t, n, &one)) {
    at_bytes text = {(const uint8_t *)one.ptr, one.len};
    at_code code = at_code_take(at_perf_read(text, a, &again, &m));
    if (code && code != AT_RESOURCE_EXHAUSTED) abort();
    if (!code && write(again, m, &two) &&
        !at_str_eq(at_strbuf_str(&one), at_strbuf_str(&two)))
      abort();
    for (size_t i = 0; i < n && i < 4; i++) ask(&t[i], a);
    at_strbuf warnings = {0};
    for (size_t i = 0; i < n; i++) at_perf_warn(&t[i], &warnings);
    at_strbuf_free(&warnings);
  }
  at_strbuf_free(&one);
  at_strbuf_free(&two);
  at_arena_destroy(a);
  return 0;
}
