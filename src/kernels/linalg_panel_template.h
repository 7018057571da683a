// Body of the panels of one element type and target; included by linalg_panel.c
// with
//   NAME(f) names, REAL element, WIDTH elements of a vector, WORD integer of
//   its size, SQRT, ATTR target attribute.
// No include guard: it is included once per family.
// LANES: elements of a vector, signed, so that it mixes with sizes.
#define LANES ((int64_t)WIDTH)
// A vector of neighbouring elements of one matrix, wherever it begins
// (linalg_lanes_template.h has a matrix a lane instead).
#define VEC NAME(vec)
typedef REAL VEC __attribute__((vector_size(WIDTH * sizeof(REAL)),
                                aligned(sizeof(REAL)), may_alias));
// Element (i, j) of an at_view as an lvalue; operands are evaluated more than
// once.
#define AT(v, i, j) (((REAL *)(v).p)[(i) * (v).down + (j) * (v).right])

// Where the rows of one are the columns of the other, both dense: squares in
// registers.
ATTR static void NAME(copy_turned)(at_view to, at_view from, int64_t rows,
                                   int64_t columns, REAL sign) {
  // to has dense rows and from dense columns. sign is 1 or -1. Edges that fill
  // no square go one by one.
  int64_t i = 0;
  for (; i + WIDTH <= rows; i += WIDTH) {
    int64_t j = 0;
    for (; j + WIDTH <= columns; j += WIDTH) {
      VEC v[WIDTH];
      AT_LANES_UNROLL
      // WIDTH elements of one column of `from`; log2(WIDTH) exchanges of halves
      // transpose the square.
      for (int l = 0; l < WIDTH; l++) v[l] = *(VEC *)&AT(from, i, j + l) * sign;
#if WIDTH == 16
      AT_LANES_SWAP(VEC, v, 8, WIDTH)
#endif
      AT_LANES_SWAP(VEC, v, 4, WIDTH)
      AT_LANES_SWAP(VEC, v, 2, WIDTH)
      AT_LANES_SWAP(VEC, v, 1, WIDTH)
      AT_LANES_UNROLL
      for (int l = 0; l < WIDTH; l++) *(VEC *)&AT(to, i + l, j) = v[l];
    }
    for (; j < columns; j++)
      for (int64_t l = i; l < i + WIDTH; l++)
        AT(to, l, j) = AT(from, l, j) * sign;
  }
  for (; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) AT(to, i, j) = AT(from, i, j) * sign;
}

// at_panel_fns.copy: rows by rows where both have dense rows, else squares are
// turned.
ATTR static void NAME(copy)(at_view to, at_view from, int64_t rows,
                            int64_t columns, bool negative) {
  // Both views are of the same size and do not overlap.
  REAL sign = negative ? -1 : 1;
  if (to.right !=
      1) {  // then its columns are dense: the same copy, seen from the side
    to = (at_view){to.p, to.right, to.down},
    from = (at_view){from.p, from.right, from.down};
    int64_t t = rows;
    rows = columns, columns = t;
  }
  if (from.right != 1) {
    NAME(copy_turned)(to, from, rows, columns, sign);
    return;
  }
  for (int64_t i = 0; i < rows; i++) {
    REAL *restrict x = &AT(to, i, 0);
    const REAL *restrict y = &AT(from, i, 0);
    for (int64_t j = 0; j < columns; j++) x[j] = y[j] * sign;
  }
}

// at_panel_fns.subtract: c and t have dense rows.
ATTR static void NAME(subtract)(at_view c, at_view t, int64_t begin,
                                int64_t end, int64_t columns) {
  for (int64_t i = begin; i < end; i++) {
    REAL *restrict x = &AT(c, i, 0);
    const REAL *restrict y = &AT(t, i, 0);
    for (int64_t j = 0; j < columns; j++) x[j] -= y[j];
  }
}

// y[0 .. columns) -= sum over k < count of w[k * w_step] * x[k * x_step + 0 ..
// columns).
ATTR AT_INLINE void NAME(subtract_rows)(REAL *y, const REAL *x, int64_t x_step,
                                        const REAL *w, int64_t w_step,
                                        int64_t count, int64_t columns) {
  // Columns are taken TILE vectors at a time, whose sums stay in registers over
  // all k, so each element of y is read and written once. Sums go in the order
  // of k for each element, whatever the width.
  int64_t c = 0;
  for (; c + TILE * LANES <= columns; c += TILE * LANES) {
    VEC sum[TILE];
    for (int q = 0; q < TILE; q++) sum[q] = *(const VEC *)(y + c + q * LANES);
    for (int64_t k = 0; k < count; k++)
      for (int q = 0; q < TILE; q++)
        sum[q] -=
            w[k * w_step] * *(const VEC *)(x + k * x_step + c + q * LANES);
    for (int q = 0; q < TILE; q++) *(VEC *)(y + c + q * LANES) = sum[q];
  }
  for (int64_t k = 0; k < count; k++) {
    REAL f = w[k * w_step];
    for (int64_t j = c; j < columns; j++) y[j] -= f * x[k * x_step + j];
  }
}

// Substitution, row by row: each is the right side less the rows that are
// known.
ATTR static void NAME(solve)(at_view t, bool forward, bool unit, int64_t n,
                             // at_panel_fns.solve. Threads share the columns of
                             // x: each solves [begin, end) and reads t only. No
                             // zero is looked for on the diagonal: it gives
                             // infinities.
                             at_view x, int64_t begin, int64_t end) {
  for (int64_t at = 0; at < n; at++) {
    int64_t i = forward ? at : n - 1 - at, first = forward ? 0 : i + 1;
    REAL *y = &AT(x, i, begin);
    NAME(subtract_rows)
    (y, &AT(x, first, begin), x.down, &AT(t, i, first), t.right, at,
     end - begin);
    if (unit) continue;
    REAL d = AT(t, i, i);
    for (int64_t j = 0; j < end - begin; j++) y[j] /= d;
  }
}

// The elements of a vector added up, halves first.
ATTR AT_INLINE REAL NAME(sum_of)(const VEC *from) {
  VEC v = *from;
  for (int64_t half = LANES / 2; half; half /= 2)
    for (int64_t l = 0; l < half; l++) v[l] += v[l + half];
  return v[0];
}

// Takes what is known out of `rows` rows of the right side: x[i + l] -= sum
// over [known, known + count) of t's row i + l times x. t has dense rows.
ATTR AT_INLINE void NAME(take_rows)(at_view t, int64_t i, int64_t rows,
                                    int64_t known, int64_t count, REAL *x) {
  // ROWS rows at a time have sums of their own, so that additions overlap.
  int64_t l = 0;
  for (; l + ROWS <= rows; l += ROWS) {
    VEC sum[ROWS] = {{0}};
    int64_t k = known;
    for (; k + LANES <= known + count; k += LANES)
      for (int q = 0; q < ROWS; q++)
        sum[q] += *(VEC *)&AT(t, i + l + q, k) * *(VEC *)(x + k);
    for (int q = 0; q < ROWS; q++) {
      REAL s = 0;
      for (int64_t j = k; j < known + count; j++)
        s += AT(t, i + l + q, j) * x[j];
      x[i + l + q] -= s + NAME(sum_of)(&sum[q]);
    }
  }
  for (; l < rows; l++) {
    REAL s = 0;
    for (int64_t k = known; k < known + count; k++) s += AT(t, i + l, k) * x[k];
    x[i + l] -= s;
  }
}

// at_panel_fns.solve_vector: ROWS unknowns at a time, one after the other, then
// they are taken out of what is left. Along rows of t the next ROWS take out
// all that is known; along columns the rest of x takes out these ROWS.
ATTR static void NAME(solve_vector)(at_view t, bool forward, bool unit,
                                    int64_t n, void *p) {
  REAL *x = p;
  bool by_rows = t.right == 1;
  for (int64_t done = 0; done < n; done += ROWS) {
    int64_t w = AT_MIN(ROWS, n - done), i = forward ? done : n - done - w;
    if (by_rows) NAME(take_rows)(t, i, w, forward ? 0 : i + w, done, x);
    for (int64_t l = 0; l < w; l++) {
      int64_t r = forward ? i + l : i + w - 1 - l;
      int64_t first = forward ? i : r + 1;
      REAL s = x[r];
      for (int64_t k = first; k < first + l; k++) s -= AT(t, r, k) * x[k];
      x[r] = unit ? s : s / AT(t, r, r);
    }
    if (!by_rows) NAME(subtract_rows)
    (x + (forward ? i + w : 0), &AT(t, forward ? i + w : 0, i), t.right, x + i,
     1, w, n - done - w);
  }
}

// Row i of the factor from the rows above it.
// at_panel_fns.cholesky: u in the upper triangle; what is below the diagonal is
// not read or written. False at the first pivot that is not positive or is NaN,
// with the rows before it done.
ATTR static bool NAME(cholesky)(at_view a, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    REAL *row = &AT(a, i, i);
    NAME(subtract_rows)
    (row, &AT(a, 0, i), a.down, &AT(a, 0, i), a.down, i, n - i);
    if (!(row[0] > 0)) return false;
    REAL d = SQRT(row[0]);
    row[0] = d;
    for (int64_t j = 1; j < n - i; j++) row[j] /= d;
  }
  return true;
}

// Where the first of the largest is; NaN is larger than any number.
// By bits without the sign, which are ordered as the numbers are, NaN above
// infinity. n >= 1. The second loop finds the place, so that the first one has
// no branch.
ATTR static int64_t NAME(largest)(const REAL *x, int64_t n) {
  const WORD sign = (WORD)((1ull << (8 * sizeof(WORD) - 1)) - 1);
  WORD most = 0, bits;
  for (int64_t i = 0; i < n; i++) {
    memcpy(&bits, x + i, sizeof bits);
    bits &= sign;
    most = bits > most ? bits : most;
  }
  for (int64_t i = 0; i < n; i++) {
    memcpy(&bits, x + i, sizeof bits);
    if ((bits & sign) == most) return i;
  }
  return 0;
}

// Left-looking: column c takes all columns before it at once, then its pivot is
// chosen.
ATTR static void NAME(lu)(void *p, int64_t rows, int64_t columns,
                          int32_t *pivots) {
  // at_panel_fns.lu: columns are `rows` elements apart; singular panels are
  // factored all the same.
  REAL *a = p;
  for (int64_t c = 0; c < columns && c < rows; c++) {
    REAL *x = a + c * rows;
    // The rows above are solved for one by one, then all below at once.
    for (int64_t k = 1; k < c; k++) {
      REAL s = x[k];
      for (int64_t q = 0; q < k; q++) s -= a[q * rows + k] * x[q];
      x[k] = s;
    }
    NAME(subtract_rows)(x + c, a + c, rows, x, 1, c, rows - c);
    int64_t at = c + NAME(largest)(x + c, rows - c);
    pivots[c] = (int32_t)at;
    // Whole rows of the panel are swapped, those that are done, too; columns
    // right of the panel are at_panel_fns.swap's.
    for (int64_t k = 0; at != c && k < columns; k++) {
      REAL t = a[k * rows + c];
      a[k * rows + c] = a[k * rows + at], a[k * rows + at] = t;
    }
    // A pivot of zero leaves its column as it is, as LAPACK does.
    REAL d = x[c];
    for (int64_t i = c + 1; d != 0 && i < rows; i++) x[i] /= d;
  }
}

// Sum of products in two vectors of sums: a fixed order for each n.
ATTR AT_INLINE REAL NAME(dot)(const REAL *x, const REAL *y, int64_t n) {
  VEC sum[2] = {{0}, {0}};
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES)
    for (int q = 0; q < 2; q++)
      sum[q] +=
          *(const VEC *)(x + i + q * LANES) * *(const VEC *)(y + i + q * LANES);
  sum[0] += sum[1];
  REAL s = 0;
  for (int64_t l = 0; l < LANES; l++) s += sum[0][l];
  for (; i < n; i++) s += x[i] * y[i];
  return s;
}

// x[0] and what is below it: the reflector, scaled so that no square overflows
// or vanishes.
ATTR static REAL NAME(reflector)(REAL *x, int64_t n) {
  // Returns tau; x[0] becomes the new diagonal element and x[1 ..] the
  // reflector, whose head of 1 is not stored. n >= 1.
  REAL most = fabs(x[n > 1 ? 1 + NAME(largest)(x + 1, n - 1) : 0]),
       alpha = x[0];
  if (n == 1 || most == 0) return 0;
  REAL scale = most > fabs(alpha) ? most : (REAL)fabs(alpha);
  // Scaling costs divisions: columns whose elements are of ordinary size do
  // without. 1e12 squared fits into a float.
  bool plain = scale > (REAL)1e-12 && scale < (REAL)1e12;
  if (plain) scale = 1;
  for (int64_t i = 1; !plain && i < n; i++) x[i] /= scale;
  REAL first = alpha / scale;
  REAL beta = SQRT(first * first + NAME(dot)(x + 1, x + 1, n - 1));
  if (!(first < 0)) beta = -beta;
  REAL by = first - beta;
  for (int64_t i = 1; i < n; i++) x[i] /= by;
  x[0] = beta * scale;
  return (beta - first) / beta;
}

// Householder's QR of the panel; each reflector is applied to the columns right
// of it at once.
ATTR static void NAME(qr)(void *p, int64_t rows, int64_t columns, void *tau) {
  // at_panel_fns.qr. tau has `columns` elements; rows >= columns.
  REAL *a = p, *t = tau;
  for (int64_t c = 0; c < columns; c++) {
    REAL *v = a + c * rows + c;
    int64_t n = rows - c;
    t[c] = NAME(reflector)(v, n);
    for (int64_t k = c + 1; k < columns; k++) {
      REAL *x = a + k * rows + c;
      REAL s = (x[0] + NAME(dot)(v + 1, x + 1, n - 1)) * t[c];
      x[0] -= s;
      for (int64_t i = 1; i < n; i++) x[i] -= v[i] * s;
    }
  }
}

// Column c of t from those before it: t v' v_c times -tau.
ATTR static void NAME(join)(const void *products, int64_t columns,
                            const void *tau, void *to) {
  // at_panel_fns.join: the block reflector (compact WY form), with which the
  // columns right of the panel are updated by matrix products.
  const REAL *g = products, *w = tau;
  REAL *t = to;
  memset(t, 0, (size_t)(columns * columns) * sizeof *t);
  for (int64_t c = 0; c < columns; c++) {
    for (int64_t i = 0; i < c; i++) {
      REAL s = 0;
      for (int64_t k = i; k < c; k++)
        s += t[i * columns + k] * g[c * columns + k];
      t[i * columns + c] = -w[c] * s;
    }
    t[c * columns + c] = w[c];
  }
}

// at_panel_fns.swap: in the order of i, as later pivots count rows that earlier
// ones have moved. Threads share the columns.
ATTR static void NAME(swap)(at_view a, const int32_t *pivots, int64_t count,
                            int64_t begin, int64_t end) {
  for (int64_t i = 0; i < count; i++) {
    if (pivots[i] == i) continue;
    REAL *restrict x = &AT(a, i, 0), *restrict y = &AT(a, pivots[i], 0);
    for (int64_t j = begin; j < end; j++) {
      REAL t = x[j];
      x[j] = y[j], y[j] = t;
    }
  }
}

#undef LANES
#undef VEC
#undef AT
#undef NAME
#undef REAL
#undef WORD
#undef SQRT
#undef WIDTH
#undef ATTR
