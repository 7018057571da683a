// Target descriptions, the grammar of ATOLL_TARGET, and padded sizes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "device/device.h"

// device_kind and core counts as jax.devices() shows them on these chips.
static void knows_what_jax_reports(void **state) {
  static const struct {
    const char *name, *kind;
    uint32_t cores_per_device;
    uint64_t hbm_gib_nominal;
  } rows[] = {{"v4", "TPU v4", 2, 32},  {"v5e", "TPU v5 lite", 1, 16},
              {"v5p", "TPU v5", 2, 96}, {"v6e", "TPU v6 lite", 1, 32},
              {"7x", "TPU7x", 1, 96},   {"v7x", "TPU7x", 1, 96}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    const at_hw *hw = NULL;
    assert_int_equal(at_code_take(at_hw_find(at_str_of(rows[i].name), &hw)), 0);
    assert_string_equal(hw->kind, rows[i].kind);
    assert_int_equal(hw->cores_per_device, rows[i].cores_per_device);
    assert_true(hw->hbm_bytes + hw->hbm_reserved_bytes ==
                rows[i].hbm_gib_nominal << 30);
    assert_true(hw->vmem_bytes && hw->smem_bytes && hw->sublane_rows_16bit);
  }
}

// Other machines are for estimates.
static void only_tpus_are_chips(void **state) {
  const at_hw *hw;
  assert_int_equal(at_code_take(at_hw_find(AT_STR("H100"), &hw)),
                   AT_INVALID_ARGUMENT);
}

// Parts, slices, shapes; and what is wrong with each of the refused ones.
static void parses_topologies(void **state) {
  static const struct {
    const char *text;
    at_code code;
    uint32_t devices;
  } rows[] = {{"v6e", 0, 1},
              {"v5p:2x2x4", 0, 16},
              {"2*v5e:2x2", 0, 8},
              {"7x", 0, 2},
              {"7x:2x2", 0, 8},
              {"v6e:3", 0, 3},
              {"v5e:2x4,v6e:2x2", 0, 12},
              {"v5e:2x4,", AT_INVALID_ARGUMENT, 0},
              {",v5e", AT_INVALID_ARGUMENT, 0},
              {"v5e,H900", AT_INVALID_ARGUMENT, 0},
              {"9*v5e:16x16,9*v6e:16x16", AT_INVALID_ARGUMENT, 0},
              {"v5e,v5e,v5e,v5e,v5e,v5e,v5e,v5e,v5e", AT_INVALID_ARGUMENT, 0},
              {"", AT_INVALID_ARGUMENT, 0},
              {"v9", AT_INVALID_ARGUMENT, 0},
              {"v6e:", AT_INVALID_ARGUMENT, 0},
              {"v6e:0x2", AT_INVALID_ARGUMENT, 0},
              {"v6e:2x", AT_INVALID_ARGUMENT, 0},
              {"v6e:2x2x2x2", AT_INVALID_ARGUMENT, 0},
              {"v6e:2y2", AT_INVALID_ARGUMENT, 0},
              {"0*v6e", AT_INVALID_ARGUMENT, 0},
              {"x*v6e", AT_INVALID_ARGUMENT, 0},
              {"v6e:4096x4096x4096", AT_INVALID_ARGUMENT, 0},
              {"v6e:99999999999999999999", AT_INVALID_ARGUMENT, 0}};
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_topology t = {0};
    assert_int_equal(at_code_take(at_topology_parse(rows[i].text, &t)),
                     rows[i].code);
    if (!rows[i].code) assert_int_equal(t.num_devices, rows[i].devices);
  }
}

// Coordinates as JAX numbers them, cores of a chip first.
static void numbers_devices_x_first(void **state) {
  at_topology t;
  assert_int_equal(at_code_take(at_topology_parse("2*v4:2x3x4", &t)), 0);
  at_place p = at_topology_place(&t, 0);
  assert_true(p.coords[0] == 0 && p.coords[1] == 0 && p.coords[2] == 0);
  p = at_topology_place(&t, 1);
  assert_true(p.coords[0] == 1 && p.coords[1] == 0);
  p = at_topology_place(&t, 24 + 2 * 3 * 2 + 2 * 1 + 1);
  assert_true(p.slice == 1 && p.coords[0] == 1 && p.coords[1] == 1 &&
              p.coords[2] == 2);
  assert_int_equal(at_code_take(at_topology_parse("7x:2", &t)), 0);
  p = at_topology_place(&t, 3);
  assert_true(p.core_on_chip == 1 && p.coords[0] == 1);
}

// Devices and slices count on from part to part.
static void numbers_parts_behind_each_other(void **state) {
  const char *text = "2*v5e:2x2,7x:2,v6e:1x2";
  at_topology t;
  assert_int_equal(at_code_take(at_topology_parse(text, &t)), 0);
  static const struct {
    uint32_t device, part, slice, core;
    int64_t x, y;
    const char *name;
  } rows[] = {{0, 0, 0, 0, 0, 0, "v5e"},  {7, 0, 1, 0, 1, 1, "v5e"},
              {8, 1, 2, 0, 0, 0, "7x"},   {11, 1, 2, 1, 1, 0, "7x"},
              {12, 2, 3, 0, 0, 0, "v6e"}, {13, 2, 3, 0, 0, 1, "v6e"}};
  assert_int_equal(t.num_devices, 14);
  for (size_t i = 0; i < AT_LEN(rows); i++) {
    at_place p = at_topology_place(&t, rows[i].device);
    assert_string_equal(p.hw->name, rows[i].name);
    assert_int_equal(p.part, rows[i].part);
    assert_int_equal(p.slice, rows[i].slice);
    assert_int_equal(p.core_on_chip, rows[i].core);
    assert_true(p.coords[0] == rows[i].x && p.coords[1] == rows[i].y);
  }
  assert_true(at_str_is(at_topology_part_text(text, 1), "7x:2"));
  assert_true(at_str_is(at_topology_part_text(text, 2), "v6e:1x2"));
  assert_int_equal(at_topology_spare(&t, 9, 0), 0);
  assert_int_equal(at_topology_spare(&t, 9, 3), 8);
  assert_int_equal(at_topology_spare(&t, 9, 8), 12);
}

// Sizes that were read off XLA's layouts, empty arrays, and sizes that
// saturate.
static void pads_to_tiles(void **state) {
  const at_hw *v6e, *v7;
  assert_int_equal(at_code_take(at_hw_find(AT_STR("v6e"), &v6e)), 0);
  assert_int_equal(at_code_take(at_hw_find(AT_STR("7x"), &v7)), 0);
  static const struct {
    at_dtype t;
    uint32_t rank;
    int64_t dims[3];
    uint64_t bytes;
  } rows[] = {
      {AT_F32, 0, {0}, 512},
      {AT_F32, 1, {1}, 512},
      {AT_F32, 1, {300}, 2048},
      {AT_F32, 1, {1025}, 8192},
      {AT_F32, 1, {0}, 0},
      {AT_BF16, 1, {10}, 512},
      {AT_F32, 2, {8, 128}, 4096},
      {AT_F32, 2, {9, 129}, 16 * 256 * 4},
      {AT_F32, 2, {1, 128}, 512},
      {AT_F32, 2, {3, 128}, 4 * 128 * 4},
      {AT_BF16, 2, {8, 128}, 2048},
      {AT_BF16, 2, {1, 128}, 2 * 128 * 2},
      {AT_S8, 2, {33, 1}, 4 * 128},
      {AT_F32, 2, {1000, 1}, 4096},
      {AT_F32, 2, {1000, 3}, 4 * 1024 * 4},
      {AT_F32, 3, {1000, 3, 128}, 1000 * 3 * 128 * 4},
      {AT_BF16, 3, {1000, 5, 1}, 8 * 1024 * 2},
      {AT_S4, 2, {64, 128}, 4096},
      {AT_PRED, 2, {32, 128}, 4096},
      {AT_F64, 2, {8, 128}, 8192},
      {AT_C128, 2, {8, 128}, 16384},
      {AT_F32, 3, {5, 1, 1}, 512},
      {AT_F32, 3, {5, 0, 1}, 0},
      {AT_TOKEN, 0, {0}, 0},
      {AT_F32, 3, {INT64_MAX, INT64_MAX, INT64_MAX}, UINT64_MAX},
      {AT_F32, 1, {INT64_MAX}, UINT64_MAX},
  };
  for (size_t i = 0; i < AT_LEN(rows); i++)
    assert_int_equal(at_hw_padded_bytes(v6e, rows[i].t,
                                        (at_dims){rows[i].dims, rows[i].rank}),
                     rows[i].bytes);
  static const struct {
    const char *layout;
    uint64_t bytes;
  } tables[] = {
      {"{1,0:T(8)}", 1000 * 16 * 4},      {"{0,1:T(8)}", 1000 * 9 * 4},
      {"{1,0:T(1024)}", 1000 * 1024 * 4}, {"", 16 * 1024 * 4},
      {"{1,0}", 16 * 1024 * 4},           {"{1,0:T(8,128)}", 16 * 1024 * 4},
      {"{7,0:T(8)}", 16 * 1024 * 4},      {"{1,0:T(0)}", 16 * 1024 * 4}};
  for (size_t i = 0; i < AT_LEN(tables); i++)
    assert_int_equal(
        at_hw_layout_bytes(v6e, AT_F32, (at_dims){(int64_t[]){1000, 9}, 2},
                           tables[i].layout),
        tables[i].bytes);
  at_dims square = {(int64_t[]){9, 128}, 2};
  assert_int_equal(at_hw_padded_bytes(v6e, AT_BF16, square), 16 * 128 * 2);
  square = (at_dims){(int64_t[]){17, 128}, 2};
  assert_int_equal(at_hw_padded_bytes(v6e, AT_BF16, square), 24 * 128 * 2);
  assert_int_equal(at_hw_padded_bytes(v7, AT_BF16, square), 32 * 128 * 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(knows_what_jax_reports),
      cmocka_unit_test(only_tpus_are_chips),
      cmocka_unit_test(parses_topologies),
      cmocka_unit_test(numbers_devices_x_first),
      cmocka_unit_test(numbers_parts_behind_each_other),
      cmocka_unit_test(pads_to_tiles),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
