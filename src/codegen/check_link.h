// For tests of code: what the generator wrote, linked and loaded into the
// test's process. Generated code that calls functions by name finds those that
// the test exports.
#ifndef ATOLL_CODEGEN_CHECK_LINK_H_
#define ATOLL_CODEGEN_CHECK_LINK_H_

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/strbuf.h"
#include "codegen/codegen.h"

// For functions of the test that generated code calls by name.
#define CK_EXPORT __attribute__((visibility("default")))

// Fails the test with the status' text unless it is OK.
static void ck_ok(at_status st) {
  if (st.err) fail_msg("%s", at_status_message(st));
}

// Objects as one shared library, through the system's linker, which must be in
// PATH. dlclose it. The files are gone when it returns.
static void *ck_link(const at_cg_output *out) {
  // Files of one call are in a folder of their own: tests run beside each
  // other.
  char dir[] = "/tmp/at_cg_XXXXXX", path[64];
  at_strbuf cmd = {0};
  assert_non_null(mkdtemp(dir));
  // libm has what abi/imports.def names of it; the rest is looked up in the
  // test itself.
  at_strbuf_addf(&cmd, "ld -shared -o %s/k.so -lm -L/lib/x86_64-linux-gnu",
                 dir);
  for (uint32_t i = 0; i < out->num_objects; i++) {
    snprintf(path, sizeof path, "%s/%u.o", dir, i);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(out->objects[i].ptr, 1, out->objects[i].len, f);
    fclose(f);
    at_strbuf_addf(&cmd, " %s", path);
  }
  ck_ok(at_strbuf_status(&cmd));
  assert_int_equal(system(cmd.ptr), 0);
  snprintf(path, sizeof path, "%s/k.so", dir);
  // Now, so that a missing function fails here and is named.
  void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!h) fail_msg("%s", dlerror());
  cmd.len = 0;
  at_strbuf_addf(&cmd, "rm -rf %s", dir);
  assert_int_equal(system(cmd.ptr), 0);
  at_strbuf_free(&cmd);
  return h;
}

// The function of a kernel, by its number; its type follows from
// at_xkernel.kind. Lives as long as the library.
static void *ck_symbol(void *library, const at_cg_output *out,
                       uint32_t kernel) {
  assert_true(kernel < out->num_kernels);
  void *f = dlsym(library, out->strings.ptr + out->kernels[kernel].symbol);
  assert_non_null(f);
  return f;
}

#endif
