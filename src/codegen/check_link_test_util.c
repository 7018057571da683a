#include "codegen/check_link.h"

void ck_ok(at_status st) {
  if (st.err) fail_msg("%s", at_status_message(st));
}

void *ck_link(const at_cg_output *out) {
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

void *ck_symbol(void *library, const at_cg_output *out, uint32_t kernel) {
  assert_true(kernel < out->num_kernels);
  void *f = dlsym(library, out->strings.ptr + out->kernels[kernel].symbol);
  assert_non_null(f);
  return f;
}
