// Control flow, bodies, custom calls, budgets and errors of the evaluator.
// cmocka.h needs the others first.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <math.h>
#include <stdio.h>

#include "hlo/hlo.h"

enum { kMost = 8 };
// A program that was evaluated, and its results; the arena holds all of it.
typedef struct run {
  at_arena *a;
  at_module *m;
  const at_literal *out[kMost];
} run;

// Parses, verifies and evaluates; the caller destroys r->a on every path.
static at_status start(run *r, const char *text, const at_eval_options *o) {
  r->a = at_arena_create();
  AT_TRY(at_hlo_parse(at_str_of(text), r->a, &r->m));
  AT_TRY(at_verify(r->m, NULL));
  return at_eval(r->m->entry, NULL, o, r->a, r->out);
}

// A program whose function takes nothing and returns `types`; the caller closes
// the module.
#define MAIN(types, body)                                          \
  "hlo module \"t\" entry=\"main\" {\nfunc \"main\" () -> (" types \
  ") {\n" body "}\n"

// A program that must evaluate; custom calls of linear algebra are known.
static run good(const char *text) {
  run r = {0};
  at_eval_options o = {.custom = at_eval_linalg_custom};
  at_status s = start(&r, text, &o);
  if (!at_ok(s)) fail_msg("%s", at_status_message(s));
  return r;
}

// A program that must fail with that code and those words.
static void bad(const char *text, const at_eval_options *o, at_code code,
                const char *message) {
  run r = {0};
  at_status s = start(&r, text, o);
  assert_int_equal(at_status_code(s), code);
  if (!strstr(at_status_message(s), message))
    fail_msg("%s", at_status_message(s));
  at_status_free(s);
  at_arena_destroy(r.a);
}

// 3x + 1 from 27 takes 111 steps and peaks at 9232.
static const char collatz[] =
    MAIN("i32[], i32[], i32[]",
         "%0 = constant {value=i32[] 27}\n"
         "%1 = constant {value=i32[] 0}\n"
         "%2 = constant {value=i32[] 1}\n"
         "%3 = constant {value=i32[] 2}\n"
         "%4 = constant {value=i32[] 3}\n"
         "%5:3 = while %0, %1, %1 ((%6: i32[], %7: i32[], %8: i32[]) {\n"
         "%9 = compare %6, %2 {comparison_direction=NE} : i1[]\n"
         "return %9\n"
         "}, (%10: i32[], %11: i32[], %12: i32[]) {\n"
         "%13 = remainder %10, %3 : i32[]\n"
         "%14 = case %13 (() {\n"
         "%15 = divide %10, %3 : i32[]\n"
         "return %15\n"
         "}, () {\n"
         "%16 = multiply %10, %4 : i32[]\n"
         "%17 = add %16, %2 : i32[]\n"
         "return %17\n"
         "}) : i32[]\n"
         "%18 = add %11, %2 : i32[]\n"
         "%19 = maximum %12, %14 : i32[]\n"
         "return %14, %18, %19\n"
         "}) : i32[], i32[], i32[]\n"
         "return %5.0, %5.1, %5.2\n") "}\n";

// State and both regions of a loop, with a case inside.
static void test_control_flow(void **state) {
  run r = good(collatz);
  assert_int_equal(at_literal_int(r.out[0], 0), 1);
  assert_int_equal(at_literal_int(r.out[1], 0), 111);
  assert_int_equal(at_literal_int(r.out[2], 0), 9232);
  at_arena_destroy(r.a);
}

// A case index out of range takes the last branch; if takes then on true.
static void test_branches(void **state) {
  run r =
      good(MAIN("i32[], i32[], i32[]",
                "%0 = constant {value=i32[] -1}\n"
                "%1 = constant {value=i32[] 10}\n"
                "%2 = constant {value=i32[] 20}\n"
                "%3 = case %0 (() { return %1 }, () { return %2 }) : i32[]\n"
                "%4 = constant {value=i1[] 1}\n"
                "%5 = if %4 (() { return %1 }, () { return %2 }) : i32[]\n"
                "%6 = constant {value=i32[] 0}\n"
                "%7 = case %6 (() { return %1 }, () { return %2 }) : i32[]\n"
                "return %3, %5, %7\n") "}\n");
  assert_int_equal(at_literal_int(r.out[0], 0), 20);
  assert_int_equal(at_literal_int(r.out[1], 0), 10);
  assert_int_equal(at_literal_int(r.out[2], 0), 10);
  at_arena_destroy(r.a);
}

// Bodies that capture, that call, and that hold control flow.
static void test_bodies(void **state) {
  run r = good(MAIN("i32[], i32[3], f32[2]", 
    "%0 = constant {value=i32[4] [1,2,3,4]}\n"
    "%1 = constant {value=i32[] 0}\n"
    "%2 = constant {value=i32[] 100}\n"
    "%3 = reduce %0, %1 {dimensions=[0]} ((%4: i32[], %5: i32[]) {\n"
    "%6 = add %4, %5 : i32[]\n"
    "%7 = maximum %6, %2 : i32[]\n"
    "return %7\n"
    "}) : i32[]\n"
    "%8 = constant {value=i32[3] [5,-6,7]}\n"
    "%9 = map %8 {dimensions=[0]} ((%10: i32[]) {\n"
    "%11 = compare %10, %1 {comparison_direction=LT} : i1[]\n"
    "%12 = if %11 (() { %13 = negate %10 : i32[] return %13 }, () {\n"
    "return %2\n"
    "}) : i32[]\n"
    "return %12\n"
    "}) : i32[3]\n"
    "%14 = constant {value=f32[2] [1.5,-2.0]}\n"
    "%15 = composite %14 {name=\"x.twice\", callee=\"twice\", "
    "version=1} : f32[2]\n"
    "return %3, %9, %15\n") 
    "func \"twice\" (%20: f32[2]) -> (f32[2]) {\n"
    "%21 = fusion %20, %20 {kind=LOOP} ((%22: f32[2], %23: f32[2]) {\n"
    "%24 = add %22, %23 : f32[2]\n"
    "return %24\n"
    "}) : f32[2]\n"
    "return %21\n"
    "}\n"
    "}\n");
  assert_int_equal(at_literal_int(r.out[0], 0), 109);
  assert_int_equal(at_literal_int(r.out[1], 0), 100);
  assert_int_equal(at_literal_int(r.out[1], 1), 6);
  assert_int_equal(at_literal_int(r.out[1], 2), 100);
  assert_true(at_literal_float(r.out[2], 0) == 3);
  assert_true(at_literal_float(r.out[2], 1) == -4);
  at_arena_destroy(r.a);
}

// One program for each status of the evaluator.
static void test_errors(void **state) {
  at_eval_options few = {.max_ops = 50}, none = {0};
  bad(collatz, &few, AT_DEADLINE_EXCEEDED, "more than 50");
  bad(MAIN("i32[]", "%0 = constant {value=i32[] 3} %1 = call %0 "
                    "{callee=\"f\"} : i32[] return %1")
          "func \"f\" (%5: i32[]) -> (i32[]) { %6 = call %5 "
          "{callee=\"f\"} : i32[] return %6 }\n}\n",
      &none, AT_RESOURCE_EXHAUSTED, "nested more than");
  bad(MAIN("f32[]",
           "%0 = custom_call {call_target_name=\"magic\"} : f32[] "
           "return %0") "}\n",
      &none, AT_UNIMPLEMENTED, "custom_call \"magic\"");
  at_eval_options linalg = {.custom = at_eval_linalg_custom};
  bad(MAIN("f32[]",
           "%0 = custom_call {call_target_name=\"magic\"} : f32[] "
           "return %0") "}\n",
      &linalg, AT_UNIMPLEMENTED, "custom_call \"magic\"");
  bad(MAIN("f32[2]",
           "%0 = constant {value=f32[2] [1,2]} %1 = custom_call %0 "
           "{call_target_name=\"Qr\"} : f32[2] return %1") "}\n",
      &linalg, AT_INVALID_ARGUMENT, "does not have the operands");
  bad(MAIN(
          "f32[4]",
          "%0 = constant {value=f32[2] [1,2]} %1 = all_gather %0 "
          "{all_gather_dim=0, replica_groups=[[0,1]]} : f32[4] return %1") "}"
                                                                           "\n",
      &none, AT_UNIMPLEMENTED, "all_gather over 2 devices");
  bad(MAIN(
          "f32[?]",
          "%0 = constant {value=f32[2] [1,2]} %1 = constant {value=i32[1] [3]} "
          "%2 = dynamic_reshape %0, %1 : f32[?] return %2") "}\n",
      &none, AT_INVALID_ARGUMENT, "f32[3] has another number of elements");
  bad(MAIN("token",
           "%0 = create_token %1 = outfeed %0 : token return %1") "}\n",
      &none, AT_UNIMPLEMENTED, "outfeed needs a host");
}

// Arguments are compared with the parameters' types.
static void test_arguments(void **state) {
  at_arena *a = at_arena_create();
  at_module *m;
  const char *text =
      "hlo module \"t\" entry=\"main\" {\nfunc \"main\" (%0: f32[2]) -> "
      "(f32[2]) { return %0 }\n}\n";
  assert_true(at_ok(at_hlo_parse(at_str_of(text), a, &m)));
  const at_literal *arg, *out;
  assert_true(at_ok(
      at_literal_make(a, at_type_scalar(AT_F32), NULL, false, false, &arg)));
  at_status s = at_eval(m->entry, &arg, NULL, a, &out);
  assert_int_equal(at_status_code(s), AT_INVALID_ARGUMENT);
  assert_non_null(
      strstr(at_status_message(s), "argument 0 is f32[], must be f32[2]"));
  at_status_free(s);
  at_arena_destroy(a);
}

// a = q r with q's columns orthonormal; a[perm] = l u; a v = v diag(w).
static const char linalg[] =
    MAIN("f64[3,3], f64[3,3], f64[3,3], i32[3], complex<f64>[2,2], f64[2]",
         "%0 = constant {value=f64[3,3] [1,2,3,4,5,6,7,8,10]}\n"
         "%1:2 = custom_call %0 {call_target_name=\"Qr\"} : f64[3,3], f64[3]\n"
         "%2 = custom_call %1.0, %1.1 "
         "{call_target_name=\"ProductOfElementaryHouseholderReflectors\"} : "
         "f64[3,3]\n"
         "%3:3 = custom_call %0 {call_target_name=\"LuDecomposition\"} : "
         "f64[3,3], i32[3], i32[3]\n"
         "%4 = constant {value=complex<f64>[2,2] [(2,0),(0,1),(0,-1),(2,0)]}\n"
         "%5:2 = custom_call %4 {call_target_name=\"Eigh\", "
         "backend_config=\"1,1,100,1e-6\"} : complex<f64>[2,2], f64[2]\n"
         "return %2, %1.0, %3.0, %3.2, %5.0, %5.1\n") "}\n";

static double at2(const at_literal *l, int64_t i, int64_t j) {
  return at_literal_float(l, i * l->type.dims[1] + j);
}

// The factors multiply back to the matrix.
static void test_linalg(void **state) {
  static const double a[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 10}};
  run r = good(linalg);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) {
      double qr = 0, qq = 0, lu = 0;
      for (int k = 0; k < 3; k++) {
        if (k <= j) qr += at2(r.out[0], i, k) * at2(r.out[1], k, j);
        qq += at2(r.out[0], k, i) * at2(r.out[0], k, j);
        double l = k < i ? at2(r.out[2], i, k) : k == i;
        if (k <= j) lu += l * at2(r.out[2], k, j);
      }
      assert_true(fabs(qr - a[i][j]) < 1e-14);
      assert_true(fabs(qq - (i == j)) < 1e-15);
      assert_true(fabs(lu - a[at_literal_int(r.out[3], i)][j]) < 1e-14);
    }
  // Pivoting starts with the largest element of the first column.
  assert_int_equal(at_literal_int(r.out[3], 0), 2);
  // [[2, i], [-i, 2]] has the eigenvalues 1 and 3.
  assert_true(fabs(at_literal_float(r.out[5], 0) - 1) < 1e-15);
  assert_true(fabs(at_literal_float(r.out[5], 1) - 3) < 1e-15);
  // First row of (a - w) v: (2 - w) v0 + i v1 = 0.
  for (int k = 0; k < 2; k++) {
    const double *v0 = at_literal_at(r.out[4], k);
    const double *v1 = at_literal_at(r.out[4], 2 + k);
    double w = 2 - (k ? 3.0 : 1.0);
    assert_true(fabs(w * v0[0] - v1[1]) < 1e-15);
    assert_true(fabs(w * v0[1] + v1[0]) < 1e-15);
    assert_true(fabs(v0[0] * v0[0] + v0[1] * v0[1] - 0.5) < 1e-15);
  }
  at_arena_destroy(r.a);
}

// Of a diagonal matrix values and vectors are known: sorted by value where the
// call asks for that, else in the order of the diagonal.
static void test_eigh_sorts(void **state) {
  static const double diagonal[] = {4, 1, 3, 2};
  run r = good(
      MAIN("f64[4,4], f64[4], f64[4,4], f64[4]",
           "%0 = constant {value=f64[4,4] [4,0,0,0,0,1,0,0,0,0,3,0,0,0,0,2]}\n"
           "%1:2 = custom_call %0 {call_target_name=\"Eigh\", "
           "backend_config=\"1,1,100,1e-6\"} : f64[4,4], f64[4]\n"
           "%2:2 = custom_call %0 {call_target_name=\"Eigh\", "
           "backend_config=\"1,0,100,1e-6\"} : f64[4,4], f64[4]\n"
           "return %1.0, %1.1, %2.0, %2.1\n") "}\n");
  for (int k = 0; k < 4; k++) {
    assert_true(at_literal_float(r.out[1], k) == k + 1);
    assert_true(at_literal_float(r.out[3], k) == diagonal[k]);
    for (int i = 0; i < 4; i++) {
      assert_true(fabs(at2(r.out[0], i, k)) == (diagonal[i] == k + 1));
      assert_true(fabs(at2(r.out[2], i, k)) == (i == k));
    }
  }
  at_arena_destroy(r.a);
}

static void test_top_k_calls(void **state) {
  run r = good(MAIN(
      "f32[2], i32[2], f32[2], i32[2]",
      "%0 = constant {value=f32[4] [3,9,1,9]}\n"
      "%1 = constant {value=i32[4] [40,50,60,70]}\n"
      "%2 = constant {value=f32[] 0x7f800000}\n"
      "%3 = constant {value=i32[] -1}\n"
      "%4:2 = custom_call %0 {call_target_name=\"TopK\"} : f32[2], i32[2]\n"
      "%5:2 = custom_call %0, %1, %2, %3 "
      "{call_target_name=\"ApproxTopK\", backend_config_dict=\"{top_k = "
      "2 : i64, reduction_dim = 0 : i64}\"} : f32[2], i32[2]\n"
      "return %4.0, %4.1, %5.0, %5.1\n") "}\n");
  static const double want[4][2] = {{9, 9}, {1, 3}, {1, 3}, {60, 40}};
  for (int i = 0; i < 4; i++)
    for (int k = 0; k < 2; k++)
      assert_true((i % 2 ? (double)at_literal_int(r.out[i], k)
                         : at_literal_float(r.out[i], k)) == want[i][k]);
  at_arena_destroy(r.a);
}

// A group of one: collectives are the identity, permutes may drop the value.
static void test_collectives(void **state) {
  run r = good(
      MAIN("f32[2], f32[2], f32[2], ui32[], f32[2]",
           "%0 = constant {value=f32[2] [1.5,2.5]}\n"
           "%1 = all_reduce %0 {replica_groups=[[0]]} ((%2: f32[], %3: f32[]) "
           "{\n"
           "%4 = add %2, %3 : f32[]\n"
           "return %4\n"
           "}) : f32[2]\n"
           "%5 = collective_permute %1 {source_target_pairs=[[0,0]]} : f32[2]\n"
           "%6 = collective_permute %1 {source_target_pairs=[]} : f32[2]\n"
           "%7 = partition_id\n"
           "%8 = rng %0, %0, %0 {rng_distribution=UNIFORM} : f32[2]\n"
           "return %1, %5, %6, %7, %8\n") "}\n");
  assert_true(at_literal_float(r.out[0], 1) == 2.5);
  assert_true(at_literal_float(r.out[1], 1) == 2.5);
  assert_true(at_literal_float(r.out[2], 1) == 0);
  assert_int_equal(at_literal_uint(r.out[3], 0), 0);
  at_arena_destroy(r.a);
}

// Any number of empty lines, matrices or batches takes no time.
static void test_empty(void **state) {
#define MANY "[1099511627776,0,2]"
#define LONG "[1099511627776,2,0]"
#define NONE "[1099511627776,0,0]"
  static const char *const bodies[] = {
      "%0 = iota {dimension=0} : f32" MANY
      " %1 = sort %0 {dimension=1, is_stable=true} ((%90: f32[], %91: f32[]) { "
      "%92 = compare %90, %91 {comparison_direction=LT} : i1[] return %92 }) : "
      "f32" MANY,
      "%0 = iota {dimension=0} : f32" MANY
      " %2 = constant {value=f32[] 0} : f32[]"
      " %1 = scan %0, %2 {dimension=2, reverse=false} ((%90: f32[], %91: "
      "f32[]) { %92 = add %90, %91 : f32[] return %92 }) : f32" MANY,
      "%0 = iota {dimension=0} : f32" LONG " %1:2 = top_k %0 {k=0} : f32" LONG
      ", i32" LONG,
      "%0 = iota {dimension=0} : f32" NONE
      " %1 = cholesky %0 {lower=true} : f32" NONE,
      "%0 = iota {dimension=0} : f32" MANY
      " %1:2 = custom_call %0 {call_target_name=\"Qr\"} : f32" MANY
      ", f32[1099511627776,0]",
      // More elements than can be counted, but for the 0.
      "%2 = iota {dimension=0} : f32[4611686018427387904,4,0]"
      " %3 = iota {dimension=0} : f32[0]"
      " %1 = dot_general %2, %3 {lhs_contracting_dimensions=[2], "
      "rhs_contracting_dimensions=[0], lhs_batching_dimensions=[], "
      "rhs_batching_dimensions=[], precision=[0,0]} : "
      "f32[4611686018427387904,4]",
  };
  for (size_t i = 0; i < AT_LEN(bodies); i++) {
    at_strbuf b = {0};
    run r = {0};
    at_eval_options o = {.custom = at_eval_linalg_custom};
    at_strbuf_addf(&b,
                   "hlo module \"t\" entry=\"main\" {\nfunc \"main\" () -> "
                   "(i32[]) {\n%s\n%%8 = constant {value=i32[] 1} : i32[]\n"
                   "return %%8}\n}\n",
                   bodies[i]);
    at_status st = start(&r, b.ptr, &o);
    // The last one gives more elements than there is memory.
    bool refused = i + 1 == AT_LEN(bodies);
    if (at_ok(st) == refused) fail_msg("%s%s", b.ptr, at_status_message(st));
    at_status_free(st);
    at_strbuf_free(&b);
    at_arena_destroy(r.a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_control_flow), cmocka_unit_test(test_branches),
      cmocka_unit_test(test_bodies),       cmocka_unit_test(test_errors),
      cmocka_unit_test(test_arguments),    cmocka_unit_test(test_linalg),
      cmocka_unit_test(test_eigh_sorts),   cmocka_unit_test(test_top_k_calls),
      cmocka_unit_test(test_collectives),  cmocka_unit_test(test_empty)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
