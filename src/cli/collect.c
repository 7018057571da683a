// `atoll cost collect`: times products and collectives of this machine and
// writes a performance table. Every point is saved as soon as it is known;
// points that the file has are not measured again.
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "cli/cli.h"
#include "compile/compile.h"
#include "cost/cost.h"
#include "exec/exec.h"

enum { kSizes = 22, kMostSeries = 64, kMostPoints = 512, kMostRuns = 25 };

typedef struct collector {
  at_arena *arena;
  at_runtime *runtime;
  const char *path;
  at_perf_table table;
  double seconds;      // spent on one point at most, once warm
  double share;        // 0: elapsed time counts; else CPU time, over so many
  int64_t most_bytes;  // of all buffers of one program
  uint32_t measured, skipped, known;
} collector;

// ---- One measurement ----
typedef struct arguments {
  at_buffer *list[16], *results[16];
  uint32_t count, devices;
} arguments;

static void release(at_buffer **list, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (list[i]) at_buffer_release(list[i]), list[i] = NULL;
}

static at_status fill(at_chip *chip, at_dtype type, at_dims dims,
                      at_buffer **out) {
  AT_TRY(at_buffer_create(chip, AT_MEM_DEVICE, type, dims, out));
  memset(at_buffer_data_mut(*out), 0, at_buffer_bytes(*out));
  at_buffer_define(*out, AT_OK);
  return AT_OK;
}

static at_status launch(const collector *c, at_loaded *program, arguments *x) {
  at_chip *chips[16];
  static const bool keep[4] = {true, true, true, true};
  for (uint32_t d = 0; d < x->devices; d++)
    chips[d] = at_runtime_chip(c->runtime, d);
  at_launch l = {.chip = chips[0],
                 .chips = chips,
                 .num_chips = x->devices > 1 ? x->devices : 0,
                 .args = x->list,
                 .num_args = x->count / x->devices,
                 .not_donatable = keep};
  at_event *done;
  release(x->results, x->devices);
  AT_TRY(at_loaded_execute(program, &l, x->results, &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  return st;
}

static int ascending(const void *x, const void *y) {
  double a = *(const double *)x, b = *(const double *)y;
  return (a > b) - (a < b);
}

// Median of runs after two that warm up; at least three, as many as fit the
// time. Where one run takes all of it, one warms up and two count. CPU time,
// shared by the threads, is what a quiet machine would take: a product keeps
// all of them busy.
static double now(const collector *c) {
  struct timespec t;
  if (c->share <= 0) return (double)at_clock_ns() * 1e-9;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return ((double)t.tv_sec + (double)t.tv_nsec * 1e-9) / c->share;
}

static at_status time_program(const collector *c, at_loaded *program,
                              arguments *x, double *out) {
  double runs[kMostRuns], spent = 0;
  int n = 0;
  bool slow = false;
  for (int i = 0; i < 2 && !slow; i++) {
    double from = now(c);
    AT_TRY(launch(c, program, x));
    slow = now(c) - from > c->seconds;
  }
  while (n < (slow ? 2 : 3) || (n < kMostRuns && spent < c->seconds)) {
    double from = now(c);
    AT_TRY(launch(c, program, x));
    spent += runs[n] = now(c) - from;
    n++;
  }
  qsort(runs, (size_t)n, sizeof *runs, ascending);
  *out = c->share > 0 ? runs[0] : runs[n / 2];
  return AT_OK;
}

static at_status measure(const collector *c, const char *text, uint32_t devices,
                         const at_type *types, uint32_t num, double *out) {
  at_compile_options options = {.no_cache = true};
  at_bytes executable;
  at_loaded *program = NULL;
  arguments x = {.devices = devices};
  AT_TRY(at_compile((at_bytes){(const uint8_t *)text, strlen(text)}, &options,
                    &executable));
  at_status st = at_loaded_create(c->runtime, executable, &program);
  free((void *)executable.ptr);
  for (uint32_t d = 0; d < devices && at_ok(st); d++)
    for (uint32_t i = 0; i < num && at_ok(st); i++)
      st = fill(at_runtime_chip(c->runtime, d), types[i].dtype,
                at_type_dims(&types[i]), &x.list[x.count++]);
  if (at_ok(st)) st = time_program(c, program, &x, out);
  release(x.list, 16);
  release(x.results, 16);
  if (program) at_loaded_release(program);
  return st;
}

// ---- The table ----
static at_status save(const collector *c) {
  at_strbuf b = {0};
  char *temporary = at_arena_printf(c->arena, "%s.new", c->path);
  at_perf_table t = c->table;  // without series that have no point yet
  AT_TRY_ALLOC(t.series, at_new(c->arena, at_perf_series, kMostSeries));
  t.count = 0;
  for (size_t i = 0; i < c->table.count; i++)
    if (c->table.series[i].count) t.series[t.count++] = c->table.series[i];
  at_status st = temporary ? at_perf_write(&t, 1, &b) : AT_NO_MEMORY("path");
  FILE *f = at_ok(st) ? fopen(temporary, "wb") : NULL;
  bool good = f && fwrite(b.ptr, 1, b.len, f) == b.len;
  if (f && fclose(f)) good = false;
  at_strbuf_free(&b);
  if (at_ok(st) && (!good || rename(temporary, c->path)))
    st = AT_FAIL(AT_DATA_LOSS, "cannot write %s", c->path);
  return st;
}

static at_perf_series *series_of(collector *c, const at_perf_series *key) {
  for (size_t i = 0; i < c->table.count; i++) {
    at_perf_series *s = &c->table.series[i];
    if (s->is_gemm != key->is_gemm) continue;
    bool same = s->is_gemm ? s->lhs == key->lhs && s->rhs == key->rhs &&
                                 s->out == key->out
                           : s->key.op == key->key.op &&
                                 s->key.groups.size == key->key.groups.size &&
                                 s->key.num_pairs == key->key.num_pairs;
    if (same) return s;
  }
  if (c->table.count == kMostSeries) return NULL;
  at_perf_series *s = &c->table.series[c->table.count];
  *s = *key;
  s->points = at_new(c->arena, at_point, kMostPoints);
  s->count = 0;
  if (s->points) c->table.count++;
  return s->points ? s : NULL;
}

static bool is_known(const at_perf_series *s, const int64_t *at) {
  for (size_t i = 0; i < s->count; i++)
    if (memcmp(s->points[i].at, at, sizeof s->points[i].at) == 0) return true;
  return false;
}

static at_status add(collector *c, at_perf_series *s, const at_point *p,
                     const char *what, double seconds) {
  if (s->count == kMostPoints)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "a series is full");
  s->points[s->count++] = *p;
  c->measured++;
  fprintf(stderr, "%s: %.3f us\n", what, seconds * 1e6);
  return save(c);
}

// ---- Products ----
static at_status collect_gemm(collector *c, const at_gemm *g) {
  at_perf_series key = {
      .is_gemm = true, .lhs = g->lhs, .rhs = g->rhs, .out = g->out};
  at_perf_series *s = series_of(c, &key);
  at_point p = {.at = {g->b, g->m, g->k, g->n}};
  if (!s) return AT_NO_MEMORY("series");
  if (is_known(s, p.at)) return c->known++, AT_OK;
  int64_t l[3] = {g->b, g->m, g->k}, r[3] = {g->b, g->k, g->n};
  at_type types[2] = {{.dtype = g->lhs, .rank = 3, .dims = l},
                      {.dtype = g->rhs, .rank = 3, .dims = r}};
  const char *lt = at_dtype_of(g->lhs)->text, *rt = at_dtype_of(g->rhs)->text,
             *ot = at_dtype_of(g->out)->text;
  char *text = at_arena_printf(
      c->arena,
      "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (%%0: "
      "%s[%lld,%lld,%lld], %%1: "
      "%s[%lld,%lld,%lld]) -> (%s[%lld,%lld,%lld]) {\n  %%2 = dot_general %%0, "
      "%%1 "
      "{lhs_batching_dimensions=[0], rhs_batching_dimensions=[0], "
      "lhs_contracting_dimensions=[2], "
      "rhs_contracting_dimensions=[1]} : %s[%lld,%lld,%lld]\n  return "
      "%%2\n}\n}\n",
      lt, (long long)l[0], (long long)l[1], (long long)l[2], rt,
      (long long)r[0], (long long)r[1], (long long)r[2], ot, (long long)g->b,
      (long long)g->m, (long long)g->n, ot, (long long)g->b, (long long)g->m,
      (long long)g->n);
  double seconds;
  if (!text) return AT_NO_MEMORY("program");
  AT_TRY(measure(c, text, 1, types, 2, &seconds));
  p.value = (double)(int64_t)(2.0 * (double)g->b * (double)g->m * (double)g->n *
                              (double)g->k / seconds);
  return add(c, s, &p,
             at_arena_printf(c->arena, "gemm %s %s %s %lld %lld %lld %lld", lt,
                             rt, ot, (long long)g->b, (long long)g->m,
                             (long long)g->n, (long long)g->k),
             seconds);
}

static at_status collect_gemms(collector *c) {
  static const at_dtype types[2] = {AT_BF16, AT_F32};
  // Small ones first, so that an interrupted run has all types.
  for (int sum = 0; sum <= 14; sum++)
    for (int code = 0; code < 3 * 125 * 8; code++) {
      int b = code % 3, m = code / 3 % 5, n = code / 15 % 5, k = code / 75 % 5,
          t = code / 375;
      if (b + m + n + k != sum) continue;
      at_gemm g = {types[t & 1], types[t >> 1 & 1], types[t >> 2], 1 << b,
                   256 << m,     256 << n,          256 << k};
      AT_TRY(collect_gemm(c, &g));
    }
  return AT_OK;
}

// ---- Collectives ----
static at_status collective_text(collector *c, at_collective_op op, uint32_t n,
                                 int64_t elements, int64_t *argument,
                                 const char **out) {
  at_strbuf b = {0};
  int64_t result = op == AT_REDUCE_SCATTER ? elements / n : elements;
  *argument = op == AT_ALL_GATHER ? elements / n : elements;
  at_strbuf_addf(&b,
                 "hlo module \"m\" replicas=%u entry=\"main\" {\nfunc \"main\" "
                 "(%%0: f32[%lld]) -> "
                 "(f32[%lld]) {\n  %%1 = ",
                 n, (long long)*argument, (long long)result);
  static const char *const names[] = {"all_reduce", "all_gather",
                                      "reduce_scatter", "all_to_all",
                                      "collective_permute"};
  at_strbuf_addf(&b, "%s %%0 {", names[op]);
  at_strbuf_addz(
      &b, op == AT_PERMUTE ? "source_target_pairs=[" : "replica_groups=[[");
  for (uint32_t i = 0; i < n; i++)
    at_strbuf_addf(&b, op == AT_PERMUTE ? "%s[%u,%u]" : "%s%u", i ? "," : "", i,
                   (i + 1) % n);
  at_strbuf_addz(&b, op == AT_PERMUTE ? "]" : "]]");
  if (op == AT_ALL_GATHER) at_strbuf_addz(&b, ", all_gather_dim=0");
  if (op == AT_REDUCE_SCATTER) at_strbuf_addz(&b, ", scatter_dimension=0");
  if (op == AT_ALL_TO_ALL)
    at_strbuf_addf(
        &b, ", split_dimension=0, concat_dimension=0, split_count=%u", n);
  at_strbuf_addz(&b, "}");
  if (op == AT_ALL_REDUCE || op == AT_REDUCE_SCATTER)
    at_strbuf_addz(&b,
                   " ((%2: f32[], %3: f32[]) {\n    %4 = add %2, %3 : f32[]\n  "
                   "  return %4\n  })");
  at_strbuf_addf(&b, " : f32[%lld]\n  return %%1\n}\n}\n", (long long)result);
  *out = at_arena_str(c->arena, at_strbuf_str(&b));
  at_status st = at_strbuf_status(&b);
  at_strbuf_free(&b);
  return at_ok(st) && !*out ? AT_NO_MEMORY("program") : st;
}

static at_status collect_collective(collector *c, at_collective_op op,
                                    uint32_t n, int64_t size) {
  uint32_t(*pairs)[2] = at_arena_alloc(c->arena, n * sizeof *pairs, 8);
  if (!pairs) return AT_NO_MEMORY("pairs");
  for (uint32_t i = 0; i < n; i++) pairs[i][0] = i, pairs[i][1] = (i + 1) % n;
  at_perf_series key = {
      .key = {.op = op, .dtype = AT_F32, .groups = {1, n, NULL}}};
  if (op == AT_PERMUTE)
    key.key.groups = (at_groups){0},
    key.key.pairs = (const uint32_t(*)[2])pairs, key.key.num_pairs = n;
  at_perf_series *s = series_of(c, &key);
  at_point p = {.at = {size}};
  if (!s) return AT_NO_MEMORY("series");
  if (is_known(s, p.at)) return c->known++, AT_OK;
  char *what = at_arena_printf(c->arena, "%s over %u devices, %lld bytes",
                               at_collective_text(op), n, (long long)size);
  if (size > c->most_bytes / (2 * (int64_t)n)) {
    fprintf(stderr, "%s: left out, over the memory limit\n", what ? what : "");
    return c->skipped++, AT_OK;
  }
  const char *text;
  int64_t elements;
  double seconds;
  AT_TRY(collective_text(c, op, n, size / 4, &elements, &text));
  at_type type = {.dtype = AT_F32, .rank = 1, .dims = &elements};
  AT_TRY(measure(c, text, n, &type, 1, &seconds));
  p.value = (double)(int64_t)((double)size / seconds);
  return add(c, s, &p, what ? what : "", seconds);
}

static at_status collect_collectives(collector *c) {
  for (int i = 0; i < kSizes; i++)
    for (uint32_t n = 2; n <= 8; n *= 2)
      for (int op = AT_ALL_REDUCE; op <= AT_PERMUTE; op++)
        AT_TRY(
            collect_collective(c, (at_collective_op)op, n, (int64_t)1024 << i));
  return AT_OK;
}

// ---- The command ----
static at_status resume(collector *c) {
  if (access(c->path, F_OK)) return AT_OK;
  at_bytes file;
  at_perf_table *t;
  size_t n;
  AT_TRY(at_cli_read_file(c->path, &file));
  at_status st = at_perf_read(file, c->arena, &t, &n);
  free((void *)file.ptr);
  AT_TRY(at_status_prefix(st, "%s", c->path));
  for (size_t i = 0; n && i < t->count; i++) {
    at_perf_series *s = series_of(c, &t->series[i]);
    if (!s) return AT_NO_MEMORY("series");
    for (size_t k = 0; k < t->series[i].count && s->count < kMostPoints; k++)
      if (!is_known(s, t->series[i].points[k].at))
        s->points[s->count++] = t->series[i].points[k];
  }
  return AT_OK;
}

at_status at_cli_collect(int argc, char **argv) {
  const char *path = NULL, *only = "", *seconds = NULL, *memory = NULL;
  at_cli_option(&argc, argv, "--out=", &path);
  at_cli_option(&argc, argv, "--only=", &only);
  at_cli_option(&argc, argv, "--seconds=", &seconds);
  at_cli_option(&argc, argv, "--memory-mib=", &memory);
  bool cpu = at_cli_option(&argc, argv, "--cpu-time", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "cost"));
  bool known =
      only && (!*only || !strcmp(only, "gemm") || !strcmp(only, "collectives"));
  char here[4096];
  if (!path) {  // where --target=host looks
    AT_TRY(at_cost_host_path(here, sizeof here));
    memcpy(here + strlen(here) - 4, "perf", 4);
    path = here;
  }
  if (!known || argc > 1)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "cost collect [--out=FILE] [--only=gemm|collectives] "
                   "[--seconds=S] [--memory-mib=M] [--cpu-time]");
  double mib = (double)sysconf(_SC_AVPHYS_PAGES) *
               (double)sysconf(_SC_PAGESIZE) / (1 << 20) / 2;
  collector c = {.path = path,
                 .seconds = seconds ? strtod(seconds, NULL) : 0.3,
                 .share = cpu ? (double)at_cpu_count() : 0,
                 .most_bytes = (int64_t)((memory ? strtod(memory, NULL) : mib) *
                                         (1 << 20)),
                 .table = {.machine = "host",
                           .source = "atoll cost collect, on this machine",
                           .domain = 8}};
  c.arena = at_arena_create();
  if (c.arena) c.table.series = at_new(c.arena, at_perf_series, kMostSeries);
  at_runtime_options options = {.target = "v5p:2x2x2"};  // eight devices
  at_status st = c.table.series ? at_runtime_create(&options, &c.runtime)
                                : AT_NO_MEMORY("table");
  if (at_ok(st)) st = resume(&c);
  if (at_ok(st) && strcmp(only, "gemm")) st = collect_collectives(&c);
  if (at_ok(st) && strcmp(only, "collectives")) st = collect_gemms(&c);
  fprintf(stderr,
          "%u points measured, %u known before, %u over the memory limit\n",
          c.measured, c.known, c.skipped);
  at_strbuf warning = {0};
  at_perf_warn(&c.table, &warning);
  if (warning.len) fputs(warning.ptr, stderr);
  at_strbuf_free(&warning);
  if (c.runtime) at_runtime_destroy(c.runtime);
  at_arena_destroy(c.arena);
  return st;
}

// ---- The host's description ----
static double rate_of_gemm(const collector *c, const char *t, at_dtype type,
                           at_status *st) {
  int64_t d[2] = {2048, 2048};
  at_type types[2] = {{.dtype = type, .rank = 2, .dims = d},
                      {.dtype = type, .rank = 2, .dims = d}};
  double seconds = 1;
  char *text = at_arena_printf(
      c->arena,
      "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (%%0: %s[2048,2048], "
      "%%1: %s[2048,2048]) "
      "-> (%s[2048,2048]) {\n  %%2 = dot_general %%0, %%1 "
      "{lhs_contracting_dimensions=[1], "
      "rhs_contracting_dimensions=[0]} : %s[2048,2048]\n  return %%2\n}\n}\n",
      t, t, t, t);
  if (at_ok(*st))
    *st = text ? measure(c, text, 1, types, 2, &seconds)
               : AT_NO_MEMORY("program");
  return 2.0 * 2048 * 2048 * 2048 / seconds;
}

static double seconds_of_add(const collector *c, int64_t n, at_status *st) {
  at_type type = {.dtype = AT_F32, .rank = 1, .dims = &n};
  double seconds = 1;
  char *text = at_arena_printf(
      c->arena,
      "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (%%0: f32[%lld]) -> "
      "(f32[%lld]) {\n  %%1 = add %%0, %%0 : f32[%lld]\n  return %%1\n}\n}\n",
      (long long)n, (long long)n, (long long)n);
  if (at_ok(*st))
    *st = text ? measure(c, text, 1, &type, 1, &seconds)
               : AT_NO_MEMORY("program");
  return seconds;
}

at_status at_cli_measure_host(void) {
  collector c = {.seconds = 0.5};
  char path[4096], *slash;
  const int64_t large = 32 << 20;  // elements: past every cache
  AT_TRY(at_cost_host_path(path, sizeof path));
  c.arena = at_arena_create();
  at_runtime_options options = {.target = "v6e"};
  at_status st =
      c.arena ? at_runtime_create(&options, &c.runtime) : AT_NO_MEMORY("host");
  double launch = seconds_of_add(&c, 8, &st);
  struct {
    const char *name, *source;
    double value;
  } rows[] = {
      {"hbm_bytes_per_second_per_chip",
       "atoll doctor --measure: x + x over 32 Mi f32, read and written",
       8.0 * (double)large / seconds_of_add(&c, large, &st)},
      {"kernel_launch_seconds",
       "atoll doctor --measure: a program of one tiny op", launch},
      {"f32_flops_per_second_per_chip",
       "atoll doctor --measure: 2048^3 product",
       rate_of_gemm(&c, "f32", AT_F32, &st)},
      {"bf16_flops_per_second_per_chip",
       "atoll doctor --measure: 2048^3 product",
       rate_of_gemm(&c, "bf16", AT_BF16, &st)},
      {"hbm_bytes_per_chip", "sysconf: physical memory",
       (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)}};
  at_strbuf b = {0};
  at_strbuf_addz(
      &b,
      "{\n \"name\": \"host\",\n \"platform\": \"host\",\n \"aliases\": []");
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_strbuf_addf(
        &b, ",\n \"%s\": {\n  \"value\": %.6g,\n  \"source\": \"%s\"\n }",
        rows[i].name, rows[i].value, rows[i].source);
    if (at_ok(st)) printf("%-34s %.4g\n", rows[i].name, rows[i].value);
  }
  at_strbuf_addz(&b, "\n}\n");
  if (at_ok(st)) st = at_strbuf_status(&b);
  if ((slash = strrchr(path, '/'))) *slash = 0, mkdir(path, 0777), *slash = '/';
  FILE *f = at_ok(st) ? fopen(path, "wb") : NULL;
  bool good = f && fwrite(b.ptr, 1, b.len, f) == b.len;
  if (f && fclose(f)) good = false;
  if (at_ok(st) && !good) st = AT_FAIL(AT_DATA_LOSS, "cannot write %s", path);
  if (at_ok(st)) printf("written to %s\n", path);
  at_strbuf_free(&b);
  if (c.runtime) at_runtime_destroy(c.runtime);
  at_arena_destroy(c.arena);
  return st;
}
