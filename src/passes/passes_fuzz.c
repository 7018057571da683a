// Any module that parses and verifies goes through the pipeline: every pass
// leaves a valid module, and no pass reports a broken invariant of its own.
#include <stdio.h>
#include <stdlib.h>

#include "passes/passes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  at_arena *a = at_arena_create_limited(256u << 20);
  at_module *m;
  // Golden files: what follows the separator is expected output.
  at_str text = {(const char *)data, size};
  for (size_t i = 0; i + 4 < size; i++)
    if (memcmp(data + i, "----", 4) == 0) text.len = i;
  while (text.len && *text.ptr == '#') {
    const char *line = memchr(text.ptr, '\n', text.len);
    size_t skip = line ? (size_t)(line - text.ptr) + 1 : text.len;
    text = (at_str){text.ptr + skip, text.len - skip};
  }
  at_status st = at_hlo_parse(text, a, &m);
  if (at_ok(st)) st = at_verify(m, "parse");
  if (at_ok(st)) {
    at_pass_options o = {.fuse = true, .fold_budget = 1 << 16};
    st = at_passes_run(m, &o, true, NULL, NULL);
    if (at_status_code(st) == AT_INTERNAL) {
      fprintf(stderr, "%s (%s:%d)\n", at_status_message(st), at_status_file(st),
              at_status_line(st));
      abort();
    }
  }
  at_status_free(st);
  at_arena_destroy(a);
  return 0;
}
