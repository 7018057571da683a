// Golden plans: test/ir/tiles/plans.txt has, for products of some shapes and
// for random programs, every step that the planner makes and what lies on the
// fullest tile. A change of the cost model, of grids or of homes shows there.
// AT_UPDATE=1 writes the file anew.
#include "base/golden_test_util.h"
#include "hlo/random.h"
#include "tiles/lower.h"
#include "tiles/tiles_test_util.h"

// Every figure of a step.
static void print_step(const at_tiles_step *s, at_strbuf *out) {
  at_strbuf_addf(out, "  %s x%lld: sync %lld", s->name, (long long)s->times,
                 (long long)s->sync);
  at_strbuf_addf(out, ", exchange %lld of %lld", (long long)s->exchange,
                 (long long)s->exchange_bound);
  at_strbuf_addf(out, ", %lld + %lld + %lld on tile %u", (long long)s->pre,
                 (long long)s->execute, (long long)s->post, s->busiest);
  at_strbuf_addf(out, ", %u idle, %lld bytes, %lld rearranged\n", s->idle_tiles,
                 (long long)s->exchange_bytes, (long long)s->rearranged_bytes);
}

// The plan, its steps, the blocks of the fullest tile.
static void print_plan(const char *what, const at_tiles_plan *p,
                       at_strbuf *out) {
  at_strbuf_addf(out, "%s: %lld cycles, tile %u with %lld bytes\n", what,
                 (long long)p->cycles, p->fullest, (long long)p->peak_bytes);
  for (uint32_t i = 0; i < p->num_steps; i++) print_step(&p->steps[i], out);
  for (uint32_t i = 0; i < p->num_blocks; i++) {
    const at_tiles_block *b = &p->blocks[i];
    at_strbuf_addf(out, "  [%lld + %lld] %s: %s, %d to %d\n", (long long)b->at,
                   (long long)b->bytes,
                   at_tiles_category_text((at_tiles_category)b->category),
                   b->name, b->first, b->last);
  }
}

// Lowers and prints, or says that it was refused.
static void plan(const char *what, at_module *m, at_arena *a, at_strbuf *out) {
  at_tiles_machine t = mk2();
  at_tiles_lower_options o = {.lenient = true};
  const at_tiles_plan *p;
  at_status st = at_tiles_lower(&t, m, &o, a, &p);
  if (at_ok(st))
    print_plan(what, p, out);
  else
    at_strbuf_addf(out, "%s: refused\n", what);
  at_status_free(st);
}

// x by k by n.
static void plan_product(int64_t x, int64_t k, int64_t n, at_strbuf *out) {
  at_arena *a = at_arena_create();
  const char *text = at_arena_printf(
      a,
      "hlo module \"m\" entry=\"main\" {\n"
      "func \"main\" (%%0: f32[%lld,%lld], %%1: f32[%lld,%lld]) -> "
      "(f32[%lld,%lld]) {\n"
      "  %%2 = dot_general %%0, %%1 {lhs_batching_dimensions=[], "
      "rhs_batching_dimensions=[], lhs_contracting_dimensions=[1], "
      "rhs_contracting_dimensions=[0]} : f32[%lld,%lld]\n  return %%2\n}\n}\n",
      (long long)x, (long long)k, (long long)k, (long long)n, (long long)x,
      (long long)n, (long long)x, (long long)n);
  at_module *m;
  ok(at_hlo_parse(at_str_of(text), a, &m));
  plan(at_arena_printf(a, "product %lld x %lld x %lld", (long long)x,
                       (long long)k, (long long)n),
       m, a, out);
  at_arena_destroy(a);
}

// Eight ops of exact, moving, reducing and multiplying families.
static void plan_random(uint64_t seed, at_strbuf *out) {
  at_arena *a = at_arena_create();
  at_module *m;
  at_random_options o = {.seed = seed,
                         .nodes = 8,
                         .max_elements = 3000,
                         .families = AT_RANDOM_EXACT | AT_RANDOM_MOVE |
                                     AT_RANDOM_REDUCE | AT_RANDOM_DOT,
                         .dtypes = 1ull << AT_F32 | 1ull << AT_S32};
  ok(at_random_module(a, &o, &m));
  plan(at_arena_printf(a, "random %llu", (unsigned long long)seed), m, a, out);
  at_arena_destroy(a);
}

static void plans_are_these(void **state) {
  at_strbuf b = {0};
  plan_product(512, 512, 512, &b);
  plan_product(16, 4096, 1000, &b);
  for (uint64_t seed = 1; seed <= 16; seed++) plan_random(seed, &b);
  expect_golden("test/ir/tiles/plans.txt", &b);
  at_strbuf_free(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_these)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
