// Lookups beside the rest of a launch: order among themselves, waiting,
// failing.
#include "exec/exec_internal.h"
#include "exec/exec_test_util.h"

enum { kRows = 8, kWidth = 4, kSamples = 4, kIds = 32, kDevices = 2 };
enum { kWork = 4096 };  // elements of the work beside

// The parameters of one lookup over all devices as one group: the collective's
// tables, then the lookup itself. init: an operand more, which the sums begin
// with.
static uint32_t add_params(builder *b, uint32_t devices, bool init,
                           uint32_t *bytes) {
  struct {
    at_x_collective c;
    uint32_t tables[AT_COLL_TABLES * kDevices];
  } head = {
      .c = {.kind = AT_COLL_SPARSE, .num_devices = devices, .num_groups = 1}};
  for (uint32_t d = 0; d < devices; d++) {
    const uint32_t row[AT_COLL_TABLES] = {0, d, 0, devices, d, UINT32_MAX};
    for (int i = 0; i < AT_COLL_TABLES; i++)
      head.tables[(uint32_t)i * devices + d] = row[i];
  }
  at_x_sparse x = {.op = AT_SPARSE_LOOKUP,
                   .num_devices = devices,
                   .scs_per_device = 1,
                   .has_init = init,
                   .dtype = AT_F32,
                   .num_tables = 1,
                   .pointers = 8,
                   .ids = kIds,
                   .samples = kSamples,
                   .rows = kRows,
                   .width = kWidth};
  uint64_t before = at_x_collective_bytes(&head.c);
  uint8_t all[sizeof head + sizeof x + 64] = {0};
  memcpy(all, &head, before);
  memcpy(all + before, &x, sizeof x);
  *bytes = (uint32_t)(before + at_x_sparse_bytes(&x));
  return b_bytes(b, AT_XS_PARAMS, all, *bytes, 16);
}

// A START whose DONE is `to_done` steps on. The last argument is the result.
static void add_start(builder *b, uint32_t devices, bool init, int64_t to_done,
                      uint32_t num_args, const uint32_t *args) {
  uint32_t bytes, at = add_params(b, devices, init, &bytes);
  at_xstep *s = b_step(b, AT_STEP_START, 0, num_args, args);
  s->params = at;
  s->params_bytes = bytes;
  s->aux = num_args - 1;
  s->tasks = to_done;
}

// y = rows + rows + 1: the second lookup begins with what the first found, and
// nobody waits for the first in between. w = x + 1 beside them.
static at_bytes program(uint32_t devices) {
  builder b = b_new();
  b.h.num_replicas = devices;
  b.h.estimated_ns = 1e9;
  uint32_t ids = b_type(&b, AT_S32, 1, (int64_t[]){kIds});
  uint32_t pointers = b_type(&b, AT_S32, 1, (int64_t[]){8});
  uint32_t p = b_input(&b, pointers), i = b_input(&b, ids),
           s = b_input(&b, ids), g = b_input(&b, b_f32(&b, kIds)),
           t = b_input(&b, b_f32(&b, kRows * kWidth)),
           x = b_input(&b, b_f32(&b, kWork));
  uint32_t y = b_output(&b, b_f32(&b, kSamples * kWidth)),
           w = b_output(&b, b_f32(&b, kWork));
  uint64_t bytes = kSamples * kWidth * 4;
  uint32_t first = b_slot(&b, AT_SLOT_TEMP, 0, 0, bytes),
           second = b_slot(&b, AT_SLOT_TEMP, 0, bytes, bytes);
  add_start(&b, devices, false, 3, ARGS(p, i, s, g, t, first));
  add_start(&b, devices, true, 3, ARGS(p, i, s, g, t, first, second));
  b_call(&b, "k_inc", kWork, 64, ARGS(x, w));
  for (int k = 0; k < 2; k++) b_step(&b, AT_STEP_DONE, 0, 0, NULL)->tasks = 3;
  b_call(&b, "k_inc", kSamples * kWidth, kSamples * kWidth, ARGS(second, y));
  return b_finish(&b, 0);
}

enum { kInputs = 6 };
// Sample k of a device reads row k of the last device's table.
static void put_inputs(at_chip *c, uint32_t devices, int32_t row,
                       at_buffer **in) {
  int32_t pointers[8], ids[kIds] = {0}, samples[kIds] = {0};
  float gains[kIds], table[kRows * kWidth], work[kWork];
  int32_t begin = 8 * (int32_t)(devices - 1);
  for (int i = 0; i < 8; i++)
    pointers[i] = i + 1 < (int)devices ? 0 : begin + kSamples;
  if (devices > 1) pointers[0] = begin;  // owner 0: eight ids of its own
  for (int i = 0; i < kIds; i++) gains[i] = i < begin ? 0 : 1;
  for (int k = 0; k < kSamples; k++) ids[begin + k] = samples[begin + k] = k;
  if (row) ids[begin] = row;
  for (int i = 0; i < kRows * kWidth; i++) table[i] = (float)i;
  for (int i = 0; i < kWork; i++) work[i] = (float)i;
  in[0] = test_array_of(c, AT_S32, pointers, 8);
  in[1] = test_array_of(c, AT_S32, ids, kIds);
  in[2] = test_array_of(c, AT_S32, samples, kIds);
  in[3] = test_array_of(c, AT_F32, gains, kIds);
  in[4] = test_array_of(c, AT_F32, table, kRows * kWidth);
  in[5] = test_array_of(c, AT_F32, work, kWork);
}

// y = 2 table + 1 and w = x + 1, as `program` says.
static void check_outputs(at_buffer *const *out) {
  float y[kSamples * kWidth], w[kWork];
  test_fetch(out[0], y, kSamples * kWidth);
  test_fetch(out[1], w, kWork);
  for (int i = 0; i < kSamples * kWidth; i++)
    assert_true(y[i] == 2 * (float)i + 1);
  for (int i = 0; i < kWork; i++) assert_true(w[i] == (float)i + 1);
}

typedef struct bench {
  at_runtime *rt;
  at_loaded *program;
  uint32_t devices;
  at_chip *chips[kDevices];
  at_buffer *in[kDevices * kInputs];
} bench;

// A program and its inputs on `devices` chips. row: a wrong id to plant, or 0.
static bench bench_make(uint32_t devices, uint32_t threads, int32_t row) {
  bench b = {.rt = test_runtime(devices > 1 ? "v6e:1x2" : "v6e", threads),
             .devices = devices};
  b.program = test_load(b.rt, program(devices));
  for (uint32_t d = 0; d < devices; d++) {
    b.chips[d] = at_runtime_chip(b.rt, d);
    put_inputs(b.chips[d], devices, row, b.in + d * kInputs);
  }
  return b;
}

// One launch on all devices; out: two outputs of each.
static void bench_launch(const bench *b, at_buffer **out, at_event **done) {
  OK(at_loaded_execute(b->program,
                       &(at_launch){.chips = b->chips,
                                    .num_chips = b->devices,
                                    .args = b->in,
                                    .num_args = kInputs},
                       out, done));
}

// Waits for all launches, by destroying the runtime.
static void bench_end(bench *b) {
  for (uint32_t i = 0; i < b->devices * kInputs; i++)
    at_buffer_release(b->in[i]);
  at_loaded_release(b->program);
  at_runtime_destroy(b->rt);
}

// 40 launches under way at once, with fewer, as many and more threads than
// devices: the second lookup of each sees the first one's sums.
static void runs_in_order_beside_the_rest(void **state) {
  enum { kLaunches = 40 };
  for (uint32_t devices = 1; devices <= kDevices; devices++)
    for (uint32_t threads = 1; threads <= 3; threads++) {
      bench b = bench_make(devices, threads, 0);
      at_buffer *out[kLaunches][kDevices * 2];
      for (int i = 0; i < kLaunches; i++) bench_launch(&b, out[i], NULL);
      for (int i = 0; i < kLaunches; i++)
        for (uint32_t d = 0; d < devices; d++) {
          check_outputs(out[i] + 2 * d);
          at_buffer_release(out[i][2 * d]);
          at_buffer_release(out[i][2 * d + 1]);
        }
      bench_end(&b);
    }
}

// An id outside of the table fails the job beside; the devices that wait at its
// DONE end with that error, by name, over many turns of the race.
static void failures_reach_who_waits(void **state) {
  for (uint32_t devices = 1; devices <= kDevices; devices++)
    for (int turn = 0; turn < 20; turn++) {
      bench b = bench_make(devices, 2, kRows + 5);
      at_buffer *out[kDevices * 2];
      at_event *done = NULL;
      bench_launch(&b, out, &done);
      at_status st = at_event_wait(done);
      assert_non_null(strstr(at_status_message(st), "id 13 of table"));
      assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
      at_event_release(done);
      for (uint32_t i = 0; i < devices * 2; i++) at_buffer_release(out[i]);
      bench_end(&b);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_in_order_beside_the_rest),
      cmocka_unit_test(failures_reach_who_waits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
