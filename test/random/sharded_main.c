// Random programs under random shardings: the parts of every device, put
// together, are what the program gives on one device.
//
//   sharded_programs [--seeds A..B] [--run K]
//
// Partitioned programs are evaluated on all devices, against the evaluator on
// one; every K-th program is compiled, too, for chips and for one, and run.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/random.h"
#include "judge.h"
#include "run.h"
#include "shardings.h"

enum { kMostDevices = 8 };

typedef struct totals {
  uint64_t programs, compiled, collectives, bad;
  uint64_t results, untrusted;  // compared; not, as rounding may have grown
  bool met[AT_OP_COUNT];
} totals;

// One program, whole and with shardings.
typedef struct sample {
  at_arena *a;
  uint64_t seed;
  uint32_t devices;
  at_module *whole, *cut;
  at_type *params, *results;  // of the whole
  const at_literal **args;
} sample;

static uint64_t next_seed_state(uint64_t seed) {
  return seed * 0x9e3779b97f4a7c15ull + 1;
}

// Means something else on several devices: draws, the device's own number,
// groups of one device.
static bool is_alone(const at_comp *c) {
  AT_FOR_NODES(n, c) {
    if (n->op == AT_OP_RNG || n->op == AT_OP_PARTITION_ID ||
        at_op_is(n->op, AT_COLLECTIVE))
      return true;
    for (uint32_t i = 0; i < n->num_regions; i++)
      if (is_alone(n->regions[i])) return true;
  }
  return false;
}

static const at_pass_options kPasses = {.fuse = true, .fold_budget = 1 << 16};

static at_status make(at_arena *a, uint64_t seed, sample *p) {
  // Each family in turn, then everything.
  uint32_t families = seed % 8 < 7 ? 1u << (seed % 8) | AT_RANDOM_MOVE : 0;
  at_random_options o = {.seed = seed,
                         .nodes = 4 + (uint32_t)(seed % 12),
                         .max_elements = 400,
                         .families = families};
  uint64_t state = next_seed_state(seed);
  *p = (sample){.a = a, .seed = seed};
  AT_TRY(at_random_module(a, &o, &p->whole));
  AT_TRY(at_random_module(a, &o, &p->cut));
  AT_TRY(at_pass_inline(p->whole, &kPasses));
  AT_TRY(at_pass_inline(p->cut, &kPasses));
  p->devices = shardings_add(a, p->cut, &state);
  const at_comp *e = p->whole->entry;
  AT_TRY_ALLOC(p->params, at_new(a, at_type, e->num_params + 1));
  AT_TRY_ALLOC(p->results, at_new(a, at_type, e->num_results + 1));
  for (uint32_t i = 0; i < e->num_params; i++)
    p->params[i] = e->params[i]->types[0];
  for (uint32_t i = 0; i < e->num_results; i++)
    p->results[i] = *at_value_type(e->results[i]);
  return at_random_args(a, e, seed, false, &p->args);
}

// Arguments as the devices have them, and room for their results.
static at_status spread(const sample *p, const at_str *shardings,
                        const at_literal **args[kMostDevices],
                        const at_literal **out[kMostDevices]) {
  uint32_t np = p->whole->entry->num_params, nr = p->whole->entry->num_results;
  for (uint32_t d = 0; d < p->devices; d++) {
    AT_TRY_ALLOC(args[d], at_new(p->a, const at_literal *, np + 1));
    AT_TRY_ALLOC(out[d], at_new(p->a, const at_literal *, nr + 1));
    for (uint32_t i = 0; i < np; i++) {
      tiling t;
      AT_TRY(tiling_read(p->a, p->cut, &p->params[i], shardings[i], &t));
      AT_TRY(tiling_part(p->a, &t, d, p->args[i], &args[d][i]));
    }
  }
  return AT_OK;
}

// Sums of narrow numbers lose everything in another order, too.
static void set_trust(const at_comp *c) {
  judge_trust(c);
  AT_FOR_NODES(n, c) {
    bool sum = judge_class(n) == CLASS_SUM || n->op == AT_OP_SCATTER;
    if (sum && at_is_float(n->types[0].dtype) &&
        at_dtype_of(n->types[0].dtype)->bits < 16)
      n->mark = TRUST_NONE;
    for (uint32_t i = 0; i < n->num_operands; i++)
      if (n->operands[i].node->mark == TRUST_NONE) n->mark = TRUST_NONE;
  }
}

static at_status compare(const sample *p, totals *sum, const char *how,
                         const at_str *shardings,
                         const at_literal *const *whole,
                         const at_literal **const parts[kMostDevices]) {
  tiling t;
  int64_t at;
  const at_comp *e = p->whole->entry;
  set_trust(e);
  for (uint32_t i = 0; i < e->num_results; i++) {
    if (p->results[i].dtype == AT_TOKEN) continue;
    // Sums in another order round otherwise, and then it was made an integer.
    trust mark = (trust)e->results[i].node->mark;
    bool trusted = mark != TRUST_NONE;
    ++*(trusted ? &sum->results : &sum->untrusted);
    if (!trusted) continue;
    AT_TRY(tiling_read(p->a, p->cut, &p->results[i], shardings[i], &t));
    // Terms that cancel leave an element small beside what was rounded.
    double size = mark == TRUST_CLOSE ? judge_size(whole[i]) : 0;
    for (uint32_t d = 0; d < p->devices; d++)
      if (!tiling_agrees(&t, d, parts[d][i], whole[i], size, &at))
        return AT_FAIL(AT_INTERNAL,
                       "%s: result %u (%s %s) differs on device %u at element "
                       "%lld: %g",
                       how, i, at_op_text(e->results[i].node->op),
                       at_dtype_of(p->results[i].dtype)->text, d, (long long)at,
                       judge_part(parts[d][i], at, 0));
  }
  return AT_OK;
}

// ---- Compiled
static at_status read_shardings(const sample *p, at_loaded *l, at_xsection s,
                                at_str **out) {
  uint64_t n;
  const at_xio *io = at_loaded_section(l, s, &n);
  AT_TRY_ALLOC(*out, at_new(p->a, at_str, n + 1));
  for (uint64_t i = 0; i < n; i++)
    (*out)[i] = at_str_of(at_loaded_string(l, io[i].sharding));
  return AT_OK;
}

static at_status run_both(const sample *p, totals *sum, at_loaded *one,
                          at_loaded *many) {
  at_str *in, *results;
  const at_literal **args[kMostDevices], **parts[kMostDevices], **whole;
  const at_comp *e = p->whole->entry;
  AT_TRY(read_shardings(p, many, AT_XS_INPUTS, &in));
  AT_TRY(read_shardings(p, many, AT_XS_OUTPUTS, &results));
  AT_TRY_ALLOC(whole, at_new(p->a, const at_literal *, e->num_results + 1));
  AT_TRY(run_once(p->a, one, e, p->args, whole));
  AT_TRY(spread(p, in, args, parts));
  AT_TRY(run_devices(p->a, many, p->devices, e->num_params, args,
                     e->num_results, parts));
  return compare(p, sum, "run", results, whole, parts);
}

// The sharded module is still as it was made.
static at_status check_run(const sample *p, totals *sum) {
  at_loaded *one = NULL, *many = NULL;
  at_status st = run_load(p->whole, false, &one);
  if (at_ok(st)) st = run_load(p->cut, false, &many);
  if (at_ok(st)) st = run_both(p, sum, one, many);
  run_drop(one);
  run_drop(many);
  return st;
}

// ---- Evaluated
static at_status texts_of(const sample *p, const at_io_info *io, uint32_t n,
                          at_str **out) {
  AT_TRY_ALLOC(*out, at_new(p->a, at_str, n + 1));
  for (uint32_t i = 0; i < n; i++) (*out)[i] = at_str_of(io[i].sharding);
  return AT_OK;
}

static at_status check_evaluated(const sample *p, totals *sum) {
  at_eval_options o = {.custom = at_eval_linalg_custom};
  at_str *in, *results;
  const at_literal **args[kMostDevices], **parts[kMostDevices], **whole;
  const at_comp *e = p->whole->entry;
  AT_TRY(at_pass_partition(p->cut, &kPasses));
  AT_TRY(at_pass_combine(p->cut, &kPasses));
  AT_TRY(at_verify(p->cut, "partition"));
  AT_FOR_NODES(n, e) sum->met[n->op] = true;
  AT_FOR_NODES(n, p->cut->entry)
  sum->collectives += at_op_is(n->op, AT_COLLECTIVE);
  AT_TRY(texts_of(p, p->cut->params, e->num_params, &in));
  AT_TRY(texts_of(p, p->cut->results, e->num_results, &results));
  AT_TRY_ALLOC(whole, at_new(p->a, const at_literal *, e->num_results + 1));
  AT_TRY(at_eval(e, p->args, &o, p->a, whole));
  AT_TRY(spread(p, in, args, parts));
  const at_literal *const *list[kMostDevices];
  for (uint32_t d = 0; d < p->devices; d++) list[d] = args[d];
  AT_TRY(at_eval_devices(p->cut->entry, list, &o, p->a, parts));
  return compare(p, sum, "evaluated", results, whole, parts);
}

// ---- All
static at_status check(at_arena *a, uint64_t seed, uint64_t every,
                       totals *sum) {
  sample p;
  AT_TRY(make(a, seed, &p));
  if (is_alone(p.whole->entry)) return AT_OK;
  sum->programs++;
  if (every && sum->programs % every == 0) {
    sum->compiled++;
    AT_TRY(check_run(&p, sum));
  }
  return check_evaluated(&p, sum);
}

static bool enough(const totals *t, uint32_t ops) {
  bool all = t->programs < 500 || (ops >= 80 && t->collectives > t->programs &&
                                   t->untrusted < t->results / 4 &&
                                   shardings_uneven() > t->programs / 2);
  if (!all) fprintf(stderr, "too little variety\n");
  return all;
}

int main(int argc, char **argv) {
  unsigned long long first = 1, last = 700, every = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--seeds"))
      sscanf(argv[i + 1], "%llu..%llu", &first, &last);
    else if (!strcmp(argv[i], "--run"))
      every = strtoull(argv[i + 1], NULL, 10);
  }
  static totals sum;
  at_status st = run_start("v5e:2x4");
  if (!at_ok(st)) {
    fprintf(stderr, "%s\n", at_status_message(st));
    return 1;
  }
  for (uint64_t seed = first; seed <= last; seed++) {
    at_arena *a = at_arena_create();
    st = check(a, seed, every, &sum);
    if (!at_ok(st)) {
      sum.bad++;
      printf("seed %llu: %s\n", (unsigned long long)seed,
             at_status_message(st));
    }
    at_status_free(st);
    at_arena_destroy(a);
  }
  run_stop();
  uint32_t ops = 0;
  for (uint32_t i = 0; i < AT_OP_COUNT; i++) ops += sum.met[i];
  printf(
      "%llu programs of %u ops, %llu of them compiled and run on chips; %llu "
      "collectives, %llu uneven cuts; %llu results compared, %llu not; %llu "
      "programs differ\n",
      (unsigned long long)sum.programs, ops, (unsigned long long)sum.compiled,
      (unsigned long long)sum.collectives,
      (unsigned long long)shardings_uneven(), (unsigned long long)sum.results,
      (unsigned long long)sum.untrusted, (unsigned long long)sum.bad);
  return sum.bad || !enough(&sum, ops);
}
