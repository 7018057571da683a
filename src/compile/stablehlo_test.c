// Every form of random programs, printed as StableHLO, imported again: the same
// values.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the headers above first.
#include <cmocka.h>
#include <string.h>

#include "compile/stablehlo.h"
#include "hlo/random.h"
#include "import/import.h"
#include "mlir/mlir.h"

// Equal bytes, or both elements NaN.
static bool same(const at_literal *x, const at_literal *y) {
  at_dtype t = x->type.dtype, real = at_real_of(t);
  if (!at_type_eq(&x->type, &y->type)) return false;
  if (t == AT_TOKEN) return true;
  size_t bytes = at_dtype_bytes(real);
  for (int64_t i = 0; i < at_type_elements(&x->type); i++)
    for (int k = 0; k < 1 + at_is_complex(t); k++) {
      const uint8_t *p = (const uint8_t *)at_literal_at(x, i) + k * bytes;
      const uint8_t *q = (const uint8_t *)at_literal_at(y, i) + k * bytes;
      if (!memcmp(p, q, bytes)) continue;
      if (!at_is_float(real)) return false;
      double a = at_load_float(real, p), b = at_load_float(real, q);
      if (a == a || b == b) return false;
    }
  return true;
}

static at_status read_again(const at_module *m, at_arena *a, at_module **out) {
  at_strbuf b = {0};
  at_mmodule *read;
  at_status st = at_stablehlo_print(m, &b);
  char *text = at_strbuf_move(&b, a);
  AT_TRY(st);
  if (!text) return AT_NO_MEMORY("text");
  AT_TRY(at_mlir_read_text(at_str_of(text), a, &read));
  AT_TRY(at_import(read, a, out));
  return at_verify(*out, "import");
}

static at_status check(at_arena *a, const at_random_options *o) {
  at_eval_options eo = {.custom = at_eval_linalg_custom};
  const at_literal **args, *want[32], *got[32];
  at_module *m, *again;
  AT_TRY(at_random_module(a, o, &m));
  AT_TRY(read_again(m, a, &again));
  AT_TRY(at_random_args(a, m->entry, o->seed, false, &args));
  AT_TRY(at_eval(m->entry, args, &eo, a, want));
  AT_TRY(at_eval(again->entry, args, &eo, a, got));
  assert_int_equal(m->entry->num_results, again->entry->num_results);
  for (uint32_t i = 0; i < m->entry->num_results; i++)
    if (!same(want[i], got[i]))
      return AT_FAIL(AT_INTERNAL, "result %u differs", i);
  return AT_OK;
}

// One program of one step for each pair: those that have no form are counted.
static void every_pair(void **state) {
  (void)state;
  at_random_options o = {.nodes = 1, .max_elements = 60};
  uint32_t without = 0, pairs = at_random_num_pairs(&o);
  bool met[AT_OP_COUNT] = {0};
  for (uint32_t k = 1; k <= pairs; k++) {
    o.seed = o.first = k;
    at_random_pair p = at_random_nth(&o, k);
    at_arena *a = at_arena_create();
    at_status st = check(a, &o);
    at_op op = at_random_row_op(p.row);
    met[op] |= at_ok(st);
    without += !at_ok(st);
    if (!at_ok(st) && at_status_code(st) != AT_UNIMPLEMENTED)
      fail_msg("%s %s of %s: %s", at_op_text(op), at_random_row_variant(p.row),
               at_dtype_of(p.dtype)->text, at_status_message(st));
    at_status_free(st);
    at_arena_destroy(a);
  }
  // Scans come from a pass; of top_k CHLO has the largest alone.
  assert_in_range(without, 20, 60);
  for (uint32_t op = 0; op < AT_OP_COUNT; op++)
    if (!at_random_reason((at_op)op)) assert_true(met[op] || op == AT_OP_SCAN);
}

// Clients that do not ask for shardings read them from the module.
static void shardings_are_told(void **state) {
  static const char text[] =
      "module @m attributes {mhlo.num_partitions = 2 : i32} {\n"
      "func.func public @main(%%x: tensor<4xf32> {mhlo.sharding = "
      "\"{devices=[2]<=[2]}\"}, %%y: tensor<4xf32>) -> (tensor<4xf32> "
      "{mhlo.sharding = \"{devices=[2]<=[2]}\"}%s) {\n"
      "  return %%x%s : tensor<4xf32>%s\n}\n}\n";
  static const struct {
    bool both;
    const char *says;
  } cases[] = {
      {false, "mhlo.spmd_output_sharding = \"{devices=[2]<=[2]}\"}"},
      {true,
       "mhlo.spmd_output_sharding = \"{{devices=[2]<=[2]}, "
       "{replicated}}\"}"},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_arena *a = at_arena_create();
    bool both = cases[i].both;
    char *program =
        at_arena_printf(a, text, both ? ", tensor<4xf32>" : "",
                        both ? ", %y" : "", both ? ", tensor<4xf32>" : "");
    at_mmodule *read;
    at_module *m;
    at_strbuf b = {0};
    assert_true(at_ok(at_mlir_read_text(at_str_of(program), a, &read)));
    assert_true(at_ok(at_import(read, a, &m)));
    assert_true(at_ok(at_stablehlo_print(m, &b)));
    char *shown = at_strbuf_move(&b, a);
    if (!strstr(shown, cases[i].says) ||
        !strstr(shown,
                "mhlo.spmd_parameters_shardings = "
                "[\"{devices=[2]<=[2]}\", \"{replicated}\"]"))
      fail_msg("%s", shown);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_pair),
                                     cmocka_unit_test(shardings_are_told)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
