// `atoll cost collect`: times products and collectives of this machine and
// writes a performance table. Every point is saved as soon as it is known;
// points that the file has are not measured again.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cpu.h"
#include "cli/cli.h"
#include "cli/timing.h"
#include "cost/cost.h"

enum {
  kSizes = 22,
  kMostSeries = 64,
  kMostPoints = 512,
  kMostGroup = 8,
  kMostDevices = AT_TIMING_ARGUMENTS
};

// What is being measured and where it goes. Series have room for kMostPoints
// points each.
typedef struct collector {
  at_arena *arena;
  at_timing timing;
  const char *path;
  at_perf_table table;
  int64_t most_bytes;  // of all buffers of one program
  uint32_t measured, skipped, known, doubted;
} collector;

// ---- The table ----
// To a new file that then takes the old one's place, so that a run that is
// interrupted leaves a whole table.
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

// The series with that key, new if there is none; NULL: there is no room or no
// memory.
static at_perf_series *series_of(collector *c, const at_perf_series *key) {
  for (size_t i = 0; i < c->table.count; i++) {
    at_perf_series *s = &c->table.series[i];
    if (s->is_gemm != key->is_gemm) continue;
    bool same =
        s->is_gemm
            ? s->lhs == key->lhs && s->rhs == key->rhs && s->out == key->out
            : s->key.op == key->key.op &&
                  at_groups_eq(&s->key.groups, &key->key.groups) &&
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

// Has the point been measured, now or by an earlier run?
static bool is_known(const at_perf_series *s, const int64_t *at) {
  for (size_t i = 0; i < s->count; i++)
    if (memcmp(s->points[i].at, at, sizeof s->points[i].at) == 0) return true;
  return false;
}

// Adds the point and saves the table. `what` is for the progress line.
static at_status add(collector *c, at_perf_series *s, const at_point *p,
                     const char *what, double seconds) {
  if (s->count == kMostPoints)
    return AT_FAIL(AT_RESOURCE_EXHAUSTED, "a series is full");
  s->points[s->count++] = *p;
  c->measured++;
  at_cli_progress("%s: %.3f us", what, seconds * 1e6);
  return save(c);
}

// ---- Products ----
// One product, b times [m,k] by [k,n], as FLOP per second. Nothing where it is
// known.
static at_status collect_gemm(collector *c, const at_gemm *g) {
  at_perf_series key = {
      .is_gemm = true, .lhs = g->lhs, .rhs = g->rhs, .out = g->out};
  at_perf_series *s = series_of(c, &key);
  at_point p = {.at = {g->b, g->m, g->k, g->n}};
  if (!s) return AT_NO_MEMORY("series");
  if (is_known(s, p.at)) return c->known++, AT_OK;
  // Batched operands: [b,m,k] by [b,k,n].
  int64_t l[3] = {g->b, g->m, g->k}, r[3] = {g->b, g->k, g->n};
  at_timing_argument arguments[2] = {
      {.type = {.dtype = g->lhs, .rank = 3, .dims = l}},
      {.type = {.dtype = g->rhs, .rank = 3, .dims = r}}};
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
  AT_TRY(at_timing_run(&c->timing, text, NULL, 1, arguments, 2, &seconds));
  p.value = (double)(int64_t)(2.0 * (double)g->b * (double)g->m * (double)g->n *
                              (double)g->k / seconds);
  return add(c, s, &p,
             at_arena_printf(c->arena, "gemm %s %s %s %lld %lld %lld %lld", lt,
                             rt, ot, (long long)g->b, (long long)g->m,
                             (long long)g->n, (long long)g->k),
             seconds);
}

// Batches of 1 to 4 and sides of 256 to 4096, in all combinations of bf16 and
// f32 for operands and result.
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
// A program of that collective over n devices. `elements` is the size of the
// whole, of which a gather's argument and a scatter's result are a part.
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

// `ids`: who takes part; NULL: 0, 1, ...
static at_status collect_collective(collector *c, at_collective_op op,
                                    const uint32_t *ids, uint32_t n,
                                    int64_t size) {
  uint32_t(*pairs)[2] = at_arena_alloc(c->arena, n * sizeof *pairs, 8);
  if (!pairs) return AT_NO_MEMORY("pairs");
  for (uint32_t i = 0; i < n; i++) pairs[i][0] = i, pairs[i][1] = (i + 1) % n;
  at_perf_series key = {
      .key = {.op = op, .dtype = AT_F32, .groups = {1, n, ids}}};
  if (op == AT_PERMUTE)
    key.key.groups = (at_groups){0},
    key.key.pairs = (const uint32_t(*)[2])pairs, key.key.num_pairs = n;
  at_perf_series *s = series_of(c, &key);
  at_point p = {.at = {size}};
  if (!s) return AT_NO_MEMORY("series");
  if (is_known(s, p.at)) return c->known++, AT_OK;
  static const char *const schemes[] = {"", " of whole hosts",
                                        " of parts of hosts"};
  char *what = at_arena_printf(
      c->arena, "%s over %u devices%s, %lld bytes", at_collective_text(op), n,
      schemes[at_collective_scheme(&key.key, c->table.domain)],
      (long long)size);
  if (size > c->most_bytes / (2 * (int64_t)n)) {
    fprintf(stderr, "%s: left out, over the memory limit\n", what ? what : "");
    return c->skipped++, AT_OK;
  }
  const char *text;
  int64_t elements;
  double seconds;
  AT_TRY(collective_text(c, op, n, size / 4, &elements, &text));
  at_timing_argument argument = {
      .type = {.dtype = AT_F32, .rank = 1, .dims = &elements}};
  AT_TRY(at_timing_run(&c->timing, text, ids, n, &argument, 1, &seconds));
  p.value = (double)(int64_t)((double)size / seconds);
  return add(c, s, &p, what ? what : "", seconds);
}

// Sizes of 1 KiB to 2 GiB, small ones first, over 2 to 16 devices. Groups are
// of whole hosts, or spread over parts of several, as the networks inside and
// between hosts differ.
static at_status collect_collectives(collector *c) {
  for (int i = 0; i < kSizes; i++)
    for (uint32_t n = 2; n <= kMostDevices; n *= 2)
      for (int spread = 0; spread < 2; spread++) {
        // Over parts of hosts: n / 2, or one of each, of neighbouring hosts.
        uint32_t domain = c->table.domain, *ids = NULL;
        uint32_t hosts = kMostDevices / domain, each = (n + hosts - 1) / hosts;
        if (spread && (hosts < 2 || each >= domain || n > kMostGroup)) continue;
        if (!spread && n > AT_MAX((uint32_t)kMostGroup, domain * 2)) continue;
        if (spread) AT_TRY_ALLOC(ids, at_new(c->arena, uint32_t, n));
        for (uint32_t k = 0; k < n && spread; k++)
          ids[k] = k / each * domain + k % each;
        // Tables hold permutes inside one host only.
        int last = spread || n > domain ? AT_ALL_TO_ALL : AT_PERMUTE;
        for (int op = AT_ALL_REDUCE; op <= last; op++)
          AT_TRY(collect_collective(c, (at_collective_op)op, ids, n,
                                    (int64_t)1024 << i));
      }
  return AT_OK;
}

// ---- Noise ----
// One side is twice that of the other, the rest is equal.
static bool are_neighbours(const at_point *a, const at_point *b) {
  int apart = 0;
  for (int d = 0; d < AT_POINT_DIMS; d++) {
    if (a->at[d] == b->at[d]) continue;
    apart += a->at[d] == 2 * b->at[d] || 2 * a->at[d] == b->at[d] ? 1 : 2;
  }
  return apart == 1;
}

// A product far faster or slower than most of those next to it was disturbed.
static bool is_doubtful(const at_perf_series *s, const at_point *p) {
  double faster = 0, slower = 0, all = 0;
  for (size_t i = 0; i < s->count; i++) {
    if (!are_neighbours(&s->points[i], p)) continue;
    all++;
    faster += p->value > 1.5 * s->points[i].value;
    slower += p->value < s->points[i].value / 1.5;
  }
  return all >= 3 && fmax(faster, slower) > all / 2;
}

// Forgets doubtful products of an earlier run, so that they are measured again.
static void doubt(collector *c) {
  for (size_t i = 0; i < c->table.count; i++) {
    at_perf_series *s = &c->table.series[i], all = *s;
    bool drop[kMostPoints] = {false};
    if (!s->is_gemm) continue;
    for (size_t k = 0; k < s->count; k++)
      drop[k] = is_doubtful(&all, &all.points[k]);
    s->count = 0;
    for (size_t k = 0; k < all.count; k++)
      if (!drop[k]) s->points[s->count++] = s->points[k];
    c->doubted += (uint32_t)(all.count - s->count);
  }
}

// ---- The command ----
// Reads what an earlier run has measured, if there is a file. Doubtful points
// are forgotten.
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
  doubt(c);
  return AT_OK;
}

// Collectives before products, as they are fewer. An error ends it, but what
// was measured is in the file.
at_status at_cli_collect(int argc, char **argv) {
  const char *path = NULL, *only = "", *seconds = NULL, *memory = NULL;
  const char *domain = NULL;
  at_cli_option(&argc, argv, "--out=", &path);
  at_cli_option(&argc, argv, "--only=", &only);
  at_cli_option(&argc, argv, "--seconds=", &seconds);
  at_cli_option(&argc, argv, "--memory-mib=", &memory);
  at_cli_option(&argc, argv, "--domain=", &domain);
  long devices = domain ? strtol(domain, NULL, 10) : 8;
  bool cpu = at_cli_option(&argc, argv, "--cpu-time", NULL);
  AT_TRY(at_cli_no_more_options(argc, argv, "cost"));
  // The domain is how many devices a host of the table has.
  bool known =
      only && (!*only || !strcmp(only, "gemm") || !strcmp(only, "collectives"));
  char here[4096];
  if (!path) {  // where --target=host looks
    AT_TRY(at_cost_host_path(here, sizeof here));
    memcpy(here + strlen(here) - 4, "perf", 4);
    path = here;
  }
  known &= devices == 2 || devices == 4 || devices == 8;
  if (!known || argc > 1)
    return AT_FAIL(AT_INVALID_ARGUMENT,
                   "cost collect [--out=FILE] [--only=gemm|collectives] "
                   "[--seconds=S] [--memory-mib=M] [--domain=2|4|8] "
                   "[--cpu-time]");
  // Half of the memory that is free, where nothing else is said.
  double mib = (double)sysconf(_SC_AVPHYS_PAGES) *
               (double)sysconf(_SC_PAGESIZE) / (1 << 20) / 2;
  collector c = {.path = path,
                 .timing = {.seconds = seconds ? strtod(seconds, NULL) : 0.3,
                            .share = cpu ? (double)at_cpu_count() : 0},
                 .most_bytes = (int64_t)((memory ? strtod(memory, NULL) : mib) *
                                         (1 << 20)),
                 .table = {.machine = "host",
                           .source = "atoll cost collect, on this machine",
                           .domain = (uint32_t)devices}};
  c.arena = at_arena_create();
  if (c.arena) c.table.series = at_new(c.arena, at_perf_series, kMostSeries);
  at_runtime_options options = {.target = "v5p:2x2x4"};  // sixteen devices
  at_status st = c.table.series ? at_runtime_create(&options, &c.timing.runtime)
                                : AT_NO_MEMORY("table");
  if (at_ok(st)) st = resume(&c);
  if (at_ok(st) && strcmp(only, "gemm")) st = collect_collectives(&c);
  if (at_ok(st) && strcmp(only, "collectives")) st = collect_gemms(&c);
  fprintf(stderr,
          "%u points measured, %u of them again; %u known before, %u over the "
          "memory limit\n",
          c.measured, AT_MIN(c.doubted, c.measured), c.known, c.skipped);
  at_strbuf warning = {0};
  at_perf_warn(&c.table, &warning);
  if (warning.len) fputs(warning.ptr, stderr);
  at_strbuf_free(&warning);
  if (c.timing.runtime) at_runtime_destroy(c.timing.runtime);
  at_arena_destroy(c.arena);
  return st;
}
