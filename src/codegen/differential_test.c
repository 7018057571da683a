// Every node of random programs against the evaluator.
#include "hlo/random.h"

#include "codegen/check.h"

typedef struct ck_values {
  at_value *ptr;
  const at_literal **literals;
  uint32_t len;
} ck_values;

// The entry returns everything that it computes, so that one evaluation gives
// the operands and the results of every node.
static void evaluate_all(ck *c, at_comp *entry, uint64_t seed, ck_values *out) {
  uint32_t count = 0;
  AT_FOR_NODES(n, entry) count += n->num_results;
  out->ptr = at_new(c->arena, at_value, count + 1);
  out->literals = at_new(c->arena, const at_literal *, count + 1);
  assert_true(out->ptr && out->literals);
  AT_FOR_NODES(n, entry)
  for (uint32_t r = 0; r < n->num_results; r++)
    out->ptr[out->len++] = (at_value){n, r};
  at_value *results = entry->results;
  uint32_t num_results = entry->num_results;
  entry->results = out->ptr;
  entry->num_results = out->len;
  const at_literal **args;
  ck_ok(at_random_args(c->arena, entry, seed, false, &args));
  at_eval_options o = {.custom = at_eval_linalg_custom};
  ck_ok(at_eval(entry, args, &o, c->arena, out->literals));
  entry->results = results;
  entry->num_results = num_results;
}

// What the evaluator has for a value; NULL: it is not of the entry.
static const at_literal *value_of(const ck_values *v, at_value x) {
  for (uint32_t i = 0; i < v->len; i++)
    if (at_value_eq(v->ptr[i], x)) return v->literals[i];
  return NULL;
}

// n alone as a case: its operands are the evaluator's values, so that an error
// does not reach the nodes behind it.
static void add_node(ck *c, const ck_values *v, const at_node *n) {
  if (n->num_operands > CK_MAX_ARGS || n->num_results > CK_MAX_ARGS) return;
  ck_case *k = &c->cases[c->num_cases++];
  *k = (ck_case){.node = n, .ulps = c->ulps, .absolute = c->absolute};
  for (uint32_t i = 0; i < n->num_operands; i++)
    assert_non_null(k->args[i] = value_of(v, n->operands[i]));
  for (uint32_t r = 0; r < n->num_results; r++) {
    assert_non_null(k->want[r] = value_of(v, (at_value){(at_node *)n, r}));
    k->alias[r] = -1;
  }
}

// One random program. A failure names the seed, the size and the families: that
// is all it takes to repeat it.
static void check(uint64_t seed, uint32_t nodes, uint32_t families) {
  ck c;
  ck_begin(&c, ~0ull);
  c.ulps = 64;
  c.absolute = 1e-3;
  at_random_options o = {
      .seed = seed, .nodes = nodes, .max_elements = 600, .families = families};
  at_module *m;
  ck_ok(at_random_module(c.arena, &o, &m));
  ck_values v = {0};
  evaluate_all(&c, m->entry, seed, &v);
  AT_FOR_NODES(n, m->entry) {
    // Complex powers are close by magnitude, not part by part: test/random.
    bool parts = n->op == AT_OP_POWER && at_is_complex(n->types[0].dtype);
    if (at_cg_supports(n) && !parts) add_node(&c, &v, n);
  }
  snprintf(c.title, sizeof c.title,
           "seed %llu, %u nodes, families %u: ", (unsigned long long)seed,
           nodes, families);
  ck_end(&c);
}

// How many times as many programs: AT_RANDOM_SCALE, 1 by default.
static uint64_t scale(void) {
  const char *z = getenv("AT_RANDOM_SCALE");
  return z ? strtoull(z, NULL, 10) : 1;
}

static void test_reductions(void **state) {
  for (uint64_t s = 1; s <= 12 * scale(); s++)
    check(300 + s, 10, AT_RANDOM_REDUCE);
}
static void test_all(void **state) {
  for (uint64_t s = 1; s <= 12 * scale(); s++) check(s, 14, 0);
}
// Programs that have found defects.
static void test_found(void **state) {
  check(311, 10, AT_RANDOM_REDUCE);
  check(407, 14, 0);
  check(1335, 14, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_found),
                                     cmocka_unit_test(test_reductions),
                                     cmocka_unit_test(test_all)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
