// `atoll dump`: a program at a stage of its compilation, what compiling takes,
// and the tables that the reference pages are made of.
#include <stdlib.h>

#include "base/config.h"
#include "base/json.h"
#include "base/work.h"
#include "cli/cli.h"
#include "compile/compile.h"
#include "hlo/hlo.h"
#include "hloproto/hloproto.h"
#include "import/import.h"
#include "mosaic/mosaic.h"

// Prints b unless st, or b itself, has failed. Frees b and returns the status.
static at_status print_and_free(at_status st, at_strbuf *b) {
  if (at_ok(st)) st = at_strbuf_status(b);
  if (at_ok(st) && b->len) fwrite(b->ptr, 1, b->len, stdout);
  at_strbuf_free(b);
  return st;
}

// Names are in the order of at_stage.
static at_status stage_of(const char *name, at_stage *out) {
  static const char *const names[] = {"mlir",  "hlo",       "optimized",
                                      "steps", "nest",      "llvm",
                                      "asm",   "stablehlo", "xla"};
  for (size_t i = 0; i < AT_LEN(names); i++)
    if (!strcmp(name, names[i])) return *out = (at_stage)i, AT_OK;
  return AT_FAIL(AT_INVALID_ARGUMENT,
                 "no stage '%s'\nhint: mlir, hlo, optimized, steps, nest, "
                 "llvm, asm, stablehlo or xla",
                 name);
}

// What has been added to a count between two looks at it.
static void add_count(at_json_writer *w, const char *name, uint64_t had,
                      uint64_t has) {
  at_json_key(w, at_str_of(name));
  at_json_uint(w, has - had);
}

// What compiling the program took, as a line of JSON.
static at_status count_one(const char *path, at_strbuf *out) {
  at_bytes program;
  at_strbuf steps = {0};
  at_compile_options options = {.no_cache = true};
  AT_TRY(at_cli_read_file(path, &program));
  at_work had = at_work_done();
  at_compile_counts before = at_compile_count();
  at_status st = at_compile_dump(program, &options, AT_STAGE_STEPS, &steps);
  at_work has = at_work_done();
  at_compile_counts after = at_compile_count();
  free((void *)program.ptr);
  at_strbuf_free(&steps);
  at_json_writer w = {.out = out};
  at_json_begin_object(&w);
  if (!at_ok(st)) {
    at_json_key(&w, AT_STR("error"));
    at_json_str(&w, at_str_of(at_status_message(st)));
  }
  add_count(&w, "visits", had.visits, has.visits);
  add_count(&w, "llvm_instructions", before.instructions, after.instructions);
  add_count(&w, "llvm_quick", before.quick, after.quick);
  add_count(&w, "llvm_modules", before.modules, after.modules);
  add_count(&w, "arena_bytes", had.arena_bytes, has.arena_bytes);
  add_count(&w, "blocks", had.blocks, has.blocks);
  at_json_end_object(&w);
  at_strbuf_addc(out, '\n');
  return st;
}

// A line for each program. One that fails has a line with its error, and the
// others follow.
static at_status count_all(int argc, char **argv) {
  at_strbuf out = {0};
  at_status st = AT_OK;
  if (argc < 2)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "a program is needed\nhint: atoll dump --help");
  AT_TRY(at_cli_no_more_options(argc, argv, "dump"));
  for (int i = 1; i < argc; i++) {
    st = at_status_join(st, count_one(argv[i], &out));
    fwrite(out.ptr, 1, out.len, stdout);
    out.len = 0;
  }
  at_strbuf_free(&out);
  return st;
}

// The words that end in -doc print reference tables, which are made of the
// code's own; the rest is about one program.
at_status at_cli_dump(int argc, char **argv) {
  at_strbuf out = {0};
  if (at_cli_option(&argc, argv, "--ops-doc", NULL))
    return print_and_free(at_hlo_ops_doc(&out), &out);
  if (at_cli_option(&argc, argv, "--import-doc", NULL))
    return print_and_free(at_import_ops_doc(&out), &out);
  if (at_cli_option(&argc, argv, "--hlo-doc", NULL))
    return print_and_free(at_hloproto_ops_doc(&out), &out);
  if (at_cli_option(&argc, argv, "--flags-doc", NULL)) {
    at_config_doc(&out);
    return print_and_free(AT_OK, &out);
  }
  if (at_cli_option(&argc, argv, "--mosaic-doc", NULL))
    return print_and_free(at_mosaic_ops_doc(&out), &out);
  if (at_cli_option(&argc, argv, "--mosaic", NULL))
    return at_cli_dump_mosaic(argc, argv);
  if (at_cli_option(&argc, argv, "--counts", NULL))
    return count_all(argc, argv);
  const char *stage = "optimized";
  at_cli_option(&argc, argv, "--stage=", &stage);
  AT_TRY(at_cli_no_more_options(argc, argv, "dump"));
  if (argc != 2 || !stage)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "one program is needed\nhint: atoll dump --help");
  at_stage s;
  AT_TRY(stage_of(stage, &s));
  at_bytes program;
  AT_TRY(at_cli_read_file(argv[1], &program));
  at_compile_options options = {.no_cache = true};
  at_status st = at_compile_dump(program, &options, s, &out);
  free((void *)program.ptr);
  return print_and_free(st, &out);
}
