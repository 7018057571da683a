// COPY, FILL and TRANSPOSE.
#include "kernels/kernels_internal.h"

enum { COPY_BLOCK = 1 << 20 };

// One copy, in blocks of COPY_BLOCK bytes.
typedef struct copy_run {
  char *dst;
  const char *src;
  int64_t bytes;
} copy_run;
// Blocks [begin, end).
static void copy_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const copy_run *r = arg;
  int64_t from = begin * COPY_BLOCK, to = AT_MIN(end * COPY_BLOCK, r->bytes);
  AT_ASSERT(from < to);
  memcpy(r->dst + from, r->src + from, (size_t)(to - from));
}
// Copies over the pool. Operands do not overlap.
static void copy_parallel(const at_par *par, void *dst, const void *src,
                          int64_t bytes) {
  copy_run r = {dst, src, bytes};
  at_par_for(par, at_k_ceil_div(bytes, COPY_BLOCK), 1, copy_range, &r);
}

// COPY: bufs[0] to bufs[1], which may be the same buffer.
at_status at_k_copy(const at_k_call *c) {
  const at_k_copy_params *p = c->params;
  AT_K_BUFS(c, 2);
  AT_K_CHECK(p->bytes >= 0, "copy: negative size %ld", p->bytes);
  if (p->bytes && c->bufs[0] != c->bufs[1])
    copy_parallel(c->par, c->bufs[1], c->bufs[0], p->bytes);
  return AT_OK;
}

typedef struct fill_run {
  char *dst;
  int64_t bytes;
  uint8_t pattern[64];  // the element, repeated
} fill_run;
// Blocks [begin, end): every size of element divides the pattern's 64 bytes, so
// a block begins with a whole element.
static void fill_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const fill_run *r = arg;
  int64_t from = begin * COPY_BLOCK, to = AT_MIN(end * COPY_BLOCK, r->bytes);
  __m256i lo = _mm256_loadu_si256((const __m256i *)r->pattern);
  __m256i hi = _mm256_loadu_si256((const __m256i *)(r->pattern + 32));
  int64_t i = from;
  for (; i + 64 <= to; i += 64) {
    _mm256_storeu_si256((__m256i *)(r->dst + i), lo);
    _mm256_storeu_si256((__m256i *)(r->dst + i + 32), hi);
  }
  memcpy(r->dst + i, r->pattern, (size_t)(to - i));
}

// FILL: bufs[0] becomes `elements` copies of one element.
at_status at_k_fill(const at_k_call *c) {
  const at_k_fill_params *p = c->params;
  AT_K_BUFS(c, 1);
  int64_t eb = p->element_bytes;
  AT_K_CHECK(eb == 1 || eb == 2 || eb == 4 || eb == 8 || eb == 16,
             "fill: element of %ld bytes", eb);
  AT_K_CHECK(p->elements >= 0 && p->elements <= INT64_MAX / 16,
             "fill: bad size %ld", p->elements);
  fill_run r = {.dst = c->bufs[0], .bytes = p->elements * eb};
  for (int64_t i = 0; i < 64; i += eb)
    memcpy(r.pattern + i, p->element, (size_t)eb);
  at_par_for(c->par, at_k_ceil_div(r.bytes, COPY_BLOCK), 1, fill_range, &r);
  return AT_OK;
}

// ---- Transpose
// After simplification the minor result dim is Q. If its input stride is 1,
// rows are copied. Else the dim whose input stride is 1 is P, and P x Q tiles
// are transposed; without such a dim, elements are gathered.
// A permutation of dimensions: sizes and strides of the result's dims in
// operand and result, in elements.
typedef struct shape {
  uint32_t rank;
  int64_t size[AT_K_MAX_RANK], in[AT_K_MAX_RANK], out[AT_K_MAX_RANK];
} shape;

// dst[p * dst_stride + q] = src[q * src_stride + p] for p < np and q < nq.
typedef void (*tile_fn)(char *dst, int64_t dst_stride, const char *src,
                        int64_t src_stride, int64_t np, int64_t nq,
                        bool stream);

typedef struct transpose_run {
  shape s;  // outer dims only, in a tile plan
  char *dst;
  const char *src;
  int64_t es, np, nq, tp, tq, blocks_p, blocks_q;
  int64_t p_out, q_in;  // strides: of P in the result, of Q in the operand
  tile_fn tile;
  bool stream;  // past the caches: the result is large and lines are aligned
} transpose_run;

// dst[p * ds + q] = src[q * ss + p], plain.
#define TILE_PLAIN(name, T)                                            \
  static void name(char *dst, int64_t ds, const char *src, int64_t ss, \
                   int64_t np, int64_t nq) {                           \
    const T *s = (const T *)(const void *)src;                         \
    T *d = (T *)(void *)dst;                                           \
    for (int64_t p = 0; p < np; p++)                                   \
      for (int64_t q = 0; q < nq; q++) d[p * ds + q] = s[q * ss + p];  \
  }
typedef struct e16 {
  uint64_t w[2];
} e16;
// For edges of tiles, which are narrower than a line.
TILE_PLAIN(plain1, uint8_t)
TILE_PLAIN(plain2, uint16_t)
TILE_PLAIN(plain4, uint32_t)
TILE_PLAIN(plain8, uint64_t)
TILE_PLAIN(plain16, e16)

// Squares in registers: d[p * ds + q] = s[q * ss + p].
static inline void block_8x8_u32(uint32_t *d, int64_t ds, const uint32_t *s,
                                 int64_t ss) {
  __m256 r[8], t[8];
  for (int i = 0; i < 4; i++) {
    const float *lo = (const float *)(const void *)(s + i * ss);
    const float *hi = (const float *)(const void *)(s + (i + 4) * ss);
    r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo)),
                                _mm_loadu_ps(hi), 1);
    r[i + 4] = _mm256_insertf128_ps(
        _mm256_castps128_ps256(_mm_loadu_ps(lo + 4)), _mm_loadu_ps(hi + 4), 1);
  }
  for (int h = 0; h < 2; h++) {
    __m256 a = _mm256_unpacklo_ps(r[4 * h], r[4 * h + 1]);
    __m256 b = _mm256_unpackhi_ps(r[4 * h], r[4 * h + 1]);
    __m256 c = _mm256_unpacklo_ps(r[4 * h + 2], r[4 * h + 3]);
    __m256 e = _mm256_unpackhi_ps(r[4 * h + 2], r[4 * h + 3]);
    t[4 * h] = _mm256_shuffle_ps(a, c, 0x44);
    t[4 * h + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[4 * h + 2] = _mm256_shuffle_ps(b, e, 0x44);
    t[4 * h + 3] = _mm256_shuffle_ps(b, e, 0xee);
  }
  for (int i = 0; i < 8; i++)
    _mm256_storeu_ps((float *)(void *)(d + i * ds), t[i]);
}
// The same for 4 x 4 of 8 bytes.
static inline void block_4x4_u64(uint64_t *d, int64_t ds, const uint64_t *s,
                                 int64_t ss) {
  __m256i r[4], t[4];
  for (int i = 0; i < 4; i++)
    r[i] = _mm256_loadu_si256((const __m256i *)(s + i * ss));
  t[0] = _mm256_unpacklo_epi64(r[0], r[1]);
  t[1] = _mm256_unpackhi_epi64(r[0], r[1]);
  t[2] = _mm256_unpacklo_epi64(r[2], r[3]);
  t[3] = _mm256_unpackhi_epi64(r[2], r[3]);
  _mm256_storeu_si256((__m256i *)d,
                      _mm256_permute2x128_si256(t[0], t[2], 0x20));
  _mm256_storeu_si256((__m256i *)(d + ds),
                      _mm256_permute2x128_si256(t[1], t[3], 0x20));
  _mm256_storeu_si256((__m256i *)(d + 2 * ds),
                      _mm256_permute2x128_si256(t[0], t[2], 0x31));
  _mm256_storeu_si256((__m256i *)(d + 3 * ds),
                      _mm256_permute2x128_si256(t[1], t[3], 0x31));
}
// 8 x 8 of 2 bytes.
static inline void block_8x8_u16(uint16_t *d, int64_t ds, const uint16_t *s,
                                 int64_t ss) {
  __m128i r[8], a[8], b[8];
  for (int i = 0; i < 8; i++)
    r[i] = _mm_loadu_si128((const __m128i *)(s + i * ss));
  for (int i = 0; i < 4; i++) {
    a[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
    a[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; i++)
    for (int h = 0; h < 2; h++) {
      b[4 * i + 2 * h] = _mm_unpacklo_epi32(a[4 * i + h], a[4 * i + 2 + h]);
      b[4 * i + 2 * h + 1] = _mm_unpackhi_epi32(a[4 * i + h], a[4 * i + 2 + h]);
    }
  for (int i = 0; i < 4; i++) {
    _mm_storeu_si128((__m128i *)(d + 2 * i * ds),
                     _mm_unpacklo_epi64(b[i], b[i + 4]));
    _mm_storeu_si128((__m128i *)(d + (2 * i + 1) * ds),
                     _mm_unpackhi_epi64(b[i], b[i + 4]));
  }
}

// Blocks of one cache line by one line's worth of rows: every line of the
// operand is read once and every line of the result written once, through a
// small buffer, so that strides which are powers of two do not thrash the
// caches.
static inline void put_line(char *d, const char *s, bool stream) {
  __m256i lo = _mm256_load_si256((const __m256i *)(const void *)s);
  __m256i hi = _mm256_load_si256((const __m256i *)(const void *)(s + 32));
  if (stream) {
    _mm256_stream_si256((__m256i *)(void *)d, lo);
    _mm256_stream_si256((__m256i *)(void *)(d + 32), hi);
  } else {
    _mm256_storeu_si256((__m256i *)(void *)d, lo);
    _mm256_storeu_si256((__m256i *)(void *)(d + 32), hi);
  }
}

// The lines of N x N squares, then what is left over on both sides.
#define TILE_LINES(name, T, SUB, block, plain)                              \
  static void name(char *dst, int64_t ds, const char *src, int64_t ss,      \
                   int64_t np, int64_t nq, bool stream) {                   \
    enum { N = 64 / sizeof(T) };                                            \
    const T *s = (const T *)(const void *)src;                              \
    T *d = (T *)(void *)dst;                                                \
    int64_t wp = np / N * N, wq = nq / N * N;                               \
    _Alignas(64) T buf[N * N];                                              \
    for (int64_t q = 0; q < wq; q += N)                                     \
      for (int64_t p = 0; p < wp; p += N) {                                 \
        for (int i = 0; i < N; i += SUB)                                    \
          for (int j = 0; j < N; j += SUB)                                  \
            block(buf + j * N + i, N, s + (q + i) * ss + p + j, ss);        \
        for (int j = 0; j < N; j++)                                         \
          put_line((char *)(d + (p + j) * ds + q),                          \
                   (const char *)(buf + j * N), stream);                    \
      }                                                                     \
    if (wq < nq)                                                            \
      plain((char *)(d + wq), ds, (const char *)(s + wq * ss), ss, wp,      \
            nq - wq);                                                       \
    if (wp < np)                                                            \
      plain((char *)(d + wp * ds), ds, (const char *)(s + wp), ss, np - wp, \
            nq);                                                            \
  }
// 8 x 8 of 1 byte: half of a vector a row.
static inline void block_8x8_u8(uint8_t *d, int64_t ds, const uint8_t *s,
                                int64_t ss) {
  __m128i r[4];
  for (int i = 0; i < 4; i++)
    r[i] = _mm_unpacklo_epi8(
        _mm_loadl_epi64((const __m128i *)(s + 2 * i * ss)),
        _mm_loadl_epi64((const __m128i *)(s + (2 * i + 1) * ss)));
  for (int h = 0; h < 2; h++) {
    __m128i a =
        h ? _mm_unpackhi_epi16(r[0], r[1]) : _mm_unpacklo_epi16(r[0], r[1]);
    __m128i b =
        h ? _mm_unpackhi_epi16(r[2], r[3]) : _mm_unpacklo_epi16(r[2], r[3]);
    __m128i lo = _mm_unpacklo_epi32(a, b), hi = _mm_unpackhi_epi32(a, b);
    uint8_t *o = d + 4 * h * ds;
    _mm_storel_epi64((__m128i *)o, lo);
    _mm_storel_epi64((__m128i *)(o + ds), _mm_unpackhi_epi64(lo, lo));
    _mm_storel_epi64((__m128i *)(o + 2 * ds), hi);
    _mm_storel_epi64((__m128i *)(o + 3 * ds), _mm_unpackhi_epi64(hi, hi));
  }
}
static inline void block_1x1_e16(e16 *d, int64_t ds, const e16 *s, int64_t ss) {
  *d = *s;
}
TILE_LINES(lines1, uint8_t, 8, block_8x8_u8, plain1)
TILE_LINES(lines2, uint16_t, 8, block_8x8_u16, plain2)
TILE_LINES(lines4, uint32_t, 8, block_8x8_u32, plain4)
TILE_LINES(lines8, uint64_t, 4, block_4x4_u64, plain8)
TILE_LINES(lines16, e16, 1, block_1x1_e16, plain16)

// Offsets of index i of the outer dims, the last one fastest.
static void offsets_of(const shape *s, int64_t i, int64_t *in, int64_t *out) {
  *in = *out = 0;
  for (uint32_t d = s->rank; d-- > 0;) {
    int64_t x = i % s->size[d];
    i /= s->size[d];
    *in += x * s->in[d];
    *out += x * s->out[d];
  }
}

// Tiles [begin, end), Q fastest. Streaming stores are fenced before the task
// ends, as other threads read the result.
static void tiles_range(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const transpose_run *r = arg;
  for (int64_t t = begin; t < end; t++) {
    int64_t q = t % r->blocks_q * r->tq,
            p = t / r->blocks_q % r->blocks_p * r->tp;
    AT_ASSERT(q < r->nq && p < r->np);
    int64_t in, out;
    offsets_of(&r->s, t / r->blocks_q / r->blocks_p, &in, &out);
    r->tile(r->dst + (out + p * r->p_out + q) * r->es, r->p_out,
            r->src + (in + p + q * r->q_in) * r->es, r->q_in,
            AT_MIN(r->tp, r->np - p), AT_MIN(r->tq, r->nq - q), r->stream);
  }
  if (r->stream) _mm_sfence();
}

#define GATHER_ROWS(T)                                         \
  for (int64_t k = 0; k < n; k++) {                            \
    const T *s = (const T *)(const void *)(src + k * ss);      \
    T *d = (T *)(void *)(dst + k * ds);                        \
    for (int64_t i = 0; i < r->nq; i++) d[i] = s[i * r->q_in]; \
  }

// n result rows, strides in bytes: elements of the operand that lie apart.
static void gather_rows(const transpose_run *r, char *dst, int64_t ds,
                        const char *src, int64_t ss, int64_t n) {
  switch (r->es) {
    case 1:
      GATHER_ROWS(uint8_t)
      break;
    case 2:
      GATHER_ROWS(uint16_t)
      break;
    case 4:
      GATHER_ROWS(uint32_t)
      break;
    case 8:
      GATHER_ROWS(uint64_t)
      break;
    default:
      GATHER_ROWS(e16)
      break;
  }
}

// n copies of `bytes`, strides in bytes. Short ones of a known length are a
// load and a store; where the results follow one another, of the next power of
// two: the next copy writes over what was too much. Not so the first and the
// last, with nothing of the operand behind one of them.
static void copy_rows(char *dst, int64_t ds, const char *src, int64_t ss,
                      int64_t n, size_t bytes) {
#define COPY_ROWS(size)                                                       \
  case size:                                                                  \
    for (int64_t k = 0; k < n; k++) memcpy(dst + k * ds, src + k * ss, size); \
    break;
#define COPY_PIXELS(size, more)                             \
  case size:                                                \
    if (ds != size || llabs(ss) < more) {                   \
      for (int64_t k = 0; k < n; k++)                       \
        memcpy(dst + k * ds, src + k * ss, size);           \
      break;                                                \
    }                                                       \
    memcpy(dst, src, size);                                 \
    for (int64_t k = 1; k + 1 < n; k++)                     \
      memcpy(dst + k * size, src + k * ss, more);           \
    memcpy(dst + (n - 1) * size, src + (n - 1) * ss, size); \
    break;
  switch (bytes) {
    COPY_ROWS(2)
    COPY_PIXELS(3, 4)
    COPY_ROWS(4)
    COPY_PIXELS(6, 8)
    COPY_ROWS(8)
    COPY_PIXELS(12, 16)
    COPY_ROWS(16)
    COPY_ROWS(24)
    COPY_ROWS(32)
    COPY_ROWS(48)
    COPY_ROWS(64)
    COPY_ROWS(128)
    default:
      for (int64_t k = 0; k < n; k++) memcpy(dst + k * ds, src + k * ss, bytes);
  }
#undef COPY_PIXELS
#undef COPY_ROWS
}

// Result rows [begin, end), as many at a time as one dimension counts.
static void rows_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const transpose_run *r = arg;
  const shape *s = &r->s;
  for (int64_t t = begin, n; t < end; t += n) {
    int64_t in, out, ds = 0, ss = 0;
    offsets_of(s, t, &in, &out);
    n = 1;
    if (s->rank) {
      uint32_t d = s->rank - 1;
      n = AT_MIN(end - t, s->size[d] - t % s->size[d]);
      ds = s->out[d] * r->es, ss = s->in[d] * r->es;
    }
    char *dst = r->dst + out * r->es;
    const char *src = r->src + in * r->es;
    if (r->q_in == 1)
      copy_rows(dst, ds, src, ss, n, (size_t)(r->nq * r->es));
    else
      gather_rows(r, dst, ds, src, ss, n);
  }
}

// Drops dims of size 1 and joins neighbours that are one dim in the operand
// too. *elements: of the result. False: a size is negative or the product
// overflows.
static bool shape_simplify(const at_k_transpose_params *p, shape *s,
                           int64_t *elements) {
  *s = (shape){0};
  *elements = 1;
  for (uint32_t i = 0; i < p->rank; i++) {
    int64_t n = p->out_size[i];
    if (n < 0 || __builtin_mul_overflow(*elements, n, elements)) return false;
    if (n == 1) continue;
    if (s->rank && s->in[s->rank - 1] == p->in_stride[i] * n) {
      s->size[s->rank - 1] *= n;
      s->in[s->rank - 1] = p->in_stride[i];
    } else {
      s->size[s->rank] = n;
      s->in[s->rank++] = p->in_stride[i];
    }
  }
  int64_t step = 1;
  for (uint32_t d = s->rank; d-- > 0;) s->out[d] = step, step *= s->size[d];
  AT_ASSERT(step == *elements);
  return true;
}

// Removes dim d.
static void shape_drop(shape *s, uint32_t d) {
  for (uint32_t i = d; i + 1 < s->rank; i++)
    s->size[i] = s->size[i + 1], s->in[i] = s->in[i + 1],
    s->out[i] = s->out[i + 1];
  s->rank--;
}

// Bytes of a tile along P and Q; results above this size go past the caches.
enum { TILE_P = 4096, TILE_Q = 1024, STREAM_FROM = 8 << 20 };

// Transposes P (p_dim, dense in the operand) by Q (dense in the result), tile
// by tile.
static void run_tiles(const at_k_call *c, transpose_run *r, uint32_t p_dim,
                      int64_t elements) {
  static const tile_fn tiles[] = {lines1, lines2, lines4, lines8, lines16};
  int log = __builtin_ctz((unsigned)r->es);
  r->tile = tiles[log];
  r->np = r->s.size[p_dim], r->p_out = r->s.out[p_dim];
  shape_drop(&r->s, p_dim);
  r->tp = AT_MIN(r->np, TILE_P / r->es);
  r->tq = AT_MIN(r->nq, TILE_Q / r->es);
  // Streaming stores write whole aligned lines: every row of the result must
  // begin on one.
  bool aligned = (uintptr_t)r->dst % 64 == 0 && r->nq * r->es % 64 == 0;
  for (uint32_t d = 0; d < r->s.rank; d++)
    aligned = aligned && r->s.out[d] * r->es % 64 == 0;
  r->stream =
      aligned && r->p_out * r->es % 64 == 0 && elements * r->es > STREAM_FROM;
  r->blocks_p = at_k_ceil_div(r->np, r->tp);
  r->blocks_q = at_k_ceil_div(r->nq, r->tq);
  int64_t outer = elements / r->np / r->nq;
  AT_ASSERT(outer * r->np * r->nq == elements);
  int64_t grain = 16384 / (r->tp * r->tq) + 1;
  at_par_for(c->par, outer * r->blocks_p * r->blocks_q, grain, tiles_range, r);
}

// TRANSPOSE: a copy, tiles, or rows, by where the dense dims lie.
at_status at_k_transpose(const at_k_call *c) {
  const at_k_transpose_params *p = c->params;
  AT_K_BUFS(c, 2);
  uint32_t es = p->element_bytes;
  AT_K_CHECK(es == 1 || es == 2 || es == 4 || es == 8 || es == 16,
             "transpose: element of %u bytes", es);
  AT_K_CHECK(p->rank <= AT_K_MAX_RANK, "transpose: rank %u is over %d", p->rank,
             AT_K_MAX_RANK);
  transpose_run r = {.dst = c->bufs[1],
                     .src = (const char *)c->bufs[0] + p->in_first * es,
                     .es = es};
  int64_t elements;
  AT_K_CHECK(shape_simplify(p, &r.s, &elements), "transpose: bad size");
  if (elements == 0) return AT_OK;
  if (r.s.rank == 0 || (r.s.rank == 1 && r.s.in[0] == 1)) {
    copy_parallel(c->par, r.dst, r.src, elements * es);
    return AT_OK;
  }
  uint32_t q = r.s.rank - 1;
  r.nq = r.s.size[q], r.q_in = r.s.in[q];
  r.s.rank--;
  if (r.q_in != 1)
    for (uint32_t d = 0; d < r.s.rank; d++)
      if (r.s.in[d] == 1) {
        run_tiles(c, &r, d, elements);
        return AT_OK;
      }
  at_par_for(c->par, elements / r.nq, 32768 / r.nq + 1, rows_range, &r);
  return AT_OK;
}
