// Text that a test compares with a file of the tree.
//
// Threads: the test's own; what differs ends the test.
#ifndef ATOLL_BASE_GOLDEN_TEST_UTIL_H_
#define ATOLL_BASE_GOLDEN_TEST_UTIL_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/strbuf.h"

// The file `name` below AT_SOURCE_DIR holds what `have` does; else the first
// line that differs is told. AT_UPDATE=1 writes the file anew.
// Line by line, so that a difference names its place; lines over 1,023 bytes
// are compared in parts.
static inline void expect_golden(const char *name, const at_strbuf *have) {
  const char *root = getenv("AT_SOURCE_DIR");
  char path[4096], line[1024];
  snprintf(path, sizeof path, "%s/%s", root ? root : ".", name);
  FILE *f = fopen(path, getenv("AT_UPDATE") ? "w+b" : "rb");
  if (!f) fail_msg("%s is not there: AT_UPDATE=1 writes it", path);
  if (getenv("AT_UPDATE")) {
    assert_int_equal(fwrite(have->ptr, 1, have->len, f), have->len);
    rewind(f);
  }
  // Where in `have` the file's next line must be.
  size_t at = 0;
  for (int n = 1; fgets(line, sizeof line, f); n++) {
    size_t len = strlen(line), left = have->len - at;
    if (len > left || memcmp(have->ptr + at, line, len))
      fail_msg("%s:%d: was %s now %.*s", path, n, line,
               (int)strcspn(left ? have->ptr + at : "", "\n"),
               left ? have->ptr + at : "");
    at += len;
  }
  fclose(f);
  if (at != have->len)
    fail_msg("%s: more than it has: %s", path, have->ptr + at);
}

#endif
