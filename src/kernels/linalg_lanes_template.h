// Body of the factorisations of one element type and target; included by
// linalg_lanes.c with
//   NAME prefix, REAL element, WORD integer of its size, SQRT, TINY smallest
//   normal number, EPSILON, WIDTH lanes, ATTR target attribute.
// No include guard: it is included once per family. Element (i, j) of the
// matrices is the vector a[i * n + j]; what happens in one lane never reaches
// another.
// FN(name) is NAME followed by `name`, as in fft_template.h.
#define FN(name) AT_LANES_PASTE(NAME, name, , )
#define VEC FN(_vec)
#define FREE_VEC FN(_free_vec)  // anywhere in memory
#define MASK FN(_mask)          // all ones where true
typedef REAL VEC __attribute__((vector_size(WIDTH * sizeof(REAL))));
typedef REAL FREE_VEC __attribute__((vector_size(WIDTH * sizeof(REAL)),
                                     aligned(sizeof(REAL)), may_alias));
// A comparison of two VECs gives a MASK; SELECT takes bits, so NaN and -0 pass
// through it unchanged.
typedef WORD MASK __attribute__((vector_size(WIDTH * sizeof(REAL))));

// x in every lane.
#define SPLAT(x) ((VEC){0} + (REAL)(x))
// Macros, as vectors of AVX-512 never cross a function.
#define SELECT(m, a, b) ((VEC)(((MASK)(a) & (m)) | ((MASK)(b) & ~(m))))
// By clearing the sign bit: NaN keeps its payload.
#define ABS(a)       \
  ((VEC)((MASK)(a) & \
         ((MASK){0} + (WORD)((1ull << (8 * sizeof(WORD) - 1)) - 1))))
// The larger of x and most; once a lane holds NaN it keeps it, so a NaN
// anywhere in a matrix is found by its largest element.
#define LARGER(x, most) \
  SELECT((MASK)(x <= most) | (MASK)(most != most), most, x)  // or NaN
// Lane by lane: the compiler makes one instruction of it. A negative number
// gives NaN.
#define ROOT(a)                                                \
  ({                                                           \
    VEC root_ = (a);                                           \
    AT_LANES_UNROLL                                            \
    for (int l = 0; l < WIDTH; l++) root_[l] = SQRT(root_[l]); \
    root_;                                                     \
  })

// `each` elements of the matrices from `first` on. Lanes behind the last matrix
// read it again.
ATTR static void FN(_load)(const at_k_linalg_params *p, const void *buf,
                           // p->batch > first; the matrices are dense and one
                           // after the other, `each` elements a matrix. to:
                           // `each` vectors. Whole squares of WIDTH elements
                           // are transposed in registers, the rest goes one by
                           // one.
                           int64_t first, int64_t each, VEC *to) {
  // One pointer a lane, to the first element of its matrix.
  const REAL *at[WIDTH];
  for (int64_t l = 0; l < WIDTH; l++)
    at[l] = (const REAL *)buf + AT_MIN(first + l, p->batch - 1) * each;
  int64_t i = 0;
  for (; i + WIDTH <= each; i += WIDTH) {
    VEC v[WIDTH];
    AT_LANES_UNROLL
    for (int l = 0; l < WIDTH; l++) v[l] = *(const FREE_VEC *)(at[l] + i);
    AT_LANES_TRANSPOSE(VEC, v, WIDTH)
    AT_LANES_UNROLL
    for (int l = 0; l < WIDTH; l++) to[i + l] = v[l];
  }
  for (; i < each; i++)
    for (int l = 0; l < WIDTH; l++) to[i][l] = at[l][i];
}
// The way back; lanes behind the last matrix are not stored.
ATTR static void FN(_store)(const at_k_linalg_params *p, void *buf,
                            // from: `each` vectors, which stay as they are. A
                            // group at the end of the batch stores fewer than
                            // WIDTH matrices.
                            int64_t first, int64_t each, const VEC *from) {
  // Lanes that hold a matrix of the batch.
  int64_t lanes = AT_MIN(WIDTH, p->batch - first), i = 0;
  REAL *to = (REAL *)buf + first * each;
  for (; i + WIDTH <= each; i += WIDTH) {
    VEC v[WIDTH];
    AT_LANES_UNROLL
    for (int l = 0; l < WIDTH; l++) v[l] = from[i + l];
    AT_LANES_TRANSPOSE(VEC, v, WIDTH)
    for (int64_t l = 0; l < lanes; l++) *(FREE_VEC *)(to + l * each + i) = v[l];
  }
  for (; i < each; i++)
    for (int64_t l = 0; l < lanes; l++) to[l * each + i] = from[i][l];
}

// ---- Cholesky: row by row, from the lower triangle (i, j) at a[i * down + j *
// right].
// bufs: a, then the factor; both n x n for each matrix. work: 2 n^2 vectors.
// The half that does not count of `a` is not read, and of the factor is zero. A
// matrix that is not positive definite becomes NaN in its own lane alone
// (kernels, law 7).
ATTR static void FN(_cholesky)(const at_k_linalg_params *p, void *const *bufs,
                               int64_t first, void *work) {
  // The upper factor is the lower one of the transpose: only the strides
  // differ.
  int64_t n = p->n, down = p->lower ? n : 1, right = p->lower ? 1 : n;
  // The matrices as they came, then the factors that are made of them.
  VEC *a = work, *l = a + n * n;
  // Lanes whose matrix is not positive definite; they go on, with numbers that
  // nobody reads.
  MASK failed = {0};
  FN(_load)(p, bufs[0], first, n * n, a);
  for (int64_t i = 0; i < n; i++) {
    VEC *li = l + i * n;
    for (int64_t j = 0; j <= i; j++) {
      const VEC *lj = l + j * n;
      // Two sums side by side, as each subtraction waits for the one before.
      // The order depends on j alone, so bits depend on nothing else.
      VEC s0 = a[i * down + j * right], s1 = {0};
      int64_t k = 0;
      for (; k + 2 <= j; k += 2)
        s0 -= li[k] * lj[k], s1 -= li[k + 1] * lj[k + 1];
      for (; k < j; k++) s0 -= li[k] * lj[k];
      s0 += s1;
      if (j < i) {
        // j < i: an element below the diagonal. j == i: the diagonal, whose
        // square must be positive; the comparison is false for NaN, too.
        li[j] = s0 / lj[j];
      } else {
        failed |= ~(MASK)(s0 > 0);
        li[j] = ROOT(s0);
      }
    }
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++)
      // Goes over all elements: failed lanes are NaN also where the factor is
      // zero.
      a[i * down + j * right] = SELECT(failed, SPLAT(__builtin_nan("")),
                                       j <= i ? l[i * n + j] : SPLAT(0));
  FN(_store)(p, bufs[1], first, n * n, a);
}

// ---- Triangular solve: t x = b for t of `side` rows, (i, j) at t[i * down + j
// * right], and the rows of b, or its columns where the matrix is on the right.
// bufs: t (side x side), b, then x; work: side^2 + m n vectors. Solved in
// place in b, COLUMNS right sides at a time, for which one element of t is
// loaded once. A zero on the diagonal gives infinities, as LAPACK does.
ATTR static void FN(_solve)(const at_k_linalg_params *p, void *const *bufs,
                            int64_t first, void *work) {
  int64_t m = p->m, n = p->n, side = p->left_side ? m : n,
          others = p->left_side ? n : m;
  // Transposed from the left and plain from the right are the same
  // substitution, x t = b being t' x' = b'.
  bool turned = (p->transpose_a == TRANSPOSED || p->transpose_a == ADJOINT) ==
                !!p->left_side;
  int64_t down = turned ? 1 : side, right = turned ? side : 1;
  // A lower matrix is substituted from its first row on, an upper one from its
  // last; a transposed one the other way around.
  bool forward = !!p->lower != turned;
  int64_t row = p->left_side ? n : 1, next = p->left_side ? 1 : n;
  VEC *t = work, *b = t + side * side;
  FN(_load)(p, bufs[0], first, side * side, t);
  FN(_load)(p, bufs[1], first, m * n, b);
  // Row i of x: the right side less what rows that are known take of it.
  for (int64_t at = 0; at < side; at++) {
    int64_t i = forward ? at : side - 1 - at, begin = forward ? 0 : i + 1,
            end = forward ? i : side;
    // A unit diagonal is not read, as the array may hold anything there.
    VEC d = p->unit_diagonal ? SPLAT(1) : t[i * down + i * right];
    const VEC *ti = t + i * down;
    int64_t c = 0;
    for (; c + COLUMNS <= others; c += COLUMNS) {
      VEC *x = b + c * next, sum[COLUMNS];
      AT_LANES_UNROLL
      for (int k = 0; k < COLUMNS; k++) sum[k] = x[i * row + k * next];
      for (int64_t j = begin; j < end; j++) {
        VEC v = ti[j * right];
        const VEC *y = x + j * row;
        AT_LANES_UNROLL
        for (int k = 0; k < COLUMNS; k++) sum[k] -= v * y[k * next];
      }
      AT_LANES_UNROLL
      for (int k = 0; k < COLUMNS; k++) x[i * row + k * next] = sum[k] / d;
    }
    // The columns that are left over, one by one, in the same order of sums.
    for (; c < others; c++) {
      VEC *x = b + c * next, s = x[i * row];
      for (int64_t j = begin; j < end; j++) s -= ti[j * right] * x[j * row];
      x[i * row] = s / d;
    }
  }
  FN(_store)(p, bufs[2], first, m * n, b);
}

// ---- QR
// Applies the reflector v of `rows` elements, the first of which is taken as 1,
// to `columns` neighbouring columns of rows that are n apart.
ATTR static void FN(_reflect)(const VEC *v, const VEC *tau, VEC *a, int64_t n,
                              int64_t rows, int64_t columns) {
  // x -= tau v (v' x), column by column; v[0] is not read. Cost: 4 rows
  // multiplications a column.
  int64_t c = 0;
  for (; c + COLUMNS <= columns; c += COLUMNS) {
    VEC *x = a + c, sum[COLUMNS];
    AT_LANES_UNROLL
    for (int k = 0; k < COLUMNS; k++) sum[k] = x[k];
    for (int64_t i = 1; i < rows; i++) AT_LANES_UNROLL
    for (int k = 0; k < COLUMNS; k++) sum[k] += v[i] * x[i * n + k];
    AT_LANES_UNROLL
    for (int k = 0; k < COLUMNS; k++) {
      sum[k] *= *tau;
      x[k] -= sum[k];
    }
    for (int64_t i = 1; i < rows; i++) AT_LANES_UNROLL
    for (int k = 0; k < COLUMNS; k++) x[i * n + k] -= v[i] * sum[k];
  }
  // What is left of the columns: the same with one sum.
  for (; c < columns; c++) {
    VEC *x = a + c, sum = x[0];
    for (int64_t i = 1; i < rows; i++) sum += v[i] * x[i * n];
    sum *= *tau;
    x[0] -= sum;
    for (int64_t i = 1; i < rows; i++) x[i * n] -= v[i] * sum;
  }
}

// Of the column x: the reflector below x[0], the new x[0] and tau, as LAPACK
// defines them.
ATTR static void FN(_reflector)(VEC *x, int64_t step, int64_t count, VEC *tau) {
  // `step`: vectors from row to row of the column; `count`: elements below
  // x[0]. Elements are divided by the largest before they are squared, so that
  // none overflows or vanishes.
  VEC most = {0}, sum = {0}, alpha = x[0];
  for (int64_t i = 1; i <= count; i++) {
    VEC v = ABS(x[i * step]);
    most = LARGER(v, most);
  }
  // A column that is zero below its head needs no reflector: tau is 0 and the
  // head stays.
  MASK none = (MASK)(most == 0);
  // Divided by the largest of the whole column, and never by less than TINY,
  // whose reciprocal is still finite.
  VEC peak = ABS(alpha);
  VEC scale = SELECT((MASK)(most > peak), most, peak);
  scale = SELECT((MASK)(scale < SPLAT(TINY)), SPLAT(TINY), scale);
  for (int64_t i = 1; i <= count; i++) {
    VEC v = x[i * step] / scale;
    sum += v * v;
  }
  VEC first = alpha / scale;
  // The length of the column, which is what its head becomes.
  VEC beta = ROOT(first * first + sum) * scale;
  // beta has the sign opposite to alpha's, so alpha - beta does not cancel.
  beta = SELECT((MASK)(alpha < 0), beta, -beta);
  *tau = SELECT(none, SPLAT(0), (beta - alpha) / beta);
  // The reflector is scaled so that its first element is 1, which is not
  // stored.
  VEC by = alpha - beta;
  for (int64_t i = 1; i <= count; i++)
    x[i * step] = SELECT(none, SPLAT(0), x[i * step] / by);
  x[0] = SELECT(none, alpha, beta);
}

// Householder's QR: the reflector of each column is applied to the columns
// right of it.
ATTR static void FN(_qr)(const at_k_linalg_params *p, void *const *bufs,
                         int64_t first, void *work) {
  // bufs: a, then the packed reflectors with R above them, then tau. work: m n
  // + k + m vectors.
  int64_t m = p->m, n = p->n, k = AT_MIN(m, n);
  VEC *a = work, *tau = a + m * n, *v = tau + k;
  FN(_load)(p, bufs[0], first, m * n, a);
  for (int64_t j = 0; j < k; j++) {
    VEC *x = a + j * n + j;
    FN(_reflector)(x, n, m - 1 - j, &tau[j]);
    // The column is copied to `v`: applying it reads it for each column, and
    // rows are n vectors apart.
    for (int64_t i = 1; i < m - j; i++) v[i] = x[i * n];
    FN(_reflect)(v, &tau[j], x + 1, n, m - j, n - 1 - j);
  }
  FN(_store)(p, bufs[1], first, m * n, a);
  FN(_store)(p, bufs[2], first, k, tau);
}

// Q from reflectors: from the last one back, each on the columns from its own
// on.
ATTR static void FN(_product)(const at_k_linalg_params *p, void *const *bufs,
                              int64_t first, void *work) {
  // bufs: packed reflectors, tau, then Q; k <= n <= m. Columns from k on start
  // as those of the identity. Going back, columns before j are still zero above
  // and below, so none is touched twice.
  int64_t m = p->m, n = p->n, k = p->k;
  VEC *a = work, *tau = a + m * n, *v = tau + k;
  FN(_load)(p, bufs[0], first, m * n, a);
  FN(_load)(p, bufs[1], first, k, tau);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = k; j < n; j++) a[i * n + j] = SPLAT(i == j);
  for (int64_t j = k; j-- > 0;) {
    VEC *x = a + j * n + j;
    for (int64_t i = 1; i < m - j; i++) v[i] = x[i * n];
    FN(_reflect)(v, &tau[j], x + 1, n, m - j, n - 1 - j);
    // Column j of Q: the reflector applied to the unit vector.
    for (int64_t i = 1; i < m - j; i++) x[i * n] = -tau[j] * v[i];
    x[0] = 1 - tau[j];
    for (int64_t i = 0; i < j; i++) a[i * n + j] = SPLAT(0);
  }
  FN(_store)(p, bufs[2], first, m * n, a);
}

// ---- LU with the largest of each column as its pivot
// Swaps rows j and pivots[l] in every lane l: lanes have pivots of their own.
ATTR static void FN(_swap_rows)(VEC *a, int64_t n, int64_t j,
                                const MASK *pivots) {
  // Lanes whose pivot is on the diagonal already are left alone. Scalar, as
  // each lane has rows of its own to swap; O(n) for a lane, beside O(n^2) for
  // the step.
  MASK pivot = *pivots;
  for (int l = 0; l < WIDTH; l++) {
    // The rows of one lane: elements are WIDTH apart.
    if (pivot[l] == j) continue;
    REAL *x = (REAL *)(a + j * n) + l, *y = (REAL *)(a + pivot[l] * n) + l;
    for (int64_t c = 0; c < n; c++) {
      REAL t = x[c * WIDTH];
      x[c * WIDTH] = y[c * WIDTH], y[c * WIDTH] = t;
    }
  }
}

// Right-looking LU. A column of zeros is divided by one: LAPACK leaves it as it
// is, too.
ATTR static void FN(_lu)(const at_k_linalg_params *p, void *const *bufs,
                         int64_t first, void *work) {
  // bufs: a, LU in place of it, pivots (k, zero-based rows), and the
  // permutation that they amount to (m). work: m n vectors. No lane fails:
  // singular matrices have zeros on the diagonal, as LAPACK's have.
  int64_t m = p->m, n = p->n, k = AT_MIN(m, n),
          lanes = AT_MIN(WIDTH, p->batch - first);
  int32_t *pivots = (int32_t *)bufs[2] + first * k,
          *rows = (int32_t *)bufs[3] + first * m;
  VEC *a = work;
  FN(_load)(p, bufs[0], first, m * n, a);
  for (int64_t l = 0; l < lanes; l++)
    for (int64_t i = 0; i < m; i++) rows[l * m + i] = (int32_t)i;
  for (int64_t j = 0; j < k; j++) {
    // The first of the largest wins. A NaN is never larger; one at the head
    // stays the pivot.
    // The largest element of the column from the diagonal down, and its row,
    // for each lane.
    VEC best = ABS(a[j * n + j]);
    MASK pivot = (MASK){0} + (WORD)j;
    for (int64_t i = j + 1; i < m; i++) {
      VEC v = ABS(a[i * n + j]);
      MASK better = (MASK)(v > best);
      best = SELECT(better, v, best);
      pivot = (better & ((MASK){0} + (WORD)i)) | (~better & pivot);
    }
    FN(_swap_rows)(a, n, j, &pivot);
    for (int64_t l = 0; l < lanes; l++) {
      int32_t at = (int32_t)pivot[l], *r = rows + l * m, t = r[j];
      pivots[l * k + j] = at;
      r[j] = r[at], r[at] = t;
    }
    // Outer product: rows below lose a multiple of the pivot's row.
    const VEC *top = a + j * n;
    VEC d = SELECT((MASK)(top[j] == 0), SPLAT(1), top[j]);
    for (int64_t i = j + 1; i < m; i++) {
      VEC *row = a + i * n, f = row[j] / d;
      row[j] = f;
      for (int64_t c = j + 1; c < n; c++) row[c] -= f * top[c];
    }
  }
  FN(_store)(p, bufs[1], first, m * n, a);
}

// ---- Eigenvalues by Jacobi's rotations, until what is beside the diagonal is
// nothing beside it, in every lane.
// Zeroes a(x, y) and a(y, x) by a rotation of rows and columns x and y, and
// gathers it in v. False: it was negligible in every lane, and nothing was
// changed. Lanes where it is negligible are rotated by an angle of 0.
ATTR static bool FN(_rotate)(VEC *a, VEC *v, int64_t n, int64_t x, int64_t y) {
  VEC axx = a[x * n + x], ayy = a[y * n + y], axy = a[x * n + y];
  // The largest element is 1: less than a part of its last place changes
  // nothing.
  MASK small = (MASK)(ABS(axy) <= SPLAT(EPSILON / 8));
  bool any = false;
  for (int l = 0; l < WIDTH; l++) any |= !small[l];
  if (!any) return false;
  // The smaller root of t^2 + 2 theta t - 1: angles of at most 45 degrees, for
  // which the method converges.
  VEC theta = (ayy - axx) / (axy + axy);
  VEC t = 1 / (ABS(theta) + ROOT(theta * theta + 1));
  t = SELECT((MASK)(theta < 0), -t, t);
  t = SELECT(small, SPLAT(0), t);
  VEC c = 1 / ROOT(t * t + 1), s = t * c;
  for (int64_t i = 0; i < n; i++) {
    VEC p = a[x * n + i], q = a[y * n + i];
    a[x * n + i] = c * p - s * q, a[y * n + i] = s * p + c * q;
    p = v[x * n + i], q = v[y * n + i];  // the vectors are rows
    v[x * n + i] = c * p - s * q, v[y * n + i] = s * p + c * q;
  }
  for (int64_t i = 0; i < n; i++) {
    VEC p = a[i * n + x], q = a[i * n + y];
    a[i * n + x] = c * p - s * q, a[i * n + y] = s * p + c * q;
  }
  return true;
}

// From the triangle that counts, scaled so that squares neither overflow nor
// vanish.
// a becomes whole and symmetric, v the identity. *to_scale: each lane's largest
// element, which eigenvalues are multiplied by at the end; infinite or NaN
// where the matrix has such an element.
ATTR static void FN(_symmetric)(const at_k_linalg_params *p, VEC *a, VEC *v,
                                VEC *to_scale) {
  int64_t n = p->n;
  VEC most = {0};
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < n; j++) {
      VEC x = ABS(a[i * n + j]);
      if (p->lower ? j <= i : i <= j) most = LARGER(x, most);
      v[i * n + j] = SPLAT(i == j);
    }
  VEC scale = SELECT((MASK)(most < SPLAT(TINY)), SPLAT(1), most);
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j <= i; j++) {
      VEC x = (p->lower ? a[i * n + j] : a[j * n + i]) / scale;
      a[i * n + j] = a[j * n + i] = x;
    }
  *to_scale = scale;
}

// Sweeps of rotations over all pairs until nothing is rotated; lanes with an
// infinity or NaN become NaN.
ATTR static void FN(_eigh)(const at_k_linalg_params *p, void *const *bufs,
                           int64_t first, void *work) {
  // bufs: a, then the eigenvectors as columns, then the eigenvalues. work: 2
  // n^2 + n vectors.
  int64_t n = p->n;
  VEC *a = work, *v = a + n * n, *w = v + n * n;
  FN(_load)(p, bufs[0], first, n * n, a);
  VEC scale;
  FN(_symmetric)(p, a, v, &scale);
  // x - x is 0 for finite numbers alone.
  MASK broken = ~(MASK)(scale - scale == 0);
  // Lanes that have converged wait for the slowest; MAX_SWEEPS bounds the loop
  // for lanes that never do.
  bool more = true;
  for (int sweep = 0; more && sweep < MAX_SWEEPS; sweep++) {
    more = false;
    for (int64_t x = 0; x < n; x++)
      for (int64_t y = x + 1; y < n; y++) more |= FN(_rotate)(a, v, n, x, y);
  }
  // Ascending, by insertion: each lane has an order of its own.
  for (int64_t i = 0; i < n; i++) w[i] = a[i * n + i] * scale;
  for (int64_t i = 1; p->sort_eigenvalues && i < n; i++)
    for (int64_t j = i; j-- > 0;) {
      MASK over = (MASK)(w[j] > w[j + 1]);
      VEC lo = SELECT(over, w[j + 1], w[j]), hi = SELECT(over, w[j], w[j + 1]);
      w[j] = lo, w[j + 1] = hi;
      for (int64_t r = 0; r < n; r++) {
        VEC x = v[j * n + r], y = v[(j + 1) * n + r];
        v[j * n + r] = SELECT(over, y, x),
                  v[(j + 1) * n + r] = SELECT(over, x, y);
      }
    }
  // v holds eigenvectors as rows; they are stored as columns.
  VEC nan = SPLAT(__builtin_nan(""));
  for (int64_t i = 0; i < n; i++) {
    w[i] = SELECT(broken, nan, w[i]);
    for (int64_t j = 0; j < n; j++)
      a[j * n + i] = SELECT(broken, nan, v[i * n + j]);
  }
  FN(_store)(p, bufs[1], first, n * n, a);
  FN(_store)(p, bufs[2], first, n, w);
}

#undef FN
#undef VEC
#undef FREE_VEC
#undef MASK
#undef SPLAT
#undef SELECT
#undef ABS
#undef ROOT
#undef LARGER
#undef NAME
#undef REAL
#undef WORD
#undef SQRT
#undef TINY
#undef EPSILON
#undef WIDTH
#undef ATTR
