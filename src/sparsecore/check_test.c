// Checks of a step, each with its planted defect, and silent without one.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi/dtype.h"
#include "sparsecore/engine_internal.h"

// Two devices of one SparseCore; per device 8 rows of 2, 2 samples, 8 entries.
enum { DEVICES = 2, POINTERS = 8, IDS = 16, ROWS = 8, WIDTH = 2, SAMPLES = 2 };

typedef struct device {
  int32_t pointers[POINTERS], ids[IDS], samples[IDS], minibatches;
  float gains[IDS], gradient[SAMPLES * WIDTH], table[ROWS * WIDTH], rate,
      out[ROWS * WIDTH];
  void *bufs[16];
} device;

typedef struct setup {
  at_x_sparse x;
  device d[DEVICES];
  void *const *by_device[DEVICES];
  at_par par;
  at_sc_run run;
  char *scratch;
} setup;

static at_pool *g_pool;
// One block is enough: each call frees the one before.
static void *scratch(void *owner, size_t bytes) {
  setup *s = owner;
  free(s->scratch);
  s->scratch = malloc(bytes);
  return s->scratch;
}

// The list of buffers in the engine's order.
static void put(device *d, bool update, bool minibatching) {
  int n = 0;
  d->bufs[n++] = d->pointers;
  d->bufs[n++] = d->ids;
  d->bufs[n++] = d->samples;
  d->bufs[n++] = d->gains;
  if (minibatching) d->bufs[n++] = &d->minibatches;
  if (update) d->bufs[n++] = d->gradient;
  d->bufs[n++] = d->table;
  if (update) d->bufs[n++] = &d->rate;
  d->bufs[n++] = d->out;
}

// A lookup or update without any defect.
static void standard(setup *s, bool update, bool minibatching) {
  *s = (setup){.x = {.op = update ? AT_SPARSE_UPDATE : AT_SPARSE_LOOKUP,
                     .num_devices = DEVICES,
                     .scs_per_device = 1,
                     .dtype = AT_F32,
                     .num_tables = 1,
                     .minibatching = minibatching,
                     .num_hypers = update,
                     .hyper_bytes = {4},
                     .pointers = POINTERS,
                     .ids = IDS,
                     .samples = SAMPLES,
                     .rows = ROWS,
                     .width = WIDTH}};
  for (int i = 0; i < DEVICES; i++) {
    device *d = &s->d[i];
    d->minibatches = 1;
    d->rate = .5f;
    // Owner 0: row 1 of samples 0 and 1; owner 1: row 3 of sample 1.
    const int32_t pointers[] = {2, 9, 16, 16, 16, 16, 16, 16};
    memcpy(d->pointers, pointers, sizeof pointers);
    d->ids[0] = d->ids[1] = 1;
    d->ids[8] = 3;
    d->samples[1] = d->samples[8] = 1;
    for (int k = 0; k < IDS; k++) d->gains[k] = 1;
    put(d, update, minibatching);
    s->by_device[i] = d->bufs;
  }
  s->par = (at_par){g_pool, scratch, s};
  s->run = (at_sc_run){
      .x = &s->x, .name = "t", .bufs = s->by_device, .par = &s->par};
}

// Steps with a defect each, or none.
static at_status nothing(const at_sc_run *r) { return AT_OK; }
static at_status scribble_ids(const at_sc_run *r) {
  ((int32_t *)r->bufs[1][1])[3] = 77;
  return AT_OK;
}
static at_status scribble_table(const at_sc_run *r) {
  ((float *)r->bufs[0][at_x_sparse_table(r->x)])[5] = 1;
  return AT_OK;
}
static at_status nan_out(const at_sc_run *r) {
  float *out = r->bufs[1][at_x_sparse_operands(r->x)];
  out[r->x->op == AT_SPARSE_UPDATE ? 3 * WIDTH + 1 : 3] = NAN;
  return AT_OK;
}
static at_status scribble_gains(const at_sc_run *r) {
  ((float *)r->bufs[0][2])[0] = 3;
  return AT_OK;
}
static at_status in_place(const at_sc_run *r) {
  ((float *)r->bufs[0][at_x_sparse_operands(r->x)])[2] = 4;
  return AT_OK;
}

// The step with these checks ends with this code, and its message says so.
// Frees the scratch.
static void expect(setup *s, at_status (*step)(const at_sc_run *r),
                   uint32_t checks, at_code code, const char *says) {
  s->x.checks = checks;
  at_status st = at_sc_run_checked(&s->run, step);
  if (!strstr(at_status_message(st), says) || at_status_code(st) != code)
    print_error("%s\n", at_status_message(st));
  assert_non_null(strstr(at_status_message(st), says));
  assert_int_equal(at_code_take(st), code);
  free(s->scratch);
  s->scratch = NULL;
}

// All four checks, all four forms of a step.
static void a_clean_step_is_silent(void **state) {
  for (int update = 0; update < 2; update++)
    for (int minibatching = 0; minibatching < 2; minibatching++) {
      setup s;
      standard(&s, update, minibatching);
      expect(&s, nothing, 15, 0, "");
    }
}

// In gains, rows, gradients, activations and updated rows; padding and rows
// that nobody asks for may be NaN.
static void nan_is_found_with_its_place(void **state) {
  setup s;
  standard(&s, false, false);
  s.d[1].gains[8] = NAN;
  expect(&s, nothing, AT_SPARSE_CHECK_NAN, AT_INVALID_ARGUMENT,
         "NaN in the gains of table t\ndetail: id 7, sample 1 of SparseCore 0 "
         "of device 1");
  standard(&s, false, false);
  s.d[0].gains[9] = NAN;  // padding may be anything
  expect(&s, nothing, AT_SPARSE_CHECK_NAN, 0, "");
  standard(&s, false, false);
  s.d[0].table[1 * WIDTH + 1] = NAN;
  expect(&s, nothing, AT_SPARSE_CHECK_NAN, AT_INVALID_ARGUMENT,
         "row 1 (id 2), column 1, for sample 0");
  standard(&s, false, false);
  s.d[0].table[7 * WIDTH] = NAN;  // no id asks for it
  expect(&s, nothing, AT_SPARSE_CHECK_NAN, 0, "");
  standard(&s, true, false);
  s.d[1].gradient[2] = NAN;
  expect(&s, nothing, AT_SPARSE_CHECK_NAN, AT_INVALID_ARGUMENT,
         "NaN in the gradients of table t\ndetail: device 1, sample 1, column "
         "0");
  standard(&s, false, false);
  expect(&s, nan_out, AT_SPARSE_CHECK_NAN, AT_INVALID_ARGUMENT,
         "NaN in the activations of table t\ndetail: device 1, sample 1");
  standard(&s, true, false);
  expect(&s, nan_out, AT_SPARSE_CHECK_NAN, AT_INVALID_ARGUMENT,
         "NaN in the rows that come out of table t");
}

// An update in place may change its table.
static void changed_buffers_are_found(void **state) {
  setup s;
  standard(&s, false, false);
  expect(&s, scribble_ids, AT_SPARSE_CHECK_CONTENTS, AT_DATA_LOSS,
         "device 1, operand 1 (ids)");
  standard(&s, false, false);
  expect(&s, scribble_table, AT_SPARSE_CHECK_CONTENTS, AT_DATA_LOSS,
         "device 0, operand 4 (table)");
  standard(&s, true, false);
  for (int i = 0; i < DEVICES; i++) s.d[i].bufs[5] = s.d[i].bufs[7];
  expect(&s, in_place, AT_SPARSE_CHECK_CONTENTS, 0, "");
}

// A call of one device alone has that device's buffers and no others.
static void local_lookups_have_one_device(void **state) {
  setup s;
  standard(&s, false, false);
  device *d = &s.d[0];
  s.x.op = AT_SPARSE_LOCAL;
  d->bufs[0] = d->ids;
  d->bufs[1] = d->samples;
  d->bufs[2] = d->gains;
  d->bufs[3] = d->table;
  d->bufs[4] = d->out;
  s.by_device[1] = NULL;
  expect(&s, nothing, 15, 0, "");
  expect(&s, scribble_gains, AT_SPARSE_CHECK_CONTENTS, AT_DATA_LOSS,
         "device 0, operand 2 (gains)");
}

static at_status hear_nothing(void *arg, const at_bytes *send, at_bytes *recv) {
  return AT_OK;
}

// Devices are numbered over all hosts.
static void devices_of_other_hosts_count(void **state) {
  setup s;
  standard(&s, true, false);
  at_sc_hosts hosts = {2, 1, NULL, hear_nothing};
  s.run.hosts = &hosts;
  s.x.num_devices = 2 * DEVICES;
  s.d[1].gradient[2] = NAN;
  expect(&s, nothing, AT_SPARSE_CHECK_NAN, AT_INVALID_ARGUMENT,
         "NaN in the gradients of table t\ndetail: device 3, sample 1");
  s.d[1].gradient[2] = 0;
  s.d[1].rate = .25f;
  expect(&s, nothing, AT_SPARSE_CHECK_LAUNCH, AT_INVALID_ARGUMENT,
         "hyperparameter 0 of table t differs on device 3");
}

// Number of minibatches and hyperparameters.
static void devices_bring_the_same_launch(void **state) {
  setup s;
  standard(&s, false, true);
  s.x.pointers = 4 * POINTERS;  // room for four mini-batches
  s.d[1].minibatches = 2;
  expect(&s, nothing, AT_SPARSE_CHECK_LAUNCH, AT_INVALID_ARGUMENT,
         "table t has 2 minibatches on device 1, 1 on device 0");
  standard(&s, true, false);
  s.d[1].rate = .25f;
  expect(&s, nothing, AT_SPARSE_CHECK_LAUNCH, AT_INVALID_ARGUMENT,
         "hyperparameter 0 of table t differs on device 1");
}

// A slash in the table's name makes no folder. A folder that is gone is an
// error.
static void minibatches_are_written(void **state) {
  char folder[] = "/tmp/atoll_check_XXXXXX", path[64], line[128];
  assert_non_null(mkdtemp(folder));
  setup s;
  standard(&s, true, false);
  s.run.name = "a/b";
  s.run.dump = folder;
  expect(&s, nothing, AT_SPARSE_CHECK_DUMP, 0, "");
  snprintf(path, sizeof path, "%s/a_b.000000.csv", folder);
  FILE *f = fopen(path, "r");
  assert_non_null(f);
  int lines = 0;
  bool found = false;
  while (fgets(line, sizeof line, f)) {
    lines++;
    found |= !strcmp(line, "1,0,0,1,7,1,1\n");
  }
  fclose(f);
  assert_int_equal(lines, 1 + DEVICES * 3);
  assert_true(found);
  remove(path);
  // A device that takes no byte.
  s.run.name = "full";
  snprintf(path, sizeof path, "%s/full.000001.csv", folder);
  assert_int_equal(symlink("/dev/full", path), 0);
  expect(&s, nothing, AT_SPARSE_CHECK_DUMP, AT_DATA_LOSS,
         "cannot write all of");
  remove(path);
  rmdir(folder);
  expect(&s, nothing, AT_SPARSE_CHECK_DUMP, AT_FAILED_PRECONDITION,
         "cannot write");
}

static int start(void **state) {
  return at_code_take(at_pool_create(1, &g_pool));
}
static int stop(void **state) {
  at_pool_destroy(g_pool);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_clean_step_is_silent),
      cmocka_unit_test(nan_is_found_with_its_place),
      cmocka_unit_test(changed_buffers_are_found),
      cmocka_unit_test(local_lookups_have_one_device),
      cmocka_unit_test(devices_of_other_hosts_count),
      cmocka_unit_test(devices_bring_the_same_launch),
      cmocka_unit_test(minibatches_are_written),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
