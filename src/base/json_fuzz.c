// Whatever the bytes: no crash, and what parses is written and read back equal.
#include <stdlib.h>

#include "base/json.h"

static void write_tree(const at_json *v, at_strbuf *out) {
  at_json_writer w = {.out = out};
  at_json_value(&w, v);
}

// What parses must print and parse again as the same text.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(64u << 20);
  const at_json *v, *again;
  at_strbuf one = {0}, two = {0};
  if (!at_code_take(at_json_parse((at_bytes){data, size}, a, &v))) {
    write_tree(v, &one);
    at_bytes text = {(const uint8_t *)one.ptr, one.len};
    if (at_code_take(at_json_parse(text, a, &again))) abort();
    write_tree(again, &two);
    if (!at_str_eq(at_strbuf_str(&one), at_strbuf_str(&two))) abort();
  }
  at_strbuf_free(&one);
  at_strbuf_free(&two);
  at_arena_destroy(a);
  return 0;
}
