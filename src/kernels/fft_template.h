// Body of the transforms of one element type and target; included by
// fft_kernels.c with
//   NAME prefix, REAL element, WIDTH lanes, ATTR target attribute.
// No include guard: it is included once per family.
// FN(name) is NAME followed by `name`: the four families (float and double,
// with and without AVX-512) are one translation unit, so every function, type
// and body below carries the prefix.
#define CAT(a, b) AT_LANES_PASTE(a, b, , )
#define FN(name) CAT(NAME, name)
#define VEC FN(_vec)
#define FREE_VEC FN(_free_vec)  // anywhere in memory
// Picks elements of two vectors by a list of lanes.h: EVEN and ODD separate
// real from imaginary parts, ZIP_LOW and ZIP_HIGH interleave them again.
#define SHUFFLE(a, b, which) AT_LANES_SHUFFLE(a, b, which, WIDTH)
// A VEC is the same element of WIDTH lines: the real parts in one vector, the
// imaginary parts in another. Work memory is aligned for it; FREE_VEC is for
// the caller's arrays, which may begin anywhere.
typedef REAL VEC __attribute__((vector_size(WIDTH * sizeof(REAL))));
typedef REAL FREE_VEC __attribute__((vector_size(WIDTH * sizeof(REAL)),
                                     aligned(sizeof(REAL)), may_alias));

// Butterflies read a[radix] and write y[radix] (before the twiddles).
// Forward transforms only: multiplication by -i is a swap of parts with one
// sign, so no butterfly has a product beside sqrt(1/2) of radix 8. The inverse
// is the same code with the parts swapped (FN(_group)).
#define BUTTERFLY_2(ar, ai, yr, yi)               \
  do {                                            \
    yr[0] = ar[0] + ar[1], yi[0] = ai[0] + ai[1]; \
    yr[1] = ar[0] - ar[1], yi[1] = ai[0] - ai[1]; \
  } while (0)
// Radix 4 of (r0, i0) to (r3, i3); results go to first, first + step, ...:
// radix 8 uses it twice.
#define FOUR(r0, i0, r1, i1, r2, i2, r3, i3, yr, yi, first, step)       \
  do {                                                                  \
    VEC b0r = r0 + r2, b0i = i0 + i2, b1r = r0 - r2, b1i = i0 - i2;     \
    VEC b2r = r1 + r3, b2i = i1 + i3, b3r = r1 - r3, b3i = i1 - i3;     \
    yr[first] = b0r + b2r, yi[first] = b0i + b2i;                       \
    yr[first + 2 * step] = b0r - b2r, yi[first + 2 * step] = b0i - b2i; \
    yr[first + step] = b1r + b3i, yi[first + step] = b1i - b3r;         \
    yr[first + 3 * step] = b1r - b3i, yi[first + 3 * step] = b1i + b3r; \
  } while (0)
#define BUTTERFLY_4(ar, ai, yr, yi) \
  FOUR(ar[0], ai[0], ar[1], ai[1], ar[2], ai[2], ar[3], ai[3], yr, yi, 0, 1)
// Radix 8 is two of radix 4: the sums give the even outputs, the differences,
// turned by exp(-2 pi i k / 8), the odd ones.
#define BUTTERFLY_8(ar, ai, yr, yi)                                         \
  do {                                                                      \
    const REAL h = (REAL)M_SQRT1_2;                                         \
    VEC sr[4], si[4], dr[4], di[4];                                         \
    AT_LANES_UNROLL                                                         \
    for (int k = 0; k < 4; k++) {                                           \
      sr[k] = ar[k] + ar[k + 4], si[k] = ai[k] + ai[k + 4];                 \
      dr[k] = ar[k] - ar[k + 4], di[k] = ai[k] - ai[k + 4];                 \
    }                                                                       \
    FOUR(sr[0], si[0], sr[1], si[1], sr[2], si[2], sr[3], si[3], yr, yi, 0, \
         2);                                                                \
    VEC t1r = (dr[1] + di[1]) * h, t1i = (di[1] - dr[1]) * h;               \
    VEC t3r = (di[3] - dr[3]) * h, t3i = -(dr[3] + di[3]) * h;              \
    VEC t2r = di[2], t2i = -dr[2];                                          \
    FOUR(dr[0], di[0], t1r, t1i, t2r, t2i, t3r, t3i, yr, yi, 1, 2);         \
  } while (0)

// One Stockham stage of an even radix R. The last one (m = 1) turns nothing.
// Output j of the butterfly at (p, q) goes to out[q + s (R p + j)], turned by
// tw[p][j - 1]; its inputs are x[q + s (p + m k)].
// `turn` is a constant at both calls: the last stage has no twiddles to load. x
// and out must not overlap; each stage reads one pair of buffers and writes the
// other.
#define STAGE(R)                                                              \
  ATTR AT_INLINE void CAT(FN(_body), R)(                                      \
      const bool turn, const at_fft_stage *st, const VEC *restrict xr,        \
      const VEC *restrict xi, VEC *restrict outr, VEC *restrict outi) {       \
    int64_t m = st->m, s = st->s;                                             \
    const REAL *tw = st->tw;                                                  \
    for (int64_t p = 0; p < m; p++, tw += 2 * (R - 1))                        \
      for (int64_t q = 0; q < s; q++) {                                       \
        VEC ar[R], ai[R], yr[R], yi[R];                                       \
        AT_LANES_UNROLL                                                       \
        for (int k = 0; k < R; k++) {                                         \
          ar[k] = xr[q + s * (p + m * k)], ai[k] = xi[q + s * (p + m * k)];   \
        }                                                                     \
        CAT(BUTTERFLY_, R)(ar, ai, yr, yi);                                   \
        int64_t at = q + s * R * p;                                           \
        outr[at] = yr[0], outi[at] = yi[0];                                   \
        AT_LANES_UNROLL                                                       \
        for (int j = 1; j < R; j++) {                                         \
          if (turn) {                                                         \
            VEC wr = tw[2 * j - 2] - (VEC){0}, wi = tw[2 * j - 1] - (VEC){0}; \
            outr[at + s * j] = yr[j] * wr - yi[j] * wi;                       \
            outi[at + s * j] = yr[j] * wi + yi[j] * wr;                       \
          } else {                                                            \
            outr[at + s * j] = yr[j], outi[at + s * j] = yi[j];               \
          }                                                                   \
        }                                                                     \
      }                                                                       \
  }                                                                           \
  ATTR static void CAT(FN(_stage), R)(const at_fft_stage *st, const VEC *xr,  \
                                      const VEC *xi, VEC *outr, VEC *outi) {  \
    if (st->m > 1)                                                            \
      CAT(FN(_body), R)(true, st, xr, xi, outr, outi);                        \
    else                                                                      \
      CAT(FN(_body), R)(false, st, xr, xi, outr, outi);                       \
  }
STAGE(2)
STAGE(4)
STAGE(8)

// A stage of odd radix r <= 13: pairs a[k], a[r - k] share their products.
// r is a constant at every call; roots hold cosines, then sines, of 2 pi k / r.
ATTR AT_INLINE void FN(_odd_body)(const int r, const at_fft_stage *st,
                                  // The loops over k and j unroll, so j * k
                                  // % r is folded to a constant index of the
                                  // tables. Costs r * (r - 1) real products of
                                  // vectors a butterfly, which is what bounds
                                  // the radix.
                                  const VEC *restrict xr,
                                  const VEC *restrict xi, VEC *restrict outr,
                                  VEC *restrict outi) {
  int64_t m = st->m, s = st->s;
  const REAL *tw = st->tw, *co = st->roots, *si = co + r;
  const int h = (r - 1) / 2;
  for (int64_t p = 0; p < m; p++, tw += 2 * (r - 1))
    for (int64_t q = 0; q < s; q++) {
      // Sums and differences of the pairs: a cosine goes with the sum, a sine
      // with the difference.
      VEC tr[6], ti[6], ur[6], ui[6];
      VEC a0r = xr[q + s * p], a0i = xi[q + s * p], sumr = a0r, sumi = a0i;
      AT_LANES_UNROLL
      for (int k = 1; k <= h; k++) {
        VEC br = xr[q + s * (p + m * k)], bi = xi[q + s * (p + m * k)];
        VEC cr = xr[q + s * (p + m * (r - k))],
            ci = xi[q + s * (p + m * (r - k))];
        tr[k - 1] = br + cr, ti[k - 1] = bi + ci;
        ur[k - 1] = br - cr, ui[k - 1] = bi - ci;
        sumr += tr[k - 1], sumi += ti[k - 1];
      }
      int64_t at = q + s * r * p;
      outr[at] = sumr, outi[at] = sumi;
      // Outputs j and r - j share e and f, and differ in the sign of f.
      AT_LANES_UNROLL
      for (int j = 1; j <= h; j++) {
        // e sums what outputs j and r - j have in common, f what they have with
        // opposite signs.
        VEC er = a0r, ei = a0i, fr = (VEC){0}, fi = (VEC){0};
        AT_LANES_UNROLL
        for (int k = 1; k <= h; k++) {
          REAL c = co[j * k % r], d = si[j * k % r];
          er += tr[k - 1] * c, ei += ti[k - 1] * c;
          fr += ui[k - 1] * d, fi += ur[k - 1] * d;
        }
        VEC y1r = er + fr, y1i = ei - fi, y2r = er - fr, y2i = ei + fi;
        // Odd stages always turn, also the last one, where tw holds ones.
        REAL w1r = tw[2 * j - 2], w1i = tw[2 * j - 1];
        REAL w2r = tw[2 * (r - j) - 2], w2i = tw[2 * (r - j) - 1];
        outr[at + s * j] = y1r * w1r - y1i * w1i;
        outi[at + s * j] = y1r * w1i + y1i * w1r;
        outr[at + s * (r - j)] = y2r * w2r - y2i * w2i;
        outi[at + s * (r - j)] = y2r * w2i + y2i * w2r;
      }
    }
}
#define ODD_STAGE(R)                                                         \
  ATTR static void CAT(FN(_stage), R)(const at_fft_stage *st, const VEC *xr, \
                                      const VEC *xi, VEC *outr, VEC *outi) { \
    FN(_odd_body)(R, st, xr, xi, outr, outi);                                \
  }
ODD_STAGE(3)
ODD_STAGE(5)
ODD_STAGE(7)
ODD_STAGE(11)
ODD_STAGE(13)

// Transforms a[0], a[1] (real, imaginary vectors of n elements) using b;
// returns the pair that holds the result.
ATTR static VEC **FN(_stages)(const at_fft_plan *plan, VEC **a, VEC **b) {
  // The plan's radices are those of the cases; at_fft_plan_get makes no others.
  for (int i = 0; i < plan->count; i++) {
    const at_fft_stage *st = &plan->stage[i];
    switch (st->radix) {
#define CASE(R)                                     \
  case R:                                           \
    CAT(FN(_stage), R)(st, a[0], a[1], b[0], b[1]); \
    break;
      CASE(2)
      CASE(3)
      CASE(4)
      CASE(5)
      CASE(7)
      CASE(8)
      CASE(11)
      CASE(13)
#undef CASE
    }
    // Each stage goes from one pair of buffers to the other; no stage is in
    // place.
    // The result of a stage is the input of the next.
    VEC **t = a;
    a = b, b = t;
  }
  return a;
}

// v[i] *= w[i] for i < n.
// w: n pairs of this precision, the same for all lanes.
ATTR static void FN(_turn_all)(VEC **v, const REAL *w, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    REAL wr = w[2 * i], wi = w[2 * i + 1];
    VEC r = v[0][i], im = v[1][i];
    v[0][i] = r * wr - im * wi, v[1][i] = r * wi + im * wr;
  }
}

// A group as a convolution: a is overwritten, the result is in a or b, with the
// pointers of the pair exchanged where the parts were.
ATTR static VEC **FN(_bluestein)(const at_fft_plan *plan, VEC **a, VEC **b) {
  // Buffers hold c >= 2n - 1 elements of each part, of which the line fills n.
  int64_t n = plan->n, c = plan->conv->n;
  // Bluestein: n k = (n^2 + k^2 - (n - k)^2) / 2, so the line times the chirp,
  // convolved with the conjugate chirp, is its transform but for a chirp.
  FN(_turn_all)(a, plan->chirp, n);
  // Zeros behind the line: the cyclic convolution of length c is the linear one
  // then.
  memset(a[0] + n, 0, (size_t)(c - n) * sizeof(VEC));
  memset(a[1] + n, 0, (size_t)(c - n) * sizeof(VEC));
  VEC **f = FN(_stages)(plan->conv, a, b);
  // The product of the spectra is the convolution's.
  FN(_turn_all)(f, plan->chirp_ft, c);  // holds 1 / c as well
  // The inverse transform is the transform with the parts swapped.
  // g points into the pair that the second run ended in, with its parts
  // swapped: which pair is told by address, and put right there.
  // The pair that the first run did not end in is free for the second.
  VEC **other = f == a ? b : a;
  VEC *fs[2] = {f[1], f[0]}, *os[2] = {other[1], other[0]};
  VEC **g = FN(_stages)(plan->conv, fs, os);
  VEC **result = (g[1] == a[0] || g[1] == a[1]) ? a : b;
  result[0] = g[1], result[1] = g[0];
  FN(_turn_all)(result, plan->chirp, n);
  return result;
}

// ---- Real lines: element k of the spectrum of 2n reals, and n - k, from those
// of the n complex elements that the reals are in pairs (z to x); and twice
// that back (x to z).
#define UNRAVEL(T, zkr, zki, zjr, zji, wr, wi, xkr, xki, xjr, xji)  \
  do {                                                              \
    T er = (zkr + zjr) * (REAL)0.5, ei = (zki - zji) * (REAL)0.5;   \
    T odr = (zki + zji) * (REAL)0.5, odi = (zjr - zkr) * (REAL)0.5; \
    T tr = odr * wr - odi * wi, ti = odr * wi + odi * wr;           \
    xkr = er + tr, xki = ei + ti, xjr = er - tr, xji = ti - ei;     \
  } while (0)
#define RAVEL(T, xkr, xki, xjr, xji, wr, wi, zkr, zki, zjr, zji)      \
  do {                                                                \
    T er = xkr + xjr, ei = xki - xji, dr = xkr - xjr, di = xki + xji; \
    T odr = dr * wr + di * wi, odi = di * wr - dr * wi;               \
    zkr = er - odi, zki = ei + odr, zjr = er + odi, zji = odr - ei;   \
  } while (0)

// n + 1 elements from n, in place; the last one is re[n], im[n].
ATTR static void FN(_unravel_group)(const at_fft_plan *plan, VEC *re, VEC *im) {
  // The element 0 of z holds two real numbers, the first and the last element
  // of the spectrum. k meets j in the middle, where both are the same element.
  int64_t n = plan->n;
  const REAL *w = plan->half;
  VEC r0 = re[0], i0 = im[0];
  re[0] = r0 + i0, re[n] = r0 - i0, im[0] = im[n] = (VEC){0};
  for (int64_t k = 1, j = n - 1; k <= j; k++, j--) {
    VEC a = re[k], b = im[k], c = re[j], d = im[j];
    UNRAVEL(VEC, a, b, c, d, w[2 * k], w[2 * k + 1], re[k], im[k], re[j],
            im[j]);
  }
}
// n elements, twice the original, from n + 1.
ATTR static void FN(_ravel_group)(const at_fft_plan *plan, VEC *re, VEC *im) {
  // The factor 2 is taken out by the pass's scale.
  int64_t n = plan->n;
  const REAL *w = plan->half;
  VEC r0 = re[0], rn = re[n];
  re[0] = r0 + rn, im[0] = r0 - rn;
  for (int64_t k = 1, j = n - 1; k <= j; k++, j--) {
    VEC a = re[k], b = im[k], c = re[j], d = im[j];
    RAVEL(VEC, a, b, c, d, w[2 * k], w[2 * k + 1], re[k], im[k], re[j], im[j]);
  }
}

// The same of one long line, elements k and n - k for k in [begin, end), times
// scale.
ATTR static void FN(_unravel)(const at_fft_plan *plan, const void *from,
                              void *to, int64_t begin, int64_t end,
                              double scale) {
  // x has n + 1 complex elements, z has n. Elements k and n - k are written
  // together, so ranges of k that do not overlap may run on different threads;
  // [begin, end) is cut at the middle.
  int64_t n = plan->n;
  const REAL *restrict z = from, *restrict w = plan->half, f = (REAL)scale;
  REAL *restrict x = to;
  if (begin == 0) {
    x[0] = (z[0] + z[1]) * f, x[2 * n] = (z[0] - z[1]) * f,
    x[1] = x[2 * n + 1] = 0;
    begin = 1;
  }
  for (int64_t k = begin; k < AT_MIN(end, (n + 1) / 2); k++) {
    int64_t j = n - k;
    REAL xkr, xki, xjr, xji;
    UNRAVEL(REAL, z[2 * k], z[2 * k + 1], z[2 * j], z[2 * j + 1], w[2 * k],
            w[2 * k + 1], xkr, xki, xjr, xji);
    x[2 * k] = xkr * f, x[2 * k + 1] = xki * f, x[2 * j] = xjr * f,
          x[2 * j + 1] = xji * f;
  }
  if (n % 2 == 0 && n && end > n / 2)  // the middle is its own mirror
    x[n] = z[n] * f, x[n + 1] = -z[n + 1] * f;
}
// And back.
ATTR static void FN(_ravel)(const at_fft_plan *plan, const void *from, void *to,
                            int64_t begin, int64_t end) {
  // The inverse of FN(_unravel), up to the factor 2; x has n + 1 complex
  // elements and z n.
  int64_t n = plan->n;
  const REAL *restrict x = from, *restrict w = plan->half;
  REAL *restrict z = to;
  if (begin == 0) {
    z[0] = x[0] + x[2 * n], z[1] = x[0] - x[2 * n];
    begin = 1;
  }
  for (int64_t k = begin; k < AT_MIN(end, (n + 1) / 2); k++) {
    int64_t j = n - k;
    REAL zkr, zki, zjr, zji;
    RAVEL(REAL, x[2 * k], x[2 * k + 1], x[2 * j], x[2 * j + 1], w[2 * k],
          w[2 * k + 1], zkr, zki, zjr, zji);
    z[2 * k] = zkr, z[2 * k + 1] = zki, z[2 * j] = zjr, z[2 * j + 1] = zji;
  }
  if (n % 2 == 0 && n && end > n / 2) z[n] = 2 * x[n], z[n + 1] = -2 * x[n + 1];
}

// Dense complex elements [begin, end) of `to` times those of `by`.
ATTR static void FN(_multiply)(void *to, const void *by, int64_t begin,
                               int64_t end) {
  REAL *restrict x = to;
  const REAL *restrict w = by;
  for (int64_t i = begin; i < end; i++) {
    REAL r = x[2 * i], m = x[2 * i + 1];
    x[2 * i] = r * w[2 * i] - m * w[2 * i + 1];
    x[2 * i + 1] = r * w[2 * i + 1] + m * w[2 * i];
  }
}

// ---- From memory and back
// Where each lane's line is; lanes behind the last line read it again.
static void FN(_lines_at)(const at_fft_pass *p, const at_fft_side *s,
                          int64_t first, REAL **at) {
  // Copies of the last line are computed and then not stored, so a group that
  // is not full needs no code of its own. Strides count elements of the side:
  // one REAL where it is real, two where complex.
  for (int64_t l = 0; l < WIDTH; l++) {
    int64_t line = AT_MIN(first + l, p->lines - 1);
    at[l] = (REAL *)(void *)s->p +
            (line / p->inner * s->outer + line % p->inner * s->line) *
                (s->real ? 1 : 2);
  }
}

// Dense lines: blocks of WIDTH / 2 complex elements of WIDTH lines are square.
ATTR static int64_t FN(_load_lines)(REAL *const *at, int64_t n, VEC *re,
                                    // at: first element of each line; re,
                                    // im: element i of all lanes. Returns how
                                    // many elements were loaded, n rounded
                                    // down.
                                    VEC *im) {
  int64_t i = 0;
  for (; i + WIDTH / 2 <= n; i += WIDTH / 2) {
    VEC v[WIDTH];
    AT_LANES_UNROLL
    for (int l = 0; l < WIDTH; l++) v[l] = *(const FREE_VEC *)(at[l] + 2 * i);
    AT_LANES_TRANSPOSE(VEC, v, WIDTH)
    AT_LANES_UNROLL
    for (int k = 0; k < WIDTH / 2; k++)
      re[i + k] = v[2 * k], im[i + k] = v[2 * k + 1];
  }
  return i;
}
// The way back, of `lanes` lines. Both return how many elements they did; the
// rest go one by one.
ATTR static int64_t FN(_store_lines)(REAL *const *at, int64_t lanes, int64_t n,
                                     const VEC *re, const VEC *im, REAL scale) {
  int64_t i = 0;
  for (; i + WIDTH / 2 <= n; i += WIDTH / 2) {
    VEC v[WIDTH];
    AT_LANES_UNROLL
    for (int k = 0; k < WIDTH / 2; k++) {
      v[2 * k] = re[i + k] * scale, v[2 * k + 1] = im[i + k] * scale;
    }
    AT_LANES_TRANSPOSE(VEC, v, WIDTH)
    if (lanes == WIDTH) {
      AT_LANES_UNROLL
      for (int l = 0; l < WIDTH; l++) *(FREE_VEC *)(at[l] + 2 * i) = v[l];
    } else {
      for (int64_t l = 0; l < lanes; l++) *(FREE_VEC *)(at[l] + 2 * i) = v[l];
    }
  }
  return i;
}

// Neighbouring lines one element apart: whole vectors.
// src: the first of WIDTH lines side by side, so one element of all of them
// is two vectors in memory: no transpose is needed.
ATTR static void FN(_load_columns)(const at_fft_pass *p, const REAL *src,
                                   VEC *re, VEC *im) {
  for (int64_t i = 0; i < p->in_count; i++) {
    const REAL *s = src + 2 * i * p->src.elem;
    VEC a = *(const FREE_VEC *)s, b = *(const FREE_VEC *)(s + WIDTH);
    re[i] = SHUFFLE(a, b, EVEN), im[i] = SHUFFLE(a, b, ODD);
  }
}
// Interleaves the parts of WIDTH neighbouring lines.
ATTR static void FN(_store_columns)(const at_fft_pass *p, REAL *dst,
                                    const VEC *re, const VEC *im) {
  REAL scale = (REAL)p->scale;
  for (int64_t i = 0; i < p->out_count; i++) {
    REAL *d = dst + 2 * i * p->dst.elem;
    VEC a = re[i] * scale, b = im[i] * scale;
    *(FREE_VEC *)d = SHUFFLE(a, b, ZIP_LOW);
    *(FREE_VEC *)(d + WIDTH) = SHUFFLE(a, b, ZIP_HIGH);
  }
}

// The rest of the spectrum of real lines: the parts that must be real are taken
// as real.
ATTR static void FN(_complete)(int64_t n, VEC *re, VEC *im) {
  // Element n - i of the spectrum of a real line is the conjugate of element i;
  // memory holds those up to n / 2.
  im[0] = (VEC){0};
  if (n % 2 == 0) im[n / 2] = (VEC){0};
  for (int64_t i = n / 2 + 1; i < n; i++) re[i] = re[n - i], im[i] = -im[n - i];
}

// Reads a group and folds it where the pass says so. adjacent: the lanes are
// WIDTH lines in a row of one outer index.
ATTR static void FN(_load)(const at_fft_pass *p, int64_t first, bool adjacent,
                           VEC *re, VEC *im) {
  // Three ways in, the fastest that fits: side by side, dense along the line,
  // and element by element. The last one also ends what the second leaves.
  REAL *at[WIDTH];
  FN(_lines_at)(p, &p->src, first, at);
  int64_t i = 0, es = p->src.elem, n = p->in_count;
  if (adjacent && !p->src.real && p->src.line == 1) {
    FN(_load_columns)(p, at[0], re, im);
    i = n;
  } else if (!p->src.real && es == 1) {
    i = FN(_load_lines)(at, n, re, im);
  }
  // A vector of re is WIDTH numbers in memory: lanes are written as scalars.
  REAL *r = (REAL *)(re + i), *m = (REAL *)(im + i);
  for (; i < n; i++, r += WIDTH, m += WIDTH)
    for (int l = 0; l < WIDTH; l++) {
      r[l] = p->src.real ? at[l][i * es] : at[l][2 * i * es];
      m[l] = p->src.real ? 0 : at[l][2 * i * es + 1];
    }
  if (p->hermitian) FN(_complete)(p->plan->n, re, im);
  if (p->fold == AT_FFT_RAVEL) FN(_ravel_group)(p->plan, re, im);
}

// Writes `lanes` lines of the group, scaled.
ATTR static void FN(_store)(const at_fft_pass *p, int64_t first, int64_t lanes,
                            bool adjacent, const VEC *re, const VEC *im) {
  REAL *at[WIDTH], scale = (REAL)p->scale;
  // As in FN(_load): side by side, dense, or one by one. Imaginary parts of a
  // real destination are dropped; with a correct plan they are rounding.
  FN(_lines_at)(p, &p->dst, first, at);
  int64_t i = 0, es = p->dst.elem, n = p->out_count;
  if (adjacent && !p->dst.real && p->dst.line == 1) {
    FN(_store_columns)(p, at[0], re, im);
    return;
  }
  if (!p->dst.real && es == 1)
    i = FN(_store_lines)(at, lanes, n, re, im, scale);
  const REAL *r = (const REAL *)(re + i), *m = (const REAL *)(im + i);
  for (; i < n; i++, r += WIDTH, m += WIDTH)
    for (int64_t l = 0; l < lanes; l++) {
      if (p->dst.real)
        at[l][i * es] = r[l] * scale;
      else
        at[l][2 * i * es] = r[l] * scale, at[l][2 * i * es + 1] = m[l] * scale;
    }
}

// Between the passes of a long line: element k of column l times exp(-2 pi i k
// l / n).
ATTR static void FN(_turn_columns)(const at_fft_pass *p, int64_t first,
                                   VEC **v) {
  // Two table look-ups and a product in place of n x n1 turns: the fine table
  // has one turn for each k % AT_FFT_TURNS, the coarse one for each block of as
  // many. Error: one more rounding than a table of all would have.
  int64_t n = p->plan->n, coarse = at_k_ceil_div(n, AT_FFT_TURNS);
  const VEC *fine = p->turn->turns;
  fine += first / WIDTH * (AT_FFT_TURNS + coarse) * 2;
  const VEC *by = fine + 2 * AT_FFT_TURNS;
  for (int64_t k = 0; k < n; k += AT_FFT_TURNS, by += 2)
    for (int64_t q = 0; q < AT_MIN(AT_FFT_TURNS, n - k); q++) {
      VEC fr = fine[2 * q], fi = fine[2 * q + 1];
      VEC wr = by[0] * fr - by[1] * fi, wi = by[0] * fi + by[1] * fr;
      VEC r = v[0][k + q], m = v[1][k + q];
      v[0][k + q] = r * wr - m * wi, v[1][k + q] = r * wi + m * wr;
    }
}

// Lines [first, first + WIDTH), fewer at the end. The inverse is the transform
// with real and imaginary parts swapped.
ATTR static void FN(_group)(const at_fft_pass *p, int64_t first, void *work) {
  // work: at_fft_work_bytes, aligned for vectors: two pairs of buffers, which
  // stages use in turn. The one element beyond the line is for
  // FN(_unravel_group).
  const at_fft_plan *plan = p->plan;
  int64_t size = (plan->conv ? plan->conv->n : plan->n) + 1;
  int64_t lanes = AT_MIN(WIDTH, p->lines - first);
  // Lines of one outer index are neighbours in memory; a group that crosses to
  // the next index is not.
  bool adjacent =
      lanes == WIDTH && first / p->inner == (first + WIDTH - 1) / p->inner;
  VEC *mem = work;
  VEC *av[2] = {mem, mem + size}, *bv[2] = {mem + 2 * size, mem + 3 * size};
  // Swapped parts turn the forward transform into the inverse one:
  // conj(F(conj(x))), with no pass of its own for the conjugations.
  FN(_load)(p, first, adjacent, av[p->inverse], av[!p->inverse]);
  VEC **v =
      plan->conv ? FN(_bluestein)(plan, av, bv) : FN(_stages)(plan, av, bv);
  if (p->turn) FN(_turn_columns)(p, first, v);
  if (p->fold == AT_FFT_UNRAVEL) FN(_unravel_group)(plan, v[0], v[1]);
  FN(_store)(p, first, lanes, adjacent, v[p->inverse], v[!p->inverse]);
}

#undef UNRAVEL
#undef RAVEL
#undef STAGE
#undef ODD_STAGE
#undef BUTTERFLY_2
#undef BUTTERFLY_4
#undef BUTTERFLY_8
#undef FOUR
#undef SHUFFLE
#undef VEC
#undef FREE_VEC
#undef FN
#undef CAT
#undef NAME
#undef REAL
#undef WIDTH
#undef ATTR
