// Text forms of tables, option strings, targets, and the torus.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cost/cost.h"

// Borrows z.
static at_bytes bytes(const char *z) {
  return (at_bytes){(const uint8_t *)z, strlen(z)};
}

// A table of each kind of line; written again, it is the same text.
static void own_form(void **state) {
  static const char text[] =
      "atoll-perf 1\nmachine box\nsource somebody, with # in it\ndomain "
      "4\ncycles add i8 4\n"
      "collective all-reduce bf16 groups 2x4\n1024 5000\n2048 9000\n"
      "collective all-gather f32 groups 0,2|1,3\n64 1\n"
      "collective collective-permute f32 pairs 0>1 1>0\n8 2\n"
      "gemm bf16 f8E4M3FN f32\n1 2 3 4 500\n";
  at_arena *a = at_arena_create();
  at_perf_table *t;
  size_t n;
  assert_int_equal(at_code_take(at_perf_read(bytes(text), a, &t, &n)), 0);
  assert_int_equal(n, 1);
  assert_int_equal(t->count, 4);
  assert_int_equal(t->domain, 4);
  assert_string_equal(t->source, "somebody, with # in it");
  assert_true(t->series[0].key.groups.count == 2 &&
              t->series[0].key.groups.size == 4);
  assert_true(t->series[0].points[1].at[0] == 2048 &&
              t->series[0].points[1].value == 9000);
  assert_int_equal(t->series[1].key.groups.ids[1], 2);
  assert_int_equal(at_collective_permute_kind(&t->series[2].key),
                   AT_PERMUTE_MUTUAL);
  const int64_t *p = t->series[3].points[0].at;  // b, m, k, n
  assert_true(p[0] == 1 && p[1] == 2 && p[2] == 4 && p[3] == 3);
  at_strbuf out = {0};
  assert_int_equal(at_code_take(at_perf_write(t, n, &out)), 0);
  assert_string_equal(out.ptr, text);
  at_strbuf_free(&out);
  at_arena_destroy(a);
}

// One mistake each, and a part of what the message says of it.
static void bad_tables(void **state) {
  static const struct {
    const char *text, *says;
  } rows[] = {
      {"", "line 1"},
      {"atoll-perf 2\n", "version"},
      {"atoll-perf 1\n12 13\n", "no machine"},
      {"atoll-perf 1\nmachine\n", "name"},
      {"atoll-perf 1\nmachine m\n12 13\n", "before any series"},
      {"atoll-perf 1\nmachine m\ncollective all-hope f32 groups 1x2\n1 1\n",
       "unknown collective"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f7 groups 1x2\n1 1\n",
       "element type"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f32 groups 0x2\n1 1\n",
       "groups"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f32 groups 0,1|2\n1 1\n",
       "different sizes"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f32 pairs 0>1\n1 1\n",
       "groups"},
      {"atoll-perf 1\nmachine m\ncollective collective-permute f32 pairs "
       "0-1\n1 1\n",
       "source>target"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f32 groups 1x2\n",
       "without points"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f32 groups 1x2\n1024\n",
       "bytes/s"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f32 groups 1x2\n0 5\n",
       "bytes/s"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f32 groups 1x2\n1 -5\n",
       "bytes/s"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f32 groups 1x2\n1 2 3\n",
       "after the end"},
      {"atoll-perf 1\nmachine m\ncollective all-reduce f32 groups 1x2\n1 "
       "99999999999999999999\n",
       "bytes/s"},
      {"atoll-perf 1\nmachine m\ngemm f32 f32 f32\n1 2 3 4\n", "b m n k"},
      {"atoll-perf 1\nmachine m\ncycles add f32\n", "cycles"},
      {"atoll-perf 1\nmachine m\ndomain 0\n", "domain"}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    at_perf_table *t;
    size_t n;
    at_status st = at_perf_read(bytes(rows[i].text), a, &t, &n);
    if (!strstr(at_status_message(st), rows[i].says))
      fail_msg("row %zu: %s", i, at_status_message(st));
    assert_true(at_code_take(st) != 0);
    at_arena_destroy(a);
  }
}

// Entries of each kind, in the spellings that text protos allow; what is
// written is read back alike.
static void text_protos(void **state) {
  static const char text[] =
      "# a table\nentries { key: \"sm_90\" value { partition_size: 8\n"
      "entries { instruction { opcode: \"all-reduce-start\" shape { "
      "element_type: F32\n"
      "  dimensions: 256 } iota_collective_device_list { num_replica_groups: "
      "2\n"
      "  num_devices_per_group: 2 iota_reshape_dims: [2, 2] "
      "iota_transpose_perm: [1, 0] } }\n"
      "  network_throughput_bytes_per_sec: 20765736 }\n"
      "entries: < instruction: { opcode: 'reduce-scatter'; shape { "
      "element_type: BF16,\n"
      "  dimensions: 64 } replica_groups { replica_ids: [0, 1] } }\n"
      "  network_throughput_bytes_per_sec: 7 >\n"
      "entries { instruction { opcode: \"collective-permute\" shape { "
      "element_type: F32\n"
      "  dimensions: 16 } source_target_pairs { target: 1 } "
      "source_target_pairs { source: 1 } }\n"
      "  network_throughput_bytes_per_sec: 9 }\n"
      "entries { instruction { opcode: \"dot\" shape { element_type: F32 "
      "dimensions: 2\n"
      "  dimensions: 256 dimensions: 128 } dot_dimension_numbers { "
      "lhs_batch_dimensions: 0\n"
      "  rhs_batch_dimensions: 0 lhs_contracting_dimensions: 2 "
      "rhs_contracting_dimensions: 1 } }\n"
      "  operands { shape { element_type: BF16 dimensions: [2, 256, 64] } }\n"
      "  operands { shape { element_type: BF16 dimensions: [2, 64, 128] } } "
      "clock_cycles: 2000 }\n"
      "entries { instruction { opcode: \"exponential-minus-one\" shape { "
      "element_type: F16 } }\n"
      "  clock_cycles: 30 }\n"
      "entries { b: 1 m: 2 n: 3 k: 4 flops { key: \"bf16xf8e4m3fn->f32\" "
      "value: 5 } } } }\n";
  at_arena *a = at_arena_create();
  at_perf_table *t;
  size_t n;
  at_status st = at_perf_read_pbtxt(bytes(text), 2e9, a, &t, &n);
  if (!at_ok(st)) fail_msg("%s", at_status_message(st));
  assert_true(n == 1 && t->count == 5 && t->domain == 8 && t->num_cycles == 1);
  const at_perf_series *s = t->series;
  assert_true(s[0].key.op == AT_ALL_REDUCE && s[0].key.groups.ids[1] == 2);
  assert_true(s[0].points[0].at[0] == 1024);
  assert_true(s[1].points[0].at[0] ==
              64 * 2 * 2);  // the result's elements, times the devices
  assert_int_equal(at_collective_permute_kind(&s[2].key), AT_PERMUTE_MUTUAL);
  assert_true(s[3].points[0].at[0] == 2 && s[3].points[0].at[1] == 256 &&
              s[3].points[0].at[2] == 64 && s[3].points[0].at[3] == 128);
  // 2000 cycles at 2 GHz are a microsecond.
  assert_true(fabs(s[3].points[0].value / (2.0 * 2 * 256 * 64 * 128 / 1e-6) -
                   1) < 1e-9);
  assert_true(s[4].out == AT_F32 && s[4].rhs == AT_F8E4M3FN &&
              s[4].points[0].value == 5);
  assert_true(t->cycles[0].op == AT_OP_EXPONENTIAL_MINUS_ONE &&
              t->cycles[0].cycles == 30);
  at_strbuf out = {0}, again = {0};
  assert_int_equal(at_code_take(at_perf_write_pbtxt(t, n, false, &out)), 0);
  at_perf_table *u;
  size_t m;
  assert_int_equal(
      at_code_take(at_perf_read_pbtxt(bytes(out.ptr), 0, a, &u, &m)), 0);
  assert_int_equal(at_code_take(at_perf_write_pbtxt(u, m, false, &again)), 0);
  assert_string_equal(out.ptr, again.ptr);
  assert_true(u->count == 3 && u->num_cycles == 1);
  at_strbuf_free(&out);
  at_strbuf_free(&again);
  at_arena_destroy(a);
}

// Counts of points: those of the tables that come with Atoll.
static void whole_tables_survive_the_text_proto(void **state) {
  const at_perf_table *all;
  size_t n, m;
  assert_int_equal(at_code_take(at_perf_builtin(&all, &n)), 0);
  for (int gemm = 0; gemm < 2; gemm++) {
    at_arena *a = at_arena_create();
    at_strbuf out = {0};
    at_perf_table *t;
    assert_int_equal(at_code_take(at_perf_write_pbtxt(all, n, gemm, &out)), 0);
    assert_int_equal(
        at_code_take(at_perf_read_pbtxt(bytes(out.ptr), 0, a, &t, &m)), 0);
    assert_int_equal(m, n);
    size_t points[2] = {0};
    for (size_t i = 0; i < n; i++) {
      for (size_t k = 0; k < all[i].count; k++)
        points[0] +=
            all[i].series[k].is_gemm == gemm ? all[i].series[k].count : 0;
      for (size_t k = 0; k < t[i].count; k++) points[1] += t[i].series[k].count;
    }
    assert_int_equal(points[0], gemm ? 3750 : 2956);
    assert_int_equal(points[1], points[0]);
    at_strbuf_free(&out);
    at_arena_destroy(a);
  }
}

// Rates that still grew by over a twentieth per doubling at the last point.
static void unsaturated_tables_are_warned_about(void **state) {
  static const char text[] =
      "atoll-perf 1\nmachine m\ncollective all-reduce f32 groups 1x8\n1024 "
      "100\n2048 106\n"
      "collective all-gather f32 groups 1x8\n1024 100\n2048 104\n"
      "collective all-to-all f32 groups 1x8\n1024 100\n4096 109\n";
  at_arena *a = at_arena_create();
  at_perf_table *t;
  size_t n;
  at_strbuf out = {0};
  assert_int_equal(at_code_take(at_perf_read(bytes(text), a, &t, &n)), 0);
  at_perf_warn(t, &out);
  assert_non_null(strstr(at_strbuf_str(&out).ptr, "all-reduce over 8 devices"));
  assert_null(strstr(at_strbuf_str(&out).ptr, "all-gather"));
  assert_null(strstr(at_strbuf_str(&out).ptr, "all-to-all"));
  at_strbuf_free(&out);
  at_arena_destroy(a);
}

// What is wrong anywhere changes nothing.
static void options(void **state) {
  at_network net = {.nic = 1, .devices_per_host = 8, .chunk_bytes = 1};
  assert_int_equal(
      at_code_take(at_network_options(
          AT_STR("nic_speed_gbps=12.5,gpus_per_node=4,rtt_us=7"), &net)),
      0);
  assert_true(net.nic == 12.5e9 && net.devices_per_host == 4 &&
              net.rtt == 7e-6);
  static const char *const bad[] = {
      "nic_speed_gbps",    "nic_speed_gbps=",    "nic_speed_gbps=fast",
      "nic_speed_gbps=0",  "nic_speed_gbps=-3",  "gpus_per_node=2.5",
      "nic_speed=5",       "rtt_us=7,",          "=",
      "gpus_per_node=nan", "nic_speed_gbps=inf", "rtt_us=7,oops=1"};
  for (size_t i = 0; i < AT_LEN(bad); i++) {
    at_network same = net;
    assert_int_equal(at_code_take(at_network_options(at_str_of(bad[i]), &same)),
                     AT_INVALID_ARGUMENT);
    assert_memory_equal(&same, &net, sizeof net);
  }
  assert_int_equal(at_code_take(at_network_xla_flags(
                       AT_STR("--xla_a=b "
                              "--xla_gpu_analytical_latency_estimator_options="
                              "\"nic_speed_gbps=50,"
                              "gpus_per_node=8\" --xla_c"),
                       &net)),
                   0);
  assert_true(net.nic == 50e9 && net.devices_per_host == 8);
  at_status st = at_network_xla_flags(
      AT_STR("--xla_gpu_analytical_latency_estimator_options=speed=1"), &net);
  assert_non_null(strstr(at_status_message(st), "speed"));
  assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
}

// Targets read XLA_FLAGS when they are made; a wrong option fails that.
static void xla_flags_of_the_environment(void **state) {
  at_arena *a = at_arena_create();
  at_target *t;
  setenv("XLA_FLAGS",
         "--xla_gpu_analytical_latency_estimator_options=nic_speed_gbps=100",
         1);
  assert_int_equal(
      at_code_take(at_target_parse(AT_STR("H100:16"), AT_INTERP_XLA, a, &t)),
      0);
  assert_true(t->network.nic == 100e9);
  setenv("XLA_FLAGS", "--xla_gpu_analytical_latency_estimator_options=nope=1",
         1);
  assert_int_equal(
      at_code_take(at_target_parse(AT_STR("H100:16"), AT_INTERP_XLA, a, &t)),
      AT_INVALID_ARGUMENT);
  unsetenv("XLA_FLAGS");
  at_arena_destroy(a);
}

// The grammar of targets, and how many devices each has.
static void targets(void **state) {
  static const struct {
    const char *text;
    at_code code;
    uint32_t devices;
  } rows[] = {{"v5p:2x2x4", 0, 16},
              {"2*v5e:4x4", 0, 32},
              {"H100:16", 0, 16},
              {"7x:2x2", 0, 8},
              {"b200", 0, 1},
              {"", AT_INVALID_ARGUMENT, 0},
              {"v9", AT_INVALID_ARGUMENT, 0},
              {"no/such.json:8", AT_INVALID_ARGUMENT, 0},
              {"H100:", AT_INVALID_ARGUMENT, 0},
              {"H100:0", AT_INVALID_ARGUMENT, 0},
              {"0*H100", AT_INVALID_ARGUMENT, 0},
              {"H100:8y8", AT_INVALID_ARGUMENT, 0},
              {"v4:999x999x999", AT_INVALID_ARGUMENT, 0},
              {"v4:2x2x2x2", AT_INVALID_ARGUMENT, 0}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_arena *a = at_arena_create();
    at_target *t = NULL;
    at_code code = at_code_take(
        at_target_parse(at_str_of(rows[i].text), AT_INTERP_ATOLL, a, &t));
    if (code != rows[i].code)
      fail_msg("%s: %s", rows[i].text, at_code_name(code));
    if (!code) assert_int_equal(t->num_devices, rows[i].devices);
    at_arena_destroy(a);
  }
}

// A description that is cut off could mean something else.
static void large_descriptions_are_refused(void **state) {
  enum { kMost = 1 << 20 };
  at_arena *a = at_arena_create();
  at_target *t;
  char path[] = "/tmp/atoll_large_XXXXXX.json";
  int fd = mkstemps(path, 5);
  FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
  assert_non_null(f);
  fputs("{}", f);
  for (int i = 2; i <= kMost; i++) fputc(' ', f);
  fclose(f);
  at_status st = at_target_parse(at_str_of(path), AT_INTERP_ATOLL, a, &t);
  assert_non_null(strstr(at_status_message(st), "is larger than 1048576"));
  assert_int_equal(at_code_take(st), AT_INVALID_ARGUMENT);
  remove(path);
  at_arena_destroy(a);
}

// What the torus model says; another source fails the test.
static double seconds(const char *target, at_collective c) {
  at_arena *a = at_arena_create();
  at_target *t;
  at_cost_time time;
  assert_int_equal(
      at_code_take(at_target_parse(at_str_of(target), AT_INTERP_ATOLL, a, &t)),
      0);
  assert_int_equal(at_code_take(at_cost_collective(t, &c, &time)), 0);
  assert_int_equal(time.source, AT_COST_FROM_TORUS);
  at_arena_destroy(a);
  return time.seconds;
}

// Equal but for rounding.
static bool near(double have, double want) {
  return fabs(have / want - 1) < 1e-9;
}

// By hand: 100 GB/s links at 0.9, 1 us a hop (v5p, v6e); DCN 12.5 GB/s, 31 us
// (v6e).
static void torus(void **state) {
  const double link = 100e9 * 0.9, hop = 1e-6;
  at_collective c = {.op = AT_ALL_GATHER, .dtype = AT_F32, .bytes = 1 << 30};
  double v = (double)c.bytes;
  c.groups = (at_groups){1, 4, NULL};  // a line of 4 on v6e: it does not close
  assert_true(near(seconds("v6e:4x4", c), v * 3 / 4 / link + 3 * hop));
  c.groups = (at_groups){1, 4, NULL};  // a ring of 4 on v5p: both directions
  assert_true(near(seconds("v5p:4x4x4", c), v * 3 / 4 / (2 * link) + 2 * hop));
  c.groups = (at_groups){1, 64, NULL};  // three rings at once
  assert_true(
      near(seconds("v5p:4x4x4", c), v * 63 / 64 / (6 * link) + 6 * hop));
  c.op = AT_ALL_REDUCE;
  assert_true(
      near(seconds("v5p:4x4x4", c), 2 * (v * 63 / 64 / (6 * link) + 6 * hop)));
  c.op = AT_ALL_TO_ALL;
  c.groups = (at_groups){1, 16, NULL};
  assert_true(near(seconds("v6e:16x16", c), v * 16 / (8 * link) + 8 * hop));
  // Every other chip: two groups share each link.
  static const uint32_t even[] = {0, 2, 4, 6, 1, 3, 5, 7};
  c = (at_collective){.op = AT_ALL_GATHER,
                      .dtype = AT_F32,
                      .bytes = 1 << 30,
                      .groups = {2, 4, even}};
  assert_true(near(seconds("v5p:8x1x1", c), v * 3 / 4 / link + 4 * hop));
  // Two slices: inside each, then between.
  c.groups = (at_groups){1, 32, NULL};
  double inside = v * 15 / 16 / (2 * link) + 6 * hop;
  assert_true(
      near(seconds("2*v6e:4x4", c), inside + v / 16 / 2 / 12.5e9 + 31e-6));
  // An axis as long as targets may have it.
  static const uint32_t far[] = {0, 4096};
  c.groups = (at_groups){1, 2, far};
  assert_true(
      near(seconds("v5p:5000x1x1", c), v / 2 / (link / 4096) + 4096 * hop));
  // A shift by one along a ring of 4 crosses each link once; by two, twice.
  static const uint32_t one[][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 0}};
  static const uint32_t two[][2] = {{0, 2}, {1, 3}, {2, 0}, {3, 1}};
  c = (at_collective){.op = AT_PERMUTE,
                      .dtype = AT_F32,
                      .bytes = 1 << 30,
                      .pairs = one,
                      .num_pairs = 4};
  assert_true(near(seconds("v5p:4x1x1", c), v / link + hop));
  c.pairs = two;
  assert_true(near(seconds("v5p:4x1x1", c), 2 * v / link + 2 * hop));
  // On a line the way home is long and meets the others.
  c.pairs = one;
  assert_true(near(seconds("v6e:4", c), v / link + 3 * hop));
}

// A group of nine on eight devices; groups of one, or no bytes, are free.
static void devices_that_are_not_there(void **state) {
  at_arena *a = at_arena_create();
  at_target *t;
  at_cost_time time;
  at_collective c = {
      .op = AT_ALL_REDUCE, .dtype = AT_F32, .bytes = 8, .groups = {1, 9, NULL}};
  assert_int_equal(at_code_take(at_target_parse(AT_STR("v5p:2x2x2"),
                                                AT_INTERP_ATOLL, a, &t)),
                   0);
  assert_int_equal(at_code_take(at_cost_collective(t, &c, &time)),
                   AT_INVALID_ARGUMENT);
  c.groups.size = 1;
  assert_int_equal(at_code_take(at_cost_collective(t, &c, &time)), 0);
  assert_true(time.seconds == 0 && time.source == AT_COST_FREE);
  c.groups.size = 8, c.bytes = 0;
  assert_int_equal(at_code_take(at_cost_collective(t, &c, &time)), 0);
  assert_true(time.seconds == 0);
  at_arena_destroy(a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(own_form),
      cmocka_unit_test(bad_tables),
      cmocka_unit_test(text_protos),
      cmocka_unit_test(whole_tables_survive_the_text_proto),
      cmocka_unit_test(unsaturated_tables_are_warned_about),
      cmocka_unit_test(options),
      cmocka_unit_test(xla_flags_of_the_environment),
      cmocka_unit_test(targets),
      cmocka_unit_test(large_descriptions_are_refused),
      cmocka_unit_test(torus),
      cmocka_unit_test(devices_that_are_not_there),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
