// Collectives over the processes of a pod on this machine: one launch of a
// program that does nothing else, from its call until it is done everywhere.
//
//   pod_collectives PROCESSES CHIPS
//                   [auto|messages|tcp [COLLECTIVE [BYTES [LAUNCHES]]]]
//
// CHIPS: of all processes together; `messages`: nobody reads the memory of
// another; `tcp`: messages go by TCP. A line for each collective and size
// (bench/pod_collectives.py prints them beside others), or for those named.
// LAUNCHES: of each of the nine runs.
#include <arpa/inet.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/free_ports.h"
#include "base/strbuf.h"
#include "compile/compile.h"
#include "pod/hosts.h"
#include "wire_bench.h"

enum { kMostProcesses = 16, kMostChips = 64 };

static void must(at_status st, int line) {
  if (!st.err) return;
  fprintf(stderr, "line %d: %s\n", line, at_status_message(st));
  exit(1);
}
#define MUST(e) must((e), __LINE__)

static uint32_t processes, chips, me;
static at_pod_hosts *pod;
static at_runtime *rt;

// ---- Programs
typedef struct kind {
  const char *name, *attributes;
  uint32_t takes, gives;  // rows of an operand and of a result: of `chips`
  bool sums;
} kind;
static const kind kinds[] = {
    {"all_reduce", "", 1, 1, true},
    {"reduce_scatter", ", scatter_dimension=0", 1, 0, true},
    {"all_gather", ", all_gather_dim=0", 0, 1, false},
    {"all_to_all", ", split_dimension=0, concat_dimension=0, split_count=", 1,
     1, false},
    {"collective_broadcast", "", 1, 1, false},
    {"collective_permute", "", 1, 1, false},
};

static uint32_t rows(uint32_t all) { return all ? chips : 1; }

// Of f32[rows, columns], at least one column.
static at_bytes compile(const kind *k, size_t columns) {
  at_strbuf b = {0};
  at_strbuf_addf(
      &b,
      "hlo module \"m\" replicas=%u entry=\"main\" {\nfunc \"main\" (%%0: "
      "f32[%u,%zu]) -> (f32[%u,%zu]) {\n%%1 = %s %%0 {",
      chips, rows(k->takes), columns, rows(k->gives), columns, k->name);
  bool permutes = !strcmp(k->name, "collective_permute");
  at_strbuf_addz(&b, permutes ? "source_target_pairs=[" : "replica_groups=[[");
  for (uint32_t i = 0; i < chips; i++)
    at_strbuf_addf(&b, permutes ? "%s[%u,%u]" : "%s%u", i ? "," : "", i,
                   (i + 1) % chips);
  at_strbuf_addf(&b, "%s%s", permutes ? "]" : "]]", k->attributes);
  if (!strcmp(k->name, "all_to_all")) at_strbuf_addf(&b, "%u", chips);
  at_strbuf_addz(&b, "}");
  if (k->sums)
    at_strbuf_addz(&b,
                   " ((%2: f32[], %3: f32[]) {\n%4 = add %2, %3 : f32[]\n"
                   "return %4\n})");
  at_strbuf_addf(&b, " : f32[%u,%zu]\nreturn %%1\n}\n}\n", rows(k->gives),
                 columns);
  at_bytes out = {0};
  at_compile_options o = {.threads = 1, .no_cache = true};
  MUST(at_compile((at_bytes){(const uint8_t *)b.ptr, b.len}, &o, &out));
  at_strbuf_free(&b);
  return out;
}

// ---- Launches
typedef struct program {
  at_loaded *l;
  at_chip *own[kMostChips];
  at_buffer *args[kMostChips];
  uint32_t num_own;
} program;

static at_buffer *argument(at_chip *c, const int64_t dims[2]) {
  at_buffer *b;
  MUST(at_buffer_create(c, AT_MEM_DEVICE, AT_F32, (at_dims){dims, 2}, &b));
  float *p = at_buffer_data_mut(b);
  for (int64_t i = 0; i < dims[0] * dims[1]; i++) p[i] = (float)(i % 7);
  at_buffer_define(b, AT_OK);
  return b;
}

static program load(const kind *k, size_t columns) {
  program p = {0};
  uint32_t first;
  at_chip *all[kMostChips];
  at_bytes block = compile(k, columns);
  for (uint32_t i = 0; i < chips; i++) all[i] = at_runtime_chip(rt, i);
  MUST(at_loaded_create(rt, block, &p.l));
  if (processes > 1) MUST(at_loaded_span(p.l, all));
  p.num_own = at_runtime_own_chips(rt, &first);
  const int64_t dims[2] = {rows(k->takes), (int64_t)columns};
  for (uint32_t i = 0; i < p.num_own; i++) {
    p.own[i] = all[first + i];
    p.args[i] = argument(p.own[i], dims);
  }
  return p;
}

static void launch(const program *p) {
  at_buffer *out[kMostChips];
  at_event *done;
  at_launch in = {.chip = p->own[0],
                  .chips = p->own,
                  .num_chips = p->num_own > 1 ? p->num_own : 0,
                  .args = p->args,
                  .num_args = 1};
  MUST(at_loaded_execute(p->l, &in, out, &done));
  MUST(at_event_wait(done));
  at_event_release(done);
  for (uint32_t i = 0; i < p->num_own; i++) at_buffer_release(out[i]);
}

static void unload(program *p) {
  for (uint32_t i = 0; i < p->num_own; i++) at_buffer_release(p->args[i]);
  at_loaded_release(p->l);
}

// launches: 0: as many as that size takes for a good figure.
static void measure(const kind *k, size_t bytes, int launches,
                    const char *medium) {
  size_t all =
      rows(k->takes) > rows(k->gives) ? rows(k->takes) : rows(k->gives);
  size_t columns = bytes / 4 / all;
  program p = load(k, columns ? columns : 1);
  int count = launches              ? launches
              : bytes > (4 << 20)   ? 4
              : bytes > (256 << 10) ? 20
                                    : 200;
  double runs[kRuns];
  for (int i = 0; i < 3; i++) launch(&p);
  for (int r = 0; r < kRuns; r++) {
    uint64_t t = at_clock_ns();
    for (int i = 0; i < count; i++) launch(&p);
    runs[r] = (double)(at_clock_ns() - t) / 1e3 / count;
  }
  if (!me) bench_print(medium, k->name, bytes, runs, false);
  unload(&p);
}

// ---- Processes
// how: of ATOLL_POD_WIRE.
static void open_runtime(const char *addresses, const char *how) {
  char target[32];
  at_pod_job job = {.addresses = {addresses, "the bench"},
                    .me = me,
                    .listener = -1,
                    .local = true,
                    .share = !strcmp(how, "auto"),
                    .medium = !strcmp(how, "tcp") ? how : NULL,
                    .token = {{(uint8_t)getppid(), 2, 3}},
                    .job = "bench",
                    .timeout_s = 30};
  job.token.bytes[0] = 1;
  if (processes > 1) MUST(at_pod_hosts_open(&job, &pod));
  snprintf(target, sizeof target, "v5e:%ux%u", chips > 2 ? 2 : 1,
           chips > 2 ? chips / 2 : chips);
  at_runtime_options o = {.target = target, .hosts = at_pod_hosts_of(pod)};
  MUST(at_runtime_create(&o, &rt));
}

int main(int argc, char **argv) {
  static const size_t reduced[] = {8,       64 << 10, 1 << 20,
                                   4 << 20, 16 << 20, 64 << 20};
  static const size_t moved[] = {8, 64 << 10, 1 << 20, 16 << 20};
  char addresses[1024], medium[32];
  processes = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;
  chips = argc > 2 ? (uint32_t)atoi(argv[2]) : processes;
  const char *how = argc > 3 ? argv[3] : "auto";
  if (!processes || processes > kMostProcesses || chips > kMostChips ||
      chips % processes)
    return 2;
  if (!at_free_addresses(processes, addresses, sizeof addresses)) return 1;
  for (uint32_t i = 1; i < processes && !me; i++)
    if (!fork()) {
      me = i;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
  open_runtime(addresses, how);
  snprintf(medium, sizeof medium, "%s-%u/%u",
           processes == 1        ? "one"
           : strcmp(how, "auto") ? how
                                 : "shared",
           processes, chips);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    const size_t *sizes = k ? moved : reduced;
    size_t n =
        k ? sizeof moved / sizeof *moved : sizeof reduced / sizeof *reduced;
    if (argc > 4 && strcmp(argv[4], kinds[k].name)) continue;
    const size_t only = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
    if (only) measure(&kinds[k], only, argc > 6 ? atoi(argv[6]) : 0, medium);
    for (size_t i = 0; i < n && !only; i++)
      measure(&kinds[k], sizes[i], 0, medium);
  }
  at_runtime_destroy(rt);
  at_pod_hosts_close(pod);
  while (!me && wait(NULL) > 0) continue;
  return 0;
}
