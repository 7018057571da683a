// One count of FLOPs and transcendentals: cost_analysis(), the ops of a profile
// and the estimate of a chip agree to the last, on every row of random.def and
// on programs of many, though each cuts programs into kernels of its own.
// cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
// clang-format on

#include "compile/describe.h"
#include "estimate/estimate.h"
#include "hlo/random.h"

typedef struct sums {
  double flops, transcendentals;
} sums;

static void must(at_status st, const char *what) {
  if (!at_ok(st)) fail_msg("%s: %s", what, at_status_message(st));
}

static sums of_compiled(at_bytes program, at_arena *a, const char *what) {
  at_compile_options o = {.threads = 1, .no_cache = true, .dump_dir = ""};
  at_count c;
  must(at_compile_costs(program, &o, a, &c), what);
  return (sums){c.flops, c.transcendentals};
}

static sums of_profile(at_bytes program, at_arena *a, const char *what) {
  at_compile_options o = {.threads = 1, .no_cache = true, .dump_dir = ""};
  at_described d;
  sums s = {0};
  must(at_compile_describe(program, &o, 0, a, &d), what);
  for (uint32_t i = 0; i < d.num_ops; i++) {
    s.flops += d.ops[i].flops;
    s.transcendentals += d.ops[i].transcendentals;
  }
  return s;
}

// One turn of loops.
static sums of_estimate(at_bytes program, at_arena *a, const char *what) {
  at_estimate_options o = {.target = "v5e", .mode = AT_INTERP_ATOLL};
  at_estimate *e;
  sums s = {0};
  must(at_estimate_run(program, &o, a, &e), what);
  for (uint32_t i = 0; i < e->num_ops; i++) {
    s.flops += e->ops[i].flops;
    s.transcendentals += e->ops[i].transcendentals;
  }
  return s;
}

static void same(const char *what, const char *who, sums x, sums y) {
  if (x.flops != y.flops || x.transcendentals != y.transcendentals)
    fail_msg(
        "%s: %.0f FLOP, %.0f transcendentals in the program, %.0f and "
        "%.0f in %s",
        what, x.flops, x.transcendentals, y.flops, y.transcendentals, who);
}

// Programs with loops have ops for a turn and for all of them in a profile; of
// branches an estimate has the one that takes longest.
enum { LOOPS = 1, BRANCHES = 2 };
static int holds(const at_comp *c) {
  int found = 0;
  AT_FOR_NODES(n, c) {
    found |= n->op == AT_OP_WHILE                       ? LOOPS
             : n->op == AT_OP_IF || n->op == AT_OP_CASE ? BRANCHES
                                                        : 0;
    for (uint32_t r = 0; r < n->num_regions; r++) found |= holds(n->regions[r]);
  }
  return found;
}

static double check(const at_random_options *o, const char *name) {
  at_arena *a = at_arena_create();
  at_module *m;
  char what[96];
  snprintf(what, sizeof what, "%.60s, seed %llu", name,
           (unsigned long long)o->seed);
  must(at_random_module(a, o, &m), what);
  int held = holds(m->entry);
  at_strbuf text = {0};
  must(at_hlo_print(m, &text), what);
  at_bytes program = {(const uint8_t *)text.ptr, text.len};
  sums all = of_compiled(program, a, what);
  if (!held) same(what, "the profile", all, of_profile(program, a, what));
  sums chip = of_estimate(program, a, what);
  if (!(held & BRANCHES)) same(what, "the estimate", all, chip);
  at_strbuf_free(&text);
  at_arena_destroy(a);
  return all.flops + all.transcendentals;
}

static void every_row_counts_alike(void **state) {
  uint32_t counted = 0;
  for (uint32_t row = 0; row < at_random_num_rows(); row++) {
    at_random_options o = {.nodes = 6,
                           .max_elements = 300,
                           .only = at_op_text(at_random_row_op(row))};
    double sum = 0;
    for (o.seed = 1; o.seed <= 3; o.seed++) sum += check(&o, o.only);
    counted += sum > 0;
  }
  assert_true(counted > at_random_num_rows() / 2);
}

static void programs_count_alike(void **state) {
  const char *scale = getenv("AT_RANDOM_SCALE");
  uint64_t times = scale ? strtoull(scale, NULL, 10) : 1;
  for (uint64_t seed = 1; seed <= 60 * times; seed++)
    check(&(at_random_options){.seed = seed, .nodes = 30, .max_elements = 300},
          "a program");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_row_counts_alike),
      cmocka_unit_test(programs_count_alike),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
