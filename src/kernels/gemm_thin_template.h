// Bodies of the thin product for one vector width; included by gemm_thin.c with
//   NAME  prefix   ACC  accumulator element   BYTES  bytes of a vector of ACC
//   MADD(a, b, c)  a * b + c on vectors
//   ATTR  target attribute   LOADS(X)  X(suffix, element type, load expression
//   of p)
// No include guard: it is included once per family.
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
// BITS has the size of a VEC: masks are applied to the bits of what was loaded.
#define VEC CAT(NAME, _vec)
#define LANES ((int)(BYTES / sizeof(ACC)))
#define UNROLL _Pragma("clang loop unroll(full)")
// Alignment is that of an element: A, B and y are the caller's arrays.
typedef ACC VEC __attribute__((vector_size(BYTES), aligned(sizeof(ACC))));
#define BITS CAT(NAME, _bits)
typedef int BITS __attribute__((vector_size(BYTES), aligned(sizeof(ACC))));

// y[mr][n0 .. n0 + n) += a[mr][k] * b[k][n], n a multiple of LANES, 4 rows of b
// a turn.
// a: dense rows of the accumulator's type, converted before; b: rows `brs`
// elements apart, converted by LOAD as they are read. B is read once from
// memory, four rows at a time, and y once for each four. `mr` is a constant at
// each call: 1 to 8.
#define ROWS_BODY(sfx, T, LOAD)                                           \
  ATTR AT_INLINE void CAT(CAT(NAME, _rows_body_), sfx)(                   \
      const int mr, const ACC *a, int64_t lda, const T *b, int64_t brs,   \
      int64_t kc, int64_t n, ACC *y, int64_t ldy) {                       \
    int64_t k = 0;                                                        \
    for (; k + 4 <= kc; k += 4) {                                         \
      const T *b0 = b + k * brs, *b1 = b0 + brs, *b2 = b1 + brs,          \
              *b3 = b2 + brs;                                             \
      for (int64_t j = 0; j < n; j += LANES) {                            \
        VEC v0 = LOAD(b0 + j), v1 = LOAD(b1 + j), v2 = LOAD(b2 + j),      \
            v3 = LOAD(b3 + j);                                            \
        /* The next rows lie apart: no hardware fetches them ahead. */    \
        if (mr > 2) {                                                     \
          __builtin_prefetch(b0 + 4 * brs + j);                           \
          __builtin_prefetch(b1 + 4 * brs + j);                           \
          __builtin_prefetch(b2 + 4 * brs + j);                           \
          __builtin_prefetch(b3 + 4 * brs + j);                           \
        }                                                                 \
        UNROLL                                                            \
        for (int i = 0; i < mr; i++) {                                    \
          const ACC *ai = a + i * lda + k;                                \
          VEC acc = *(VEC *)(y + i * ldy + j);                            \
          acc = MADD(ai[0] - (VEC){0}, v0, acc);                          \
          acc = MADD(ai[1] - (VEC){0}, v1, acc);                          \
          acc = MADD(ai[2] - (VEC){0}, v2, acc);                          \
          acc = MADD(ai[3] - (VEC){0}, v3, acc);                          \
          *(VEC *)(y + i * ldy + j) = acc;                                \
        }                                                                 \
      }                                                                   \
    }                                                                     \
    for (; k < kc; k++)                                                   \
      for (int64_t j = 0; j < n; j += LANES) {                            \
        VEC v0 = LOAD(b + k * brs + j);                                   \
        UNROLL                                                            \
        for (int i = 0; i < mr; i++) {                                    \
          VEC *p = (VEC *)(y + i * ldy + j);                              \
          *p = MADD(a[i * lda + k] - (VEC){0}, v0, *p);                   \
        }                                                                 \
      }                                                                   \
  }                                                                       \
  ATTR static void CAT(CAT(NAME, _rows_), sfx)(                           \
      int mr, const void *a, int64_t lda, const void *b, int64_t brs,     \
      int64_t kc, int64_t n, void *y, int64_t ldy) {                      \
    switch (mr) { EACH_ROW(ROWS_CASE, CAT(CAT(NAME, _rows_body_), sfx)) } \
  }
// A case for each number of rows, so that `mr` is a constant in the body.
// Any other mr does nothing.
#define ROWS_CASE(f, i)                  \
  case i:                                \
    f(i, a, lda, b, brs, kc, n, y, ldy); \
    break;

// Sum of the lanes, halves first: as many additions at once as there are.
// LANES is a power of two. The order depends on the width, so bits of the
// families may differ in the last place; within one they are fixed.
ATTR AT_INLINE ACC CAT(NAME, _lanes)(VEC v) {
  ACC t[LANES];
  *(VEC *)t = v;
  UNROLL
  for (int w = LANES / 2; w > 0; w /= 2) {
    UNROLL
    for (int l = 0; l < w; l++) t[l] += t[l + w];
  }
  return t[0];
}

// Columns at once: the sums, those of B and one of A are in registers.
// mr * columns sums, one vector of B for each column and one of A must fit;
// more would spill in the innermost loop.
#define REGISTERS (BYTES == 64 ? 32 : 16)
#define COLUMNS(mr) AT_MIN(4, (REGISTERS - 1) / ((mr) + 1))

// y[mr][cols] += a[mr][k] . b[col][k], k a multiple of LANES, and one vector of
// every row of `ar` by the bits `keep` of one at every column of `br`, which
// may be NULL and whose columns are `brs` elements apart.
// For B whose columns are dense. `keep` masks the k values that are not there;
// ar holds the rest of every row of A, padded to a vector. a and b are read in
// whole vectors up to kc.
#define DOTS_BODY(sfx, T, LOAD)                                              \
  ATTR AT_INLINE void CAT(CAT(NAME, _dots_body_), sfx)(                      \
      const int mr, const int nc, const ACC *a, int64_t lda, const T *b,     \
      int64_t bcs, int64_t kc, const ACC *ar, const T *br, int64_t brs,      \
      BITS keep, ACC *y, int64_t ldy) {                                      \
    VEC acc[8][4];                                                           \
    UNROLL                                                                   \
    for (int i = 0; i < mr; i++) UNROLL                                      \
    for (int j = 0; j < nc; j++) acc[i][j] = (VEC){0};                       \
    for (int64_t k = 0; k < kc; k += LANES) {                                \
      VEC bv[4];                                                             \
      UNROLL                                                                 \
      for (int j = 0; j < nc; j++) bv[j] = LOAD(b + j * bcs + k);            \
      UNROLL                                                                 \
      for (int i = 0; i < mr; i++) {                                         \
        VEC av = *(const VEC *)(a + i * lda + k);                            \
        UNROLL                                                               \
        for (int j = 0; j < nc; j++) acc[i][j] = MADD(av, bv[j], acc[i][j]); \
      }                                                                      \
    }                                                                        \
    UNROLL                                                                   \
    for (int j = 0; br && j < nc; j++) {                                     \
      VEC v = (VEC)((BITS)LOAD(br + j * brs) & keep);                        \
      UNROLL                                                                 \
      for (int i = 0; i < mr; i++)                                           \
        acc[i][j] = MADD(*(const VEC *)(ar + i * LANES), v, acc[i][j]);      \
    }                                                                        \
    UNROLL                                                                   \
    for (int i = 0; i < mr; i++) UNROLL                                      \
    for (int j = 0; j < nc; j++)                                             \
      y[i * ldy + j] += CAT(NAME, _lanes)(acc[i][j]);                        \
  }                                                                          \
  ATTR static void CAT(CAT(NAME, _dots_), sfx)(                              \
      int mr, int64_t cols, const void *a, int64_t lda, const void *bv,      \
      int64_t bcs, int64_t kc, const void *ar, const void *brv, int64_t brs, \
      const void *kept, void *yv, int64_t ldy) {                             \
    const T *b = bv, *br = brv;                                              \
    ACC *y = yv;                                                             \
    BITS keep = *(const BITS *)kept;                                         \
    int64_t j = 0;                                                           \
    switch (mr) { EACH_ROW(DOTS_CASE, CAT(CAT(NAME, _dots_body_), sfx)) }    \
  }
// As many columns at a time as registers allow, then one by one.
#define DOTS_CASE(f, i)                                                        \
  case i:                                                                      \
    for (; j + COLUMNS(i) <= cols; j += COLUMNS(i))                            \
      f(i, COLUMNS(i), a, lda, b + j * bcs, bcs, kc, ar,                       \
        br ? br + j * brs : NULL, brs, keep, y + j, ldy);                      \
    for (; j < cols; j++)                                                      \
      f(i, 1, a, lda, b + j * bcs, bcs, kc, ar, br ? br + j * brs : NULL, brs, \
        keep, y + j, ldy);                                                     \
    break;
#define EACH_ROW(X, f) \
  X(f, 1) X(f, 2) X(f, 3) X(f, 4) X(f, 5) X(f, 6) X(f, 7) X(f, 8)

LOADS(ROWS_BODY)
LOADS(DOTS_BODY)

#undef EACH_ROW
#undef DOTS_CASE
#undef DOTS_BODY
#undef COLUMNS
#undef REGISTERS
#undef ROWS_CASE
#undef ROWS_BODY
#undef UNROLL
#undef LANES
#undef BITS
#undef VEC
#undef CAT
#undef CAT_
#undef NAME
#undef ACC
#undef BYTES
#undef ATTR
#undef LOADS
#undef MADD
