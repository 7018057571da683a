// Body of the transforms of one element type and target; included by
// fft_group.c with
//   NAME prefix, REAL element, WIDTH lanes, ATTR target attribute.
// No include guard: it is included once per family.
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define VEC CAT(NAME, _vec)
#define UNROLL _Pragma("clang loop unroll(full)")
typedef REAL VEC __attribute__((vector_size(WIDTH * sizeof(REAL))));

// Butterflies read a[radix] and write y[radix] (before the twiddles).
#define BUTTERFLY_2(ar, ai, yr, yi)               \
  do {                                            \
    yr[0] = ar[0] + ar[1], yi[0] = ai[0] + ai[1]; \
    yr[1] = ar[0] - ar[1], yi[1] = ai[0] - ai[1]; \
  } while (0)
#define BUTTERFLY_4(ar, ai, yr, yi)               \
  do {                                            \
    VEC b0r = ar[0] + ar[2], b0i = ai[0] + ai[2]; \
    VEC b1r = ar[0] - ar[2], b1i = ai[0] - ai[2]; \
    VEC b2r = ar[1] + ar[3], b2i = ai[1] + ai[3]; \
    VEC b3r = ar[1] - ar[3], b3i = ai[1] - ai[3]; \
    yr[0] = b0r + b2r, yi[0] = b0i + b2i;         \
    yr[2] = b0r - b2r, yi[2] = b0i - b2i;         \
    yr[1] = b1r + b3i, yi[1] = b1i - b3r;         \
    yr[3] = b1r - b3i, yi[3] = b1i + b3r;         \
  } while (0)

// One Stockham stage of an even radix R (2 or 4).
#define STAGE(R)                                                              \
  ATTR static void CAT(CAT(NAME, _stage), R)(                                 \
      const at_fft_stage *st, const VEC *restrict xr, const VEC *restrict xi, \
      VEC *restrict outr, VEC *restrict outi) {                               \
    int64_t m = st->m, s = st->s;                                             \
    const REAL *tw = st->tw;                                                  \
    for (int64_t p = 0; p < m; p++, tw += 2 * (R - 1))                        \
      for (int64_t q = 0; q < s; q++) {                                       \
        VEC ar[R], ai[R], yr[R], yi[R];                                       \
        UNROLL for (int k = 0; k < R; k++) {                                  \
          ar[k] = xr[q + s * (p + m * k)], ai[k] = xi[q + s * (p + m * k)];   \
        }                                                                     \
        CAT(BUTTERFLY_, R)(ar, ai, yr, yi);                                   \
        int64_t at = q + s * R * p;                                           \
        outr[at] = yr[0], outi[at] = yi[0];                                   \
        UNROLL for (int j = 1; j < R; j++) {                                  \
          VEC wr = tw[2 * j - 2] - (VEC){0}, wi = tw[2 * j - 1] - (VEC){0};   \
          outr[at + s * j] = yr[j] * wr - yi[j] * wi;                         \
          outi[at + s * j] = yr[j] * wi + yi[j] * wr;                         \
        }                                                                     \
      }                                                                       \
  }
STAGE(2)
STAGE(4)

// A stage of odd radix r <= 13: pairs a[k], a[r - k] share their products.
ATTR AT_INLINE void CAT(NAME, _odd_body)(const int r, const at_fft_stage *st,
                                         const VEC *restrict xr,
                                         const VEC *restrict xi,
                                         VEC *restrict outr,
                                         VEC *restrict outi) {
  int64_t m = st->m, s = st->s;
  const REAL *tw = st->tw;
  REAL co[AT_FFT_MAX_RADIX], si[AT_FFT_MAX_RADIX];
  for (int k = 0; k < r; k++) {
    co[k] = (REAL)cos(2 * M_PI * k / r), si[k] = (REAL)sin(2 * M_PI * k / r);
  }
  const int h = (r - 1) / 2;
  for (int64_t p = 0; p < m; p++, tw += 2 * (r - 1))
    for (int64_t q = 0; q < s; q++) {
      VEC tr[6], ti[6], ur[6], ui[6];
      VEC a0r = xr[q + s * p], a0i = xi[q + s * p], sumr = a0r, sumi = a0i;
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
      for (int j = 1; j <= h; j++) {
        VEC er = a0r, ei = a0i, fr = (VEC){0}, fi = (VEC){0};
        for (int k = 1; k <= h; k++) {
          REAL c = co[j * k % r], d = si[j * k % r];
          er += tr[k - 1] * c, ei += ti[k - 1] * c;
          fr += ui[k - 1] * d, fi += ur[k - 1] * d;
        }
        VEC y1r = er + fr, y1i = ei - fi, y2r = er - fr, y2i = ei + fi;
        REAL w1r = tw[2 * j - 2], w1i = tw[2 * j - 1];
        REAL w2r = tw[2 * (r - j) - 2], w2i = tw[2 * (r - j) - 1];
        outr[at + s * j] = y1r * w1r - y1i * w1i;
        outi[at + s * j] = y1r * w1i + y1i * w1r;
        outr[at + s * (r - j)] = y2r * w2r - y2i * w2i;
        outi[at + s * (r - j)] = y2r * w2i + y2i * w2r;
      }
    }
}
ATTR static void CAT(NAME, _odd)(const at_fft_stage *st, const VEC *xr,
                                 const VEC *xi, VEC *outr, VEC *outi) {
  switch (st->radix) {
    case 3:
      CAT(NAME, _odd_body)(3, st, xr, xi, outr, outi);
      break;
    case 5:
      CAT(NAME, _odd_body)(5, st, xr, xi, outr, outi);
      break;
    default:
      CAT(NAME, _odd_body)(st->radix, st, xr, xi, outr, outi);
  }
}

// Transforms a[0], a[1] (real, imaginary vectors of n elements) using b;
// returns the pair that holds the result.
ATTR static VEC **CAT(NAME, _stages)(const at_fft_plan *plan, VEC **a,
                                     VEC **b) {
  for (int i = 0; i < plan->count; i++) {
    const at_fft_stage *st = &plan->stage[i];
    if (st->radix == 4)
      CAT(NAME, _stage4)(st, a[0], a[1], b[0], b[1]);
    else if (st->radix == 2)
      CAT(NAME, _stage2)(st, a[0], a[1], b[0], b[1]);
    else
      CAT(NAME, _odd)(st, a[0], a[1], b[0], b[1]);
    VEC **t = a;
    a = b, b = t;
  }
  return a;
}

// v[i] *= w[i] for i < n, conjugating w when asked.
ATTR static void CAT(NAME, _scale)(VEC **v, const REAL *w, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    REAL wr = w[2 * i], wi = w[2 * i + 1];
    VEC r = v[0][i], im = v[1][i];
    v[0][i] = r * wr - im * wi, v[1][i] = r * wi + im * wr;
  }
}

ATTR static VEC **CAT(NAME, _bluestein)(const at_fft_plan *plan, VEC **a,
                                        VEC **b) {
  int64_t n = plan->n, c = plan->conv->n;
  CAT(NAME, _scale)(a, plan->chirp, n);
  memset(a[0] + n, 0, (size_t)(c - n) * sizeof(VEC));
  memset(a[1] + n, 0, (size_t)(c - n) * sizeof(VEC));
  VEC **f = CAT(NAME, _stages)(plan->conv, a, b);
  CAT(NAME, _scale)(f, plan->chirp_ft, c);  // holds 1 / c as well
  // The inverse transform is the transform with the parts swapped.
  VEC **other = f == a ? b : a;
  VEC *fs[2] = {f[1], f[0]}, *os[2] = {other[1], other[0]};
  VEC **g = CAT(NAME, _stages)(plan->conv, fs, os);
  VEC **result = (g[1] == a[0] || g[1] == a[1]) ? a : b;
  result[0] = g[1], result[1] = g[0];
  CAT(NAME, _scale)(result, plan->chirp, n);
  return result;
}

// Lane `l` of the group from a line; missing elements stay as they are.
static void CAT(NAME, _load_line)(const at_fft_pass *p, const REAL *src, int l,
                                  REAL *re, REAL *im) {
  int64_t es = p->src.elem, n = p->plan->n;
  if (p->src.real) {
    for (int64_t i = 0; i < p->in_count; i++)
      re[i * WIDTH + l] = src[i * es], im[i * WIDTH + l] = 0;
  } else {
    for (int64_t i = 0; i < p->in_count; i++)
      re[i * WIDTH + l] = src[2 * i * es],
                     im[i * WIDTH + l] = src[2 * i * es + 1];
  }
  if (!p->hermitian) return;
  // The spectrum of a real line: the parts that must be real are taken as real.
  im[l] = 0;
  if (n % 2 == 0) im[n / 2 * WIDTH + l] = 0;
  for (int64_t i = n / 2 + 1; i < n; i++) {
    re[i * WIDTH + l] = re[(n - i) * WIDTH + l];
    im[i * WIDTH + l] = -im[(n - i) * WIDTH + l];
  }
}

static int64_t CAT(NAME, _line_at)(const at_fft_pass *p, const at_fft_side *s,
                                   int64_t l) {
  return (l / p->inner * s->outer + l % p->inner * s->line) * (s->real ? 1 : 2);
}

// Neighbouring lines one element apart: whole vectors.
ATTR static void CAT(NAME, _load_dense)(const at_fft_pass *p, const REAL *src,
                                        REAL *re, REAL *im) {
  for (int64_t i = 0; i < p->in_count; i++) {
    const REAL *restrict s = src + 2 * i * p->src.elem;
    REAL *restrict r = re + i * WIDTH, *restrict m = im + i * WIDTH;
    for (int l = 0; l < WIDTH; l++) r[l] = s[2 * l], m[l] = s[2 * l + 1];
  }
}
ATTR static void CAT(NAME, _store_dense)(const at_fft_pass *p, REAL *dst,
                                         const REAL *re, const REAL *im) {
  for (int64_t i = 0; i < p->out_count; i++) {
    REAL *restrict d = dst + 2 * i * p->dst.elem;
    const REAL *restrict r = re + i * WIDTH, *restrict m = im + i * WIDTH;
    for (int l = 0; l < WIDTH; l++) d[2 * l] = r[l], d[2 * l + 1] = m[l];
  }
}

ATTR static void CAT(NAME, _turn)(const at_fft_pass *p, int64_t first,
                                  int64_t lanes, VEC **v) {
  enum { STEP = 32 };
  int64_t n = p->plan->n;
  REAL fine[STEP][2][WIDTH];
  for (int64_t k = 0; k < n; k += STEP) {
    REAL coarse[2][WIDTH] = {{0}};
    for (int64_t part = k ? STEP : 0; part <= STEP; part++) {
      REAL(*to)[WIDTH] = part == STEP ? coarse : fine[part];
      for (int64_t l = 0; l < WIDTH; l++) {
        int64_t mult = part == STEP ? k : part;
        int64_t e =
            (first + AT_MIN(l, lanes - 1)) % p->inner * mult % p->turn_n;
        const double *hi = p->turn_hi + 2 * (e / p->turn_split);
        const double *lo = p->turn_lo + 2 * (e % p->turn_split);
        to[0][l] = (REAL)(hi[0] * lo[0] - hi[1] * lo[1]);
        to[1][l] = (REAL)(hi[0] * lo[1] + hi[1] * lo[0]);
      }
    }
    VEC cr, ci;
    memcpy(&cr, coarse[0], sizeof cr), memcpy(&ci, coarse[1], sizeof ci);
    for (int64_t q = 0; q < AT_MIN(STEP, n - k); q++) {
      VEC fr, fi;
      memcpy(&fr, fine[q][0], sizeof fr), memcpy(&fi, fine[q][1], sizeof fi);
      VEC wr = cr * fr - ci * fi, wi = cr * fi + ci * fr;
      VEC r = v[0][k + q], im = v[1][k + q];
      v[0][k + q] = r * wr - im * wi, v[1][k + q] = r * wi + im * wr;
    }
  }
}

ATTR static void CAT(NAME, _store)(const at_fft_pass *p, int64_t first,
                                   int64_t lanes, bool adjacent, const REAL *re,
                                   const REAL *im) {
  if (adjacent && !p->dst.real && p->dst.line == 1) {
    CAT(NAME, _store_dense)
    (p, (REAL *)(void *)p->dst.p + CAT(NAME, _line_at)(p, &p->dst, first), re,
     im);
    return;
  }
  for (int64_t l = 0; l < lanes; l++) {
    REAL *d =
        (REAL *)(void *)p->dst.p + CAT(NAME, _line_at)(p, &p->dst, first + l);
    int64_t es = p->dst.elem;
    for (int64_t i = 0; i < p->out_count; i++) {
      if (p->dst.real)
        d[i * es] = re[i * WIDTH + l];
      else
        d[2 * i * es] = re[i * WIDTH + l],
                  d[2 * i * es + 1] = im[i * WIDTH + l];
    }
  }
}

// Lines [first, first + WIDTH), fewer at the end.
ATTR static void CAT(NAME, _group)(const at_fft_pass *p, int64_t first,
                                   void *work) {
  const at_fft_plan *plan = p->plan;
  int64_t n = plan->n, size = plan->conv ? plan->conv->n : n;
  int64_t lanes = AT_MIN(WIDTH, p->lines - first);
  bool adjacent =
      lanes == WIDTH && first / p->inner == (first + WIDTH - 1) / p->inner;
  VEC *mem = work;
  VEC *av[2] = {mem, mem + size}, *bv[2] = {mem + 2 * size, mem + 3 * size};
  REAL *re = (REAL *)(p->inverse ? av[1] : av[0]);
  REAL *im = (REAL *)(p->inverse ? av[0] : av[1]);
  const REAL *src = (const REAL *)(const void *)p->src.p;
  if (adjacent && !p->src.real && p->src.line == 1 && !p->hermitian) {
    CAT(NAME, _load_dense)
    (p, src + CAT(NAME, _line_at)(p, &p->src, first), re, im);
  } else {
    if (lanes < WIDTH) memset(mem, 0, (size_t)(2 * size) * sizeof(VEC));
    for (int64_t l = 0; l < lanes; l++)
      CAT(NAME, _load_line)
      (p, src + CAT(NAME, _line_at)(p, &p->src, first + l), (int)l, re, im);
  }
  VEC **v = plan->conv ? CAT(NAME, _bluestein)(plan, av, bv)
                       : CAT(NAME, _stages)(plan, av, bv);
  if (p->turn_n) CAT(NAME, _turn)(p, first, lanes, v);
  if (p->scale != 1)
    for (int64_t i = 0; i < n; i++)
      v[0][i] *= (REAL)p->scale, v[1][i] *= (REAL)p->scale;
  re = (REAL *)(p->inverse ? v[1] : v[0]);
  im = (REAL *)(p->inverse ? v[0] : v[1]);
  CAT(NAME, _store)(p, first, lanes, adjacent, re, im);
}

#undef STAGE
#undef BUTTERFLY_2
#undef BUTTERFLY_4
#undef UNROLL
#undef VEC
#undef CAT
#undef CAT_
#undef NAME
#undef REAL
#undef WIDTH
#undef ATTR
