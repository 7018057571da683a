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
#include "replay.h"
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

// ---- Checks -----------------------------------------------------------------

static void blame(verdict *v, uint32_t result, const at_node *n) {
  v->bad = true;
  v->result = result;
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
    if (!judge_program(exact, want[i], got[i], &v->why)) blame(v, i, n);
  }
  return AT_OK;
}

// Makes every value of the entry a result, constants apart.
static at_status return_all(at_module *m) {
  AT_VEC(at_value) all = {0};
  AT_FOR_NODES(n, m->entry) {
    n->mark = (uint32_t)all.len;  // where its first result is
    if (n->op == AT_OP_CONSTANT || n->op == AT_OP_PARAMETER) continue;
    for (uint32_t i = 0; i < n->num_results; i++)
      if (!at_vec_push(m->arena, &all, ((at_value){n, i})))
        return AT_NO_MEMORY("results");
  }
  at_io_info *infos = at_new(m->arena, at_io_info, all.len + 1);
  if (!infos) return AT_NO_MEMORY("results");
  for (size_t i = 0; i < all.len; i++) infos[i].alias = -1;
  m->results = infos;
  return at_comp_return(m->entry, all.ptr, (uint32_t)all.len);
}

typedef struct made {  // by the compiled program
  const at_literal **args, **got;
} made;

static const at_literal *lookup(void *user, at_value v) {
  const made *p = user;
  const at_node *from = v.node;
  if (from->op == AT_OP_CONSTANT) return at_node_literal(from);
  if (from->op == AT_OP_PARAMETER)
    return p->args[at_node_int(from, AT_ATTR_INDEX, 0)];
  return p->got[from->mark + v.index];
}

static at_status check_node(at_arena *a, const at_node *n, made *p,
                            verdict *v) {
  const at_literal **in, **want;
  uint32_t bad;
  double worst = 0;
  AT_TRY_ALLOC(in, at_new(a, const at_literal *, n->num_operands + 1));
  AT_TRY_ALLOC(want, at_new(a, const at_literal *, n->num_results + 1));
  for (uint32_t i = 0; i < n->num_operands; i++)
    in[i] = lookup(p, n->operands[i]);
  AT_TRY(replay_node(a, n, lookup, p, in, want));
  AT_TRY(judge_node(a, n, in, want, p->got + n->mark, &bad, &v->why, &worst));
  if (bad != UINT32_MAX) return blame(v, n->mark + bad, n), AT_OK;
  coverage_judged(n, worst);
  return AT_OK;
}

static at_status check_each(at_arena *a, const at_module *m, at_loaded *l,
                            const at_literal **args, verdict *v) {
  made p = {.args = args};
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

// ---- Seeds ------------------------------------------------------------------

static bool uses(const at_comp *c, const at_node *n) {
  AT_FOR_NODES(k, c) {
    for (uint32_t i = 0; i < k->num_operands; i++)
      if (k->operands[i].node == n) return true;
    for (uint32_t i = 0; i < k->num_regions; i++)
      if (uses(k->regions[i], n)) return true;
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    if (c->results[i].node == n) return true;
  return false;
}

// Keeps the nodes that result `r` needs.
static void keep_result(at_module *m, uint32_t r) {
  at_comp *c = m->entry;
  if (r >= c->num_results) return;
  c->results[0] = c->results[r];
  c->num_results = 1;
  for (at_node *n = c->last, *prev; n; n = prev) {
    prev = n->prev;
    if (n->op != AT_OP_PARAMETER && !uses(c, n)) at_node_remove(n);
  }
}

static at_status check_sets(const options *o, uint64_t seed, at_arena *a,
                            at_module *m, const way *w, verdict *v) {
  at_loaded *l = NULL;
  const at_literal **args;
  if (w->each) AT_TRY(return_all(m));
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

// Returns the set of arguments that something differs on; -1: none.
static int32_t one(const options *o, uint64_t seed, uint32_t nodes, way w) {
  at_arena *a = at_arena_create();
  at_random_options ro = {.seed = seed,
                          .first = seed * o->nodes,
                          .nodes = nodes,
                          .max_elements = o->elements,
                          .families = o->families,
                          .dtypes = o->dtypes,
                          .only = o->only};
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
      "         [--each] [--coverage] [--table] [--verbose]\n");
  return false;
}

static bool dtype_named(const char *text, uint64_t *types) {
  for (uint32_t t = 1; t < AT_DTYPE_COUNT; t++)
    if (!strcmp(text, at_dtype_of((at_dtype)t)->text))
      return *types |= 1ull << t, true;
  return false;
}

static bool parse(int argc, char **argv, options *o) {
  for (int i = 1; i < argc; i++) {
    const char *k = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
    char *end;
    if (!strcmp(k, "--coverage")) {
      o->coverage = true;
      continue;
    }
    if (!strcmp(k, "--table")) {
      o->table = true;
      continue;
    }
    if (!strcmp(k, "--each")) {
      o->each_only = true;
      continue;
    }
    if (!strcmp(k, "--verbose")) {
      o->verbose = true;
      continue;
    }
    if (!strcmp(k, "--only") && *v) {
      o->only = v;
      i++;
      continue;
    }
    if (!strcmp(k, "--dtype") && dtype_named(v, &o->dtypes)) {
      i++;
      continue;
    }
    uint64_t n = strtoull(v, &end, 10);
    if (end == v) return usage();
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
      return usage();
    }
    if (*end) return usage();
    i++;
  }
  return true;
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
