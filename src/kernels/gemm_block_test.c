// Blocks packed on their own: every layout of the operands against sums in
// exact arithmetic.
#include <math.h>

#include "kernels/kernels_test_util.h"

enum { MARK = 12345, MOST_PARTS = 20 };

// Small integers; as f32 with a little more, which rounding to bf16 takes away.
static double value_of(int64_t i, int64_t k) {
  return (double)((i * 7 + k * 5) % 9 - 4);
}

// A matrix, and its packed form.
typedef struct operand {
  at_k_matrix m;
  char *data, *packed;
} operand;

// along: k is dense; else rows or columns are. Rows of memory have a gap.
static operand make(uint32_t type, int64_t outer, int64_t k, bool along,
                    bool columns) {
  int64_t bytes = at_dtype_bytes((at_dtype)type);
  int64_t pitch = ((along ? k : outer) + 3) * bytes;
  operand o = {.m = {.type = type,
                     .outer = outer,
                     .k = k,
                     .outer_stride = along ? pitch : bytes,
                     .k_stride = along ? bytes : pitch}};
  o.data = malloc((size_t)(pitch * (along ? outer : k)));
  o.m.p = o.data;
  for (int64_t i = 0; i < outer; i++)
    for (int64_t j = 0; j < k; j++) {
      char *to = o.data + i * o.m.outer_stride + j * o.m.k_stride;
      double more = type == AT_F32 ? 1.0 / 1024 : 0, v = value_of(i, j);
      at_k_store_f64(type, to, v ? v + more : v);
    }
  size_t n = at_k_block_bytes(&o.m);
  o.packed = aligned_alloc(64, n + 64);
  memset(o.packed, 0xa5, n + 64);
  at_par par = {tu_pool(2), NULL, NULL};
  if (k) at_k_block_pack(&par, &o.m, columns, o.packed);
  for (size_t i = n; i < n + 64; i++)
    assert_int_equal((uint8_t)o.packed[i], 0xa5);
  return o;
}

// Frees both.
static void drop(operand *o) {
  free(o->data);
  free(o->packed);
}

// Two threads; C is in f32.
static void multiply(int64_t m, int64_t n, const at_k_block_part *parts,
                     int64_t num_parts, float *c, int64_t ldc, bool add) {
  at_par par = {tu_pool(2), NULL, NULL};
  at_k_block_sum s = {
      .parts = parts, .num_parts = num_parts, .c = c, .ldc = ldc, .add = add};
  at_k_block_multiply(&par, m, n, &s);
}

// The same product `times` over, as parts of one sum.
static void check(const operand *a, const operand *b, int64_t times, bool add) {
  int64_t m = a->m.outer, n = b->m.outer, k = a->m.k, ldc = n + 5;
  float *c = malloc((size_t)(m * ldc) * sizeof *c);
  for (int64_t i = 0; i < m * ldc; i++) c[i] = MARK;
  at_k_block_part parts[MOST_PARTS];
  for (int64_t i = 0; i < times; i++)
    parts[i] = (at_k_block_part){a->packed, b->packed, k};
  multiply(m, n, parts, times, c, ldc, add);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < ldc; j++) {
      double want = add || j >= n ? MARK : 0;
      for (int64_t q = 0; q < k && j < n; q++)
        want += (double)times * value_of(i, q) * value_of(j, q);
      if ((double)c[i * ldc + j] != want)
        fail_msg("%ld x %ld x %ld: [%ld, %ld] is %g, want %g", m, n, k, i, j,
                 (double)c[i * ldc + j], want);
    }
  free(c);
}

// Types and layouts of both operands, in sums of 1 to 20 products, begun anew
// or added.
static void test_layouts(void **state) {
  static const int64_t shapes[][3] = {
      {32, 32, 32},  {16, 17, 18},   {64, 96, 128},  {33, 70, 31},
      {95, 40, 65},  {48, 49, 47},   {100, 64, 300}, {128, 128, 513},
      {40, 560, 40}, {33, 1030, 600}};
  static const uint32_t kinds[] = {AT_F32, AT_BF16};
  if (!at_k_has(AT_CPU_AVX512_BF16)) skip();
  for (size_t s = 0; s < AT_LEN(shapes); s++)
    for (int t = 0; t < 16; t++) {
      const int64_t *z = shapes[s];
      operand a = make(kinds[t & 1], z[0], z[2], t & 2, false);
      operand b = make(kinds[t >> 2 & 1], z[1], z[2], t & 8, true);
      assert_true(at_k_block_fits(&a.m, &b.m));
      for (int64_t times = 1; times <= MOST_PARTS; times += 1 + times / 2) {
        check(&a, &b, times, false);
        check(&a, &b, times, true);
      }
      drop(&a), drop(&b);
    }
}

// Products are added with the bits that they have alone, one after the other.
static void test_added_apart(void **state) {
  enum { M = 70, N = 64, K = 256, PARTS = 3 };
  if (!at_k_has(AT_CPU_AVX512_BF16)) skip();
  static float a[M * K], b[PARTS][K * N], c[M * N], alone[PARTS][M * N];
  uint32_t x = 1;
  at_k_matrix ma = {a, AT_F32, M, K, 4 * K, 4};
  at_k_block_part parts[PARTS];
  at_par par = {tu_pool(2), NULL, NULL};
  for (int i = 0; i < M * K; i++)
    a[i] = (float)((x = x * 1664525 + 1013904223) >> 8) * 0x1p-24f;
  void *pa = aligned_alloc(64, at_k_block_bytes(&ma));
  at_k_block_pack(&par, &ma, false, pa);
  for (int p = 0; p < PARTS; p++) {
    for (int i = 0; i < K * N; i++)
      b[p][i] = (float)((x = x * 1664525 + 1013904223) >> 8) * 0x1p-24f - 0.5f;
    at_k_matrix mb = {b[p], AT_F32, N, K, 4, 4 * N};
    void *pb = aligned_alloc(64, at_k_block_bytes(&mb));
    at_k_block_pack(&par, &mb, true, pb);
    parts[p] = (at_k_block_part){pa, pb, K};
    multiply(M, N, &parts[p], 1, alone[p], N, false);
  }
  for (int add = 0; add < 2; add++) {
    for (int i = 0; i < M * N; i++) c[i] = 3 + (float)i * 0x1p-10f;
    multiply(M, N, parts, PARTS, c, N, add);
    for (int i = 0; i < M * N; i++) {
      float want = add ? 3 + (float)i * 0x1p-10f + alone[0][i] : alone[0][i];
      for (int p = 1; p < PARTS; p++) want += alone[p][i];
      assert_true(c[i] == want);
    }
  }
  for (int p = 0; p < PARTS; p++) free((void *)parts[p].b);
  free(pa);
}

// A result that goes elsewhere has the bits of a converted C, which stays as it
// was: denormals, infinities and NaNs too.
static void test_elsewhere(void **state) {
  enum { M = 70, N = 90, K = 48 };
  if (!at_k_has(AT_CPU_AVX512_BF16)) skip();
  static float c[M * N], want[M * N];
  static const float odd[] = {0x1p-130f, -0x1.8p-127f, INFINITY, -INFINITY,
                              NAN,       -0.0f,        1.0f,     3.4e38f};
  operand a = make(AT_F32, M, K, true, false);
  operand b = make(AT_F32, N, K, false, true);
  memset(a.packed, 0, at_k_block_bytes(&a.m));
  at_k_block_part parts[] = {{a.packed, b.packed, K}, {a.packed, b.packed, K}};
  for (int i = 0; i < M * N; i++) c[i] = odd[i % AT_LEN(odd)];
  memcpy(want, c, sizeof c);
  multiply(M, N, parts, 2, want, N, true);
  for (int wide = 0; wide < 2; wide++) {
    uint32_t type = wide ? AT_F32 : AT_BF16;
    size_t bytes = wide ? 4 : 2, stride = (N + 3) * bytes;
    uint8_t *to = malloc(M * stride), row[N * 4];
    memset(to, 0xa5, M * stride);
    at_par par = {tu_pool(2), NULL, NULL};
    at_k_block_sum s = {parts, 2, c, N, true, to, type, (int64_t)stride};
    at_k_block_multiply(&par, M, N, &s);
    for (int i = 0; i < M; i++) {
      at_k_convert(type, row, AT_F32, want + i * N, N);
      assert_memory_equal(to + (size_t)i * stride, row, N * bytes);
      for (size_t j = N * bytes; j < stride; j++)
        assert_int_equal(to[(size_t)i * stride + j], 0xa5);
    }
    free(to);
  }
  for (int i = 0; i < M * N; i++)
    assert_memory_equal(&c[i], &odd[i % AT_LEN(odd)], sizeof c[i]);
  drop(&a), drop(&b);
}

// A few rows at a time, packed or not, gives the bits of all at once.
static void test_rows(void **state) {
  enum { M = 96, N = 80, K = 160 };
  if (!at_k_has(AT_CPU_AVX512_BF16)) skip();
  static const struct {
    uint32_t type;
    int64_t k, turn;
    bool across;
  } cases[] = {{AT_F32, K, 32, false},  {AT_BF16, K, 32, false},
               {AT_F32, 72, 64, false}, {AT_BF16, 90, 96, false},
               {AT_F32, K, 32, true},   {AT_BF16, 64, 16, false}};
  for (size_t i = 0; i < AT_LEN(cases); i++) {
    int64_t k = cases[i].k, turn = cases[i].turn;
    operand a = make(cases[i].type, M, k, !cases[i].across, false);
    operand b = make(AT_F32, N, k, true, true);
    static float want[M * N], got[M * N];
    for (int j = 0; j < M * N; j++) want[j] = got[j] = (float)j;
    void *room = aligned_alloc(64, at_k_block_bytes(&a.m));
    at_k_block_part part = {a.packed, b.packed, k};
    multiply(M, N, &part, 1, want, N, true);
    at_k_block_rows_begin();
    for (int64_t r = 0; r < M; r += turn) {
      at_k_matrix rows = a.m;
      rows.p = (const uint8_t *)a.m.p + r * a.m.outer_stride;
      rows.outer = AT_MIN(turn, M - r);
      at_k_block_rows_pack(&rows, room);
      part.a = room;
      at_k_block_rows(rows.outer, N, &part, got + r * N, N, true);
    }
    at_k_block_rows_end();
    assert_memory_equal(got, want, sizeof want);
    free(room);
    drop(&a), drop(&b);
  }
}

// Operands that are not packed; what is around c stays. pages: NULL: b's
// memory.
static void check_few(const operand *a, const operand *b,
                      const at_k_pages *pages, uint32_t threads, bool add) {
  int64_t m = a->m.outer, n = b->m.outer, k = a->m.k, ldc = n + 5;
  float *c = malloc((size_t)(m * ldc) * sizeof *c);
  for (int64_t i = 0; i < m * ldc; i++) c[i] = MARK;
  at_par par = {tu_pool(threads), NULL, NULL};
  at_k_few(threads > 1 ? &par : NULL, &a->m, &b->m, pages, c, ldc, add);
  for (int64_t i = 0; i < m * ldc; i++) {
    double want = add || i % ldc >= n ? MARK : 0;
    for (int64_t q = 0; q < k && i % ldc < n; q++)
      want += value_of(i / ldc, q) * value_of(i % ldc, q);
    if ((double)c[i] != want)
      fail_msg("%ld x %ld x %ld: [%ld, %ld] is %g, want %g", m, n, k, i / ldc,
               i % ldc, (double)c[i], want);
  }
  free(c);
}

// Shapes around the vectors and blocks; what does not fit is refused for a
// reason.
static void test_few(void **state) {
  static const int64_t shapes[][3] = {
      {1, 1, 1},   {4, 64, 128},  {8, 17, 31},   {7, 5, 128},  {5, 66, 128},
      {3, 1, 128}, {3, 70, 33},   {15, 5, 64},   {7, 130, 1},  {5, 64, 200},
      {2, 4, 512}, {4, 100, 47},  {6, 256, 130}, {3, 300, 20}, {1, 333, 128},
      {0, 64, 64}, {15, 400, 30}, {9, 34, 257},  {3, 70, 0},   {5, 9, 0}};
  if (!at_k_has(AT_CPU_AVX512_BF16)) skip();
  for (size_t s = 0; s < AT_LEN(shapes); s++)
    for (int t = 0; t < 16; t++) {
      int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
      operand a = make(t & 1 ? AT_F32 : AT_BF16, m, k, true, false);
      operand b = make(t & 2 ? AT_F32 : AT_BF16, n, k, t & 4, true);
      bool add = t & 8;
      if (at_k_few_fits(&a.m, &b.m, add)) {
        check_few(&a, &b, NULL, 1, add);
        check_few(&a, &b, NULL, 2, add);
      } else {
        assert_true(t & 4 ? m > 8 : add && k > 128);
      }
      drop(&a), drop(&b);
    }
}

// B in pages that lie anywhere: whole columns if their k are dense, else rows.
static void test_few_pages(void **state) {
  enum { MOST = 12 };
  static const int64_t shapes[][4] = {
      // m, n, k, of a page
      {4, 64, 128, 16},   {8, 96, 64, 8},   {5, 36, 128, 3}, {1, 60, 47, 5},
      {4, 128, 384, 32},  {8, 200, 48, 16}, {3, 70, 24, 2},  {2, 17, 256, 128},
      {7, 256, 512, 256}, {6, 300, 120, 10}};
  if (!at_k_has(AT_CPU_AVX512_BF16)) skip();
  for (size_t s = 0; s < AT_LEN(shapes); s++)
    for (int t = 0; t < 8; t++) {
      bool along = s < 4, add = t & 4;
      const int64_t *d = shapes[s];
      operand a = make(t & 1 ? AT_F32 : AT_BF16, d[0], d[2], true, false);
      operand b = make(t & 2 ? AT_F32 : AT_BF16, d[1], d[2], along, true);
      int64_t pitch = along ? b.m.outer_stride : b.m.k_stride;
      const void *at[MOST];
      at_k_pages pages = {at, (along ? d[1] : d[2]) / d[3], d[3], NULL};
      assert_true(pages.count <= MOST);
      size_t bytes = (size_t)(d[3] * pitch);
      for (int64_t i = 0; i < pages.count; i++)
        at[i] = memcpy(malloc(bytes), b.data + (size_t)i * bytes, bytes);
      if (t & 1) pages.next = at[0];
      b.m.p = NULL;  // nobody reads it
      if (at_k_few_fits(&a.m, &b.m, add)) {
        check_few(&a, &b, &pages, 1, add);
        check_few(&a, &b, &pages, 2, add);
      } else {
        assert_true(!along && add && d[2] > 128);
      }
      for (int64_t i = 0; i < pages.count; i++) free((void *)at[i]);
      drop(&a), drop(&b);
    }
}

// One reason at a time; without BF16 instructions nothing fits.
static void test_who_fits(void **state) {
  at_k_matrix a = {NULL, AT_F32, 64, 64, 256, 4}, b = a, x = a;
  bool bf16 = at_k_has(AT_CPU_AVX512_BF16);
  assert_int_equal(at_k_block_fits(&a, &b), bf16);
  x.type = AT_F64;
  assert_false(at_k_block_fits(&a, &x));
  x = a, x.outer = 8;
  assert_false(at_k_block_fits(&x, &b));
  x = a, x.k_stride = 8;
  assert_false(at_k_block_fits(&x, &b));
  x = a, x.outer = 4;
  assert_int_equal(at_k_few_fits(&x, &b, true), bf16);
  assert_false(at_k_few_fits(&a, &b, true));  // many rows
  x.k_stride = 8;
  assert_false(at_k_few_fits(&x, &b, true));
  at_k_limit_features(AT_CPU_AVX512);
  assert_false(at_k_block_fits(&a, &b));
  assert_false(at_k_few_fits(&x, &b, true));
  at_k_limit_features(UINT64_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts), cmocka_unit_test(test_added_apart),
      cmocka_unit_test(test_rows),    cmocka_unit_test(test_elsewhere),
      cmocka_unit_test(test_few),     cmocka_unit_test(test_few_pages),
      cmocka_unit_test(test_who_fits)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
