#include <stdlib.h>

#include "base/config.h"
#include "cli/cli.h"
#include "compile/compile.h"
#include "hlo/hlo.h"
#include "import/import.h"
#include "mosaic/mosaic.h"

static at_status print_and_free(at_status st, at_strbuf *b) {
  if (at_ok(st)) st = at_strbuf_status(b);
  if (at_ok(st) && b->len) fwrite(b->ptr, 1, b->len, stdout);
  at_strbuf_free(b);
  return st;
}

static at_status stage_of(const char *name, at_stage *out) {
  static const char *const names[] = {"mlir", "hlo", "optimized", "steps", "llvm", "asm"};
  for (size_t i = 0; i < AT_LEN(names); i++)
    if (!strcmp(name, names[i])) return *out = (at_stage)i, AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "no stage '%s'\nhint: mlir, hlo, optimized, steps, llvm or asm", name);
}

at_status at_cli_dump(int argc, char **argv) {
  at_strbuf out = {0};
  if (at_cli_option(&argc, argv, "--ops-doc", NULL))
    return print_and_free(at_hlo_ops_doc(&out), &out);
  if (at_cli_option(&argc, argv, "--import-doc", NULL))
    return print_and_free(at_import_ops_doc(&out), &out);
  if (at_cli_option(&argc, argv, "--flags-doc", NULL)) {
    at_config_doc(&out);
    return print_and_free(AT_OK, &out);
  }
  if (at_cli_option(&argc, argv, "--mosaic-doc", NULL))
    return print_and_free(at_mosaic_ops_doc(&out), &out);
  if (at_cli_option(&argc, argv, "--mosaic", NULL))
    return at_cli_dump_mosaic(argc, argv);
  const char *stage = "optimized";
  at_cli_option(&argc, argv, "--stage=", &stage);
  AT_TRY(at_cli_no_more_options(argc, argv, "dump"));
  if (argc != 2 || !stage)
    return AT_FAIL(AT_INVALID_ARGUMENT, "one program is needed\nhint: atoll dump --help");
  at_stage s;
  AT_TRY(stage_of(stage, &s));
  at_bytes program;
  AT_TRY(at_cli_read_file(argv[1], &program));
  at_compile_options options = {.no_cache = true};
  at_status st = at_compile_dump(program, &options, s, &out);
  free((void *)program.ptr);
  return print_and_free(st, &out);
}
