// The engine against testdata/engine_cases.txt, whose values NumPy computed
// from the whole batch, and what it says of bad input.
#include "sparsecore/run_test_util.h"

// ---- Running
// As exec does: all devices at once, or one by one for LOCAL.
static at_status run_case(const sc_case *c, uint32_t threads) {
  static at_pool *pools[4];
  if (!pools[threads])
    assert_int_equal(at_code_take(at_pool_create(threads, &pools[threads])), 0);
  void *const *bufs[kMaxDevices];
  for (int d = 0; d < kMaxDevices; d++) bufs[d] = c->bufs[d];
  scratch s = {.count = 0};
  at_par par = {pools[threads], take, &s};
  at_kernel_fn kernels[1] = {momentum};
  at_sc_run r = {
      .x = &c->x, .kernels = kernels, .name = "t", .bufs = bufs, .par = &par};
  at_status st = AT_OK;
  // Devices meet one by one where nothing of others is read.
  uint32_t meetings = c->x.op == AT_SPARSE_LOCAL ? c->x.num_devices : 1;
  for (uint32_t d = 0; d < meetings && !st.err; d++) {
    r.bufs = bufs + d;
    st = at_sc_run_step(&r);
  }
  free_scratch(&s);
  return st;
}

// Bit by bit.
static void assert_results(const sc_case *c) {
  const at_x_sparse *x = &c->x;
  uint32_t first = at_x_sparse_operands(x), n = at_x_sparse_results(x);
  for (uint32_t d = 0; d < x->num_devices; d++)
    for (uint32_t t = 0; t < n; t++)
      assert_memory_equal(c->bufs[d][first + t], c->want[d][t],
                          at_sc_buffer_bytes(x, first + t));
}

// With 1, 2 and 3 threads.
static void equals_numpy(void **state) {
  FILE *f = open_cases();
  sc_case c;
  int cases = 0;
  while (next_case(f, &c)) {
    assert_int_equal(at_code_take(at_sc_check(&c.x, at_x_sparse_bytes(&c.x),
                                              c.x.num_devices)),
                     0);
    for (uint32_t threads = 1; threads <= 3; threads++) {
      at_status st = run_case(&c, threads);
      if (st.err) print_message("%s\n", at_status_message(st));
      assert_int_equal(at_code_take(st), 0);
      assert_results(&c);
    }
    free_case(&c);
    cases++;
  }
  fclose(f);
  assert_int_equal(cases, 22);
}

// Results that are their tables. The same tables as with copies.
static void updates_in_place(void **state) {
  FILE *f = open_cases();
  sc_case c;
  while (next_case(f, &c)) {
    uint32_t table = at_x_sparse_table(&c.x);
    uint32_t first = at_x_sparse_operands(&c.x);
    for (uint32_t d = 0; c.x.op == AT_SPARSE_UPDATE && d < c.x.num_devices; d++)
      for (uint32_t t = 0; t < 2; t++) {
        free(c.bufs[d][first + t]);
        c.bufs[d][first + t] = c.bufs[d][table + t];
      }
    if (c.x.op == AT_SPARSE_UPDATE) {
      assert_int_equal(at_code_take(run_case(&c, 2)), 0);
      assert_results(&c);
      for (uint32_t d = 0; d < c.x.num_devices; d++)
        for (uint32_t t = 0; t < 2; t++) c.bufs[d][first + t] = NULL;
    }
    free_case(&c);
  }
  fclose(f);
}

// ---- Bad input
typedef struct mistake {
  uint32_t buffer, device;
  uint64_t at;
  int32_t value;
  const char *says;
} mistake;

// The case of an update on 2 devices of 4 SparseCores.
static void read_update(sc_case *c) {
  FILE *f = open_cases();
  while (next_case(f, c) &&
         !(c->x.op == AT_SPARSE_UPDATE && c->x.num_devices == 2))
    free_case(c);
  fclose(f);
  assert_int_equal(c->x.scs_per_device, 4);
}

// An update in place must leave its table as it was.
static void refuses_bad_input(void **state) {
  static const mistake mistakes[] = {
      {1, 1, 0, -1, "id -1 of table t is out of range"},
      {1, 0, 0, 4, "id 4 of table t is out of range: it has 4 rows"},
      {1, 1, 0, INT32_MAX, "id 2147483647"},
      {2, 0, 0, -7, "sample -7 of table t"},
      {2, 1, 0, 2, "sample 2 of table t is out of range: it has 2 samples"},
      {0, 0, 3, -8, "run backward"},
      {0, 1, 7, 1 << 20, "run past the buffer"},
  };
  for (size_t i = 0; i < AT_LEN(mistakes); i++) {
    const mistake *m = &mistakes[i];
    sc_case c;
    read_update(&c);
    int32_t *p = c.bufs[m->device][m->buffer];
    uint64_t at = m->at;
    // The first entry that is one.
    while (m->buffer && ((int32_t *)c.bufs[m->device][1])[at] == INT32_MAX)
      at++;
    p[at] = m->value;
    uint64_t bytes = c.x.rows * c.x.width * 4;
    void *before = malloc(bytes);
    uint32_t table = at_x_sparse_table(&c.x);
    uint32_t result = at_x_sparse_operands(&c.x);
    memcpy(before, c.bufs[0][table], bytes);
    free(c.bufs[0][result]);
    c.bufs[0][result] = c.bufs[0][table];  // in place
    at_status st = run_case(&c, 2);
    assert_non_null(st.err);
    assert_non_null(strstr(at_status_message(st), m->says));
    assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
    assert_memory_equal(before, c.bufs[0][table], bytes);
    c.bufs[0][result] = NULL;
    free(before);
    free_case(&c);
  }
}

// 0, negative, and more than there are row pointers for.
static void refuses_minibatches(void **state) {
  FILE *f = open_cases();
  sc_case c;
  while (next_case(f, &c) && !c.x.minibatching) free_case(&c);
  fclose(f);
  static const int32_t counts[] = {0, -1, 3};
  for (size_t i = 0; i < AT_LEN(counts); i++) {
    *(int32_t *)c.bufs[1][4] = counts[i];
    at_status st = run_case(&c, 1);
    assert_non_null(strstr(at_status_message(st), "device 1 has"));
    assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
  }
  free_case(&c);
}

// max_ids alone says nothing until its check is on.
static void checks_limits(void **state) {
  sc_case c;
  read_update(&c);
  c.x.max_ids = 1;
  assert_int_equal(at_code_take(run_case(&c, 1)), 0);
  c.x.checks = AT_SPARSE_CHECK_LIMITS;
  at_status st = run_case(&c, 1);
  assert_non_null(strstr(at_status_message(st),
                         "larger row size than specified in "
                         "max_ids_per_partition (1)!"));
  assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
  free_case(&c);
}

// Equal ids are one row: three entries of two rows.
static void counts_unique_rows(void **state) {
  FILE *f = open_cases();
  sc_case c;
  assert_true(next_case(f, &c));
  fclose(f);
  assert_int_equal(c.x.op, AT_SPARSE_LOOKUP);
  int32_t *pointers = c.bufs[0][0], *ids = c.bufs[0][1];
  for (int i = 0; i < 8; i++) pointers[i] = 3;
  ids[0] = ids[1] = 1, ids[2] = 2;
  int32_t *samples = c.bufs[0][2];
  samples[0] = samples[1] = samples[2] = 0;
  c.x.checks = AT_SPARSE_CHECK_LIMITS;
  c.x.max_ids = 3;
  c.x.max_unique = 2;
  assert_int_equal(at_code_take(run_case(&c, 1)), 0);
  c.x.max_unique = 1;
  at_status st = run_case(&c, 1);
  assert_non_null(strstr(at_status_message(st), "partition 0: 2 unique ids"));
  assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
  free_case(&c);
}

// Copies behind the optimizer stay inside what they read.
static void refuses_copies_that_leave_their_place(void **state) {
  sc_case c;
  read_update(&c);
  const uint32_t row = (uint32_t)c.x.width * 4;
  c.x.num_copies = 1;
  c.x.scratch_bytes = 2 * row;
  c.x.const_bytes = row;
  at_x_sparse_copy *copy = (at_x_sparse_copy *)at_x_sparse_copies(&c.x);
  uint64_t bytes = at_x_sparse_bytes(&c.x);
  assert_true(bytes <= sizeof c.space);
  const struct {
    at_x_sparse_copy copy;
    at_code code;
  } cases[] = {
      {{0, row, {AT_SPARSE_GRADIENT, 0}}, AT_OK_CODE},
      {{1, row, {AT_SPARSE_TABLE, 0}}, AT_OK_CODE},
      {{2, row, {AT_SPARSE_TABLE, 0}}, AT_INVALID_ARGUMENT},
      {{0, row, {AT_SPARSE_TABLE, 2}}, AT_INVALID_ARGUMENT},
      {{0, row - 4, {AT_SPARSE_GRADIENT, 0}}, AT_INVALID_ARGUMENT},
      {{0, row, {AT_SPARSE_SCRATCH, row}}, AT_OK_CODE},
      {{0, row, {AT_SPARSE_SCRATCH, row + 4}}, AT_INVALID_ARGUMENT},
      {{0, row, {AT_SPARSE_CONST, 0}}, AT_OK_CODE},
      {{0, row, {AT_SPARSE_CONST, 4}}, AT_INVALID_ARGUMENT},
      {{0, row, {AT_SPARSE_PLACES, 0}}, AT_INVALID_ARGUMENT},
  };
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    *copy = cases[i].copy;
    assert_int_equal(at_code_take(at_sc_check(&c.x, bytes, 2)), cases[i].code);
  }
  // A hyperparameter is as long as it is.
  *copy = (at_x_sparse_copy){0, row, {AT_SPARSE_HYPER, 0}};
  c.x.hyper_bytes[0] = row - 4;
  assert_int_equal(at_code_take(at_sc_check(&c.x, bytes, 2)),
                   AT_INVALID_ARGUMENT);
  c.x.hyper_bytes[0] = row;
  assert_int_equal(at_code_take(at_sc_check(&c.x, bytes, 2)), AT_OK_CODE);
  free_case(&c);
}

// The learning rate as a constant of the step instead of an operand gives the
// same tables.
static void optimizers_read_constants(void **state) {
  sc_case c;
  read_update(&c);
  uint32_t rate = at_x_sparse_table(&c.x) + c.x.num_tables;
  c.x.const_bytes = 16;
  uint8_t *constants = (uint8_t *)&c.x + at_x_sparse_const_offset(&c.x);
  memcpy(constants + 12, c.bufs[0][rate], sizeof(float));
  ((at_x_sparse_place *)at_x_sparse_places(&c.x))[3] =
      (at_x_sparse_place){AT_SPARSE_CONST, 12};
  for (uint32_t d = 0; d < 2; d++) *(float *)c.bufs[d][rate] = 1e30f;
  assert_int_equal(at_code_take(run_case(&c, 2)), 0);
  assert_results(&c);
  free_case(&c);
}

// A copy behind the optimizer: touched rows of the table become their slots'.
static void rows_are_copied_behind_the_optimizer(void **state) {
  sc_case c;
  read_update(&c);
  uint64_t row = c.x.width * 4;
  c.x.num_copies = 1;
  *(at_x_sparse_copy *)at_x_sparse_copies(&c.x) =
      (at_x_sparse_copy){0, (uint32_t)row, {AT_SPARSE_TABLE, 1}};
  assert_int_equal(at_code_take(run_case(&c, 2)), 0);
  uint32_t table = at_x_sparse_table(&c.x), touched = 0;
  uint32_t result = at_x_sparse_operands(&c.x);
  for (uint32_t d = 0; d < 2; d++)
    for (uint64_t r = 0; r < c.x.rows; r++) {
      const char *slot = (char *)c.want[d][1] + r * row;
      const char *old = (char *)c.bufs[d][table + 1] + r * row;
      bool is = memcmp(slot, old, row) != 0;
      touched += is;
      const char *want = is ? slot : (char *)c.bufs[d][table] + r * row;
      assert_memory_equal((char *)c.bufs[d][result] + r * row, want, row);
    }
  assert_in_range(touched, 1, 2 * c.x.rows - 1);
  free_case(&c);
}

// num_buckets 0 is no quantisation: low and high are not looked at then.
static void quantisation_has_two_levels_or_more(void **state) {
  FILE *f = open_cases();
  sc_case c;
  assert_true(next_case(f, &c));
  fclose(f);
  static const struct {
    uint32_t buckets;
    float low, high;
    at_code code;
  } cases[] = {{2, 0, 1, AT_OK_CODE},
               {1, 0, 1, AT_INVALID_ARGUMENT},
               {2, 1, 1, AT_INVALID_ARGUMENT},
               {2, 0, INFINITY, AT_INVALID_ARGUMENT},
               {2, -INFINITY, 0, AT_INVALID_ARGUMENT},
               {2, NAN, 1, AT_INVALID_ARGUMENT},
               {0, 1, 0, AT_OK_CODE}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    c.x.num_buckets = cases[i].buckets;
    c.x.low = cases[i].low;
    c.x.high = cases[i].high;
    at_code got = at_code_take(
        at_sc_check(&c.x, at_x_sparse_bytes(&c.x), c.x.num_devices));
    assert_int_equal(got, cases[i].code);
  }
  free_case(&c);
}

// One field wrong at a time.
static void refuses_malformed_parameters(void **state) {
  sc_case c;
  read_update(&c);
  const at_x_sparse good = c.x;
  uint64_t bytes = at_x_sparse_bytes(&c.x);
#define AT_BREAK(field, v)                                      \
  do {                                                          \
    c.x.field = (v);                                            \
    assert_int_equal(at_code_take(at_sc_check(&c.x, bytes, 2)), \
                     AT_INVALID_ARGUMENT);                      \
    c.x.field = good.field;                                     \
  } while (0)
  AT_BREAK(op, AT_SPARSE_OPS);
  AT_BREAK(scs_per_device, 0);
  AT_BREAK(num_devices, 3);
  AT_BREAK(dtype, AT_S32);
  AT_BREAK(dtype, AT_BF16);
  AT_BREAK(num_tables, 0);
  AT_BREAK(num_tables, AT_SPARSE_MAX_TABLES + 1);
  AT_BREAK(num_hypers, 0);
  AT_BREAK(rows, 6);
  AT_BREAK(rows, UINT64_MAX);
  AT_BREAK(samples, 2);
  AT_BREAK(width, 1ull << 60);
  AT_BREAK(pointers, 31);
  AT_BREAK(num_launches, UINT32_MAX);
  AT_BREAK(const_bytes, 8);
#undef AT_BREAK
  ((at_x_sparse_place *)at_x_sparse_places(&c.x))[1].index = 2;
  assert_int_equal(at_code_take(at_sc_check(&c.x, bytes, 2)),
                   AT_INVALID_ARGUMENT);
  assert_int_equal(at_code_take(at_sc_check(&c.x, 8, 2)), AT_INVALID_ARGUMENT);
  free_case(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(equals_numpy),
      cmocka_unit_test(updates_in_place),
      cmocka_unit_test(refuses_bad_input),
      cmocka_unit_test(refuses_minibatches),
      cmocka_unit_test(checks_limits),
      cmocka_unit_test(counts_unique_rows),
      cmocka_unit_test(refuses_copies_that_leave_their_place),
      cmocka_unit_test(optimizers_read_constants),
      cmocka_unit_test(rows_are_copied_behind_the_optimizer),
      cmocka_unit_test(quantisation_has_two_levels_or_more),
      cmocka_unit_test(refuses_malformed_parameters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
