// `atoll estimate`: what a program would take on a machine, as text, JSON, a
// page or a timeline.
#include "estimate/estimate.h"

#include <stdlib.h>

#include "cli/cli.h"
#include "compile/compile.h"
#include "compile/describe.h"
#include "schedule/schedule.h"

// What the user wants of the estimate; NULL: not wanted.
typedef struct outputs {
  const char *html, *trace, *xplane;
  bool json;
  uint32_t rows;
} outputs;

// A number from 0 to 2^20. `option` has the '=' behind it.
static at_status count_of(const char *text, const char *option, int64_t *out) {
  char *end;
  long long v = strtoll(text, &end, 10);
  if (*end || end == text || v < 0 || v > 1 << 20)
    return AT_FAIL(AT_INVALID_ARGUMENT, "%s%s: a number from 0 is needed",
                   option, text);
  *out = v;
  return AT_OK;
}

// An input that shares memory with an output lies where that lies.
static bool address_of(void *user, at_value v, uint64_t *out) {
  const at_plan *plan = user;
  uint32_t at = at_plan_slot(plan, v);
  if (at >= plan->num_slots) return false;
  const at_xslot *s = &plan->slots[at];
  const at_io_info *info = v.node->parent->module->params;
  uint64_t kind = s->kind, index = s->index;
  if (kind == AT_SLOT_NULL) return false;
  if (kind == AT_SLOT_INPUT && info && info[index].alias >= 0)
    kind = AT_SLOT_OUTPUT, index = (uint64_t)info[index].alias;
  // Temporaries are all in one block, by their offsets.
  if (kind == AT_SLOT_TEMP) index = 0;
  *out = kind << 60 | index << 44 | s->offset;
  return true;
}

// The ops that a profile of the program lists, with FLOPs and bytes.
static at_status count_here(at_bytes program, at_arena *a, at_estimate *e) {
  at_compile_options compile = {.no_cache = true, .dump_dir = ""};
  at_described d;
  at_estimate_here *here;
  AT_TRY(at_compile_describe(program, &compile, 0, a, &d));
  AT_TRY_ALLOC(here, at_new(a, at_estimate_here, (size_t)d.num_ops + 1));
  for (uint32_t i = 0; i < d.num_ops; i++)
    here[i] = (at_estimate_here){
        .name = d.ops[i].name,
        .flops = d.ops[i].flops,
        .transcendentals = d.ops[i].transcendentals,
        .bytes_accessed = d.ops[i].bytes_read + d.ops[i].bytes_written};
  e->here = here;
  e->num_here = d.num_ops;
  return at_compile_costs(program, &compile, a, &e->here_all);
}

// For `host` the program is compiled and planned first, as its time depends on
// that. *out and the program's bytes live until the process ends.
static at_status estimate_file(const char *path, const at_estimate_options *o,
                               bool counts, at_arena *a, at_estimate **out) {
  at_bytes program;
  at_estimate_options with = *o;
  at_status st = AT_OK;
  AT_TRY(at_cli_read_file(path, &program));
  if (at_str_starts(at_str_of(o->target), "host")) {
    at_compile_options compile = {.no_cache = true};
    at_plan *plan = at_new(a, at_plan, 1);
    if (!plan) return AT_NO_MEMORY("estimate");
    st = at_compile_module(program, &compile, plan, NULL, a, &with.planned);
    with.address = address_of, with.address_user = plan;
  }
  if (at_ok(st)) st = at_estimate_run(program, &with, a, out);
  if (at_ok(st) && counts) st = count_here(program, a, *out);
  // The module borrows the bytes of large constants; they end with the process.
  return st.err ? at_status_prefix(st, "%s", path) : st;
}

// Text or JSON to stdout, the other forms to their files.
static at_status report(const at_estimate *e, const at_estimate *other,
                        const outputs *o) {
  at_strbuf text = {0}, page = {0}, trace = {0}, xplane = {0};
  at_status st = AT_OK;
  if (o->json)
    at_estimate_json(e, &text);
  else if (other)
    at_estimate_compare(e, other, o->rows, &text);
  else
    at_estimate_text(e, o->rows, &text);
  if (o->json) at_strbuf_addc(&text, '\n');
  if (at_ok(st)) st = at_strbuf_status(&text);
  if (at_ok(st)) fwrite(text.ptr, 1, text.len, stdout);
  if (at_ok(st) && o->html) {
    at_estimate_html(e, other, &page);
    st = at_cli_write_file(o->html, &page);
  }
  if (at_ok(st) && o->trace) {
    at_estimate_trace(e, &trace);
    st = at_cli_write_file(o->trace, &trace);
  }
  if (at_ok(st) && o->xplane) {
    st = at_estimate_xspace(e, &xplane);
    if (at_ok(st)) st = at_cli_write_file(o->xplane, &xplane);
  }
  at_strbuf_free(&text);
  at_strbuf_free(&page);
  at_strbuf_free(&trace);
  at_strbuf_free(&xplane);
  return st;
}

// `--compare` names another target for the same program, or another program.
static at_status second(const char *compare, const char *path,
                        at_estimate_options o, at_arena *a, at_estimate **out) {
  FILE *f = fopen(compare, "rb");
  if (f) {
    fclose(f);
    return estimate_file(compare, &o, false, a, out);
  }
  o.target = compare;
  return estimate_file(path, &o, false, a, out);
}

// A file, or the text itself.
static at_status lookups_of(const char *text, at_arena *a,
                            const at_est_ids_spec **out) {
  at_bytes bytes = {(const uint8_t *)text, strlen(text)};
  FILE *f = fopen(text, "rb");
  if (f) {
    fclose(f);
    AT_TRY(at_cli_read_file(text, &bytes));
  }
  return at_estimate_lookups(bytes, a, out);
}

// The options of `atoll estimate`; everything is in the arena.
static at_status run(int argc, char **argv, at_arena *a) {
  at_estimate_options o = {.target = "v6e", .mode = AT_INTERP_ATOLL};
  outputs to = {.rows = 30};
  const char *costs = NULL, *interp = NULL, *compare = NULL, *rows = NULL,
             *parts = NULL, *lookups = NULL;
  at_cli_option(&argc, argv, "--target=", &o.target);
  at_cli_option(&argc, argv, "--interp=", &interp);
  at_cli_option(&argc, argv, "--compare=", &compare);
  at_cli_option(&argc, argv, "--html=", &to.html);
  at_cli_option(&argc, argv, "--trace=", &to.trace);
  at_cli_option(&argc, argv, "--xplane=", &to.xplane);
  at_cli_option(&argc, argv, "--rows=", &rows);
  at_cli_option(&argc, argv, "--costs=", &costs);
  at_cli_option(&argc, argv, "--partitions=", &parts);
  at_cli_option(&argc, argv, "--lookups=", &lookups);
  to.json = at_cli_option(&argc, argv, "--json", NULL);
  bool counts = at_cli_option(&argc, argv, "--counts", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "estimate"));
  if (argc != 2)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "one program is needed\nhint: atoll estimate --help");
  if (interp && !at_interp_parse(at_str_of(interp), &o.mode))
    return AT_FAIL(AT_INVALID_ARGUMENT, "--interp=%s\nhint: seed, xla or atoll",
                   interp);
  int64_t n = to.rows;
  if (rows) AT_TRY(count_of(rows, "--rows=", &n));
  to.rows = (uint32_t)n;
  if (parts) AT_TRY(count_of(parts, "--partitions=", &o.num_partitions));
  if (costs) AT_TRY(at_cost_profile_open(costs, a, &o.profile));
  if (lookups) AT_TRY(lookups_of(lookups, a, &o.lookups));
  at_estimate *e, *other = NULL;
  AT_TRY(estimate_file(argv[1], &o, counts, a, &e));
  if (compare) AT_TRY(second(compare, argv[1], o, a, &other));
  return report(e, other, &to);
}

// The arena holds all that is read and made, until the report is out.
at_status at_cli_estimate(int argc, char **argv) {
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("estimate");
  at_status st = run(argc, argv, a);
  at_arena_destroy(a);
  return st;
}
