// The model of a host: descriptions, and laws of what it says of steps.
#include "cost/host.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define OK(e) assert_int_equal(at_code_take(e), 0)

// A status of that code whose message holds `text`. Consumes it.
static void fails(at_status st, int code, const char *text) {
  assert_int_equal(at_status_code(st), code);
  if (!strstr(at_status_message(st), text))
    fail_msg("\"%s\" is not in: %s", text, at_status_message(st));
  at_status_free(st);
}

static const char kDescription[] =
    "{\"name\": \"host\", \"platform\": \"host\", \"aliases\": [],"
    "\"hbm_bytes_per_second_per_chip\": {\"value\": 2e10, \"source\": \"t\"},"
    "\"f32_flops_per_second_per_chip\": {\"value\": 1e11, \"source\": \"t\"},"
    "\"bf16_flops_per_second_per_chip\": {\"value\": 1e12, \"source\": \"t\"},"
    "\"cores_per_chip\": {\"value\": 2, \"source\": \"t\"},"
    "\"step_seconds\": {\"value\": 2e-7, \"source\": \"t\"},"
    "\"fork_seconds\": {\"value\": 2e-6, \"source\": \"t\"},"
    "\"scalar_op_seconds\": {\"value\": 1e-9, \"source\": \"t\"},"
    "\"memory_not_hidden\": {\"value\": 0.25, \"source\": \"t\"},"
    "\"f32_op_seconds\": {\"value\": \"%s\", \"source\": \"t\"},"
    "\"bf16_op_seconds\": {\"value\": \"add:2e-10\", \"source\": \"t\"},"
    "\"f64_op_seconds\": {\"value\": \"add:2e-10\", \"source\": \"t\"},"
    "\"i32_op_seconds\": {\"value\": \"add:1e-10\", \"source\": \"t\"},"
    "\"read_seconds\": {\"value\": \"%s\", \"source\": \"t\"},"
    "\"write_seconds\": {\"value\": \"1e6:2e-11 1e8:8e-11\", \"source\": "
    "\"t\"},"
    "\"sort_seconds\": {\"value\": \"1e3:1e-9 1e6:4e-9\", \"source\": \"t\"},"
    "\"f32_rows_seconds\": {\"value\": \"1:1e-10 256:1e-11\", \"source\": "
    "\"t\"}}";
static const char kOps[] = "add:1e-10 exponential:1e-9";
static const char kReads[] = "1e6:1e-11 1e8:5e-11";

// A target of the description with these two figures.
static at_status describe(at_arena *a, const char *ops, const char *reads,
                          at_target **out) {
  char *text = at_arena_printf(a, kDescription, ops, reads);
  at_machine *m = at_new(a, at_machine, 1);
  AT_TRY(at_machine_read((at_bytes){(uint8_t *)text, strlen(text)}, a, m));
  return at_target_make(m, AT_INTERP_ATOLL, a, out);
}

// Time of the last op of a program with that body.
static at_host_time step_with(at_arena *a, const at_target *t, const char *body,
                              const char *params,
                              const at_host_memory *memory) {
  char *text = at_arena_printf(
      a, "hlo module \"m\" entry=\"main\" {\nfunc \"main\" (%s) -> %s}\n}\n",
      params, body);
  at_module *m;
  OK(at_hlo_parse(at_str_of(text), a, &m));
  at_node *n = m->entry->last;
  at_host_time time;
  OK(at_host_node(t, n, memory, &time));
  return time;
}

static at_host_time step(at_arena *a, const at_target *t, const char *body,
                         const char *params) {
  return step_with(a, t, body, params, NULL);
}

// One op on n elements of f32.
static at_host_time unary(at_arena *a, const at_target *t, const char *op,
                          long n) {
  char body[200], params[40];
  snprintf(params, sizeof params, "%%0: f32[%ld]", n);
  snprintf(body, sizeof body,
           "(f32[%ld]) {\n  %%1 = %s %%0 : f32[%ld]\n  return %%1\n", n, op, n);
  return step(a, t, body, params);
}

// Curves and tables of ops; an op that is not named takes another's time.
static void test_read(void **state) {
  at_arena *a = at_arena_create();
  at_target *t;
  OK(describe(a, kOps, kReads, &t));
  assert_non_null(t->host);
  assert_float_equal(t->host->op[AT_OP_MULTIPLY][AT_F32], 1e-10, 1e-14);
  assert_float_equal(t->host->op[AT_OP_TANH][AT_F32], 1e-9, 1e-13);
  // In logs between points, and no further than the ends.
  const at_host *h = t->host;
  assert_float_equal(at_host_seconds(h, AT_HOST_READ, 1), 1e-11, 1e-16);
  assert_float_equal(at_host_seconds(h, AT_HOST_READ, 1e7), sqrt(5) * 1e-11,
                     1e-15);
  assert_float_equal(at_host_seconds(h, AT_HOST_READ, 1e12), 5e-11, 1e-16);
  assert_float_equal(at_host_seconds(h, AT_HOST_EIGH, 10), 0, 1e-30);
  at_arena_destroy(a);
}

static const char kManyPoints[] =
    "1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 9:1 10:1 11:1 12:1 13:1";

// Every malformed list is refused by the name of its figure.
static void test_refuse(void **state) {
  static const char *const ops[] = {
      "",        "exponential:1e-9", "add",       "add:", "add:-1", "add:nan",
      "add:1e9", "no_such_op:1e-9",  "add:1e-9:2"};
  static const char *const reads[] = {
      "",    "1e6",   "1e6:",  "1:1 1:1", "2:1 1:1", "0:1",
      "1:0", "inf:1", "1:nan", "1:1,2:1", "x:1",     kManyPoints};
  at_arena *a = at_arena_create();
  at_target *t;
  for (size_t i = 0; i < AT_LEN(ops); i++)
    fails(describe(a, ops[i], kReads, &t), AT_INVALID_ARGUMENT,
          "f32_op_seconds");
  for (size_t i = 0; i < AT_LEN(reads); i++)
    fails(describe(a, kOps, reads[i], &t), AT_INVALID_ARGUMENT, "read_seconds");
  at_arena_destroy(a);
}

// More elements and heavier ops take longer; past the caches memory decides.
static void test_steps(void **state) {
  at_arena *a = at_arena_create();
  at_target *t;
  OK(describe(a, kOps, kReads, &t));
  double before = 0;
  for (long n = 1; n < 1 << 26; n *= 4) {
    at_host_time plain = unary(a, t, "negate", n);
    at_host_time heavy = unary(a, t, "exponential", n);
    assert_true(heavy.total >= plain.total);
    assert_true(plain.total >= before);
    assert_true(plain.total >= t->host->step);
    before = plain.total;
  }
  // Past the caches memory decides, and both cores share the work.
  at_host_time large = unary(a, t, "negate", 1 << 26);
  assert_float_equal(large.memory, (1 << 28) * (5e-11 + 8e-11), 1e-6);
  assert_float_equal(large.compute, (1 << 26) * 1e-10 / 2, 1e-6);
  assert_float_equal(large.bytes, 2.0 * (1 << 28), 1);
  at_host_time sort = step(
      a, t,
      "(f32[1000000]) {\n  %1 = sort %0 {dimension=0, is_stable=true} ((%2: "
      "f32[], %3: f32[]) {\n  %4 = compare %2, %3 {comparison_direction=LT, "
      "compare_type=FLOAT} : i1[]\n  return %4\n  }) : f32[1000000]\n  return "
      "%1\n",
      "%0: f32[1000000]");
  assert_float_equal(sort.compute, 4e-3, 1e-5);
  at_arena_destroy(a);
}

// A thin product has its own rate; a type without any is not found.
static void test_products(void **state) {
  at_arena *a = at_arena_create();
  at_target *t;
  OK(describe(a, kOps, kReads, &t));
  at_gemm whole = {AT_F32, AT_F32, AT_F32, 1, 256, 256, 256}, thin = whole;
  thin.m = 1;
  at_cost_time full, one;
  OK(at_host_gemm(t, &whole, &full));
  OK(at_host_gemm(t, &thin, &one));
  assert_float_equal(full.seconds, 2.0 * 256 * 256 * 256 * 1e-11, 1e-9);
  assert_float_equal(one.seconds, 2.0 * 256 * 256 * 1e-10, 1e-9);
  // What was not measured is said, and the roofline answers instead.
  whole.lhs = whole.rhs = AT_BF16;
  at_status st = at_host_gemm(t, &whole, &full);
  assert_int_equal(at_status_code(st), AT_NOT_FOUND);
  at_status_free(st);
  OK(at_cost_gemm(t, &whole, &full));
  assert_int_equal(full.source, AT_COST_FROM_ROOFLINE);
  at_arena_destroy(a);
}

static const char kTrace[] =
    "{\"traceEvents\": [{\"name\": \"process_name\", \"ph\": \"M\"},"
    "{\"name\": \"negate.1 negate\", \"pid\": 1, \"tid\": 2, \"dur\": 10},"
    "{\"name\": \"negate.1 negate\", \"pid\": 1, \"tid\": 2, \"dur\": 5},"
    "{\"name\": \"add.7\", \"pid\": 1, \"tid\": 2, \"dur\": 1},"
    "{\"name\": \"negate.1\", \"pid\": 1, \"tid\": 2, \"dur\": 25},"
    "{\"name\": \"negate.1.5\", \"dur\": 1000}, {\"name\": \"nothing.1\", "
    "\"dur\": 9}, {\"name\": \"negate.1\", \"dur\": -3}, 7]}";

// Steps of a trace by name, by rank where numbers differ; what is no trace is
// refused.
static void test_profile(void **state) {
  at_arena *a = at_arena_create();
  const at_cost_profile *p;
  at_target *t;
  at_module *m;
  at_cost_time time;
  OK(at_cost_profile_read((at_bytes){(uint8_t *)kTrace, strlen(kTrace)}, a,
                          &p));
  OK(describe(a, kOps, kReads, &t));
  t->profile = p;
  OK(at_hlo_parse(AT_STR("hlo module \"m\" entry=\"main\" {\nfunc \"main\" "
                         "(%0: f32[4]) -> (f32[4]) {\n  %1 = negate %0 : "
                         "f32[4]\n  return %1\n}\n}\n"),
                  a, &m));
  assert_int_equal(m->entry->last->id, 1);
  OK(at_cost_node(t, m->entry->last, &time));
  // Two launches in a row are one run of the step: (10 + 5 + 25) / 2 us.
  assert_int_equal(time.source, AT_COST_FROM_PROFILE);
  assert_float_equal(time.seconds, 20e-6, 1e-12);
  // Another numbering of the same steps.
  static const char other[] = "[{\"name\": \"negate.30\", \"dur\": 3}]";
  OK(at_cost_profile_read((at_bytes){(uint8_t *)other, strlen(other)}, a, &p));
  t->profile = p;
  OK(at_cost_node(t, m->entry->last, &time));
  assert_float_equal(time.seconds, 3e-6, 1e-12);
  fails(at_cost_profile_read((at_bytes){(uint8_t *)"[]", 2}, a, &p),
        AT_NOT_FOUND, "no step");
  fails(at_cost_profile_read((at_bytes){(uint8_t *)"{}", 2}, a, &p),
        AT_INVALID_ARGUMENT, "traceEvents");
  fails(at_cost_profile_open("/no/such/file", a, &p), AT_NOT_FOUND, "open");
  at_arena_destroy(a);
}

// Do arguments share their memory with results? As *user says.
static bool shared(void *user, at_value a, at_value b) {
  return a.node->op == AT_OP_PARAMETER && *(const bool *)user;
}

// An update in place touches what it writes; elsewhere all is copied first.
static void updates_in_place(void **state) {
  static const struct {
    const char *params, *body;
    double touched;  // in place
  } rows[] = {
      {"%0: f32[4096,256], %1: f32[2,256], %2: i32[]",
       "(f32[4096,256]) {\n  %3 = dynamic_update_slice %0, %1, %2, %2 : "
       "f32[4096,256]\n  return %3\n",
       2. * 2 * 256 * 4 + 2 * 4},
      {"%0: f32[4096,256], %1: f32[2,256], %2: i32[]",
       "(f32[4096,256]) {\n  %3 = fusion %1, %0, %2 {kind=LOOP} ((%4: "
       "f32[2,256], %5: f32[4096,256], %6: i32[]) {\n  %7 = tanh %4 : "
       "f32[2,256]\n  %8 = dynamic_update_slice %5, %7, %6, %6 : "
       "f32[4096,256]\n  return %8\n}) : f32[4096,256]\n  return %3\n",
       2. * 2 * 256 * 4 + 4},
  };
  const double whole = 4096. * 256 * 4;
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    at_target *t;
    OK(describe(a, kOps, kReads, &t));
    for (int in_place = 0; in_place < 2; in_place++) {
      bool is = in_place;
      at_host_memory m = {.same = shared, .user = &is};
      at_host_time x = step_with(a, t, rows[i].body, rows[i].params, &m);
      // The update itself is read, and written with the rest.
      double more = is ? 0 : 2 * whole - 2 * 256 * 4;
      assert_true(fabs(x.bytes - rows[i].touched - more) < 1);
    }
    at_host_time plain = step(a, t, rows[i].body, rows[i].params);
    assert_true(fabs(plain.bytes - rows[i].touched) < 1);
    at_arena_destroy(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(updates_in_place), cmocka_unit_test(test_read),
      cmocka_unit_test(test_refuse),      cmocka_unit_test(test_steps),
      cmocka_unit_test(test_products),    cmocka_unit_test(test_profile)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
