// `atoll profile --tiles`: a program on a machine of tiles.
#include <stdlib.h>

#include "base/cpu.h"
#include "cli/cli.h"
#include "cli/npz.h"
#include "hloproto/hloproto.h"
#include "import/import.h"
#include "mlir/mlir.h"
#include "passes/passes.h"
#include "tiles/lower.h"

// The program in any of its forms, simplified by the passes that all machines
// share; nothing is fused.
static at_status read_module(const char *path, at_arena *a, at_module **out) {
  at_bytes program;
  AT_TRY(at_cli_read_file(path,
                          &program));  // large constants borrow it to the end
  at_str text = {(const char *)program.ptr, program.len};
  if (at_str_starts(text, "hlo module")) {
    AT_TRY(at_hlo_parse(text, a, out));
  } else if (at_hloproto_is(program)) {
    AT_TRY(at_hloproto_read(program, AT_HLOPROTO_UNKNOWN, a, out));
  } else {
    at_mmodule *m;
    AT_TRY(at_mlir_read(program, true, a, &m));
    AT_TRY(at_import(m, a, out));
  }
  // fold_budget: elements of constants that folding may make.
  at_pass_options passes = {.fold_budget = 1 << 22};
  return at_passes_run(*out, &passes, false, NULL, NULL);
}

// What the options ask for; NULL: not wanted.
typedef struct wishes {
  const char *target, *html, *mapping, *tile, *run, *out;
  bool json, lenient, exchange;
} wishes;

// NOT_FOUND: no such machine; FAILED_PRECONDITION: it has no tiles.
static at_status machine_of(const wishes *x, at_tiles_machine *out) {
  const at_machine *machine;
  AT_TRY(at_machine_find(at_str_of(x->target), &machine));
  return at_tiles_machine_read(machine, out);
}

// The program's plan for the machine. --lenient keeps plans that do not fit
// their tiles.
static at_status lower(const char *path, const wishes *x, at_arena *a,
                       at_module **module, const at_tiles_plan **out) {
  at_tiles_machine m;
  at_tiles_lower_options o = {.linear = !strcmp(x->mapping, "linear"),
                              .lenient = x->lenient};
  if (!o.linear && strcmp(x->mapping, "planned"))
    return AT_FAIL(AT_INVALID_ARGUMENT, "--mapping=%s\nhint: planned or linear",
                   x->mapping);
  AT_TRY(machine_of(x, &m));
  AT_TRY(read_module(path, a, module));
  return at_tiles_lower(&m, *module, &o, a, out);
}

// ---- What lies on one tile
// What lies on one tile, by address. Lives are told in steps, of each of which
// the plan knows four phases.
static at_status tell_tile(const at_tiles_plan *p, const char *text,
                           at_arena *a, at_strbuf *b) {
  char *end;
  unsigned long tile = strtoul(text, &end, 10);
  at_tiles_block *x;
  uint32_t n;
  if (!*text || *end || tile > UINT32_MAX)
    return AT_FAIL(AT_INVALID_ARGUMENT, "--tile=%s is no number of a tile",
                   text);
  AT_TRY(at_tiles_plan_tile(p, (uint32_t)tile, a, &x, &n));
  at_strbuf_addf(b, "tile %lu: %lld bytes at the peak", tile,
                 (long long)p->tile_bytes[tile]);
  for (int c = 0; c < AT_TILES_MEM_COUNT; c++)
    if (p->categories[tile][c])
      at_strbuf_addf(b, "%s %s %lld", c ? "," : ":",
                     at_tiles_category_text((at_tiles_category)c),
                     (long long)p->categories[tile][c]);
  at_strbuf_addf(b, "\n%10s %10s  %-13s %-12s %s\n", "address", "bytes",
                 "lives", "category", "of");
  for (uint32_t i = 0; i < n; i++) {
    char lives[64];
    int32_t first = x[i].first < 0 ? 0 : x[i].first / 4;
    if (x[i].last == INT32_MAX)
      snprintf(lives, sizeof lives, "%d..end", first);
    else
      snprintf(lives, sizeof lives, "%d..%d", first, x[i].last / 4);
    at_strbuf_addf(b, "%10lld %10lld  %-13s %-12s %s%s\n", (long long)x[i].at,
                   (long long)x[i].bytes, lives,
                   at_tiles_category_text(x[i].category), x[i].name,
                   x[i].interleaved ? " (interleaved)" : "");
  }
  return AT_OK;
}

// ---- Values
// INVALID_ARGUMENT: too few, too many, or another type or shape than the
// program takes.
static at_status arguments(const at_comp *c, const char *path, at_arena *a,
                           const at_literal ***out) {
  at_npy *arrays = NULL;
  uint32_t count = 0;
  at_bytes file;
  AT_TRY(at_cli_read_file(path, &file));
  at_status st = at_npz_read(file, a, &arrays, &count);
  free((void *)file.ptr);
  AT_TRY(st);
  if (count != c->num_params)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "%s has %u arrays; the program takes %u", path, count,
                   c->num_params);
  AT_TRY_ALLOC(*out, at_new(a, const at_literal *, count + 1));
  for (uint32_t i = 0; i < count; i++) {
    const at_type *t = &c->params[i]->types[0];
    AT_TRY(at_npy_fits(&arrays[i], i, t->dtype, at_type_dims(t)));
    AT_TRY(at_literal_make(a, *t, arrays[i].data, false, true, &(*out)[i]));
  }
  return AT_OK;
}

// Runs the plan, values and all, tile by tile. Results go to --out.
static at_status run_values(const at_tiles_plan *p, const at_module *m,
                            const wishes *x, at_arena *a, at_strbuf *b) {
  const at_comp *c = m->entry;
  const at_literal **args, **results;
  at_npy *arrays;
  at_pool *pool;
  at_tiles_run_counts n;
  AT_TRY(arguments(c, x->run, a, &args));
  AT_TRY_ALLOC(results, at_new(a, const at_literal *, c->num_results + 1));
  AT_TRY_ALLOC(arrays, at_new(a, at_npy, c->num_results + 1));
  AT_TRY(at_pool_create(at_cpu_count(), &pool));
  at_status st = at_tiles_plan_run(p, args, pool, a, results, &n);
  at_pool_destroy(pool);
  AT_TRY(st);
  for (uint32_t i = 0; i < c->num_results; i++)
    arrays[i] = (at_npy){at_arena_printf(a, "out%u", i), results[i]->type.dtype,
                         at_type_dims(&results[i]->type), results[i]->data,
                         results[i]->bytes};
  if (!x->json)
    at_strbuf_addf(b,
                   "ran: %lld cycles, %lld vertices, %lld bytes received, as "
                   "planned, %lld turns of loops\n",
                   (long long)n.cycles, (long long)n.vertices,
                   (long long)n.received_bytes, (long long)n.turns);
  return x->out ? at_npz_write(x->out, arrays, c->num_results) : AT_OK;
}

// ---- The command
// In the order in which it is asked: one tile alone, or everything.
static at_status report(const char *path, const wishes *x, at_arena *a,
                        at_strbuf *b) {
  const at_tiles_plan *p;
  at_module *m;
  AT_TRY(lower(path, x, a, &m, &p));
  if (x->tile) return tell_tile(p, x->tile, a, b);
  if (x->json)
    at_tiles_report_json(p, b), at_strbuf_addc(b, '\n');
  else
    at_tiles_report_text(p, b);
  if (x->run) AT_TRY(run_values(p, m, x, a, b));
  if (!x->html) return AT_OK;
  at_strbuf page = {0};
  at_tiles_report_html(p, path, &page);
  at_status st = at_cli_write_file(x->html, &page);
  at_strbuf_free(&page);
  return st;
}

// The options of `atoll profile`.
static at_status run(int argc, char **argv, at_arena *a) {
  wishes x = {.target = "mk2", .mapping = "planned"};
  bool tiles = at_cli_option(&argc, argv, "--tiles", NULL);
  at_cli_option(&argc, argv, "--target=", &x.target);
  at_cli_option(&argc, argv, "--html=", &x.html);
  at_cli_option(&argc, argv, "--mapping=", &x.mapping);
  at_cli_option(&argc, argv, "--tile=", &x.tile);
  at_cli_option(&argc, argv, "--run=", &x.run);
  at_cli_option(&argc, argv, "--out=", &x.out);
  x.json = at_cli_option(&argc, argv, "--json", NULL);
  x.lenient = at_cli_option(&argc, argv, "--lenient", NULL);
  x.exchange = at_cli_option(&argc, argv, "--exchange", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "profile"));
  bool asked = tiles && argc == (x.exchange ? 1 : 2) && x.target && x.mapping;
  if (!asked)
    return AT_FAIL(
        AT_INVALID_ARGUMENT,
        "--tiles and one program are needed\nhint: atoll profile --help");
  at_tiles_machine m;
  at_strbuf text = {0};
  AT_TRY(machine_of(&x, &m));
  at_status st = x.exchange ? at_tiles_patterns_text(&m, UINT32_MAX, &text)
                            : report(argv[1], &x, a, &text);
  if (at_ok(st)) st = at_strbuf_status(&text);
  if (at_ok(st)) fwrite(text.ptr, 1, text.len, stdout);
  at_strbuf_free(&text);
  return st;
}

at_status at_cli_profile(int argc, char **argv) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("profile");
  at_status st = run(argc, argv, a);
  at_arena_destroy(a);
  return st;
}
