// SparseGather and SparseIota: rows of ids with padding between them.
#include "kernels/kernels_test_util.h"

enum { ROWS = 8, ENTRIES = 128, TABLE = 40, WIDTH = 3 };
static const int32_t g_sizes[ROWS] = {7, 14, 20, 0, 24, 0, 13, 0};

// Every size that the tests use.
static at_k_csr_params params(void) {
  return (at_k_csr_params){.rows = ROWS,
                           .entries = ENTRIES,
                           .max_per_row = 24,
                           .alignment = 8,
                           .table_rows = TABLE,
                           .row_bytes = WIDTH * 4,
                           .pad_value = INT32_MAX};
}

// Rows begin at multiples of 8.
static void make_rows(int32_t *pointers) {
  int32_t at = 0;
  for (int r = 0; r < ROWS; r++) {
    pointers[r] = at + g_sizes[r];
    at = (pointers[r] + 7) / 8 * 8;
  }
}

// Counted by hand, row after row.
static void iota_counts_what_is_no_padding(void **state) {
  int32_t pointers[ROWS], out[ENTRIES], at = 0, next = 0;
  at_k_csr_params p = params();
  void *bufs[] = {pointers, out};
  make_rows(pointers);
  assert_int_equal(tu_run(AT_RT_CSR_IOTA, &p, 2, bufs, 1), AT_OK_CODE);
  for (int r = 0; r < ROWS; r++) {
    for (int i = 0; i < g_sizes[r]; i++) assert_int_equal(out[at++], next++);
    while (at % 8) assert_int_equal(out[at++], INT32_MAX);
  }
  while (at < ENTRIES) assert_int_equal(out[at++], INT32_MAX);
}

// Rows of the table in the order of ids; the rest of the result is zero; ids
// outside of it are refused.
static void gather_leaves_padding_out(void **state) {
  int32_t pointers[ROWS], ids[ENTRIES], table[TABLE * WIDTH];
  int32_t out[ENTRIES * WIDTH], at = 0, next = 0;
  at_k_csr_params p = params();
  void *bufs[] = {table, pointers, ids, out};
  make_rows(pointers);
  for (int i = 0; i < TABLE * WIDTH; i++) table[i] = 1000 + i;
  for (int i = 0; i < ENTRIES; i++) ids[i] = INT32_MAX;
  for (int r = 0; r < ROWS; r++)
    for (int i = pointers[r] - g_sizes[r]; i < pointers[r]; i++)
      ids[i] = (i * 7 + r) % TABLE;
  for (uint32_t threads = 1; threads <= 2; threads++) {
    memset(out, 0xff, sizeof out);
    assert_int_equal(tu_run(AT_RT_CSR_GATHER, &p, 4, bufs, threads),
                     AT_OK_CODE);
    for (at = next = 0; at < ENTRIES; at++) {
      if (ids[at] == INT32_MAX) continue;
      assert_memory_equal(out + next * WIDTH, table + ids[at] * WIDTH,
                          WIDTH * 4);
      next++;
    }
    for (int i = next * WIDTH; i < ENTRIES * WIDTH; i++)
      assert_int_equal(out[i], 0);
  }
  ids[0] = TABLE;
  assert_int_equal(tu_run(AT_RT_CSR_GATHER, &p, 4, bufs, 1),
                   AT_INVALID_ARGUMENT);
  ids[0] = -1;
  assert_int_equal(tu_run(AT_RT_CSR_GATHER, &p, 4, bufs, 1),
                   AT_INVALID_ARGUMENT);
}

// Rows that go back, are too long, or end past the entries.
static void wrong_rows_are_refused(void **state) {
  int32_t good[ROWS], pointers[ROWS], out[ENTRIES];
  void *bufs[] = {pointers, out};
  make_rows(good);
  static const struct {
    int row, value;
  } cases[] = {{0, -1}, {0, 25}, {2, 10}, {7, ENTRIES + 1}, {1, INT32_MAX}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    at_k_csr_params p = params();
    memcpy(pointers, good, sizeof good);
    pointers[cases[i].row] = cases[i].value;
    assert_int_equal(tu_run(AT_RT_CSR_IOTA, &p, 2, bufs, 1),
                     AT_INVALID_ARGUMENT);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(iota_counts_what_is_no_padding),
      cmocka_unit_test(gather_leaves_padding_out),
      cmocka_unit_test(wrong_rows_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
