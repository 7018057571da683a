// What kernels do between elements: moves, reductions, scans and products. Each
// kernel computes on 16 x 128 numbers of which element (r, c) is f(r, c), so
// that results are said by a function of their place.
#include "mosaic/run_test_util.h"

enum { R = 16, C = 128 };

static int32_t g_in[R * C], g_out[8 * R * C];

// Different everywhere, of both signs, not in order.
static int32_t f(int64_t r, int64_t c) {
  return (int32_t)((r * 7919 + c * 104729) % 65521 - 30000);
}

typedef struct move {
  const char *name;
  const char *lines;  // from %x to %v
  int rows, lanes;    // of %v
  int32_t (*want)(int r, int c);
} move;

static int32_t w_same(int r, int c) { return f(r, c); }
static int32_t w_transposed(int r, int c) { return f(c, r); }
static int32_t w_slice(int r, int c) { return f(r + 3, c + 64); }
static int32_t w_column(int r, int c) { return f(r, 0); }
static int32_t w_row(int r, int c) { return f(5, c); }
static int32_t w_number(int r, int c) { return f(2, 3); }
static int32_t w_flat(int r, int c) { return f(r / 2, r % 2 * 64 + c); }
static int32_t w_down(int r, int c) { return f((r + R - 3) % R, c); }
static int32_t w_right(int r, int c) { return f(r, (c + C - 5) % C); }
static int32_t w_more(int r, int c) { return f(r, (c + 2 * C - 5 - r) % C); }
static int32_t w_twice(int r, int c) { return f(r % R, c); }
static int32_t w_halves(int r, int c) { return f(r < 8 ? r + 8 : r - 8, c); }
static int32_t w_lane(int r, int c) { return c; }
static int32_t w_both(int r, int c) { return r * C + c; }
static int32_t w_put(int r, int c) { return r == 4 ? f(1, c) : f(r, c); }
static int32_t w_gathered(int r, int c) { return f(r, (c * 3 + r) % C); }

static int32_t w_picked(int r, int c) {
  static const int rows[] = {5, 0, 15, 5, 7, 1, 2, 3};
  return f(rows[r], c);
}
static int32_t w_masked(int r, int c) {
  return r >= 2 && r < 9 && c >= 100 && c < 127 ? f(r, c) : 0;
}

static const move moves[] = {
    {"the chip's transpose",
     "%v = 'tpu.transpose'(%x) {permutation = array<i64: 1, 0>} : "
     "(!16x128xi32) -> !128x16xi32\n",
     128, 16, w_transposed},
    {"the chip's reshape",
     "%v = 'tpu.reshape'(%x) : (!16x128xi32) -> !32x64xi32\n", 32, 64, w_flat},
    {"gather of rows",
     "%v = 'tpu.gather'(%x) {dimension = 0 : i32, indices = array<i32: 5, 0, "
     "15, 5, 7, 1, 2, 3>} : (!16x128xi32) -> !8x128xi32\n",
     8, 128, w_picked},
    {"mask of a window",
     "%l0 = 'arith.constant'() {value = 2 : index} : () -> index\n"
     "%l1 = 'arith.constant'() {value = 100 : index} : () -> index\n"
     "%h0 = 'arith.constant'() {value = 9 : index} : () -> index\n"
     "%h1 = 'arith.constant'() {value = 127 : index} : () -> index\n"
     "%m = 'tpu.create_mask'(%l0, %l1, %h0, %h1) : (index, index, index, "
     "index) -> !16x128xi1\n"
     "%v = 'arith.select'(%m, %x, %zero) : (!16x128xi1, !16x128xi32, "
     "!16x128xi32) -> !16x128xi32\n",
     16, 128, w_masked},
    {"a store of a load",
     "%v = 'arith.addi'(%x, %zero) : (!16x128xi32, "
     "!16x128xi32) -> !16x128xi32\n",
     16, 128, w_same},
    {"transpose",
     "%v = 'vector.transpose'(%x) {permutation = array<i64: 1, 0>} : "
     "(!16x128xi32) -> !128x16xi32\n",
     128, 16, w_transposed},
    {"slice",
     "%v = 'vector.extract_strided_slice'(%x) {offsets = [3, 64], sizes = [8, "
     "32], strides = [1, 1]} : (!16x128xi32) -> !8x32xi32\n",
     8, 32, w_slice},
    {"broadcast of a column",
     "%s = 'vector.extract_strided_slice'(%x) {offsets = [0, 0], sizes = [16, "
     "1], strides = [1, 1]} : (!16x128xi32) -> !16x1xi32\n"
     "%v = 'vector.broadcast'(%s) : (!16x1xi32) -> !16x128xi32\n",
     16, 128, w_column},
    {"broadcast of a row",
     "%s = 'vector.extract'(%x) {static_position = array<i64: 5>} : "
     "(!16x128xi32) -> !128xi32\n"
     "%v = 'vector.broadcast'(%s) : (!128xi32) -> !16x128xi32\n",
     16, 128, w_row},
    {"broadcast of a number",
     "%s = 'vector.extract'(%x) {static_position = array<i64: 2, 3>} : "
     "(!16x128xi32) -> i32\n"
     "%v = 'vector.broadcast'(%s) : (i32) -> !16x128xi32\n",
     16, 128, w_number},
    {"shape_cast",
     "%v = 'vector.shape_cast'(%x) : (!16x128xi32) -> !32x64xi32\n", 32, 64,
     w_flat},
    {"rotate along rows",
     "%n = 'arith.constant'() {value = 3 : i32} : () -> i32\n"
     "%v = 'tpu.dynamic_rotate'(%x, %n) {dimension = 0 : i32} : (!16x128xi32, "
     "i32) -> !16x128xi32\n",
     16, 128, w_down},
    {"dynamic rotate along lanes",
     "%n = 'arith.constant'() {value = 5 : i32} : () -> i32\n"
     "%v = 'tpu.dynamic_rotate'(%x, %n) {dimension = 1 : i32} : (!16x128xi32, "
     "i32) -> !16x128xi32\n",
     16, 128, w_right},
    {"rotate more from row to row",
     "%n = 'arith.constant'() {value = 5 : i32} : () -> i32\n"
     "%v = 'tpu.dynamic_rotate'(%x, %n) {dimension = 1 : i32, stride = 1 : "
     "i32, stride_dimension = 0 : i32} : (!16x128xi32, i32) -> !16x128xi32\n",
     16, 128, w_more},
    {"concatenate",
     "%v = 'tpu.concatenate'(%x, %x) {dimension = 0 : i32} : (!16x128xi32, "
     "!16x128xi32) -> !32x128xi32\n",
     32, 128, w_twice},
    {"concatenate of halves",
     "%s = 'vector.extract_strided_slice'(%x) {offsets = [0, 0], sizes = [8, "
     "128], strides = [1, 1]} : (!16x128xi32) -> !8x128xi32\n"
     "%t = 'vector.extract_strided_slice'(%x) {offsets = [8, 0], sizes = [8, "
     "128], strides = [1, 1]} : (!16x128xi32) -> !8x128xi32\n"
     "%v = 'tpu.concatenate'(%t, %s) {dimension = 0 : i32} : (!8x128xi32, "
     "!8x128xi32) -> !16x128xi32\n",
     16, 128, w_halves},
    {"repeat",
     "%v = 'tpu.repeat'(%x) {dimension = 0 : i32, times = 2 : i32} : "
     "(!16x128xi32) -> !32x128xi32\n",
     32, 128, w_twice},
    {"iota",
     "%v = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> !16x128xi32\n", 16,
     128, w_lane},
    {"iota of both",
     "%v = 'tpu.iota'() {dimensions = array<i32: 0, 1>} : () -> !16x128xi32\n",
     16, 128, w_both},
    {"insert",
     "%s = 'vector.extract'(%x) {static_position = array<i64: 1>} : "
     "(!16x128xi32) -> !128xi32\n"
     "%v = 'vector.insert'(%s, %x) {static_position = array<i64: 4>} : "
     "(!128xi32, !16x128xi32) -> !16x128xi32\n",
     16, 128, w_put},
    {"dynamic gather along lanes",
     "%l = 'tpu.iota'() {dimensions = array<i32: 1>} : () -> !16x128xi32\n"
     "%r = 'tpu.iota'() {dimensions = array<i32: 0>} : () -> !16x128xi32\n"
     "%three = 'arith.constant'() {value = dense<3> : !16x128xi32} : () -> "
     "!16x128xi32\n"
     "%all = 'arith.constant'() {value = dense<127> : !16x128xi32} : () -> "
     "!16x128xi32\n"
     "%a = 'arith.muli'(%l, %three) : (!16x128xi32, !16x128xi32) -> "
     "!16x128xi32\n"
     "%b = 'arith.addi'(%a, %r) : (!16x128xi32, !16x128xi32) -> !16x128xi32\n"
     "%i = 'arith.andi'(%b, %all) : (!16x128xi32, !16x128xi32) -> "
     "!16x128xi32\n"
     "%v = 'tpu.dynamic_gather'(%x, %i) {dimensions = array<i32: 1>} : "
     "(!16x128xi32, !16x128xi32) -> !16x128xi32\n",
     16, 128, w_gathered},
};

// ---- Sums along dimensions
static int32_t r_rows(int r, int c) {
  int32_t s = 10;
  for (int i = 0; i < R; i++) s += f(i, c);
  return s;
}
static int32_t r_lanes(int r, int c) {
  int32_t s = f(c, 0);
  for (int i = 1; i < C; i++) s = AT_MAX(s, f(c, i));
  return s;
}
static int32_t r_least(int r, int c) {
  int32_t s = 10;
  for (int i = 0; i < R; i++) s = AT_MIN(s, f(i, c));
  return s;
}
static int32_t r_all(int r, int c) {
  int32_t s = 10;
  for (int i = 0; i < R * C; i++) s += f(i / C, i % C);
  return s;
}
static int32_t r_xor(int r, int c) {
  int32_t s = 10;
  for (int i = 0; i < R; i++) s ^= f(i, c);
  return s;
}

#define REDUCED(kind, dims, from, to)                                  \
  "%v = 'vector.multi_reduction'(%x, %acc) {kind = #vector.kind<" kind \
  ">, reduction_dims = [" dims "]} : (" from ", " to ") -> " to "\n"
#define ACC(n, to) \
  "%acc = 'arith.constant'() {value = dense<" n "> : " to "} : () -> " to "\n"

static const move reductions[] = {
    {"sum over rows",
     ACC("10", "!128xi32") REDUCED("add", "0", "!16x128xi32", "!128xi32"), 0,
     128, r_rows},
    {"largest over lanes",
     ACC("-2147483648", "!16xi32")
         REDUCED("maxsi", "1", "!16x128xi32", "!16xi32"),
     0, 16, r_lanes},
    {"least over rows",
     ACC("10", "!128xi32") REDUCED("minsi", "0", "!16x128xi32", "!128xi32"), 0,
     128, r_least},
    {"exclusive or over rows",
     ACC("10", "!128xi32") REDUCED("xor", "0", "!16x128xi32", "!128xi32"), 0,
     128, r_xor},
    {"sum of everything",
     "%acc = 'arith.constant'() {value = 10 : i32} : () -> i32\n"
     "%s = 'vector.multi_reduction'(%x, %acc) {kind = #vector.kind<add>, "
     "reduction_dims = [0, 1]} : (!16x128xi32, i32) -> i32\n"
     "%v = 'vector.broadcast'(%s) : (i32) -> !8x128xi32\n",
     8, 128, r_all},
};

static const move *g_move;

static void judge(const rt_kernel *k) {
  int rows = AT_MAX(1, g_move->rows);
  for (int r = 0; r < rows; r++)
    for (int c = 0; c < g_move->lanes; c++)
      if (g_out[r * g_move->lanes + c] != g_move->want(r, c))
        fail_msg("%s: (%d, %d) is %d, want %d", g_move->name, r, c,
                 g_out[r * g_move->lanes + c], g_move->want(r, c));
}

static void check_move(const move *m) {
  char type[32], at[32];
  if (m->rows)
    snprintf(type, sizeof type, "%dx%dxi32", m->rows, m->lanes);
  else
    snprintf(type, sizeof type, "%dxi32", m->lanes);
  snprintf(at, sizeof at, m->rows ? "%%c0, %%c0" : "%%c0");
  at_strbuf b = {0};
  at_strbuf_addf(
      &b,
      "%%zero = 'arith.constant'() {value = dense<0> : !16x128xi32} : () -> "
      "!16x128xi32\n"
      "%%x = 'vector.load'(%%in, %%c0, %%c0) : (&16x128xi32, index, index) -> "
      "!16x128xi32\n%s'vector.store'(%%v, %%o, %s) : (!%s, &%s, index%s) -> "
      "()\n",
      m->lines, at, type, type, m->rows ? ", index" : "");
  rt_kernel k = {{{"in", "16x128xi32", g_in, false}, {"o", type, g_out, false}},
                 b.ptr,
                 NULL,
                 0};
  for (int i = 0; i < R * C; i++) g_in[i] = f(i / C, i % C);
  memset(g_out, 0x77, sizeof g_out);
  g_move = m;
  rt_each(&k, judge);
  at_strbuf_free(&b);
}

static void elements_move(void **state) {
  for (size_t i = 0; i < AT_LEN(moves); i++) check_move(&moves[i]);
}
static void dimensions_are_reduced(void **state) {
  for (size_t i = 0; i < AT_LEN(reductions); i++) check_move(&reductions[i]);
}

// ---- Where the largest is, and running sums
static int32_t s_first_largest(int r, int c) {
  int best = 0;
  for (int i = 1; i < C; i++)
    if (f(c, i) % 64 > f(c, best) % 64) best = i;
  return best;
}
static int32_t s_running(int r, int c) {
  int32_t s = 0;
  for (int i = 0; i <= c; i++) s += f(r, i);
  return s;
}

// Floats that repeat: the first of equal ones counts.
#define AS_FLOATS                                                      \
  "%n = 'arith.constant'() {value = dense<64> : !16x128xi32} : () -> " \
  "!16x128xi32\n"                                                      \
  "%m = 'arith.remsi'(%x, %n) : (!16x128xi32, !16x128xi32) -> "        \
  "!16x128xi32\n%y = 'arith.sitofp'(%m) : (!16x128xi32) -> !16x128xf32\n"

static const move scans[] = {
    {"index of the first largest",
     AS_FLOATS "%v = 'tpu.reduce_index'(%y) {axis = 1 : i32, kind = "
               "#tpu.reduction_kind<arg_max>} : (!16x128xf32) -> !16xi32\n",
     0, 16, s_first_largest},
    {"running sum",
     "%v = 'tpu.scan'(%x) {kind = #tpu.reduction_kind<sum>} : (!16x128xi32) -> "
     "!16x128xi32\n",
     16, 128, s_running},
};
static void scans_go_in_order(void **state) {
  for (size_t i = 0; i < AT_LEN(scans); i++) check_move(&scans[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elements_move),
      cmocka_unit_test(dimensions_are_reduced),
      cmocka_unit_test(scans_go_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
