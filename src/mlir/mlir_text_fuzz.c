// Any bytes as text: refused, or read, printed, written and read back equal.
#include "mlir/mlir_fuzz_util.h"

// Everything lives in one limited arena.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(64u << 20);
  at_mmodule *m = NULL;
  at_mlir_print_options generic = {.generic = true, .locations = true};
  at_mlir_print_options pretty = {0};
  if (!a) return 0;
  // Shared parts are printed as often as they are used: a few bytes could stand
  // for more text than a fuzzer wants to see.
  if (size > 1 << 16 ||
      at_code_take(
          at_mlir_read_text((at_str){(const char *)data, size}, a, &m)) ||
      at_arena_used_bytes(a) > 4u << 20)
    return at_arena_destroy(a), 0;
  at_strbuf text = {0}, short_text = {0}, bytes = {0};
  if (at_code_take(at_mlir_print(m, &generic, &text)) == AT_OK_CODE &&
      text.len < 1 << 20) {
    same(m, &text, true, a);
    if (at_code_take(at_mlir_print(m, &pretty, &short_text)) == AT_OK_CODE)
      same(m, &short_text, false, a);
  }
  if (at_code_take(at_mlir_write_bytecode(m, "fuzz", &bytes)) == AT_OK_CODE)
    same(m, &bytes, true, a);
  at_strbuf_free(&text);
  at_strbuf_free(&short_text);
  at_strbuf_free(&bytes);
  at_arena_destroy(a);
  return 0;
}
