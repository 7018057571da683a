// `atoll cost`: tables and models of the cost room, by hand.
#include <stdlib.h>

#include "base/config.h"
#include "base/size_text.h"
#include "cli/cli.h"
#include "compile/compile.h"
#include "cost/cost.h"
#include "estimate/estimate.h"
#include "schedule/overlap.h"

// INVALID_ARGUMENT with where the usage is.
static at_status misuse(const char *what) {
  return AT_FAIL(AT_INVALID_ARGUMENT, "%s\nhint: atoll cost --help", what);
}

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && strcmp(s + n - m, end) == 0;
}

// A table in either form, by what its first bytes say.
static at_status read_table(const char *path, double clock, at_arena *a,
                            at_perf_table **out, size_t *count) {
  at_bytes file;
  AT_TRY(at_cli_read_file(path, &file));
  uint8_t *text = at_arena_copy(a, file.ptr, file.len, 1);
  size_t len = file.len;
  free((void *)file.ptr);
  if (!text) return AT_NO_MEMORY("performance table");
  bool own = len >= 10 && memcmp(text, "atoll-perf", 10) == 0;
  at_status st =
      own ? at_perf_read((at_bytes){text, len}, a, out, count)
          : at_perf_read_pbtxt((at_bytes){text, len}, clock, a, out, count);
  return at_status_prefix(st, "%s", path);
}

// What is odd about the tables goes to stderr; they are used all the same.
static void warn(const at_perf_table *t, size_t count) {
  at_strbuf b = {0};
  for (size_t i = 0; i < count; i++) at_perf_warn(&t[i], &b);
  if (b.len) fprintf(stderr, "%s", b.ptr);
  at_strbuf_free(&b);
}

// Digits with K, M or G for powers of 1024. INVALID_ARGUMENT: anything else, or
// too large.
static at_status parse_count(const char *text, int64_t *out) {
  char *end;
  long long v = strtoll(text, &end, 10);
  int64_t unit = *end == 'K'   ? 1 << 10
                 : *end == 'M' ? 1 << 20
                 : *end == 'G' ? 1 << 30
                               : 1;
  if (unit > 1) end++;
  if (end == text || *end || v < 0 ||
      __builtin_mul_overflow((int64_t)v, unit, out))
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "\"%.32s\" is not a size (digits, then K, M or G)", text);
  return AT_OK;
}

// By the name that HLO's text has; AT_INVALID: none.
static at_dtype parse_type(const char *text) {
  for (int t = AT_INVALID + 1; t < AT_DTYPE_COUNT; t++)
    if (strcmp(text, at_dtype_of((at_dtype)t)->text) == 0) return (at_dtype)t;
  return AT_INVALID;
}

// In the unit that reads best, with where the figure comes from.
static void print_time(at_cost_time t) {
  const char *unit = t.seconds < 1e-3 ? "us" : t.seconds < 1 ? "ms" : "s";
  double scale = t.seconds < 1e-3 ? 1e6 : t.seconds < 1 ? 1e3 : 1;
  printf("%.3f %s (%s)\n", t.seconds * scale, unit,
         at_cost_source_text(t.source));
}

// ---- lookup ----
// The machine of --target, with a table of the user's in the place of the
// built-in one. NOT_FOUND: that table is of other machines.
static at_status target_of(int *argc, char **argv, at_arena *a,
                           at_target **out) {
  const char *target = NULL, *interp = "atoll", *perf = NULL;
  at_interp mode;
  at_cli_option(argc, argv, "--target=", &target);
  at_cli_option(argc, argv, "--interp=", &interp);
  at_cli_option(argc, argv, "--table=", &perf);
  if (!target) return misuse("--target is needed, as in --target=H100:8");
  if (!interp || !at_interp_parse(at_str_of(interp), &mode))
    return misuse("--interp is seed, xla or atoll");
  AT_TRY(at_target_parse(at_str_of(target), mode, a, out));
  if (!perf) return AT_OK;
  at_perf_table *t;
  size_t n;
  AT_TRY(read_table(perf, at_machine_number((*out)->machine, "clock_hz", 0), a,
                    &t, &n));
  if (!n) return AT_FAIL(AT_INVALID_ARGUMENT, "%s holds no table", perf);
  at_figure key;
  const at_perf_table *mine = NULL;
  if (at_machine_figure((*out)->machine, "perf_table", &key) && key.text.len)
    mine = at_perf_find(t, n, key.text.ptr);
  if (!mine) mine = at_perf_find(t, n, (*out)->machine->name);
  if (!mine && n == 1) mine = t;
  if (!mine)
    return AT_FAIL(AT_NOT_FOUND, "%s has no table of %s", perf,
                   (*out)->machine->name);
  warn(mine, 1);
  at_perf *p;
  AT_TRY(at_perf_prepare(mine, mode, true, a, &p));
  (*out)->user = p;
  return AT_OK;
}

// Batch and sides may have K, M or G behind them.
static at_status lookup_gemm(const at_target *t, int argc, char **argv) {
  // gemm TYPE b m n k
  if (argc != 6) return misuse("gemm TYPE b m n k");
  at_dtype type = parse_type(argv[1]);
  if (type == AT_INVALID) return misuse("unknown element type");
  at_gemm g = {type, type, type, 0, 0, 0, 0};
  int64_t *const to[] = {&g.b, &g.m, &g.n, &g.k};
  for (int i = 0; i < 4; i++) AT_TRY(parse_count(argv[2 + i], to[i]));
  at_cost_time time;
  AT_TRY(at_cost_gemm(t, &g, &time));
  print_time(time);
  return AT_OK;
}

// Without groups all devices of the target are one. Pairs are made for a
// permute; other collectives ignore them.
static at_status lookup_collective(const at_target *t, int argc, char **argv) {
  // OP TYPE BYTES [GROUPSxDEVICES]; a permute shifts by one around each group.
  at_collective c = {0};
  if (argc < 3 || argc > 4 || !at_collective_parse(at_str_of(argv[0]), &c.op))
    return misuse("OP TYPE BYTES [GROUPSxDEVICES]");
  c.dtype = parse_type(argv[1]);
  if (c.dtype == AT_INVALID) return misuse("unknown element type");
  AT_TRY(parse_count(argv[2], &c.bytes));
  char *end = "";
  unsigned long count = 1, each = t->num_devices;
  if (argc == 4) {
    count = strtoul(argv[3], &end, 10);
    each = *end == 'x' ? strtoul(end + 1, &end, 10) : 0;
  }
  if (*end || !count || !each || at_mul(count, each) > 65536)
    return misuse("groups are GROUPSxDEVICES, as in 2x8");
  c.groups = (at_groups){(uint32_t)count, (uint32_t)each, NULL};
  uint32_t n = c.groups.count * c.groups.size, size = c.groups.size;
  uint32_t(*pairs)[2] = calloc(n, sizeof *pairs);
  if (!pairs) return AT_NO_MEMORY("device pairs");
  for (uint32_t i = 0; i < n; i++)
    pairs[i][0] = i, pairs[i][1] = i - i % size + (i + 1) % size;
  c.pairs = (const uint32_t(*)[2])pairs, c.num_pairs = n;
  at_cost_time time;
  at_status st = at_cost_collective(t, &c, &time);
  if (at_ok(st)) print_time(time);
  free(pairs);
  return st;
}

// One question for one target.
static at_status lookup(int argc, char **argv, at_arena *a) {
  at_target *t;
  AT_TRY(target_of(&argc, argv, a, &t));
  AT_TRY(at_cli_no_more_options(argc, argv, "cost"));
  if (argc < 2)
    return misuse("a question is needed: gemm ..., or a collective");
  return strcmp(argv[1], "gemm") ? lookup_collective(t, argc - 1, argv + 1)
                                 : lookup_gemm(t, argc - 1, argv + 1);
}

// ---- evaluate ----
static void write_point(void *user, const char *what, at_interp mode,
                        const char *machine, double given, double predicted) {
  at_strbuf_addf(user, "%s\t%s\t%s\t%.6g\t%.6g\n", what, at_interp_text(mode),
                 machine, given, predicted);
}

// Leaves each measured point out of its table and asks the model for it; the
// errors, by mode.
static at_status evaluate(int argc, char **argv, at_arena *a) {
  const char *path = NULL, *points = NULL;
  at_strbuf seen = {0};
  at_cli_option(&argc, argv, "--table=", &path);
  at_cli_option(&argc, argv, "--points=", &points);
  AT_TRY(at_cli_no_more_options(argc, argv, "cost"));
  const at_perf_table *tables, *chosen[64];
  size_t count, n = 0;
  if (path) {
    at_perf_table *mine;
    AT_TRY(read_table(path, 0, a, &mine, &count));
    tables = mine;
  } else {
    AT_TRY(at_perf_builtin(&tables, &count));
  }
  for (size_t i = 0; i < count && n < AT_LEN(chosen); i++) {
    bool wanted = argc < 2 && tables[i].count > 0;
    for (int k = 1; k < argc; k++)
      wanted |= strcmp(argv[k], tables[i].machine) == 0;
    if (wanted) chosen[n++] = &tables[i];
  }
  if (!n)
    return AT_FAIL(
        AT_NOT_FOUND,
        "no such table\nhint: atoll cost evaluate sm_90 sm_100_B200");
  at_perf_error *rows;
  size_t num;
  AT_TRY(at_perf_evaluate(chosen, n, points ? write_point : NULL, &seen, a,
                          &rows, &num));
  at_status st = points ? at_cli_write_file(points, &seen) : AT_OK;
  at_strbuf_free(&seen);
  AT_TRY(st);
  printf("%-26s %-6s %6s %8s %8s %8s %10s\n", "experiment", "mode", "points",
         "median", "p90", "worst", "within 10%");
  for (size_t i = 0; i < num; i++)
    printf("%-26s %-6s %6zu %7.1f%% %7.1f%% %7.1f%% %10zu\n", rows[i].what,
           at_interp_text(rows[i].mode), rows[i].count, rows[i].median * 100,
           rows[i].p90 * 100, rows[i].worst * 100, rows[i].within);
  return AT_OK;
}

// ---- convert ----
// The form that is written follows the name of the file. XLA's form has the
// products with --gemm, and all the others without it.
static at_status convert(int argc, char **argv, at_arena *a) {
  bool gemm = at_cli_option(&argc, argv, "--gemm", NULL);
  const char *clock = NULL;
  at_cli_option(&argc, argv, "--clock-ghz=", &clock);
  AT_TRY(at_cli_no_more_options(argc, argv, "cost"));
  if (argc != 3) return misuse("cost convert IN OUT");
  at_perf_table *t;
  size_t n;
  at_strbuf b = {0};
  AT_TRY(read_table(argv[1], clock ? strtod(clock, NULL) * 1e9 : 0, a, &t, &n));
  warn(t, n);
  at_status st = ends_with(argv[2], "pbtxt") || ends_with(argv[2], "txtpb")
                     ? at_perf_write_pbtxt(t, n, gemm, &b)
                     : at_perf_write(t, n, &b);
  FILE *f = at_ok(st) ? fopen(argv[2], "wb") : NULL;
  if (at_ok(st) && !f) st = AT_FAIL(AT_NOT_FOUND, "cannot write %s", argv[2]);
  bool written = f && fwrite(b.ptr ? b.ptr : "", 1, b.len, f) == b.len;
  if (f && fclose(f) != 0) written = false;
  if (f && !written) st = AT_FAIL(AT_DATA_LOSS, "cannot write %s", argv[2]);
  at_strbuf_free(&b);
  return st;
}

// ---- schedule ----
// The program as it would run on this host, or without anything hidden.
static at_status optimized(at_bytes program, bool hide, at_arena *a,
                           at_module **out) {
  at_compile_options compile = {.no_cache = true, .placements = true};
  AT_TRY(at_config_set(AT_CONFIG_LATENCY_HIDING, hide ? "on" : "off"));
  return at_compile_module(program, &compile, NULL, NULL, a, out);
}

// A TPU runs the program that `atoll estimate` is about; others what this host
// would run.
static at_status modules(at_bytes program, at_target *t, at_arena *a,
                         at_module **given, at_module **hidden) {
  if (t->tpu) {
    AT_TRY(at_estimate_module(program, t, a, given));
    *hidden = *given;
    return AT_OK;
  }
  AT_TRY(optimized(program, false, a, given));
  return optimized(program, true, a, hidden);
}

// The schedule as a trace; NOT_FOUND also where the disk is full.
static at_status write_trace(const at_module *m, const at_target *t,
                             const at_lhs_options *o, const char *path,
                             at_arena *a) {
  at_strbuf b = {0};
  at_status st = at_overlap_trace(m, t, o, a, &b);
  FILE *f = at_ok(st) ? fopen(path, "wb") : NULL;
  bool good = f && fwrite(b.ptr, 1, b.len, f) == b.len;
  if (f && fclose(f)) good = false;
  at_strbuf_free(&b);
  return at_ok(st) && !good ? AT_FAIL(AT_NOT_FOUND, "cannot write %s", path)
                            : st;
}

// Compares the program's schedule without and with collectives hidden, under a
// limit of memory.
static at_status schedule(int argc, char **argv, at_arena *a) {
  const char *limit = NULL, *trace = NULL, *costs = NULL;
  at_target *t;
  at_cli_option(&argc, argv, "--memory=", &limit);
  at_cli_option(&argc, argv, "--trace=", &trace);
  at_cli_option(&argc, argv, "--costs=", &costs);
  AT_TRY(target_of(&argc, argv, a, &t));
  at_lhs_options options = at_overlap_options(t);
  if (costs) AT_TRY(at_cost_profile_open(costs, a, &t->profile));
  AT_TRY(at_cli_no_more_options(argc, argv, "cost"));
  if (argc != 2) return misuse("cost schedule --target=T PROGRAM");
  if (limit) AT_TRY(parse_count(limit, &options.memory_limit));
  at_bytes program;
  AT_TRY(at_cli_read_file(argv[1], &program));
  at_module *given, *hidden;
  at_overlap plain, o;
  at_status st = modules(program, t, a, &given, &hidden);
  if (at_ok(st)) st = at_overlap_of(given, t, &(at_lhs_options){0}, a, &plain);
  if (at_ok(st)) st = at_overlap_of(hidden, t, &options, a, &o);
  if (at_ok(st) && trace) st = write_trace(hidden, t, &options, trace, a);
  free((void *)program.ptr);  // large constants borrowed it
  if (!at_ok(st)) return st;
  char size[AT_SIZE_TEXT];
  printf("memory limit %s\n", at_size_text((double)options.memory_limit, size));
  const at_lhs_stats *rows[] = {&plain.before, &o.after};
  if (o.host_copies)
    printf("%u copies between device and host\n", o.host_copies);
  printf("%u collectives\n%-12s %12s %12s %14s %20s\n", o.collectives, "",
         "time us", "exposed us", "peak", "pairs with work");
  for (int i = 0; i < 2; i++)
    printf("%-12s %12.1f %12.1f %14s %20u\n", i ? "scheduled" : "as given",
           rows[i]->seconds * 1e6, rows[i]->exposed * 1e6,
           at_size_text((double)rows[i]->peak, size), rows[i]->pairs);
  return AT_OK;
}

// ---- machines ----
// All machines, or all figures of one with their sources.
static at_status machines(int argc, char **argv) {
  AT_TRY(at_cli_no_more_options(argc, argv, "cost"));
  if (argc < 2) {
    for (size_t i = 0; i < at_machine_count(); i++)
      printf("%-6s %s\n", at_machine_at(i)->name, at_machine_at(i)->platform);
    return AT_OK;
  }
  const at_machine *m;
  AT_TRY(at_machine_find(at_str_of(argv[1]), &m));
  for (size_t i = 0; i < m->tree->len; i++) {
    char name[64];
    at_figure f;
    snprintf(name, sizeof name, "%.*s", (int)m->tree->keys[i].len,
             m->tree->keys[i].ptr);
    if (m->tree->items[i].kind != AT_JSON_OBJECT ||
        !at_machine_figure(m, name, &f))
      continue;
    if (f.text.len)
      printf("%-40s %-16.*s", name, (int)f.text.len, f.text.ptr);
    else
      printf("%-40s %-16.10g", name, f.value);
    printf(" %.*s\n", (int)f.source.len, f.source.ptr);
  }
  return AT_OK;
}

// Each word is a function; the arena is for all of them.
at_status at_cli_cost(int argc, char **argv) {
  const char *verb = argc > 1 ? argv[1] : "";
  at_arena *a = at_arena_create();
  if (!a) return AT_NO_MEMORY("cost");
  at_status st;
  if (!strcmp(verb, "lookup"))
    st = lookup(argc - 1, argv + 1, a);
  else if (!strcmp(verb, "evaluate"))
    st = evaluate(argc - 1, argv + 1, a);
  else if (!strcmp(verb, "convert"))
    st = convert(argc - 1, argv + 1, a);
  else if (!strcmp(verb, "collect"))
    st = at_cli_collect(argc - 1, argv + 1);
  else if (!strcmp(verb, "schedule"))
    st = schedule(argc - 1, argv + 1, a);
  else if (!strcmp(verb, "machines"))
    st = machines(argc - 1, argv + 1);
  else
    st = misuse(
        "what? lookup, evaluate, convert, collect, schedule or machines");
  at_arena_destroy(a);
  return st;
}
