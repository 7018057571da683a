// SORT. Keys become 32-bit limbs; an item is limb << 32 | position, so that a
// stable pass per limb, minor limb first, sorts any number of keys of any type.
#include "base/verify.h"
#include "kernels/sort_internal.h"

typedef struct sort {
  const at_k_sort_params *p;
  void *const *in, *const *out;
  at_comparator_fn compare;
  uint64_t *items;  // per worker: two arrays of `size`
  uint32_t *perm;   // per worker: two arrays of `size`
} sort;

enum { RADIX_FROM = 256, PARALLEL_FROM = 1 << 15 };

// Does order[n] name each place once? Told by the sum of the places and that of
// their squares, modulo 2^64, as a set would take memory.
static bool is_permutation(const uint32_t *order, int64_t n) {
  uint64_t sum = 0, squares = 0;
  for (int64_t i = 0; i < n; i++) {
    if (order[i] >= n) return false;
    sum += order[i] - (uint64_t)i;
    squares += (uint64_t)order[i] * order[i] - (uint64_t)i * (uint64_t)i;
  }
  return !sum && !squares;
}

// Offset in elements of the first element of a row; its others are `inner`
// apart.
static int64_t row_at(const at_k_sort_params *p, int64_t row) {
  return row / p->inner * p->size * p->inner + row % p->inner;
}

// The order of one row by its keys, in perm[0 .. size); on one thread.
static uint32_t *order_row(const sort *s, int64_t row, uint64_t *items,
                           uint32_t *perm) {
  const at_k_sort_params *p = s->p;
  int64_t n = p->size;
  const uint32_t *have = NULL;
  uint32_t *next = perm;
  for (uint32_t key = p->num_keys; key-- > 0;) {
    int64_t es = p->element_bytes[key];
    const char *base = (const char *)s->in[key] + row_at(p, row) * es;
    for (int limb = 0; limb < at_sort_limbs(p->dtype[key]); limb++) {
      at_sort_items(p->dtype[key], limb, p->order == AT_ORDER_DESC, base,
                    p->inner * es, have, 0, n, items);
      // Positions are the low half of items: merging by all bits is stable too.
      uint64_t *r = n < RADIX_FROM ? at_sort_merge(items, items + n, n)
                                   : at_sort_radix(items, items + n, n);
      for (int64_t i = 0; i < n; i++) {
        uint32_t at = (uint32_t)r[i];
        next[i] = have ? have[at] : at;
      }
      have = next;
      next = have == perm ? perm + n : perm;
    }
  }
  return (uint32_t *)(uintptr_t)have;
}

#define PERMUTE(T)                                                         \
  do {                                                                     \
    const T *restrict a = (const T *)(const void *)src;                    \
    T *restrict d = (T *)(void *)dst;                                      \
    for (int64_t i = begin; i < end; i++) d[i * step] = a[perm[i] * step]; \
  } while (0)
typedef struct e16 {
  uint64_t w[2];
} e16;

// dst[i * step] = src[perm[i] * step] for i in [begin, end).
static void permute(uint32_t es, char *dst, const char *src,
                    const uint32_t *perm, int64_t begin, int64_t end,
                    int64_t step) {
  switch (es) {
    case 1:
      PERMUTE(uint8_t);
      break;
    case 2:
      PERMUTE(uint16_t);
      break;
    case 4:
      PERMUTE(uint32_t);
      break;
    case 8:
      PERMUTE(uint64_t);
      break;
    default:
      PERMUTE(e16);
  }
}

// The row as the comparator sees it: where each operand begins, and its stride.
static at_sort_row custom_row(const sort *s, int64_t row) {
  at_sort_row r = {.num_operands = s->p->num_operands, .compare = s->compare};
  for (uint32_t o = 0; o < r.num_operands; o++) {
    int64_t es = s->p->element_bytes[o];
    r.base[o] = (const char *)s->in[o] + row_at(s->p, row) * es;
    r.stride[o] = s->p->inner * es;
  }
  return r;
}

// Rows [begin, end): the order, then every operand in that order.
static void rows_range(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const sort *s = arg;
  const at_k_sort_params *p = s->p;
  int64_t n = p->size;
  uint64_t *items = s->items ? s->items + (int64_t)worker * 2 * n : NULL;
  uint32_t *perm = s->perm + (int64_t)worker * 2 * n;
  for (int64_t row = begin; row < end; row++) {
    uint32_t *order = perm;
    if (p->order == AT_ORDER_CUSTOM) {
      for (int64_t i = 0; i < n; i++) perm[i] = (uint32_t)i;
      at_sort_row r = custom_row(s, row);
      at_sort_custom(&r, perm, perm + n, n);
    } else {
      order = order_row(s, row, items, perm);
    }
    AT_VERIFY(is_permutation(order, n));
    for (uint32_t o = 0; o < p->num_operands; o++) {
      int64_t at = row_at(p, row) * p->element_bytes[o];
      permute(p->element_bytes[o], (char *)s->out[o] + at,
              (const char *)s->in[o] + at, order, 0, n, p->inner);
    }
  }
}

// ---- One long row at a time, over the pool
// State of the passes over one row: `have` is the order after the limbs so far,
// NULL at the start.
typedef struct long_row {
  const sort *s;
  int64_t row;
  uint32_t key;
  int limb;
  const uint32_t *have;
  uint32_t *next;
  uint64_t *items;
  uint32_t operand;
} long_row;

// Items of positions [begin, end) of the current limb.
static void long_items(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const long_row *l = arg;
  const at_k_sort_params *p = l->s->p;
  int64_t es = p->element_bytes[l->key];
  at_sort_items(p->dtype[l->key], l->limb, p->order == AT_ORDER_DESC,
                (const char *)l->s->in[l->key] + row_at(p, l->row) * es,
                p->inner * es, l->have, begin, end, l->items);
}
// Order after this pass: positions in the sorted items, seen through the order
// before.
static void long_compose(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const long_row *l = arg;
  for (int64_t i = begin; i < end; i++) {
    uint32_t at = (uint32_t)l->items[i];
    l->next[i] = l->have ? l->have[at] : at;
  }
}
// Elements [begin, end) of one operand in the final order.
static void long_permute(void *arg, int64_t begin, int64_t end,
                         uint32_t worker) {
  const long_row *l = arg;
  const at_k_sort_params *p = l->s->p;
  int64_t at = row_at(p, l->row) * p->element_bytes[l->operand];
  permute(p->element_bytes[l->operand], (char *)l->s->out[l->operand] + at,
          (const char *)l->s->in[l->operand] + at, l->have, begin, end,
          p->inner);
}

enum { GRAIN = 1 << 15 };

// One row by all threads, limb after limb.
static at_status sort_long_row(const at_par *par, const sort *s, int64_t row) {
  const at_k_sort_params *p = s->p;
  int64_t n = p->size;
  long_row l = {.s = s, .row = row};
  if (p->order == AT_ORDER_CUSTOM) {
    for (int64_t i = 0; i < n; i++) s->perm[i] = (uint32_t)i;
    at_sort_row r = custom_row(s, row);
    at_sort_custom_parallel(par, &r, s->perm, s->perm + n, n);
    l.have = s->perm;
  }
  for (uint32_t key = p->order == AT_ORDER_CUSTOM ? 0 : p->num_keys;
       key-- > 0;) {
    l.key = key;
    for (l.limb = 0; l.limb < at_sort_limbs(p->dtype[key]); l.limb++) {
      at_status st;
      l.items = s->items;
      at_par_for(par, n, GRAIN, long_items, &l);
      l.items = at_sort_radix_parallel(par, s->items, s->items + n, n, &st);
      AT_TRY(st);
      l.next = l.have == s->perm ? s->perm + n : s->perm;
      at_par_for(par, n, GRAIN, long_compose, &l);
      l.have = l.next;
    }
  }
  AT_VERIFY(is_permutation(l.have, n));
  for (l.operand = 0; l.operand < p->num_operands; l.operand++)
    at_par_for(par, n, GRAIN, long_permute, &l);
  return AT_OK;
}

// ---- Fast paths: one dense row of 4-byte keys, alone or with a 4-byte
// companion ------- Keys are turned back into values afterwards. -0 and NaN do
// not survive that, so the sort of single values puts them back in their order,
// and a pair sort declines.
typedef struct fast {
  const uint32_t *in, *with;
  uint32_t *out, *out_with, *keys;
  uint64_t *pairs;
  int64_t n;
  uint32_t mask;
  bool is_float, is_signed;
  bool *odd;  // per grain: saw -0 or NaN
} fast;

// The unsigned key of a 4-byte value; value_of is its inverse but for -0 and
// NaN.
static inline uint32_t key_of(const fast *f, uint32_t u) {
  uint32_t k = u;
  if (f->is_float)
    k = (u & 0x7fffffff) > 0x7f800000 ? UINT32_MAX
        : u == 0x80000000             ? 0x80000000
                          : u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000);
  else if (f->is_signed)
    k = u ^ 0x80000000;
  return k ^ f->mask;
}
// The inverse of the key: bits that order as unsigned numbers become the
// element's again.
static inline uint32_t value_of(const fast *f, uint32_t k) {
  k ^= f->mask;
  if (f->is_float) return k ^ (((k >> 31) - 1) | 0x80000000);
  return f->is_signed ? k ^ 0x80000000 : k;
}

// Grains [begin, end): keys, and whether a grain has values that do not come
// back from their key.
static void fast_keys(void *arg, int64_t begin, int64_t end, uint32_t worker) {
  const fast *f = arg;
  for (int64_t g = begin; g < end && f->is_float; g++) {
    uint32_t odd = 0;
    for (int64_t i = g * GRAIN; i < AT_MIN((g + 1) * GRAIN, f->n); i++)
      odd |= (f->in[i] & 0x7fffffff) > 0x7f800000 || f->in[i] == 0x80000000;
    f->odd[g] = odd;
  }
  begin *= GRAIN, end = AT_MIN(end * GRAIN, f->n);
  if (f->with)
    for (int64_t i = begin; i < end; i++)
      f->pairs[i] = (uint64_t)key_of(f, f->in[i]) << 32 | f->with[i];
  else
    for (int64_t i = begin; i < end; i++) f->keys[i] = key_of(f, f->in[i]);
}
// Elements [begin, end) back from keys to values.
static void fast_values(void *arg, int64_t begin, int64_t end,
                        uint32_t worker) {
  const fast *f = arg;
  if (f->with)
    for (int64_t i = begin; i < end; i++) {
      f->out[i] = value_of(f, (uint32_t)(f->pairs[i] >> 32));
      f->out_with[i] = (uint32_t)f->pairs[i];
    }
  else
    for (int64_t i = begin; i < end; i++) f->out[i] = value_of(f, f->keys[i]);
}

// Index of the first of the ascending keys that is not below x.
static int64_t first_at_least(const uint32_t *k, int64_t n, uint32_t x) {
  int64_t lo = 0, hi = n;
  while (lo < hi) {
    int64_t mid = lo + (hi - lo) / 2;
    if (k[mid] < x)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

// Writes the zeros, then the NaN, of the input over their runs, in input order.
static void restore_odd(const fast *f, int64_t n) {
  int64_t zero = first_at_least(f->keys, n, key_of(f, 0));
  int64_t nan = first_at_least(f->keys, n, key_of(f, 0x7fc00000));
  for (int64_t i = 0; i < n; i++) {
    uint32_t u = f->in[i];
    if ((u & 0x7fffffff) == 0)
      f->out[zero++] = u;
    else if ((u & 0x7fffffff) > 0x7f800000)
      f->out[nan++] = u;
  }
}

// Sets *done when the row was sorted here.
static at_status sort_fast(const at_k_call *c, const sort *s, bool *done) {
  const at_k_sort_params *p = s->p;
  uint32_t t = p->dtype[0];
  *done = false;
  if (p->inner != 1 || p->outer != 1 || p->num_keys != 1 ||
      p->num_operands > 2 || p->order == AT_ORDER_CUSTOM ||
      p->size < PARALLEL_FROM || (t != AT_F32 && t != AT_S32 && t != AT_U32) ||
      (p->num_operands == 2 && p->element_bytes[1] != 4))
    return AT_OK;
  int64_t n = p->size, grains = at_k_ceil_div(n, GRAIN);
  fast f = {.in = s->in[0],
            .out = s->out[0],
            .is_float = t == AT_F32,
            .is_signed = t == AT_S32,
            .n = n,
            .mask = p->order == AT_ORDER_DESC ? UINT32_MAX : 0};
  AT_K_SCRATCH(f.odd, c, (size_t)grains);
  if (p->num_operands == 2) f.with = s->in[1], f.out_with = s->out[1];
  size_t item = f.with ? 8 : 4;
  char *mem;
  AT_K_SCRATCH(mem, c, (size_t)n * 2 * item);
  f.keys = (uint32_t *)(void *)mem, f.pairs = (uint64_t *)(void *)mem;
  if (!f.is_float) memset(f.odd, 0, (size_t)grains);
  at_par_for(c->par, grains, 1, fast_keys, &f);
  bool odd = false;
  for (int64_t g = 0; g < grains; g++) odd = odd || f.odd[g];
  if (odd && f.with) return AT_OK;
  at_status st;
  if (f.with)
    f.pairs = at_sort_radix_parallel(c->par, f.pairs, f.pairs + n, n, &st);
  else
    f.keys = at_sort_radix32_parallel(c->par, f.keys, f.keys + n, n, &st);
  AT_TRY(st);
  at_par_for(c->par, n, GRAIN, fast_values, &f);
  if (odd) restore_odd(&f, n);
  *done = true;
  return AT_OK;
}

// INVALID_ARGUMENT for parameters that cannot be; UNIMPLEMENTED for rows whose
// positions exceed 32 bits.
static at_status check_sort(const at_k_call *c, const at_k_sort_params *p) {
  AT_K_CHECK(p->num_operands >= 1 && p->num_operands <= AT_K_SORT_OPERANDS,
             "sort: %u operands", p->num_operands);
  AT_K_CHECK(c->num_bufs == 2 * p->num_operands,
             "sort: needs %u buffers, got %u", 2 * p->num_operands,
             c->num_bufs);
  AT_K_CHECK(p->order <= AT_ORDER_CUSTOM, "sort: unknown order %u", p->order);
  AT_K_CHECK(p->outer >= 0 && p->size >= 0 && p->inner >= 0,
             "sort: negative size");
  if (p->size > UINT32_MAX)
    return AT_FAIL(AT_UNIMPLEMENTED, "sort: a row of %ld elements", p->size);
  for (uint32_t o = 0; o < p->num_operands; o++) {
    uint32_t es = p->element_bytes[o];
    AT_K_CHECK(es == 1 || es == 2 || es == 4 || es == 8 || es == 16,
               "sort: operand %u has elements of %u bytes", o, es);
  }
  if (p->order == AT_ORDER_CUSTOM) {
    AT_K_CHECK(c->compare, "sort: no comparator");
    return AT_OK;
  }
  AT_K_CHECK(p->num_keys >= 1 && p->num_keys <= p->num_operands,
             "sort: %u keys", p->num_keys);
  for (uint32_t k = 0; k < p->num_keys; k++)
    AT_K_CHECK(at_dtype_bytes((at_dtype)p->dtype[k]) == p->element_bytes[k],
               "sort: key %u: type %s has not %u bytes", k,
               at_k_dtype_text(p->dtype[k]), p->element_bytes[k]);
  return AT_OK;
}

// SORT: operands, then results. Rows are sorted side by side where there are
// enough, else one after the other by all threads.
at_status at_k_sort(const at_k_call *c) {
  const at_k_sort_params *p = c->params;
  AT_TRY(check_sort(c, p));
  int64_t rows = p->outer * p->inner, n = p->size;
  if (rows == 0 || n == 0) return AT_OK;
  sort s = {.p = p,
            .in = c->bufs,
            .out = c->bufs + p->num_operands,
            .compare = c->compare};
  bool done;
  AT_TRY(sort_fast(c, &s, &done));
  if (done) return AT_OK;
  uint32_t threads = at_par_threads(c->par);
  bool by_row = n < PARALLEL_FROM || rows >= 2 * (int64_t)threads;
  size_t arrays = (size_t)n * 2 * (by_row ? threads : 1);
  AT_K_SCRATCH(s.perm, c, arrays * sizeof *s.perm);
  if (p->order != AT_ORDER_CUSTOM)
    AT_K_SCRATCH(s.items, c, arrays * sizeof *s.items);
  if (by_row) {
    at_par_for(c->par, rows, 8192 / n + 1, rows_range, &s);
    return AT_OK;
  }
  for (int64_t row = 0; row < rows; row++)
    AT_TRY(sort_long_row(c->par, &s, row));
  return AT_OK;
}
