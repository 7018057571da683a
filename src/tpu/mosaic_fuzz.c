// Hostile kernels: a status that names the kernel, or a kernel that the chip's
// rules can judge, that has a time, and that reads back equal from its printed
// form.
#include <stdlib.h>

#include "mosaic/mosaic.h"
#include "tpu/tpu.h"

// Aborts, which the fuzzer reports.
static void require(bool good) {
  if (!good) abort();
}

// Any kernel has a time and a layout, or a status.
static void size(const at_mosaic_kernel *k, at_arena *a) {
  const at_machine *m;
  at_status s = at_machine_find(AT_STR("v6e"), &m);
  at_mosaic_timing *t;
  at_mosaic_view v;
  for (uint32_t i = 0; at_ok(s) && i < k->num_programs; i++) {
    for (int zeros = 0; zeros < 2; zeros++) {
      at_mosaic_given given = {.zeros = zeros};
      at_status_free(at_mosaic_timing_of(k, i, m, &given, a, &t));
    }
    at_status_free(at_mosaic_view_of(k, i, m, a, &v));
  }
  at_status_free(s);
}

// read(print(k)) must be k.
static void read_back(const at_mosaic_kernel *k, at_arena *a) {
  at_strbuf text = {0};
  at_status s = at_mosaic_print(k, true, &text);
  at_mosaic_kernel *again = NULL;
  if (at_ok(s)) {
    at_mosaic_call call = {.payload = {(const uint8_t *)text.ptr, text.len}};
    s = at_mosaic_read(&call, a, &again);
    // What the text form cannot hold is refused there, never changed.
    if (at_ok(s))
      require(at_mop_eq(k->module->op, again->module->op, false, a));
  }
  at_status_free(s);
  at_strbuf_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  at_arena *a = at_arena_create_limited(64u << 20);
  if (!a) return 0;
  at_mosaic_kernel *k = NULL;
  at_mosaic_call call = {.payload = {p, n}};
  at_status s = at_mosaic_read(&call, a, &k);
  if (at_ok(s)) {
    static const char *const chips[] = {"v4", "v5e", "7x"};
    for (size_t i = 0; i < AT_LEN(chips); i++)
      at_status_free(
          at_mosaic_check(k, at_mosaic_chip_find(at_str_of(chips[i])), 1));
    at_strbuf b = {0};
    at_mosaic_summary(k, &b);
    at_strbuf_free(&b);
    read_back(k, a);
    size(k, a);
  } else {
    require(!strncmp(at_status_message(s), "kernel ", 7) ||
            at_status_code(s) == AT_RESOURCE_EXHAUSTED);
  }
  at_status_free(s);
  at_arena_destroy(a);
  return 0;
}
