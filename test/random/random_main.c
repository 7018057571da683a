// Random programs, compiled and run, against the evaluator.
//
// Each seed is checked in two ways. As it is: fused, with every result that it
// has; values that only exact ops made must be equal, others close as long as
// no op may have blown a small difference up. Then with every value returned:
// each op is evaluated on the values that the compiled program itself made, and
// must be within its own tolerance (tolerance.def). A program is compiled once
// for several sets of arguments; every other set has NaN, infinities, denormals
// and extremes.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coverage.h"
#include "hlo/random.h"
#include "judge.h"
#include "peer.h"
#include "piece.h"
#include "run.h"

enum { kSecondsPerSeed = 900 };  // on machines that do much else, too

typedef struct options {
  uint64_t first, last;
  uint32_t nodes, families;
  int64_t elements;
  uint64_t dtypes;
  const char *only;
  uint32_t sets;  // of arguments
  bool coverage, table, verbose, each_only;
  const char *write, *read;  // for a peer: its folder
  peer_options peer;
} options;

// One way to check a program.
typedef struct way {
  bool each;    // every value is returned
  int32_t set;  // of arguments; -1: all
  bool report;  // print what differs; do not count
} way;

typedef struct verdict {
  bool bad;
  uint32_t result, set;
  at_strbuf why;
} verdict;

static char g_doing[128];  // for the signal handler

static void on_signal(int s) {
  const char *what = s == SIGALRM ? "hangs: " : "crashes: ";
  ssize_t ignored = write(2, what, strlen(what));
  ignored = write(2, g_doing, strlen(g_doing));
  ignored = write(2, "\n", 1);
  (void)ignored;
  signal(s, SIG_DFL);
  raise(s);
}

static void watch(void) {
  static uint8_t stack[64 << 10];
  stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&ss, NULL);
  struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGALRM};
  for (size_t i = 0; i < AT_LEN(signals); i++) sigaction(signals[i], &a, NULL);
}

// ---- Checks

static void blame(verdict *v, const judgement *j, uint32_t result,
                  const at_node *n) {
  v->bad = true;
  v->result = result;
  at_strbuf_add(&v->why, at_strbuf_str(&j->why));
  at_strbuf_addf(&v->why, "\n  result %u: ", result);
  at_node_describe(&v->why, n);
}

static at_status check_whole(at_arena *a, const at_module *m, at_loaded *l,
                             const at_literal **args, verdict *v) {
  const at_comp *c = m->entry;
  const at_literal **want, **got;
  AT_TRY_ALLOC(want, at_new(a, const at_literal *, c->num_results + 1));
  AT_TRY_ALLOC(got, at_new(a, const at_literal *, c->num_results + 1));
  at_eval_options eo = {.custom = at_eval_linalg_custom};
  AT_TRY(at_eval(c, args, &eo, a, want));
  AT_TRY(run_once(a, l, c, args, got));
  judge_trust(c);
  for (uint32_t i = 0; i < c->num_results && !v->bad; i++) {
    const at_node *n = c->results[i].node;
    if (n->mark == TRUST_NONE) continue;
    bool exact = n->mark == TRUST_EXACT;
    judgement j;
    if (!judge_program(exact, want[i], got[i], &j)) blame(v, &j, i, n);
    at_strbuf_free(&j.why);
  }
  return AT_OK;
}

static at_status check_node(at_arena *a, const at_node *n, piece_run *p,
                            verdict *v) {
  judgement j = judge_nothing();
  at_status st = piece_judge(a, n, p, &j);
  if (at_ok(st) && j.bad_result != UINT32_MAX)
    blame(v, &j, n->mark + j.bad_result, n);
  else if (at_ok(st))
    coverage_judged(n, j.worst);
  at_strbuf_free(&j.why);
  return st;
}

static at_status check_each(at_arena *a, const at_module *m, at_loaded *l,
                            const at_literal **args, verdict *v) {
  piece_run p = {.args = args};
  AT_TRY_ALLOC(p.got, at_new(a, const at_literal *, m->entry->num_results + 1));
  AT_TRY(run_once(a, l, m->entry, args, p.got));
  AT_FOR_NODES(n, m->entry) {
    if (n->op == AT_OP_CONSTANT || n->op == AT_OP_PARAMETER)
      coverage_judged(n, 0);
    else if (!v->bad)
      AT_TRY(check_node(a, n, &p, v));
  }
  return AT_OK;
}

// ---- Seeds

// Keeps the nodes that result `r` needs.
static void keep_result(at_module *m, uint32_t r) {
  at_comp *c = m->entry;
  if (r >= c->num_results) return;
  c->results[0] = c->results[r];
  c->num_results = 1;
  for (at_node *n = c->last, *prev; n; n = prev) {
    prev = n->prev;
    if (n->op != AT_OP_PARAMETER && !piece_uses(c, n)) at_node_remove(n);
  }
}

static at_status check_sets(const options *o, uint64_t seed, at_arena *a,
                            at_module *m, const way *w, verdict *v) {
  at_loaded *l = NULL;
  const at_literal **args;
  if (w->each) AT_TRY(piece_return_all(m));
  at_status st = run_load(m, true, &l);
  bool careful = !w->each && judge_sees_nan(m->entry);
  for (uint32_t set = 0; at_ok(st) && !v->bad && set < o->sets; set++) {
    bool special = set & 1;
    if ((w->set >= 0 && set != (uint32_t)w->set) || (special && careful))
      continue;
    v->set = set;
    uint64_t start = seed + (uint64_t)(set / 2) * 0x9e3779b97f4a7c15ull;
    st = at_random_args(a, m->entry, start, special, &args);
    if (at_ok(st))
      st = w->each ? check_each(a, m, l, args, v)
                   : check_whole(a, m, l, args, v);
  }
  run_drop(l);
  return st;
}

static void report(at_module *m, at_status st, const verdict *v) {
  at_strbuf text = {0};
  if (v->bad) keep_result(m, v->result);
  at_status_free(at_hlo_print(m, &text));
  printf("FAIL %s\n  %s\n%s\n", g_doing,
         at_ok(st) ? v->why.ptr : at_status_message(st),
         text.ptr ? text.ptr : "");
  at_strbuf_free(&text);
}

static at_random_options program_of(const options *o, uint64_t seed,
                                    uint32_t nodes) {
  return (at_random_options){.seed = seed,
                             .first = seed * o->nodes,
                             .nodes = nodes,
                             .max_elements = o->elements,
                             .families = o->families,
                             .dtypes = o->dtypes,
                             .only = o->only};
}

// Returns the set of arguments that something differs on; -1: none.
static int32_t one(const options *o, uint64_t seed, uint32_t nodes, way w) {
  at_arena *a = at_arena_create();
  at_random_options ro = program_of(o, seed, nodes);
  at_module *m;
  verdict v = {0};
  snprintf(g_doing, sizeof g_doing, "seed %llu, %u nodes%s, arguments %d",
           (unsigned long long)seed, nodes, w.each ? ", each" : "", w.set);
  at_status st = at_random_module(a, &ro, &m);
  if (at_ok(st)) st = check_sets(o, seed, a, m, &w, &v);
  bool good = at_ok(st) && !v.bad;
  if (good && w.each && !w.report)
    for (uint32_t i = 0; i < nodes; i++)
      coverage_pair(at_random_nth(&ro, ro.first + i), o->sets);
  if (!good && w.report) report(m, st, &v);
  at_status_free(st);
  at_strbuf_free(&v.why);
  at_arena_destroy(a);
  return good ? -1 : (int32_t)v.set;
}

// A shorter program of a seed is a prefix of the longer one.
static void shrink(const options *o, uint64_t seed, way w) {
  uint32_t n = 1;
  while (n < o->nodes && one(o, seed, n, w) < 0) n++;
  w.report = true;
  one(o, seed, n, w);
}

static bool usage(void) {
  fprintf(
      stderr,
      "usage: random_programs [--seeds A..B] [--nodes N] [--elements N]\n"
      "         [--sets N] [--families BITS] [--only OP] [--dtype TYPE]...\n"
      "         [--each] [--coverage] [--table] [--verbose]\n"
      "         [--write FOLDER | --read FOLDER [--without FILE] [--apart]]\n"
      "  --write: the programs and arguments for a peer; --read: judges what "
      "it\n"
      "  made of them, and Atoll on the same (test/random/peer.h)\n");
  return false;
}

static bool dtype_named(const char *text, uint64_t *types) {
  for (uint32_t t = 1; t < AT_DTYPE_COUNT; t++)
    if (!strcmp(text, at_dtype_of((at_dtype)t)->text))
      return *types |= 1ull << t, true;
  return false;
}

// An option without a value; false: not one.
static bool take_flag(options *o, const char *k) {
  const struct {
    const char *name;
    bool *to;
  } flags[] = {{"--coverage", &o->coverage},
               {"--table", &o->table},
               {"--each", &o->each_only},
               {"--verbose", &o->verbose},
               {"--apart", &o->peer.apart}};
  for (size_t i = 0; i < AT_LEN(flags); i++)
    if (!strcmp(k, flags[i].name)) return *flags[i].to = true;
  return false;
}

// An option with a text; false: not one, or no text.
static bool take_text(options *o, const char *k, const char *v) {
  const struct {
    const char *name;
    const char **to;
  } texts[] = {{"--only", &o->only},
               {"--write", &o->write},
               {"--read", &o->read},
               {"--without", &o->peer.without}};
  if (!*v) return false;
  if (!strcmp(k, "--dtype")) return dtype_named(v, &o->dtypes);
  for (size_t i = 0; i < AT_LEN(texts); i++)
    if (!strcmp(k, texts[i].name)) return *texts[i].to = v, true;
  return false;
}

static bool take_number(options *o, const char *k, const char *v) {
  char *end;
  uint64_t n = strtoull(v, &end, 10);
  if (end == v) return false;
  if (!strcmp(k, "--seeds")) {
    o->first = o->last = n;
    if (!strncmp(end, "..", 2)) o->last = strtoull(end + 2, &end, 10);
  } else if (!strcmp(k, "--nodes")) {
    o->nodes = (uint32_t)n;
  } else if (!strcmp(k, "--sets")) {
    o->sets = (uint32_t)n;
  } else if (!strcmp(k, "--elements")) {
    o->elements = (int64_t)n;
  } else if (!strcmp(k, "--families")) {
    o->families = (uint32_t)n;
  } else {
    return false;
  }
  return !*end;
}

static bool parse(int argc, char **argv, options *o) {
  for (int i = 1; i < argc; i++) {
    const char *k = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
    if (take_flag(o, k)) continue;
    if (!take_text(o, k, v) && !take_number(o, k, v)) return usage();
    i++;
  }
  return true;
}

// Returns how many programs were not written or judged, or where Atoll is
// farther off than the peer.
static uint64_t with_peer(const options *o) {
  uint64_t bad = 0;
  peer_options p = o->peer;
  p.folder = o->write ? o->write : o->read;
  p.sets = o->sets;
  for (uint64_t seed = o->first; seed <= o->last; seed++) {
    at_random_options ro = program_of(o, seed, o->nodes);
    snprintf(g_doing, sizeof g_doing, "seed %llu, for the peer",
             (unsigned long long)seed);
    alarm(kSecondsPerSeed);
    at_status st = o->write ? peer_write(&p, &ro) : peer_judge(&p, &ro, &bad);
    if (!at_ok(st)) {
      bad++;
      printf("FAIL seed %llu: %s\n", (unsigned long long)seed,
             at_status_message(st));
    }
    at_status_free(st);
  }
  alarm(0);
  if (o->read) peer_table();
  return bad;
}

int main(int argc, char **argv) {
  options o = {.first = 1, .last = 40, .nodes = 12, .elements = 400, .sets = 2};
  if (!parse(argc, argv, &o)) return 2;
  watch();
  setvbuf(stdout, NULL, _IOLBF, 0);
  at_status st = run_start(NULL);
  if (!at_ok(st)) {
    fprintf(stderr, "%s\n", at_status_message(st));
    at_status_free(st);
    return 1;
  }
  if (o.write || o.read) {
    uint64_t bad = with_peer(&o);
    run_stop();
    return bad > 0;
  }
  uint64_t failed = 0, cases = 0;
  for (uint64_t seed = o.first; seed <= o.last; seed++) {
    alarm(kSecondsPerSeed);
    for (int each = o.each_only; each < 2; each++) {
      way w = {.each = each, .set = -1};
      cases += o.sets;
      if (o.verbose)
        printf("seed %llu%s\n", (unsigned long long)seed, each ? " each" : "");
      w.set = one(&o, seed, o.nodes, w);
      if (w.set < 0) continue;
      failed++;
      shrink(&o, seed, w);
    }
  }
  alarm(0);
  if (o.coverage) coverage_print();
  if (o.table) coverage_table();
  printf("%llu cases, %llu failed\n", (unsigned long long)cases,
         (unsigned long long)failed);
  run_stop();
  return failed > 0;
}
