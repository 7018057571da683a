// Golden costs: testdata/nodes.txt has what each op of random programs takes on
// a TPU and on a GPU, and what collectives of some sizes take in some
// topologies, each with the source of the figure. A change of a model or of a
// table shows there. AT_UPDATE=1 writes the file anew.
#include "base/golden_test_util.h"
#include "cost/cost.h"
#include "hlo/random.h"

// Fails the test where the text is no target.
static at_target *target(const char *text, at_arena *a) {
  at_target *t = NULL;
  at_status st = at_target_parse(at_str_of(text), AT_INTERP_ATOLL, a, &t);
  if (!at_ok(st)) fail_msg("%s: %s", text, at_status_message(st));
  return t;
}

// One line of the file; consumes the status.
static void put(at_status st, at_cost_time c, at_strbuf *out) {
  if (at_ok(st))
    at_strbuf_addf(out, "  %.5g us, %s\n", c.seconds * 1e6,
                   at_cost_source_text(c.source));
  else
    at_strbuf_addf(out, "  refused\n");
  at_status_free(st);
}

// All ops of one random program.
static void put_nodes(const char *machine, uint64_t seed, at_strbuf *out) {
  at_arena *a = at_arena_create();
  const at_target *t = target(machine, a);
  at_module *m;
  at_random_options o = {.seed = seed, .nodes = 10, .max_elements = 1 << 24};
  assert_true(at_ok(at_random_module(a, &o, &m)));
  AT_FOR_NODES(n, m->entry) {
    at_cost_time c = {0};
    at_status st = at_cost_node(t, n, &c);
    at_strbuf_addf(out, "%s %llu %s.%u", machine, (unsigned long long)seed,
                   at_op_text(n->op), n->id);
    put(st, c, out);
  }
  at_arena_destroy(a);
}

// Every collective in three sizes of data, over groups of 2, 8, 32, ...
static void put_collectives(const char *machine, at_strbuf *out) {
  at_arena *a = at_arena_create();
  const at_target *t = target(machine, a);
  for (int op = 0; op < AT_PERMUTE; op++)
    for (int64_t bytes = 4 << 10; bytes <= 256 << 20; bytes <<= 8)
      for (uint32_t size = 2; size <= t->num_devices; size *= 4) {
        at_collective c = {.op = (at_collective_op)op,
                           .dtype = AT_BF16,
                           .bytes = bytes,
                           .groups = {t->num_devices / size, size, NULL}};
        at_cost_time time = {0};
        at_status st = at_cost_collective(t, &c, &time);
        at_strbuf_addf(out, "%s %s %lld bytes, groups of %u", machine,
                       at_collective_text(c.op), (long long)bytes, size);
        put(st, time, out);
      }
  at_arena_destroy(a);
}

// Pods, then programs on a TPU and a GPU.
static void costs_are_these(void **state) {
  at_strbuf b = {0};
  static const char *const pods[] = {"v5e:4x4", "v5p:2x2x4", "2*v5e:4x4",
                                     "H100:16"};
  for (size_t i = 0; i < AT_LEN(pods); i++) put_collectives(pods[i], &b);
  for (uint64_t seed = 1; seed <= 16; seed++) {
    put_nodes("v5e", seed, &b);
    put_nodes("H100", seed, &b);
  }
  expect_golden("src/cost/testdata/nodes.txt", &b);
  at_strbuf_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(costs_are_these)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
