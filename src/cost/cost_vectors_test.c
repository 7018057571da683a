// XLA's own numbers (testdata/vectors.json), in xla mode; and what its tables
// say of large transfers and products in each mode.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cost/cost.h"

typedef struct fixture {
  at_arena *arena;
  const at_json *vectors;
  const at_perf_table *tables;
  size_t num_tables;
} fixture;

// Vectors and built-in tables, for all tests of the file.
static int open_fixture(void **state) {
  static fixture f;
  f.arena = at_arena_create();
  const char *top = getenv("AT_SOURCE_DIR");
  char path[4096];
  snprintf(path, sizeof path, "%s/src/cost/testdata/vectors.json",
           top ? top : ".");
  FILE *file = fopen(path, "rb");
  static uint8_t text[1 << 16];
  if (!file) return -1;
  size_t n = fread(text, 1, sizeof text, file);
  fclose(file);
  if (at_code_take(at_json_parse((at_bytes){text, n}, f.arena, &f.vectors)))
    return -1;
  if (at_code_take(at_perf_builtin(&f.tables, &f.num_tables))) return -1;
  *state = &f;
  return 0;
}

static int close_fixture(void **state) {
  at_arena_destroy(((fixture *)*state)->arena);
  return 0;
}

// A built-in table as the mode reads it.
static at_perf *perf_of(fixture *f, const char *machine, at_interp mode) {
  const at_perf_table *t = at_perf_find(f->tables, f->num_tables, machine);
  at_perf *p = NULL;
  assert_non_null(t);
  assert_int_equal(at_code_take(at_perf_prepare(t, mode, false, f->arena, &p)),
                   0);
  return p;
}

static double num(const at_json *row, size_t i) { return row->items[i].number; }
// A copy that ends in 0.
static const char *text(fixture *f, const at_json *row, size_t i) {
  return at_arena_str(f->arena, row->items[i].string);
}

// Four places of XLA's own test, out of order.
static void points_of_the_test(at_point *list, at_points *out) {
  static const int64_t places[4][3] = {
      {8, 16, 1}, {8, 8, 2}, {16, 8, 3}, {16, 16, 4}};
  size_t n = 4;
  for (int i = 0; i < 4; i++)
    list[i] = (at_point){.at = {places[i][0], places[i][1]},
                         .value = (double)places[i][2]};
  at_points_sort(list, &n, 2, out);
}

// The nearest point by both searches, and the weighted sum.
static void interpolators(void **state) {
  fixture *f = *state;
  at_point list[4];
  at_points p;
  points_of_the_test(list, &p);
  const at_json *rows = at_json_get(f->vectors, "interp_nn");
  for (size_t i = 0; i < rows->len; i++) {
    int64_t q[2] = {(int64_t)num(&rows->items[i].items[0], 0),
                    (int64_t)num(&rows->items[i].items[0], 1)};
    assert_true(at_points_nearest(&p, q) == num(&rows->items[i], 1));
    assert_true(at_points_complement(&p, q) == num(&rows->items[i], 1));
  }
  rows = at_json_get(f->vectors, "interp_weighted");
  for (size_t i = 0; i < rows->len; i++) {
    int64_t q[2] = {(int64_t)num(&rows->items[i].items[0], 0),
                    (int64_t)num(&rows->items[i].items[0], 1)};
    assert_true(fabs(at_points_weighted(&p, q) - num(&rows->items[i], 1)) <
                0.01);
  }
}

// Microseconds, cut off as the file has them.
static void s_curve(void **state) {
  fixture *f = *state;
  at_network net = {.launch = 100e-6,
                    .nic = 100e9,
                    .chunk_prep = 100e-6,
                    .rtt = 100e-6,
                    .devices_per_host = 8,
                    .chunk_bytes = 4 << 20};
  const at_json *rows = at_json_get(f->vectors, "scurve_8MiB_test_cfg");
  for (size_t i = 0; i < rows->len; i++) {
    const at_json *row = &rows->items[i];
    at_str name = row->items[0].string;
    int64_t hosts = (int64_t)num(row, 1);
    double seconds = 0, want = num(row, 2);
    at_collective_op op = AT_PERMUTE;
    if (!at_str_is(name, "sendrecv"))
      assert_true(at_collective_parse(name, &op));
    if (op == AT_ALL_TO_ALL) {
      // The rows are of XLA's older formula (the file's scurve_note gives
      // both).
      net.all_to_all_by_peers = true;
      assert_int_equal(at_code_take(at_network_all_to_all(&net, 8 << 20, hosts,
                                                          1, &seconds)),
                       0);
      double newer;
      net.all_to_all_by_peers = false;
      assert_int_equal(
          at_code_take(at_network_all_to_all(&net, 8 << 20, hosts, 1, &newer)),
          0);
      assert_true(floor(newer * 1e6) == (hosts == 2   ? 1745
                                         : hosts == 4 ? 4966
                                                      : want));
    } else {
      assert_int_equal(
          at_code_take(at_network_ring(&net, op, 8 << 20, hosts, 1, &seconds)),
          0);
    }
    if (floor(seconds * 1e6) != want)
      fail_msg("%.*s over %lld hosts: %.3f us, not %.0f", (int)name.len,
               name.ptr, (long long)hosts, seconds * 1e6, want);
  }
}

// Each figure of the network as XLA has it for that machine.
static void defaults_of_the_machines(void **state) {
  fixture *f = *state;
  const at_json *sets = at_json_get(f->vectors, "scurve_defaults");
  for (size_t i = 0; i < sets->len; i++) {
    at_network net;
    const at_machine *m;
    at_machine none = {"unknown", "gpu", NULL};
    if (at_str_is(sets->keys[i], "unknown"))
      m = &none;
    else
      assert_int_equal(at_code_take(at_machine_find(sets->keys[i], &m)), 0);
    at_network_of(m, &net);
    const at_json *want = &sets->items[i];
    static const struct {
      const char *name;
      double unit;
    } rows[] = {{"launch_us", 1e-6},        {"nic_GBps", 1e9},
                {"chunk_prep_us", 1e-6},    {"rtt_us", 1e-6},
                {"gpus_per_node", 1},       {"chunk", 1},
                {"nvlink_barrier_us", 1e-6}};
    double have[] = {net.launch,
                     net.nic,
                     net.chunk_prep,
                     net.rtt,
                     (double)net.devices_per_host,
                     (double)net.chunk_bytes,
                     net.nvlink_barrier};
    for (size_t k = 0; k < AT_LEN(rows); k++) {
      double expected = at_json_get_num(want, rows[k].name, -1) * rows[k].unit;
      assert_true(fabs(have[k] - expected) <= 1e-9 * expected);
    }
  }
}

// One-shot and two-shot by hand, the limit on bytes, a machine without links.
static void direct_kernels(void **state) {
  fixture *f = *state;
  at_network net = {
      .nvlink_links = 18, .nvlink_link = 20e9, .nvlink_barrier = 1.5e-6};
  double s, want = at_json_get_num(
                f->vectors, "nvlink_oneshot_128KiB_8gpu_18x20GBps_us_trunc", 0);
  assert_int_equal(at_code_take(at_network_direct(&net, 128 << 10, 8, &s)), 0);
  assert_true(floor(s * 1e6) == want);
  assert_int_equal(at_code_take(at_network_direct(&net, 1 << 20, 8, &s)), 0);
  assert_true(fabs(s - (1e-6 + 2 * (7.0 / 8 * (1 << 20) / 360e9 + 1.5e-6))) <
              1e-12);
  assert_int_equal(at_code_take(at_network_direct(&net, 5 << 20, 8, &s)),
                   AT_INVALID_ARGUMENT);
  net.nvlink_links = 0;
  assert_int_equal(at_code_take(at_network_direct(&net, 1024, 8, &s)),
                   AT_FAILED_PRECONDITION);
}

// In f32, groups in order.
static double collective_seconds(at_perf *p, at_collective_op op, int64_t bytes,
                                 uint32_t groups, uint32_t size) {
  at_collective c = {.op = op,
                     .dtype = AT_F32,
                     .bytes = bytes,
                     .groups = {groups, size, NULL}};
  at_cost_time t = {0};
  assert_int_equal(at_code_take(at_perf_collective(p, &c, &t)), 0);
  return t.seconds;
}

// XLA mode on the tables that XLA has.
static void collective_table(void **state) {
  fixture *f = *state;
  const at_json *rows = at_json_get(f->vectors, "collective_default_table");
  for (size_t i = 0; i < rows->len; i++) {
    const at_json *row = &rows->items[i];
    at_collective_op op;
    assert_true(at_collective_parse(row->items[1].string, &op));
    at_perf *p = perf_of(f, text(f, row, 0), AT_INTERP_XLA);
    double s = collective_seconds(p, op, (int64_t)num(row, 4),
                                  (uint32_t)num(row, 3), (uint32_t)num(row, 2));
    assert_true(fabs(s * 1e6 - num(row, 5)) < 0.001);
  }
}

// A product of one element type.
static double gemm_seconds(at_perf *p, at_dtype t, int64_t b, int64_t m,
                           int64_t n, int64_t k) {
  at_gemm g = {t, t, t, b, m, n, k};
  at_cost_time time = {0};
  assert_int_equal(at_code_take(at_perf_gemm(p, &g, &time)), 0);
  return time.seconds;
}

// bf16 is in the table; s8 falls back on the one over bytes.
static void matmul_table(void **state) {
  fixture *f = *state;
  const at_json *rows =
      at_json_get(f->vectors, "matmul_default_table_trunc_us");
  for (size_t i = 0; i < rows->len; i++) {
    const at_json *row = &rows->items[i];
    // Columns: device, b, m, n, k, microseconds, all bf16.
    at_perf *p = perf_of(f, text(f, row, 0), AT_INTERP_XLA);
    double s =
        gemm_seconds(p, AT_BF16, (int64_t)num(row, 1), (int64_t)num(row, 2),
                     (int64_t)num(row, 3), (int64_t)num(row, 4));
    if (floor(s * 1e6) != num(row, 5))
      fail_msg("row %zu: %.3f us, not %.0f", i, s * 1e6, num(row, 5));
  }
  rows = at_json_get(f->vectors, "matmul_fallback_s8_trunc_us");
  for (size_t i = 0; i < rows->len; i++) {
    const at_json *row = &rows->items[i];
    int64_t n = (int64_t)num(row, 2);
    double s = gemm_seconds(perf_of(f, text(f, row, 0), AT_INTERP_XLA), AT_S8,
                            (int64_t)num(row, 1), n, n, n);
    if (floor(s * 1e6) != num(row, 3))
      fail_msg("row %zu: %.3f us, not %.0f", i, s * 1e6, num(row, 3));
  }
}

// Past the table's edge: 4 GiB over 8 devices, 8192^3.
static void large_transfers_and_products(void **state) {
  fixture *f = *state;
  static const struct {
    const char *machine;
    double seed, xla, gemm;
  } rows[] = {{"sm_100_B200", 12.245, 12.460, 0.776},
              {"sm_90", 18.676, 18.884, 1.409}};
  for (size_t i = 0; i < AT_LEN(rows); i++)
    for (int mode = AT_INTERP_SEED; mode <= AT_INTERP_ATOLL; mode++) {
      at_perf *p = perf_of(f, rows[i].machine, (at_interp)mode);
      double ms =
          collective_seconds(p, AT_ALL_REDUCE, (int64_t)4 << 30, 1, 8) * 1e3;
      double gemm = gemm_seconds(p, AT_BF16, 1, 8192, 8192, 8192) * 1e3;
      if (mode == AT_INTERP_ATOLL) {
        assert_true(fabs(ms / rows[i].seed - 1) < 0.05);
        assert_true(fabs(gemm / rows[i].gemm - 1) < 0.05);
        continue;
      }
      double want = mode == AT_INTERP_SEED ? rows[i].seed : rows[i].xla;
      if (fabs(ms - want) >= 0.0005 || fabs(gemm - rows[i].gemm) >= 0.0005)
        fail_msg("%s %s: %.4f ms, %.4f ms", rows[i].machine,
                 at_interp_text((at_interp)mode), ms, gemm);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(interpolators),
      cmocka_unit_test(s_curve),
      cmocka_unit_test(defaults_of_the_machines),
      cmocka_unit_test(direct_kernels),
      cmocka_unit_test(collective_table),
      cmocka_unit_test(matmul_table),
      cmocka_unit_test(large_transfers_and_products),
  };
  return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
