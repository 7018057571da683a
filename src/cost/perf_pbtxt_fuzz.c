// Whatever the bytes: a status, or tables whose collectives and cycles survive
// being written as a text proto, and everything survives as Atoll's own text.
#include <stdlib.h>

#include "cost/cost.h"

static void own_form(const at_perf_table *t, size_t n, at_arena *a) {
  at_strbuf text = {0};
  at_perf_table *again;
  size_t m;
  if (!at_code_take(at_perf_write(t, n, &text))) {
    at_code code = at_code_take(
        at_perf_read((at_bytes){(uint8_t *)text.ptr, text.len}, a, &again, &m));
    if (code && code != AT_RESOURCE_EXHAUSTED) abort();
    if (!code && m != n) abort();
  }
  at_strbuf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(64u << 20);
  at_perf_table *t, *again;
  size_t n, m;
  if (!at_code_take(
          at_perf_read_pbtxt((at_bytes){data, size}, 1.5e9, a, &t, &n))) {
    for (int gemm = 0; gemm < 2; gemm++) {
      at_strbuf one = {0}, two = {0};
      if (!at_code_take(at_perf_write_pbtxt(t, n, gemm, &one))) {
        at_bytes text = {(const uint8_t *)one.ptr, one.len};
        at_code code =
            at_code_take(at_perf_read_pbtxt(text, 1.5e9, a, &again, &m));
        if (code && code != AT_RESOURCE_EXHAUSTED) abort();
        if (!code && !at_code_take(at_perf_write_pbtxt(again, m, gemm, &two)) &&
            !at_str_eq(at_strbuf_str(&one), at_strbuf_str(&two)))
          abort();
      }
      at_strbuf_free(&one);
      at_strbuf_free(&two);
    }
    own_form(t, n, a);
  }
  at_arena_destroy(a);
  return 0;
}
