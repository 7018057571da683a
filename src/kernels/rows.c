// GATHER_ROWS and SCATTER_ROWS_ADD: tables of rows addressed by an index
// vector.
#include "kernels/kernels_internal.h"

enum { AHEAD = 8, PREFETCH_BYTES = 512 };

static bool index_type_ok(uint32_t t) {
  return t == AT_S8 || t == AT_U8 || t == AT_S16 || t == AT_U16 ||
         t == AT_S32 || t == AT_U32 || t == AT_S64 || t == AT_U64;
}
// Index i, saturated to int64.
static inline int64_t index_at(uint32_t t, const void *p, int64_t i) {
  switch (t) {
    case AT_S32:
      return ((const int32_t *)p)[i];
    case AT_U32:
      return ((const uint32_t *)p)[i];
    case AT_S64:
      return ((const int64_t *)p)[i];
    case AT_U64: {
      uint64_t v = ((const uint64_t *)p)[i];
      return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
    case AT_S16:
      return ((const int16_t *)p)[i];
    case AT_U16:
      return ((const uint16_t *)p)[i];
    case AT_S8:
      return ((const int8_t *)p)[i];
    default:
      return ((const uint8_t *)p)[i];
  }
}

typedef struct rows_run {
  const at_k_rows_params *p;
  const char *table, *updates;
  const void *indices;
  char *out;
  int64_t row_bytes, part;  // part: table rows of one task
} rows_run;

static inline int64_t clamp(int64_t i, int64_t rows) {
  return i < 0 ? 0 : i >= rows ? rows - 1 : i;
}
static inline void prefetch_row(const char *p, int64_t bytes) {
  int64_t n = AT_MIN(bytes, PREFETCH_BYTES);
  for (int64_t b = 0; b < n; b += 64) __builtin_prefetch(p + b);
}

static void gather_range(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const rows_run *r = arg;
  const at_k_rows_params *p = r->p;
  int64_t rb = r->row_bytes;
  for (int64_t i = begin; i < end; i++) {
    if (i + AHEAD < end)
      prefetch_row(
          r->table +
              clamp(index_at(p->index_dtype, r->indices, i + AHEAD), p->rows) *
                  rb,
          rb);
    const char *src =
        r->table + clamp(index_at(p->index_dtype, r->indices, i), p->rows) * rb;
    char *dst = r->out + i * rb;
    if (rb == 4)
      memcpy(dst, src, 4);
    else if (rb == 8)
      memcpy(dst, src, 8);
    else
      memcpy(dst, src, (size_t)rb);
  }
}

static at_status check_rows(const at_k_rows_params *p) {
  AT_K_CHECK(index_type_ok(p->index_dtype),
             "rows: index type %s is not an integer",
             at_k_dtype_text(p->index_dtype));
  int64_t bytes;
  AT_K_CHECK(
      p->rows >= 0 && p->width >= 0 && p->count >= 0 &&
          !__builtin_mul_overflow(p->width, (int64_t)p->element_bytes, &bytes),
      "rows: bad sizes: %ld rows of %ld, %ld indices", p->rows, p->width,
      p->count);
  return AT_OK;
}

at_status at_k_gather_rows(const at_k_call *c) {
  const at_k_rows_params *p = c->params;
  AT_K_BUFS(c, 3);
  AT_TRY(check_rows(p));
  AT_K_CHECK(p->rows > 0 || p->count == 0,
             "gather_rows: %ld indices into a table without rows", p->count);
  rows_run r = {.p = p,
                .table = c->bufs[0],
                .indices = c->bufs[1],
                .out = c->bufs[2],
                .row_bytes = p->width * p->element_bytes};
  if (r.row_bytes)
    at_par_for(c->par, p->count, 65536 / r.row_bytes + 1, gather_range, &r);
  return AT_OK;
}

// ---- Scatter-add
// -----------------------------------------------------------------
#define ADD_LOOP(T)                                          \
  do {                                                       \
    T *restrict d = dst;                                     \
    const T *restrict s = src;                               \
    for (int64_t i = 0; i < n; i++) d[i] = (T)(d[i] + s[i]); \
  } while (0)

// dst[i] += src[i]. f16 and bf16 are added in f32 and rounded, once per update.
static void add_row(uint32_t t, void *dst, const void *src, int64_t n) {
  switch (t) {
    case AT_F32:
      ADD_LOOP(float);
      break;
    case AT_F64:
      ADD_LOOP(double);
      break;
    case AT_S32:
    case AT_U32:
      ADD_LOOP(uint32_t);
      break;
    case AT_S64:
    case AT_U64:
      ADD_LOOP(uint64_t);
      break;
    case AT_S16:
    case AT_U16:
      ADD_LOOP(uint16_t);
      break;
    case AT_S8:
    case AT_U8:
      ADD_LOOP(uint8_t);
      break;
    case AT_C64:
      n *= 2;
      ADD_LOOP(float);
      break;
    case AT_C128:
      n *= 2;
      ADD_LOOP(double);
      break;
    case AT_BF16: {
      uint16_t *d = dst;
      const uint16_t *s = src;
      for (int64_t i = 0; i < n; i++)
        d[i] = at_f32_to_bf16(at_bf16_to_f32(d[i]) + at_bf16_to_f32(s[i]));
      break;
    }
    case AT_F16: {
      uint16_t *d = dst;
      const uint16_t *s = src;
      for (int64_t i = 0; i < n; i++)
        d[i] = at_f32_to_f16(at_f16_to_f32(d[i]) + at_f16_to_f32(s[i]));
      break;
    }
    default: {
      int64_t es = at_dtype_bytes((at_dtype)t);
      for (int64_t i = 0; i < n; i++) {
        char *d = (char *)dst + i * es;
        const char *s = (const char *)src + i * es;
        at_k_store_f64(t, d, at_k_load_f64(t, d) + at_k_load_f64(t, s));
      }
    }
  }
}

// Tasks own disjoint ranges of table rows and walk the updates in order, so
// every row's sum has one order. `list` holds, per task, the updates that are
// its own.
typedef struct scatter_run {
  rows_run r;
  const uint32_t *list;
  const int64_t *start;  // per task, into list
} scatter_run;

static void scatter_range(void *arg, int64_t begin, int64_t end,
                          uint32_t worker) {
  const scatter_run *s = arg;
  const at_k_rows_params *p = s->r.p;
  int64_t rb = s->r.row_bytes;
  for (int64_t t = begin; t < end; t++) {
    int64_t from = s->start[t], to = s->start[t + 1];
    for (int64_t q = from; q < to; q++) {
      if (q + AHEAD < to) {
        int64_t a = s->list[q + AHEAD];
        prefetch_row(s->r.out + index_at(p->index_dtype, s->r.indices, a) * rb,
                     rb);
        prefetch_row(s->r.updates + a * rb, rb);
      }
      int64_t i = s->list[q];
      add_row(p->dtype,
              s->r.out + index_at(p->index_dtype, s->r.indices, i) * rb,
              s->r.updates + i * rb, p->width);
    }
  }
}

static void copy_table_range(void *arg, int64_t begin, int64_t end,
                             uint32_t worker) {
  const rows_run *r = arg;
  memcpy(
      r->out + begin * 65536, r->table + begin * 65536,
      (size_t)(AT_MIN(end * 65536, r->p->rows * r->row_bytes) - begin * 65536));
}

enum { MAX_PARTS = 256 };

at_status at_k_scatter_rows_add(const at_k_call *c) {
  const at_k_rows_params *p = c->params;
  AT_K_BUFS(c, 4);
  AT_TRY(check_rows(p));
  AT_K_CHECK(at_dtype_bytes((at_dtype)p->dtype) == p->element_bytes,
             "scatter_rows_add: type %s has not %u bytes",
             at_k_dtype_text(p->dtype), p->element_bytes);
  AT_K_CHECK(p->count <= UINT32_MAX, "scatter_rows_add: %ld updates", p->count);
  scatter_run s = {.r = {.p = p,
                         .table = c->bufs[0],
                         .indices = c->bufs[1],
                         .updates = c->bufs[2],
                         .out = c->bufs[3],
                         .row_bytes = p->width * p->element_bytes}};
  int64_t table_bytes = p->rows * s.r.row_bytes;
  if (s.r.out != s.r.table && table_bytes)
    at_par_for(c->par, at_k_ceil_div(table_bytes, 65536), 8, copy_table_range,
               &s.r);
  if (p->rows == 0 || p->count == 0 || s.r.row_bytes == 0) return AT_OK;
  int64_t parts =
      AT_MIN(MAX_PARTS, at_k_ceil_div(p->count * s.r.row_bytes, 1 << 16));
  parts = AT_MIN(parts, p->rows);
  s.r.part = at_k_ceil_div(p->rows, parts);
  uint32_t *list;
  AT_K_SCRATCH(list, c, (size_t)p->count * 4);
  int64_t start[MAX_PARTS + 1] = {0}, at[MAX_PARTS];
  // Counting sort of the updates by part; out-of-bounds ones are skipped.
  for (int64_t i = 0; i < p->count; i++) {
    int64_t x = index_at(p->index_dtype, s.r.indices, i);
    if (x >= 0 && x < p->rows) start[x / s.r.part + 1]++;
  }
  for (int64_t t = 0; t < parts; t++)
    start[t + 1] += start[t], at[t] = start[t];
  for (int64_t i = 0; i < p->count; i++) {
    int64_t x = index_at(p->index_dtype, s.r.indices, i);
    if (x >= 0 && x < p->rows) list[at[x / s.r.part]++] = (uint32_t)i;
  }
  s.list = list, s.start = start;
  at_par_for(c->par, parts, 1, scatter_range, &s);
  return AT_OK;
}
