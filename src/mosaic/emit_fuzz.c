// Hostile kernels as code, plain, checked and for a debugger: a status, or code
// that LLVM's verifier lets pass.
#include <stdlib.h>

#include "base/cpu.h"
#include "mosaic/code.h"

// All programs of a kernel through codegen up to LLVM's verifier. form: 0
// plain, 1 with checks, 2 for a debugger.
static at_status write_code(const at_mosaic_kernel *k, int form, at_arena *a) {
  at_cg *cg = NULL;
  at_cg_target t = {
      .cpu_features = at_cpu_features(), .threads = 1, .verify = true};
  at_mosaic_code_options o = {.check = form > 0, .debug = form > 1};
  AT_TRY(at_cg_create(&t, &cg));
  at_status s = AT_OK;
  for (uint32_t i = 0; at_ok(s) && i < k->num_programs; i++) {
    at_mosaic_code *code;
    s = at_mosaic_code_add(cg, k, i, &o, a, &code);
  }
  at_strbuf text = {0};
  if (at_ok(s)) s = at_cg_print(cg, false, &text);
  at_strbuf_free(&text);
  at_cg_destroy(cg);
  return s;
}

// The input is a payload; the call has no types.
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
  at_mosaic_call call = {.payload = {p, n}};
  // The body is changed while code is written: each form reads it anew.
  for (int form = 0; form < 3; form++) {
    at_arena *a = at_arena_create_limited(64u << 20);
    if (!a) return 0;
    at_mosaic_kernel *k = NULL;
    at_status s = at_mosaic_read(&call, a, &k);
    if (at_ok(s)) s = write_code(k, form, a);
    at_status_free(s);
    at_arena_destroy(a);
  }
  return 0;
}
