// `atoll profile --tiles`: a program on a machine of tiles.
#include <stdlib.h>

#include "cli/cli.h"
#include "import/import.h"
#include "mlir/mlir.h"
#include "passes/passes.h"
#include "tiles/lower.h"

static at_status read_module(const char *path, at_arena *a, at_module **out) {
  at_bytes program;
  AT_TRY(at_cli_read_file(path,
                          &program));  // large constants borrow it to the end
  at_str text = {(const char *)program.ptr, program.len};
  if (at_str_starts(text, "hlo module")) {
    AT_TRY(at_hlo_parse(text, a, out));
  } else {
    at_mmodule *m;
    AT_TRY(at_mlir_read(program, true, a, &m));
    AT_TRY(at_import(m, a, out));
  }
  at_pass_options passes = {.fold_budget = 1 << 22};
  return at_passes_run(*out, &passes, false, NULL, NULL);
}

typedef struct wishes {
  const char *target, *html, *mapping;
  bool json, lenient;
} wishes;

static at_status lower(const char *path, const wishes *x, at_arena *a,
                       const at_tiles_plan **out) {
  const at_machine *machine;
  at_tiles_machine m;
  at_module *module;
  at_tiles_lower_options o = {.linear = !strcmp(x->mapping, "linear"),
                              .lenient = x->lenient};
  if (!o.linear && strcmp(x->mapping, "planned"))
    return AT_FAIL(AT_INVALID_ARGUMENT, "--mapping=%s\nhint: planned or linear",
                   x->mapping);
  AT_TRY(at_machine_find(at_str_of(x->target), &machine));
  AT_TRY(at_tiles_machine_read(machine, &m));
  AT_TRY(read_module(path, a, &module));
  return at_tiles_lower(&m, module, &o, a, out);
}

static at_status run(int argc, char **argv, at_arena *a) {
  wishes x = {.target = "mk2", .mapping = "planned"};
  bool tiles = at_cli_option(&argc, argv, "--tiles", NULL);
  at_cli_option(&argc, argv, "--target=", &x.target);
  at_cli_option(&argc, argv, "--html=", &x.html);
  at_cli_option(&argc, argv, "--mapping=", &x.mapping);
  x.json = at_cli_option(&argc, argv, "--json", NULL);
  x.lenient = at_cli_option(&argc, argv, "--lenient", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "profile"));
  if (!tiles || argc != 2 || !x.target || !x.mapping)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "--tiles and one program are needed\nhint: atoll profile --help");
  const at_tiles_plan *p;
  AT_TRY(lower(argv[1], &x, a, &p));
  at_strbuf text = {0}, page = {0};
  if (x.json)
    at_tiles_report_json(p, &text), at_strbuf_addc(&text, '\n');
  else
    at_tiles_report_text(p, &text);
  at_status st = at_strbuf_status(&text);
  if (at_ok(st)) fwrite(text.ptr, 1, text.len, stdout);
  if (at_ok(st) && x.html) {
    at_tiles_report_html(p, argv[1], &page);
    st = at_cli_write_file(x.html, &page);
  }
  at_strbuf_free(&text);
  at_strbuf_free(&page);
  return st;
}

at_status at_cli_profile(int argc, char **argv) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("profile");
  at_status st = run(argc, argv, a);
  at_arena_destroy(a);
  return st;
}
