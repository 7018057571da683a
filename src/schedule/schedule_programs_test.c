// Golden schedules: testdata/programs.txt has, for random programs, the order
// of their nodes and where the memory plan puts each value. AT_UPDATE=1 writes
// the file anew.
#include "base/golden_test_util.h"
#include "hlo/random.h"
#include "schedule/schedule.h"

static void put_order(const at_comp *c, at_strbuf *out) {
  AT_FOR_NODES(n, c) {
    at_strbuf_addf(out, " %u", n->id);
    for (uint32_t r = 0; r < n->num_regions; r++) {
      at_strbuf_addz(out, " (");
      put_order(n->regions[r], out);
      at_strbuf_addz(out, " )");
    }
  }
}

static void put_slots(const at_plan *p, at_strbuf *out) {
  for (uint32_t i = 0; i < p->num_slots; i++) {
    const at_xslot *s = &p->slots[i];
    at_strbuf_addf(out, " %u:%u@%llu+%llu", s->kind, s->index,
                   (unsigned long long)s->offset, (unsigned long long)s->bytes);
  }
}

static void put_program(uint64_t seed, uint32_t families, at_strbuf *out) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_random_options o = {
      .seed = seed, .nodes = 24, .max_elements = 1 << 16, .families = families};
  at_plan_hooks none = {0};
  at_plan plan = {0};
  assert_true(at_ok(at_random_module(a, &o, &m)));
  assert_true(at_ok(at_schedule_order(m)));
  at_strbuf_addf(out, "%llu order:", (unsigned long long)seed);
  put_order(m->entry, out);
  assert_true(at_ok(at_plan_memory(m, &none, a, &plan)));
  assert_true(at_ok(at_plan_verify(m, &plan)));
  at_strbuf_addf(out, "\n%llu %llu bytes:", (unsigned long long)seed,
                 (unsigned long long)plan.temp_bytes);
  put_slots(&plan, out);
  at_strbuf_addz(out, "\n");
  at_arena_destroy(a);
}

static void schedules_are_these(void **state) {
  at_strbuf b = {0};
  for (uint64_t seed = 1; seed <= 24; seed++)
    put_program(seed, seed % 2 ? 0 : AT_RANDOM_EXACT | AT_RANDOM_CONTROL, &b);
  expect_golden("src/schedule/testdata/programs.txt", &b);
  at_strbuf_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(schedules_are_these)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
