// Programs in test/ir/import, and what they become: <name>.hlo beside
// <name>.mlir. The same programs as artifacts of several StableHLO versions
// (test/ir/versions) must become the same. AT_UPDATE=1 writes the .hlo files
// anew.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
// cmocka wants the headers above first.
#include <cmocka.h>
#include <dirent.h>

#include "import/import.h"

// The whole file, in the arena; ptr NULL: it is not there.
static at_str file_read(const char *path, at_arena *a) {
  FILE *f = fopen(path, "rb");
  if (!f) return (at_str){NULL, 0};
  fseek(f, 0, SEEK_END);
  size_t n = (size_t)ftell(f);
  rewind(f);
  char *p = at_arena_alloc(a, n + 1, 1);
  assert_int_equal(fread(p, 1, n, f), n);
  fclose(f);
  return (at_str){p, n};
}

// test/ir/DIR/NAME's first `stem` bytes, then ext.
static const char *path_of(at_arena *a, const char *dir, const char *name,
                           size_t stem, const char *ext) {
  const char *root = getenv("AT_SOURCE_DIR");
  return at_arena_printf(a, "%s/test/ir/%s/%.*s%s", root ? root : ".", dir,
                         (int)stem, name, ext);
}

// Only one program is about locations; the others would differ by line numbers.
static void locs_clear(at_comp *c) {
  AT_FOR_NODES(n, c) {
    n->loc = NULL;
    for (uint32_t i = 0; i < n->num_regions; i++) locs_clear(n->regions[i]);
  }
}

// Every node knows the operation or argument of the program that it came with.
static at_status add_owner(void *user, const void *of, const at_mloc *l,
                           at_digest *io) {
  *at_map_put_ptr(user, of) = (void *)(uintptr_t)of;
  return AT_OK;
}
// Fails at the first node whose origin is not an op or argument of the program.
static void origins_check(const at_comp *c, const at_map *owners) {
  AT_FOR_NODES(n, c) {
    if (n->loc && !at_map_find_ptr(owners, n->loc->origin))
      fail_msg("%%%u = %s came with nothing of the program", n->id,
               at_op_text(n->op));
    for (uint32_t i = 0; i < n->num_regions; i++)
      origins_check(n->regions[i], owners);
  }
}
// Collects every op and argument by walking the digest's hooks, then checks all
// functions.
static at_status all_origins_check(const at_mmodule *m, const at_module *h,
                                   at_arena *a) {
  at_map owners = at_map_in(a);
  at_digest d = at_digest_start(0);
  at_mdigest_hooks hooks = {.user = &owners, .place = add_owner};
  AT_TRY(at_mop_digest(m->op, &hooks, a, &d));
  for (uint32_t i = 0; i < h->num_funcs; i++)
    origins_check(h->funcs[i], &owners);
  return AT_OK;
}

// Program to hlo text. Without `locations`, places and names are removed, so
// that the texts of all versions agree.
static at_status run(at_str program, bool locations, at_arena *a,
                     at_strbuf *out) {
  at_mmodule *m;
  at_module *h;
  at_bytes bytes = {(const uint8_t *)program.ptr, program.len};
  AT_TRY(at_mlir_read(bytes, false, a, &m));
  AT_TRY(at_import(m, a, &h));
  AT_TRY(at_verify(h, "import"));
  AT_TRY(all_origins_check(m, h, a));
  for (uint32_t i = 0; i < h->num_funcs && !locations; i++)
    locs_clear(h->funcs[i]);
  for (uint32_t i = 0; i < h->entry->num_params && !locations; i++)
    h->params[i].name = NULL;
  AT_TRY(at_hlo_print(h, out));
  return at_strbuf_status(out);
}

// The first line that differs, for the log.
static void difference(at_str have, at_str want) {
  size_t line = 1, from = 0, i = 0;
  for (; i < have.len && i < want.len && have.ptr[i] == want.ptr[i]; i++)
    if (have.ptr[i] == '\n') line++, from = i + 1;
  print_message("line %zu:\n  have %.*s\n  want %.*s\n", line,
                (int)strcspn(have.ptr + from, "\n"), have.ptr + from,
                (int)strcspn(want.ptr + from, "\n"), want.ptr + from);
}

// name: "regions.mlir" or "regions.0.9.0.mlirbc"
static bool check(const char *dir, const char *name, bool update) {
  at_arena *a = at_arena_create();
  size_t stem = strcspn(name, ".");
  at_strbuf b = {0};
  at_str program = file_read(path_of(a, dir, name, strlen(name), ""), a);
  assert_non_null(program.ptr);
  at_status s = run(program, !strncmp(name, "locations", stem), a, &b);
  bool ok = at_ok(s);
  if (!ok) print_message("%s: %s\n", name, at_status_message(s));
  at_status_free(s);
  const char *golden = path_of(a, "import", name, stem, ".hlo");
  if (ok && update) {
    FILE *f = fopen(golden, "wb");
    assert_non_null(f);
    fwrite(b.ptr, 1, b.len, f);
    fclose(f);
  }
  at_str want = file_read(golden, a);
  if (ok && !at_str_eq(want, at_strbuf_str(&b))) {
    print_message("%s differs from %s\n", name, golden);
    if (want.ptr) difference(at_strbuf_str(&b), want);
    ok = false;
  }
  at_strbuf_free(&b);
  at_arena_destroy(a);
  return ok;
}

// Every file of that folder with that extension.
static void check_all(const char *dir, const char *ext, bool update) {
  at_arena *a = at_arena_create();
  DIR *d = opendir(path_of(a, dir, "", 0, ""));
  assert_non_null(d);
  int good = 0, all = 0;
  for (struct dirent *e; (e = readdir(d));) {
    size_t n = strlen(e->d_name), k = strlen(ext);
    if (n <= k || strcmp(e->d_name + n - k, ext)) continue;
    good += check(dir, e->d_name, update);
    all++;
  }
  closedir(d);
  at_arena_destroy(a);
  assert_true(all >= 12);
  assert_int_equal(good, all);
}

// The programs as text; the only run that may rewrite golden files.
static void texts(void **state) {
  check_all("import", ".mlir", getenv("AT_UPDATE") && *getenv("AT_UPDATE"));
}
static void versions(void **state) { check_all("versions", ".mlirbc", false); }

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(texts),
                                     cmocka_unit_test(versions)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
