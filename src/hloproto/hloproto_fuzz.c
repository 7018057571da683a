// Any bytes as an HloModuleProto: what comes out must be lawful.
#include "hloproto/hloproto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// What was read can be written, where it calls no functions, and read again.
static at_status write_and_read(const at_module *m, at_arena *a) {
  at_hloproto_write_options o = {.tiles = true};
  at_strbuf b = {0};
  at_module *again;
  at_status s = at_hloproto_write(m, &o, &b);
  if (at_ok(s))
    s = at_hloproto_read((at_bytes){(const uint8_t *)b.ptr, b.len},
                         AT_HLOPROTO_WITH_CONFIG, a, &again);
  at_strbuf_free(&b);
  return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(256u << 20);
  if (!a) return 0;
  at_bytes b = {data, size};
  at_module *m;
  (void)at_hloproto_is(b);
  for (int form = AT_HLOPROTO_UNKNOWN; form <= AT_HLOPROTO_WITH_CONFIG;
       form++) {
    at_status s = at_hloproto_read(b, (at_hloproto_form)form, a, &m);
    if (at_ok(s)) {
      s = at_verify(m, "hloproto");
      // The builder has checked every node: a graph it gave out obeys the laws.
      if (!at_ok(s) && at_status_code(s) != AT_RESOURCE_EXHAUSTED)
        __builtin_trap();
      at_status_free(s);
      s = write_and_read(m, a);
      if (at_status_code(s) == AT_INTERNAL) __builtin_trap();
    }
    at_status_free(s);
    at_arena_reset(a);
  }
  at_arena_destroy(a);
  return 0;
}
