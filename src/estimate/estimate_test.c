// Programs whose estimates are known: kernels as the TPU compiler cuts them,
// its totals, memory, loops, overlap, and what is refused.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/json.h"
#include "estimate/estimate_test_util.h"

// The code of what is refused.
static at_code code_of(const char *target, const char *text) {
  at_arena *a = at_arena_create();
  at_estimate_options o = {.target = target};
  at_estimate *e = NULL;
  at_bytes program = {(const uint8_t *)text, strlen(text)};
  at_code code = at_code_take(at_estimate_run(program, &o, a, &e));
  at_arena_destroy(a);
  return code;
}

#define MAIN(args, result, body) \
  "func.func public @main(" args ") -> " result " {\n" body "}\n"
#define BINARY(op, t)          \
  MAIN("%a: " t ", %b: " t, t, \
       "%r = stablehlo." op " %a, %b : " t "\nreturn %r : " t "\n")

// Within a share of what is wanted.
static void near(double got, double want, double share) {
  if (!(fabs(got / want - 1) <= share))
    fail_msg("%g is not within %g of %g", got, share, want);
}

// Totals of the compiler's own estimates, in cycles.
static void totals_are_the_compilers(void **state) {
  static const struct {
    const char *target, *program;
    double clock, cycles;
  } rows[] = {
      {"v5e", BINARY("add", "tensor<4096x4096xf32>"), 1.5e9, 641888},
      {"v6e", BINARY("add", "tensor<4096x4096xf32>"), 1.75e9, 485984},
      {"v5e", BINARY("add", "tensor<256x256xf32>"), 1.5e9, 3463},
      {"v5e", BINARY("divide", "tensor<2048x2048xf32>"), 1.5e9, 160544},
      {"v5e",
       MAIN("%a: tensor<4096x4096xbf16>", "tensor<4096x4096xbf16>",
            "%r = stablehlo.tanh %a : tensor<4096x4096xbf16>\nreturn %r : "
            "tensor<4096x4096xbf16>\n"),
       1.5e9, 505440},
      {"v5e",
       MAIN("%a: tensor<4096x4096xbf16>, %b: tensor<4096x4096xbf16>",
            "tensor<4096x4096xbf16>",
            "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
            "(tensor<4096x4096xbf16>, tensor<4096x4096xbf16>) -> "
            "tensor<4096x4096xbf16>\n"
            "return %r : tensor<4096x4096xbf16>\n"),
       1.5e9, 1083068},
      {"v6e",
       MAIN("%a: tensor<4096x64xbf16>, %b: tensor<64x4096xbf16>",
            "tensor<4096x4096xbf16>",
            "%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
            "(tensor<4096x64xbf16>, tensor<64x4096xbf16>) -> "
            "tensor<4096x4096xbf16>\n"
            "return %r : tensor<4096x4096xbf16>\n"),
       1.75e9, 129176},
      // No rows and no columns: multiplied and summed by the vector unit.
      {"v6e",
       MAIN("%a: tensor<4x32x8192x128xbf16>, %b: tensor<4x32x8192x128xbf16>",
            "tensor<4x32x8192xf32>",
            "%r = stablehlo.dot_general %a, %b, "
            "batching_dims = [0, 1, 2] x [0, 1, 2], contracting_dims = [3] x "
            "[3] : (tensor<4x32x8192x128xbf16>, tensor<4x32x8192x128xbf16>) -> "
            "tensor<4x32x8192xf32>\n"
            "return %r : tensor<4x32x8192xf32>\n"),
       1.75e9, 1419264},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    at_estimate *e = estimate(a, rows[i].target, rows[i].program);
    assert_int_equal(e->num_ops, 1);
    near(e->kernels * rows[i].clock, rows[i].cycles, .08);
    assert_true(e->low < e->seconds && e->seconds < e->high);
    at_arena_destroy(a);
  }
}

#define BF "tensor<1024x1024xbf16>"
#define DOT(out, x, y)                     \
  out " = stablehlo.dot_general " x ", " y \
      ", contracting_dims = [1] x [0] : (" BF ", " BF ") -> " BF "\n"

// Both values of a program in one place.
static bool one_place(void *user, at_value v, uint64_t *out) {
  return *out = 64, user != NULL;
}

// A step in place writes lines that it has just read; elsewhere, whatever was
// there before is long gone.
static void steps_in_place_write_what_caches_hold(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  assert_int_equal(
      at_code_take(at_hlo_parse(
          AT_STR("hlo module \"m\" entry=\"main\" {\n"
                 "func \"main\" (%0: f32[1024]) -> (f32[1024]) {\n"
                 "  %1 = tanh %0 : f32[1024]\n  return %1\n}\n}\n"),
          a, &m)),
      0);
  at_value in = {m->entry->params[0], 0}, out = m->entry->results[0];
  for (int known = 0; known < 2; known++) {
    at_est_reuse r = {.arena = a,
                      .comp = m->entry,
                      .last = at_map_in(a),
                      .footprint = 1e9,
                      .temps = 1e9,
                      .address = one_place,
                      .address_user = known ? a : NULL};
    near(at_est_distance(&r, in, 4096, false), 1e9 + 4096, 1e-9);
    near(at_est_distance(&r, out, 4096, true), known ? 4096 : 1e9 + 4096, 1e-9);
  }
  at_arena_destroy(a);
}

// Weights that wait on the host: their copy hides behind the other product, and
// they take no memory of the chip until then.
static void copies_from_the_host(void **state) {
  static const char *const program = MAIN(
      "%x: " BF ", %w: " BF ", %v: " BF " {mhlo.memory_kind = \"pinned_host\"}",
      BF,
      DOT("%0", "%x", "%w") "%1 = stablehlo.custom_call "
                            "@annotate_device_placement(%v) {has_side_effect = "
                            "true, mhlo.frontend_attributes = "
                            "{_xla_buffer_placement = \"device\"}} : (" BF
                            ") -> " BF "\n" DOT("%2", "%0", "%1") "return %2 : " BF
                                                                 "\n");
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(a, "v5e", program);
  double copy = 2. * 1024 * 1024 / 16e9;
  near(e->host_link, copy, 1e-6);
  near(e->network, copy, 1e-6);
  assert_true(e->exposed < copy && e->exposed > .5 * copy);
  assert_int_equal(e->argument_bytes, 2 * 2 * 1024 * 1024);
  assert_true(e->by_source[AT_COST_FROM_HOST_LINK] > 0);
  at_strbuf trace = {0};
  at_estimate_trace(e, &trace);
  assert_non_null(strstr(trace.ptr, "host link"));
  at_strbuf_free(&trace);
  at_arena_destroy(a);
}

// relu((x w) + x) w: the elementwise part is computed with the first product.
static void elementwise_work_joins_products(void **state) {
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(
      a, "v5e",
      MAIN("%x: " BF ", %w: " BF, BF,
           "%z = stablehlo.constant dense<0.0> : " BF "\n" DOT(
               "%0", "%x", "%w") "%1 = stablehlo.add %0, %x : " BF
                                 "\n%2 = stablehlo.maximum %1, %z : " BF
                                 "\n" DOT("%3", "%2", "%w") "return %3 : " BF
                                                            "\n"));
  assert_int_equal(e->num_ops, 2);
  assert_true(e->flops == 2 * 2. * 1024 * 1024 * 1024 + 2 * 1024 * 1024);
  assert_true(e->ops[0].nodes == 3 || e->ops[1].nodes == 3);
  assert_int_equal(e->argument_bytes, 2 * 2 * 1024 * 1024);
  assert_int_equal(e->peak_bytes, 3 * 2 * 1024 * 1024);  // %2 stays in VMEM
  assert_true(e->mfu > .2 && e->mfu < 1);
  assert_true(e->num_buffers == 3);
  at_arena_destroy(a);
}

static const char kLoop[] =
    MAIN("%x: " BF ", %w: " BF, BF,
         "%i = stablehlo.constant dense<0> : tensor<i32>\n"
         "%n = stablehlo.constant dense<12> : tensor<i32>\n"
         "%one = stablehlo.constant dense<1> : tensor<i32>\n"
         "%r:2 = stablehlo.while(%k = %i, %h = %x) : tensor<i32>, " BF
         "\n"
         "cond {\n%c = stablehlo.compare LT, %k, %n : (tensor<i32>, "
         "tensor<i32>) -> tensor<i1>\n"
         "stablehlo.return %c : tensor<i1>\n} do {\n" DOT(
             "%y", "%h", "%w") "%t = stablehlo.tanh %y : " BF
                               "\n%j = stablehlo.add %k, %one : tensor<i32>\n"
                               "stablehlo.return %j, %t : tensor<i32>, " BF
                               "\n}\nreturn %r#1 : " BF "\n");

// Twelve turns of one product.
static void loops_count_their_turns(void **state) {
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(a, "v6e", kLoop);
  double product = 0;
  for (uint32_t i = 0; i < e->num_ops; i++)
    if (e->ops[i].flops > 1e9) {
      product = e->ops[i].seconds;
      assert_true(e->ops[i].count == 12 && e->ops[i].level == 1);
    }
  assert_true(product > 0 && e->seconds >= 12 * product);
  assert_true(e->flops > 12 * 2e9);
  assert_int_equal(e->num_notes, 0);
  at_arena_destroy(a);
}

// Chips with faster units and memory take less.
static void machines_differ_as_they_should(void **state) {
  at_arena *a = at_arena_create();
  double v5e = estimate(a, "v5e", kLoop)->seconds;
  double v5p = estimate(a, "v5p", kLoop)->seconds;
  double v6e = estimate(a, "v6e", kLoop)->seconds;
  assert_true(v5e > v5p && v5e > v6e);
  at_arena_destroy(a);
}

// Nothing to do takes no time; no elements, or one, a finite time.
static void empty_and_tiny_programs(void **state) {
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(a, "v6e",
                            MAIN("%a: tensor<4xf32>", "tensor<4xf32>",
                                 "return %a : tensor<4xf32>\n"));
  assert_int_equal(e->num_ops, 0);
  assert_true(e->seconds == 0 && e->mfu == 0);
  e = estimate(a, "v6e", BINARY("add", "tensor<0x128xf32>"));
  assert_true(isfinite(e->seconds));
  e = estimate(a, "v6e", BINARY("add", "tensor<f32>"));
  assert_true(isfinite(e->seconds) && e->peak_bytes > 0);
  at_arena_destroy(a);
}

// Targets and programs that are none.
static void bad_input_is_refused(void **state) {
  assert_int_equal(code_of("v9", kLoop), AT_INVALID_ARGUMENT);
  assert_int_equal(code_of("", kLoop), AT_INVALID_ARGUMENT);
  assert_int_not_equal(code_of("v6e:0x4", kLoop), AT_OK_CODE);
  assert_int_equal(code_of("v6e", "not a program"), AT_INVALID_ARGUMENT);
  assert_int_equal(code_of("v6e", ""), AT_INVALID_ARGUMENT);
  // Values of unknown size would count nothing.
  assert_int_equal(code_of("v6e", BINARY("add", "tensor<?x128xf32>")),
                   AT_UNIMPLEMENTED);
  assert_int_equal(code_of("h100", BINARY("add", "tensor<?x128xf32>")),
                   AT_UNIMPLEMENTED);
}

// JSON parses, and each form holds what it must.
static void reports_are_well_formed(void **state) {
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(a, "v6e", kLoop), *o = estimate(a, "v5e", kLoop);
  at_strbuf json = {0}, trace = {0}, text = {0}, page = {0}, both = {0},
            xspace = {0};
  at_estimate_json(e, &json);
  at_estimate_trace(e, &trace);
  at_estimate_text(e, 5, &text);
  at_estimate_compare(e, o, 5, &both);
  at_estimate_html(e, o, &page);
  assert_int_equal(at_code_take(at_estimate_xspace(e, &xspace)), 0);
  const at_json *j;
  assert_int_equal(at_code_take(at_json_parse(
                       (at_bytes){(uint8_t *)json.ptr, json.len}, a, &j)),
                   0);
  near(at_json_get_num(j, "seconds", 0), e->seconds, 1e-9);
  assert_int_equal(at_json_get(j, "ops")->len, e->num_ops);
  assert_int_equal(at_code_take(at_json_parse(
                       (at_bytes){(uint8_t *)trace.ptr, trace.len}, a, &j)),
                   0);
  assert_int_equal(at_json_get(j, "traceEvents")->len, e->num_ops + 2);
  assert_non_null(strstr(text.ptr, "dot_general"));
  assert_non_null(strstr(both.ptr, "second/first"));
  assert_non_null(strstr(page.ptr, "</html>"));
  assert_null(strstr(page.ptr, "http"));  // nothing from elsewhere
  const char mark[] = "type=\"application/json\">";
  char *data = strstr(page.ptr, mark), *end;
  assert_non_null(data);
  data += strlen(mark);
  assert_non_null(end = strstr(data, "</script>"));
  assert_int_equal(
      at_code_take(at_json_parse(
          (at_bytes){(uint8_t *)data, (size_t)(end - data)}, a, &j)),
      0);
  static const char *const columns[] = {
      "name",       "detail", "source",  "scope", "start",
      "seconds_of", "runs",   "exposed", "lane",  "bound",
      "flops",      "hbm",    "from",    "loop",  "again"};
  for (size_t i = 0; i < AT_LEN(columns); i++)
    assert_int_equal(at_json_get(j, columns[i])->len, e->num_ops);
  near(at_json_get_num(j, "all", 0), e->seconds, 1e-9);
  assert_int_equal(at_json_get(j, "steps")->len, e->num_steps);
  assert_int_equal(at_json_get(j, "lives")->len, e->num_temps);
  assert_null(memchr(data, '<', (size_t)(end - data)));
  assert_true(xspace.len > 100);
  at_strbuf_free(&json), at_strbuf_free(&trace), at_strbuf_free(&text);
  at_strbuf_free(&page), at_strbuf_free(&both), at_strbuf_free(&xspace);
  at_arena_destroy(a);
}

// A sort has no basis on a TPU: its bytes are counted, and the report says so.
static void ops_without_a_basis_are_named(void **state) {
  at_arena *a = at_arena_create();
  at_estimate *e = estimate(
      a, "v5e",
      MAIN("%a: tensor<4096xf32>", "tensor<4096xf32>",
           "%r = \"stablehlo.sort\"(%a) ({\n^bb0(%p: tensor<f32>, %q: "
           "tensor<f32>):\n%c = stablehlo.compare LT, %p, %q : (tensor<f32>, "
           "tensor<f32>) -> tensor<i1>\nstablehlo.return %c : tensor<i1>\n}) "
           "{dimension = 0 : i64, is_stable = false} : (tensor<4096xf32>) -> "
           "tensor<4096xf32>\nreturn %r : tensor<4096xf32>\n"));
  assert_int_equal(e->num_notes, 1);
  assert_non_null(strstr(e->notes[0], "sort: there is no basis"));
  assert_true(e->by_source[AT_COST_FROM_ROOFLINE] == e->kernels);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(totals_are_the_compilers),
      cmocka_unit_test(copies_from_the_host),
      cmocka_unit_test(steps_in_place_write_what_caches_hold),
      cmocka_unit_test(elementwise_work_joins_products),
      cmocka_unit_test(loops_count_their_turns),
      cmocka_unit_test(machines_differ_as_they_should),
      cmocka_unit_test(empty_and_tiny_programs),
      cmocka_unit_test(bad_input_is_refused),
      cmocka_unit_test(reports_are_well_formed),
      cmocka_unit_test(ops_without_a_basis_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
