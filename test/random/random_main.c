// Random programs, compiled and run, against the evaluator.
//
// Each seed is checked in two ways. As it is: fused, with every result that it
// has; values that only exact ops made must be equal, others close as long as
// no op may have blown a small difference up. Then with every value returned:
// each op is evaluated on the values that the compiled program itself made, and
// must be within its own tolerance (tolerance.def).
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "compile/compile.h"
#include "coverage.h"
#include "exec/exec.h"
#include "hlo/random.h"
#include "judge.h"

enum { kSecondsPerSeed = 120 };

typedef struct options {
  uint64_t first, last;
  uint32_t nodes, families;
  int64_t elements;
  bool coverage, verbose;
} options;

typedef struct verdict {
  bool bad;
  uint32_t result;
  at_strbuf why;
} verdict;

static at_runtime *g_runtime;
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

// ---- Running ----------------------------------------------------------------

static at_status load(const at_module *m, at_loaded **out) {
  at_strbuf text = {0};
  at_bytes block = {0};
  at_compile_options o = {.no_cache = true, .verify_each = true, .threads = 2};
  at_status st = at_hlo_print(m, &text);
  if (at_ok(st))
    st =
        at_compile((at_bytes){(const uint8_t *)text.ptr, text.len}, &o, &block);
  if (at_ok(st)) st = at_loaded_create(g_runtime, block, out);
  free((void *)block.ptr);
  at_strbuf_free(&text);
  return st;
}

static at_status upload(const at_literal *l, at_buffer **out) {
  at_chip *chip = at_runtime_chip(g_runtime, 0);
  at_host_array h = {
      .dtype = l->type.dtype, .dims = at_type_dims(&l->type), .data = l->data};
  at_event *done;
  AT_TRY(at_buffer_from_host(chip, AT_MEM_DEVICE, &h,
                             AT_HOST_IMMUTABLE_ONLY_DURING_CALL, out, &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  return st;
}

static at_status download(at_arena *a, at_buffer *b, at_type t,
                          const at_literal **out) {
  at_event *done;
  uint8_t *data = at_arena_alloc(a, at_type_bytes(&t) + 1, 64);
  if (!data) return AT_NO_MEMORY("result");
  AT_TRY(at_buffer_to_host(b, data, 0, at_type_bytes(&t), &done));
  at_status st = at_event_wait(done);
  at_event_release(done);
  AT_TRY(st);
  return at_literal_make(a, t, data, false, true, out);
}

static at_status execute(at_arena *a, at_loaded *l, const at_comp *c,
                         const at_literal **args, const at_literal **out) {
  at_buffer **in, **results;
  AT_TRY_ALLOC(in, at_new(a, at_buffer *, c->num_params + 1));
  AT_TRY_ALLOC(results, at_new(a, at_buffer *, c->num_results + 1));
  at_status st = AT_OK;
  for (uint32_t i = 0; i < c->num_params && at_ok(st); i++)
    st = upload(args[i], &in[i]);
  at_event *done = NULL;
  if (at_ok(st)) {
    at_launch launch = {.chip = at_runtime_chip(g_runtime, 0),
                        .args = in,
                        .num_args = c->num_params};
    st = at_loaded_execute(l, &launch, results, &done);
  }
  if (at_ok(st)) st = at_event_wait(done);
  if (done) at_event_release(done);
  for (uint32_t i = 0; i < c->num_results && at_ok(st); i++)
    st = download(a, results[i], *at_value_type(c->results[i]), &out[i]);
  for (uint32_t i = 0; i < c->num_params; i++)
    if (in[i]) at_buffer_release(in[i]);
  for (uint32_t i = 0; i < c->num_results; i++)
    if (results[i]) at_buffer_release(results[i]);
  return st;
}

static at_status run(at_arena *a, const at_module *m, const at_literal **args,
                     bool count, const at_literal **out) {
  at_loaded *l = NULL;
  at_status st = load(m, &l);
  if (at_ok(st)) {
    if (count) coverage_count_steps(l);
    st = execute(a, l, m->entry, args, out);
  }
  if (l) at_loaded_release(l);
  return st;
}

// ---- Checks -----------------------------------------------------------------

static void blame(verdict *v, uint32_t result, const at_node *n) {
  v->bad = true;
  v->result = result;
  at_strbuf_addf(&v->why, "\n  result %u: ", result);
  at_node_describe(&v->why, n);
}

static at_status check_whole(at_arena *a, const at_module *m,
                             const at_literal **args, verdict *v) {
  const at_comp *c = m->entry;
  const at_literal **want, **got;
  AT_TRY_ALLOC(want, at_new(a, const at_literal *, c->num_results + 1));
  AT_TRY_ALLOC(got, at_new(a, const at_literal *, c->num_results + 1));
  at_eval_options eo = {0};
  AT_TRY(at_eval(c, args, &eo, a, want));
  AT_TRY(run(a, m, args, true, got));
  judge_trust(c);
  for (uint32_t i = 0; i < c->num_results && !v->bad; i++) {
    const at_node *n = c->results[i].node;
    if (n->mark == TRUST_NONE) continue;
    bool exact = n->mark == TRUST_EXACT;
    if (!judge_equal(exact ? CLASS_EXACT : CLASS_PROGRAM,
                     exact ? 0 : judge_largest(want[i]), want[i], got[i],
                     &v->why))
      blame(v, i, n);
  }
  return AT_OK;
}

static bool captures(const at_comp *c, const at_comp *within) {
  AT_FOR_NODES(n, c) {
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (n->operands[i].node->parent == within) return true;
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (captures(n->regions[i], within)) return true;
  }
  for (uint32_t i = 0; i < c->num_results; i++)
    if (c->results[i].node->parent == within) return true;
  return false;
}

static bool alone(const at_node *n) {
  for (uint32_t i = 0; i < n->num_regions; i++)
    if (captures(n->regions[i], n->parent)) return false;
  return n->op != AT_OP_CALL && n->op != AT_OP_WHILE;
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

static at_status check_node(at_arena *a, const at_node *n,
                            const at_literal **args, const at_literal **got,
                            verdict *v) {
  const at_literal **in, **want;
  AT_TRY_ALLOC(in, at_new(a, const at_literal *, n->num_operands + 1));
  AT_TRY_ALLOC(want, at_new(a, const at_literal *, n->num_results + 1));
  for (uint32_t i = 0; i < n->num_operands; i++) {
    const at_node *from = n->operands[i].node;
    if (from->op == AT_OP_CONSTANT)
      in[i] = at_node_literal(from);
    else if (from->op == AT_OP_PARAMETER)
      in[i] = args[at_node_int(from, AT_ATTR_INDEX, 0)];
    else
      in[i] = got[from->mark + n->operands[i].index];
  }
  at_eval_options eo = {0};
  AT_TRY(at_eval_node(n, in, &eo, a, want));
  for (uint32_t i = 0; i < n->num_results && !v->bad; i++)
    if (!judge_equal(judge_class(n), judge_scale(n, in), want[i],
                     got[n->mark + i], &v->why))
      blame(v, n->mark + i, n);
  return AT_OK;
}

static at_status check_each(at_arena *a, at_module *m, const at_literal **args,
                            verdict *v) {
  const at_literal **got;
  AT_TRY(return_all(m));
  AT_TRY_ALLOC(got, at_new(a, const at_literal *, m->entry->num_results + 1));
  AT_TRY(run(a, m, args, false, got));
  AT_FOR_NODES(n, m->entry) {
    if (n->op == AT_OP_CONSTANT || n->op == AT_OP_PARAMETER || !alone(n))
      continue;
    if (!v->bad) AT_TRY(check_node(a, n, args, got, v));
  }
  return AT_OK;
}

// ---- Seeds ------------------------------------------------------------------

// Keeps the nodes that result `r` needs.
static void keep_result(at_module *m, uint32_t r) {
  at_comp *c = m->entry;
  if (r >= c->num_results) return;
  c->results[0] = c->results[r];
  c->num_results = 1;
  bool changed = true;
  while (changed) {
    changed = false;
    for (at_node *n = c->last, *prev; n; n = prev) {
      prev = n->prev;
      if (n->op == AT_OP_PARAMETER || c->results[0].node == n) continue;
      bool used = false;
      AT_FOR_NODES(k, c) {
        for (uint32_t i = 0; i < k->num_operands; i++)
          used |= k->operands[i].node == n;
        used |= k->num_regions > 0 && k != n && alone(k) == false;
      }
      if (!used) at_node_remove(n), changed = true;
    }
  }
}

static bool one(const options *o, uint64_t seed, uint32_t nodes, bool special,
                bool each, bool report) {
  at_arena *a = at_arena_create();
  at_random_options ro = {.seed = seed,
                          .nodes = nodes,
                          .max_elements = o->elements,
                          .families = o->families};
  at_module *m;
  const at_literal **args;
  verdict v = {0};
  snprintf(g_doing, sizeof g_doing, "seed %llu, %u nodes, families %u%s%s",
           (unsigned long long)seed, nodes, o->families,
           special ? ", special" : "", each ? ", each" : "");
  at_status st = at_random_module(a, &ro, &m);
  bool skipped = false;
  if (at_ok(st)) skipped = special && judge_sees_nan(m->entry);
  if (at_ok(st)) st = at_random_args(a, m->entry, seed, special, &args);
  if (at_ok(st) && !skipped) {
    if (!each) coverage_count(m);
    st = each ? check_each(a, m, args, &v) : check_whole(a, m, args, &v);
  }
  bool good = at_ok(st) && !v.bad;
  if (!good && report) {
    at_strbuf text = {0};
    if (v.bad) keep_result(m, v.result);
    at_status_free(at_hlo_print(m, &text));
    printf("FAIL %s\n  %s\n%s\n", g_doing,
           at_ok(st) ? v.why.ptr : at_status_message(st),
           text.ptr ? text.ptr : "");
    at_strbuf_free(&text);
  }
  at_status_free(st);
  at_strbuf_free(&v.why);
  at_arena_destroy(a);
  return good;
}

// A shorter program of a seed is a prefix of the longer one.
static void shrink(const options *o, uint64_t seed, bool special, bool each) {
  uint32_t n = 1;
  while (n < o->nodes && one(o, seed, n, special, each, false)) n++;
  one(o, seed, n, special, each, true);
}

static bool usage(void) {
  fprintf(stderr,
          "usage: random_programs [--seeds A..B] [--nodes N] [--elements N]\n"
          "         [--families BITS] [--coverage] [--verbose]\n");
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
    if (!strcmp(k, "--verbose")) {
      o->verbose = true;
      continue;
    }
    uint64_t n = strtoull(v, &end, 10);
    if (end == v) return usage();
    if (!strcmp(k, "--seeds")) {
      o->first = o->last = n;
      if (!strncmp(end, "..", 2)) o->last = strtoull(end + 2, &end, 10);
    } else if (!strcmp(k, "--nodes")) {
      o->nodes = (uint32_t)n;
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
  options o = {.first = 1, .last = 40, .nodes = 12, .elements = 400};
  if (!parse(argc, argv, &o)) return 2;
  watch();
  setvbuf(stdout, NULL, _IOLBF, 0);
  // Dots in full precision: the evaluator does not imitate the chip's passes.
  at_status st = at_config_set(AT_CONFIG_NUMERICS, "exact");
  if (at_ok(st))
    st = at_runtime_create(&(at_runtime_options){.threads = 2}, &g_runtime);
  if (!at_ok(st)) {
    fprintf(stderr, "%s\n", at_status_message(st));
    at_status_free(st);
    return 1;
  }
  uint64_t failed = 0, cases = 0;
  for (uint64_t seed = o.first; seed <= o.last; seed++) {
    alarm(kSecondsPerSeed);
    for (int way = 0; way < 4; way++) {
      bool special = way & 1, each = way & 2;
      cases++;
      if (o.verbose)
        printf("seed %llu way %d\n", (unsigned long long)seed, way);
      if (one(&o, seed, o.nodes, special, each, false)) continue;
      failed++;
      shrink(&o, seed, special, each);
    }
  }
  alarm(0);
  if (o.coverage) coverage_print();
  printf("%llu cases, %llu failed\n", (unsigned long long)cases,
         (unsigned long long)failed);
  at_runtime_destroy(g_runtime);
  return failed > 0;
}
