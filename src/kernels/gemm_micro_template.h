// Body of one microkernel family; included by gemm_micro.c with these defined:
//   NAME   prefix          ELEM  element type     BYTES  bytes of a vector
//   ROWS   6 or 12         VECS  vectors of a row of the microtile
//   ATTR   target attribute      MADD(a, b, c)    a * b + c on vectors
//   STRIDED  defined: also a kernel for operands that are not packed
// No include guard: it is included once per family.
// Two steps, so that NAME is expanded before it is pasted.
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define VEC CAT(NAME, _vec)
#define BODY CAT(NAME, _body)
#define UNROLL _Pragma("clang loop unroll(full)")
#define LANES ((int)(BYTES / sizeof(ELEM)))

// Unaligned: packed panels are aligned, but rows of B and C that are read in
// place are not.
typedef ELEM VEC __attribute__((vector_size(BYTES), aligned(sizeof(ELEM))));

// c[mr][nr] (+)= a * b; `mr` and `vecs`, which hold nr, are constants at every
// call. Rows of b hold whole vectors even when nr is smaller. pack: NULL, or
// where the rows of b are kept dense as they go by.
// a: element (i, k) at a[i * ars + k * acs]; b: row k at b + k * brs. kc may be
// 0, which writes zeros or adds nothing. Sums go over k in order, one
// multiply-add each, so the result does not depend on mr or vecs.
ATTR AT_INLINE void BODY(const int mr, const int vecs, int64_t kc,
                         const ELEM *restrict a, int64_t ars, int64_t acs,
                         const ELEM *restrict b, int64_t brs, ELEM *restrict c,
                         int64_t ldc, int nr, bool add, ELEM *restrict pack) {
  VEC acc[ROWS][VECS];
  UNROLL
  for (int i = 0; i < mr; i++) {
    UNROLL
    for (int v = 0; v < vecs; v++) acc[i][v] = (VEC){0};
  }
  for (int64_t k = 0; k < kc; k++) {
    VEC bv[VECS];
    UNROLL
    for (int v = 0; v < vecs; v++) bv[v] = *(const VEC *)(b + v * LANES);
    if (pack) {
      UNROLL
      for (int v = 0; v < vecs; v++) *(VEC *)(pack + v * LANES) = bv[v];
      pack += vecs * LANES;
    }
    UNROLL
    for (int i = 0; i < mr; i++) {
      VEC av = a[i * ars] - (VEC){0};  // a splat: x - 0 is x
      UNROLL
      for (int v = 0; v < vecs; v++) acc[i][v] = MADD(av, bv[v], acc[i][v]);
    }
    // Prefetching beyond the end of an operand is harmless: it never faults.
    __builtin_prefetch(a + 24 * acs);
    __builtin_prefetch(b + 16 * brs);
    __builtin_prefetch((const char *)(b + 16 * brs) + 64);
    a += acs;
    b += brs;
  }
  // The common case: whole vectors of C, in place.
  if (nr == vecs * LANES) {
    UNROLL
    for (int i = 0; i < mr; i++) {
      UNROLL
      for (int v = 0; v < vecs; v++) {
        VEC *p = (VEC *)(c + i * ldc + v * LANES);
        *p = add ? *p + acc[i][v] : acc[i][v];
      }
    }
    return;
  }
  // Fewer columns than vectors hold: through a buffer.
  ELEM edge[ROWS][VECS * LANES];
  UNROLL
  for (int i = 0; i < mr; i++) {
    UNROLL
    for (int v = 0; v < vecs; v++) *(VEC *)(edge[i] + v * LANES) = acc[i][v];
  }
  for (int i = 0; i < mr; i++)
    for (int j = 0; j < nr; j++)
      c[i * ldc + j] = add ? c[i * ldc + j] + edge[i][j] : edge[i][j];
}

#if ROWS == 12
#define ALL_ROWS(X) \
  X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#else
#define ALL_ROWS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#endif

// at_gemm_engine.micro: A packed [k][ROWS], B packed [k][VECS * LANES]. A case
// for each number of rows keeps the sums in registers; half of the vectors
// where nr fits into them.
// mr is 1 to ROWS and nr 1 to VECS * LANES; anything else writes nothing.
ATTR static void CAT(NAME, _packed)(int64_t kc, const void *a, const void *b,
                                    void *c, int64_t ldc, int mr, int nr,
                                    bool add) {
#define CASE(n)                                                                \
  case n:                                                                      \
    BODY(n, VECS, kc, a, 1, ROWS, b, VECS *LANES, c, ldc, nr, add, NULL);      \
    break;                                                                     \
  case -n: /* half of the columns */                                           \
    BODY(n, VECS / 2, kc, a, 1, ROWS, b, VECS * LANES, c, ldc, nr, add, NULL); \
    break;
  switch (VECS > 1 && nr <= VECS / 2 * LANES ? -mr : mr) { ALL_ROWS(CASE) }
#undef CASE
}

#ifdef STRIDED
// at_gemm_strided_fn: the same for operands in place.
// Rows of b must be readable up to the next whole vector behind nr.
ATTR static void CAT(NAME, _strided)(int64_t kc, const void *a, int64_t ars,
                                     int64_t acs, const void *b, int64_t brs,
                                     void *c, int64_t ldc, int mr, int nr,
                                     bool add) {
#define CASE(n)                                                        \
  case n:                                                              \
    BODY(n, VECS, kc, a, ars, acs, b, brs, c, ldc, nr, add, NULL);     \
    break;                                                             \
  case -n: /* half of the columns */                                   \
    BODY(n, VECS / 2, kc, a, ars, acs, b, brs, c, ldc, nr, add, NULL); \
    break;
  switch (nr <= VECS / 2 * LANES ? -mr : mr) { ALL_ROWS(CASE) }
#undef CASE
}

// Full width; a is packed, b is not, and a dense copy of b is left in `pack`.
// at_gemm_engine.copying.
ATTR static void CAT(NAME, _copying)(int64_t kc, const void *a, const void *b,
                                     int64_t brs, void *c, int64_t ldc, int mr,
                                     bool add, void *pack) {
#define CASE(n)                                                            \
  case n:                                                                  \
    BODY(n, VECS, kc, a, 1, ROWS, b, brs, c, ldc, VECS *LANES, add, pack); \
    break;
  switch (mr) { ALL_ROWS(CASE) }
#undef CASE
}

#undef STRIDED
#endif

#undef ALL_ROWS
#undef LANES
#undef UNROLL
#undef BODY
#undef VEC
#undef CAT
#undef CAT_
#undef NAME
#undef ELEM
#undef BYTES
#undef ROWS
#undef VECS
#undef ATTR
#undef MADD
